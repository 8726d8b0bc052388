"""Fold imports, output and its labels, so that a page shows ideas in a few lines."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from itertools import groupby

IN_VIEW = 15  # cells of up to this many lines are shown whole
SHORTEST = 2  # parts with fewer lines aren't folded


def fold(code: str, later: Sequence[str] = ()) -> Iterator[tuple[str, bool]]:
    """The parts of a cell, in order, and whether each is folded.

    Executed one after the other, the parts do what the cell does.

    Parameters
    ----------
    later : the code of the cells below, which may need what this one computes
    """
    if length(code) <= IN_VIEW:
        yield code, False
        return
    parts, lines, start = [], code.splitlines(), 0
    statements = ast.parse(code).body
    plumbing = plumbing_of(statements, needed_names(later))
    for is_folded, group in groupby(statements, plumbing.__contains__):
        end = [*group][-1].end_lineno
        parts.append(("\n".join(lines[start:end]), is_folded))
        start = end or start
    kept = [(part, is_folded and length(part) >= SHORTEST) for part, is_folded in parts]
    for is_folded, joined in groupby(kept, lambda part: part[1]):
        yield "\n".join(part for part, _ in joined).strip("\n"), is_folded


def plumbing_of(statements: Sequence[ast.stmt], names: set[str]) -> set[ast.stmt]:
    """The statements that are imports, output or its labels, if later cells need `names`."""
    plumbing = set()
    for statement in reversed(statements):
        if is_plumbing(statement, names):
            plumbing.add(statement)
        else:
            names = needed_before(statement, names)
    return plumbing


def is_plumbing(node: ast.stmt, names: set[str]) -> bool:
    """Whether a statement is an import or output, or sets labels that aren't in `names`."""
    match node:
        case ast.Import() | ast.ImportFrom():
            return True
        case ast.Expr(value=ast.Call(func=ast.Name(id="print" | "prepare_script"))):
            return True
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id="pictures")))):
            return True
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="append"))):
            return name not in names and is_text(node)
        case ast.Assign() | ast.AugAssign():
            return not changed_by(node) & names and is_text(node)
        case ast.For(body=body, orelse=orelse) | ast.If(body=body, orelse=orelse):
            return all(is_plumbing(inner, names) for inner in [*body, *orelse])
    return False


def is_text(node: ast.AST) -> bool:
    """Whether a statement makes text, and computes nothing outside its f-strings."""
    texts = [part for part in ast.walk(node) if isinstance(part, ast.JoinedStr)]
    within = {part for text in texts for part in ast.walk(text)}
    outside = [part for part in ast.walk(node) if part not in within]
    words = [part for part in outside if isinstance(part, ast.Constant)]
    computes = any(
        isinstance(part, ast.BinOp)
        or (isinstance(part, ast.Name) and part.id in ("np", "attnlab", "sum"))
        for part in outside
    )
    return not computes and bool(texts or any(isinstance(word.value, str) for word in words))


def needed_names(cells: Sequence[str]) -> set[str]:
    """The names that cells read before they set them."""
    names: set[str] = set()
    for cell in reversed(cells):
        for statement in reversed(ast.parse(cell).body):
            names = needed_before(statement, names)
    return names


def needed_before(statement: ast.stmt, names: set[str]) -> set[str]:
    """The names needed before a statement, if `names` are needed after it."""
    is_set = isinstance(statement, ast.Assign)
    set_here = names_in(statement, ast.Store) if is_set else set()
    return names - set_here | names_in(statement, ast.Load)


def changed_by(node: ast.Assign | ast.AugAssign) -> set[str]:
    """The names that an assignment sets, or whose objects it changes, as x in x[0] = 1."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return {
        name
        for target in targets
        for name in names_in(target, ast.Store)
        | (names_in(target, ast.Load) if isinstance(target, ast.Subscript) else set())
    }


def names_in(tree: ast.AST, context: type[ast.expr_context]) -> set[str]:
    """The names that code reads (ast.Load), or sets (ast.Store)."""
    return {
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, context)
    }


def length(code: str) -> int:
    """The number of nonempty lines."""
    return sum(bool(line.strip()) for line in code.splitlines())
