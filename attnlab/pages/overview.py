"""The packs about the whole model, beyond attention.

"stream"    the norms of each token's rows in the residual stream, and of the rows that MLPs add
"story"     how ablating single heads changes the most probable next tokens
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from attnlab.analysis.ablation import next_logits_without
from attnlab.equations import AnyArray, Array, softmax
from attnlab.model.trace import Trace, largest_ids
from attnlab.pages.prediction import logits_after

COMPARED = 5  # the number of most probable next tokens whose probabilities are compared

# The budget of multiplications for ablating heads, and the smallest number of ablated heads. The
# budget covers all heads of a small model, and GPT-2's 144 heads in texts of up to 20 tokens, or 13
# in a tab, which has less time. Otherwise the heads with the largest attribution are ablated.
MAX_ABLATION_WORK = 250_000_000_000
MAX_ABLATION_WORK_IN_TAB = 160_000_000_000
MIN_ABLATED_HEADS = 2

# A head looks at the previous token everywhere if its mean weight on the previous token, over the
# last PREVIOUS_ROWS rows, is larger than PREVIOUS.
PREVIOUS = 0.5
PREVIOUS_ROWS = 64


def stream(trace: Trace) -> Iterator[AnyArray]:
    """The pack "stream": norms (1 + 3 L, T).

    The first row is for the embedding, and three for each block: mid, what its MLP adds, output.
    """
    fork = trace._fork()
    yield np.linalg.norm(fork.embedding, axis=-1)
    for block in fork.blocks:
        for rows in (block.mid, block.output - block.mid, block.output):
            yield np.linalg.norm(rows, axis=-1)


def story(trace: Trace) -> Iterator[AnyArray]:
    """The pack "story", about the prediction after the last token.

    It begins with the number of compared next tokens, their ids, the most probable first, and their
    probabilities. Then, for each head that is tried, come its layer and number, the probabilities
    of the same tokens with the head silenced, the ids of the tokens that are then most probable,
    and these tokens' probabilities without and with the head.
    """
    trace = trace._fork()
    probabilities = _probabilities(trace)
    ids = largest_ids(probabilities, COMPARED)
    yield from (np.array([ids.size]), ids, probabilities[ids])
    for head, without in _ablations(trace, probabilities):
        best = largest_ids(without, COMPARED)
        yield from (np.array(head), without[ids], best, without[best], probabilities[best])


def ids_of_story(story: bytes) -> list[int]:
    """The ids of the tokens that are the most probable without a head, from a pack "story"."""
    count, *numbers = np.frombuffer(story, "<f4").astype(int)
    # A head has its layer and number, then four groups of `count` numbers. The second has ids.
    heads = np.reshape(numbers[2 * count :], (-1, 2 + 4 * count))
    return np.unique(heads[:, 2 + count : 2 + 2 * count]).tolist()


def story_heads(trace: Trace) -> list[tuple[int, int]]:
    """The heads that the pack "story" ablates."""
    fork = trace._fork()
    return _candidates(fork, _probabilities(fork))


def head_to_describe(trace: Trace) -> tuple[int, int]:
    """The layer and head that the page describes first.

    The head has the largest product of two numbers: its effect on the most probable next token, and
    the last token's largest weight, without the weights on the first token and on itself. The
    product is halved for a head that looks at the previous token everywhere, which says little
    about this text. In a text of one or two tokens, all heads have the weight 1.
    """
    trace = trace._fork()
    probabilities = _probabilities(trace)
    id = probabilities.argmax()
    worth = {
        head: abs(float(ablated[id] - probabilities[id])) * _largest_weight(trace, *head)
        for head, ablated in _ablations(trace, probabilities)
    }
    return max(worth, key=lambda head: worth[head])


def _largest_weight(trace: Trace, layer: int, head: int) -> float:
    """The last token's largest weight on another token, halved for a previous-token head."""
    weights = trace.head(layer, head).weights
    T, Tk = weights.shape
    others = weights[-1, 1 : Tk - 1]
    largest = float(others.max(initial=0.0)) if Tk > 2 else 1.0
    # The last rows, without position 0, which has no previous token.
    rows = np.arange(max(1 - trace.cached, T - PREVIOUS_ROWS), T)
    before = weights[rows, trace.cached + rows - 1]
    return largest / 2 if before.size and before.mean() > PREVIOUS else largest


def _ablations(trace: Trace, probabilities: AnyArray) -> Iterator[tuple[tuple[int, int], AnyArray]]:
    """Yield the layer and number of each ablated head, and the probabilities without the head."""
    heads = _candidates(trace, probabilities)
    for head, logits in zip(heads, next_logits_without(trace, heads), strict=True):
        yield head, softmax(logits.astype(np.float64))


def _probabilities(trace: Trace) -> AnyArray:
    """The probabilities of the next token, float64."""
    logits: AnyArray = logits_after(trace, len(trace.tokens) - 1)
    return softmax(logits)


def _candidates(trace: Trace, probabilities: AnyArray) -> list[tuple[int, int]]:
    """The heads to ablate, in order of layer and head.

    They have the largest outputs at the last token along the gradient of the most probable token's
    log probability, with the final LayerNorm's scale held constant.
    """
    W_U = trace.W_U
    # A product with float64 would copy all of W_U.
    w = W_U[:, probabilities.argmax()] - W_U @ probabilities.astype(W_U.dtype)
    u = trace.gain * w
    u = u - u.mean()
    attributions: list[Array] = []
    for block in trace.blocks:
        attributions += [head.context[-1] @ (head.W_O @ u) for head in block.attention.heads]
    config = trace.config
    # A block has 12 D² parameters, 4 in attention and 8 in the MLP, each multiplied for each token.
    work_per_head = 12 * len(trace.tokens) * config.n_layer * config.n_embd**2
    count = max(MIN_ABLATED_HEADS, MAX_ABLATION_WORK // work_per_head)
    largest = np.argsort(-np.abs(attributions), kind="stable")[:count]
    return [divmod(int(n), config.n_head) for n in np.sort(largest)]
