"""Models as files: copies of the reference models, to be damaged, and what such files hold."""

import hashlib
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
    """A reference model's files by name, without the values that are expected of it."""
    files = sorted((REFERENCE / model).iterdir())
    return {file.name: file.read_bytes() for file in files if file.name != "expected.npz"}


def copy_model(model: str, directory: Path) -> Path:
    """A reference model's files in a directory of their own, which is returned."""
    directory.mkdir(parents=True, exist_ok=True)
    for name in contents(model):
        shutil.copyfile(REFERENCE / model / name, directory / name)
    return directory


def change_config(directory: Path, **settings: object) -> Path:
    file = directory / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | settings))
    return directory


def change_tensors(directory: Path, change: Callable[[Tensors], Tensors | None]) -> Path:
    """Rewrite `model.safetensors` with other tensors: changed in place, or those returned."""
    file = directory / WEIGHTS
    tensors: Tensors = {name: np.array(tensor) for name, tensor in load_file(file).items()}
    changed = change(tensors)
    save_file(tensors if changed is None else changed, file)
    return file


def put_tensors(directory: Path, tensors: Tensors) -> Path:
    """Add tensors to `model.safetensors`, or put them in the place of those it has."""
    return change_tensors(directory, lambda stored: stored | tensors)


def digests(directory: Path) -> dict[str, str]:
    """Every file in a directory by name, with the hash of what it holds."""
    return {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in directory.iterdir()
    }
