"""Explain a row of weights: the formulas of a weight, evaluated for all keys."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from attnlab.forward.attention import Attention
from attnlab.steps.labels import token_axes
from attnlab.support.messages import Message
from attnlab.support.tables import ELLIPSIS, elide
from attnlab.views.explanation import Explanation, Line, Parts, Term, TermTable
from attnlab.views.purposes import purpose
from attnlab.views.step_number import StepNumber, as_json, lines_of

# Columns of V that the table shows.
COLUMNS_SHOWN = 7

# The steps of a row of weights.
STEPS = ("raw_scores", "scores", "masked_scores", "weights")


def explain_row(attention: Attention, query: int) -> Explanation:
    """Explain a row of weights in a table of all keys, then the values."""
    names = [*STEPS[:2], "mask", *STEPS[2:], "dropout_mask"]
    steps = {
        name: StepNumber.of(attention, name, (query, slice(None)))
        for name in names
        if getattr(attention, name) is not None
    }
    for name in STEPS:
        steps[name].verify(steps[name].expected)
    weights, scale = steps["weights"], StepNumber.of(attention, "scale", ())
    queries, keys = (axis.numbered_labels for axis in token_axes(attention))
    maximum = int(steps["masked_scores"].stored.argmax())
    intermediate = {name: weights.results[name].value.tolist() for name in ("shifted", "exp")}
    row_sum = float(weights.results["row_sum"].value)

    columns: dict[str, Sequence[Any]] = {}
    for name in ("raw_scores", "scores", "mask", "masked_scores"):
        columns |= columns_of(steps[name])
    columns |= {"- maximum": intermediate["shifted"], "exp": intermediate["exp"]}
    if "dropout_mask" in steps:
        columns["softmax"] = weights.results["softmax"].value.tolist()
        columns |= {"dropout_mask": terms(steps["dropout_mask"], steps["dropout_mask"].stored)}
    columns |= columns_of(weights)
    rows: list[Parts] = [[Message("key"), *columns]]
    for key, name in enumerate(keys):
        cells = (column[key] for column in columns.values())
        rows.append([name, *(x if isinstance(x, Term) else Term(x) for x in cells)])
    sums = {"exp": row_sum, "weights": math.fsum(weights.stored.tolist())}
    footer = [Message("sum"), *(Term(sums[name]) if name in sums else "" for name in columns)]

    shown = ["raw_scores", "scale", "scores", "mask", "masked_scores", "weights"]
    shown += ["dropout_mask"] if "dropout_mask" in steps else []
    (scaled,) = lines_of(scale)
    assert isinstance(scaled, Line)
    summary = Message(
        "scale = {scale}; the row's maximum is {maximum}, at key {key}; - maximum is the masked "
        "score minus it, and softmax is exp / sum of exp",
        scale=scaled.text,
        maximum=Term(steps["masked_scores"].stored[maximum]),
        key=keys[maximum],
    )
    context = attention.context[query]
    edited = [name for name in (*STEPS, "mask") if attention.is_edited(name)]
    unedited = {name: as_json(steps[name].computed) for name in edited}
    if attention.is_edited("context"):
        unedited["context"] = as_json(attention.unedited("context")[query])
    if attention.is_edited("scale"):
        unedited["scale"] = as_json(scale.computed)
    numbers = {
        "query": query,
        "key": None,
        "scale": as_json(scale.stored),
        "maximum": float(steps["masked_scores"].stored[maximum]),
        "row_sum": row_sum,
        "dropout_mask": None,
        **{name: as_json(step.stored) for name, step in steps.items()},
        **intermediate,
        "context": as_json(context),
        "unedited": unedited,
    }
    lines: list[Line | TermTable] = [
        *(Line(attention.heading_of(name), []) for name in shown),
        Line(summary, []),
        TermTable("", rows, [footer]),
        values_table(attention, query, keys, weights),
    ]
    title = Message(
        "{title}: the weights and context of query {query}",
        title=attention.title,
        query=queries[query],
    )
    return Explanation(title, purpose("weights"), numbers, lines)


def terms(step: StepNumber, row: Any) -> list[Term]:
    query, _ = step.index
    return [Term(x, path=step.path, index=(query, key)) for key, x in enumerate(row.tolist())]


def columns_of(step: StepNumber) -> dict[str, Sequence[Any]]:
    """The columns of a step: its numbers, after the unedited ones if it is edited."""
    columns: dict[str, Sequence[Any]] = {step.name: terms(step, step.stored)}
    if step.result.is_edited(step.name):
        unedited = Message("{name}, unedited", name=step.name)
        return {unedited: step.computed.tolist(), **columns}
    return {} if step.name == "mask" else columns  # masked_scores shows the mask


def values_table(
    attention: Attention, query: int, keys: Sequence[str], weights: StepNumber
) -> TermTable:
    """The weights and V, with the weighted sum below; of many columns, the first and the last."""
    columns = elide(attention.V.shape[1], COLUMNS_SHOWN)
    context = {j: StepNumber.of(attention, "context", (query, j)) for j in columns if j is not None}
    for step in context.values():
        step.verify(step.expected)
    path = f"{attention._prefix}V"

    def line(name: str, weight: Any, numbers: Iterable[Any]) -> Parts:
        cells = dict(zip(context, numbers, strict=True))
        return [name, weight, *(ELLIPSIS if j is None else cells[j] for j in columns)]

    rows = [line(Message("key"), "weights", (f"V {j}" for j in context))]
    for key, (name, weight) in enumerate(zip(keys, terms(weights, weights.stored), strict=True)):
        numbers = (Term(attention.V[key, j].item(), path=path, index=(key, j)) for j in context)
        rows.append(line(name, weight, numbers))
    computed = (Term(as_json(x.computed), path=x.path, index=x.index) for x in context.values())
    feet = [line(Message("sum of weight · V"), "", computed)]
    if attention.is_edited("context"):
        stored = (Term(as_json(step.stored)) for step in context.values())
        feet.append(line(Message("edited here"), "", stored))
    return TermTable(attention.heading_of("context"), rows, feet)
