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
    perturbed_runs,
    tolerance_of,
)
from attnlab.checking.replaced import with_changes
from attnlab.equations import AnyArray, Array, identity, position_embedding, token_embedding
from attnlab.errors import AttnlabError, InvalidValueError
from attnlab.steps import Result, Run
from attnlab.support.checks import as_reals, is_masked_array

# A mistake is considered only if at most this fraction of the difference remains with it.
MAX_REMAINING = 1 / 16

FLOAT32_EPSILON = 2.0**-23

# Fewer numbers than this may be representable in half precision, or have few decimals, by chance.
MIN_NUMBERS = 8

# Numbers with up to so many decimals were rounded, such as for printing.
MAX_DECIMALS = 4


@dataclass(frozen=True, eq=False)
class Given:
    """The user's numbers for one step."""

    name: str  # the step's path in the result
    path: str  # its path in the whole trace
    # The array in the step's order of axes; several if more than one fits
    layouts: tuple[AnyArray, ...]
    epsilon: float  # that of the coarser dtype, the user's or the model's
    decimals: int  # to which the user's numbers are rounded; 0 if they aren't


@dataclass(frozen=True, eq=False)
class Submission(Given):
    """The user's numbers for one step, and the numbers expected."""

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

    def remaining_with(self, value: AnyArray | None) -> float:
        """The part of the user's difference from the expected numbers that remains with others."""
        if value is None or value.shape != self.expected.shape:
            return math.inf
        remaining = min(float(distance(x, value).max()) for x in self.layouts)
        # The difference is infinite where only one of two numbers is masked.
        size = np.abs(self.expected[np.abs(self.expected) < -MASKED]).max(initial=1e-30)
        difference = min(float(distance(self.nearest, self.expected).max()), float(size))
        return remaining / max(difference, 1e-300)

    def equals(self, value: AnyArray, tolerance: Array | None = None) -> bool:
        """Whether the user's numbers are those of another array of the same shape."""
        tolerance = self.tolerance if tolerance is None else tolerance
        return any((distance(x, value) <= tolerance).all() for x in self.layouts)

    def matches(self, run: Run, variants: Sequence[Run]) -> bool:
        """Whether the user's numbers equal a run's, within the rounding of its variants."""
        value = self.value_in(run)
        perturbed = [x for x in map(self.value_in, variants) if x is not None]
        if value is None or len(perturbed) < len(variants):
            return False
        tolerance = tolerance_of(value, perturbed, self.epsilon) + half_unit(self.decimals)
        return self.equals(value, tolerance)


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


def half_epsilon(array: AnyArray, expected: AnyArray) -> float:
    """The epsilon of the half precision that an array was converted from, or 0.

    It was converted if half precision can represent all its numbers, but not all correct ones.
    """
    for rounded, epsilon in ((as_bfloat16, 2.0**-7), (as_float16, 2.0**-10)):  # the coarser first
        with np.errstate(over="ignore"):
            is_exact = [((x == rounded(x)) | (x <= MASKED)).all() for x in (array, expected)]
        if is_exact == [True, False]:
            return epsilon
    return 0.0


def decimals_of(array: AnyArray, expected: AnyArray) -> int:
    """To how many decimals an array is rounded, as if printed; 0 if it isn't."""
    for decimals in range(2, MAX_DECIMALS + 1):
        with np.errstate(all="ignore"):
            is_rounded = [
                np.isclose(x, np.round(x, decimals), 2 * epsilon_of(x), 0) | ~np.isfinite(x)
                for x in (array, expected)
            ]
        if is_rounded[0].all():
            return 0 if is_rounded[1].all() else decimals
    return 0


def half_unit(decimals: int) -> float:
    """How much rounding to so many decimals may change a number."""
    return 0.5000001 * 10.0**-decimals if decimals else 0.0


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
    given: list[Given] = []
    coarsest = 0.0  # precision lost in one step is lost in all later ones
    copies = (None, identity, token_embedding, position_embedding)  # compute no new numbers
    for name, (array, epsilon) in numbers.items():
        path = result._prefix + name
        expected, layouts = checked_layouts(result, run, name, array)
        half, decimals = 0.0, 0
        if array.dtype.kind == "f" and np.unique(array).size >= MIN_NUMBERS:
            decimals = decimals_of(array, expected)
            if run.graph[path].step.equation not in copies:
                half = half_epsilon(array, expected)
        coarsest = max(coarsest, epsilon, half)
        with np.errstate(over="ignore"):  # float64 arrays may be converted from float32
            if array.dtype.kind == "f" and (array == array.astype(np.float32)).all():
                epsilon = max(epsilon, FLOAT32_EPSILON)
        given.append(Given(name, path, layouts, max(epsilon, epsilon_of(expected)), decimals))
    variants = perturbed_runs(run, [step.path for step in given], coarsest)
    submitted = []
    for step in given:
        perturbed = [np.atleast_1d(variant.value(step.path)) for variant in variants]
        coarse = replace(step, epsilon=max(step.epsilon, coarsest))
        expected = np.atleast_1d(run.value(step.path))
        submitted.append(compare(result, coarse, run, expected, perturbed))
    return with_own_inputs(result, run, submitted)


def checked_layouts(
    result: Result, run: Run, name: str, array: AnyArray
) -> tuple[AnyArray, tuple[AnyArray, ...]]:
    """The expected numbers of a step, and the user's array in all layouts that fit them."""
    path = result._prefix + name
    expected = numbers_at(run, path)
    if expected is None and run.value(path) is None:  # an optional step
        raise InvalidValueError(f"{result.title} has no {name}")
    if expected is None:
        raise InvalidValueError(f"{name} of {result.title} isn't an array of numbers")
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
        advice = ". Leave out a token that is prepended, as by prepend_bos" if longer else ""
        raise InvalidValueError(f"your {name} must have shape {axes}; got {array.shape}{advice}")
    if np.isnan(array).any():
        index = tuple(map(int, np.argwhere(np.isnan(array))[0]))
        raise InvalidValueError(
            f"your {name} contains NaN, first at {index}. The softmax of only -inf is NaN, "
            "as in a row that is fully masked, or over the wrong axis. So is 0 · -inf: "
            "apply the mask with np.where instead of a product"
        )
    return expected, layouts


# ---- comparison ----------------------------------------------------------------------------------


def compare(
    result: Result, step: Given, run: Run, expected: AnyArray, perturbed: Sequence[AnyArray]
) -> Submission:
    """Compare a step with the user's array, in the layout that differs least.

    `expected` and `perturbed` are the step in the run and in each perturbed run.
    """
    tolerance = tolerance_of(expected, perturbed, step.epsilon) + half_unit(step.decimals)
    stages = (compare_values(result, step.name, x, expected, tolerance) for x in step.layouts)
    stage = min(stages, key=lambda stage: stage.rounding)
    given = (step.name, step.path, step.layouts, step.epsilon, step.decimals)
    return Submission(*given, expected, tolerance, stage, run)


def compare_in_run(result: Result, run: Run, step: Submission) -> Submission:
    """Compare the user's numbers with another run's."""
    expected = step.value_in(run)
    if expected is None:
        return step
    runs = perturbed_runs(run, [step.path], step.epsilon)
    perturbed = [x for x in map(step.value_in, runs) if x is not None]
    return compare(result, step, run, expected, perturbed)


def with_own_inputs(result: Result, run: Run, submitted: list[Submission]) -> list[Submission]:
    """In half precision, compare each step with what follows from the user's other steps.

    Accumulated rounding would hide mistakes, and accuse correct code where a softmax is sharp.
    """
    if not any(step.is_half for step in submitted):
        return submitted
    own = {
        step.path: step.nearest.astype(step.expected.dtype)
        for step in submitted
        if step.expected.dtype.kind == "f" and step.expected.ndim > 1
    }
    runs = [
        with_changes(run, {path: x for path, x in own.items() if path != step.path})
        for step in submitted
    ]
    return [compare_in_run(result, *pair) for pair in zip(runs, submitted, strict=True)]


def numbers_at(run: Run, path: str) -> AnyArray | None:
    """A step's numbers, with at least one axis; None if it has no numbers."""
    value = run.value(path)
    return np.atleast_1d(value) if isinstance(value, np.ndarray | int | float) else None
