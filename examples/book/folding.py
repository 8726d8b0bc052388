"""Fold imports and printing in long cells, so that a page shows each idea in a few lines."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import groupby

IN_VIEW = 15  # lines of code that are shown as they are
SHORTEST = 3  # lines that are worth folding


def folded(code: str) -> Iterator[tuple[str, bool]]:
    """The parts of a cell, in order, and whether each is folded: executed alike, one by one."""
    if length(code) <= IN_VIEW:
        yield code, False
        return
    parts, lines, start = [], code.splitlines(), 0
    for is_folded, group in groupby(ast.parse(code).body, is_plumbing):
        end = [*group][-1].end_lineno
        parts.append(("\n".join(lines[start:end]), is_folded))
        start = end or start
    kept = [(part, is_folded and length(part) >= SHORTEST) for part, is_folded in parts]
    for is_folded, joined in groupby(kept, lambda part: part[1]):
        yield "\n".join(part for part, _ in joined).strip("\n"), is_folded


def is_plumbing(node: ast.stmt) -> bool:
    match node:
        case ast.Import() | ast.ImportFrom():
            return True
        case ast.Expr(value=ast.Call(func=ast.Name(id="print" | "prepare_script"))):
            return True
        case ast.For(body=body):
            return all(map(is_plumbing, body))
    return False


def length(code: str) -> int:
    """How many lines are not empty."""
    return sum(bool(line.strip()) for line in code.splitlines())
