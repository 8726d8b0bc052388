"""Choose a token or component by index, text or symbol, and describe the choice."""

from __future__ import annotations

from typing import Any

from attnlab.errors import InvalidTypeError, InvalidValueError, OutOfRangeError, quoted
from attnlab.support.checks import as_number, is_integer
from attnlab.support.messages import Message
from attnlab.views.shown import Result, axis_of, label, numbered_label


def as_index(index: Any, kind: str, count: int) -> int:
    """An index from 0 to count - 1; negative ones count from the end."""
    index = as_number(index)
    if not is_integer(index):
        raise InvalidTypeError(
            "{kind} must be an integer; got {index}", kind=Message(kind), index=quoted(index)
        )
    if not -count <= index < count:
        kinds = "queries" if kind == "query" else f"{kind}s"
        raise OutOfRangeError(
            "{kind} {index} is out of range; {kinds} are 0 to {last}",
            kind=Message(kind),
            index=quoted(index),
            kinds=kinds,
            last=count - 1,
        )
    return int(index) % count


def token_index(result: Result, kind: str, token: int | str, count: int) -> int:
    """The index of a query, key or position, chosen by number or by its token's text or symbol."""
    if not isinstance(token, str):
        return as_index(token, kind, count)
    is_from_memory = kind == "key" and result.memory_tokens is not None
    tokens = result.memory_tokens if is_from_memory else result.tokens
    if not tokens:
        raise InvalidValueError(
            "{title} has no tokens: give the number of a {kind}, not {requested}",
            title=result.title,
            kind=Message(kind),
            requested=quoted(token),
        )
    position: int = tokens.find(token)
    return position + (result.tokens_before if kind == "key" else 0)


def vocabulary_index(result: Result, token: int | str, count: int) -> tuple[int, str]:
    """The id of a token of the vocabulary, chosen by id or text, and its description."""
    vocabulary = getattr(result, "vocabulary", None)
    if vocabulary is None:
        index = as_index(token, "token id", count)
        return index, str(index)
    entry = vocabulary.lookup(token)
    return entry.id, numbered_label(entry.id, label(entry.symbol))


def index_label(result: Result, axis: str, index: int, count: int) -> Message:
    """The name of a key, or of a token of the vocabulary, on an axis of length `count`."""
    if axis == "vocab":
        return Message("id {id}", id=vocabulary_index(result, index, count)[1])
    return Message("key {j}", j=axis_of(result, axis, count).numbered_labels[index])
