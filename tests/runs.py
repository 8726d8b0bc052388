"""What a result's run holds and computes, and planting a value in it, such as a wrong one."""

from collections.abc import Iterator
from typing import Any

import pytest

from attnlab.equations import same
from attnlab.steps import Node, Result, Run, read_only


def kept(result: Result) -> set[str]:
    """The paths, from the result on, of all that its run holds."""
    prefix = result._prefix
    return {path.removeprefix(prefix) for path in result._run.values if path.startswith(prefix)}


def plant(result: Result, **values: Any) -> None:
    """Put arrays in the place of steps of a result."""
    for name, value in values.items():
        result._run.values[result._prefix + name] = read_only(value)


def plant_tokens(result: Result, tokens: Any) -> None:
    """Make a result one of a text."""
    result._run.tokens = tokens


def every_step(result: Result) -> Iterator[tuple[Result, str]]:
    """Each result that is part of one, itself the first, with each of its steps' names."""
    for name in result.steps:
        yield result, name
    for child in result.children:
        found = getattr(result, child)
        for part in (found,) if isinstance(found, Result) else found:
            yield from every_step(part)


def computed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of all steps that an equation computes from now on, in any run."""
    paths: list[str] = []
    made = Run._evaluate

    def told(run: Run, path: str, node: Node) -> Any:
        if node.step.equation not in (None, same) and not node.step.view and not node.whole:
            paths.append(path)
        return made(run, path, node)

    monkeypatch.setattr(Run, "_evaluate", told)
    return paths
