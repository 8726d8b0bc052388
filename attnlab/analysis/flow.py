"""Attention rollout through layers, and norms of the weighted values."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from attnlab.analysis.base import Analysis, Trace, heads_axis, positions_of
from attnlab.equations import AnyArray, Array
from attnlab.errors import InvalidValueError
from attnlab.steps import read_only
from attnlab.steps.labels import Axis, axis_of
from attnlab.support import door
from attnlab.support.messages import Message

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from attnlab.support.door import Picture


class Rollout(Analysis):
    """Attention rollout, as `Trace.rollout` returns it.

    Attributes
    ----------
    layers : (L, T, T), the rollout after each layer, rows sum to 1; the table shows the last
    """

    meaning: ClassVar[str] = (
        "Each number is the fraction of a position's vector that comes from a token, if every "
        "layer mixes by (mean weights + I) / 2."
    )
    note: ClassVar[str] = (
        "Rollout averages heads, weights attention and the residual connection equally, and "
        "ignores values and MLPs: it shows where information may come from, not which information."
    )
    source: ClassVar[str] = "Abnar and Zuidema, “Quantifying Attention Flow in Transformers” (2020)"

    layers: Array

    def __init__(self, trace: Trace) -> None:
        if trace.tokens_before:
            raise InvalidValueError(
                "rollout needs a trace of a whole text; got a step of generation"
            )
        self.title = Message(
            "Attention rollout through {L} layers{note}", L=trace.config.n_layer, note=trace._note
        )
        self._tokens = positions_of(trace)
        rollout = np.eye(len(trace.tokens), dtype=trace.embedding.dtype)
        layers = []
        for block in trace.fork().blocks:  # a fork, so that the trace keeps no steps
            weights = block.attention.weights.mean(axis=0)
            mixed = weights + np.eye(len(weights), dtype=weights.dtype)
            rollout = mixed / mixed.sum(axis=-1, keepdims=True) @ rollout
            layers.append(rollout)
        self.layers = read_only(np.stack(layers))

    def _grid(self) -> tuple[AnyArray, Axis, Axis]:
        return self.layers[-1], self._tokens, self._tokens


class ValueWeighted(Analysis):
    """Norms of the vectors that a head sums, as `Trace.value_weighted` returns it.

    Attributes
    ----------
    lengths : (Tq, Tk), the norms ‖weights[q, k] V[k] W_O‖, 0 where masked
    """

    meaning: ClassVar[str] = (
        "Each number is the norm of the vector that a head adds for one key, "
        "‖weights[q, k] V[k] W_O‖."
    )
    note: ClassVar[str] = (
        "Norms alone: vectors of one row may cancel out, and later components may read other "
        "directions."
    )
    source: ClassVar[str] = (
        "Kobayashi et al., “Attention is Not Only a Weight: Analyzing Transformers with Vector "
        "Norms” (2020)"
    )

    lengths: Array

    def __init__(self, trace: Trace, layer: int, head: int) -> None:
        result = trace.head(layer, head)
        self.title = Message("{title}: norms of its weighted values", title=result.title)
        self.lengths = read_only(weighted_value_norms(result.fork()))
        self._queries, self._keys = axes_of(trace, self.lengths)

    def _grid(self) -> tuple[AnyArray, Axis, Axis]:
        return self.lengths, self._queries, self._keys


class ValueWeightedHeads(ValueWeighted):
    """`ValueWeighted` for all heads; the table shows the last query only.

    Attributes
    ----------
    lengths : (L, H, Tq, Tk), ‖weights[q, k] V[k] W_O‖, 0 where masked
    """

    def __init__(self, trace: Trace) -> None:
        blocks = trace.fork().blocks
        heads = [[weighted_value_norms(head) for head in block.attention.heads] for block in blocks]
        self.lengths = read_only(np.array(heads))
        self._queries, self._keys = axes_of(trace, self.lengths)
        self._plot_title = Message("Norms of each head's weighted values{note}", note=trace._note)
        self.title = Message("{title}: for the last token", title=self._plot_title)

    def _grid(self) -> tuple[AnyArray, Axis, Axis]:
        L, H, _, Tk = self.lengths.shape
        return self.lengths[:, :, -1].reshape(L * H, Tk), heads_axis("head", L, H), self._keys

    def plot(
        self, ax: Axes | None = None, tokens: slice | None = None, *, language: str | None = None
    ) -> Picture:
        from attnlab.support.messages import say

        axes = self._queries, self._keys
        tiles = self.lengths[door.tile_of(self.lengths, *axes, tokens)]
        with door.drawing_in(language):
            return door.plot_tiles(tiles, *axes, say(self._plot_title), ax, tokens)


def weighted_value_norms(head: Trace) -> Array:
    """‖weights[q, k] V[k] W_O‖, (Tq, Tk)."""
    norms_of_head: Array = np.abs(head.weights) * output_norms(head.V, head.W_O)
    return norms_of_head


def output_norms(values: Array, W_O: Array) -> Array:
    """‖value W_O‖ of each row, (..., Dh) -> (...)."""
    return norms(values @ W_O)


def norms(x: Array) -> Array:
    """‖x‖ of each row, (..., D) -> (...)."""
    squares: Array = np.einsum("...d,...d->...", x, x)
    return np.sqrt(squares, out=squares)


def axes_of(trace: Trace, lengths: Array) -> tuple[Axis, Axis]:
    """The axes of queries and keys."""
    queries, keys = lengths.shape[-2:]
    return axis_of(trace, "Tq", queries), axis_of(trace, "Tk", keys)
