"""Mistakes that are often made in writing GPT-2, each as the equations that it computes instead.

So whether one was made need not be guessed from what numbers look like: the forward pass is
computed with the mistake in it, and the numbers are its own or they are not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np

from attnlab.checking.replaced import Equation
from attnlab.equations import (
    Activation,
    Array,
    Mask,
    affine,
    deviation,
    exact_gelu,
    gelu,
    in_heads,
    layer_norm,
    mean,
    softmax,
    split_heads,
    third,
    transpose,
)
from attnlab.errors import InvalidValueError


@dataclass(frozen=True, eq=False)
class Mistake:
    """Other equations than GPT-2's.

    Attributes
    ----------
    formula : what is computed
    hint : what is wrong with that, and what to do; {Dk}, {D}, {H}, {scale} are the model's
    equations : by step, `attention.scores`, `mlp.X`, `final`, for every block. A function's
        parameters are the steps that it needs, as in `attnlab.equations`: the same as those of the
        step's own equation, or steps beside it. A default says which step is meant where it has
        another name, or None where it may be missing; `value` is the step itself, as it would be.
    """

    formula: str
    hint: str
    equations: Mapping[str, Equation]


# ---- the other equations -------------------------------------------------------------------------


def nothing_done(x: Array) -> Array:
    return x


def projected(x: Array, W: Array, b: Array | None, n_head: int | None) -> Array:
    return affine(x, W, b) if n_head is None else in_heads(x, W, b, n_head)


def projected_and_dealt(x: Array, W: Array, b: Array | None, n_head: int) -> Array:
    return dealt_out(affine(x, W, b), n_head)


def turned(value: Array) -> Array:
    return value.reshape(value.shape[::-1]).T  # of a square matrix the transpose, else read as one


def with_turned_thirds(value: Array) -> Array:
    return np.concatenate([turned(third(value, n)) for n in range(3)], axis=-1)


def zero(value: Array) -> Array:
    return 0 * value


def with_zero_third(n: int) -> Equation:
    def other(value: Array) -> Array:
        changed = value.copy()
        third(changed, n)[...] = 0
        return changed

    return other


def dealt_out(x: Array, n_head: int) -> Array:
    return x.reshape(*x.shape[:-2], n_head, x.shape[-2], -1)  # (T, H·Dh) -> (H, T, Dh) at once


def joined(context: Array) -> Array:
    return context.reshape(*context.shape[:-3], context.shape[-2], -1)  # the same way back


def projection(letter: str, equation: Callable[..., Array], of: str = "") -> Equation:
    """Q, K or V made by another equation, or of the parameters that are of another one's."""

    def other(
        x: Any = "X" if letter == "Q" else "memory",
        W: Any = f"W_{of or letter}",
        b: Any = f"b_{of or letter}",
        n_head: Any = None,
    ) -> Array:
        return equation(x, W, b, n_head)

    return other


def head_by_head(part: int) -> Equation:
    def other(QKV: Array, n_head: int) -> Array:
        return split_heads(QKV, 3 * n_head)[..., part::3, :, :]  # q k v of head 0, of head 1, ...

    return other


def dealt_at_once(part: int) -> Equation:
    def other(QKV: Array, n_head: int) -> Array:
        return dealt_out(QKV, 3 * n_head)[..., part * n_head : (part + 1) * n_head, :, :]

    return other


def masked_by(change: Callable[[Any], Any]) -> Equation:
    def other(scores: Array, mask: Mask) -> Array:
        seen = np.broadcast_to(change(mask), scores.shape)
        # A row that sees nothing has weights only where the mask is a number, such as -1e9.
        fill = np.where(seen.any(axis=-1, keepdims=True), -math.inf, -1e9)
        masked: Array = np.where(seen, scores, fill.astype(scores.dtype))
        return masked

    return other


def one_ahead(mask: Mask) -> Mask:
    seen = mask.copy()
    seen[..., 1:] |= mask[..., :-1]
    return seen


def one_behind(mask: Mask) -> Mask:
    seen = np.zeros_like(mask)
    seen[..., :-1] = mask[..., 1:]
    return seen


def softmax_over(axis: int) -> Equation:
    def other(masked_scores: Array) -> Array:
        scores = np.maximum(masked_scores, -1e9)  # all heads mask the same cells
        return softmax(scores.swapaxes(axis, -1)).swapaxes(axis, -1)

    return other


def layer_norm_by(spread: Callable[[Array, float], Array]) -> Equation:
    def other(x: Array, gain: Array, bias: Array, epsilon: float) -> Array:
        centred = x - mean(x)
        return centred / spread(centred, epsilon) * gain + bias

    return other


def over_fewer(centred: Array, epsilon: float) -> Array:
    D = centred.shape[-1]
    return deviation(centred * math.sqrt(D / (D - 1)), epsilon)


def epsilon_outside(centred: Array, epsilon: float) -> Array:
    return deviation(centred, 0.0) + epsilon


def over_fewer_epsilon_outside(centred: Array, epsilon: float) -> Array:
    return over_fewer(centred, 0.0) + epsilon


def normalised_after(part: str) -> Equation:
    def other(
        value: Array,
        gain: Any = f"{part}.gain",
        bias: Any = f"{part}.bias",
        epsilon: Any = f"{part}.epsilon",
    ) -> Array:
        return layer_norm(value, gain, bias, epsilon)

    return other


def written_alone(written: Array) -> Array:
    return written


def gelu_for(right: Callable[[Array], Array], other: Callable[[Array], Array]) -> Equation:
    """One form of GELU where the model has the other one."""

    def made(hidden: Array, activation: Activation) -> Array:
        if activation is not right:
            raise InvalidValueError("the model has another activation")
        return other(hidden)

    return made


def as_float16(value: Any) -> Any:
    return None if value is None else value.astype(np.float16).astype(value.dtype)


def as_bfloat16(value: Any) -> Any:
    if value is None:
        return None
    bits = value.astype(np.float32).view(np.uint32)
    bits = bits + 0x7FFF + (bits >> 16 & 1)  # to the nearest, of two to the even one
    return (bits & 0xFFFF0000).view(np.float32).astype(value.dtype)


# ---- the table -----------------------------------------------------------------------------------

# A block's W_QKV and b_QKV, or W_Q, ..., b_V of attention that has them one by one.
NO_B_Q, NO_B_K, NO_B_V = (
    {"attention.b_QKV": with_zero_third(n), f"attention.b_{letter}": zero}
    for n, letter in enumerate("QKV")
)
NO_B_QKV = {**NO_B_Q, **NO_B_K, **NO_B_V, "attention.b_QKV": zero}
NO_B_O = {"attention.b_O": zero}
NO_B_1 = {"mlp.b_1": zero}
NO_B_2 = {"mlp.b_2": zero}

TURNED_QKV = {f"attention.W_{letter}": turned for letter in "QKV"}
TURNED_QKV["attention.W_QKV"] = with_turned_thirds
TURNED_W_QKV = {"attention.W_QKV": turned}
TURNED_W_O = {"attention.W_O": turned}
TURNED_W_1 = {"mlp.W_1": turned}
TURNED_W_2 = {"mlp.W_2": turned}

DEALT_QKV = {f"attention.{letter}": projection(letter, projected_and_dealt) for letter in "QKV"}
JOINED = {"attention.concat": joined}

NO_STREAM_MID = {"mid": written_alone}
NO_STREAM_OUTPUT = {"output": written_alone}

POST_NORM = {
    "attention.X": nothing_done,
    "mid": normalised_after("attention"),
    "mlp.X": nothing_done,
    "output": normalised_after("mlp"),
}
NO_FINAL = {"final": nothing_done}

NORMS = ("attention.X", "mlp.X", "final")

PARAMETERS = (
    *("token_embedding", "W_P", "gain", "bias", "W_E", "W_U"),  # of W_E the rows too
    *(f"attention.{name}" for name in ("gain", "bias", "W_QKV", "b_QKV", "W_O", "b_O")),
    *(f"attention.{kind}_{letter}" for kind in "Wb" for letter in "QKV"),
    *(f"mlp.{name}" for name in ("gain", "bias", "W_1", "b_1", "W_2", "b_2")),
)


def rounded(to: Callable[[Any], Any]) -> dict[str, Equation]:
    """Every parameter rounded."""

    def other(value: Any) -> Any:
        return to(value)

    return dict.fromkeys(PARAMETERS, other)


MISTAKES = (
    Mistake(
        "scores = raw_scores",
        "Nothing divides the scores, and the softmax saturates. Divide by {scale}, with Dk = {Dk}.",
        {"attention.scores": lambda raw_scores: raw_scores},
    ),
    Mistake(
        "scores = raw_scores / √D",
        "D = {D} is the width of the whole residual stream; a head has Dk = {Dk} columns. Divide "
        "by {scale}.",
        {"attention.scores": lambda raw_scores, X: raw_scores / math.sqrt(X.shape[-1])},
    ),
    Mistake(
        "scores = raw_scores / Dk",
        "Dk = {Dk} lacks its root, or √Dk divides twice. Divide by {scale}, once.",
        {"attention.scores": lambda raw_scores, K: raw_scores / K.shape[-1]},
    ),
    Mistake(
        "masked_scores = scores",
        "Nothing is masked: a query sees the tokens after it. Put -inf where the key comes after "
        "the query.",
        {"attention.masked_scores": lambda scores: scores},
    ),
    Mistake(
        "masked_scores = scores where the mask is True, else 0",
        "A score of 0 still gets e⁰ = 1 before the row is divided by its sum. Put -inf there, "
        "whose exp is 0.",
        {"attention.masked_scores": lambda scores, mask: np.where(mask, scores, 0 * scores)},
    ),
    Mistake(
        "weights = softmax(scores) where the mask is True, else 0",
        "Masked after the softmax, the rows no longer sum to 1. Mask the scores, then take the "
        "softmax.",
        {"attention.weights": lambda scores, mask: softmax(scores) * mask},
    ),
    Mistake(
        "masked_scores = scores where maskᵀ is True, else -inf",
        "The mask is upside-down: a query sees itself and what comes after it. Keep the lower "
        "triangle, key ≤ query (np.tril, not np.triu).",
        {"attention.masked_scores": masked_by(transpose)},
    ),
    Mistake(
        "masked_scores = scores where the mask is False, else -inf",
        "What may be seen is masked, and what may not is kept. True has to mean: may attend.",
        {"attention.masked_scores": masked_by(np.logical_not)},
    ),
    Mistake(
        "masked_scores = scores where key ≤ query + 1, else -inf",
        "The mask is off by one: a query sees the token after it. Keep key ≤ query.",
        {"attention.masked_scores": masked_by(one_ahead)},
    ),
    Mistake(
        "masked_scores = scores where key ≤ query - 1, else -inf",
        "The mask is off by one: a query does not see itself. Keep key ≤ query.",
        {"attention.masked_scores": masked_by(one_behind)},
    ),
    Mistake(
        "weights = softmax over the queries",
        "Each column sums to 1, and not each row. Take the softmax over the keys, the last axis.",
        {"attention.weights": softmax_over(-2)},
    ),
    Mistake(
        "weights = softmax over the heads",
        "For each query and key the heads sum to 1. Take the softmax over the keys, the last axis.",
        {"attention.weights": softmax_over(-3)},
    ),
    *(
        Mistake(
            f"Q, K, V = the parts of QKV that are {first}, {second}, {third}",
            "The columns of W_QKV are W_Q, W_K, W_V, in this order.",
            {
                f"attention.{letter}": projection(letter, projected, other)
                for letter, other in zip("QKV", (first, second, third), strict=True)
                if letter != other
            },
        )
        for first, second, third in list(permutations("QKV"))[1:]
    ),
    Mistake(
        "Q, K, V = QKV taken as q k v of head 0, q k v of head 1, ...",
        "The columns of QKV are Q of all {H} heads, then K of all heads, then V: split it in three "
        "first, and each third into heads.",
        {f"attention.{letter}": head_by_head(part) for part, letter in enumerate("QKV")},
    ),
    Mistake(
        "Q = (X W_Q + b_Q).reshape(H, T, Dk), and so K and V",
        "A reshape from (T, H·Dk) deals whole rows out to heads, and mixes tokens. Reshape to "
        "(T, H, Dk), then swap the first two axes.",
        DEALT_QKV,
    ),
    Mistake(
        "Q, K, V = QKV.reshape(3, H, T, Dk)",
        "A reshape from (T, 3·H·Dk) deals whole rows out, and mixes tokens. Reshape to "
        "(T, 3, H, Dk), then bring the axes of Q, K, V and heads to the front.",
        {f"attention.{letter}": dealt_at_once(part) for part, letter in enumerate("QKV")},
    ),
    Mistake(
        "concat = context.reshape(T, H·Dh)",
        "A reshape from (H, T, Dk) mixes heads and tokens. Swap the first two axes, then reshape.",
        JOINED,
    ),
    Mistake(
        "Q = (X W_Q + b_Q).reshape(H, T, Dk), and so K and V; concat = context.reshape(T, H·Dh)",
        "Heads are split and joined by reshape alone, which mixes tokens. Between (T, H, Dk) and "
        "(H, T, Dk) swap the first two axes.",
        DEALT_QKV | JOINED,
    ),
    *(
        Mistake(
            formula,
            "GPT-2 stores its matrices with inputs as rows, for `X @ W`; nn.Linear's are the other "
            "way round, for `X @ W.T`. Leave out the transpose, or transpose what you load.",
            equations,
        )
        for formula, equations in (
            ("Q = X W_Qᵀ + b_Q, and so K and V", TURNED_QKV),
            ("output = concat W_Oᵀ + b_O", TURNED_W_O),
            ("Q = X W_Qᵀ + b_Q, and so K, V and output", TURNED_QKV | TURNED_W_O),
            ("QKV = X W + b_QKV, with W_QKV read as if it were Wᵀ", TURNED_W_QKV),
            ("hidden = X W + b_1, with W_1 read as if it were Wᵀ", TURNED_W_1),
            ("output = activated W + b_2, with W_2 read as if it were Wᵀ", TURNED_W_2),
            ("hidden, output = x W + b, with W_1 and W_2 read as Wᵀ", TURNED_W_1 | TURNED_W_2),
            (
                "x W + b, with every matrix read as if it were Wᵀ",
                TURNED_W_QKV | TURNED_W_O | TURNED_W_1 | TURNED_W_2,
            ),
        )
    ),
    *(
        Mistake(formula, "A bias is left out. GPT-2 has one in every affine map.", equations)
        for formula, equations in (
            ("Q = X W_Q", NO_B_Q),
            ("K = X W_K", NO_B_K),
            ("V = X W_V", NO_B_V),
            ("QKV = X W_QKV", NO_B_QKV),
            ("output = concat W_O", NO_B_O),
            ("hidden = X W_1", NO_B_1),
            ("output = activated W_2", NO_B_2),
            ("hidden = X W_1, output = activated W_2", NO_B_1 | NO_B_2),
            ("x W, without any bias", NO_B_QKV | NO_B_O | NO_B_1 | NO_B_2),
            (
                "LayerNorm without its bias",
                dict.fromkeys(("attention.bias", "mlp.bias", "bias"), zero),
            ),
        )
    ),
    Mistake(
        "activated = hidden · Φ(hidden), GELU in its exact form",
        "GPT-2 was trained with the tanh form, ½ x (1 + tanh(√(2/π) (x + 0.044715 x³))), in "
        "PyTorch F.gelu(x, approximate='tanh').",
        {"mlp.activated": gelu_for(gelu, exact_gelu)},
    ),
    Mistake(
        "activated = hidden · (1 + tanh(…)) / 2, GELU in its tanh form",
        "This model, other than GPT-2, was trained with the exact form, x Φ(x).",
        {"mlp.activated": gelu_for(exact_gelu, gelu)},
    ),
    Mistake(
        "LayerNorm with the variance over D - 1",
        "LayerNorm's variance is a mean over all D: np.var(x), torch.var(x, unbiased=False).",
        dict.fromkeys(NORMS, layer_norm_by(over_fewer)),
    ),
    Mistake(
        "LayerNorm divides by √variance + eps",
        "eps belongs under the root: √(variance + eps).",
        dict.fromkeys(NORMS, layer_norm_by(epsilon_outside)),
    ),
    Mistake(
        "LayerNorm divides by √variance + eps, with the variance over D - 1",
        "torch.std divides by D - 1, and eps belongs under the root: √(variance + eps), the "
        "variance over all D.",
        dict.fromkeys(NORMS, layer_norm_by(over_fewer_epsilon_outside)),
    ),
    Mistake(
        "attention's X = the block's input",
        "A LayerNorm is left out: in GPT-2 one comes before attention, and none after it.",
        {"attention.X": nothing_done},
    ),
    Mistake(
        "the MLP's X = mid",
        "A LayerNorm is left out: in GPT-2 one comes before the MLP, and none after it.",
        {"mlp.X": nothing_done},
    ),
    Mistake(
        "final = the last block's output",
        "The last LayerNorm is left out, the one after all blocks.",
        NO_FINAL,
    ),
    Mistake(
        "mid = LayerNorm(input + attention.output), output = LayerNorm(mid + mlp.output)",
        "LayerNorm comes after attention and MLP, as in 2017. In GPT-2 it comes before them, and "
        "what they write is added as it is.",
        POST_NORM,
    ),
    Mistake(
        "mid = LayerNorm(input + attention.output), output = LayerNorm(mid + mlp.output), and "
        "final = the last block's output",
        "LayerNorm comes after attention and MLP, as in 2017. In GPT-2 it comes before them, and "
        "one more stands after all blocks.",
        POST_NORM | NO_FINAL,
    ),
    Mistake(
        "embedding = token_embedding",
        "The positions are missing: without them the order of the tokens is lost. Add "
        "W_P[0], W_P[1], ...",
        {"embedding": lambda token_embedding: token_embedding},
    ),
    Mistake(
        "position_embedding = W_P[1], W_P[2], ...",
        "Positions are counted from 1. The first token's is 0.",
        {"positions": lambda value: value + 1},
    ),
    Mistake(
        "mid = attention.output",
        "The residual is left out: add what attention writes to the block's input.",
        NO_STREAM_MID,
    ),
    Mistake(
        "output = mlp.output",
        "The residual is left out: add what the MLP writes to mid.",
        NO_STREAM_OUTPUT,
    ),
    Mistake(
        "mid = attention.output, output = mlp.output",
        "Both residuals are left out: add what attention and MLP write to the stream.",
        NO_STREAM_MID | NO_STREAM_OUTPUT,
    ),
    Mistake(
        "every parameter rounded to float16",
        "The weights went through half precision. Load them as float32.",
        rounded(as_float16),
    ),
    Mistake(
        "every parameter rounded to bfloat16",
        "The weights went through half precision. Load them as float32.",
        rounded(as_bfloat16),
    ),
)

# Two that are no other equation: the text is another one, and chance is in it.

IN_FRONT = Mistake(
    "ids = <|endoftext|> and then the text's",
    "A beginning-of-text token is put in front, which moves every other one. GPT-2 reads a text "
    "as it is: leave it out (in TransformerLens prepend_bos=False).",
    {},
)

DROPOUT = Mistake(
    "{name} with dropout, p = {share:.2g}",
    "Some cells are 0, and all others larger by 1 / (1 - p). Dropout is for training: turn it off, "
    "in PyTorch by model.eval().",
    {},
)
