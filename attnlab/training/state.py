"""A run's state as a file: what it resumes from after it was stopped, checked bit by bit.

A safetensors file. Its metadata says which run it is of, and the sha256 of this and the tensors:

| name | dtype | shape | what |
| --- | --- | --- | --- |
| parameters | float32 | (n,) | all parameters |
| m, v | float32 | (n,) | AdamW's mean and mean square of the gradients |
| losses | float64 | (step,) | of each step |
| seconds | float64 | (1,) | what they took |
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from attnlab.equations import AnyArray
from attnlab.errors import ResumeError
from attnlab.support.sealed import check_run, read_sealed, write_sealed

# Of another format's states nobody knows what they mean.
FORMAT = "3"


def write_state(file: Path, run: Mapping[str, str], tensors: Mapping[str, AnyArray]) -> None:
    """Write a state, whole or not at all.

    Parameters
    ----------
    file : where to
    run : what makes it this run, in words
    tensors : as in the table above
    """
    write_sealed(file, FORMAT, tensors, run)


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
    """
    try:
        tensors, there = read_sealed(file, FORMAT, ResumeError)
    except ResumeError as error:
        raise ResumeError(f"{error}: start again in a new directory") from None
    check_run(file, there, run)
    step = tensors["losses"].size if "losses" in tensors else 0
    expected = {
        **dict.fromkeys(("parameters", "m", "v"), ("float32", (parameters,))),
        "losses": ("float64", (step,)),
        "seconds": ("float64", (1,)),
    }
    found = {name: (str(tensor.dtype), tensor.shape) for name, tensor in tensors.items()}
    if (
        found != expected
        or step > steps
        or not all(np.isfinite(tensor).all() for tensor in tensors.values())
        or tensors["seconds"] < 0
        or (tensors["v"] < 0).any()
    ):
        raise ResumeError(f"{file} is not a training's whole state: start again in a new directory")
    return tensors
