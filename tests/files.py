"""Copies of the reference models' files, to be damaged, and their contents."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from conftest import REFERENCE
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

Tensors = dict[str, NDArray[Any]]

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"


def contents(model: str) -> dict[str, bytes]:
    """A reference model's files by name, without its expected values."""
    files = sorted((REFERENCE / model).iterdir())
    return {file.name: file.read_bytes() for file in files if file.name != "expected.npz"}


def copy_model(model: str, directory: Path) -> Path:
    """Copy a reference model's files to a directory; returns the directory."""
    directory.mkdir(parents=True, exist_ok=True)
    for name in contents(model):
        shutil.copyfile(REFERENCE / model / name, directory / name)
    return directory


def change_config(directory: Path, **settings: object) -> Path:
    file = directory / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | settings))
    return directory


def change_tensors(directory: Path, change: Callable[[Tensors], Tensors | None]) -> Path:
    """Rewrite `model.safetensors` with tensors that were changed in place or returned."""
    file = directory / WEIGHTS
    tensors: Tensors = {name: np.array(tensor) for name, tensor in load_file(file).items()}
    changed = change(tensors)
    save_file(tensors if changed is None else changed, file)
    return file


def put_tensors(directory: Path, tensors: Tensors) -> Path:
    """Add tensors to `model.safetensors`, or replace them."""
    return change_tensors(directory, lambda stored: stored | tensors)
