"""Solution of chapter 11: the function that it leaves empty."""

import numpy as np

from attnlab.equations import Array


def my_step(
    x: Array,
    K_cache: Array,
    V_cache: Array,
    Q_params: tuple[Array, Array],
    K_params: tuple[Array, Array],
    V_params: tuple[Array, Array],
) -> dict[str, Array]:
    """One step with the cache; each pair is a matrix and its bias."""
    q, k, v = (x @ W + b for W, b in (Q_params, K_params, V_params))
    K, V = np.vstack([K_cache, k]), np.vstack([V_cache, v])
    scores = (K @ q / K.shape[1] ** 0.5)[np.newaxis]
    powers = np.exp(scores - scores.max())
    weights = powers / powers.sum()
    return {"K": K, "V": V, "scores": scores, "weights": weights, "context": weights @ V}
