"""A step as it is declared: its axes, its formula in words, and the equation that computes it.

    raw_scores = Step("Tq Tk", "Q Kᵀ", equations.raw_scores, passes=True)

Which steps it needs is read from the equation's parameters: `raw_scores(Q, K)` needs Q and K. Where
an equation serves several steps, the declaration says what a parameter stands for:

    X = Step("T D", "LayerNorm(mid)", equations.layer_norm, x="parent.mid")
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from copy import copy
from typing import Any, Generic, TypeVar, overload

Value = TypeVar("Value")

# What a step needs: another step by its path, or, where that depends on it, by its part's number.
Need = str | Callable[[int], str]


class Step(Generic[Value]):
    """One named part of a `Result`: an array that is given, or computed on first look.

    Parameters
    ----------
    axes, formula : the step in words, such as "Tq Tk" and "Q Kᵀ"
    equation : computes it; its parameters are the steps that it needs. None where the step is
        given, or is one of the model's parameters
    passes : it is large or far away and only passes through: made for a step that needs it, then
        let go. Where somebody looked at it, it is kept like any other.
    view : its numbers are those of another step that is kept, in the same memory
    finite : a number in it that is not finite is an error, told with the step that it comes from
    fast : gives the same, faster, where a text is long. Its parameters are what it needs; those
        with a default, what it uses where it is there already
    optional : None where it is not given
    after_blocks : it needs what all earlier blocks come to; they are run in order, as a deep model
        would recurse too far
    where : of parameters that are not named after the step that they stand for, that step's path.
        In it, `parent` is the result that this one is part of, and `root` the one above all.

    Attributes
    ----------
    name : such as raw_scores
    needs : the steps that its parameters stand for
    of_whole, always_of_whole : see `of`
    """

    def __init__(
        self,
        axes: str,
        formula: str = "",
        equation: Callable[..., Value] | None = None,
        *,
        passes: bool = False,
        view: bool = False,
        finite: bool = False,
        fast: Callable[..., Value] | None = None,
        optional: bool = False,
        after_blocks: bool = False,
        **where: Need,
    ) -> None:
        self.name = ""
        self.axes, self.formula, self.equation, self.fast = axes, formula, equation, fast
        self.passes, self.view, self.finite, self.optional = passes, view, finite, optional
        self.after_blocks = after_blocks
        self.where = where
        self.needs = tuple(where.get(name, name) for name in parameters_of(equation))
        self.of_whole: Callable[[Any, int, int], Value] | None = None
        self.always_of_whole = False

    @property
    def is_given(self) -> bool:
        """Whether it is not computed: it is given, or one of the model's parameters."""
        return self.equation is None and self.of_whole is None and not self.optional

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name
        equals = f" = {self.formula}" if self.formula else ""
        self.__doc__ = f"{name}{equals}\n\nAxes: {self.axes or 'none, it is one number'}"

    def of(self, take: Callable[[Any, int, int], Value], *, always: bool = False) -> Step[Value]:
        """The same step of one part of a whole, such as of a head of a layer.

        Parameters
        ----------
        take : takes it out of the whole's step of the same name, given that, the part's number and
            how many parts there are
        always : whether it is so even of a long text, where the whole's step would have to be made
            first; without an equation it always is
        """
        taken = copy(self)
        taken.of_whole, taken.always_of_whole = take, always or self.equation is None
        return taken

    def as_parameter(self) -> Step[Value]:
        """The same step of a model that has it as a parameter, where others compute it."""
        given = copy(self)
        given.equation, given.needs = None, ()
        return given

    def __repr__(self) -> str:
        equation = f" = {self.formula}" if self.formula else ""
        return f"<step {self.name} ({self.axes}){equation}>"

    @overload
    def __get__(self, result: None, owner: type) -> Step[Value]: ...
    @overload
    def __get__(self, result: object, owner: type) -> Value: ...
    def __get__(self, result: Any, owner: type) -> Step[Value] | Value:
        if result is None:
            return self
        value: Value = result._run.look(result._prefix + self.name)
        return value


def parameters_of(function: Callable[..., Any] | None) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(function).parameters if function else {}
