"""Translate the equations and the colour scale to JavaScript, expression by expression.

`arrays.js` provides NumPy's functions under the same names. An unsupported construct raises
SyntaxError with its line.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import TypeGuard

from attnlab import equations, erf
from attnlab.support import scale

# Elementwise functions of numbers x, y and z.
ELEMENTWISE = {
    "abs": "Math.abs(x)",
    "add": "x + y",
    "copysign": "y < 0 || Object.is(y, -0) ? -Math.abs(x) : Math.abs(x)",
    "divide": "x / y",
    "exp": "Math.exp(x)",
    "floor_divide": "Math.floor(x / y)",
    "maximum": "Math.max(x, y)",
    "minimum": "Math.min(x, y)",
    "multiply": "x * y",
    "negative": "-x",
    "sqrt": "Math.sqrt(x)",
    "square": "x * x",
    "subtract": "x - y",
    "tanh": "Math.tanh(x)",
    "where": "x ? y : z",
    "less_equal": "Number(x <= y)",
}

# Each function has its own loop, which browsers optimize better than a shared loop.
LOOP = """elementwise("{0}", (out, start, width, [a, b, c], [i, j, k], [di, dj, dk]) => {{
  for (let n = 0; n < width; n++, i += di, j += dj, k += dk) out[start + n] = {1};
}})"""

# Python's operators as functions of arrays.
OPERATORS = {
    ast.Add: "add",
    ast.Sub: "subtract",
    ast.Mult: "multiply",
    ast.Div: "divide",
    ast.FloorDiv: "floor_divide",
    ast.MatMult: "matmul",
    ast.USub: "negative",
    ast.Eq: "equal",
    ast.LtE: "less_equal",
}
FUNCTIONS = {*ELEMENTWISE, "broadcast_to"}
ATTRIBUTES = frozenset(["dtype", "extend", "max", "reshape", "shape", "sum", "swapaxes", "type"])

MATH = {"inf": "Infinity", "pi": "Math.PI", "sqrt": "Math.sqrt"}

# Functions that the page doesn't need, since it runs the equations one by one, as a trace does.
UNTRANSLATED = ("cross_entropy", "surprisal", "gpt2")

# Python names that are reserved words in JavaScript, and what replaces them.
RENAMED = {"new": "new_"}


@cache
def equations_script() -> str:
    """A module with NumPy's functions, and `equations`, an object with our modules' functions."""
    modules = [Path(str(module.__file__)) for module in (erf, equations, scale)]
    script = "\n".join(javascript(file.read_text(encoding="utf-8"), str(file)) for file in modules)
    loops = ",\n".join(
        f"{name}: {LOOP.format(name, _at_indices(code))}" for name, code in ELEMENTWISE.items()
    )
    trees = [ast.parse(module.read_bytes()) for module in modules]
    names = ", ".join(node.name for tree in trees for node in _functions(tree))
    return (
        'import { elementwise, nd } from "./arrays.js";\n'
        f"Object.assign(nd, {{\n{loops},\n}});\n"
        f"export const equations = (() => {{\n{script}\nreturn {{ {names} }};\n}})();\n"
    )


def javascript(source: str, file: str) -> str:
    """The functions and constants of a module as JavaScript, without types, classes and imports."""
    tree = ast.parse(source)
    constants = [
        node
        for node in tree.body
        if isinstance(node, ast.Assign) and not isinstance(node.value, ast.Call)  # no TypeVar
    ]
    known = {node.name for node in _functions(tree)} | _imported_names(tree)
    known |= _assigned_names(constants)
    translation = Translation(known, _functions_returning_new(tree))
    try:
        lines = [f"const {translation.statement(node)}" for node in constants]
        lines += [translation.function(node) for node in _functions(tree)]
    except Untranslatable as error:
        (node,) = error.args
        line = source.splitlines()[node.lineno - 1]
        position = (file, node.lineno, node.col_offset + 1, line, node.end_lineno, None)
        raise SyntaxError(f"no JavaScript for {ast.unparse(node)}", position) from None
    return "\n".join(lines)


class Untranslatable(Exception):
    """Says that a node of Python's syntax tree, the error's argument, has no translation."""


class Translation:
    """Translates functions in which all names are local or `known`.

    An operation may write its result into an operand that is a new array, since nothing else uses
    such an array. Functions in `returning_new` always return new arrays or numbers.
    """

    def __init__(self, known: Iterable[str], returning_new: Iterable[str] = ()) -> None:
        self.known = frozenset(known)
        self.returning_new = frozenset(returning_new)

    def function(self, node: ast.FunctionDef) -> str:
        match node:
            case ast.FunctionDef(
                args=ast.arguments(
                    posonlyargs=[], vararg=None, kwonlyargs=[], kwarg=None, defaults=[]
                ),
                decorator_list=[],
            ):
                parameters = [argument.arg for argument in node.args.args]
            case _:
                raise Untranslatable(node)
        assigned = _assigned_names(node.body)
        inner = Translation(
            self.known | set(parameters) | assigned,
            self.returning_new - set(parameters) - assigned,
        )
        body = node.body[1:] if ast.get_docstring(node) is not None else node.body
        lines = [f"let {', '.join(sorted(assigned))};"] if assigned else []
        lines += map(inner.statement, body)
        names = ", ".join(RENAMED.get(name, name) for name in parameters)
        return f"function {node.name}({names}) {{ {' '.join(lines)} }}"

    def statement(self, node: ast.stmt) -> str:
        match node:
            case ast.Return(value=ast.expr() as value):
                return f"return {self.expression(value)};"
            case ast.Assign(targets=[ast.Tuple(elts=[ast.Starred() as rest, *names])]):
                # JavaScript allows a rest element only at the end, so `*rest, last` is reversed.
                last_names = ", ".join(self.expression(name) for name in reversed(names))
                values, others = self.expression(node.value), self.expression(rest.value)
                return f"[{last_names}, ...{others}] = [...{values}].reverse(); {others}.reverse();"
            case ast.Assign(targets=[target], value=value):
                return f"{self.expression(target)} = {self.expression(value)};"
            case ast.AnnAssign(target=ast.Name() as target, value=ast.expr() as value):
                return f"{self.expression(target)} = {self.expression(value)};"
            case ast.AugAssign(target=ast.Name() as target, op=op, value=value):
                return f"{self.expression(target)} = {self.operation(node, op, target, value)};"
            case ast.For(target=ast.Name() as target, iter=items, body=body, orelse=[]):
                lines = " ".join(map(self.statement, body))
                each = f"{self.expression(target)} of {self.expression(items)}"
                return f"for ({each}) {{ {lines} }}"
        raise Untranslatable(node)

    def expression(self, node: ast.expr) -> str:
        match node:
            case ast.Constant(value=None):
                return "null"
            case ast.Constant(value=bool(value)):
                return str(value).lower()
            case ast.Constant(value=int(value) | float(value)):
                return repr(value)
            case ast.Constant(value=value) if value is ...:
                return "nd.REST"
            case ast.Name(id=name) if name in self.known:
                return RENAMED.get(name, name)
            case ast.Attribute(value=ast.Name(id="math"), attr=name) if name in MATH:
                return MATH[name]
            case ast.Attribute(value=ast.Name(id="np"), attr=name) if name in FUNCTIONS:
                return f"nd.{name}"
            case ast.Attribute(value=value, attr=name) if name in ATTRIBUTES:
                return f"{self.expression(value)}.{name}"
            case ast.BinOp(left=left, op=op, right=right):
                return self.operation(node, op, left, right)
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(value) | float(value))):
                return f"-{value!r}"
            case ast.UnaryOp(op=op, operand=operand):
                return self.operation(node, op, operand)
            case ast.Compare(left=left, ops=[ast.Is()], comparators=[ast.Constant(value=None)]):
                return f"{self.expression(left)} == null"  # also true for an argument left out
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return self.operation(node, op, left, right)
            case ast.BoolOp(op=ast.Or(), values=values):
                return f"({' || '.join(map(self.expression, values))})"
            case ast.IfExp(test=test, body=body, orelse=other):
                chosen = f"{self.expression(body)} : {self.expression(other)}"
                return f"({self.expression(test)} ? {chosen})"
            case ast.Tuple(elts=parts):
                return f"[{', '.join(map(self.expression, parts))}]"
            case ast.Starred(value=value):
                return f"...{self.expression(value)}"
            case ast.Subscript(value=value, slice=index):
                parts = index.elts if isinstance(index, ast.Tuple) else [index]
                return f"nd.item({', '.join(map(self.expression, [value, *parts]))})"
            case ast.Slice(lower=lower, upper=upper, step=None):
                ends = (self.expression(end) if end else "null" for end in (lower, upper))
                return f"nd.slice({', '.join(ends)})"
            case ast.Call(func=function, args=arguments, keywords=keywords):
                positional = [self.expression(argument) for argument in arguments]
                named = [
                    f"{word.arg}: {self.expression(word.value)}" for word in keywords if word.arg
                ]
                if len(named) < len(keywords):
                    raise Untranslatable(node)
                options = [f"{{ {', '.join(named)} }}"] if named else []
                if _is_numpy_function(function):
                    return self.numpy_call(self.expression(function), *arguments)
                return f"{self.expression(function)}({', '.join(positional + options)})"
        raise Untranslatable(node)

    def operation(self, node: ast.AST, operator: ast.AST, *operands: ast.expr) -> str:
        """An operator as a call of a function of `arrays.js`."""
        if type(operator) not in OPERATORS:
            raise Untranslatable(node)
        return self.numpy_call(f"nd.{OPERATORS[type(operator)]}", *operands)

    def numpy_call(self, function: str, *operands: ast.expr) -> str:
        """A call of a function of `nd`. Its result may overwrite the first operand that is new."""
        values = [self.expression(operand) for operand in operands]
        new = [n for n, operand in enumerate(operands) if _is_new(operand, self.returning_new)]
        if new and function.removeprefix("nd.") in ELEMENTWISE:
            return f"{function}.reusing({', '.join([str(new[0]), *values])})"
        return f"{function}({', '.join(values)})"


def _functions_returning_new(tree: ast.Module) -> frozenset[str]:
    """The functions of a module that return new arrays or numbers, never a view or an argument."""
    known: frozenset[str] = frozenset()
    while True:  # each turn adds functions that return a call of a known function
        last_statements = ((function.name, function.body[-1]) for function in _functions(tree))
        more = {
            name
            for name, last in last_statements
            if isinstance(last, ast.Return) and last.value and _is_new(last.value, known)
        }
        if more == known:
            return known
        known = frozenset(more)


def _is_new(node: ast.expr, returning_new: frozenset[str]) -> bool:
    """Whether an expression's value is a new array or number, not a view or a name."""
    match node:
        case ast.BinOp():
            return True
        case ast.Call(func=ast.Name(id=name)):
            return name in returning_new
        case ast.Call(func=function):
            return _is_numpy_function(function) and function.attr != "broadcast_to"
    return False


def _is_numpy_function(function: ast.expr) -> TypeGuard[ast.Attribute]:
    """Whether a function is an attribute of `np`."""
    return (
        isinstance(function, ast.Attribute)
        and isinstance(function.value, ast.Name)
        and (function.value.id == "np")
    )


def _at_indices(expression: str) -> str:
    """An expression with array entries instead of the numbers x, y and z."""
    for name, entry in (("x", "a[i]"), ("y", "b[j]"), ("z", "c[k]")):
        expression = re.sub(rf"\b{name}\b", entry, expression)
    return expression


def _functions(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    functions = (node for node in tree.body if isinstance(node, ast.FunctionDef))
    return (node for node in functions if node.name not in UNTRANSLATED)


def _imported_names(tree: ast.Module) -> set[str]:
    """The names imported from the package's other modules."""
    imports = (node for node in tree.body if isinstance(node, ast.ImportFrom))
    modules = (node for node in imports if str(node.module).startswith("attnlab."))
    return {alias.name for node in modules for alias in node.names}


def _assigned_names(statements: Iterable[ast.stmt]) -> set[str]:
    """The names that statements assign."""
    nodes = (node for statement in statements for node in ast.walk(statement))
    names = (node for node in nodes if isinstance(node, ast.Name))
    return {node.id for node in names if isinstance(node.ctx, ast.Store)}
