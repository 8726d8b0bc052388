"""Runs in which some steps are computed by other equations.

An edit replaces a step's value; this replaces its equation, whose inputs may differ. Steps that
don't depend on it are shared with the original run.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from copy import copy
from typing import Any

from attnlab.forward.edits import EditedRun
from attnlab.steps import Graph, Node, Run

# A function whose parameters are steps, see `node_with_equation`.
Equation = Callable[..., Any]


def with_equations(run: Run, equations: Mapping[str, Equation]) -> Run:
    """The run with other equations, by path; in it, NaN and infinity aren't errors."""
    nodes = {path: node_with_equation(run, path, equation) for path, equation in equations.items()}
    return with_nodes(run, nodes)


def with_nodes(run: Run, nodes: Mapping[str, Node]) -> Run:
    """The run with other nodes; steps that don't depend on them are shared."""
    if isinstance(run, EditedRun):  # edits apply to what the other nodes compute
        assert run.base is not None
        changed = EditedRun.of(with_nodes(run.base, nodes), run.edits[-1])
        changed.note = run.note
        return changed
    # A fork: the original run doesn't keep what only this one needs. Fast equations would bypass
    # the new nodes, which may produce NaN.
    base = run.fork(is_long=False, strict=False)
    return Run.changing(base, nodes, graph=run.graph.with_nodes(nodes))


def node_with_equation(run: Run, path: str, equation: Equation) -> Node:
    """The node of a step with another equation.

    The equation's parameters are those of the original one, or steps with the same prefix; `value`
    is the step's original value. A parameter's default is the step's name if it differs from the
    parameter's, such as "parent.input" for a step one level up, or None if the step is optional.
    """
    node = run.graph[path]
    original = None if is_fixed(run, path) else node.step.equation
    paths_of: dict[str, str] = {}  # by parameter of the original equation
    if original:
        paths_of = dict(zip(defaults_of(original), node.needs, strict=False))
    parameters = defaults_of(equation)
    takes_value = "value" in parameters
    parameters.pop("value", None)
    needs: dict[str, str] = {}
    for name, default in parameters.items():
        target = default if isinstance(default, str) else name
        need = paths_of.get(target) or beside(path, target)
        try:
            run.graph[need]
        except KeyError:  # this type of result has no such step
            if default is not None:
                raise
        else:
            needs[name] = need

    def new_equation(*values: Any) -> Any:
        arguments = dict(zip(needs, values, strict=False))
        if not takes_value:
            return equation(**arguments)
        value = original(*values[len(needs) :]) if original else run.value(path)
        return equation(value=value, **arguments)

    step = copy(node.step)
    step.equation, step.fast, step.joint, step.optional = new_equation, None, None, False
    needs_of_value = node.needs if takes_value and original else ()
    all_needs = (*needs.values(), *needs_of_value)
    return node._replace(step=step, needs=all_needs, fast_needs=(), layer_step="", select=None)


def beside(path: str, target: str) -> str:
    """The path of another step of the same part, or of the part above for "parent.input"."""
    prefix, is_in_parent = path.rpartition(".")[0], target.startswith("parent.")
    owner = prefix.rpartition(".")[0] if is_in_parent else prefix
    return f"{owner}.{target.removeprefix('parent.')}".lstrip(".")


def defaults_of(function: Callable[..., Any]) -> dict[str, Any]:
    """A function's parameters with defaults or `...`; much faster than `inspect.signature`."""
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    defaults = function.__defaults__ or ()
    return dict(zip(names, (...,) * (len(names) - len(defaults)) + defaults, strict=True))


def is_fixed(run: Run, path: str) -> bool:
    """Whether a step has a value that can't be computed, such as an input."""
    return run.graph[path].step.equation is None and run.is_stored(path)


# ---- the graph -----------------------------------------------------------------------------------


def upstream(graph: Graph, paths: Iterable[str], stop_at: Container[str] = ()) -> list[str]:
    """Steps and all that they depend on, up to `stop_at`, in the order of computation."""
    ordered: dict[str, None] = {}
    pending = [path for path in paths if path not in stop_at][::-1]
    while pending:
        path = pending[-1]
        missing = [x for x in graph[path].inputs if x not in ordered and x not in stop_at]
        if missing:
            pending += missing
            continue
        ordered[path] = None
        while pending and pending[-1] in ordered:
            pending.pop()
    return list(ordered)
