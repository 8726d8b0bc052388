"""A result: the named steps of one computation, and its parts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from copy import copy
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, NoReturn, Self

import numpy as np

from attnlab.equations import AnyArray
from attnlab.errors import (
    AttnlabError,
    InvalidTypeError,
    InvalidValueError,
    OutOfRangeError,
    quoted,
)
from attnlab.steps.declaration import Step, parameters_of
from attnlab.steps.graph import steps_below
from attnlab.steps.paths import dots_hint, parse, parse_index
from attnlab.steps.run import Run
from attnlab.support.checks import check_kind
from attnlab.support.console import StdoutSafe
from attnlab.support.messages import Message, say
from attnlab.support.parts import Numbered, read_only
from attnlab.support.tables import align, header
from attnlab.text.tokens import Tokens

# Tables show the steps of a layer with larger scores only if they are already computed.
MAX_SCORES_FOR_REPR = 2**20  # such as 12 heads of 295 tokens


class Computation(NamedTuple):
    """How a step is computed."""

    # The step's equation; the function that selects a head's part of a layer's step; or None for
    # an input
    equation: Callable[..., Any] | None
    # The path and value of each of the equation's parameters, by name
    needs: dict[str, tuple[str, Any]]


class ReadOnly:
    """Attributes that can't be set or deleted."""

    # Else `head.Q = new` would seem to work, but the scores would still come from the old Q.

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is read-only: {name} can't be set")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__} is read-only: {name} can't be deleted")


class Result(ReadOnly, StdoutSafe):
    """The named, read-only steps of one computation; `repr` shows them as a table.

    The table computes steps only if the text is short, and steps that need all blocks only if the
    model is small, too. Other steps are shown as "not computed yet". Steps that are computed for
    the table aren't kept.

    Attributes
    ----------
    title : the table's heading
    path : the path from the root, such as "blocks.3.attention"; "" for the root
    tokens : the tokens of the text, or None
    memory_tokens : the attended tokens if they differ from `tokens`, see `cross_attention`
    steps : the declarations of all steps, by name
    """

    # Filled by `__init_subclass__` from the class's declarations.
    steps: ClassVar[dict[str, Step[Any]]] = {}
    # The names of the steps in the table, in order, and the line below the table.
    _table_steps: ClassVar[tuple[str, ...]] = ()
    _hint: ClassVar[str] = ""
    # The classes of the parts, by name.
    _children: ClassVar[dict[str, type[Result]]] = {}
    # The steps of a head that are parts of its layer's steps of the same names.
    _parts_of_layer: ClassVar[tuple[str, ...]] = ()
    path: str  # such as "blocks.3.attention"
    _title: str
    _run: Run  # has the arrays, and computes missing ones
    _prefix: str  # the path with a dot, such as "blocks.3.attention.", or ""

    def __init_subclass__(cls) -> None:
        # A subclass has its parent's steps, and may declare some of them anew.
        declared = {name: step for name, step in vars(cls).items() if isinstance(step, Step)}
        cls.steps = cls.steps | declared

    def __init__(self, title: str, run: Run, path: str = "") -> None:
        """Show the steps of a run whose paths start with `path`. The run holds the arrays."""
        # `vars` bypasses __setattr__, which always raises.
        vars(self).update(_title=title, path=path, _run=run, _prefix=f"{path}." if path else "")

    def __array__(self, *_: object, **__: object) -> NoReturn:
        # Without this, np.array(head) would be an array of one object, which fails much later.
        raise InvalidTypeError(
            f"{self.title} has several arrays; choose one of .{', .'.join(self._steps_shown())}"
        )

    def __getitem__(self, path: str) -> Any:
        """The array of a step, or a part of the result, by its path; see `at`."""
        return at(self, path)

    __iter__: ClassVar[None] = None  # else Python would call __getitem__ with 0, 1, ...

    def _ipython_key_completions_(self) -> list[str]:
        # IPython and Jupyter complete `trace["blo` with these paths.
        return [*paths_below(self)]

    # Python calls `__getattr__` only for missing names; the error says where a step is instead.
    if not TYPE_CHECKING:  # so that type checkers report misspelt names

        def __getattr__(self, name: str) -> Any:
            paths = paths_in_parts(type(self), name)
            hint = f"; its parts have {paths[0]}" if paths else ""  # blocks.0.attention.weights
            raise AttributeError(
                f"{type(self).__name__} has no attribute {name!r}{hint}", name=name, obj=self
            )

    def __getstate__(self) -> dict[str, Any]:  # without parts, which are created again on access
        return {
            name: value
            for name, value in dict(vars(self)).items()  # a copy, since threads may be adding parts
            if not isinstance(getattr(type(self), name, None), cached_property)
        }

    @property
    def title(self) -> str:
        return Message("{title}{note}", title=self._title, note=self._note)

    @property
    def _note(self) -> str:
        """The end of the title, which lists the edited steps."""
        return self._run.note

    @property
    def derivative_of(self) -> str:
        """What the numbers are gradients of; "" if they aren't gradients."""
        return self._run.derivative_of

    @property
    def tokens(self) -> Tokens | None:
        return self._run.tokens  # tokens only label axes: no step is computed from them

    @property
    def memory_tokens(self) -> Any:
        """The attended tokens: () if they have no names, None if they are `tokens`."""
        return self._run.memory_tokens

    @property
    def edited_steps(self) -> tuple[str, ...]:
        """The paths of the edited steps; for an edit of a head, its layer's step."""
        return self._run.edited_steps

    @property
    def tokens_before(self) -> int:
        """The number of cached tokens before the text."""
        return self._run.tokens_before

    def _fork(self) -> Self:
        """A copy that keeps the steps it computes to itself."""
        return self._with_run(self._run.fork())

    def _with_run(self, run: Run) -> Self:
        """The same view of another run, such as an edited one."""
        # `copy` leaves out the parts, which are views of the old run: see `__getstate__`.
        other = copy(self)
        vars(other)["_run"] = run
        return other

    def _is_stored(self, name: str) -> bool:
        """Whether a step is an input or already computed and kept."""
        return self._run.is_stored(self._path_of(name))

    def is_edited(self, name: str) -> bool:
        """Whether a step, or a part of it, is edited."""
        return self._run.is_edited(self._path_of(name))

    def unedited(self, name: str) -> Any:
        """A step as it was before it was edited."""
        if not self.is_edited(name):
            return getattr(self, name)  # the stored array, without a second computation
        return self._run.unedited(self._path_of(name))

    def _computation_of(self, name: str) -> Computation:
        """The equation of a step and the steps that it was computed from, for explanations."""
        node = self._run.graph[self._path_of(name)]
        # A head's step without an equation, or of one number, is selected from its layer's step.
        while node.select and (node.step.equation is None or not node.step.axes):
            layer_value, n_head = map(self._run.value, (node.layer_step, node.n_head))
            select = partial(node.select, head=node.number, n_head=n_head)
            # If `select` returns the layer's whole value, such as the scale, show its equation.
            if select(layer_value) is not layer_value:
                return Computation(select, {"layer_value": (node.layer_step, layer_value)})
            node = self._run.graph[node.layer_step]  # one step for all heads
        needed = zip(parameters_of(node.step.equation), node.needs, strict=True)
        return Computation(
            node.step.equation, {name: (path, self._run.value(path)) for name, path in needed}
        )

    def _computes_for_repr(self, name: str) -> bool:
        """Whether a step is quick enough to compute just for the table."""
        return math.prod(self._run.scores_shape) <= MAX_SCORES_FOR_REPR  # so the text is short

    def _step(self, name: str) -> Step[Any]:
        if not isinstance(name, str) or name not in self.steps:
            hint = ""
            if isinstance(name, str):
                # A name may exist further down: a trace has no weights, its heads have.
                below = ", ".join(paths_in_parts(type(self), name))
                hint = f"; its parts have {below}" if below else ""
            raise InvalidValueError(
                f"{self.title} has no step {quoted(name)}; its steps are "
                f"{', '.join(self.steps)}{hint}"
            )
        return self.steps[name]

    def _path_of(self, name: str) -> str:
        """Check that a step exists, and return its path from the root."""
        return self._prefix + self._step(name).name

    def axes_of(self, name: str) -> str:
        """The names of a step's axes, without leading batch axes."""
        return self._step(name).axes  # a subclass may know more, such as that D' is D

    def formula_of(self, name: str) -> str:
        """The right-hand side of a step's equation, or a description of an input."""
        # `formulas` has the formulas of a variant, such as exact GELU.
        return self._run.graph.formulas.get(name, self._step(name).formula)

    def _heading_of(self, name: str) -> str:
        """A step's heading in views."""
        formula = self.formula_of(name)
        if self.derivative_of:
            template = "gradient of {target} with respect to {step}"
            return Message(template, target=self.derivative_of, step=name)
        path = self._path_of(name)
        # A computed step shows "name = formula", an input "name: description".
        is_given = not {path, self._run.graph[path].layer_step}.isdisjoint(self._run.graph.given)
        equals = " = " if self._step(name).equation and not is_given else Message(": ")
        product = formula.removesuffix(", split into heads")
        # Messages, so that words in the formula are translated.
        words = Message(formula)
        if product != formula:
            words = Message("{product}, split into heads", product=product)
        heading = Message("{name}{equals}{formula}", name=name, equals=equals, formula=words)
        if not formula:
            heading = Message(name)
        return Message("{title}, edited", title=heading) if self.is_edited(name) else heading

    def _steps_shown(self) -> tuple[str, ...]:
        return self._table_steps

    def _table(self) -> str:
        lines: list[tuple[str, ...]] = [header("name", "axes", "shape", "dtype", "range", "-inf")]
        fork = self._fork()  # printing a table must not fill the memory
        for name in self._steps_shown():
            axes = self.axes_of(name)
            # Printing must be quick, so a large step isn't computed for it.
            if not self._is_stored(name) and not self._computes_for_repr(name):
                lines.append((name, axes, "", "", Message("not computed yet"), ""))
                continue
            try:
                value = getattr(fork, name)
            except AttnlabError as error:  # the table shows the other steps
                lines.append((name, axes, "", "", Message("error: {error}", error=error), ""))
                continue
            if value is not None:  # None is an optional step that was left out
                # Batch axes aren't declared: "... H Tq Tk" for several texts.
                leading = "... " if np.ndim(value) > len(axes.split()) else ""
                lines.append((name, leading + axes, *describe(value)))
        return align(lines, left=(0, 1, 2, 3, 4))

    def __repr__(self) -> str:
        return "\n".join(map(str, filter(None, (self.title, self._table(), Message(self._hint)))))


def step_at(result: Result, path: str) -> tuple[Result, str]:
    """Return the part that has a step, and the step's name, given the step's path."""
    if isinstance(path, str):
        if hint := dots_hint(path):
            raise InvalidValueError(f"there is no step {quoted(path)}{hint}")
        *prefix, name = path.split(".")
        part = at(result, ".".join(prefix)) if prefix else result
        if isinstance(part, Result):
            return part, name
    raise InvalidValueError(
        f"there is no step {quoted(path)}; a path ends in a step, such as 'blocks.0.mid'"
    )


def at(result: Result, path: str) -> Any:
    """Return a step's array, or a part, of a result such as a trace, by its path.

    `trace[path]` is the same. A * stands for all blocks or all heads, whose arrays are stacked. An
    index at the end is applied to each array before stacking.

    Examples
    --------
    >>> at(trace, "blocks.3.attention.heads.5.weights")  # trace.head(3, 5).weights
    >>> at(trace, "blocks.*.attention.heads.*.weights")  # (layers, heads, queries, keys)
    >>> at(trace, "blocks.3.output[-1]")  # the last row
    """
    if not isinstance(result, Result | Numbered):
        raise InvalidTypeError(
            f"at needs a trace or a part of one; got {quoted(result)}. Several texts "
            "have traces[path]"
        )
    check_kind(path, str, "path", "a str, such as 'blocks.0.mid'")
    step = parse(path)
    if "*" in step.path.split("."):
        return _stacked(result, path)
    if step.index is not None:
        array = at(result, step.path)
        if isinstance(array, np.ndarray):
            try:
                return array[parse_index(step.index)]
            except IndexError as error:
                raise OutOfRangeError(f"{path}: {error}") from None
        if not isinstance(array, Numbered):  # of blocks[3], the hint below says how it is written
            raise InvalidValueError(f"{step.path} isn't an array: leave the index out of {path}")
    if hint := dots_hint(path):
        raise InvalidValueError(f"there is no part {quoted(path)}{hint}")
    part: Any = result
    walked: list[str] = []
    for name in path.split("."):  # blocks, 3, attention: one part further down each time
        names = parts_of(part)
        if name not in names:
            options = ""
            if names:
                parent = ".".join(walked) or type(result).__name__
                options = f"; {parent} has {', '.join(names)}"
            raise InvalidValueError(f"there is no part {quoted(path)}{options}")
        part = part[int(name)] if isinstance(part, Numbered) else getattr(part, name)
        walked.append(name)
    return part


def _stacked(result: Result, path: str) -> AnyArray:
    """Stack the arrays of a path whose first * stands for all blocks, or all heads."""
    above, _, below = f".{path}.".partition(".*.")  # the outer dots find a * at either end
    numbered = at(result, above[1:]) if above else None  # such as all blocks
    if not isinstance(numbered, Numbered) or not below:
        raise InvalidValueError(
            f"in {quoted(path)}, * must stand for all blocks or all heads, before a step: "
            "blocks.*.attention.heads.*.weights"
        )
    # The rest of the path may have another *, which adds an axis after this axis.
    return stack([at(part, below[:-1]) for part in numbered], path)


def stack(steps: list[Any], path: str) -> AnyArray:
    """Stack the arrays of one path in several results; raise unless they have one shape."""
    shapes = {np.shape(x) if isinstance(x, np.ndarray | float | int) else None for x in steps}
    if len(shapes) > 1 or None in shapes:
        raise InvalidValueError(
            f"{quoted(path)} can't be stacked: its values aren't arrays of one shape. Give a step "
            "of texts of one length, or one position, such as 'blocks.0.output[-1]'"
        )
    return read_only(np.stack(steps))


def paths_below(part: Any, prefix: str = "") -> Iterator[str]:
    """The paths of all steps of a result and its parts."""
    if isinstance(part, Numbered):
        for number, item in enumerate(part):
            yield from paths_below(item, f"{prefix}{number}.")
    else:
        yield from (prefix + name for name in part.steps)
        for name in part._children:
            yield from paths_below(getattr(part, name), f"{prefix}{name}.")


def parts_of(part: Any) -> list[str]:
    """The names that may follow a part in a path."""
    if isinstance(part, Numbered):  # blocks, or heads
        return [str(n) for n in range(len(part))]
    return [*part._children, *part.steps] if isinstance(part, Result) else []


def paths_in_parts(result_class: type[Result], name: str) -> list[str]:
    """Paths of steps called `name` in a result's parts, with block and head 0."""
    steps = steps_below(result_class, number="0")
    return [path for path, step in steps if step.name == name and "." in path]


def describe(value: AnyArray | float) -> tuple[str, str, str, str]:
    """Shape, dtype, range of the finite values and number of -inf, as text."""
    if not isinstance(value, np.ndarray):
        return "", "", f"{value:.4g}", ""
    shape, dtype = " x ".join(map(str, value.shape)), str(value.dtype)
    if value.dtype == bool:  # a mask, which has no range
        return (
            shape,
            dtype,
            say("{n} of {size} True", n=np.count_nonzero(value), size=value.size),
            "",
        )
    # This comes before the range: with NaN, minimum and maximum would be NaN.
    if np.isnan(value).any():
        return shape, dtype, f"{np.count_nonzero(np.isnan(value))} NaN", ""
    # masked_scores contain -inf, which would hide the range of the other scores.
    finite = value[np.isfinite(value)]
    span = f"{finite.min():.4g} … {finite.max():.4g}" if finite.size else "no finite number"
    return shape, dtype, span, str(np.count_nonzero(np.isneginf(value)) or "")
