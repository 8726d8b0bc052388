"""Find mistakes in your own implementation: the first step that differs, and why."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from attnlab.analysis.gradients import GradientRun
from attnlab.checking.comparison import (
    FLOAT32_EPSILON,
    Stages,
    Submission,
    index_in_words,
    submissions,
)
from attnlab.checking.orders import in_another_order
from attnlab.checking.relations import Mistake
from attnlab.checking.search import Explanation, explain, first_differing
from attnlab.errors import AttnlabError, InvalidTypeError, InvalidValueError, quoted
from attnlab.forward.edits import check_path
from attnlab.steps import Result, steps_below
from attnlab.support.checks import check_kind
from attnlab.support.messages import Message, say
from attnlab.support.tables import Paragraph, Table

# The largest cost of a mistake that is named beside an order in which all steps are right.
MAX_COST_IF_RIGHT = 1.3

# Steps as others call them.
OTHER_NAMES = {
    "Q": ("q", "query", "queries"),
    "K": ("k", "key", "keys"),
    "V": ("v", "value", "values"),
    "scores": ("attn_scores", "attention_scores"),
    "weights": ("attn", "attn_weights", "attention_weights"),
}

HALF = (
    "These numbers were computed in half precision. Mistakes smaller than its rounding can't be "
    "seen: compute in float32."
)

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
    mistakes : the known mistakes that produce your numbers of the first differing step, each a
        `Mistake` with formula and hint; alternatives, or () if there are none
    further : if mistakes are combined, the alternatives for the second, third, ... mistake
    unexplained : names of later steps that still differ with all these mistakes
    differing : if no known mistake is found, how many cells differ, in words
    cells : if no known mistake is found, the cells with the largest differences
    is_uncertain : whether all steps are right if they are in another order, which later steps that
        you gave don't show
    notes : sentences on steps that are right in another order, such as a Q that is divided by √Dk
        already, on what low precision hides, and if not all pairs of mistakes were tried
    title, stages, first, agrees : see `Stages`
    """

    mistakes: tuple[Mistake, ...] = ()
    further: tuple[tuple[Mistake, ...], ...] = ()
    unexplained: tuple[str, ...] = ()
    differing: str = ""
    cells: tuple[Cell, ...] = ()
    is_uncertain: bool = False

    def pieces(self) -> Iterator[str | Table]:
        yield from super().pieces()
        yield from self._reasons()

    @property
    def reasons(self) -> str:
        """What is wrong, in words; "" if all agree."""
        return "\n".join(map(str, self._reasons()))

    def _reasons(self) -> Iterator[str | Table]:
        if self.first is None:
            return
        path = self.first.path
        if not self.mistakes and self.is_uncertain:
            yield Message("Your {path} has no mistake of its own if that is so.", path=path)
            return
        if not self.mistakes:
            template = "No known mistake produces your {path}. {differing}"
            yield Message(template, path=path, differing=self.differing)
            lines: list[tuple[str, ...]] = [("", Message("yours"), Message("expected"))]
            lines += [(x.place, f"{x.mine:.6g}", f"{x.expected:.6g}") for x in self.cells]
            yield Table(lines)
            return
        template = "This produces exactly your {path}:"
        if self.is_uncertain:
            template = "If not, this produces exactly your {path}:"
        if self.further:
            template = "{count} mistakes together produce exactly your {path}:"
        elif len(self.mistakes) > 1:
            template = "Each of these produces exactly your {path}:"
        yield Message(template, path=path, count=len(self.further) + 1)
        for mistakes in (self.mistakes, *self.further):
            if self.further and len(mistakes) > 1:
                yield Message("  one of these, which produce the same numbers:")
            for mistake in mistakes:
                yield Message("    {formula}", formula=Message(mistake.formula))
                yield Paragraph("  {hint}", hint=Message(mistake.hint))
                for line in mistake.lines:
                    yield f"      {say(line)}"
        steps = dict.fromkeys(mistake.step for mistake in self.mistakes)
        if len(steps) > 1:
            template = "To tell them apart, give {names}, too."
            yield Message(template, names=", ".join(filter(None, steps)))
        if self.unexplained:
            yield Paragraph(
                "  This does not explain everything; still different: {names}. Fix this, then "
                "check again.",
                names=", ".join(self.unexplained),
            )


def check(mine: Mapping[str, Any], trace: Result) -> Verdict:
    """Compare your own code's numbers with a trace's, and find the mistake.

    For the first step that differs by more than rounding explains, mistakes are generated from the
    equations before it, one change of a line at a time, and their numbers are compared with yours.
    If a mistake explains only some of the differing steps, the search continues for the others.

    In numbers that are in, or were converted from, float16 or bfloat16, mistakes smaller than the
    rounding of all earlier steps can't be seen.

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
    check_kind(trace, Result, "trace", "a trace or a part of one, such as trace.head(0, 3)")
    names = "a dict of arrays by the names of steps, such as {'weights': ...}"
    check_kind(mine, Mapping, "the first argument", names)
    if isinstance(trace._run, GradientRun):
        raise InvalidTypeError(
            f"{trace.title}: tolerances for rounding are known only for the steps of a forward "
            "pass. Compare gradients with numpy.allclose"
        )
    if trace.tokens_before:  # it has no rows for cached tokens
        raise InvalidValueError(
            f"{trace.title} is a step of generation. Trace the whole text: "
            "model.trace(generation.tokens)"
        )
    try:
        mine = dict(mine)
    except Exception as error:  # an .npz file reads its arrays here
        raise InvalidValueError(f"the arrays can't be read: {quoted(str(error), 200)}") from None
    if not mine:
        raise InvalidValueError(f"nothing to check. Give {names}")
    known = [path for path, _ in steps_below(type(trace))]
    n_layer = trace._run.graph.n_layer
    n_head = trace._run.scores_shape[-3:][0]  # unused if scores are (Tq, Tk), without heads
    for name in mine:
        last = str(name).rpartition(".")[2].lower()
        for ours, theirs in OTHER_NAMES.items():
            if last in theirs and not name.endswith(ours):
                raise InvalidValueError(f"{quoted(name)} is called {ours} here")
        check_path(name, known, n_head, n_layer, f"step of {trace.title}")
    run = trace._run.fork()  # so that the trace doesn't keep the steps computed here
    return verdict_on(submissions(trace, run, mine))


def verdict_on(submitted: list[Submission]) -> Verdict:
    """The verdict on numbers that may be right in another order, or have mistakes in it."""
    read, orders, is_confirmed = in_another_order(submitted)
    is_right = all(step.agrees for step in read)
    notes: list[str] = []
    if is_right and is_confirmed:
        submitted = read
    explanations = explain(submitted, notes)
    if is_right and explanations and explanations[0].cost > MAX_COST_IF_RIGHT:
        explanations = []  # another order is likelier
    elif orders and not is_right:
        others = explain(read, []) if rank(explanations) > (0, 1) else explanations
        if rank(others) < rank(explanations):
            submitted, explanations, notes = read, others, []
        else:
            orders = []
    if any(step.is_half for step in submitted):
        orders.append(Message(HALF))
    template = "Your {name} is rounded to {decimals} decimals, which hides smaller differences."
    orders += [Message(template, name=x.name, decimals=x.decimals) for x in submitted if x.decimals]
    mistakes, *further = [explanation.mistakes for explanation in explanations] or [()]
    differs = not explanations and not all(step.agrees for step in submitted)
    differing, cells = describe_cells(first_differing(submitted)) if differs else ("", ())
    return Verdict(
        submitted[0].result.title,
        tuple(step.stage for step in submitted),
        (*orders, *notes),
        mistakes,
        tuple(further),
        explanations[-1].unexplained if explanations else (),
        differing,
        cells,
        is_right and not is_confirmed,
    )


def rank(explanations: list[Explanation]) -> tuple[int, int]:
    """Lower for explanations that leave fewer steps unexplained, with fewer mistakes."""
    return (len(explanations[-1].unexplained), len(explanations)) if explanations else (10**9, 0)


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


# ---- the report ----------------------------------------------------------------------------------


def describe_cells(submission: Submission) -> tuple[str, tuple[Cell, ...]]:
    """Describe a step's differing cells, and list the largest differences."""
    difference = submission.difference
    indices = np.argwhere(difference > submission.tolerance)
    words = partial(index_in_words, submission.result, submission.name)
    # The axes on which all differing cells have the same index.
    is_common = (indices == indices[0]).all(axis=0) & (np.array(submission.expected.shape) > 1)
    common = words([i if same else None for i, same in zip(indices[0], is_common, strict=True)])
    template = "{count} of {size} cells differ, all at {common}:"
    if not common:
        template = "{count} of {size} cells differ:"
    differing = Message(template, count=len(indices), size=difference.size, common=common)
    epsilon_needed = submission.stage.rounding * submission.epsilon
    if submission.epsilon < FLOAT32_EPSILON and epsilon_needed <= FLOAT32_EPSILON:
        template = "Rounding to float32 would explain the differences. {differing}"
        differing = Message(template, differing=differing)
    order = np.argsort(-difference[tuple(indices.T)], kind="stable")
    return differing, tuple(
        Cell(words(x), float(submission.nearest[x]), float(submission.expected[x]))
        for x in map(tuple, indices[order[:CELLS_SHOWN]])
    )
