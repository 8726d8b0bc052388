"""Parts of results: read-only arrays, and numbered results such as blocks and heads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import SupportsIndex, TypeVar, overload

import numpy as np

from attnlab.errors import InvalidTypeError, OutOfRangeError, quoted
from attnlab.support.checks import as_number, is_integer
from attnlab.support.console import StdoutSafe
from attnlab.support.messages import say

Value = TypeVar("Value")


def read_only(value: Value) -> Value:
    """Return `value`, which is made read-only if it is an array."""
    if isinstance(value, np.ndarray):
        value.flags.writeable = False
    return value


def sliced(items: tuple[Value, ...], index: slice) -> tuple[Value, ...]:
    """The items of a slice; raise unless its bounds are integers."""
    try:
        return items[index]
    except (TypeError, ValueError) as error:
        raise InvalidTypeError(f"a slice takes integers; got {quoted(index)}: {error}") from None


class Numbered(StdoutSafe, tuple[Value, ...]):
    """A tuple of results of one kind, such as "layer"; errors list the valid indices."""

    kind: str

    def __new__(cls, kind: str, results: Iterable[Value]) -> Numbered[Value]:
        numbered = super().__new__(cls, results)
        numbered.kind = kind
        return numbered

    def __getnewargs__(self) -> tuple[str, tuple[Value, ...]]:  # for copies and pickles
        return self.kind, tuple(self)

    @overload
    def __getitem__(self, index: SupportsIndex) -> Value: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Value, ...]: ...
    def __getitem__(self, index: SupportsIndex | slice) -> Value | tuple[Value, ...]:
        return sliced(tuple(self), index) if isinstance(index, slice) else self.item(index)

    def item(self, number: SupportsIndex) -> Value:
        """The result with this number; negative numbers count from the end."""
        number = as_number(number)
        if not is_integer(number):
            raise InvalidTypeError(f"a {self.kind} number must be an integer; got {quoted(number)}")
        try:
            return super().__getitem__(number)
        except IndexError:
            raise OutOfRangeError(
                f"there is no {self.kind} {quoted(number)}; {self.kind}s are 0 to {len(self) - 1}"
            ) from None

    def __repr__(self) -> str:
        return "\n".join(say(getattr(result, "title", repr(result))) for result in self)
