"""Where a token's attention goes, in a sentence, as on the page: `sources/attended.js`."""

from __future__ import annotations

import numpy as np

from attnlab.forward.attention import Attention
from attnlab.support.messages import Message
from attnlab.support.rest import NOTABLE, Attended
from attnlab.support.tables import percent
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
    share = float(weights[key])
    names |= {"key": keys.labels[key], "share": percent(share), "rest": rest}
    names["count"] = str(int(attended.others.sum()))
    # What has most of the attention comes first.
    if attended.rest >= NOTABLE and attended.rest > share:
        resting = "{rest} of the attention of “{query}” rests on the first token, “{first}”."
        return [Message(resting, **names), Message(_of_the_others(attended, own), **names)]
    goal = Message(_goal(attended, own), **names)
    resting = "{rest} of its attention rests on the first token, “{first}”."
    return [goal] if attended.rest < NOTABLE else [goal, Message(resting, **names)]


def _goal(attended: Attended, own: int) -> str:
    """The sentence about where attention goes besides the first token."""
    if attended.kind == "uniform":
        return "“{query}” attends to {count} tokens equally, {share} each."
    if attended.kind == "spreads":
        if attended.key == own:
            return "“{query}” spreads its attention: it gives itself the most, {share}."
        return "“{query}” spreads its attention: “{key}” gets the most, {share}."
    if attended.key == own:
        return "“{query}” looks at itself ({share} of its attention)."
    return "“{query}” looks at “{key}” ({share} of its attention)."


def _of_the_others(attended: Attended, own: int) -> str:
    """The same after a sentence about the first token, which has more of the attention."""
    if attended.kind == "uniform":
        return "The other {count} tokens get {share} each."
    if attended.key == own:
        return "Of the other tokens, it gives itself the most, {share}."
    return "Of the other tokens, “{key}” gets the most, {share}."
