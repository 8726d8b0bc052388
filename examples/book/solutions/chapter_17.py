"""Solution of chapter 17: the function that it leaves empty."""

import numpy as np

import attnlab
from attnlab.equations import Array


def my_windowed_head(Q: Array, K: Array, V: Array, window: int) -> dict[str, Array]:
    scores = Q @ K.T / K.shape[1] ** 0.5
    distance = np.arange(len(Q))[:, None] - np.arange(len(K))
    masked_scores = np.where((distance >= 0) & (distance < window), scores, -np.inf)
    weights = attnlab.softmax(masked_scores)
    return {"masked_scores": masked_scores, "weights": weights, "context": weights @ V}
