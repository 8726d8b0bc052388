"""Right code in another order: steps that differ from GPT-2's, with the same weights in the end."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from attnlab.checking.comparison import NEGLIGIBLE, Submission, path_in_block
from attnlab.checking.mutants import Code, parsed
from attnlab.checking.replaced import beside
from attnlab.errors import AttnlabError
from attnlab.forward.attention import Attention
from attnlab.steps import Graph, Run
from attnlab.support.messages import Message

# ---- the table -----------------------------------------------------------------------------------


def of(names: str, code: str) -> dict[str, str]:
    """The same code for several steps of attention."""
    return {f"attention.{name}": code for name in names.split()}


# What the user's scores hide is right; a score that they don't hide may be wrong.
HIDDEN = f"~mask & (mine <= mine.max(axis=-1, keepdims=True) - {NEGLIGIBLE})"

# By sentence: for each step that differs, code that gives GPT-2's numbers, from the user's, `mine`,
# and other steps, or the name of the step that has the user's numbers.
ORDERS: dict[str, dict[str, str]] = {
    "Q is divided by {scale} already": of("W_Q b_Q Q raw_scores", "mine * scale"),
    "K is divided by {scale} already": of("W_K b_K K raw_scores", "mine * scale"),
    "Q and K are each divided by the root of {scale}": (
        of("W_Q W_K b_Q b_K Q K", "mine * scale**0.5") | of("raw_scores", "mine * scale")
    ),
    "the scores aren't divided by {scale} yet": of("scores masked_scores", "mine / scale"),
    "keys are the rows of your matrices, queries their columns": of(
        "raw_scores scores masked_scores weights", "mine.swapaxes(-2, -1)"
    ),
    "the scores are masked already": (
        of("raw_scores", f"np.where({HIDDEN}, raw_scores, mine)") | of("scores", "masked_scores")
    ),
    "the weights aren't divided by the sum of their row yet": of(
        "weights", "mine / mine.sum(axis=-1, keepdims=True)"
    ),
    "LayerNorm's gain and bias are left to the next matrix": dict.fromkeys(
        ("attention.X", "mlp.X", "final"), "mine * gain + bias"
    ),
    "attention's output has the residual stream added already": {"attention.output": "parent.mid"},
    "the MLP's output has the residual stream added already": {"mlp.output": "parent.output"},
}

# By an order's last step: the step that shows whether the rest of the user's code allows for the
# order; for others, it is weights.
SHOWN_BY = {"final": "Q", "attention.weights": "context"}
SHOWN_BY |= {"attention.output": "mid", "mlp.output": "output"}

# A mask changes numbers by more than this multiple of what other mistakes do.
MUCH = 1000

# ---- reading the user's numbers ------------------------------------------------------------------


def table_name(graph: Graph, path: str) -> str:
    """The name of a step in tables of orders and mistakes, without its block and head."""
    path = re.sub(r"heads\.\d+\.", "", path)
    return f"attention.{path}" if issubclass(graph.root, Attention) else path_in_block(path)


def in_another_order(
    submitted: list[Submission],
) -> tuple[list[Submission], list[Message], bool]:
    """Read differing steps in another order, where they then agree.

    Returns the steps, a note on each order, and whether later steps agree, which confirms them all.
    """
    run, read = submitted[0].run, submitted
    changed = defaultdict[str, list[str]](list)  # the paths that each order changes
    for n in range(len(read)):
        options = {}
        for order, codes in ORDERS.items() if not read[n].agrees else ():
            if is_closer(in_order(read[n], codes), read[n]):
                options[order] = [x if x.agrees else in_order(x, codes) for x in read]
        if options:
            order = max(options, key=lambda order: sum(x.agrees for x in options[order]))
            given, read = read, options[order]
            changed[order] += [x.path for x, old in zip(read, given, strict=True) if x is not old]
    witnesses = [x for x, old in zip(read, submitted, strict=True) if x.agrees and x is old]
    notes, is_confirmed = [], True
    for order, paths in changed.items():
        follows = [Run.changing(run, [path]).depends for path in paths]
        found = [next((x.name for x in witnesses if f(x.path)), "") for f in follows]
        step, template = found[-1], "Another order, the same {step}: {sentence}."
        if not all(found):
            step, is_confirmed = SHOWN_BY.get([*ORDERS[order]][-1], "weights"), False
            template = (
                "Perhaps another order: {sentence}. That is right if the rest of your code allows "
                "for it; check your {step}, too."
            )
        notes.append(Message(template, step=step, sentence=Message(order, scale=scale_in(run))))
    return read, notes, is_confirmed


def is_closer(read: Submission, step: Submission) -> Any:
    """Whether a step agrees in another order, or its mask does: other cells may still differ."""
    return read.agrees or read.difference.max() < step.difference.max() / MUCH


def in_order(step: Submission, codes: Mapping[str, str]) -> Submission:
    """The user's numbers read in another order; as they are if it doesn't change this step."""
    if not (text := codes.get(table_name(step.run.graph, step.path))):
        return step
    code = Code([("", parsed(text))])
    try:
        read = replace(step, path=beside(step.path, text))
        if "mine" in code.names:
            others = {x: step.run.value(beside(step.path, x)) for x in code.names if x != "mine"}
            layouts = (code.value({**others, "mine": x.astype(np.float64)}) for x in step.layouts)
            read = replace(step, layouts=tuple(layouts))
        return read if read.layouts[0].shape == read.expected.shape else step
    except (AttnlabError, KeyError):  # this type of result has no such step
        return step


def scale_in(run: Run) -> str:
    """The divisor of the scores in words: √Dk in GPT-2, or the number that was given."""
    if "scale" in run.graph.given:
        return f"{run.value('scale'):g}"
    return run.graph.formulas.get("scale", "√Dk")
