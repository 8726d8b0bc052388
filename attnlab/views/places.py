"""Tokens and components by index, text or symbol."""

from __future__ import annotations

from typing import Any

from attnlab.errors import InvalidTypeError, InvalidValueError, OutOfRangeError, quoted
from attnlab.support.checks import as_number, is_integer
from attnlab.support.messages import Message
from attnlab.views.shown import Result, axis_of, label


def place(index: Any, kind: str, count: int) -> int:
    """A checked index; negative ones count from the end."""
    index = as_number(index)
    if not is_integer(index):
        raise InvalidTypeError(f"{kind} must be an integer; got {quoted(index)}")
    if not -count <= index < count:
        kinds = "queries" if kind == "query" else f"{kind}s"
        raise OutOfRangeError(
            f"{kind} {quoted(index)} is out of range; {kinds} are 0 to {count - 1}"
        )
    return int(index) % count


def place_of(attention: Result, kind: str, requested: int | str, count: int) -> int:
    """The index of a query or key, given by number or by its token's text or symbol."""
    if not isinstance(requested, str):
        return place(requested, kind, count)
    of_memory = kind == "key" and attention.memory_tokens is not None
    tokens = attention.memory_tokens if of_memory else attention.tokens
    if not tokens:
        raise InvalidValueError(
            f"{attention.title} has no tokens: give the number of a {kind}, not {quoted(requested)}"
        )
    position: int = tokens.find(requested)
    return position + (attention.tokens_before if kind == "key" else 0)


def id_of(result: Result, requested: int | str, count: int) -> tuple[int, str]:
    """A token of the vocabulary, given by id or text: its id and its name."""
    vocabulary = getattr(result, "vocabulary", None)
    if vocabulary is None:
        number = place(requested, "token id", count)
        return number, str(number)
    token = vocabulary.named(requested)
    return token.id, position_in_words(token.id, label(token.symbol))


def number_in_words(result: Result, axis: str, number: int, count: int) -> Message:
    """Describe an index along an axis of length `count`: a key or a vocabulary token."""
    if axis == "vocab":
        return Message("id {id}", id=id_of(result, number, count)[1])
    keys = axis_of(result, axis, count)
    return Message("key {j}", j=position_in_words(keys.positions[number], keys.labels[number]))


def position_in_words(position: int, text: str) -> str:
    """A query or key in words: its position, and its symbol if it has one."""
    return str(position) if text == str(position) else f"{position} ({text})"
