"""Backpropagation: the gradient of the loss with respect to every parameter.

`attnlab.forward.gradients` has the gradient of each equation. This module chains these gradients
from the loss to the embedding, and reuses the activations of the forward pass.
"""

from __future__ import annotations

import numpy as np

from attnlab.equations import Array, Ids, apply_dropout, merge_heads, split_heads, transpose
from attnlab.forward.attention import Attention
from attnlab.forward.fast import side_by_side
from attnlab.forward.forward_pass import MLP, Block, ForwardPass
from attnlab.forward.functional import softmax
from attnlab.forward.gradients import (
    ACTIVATION_GRADIENTS,
    context_V,
    context_weights,
    cross_entropy,
    embedding_gradient,
    layer_norm_gradient,
    linear_gradient,
    raw_scores_K,
    raw_scores_Q,
    scores_raw_scores,
    softmax_gradient,
)
from attnlab.forward.parameters import ParameterVector


def attention_gradient(attention: Attention, d_context: Array) -> tuple[Array, Array, Array]:
    """Backpropagate through softmax(Q Kᵀ / scale) V, with a mask: d_context -> d_Q, d_K, d_V.

    Q, K and V must have the same leading axes: gradients aren't summed over broadcast axes.
    """
    weights, dropout_mask = attention.weights, attention.dropout_mask
    d_weights = context_weights(attention.V, d_context)
    before_dropout = weights if dropout_mask is None else softmax(attention.masked_scores)
    d_scores = softmax_gradient(before_dropout, apply_dropout(d_weights, dropout_mask))
    # d_scores is 0 for masked keys, so it is also the gradient of the scores before the mask.
    d_scores = scores_raw_scores(attention.scale, d_scores)
    return (
        raw_scores_Q(attention.K, d_scores),
        raw_scores_K(attention.Q, d_scores),
        context_V(weights, d_context),
    )


def mlp_gradient(mlp: MLP, d_output: Array) -> tuple[Array, dict[str, Array]]:
    """Backpropagate through the MLP: d_output -> d_X and the parameters' gradients by name."""
    d_activated, d_W_2, d_b_2 = linear_gradient(mlp.activated, mlp.W_2, d_output)
    d_hidden = ACTIVATION_GRADIENTS[mlp.activation](mlp.hidden, d_activated)
    d_X, d_W_1, d_b_1 = linear_gradient(mlp.X, mlp.W_1, d_hidden)
    return d_X, {"W_1": d_W_1, "b_1": d_b_1, "W_2": d_W_2, "b_2": d_b_2}


def block_gradient(block: Block, d_output: Array) -> tuple[Array, dict[str, Array]]:
    """Backpropagate through a block: d_output -> d_input and the parameters' gradients by path.

    mid = input + attention(LayerNorm(input)) and output = mid + MLP(LayerNorm(mid)): at each
    residual connection the gradients of both terms are added. Paths look like "mlp.W_1".
    """
    attention, mlp = block.attention, block.mlp

    d_X, d_mlp = mlp_gradient(mlp, d_output)
    d_mid, d_mlp["gain"], d_mlp["bias"] = layer_norm_gradient(block.mid, mlp.gain, mlp.epsilon, d_X)
    d_mid += d_output

    d_attention: dict[str, Array] = {}
    d_concat, d_attention["W_O"], d_attention["b_O"] = linear_gradient(
        attention.concat, attention.W_O, d_mid
    )
    d_heads = attention_gradient(attention, split_heads(d_concat, attention.n_head))
    # Q, K and V are side by side, as their parameters are stored: one product is faster than three.
    W_QKV = side_by_side(attention.W_Q, attention.W_K, attention.W_V)  # (D, 3 D)
    d_QKV = np.concatenate([merge_heads(d_head) for d_head in d_heads], axis=-1)  # (..., T, 3 D)
    d_X, d_attention["W_QKV"], d_attention["b_QKV"] = linear_gradient(attention.X, W_QKV, d_QKV)
    d_input, d_attention["gain"], d_attention["bias"] = layer_norm_gradient(
        block.input, attention.gain, attention.epsilon, d_X
    )
    d_input += d_mid
    return d_input, {
        **{f"attention.{name}": d for name, d in d_attention.items()},
        **{f"mlp.{name}": d for name, d in d_mlp.items()},
    }


def loss_and_gradients(forward: ForwardPass, targets: Ids) -> tuple[float, ParameterVector]:
    """The loss, mean cross-entropy in nats, and its gradient for every parameter."""
    config, dtype = forward.config, forward.parameters.dtype
    gradients = ParameterVector(config, dtype=dtype)
    # A step is kept once it is accessed. The backward pass needs these steps of each block.
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
            gradients.stored(f"{block.path}.{path}")[...] = gradient

    gradients["W_E"][:] = embedding_gradient(forward.ids, d_residual, config.vocab_size)
    if config.tie_word_embeddings:  # W_E is also W_U, so the gradients of both are added
        gradients["W_E"][:] += transpose(d_W_U)
    else:
        gradients["W_U"][:] = d_W_U
    T, D = d_residual.shape[-2:]
    gradients["W_P"][:T] = d_residual.reshape(-1, T, D).sum(axis=0)
    return loss, gradients
