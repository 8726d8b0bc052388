"""The declaration of a step: its axes, its formula in words, and its equation.

    raw_scores = Step("Tq Tk", "Q Kᵀ", equations.raw_scores, transient=True)

A step needs the steps that its equation's parameters name: `raw_scores(Q, K)` needs Q and K. If an
equation serves several steps, each declaration maps the equation's parameters to steps:

    X = Step("T D", "LayerNorm(mid)", equations.layer_norm, x="parent.mid")
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from copy import copy
from functools import lru_cache
from typing import Any, Generic, TypeVar, overload

Value = TypeVar("Value")

# A step that another step needs: its path, or a function from the layer's number to the path.
Need = str | Callable[[int], str]  # such as `lambda layer: f"root.blocks.{layer - 1}.output"`


class Step(Generic[Value]):
    """One named array of a `Result`: an input, a model parameter, or computed on first access.

    Parameters
    ----------
    axes : the names of the step's axes, such as "Tq Tk"
    formula : how the step is computed, for display, such as "Q Kᵀ"
    equation : a function of the steps that its parameters name; None for an input or a model
        parameter
    transient : whether the step is freed once another step has used it, because it is large or
        cheap to recompute. It is kept if a user accessed it.
    view : whether the step shares memory with another step that is kept
    finite : whether NaN or infinity is an error; the error names the step where it began
    infinite : whether the step may contain -inf, which hides a key
    fast : a faster equation for long texts. Steps for its parameters with a default are passed only
        if they are already computed.
    joint : a function that computes this step and others at once. Its parameters name steps of the
        same result. It returns, by step name, functions that return the steps.
    optional : whether the step is an input that may be left out; its value is None then
    after_blocks : whether the step needs all earlier blocks. These run in order, since recursion
        through a deep model would exceed Python's limit.
    inputs : the path of a step for each parameter of the equation that has another name. In paths,
        `parent` is the result that contains this result, and `root` is the outermost result.

    Attributes
    ----------
    name : the step's name, such as raw_scores
    needs : the paths of the steps that the equation needs
    """

    def __init__(
        self,
        axes: str,
        formula: str = "",
        equation: Callable[..., Value] | None = None,
        *,
        transient: bool = False,
        view: bool = False,
        finite: bool = False,
        infinite: bool = False,
        fast: Callable[..., Value] | None = None,
        joint: Callable[..., Mapping[str, Callable[[], Value]]] | None = None,
        optional: bool = False,
        after_blocks: bool = False,
        **inputs: Need,
    ) -> None:
        self.name = ""  # set below by `__set_name__`
        self.axes, self.formula, self.equation, self.fast = axes, formula, equation, fast
        self.transient, self.view, self.finite, self.optional = transient, view, finite, optional
        self.after_blocks, self.joint, self.infinite = after_blocks, joint, infinite
        self.inputs = inputs
        # The names of the equation's parameters are the graph's edges: nothing else declares them.
        # For `raw_scores(Q, K)` they are ("Q", "K").
        self.needs = tuple(inputs.get(name, name) for name in parameters_of(equation))

    @property
    def has_rows_for_tokens(self) -> bool:
        """Whether it has a row for each token, in each head if it has a head axis."""
        # T, Tq or Tk: the axes of tokens all start with T.
        return self.axes.removeprefix("H ").startswith("T")

    # Python calls this when the class with `weights = Step(...)` is created.
    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name
        equals = f" = {self.formula}" if self.formula else ", an input or a parameter of the model"
        self.__doc__ = f"{name}{equals}\n\nAxes: {self.axes or 'none, a single number'}"

    def with_axes(self, axes: str) -> Step[Value]:
        """The same step with other axes, such as an additional axis of heads."""
        # The copy leaves the parent class's declaration unchanged.
        step = copy(self)
        step.axes = axes
        return step

    def as_input(self) -> Step[Value]:
        """A copy of the step that is an input or a model parameter, instead of computed."""
        step = copy(self)  # only this model's graph has the copy: other models compute the step
        step.equation, step.needs = None, ()
        return step

    def __repr__(self) -> str:
        equation = f" = {self.formula}" if self.formula else ""
        return f"<step {self.name} ({self.axes}){equation}>"

    @overload
    def __get__(self, result: None, owner: type) -> Step[Value]: ...
    @overload
    def __get__(self, result: object, owner: type) -> Value: ...
    def __get__(self, result: Any, owner: type) -> Step[Value] | Value:
        # A descriptor: Python calls this for `head.weights`, since the class has the Step.
        if result is None:  # on the class: Head.weights is the declaration
            return self
        # On a result: head.weights is the array, which the run computes on first access.
        return result._run.value(result._prefix + self.name)


@lru_cache(maxsize=256)  # inspect.signature is slow
def parameters_of(function: Callable[..., Any] | None) -> Mapping[str, inspect.Parameter]:
    """The parameters of an equation; empty for None."""
    return inspect.signature(function).parameters if function else {}
