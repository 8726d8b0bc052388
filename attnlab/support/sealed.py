"""Safetensors files with a SHA-256 checksum."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import chain
from pathlib import Path
from typing import TypeAlias

import numpy as np

from attnlab.equations import AnyArray
from attnlab.errors import AttnlabError, ResumeError, quoted
from attnlab.support.checks import reraised_as
from attnlab.support.files import FilePath, open_regular, reading, write_atomically
from attnlab.support.tables import printable

# The names of the format and the checksum in a file's metadata.
FORMAT, SEAL = "format", "sha256"

Buffer: TypeAlias = bytes | memoryview


def write_sealed(
    path: FilePath, format: str, tensors: Mapping[str, AnyArray], metadata: Mapping[str, str]
) -> None:
    """Write tensors and metadata atomically, with a checksum of both."""
    from safetensors.numpy import save  # here, so that `import attnlab` is quick

    arrays = {name: np.array(tensor, order="C") for name, tensor in tensors.items()}
    texts = {**metadata, FORMAT: format}
    write_atomically(path, save(arrays, {**texts, SEAL: checksum(texts, arrays)}))


def read_sealed(
    path: Path, format: str, error_type: type[AttnlabError]
) -> tuple[dict[str, AnyArray], dict[str, str]]:
    """Read tensors and metadata written by `write_sealed`."""
    from safetensors import safe_open

    with reading(path, error_type):
        open_regular(path).close()  # safe_open would block on a pipe
    with reraised_as(error_type, f"{path} can't be read"), safe_open(path, "np") as content:
        metadata = dict(content.metadata() or {})
        if metadata.get(FORMAT) != format:
            raise error_type(
                f"{path} can't be read: its format must be {format!r}; got "
                f"{quoted(metadata.get(FORMAT))}"
            )
        names = content.keys()
        tensors = {name: content.get_tensor(name) for name in names}
    seal = metadata.pop(SEAL, None)
    if seal != checksum(metadata, tensors):
        raise error_type(f"{path} is corrupt or was modified: its checksum doesn't match")
    del metadata[FORMAT]
    return tensors, metadata


def check_run(path: Path, saved: Mapping[str, str | None], current: Mapping[str, str]) -> None:
    """Raise unless the settings saved in a file match the current run's."""
    different = "; ".join(
        f"{name}: saved {saved.get(name)}, current {current.get(name)}"
        for name in {**current, **saved}
        if saved.get(name) != current.get(name)
    )
    if different:
        raise ResumeError(
            f"{path} belongs to another run. {printable(different[:1000])}. Use another "
            "directory, or the saved settings"
        )


def checksum(metadata: Mapping[str, str], tensors: Mapping[str, AnyArray]) -> str:
    """SHA-256 of the metadata and of the tensors' names, dtypes, shapes and data."""
    shapes = {name: (str(tensor.dtype), tensor.shape) for name, tensor in tensors.items()}
    header = json.dumps([metadata, shapes], sort_keys=True)
    return sha256([header.encode()], (tensors[name].tobytes() for name in sorted(tensors)))


def sha256(*groups: Iterable[Buffer]) -> str:
    """SHA-256 of all groups' bytes, concatenated, in hexadecimal."""
    import hashlib  # loads OpenSSL, which is slow

    digest = hashlib.sha256()
    for piece in chain.from_iterable(groups):
        digest.update(piece)
    return digest.hexdigest()
