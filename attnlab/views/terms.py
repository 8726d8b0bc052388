"""What explanations are made of: lines and tables of terms, and how they are written as text.

A term is a number with the place where it stands, so that a view can lead there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from attnlab.support.tables import align, display_width

DIGITS = 5

# A table of products of more lines than this is shown in two halves.
ROWS_WHOLE = 9


@dataclass(frozen=True)
class Term:
    """A number of an explanation.

    Attributes
    ----------
    value : float, int or bool
    name : what it is called, such as "X[7, 3]"; "" where it is only a result on the way
    path, index : the step that it stands in, from the whole, and where in it; "" and () of none
    is_named : whether its name is written in its place, since its number comes next
    """

    value: Any
    name: str = ""
    path: str = ""
    index: tuple[int, ...] = ()
    is_named: bool = False

    @property
    def is_negative(self) -> bool:
        return not self.is_named and str(self).startswith("-")

    def __str__(self) -> str:
        return self.name if self.is_named else in_words(self.value)


# Words, and the terms between them.
Parts: TypeAlias = Sequence[str | Term]


@dataclass(frozen=True)
class Line:
    """What is computed, and the computation with its numbers."""

    heading: str
    parts: Parts

    @property
    def text(self) -> str:
        return "".join(map(str, self.parts))


@dataclass(frozen=True)
class Table:
    """Rows of cells, the first one of headings; below them what they come to.

    Attributes
    ----------
    in_halves : whether the second half may stand beside the first
    """

    heading: str
    rows: Sequence[Parts]
    feet: Sequence[Parts] = ()
    in_halves: bool = False

    def lines(self, width: int) -> list[str]:
        rows, feet = ([[*map(str, row)] for row in part] for part in (self.rows, self.feet))
        return halve(rows, feet, width) if self.in_halves else fold([*rows, *feet], width)


def fold(rows: list[list[str]], width: int, left: Sequence[int] = (0,)) -> list[str]:
    """A table in as many parts below each other as the width asks for, each with column 0.

    `left` are the columns whose cells stand to the left.
    """
    widths = [max(map(display_width, column)) for column in zip(*rows, strict=True)]
    parts: list[str] = []
    start = 1
    while start < len(widths):
        stop, used = start + 1, widths[0] + 2 + widths[start]
        while stop < len(widths) and used + 2 + widths[stop] <= width:
            used += 2 + widths[stop]
            stop += 1
        part = [0, *range(start, stop)]
        to_the_left = [place for place, column in enumerate(part) if column in left]
        parts += [align([[row[column] for column in part] for row in rows], left=to_the_left), ""]
        start = stop
    return parts[:-1]


def halve(rows: list[list[str]], feet: list[list[str]], width: int) -> list[str]:
    """A long table with its second half beside its first one, where both fit."""
    whole = max(map(display_width, align([*rows, *feet]).splitlines()))
    if len(rows) <= ROWS_WHOLE or 2 * whole + 4 > width:
        return fold([*rows, *feet], width)
    header, *lines = rows
    half, none = (len(lines) + 1) // 2, [""] * len(header)
    left = [header, *lines[:half], *feet]
    right = [header, *lines[half:], *[none] * len(left)]
    beside = zip(left, right, strict=False)
    return [align([[*one, "", *other] for one, other in beside])]


def printed(number: float) -> str:
    """A number rounded to DIGITS digits; one that has no more than those is printed short."""
    number = float(number) + 0.0  # no -0
    short = f"{number:.{DIGITS}g}"
    return short if float(short) == number else f"{number:#.{DIGITS}g}".removesuffix(".")


def in_words(value: Any) -> str:
    """A number rounded; True, False and integers as they are."""
    if callable(value):
        return "a function of one number"
    is_exact = isinstance(value, bool | np.bool_ | int | np.integer)
    return str(value) if is_exact else printed(value)
