"""Activation patching, and attribution patching, its linear approximation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any, ClassVar, TypeGuard

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnlab.analysis.base import (
    Analysis,
    Target,
    TargetLike,
    heads_axis,
    named_axis,
    numbered_axis,
    positions_of,
)
from attnlab.analysis.gradients import CONSTANTS, Gradients
from attnlab.analysis.metrics import (
    Metric,
    as_metric,
    baselines_of,
    check_pairs,
    check_traces,
    describe_metric,
    effects_of_pairs,
    parse_metric,
    ratio_of_means,
    standard_error,
)
from attnlab.equations import AnyArray
from attnlab.errors import InvalidTypeError, InvalidValueError, quoted
from attnlab.forward.edits import changed_steps, edit_run, expand_edits
from attnlab.forward.slices import final_row, with_steps
from attnlab.model.trace import Trace
from attnlab.model.traces import Traces, group_equal, value_for_each
from attnlab.steps import Graph, at, read_only
from attnlab.steps.labels import Axis
from attnlab.steps.paths import parse, starred
from attnlab.support.checks import as_flag, check_kind, errors_of
from attnlab.support.console import progress_bar
from attnlab.support.messages import Message
from attnlab.support.tables import PLUS_MINUS, Table, listed, plus_minus

HEADS = "blocks.*.attention.heads.*.context"

# Patched runs are computed in batches of at most MAX_ROWS rows, from the first row that any patch
# of the batch changes. Once a batch has ENOUGH_ROWS for fast matrix products, a patch whose first
# row differs starts a new batch.
MAX_ROWS, ENOUGH_ROWS = 1024, 128

PARTS_SHOWN = 10  # the number of strongest parts that a table lists with their errors

# The path of a step, and the rows of the step that are patched.
Patch = tuple[str, slice]


class Patching(Analysis):
    """How much each patched step restores; the result of `attnlab.patch`.

    restored = Σ (target(patched) - target(corrupted)) / Σ (target(clean) - target(corrupted)),
    with sums over n pairs of texts, often one

    A mean of ratios would be dominated by a pair whose target hardly differs; a ratio of sums
    isn't. `attnlab.analysis.metrics.ratio_of_means` has its standard error.

    Attributes
    ----------
    restored : float64, with an axis for each * in the path, and an axis of positions if
        `by_position` is set. 0 means that nothing is restored, 1 that everything is; values below 0
        and above 1 are possible.
    standard_errors : the errors of `restored`, in the same shape; NaN for one pair
    effects : (n, ...), target(patched) - target(corrupted) of each pair
    clean, corrupted : the target in the two traces; (n,) for n pairs
    paths : the paths of the patched steps, in the order of `restored` without positions
    """

    meaning: ClassVar[str] = (
        "Each number is how much of the target one patch restores: 0 is nothing, 1 is everything."
    )
    note: ClassVar[str] = (
        "A step that restores a lot carries the difference between the two texts, or is needed if "
        "its values are given. Others may carry it too, and it may originate in an earlier step. "
        "Steps that matter only together may each restore nothing."
    )
    source: ClassVar[str] = (
        "Meng et al., “Locating and Editing Factual Associations in GPT” (2022), causal tracing"
    )
    _number: ClassVar[str] = "restored"

    titles: ClassVar[tuple[str, str]] = (  # without and with positions
        "Patching of {parts}: {target}",
        "Patching of {parts} by position: {target}",
    )

    def __init__(
        self,
        trace: Trace,
        parts: str,
        by_position: bool,
        target: str,
        effects: AnyArray,
        baselines: Any,
        given: Any = None,
    ) -> None:
        """`effects` are (n, patches), `baselines` the target in the clean and corrupted traces."""
        patched = Message("{parts} with given values", parts=parts) if given else parts
        title = Message(self.titles[by_position], parts=patched, target=target)
        self.title = Message("{title}{note}", title=title, note=trace._note)
        self.paths = tuple(expand(trace, parts))
        self.clean, self.corrupted = baselines
        self._parts, self._positions = parts, list[Axis]()
        if by_position:  # several pairs have different tokens, so their positions are numbered
            numbered = numbered_axis("position", len(trace.tokens))
            self._positions = [positions_of(trace) if len(effects) == 1 else numbered]
        shape = *counts_of(trace, parts), *(len(axis.positions) for axis in self._positions)
        restored, errors = ratio_of_means(effects, np.atleast_1d(self.clean - self.corrupted))
        self.restored: NDArray[np.float64] = read_only(restored.reshape(shape))
        self.standard_errors: NDArray[np.float64] = read_only(errors.reshape(shape))
        self.effects: NDArray[np.float64] = read_only(effects.reshape(len(effects), *shape))

    def _grid(self) -> tuple[AnyArray, Axis, Axis]:
        """`restored` as a matrix, with the axes of its rows and columns."""
        axes = [
            numbered_axis("layer" if kind == "blocks" else "head", count)
            for kind, count in zip(starred(self._parts), self.restored.shape, strict=False)
        ]
        axes += self._positions  # the last axis of `restored`, if there is one
        if len(axes) == 3:  # layers, heads and positions become heads and positions
            L, H, _ = self.restored.shape
            axes = [heads_axis("head", L, H), axes[-1]]
        while len(axes) < 2:  # a table needs two axes, so a missing axis gets one entry
            axes.append(named_axis("", (Message("restored"),)))
        rows, columns = axes
        return self.restored.reshape(len(rows.positions), -1), rows, columns

    def _further_numbers(self) -> dict[str, AnyArray]:
        return {"standard_error": self.standard_errors} if len(self.effects) > 1 else {}

    def _tables(self) -> Iterator[str | Table]:
        yield from super()._tables()
        if len(self.effects) == 1:
            return
        numbers, rows, columns = self._grid()
        order = np.argsort(-np.abs(numbers), axis=None, kind="stable")[:PARTS_SHOWN]
        names = [
            part_in_words(rows, row, columns, column)
            for row, column in zip(*np.unravel_index(order, numbers.shape), strict=True)
        ]
        restored, errors = (x.ravel()[order] for x in (numbers, self.standard_errors))
        strongest = {"strongest": names, "restored": restored, "standard_error": errors}
        yield listed(strongest, {"restored": PLUS_MINUS})  # followed by the column of errors
        clean, corrupted = (
            plus_minus(float(values.mean()), float(standard_error(values)))
            for values in (self.clean, self.corrupted)
        )
        yield Message(
            "{count} pairs; target {clean} in clean and {corrupted} in corrupted traces",
            count=len(self.effects),
            clean=clean,
            corrupted=corrupted,
        )

    def _notes(self) -> tuple[str, ...]:
        if len(self.effects) == 1:
            return super()._notes()
        return self.note, Message(
            "Standard errors say how much the mean would vary with other pairs drawn as these "
            "were; they don't cover other kinds of texts. Source: Cochran, “Sampling Techniques” "
            "(1977), chapter 6, ratio of means."
        )


def part_in_words(rows: Axis, row: int, columns: Axis, column: int) -> str:
    """A part of the table in words, such as “layer 0 head 1, position 3”."""
    words = [
        axis.names[i] if axis.names else Message("{axis} {i}", axis=Message(axis.name), i=i)
        for axis, i in ((rows, row), (columns, column))
        if axis.name
    ]
    if len(words) < 2:  # the only column, or the only cell, has the heading “restored”
        return words[0] if words else Message("restored")
    return Message("{first}, {second}", first=words[0], second=words[1])


class AttributionPatching(Patching):
    """A linear approximation of `Patching`; the result of `attnlab.attribution_patch`."""

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
    target: Metric | list[Any],
    at: int | str = -1,
    with_: Mapping[str, ArrayLike] | None = None,
    by_position: bool = False,
    progress: bool = True,
) -> Patching:
    """Patch steps of a clean run into a corrupted run, one by one.

    restored = Σ (target(patched) - target(corrupted)) / Σ (target(clean) - target(corrupted)),
    with sums over the pairs of texts, often one

    Steps before a patch, and rows before the first row that the patch changes, are computed once.
    Patches of one layer are batched, unless the target is a function, which gets single traces.

    Parameters
    ----------
    clean, corrupted : traces of two texts with the same number of tokens, by one model; or traces
        of several pairs of such texts, as `model.trace` returns them for lists
    parts : a path as `Trace.edited` takes it, with * for every layer or head, such as
        "blocks.*.attention.heads.*.context", "blocks.*.mlp.output", "blocks.*.output"
    target : a token, for its logit; a pair of tokens, for the difference of their logits; or a
        function of a Trace that returns a number. For several pairs of texts, one target for all
        pairs, or a list with a target for each pair.
    at : the position of the logits: an index, which may be negative, or a token's text, "it"
    with_ : values by path, which are patched in instead of the clean run's steps:
        `attnlab.averages(model, texts)` for mean ablation, {parts: 0} for zero ablation. If the two
        traces are exchanged, the values ablate the clean run, and `restored` is how much of the
        difference the ablation destroys.
    by_position : whether to patch each position alone
    progress : whether to show a progress bar on stderr

    Returns
    -------
    Patching
        `print` shows `.restored`, which has an axis for each * and for positions. Several pairs
        also have `.standard_errors` and `.effects`; pairs of equal length are computed side by
        side, which takes about 300 MB besides the model for GPT-2.

    Examples
    --------
    >>> clean, corrupted = model.trace(texts), model.trace(others)
    >>> attnlab.patch(clean, corrupted, target=[(" dog", " cat"), (" ball", " kite")])
    >>> averages = attnlab.averages(model, more_texts)
    >>> attnlab.patch(corrupted, clean, target=" dog", with_=averages)
    """
    by_position = as_flag(by_position, "by_position")
    if isinstance(clean, Traces) or isinstance(corrupted, Traces):
        pairs = check_pairs(clean, corrupted)
        return patch_pairs(*pairs, parts, target, at, with_, by_position, progress)
    check_traces(clean, corrupted)
    measure, description, of_logits = parse_metric(clean, target, at)
    # The bar is shown before the clean and corrupted runs, which may take seconds.
    with progress_bar(progress, unit="run") as bar:
        check_parts(corrupted, parts, by_position)
        patches, source = patches_of(corrupted, parts, by_position), source_of(clean, parts, with_)
        bar.reset(total=len(patches))
        baselines = baselines_of(measure, clean, corrupted)
        measured = np.empty(len(patches))
        if is_of_last_row(of_logits, clean) and can_be_batched(corrupted, parts):
            direction = of_logits.difference(corrupted.W_U)
            for batch, final in patched_rows(source, corrupted, patches):
                values = (final[:, 0] * direction).sum(axis=-1)
                measured[batch] = [as_metric(value) for value in values]
                bar.update(len(batch))
        else:
            for i, (path, rows) in enumerate(patches):
                value = with_rows(corrupted[path], source[path], rows)
                measured[i] = as_metric(measure(corrupted.edited({path: value})))
                bar.update()
    effects = (measured - baselines[1])[np.newaxis]
    return Patching(corrupted, parts, by_position, description, effects, baselines, with_)


def source_of(clean: Trace, parts: str, with_: Any) -> Trace:
    """The trace whose steps are patched in: the clean trace, edited if there are given values."""
    if with_ is None:
        return clean
    check_kind(with_, Mapping, "with_", "a dict, as attnlab.averages returns it")
    if any(map(callable, with_.values())):
        raise InvalidTypeError("with_ must have arrays or numbers; got a function")
    given = expand_edits(clean._run.graph, clean.config.n_head, with_)
    for path in expand(clean, parts):
        if path not in given:
            raise InvalidValueError(f"with_ has no value for {path}; it has {quoted([*with_])}")
    return clean.edited(with_)


def patch_pairs(
    clean: Traces,
    corrupted: Traces,
    parts: str,
    target: Metric | list[Any],
    at: int | str,
    with_: Mapping[str, ArrayLike] | None,
    by_position: bool,
    progress: bool,
) -> Patching:
    targets: list[Any] = []  # a Target for each pair, or None if its target is a function
    for i, target_of_pair in enumerate(value_for_each(target, len(clean), "target")):
        with errors_of(f"pair {i}"):
            targets.append(parse_metric(clean[i], target_of_pair, at)[2])
    check_lengths(corrupted, by_position)
    description = describe_metric(clean, target, at)
    are_of_last_rows = all(map(is_of_last_row, targets, clean))
    if not are_of_last_rows or clean[0].edited_steps or not can_be_batched(corrupted[0], parts):
        settings: Any = {"at": at, "with_": with_, "by_position": by_position, "progress": False}
        analyse = partial(patch, parts=parts, **settings)
        effects, baselines = effects_of_pairs(clean, corrupted, target, analyse, progress)
        return Patching(corrupted[0], parts, by_position, description, effects, baselines, with_)
    patches = patches_of(corrupted[0], parts, by_position)
    effects, baselines = np.empty((len(clean), len(patches))), np.empty((2, len(clean)))
    with progress_bar(progress, total=effects.size, unit="run") as bar:
        for indices in groups_of_pairs(clean, corrupted):
            clean_trace, corrupted_trace = (
                traces._side_by_side(indices)[0]  # one trace with an axis for the texts
                for traces in (clean, corrupted)
            )
            directions = np.stack([targets[i].difference(clean_trace.W_U) for i in indices])
            for row, trace in enumerate((clean_trace, corrupted_trace)):
                baselines[row, indices] = (trace.final[..., -1, :] * directions).sum(axis=-1)
            source = source_of(clean_trace, parts, with_)
            for batch, final in patched_rows(source, corrupted_trace, patches):
                measured = (final * directions).sum(axis=-1)  # (patches, texts)
                effects[np.ix_(indices, batch)] = measured.T - baselines[1, indices, np.newaxis]
                bar.update(measured.size)
    return Patching(corrupted[0], parts, by_position, description, effects, baselines, with_)


def is_of_last_row(target: Target | None, trace: Trace) -> TypeGuard[Target]:
    """Whether a target is a logit at the last position. The target is None for a function."""
    return target is not None and target.position == len(trace.tokens) - 1


def can_be_batched(trace: Trace, parts: str) -> bool:
    """Whether patched runs can be computed side by side.

    Every changed step needs a row for each token, and the runs share one mask. The trace must have
    no edits, because an edit may be a function, which expects a single run.
    """
    graph = trace._run.graph
    changed = {step for path in expand(trace, parts) for step in changed_steps(graph, path)}
    return not trace.edited_steps and all(
        has_row_per_token(graph, step) and graph[step].step.name != "mask" for step in changed
    )


def patched_rows(
    clean: Trace, corrupted: Trace, patches: Sequence[Patch]
) -> Iterator[tuple[list[int], AnyArray]]:
    """Yield the indices of a batch of patches, and the last rows of `final`, (patches, texts, D).

    A batch has patches that change the same steps; it is computed from the first changed row.
    """
    run, D = corrupted._run, corrupted.config.n_embd
    by_steps: dict[tuple[str, ...], list[int]] = {}
    for i, (path, _) in enumerate(patches):
        by_steps.setdefault(changed_steps(run.graph, path), []).append(i)
    for steps, indices in by_steps.items():
        indices.sort(key=lambda i: patches[i][1].start or 0)  # slice(None) starts at row 0
        for batch, values, start in batches_of(clean, corrupted, patches, steps, indices):
            stacked = {step: np.stack([value[step] for value in values]) for step in steps}
            final = final_row(with_steps(run, stacked, start))
            yield batch, final.reshape(len(batch), -1, D)


def batches_of(
    clean: Trace,
    corrupted: Trace,
    patches: Sequence[Patch],
    steps: Sequence[str],
    indices: Sequence[int],
) -> Iterator[tuple[list[int], list[dict[str, AnyArray]], int]]:
    """Yield the patches' indices in a batch, their patched values, and the first changed row."""
    T, originals = len(corrupted.positions), {step: at(corrupted, step) for step in steps}
    n_texts = corrupted.embedding.size // (T * corrupted.config.n_embd)  # that share the trace
    batch, values, start = list[int](), list[dict[str, AnyArray]](), T - 1
    for i in indices:
        path, rows = patches[i]
        patched = with_rows(at(corrupted, path), at(clean, path), rows)
        edited = edit_run(corrupted._run, {path: patched})
        value = {step: edited.value(step) for step in steps}
        first = min(first_change(value[step], originals[step]) for step in steps)
        rows_in_batch = len(batch) * n_texts * (T - start)
        rows_with_patch = (len(batch) + 1) * n_texts * (T - min(start, first))
        has_enough = first != start and rows_in_batch >= ENOUGH_ROWS
        if batch and (has_enough or rows_with_patch > MAX_ROWS):
            yield batch, values, start
            batch, values, start = [], [], T - 1
        batch.append(i)
        values.append(value)
        start = min(start, first)
    yield batch, values, start


def first_change(value: AnyArray, original: AnyArray) -> int:
    """The first row that differs in any text; the last row if no row differs."""
    differs = (value != original).any(axis=(*range(value.ndim - 2), -1))  # (T,)
    return int(differs.argmax()) if differs.any() else len(differs) - 1


def groups_of_pairs(clean: Traces, corrupted: Traces) -> list[list[int]]:
    """The indices of pairs of equal length whose first different token is at the same position."""
    keys = []
    for clean_trace, corrupted_trace in zip(clean, corrupted, strict=True):
        differs = clean_trace.tokens.ids != corrupted_trace.tokens.ids
        keys.append((len(differs), int(differs.argmax())))
    return group_equal(keys)


def attribution_patch(
    clean: Trace | Traces,
    corrupted: Trace | Traces,
    parts: str = HEADS,
    *,
    target: TargetLike | list[TargetLike],
    at: int | str = -1,
    by_position: bool = False,
) -> AttributionPatching:
    """Approximate `patch` for all steps with one backward pass of the corrupted run.

    restored ≈ Σ (clean - corrupted) · gradient / (target(clean) - target(corrupted))

    Parameters are as for `patch`; the target is a token or a pair of tokens.
    """
    by_position = as_flag(by_position, "by_position")
    if isinstance(clean, Traces) or isinstance(corrupted, Traces):
        clean, corrupted = check_pairs(clean, corrupted)
        check_lengths(corrupted, by_position)
        analyse = partial(attribution_patch, parts=parts, at=at, by_position=by_position)
        measured = effects_of_pairs(clean, corrupted, target, analyse)
        description = describe_metric(clean, target, at)
        return AttributionPatching(corrupted[0], parts, by_position, description, *measured)
    check_traces(clean, corrupted)
    of_logits = Target.of(clean, target, at)
    check_parts(corrupted, parts, by_position)
    if (name := parse(parts).step) in CONSTANTS:
        raise InvalidValueError(f"{name} has no gradient. Use attnlab.patch, which runs the model")
    baselines = baselines_of(of_logits.value, clean, corrupted)
    gradients, estimates = Gradients(corrupted, of_logits), []
    for path, rows in patches_of(corrupted, parts, by_position):
        before, after = np.asarray(corrupted[path]), np.asarray(clean[path])
        # Equal values change nothing. They are skipped, since -inf - -inf of masked scores is NaN.
        change = np.subtract(after, before, out=np.zeros_like(before), where=after != before)
        change = change * gradients[path]
        # Without by_position a step may have no rows, such as a bias.
        estimates.append(float((change[..., rows, :] if by_position else change).sum()))
    effects, description = np.array([estimates]), of_logits.message
    return AttributionPatching(corrupted, parts, by_position, description, effects, baselines)


def check_parts(trace: Trace, parts: str, by_position: bool) -> None:
    """Raise unless the parts can be patched."""
    path, *_ = expand(trace, parts)
    T = len(trace.tokens)
    if by_position and (
        not has_row_per_token(trace._run.graph, path) or at(trace, path).shape[-2] != T
    ):
        raise InvalidValueError(
            f"by_position needs one row for each of {T} positions; {path} doesn't have them. "
            "Choose other parts, or leave out by_position"
        )


def check_lengths(traces: Traces, by_position: bool) -> None:
    """Raise unless texts that are patched by position have the same length."""
    lengths = {len(trace.tokens) for trace in traces}
    if by_position and len(lengths) > 1:
        raise InvalidValueError(
            f"by_position needs texts of equal length; got {min(lengths)} to {max(lengths)} tokens"
        )


def expand(trace: Trace, parts: Any) -> list[str]:
    """List the paths that a path with * matches."""
    check_kind(parts, str, "parts", f"a path, such as {HEADS!r}")
    if parse(parts).index is not None:
        raise InvalidValueError(
            f"leave the index out of {parts}. For each row, give by_position=True; for other "
            "parts of a step, edit it, as in trace.edited({'blocks.0.mlp.activated[:, 5]': 0})"
        )
    return [*expand_edits(trace._run.graph, trace.config.n_head, {parts: 0})]


def counts_of(trace: Trace, parts: str) -> tuple[int, ...]:
    """The number of layers or heads that each * in a path stands for."""
    counts = {"blocks": trace.config.n_layer, "heads": trace.config.n_head}
    return tuple(counts[kind] for kind in starred(parts))


def patches_of(trace: Trace, parts: str, by_position: bool) -> list[Patch]:
    rows = [slice(t, t + 1) for t in range(len(trace.tokens))] if by_position else [slice(None)]
    return [*product(expand(trace, parts), rows)]


def has_row_per_token(graph: Graph, path: str) -> bool:
    return graph[path].step.axes.split()[-2:-1] in (["T"], ["Tq"], ["Tk"])


def with_rows(corrupted: AnyArray, clean: AnyArray, rows: slice) -> AnyArray:
    """The corrupted step with some rows replaced by rows of the clean step."""
    if rows == slice(None):
        return clean
    patched = corrupted.copy()
    patched[..., rows, :] = clean[..., rows, :]
    return patched
