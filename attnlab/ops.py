"""The arithmetic that GPT-2 is made of: arrays in, arrays out, any leading axes.

float32 in, float32 out; float64 in, float64 out. Integers are taken as floats of the width that
holds them. Constants are Python floats, which leave an array's dtype alone (`np.sqrt(64)` would
turn float32 arrays into float64).
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from attnlab.errors import InvalidTypeError, InvalidValueError

Array: TypeAlias = NDArray[np.floating[Any]]
Rng: TypeAlias = "np.random.Generator | int | None"  # as text: numpy.random loads late


def as_floats(x: ArrayLike, name: str = "x") -> Array:
    """`x` as an array of floats, float32 at least; `name` is what an error calls it."""
    try:
        array = np.asarray(x)
    except ValueError as error:
        raise InvalidValueError(f"{name} is not an array of numbers: {error}") from None
    if array.dtype.kind not in "iuf" or array.dtype.itemsize > 8:
        raise InvalidTypeError(
            f"{name} must hold real numbers of at most 64 bits; given dtype {array.dtype}"
        )
    return array.astype(np.result_type(array.dtype, np.float32), copy=False)


def is_real(value: object) -> bool:
    """Whether a value is a number; True and False are none here."""
    real = int | float | np.integer | np.floating
    return isinstance(value, real) and not isinstance(value, bool)


def generator(rng: Rng) -> np.random.Generator:
    """Where random numbers are drawn from: a generator, a seed, or None for fresh randomness.

    Raises
    ------
    InvalidValueError
        Neither of them, or a seed below 0.
    """
    try:
        return np.random.default_rng(rng)
    except (TypeError, ValueError):
        raise InvalidValueError(
            f"a seed is an integer of at least 0, or a NumPy generator; given {rng!r}"
        ) from None


def is_integer(value: object) -> bool:
    """Whether a number is whole by its type; True and False are not numbers here."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def linear(x: ArrayLike, W: ArrayLike, b: ArrayLike | None = None) -> Array:
    """An affine map of the last axis, x W + b.

    Parameters
    ----------
    x : (..., n)
    W : (n, m), inputs as rows, as GPT-2's `Conv1D` stores it (PyTorch's `Linear` stores W^T)
    b : (m,) or None

    Returns
    -------
    (..., m)

    Raises
    ------
    InvalidValueError
        The shapes do not fit.

    Notes
    -----
    Source: GPT-2's `model.py`, `conv1d`.
    """
    x, W = as_floats(x), as_floats(W, "W")
    if x.ndim == 0 or W.ndim != 2 or x.shape[-1] != W.shape[0]:
        raise InvalidValueError(
            f"x W needs x of shape (..., n) and W of shape (n, m); given {x.shape} and {W.shape}"
        )
    # One product, however many sequences there are.
    rows = x.reshape(math.prod(x.shape[:-1]), W.shape[0])
    y: Array = (rows @ W).reshape(*x.shape[:-1], W.shape[1])
    if b is None:
        return y
    b = as_floats(b, "b")
    if b.shape != W.shape[1:]:
        raise InvalidValueError(
            f"b must have shape {W.shape[1:]}, as W has columns; given {b.shape}"
        )
    return np.add(y, b, out=y if b.dtype == y.dtype else None)


def softmax(x: ArrayLike, out: Array | None = None) -> Array:
    """Weights over the last axis that are positive and sum to 1, exp(x) / Σ exp(x).

    Parameters
    ----------
    x : (..., n), where -inf gives a weight of exactly 0
    out : where to write the weights, which may be x itself; None for a new array

    Returns
    -------
    (..., n)

    Raises
    ------
    InvalidValueError
        A row is empty or all -inf, so there is nothing to attend to, or holds NaN or +inf.

    Notes
    -----
    Each row's largest value is taken off first. The result is the same, since exp(-max) cancels,
    and no exponential overflows.

    Source: "Attention Is All You Need" (2017), section 3.2.1; GPT-2's `model.py`, `softmax`.
    """
    x = as_floats(x)
    if x.ndim == 0 or x.shape[-1] == 0:
        raise InvalidValueError(f"softmax needs rows of at least one number; given shape {x.shape}")
    largest = x.max(axis=-1, keepdims=True)
    if not np.isfinite(largest).all():
        if np.isneginf(largest).any():
            raise InvalidValueError("softmax of a row that is all -inf: nothing to attend to")
        raise InvalidValueError("softmax of a row that holds NaN or +inf")
    with np.errstate(over="ignore"):  # the distance between two huge numbers: -inf, weight 0
        weights: Array = np.subtract(x, largest, out=out)
    np.exp(weights, out=weights)
    weights /= weights.sum(axis=-1, keepdims=True)
    return weights


def layer_norm(x: ArrayLike, gain: ArrayLike, bias: ArrayLike, eps: float = 1e-5) -> Array:
    """LayerNorm over the last axis, gain · (x - mean) / √(variance + eps) + bias.

    Parameters
    ----------
    x : (..., D)
    gain, bias : (D,), learned; without them each row would have mean 0 and variance 1
    eps : added to the variance, GPT-2's `layer_norm_epsilon`

    Returns
    -------
    (..., D)

    Raises
    ------
    InvalidValueError
        The shapes do not fit.

    Notes
    -----
    The variance is the biased one, a mean over D and not over D - 1.

    Source: "Layer Normalization" (2016), equation 4; GPT-2's `model.py`, `norm`.
    """
    x, gain, bias = as_floats(x), as_floats(gain, "gain"), as_floats(bias, "bias")
    if x.ndim == 0 or x.shape[-1] == 0 or not (gain.shape == bias.shape == x.shape[-1:]):
        raise InvalidValueError(
            "layer_norm needs x of shape (..., D), gain and bias of shape (D,); "
            f"given {x.shape}, {gain.shape} and {bias.shape}"
        )
    normalised, _ = normalise(x, eps)
    scaled = np.multiply(normalised, gain, out=normalised if gain.dtype == x.dtype else None)
    return np.add(scaled, bias, out=scaled if bias.dtype == scaled.dtype else None)


def normalise(x: Array, eps: float) -> tuple[Array, Array]:
    """LayerNorm without its gain and bias, and what it divided by.

    Parameters
    ----------
    x : (..., D)
    eps : added to the variance

    Returns
    -------
    (x - mean) / deviation : (..., D)
    deviation = √(variance + eps) : (..., 1)
    """
    normalised: Array = x - x.mean(axis=-1, keepdims=True)
    deviation: Array = np.square(normalised).mean(axis=-1, keepdims=True)
    deviation += eps
    np.sqrt(deviation, out=deviation)
    normalised /= deviation
    return normalised, deviation


def gelu(x: ArrayLike, out: Array | None = None) -> Array:
    """GPT-2's GELU, the tanh form: ½ x (1 + tanh(√(2/π) (x + 0.044715 x³))).

    Parameters
    ----------
    x : (...)
    out : where to write the result, of x's shape and dtype, which may be x itself; None for a new
        array

    Returns
    -------
    (...)

    Notes
    -----
    It differs from the exact form, x Φ(x), by up to 5e-4, so a model trained with one does not
    give the same numbers with the other.

    Source: "Gaussian Error Linear Units" (2016), section 2; GPT-2's `model.py`, `gelu`.
    """
    x = as_floats(x)
    y = gelu_tanh(x)
    y += 1.0
    y *= 0.5
    return np.multiply(x, y, out=y if out is None else out)


def gelu_tanh(x: Array) -> Array:
    """The tanh in GELU, tanh(√(2/π) (x + 0.044715 x³)), (...) -> (...)."""
    # The formula from the inside out, on one new array, which spares most of the time that a single
    # line with all its temporary arrays takes.
    y = np.square(x, out=np.empty_like(x))
    y *= 0.044715
    y += 1.0
    y *= x
    y *= math.sqrt(2.0 / math.pi)
    return np.tanh(y, out=y)


def dropout_mask(
    shape: tuple[int, ...], share: float, rng: np.random.Generator, dtype: DTypeLike
) -> Array:
    """What to multiply with for dropout: 0 for a random share p, 1 / (1 - p) for the others.

    Source: "Dropout: A Simple Way to Prevent Neural Networks from Overfitting" (2014), section 10,
    the form that scales while it trains, so that nothing is scaled afterwards.
    """
    kept = rng.random(shape, dtype=np.float32) >= share
    return (kept / (1 - share)).astype(dtype)
