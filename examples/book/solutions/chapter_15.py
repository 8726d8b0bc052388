"""Solutions of chapter 15: the functions that it leaves empty."""

from collections.abc import Mapping

import numpy as np

import attnlab
from attnlab.equations import Array


def my_head(
    X: Array, W_Q: Array, b_Q: Array, W_K: Array, b_K: Array, W_V: Array, b_V: Array
) -> dict[str, Array]:
    Q, K, V = X @ W_Q + b_Q, X @ W_K + b_K, X @ W_V + b_V
    scores = Q @ K.T / K.shape[1] ** 0.5
    may_attend = np.tril(np.ones(scores.shape, dtype=bool))
    masked_scores = np.where(may_attend, scores, -np.inf)
    powers = np.exp(masked_scores - masked_scores.max(axis=1, keepdims=True))
    weights = powers / powers.sum(axis=1, keepdims=True)
    return {
        "Q": Q,
        "K": K,
        "V": V,
        "scores": scores,
        "masked_scores": masked_scores,
        "weights": weights,
        "context": weights @ V,
    }


def my_layer(
    X: Array, W_QKV: Array, b_QKV: Array, W_O: Array, b_O: Array, H: int
) -> dict[str, Array]:
    T = len(X)
    Q, K, V = (
        part.reshape(T, H, -1).swapaxes(0, 1) for part in np.split(X @ W_QKV + b_QKV, 3, axis=1)
    )
    scores = Q @ K.swapaxes(1, 2) / K.shape[2] ** 0.5
    masked_scores = np.where(np.tril(np.ones((T, T), dtype=bool)), scores, -np.inf)
    weights = attnlab.softmax(masked_scores)
    context = weights @ V
    concat = context.swapaxes(0, 1).reshape(T, -1)
    return {
        "Q": Q,
        "scores": scores,
        "weights": weights,
        "context": context,
        "concat": concat,
        "output": concat @ W_O + b_O,
    }


def my_block(
    x: Array,
    attention_params: Mapping[str, Array],
    mlp_params: Mapping[str, Array],
    H: int,
    epsilon: float,
) -> dict[str, Array]:
    def layer_norm(x: Array, gain: Array, bias: Array) -> Array:
        centred = x - x.mean(axis=1, keepdims=True)
        variance = (centred**2).mean(axis=1, keepdims=True)
        normal: Array = centred / np.sqrt(variance + epsilon)
        return normal * gain + bias

    a, m = attention_params, mlp_params
    X = layer_norm(x, a["gain"], a["bias"])
    output = my_layer(X, a["W_QKV"], a["b_QKV"], a["W_O"], a["b_O"], H)["output"]
    mid = x + output
    hidden = layer_norm(mid, m["gain"], m["bias"]) @ m["W_1"] + m["b_1"]
    inner = (2 / np.pi) ** 0.5 * (hidden + 0.044715 * hidden**3)
    activated = hidden * (1 + np.tanh(inner)) / 2
    written = activated @ m["W_2"] + m["b_2"]
    return {
        "attention.X": X,
        "attention.output": output,
        "mid": mid,
        "mlp.hidden": hidden,
        "mlp.activated": activated,
        "mlp.output": written,
        "output": mid + written,
    }
