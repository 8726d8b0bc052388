"""Limit matrix products to one thread, since their rounding depends on the number of threads.

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

# Directories of shared libraries in NumPy's wheels: for Linux and Windows, and for macOS.
DIRECTORIES = ("../numpy.libs", ".dylibs")


@cache
def _function(name: str) -> Callable[..., Any] | None:
    """A function of NumPy's OpenBLAS, such as `set_num_threads`, or None."""
    package = Path(np.__file__).parent
    files = [file for part in DIRECTORIES for file in sorted((package / part).glob("*openblas*"))]
    for file in files:
        library = ctypes.CDLL(str(file))
        for prefix, suffix in product(("scipy_openblas", "openblas"), ("64_", "_64", "")):
            symbol = getattr(library, f"{prefix}_{name}{suffix}", None)  # builds differ in names
            if symbol is not None:
                return symbol
    return None


def use_one_thread() -> int:
    """Use one thread; return the previous number of threads, or 1 if unknown."""
    get_threads, set_threads = _function("get_num_threads"), _function("set_num_threads")
    if get_threads is None or set_threads is None:
        return 1
    previous = int(get_threads())
    set_threads(1)
    return previous


@contextmanager
def one_thread() -> Iterator[None]:
    """Use one thread inside a `with` block."""
    previous = use_one_thread()
    try:
        yield
    finally:
        set_threads = _function("set_num_threads")
        if set_threads is not None:
            set_threads(previous)
