"""Scores as sums over pairs of parts, see `attnlab.analysis.why`, for the page.

A page with a model computes them, see `pairs.js`. A file has some pairs for the heads whose
ablation it shows, in the pack "why". For each head and query from `first`: how many pairs, 0 if an
edit replaced a sum; the index of each one's part of the query, then of the key; each pair at each
key, minus its mean over the visible ones; and at each key, the largest absolute value of the other
pairs, which says which pairs of a difference are its largest. Then three keys, the first one and
those with the largest weights, and the pairs that a sentence names, the largest of the total's sign
and the largest of the other: for each key against the mean, and each of the three against the next:
the parts of the query; those of the key; the numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np

from attnlab.analysis.attribution import adds_up
from attnlab.analysis.why import stacked, terms_of
from attnlab.equations import AnyArray, Mask, raw_scores, split_heads
from attnlab.forward.attention import Head
from attnlab.model.trace import Trace
from attnlab.pages.overview import story_heads

# Pairs with numbers of their own.
SHOWN = 8

# Bytes of pairs in a file. It includes at least the last token's.
BUDGET = 38_000


def description(trace: Trace) -> dict[str, Any]:
    """What a file has pairs for: the heads, and the first of their queries."""
    heads = story_heads(trace)
    T, Tk = trace.head(0, 0).scores_shape
    floats = len(heads) * (16 + 2 * SHOWN + (SHOWN + 7) * Tk)  # at most, for each query
    return {"heads": heads, "first": T - min(T, max(1, BUDGET // (4 * floats)))}


def rows(trace: Trace) -> Iterator[AnyArray]:
    """The pack of a file."""
    described, trace = description(trace), trace._fork()
    for layer, places in groupby(described["heads"], key=itemgetter(0)):
        heads = [trace.head(layer, head) for _, head in places]
        sums = pairs_of(heads, described["first"])
        for head, of_head in zip(heads, sums, strict=True):
            visible = np.broadcast_to(head.mask, head.scores_shape)
            for query, numbers in enumerate(of_head, start=described["first"]):
                yield from row(numbers, head.scores[query], head.weights[query], visible[query])


def pairs_of(heads: Sequence[Head], first: int) -> AnyArray:
    """A layer's scores as pairs of parts, (heads, queries from `first`, m, n, Tk)."""
    T, Tk = heads[0].scores_shape
    ones = np.ones((Tk, 1), heads[0].Q.dtype)
    terms = terms_of(heads, {"query": np.eye(T, dtype=ones.dtype)[first:], "key": ones})
    Q, K = (split_heads(stacked(side), len(heads)) for side in terms.values())  # (m, H, T, Dh)
    (m, _, queries, width), n = Q.shape, len(K)
    # One product for all heads.
    Q = Q.transpose(1, 2, 0, 3).reshape(len(heads), queries * m, width)
    K = K.swapaxes(0, 1).reshape(len(heads), n * Tk, width)
    scale = np.array([head.scale for head in heads], Q.dtype)[:, np.newaxis, np.newaxis]
    return (raw_scores(Q, K) / scale).reshape(len(heads), queries, m, n, Tk)


def row(pairs: AnyArray, scores: AnyArray, weights: AnyArray, visible: Mask) -> Iterator[AnyArray]:
    """The pairs of one query, (m, n, Tk)."""
    n, pairs = pairs.shape[1], pairs.reshape(-1, len(visible))  # (m n, Tk)
    if not adds_up(pairs, scores)[visible].all():  # an edit replaced a sum
        yield np.zeros(1)
        return
    pairs = pairs - pairs[:, visible].mean(axis=-1, keepdims=True)
    pairs[:, ~visible] = 0
    # Above all at the keys that the head looks at.
    sizes = (np.abs(pairs) * np.sqrt(np.abs(weights))).max(axis=-1)
    order = np.argsort(-sizes, kind="stable")
    chosen, others = order[:SHOWN], order[SHOWN:]
    yield from (np.array([len(chosen)]), *divmod(chosen, n))
    yield from map(rounded, (pairs[chosen], np.abs(pairs[others]).max(axis=0, initial=0)))
    # Look compares the first key with the strongest other one, or that with the next.
    strengths = np.where(visible, weights, -np.inf)
    strengths[visible.argmax()] = np.inf
    ranked = np.argsort(-strengths, kind="stable")[np.minimum(range(3), visible.sum() - 1)]
    compared = np.hstack([pairs, pairs[:, ranked[:2]] - pairs[:, ranked[1:]]])
    signed = compared * np.where(compared.sum(axis=0) < 0, -1, 1)
    yield ranked
    for extreme in (signed.argmax(axis=0), signed.argmin(axis=0)):
        yield from (*divmod(extreme, n), rounded(compared[extreme, range(len(extreme))]))


def rounded(x: AnyArray) -> AnyArray:
    """Numbers in steps of 1/262,144: small ones take less room in a file."""
    return np.round(x * 2**18) / 2**18
