"""A run's state as a file: what it goes on from after it was stopped, checked bit by bit.

A safetensors file. Its metadata says which run it is of, after which step, and the sha256 of all of
this and the tensors:

| name | dtype | shape | what |
| --- | --- | --- | --- |
| parameters | float32 | (n,) | all parameters |
| m, v | float32 | (n,) | AdamW's mean and mean square of the gradients |
| losses | float64 | (step,) | of each step |
| seconds | float64 | (1,) | what they took |
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from attnlab.equations import AnyArray
from attnlab.errors import ResumeError, shown
from attnlab.support.files import LARGEST, open_regular, parse_json, write_whole
from attnlab.support.sealed import sha256
from attnlab.support.tables import printable

# Of another format's states nobody knows what they mean.
FORMAT = "2"

# What the metadata says besides which run it is.
OWN = ("format", "step", "sha256")

START_AGAIN = "start again in a new directory"


def write_state(file: Path, run: Mapping[str, str], tensors: Mapping[str, AnyArray]) -> None:
    """Write a state, whole or not at all.

    Parameters
    ----------
    file : where to
    run : what makes it this run, in words
    tensors : as in the table above

    Raises
    ------
    WriteError
        The file can't be written.
    """
    from safetensors.numpy import save

    metadata = {**run, "format": FORMAT, "step": str(tensors["losses"].size)}
    metadata["sha256"] = _checksum(metadata, tensors)
    write_whole(file, save(dict(tensors), metadata))


def read_state(
    file: Path, run: Mapping[str, str], *, parameters: int, steps: int
) -> dict[str, AnyArray]:
    """The tensors of a state, once all of it is known to be what the run wrote.

    Parameters
    ----------
    file : where it is
    run : what makes it this run, in words
    parameters : n, how many the model has
    steps : the most that can have been taken

    Raises
    ------
    ResumeError
        It can't be read, was changed, is not whole, or belongs to another run.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        with open_regular(file) as stream:
            length = int.from_bytes(stream.read(8), "little")
            content = stream.read(min(length, LARGEST))
            if not content.startswith(b"{"):
                raise OSError("its header does not begin with a brace")
            header = parse_json(content, f"the header of {file}", ResumeError)
            metadata = _check_run(file, header.pop("__metadata__", None), run)
            size = _check_entries(file, header, metadata, parameters, steps)
            stream.seek(0)
            tensors = load(stream.read(8 + length + size + 1))  # a byte too many is told
    except (OSError, SafetensorError) as error:
        raise ResumeError(f"{file} can't be read as a training's state: {error}") from None
    if metadata.pop("sha256", None) != _checksum(metadata, tensors):
        raise ResumeError(f"{file} was changed after the run wrote it: {START_AGAIN}")
    finite = all(np.isfinite(tensor).all() for tensor in tensors.values())
    if not finite or tensors["seconds"] < 0 or (tensors["v"] < 0).any():
        raise _not_whole(file)
    return tensors


def _check_run(file: Path, metadata: object, run: Mapping[str, str]) -> dict[str, str]:
    """The metadata, if it is text of the format above and tells that the run is this one."""
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        metadata = {}
    if metadata.get("format") != FORMAT:
        raise ResumeError(
            f"{file} can't be read as a training's state: its format must be {FORMAT!r}, and is "
            f"{shown(metadata.get('format'))}: {START_AGAIN}"
        )
    there = {name: metadata[name] for name in metadata if name not in OWN}
    different = "; ".join(
        f"{name}: there {there.get(name)}, here {run.get(name)}"
        for name in {**run, **there}
        if there.get(name) != run.get(name)
    )
    if different:
        raise ResumeError(
            f"{file} belongs to another run. {printable(different[:1000])}. Give the run a "
            "directory of its own, or the settings that it had"
        )
    return metadata


def _check_entries(
    file: Path, entries: Mapping[str, object], metadata: Mapping[str, str], n: int, steps: int
) -> int:
    """How many bytes the tensors have, if they are those of the table above."""
    step = metadata.get("step", "")
    if not re.fullmatch("[0-9]{1,18}", step) or int(step) > steps:
        raise _not_whole(file)
    expected = {
        **dict.fromkeys(("parameters", "m", "v"), ("F32", [n])),
        "losses": ("F64", [int(step)]),
        "seconds": ("F64", [1]),
    }
    found = {
        name: (entry.get("dtype"), entry.get("shape")) if isinstance(entry, dict) else None
        for name, entry in entries.items()
    }
    if found != expected:
        raise _not_whole(file)
    return 3 * 4 * n + 8 * (int(step) + 1)


def _not_whole(file: Path) -> ResumeError:
    return ResumeError(f"{file} is not a training's whole state: {START_AGAIN}")


def _checksum(metadata: Mapping[str, str], tensors: Mapping[str, AnyArray]) -> str:
    """What tells that nothing was changed: sha256 of the metadata and of the tensors by name."""
    about = json.dumps(metadata, sort_keys=True)
    return sha256([about.encode()], (tensors[name].data for name in sorted(tensors)))
