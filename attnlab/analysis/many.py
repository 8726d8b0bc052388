"""Numbers of many texts: means over the texts, with standard errors.

Texts of one length are computed side by side; see `attnlab.model.traces`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlab.equations import AnyArray
from attnlab.errors import InvalidValueError


def standard_error(numbers: AnyArray) -> NDArray[np.float64]:
    """The standard error of the mean over the first axis; NaN for one number."""
    n = len(numbers)
    if n == 1:
        return np.full(numbers.shape[1:], math.nan)
    return np.asarray(numbers.std(axis=0, ddof=1) / math.sqrt(n))


def ratio_of_means(effects: AnyArray, totals: AnyArray) -> tuple[Any, Any]:
    """Σ effects (n, m) / Σ totals (n,) over n texts, and its standard error, (m,) each.

    √(Σ e² / (n (n - 1))) / |mean of totals|, where e = effect - ratio · total

    Source: Cochran, “Sampling Techniques” (1977), chapter 6, by linearisation.
    """
    if not totals.mean():
        raise InvalidValueError("the mean change over these texts is 0: nothing to restore")
    ratio = effects.mean(axis=0) / totals.mean()
    return ratio, standard_error(effects - ratio * totals[:, np.newaxis]) / abs(totals.mean())
