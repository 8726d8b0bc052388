"""The numbers that a user submits to `check`, compared with those of a run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from attnlab.checking.comparison import (
    HALF_EPSILON,
    MASKED,
    Stage,
    axes_of,
    compare_values,
    distance,
    epsilon_of,
    perturbation_for,
    perturbed_runs,
    tolerance_of,
)
from attnlab.checking.mistakes import as_bfloat16, as_float16
from attnlab.checking.replaced import Equation, with_equations
from attnlab.equations import AnyArray, Array, identity, position_embedding, token_embedding
from attnlab.errors import AttnlabError, InvalidValueError
from attnlab.steps import Result, Run
from attnlab.support.checks import as_reals

# A mistake is considered only if at most this fraction of the difference remains with it.
MAX_REMAINING = 1 / 16

# The same in half precision, where rounding hides small mistakes.
MAX_REMAINING_HALF = 1 / 2

FLOAT32_EPSILON = 2.0**-23

# Fewer numbers than this may be representable in half precision by chance.
MIN_NUMBERS = 8


@dataclass(frozen=True, eq=False)
class Submission:
    """The user's numbers for one step, and the numbers expected."""

    name: str  # the step's path in the result
    path: str  # its path in the whole trace
    # The array in the step's order of axes; several if more than one fits
    layouts: tuple[AnyArray, ...]
    epsilon: float  # that of the coarser dtype, the user's or the model's
    expected: AnyArray
    tolerance: Array  # of each row, for rounding
    stage: Stage
    run: Run  # which computed `expected`; in half precision from the user's other steps

    @property
    def agrees(self) -> bool:
        return self.stage.agrees

    @property
    def is_half(self) -> bool:
        """Whether it was computed in half precision, float16 or bfloat16."""
        return self.epsilon > HALF_EPSILON

    @property
    def nearest(self) -> AnyArray:
        """The layout that is closest to the expected numbers."""
        return min(self.layouts, key=lambda x: float(distance(x, self.expected).max()))

    def value_in(self, run: Run) -> AnyArray | None:
        """The step in another run, without prepended tokens; None if it can't be computed."""
        shape = self.expected.shape
        try:
            value = numbers_at(run, self.path)
        except (AttnlabError, ArithmeticError, ValueError, IndexError, TypeError):
            return None  # for example, shapes that don't match after a mistake
        if value is None or value.ndim != len(shape):
            return None
        # A prepended token adds leading rows and columns.
        extra = [max(m - n, 0) for m, n in zip(value.shape, shape, strict=True)]
        value = value[tuple(slice(n, None) for n in extra)]
        return value if value.shape == shape else None

    def values_in(self, runs: Sequence[Run]) -> list[AnyArray]:
        """The step in each of several runs in which it can be computed."""
        return [value for value in map(self.value_in, runs) if value is not None]

    def difference_from(self, run: Run) -> float:
        """The root mean square difference between the user's numbers and a run's."""
        value = self.value_in(run)
        if value is None:
            return math.inf
        return min(root_mean_square(x, value) for x in self.layouts)

    def is_near(self, run: Run) -> bool:
        """Whether a run is much closer to the user's numbers than the expected ones are."""
        value = self.value_in(run)
        if value is None:
            return False
        if self.is_half:  # the largest difference may be due to rounding
            difference = root_mean_square(self.nearest, self.expected)
            return self.difference_from(run) <= MAX_REMAINING_HALF * difference
        difference, remaining = (
            min(distance(x, numbers).max() for x in self.layouts)
            for numbers in (self.expected, value)
        )
        # The difference is infinite where only one of two numbers is masked.
        return bool(remaining <= MAX_REMAINING * difference and remaining < math.inf)

    def matches(self, run: Run, variants: Sequence[Run]) -> bool:
        """Whether the user's numbers equal a run's, within the rounding of its variants."""
        value, perturbed_values = self.value_in(run), self.values_in(variants)
        if value is None or len(perturbed_values) < len(variants):
            return False
        if self.is_half and self.difference_from(run) > typical_rounding(
            value, perturbed_values, self.epsilon
        ):
            return False
        tolerance = tolerance_of(value, perturbed_values, self.epsilon)
        return any((distance(x, value) <= tolerance).all() for x in self.layouts)


# ---- the user's numbers --------------------------------------------------------------------------


def array_and_epsilon(name: str, numbers: Any) -> tuple[AnyArray, float]:
    """The user's numbers for a step as an array, and the epsilon of their dtype."""
    array = np.atleast_1d(as_reals(numbers, f"your {name}", "biuf"))
    is_bfloat16 = str(getattr(numbers, "dtype", "")) == "torch.bfloat16"
    return array, 2.0**-7 if is_bfloat16 else epsilon_of(array)


def half_epsilon(array: AnyArray, expected: AnyArray) -> float:
    """The epsilon of the half precision that an array was converted from, or 0.

    It was converted if half precision can represent all its numbers, but not all correct ones.
    """
    if array.dtype.kind != "f" or np.unique(array).size < MIN_NUMBERS:
        return 0.0
    for rounded, epsilon in ((as_bfloat16, 2.0**-7), (as_float16, 2.0**-10)):  # the coarser first
        with np.errstate(over="ignore"):
            is_exact = [((x == rounded(x)) | (x <= MASKED)).all() for x in (array, expected)]
        if is_exact == [True, False]:
            return epsilon
    return 0.0


def layouts_of(array: AnyArray, shape: tuple[int, ...]) -> tuple[AnyArray, ...]:
    """An array in all orders of axes that match a shape, its own order first.

    Axes of size 1 may be missing or extra, and the head axis may be anywhere.
    """
    while array.ndim > len(shape) and 1 in array.shape:
        array = array.squeeze(array.shape.index(1))
    if array.ndim < len(shape) and array.shape == tuple(n for n in shape if n != 1):
        array = array.reshape(shape)
    head_axis = len(shape) - 3
    if array.ndim != len(shape) or head_axis < 0:
        return (array,) if array.shape == shape else ()
    axes = sorted(range(array.ndim), key=lambda axis: axis != head_axis)  # head_axis first
    layouts = (np.moveaxis(array, axis, head_axis) for axis in axes)
    return tuple(layout for layout in layouts if layout.shape == shape)


def submissions(
    result: Result, run: Run, numbers: Mapping[str, tuple[AnyArray, float]]
) -> list[Submission]:
    """Compare each of the user's arrays with its step."""
    submitted = []
    coarsest = coarsest_epsilon(result, run, numbers)
    variants = perturbed_runs(run, [result._prefix + name for name in numbers], coarsest)
    for name, (array, epsilon) in numbers.items():
        path = result._prefix + name
        expected = numbers_at(run, path)
        if expected is None and run.value(path) is None:  # an optional step
            raise InvalidValueError(f"{result.title} has no {name}")
        if expected is None:
            raise InvalidValueError(f"{name} of {result.title} isn't an array of numbers")
        layouts = layouts_of(array, expected.shape)
        if not layouts:
            axes = ", ".join(filter(None, [str(expected.shape), " ".join(axes_of(result, name))]))
            raise InvalidValueError(f"your {name} must have shape {axes}; got {array.shape}")
        if np.isnan(array).any():
            index = tuple(map(int, np.argwhere(np.isnan(array))[0]))
            raise InvalidValueError(
                f"your {name} contains NaN, first at {index}. The softmax of only -inf is NaN, "
                "as in a row that is fully masked, or over the wrong axis. So is 0 · -inf: "
                "apply the mask with np.where instead of a product"
            )
        with np.errstate(over="ignore"):  # float64 arrays may be converted from float32
            if array.dtype.kind == "f" and (array == array.astype(np.float32)).all():
                epsilon = max(epsilon, FLOAT32_EPSILON)
        epsilon = max(epsilon, coarsest, epsilon_of(expected))
        values = [np.atleast_1d(variant.value(path)) for variant in variants]
        submitted.append(
            compare_layouts(result, run, (name, path), layouts, epsilon, expected, values)
        )
    return with_own_inputs(result, run, submitted)


def with_own_inputs(result: Result, run: Run, submitted: list[Submission]) -> list[Submission]:
    """In half precision, compare each step with what follows from the user's other steps.

    Accumulated rounding would hide mistakes, and accuse correct code where a softmax is sharp.
    """
    if not any(step.is_half for step in submitted):
        return submitted
    return [from_own_inputs(result, run, step, submitted) for step in submitted]


def coarsest_epsilon(
    result: Result, run: Run, numbers: Mapping[str, tuple[AnyArray, float]]
) -> float:
    """The largest epsilon of all steps: precision lost in one is lost in all later ones."""
    coarsest = max(epsilon for _, epsilon in numbers.values())
    copies = (None, identity, token_embedding, position_embedding)  # compute no new numbers
    for name, (array, _) in numbers.items():
        path = result._prefix + name
        expected = numbers_at(run, path)
        is_computed = run.graph[path].step.equation not in copies
        if expected is not None and is_computed and layouts_of(array, expected.shape):
            coarsest = max(coarsest, half_epsilon(array, expected))
    return coarsest


def compare_layouts(
    result: Result,
    run: Run,
    step: tuple[str, str],
    layouts: tuple[AnyArray, ...],
    epsilon: float,
    expected: AnyArray,
    variants: Sequence[AnyArray],
) -> Submission:
    """Compare a step with the user's array, in the layout that differs least.

    `expected` and `variants` are the step, given by name and path, in the run and in each perturbed
    run.
    """
    name, path = step
    tolerance = tolerance_of(expected, variants, epsilon)
    stages = (compare_values(result, name, layout, expected, tolerance) for layout in layouts)
    stage = min(stages, key=lambda stage: stage.rounding)
    return Submission(name, path, layouts, epsilon, expected, tolerance, stage, run)


def compare_in_run(result: Result, run: Run, step: Submission) -> Submission:
    """Compare the user's numbers with another run's."""
    expected = step.value_in(run)
    if expected is None:
        return step
    variants = step.values_in(perturbed_runs(run, [step.path], step.epsilon))
    compared = compare_layouts(
        result,
        run,
        (step.name, step.path),
        step.layouts,
        step.epsilon,
        expected,
        variants,
    )
    if not step.is_half or expected.dtype.kind != "f":
        return compared
    # A mistake may be within each row's tolerance, and show only on average.
    average = root_mean_square(compared.nearest, expected) / typical_rounding(
        expected, variants, step.epsilon
    )
    stage = replace(compared.stage, rounding=max(compared.stage.rounding, average))
    return replace(compared, stage=stage)


def from_own_inputs(
    result: Result, run: Run, step: Submission, submitted: Sequence[Submission]
) -> Submission:
    """Compare the user's numbers with the step computed from the user's other steps."""

    def constant(array: AnyArray) -> Equation:
        return lambda: array

    others = {
        other.path: constant(other.nearest.astype(other.expected.dtype))
        for other in submitted
        if other.path != step.path and other.expected.dtype.kind == "f" and other.expected.ndim > 1
    }
    return compare_in_run(result, with_equations(run, others), step)


def root_mean_square(mine: AnyArray, expected: AnyArray) -> float:
    with np.errstate(over="ignore"):
        return float(np.sqrt(np.square(distance(mine, expected)).mean()))


def typical_rounding(expected: AnyArray, variants: Sequence[AnyArray], epsilon: float) -> float:
    """The root mean square of a step's rounding errors."""
    spread = max(root_mean_square(variant, expected) for variant in variants)
    spread /= perturbation_for(epsilon)
    size = root_mean_square(np.where(expected > MASKED, expected, 0.0), np.zeros_like(expected))
    # The inputs' rounding errors, and the step's own; positive, so that it can be a divisor.
    return epsilon * (spread + 0.1 * size) + np.finfo(np.float64).tiny


def numbers_at(run: Run, path: str) -> AnyArray | None:
    """A step's numbers, with at least one axis; None if it has no numbers."""
    value = run.value(path)
    return np.atleast_1d(value) if isinstance(value, np.ndarray | int | float) else None
