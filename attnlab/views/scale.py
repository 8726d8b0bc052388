"""How numbers become colours, the same in every view.

`page.translate` translates `strength` and `place` to JavaScript.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from attnlab.equations import AnyArray

# The number of colours in a palette on each side of zero.
SHADES = 127


def strength(x: Any, bound: float, by_root: bool) -> Any:
    """Strength of the colours: 0 at zero, 1 at the bound and beyond."""
    part = np.minimum(np.abs(x) / bound, 1.0)
    return np.sqrt(part) if by_root else part


def place(x: Any, bound: float, by_root: bool) -> Any:
    """The index of each number's colour in a palette, `Theme.palette`."""
    return np.copysign((strength(x, bound, by_root) * SHADES + 0.5) // 1.0, x) + SHADES


@dataclass(frozen=True)
class Scale:
    """The range of numbers that a palette covers.

    Attributes
    ----------
    bound : the number with the strongest colour
    by_root : strength is the root of |x| / bound, which sets small weights apart from 0
    is_signed : the legend starts at -bound instead of 0
    ticks : numbers beside the legend
    note : text beside the legend, in English
    """

    bound: float
    by_root: bool
    is_signed: bool
    ticks: tuple[float, ...]
    note: str = ""

    @classmethod
    def of(cls, array: AnyArray) -> Scale:
        """The scale that fits an array: from 0, or symmetric if some numbers are negative."""
        finite = array[np.isfinite(array)].astype(np.float64)
        bound = float(np.abs(finite).max(initial=0)) or 1.0
        is_signed = bool((finite < 0).any())
        return cls(bound, False, is_signed, (-bound, 0.0, bound) if is_signed else (0.0, bound))

    def places(self, x: ArrayLike) -> AnyArray:
        """The index of each number's colour in a palette; NaN counts as 0."""
        places = place(np.nan_to_num(np.asarray(x, np.float64)), self.bound, self.by_root)
        return np.asarray(places).astype(np.intp)

    @property
    def limits(self) -> AnyArray:
        """The boundaries between the legend's n colours, (n + 1,)."""
        part = (np.arange(SHADES) + 0.5) / SHADES
        above = self.bound * (part**2 if self.by_root else part)
        below = [-self.bound, *-above[::-1]] if self.is_signed else [0.0]
        return np.array([*below, *above, self.bound])

    def as_data(self) -> dict[str, Any]:
        """The scale for the page."""
        return asdict(self)


# Scales of weights and of their differences; the same for all heads, so they are comparable.
WEIGHTS = Scale(1.0, True, False, (0.0, 0.01, 0.1, 0.25, 0.5, 1.0), "colour by √weight")
DIFFERENCE = Scale(1.0, True, True, (-1.0, -0.25, 0.0, 0.25, 1.0), "colour by √difference")

# Of probabilities of tokens; the same for all texts.
PROBABILITIES = Scale(1.0, False, False, (0.0, 1.0))
