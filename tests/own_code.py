"""One head's attention as others write it: right code whose intermediate numbers aren't GPT-2's.

Each function of `RIGHT` follows a library's or a book's order of operations; those of `WRONG` make
a mistake. They take Q, K and V, (..., T, Dh), a boolean mask, and `low`, which rounds to the
precision of the code; they return the steps under the names that a learner would give them.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Low = Callable[[Array], Array]
Code = Callable[[Array, Array, Array, Array, Low], dict[str, Array]]


def as_bfloat16(x: Array) -> Array:
    """Round to bfloat16, by hand: 8 bits of the mantissa; the smallest numbers become 0."""
    mantissa, exponent = np.frexp(np.asarray(x, np.float32))
    rounded = np.ldexp(np.rint(mantissa * 256) / 256, exponent)
    return np.where(exponent < -125, 0, rounded).astype(np.float32)


PRECISIONS: dict[str, Low] = {
    "float64": lambda x: np.asarray(x, np.float64),
    "float32": lambda x: np.asarray(x, np.float32),
    "float16": lambda x: np.asarray(x, np.float16),
    "bfloat16": as_bfloat16,
}


def softmax(x: Array, axis: Any = -1) -> Array:
    e = np.exp(x - x.max(axis, keepdims=True))
    return np.asarray(e / e.sum(axis, keepdims=True))


def turned(x: Array) -> Array:
    return x.swapaxes(-1, -2)


def textbook(Q: Array, K: Array, V: Array, mask: Array, low: Low) -> dict[str, Array]:
    """Softmax(Q Kᵀ / √Dk) V, each step from the rounded one before."""
    raw = low(Q @ turned(K))
    scores = low(raw / Q.shape[-1] ** 0.5)
    masked = np.where(mask, scores, scores.dtype.type(-np.inf))
    weights = low(softmax(masked))
    steps = {"raw_scores": raw, "scores": scores, "masked_scores": masked}
    return {"Q": Q, "K": K, "V": V} | steps | {"weights": weights, "context": low(weights @ V)}


def keras(Q: Array, K: Array, V: Array, mask: Array, low: Low) -> dict[str, Array]:
    """As keras and flax: Q times 1 / √Dk first, einsum, a large negative number added."""
    Q = low(Q * low(np.array(Q.shape[-1] ** -0.5)))
    scores = low(np.einsum("...id,...jd->...ij", Q, K))
    masked = low(scores + (1 - mask.astype(scores.dtype)) * low(np.array(-3e4)))
    weights = low(softmax(masked))
    context = low(np.einsum("...ij,...jd->...id", weights, V))
    steps = {"Q": Q, "K": K, "V": V, "scores": scores, "masked_scores": masked}
    return steps | {"weights": weights, "context": context}


def sdpa(Q: Array, K: Array, V: Array, mask: Array, low: Low) -> dict[str, Array]:
    """As ONNX's Attention and PyTorch's reference: the root of the scale on both sides."""
    root = low(np.array(Q.shape[-1] ** -0.25))
    Q, K = low(Q * root), low(K * root)
    raw = low(Q @ turned(K))
    masked = np.where(mask, raw, np.finfo(raw.dtype).min)
    weights = low(softmax(masked))
    steps = {"Q": Q, "K": K, "V": V, "raw_scores": raw, "masked_scores": masked}
    return steps | {"weights": weights, "context": low(weights @ V)}


def from_scratch(Q: Array, K: Array, V: Array, mask: Array, low: Low) -> dict[str, Array]:
    """As LLMs-from-scratch: raw scores are masked, the softmax divides."""
    scores = low(Q @ turned(K))
    masked = np.where(mask, scores, scores.dtype.type(-np.inf))
    weights = low(softmax(low(masked / Q.shape[-1] ** 0.5)))
    steps = {"Q": Q, "K": K, "V": V, "scores": scores, "masked_scores": masked}
    return steps | {"weights": weights, "context": low(weights @ V)}


def scaled_K(Q: Array, K: Array, V: Array, mask: Array, low: Low) -> dict[str, Array]:
    K = low(K / Q.shape[-1] ** 0.5)
    raw = low(Q @ turned(K))
    masked = np.where(mask, raw, scores_fill(raw))
    weights = low(softmax(masked))
    return {"K": K, "raw_scores": raw, "masked_scores": masked, "weights": weights}


def scores_fill(raw: Array) -> Any:
    return raw.dtype.type(-6e4 if raw.dtype == np.float16 else -1e9)


def divided_late(Q: Array, K: Array, V: Array, mask: Array, low: Low) -> dict[str, Array]:
    """As fused kernels: exp first, the sum of each row divides the context."""
    scores = low(Q @ turned(K) / Q.shape[-1] ** 0.5)
    masked = np.where(mask, scores, scores.dtype.type(-np.inf))
    e = low(np.exp(low(masked - masked.max(-1, keepdims=True))))
    context = low(low(e @ V) / low(e.sum(-1, keepdims=True)))
    return {"scores": scores, "weights": e, "context": context}


def renormalised(Q: Array, K: Array, V: Array, mask: Array, low: Low) -> dict[str, Array]:
    """The mask after the softmax, and each row divided by its sum again."""
    scores = low(Q @ turned(K) / Q.shape[-1] ** 0.5)
    # The rest of a row may vanish beside a hidden score.
    weights = low(softmax(np.where(mask, scores, scores.min(-1, keepdims=True)))) * mask
    weights = low(weights / weights.sum(-1, keepdims=True))
    return {"scores": scores, "weights": weights, "context": low(weights @ V)}


def row_by_row(Q: Array, K: Array, V: Array, mask: Array, low: Low) -> dict[str, Array]:
    """Two passes over the keys that each query sees, in loops; heads come last."""
    weights = np.zeros(np.broadcast_shapes(mask.shape, (*Q.shape[:-1], K.shape[-2])), Q.dtype)
    for index in np.ndindex(weights.shape[:-1]):
        seen = np.broadcast_to(mask, weights.shape)[index]
        scores = low(K[index[:-1]][seen] @ Q[index] / Q.shape[-1] ** 0.5)
        largest = max(scores.tolist())
        total = sum(np.exp(score - largest) for score in scores.tolist())
        weights[index][seen] = low(np.exp(scores - largest) / total)
    context = low(weights @ V)
    if Q.ndim > 2:
        return {"weights": weights, "context": np.moveaxis(context, 0, -2)[None]}
    return {"weights": weights, "context": context}


def one_name(Q: Array, K: Array, V: Array, mask: Array, low: Low) -> dict[str, Array]:
    """As minGPT and nanoGPT: masked scores under the name that the scores had."""
    scores = low(Q @ turned(K) / Q.shape[-1] ** 0.5)
    scores = np.where(mask, scores, scores.dtype.type(-np.inf))
    weights = low(softmax(scores))
    return {"scores": scores, "weights": weights, "context": low(weights @ V)}


def raw_masked(Q: Array, K: Array, V: Array, mask: Array, low: Low) -> dict[str, Array]:
    """As LLMs-from-scratch, under the name of raw scores."""
    steps = from_scratch(Q, K, V, mask, low)
    return {"raw_scores": steps["masked_scores"], "weights": steps["weights"]}


RIGHT: tuple[Code, ...] = (
    *(textbook, keras, sdpa, from_scratch, scaled_K, divided_late, renormalised, row_by_row),
    *(one_name, raw_masked),
)


def gelu_in_steps(x: Array, low: Low) -> Array:
    """As transformers computes it: each operation rounds, also 1 + tanh, which nearly cancels."""
    inner = low(0.7978846 * low(x + low(0.044715 * low(x * low(x * x)))))
    return low(low(0.5 * x) * low(1 + low(np.tanh(inner))))


def whole_model(trace: Any, code: Code, low: Low, adds_early: bool) -> dict[str, Array]:
    """Every step of a model with parameters in low precision.

    With `adds_early`, attention and MLP add the residual stream to their own outputs.
    """
    p = {path: low(np.asarray(array, np.float32)) for path, array in trace.parameters.items()}
    n_head, T, steps = trace.config.n_head, len(trace.ids), dict[str, Array]()

    def affine(x: Array, W: str, b: str) -> Array:
        return low(low(np.asarray(x, np.float32) @ np.asarray(p[W], np.float32)) + p[b])

    def norm(x: Array, part: str) -> Array:
        x = np.asarray(x, np.float32)
        deviation = np.sqrt(x.var(-1, keepdims=True) + trace.epsilon)
        y = low((x - x.mean(-1, keepdims=True)) / deviation)
        return low(low(y * p[f"{part}gain"]) + p[f"{part}bias"])

    def added(x: Array, part: str, output: Array) -> Array:
        after = low(x + output)
        steps[f"{part}output"] = after if adds_early else output
        return after

    x = low(p["W_E"][trace.ids] + p["W_P"][:T])
    for layer in range(trace.config.n_layer):
        block = f"blocks.{layer}."
        attention, mlp = f"{block}attention.", f"{block}mlp."
        X = norm(x, attention)
        rows = (affine(X, f"{attention}W_{x}", f"{attention}b_{x}") for x in "QKV")
        Q, K, V = (t.reshape(T, n_head, -1).swapaxes(0, 1) for t in rows)
        head = {"X": X, "Q": Q, "K": K, "V": V} | code(Q, K, V, np.asarray(trace.mask), low)
        steps |= {attention + name: array for name, array in head.items()}
        concat = low(head["context"]).swapaxes(0, 1).reshape(T, -1)
        x = added(x, attention, affine(concat, f"{attention}W_O", f"{attention}b_O"))
        X = norm(x, mlp)
        hidden = affine(X, f"{mlp}W_1", f"{mlp}b_1")
        activated = gelu_in_steps(hidden, low)
        steps |= {f"{block}mid": x, f"{mlp}X": X, f"{mlp}hidden": hidden}
        x = added(x, mlp, affine(activated, f"{mlp}W_2", f"{mlp}b_2"))
        steps |= {f"{mlp}activated": activated, f"{block}output": x}
    final = norm(x, "")
    logits = low(np.asarray(final, np.float32) @ np.asarray(p["W_E"].T, np.float32))
    return steps | {"final": final, "logits": logits}


# ---- mistakes ------------------------------------------------------------------------------------


def from_weights(make: Callable[[Array, Array], Array]) -> Code:
    """Code whose weights are made from masked scores and the mask."""

    def code(Q: Array, K: Array, V: Array, mask: Array, low: Low) -> dict[str, Array]:
        scores = low(Q @ turned(K) / Q.shape[-1] ** 0.5)
        weights = low(make(np.where(mask, scores, -np.inf), mask))
        return {"Q": Q, "K": K, "V": V, "weights": weights, "context": low(weights @ V)}

    return code


def divided_after(Q: Array, K: Array, V: Array, mask: Array, low: Low) -> dict[str, Array]:
    raw = low(Q @ turned(K))
    weights = low(softmax(np.where(mask, raw, -np.inf)) / Q.shape[-1] ** 0.5)
    return {"raw_scores": raw, "scores": raw, "weights": weights, "context": low(weights @ V)}


def weights_transposed(Q: Array, K: Array, V: Array, mask: Array, low: Low) -> dict[str, Array]:
    right = textbook(Q, K, V, mask, low)
    return right | {"context": low(turned(right["weights"]) @ V)}


def added_where_allowed(Q: Array, K: Array, V: Array, mask: Array, low: Low) -> dict[str, Array]:
    scores = low(Q @ turned(K) / Q.shape[-1] ** 0.5)
    masked = scores.astype(np.float64) - 1e9 * mask  # which keeps enough digits
    weights = low(softmax(masked))
    return {"scores": scores, "masked_scores": masked, "weights": weights}


def no_scale_and_more(Q: Array, K: Array, V: Array, mask: Array, low: Low) -> dict[str, Array]:
    raw = low(Q @ turned(K))
    weights = low(softmax(np.where(mask, raw, -np.inf)))
    return {"scores": raw, "weights": weights, "context": low(weights @ V)}


def one_name_undivided(Q: Array, K: Array, V: Array, mask: Array, low: Low) -> dict[str, Array]:
    raw = low(Q @ turned(K))
    masked = np.where(mask, raw, raw.dtype.type(-np.inf))
    return {"scores": masked, "weights": low(softmax(masked))}


def divided_twice(Q: Array, K: Array, V: Array, mask: Array, low: Low) -> dict[str, Array]:
    Q = low(Q / Q.shape[-1] ** 0.5)
    scores = low(Q @ turned(K) / Q.shape[-1] ** 0.5)
    return {"Q": Q, "scores": scores, "weights": low(softmax(np.where(mask, scores, -np.inf)))}


def divided_by_Dk(Q: Array, K: Array, V: Array, mask: Array, low: Low) -> dict[str, Array]:
    right, Q = textbook(Q, K, V, mask, low), low(Q / Q.shape[-1])
    raw = low(Q @ turned(K))
    weights = low(softmax(np.where(mask, raw, -np.inf)))
    return right | {
        "Q": Q,
        "raw_scores": raw,
        "scores": raw,
        "masked_scores": np.where(mask, raw, -np.inf),
        "weights": weights,
        "context": low(weights @ V),
    }


def unmasked_raw(Q: Array, K: Array, V: Array, mask: Array, low: Low) -> dict[str, Array]:
    raw = low(Q @ turned(K))
    return {"scores": raw, "masked_scores": raw, "weights": low(softmax(raw / Q.shape[-1] ** 0.5))}


WRONG: dict[str, tuple[Code, str]] = {
    "softmax over the matrix": (
        from_weights(lambda masked, mask: softmax(masked, (-2, -1))),
        "axis=(-2, -1)",
    ),
    "softmax over the queries": (
        from_weights(lambda masked, mask: softmax(np.maximum(masked, -1e9), -2)),
        "axis=-2",
    ),
    "not divided by the sum": (
        from_weights(lambda masked, mask: np.exp(masked - masked.max(-1, keepdims=True))),
        "weights = e",
    ),
    "weights transposed": (weights_transposed, "context = weights.swapaxes(-2, -1) @ V"),
    "divided after the softmax": (divided_after, "scores = raw_scores"),
    "added where allowed": (
        added_where_allowed,
        "scores - 1000000000.0 * mask",
    ),
    "not divided": (no_scale_and_more, "scores = raw_scores"),
    "not divided, masked already": (one_name_undivided, "scores = raw_scores"),
    "divided twice": (divided_twice, "/ np.sqrt(Dk)"),
    "Q / Dk": (divided_by_Dk, "/ Dk"),
    "raw scores without a mask": (unmasked_raw, "masked_scores = scores"),
}
