"""What each head does: how much it attends to where a job would have it look.

Jobs: to the previous token; to the first one; on what stands behind the last earlier copy of a
token (induction); from a noun to the adjective that decides what follows; from "it" to the animal
or the thing that it stands for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnlab.errors import InvalidValueError, shown
from attnlab.model import GPT2
from attnlab.pocket.grammar import HELD_OUT_SEED, Sample, sample
from attnlab.tables import align
from attnlab.tokens import Tokens

JOBS = ("previous", "first", "induction", "adjective", "animal", "thing")

# The kinds of sentences that a measurement is made on: together they have places for every job.
MEASURED = ("recital", "creature", "pronoun")
TEXTS = 40  # of each


class Place(NamedTuple):
    """One token that has a job to do: `source` should attend to `targets`, as token indices."""

    job: str
    source: int
    targets: slice


@dataclass(frozen=True, eq=False)
class HeadJobs:
    """How well each head does each job; `repr` is a table of it.

    Attributes
    ----------
    attention : (jobs, L, H), mean weight that a head puts where the job is, see `JOBS`
    even : (jobs,), mean weight there if all visible tokens got the same
    """

    attention: NDArray[np.float64]
    even: NDArray[np.float64]

    def best(self, job: str) -> tuple[int, int]:
        """Layer and head that do a job best.

        Raises
        ------
        InvalidValueError
            There is no such job.
        """
        if job not in JOBS:
            raise InvalidValueError(f"job must be one of {', '.join(JOBS)}; given {shown(job)}")
        heads = self.attention[JOBS.index(job)]
        layer, head = divmod(int(heads.argmax()), heads.shape[1])
        return layer, head

    def __repr__(self) -> str:
        _, layers, heads = self.attention.shape
        lines = [["layer", "head", *JOBS]]
        for layer in range(layers):
            for head in range(heads):
                shares = (f"{share:.2f}" for share in self.attention[:, layer, head])
                lines.append([str(layer), str(head), *shares])
        lines.append(["evenly", "", *(f"{share:.2f}" for share in self.even)])
        return align(lines)


def head_jobs(model: GPT2, seed: int = HELD_OUT_SEED) -> HeadJobs:
    """Measure what each head does on sentences drawn anew from the pocket grammar.

    Parameters
    ----------
    model : any GPT-2; one that was not trained on the grammar may have no head for some jobs
    seed : which sentences

    Returns
    -------
    HeadJobs

    Raises
    ------
    InvalidValueError
        A text has more tokens than the model has positions.
    """
    rng = np.random.default_rng(seed)
    shares: dict[str, list[NDArray[np.float64]]] = {job: [] for job in JOBS}
    even: dict[str, list[float]] = {job: [] for job in JOBS}
    for kind in MEASURED:
        for _ in range(TEXTS):
            text = sample(rng, kind)
            trace = model.trace(text.text)
            weights = np.stack([block.attention.weights for block in trace.blocks])
            for job, source, targets in places(text, trace.tokens):
                shares[job].append(weights[:, :, source, targets].sum(axis=-1))
                even[job].append((targets.stop - targets.start) / (source + 1))
    return HeadJobs(
        np.array([np.mean(shares[job], axis=0) for job in JOBS]),
        np.array([np.mean(even[job]) for job in JOBS]),
    )


def places(text: Sample, tokens: Tokens) -> Iterator[Place]:
    """Every token of a sample that has a job, with where it should look.

    Parameters
    ----------
    text : one sample of the grammar
    tokens : its text's tokens
    """
    last_copy: dict[int, int] = {}
    for i, id in enumerate(tokens.ids.tolist()):
        if i:
            yield Place("previous", i, slice(i - 1, i))
            yield Place("first", i, slice(0, 1))
        if text.kind == "recital" and id in last_copy:
            yield Place("induction", i, slice(last_copy[id] + 1, last_copy[id] + 2))
        last_copy[id] = i
    for job, source, target in text.links:
        last = token_span(text.text, tokens, source).stop - 1
        yield Place(job, last, token_span(text.text, tokens, target))


def token_span(text: str, tokens: Tokens, characters: tuple[int, int]) -> slice:
    """The tokens that hold some of text[start:end]."""
    start, end = (len(text[:index].encode()) for index in characters)
    ends = list(accumulate(len(raw) for raw in tokens.bytes))
    first = next(i for i, until in enumerate(ends) if until > start)
    last = next(i for i, until in enumerate(ends) if until >= end)
    return slice(first, last + 1)
