"""Comparison of steps with the expected numbers, with tolerances for rounding.

Tolerances are measured: every computed number is perturbed relatively by about `PERTURBATION`, and
the forward pass is run with these perturbations. Like rounding errors, their effects grow where
sums cancel, where a softmax is sharp, and from block to block. Scaled from `PERTURBATION` to the
dtype's epsilon, they give how far two correct results may differ.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from attnlab.checking.replaced import Change, is_fixed, upstream, with_changes
from attnlab.equations import AnyArray, Array, activated, identity
from attnlab.steps import Result, Run, step_at
from attnlab.steps.labels import TOKEN_AXES
from attnlab.support.document import Document
from attnlab.support.messages import Message
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
        heading = Message(
            "{title}: {agreeing} of {count} steps agree",
            title=self.title,
            agreeing=sum(stage.agrees for stage in self.stages),
            count=len(self.stages),
        )
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
    joined, *others = [*words] or [""]
    for word in others:
        joined = Message("{first}, {second}", first=joined, second=word)
    return joined


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
    perturbed_paths = []
    for path in upstream(run.graph, paths):
        node = run.graph[path]
        is_computed = node.step.equation not in (None, identity) and node.step.has_rows_for_tokens
        is_slice = node.select is not None  # of a layer's step, which is perturbed itself
        if (is_computed or is_fixed(run, path)) and not is_slice:
            perturbed_paths.append(path)
    size = max(epsilon, PERTURBATION)
    return [
        with_changes(run, {path: perturbation(run, path, n, size) for path in perturbed_paths})
        for n in range(PERTURBED_RUNS)
    ]


def perturbation(run: Run, path: str, n: int, size: float) -> Change:
    """A perturbation seeded by step and run, so that recomputing a step repeats it."""
    node = run.graph[path]

    def perturbed(value: Any) -> Any:
        if not isinstance(value, np.ndarray) or value.dtype.kind != "f":
            return value
        rng = np.random.default_rng([n, zlib.crc32(path.encode())])
        noise = np.asarray(rng.standard_normal(value.shape, np.float32), value.dtype)
        if node.step.equation is not activated:
            return value * (1.0 + size * noise)
        # Code in steps rounds 1 + tanh(x), which nearly cancels: up to epsilon/4 · hidden/2.
        return value * (1.0 + size * noise) + run.value(node.needs[0]) * size * noise / 4

    return perturbed


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
    growth /= max(epsilon, PERTURBATION)
    # At least the median, as perturbations of a row may cancel by chance.
    growth = np.maximum(growth, np.median(growth))
    margin = MARGIN if epsilon < HALF_EPSILON else HALF_MARGIN
    return margin * epsilon * size * (1.0 + growth)


def epsilon_of(array: AnyArray) -> float:
    """The machine epsilon of an array's dtype; float64's for integers."""
    return float(np.finfo(array.dtype).eps) if array.dtype.kind == "f" else 2.0**-52
