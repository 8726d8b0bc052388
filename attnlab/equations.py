"""GPT-2 on one page.

Each function computes one step of the forward pass; its parameters are the steps it needs. Where
one equation serves several steps (LayerNorm, an affine map, a residual connection), the
declarations in `attnlab.forward` say what its parameters are. `gpt2` is all of them in order.

Arrays in, arrays out; nothing is modified in place or checked. Shapes are for one sequence of T
tokens (Tq queries, Tk keys), D = n_embd, H heads, Dh = D / H, F the MLP's hidden width. Leading
axes are batch axes. float32 stays float32: constants are Python floats, since
`np.sqrt(64)` would turn every later array into float64.

Sources: "Attention Is All You Need" (2017), section 3.2; "Language Models are Unsupervised
Multitask Learners" (2019), section 2.3; GPT-2's `model.py`. For variants of GPT-2:
"Gaussian Error Linear Units" (2016), section 2, for all three GELUs and SiLU; transformers'
`modeling_gpt2.py` for `scale_of_layer`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from attnlab.erf import erf

Array: TypeAlias = NDArray[np.floating[Any]]
AnyArray: TypeAlias = NDArray[Any]
Ids: TypeAlias = NDArray[np.int64]
Mask: TypeAlias = NDArray[np.bool_]
Activation: TypeAlias = Callable[[Array], Array]
Value = TypeVar("Value")

# ---- from ids to the residual stream -------------------------------------------------------------


def token_embedding(ids: Ids, W_E: Array) -> Array:
    # A table look-up: the same as a one-hot matrix (T, vocab) times W_E, without the product.
    return W_E[ids]  # (T, D)


def position_embedding(positions: Ids, W_P: Array) -> Array:
    return W_P[positions]  # (T, D)


def embedding(token_embedding: Array, position_embedding: Array) -> Array:
    # Added, not concatenated: the model learns to keep the two apart within D components.
    return token_embedding + position_embedding  # (T, D)


# ---- a block's attention -------------------------------------------------------------------------
#
# X = layer_norm(input, gain, bias, epsilon)
#
# PyTorch calls gain and bias the weight and bias of LayerNorm; the paper, g and b (others γ and β).
# GPT-2 normalises before attention and before the MLP (pre-norm), the Transformer of 2017 after.
#
# GPT-2's file has W_Q, W_K and W_V side by side in one matrix; here they are three matrices.


def layer_norm(x: Array, gain: Array, bias: Array, epsilon: float) -> Array:
    return normalised(x, epsilon) * gain + bias  # (T, D)


def affine(x: Array, W: Array, b: Array | None) -> Array:
    # PyTorch calls it Linear. There W is (out, in); in GPT-2's files and here it is (in, out).
    return x @ W if b is None else x @ W + b  # (T, D) (D, H·Dh) -> (T, H·Dh)


def Q(X: Array, W_Q: Array, b_Q: Array | None, n_head: int) -> Array:
    return split_heads(affine(X, W_Q, b_Q), n_head)  # (H, Tq, Dk)


def K(memory: Array, W_K: Array, b_K: Array | None, n_head: int, K_cache: Cache | None) -> Array:
    # In self-attention, which GPT-2 has, memory is X.
    return with_cached(K_cache, split_heads(affine(memory, W_K, b_K), n_head))  # (H, Tk, Dk)


def V(memory: Array, W_V: Array, b_V: Array | None, n_head: int, V_cache: Cache | None) -> Array:
    return with_cached(V_cache, split_heads(affine(memory, W_V, b_V), n_head))  # (H, Tk, Dv)


def scale(K: Array) -> float:
    # The variance of a dot product of Dk independent terms is Dk times that of one term.
    return math.sqrt(K.shape[-1])  # √Dk


def scale_of_layer(K: Array, divide_by_sqrt_d: bool, layer_number: int | None) -> float:
    return (scale(K) if divide_by_sqrt_d else 1.0) * (layer_number or 1)  # √Dk in GPT-2


def raw_scores(Q: Array, K: Array) -> Array:
    # One dot product for each query and key. Before the softmax they are also called logits.
    return Q @ transpose(K)  # (H, Tq, Tk)


def scores(raw_scores: Array, scale: float) -> Array:
    return raw_scores / scale


def masked_scores(scores: Array, mask: Mask, score_bias: Array | None) -> Array:
    # GPT-2's own code subtracts 1e10 instead, which also ends as a weight of 0.
    return np.where(mask, biased(scores, score_bias), scores.dtype.type(-math.inf))


def weights(masked_scores: Array, dropout_mask: Array | None) -> Array:
    # Over the last axis, the keys: each query's weights sum to 1. Also called attention pattern.
    return apply_dropout(softmax(masked_scores), dropout_mask)


def context(weights: Array, V: Array) -> Array:
    # Row i is the mean of the rows of V, weighted by row i of the weights. Often called z.
    return weights @ V  # (H, Tq, Dh)


def concat(context: Array) -> Array:
    return merge_heads(context)  # (Tq, H·Dh)


def head_output(context: Array, W_O: Array) -> Array:
    # concat W_O is the sum of these over all heads: each head's context meets its own rows of W_O.
    return context @ W_O  # (Tq, D), one head's contribution


# ---- the residual stream, and the MLP ------------------------------------------------------------
#
# output = affine(concat, W_O, b_O)                     of the attention
# mid = residual(input, attention.output)
# X = layer_norm(mid, gain, bias, epsilon)              of the MLP
# hidden = affine(X, W_1, b_1), output = affine(activated, W_2, b_2)
# output = residual(mid, mlp.output)                    of the block, the next block's input


def residual(stream: Array, update: Array) -> Array:
    # A skip connection: the gradient of the sum reaches earlier blocks unchanged.
    return stream + update  # (T, D)


def activated(hidden: Array, activation: Activation) -> Array:
    # Applied to each number alone; the columns are called the neurons of the MLP.
    return activation(hidden)  # (T, F)


def gelu(x: Array) -> Array:  # GPT-2's: the tanh approximation
    return gelu_factor(x) * x


def gelu_factor(x: Array) -> Array:
    return 0.5 * (1.0 + gelu_tanh(x))


def gelu_tanh(x: Array) -> Array:
    return np.tanh(tanh_argument(x))


def tanh_argument(x: Array) -> Array:  # √(2/π) (x + 0.044715 x³)
    return math.sqrt(2.0 / math.pi) * ((1.0 + 0.044715 * np.square(x)) * x)


def exact_gelu(x: Array) -> Array:  # GPT-2's approximation differs by up to 5e-4
    return x * normal_cdf(x)


def normal_cdf(x: Array) -> Array:  # Φ(x), the normal CDF
    return 0.5 * (1.0 + erf(x / math.sqrt(2.0)))


def quick_gelu(x: Array) -> Array:  # an approximation, off by up to 2e-2
    return x * quick_gelu_factor(x)


def quick_gelu_factor(x: Array) -> Array:
    return sigmoid(1.702 * x)


def silu(x: Array) -> Array:  # also called swish
    return x * sigmoid(x)


def relu(x: Array) -> Array:
    return np.maximum(x, 0.0)


def sigmoid(x: Array) -> Array:  # 1 / (1 + exp(-x)), without overflow
    return 0.5 * (1.0 + np.tanh(0.5 * x))


# ---- from the residual stream to the next token --------------------------------------------------
#
# final = layer_norm(output of the last block, gain, bias, epsilon)


def W_U(W_E: Array) -> Array:
    # "Weight tying": W_E both reads tokens and predicts them. W_U is also called unembedding.
    return transpose(W_E)  # (D, vocab)


def logits(final: Array, W_U: Array) -> Array:
    return final @ W_U  # (T, vocab)


def next_logits(final: Array, W_U: Array) -> Array:
    # Row t predicts token t + 1, so only the last row matters for what comes next.
    return final[..., -1, :] @ W_U  # (vocab,)


def cross_entropy(logits: Array, targets: Ids) -> Array:
    if (targets < 0).any():  # NumPy would count -1 from the end: the last token of the vocabulary
        raise IndexError("targets must be ids, from 0; got a negative one")
    return surprisal(softmax(logits), logits, targets)  # (T,)


def surprisal(probabilities: Array, logits: Array, targets: Ids) -> Array:
    # -log p[target], computed from the largest p, since the target's p may round to 0:
    # log p[target] = log p[largest] - (logit[largest] - logit[target])
    gap = logits.max(axis=-1) - np.take_along_axis(logits, targets[..., None], -1)[..., 0]
    return gap - np.log(probabilities.max(axis=-1))


# ---- GPT-2, composed -----------------------------------------------------------------------------
#
# The library doesn't call this: a trace runs the same equations one by one, and keeps every step.


def gpt2(
    ids: Ids,
    parameters: Mapping[str, Array],
    n_head: int,
    n_layer: int,
    epsilon: float = 1e-5,
    activation: Activation = gelu,
) -> Array:
    # Below, None means no dropout, no cached keys and values, or no bias of the scores.
    p, positions = parameters, np.arange(len(ids))
    mask = positions[:, None] >= positions  # (Tq, Tk): a token attends to itself and earlier ones
    by_token, by_position = token_embedding(ids, p["W_E"]), position_embedding(positions, p["W_P"])
    stream = embedding(by_token, by_position)  # (T, D); each block adds to it twice
    for n in range(n_layer):
        attention, mlp = f"blocks.{n}.attention", f"blocks.{n}.mlp"
        X = layer_norm(stream, p[f"{attention}.gain"], p[f"{attention}.bias"], epsilon)
        q = Q(X, p[f"{attention}.W_Q"], p[f"{attention}.b_Q"], n_head)  # (H, T, Dh)
        k = K(X, p[f"{attention}.W_K"], p[f"{attention}.b_K"], n_head, None)
        v = V(X, p[f"{attention}.W_V"], p[f"{attention}.b_V"], n_head, None)
        # `scale` applies in GPT-2; `scale_of_layer`, in variants that scale differently.
        allowed = masked_scores(scores(raw_scores(q, k), scale(k)), mask, None)  # (H, Tq, Tk)
        heads = concat(context(weights(allowed, None), v))  # (T, D), the heads side by side
        update = affine(heads, p[f"{attention}.W_O"], p[f"{attention}.b_O"])
        mid = residual(stream, update)
        X = layer_norm(mid, p[f"{mlp}.gain"], p[f"{mlp}.bias"], epsilon)
        hidden = affine(X, p[f"{mlp}.W_1"], p[f"{mlp}.b_1"])  # (T, F)
        update = affine(activated(hidden, activation), p[f"{mlp}.W_2"], p[f"{mlp}.b_2"])
        stream = residual(mid, update)
    final = layer_norm(stream, p["gain"], p["bias"], epsilon)
    return logits(final, W_U(p["W_E"]))  # (T, vocab)


# ---- one head of a multi-head step ---------------------------------------------------------------


def columns_of_head(x: Array, head: int, n_head: int) -> Array:
    width = x.shape[-1] // n_head
    return x[..., head * width : (head + 1) * width]  # (..., H·Dh) -> (..., Dh)


def rows_of_head(W_O: Array, head: int, n_head: int) -> Array:
    width = W_O.shape[0] // n_head
    return W_O[head * width : (head + 1) * width]  # (H·Dv, D) -> (Dv, D)


def head_slice(x: AnyArray, head: int, n_head: int) -> AnyArray:
    # (..., H, Tq, Tk) -> (..., Tq, Tk)
    shape = (*x.shape[:-3], n_head, *x.shape[-2:])  # heads may share one mask
    return (x if x.shape == shape else np.broadcast_to(x, shape))[..., head, :, :]


def shared(x: Value, head: int, n_head: int) -> Value:
    return x  # the same for all heads


# ---- building blocks -----------------------------------------------------------------------------


def softmax(x: Array) -> Array:
    e = exponentials(x)
    return e / e.sum(axis=-1, keepdims=True)


def exponentials(x: Array) -> Array:
    return np.exp(x - x.max(axis=-1, keepdims=True))  # cancels in the softmax; prevents overflow


def mean(x: Array) -> Array:
    return x.sum(axis=-1, keepdims=True) / x.shape[-1]


def normalised(x: Array, epsilon: float) -> Array:
    centred = x - mean(x)
    return centred / deviation(centred, epsilon)


def deviation(centred: Array, epsilon: float) -> Array:
    return np.sqrt(mean(np.square(centred)) + epsilon)  # mean over D, not D - 1


def split_heads(x: Array, n_head: int) -> Array:
    # Head h has the columns that begin at h · Dh. The axis of heads moves before T, so that a
    # matrix product of the last two axes is one product for each head.
    width = x.shape[-1] // n_head
    return x.reshape(*x.shape[:-1], n_head, width).swapaxes(-3, -2)  # (T, H·Dh) -> (H, T, Dh)


def merge_heads(x: Array) -> Array:
    # The inverse of `split_heads`.
    *leading, n_head, T, width = x.shape
    return x.swapaxes(-3, -2).reshape(*leading, T, n_head * width)  # (H, T, Dh) -> (T, H·Dh)


def transpose(x: Array) -> Array:
    return x.swapaxes(-2, -1)


def apply_dropout(x: Array, dropout_mask: Array | None) -> Array:
    # The mask is None outside of training, when a model uses all weights.
    return x if dropout_mask is None else x * dropout_mask  # 0 or 1 / (1 - p)


def biased(scores: Array, score_bias: Array | None) -> Array:  # GPT-2 has no bias here
    return scores if score_bias is None else scores + score_bias


def identity(x: Any) -> Any:  # type checkers take the type from the step's declaration
    return x


class Cache(Protocol):
    """The cached keys or values of one layer."""

    def extend(self, new: Array) -> Array: ...


def with_cached(cache: Cache | None, new: Array) -> Array:
    return new if cache is None else cache.extend(new)  # cached rows first
