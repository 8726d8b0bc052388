"""The user's numbers compared with those of a run, with tolerances for rounding.

Tolerances are measured: every computed number is perturbed relatively by about `PERTURBATION`, and
the forward pass is run with these perturbations. Like rounding errors, their effects grow where
sums cancel, where a softmax is sharp, and from block to block. Scaled from `PERTURBATION` to the
dtype's epsilon, they give how far two correct results may differ.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, ClassVar

import numpy as np

from attnlab.checking.replaced import upstream, with_changes
from attnlab.equations import (
    AnyArray,
    Array,
    activated,
    identity,
    position_embedding,
    token_embedding,
)
from attnlab.errors import AttnlabError, InvalidValueError
from attnlab.steps import Result, Run, step_at, steps_below
from attnlab.steps.labels import TOKEN_AXES
from attnlab.support.checks import as_reals, is_masked_array
from attnlab.support.document import Document
from attnlab.support.messages import Message, joined
from attnlab.support.tables import Format, Heading, Paragraph, Table, label

# Large compared with float32's epsilon, 2⁻²³, and small enough for effects to be linear in it.
# In half precision, a perturbation is as large as rounding itself: in a softmax of large scores,
# effects are far from linear.
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

# A mistake is considered only if at most this fraction of the difference remains with it.
MAX_REMAINING = 1 / 16

# Errors of code with a mistake: shapes that don't match, names that this model doesn't have.
ERRORS = (AttnlabError, ArithmeticError, ValueError, LookupError, TypeError, NameError, MemoryError)

FLOAT32_EPSILON = 2.0**-23

# Fewer numbers than this may be representable in half precision, or have few decimals, by chance.
MIN_NUMBERS = 8

# The note below a table of stages in a notebook.
STAGES_NOTE = Message(
    "x rounding is the largest difference divided by what rounding explains: up to 1 the numbers "
    "agree. Two runs that agree here may still differ on another text."
)


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
    title : what is compared
    stages : a `Stage` for each step, in the order of the forward pass
    notes : sentences below the table
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

    title: str
    stages: tuple[Stage, ...]
    notes: tuple[str, ...] = ()

    def _records(self) -> Sequence[Stage]:
        return self.stages

    def pieces(self) -> Iterator[str | Table]:
        agreeing, count = sum(stage.agrees for stage in self.stages), len(self.stages)
        template = "{title}: {agreeing} of {count} steps agree"
        heading = Message(template, title=self.title, agreeing=agreeing, count=count)
        if self.first:
            template = "{heading}; the first that differs is {path}"
            heading = Message(template, heading=heading, path=self.first.path)
        yield Heading(heading)
        yield from self._tables()
        if self.first or self.notes:
            yield ""
        yield from map(Paragraph, self.notes)

    @property
    def first(self) -> Stage | None:
        return next((stage for stage in self.stages if not stage.agrees), None)

    @property
    def agrees(self) -> bool:
        return self.first is None

    def _repr_html_(self) -> str:
        from attnlab.views.notebook import document_view

        return document_view(self, [*self.pieces(), Paragraph(STAGES_NOTE)])


@dataclass(frozen=True, eq=False)
class Submission:
    """The user's numbers for one step, compared with those of a run."""

    result: Result
    name: str  # the step's path in the result
    path: str  # its path in the whole trace
    # The array in the step's order of axes; several if more than one fits
    layouts: tuple[AnyArray, ...]
    epsilon: float  # that of the coarsest dtype, the user's or the model's
    decimals: int  # to which the user's numbers are rounded; 0 if they aren't
    run: Run  # computes the expected numbers
    perturbed: Sequence[Run] = ()  # the run with perturbations, which show the effect of rounding

    @cached_property
    def expected(self) -> AnyArray:
        return numbers_at(self.run, self.path)

    @cached_property
    def tolerance(self) -> Array:
        """The tolerance for rounding, of each row."""
        variants = [numbers_at(run, self.path) for run in self.perturbed]
        half_unit = 0.5000001 * 10.0**-self.decimals if self.decimals else 0.0
        return tolerance_of(self.expected, variants, self.epsilon) + half_unit

    @cached_property
    def agrees(self) -> bool:
        return self.equals(self.expected)

    @cached_property
    def stage(self) -> Stage:
        """The comparison as users see it."""
        largest = self.difference.max()
        with np.errstate(all="ignore"):
            ratios = np.where(self.difference == 0, 0.0, self.difference / self.tolerance)
            relative = largest / self.size if largest else 0.0
        index = tuple(map(int, np.unravel_index(self.difference.argmax(), self.difference.shape)))
        return Stage(
            self.name,
            self.expected.shape,
            float(largest),
            float(relative),
            float(ratios.max()),
            index,
            index_in_words(self.result, self.name, index) if largest else "",
        )

    @property
    def is_half(self) -> bool:
        """Whether it was computed in half precision, float16 or bfloat16."""
        return self.epsilon > HALF_EPSILON

    @cached_property
    def nearest(self) -> AnyArray:
        """The layout that is closest to the expected numbers."""
        return min(self.layouts, key=lambda x: float(distance(x, self.expected).max()))

    @cached_property
    def difference(self) -> Array:
        return distance(self.nearest, self.expected)

    @cached_property
    def size(self) -> float:
        """The largest expected number that isn't masked."""
        return float(np.abs(self.expected[np.abs(self.expected) < -MASKED]).max(initial=0.0))

    def remaining_with(self, value: AnyArray) -> float:
        """The part of the user's difference from the expected numbers that remains with others."""
        remaining = min(float(distance(x, value).max()) for x in self.layouts)
        # The difference is infinite where only one of two numbers is masked.
        return remaining / max(min(float(self.difference.max()), self.size), 1e-30)

    def equals(self, value: AnyArray) -> bool:
        """Whether the user's numbers are those of another array of the same shape."""
        return any((distance(x, value) <= self.tolerance).all() for x in self.layouts)


# ---- the user's numbers --------------------------------------------------------------------------


def array_and_epsilon(name: str, numbers: Any) -> tuple[AnyArray, float]:
    """The user's numbers for a step as an array, and the epsilon of their dtype."""
    if is_masked_array(numbers):  # a hidden score is -inf, a hidden weight 0
        is_score = "scores" in name and numbers.dtype.kind in "biuf"
        numbers = np.where(numbers.mask, -np.inf, numbers.data) if is_score else numbers.filled(0)
    array = np.atleast_1d(as_reals(numbers, f"your {name}", "biuf"))
    is_bfloat16 = str(getattr(numbers, "dtype", "")) == "torch.bfloat16"
    return array, 2.0**-7 if is_bfloat16 else epsilon_of(array)


def as_float16(value: Any) -> Any:
    return value.astype(np.float16).astype(value.dtype)


def as_bfloat16(value: Any) -> Any:
    bits = value.astype(np.float32).view(np.uint32)
    bits = bits + 0x7FFF + (bits >> 16 & 1)  # round to nearest, ties to even
    return (bits & 0xFFFF0000).view(np.float32).astype(value.dtype)


# The functions that round to half precision, by the machine epsilon; the coarser one first.
HALVES = {2.0**-7: as_bfloat16, 2.0**-10: as_float16}

# Those that round to decimals, such as for printing, by their number.
DECIMALS = {n: partial(np.round, decimals=n) for n in (2, 3, 4)}


def rounding_of(
    array: AnyArray, expected: AnyArray, functions: Mapping[Any, Callable[[Any], Any]]
) -> Any:
    """The first rounding that changes none of an array's numbers, but some correct ones; or 0."""

    def is_same(x: AnyArray, rounded: Callable[[Any], Any]) -> bool:
        # False where rounding overflows.
        is_close = np.abs(x - rounded(x)) <= 2 * epsilon_of(x) * np.abs(x)
        return bool((is_close | (x <= MASKED)).all())

    with np.errstate(all="ignore"):
        found = (n for n, f in functions.items() if is_same(array, f) and not is_same(expected, f))
        return next(found, 0)


def layouts_of(array: AnyArray, shape: tuple[int, ...]) -> tuple[AnyArray, ...]:
    """An array in all orders of axes that match a shape, its own order first.

    Axes of size 1 may be missing or extra, and the head axis may be anywhere.
    """
    array, target = np.squeeze(array), tuple(n for n in shape if n != 1)
    layouts = [array]
    if len(shape) > 2 and shape[-3] != 1 and array.ndim == len(target):
        head_axis = sum(n != 1 for n in shape[:-3])
        others = (axis for axis in range(array.ndim) if axis != head_axis)
        layouts += [np.moveaxis(array, axis, head_axis) for axis in others]
    return tuple(x.reshape(shape) for x in layouts if x.shape == target)


def submissions(result: Result, run: Run, mine: Mapping[str, Any]) -> list[Submission]:
    """Compare each of the user's arrays with its step, in the order of the forward pass."""
    given: list[Submission] = []
    coarsest = 0.0  # precision lost in one step is lost in all later ones
    copies = (None, identity, token_embedding, position_embedding)  # compute no new numbers
    for name in forward_order(result, mine):
        array, epsilon = array_and_epsilon(name, mine[name])
        path = result._prefix + name
        layouts = checked_layouts(result, run, name, array)
        expected, half, decimals = numbers_at(run, path), 0.0, 0
        if array.dtype.kind == "f" and np.unique(array).size >= MIN_NUMBERS:
            decimals = rounding_of(array, expected, DECIMALS)
            if run.graph[path].step.equation not in copies:
                half = rounding_of(array, expected, HALVES)
        coarsest = max(coarsest, epsilon, half)
        with np.errstate(over="ignore"):  # float64 arrays may be converted from float32
            if array.dtype.kind == "f" and (array == array.astype(np.float32)).all():
                epsilon = max(epsilon, FLOAT32_EPSILON)
        epsilon = max(epsilon, epsilon_of(expected))
        given.append(Submission(result, name, path, layouts, epsilon, decimals, run))
    # With steps such as mid, which are the user's attention.output in another order.
    others = [path for path, _ in steps_below(run.graph.root) if "#" not in path]
    return in_run([replace(x, epsilon=max(x.epsilon, coarsest)) for x in given], run, others)


def in_run(given: Sequence[Submission], run: Run, others: Sequence[str] = ()) -> list[Submission]:
    """The user's numbers compared with those of a run; its perturbations also have other steps."""
    paths = [*others, *(step.path for step in given)]
    perturbed = perturbed_runs(run, paths, max(step.epsilon for step in given))
    return [replace(step, run=run, perturbed=perturbed) for step in given]


def checked_layouts(result: Result, run: Run, name: str, array: AnyArray) -> tuple[AnyArray, ...]:
    """The user's array in all layouts that fit the expected numbers."""
    path = result._prefix + name
    if run.value(path) is None:  # an optional step
        raise InvalidValueError(f"{result.title} has no {name}")
    if not isinstance(run.value(path), np.ndarray | int | float):
        raise InvalidValueError(f"{name} of {result.title} isn't an array of numbers")
    expected = numbers_at(run, path)
    layouts = layouts_of(array, expected.shape)
    if not layouts:
        mean = expected.mean(axis=0) if expected.ndim == 3 else expected
        if mean.shape == array.shape and np.allclose(array, mean, 1e-3, 1e-5):
            raise InvalidValueError(
                f"your {name} is the mean over the heads. Give those of each head, "
                f"{expected.shape}: in nn.MultiheadAttention, average_attn_weights=False"
            )
        axes = ", ".join(filter(None, [str(expected.shape), " ".join(axes_of(result, name))]))
        longer = [n for n, m in zip(array.shape, expected.shape, strict=False) if n == m + 1]
        advice = ". Run it without a token in front (prepend_bos=False)" if longer else ""
        raise InvalidValueError(f"your {name} must have shape {axes}; got {array.shape}{advice}")
    if np.isnan(array).any():
        index = tuple(map(int, np.argwhere(np.isnan(array))[0]))
        raise InvalidValueError(
            f"your {name} contains NaN, first at {index}. The softmax of only -inf is NaN, "
            "as in a row that is fully masked, or over the wrong axis. So is 0 · -inf: "
            "apply the mask with np.where instead of a product"
        )
    return layouts


def numbers_at(run: Run, path: str) -> AnyArray:
    """A step's numbers, with at least one axis."""
    return np.atleast_1d(run.value(path))


# ---- differences, in numbers and in words --------------------------------------------------------


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


def index_in_words(result: Result, name: str, index: Sequence[int | None]) -> str:
    """An index of a step in words, such as head 0, query 3 Ġthe; axes with None are left out."""
    axis_names = {"H": "head", **TOKEN_AXES}
    axes, words = axes_of(result, name), list[str]()
    batch_axes = [""] * (len(index) - len(axes))
    for axis, i in zip((*batch_axes, *axes), index, strict=False):
        if i is not None:
            names = result.tokens.readable if axis in TOKEN_AXES and result.tokens else ()
            position = " ".join([str(i), *map(label, names[i : i + 1])])  # a token, if there is one
            axis_name = Message(axis_names.get(axis, "column"))
            in_words = Message("{axis} {position}", axis=axis_name, position=position)
            words.append(in_words if axis else position)
    return joined(*words, template="{first}, {second}")


def axes_of(result: Result, name: str) -> list[str]:
    """The names of a step's axes, without leading batch axes."""
    part, step = step_at(result, name)
    return part.axes_of(step).split()


def path_in_block(path: str) -> str:
    return re.sub(r"^blocks\.\d+\.", "", path)


def forward_order(result: Result, names: Iterable[str]) -> list[str]:
    """Names of steps in the order of the forward pass, by their depth in the graph."""
    graph, depth = result._run.graph, dict[str, int]()
    paths = {result._prefix + name: name for name in names}
    for path in upstream(graph, paths):
        depth[path] = 1 + max((depth[need] for need in graph[path].inputs), default=0)
    return [paths[path] for path in sorted(paths, key=depth.__getitem__)]


# ---- tolerances for rounding ---------------------------------------------------------------------


def perturbed_runs(run: Run, paths: Iterable[str], epsilon: float) -> list[Run]:
    """Runs in which some steps, and all computed steps upstream of them, are perturbed."""
    size, changed = max(epsilon, PERTURBATION), []
    for path in upstream(run.graph, paths):
        node = run.graph[path]
        is_computed = node.step.equation not in (None, identity) and node.step.has_rows_for_tokens
        is_given = node.step.equation is None and run.is_stored(path)
        is_slice = node.select is not None  # of a layer's step, which is perturbed itself
        if (is_computed or is_given) and not is_slice:
            changed.append(path)
    return [
        with_changes(run, {path: partial(perturbed, run, path, size, n) for path in changed})
        for n in range(PERTURBED_RUNS)
    ]


def perturbed(run: Run, path: str, size: float, n: int, value: Any) -> Any:
    """A step's value with a perturbation seeded by step and run, which recomputing repeats."""
    if not isinstance(value, np.ndarray) or value.dtype.kind != "f":
        return value
    rng = np.random.default_rng([n, zlib.crc32(path.encode())])
    noise = np.asarray(rng.standard_normal(value.shape, np.float32), value.dtype)
    node, with_noise = run.graph[path], value * (1.0 + size * noise)
    if node.step.equation is not activated:
        return with_noise
    # Code in steps rounds 1 + tanh(x), which nearly cancels: up to epsilon/4 · hidden/2.
    return with_noise + run.value(node.needs[0]) * size * noise / 4


def tolerance_of(value: AnyArray, variants: Sequence[AnyArray], epsilon: float) -> Array:
    """The tolerance for rounding of each row of a step (..., n), (..., 1).

    `variants` are the step in each perturbed run; `epsilon` is that of the computation's dtype.
    """
    value = np.asarray(value, np.float64)

    def largest(x: AnyArray) -> Array:
        """The largest number of each row that isn't masked."""
        return np.where(value > MASKED, np.abs(x), 0.0).max(axis=-1, keepdims=True)

    size = largest(value)
    with np.errstate(invalid="ignore"):
        spread = np.max([largest(x - value) for x in variants], axis=0)
    growth = np.divide(spread, size, out=np.zeros_like(size), where=size > 0)
    growth /= max(epsilon, PERTURBATION)
    # At least the median, as perturbations of a row may cancel by chance.
    growth = np.maximum(growth, np.median(growth))
    margin = MARGIN if epsilon < HALF_EPSILON else HALF_MARGIN
    return margin * epsilon * size * (1.0 + growth)


def epsilon_of(array: AnyArray) -> float:
    """The machine epsilon of an array's dtype; float64's for integers."""
    return float(np.finfo(array.dtype).eps) if array.dtype.kind == "f" else 2.0**-52
