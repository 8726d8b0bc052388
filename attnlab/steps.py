"""Results made of named steps: each computed on first look from those that it needs, then kept.

A step is declared with its axes, its formula in words, and its equation in `attnlab.equations`:

    raw_scores = Step("Tq Tk", "Q Kᵀ", equations.raw_scores, passes=True)

Which steps it needs is read from the equation's parameters: `raw_scores(Q, K)` needs Q and K. Where
an equation serves several steps, the declaration says what a parameter stands for:

    X = Step("T D", "LayerNorm(mid)", equations.layer_norm, x="parent.mid")

So the graph of a computation is data. A `Graph` has one node for each step, found by its path
(`blocks.3.attention.weights`), a `Run` the arrays that are there so far. Results are views of a
run: `trace.blocks[3].attention` knows the run and its own path, and no result knows the one that it
is part of, so that what nobody holds is freed at once.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from functools import partial
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    Literal,
    NamedTuple,
    NoReturn,
    Self,
    SupportsIndex,
    TypeVar,
    overload,
)

import numpy as np

from attnlab.checks import as_number, is_integer
from attnlab.console import PrintedAnywhere
from attnlab.equations import AnyArray, same
from attnlab.errors import AttnlabError, InvalidTypeError, InvalidValueError, OutOfRangeError, shown
from attnlab.names import hint_for, written
from attnlab.tables import align

if TYPE_CHECKING:
    from attnlab.views.explanation import Explanation

Value = TypeVar("Value")

# What a step needs: another step by its path, or, where that depends on it, by its part's number.
Need = str | Callable[[int], str]

# Formulas in words, by the names of their steps.
Formulas = tuple[tuple[str, str], ...]


def read_only(value: Value) -> Value:
    """`value`; where it is an array, one that can't be written to."""
    if isinstance(value, np.ndarray):
        value.flags.writeable = False
    return value


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
        self.needs = tuple(where.get(name, name) for name in _parameters(equation))
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
    def __get__(self, result: Result, owner: type) -> Value: ...
    def __get__(self, result: Result | None, owner: type) -> Step[Value] | Value:
        if result is None:
            return self
        value: Value = result._run.look(result._prefix + self.name)
        return value


def _parameters(function: Callable[..., Any] | None) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(function).parameters if function else {}


class Node(NamedTuple):
    """A step at its place in a graph, with paths from the root.

    Attributes
    ----------
    needs : of the equation's parameters
    fast_needs : name, path, and whether it is used only where it is there, of the fast form's
    whole, number, n_head : of a part of a whole: the path of the whole's step, which part it is,
        and the path of how many there are
    """

    step: Any  # a Step, which as such would be looked up in the node
    needs: tuple[str, ...]
    fast_needs: tuple[tuple[str, str, bool], ...]
    whole: str
    number: int
    n_head: str


class Graph(dict[str, Node]):
    """Every step of a kind of result by its path; a node is made when it is first asked for.

    Parameters
    ----------
    root : the kind of the result that is part of no other
    n_layer : how many blocks it has
    formulas : of steps that are made in another way than GPT-2 makes them, by name
    own : paths of steps that others compute, and of which this model has a parameter of its own
    """

    def __init__(
        self, root: type[Result], n_layer: int, formulas: Formulas = (), own: tuple[str, ...] = ()
    ) -> None:
        super().__init__()
        self.root, self.n_layer = root, n_layer
        self.formulas, self.own = dict(formulas), own

    def __reduce__(self) -> tuple[Any, ...]:
        return graph_of, (self.root, self.n_layer, tuple(self.formulas.items()), self.own)

    def __missing__(self, path: str) -> Node:
        *place, name = path.split(".")
        step = self.kind_at(place).steps[name]
        if path in self.own:
            step = step.as_parameter()
        number = int(place[-1]) if place and place[-1].isdigit() else self.n_layer

        def absolute(need: Need) -> str:
            first, *rest = (need if isinstance(need, str) else need(number)).split(".")
            if first == "root":
                return ".".join(rest)
            above = place
            while first == "parent":
                above = above[: -2 if above[-1].isdigit() else -1]
                first, *rest = rest
            return ".".join((*above, first, *rest))

        self[path] = node = Node(
            step,
            tuple(map(absolute, step.needs)),
            tuple(
                (name, absolute(step.where.get(name, name)), it.default is not it.empty)
                for name, it in _parameters(step.fast).items()
            ),
            absolute(f"parent.{name}") if step.of_whole else "",
            number,
            absolute("parent.n_head") if step.of_whole else "",
        )
        return node

    def with_others(self, nodes: Mapping[str, Node]) -> Graph:
        """A graph of its own, in which some nodes are others."""
        graph = Graph(self.root, self.n_layer, tuple(self.formulas.items()), self.own)
        graph.update({**self, **nodes})
        return graph

    def kind_at(self, place: Iterable[str]) -> type[Result]:
        """The kind of the result at a place, such as blocks, 3, attention."""
        kind = self.root
        for name in place:
            if not name.isdigit():
                kind = kind.children[name]
        return kind


GRAPHS: dict[tuple[Any, ...], Graph] = {}


def graph_of(
    root: type[Result], n_layer: int = 0, formulas: Formulas = (), own: tuple[str, ...] = ()
) -> Graph:
    """The graph of a kind of result, one for all of them."""
    key = root, n_layer, formulas, own
    return GRAPHS.setdefault(key, Graph(*key))


class Run:
    """One computation: the arrays that are there so far, by path, and how the others are made.

    Nothing in it is locked. Threads that look at the same step all compute it, to the same bits,
    and the first one's is kept.

    Parameters
    ----------
    graph : how they are made
    values : what is given, by path
    given : gives the model's parameters, by path, when they are needed; None where there are none
    scores_shape : what shape the scores of a layer have, (..., H, Tq, Tk)
    tokens : of a text
    memory_tokens : of the sequence that is looked at, () where they have no names; None where it
        is the text itself
    tokens_before : how many tokens before these were found in a cache
    is_long : whether steps that have a fast form are made by it

    Attributes
    ----------
    tells : whether numbers that are not finite are an error
    note : what all titles end with
    derivative_of : what the numbers are gradients of; "" where they are the steps themselves
    """

    def __init__(
        self,
        graph: Graph,
        values: dict[str, Any],
        given: Callable[[str], Any] | None = None,
        *,
        scores_shape: tuple[int, ...] = (),
        tokens: Any = None,
        memory_tokens: Any = None,
        tokens_before: int = 0,
        is_long: bool = False,
    ) -> None:
        self.graph, self.values, self.given = graph, values, given
        self.scores_shape, self.is_long = scores_shape, is_long
        self.tokens, self.memory_tokens = tokens, memory_tokens
        self.tokens_before = tokens_before
        self.tells, self.note, self.derivative_of = True, "", ""
        for value in values.values():
            read_only(value)

    def __getstate__(self) -> dict[str, Any]:
        values = dict(self.values)  # all at once: other threads may be adding to them

        def is_made_again(path: str) -> bool:
            """Whether it is a look at numbers that are written elsewhere, or are parameters."""
            node = self.graph[path]
            return node.step.view or node.step.always_of_whole or node.whole in values

        kept = {path: value for path, value in values.items() if not is_made_again(path)}
        return vars(self) | {"values": kept}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        for value in self.values.values():
            read_only(value)  # an array that was copied or unpickled can be written to

    def aside(self) -> Run:
        """The same run so far; what is computed in it from now on goes when it goes."""
        aside = object.__new__(type(self))
        vars(aside).update(vars(self), values=dict(self.values))
        return aside

    def is_edited(self, path: str) -> bool:
        """Whether a step, or a part of it, is other than its equation says."""
        return False

    def unedited(self, path: str) -> Any:
        """What a step would be, were it not edited itself."""
        return self.look(path)

    def edits_of(self, path: str) -> list[tuple[str, Any]]:
        """The edits that make a step other than its equation does, by path, the last one first."""
        return []

    def is_there(self, path: str) -> bool:
        """Whether a step was given, or has been looked at, or is kept for another one."""
        return path in self.values

    def look(self, path: str) -> Any:
        """A step, computed if it is not there, and kept.

        Raises
        ------
        InvalidValueError
            Its numbers, or those that it is made of, are NaN, infinite, or overflow.
        """
        if path in self.values:
            return self.values[path]
        with self.telling():
            return self._kept(path)

    def telling(self) -> np.errstate:
        """While it lasts, what overflows is told, and never becomes a finite number."""
        overflow: Literal["raise", "ignore"] = "raise" if self.tells else "ignore"
        return np.errstate(over=overflow, invalid=overflow, divide=overflow, under="ignore")

    def _kept(self, path: str) -> Any:
        node = self.graph[path]
        if node.step.after_blocks:
            self._run_blocks(node.number)
        value = self._made(path, node)
        if node.step.is_given:
            return value  # which is kept where it came from
        return self.values.setdefault(path, read_only(value))

    @property
    def edited_steps(self) -> tuple[str, ...]:
        """The paths of the steps that are other than their equations make them."""
        return ()

    def _run_blocks(self, stop: int) -> None:
        start = stop
        while start and not self.is_there(f"blocks.{start - 1}.output"):
            start -= 1
        for layer in range(start, stop):
            self._kept(f"blocks.{layer}.output")

    def _for_another(self, path: str) -> Any:
        """A step that another one needs."""
        if path in self.values:
            return self.values[path]
        node = self.graph[path]
        return self._made(path, node) if node.step.passes else self._kept(path)

    def _made(self, path: str, node: Node) -> Any:
        step = node.step
        if step.of_whole is not None and self._takes_of_whole(node):
            whole = self._there_or_kept(node.whole)
            if whole is None:
                return None
            return step.of_whole(whole, node.number, self._for_another(node.n_head))
        if step.equation is same:  # one array under two names
            return self._there_or_kept(node.needs[0])
        if step.equation is None:
            if step.optional:
                return None
            if self.given is None:
                raise AttributeError(f"{path} is not there")
            return self.given(path)
        if step.fast is not None and self._goes_fast(path):
            needed = {
                name: self._for_another(need)
                for name, need, if_there in node.fast_needs
                if not if_there or self.is_there(need)
            }
            equation = partial(step.fast, **needed)
        else:
            equation = partial(step.equation, *map(self._for_another, node.needs))
        try:
            value = equation()
        except FloatingPointError as error:
            if "matmul" not in str(error):
                raise self._refusal(path) from None
            with np.errstate(all="ignore"):  # some BLAS raise a flag for nothing: the numbers tell
                value = equation()
            if not is_finite(value):
                raise self._refusal(path) from None
        if step.finite and self.tells and not is_finite(value):
            raise self._refusal(path)
        return value

    def _there_or_kept(self, path: str) -> Any:
        return self.values[path] if path in self.values else self._kept(path)

    def _takes_of_whole(self, node: Node) -> bool:
        return node.step.always_of_whole or not self.is_long or self.is_there(node.whole)

    def _goes_fast(self, path: str) -> bool:
        return self.is_long

    def _refusal(self, path: str) -> InvalidValueError:
        """An error that names the first step whose numbers are not finite, or overflow."""
        silent = self.aside()
        silent.tells = False
        origin: str | None = path
        while origin is not None:
            path, origin = origin, None
            for need in self.graph[path].needs:
                # -inf is meant in masked scores.
                need = need.removesuffix("masked_scores") + "scores" * need.endswith(
                    "masked_scores"
                )
                if not is_finite(silent.look(need)):
                    origin = need
                    break
        value = silent.look(path)
        if self.graph[path].step.equation in (None, same):  # it was given
            return InvalidValueError(f"{path} holds NaN or infinite numbers")
        return overflow(path, value.dtype)


def overflow(name: str, dtype: np.dtype[Any]) -> InvalidValueError:
    """An error that says of what is computed that it is too large."""
    return InvalidValueError(
        f"{name} overflows: its numbers, or some on the way to them, are too large for {dtype}"
        + "; float64 may hold them" * (dtype == np.float32)
    )


def is_finite(value: Any) -> bool:
    """Whether a value, where it is an array of floats, holds no NaN and nothing infinite."""
    if not isinstance(value, np.ndarray) or value.dtype.kind != "f":
        return True
    return bool(np.isfinite(value.max()) and np.isfinite(value.min()))


class Made(NamedTuple):
    """What makes a step.

    Attributes
    ----------
    equation : or what takes a part out of a whole; None where the step is given
    needs : of its parameters, path and value
    """

    equation: Callable[..., Any] | None
    needs: dict[str, tuple[str, Any]]


class Part(Generic[Value]):
    """Something that a result makes once, when it is first asked for, such as its heads.

    Unlike `functools.cached_property` before Python 3.12, it takes no lock.
    """

    def __init__(self, make: Callable[[Any], Value]) -> None:
        self.make = make
        self.__doc__ = make.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, result: None, owner: type) -> Part[Value]: ...
    @overload
    def __get__(self, result: object, owner: type) -> Value: ...
    def __get__(self, result: object | None, owner: type) -> Part[Value] | Value:
        if result is None:
            return self
        # Not a data descriptor: from now on Python finds the kept value before it finds this.
        value: Value = vars(result).setdefault(self.name, self.make(result))
        return value


class Result(PrintedAnywhere):
    """Named steps of one computation, each read-only; `repr` is a table of them.

    The table computes what follows from what is there, unless it is large; what would take running
    blocks is "not computed yet". It keeps nothing that was not there before.

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
        return f"{self._title}{self.note}"

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

    def aside(self) -> Self:
        """The same result as it is now, for a look that leaves nothing behind in this one."""
        return self._of_run(self._run.aside())

    def _of_run(self, run: Run) -> Self:
        """The same result of another run."""
        other = copy(self)
        vars(other)["_run"] = run
        return other

    def is_there(self, name: str) -> bool:
        """Whether a step was given, or has been looked at, or is kept for another one.

        Raises
        ------
        InvalidValueError
            There is no such step; so of what else asks for a step's name.
        """
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
        needed = zip(_parameters(node.step.equation), node.needs, strict=True)
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

    def _computes_for_repr(self) -> bool:
        """Whether showing the table may compute the steps that nobody looked at yet."""
        return False

    def _step(self, name: str) -> Step[Any]:
        """The declaration that says what a step is."""
        if not isinstance(name, str) or name not in self.steps:
            hint = ""
            if isinstance(name, str):
                below = ", ".join(paths_below(type(self), name))
                hint = f"; of its parts there are {below}" if below else self._hint_for(name)
            raise InvalidValueError(
                f"{self.title} has no step {shown(name)}; its steps are "
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

    def heading_of(self, name: str) -> str:
        """What a view of a step is headed with."""
        formula = self.formula_of(name)
        if self.derivative_of:
            return f"gradient of {self.derivative_of}, by {name}"
        equals = " = " if self._step(name).equation else ": "
        edited = ", edited" * self.is_edited(name)
        return f"{name}{equals}{formula}{edited}" if formula else f"{name}{edited}"

    def _shown(self) -> tuple[str, ...]:
        return self.parts

    def _table(self) -> str:
        lines = [("name", "axes", "shape", "dtype", "range", "-inf")]
        aside, computes = self.aside(), self._computes_for_repr()
        for name in self._shown():
            axes = self.axes_of(name)
            if not computes and not self.is_there(name):
                lines.append((name, axes, "", "", "not computed yet", ""))
                continue
            try:
                value = getattr(aside, name)
            except AttnlabError as error:  # what can be shown is shown
                lines.append((name, axes, "", "", f"none: {error}", ""))
                continue
            if value is not None:
                leading = "... " * (np.ndim(value) > len(axes.split()))
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


def paths_below(kind: type[Result], name: str) -> Iterator[str]:
    """The paths of the steps of a name in the parts of a result, of the first of several parts."""
    for child, part in kind.children.items():
        place = f"{child}.0" if child in ("blocks", "heads") else child
        if name in part.steps:
            yield f"{place}.{name}"
        yield from (f"{place}.{path}" for path in paths_below(part, name))


def needs(result: Result, path: str) -> tuple[str, ...]:
    """The steps that a step of a result is computed from, as its equation names them.

    Parameters
    ----------
    result : such as a trace, or one block of it
    path : of a step from there, such as "blocks.0.mid"

    Returns
    -------
    paths from the whole that the result is part of; () of what is given and of parameters

    Raises
    ------
    InvalidValueError, InvalidTypeError
        The result has no such step.

    Examples
    --------
    >>> needs(trace, "blocks.0.attention.scores")
    ('blocks.0.attention.raw_scores', 'blocks.0.attention.scale')
    """
    part, name = step_at(result, path)
    node = part._run.graph[part._path_of(name)]
    return node.needs or tuple(filter(None, [node.whole]))


def step_at(result: Result, path: str) -> tuple[Result, str]:
    """The part of a result that a path's step belongs to, and the step's name.

    Raises
    ------
    InvalidValueError
        There is no such part, or the path leads to no step; whether the part has a step of that
        name is not looked at.
    """
    if isinstance(path, str) and (hint := written(path)):
        raise InvalidValueError(f"there is no step {shown(path)}{hint}")
    *place, name = path.split(".") if isinstance(path, str) else [""]
    part = at(result, ".".join(place)) if place else result
    if not isinstance(path, str) or not isinstance(part, Result):
        raise InvalidValueError(
            f"there is no step {shown(path)}: a path ends in one, such as 'blocks.0.mid'"
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

    Raises
    ------
    InvalidValueError, InvalidTypeError
        There is no such part; the message tells what there is where the path ends.

    Examples
    --------
    >>> at(trace, "blocks.3.attention.heads.5.weights")    # trace.head(3, 5).weights
    """
    if not isinstance(path, str):
        raise InvalidTypeError(f"a path is a str, such as 'blocks.0.mid'; given {shown(path)}")
    if hint := written(path):
        raise InvalidValueError(f"there is no part {shown(path)}{hint}")
    found: Any = result
    gone: list[str] = []
    for name in path.split("."):
        there = parts_of(found)
        if name not in there:
            where = ".".join(gone) or "it"
            has = f"; {where} has {', '.join(there)}" if there else ""
            hint = found._hint_for(name) if isinstance(found, Result) else hint_for(name)
            raise InvalidValueError(f"there is no part {shown(path)}{has}{hint}")
        found = found[int(name)] if isinstance(found, Numbered) else getattr(found, name)
        gone.append(name)
    return found


def parts_of(found: Any) -> list[str]:
    """The names in a path that lead on from a result, or from blocks or heads."""
    if isinstance(found, Numbered):
        return [str(n) for n in range(len(found))]
    return [*found.children, *found.steps] if isinstance(found, Result) else []


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


class Numbered(PrintedAnywhere, tuple[Value, ...]):
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
        return super().__getitem__(index) if isinstance(index, slice) else self.one(index)

    def one(self, number: SupportsIndex) -> Value:
        """The result of that number, negative ones counted from the end; no slice.

        Raises
        ------
        InvalidTypeError
            It is no integer.
        OutOfRangeError
            There is no such result.
        """
        number = as_number(number)
        if not is_integer(number):
            raise InvalidTypeError(f"a {self.kind}'s number is an integer; given {shown(number)}")
        try:
            return super().__getitem__(number)
        except IndexError:
            raise OutOfRangeError(
                f"there is no {self.kind} {shown(number)}; {self.kind}s are 0 to {len(self) - 1}"
            ) from None

    def __repr__(self) -> str:
        return "\n".join(getattr(result, "title", repr(result)) for result in self)

    def _repr_html_(self) -> str:
        from attnlab.views.notebook import numbered_view

        return numbered_view(self)
