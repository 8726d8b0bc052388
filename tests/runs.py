"""Inspect what a result's run keeps and computes, and plant values in it."""

from collections.abc import Iterator
from typing import Any

import pytest

from attnlab.equations import identity
from attnlab.steps import Node, Result, Run, read_only, step_at


def needs_of(result: Result, path: str) -> tuple[str, ...]:
    """The paths of the steps that a step is computed from; () for inputs and parameters."""
    part, name = step_at(result, path)
    node = part._run.graph[part._path_of(name)]
    # A head's W_Q has no equation of its own: it is cut from its layer's.
    return node.needs or tuple(filter(None, [node.layer_step]))


def stored_steps(result: Result) -> set[str]:
    """The paths, relative to the result, of the steps that its run keeps."""
    prefix = result._prefix
    return {path.removeprefix(prefix) for path in result._run.values if path.startswith(prefix)}


def replace_steps(result: Result, **values: Any) -> None:
    """Replace steps of a result by arrays."""
    for name, value in values.items():
        result._run.values[result._prefix + name] = read_only(value)


def replace_tokens(result: Result, tokens: Any) -> None:
    """Set the tokens of a result."""
    result._run.tokens = tokens


def every_step(result: Result) -> Iterator[tuple[Result, str]]:
    """Each part of a result, itself first, with each of its steps' names."""
    for name in result.steps:
        yield result, name
    for child in result._children:
        parts = getattr(result, child)
        for part in (parts,) if isinstance(parts, Result) else parts:
            yield from every_step(part)


def log_computed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A list to which the paths of all steps computed from now on are added, in any run."""
    paths: list[str] = []
    original = Run.compute

    def recorded(run: Run, path: str, node: Node) -> Any:
        if (
            node.step.equation not in (None, identity)
            and not node.step.view
            and not node.layer_step
            and (run.elsewhere is None or run.elsewhere(run, path, node) is None)
        ):
            paths.append(path)
        return original(run, path, node)

    monkeypatch.setattr(Run, "compute", recorded)
    return paths
