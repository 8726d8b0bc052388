"""Attention rollout through layers, and norms of the weighted values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from attnlab.analysis.base import Analysis, Trace, heads_axis, positions_of
from attnlab.equations import AnyArray, Array
from attnlab.errors import InvalidValueError
from attnlab.steps import read_only
from attnlab.steps.labels import Axis, axis_of
from attnlab.support import door
from attnlab.support.messages import Message, counted, say

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
            raise InvalidValueError("rollout needs a whole text's trace; got a step of generation")
        self.title = Message(
            "Attention rollout through {layers}{note}",
            layers=counted(trace.config.n_layer, "layer"),
            note=trace._note,
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
    """Norms of the vectors that heads sum, as `Trace.value_weighted` returns it.

    The table of all heads shows the last query only.

    Attributes
    ----------
    lengths : (Tq, Tk), the norms ‖weights[q, k] V[k] W_O‖, 0 where masked; (L, H, Tq, Tk) for all
        heads
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

    def __init__(self, trace: Trace, layer: int | None, head: int | None) -> None:
        if layer is None and head is None:
            lengths: Any = [
                [weighted_value_norms(head) for head in block.attention.heads]
                for block in trace.fork().blocks
            ]
            self._heading = Message("Norms of each head's weighted values{note}", note=trace._note)
            self.title = Message("{title}: for the last token", title=self._heading)
        else:
            result = trace.head(layer, head)
            lengths = weighted_value_norms(result.fork())
            self.title = Message("{title}: norms of its weighted values", title=result.title)
        self.lengths: Array = read_only(np.array(lengths))
        queries, keys = self.lengths.shape[-2:]
        self._axes = axis_of(trace, "Tq", queries), axis_of(trace, "Tk", keys)

    def _grid(self) -> tuple[AnyArray, Axis, Axis]:
        if self.lengths.ndim == 2:
            return self.lengths, *self._axes
        L, H, _, Tk = self.lengths.shape
        return self.lengths[:, :, -1].reshape(L * H, Tk), heads_axis("head", L, H), self._axes[1]

    def plot(
        self, ax: Axes | None = None, tokens: slice | None = None, *, language: str | None = None
    ) -> Picture:
        """Plot the norms as a heatmap; of all heads, as a heatmap each. See `Rollout.plot`."""
        if self.lengths.ndim == 2:
            return super().plot(ax, tokens, language=language)
        tiles = self.lengths[door.tile_of(self.lengths, *self._axes, tokens)]
        with door.drawing_in(language):
            return door.plot_tiles(tiles, *self._axes, say(self._heading), ax, tokens)


def weighted_value_norms(head: Trace) -> Array:
    """‖weights[q, k] V[k] W_O‖, (Tq, Tk)."""
    return np.abs(head.weights) * norms(head.V @ head.W_O)


def norms(x: Array) -> Array:
    """‖x‖ of each row, (..., D) -> (...)."""
    squares: Array = np.einsum("...d,...d->...", x, x)
    return np.sqrt(squares, out=squares)
