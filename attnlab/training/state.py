"""A run's saved state: a safetensors file with a checksum.

Its metadata identifies the run and has the sha256 of everything. Its tensors:

| name | dtype | shape | what |
| --- | --- | --- | --- |
| parameters | float32 | (n,) | all parameters |
| m, v | float32 | (n,) | AdamW's mean and mean square of the gradients |
| losses | float64 | (step,) | of each step |
| seconds | float64 | (1,) | time taken |
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from attnlab.equations import AnyArray
from attnlab.errors import ResumeError
from attnlab.support.sealed import check_run, read_sealed, write_sealed

FORMAT = "3"


def write_state(file: Path, run: Mapping[str, str], tensors: Mapping[str, AnyArray]) -> None:
    """Write a run's state atomically; `run` identifies it."""
    write_sealed(file, FORMAT, tensors, run)


def read_state(
    file: Path, run: Mapping[str, str], *, parameters: int, steps: int
) -> dict[str, AnyArray]:
    """Read and check a state of `run`."""
    try:
        tensors, stored = read_sealed(file, FORMAT, ResumeError)
    except ResumeError as error:
        raise ResumeError(f"{error}. Start again in a new directory") from None
    check_run(file, stored, run)
    step = tensors["losses"].size if "losses" in tensors else 0
    expected = {
        **dict.fromkeys(("parameters", "m", "v"), ("float32", (parameters,))),
        "losses": ("float64", (step,)),
        "seconds": ("float64", (1,)),
    }
    saved = {name: (str(tensor.dtype), tensor.shape) for name, tensor in tensors.items()}
    if (
        saved != expected
        or step > steps
        or not all(np.isfinite(tensor).all() for tensor in tensors.values())
        or tensors["seconds"] < 0
        or (tensors["v"] < 0).any()
    ):
        raise ResumeError(f"{file} is not a valid training state. Start again in a new directory")
    return tensors
