"""How well heads do known jobs: attend to the previous, first or same token, and induction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnlab.analysis.base import Analysis, heads_axis, named_axis, numbered_axis
from attnlab.analysis.metrics import ratio_of_means
from attnlab.equations import AnyArray, Mask
from attnlab.errors import InvalidTypeError, InvalidValueError, quoted
from attnlab.model.trace import Trace
from attnlab.model.traces import Traces
from attnlab.steps import read_only
from attnlab.steps.labels import Axis, Grid, long_columns
from attnlab.support.checks import as_array, check_choice, check_kind, check_shape
from attnlab.support.messages import Message
from attnlab.support.scale import WEIGHTS
from attnlab.support.tables import Columns, Table
from attnlab.text.tokens import Tokens

# A function of a text's tokens that returns bool (T, T): the keys that each query should attend to.
# Queries without such keys are ignored.
Job: TypeAlias = Callable[[Tokens], ArrayLike]


def previous(tokens: Tokens) -> Mask:
    """Attend to the previous token."""
    return np.eye(len(tokens), k=-1, dtype=bool)


def first(tokens: Tokens) -> Mask:
    """Attend to the first token, on which attention rests that a head needs nowhere else."""
    targets = np.zeros((len(tokens), len(tokens)), bool)
    targets[1:, 0] = True
    return targets


def same(tokens: Tokens) -> Mask:
    """Attend to earlier occurrences of the query's token."""
    return np.tril(tokens.ids[:, np.newaxis] == tokens.ids, k=-1)


def induction(tokens: Tokens) -> Mask:
    """Attend to the token after the last earlier occurrence of the query's token."""
    occurrences = same(tokens)
    targets = np.zeros_like(occurrences)
    queries = np.flatnonzero(occurrences.any(axis=-1))
    # argmax finds a row's first True: in the reversed row, the last occurrence.
    last = len(tokens) - 1 - occurrences[queries, ::-1].argmax(axis=-1)
    targets[queries, last + 1] = True
    return targets


JOBS: dict[str, Job] = {"previous": previous, "first": first, "same": same, "induction": induction}


class HeadJobs(Analysis):
    """How well each head does each job, see `jobs`.

    Attributes
    ----------
    jobs : the names of the jobs
    attention : float64 (jobs, L, H), mean weight of a head on the job's keys; NaN if no query has
        such keys
    standard_errors : (jobs, L, H), the errors of `attention` as a mean over texts; NaN for one text
    even : (jobs,), the mean weight of a head that attends equally to all visible tokens
    """

    meaning: ClassVar[str] = (
        "Each number is the mean weight that a head gives to the job's keys, over the queries that "
        "have such keys."
    )
    note: ClassVar[str] = (
        "A head's attention pattern in these texts says neither what it reads there nor whether "
        "it does something else as well."
    )
    source: ClassVar[str] = (
        "Olsson et al., “In-context Learning and Induction Heads” (2022); for the first token, "
        "Xiao et al., “Efficient Streaming Language Models with Attention Sinks” (2023)"
    )

    attention: NDArray[np.float64]
    standard_errors: NDArray[np.float64]
    even: NDArray[np.float64]

    title = "Jobs of heads"

    def __init__(
        self, jobs: Iterable[str], attention: AnyArray, errors: AnyArray, even: AnyArray
    ) -> None:
        self.jobs = tuple(jobs)
        self.attention, self.standard_errors = read_only(attention), read_only(errors)
        self.even = read_only(even)

    def best(self, job: str) -> tuple[int, int]:
        """The layer and head with the largest mean weight on a job's keys."""
        check_choice(job, self.jobs, "job")
        heads = self.attention[self.jobs.index(job)]
        if np.isnan(heads).any():
            raise InvalidValueError(f"the text has no keys for the job {job}")
        layer, head = divmod(int(heads.argmax()), heads.shape[1])
        return layer, head

    def _grid(self) -> tuple[AnyArray, Axis, Axis]:
        jobs, L, H = self.attention.shape
        numbers = self.attention.reshape(jobs, -1).T
        return numbers, heads_axis("head", L, H), named_axis("job", self.jobs)

    def _data(self) -> Columns:
        L, H = self.attention.shape[1:]
        axes = named_axis("job", self.jobs), heads_axis("head", L, H)
        even = np.repeat(self.even, L * H)
        errors = {"standard_error": self.standard_errors}
        return long_columns(axes, {"attention": self.attention, **errors, "even": even})

    def _grids(self) -> list[Grid]:
        L, H = self.attention.shape[1:]
        axes = numbered_axis("layer", L), numbered_axis("head", H)
        titles = (
            Message("{job}; evenly {even}", job=Message(job), even=f"{even:.2f}")
            for job, even in zip(self.jobs, self.even, strict=True)
        )
        return [
            Grid(title, numbers, axes, fixed_scale=WEIGHTS)
            for title, numbers in zip(titles, self.attention, strict=True)
            if not np.isnan(numbers).all()
        ]

    def _tables(self) -> Iterator[str | Table]:
        def cells(numbers: AnyArray) -> list[str]:
            return ["" if np.isnan(number) else f"{number:.2f}" for number in numbers]

        lines: list[list[str]] = [[Message("layer"), Message("head"), *self.jobs]]
        for layer, head in np.ndindex(*self.attention.shape[1:]):
            lines.append([str(layer), str(head), *cells(self.attention[:, layer, head])])
        yield Table([*lines, [Message("evenly"), "", *cells(self.even)]])
        for job, even in zip(self.jobs, self.even, strict=True):
            if np.isnan(even):
                yield Message("No query has keys for the job {job}: its column is empty.", job=job)


def jobs(trace: Trace | Iterable[Trace], jobs: Mapping[str, Job] | None = None) -> HeadJobs:
    """Score how well each head matches known attention patterns, called jobs.

    The score of a head is the mean weight that queries give to the keys of the job. A pattern
    shows neither what the head reads from the keys nor whether it has other functions, too.

    Parameters
    ----------
    trace : a trace, or several traces
    jobs : functions by name, each from the trace's Tokens to bool (T, T), the keys that each query
        should attend to; None for previous token, first token, same token, and induction (the
        token after the last earlier occurrence of the query's token)
    """
    if isinstance(trace, Trace):
        traces: Iterable[Trace] = [trace]
    else:
        check_kind(trace, Iterable, "trace", "a Trace, or several")
        traces = trace._in_groups() if isinstance(trace, Traces) else trace
    jobs = JOBS if jobs is None else jobs
    if not isinstance(jobs, Mapping) or not jobs or not all(map(callable, jobs.values())):
        raise InvalidTypeError(
            f"jobs must be a dict from names to functions of Tokens; got {quoted(jobs)}"
        )

    def with_targets(trace: Trace) -> tuple[Trace, Mapping[str, Mask]]:
        check_kind(trace, Trace, "trace", "a Trace, or several")
        # A fork, so that each text's steps are freed before the next text.
        return trace._fork(), {name: targets_of(trace, name, job) for name, job in jobs.items()}

    return measure_jobs(map(with_targets, traces), jobs)


def measure_jobs(
    texts: Iterable[tuple[Trace, Mapping[str, Mask]]], jobs: Iterable[str]
) -> HeadJobs:
    """Average over all queries that have keys. Each trace has bool (T, T) keys for each job."""
    attention: dict[str, list[AnyArray]] = {job: [] for job in jobs}  # (L, H, queries) per text
    even: dict[str, list[AnyArray]] = {job: [] for job in attention}  # (queries,) per text
    for trace, targets in texts:
        weights = np.stack([block.attention.weights for block in trace.blocks])
        visible = np.arange(1, len(trace.tokens) + 1)  # the number of each query's visible keys
        for job, keys in targets.items():
            queries = keys.any(axis=-1)
            attention[job].append((weights[:, :, queries] * keys[queries]).sum(axis=-1))
            even[job].append(keys[queries].sum(axis=-1) / visible[queries])
    if not all(even.values()):
        raise InvalidValueError("jobs need at least one trace; got an empty list")
    return HeadJobs(
        list(attention),
        np.array([mean_of(np.concatenate(arrays, axis=-1)) for arrays in attention.values()]),
        np.array([error_of(arrays) for arrays in attention.values()]),
        np.array([mean_of(np.concatenate(arrays)) for arrays in even.values()]),
    )


def mean_of(numbers: AnyArray) -> Any:
    """The mean over the last axis, in float64; NaN if the axis is empty."""
    count = numbers.shape[-1]
    if not count:
        return np.full(numbers.shape[:-1], np.nan)
    return numbers.sum(axis=-1, dtype=np.float64) / count


def error_of(texts: Sequence[AnyArray]) -> AnyArray:
    """The standard error of the mean over all queries of texts, (L, H, queries) each."""
    measured = [text for text in texts if text.shape[-1]]
    if not measured:
        return np.full(texts[0].shape[:-1], np.nan)
    sums = np.array([text.sum(axis=-1, dtype=np.float64) for text in measured])
    queries = np.array([text.shape[-1] for text in measured])
    error: AnyArray = ratio_of_means(sums.reshape(len(sums), -1), queries)[1]
    return error.reshape(sums.shape[1:])


def targets_of(trace: Trace, name: str, job: Job) -> Mask:
    """Check a job's result, and return the visible keys (T, T) that it selects."""
    if trace.tokens_before:
        raise InvalidValueError("jobs need a trace of a whole text; got a step of generation")
    T = len(trace.tokens)
    targets = as_array(job(trace.tokens), f"the result of the job {name}")
    if targets.dtype != bool:
        raise InvalidTypeError(f"the job {name} must return bool (T, T); got {targets.dtype}")
    check_shape(targets, (T, T), f"the result of the job {name}")
    return targets & np.tril(np.ones((T, T), bool))
