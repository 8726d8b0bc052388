"""What is wrong in somebody's own implementation: the first step that differs, and why."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from attnlab.checking.comparison import (
    HALF,
    MASKED,
    PUSH,
    Stage,
    Stages,
    allowed,
    axes_of,
    block_of,
    distance,
    epsilon_of,
    in_block,
    in_order,
    pushed,
    refuse_cached,
    stage_of,
    table_of,
    words_of,
)
from attnlab.checking.mistakes import (
    ACTIVATION_CODE,
    DROPOUT,
    IN_FRONT,
    MISTAKES,
    Mistake,
    as_bfloat16,
    as_float16,
    since,
)
from attnlab.checking.replaced import Equation, upstream, with_equations
from attnlab.equations import (
    AnyArray,
    Array,
    Ids,
    Mask,
    position_embedding,
    same,
    token_embedding,
)
from attnlab.errors import AttnlabError, InvalidTypeError, InvalidValueError, quoted
from attnlab.forward.attention import Attention
from attnlab.forward.edits import check_path, steps_below
from attnlab.forward.functional import causal_mask
from attnlab.steps import Graph, Result, Run
from attnlab.support.checks import as_reals
from attnlab.support.console import progress_bar
from attnlab.support.tables import Heading, Paragraph, Table

# What explains a difference leaves less than this share of it; what is only nearer is no reason.
LEFT_OVER = 1 / 16

FLOAT32 = 2.0**-23

# After so many mistakes no further one is looked for.
MANY_MISTAKES = 4

# So many mistakes are made each with a second one, where none alone makes somebody's numbers.
NEAREST = 12

# Made alone, the larger one of two mistakes leaves less than this share of the difference.
NEARER = 0.95

AFTER_BLOCKS = ("gain", "bias", "final", "W_U", "logits")

# Numbers that are fewer may be half precision's by chance.
FEW = 8

# In half precision rounding leaves more of a small mistake, and the nearest explanation counts,
# with those that leave no more than so many times what it leaves.
LEFT_OVER_IN_HALF = 1 / 2
ALIKE = 1.25

# So many of the cells that differ are shown where nothing explains them.
CELLS = 8


class Cell(NamedTuple):
    """One number that differs."""

    place: str
    mine: float
    right: float


@dataclass(frozen=True, eq=False, repr=False)
class Verdict(Stages):
    """How somebody's numbers compare with a result's, as `check` tells it; `repr` is the answer.

    Attributes
    ----------
    title : of the result
    mistakes : what makes exactly the numbers of the first step that differs, each a `Mistake` with
        formula and hint; () where nothing known does
    further : where there is more than one mistake, for each further one those that make it
    unexplained : later steps that differ by more than all these mistakes explain
    differing : where no mistake is known, how many cells differ, in words
    cells : and some of them, the largest differences first
    and all that `Stages` has, of the steps that were given
    """

    title: str
    mistakes: tuple[Mistake, ...] = ()
    further: tuple[tuple[Mistake, ...], ...] = ()
    unexplained: tuple[str, ...] = ()
    differing: str = ""
    cells: tuple[Cell, ...] = ()

    def pieces(self) -> Iterator[str | Table]:
        agreeing = sum(stage.agrees for stage in self.stages)
        heading = f"{self.title}: {agreeing} of {len(self.stages)} steps agree"
        if self.first:
            heading += f", the first that does not is {self.first.path}"
        yield Heading(heading)
        yield table_of(self.stages)
        if self.first:
            yield ""
        yield from self._reasons()

    @property
    def reasons(self) -> str:
        """What is wrong, in words; "" where nothing is."""
        return "\n".join(map(str, self._reasons()))

    def _reasons(self) -> Iterator[str | Table]:
        if self.first is None:
            return
        if not self.mistakes:
            yield f"No known mistake makes your {self.first.path}. {self.differing}"
            lines = [("", "yours", "right")]
            lines += [(place, f"{mine:.6g}", f"{right:.6g}") for place, mine, right in self.cells]
            yield Table(lines)
            return
        which = "Each of these makes" if len(self.mistakes) > 1 else "This makes"
        together = f"{len(self.further) + 1} mistakes together make"
        yield f"{together if self.further else which} exactly your {self.first.path}:"
        for mistakes in (self.mistakes, *self.further):
            if self.further and len(mistakes) > 1:
                yield "  one of these, which make the same numbers:"
            for mistake in mistakes:
                yield f"    {mistake.formula}"
                yield Paragraph(f"  {mistake.hint}")
                for line in mistake.lines:
                    yield f"      {line}"
        if self.unexplained:
            names = ", ".join(self.unexplained)
            yield Paragraph(
                f"  It is not all: {names} would still differ. Put this right, then check again."
            )


@dataclass(frozen=True, eq=False)
class Submission:
    """Somebody's numbers for one step.

    Attributes
    ----------
    name, path : of the step, from the result and from the whole
    layouts : the array, its axes in the order of the step's; several where more than one fits
    right : the step
    epsilon : of the coarser of the two dtypes
    within : how far rounding may take each row of the step
    stage : how the two compare
    local : the run that gave `right`, where it is one with other steps as somebody gave them
    """

    name: str
    path: str
    layouts: tuple[AnyArray, ...]
    right: AnyArray
    epsilon: float
    within: Array
    stage: Stage
    local: Run | None = None


def check(mine: Mapping[str, Any], trace: Result) -> Verdict:
    """Hold the numbers of your own code against a trace's, and be told what is wrong with them.

    The first step that differs by more than rounding explains is looked into: each known mistake
    is made in the forward pass, and what comes of it is compared with your numbers. Where one
    explains only a part, the next one is looked for beside it; where none does, pairs are tried.
    That takes as long as some hundred passes up to that step, and some thousand for pairs.

    Numbers in float16 or bfloat16, or that came through them, are compared with what your own
    earlier steps lead to, as rounding over a whole model would hide a mistake. A mistake smaller
    than the rounding of one step, as the exact GELU for the tanh form, can't be seen there.

    Parameters
    ----------
    mine : arrays by the names of the steps: NumPy's, PyTorch's, lists. A batch axis of 1 and the
        place of the head axis do not matter. It need not be all that you have: `weights` alone
        will do, or `logits`.
    trace : a trace, whose steps are named by their paths, such as `blocks.0.attention.weights`; a
        part of one, such as `trace.head(0, 3)`; or what `attention` and its like return

    Returns
    -------
    Verdict
        which steps agree, the first that does not, and the known mistakes that make exactly your
        numbers; where none does, the cells that differ. `print` shows it.

    Raises
    ------
    InvalidValueError
        The arrays hold NaN, or the trace is a step of generation.

    Examples
    --------
    >>> check({"Q": Q, "scores": Q @ K.T, "weights": weights}, trace.head(0, 3))
    """
    if not isinstance(trace, Result):
        raise InvalidTypeError(
            f"numbers are checked against a trace or a part of one, such as trace.head(0, 3); "
            f"got {quoted(trace)}"
        )
    refuse_cached(trace)
    if not isinstance(mine, Mapping):
        raise InvalidTypeError(
            f"what is checked is a dict of steps' names and arrays, such as {{'weights': ...}}; "
            f"got {quoted(mine)}"
        )
    try:
        mine = dict(mine)
    except Exception as error:  # of an archive of NumPy's, which reads its arrays now
        raise InvalidValueError(
            f"what is checked can't be read: {quoted(str(error), 200)}"
        ) from None
    if not mine:
        raise InvalidValueError(
            "there is nothing to check; give arrays by the names of steps, as {'weights': ...}"
        )
    known = [path for path, _ in steps_below(type(trace))]
    n_head, n_layer = trace._run.scores_shape[-3:][0], trace._run.graph.n_layer
    for name in mine:
        check_path(name, known, n_head, n_layer, f"step of {trace.title}")
    run = trace._run.fork()
    numbers = {name: array_and_epsilon(name, mine[name]) for name in in_order(trace, mine)}
    if of_a_text_with_one_more(trace, run, numbers):
        stages = (
            Stage(name, array.shape, math.inf, math.inf, math.inf, (), "one token more")
            for name, (array, _) in numbers.items()
        )
        return Verdict(tuple(stages), trace.title, (IN_FRONT,))
    given = all_given(trace, run, numbers)
    verdict = Verdict(tuple(one.stage for one in given), trace.title)
    return verdict if verdict.agrees else explained(verdict, trace, run, given)


# ---- what was given ------------------------------------------------------------------------------


def array_and_epsilon(name: str, given: Any) -> tuple[AnyArray, float]:
    """What was given for a step as an array, and the epsilon of the dtype that it came in."""
    array = np.atleast_1d(as_reals(given, f"your {name}", "biuf"))
    is_bfloat16 = str(getattr(given, "dtype", "")) == "torch.bfloat16"
    return array, 2.0**-7 if is_bfloat16 else epsilon_of(array)


def came_from_float32(array: AnyArray) -> bool:
    """Whether all of an array's numbers are float32's, as those in a list may be."""
    with np.errstate(over="ignore"):
        return array.dtype.kind == "f" and bool((array == array.astype(np.float32)).all())


def half_epsilon(array: AnyArray, right: AnyArray) -> float:
    """The epsilon of the half precision that an array's numbers came through; 0 if of none.

    They do where half precision holds them all, but not the right ones.
    """
    if array.dtype.kind != "f" or np.unique(array).size < FEW:
        return 0.0
    for through, epsilon in ((as_bfloat16, 2.0**-7), (as_float16, 2.0**-10)):  # the coarser first
        with np.errstate(over="ignore"):
            held, right_held = ((x == through(x)) | (x <= MASKED) for x in (array, right))
        if held.all() and not right_held.all():
            return epsilon
    return 0.0


def laid_out(array: AnyArray, shape: tuple[int, ...]) -> tuple[AnyArray, ...]:
    """An array in every way in which its axes may be those of a shape, as it came first.

    Axes of 1 may be missing or too many, and the head axis may be anywhere.
    """
    while array.ndim > len(shape) and 1 in array.shape:
        array = array.squeeze(array.shape.index(1))
    if array.ndim < len(shape) and array.shape == tuple(n for n in shape if n != 1):
        array = array.reshape(shape)
    heads = len(shape) - 3
    if array.ndim != len(shape) or heads < 0:
        return (array,) if array.shape == shape else ()
    axes = sorted(range(array.ndim), key=lambda axis: axis != heads)
    ways = (np.moveaxis(array, axis, heads) for axis in axes)
    return tuple(way for way in ways if way.shape == shape)


def all_given(
    result: Result, run: Run, numbers: Mapping[str, tuple[AnyArray, float]]
) -> list[Submission]:
    """Each array beside its step."""
    given = []
    offs = pushed(run, [result._prefix + name for name in numbers])
    # After a step in float32, float64 knows no more, and after one in half precision neither.
    common = max(epsilon for _, epsilon in numbers.values())
    for name, (array, _) in numbers.items():
        path = result._prefix + name
        right = numbers_at(run, path)
        if right is not None and is_computed(run, path) and laid_out(array, right.shape):
            common = max(common, half_epsilon(array, right))
    if common < HALF:
        common = min(FLOAT32, common)
    for name, (array, epsilon) in numbers.items():
        path = result._prefix + name
        right = numbers_at(run, path)
        if right is None:
            raise InvalidValueError(f"{result.title} has no numbers for {name}")
        layouts = laid_out(array, right.shape)
        if not layouts:
            axes = ", ".join(filter(None, [str(right.shape), " ".join(axes_of(result, name))]))
            raise InvalidValueError(f"your {name} has shape {array.shape}; here it is {axes}")
        if np.isnan(array).any():
            where = tuple(map(int, np.argwhere(np.isnan(array))[0]))
            raise InvalidValueError(
                f"your {name} holds NaN, first at {where}. Softmax makes NaN of what is all -inf, "
                f"a row that sees nothing, or the heads if it is taken over the wrong axis; and "
                f"0 · -inf is NaN: put -inf just where the mask says so, with np.where"
            )
        if came_from_float32(array):
            epsilon = max(epsilon, FLOAT32)
        epsilon = max(epsilon, common, epsilon_of(right))
        within = allowed(right, [np.atleast_1d(off.look(path)) for off in offs], epsilon)
        ways = (stage_of(result, name, x, right, within) for x in layouts)
        stage = min(ways, key=lambda stage: stage.rounding)
        given.append(Submission(name, path, layouts, right, epsilon, within, stage))
    if common < HALF:
        return given
    return [max(one, from_own_inputs(result, run, one, given), key=how_far) for one in given]


def how_far(one: Submission) -> float:
    return one.stage.rounding


def is_computed(run: Run, path: str) -> bool:
    """Whether a step is computed, and not looked up in the parameters."""
    return run.graph[path].step.equation not in (None, same, token_embedding, position_embedding)


def own_inputs(run: Run, one: Submission, given: Sequence[Submission]) -> Run:
    """The run in which all other steps that somebody gave are as they gave them."""

    def as_given(array: AnyArray) -> Equation:
        return lambda: array

    others = {
        other.path: as_given(nearest(other).astype(other.right.dtype))
        for other in given
        if other is not one and other.right.dtype.kind == "f" and other.right.ndim > 1
    }
    return with_equations(run, others)


def nearest(one: Submission) -> AnyArray:
    """Somebody's numbers, laid out as they are nearest to the step."""
    return min(one.layouts, key=lambda x: float(distance(x, one.right).max()))


def from_own_inputs(
    result: Result, run: Run, one: Submission, given: Sequence[Submission]
) -> Submission:
    """Somebody's numbers beside what their own earlier steps lead to.

    In half precision what rounding does over a whole model hides a mistake, but not within a step.
    """
    local = own_inputs(run, one, given)
    right = value_in(local, one)
    if right is None or right.dtype.kind != "f":
        return one
    offs = [np.atleast_1d(off.look(one.path)) for off in pushed(local, [one.path])]
    within = allowed(right, offs, one.epsilon)
    stage = stage_of(result, one.name, nearest(one), right, within)
    typical = root_mean_square(nearest(one), right) / usual_rounding(right, offs, one.epsilon)
    stage = replace(stage, rounding=max(stage.rounding, typical))
    return replace(one, right=right, within=within, stage=stage, local=local)


def root_mean_square(mine: AnyArray, right: AnyArray) -> float:
    with np.errstate(over="ignore"):
        return float(np.sqrt(np.square(distance(mine, right)).mean()))


def usual_rounding(right: AnyArray, offs: Sequence[AnyArray], epsilon: float) -> float:
    """How far rounding takes the numbers of a step on the whole, the root of the mean square."""
    spread = max(root_mean_square(off, right) for off in offs) / PUSH
    size = root_mean_square(np.where(right > MASKED, right, 0.0), np.zeros_like(right))
    return epsilon * (spread + 0.1 * size) + np.finfo(np.float64).tiny


def numbers_at(run: Run, path: str) -> AnyArray | None:
    """A step's numbers, with an axis at least; None where it has none."""
    value = run.look(path)
    return np.atleast_1d(value) if isinstance(value, np.ndarray | int | float) else None


def of_a_text_with_one_more(
    result: Result, run: Run, numbers: Mapping[str, tuple[AnyArray, float]]
) -> bool:
    """Whether somebody's numbers have a token more, and are those of the text with one in front."""
    other = with_one_in_front(run)
    values = {name: numbers_at(run, result._prefix + name) for name in numbers}
    if other is None or all(
        value is None or laid_out(numbers[name][0], value.shape) for name, value in values.items()
    ):
        return False
    try:
        given = all_given(result, other, numbers)
    except (AttnlabError, IndexError):  # other shapes, or no room for one more position
        return False
    return all(one.stage.agrees for one in given)


# ---- why -----------------------------------------------------------------------------------------


class Found(NamedTuple):
    """Mistakes that make the same numbers of the first step that differs.

    Attributes
    ----------
    mistakes : each of them does
    run : in which the first one is made
    left : later steps that they do not explain
    """

    mistakes: tuple[Mistake, ...]
    run: Run
    left: tuple[str, ...]


def explained(verdict: Verdict, result: Result, run: Run, given: Sequence[Submission]) -> Verdict:
    """The verdict with the mistakes that make the first step that differs, or else its cells.

    What is left over by one is looked into once that one is made: so the next one is found.
    """
    first = next(one for one in given if not one.stage.agrees)
    steps: list[Found] = []
    if first.epsilon > HALF:
        if first.local:  # where rounding is that of a few steps
            run = first.local
        given = [first]
    other, rest = run, given
    while len(steps) < MANY_MISTAKES and (found := looked_into(other, rest)):
        steps.append(found)
        if not found.left:
            break
        other = found.run
        rest = [beside(result, other, one) for one in given]
        if all(one.stage.agrees for one in rest):
            break
    if not steps and first.epsilon < HALF and (pair := two_at_once(run, given)):
        steps = list(pair)
    if not steps:
        return replace(verdict, **cells_of(result, first))
    sizes = [
        tuple(with_sizes(mistake, run, first.path) for mistake in found.mistakes) for found in steps
    ]
    return replace(verdict, mistakes=sizes[0], further=tuple(sizes[1:]), unexplained=steps[-1].left)


def beside(result: Result, run: Run, one: Submission) -> Submission:
    """Somebody's numbers for a step beside those of another run."""
    right = value_in(run, one)
    if right is None:
        return one
    offs = [value_in(off, one) for off in pushed(run, [one.path])]
    within = allowed(right, [off for off in offs if off is not None], one.epsilon)
    ways = (stage_of(result, one.name, x, right, within) for x in one.layouts)
    stage = min(ways, key=lambda stage: stage.rounding)
    return replace(one, right=right, within=within, stage=stage)


def looked_into(run: Run, given: Sequence[Submission]) -> Found | None:
    """The mistakes that make the first step that differs, and no other number of those that agree.

    Of these, those that leave the fewest of the later steps unexplained.
    """
    agree = [one for one in given if one.stage.agrees]
    first, *later = (one for one in given if not one.stage.agrees)

    def fitting(beyond: Container[str]) -> Iterator[Found]:
        for mistake, other in candidates(run, first, later, agree, beyond):
            if comes_near(other, first):
                offs = pushed(other, [one.path for one in given])
                if all(is_of(other, offs, one) for one in (first, *agree)):
                    left = tuple(one.name for one in later if not is_of(other, offs, one))
                    yield Found((mistake,), other, left)

    # Before a step that agrees there is no mistake, unless it is too small to be seen there.
    found = list(fitting({one.path for one in agree})) or (list(fitting(())) if agree else [])
    found = found or [Found((mistake,), run, ()) for mistake in by_chance(run, first)]
    if not found:
        return None
    best = min(found, key=lambda one: len(one.left))
    if first.epsilon > HALF:  # where rounding may hide what one leaves, the nearest
        best = min(found, key=lambda one: left_by(one.run, first))
        within = ALIKE * left_by(best.run, first)
        found = [one for one in found if left_by(one.run, first) <= within]
    alike = (one.mistakes[0] for one in found if len(one.left) == len(best.left))
    return best._replace(mistakes=tuple(dict.fromkeys(alike)))


def two_at_once(run: Run, given: Sequence[Submission]) -> tuple[Found, Found] | None:
    """Two mistakes that make the first step that differs together, where no single one does.

    The one without which least is left is made first, then the next.
    """
    agree = [one for one in given if one.stage.agrees]
    first, *later = (one for one in given if not one.stage.agrees)
    off = min(root_mean_square(x, first.right) for x in first.layouts)
    near: list[tuple[float, int, Mistake, Run]] = []
    beyond = {one.path for one in agree}
    for mistake, other in candidates(run, first, later, agree, beyond, everywhere=True):
        if mistake.equations:
            left = left_by(other, first)
            if left < NEARER * off:
                near.append((left, len(near), mistake, other))
    found: dict[frozenset[int], tuple[Mistake, Mistake, Run]] = {}
    limit = math.inf
    nearest = sorted(near, key=lambda one: one[:2])[:NEAREST]
    bar = progress_bar(iterable=nearest, desc="pairs of mistakes", leave=False, delay=1)
    for left, _, mistake, other in bar:
        if left > limit:
            break
        for second, both in candidates(other, first, later, agree, beyond, everywhere=True):
            pair = frozenset((id(mistake), id(second)))
            if pair in found or second.equations.keys() & mistake.equations.keys():
                continue
            if comes_near(both, first):
                offs = pushed(both, [one.path for one in given])
                if all(is_of(both, offs, one) for one in given):
                    found[pair] = mistake, second, both
                    limit = left * (1 + 1e-3)  # others that leave the same may be the same
    if not found:
        return None
    firsts, seconds, (both, *_) = zip(*found.values(), strict=True)
    return (
        Found(tuple(dict.fromkeys(firsts)), both, ()),
        Found(tuple(dict.fromkeys(seconds)), both, ()),
    )


def candidates(
    run: Run,
    first: Submission,
    later: Sequence[Submission],
    agree: Sequence[Submission],
    beyond: Container[str],
    everywhere: bool = False,
) -> Iterator[tuple[Mistake, Run]]:
    """Each mistake that could be in a step that differs, with the run in which it is made.

    It is made in every block, from some block on, and in that of the step alone, as somebody may
    have written one block and given it the right input. One of its equations is after the steps
    that agree; the others need not be, as these then show whether it was made.
    """
    before_first = set(upstream(run.graph, [first.path], beyond))
    named: dict[str, list[str]] = {}
    for path in upstream(run.graph, [one.path for one in (first, *later, *agree)]):
        named.setdefault(name_in_table(run.graph, path), []).append(path)
    tried = set()
    # What is made of fewer steps comes first, as one that changes more may change no more here.
    mistakes = sorted((*MISTAKES, *since(first_row(first))), key=lambda one: len(one.equations))
    for mistake, scope in product(mistakes, [EVERYWHERE] if everywhere else scopes(first, agree)):
        made = {
            path: equation
            for name, equation in mistake.equations.items()
            for path in named.get(name, ())
            if block_number(path) in scope
        }
        if not before_first & made.keys() or (which := frozenset(made.items())) in tried:
            continue
        tried.add(which)
        try:
            other = with_equations(run, made)
        except KeyError:  # it needs a step that this result has not
            continue
        yield mistake, other
    if not everywhere and (longer := with_one_in_front(run)):
        yield IN_FRONT, longer


EVERYWHERE = range(-1, 10**9)


def scopes(first: Submission, agree: Sequence[Submission]) -> list[range]:
    """In which blocks a mistake may be made: all, one, or those after a step that agrees."""
    number = block_number(first.path)
    before = max((block_number(one.path) for one in agree), default=-1)
    starts = {number, *(n for n in (before, before + 1) if 0 <= n <= number)}
    later = [range(start, EVERYWHERE.stop) for start in sorted(starts) if start >= 0]
    return [EVERYWHERE, *later, range(number, number + 1)]


def block_number(path: str) -> int:
    """The number of the block that a step is in; -1 before the blocks, and without any.

    What follows all blocks has a number that no block has.
    """
    if block := block_of(path):
        return int(block.rpartition(".")[2])
    return EVERYWHERE.stop - 1 if path in AFTER_BLOCKS else -1


def first_row(one: Submission) -> int:
    """The first token whose row differs, as in tokens after a cache; 0 where all do."""
    if one.right.ndim < 2:
        return 0
    rows = (distance(one.layouts[0], one.right) > one.within).any(axis=-1)
    return int(np.argmax(rows.reshape(-1, rows.shape[-1]).any(axis=0)))


def name_in_table(graph: Graph, path: str) -> str:
    """What a step is called in the table of mistakes, whichever block it is in."""
    if issubclass(graph.root, Attention):
        return f"attention.{path}"
    return in_block(path)


def with_one_in_front(run: Run) -> Run | None:
    """A text's run with one token more before it, the vocabulary's last: GPT-2's <|endoftext|>."""
    if "ids" not in run.graph.root.steps:
        return None

    def ids(value: Ids, W_E: Array) -> Ids:
        return np.concatenate([np.full_like(value[..., :1], len(W_E) - 1), value], axis=-1)

    def positions(value: Ids) -> Ids:
        return np.arange(len(value) + 1)

    def mask(value: Mask) -> Mask:
        return causal_mask(len(value) + 1)

    return with_equations(run, {"ids": ids, "positions": positions, "mask": mask})


def comes_near(other: Run, one: Submission) -> bool:
    """Whether another run leaves little of how far somebody's numbers are off."""
    value = value_in(other, one)
    if value is None:
        return False
    if one.epsilon > HALF:  # the largest difference may be rounding's
        return left_by(other, one) <= LEFT_OVER_IN_HALF * root_mean_square(nearest(one), one.right)
    off = min(distance(x, one.right).max() for x in one.layouts)
    left = min(distance(x, value).max() for x in one.layouts)
    return bool(left <= LEFT_OVER * off)


def left_by(other: Run, one: Submission) -> float:
    """How far somebody's numbers are from another run's on the whole."""
    value = value_in(other, one)
    if value is None:
        return math.inf
    return min(root_mean_square(x, value) for x in one.layouts)


def is_of(other: Run, offs: Sequence[Run], one: Submission) -> bool:
    """Whether somebody's numbers for a step are those of another run, but for rounding.

    Parameters
    ----------
    offs : the other run with every number pushed
    """
    value = value_in(other, one)
    off = [x for x in (value_in(run, one) for run in offs) if x is not None]
    if value is None or len(off) < len(offs):
        return False
    if one.epsilon > HALF and left_by(other, one) > usual_rounding(value, off, one.epsilon):
        return False
    within = allowed(value, off, one.epsilon)
    return any((distance(x, value) <= within).all() for x in one.layouts)


def value_in(run: Run, one: Submission) -> AnyArray | None:
    """A step in another run, of the tokens that were given; None where it can't be computed."""
    shape = one.right.shape
    try:
        value = numbers_at(run, one.path)
    except (AttnlabError, ArithmeticError, ValueError, IndexError, TypeError):
        return None  # such as a product of shapes that do not fit: nobody has numbers of it
    if value is None or value.ndim != len(shape):
        return None
    last = tuple(slice(max(has - n, 0), None) for has, n in zip(value.shape, shape, strict=True))
    return value[last] if value[last].shape == shape else None


# What dropout multiplies, by step, and what the rest is added to, where it is.
DROPPED = {
    "embedding": ("", "embedding"),
    "attention.weights": ("", "weights"),
    "attention.output": ("", "output"),
    "mlp.output": ("", "output"),
    "mid": ("input", "attention.output"),
    "output": ("mid", "mlp.output"),
}


def by_chance(run: Run, one: Submission) -> Iterator[Mistake]:
    """Dropout, where some cells of a step are 0 and all others are larger by one factor."""
    name = re.sub(r"heads\.\d+\.", "", name_in_table(run.graph, one.path))
    if name not in DROPPED:
        return
    place = one.path.rpartition(".")[0]
    stream, what = (f"{place}.{step}".lstrip(".") for step in DROPPED[name])
    right = np.atleast_1d(run.look(what)).astype(np.float64)
    for array in one.layouts:
        left = array.astype(np.float64) - (run.look(stream) if DROPPED[name][0] else 0.0)
        zero = np.abs(left) <= one.within
        kept = ~zero & (np.abs(right) > 8 * one.within)
        dropped = zero & (np.abs(right) > 8 * one.within)
        if not dropped.any() or not kept.any():
            continue
        most = np.argmax(np.where(kept, np.abs(right), 0.0))
        factor = float(left.flat[most] / right.flat[most])
        alike = np.abs(left - factor * right) <= 2 * factor * one.within
        if factor > 1.001 and kept.sum() > 1 and (zero | alike).all():
            step = DROPPED[name][1].rpartition(".")[2]
            formula = DROPOUT.formula.format(name=step, share=1 - 1 / factor)
            yield replace(DROPOUT, formula=formula)


# ---- how it is told ------------------------------------------------------------------------------


def with_sizes(mistake: Mistake, run: Run, path: str) -> Mistake:
    """A mistake whose hint has the model's sizes in it, and the lines to write instead."""
    block = f"{block_of(path) or 'blocks.0'}.attention."
    place = "" if issubclass(run.graph.root, Attention) else block
    scale = run.graph.formulas.get("scale", "√Dk")
    sizes: dict[str, Callable[[], object]] = {
        "Dk": lambda: run.look(f"{place}K").shape[-1],
        "D": lambda: run.look(f"{place}X").shape[-1],
        "H": lambda: run.look(f"{place}n_head"),
        "scale": lambda: scale,
        "divisor": lambda: as_code(scale),
        "epsilon": lambda: f"{run.look('epsilon'):g}",
        "activation": lambda: run.graph.formulas.get("activation", "GELU in its tanh form"),
        "activation_code": lambda: ACTIVATION_CODE[run.look("activation")],
    }

    def filled(text: str) -> str:
        return text.format(**{name: sizes[name]() for name in re.findall(r"{(\w+)}", text)})

    lines = tuple(map(filled, mistake.right_lines()))
    return replace(mistake, hint=filled(mistake.hint), lines=lines)


def as_code(scale: str) -> str:
    """The model's scale, as Python writes it."""
    code = re.sub("√(\\w+)", r"math.sqrt(\1)", scale).replace("·", "*")
    return f"({code})" if "*" in code else code


def cells_of(result: Result, one: Submission) -> dict[str, Any]:
    """How many cells of a step differ, what they have in common, and those that differ most."""
    ways = [(distance(x, one.right), x) for x in one.layouts]
    difference, array = min(ways, key=lambda way: float(way[0].max()))
    is_off = difference > one.within
    if not is_off.any():  # each cell might be rounded, all together not
        is_off = difference > difference.max() / 2
    where = np.argwhere(is_off)
    words = words_of(result, one.name, tuple(where[0]))
    alike = (where == where[0]).all(axis=0) & (np.array(one.right.shape) > 1)
    common = ", ".join(word for word, is_common in zip(words, alike, strict=True) if is_common)
    differing = f"{len(where)} of {difference.size} cells differ"
    differing += f", all at {common}:" if common else ":"
    if one.epsilon < FLOAT32 and one.stage.rounding * one.epsilon <= FLOAT32:
        differing = f"Rounding to float32 on the way would explain as much. {differing}"
    order = np.argsort(-difference[tuple(where.T)], kind="stable")
    largest = map(tuple, where[order[:CELLS]])
    return {
        "differing": differing,
        "cells": tuple(
            Cell(
                ", ".join(words_of(result, one.name, index)),
                float(array[index]),
                float(one.right[index]),
            )
            for index in largest
        ),
    }
