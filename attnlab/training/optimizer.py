"""From gradients to better parameters: clipping, the learning rate's course, AdamW."""

from __future__ import annotations

import math

import numpy as np

from attnlab.ops import Array


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


def learning_rate(step: int, *, peak: float, warmup: int, steps: int, final: float = 0.1) -> float:
    """The learning rate of a step: up in a straight line, then down by half a cosine.

    peak · step / warmup                       up to the warm-up's last step
    peak · (final + (1 - final) ½ (1 + cos π · (step - warmup) / (steps - warmup)))      after it

    Parameters
    ----------
    step : 1 for the first, `steps` for the last
    peak : the largest
    warmup : steps of the way up
    steps : all of them
    final : the share of the peak that is left at the end

    Notes
    -----
    Source: "SGDR: Stochastic Gradient Descent with Warm Restarts" (2016), equation 5, without
    restarts.
    """
    if step < warmup:
        return peak * step / warmup
    share = (step - warmup) / max(1, steps - warmup)
    return peak * (final + (1 - final) * 0.5 * (1 + math.cos(math.pi * share)))


class AdamW:
    """Adam with decoupled weight decay, for all parameters at once.

        m ← β₁ m + (1 - β₁) g             g's mean
        v ← β₂ v + (1 - β₂) g²            and mean square, over the last steps
        p ← p - rate · decay · p
        p ← p - rate · m̂ / (√v̂ + ε)       m̂ = m / (1 - β₁ᵗ), v̂ = v / (1 - β₂ᵗ)

    Parameters
    ----------
    decay : (n,), by how much each parameter decays; 0 for biases and LayerNorms
    betas, eps : β₁ and β₂, ε
    m, v : (n,), what an earlier run had come to; None for zeros
    step : t, how many steps were taken

    Attributes
    ----------
    m, v, step : as above, after the steps so far

    Notes
    -----
    Source: "Decoupled Weight Decay Regularization" (2017), algorithm 2.
    """

    def __init__(
        self,
        decay: Array,
        *,
        betas: tuple[float, float] = (0.9, 0.95),
        eps: float = 1e-8,
        m: Array | None = None,
        v: Array | None = None,
        step: int = 0,
    ) -> None:
        self.decay, self.betas, self.eps = decay, betas, eps
        self.m = np.zeros_like(decay) if m is None else m
        self.v = np.zeros_like(decay) if v is None else v
        self.step = step

    def update(self, parameters: Array, gradient: Array, rate: float) -> None:
        """One step, in place.

        Parameters
        ----------
        parameters, gradient : (n,)
        rate : the learning rate of this step
        """
        self.step += 1
        beta_1, beta_2 = self.betas
        self.m *= beta_1
        self.m += (1 - beta_1) * gradient
        self.v *= beta_2
        self.v += (1 - beta_2) * np.square(gradient)
        parameters *= 1 - rate * self.decay
        # m̂ / (√v̂ + ε) from the inside out, on one array.
        update = self.v / (1 - beta_2**self.step)
        np.sqrt(update, out=update)
        update += self.eps
        np.divide(self.m, update, out=update)
        update *= rate / (1 - beta_1**self.step)
        parameters -= update
