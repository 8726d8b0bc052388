"""What each head does over a corpus, as sums whose memory doesn't grow with the corpus.

    a window's blocks ──> `TextSums` ──> `HeadTally` of a chunk, then of the corpus

Every mean is a ratio Σ s / Σ n of sums s and counts n of each text, see `tally.ratio`. The first
query, which sees only itself, is skipped, and so is the first token as a key, where attention
rests, unless a name says otherwise.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnlab.equations import AnyArray, Array, Ids, deviation, mean
from attnlab.support.rest import excess

# Token pairs that are tallied for each head: those in most of the first texts; fewer in models with
# many heads, whose sums would take more than 24 bytes a cell.
PAIRS, PAIR_CELLS = 4096, 600_000

# The first texts have about as many pairs, counted once for each text.
PAIRS_READ = 4_000_000

# Texts kept for each head, their tokens that are shown, and lines between them.
TOPS, SHOWN, LINES = 4, 24, 64
LINE = np.dtype([("query", "i4"), ("key", "i4"), ("weight", "f4"), ("excess", "f4")])

# Patterns are compared with those of other heads for this many first queries of a window.
COMPARED = 128

# Positions and distances up to this have a bin each; later ones are joined, two bins an octave.
SINGLE = 16


class Plan(NamedTuple):
    """What is tallied for every text."""

    pairs: NDArray[np.int64]  # (P,), query id * vocab + key id, ascending
    vocab: int
    heads: int  # of all layers, L H
    width: int  # Dh
    window: int

    @property
    def bins(self) -> NDArray[np.int64]:
        """The first position, or distance, of each bin."""
        octaves = (SINGLE << n for n in range(20))
        starts = [*range(SINGLE), *(x for first in octaves for x in (first, first * 3 // 2))]
        return np.array([start for start in starts if start < self.window])

    @property
    def top(self) -> np.dtype[Any]:
        """A window in which a head attends strongly, and its part that is shown."""
        fields: list[Any] = [
            ("strength", "f8"),
            *((name, "i8") for name in ("text", "offset")),  # where the window starts
            *((name, "i4") for name in ("start", "end")),  # of the part, in the window
            ("ids", "i4", self.window),
            ("lines", LINE, LINES),  # those in the part with the largest excess, largest first
            (
                "context",
                "f4",
                self.width,
            ),  # of the first line's query, after the last LayerNorm's scale
        ]
        return np.dtype(fields)


def codes_of(ids: Ids, vocab: int) -> tuple[AnyArray, AnyArray, AnyArray]:
    """Queries, keys and codes of a window's pairs, by query; also each query with itself."""
    q, k = np.tril_indices(len(ids))
    q, k = q[k > 0], k[k > 0]
    return q, k, ids[q] * vocab + ids[k]


def common_pairs(texts: Iterable[list[Ids]], vocab: int, heads: int) -> NDArray[np.int64]:
    """The pairs of a query and an earlier key that are in the most texts; ties go to lower ids."""
    found = [np.array([-1])]  # no pair's code, so that there is one
    for windows in texts:
        coded = (codes_of(ids, vocab) for ids in windows)
        found += [np.unique(np.concatenate([found[0], *(code[q > k] for q, k, code in coded)]))[1:]]
    codes, counts = np.unique(np.concatenate(found), return_counts=True)
    chosen = np.argsort(-counts, kind="stable")[: min(PAIRS, PAIR_CELLS // heads)]
    return np.sort(codes[chosen])


class Groups:
    """Sums over groups of columns, from the number of each column's group."""

    def __init__(self, columns: AnyArray, groups: AnyArray) -> None:
        order = np.argsort(groups, kind="stable")
        self._columns = columns[order]
        self.numbers, self._starts = np.unique(groups[order], return_index=True)

    def sum(self, x: Array) -> Array:
        if not self.numbers.size:
            return np.zeros((len(x), 0), x.dtype)
        sums: Array = np.add.reduceat(x[:, self._columns], self._starts, axis=1)
        return sums


class TextSums:
    """One text's sums; `open` a window, then `add` its blocks in turn, then `close` it."""

    def __init__(self, plan: Plan, number: int) -> None:
        self.plan, self.number = plan, number
        bins = 2 * len(plan.bins)  # by the key's position, then by distance
        self.bin_counts, self.bin_sums = np.zeros(bins), np.zeros((bins, plan.heads))
        self.rows: AnyArray = np.zeros(0, np.int64)  # of `plan.pairs`
        self.pair_counts: AnyArray = np.zeros(0)
        self.pair_sums = np.zeros((0, plan.heads))
        self.products = np.zeros((plan.heads, plan.heads))  # of centred patterns
        self.queries, self.contexts = 0, np.zeros((plan.heads, plan.width))
        self.tops = np.zeros((0, plan.heads), plan.top)

    def open(self, offset: int, ids: Ids) -> None:
        plan, T = self.plan, len(ids)
        q, k, codes = codes_of(ids, plan.vocab)
        self._offset, self._ids, self._flat = offset, ids, q * T + k
        by_position = np.searchsorted(plan.bins, k, "right") - 1
        by_distance = np.searchsorted(plan.bins, q - k, "right") - 1 + len(plan.bins)
        columns = np.arange(len(q))
        self._bins = [Groups(columns, groups) for groups in (by_position, by_distance)]
        self.bin_counts += np.bincount([*by_position, *by_distance], minlength=2 * len(plan.bins))
        self.bin_counts[0] += T - 1  # the first token
        rows = np.searchsorted(plan.pairs, codes)
        is_tallied = (q > k) & (plan.pairs[rows % len(plan.pairs)] == codes)
        self._pairs = Groups(columns[is_tallied], rows[is_tallied])
        # A query counts once, however often the key's token is before it.
        seen = np.unique(rows[is_tallied] * T + q[is_tallied]) // T
        self._pair_counts = np.unique(seen, return_counts=True)[1]
        self._in_query = np.cumsum(np.arange(T - 1))  # where the keys of queries 1, 2, ... start
        self._parts: list[tuple[Array, ...]] = []
        self._best: list[AnyArray] = []

    def add(self, block: Any) -> None:
        weights, context = block.attention.weights, block.attention.context  # (H, T, T)
        if len(self._ids) < 2:
            return
        H, T, _ = weights.shape
        others = weights.reshape(H, -1)[:, self._flat]  # (H, T (T - 1) / 2)
        layer = slice(len(self._parts) * H, (len(self._parts) + 1) * H)
        self.bin_sums[0, layer] += weights[:, 1:, 0].sum(axis=1, dtype=np.float64)
        for groups in self._bins:
            self.bin_sums[groups.numbers, layer] += groups.sum(others).T
        count = np.arange(1, T, dtype=weights.dtype)  # keys of queries 1, 2, ...
        uniform = np.add.reduceat(others, self._in_query, axis=1) / count
        largest = np.maximum.reduceat(others, self._in_query, axis=1)
        # As `rest.excess` of each query's largest weight.
        self._best.append(
            self._top(weights, (largest - uniform) * count / np.maximum(count - 1, 1))
        )
        compared = min(T - 1, COMPARED - 1)
        end = compared * (compared + 1) // 2
        centred = others[:, :end] - np.repeat(
            uniform[:, :compared], np.arange(1, compared + 1), axis=1
        )
        self._parts.append((self._pairs.sum(others), centred, context))

    def _top(self, weights: Array, excesses: Array) -> AnyArray:
        """The part of up to SHOWN queries with the largest sum of excesses, for each head."""
        H, T, _ = weights.shape
        length = min(SHOWN, T)
        sums = np.cumsum(np.pad(excesses, ((0, 0), (2, 0))), axis=1, dtype=np.float64)
        stretches = sums[:, length:] - sums[:, : T - length + 1]
        start = stretches.argmax(axis=1)
        queries, keys = start[:, np.newaxis] + np.arange(length), np.arange(T)
        rows = np.take_along_axis(weights, queries[..., np.newaxis], axis=1)  # (H, length, T)
        over = excess(rows, (keys > 0) & (keys <= queries[..., np.newaxis])).reshape(H, -1)
        count = min(LINES, over.shape[1])
        chosen = np.argpartition(-over, count - 1, axis=1)[:, :count]
        order = np.argsort(-np.take_along_axis(over, chosen, axis=1), axis=1, kind="stable")
        chosen = np.take_along_axis(chosen, order, axis=1)
        top = np.zeros(H, self.plan.top)
        top["strength"] = stretches.max(axis=1)
        top["text"], top["offset"] = self.number, self._offset
        top["start"], top["end"] = start, start + length
        top["ids"][:, :T] = self._ids
        lines = top["lines"][:, :count]
        lines["query"], lines["key"] = start[:, np.newaxis] + chosen // T, chosen % T
        for name, numbers in (("weight", rows.reshape(H, -1)), ("excess", over)):
            lines[name] = np.take_along_axis(numbers, chosen, axis=1)
        return top

    def close(self, trace: Any) -> None:
        if len(self._ids) < 2:
            return
        pairs, centred, contexts = map(np.concatenate, zip(*self._parts, strict=True))
        rows = np.concatenate([self.rows, self._pairs.numbers])
        counts = np.concatenate([self.pair_counts, self._pair_counts])
        sums = np.concatenate([self.pair_sums, pairs.T])
        self.rows, inverse = np.unique(rows, return_inverse=True)
        self.pair_counts = np.bincount(inverse, counts)
        self.pair_sums = np.zeros((len(self.rows), self.plan.heads))
        np.add.at(self.pair_sums, inverse, sums)
        self.products += centred @ centred.T
        output = trace.blocks[-1].output
        contexts = contexts / deviation(output - mean(output), trace.epsilon)  # (L H, T, Dh)
        self.queries += len(self._ids) - 1
        self.contexts += contexts[:, 1:].sum(axis=1, dtype=np.float64)
        top = np.concatenate(self._best)
        top["context"] = contexts[np.arange(len(top)), top["lines"]["query"][:, 0]]
        self.tops = largest_of(self.tops, top[np.newaxis])


def largest_of(tops: AnyArray, later: AnyArray) -> AnyArray:
    """The TOPS strongest of each head, (TOPS, L H) or fewer; ties go to the earlier."""
    both = np.concatenate([tops, later])
    order = np.argsort(-both["strength"], axis=0, kind="stable")[:TOPS]
    return np.take_along_axis(both, order, axis=0)


class HeadTally:
    """Sums over texts: for each kind of mean N, Σ n, Σ n², and Σ s, Σ s², Σ s n by head.

    A chunk's sums are float32, to halve its file; the corpus's are float64.
    """

    def __init__(self, plan: Plan, dtype: Any = np.float32) -> None:
        self.plan, heads = plan, plan.heads
        bins, pairs = 2 * len(plan.bins), len(plan.pairs)
        shapes: dict[str, tuple[int, ...]] = {"bins": (3, bins, heads), "pairs": (3, pairs, heads)}
        shapes |= {"contexts": (2, heads, plan.width), "squares": (heads, plan.width, plan.width)}
        shapes |= {"products": (4, heads, heads)}  # see `add_text`
        self.sums = {name: np.zeros(shape, dtype) for name, shape in shapes.items()}
        shapes = {"bins": (3, bins), "pairs": (3, pairs), "contexts": (3,), "products": (1,)}
        self.counts = {name: np.zeros(shape) for name, shape in shapes.items()}
        self.tops = np.zeros((0, heads), plan.top)
        self.names: dict[int, str] = {}  # of the tops' texts, by number

    def add_text(self, name: str, text: TextSums) -> None:
        if not text.queries:
            return
        for kind, rows, n, s in (
            ("bins", np.arange(len(text.bin_counts)), text.bin_counts, text.bin_sums),
            ("pairs", text.rows, text.pair_counts, text.pair_sums),
        ):
            self.counts[kind][:, rows] += np.stack([n > 0, n, n * n])
            self.sums[kind][:, rows] += np.stack([s, s * s, s * n[:, np.newaxis]])
        queries, contexts = text.queries, text.contexts
        self.counts["contexts"] += np.array([1, queries, queries**2])
        self.sums["contexts"] += np.stack([contexts, contexts * queries])
        self.sums["squares"] += contexts[:, :, np.newaxis] * contexts[:, np.newaxis]
        g = text.products
        own = np.diag(g)  # of each pattern with itself
        self.counts["products"] += own.any()
        self.sums["products"] += np.stack([g, g * g, own[:, np.newaxis] * own, g * own[:, None]])
        self._keep(text.tops, {text.number: name})

    def _keep(self, tops: AnyArray, names: Mapping[int, str]) -> None:
        self.tops, known = largest_of(self.tops, tops), {**self.names, **names}
        kept = np.unique(self.tops["text"]).tolist()
        self.names = {number: known[number] for number in kept}

    def add(self, later: HeadTally) -> None:
        """Add the tally of later texts."""
        for arrays, others in ((self.sums, later.sums), (self.counts, later.counts)):
            for name, array in arrays.items():
                array += others[name]
        self._keep(later.tops, later.names)

    def tensors(self) -> dict[str, AnyArray]:
        """The arrays to store in a file; of the pairs, only those that were found."""
        rows = np.flatnonzero(self.counts["pairs"][0])
        arrays = {f"sums.{name}": array for name, array in self.sums.items()}
        arrays |= {f"counts.{name}": array for name, array in self.counts.items()}
        for name in ("sums.pairs", "counts.pairs"):
            arrays[name] = np.ascontiguousarray(arrays[name][:, rows])
        pairs, *sizes = self.plan
        plan = {"plan.pairs": pairs, "plan.sizes": np.array(sizes)}
        return {**plan, "rows": rows, "tops": as_bytes(self.tops), **arrays}

    @classmethod
    def read(cls, tensors: Mapping[str, AnyArray], names: str) -> HeadTally:
        """Restore a chunk's tally from `tensors` and `names`, whose file's checksum is right."""
        plan = Plan(tensors["plan.pairs"], *tensors["plan.sizes"].tolist())
        tally = cls(plan)
        for kind, arrays in (("sums", tally.sums), ("counts", tally.counts)):
            for name, array in arrays.items():
                rows = np.s_[:, tensors["rows"]] if name == "pairs" else np.s_[...]
                array[rows] = tensors[f"{kind}.{name}"]
        tally.tops = tensors["tops"].copy().view(plan.top)[..., 0]
        tally.names = {int(number): name for number, name in json.loads(names).items()}
        return tally


def as_bytes(records: AnyArray) -> AnyArray:
    """Records as bytes, (..., size), for a file of tensors."""
    return np.ascontiguousarray(records)[..., np.newaxis].view(np.uint8)
