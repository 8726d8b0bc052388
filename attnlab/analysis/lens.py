"""The logit lens: what the residual stream predicts after each attention and MLP."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from attnlab import equations
from attnlab.analysis.base import Analysis, named_axis, positions_of
from attnlab.equations import AnyArray, Array, Ids
from attnlab.errors import InvalidValueError
from attnlab.forward.fast import ROWS
from attnlab.model.trace import Trace
from attnlab.steps import at, read_only
from attnlab.steps.labels import Axis, Grid, token_index
from attnlab.support.checks import as_count, check_choice, check_kind
from attnlab.support.messages import Message
from attnlab.support.parts import sliced
from attnlab.support.scale import PROBABILITIES
from attnlab.support.tables import ELLIPSIS, Paragraph, Table, elide, label
from attnlab.text.tokens import Token, TokenLike

COLUMNS_SHOWN = 16  # in a printed table

# Ids, ranks and probabilities.
Numbers: TypeAlias = tuple[AnyArray, AnyArray, AnyArray]


class Lens(Analysis):
    """Tokens with their ranks and probabilities, one row for each point of the residual stream.

    The points, or stops, are the embedding and the stream after each attention and each MLP.

    Attributes
    ----------
    stops : the points' S paths, "embedding", "blocks.0.mid", "blocks.0.output", ... The last point
        has the model's prediction, unless `final` or `logits` is edited.
    ids : int64 (S, n), the ids of the `tokens`
    ranks : int64 (S, n), 1 for the most probable token
    probabilities : (S, n)
    tokens : n tokens (see `Token`) for each point
    """

    meaning: ClassVar[str] = (
        "Each cell is a token decoded from a point of the residual stream; its colour is the "
        "token's probability, softmax(LayerNorm(stream) W_U)."
    )
    note: ClassVar[str] = (
        "Early layers are decoded with the last LayerNorm and W_U, but may represent tokens "
        "differently: a token that doesn't appear there may still be represented."
    )
    source: ClassVar[str] = (
        "nostalgebraist, “interpreting GPT: the logit lens” (2020); softmax of "
        "LayerNorm(stream) W_U"
    )

    _number: ClassVar[str] = "probability"

    def __init__(
        self, title: str, trace: Trace, columns: Axis, numbers: Numbers | None = None
    ) -> None:
        """`numbers` are ids, ranks and probabilities; a subclass may compute them later."""
        self.title, self.stops, self._trace, self._columns = title, points_of(trace), trace, columns
        self._given = numbers

    @cached_property
    def _numbers(self) -> Numbers:
        assert self._given is not None
        return self._given

    @property
    def ids(self) -> Ids:
        return read_only(self._numbers[0])

    @property
    def ranks(self) -> NDArray[np.int64]:
        return read_only(self._numbers[1])

    @property
    def probabilities(self) -> Array:
        return read_only(self._numbers[2])

    @cached_property
    def tokens(self) -> tuple[tuple[Token, ...], ...]:
        vocabulary = self._trace.vocabulary
        return tuple(tuple(vocabulary.token(int(id)) for id in row) for row in self.ids)

    def _grid(self) -> tuple[AnyArray, Axis, Axis]:
        rows = named_axis("stop", self.stops)
        return self.probabilities.reshape(len(self.stops), -1), rows, self._columns

    def _cell_tokens(self) -> tuple[tuple[Token, ...], ...]:
        return self.tokens

    def _further_numbers(self) -> dict[str, AnyArray]:
        tokens = np.array([token.readable for row in self.tokens for token in row], object)
        return {"rank": self.ranks, "id": self.ids, "token": tokens}

    def _grids(self) -> list[Grid]:
        return [replace(grid, fixed_scale=PROBABILITIES) for grid in super()._grids()]

    def _cell(self, row: int, column: int) -> str:
        token = label(self.tokens[row][column].readable)
        return f"{token} {self.probabilities[row, column]:.2f}"

    def pieces(self) -> Iterator[str | Table]:
        yield from super().pieces()
        edited = [name for name in ("final", "logits") if self._trace.is_edited(name)]
        if edited:
            yield Paragraph(
                "The edit of {steps} comes after the residual stream, so the last row isn't the "
                "edited model's prediction.",
                steps=", ".join(edited),
            )

    def _tables(self) -> Iterator[str | Table]:
        labels = self._columns.labels
        columns = elide(len(labels), COLUMNS_SHOWN)
        lines = [["", *(ELLIPSIS if j is None else labels[j] for j in columns)]]
        for i, point in enumerate(self.stops):
            lines.append([point, *(ELLIPSIS if j is None else self._cell(i, j) for j in columns)])
        yield Table(lines)


class OneToken(Lens):
    """The rank and probability of one token at every point and position, (S, T)."""

    meaning: ClassVar[str] = (
        "Each number is the token's probability decoded from a point of the residual stream: "
        "softmax(LayerNorm(stream) W_U)."
    )

    def _cell_tokens(self) -> tuple[tuple[Token, ...], ...]:
        return ()  # the title names the token

    def _cell(self, row: int, column: int) -> str:
        return f"{self.probabilities[row, column]:.2f} #{self.ranks[row, column]}"


def lens(trace: Trace, at: int | str | slice | None = None) -> LogitLens:
    """The logit lens: what the residual stream predicts after each attention and MLP.

    probabilities = softmax(LayerNorm(stream) W_U), with the last LayerNorm

    Early layers may represent tokens differently from the last layer, so a token that doesn't
    appear there may still be represented. A tuned lens learns this difference, see
    examples/later/tuned_lens.py.

    Parameters
    ----------
    at : the positions to compute: an index, a token's text or a slice of indices; None for all

    Returns
    -------
    LogitLens
        `print` shows the most probable tokens; `.of(token)` has one token's ranks and
        probabilities, `.top(k, at)` the k most probable tokens at one position. The numbers are
        computed when they are read.
    """
    check_kind(trace, Trace, "trace")
    return LogitLens(trace, at)


class LogitLens(Lens):
    """The logit lens of one text, see `lens`.

    The table shows the most probable token at every stop and at the positions that `lens` was
    given. `of` shows one token, `top` the most probable tokens at one position.
    """

    def __init__(self, trace: Trace, position: int | str | slice | None = None) -> None:
        title = Message("Logit lens{note}: the most probable token", note=trace._note)
        axis, T = positions_of(trace), len(trace.tokens)
        rows = slice(None) if position is None else position
        if not isinstance(rows, slice):
            row = token_index(trace, "position", rows, T)
            rows = slice(row, row + 1)
        self._rows = np.array(sliced(tuple(range(T)), rows), np.int64)  # its errors name the slice
        if not self._rows.size:
            raise InvalidValueError(f"{rows} selects none of the {T} positions")
        columns = replace(axis, positions=axis.positions[rows], tokens=axis.tokens[rows])
        super().__init__(title, trace, columns)

    @cached_property
    def _numbers(self) -> Numbers:
        ids, probabilities = self._most_probable(1, self._rows)
        ranks = np.ones(ids.shape[:2], np.int64)
        return ids[..., 0], ranks, probabilities[..., 0]

    def logits(self, stop: str) -> Array:
        """The logits decoded from one of the `stops`, (n, vocab).

        At the last stop, these are the model's logits, unless `final` or `logits` is edited.
        """
        check_choice(stop, self.stops, "stop")
        return decode_stream(self._trace, at(self._trace, stop)[self._rows])

    def of(self, token: TokenLike) -> OneToken:
        """One token's rank and probability at every point and position."""
        target = self._trace.vocabulary.lookup(token)

        def measure(logits: Array) -> tuple[AnyArray, AnyArray]:
            return ranks_and_probabilities(np.full((len(logits), 1), target.id), logits)

        ranks, probabilities = self._measure_points(measure, self._rows)
        numbers = np.full(ranks.shape, target.id), ranks, probabilities
        title = Message(
            "Logit lens{note}: probability and rank of {token}",
            note=self._trace._note,
            token=target.readable,
        )
        return OneToken(title, self._trace, self._columns, numbers)

    def top(self, k: int = 5, at: int | str = -1) -> Lens:
        """The k most probable tokens at every point, at one position."""
        k = as_count(k, "k", least=1, most=self._trace.config.vocab_size)
        row = token_index(self._trace, "position", at, len(self._trace.tokens))
        ids, probabilities = self._most_probable(k, np.array([row]))
        ranks = np.broadcast_to(np.arange(1, k + 1), ids[:, 0].shape).copy()
        title = Message(
            "Logit lens{note}: the most probable tokens at position {position}",
            note=self._trace._note,
            position=row,
        )
        columns = named_axis("rank", tuple(f"#{rank}" for rank in range(1, k + 1)))
        return Lens(title, self._trace, columns, (ids[:, 0], ranks, probabilities[:, 0]))

    def _most_probable(self, k: int, rows: Ids) -> tuple[Ids, Array]:
        """Ids and probabilities of the k most probable tokens at all S points, (S, n, k)."""

        def measure(logits: Array) -> tuple[AnyArray, AnyArray]:
            if k == 1:  # argmax is faster than argsort, and also breaks ties by the lowest id
                ids = logits.argmax(axis=-1)[:, np.newaxis]
            else:
                ids = np.argsort(-logits, axis=-1, kind="stable")[:, :k]
            return ids, probabilities_of(ids, logits)

        return self._measure_points(measure, rows)

    def _measure_points(
        self, measure: Callable[[Array], tuple[AnyArray, AnyArray]], rows: Ids
    ) -> tuple[AnyArray, AnyArray]:
        """Apply `measure`, which returns two arrays, to the logits of all S points, (S, n, ...).

        `rows` are the n positions. The rows of all points are computed in batches, since each
        matrix product reads all of W_U.
        """
        streams = np.stack([at(self._trace, point)[rows] for point in points_of(self._trace)])
        S, n, D = streams.shape
        stream = streams.reshape(S * n, D)
        batches = [
            measure(decode_stream(self._trace, stream[start : start + ROWS]))
            for start in range(0, len(stream), ROWS)
        ]
        first, second = (np.concatenate(arrays) for arrays in zip(*batches, strict=True))
        return first.reshape(S, n, *first.shape[1:]), second.reshape(S, n, *second.shape[1:])


def decode_stream(trace: Trace, stream: Array) -> Array:
    """The logits of rows of the residual stream, (..., D) -> (..., vocab)."""
    final = equations.layer_norm(stream, trace.gain, trace.bias, trace.epsilon)
    return equations.logits(final, trace.W_U)


def points_of(trace: Trace) -> tuple[str, ...]:
    """The paths of the points that the lens decodes."""
    layers = range(trace.config.n_layer)
    return ("embedding", *(f"blocks.{n}.{name}" for n in layers for name in ("mid", "output")))


def ranks_and_probabilities(ids: Ids, logits: Array) -> tuple[AnyArray, Array]:
    """The rank and probability of one id (n, 1) in each row of logits; overwrites the logits."""
    ranks = 1 + np.count_nonzero(logits > np.take_along_axis(logits, ids, -1), axis=-1)
    return ranks, probabilities_of(ids, logits)[:, 0]


def probabilities_of(ids: Ids, logits: Array) -> Array:
    """softmax(logits) at the ids (n, k) of each row; overwrites the logits."""
    selected, largest = np.take_along_axis(logits, ids, -1), logits.max(axis=-1, keepdims=True)
    logits -= largest
    return np.exp(selected - largest) / np.exp(logits, out=logits).sum(axis=-1, keepdims=True)
