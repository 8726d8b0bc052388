"""One thread for NumPy's matrix products: with several, their last bits depend on how many.

NumPy has no function for that; the OpenBLAS in its wheels has one. Of another BLAS the environment
decides: OMP_NUM_THREADS=1, set before Python begins.
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

# Where NumPy's wheels have their libraries: Linux and Windows, macOS.
PLACES = ("../numpy.libs", ".dylibs")


@cache
def _function(name: str) -> Callable[..., Any] | None:
    """A function of the OpenBLAS that NumPy uses, such as `set_num_threads`; None without one."""
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
    """From now on one thread; how many there were, 1 where that can't be known."""
    get, put = _function("get_num_threads"), _function("set_num_threads")
    if get is None or put is None:
        return 1
    before = int(get())
    put(1)
    return before


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread while it lasts."""
    before = use_one_thread()
    try:
        yield
    finally:
        put = _function("set_num_threads")
        if put is not None:
            put(before)
