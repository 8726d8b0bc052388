"""What all analyses have in common: how they look, and what they are asked about."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias

from attnlab.equations import AnyArray, Array
from attnlab.errors import InvalidValueError
from attnlab.steps import at
from attnlab.support.checks import as_floats
from attnlab.support.messages import Message
from attnlab.support.tables import Document, Heading, Paragraph, Table, matrix_table
from attnlab.text.tokens import Token
from attnlab.views.places import place, place_of
from attnlab.views.shown import Axis, axis_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from attnlab.views.plot import Picture

# A trace, which stands above: known, as views know results, by its steps.
Trace: TypeAlias = Any

# A token as people name it: its id, its text, its symbol, or a Token.
Named: TypeAlias = int | str | Token


class Analysis(Document):
    """What was found out; `print` shows a table and what it can't tell, `plot` draws it.

    Attributes
    ----------
    title : what it is of
    note : what it can't tell
    source : where it is from
    """

    title: str
    note: ClassVar[str]
    source: ClassVar[str]
    decimals: ClassVar[int] = 2

    @abstractmethod
    def _grid(self) -> tuple[AnyArray, Axis, Axis]:
        """The numbers that are shown, (m, n), with what stands along rows and columns."""

    def _in_cells(self) -> Sequence[Sequence[Token]]:
        """The token that each number is of, a row for each row; () where they are of none."""
        return ()

    def table(self) -> str:
        """The numbers as text."""
        return "\n".join(map(str, self._tables()))

    def _tables(self) -> Iterator[str | Table]:
        """The numbers, and what is said of them."""
        numbers, rows, columns = self._grid()
        yield matrix_table(numbers, rows.labels, columns.labels, self.decimals, 100, 16)

    def pieces(self) -> Iterator[str | Table]:
        yield Heading(self.title)
        yield from self._tables()
        yield Paragraph(self.note)
        yield f"Source: {self.source}"

    def plot(
        self, ax: Axes | None = None, tokens: slice | None = None, *, language: str | None = None
    ) -> Picture:
        """The table as a heatmap.

        Parameters
        ----------
        ax : matplotlib's Axes to draw into; None for a figure of its own
        tokens : which positions, where there is a number for each, as `Attention.plot` takes it
        language : "en" or "zh", Chinese; None for the reader's, as `Trace.to_html` takes it

        Returns
        -------
        Picture
            a notebook shows it, `.save("picture.svg")` writes it; `.axes`, `.figure` and `.alt`,
            its words, are there too
        """
        from attnlab.views.plot import drawn_in, plot_table

        with drawn_in(language):
            return plot_table(*self._grid(), self.title, ax, tokens, self._in_cells())


def numbered(name: str, count: int) -> Axis:
    """An axis of layers, heads, or the like."""
    return Axis(name, range(count), (None,) * count)


def head_called(layer: int, head: int) -> Message:
    """A head in words."""
    return Message("layer {layer} head {head}", layer=layer, head=head)


def named(name: str, names: tuple[str, ...]) -> Axis:
    """An axis of what has names."""
    return Axis(name, range(len(names)), (None,) * len(names), names)


def positions_of(trace: Trace) -> Axis:
    """The axis of a trace's tokens."""
    return axis_of(trace, "T", len(trace.tokens))


@dataclass(frozen=True)
class Target:
    """The logit of one token at one position, or how far it is above another's.

    Attributes
    ----------
    token, against : Token; `against` None where it is one logit
    position : among the trace's tokens, from 0
    """

    token: Token
    against: Token | None
    position: int

    @classmethod
    def of(cls, trace: Trace, token: Named, against: Named | None, position: int | str) -> Self:
        """The target that a caller names."""
        one = trace.vocabulary.named(token)
        other = None if against is None else trace.vocabulary.named(against)
        if one == other:
            raise InvalidValueError(f"{one.symbol} against itself is 0: give two different tokens")
        at_row = place_of(trace, "position", position, len(trace.tokens))
        return cls(one, other, at_row)

    def difference(self, logits: Array) -> Array:
        """Of logits, or of columns of W_U, (..., vocab) -> (...)."""
        logits = as_floats(logits, "logits")
        if not logits.ndim or logits.shape[-1] <= max(
            self.token.id, getattr(self.against, "id", 0)
        ):
            raise InvalidValueError(f"logits have shape (..., vocab); got {logits.shape}")
        of_token: Array = logits[..., self.token.id]
        return of_token if self.against is None else of_token - logits[..., self.against.id]

    def value(self, trace: Trace) -> float:
        """What it is in a trace; no other logit is made, unless they are edited."""
        return float(self.values(trace))

    def values(self, trace: Trace) -> Array:
        """The same of a trace of several runs side by side, (...)."""
        T = len(at(trace, "ids"))
        position = place(self.position, "position", T)
        if position == T - 1 and trace.is_edited("next_logits"):
            return self.difference(trace.next_logits)
        if trace.is_edited("logits"):
            return self.difference(trace.logits[..., position, :])
        # Summed row by row, as a matrix product of equal rows need not give equal numbers.
        products = trace.final[..., position, :] * self.difference(trace.W_U)
        total: Array = products.sum(axis=-1)
        return total

    @property
    def message(self) -> Message:
        """It in words."""
        if self.against is None:
            template = "the logit of {token} at position {position}"
            return Message(template, token=self.token.symbol, position=self.position)
        return Message(
            "the logit of {token} minus that of {other} at position {position}",
            token=self.token.symbol,
            other=self.against.symbol,
            position=self.position,
        )

    def __str__(self) -> str:
        return str(self.message)
