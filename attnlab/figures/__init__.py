"""Figures that others published or that were recorded elsewhere, and how close ours come.

| name | what | decimals | source |
| --- | --- | --- | --- |
| walkthrough | GPT-2, layer 0, head 0, on `It’s very hot in summer. Swimming is` | 4; 2 for scores and weights | orczhou.com, "understanding-llm-attention", 2025-12-31 |
| journey | "Your journey starts with one step", six tokens of three numbers | 6 | computed with PyTorch 2.13.0, float32 |
| cat_eats_fish | 猫 吃 鱼, three tokens of four numbers | 4 | the printed output of a tutorial's program |
| gpt3_parameters | GPT-3's attention and embedding parameters | exact | notes on 3Blue1Brown's chapter on attention |
"""  # noqa: E501 (a table)

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from attnlab.errors import DisagreementError, InvalidValueError

# float32 sums in another order differ by about this much.
FLOAT32_NOISE = 1e-6


@dataclass(frozen=True)
class Comparison:
    """How a table of recorded figures and the computed one compare.

    Attributes
    ----------
    name : the table's
    figures : how many figures were compared
    largest_difference : between a figure and its computed number; inf where one is -inf and the
        other is not, or the shapes differ
    tolerance : half a unit of the last printed decimal, and what float32 may add
    """

    name: str
    figures: int
    largest_difference: float
    tolerance: float

    @property
    def agrees(self) -> bool:
        return self.largest_difference <= self.tolerance

    def __str__(self) -> str:
        verdict = "agree" if self.agrees else "DO NOT agree"
        return (
            f"{self.name}: {self.figures} figure{'s' * (self.figures != 1)} {verdict}, "
            f"largest difference {self.largest_difference:.1e}"
        )


def load(name: str) -> dict[str, Any]:
    """The recorded figures of a name in the table above.

    Raises
    ------
    InvalidValueError
        There are none of that name.
    """
    file = files(__package__) / f"{name}.json"
    if not file.is_file():
        raise InvalidValueError(f"there are no recorded figures called {name!r}")
    figures: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return figures


def compare(name: str, computed: ArrayLike, recorded: ArrayLike, decimals: int) -> Comparison:
    """Hold computed numbers against recorded ones that were rounded to some decimals.

    Parameters
    ----------
    name : what the table is called
    computed, recorded : arrays of one shape; None in `recorded` stands for -inf
    decimals : how many the recorded figures have; 0 for integers
    """
    figures = np.array(recorded, dtype=np.float64)  # None becomes NaN
    expected = np.where(np.isnan(figures), -np.inf, figures)
    actual = np.asarray(computed, dtype=np.float64)
    if actual.shape != expected.shape:
        largest = np.inf
    else:
        both_infinite = np.isneginf(actual) & np.isneginf(expected)
        with np.errstate(invalid="ignore"):  # -inf - -inf, which is no difference
            difference = np.where(both_infinite, 0.0, np.abs(actual - expected))
        largest = float(np.max(np.where(np.isnan(difference), np.inf, difference)))
    return Comparison(name, expected.size, largest, 0.5 * 10.0**-decimals + FLOAT32_NOISE)


def check(name: str, computed: ArrayLike, recorded: ArrayLike, decimals: int) -> Comparison:
    """`compare`, and an error where the numbers do not agree.

    Raises
    ------
    DisagreementError
        They do not.
    """
    comparison = compare(name, computed, recorded, decimals)
    if not comparison.agrees:
        raise DisagreementError(str(comparison))
    return comparison
