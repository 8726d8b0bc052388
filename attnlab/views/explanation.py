"""An explanation of one number, as text and in a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from attnlab.support.checks import as_count
from attnlab.support.console import StdoutSafe
from attnlab.support.messages import Message, say
from attnlab.support.tables import wrap
from attnlab.views.terms import DIGITS, Line, TermTable, lines_of_table

WIDTH = 88

NOTE = Message("Numbers are rounded to {digits} digits; shorter ones are exact.", digits=DIGITS)


@dataclass(frozen=True, eq=False, repr=False)
class Explanation(StdoutSafe):
    """The arithmetic of a number; `print` shows it.

    Attributes
    ----------
    title : what is explained
    purpose : the purpose of its step
    numbers : the printed numbers, unrounded, by step
    lines : `Line`s and `TermTable`s
    """

    title: str
    purpose: str
    numbers: dict[str, Any]
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
                blocks += [[*heading, *lines_of_table(line, width)], []]
        return "\n\n".join("\n".join(block) for block in blocks if block)

    def __repr__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        from attnlab.views.notebook import explanation_view

        return explanation_view(self)
