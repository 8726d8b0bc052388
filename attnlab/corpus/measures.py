"""Measures of every head: sums over a window, and the divisors that make them means.

A measure's mean over a corpus is Σ sums / Σ divisors. Measures of weights are
Σ weights[q, k] targets[q, k]. Their variants rescale the weights: `_without_first` leaves out the
first key, `_by_value` multiplies by the norm of the value, ‖weights[q, k] V[k] W_O‖.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from attnlab.analysis.jobs import JOBS, Job
from attnlab.corpus.heads import TextSums
from attnlab.equations import AnyArray, Array
from attnlab.errors import InvalidTypeError, InvalidValueError, quoted
from attnlab.model.trace import Trace
from attnlab.support.checks import as_reals, check_shape
from attnlab.support.messages import Message
from attnlab.text.tokens import Tokens


def distance(tokens: Tokens) -> NDArray[np.int64]:
    """The distance from each query back to each key, (T, T); 0 for later keys."""
    positions = np.arange(len(tokens))
    return np.tril(positions[:, np.newaxis] - positions)


# The factors of the weights that a measure sums, by the first word of its name.
TARGETS: dict[str, Job] = {**JOBS, "distance": distance}

# Suffixes of the names of variants.
ALL_TOKENS, WITHOUT_FIRST, BY_VALUE = "", "_without_first", "_by_value"

# What each measure of weights is.
ON_WEIGHTS = {
    "first": "weight on the first token, where idle heads attend; the first query is skipped",
    "previous": "weight on the previous token; the first query is skipped",
    "same": "weight on earlier occurrences of the same token; only queries that have one",
    "induction": (
        "weight on the token after the last earlier occurrence of the same token; only "
        "queries that have one"
    ),
    "distance": "mean distance to the attended tokens, in tokens; the first query is skipped",
    "entropy": (
        "entropy of the weights, in nats; 0 if one token has all the weight; the first query "
        "is skipped"
    ),
}
LOSS = "the model's cross-entropy, in nats per token"

# Each variant: its title, its description, and what it isn't measured of.
VARIANTS = {
    ALL_TOKENS: ("All tokens", "{measure}", ()),
    WITHOUT_FIRST: (
        "Without the first token",
        "{measure}; the first token is excluded, and queries count by the weight that they give to "
        "other tokens",
        ("first",),
    ),
    BY_VALUE: (
        "By value",
        "{measure}; weights are multiplied by the norms of the values, and queries count by the "
        "sum of these products",
        ("distance", "entropy"),
    ),
}
MEASURES: dict[str, str] = {
    name + variant: Message(description, measure=Message(ON_WEIGHTS[name]))
    for variant, (_, description, left_out) in VARIANTS.items()
    for name in ON_WEIGHTS
    if name not in left_out
} | {"loss": LOSS}

# Short titles, by the first word of the name.
TITLES = {
    "first": "First token",
    "previous": "Previous token",
    "same": "Same token",
    "induction": "Induction",
    "distance": "Distance in tokens",
    "entropy": "Entropy in nats",
}

# A user-defined measure: takes a trace, returns a number for each head (L, H), NaN if undefined.
Measure: TypeAlias = Callable[[Any], Any]


class Sums(NamedTuple):
    """A measure's sums in a window or a text."""

    sums: NDArray[np.float64]  # (L, H), or () for loss
    divisors: NDArray[np.float64]  # of the same shape: numbers of tokens, or total weights


def as_measures(measures: Any) -> dict[str, Measure | None]:
    """Measures by name, with the function if it is user-defined."""
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
    trace: Trace, measures: Mapping[str, Measure | None], seen: TextSums | None = None
) -> dict[str, Sums]:
    """Compute all measures of a trace, without keeping its blocks' steps; `seen` sees them too."""
    functions = {name: function for name, function in measures.items() if function is not None}
    per_head = [name for name in measures if is_per_head(name) and name not in functions]
    # Each function gets a fork, so that the trace doesn't keep the steps it accesses.
    results = {name: custom_sums(name, f, trace._fork()) for name, f in functions.items()}
    if per_head or seen is not None:
        results |= head_sums(trace, per_head, seen, keep_last="loss" in measures)
    if "loss" in measures:
        results["loss"] = loss(trace)
    for name, result in results.items():
        if not np.isfinite(result.sums).all():
            raise InvalidValueError(f"the measure {name} isn't finite")
    return {name: results[name] for name in measures}  # in the order of `measures`


def blocks_in_turn(trace: Trace, keep_last: bool) -> Iterator[Any]:
    """Yield a fork of each block in order; the trace keeps only the blocks' outputs.

    The last one's, of which the logits are computed, if they are needed.
    """
    for n, block in enumerate(trace.blocks, 1):
        fork = block._fork()
        yield fork
        if keep_last or n < len(trace.blocks):
            trace._run.keep(f"{fork.path}.output", fork.output)


def head_sums(
    trace: Trace, names: Sequence[str], seen: TextSums | None = None, keep_last: bool = False
) -> dict[str, Sums]:
    """Compute measures of heads, (L, H), block by block."""
    T, dtype = len(trace.tokens), trace.embedding.dtype
    split = {name: split_name(name) for name in names}
    targets = {base: np.asarray(job(trace.tokens), dtype) for base, job in TARGETS.items()}
    by_value = any(variant == BY_VALUE for _, variant in split.values())
    factors: dict[str, AnyArray] = {ALL_TOKENS: np.ones(T), WITHOUT_FIRST: (np.arange(T) > 0) * 1.0}
    layers: dict[str, list[Sums]] = {name: [] for name in names}
    for block in blocks_in_turn(trace, keep_last or seen is not None):
        attention = block.attention
        weights = attention.weights  # stored, so that a long text's context reuses them
        if by_value:
            W_O = attention.W_O.reshape(trace.config.n_head, -1, trace.config.n_embd)  # (H, Dh, D)
            written = attention.V @ W_O  # (H, T, D)
            factors[BY_VALUE] = np.sqrt(np.einsum("...d,...d->...", written, written))
        for name, (base, variant) in split.items():
            if base == "entropy":
                layers[name].append(entropy(weights, factors[variant]))
            else:
                layers[name].append(weight_on(targets[base], weights, factors[variant]))
        if seen is not None:
            seen.add(block)
    if seen is not None:
        seen.close(trace)
    return {name: Sums(*map(np.stack, zip(*own, strict=True))) for name, own in layers.items()}


def split_name(name: str) -> tuple[str, str]:
    """A measure's base name and variant."""
    for variant in (WITHOUT_FIRST, BY_VALUE):
        if name.endswith(variant):
            return name.removesuffix(variant), variant
    return name, ALL_TOKENS


def weight_on(targets: AnyArray, weights: Array, factors: AnyArray) -> Sums:
    """The fraction of weight (H, T, T) on targets, Σ weights factors targets / Σ weights factors.

    Both sums are over the queries with a target among the keys whose factor, (T,) or (H, T), isn't
    0. Targets (T, T) are 1 at a query's target keys and 0 elsewhere, or the distance.
    """
    is_included = np.atleast_2d(factors > 0).all(axis=0)  # in every head
    has_target = (targets[:, is_included] != 0).any(axis=-1)
    on_targets = np.einsum("htk,tk->hk", weights, targets)  # (H, T), by key
    on_all = np.einsum("htk,t->hk", weights, has_target.astype(weights.dtype))
    return Sums(sum_last_axis(on_targets * factors), sum_last_axis(on_all * factors))


def entropy(weights: Array, factors: AnyArray) -> Sums:
    """Entropy -Σ p ln p, p = w / r, weighted by r = Σ w, where w = weights (H, T, T) factors (T,).

    r times the entropy is -Σ w ln w + r ln r, which avoids dividing by a small r. Queries with only
    one visible key are left out, and so are keys whose factor is 0.
    """
    is_included = factors > 0
    has_choice = np.cumsum(is_included) > 1  # by query
    per_head = []
    for head in weights:  # one at a time, to keep temporary arrays small
        w = head[has_choice][:, is_included]
        r = w.sum(axis=-1)
        weighted = entropy_terms(w).sum(axis=-1) - entropy_terms(r)
        per_head.append((sum_last_axis(weighted), sum_last_axis(r)))
    return Sums(*np.array(per_head).T)


def entropy_terms(x: Array) -> Array:
    """-x ln x, elementwise; 0 at 0."""
    return -x * np.log(np.maximum(x, np.finfo(x.dtype).tiny))


def loss(trace: Trace) -> Sums:
    """The sum of -log p over all tokens but the first."""
    return Sums(trace.losses.sum(dtype=np.float64), np.array(float(len(trace.losses))))


def custom_sums(name: str, function: Measure, trace: Trace) -> Sums:
    """The sums of a user-defined measure in one window; all windows have the same weight."""
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


def sum_last_axis(numbers: Array) -> NDArray[np.float64]:
    """Sum over the last axis in float64."""
    return numbers.sum(axis=-1, dtype=np.float64)
