"""One computation over a graph: each step is computed on first access, then kept."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import numpy as np

from attnlab.equations import identity
from attnlab.errors import InvalidValueError, OutOfMemoryError
from attnlab.steps.declaration import parameters_of
from attnlab.steps.graph import Graph, Node
from attnlab.support.parts import read_only


class Run:
    """One computation: the arrays computed so far, by path, and how to compute the others.

    It has no locks. If several threads access a step at once, each computes it, with identical
    results, and the first one's array is kept.

    Parameters
    ----------
    graph : the steps
    values : the inputs, by path
    read_parameter : returns a model parameter by path; None without a model
    scores_shape : the shape of a layer's scores, (..., H, Tq, Tk)
    tokens : the tokens of the text, if any
    memory_tokens : the attended tokens; () if they have no names, None if they are `tokens`
    tokens_before : the number of cached tokens before the text
    is_long : whether to use fast equations
    quick_blocks : the number of blocks that may run just to show a table
    strict : whether NaN and infinity are errors
    note : the end of the title of every result, such as a list of edits
    derivative_of : what the numbers are gradients of; "" if they are the steps themselves
    """

    def __init__(
        self,
        graph: Graph,
        values: dict[str, Any],
        read_parameter: Callable[[str], Any] | None = None,
        *,
        scores_shape: tuple[int, ...] = (),
        tokens: Any = None,
        memory_tokens: Any = None,
        tokens_before: int = 0,
        is_long: bool = False,
        quick_blocks: int = 0,
        strict: bool = True,
        note: str = "",
        derivative_of: str = "",
    ) -> None:
        self.graph, self.values, self.read_parameter = graph, values, read_parameter
        # Steps computed jointly with one that was asked for, until they are asked for too.
        self._ready: dict[str, Callable[[], Any]] = {}
        self.scores_shape, self.is_long = scores_shape, is_long
        self.tokens, self.memory_tokens = tokens, memory_tokens
        self.tokens_before, self.quick_blocks = tokens_before, quick_blocks
        self.strict, self.note, self.derivative_of = strict, note, derivative_of
        # Users get these very arrays, and a change would contradict the steps after them.
        for value in values.values():
            read_only(value)

    def keep(self, path: str, value: Any) -> None:
        """Keep a step that was computed elsewhere."""
        self.values[path] = read_only(value)

    def __getstate__(self) -> dict[str, Any]:
        values = dict(self.values)  # a copy: other threads may be adding to it

        def is_view(path: str) -> bool:
            """Whether a step is a view of another one, or of a parameter."""
            node = self.graph[path]
            return node.step.view or node.always_select or node.layer_step in values

        # A pickle would store the numbers of a view again.
        kept = {path: value for path, value in values.items() if not is_view(path)}
        return vars(self) | {"values": kept, "_ready": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        for path, value in self.values.items():
            read_only(value)  # copies and unpickled arrays are writable
            self._check_shape(path, value)

    def _check_shape(self, path: str, value: Any) -> None:
        """Raise unless a step, such as a bias from a pickle, fits this run's tokens and heads."""
        *_, H, Tq, Tk = (1, 1, 1, *self.scores_shape)
        expected = {"H": H, "T": Tq, "Tq": Tq, "Tk": Tk}
        if path.endswith("_cache"):
            expected["Tk"] = self.tokens_before
        axes = self.graph[path].step.axes.split()
        for axis, size in zip(reversed(axes), reversed(np.shape(value)), strict=False):
            if size not in (1, expected.get(axis, size)):
                raise InvalidValueError(
                    f"{path} has shape {np.shape(value)}; expected {expected[axis]} for {axis}"
                )

    def fork(self) -> Run:
        """A copy of the run; steps that the copy computes aren't stored in the original."""
        # Not copy.copy, which would drop views, as pickles do.
        fork = object.__new__(type(self))
        vars(fork).update(vars(self), values=dict(self.values), _ready={})
        return fork

    def is_edited(self, path: str) -> bool:
        """Whether a step, or a part of it, is edited."""
        return False

    def unedited(self, path: str) -> Any:
        """A step as it was before it was edited."""
        return self.value(path)

    def edits_of(self, path: str) -> list[tuple[str, Any]]:
        """The edits that change a step, by path, the last one first."""
        return []

    def is_stored(self, path: str) -> bool:
        """Whether a step is an input or already computed and kept."""
        return path in self.values

    def value(self, path: str) -> Any:
        """Return a step, computed on first access and kept."""
        if path in self.values:
            return self.values[path]
        try:
            with self.errstate():
                return self._store(path)
        except OutOfMemoryError:
            raise
        except MemoryError as error:  # NumPy's says how large the array would be
            raise OutOfMemoryError(
                f"not enough memory for {path}: {error}. Use a shorter text, or fewer texts at once"
            ) from None

    def errstate(self) -> np.errstate:
        """A context in which overflow raises, unless the run ignores it."""
        # Underflow is ignored: exp of a very negative number is 0, which is right.
        mode: Literal["raise", "ignore"] = "raise" if self.strict else "ignore"
        return np.errstate(over=mode, invalid=mode, divide=mode, under="ignore")

    # From here on, one step asks for the steps it needs: `value` is what users read, `_store` keeps
    # what it computes, `_input` keeps it unless it is transient, `_evaluate` only computes.

    def _store(self, path: str) -> Any:
        node = self.graph[path]
        if node.step.after_blocks:  # one by one: each block would recurse into the one before
            for layer in self.blocks_to_run(node.number):
                self._store(f"blocks.{layer}.output")
        value = self._evaluate(path, node)
        if node.is_input:
            return value  # kept by the model's parameters
        # setdefault: if another thread was faster, its array is the one that all users see.
        return self.values.setdefault(path, read_only(value))

    @property
    def edited_steps(self) -> tuple[str, ...]:
        return ()

    def blocks_to_run(self, stop: int) -> range:
        """The layers before `stop` that haven't run yet."""
        # Back to the last block that has run, or to the embedding.
        start = stop
        while start and not self.is_stored(f"blocks.{start - 1}.output"):
            start -= 1
        return range(start, stop)

    def is_quick(self, layers: int) -> bool:
        """Whether the first `layers` blocks have run, or may run for a table."""
        return len(self.blocks_to_run(layers)) <= self.quick_blocks

    def _input(self, path: str) -> Any:
        """A step that another step needs; a transient one isn't stored."""
        if path in self.values:
            return self.values[path]
        node = self.graph[path]
        return self._evaluate(path, node) if node.step.transient else self._store(path)

    def _evaluate(self, path: str, node: Node) -> Any:
        step = node.step
        if node.select is not None and self._selects_from_layer(node):
            layer_value = self._stored_value(node.layer_step)
            if layer_value is None:  # an optional step, such as a bias
                return None
            return node.part_of(layer_value, self._input(node.n_head))
        if step.equation is identity:  # two names for one array
            return self._stored_value(node.needs[0])
        if step.equation is None:  # inputs are in `values`, so this is a parameter
            if step.optional:  # or an input that was left out
                return None
            if self.read_parameter is None:
                raise AttributeError(f"{path} has no value: this result has no model")
            return self.read_parameter(path)
        if step.joint is not None:
            try:
                return self._joint(path, step)
            except FloatingPointError:  # the equation will say whether it is this step's
                pass
        if step.fast is not None and self._is_fast(path):
            # It skips the T x T steps, but uses them if they happen to be there.
            needed = {
                name: self._input(need)
                for name, need, if_stored in node.fast_needs
                if not if_stored or self.is_stored(need)
            }
            equation = partial(step.fast, **needed)
        else:
            # Here numbers are made: an equation of `attnlab.equations`, called with its needs.
            equation = partial(step.equation, *map(self._input, node.needs))
        value = self._call(path, equation)
        if step.finite and self.strict and not is_finite(value):
            raise self._overflow_error(path)
        return value

    def _joint(self, path: str, step: Any) -> Any:
        """A step that is computed with others at once, which are kept until they are asked for."""
        result = path.removesuffix(step.name)
        if (value := self._ready.pop(path, None)) is None:
            needed = {name: self._input(result + name) for name in parameters_of(step.joint)}
            functions = {result + name: value for name, value in step.joint(**needed).items()}
            value = functions.pop(path)
            self._ready |= functions
        return value()

    def _call(self, path: str, equation: Callable[[], Any]) -> Any:
        """Call a step's equation; if it overflows, name the step where it began."""
        try:
            return equation()
        except FloatingPointError as error:
            if "matmul" not in str(error):
                raise self._overflow_error(path) from None
            with np.errstate(all="ignore"):  # some BLAS set the flag without overflow
                value = equation()
            if not is_finite(value):
                raise self._overflow_error(path) from None
            return value

    def _stored_value(self, path: str) -> Any:
        """A step, computed and stored unless it is already; call it within `errstate`."""
        return self.values[path] if path in self.values else self._store(path)

    def _selects_from_layer(self, node: Node) -> bool:
        # In a long text, a head alone costs less than its layer, unless the layer is there.
        return node.always_select or not self.is_long or self.is_stored(node.layer_step)

    def _is_fast(self, path: str) -> bool:
        """Whether a step uses its fast equation; in an edited run it depends on the step."""
        return self.is_long

    def _overflow_error(self, path: str) -> InvalidValueError:
        """An error that names the first step with NaN or infinite numbers."""
        # A fork without errors, to compute the steps up to where it overflows.
        lenient = self.fork()
        lenient.strict = False

        def infinite_need(path: str) -> str | None:
            """The first step that this one needs and that isn't finite."""
            # masked_scores contain -inf on purpose; what matters is whether the scores are finite.
            needs = (re.sub("masked_scores$", "scores", need) for need in self.graph[path].needs)
            return next((need for need in needs if not is_finite(lenient.value(need))), None)

        # Walk back from where it was noticed to the first step that isn't finite.
        while (need := infinite_need(path)) is not None:
            path = need
        if self.graph[path].step.equation in (None, identity):  # an input
            return InvalidValueError(f"{path} contains NaN or infinite numbers")
        return overflow_error(path, lenient.value(path).dtype)


def overflow_error(name: str, dtype: np.dtype[Any]) -> InvalidValueError:
    """An error for numbers that are too large."""
    advice = "; float64 may hold them" if dtype == np.float32 else ""
    return InvalidValueError(
        f"{name} overflows: its numbers, or intermediate ones, are too large for {dtype}{advice}"
    )


def is_finite(value: Any) -> bool:
    """Whether a value has no NaN and no infinity."""
    if not isinstance(value, np.ndarray) or value.dtype.kind != "f":
        return True
    # NaN and infinity show in the extremes: no array of booleans is needed.
    return not value.size or bool(np.isfinite(value.max()) and np.isfinite(value.min()))
