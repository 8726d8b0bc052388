"""Comparison of two runs, step by step, with tolerances for rounding.

Tolerances are measured: every computed number is perturbed relatively by about `PERTURBATION`, and
the forward pass is run with these perturbations. Like rounding errors, their effects grow where
sums cancel, where a softmax is sharp, and from block to block. Scaled from `PERTURBATION` to the
dtype's epsilon, they give how far two correct results may differ.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import groupby
from typing import Any, ClassVar

import numpy as np

from attnlab.analysis.gradients import GradientRun
from attnlab.checking.replaced import Equation, is_fixed, upstream, with_equations
from attnlab.equations import AnyArray, Array, activated, identity
from attnlab.errors import InvalidTypeError, InvalidValueError, quoted
from attnlab.forward.changed import inputs_of
from attnlab.forward.forward_pass import ForwardPass
from attnlab.steps import Result, Run, at
from attnlab.steps.labels import TOKEN_AXES, label
from attnlab.support import door
from attnlab.support.messages import Message
from attnlab.support.tables import (
    Document,
    Format,
    Heading,
    Paragraph,
    Table,
    header,
    listed,
)

# Large compared with float32's epsilon, 2⁻²³, and small enough for effects to be linear in it.
PERTURBATION = 2.0**-17

# Several runs, since perturbations of a short row may cancel by chance.
PERTURBED_RUNS = 4

# The tolerance, as a multiple of the measured effect. Models in float32 and float64 differ by up to
# the effect; a model with scores of 200, by four times the effect.
MARGIN = 8.0

# In half precision, few roundings are as large as a perturbation: with PyTorch in float16, bfloat16
# and autocast, results differ by 1/3 of the effect.
HALF_MARGIN = 1.0

# Larger epsilons mean half precision: float16's is 2⁻¹⁰, bfloat16's 2⁻⁷.
HALF_EPSILON = 2.0**-12

# Scores below this are masked, whatever the mask's fill value.
MASKED = -1e8

# Scores this far below the row's largest have negligible weights.
NEGLIGIBLE = 80.0

# The note below a table of stages in a notebook.
STAGES_NOTE = Message(
    "x rounding is the largest difference divided by what rounding explains: up to 1 the numbers "
    "agree. Two runs that agree here may still differ on another text."
)

# Longer tables show only the residual stream and the block of the first difference.
MAX_STAGES = 48

# The number of heads listed, those that changed most first.
HEADS_SHOWN = 12

# The steps of the residual stream, without their block.
STREAM_STEPS = ("embedding", "mid", "output", "final", "logits")


@dataclass(frozen=True, eq=False)
class Stage:
    """The comparison of one step of two runs."""

    path: str  # such as "blocks.0.attention.weights"
    shape: tuple[int, ...]
    difference: float  # the largest absolute one
    relative: float  # the difference divided by the step's largest number
    rounding: float  # the largest difference divided by the tolerance; up to 1 the runs agree
    where: tuple[int, ...]  # the index of the largest difference
    place: str  # the same in words; "" if there is no difference

    @property
    def agrees(self) -> bool:
        return self.rounding <= 1


@dataclass(frozen=True, eq=False, repr=False)
class Stages(Document):
    """A comparison of steps.

    Attributes
    ----------
    stages : a `Stage` for each step, in the order of the forward pass
    first : the first stage that differs by more than rounding explains, or None
    agrees : whether all stages agree
    """

    _shown: ClassVar[Mapping[str, Format]] = {
        "path": ("step", ""),
        "shape": lambda shape: " x ".join(map(str, shape)),
        **dict.fromkeys(("difference", "relative"), ".2g"),
        "rounding": ("x rounding", ".2g"),
        "agrees": ("", lambda agrees: Message("agrees" if agrees else "differs")),
        "place": ("largest at", ""),
    }

    stages: tuple[Stage, ...]

    def _records(self) -> Sequence[Stage]:
        return self.stages

    def _table(self, stages: Sequence[Stage]) -> Table:
        """Some of the stages."""
        return listed(replace(self, stages=tuple(stages))._data(), self._shown)

    @property
    def first(self) -> Stage | None:
        return next((stage for stage in self.stages if not stage.agrees), None)

    @property
    def agrees(self) -> bool:
        return self.first is None

    def _repr_html_(self) -> str:
        return door.document_view(self, [*self.pieces(), Paragraph(STAGES_NOTE)])


@dataclass(frozen=True, eq=False, repr=False)
class Differences(Stages):
    """How two results differ, as `compare` returns it; `repr` is a table.

    Attributes
    ----------
    titles : the two results' titles
    note : other differences in words, such as the tokens
    changes : (L, H), the fraction of each head's attention that moved to other keys, see
        `moved_attention`; None unless whole traces are compared
    heads : (layer, head) pairs, most changed first; () without `changes`
    are_models : whether the results are traces of one text by two models, without edits
    stages, first, agrees : see `Stages`
    """

    titles: tuple[str, str]
    note: str
    changes: Array | None = None
    are_models: bool = False

    @property
    def heads(self) -> tuple[tuple[int, int], ...]:
        if self.changes is None:
            return ()
        order = np.argsort(-self.changes, axis=None, kind="stable")
        layers, heads = np.unravel_index(order, self.changes.shape)
        return tuple(zip(layers.tolist(), heads.tolist(), strict=True))

    def pieces(self) -> Iterator[str | Table]:
        first, count = self.first, len(self.stages)
        if first is None:
            verdict = Message(
                "All {count} steps agree: rounding explains every difference.", count=count
            )
        elif self.are_models:
            verdict = Message("Two models; the first step that differs is {path}.", path=first.path)
        else:
            verdict = Message(
                "{differing} of {count} steps differ by more than rounding explains; the first is "
                "{first}.",
                differing=sum(not stage.agrees for stage in self.stages),
                count=count,
                first=join_words(filter(None, (first.path, first.place))),
            )
        yield Heading("a  {first}\nb  {second}", first=self.titles[0], second=self.titles[1])
        if self.note:
            yield self.note
        yield verdict
        if first is not None and self.are_models and self.changes is not None:
            yield Message("Heads by the fraction of their attention that moved to other tokens:")
            ranked = [
                (str(layer), str(head), f"{self.changes[layer, head]:.3f}")
                for layer, head in self.heads[:HEADS_SHOWN]
            ]
            yield Table([header("layer", "head", "moved"), *ranked], left=())
        yield self._table(self._stages_shown())

    def _stages_shown(self) -> tuple[Stage, ...]:
        if len(self.stages) <= MAX_STAGES:
            return self.stages
        block = block_of(self.first.path) if self.first else ""
        return tuple(
            stage
            for stage in self.stages
            if block_of(stage.path) == block or path_in_block(stage.path) in STREAM_STEPS
        )


def compare(a: Result, b: Result) -> Differences:
    """Compare two traces step by step, in the order of the forward pass.

    Traces that agree may still differ on another text.

    Parameters
    ----------
    a, b : two traces, for example by two models, in two precisions or with two edits; or the same
        part of two traces. The tokens may differ, but not their number.

    Returns
    -------
    Differences
        `print` shows each step's largest difference (absolute, relative and compared with rounding)
        and its index

    Examples
    --------
    >>> compare(trace, trace.edited({"blocks.1.attention.heads.2.context": 0})).first.place
    """
    for result in (a, b):
        if not isinstance(result, Result):
            hint = ". Use its .compare method" if hasattr(result, "compare") else ""
            raise InvalidTypeError(
                f"compare needs two traces or parts of traces; got {quoted(result)}{hint}"
            )
        check_comparable(result)
    if type(a) is not type(b):
        raise InvalidTypeError(
            f"a and b must have the same type; got {type(a).__name__} and {type(b).__name__}"
        )
    shapes = [x._run.scores_shape for x in (a, b)]
    if shapes[0] != shapes[1] or a._run.graph.n_layer != b._run.graph.n_layer:
        raise InvalidValueError(
            f"a and b must have the same numbers of tokens, heads and layers; got {a.title}, "
            f"with scores {shapes[0]}, and {b.title}, with scores {shapes[1]}"
        )
    moved: list[Array] = []
    differences = Differences(
        tuple(compare_steps(a, b, moved)), (title_of(a), title_of(b)), note_on_tokens(a, b)
    )
    if not isinstance(a, ForwardPass) or not isinstance(b, ForwardPass):
        return differences
    is_same_text = not (differences.note or a.edited_steps or b.edited_steps)
    return replace(
        differences,
        changes=np.array(moved),
        are_models=is_same_text and a.parameters is not b.parameters,
    )


def check_comparable(result: Result) -> None:
    """Raise for gradients, and for a step of generation: it has no rows for cached tokens."""
    title = result.title
    if isinstance(result._run, GradientRun):
        raise InvalidTypeError(
            f"{title}: tolerances for rounding are known only for the steps of a forward pass. "
            "Compare gradients with numpy.allclose"
        )
    if result.tokens_before:
        raise InvalidValueError(f"{title} is a step of generation. Use its Generation's .trace")


def title_of(result: Result) -> str:
    """A result's title; for a trace, with the dtype and origin of the parameters."""
    if not isinstance(result, ForwardPass):
        return result.title
    return Message(
        "{title}, {dtype}, {origin}",
        title=result.title,
        dtype=str(result.parameters.dtype),
        origin=result.parameters.origin,
    )


def note_on_tokens(a: Result, b: Result) -> str:
    """The positions at which the tokens of two results differ, in words."""
    if a.tokens is None or b.tokens is None:
        return ""
    differing = np.flatnonzero(np.not_equal(a.tokens.ids, b.tokens.ids))
    if not differing.size:
        return ""
    positions = ", ".join([*map(str, differing[:8]), *(["…"] if differing.size > 8 else [])])
    return Message("Their tokens differ at {positions}.", positions=positions)


def moved_attention(weights: Array, other_weights: Array) -> Array:
    """The fraction of each head's attention that moved to other keys, (H,), from 0 to 1.

    Σ over keys |other_weights - weights| / 2, averaged over queries
    """
    by_query = np.abs(other_weights - weights).sum(axis=-1) / 2
    return np.asarray(by_query.mean(axis=(*range(by_query.ndim - 2), -1)))


def compare_steps(a: Result, b: Result, moved: list[Array]) -> Iterator[Stage]:
    """Compare the steps block by block, to save memory; append `moved_attention` to `moved`."""
    names = forward_order(a, activations(type(a), a._run.graph.n_layer))
    runs = [a._run.fork(), b._run.fork()]
    runs += perturbed_runs(runs[0], [a._prefix + name for name in names])
    prefixes = (a._prefix, b._prefix, *[a._prefix] * PERTURBED_RUNS)
    for block, names_in_block in groupby(names, key=block_of):
        forks = [run.fork() for run in runs]  # freed after the block
        for name in names_in_block:
            numbers, other_numbers, *variants = (
                fork.value(prefix + name) for fork, prefix in zip(forks, prefixes, strict=True)
            )
            if numbers.shape != other_numbers.shape:
                raise InvalidValueError(
                    f"{name} must have the same shape in both; got {numbers.shape} and "
                    f"{other_numbers.shape}"
                )
            if block and name == f"{block}.attention.weights":
                moved.append(moved_attention(numbers, other_numbers))
            tolerance = tolerance_of(
                numbers, variants, max(epsilon_of(numbers), epsilon_of(other_numbers))
            )
            yield compare_values(a, name, other_numbers, numbers, tolerance)
        if block:  # keep only its output, the next block's input
            for run in runs:
                run.value(f"{block}.output")


def compare_values(
    result: Result, name: str, mine: AnyArray, expected: AnyArray, tolerance: Array
) -> Stage:
    """Compare numbers with a step's expected ones, given each row's tolerance, (..., 1)."""
    difference = distance(mine, expected)
    largest = np.max(difference)
    index = tuple(map(int, np.unravel_index(np.argmax(difference), difference.shape)))
    size = np.abs(expected[np.abs(expected) < -MASKED]).max(initial=0.0)
    return Stage(
        name,
        expected.shape,
        float(largest),
        float(safe_ratio(largest, size)),
        float(safe_ratio(difference, tolerance).max()),
        index,
        join_words(index_in_words(result, name, index)) if largest else "",
    )


def distance(mine: AnyArray, expected: AnyArray) -> Array:
    """|mine - expected|; 0 where both are masked, whatever the fill values."""
    mine, expected = np.asarray(mine, np.float64), np.asarray(expected, np.float64)
    with np.errstate(all="ignore"):
        difference = np.abs(mine - expected)
    is_masked = expected <= MASKED
    if is_masked.any():
        largest = np.max(expected, axis=-1, keepdims=True)
        difference[is_masked & (mine <= np.maximum(largest - NEGLIGIBLE, MASKED))] = 0.0
    return np.where(np.isnan(difference), np.inf, difference)  # also for ∞ - ∞


def safe_ratio(difference: Any, unit: Any) -> Array:
    """difference / unit; 0 where the difference is 0."""
    with np.errstate(all="ignore"):
        return np.where(difference == 0, 0.0, difference / unit)


def index_in_words(result: Result, name: str, index: tuple[int, ...]) -> list[str]:
    """An index of a step in words, one for each axis, such as head 0, query 3 Ġthe."""
    axis_names = {"H": "head", **TOKEN_AXES}
    axes = axes_of(result, name)
    words = [str(i) for i in index[: len(index) - len(axes)]]  # batch axes
    for axis, i in zip(axes, index[len(words) :], strict=False):
        names = result.tokens.readable if axis in TOKEN_AXES and result.tokens else ()
        position = " ".join([str(i), *map(label, names[i : i + 1])])  # a token, if there is one
        axis_name = Message(axis_names.get(axis, "column"))
        words.append(Message("{axis} {position}", axis=axis_name, position=position))
    return words


def join_words(words: Iterable[str]) -> str:
    """Join words with commas; the words and commas are translated."""
    first, *others = [*words] or [""]
    return reduce(lambda x, y: Message("{first}, {second}", first=x, second=y), others, first)


def axes_of(result: Result, name: str) -> list[str]:
    """The names of a step's axes, without leading batch axes."""
    path, _, step = name.rpartition(".")
    part: Result = at(result, path) if path else result
    return part.axes_of(step).split()


def activations(result_type: type[Result], n_layer: int, prefix: str = "") -> Iterator[str]:
    """The steps of a type of result that have a row for each token, except aliases."""
    for name in result_type._table_steps:
        step = result_type.steps[name]
        is_alias = step.equation is identity or name in ("mask", "score_bias", "dropout_mask")
        if step.has_rows_for_tokens and not is_alias:
            yield prefix + name
    for child, child_type in result_type._children.items():
        if child == "blocks":
            for layer in range(n_layer):
                yield from activations(child_type, n_layer, f"{prefix}blocks.{layer}.")
        elif child != "heads":  # heads are slices of the layer's arrays
            yield from activations(child_type, n_layer, f"{prefix}{child}.")


def block_of(path: str) -> str:
    """The block of a step, such as blocks.3; "" if it has none."""
    match = re.match(r"blocks\.\d+", path)
    return match[0] if match else ""


def path_in_block(path: str) -> str:
    return path.removeprefix(f"{block_of(path)}.")


def forward_order(result: Result, names: Iterable[str]) -> list[str]:
    """Names of steps in the order of the forward pass, by their depth in the graph."""
    graph, depth = result._run.graph, dict[str, int]()
    paths = {result._prefix + name: name for name in names}
    for path in upstream(graph, paths):
        depth[path] = 1 + max((depth[need] for need in inputs_of(graph[path])), default=0)
    return [paths[path] for path in sorted(paths, key=depth.__getitem__)]


# ---- tolerances for rounding ---------------------------------------------------------------------


def perturbation_for(epsilon: float) -> float:
    """The perturbation that measures rounding with an epsilon.

    In half precision it is as large as rounding itself: in a softmax of large scores, effects are
    far from linear.
    """
    return epsilon if epsilon > HALF_EPSILON else PERTURBATION


def perturbed_runs(run: Run, paths: Iterable[str], epsilon: float = 0.0) -> list[Run]:
    """Runs in which some steps, and all computed steps upstream of them, are perturbed."""
    perturbed_paths = []
    for path in upstream(run.graph, paths):
        node = run.graph[path]
        is_computed = node.step.equation not in (None, identity) and node.step.has_rows_for_tokens
        is_slice = node.select is not None  # of a layer's step, which is perturbed itself
        if (is_computed or is_fixed(run, path)) and not is_slice:
            perturbed_paths.append(path)
    size = perturbation_for(epsilon)
    return [
        with_equations(run, {path: perturbation(run, path, n, size) for path in perturbed_paths})
        for n in range(PERTURBED_RUNS)
    ]


def perturbation(run: Run, path: str, n: int, size: float) -> Equation:
    """A perturbation seeded by step and run, so that recomputing a step repeats it."""

    def perturbed(value: Any) -> Any:
        if not isinstance(value, np.ndarray) or value.dtype.kind != "f":
            return value
        rng = np.random.default_rng([n, zlib.crc32(path.encode())])
        noise = np.asarray(rng.standard_normal(value.shape, np.float32), value.dtype)
        return value * (1.0 + size * noise)

    def perturbed_activation(value: Array, hidden: Array) -> Any:
        # Code in steps rounds 1 + tanh(x), which nearly cancels: up to epsilon/4 · hidden/2.
        return perturbed(value) + (perturbed(hidden) - hidden) / 4

    return perturbed_activation if run.graph[path].step.equation is activated else perturbed


def tolerance_of(value: AnyArray, variants: Sequence[AnyArray], epsilon: float) -> Array:
    """The tolerance for rounding of each row of a step (..., n), (..., 1).

    `variants` are the step in each perturbed run; `epsilon` is that of the computation's dtype.
    """
    value = np.asarray(value, np.float64)
    is_unmasked = value > MASKED
    size = np.where(is_unmasked, np.abs(value), 0.0).max(axis=-1, keepdims=True)
    with np.errstate(invalid="ignore"):
        spreads = [
            np.where(is_unmasked, np.abs(x - value), 0.0).max(axis=-1, keepdims=True)
            for x in variants
        ]
    spread = np.max(spreads, axis=0)
    growth = np.divide(spread, size, out=np.zeros_like(size), where=size > 0)
    growth /= perturbation_for(epsilon)
    # At least the median, as perturbations of a row may cancel by chance.
    growth = np.maximum(growth, np.median(growth))
    margin = MARGIN if epsilon < HALF_EPSILON else HALF_MARGIN
    return margin * epsilon * size * (1.0 + growth)


def epsilon_of(array: AnyArray) -> float:
    """The machine epsilon of an array's dtype; float64's for integers."""
    return float(np.finfo(array.dtype).eps) if array.dtype.kind == "f" else 2.0**-52
