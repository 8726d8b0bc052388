"""Common mistakes in implementations of GPT-2, as equations.

A mistake is identified by running the forward pass with its equations and comparing numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import permutations
from typing import Any, TypeAlias

import numpy as np

from attnlab import equations as eq
from attnlab.checking.replaced import Equation
from attnlab.equations import Activation, Array, Mask
from attnlab.forward.fast import side_by_side
from attnlab.support.messages import Message

# By step, such as `attention.scores`, `mlp.X` or `final`. An equation's parameters are named after
# steps, or have a step's path as their default; see `replaced.node_with_equation`.
Equations: TypeAlias = dict[str, Equation]

# Mistakes by hint and formula. An equation by itself is that of the step that the formula is of.
Table: TypeAlias = Mapping[str, Mapping[str, Equation | Equations]]

NORMS = ("attention.X", "mlp.X", "final")

# Steps that aren't attention's.
OTHER_STEPS = {"mid", "output", "embedding", "final", "logits"}


@dataclass(frozen=True, eq=False)
class Mistake:
    """Equations that differ from GPT-2's."""

    formula: str  # what is computed
    hint: str  # what is wrong and what to do; {Dk}, {D}, {H}, {scale} are filled in
    equations: Equations  # by step, for every block
    lines: tuple[str, ...] = ()  # the corrected code; `with_sizes` fills in the sizes
    only_with: str = ""  # the step that distinguishes it from another mistake

    def corrected_lines(self) -> tuple[str, ...]:
        """The corrected code of each step that it changes, before sizes are filled in."""
        changed = dict.fromkeys(LINES[name] for name in self.equations if name in LINES)
        return self.lines or tuple(changed)


def mistakes_in(table: Table) -> tuple[Mistake, ...]:
    return tuple(
        Mistake(
            formula, hint, dict.fromkeys(steps_of(formula), found) if callable(found) else found
        )
        for hint, alternatives in table.items()
        for formula, found in alternatives.items()
    )


def steps_of(formula: str) -> tuple[str, ...]:
    """The steps that a formula is of, such as `attention.scores`; "LayerNorm ..." is of three."""
    name = formula.partition(" = ")[0]
    if formula.startswith(("LayerNorm", "RMSNorm")):
        return NORMS
    return (name if "." in name or name in OTHER_STEPS else f"attention.{name}",)


# ---- equations that several mistakes share, or that take parameters ------------------------------


def transposed(value: Array) -> Array:
    # For a non-square matrix, this is the result of loading it in the wrong layout.
    return value.reshape(value.shape[::-1]).T


def zero(value: Array) -> Array:
    return 0 * value


def reshaped_to_heads(x: Array, n_head: int) -> Array:
    return x.reshape(*x.shape[:-2], n_head, x.shape[-2], -1)  # (T, H·Dh) -> (H, T, Dh)


def split_columns_first(x: Array, n_head: int) -> Array:
    return np.moveaxis(x.reshape(*x.shape[:-1], -1, n_head), -1, -3)  # (T, Dh·H) -> (H, T, Dh)


def merged_columns_first(context: Array) -> Array:
    return np.moveaxis(context, -3, -1).reshape(*context.shape[:-3], context.shape[-2], -1)


def merged_by_reshape(context: Array) -> Array:
    return context.reshape(*context.shape[:-3], context.shape[-2], -1)


def projection(name: str, other: str) -> Equation:
    """Q, K or V computed with another's parameters."""

    def mistaken(
        x: Any = "X" if name == "Q" else "memory",
        W: Any = f"W_{other}",
        b: Any = f"b_{other}",
        n_head: Any = None,
    ) -> Array:
        columns = eq.affine(x, W, b)
        return columns if n_head is None else eq.split_heads(columns, n_head)

    return mistaken


def each_projection(change: Equation) -> Equations:
    return {f"attention.{name}": change for name in "QKV"}


def split_by(split: Callable[[Array, int], Array]) -> Equations:
    return each_projection(lambda value: split(eq.merge_heads(value), value.shape[-3]))


def from_one_product(
    heads: Callable[[Array, int, int], Array], load: Callable[[Array], Array] = eq.identity
) -> Equations:
    """Q, K and V as `heads(QKV, n_head, part)`, with part 0, 1 and 2, of one product for all.

    QKV = X load(W_QKV) + b_QKV, where W_QKV is W_Q, W_K and W_V side by side, as in GPT-2's files.
    """

    def equation(part: int) -> Equation:
        # residual: a step that only a model has. Nobody loads matrices of their own like this.
        def mistaken(
            residual: Array,
            X: Array,
            W_Q: Array,
            W_K: Array,
            W_V: Array,
            b_Q: Array,
            b_K: Array,
            b_V: Array,
            n_head: int,
        ) -> Array:
            W, b = side_by_side(W_Q, W_K, W_V), side_by_side(b_Q, b_K, b_V)
            return heads(eq.affine(X, load(W), b), n_head, part)

        return mistaken

    return {f"attention.{name}": equation(part) for part, name in enumerate("QKV")}


def divided_by_Dk(value: Array) -> Array:
    return value / value.shape[-1]


def undivided(raw_scores: Array) -> Array:
    return raw_scores


def masked(change: Callable[[Array, Mask], Any]) -> Equation:
    """Masked scores from scores, to which a bias is added if there is one, and the mask."""

    def mistaken(scores: Array, mask: Mask, score_bias: Any = None) -> Any:
        return change(eq.biased(scores, score_bias), mask)

    return mistaken


def with_mask(change: Callable[[Any], Any]) -> Equation:
    def hidden(scores: Array, mask: Mask) -> Array:
        allowed = np.broadcast_to(change(mask), scores.shape)
        # -inf would give NaN in rows that are fully masked; a finite fill is usual there.
        fill = np.where(allowed.any(axis=-1, keepdims=True), -math.inf, -1e9)
        return np.where(allowed, scores, fill.astype(scores.dtype))

    return masked(hidden)


def with_next_key(mask: Mask) -> Mask:
    allowed = mask.copy()
    allowed[..., 1:] |= mask[..., :-1]
    return allowed


def without_own_key(mask: Mask) -> Mask:
    allowed = np.zeros_like(mask)
    allowed[..., :-1] = mask[..., 1:]
    return allowed


def filled(fill: float) -> Equation:
    return masked(lambda scores, mask: np.where(mask, scores, scores.dtype.type(fill)))


def lowered(by: float) -> Equation:
    return masked(lambda scores, mask: np.where(mask, scores, scores - scores.dtype.type(by)))


def lowered_where_allowed(by: float) -> Equation:
    # In float32 the last row would lose its digits.
    return masked(lambda scores, mask: np.where(mask, scores.astype(np.float64) - by, scores))


def softmax_over(*axes: int) -> Equation:
    def mistaken(masked_scores: Array) -> Any:
        scores = np.maximum(masked_scores, -1e9)  # -inf in all heads would give NaN
        e = np.exp(scores - scores.max(axis=axes, keepdims=True))
        return e / e.sum(axis=axes, keepdims=True)

    return mistaken


def exponentials_by_sum(*axes: int) -> Equation:
    def mistaken(masked_scores: Array) -> Any:
        e = eq.exponentials(masked_scores)
        return e / e.sum(axis=axes, keepdims=True)

    return mistaken


def softmax_divided(masked_scores: Array, scale: float) -> Array:
    return eq.softmax(masked_scores) / scale


def layer_norm_by(spread: Callable[[Array, float], Array]) -> Equation:
    """LayerNorm that divides by another function of the centred row and epsilon."""

    def mistaken(x: Array, gain: Array, bias: Array, epsilon: float) -> Array:
        centred = x - eq.mean(x)
        return centred / spread(centred, epsilon) * gain + bias

    return mistaken


def unbiased_deviation(centred: Array, epsilon: float) -> Array:
    D = centred.shape[-1]
    return eq.deviation(centred * math.sqrt(D / (D - 1)), epsilon)


def with_epsilon(epsilon: float) -> Equation:
    return layer_norm_by(lambda centred, _: eq.deviation(centred, epsilon))


def over_all_tokens(x: Array, gain: Array, bias: Array, epsilon: float) -> Array:
    flat = x.reshape(*x.shape[:-2], 1, -1)
    return eq.normalised(flat, epsilon).reshape(x.shape) * gain + bias


def normalised_by(part: str, stream: str) -> Equation:
    """The LayerNorm of attention or MLP with the gain and bias of the other one."""

    def mistaken(
        epsilon: float,
        x: Any = f"parent.{stream}",
        gain: Any = f"parent.{part}.gain",
        bias: Any = f"parent.{part}.bias",
    ) -> Array:
        return eq.layer_norm(x, gain, bias, epsilon)

    return mistaken


def normalised_after(part: str) -> Equation:
    def mistaken(
        value: Array,
        gain: Any = f"{part}.gain",
        bias: Any = f"{part}.bias",
        epsilon: Any = f"{part}.epsilon",
    ) -> Array:
        return eq.layer_norm(value, gain, bias, epsilon)

    return mistaken


def without_residual(update: Array) -> Array:
    return update


def activated_by(activation: Activation) -> Equations:
    return {"mlp.activated": lambda hidden: activation(hidden)}


def gelu_with(
    root: float = math.sqrt(2 / math.pi), cubic: float = 0.044715, power: int = 3
) -> Activation:
    return lambda x: 0.5 * x * (1.0 + np.tanh(root * (x + cubic * x**power)))


def as_float16(value: Any) -> Any:
    return None if value is None else value.astype(np.float16).astype(value.dtype)


def as_bfloat16(value: Any) -> Any:
    if value is None:
        return None
    bits = value.astype(np.float32).view(np.uint32)
    bits = bits + 0x7FFF + (bits >> 16 & 1)  # round to nearest, ties to even
    return (bits & 0xFFFF0000).view(np.float32).astype(value.dtype)


# ---- corrected code ------------------------------------------------------------------------------

NORM_LINE = (
    "{} = ({} - {}.mean(-1, keepdims=True)) / "
    "np.sqrt({}.var(-1, keepdims=True) + {{epsilon}}) * gain + bias"
)
SPLIT_LINE = (
    "Q, K, V = ((X @ W + b).reshape(T, H, -1).swapaxes(0, 1) "
    "for W, b in ((W_Q, b_Q), (W_K, b_K), (W_V, b_V)))"
)
STEP_LINES = {
    "attention.X": NORM_LINE.format("X", *["input"] * 3),
    "attention.Q": SPLIT_LINE,
    "attention.raw_scores": "raw_scores = Q @ K.swapaxes(-2, -1)",
    "attention.scores": "scores = raw_scores / {divisor}",
    "attention.masked_scores": "masked_scores = {masked_code}",
    "attention.weights": (
        "e = np.exp(masked_scores - masked_scores.max(-1, keepdims=True)); "
        "weights = e / e.sum(-1, keepdims=True)"
    ),
    "attention.context": "context = weights @ V",
    "attention.concat": "concat = context.swapaxes(0, 1).reshape(T, -1)",
    "attention.output": "output = concat @ W_O + b_O",
    "mid": "mid = input + attention_output",
    "mlp.X": NORM_LINE.format("X", *["mid"] * 3),
    "mlp.hidden": "hidden = X @ W_1 + b_1",
    "mlp.activated": "activated = {activation_code}",
    "mlp.output": "mlp_output = activated @ W_2 + b_2",
    "output": "output = mid + mlp_output",
    "positions": "positions = np.arange(T)",
    "ids": "ids = ids[1:]",
    "embedding": "embedding = W_E[ids] + W_P[positions]",
    "final": NORM_LINE.format("final", *["output"] * 3),
    "logits": "logits = final @ W_U",
}

# A step's line also corrects its parameters and the other steps on that line.
ALSO = {
    "attention.X": "attention.gain attention.bias",
    "mlp.X": "mlp.gain mlp.bias",
    "final": "gain bias",
    "attention.Q": "attention.K attention.V "
    + " ".join(f"attention.{kind}_{x}" for kind in "Wb" for x in "QKV"),
    "attention.output": "attention.W_O attention.b_O",
    "mlp.hidden": "mlp.W_1 mlp.b_1",
    "mlp.output": "mlp.W_2 mlp.b_2",
}
LINES = STEP_LINES | {x: STEP_LINES[step] for step, also in ALSO.items() for x in also.split()}

ACTIVATION_CODE = {
    eq.gelu: "0.5 * hidden * (1 + np.tanh(np.sqrt(2 / np.pi) * (hidden + 0.044715 * hidden**3)))",
    eq.exact_gelu: "0.5 * hidden * (1 + erf(hidden / np.sqrt(2)))",
    eq.quick_gelu: "hidden / (1 + np.exp(-1.702 * hidden))",
    eq.silu: "hidden / (1 + np.exp(-hidden))",
    eq.relu: "np.maximum(hidden, 0)",
}

# ---- the table -----------------------------------------------------------------------------------

NO_B_QKV: Equations = {f"attention.b_{name}": zero for name in "QKV"}
NO_B_O: Equations = {"attention.b_O": zero}
NO_B_MLP: Equations = {"mlp.b_1": zero, "mlp.b_2": zero}
TRANSPOSED_QKV: Equations = {f"attention.W_{name}": transposed for name in "QKV"}
TRANSPOSED_W_QKV = from_one_product(
    lambda QKV, H, part: eq.split_heads(QKV, 3 * H)[..., part * H : part * H + H, :, :], transposed
)
TRANSPOSED_W_O: Equations = {"attention.W_O": transposed}
TRANSPOSED_MLP: Equations = {"mlp.W_1": transposed, "mlp.W_2": transposed}

RESHAPED_QKV, COLUMNS_FIRST = split_by(reshaped_to_heads), split_by(split_columns_first)
MERGED_BY_RESHAPE: Equations = {"attention.concat": merged_by_reshape}
MERGED_COLUMNS_FIRST: Equations = {"attention.concat": merged_columns_first}

X_FOR_INPUT: Equations = {"mid": lambda X="attention.X", update="attention.output": X + update}
X_FOR_MID: Equations = {"output": lambda X="mlp.X", update="mlp.output": X + update}

LN_1_FOR_LN_2: Equations = {"mlp.X": normalised_by("attention", "mid")}
LN_2_FOR_LN_1: Equations = {"attention.X": normalised_by("mlp", "input")}

POST_NORM: Equations = {
    "attention.X": eq.identity,
    "mid": normalised_after("attention"),
    "mlp.X": eq.identity,
    "output": normalised_after("mlp"),
}

NO_GAIN: Equations = dict.fromkeys(
    ("attention.gain", "mlp.gain", "gain"), lambda value: np.ones_like(value)
)
NO_NORM_BIAS: Equations = dict.fromkeys(("attention.bias", "mlp.bias", "bias"), zero)

ACTIVATIONS: dict[str, Activation] = {
    "hidden · Φ(hidden), GELU in its exact form": eq.exact_gelu,
    "hidden · (1 + tanh(…)) / 2, GELU in its tanh form": eq.gelu,
    "hidden · sigmoid(1.702 hidden), quick GELU": eq.quick_gelu,
    "hidden · sigmoid(hidden), SiLU": eq.silu,
    "max(hidden, 0), ReLU": eq.relu,
    "tanh(hidden)": np.tanh,
    "hidden": eq.identity,
    "GELU with tanh(√(2/π) x), without the cubic term": gelu_with(cubic=0.0),
    **{
        Message("GELU with {other} for 0.044715", other=cubic): gelu_with(cubic=cubic)
        for cubic in (0.44715, 0.0044715, 0.44175, 0.044175, 0.04715, 0.047715, 0.004715)
    },
    **{
        Message("GELU with {other} for √(2/π)", other=other): gelu_with(root)
        for other, root in (
            ("2/π", 2 / math.pi),
            ("√2/π", math.sqrt(2) / math.pi),
            ("√(π/2)", math.sqrt(math.pi / 2)),
        )
    },
    "GELU with tanh(x + 0.044715 x³), without √(2/π)": gelu_with(1.0),
    "hidden · (1 + tanh(…)), GELU without the factor 1/2": lambda x: 2.0 * eq.gelu(x),
    "GELU with x² for x³": gelu_with(power=2),
    "hidden · (1 + erf(hidden)) / 2, without the root of 2": lambda x: (
        x * eq.normal_cdf(x * math.sqrt(2.0))
    ),
}

PARAMETERS = (
    *("token_embedding", "W_P", "gain", "bias", "W_E", "W_U"),
    *(f"attention.{name}" for name in ("gain", "bias", "W_O", "b_O")),
    *(f"attention.{kind}_{name}" for kind in "Wb" for name in "QKV"),
    *(f"mlp.{name}" for name in ("gain", "bias", "W_1", "b_1", "W_2", "b_2")),
)

TABLE: Table = {
    "The scores aren't scaled, and the softmax saturates. Divide by {scale}, with Dk = {Dk}.": {
        "scores = raw_scores": undivided,
    },
    "D = {D} is the width of the whole residual stream; a head has Dk = {Dk} columns. Divide by "
    "{scale}.": {
        "scores = raw_scores / √D": lambda raw_scores, X: raw_scores / math.sqrt(X.shape[-1]),
    },
    "The square root of Dk = {Dk} is missing, or √Dk is applied twice. Divide by {scale}, once.": {
        "scores = raw_scores / Dk": lambda raw_scores, K: raw_scores / K.shape[-1],
    },
    "The scores are multiplied instead of divided. Divide by {scale}.": {
        "scores = raw_scores · √Dk": lambda raw_scores, K: raw_scores * math.sqrt(K.shape[-1]),
    },
    "H = {H} is the number of heads; a head has Dk = {Dk} columns. Divide by {scale}.": {
        "scores = raw_scores / √H": lambda raw_scores, n_head: raw_scores / math.sqrt(n_head),
    },
    "T is the number of tokens; a head has Dk = {Dk} columns. Divide by {scale}.": {
        "scores = raw_scores / √T": lambda raw_scores: raw_scores / math.sqrt(raw_scores.shape[-1]),
    },
    "Unlike GPT-2, this model divides by {scale}.": {
        "scores = raw_scores / √Dk": lambda raw_scores, K: raw_scores / math.sqrt(K.shape[-1]),
    },
    "Rows and columns of the scores are swapped. Each row is a query: multiply Q by Kᵀ.": {
        "raw_scores = K Qᵀ": lambda Q, K: K @ eq.transpose(Q),
    },
    "reshape isn't transpose: it keeps the numbers in their order. Swap the axes.": {
        "raw_scores = Q K.reshape(Dk, T)": lambda Q, K: Q @ K.reshape(eq.transpose(K).shape),
    },
    "There is no mask: queries attend to later tokens. Put -inf where the key comes after the "
    "query.": {"masked_scores = scores": masked(lambda scores, _: scores)},
    "A score of 0 isn't masked: exp(0) = 1. Use -inf, whose exp is 0.": {
        "masked_scores = scores where the mask is True, else 0": filled(0.0),
    },
    "The masked scores are too large: their exp isn't 0. Use -inf.": {
        Message("masked_scores = scores where the mask is True, else {other}", other=other): found
        for fill in (1, 5, 10, 20, 50, 100)
        for other, found in ((f"-{fill}", filled(-fill)), (f"scores - {fill}", lowered(fill)))
    },
    "The mask is applied after the softmax, so rows no longer sum to 1. Mask the scores before "
    "the softmax.": {
        "weights = softmax(scores) where the mask is True, else 0": (
            lambda scores, mask, score_bias=None: eq.softmax(eq.biased(scores, score_bias)) * mask
        ),
    },
    "The mask is transposed: queries attend to themselves and to later tokens. Keep the lower "
    "triangle, key ≤ query (np.tril, not np.triu).": {
        "masked_scores = scores where maskᵀ is True, else -inf": with_mask(eq.transpose),
    },
    "The mask is inverted. True must mean that a query may attend to a key.": {
        "masked_scores = scores where the mask is False, else -inf": with_mask(np.logical_not),
    },
    "The mask is inverted: the large number is added where a query may attend. In the last row "
    "it is added to every score, so this row stays right. Add it where the mask is False.": {
        Message(
            "masked_scores = scores - {fill} where the mask is True", fill=name
        ): lowered_where_allowed(float(name))
        for name in ("1e9", "1e4")
    },
    "A causal mask is applied, but here queries may attend to later keys, too. Use the mask "
    "that is given, or none.": {
        "masked_scores = scores where key ≤ query, else -inf": with_mask(
            lambda mask: np.tri(*mask.shape[-2:], dtype=bool)
        ),
    },
    "The mask is off by one: queries attend to the next token. Keep key ≤ query.": {
        "masked_scores = scores where key ≤ query + 1, else -inf": with_mask(with_next_key),
    },
    "The mask is off by one: queries don't attend to themselves. Keep key ≤ query.": {
        "masked_scores = scores where key ≤ query - 1, else -inf": with_mask(without_own_key),
    },
    "Columns sum to 1 instead of rows. Take the softmax over the keys, the last axis.": {
        "weights = softmax over the queries": softmax_over(-2),
    },
    "Heads sum to 1 instead of rows. Take the softmax over the keys, the last axis.": {
        "weights = softmax over the heads": softmax_over(-3),
    },
    "All rows together sum to 1. Each row must: take the softmax over the keys, the last axis, "
    "with keepdims=True in maximum and sum.": {
        "weights = softmax over the whole matrix": softmax_over(-2, -1),
        "weights = softmax over the matrices of all heads": softmax_over(-3, -2, -1),
        "weights = exp(masked_scores - their maximum) / the sum of the whole matrix": (
            exponentials_by_sum(-2, -1)
        ),
        "weights = exp(masked_scores - their maximum) / the sum over all heads": (
            exponentials_by_sum(-3, -2, -1)
        ),
    },
    "The division by {scale} comes after the softmax, so rows no longer sum to 1. Divide the "
    "scores, before the softmax.": {
        "weights = softmax(raw_scores, masked) / √Dk": {
            "attention.scores": undivided,
            "attention.weights": softmax_divided,
        },
        "weights = softmax(masked_scores) / √Dk": softmax_divided,
    },
    "The softmax is applied twice, which makes the weights nearly equal. Apply it once.": {
        "weights = softmax(softmax(masked_scores))": (
            lambda masked_scores: eq.softmax(eq.softmax(masked_scores))
        ),
    },
    "The rows don't sum to 1. Divide each by its sum.": {
        "weights = exp(masked_scores)": lambda masked_scores: np.exp(masked_scores),
        "weights = exp(masked_scores - their maximum)": (
            lambda masked_scores: eq.exponentials(masked_scores)
        ),
    },
    **{
        Message("{letter} is computed with the parameters of {other}.", letter=name, other=other): {
            f"{name} = X W_{other} + b_{other}": projection(name, other)
        }
        for name, other in permutations("QKV", 2)
    },
    "The context is the weighted sum of the values, not of the keys.": {
        "context = weights K": lambda weights, K: weights @ K,
    },
    "The weights are transposed. A row of weights is a query's: multiply weights by V.": {
        "context = weightsᵀ V": lambda weights, V: eq.transpose(weights) @ V,
    },
    "The columns of W_QKV are W_Q, W_K, W_V, in this order.": {
        Message("Q, K, V = the parts of QKV that are {order}", order=", ".join(order)): {
            f"attention.{name}": projection(name, other)
            for name, other in zip("QKV", order, strict=True)
            if name != other
        }
        for order in list(permutations("QKV"))[1:]
    },
    "The columns of QKV are Q of all {H} heads, then K of all heads, then V. Split it into "
    "three parts first, then each part into heads.": {
        "Q, K, V = QKV taken as q k v of head 0, q k v of head 1, ...": from_one_product(
            lambda QKV, H, part: eq.split_heads(QKV, 3 * H)[..., part::3, :, :]
        ),
    },
    "Reshaping (T, H·Dk) to (H, T, Dk) mixes tokens. Reshape to (T, H, Dk), then swap the "
    "first two axes.": {
        "Q = (X W_Q + b_Q).reshape(H, T, Dk), likewise K and V": RESHAPED_QKV,
    },
    "Reshaping (T, 3·H·Dk) to (3, H, T, Dk) mixes tokens. Reshape to (T, 3, H, Dk), then move "
    "the axes of size 3 and H to the front.": {
        "Q, K, V = QKV.reshape(3, H, T, Dk)": from_one_product(
            lambda QKV, H, part: reshaped_to_heads(QKV, 3 * H)[..., part * H : part * H + H, :, :]
        ),
    },
    "Reshaping (H, T, Dh) to (T, H·Dh) mixes heads and tokens. Swap the first two axes, then "
    "reshape.": {"concat = context.reshape(T, H·Dh)": MERGED_BY_RESHAPE},
    "Heads are split and merged by reshape alone, which mixes tokens. Swap the first two axes "
    "between (T, H, Dk) and (H, T, Dk).": {
        "Q = (X W_Q + b_Q).reshape(H, T, Dk), likewise K and V; "
        "concat = context.reshape(T, H·Dh)": RESHAPED_QKV | MERGED_BY_RESHAPE,
    },
    "A head's columns are adjacent. Reshape to (T, H, Dk), then swap the first two axes.": {
        "Q = (X W_Q + b_Q).reshape(T, Dk, H), likewise K and V": COLUMNS_FIRST,
        "Q = (X W_Q + b_Q).reshape(T, Dk, H), likewise K and V; concat merged the same way": (
            COLUMNS_FIRST | MERGED_COLUMNS_FIRST
        ),
    },
    "Heads lie side by side in concat. Swap the first two axes of context, then reshape.": {
        "concat = the heads' columns interleaved, reshape(T, Dh, H)": MERGED_COLUMNS_FIRST,
    },
    "The order of the heads is reversed. Head 0 comes first.": {
        "concat = the heads side by side, the last one first": (
            lambda context: eq.merge_heads(context[..., ::-1, :, :])
        ),
    },
    "The order of the heads is reversed. Head 0 has the first Dk columns.": {
        "Q, K, V = the heads, the last one first": each_projection(
            lambda value: value[..., ::-1, :, :]
        ),
    },
    "W_O and b_O are missing.": {"attention.output = concat": lambda concat: concat},
    "W_O is missing.": {"attention.output = concat + b_O": lambda concat, b="b_O": concat + b},
    "GPT-2 stores its matrices for `X @ W`, while nn.Linear computes `X @ W.T`. Drop the "
    "transpose, or transpose the matrices that you load.": {
        "Q = X W_Qᵀ + b_Q": {"attention.W_Q": transposed},
        "K = X W_Kᵀ + b_K": {"attention.W_K": transposed},
        "V = X W_Vᵀ + b_V": {"attention.W_V": transposed},
        "Q = X W_Qᵀ + b_Q, likewise K and V": TRANSPOSED_QKV,
        "output = concat W_Oᵀ + b_O": TRANSPOSED_W_O,
        "Q = X W_Qᵀ + b_Q, likewise K, V and output": TRANSPOSED_QKV | TRANSPOSED_W_O,
        "QKV = X W + b_QKV, with W_QKV read as if it were Wᵀ": TRANSPOSED_W_QKV,
        "hidden = X W + b_1, with W_1 read as if it were Wᵀ": {"mlp.W_1": transposed},
        "output = activated W + b_2, with W_2 read as if it were Wᵀ": {"mlp.W_2": transposed},
        "hidden, output = x W + b, with W_1 and W_2 read as Wᵀ": TRANSPOSED_MLP,
        "x W + b, with every matrix read as if it were Wᵀ": (
            TRANSPOSED_W_QKV | TRANSPOSED_W_O | TRANSPOSED_MLP
        ),
    },
    "A bias is missing. GPT-2 has one in every linear layer.": {
        "Q = X W_Q": {"attention.b_Q": zero},
        "K = X W_K": {"attention.b_K": zero},
        "V = X W_V": {"attention.b_V": zero},
        "QKV = X W_QKV": NO_B_QKV,
        "output = concat W_O": NO_B_O,
        "hidden = X W_1": {"mlp.b_1": zero},
        "output = activated W_2": {"mlp.b_2": zero},
        "hidden = X W_1, output = activated W_2": NO_B_MLP,
        "x W, without any bias": NO_B_QKV | NO_B_O | NO_B_MLP,
        "LayerNorm without its bias": NO_NORM_BIAS,
    },
    "The model uses another activation function, {activation}.": {
        Message("activated = {formula}", formula=Message(formula)): activated_by(activation)
        for formula, activation in ACTIVATIONS.items()
    },
    "LayerNorm uses the biased variance, over D: np.var(x), torch.var(x, unbiased=False).": {
        "LayerNorm with the variance over D - 1": layer_norm_by(unbiased_deviation),
    },
    "eps belongs under the root: √(variance + eps).": {
        "LayerNorm divides by √variance + eps": layer_norm_by(
            lambda centred, epsilon: eq.deviation(centred, 0.0) + epsilon
        ),
    },
    "torch.std divides by D - 1, and eps belongs under the root: √(variance + eps), with the "
    "variance over D.": {
        "LayerNorm divides by √variance + eps, with the variance over D - 1": layer_norm_by(
            lambda centred, epsilon: unbiased_deviation(centred, 0.0) + epsilon
        ),
    },
    "The square root is missing.": {
        "LayerNorm divides by variance + eps": layer_norm_by(
            lambda centred, epsilon: eq.mean(np.square(centred)) + epsilon
        ),
    },
    "LayerNorm subtracts the mean first, and adds a bias.": {
        "RMSNorm, x / √(mean of x² + eps) · gain": (
            lambda x, gain, epsilon: x / eq.deviation(x, epsilon) * gain
        ),
    },
    "LayerNorm subtracts the mean first.": {
        "RMSNorm, x / √(mean of x² + eps) · gain + bias": (
            lambda x, gain, bias, epsilon: x / eq.deviation(x, epsilon) * gain + bias
        ),
    },
    "LayerNorm subtracts the mean before dividing.": {
        "LayerNorm without its mean, x / √(variance + eps) · gain + bias": (
            lambda x, gain, bias, epsilon: x / eq.deviation(x - eq.mean(x), epsilon) * gain + bias
        ),
    },
    "The variance is the mean of (x - mean)².": {
        "LayerNorm with the mean of x² for the variance": (
            lambda x, gain, bias, epsilon: (x - eq.mean(x)) / eq.deviation(x, epsilon) * gain + bias
        ),
    },
    "Normalise each token's row, over the last axis, not each column.": {
        "LayerNorm over the tokens": lambda x, gain, bias, epsilon: (
            eq.transpose(eq.normalised(eq.transpose(x), epsilon)) * gain + bias
        ),
    },
    "Normalise each token's row by itself, over the last axis.": {
        "LayerNorm over all tokens at once": over_all_tokens,
    },
    "The model's eps is {epsilon}.": {
        Message("LayerNorm with eps = {eps}", eps=f"{eps:g}"): with_epsilon(eps)
        for eps in (0.0, 1e-12, 1e-8, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
    },
    "Multiply the normalised row by gain.": {"LayerNorm without its gain": NO_GAIN},
    "Multiply the normalised row by gain and add bias.": {
        "LayerNorm without gain and bias": NO_GAIN | NO_NORM_BIAS,
    },
    "Every LayerNorm is missing: GPT-2 has one before attention, one before the MLP, and one "
    "after all blocks.": {"no LayerNorm anywhere": dict.fromkeys(NORMS, eq.identity)},
    "GPT-2 has a LayerNorm before attention and one before the MLP.": {
        "no LayerNorm in the blocks": dict.fromkeys(NORMS[:2], eq.identity),
    },
    "A LayerNorm is missing: GPT-2 has one before attention, and none after it.": {
        "attention's X = the block's input": {"attention.X": eq.identity},
    },
    "A LayerNorm is missing: GPT-2 has one before the MLP, and none after it.": {
        "the MLP's X = mid": {"mlp.X": eq.identity},
    },
    "The last LayerNorm is missing, the one after all blocks.": {
        "final = the last block's output": eq.identity,
    },
    "LayerNorm comes after attention and MLP, as in the original Transformer (post-norm). In "
    "GPT-2 it comes before them (pre-norm).": {
        "mid = LayerNorm(input + attention.output), "
        "output = LayerNorm(mid + mlp.output)": POST_NORM,
    },
    "LayerNorm comes after attention and MLP, as in the original Transformer (post-norm). In "
    "GPT-2 it comes before them (pre-norm), and there is one more after all blocks.": {
        "mid = LayerNorm(input + attention.output), output = LayerNorm(mid + mlp.output), and "
        "final = the last block's output": {**POST_NORM, "final": eq.identity},
    },
    "A block has two LayerNorms, each with its own gain and bias: ln_1 before attention, ln_2 "
    "before the MLP.": {
        "the MLP's X = LayerNorm(mid) with the gain and bias of attention": LN_1_FOR_LN_2,
        "attention's X = LayerNorm(input) with the gain and bias of the MLP": LN_2_FOR_LN_1,
        "X = LayerNorm of attention and MLP, with each other's gain and bias": (
            LN_1_FOR_LN_2 | LN_2_FOR_LN_1
        ),
    },
    "The position embedding is missing. Add W_P[0], W_P[1], ...": {
        "embedding = token_embedding": lambda token_embedding: token_embedding,
    },
    "Positions are counted from 1. The first token's position is 0.": {
        "position_embedding = W_P[1], W_P[2], ...": {"positions": lambda value: value + 1},
    },
    "All positions are 0. The token at position t has W_P[t].": {
        "position_embedding = W_P[0] for every token": {"positions": zero},
    },
    "The token embedding is scaled, as in the original Transformer. GPT-2 doesn't scale it.": {
        "embedding = √D · token_embedding + position_embedding": (
            lambda token_embedding, position_embedding: (
                math.sqrt(token_embedding.shape[-1]) * token_embedding + position_embedding
            )
        ),
    },
    "The embedding is scaled. GPT-2 doesn't scale it.": {
        "embedding = √D · (token_embedding + position_embedding)": (
            lambda value: math.sqrt(value.shape[-1]) * value
        ),
    },
    "The output of LayerNorm is added instead of the residual stream.": {
        "mid = attention.X + attention.output": X_FOR_INPUT,
        "output = mlp.X + mlp.output": X_FOR_MID,
        "mid = attention.X + attention.output, output = mlp.X + mlp.output": (
            X_FOR_INPUT | X_FOR_MID
        ),
    },
    "The stream is added inside attention, and again in mid. Add it once, in mid.": {
        "attention.output = input + concat W_O + b_O": (lambda value, x="parent.input": x + value),
        "attention.output = X + concat W_O + b_O": lambda value, X: X + value,
    },
    "The MLP runs in parallel with attention and doesn't get its output. Its input is "
    "LayerNorm(mid).": {
        "the MLP's X = LayerNorm(input)": {
            "mlp.X": lambda gain, bias, epsilon, x="parent.input": eq.layer_norm(
                x, gain, bias, epsilon
            )
        },
    },
    "The MLP runs in parallel with attention, with one LayerNorm for both. Its input is "
    "LayerNorm(mid).": {
        "the MLP's X = attention's X": {"mlp.X": lambda x="parent.attention.X": x},
    },
    "The output of attention is lost. Add the MLP's output to mid.": {
        "output = input + mlp.output": lambda input, update="mlp.output": input + update,
    },
    "This model's W_U isn't tied to the token embedding.": {
        "logits = final W_Eᵀ": lambda final, W="W_E": final @ eq.transpose(W),
    },
    "These are probabilities. Logits are taken before the softmax.": {
        "logits = softmax(final W_U)": lambda value: eq.softmax(value),
    },
    "These are log-probabilities. Logits are taken before the softmax.": {
        "logits = log softmax(final W_U)": lambda value: np.log(eq.softmax(value)),
    },
    "The residual connection is missing: add the output of attention to the block's input.": {
        "mid = attention.output": without_residual,
    },
    "The residual connection is missing: add the MLP's output to mid.": {
        "output = mlp.output": without_residual,
    },
    "Both residual connections are missing: add what attention and MLP compute to the stream.": {
        "mid = attention.output, output = mlp.output": {
            "mid": without_residual,
            "output": without_residual,
        },
    },
    "The weights were converted to half precision. Load them as float32.": {
        "every parameter rounded to float16": dict.fromkeys(PARAMETERS, as_float16),
        "every parameter rounded to bfloat16": dict.fromkeys(PARAMETERS, as_bfloat16),
    },
}

# Possible only where scores have a bias.
BIAS = mistakes_in(
    {
        "score_bias isn't added to the scores. Add it before the mask.": {
            "masked_scores without score_bias": {
                "attention.masked_scores": lambda scores, mask: np.where(mask, scores, -math.inf)
            },
        },
        "score_bias is subtracted. Add it to the scores.": {
            "masked_scores = scores - score_bias where the mask is True, else -inf": (
                lambda scores, mask, score_bias: np.where(mask, scores - score_bias, -math.inf)
            ),
        },
        "score_bias is divided by the scale too. Add it after the division.": {
            "masked_scores = (raw_scores + score_bias) / scale where the mask is True, else -inf": (
                lambda scores, mask, scale, score_bias: np.where(
                    mask, scores + score_bias / scale, -math.inf
                )
            ),
        },
    }
)

MISTAKES = (
    *mistakes_in(TABLE),
    *(
        Mistake(
            f"{name} = (X W_{name} + b_{name}) / Dk, scores = raw_scores",
            "The square root of Dk = {Dk} is missing, or √Dk is applied twice. Divide by {scale}, "
            "once.",
            {f"attention.{name}": divided_by_Dk, "attention.scores": undivided},
            only_with=f"attention.{name}",
        )
        for name in "QK"
    ),
)


def cache_mistakes(first: int) -> tuple[Mistake, ...]:
    """Mistakes with a key-value cache; the first token after the cached ones is `first`."""
    if not first:
        return ()

    def positions(change: Callable[[Any], Any]) -> Equations:
        def mistaken(value: Any) -> Any:
            return np.where(np.arange(len(value)) < first, value, change(value))

        return {"positions": mistaken}

    def hiding(is_hidden: Callable[[Any, Any], Any]) -> Equations:
        def change(mask: Mask) -> Mask:
            query, key = np.ogrid[: mask.shape[-2], : mask.shape[-1]]
            return mask & ~((query >= first) & is_hidden(query, key))

        return {"attention.masked_scores": with_mask(change)}

    rows = {
        "W_P[t + 1]": positions(lambda t: t + 1),
        "W_P[t - 1]": positions(lambda t: t - 1),
        # After one cached token, W_P[t - 1] is W_P[0].
        **({"W_P[0]": positions(lambda t: 0)} if first > 1 else {}),
    }
    keys = {
        "the query's own key": hiding(lambda query, key: query == key),
        "the key before the query": hiding(lambda query, key: key == query - 1),
        "the first key": hiding(lambda query, key: key == 0),
    }
    position = "position_embedding = {row} from token {first} on"
    hidden = "masked_scores without {keys}, from token {first} on"
    table: Table = {
        "From there on, positions are wrong. The token at position t has W_P[t]; with a "
        "key-value cache, positions continue from the number of cached tokens.": {
            Message(position, row=row, first=first): found for row, found in rows.items()
        },
        "From there on, a key is hidden. A query attends to all keys up to its own; with a "
        "key-value cache, also to all cached ones.": {
            Message(hidden, keys=Message(name), first=first): found for name, found in keys.items()
        },
    }
    return mistakes_in(table)


# Mistakes that aren't equations: one changes the text, one the place, one is random.

PREPENDED_TOKEN = Mistake(
    "ids = <|endoftext|>, then the text's ids",
    "A beginning-of-text token is prepended, which shifts all positions. GPT-2 doesn't need one: "
    "leave it out (in TransformerLens, prepend_bos=False).",
    {},
    (STEP_LINES["ids"],),
)

OTHER_PLACE = Mistake(
    "",  # filled in
    "These are the numbers of another layer or head. Both are counted from 0; check the index.",
    {},
)

DROPOUT = Mistake(
    "{name} with dropout, p = {p:.2g}",
    "Some cells are 0, and all others are larger by 1 / (1 - p). Dropout is for training only: "
    "turn it off, in PyTorch with model.eval().",
    {},
    ("model.eval()",),
)
