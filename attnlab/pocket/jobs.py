"""Measure the jobs of heads on texts of the pocket grammar.

Besides the general jobs of `attnlab.analysis.jobs`, heads may attend from a noun to the adjective
that determines the verb, and from "it" to the animal or thing that it refers to.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

import numpy as np

from attnlab.analysis.jobs import HeadJobs, first, induction, measure_jobs, previous
from attnlab.equations import Mask
from attnlab.model.gpt2 import GPT2
from attnlab.model.trace import Trace
from attnlab.pocket.grammar import HELD_OUT_SEED, Sample, sample
from attnlab.text.tokens import Tokens

JOBS = ("previous", "first", "induction", "adjective", "animal", "thing")

# The kinds of texts that are measured. Together they have targets for every job.
MEASURED = ("recital", "creature", "pronoun")
TEXTS = 40  # number of texts of each kind


def head_jobs(model: GPT2, seed: int = HELD_OUT_SEED) -> HeadJobs:
    """Measure what each head of any GPT-2 does on newly sampled texts."""

    def traces_with_targets() -> Iterator[tuple[Trace, dict[str, Mask]]]:
        rng = np.random.default_rng(seed)
        for kind in MEASURED:
            for _ in range(TEXTS):
                sampled = sample(rng, kind)
                trace = model.trace(sampled.text)
                yield trace, targets(sampled, trace.tokens)

    return measure_jobs(traces_with_targets(), JOBS)


def targets(sampled: Sample, tokens: Tokens) -> dict[str, Mask]:
    """Target keys of each query by job, bool (T, T), for a sample and its tokens."""
    masks = {"previous": previous(tokens), "first": first(tokens)}
    if sampled.kind == "recital":
        masks["induction"] = induction(tokens)
    for job, source, target in sampled.links:
        query = token_span(sampled.text, tokens, source).stop - 1  # the word's last token
        keys = token_span(sampled.text, tokens, target)
        empty = np.zeros((len(tokens), len(tokens)), bool)
        masks.setdefault(job, empty)[query, keys] = True
    return masks


def token_span(text: str, tokens: Tokens, characters: tuple[int, int]) -> slice:
    """The tokens that overlap text[start:end]."""
    start, end = (len(text[:index].encode()) for index in characters)
    ends = list(accumulate(map(len, tokens.bytes)))
    first_token = next(i for i, token_end in enumerate(ends) if token_end > start)
    last_token = next(i for i, token_end in enumerate(ends) if token_end >= end)
    return slice(first_token, last_token + 1)
