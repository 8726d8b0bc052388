"""Where a token's attention goes, in a sentence, as on the page: `sources/attended.js`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from attnlab.steps import Result
from attnlab.support.messages import Message
from attnlab.support.sink import NOTABLE, Attended
from attnlab.support.tables import percent
from attnlab.views.labelled_step import labelled_step


def attention_in_words(attention: Result, query: int) -> list[Message]:
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
    first = Message("the first token, “{key}”", key=keys.labels[0])
    names = {"query": queries.labels[query], "first": first}
    rest = percent(attended.on_first)
    if attended.kind == "alone":
        return [Message("“{query}” is the first token and sees only itself.", **names)]
    if attended.kind == "rests":
        text = "“{query}” rests: {rest} of its attention is on {first}."
        return [Message(text, **names, rest=rest)]
    key = attended.key
    assert key is not None
    visible = np.flatnonzero(attended.others)
    share = percent(float(weights[key]))
    # Those with the same share, as it is written.
    tied = [int(j) for j in visible if j != key and percent(float(weights[j])) == share]
    is_uniform = attended.kind == "uniform"
    is_uniform |= attended.kind == "spreads" and len(tied) == visible.size - 1
    each = Message("{share} each", share=share) if tied else share
    values: dict[str, object] = {"count": str(visible.size), "share": share, "rest": rest}
    values |= {**names, "keys": _keys(key, tied, own, keys.labels)}
    # What has most of the attention comes first.
    if attended.on_first >= NOTABLE and attended.on_first > weights[key]:
        resting = "{rest} of the attention of “{query}” rests on {first}."
        goal = Message(
            "Of the other tokens, it gives {keys} the most, {share}.", **values | {"share": each}
        )
        if is_uniform:
            goal = Message("The other {count} tokens get {share} each.", **values)
        return [Message(resting, **values), goal]
    if is_uniform:
        goal = Message("“{query}” attends to {count} tokens equally, {share} each.", **values)
    elif attended.kind == "spreads":
        template = "“{query}” spreads its attention: it gives {keys} the most, {share}."
        goal = Message(template, **values | {"share": each})
    elif tied:
        goal = Message("“{query}” looks at {keys} ({share} of its attention each).", **values)
    else:
        goal = Message("“{query}” looks at {keys} ({share} of its attention).", **values)
    resting = "{rest} of its attention rests on {first}."
    return [goal] if attended.on_first < NOTABLE else [goal, Message(resting, **values)]


def _keys(key: int, tied: Sequence[int], own: int, labels: Sequence[str]) -> Message:
    """The keys with the most attention: `key`, and others with the same share."""
    if own in tied:
        key, tied = own, [key, *(j for j in tied if j != own)]
    is_own, values = key == own, {"key": labels[key], "count": str(len(tied))}
    if not tied:
        return Message("itself") if is_own else Message("“{key}”", **values)
    if len(tied) > 1:
        others = "itself and {count} others" if is_own else "“{key}” and {count} others"
        return Message(others, **values)
    one = "itself and “{other}”" if is_own else "“{key}” and “{other}”"
    return Message(one, **values, other=labels[tied[0]])
