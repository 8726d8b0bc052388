"""The backward pass: how the loss changes with each parameter, formulas beside the equations.

d_y stands for dL/dy, the gradient of the loss L with respect to y, and has y's shape. Each equation
of the forward pass has here a function that takes d_y and gives the gradients of what y was made
of. The forward pass itself is the library's: what it left behind is looked at, and not computed
again.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from attnlab import equations
from attnlab.chain import Attention
from attnlab.equations import (
    Activation,
    Array,
    Ids,
    deviation,
    gelu_tanh,
    mean,
    merge_heads,
    normal_share,
    sigmoid,
    split_heads,
    transpose,
)
from attnlab.errors import InvalidValueError
from attnlab.forward import MLP, Block, ForwardPass
from attnlab.functional import softmax
from attnlab.parameters import ParameterVector
from attnlab.tokens import check_ids


def linear_gradient(x: Array, W: Array, d_y: Array) -> tuple[Array, Array, Array]:
    """Of y = x W + b.

    Parameters
    ----------
    x, W : (..., n), (n, m)
    d_y : (..., m)

    Returns
    -------
    d_x = d_y Wᵀ : (..., n)
    d_W = xᵀ d_y, over all rows : (n, m)
    d_b = Σ d_y, over all rows : (m,)
    """
    rows, d_rows = x.reshape(-1, x.shape[-1]), d_y.reshape(-1, d_y.shape[-1])
    d_x = (d_rows @ transpose(W)).reshape(x.shape)
    return d_x, transpose(rows) @ d_rows, d_rows.sum(axis=0)


def softmax_gradient(y: Array, d_y: Array) -> Array:
    """Of y = softmax(x), over the last axis.

    Parameters
    ----------
    y, d_y : (..., n)

    Returns
    -------
    d_x = y · (d_y - Σ y · d_y) : (..., n), 0 where y is 0: a saturated softmax learns nothing

    Notes
    -----
    From dy_i/dx_j = y_i (δ_ij - y_j).
    """
    d_x: Array = y * d_y
    d_x -= y * d_x.sum(axis=-1, keepdims=True)
    return d_x


def layer_norm_gradient(
    x: Array, gain: Array, eps: float, d_y: Array
) -> tuple[Array, Array, Array]:
    """Of y = gain · x̂ + bias with x̂ = (x - mean) / deviation, over the last axis.

    Parameters
    ----------
    x, d_y : (..., D)
    gain : (D,)
    eps : as `layer_norm` took it

    Returns
    -------
    d_x = (d_x̂ - mean(d_x̂) - x̂ · mean(x̂ · d_x̂)) / deviation, where d_x̂ = gain · d_y : (..., D)
    d_gain = Σ x̂ · d_y, d_bias = Σ d_y, over all rows : (D,)

    Notes
    -----
    Source: the chain rule through mean and variance; "Layer Normalization" (2016), section 3.
    """
    normalised: Array = x - mean(x)
    divisor = deviation(normalised, eps)
    normalised /= divisor
    rows = tuple(range(x.ndim - 1))
    product: Array = normalised * d_y
    d_gain, d_bias = product.sum(axis=rows), d_y.sum(axis=rows)
    product *= gain  # x̂ · d_x̂
    d_x: Array = d_y * gain
    normalised *= mean(product)
    d_x -= mean(d_x)
    d_x -= normalised
    d_x /= divisor
    return d_x, d_gain, d_bias


def gelu_gradient(x: Array, d_y: Array) -> Array:
    """Of y = GELU(x) = ½ x (1 + t) with t = tanh(√(2/π) (x + 0.044715 x³)).

    Parameters
    ----------
    x, d_y : (...)

    Returns
    -------
    d_x = d_y · (½ (1 + t) + ½ x (1 - t²) √(2/π) (1 + 3 · 0.044715 x²)) : (...)
    """
    t = gelu_tanh(x)
    d_x = np.square(x)  # the formula from its right end, on one array, as in `gelu_tanh`
    d_x *= 3 * 0.044715
    d_x += 1.0
    d_x *= math.sqrt(2.0 / math.pi)
    d_x *= x
    d_x *= 1.0 - t  # times 1 + t below: 1 - t²
    d_x += 1.0
    t += 1.0
    d_x *= t
    d_x *= 0.5
    d_x *= d_y
    return d_x


def exact_gelu_gradient(x: Array, d_y: Array) -> Array:
    """Of y = x Φ(x).

    Parameters
    ----------
    x, d_y : (...)

    Returns
    -------
    d_x = d_y · (Φ(x) + x φ(x)), where φ(x) = exp(-½ x²) / √(2π) is Φ's slope : (...)
    """
    slope = np.exp(-0.5 * np.square(x)) / math.sqrt(2.0 * math.pi)
    return d_y * (normal_share(x) + x * slope)


def quick_gelu_gradient(x: Array, d_y: Array) -> Array:
    """Of y = x σ(1.702 x): `silu_gradient` at 1.702 x, as y = SiLU(1.702 x) / 1.702."""
    return silu_gradient(1.702 * x, d_y)


def silu_gradient(x: Array, d_y: Array) -> Array:
    """Of y = x σ(x).

    Parameters
    ----------
    x, d_y : (...)

    Returns
    -------
    d_x = d_y · σ(x) (1 + x (1 - σ(x))) : (...)
    """
    s = sigmoid(x)
    return d_y * (s * (1.0 + x * (1.0 - s)))


def relu_gradient(x: Array, d_y: Array) -> Array:
    """Of y = max(x, 0): d_y where x is above 0, else 0."""
    return d_y * (x > 0)


ACTIVATION_GRADIENTS: dict[Activation, Callable[[Array, Array], Array]] = {
    equations.gelu: gelu_gradient,
    equations.exact_gelu: exact_gelu_gradient,
    equations.quick_gelu: quick_gelu_gradient,
    equations.silu: silu_gradient,
    equations.relu: relu_gradient,
}


def attention_gradient(attention: Attention, d_context: Array) -> tuple[Array, Array, Array]:
    """Of context = weights V with weights = softmax(Q Kᵀ / scale), masked, back to Q, K and V.

    Parameters
    ----------
    attention : what the forward pass left behind
    d_context : (..., Tq, Dv)

    Returns
    -------
    d_Q = d_raw_scores K : (..., Tq, Dk)
    d_K = d_raw_scoresᵀ Q : (..., Tk, Dk)
    d_V = weightsᵀ d_context : (..., Tk, Dv)
        with d_weights = d_context Vᵀ, times the dropout mask if there is one, and
        d_raw_scores = softmax's gradient / scale. Where the mask forbids, the weight is 0, and so
        is the gradient.

    Notes
    -----
    Q, K and V must have the same leading axes; a sum over axes that were broadcast is not taken.
    """
    weights = attention.weights
    d_V = transpose(weights) @ d_context
    d_weights = d_context @ transpose(attention.V)
    if attention.dropout_mask is not None:
        d_weights *= attention.dropout_mask
        weights = softmax(attention.masked_scores)  # as they were before dropout
    d_raw_scores = softmax_gradient(weights, d_weights)
    d_raw_scores /= attention.scale
    return d_raw_scores @ attention.K, transpose(d_raw_scores) @ attention.Q, d_V


def mlp_gradient(mlp: MLP, d_output: Array) -> tuple[Array, dict[str, Array]]:
    """Of output = activation(X W_1 + b_1) W_2 + b_2.

    Parameters
    ----------
    mlp : what the forward pass left behind
    d_output : (..., T, D)

    Returns
    -------
    d_X = d_hidden W_1ᵀ : (..., T, D)
    d_W_1 = Xᵀ d_hidden, d_b_1 = Σ d_hidden : (D, F), (F,)
    d_W_2 = activatedᵀ d_output, d_b_2 = Σ d_output : (F, D), (D,)
        with d_hidden = the activation's gradient of d_output W_2ᵀ
    """
    d_activated, d_W_2, d_b_2 = linear_gradient(mlp.activated, mlp.W_2, d_output)
    d_hidden = ACTIVATION_GRADIENTS[mlp.activation](mlp.hidden, d_activated)
    d_X, d_W_1, d_b_1 = linear_gradient(mlp.X, mlp.W_1, d_hidden)
    return d_X, {"W_1": d_W_1, "b_1": d_b_1, "W_2": d_W_2, "b_2": d_b_2}


def block_gradient(block: Block, d_output: Array) -> tuple[Array, dict[str, Array]]:
    """Of one block, from its output to its input.

    mid = input + attention(LayerNorm(input)) and output = mid + MLP(LayerNorm(mid)): at each sum
    the gradient goes both ways, and where the two ways meet again it is added up.

    Parameters
    ----------
    block : what the forward pass left behind
    d_output : (..., T, D)

    Returns
    -------
    d_input : (..., T, D)
    of its parameters, by their paths in the block, such as mlp.W_1
    """
    attention, mlp = block.attention, block.mlp

    d_written = d_output if block.mlp_dropout is None else d_output * block.mlp_dropout
    d_X, d_mlp = mlp_gradient(mlp, d_written)
    d_mid, d_mlp["gain"], d_mlp["bias"] = layer_norm_gradient(block.mid, mlp.gain, mlp.epsilon, d_X)
    d_mid += d_output

    d_written = d_mid if block.attention_dropout is None else d_mid * block.attention_dropout
    d_attention: dict[str, Array] = {}
    d_concat, d_attention["W_O"], d_attention["b_O"] = linear_gradient(
        attention.concat, attention.W_O, d_written
    )
    d_heads = attention_gradient(attention, split_heads(d_concat, attention.n_head))
    d_QKV = np.concatenate([merge_heads(d_head) for d_head in d_heads], axis=-1)  # (..., T, 3 D)
    d_X, d_attention["W_QKV"], d_attention["b_QKV"] = linear_gradient(
        attention.X, attention.W_QKV, d_QKV
    )
    d_input, d_attention["gain"], d_attention["bias"] = layer_norm_gradient(
        block.input, attention.gain, attention.epsilon, d_X
    )
    d_input += d_mid
    return d_input, {
        **{f"attention.{name}": d for name, d in d_attention.items()},
        **{f"mlp.{name}": d for name, d in d_mlp.items()},
    }


def embedding_gradient(ids: Ids, d_embedding: Array, vocab_size: int) -> Array:
    """Of token_embedding = W_E[ids]: each row of W_E gets the sum over the places it was used at.

    Parameters
    ----------
    ids : int64 (..., T)
    d_embedding : (..., T, D)
    vocab_size : rows of W_E

    Returns
    -------
    d_W_E : (vocab, D)
    """
    D = d_embedding.shape[-1]
    d_W_E = np.zeros((vocab_size, D), d_embedding.dtype)
    order = np.argsort(ids, axis=None, kind="stable")
    used, starts = np.unique(ids.ravel()[order], return_index=True)
    d_W_E[used] = np.add.reduceat(d_embedding.reshape(-1, D)[order], starts)
    return d_W_E


def cross_entropy(logits: Array, targets: Ids) -> tuple[float, Array]:
    """How surprised the model is by what follows, -log softmax(logits)[target], mean over all rows.

    Parameters
    ----------
    logits : (..., vocab)
    targets : int64 (...), the id that follows

    Returns
    -------
    loss : in nats
    d_logits = (softmax(logits) - 1 at the target) / number of rows : (..., vocab)

    Raises
    ------
    InvalidValueError
        The shapes do not fit, there are no rows, a target is outside the vocabulary, or a row of
        logits holds NaN or +inf.

    Notes
    -----
    Source: GPT-2's loss, "Language Models are Unsupervised Multitask Learners" (2019), equation 1.
    """
    if targets.shape != logits.shape[:-1] or not targets.size:
        raise InvalidValueError(
            f"logits (..., vocab) need targets (...); given {logits.shape} and {targets.shape}"
        )
    check_ids(targets.ravel(), logits.shape[-1])
    d_logits = softmax(logits)
    # The log is taken at the largest probability, which can't round to 0 as the target's can:
    # log p[target] = log p[largest] - (logit[largest] - logit[target]).
    behind = logits.max(axis=-1) - np.take_along_axis(logits, targets[..., None], -1)[..., 0]
    loss = float((behind - np.log(d_logits.max(axis=-1))).mean())
    rows = d_logits.reshape(-1, logits.shape[-1])
    rows[np.arange(len(rows)), targets.ravel()] -= 1.0
    d_logits /= len(rows)
    return loss, d_logits


def loss_and_gradients(forward: ForwardPass, targets: Ids) -> tuple[float, ParameterVector]:
    """The loss of a forward pass, and its gradient with respect to every parameter.

    Parameters
    ----------
    forward : over ids (..., T)
    targets : int64 (..., T), for each token the one that follows it

    Returns
    -------
    loss : mean cross-entropy in nats
    gradients : in the parameters' own shapes, under their own names

    Raises
    ------
    InvalidValueError
        The shapes do not fit, or the numbers have become infinite or NaN.
    """
    config, dtype = forward.config, forward.parameters.dtype
    gradients = ParameterVector(config, dtype=dtype)
    # What is looked at is kept, and the backward pass does not compute it again.
    for block in forward.blocks:
        _ = block.attention.X, block.attention.weights
        _ = block.mlp.X, block.mlp.hidden, block.mlp.activated
    loss, d_logits = cross_entropy(forward.logits, targets)

    d_final, d_W_U, _ = linear_gradient(forward.final, forward.W_U, d_logits)
    d_residual, gradients["gain"][:], gradients["bias"][:] = layer_norm_gradient(
        forward.blocks[-1].output, forward.gain, forward.epsilon, d_final
    )
    for block in reversed(forward.blocks):
        d_residual, d_parameters = block_gradient(block, d_residual)
        for path, gradient in d_parameters.items():
            gradients[f"{block.path}.{path}"][...] = gradient
    if forward.embedding_dropout is not None:
        d_residual *= forward.embedding_dropout

    gradients["W_E"][:] = embedding_gradient(forward.ids, d_residual, config.vocab_size)
    if config.tie_word_embeddings:  # W_E is used twice: its gradient is the sum of both
        gradients["W_E"][:] += transpose(d_W_U)
    else:
        gradients["W_U"][:] = d_W_U
    T, D = d_residual.shape[-2:]
    gradients["W_P"][:T] = d_residual.reshape(-1, T, D).sum(axis=0)
    return loss, gradients
