"""Text and tables fitted to the terminal's width."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from attnlab.steps.labels import label
from attnlab.support.console import for_stdout
from attnlab.support.messages import say
from attnlab.support.tables import (
    ELLIPSIS,
    Document,
    Heading,
    Table,
    display_width,
    elide,
    printable,
    wrap,
)
from attnlab.views.colours import LIGHT, ink_on, levels
from attnlab.views.explanation import Explanation, fold
from attnlab.views.labelled_step import MASKED, TOKENS_SHOWN, LabelledStep

# The most columns of a table, in a terminal of any width.
COLUMNS_SHOWN = 16

BOLD, DIM, RESET = "\x1b[1m", "\x1b[2m", "\x1b[0m"

# Values of COLORTERM in terminals with 24-bit colour.
TRUE_COLOUR = ("truecolor", "24bit")


class Terminal:
    """The output of a command; its width is 80 if stdout isn't a terminal and COLUMNS isn't set."""

    def __init__(self) -> None:
        self.width = max(shutil.get_terminal_size().columns, 1)
        is_terminal = sys.stdout.isatty()
        # Output to a file or another program isn't wrapped.
        self._wraps = is_terminal or "COLUMNS" in os.environ
        supports_styles = os.environ.get("TERM") != "dumb" and (
            os.name != "nt" or "WT_SESSION" in os.environ
        )
        self._has_styles = is_terminal and supports_styles and not os.environ.get("NO_COLOR")
        self._has_colours = self._has_styles and os.environ.get("COLORTERM") in TRUE_COLOUR

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
            case Heading():
                self.heading(say(piece))
            case str():
                self.write(say(piece))
            case _:
                self.tokens(piece)

    def write(self, text: str) -> None:
        """Write lines of text, wrapped between words."""
        for line in self._wrapped(text):
            print(line)

    def heading(self, text: str) -> None:
        for line in self._wrapped(text):
            print(f"{BOLD}{line}{RESET}" if self._has_styles else line)

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
        """Show a step with labels and as many columns as fit.

        Masked cells are dim and each row's largest number is bold; with 24-bit colour, each
        number's background is its colour in the palette.
        """
        if not step.axes:
            self.heading(f"{say(step.heading)} = {step.array:.{step.decimals}f}")
            print()
            return
        rows, *columns = step.axes
        array = step.array if columns else step.array[:, np.newaxis]
        is_mask = array.dtype == bool
        masked = None if step.masked is None or is_mask else step.masked

        def cell(i: int, j: int) -> str:
            if is_mask:
                return str(array[i, j])
            if masked is not None and masked[i, j] and array[i, j] == 0:
                return MASKED
            return f"{array[i, j]:z.{step.decimals}f}"

        scale = step.scale

        def style(i: int, j: int) -> str:
            if step.masked is not None and step.masked[i, j]:
                return DIM
            emphasis = BOLD if masked is not None and array[i, j] == array[i].max() else ""
            if not self._has_colours or is_mask or np.isnan(array[i, j]):
                return emphasis
            colour = LIGHT.palette()[scale.palette_indices(array[i, j])]
            return f"{_colour(48, colour)}{_colour(38, ink_on(colour))}{emphasis}"

        names = [_escape(label(name)) for name in (columns[0].labels if columns else [step.name])]
        indices = self._row_indices(len(array))
        labels = [_escape(ELLIPSIS if i is None else label(rows.labels[i])) for i in indices]
        most = COLUMNS_SHOWN if self._wraps else len(names)
        candidates = [j for j in elide(len(names), most) if j is not None]
        cells = {(i, j): cell(i, j) for i in indices if i is not None for j in candidates}
        gap = _escape(ELLIPSIS)
        label_width = max(map(display_width, labels))
        widest = max(*(display_width(names[j]) for j in candidates), *map(len, cells.values()))
        available = self.width - label_width if self._wraps else len(names) * (widest + 2)
        if len(names) > min(available // (widest + 2), most):
            available -= display_width(gap) + 2  # the gap takes a column
        fit = elide(len(names), min(max(available // (widest + 2), 2), most))

        notes = [" x ".join(map(str, array.shape))]
        if MASKED in cells.values():
            notes.append(say("{sign} is masked", sign=MASKED))
        self.heading("    ".join([say(step.heading), *notes]))
        widths = [
            display_width(gap)
            if j is None
            else max(display_width(names[j]), *(len(cells[i, j]) for i in indices if i is not None))
            for j in fit
        ]
        self._row("", label_width, [(gap if j is None else names[j], "") for j in fit], widths)
        for i, name in zip(indices, labels, strict=True):
            line = [
                (gap, "") if i is None or j is None else (cells[i, j], style(i, j)) for j in fit
            ]
            self._row(name, label_width, line, widths)
        print()

    def _row_indices(self, count: int) -> list[int | None]:
        """The indices of the rows to show: first and last ones, or all if lines aren't wrapped."""
        return elide(count, TOKENS_SHOWN if self._wraps else count, TOKENS_SHOWN // 2)

    def _row(
        self, name: str, label_width: int, cells: Sequence[tuple[str, str]], widths: Sequence[int]
    ) -> None:
        """Print a row of cells, aligned right."""
        line = name + " " * (label_width - display_width(name))
        for (text, style), width in zip(cells, widths, strict=True):
            padded = " " * (width - display_width(text)) + text
            line += "  " + (f"{style}{padded}{RESET}" if style and self._has_styles else padded)
        print(line)


def _colour(ground: int, colour: str) -> str:
    """The escape sequence for a foreground (38) or background (48) colour."""
    r, g, b = levels(colour)
    return f"\x1b[{ground};2;{r};{g};{b}m"


def _escape(text: str) -> str:
    """Text with escapes for control characters and for what stdout can't encode.

    Column widths depend on the escapes, so texts are escaped before they are aligned.
    """
    dots = ELLIPSIS if for_stdout(ELLIPSIS) == ELLIPSIS else "..."
    return for_stdout(printable(text).replace(ELLIPSIS, dots))
