"""Scores as sums over pairs of parts, see `attnlab.analysis.why`, for the page.

A page with a model asks for one sum: "why.1.2.7.4.3" is that of layer 1, head 2, query 7, key 4
minus key 3 ("mean": minus the mean of the query's keys), as the largest pairs: for each, the index
of the query's part, that of the key's, and the number. It has no numbers if an edit replaced a sum.

A file has some pairs for the heads whose ablation it shows, in packs such as "why.1.2.5", with
the head's queries from 5. For each: how many pairs; the index of each one's part of the
query, then of the key; each pair at each visible key, minus its mean over them; and at each, the
largest absolute value of the other pairs, which says which pairs of a difference are its largest.
Then the places of three keys, the first one and those with the largest weights, and the leading
pairs, the largest of the total's sign, which a sentence names: for each key against the mean, and
each of the three against the next: the parts of the query; those of the key; the numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from attnlab.analysis.attribution import check_sum
from attnlab.analysis.why import largest_of, stacked, terms_at_all_positions
from attnlab.equations import AnyArray, raw_scores, scores
from attnlab.errors import InvalidValueError
from attnlab.model.trace import Trace
from attnlab.views.page.overview import story_heads

# Pairs with numbers of their own.
SHOWN = 8

# Bytes of pairs in a file. It includes at least the last token's.
BUDGET = 38_000


def description(trace: Trace) -> dict[str, Any]:
    """What a file has pairs for: the heads, and the first of their queries."""
    heads = story_heads(trace)
    T, Tk = trace.head(0, 0).scores_shape
    floats = len(heads) * (10 + 2 * SHOWN + (SHOWN + 4) * Tk)  # at most, for each query
    return {"heads": heads, "first": T - min(T, max(1, BUDGET // (4 * floats)))}


def packs_of_pairs(trace: Trace) -> list[str]:
    """The names of a file's packs of pairs."""
    described = description(trace)
    return [f"why.{layer}.{head}.{described['first']}" for layer, head in described["heads"]]


def sum_of(trace: Trace, layer: int, head: int, query: int, key: int, other: str) -> list[AnyArray]:
    """The pack of one sum."""
    try:
        why = trace.head(layer, head).why(query, key, None if other == "mean" else int(other))
    except InvalidValueError:
        if trace.edited_steps:
            return []
        raise
    return [np.array([m, k, why.pairs[m, k]]) for m, k in largest_of(why.pairs, SHOWN)]


def rows(trace: Trace, layer: int, head: int, first: int) -> Iterator[AnyArray]:
    """The pack of a head in a file."""
    one = trace.fork().head(layer, head)
    Q, K = map(stacked, terms_at_all_positions(one).values())  # (m, Tq, Dh), (n, Tk, Dh)
    mask = np.broadcast_to(one.mask, one.scores_shape)
    for query in range(first, len(mask)):
        visible = np.flatnonzero(mask[query])
        pairs = scores(raw_scores(Q[:, np.newaxis, query : query + 1], K), one.scale)
        pairs = pairs[:, :, 0, visible].reshape(-1, len(visible))  # (m n, visible keys)
        try:
            check_sum(pairs, one.scores[query, visible], "the score", one)
        except InvalidValueError:  # an edit replaced a sum
            yield np.zeros(1)
            continue
        centred = pairs - pairs.mean(axis=-1, keepdims=True)
        # Above all at the keys that the head looks at.
        sizes = (np.abs(centred) * np.sqrt(np.abs(one.weights[query, visible]))).max(axis=-1)
        order = np.argsort(-sizes, kind="stable")
        chosen, others = order[:SHOWN], order[SHOWN:]
        yield from (np.array([len(chosen)]), *divmod(chosen, len(K)))
        yield from map(rounded, (centred[chosen], np.abs(centred[others]).max(axis=0, initial=0)))
        # Look compares the first key with the strongest other one, or that with the next.
        strengths = np.where(visible == 0, np.inf, one.weights[query, visible])
        ranked = np.argsort(-strengths, kind="stable")[np.minimum(range(3), len(visible) - 1)]
        compared = np.hstack([centred, centred[:, ranked[:2]] - centred[:, ranked[1:]]])
        leading = (compared * np.where(compared.sum(axis=0) < 0, -1, 1)).argmax(axis=0)
        yield from (ranked, *divmod(leading, len(K)))
        yield rounded(compared[leading, range(len(leading))])


def rounded(x: AnyArray) -> AnyArray:
    """Numbers to 16 bits of the fraction: the last byte is 0, which takes no room in a file."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + 0x80) & ~np.uint32(0xFF)).view(np.float32)
