"""Safetensors files of our own that tell when they were changed: a checksum over all of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from pathlib import Path
from typing import TypeAlias

import numpy as np

from attnlab.equations import AnyArray
from attnlab.errors import AttnlabError, MissingFileError, ResumeError, quoted
from attnlab.support.checks import errors_of
from attnlab.support.files import Given, open_regular, write_whole
from attnlab.support.tables import printable

FORMAT, SEAL = "format", "sha256"

Buffer: TypeAlias = bytes | memoryview
Shapes: TypeAlias = dict[str, tuple[int, ...]]


def write_sealed(
    path: Given, format: str, tensors: Mapping[str, AnyArray], metadata: Mapping[str, str]
) -> None:
    """Write tensors and texts about them, whole or not at all, with the checksum of both."""
    from safetensors.numpy import save  # here, so that `import attnlab` is quick

    arrays = {name: np.array(tensor, order="C") for name, tensor in tensors.items()}
    words = {**metadata, FORMAT: format}
    write_whole(path, save(arrays, {**words, SEAL: checksum(words, arrays)}))


def read_sealed(
    path: Path,
    format: str,
    unreadable: type[AttnlabError],
    check: Callable[[dict[str, str], Shapes], object] = lambda words, shapes: None,
) -> tuple[dict[str, AnyArray], dict[str, str]]:
    """What `write_sealed` wrote, tensors and metadata.

    Parameters
    ----------
    check : raises where metadata and shapes of tensors are not what is expected, before any number
        is read

    Raises
    ------
    unreadable
        It can't be read, or is not what was written.
    """
    from safetensors import SafetensorError, safe_open

    try:
        open_regular(path).close()  # a pipe can't be mapped into memory, as a file is below
        with safe_open(path, framework="np") as content:
            metadata = dict(content.metadata() or {})
            if metadata.get(FORMAT) != format:
                raise unreadable(
                    f"{path} can't be read: its format must be {format!r}, and is "
                    f"{quoted(metadata.get(FORMAT))}"
                )
            names = content.keys()
            with errors_of(unreadable, f"{path} isn't complete"):
                check(
                    metadata, {name: tuple(content.get_slice(name).get_shape()) for name in names}
                )
            tensors = {name: content.get_tensor(name) for name in names}
    except FileNotFoundError:
        raise MissingFileError(f"there is no {path}") from None
    except unreadable:
        raise
    except (OSError, TypeError, ValueError, SafetensorError) as error:
        raise unreadable(f"{path} can't be read: {error}") from None
    seal = metadata.pop(SEAL, None)
    if seal != checksum(metadata, tensors):
        raise unreadable(f"{path} is not what was written: its checksum differs")
    del metadata[FORMAT]
    return tensors, metadata


def check_run(path: Path, there: Mapping[str, str | None], here: Mapping[str, str]) -> None:
    """Check that what is in a file is of the same run as this one.

    Parameters
    ----------
    there, here : what makes it that run, in words
    """
    different = "; ".join(
        f"{name}: there {there.get(name)}, here {here.get(name)}"
        for name in {**here, **there}
        if there.get(name) != here.get(name)
    )
    if different:
        raise ResumeError(
            f"{path} belongs to another run. {printable(different[:1000])}. Give the run a "
            "directory of its own, or the settings that it had"
        )


def checksum(metadata: Mapping[str, str], tensors: Mapping[str, AnyArray]) -> str:
    """sha256 of the metadata, and of the tensors with their names, dtypes and shapes."""
    shapes = {name: (str(tensor.dtype), tensor.shape) for name, tensor in tensors.items()}
    about = json.dumps([metadata, shapes], sort_keys=True)
    return sha256([about.encode()], (tensors[name].tobytes() for name in sorted(tensors)))


def sha256(*pieces: Iterable[Buffer]) -> str:
    """SHA-256 of pieces of bytes, one after the other, in hexadecimal digits."""
    import hashlib  # here, so that only who needs it waits for OpenSSL

    digest = hashlib.sha256()
    for piece in chain.from_iterable(pieces):
        digest.update(piece)
    return digest.hexdigest()
