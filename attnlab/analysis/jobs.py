"""What each head does: how much it attends to where a job would have it look."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnlab.analysis.base import Analysis, Trace, head_called, named
from attnlab.equations import AnyArray, Mask
from attnlab.errors import InvalidTypeError, InvalidValueError, quoted
from attnlab.steps import read_only
from attnlab.support.tables import Table
from attnlab.text.tokens import Tokens
from attnlab.views.shown import Axis

# A function of a text's tokens that gives, bool (T, T), the keys that each query should look at.
# Rows without any have nothing to do.
Job: TypeAlias = Callable[[Tokens], ArrayLike]


def previous(tokens: Tokens) -> Mask:
    """To the token before."""
    return np.eye(len(tokens), k=-1, dtype=bool)


def first(tokens: Tokens) -> Mask:
    """To the first token, where heads look that have nothing to do; it can't look elsewhere."""
    targets = np.zeros((len(tokens), len(tokens)), bool)
    targets[1:, 0] = True
    return targets


def same(tokens: Tokens) -> Mask:
    """To earlier copies of the token."""
    return np.tril(tokens.ids[:, np.newaxis] == tokens.ids, k=-1)


def induction(tokens: Tokens) -> Mask:
    """To what stands behind the last earlier copy of the token."""
    copies = same(tokens)
    targets = np.zeros_like(copies)
    rows = np.flatnonzero(copies.any(axis=-1))
    last = len(tokens) - 1 - copies[rows, ::-1].argmax(axis=-1)
    targets[rows, last + 1] = True
    return targets


JOBS: dict[str, Job] = {
    "previous": previous,
    "first": first,
    "same": same,
    "induction": induction,
}


class HeadJobs(Analysis):
    """How well each head does each job, as `Trace.jobs` returns it.

    Attributes
    ----------
    jobs : their names
    attention : float64 (jobs, L, H), mean weight that a head puts where the job is; NaN of a job
        for which there is no place in the text
    even : (jobs,), mean weight there if all visible tokens got the same
    """

    note: ClassVar[str] = (
        "That a head looks there in these texts does not tell what it reads there, nor that it "
        "does nothing else."
    )
    source: ClassVar[str] = (
        "Olsson et al., “In-context Learning and Induction Heads” (2022); for the first token, "
        "Xiao et al., “Efficient Streaming Language Models with Attention Sinks” (2023)"
    )

    attention: NDArray[np.float64]
    even: NDArray[np.float64]

    title = "Jobs of heads"

    def __init__(self, jobs: Iterable[str], attention: AnyArray, even: AnyArray) -> None:
        self.jobs = tuple(jobs)
        self.attention, self.even = read_only(attention), read_only(even)

    def best(self, job: str) -> tuple[int, int]:
        """Layer and head that do a job best.

        Raises
        ------
        InvalidValueError
            The text has no place for that job.
        """
        if not isinstance(job, str) or job not in self.jobs:
            raise InvalidValueError(f"job must be one of {', '.join(self.jobs)}; got {quoted(job)}")
        heads = self.attention[self.jobs.index(job)]
        if np.isnan(heads).any():
            raise InvalidValueError(f"no token of the text has a place for the job {job}")
        layer, head = divmod(int(heads.argmax()), heads.shape[1])
        return layer, head

    def _grid(self) -> tuple[AnyArray, Axis, Axis]:
        jobs, L, H = self.attention.shape
        names = tuple(head_called(n, h) for n in range(L) for h in range(H))
        return self.attention.reshape(jobs, -1).T, named("head", names), named("job", self.jobs)

    def _tables(self) -> Iterator[str | Table]:
        def shares(numbers: AnyArray) -> list[str]:
            return ["" if np.isnan(share) else f"{share:.2f}" for share in numbers]

        lines = [["layer", "head", *self.jobs]]
        for layer, head in np.ndindex(*self.attention.shape[1:]):
            lines.append([str(layer), str(head), *shares(self.attention[:, layer, head])])
        yield Table([*lines, ["evenly", "", *shares(self.even)]])
        for job, even in zip(self.jobs, self.even, strict=True):
            if np.isnan(even):
                yield f"no token has a place for the job {job}: its column is empty"


def head_jobs(traces: Iterable[Trace], jobs: Mapping[str, Job] = JOBS) -> HeadJobs:
    """How much each head of some traces does each job.

    Parameters
    ----------
    traces : of one model, or more than one text
    jobs : by name, functions of a text's tokens that give bool (T, T), the keys that each query
        should look at
    """
    if not isinstance(jobs, Mapping) or not jobs or not all(map(callable, jobs.values())):
        raise InvalidTypeError(
            f"jobs are a dict of names and functions of Tokens; got {quoted(jobs)}"
        )
    texts = (
        (trace.fork(), {name: targets_of(trace, name, job) for name, job in jobs.items()})
        for trace in traces
    )
    return measure_jobs(texts, jobs)


def measure_jobs(
    texts: Iterable[tuple[Trace, Mapping[str, Mask]]], jobs: Iterable[str]
) -> HeadJobs:
    """The mean over all queries of all texts that have something to do.

    Parameters
    ----------
    texts : traces, each with its targets by job, bool (T, T)
    jobs : the jobs' names
    """
    shares: dict[str, list[AnyArray]] = {job: [] for job in jobs}
    even: dict[str, list[AnyArray]] = {job: [] for job in shares}
    for trace, targets in texts:
        weights = np.stack([block.attention.weights for block in trace.blocks])
        seen = np.arange(1, len(trace.tokens) + 1)
        for job, keys in targets.items():
            rows = keys.any(axis=-1)
            shares[job].append((weights[:, :, rows] * keys[rows]).sum(axis=-1))
            even[job].append(keys[rows].sum(axis=-1) / seen[rows])
    return HeadJobs(
        shares,
        np.array([mean_of(np.concatenate(parts, axis=-1)) for parts in shares.values()]),
        np.array([mean_of(np.concatenate(parts)) for parts in even.values()]),
    )


def mean_of(numbers: AnyArray) -> Any:
    """Over the last axis, in float64; NaN where there are none."""
    count = numbers.shape[-1]
    return (
        numbers.sum(axis=-1, dtype=np.float64) / count if count else numbers.sum(axis=-1) + np.nan
    )


def targets_of(trace: Trace, name: str, job: Job) -> Mask:
    """Where a job would have each query look."""
    if trace.tokens_before:
        raise InvalidValueError("jobs are looked for in whole texts; got a step of generation")
    T = len(trace.tokens)
    targets = np.asarray(job(trace.tokens))
    if targets.dtype != bool:
        raise InvalidTypeError(f"the job {name} gives bool (T, T); got {targets.dtype}")
    if targets.shape != (T, T):
        raise InvalidValueError(f"the job {name} gives shape {(T, T)}; got {targets.shape}")
    return targets & np.tril(np.ones((T, T), bool))
