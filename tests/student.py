"""A student's GPT-2 in plain NumPy, and the mistakes that a student makes in it.

It follows GPT-2's description, not attnlab, and differs in style: one matrix for Q, K and V, and
einsum. A mistake replaces some of its text. `MISTAKES` are those that `attnlab.check` must name,
each with words of the code that it reports; `OTHERS` are mistakes that it doesn't know.
"""

from functools import cache
from math import erf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlab.forward.parameters import stored_shapes

Array = NDArray[Any]

SOURCE = """
def norm(x, part):
    mean = x.mean(-1, keepdims=True)
    c = x - mean
    v = (c * c).mean(-1, keepdims=True)
    return c / np.sqrt(v + eps) * p[part + "gain"] + p[part + "bias"]

def gelu(x):
    return x * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x * x * x))) / 2

steps = {}
T, D = len(ids), p["W_E"].shape[1]
Dh, i, j = D // H, np.arange(T)[:, None], np.arange(T)
positions = np.arange(T)
token, position = p["W_E"][ids], p["W_P"][positions]
x = token + position
steps |= {"token_embedding": token, "position_embedding": position, "embedding": x}
for n in range(L):
    a, m = f"blocks.{n}.attention.", f"blocks.{n}.mlp."
    steps[f"blocks.{n}.input"] = x
    X = norm(x, a)
    QKV = X @ p[a + "W_QKV"] + p[a + "b_QKV"]
    Q, K, V = np.split(QKV, 3, axis=1)
    Q, K, V = (part.reshape(T, H, Dh).transpose(1, 0, 2) for part in (Q, K, V))
    raw = np.einsum("hid,hjd->hij", Q, K)
    scores = raw / Dh**0.5
    future = j > i
    masked = np.where(future, -np.inf, scores)
    e = np.exp(masked - masked.max(-1, keepdims=True))
    w = e / e.sum(-1, keepdims=True)
    context = np.einsum("hij,hjd->hid", w, V)
    concat = context.transpose(1, 0, 2).reshape(T, D)
    out = concat @ p[a + "W_O"] + p[a + "b_O"]
    steps |= {a + "X": X, a + "Q": Q, a + "K": K, a + "V": V, a + "raw_scores": raw}
    steps |= {a + "scores": scores, a + "masked_scores": masked, a + "weights": w}
    steps |= {a + "context": context, a + "concat": concat, a + "output": out}
    mid = x + out
    Y = norm(mid, m)
    hidden = Y @ p[m + "W_1"] + p[m + "b_1"]
    act = gelu(hidden)
    up = act @ p[m + "W_2"] + p[m + "b_2"]
    after = mid + up
    steps |= {f"blocks.{n}.mid": mid, m + "X": Y, m + "hidden": hidden, m + "activated": act}
    steps |= {m + "output": up, f"blocks.{n}.output": after}
    x = after
final = norm(x, "")
logits = final @ (p["W_E"].T if "W_U" not in p else p["W_U"])
steps |= {"final": final, "logits": logits}
"""

DIVISION, SPLIT, MASK = "raw / Dh**0.5", "part.reshape(T, H, Dh).transpose(1, 0, 2)", "j > i"
FILL = "np.where(future, -np.inf, scores)"
SOFTMAX, MERGE = "w = e / e.sum(-1, keepdims=True)", "context.transpose(1, 0, 2).reshape(T, D)"
HEADS, RAW = "for part in (Q, K, V))", 'np.einsum("hid,hjd->hij", Q, K)'
NORM, CENTRED = "c / np.sqrt(v + eps)", "c / np.sqrt("
GAIN, BIAS = ' * p[part + "gain"]', ' + p[part + "bias"]'

# By name: words of the code that is reported, and what is replaced by what, in pairs.
MISTAKES: dict[str, tuple[str, ...]] = {
    # scores
    "no_scale": ("scores = raw_scores", DIVISION, "raw"),
    "scale_D": ("scores = raw_scores / np.sqrt(D)", DIVISION, "raw / D**0.5"),
    "scale_Dk": ("scores = raw_scores / Dk", DIVISION, "raw / Dh"),
    "scale_H": ("scores = raw_scores / np.sqrt(H)", DIVISION, "raw / H**0.5"),
    "scale_T": ("scores = raw_scores / np.sqrt(T)", DIVISION, "raw / T**0.5"),
    "scale_8": ("raw_scores / 8.0", DIVISION, "raw / 8"),
    "scale_2": ("raw_scores / np.sqrt(Dk) / 2", DIVISION, "raw / Dh**0.5 / 2"),
    "scale_multiplied": ("scores = raw_scores * np.sqrt(Dk)", DIVISION, "raw * Dh**0.5"),
    "scale_inverted": ("scores = np.sqrt(Dk) / raw_scores", DIVISION, "Dh**0.5 / raw"),
    "scale_subtracted": ("scores = raw_scores - np.sqrt(Dk)", DIVISION, "raw - Dh**0.5"),
    "scores_negative": ("scores = -", DIVISION, "-raw / Dh**0.5"),
    "scores_squared": ("** 2", DIVISION, "(raw / Dh**0.5) ** 2"),
    "keys_by_queries": ("swapaxes", RAW, 'np.einsum("hid,hjd->hij", K, Q)'),
    "keys_reshaped": ("K.reshape(", RAW, "np.stack([q @ k.reshape(Dh, T) for q, k in zip(Q, K)])"),
    "queries_by_queries": ("Q @ Q.swapaxes", RAW, 'np.einsum("hid,hjd->hij", Q, Q)'),
    "keys_by_keys": ("K @ K.swapaxes", RAW, 'np.einsum("hid,hjd->hij", K, K)'),
    "values_for_keys": ("Q @ V.swapaxes", RAW, 'np.einsum("hid,hjd->hij", Q, V)'),
    "cosine": (
        "np.linalg.norm(",
        RAW,
        RAW + "; raw = raw / np.linalg.norm(raw, axis=-1, keepdims=True)",
    ),
    # the mask
    "no_mask": ("masked_scores = scores", FILL, "scores"),
    "mask_zero": ("np.where(mask, scores, 0.0)", FILL, "np.where(future, 0, scores)"),
    "mask_upper": ("np.where(mask.swapaxes(-2, -1), ", MASK, "j < i"),
    "mask_not": ("np.where(~mask, scores", MASK, "j <= i", "-np.inf, scores", "-1e9, scores"),
    "mask_ahead": ("np.tri(T, k=1", MASK, "j > i + 1"),
    "mask_behind": ("np.tri(T, k=-1", MASK, "j >= i", "-np.inf, scores", "-1e9, scores"),
    "mask_diagonal": ("np.eye(T, dtype", MASK, "j != i"),
    "mask_next_only": ("~np.eye(T, k=1", MASK, "j == i + 1"),
    "mask_not_first": (
        "np.arange(T) > 0",
        MASK,
        "(j > i) | (j == 0)",
        "-np.inf, s",
        "-1e9, s",
    ),
    "mask_flipped": ("mask[..., ::-1]", MASK, "(j > i)[:, ::-1]"),
    "mask_multiplied": ("np.where(mask, scores, 0.0)", FILL, "scores * ~future"),
    "mask_added": ("scores + mask", FILL, "scores + ~future"),
    "mask_added_inverted": ("scores - 1000000000.0 * mask", FILL, "scores - 1e9 * (j <= i)"),
    "mask_after": (
        "* mask",
        "masked - masked.max(",
        "scores - scores.max(",
        SOFTMAX,
        SOFTMAX + " * ~future",
    ),
    "fill_1": ("np.where(mask, scores, -1.0)", "-np.inf, scores", "-1, scores"),
    "fill_5": ("np.where(mask, scores, -5.0)", "-np.inf, scores", "-5, scores"),
    "fill_50": ("np.where(mask, scores, -50.0)", "-np.inf, scores", "-50, scores"),
    "fill_large": ("np.where(mask, scores, 1000000000.0)", "-np.inf, scores", "1e9, scores"),
    "lower_10": ("scores - 10.0 * ~mask", FILL, "scores - 10 * future"),
    "hidden_negated": ("-scores)", FILL, "np.where(future, -scores, scores)"),
    # softmax and context
    "softmax_queries": ("axis=-2", "max(-1,", "max(-2,", "e.sum(-1,", "e.sum(-2,"),
    "softmax_heads": (
        "axis=-3",
        "masked - masked.max(-1,",
        "masked - masked.max(0,",
        "e.sum(-1,",
        "e.sum(0,",
        "-np.inf, s",
        "-1e9, s",
    ),
    "softmax_all": ("axis=(-3, -2, -1)", SOFTMAX, "w = e / e.sum()"),
    "softmax_matrix": ("axis=(-2, -1)", SOFTMAX, "w = e / e.sum((-2, -1), keepdims=True)"),
    "softmax_twice": (
        "softmax(e / e.sum",
        SOFTMAX,
        SOFTMAX + "; w = np.exp(w); w = w / w.sum(-1, keepdims=True)",
    ),
    "softmax_no_keepdims": ("[..., None, :]", SOFTMAX, "w = e / e.sum(-1)[:, None, :]"),
    "softmax_by_mean": ("e / e.mean(", SOFTMAX, "w = e / e.mean(-1, keepdims=True)"),
    "softmax_by_max": ("weights = e", SOFTMAX, "w = e / e.max(-1, keepdims=True)"),
    "softmax_base_2": ("np.exp2(", "np.exp(masked", "np.exp2(masked"),
    "exp_alone": ("weights = np.exp(masked_scores)", SOFTMAX, "w = np.exp(masked)"),
    "weights_even": ("mask / mask.sum(", SOFTMAX, "w = ~future / (i + 1) + 0 * e"),
    "weights_1_over_T": ("1 / T", SOFTMAX, "w = 1 / T + 0 * e"),
    "weights_divided": ("/ np.sqrt(Dk)", SOFTMAX, SOFTMAX + " / Dh**0.5"),
    "weights_transposed": ("weights.swapaxes", '"hij,hjd->hid", w, V', '"hji,hjd->hid", w, V'),
    "context_of_keys": ("weights @ K", "w, V)", "w, K)"),
    "context_of_queries": ("weights @ Q", "w, V)", "w, Q)"),
    "context_of_scores": ("scores @ V", "w, V)", "scores, V)"),
    "context_of_exponentials": ("weights = e", SOFTMAX, "w = e"),
    # heads
    "order_QVK": ("W_V", HEADS, "for part in (Q, V, K))"),
    "order_KQV": ("W_K", HEADS, "for part in (K, Q, V))"),
    "order_KVQ": ("W_K", HEADS, "for part in (K, V, Q))"),
    "order_VQK": ("W_V", HEADS, "for part in (V, Q, K))"),
    "order_VKQ": ("W_V", HEADS, "for part in (V, K, Q))"),
    "order_per_head": (
        "W_QKV + b_QKV).reshape(T, H, 3, -1)",
        SPLIT + " " + HEADS,
        "part for part in QKV.reshape(T, H, 3, Dh).transpose(2, 1, 0, 3))",
    ),
    "split_by_reshape": (".reshape(H, T, -1)", SPLIT, "part.reshape(H, T, Dh)"),
    "split_dh_first": (".reshape(T, -1, H)", SPLIT, "part.reshape(T, Dh, H).transpose(2, 0, 1)"),
    "merge_by_reshape": (
        "concat = context.reshape(T, -1)",
        MERGE,
        "np.ascontiguousarray(context).reshape(T, D)",
    ),
    "merge_dh_first": (
        "context.transpose(1, 2, 0)",
        MERGE,
        "context.transpose(1, 2, 0).reshape(T, D)",
    ),
    "concat_reversed": (
        "np.flip(context, axis=-3)",
        MERGE,
        MERGE.replace("context", "context[::-1]"),
    ),
    "V_is_K": ("V = K", HEADS, "for part in (Q, K, K))"),
    "Q_is_K": ("Q = K", HEADS, "for part in (K, K, V))"),
    "K_is_Q": ("K = Q", HEADS, "for part in (Q, Q, V))"),
    "keys_rolled": ("np.roll(", RAW, 'np.einsum("hid,hjd->hij", Q, np.roll(K, 1, axis=1))'),
    "first_head_for_all": (
        "[..., :1, :, :]",
        MERGE,
        MERGE.replace("context", "(0 * context + context[:1])"),
    ),
    "heads_averaged": ("/ H", 'concat @ p[a + "W_O"]', 'concat / H @ p[a + "W_O"]'),
    # linear layers
    "transposed_W_O": ("concat @ W_O.T", 'p[a + "W_O"] +', 'p[a + "W_O"].T +'),
    "transposed_W_1": (
        "X @ W_1.reshape(W_1.shape[::-1]).T",
        'p[m + "W_1"]',
        'p[m + "W_1"].reshape(-1, D).T',
    ),
    "transposed_W_2": (
        "W_2.reshape(W_2.shape[::-1]).T",
        'p[m + "W_2"]',
        'p[m + "W_2"].reshape(D, -1).T',
    ),
    "no_b_Q": ("Q = (X @ W_Q).reshape", HEADS, 'for part in (Q - p[a + "b_QKV"][:D], K, V))'),
    "no_b_V": ("V = (X @ W_V).reshape", HEADS, 'for part in (Q, K, V - p[a + "b_QKV"][2 * D :]))'),
    "no_b_QKV": ("X @ W_", ' + p[a + "b_QKV"]', ""),
    "no_b_O": ("output = concat @ W_O", ' + p[a + "b_O"]', ""),
    "no_b_1": ("hidden = X @ W_1", ' + p[m + "b_1"]', ""),
    "no_b_2": ("output = activated @ W_2", ' + p[m + "b_2"]', ""),
    "no_b_mlp": ("likewise mlp.output", ' + p[m + "b_1"]', "", ' + p[m + "b_2"]', ""),
    "b_O_for_each_head": ("H * b_O", 'p[a + "b_O"]', 'H * p[a + "b_O"]'),
    "b_2_subtracted": ("W_2 - b_2", '"W_2"] +', '"W_2"] -'),
    "no_W_O": ("output = concat", 'concat @ p[a + "W_O"] + p[a + "b_O"]', "concat"),
    "no_W_O_but_b_O": ("output = concat + b_O", 'concat @ p[a + "W_O"]', "concat"),
    # LayerNorm
    "ln_ddof": (
        ".shape[-1] - 1)",
        "(c * c).mean(-1, keepdims=True)",
        "(c * c).sum(-1, keepdims=True) / (D - 1)",
    ),
    "ln_eps_outside": ("keepdims=True)) + epsilon)", NORM, "c / (np.sqrt(v) + eps)"),
    "ln_eps_1e-3": ("0.001", "v + eps", "v + 1e-3"),
    "ln_eps_1e-4": ("0.0001", "v + eps", "v + 1e-4"),
    "ln_no_root": ("centred / (np.square(centred)", NORM, "c / (v + eps)"),
    "ln_sum": (".sum(axis=-1", "(c * c).mean(-1, keepdims=True)", "(c * c).sum(-1, keepdims=True)"),
    "ln_absolute": ("abs(centred)", "(c * c)", "abs(c)"),
    "ln_no_gain": ("+ epsilon) + bias", GAIN, ""),
    "ln_no_bias": ("* gain", BIAS, ""),
    "ln_plain": ("keepdims=True) + epsilon), likewise", GAIN, "", BIAS, ""),
    "ln_rms": ("X = input / np.sqrt(np.square(input)", "x - mean", "x", BIAS, ""),
    "ln_rms_bias": ("centred = ", "x - mean", "x"),
    "ln_no_mean": (" / np.sqrt(", NORM, "x / np.sqrt(v + eps)"),
    "ln_mean_of_squares": ("np.square(", "(c * c)", "(x * x)"),
    "ln_over_tokens": (
        "axis=-2",
        "x.mean(-1, keepdims=True)",
        "x.mean(0)",
        "(c * c).mean(-1, keepdims=True)",
        "(c * c).mean(0)",
    ),
    "ln_over_all": (
        "axis=(-2, -1)",
        "x.mean(-1, keepdims=True)",
        "x.mean()",
        "(c * c).mean(-1, keepdims=True)",
        "(c * c).mean()",
    ),
    "ln_gain_and_bias_exchanged": (
        "* bias + gain",
        '* p[part + "gain"] + p[part + "bias"]',
        '* p[part + "bias"] + p[part + "gain"]',
    ),
    "ln_gain_plus_1": ("(1.0 + gain)", '* p[part + "gain"]', '* (1 + p[part + "gain"])'),
    "ln_1_for_ln_2": ("attention.gain + attention.bias", "norm(mid, m)", "norm(mid, a)"),
    "ln_2_for_ln_1": ("mlp.gain + mlp.bias", "norm(x, a)", "norm(x, m)"),
    "ln_f_of_the_last_mlp": ("mlp.gain", 'norm(x, "")', "norm(x, m)"),
    "no_norm_1": ("X = input", "norm(x, a)", "x"),
    "no_norm_2": ("X = mid", "norm(mid, m)", "mid"),
    "no_final": ("final = blocks", 'norm(x, "")', "x"),
    "no_norms": (
        "X = input, likewise",
        "norm(x, a)",
        "x",
        "norm(mid, m)",
        "mid",
        'norm(x, "")',
        "x",
    ),
    "post_norm": (
        "likewise mid, mlp.X, output",
        "norm(x, a)",
        "x",
        "mid = x + out",
        "mid = norm(x + out, a)",
        "norm(mid, m)",
        "mid",
        "after = mid + up",
        "after = norm(mid + up, m)",
    ),
    # the MLP
    "gelu_exact": ("erf(hidden / np.sqrt(2.0))", "gelu(hidden)", "hidden * (1 + phi(hidden)) / 2"),
    "gelu_sigmoid": (
        "np.exp(-1.702 * hidden)",
        "gelu(hidden)",
        "hidden / (1 + np.exp(-1.702 * hidden))",
    ),
    "silu": ("hidden / (1.0 + np.exp(-hidden))", "gelu(hidden)", "hidden / (1 + np.exp(-hidden))"),
    "relu": ("np.maximum(hidden, 0.0)", "gelu(hidden)", "np.maximum(hidden, 0)"),
    "leaky": ("0.01 * hidden", "gelu(hidden)", "np.where(hidden > 0, hidden, hidden / 100)"),
    "tanh": ("activated = np.tanh(hidden)", "gelu(hidden)", "np.tanh(hidden)"),
    "no_activation": ("activated = hidden", "gelu(hidden)", "hidden"),
    "gelu_no_1": ("np.tanh(np.sqrt(2.0 / np.pi) * (hidden + ", "(1 + np.tanh(", "(np.tanh("),
    "gelu_no_half": ("activated = hidden * (1.0", "x * x * x))) / 2", "x * x * x)))"),
    "gelu_no_cubic": ("np.sqrt(2.0 / np.pi) * hidden", " + 0.044715 * x * x * x", ""),
    "gelu_squared": ("hidden ** 2", "0.044715 * x * x * x", "0.044715 * x * x"),
    "gelu_0.44715": ("0.44715", "0.044715", "0.44715"),
    "gelu_0.04715": ("0.04715", "0.044715", "0.04715"),
    "gelu_2_pi": ("np.tanh(2.0 / np.pi", "(2 / np.pi) ** 0.5", "(2 / np.pi)"),
    "gelu_no_root": ("np.tanh(hidden + 0.044715", "(2 / np.pi) ** 0.5 * (", "("),
    # the residual stream
    "no_residual_1": ("mid = attention.output", "mid = x + out", "mid = out"),
    "no_residual_2": ("output = mlp.output", "after = mid + up", "after = up"),
    "no_residual": (
        "likewise output",
        "mid = x + out",
        "mid = out",
        "after = mid + up",
        "after = up",
    ),
    "residual_subtracted": ("mid = input - attention.output", "x + out", "x - out"),
    "residual_twice": ("input", "x + out", "2 * x + out"),
    "residual_multiplied": ("input * attention.output", "x + out", "x * out"),
    "X_in_residual": ("mid = attention.X + attention.output", "x + out", "X + out"),
    "X_in_second_residual": ("output = mlp.X + mlp.output", "mid + up", "Y + up"),
    "parallel": ("centred = input - input.mean", "norm(mid, m)", "norm(x, m)"),
    "one_norm_for_both": ("X = attention.X", "norm(mid, m)", "X"),
    "input_for_mid": ("output = input + mlp.output", "after = mid + up", "after = x + up"),
    # the embedding, and the end
    "no_positions": ("embedding = token_embedding", "token + position", "token"),
    "positions_from_1": (
        "W_P[positions + 1]",
        "positions = np.arange(T)",
        "positions = np.arange(T) + 1",
    ),
    "positions_0": (
        "W_P[0 * positions]",
        "positions = np.arange(T)",
        "positions = np.zeros(T, int)",
    ),
    "positions_reversed": (
        "W_P[positions[::-1]]",
        "= np.arange(T)\ntoken",
        "= np.arange(T)[::-1]\ntoken",
    ),
    "ids_shifted": ("W_E[np.roll(ids, 1)]", '["W_E"][ids]', '["W_E"][np.roll(ids, 1)]'),
    "embedding_scaled": (
        "(token_embedding + position_embedding) * np.sqrt(D)",
        "token + position\n",
        "(token + position) * D**0.5\n",
    ),
    "token_scaled": (
        "token_embedding * np.sqrt(D) + ",
        "token + position",
        "token * D**0.5 + position",
    ),
    "embedding_multiplied": (
        "token_embedding * position_embedding",
        "token + position",
        "token * position",
    ),
    "logits_scaled": (
        "/ np.sqrt(D)",
        'steps |= {"final"',
        'logits = logits / D**0.5\nsteps |= {"final"',
    ),
    "softmax_of_logits": (
        "logits = softmax(",
        'steps |= {"final"',
        "logits = np.exp(logits - logits.max(-1, keepdims=True))\n"
        'logits = logits / logits.sum(-1, keepdims=True)\nsteps |= {"final"',
    ),
    "one_layer_less": (
        "blocks[0].output",
        'norm(x, "")',
        'norm(steps[f"blocks.{L - 2}.output"], "")',
    ),
    "float16": ("parameters.astype(float16)",),
}
OTHERS: dict[str, tuple[str, ...]] = {
    "sinusoids": (
        "",
        "token + position",
        "token + np.sin(positions[:, None] / (1 + np.arange(D)))",
    ),
    "distances": ("", RAW, "-((Q[:, :, None] - K[:, None]) ** 2).sum(-1)"),
    "median": ("", "x.mean(-1, keepdims=True)", "np.median(x, axis=-1, keepdims=True)"),
    "mish": ("", "gelu(hidden)", "hidden * np.tanh(np.log1p(np.exp(hidden)))"),
    "noise": ("", DIVISION, "raw / Dh**0.5 + 0.1 * np.cos(i * 7 + j * j)"),
    "ablated_head": ("", "w, V)", "w, V) * (np.arange(H) < H - 1)[:, None, None]"),
}

# Right programs that are written otherwise, or compute in another order.
RIGHT: dict[str, tuple[str, ...]] = {
    "softmax_without_maximum": (
        "",
        "np.exp(masked - masked.max(-1, keepdims=True))",
        "np.exp(masked)",
    ),
    "softmax_by_logarithm": (
        "",
        SOFTMAX,
        "w = np.exp(masked - np.log(np.exp(masked).sum(-1, keepdims=True)))",
    ),
    "fill_large_negative": ("", "-np.inf, scores", "-1e30, scores"),
    "fill_minus_1e4": ("", "-np.inf, scores", "-1e4, scores"),
    "mask_of_infinities": ("", FILL, "scores + np.where(future, -np.inf, 0)"),
    "masked_before_division": ("", DIVISION, "np.where(j > i, -np.inf, raw / Dh**0.5)"),
    "divided_queries": (
        "",
        RAW,
        'np.einsum("hid,hjd->hij", Q / Dh**0.5, K)',
        DIVISION,
        "raw",
        'K, a + "V": V, a + "raw_scores": raw}',
        'K, a + "V": V}',
    ),
    "variance_by_squares": (
        "",
        "(c * c).mean(-1, keepdims=True)",
        "(x * x).mean(-1, keepdims=True) - mean * mean",
    ),
    "variance_of_numpy": ("", "(c * c).mean(-1, keepdims=True)", "x.var(-1, keepdims=True)"),
    "inverse_root": ("", NORM, "c * (v + eps) ** -0.5"),
    "gelu_distributed": ("", "x * (1 + np.tanh(", "(x + x * np.tanh("),
    "gelu_power": ("", "0.044715 * x * x * x", "0.044715 * x**3"),
    "products_by_matmul": (
        "",
        RAW,
        "Q @ K.swapaxes(-1, -2)",
        'np.einsum("hij,hjd->hid", w, V)',
        "w @ V",
    ),
    "output_by_heads": (
        "",
        'concat @ p[a + "W_O"]',
        'sum(context[h] @ p[a + "W_O"][h * Dh : (h + 1) * Dh] for h in range(H))',
    ),
    "residual_reversed": ("", "x + out", "out + x", "mid + up", "up + mid"),
    "split_by_columns": ("", SPLIT, "np.stack(np.split(part, H, axis=1))"),
    "keys_transposed_once": ("", RAW, "np.stack([q @ k.T for q, k in zip(Q, K)])"),
    "positions_by_slice": ("", 'p["W_P"][positions]', 'p["W_P"][:T]'),
    "one_hot_tokens": (
        "",
        'p["W_E"][ids]',
        'np.eye(len(p["W_E"]), dtype=p["W_E"].dtype)[ids] @ p["W_E"]',
    ),
    "weights_masked_again": ("", SOFTMAX, SOFTMAX + "; w = np.where(future, 0, w)"),
}


@cache
def program(*mistakes: str) -> Any:
    """The student's program with these mistakes, compiled."""
    text = SOURCE
    for mistake in mistakes:
        _, *changes = (MISTAKES | OTHERS | RIGHT | OTHER_PASSES)[mistake]
        for old, new in zip(changes[::2], changes[1::2], strict=True):
            assert text.count(old) == 1, (mistake, old, text.count(old))
            text = text.replace(old, new)
    return compile(text, "<student>", "exec")


# Dropout of a step, with p = 1/4.
OTHER_PASSES = {
    "dropout_embedding": ("", "token + position", "drop(token + position)"),
    "dropout_weights": ("", SOFTMAX, SOFTMAX + "; w = drop(w)"),
    "dropout_mid": ("", "mid = x + out", "mid = x + drop(out)"),
    "dropout_output": ("", "after = mid + up", "after = mid + drop(up)"),
}


def as_loaded(array: Array, mistakes: tuple[str, ...]) -> Array:
    if "float16" in mistakes:
        return array.astype("float16").astype(array.dtype)
    return array


def steps_of(model: Any, ids: Any, *mistakes: str, dtype: str = "float64") -> dict[str, Array]:
    """Every step of the student's pass through a model's parameters, by path."""
    config, rng = model.config, np.random.default_rng(5)
    p = {x: model.parameters.stored(x).astype(dtype) for x in stored_shapes(config)}
    names = {
        "p": {path: as_loaded(array, mistakes) for path, array in p.items()},
        "np": np,
        "ids": np.asarray(ids),
        "H": config.n_head,
        "L": config.n_layer,
        "eps": config.layer_norm_epsilon,
        "phi": lambda x: np.vectorize(lambda v: erf(v / 2**0.5))(x).astype(x.dtype),
        "drop": lambda x: x * (rng.random(x.shape) >= 0.25) / 0.75,
    }
    with np.errstate(all="ignore"):
        exec(program(*mistakes), names)
    return {path: array.astype(dtype) for path, array in names["steps"].items()}
