"""One computation over a graph: each step is computed on first access, then kept.

    ids ─> ... ─> Q ─> scores ─> weights ─> ...     a run
                        scores' ─> weights' ─> ...  a run that changes scores and what follows

Edits (`forward.edits`), replaced equations (`checking.replaced`), the later rows of a text
(`forward.slices`) and gradients (`analysis.gradients`) are runs that change another run, their
base. The base computes and keeps all steps that the change doesn't affect.
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
    """One computation: the arrays computed so far, by path, and how to compute other arrays.

    A run has no locks. If several threads access a step at once, each computes it, with identical
    results, and the first thread's array is kept.
    """

    graph: Graph
    values: dict[str, Any]  # the inputs, and the steps computed so far, by path
    # Returns the model parameter with a given path; None without a model.
    read_parameter: Callable[[str], Any] | None = None
    scores_shape: tuple[int, ...] = ()  # the shape of a layer's scores, (..., H, Tq, Tk)
    tokens: Any = None  # the text's tokens, if any
    # The attended tokens: () if they have no names, None if they are `tokens`.
    memory_tokens: Any = None
    tokens_before: int = 0  # the number of cached tokens before the text
    is_long: bool = False  # whether the text is long, so that fast equations are used
    strict: bool = True  # whether NaN and infinity are errors
    note: str = ""  # the end of the title of every result, such as a list of edits
    derivative_of: str = ""  # what the numbers are gradients of; "" if they aren't gradients

    # The run that this one changes; None if it computes all steps itself.
    base: Run | None = None
    # The paths of the steps that this run or one of its bases computes in another way.
    changed: frozenset[str] = frozenset()
    # Takes a step of this run from other runs' arrays, given its path and node, or returns None.
    elsewhere: Callable[[Run, str, Node], Any] | None = None

    # Functions that return steps which were computed jointly with another one, by path.
    _ready: dict[str, Callable[[], Any]] = field(default_factory=dict, init=False)
    # The answers of `depends`.
    _depends: dict[str, bool] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._depends = dict.fromkeys(self.changed, True)
        # Users get these arrays, not copies: a changed array would contradict the steps after it.
        for value in self.values.values():
            read_only(value)

    @classmethod
    def like(cls, run: Run, **attributes: Any) -> Self:
        """A run without computed steps that is like another run, except for some attributes."""
        shared = {f.name: getattr(run, f.name) for f in fields(Run) if f.init}
        own: dict[str, Any] = {
            "values": {},
            "base": None,
            "changed": frozenset(),
            "elsewhere": None,
        }
        return cls(**shared | own | attributes)

    @classmethod
    def changing(cls, base: Run, changed: Iterable[str] = (), **attributes: Any) -> Self:
        """A run that computes some steps differently from its base."""
        return cls.like(base, base=base, changed=frozenset(changed), **attributes)

    def fork(self, **attributes: Any) -> Self:
        """A copy of the run; steps that the copy computes aren't stored in the original."""
        # copy.copy would use `__getstate__`, which leaves out views.
        fork = object.__new__(type(self))
        base = self.base and self.base.fork()  # else the base would keep what the fork computes
        # The dict is copied, but not the arrays: both runs share what is computed so far.
        own = {"values": dict(self.values), "_ready": {}, "base": base}
        vars(fork).update(vars(self) | own | attributes)
        return fork

    def keep(self, path: str, value: Any) -> None:
        """Keep a value as a step of this run, which then never computes the step."""
        self.values[path] = read_only(value)

    def __getstate__(self) -> dict[str, Any]:
        values = dict(self.values)  # a copy, since other threads may be adding steps

        def is_view(path: str) -> bool:
            """Whether a step is a view of another step, or of a parameter."""
            node = self.graph[path]
            return node.step.view or node.always_select or node.layer_step in values

        # A pickle would store a view's numbers a second time.
        kept = {path: value for path, value in values.items() if not is_view(path)}
        # Without `elsewhere`, the pickle has no other runs: missing steps are computed again.
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
        return self.value(path)  # only an `EditedRun` has edits

    def edits_of(self, path: str) -> list[tuple[str, Any]]:
        """Pairs of a path and an edit that changes a step; the last edit comes first."""
        return []

    @property
    def edited_steps(self) -> tuple[str, ...]:
        return ()

    def depends(self, path: str) -> bool:
        """Whether a step is changed in this run, or computed from a changed step."""
        if path not in self._depends:
            node = self.graph[path]
            if node.step.after_blocks:  # visit blocks in order, to limit recursion
                for layer in range(node.number):
                    self.depends(f"blocks.{layer}.output")
            # This recurses towards the inputs. Each step is visited once, since answers are kept.
            self._depends[path] = any(map(self.depends, node.inputs))
        return self._depends[path]

    def owner(self, path: str) -> Run:
        """The run that computes a step and keeps it: the earliest run with the same result."""
        # If layer 11 is edited, the base computes layers 0 to 10, and may already have done so.
        run: Run = self
        while run.base is not None and not run.depends(path):
            run = run.base
        return run

    def is_stored(self, path: str) -> bool:
        """Whether a step is an input or already computed and kept."""
        return path in self.owner(path).values

    def value(self, path: str) -> Any:
        """Return a step, computed on first access and kept."""
        run = self.owner(path)
        if path in run.values:
            return run.values[path]
        try:
            with run.errstate():
                return run._store(path)
        except OutOfMemoryError:  # an earlier step raised this, and the message names it
            raise
        except MemoryError as error:  # NumPy's message says how large the array would be
            raise OutOfMemoryError(
                f"not enough memory for {path}: {error}. Use a shorter text, or fewer texts at once"
            ) from None

    def errstate(self) -> np.errstate:
        """A context in which overflow raises, unless the run ignores it."""
        # Underflow is ignored: exp of a very negative number is 0, which is right.
        mode: Literal["raise", "ignore"] = "raise" if self.strict else "ignore"
        return np.errstate(over=mode, invalid=mode, divide=mode, under="ignore")

    # The methods below call each other within `errstate`, for the steps that a step needs:
    # `_stored` keeps a step, `_input` keeps it unless it is transient, `compute` only computes it.

    def _stored(self, path: str) -> Any:
        """Return a step, which is computed and kept unless it is stored already."""
        run = self.owner(path)
        return run.values[path] if path in run.values else run._store(path)

    def _input(self, path: str) -> Any:
        """Return a step that another step needs; a transient step isn't kept."""
        run = self if self.base is None else self.owner(path)  # a shortcut: this is called often
        if path in run.values:
            return run.values[path]
        node = run.graph[path]
        return run.compute(path, node) if node.step.transient else run._store(path)

    def _store(self, path: str) -> Any:
        node = self.graph[path]
        self._compute_first(path, node)
        value = self.compute(path, node)  # this computes the steps that it needs in the same way
        if node.is_input and self.base is None:
            return value  # a parameter that no run changes, which the model already keeps
        # setdefault: if another thread was faster, all users get that thread's array.
        return self.values.setdefault(path, read_only(value))

    def _compute_first(self, path: str, node: Node) -> None:
        """Run the blocks before a step in order, since each would recurse into the one before."""
        if node.step.after_blocks:
            # Go back to the last block that has run, or to the embedding.
            start = node.number
            while start and not self.is_stored(f"blocks.{start - 1}.output"):
                start -= 1
            for layer in range(start, node.number):
                self._stored(f"blocks.{layer}.output")

    def compute(self, path: str, node: Node) -> Any:
        """Compute a step from the steps that it needs."""
        # A run of one of several texts, or of the later rows of a text, slices another run's steps.
        if self.elsewhere is not None and (value := self.elsewhere(self, path, node)) is not None:
            return value
        step = node.step
        if node.select is not None and self._selects_from_layer(node):
            layer_value = self._stored(node.layer_step)
            if layer_value is None:  # an optional step, such as a bias
                return None
            return node.part_of(layer_value, self._input(node.n_head))
        if step.equation is identity:  # the step is an alias of another step
            return self._stored(node.needs[0])
        if step.equation is None:  # the callers return inputs, so this is a parameter
            if step.optional:  # or else an input that was left out
                return None
            if self.read_parameter is None:  # the result of `attention(Q, K, V)` has no model
                raise AttributeError(f"{path} has no value: this result has no model")
            return self.read_parameter(path)
        # For Q, K and V, one product with W_Q, W_K and W_V side by side is faster than three.
        if step.joint is not None:
            try:
                return self._joint(path, step)
            except FloatingPointError:  # perhaps another step overflowed: try this one alone below
                pass
        if step.fast is not None and self._is_fast(path):
            # The fast equation skips the T x T steps, but uses those that are already computed.
            needed = {
                name: self._input(need)
                for name, need, if_stored in node.fast_needs
                if not if_stored or self.is_stored(need)
            }
            equation = partial(step.fast, **needed)
        else:
            # All numbers come from here: an equation of `attnlab.equations` is called.
            equation = partial(step.equation, *map(self._input, node.needs))
        value = self._call(path, equation)
        # Few steps need this check, since NaN and infinity spread to the steps that follow.
        if step.finite and self.strict and not is_finite(value):
            raise self._overflow_error(path)
        return value

    def _joint(self, path: str, step: Any) -> Any:
        """A step that is computed together with others, such as Q with K and V.

        `step.joint` returns a function for each step. `_ready` keeps the other steps' functions.
        """
        prefix = path.removesuffix(step.name)
        # `pop`: once a step is kept, its function would only hold memory.
        if (get_step := self._ready.pop(path, None)) is None:
            needed = {name: self._input(prefix + name) for name in parameters_of(step.joint)}
            functions = {prefix + name: f for name, f in step.joint(**needed).items()}
            get_step = functions.pop(path)
            self._ready |= functions
        return get_step()

    def _call(self, path: str, equation: Callable[[], Any]) -> Any:
        """Call a step's equation; if it overflows, name the step where the overflow began."""
        try:
            return equation()
        except FloatingPointError as error:
            if "matmul" not in str(error):
                raise self._overflow_error(path) from None
            with np.errstate(all="ignore"):  # some BLAS libraries report overflow wrongly
                value = equation()
            if not is_finite(value):
                raise self._overflow_error(path) from None
            return value

    def _selects_from_layer(self, node: Node) -> bool:
        """Whether a head's step is cut from its layer's step, rather than computed for the head."""
        # In a long text, computing a head alone costs less than its layer, unless the layer's step
        # is stored. A head computed alone would miss changes of the layer's step.
        return (
            node.always_select
            or not self.is_long
            or self.elsewhere is not None
            or node.layer_step in self.changed
            or self.is_stored(node.layer_step)
        )

    def _is_fast(self, path: str) -> bool:
        """Whether a step uses its fast equation."""
        # The fast equation of weights uses Q and K: it would miss a change of the scores.
        return self.is_long and not any(
            step in self.changed or self.graph[step].layer_step in self.changed
            for step in (self._skipped_steps(path) if self.changed else ())
        )

    def _skipped_steps(self, path: str) -> Iterator[str]:
        """The steps that the fast equation of a step skips."""
        node = self.graph[path]
        needs = {need for _, need, if_stored in node.fast_needs if not if_stored}
        # Walk back from the equation's needs to the needs of the fast equation.
        queue = [*node.needs]
        while queue:
            step = queue.pop()
            if step not in needs:
                yield step
                queue += self.graph[step].needs

    def _overflow_error(self, path: str) -> InvalidValueError:
        """An error that names the first step with NaN or infinite numbers."""
        # A fork that ignores overflow can compute the infinite steps.
        lenient = self.fork()
        lenient.strict = False

        def infinite_need(path: str) -> str | None:
            """The first step that a step needs and that isn't finite."""
            for need in self.graph[path].needs:
                # masked_scores contain -inf on purpose; what matters is whether scores are finite.
                may_be_infinite = self.graph[need].step.infinite
                found = infinite_need(need) if may_be_infinite else need
                if found is not None and not is_finite(lenient.value(found)):
                    return found
            return None

        # Walk back from the step where overflow was noticed to the first step that isn't finite.
        while (need := infinite_need(path)) is not None:
            path = need
        if self.graph[path].step.equation in (None, identity):  # an input
            return InvalidValueError(f"{path} contains NaN or infinite numbers")
        return overflow_error(path, lenient.value(path).dtype)


def overflow_error(name: str, dtype: np.dtype[Any]) -> InvalidValueError:
    """An error for numbers that are too large."""
    advice = "; float64 may hold them" if dtype == np.float32 else ""  # float64 has a larger range
    return InvalidValueError(
        f"{name} overflows: its numbers, or intermediate ones, are too large for {dtype}{advice}"
    )


def is_finite(value: Any) -> bool:
    """Whether a value has no NaN and no infinity."""
    if not isinstance(value, np.ndarray) or value.dtype.kind != "f":
        return True
    # The extremes show NaN and infinity, so no array of booleans is needed.
    return not value.size or bool(np.isfinite(value.max()) and np.isfinite(value.min()))
