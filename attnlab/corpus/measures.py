"""What is measured of every head: sums over the places of a window, and how many places there are.

A measure's mean over a corpus is all sums over all places: a share of weight, a length, a distance.
Measures that only look at weights are sums of them over some keys, Σ weights[q, k] targets[q, k];
without the first token, and by value, they are shares of what is left: of the weight that is not on
the first token, and of the lengths of what is weighed, ‖weights[q, k] V[k] W_O‖.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from attnlab import equations
from attnlab.analysis.attribution import direction
from attnlab.analysis.flow import length, written_length
from attnlab.analysis.jobs import JOBS, Job
from attnlab.analysis.lens import log_probabilities_of
from attnlab.equations import AnyArray, Array
from attnlab.errors import InvalidTypeError, InvalidValueError, quoted
from attnlab.forward.fast import ROWS
from attnlab.model.trace import Trace
from attnlab.steps import read_only
from attnlab.support.checks import as_reals

# Where the weights are looked at, by the first word of a measure's name.
LOOKS: dict[str, Job] = {
    **JOBS,
    "distance": lambda tokens: np.tril(np.subtract.outer(*2 * (np.arange(len(tokens)),))),
}

# What they are looked at as, by the rest of it.
AS_THEY_ARE, WITHOUT_FIRST, BY_VALUE = "", "_without_first", "_by_value"

# All that there are, each with what it says.
MEASURES: dict[str, str] = {
    "first": "weight on the first token, where heads look that have nothing to do",
    "previous": "weight on the token before",
    "same": "weight on earlier copies of the token",
    "induction": "weight on what stands behind the last earlier copy of the token",
    "distance": "tokens between a query and what it looks at, weighted",
    "entropy": "of the weights, in nats: 0 where all is on one token",
    "previous_without_first": "of the weight that is not on the first token, on the token before",
    "same_without_first": "of the weight that is not on the first token, on earlier copies",
    "induction_without_first": "of the weight that is not on the first token, on what stands "
    "behind the last earlier copy",
    "distance_without_first": "distance, of the weight that is not on the first token",
    "entropy_without_first": "of the weights that are left when the first token is taken away",
    "first_by_value": "of the lengths of weighed values, on the first token",
    "previous_by_value": "of the lengths of weighed values, on the token before",
    "same_by_value": "of the lengths of weighed values, on earlier copies of the token",
    "induction_by_value": "of the lengths of weighed values, on what stands behind the last "
    "earlier copy",
    "size": "length of what the head writes, over that of the stream that it writes to",
    "writer": "how often it is among the 3 that add most to the logit of the token that follows",
    "loss": "of the model, in nats per token",
}

# How many parts are among the largest writers of a logit.
LARGEST_WRITERS = 3

# A measure of a user's own: a number for each head (L, H) of a trace, NaN where there is none.
Measure: TypeAlias = Callable[[Any], Any]


class Numbers(NamedTuple):
    """What a measure comes to in a window, or a text.

    Attributes
    ----------
    sums : float64 (L, H), of loss ()
    places : as `sums`, how many places they are summed over, or which weight
    """

    sums: NDArray[np.float64]
    places: NDArray[np.float64]


def checked_measures(given: Any) -> dict[str, Measure | None]:
    """Measures by name, each of a user's own with its function."""
    if given is None:
        return dict.fromkeys(MEASURES)
    if isinstance(given, str) or not isinstance(given, Sequence) or not given:
        raise InvalidTypeError(
            "measures are a list of names and functions, such as ['induction', 'loss']; given "
            f"{quoted(given)}"
        )
    checked: dict[str, Measure | None] = {}
    for one in given:
        name = getattr(one, "__name__", None) if callable(one) else one
        is_known = callable(one) or name in MEASURES if isinstance(name, str) else False
        if not is_known:
            raise InvalidValueError(
                f"there is no measure {quoted(one)}; there are {', '.join(MEASURES)}, and "
                "functions of a trace that have a name"
            )
        if name in checked or (callable(one) and name in MEASURES):
            raise InvalidValueError(f"two measures are called {name}: give each a name of its own")
        checked[str(name)] = one if callable(one) else None
    return checked


def is_of_heads(name: str) -> bool:
    """Whether a measure has a number for each head; else it has one."""
    return name != "loss"


def measured(trace: Trace, measures: dict[str, Measure | None]) -> dict[str, Numbers]:
    """What each measure comes to in a trace, which keeps no block's steps."""
    functions = {name: function for name, function in measures.items() if function is not None}
    found = {name: of_function(name, one, trace.fork()) for name, one in functions.items()}
    of_heads = [name for name in measures if is_of_heads(name) and name not in functions]
    if of_heads:
        found |= _of_heads(trace, of_heads)
    if "loss" in measures:
        found["loss"] = loss(trace)
    for name, numbers in found.items():
        if not np.isfinite(numbers.sums).all():
            raise InvalidValueError(f"{name} has numbers that are not finite")
    return {name: found[name] for name in measures}


def passing(trace: Trace) -> Iterator[Any]:
    """Each block in turn. Its steps go when the next one comes, and its output stays."""
    before = None
    for block in trace.blocks:
        if before is not None:
            trace._run.values[f"{before.path}.output"] = read_only(before.output)
        before = block.fork()
        yield before


def _of_heads(trace: Trace, names: Sequence[str]) -> dict[str, Numbers]:
    """What is found out block by block, (L, H)."""
    T, dtype = len(trace.tokens), trace.embedding.dtype
    targets = {
        look: np.asarray(job(trace.tokens), dtype)
        for look, job in LOOKS.items()
        if any(split(name)[0] == look for name in names)
    }
    keys: dict[str, AnyArray] = {AS_THEY_ARE: np.ones(T), WITHOUT_FIRST: 1.0 * (np.arange(T) > 0)}
    by_value = any(split(name)[1] == BY_VALUE for name in names)
    writers = Writers(trace) if "writer" in names else None
    layers: dict[str, list[Numbers]] = {name: [] for name in names if name != "writer"}
    for block in passing(trace):
        attention = block.attention
        attention.weights  # noqa: B018  looked at first, so that the context is made of them
        W_O = heads_of(attention.W_O, trace.config.n_head)
        if by_value:
            keys[BY_VALUE] = written_length(attention.V, W_O)
        if writers is not None or "size" in layers:
            written = attention.context @ W_O  # (H, T, D)
        if writers is not None:
            writers.take(written, block.mlp.output)
        for name, numbers in layers.items():
            look, kind = split(name)
            if look in targets:
                numbers.append(share(attention.weights, targets[look], keys[kind]))
            elif look == "entropy":
                numbers.append(entropy(attention.weights, keys[kind]))
            else:
                numbers.append(size(written, block.input))
    found = {name: Numbers(*map(np.stack, zip(*one, strict=True))) for name, one in layers.items()}
    return found if writers is None else {**found, "writer": writers.numbers()}


def split(name: str) -> tuple[str, str]:
    """What a measure looks for, and as what the weights are looked at."""
    for kind in (WITHOUT_FIRST, BY_VALUE):
        if name.endswith(kind):
            return name.removesuffix(kind), kind
    return name, AS_THEY_ARE


def share(weights: Array, targets: AnyArray, keys: AnyArray) -> Numbers:
    """How much of what queries see is at their targets, Σ weights keys targets / Σ weights keys.

    Summed over the queries that have a target among the keys that count.

    Parameters
    ----------
    weights : (H, T, T)
    targets : (T, T), 1 where a query should look and 0 elsewhere; or how far it is
    keys : (T,) or (H, T), how much each key counts
    """
    counts = (keys > 0).reshape(-1, keys.shape[-1]).all(axis=0)
    rows = (targets[:, counts] != 0).any(axis=-1)
    at_targets = np.einsum("htk,tk->hk", weights, targets)  # (H, T), by key
    seen = np.einsum("htk,t->hk", weights, rows.astype(weights.dtype))
    return Numbers(summed(at_targets * keys), summed(seen * keys))


def entropy(weights: Array, keys: AnyArray) -> Numbers:
    """-Σ p ln p of p = weights keys / r, with r = Σ weights keys; each query counts by its r.

    r times it is -Σ w ln w + r ln r, w = weights keys, so that nothing is divided by what is near
    zero. Queries with one key to look at have no choice, and are left out.

    Parameters
    ----------
    weights : (H, T, T)
    keys : (T,), 1 where a key counts and 0 elsewhere
    """
    queries, counts = np.cumsum(keys > 0) > 1, keys > 0
    of_heads = []
    for head in weights:  # one at a time, so that what passes through stays small
        chosen = head[queries][:, counts]
        left = chosen.sum(axis=-1)
        of_heads.append((summed(surprise(chosen).sum(axis=-1) - surprise(left)), summed(left)))
    return Numbers(*np.array(of_heads).T)


def surprise(x: Array) -> Array:
    """-x ln x, 0 at 0."""
    y: Array = -x * np.log(np.maximum(x, np.finfo(x.dtype).tiny))
    return y


def size(written: Array, stream: Array) -> Numbers:
    """‖context W_O‖ / ‖input‖ of each head, over all tokens.

    Parameters
    ----------
    written : (H, T, D), context W_O
    stream : (T, D), the block's input
    """
    shares = length(written) / length(stream)
    return Numbers(summed(shares), np.full(len(shares), float(shares.shape[-1])))


def heads_of(W_O: Array, n_head: int) -> Array:
    """Each head's W_O, (H·Dh, D) -> (H, Dh, D)."""
    return W_O.reshape(n_head, -1, W_O.shape[-1])


class Writers:
    """What adds most to the logit of the token that follows, by direct attribution.

    Of each logit the last LayerNorm's scale is the same for all that write to it, and is left out.
    """

    def __init__(self, trace: Trace) -> None:
        self._u = direction(trace.gain, trace.W_U[:, trace.ids[1:]].T)  # (T - 1, D)
        self._heads: list[Array] = []
        self._others = [self._added(trace.embedding)]

    def take(self, heads: Array, mlp: Array) -> None:
        """Look at what a block's heads write, (H, T, D), and its MLP, (T, D)."""
        self._heads.append(self._added(heads))  # (H, T - 1)
        self._others.append(self._added(mlp))

    def _added(self, written: Array) -> Array:
        added: Array = np.einsum("...td,td->...t", written[..., :-1, :], self._u)
        return added

    def numbers(self) -> Numbers:
        """How often each head is among the largest, (L, H)."""
        heads = np.stack(self._heads)  # (L, H, T - 1)
        everything = np.concatenate([*heads, np.stack(self._others)])
        least = np.sort(everything, axis=0)[-LARGEST_WRITERS:][0]
        found = (heads >= least).sum(axis=-1)
        return Numbers(found.astype(np.float64), np.full(found.shape, float(heads.shape[-1])))


def loss(trace: Trace) -> Numbers:
    """-log p of each token that follows another; some rows of logits at a time."""
    total, targets = 0.0, trace.ids[1:, np.newaxis]
    for start in range(0, len(targets), ROWS):
        rows = slice(start, min(start + ROWS, len(targets)))
        logits = equations.logits(trace.final[rows], trace.W_U)
        total -= float(log_probabilities_of(targets[rows], logits).sum(dtype=np.float64))
    return Numbers(np.array(total), np.array(float(len(targets))))


def of_function(name: str, function: Measure, trace: Trace) -> Numbers:
    """What a user's own measure gives for a window, which counts once."""
    shape = trace.config.n_layer, trace.config.n_head
    try:
        given = function(trace)
    except Exception as error:  # a function may raise what it likes
        raise InvalidValueError(
            f"the measure {name} fails: {type(error).__name__}: {error}"
        ) from None
    numbers = as_reals(given, f"what the measure {name} gives", "biuf").astype(np.float64)
    if numbers.shape != shape:
        raise InvalidValueError(
            f"the measure {name} gives a number for each head, shape {shape}; given {numbers.shape}"
        )
    there = ~np.isnan(numbers)
    return Numbers(np.where(there, numbers, 0.0), there.astype(np.float64))


def summed(numbers: Array) -> NDArray[np.float64]:
    """Over the last axis, in float64."""
    total: NDArray[np.float64] = numbers.sum(axis=-1, dtype=np.float64)
    return total
