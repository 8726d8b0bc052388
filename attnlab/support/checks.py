"""What a caller gave, held against what is expected, before any mathematics begins."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from attnlab.equations import AnyArray, Array
from attnlab.errors import AttnlabError, InvalidTypeError, InvalidValueError, quoted

Rng: TypeAlias = "np.random.Generator | int | None"  # as text: numpy.random loads late


def as_numpy(values: Any) -> AnyArray:
    """What any library keeps as an array, as one of NumPy's; no library is loaded for it.

    A tensor of PyTorch's may need gradients, be on another device, and hold bfloat16.
    """
    for step in ("detach", "cpu"):
        if callable(attribute(values, step)):
            values = getattr(values, step)()
    if str(attribute(values, "dtype")) == "torch.bfloat16":  # which NumPy has not
        values = values.float()
    return np.asarray(values)


def is_masked_array(value: object) -> bool:
    """Whether it is one of NumPy's masked arrays, whose module is slow to import."""
    masked = sys.modules.get("numpy.ma")
    return masked is not None and isinstance(value, masked.MaskedArray)


def as_array(values: Any, name: str) -> AnyArray:
    """As `as_numpy` makes it, where that can be done; `name` is what an error calls it."""
    if is_masked_array(values) and np.ma.is_masked(values):
        raise InvalidTypeError(
            f"{name} has masked cells, which would count like others: fill them, such as by "
            "x.filled(0)"
        )
    try:
        return as_numpy(values)
    except ValueError as error:
        raise InvalidValueError(f"{name} is not an array of numbers: {error}") from None
    except Exception as error:  # an object may make its array as it likes
        raise InvalidTypeError(
            f"{name} is not an array of numbers: {quoted(str(error), 200)}"
        ) from None


def as_reals(x: Any, name: str, kinds: str = "iuf") -> AnyArray:
    """`x` as an array of numbers, those of `kinds` of dtypes; `name` is what an error calls it."""
    array = as_array(x, name)
    if array.dtype.kind not in kinds or array.dtype.itemsize > 8:
        raise InvalidTypeError(
            f"{name} must hold real numbers of at most 64 bits; given dtype {array.dtype}"
        )
    return array


def as_floats(x: ArrayLike, name: str = "x") -> Array:
    """`x` as an array of floats, float32 at least; `name` is what an error calls it."""
    array = as_reals(x, name)
    return array.astype(np.result_type(array.dtype, np.float32), copy=False)


@contextmanager
def errors_of(kind: type[AttnlabError], what: str) -> Iterator[None]:
    """Raise what another library or object raises, a panic in Rust included, as an error of ours.

    Parameters
    ----------
    what : can't be done, for the message
    """
    try:
        yield
    except (AttnlabError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:  # a panic is no Exception
        raise kind(f"{what}: {quoted(error, 200)}") from None


def attribute(value: object, name: str) -> Any:
    """What something that may be anything has under a name; None where it has nothing, or fails."""
    try:
        return getattr(value, name, None)
    except Exception:
        return None


def as_number(value: Any) -> Any:
    """A number that is kept as an array without axes, NumPy's or PyTorch's; all else as it is."""
    if not callable(attribute(value, "item")) or is_masked_array(value):
        return value
    number = value.item() if attribute(value, "shape") == () else value
    return number if is_real(number) else value


def is_real(value: object) -> bool:
    """Whether a value is a number; True and False are none here."""
    return isinstance(value, float | np.floating) or is_integer(value)


def is_integer(value: object) -> bool:
    """Whether a number is whole by its type; True and False are not numbers here, nor is a time."""
    integer = isinstance(value, int | np.integer)
    return integer and not isinstance(value, bool | np.timedelta64)


def as_count(value: Any, name: str, least: int = 0, most: float = sys.maxsize) -> int:
    """An integer as Python has it, of at least `least` and at most `most`."""
    number = as_number(value)
    if is_integer(number) and least <= number <= most:
        return int(number)
    is_bounded = most < sys.maxsize or (is_integer(number) and number > most)
    bounds = f"from {least} to {most}" if is_bounded else f"of at least {least}"
    raise InvalidValueError(f"{name} must be an integer {bounds}; given {quoted(value)}")


def as_float(value: Any, name: str, least: float = 0.0) -> float:
    """A finite number as Python has it, of at least `least`."""
    number = as_number(value)
    if not is_real(number) or not least <= number <= sys.float_info.max:
        raise InvalidValueError(
            f"{name} must be a number of at least {least:g}; given {quoted(value)}"
        )
    return float(number)


def as_flag(value: object, name: str) -> bool:
    """True or False, NumPy's too."""
    if not isinstance(value, bool | np.bool_):
        raise InvalidTypeError(f"{name} must be True or False; given {quoted(value)}")
    return bool(value)


def as_texts(value: Any, name: str) -> tuple[str, ...]:
    """A text alone, or several."""
    given = (value,) if isinstance(value, str) else value
    is_list = isinstance(given, Sequence) and not isinstance(given, bytes | bytearray | memoryview)
    if not is_list or not all(isinstance(text, str) for text in given):
        raise InvalidTypeError(f"{name} must be a text or a list of texts; given {quoted(value)}")
    return tuple(given)


def check_kind(value: object, kind: type, name: str) -> None:
    """Refuse what is no instance of a class."""
    if not isinstance(value, kind):
        article = "an " if kind.__name__[0] in "AEIOU" else "a "
        if kind.__name__.endswith("s"):  # no word for several has one
            article = ""
        raise InvalidTypeError(f"{name} must be {article}{kind.__name__}; given {quoted(value)}")


@contextmanager
def memory_for(what: str) -> Iterator[None]:
    """Tell where there is no memory for an array that is made."""
    try:
        yield
    except (MemoryError, ValueError, OverflowError):  # the last two: more than one can address
        raise InvalidValueError(f"there is no memory for {what}") from None


def checked_dtype(dtype: DTypeLike) -> np.dtype[Any]:
    """What everything is computed in."""
    of_torch = type(dtype).__module__ == "torch"
    named = str(dtype).removeprefix("torch.") if of_torch else dtype
    try:
        checked = np.dtype(object if named is None else named)  # of None NumPy makes float64
    except Exception:  # NumPy raises all kinds here
        checked = np.dtype(object)
    if checked not in (np.float32, np.float64):
        raise InvalidValueError(f"dtype must be float32 or float64; given {quoted(dtype)}")
    return checked


def check_seed(rng: object) -> None:
    """Refuse what random numbers can't be drawn from, before NumPy sees it."""
    is_seed = isinstance(rng, int | np.integer) and is_integer(rng) and rng >= 0
    if not (rng is None or is_seed or isinstance(rng, np.random.Generator)):
        raise InvalidValueError(
            f"a seed is an integer of at least 0, or a NumPy generator; given {quoted(rng)}"
        )
