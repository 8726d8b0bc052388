"""Right code in another order: steps that differ from GPT-2's, with the same weights in the end."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from attnlab.checking.comparison import NEGLIGIBLE, path_in_block
from attnlab.checking.replaced import beside, defaults_of, upstream
from attnlab.checking.submission import (
    MAX_REMAINING,
    Submission,
    compare_in_run,
    from_own_inputs,
    root_mean_square,
    with_own_inputs,
)
from attnlab.equations import Array
from attnlab.errors import AttnlabError
from attnlab.forward.attention import Attention
from attnlab.steps import Graph, Result, Run
from attnlab.support.messages import Message

# GPT-2's numbers from the user's, `mine`; other parameters are steps, as in a mistake's equation.
# Or the name of the step that the user's numbers are.
Conversion: TypeAlias = Callable[..., Array] | str


@dataclass(frozen=True, eq=False)
class Order:
    """Steps as right code may compute them in another order."""

    sentence: str  # what differs; {scale} is filled in
    steps: Mapping[str, Conversion]  # by step, such as `attention.scores`
    until: str  # the step that shows whether the rest allows for it


@dataclass(frozen=True)
class Reading:
    """An order in which the user's numbers are read."""

    order: Order
    confirmed_by: str  # the name of a later step that agrees; "" if the user gave none
    is_shown: bool  # whether the user gave the step that shows it

    def sentence(self, scale: str) -> str:
        sentence = Message(self.order.sentence, scale=scale)
        if self.confirmed_by:
            template = "Another order, the same {step}: {sentence}."
            return Message(template, step=self.confirmed_by, sentence=sentence)
        if self.is_shown:
            return Message("Another order: {sentence}.", sentence=sentence)
        template = (
            "Perhaps another order: {sentence}. That is right if the rest of your code allows for "
            "it; check your {step}, too."
        )
        return Message(template, step=self.order.until, sentence=sentence)


# ---- the table -----------------------------------------------------------------------------------


def divided(mine: Array, scale: float) -> Array:
    return mine * scale


def divided_by_root(mine: Array, scale: float) -> Array:
    return mine * math.sqrt(scale)


def undivided(mine: Array, scale: float) -> Array:
    return mine / scale


def divided_projection(name: str) -> dict[str, Conversion]:
    """Q or K with its parameters, and the product of both."""
    return dict.fromkeys(
        (f"attention.{x}" for x in (f"W_{name}", f"b_{name}", name, "raw_scores")), divided
    )


def masked_already(mine: Array, mask: Any, scores: Any) -> Array:
    # Only where the user's number hides the key too: a wrong score there stays wrong.
    is_low = mine <= mine.max(axis=-1, keepdims=True) - NEGLIGIBLE
    return np.where(is_low & ~mask, scores, mine)


def masked_raw_already(mine: Array, mask: Any, raw_scores: Any) -> Array:
    return masked_already(mine, mask, raw_scores)


def not_normalised(mine: Array) -> Array:
    return np.asarray(mine / mine.sum(axis=-1, keepdims=True))


def without_gain_and_bias(mine: Array, gain: Array, bias: Array) -> Array:
    return mine * gain + bias


ORDERS = (
    Order("Q is divided by {scale} already", divided_projection("Q"), "weights"),
    Order("K is divided by {scale} already", divided_projection("K"), "weights"),
    Order(
        "Q and K are each divided by the root of {scale}",
        {
            **{f"attention.{step}": divided_by_root for step in ("W_Q", "W_K", "b_Q", "b_K")},
            **{f"attention.{step}": divided_by_root for step in "QK"},
            "attention.raw_scores": divided,
        },
        "weights",
    ),
    Order(
        "the scores aren't divided by {scale} yet",
        {"attention.scores": undivided, "attention.masked_scores": undivided},
        "weights",
    ),
    Order(
        "the scores are masked already",
        {"attention.raw_scores": masked_raw_already, "attention.scores": masked_already},
        "weights",
    ),
    Order(
        "the weights aren't divided by the sum of their row yet",
        {"attention.weights": not_normalised},
        "context",
    ),
    Order(
        "LayerNorm's gain and bias are left to the next matrix",
        dict.fromkeys(("attention.X", "mlp.X", "final"), without_gain_and_bias),
        "Q",
    ),
    Order(
        "attention's output has the residual stream added already",
        {"attention.output": "parent.mid"},
        "mid",
    ),
    Order(
        "the MLP's output has the residual stream added already",
        {"mlp.output": "parent.output"},
        "output",
    ),
)


# How wrong scores are read that hide the same keys as masked scores do, to name their mistake.
ALREADY_MASKED = Order(
    "the scores are masked already", {"attention.scores": "masked_scores"}, "weights"
)

# ---- reading the user's numbers ------------------------------------------------------------------


def table_name(graph: Graph, path: str) -> str:
    """The name of a step in tables of orders and mistakes, without its block and head."""
    path = re.sub(r"heads\.\d+\.", "", path)
    return f"attention.{path}" if issubclass(graph.root, Attention) else path_in_block(path)


def in_another_order(
    result: Result, run: Run, submitted: list[Submission]
) -> tuple[list[Submission], list[Reading]]:
    """Read differing steps in another order, where they then agree."""
    readings: list[tuple[Order, dict[str, str]]] = []  # with the paths of steps by their names
    for n in range(len(submitted)):
        if submitted[n].agrees:
            continue
        name, options = table_name(run.graph, submitted[n].path), []
        # In half precision, steps that follow from others in this order agree as they are.
        for order, everywhere in itertools.product(ORDERS, (False, submitted[n].is_half)):
            if name in order.steps and may_agree(run, submitted[n], order):
                read = [
                    converted(result, run, step, order) if everywhere or not step.agrees else step
                    for step in submitted
                ]
                changed = [a is not b for a, b in zip(read, submitted, strict=True)]
                if read[n].is_half and not from_own_inputs(result, run, read[n], read).agrees:
                    continue
                read = with_own_inputs(result, run, read)
                if read[n].agrees:
                    paths = {x.name: x.path for x, new in zip(read, changed, strict=True) if new}
                    options.append((read, (order, paths)))
        if options:
            submitted, reading = max(options, key=lambda option: sum(x.agrees for x in option[0]))
            readings.append(reading)
    converted_names = {name for _, paths in readings for name in paths}
    names = {x.name.rpartition(".")[2] for x in submitted}
    witnesses = [x for x in submitted if x.agrees and x.name not in converted_names]
    return submitted, [
        Reading(order, confirmation(run.graph, [*paths.values()], witnesses), order.until in names)
        for order, paths in readings
    ]


def as_masked_scores(result: Result, run: Run, submitted: Sequence[Submission]) -> list[Submission]:
    """Scores that hide what the mask hides, read as masked scores; all others as they are."""
    given = {step.path for step in submitted}

    def hides(step: Submission) -> bool:
        masked = beside(step.path, "masked_scores")
        if table_name(run.graph, step.path) != "attention.scores" or masked in given:
            return False
        mask, mine = run.value(beside(step.path, "mask")), step.nearest
        is_low = mine <= mine.max(axis=-1, keepdims=True) - NEGLIGIBLE
        return mask is not None and not mask.all() and bool((is_low | mask).all())

    return [
        converted(result, run, step, ALREADY_MASKED) if hides(step) else step for step in submitted
    ]


def confirmation(graph: Graph, paths: Sequence[str], witnesses: Sequence[Submission]) -> str:
    """The first step that agrees after these; "" if no step does after one of them."""
    needs = {step: set(upstream(graph, [step.path])) for step in witnesses}
    found = [[step for step in witnesses if path in needs[step]] for path in paths]
    return found[-1][0].name if all(found) else ""


def may_agree(run: Run, step: Submission, order: Order) -> bool:
    """Whether a step is much closer to GPT-2's numbers in this order, a quick look at it."""
    if step.is_half:  # it follows from the user's own steps, which change as well
        return True
    read = in_order(run, step, order)
    difference = root_mean_square(step.nearest, step.expected)
    return read is not None and read.difference_from(run) <= MAX_REMAINING * difference


def converted(result: Result, run: Run, step: Submission, order: Order) -> Submission:
    """A step read in another order."""
    read = in_order(run, step, order)
    return compare_in_run(result, run, read) if read else step


def in_order(run: Run, step: Submission, order: Order) -> Submission | None:
    """The user's numbers turned into GPT-2's; None if the order doesn't change this step."""
    conversion = order.steps.get(table_name(run.graph, step.path))
    if conversion is None:
        return None
    try:
        if isinstance(conversion, str):
            path = beside(step.path, conversion)
            return replace(step, path=path) if run.graph[path] else None
        values = {
            name: run.value(beside(step.path, name))
            for name in defaults_of(conversion)
            if name != "mine"
        }
        with np.errstate(all="ignore"):
            layouts = tuple(conversion(x.astype(np.float64), **values) for x in step.layouts)
        return replace(step, layouts=layouts)
    except (AttnlabError, KeyError):  # this type of result has no such step
        return None
