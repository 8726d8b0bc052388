"""Metrics of a clean and a corrupted trace, or of several pairs of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlab.analysis.base import Target, TargetLike
from attnlab.equations import AnyArray
from attnlab.errors import InvalidTypeError, InvalidValueError, quoted
from attnlab.model.trace import Trace
from attnlab.model.traces import Traces, value_for_each
from attnlab.support.checks import as_number, errors_of, is_real
from attnlab.support.console import progress_bar
from attnlab.support.messages import Message

# What patching measures: a target, or a function of a trace.
Metric = Callable[[Any], float] | TargetLike


def parse_metric(
    trace: Trace, metric: Any, at: int | str
) -> tuple[Callable[[Trace], Any], str, Target | None]:
    """A metric's function, description, and Target, which is None for a user's function."""
    if callable(metric):
        if at != -1:
            raise InvalidTypeError("at= is for a token or a pair; a function reads any position")
        return metric, getattr(metric, "__name__", quoted(metric)), None
    target = Target.of(trace, metric, at)
    return target.value, target.message, target


def describe_metric(traces: Traces, metric: Any, at: int | str) -> str:
    """Describe in words the metric of several pairs."""
    if isinstance(metric, list):
        return Message("a target for each pair")
    _, description, target = parse_metric(traces[0], metric, at)
    return target.logit_message if target else description


def as_metric(measured: Any) -> float:
    """Check a metric's result, and return it as a float."""
    measured = as_number(measured)
    if not is_real(measured):
        raise InvalidTypeError(f"target must return a number; got {quoted(measured)}")
    if not math.isfinite(measured):
        raise InvalidValueError(f"target must return a finite number; got {measured}")
    return float(measured)


def check_traces(clean: Trace, corrupted: Trace, note: str = "") -> None:
    """Raise unless one trace can be patched into the other; `note` ends the message."""
    for trace in (clean, corrupted):
        if not isinstance(trace, Trace):
            raise InvalidTypeError(
                "clean and corrupted must be traces, as model.trace returns them; got "
                f"{type(trace).__name__}"
            )
    if clean.config != corrupted.config or len(clean.tokens) != len(corrupted.tokens):
        raise InvalidValueError(
            "clean and corrupted must have the same model and number of tokens; got "
            f"{clean.title} and {corrupted.title}{note}"
        )
    if not clean.parameters.equals(corrupted.parameters):
        raise InvalidValueError(
            f"clean and corrupted must be traces by one model; their parameters differ{note}"
        )


def baselines_of(
    measure: Callable[[Trace], Any], clean: Trace, corrupted: Trace
) -> tuple[float, float]:
    """The metric's values in both traces; raise if the values are equal."""
    baselines = as_metric(measure(clean)), as_metric(measure(corrupted))
    if baselines[0] == baselines[1]:
        raise InvalidValueError(
            f"the target is {baselines[0]:.4g} in both traces, so there is nothing to restore"
        )
    return baselines


# ---- several pairs -------------------------------------------------------------------------------


def check_pairs(clean: Any, corrupted: Any) -> tuple[Traces, Traces]:
    """Check that both are traces of several texts, in pairs of equal length, and return both."""
    for traces in (clean, corrupted):
        if not isinstance(traces, Traces):
            raise InvalidTypeError(
                "clean and corrupted must both be traces of one text, or both of several, as "
                f"model.trace returns them; got {type(traces).__name__}"
            )
    if len(clean) != len(corrupted):
        raise InvalidValueError(
            f"clean and corrupted must have the same number of texts; got {len(clean)} and "
            f"{len(corrupted)}"
        )
    for number in range(len(clean)):
        check_traces(clean[number], corrupted[number], f" (pair {number})")
    return clean, corrupted


def standard_error(numbers: AnyArray) -> NDArray[np.float64]:
    """The standard error of the mean over the first axis; NaN for one number."""
    n = len(numbers)
    if n == 1:
        return np.full(numbers.shape[1:], math.nan)
    return np.asarray(numbers.std(axis=0, ddof=1) / math.sqrt(n))


def ratio_of_means(effects: AnyArray, totals: AnyArray) -> tuple[Any, Any]:
    """The ratios Σ effects / Σ totals over n texts, and their standard errors, both (m,).

    error = √(Σ e² / (n (n - 1))) / |mean of totals|, where e = effect - ratio · total. `effects`
    are (n, m), m effects in each text; `totals` are (n,).

    Source: Cochran, “Sampling Techniques” (1977), chapter 6, by linearisation.
    """
    if not totals.mean():
        raise InvalidValueError("the mean change over these texts is 0: nothing to restore")
    ratio = effects.mean(axis=0) / totals.mean()
    return ratio, standard_error(effects - ratio * totals[:, np.newaxis]) / abs(totals.mean())


def effects_of_pairs(
    clean: Traces,
    corrupted: Traces,
    metric: Any,
    analyse: Callable[..., Any],
    progress: bool = False,
) -> tuple[AnyArray, AnyArray]:
    """Patch n pairs: effects (n, patches), and the metric in clean and corrupted traces (2, n).

    `analyse(clean, corrupted, target=...)` patches one pair. Pairs of equal length form a group,
    whose traces are freed together.
    """
    metrics = value_for_each(metric, len(clean), "target")
    results: dict[int, Any] = {}
    with progress_bar(progress, total=len(clean), unit="pair") as bar:
        for indices in clean._groups():
            sides = (side._side_by_side(indices)[1] for side in (clean, corrupted))
            for i, *pair in zip(indices, *sides, strict=True):
                with errors_of(f"pair {i}"):
                    results[i] = analyse(*pair, target=metrics[i])
                bar.update()
    in_order = [results[i] for i in range(len(clean))]
    baselines = np.array([(result.clean, result.corrupted) for result in in_order]).T
    restored = np.array([result.restored.ravel() for result in in_order])
    totals = baselines[0] - baselines[1]  # target(clean) - target(corrupted)
    return restored * totals[:, np.newaxis], baselines
