"""Sample a token from logits, with temperature, top-k and top-p."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from attnlab import equations
from attnlab.equations import Array
from attnlab.errors import InvalidValueError, quoted
from attnlab.support.checks import as_count, as_float, as_number, check_seed, is_real


def as_sampling(
    temperature: float, top_k: int | None, top_p: float | None, seed: int | None
) -> Sampling:
    """Check the settings of `generate` and `stream`."""
    temperature = as_float(temperature, "temperature")
    if top_k is not None:
        top_k = as_count(top_k, "top_k", least=1)
    if top_p is not None:
        top_p = as_number(top_p)
        if not is_real(top_p) or not 0 < top_p <= 1:
            raise InvalidValueError(f"top_p must be above 0 and at most 1; got {quoted(top_p)}")
    seed = as_number(seed)
    check_seed(seed)
    return Sampling(temperature, top_k, top_p, seed)


@dataclass(frozen=True)
class Sampling:
    """Sampling from softmax(logits / temperature), truncated and renormalised.

    Parameters
    ----------
    temperature : below 1 sharpens the distribution, above 1 flattens it; at 0 the largest logit has
        probability 1. If several logits are largest, the lowest id has it.
    top_k : keep only tokens whose logit is at least the k-th largest; None for all tokens
    top_p : keep only the smallest set of most probable tokens whose probabilities sum to at least
        top_p; None for all tokens. Among equal probabilities, higher ids are kept.
    seed : makes sampling reproducible; None for a random seed

    Notes
    -----
    Temperature, top-k and top-p are applied in this order, as in transformers' `generate`.

    Source: "The Curious Case of Neural Text Degeneration" (2020), sections 3.1 and 5 (top-p), and
    "Hierarchical Neural Story Generation" (2018), section 5.4 (top-k).
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int | None = None

    def probabilities(self, logits: ArrayLike) -> Array:
        """The probability with which each token is sampled, float64 (vocab,), given the logits."""
        scores = np.asarray(logits, np.float64)  # (vocab,)
        if self.temperature == 0:  # greedy decoding: the limit of ever lower temperatures
            return (np.arange(scores.size) == scores.argmax()).astype(np.float64)
        with np.errstate(over="ignore"):  # a temperature near 0 makes scores -inf
            # Subtracting the maximum doesn't change softmax, and no score becomes +inf.
            scores = (scores - scores.max()) / self.temperature
        if self.top_k is not None and self.top_k < scores.size:
            kth_largest = np.partition(scores, -self.top_k)[-self.top_k]
            scores[scores < kth_largest] = -math.inf  # this gives probability 0
        if self.top_p is not None and self.top_p < 1:
            # Nucleus sampling removes the least probable tokens while their sum is at most
            # 1 - top_p. The most probable token, the last one, is always kept.
            ascending = np.argsort(scores, kind="stable")
            cumulative = equations.softmax(scores)[ascending].cumsum()
            removed = ascending[:-1][cumulative[:-1] <= 1 - self.top_p]
            scores[removed] = -math.inf
        return equations.softmax(scores)

    def draw(self, logits: Array, rng: np.random.Generator) -> tuple[int, float]:
        """Sample an id; return it with its probability."""
        probabilities = self.probabilities(logits)
        cumulative = probabilities.cumsum()  # the last one is 1 up to rounding
        # Each token has a segment as long as its probability. A random point falls into one.
        point = rng.random() * cumulative[-1]
        id = int(np.searchsorted(cumulative, point, side="right"))
        return id, float(probabilities[id])
