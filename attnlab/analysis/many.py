"""Numbers of many texts: means over the texts, with standard errors.

Texts of one length are computed side by side; see `attnlab.model.traces`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from attnlab.equations import AnyArray
from attnlab.errors import InvalidValueError
from attnlab.model.trace import Trace
from attnlab.model.traces import Traces
from attnlab.steps import read_only


def as_result(numbers: AnyArray) -> Any:
    """An array as a result has it: read-only, or a float if it has no axes."""
    return read_only(numbers) if numbers.ndim else float(numbers)


def standard_error(numbers: AnyArray) -> NDArray[np.float64]:
    """The standard error of the mean over the first axis; NaN for one number."""
    n = len(numbers)
    if n == 1:
        return np.full(numbers.shape[1:], math.nan)
    return np.asarray(numbers.std(axis=0, ddof=1) / math.sqrt(n))


class MeansOfTexts:
    """A result for one text, or of means over several: a base class of analyses.

    Attributes
    ----------
    averaged : the names of the attributes that are averaged
    each : the result of each text
    standard_errors : of the means over texts, by attribute name; NaN for one text
    """

    averaged: ClassVar[tuple[str, ...]]

    _each: tuple[Self, ...] = ()

    def _average(self, traces: Traces, result_of: Callable[[int, Trace], Self]) -> None:
        """Set the means of results; a function has them by the index and the trace of a text."""
        each: dict[int, Self] = {}
        for indices in traces._groups():
            for i, trace in zip(indices, traces._side_by_side(indices)[1], strict=True):
                each[i] = result_of(i, trace)
        self._each = tuple(each[i] for i in range(len(traces)))
        for name in self.averaged:
            setattr(self, name, as_result(self._of_each(name).mean(axis=0)))

    def _of_each(self, name: str) -> AnyArray:
        """An attribute of each text's result, (n, ...)."""
        return np.array([getattr(result, name) for result in self.each], float)

    @property
    def each(self) -> tuple[Self, ...]:
        return self._each or (self,)

    @cached_property
    def standard_errors(self) -> dict[str, Any]:
        return {name: as_result(standard_error(self._of_each(name))) for name in self.averaged}


def ratio_of_means(effects: AnyArray, totals: AnyArray) -> tuple[Any, Any]:
    """Σ effects (n, m) / Σ totals (n,) over n texts, and its standard error, (m,) each.

    √(Σ e² / (n (n - 1))) / |mean of totals|, where e = effect - ratio · total

    Source: Cochran, “Sampling Techniques” (1977), chapter 6, by linearisation.
    """
    if not totals.mean():
        raise InvalidValueError("the mean change over these texts is 0: nothing to restore")
    ratio = effects.mean(axis=0) / totals.mean()
    return ratio, standard_error(effects - ratio * totals[:, np.newaxis]) / abs(totals.mean())
