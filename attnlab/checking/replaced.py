"""Runs in which some steps have other values, or are computed by other equations.

An edit replaces a step's value; this also replaces its equation, whose inputs may differ. Steps
that don't depend on it are shared with the original run.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from functools import partial
from typing import Any

from attnlab.forward.edits import EditedRun
from attnlab.steps import Graph, Node, Run


def with_changes(run: Run, changes: Mapping[str, Callable[[Any], Any]]) -> Run:
    """The run in which functions change steps, by path; NaN and infinity aren't errors."""
    return with_nodes(run, {path: changed(run, path, x) for path, x in changes.items()})


def changed(run: Run, path: str, change: Callable[[Any], Any]) -> Node:
    """The node of a step whose value a function changes."""
    node = run.graph[path]
    original = node.step.equation or partial(run.value, path)  # of an input
    return with_equation(node, lambda *values: change(original(*values)), node.needs)


def with_equation(node: Node, equation: Callable[..., Any], needs: Iterable[str]) -> Node:
    """A node with another equation, of steps by their paths."""
    step = object.__new__(type(node.step))  # copy.copy takes ten times as long
    own = {"equation": equation, "fast": None, "joint": None, "optional": False}
    vars(step).update(vars(node.step) | own)
    return node._replace(step=step, needs=(*needs,), fast_needs=(), layer_step="", select=None)


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


def beside(path: str, target: str) -> str:
    """The path of another step of the same part, or of the part above for "parent.input"."""
    prefix, is_in_parent = path.rpartition(".")[0], target.startswith("parent.")
    owner = prefix.rpartition(".")[0] if is_in_parent else prefix
    return f"{owner}.{target.removeprefix('parent.')}".lstrip(".")


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
