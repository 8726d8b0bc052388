"""Sums over texts, in constant memory: moments, batches and extreme passages.

The mean is a ratio, r = Σ sums / Σ divisors. Its standard error follows from
Σ (sums - r divisors)², which is computed from the moments. Tallies are added in chunk order, as
floating-point sums depend on order.

Comparing two atlases of the same texts needs paired sums, so the sums of batches of neighbouring
texts are kept too: at most 128 batches of equal width. With more texts, neighbouring batches are
merged.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlab.corpus.heads import HeadTally
from attnlab.equations import AnyArray, Ids

# With fewer texts, standard errors are unreliable.
MIN_TEXTS = 10

# For each measure and head, the number of passages kept with the largest values, and the number
# with the smallest.
EXTREMES = 3

# A passage's number is its text's number, followed by its first token's position in 32 bits.
TOKEN_BITS = 32

# The largest number of batches.
BATCHES = 128

# Marks a missing passage.
NO_PASSAGE = np.iinfo(np.int64).max


def ratio(N: Any, n: Any, nn: Any, s: Any, ss: Any, sn: Any) -> tuple[AnyArray, AnyArray]:
    """The mean Σ s / Σ n over N texts, and its standard error, NaN with fewer than two texts.

    variance = N / (N - 1) Σ (s - mean n)² / (Σ n)²; the parameters are N, Σ n, Σ n², Σ s, Σ s²
    and Σ s n, over texts with sums s and divisors n, of which N have n > 0
    """
    with np.errstate(divide="ignore", invalid="ignore"):  # n may be 0
        mean = np.asarray(s / n)
        squares = np.maximum(ss - 2 * mean * sn + mean**2 * nn, 0.0)
        return mean, np.where(N > 1, np.sqrt(N / (N - 1) * squares) / n, np.nan)


def passage_number(text: int, start: int) -> int:
    """A passage's number; numbers are in corpus order."""
    return (text << TOKEN_BITS) + start


@dataclass(eq=False)
class Tally:
    """Sums over texts for C columns: one per measure and head, one for loss."""

    # (6, C), over texts with sums s and divisors n (see `measures.Sums`): the number of texts with
    # n > 0, Σ s, Σ n, Σ s², Σ s n, Σ n²
    moments: NDArray[np.float64]
    # (2, EXTREMES, C), sort keys of the extreme passages, ascending: -value for the largest, value
    # for the smallest, inf for missing ones
    ranks: NDArray[np.float64]
    passages: NDArray[np.int64]  # of the same shape: the passages' numbers
    ids: dict[int, NDArray[np.int32]] = field(default_factory=dict)  # by passage number, (T,)
    names: dict[int, str] = field(default_factory=dict)  # of the passages' texts, by text number
    texts: int = 0
    tokens: int = 0
    # Name and reason for each text that could not be measured
    faults: list[tuple[str, str]] = field(default_factory=list)
    width: int = 1  # texts per batch, a power of 2
    # By number, (2, C), Σ s and Σ n of texts number * width to (number + 1) * width
    batches: dict[int, NDArray[np.float64]] = field(default_factory=dict)
    heads: HeadTally | None = None  # see `atlas(heads=True)`

    @classmethod
    def empty(cls, columns: int) -> Tally:
        shape = 2, EXTREMES, columns
        return cls(np.zeros((6, columns)), np.full(shape, np.inf), np.full(shape, NO_PASSAGE))

    def add_text(self, number: int, s: NDArray[np.float64], n: NDArray[np.float64]) -> None:
        """Add one text's sums s and divisors n, (C,) each."""
        self.moments += np.stack([(n > 0).astype(np.float64), s, n, s * s, s * n, n * n])
        self.texts += 1
        width = self.width
        while number >= BATCHES * width:
            width *= 2
        self._add_batches({number // width: np.stack([s, n])}, width)

    def batches_of(self, width: int) -> dict[int, NDArray[np.float64]]:
        """The batches, merged to `width` texts each, a multiple of the current width."""
        wider: dict[int, NDArray[np.float64]] = {}
        for number, sums in self.batches.items():
            merged = number * self.width // width
            wider[merged] = wider.get(merged, 0.0) + sums
        return wider

    def _add_batches(self, later: dict[int, NDArray[np.float64]], width: int) -> None:
        """Add batches of `width` texts, at least the current width."""
        self.batches, self.width = self.batches_of(width), width
        for number, sums in later.items():
            self.batches[number] = self.batches.get(number, 0.0) + sums

    def add_passage(
        self, number: int, name: str, ids: Ids, sums: AnyArray, divisors: AnyArray
    ) -> None:
        """Keep a passage of a text if it is among the extremes."""
        value = np.divide(sums, divisors, out=np.full(sums.shape, np.nan), where=divisors > 0)
        rank = np.where(np.isnan(value), np.inf, np.stack([-value, value]))[:, np.newaxis]
        numbers = np.where(np.isinf(rank), NO_PASSAGE, number)
        self.ids[number], self.names[number >> TOKEN_BITS] = ids.astype(np.int32), name
        self._merge_extremes(rank, numbers)

    def add(self, later: Tally) -> None:
        """Add the tally of later texts."""
        self.moments += later.moments
        self.texts += later.texts
        self.tokens += later.tokens
        self.faults += later.faults
        self.ids |= later.ids
        self.names |= later.names
        width = max(self.width, later.width)
        self._add_batches(later.batches_of(width), width)
        self._merge_extremes(later.ranks, later.passages)
        if self.heads is not None and later.heads is not None:
            self.heads.add(later.heads)

    def _merge_extremes(self, ranks: NDArray[np.float64], passages: NDArray[np.int64]) -> None:
        """Merge later passages into the extremes; ties go to the earlier passage."""
        ranks = np.concatenate([self.ranks, ranks], axis=1)
        passages = np.concatenate([self.passages, passages], axis=1)
        lowest = np.argsort(ranks, axis=1, kind="stable")[:, :EXTREMES]
        self.ranks = np.take_along_axis(ranks, lowest, 1)
        self.passages = np.take_along_axis(passages, lowest, 1)
        kept = set(np.unique(self.passages).tolist())
        texts = {number >> TOKEN_BITS for number in kept}
        self.ids = {number: ids for number, ids in self.ids.items() if number in kept}
        self.names = {text: name for text, name in self.names.items() if text in texts}

    def tensors(self) -> dict[str, AnyArray]:
        """The arrays to store in a file, along with `metadata`."""
        numbers = sorted(self.ids)
        ids = [self.ids[number] for number in numbers]
        return {
            "moments": self.moments,
            "ranks": self.ranks,
            "passages": self.passages,
            "numbers": np.array(numbers, np.int64),
            "lengths": np.array([len(tokens) for tokens in ids], np.int64),
            "ids": np.concatenate([np.zeros(0, np.int32), *ids]),  # there may be no passages
            "counts": np.array([self.texts, self.tokens, self.width]),
            "batches": np.array([*self.batches.values()]).reshape(-1, 2, self.moments.shape[1]),
            "batch_numbers": np.array([*self.batches], np.int64),
            **({} if self.heads is None else self.heads.tensors()),
        }

    def metadata(self) -> dict[str, str]:
        """The strings to store in a file's metadata."""
        names = {str(text): self.names[text] for text in sorted(self.names)}
        heads = {} if self.heads is None else {"tops": json.dumps(self.heads.names)}
        return {"names": json.dumps(names), "faults": json.dumps(self.faults), **heads}

    @classmethod
    def read(cls, tensors: Mapping[str, AnyArray], metadata: Mapping[str, str]) -> Tally:
        """Restore a tally from `tensors` and `metadata`, whose file's checksum is right."""
        names, faults = json.loads(metadata["names"]), json.loads(metadata["faults"])
        texts, tokens, width = tensors["counts"].tolist()
        pieces: list[Any] = np.split(tensors["ids"], np.cumsum(tensors["lengths"]))[:-1]
        return cls(
            tensors["moments"].copy(),
            tensors["ranks"].copy(),
            tensors["passages"].copy(),
            ids=dict(zip(tensors["numbers"].tolist(), pieces, strict=True)),
            names={int(text): name for text, name in names.items()},
            texts=texts,
            tokens=tokens,
            faults=[(name, reason) for name, reason in faults],
            width=width,
            batches=dict(zip(tensors["batch_numbers"].tolist(), tensors["batches"], strict=True)),
            heads=HeadTally.read(tensors, metadata["tops"]) if "rows" in tensors else None,
        )
