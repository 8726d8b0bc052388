"""How numbers become colours: the same scale in every view.

The page computes `strength` and `place` too: `page.translate` makes JavaScript of them.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from attnlab.equations import AnyArray

# How many colours a palette has on each side of zero's.
SHADES = 127


def strength(x: Any, bound: float, by_root: bool) -> Any:
    """How strong the colours of numbers are: 0 at zero, 1 at the bound and beyond it."""
    part = np.minimum(np.abs(x) / bound, 1.0)
    return np.sqrt(part) if by_root else part


def place(x: Any, bound: float, by_root: bool) -> Any:
    """The index of each number's colour in a palette, `Theme.palette`."""
    return np.copysign((strength(x, bound, by_root) * SHADES + 0.5) // 1.0, x) + SHADES


@dataclass(frozen=True)
class Scale:
    """The numbers that a palette stands for.

    Attributes
    ----------
    bound : the number with the strongest colour
    by_root : whether colours go by the root of |x| / bound, so that small weights differ from none
    is_signed : whether the legend begins at -bound, not at 0
    ticks : the numbers beside the legend
    note : what the legend says in words, English
    """

    bound: float
    by_root: bool
    is_signed: bool
    ticks: tuple[float, ...]
    note: str = ""

    @classmethod
    def of(cls, array: AnyArray) -> Scale:
        """The scale of any numbers: from zero, or around it where some are negative."""
        finite = array[np.isfinite(array)].astype(np.float64)
        bound = float(np.abs(finite).max(initial=0)) or 1.0
        is_signed = bool((finite < 0).any())
        return cls(bound, False, is_signed, (-bound, 0.0, bound) if is_signed else (0.0, bound))

    def places(self, x: ArrayLike) -> AnyArray:
        """The index of each number's colour in a palette; NaN has zero's."""
        places = place(np.nan_to_num(np.asarray(x, np.float64)), self.bound, self.by_root)
        return np.asarray(places).astype(np.intp)

    @property
    def limits(self) -> AnyArray:
        """The numbers between which the colours of the legend lie, (n + 1,) of n colours."""
        part = (np.arange(SHADES) + 0.5) / SHADES
        above = self.bound * (part**2 if self.by_root else part)
        below = [-self.bound, *-above[::-1]] if self.is_signed else [0.0]
        return np.array([*below, *above, self.bound])

    def as_data(self) -> dict[str, Any]:
        """The scale for the page."""
        return asdict(self)


# Of weights, and of what one head's are more than another's: the same for all heads.
WEIGHTS = Scale(1.0, True, False, (0.0, 0.01, 0.1, 0.25, 0.5, 1.0), "colour by √weight")
DIFFERENCE = Scale(1.0, True, True, (-1.0, -0.25, 0.0, 0.25, 1.0), "colour by √difference")
