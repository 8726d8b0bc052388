"""A result as a document: its numbers as columns, printed as tables and texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from attnlab.support.checks import importing_extra
from attnlab.support.console import StdoutSafe
from attnlab.support.messages import say
from attnlab.support.tables import NOTHING, Columns, Format, Table, listed

if TYPE_CHECKING:
    from pandas import DataFrame


class Document(StdoutSafe):
    """An object that is printed as headings, tables and paragraphs.

    A document declares its numbers once, as columns. Its data frame has these columns, and `listed`
    prints them.
    """

    # Formats and headings by column; they name the columns unless a document overrides `_data`.
    _shown: ClassVar[Mapping[str, Format]] = NOTHING

    def pieces(self) -> Iterator[str | Table]:
        """The headings, tables and paragraphs that are printed, from top to bottom."""
        yield from self._tables()

    def table(self) -> str:
        """The result's numbers as a table of text."""
        return "\n".join(map(str, self._tables()))

    def _tables(self) -> Iterator[str | Table]:
        """The table, and the lines of text around it."""
        yield listed(self._data(), self._shown)

    def _data(self) -> Columns:
        """The columns of the data frame, by default attributes of `_records`."""
        return {name: [getattr(row, name) for row in self._records()] for name in self._shown}

    def _records(self) -> Any:
        """The objects that have the columns as attributes."""
        return self

    def to_dataframe(self) -> DataFrame:
        """Return all of the result's numbers as a pandas DataFrame, unrounded, one in each row.

        Other columns say where each number belongs, such as `layer`, `head` and `position`.
        """
        return frame_of(self._data(), getattr(self, "title", ""))

    def __repr__(self) -> str:
        return "\n".join(map(str, self.pieces()))

    def _repr_html_(self) -> str:
        from attnlab.support import markup  # imported late, so that `import attnlab` is quick

        title, *pieces = self.pieces()
        if not isinstance(title, str):
            title, pieces = "", [title, *pieces]
        return markup.document(title, *map(markup.piece, pieces))


def frame_of(columns: Columns, title: str) -> DataFrame:
    """Columns as a DataFrame, whose texts are in English, as names of steps are."""
    with importing_extra("frames"):
        import pandas as pd

    def series(values: Any) -> Any:
        if isinstance(values, np.ndarray):
            return values
        if None in values:  # integers, such as numbers of heads, which an MLP doesn't have
            return pd.array([*values], "Int64")
        return [f"{value}" if isinstance(value, str) else value for value in values]

    frame = pd.DataFrame({name: series(values) for name, values in columns.items()})
    frame.attrs["title"] = say(title)
    return frame
