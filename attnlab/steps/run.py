"""One computation over a graph: each step is computed on first access, then kept.

    ids ─> ... ─> Q ─> scores ─> weights ─> ...     a run
                        scores' ─> weights' ─> ...  a run that changes it: only what differs

Edits (`forward.edits`), other equations (`checking.replaced`), the later rows of a text
(`forward.slices`) and gradients (`analysis.gradients`) are runs that change another one, their
base. All steps that the change doesn't affect are the base's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any, Literal, Self

import numpy as np

from attnlab.equations import identity
from attnlab.errors import InvalidValueError, OutOfMemoryError
from attnlab.steps.declaration import parameters_of
from attnlab.steps.graph import Graph, Node
from attnlab.support.parts import read_only


@dataclass(eq=False, repr=False)
class Run:
    """One computation: the arrays computed so far, by path, and how to compute the others.

    It has no locks. If several threads access a step at once, each computes it, with identical
    results, and the first one's array is kept.
    """

    graph: Graph
    values: dict[str, Any]  # the inputs, and the steps computed so far, by path
    # Returns a model parameter by path; None without a model.
    read_parameter: Callable[[str], Any] | None = None
    scores_shape: tuple[int, ...] = ()  # the shape of a layer's scores, (..., H, Tq, Tk)
    tokens: Any = None  # the text's tokens, if any
    memory_tokens: Any = None  # the attended ones; () without names, None if they are `tokens`
    tokens_before: int = 0  # the number of cached tokens before the text
    is_long: bool = False  # whether to use fast equations
    strict: bool = True  # whether NaN and infinity are errors
    note: str = ""  # the end of the title of every result, such as a list of edits
    derivative_of: str = ""  # what the numbers are gradients of; "" if they are the steps

    # The run that this one changes; None if it computes all steps itself.
    base: Run | None = None
    # The paths of the steps that are computed otherwise, here or in an earlier base.
    changed: frozenset[str] = frozenset()
    # Returns a step of this run that comes from other runs, by path and node; None for other steps.
    elsewhere: Callable[[Run, str, Node], Any] | None = None

    # Steps computed jointly with one that was asked for, until they are asked for too.
    _ready: dict[str, Callable[[], Any]] = field(default_factory=dict, init=False)
    # What `depends` has found out.
    _depends: dict[str, bool] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._depends = dict.fromkeys(self.changed, True)
        # Users get these very arrays, and a change would contradict the steps after them.
        for value in self.values.values():
            read_only(value)

    @classmethod
    def like(cls, run: Run, **attributes: Any) -> Self:
        """A run without steps yet that is like another one, except for some attributes."""
        shared = {f.name: getattr(run, f.name) for f in fields(Run) if f.init}
        # What belongs to a run itself, and what it inherits: graph, labels, parameters.
        own: dict[str, Any] = {
            "values": {},
            "base": None,
            "changed": frozenset(),
            "elsewhere": None,
        }
        return cls(**shared | own | attributes)

    @classmethod
    def changing(cls, base: Run, changed: Iterable[str] = (), **attributes: Any) -> Self:
        """A run that computes some steps otherwise than its base."""
        return cls.like(base, base=base, changed=frozenset(changed), **attributes)

    def fork(self, **attributes: Any) -> Self:
        """A copy of the run; steps that the copy computes aren't stored in the original."""
        # Not copy.copy, which would drop views, as pickles do.
        fork = object.__new__(type(self))
        base = self.base and self.base.fork()  # else the base would keep what the fork computes
        # A copy of the dict, not of the arrays: both runs share what is computed so far.
        own = {"values": dict(self.values), "_ready": {}, "base": base}
        vars(fork).update(vars(self) | own | attributes)
        return fork

    def keep(self, path: str, value: Any) -> None:
        """Keep a step that was computed elsewhere."""
        self.values[path] = read_only(value)  # its equation never runs

    def __getstate__(self) -> dict[str, Any]:
        values = dict(self.values)  # a copy: other threads may be adding to it

        def is_view(path: str) -> bool:
            """Whether a step is a view of another one, or of a parameter."""
            node = self.graph[path]
            return node.step.view or node.always_select or node.layer_step in values

        # A pickle would store the numbers of a view again.
        kept = {path: value for path, value in values.items() if not is_view(path)}
        # One of several texts leaves the others out: what it hasn't taken from them, it computes.
        return vars(self) | {"values": kept, "_ready": {}, "elsewhere": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        for value in self.values.values():
            read_only(value)  # copies and unpickled arrays are writable

    def is_edited(self, path: str) -> bool:
        """Whether a step, or a part of it, is edited."""
        return False

    def unedited(self, path: str) -> Any:
        """A step as it was before it was edited."""
        return self.value(path)  # a run without edits; see `EditedRun`

    def edits_of(self, path: str) -> list[tuple[str, Any]]:
        """The edits that change a step, by path, the last one first."""
        return []

    @property
    def edited_steps(self) -> tuple[str, ...]:
        return ()

    def depends(self, path: str) -> bool:
        """Whether a step is changed in this run, or computed from a step that is."""
        if path not in self._depends:
            node = self.graph[path]
            if node.step.after_blocks:  # blocks are asked from the first on, to limit recursion
                for layer in range(node.number):
                    self.depends(f"blocks.{layer}.output")
            # Recursion towards the inputs; each step is asked once, since the answer is kept.
            self._depends[path] = any(map(self.depends, node.inputs))
        return self._depends[path]

    def owner(self, path: str) -> Run:
        """The run that computes a step and keeps it: the earliest one with the same result."""
        # An edit of layer 11 leaves layers 0 to 10 to the base, where they may be known already.
        run: Run = self
        while run.base is not None and not run.depends(path):
            run = run.base
        return run

    def is_stored(self, path: str) -> bool:
        """Whether a step is an input or already computed and kept."""
        return path in self.owner(path).values  # without computing anything

    def value(self, path: str) -> Any:
        """Return a step, computed on first access and kept."""
        run = self.owner(path)
        if path in run.values:
            return run.values[path]
        try:
            with run.errstate():
                return run._store(path)
        except OutOfMemoryError:  # an earlier step's, which the message already names
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

    # From here on, one step asks for the steps it needs, within `errstate`: `_stored` keeps what is
    # computed, `_input` keeps it unless it is transient, `compute` only computes.

    def _stored(self, path: str) -> Any:
        """A step, computed and kept unless it is already."""
        run = self.owner(path)
        return run.values[path] if path in run.values else run._store(path)

    def _input(self, path: str) -> Any:
        """A step that another step needs; a transient one isn't kept."""
        run = self if self.base is None else self.owner(path)  # called for each step and parameter
        if path in run.values:
            return run.values[path]
        node = run.graph[path]
        return run.compute(path, node) if node.step.transient else run._store(path)

    def _store(self, path: str) -> Any:
        node = self.graph[path]
        self._compute_first(path, node)
        value = self.compute(path, node)  # which asks for its inputs, each computed in this way
        if node.is_input and self.base is None:
            return value  # the model's parameters keep it, unless it is changed
        # setdefault: if another thread was faster, its array is the one that all users see.
        return self.values.setdefault(path, read_only(value))

    def _compute_first(self, path: str, node: Node) -> None:
        """Run the blocks before a step, one by one: each would recurse into the one before."""
        if node.step.after_blocks:
            # Back to the last block that has run, or to the embedding.
            start = node.number
            while start and not self.is_stored(f"blocks.{start - 1}.output"):
                start -= 1
            for layer in range(start, node.number):
                self._stored(f"blocks.{layer}.output")

    def compute(self, path: str, node: Node) -> Any:
        """Compute a step from those that it needs."""
        # One text of several, or the later rows of a text: most steps are slices of another run's.
        if self.elsewhere is not None and (value := self.elsewhere(self, path, node)) is not None:
            return value
        step = node.step
        if node.select is not None and self._selects_from_layer(node):
            layer_value = self._stored(node.layer_step)
            if layer_value is None:  # an optional step, such as a bias
                return None
            return node.part_of(layer_value, self._input(node.n_head))
        if step.equation is identity:  # two names for one array
            return self._stored(node.needs[0])
        if step.equation is None:  # inputs are in `values`, so this is a parameter
            if step.optional:  # or an input that was left out
                return None
            if self.read_parameter is None:  # so in the result of `attention(Q, K, V)`
                raise AttributeError(f"{path} has no value: this result has no model")
            return self.read_parameter(path)
        # Q, K and V: one product with W_Q, W_K and W_V side by side is faster than three.
        if step.joint is not None:
            try:
                return self._joint(path, step)
            except FloatingPointError:  # perhaps another one's, so this step is tried alone below
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
        # Not after every step: NaN and infinity stay in the steps after it.
        if step.finite and self.strict and not is_finite(value):
            raise self._overflow_error(path)
        return value

    def _joint(self, path: str, step: Any) -> Any:
        """A step that is computed together with others, such as Q with K and V.

        `step.joint` returns a function for each of them. `_ready` keeps those of the others.
        """
        prefix = path.removesuffix(step.name)
        # Popped: once a step is kept, its function would only hold memory.
        if (take := self._ready.pop(path, None)) is None:
            needed = {name: self._input(prefix + name) for name in parameters_of(step.joint)}
            functions = {prefix + name: f for name, f in step.joint(**needed).items()}
            take = functions.pop(path)
            self._ready |= functions
        return take()

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

    def _selects_from_layer(self, node: Node) -> bool:
        """Whether a head's step is cut from its layer's, rather than computed for the head."""
        # In a long text, a head alone costs less than its layer, unless the layer is there. A head
        # computed alone would also miss a change of its layer.
        return (
            node.always_select
            or not self.is_long
            or self.elsewhere is not None
            or node.layer_step in self.changed
            or self.is_stored(node.layer_step)
        )

    def _is_fast(self, path: str) -> bool:
        """Whether a step uses its fast equation."""
        # If scores are changed, fast weights, computed from Q and K, would miss the change.
        return self.is_long and not any(
            step in self.changed or self.graph[step].layer_step in self.changed
            for step in (self._skipped_steps(path) if self.changed else ())
        )

    def _skipped_steps(self, path: str) -> Iterator[str]:
        """The steps that the fast equation of a step skips."""
        node = self.graph[path]
        needs = {need for _, need, is_optional in node.fast_needs if not is_optional}
        # Walk back from the equation's needs to those of the fast equation.
        queue = [*node.needs]
        while queue:
            step = queue.pop()
            if step not in needs:
                yield step
                queue += self.graph[step].needs

    def _overflow_error(self, path: str) -> InvalidValueError:
        """An error that names the first step with NaN or infinite numbers."""
        # A fork without errors, to compute the steps up to where it overflows.
        lenient = self.fork()
        lenient.strict = False

        def infinite_need(path: str) -> str | None:
            """The first step that this one needs and that isn't finite."""
            for need in self.graph[path].needs:
                # masked_scores contain -inf on purpose; what matters is whether scores are finite.
                is_right = self.graph[need].step.infinite
                found = infinite_need(need) if is_right else need
                if found is not None and not is_finite(lenient.value(found)):
                    return found
            return None

        # Walk back from where it was noticed to the first step that isn't finite.
        while (need := infinite_need(path)) is not None:
            path = need
        if self.graph[path].step.equation in (None, identity):  # an input
            return InvalidValueError(f"{path} contains NaN or infinite numbers")
        return overflow_error(path, lenient.value(path).dtype)


def overflow_error(name: str, dtype: np.dtype[Any]) -> InvalidValueError:
    """An error for numbers that are too large."""
    advice = "; float64 may hold them" if dtype == np.float32 else ""  # up to 1e308, not 3e38
    return InvalidValueError(
        f"{name} overflows: its numbers, or intermediate ones, are too large for {dtype}{advice}"
    )


def is_finite(value: Any) -> bool:
    """Whether a value has no NaN and no infinity."""
    if not isinstance(value, np.ndarray) or value.dtype.kind != "f":
        return True
    # NaN and infinity show in the extremes: no array of booleans is needed.
    return not value.size or bool(np.isfinite(value.max()) and np.isfinite(value.min()))
