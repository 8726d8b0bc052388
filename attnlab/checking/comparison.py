"""Two runs step by step, in the order of the forward pass, and what rounding alone would do.

How much rounding explains is measured, not guessed. Every number that is computed is pushed a
little, by about `PUSH` of itself, and all that follows is computed from that. What comes of so many
small pushes is what comes of as many roundings, in proportion: it grows where sums cancel, where a
softmax is sharp, and from block to block. Scaled down from `PUSH` to the dtype's epsilon, it is how
far apart two right answers may lie.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np

from attnlab.checking.replaced import (
    Equation,
    can_be_made,
    is_from_file,
    is_given,
    upstream,
    with_equations,
)
from attnlab.equations import AnyArray, Array, same
from attnlab.errors import InvalidTypeError, InvalidValueError, quoted
from attnlab.forward.edits import above
from attnlab.forward.forward_pass import ForwardPass
from attnlab.steps import Result, Run, at
from attnlab.support.tables import Document, Heading, Table
from attnlab.views.shown import TOKEN_AXES, label

# Large beside float32's epsilon, 2⁻²³, and small enough that what follows grows in proportion.
PUSH = 2.0**-17

# So many times all is pushed anew, as in a short row the pushes may cancel by chance.
PUSHES = 4

# So many times what the pushes did is still rounding. GPT-2s in float32 and float64 differ by up to
# once that, one with scores of 200 by four times.
MARGIN = 8.0

# The same in half precision, of which few roundings are as large as a push: runs of PyTorch's in
# float16, bfloat16 and autocast lie at a third of it.
HALF_MARGIN = 1.0

# An epsilon above this one is of half precision: float16's is 2⁻¹⁰, bfloat16's 2⁻⁷.
HALF = 2.0**-12

# A score below this one is a mask's, whatever it is filled with.
MASKED = -1e8

# So much below the largest score of its row, exp is 0 beside it.
NOTHING = 80.0

# A table of more stages shows the residual stream, and the block that matters.
MANY = 48

# So many heads are ranked by how much they changed.
HEADS_SHOWN = 12
STREAM = ("embedding", "mid", "output", "final", "logits")


@dataclass(frozen=True, eq=False)
class Stage:
    """One step of two runs.

    Attributes
    ----------
    path : such as "blocks.0.attention.weights"
    shape : of both
    difference : the largest one
    relative : to the largest number of that step
    rounding : the largest difference in units of what rounding explains there; up to 1 they agree
    where : the index of the largest difference
    place : the same in words, which head, which tokens; "" where there is no difference
    """

    path: str
    shape: tuple[int, ...]
    difference: float
    relative: float
    rounding: float
    where: tuple[int, ...]
    place: str

    @property
    def agrees(self) -> bool:
        return self.rounding <= 1

    def line(self) -> tuple[str, ...]:
        """It in a table below `HEADER`."""
        shape = " x ".join(map(str, self.shape))
        numbers = (f"{self.difference:.2g}", f"{self.relative:.2g}", f"{self.rounding:.2g}")
        verdict = "agrees" if self.agrees else "differs"
        return (self.path, shape, *numbers, verdict, self.place)


HEADER = ("step", "shape", "difference", "relative", "x rounding", "", "largest at")

# Its columns that are words, and stand to the left.
WORDS = (0, 1, 5, 6)


def table_of(stages: Iterable[Stage]) -> Table:
    """A table of stages, one in a line."""
    return Table([HEADER, *(stage.line() for stage in stages)], left=WORDS)


@dataclass(frozen=True, eq=False, repr=False)
class Stages(Document):
    """What came of holding steps against each other.

    Attributes
    ----------
    stages : a `Stage` for each step, in the order of the forward pass
    first : the first that differs by more than rounding explains; None where none does
    agrees : whether there is none
    """

    stages: tuple[Stage, ...]

    @property
    def first(self) -> Stage | None:
        return next((stage for stage in self.stages if not stage.agrees), None)

    @property
    def agrees(self) -> bool:
        return self.first is None


@dataclass(frozen=True, eq=False, repr=False)
class Differences(Stages):
    """How two results differ, as `compare` tells it; `repr` is a table.

    Attributes
    ----------
    titles : of both
    note : what else is not the same, in words, such as the tokens
    changes : (L, H), of two whole traces, how much of each head's attention moved to other keys,
        see `moved_attention`; else None
    heads : layer and head, the head that changed most first; () where there are no `changes`
    are_models : whether what differs is the models: traces of one text, without edits
    and all that `Stages` has
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
        first = self.first
        if first is None:
            verdict = f"All {len(self.stages)} steps agree: rounding explains every difference."
        elif self.are_models:
            verdict = f"Two models, which differ from {first.path} on."
        else:
            differing = sum(not stage.agrees for stage in self.stages)
            verdict = (
                f"{differing} of {len(self.stages)} steps differ by more than rounding explains; "
                f"the first is {', '.join(filter(None, (first.path, first.place)))}."
            )
        yield Heading(f"a  {self.titles[0]}\nb  {self.titles[1]}")
        if self.note:
            yield self.note
        yield verdict
        if first is not None and self.are_models and self.changes is not None:
            yield "Heads by how much of their attention moved to other tokens, of 1:"
            ranked = [
                (str(layer), str(head), f"{self.changes[layer, head]:.3f}")
                for layer, head in self.heads[:HEADS_SHOWN]
            ]
            yield Table([("layer", "head", "moved"), *ranked], left=())
        yield table_of(self._shown())

    def _shown(self) -> tuple[Stage, ...]:
        if len(self.stages) <= MANY:
            return self.stages
        block = block_of(self.first.path) if self.first else ""
        return tuple(
            stage
            for stage in self.stages
            if block_of(stage.path) == block or in_block(stage.path) in STREAM
        )


def compare(a: Result, b: Result) -> Differences:
    """Hold two traces against each other, stage by stage in the order of the forward pass.

    Parameters
    ----------
    a, b : two traces, of two models, precisions, edits; or the same part of two traces. They may
        be of other tokens, but not of more.

    Returns
    -------
    Differences
        `print` shows, for each step, the largest difference, absolute and beside the step's
        largest number, how it compares with rounding, and where it is

    Raises
    ------
    InvalidValueError
        The shapes differ, as with more tokens or another model; or a trace is a step of generation.

    Examples
    --------
    >>> compare(trace, trace.edited({"blocks.1.attention.heads.2.context": 0})).first.place
    """
    for result in (a, b):
        if not isinstance(result, Result):
            own = ""
            if hasattr(result, "compare"):
                own = ": hold it against another by its own `.compare`"
            raise InvalidTypeError(
                f"what is compared are two traces, or parts of them; got {quoted(result)}{own}"
            )
        refuse_cached(result)
    if type(a) is not type(b):
        raise InvalidTypeError(
            f"two results of one kind are compared; got {type(a).__name__} and {type(b).__name__}"
        )
    (one, its), (other, others) = ((x._run.scores_shape, x._run.graph.n_layer) for x in (a, b))
    if (one, its) != (other, others):
        raise InvalidValueError(
            f"step by step only what has as many tokens, heads and layers can be compared; got "
            f"{a.title}, with scores {one}, and {b.title}, with scores {other}"
        )
    moved: list[Array] = []
    differences = Differences(
        tuple(stages_of(a, b, moved)), (title_of(a), title_of(b)), note_on(a, b)
    )
    if not isinstance(a, ForwardPass) or not isinstance(b, ForwardPass):
        return differences
    changes = np.array(moved) if len(moved) == a.config.n_layer else None
    is_same_text = not (differences.note or a.edited_steps or b.edited_steps)
    return replace(
        differences,
        changes=changes,
        are_models=is_same_text and a.parameters is not b.parameters,
    )


def refuse_cached(result: Result) -> None:
    """A step of generation has only some of the rows, and a cache that looking would write to."""
    if result.tokens_before:
        raise InvalidValueError(
            f"{result.title} is one step of generation; a text's whole trace is compared, as the "
            f"generation has it in .trace"
        )


def title_of(result: Result) -> str:
    """What is compared, a trace's with what it was computed with."""
    if not isinstance(result, ForwardPass):
        return result.title
    return f"{result.title}, {result.parameters.dtype}, {result.parameters.origin}"


def note_on(a: Result, b: Result) -> str:
    """Where the tokens of two results are others."""
    if a.tokens is None or b.tokens is None:
        return ""
    others = np.flatnonzero(np.not_equal(a.tokens.ids, b.tokens.ids))
    if not others.size:
        return ""
    which = ", ".join(map(str, others[:8]))
    if others.size > 8:
        which += ", …"
    return f"Their tokens are not the same at {which}."


def moved_attention(weights: Array, others: Array) -> Array:
    """How much of each head's attention is at other keys, (H,): 0 for none, 1 for all.

    Σ over keys |others - weights| / 2, the mean over queries
    """
    of_queries = np.abs(others - weights).sum(axis=-1) / 2
    return np.asarray(of_queries.mean(axis=(*range(of_queries.ndim - 2), -1)))


def stages_of(a: Result, b: Result, moved: list[Array]) -> Iterator[Stage]:
    """Each step of two results; what only one block needs goes when the block is done.

    `moved` is filled with each block's `moved_attention`.
    """
    if is_from_file(a._run):  # rounding is measured with the parameters, where they are there
        a, b = b, a
    names = in_order(a, activations(type(a), a._run.graph.n_layer))
    for result in (a, b):
        paths = can_be_made(result._run, [result._prefix + name for name in names])
        names = [name for name in names if result._prefix + name in paths]
    runs = [a._run.fork(), b._run.fork()]
    runs += pushed(runs[0], [a._prefix + name for name in names])
    prefixes = (a._prefix, b._prefix, *[a._prefix] * PUSHES)
    for block, in_block in groupby(names, key=block_of):
        forks = [run.fork() for run in runs]
        for name in in_block:
            one, other, *off = (
                fork.look(prefix + name) for fork, prefix in zip(forks, prefixes, strict=True)
            )
            if one.shape != other.shape:
                raise InvalidValueError(
                    f"{name} has shape {one.shape} in one and {other.shape} in the other; step by "
                    f"step only models of the same size can be compared"
                )
            if block and name == f"{block}.attention.weights":
                moved.append(moved_attention(one, other))
            within = allowed(one, off, max(epsilon_of(one), epsilon_of(other)))
            yield stage_of(a, name, other, one, within)
        if block:
            for run in runs:
                run.look(f"{block}.output")


def stage_of(result: Result, name: str, mine: AnyArray, right: AnyArray, within: Array) -> Stage:
    """How a step of a result and somebody's numbers for it differ.

    Parameters
    ----------
    within : how far rounding may take each row, (..., 1)
    """
    difference = distance(mine, right)
    largest = np.max(difference)
    index = tuple(map(int, np.unravel_index(np.argmax(difference), difference.shape)))
    size = np.abs(right[np.abs(right) < -MASKED]).max(initial=0.0)
    return Stage(
        name,
        right.shape,
        float(largest),
        float(in_units_of(size, largest)),
        float(in_units_of(within, difference).max()),
        index,
        ", ".join(words_of(result, name, index)) if largest else "",
    )


def distance(mine: AnyArray, right: AnyArray) -> Array:
    """|mine - right|, and 0 where both are masked, with whatever the masked cells are filled."""
    mine, right = np.asarray(mine, np.float64), np.asarray(right, np.float64)
    with np.errstate(all="ignore"):
        difference = np.abs(mine - right)
    masked = right <= MASKED
    if masked.any():
        seen = np.max(right, axis=-1, keepdims=True)
        difference[masked & (mine <= np.maximum(seen - NOTHING, MASKED))] = 0.0
    return np.where(np.isnan(difference), np.inf, difference)


def in_units_of(within: Any, difference: Any) -> Array:
    """A difference divided by what is allowed; where there is none, 0."""
    with np.errstate(all="ignore"):
        return np.where(difference == 0, 0.0, difference / within)


def words_of(result: Result, name: str, index: tuple[int, ...]) -> list[str]:
    """Which head, tokens and column an index of a step stands for, a word for each axis."""
    kinds = {"H": "head", **TOKEN_AXES}
    axes = axes_of(result, name)
    words = [str(i) for i in index[: len(index) - len(axes)]]
    for axis, i in zip(axes, index[len(words) :], strict=False):
        symbols = result.tokens.symbols if axis in TOKEN_AXES and result.tokens else ()
        words.append(" ".join([kinds.get(axis, "column"), str(i), *map(label, symbols[i : i + 1])]))
    return words


def axes_of(result: Result, name: str) -> list[str]:
    """The names of a step's axes, leading ones apart."""
    place, _, step = name.rpartition(".")
    part: Result = at(result, place) if place else result
    return part.axes_of(step).split()


def activations(kind: type[Result], n_layer: int, place: str = "") -> Iterator[str]:
    """The steps of a kind of result that have a row for each token, each array once."""
    for name in kind.parts:
        step = kind.steps[name]
        is_another = step.equation is same or name in ("mask", "dropout_mask")
        if step.axes.startswith("T") and not is_another:
            yield place + name
    for child, below in kind.children.items():
        if child == "blocks":
            for layer in range(n_layer):
                yield from activations(below, n_layer, f"{place}blocks.{layer}.")
        elif child != "heads":  # shares of what their layer has
            yield from activations(below, n_layer, f"{place}{child}.")


def block_of(path: str) -> str:
    """The block that a step is in, such as blocks.3; "" outside of them."""
    found = re.match(r"blocks\.\d+", path)
    return found[0] if found else ""


def in_block(path: str) -> str:
    """What a step is called in its block, whichever that is."""
    return path.removeprefix(f"{block_of(path)}.")


def in_order(result: Result, names: Iterable[str]) -> list[str]:
    """Names of steps in the order of the forward pass: by how many steps lead to them at most."""
    graph, depth = result._run.graph, dict[str, int]()
    paths = {result._prefix + name: name for name in names}
    for path in upstream(graph, paths):
        depth[path] = 1 + max((depth[need] for need in above(graph[path])), default=0)
    return [paths[path] for path in sorted(paths, key=depth.__getitem__)]


# ---- what rounding explains ----------------------------------------------------------------------


def pushed(run: Run, paths: Iterable[str]) -> list[Run]:
    """Runs in which every number that leads to some steps is pushed a little.

    Parameters of the model are left alone: what they are multiplied with is pushed.
    """
    of_steps = []
    for path in upstream(run.graph, paths):
        step = run.graph[path].step
        is_made = step.equation not in (None, same) and step.axes.startswith("T")
        if (is_made or is_given(run, path)) and step.of_whole is None:
            of_steps.append(path)
    return [with_equations(run, {path: push(path, n) for path in of_steps}) for n in range(PUSHES)]


def push(path: str, n: int) -> Equation:
    """A push that is the same at each look, and another one for each step."""

    def pushed(value: Any) -> Any:
        if not isinstance(value, np.ndarray) or value.dtype.kind != "f":
            return value
        rng = np.random.default_rng([n, zlib.crc32(path.encode())])
        by = np.asarray(rng.standard_normal(value.shape, np.float32), value.dtype)
        return value * (1.0 + PUSH * by)

    return pushed


def allowed(value: AnyArray, off: Sequence[AnyArray], epsilon: float) -> Array:
    """How far rounding may take each row of a step, (..., 1).

    Parameters
    ----------
    value : (..., n), the step
    off : each (..., n), the same where every number before it was pushed
    epsilon : of the dtype that was computed in
    """
    value = np.asarray(value, np.float64)
    finite = value > MASKED
    size = row_maximum(np.where(finite, np.abs(value), 0.0))
    with np.errstate(invalid="ignore"):
        spread = np.max(
            [row_maximum(np.where(finite, np.abs(x - value), 0.0)) for x in off], axis=0
        )
    grown = np.divide(spread, size, out=np.zeros_like(size), where=size > 0) / PUSH
    # A row in which the pushes cancelled by chance is no better than most are.
    margin = MARGIN if epsilon < HALF else HALF_MARGIN
    within: Array = margin * epsilon * size * (1.0 + np.maximum(grown, np.median(grown)))
    return within


def row_maximum(x: Array) -> Array:
    found: Array = np.max(x, axis=-1, keepdims=True)
    return found


def epsilon_of(array: AnyArray) -> float:
    """The distance from 1 to the next number in an array's dtype; float64's for integers."""
    return float(np.finfo(array.dtype).eps) if array.dtype.kind == "f" else 2.0**-52
