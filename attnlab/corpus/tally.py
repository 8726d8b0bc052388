"""Sums and extreme passages of texts, in constant memory, and the files that store them.

A mean is a ratio, r = Σ sums / Σ divisors. The standard error of r follows from
Σ (sums - r divisors)², which is computed from sums of squares and products. Tallies are added in
chunk order, as floating-point sums depend on order.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

from attnlab.corpus.heads import Plan, strongest
from attnlab.equations import AnyArray
from attnlab.errors import AtlasError, InvalidValueError
from attnlab.support.checks import reraised_as
from attnlab.support.files import FilePath, open_regular, reading, write_atomically
from attnlab.support.sink import NOTABLE

MIN_TEXTS = 10  # with fewer texts, standard errors are unreliable

# For each measure and head, the number of passages that are kept with the largest values, and also
# with the smallest values.
EXTREMES = 3

# A passage: its strength, which is its value, or -value if it is one of the smallest, and the
# number of its window, -1 for a placeholder (see `missing`).
PASSAGE = np.dtype([("strength", "f8"), ("number", "i8")])

# In a file, the name of the array that has JSON as bytes.
JSON = "about"


def ratio(
    N: Any, sum_n: Any, sum_nn: Any, sum_s: Any, sum_ss: Any, sum_sn: Any
) -> tuple[AnyArray, AnyArray]:
    """The mean Σ s / Σ n over N texts, and its standard error, NaN with fewer than two texts.

    A text has a sum s and a divisor n > 0. variance = N / (N - 1) Σ (s - mean n)² / (Σ n)²
    """
    with np.errstate(divide="ignore", invalid="ignore"):  # sum_n may be 0
        mean = np.asarray(sum_s / sum_n)
        # Σ (s - mean n)², at least 0 despite rounding.
        squares = np.maximum(sum_ss - 2 * mean * sum_sn + mean**2 * sum_nn, 0.0)
        return mean, np.where(N > 1, np.sqrt(N / (N - 1) * squares) / sum_n, np.nan)


class Window(NamedTuple):
    """A part of a text that is traced at once."""

    text: str  # the text's name, such as "line 7"
    start: int  # position of the window's first token in the text
    ids: list[int]
    content: str


class Tally:
    """Sums over texts for C columns: one for each measure and head, and one for the loss.

    Attributes
    ----------
    sums : arrays by name. The six rows of "moments" (6, C) are the number of texts with n > 0,
        Σ s, Σ n, Σ s², Σ s n and Σ n², over texts with sums s and divisors n (see `measures.Sums`).
        A plan of heads adds more arrays. In a chunk's tally these are float32, which halves the
        chunk's file.
    best : records by name, strongest first. "extremes" (EXTREMES, 2, C) has the passages with the
        largest values, [:, 0], and with the smallest values, [:, 1]. A plan of heads adds "tops"
        (TOPS, L H), each head's top texts.
    windows : the windows that `best` refers to, by number, in corpus order
    texts, tokens : the numbers of measured texts and tokens
    faults : name and reason for each text that could not be measured
    """

    def __init__(
        self, columns: int, plan: Plan | None = None, dtype: DTypeLike = np.float64
    ) -> None:
        self.sums: dict[str, AnyArray] = {"moments": np.zeros((6, columns))}
        self.best: dict[str, AnyArray] = {"extremes": missing((EXTREMES, 2, columns))}
        if plan is not None:  # see `atlas(heads=True)`
            self.sums |= plan.sums(dtype)
            self.best["tops"] = plan.no_tops()
        self.windows: dict[int, Window] = {}
        self.texts = self.tokens = 0
        self.faults: list[tuple[str, str]] = []

    def add_text(self, s: NDArray[np.float64], n: NDArray[np.float64]) -> None:
        """Add one text's sums s and divisors n, (C,) each."""
        self.sums["moments"] += np.stack([n > 0, s, n, s * s, s * n, n * n])
        self.texts += 1

    def add_window(self, number: int, window: Window, sums: AnyArray, divisors: AnyArray) -> None:
        """Enter a window's values into the extremes; keep the window if a value is extreme."""
        values = np.divide(sums, divisors, out=np.full(sums.shape, np.nan), where=divisors > 0)
        new = missing((1, 2, *values.shape))
        # Among the largest, a value's strength is the value; among the smallest it is -value.
        new["strength"] = np.where(np.isnan(values), -np.inf, [values, -values])
        new["number"] = np.where(np.isinf(new["strength"]), -1, number)
        self.best["extremes"] = strongest(self.best["extremes"], new)
        self.windows[number] = window
        self.tokens += len(window.ids)
        self._drop_windows()

    def add(self, later: Tally) -> None:
        """Add the tally of later texts; skip sums that only one of the tallies has."""
        for name in self.sums.keys() & later.sums.keys():
            self.sums[name] += later.sums[name]
        for name in self.best.keys() & later.best.keys():
            self.best[name] = strongest(self.best[name], later.best[name])
        self.texts += later.texts
        self.tokens += later.tokens
        self.faults += later.faults
        self.windows |= later.windows
        self._drop_windows()

    def _drop_windows(self) -> None:
        """Drop the windows that no passage and no top text refers to any more."""
        kept = {n for best in self.best.values() for n in np.unique(best["number"]).tolist()}
        self.windows = {number: window for number, window in self.windows.items() if number in kept}

    def to_store(self) -> tuple[dict[str, AnyArray], dict[str, Any]]:
        """The arrays that a file stores, with records viewed as bytes, and data for its JSON."""
        records = {
            name: np.ascontiguousarray(best)[..., np.newaxis].view(np.uint8)
            for name, best in self.best.items()
        }
        windows = [[number, *window] for number, window in sorted(self.windows.items())]
        about = {"texts": self.texts, "tokens": self.tokens, "faults": self.faults}
        return self.sums | records, about | {"windows": windows}

    @classmethod
    def from_stored(
        cls, arrays: Mapping[str, AnyArray], about: Any, columns: int, plan: Plan | None = None
    ) -> Self:
        """Restore a tally from what `to_store` returned; raise if the data is invalid."""
        # The shape of "moments" determines the shapes of all arrays, so it is checked before memory
        # is allocated.
        require(arrays["moments"].shape == (6, columns), "moments")
        tally = cls(columns, plan, np.float32)
        for name, expected in tally.to_store()[0].items():
            array = arrays[name]
            has_form = (array.dtype, array.shape) == (expected.dtype, expected.shape)
            require(has_form and np.isfinite(array).all(), name)
        tally.sums = {name: arrays[name] for name in tally.sums}
        tally.best = {name: arrays[name].view(x.dtype)[..., 0] for name, x in tally.best.items()}
        tally.texts, tally.tokens = int(about["texts"]), int(about["tokens"])
        tally.faults = [(str(name), str(reason)) for name, reason in about["faults"]]
        tally.windows = {
            int(number): Window(str(name), int(start), [*map(int, ids)], str(content))
            for number, name, start, ids, content in about["windows"]
        }
        numbers = {*np.unique(tally.best["extremes"]["number"]).tolist()}
        require(numbers <= {-1, *tally.windows}, "extremes")
        require(plan is None or all(map(tally._has, tally.best["tops"].flat)), "tops")
        return tally

    def _has(self, top: Any) -> bool:
        """Whether a top text is part of a kept window, and its lines join tokens of the window."""
        if not top["strength"] > 0:
            return True  # it is a placeholder
        window, start, end = self.windows.get(int(top["number"])), top["start"], top["end"]
        if window is None or not 0 <= start < end <= len(window.ids):
            return False
        lines = top["lines"][top["lines"]["excess"] >= NOTABLE]  # other lines aren't drawn
        query, key = lines["query"], lines["key"]
        return bool(((start <= query) & (key >= 0) & (np.maximum(query, key) < end)).all())


def missing(shape: tuple[int, ...]) -> AnyArray:
    """Placeholders for passages; any real passage is stronger."""
    return np.full(shape, np.array((-np.inf, -1), PASSAGE))


def write_arrays(path: FilePath, arrays: Mapping[str, AnyArray], about: Any) -> None:
    """Write arrays, and `about` as JSON, to a file atomically."""
    from safetensors.numpy import save  # imported late, so that `import attnlab` is quick

    stored = {name: np.array(array, order="C") for name, array in arrays.items()}
    stored[JSON] = np.frombuffer(json.dumps(about).encode(), np.uint8)
    write_atomically(path, save(stored))


def read_arrays(path: Path) -> tuple[dict[str, AnyArray], Any]:
    """Read a file of `write_arrays`: the arrays by name, and the JSON's value."""
    from safetensors.numpy import load

    with (
        reading(path, AtlasError),
        open_regular(path) as stream,
        reraised_as(AtlasError, f"{path} can't be read"),
    ):
        arrays = load(stream.read())
        if JSON not in arrays:
            raise AtlasError(f"{path} can't be read: another version or program wrote it")
        about = json.loads(arrays.pop(JSON).tobytes())
        json.dumps(about, ensure_ascii=False).encode()  # raises if a text can't be UTF-8
        return arrays, about


def require(is_valid: object, name: str) -> None:
    """Raise unless a part of a file is valid."""
    if not is_valid:
        raise InvalidValueError(f"its {name} is invalid")
