"""The numbers that a user submits to `check`, compared with those of a run."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from attnlab.checking.comparison import (
    HALF_EPSILON,
    MASKED,
    Stage,
    axes_of,
    distance,
    epsilon_of,
    forward_order,
    index_in_words,
    join_words,
    perturbed_runs,
    safe_ratio,
    tolerance_of,
)
from attnlab.equations import AnyArray, Array, identity, position_embedding, token_embedding
from attnlab.errors import AttnlabError, InvalidValueError
from attnlab.steps import Result, Run
from attnlab.support.checks import as_reals, is_masked_array

# A mistake is considered only if at most this fraction of the difference remains with it.
MAX_REMAINING = 1 / 16

# Errors of code with a mistake: shapes that don't match, names that this model doesn't have.
ERRORS = (AttnlabError, ArithmeticError, ValueError, LookupError, TypeError, NameError, MemoryError)

FLOAT32_EPSILON = 2.0**-23

# Fewer numbers than this may be representable in half precision, or have few decimals, by chance.
MIN_NUMBERS = 8

# Numbers with so few decimals were rounded, such as for printing.
DECIMALS = (2, 3, 4)


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
        value = self.value_in(self.run)
        assert value is not None
        return value

    @cached_property
    def tolerance(self) -> Array:
        """The tolerance for rounding, of each row."""
        variants = [x for x in map(self.value_in, self.perturbed) if x is not None]
        return tolerance_of(self.expected, variants, self.epsilon) + half_unit(self.decimals)

    @cached_property
    def agrees(self) -> bool:
        return self.equals(self.expected)

    @cached_property
    def stage(self) -> Stage:
        """The comparison as users see it."""
        largest = self.difference.max()
        index = tuple(map(int, np.unravel_index(self.difference.argmax(), self.difference.shape)))
        return Stage(
            self.name,
            self.expected.shape,
            float(largest),
            float(safe_ratio(largest, self.size)),
            float(safe_ratio(self.difference, self.tolerance).max()),
            index,
            join_words(index_in_words(self.result, self.name, index)) if largest else "",
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

    def value_in(self, run: Run) -> AnyArray | None:
        """The step in a run; None if it can't be computed, such as with another shape."""
        try:
            value = numbers_at(run, self.path)
        except ERRORS:
            return None
        return None if value is None or value.shape != self.layouts[0].shape else value

    def remaining_with(self, value: AnyArray | None) -> float:
        """The part of the user's difference from the expected numbers that remains with others."""
        if value is None or value.shape != self.expected.shape:
            return math.inf
        remaining = min(float(distance(x, value).max()) for x in self.layouts)
        # The difference is infinite where only one of two numbers is masked.
        return remaining / max(min(float(self.difference.max()), self.size), 1e-30)

    def equals(self, value: AnyArray, tolerance: Array | None = None) -> bool:
        """Whether the user's numbers are those of another array of the same shape."""
        tolerance = self.tolerance if tolerance is None else tolerance
        return any((distance(x, value) <= tolerance).all() for x in self.layouts)

    def in_run(self, run: Run, perturbed: Sequence[Run] = ()) -> Submission | None:
        """The user's numbers compared with another run's; None if it can't compute the step."""
        if self.value_in(run) is None:
            return None
        perturbed = perturbed or perturbed_runs(run, [self.path], self.epsilon)
        is_computed = all(self.value_in(x) is not None for x in perturbed)
        return replace(self, run=run, perturbed=perturbed) if is_computed else None


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


def is_rounded(by: Callable[[Any], Any], array: AnyArray, expected: AnyArray) -> bool:
    """Whether rounding changes none of an array's numbers, but some of the correct ones."""
    with np.errstate(all="ignore"):
        is_same = [
            (np.isclose(x, by(x), 2 * epsilon_of(x), 0) | (x <= MASKED)).all()
            for x in (array, expected)
        ]
    return is_same == [True, False]


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


def submissions(result: Result, run: Run, mine: Mapping[str, Any]) -> list[Submission]:
    """Compare each of the user's arrays with its step, in the order of the forward pass."""
    given: list[Submission] = []
    coarsest = 0.0  # precision lost in one step is lost in all later ones
    copies = (None, identity, token_embedding, position_embedding)  # compute no new numbers
    for name in forward_order(result, mine):
        array, epsilon = array_and_epsilon(name, mine[name])
        path = result._prefix + name
        expected, layouts = checked_layouts(result, run, name, array)
        half, decimals = 0.0, 0
        if array.dtype.kind == "f" and np.unique(array).size >= MIN_NUMBERS:
            rounds = {n: partial(np.round, decimals=n) for n in DECIMALS}
            decimals = next((n for n in rounds if is_rounded(rounds[n], array, expected)), 0)
            if run.graph[path].step.equation not in copies:
                half = next((x for x in HALVES if is_rounded(HALVES[x], array, expected)), 0.0)
        coarsest = max(coarsest, epsilon, half)
        with np.errstate(over="ignore"):  # float64 arrays may be converted from float32
            if array.dtype.kind == "f" and (array == array.astype(np.float32)).all():
                epsilon = max(epsilon, FLOAT32_EPSILON)
        epsilon = max(epsilon, epsilon_of(expected))
        given.append(Submission(result, name, path, layouts, epsilon, decimals, run))
    perturbed = perturbed_runs(run, [step.path for step in given], coarsest)
    return [
        replace(step, epsilon=max(step.epsilon, coarsest), perturbed=perturbed) for step in given
    ]


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
        advice = ". Run it without a token in front (prepend_bos=False)" if longer else ""
        raise InvalidValueError(f"your {name} must have shape {axes}; got {array.shape}{advice}")
    if np.isnan(array).any():
        index = tuple(map(int, np.argwhere(np.isnan(array))[0]))
        raise InvalidValueError(
            f"your {name} contains NaN, first at {index}. The softmax of only -inf is NaN, "
            "as in a row that is fully masked, or over the wrong axis. So is 0 · -inf: "
            "apply the mask with np.where instead of a product"
        )
    return expected, layouts


def numbers_at(run: Run, path: str) -> AnyArray | None:
    """A step's numbers, with at least one axis; None if it has no numbers."""
    value = run.value(path)
    return np.atleast_1d(value) if isinstance(value, np.ndarray | int | float) else None
