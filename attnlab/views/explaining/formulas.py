"""Evaluate and write formulas.

    stream[row, column] + kept    ("+", ("at", "stream", "row", "column"), "kept")

A formula is a number, a name, or a tuple of an operation and its operands. The page gets formulas
as JSON. `attnlab.views.explaining.derivations` makes formulas.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias, TypeGuard

import numpy as np

from attnlab.erf import erf

# An indexed array is ("at", name, *index). A leaf is a name or an indexed array.
Indexed: TypeAlias = tuple[Any, ...]
Leaf: TypeAlias = str | Indexed

# A tree is a number, a leaf, or an operation and its operands.
Tree: TypeAlias = int | float | Leaf

# The values and symbols of named constants.
CONSTANTS = {"pi": (math.pi, "π"), "-inf": (-math.inf, "-inf")}

# The rounding error of numbers near 0, in units of epsilon, is the smallest normal float32.
SMALLEST = float(np.finfo(np.float32).tiny)


def is_leaf(tree: Tree) -> TypeGuard[Leaf]:
    """Whether a formula is a name or an indexed array."""
    is_name = isinstance(tree, str) or (isinstance(tree, tuple) and tree[0] == "at")
    return is_name and tree not in CONSTANTS


def substitute(tree: Tree, names: Mapping[Tree, Tree]) -> Tree:
    """Replace parts of a formula."""
    if tree in names:
        return names[tree]
    return tuple(substitute(part, names) for part in tree) if isinstance(tree, tuple) else tree


def leaves(tree: Tree) -> Iterator[Leaf]:
    """The names and indexed arrays in a formula, from left to right."""
    if is_leaf(tree):
        yield tree
    elif isinstance(tree, tuple):
        for operand in tree[1:]:
            yield from leaves(operand)


# ---- computing -----------------------------------------------------------------------------------


class Rounded(NamedTuple):
    """Numbers with bounds of their rounding errors, in units of epsilon."""

    value: Any
    bound: Any = 0.0


def with_rounding(value: Any, bound: Any) -> Rounded:
    """The result of an operation that rounds; `bound` is the error that its operands bring in."""
    magnitude = np.where(np.isfinite(value), np.abs(value), 0.0)
    return Rounded(value, bound + magnitude + SMALLEST)


def add(a: Rounded, b: Rounded) -> Rounded:
    return with_rounding(a.value + b.value, a.bound + b.bound)


def subtract(a: Rounded, b: Rounded) -> Rounded:
    return with_rounding(a.value - b.value, a.bound + b.bound)


def multiply(a: Rounded, b: Rounded) -> Rounded:
    return with_rounding(a.value * b.value, np.abs(a.value) * b.bound + np.abs(b.value) * a.bound)


def divide(a: Rounded, b: Rounded) -> Rounded:
    quotient = a.value / b.value
    return with_rounding(quotient, (a.bound + np.abs(quotient) * b.bound) / np.abs(b.value))


def power(a: Rounded, n: Rounded) -> Rounded:
    return with_rounding(a.value**n.value, n.value * np.abs(a.value) ** (n.value - 1) * a.bound)


def sum_(a: Rounded) -> Rounded:
    magnitude = np.abs(a.value).sum(axis=-1)  # a bound of every partial sum, which is rounded too
    bound = np.broadcast_to(a.bound, np.shape(a.value)).sum(axis=-1)
    return with_rounding(a.value.sum(axis=-1), bound + magnitude)


def maximum(a: Rounded) -> Rounded:
    return Rounded(a.value.max(axis=-1), np.max(a.bound))


def with_derivative(
    function: Callable[[Any], Any], derivative: Callable[[Any, Any], Any]
) -> Callable[..., Any]:
    """Make a function of `Rounded` numbers from a function f(x) and its derivative d(x, f(x))."""

    def evaluate(x: Rounded) -> Rounded:
        value = function(x.value)
        return with_rounding(value, derivative(x.value, value) * x.bound)

    return evaluate


OPERATIONS: dict[str, Callable[..., Rounded]] = {
    "+": add,
    "-": subtract,
    "*": multiply,
    "/": divide,
    "**": power,
    "maximum": lambda a, b: Rounded(np.maximum(a.value, b.value), a.bound),  # b is exact, as 0 is
    "sum": sum_,
    "max": maximum,
    "len": lambda a: Rounded(np.shape(a.value)[-1]),
    "sqrt": with_derivative(np.sqrt, lambda x, root: 0.5 / root),
    "exp": with_derivative(np.exp, lambda x, power: power),
    "tanh": with_derivative(np.tanh, lambda x, value: 1.0 - value**2),
    "erf": with_derivative(
        lambda x: erf(np.asarray(x, np.float64)),
        lambda x, value: 2.0 / np.sqrt(np.pi) * np.exp(-(x**2)),
    ),
}


# ---- writing -------------------------------------------------------------------------------------

# The precedence of operators. HIGHEST puts the operand of a prefix or power in parentheses.
PRECEDENCE = {"if": 0, "+": 1, "-": 1, "*": 2, "/": 2, "**": 4}
HIGHEST = 5
OPERATOR_TEXTS = {"+": " + ", "-": " - ", "*": " · ", "/": " / "}
POWERS = {2: "²", 3: "³"}
FRACTIONS = {0.5: "½"}
PREFIXES = {"sqrt": "√", "exp": "e^"}
FUNCTION_NAMES = {"maximum": "max"}
VALUES = ("sum", "len", "max")  # operations whose value is written instead


def write(
    tree: Tree, leaf: Callable[[Leaf], Any], is_negative: Callable[[Any], bool], outer: int = 0
) -> list[Any]:
    """Write a formula as parts of text.

    `leaf` returns the text of a name or an indexed array. `is_negative` says whether this text
    starts with a minus, which needs parentheses after an operator. `outer` is the precedence of the
    surrounding operation; it is at least 2 after a binary operator.
    """
    if isinstance(tree, int | float):
        return [FRACTIONS.get(tree, str(tree))]
    if tree in CONSTANTS:
        return [CONSTANTS[tree][1]]
    if isinstance(tree, str) or tree[0] in ("at", *VALUES):
        text = leaf(tree)
        return ["(", text, ")"] if outer > 1 and is_negative(text) else [text]

    def part(operand: Tree, outer: int) -> list[Any]:
        return write(operand, leaf, is_negative, outer)

    operation, *operands = tree
    if operation not in PRECEDENCE:
        if operation in PREFIXES:
            return [PREFIXES[operation], *part(operands[0], HIGHEST)]
        arguments = [text for operand in operands for text in (", ", *part(operand, 0))]
        return [FUNCTION_NAMES.get(operation, operation), "(", *arguments[1:], ")"]
    precedence = PRECEDENCE[operation]
    if operation == "if":
        condition, yes, no = operands
        parts = [*part(yes, 0), " if ", *part(condition, 0), " else ", *part(no, 0)]
    elif operation == "**":
        parts = [*part(operands[0], HIGHEST), POWERS[operands[1]]]
    else:
        left, right = operands
        # a - (b - c) needs parentheses, a + (b + c) doesn't.
        after = precedence + 1 if operation in ("-", "/") else precedence
        parts = [*part(left, precedence), OPERATOR_TEXTS[operation], *part(right, max(after, 2))]
    return ["(", *parts, ")"] if precedence < outer else parts
