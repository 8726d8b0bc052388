"""Which function a user's own measure is: a digest that is the same in every process."""

from __future__ import annotations

from collections.abc import Iterator
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any

import numpy as np

from attnlab.support.checks import attribute
from attnlab.support.sealed import sha256

# What is known by its repr, which holds no address.
SIMPLE = (type(None), bool, int, float, complex, str, bytes, type(...), range, np.generic, np.dtype)

# How many values are looked at within each other: an object may answer to any name, for ever.
DEEPEST = 50


def digest_of(function: Any) -> str:
    """The sha256 of what a function does: its code, defaults, and the values that it closes over.

    It does not depend on where the function stands. It can't see what the function reaches by a
    global name, such as other functions and constants, nor into objects, NumPy's arrays aside.
    """
    return sha256(word.encode(errors="surrogatepass") for word in _words(function, []))


def _words(value: Any, within: list[Any]) -> Iterator[str]:
    """A value in words, each of its parts after how many there are.

    Parameters
    ----------
    within : what it is a part of: a function may close over itself
    """
    parts: list[Any] = []
    told = ""
    if any(value is one for one in within) or len(within) > DEEPEST:
        told = "again"
    elif isinstance(value, CodeType):
        told = f"{value.co_argcount} {value.co_posonlyargcount} {value.co_kwonlyargcount}"
        parts = [value.co_flags, value.co_code, value.co_exceptiontable, value.co_consts]
        parts += [value.co_names, value.co_varnames, value.co_cellvars, value.co_freevars]
    elif isinstance(value, FunctionType):
        parts = [value.__code__, value.__defaults__, value.__kwdefaults__, value.__closure__]
    elif isinstance(value, MethodType):
        parts = [value.__func__, value.__self__]
    elif isinstance(value, CellType):
        try:
            parts = [value.cell_contents]
        except ValueError:  # not bound yet
            told = "empty"
    elif isinstance(value, SIMPLE):
        told = repr(value)
    elif isinstance(value, np.ndarray) and not value.dtype.hasobject:
        told = f"{value.dtype} {value.shape}"
        parts = [value.tobytes()]
    elif isinstance(value, tuple | list):
        parts = list(value)
    elif isinstance(value, set | frozenset):  # in an order that differs from process to process
        parts = sorted("".join(_words(one, [*within, value])) for one in value)
    elif isinstance(value, dict):
        parts = list(value.items())
    else:
        told = f"{attribute(value, '__module__')} {attribute(value, '__qualname__')}"
        # What a decorator made, such as functools.cache; of another object how it is called.
        wrapped = attribute(value, "__wrapped__")
        parts = [attribute(type(value), "__call__") if wrapped is None else wrapped]
    yield f"{type(value).__qualname__} {told} {len(parts)}\n"
    for part in parts:
        yield from _words(part, [*within, value])
