"""Right code in another order: steps that differ from GPT-2's, with the same weights in the end."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from attnlab.checking.comparison import NEGLIGIBLE, path_in_block
from attnlab.checking.replaced import beside, upstream
from attnlab.checking.submission import (
    Submission,
    compare_in_run,
    with_own_inputs,
)
from attnlab.equations import Array, Mask
from attnlab.errors import AttnlabError
from attnlab.forward.attention import Attention
from attnlab.steps import Graph, Result, Run
from attnlab.support.messages import Message

# GPT-2's numbers from the user's; the second argument returns another step of the same part by
# name. Or the name of the step that the user's numbers are.
Conversion: TypeAlias = Callable[[Array, Callable[[str], Any]], Array] | str


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


def of(names: str, conversion: Conversion) -> dict[str, Conversion]:
    """The same conversion of several steps of attention."""
    return {f"attention.{name}": conversion for name in names.split()}


def is_hidden(mine: Array, mask: Mask) -> Mask:
    """Where the user's scores hide what the mask hides: a wrong score there stays wrong."""
    return ~mask & (mine <= mine.max(axis=-1, keepdims=True) - NEGLIGIBLE)


def raw_masked_already(mine: Array, at: Any) -> Array:
    return np.where(is_hidden(mine, at("mask")), at("raw_scores"), mine)


def turned(mine: Array, at: Any) -> Array:
    return mine.swapaxes(-2, -1) if mine.shape[-1] == mine.shape[-2] else mine


MASKED_ALREADY = Order(
    "the scores are masked already",
    of("raw_scores", raw_masked_already) | of("scores", "masked_scores"),
    "weights",
)
ORDERS = (
    Order(
        "Q is divided by {scale} already",
        of("W_Q b_Q Q raw_scores", lambda mine, at: mine * at("scale")),
        "weights",
    ),
    Order(
        "K is divided by {scale} already",
        of("W_K b_K K raw_scores", lambda mine, at: mine * at("scale")),
        "weights",
    ),
    Order(
        "Q and K are each divided by the root of {scale}",
        of("W_Q W_K b_Q b_K Q K", lambda mine, at: mine * at("scale") ** 0.5)
        | of("raw_scores", lambda mine, at: mine * at("scale")),
        "weights",
    ),
    Order(
        "the scores aren't divided by {scale} yet",
        of("scores masked_scores", lambda mine, at: mine / at("scale")),
        "weights",
    ),
    Order(
        "keys are the rows of your matrices, queries their columns",
        of("raw_scores scores masked_scores weights", turned),
        "context",
    ),
    MASKED_ALREADY,
    Order(
        "the weights aren't divided by the sum of their row yet",
        of("weights", lambda mine, at: mine / mine.sum(axis=-1, keepdims=True)),
        "context",
    ),
    Order(
        "LayerNorm's gain and bias are left to the next matrix",
        dict.fromkeys(
            ("attention.X", "mlp.X", "final"), lambda mine, at: mine * at("gain") + at("bias")
        ),
        "Q",
    ),
    Order(
        "attention's output has the residual stream added already",
        of("output", "parent.mid"),
        "mid",
    ),
    Order(
        "the MLP's output has the residual stream added already",
        {"mlp.output": "parent.output"},
        "output",
    ),
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
        options = []
        # In half precision, steps that follow from others in this order agree as they are.
        for order, everywhere in itertools.product(ORDERS, (False, submitted[n].is_half)):
            if not may_be(run, submitted[n], order):
                continue
            read = [
                converted(result, run, step, order) if everywhere or not step.agrees else step
                for step in submitted
            ]
            changed = [a is not b for a, b in zip(read, submitted, strict=True)]
            read = with_own_inputs(result, run, read)
            if read[n].agrees or order is MASKED_ALREADY:
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


def confirmation(graph: Graph, paths: Sequence[str], witnesses: Sequence[Submission]) -> str:
    """The first step that agrees after these; "" if no step does after one of them."""
    needs = {step: set(upstream(graph, [step.path])) for step in witnesses}
    found = [[step for step in witnesses if path in needs[step]] for path in paths]
    return found[-1][0].name if all(found) else ""


def may_be(run: Run, step: Submission, order: Order) -> bool:
    """Whether a step is much closer to GPT-2's numbers in this order, a quick look at it."""
    read = in_order(run, step, order)
    if read is None or step.is_half:  # it follows from the user's own steps, which change as well
        return read is not None
    value = read.value_in(run)
    if value is None:
        return False
    if order is MASKED_ALREADY and not step.path.endswith("raw_scores"):
        mask = run.value(beside(step.path, "mask"))
        return not mask.all() and bool((is_hidden(step.nearest, mask) | mask).all())
    return read.equals(value, 16 * step.tolerance)


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

        def at(name: str) -> Any:
            return run.value(beside(step.path, name))

        with np.errstate(all="ignore"):
            layouts = tuple(conversion(x.astype(np.float64), at) for x in step.layouts)
        return replace(step, layouts=layouts)
    except (AttnlabError, KeyError):  # this type of result has no such step
        return None


def scale_in(run: Run) -> str:
    """The divisor of the scores in words: √Dk in GPT-2, or the number that was given."""
    if "scale" in run.graph.given:
        return f"{run.value('scale'):g}"
    return run.graph.formulas.get("scale", "√Dk")
