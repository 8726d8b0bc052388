"""Files of arrays and JSON, checked once, when they are read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from attnlab.equations import AnyArray
from attnlab.errors import AttnlabError, InvalidValueError
from attnlab.support.checks import reraised_as
from attnlab.support.files import FilePath, open_regular, reading, write_atomically

# The name of the array that holds the JSON, as bytes.
ABOUT = "about"


def write(path: FilePath, arrays: Mapping[str, AnyArray], about: Any) -> None:
    """Write arrays and what JSON can hold to a file, atomically."""
    from safetensors.numpy import save  # here, so that `import attnlab` is quick

    stored = {name: np.array(array, order="C") for name, array in arrays.items()}
    stored[ABOUT] = np.frombuffer(json.dumps(about).encode(), np.uint8)
    write_atomically(path, save(stored))


def read(path: Path, error_type: type[AttnlabError]) -> tuple[dict[str, AnyArray], Any]:
    """Read what `write` wrote: the arrays by name, and the JSON's value."""
    from safetensors.numpy import load

    with (
        reading(path, error_type),
        open_regular(path) as stream,
        reraised_as(error_type, f"{path} can't be read"),
    ):
        arrays = load(stream.read())
        if ABOUT not in arrays:
            raise error_type(f"{path} can't be read: another version or program wrote it")
        return arrays, json.loads(arrays.pop(ABOUT).tobytes())


def require(is_valid: object, name: str) -> None:
    """Raise unless a part of a file is valid."""
    if not is_valid:
        raise InvalidValueError(f"its {name} is invalid")


def array_of(
    arrays: Mapping[str, AnyArray], name: str, dtype: DTypeLike, shape: tuple[int | None, ...]
) -> AnyArray:
    """An array of a file; raise unless it has this dtype and shape, of which None is any length."""
    array = arrays.get(name)
    if array is None or array.dtype != dtype or array.ndim != len(shape):
        raise InvalidValueError(f"it has no {name} of dtype {np.dtype(dtype)}")
    require(all(n == m or m is None for n, m in zip(array.shape, shape, strict=True)), name)
    return array


def fits(value: Any, kind: Any) -> bool:
    """Whether a value of JSON has this form.

    The form is int (of at least 0), float or str; [kind] for a list; (kind, kind) for a list of as
    many values; {name: kind} for an object with these names.
    """
    if isinstance(kind, list):
        return isinstance(value, list) and all(fits(each, kind[0]) for each in value)
    if isinstance(kind, tuple):
        is_list = isinstance(value, list) and len(value) == len(kind)
        return is_list and all(map(fits, value, kind))
    if isinstance(kind, dict):
        is_object = isinstance(value, dict) and value.keys() == kind.keys()
        return is_object and all(fits(value[name], kind[name]) for name in kind)
    if kind is str:  # without lone surrogates, which can't be written anywhere
        return isinstance(value, str) and value == value.encode(errors="replace").decode()
    if kind is int:
        return type(value) is int and 0 <= value < 2**63
    return type(value) is kind
