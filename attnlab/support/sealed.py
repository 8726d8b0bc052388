"""Safetensors files of our own that tell when they were changed: a checksum over all of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import chain
from pathlib import Path
from typing import TypeAlias

import numpy as np

from attnlab.equations import AnyArray
from attnlab.errors import AttnlabError, MissingFileError
from attnlab.support.files import Given, open_regular, write_whole

SEAL = "sha256"

Buffer: TypeAlias = bytes | memoryview


def write_sealed(path: Given, tensors: Mapping[str, AnyArray], metadata: Mapping[str, str]) -> None:
    """Write tensors and texts about them, whole or not at all, with the checksum of both.

    Raises
    ------
    WriteError
        The file can't be written.
    """
    from safetensors.numpy import save  # here, so that `import attnlab` is quick

    arrays = {name: np.array(tensor, order="C") for name, tensor in tensors.items()}
    sealed = {**metadata, SEAL: checksum(metadata, arrays)}
    write_whole(path, save(arrays, sealed))


def read_sealed(
    path: Path, unreadable: type[AttnlabError]
) -> tuple[dict[str, AnyArray], dict[str, str]]:
    """What `write_sealed` wrote, tensors and metadata.

    Raises
    ------
    MissingFileError
        There is no such file.
    unreadable
        It can't be read, or is not what was written.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        with open_regular(path) as stream:
            content = stream.read()
        tensors = load(content)
        length = int.from_bytes(content[:8], "little")
        metadata = json.loads(content[8 : 8 + length]).get("__metadata__", {})
    except FileNotFoundError:
        raise MissingFileError(f"there is no {path}") from None
    except (OSError, ValueError, SafetensorError, KeyError) as error:
        raise unreadable(f"{path} can't be read: {error}") from None
    seal = metadata.pop(SEAL, None)
    if seal != checksum(metadata, tensors):
        raise unreadable(f"{path} is not what was written: its checksum differs")
    return tensors, metadata


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
