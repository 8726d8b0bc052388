"""Next-token predictions for the page.

A page can't include the logits of a whole vocabulary at each position. It includes the largest
logits and, for each value of the page's sliders, sums over the whole vocabulary, so that
probabilities are exact.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from attnlab.equations import Array
from attnlab.forward.forward_pass import KeyValueCache
from attnlab.model.trace import Trace, largest_ids
from attnlab.support.messages import message_as_data
from attnlab.support.tables import printable
from attnlab.text.tokens import Token
from attnlab.views.purposes import purpose

# How many positions, the last ones of a text, and how many of the most probable tokens are saved.
POSITIONS = 128
TOKENS = 50

# The sliders' values. Temperature 0 and no top-p aren't listed, since they need no sums.
TEMPERATURES = tuple(n / 10 for n in range(1, 21))
TOP_PS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
SLIDERS = {"temperatures": TEMPERATURES, "topPs": TOP_PS}

# The number of next tokens that are completed to words, and of further tokens for each word.
COMPLETED = 4
FURTHER_TOKENS = 3
ENDS_IN_LETTER = re.compile("[a-zA-Z]$")
CONTINUES = re.compile("[a-z’']")

BLOCK = 128  # probabilities that are summed at once


def predicted_positions(trace: Trace) -> range:
    """The positions with predictions: the last POSITIONS of the text."""
    T = len(trace.tokens)
    return range(max(0, T - POSITIONS), T)


def prediction(trace: Trace, position: int) -> Array:
    """The numbers of one position, float64 (n,), as `predictions.js` reads them.

    The array has these parts, in this order:
    - the ids of the most probable tokens; of equal logits, the lower id comes first
    - the logits of these tokens, rounded to float32, then the remainders
    - for each temperature, the sum of exp((logit - largest) / temperature) over all other tokens
    - how many other tokens have the same logit as the last of the ids
    - how many logits exceed the logit of the text's next token; -1 at the end of the text
    - the logit of the text's next token, rounded to float32, then the remainder
    - for each temperature and top-p, how many tokens are left, and the sum of their probabilities
    """
    tokens, logits = trace.tokens, logits_after(trace, position)
    ids = largest_ids(logits, TOKENS)
    others, nuclei = _others_and_nuclei(logits, ids.size)
    last = logits[ids[-1]]
    ties = int(np.count_nonzero(logits == last) - np.count_nonzero(logits[ids] == last))
    next_ids = tokens.ids[position + 1 : position + 2]  # none at the end of the text
    larger = int(np.count_nonzero(logits > logits[next_ids])) if next_ids.size else -1
    next_logit = logits[next_ids] if next_ids.size else np.zeros(1)
    parts: list[ArrayLike] = [ids, *_rounded_and_rest(logits[ids]), others, [ties, larger]]
    parts += [*_rounded_and_rest(next_logit), nuclei.ravel()]
    return np.concatenate([np.asarray(part, np.float64) for part in parts])


def description(trace: Trace, has_model: bool = False) -> dict[str, Any]:
    """The description of predictions: the positions, and the tokens' names.

    A page with a model computes predictions from all logits, and knows all names.
    """
    positions = range(0) if has_model else predicted_positions(trace)
    largest = [largest_ids(logits_after(trace, position), TOKENS) for position in positions]
    return {
        "first": min(positions, default=0),
        "vocab": trace.config.vocab_size,
        "rows": trace.config.vocab_size - len(trace.vocabulary.ids),  # of W_E, without a token
        "n": min(TOKENS, trace.config.vocab_size),
        "heading": message_as_data(trace._heading_of("logits")),
        "purposes": {step: purpose(step) for step in ("logits", "probabilities")},
        "tokens": names(trace.vocabulary, np.unique(largest).astype(int).tolist()),
    }


def completions(trace: Trace) -> dict[int, str]:
    """The rest of a word that a next token starts, by the token's id.

    Only the most probable next tokens are completed, each by the most probable tokens after it. An
    edited trace has no completions, since edits fit only the trace's own text.
    """
    parameters, vocabulary = trace.parameters, trace.vocabulary
    end = trace.cached + len(trace.tokens)
    if trace.edited_steps or end + FURTHER_TOKENS > parameters.config.n_positions:
        return {}
    cache = KeyValueCache(parameters.config, parameters.dtype)
    rows = cache.by_path()
    for layer, block in enumerate(trace.blocks):
        for name in ("K", "V"):
            rows[f"blocks.{layer}.attention.{name}_cache"].extend(getattr(block.attention, name))

    def rest_of(id: int) -> str:
        rest = ""
        for length in range(end, end + FURTHER_TOKENS):
            cache.length = length  # the number of cached tokens, without pieces of other words
            logits = Trace(vocabulary.tokens([id]), vocabulary, parameters, cache).next_logits
            id = int(vocabulary.ids[logits[vocabulary.ids].argmax()])
            text = vocabulary.token(id).text
            if not CONTINUES.match(text):
                break
            rest += text
        return rest

    best = largest_ids(logits_after(trace, end - 1 - trace.cached), COMPLETED).tolist()
    letters = [id for id in best if ENDS_IN_LETTER.search(vocabulary.token(id).symbol)]
    return {id: rest for id in letters if (rest := rest_of(id))}


def names(vocabulary: Any, ids: Iterable[int]) -> list[list[Any]]:
    """The names of tokens as the page reads them; see `_name`."""
    return [_name(vocabulary.token(id)) for id in ids]


def logits_after(trace: Trace, position: int) -> Array:
    """The logits after a position, float64. The last position has the logits of `next_tokens`."""
    is_last = position == len(trace.tokens) - 1
    row: Array = trace.next_logits if is_last else trace.logits[position]
    return row.astype(np.float64)


def _rounded_and_rest(numbers: Array) -> tuple[Array, Array]:
    """Numbers rounded to float32, and the remainders."""
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = numbers.astype(np.float32).astype(np.float64)
        return rounded, numbers - rounded


def _others_and_nuclei(logits: Array, n: int) -> tuple[Array, Array]:
    """For each temperature, the sum over all but the n largest; for each top-p, what is left.

    Of the tokens that top-p leaves, these are the number and the sum of probabilities.
    """
    temperatures = np.array(TEMPERATURES)[:, np.newaxis]
    padding = -logits.size % BLOCK  # the numbers that fill the first block, with probability 0
    ascending = np.full(padding + logits.size, -np.inf)
    ascending[padding:] = np.sort(logits)
    exponentials = np.exp((ascending - ascending[-1]) / temperatures)
    # As in attnlab/model/sampling.py, top-p removes the least probable tokens while their sum is at
    # most the limit, (1 - top-p) of the total, which is too small to remove the largest.
    blocks = exponentials.reshape(len(temperatures), -1, BLOCK)
    sums = blocks.sum(axis=2)
    ends = sums.cumsum(axis=1)  # the sum up to the end of each block
    limits = (ends[:, -1:] * (1 - np.array(TOP_PS)))[..., np.newaxis]  # (temperatures, topPs, 1)
    removed = (ends[:, np.newaxis] <= limits).sum(axis=2)  # the number of blocks removed as a whole
    # The limit is reached within the first block that isn't removed as a whole.
    rows = np.arange(len(temperatures))[:, np.newaxis]
    before = (ends - sums)[rows, removed][..., np.newaxis]  # the sum of the removed blocks
    below = blocks[rows, removed].cumsum(axis=2) + before  # the sum up to each token
    is_removed = below <= limits
    count = ascending.size - BLOCK * removed - is_removed.sum(axis=2)
    fraction = 1 - np.where(is_removed, below, before).max(axis=2) / ends[:, -1:]
    return exponentials[:, :-n].sum(axis=1), np.stack([count, fraction], axis=-1)


def _name(token: Token) -> list[Any]:
    """A token's id and symbol; also its text and bytes if they don't follow from the symbol."""
    name = [token.id, printable(token.symbol)]
    plain = token.symbol.replace("Ġ", " ")
    if plain.isascii() and plain.isprintable() and plain == token.text:
        return name
    return [*name, printable(token.text), token.bytes.hex(" ")]
