"""Faster versions of equations, for long texts.

Each function computes the same as its equation in `attnlab.equations`; tests check this. Up to
`SHORT` tokens, the equations themselves are as fast and are used instead. A parameter with a
default is a step that is passed only if it has already been computed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from attnlab import equations
from attnlab.equations import Activation, Array, Cache, Mask, mean, transpose

SHORT = 64  # the number of tokens of all texts together

# Queries per block: many make matrix products fast, few keep intermediates small and skip more of
# the keys that none of the block's queries may attend to.
ROWS = 128

# Rows per block of an activation function, so that intermediates stay in the processor's cache.
ACTIVATION_ROWS = 32  # 390 KB for F = 3,072 in float32


def affine(x: Array, W: Array, b: Array | None) -> Array:
    """Compute x W + b by one matrix product for all sequences, adding the bias in place."""
    rows = x.reshape(-1, x.shape[-1])  # (..., T, n) -> (m, n), the rows of all texts
    y: Array = (rows @ W).reshape(*x.shape[:-1], W.shape[-1])
    if b is not None:
        y += b  # in place, since y is a new array
    return y


def side_by_side(*parts: Array) -> Array:
    """Join the columns of k parts, (..., n) each, to one array, (..., k·n).

    The result is a view if the parts already lie side by side in memory: a checkpoint's W_Q, W_K
    and W_V are the thirds of one matrix, and copying them takes longer than a product with them.
    """
    first, *others = parts
    bytes_per_part = first.shape[-1] * first.strides[-1]  # from one part to the next, in a row
    expected_address = address_of(first)
    for part in others:
        expected_address += bytes_per_part
        is_like_first = part.shape == first.shape and part.strides == first.strides
        if not is_like_first or address_of(part) != expected_address:  # such as an edited W_Q
            return np.concatenate(parts, axis=-1)
    shape = (*first.shape[:-1], len(parts) * first.shape[-1])
    # NumPy has no other way to turn neighbours in memory into one array.
    return np.lib.stride_tricks.as_strided(first, shape, first.strides, writeable=False)


def address_of(array: Array) -> int:
    """The memory address of an array's first number."""
    return int(array.__array_interface__["data"][0])


def projections(
    X: Array,
    W_Q: Array,
    W_K: Array,
    W_V: Array,
    b_Q: Array,
    b_K: Array,
    b_V: Array,
    n_head: int,
    K_cache: Cache | None,
    V_cache: Cache | None,
) -> dict[str, Callable[[], Array]]:
    """Compute Q, K and V by one product instead of three; return a function for each.

    Source: GPT-2's `model.py`, `attn`, where the product is a convolution.
    """
    # x [W_Q W_K W_V] = [x W_Q, x W_K, x W_V], and a wide product uses the processor better.
    W = side_by_side(W_Q, W_K, W_V)  # (D, 3·H·Dh)
    b = np.concatenate([b_Q, b_K, b_V])  # (3·H·Dh,), few numbers, which are quick to copy
    project = affine if math.prod(X.shape[:-1]) > SHORT else equations.affine
    columns = project(X, W, b)  # (..., T, 3·H·Dh)
    # Views of one array, (..., H, T, Dh) each. `columns_of_head` takes the n-th of 3 equal parts.
    thirds = (equations.columns_of_head(columns, n, 3) for n in range(3))
    Q, K, V = (equations.split_heads(third, n_head) for third in thirds)
    # The functions delay `with_cached`, which writes K to the cache. If an edit replaces K, this K
    # must not overwrite the edited K in the cache.
    return {
        "Q": lambda: Q,
        "K": lambda: equations.with_cached(K_cache, K),
        "V": lambda: equations.with_cached(V_cache, V),
    }


def logits(final: Array, W_U: Array) -> Array:
    """Compute the logits of all sequences by one matrix product."""
    return affine(final, W_U, None)  # GPT-2's logits have no bias


def layer_norm(x: Array, gain: Array, bias: Array, epsilon: float) -> Array:
    """LayerNorm that allocates one array of x's size."""
    # All operations work in place: allocating an array of x's size takes longer than an operation.
    y: Array = x - mean(x)  # a new array, which the next lines change
    deviation: Array = mean(np.square(y))  # this is the variance until the square root is taken
    deviation += epsilon
    np.sqrt(deviation, out=deviation)
    y /= deviation
    y *= gain
    y += bias
    return y


def gelu(x: Array, out: Array) -> Array:
    """GPT-2's GELU, with one temporary array."""
    y: Array = np.square(x)
    y *= 0.044715
    y += 1.0
    y *= x  # x + 0.044715 x³, as in `tanh_argument`
    y *= math.sqrt(2.0 / math.pi)
    np.tanh(y, out=y)
    y += 1.0
    y *= 0.5  # y is now `gelu_factor`
    return np.multiply(x, y, out=out)


def activate(x: Array, activation: Activation, out: Array) -> Array:
    """Apply an activation function to a few rows at a time; `out` may be `x`."""
    for start in range(0, x.shape[-2], ACTIVATION_ROWS):
        rows = np.s_[..., start : start + ACTIVATION_ROWS, :]
        if activation is equations.gelu:  # only variants of GPT-2 have other activations
            gelu(x[rows], out=out[rows])
        else:
            out[rows] = activation(x[rows])
    return out


def activated(hidden: Array, activation: Activation) -> Array:
    """Apply an activation function into a new array."""
    return activate(hidden, activation, out=np.empty_like(hidden))


def mlp_output(
    X: Array,
    W_1: Array,
    b_1: Array,
    W_2: Array,
    b_2: Array,
    activation: Activation,
    activated: Array | None = None,
) -> Array:
    """The MLP's output, with one (T, F) array for both `hidden` and `activated`."""
    if activated is None:  # no user has read the step `activated`
        hidden = affine(X, W_1, b_1)
        activated = activate(hidden, activation, out=hidden)  # `hidden` itself isn't needed again
    return affine(activated, W_2, b_2)


def weights(
    Q: Array,
    K: Array,
    scale: float,
    mask: Mask,
    score_bias: Array | None,
    dropout_mask: Array | None,
) -> Array:
    """The weights, computed in one array by blocks of queries."""
    settings = Q, K, scale, mask, score_bias, dropout_mask
    blocks = [*row_blocks(mask)]  # pairs of slices: of queries, and of the keys that they need
    if len(blocks) == 1:  # there are at most ROWS queries
        rows, keys = blocks[0]
        if keys.stop == K.shape[-2]:  # a single block with all keys is the whole array
            return weights_of_rows(*settings, rows, keys)
    leading = np.broadcast_shapes(Q.shape[:-2], K.shape[:-2])
    # Zeros, since the weights of keys after a block's last visible key aren't computed.
    weights = np.zeros((*leading, Q.shape[-2], K.shape[-2]), np.result_type(Q, K))
    for rows, keys in blocks:
        weights[..., rows, keys] = weights_of_rows(*settings, rows, keys)
    return weights


def context(
    Q: Array,
    K: Array,
    V: Array,
    scale: float,
    mask: Mask,
    score_bias: Array | None,
    dropout_mask: Array | None,
    weights: Array | None = None,
) -> Array:
    """The context, computed by blocks of queries without keeping the weights."""
    # The weights of 12 heads take 50 MB for 1,024 tokens; those of a block take an eighth.
    leading = np.broadcast_shapes(Q.shape[:-2], K.shape[:-2], V.shape[:-2])
    # The memory layout is (T, H, Dh), so that concat needs no copy.
    shape = (*leading[:-1], Q.shape[-2], *leading[-1:], V.shape[-1])
    context = np.empty(shape, np.result_type(Q, K, V))  # every row is written below
    if leading:
        context = context.swapaxes(-3, -2)  # (..., H, Tq, Dv), a view
    for rows, keys in row_blocks(mask):
        if weights is None:
            block = weights_of_rows(Q, K, scale, mask, score_bias, dropout_mask, rows, keys)
        else:
            block = weights[..., rows, keys]  # already computed
        context[..., rows, :] = block @ V[..., keys, :]  # (..., rows, keys) (..., keys, Dv)
    return context


def row_blocks(mask: Mask) -> Iterator[tuple[slice, slice]]:
    """Yield blocks of queries, each with the keys up to the last key that a query attends to."""
    for start in range(0, mask.shape[-2], ROWS):
        rows = slice(start, start + ROWS)
        all_axes_but_keys = tuple(range(mask.ndim - 1))
        # Under a causal mask, the first 128 queries need only 128 keys: half of the work is saved.
        visible = np.flatnonzero(mask[..., rows, :].any(axis=all_axes_but_keys))
        yield rows, slice(0, int(visible[-1]) + 1)


def weights_of_rows(
    Q: Array,
    K: Array,
    scale: float,
    mask: Mask,
    score_bias: Array | None,
    dropout_mask: Array | None,
    rows: slice,
    keys: slice,
) -> Array:
    """The weights of a block of queries, computed in place."""
    block: Array = Q[..., rows, :] @ transpose(K[..., keys, :])  # (..., rows, keys)
    block /= scale  # now `scores`; the next lines turn them into `masked_scores`
    if score_bias is not None:
        block += score_bias[..., rows, keys]
    # The mask comes after the bias, so that a bias of +1e9 can't make a hidden key visible.
    np.copyto(block, -math.inf, where=~mask[..., rows, keys])
    block -= block.max(axis=-1, keepdims=True)  # softmax, as in `equations.softmax`
    np.exp(block, out=block)
    block /= block.sum(axis=-1, keepdims=True)
    if dropout_mask is not None:
        block *= dropout_mask[..., rows, keys]  # after softmax, so rows no longer sum to 1
    return block
