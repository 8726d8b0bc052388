"""Aligned text tables, for every `repr` and for the walkthrough."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias

from numpy.typing import ArrayLike

from attnlab.equations import AnyArray
from attnlab.errors import InvalidValueError
from attnlab.support.checks import as_array, as_count, check_kind, is_real
from attnlab.support.console import StdoutSafeStr
from attnlab.support.messages import Message

ELLIPSIS = "…"

# A result's columns by name. In most results, a row has one number and the number's indices.
Columns: TypeAlias = dict[str, Any]

# How a printed table shows a column: a format or a function, or a heading and one of these.
Format: TypeAlias = str | Callable[[Any], str] | tuple[str, str | Callable[[Any], str]]

# Formats of numbers whose standard errors are in the next column, without and with a + sign.
PLUS_MINUS, SIGNED_PLUS_MINUS = "±", "+±"

NOTHING: Mapping[str, Any] = MappingProxyType({})

# The maximum number of lines in a repr: GPT-2's longest text has 1,024 tokens.
MAX_LINES = 1024

# The maximum number of characters of a token in a label.
LABEL_LENGTH = 16

# The width of a repr's paragraphs in characters.
WIDTH = 79

MAX_DECIMALS = 100

# Invisible characters that join the characters around them, or keep them together.
JOINERS = "\u200c\u200d\u2060"


def display_width(text: str) -> int:
    """The columns that a text takes up in a terminal: 2 for 猫, 0 for a combining accent."""
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    combining = sum(unicodedata.combining(character) != 0 for character in text)
    return len(text) + wide - combining


def label(text: str, length: int = LABEL_LENGTH) -> str:
    """A text with escaped control characters, cut to `length`."""
    # One character more than `length` is enough to see whether the text must be cut.
    safe = printable(text[: length + 1])
    return safe if len(safe) <= length else f"{safe[: length - 1]}…"


def printable(text: str) -> str:
    """Escape newlines and control characters."""
    return text if text.isprintable() else repr(text)[1:-1]  # repr without its quotation marks


def in_heading(text: str) -> str:
    """Escape a heading like `printable`, but keep spaces and joining characters."""
    return "".join(
        c if unicodedata.category(c) == "Zs" or c in JOINERS else printable(c) for c in text
    )


def format_with_error(number: float, error: float) -> tuple[str, str]:
    """Format a number and its standard error to two significant digits of the error.

    If the error is 0 or not finite, the number gets three significant digits, and the error is "0"
    or "". An error of at most 1e-12, absolute or relative, counts as 0, since it is only rounding.
    """
    if not math.isfinite(error):
        return f"{number:.3g}", ""
    if error <= 1e-12 * max(1, abs(number)):
        return f"{0.0 if abs(number) <= 1e-12 else number:.3g}", "0"
    decimals = max(0, 1 - math.floor(math.log10(error)))  # 3 for 0.012: two significant digits
    return f"{number:z.{decimals}f}", f"{error:.{decimals}f}"


def plus_minus(number: float, error: float) -> str:
    """A number ± its standard error; only the number if the error isn't finite."""
    return " ± ".join(filter(None, format_with_error(number, error)))


def align(rows: Sequence[Sequence[str]], *, left: Sequence[int] = (0,)) -> str:
    """Format rows of cells as text in aligned columns; `left` lists the left-aligned columns."""
    rows = [[*map(str, row)] for row in rows]
    widths = [max(map(display_width, column)) for column in zip(*rows, strict=True)]

    def pad(cell: str, column: int) -> str:
        space = " " * (widths[column] - display_width(cell))
        return cell + space if column in left else space + cell

    return "\n".join(
        "  ".join(pad(cell, column) for column, cell in enumerate(row)).rstrip() for row in rows
    )


def elide(count: int, limit: int, last: int = 1) -> list[int | None]:
    """Up to `limit` of `count` indices: the first ones, None for a gap, and `last` last ones."""
    if count <= limit:
        return list(range(count))
    return [*range(limit - last), None, *range(count - last, count)]


# A word, or a Chinese character, with its punctuation and the space after it; or else, such as for
# a lone closing bracket, any character.
WORD = "[（“]*(?:[⺀-鿿]|[^\\s⺀-鿿（“]+)[，。、：；！？）”]*\\s*|\\S"


def wrap(line: str, width: int, hanging: str = "") -> list[str]:
    """Wrap a line between words, keeping its indentation; lines after the first add `hanging`."""
    words = re.findall(WORD, line.lstrip())
    indent = line[: len(line) - len(line.lstrip())]
    lines = [indent] if words else []
    for word in words:
        if lines[-1].strip() and display_width(lines[-1] + word.rstrip()) > width:
            lines.append(indent + hanging)
        lines[-1] += word
    return [line.rstrip() for line in lines]


class Heading(Message):
    """A heading."""


class Paragraph(Message):
    """A paragraph, wrapped to the width."""

    def __str__(self) -> str:
        return "\n".join(wrap(super().__str__(), WIDTH))


@dataclass(frozen=True)
class Table:
    """A header and lines of cells.

    `str` aligns cells and elides lines beyond MAX_LINES.
    """

    lines: Sequence[Sequence[str]]  # the cells of the header, then the cells of each line
    left: Sequence[int] = (0,)  # indices of left-aligned columns

    def __str__(self) -> str:
        header, *lines = self.lines
        gap = (ELLIPSIS,) * len(header)
        picked = (gap if i is None else lines[i] for i in elide(len(lines), MAX_LINES))
        return align([header, *picked], left=self.left)


def listed(columns: Columns, shown: Mapping[str, Format] = NOTHING) -> Table:
    """Columns as a printed table, with numbers aligned to the right; NaN and None are empty.

    A column's heading is its name, unless `shown` has another heading. Standard errors that are
    all unknown have no column.
    """
    names = [*columns]
    lines: dict[str, list[str]] = {}
    for name, following in zip(names, [*names[1:], ""], strict=True):
        form = shown.get(name, "")
        heading, form = form if isinstance(form, tuple) else (name, form)
        if form in (PLUS_MINUS, SIGNED_PLUS_MINUS):
            pairs = [*map(format_with_error, columns[name], columns[following])]
            numbers, errors = ([pair[i] for pair in pairs] for i in (0, 1))  # both may be empty
            if form == SIGNED_PLUS_MINUS:
                numbers = [x if x.startswith("-") else f"+{x}" for x in numbers]
            lines[name] = [Message(heading), *numbers]
            lines[following] = [Message("± standard error"), *errors] if any(errors) else []
        elif name not in lines:
            lines[name] = [Message(heading), *(cell(value, form) for value in columns[name])]
    kept = [name for name in names if lines[name]]
    left = [n for n, name in enumerate(kept) if not all(map(is_number_or_none, columns[name]))]
    return Table([*zip(*(lines[name] for name in kept), strict=True)], left)


def is_number_or_none(value: object) -> bool:
    return value is None or is_real(value)


def cell(value: Any, form: str | Callable[[Any], str]) -> str:
    """A value of a column as text."""
    if value is None:
        return ""
    if callable(form):
        return form(value)
    if isinstance(value, str):
        return value
    return "" if value != value else f"{value:{form}}"  # only NaN differs from itself


def header(*names: str) -> tuple[str, ...]:
    """Names of columns, shown in the user's language."""
    return tuple(map(Message, names))


def table(
    values: ArrayLike,
    *,
    rows: Sequence[object] | None = None,
    columns: Sequence[object] | None = None,
    decimals: int = 4,
    max_rows: int = 16,
    max_columns: int = 16,
) -> str:
    """Format a matrix as text, with labels of its rows and columns.

    Parameters
    ----------
    values : array of numbers, shape (m, n)
    rows, columns : m and n labels, such as token symbols; by default the indices
    decimals : digits after the decimal point
    max_rows, max_columns : rows and columns to show; larger matrices are elided

    Examples
    --------
    >>> print(table([[1, 2], [3, -np.inf]], rows=["a", "b"], columns=["x", "y"], decimals=1))
         x     y
    a  1.0   2.0
    b  3.0  -inf
    """
    matrix = as_array(values, "values")
    if matrix.ndim != 2 or matrix.dtype.kind not in "biuf":  # NumPy's kinds of bools and numbers
        raise InvalidValueError(
            f"values must be a matrix of numbers, such as weights[head]; got {matrix.dtype} of "
            f"shape {matrix.shape}"
        )
    decimals = as_count(decimals, "decimals", most=MAX_DECIMALS)
    max_rows = as_count(max_rows, "max_rows", least=2)
    max_columns = as_count(max_columns, "max_columns", least=2)
    row_labels = labels(rows, len(matrix), "rows")
    column_labels = labels(columns, matrix.shape[1], "columns")
    return StdoutSafeStr(
        matrix_table(matrix, row_labels, column_labels, decimals, max_rows, max_columns)
    )


def matrix_table(
    matrix: AnyArray,
    rows: Sequence[str],
    columns: Sequence[str],
    decimals: int,
    max_rows: int,
    max_columns: int,
) -> Table:
    """A matrix as a table; rows and columns beyond the limits are elided."""
    shown = elide(len(columns), max_columns)
    lines = [["", *(ELLIPSIS if j is None else columns[j] for j in shown)]]
    for i in elide(len(matrix), max_rows):
        if i is None:
            lines.append([ELLIPSIS] * (1 + len(shown)))
        else:
            numbers = (ELLIPSIS if j is None else f"{matrix[i, j]:z.{decimals}f}" for j in shown)
            lines.append([rows[i], *numbers])
    return Table(lines)


def labels(values: Iterable[object] | None, count: int, name: str) -> list[str]:
    """Convert labels of rows or columns to text; by default the indices."""
    if values is None:
        return [*map(str, range(count))]
    check_kind(values, Iterable, name, f"{count} labels, such as tokens.symbols")
    texts = [printable(str(label)) for label in values]
    if len(texts) != count:
        raise InvalidValueError(f"{name} must be {count} labels; got {len(texts)}")
    return texts
