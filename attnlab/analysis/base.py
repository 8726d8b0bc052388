"""The base class of all analyses, and the targets that they explain."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias

from attnlab.equations import AnyArray, Array
from attnlab.errors import InvalidTypeError, InvalidValueError
from attnlab.model.trace import Trace
from attnlab.steps import at
from attnlab.steps.labels import Axis, Grid, axis_of, long_columns, token_index
from attnlab.support.checks import as_index
from attnlab.support.document import Document
from attnlab.support.messages import Message
from attnlab.support.tables import Columns, Heading, Paragraph, Table, matrix_table
from attnlab.text.tokens import Token, TokenLike

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from attnlab.views.plot import Picture


class Analysis(Document):
    """The result of an analysis; `print` shows it as a table, `plot` as a heatmap.

    Attributes
    ----------
    title : what was analysed
    meaning : a sentence that says what each number is
    note : the limits of the analysis
    source : the publication that introduced it
    """

    title: str
    meaning: ClassVar[str] = ""
    note: ClassVar[str]
    source: ClassVar[str]
    decimals: ClassVar[int] = 2
    _number: ClassVar[str] = "number"  # the name of the numbers' column in a data frame

    @abstractmethod
    def _grid(self) -> tuple[AnyArray, Axis, Axis]:
        """The numbers shown, (m, n), with the axes of rows and columns."""

    def _data(self) -> Columns:
        numbers, *axes = self._grid()
        return long_columns(axes, {self._number: numbers, **self._further_numbers()})

    def _further_numbers(self) -> dict[str, AnyArray]:
        """Further columns of the data frame, such as errors, with an entry for each number."""
        return {}

    def _cell_tokens(self) -> Sequence[Sequence[Token]]:
        """The token of each number, row by row; () if numbers don't belong to tokens."""
        return ()

    def _tables(self) -> Iterator[str | Table]:
        numbers, rows, columns = self._grid()
        yield matrix_table(
            numbers, rows.labels, columns.labels, self.decimals, max_rows=100, max_columns=16
        )

    def pieces(self) -> Iterator[str | Table]:
        yield Heading(self.title)
        yield from self._tables()
        yield from map(Paragraph, self._notes())
        yield Message("Source: {source}", source=self.source)

    def _notes(self) -> tuple[str, ...]:
        """The limits of the analysis, as paragraphs."""
        return (self.note,)

    def _grids(self) -> list[Grid]:
        """The heatmaps that a notebook shows."""
        numbers, rows, columns = self._grid()
        texts = [[token.readable for token in row] for row in self._cell_tokens()]
        return [Grid(self.title, numbers, (rows, columns), texts, decimals=self.decimals)]

    def _repr_html_(self) -> str:
        lines = (piece for piece in self._tables() if isinstance(piece, str))
        notes = map(Paragraph, filter(None, (self.meaning, *self._notes())))
        from attnlab.views.notebook import document_view

        return document_view(self, [self.title, *self._grids(), *lines, *notes])

    def plot(
        self, ax: Axes | None = None, tokens: slice | None = None, *, language: str | None = None
    ) -> Picture:
        """Plot the table as a heatmap.

        Parameters and result are as in `Attention.plot`. `tokens` selects positions, in a table
        that has numbers for each position.
        """
        from attnlab.views.plot import drawing_in, plot_table

        with drawing_in(language):
            return plot_table(*self._grid(), self.title, ax, tokens, self._cell_tokens())


def numbered_axis(name: str, count: int) -> Axis:
    """An axis labelled 0, 1, ..."""
    return Axis(name, range(count), tokens=(None,) * count)


def named_axis(name: str, labels: tuple[str, ...]) -> Axis:
    return Axis(name, range(len(labels)), tokens=(None,) * len(labels), names=labels)


def heads_axis(name: str, layers: int, heads: int) -> Axis:
    names = tuple(head_name(layer, head) for layer in range(layers) for head in range(heads))
    return replace(named_axis(name, names), n_head=heads)


def head_name(layer: int, head: int) -> Message:
    return Message("layer {layer} head {head}", layer=layer, head=head)


def number_of_texts(count: int) -> Message:
    return Message("one text") if count == 1 else Message("{count} texts", count=f"{count:,}")


def positions_of(trace: Trace) -> Axis:
    return axis_of(trace, "T", len(trace.tokens))


# A token stands for its logit, two tokens for the difference of their logits.
TargetLike: TypeAlias = TokenLike | tuple[TokenLike, TokenLike]


@dataclass(frozen=True)
class Target:
    """A token's logit at one position, or its difference from another token's logit."""

    token: Token
    against: Token | None  # None for a single logit
    position: int  # index among the trace's tokens

    @classmethod
    def of(cls, trace: Trace, target: Any, at: int | str) -> Self:
        """Look up the tokens and the position of a target in a trace."""
        if callable(target):  # only `patch` and `path_patch` take functions
            raise InvalidTypeError("target must be a token or a pair of tokens; got a function")
        is_pair = isinstance(target, tuple | list) and len(target) == 2
        names = list[Any](target if is_pair else [target])
        first, *others = map(trace.vocabulary.lookup, names)
        second = others[0] if others else None
        if first == second:
            raise InvalidValueError(f"the two tokens must differ; both are {first.readable}")
        return cls(first, second, token_index(trace, "position", at, len(trace.tokens)))

    def difference(self, logits: Array) -> Array:
        """The token's logit minus the other token's logit, (..., vocab) -> (...).

        With W_U (D, vocab) it returns the token's column minus the other token's column, (D,).
        """
        logit: Array = logits[..., self.token.id]
        return logit if self.against is None else logit - logits[..., self.against.id]

    def value(self, trace: Trace) -> float:
        """The target's value in a trace, without computing all logits unless they are edited."""
        T = len(at(trace, "ids"))
        position = as_index(self.position, "position", T)
        # An edit of `logits` or `next_logits` changes both steps. Only `logits` computes all rows.
        if position == T - 1 and trace.is_edited("next_logits"):
            return float(self.difference(trace.next_logits))
        if trace.is_edited("logits"):
            return float(self.difference(trace.logits[position]))
        # A difference of logits is `final` times the difference of two columns of W_U. A sum is
        # used instead of a matrix product, since BLAS may round equal rows differently.
        return float((trace.final[position] * self.difference(trace.W_U)).sum())

    @property
    def logit_message(self) -> Message:
        """The target in words, without its position."""
        if self.against is None:
            return Message("the logit of {token}", token=self.token.readable)
        return Message(
            "the logit of {token} minus that of {other}",
            token=self.token.readable,
            other=self.against.readable,
        )

    @property
    def message(self) -> Message:
        template = "{target} at position {position}"
        return Message(template, target=self.logit_message, position=self.position)

    def __str__(self) -> str:
        return str(self.message)
