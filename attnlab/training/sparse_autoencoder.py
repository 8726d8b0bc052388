"""Training of a sparse autoencoder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from attnlab import equations
from attnlab.analysis.autoencoder import SparseAutoencoder, top_k
from attnlab.analysis.base import fingerprint
from attnlab.equations import Array
from attnlab.errors import InvalidValueError
from attnlab.forward.gradients import affine_b, affine_W, affine_x
from attnlab.model.gpt2 import GPT2
from attnlab.model.traces import Traces
from attnlab.steps import at
from attnlab.support.checks import as_count, memory_for
from attnlab.support.console import progress_bar
from attnlab.training.optimizer import AdamW, clip, learning_rate
from attnlab.training.tuned_lens import traces_of

PEAK_RATE, WARMUP, MAX_NORM, BATCH = 2e-3, 50, 1.0, 512


class Weights(NamedTuple):
    """An autoencoder's parameters or their gradients, see `SparseAutoencoder`."""

    W_enc: Array
    b_enc: Array
    W_dec: Array
    b_dec: Array

    @classmethod
    def of(cls, vector: Array, D: int) -> Weights:
        """Views of a vector (2 D n + n + D,) that holds all parameters."""
        n = (len(vector) - D) // (2 * D + 1)
        parts = np.split(vector, np.cumsum([D * n, n, n * D]))
        return cls(parts[0].reshape(D, n), parts[1], parts[2].reshape(n, D), parts[3])


def sparse_autoencoder(
    model: GPT2,
    texts: Sequence[str],
    path: str,
    *,
    features: int = 256,
    k: int = 8,
    steps: int = 3000,
    seed: int = 0,
    progress: bool = True,
) -> SparseAutoencoder:
    """Train a sparse autoencoder, "topk", to reconstruct a step of the model.

    loss = mean over a batch of ‖x - x̂‖² / mean over all tokens of ‖x - mean of x‖²
    x̂ = largest k of ReLU((x - b_dec) W_enc + b_enc) W_dec + b_dec

    W_dec is initialized randomly, W_enc as W_decᵀ, and b_dec as the mean of x. Each row of W_dec is
    normalised to length 1 after each step. The optimizer is AdamW without decay; a batch is 512
    tokens, drawn at random. Memory holds x for all tokens: tokens · D numbers.

    Parameters
    ----------
    model : GPT2, which isn't changed
    texts : training texts
    path : path of the step x, (T, D), such as "blocks.0.output"
    features : number of features, n
    k : number of active features per token
    steps : number of training steps
    seed : seed of the initial W_dec and of the batches
    progress : whether to show a progress bar on stderr

    Returns
    -------
    SparseAutoencoder
        `.evaluate(model.trace(other_texts))` measures it on other texts

    Notes
    -----
    A feature helps to reconstruct the step. It need not have a meaning, the model need not use it,
    and another seed gives other features.

    Source: Gao et al., "Scaling and evaluating sparse autoencoders" (2024), without its auxiliary
    loss, so some features stay dead; the unit length is Bricken et al.'s (2023).

    Examples
    --------
    >>> sae = attnlab.sparse_autoencoder(model, texts, "blocks.0.output")
    >>> print(sae.evaluate(model.trace(other_texts)))
    >>> sae.save("autoencoder")
    """
    n, seed = as_count(features, "features", least=1), as_count(seed, "seed")
    k, steps = as_count(k, "k", least=1, most=n), as_count(steps, "steps", least=1)
    traces = traces_of(model, texts)
    vectors = vectors_of(traces, path)
    D, b_dec = vectors.shape[1], vectors.mean(axis=0)
    variance = float(np.square(vectors - b_dec).sum(axis=-1).mean())
    if not variance:
        raise InvalidValueError(
            "{path} is the same vector for all tokens of these texts, so there is nothing to "
            "learn. Give other texts",
            path=path,
        )
    rng = np.random.default_rng(seed)
    with memory_for(f"features={n:,} of {D} numbers each"):
        W_dec = rng.normal(size=(n, D))
        vector = np.concatenate([W_dec.T.ravel(), np.zeros(n), W_dec.ravel(), b_dec]).astype("f4")
        weights, optimizer = Weights.of(vector, D), AdamW(np.zeros_like(vector))
    weights.W_enc[...] /= row_norms(weights.W_dec)[:, 0]
    weights.W_dec[...] /= row_norms(weights.W_dec)
    with progress_bar(progress, total=steps, unit="step") as bar:
        for step in range(1, steps + 1):
            x = vectors[rng.integers(0, len(vectors), BATCH)]
            loss, gradients = loss_and_gradients(x, weights, k, variance)
            gradient = np.concatenate([part.ravel() for part in gradients])
            clip(gradient, MAX_NORM)
            rate = learning_rate(step, peak=PEAK_RATE, warmup=min(WARMUP, steps), steps=steps)
            optimizer.update(vector, gradient, rate)
            weights.W_dec[...] /= row_norms(weights.W_dec)
            bar.set_postfix_str(f"{loss:.4f}", refresh=False)
            bar.update()
    return SparseAutoencoder(
        *weights, architecture="topk", path=path, k=k, model=fingerprint(traces[0])
    )


def vectors_of(traces: Traces, path: str) -> Array:
    """The vectors of a step for all tokens of all texts, float32 (tokens, D)."""
    vectors = []
    for group in traces.groups():
        trace, _ = traces.side_by_side(group)
        x = at(trace, path)
        if not isinstance(x, np.ndarray) or x.shape[:-1] != at(trace, "ids").shape:
            raise InvalidValueError(
                "{path} isn't a step with a vector for each token, (T, D). Use one such as "
                "blocks.0.output",
                path=path,
            )
        vectors.append(x.reshape(-1, x.shape[-1]).astype(np.float32))
    return np.concatenate(vectors)


def loss_and_gradients(
    x: Array, weights: Weights, k: int, variance: float
) -> tuple[float, Weights]:
    """The loss of a batch and its gradients, see `sparse_autoencoder`.

    Parameters
    ----------
    x : (batch, D)
    variance : the loss's denominator, the variance of x over all tokens
    """
    W_enc, b_enc, W_dec, b_dec = weights
    activations = top_k(equations.affine(x - b_dec, W_enc, b_enc), k)
    error = equations.affine(activations, W_dec, b_dec) - x
    scale = 1 / (len(x) * variance)
    d_out = 2 * scale * error
    d_z = affine_x(W_dec, d_out) * (activations > 0)
    gradients = Weights(
        affine_W(x - b_dec, d_z),
        affine_b(d_z),
        affine_W(activations, d_out),
        affine_b(d_out) - affine_b(affine_x(W_enc, d_z)),
    )
    return scale * float(np.square(error).sum()), gradients


def row_norms(W: Array) -> Array:
    """The Euclidean norm of each row, (n, D) -> (n, 1)."""
    return np.asarray(np.linalg.norm(W, axis=-1, keepdims=True))
