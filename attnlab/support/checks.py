"""Check and convert arguments; `name` is always the argument's name in error messages."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from attnlab.equations import AnyArray, Array
from attnlab.errors import (
    AttnlabError,
    InvalidTypeError,
    InvalidValueError,
    MissingExtraError,
    OutOfMemoryError,
    OutOfRangeError,
    quoted,
)

# Types of bytes, which NumPy would read as numbers from 0 to 255.
RAW_BYTES = (bytes, bytearray, memoryview)

Rng: TypeAlias = "np.random.Generator | int | None"  # quoted: numpy.random is loaded lazily


def as_numpy(values: Any) -> AnyArray:
    """Convert an array of any library to NumPy, without importing that library.

    A PyTorch tensor may require gradients, be on another device, or have dtype bfloat16.
    """
    for method in ("detach", "cpu"):
        if callable(attribute(values, method)):
            values = getattr(values, method)()
    if str(attribute(values, "dtype")) == "torch.bfloat16":  # NumPy has no such dtype
        values = values.float()
    return np.asarray(values)


def is_masked_array(value: object) -> bool:
    """Whether a value is a NumPy masked array, without importing `numpy.ma`, which is slow."""
    masked = sys.modules.get("numpy.ma")
    return masked is not None and isinstance(value, masked.MaskedArray)


def as_array(values: Any, name: str) -> AnyArray:
    """Convert to a NumPy array."""
    if is_masked_array(values) and np.ma.is_masked(values):
        raise InvalidTypeError(f"{name} has masked cells. Fill them, such as with x.filled(0)")
    if isinstance(values, RAW_BYTES):
        raise InvalidTypeError(f"{name} must be an array of numbers; got {quoted(values)}")
    try:
        return as_numpy(values)
    except ValueError as error:
        raise InvalidValueError(f"{name} isn't an array of numbers: {error}") from None
    except Exception as error:  # __array__ may raise anything
        raise InvalidTypeError(
            f"{name} isn't an array of numbers: {quoted(str(error), 200)}"
        ) from None


def as_reals(x: Any, name: str, kinds: str = "iuf") -> AnyArray:
    """Convert to an array of real numbers; `kinds` are NumPy's dtype kinds."""
    array = as_array(x, name)
    if array.dtype.kind not in kinds or array.dtype.itemsize > 8:
        raise InvalidTypeError(
            f"{name} must have a real dtype of at most 64 bits; got dtype {array.dtype}"
        )
    return array


def as_floats(x: ArrayLike, name: str = "x") -> Array:
    """Convert to an array of floats, at least float32."""
    array = as_reals(x, name)
    return array.astype(np.result_type(array.dtype, np.float32), copy=False)


@contextmanager
def reraised_as(error_type: type[AttnlabError], message: str) -> Iterator[None]:
    """Turn any exception that another library raises, even a Rust panic, into an AttnlabError."""
    try:
        yield
    except (error_type, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except AttnlabError as error:
        raise error_type(f"{message}: {error}") from None
    except BaseException as error:  # a panic isn't an Exception
        raise error_type(f"{message}: {quoted(error, 200)}") from None


@contextmanager
def errors_of(name: str) -> Iterator[None]:
    """Put a name, such as “text 2”, before the messages of errors."""
    try:
        yield
    except AttnlabError as error:
        raise type(error)(f"{name}: {error}") from None


def attribute(value: object, name: str) -> Any:
    """An attribute of any object; None if it doesn't exist or raises."""
    try:
        return getattr(value, name, None)
    except Exception:
        return None


def as_number(value: Any) -> Any:
    """Convert a 0-d array or tensor to a number; return anything else unchanged."""
    if not callable(attribute(value, "item")) or is_masked_array(value):
        return value
    number = value.item() if attribute(value, "shape") == () else value
    return number if is_real(number) else value


def is_real(value: object) -> bool:
    """Whether a value is a real number, which excludes bool."""
    return isinstance(value, float | np.floating) or is_integer(value)


def is_integer(value: object) -> bool:
    """Whether a value is an integer, which excludes bool and timedelta64."""
    integer = isinstance(value, int | np.integer)
    return integer and not isinstance(value, bool | np.timedelta64)


def as_count(value: Any, name: str, least: int = 0, most: float = sys.maxsize) -> int:
    """Convert to an int from `least` to `most`."""
    number = as_number(value)
    if is_integer(number) and least <= number <= most:
        return int(number)
    # By default `most` is sys.maxsize, which is mentioned only if the number is larger.
    mentions_most = most < sys.maxsize or (is_integer(number) and number > most)
    bounds = f"from {least} to {most}" if mentions_most else f"of at least {least}"
    raise InvalidValueError(f"{name} must be an integer {bounds}; got {quoted(value)}")


def as_float(
    value: Any, name: str, least: float | None = 0.0, most: float = sys.float_info.max
) -> float:
    """Convert to a finite float of at least `least`, if given, and at most `most`."""
    number = as_number(value)
    is_in_range = is_real(number) and abs(number) <= most  # NaN isn't in range
    if not is_in_range or (least is not None and number < least):
        wanted = "a finite number"
        if most < sys.float_info.max:
            wanted = f"a number from {least:g} to {most:g}"
        elif least is not None:
            wanted = f"a number of at least {least:g}"
        raise InvalidValueError(f"{name} must be {wanted}; got {quoted(value)}")
    return float(number)


def as_flag(value: object, name: str) -> bool:
    """Convert a bool or NumPy bool to a bool."""
    if not isinstance(value, bool | np.bool_):
        raise InvalidTypeError(f"{name} must be True or False; got {quoted(value)}")
    return bool(value)


def as_texts(value: Any, name: str) -> tuple[str, ...]:
    """Convert a text or a list of texts to a tuple."""
    texts = (value,) if isinstance(value, str) else value
    is_list = isinstance(texts, Sequence) and not isinstance(texts, RAW_BYTES)
    if not is_list or not all(isinstance(text, str) for text in texts):
        raise InvalidTypeError(f"{name} must be a text or a list of texts; got {quoted(value)}")
    return tuple(texts)


def check_kind(value: object, expected_type: type, name: str, expected: str = "") -> None:
    """Raise unless a value is an instance of a class; `expected` names it, such as "a dict"."""
    if not isinstance(value, expected_type):
        type_name = expected_type.__name__
        is_plural = type_name.endswith("s")  # such as Parameters
        expected = expected or (type_name if is_plural else with_article(type_name))
        raise InvalidTypeError(f"{name} must be {expected}; got {quoted(value)}")


def check_shape(array: AnyArray, shape: tuple[int, ...], name: str, meaning: str = "") -> None:
    """Raise unless an array has a shape; `meaning` explains it, such as ", one row per token"."""
    if array.shape != shape:
        raise InvalidValueError(f"{name} must have shape {shape}{meaning}; got {array.shape}")


def check_choice(value: object, choices: Iterable[str | None], name: str) -> None:
    """Raise unless a value is one of the choices, which are strings or None."""
    choices = tuple(choices)
    if not isinstance(value, str | None) or value not in choices:
        raise InvalidValueError(
            f"{name} must be one of {', '.join(map(str, choices))}; got {quoted(value)}"
        )


def with_article(noun: str) -> str:
    """Put "a" or "an" before a noun."""
    return f"an {noun}" if noun[0] in "aeiouAEIOU" else f"a {noun}"


@contextmanager
def memory_for(purpose: str) -> Iterator[None]:
    """Turn allocation failures into an AttnlabError."""
    try:
        yield
    except (MemoryError, ValueError, OverflowError):  # NumPy raises all of them for huge shapes
        raise OutOfMemoryError(f"not enough memory for {purpose}") from None


def as_model_dtype(dtype: DTypeLike) -> np.dtype[Any]:
    """Convert to the dtype of a model, float32 or float64."""
    is_torch = type(dtype).__module__ == "torch"
    name = str(dtype).removeprefix("torch.") if is_torch else dtype
    try:
        converted = np.dtype(object if name is None else name)  # np.dtype(None) is float64
    except Exception:  # NumPy raises errors of various types
        converted = np.dtype(object)
    if converted not in (np.float32, np.float64):
        raise InvalidValueError(f"dtype must be float32 or float64; got {quoted(dtype)}")
    return converted


def check_seed(rng: object) -> None:
    """Raise unless `rng` is a seed, a generator or None."""
    is_seed = isinstance(rng, int | np.integer) and is_integer(rng) and rng >= 0
    if not (rng is None or is_seed or isinstance(rng, np.random.Generator)):
        raise InvalidValueError(
            f"a seed must be a non-negative integer or a NumPy generator; got {quoted(rng)}"
        )


def as_index(index: Any, kind: str, count: int) -> int:
    """Convert to an index from 0 to count - 1; negative indices count from the end."""
    index = as_number(index)
    if not is_integer(index):
        raise InvalidTypeError(f"{kind} must be an integer; got {quoted(index)}")
    if not -count <= index < count:
        kinds = {"query": "queries", "axis": "axes"}.get(kind, f"{kind}s")
        bounds = f"{kinds} are 0 to {count - 1}"
        raise OutOfRangeError(f"{kind} {quoted(index)} is out of range; {bounds}")
    return int(index) % count


def query_without_keys(visible: AnyArray) -> str:
    """The index of the first query whose keys are all hidden, such as "0, 3"; "" without one."""
    without_keys = np.argwhere(~visible.any(axis=-1))
    return ", ".join(map(str, without_keys[0])) if len(without_keys) else ""


@contextmanager
def importing_extra(name: str) -> Iterator[None]:
    """Import libraries of an optional extra; if one is missing, say how to install it."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"this needs {error.name}: pip install {error.name} (attnlab's optional extra {name!r})"
        ) from None
