"""Labels of a step's numbers: each axis names its indices as tokens, heads or components."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from attnlab.equations import AnyArray
from attnlab.errors import InvalidValueError, quoted
from attnlab.steps.result import Result
from attnlab.support.checks import as_index
from attnlab.support.messages import say
from attnlab.support.scale import Scale
from attnlab.support.tables import label
from attnlab.text.tokens import Token, Tokens

# What the axes of tokens are called.
TOKEN_AXES = {"Tq": "query", "Tk": "key", "T": "position"}


@dataclass(frozen=True)
class Axis:
    """One axis of a step."""

    name: str  # "query", "key" or "position" for tokens; else a size's name, such as "Dk"
    positions: range  # for each index, its position in the text, or the index itself
    tokens: tuple[Token | None, ...]  # None if unknown, as for keys from a cache
    names: tuple[str, ...] = ()  # a name for each index; () for tokens and numbers
    n_head: int = 0  # the heads of one layer, if the axis has the heads of all layers; else 0

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """A label for each index: the readable token, or else the name or position."""
        names = zip(self.names or self.positions, self._readable, strict=True)
        return tuple(str(n) if text is None else label(text) for n, text in names)

    @property
    def _readable(self) -> tuple[str | None, ...]:
        """The tokens in readable form; None for unknown tokens."""
        if not self.is_of_tokens:
            return tuple(None if token is None else token.readable for token in self.tokens)
        # Tokens of a text are decoded together, since several may share one character.
        known = iter(Tokens(token for token in self.tokens if token is not None).readable)
        return tuple(None if token is None else next(known) for token in self.tokens)

    @property
    def numbered_labels(self) -> tuple[str, ...]:
        """Positions with their labels, such as `5 (Ġhot)`."""
        return tuple(map(numbered_label, self.positions, self.labels))

    @property
    def columns(self) -> dict[str, Any]:
        """Columns of its indices for a data frame, by name; {} for an axis without a name."""
        if self.n_head:  # two columns, so that a table can be grouped by layer
            prefix = "" if self.name == "head" else f"{self.name}_"
            layers, heads = np.divmod(self.positions, self.n_head)
            return {f"{prefix}layer": layers, f"{prefix}head": heads}
        if self.has_tokens:
            pairs = zip(self.positions, self._readable, strict=True)
            # Whole texts: labels may be shortened.
            texts = (str(n) if text is None else text for n, text in pairs)
            return {self.name: self.positions, f"{self.name}_token": tuple(texts)}
        return {self.name: self.names or self.positions} if self.name else {}

    def in_words(self, index: int) -> str:
        """An index in words, such as `query 5 (Ġhot)`, or `Ġhot` on an axis without a name."""
        return (
            f"{say(self.name)} {self.numbered_labels[index]}" if self.name else self.labels[index]
        )

    @property
    def has_tokens(self) -> bool:
        return any(token is not None for token in self.tokens)  # tokens of cached keys are None

    @property
    def is_of_tokens(self) -> bool:
        """Whether its indices are tokens, known or not."""
        return self.name in TOKEN_AXES.values()


@dataclass(frozen=True, eq=False)
class Grid:
    """A heatmap of a result's numbers, with the attributes of `LabelledStep` that drawing uses."""

    heading: str  # "" if the result's title is enough
    array: AnyArray  # (m, n); NaN is hatched
    axes: tuple[Axis, Axis]
    texts: Sequence[Sequence[str]] = ()  # texts that the cells show instead of numbers
    fixed_scale: Scale | None = None  # None for the scale that fits `array`
    decimals: int = 2
    masked: ClassVar[None] = None  # only steps have a mask

    @property
    def scale(self) -> Scale:
        return self.fixed_scale or Scale.of(self.array)


def long_columns(axes: Sequence[Axis], numbers: Mapping[str, AnyArray]) -> dict[str, Any]:
    """Columns of a long (tidy) table, which has each number in a line with its indices."""
    columns: dict[str, Any] = {}
    shape = [len(axis.positions) for axis in axes]
    indices = np.indices(shape).reshape(len(axes), math.prod(shape))
    for axis, index in zip(axes, indices, strict=True):
        # Two axes of heads have the same column names; those of the second begin with other_.
        for name, values in axis.columns.items():
            is_text = isinstance(values[0], str)  # if a Message, the f-string makes it English
            array = np.array([f"{x}" for x in values], object) if is_text else np.asarray(values)
            columns[f"other_{name}" if name in columns else name] = array[index]
    return columns | {name: array.ravel() for name, array in numbers.items()}


def numbered_label(number: int, text: str) -> str:
    """A number and its label, such as `5 (Ġhot)`; just the number if the label is the number."""
    return str(number) if text == str(number) else f"{number} ({text})"  # not “5 (5)”


def axis_of(result: Result, axis: str, length: int) -> Axis:
    """An axis with its tokens; cached keys have no tokens."""
    name = TOKEN_AXES.get(axis, axis)
    tokens = result.tokens
    if axis == "Tk" and result.memory_tokens is not None:
        tokens = result.memory_tokens or None  # () stands for keys without names
    if tokens is None or axis not in TOKEN_AXES:
        return Axis(name, range(length), (None,) * length)
    cached = result.tokens_before
    if axis == "Tk":
        # Cached keys come first; their tokens belong to earlier runs.
        return Axis(name, range(length), ((None,) * cached + tuple(tokens))[:length])
    # Queries are numbered as in the whole text, which starts with the cached tokens.
    return Axis(name, range(cached, cached + length), tuple(tokens))


def token_axes(attention: Any) -> tuple[Axis, Axis]:
    """The axes of an attention's queries and keys."""
    Tq, Tk = attention.scores_shape[-2:]
    return axis_of(attention, "Tq", Tq), axis_of(attention, "Tk", Tk)


def token_index(result: Result, kind: str, token: int | str, count: int) -> int:
    """The index of a query, key or position, chosen by number or by its token's text or symbol."""
    if not isinstance(token, str):
        return as_index(token, kind, count)  # negative numbers count from the end
    is_from_memory = kind == "key" and result.memory_tokens is not None
    tokens = result.memory_tokens if is_from_memory else result.tokens
    if not tokens:
        raise InvalidValueError(
            f"{result.title} has no tokens: give the number of a {kind}, not {quoted(token)}"
        )
    position: int = tokens.find(token)
    # `find` numbers the new tokens from 0; keys also count the cached tokens before them.
    return position + (result.tokens_before if kind == "key" else 0)
