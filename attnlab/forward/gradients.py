"""The gradient of each equation, for backpropagation.

d_y stands for dL/dy, the gradient of a number L, such as the loss, with respect to y, and has y's
shape. A function named after an equation and one of its parameters, such as `affine_W`, returns
the gradient with respect to that parameter. It takes d_y, and what it needs of y, the equation's
result, and of the equation's parameters. `GRADIENTS` is the table of these functions.
`attnlab.analysis` applies them backwards through the graph of steps; `attnlab.training` computes
the gradients of all parameters at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from attnlab import equations
from attnlab.equations import (
    Activation,
    Array,
    Ids,
    Mask,
    apply_dropout,
    deviation,
    gelu_tanh,
    mean,
    merge_heads,
    normal_cdf,
    sigmoid,
    split_heads,
    transpose,
)
from attnlab.errors import InvalidValueError
from attnlab.forward.functional import softmax
from attnlab.text.tokens import check_ids


def rows_of(x: Array) -> Array:
    """All rows as one matrix, (..., n) -> (m, n)."""
    # Batch axes don't matter here: the rows of all sequences share the parameters.
    return x.reshape(-1, x.shape[-1])


# y[i] = Σ_j x[j] W[j, i], so d_x[j] = Σ_i d_y[i] W[j, i]: a product with the transpose.
def affine_x(W: Array, d_y: Array) -> Array:
    return (rows_of(d_y) @ transpose(W)).reshape(*d_y.shape[:-1], len(W))  # (..., n)


def affine_W(x: Array, d_y: Array) -> Array:
    # Every row of x uses the same W, so W's gradient is a sum over rows: this product.
    return transpose(rows_of(x)) @ rows_of(d_y)  # (n, m), over all rows


def affine_b(d_y: Array) -> Array:
    return rows_of(d_y).sum(axis=0)  # (m,), since b is added to every row


def linear_gradient(x: Array, W: Array, d_y: Array) -> tuple[Array, Array, Array]:
    """The gradients of y = x W + b, given d_y (..., m), for x (..., n) and W (n, m).

    d_x = d_y Wᵀ. Over all rows, d_W = xᵀ d_y and d_b = Σ d_y.
    """
    return affine_x(W, d_y), affine_W(x, d_y), affine_b(d_y)


def softmax_gradient(y: Array, d_y: Array) -> Array:
    """The gradient of y = softmax(x), over the last axis: d_x = y · (d_y - Σ y · d_y).

    It follows from dy_i/dx_j = y_i (δ_ij - y_j). d_x is 0 where y is 0: gradients vanish if softmax
    saturates.
    """
    d_x: Array = y * d_y  # 0 where y is 0, as for a masked key
    d_x -= y * d_x.sum(axis=-1, keepdims=True)
    return d_x


def layer_norm_gradient(
    x: Array, gain: Array, eps: float, d_y: Array
) -> tuple[Array, Array, Array]:
    """The gradients of y = gain · x̂ + bias, x̂ = (x - mean) / deviation, for x (..., D).

        d_x = (d_x̂ - mean(d_x̂) - x̂ · mean(x̂ · d_x̂)) / deviation, where d_x̂ = gain · d_y
        d_gain = Σ x̂ · d_y, d_bias = Σ d_y, over all rows

    Source: the chain rule through mean and variance; "Layer Normalization" (2016), section 3.
    """
    normalised: Array = x - mean(x)  # x̂ after the division below, (..., D)
    divisor = deviation(normalised, eps)
    normalised /= divisor
    leading_axes = tuple(range(x.ndim - 1))
    product: Array = normalised * d_y  # x̂ · d_y
    d_gain = product.sum(axis=leading_axes)
    d_bias = d_y.sum(axis=leading_axes)
    # LayerNorm's output doesn't change if x is shifted or stretched, so two parts of d_x̂ are
    # subtracted: its mean and its part along x̂.
    product *= gain  # x̂ · d_x̂
    d_x: Array = d_y * gain  # d_x̂
    normalised *= mean(product)  # the part of d_x̂ along x̂
    d_x -= mean(d_x)
    d_x -= normalised
    d_x /= divisor
    return d_x, d_gain, d_bias


def gelu_gradient(x: Array, d_y: Array) -> Array:
    """The gradient of GELU(x) = ½ x (1 + t), t = tanh(√(2/π) (x + 0.044715 x³)).

    d_x = d_y · (½ (1 + t) + ½ x (1 - t²) √(2/π) (1 + 3 · 0.044715 x²))
    """
    # Since 1 - t² = (1 + t) (1 - t), ½ (1 + t) is a factor of both terms. It is multiplied last.
    t = gelu_tanh(x)
    d_x = np.square(x)  # the next lines compute the formula from right to left, in place
    d_x *= 3 * 0.044715
    d_x += 1.0
    d_x *= math.sqrt(2.0 / math.pi)
    d_x *= x
    d_x *= 1.0 - t  # the factor 1 + t below makes this 1 - t²
    d_x += 1.0
    t += 1.0
    d_x *= t
    d_x *= 0.5
    d_x *= d_y
    return d_x


def exact_gelu_gradient(x: Array, d_y: Array) -> Array:
    """The gradient of y = x Φ(x): d_x = d_y · (Φ(x) + x φ(x)).

    φ(x) = exp(-½ x²) / √(2π) is Φ's slope.
    """
    slope = np.exp(-0.5 * np.square(x)) / math.sqrt(2.0 * math.pi)  # φ(x)
    return d_y * (normal_cdf(x) + x * slope)


def quick_gelu_gradient(x: Array, d_y: Array) -> Array:
    """The gradient of y = x σ(1.702 x): `silu_gradient` at 1.702 x."""
    # y = silu(1.702 x) / 1.702: the derivative's factor 1.702 cancels.
    return silu_gradient(1.702 * x, d_y)


def silu_gradient(x: Array, d_y: Array) -> Array:
    """The gradient of y = x σ(x): d_x = d_y · σ(x) (1 + x (1 - σ(x)))."""
    s = sigmoid(x)  # the slope of σ is s (1 - s)
    return d_y * (s * (1.0 + x * (1.0 - s)))


def relu_gradient(x: Array, d_y: Array) -> Array:
    """The gradient of y = max(x, 0): d_y where x > 0, else 0."""
    return d_y * (x > 0)  # at x = 0, where the slope is undefined, it is 0 as in PyTorch


# The keys are equations, since the value of the step `activation` is an equation.
ACTIVATION_GRADIENTS: dict[Activation, Callable[[Array, Array], Array]] = {
    equations.gelu: gelu_gradient,
    equations.exact_gelu: exact_gelu_gradient,
    equations.quick_gelu: quick_gelu_gradient,
    equations.silu: silu_gradient,
    equations.relu: relu_gradient,
}


# y = weights V, so as for y = x W above, d_weights = d_y Vᵀ and d_V = weightsᵀ d_y.
def context_weights(V: Array, d_y: Array) -> Array:
    return d_y @ transpose(V)  # (..., Tq, Tk)


def context_V(weights: Array, d_y: Array) -> Array:
    return transpose(weights) @ d_y  # (..., Tk, Dv)


def weights_masked_scores(
    y: Array, masked_scores: Array, dropout_mask: Array | None, d_y: Array
) -> Array:
    # y includes the dropout mask; softmax's gradient needs the weights before dropout.
    probabilities = y if dropout_mask is None else softmax(masked_scores)
    return softmax_gradient(probabilities, apply_dropout(d_y, dropout_mask))  # 0 for masked keys


def masked_scores_scores(mask: Mask, d_y: Array) -> Array:
    # A masked key's score is replaced by -inf, so changing it has no effect.
    return np.where(mask, d_y, d_y.dtype.type(0))


def scores_raw_scores(scale: float, d_y: Array) -> Array:
    return d_y / scale  # a constant divisor of y also divides the gradient


# y = Q Kᵀ, so d_Q = d_y K, and d_K = d_yᵀ Q.
def raw_scores_Q(K: Array, d_y: Array) -> Array:
    return d_y @ K  # (..., Tq, Dk)


def raw_scores_K(Q: Array, d_y: Array) -> Array:
    return transpose(d_y) @ Q  # (..., Tk, Dk)


def new_rows(memory: Array, d_y: Array) -> Array:
    """The rows of the new tokens in the gradient of K or V; rows before them are from a cache."""
    return merge_heads(d_y)[..., -memory.shape[-2] :, :]  # (..., H, Tk, Dh) -> (..., T, H·Dh)


def embedding_gradient(ids: Ids, d_embedding: Array, vocab_size: int) -> Array:
    """The gradient of W_E[ids], (vocab, D): each row sums over the positions that use it."""
    # Most rows stay 0, since a text has few of the vocabulary's tokens.
    D = d_embedding.shape[-1]
    d_W_E = np.zeros((vocab_size, D), d_embedding.dtype)
    # Sum over the positions of each id. np.add.at would do the same, but is far slower.
    order = np.argsort(ids, axis=None, kind="stable")
    used, starts = np.unique(ids.ravel()[order], return_index=True)
    # After sorting, an id's positions are neighbours, from the id's start to the next id's start.
    d_W_E[used] = np.add.reduceat(d_embedding.reshape(-1, D)[order], starts)
    return d_W_E


def cross_entropy(logits: Array, targets: Ids) -> tuple[float, Array]:
    """The mean cross-entropy, -log softmax(logits)[target], in nats, and its gradient.

    d_logits = (softmax(logits) - 1 at the target) / number of rows, for logits (..., vocab) and
    targets (...), the ids that actually follow

    Source: GPT-2's loss, "Language Models are Unsupervised Multitask Learners" (2019), equation 1.
    """
    if targets.shape != logits.shape[:-1] or not targets.size:
        raise InvalidValueError(
            "targets must have the shape of logits without its last axis, and not be empty; "
            f"got logits {logits.shape} and targets {targets.shape}"
        )
    check_ids(targets.ravel(), logits.shape[-1])
    # -log softmax(z)[target] = log Σ exp(z) - z[target], whose gradient is softmax(z) - one-hot.
    d_logits = softmax(logits)  # (..., vocab)
    loss = float(equations.surprisal(d_logits, logits, targets).mean())
    rows = d_logits.reshape(-1, logits.shape[-1])  # a view: d_logits changes with it
    rows[np.arange(len(rows)), targets.ravel()] -= 1.0
    d_logits /= len(rows)  # the loss is a mean over rows
    return loss, d_logits


# Functions by equation, then by parameter. Ids, masks and sizes are missing: they have no gradient.
GRADIENTS: dict[Callable[..., Any], dict[str, Callable[..., Array]]] = {
    equations.identity: {"x": lambda d_y: d_y},
    # A sum passes its gradient on to both terms.
    equations.embedding: dict.fromkeys(("token_embedding", "position_embedding"), lambda d_y: d_y),
    equations.token_embedding: {
        "W_E": lambda ids, W_E, d_y: embedding_gradient(ids, d_y, len(W_E))
    },
    equations.position_embedding: {
        "W_P": lambda positions, W_P, d_y: embedding_gradient(positions, d_y, len(W_P))
    },
    equations.layer_norm: {
        "x": lambda x, gain, epsilon, d_y: layer_norm_gradient(x, gain, epsilon, d_y)[0],
        "gain": lambda x, gain, epsilon, d_y: layer_norm_gradient(x, gain, epsilon, d_y)[1],
        "bias": affine_b,
    },
    equations.affine: {"x": affine_x, "W": affine_W, "b": affine_b},
    # These equations split an affine map into heads, so the gradient's heads are merged first.
    equations.Q: {
        "X": lambda W_Q, d_y: affine_x(W_Q, merge_heads(d_y)),
        "W_Q": lambda X, d_y: affine_W(X, merge_heads(d_y)),
        "b_Q": lambda d_y: affine_b(merge_heads(d_y)),
    },
    equations.K: {
        "memory": lambda memory, W_K, d_y: affine_x(W_K, new_rows(memory, d_y)),
        "W_K": lambda memory, d_y: affine_W(memory, new_rows(memory, d_y)),
        "b_K": lambda memory, d_y: affine_b(new_rows(memory, d_y)),
    },
    equations.V: {
        "memory": lambda memory, W_V, d_y: affine_x(W_V, new_rows(memory, d_y)),
        "W_V": lambda memory, d_y: affine_W(memory, new_rows(memory, d_y)),
        "b_V": lambda memory, d_y: affine_b(new_rows(memory, d_y)),
    },
    equations.raw_scores: {"Q": raw_scores_Q, "K": raw_scores_K},
    equations.scores: {"raw_scores": scores_raw_scores},
    # The bias is added to the scores, so both get the same gradient.
    equations.masked_scores: dict.fromkeys(("scores", "score_bias"), masked_scores_scores),
    equations.weights: {
        "masked_scores": weights_masked_scores,
        "dropout_mask": lambda masked_scores, d_y: softmax(masked_scores) * d_y,
    },
    # The gradient continues through `weights` to Q and K, and through V to what keys pass on.
    equations.context: {"weights": context_weights, "V": context_V},
    equations.concat: {"context": lambda context, d_y: split_heads(d_y, context.shape[-3])},
    # Each block has this path around it, on which gradients reach early layers unchanged.
    equations.residual: dict.fromkeys(("stream", "update"), lambda d_y: d_y),
    equations.activated: {
        "hidden": lambda hidden, activation, d_y: ACTIVATION_GRADIENTS[activation](hidden, d_y)
    },
    # A tied W_E has two uses, as embedding and as output matrix, whose gradients are added.
    equations.W_U: {"W_E": lambda d_y: transpose(d_y)},
    equations.logits: {
        "final": lambda W_U, d_y: affine_x(W_U, d_y),
        "W_U": lambda final, d_y: affine_W(final, d_y),
    },
}
