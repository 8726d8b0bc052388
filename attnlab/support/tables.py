"""Aligned text tables, for every `repr` and for the walkthrough."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Sequence

from numpy.typing import ArrayLike

from attnlab.errors import InvalidTypeError, InvalidValueError, shown
from attnlab.support.checks import as_array, as_count
from attnlab.support.console import PrintedText

ELLIPSIS = "…"

# How many lines a repr shows: as many as GPT-2 takes tokens.
MOST_LINES = 1024

# The most digits after the point; a float64 has no more than 17 that tell it from others.
MOST_DECIMALS = 100


def display_width(text: str) -> int:
    """Columns that `text` takes up in a terminal: two for 猫, none for a combining accent."""
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    combining = sum(unicodedata.combining(character) != 0 for character in text)
    return len(text) + wide - combining


def printable(text: str) -> str:
    """`text` with line ends and control characters as escapes."""
    return text if text.isprintable() else repr(text)[1:-1]


def with_error(number: float, error: float) -> tuple[str, str]:
    """A number and its standard error, with so many decimals that two digits of the error show.

    Without an error, or with one of 0, a number has three digits, and what there is not is "".
    """
    if not 0 < error < math.inf:
        return f"{number:.3g}", "0" if error == 0 else ""
    decimals = max(0, 1 - math.floor(math.log10(error)))
    return f"{number:.{decimals}f}", f"{error:.{decimals}f}"


def align(rows: Sequence[Sequence[str]], *, left: Sequence[int] = (0,)) -> str:
    """Lines of text with the cells of `rows` in columns, those numbered in `left` to the left."""
    widths = [max(map(display_width, column)) for column in zip(*rows, strict=True)]

    def pad(cell: str, column: int) -> str:
        space = " " * (widths[column] - display_width(cell))
        return cell + space if column in left else space + cell

    return "\n".join(
        "  ".join(pad(cell, column) for column, cell in enumerate(row)).rstrip() for row in rows
    )


def elide(count: int, limit: int, last: int = 1) -> list[int | None]:
    """Which of `count` indices to show when only `limit` fit: the first, a gap, and `last` more."""
    if count <= limit:
        return list(range(count))
    return [*range(limit - last), None, *range(count - last, count)]


def shortened(rows: Sequence[Sequence[str]]) -> list[Sequence[str]]:
    """A header and what is below it, of very many lines the first ones, a gap, and the last."""
    header, *lines = rows
    gap = (ELLIPSIS,) * len(header)
    return [header, *(gap if i is None else lines[i] for i in elide(len(lines), MOST_LINES))]


def table(
    values: ArrayLike,
    *,
    rows: Sequence[object] | None = None,
    columns: Sequence[object] | None = None,
    decimals: int = 4,
    max_rows: int = 16,
    max_columns: int = 16,
) -> str:
    """A matrix as text, its rows and columns labelled.

    Parameters
    ----------
    values : array of numbers, shape (m, n)
    rows, columns : m and n labels, such as token symbols; by default the indices
    decimals : digits after the point
    max_rows, max_columns : of a larger matrix the first ones are shown, a gap, and the last

    Examples
    --------
    >>> print(table([[1, 2], [3, -np.inf]], rows=["a", "b"], columns=["x", "y"], decimals=1))
         x     y
    a  1.0   2.0
    b  3.0  -inf
    """
    matrix = as_array(values, "values")
    if matrix.ndim != 2 or matrix.dtype.kind not in "biuf":
        raise InvalidValueError(
            f"a table shows a matrix of numbers, such as weights[head]; "
            f"given shape {matrix.shape}, dtype {matrix.dtype}"
        )
    decimals = as_count(decimals, "decimals", most=MOST_DECIMALS)
    max_rows = as_count(max_rows, "max_rows", least=2)
    max_columns = as_count(max_columns, "max_columns", least=2)
    row_labels = labels(rows, len(matrix), "rows")
    column_labels = labels(columns, matrix.shape[1], "columns")
    shown_columns = elide(matrix.shape[1], max_columns)
    lines = [["", *(ELLIPSIS if j is None else column_labels[j] for j in shown_columns)]]
    for i in elide(len(matrix), max_rows):
        if i is None:
            lines.append([ELLIPSIS] * (1 + len(shown_columns)))
        else:
            numbers = (
                ELLIPSIS if j is None else f"{matrix[i, j]:z.{decimals}f}" for j in shown_columns
            )
            lines.append([row_labels[i], *numbers])
    return PrintedText(align(lines))


def labels(given: Iterable[object] | None, count: int, of: str) -> list[str]:
    """The labels of rows or columns as text, by default numbers."""
    try:
        texts = [printable(str(label)) for label in (range(count) if given is None else given)]
    except Exception:  # an object may raise what it likes when it is gone through, or shown
        raise InvalidTypeError(
            f"{of} must be {count} labels, such as tokens.symbols; given {shown(given)}"
        ) from None
    if len(texts) != count:
        raise InvalidValueError(f"{len(texts)} labels given for {count} {of}")
    return texts
