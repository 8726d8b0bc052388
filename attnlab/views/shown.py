"""A step as every view shows it: heading with formula, array, labelled axes, colour scale.

Views use results and tokens without importing their classes, whose modules import the views.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np

from attnlab.equations import AnyArray
from attnlab.errors import InvalidTypeError, InvalidValueError, MissingExtraError, quoted
from attnlab.support.checks import check_kind
from attnlab.support.messages import say
from attnlab.support.tables import elide, printable, table
from attnlab.views.scale import WEIGHTS, Scale

Result: TypeAlias = Any
Token: TypeAlias = Any

# What the axes of tokens are called.
TOKEN_AXES = {"Tq": "query", "Tk": "key", "T": "position"}

# The hint in a view that leaves some tokens out.
SHOW_ALL = "tokens=slice(None) shows all"

# How text shows a masked cell; a weight of 0 is shown as a number.
MASKED = "-"

# The most tokens along an axis of a view.
TOKENS_SHOWN = 24

# The most characters of a token in a label.
LABEL_LENGTH = 16


@dataclass(frozen=True)
class Axis:
    """One axis of a step.

    Attributes
    ----------
    name : "query", "key" or "position" for tokens, otherwise a size's name, such as "Dk"
    positions : for each index, its position in the text, or the index itself
    tokens : for each index, its token; None if unknown, as for keys from a cache
    names : for each index, its name; () for tokens and numbers
    """

    name: str
    positions: range
    tokens: tuple[Token | None, ...]
    names: tuple[str, ...] = ()

    @property
    def labels(self) -> tuple[str, ...]:
        """Symbols of tokens; for other indices, names or positions."""
        names = zip(self.names or self.positions, self.tokens, strict=True)
        return tuple(str(n) if token is None else label(token.symbol) for n, token in names)

    @property
    def numbered_labels(self) -> tuple[str, ...]:
        """Positions with their labels, such as `5 (Ġhot)`."""
        return tuple(map(numbered_label, self.positions, self.labels))

    def in_words(self, index: int) -> str:
        """An index in words, such as `query 5 (Ġhot)`, or `Ġhot` on an axis without a name."""
        return (
            f"{say(self.name)} {self.numbered_labels[index]}" if self.name else self.labels[index]
        )

    @property
    def has_tokens(self) -> bool:
        """Whether any token is known."""
        return any(token is not None for token in self.tokens)

    @property
    def is_of_tokens(self) -> bool:
        """Whether its indices are tokens, known or not."""
        return self.name in TOKEN_AXES.values()


@dataclass(frozen=True, eq=False)
class LabelledStep:
    """A step with labels; `print` shows it as a table.

    Attributes
    ----------
    name, heading : the step's name, and its heading with the formula
    array : the numbers
    axes : one `Axis` per axis of the array
    masked : bool, of the array's shape, True for masked cells; None if the step has no mask
    """

    name: str
    heading: str
    array: AnyArray
    axes: tuple[Axis, ...]
    masked: AnyArray | None

    @property
    def is_token_by_token(self) -> bool:
        """Whether it has a number for each query and key."""
        return [axis.name for axis in self.axes[-2:]] == ["query", "key"]

    @property
    def is_weights(self) -> bool:
        """Whether these are attention weights, not gradients or an edit outside 0 to 1."""
        return (
            self.name == "weights"
            and self.heading.startswith("weights")
            and not ((self.array < 0).any() or np.isnan(self.array).any())
        )

    @property
    def scale(self) -> Scale:
        """Its colour scale."""
        return WEIGHTS if self.is_weights else Scale.of(self.array)

    @property
    def decimals(self) -> int:
        """Decimals in a table."""
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


@dataclass(frozen=True, eq=False)
class Grid:
    """A heatmap of a result's numbers, with the attributes of `LabelledStep` that a heatmap uses.

    Attributes
    ----------
    heading : the heatmap's title; "" to show only the result's title
    array, axes : numbers (m, n) with labels of rows and columns; NaN is hatched
    texts : shown in the cells, row by row, instead of the numbers; () for the numbers
    fixed_scale : the colour scale; None for `Scale.of`
    decimals : number of decimals
    """

    heading: str
    array: AnyArray
    axes: tuple[Axis, Axis]
    texts: Sequence[Sequence[str]] = ()
    fixed_scale: Scale | None = None
    decimals: int = 2
    masked: ClassVar[None] = None

    @property
    def scale(self) -> Scale:
        return self.fixed_scale or Scale.of(self.array)


def label(text: str, length: int = LABEL_LENGTH) -> str:
    """A text with escaped control characters, cut to `length`."""
    safe = printable(text[: length + 1])
    return safe if len(safe) <= length else f"{safe[: length - 1]}…"


def numbered_label(number: int, text: str) -> str:
    """A number and its label, such as `5 (Ġhot)`; just the number if it is the label."""
    return str(number) if text == str(number) else f"{number} ({text})"


def check_step(result: Result, name: str) -> None:
    """Raise if the result has no such step."""
    if not isinstance(name, str) or name not in result._table_steps:
        inputs = (n for n in result._table_steps if result.steps[n].equation is None)
        absent = [n for n in inputs if getattr(result.fork(), n) is None]
        steps = ", ".join(n for n in result._table_steps if n not in absent)
        raise InvalidValueError(
            "{title} has no step {name}; its steps are {steps}",
            title=result.title,
            name=quoted(name),
            steps=steps,
        )


def labelled_step(result: Result, name: str) -> LabelledStep:
    """A step of a result with labels; it is computed if necessary, but not kept."""
    check_step(result, name)
    fork = result.fork()
    array, axes = getattr(fork, name), result.axes_of(name).split()
    if array is None:
        raise InvalidValueError("{title} was made without {name}", title=result.title, name=name)
    array = np.asarray(array)  # the scale is a float
    if array.ndim != len(axes):
        raise InvalidValueError(
            "{name} of shape {shape} has more axes than {axes}; use a result of one sequence",
            name=name,
            shape=array.shape,
            axes=" ".join(axes),
        )
    named = tuple(axis_of(result, axis, n) for axis, n in zip(axes, array.shape, strict=True))
    masked = None
    # The steps from the mask on have masked cells.
    if axes[-2:] == ["Tq", "Tk"] and result._table_steps.index(name) >= result._table_steps.index(
        "mask"
    ):
        masked = np.broadcast_to(~fork.mask, array.shape)
        if name in ("masked_scores", "weights"):  # an edit may put a number there
            masked = masked & ((array == 0) | np.isneginf(array))
    return LabelledStep(name, result.heading_of(name), array, named, masked)


def labelled_matrix(attention: Result, name: str, all_heads: str) -> LabelledStep:
    """A step of one head with labels: a matrix or a row.

    Parameters
    ----------
    all_heads : how to show the step of all heads, for the error message
    """
    step = labelled_step(attention, name)
    if not step.axes:
        raise InvalidValueError(
            "{name} is a single number, {number}, not a matrix or row",
            name=name,
            number=f"{step.array:.4g}",
        )
    if len(step.axes) > 2:
        raise InvalidValueError(
            "{title} has {name} of shape {shape}; first choose a head, such as "
            ".heads[0], or {all_heads}",
            title=attention.title,
            name=name,
            shape=step.array.shape,
            all_heads=all_heads,
        )
    return step


def axis_of(result: Any, axis: str, length: int) -> Axis:
    """An axis with its tokens; cached keys have none."""
    name = TOKEN_AXES.get(axis, axis)
    tokens = result.tokens
    if axis == "Tk" and result.memory_tokens is not None:
        tokens = result.memory_tokens or None
    if tokens is None or axis not in TOKEN_AXES:
        return Axis(name, range(length), (None,) * length)
    cached = result.tokens_before
    if axis == "Tk":
        return Axis(name, range(length), ((None,) * cached + tuple(tokens))[:length])
    return Axis(name, range(cached, cached + length), tuple(tokens))


def token_axes(attention: Result) -> tuple[Axis, Axis]:
    """The axes of an attention's queries and keys."""
    Tq, Tk = attention.scores_shape[-2:]
    return axis_of(attention, "Tq", Tq), axis_of(attention, "Tk", Tk)


def indices_of(axis: Axis, limit: int, tokens: slice | None = None) -> list[int | None]:
    """The indices along an axis that a view shows; None is a gap.

    Parameters
    ----------
    limit : how many fit; of more tokens, the first and the last are shown
    tokens : which tokens of the text to show instead; other axes are then shown whole
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
            "tokens must be a slice of integers, such as slice(-40, None); got {tokens}",
            tokens=quoted(tokens),
        ) from None
    indices = [position - start for position in wanted if position in axis.positions]
    if not indices:
        raise InvalidValueError(
            "{tokens} selects no {name}; expected {start} to {last}",
            tokens=quoted(tokens),
            name=axis.name,
            start=start,
            last=start + count - 1,
        )
    return [*indices]


def omission_note(axis: Axis, indices: Sequence[int | None]) -> str:
    """A note on what is left out along an axis; "" if nothing is."""
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
    return tuple(
        name for name in attention._table_steps if attention.axes_of(name).startswith("H ")
    )


def missing_extra(error: ModuleNotFoundError, name: str) -> MissingExtraError:
    """The error for a missing library of an optional extra."""
    return MissingExtraError(
        "this needs {library}: pip install {library} (attnlab's optional extra {extra})",
        library=error.name,
        extra=repr(name),
    )
