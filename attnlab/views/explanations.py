"""The explanation of each equation: how the number at [row, column] is computed.

    equations.scores: one_line("raw_scores[row, column] / scale")

A line's formula uses earlier lines and the equation's parameters; [row, :] is a row. The last line
is the step's number. All views evaluate and write these lines: a sum of products as a table, any
other sum term by term. Absent parameters, such as a bias or dropout, are left out.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from attnlab import equations
from attnlab.views.formulas import parse


@dataclass(frozen=True)
class Formula:
    """One line of an explanation.

    Attributes
    ----------
    name : name of the result in later lines; "" for the last line
    formula : see `attnlab.views.formulas`
    heading : a template; "" for the formula itself
    where : a formula for each name in braces; {heading} is the step's heading
    note : a template for a note after the line
    """

    name: str
    formula: str
    heading: str = ""
    where: Mapping[str, str] = field(default_factory=dict)
    note: str = ""

    def as_data(self) -> dict[str, Any]:
        """The line for JSON."""
        return {
            "name": self.name,
            "tree": parse(self.formula),
            "heading": self.heading,
            "where": {name: parse(formula) for name, formula in self.where.items()},
            "note": self.note,
        }


class Derivation(NamedTuple):
    """How an equation's number is computed: lines, and steps to explain before them."""

    lines: tuple[Formula, ...]
    earlier: tuple[str, ...] = ()


def one_line(formula: str) -> Derivation:
    """A derivation of one line."""
    return Derivation((Formula("", formula, "{heading}"),))


def softmax(x: str, sum_heading: str) -> tuple[Formula, ...]:
    """The lines of softmax over a row."""
    return (
        Formula(
            "shifted",
            f"{x}[row, column] - max({x}[row, :])",
            "minus the row's maximum",
            where={"position": f"max({x}[row, :])"},
            note="the maximum is at {position}",
        ),
        Formula("exp", "exp(shifted)", "exp"),
        Formula("row_sum", f"sum(exp({x}[row, :] - max({x}[row, :])))", sum_heading),
        Formula("softmax", "exp / row_sum", "{heading}"),
    )


def activation(*lines: Formula) -> Derivation:
    """The derivation of an activation function, as x times a share."""
    return Derivation((*lines, Formula("", "hidden[row, column] * share", "{heading} = x · share")))


WHERE_X = {"x": "hidden[row, column]"}


def share_of_x(formula: str, description: str) -> Derivation:
    """The derivation of an activation function whose share is a single formula."""
    heading = "share of x = {x} that passes: " + description
    return activation(Formula("share", formula, heading, where=WHERE_X))


ACTIVATIONS: dict[Any, Derivation] = {
    equations.gelu: activation(
        Formula(
            "inside",
            "sqrt(2 / pi) * (hidden[row, column] + 0.044715 * hidden[row, column] ** 3)",
            "√(2/π) (x + 0.044715 x³), of x = {x}",
            where=WHERE_X,
        ),
        Formula(
            "share",
            "0.5 * (1 + tanh(inside))",
            "share of x that passes: ½ (1 + tanh(√(2/π) (x + 0.044715 x³)))",
        ),
    ),
    equations.exact_gelu: share_of_x(
        "0.5 * (1 + erf(hidden[row, column] / sqrt(2)))",
        "Φ(x), how much of a normal distribution lies below x",
    ),
    equations.quick_gelu: share_of_x(
        "0.5 * (1 + tanh(0.5 * (1.702 * hidden[row, column])))", "1 / (1 + e^(-1.702 x))"
    ),
    equations.silu: share_of_x("0.5 * (1 + tanh(0.5 * hidden[row, column]))", "1 / (1 + e^(-x))"),
    equations.relu: share_of_x("hidden[row, column] > 0", "1 above 0, otherwise 0"),
}

EXPLANATIONS: dict[Callable[..., Any], Derivation | dict[Any, Derivation]] = {
    equations.token_embedding: one_line("W_E[ids[row], column]"),
    equations.position_embedding: one_line("W_P[positions[row], column]"),
    equations.embedding: Derivation(
        (
            Formula(
                "both",
                "token_embedding[row, column] + position_embedding[row, column]",
                "{heading}",
            ),
            Formula(
                "",
                "both * embedding_dropout[row, column]",
                "{heading}, times {dropout}",
                where={"dropout": "embedding_dropout"},
            ),
        )
    ),
    equations.layer_norm: Derivation(
        (
            Formula(
                "mean",
                "sum(x[row, :]) / len(x[row, :])",
                "mean, of the {D} numbers of {row}: their sum / {D}",
                where={"D": "len(x[row, :])", "row": "x[row]"},
            ),
            Formula(
                "variance",
                "sum((x[row, :] - mean) ** 2) / len(x[row, :])",
                "variance: the sum of all ({x} - mean)² / {D}",
                where={"D": "len(x[row, :])", "x": "x"},
            ),
            Formula("deviation", "sqrt(variance + epsilon)"),
            Formula("normalised", "(x[row, column] - mean) / deviation"),
            Formula(
                "",
                "normalised * gain[column] + bias[column]",
                "{heading} = normalised · gain + bias",
            ),
        )
    ),
    equations.affine: one_line("sum(x[row, :] * W[:, column]) + b[column]"),
    equations.scale: one_line("sqrt(len(K[0, :]))"),
    equations.scale_of_layer: one_line(
        "(sqrt(len(K[0, :])) if divide_by_sqrt_d else None) * layer_number"
    ),
    equations.raw_scores: one_line("sum(Q[row, :] * K[column, :])"),
    equations.scores: one_line("raw_scores[row, column] / scale"),
    equations.masked_scores: one_line("scores[row, column] if mask[row, column] else -inf"),
    equations.weights: Derivation(
        (
            *softmax("masked_scores", "the row's sum of exp, over the {n} unmasked keys{note}"),
            Formula("", "softmax * dropout_mask[row, column]", "weights, after dropout"),
        ),
        earlier=("raw_scores", "scale", "scores", "mask", "masked_scores", "dropout_mask"),
    ),
    equations.softmax: Derivation(
        softmax("x", "the sum of exp over all {n} tokens of the vocabulary{note}")
    ),
    equations.context: one_line("sum(weights[row, :] * V[:, column])"),
    equations.head_output: one_line("sum(context[row, :] * W_O[:, column])"),
    equations.residual: Derivation(
        (
            Formula("kept", "update[row, column] * dropout[row, column]"),
            Formula("", "stream[row, column] + kept", "{heading}"),
        )
    ),
    equations.activated: ACTIVATIONS,
    equations.logits: one_line("sum(final[row, :] * W_U[:, column])"),
    equations.next_logits: one_line("sum(final[-1, :] * W_U[:, column])"),
}


def as_data() -> dict[str, Any]:
    """The explanations for the page, by equation or activation function."""
    # Lines of an activation function use the parameters of `activated`.
    activations = {f: (equations.activated, entry) for f, entry in ACTIVATIONS.items()}
    steps = {f: (f, entry) for f, entry in EXPLANATIONS.items()}
    return {
        function.__name__: {
            "parameters": [*inspect.signature(equation).parameters],
            "lines": [line.as_data() for line in entry.lines],
        }
        for function, (equation, entry) in {**steps, **activations}.items()
        if isinstance(entry, Derivation)
    }
