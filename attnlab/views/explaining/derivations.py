"""How each equation computes one number: the formulas of an explanation's lines.

The functions of `attnlab.equations` run on `Symbol`s instead of arrays, so that the formulas follow
from the equations. This module adds only the headings and the division into lines.

    derivation(equations.raw_scores)    one line: sum(Q[row, :] * K[column, :])
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from types import FunctionType, SimpleNamespace
from typing import Any, TypeAlias, TypeGuard

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from attnlab import equations
from attnlab.steps import Result, steps_below
from attnlab.views.explaining.formulas import Tree, is_leaf, leaves, substitute, write

OPERATORS = {np.add: "+", np.subtract: "-", np.multiply: "*", np.divide: "/"}

# The number of axes of parameters that aren't matrices.
AXES = {
    **dict.fromkeys(("b", "gain", "bias", "ids", "positions"), 1),
    **dict.fromkeys(("epsilon", "scale", "layer_number"), 0),
}


class Symbol(NDArrayOperatorsMixin):
    """An array of formulas, which equations use like an array of numbers.

    `at` returns the formula at an index, such as at("row", "column"), or at("row", ":") for all
    elements of a row; `ndim` is the number of axes.
    """

    def __init__(self, at: Callable[..., Tree], ndim: int) -> None:
        self.at, self.ndim = at, ndim
        self.dtype = SimpleNamespace(type=float)  # equations call dtype.type(-math.inf)

    @classmethod
    def named(cls, name: str) -> Symbol:
        ndim = AXES.get(name, 2)
        return cls(lambda *index: ("at", name, *index) if index else name, ndim)

    @classmethod
    def of(cls, value: Any) -> Symbol:
        if isinstance(value, cls):
            return value
        if value == -np.inf:
            return cls(lambda: "-inf", 0)
        literal = int(value) if value == int(value) else value  # 2.0 is written as 2
        return cls(lambda: literal, 0)

    @property
    def tree(self) -> Tree:
        """The formula of the element at [row, column]."""
        return self.at(*("row", "column")[2 - self.ndim :])  # a vector has only a column

    @property
    def shape(self) -> tuple[Any, ...]:
        rows = [0] * (self.ndim - 1)  # any row, since all rows have the length of the first array
        return (*rows, Symbol(lambda: ("len", next(leaves(self.at(*rows, ":")))), 0))

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any) -> Symbol:
        if ufunc is np.matmul:  # each element is the sum of a row of x times a column of W
            x, W = inputs
            return Symbol(
                lambda *index: ("sum", ("*", x.at(*index[:-1], ":"), W.at(":", index[-1]))), x.ndim
            )
        if ufunc is np.square:
            return apply("**", *inputs, 2)
        return apply(OPERATORS.get(ufunc) or ufunc.__name__, *inputs)

    def __array_function__(self, function: Any, _: Any, arguments: Any, named: Any) -> Any:
        return apply("if", *arguments) if function is np.where else NotImplemented

    def __getitem__(self, index: Any) -> Symbol:
        if isinstance(index, Symbol):  # such as W_E[ids], which has a row for each id
            return Symbol(lambda i, j: self.at(index.at(i), j), 2)
        _, row, _ = index  # such as [..., -1, :], the last row
        return Symbol(lambda j: self.at(row, j), 1)

    def swapaxes(self, *_: int) -> Symbol:
        return Symbol(lambda i, j: self.at(j, i), 2)

    def sum(self, axis: int, keepdims: bool) -> Symbol:
        return self._reduce("sum")

    def max(self, axis: int, keepdims: bool) -> Symbol:
        return self._reduce("max")

    def _reduce(self, operation: str) -> Symbol:
        """The same number for each element of a row."""
        return Symbol(lambda *index: (operation, self.at(*index[:-1], ":")), self.ndim)


def apply(operation: str, *inputs: Any) -> Symbol:
    """An elementwise operation, with broadcasting."""
    operands = [Symbol.of(x) for x in inputs]

    def at(*index: Any) -> Tree:
        trees = [x.at(*index[len(index) - x.ndim :]) for x in operands]  # x may have fewer axes
        factors = [tree for tree in trees if tree != 1]  # 1 · x is written as x
        return factors[0] if operation == "*" and len(factors) == 1 else (operation, *trees)

    return Symbol(at, max(x.ndim for x in operands))


def _on_symbols() -> SimpleNamespace:
    """The equations, with functions of numbers replaced by functions of symbols.

    `math.sqrt` and `erf` work only with numbers, so both are replaced. The equations are copied, so
    that they find the replacements, and each other, in `symbols` instead of in their own module.
    """
    symbols = {
        **vars(equations),
        "math": SimpleNamespace(
            sqrt=lambda x: np.sqrt(Symbol.of(x)), pi=Symbol(lambda: "pi", 0), inf=np.inf
        ),
        "erf": lambda x: apply("erf", x),
    }
    for name, function in inspect.getmembers(equations, inspect.isfunction):
        if function.__module__ == equations.__name__:
            symbols[name] = FunctionType(function.__code__, symbols, name)
    return SimpleNamespace(**symbols)


on_symbols = _on_symbols()


# ---- the lines of each equation ------------------------------------------------------------------


@dataclass(frozen=True)
class Formula:
    """One line of a derivation."""

    name: str  # the result's name in later lines; "" for the last line
    value: Any  # the result, as a symbol
    heading: str = ""  # a template with {heading}, the step's heading; "" shows the formula itself
    where: Mapping[str, Tree] = field(default_factory=dict)  # formulas of other names in braces
    note: str = ""  # a template for a note after the line
    tree: Tree = ""  # the formula at [row, column], with names of earlier lines for their results


# A function from an equation's parameters, as symbols, to its formulas; None for a single formula.
Formulas: TypeAlias = Callable[..., Sequence[Formula]] | None


def softmax(x: Symbol, sum_heading: str) -> list[Formula]:
    exp, row_max = on_symbols.exponentials(x), x.max(axis=-1, keepdims=True)
    return [
        Formula(
            "shifted",
            x - row_max,
            "minus the row's maximum",
            {"position": row_max.tree},
            "the maximum is at {position}",
        ),
        Formula("exp", exp, "exp"),
        Formula("row_sum", exp.sum(axis=-1, keepdims=True), sum_heading),
        Formula("softmax", on_symbols.softmax(x), "{heading}"),
    ]


def weights(masked_scores: Symbol, dropout_mask: Symbol | None) -> list[Formula]:
    return [
        *softmax(masked_scores, "the row's sum of exp, over the {n} unmasked keys{note}"),
        Formula("", on_symbols.weights(masked_scores, dropout_mask), "weights, after dropout"),
    ]


def layer_norm(x: Symbol, gain: Symbol, bias: Symbol, epsilon: Symbol) -> list[Formula]:
    mean = on_symbols.mean(x)
    centred, D = x - mean, x.shape[-1].tree
    return [
        Formula(
            "mean",
            mean,
            "mean, of the {D} numbers of {row}: their sum / {D}",
            {"D": D, "row": ("at", "x", "row")},
        ),
        Formula(
            "variance",
            on_symbols.mean(np.square(centred)),
            "variance: the sum of all ({x} - mean)² / {D}",
            {"D": D, "x": "x"},
        ),
        Formula("deviation", on_symbols.deviation(centred, epsilon)),
        Formula("normalised", on_symbols.normalised(x, epsilon)),
        Formula(
            "",
            on_symbols.layer_norm(x, gain, bias, epsilon),
            "{heading} = normalised · gain + bias",
        ),
    ]


HIDDEN = ("at", "hidden", "row", "column")  # the input of an activation function


def gelu(x: Symbol) -> list[Formula]:
    return [
        Formula(
            "inside",
            on_symbols.tanh_argument(x),
            "√(2/π) (x + 0.044715 x³) = √(2/π) (1 + 0.044715 x²) x, of x = {x}",
            {"x": HIDDEN},
        ),
        Formula(
            "share",
            on_symbols.gelu_factor(x),
            "share of x that passes: ½ (1 + tanh(√(2/π) (x + 0.044715 x³)))",
        ),
        Formula("", on_symbols.gelu(x), "{heading} = share · x"),
    ]


def share_of_x(activation: str, share: str, description: str) -> Formulas:
    """The lines of an activation function that is x times a share."""

    def lines(x: Symbol) -> list[Formula]:
        heading = "share of x = {x} that passes: " + description
        return [
            Formula("share", getattr(on_symbols, share)(x), heading, {"x": HIDDEN}),
            Formula("", getattr(on_symbols, activation)(x), "{heading} = x · share"),
        ]

    return lines


ACTIVATIONS: dict[Callable[..., Any], Formulas] = {
    equations.gelu: gelu,
    equations.exact_gelu: share_of_x(
        "exact_gelu", "normal_cdf", "Φ(x), how much of a normal distribution lies below x"
    ),
    equations.quick_gelu: share_of_x("quick_gelu", "quick_gelu_factor", "1 / (1 + e^(-1.702 x))"),
    equations.silu: share_of_x("silu", "sigmoid", "1 / (1 + e^(-x))"),
    equations.relu: None,
}

# Equations that only move numbers, so that there is no arithmetic to show. The Q, K and V of all
# heads are explained in a single head.
MOVING = (
    *(equations.identity, equations.W_U, equations.concat),
    *(equations.Q, equations.K, equations.V),
    *(equations.columns_of_head, equations.rows_of_head, equations.head_slice, equations.shared),
)

# Equations of several lines; all others are one line.
IN_LINES: dict[Callable[..., Any], Formulas] = {
    equations.layer_norm: layer_norm,
    equations.weights: weights,
    equations.softmax: lambda x: softmax(
        x, "the sum of exp over all {n} tokens of the vocabulary{note}"
    ),
    equations.activated: lambda hidden, activation: formulas_of(activation, hidden),
}


def computes(equation: Callable[..., Any] | None) -> TypeGuard[Callable[..., Any]]:
    """Whether this is an equation that computes numbers, rather than one that moves numbers."""
    is_equation = isinstance(equation, FunctionType) and equation.__module__ == equations.__name__
    return is_equation and equation not in MOVING


def formulas_of(equation: Callable[..., Any], *arguments: Any) -> Sequence[Formula]:
    """The formulas of an equation or activation function, given its parameters."""
    if formulas := {**IN_LINES, **ACTIVATIONS}.get(equation):
        return formulas(*arguments)
    return [Formula("", getattr(on_symbols, equation.__name__)(*arguments), "{heading}")]


def derivation(equation: Callable[..., Any], values: Mapping[str, Any]) -> tuple[Formula, ...]:
    """The lines that compute one number. They depend on flags, functions and None in `values`."""
    known = {
        name: value
        for name, value in values.items()
        if value is None or isinstance(value, bool) or callable(value)
    }
    return _derivation(equation, *known.items())


@cache
def _derivation(equation: Callable[..., Any], *known: tuple[str, Any]) -> tuple[Formula, ...]:
    values = dict(known)
    parameters = inspect.signature(equation).parameters
    arguments = [values[name] if name in values else Symbol.named(name) for name in parameters]
    declared = formulas_of(equation, *arguments)
    shown: list[Formula] = []
    names: dict[Tree, str] = {}
    for formula in declared:
        whole = Symbol.of(formula.value).tree
        tree = substitute(whole, names)
        if shown and tree == shown[-1].name:  # the line before has the result (without dropout)
            continue
        if formula is declared[-1] or not is_leaf(tree):
            shown.append(replace(formula, tree=tree))
            names = {whole: formula.name, **names}
    return tuple(shown)


def texts_and_operands(tree: Tree) -> list[Any]:
    """Write a formula as texts and operands, [tree, whether a minus needs parentheses]."""

    def mark(operand: list[Any]) -> bool:
        operand[1] = True  # `write` asks about the sign only where a minus needs parentheses
        return False

    parts = write(tree, lambda leaf: [leaf, False], mark)
    return [part.replace("-", "−") if part == " - " else part for part in parts]


def computing(root: type[Result]) -> list[Callable[..., Any]]:
    """The equations of a class of results that compute numbers, and softmax for probabilities."""
    used = dict.fromkeys(step.equation for _, step in steps_below(root))
    return [*(equation for equation in used if computes(equation)), equations.softmax]


def as_data(root: type[Result]) -> dict[str, Any]:
    """The derivations of a result's equations for the page, which has no dropout.

    The keys are the names of equations and activation functions. The scale has four keys: with or
    without √Dk, and with or without the layer's number.
    """
    absent = dict.fromkeys(("dropout_mask", "score_bias"))
    cases: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
        **{equation.__name__: (equation, {}) for equation in computing(root)},
        **{f.__name__: (equations.activated, {"activation": f}) for f in ACTIVATIONS},
    }
    del cases["activated"], cases["scale_of_layer"]  # their cases have other keys
    for has_root in (True, False):
        for has_number in (True, False):
            flags = {"divide_by_sqrt_d": has_root} | ({} if has_number else {"layer_number": None})
            name = f"scale_of_layer {has_root} {has_number}".lower()
            cases[name] = (equations.scale_of_layer, flags)
    return {
        name: {
            "parameters": [*inspect.signature(equation).parameters],
            "lines": [
                {
                    "parts": texts_and_operands(line.tree),
                    **{
                        key: getattr(line, key)
                        for key in ("name", "tree", "heading", "where", "note")
                    },
                }
                for line in derivation(equation, {**absent, **known})
            ],
        }
        for name, (equation, known) in cases.items()
    }
