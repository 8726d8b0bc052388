"""A run in which some steps are made by other equations.

An edit puts numbers in the place of a step's; here it is the equation that is another one, with
needs of its own. What does not depend on it is shared with the run as it is.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Container, Iterable, Mapping
from copy import copy
from typing import Any

from attnlab.equations import same
from attnlab.forward.edits import EditedRun, above
from attnlab.model.recordings import NoParameters
from attnlab.steps import Graph, Node, Run

# In its place; its parameters are steps. See `node_with_equation`.
Equation = Callable[..., Any]


def with_equations(run: Run, equations: Mapping[str, Equation]) -> Run:
    """The same run with some steps made by other equations, and all that follows.

    Numbers that are not finite are let through: they are no one's.
    """
    nodes = {path: node_with_equation(run, path, equation) for path, equation in equations.items()}
    return with_nodes(run, nodes)


def with_nodes(run: Run, nodes: Mapping[str, Node]) -> Run:
    """The same run with other nodes; what does not depend on them is shared."""
    other = run.fork()
    other.graph = run.graph.with_others(nodes)
    other.is_long = other.tells = False
    if isinstance(run, EditedRun) and isinstance(other, EditedRun):
        other.base = with_nodes(run.base, nodes)
        other._plan()  # other steps may depend on what is edited
    stale: dict[str, bool] = {}
    for path in upstream(other.graph, run.values):
        stale[path] = path in nodes or any(stale[need] for need in above(other.graph[path]))
    other.values = {path: value for path, value in run.values.items() if not stale[path]}
    return other


def node_with_equation(run: Run, path: str, equation: Equation) -> Node:
    """A step's node, made by another equation.

    Parameters
    ----------
    equation : its parameters are named as those of the step's own equation, or as steps beside it;
        `value` is what the step would be. A default is the name of the step, where that is
        another one, or None where there need not be one.
    """
    node, place = run.graph[path], path.rpartition(".")[0]
    own = None if is_given(run, path) else node.step.equation
    known = dict(zip(inspect.signature(own).parameters, node.needs, strict=False)) if own else {}
    parameters = dict(inspect.signature(equation).parameters)
    takes_value = parameters.pop("value", None) is not None
    needs: dict[str, str] = {}
    for name, parameter in parameters.items():
        meant = parameter.default if isinstance(parameter.default, str) else name
        _, is_above, step = meant.rpartition("parent.")
        where = place.rpartition(".")[0] if is_above else place
        need = known.get(meant, f"{where}.{step}".lstrip("."))
        try:
            run.graph[need]
        except KeyError:
            if parameter.default is not None:
                raise
        else:
            needs[name] = need

    def made(*given: Any) -> Any:
        named = dict(zip(needs, given, strict=False))
        if not takes_value:
            return equation(**named)
        would_be = own(*given[len(needs) :]) if own else run.look(path)
        return equation(value=would_be, **named)

    step = copy(node.step)
    step.equation, step.fast, step.of_whole, step.optional = made, None, None, False
    of_value = node.needs if takes_value and own else ()
    return node._replace(step=step, needs=(*needs.values(), *of_value), fast_needs=(), whole="")


def is_given(run: Run, path: str) -> bool:
    """Whether a step is there and can't be made again, as all that a trace file holds."""
    node = run.graph[path]
    if not run.is_there(path):
        return False
    if node.step.equation is same:  # but where another one was given, as in cross-attention
        return run.look(path) is not run.look(node.needs[0])
    return node.step.equation is None or is_from_file(run)


def is_from_file(run: Run) -> bool:
    """Whether the parameters are missing."""
    return isinstance(getattr(run.given, "__self__", None), NoParameters)


# ---- the graph -----------------------------------------------------------------------------------


def upstream(graph: Graph, paths: Iterable[str], beyond: Container[str] = ()) -> list[str]:
    """Every step that some steps are made of, and they themselves, what is needed first.

    Parameters
    ----------
    beyond : steps by way of which none is looked for
    """
    found: dict[str, None] = {}
    left = [path for path in paths if path not in beyond][::-1]
    while left:
        path = left[-1]
        waiting = [need for need in above(graph[path]) if need not in found and need not in beyond]
        if path in found or not waiting:
            found[left.pop()] = None
        else:
            left += waiting
    return list(found)


def can_be_made(run: Run, paths: Iterable[str]) -> set[str]:
    """Those steps that are there, or can be computed from what is: of a trace file not all."""
    made: dict[str, bool] = {}
    for path in upstream(run.graph, paths):
        node = run.graph[path]
        computed = not node.step.is_given and all(made[need] for need in above(node))
        made[path] = computed or run.is_there(path) or not is_from_file(run)
    return {path for path in paths if made[path]}
