"""Attention, and the arithmetic that it is made of, for arrays of your own.

What is given is checked here; the mathematics is in `attnlab.equations`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from attnlab import equations
from attnlab.equations import Array, Mask
from attnlab.errors import InvalidTypeError, InvalidValueError, quoted
from attnlab.forward import fast
from attnlab.forward.attention import Attention, MultiHeadAttention, SelfAttention
from attnlab.steps import Run, graph_of, overflow, view_of
from attnlab.support.checks import (
    Rng,
    as_array,
    as_count,
    as_float,
    as_floats,
    as_number,
    check_seed,
    is_integer,
    is_real,
    memory_for,
)
from attnlab.support.messages import Message
from attnlab.text.tokens import Tokens, as_tokens

Chain = TypeVar("Chain", bound=Attention)

# What the rows of somebody's matrices are called.
Texts: TypeAlias = Sequence[str] | Tokens | None


def causal_mask(T: int, cached: int = 0) -> Mask:
    """Which keys each query may attend to when no one may look ahead.

    Parameters
    ----------
    T : number of tokens that ask, at least 1
    cached : number of tokens before them, whose keys are there but whose queries are not needed

    Returns
    -------
    bool (T, cached + T), True where key j may be seen by query i: j <= cached + i
    """
    T, cached = as_count(T, "T", least=1), as_count(cached, "cached")
    with memory_for(f"a mask of {T} x {cached + T}"):
        np.empty((T, cached + T), bool)  # what is too large is told at once
        return np.tri(T, cached + T, cached, dtype=bool)


def split_heads(x: ArrayLike, n_head: int) -> Array:
    """The columns of x dealt out to heads: (..., T, H·Dh) -> (..., H, T, Dh)."""
    x = as_floats(x)
    if x.ndim < 2:
        raise InvalidValueError(f"splitting needs x of shape (..., T, H·Dh); given {x.shape}")
    return equations.split_heads(x, _heads(x.shape[-1], n_head))


def merge_heads(x: ArrayLike) -> Array:
    """The heads' columns side by side again: (..., H, T, Dh) -> (..., T, H·Dh)."""
    x = as_floats(x)
    if x.ndim < 3:
        raise InvalidValueError(f"merging needs x of shape (..., H, T, Dh); given {x.shape}")
    return equations.merge_heads(x)


def attention(
    Q: ArrayLike,
    K: ArrayLike,
    V: ArrayLike,
    mask: ArrayLike | None = None,
    dropout: float = 0.0,
    rng: Rng = None,
    tokens: Texts = None,
    memory_tokens: Texts = None,
) -> Attention:
    """Scaled dot-product attention, softmax(Q Kᵀ / √Dk) V, every step of it.

    Parameters
    ----------
    Q, K, V : (..., Tq, Dk), (..., Tk, Dk), (..., Tk, Dv); leading axes broadcast
    mask : bool, True = may attend; any shape that broadcasts to (..., Tq, Tk), such as
        `causal_mask(T)`; None lets every query see every key
    dropout : share p of the weights that is set to 0, the others scaled by 1 / (1 - p)
    rng : where dropout draws from: a NumPy generator, a seed, or None for fresh randomness
    tokens : what each query is called in tables and pictures: Tq texts, or Tokens; None for numbers
    memory_tokens : the same of the Tk keys; None where they are those of the queries

    Returns
    -------
    Attention
        Q K V raw_scores scores mask masked_scores weights context, float32 or float64 as the
        inputs are

    Raises
    ------
    InvalidValueError
        A query may attend to no key.

    Notes
    -----
    Source: "Attention Is All You Need" (2017), equation 1.

    Examples
    --------
    >>> result = attention([[1, 0], [0, 1]], [[1, 0], [0, 1]], [[1, 2], [3, 4]])
    >>> result.raw_scores
    array([[1., 0.],
           [0., 1.]])
    """
    given = _floats(Q=Q, K=K, V=V)
    shape, named = _matched(**given), (tokens, memory_tokens)
    return _chain(Attention, "Attention", given, shape, mask, dropout, rng, *named)


def self_attention(
    X: ArrayLike,
    W_Q: ArrayLike,
    W_K: ArrayLike,
    W_V: ArrayLike,
    *,
    b_Q: ArrayLike | None = None,
    b_K: ArrayLike | None = None,
    b_V: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    dropout: float = 0.0,
    rng: Rng = None,
    tokens: Texts = None,
) -> SelfAttention:
    """Attention of a sequence to itself: Q = X W_Q + b_Q, K = X W_K + b_K, V = X W_V + b_V.

    Parameters
    ----------
    X : (..., T, D)
    W_Q, W_K, W_V : (D, Dk), (D, Dk), (D, Dv)
    b_Q, b_K, b_V : (Dk,), (Dk,), (Dv,) or None
    mask, dropout, rng, tokens : as `attention` takes them

    Returns
    -------
    SelfAttention
        X, the parameters, and all that `attention` returns
    """
    given = _floats(X=X, W_Q=W_Q, b_Q=b_Q, W_K=W_K, b_K=b_K, W_V=W_V, b_V=b_V)
    shape = _projected(given)
    return _chain(SelfAttention, "Self-attention", given, shape, mask, dropout, rng, tokens)


def cross_attention(
    X: ArrayLike,
    memory: ArrayLike,
    W_Q: ArrayLike,
    W_K: ArrayLike,
    W_V: ArrayLike,
    *,
    b_Q: ArrayLike | None = None,
    b_K: ArrayLike | None = None,
    b_V: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    dropout: float = 0.0,
    rng: Rng = None,
    tokens: Texts = None,
    memory_tokens: Texts = None,
) -> SelfAttention:
    """Attention of one sequence to another: Q from X, K and V from `memory`.

    Parameters
    ----------
    X : (..., Tq, D), the sequence that asks
    memory : (..., Tk, D'), the sequence that is looked at
    W_Q, W_K, W_V : (D, Dk), (D', Dk), (D', Dv)
    b_Q, b_K, b_V : (Dk,), (Dk,), (Dv,) or None
    mask, dropout, rng, tokens, memory_tokens : as `attention` takes them

    Returns
    -------
    SelfAttention
        X, memory, the parameters, and all that `attention` returns

    Notes
    -----
    Source: "Attention Is All You Need" (2017), section 3.2.3, "encoder-decoder attention".
    """
    given = _floats(X=X, memory=memory, W_Q=W_Q, b_Q=b_Q, W_K=W_K, b_K=b_K, W_V=W_V, b_V=b_V)
    shape, named = _projected(given), (tokens, memory_tokens)
    return _chain(SelfAttention, "Cross-attention", given, shape, mask, dropout, rng, *named)


def multi_head_attention(
    X: ArrayLike,
    W_Q: ArrayLike,
    W_K: ArrayLike,
    W_V: ArrayLike,
    W_O: ArrayLike,
    *,
    n_head: int,
    b_Q: ArrayLike | None = None,
    b_K: ArrayLike | None = None,
    b_V: ArrayLike | None = None,
    b_O: ArrayLike | None = None,
    memory: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    dropout: float = 0.0,
    rng: Rng = None,
    tokens: Texts = None,
    memory_tokens: Texts = None,
) -> MultiHeadAttention:
    """H heads of attention side by side, joined and mixed: concat(context of each head) W_O + b_O.

    Parameters
    ----------
    X : (..., Tq, D)
    W_Q, W_K, W_V : (D, H·Dk), (D', H·Dk), (D', H·Dv), the heads' columns side by side
    W_O : (H·Dv, D)
    n_head : H
    b_Q, b_K, b_V, b_O : (H·Dk,), (H·Dk,), (H·Dv,), (D,) or None
    memory : (..., Tk, D') for cross-attention; None for self-attention
    mask, dropout, rng, tokens, memory_tokens : as `attention` takes them, the mask for shape
        (..., H, Tq, Tk)

    Returns
    -------
    MultiHeadAttention
        the chain with a head axis, concat, output, and each head in `heads`

    Notes
    -----
    Source: "Attention Is All You Need" (2017), section 3.2.2; GPT-2's `model.py`, `attn`.
    """
    n_head = as_count(n_head, "n_head", least=1)
    sources = {} if memory is None else {"memory": memory}
    parameters = {"W_Q": W_Q, "b_Q": b_Q, "W_K": W_K, "b_K": b_K, "W_V": W_V, "b_V": b_V}
    given = _floats(X=X, **sources, **parameters, W_O=W_O, b_O=b_O)
    shape = _projected(given, n_head)
    given["n_head"] = n_head
    named = tokens, memory_tokens
    title = "Multi-head attention"
    return _chain(MultiHeadAttention, title, given, shape, mask, dropout, rng, *named)


def _floats(**given: Any) -> dict[str, Any]:
    """All of one dtype, copies that the caller can't change; a bias may be None."""
    arrays = {
        name: None if value is None and name.startswith("b_") else as_floats(value, name)
        for name, value in given.items()
    }
    dtype = np.result_type(*(array for array in arrays.values() if array is not None))
    return {
        name: None if array is None else np.array(array, dtype) for name, array in arrays.items()
    }


def _matched(Q: Array, K: Array, V: Array) -> tuple[int, ...]:
    """The shape of the scores, once Q, K and V are known to fit each other."""
    shapes = f"given Q {Q.shape}, K {K.shape}, V {V.shape}"
    if min(Q.ndim, K.ndim, V.ndim) < 2 or 0 in Q.shape + K.shape + V.shape:
        raise InvalidValueError(f"Q, K and V must be matrices that are not empty; {shapes}")
    if Q.shape[-1] != K.shape[-1]:
        raise InvalidValueError(f"Q and K must have equally many columns; {shapes}")
    if K.shape[-2] != V.shape[-2]:
        raise InvalidValueError(f"K and V must have equally many rows, one for each key; {shapes}")
    if not np.isfinite(V).all():  # it would spoil rows that give it no weight
        raise InvalidValueError("V holds NaN or infinite numbers")
    try:
        leading = np.broadcast_shapes(Q.shape[:-2], K.shape[:-2])
        np.broadcast_shapes(leading, V.shape[:-2])
    except ValueError:
        raise InvalidValueError(f"the leading axes of Q, K and V do not fit; {shapes}") from None
    return (*leading, Q.shape[-2], K.shape[-2])


def _projected(given: dict[str, Any], n_head: int | None = None) -> tuple[int, ...]:
    """The shape of the scores that X, memory and parameters lead to, once they fit each other."""
    X = given["X"]
    memory = given.get("memory", X)
    sources = {"W_Q": ("X", X), "W_K": ("memory", memory), "W_V": ("memory", memory)}
    if "W_O" in given:
        sources["W_O"] = ("W_V", given["W_V"])  # as wide as the heads' joined contexts
    for name, (source, x) in sources.items():
        W, b = given[name], given[f"b_{name[-1]}"]
        if x.ndim < 2 or 0 in x.shape:
            raise InvalidValueError(f"{source} must be a matrix, not empty; given shape {x.shape}")
        if W.ndim != 2 or W.shape[0] != x.shape[-1] or 0 in W.shape:
            raise InvalidValueError(
                f"{name} must have as many rows as {source} has columns, {x.shape[-1]}; "
                f"given {name} of shape {W.shape}"
            )
        if b is not None and b.shape != W.shape[1:]:
            raise InvalidValueError(
                f"b_{name[-1]} must have shape {W.shape[1:]}, "
                f"as many as {name}'s columns; given {b.shape}"
            )
    if given["W_Q"].shape[1] != given["W_K"].shape[1]:
        raise InvalidValueError(
            f"W_Q and W_K must have equally many columns; "
            f"given {given['W_Q'].shape} and {given['W_K'].shape}"
        )
    heads: tuple[int, ...] = ()
    if n_head is not None:
        heads = (n_head,)
        for name in ("W_K", "W_V"):
            _heads(given[name].shape[1], n_head)
    try:
        leading = np.broadcast_shapes(X.shape[:-2], memory.shape[:-2])
    except ValueError:
        raise InvalidValueError(
            f"the leading axes of X and memory do not fit; given {X.shape} and {memory.shape}"
        ) from None
    return (*leading, *heads, X.shape[-2], memory.shape[-2])


def _heads(columns: int, n_head: int) -> int:
    """How many heads there are, once they are known to divide the columns."""
    n_head = as_number(n_head)
    if not is_integer(n_head) or not 1 <= n_head <= max(columns, 1) or columns % int(n_head):
        raise InvalidValueError(f"{columns} columns can't be split into {quoted(n_head)} heads")
    return int(n_head)


def _chain(
    kind: type[Chain],
    title: str,
    given: dict[str, Any],
    scores_shape: tuple[int, ...],
    mask: ArrayLike | None,
    dropout: float,
    rng: Rng,
    tokens: Texts = None,
    memory_tokens: Texts = None,
) -> Chain:
    """The result of what was given, once mask, dropout and names are known to fit it."""
    given["mask"] = _checked_mask(mask, scores_shape)
    if not is_real(dropout) or not 0 <= dropout < 1:
        raise InvalidValueError(f"dropout must be a number in [0, 1); given {quoted(dropout)}")
    check_seed(rng)
    if dropout:
        dtype = next(iter(given.values())).dtype
        given["dropout_mask"] = drawn_dropout(
            scores_shape, dropout, np.random.default_rng(rng), dtype
        )
    Tq, Tk = scores_shape[-2:]
    names = as_tokens(tokens, Tq, "tokens", "queries")
    run = Run(
        graph_of(kind),
        given,
        scores_shape=scores_shape,
        tokens=names,
        memory_tokens=as_tokens(memory_tokens, Tk, "memory_tokens", "keys")
        or (() if "memory" in given or Tq != Tk else None),
        is_long=Tq > fast.SHORT,
    )
    return view_of(kind, Message(title), run)


def drawn_dropout(
    shape: tuple[int, ...], share: float, rng: np.random.Generator, dtype: DTypeLike
) -> Array:
    """What to multiply with for dropout: 0 for a random share p, 1 / (1 - p) for the others.

    Source: "Dropout: A Simple Way to Prevent Neural Networks from Overfitting" (2014), section 10,
    the form that scales while it trains, so that nothing is scaled afterwards.
    """
    kept = rng.random(shape, dtype=np.float32) >= share
    return (kept / (1 - share)).astype(dtype)


def _checked_mask(mask: ArrayLike | None, scores_shape: tuple[int, ...]) -> Mask:
    """The mask over the scores' last two axes, with the leading axes that it came with."""
    last_two = scores_shape[-2:]
    if mask is None:
        return np.ones(last_two, dtype=bool)
    given = np.array(as_array(mask, "a mask"))
    if given.dtype != bool:
        raise InvalidTypeError(
            f"a mask is boolean, True = may attend, such as causal_mask(T); given dtype "
            f"{given.dtype}. Of 0 and 1 make `mask == 1`; of what is added to scores, `mask == 0`"
        )
    try:
        if np.broadcast_shapes(given.shape, scores_shape) != scores_shape:
            raise ValueError
    except ValueError:
        raise InvalidValueError(
            f"a mask must fit the scores, of shape {scores_shape}; given shape {given.shape}"
        ) from None
    full = np.broadcast_to(given, (*given.shape[:-2], *last_two))
    blind = ~full.any(axis=-1)
    if blind.any():
        where = ", ".join(map(str, np.argwhere(blind)[0]))
        raise InvalidValueError(f"the mask leaves query {where} no key to attend to")
    return full


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

    Notes
    -----
    Source: GPT-2's `model.py`, `conv1d`.
    """
    x, W = as_floats(x), as_floats(W, "W")
    if x.ndim == 0 or W.ndim != 2 or x.shape[-1] != W.shape[0]:
        raise InvalidValueError(
            f"x W needs x of shape (..., n) and W of shape (n, m); given {x.shape} and {W.shape}"
        )
    if b is not None:
        b = as_floats(b, "b")
        if b.shape != W.shape[1:]:
            raise InvalidValueError(
                f"b must have shape {W.shape[1:]}, as W has columns; given {b.shape}"
            )
    return equations.affine(x, W, b)


def softmax(x: ArrayLike) -> Array:
    """Weights over the last axis that are positive and sum to 1, exp(x) / Σ exp(x).

    Parameters
    ----------
    x : (..., n), where -inf gives a weight of exactly 0

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
        return equations.softmax(x)


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
        Numbers so large that their squares overflow.

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
    eps = as_float(eps, "eps")
    try:
        with np.errstate(over="raise"):
            return equations.layer_norm(x, gain, bias, eps)
    except FloatingPointError:
        raise overflow("layer_norm", np.result_type(x, gain, bias)) from None


def gelu(x: ArrayLike) -> Array:
    """GPT-2's GELU, the tanh form: ½ x (1 + tanh(√(2/π) (x + 0.044715 x³))).

    Parameters
    ----------
    x : (...)

    Returns
    -------
    (...)

    Notes
    -----
    It differs from the exact form, x Φ(x), by up to 5e-4, so a model trained with one does not
    give the same numbers with the other.

    Source: "Gaussian Error Linear Units" (2016), section 2; GPT-2's `model.py`, `gelu`.
    """
    with np.errstate(over="ignore"):  # of huge numbers the tanh is 1 or -1
        return equations.gelu(as_floats(x))
