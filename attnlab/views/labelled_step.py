"""A step as every view shows it: heading with formula, array, labelled axes, colour scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from attnlab.equations import AnyArray, identity
from attnlab.errors import InvalidTypeError, InvalidValueError, quoted
from attnlab.steps import Result
from attnlab.steps.labels import Axis, axis_of, numbered_label
from attnlab.support.checks import as_index, check_kind
from attnlab.support.messages import Message, say
from attnlab.support.scale import WEIGHTS, Scale
from attnlab.support.tables import elide, label, table

# The hint that ends the note in a view without some of the tokens.
SHOW_ALL = "tokens=slice(None) shows all"

MASKED = "-"  # a masked cell in a text; other cells with a weight of 0 show the number

TOKENS_SHOWN = 24  # the largest number of tokens along an axis of a view


@dataclass(frozen=True, eq=False)
class LabelledStep:
    """A step with labels; `print` shows it as a table."""

    name: str
    heading: str  # includes the formula
    array: AnyArray
    axes: tuple[Axis, ...]  # one per axis of the array
    masked: AnyArray | None  # bool with the array's shape; None if the step has no mask

    @property
    def is_token_by_token(self) -> bool:
        """Whether the step has a number for each query and key."""
        return [axis.name for axis in self.axes[-2:]] == ["query", "key"]

    @property
    def is_weights(self) -> bool:
        """Whether the numbers are weights, not gradients of weights or negative edited values."""
        return (
            self.name == "weights"
            and self.heading.startswith("weights")
            and not ((self.array < 0).any() or np.isnan(self.array).any())
        )

    @property
    def scale(self) -> Scale:
        return WEIGHTS if self.is_weights else Scale.of(self.array)

    @property
    def decimals(self) -> int:
        return 2 if self.is_token_by_token else 4

    def __str__(self) -> str:
        rows, columns = self.axes
        numbers = table(
            self.array,
            rows=rows.labels,
            columns=columns.labels,
            decimals=self.decimals,
            max_rows=16 if rows.has_tokens else 7,
            max_columns=16 if self.is_token_by_token else 5,
        )
        m, n = self.array.shape
        return f"{say(self.heading)}    {m} x {n}\n{numbers}\n"


def check_step(result: Result, name: str) -> None:
    """Raise if the result has no such step."""
    if not isinstance(name, str) or name not in result._table_steps:
        inputs = (n for n in result._table_steps if result.steps[n].equation is None)
        absent = [n for n in inputs if getattr(result._fork(), n) is None]
        steps = ", ".join(n for n in result._table_steps if n not in absent)
        raise InvalidValueError(f"{result.title} has no step {quoted(name)}; its steps are {steps}")


def labelled_step(result: Any, name: str) -> LabelledStep:
    """A step of a result with labels. The result doesn't keep the step if it is computed here."""
    check_step(result, name)
    fork = result._fork()
    array, axes = getattr(fork, name), result.axes_of(name).split()
    if array is None:
        raise InvalidValueError(f"{result.title} was made without {name}")
    array = np.asarray(array)  # the scale is a float
    if array.ndim != len(axes):
        raise InvalidValueError(
            f"{name} of shape {array.shape} has more axes than {' '.join(axes)}; use a result "
            "of one sequence"
        )
    labelled = tuple(axis_of(result, axis, n) for axis, n in zip(axes, array.shape, strict=True))
    masked = None
    names = result._table_steps
    # The mask and the steps after it have masked cells.
    if axes[-2:] == ["Tq", "Tk"] and names.index(name) >= names.index("mask"):
        hidden = ~fork.mask
        if fork.score_bias is not None:
            hidden = hidden | np.isneginf(fork.score_bias)
        masked = np.broadcast_to(hidden, array.shape)
        # A number that an edit put into a masked cell of a computed step is shown.
        if result.steps[name].equation not in (None, identity):
            masked = masked & ((array == 0) | np.isneginf(array))
    return LabelledStep(name, result._heading_of(name), array, labelled, masked)


def labelled_matrix(result: Result, name: str, all_heads: str) -> LabelledStep:
    """A step of one head with labels: a matrix or a row.

    `all_heads` ends the error message: it says how to show the step of all heads.
    """
    step = labelled_step(result, name)
    if not step.axes:
        raise InvalidValueError(f"{name} is a single number, {step.array:.4g}, not a matrix or row")
    if len(step.axes) > 2:
        raise InvalidValueError(
            f"{result.title} has {name} of shape {step.array.shape}; first choose a head, "
            f"such as .heads[0], or {all_heads}"
        )
    return step


def indices_of(axis: Axis, limit: int, tokens: slice | None = None) -> list[int | None]:
    """The indices along an axis that a view shows, at most `limit`; None is a gap.

    Of more tokens, the first and the last are shown. `tokens` selects other tokens, and axes
    without tokens are then shown whole.
    """
    count = len(axis.positions)
    if tokens is None:
        return elide(count, limit, limit // 2 if axis.is_of_tokens else 1)
    check_kind(tokens, slice, "tokens")
    if not axis.is_of_tokens:
        return [*range(count)]
    start = axis.positions.start
    try:
        wanted = range(start + count)[tokens]
    except (TypeError, ValueError):
        raise InvalidTypeError(
            f"tokens must be a slice of integers, such as slice(-40, None); got {quoted(tokens)}"
        ) from None
    indices = [position - start for position in wanted if position in axis.positions]
    if not indices:
        raise InvalidValueError(
            f"{quoted(tokens)} selects no {axis.name}; expected {start} to {start + count - 1}"
        )
    return [*indices]


def omission_note(axis: Axis, indices: Sequence[int | None]) -> str:
    """A note on what is left out along an axis; "" if nothing is left out."""
    count, shown = len(axis.positions), len(indices)
    named = say(" ({axis})", axis=say(axis.name)) if axis.name else ""
    if None in indices:
        first = indices.index(None)
        last = shown - first - 1
        template = "the first {first} and the last of {count}{named}"
        if last > 1:
            template = "the first {first} and the last {last} of {count}{named}"
        return say(template, first=first, last=last, count=count, named=named)
    if shown == count:
        return ""
    first, last = (axis.positions[i] for i in (indices[0], indices[-1]) if i is not None)
    positions = first if first == last else say("{first} to {last}", first=first, last=last)
    template = "{shown} of {count}{named}, {range}"
    return say(template, shown=shown, count=count, named=named, range=positions)


def per_head(attention: Result) -> tuple[str, ...]:
    """The steps that an attention has for each head."""
    return tuple(n for n in attention._table_steps if attention.axes_of(n).startswith("H "))


def vocabulary_index(result: Result, token: int | str, count: int) -> tuple[int, str]:
    """The id of a token of the vocabulary, chosen by id or text, and its description."""
    vocabulary = getattr(result, "vocabulary", None)
    if vocabulary is None:
        index = as_index(token, "token id", count)
        return index, str(index)
    entry = vocabulary.lookup(token)
    return entry.id, numbered_label(entry.id, label(entry.readable))


def index_label(result: Result, axis: str, index: int, count: int) -> Message:
    """The name of a key, or of a token of the vocabulary, on an axis of length `count`."""
    if axis == "vocab":
        return Message("id {id}", id=vocabulary_index(result, index, count)[1])
    return Message("key {j}", j=axis_of(result, axis, count).numbered_labels[index])
