"""Activation patching, and attribution patching, its linear approximation."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from itertools import groupby, islice, pairwise, product
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from attnlab.analysis.base import (
    Analysis,
    Named,
    Target,
    Trace,
    Traces,
    TraceSequence,
    heads_axis,
    named_axis,
    numbered_axis,
    positions_of,
)
from attnlab.analysis.gradients import Gradients
from attnlab.equations import AnyArray
from attnlab.errors import InvalidTypeError, InvalidValueError, quoted
from attnlab.forward.edits import batched, changed_step, check_paths
from attnlab.steps import Graph, Result, at, read_only
from attnlab.support.checks import as_number, is_real
from attnlab.support.console import progress_bar
from attnlab.support.messages import Message
from attnlab.views.shown import Axis

HEADS = "blocks.*.attention.heads.*.context"

# Tokens of patched runs in a batch: enough for fast matrix products, with little memory.
TOKENS_AT_ONCE = 256

# A path, and the rows that are patched.
Patch = tuple[str, slice]

# A function of a trace; or a token, for its logit; or two tokens, for the difference of logits.
Metric = Callable[[Any], float] | Named | tuple[Named, Named]


class Patching(Analysis):
    """How much each patched step restores, as `attnlab.patch` returns it.

    Attributes
    ----------
    restored : float64, with an axis for each * in the path, and one for positions if patched one at
        a time. 0 means that nothing is restored, 1 that everything is; values below 0 and above 1
        are possible.
    clean, corrupted : the metric in the two traces
    paths : of the patched steps, in the order of `restored` without positions
    """

    meaning: ClassVar[str] = (
        "Each number is how much of the metric one patch restores: 0 is nothing, 1 is everything."
    )
    note: ClassVar[str] = (
        "A step that restores much carries the difference between these two texts; it may be "
        "neither the only one nor the origin of the difference. Steps that matter only together "
        "may each restore nothing."
    )
    source: ClassVar[str] = (
        "Meng et al., “Locating and Editing Factual Associations in GPT” (2022), causal tracing"
    )

    titles: ClassVar[tuple[str, str]] = (
        "Patching of {parts}: {target}",
        "Patching of {parts} by position: {target}",
    )
    restored: NDArray[np.float64]

    def __init__(
        self, trace: Trace, parts: str, by_position: bool, metric: str, limits: tuple[float, float]
    ) -> None:
        title = Message(self.titles[by_position], parts=parts, target=metric)
        self.title = Message("{title}{note}", title=title, note=trace.note)
        self.paths = tuple(expanded(trace, parts))
        self.clean, self.corrupted = limits
        self._parts, self._positions = parts, positions_of(trace) if by_position else None

    def _set(self, trace: Trace, numbers: list[float]) -> None:
        counts = counts_of(trace, self._parts)
        last = (len(self._positions.positions),) if self._positions else ()
        self.restored = read_only(np.array(numbers).reshape((*counts, *last)))

    def _grid(self) -> tuple[AnyArray, Axis, Axis]:
        kinds = re.findall(r"(\w+)s\.\*", self._parts)  # block, head
        axes = [
            numbered_axis("layer" if kind == "block" else kind, count)
            for kind, count in zip(kinds, self.restored.shape, strict=False)
        ]
        axes += [self._positions] if self._positions else []
        if len(axes) == 3:
            L, H, _ = self.restored.shape
            axes = [heads_axis("head", L, H), axes[-1]]
        axes += [named_axis("", ("restored",))] * (2 - len(axes))
        rows, columns = axes
        return self.restored.reshape(len(rows.positions), -1), rows, columns


class AttributionPatching(Patching):
    """A linear approximation of `Patching`, see `attnlab.attribution_patch`."""

    titles: ClassVar[tuple[str, str]] = (
        "Attribution patching of {parts}: {target}",
        "Attribution patching of {parts} by position: {target}",
    )
    note: ClassVar[str] = (
        "A linear approximation of `attnlab.patch`: good where the model is nearly linear between "
        "the two texts, worst where softmax is saturated."
    )
    source: ClassVar[str] = (
        "Nanda, “Attribution Patching” (2023); Syed et al., “Attribution Patching Outperforms "
        "Automated Circuit Discovery” (2023)"
    )


def patch(
    clean: Trace | Traces,
    corrupted: Trace | Traces,
    parts: str = HEADS,
    *,
    metric: Metric | list[Any],
    by_position: bool = False,
    progress: bool = True,
) -> Patching:
    """Patch steps of a clean run into a corrupted run, one by one.

    restored = (metric(patched) - metric(corrupted)) / (metric(clean) - metric(corrupted))

    Steps before a patch are computed once. Patches of one layer are batched, unless the metric is a
    function, which gets one trace at a time.

    Parameters
    ----------
    clean, corrupted : traces of two texts with the same number of tokens, by one model; or of
        several pairs of such texts, as `model.trace` returns them for lists
    parts : a path as `Trace.edited` takes it, with * for every layer or head, such as
        "blocks.*.attention.heads.*.context", "blocks.*.mlp.output", "blocks.*.output"
    metric : a token, for its logit at the last position; a pair of tokens, for the difference of
        their logits; or a function of a Trace that returns a number. For several pairs, one for
        all, or a list with one for each.
    by_position : whether each position is patched alone
    progress : whether a progress bar is shown on stderr

    Returns
    -------
    Patching
        `.restored` has an axis for each * and one for positions; `print` shows it. For several
        pairs, a `MeanPatching` with `.standard_errors` and each pair's `.effects`; pairs of equal
        length are computed side by side, which takes about 300 MB besides the model for GPT-2.

    Raises
    ------
    InvalidValueError
        If the traces differ in model or length, or the metric is the same in both.

    Notes
    -----
    A step that restores much carries the difference between the texts; it need not be its origin.
    Steps that matter only together may each restore nothing.

    Source: Meng et al., "Locating and Editing Factual Associations in GPT" (2022).

    Examples
    --------
    >>> clean, corrupted = model.trace(texts), model.trace(others)
    >>> attnlab.patch(clean, corrupted, metric=[(" dog", " cat"), (" ball", " kite")])
    """
    if isinstance(clean, TraceSequence):
        many: Patching = clean.patch(corrupted, parts, metric, by_position, progress)
        return many
    check_traces(clean, corrupted)
    measure, words, target = measure_of(clean, metric)
    numbers: list[float] = []
    # The bar is shown before the clean and corrupted runs, which may take seconds.
    with progress_bar(disable=not progress, unit="run") as bar:
        limits = checked(clean, corrupted, parts, measure, by_position)
        result = Patching(corrupted, parts, by_position, words, limits)
        patches = [*product(result.paths, rows_of(corrupted, by_position))]
        bar.reset(total=len(patches))
        for group in groups(corrupted, patches, target):
            traces = [patched(clean, corrupted, patch) for patch in group]
            measured = [measure(traces[0])] if target is None else values(target, traces, group)
            numbers += [share(number(value), limits) for value in measured]
            bar.update(len(group))
    result._set(corrupted, numbers)
    return result


def groups(trace: Trace, patches: list[Patch], target: Target | None) -> Iterator[list[Patch]]:
    """Patches, in order, in groups that can run as a batch.

    A batch needs patches of one step that has a row for each token. Traces with a cache, whose keys
    have no batch axis, or with edits, whose functions expect one run, are not batched.
    """
    graph, T = trace._run.graph, len(trace.tokens)
    alone = target is None or trace.tokens_before or trace.edited_steps
    for path, of_step in groupby(patches, key=lambda patch: changed_step(graph, patch[0])):
        has_rows = has_tokens(graph, path) and graph[path].step.name != "mask"
        size = 1 if alone or not has_rows else max(TOKENS_AT_ONCE // T, 1)
        while group := [*islice(of_step, size)]:
            yield group


def patched(clean: Trace, corrupted: Trace, patch: Patch) -> Trace:
    """The corrupted trace with some rows of a step from the clean one."""
    path, row = patch
    return corrupted.edited({path: with_rows(at(corrupted, path), at(clean, path), row)})


def values(target: Target, traces: list[Trace], patches: list[Patch]) -> list[Any]:
    """A target in traces that are patched at one step, run as a batch."""
    trace, *others = traces
    if not others:
        return [target.value(trace)]
    path = changed_step(trace._run.graph, patches[0][0])
    batch = batched([trace._run for trace in traces], path)
    return [*target.values(trace._of_run(batch))]


def attribution_patch(
    clean: Trace | Traces,
    corrupted: Trace | Traces,
    parts: str = HEADS,
    *,
    metric: Named | tuple[Named, Named] | list[Named | tuple[Named, Named]],
    by_position: bool = False,
) -> AttributionPatching:
    """Approximate `patch` for all steps with one backward pass of the corrupted run.

    restored ≈ Σ (clean - corrupted) · gradient / (metric(clean) - metric(corrupted))

    Parameters
    ----------
    as for `patch`; the metric is a token or a pair of tokens

    Returns
    -------
    AttributionPatching

    Raises
    ------
    InvalidValueError
        As for `patch`, or if the metric is a function.

    Notes
    -----
    Good where the model is nearly linear between the two texts, worst where softmax is saturated.

    Source: Nanda, "Attribution Patching" (2023).
    """
    if isinstance(clean, TraceSequence):
        many: AttributionPatching = clean.attribution_patch(corrupted, parts, metric, by_position)
        return many
    check_traces(clean, corrupted)
    measure, words, target = measure_of(clean, metric)
    if target is None:
        raise InvalidTypeError(
            "metric must be a token or a pair of tokens for attribution_patch; got a function"
        )
    limits = checked(clean, corrupted, parts, measure, by_position)
    result = AttributionPatching(corrupted, parts, by_position, words, limits)
    gradients = Gradients(corrupted, target)
    rows, numbers = rows_of(corrupted, by_position), []
    for path in result.paths:
        change = (at(clean, path) - at(corrupted, path)) * at(gradients, path)
        numbers += [float(change[..., row, :].sum()) / (limits[0] - limits[1]) for row in rows]
    result._set(corrupted, numbers)
    return result


def measure_of(trace: Trace, metric: Any) -> tuple[Callable[[Trace], Any], str, Target | None]:
    """A metric as a function, in words, and as a Target if it has a gradient."""
    if callable(metric):
        return metric, getattr(metric, "__name__", quoted(metric)), None
    pair = isinstance(metric, tuple | list) and len(metric) == 2
    token, against = metric if pair else (metric, None)
    target = Target.of(trace, token, against, -1)
    return target.value, target.message, target


def check_traces(clean: Trace, corrupted: Trace, which: str = "") -> None:
    """Raise unless one trace can be patched into the other; `which` ends the message."""
    for trace in (clean, corrupted):
        if not isinstance(trace, Result) or not hasattr(type(trace), "edited"):
            raise InvalidTypeError(
                "clean and corrupted must be traces, as model.trace returns them; got {kind}",
                kind=type(trace).__name__,
            )
    if clean.config != corrupted.config or len(clean.tokens) != len(corrupted.tokens):
        raise InvalidValueError(
            "clean and corrupted must have the same model and number of "
            "tokens; got {clean} and {corrupted}{which}",
            clean=clean.title,
            corrupted=corrupted.title,
            which=which,
        )
    if not clean.parameters.equals(corrupted.parameters):
        raise InvalidValueError(
            "clean and corrupted must be traces by one model; their parameters "
            "differ{which}. attnlab.compare(base, tuned, texts) compares two "
            "models",
            which=which,
        )


def checked(
    clean: Trace, corrupted: Trace, parts: str, measure: Callable[[Trace], Any], by_position: bool
) -> tuple[float, float]:
    """Check that the parts can be patched; return the metric in both traces."""
    path, *_ = expanded(corrupted, parts)
    if by_position:
        T = len(corrupted.tokens)
        if not has_tokens(corrupted._run.graph, path) or at(corrupted, path).shape[-2] != T:
            raise InvalidValueError(
                "by_position needs one row for each of {T} positions; {path} doesn't have them",
                T=T,
                path=path,
            )
    return limits_of(measure, clean, corrupted)


def limits_of(
    measure: Callable[[Trace], Any], clean: Trace, corrupted: Trace
) -> tuple[float, float]:
    """The metric in both traces, which must differ."""
    limits = number(measure(clean)), number(measure(corrupted))
    if limits[0] == limits[1]:
        raise InvalidValueError(
            "the metric is {value} in both traces, so there is nothing to restore",
            value=f"{limits[0]:.4g}",
        )
    return limits


def expanded(trace: Trace, parts: Any) -> list[str]:
    """The paths that a path with * stands for."""
    if not isinstance(parts, str):
        raise InvalidTypeError(
            "parts must be a path, such as {example}; got {parts}",
            example=repr(HEADS),
            parts=quoted(parts),
        )
    check_paths(trace._run.graph, trace.config.n_head, {parts.replace("*", "0"): 0})
    counts = counts_of(trace, parts)
    return [re.sub(r"\*", "{}", parts).format(*numbers) for numbers in np.ndindex(*counts)]


def counts_of(trace: Trace, parts: str) -> tuple[int, ...]:
    """The number of layers or heads for each *."""
    words = parts.split(".")
    counts = {"blocks": trace.config.n_layer, "heads": trace.config.n_head}
    return tuple(counts[before] for before, word in pairwise(words) if word == "*")


def has_tokens(graph: Graph, path: str) -> bool:
    """Whether a step has a row for each token."""
    return graph[path].step.axes.split()[-2:-1] in (["T"], ["Tq"], ["Tk"])


def rows_of(trace: Trace, by_position: bool) -> list[slice]:
    """The rows of each patch."""
    return [slice(t, t + 1) for t in range(len(trace.tokens))] if by_position else [slice(None)]


def with_rows(corrupted: AnyArray, clean: AnyArray, row: slice) -> AnyArray:
    """A step with some rows of the clean run."""
    if row == slice(None):
        return clean
    patched = corrupted.copy()
    patched[..., row, :] = clean[..., row, :]
    return patched


def share(measured: float, limits: tuple[float, float]) -> float:
    """The share of the difference between clean and corrupted metric that is restored."""
    clean, corrupted = limits
    return (measured - corrupted) / (clean - corrupted)


def number(measured: Any) -> float:
    """A metric's result as a float, checked."""
    measured = as_number(measured)
    if not is_real(measured):
        raise InvalidTypeError(
            "metric must return a number; got {measured}", measured=quoted(measured)
        )
    if not math.isfinite(measured):
        raise InvalidValueError(
            "metric must return a finite number; got {measured}", measured=measured
        )
    return float(measured)
