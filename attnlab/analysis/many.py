"""Analyses of many texts: means over the texts, with standard errors.

Texts of one length are computed side by side; see `attnlab.model.traces`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain, product
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from attnlab.analysis.attribution import Attribution
from attnlab.analysis.base import (
    Analysis,
    Named,
    Target,
    Trace,
    TraceSequence,
    named_axis,
    number_of_texts,
    numbered_axis,
)
from attnlab.analysis.lens import OneToken, decoded, ranks_and_probabilities, stops_of
from attnlab.analysis.patching import (
    AttributionPatching,
    Metric,
    Patch,
    Patching,
    attribution_patch,
    check_traces,
    expanded,
    has_tokens,
    measure_of,
    patch,
    rows_of,
    with_rows,
)
from attnlab.equations import AnyArray, Array
from attnlab.errors import InvalidTypeError, InvalidValueError
from attnlab.forward.edits import changed_step, edited
from attnlab.forward.slices import final_row, with_step
from attnlab.steps import at, read_only
from attnlab.support.console import progress_bar
from attnlab.support.messages import Message
from attnlab.support.tables import Table, header, with_error
from attnlab.views.positions import checked_index
from attnlab.views.shown import Axis

# Tokens that are computed side by side: enough for fast matrix products, with little memory.
TOKENS_IN_GROUP = 512

# Rows of patched runs in a batch.
ROWS_AT_ONCE = 1024

# Parts that a table names with their standard errors.
PARTS_SHOWN = 10


class MeanPatching(Patching):
    """How much each patched step restores over pairs of texts, as `attnlab.patch` returns it.

    restored = Σ (metric(patched) - metric(corrupted)) / Σ (metric(clean) - metric(corrupted)),
    sums over n pairs

    A ratio of means, so that a pair whose metric hardly differs doesn't dominate. Its standard
    error is the usual one of a ratio, by linearisation: with residuals e = effect - restored ·
    (clean - corrupted), it is √(Σ e² / (n (n - 1))), divided by the absolute mean of clean -
    corrupted.

    Attributes
    ----------
    restored : as in `Patching`, of all pairs together
    standard_errors : of `restored`, with its shape; NaN for one pair
    effects : (n, ...), metric(patched) - metric(corrupted) of each pair
    clean, corrupted : (n,), the metric of each trace
    paths : of the patched steps, in the order of `restored` without positions
    """

    meaning: ClassVar[str] = (
        "Each number is how much of the metric one patch restores, over all pairs: 0 is nothing, 1 "
        "is everything."
    )
    note: ClassVar[str] = (
        "A step that restores much carries the difference between the texts of a pair; it may be "
        "neither the only one nor the origin of the difference. Steps that matter only together "
        "may each restore nothing. Standard errors say how much the mean would vary with other "
        "pairs drawn as these were; they don't cover other kinds of texts."
    )
    source: ClassVar[str] = (
        f"{Patching.source}; Cochran, “Sampling Techniques” (1977), chapter 6, ratio of means"
    )
    standard_errors: NDArray[np.float64]
    effects: NDArray[np.float64]
    clean: NDArray[np.float64]  # type: ignore[assignment]
    corrupted: NDArray[np.float64]  # type: ignore[assignment]

    def _set_many(self, trace: Trace, effects: Any, clean: Any, corrupted: Any) -> None:
        """Set the numbers, from effects (n, patches); the trace is of one of the texts."""
        change = clean - corrupted
        shares, errors = ratio_of_means(effects, change)
        self._set(trace, list(shares))
        shape = self.restored.shape
        self.effects = read_only(effects.reshape(len(effects), *shape))
        self.standard_errors = read_only(errors.reshape(shape))
        self.clean, self.corrupted = read_only(clean), read_only(corrupted)

    def _tables(self) -> Iterator[str | Table]:
        yield from super()._tables()
        numbers, rows, columns = self._grid()
        order = np.argsort(-np.abs(numbers), axis=None, kind="stable")[:PARTS_SHOWN]
        lines = [header("strongest", "restored", "± standard error")]
        for row, column in zip(*np.unravel_index(order, numbers.shape), strict=True):
            name = ", ".join(
                f"{axis.name} {axis.labels[i]}".strip()
                for axis, i in ((rows, row), (columns, column))
            )
            error = self.standard_errors.reshape(numbers.shape)[row, column]
            lines.append((name, *with_error(float(numbers[row, column]), float(error))))
        yield Table(lines)
        clean, corrupted = (
            plus_minus(float(metric.mean()), float(standard_error(metric)))
            for metric in (self.clean, self.corrupted)
        )
        n = len(self.clean)
        yield Message(
            "{pairs}; metric {clean} in clean and {corrupted} in corrupted traces",
            pairs=Message("one pair") if n == 1 else Message("{count} pairs", count=n),
            clean=clean,
            corrupted=corrupted,
        )


class MeanAttributionPatching(MeanPatching):
    """A linear approximation of `MeanPatching`, see `attnlab.attribution_patch`."""

    titles = AttributionPatching.titles
    note: ClassVar[str] = AttributionPatching.note
    source: ClassVar[str] = AttributionPatching.source


class MeanAttribution(Attribution):
    """What each component adds to a logit, means over texts; as `Traces.attribution` returns it.

    Attributes
    ----------
    heads, mlps, token_embedding, position_embedding, embedding, bias, total : as in `Attribution`,
        means over texts
    standard_errors : of the means, by attribute name; NaN for one text
    each : the `Attribution` of each text
    """

    names = (
        *("heads", "mlps", "token_embedding", "position_embedding"),
        *("embedding", "bias", "total"),
    )

    def __init__(self, each: Sequence[Attribution], words: str) -> None:
        self.each = tuple(each)
        self.title = Message(
            "Direct logit attribution, mean of {texts}: {target}",
            texts=number_of_texts(len(each)),
            target=words,
        )
        self.standard_errors: dict[str, Any] = {}
        for name in self.names:
            numbers = np.array([getattr(attribution, name) for attribution in each], float)
            mean, error = numbers.mean(axis=0), standard_error(numbers)
            setattr(self, name, read_only(mean) if mean.ndim else float(mean))
            self.standard_errors[name] = read_only(error) if mean.ndim else float(error)

    def _tables(self) -> Iterator[str | Table]:
        yield from super()._tables()
        if len(self.each) == 1:
            return
        yield Message(
            "Standard errors are at most {heads} for heads and {mlps} for MLPs.",
            heads=f"{self.standard_errors['heads'].max():.2g}",
            mlps=f"{self.standard_errors['mlps'].max():.2g}",
        )

    def by_token(self) -> Any:
        raise InvalidTypeError(
            "texts have different tokens. Use .by_token() of one of .each, such as each[0]"
        )


class MeanLens(Analysis):
    """The logit lens of several texts, as `Traces.logit_lens` returns it.

    Attributes
    ----------
    stops : S paths, as in `Lens`
    probabilities : (S,), the mean over the texts of a token's probability decoded from each stop
    ranks : (S,), of its rank
    standard_errors : of the means, by attribute name; NaN for one text
    """

    meaning: ClassVar[str] = OneToken.meaning
    note: ClassVar[str] = OneToken.note
    source: ClassVar[str] = OneToken.source
    names = ("probabilities", "ranks")

    probabilities: NDArray[np.float64]
    ranks: NDArray[np.float64]

    def __init__(self, title: str, stops: tuple[str, ...], each: AnyArray) -> None:
        """Set the means of each (n, 2, S), probabilities and ranks."""
        self.title, self.stops = title, stops
        self.standard_errors: dict[str, NDArray[np.float64]] = {}
        means, errors = each.mean(axis=0), standard_error(each)
        for name, mean, error in zip(self.names, means, errors, strict=True):
            setattr(self, name, read_only(mean))
            self.standard_errors[name] = read_only(error)

    def _grid(self) -> tuple[AnyArray, Axis, Axis]:
        columns = named_axis("", ("probability",))
        return self.probabilities[:, np.newaxis], named_axis("stop", self.stops), columns

    def _tables(self) -> Iterator[str | Table]:
        lines = [header("", "probability", "± standard error", "rank", "± standard error")]
        for row, stop in enumerate(self.stops):
            cells = (
                with_error(float(getattr(self, name)[row]), float(self.standard_errors[name][row]))
                for name in self.names
            )
            lines.append((stop, *chain(*cells)))
        yield Table(lines)


def plus_minus(number: float, error: float) -> str:
    """A number with its standard error, if that is known."""
    return " ± ".join(filter(None, with_error(number, error)))


def standard_error(numbers: AnyArray) -> NDArray[np.float64]:
    """The standard error of the mean over the first axis; NaN for one number."""
    n = len(numbers)
    if n == 1:
        return np.full(numbers.shape[1:], math.nan)
    return np.asarray(numbers.std(axis=0, ddof=1) / math.sqrt(n))


def ratio_of_means(effects: AnyArray, totals: AnyArray) -> tuple[Any, Any]:
    """Σ effects / Σ totals over n texts, and its standard error.

    √(Σ e² / (n (n - 1))) / |mean of totals|, where e = effect - ratio · total

    Parameters
    ----------
    effects, totals : (n, m) and (n,)

    Returns
    -------
    both (m,)

    Notes
    -----
    Source: Cochran, “Sampling Techniques” (1977), chapter 6, by linearisation.
    """
    if not totals.mean():
        raise InvalidValueError(
            "the mean change over these texts is 0, so there is nothing to restore"
        )
    ratio = effects.mean(axis=0) / totals.mean()
    return ratio, standard_error(effects - ratio * totals[:, np.newaxis]) / abs(totals.mean())


def grouped(keys: Sequence[Any], most: int) -> list[list[int]]:
    """The numbers of texts with the same key, in groups of at most `most` tokens.

    Parameters
    ----------
    keys : the number of tokens of each text, or tuples that begin with it
    """
    groups: list[list[int]] = []
    by_key: dict[Any, list[int]] = {}
    for number, key in enumerate(keys):
        by_key.setdefault(key, []).append(number)
    for key, numbers in by_key.items():
        size = max(most // (key[0] if isinstance(key, tuple) else key), 1)
        groups += [numbers[start : start + size] for start in range(0, len(numbers), size)]
    return groups


def one_each(value: Any, count: int, what: str) -> list[Any]:
    """A value for each text: a list of them, or one for all."""
    if not isinstance(value, list):
        return [value] * count
    if len(value) != count:
        raise InvalidValueError(
            f"{what} must have a value for each of the {count} texts; got {len(value)}"
        )
    return value


def check_pairs(clean: Any, corrupted: Any) -> None:
    """Raise unless both are traces of several texts, in pairs of equal length."""
    for traces in (clean, corrupted):
        if not isinstance(traces, TraceSequence):
            raise InvalidTypeError(
                "clean and corrupted must both be traces of one text, or both of several, as "
                f"model.trace returns them; got {type(traces).__name__}"
            )
    if len(clean) != len(corrupted):
        raise InvalidValueError(
            f"clean and corrupted must be pairs; got {len(clean)} and {len(corrupted)} texts"
        )
    for number, (one, other) in enumerate(zip(clean, corrupted, strict=True)):
        check_traces(one, other, f" (pair {number})")


@contextmanager
def in_pair(number: int) -> Iterator[None]:
    """Name the pair in errors about its values."""
    try:
        yield
    except InvalidValueError as error:
        raise InvalidValueError(f"pair {number}: {error}") from None


def of_each_pair(
    clean: Any, corrupted: Any, metric: Any, analyse: Callable[..., Any], progress: bool = False
) -> list[Any]:
    """`analyse(clean, corrupted, metric=...)` of each pair; its traces are freed with its group."""
    check_pairs(clean, corrupted)
    metrics, results = one_each(metric, len(clean), "metric"), dict[int, Any]()
    with progress_bar(total=len(clean), disable=not progress, unit="pair") as bar:
        for numbers in clean.groups():
            sides = (side.side_by_side(numbers)[1] for side in (clean, corrupted))
            for number, clean_trace, corrupted_trace in zip(numbers, *sides, strict=True):
                with in_pair(number):
                    results[number] = analyse(clean_trace, corrupted_trace, metric=metrics[number])
                bar.update()
    return [results[number] for number in range(len(clean))]


def patch_many(
    clean: TraceSequence,
    corrupted: TraceSequence,
    parts: str,
    metric: Metric | list[Any],
    by_position: bool,
    progress: bool,
) -> MeanPatching:
    """`attnlab.patch` for pairs of traces."""
    check_pairs(clean, corrupted)
    metrics = one_each(metric, len(clean), "metric")
    targets = []
    for number, (trace, of_pair) in enumerate(zip(clean, metrics, strict=True)):
        with in_pair(number):
            targets.append(measure_of(trace, of_pair)[2])
    first = corrupted[0]
    steps = [changed_step(first._run.graph, path) for path in expanded(first, parts)]
    is_batched = None not in targets and all(
        has_tokens(first._run.graph, step) and first._run.graph[step].step.name != "mask"
        for step in steps
    )
    result: MeanPatching
    if not is_batched:
        analyse = partial(patch, parts=parts, by_position=by_position, progress=False)
        result = mean_of_pairs(
            MeanPatching, clean, corrupted, parts, metric, by_position, analyse, progress
        )
        return result
    result = pairs_of(MeanPatching, clean, corrupted, parts, metric, by_position)
    patches = patches_of(clean, corrupted, parts, by_position)
    effects = np.empty((len(clean), len(patches)))
    limits = np.empty((2, len(clean)))
    with progress_bar(total=effects.size, disable=not progress, unit="run") as bar:
        for numbers in pair_groups(clean, corrupted):
            clean_group, corrupted_group = (
                side.side_by_side(numbers)[0] for side in (clean, corrupted)
            )
            group_targets = [target for target in (targets[number] for number in numbers) if target]
            directions = np.stack([target.difference(clean_group.W_U) for target in group_targets])
            for side, trace in enumerate((clean_group, corrupted_group)):
                row = trace.final[..., -1, :]
                limits[side, numbers] = (row * directions).sum(axis=-1)
            for chosen, row in patched_rows(clean_group, corrupted_group, patches, len(numbers)):
                measured = (row * directions).sum(axis=-1)  # (patches, texts)
                effects[np.ix_(numbers, chosen)] = measured.T - limits[1, numbers, np.newaxis]
                bar.update(measured.size)
    result._set_many(corrupted[0], effects, *limits)
    return result


def patched_rows(
    clean: Trace, corrupted: Trace, patches: Sequence[Patch], texts: int
) -> Iterator[tuple[list[int], Array]]:
    """Numbers of patches, and the last row of `final` for each, (patches, texts, D).

    Patches of one step and the same rows are computed side by side, from the first row that they
    change.
    """
    run, T = corrupted._run, len(corrupted.positions)
    alike: dict[tuple[str, int], list[int]] = {}
    for number, (path, row) in enumerate(patches):
        step = changed_step(run.graph, path)
        alike.setdefault((step, row.start or 0), []).append(number)
    for (step, _), numbers in alike.items():
        before, chosen, values = at(corrupted, step), list[int](), list[AnyArray]()
        for number in numbers:
            path, row = patches[number]
            value = with_rows(at(corrupted, path), at(clean, path), row)
            values.append(edited(run, {path: value}).value(step))
            chosen.append(number)
            start = first_change(values, before)
            if (T - start) * texts * (len(chosen) + 1) > ROWS_AT_ONCE or number == numbers[-1]:
                # A single text has no leading axis.
                stacked = np.stack(values)
                final = final_row(with_step(run, step, stacked, start))
                yield chosen, final.reshape(len(chosen), texts, -1)
                chosen, values = [], []


def first_change(values: Sequence[AnyArray], before: AnyArray) -> int:
    """The first row in which any value differs; the last row if none does."""
    T = before.shape[-2]
    rows = np.zeros(T, bool)
    for value in values:
        rows |= (value != before).any(axis=(*range(value.ndim - 2), -1))
    return int(rows.argmax()) if rows.any() else T - 1


def patches_of(
    clean: TraceSequence, corrupted: TraceSequence, parts: str, by_position: bool
) -> list[Patch]:
    """Paths and rows of all patches."""
    lengths = {len(trace.tokens) for trace in corrupted}
    if by_position and len(lengths) > 1:
        raise InvalidValueError(
            f"by_position needs texts of one length; got {min(lengths)} to {max(lengths)} tokens"
        )
    return [*product(expanded(corrupted[0], parts), rows_of(corrupted[0], by_position))]


def pair_groups(clean: TraceSequence, corrupted: TraceSequence) -> list[list[int]]:
    """The numbers of pairs of one length whose first different token is at the same position."""
    keys = []
    for clean_trace, corrupted_trace in zip(clean, corrupted, strict=True):
        differs = clean_trace.tokens.ids != corrupted_trace.tokens.ids
        keys.append((len(differs), int(differs.argmax())))
    return grouped(keys, TOKENS_IN_GROUP)


def attribution_patch_many(
    clean: TraceSequence,
    corrupted: TraceSequence,
    parts: str,
    metric: Any,
    by_position: bool,
) -> MeanAttributionPatching:
    """`attnlab.attribution_patch` for pairs of traces."""
    check_pairs(clean, corrupted)
    patches_of(clean, corrupted, parts, by_position)  # checks lengths
    analyse = partial(attribution_patch, parts=parts, by_position=by_position)
    result: MeanAttributionPatching = mean_of_pairs(
        MeanAttributionPatching, clean, corrupted, parts, metric, by_position, analyse
    )
    return result


def mean_of_pairs(
    kind: type[Any],
    clean: Any,
    corrupted: Any,
    parts: str,
    metric: Any,
    by_position: bool,
    analyse: Callable[..., Any],
    progress: bool = False,
) -> Any:
    """The result for pairs of traces, from `analyse(clean, corrupted, metric=...)` of each."""
    results = of_each_pair(clean, corrupted, metric, analyse, progress)
    mean = pairs_of(kind, clean, corrupted, parts, metric, by_position)
    mean._set_many(corrupted[0], *effects_of(results))
    return mean


def effects_of(results: Sequence[Patching]) -> tuple[Any, Any, Any]:
    """Effects (n, patches), and the metric in clean and corrupted traces, of each pair."""
    clean = np.array([result.clean for result in results])
    corrupted = np.array([result.corrupted for result in results])
    shares = np.array([result.restored.ravel() for result in results])
    return shares * (clean - corrupted)[:, np.newaxis], clean, corrupted


def pairs_of(
    kind: type[Any],
    clean: TraceSequence,
    corrupted: TraceSequence,
    parts: str,
    metric: Any,
    by_position: bool,
) -> Any:
    """The result for pairs, whose numbers are set later."""
    words = words_of(clean[0], metric)
    result = kind(corrupted[0], parts, by_position, words, (math.nan, math.nan))
    if by_position:  # texts have different tokens there
        result._positions = numbered_axis("position", len(corrupted[0].tokens))
    return result


def words_of(trace: Trace, metric: Any) -> str:
    """The metric of several pairs in words."""
    if isinstance(metric, list):
        return Message("a target for each pair")
    _, words, target = measure_of(trace, metric)
    return target_of(target) if target else words


def attribution_many(
    traces: TraceSequence,
    token: Named | list[Named],
    against: Named | list[Named] | None,
    position: int,
) -> MeanAttribution:
    """`Trace.attribution` for several texts."""
    tokens, against_tokens = (
        one_each(token, len(traces), "token"),
        one_each(against, len(traces), "against"),
    )
    each: dict[int, Attribution] = {}
    for numbers in traces.groups():
        for number, trace in zip(numbers, traces.side_by_side(numbers)[1], strict=True):
            each[number] = Attribution(trace, tokens[number], against_tokens[number], position)
    attributions = [each[number] for number in range(len(traces))]
    is_one = not isinstance(token, list) and not isinstance(against, list)
    words = target_of(attributions[0].target) if is_one else Message("a target for each text")
    return MeanAttribution(attributions, words)


def lens_many(traces: TraceSequence, token: Named | list[Named] | None, position: int) -> MeanLens:
    """`Traces.logit_lens`."""
    stops, each = stops_of(traces[0]), np.empty((len(traces), 2, len(stops_of(traces[0]))))
    tokens = one_each(token, len(traces), "token")
    ids = [-1 if token is None else traces[0].vocabulary.named(token).id for token in tokens]
    for numbers in traces.groups():
        whole, some = traces.side_by_side(numbers)
        row = checked_index(position, "position", len(some[0].tokens))
        of_texts = np.array([ids[number] for number in numbers])[:, np.newaxis]
        if token is None:
            of_texts = decoded(whole, at(whole, stops[-1])[..., row, :]).argmax(-1).reshape(-1, 1)
        for s, stop in enumerate(stops):
            stream = at(whole, stop)[..., row, :].reshape(len(numbers), -1)
            ranks, probabilities = ranks_and_probabilities(of_texts, decoded(whole, stream))
            each[numbers, 0, s], each[numbers, 1, s] = probabilities, ranks
    if token is None:
        words: str = Message("each text’s most probable token")
    elif isinstance(token, list):
        words = Message("a token for each text")
    else:
        words = traces[0].vocabulary.named(token).symbol
    title = Message(
        "Logit lens, mean of {texts}: probability and rank of {token}",
        texts=number_of_texts(len(traces)),
        token=words,
    )
    return MeanLens(title, stops, each)


def target_of(target: Target) -> str:
    """A target in words, without its position."""
    if target.against is None:
        return Message("the logit of {token}", token=target.token.symbol)
    return Message(
        "the logit of {token} minus that of {other}",
        token=target.token.symbol,
        other=target.against.symbol,
    )
