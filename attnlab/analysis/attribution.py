"""Direct logit attribution: what each component adds to a logit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from attnlab.analysis.base import Analysis, Target, TargetLike, named_axis, numbered_axis
from attnlab.equations import AnyArray, Array, Mask, deviation, mean
from attnlab.errors import InvalidValueError
from attnlab.forward.attention import Head
from attnlab.model.trace import Trace
from attnlab.steps import Result, read_only
from attnlab.steps.labels import Axis
from attnlab.support.checks import check_kind
from attnlab.support.messages import Message
from attnlab.support.tables import Columns, Table

TOLERANCE = 1e-4  # the error of a sum, as a fraction of the sum of absolute values


def attribution(trace: Trace, target: TargetLike, *, at: int | str = -1) -> Attribution:
    """Direct logit attribution: what each head, MLP and embedding adds to a logit.

    The last LayerNorm's scale is held constant, so that the parts sum to the logit. Effects
    through later heads and MLPs aren't counted.

    Parameters
    ----------
    target : a token, for its logit, or a pair of tokens, for the difference of their logits. A
        token is given by its id, its text, such as " dog", or its symbol, or as a Token
    at : the position of the logits: an index, which may be negative, or a token's text, "it"

    Returns
    -------
    Attribution
        `.heads` (L, H), `.mlps` (L,), `.embedding` and `.bias` sum to `.total`

    Raises
    ------
    InvalidValueError
        If an edit replaced a sum, so that the parts no longer add up to the sum.

    Examples
    --------
    >>> attnlab.attribution(trace, (" rolled", " barked"))
    """
    check_kind(trace, Trace, "trace")
    return Attribution(trace, Target.of(trace, target, at))


class Attribution(Analysis):
    """What each component adds to a logit, or to a difference of two logits.

    The residual stream is a sum, and so is the logit if the last LayerNorm's scale is held
    constant: a component that writes c adds c·u, where u = centred(gain · w) / deviation and w is
    the token's column of W_U.

    Attributes
    ----------
    target : the explained logit, with its `token`, `against` and `position`
    heads : (L, H), the contribution of each head's context W_O
    mlps : (L,), the contribution of each MLP, including its b_2
    token_embedding, position_embedding, embedding : floats; `embedding` is the sum of the others
    bias : the contribution of all b_O and of the last LayerNorm's bias
    total : the logit, or the difference of two logits
    """

    meaning: ClassVar[str] = (
        "Each number is what a head or an MLP adds to the target: its output times "
        "centred(gain · w) / deviation, where w is the token's column of W_U."
    )
    note: ClassVar[str] = (
        "Only direct effects on the logit are counted, not effects through later heads and MLPs. "
        "The last LayerNorm's scale is held constant, though every component influences it."
    )
    source: ClassVar[str] = (
        "Elhage et al., “A Mathematical Framework for Transformer Circuits” (2021); Wang et al., "
        "“Interpretability in the Wild” (2022)"
    )

    def __init__(self, trace: Trace, target: Target) -> None:
        self.target = target
        self.title = Message(
            "Direct logit attribution{note}: {target}", note=trace._note, target=target.message
        )
        self.total = target.value(trace)
        row = target.position
        blocks = trace._fork().blocks  # a fork, so that the trace keeps no steps
        w = target.difference(trace.W_U)
        output = blocks[-1].output[row]
        u = direction(trace.gain, w) / deviation(output - mean(output), trace.epsilon)

        def added(head: Head) -> Array:
            if head.is_edited("output"):  # then the output isn't context W_O
                return head.output[row] @ u
            return head.context[row] @ (head.W_O @ u)

        heads = [[added(head) for head in block.attention.heads] for block in blocks]
        self.heads = read_only(np.array(heads))
        self.mlps = read_only(np.stack([block.mlp.output[row] @ u for block in blocks]))
        self.token_embedding = float(trace.token_embedding[row] @ u)
        self.position_embedding = float(trace.position_embedding[row] @ u)
        self.embedding = self.token_embedding + self.position_embedding
        biases = sum(float(block.attention.b_O @ u) for block in blocks)
        self.bias = biases + float(trace.bias @ w)
        parts = [*self.heads.flat, *self.mlps, self.embedding, self.bias]
        check_sum(np.array(parts), np.array(self.total), "the logit", trace)

    def _grid(self) -> tuple[AnyArray, Axis, Axis]:
        L, H = self.heads.shape
        heads = (Message("head {head}", head=head) for head in range(H))
        columns = named_axis("part", (*heads, "MLP"))
        return np.column_stack([self.heads, self.mlps]), numbered_axis("layer", L), columns

    def _data(self) -> Columns:
        """Every term of the total: embeddings, heads, MLPs and biases."""
        L, H = self.heads.shape
        terms = [
            ("token_embedding", None, None),
            ("position_embedding", None, None),
            *(("head", layer, head) for layer in range(L) for head in range(H)),
            *(("MLP", layer, None) for layer in range(L)),
            ("biases", None, None),
        ]
        parts, layers, heads = map(list, zip(*terms, strict=True))
        embeddings = self.token_embedding, self.position_embedding
        contribution = np.array([*embeddings, *self.heads.flat, *self.mlps, self.bias])
        return {"part": parts, "layer": layers, "head": heads, "contribution": contribution}

    def _tables(self) -> Iterator[str | Table]:
        numbers, _, columns = self._grid()
        lines = [[Message("layer"), *columns.labels]]
        for layer, row in enumerate(numbers):
            lines.append([str(layer), *(f"{number:z.{self.decimals}f}" for number in row)])
        yield Table(lines, left=())
        sums = {
            "tokens": self.token_embedding,
            "positions": self.position_embedding,
            "biases": self.bias,
            "total": self.total,
        }
        yield Message(
            "token embedding {tokens}, position embedding {positions}, biases {biases}, "
            "total {total}",
            **{name: f"{number:z.{self.decimals}f}" for name, number in sums.items()},
        )


def direction(gain: Array, w: Array) -> Array:
    """centred(gain · w), (..., D), where w is a column of W_U: a logit's gradient · deviation."""
    through_gain = gain * w
    return through_gain - mean(through_gain)


def check_sum(parts: AnyArray, total: AnyArray, name: str, trace: Result) -> None:
    """Raise unless the sum of parts over the first axis is the total."""
    if not adds_up(parts, total).all():
        raise InvalidValueError(
            f"the contributions don't sum to {name}{trace._note}. Use a trace in which no sum is "
            "edited; concat, mid and output are sums"
        )


def adds_up(parts: AnyArray, total: AnyArray) -> Mask:
    """Whether the sum of parts over the first axis is the total, up to rounding, per element."""
    sizes = np.abs(parts).sum(axis=0) + np.abs(total)
    is_sum: Mask = np.abs(parts.sum(axis=0) - total) <= TOLERANCE * sizes
    return is_sum
