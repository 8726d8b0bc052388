"""Paths with Python indices, such as blocks[0].mid, for hints in error messages."""

from __future__ import annotations

import re


def with_dots(path: str) -> str:
    """Replace Python indices by dots: blocks[1].mid becomes blocks.1.mid."""
    return re.sub(r"\[(-?\d+)\]", r".\1", path)


def dots_hint(path: str) -> str:
    """The end of a message about a path with Python indices; "" for others."""
    valid = with_dots(path)
    if valid == path:
        return ""
    is_negative = ".-" in valid  # negative indices can't be written as a path
    example = "such as blocks.0.mid" if is_negative else valid
    return f"; in a path, write numbers between dots, from 0: {example}"
