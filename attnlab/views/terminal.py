"""Texts and tables in a terminal, as wide as it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from attnlab.tables import ELLIPSIS, display_width, elide, printable
from attnlab.views.shown import TOKENS_SHOWN, Shown, label, missing_extra

try:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text
except ModuleNotFoundError as error:
    raise missing_extra(error, "cli") from None

# The most columns of a table, however wide the terminal is.
COLUMNS_SHOWN = 16


class Terminal(Console):
    """Where a command shows what it found out."""

    def __init__(self) -> None:
        super().__init__(highlight=False, markup=False, emoji=False)

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError

    def write(self, text: str) -> None:
        """Lines of text."""
        for line in text.splitlines():
            self.print(Text(printable(line)), overflow="fold")

    def heading(self, text: str) -> None:
        self.print(Text(printable(text), style="bold"))

    def tokens(self, tokens: Any) -> None:
        """A table of tokens, of many the first ones and the last."""
        header, *lines = tokens.lines()
        picked = elide(len(lines), TOKENS_SHOWN)
        cut = (lines[i] if i is not None else [ELLIPSIS] * len(header) for i in picked)
        self.table([header, *cut], left=(2, 3, 4, 5))

    def table(self, lines: Sequence[Sequence[str]], left: Sequence[int]) -> None:
        """A table with a header; where it is too wide, words are folded, and numbers are not."""
        header, *rows = lines
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for column, name in enumerate(header):
            if column in left:
                table.add_column(name, overflow="fold")
            else:
                widest = max(len(row[column]) for row in rows)
                table.add_column(name, justify="right", overflow="fold", min_width=widest)
        for row in rows:
            table.add_row(*(Text(printable(cell)) for cell in row))
        self.print(table)
        self.print()

    def step(self, step: Shown) -> None:
        """A step with labels, as many of its columns as the width holds.

        What is masked is dim, each row's largest number bold.
        """
        if not step.axes:
            self.heading(f"{step.heading} = {step.array:.{step.decimals}f}")
            self.print()
            return
        rows, *columns = step.axes
        array = step.array if columns else step.array[:, np.newaxis]
        masked = step.masked
        is_mask = array.dtype == bool

        def cell(i: int, j: int) -> Text:
            text = str(array[i, j]) if is_mask else f"{array[i, j]:z.{step.decimals}f}"
            if masked is not None and masked[i, j]:
                return Text(text, style="dim")
            largest = masked is not None and not is_mask and array[i, j] == array[i].max()
            return Text(text, style="bold" if largest else "")

        names = [label(name) for name in (columns[0].labels if columns else [step.name])]
        picked = elide(len(array), TOKENS_SHOWN)
        labels = ["" if i is None else label(rows.labels[i]) for i in picked]
        cells = {(i, j): cell(i, j) for i in picked if i is not None for j in range(len(names))}
        left = max(map(display_width, labels))
        widest = max(*map(display_width, names), *map(len, cells.values()))
        room = self.width - left
        if len(names) > min(room // (widest + 2), COLUMNS_SHOWN):
            room -= display_width(ELLIPSIS) + 2  # the gap is a column too
        fit = elide(len(names), min(max(room // (widest + 2), 2), COLUMNS_SHOWN))
        self.heading(f"{step.heading}    {' x '.join(map(str, array.shape))}")
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        table.add_column("", no_wrap=True)
        for j in fit:
            name = ELLIPSIS if j is None else Text(names[j])
            table.add_column(name, justify="right", no_wrap=True)
        for i, name in zip(picked, labels, strict=True):
            line = (Text(ELLIPSIS) if i is None or j is None else cells[i, j] for j in fit)
            table.add_row(Text(name if i is not None else ELLIPSIS), *line)
        self.print(table)
        self.print()
