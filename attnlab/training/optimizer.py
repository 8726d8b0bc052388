"""Gradient clipping, the learning rate schedule and AdamW."""

from __future__ import annotations

import math

import numpy as np

from attnlab.equations import Array

BETAS = (0.9, 0.95)
EPS = 1e-8

# The last learning rate, as a fraction of the peak.
FINAL_FRACTION = 0.1


def clip(gradient: Array, max_norm: float) -> float:
    """Clip the gradient of all parameters to a norm √Σ g² in place; return the original norm.

    Source: "On the difficulty of training recurrent neural networks" (2013), section 3.2.
    """
    norm = math.sqrt(float(np.vdot(gradient, gradient)))
    if norm > max_norm:
        gradient *= max_norm / norm
    return norm


def learning_rate(step: int, *, peak: float, warmup: int, steps: int) -> float:
    """The learning rate at a step in 1 ... `steps`: linear warm-up, then cosine decay.

        peak · step / warmup                                during warm-up
        peak · (f + (1 - f) · ½ (1 + cos(π · progress)))    afterwards

    with progress = (step - warmup) / (steps - warmup) and f = `FINAL_FRACTION`.

    Source: "SGDR: Stochastic Gradient Descent with Warm Restarts" (2016), equation 5, without
    restarts.
    """
    if step < warmup:
        return peak * step / warmup
    progress = (step - warmup) / max(1, steps - warmup)
    return peak * (FINAL_FRACTION + (1 - FINAL_FRACTION) * 0.5 * (1 + math.cos(math.pi * progress)))


class AdamW:
    """Adam with decoupled weight decay, for one vector of all parameters.

        m ← β₁ m + (1 - β₁) g             moving average of g
        v ← β₂ v + (1 - β₂) g²            moving average of g²
        p ← p - rate · decay · p
        p ← p - rate · m̂ / (√v̂ + ε)       m̂ = m / (1 - β₁ᵗ), v̂ = v / (1 - β₂ᵗ)

    g is the gradient, p the parameters. β₁ and β₂ are `BETAS`, ε is `EPS`, t is `step`. `decay`
    (n,) is 0 for biases and LayerNorms.

    Source: "Decoupled Weight Decay Regularization" (2017), algorithm 2.
    """

    def __init__(self, decay: Array) -> None:
        self.decay = decay
        self.m, self.v = np.zeros_like(decay), np.zeros_like(decay)
        self.step = 0

    def update(self, parameters: Array, gradient: Array, rate: float) -> None:
        """Update parameters (n,) in place from their gradient (n,)."""
        self.step += 1
        beta_1, beta_2 = BETAS
        self.m *= beta_1
        self.m += (1 - beta_1) * gradient
        self.v *= beta_2
        self.v += (1 - beta_2) * np.square(gradient)
        parameters *= 1 - rate * self.decay
        # The update rate · m̂ / (√v̂ + ε) is computed in one array, to save memory.
        update = self.v / (1 - beta_2**self.step)
        np.sqrt(update, out=update)
        update += EPS
        np.divide(self.m, update, out=update)
        update *= rate / (1 - beta_1**self.step)
        parameters -= update
