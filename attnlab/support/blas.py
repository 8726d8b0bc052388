"""Limit matrix products to one thread: their last bits depend on the number of threads.

This works for the OpenBLAS in NumPy's wheels. For another BLAS, set OMP_NUM_THREADS=1 before Python
starts.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

# Directories of libraries in NumPy's wheels: Linux and Windows, macOS.
PLACES = ("../numpy.libs", ".dylibs")


@cache
def _function(name: str) -> Callable[..., Any] | None:
    """A function of NumPy's OpenBLAS, such as `set_num_threads`, or None."""
    package = Path(np.__file__).parent
    for file in (file for place in PLACES for file in sorted((package / place).glob("*openblas*"))):
        library = ctypes.CDLL(str(file))
        for before, after in product(("scipy_openblas", "openblas"), ("64_", "_64", "")):
            found = getattr(library, f"{before}_{name}{after}", None)
            if found is not None:
                function: Callable[..., Any] = found
                return function
    return None


def use_one_thread() -> int:
    """Set one thread and return the previous number, or 1 if it is unknown."""
    get, put = _function("get_num_threads"), _function("set_num_threads")
    if get is None or put is None:
        return 1
    before = int(get())
    put(1)
    return before


@contextmanager
def one_thread() -> Iterator[None]:
    """A context with one thread."""
    before = use_one_thread()
    try:
        yield
    finally:
        put = _function("set_num_threads")
        if put is not None:
            put(before)
