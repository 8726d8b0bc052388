"""GPT-2 on one page.

Each function computes one step of the forward pass from other steps, which are its parameters.
Where one function serves several steps (LayerNorm, an affine map, a residual connection), the
declarations in `attnlab.forward` say which steps its parameters are. `gpt2` is all of GPT-2.

Functions check nothing and modify nothing in place. Shapes are for one sequence: T tokens (Tq
queries, Tk keys), D = n_embd, H heads, F neurons of the MLP. A key has Dk and a value Dv
components, both Dh = D / H in GPT-2. Leading axes are batch axes. float32 arrays stay float32:
constants are Python floats, since `np.sqrt(64)` would turn every later array into float64.

Sources: "Attention Is All You Need" (2017), section 3.2; "Language Models are Unsupervised
Multitask Learners" (2019), section 2.3; GPT-2's `model.py`. The sources of variants of GPT-2 are
"Gaussian Error Linear Units" (2016), section 2, for all three GELUs and SiLU, and transformers'
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
    # A table look-up equals the product of a one-hot matrix (T, vocab) and W_E, but is faster.
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
# PyTorch calls gain and bias weight and bias; the paper calls them g and b, others γ and β.
# GPT-2 normalises before attention and before the MLP (pre-norm). The Transformer of 2017
# normalised after them. GPT-2's file has W_Q, W_K and W_V side by side; loading separates them.


def layer_norm(x: Array, gain: Array, bias: Array, epsilon: float) -> Array:
    return normalised(x, epsilon) * gain + bias  # (T, D)


def affine(x: Array, W: Array, b: Array | None) -> Array:
    # W is (in, out) here and in GPT-2's files. PyTorch's Linear has (out, in).
    return x @ W if b is None else x @ W + b  # (T, D) (D, H·Dh) -> (T, H·Dh)


def Q(X: Array, W_Q: Array, b_Q: Array | None, n_head: int) -> Array:
    return split_heads(affine(X, W_Q, b_Q), n_head)  # (H, Tq, Dk)


def K(memory: Array, W_K: Array, b_K: Array | None, n_head: int, K_cache: Cache | None) -> Array:
    # In self-attention, which GPT-2 has, memory is X.
    return with_cached(K_cache, split_heads(affine(memory, W_K, b_K), n_head))  # (H, Tk, Dk)


def V(memory: Array, W_V: Array, b_V: Array | None, n_head: int, V_cache: Cache | None) -> Array:
    return with_cached(V_cache, split_heads(affine(memory, W_V, b_V), n_head))  # (H, Tk, Dv)


def scale(K: Array) -> float:
    # A sum of Dk independent terms has Dk times the variance of a term: √Dk times the deviation.
    return math.sqrt(K.shape[-1])  # √Dk


def scale_of_layer(K: Array, divide_by_sqrt_d: bool, layer_number: int | None) -> float:
    # √Dk in GPT-2; layer_number is None except in variants that multiply by it.
    return (scale(K) if divide_by_sqrt_d else 1.0) * (layer_number or 1)


def raw_scores(Q: Array, K: Array) -> Array:
    # One dot product for each query and key. Numbers before a softmax are also called logits.
    return Q @ transpose(K)  # (H, Tq, Tk)


def scores(raw_scores: Array, scale: float) -> Array:
    return raw_scores / scale


def masked_scores(scores: Array, mask: Mask, score_bias: Array | None) -> Array:
    # -inf has the scores' dtype, so that float32 stays float32. GPT-2's own code subtracts 1e10
    # instead, which also gives weights of 0.
    return np.where(mask, biased(scores, score_bias), scores.dtype.type(-math.inf))


def weights(masked_scores: Array, dropout_mask: Array | None) -> Array:
    # The softmax runs over the keys: each query's weights, its attention pattern, sum to 1.
    return apply_dropout(softmax(masked_scores), dropout_mask)


def context(weights: Array, V: Array) -> Array:
    # Row i, often called z, is the mean of the rows of V, weighted by row i of the weights.
    return weights @ V  # (H, Tq, Dh)


def concat(context: Array) -> Array:
    return merge_heads(context)  # (Tq, H·Dh)


def head_output(context: Array, W_O: Array) -> Array:
    # W_O has only the head's rows here. concat times the layer's W_O is the sum over all heads.
    return context @ W_O  # (Tq, D)


# ---- the residual stream, and the MLP ------------------------------------------------------------
#
# attention.output = affine(concat, W_O, b_O)
# mid = residual(input, attention.output)
# mlp.X = layer_norm(mid, gain, bias, epsilon)
# mlp.hidden = affine(X, W_1, b_1), mlp.output = affine(activated, W_2, b_2)
# output = residual(mid, mlp.output)                    This is the next block's input.


def residual(stream: Array, update: Array) -> Array:
    # A skip connection: the gradient of the sum reaches earlier blocks unchanged.
    return stream + update  # (T, D)


def activated(hidden: Array, activation: Activation) -> Array:
    # The activation works on each number alone. The F columns are called the MLP's neurons.
    return activation(hidden)  # (T, F)


def gelu(x: Array) -> Array:  # GPT-2 uses this approximation with tanh
    return gelu_factor(x) * x


def gelu_factor(x: Array) -> Array:
    return 0.5 * (1.0 + gelu_tanh(x))


def gelu_tanh(x: Array) -> Array:
    return np.tanh(tanh_argument(x))


def tanh_argument(x: Array) -> Array:  # √(2/π) (x + 0.044715 x³)
    return math.sqrt(2.0 / math.pi) * ((1.0 + 0.044715 * np.square(x)) * x)


def exact_gelu(x: Array) -> Array:  # GPT-2's gelu differs by up to 5e-4
    return x * normal_cdf(x)


def normal_cdf(x: Array) -> Array:  # Φ(x), the normal CDF
    return 0.5 * (1.0 + erf(x / math.sqrt(2.0)))


def quick_gelu(x: Array) -> Array:  # differs from exact_gelu by up to 2e-2
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
    # "Weight tying": W_E also predicts tokens. W_U is also called the unembedding.
    return transpose(W_E)  # (D, vocab)


def logits(final: Array, W_U: Array) -> Array:
    return final @ W_U  # (T, vocab)


def next_logits(final: Array, W_U: Array) -> Array:
    # Row t predicts token t + 1, so only the last row matters for what comes next.
    return final[..., -1, :] @ W_U  # (vocab,)


def cross_entropy(logits: Array, targets: Ids) -> Array:
    if (targets < 0).any():  # NumPy would read -1 as the last token of the vocabulary
        raise IndexError("targets must be ids, from 0; got a negative one")
    return surprisal(softmax(logits), logits, targets)  # (T,)


def surprisal(probabilities: Array, logits: Array, targets: Ids) -> Array:
    # -log p[target]. p[target] may round to 0, but the largest p doesn't, so that is used:
    # log p[target] = log p[largest] - (logit[largest] - logit[target])
    target_logits = np.take_along_axis(logits, targets[..., None], -1)[..., 0]  # (T,)
    return (logits.max(axis=-1) - target_logits) - np.log(probabilities.max(axis=-1))


# ---- GPT-2, composed -----------------------------------------------------------------------------
#
# The library doesn't call `gpt2`: a trace runs the same equations one by one and keeps the steps.


def gpt2(
    ids: Ids,
    parameters: Mapping[str, Array],
    n_head: int,
    n_layer: int,
    epsilon: float = 1e-5,
    activation: Activation = gelu,
) -> Array:
    # In calls below, None stands for no dropout, no cached keys or values, and no score bias.
    p = parameters
    positions = np.arange(len(ids))
    mask = positions[:, None] >= positions  # (Tq, Tk): no token attends to later tokens
    # The residual stream (T, D), to which each block adds twice.
    stream = embedding(token_embedding(ids, p["W_E"]), position_embedding(positions, p["W_P"]))
    for n in range(n_layer):
        attention, mlp = f"blocks.{n}.attention", f"blocks.{n}.mlp"  # the parameters' paths
        X = layer_norm(stream, p[f"{attention}.gain"], p[f"{attention}.bias"], epsilon)
        q = Q(X, p[f"{attention}.W_Q"], p[f"{attention}.b_Q"], n_head)  # (H, T, Dh)
        k = K(X, p[f"{attention}.W_K"], p[f"{attention}.b_K"], n_head, None)
        v = V(X, p[f"{attention}.W_V"], p[f"{attention}.b_V"], n_head, None)
        # GPT-2 uses `scale`; variants that scale differently use `scale_of_layer`.
        allowed = masked_scores(scores(raw_scores(q, k), scale(k)), mask, None)  # (H, Tq, Tk)
        heads = concat(context(weights(allowed, None), v))  # (T, D), all contexts side by side
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
    # (..., H, Tq, Tk) -> (..., Tq, Tk). A mask that heads share lacks H, so it is broadcast first.
    shape = (*x.shape[:-3], n_head, *x.shape[-2:])
    return (x if x.shape == shape else np.broadcast_to(x, shape))[..., head, :, :]


def shared(x: Value, head: int, n_head: int) -> Value:
    return x  # the same for all heads


# ---- building blocks -----------------------------------------------------------------------------


def softmax(x: Array) -> Array:
    e = exponentials(x)
    return e / e.sum(axis=-1, keepdims=True)


def exponentials(x: Array) -> Array:
    return np.exp(x - x.max(axis=-1, keepdims=True))  # the maximum cancels; it prevents overflow


def mean(x: Array) -> Array:
    return x.sum(axis=-1, keepdims=True) / x.shape[-1]


def normalised(x: Array, epsilon: float) -> Array:
    centred = x - mean(x)
    return centred / deviation(centred, epsilon)


def deviation(centred: Array, epsilon: float) -> Array:
    return np.sqrt(mean(np.square(centred)) + epsilon)  # the mean divides by D, not by D - 1


def split_heads(x: Array, n_head: int) -> Array:
    # Head h has the Dh columns from h · Dh on. The axis of heads moves before T, since a matrix
    # product uses the last two axes: it is then one product for each head.
    width = x.shape[-1] // n_head
    return x.reshape(*x.shape[:-1], n_head, width).swapaxes(-3, -2)  # (T, H·Dh) -> (H, T, Dh)


def merge_heads(x: Array) -> Array:
    # This inverts `split_heads`.
    *leading, n_head, T, width = x.shape
    return x.swapaxes(-3, -2).reshape(*leading, T, n_head * width)  # (H, T, Dh) -> (T, H·Dh)


def transpose(x: Array) -> Array:
    return x.swapaxes(-2, -1)


def apply_dropout(x: Array, dropout_mask: Array | None) -> Array:
    # The mask is None outside of training; in training it has 0 or 1 / (1 - p) for each number.
    return x if dropout_mask is None else x * dropout_mask


def biased(scores: Array, score_bias: Array | None) -> Array:  # GPT-2 has no score bias
    return scores if score_bias is None else scores + score_bias


def identity(x: Any) -> Any:  # Any, since the declaration of a step says its type
    return x


class Cache(Protocol):
    """The cached keys or values of one layer."""

    def extend(self, new: Array) -> Array: ...


def with_cached(cache: Cache | None, new: Array) -> Array:
    return new if cache is None else cache.extend(new)  # the cached rows come first
