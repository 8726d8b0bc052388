"""An explanation of one number as data, and its text.

A term is a number with its position in a step, so that a view can link to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from attnlab.support.checks import as_count
from attnlab.support.console import StdoutSafe
from attnlab.support.messages import Message, say
from attnlab.support.tables import Table, align, display_width, wrap

DIGITS = 5  # significant digits of a rounded number
WIDTH = 88  # columns of text

NOTE = Message("Numbers are rounded to {digits} digits; shorter ones are exact.", digits=DIGITS)


@dataclass(frozen=True)
class Term:
    """A number of an explanation."""

    value: Any  # float, int or bool
    name: str = ""  # such as "X[7, 3]"; "" for an intermediate result
    path: str = ""  # the path of the number's step; "" if no step has the number
    index: tuple[int, ...] = ()
    is_named: bool = False  # whether the text shows the name instead of the number

    @property
    def is_negative(self) -> bool:
        return not self.is_named and str(self).startswith("-")

    def __str__(self) -> str:
        return self.name if self.is_named else format_value(self.value)


# Text and terms.
Parts: TypeAlias = Sequence[str | Term]


def translate(part: str | Term) -> str:
    """The text of a part, in the user's language."""
    return say(part) if isinstance(part, str) else str(part)


@dataclass(frozen=True)
class Line:
    """A heading, and a computation with its numbers."""

    heading: str
    parts: Parts

    @property
    def text(self) -> str:
        return "".join(map(translate, self.parts))


@dataclass(frozen=True)
class TermTable:
    """A table: a header and rows of cells, then footers."""

    heading: str
    rows: Sequence[Parts]
    feet: Sequence[Parts] = ()


@dataclass(frozen=True, eq=False, repr=False)
class Explanation(StdoutSafe):
    """The arithmetic of a number; `print` shows it."""

    title: str  # what is explained
    purpose: str  # what the number's step is for
    numbers: dict[str, Any]  # the printed numbers, unrounded, by step
    lines: Sequence[Line | TermTable]

    @property
    def note(self) -> str:
        """How the numbers are rounded."""
        return NOTE

    def text(self, width: int = WIDTH) -> str:
        """The text, wrapped to `width` if the longest number fits."""
        width = as_count(width, "width", least=1)
        top = (self.title, self.purpose, NOTE)
        blocks = [[line for text in top for line in wrap(say(text), width)], []]
        for line in self.lines:
            heading = wrap(say(line.heading), width)
            if isinstance(line, Line):
                blocks[-1] += heading + wrap(f"  {line.text}", width, "  ")
            else:
                rows = [[*map(translate, row)] for row in (*line.rows, *line.feet)]
                blocks += [[*heading, *fold(rows, width)], []]  # a table between empty lines
        return "\n\n".join("\n".join(block) for block in blocks if block)

    def __repr__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        """The heading, then a line or table for each step."""
        from attnlab.support import markup

        body = [f"<div>{markup.escape(say(self.purpose))}</div>", markup.faint(say(self.note))]
        for line in self.lines:
            if line.heading:
                body.append(f"<div class=step>{markup.escape(say(line.heading))}</div>")
            if isinstance(line, Line):
                body.append(
                    f"<div class=line>{markup.escape(line.text)}</div>" if line.parts else ""
                )
            else:
                rows = [[*map(translate, row)] for row in (*line.rows, *line.feet)]
                body.append(markup.table(Table(rows)))
        return markup.page(say(self.title), *body)


def fold(rows: list[list[str]], width: int, left: Sequence[int] = (0,)) -> list[str]:
    """Split a wide table into parts, each with column 0; columns in `left` are aligned left."""
    widths = [max(map(display_width, column)) for column in zip(*rows, strict=True)]
    lines: list[str] = []
    start = 1
    while start < len(widths):
        stop, used = start + 1, widths[0] + 2 + widths[start]  # 2 spaces are between columns
        while stop < len(widths) and used + 2 + widths[stop] <= width:
            used += 2 + widths[stop]
            stop += 1
        part = [0, *range(start, stop)]
        aligned_left = [index for index, column in enumerate(part) if column in left]
        lines += [align([[row[column] for column in part] for row in rows], left=aligned_left), ""]
        start = stop
    return lines[:-1]


def format_number(number: float) -> str:
    """A number with DIGITS digits; trailing zeros are left out if no digit is lost."""
    number = float(number) + 0.0  # avoids -0
    short = f"{number:.{DIGITS}g}"
    return short if float(short) == number else f"{number:#.{DIGITS}g}".removesuffix(".")


def format_value(value: Any) -> str:
    """A rounded number; bools and integers are exact."""
    if callable(value):
        return "a function of one number"
    is_exact = isinstance(value, bool | np.bool_ | int | np.integer)
    return str(value) if is_exact else format_number(value)
