"""A result: the steps of one computation under their names, and those of its parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, NoReturn, Self, TypeVar

import numpy as np

from attnlab.equations import AnyArray
from attnlab.errors import AttnlabError, InvalidTypeError, InvalidValueError, quoted
from attnlab.steps.declaration import Step, parameters_of
from attnlab.steps.graph import as_data
from attnlab.steps.parts import Numbered, Part
from attnlab.steps.run import Run
from attnlab.support.console import PrintedAnywhere
from attnlab.support.messages import Message
from attnlab.support.names import dots_hint, hint_for, hint_in_path
from attnlab.support.tables import align

if TYPE_CHECKING:
    from attnlab.views.explanation import Explanation


class Made(NamedTuple):
    """What makes a step.

    Attributes
    ----------
    equation : or what takes a part out of a whole; None where the step is given
    needs : of its parameters, path and value
    """

    equation: Callable[..., Any] | None
    needs: dict[str, tuple[str, Any]]


class Result(PrintedAnywhere):
    """Named steps of one computation, each read-only; `repr` is a table of them.

    The table computes what takes less than 50 ms, by its size; the rest is "not computed yet". It
    keeps nothing that was not there before.

    Attributes
    ----------
    title : what the table is headed with
    path : where in the whole it stands, such as "blocks.3.attention"; "" for the whole
    tokens : of a text; None where the matrices belong to none
    memory_tokens : of another text that is looked at, see `cross_attention`
    parts : names of the steps in the order in which they are shown
    steps : the declarations of all steps, by name
    children : the kinds of the results that are parts of this one
    hint : what the table ends with, where there is more to see
    """

    parts: ClassVar[tuple[str, ...]] = ()
    steps: ClassVar[dict[str, Step[Any]]] = {}
    children: ClassVar[dict[str, type[Result]]] = {}
    hint: ClassVar[str] = ""
    path: str

    def __init_subclass__(cls) -> None:
        own = {name: step for name, step in vars(cls).items() if isinstance(step, Step)}
        cls.steps = cls.steps | own

    def __init__(self, *_: object, **__: object) -> None:
        raise InvalidTypeError(
            f"{type(self).__name__} is not made by hand: attention and the functions beside it, "
            "model.trace and ForwardPass return results, and those have their parts"
        )

    def _stand(self, title: str, run: Run, path: str) -> None:
        """Become a view of a run, from a path on."""
        vars(self).update(_title=title, path=path, _run=run, _prefix=f"{path}." if path else "")

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is read-only: {name} can't be set")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__} is read-only: {name} can't be deleted")

    def __array__(self, *_: object, **__: object) -> NoReturn:
        raise InvalidTypeError(
            f"{self.title} holds several arrays: ask for one, .{', .'.join(self._shown())}"
        )

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{type(self).__name__} has no {name}{self._hint_for(name)}")

    def _hint_for(self, name: str) -> str:
        """Where to find from here what another tool calls `name`, as the end of a message."""
        state = vars(self)  # empty where it is only just being copied
        run, place = state.get("_run"), state.get("path", "")
        if run is not None and "blocks" not in run.graph.root.children:  # of no model
            is_layer = "heads" in run.graph.root.children
            place = f"blocks.0.attention.{place if is_layer else 'heads.0'}".rstrip(".")
        own = [n for n, step in self.steps.items() if step.of_whole or not state.get("path")]
        return hint_for(name, place, own)

    def __getstate__(self) -> dict[str, Any]:  # what it makes once, it makes again
        return {
            n: x
            for n, x in dict(vars(self)).items()
            if not isinstance(getattr(type(self), n, None), Part)
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)

    @property
    def title(self) -> str:
        return Message("{title}{note}", title=self._title, note=self.note)

    @property
    def note(self) -> str:
        """What all titles end with: where it was edited."""
        note: str = self._run.note
        return note

    @property
    def derivative_of(self) -> str:
        """What the numbers are gradients of; "" where they are the steps themselves."""
        of: str = self._run.derivative_of
        return of

    @property
    def tokens(self) -> Any:
        return self._run.tokens

    @property
    def memory_tokens(self) -> Any:
        """Of the sequence that is looked at, where it is another one; () where they have no names.

        None where it is the sequence itself.
        """
        return self._run.memory_tokens

    @property
    def edited_steps(self) -> tuple[str, ...]:
        """The paths, from the whole, of the steps that were edited; a head's are its layer's."""
        steps: tuple[str, ...] = self._run.edited_steps
        return steps

    @property
    def tokens_before(self) -> int:
        """How many tokens before these were found in a cache."""
        before: int = self._run.tokens_before
        return before

    def fork(self) -> Self:
        """The same result as it is now, for a look that leaves nothing behind in this one."""
        return self._of_run(self._run.fork())

    aside = fork  # its name in earlier versions

    def _of_run(self, run: Run) -> Self:
        """The same result of another run."""
        other = copy(self)
        vars(other)["_run"] = run
        return other

    def is_there(self, name: str) -> bool:
        """Whether a step was given, or has been looked at, or is kept for another one."""
        there: bool = self._run.is_there(self._path_of(name))
        return there

    def is_edited(self, name: str) -> bool:
        """Whether a step, or a part of it, is other than its equation says."""
        edited: bool = self._run.is_edited(self._path_of(name))
        return edited

    def unedited(self, name: str) -> Any:
        """What a step would be, were it not edited itself."""
        if not self.is_edited(name):
            return getattr(self, name)
        return self._run.unedited(self._path_of(name))

    def made_of(self, name: str) -> Made:
        """What makes a step, and what it is made of."""
        node = self._run.graph[self._path_of(name)]
        while node.whole and (node.step.equation is None or not node.step.axes):
            whole, n_head = map(self._run.look, (node.whole, node.n_head))
            take = partial(node.step.of_whole, head=node.number, n_head=n_head)
            if take(whole) is not whole:
                return Made(take, {"whole": (node.whole, whole)})
            node = self._run.graph[node.whole]  # each part has it whole
        needed = zip(parameters_of(node.step.equation), node.needs, strict=True)
        return Made(
            node.step.equation, {name: (path, self._run.look(path)) for name, path in needed}
        )

    def _explained(
        self,
        path: str,
        token: int | str | None,
        component: int | str | None,
        key: int | str | None = None,
    ) -> Explanation:
        """The arithmetic of one number of a step, by the step's path from here."""
        from attnlab.views.explain import explain

        return explain(*step_at(self, path), token, component, key)

    def _computes_for_repr(self, name: str) -> bool:
        """Whether showing the table may compute a step that nobody looked at yet."""
        return False

    def _step(self, name: str) -> Step[Any]:
        """The declaration that says what a step is."""
        if not isinstance(name, str) or name not in self.steps:
            hint = ""
            if isinstance(name, str):
                below = ", ".join(paths_below(type(self), name))
                hint = f"; of its parts there are {below}" if below else self._hint_for(name)
            raise InvalidValueError(
                f"{self.title} has no step {quoted(name)}; its steps are "
                f"{', '.join(self.steps)}{hint}"
            )
        return self.steps[name]

    def _path_of(self, name: str) -> str:
        """A step's path from the whole."""
        path: str = self._prefix + self._step(name).name
        return path

    def axes_of(self, name: str) -> str:
        """The names of a step's axes, those that lead it apart."""
        return self._step(name).axes

    def formula_of(self, name: str) -> str:
        """What a step is made of, its equation's right-hand side; of what is given, what it is."""
        formula: str = self._run.graph.formulas.get(name, self._step(name).formula)
        return formula

    def graph_as_data(self) -> dict[str, list[str]]:
        """What each step of the whole is computed from, for a run outside of Python."""
        return as_data(self._run.graph)

    def heading_of(self, name: str) -> str:
        """What a view of a step is headed with."""
        formula = self.formula_of(name)
        if self.derivative_of:
            template = "gradient of {target}, by {step}"
            return Message(template, target=self.derivative_of, step=name)
        equals = " = " if self._step(name).equation else ": "
        heading = f"{name}{equals}{formula}" if formula else name
        return Message("{title}, edited", title=heading) if self.is_edited(name) else heading

    def _shown(self) -> tuple[str, ...]:
        return self.parts

    def _table(self) -> str:
        lines = [("name", "axes", "shape", "dtype", "range", "-inf")]
        fork = self.fork()
        for name in self._shown():
            axes = self.axes_of(name)
            if not self.is_there(name) and not self._computes_for_repr(name):
                lines.append((name, axes, "", "", "not computed yet", ""))
                continue
            try:
                value = getattr(fork, name)
            except AttnlabError as error:  # what can be shown is shown
                lines.append((name, axes, "", "", f"none: {error}", ""))
                continue
            if value is not None:
                leading = "... " if np.ndim(value) > len(axes.split()) else ""
                lines.append((name, leading + axes, *describe(value)))
        return align(lines, left=(0, 1, 2, 3, 4))

    def __repr__(self) -> str:
        return "\n".join(filter(None, (self.title, self._table(), self.hint)))

    def _repr_html_(self) -> str:
        from attnlab.views.notebook import result_view

        return result_view(self)


Kind = TypeVar("Kind", bound=Result)


def view_of(kind: type[Kind], title: str, run: Run, path: str = "") -> Kind:
    """A result of a kind: what a run has from a path on."""
    result = object.__new__(kind)
    result._stand(title, run, path)
    return result


def needs(result: Result, path: str) -> tuple[str, ...]:
    """The steps that a step of a result is computed from, as its equation names them.

    Parameters
    ----------
    result : such as a trace, or one block of it
    path : of a step from there, such as "blocks.0.mid"

    Returns
    -------
    paths from the whole that the result is part of; () of what is given and of parameters

    Examples
    --------
    >>> needs(trace, "blocks.0.attention.scores")
    ('blocks.0.attention.raw_scores', 'blocks.0.attention.scale')
    """
    part, name = step_at(result, path)
    node = part._run.graph[part._path_of(name)]
    return node.needs or tuple(filter(None, [node.whole]))


def step_at(result: Result, path: str) -> tuple[Result, str]:
    """The part of a result that a path's step belongs to, and the step's name."""
    if isinstance(path, str) and (hint := dots_hint(path)):
        raise InvalidValueError(f"there is no step {quoted(path)}{hint}")
    *place, name = path.split(".") if isinstance(path, str) else [""]
    part = at(result, ".".join(place)) if place else result
    if not isinstance(path, str) or not isinstance(part, Result):
        raise InvalidValueError(
            f"there is no step {quoted(path)}: a path ends in one, such as 'blocks.0.mid'"
        )
    return part, name


def at(result: Result, path: str) -> Any:
    """A part of a result by its path, as one types it to look at it.

    Parameters
    ----------
    result : such as a trace, or one block of it
    path : such as "blocks.3.attention.heads.5.weights", or "blocks.3.attention"

    Returns
    -------
    array, or the part's result

    Examples
    --------
    >>> at(trace, "blocks.3.attention.heads.5.weights")    # trace.head(3, 5).weights
    """
    if not isinstance(path, str):
        raise InvalidTypeError(f"a path is a str, such as 'blocks.0.mid'; given {quoted(path)}")
    if hint := dots_hint(path):
        raise InvalidValueError(f"there is no part {quoted(path)}{hint}")
    found: Any = result
    gone: list[str] = []
    for name in path.split("."):
        there = parts_of(found)
        if name not in there:
            where = ".".join(gone) or "it"
            has = f"; {where} has {', '.join(there)}" if there else ""
            hint = found._hint_for(name) if isinstance(found, Result) else ""
            raise InvalidValueError(
                f"there is no part {quoted(path)}{has}{hint or hint_in_path(path)}"
            )
        found = found[int(name)] if isinstance(found, Numbered) else getattr(found, name)
        gone.append(name)
    return found


def parts_of(found: Any) -> list[str]:
    """The names in a path that lead on from a result, or from blocks or heads."""
    if isinstance(found, Numbered):
        return [str(n) for n in range(len(found))]
    return [*found.children, *found.steps] if isinstance(found, Result) else []


def paths_below(kind: type[Result], name: str) -> Iterator[str]:
    """The paths of the steps of a name in the parts of a result, of the first of several parts."""
    for child, part in kind.children.items():
        place = f"{child}.0" if child in ("blocks", "heads") else child
        if name in part.steps:
            yield f"{place}.{name}"
        yield from (f"{place}.{path}" for path in paths_below(part, name))


def describe(value: AnyArray | float) -> tuple[str, str, str, str]:
    """Shape, dtype, range of the finite values, and the number of -inf, as words."""
    if not isinstance(value, np.ndarray):
        return "", "", f"{value:.4g}", ""
    array = value
    shape = " x ".join(map(str, array.shape))
    if array.dtype == bool:
        return shape, "bool", f"{np.count_nonzero(array)} of {array.size} True", ""
    if np.isnan(array).any():
        return shape, str(array.dtype), f"{np.count_nonzero(np.isnan(array))} NaN", ""
    finite = array[np.isfinite(array)]
    span = f"{finite.min():.4g} … {finite.max():.4g}" if finite.size else "nothing finite"
    infinite = np.count_nonzero(np.isneginf(array))
    return shape, str(array.dtype), span, str(infinite) if infinite else ""
