"""Find mistakes in your own implementation: the first step that differs, and why."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from attnlab.checking.comparison import (
    HALF_EPSILON,
    MASKED,
    PERTURBATION,
    Stage,
    Stages,
    axes_of,
    block_of,
    check_comparable,
    compare_values,
    distance,
    epsilon_of,
    forward_order,
    index_in_words,
    join_words,
    path_in_block,
    perturbed_runs,
    table_of,
    tolerance_of,
)
from attnlab.checking.mistakes import (
    ACTIVATION_CODE,
    BIAS,
    DROPOUT,
    MISTAKES,
    PREPENDED_TOKEN,
    Mistake,
    as_bfloat16,
    as_float16,
    cache_mistakes,
)
from attnlab.checking.replaced import Equation, upstream, with_equations
from attnlab.equations import (
    AnyArray,
    Array,
    Ids,
    Mask,
    identity,
    position_embedding,
    token_embedding,
)
from attnlab.errors import AttnlabError, InvalidTypeError, InvalidValueError, quoted
from attnlab.forward.attention import Attention
from attnlab.forward.edits import check_path
from attnlab.forward.functional import causal_mask
from attnlab.steps import Graph, Result, Run, steps_below
from attnlab.support.checks import as_reals
from attnlab.support.console import progress_bar
from attnlab.support.messages import Message, say
from attnlab.support.tables import Heading, Paragraph, Table

# A mistake is considered only if at most this fraction of the difference remains with it.
MAX_REMAINING = 1 / 16

FLOAT32_EPSILON = 2.0**-23

# Mistakes are searched for one after another, up to this number.
MAX_MISTAKES = 4

# In a search for pairs, the number of first mistakes that are combined with a second one.
MAX_FIRST = 12

# The first mistake of a pair must leave less than this fraction of the difference.
MAX_REMAINING_FIRST = 0.95

# Steps after the last block.
AFTER_BLOCKS = ("gain", "bias", "final", "W_U", "logits")

# Fewer numbers than this may be representable in half precision by chance.
MIN_NUMBERS = 8

# MAX_REMAINING in half precision, where rounding hides small mistakes.
MAX_REMAINING_HALF = 1 / 2

# In half precision, the mistakes reported are those that leave up to this multiple of the smallest
# remaining difference.
EQUALLY_CLOSE = 1.25

# Differing cells that a report lists if no known mistake explains them.
CELLS_SHOWN = 8


class Cell(NamedTuple):
    """One number that differs."""

    place: str  # its index in words, such as head and tokens
    mine: float
    expected: float


@dataclass(frozen=True, eq=False, repr=False)
class Verdict(Stages):
    """How your numbers compare with a result's, as `check` returns it.

    Attributes
    ----------
    title : the result's title
    mistakes : the known mistakes that produce your numbers of the first differing step, each a
        `Mistake` with formula and hint; alternatives, or () if there are none
    further : if mistakes are combined, the alternatives for the second, third, ... mistake
    unexplained : names of later steps that still differ with all these mistakes
    differing : if no known mistake is found, how many cells differ, in words
    cells : if no known mistake is found, the cells with the largest differences
    stages, first, agrees : see `Stages`
    """

    title: str
    mistakes: tuple[Mistake, ...] = ()
    further: tuple[tuple[Mistake, ...], ...] = ()
    unexplained: tuple[str, ...] = ()
    differing: str = ""
    cells: tuple[Cell, ...] = ()

    def pieces(self) -> Iterator[str | Table]:
        agreeing = sum(stage.agrees for stage in self.stages)
        heading = Message(
            "{title}: {agreeing} of {count} steps agree",
            title=self.title,
            agreeing=agreeing,
            count=len(self.stages),
        )
        if self.first:
            template = "{heading}; the first that differs is {path}"
            heading = Message(template, heading=heading, path=self.first.path)
        yield Heading(heading)
        yield table_of(self.stages)
        if self.first:
            yield ""
        yield from self._reasons()

    @property
    def reasons(self) -> str:
        """What is wrong, in words; "" if all agree."""
        return "\n".join(map(str, self._reasons()))

    def _reasons(self) -> Iterator[str | Table]:
        if self.first is None:
            return
        if not self.mistakes:
            yield Message(
                "No known mistake produces your {path}. {differing}",
                path=self.first.path,
                differing=self.differing,
            )
            lines: list[tuple[str, ...]] = [("", Message("yours"), Message("expected"))]
            lines += [(x.place, f"{x.mine:.6g}", f"{x.expected:.6g}") for x in self.cells]
            yield Table(lines)
            return
        template = "This produces exactly your {path}:"
        if self.further:
            template = "{count} mistakes together produce exactly your {path}:"
        elif len(self.mistakes) > 1:
            template = "Each of these produces exactly your {path}:"
        yield Message(template, path=self.first.path, count=len(self.further) + 1)
        for mistakes in (self.mistakes, *self.further):
            if self.further and len(mistakes) > 1:
                yield Message("  one of these, which produce the same numbers:")
            for mistake in mistakes:
                yield Message("    {formula}", formula=Message(mistake.formula))
                yield Paragraph("  {hint}", hint=Message(mistake.hint))
                for line in mistake.lines:
                    yield f"      {say(line)}"
        if self.unexplained:
            yield Paragraph(
                "  This does not explain everything: {names} still differ. Fix this, then check "
                "again.",
                names=", ".join(self.unexplained),
            )


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
    # In half precision, the run that computed `expected` from the user's other steps
    local: Run | None = None

    @property
    def agrees(self) -> bool:
        return self.stage.agrees

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
        if self.epsilon > HALF_EPSILON:  # the largest difference may be due to rounding
            difference = root_mean_square(self.nearest, self.expected)
            return self.difference_from(run) <= MAX_REMAINING_HALF * difference
        difference, remaining = (
            min(distance(x, numbers).max() for x in self.layouts)
            for numbers in (self.expected, value)
        )
        return bool(remaining <= MAX_REMAINING * difference)

    def matches(self, run: Run, variants: Sequence[Run]) -> bool:
        """Whether the user's numbers equal a run's, within the rounding of its variants."""
        value, perturbed_values = self.value_in(run), self.values_in(variants)
        if value is None or len(perturbed_values) < len(variants):
            return False
        if self.epsilon > HALF_EPSILON and self.difference_from(run) > typical_rounding(
            value, perturbed_values, self.epsilon
        ):
            return False
        tolerance = tolerance_of(value, perturbed_values, self.epsilon)
        return any((distance(x, value) <= tolerance).all() for x in self.layouts)


def check(mine: Mapping[str, Any], trace: Result) -> Verdict:
    """Compare your own code's numbers with a trace's, and find the mistake.

    For the first step that differs by more than rounding explains, the forward pass is run with
    each known mistake, and its numbers are compared with yours. If a mistake explains only some of
    the differing steps, the search continues for the others; if no mistake explains any, pairs are
    tried. This takes as long as a few hundred forward passes up to that step, or a few thousand for
    pairs.

    Numbers in, or converted from, float16 or bfloat16 are compared with the results of your own
    earlier steps, as accumulated rounding would hide mistakes. Mistakes smaller than the rounding
    of one step, such as exact GELU instead of its tanh form, can't be detected there.

    Parameters
    ----------
    mine : a dict from names of steps to arrays or lists. Batch axes of size 1 are ignored, and the
        head axis can be anywhere. Any subset of the steps will do, such as only `weights`.
    trace : a trace, whose steps are named by paths, such as `blocks.0.attention.weights`; a part
        of a trace, such as `trace.head(0, 3)`; or the result of `attention` or a similar function

    Returns
    -------
    Verdict
        which steps agree, the first that differs, and the known mistakes that produce exactly your
        numbers, or else the cells that differ. `print` shows it.

    Examples
    --------
    >>> check({"Q": Q, "scores": Q @ K.T, "weights": weights}, trace.head(0, 3))
    """
    if not isinstance(trace, Result):
        raise InvalidTypeError(
            "check needs a trace or a part of one, such as trace.head(0, 3), to compare with; "
            f"got {quoted(trace)}"
        )
    check_comparable(trace)
    if not isinstance(mine, Mapping):
        raise InvalidTypeError(
            "check needs a dict of arrays by the names of steps, such as {'weights': ...}; got "
            f"{quoted(mine)}"
        )
    try:
        mine = dict(mine)
    except Exception as error:  # an .npz file reads its arrays here
        raise InvalidValueError(f"the arrays can't be read: {quoted(str(error), 200)}") from None
    if not mine:
        raise InvalidValueError(
            "nothing to check. Give arrays by the names of steps, such as {'weights': ...}"
        )
    known = [path for path, _ in steps_below(type(trace))]
    n_layer = trace._run.graph.n_layer
    n_head = trace._run.scores_shape[-3:][0]  # unused if scores are (Tq, Tk), without heads
    for name in mine:
        check_path(name, known, n_head, n_layer, f"step of {trace.title}")
    run = trace._run.fork()  # so that the trace doesn't keep the steps computed here
    numbers = {name: array_and_epsilon(name, mine[name]) for name in forward_order(trace, mine)}
    if has_prepended_token(trace, run, numbers):
        stages = (  # differing, since their shapes don't allow a comparison
            Stage(name, array.shape, math.inf, math.inf, math.inf, (), Message("one extra token"))
            for name, (array, _) in numbers.items()
        )
        return Verdict(tuple(stages), trace.title, (PREPENDED_TOKEN,))
    submitted = submissions(trace, run, numbers)
    verdict = Verdict(tuple(step.stage for step in submitted), trace.title)
    return verdict if verdict.agrees else explain(verdict, trace, run, submitted)


def checked(
    expected: Result, write: Callable[..., Mapping[str, Any]], *arguments: Any
) -> Verdict | str:
    """Check what a learner's function returns, or describe the error that stopped it."""
    try:
        return check(write(*arguments), expected)
    except NotImplementedError:
        return Message("{name} isn't written yet.", name=write.__name__)
    except AttnlabError as error:
        return str(error)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        return Message("{name} stopped with {error}", name=write.__name__, error=reason)


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
    variants = perturbed_runs(run, [result._prefix + name for name in numbers])
    coarsest = coarsest_epsilon(result, run, numbers)
    for name, (array, epsilon) in numbers.items():
        path = result._prefix + name
        expected = numbers_at(run, path)
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
        submitted.append(compare_layouts(result, name, layouts, epsilon, expected, values))
    if coarsest < HALF_EPSILON:
        return submitted
    # In half precision, accumulated rounding hides mistakes. So each step is also computed from the
    # user's other steps, and the comparison with the larger difference counts.
    return [
        max(
            submission,
            from_own_inputs(result, run, submission, submitted),
            key=lambda submission: submission.stage.rounding,
        )
        for submission in submitted
    ]


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
    name: str,
    layouts: tuple[AnyArray, ...],
    epsilon: float,
    expected: AnyArray,
    variants: Sequence[AnyArray],
) -> Submission:
    """Compare a step with the user's array, in the layout that differs least.

    `expected` and `variants` are the step in the run and in each perturbed run.
    """
    tolerance = tolerance_of(expected, variants, epsilon)
    stages = (compare_values(result, name, layout, expected, tolerance) for layout in layouts)
    stage = min(stages, key=lambda stage: stage.rounding)
    return Submission(name, result._prefix + name, layouts, epsilon, expected, tolerance, stage)


def compare_in_run(result: Result, run: Run, submission: Submission) -> Submission:
    """Compare the user's numbers with another run's."""
    expected = submission.value_in(run)
    if expected is None:
        return submission
    variants = submission.values_in(perturbed_runs(run, [submission.path]))
    return compare_layouts(
        result, submission.name, submission.layouts, submission.epsilon, expected, variants
    )


def from_own_inputs(
    result: Result, run: Run, submission: Submission, submitted: Sequence[Submission]
) -> Submission:
    """Compare the user's numbers with the step computed from the user's other steps."""

    def constant(array: AnyArray) -> Equation:
        return lambda: array

    others = {
        other.path: constant(other.nearest.astype(other.expected.dtype))
        for other in submitted
        if other is not submission and other.expected.dtype.kind == "f" and other.expected.ndim > 1
    }
    local = with_equations(run, others)
    compared_locally = compare_in_run(result, local, submission)
    expected, stage = compared_locally.expected, compared_locally.stage
    if compared_locally is submission or expected.dtype.kind != "f":
        return submission
    variants = submission.values_in(perturbed_runs(local, [submission.path]))
    # A mistake may be within each row's tolerance, and show only on average.
    average = root_mean_square(compared_locally.nearest, expected) / typical_rounding(
        expected, variants, submission.epsilon
    )
    stage = replace(stage, rounding=max(stage.rounding, average))
    return replace(compared_locally, stage=stage, local=local)


def root_mean_square(mine: AnyArray, expected: AnyArray) -> float:
    with np.errstate(over="ignore"):
        return float(np.sqrt(np.square(distance(mine, expected)).mean()))


def typical_rounding(expected: AnyArray, variants: Sequence[AnyArray], epsilon: float) -> float:
    """The root mean square of a step's rounding errors."""
    spread = max(root_mean_square(variant, expected) for variant in variants) / PERTURBATION
    size = root_mean_square(np.where(expected > MASKED, expected, 0.0), np.zeros_like(expected))
    # The inputs' rounding errors, and the step's own; positive, so that it can be a divisor.
    return epsilon * (spread + 0.1 * size) + np.finfo(np.float64).tiny


def numbers_at(run: Run, path: str) -> AnyArray | None:
    """A step's numbers, with at least one axis; None if it has no numbers."""
    value = run.value(path)
    return np.atleast_1d(value) if isinstance(value, np.ndarray | int | float) else None


def has_prepended_token(
    result: Result, run: Run, numbers: Mapping[str, tuple[AnyArray, float]]
) -> bool:
    """Whether the user's numbers come from the text with an extra token in front."""
    longer = with_prepended_token(run)
    if longer is None:
        return False
    values = {name: numbers_at(run, result._prefix + name) for name in numbers}
    if all(
        value is None or layouts_of(numbers[name][0], value.shape) for name, value in values.items()
    ):
        return False  # all arrays fit the text without that token
    try:
        return all(step.agrees for step in submissions(result, longer, numbers))
    except (AttnlabError, IndexError):  # other shapes, or more tokens than positions
        return False


# ---- the search for mistakes ---------------------------------------------------------------------


class Explanation(NamedTuple):
    """Mistakes that produce the same numbers in the first differing step."""

    mistakes: tuple[Mistake, ...]
    run: Run  # with the first mistake
    unexplained: tuple[str, ...] = ()  # names of later steps that the mistakes don't explain


def explain(verdict: Verdict, result: Result, run: Run, submitted: Sequence[Submission]) -> Verdict:
    """Add to the verdict the mistakes that explain the numbers, or else the differing cells.

    If a mistake leaves steps unexplained, the search is repeated in the run with that mistake.
    """
    first = first_differing(submitted)
    explanations: list[Explanation] = []
    if first.epsilon > HALF_EPSILON:
        run = first.local or run  # with less accumulated rounding
        submitted = [first]
    compared = submitted
    while len(explanations) < MAX_MISTAKES:
        current_run = explanations[-1].run if explanations else run
        explanation = find_mistakes(current_run, compared)
        if explanation is None:
            break
        explanations.append(explanation)
        if not explanation.unexplained:
            break
        compared = [compare_in_run(result, explanation.run, step) for step in submitted]
        if all(step.agrees for step in compared):
            break
    if not explanations and first.epsilon < HALF_EPSILON:
        explanations = find_pair(run, submitted)
    if not explanations:
        return replace(verdict, **describe_cells(result, first))
    mistakes, *further = (
        tuple(with_sizes(mistake, run, first.path) for mistake in explanation.mistakes)
        for explanation in explanations
    )
    return replace(
        verdict, mistakes=mistakes, further=tuple(further), unexplained=explanations[-1].unexplained
    )


def first_differing(submitted: Sequence[Submission]) -> Submission:
    return next(step for step in submitted if not step.agrees)


def find_mistakes(run: Run, submitted: Sequence[Submission]) -> Explanation | None:
    """The mistakes that explain the first differing step.

    They don't change steps that agree, and leave the fewest later steps unexplained.
    """
    agreeing, first = [step for step in submitted if step.agrees], first_differing(submitted)
    later = [step for step in submitted if not step.agrees and step is not first]

    def explanations(stop_at: Container[str]) -> Iterator[Explanation]:
        for mistake, other in candidates(run, submitted, stop_at):
            if first.is_near(other):
                variants = perturbed_runs(other, [step.path for step in submitted])
                if all(step.matches(other, variants) for step in (first, *agreeing)):
                    names = (step.name for step in later if not step.matches(other, variants))
                    yield Explanation((mistake,), other, tuple(names))

    # A mistake before an agreeing step is unlikely: that step would usually differ too.
    options = list(explanations({step.path for step in agreeing}))
    if agreeing and not options:
        options = list(explanations(()))
    if not options:
        options = [Explanation((mistake,), run) for mistake in with_dropout(run, first)]
    if not options:
        return None
    best = min(options, key=lambda option: len(option.unexplained))
    if first.epsilon > HALF_EPSILON:  # rounding may hide what remains: take the closest
        best = min(options, key=lambda option: first.difference_from(option.run))
        limit = EQUALLY_CLOSE * first.difference_from(best.run)
        options = [option for option in options if first.difference_from(option.run) <= limit]
    equally_good = (
        option.mistakes[0] for option in options if len(option.unexplained) == len(best.unexplained)
    )
    return best._replace(mistakes=tuple(dict.fromkeys(equally_good)))


def find_pair(run: Run, submitted: Sequence[Submission]) -> list[Explanation]:
    """Two mistakes that together explain all steps, if any.

    First mistakes are tried in the order of the difference that remains with them.
    """
    first, paths = first_differing(submitted), [step.path for step in submitted]
    stop_at = {step.path for step in submitted if step.agrees}
    initial = min(root_mean_square(x, first.expected) for x in first.layouts)
    promising = [
        (remaining, mistake, other)
        for mistake, other in candidates(run, submitted, stop_at, everywhere=True)
        if mistake.equations
        and (remaining := first.difference_from(other)) < MAX_REMAINING_FIRST * initial
    ]
    nearest_first = sorted(promising, key=lambda row: row[0])[:MAX_FIRST]
    pairs: dict[frozenset[int], tuple[Mistake, Mistake, Run]] = {}
    limit = math.inf
    bar = progress_bar(True, iterable=nearest_first, desc="pairs of mistakes", leave=False, delay=1)
    for remaining, mistake, other in bar:
        if remaining > limit:
            break
        for second, both in candidates(other, submitted, stop_at, everywhere=True):
            pair = frozenset((id(mistake), id(second)))
            if pair in pairs or second.equations.keys() & mistake.equations.keys():
                continue
            if first.is_near(both):
                variants = perturbed_runs(both, paths)
                if all(step.matches(both, variants) for step in submitted):
                    pairs[pair] = mistake, second, both
                    limit = remaining * (1 + 1e-3)  # other first mistakes must be equally good
    if not pairs:
        return []
    firsts, seconds, runs = zip(*pairs.values(), strict=True)
    return [Explanation(tuple(dict.fromkeys(found)), runs[0]) for found in (firsts, seconds)]


def candidates(
    run: Run, submitted: Sequence[Submission], stop_at: Container[str], everywhere: bool = False
) -> Iterator[tuple[Mistake, Run]]:
    """Mistakes that may explain the first differing step, each with its run.

    Each mistake is tried in all blocks, in all blocks from a given one on, and only in the step's
    block (for code of a single block with correct input). At least one of its equations must come
    after the agreeing steps; `Submission.matches` checks that these steps still agree.
    """
    first = first_differing(submitted)
    may_be_wrong = set(upstream(run.graph, [first.path], stop_at))
    paths_of: dict[str, list[str]] = {}
    for path in upstream(run.graph, [step.path for step in submitted]):
        paths_of.setdefault(table_name(run.graph, path), []).append(path)
    tried = set()
    # Mistakes with fewer equations first: more equations may have the same effect on this step.
    known = (*MISTAKES, *cache_mistakes(first_differing_row(first)))
    if "score_bias" in run.graph.given:  # which the equations of other mistakes would leave out
        others = (x for x in known if "attention.masked_scores" not in x.equations)
        known = (*BIAS, *others)
    mistakes = sorted(known, key=lambda mistake: len(mistake.equations))
    for mistake, scope in itertools.product(
        mistakes, [ALL_BLOCKS] if everywhere else scopes(submitted)
    ):
        equations = {
            path: equation
            for name, equation in mistake.equations.items()
            for path in paths_of.get(name, ())
            if block_number(path) in scope
        }
        if not may_be_wrong & equations.keys() or (key := frozenset(equations.items())) in tried:
            continue
        tried.add(key)
        try:
            yield mistake, with_equations(run, equations)
        except KeyError:  # needs a step that this type of result doesn't have
            continue
    if not everywhere and (longer := with_prepended_token(run)):
        yield PREPENDED_TOKEN, longer


# All block numbers, including those that `block_number` returns before and after the blocks.
ALL_BLOCKS = range(-1, 10**9)


def scopes(submitted: Sequence[Submission]) -> list[range]:
    """The ranges of blocks in which to try a mistake."""
    number = block_number(first_differing(submitted).path)
    last_agreeing = max((block_number(step.path) for step in submitted if step.agrees), default=-1)
    # The mistake may begin in the last block with an agreeing step, in the next block, or in the
    # first differing step's.
    starts = {n for n in (last_agreeing, last_agreeing + 1, number) if 0 <= n <= number}
    from_starts = [range(start, ALL_BLOCKS.stop) for start in sorted(starts)]
    return [ALL_BLOCKS, *from_starts, range(number, number + 1)]


def block_number(path: str) -> int:
    """The number of a step's block; -1 before the blocks, a large number after them."""
    if block := block_of(path):
        return int(block.rpartition(".")[2])
    return ALL_BLOCKS.stop - 1 if path in AFTER_BLOCKS else -1


def first_differing_row(submission: Submission) -> int:
    """The position of the first token whose row differs, such as the first after a cache."""
    if submission.expected.ndim < 2:
        return 0
    difference = distance(submission.layouts[0], submission.expected)
    differs = (difference > submission.tolerance).any(axis=-1)  # (..., T)
    return int(np.argmax(differs.reshape(-1, differs.shape[-1]).any(axis=0)))


def table_name(graph: Graph, path: str) -> str:
    """The name of a step in the table of mistakes, without its block."""
    if issubclass(graph.root, Attention):
        return f"attention.{path}"
    return path_in_block(path)


def with_prepended_token(run: Run) -> Run | None:
    """The run with the vocabulary's last token in front, GPT-2's <|endoftext|>."""
    if "ids" not in run.graph.root.steps:
        return None  # attention without a model

    def ids(value: Ids, W_E: Array) -> Ids:
        return np.concatenate([np.full_like(value[..., :1], len(W_E) - 1), value], axis=-1)

    def positions(value: Ids) -> Ids:
        return np.arange(len(value) + 1)

    def mask(value: Mask) -> Mask:
        return causal_mask(len(value) + 1)

    return with_equations(run, {"ids": ids, "positions": positions, "mask": mask})


# For each step, (stream, update): the step is stream + dropout(update), without a stream for "".
DROPOUT_STEPS = {
    "embedding": ("", "embedding"),
    "attention.weights": ("", "weights"),
    "attention.output": ("", "output"),
    "mlp.output": ("", "output"),
    "mid": ("input", "attention.output"),
    "output": ("mid", "mlp.output"),
}


def with_dropout(run: Run, submission: Submission) -> Iterator[Mistake]:
    """Dropout, if some cells of a step are 0 and all others are scaled by the same factor."""
    name = re.sub(r"heads\.\d+\.", "", table_name(run.graph, submission.path))
    if name not in DROPOUT_STEPS:
        return
    prefix = submission.path.rpartition(".")[0]
    stream, update = (f"{prefix}.{step}".lstrip(".") for step in DROPOUT_STEPS[name])
    without_dropout = np.atleast_1d(run.value(update)).astype(np.float64)
    for array in submission.layouts:
        mine = array.astype(np.float64) - (run.value(stream) if DROPOUT_STEPS[name][0] else 0.0)
        is_zero = np.abs(mine) <= submission.tolerance
        is_large = np.abs(without_dropout) > 8 * submission.tolerance  # clearly not 0
        kept, dropped = is_large & ~is_zero, is_large & is_zero
        if not dropped.any() or not kept.any():
            continue
        largest = np.argmax(np.where(kept, np.abs(without_dropout), 0.0))
        # Dropout with probability p scales what it keeps by 1 / (1 - p).
        factor = float(mine.flat[largest] / without_dropout.flat[largest])
        is_scaled = np.abs(mine - factor * without_dropout) <= 2 * factor * submission.tolerance
        if factor > 1.001 and kept.sum() > 1 and (is_zero | is_scaled).all():
            formula = Message(DROPOUT.formula, name=update.rpartition(".")[2], p=1 - 1 / factor)
            yield replace(DROPOUT, formula=formula)


# ---- the report ----------------------------------------------------------------------------------


def with_sizes(mistake: Mistake, run: Run, path: str) -> Mistake:
    """Fill the model's sizes into a mistake's hint and corrected lines."""
    block = f"{block_of(path) or 'blocks.0'}.attention."
    prefix = "" if issubclass(run.graph.root, Attention) else block
    scale = run.graph.formulas.get("scale", "√Dk")
    if "scale" in run.graph.given:
        scale = f"{run.value('scale'):g}"
    sizes: dict[str, Callable[[], object]] = {  # functions, as some results lack some steps
        "Dk": lambda: run.value(f"{prefix}K").shape[-1],
        "D": lambda: run.value(f"{prefix}X").shape[-1],
        "H": lambda: run.value(f"{prefix}n_head"),
        "scale": lambda: scale,
        "divisor": lambda: as_code(scale),
        "epsilon": lambda: f"{run.value('epsilon'):g}",
        "activation": lambda: run.graph.formulas.get(
            "activation", Message("GELU in its tanh form")
        ),
        "activation_code": lambda: ACTIVATION_CODE[run.value("activation")],
    }

    def fill(text: str) -> Message:
        return Message(text, **{name: sizes[name]() for name in re.findall(r"{(\w+)}", text)})

    lines = tuple(map(fill, mistake.corrected_lines()))
    return replace(mistake, hint=fill(mistake.hint), lines=lines)


def as_code(scale: str) -> str:
    """The model's scale as Python code."""
    code = re.sub("√(\\w+)", r"math.sqrt(\1)", scale).replace("·", "*")
    return f"({code})" if "*" in code else code


def describe_cells(result: Result, submission: Submission) -> dict[str, Any]:
    """Describe a step's differing cells, and list the largest differences."""
    layouts = [(distance(x, submission.expected), x) for x in submission.layouts]
    difference, array = min(layouts, key=lambda layout: float(layout[0].max()))
    differs = difference > submission.tolerance
    if not differs.any():  # half precision: differences too large on average, but none by itself
        differs = difference > difference.max() / 2
    indices = np.argwhere(differs)
    words = index_in_words(result, submission.name, tuple(indices[0]))
    # The axes on which all differing cells have the same index.
    is_common = (indices == indices[0]).all(axis=0) & (np.array(submission.expected.shape) > 1)
    common = join_words(itertools.compress(words, is_common))
    template = "{count} of {size} cells differ, all at {common}:"
    if not common:
        template = "{count} of {size} cells differ:"
    differing = Message(template, count=len(indices), size=difference.size, common=common)
    epsilon_needed = submission.stage.rounding * submission.epsilon
    if submission.epsilon < FLOAT32_EPSILON and epsilon_needed <= FLOAT32_EPSILON:
        differing = Message(
            "Rounding to float32 would explain the differences. {differing}", differing=differing
        )
    order = np.argsort(-difference[tuple(indices.T)], kind="stable")
    largest = map(tuple, indices[order[:CELLS_SHOWN]])
    return {
        "differing": differing,
        "cells": tuple(
            Cell(
                join_words(index_in_words(result, submission.name, index)),
                float(array[index]),
                float(submission.expected[index]),
            )
            for index in largest
        ),
    }
