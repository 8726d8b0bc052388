"""Scores as sums over pairs, a part of the query times a part of the key, for the page.

`attnlab.analysis.why` defines the parts. A page with a model computes the pairs, see `pairs.js`. A
saved page has the pack "why", with arrays for each ablated head and each query from `first`:

    n                  the number of pairs with values; 0, and nothing more, if an edit changed sums
    (n,), (n,)         the index of each pair's part of the query, and of its part of the key
    (n, Tk), (Tk,)     their values at each key, minus the mean over visible keys; a bound of the
                       other pairs' absolute values, to know whether n pairs include the largest
    (3,)               the first key, and the keys with the largest weights
    6 x (Tk + 2,)      the largest pair with the sign of the whole difference (its two parts, its
                       value), then the largest with the other sign, for Tk + 2 differences: each
                       key minus the mean, and the first two of those three keys minus the next
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

# The number of pairs whose values a file has.
SHOWN = 8

# The bytes that pairs may take in a file. Those of the last query are always included.
BUDGET = 38_000


def description(trace: Trace) -> dict[str, Any]:
    """The heads and the first query for which a file has pairs."""
    heads = story_heads(trace)
    T, Tk = trace.head(0, 0).scores_shape
    floats = len(heads) * (16 + 2 * SHOWN + (SHOWN + 7) * Tk)  # a query's arrays, see above
    return {"heads": heads, "first": T - min(T, max(1, BUDGET // (4 * floats)))}


def rows(trace: Trace) -> Iterator[AnyArray]:
    """The arrays of the pack "why"."""
    described, trace = description(trace), trace._fork()
    for layer, in_layer in groupby(described["heads"], key=itemgetter(0)):
        heads = [trace.head(layer, head) for _, head in in_layer]
        layer_pairs = pairs_of(heads, described["first"])
        for head, head_pairs in zip(heads, layer_pairs, strict=True):
            visible = np.broadcast_to(head.mask, head.scores_shape)
            for query, pairs in enumerate(head_pairs, start=described["first"]):
                yield from row(pairs, head.scores[query], head.weights[query], visible[query])


def pairs_of(heads: Sequence[Head], first: int) -> AnyArray:
    """A layer's scores split by m parts of a query and n of a key: (heads, queries, m, n, Tk)."""
    T, Tk = heads[0].scores_shape
    # The rows that `stream_terms` sums: each chosen query alone, and all keys, kept apart.
    ones = np.ones((Tk, 1), heads[0].Q.dtype)
    terms = terms_of(heads, {"query": np.eye(T, dtype=ones.dtype)[first:], "key": ones})
    Q, K = (split_heads(stacked(side), len(heads)) for side in terms.values())  # (m, H, T, Dh)
    (m, _, queries, width), n = Q.shape, len(K)
    Q = Q.transpose(1, 2, 0, 3).reshape(len(heads), queries * m, width)
    K = K.swapaxes(0, 1).reshape(len(heads), n * Tk, width)
    scale = np.array([head.scale for head in heads], Q.dtype)[:, np.newaxis, np.newaxis]
    return (raw_scores(Q, K) / scale).reshape(len(heads), queries, m, n, Tk)


def row(pairs: AnyArray, scores: AnyArray, weights: AnyArray, visible: Mask) -> Iterator[AnyArray]:
    """Yield the pack's arrays for one query, whose `pairs` are (m, n, Tk)."""
    n, pairs = pairs.shape[1], pairs.reshape(-1, len(visible))  # (m n, Tk)
    if not adds_up(pairs, scores)[visible].all():  # an edit replaced a sum
        yield np.zeros(1)
        return
    pairs = pairs - pairs[:, visible].mean(axis=-1, keepdims=True)
    pairs[:, ~visible] = 0
    # Pairs count most at the keys that the head attends to.
    sizes = (np.abs(pairs) * np.sqrt(np.abs(weights))).max(axis=-1)
    order = np.argsort(-sizes, kind="stable")
    chosen, others = order[:SHOWN], order[SHOWN:]
    yield from (np.array([len(chosen)]), *divmod(chosen, n))
    yield from map(rounded, (pairs[chosen], np.abs(pairs[others]).max(axis=0, initial=0)))
    # The page compares the first key with the strongest other key, or that key with the next.
    strengths = np.where(visible, weights, -np.inf)
    strengths[visible.argmax()] = np.inf  # ranks the first key first
    three = np.minimum(range(3), visible.sum() - 1)  # repeats the last of fewer visible keys
    ranked = np.argsort(-strengths, kind="stable")[three]
    compared = np.hstack([pairs, pairs[:, ranked[:2]] - pairs[:, ranked[1:]]])
    signed = compared * np.where(compared.sum(axis=0) < 0, -1, 1)
    yield ranked
    for extreme in (signed.argmax(axis=0), signed.argmin(axis=0)):
        yield from (*divmod(extreme, n), rounded(compared[extreme, range(len(extreme))]))


def rounded(x: AnyArray) -> AnyArray:
    """Round to multiples of 2^-18, so that small numbers take less room in a file."""
    return np.round(x * 2**18) / 2**18
