"""Edges: how much of a metric passes along each direct path between two parts of the model."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from attnlab.analysis.base import Analysis, Target, named_axis
from attnlab.analysis.gradients import Gradients
from attnlab.analysis.many import ratio_of_means
from attnlab.analysis.metrics import (
    Metric,
    as_metric,
    baselines_of,
    check_pairs,
    check_traces,
    describe_metric,
    for_each_pair,
    parse_metric,
)
from attnlab.analysis.patching import expand
from attnlab.analysis.paths import (
    RECEIVERS,
    SENDERS,
    check_no_cache,
    difference,
    patch_path,
    receiver_at,
    receiver_value,
    stage_of,
)
from attnlab.equations import AnyArray, Array
from attnlab.errors import InvalidTypeError, InvalidValueError, quoted
from attnlab.forward.forward_pass import MLP, BlockAttention
from attnlab.forward.gradients import affine_x, layer_norm_gradient
from attnlab.model.trace import Trace
from attnlab.model.traces import Traces
from attnlab.steps import at, read_only
from attnlab.steps.labels import Axis, Grid
from attnlab.support import door
from attnlab.support.checks import as_count, as_flag
from attnlab.support.console import progress_bar
from attnlab.support.messages import Message, say
from attnlab.support.tables import PLUS_MINUS, Columns, Document, Format, Table, listed, plus_minus

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from attnlab.support.door import Picture


# The columns of the two ends of an edge.
ENDS = "sender", "receiver"

# The maximum number of edges in a table or picture.
EDGES_SHOWN = 20


class Endpoints:
    """All senders and receivers; `is_edge` (senders, receivers): one comes before the other."""

    def __init__(self, trace: Trace) -> None:
        self.senders = paths_of(trace, SENDERS)
        n_layer = trace.config.n_layer
        self.receivers = [receiver_at(path, n_layer) for path in paths_of(trace, RECEIVERS)]
        stages = np.array([stage_of(path) for path in self.senders])
        receiver_stages = np.array([receiver.stage for receiver in self.receivers])
        self.is_edge = stages[:, np.newaxis] <= receiver_stages


class Edges(Analysis):
    """How much of the metric each edge restores, as `attnlab.edges` returns it.

    Attributes
    ----------
    senders, receivers : paths
    effects : float64 (senders, receivers), NaN unless the sender comes before the receiver; over
        several pairs a ratio of means, as in `Patching`
    standard_errors : (senders, receivers), of `effects`; NaN for one pair
    each : (n, senders, receivers), metric(patched) - metric(corrupted) of each pair
    clean, corrupted : the metric in the two traces; (n,) if several were given
    """

    meaning: ClassVar[str] = (
        "Each number is how much of the metric one edge restores: 0 is nothing, 1 is everything. "
        "Hatched: no edge."
    )
    note: ClassVar[str] = (
        "Each edge is measured alone; edges that matter only together may each have no effect."
    )
    source: ClassVar[str] = (
        "Syed et al., “Attribution Patching Outperforms Automated Circuit Discovery” (2023); "
        "Hanna et al., “Have Faith in Faithfulness” (2024)"
    )

    def __init__(
        self,
        pairs: tuple[Any, Any, Any],
        endpoints: Endpoints,
        title: Message,
        each: AnyArray,
        baselines: Any,
    ) -> None:
        """`pairs` are the arguments clean, corrupted, metric; `baselines`, the metric in both."""
        self.title, self.each, self._pairs = title, read_only(each), pairs
        self.clean, self.corrupted = baselines
        self._endpoints, self.senders = endpoints, endpoints.senders
        self.receivers = tuple(receiver.path for receiver in endpoints.receivers)
        changes = np.atleast_1d(self.clean - self.corrupted)
        effects, errors = ratio_of_means(each.reshape(len(each), -1), changes)
        self.effects: NDArray[np.float64] = read_only(effects.reshape(each.shape[1:]))
        self.standard_errors: NDArray[np.float64] = read_only(errors.reshape(each.shape[1:]))
        self._count = int(endpoints.is_edge.sum())

    def strongest(self, n: int | None = None) -> list[tuple[str, str, float]]:
        """The `n` edges, by default 20, of the largest effects, as (sender, receiver, effect)."""
        shown = min(EDGES_SHOWN, self._count)
        n = shown if n is None else as_count(n, "n", least=0, most=self._count)
        columns = self._strongest(n)
        effects = map(float, columns["effect"])
        return [*zip(columns["sender"], columns["receiver"], effects, strict=True)]

    def circuit(self, n: int) -> Circuit:
        """A run with only the `n` strongest edges, or one for each pair; see `Circuit`."""
        return Circuit(self, [(sender, receiver) for sender, receiver, _ in self.strongest(n)])

    def faithfulness(self, counts: Sequence[int]) -> NDArray[np.float64]:
        """The faithfulness of `circuit(n)` for each n in counts, (len(counts),)."""
        return np.array([circuit.faithfulness for circuit in self.circuits(counts)])

    def circuits(self, counts: Sequence[int]) -> Circuits:
        """`circuit(n)` for each n in counts; `print` shows how faithful each is."""
        try:
            numbers = list(counts)
        except TypeError:  # also of an array without axes
            raise InvalidTypeError(
                "counts must be a list of numbers of edges, such as [1, 10, 100]; "
                f"got {quoted(counts)}"
            ) from None
        return Circuits(self.circuit(n) for n in numbers)

    def plot(  # type: ignore[override]
        self, ax: Axes | None = None, n: int = EDGES_SHOWN, *, language: str | None = None
    ) -> Picture:
        """Plot the `n` strongest edges as a graph; edges to heads are labelled Q, K or V."""
        n = as_count(n, "n", least=1)
        with door.drawing_in(language):
            edges = [
                (node_name(sender), node_name(receiver), input_name(receiver), effect)
                for sender, receiver, effect in self.strongest(min(n, self._count))
            ]
            used = {node for start, end, *_ in edges for node in (start, end)}
            columns: dict[float, list[str]] = {}  # one for each stage
            for path in (*self.senders, "final"):
                if (name := node_name(path)) in used:
                    stage = math.inf if path == "final" else stage_of(path)
                    columns.setdefault(stage, []).append(name)
            by_stage = [names for _, names in sorted(columns.items())]
            return door.plot_graph(by_stage, edges, say(self.title), ax)

    def _grid(self) -> tuple[AnyArray, Axis, Axis]:
        return (
            self.effects,
            named_axis("sender", self.senders),
            named_axis("receiver", self.receivers),
        )

    def _grids(self) -> list[Grid]:
        receivers = (f"{node_name(path)} {input_name(path)}".rstrip() for path in self.receivers)
        axes = (
            named_axis("sender", tuple(map(node_name, self.senders))),
            named_axis("receiver", tuple(receivers)),
        )
        return [Grid(self.title, self.effects, axes)]

    def _below_grids(self) -> list[str | Table]:
        return [*self._tables()]  # with the table: a heatmap doesn't list the strongest edges

    def _data(self) -> Columns:
        return self._strongest(self._count)

    def _strongest(self, n: int) -> Columns:
        """The n edges of the largest effects."""
        sizes = np.where(np.isnan(self.effects), -1, np.abs(self.effects))
        order = np.argsort(-sizes, axis=None, kind="stable")[:n]
        senders, receivers = np.unravel_index(order, self.effects.shape)
        columns = {
            "sender": [self.senders[s] for s in senders],
            "receiver": [self.receivers[r] for r in receivers],
            "effect": self.effects.ravel()[order],
        }
        errors = {"standard_error": self.standard_errors.ravel()[order]}
        return columns | (errors if len(self.each) > 1 else {})

    def _tables(self) -> Iterator[str | Table]:
        shown = min(EDGES_SHOWN, self._count)
        form = "+.3f" if len(self.each) == 1 else PLUS_MINUS
        yield listed(self._strongest(shown), {"effect": form})
        yield Message("{shown} of {count} edges", shown=shown, count=self._count)


class Circuit(Document):
    """A run in which some edges carry clean values and all others corrupted ones; or one each pair.

    Each receiver reads the corrupted stream, plus what the senders of its edges in the circuit
    write in this run, minus what they write in the corrupted run. The embedding is clean.

    Attributes
    ----------
    edges : (sender, receiver) paths
    trace : the run of one pair; steps that no receiver of the circuit reads are computed, but have
        no effect
    faithfulness : (metric(circuit) - metric(corrupted)) / (metric(clean) - metric(corrupted)): 1
        for all edges, 0 for none; over several pairs a ratio of means, as in `Patching`
    standard_error : of `faithfulness`; NaN for one pair
    """

    def __init__(self, result: Edges, edges: Sequence[tuple[str, str]]) -> None:
        self._result, self.edges = result, list(edges)

    def pieces(self) -> Iterator[str | Table]:
        faithfulness = f"{self.faithfulness:.3f}"
        if not math.isnan(self.standard_error):
            faithfulness = plus_minus(self.faithfulness, self.standard_error)
        template = "Circuit of {count} edges, faithfulness {faithfulness}"
        yield Message(template, count=len(self.edges), faithfulness=faithfulness)

    def _data(self) -> Columns:
        return {name: [edge[n] for edge in self.edges] for n, name in enumerate(ENDS)}

    @cached_property
    def trace(self) -> Trace:
        clean, corrupted, _ = self._result._pairs
        if isinstance(clean, Traces):
            raise InvalidTypeError(
                "a circuit of several pairs has a run for each. Give `edges` one pair, such as "
                "clean[0] and corrupted[0]"
            )
        return self._run(clean, corrupted)

    @property
    def faithfulness(self) -> float:
        return self._faithfulness[0]

    @property
    def standard_error(self) -> float:
        return self._faithfulness[1]

    @cached_property
    def _faithfulness(self) -> tuple[float, float]:
        def analyse(clean: Trace, corrupted: Trace, metric: Metric) -> tuple[float, float]:
            """The fraction of the metric's change that the circuit restores, and the change."""
            measure = parse_metric(clean, metric)[0]
            baselines = baselines_of(measure, clean, corrupted)
            measured, change = measure(self._run(clean, corrupted)), baselines[0] - baselines[1]
            return (as_metric(measured) - baselines[1]) / change, change

        clean, corrupted, metric = self._result._pairs
        if not isinstance(clean, Traces):
            return analyse(clean, corrupted, metric)[0], math.nan
        fractions, changes = np.array(for_each_pair(clean, corrupted, metric, analyse)).T
        ratios, errors = ratio_of_means((fractions * changes)[:, np.newaxis], changes)
        return float(ratios[0]), float(errors[0])

    def _run(self, clean: Trace, corrupted: Trace) -> Trace:
        """The corrupted trace, in which the edges carry clean values."""
        endpoints = self._result._endpoints
        senders: dict[str, list[str]] = {}
        for sender, path in self.edges:
            senders.setdefault(path, []).append(sender)
        # Each sender's output in the circuit minus its output in the corrupted run.
        changes: dict[str, Array] = {"embedding": difference(clean, corrupted, "embedding")}
        run, edits = corrupted, dict[str, Array]()
        # In order of stages: a receiver needs the outputs of all senders before it, in this run.
        for stage in range(2 * corrupted.config.n_layer + 1):
            for receiver in endpoints.receivers:
                if receiver.stage != stage:
                    continue
                change = np.zeros_like(corrupted.embedding)
                for sender in senders.get(receiver.path, ()):
                    change += changes[sender]
                edits[receiver.path] = (
                    receiver_value(corrupted, receiver, change)
                    if change.any()
                    else at(corrupted, receiver.path)
                )
            run = corrupted.edited(edits)
            for sender in endpoints.senders:
                if stage_of(sender) == stage + 1:
                    changes[sender] = difference(run, corrupted, sender)
        return run


class Circuits(Document, tuple[Circuit, ...]):
    """Circuits of several sizes, as `Edges.circuits` returns them."""

    _shown: ClassVar[Mapping[str, Format]] = {"faithfulness": PLUS_MINUS}

    def _data(self) -> Columns:
        return {
            "edges": [len(circuit.edges) for circuit in self],
            "faithfulness": [circuit.faithfulness for circuit in self],
            "standard_error": [circuit.standard_error for circuit in self],
        }


def edges(
    clean: Trace | Traces,
    corrupted: Trace | Traces,
    *,
    metric: Metric | list[Any],
    steps: int = 1,
    exact: bool = False,
    progress: bool = True,
) -> Edges:
    """Measure every edge: from heads, MLPs and the embedding to later Q, K, V, MLPs and the logits.

        effect ≈ Σ (sender in clean - sender in corrupted) · ∂metric/∂input
                 / (metric(clean) - metric(corrupted))

    ∂metric/∂input is the gradient through this receiver only, in the corrupted run (edge
    attribution patching, EAP). With several steps it is the mean over runs whose embedding is
    corrupted + k / steps · (clean - corrupted), k = 0 … steps - 1 (EAP-IG). Gradients are a linear
    approximation, worst where softmax is saturated.

    Parameters
    ----------
    clean, corrupted : as in `patch`, with no edits except of `embedding`
    metric : as in `patch`; a function only if `exact`
    steps : the number of steps of the integral, usually 5
    exact : whether to patch each edge, as `path_patch` does, instead of using gradients
    progress : whether to show a progress bar on stderr

    Examples
    --------
    >>> edges = attnlab.edges(clean, corrupted, metric=(" dog", " cat"), steps=5)
    >>> edges.circuit(20).faithfulness
    """
    steps, exact = as_count(steps, "steps", least=1), as_flag(exact, "exact")
    if exact and steps > 1:
        raise InvalidValueError(f"steps must be 1 with exact=True, without integral; got {steps}")
    pairs = clean, corrupted, metric
    if isinstance(clean, Traces) or isinstance(corrupted, Traces):
        clean, corrupted = check_pairs(clean, corrupted)
        analyse = partial(edges, steps=steps, exact=exact, progress=False)
        results = for_each_pair(clean, corrupted, metric, analyse, progress)
        title = title_of(steps, exact, describe_metric(clean, metric), corrupted[0])
        ends = np.array([(result.clean, result.corrupted) for result in results]).T
        each = np.array([result.effects * (result.clean - result.corrupted) for result in results])
        return Edges(pairs, results[0]._endpoints, title, each, ends)
    check_traces(clean, corrupted)
    check_no_cache(clean, corrupted)
    edited = {*clean.edited_steps, *corrupted.edited_steps} - {"embedding"}
    if edited:
        raise InvalidValueError(
            "edges supports only traces without edits, or with edits of embedding; got one "
            f"with an edit of {min(edited)}. path_patch supports other edits"
        )
    measure, description, target = parse_metric(clean, metric)
    if target is None and not exact:
        raise InvalidTypeError(
            "metric must be a token or a pair of tokens; for a function, use exact=True"
        )
    title = title_of(steps, exact, description, corrupted)
    # The bar is shown before the clean and corrupted runs, which may take seconds.
    endpoints = Endpoints(corrupted)
    with progress_bar(progress, unit="edge" if exact else "layer") as bar:
        baselines = baselines_of(measure, clean, corrupted)
        if target is None or exact:
            changes = exact_measurements(clean, corrupted, endpoints, measure, bar) - baselines[1]
        else:
            changes = linear_changes(clean, corrupted, endpoints, target, steps, bar)
    each = np.where(endpoints.is_edge, changes, np.nan)[np.newaxis]
    return Edges(pairs, endpoints, title, each, baselines)


def title_of(steps: int, exact: bool, metric: str, corrupted: Trace) -> Message:
    if exact:
        method = Message("exact")
    elif steps == 1:
        method = Message("by gradients")
    else:
        method = Message("by integrated gradients, {steps} steps", steps=steps)
    template = "Edges, {method}: {target}{note}"
    return Message(template, method=method, target=metric, note=corrupted._note)


def exact_measurements(
    clean: Trace, corrupted: Trace, endpoints: Endpoints, measure: Callable[[Trace], Any], bar: Any
) -> NDArray[np.float64]:
    """The metric with each edge patched, by path patching, (senders, receivers)."""
    measured = np.zeros(endpoints.is_edge.shape)
    bar.reset(total=int(endpoints.is_edge.sum()))
    for s, r in np.argwhere(endpoints.is_edge):
        patched = patch_path(clean, corrupted, endpoints.senders[s], [endpoints.receivers[r]])
        measured[s, r] = as_metric(measure(patched))
        bar.update()
    return measured


def linear_changes(
    clean: Trace, corrupted: Trace, endpoints: Endpoints, target: Target, steps: int, bar: Any
) -> NDArray[np.float64]:
    """How much each edge changes the target, by gradients, (senders, receivers)."""
    embedding = corrupted.embedding
    change = clean.embedding - embedding
    bar.reset(total=steps * corrupted.config.n_layer)
    gradients: Any = 0.0
    for k in range(steps):
        interpolated = corrupted
        if k:
            interpolated = corrupted.edited({"embedding": embedding + change * (k / steps)})
        gradients = gradients + gradients_by_receiver(interpolated, target, bar) / steps
    written = np.stack([difference(clean, corrupted, path).ravel() for path in endpoints.senders])
    return np.asarray(written @ np.transpose(gradients), float)


def gradients_by_receiver(trace: Trace, target: Target, bar: Any) -> Array:
    """∂target/∂input through each receiver only, in the order of `RECEIVERS`, (receivers, T D)."""
    gradients = Gradients(trace, target)
    by_path: dict[str, Array] = {}
    for layer in reversed(range(trace.config.n_layer)):  # as gradients are computed
        block, d_block = trace.blocks[layer], gradients.blocks[layer]
        attention = block.attention
        for name in "QKV":
            d_heads = getattr(d_block.attention, name)  # (H, T, Dh)
            d_X = np.stack(
                [
                    affine_x(getattr(head, f"W_{name}"), d_head)
                    for head, d_head in zip(attention.heads, d_heads, strict=True)
                ]
            )
            d_stream = through_layer_norm(attention.residual, attention, d_X)
            for head, d_x in enumerate(d_stream):
                by_path[f"blocks.{layer}.attention.heads.{head}.{name}"] = d_x
        d_stream = through_layer_norm(block.mid, block.mlp, d_block.mlp.X)
        by_path[f"blocks.{layer}.mlp.X"] = d_stream
        bar.update()
    by_path["final"] = gradients.blocks[-1].output
    return np.stack([by_path[path].ravel() for path in paths_of(trace, RECEIVERS)])


def through_layer_norm(x: Array, layer: BlockAttention | MLP, d_y: Array) -> Array:
    """The gradient of a LayerNorm's input, (..., T, D)."""
    d_x, _, _ = layer_norm_gradient(np.broadcast_to(x, d_y.shape), layer.gain, layer.epsilon, d_y)
    return d_x


def node_name(path: str) -> str:
    """A path's node in the graph: Embedding, a head as layer.head, an MLP, or logits."""
    layer, head = (re.search(rf"{name}\.(\d+)", path) for name in ("blocks", "heads"))
    if not layer:
        return "logits" if path == "final" else "Embedding"
    return f"{layer[1]}.{head[1]}" if head else f"MLP {layer[1]}"


def input_name(receiver: str) -> str:
    """Q, K or V for a head; "" for other receivers."""
    name = receiver.rpartition(".")[2]
    return name if name in "QKV" else ""


def paths_of(trace: Trace, patterns: Sequence[str]) -> tuple[str, ...]:
    """The paths that patterns with * match, such as `SENDERS`."""
    return tuple(path for pattern in patterns for path in expand(trace, pattern))
