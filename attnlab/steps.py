"""Results whose parts are named steps: computed on first look, then kept, and read-only.

A step is a method of one equation. `@step` says beside it which axes the array has and what the
equation is, so that code, table and description of a step are one thing:

    @step("Tq Tk", "Q Kᵀ")
    def raw_scores(self) -> Array:
        return self.Q @ transpose(self.K)

Looking at `result.raw_scores` runs the method once and keeps the array. `result.peek("raw_scores")`
gives the kept array if there is one, else computes it and keeps nothing: steps use it for what
is large and only passes through, so that a result holds no more than what was looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Generic, SupportsIndex, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from attnlab.errors import AttnlabError, InvalidTypeError, OutOfRangeError
from attnlab.tables import align

AnyArray = NDArray[Any]
Array = TypeVar("Array", bound=AnyArray)
Value = TypeVar("Value")


def read_only(value: Value) -> Value:
    """`value`; where it is an array, one that can't be written to."""
    if isinstance(value, np.ndarray):
        value.flags.writeable = False
    return value


def owned(array: Array) -> Array:
    """The array itself if it may be worked on in place, else a copy.

    What a result keeps is read-only; an array that can be written to has only passed through, and
    belongs to whoever asked for it.
    """
    return array if array.flags.writeable else array.copy()


class Step(Generic[Value]):
    """One named part of a `Result`: an array that is given, or computed on first look.

    Attributes
    ----------
    name, axes, formula : the step in words, such as raw_scores, "Tq Tk" and "Q Kᵀ"
    compute : the equation; None where the array is given when the result is made
    """

    def __init__(
        self, axes: str, formula: str = "", compute: Callable[[Any], Value] | None = None
    ) -> None:
        self.name = ""
        self.axes = axes
        self.formula = formula
        self.compute = compute
        self.__doc__ = compute.__doc__ if compute else None

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        equation = f" = {self.formula}" if self.formula else ""
        return f"<step {self.name} ({self.axes}){equation}>"

    @overload
    def __get__(self, result: None, owner: type) -> Step[Value]: ...
    @overload
    def __get__(self, result: Result, owner: type) -> Value: ...
    def __get__(self, result: Result | None, owner: type) -> Step[Value] | Value:
        if result is None:
            return self
        # Not a data descriptor: from now on Python finds the kept value before it finds the step.
        value = read_only(self._value(result))
        vars(result)[self.name] = value
        return value

    def _value(self, result: Result) -> Value:
        if self.compute is None:
            raise AttributeError(f"{type(result).__name__} was made without {self.name}")
        return self.compute(result)

    def peek(self, result: Result) -> Value:
        """The value, computed if need be, without keeping it."""
        kept = vars(result)
        value: Value = kept[self.name] if self.name in kept else self._value(result)
        return value


def step(axes: str, formula: str) -> Callable[[Callable[[Any], Value]], Step[Value]]:
    """Turn a method that returns an array into a step, see the module's docstring."""
    return lambda compute: Step(axes, formula, compute)


class Result:
    """Named parts, each read-only; `repr` is a table of them.

    The table computes what follows from what is there, unless it is large; what would take
    running blocks is "not computed yet".

    Attributes
    ----------
    parts : names of the steps in the order in which they are shown
    title : what the table is headed with
    hint : what the table ends with, where there is more to see
    """

    parts: ClassVar[tuple[str, ...]] = ()
    hint: ClassVar[str] = ""
    title: str

    def __init__(self, title: str, **values: object) -> None:
        vars(self)["title"] = title
        self.keep(**values)

    def keep(self, **values: object) -> None:
        """Put parts in place that came from elsewhere, read-only like all others."""
        for name, value in values.items():
            vars(self)[name] = read_only(value)

    def __setstate__(self, state: dict[str, object]) -> None:
        self.keep(**state)  # a copied or unpickled array can be written to until it is kept

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is read-only: {name} can't be set")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__} is read-only: {name} can't be deleted")

    def peek(self, name: str) -> Any:
        """A part that passes through: as kept, else computed and not kept."""
        found: Step[Any] = getattr(type(self), name)
        return found.peek(self)

    def _computes_for_repr(self) -> bool:
        """Whether showing the table may compute the steps that nobody looked at yet."""
        return False

    def axes_of(self, name: str) -> str:
        """The names of a part's axes, those that lead it apart."""
        axes: str = getattr(type(self), name).axes
        return axes

    def formula_of(self, name: str) -> str:
        """What a part is made of, its equation's right-hand side; of what is given, what it is."""
        formula: str = getattr(type(self), name).formula
        return formula

    def heading_of(self, name: str) -> str:
        """What a view of a part is headed with."""
        formula, is_computed = self.formula_of(name), getattr(type(self), name).compute
        return f"{name}{' = ' if is_computed else ': '}{formula}" if formula else name

    def _shown(self) -> tuple[str, ...]:
        return self.parts

    def _table(self) -> str:
        lines = [("name", "axes", "shape", "dtype", "range", "-inf")]
        for name in self._shown():
            axes = self.axes_of(name)
            if name not in vars(self) and not self._computes_for_repr():
                lines.append((name, axes, "", "", "not computed yet", ""))
                continue
            try:
                value = self.peek(name)  # looked at, but not kept: nobody asked for it by name
            except AttnlabError as error:  # what can be shown is shown
                lines.append((name, axes, "", "", f"none: {error}", ""))
                continue
            if value is not None:
                leading = "... " * (value.ndim > len(axes.split()))
                lines.append((name, leading + axes, *describe(value)))
        return align(lines, left=(0, 1, 2, 3, 4))

    def __repr__(self) -> str:
        return "\n".join(filter(None, (self.title, self._table(), self.hint)))

    def _repr_html_(self) -> str:
        from attnlab.views.notebook import result_view

        return result_view(self)


def describe(array: AnyArray) -> tuple[str, str, str, str]:
    """Shape, dtype, range of the finite values, and the number of -inf, as words."""
    shape = " x ".join(map(str, array.shape))
    if array.dtype == bool:
        return shape, "bool", f"{np.count_nonzero(array)} of {array.size} True", ""
    if np.isnan(array).any():
        return shape, str(array.dtype), f"{np.count_nonzero(np.isnan(array))} NaN", ""
    finite = array[np.isfinite(array)]
    span = f"{finite.min():.4g} … {finite.max():.4g}" if finite.size else "nothing finite"
    infinite = np.count_nonzero(np.isneginf(array))
    return shape, str(array.dtype), span, str(infinite) if infinite else ""


class Numbered(tuple[Value, ...]):
    """Results that are found by number; asking for one that is not there tells which are.

    Parameters
    ----------
    kind : what they are called, "layer" or "head"
    results : number 0 first
    """

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
        try:
            return super().__getitem__(index)
        except IndexError:
            raise OutOfRangeError(
                f"there is no {self.kind} {index}; {self.kind}s are 0 to {len(self) - 1}"
            ) from None
        except TypeError:
            raise InvalidTypeError(
                f"a {self.kind} is told by an integer; given {index!r}"
            ) from None

    def __repr__(self) -> str:
        return "\n".join(getattr(result, "title", repr(result)) for result in self)
