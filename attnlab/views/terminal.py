"""Text and tables fitted to the terminal's width."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from attnlab.steps.labels import label
from attnlab.support.console import for_stdout
from attnlab.support.messages import say
from attnlab.support.tables import (
    ELLIPSIS,
    Document,
    Table,
    align,
    display_width,
    elide,
    printable,
    wrap,
)
from attnlab.views.explaining.explanation import Explanation, fold
from attnlab.views.labelled_step import MASKED, TOKENS_SHOWN, LabelledStep

# The most columns of a table, in a terminal of any width.
COLUMNS_SHOWN = 16


class Terminal:
    """The output of a command; its width is 80 if stdout isn't a terminal and COLUMNS isn't set."""

    def __init__(self) -> None:
        self.width = max(shutil.get_terminal_size().columns, 1)
        # Output to a file or another program isn't wrapped.
        self._wraps = sys.stdout.isatty() or "COLUMNS" in os.environ

    def show(self, piece: Any) -> None:
        """Show a text, table, step, tokens, explanation, or a document of texts and tables."""
        match piece:
            case Document():
                for part in piece.pieces():
                    self.show(part)
            case Explanation():
                self.write(piece.text(self.width))
            case LabelledStep():
                self.step(piece)
            case Table():
                self.table(piece)
            case str():
                self.write(say(piece))
            case _:
                self.tokens(piece)

    def write(self, text: str) -> None:
        """Write lines of text, wrapped between words."""
        for line in self._wrapped(text):
            print(line)

    def _wrapped(self, text: str) -> Iterator[str]:
        for line in map(_escape, text.splitlines()):
            if not self._wraps or display_width(line) <= self.width:
                yield line
                continue
            yield from wrap(line, self.width)

    def tokens(self, tokens: Any) -> None:
        """Show a table of tokens; of many, the first and the last."""
        header, *lines = tokens.lines()
        indices = self._row_indices(len(lines))
        shown = (lines[i] if i is not None else [ELLIPSIS] * len(header) for i in indices)
        self.table(Table([header, *shown], left=(2, 3, 4, 5)))  # columns of text, not numbers

    def table(self, table: Table) -> None:
        """Show a table; columns that don't fit follow below."""
        lines = [[_escape(str(cell)) for cell in line] for line in table.lines]
        print("\n".join(fold(lines, self.width, table.left)))
        print()

    def step(self, step: LabelledStep) -> None:
        """Show a step with labels, and as many columns as fit."""
        if not step.axes:
            self.write(f"{say(step.heading)} = {step.array:.{step.decimals}f}\n")
            return
        rows, *columns = step.axes
        array = step.array if columns else step.array[:, np.newaxis]
        names = [label(name) for name in columns[0].labels] if columns else [step.name]
        is_masked = np.zeros(array.shape, bool)
        if step.masked is not None and array.dtype != bool:
            is_masked = step.masked & (array == 0)

        def cell(i: int | None, j: int | None) -> str:
            if i is None or j is None:
                return ELLIPSIS
            if array.dtype == bool:
                return str(array[i, j])
            return MASKED if is_masked[i, j] else f"{array[i, j]:z.{step.decimals}f}"

        def text_with(most: int) -> str:
            """The table, with at most so many columns."""
            shown = elide(len(names), most)
            lines = [["", *(ELLIPSIS if j is None else names[j] for j in shown)]]
            for i in self._row_indices(len(array)):
                row = ELLIPSIS if i is None else label(rows.labels[i])
                lines.append([row, *(cell(i, j) for j in shown)])
            return align([[*map(_escape, line)] for line in lines])

        most = max(2, COLUMNS_SHOWN if self._wraps else len(names))
        while (text := text_with(most)) and most > 2 and self._is_too_wide(text):
            most -= 1
        notes = [" x ".join(map(str, array.shape))]
        if is_masked.any():
            notes.append(say("{sign} is masked", sign=MASKED))
        self.write("    ".join([say(step.heading), *notes]))
        print(f"{text}\n")

    def _is_too_wide(self, text: str) -> bool:
        return self._wraps and max(map(display_width, text.splitlines())) > self.width

    def _row_indices(self, count: int) -> list[int | None]:
        """The indices of the rows to show: first and last ones, or all if lines aren't wrapped."""
        return elide(count, TOKENS_SHOWN if self._wraps else count, TOKENS_SHOWN // 2)


def _escape(text: str) -> str:
    """Text with escapes for control characters and for what stdout can't encode.

    Column widths depend on the escapes, so texts are escaped before they are aligned.
    """
    dots = ELLIPSIS if for_stdout(ELLIPSIS) == ELLIPSIS else "..."
    return for_stdout(printable(text).replace(ELLIPSIS, dots))
