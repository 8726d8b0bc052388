"""What each head does over a corpus, as sums that take no more memory for a larger corpus.

    a window's blocks ──> `TextSums` ──> `Tally.sums` of a chunk, then of the corpus

Every mean is a ratio Σ s / Σ n, where s is a text's sum and n its count, see `tally.ratio`. The
first query of a window is skipped, since it sees only itself. The first key is skipped too, because
idle attention rests on it, except in the bin of position 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from attnlab.equations import AnyArray, Array, Ids, deviation, mean
from attnlab.support.sink import excess

# The number of token pairs that are tallied for each head: the pairs that occur in the most of the
# first texts. A model with many heads has fewer pairs: pairs times heads are at most PAIR_CELLS.
PAIRS, PAIR_CELLS = 4096, 600_000

# The "first texts" are those whose windows have about this number of pairs in total.
PAIRS_READ = 4_000_000

# The number of top texts that are kept for each head, and of a top text's shown tokens and lines
# between tokens.
TOPS, SHOWN, LINES = 4, 24, 64
LINE = np.dtype([("query", "i4"), ("key", "i4"), ("weight", "f4"), ("excess", "f4")])

# Positions and distances below SINGLE have a bin each. Larger ones share bins, two for each octave:
# 16 to 23, 24 to 31, 32 to 47, ...
SINGLE = 16


class Plan(NamedTuple):
    """What is tallied for every text: the token pairs, and the sizes of the arrays."""

    pairs: NDArray[np.int64]  # (P,), codes query id * vocab + key id, ascending
    vocab: int  # the vocabulary's size
    heads: int  # the number of heads in all layers, L H
    width: int  # Dh
    window: int  # the largest number of tokens in a window

    def sums(self, dtype: DTypeLike) -> dict[str, AnyArray]:
        """Zeros for sums over texts: N, Σ n, Σ n² of a mean, and Σ s, Σ s², Σ s n of each head."""
        rows = 2 * len(self.bins) + len(self.pairs)
        shapes: dict[str, tuple[int, ...]] = {
            "s": (3, rows, self.heads),
            "contexts": (2, self.heads, self.width),
            "squares": (self.heads, self.width, self.width),
        }
        counts = {"n": (3, rows), "n_contexts": (3,)}
        sums = {name: np.zeros(shape, dtype) for name, shape in shapes.items()}
        return sums | {name: np.zeros(shape) for name, shape in counts.items()}

    @property
    def bins(self) -> NDArray[np.int64]:
        """The first position, or distance, of each bin."""
        octaves = (SINGLE * 2**n for n in range(20))  # more than any window needs
        starts = [*range(SINGLE)]
        for first in octaves:
            starts += [first, first * 3 // 2]
        return np.array([start for start in starts if start < self.window])

    @property
    def top(self) -> np.dtype[Any]:
        """The fields of a top text: a window in which a head attends strongly, and what to show."""
        fields: list[Any] = [
            ("strength", "f8"),
            ("number", "i8"),  # the window's number, see `run.TOKEN_BITS`
            ("start", "i4"),  # the shown part's first token in the window
            ("end", "i4"),  # the token after the shown part
            ("lines", LINE, LINES),  # the part's lines with the largest excess, largest first
            ("context", "f4", self.width),  # the head's context at the first line's query
        ]
        return np.dtype(fields)

    def no_tops(self) -> AnyArray:
        """Placeholders for each head's top texts, (TOPS, L H): any real top text is stronger."""
        return np.zeros((TOPS, self.heads), self.top)


def codes_of(ids: Ids, vocab: int) -> tuple[AnyArray, AnyArray, AnyArray]:
    """A window's pairs, ordered by query, without the first key: queries, keys and codes."""
    q, k = np.tril_indices(len(ids))
    q, k = q[k > 0], k[k > 0]
    return q, k, ids[q] * vocab + ids[k]


def common_pairs(texts: Iterable[list[Ids]], vocab: int, heads: int) -> NDArray[np.int64]:
    """The codes of the pairs (query, earlier key) in the most texts; ties go to lower ids."""
    no_pair = np.array([-1])  # a code that no pair has, so that there is an array to concatenate
    found = [no_pair]
    for windows in texts:
        coded = (codes_of(ids, vocab) for ids in windows)
        codes_of_text = [code[q > k] for q, k, code in coded]
        found.append(np.unique(np.concatenate([no_pair, *codes_of_text]))[1:])  # without no_pair
    codes, counts = np.unique(np.concatenate(found), return_counts=True)
    chosen = np.argsort(-counts, kind="stable")[: min(PAIRS, PAIR_CELLS // heads)]
    return np.sort(codes[chosen])


class TextSums:
    """One text's sums. For each window call `open`, then `add` for each block, then `close`."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        # Each row is a bin of positions, a bin of distances, or a pair, in this order.
        self.rows: AnyArray = np.zeros(0, np.int64)
        self.counts: AnyArray = np.zeros(0)
        self.sums = np.zeros((0, plan.heads))
        self.queries, self.contexts = 0, np.zeros((plan.heads, plan.width))
        self.tops = plan.no_tops()

    def open(self, number: int, ids: Ids) -> None:
        """Begin a window (T,) of the text: find the rows to which each weight is added."""
        plan, T = self.plan, len(ids)
        q, k, codes = codes_of(ids, plan.vocab)
        self._number, self._T = number, T
        self._flat = q * T + k  # the pairs' indices in flattened weights (T, T)
        bins = len(plan.bins)
        first = np.zeros(T - 1, np.int64)  # row 0 has the weights on the first token
        position = np.searchsorted(plan.bins, k, "right") - 1
        distance = np.searchsorted(plan.bins, q - k, "right") - 1 + bins
        pair = np.searchsorted(plan.pairs, codes)  # len(plan.pairs) if the code is larger than all
        is_tallied = (q > k) & (plan.pairs[pair % len(plan.pairs)] == codes)
        pair, q = pair[is_tallied] + 2 * bins, q[is_tallied]
        # In `add`, the columns are the weights on other keys, then the weights on the first token.
        columns = np.arange(len(codes) + T - 1)
        keys = columns[: len(codes)]
        # Sort the columns by the row to which each is added, and find where each row's part starts.
        rows = np.concatenate([position, first, distance, pair])
        order = np.argsort(rows, kind="stable")
        self._columns = np.concatenate([columns, keys, keys[is_tallied]])[order]
        self._rows, self._starts = np.unique(rows[order], return_index=True)
        # A query counts once for a pair, however often the key's token occurs before the query.
        pair_of_query = np.unique(pair * T + q) // T  # the code pair * T + q drops repetitions
        counted = np.concatenate([position, first, distance, pair_of_query])
        self._counts = np.unique(counted, return_counts=True)[1]
        self._in_query = np.cumsum(np.arange(T - 1))  # where the keys of queries 1, 2, ... start
        self._parts: list[tuple[Array, ...]] = []
        self._best: list[AnyArray] = []

    def add(self, block: Any) -> None:
        """Sum the weights of a block's heads, (H, T, T), and keep their contexts, (H, T, Dh)."""
        weights, context = block.attention.weights, block.attention.context
        if self._T < 2:
            return
        H, T, _ = weights.shape
        others = weights.reshape(H, -1)[:, self._flat]  # (H, T (T - 1) / 2)
        count = np.arange(1, T, dtype=weights.dtype)  # the number of keys of queries 1, 2, ...
        uniform = np.add.reduceat(others, self._in_query, axis=1) / count
        largest = np.maximum.reduceat(others, self._in_query, axis=1)
        # The excess of each query's largest weight, as `sink.excess` defines it.
        excesses = (largest - uniform) * count / np.maximum(count - 1, 1)
        self._best.append(self._top(weights, excesses))
        summed = np.concatenate([others, weights[:, 1:, 0]], axis=1)[:, self._columns]
        sums = np.add.reduceat(summed, self._starts, axis=1)  # (H, rows)
        self._parts.append((sums, context))

    def _top(self, weights: Array, excesses: Array) -> AnyArray:
        """Find each head's run of up to SHOWN queries with the largest sum of excesses."""
        H, T, _ = weights.shape
        length = min(SHOWN, T)
        # Two zeros are put in front: one for the skipped first query, and one so that each run's
        # sum is the cumulative sum at its end minus the cumulative sum before its start.
        sums = np.cumsum(np.pad(excesses, ((0, 0), (2, 0))), axis=1, dtype=np.float64)
        run_sums = sums[:, length:] - sums[:, : T - length + 1]
        start = run_sums.argmax(axis=1)
        queries, keys = start[:, np.newaxis] + np.arange(length), np.arange(T)
        rows = np.take_along_axis(weights, queries[..., np.newaxis], axis=1)  # (H, length, T)
        visible = (keys > 0) & (keys <= queries[..., np.newaxis])  # without the first key
        by_line = excess(rows, visible).reshape(H, -1)
        count = min(LINES, by_line.shape[1])
        chosen = np.argpartition(-by_line, count - 1, axis=1)[:, :count]  # the largest, unordered
        order = np.argsort(-np.take_along_axis(by_line, chosen, axis=1), axis=1, kind="stable")
        chosen = np.take_along_axis(chosen, order, axis=1)
        top = np.zeros(H, self.plan.top)
        top["strength"] = run_sums.max(axis=1)
        top["number"], top["start"], top["end"] = self._number, start, start + length
        lines = top["lines"][:, :count]
        lines["query"] = start[:, np.newaxis] + chosen // T  # `chosen` counts along (length, T)
        lines["key"] = chosen % T
        for name, numbers in (("weight", rows.reshape(H, -1)), ("excess", by_line)):
            lines[name] = np.take_along_axis(numbers, chosen, axis=1)
        return top

    def close(self, trace: Any) -> None:
        """Add the window's sums to the text's sums.

        Contexts are divided by the last LayerNorm's deviation, known only after the last block.
        """
        if self._T < 2:
            return
        sums, contexts = map(np.concatenate, zip(*self._parts, strict=True))
        rows = np.concatenate([self.rows, self._rows])
        counts = np.concatenate([self.counts, self._counts])
        sums = np.concatenate([self.sums, sums.T])
        # Rows of the same bin or pair are added.
        self.rows, inverse = np.unique(rows, return_inverse=True)
        self.counts = np.bincount(inverse, counts)
        self.sums = np.zeros((len(self.rows), self.plan.heads))
        np.add.at(self.sums, inverse, sums)
        output = trace.blocks[-1].output
        contexts = contexts / deviation(output - mean(output), trace.epsilon)  # (L H, T, Dh)
        self.queries += self._T - 1
        self.contexts += contexts[:, 1:].sum(axis=1, dtype=np.float64)
        top = np.concatenate(self._best)
        top["context"] = contexts[np.arange(len(top)), top["lines"]["query"][:, 0]]
        self.tops = strongest(self.tops, top[np.newaxis])

    def add_to(self, total: dict[str, AnyArray]) -> None:
        """Add the text's sums, their squares and their products to a total."""
        if not self.queries:  # each window has one token
            return
        n, s = self.counts, self.sums
        total["n"][:, self.rows] += np.stack([n > 0, n, n * n])
        total["s"][:, self.rows] += np.stack([s, s * s, s * n[:, np.newaxis]])
        queries, contexts = self.queries, self.contexts
        total["n_contexts"] += np.array([1, queries, queries**2])
        total["contexts"] += np.stack([contexts, contexts * queries])
        total["squares"] += contexts[:, :, np.newaxis] * contexts[:, np.newaxis]


def strongest(best: AnyArray, later: AnyArray) -> AnyArray:
    """The strongest records of `best` and `later`, as many as `best` has; ties go to `best`."""
    both = np.concatenate([best, later])
    order = np.argsort(-both["strength"], axis=0, kind="stable")[: len(best)]
    return np.take_along_axis(both, order, axis=0)
