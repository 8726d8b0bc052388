"""What the model predicts without one of its heads."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter

import numpy as np

from attnlab import equations
from attnlab.equations import Array
from attnlab.forward.slices import final_row, with_steps
from attnlab.model.trace import Trace


def next_logits_without(trace: Trace, heads: Sequence[tuple[int, int]]) -> Array:
    """The next token's logits without each head, whose context is 0 at all positions: (n, vocab).

    The run up to a layer is shared. The contexts without each of the layer's heads go through the
    rest of the model as one batch, of which only the last row is completed.

    Parameters
    ----------
    heads : n pairs, layer and head, in ascending order of the layers
    """
    if trace.edited_steps:  # the functions of edits expect one run
        paths = (f"blocks.{layer}.attention.heads.{head}.context" for layer, head in heads)
        return np.stack([trace.edited({path: 0}).next_logits for path in paths])
    finals = []
    for layer, heads_of_layer in groupby(heads, key=itemgetter(0)):
        numbers = [head for _, head in heads_of_layer]
        context = trace.blocks[layer].attention.context  # (H, T, Dh)
        contexts = np.stack([context] * len(numbers))
        contexts[np.arange(len(numbers)), numbers] = 0
        path = f"blocks.{layer}.attention.context"
        finals.append(final_row(with_steps(trace._run, {path: contexts}, 0)))
    return equations.logits(np.concatenate(finals), trace.W_U)
