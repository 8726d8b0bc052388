"""Sums over texts, in constant memory: moments and extreme passages; and their files.

The mean is a ratio, r = Σ sums / Σ divisors. Its standard error follows from
Σ (sums - r divisors)², which is computed from the moments. Tallies are added in chunk order, as
floating-point sums depend on order.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

from attnlab.corpus.heads import TOPS, Plan, largest_of
from attnlab.equations import AnyArray
from attnlab.errors import AttnlabError, InvalidValueError
from attnlab.support.checks import reraised_as
from attnlab.support.files import FilePath, open_regular, reading, write_atomically
from attnlab.support.sink import NOTABLE

# With fewer texts, standard errors are unreliable.
MIN_TEXTS = 10

# For each measure and head, the number of passages kept with the largest values, and the number
# with the smallest.
EXTREMES = 3

# A window's number is its text's number, followed by its first token's position in 32 bits.
TOKEN_BITS = 32

# Marks a missing passage.
NO_PASSAGE = np.iinfo(np.int64).max


# The name of the array that holds the JSON, as bytes.
JSON = "about"


def ratio(N: Any, n: Any, nn: Any, s: Any, ss: Any, sn: Any) -> tuple[AnyArray, AnyArray]:
    """The mean Σ s / Σ n over N texts, and its standard error, NaN with fewer than two texts.

    variance = N / (N - 1) Σ (s - mean n)² / (Σ n)²; the parameters are N, Σ n, Σ n², Σ s, Σ s²
    and Σ s n, over texts with sums s and divisors n, of which N have n > 0
    """
    with np.errstate(divide="ignore", invalid="ignore"):  # n may be 0
        mean = np.asarray(s / n)
        squares = np.maximum(ss - 2 * mean * sn + mean**2 * nn, 0.0)
        return mean, np.where(N > 1, np.sqrt(N / (N - 1) * squares) / n, np.nan)


def window_number(text: int, start: int) -> int:
    """A window's number; numbers are in corpus order."""
    return (text << TOKEN_BITS) + start


class Window(NamedTuple):
    """A part of a text that is traced at once."""

    text: str  # the text's name, such as "line 7"
    start: int  # position of its first token in the text
    ids: list[int]
    content: str


# What JSON has of a tally.
STORED = {
    "texts": int,
    "tokens": int,
    "faults": [(str, str)],
    "windows": [(int, str, int, [int], str)],  # a number and a `Window`
}


class Tally:
    """Sums over texts for C columns: one per measure and head, one for loss.

    Attributes
    ----------
    sums : "moments", (6, C), over texts with sums s and divisors n (see `measures.Sums`): the
        number of texts with n > 0, Σ s, Σ n, Σ s², Σ s n, Σ n²; and those of a plan of heads,
        float32 for a chunk, to halve its file
    ranks : (2, EXTREMES, C), sort keys of the extreme passages, ascending: -value for the largest,
        value for the smallest, inf for missing ones
    passages : of the same shape, the windows' numbers
    tops : (at most TOPS, L H), the top texts of each head, see `Plan.top`
    windows : those of passages and tops, by number
    texts, tokens : how many were measured
    faults : name and reason for each text that could not be measured
    """

    def __init__(
        self, columns: int, plan: Plan | None = None, dtype: DTypeLike = np.float64
    ) -> None:
        self.plan = plan  # see `atlas(heads=True)`
        self.sums: dict[str, AnyArray] = {"moments": np.zeros((6, columns))}
        self.sums |= {} if plan is None else plan.sums(dtype)
        self.ranks = np.full((2, EXTREMES, columns), np.inf)
        self.passages = np.full((2, EXTREMES, columns), NO_PASSAGE)
        self.tops = np.zeros((0, 0) if plan is None else (0, plan.heads), plan and plan.top)
        self.windows: dict[int, Window] = {}
        self.texts = self.tokens = 0
        self.faults: list[tuple[str, str]] = []

    def add_text(self, s: NDArray[np.float64], n: NDArray[np.float64]) -> None:
        """Add one text's sums s and divisors n, (C,) each."""
        self.sums["moments"] += np.stack([(n > 0).astype(np.float64), s, n, s * s, s * n, n * n])
        self.texts += 1

    def add_window(self, number: int, window: Window, sums: AnyArray, divisors: AnyArray) -> None:
        """Keep a window of a text where its values are among the extremes."""
        value = np.divide(sums, divisors, out=np.full(sums.shape, np.nan), where=divisors > 0)
        rank = np.where(np.isnan(value), np.inf, np.stack([-value, value]))[:, np.newaxis]
        self.windows[number] = window
        self.tokens += len(window.ids)
        self._keep(rank, np.where(np.isinf(rank), NO_PASSAGE, number))

    def add(self, later: Tally) -> None:
        """Add the tally of later texts; what only one of the two has of heads is left out."""
        for name in self.sums.keys() & later.sums.keys():
            self.sums[name] += later.sums[name]
        self.texts += later.texts
        self.tokens += later.tokens
        self.faults += later.faults
        self.windows |= later.windows
        if self.plan is not None and later.tops.size:
            self.tops = largest_of(self.tops, later.tops)
        self._keep(later.ranks, later.passages)

    def _keep(self, ranks: AnyArray, passages: AnyArray) -> None:
        """Keep the extremes and later ones that exceed them; ties go to the earlier passage."""
        ranks = np.concatenate([self.ranks, ranks], axis=1)
        passages = np.concatenate([self.passages, passages], axis=1)
        lowest = np.argsort(ranks, axis=1, kind="stable")[:, :EXTREMES]
        self.ranks = np.take_along_axis(ranks, lowest, 1)
        self.passages = np.take_along_axis(passages, lowest, 1)
        kept = {*np.unique(self.passages).tolist()}
        if self.tops.size:
            kept |= {*np.unique(self.tops["number"]).tolist()}
        self.windows = {number: window for number, window in self.windows.items() if number in kept}

    def to_store(self) -> tuple[dict[str, AnyArray], dict[str, Any]]:
        """The arrays of a file, records as bytes, and its JSON."""
        arrays = {**self.sums, "ranks": self.ranks, "passages": self.passages}
        if self.plan is not None:
            arrays["tops"] = np.ascontiguousarray(self.tops)[..., np.newaxis].view(np.uint8)
        windows = [[number, *window] for number, window in sorted(self.windows.items())]
        about = {"texts": self.texts, "tokens": self.tokens, "faults": self.faults}
        return arrays, {**about, "windows": windows}

    @classmethod
    def from_stored(
        cls, arrays: Mapping[str, AnyArray], about: Any, columns: int, plan: Plan | None = None
    ) -> Self:
        """Restore a tally from what `to_store` returns; raise if it can't be one."""
        require(fits(about, STORED), "list of texts or windows")
        array_of(arrays, "moments", np.float64, (6, columns))  # before memory is taken for more
        tally = cls(columns, plan, np.float32)
        for name, sums in tally.sums.items():
            tally.sums[name] = array_of(arrays, name, sums.dtype, sums.shape)
            require(np.isfinite(tally.sums[name]).all(), name)
        tally.ranks = array_of(arrays, "ranks", np.float64, tally.ranks.shape)
        tally.passages = array_of(arrays, "passages", np.int64, tally.ranks.shape)
        tally.texts, tally.tokens = about["texts"], about["tokens"]
        tally.faults = [(name, reason) for name, reason in about["faults"]]
        tally.windows = {number: Window(*window) for number, *window in about["windows"]}
        require((tally.sums["moments"][[0, 2, 3, 5]] >= 0).all(), "moments")
        is_missing = tally.passages == NO_PASSAGE
        require((is_missing != np.isfinite(tally.ranks)).all(), "ranks")
        require({*tally.passages[~is_missing].tolist()} <= tally.windows.keys(), "passages")
        if plan is not None:
            shape = (None, plan.heads, plan.top.itemsize)
            tally.tops = array_of(arrays, "tops", np.uint8, shape).view(plan.top)[..., 0]
            require(len(tally.tops) <= TOPS and all(map(tally._fits, tally.tops.flat)), "tops")
        return tally

    def _fits(self, top: Any) -> bool:
        """Whether a top text is a part of one of the windows, with lines between its tokens."""
        window, start, end = self.windows.get(int(top["number"])), top["start"], top["end"]
        if window is None or not 0 <= start < end <= len(window.ids) or not top["strength"] >= 0:
            return False
        query, key, excess = (top["lines"][x] for x in ("query", "key", "excess"))
        is_drawn = excess >= NOTABLE  # other lines may be of keys that the query doesn't see
        first, last = np.where(is_drawn, start, 0), np.where(is_drawn, end, len(window.ids))
        is_valid = (first <= query) & (query < last) & (key >= 0) & (key < last)
        return bool(is_valid.all())


def write_arrays(path: FilePath, arrays: Mapping[str, AnyArray], about: Any) -> None:
    """Write arrays and what JSON can hold to a file, atomically."""
    from safetensors.numpy import save  # here, so that `import attnlab` is quick

    stored = {name: np.array(array, order="C") for name, array in arrays.items()}
    stored[JSON] = np.frombuffer(json.dumps(about).encode(), np.uint8)
    write_atomically(path, save(stored))


def read_arrays(path: Path, error_type: type[AttnlabError]) -> tuple[dict[str, AnyArray], Any]:
    """Read what `write_arrays` wrote: the arrays by name, and the JSON's value."""
    from safetensors.numpy import load

    with (
        reading(path, error_type),
        open_regular(path) as stream,
        reraised_as(error_type, f"{path} can't be read"),
    ):
        arrays = load(stream.read())
        if JSON not in arrays:
            raise error_type(f"{path} can't be read: another version or program wrote it")
        return arrays, json.loads(arrays.pop(JSON).tobytes())


def require(is_valid: object, name: str) -> None:
    """Raise unless a part of a file is valid."""
    if not is_valid:
        raise InvalidValueError(f"its {name} is invalid")


def array_of(
    arrays: Mapping[str, AnyArray], name: str, dtype: DTypeLike, shape: tuple[int | None, ...]
) -> AnyArray:
    """An array of a file; raise unless it has this dtype and shape, of which None is any length."""
    array = arrays.get(name)
    if array is None or array.dtype != dtype or array.ndim != len(shape):
        raise InvalidValueError(f"it has no {name} of dtype {np.dtype(dtype)}")
    require(all(n == m or m is None for n, m in zip(array.shape, shape, strict=True)), name)
    return array


def fits(value: Any, kind: Any) -> bool:
    """Whether a value of JSON has this form.

    The form is int (of at least 0), float or str; [kind] for a list; (kind, kind) for a list of as
    many values; {name: kind} for an object with these names.
    """
    if isinstance(kind, list):
        return isinstance(value, list) and all(fits(each, kind[0]) for each in value)
    if isinstance(kind, tuple):
        is_list = isinstance(value, list) and len(value) == len(kind)
        return is_list and all(map(fits, value, kind))
    if isinstance(kind, dict):
        is_object = isinstance(value, dict) and value.keys() == kind.keys()
        return is_object and all(fits(value[name], kind[name]) for name in kind)
    if kind is str:  # without lone surrogates, which can't be written anywhere
        return isinstance(value, str) and value == value.encode(errors="replace").decode()
    if kind is int:
        return type(value) is int and 0 <= value < 2**63
    return type(value) is kind
