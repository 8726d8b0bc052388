"""Marks for a learner's function, from numbers that the notebook doesn't show.

`editions.py` puts this text, with a chapter's solutions, into nbgrader's hidden tests.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np


def other(given: Any) -> Any:
    """An argument as of another text and head: columns move by one, and numbers shrink."""
    if isinstance(given, Mapping):
        return {name: other(part) for name, part in given.items()}
    if isinstance(given, tuple):
        return tuple(map(other, given))
    if not isinstance(given, np.ndarray):
        return given  # such as a number of heads
    moved = np.roll(given, 1, axis=-1)
    return 0.8 * moved if given.dtype.kind == "f" else moved


def agrees(ours: Any, expected: Any) -> bool:
    """Whether two arrays are equal, where very negative scores stand for -inf."""
    if np.shape(ours) != np.shape(expected):
        return False
    lowest = -1e4
    return np.allclose(np.maximum(ours, lowest), np.maximum(expected, lowest), 1e-3, 1e-4)


def marks(
    write: Callable[..., Mapping[str, Any]],
    solve: Callable[..., Mapping[str, Any]],
    arguments: tuple[Any, ...],
    points: int,
) -> float:
    """Points for the steps of the solution that the learner's function returns."""
    arguments = tuple(map(other, arguments))
    returned, expected = write(*arguments), solve(*arguments)
    right = [name for name in expected if agrees(returned.get(name), expected[name])]
    print(f"{len(right)} / {len(expected)}:", *right)
    return round(points * len(right) / len(expected), 2)
