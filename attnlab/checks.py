"""What a caller gave, held against what is expected, before any mathematics begins."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from attnlab.equations import AnyArray, Array
from attnlab.errors import InvalidTypeError, InvalidValueError, shown

Rng: TypeAlias = "np.random.Generator | int | None"  # as text: numpy.random loads late


def as_numpy(values: Any) -> AnyArray:
    """What any library keeps as an array, as one of NumPy's; no library is loaded for it.

    A tensor of PyTorch's may need gradients, be on another device, and hold bfloat16.
    """
    for step in ("detach", "cpu"):
        if callable(getattr(values, step, None)):
            values = getattr(values, step)()
    if str(getattr(values, "dtype", "")) == "torch.bfloat16":  # which NumPy has not
        values = values.float()
    return np.asarray(values)


def as_floats(x: ArrayLike, name: str = "x") -> Array:
    """`x` as an array of floats, float32 at least; `name` is what an error calls it."""
    try:
        array = as_numpy(x)
    except ValueError as error:
        raise InvalidValueError(f"{name} is not an array of numbers: {error}") from None
    except Exception as error:  # an object may make its array as it likes
        raise InvalidTypeError(
            f"{name} is not an array of numbers: {shown(str(error), 200)}"
        ) from None
    if array.dtype.kind not in "iuf" or array.dtype.itemsize > 8:
        raise InvalidTypeError(
            f"{name} must hold real numbers of at most 64 bits; given dtype {array.dtype}"
        )
    return array.astype(np.result_type(array.dtype, np.float32), copy=False)


def as_number(value: Any) -> Any:
    """A number that is kept as an array without axes, NumPy's or PyTorch's; all else as it is."""
    if getattr(value, "shape", None) == () and callable(getattr(value, "item", None)):
        return value.item()
    return value


def is_real(value: object) -> bool:
    """Whether a value is a number; True and False are none here."""
    real = int | float | np.integer | np.floating
    return isinstance(value, real) and not isinstance(value, bool)


def is_integer(value: object) -> bool:
    """Whether a number is whole by its type; True and False are not numbers here."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def check_seed(rng: object) -> None:
    """Refuse what random numbers can't be drawn from, before NumPy sees it.

    Raises
    ------
    InvalidValueError
        It is no integer of at least 0, no generator, and not None.
    """
    is_seed = isinstance(rng, int | np.integer) and is_integer(rng) and rng >= 0
    if not (rng is None or is_seed or isinstance(rng, np.random.Generator)):
        raise InvalidValueError(
            f"a seed is an integer of at least 0, or a NumPy generator; given {shown(rng)}"
        )
