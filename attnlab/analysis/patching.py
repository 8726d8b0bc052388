"""Activation patching: which parts of a run, put into another one, restore what it lost."""

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
    head_called,
    named,
    numbered,
    positions_of,
)
from attnlab.analysis.gradients import Gradients
from attnlab.equations import AnyArray
from attnlab.errors import InvalidTypeError, InvalidValueError, quoted
from attnlab.forward.edits import check_paths, place_of, side_by_side
from attnlab.steps import Graph, Result, at, read_only
from attnlab.support.checks import as_number, is_real
from attnlab.support.console import progress_bar
from attnlab.support.messages import Message
from attnlab.views.shown import Axis

HEADS = "blocks.*.attention.heads.*.context"

# So many tokens of patched runs are computed at once: enough for fast matrix products, few enough
# that what they come to stays small.
TOKENS_AT_ONCE = 256

# A path, and the rows of that step.
Patch = tuple[str, slice]

# What is measured: a function of a trace, a token's logit, or that of one minus that of another.
Metric = Callable[[Any], float] | Named | tuple[Named, Named]


class Patching(Analysis):
    """How much of what a run lost each part restores, as `attnlab.patch` returns it.

    Attributes
    ----------
    restored : float64, an axis for each * in the path, and one of positions where they were patched
        one at a time: 0 where nothing is restored, 1 where all is; below 0, or above 1, a part does
        the opposite, or more
    clean, corrupted : the metric in the two traces
    paths : of the parts, in the order of `restored` without positions
    """

    note: ClassVar[str] = (
        "A part that restores much is one that the difference passes through, in these two texts; "
        "not the only one, nor where the decision is made. Parts that do it together may each do "
        "nothing."
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
        self, trace: Trace, parts: str, by_position: bool, metric: str, ends: tuple[float, float]
    ) -> None:
        title = Message(self.titles[by_position], parts=parts, target=metric)
        self.title = Message("{title}{note}", title=title, note=trace.note)
        self.paths = tuple(expanded(trace, parts))
        self.clean, self.corrupted = ends
        self._parts, self._positions = parts, positions_of(trace) if by_position else None

    def _keep(self, trace: Trace, numbers: list[float]) -> None:
        counts = counts_of(trace, self._parts)
        last = (len(self._positions.positions),) if self._positions else ()
        self.restored = read_only(np.array(numbers).reshape((*counts, *last)))

    def _grid(self) -> tuple[AnyArray, Axis, Axis]:
        kinds = re.findall(r"(\w+)s\.\*", self._parts)  # block, head
        axes = [
            numbered("layer" if kind == "block" else kind, count)
            for kind, count in zip(kinds, self.restored.shape, strict=False)
        ]
        axes += [self._positions] if self._positions else []
        if len(axes) == 3:
            layers, heads, positions = axes
            names = product(layers.positions, heads.positions)
            axes = [named("head", tuple(head_called(n, h) for n, h in names)), positions]
        axes += [named("", ("restored",))] * (2 - len(axes))
        rows, columns = axes
        return self.restored.reshape(len(rows.positions), -1), rows, columns


class GuessedPatching(Patching):
    """How much each part would restore if all were linear, see `attnlab.attribution_patch`.

    One backward pass in the place of a run for each part: the sum of (clean - corrupted) times the
    gradient of the metric in the corrupted run.
    """

    titles: ClassVar[tuple[str, str]] = (
        "Attribution patching of {parts}: {target}",
        "Attribution patching of {parts} by position: {target}",
    )
    note: ClassVar[str] = (
        "A guess, as good as the model is linear between the two texts: worst where softmax is "
        "saturated. `attnlab.patch` measures what this guesses; as there, parts are patched alone."
    )
    source: ClassVar[str] = (
        "Nanda, “Attribution Patching” (2023); Syed et al., “Attribution Patching Outperforms "
        "Automated Circuit Discovery” (2023)"
    )


def patch(
    clean: Trace,
    corrupted: Trace,
    parts: str = HEADS,
    *,
    metric: Metric,
    by_position: bool = False,
    progress: bool = True,
) -> Patching:
    """Put parts of a clean run into a corrupted one, one at a time: how much does each restore?

    restored = (metric(patched) - metric(corrupted)) / (metric(clean) - metric(corrupted))

    Each patched run shares with the corrupted one all that comes before the patch. Patches of one
    layer are run side by side, unless the metric is a function, which sees one trace at a time.

    Parameters
    ----------
    clean, corrupted : Traces of two texts with as many tokens, by one model
    parts : a path as `Trace.edited` takes it, with * for every layer or head, such as
        "blocks.*.attention.heads.*.context", "blocks.*.mlp.output", "blocks.*.output"
    metric : a token whose logit at the last position is measured; a pair of tokens, the first's
        minus the second's; or a function of a Trace that gives a number
    by_position : whether each position is patched alone
    progress : whether stderr shows how far it is

    Returns
    -------
    Patching
        `.restored`, an axis for each * and one for positions; `print` shows it

    Raises
    ------
    InvalidValueError
        The traces differ in model or length, or the metric is the same in both.
    """
    check_traces(clean, corrupted)
    measure, words, target = measure_of(clean, metric)
    numbers: list[float] = []
    # The bar is there before the two runs that everything is measured by, which may take seconds.
    with progress_bar(disable=not progress, unit="run") as bar:
        ends = checked(clean, corrupted, parts, measure, by_position)
        made = Patching(corrupted, parts, by_position, words, ends)
        patches = [*product(made.paths, rows_of(corrupted, by_position))]
        bar.reset(total=len(patches))
        for group in groups(corrupted, patches, target):
            traces = [patched(clean, corrupted, patch) for patch in group]
            measured = [measure(traces[0])] if target is None else values(target, traces, group)
            numbers += [share(number(one), ends) for one in measured]
            bar.update(len(group))
    made._keep(corrupted, numbers)
    return made


def groups(trace: Trace, patches: list[Patch], target: Target | None) -> Iterator[list[Patch]]:
    """Patches, in order, that can be run side by side.

    They are of one step that has a row for each token. The keys of a cache have no leading axis,
    and what an edit's function gives is known of one run alone.
    """
    graph, T = trace._run.graph, len(trace.tokens)
    alone = target is None or trace.tokens_before or trace.edited_steps
    for place, at_once in groupby(patches, key=lambda patch: place_of(graph, patch[0])):
        has_rows = has_tokens(graph, place) and graph[place].step.name != "mask"
        size = 1 if alone or not has_rows else max(TOKENS_AT_ONCE // T, 1)
        while group := [*islice(at_once, size)]:
            yield group


def patched(clean: Trace, corrupted: Trace, patch: Patch) -> Trace:
    """The corrupted trace with some rows of the clean one's step."""
    path, row = patch
    return corrupted.edited({path: with_rows(at(corrupted, path), at(clean, path), row)})


def values(target: Target, traces: list[Trace], patches: list[Patch]) -> list[Any]:
    """A target in traces that are patched at one step, run side by side."""
    trace, *others = traces
    if not others:
        return [target.value(trace)]
    place = place_of(trace._run.graph, patches[0][0])
    together = side_by_side([trace._run for trace in traces], place)
    return [*target.values(trace._of_run(together))]


def attribution_patch(
    clean: Trace,
    corrupted: Trace,
    parts: str = HEADS,
    *,
    metric: Named | tuple[Named, Named],
    by_position: bool = False,
) -> GuessedPatching:
    """What `patch` would find, guessed for all parts at once from one backward pass.

    restored ≈ Σ (clean - corrupted) · gradient / (metric(clean) - metric(corrupted))

    Parameters
    ----------
    as `patch` takes them; the metric is a token's logit, or a difference of two

    Returns
    -------
    GuessedPatching

    Raises
    ------
    InvalidValueError
        As for `patch`; or the metric is a function.
    """
    check_traces(clean, corrupted)
    measure, words, target = measure_of(clean, metric)
    if target is None:
        raise InvalidTypeError(
            "gradients are of a token's logit, or of a pair's difference; got a function"
        )
    ends = checked(clean, corrupted, parts, measure, by_position)
    made = GuessedPatching(corrupted, parts, by_position, words, ends)
    gradients = Gradients(corrupted, target)
    rows, numbers = rows_of(corrupted, by_position), []
    for path in made.paths:
        change = (at(clean, path) - at(corrupted, path)) * at(gradients, path)
        numbers += [float(change[..., row, :].sum()) / (ends[0] - ends[1]) for row in rows]
    made._keep(corrupted, numbers)
    return made


def measure_of(trace: Trace, metric: Any) -> tuple[Callable[[Trace], Any], str, Target | None]:
    """What a metric measures, in words, and whose gradient it has."""
    if callable(metric):
        return metric, getattr(metric, "__name__", quoted(metric)), None
    pair = isinstance(metric, tuple | list) and len(metric) == 2
    token, against = metric if pair else (metric, None)
    target = Target.of(trace, token, against, -1)
    return target.value, target.message, target


def check_traces(clean: Trace, corrupted: Trace) -> None:
    """Refuse what can't be patched into each other."""
    for trace in (clean, corrupted):
        if not isinstance(trace, Result) or not hasattr(type(trace), "edited"):
            raise InvalidTypeError(
                "clean and corrupted must be traces, as model.trace returns them; "
                f"given {quoted(trace)}"
            )
    if clean.config != corrupted.config or len(clean.tokens) != len(corrupted.tokens):
        raise InvalidValueError(
            "a part of one trace fits into another of the same shape: given "
            f"{clean.title} and {corrupted.title}"
        )


def checked(
    clean: Trace, corrupted: Trace, parts: str, measure: Callable[[Trace], Any], by_position: bool
) -> tuple[float, float]:
    """The metric in both traces, once it is known that the parts can be patched."""
    path, *_ = expanded(corrupted, parts)
    if by_position:
        T = len(corrupted.tokens)
        if not has_tokens(corrupted._run.graph, path) or at(corrupted, path).shape[-2] != T:
            raise InvalidValueError(f"{path} has no row for each of {T} positions")
    ends = number(measure(clean)), number(measure(corrupted))
    if ends[0] == ends[1]:
        raise InvalidValueError(
            f"the metric is {ends[0]:.4g} in both traces: there is nothing to restore"
        )
    return ends


def expanded(trace: Trace, parts: Any) -> list[str]:
    """The paths that a path with * stands for."""
    if not isinstance(parts, str):
        raise InvalidTypeError(f"parts are a path, such as {HEADS!r}; got {quoted(parts)}")
    check_paths(trace._run.graph, trace.config.n_head, {parts.replace("*", "0"): 0})
    counts = counts_of(trace, parts)
    return [re.sub(r"\*", "{}", parts).format(*numbers) for numbers in np.ndindex(*counts)]


def counts_of(trace: Trace, parts: str) -> tuple[int, ...]:
    """How many layers or heads each * stands for."""
    words = parts.split(".")
    counts = {"blocks": trace.config.n_layer, "heads": trace.config.n_head}
    return tuple(counts[before] for before, word in pairwise(words) if word == "*")


def has_tokens(graph: Graph, path: str) -> bool:
    """Whether a step has a row for each token."""
    return graph[path].step.axes.split()[-2:-1] in (["T"], ["Tq"], ["Tk"])


def rows_of(trace: Trace, by_position: bool) -> list[slice]:
    """The rows that are patched at once."""
    return [slice(t, t + 1) for t in range(len(trace.tokens))] if by_position else [slice(None)]


def with_rows(there: AnyArray, clean: AnyArray, row: slice) -> AnyArray:
    """A step with some rows of another run's."""
    if row == slice(None):
        return clean
    patched = there.copy()
    patched[..., row, :] = clean[..., row, :]
    return patched


def share(measured: float, ends: tuple[float, float]) -> float:
    """Where a number stands between what it is in the corrupted trace and in the clean one."""
    clean, corrupted = ends
    return (measured - corrupted) / (clean - corrupted)


def number(measured: Any) -> float:
    """What a metric gave."""
    measured = as_number(measured)
    if not is_real(measured):
        raise InvalidTypeError(f"a metric gives a number; got {quoted(measured)}")
    if not math.isfinite(measured):
        raise InvalidValueError(f"a metric gives a finite number; got {measured}")
    return float(measured)
