"""Where a token's attention goes, in a sentence, as on the page: `sources/attended.js`."""

from __future__ import annotations

import numpy as np

from attnlab.forward.attention import Attention
from attnlab.support.messages import Message
from attnlab.support.rest import NOTABLE, Attended
from attnlab.views.labelled_step import labelled_step


def attention_in_words(attention: Attention, query: int) -> list[Message]:
    """The sentences about where a query's attention goes; none without tokens of one text.

    They have plain weights: the first token's as the share that rests, and the largest other one.
    """
    step = labelled_step(attention, "weights")
    queries, keys = step.axes
    if not queries.has_tokens or not keys.has_tokens or attention.memory_tokens is not None:
        return []
    own = queries.positions[query]
    weights = step.array[query]
    visible = np.ones(len(weights), bool) if step.masked is None else ~step.masked[query]
    attended = Attended(weights, visible, is_first=own == 0)
    names = {"query": queries.labels[query], "first": keys.labels[0]}
    rest = percent(attended.rest)
    if attended.kind == "alone":
        return [Message("“{query}” is the first token and sees only itself.", **names)]
    if attended.kind == "rests":
        text = "“{query}” rests: {rest} of its attention is on the first token, “{first}”."
        return [Message(text, **names, rest=rest)]
    key = attended.key
    assert key is not None
    names |= {"key": keys.labels[key], "share": percent(float(weights[key]))}
    if attended.kind == "uniform":
        count = int(attended.others.sum())
        goal = Message(
            "“{query}” attends to {count} tokens equally, {share} each.", **names, count=count
        )
    elif attended.kind == "spreads":
        goal = Message(
            "“{query}” spreads its attention: it gives itself the most, {share}."
            if key == own
            else "“{query}” spreads its attention: “{key}” gets the most, {share}.",
            **names,
        )
    else:
        goal = Message(
            "“{query}” looks at itself ({share} of its attention)."
            if key == own
            else "“{query}” looks at “{key}” ({share} of its attention).",
            **names,
        )
    if attended.rest < NOTABLE:
        return [goal]
    text = "{rest} of its attention rests on the first token, “{first}”."
    return [goal, Message(text, **names, rest=rest)]


def percent(fraction: float) -> str:
    """A fraction as a percentage, as on the page; 0 and 100 only if it is exactly 0 or 1."""
    if 0 < fraction < 0.005:
        return "< 1 %"
    if 0.9995 <= fraction < 1:
        return "> 99.9 %"
    return f"{100 * fraction:.{int(0.995 <= fraction < 1)}f} %"
