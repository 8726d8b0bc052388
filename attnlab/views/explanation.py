"""How an explanation looks, and how what it prints is checked.

What is printed is checked: each printed result must follow from the printed, rounded numbers
before it, as far as their rounding lets it.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, TypeAlias

import numpy as np

from attnlab.equations import Array
from attnlab.errors import DisagreementError
from attnlab.support.checks import as_count
from attnlab.support.console import PrintedAnywhere
from attnlab.support.tables import align, display_width

# Each heading, and below it a line or the rows of a table.
Parts: TypeAlias = list[tuple[str, str | list[list[str]]]]

DIGITS = 5
WIDTH = 88

# A table of products of more lines than this is shown in two halves.
ROWS_WHOLE = 9

# What float32 or float64 may lose in a sum, in units of its rounding and of the sum's terms.
SUM_NOISE = 8.0

# What the arithmetic here, in float64, may lose itself.
DOUBLE_NOISE = 1e-12

NOTE = f"Numbers are rounded to {DIGITS} digits; shorter ones are exact."


@dataclass(frozen=True)
class Span:
    """The results that rounded numbers may have, low ... high."""

    low: float
    high: float

    def __add__(self, other: Span) -> Span:
        return Span(self.low + other.low, self.high + other.high)

    def __sub__(self, other: Span) -> Span:
        return Span(self.low - other.high, self.high - other.low)

    def __mul__(self, other: Span) -> Span:
        ends = [a * b for a in (self.low, self.high) for b in (other.low, other.high)]
        return Span(min(ends), max(ends))

    def __truediv__(self, positive: Span) -> Span:
        ends = [a / b for a in (self.low, self.high) for b in (positive.low, positive.high)]
        return Span(min(ends), max(ends))

    def through(self, rising: Callable[[float], float]) -> Span:
        """The results of a function that gives more for more."""
        return Span(rising(self.low), rising(self.high))


@dataclass(frozen=True)
class Printed(Span):
    """A number as it is printed, and the numbers that are printed so: low ... high."""

    text: str

    def __str__(self) -> str:
        return self.text


def printed(number: float) -> Printed:
    """A number rounded to DIGITS digits; one that has no more than those is printed short."""
    number = float(number) + 0.0  # no -0
    short = f"{number:.{DIGITS}g}"
    if float(short) == number:
        return Printed(number, number, short)
    text = f"{number:#.{DIGITS}g}".removesuffix(".")
    exponent = Decimal(text).as_tuple().exponent
    half = 10.0 ** int(exponent) / 2
    return Printed(float(text) - half, float(text) + half, text)


def exact(number: float) -> Span:
    """A number that is not rounded."""
    return Span(float(number), float(number))


def total(spans: Iterable[Span]) -> Span:
    """The results that the sum of rounded numbers may have."""
    kept = list(spans)
    return Span(math.fsum(one.low for one in kept), math.fsum(one.high for one in kept))


def check(name: str, span: Span, result: Printed, noise: float = 0.0) -> None:
    """Refuse a printed result that does not follow from the printed numbers before it.

    Raises
    ------
    DisagreementError
        It lies outside `span` by more than its own rounding and `noise`.
    """
    noise += DOUBLE_NOISE * max(abs(x) for x in (span.low, span.high, 0.0) if math.isfinite(x))
    if not (span.low - noise <= result.high and result.low <= span.high + noise):
        raise DisagreementError(
            f"{name} is stored as {result}, and the numbers that it is made of "
            f"lead to {span.low:.6g} … {span.high:.6g}"
        )


def sum_noise(terms: Array, dtype: np.dtype[Any]) -> float:
    """What floats of a kind may lose in a sum of these terms."""
    kind = np.finfo(dtype)
    lost = SUM_NOISE * float(kind.eps) * float(np.abs(terms).sum())
    return len(terms) * float(kind.smallest_subnormal) + lost


@dataclass(frozen=True, eq=False, repr=False)
class Explanation(PrintedAnywhere):
    """The arithmetic as text; `print` and `repr` show it.

    Attributes
    ----------
    title : what is explained
    purpose : what its step is for, in a sentence
    numbers : what is printed, unrounded, under the steps' names; float, int, bool, or lists
    """

    title: str
    purpose: str
    numbers: dict[str, Any]
    _parts: Parts
    _products: list[list[str]] = field(default_factory=list)

    @property
    def note(self) -> str:
        """How its numbers are written."""
        return NOTE

    def parts(self) -> Parts:
        """Each heading, and below it a line or the rows of a table."""
        products = [("the products", self._products)] if self._products else []
        return [*products, *self._parts]

    def text(self, width: int = WIDTH) -> str:
        """The lines, none longer than `width` where its longest number fits.

        Raises
        ------
        InvalidValueError
            `width` is no integer of at least 1.
        """
        width = as_count(width, "width", least=1)
        top = (self.title, self.purpose, NOTE)
        blocks = [[line for text in top for line in textwrap.wrap(text, width)]]
        if self._products:
            blocks.append(["the products", halve(self._products, width)])
        lines: list[str] = []
        for heading, body in self._parts:
            if isinstance(body, str):
                lines += textwrap.wrap(heading, width)
                lines += textwrap.wrap(
                    body,
                    width,
                    initial_indent="  ",
                    subsequent_indent="    ",
                    break_on_hyphens=False,
                )
            else:
                blocks += [lines, [*textwrap.wrap(heading, width), *fold(body, width)]]
                lines = []
        return "\n\n".join("\n".join(block) for block in (*blocks, lines) if block)

    def __repr__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        from attnlab.views.notebook import explanation_view

        return explanation_view(self)


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


def halve(rows: list[list[str]], width: int) -> str:
    """A long table with its second half beside its first one, where both fit."""
    whole = align(rows)
    if len(rows) <= ROWS_WHOLE or 2 * max(map(display_width, whole.splitlines())) + 4 > width:
        return whole
    header, *lines = rows
    half = (len(lines) + 1) // 2
    right = [*lines[half:], [""] * len(header)][:half]
    beside = zip([header, *lines[:half]], [header, *right], strict=True)
    return align([[*left, "", *more] for left, more in beside])


def bracketed(number: Printed) -> str:
    return f"({number})" if number.text.startswith("-") else number.text


def in_words(value: Any) -> str:
    """A number rounded; True, False and integers as they are."""
    is_exact = isinstance(value, bool | np.bool_ | int | np.integer)
    return str(value if is_exact else printed(value))


def edited_here(made: Any, stored: Any) -> str:
    """What a line ends with where an equation makes one value and an edit put another there."""
    if made == stored:
        return ""
    return f"; edited here: {in_words(stored)} instead of {in_words(made)}"
