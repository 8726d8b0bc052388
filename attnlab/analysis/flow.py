"""Where weights alone mislead: rollout through the layers, and the lengths of what is weighed."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from attnlab.analysis.base import Analysis, Trace, positions_of
from attnlab.equations import AnyArray, Array
from attnlab.errors import InvalidValueError
from attnlab.steps import read_only
from attnlab.views.shown import Axis, axis_of


class Rollout(Analysis):
    """How much of each token's stream comes from which token, as `Trace.rollout` returns it.

    Attributes
    ----------
    layers : (L, T, T), rows sum to 1; after each layer, the last one is shown
    """

    note: ClassVar[str] = (
        "It takes the mean of all heads, gives attention and what it is added to one half each, "
        "and\nleaves values and MLPs out: a share tells where something may come from, not what."
    )
    source: ClassVar[str] = "Abnar and Zuidema, “Quantifying Attention Flow in Transformers” (2020)"

    layers: Array

    def __init__(self, trace: Trace) -> None:
        if trace.tokens_before:
            raise InvalidValueError("rollout is of a whole text; given a step of generation")
        self.title = f"Attention rollout through {trace.config.n_layer} layers{trace.note}"
        self._tokens = positions_of(trace)
        so_far = np.eye(len(trace.tokens), dtype=trace.embedding.dtype)
        layers = []
        for block in trace.aside().blocks:
            weights = block.attention.weights.mean(axis=0)
            mixed = weights + np.eye(len(weights), dtype=weights.dtype)
            so_far = mixed / mixed.sum(axis=-1, keepdims=True) @ so_far
            layers.append(so_far)
        self.layers = read_only(np.stack(layers))

    def _grid(self) -> tuple[AnyArray, Axis, Axis]:
        return self.layers[-1], self._tokens, self._tokens


class ValueWeighted(Analysis):
    """How long the vectors are that a head adds up, as `Trace.value_weighted` returns it.

    Attributes
    ----------
    lengths : (Tq, Tk), ‖weights[q, k] V[k] W_O‖, 0 where the mask forbids
    """

    note: ClassVar[str] = (
        "Lengths alone: vectors of one row may cancel each other, and what a later part reads may\n"
        "lie in another direction."
    )
    source: ClassVar[str] = (
        "Kobayashi et al., “Attention is Not Only a Weight: Analyzing Transformers with Vector "
        "Norms” (2020)"
    )

    lengths: Array

    def __init__(self, trace: Trace, layer: int, head: int) -> None:
        one = trace.head(layer, head).aside()
        self.title = f"{one.title}: lengths of what it adds up"
        written = np.linalg.norm(one.V @ one.W_O, axis=-1)  # (Tk,)
        self.lengths = read_only(np.abs(one.weights) * written)
        self._axes = tuple(
            axis_of(one, name, count)
            for name, count in zip(("Tq", "Tk"), self.lengths.shape, strict=True)
        )

    def _grid(self) -> tuple[AnyArray, Axis, Axis]:
        rows, columns = self._axes
        return self.lengths, rows, columns
