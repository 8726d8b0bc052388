"""Colour scales: how numbers become colours, in the same way in every view.

`intensity` and `palette_index` are also translated to JavaScript, by `pages.translate`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from attnlab.equations import AnyArray

# The number of colours on each side of zero in a palette.
SHADES = 127


def intensity(x: Any, bound: float, is_sqrt: bool) -> Any:
    """How strong the colour of x is: 0 where x is 0, 1 where |x| is at least the bound."""
    fraction = np.minimum(np.abs(x) / bound, 1.0)
    return np.sqrt(fraction) if is_sqrt else fraction


def palette_index(x: Any, bound: float, is_sqrt: bool) -> Any:
    """The index of x's colour, see `Theme.palette`; halves of an index round away from SHADES."""
    return np.copysign((intensity(x, bound, is_sqrt) * SHADES + 0.5) // 1.0, x) + SHADES


@dataclass(frozen=True)
class Scale:
    """The range of numbers that a palette covers."""

    bound: float  # the number with the strongest colour
    is_sqrt: bool  # intensity is √(|x| / bound), which makes small weights visible
    is_signed: bool  # the legend starts at -bound instead of 0
    ticks: tuple[float, ...]  # numbers beside the legend
    note: str = ""  # text beside the legend, in English

    @classmethod
    def of(cls, array: AnyArray) -> Scale:
        """The linear scale that fits an array; it is signed if any number is negative."""
        finite = array[np.isfinite(array)].astype(np.float64)
        bound = float(np.abs(finite).max(initial=0)) or 1.0
        is_signed = bool((finite < 0).any())
        ticks = (-bound, 0.0, bound) if is_signed else (0.0, bound)
        return cls(bound, is_sqrt=False, is_signed=is_signed, ticks=ticks)

    def palette_indices(self, x: ArrayLike) -> AnyArray:
        """The index of each number's colour in a palette; NaN counts as 0."""
        numbers = np.nan_to_num(np.asarray(x, np.float64))
        return np.asarray(palette_index(numbers, self.bound, self.is_sqrt)).astype(np.intp)

    @property
    def boundaries(self) -> AnyArray:
        """The numbers at which the legend's n colours begin and end, ascending, (n + 1,)."""
        fractions = (np.arange(SHADES) + 0.5) / SHADES
        above = self.bound * (fractions**2 if self.is_sqrt else fractions)  # inverts `intensity`
        below = [-self.bound, *-above[::-1]] if self.is_signed else [0.0]
        return np.array([*below, *above, self.bound])


# Scales for attention weights and for differences of weights. All heads have the same scale, so
# that colours are comparable.
WEIGHTS = Scale(
    1.0,
    is_sqrt=True,
    is_signed=False,
    ticks=(0.0, 0.01, 0.1, 0.25, 0.5, 1.0),
    note="colour by √weight",
)
DIFFERENCE = Scale(
    1.0,
    is_sqrt=True,
    is_signed=True,
    ticks=(-1.0, -0.25, 0.0, 0.25, 1.0),
    note="colour by √difference",
)

# The scale for tokens' probabilities in all texts.
PROBABILITIES = Scale(1.0, is_sqrt=False, is_signed=False, ticks=(0.0, 1.0))
