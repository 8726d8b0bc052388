"""From gradients to better parameters: clipping, the learning rate's course, AdamW."""

from __future__ import annotations

import math

import numpy as np

from attnlab.equations import Array

BETAS = (0.9, 0.95)
EPS = 1e-8

# The share of the largest learning rate that is left at the end.
FINAL_SHARE = 0.1


def clip(gradient: Array, largest: float) -> float:
    """Shorten a gradient to the length √Σ g² that it may have, in place; returns what it was.

    Parameters
    ----------
    gradient : (n,), of all parameters
    largest : the length that it may have

    Notes
    -----
    Source: "On the difficulty of training recurrent neural networks" (2013), section 3.2.
    """
    length = math.sqrt(float(np.vdot(gradient, gradient)))
    if length > largest:
        gradient *= largest / length
    return length


def learning_rate(step: int, *, peak: float, warmup: int, steps: int) -> float:
    """The learning rate of a step: up in a straight line, then down by half a cosine.

    peak · step / warmup                       up to the warm-up's last step
    peak · (final + (1 - final) ½ (1 + cos π · (step - warmup) / (steps - warmup)))      after it,
        final = `FINAL_SHARE`

    Parameters
    ----------
    step : 1 for the first, `steps` for the last
    peak : the largest
    warmup : steps of the way up
    steps : all of them

    Notes
    -----
    Source: "SGDR: Stochastic Gradient Descent with Warm Restarts" (2016), equation 5, without
    restarts.
    """
    if step < warmup:
        return peak * step / warmup
    share = (step - warmup) / max(1, steps - warmup)
    return peak * (FINAL_SHARE + (1 - FINAL_SHARE) * 0.5 * (1 + math.cos(math.pi * share)))


class AdamW:
    """Adam with decoupled weight decay, for all parameters at once.

        m ← β₁ m + (1 - β₁) g             g's mean
        v ← β₂ v + (1 - β₂) g²            and mean square, over the last steps
        p ← p - rate · decay · p
        p ← p - rate · m̂ / (√v̂ + ε)       m̂ = m / (1 - β₁ᵗ), v̂ = v / (1 - β₂ᵗ)

    β₁ and β₂ are `BETAS`, ε is `EPS`.

    Parameters
    ----------
    decay : (n,), by how much each parameter decays; 0 for biases and LayerNorms

    Attributes
    ----------
    m, v : (n,), as above, after the steps so far
    step : t, how many they are

    Notes
    -----
    Source: "Decoupled Weight Decay Regularization" (2017), algorithm 2.
    """

    def __init__(self, decay: Array) -> None:
        self.decay = decay
        self.m, self.v = np.zeros_like(decay), np.zeros_like(decay)
        self.step = 0

    def update(self, parameters: Array, gradient: Array, rate: float) -> None:
        """One step, in place.

        Parameters
        ----------
        parameters, gradient : (n,)
        rate : the learning rate of this step
        """
        self.step += 1
        beta_1, beta_2 = BETAS
        self.m *= beta_1
        self.m += (1 - beta_1) * gradient
        self.v *= beta_2
        self.v += (1 - beta_2) * np.square(gradient)
        parameters *= 1 - rate * self.decay
        # m̂ / (√v̂ + ε) from the inside out, on one array.
        update = self.v / (1 - beta_2**self.step)
        np.sqrt(update, out=update)
        update += EPS
        np.divide(self.m, update, out=update)
        update *= rate / (1 - beta_1**self.step)
        parameters -= update
