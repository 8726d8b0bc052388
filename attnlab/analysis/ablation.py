"""What the model predicts without one of its heads, and what heads write on average."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np

from attnlab import equations
from attnlab.equations import Array
from attnlab.errors import InvalidTypeError, InvalidValueError, quoted
from attnlab.forward.parameters import Parameters, context_of
from attnlab.forward.slices import final_row, with_steps
from attnlab.model.gpt2 import GPT2
from attnlab.model.trace import Trace
from attnlab.model.traces import Traces
from attnlab.steps import read_only
from attnlab.support.checks import check_kind


def averages(model: GPT2, texts: Iterable[Any]) -> dict[str, Array]:
    """Each head's mean context over all positions of texts: what it writes on average.

    average = Σ context[t] / number of positions, summed in float64

    `trace.edited({path: averages[path]})` ablates a head: its context (T, Dh) is the average (Dh,)
    at each position. An edit to 0 would also remove what the head writes in any text, on which
    later layers rely. If you set `model.averages = averages`, the model's pages use the averages to
    silence heads, and `model.save` stores them.

    Parameters
    ----------
    texts : texts, Tokens or ids, as `GPT2.trace` takes them, similar to those that the model was
        trained on; a few thousand tokens suffice. Each token counts once in the mean.

    Returns
    -------
    dict
        the averages, float32 (Dh,), by path, such as `blocks.1.attention.heads.2.context`

    Examples
    --------
    >>> averages = attnlab.averages(model, texts)
    >>> path = "blocks.1.attention.heads.2.context"
    >>> trace.edited({path: averages[path]}).next_tokens()

    Source: Wang et al., “Interpretability in the Wild” (2022), section 2.2, mean ablation.
    """
    check_kind(model, GPT2, "model")
    if isinstance(texts, str) or not isinstance(texts, Iterable):
        raise InvalidTypeError(f"texts must be a list of texts; got {quoted(texts)}")
    tokens = model._texts_to_trace(texts, special=False)
    if not tokens:
        raise InvalidValueError("averages need at least one text; got an empty list")
    sums: Any = 0.0
    for trace in Traces(tokens, model.tokenizer.vocabulary, model.parameters)._in_groups():
        contexts = (block.attention.context for block in trace.blocks)  # (H, T, Dh) each
        sums = sums + np.stack([context.sum(axis=-2, dtype=np.float64) for context in contexts])
    means = read_only((sums / sum(map(len, tokens))).astype(np.float32))  # (L, H, Dh)
    return {context_of(*head): means[head] for head in np.ndindex(means.shape[:2])}


def silenced(parameters: Parameters, layer: int, head: int) -> Array | float:
    """The context of a silenced head: its average if the model has averages, else 0."""
    return parameters.averages[context_of(layer, head)] if parameters.averages else 0.0


def next_logits_without(trace: Trace, heads: Sequence[tuple[int, int]]) -> Array:
    """The next token's logits with each head silenced at all positions, one at a time: (n, vocab).

    Steps before a layer are computed once. The runs without one head of the layer are computed as
    one batch, of which only the last row goes through the last block.

    Parameters
    ----------
    heads : n pairs, layer and head, in ascending order of the layers
    """
    if trace.edited_steps:  # an edit may be a function, which expects a single run
        edits = ({context_of(*head): silenced(trace.parameters, *head)} for head in heads)
        return np.stack([trace.edited(edit).next_logits for edit in edits])
    finals = []
    for layer, heads_of_layer in groupby(heads, key=itemgetter(0)):
        numbers = [head for _, head in heads_of_layer]
        context = trace.blocks[layer].attention.context  # (H, T, Dh)
        contexts = np.stack([context] * len(numbers))
        for n, head in enumerate(numbers):
            contexts[n, head] = silenced(trace.parameters, layer, head)
        path = f"blocks.{layer}.attention.context"
        finals.append(final_row(with_steps(trace._run, {path: contexts}, start=0)))
    return equations.logits(np.concatenate(finals), trace.W_U)
