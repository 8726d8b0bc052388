"""What may follow each position of a text, as the page has it.

The logits of a whole vocabulary, 50,257 in GPT-2, are too many to carry for each position. Carried
are the largest of them, and what all of them together come to at each stop of the page's sliders,
so that each probability that the page shows is that of the whole vocabulary.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from attnlab.equations import Array, Ids
from attnlab.errors import InvalidValueError
from attnlab.support.tables import printable
from attnlab.views.language import say
from attnlab.views.purposes import purpose
from attnlab.views.shown import Result, Token

# Of how many positions, the last ones of a text, and of how many tokens at each.
POSITIONS = 128
TOKENS = 50

# The sliders' stops; beside them there are temperature 0, which needs no sum, and no top-p.
TEMPERATURES = tuple(n / 10 for n in range(1, 21))
TOP_PS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)

STOPS = {"temperatures": TEMPERATURES, "topPs": TOP_PS}

# How many numbers a position takes, those of `prediction`, and letters the name of a token.
NUMBERS = 3 * TOKENS + len(TEMPERATURES) + 4 + 2 * len(TEMPERATURES) * len(TOP_PS)
LETTERS = 23


def positions_of(trace: Result) -> range:
    """The positions of which a page tells what may follow: the last ones.

    Of a trace from a file, which lacks the parameters for the others' logits, the last alone.
    """
    T = len(trace.tokens)
    try:
        return range(max(0, T - POSITIONS), len(trace.logits))
    except InvalidValueError:
        return range(T - 1, T)


def prediction(trace: Result, position: int) -> Array:
    """The numbers of one position, float64 (n,), as `sampling.js` reads them.

    They are, of the most probable tokens, of equal ones the lowest id first: their ids, their
    logits, and what float32 leaves of these; at each temperature the sum of
    exp((logit - the largest) / temperature) over all other tokens; how many of these have the logit
    of the last; of the token that follows in the text how many have a larger logit (-1 at the end
    of the text), its logit, and what float32 leaves of it; for each temperature and top-p how many
    tokens the cut leaves, and what their probabilities add up to.
    """
    tokens, logits = trace.tokens, logits_after(trace, position)
    ids = _largest(logits)
    others, nuclei = _others_and_nuclei(logits, ids.size)
    last = logits[ids[-1]]
    ties = int(np.count_nonzero(logits == last) - np.count_nonzero(logits[ids] == last))
    follows = tokens.ids[position + 1 : position + 2]
    larger = int(np.count_nonzero(logits > logits[follows])) if follows.size else -1
    following = logits[follows] if follows.size else np.zeros(1)
    parts: list[ArrayLike] = [ids, *_split(logits[ids]), others, [ties, larger]]
    parts += [*_split(following), nuclei.ravel()]
    return np.concatenate([np.asarray(part, np.float64) for part in parts])


def described(trace: Result, language: str) -> dict[str, Any]:
    """What the page knows about all positions: which there are, and what the tokens are called."""
    positions = positions_of(trace)
    ids = np.unique([_largest(logits_after(trace, position)) for position in positions])
    return {
        "first": positions[0],
        "vocab": trace.config.vocab_size,
        "rows": trace.config.vocab_size - len(trace.vocabulary.ids),  # which belong to no token
        "n": min(TOKENS, trace.config.vocab_size),
        "heading": say(trace.heading_of("logits"), language),
        "purposes": {step: say(purpose(step), language) for step in ("logits", "probabilities")},
        "tokens": [_name(trace.vocabulary.token(id)) for id in ids.tolist()],
    }


def logits_after(trace: Result, position: int) -> Array:
    """One row, float64; the last as `next_tokens` has it."""
    is_last = position == len(trace.tokens) - 1
    row: Array = trace.next_logits if is_last else trace.logits[position]
    return row.astype(np.float64)


def _largest(logits: Array) -> Ids:
    """The ids of the largest, the lowest id first among equals."""
    n = min(TOKENS, logits.size)
    candidates = np.flatnonzero(logits >= np.partition(logits, -n)[-n])
    best: Ids = candidates[np.argsort(-logits[candidates], kind="stable")][:n]
    return best


def _split(numbers: Array) -> tuple[Array, Array]:
    """What float32 holds of numbers, and the rest, 0 of those that are float32."""
    with np.errstate(over="ignore", invalid="ignore"):
        held = numbers.astype(np.float32).astype(np.float64)
        return held, numbers - held


def _others_and_nuclei(logits: Array, n: int) -> tuple[Array, Array]:
    """At each temperature the sum but for the n largest; what top-p leaves; see `prediction`."""
    temperatures = np.array(TEMPERATURES)[:, np.newaxis]
    ascending = np.sort(logits)
    exponentials = np.exp((ascending - ascending[-1]) / temperatures)
    cumulative = np.cumsum(exponentials / exponentials.sum(axis=1, keepdims=True), axis=1)
    removable = 1 - np.array(TOP_PS)
    nuclei = np.empty((len(TEMPERATURES), len(TOP_PS), 2))
    for nucleus, below in zip(nuclei, cumulative, strict=True):
        # As in attnlab/model/sampling.py; the largest always stays.
        removed = np.searchsorted(below[:-1], removable, side="right")
        nucleus[:, 0] = logits.size - removed
        nucleus[:, 1] = 1 - np.concatenate([[0], below])[removed]
    return exponentials[:, :-n].sum(axis=1), nuclei


def _name(token: Token) -> list[Any]:
    """A token's id and symbol, and its text and bytes where they do not follow from the symbol."""
    name = [token.id, printable(token.symbol)]
    plain = token.symbol.replace("Ġ", " ")
    if plain.isascii() and plain.isprintable() and plain == token.text:
        return name
    return [*name, printable(token.text), token.bytes.hex(" ")]
