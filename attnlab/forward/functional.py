"""Attention and its building blocks, for your own arrays.

Inputs are checked here; the mathematics is in `attnlab.equations`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from attnlab import equations
from attnlab.equations import AnyArray, Array, Mask
from attnlab.errors import InvalidTypeError, InvalidValueError, quoted
from attnlab.forward import fast
from attnlab.forward.attention import Attention, MultiHeadAttention, SelfAttention
from attnlab.steps import Run, graph_of, overflow_error
from attnlab.support.checks import (
    Rng,
    as_array,
    as_count,
    as_float,
    as_floats,
    as_index,
    as_number,
    check_seed,
    check_shape,
    is_integer,
    is_real,
    memory_for,
    query_without_keys,
)
from attnlab.support.messages import Message
from attnlab.text.tokens import Tokens, as_tokens

AttentionType = TypeVar("AttentionType", bound=Attention)

# Steps that are inputs if the user gives them, and the formulas that this changes.
GIVEN = ("memory", "scale", "score_bias", "dropout_mask")
FORMULAS_WITH = {
    "scale": ("scale", "the given divisor"),
    "score_bias": ("masked_scores", "scores + score_bias where the mask is True, else -inf"),
}

Labels: TypeAlias = Sequence[str] | Tokens | None  # names of a matrix's rows


def causal_mask(T: int, cached: int = 0) -> Mask:
    """Return the mask that keeps T queries from attending to later keys, (T, cached + T).

    It is True where query i may attend to key j: j <= cached + i. The first `cached`
    keys belong to earlier tokens, which have no queries here.
    """
    T, cached = as_count(T, "T", least=1), as_count(cached, "cached")
    with memory_for(f"a mask of {T} x {cached + T}"):
        np.empty((T, cached + T), bool)  # fails immediately if the mask is too large
        return np.tri(T, cached + T, cached, dtype=bool)  # row i begins with cached + i + 1 True


def split_heads(x: ArrayLike, n_head: int) -> Array:
    """Split the columns of x into heads: (..., T, H·Dh) -> (..., H, T, Dh)."""
    x = as_floats(x)
    if x.ndim < 2:
        raise InvalidValueError(f"x must have shape (..., T, H·Dh); got {x.shape}")
    return equations.split_heads(x, _as_n_head(x.shape[-1], n_head))


def merge_heads(x: ArrayLike) -> Array:
    """Join the columns of all heads: (..., H, T, Dh) -> (..., T, H·Dh)."""
    x = as_floats(x)
    if x.ndim < 3:
        raise InvalidValueError(f"x must have shape (..., H, T, Dh); got {x.shape}")
    return equations.merge_heads(x)


def attention(
    Q: ArrayLike,
    K: ArrayLike,
    V: ArrayLike,
    mask: ArrayLike | None = None,
    dropout: float = 0.0,
    rng: Rng = None,
    tokens: Labels = None,
    memory_tokens: Labels = None,
    *,
    scale: float | None = None,
    bias: ArrayLike | None = None,
) -> Attention:
    """Compute scaled dot-product attention, softmax(Q Kᵀ / √Dk) V, with every step.

    Source: "Attention Is All You Need" (2017), equation 1.

    Parameters
    ----------
    Q, K, V : (..., Tq, Dk), (..., Tk, Dk), (..., Tk, Dv); leading axes broadcast
    mask : bool, True = may attend; any shape that broadcasts to (..., Tq, Tk), such as
        `causal_mask(T)`; None lets every query attend to every key
    dropout : probability p with which a weight is set to 0; other weights are scaled by 1 / (1 - p)
    rng : source of randomness for dropout: a NumPy generator, a seed, or None
    tokens : labels of the queries in tables and plots: Tq texts, or Tokens; None for indices
    memory_tokens : labels of the Tk keys; None if they are the same as the queries'
    scale : the number that scores are divided by; None for √Dk, 1 for unscaled attention. PyTorch's
        `scale` is a factor instead, the inverse of this divisor
    bias : added to the scores before the mask, as the step `score_bias`: ALiBi, relative positions,
        or a mask of 0 and -inf. It broadcasts like `mask`

    Returns
    -------
    Attention
        Q K V raw_scores scale scores score_bias mask masked_scores weights context, in the inputs'
        dtype, float32 or float64

    Examples
    --------
    >>> result = attention([[1, 0], [0, 1]], [[1, 0], [0, 1]], [[1, 2], [3, 4]])
    >>> result.raw_scores
    array([[1., 0.],
           [0., 1.]])
    """
    # `_floats` copies, since a later change of your arrays must not change the result.
    inputs = _floats(Q=Q, K=K, V=V)  # `Run` expects the names of steps
    settings = scale, bias, mask, dropout, rng, tokens, memory_tokens
    # Shapes are checked now, so that an error names the argument, not a later step.
    return _attention_result(Attention, "Attention", inputs, _scores_shape(**inputs), *settings)


def self_attention(
    X: ArrayLike,
    W_Q: ArrayLike,
    W_K: ArrayLike,
    W_V: ArrayLike,
    *,
    b_Q: ArrayLike | None = None,
    b_K: ArrayLike | None = None,
    b_V: ArrayLike | None = None,
    scale: float | None = None,
    bias: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    dropout: float = 0.0,
    rng: Rng = None,
    tokens: Labels = None,
) -> SelfAttention:
    """Compute self-attention: Q = X W_Q + b_Q, K = X W_K + b_K, V = X W_V + b_V.

    Parameters are as in `cross_attention`, without `memory`. The result also has X and the
    parameters.
    """
    # No `memory` is given, so the step `memory` is an alias of X.
    inputs = _floats(X=X, W_Q=W_Q, b_Q=b_Q, W_K=W_K, b_K=b_K, W_V=W_V, b_V=b_V)
    shape = _projected_scores_shape(inputs)
    settings = scale, bias, mask, dropout, rng, tokens
    return _attention_result(SelfAttention, "Self-attention", inputs, shape, *settings)


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
    scale: float | None = None,
    bias: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    dropout: float = 0.0,
    rng: Rng = None,
    tokens: Labels = None,
    memory_tokens: Labels = None,
) -> SelfAttention:
    """Compute cross-attention: Q from X, K and V from `memory`.

    Source: "Attention Is All You Need" (2017), section 3.2.3, "encoder-decoder attention".

    Parameters
    ----------
    X : (..., Tq, D), the querying sequence, such as the text that a decoder writes
    memory : (..., Tk, D'), the attended sequence, from an encoder
    W_Q, W_K, W_V : (D, Dk), (D', Dk), (D', Dv)
    b_Q, b_K, b_V : (Dk,), (Dk,), (Dv,) or None
    scale, bias, mask, dropout, rng, tokens, memory_tokens : as in `attention`
    """
    inputs = _floats(X=X, memory=memory, W_Q=W_Q, b_Q=b_Q, W_K=W_K, b_K=b_K, W_V=W_V, b_V=b_V)
    # Only the step `memory` differs from self-attention, so the class is the same.
    shape = _projected_scores_shape(inputs)
    settings = scale, bias, mask, dropout, rng, tokens, memory_tokens
    return _attention_result(SelfAttention, "Cross-attention", inputs, shape, *settings)


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
    scale: float | None = None,
    bias: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    dropout: float = 0.0,
    rng: Rng = None,
    tokens: Labels = None,
    memory_tokens: Labels = None,
) -> MultiHeadAttention:
    """Compute multi-head attention: concat(context of each head) W_O + b_O.

    Source: "Attention Is All You Need" (2017), section 3.2.2; GPT-2's `model.py`, `attn`.

    Parameters
    ----------
    W_Q, W_K, W_V : (D, H·Dk), (D', H·Dk), (D', H·Dv), columns of head 0 first
    W_O, b_O : (H·Dv, D), (D,) or None
    n_head : H
    memory : (..., Tk, D') for cross-attention; None for self-attention
    mask, bias : broadcast to (..., H, Tq, Tk). Masks of B sequences have shape (B, 1, Tq, Tk), such
        as `mask[:, None]`: (B, Tq, Tk) would be a mask for each head if B is H
    X and all others : as in `cross_attention`
    """
    n_head = as_count(n_head, "n_head", least=1)
    sources = {} if memory is None else {"memory": memory}
    parameters = {"W_Q": W_Q, "b_Q": b_Q, "W_K": W_K, "b_K": b_K, "W_V": W_V, "b_V": b_V}
    inputs = _floats(X=X, **sources, **parameters, W_O=W_O, b_O=b_O)
    shape = _projected_scores_shape(inputs, n_head)
    inputs["n_head"] = n_head  # this is a step, too: the equations that split heads need it
    settings = scale, bias, mask, dropout, rng, tokens, memory_tokens
    return _attention_result(MultiHeadAttention, "Multi-head attention", inputs, shape, *settings)


def _floats(**inputs: Any) -> dict[str, Any]:
    """Copy arrays to a common float dtype; biases may be None."""
    # A bias that was left out stays None; as_floats raises for any other None.
    arrays = {
        name: None if name.startswith("b_") and value is None else as_floats(value, name)
        for name, value in inputs.items()
    }
    # All get one dtype, float64 if any of them has it.
    dtype = np.result_type(*(array for array in arrays.values() if array is not None))
    return {name: None if x is None else np.array(x, dtype) for name, x in arrays.items()}


def _scores_shape(Q: Array, K: Array, V: Array) -> tuple[int, ...]:
    """The shape of the scores, after checking that Q, K and V match."""
    shapes = f"got Q {Q.shape}, K {K.shape}, V {V.shape}"
    # Without keys there is nothing to average. A vector could be one row or one column.
    if min(Q.ndim, K.ndim, V.ndim) < 2 or 0 in Q.shape + K.shape + V.shape:
        raise InvalidValueError(f"Q, K and V must be non-empty matrices; {shapes}")
    if Q.shape[-1] != K.shape[-1]:  # each score is a dot product of two rows
        raise InvalidValueError(f"Q and K must have the same number of columns; {shapes}")
    if K.shape[-2] != V.shape[-2]:  # a weight for each key multiplies that key's value
        raise InvalidValueError(f"K and V must have the same number of rows, one per key; {shapes}")
    if not np.isfinite(V).all():  # 0 times NaN is NaN, also where the weight is 0
        raise InvalidValueError("V contains NaN or infinite numbers")
    try:
        # These axes broadcast in Q @ Kᵀ, and then in weights @ V.
        leading = np.broadcast_shapes(Q.shape[:-2], K.shape[:-2])
        np.broadcast_shapes(leading, V.shape[:-2])
    except ValueError:
        raise InvalidValueError(f"leading axes of Q, K and V don't broadcast; {shapes}") from None
    return (*leading, Q.shape[-2], K.shape[-2])  # (..., Tq, Tk)


def _projected_scores_shape(inputs: dict[str, Any], n_head: int | None = None) -> tuple[int, ...]:
    """The shape of the scores, after checking that X, memory and parameters match."""
    X = inputs["X"]
    memory = inputs.get("memory", X)
    # The array that each matrix is multiplied with, and its name.
    sources = {"W_Q": ("X", X), "W_K": ("memory", memory), "W_V": ("memory", memory)}
    if "W_O" in inputs:
        # W_O is multiplied with concat, which has as many columns as W_V.
        sources["W_O"] = ("W_V", inputs["W_V"])
    for name, (source, x) in sources.items():
        letter = name.removeprefix("W_")
        W, b = inputs[name], inputs[f"b_{letter}"]
        if x.ndim < 2 or 0 in x.shape:
            raise InvalidValueError(f"{source} must be a non-empty matrix; got shape {x.shape}")
        if W.ndim != 2 or W.shape[0] != x.shape[-1] or 0 in W.shape:
            raise InvalidValueError(
                f"{name} must have as many rows as {source} has columns, {x.shape[-1]}; got "
                f"shape {W.shape}"
            )
        if b is not None:  # added to each row, (n,)
            check_shape(b, W.shape[1:], f"b_{letter}", f", one number for each column of {name}")
    if inputs["W_Q"].shape[1] != inputs["W_K"].shape[1]:
        raise InvalidValueError(
            "W_Q and W_K must have the same number of columns; got shapes "
            f"{inputs['W_Q'].shape} and {inputs['W_K'].shape}"
        )
    heads: tuple[int, ...] = ()  # one head has no axis of heads
    if n_head is not None:
        heads = (n_head,)
        # W_Q has as many columns as W_K.
        for name in ("W_K", "W_V"):
            _as_n_head(inputs[name].shape[1], n_head)  # raises if n_head doesn't divide the columns
    try:
        leading = np.broadcast_shapes(X.shape[:-2], memory.shape[:-2])  # batch axes
    except ValueError:
        raise InvalidValueError(
            f"leading axes of X and memory don't broadcast; got {X.shape} and {memory.shape}"
        ) from None
    return (*leading, *heads, X.shape[-2], memory.shape[-2])  # (..., H, Tq, Tk)


def _as_n_head(columns: int, n_head: int) -> int:
    """Check that n_head divides columns (0 columns are one head), and return it as an int."""
    n_head = as_number(n_head)
    if not is_integer(n_head) or not 1 <= n_head <= max(columns, 1) or columns % int(n_head):
        raise InvalidValueError(f"{columns} columns can't be split into {quoted(n_head)} heads")
    return int(n_head)


def _attention_result(
    result_class: type[AttentionType],
    title: str,
    inputs: dict[str, Any],
    scores_shape: tuple[int, ...],
    scale: float | None,
    bias: ArrayLike | None,
    mask: ArrayLike | None,
    dropout: float,
    rng: Rng,
    tokens: Labels = None,
    memory_tokens: Labels = None,
) -> AttentionType:
    """Check scale, bias, mask, dropout and labels, and create the result."""
    dtype = next(iter(inputs.values())).dtype  # the arrays have a common dtype, see `_floats`
    inputs["mask"] = visible = _as_mask(mask, scores_shape)
    if scale is not None:
        inputs["scale"] = as_float(scale, "scale", least=None)  # negative scales are valid
        if not inputs["scale"]:
            raise InvalidValueError("scale must not be 0, since scores are divided by it")
    if bias is not None:
        inputs["score_bias"] = _as_bias(bias, scores_shape, dtype)
        visible = visible & (inputs["score_bias"] > -np.inf)  # -inf hides a key as a mask does
    if query := query_without_keys(visible):  # softmax over no keys would be NaN
        hiding = "mask hides" if bias is None else "mask and bias hide"
        raise InvalidValueError(f"{hiding} all keys from query {query}")
    check_seed(rng)  # even without dropout, so that a wrong seed never passes
    p = as_number(dropout)
    if not is_real(p) or not 0 <= p < 1:
        raise InvalidValueError(f"dropout must be a number in [0, 1); got {quoted(dropout)}")
    if p:  # without dropout, the state of the user's generator must not change
        random = np.random.default_rng(rng)
        inputs["dropout_mask"] = sample_dropout(scores_shape, p, random, dtype)
    Tq, Tk = scores_shape[-2:]
    # Labels are for tables and plots only; no number depends on them. In self-attention, the keys
    # have the queries' labels.
    keys: Any = as_tokens(memory_tokens, Tk, "memory_tokens", "key")
    if keys is None and ("memory" in inputs or Tq != Tk):
        keys = ()  # keys without names; None would mean the queries' names
    # A given scale isn't computed from K: in this result's graph, it is an input.
    given = tuple(name for name in GIVEN if name in inputs)
    formulas = tuple(FORMULAS_WITH[name] for name in given if name in FORMULAS_WITH)
    run = Run(
        graph_of(result_class, formulas=formulas, given=given),
        inputs,
        scores_shape=scores_shape,
        tokens=as_tokens(tokens, Tq, "tokens", "query"),
        memory_tokens=keys,
        is_long=Tq > fast.SHORT,  # then steps are computed by blocks of rows, see `forward.fast`
    )
    # Nothing is computed yet: each step is computed when it is read.
    return result_class(Message(title), run)


def sample_dropout(
    shape: tuple[int, ...], p: float, rng: np.random.Generator, dtype: DTypeLike
) -> Array:
    """A dropout mask: 0 with probability p, else 1 / (1 - p).

    Source: "Dropout: A Simple Way to Prevent Neural Networks from Overfitting" (2014), section 10,
    the variant that scales during training.
    """
    kept = rng.random(shape, dtype=np.float32) >= p  # True with probability 1 - p
    # The factor keeps the expected value the same, so that a model without dropout needs no factor.
    return (kept / (1 - p)).astype(dtype)


def _as_mask(mask: ArrayLike | None, scores_shape: tuple[int, ...]) -> Mask:
    """The mask, broadcast to the last two axes of the scores."""
    if mask is None:
        return np.ones(scores_shape[-2:], dtype=bool)  # all keys are visible, as in an encoder
    array = np.array(as_array(mask, "mask"))  # a copy, as for all inputs
    # Libraries differ in what 1 means in a mask, so it isn't guessed.
    if array.dtype != bool:
        raise InvalidTypeError(
            "mask must be a boolean array, True = may attend, such as causal_mask(T); got "
            f"{array.dtype} of shape {array.shape}{_advice_on_mask(array)}"
        )
    return _for_scores(array, "mask", scores_shape)


def _advice_on_mask(mask: AnyArray) -> str:
    """Advice on a mask of numbers, which depends on its values; "" for other masks."""
    if mask.dtype.kind not in "iuf":  # NumPy's kinds of numbers
        return ""
    if np.isin(mask, (0, 1)).all() and mask.any():
        return ". Use mask == 1 if 1 means that a query may attend, mask == 0 if 1 hides a key"
    return ". If it is to be added to the scores, give it as bias= instead"


def _as_bias(bias: ArrayLike, scores_shape: tuple[int, ...], dtype: DTypeLike) -> Array:
    """The bias of the scores, broadcast to their last two axes; -inf hides a key."""
    with np.errstate(over="ignore"):  # float64's lowest number, often a bias, is -inf in float32
        array = np.array(as_floats(bias, "bias"), dtype)
    # With +inf, softmax would compute inf - inf, which is NaN; -inf just hides a key.
    if np.isnan(array).any() or np.isposinf(array).any():
        raise InvalidValueError("bias contains NaN or +inf")
    return _for_scores(array, "bias", scores_shape)


def _for_scores(array: AnyArray, name: str, scores_shape: tuple[int, ...]) -> AnyArray:
    """Broadcast an array to the last two axes of the scores, or raise."""
    try:
        # An array with more axes than the scores would enlarge the scores.
        if np.broadcast_shapes(array.shape, scores_shape) != scores_shape:
            raise ValueError
    except ValueError:
        hint = ""
        if array.ndim == 3 and len(scores_shape) == 4:
            hint = f". For one {name} per sequence, shared by its heads, give {name}[:, None]"
        raise InvalidValueError(
            f"{name} must broadcast to the scores' shape, {scores_shape}; got shape "
            f"{array.shape}{hint}"
        ) from None
    # Leading axes aren't broadcast, so that one mask for all heads isn't repeated in memory.
    return np.broadcast_to(array, (*array.shape[:-2], *scores_shape[-2:]))


def softmax(x: ArrayLike, axis: int = -1) -> Array:
    """Compute softmax over an axis, exp(x) / Σ exp(x); -inf gives a weight of exactly 0.

    Each row's maximum is subtracted first, so that no exponential overflows; it cancels out. A row
    is all numbers along the axis, by default the last axis.

    Source: "Attention Is All You Need" (2017), section 3.2.1; GPT-2's `model.py`, `softmax`.

    Raises
    ------
    InvalidValueError
        If a row is empty, is all -inf, or contains NaN or +inf
    """
    x = as_floats(x)
    axis = as_index(axis, "axis", x.ndim) if x.ndim else 0
    if x.ndim == 0 or x.shape[axis] == 0:
        raise InvalidValueError(f"x must have non-empty rows; got shape {x.shape}")
    x = np.moveaxis(x, axis, -1)  # a view; the equation works on the last axis
    # The maximum of a row with NaN is NaN, so this finds every invalid row.
    largest = x.max(axis=-1, keepdims=True)
    if not np.isfinite(largest).all():
        if np.isneginf(largest).any():
            raise InvalidValueError("x has a row of only -inf, whose softmax is undefined")
        raise InvalidValueError("x contains NaN or +inf")
    with np.errstate(over="ignore"):  # a huge difference becomes -inf, which has weight 0
        return np.moveaxis(equations.softmax(x), -1, axis)  # back in the order of x's axes


def layer_norm(x: ArrayLike, gain: ArrayLike, bias: ArrayLike, eps: float = 1e-5) -> Array:
    """Apply LayerNorm to the last axis, gain · (x - mean) / √(variance + eps) + bias.

    x is (..., D); gain and bias are (D,). The variance is biased: its divisor is D, not D - 1.

    Source: "Layer Normalization" (2016), equation 4; GPT-2's `model.py`, `norm`.
    """
    x, gain, bias = as_floats(x), as_floats(gain, "gain"), as_floats(bias, "bias")
    if x.ndim == 0 or x.shape[-1] == 0 or not (gain.shape == bias.shape == x.shape[-1:]):
        raise InvalidValueError(
            "layer_norm needs x of shape (..., D), gain and bias of shape (D,); got "
            f"{x.shape}, {gain.shape} and {bias.shape}"
        )
    eps = as_float(eps, "eps")  # a Python float, which doesn't turn float32 into float64
    try:
        # Without this, an infinite deviation would silently turn every number into 0.
        with np.errstate(over="raise"):
            return equations.layer_norm(x, gain, bias, eps)
    except FloatingPointError:
        raise overflow_error("layer_norm", np.result_type(x, gain, bias)) from None
