"""Measures of every head: sums over a window, and the divisors that make means of the sums.

A measure's mean over a corpus is Σ sums / Σ divisors. The measures of weights are the jobs of
`attnlab.jobs`, whose sums are Σ weights[q, k] targets[q, k] over the queries that have a target.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from attnlab.analysis.jobs import JOBS
from attnlab.corpus.heads import TextSums
from attnlab.equations import Array
from attnlab.errors import InvalidTypeError, InvalidValueError, quoted
from attnlab.model.trace import Trace
from attnlab.support.checks import as_reals, check_shape

# Each measure's description.
MEASURES = {
    "first": "weight on the first token, where idle heads attend; the first query is skipped",
    "previous": "weight on the previous token; the first query is skipped",
    "same": "weight on earlier occurrences of the same token; only queries that have one",
    "induction": (
        "weight on the token after the last earlier occurrence of the same token; only "
        "queries that have one"
    ),
    "loss": "the model's cross-entropy, in nats per token",
}

# Titles of the measures of weights.
TITLES = {
    "first": "First token",
    "previous": "Previous token",
    "same": "Same token",
    "induction": "Induction",
}

# A user-defined measure: a function from a trace to a number for each head (L, H), NaN where
# undefined.
Measure: TypeAlias = Callable[[Any], Any]


class Sums(NamedTuple):
    """A measure's sums in a window or a text."""

    sums: NDArray[np.float64]  # (L, H), or () for loss
    divisors: NDArray[np.float64]  # how many tokens or windows, or total weights; (L, H) or ()


def as_measures(measures: Any) -> dict[str, Measure | None]:
    """Check measures; return each name with its function, or None if attnlab defines it."""
    if measures is None:
        return dict.fromkeys(MEASURES)
    if isinstance(measures, str) or not isinstance(measures, Sequence) or not measures:
        raise InvalidTypeError(
            "measures must be a list of names and functions, such as ['induction', 'loss']; "
            f"got {quoted(measures)}"
        )
    checked: dict[str, Measure | None] = {}
    for measure in measures:
        name = getattr(measure, "__name__", None) if callable(measure) else measure
        if not isinstance(name, str) or not (callable(measure) or name in MEASURES):
            raise InvalidValueError(
                f"unknown measure {quoted(measure)}; expected one of {', '.join(MEASURES)}, or "
                "a named function of a trace"
            )
        if name in checked or (callable(measure) and name in MEASURES):
            raise InvalidValueError(f"two measures are called {name}; names must be unique")
        checked[str(name)] = measure if callable(measure) else None
    return checked


def is_per_head(name: str) -> bool:
    """Whether a measure has a number for each head, rather than one for the model."""
    return name != "loss"


def measure_trace(
    trace: Trace, measures: Mapping[str, Measure | None], text_sums: TextSums | None = None
) -> dict[str, Sums]:
    """Compute all measures of a trace, which keeps no steps, and add its blocks to `text_sums`."""
    functions = {name: function for name, function in measures.items() if function is not None}
    per_head = [name for name in measures if is_per_head(name) and name not in functions]
    # Each function gets a fork, so that the trace doesn't keep the steps that the function reads.
    results = {name: custom_sums(name, f, trace._fork()) for name, f in functions.items()}
    if per_head or text_sums is not None:
        results |= head_sums(trace, per_head, text_sums, keep_last="loss" in measures)
    if "loss" in measures:
        results["loss"] = loss(trace)
    for name, result in results.items():
        if not np.isfinite(result.sums).all():
            raise InvalidValueError(f"the measure {name} isn't finite")
    return {name: results[name] for name in measures}  # in the order of `measures`


def blocks_in_turn(trace: Trace, keep_last: bool) -> Iterator[Any]:
    """Yield a fork of each block in order; the trace keeps only the blocks' outputs.

    The trace keeps the last block's output only if `keep_last`, for the logits.
    """
    for n, block in enumerate(trace.blocks, 1):
        fork = block._fork()
        yield fork
        if keep_last or n < len(trace.blocks):
            trace._run.keep(f"{fork.path}.output", fork.output)


def head_sums(
    trace: Trace, names: Sequence[str], text_sums: TextSums | None = None, keep_last: bool = False
) -> dict[str, Sums]:
    """Compute measures of heads, (L, H), block by block."""
    targets = {name: np.asarray(JOBS[name](trace.tokens), trace.embedding.dtype) for name in names}
    layers: dict[str, list[Sums]] = {name: [] for name in names}
    for block in blocks_in_turn(trace, keep_last or text_sums is not None):
        weights = block.attention.weights  # now kept, so that a long text's context reuses them
        for name in names:
            layers[name].append(weight_on(targets[name], weights))
        if text_sums is not None:
            text_sums.add(block)
    if text_sums is not None:
        text_sums.close(trace)
    return {
        name: Sums(np.stack([x.sums for x in own]), np.stack([x.divisors for x in own]))
        for name, own in layers.items()
    }


def weight_on(targets: Array, weights: Array) -> Sums:
    """The weight (H, T, T) on targets (T, T), over the number of queries that have a target.

    The number of queries is computed as the sum of their weights, since each query's weights sum
    to 1 up to rounding.
    """
    has_target = targets.any(axis=-1).astype(weights.dtype)
    on_targets = np.einsum("htk,tk->hk", weights, targets)  # (H, T), by key
    on_all = np.einsum("htk,t->hk", weights, has_target)
    return Sums(on_targets.sum(axis=-1, dtype=np.float64), on_all.sum(axis=-1, dtype=np.float64))


def loss(trace: Trace) -> Sums:
    """The sum of -log p(token) over all tokens but the first, and the number of these tokens."""
    return Sums(trace.losses.sum(dtype=np.float64), np.array(float(len(trace.losses))))


def custom_sums(name: str, function: Measure, trace: Trace) -> Sums:
    """A user-defined measure's numbers in a window as sums; each window has the divisor 1."""
    shape = trace.config.n_layer, trace.config.n_head
    try:
        result = function(trace)
    except Exception as error:  # a user's function may raise anything
        raise InvalidValueError(
            f"the measure {name} failed: {type(error).__name__}: {error}"
        ) from None
    numbers = as_reals(result, f"the result of the measure {name}", "biuf").astype(np.float64)
    check_shape(numbers, shape, f"the result of the measure {name}", ", a number for each head")
    is_defined = ~np.isnan(numbers)
    return Sums(np.where(is_defined, numbers, 0.0), is_defined.astype(np.float64))
