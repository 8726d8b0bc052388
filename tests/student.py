"""A student's GPT-2 in plain NumPy, with optional mistakes.

It follows GPT-2's description, not attnlab, and differs in style: another way to split
heads, other orders of sums, einsum. `KNOWN` maps each mistake that `attnlab.check` must name to the
formula in its report; `OTHERS` are mistakes that it doesn't know.
"""

from collections.abc import Mapping
from math import erf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlab.forward.parameters import stored_shapes

Array = NDArray[Any]


READ_AS = "read as if it were Wᵀ"
LAYER_NORM_AFTER = "mid = LayerNorm(input + attention.output), output = LayerNorm(mid + mlp.output)"
SPLIT_DH_FIRST = "Q = (X W_Q + b_Q).reshape(T, Dk, H), likewise K and V"
SPLIT_BY_RESHAPE = "Q = (X W_Q + b_Q).reshape(H, T, Dk), likewise K and V"
UNDER_ROOT = "LayerNorm divides by √variance + eps"

KNOWN = {
    "no_scale": "scores = raw_scores",
    "scale_D": "scores = raw_scores / √D",
    "scale_Dk": "scores = raw_scores / Dk",
    "no_mask": "masked_scores = scores",
    "mask_zero": "masked_scores = scores where the mask is True, else 0",
    "mask_after": "weights = softmax(scores) where the mask is True, else 0",
    "mask_upper": "masked_scores = scores where maskᵀ is True, else -inf",
    "mask_not": "masked_scores = scores where the mask is False, else -inf",
    "mask_ahead": "masked_scores = scores where key ≤ query + 1, else -inf",
    "mask_behind": "masked_scores = scores where key ≤ query - 1, else -inf",
    "softmax_queries": "weights = softmax over the queries",
    "softmax_heads": "weights = softmax over the heads",
    "order_QVK": "Q, K, V = the parts of QKV that are Q, V, K",
    "order_KQV": "Q, K, V = the parts of QKV that are K, Q, V",
    "order_KVQ": "Q, K, V = the parts of QKV that are K, V, Q",
    "order_VQK": "Q, K, V = the parts of QKV that are V, Q, K",
    "order_VKQ": "Q, K, V = the parts of QKV that are V, K, Q",
    "order_per_head": "Q, K, V = QKV taken as q k v of head 0, q k v of head 1, ...",
    "split_by_reshape": SPLIT_BY_RESHAPE,
    "split_by_one_reshape": "Q, K, V = QKV.reshape(3, H, T, Dk)",
    "merge_by_reshape": "concat = context.reshape(T, H·Dh)",
    "split_and_merge_by_reshape": f"{SPLIT_BY_RESHAPE}; concat = context.reshape(T, H·Dh)",
    "transposed_thirds": "Q = X W_Qᵀ + b_Q, likewise K and V",
    "transposed_W_O": "output = concat W_Oᵀ + b_O",
    "transposed_squares": "Q = X W_Qᵀ + b_Q, likewise K, V and output",
    "transposed_W_QKV": f"QKV = X W + b_QKV, with W_QKV {READ_AS}",
    "transposed_W_1": f"hidden = X W + b_1, with W_1 {READ_AS}",
    "transposed_W_2": f"output = activated W + b_2, with W_2 {READ_AS}",
    "transposed_mlp": "hidden, output = x W + b, with W_1 and W_2 read as Wᵀ",
    "transposed_all": f"x W + b, with every matrix {READ_AS}",
    "no_b_Q": "Q = X W_Q",
    "no_b_K": "K = X W_K",
    "no_b_V": "V = X W_V",
    "no_b_QKV": "QKV = X W_QKV",
    "no_b_O": "output = concat W_O",
    "no_b_1": "hidden = X W_1",
    "no_b_2": "output = activated W_2",
    "no_b_mlp": "hidden = X W_1, output = activated W_2",
    "no_bias": "x W, without any bias",
    "ln_no_bias": "LayerNorm without its bias",
    "gelu_exact": "activated = hidden · Φ(hidden), GELU in its exact form",
    "ln_ddof": "LayerNorm with the variance over D - 1",
    "ln_eps_outside": UNDER_ROOT,
    "ln_torch_std": f"{UNDER_ROOT}, with the variance over D - 1",
    "no_norm_1": "attention's X = the block's input",
    "no_norm_2": "the MLP's X = mid",
    "no_final": "final = the last block's output",
    "post_norm": LAYER_NORM_AFTER,
    "post_norm_alone": f"{LAYER_NORM_AFTER}, and final = the last block's output",
    "no_positions": "embedding = token_embedding",
    "positions_from_1": "position_embedding = W_P[1], W_P[2], ...",
    "no_residual_1": "mid = attention.output",
    "no_residual_2": "output = mlp.output",
    "no_residual": "mid = attention.output, output = mlp.output",
    "scale_multiplied": "scores = raw_scores · √Dk",
    "scale_H": "scores = raw_scores / √H",
    "scale_T": "scores = raw_scores / √T",
    "keys_by_queries": "raw_scores = K Qᵀ",
    "keys_reshaped": "raw_scores = Q K.reshape(Dk, T)",
    "fill_1": "masked_scores = scores where the mask is True, else -1",
    "fill_5": "masked_scores = scores where the mask is True, else -5",
    "fill_10": "masked_scores = scores where the mask is True, else -10",
    "lower_10": "masked_scores = scores where the mask is True, else scores - 10",
    "softmax_all": "weights = exp(masked_scores - their maximum) / the sum over all heads",
    "softmax_twice": "weights = softmax(softmax(masked_scores))",
    "exp_alone": "weights = exp(masked_scores)",
    "V_is_K": "V = X W_K + b_K",
    "Q_is_K": "Q = X W_K + b_K",
    "K_is_Q": "K = X W_Q + b_Q",
    "context_of_keys": "context = weights K",
    "split_dh_first": SPLIT_DH_FIRST,
    "merge_dh_first": "concat = the heads' columns interleaved, reshape(T, Dh, H)",
    "split_and_merge_dh_first": f"{SPLIT_DH_FIRST}; concat merged the same way",
    "heads_reversed": "Q, K, V = the heads, the last one first",
    "concat_reversed": "concat = the heads side by side, the last one first",
    "no_W_O": "attention.output = concat",
    "no_W_O_but_b_O": "attention.output = concat + b_O",
    "gelu_sigmoid": "activated = hidden · sigmoid(1.702 hidden), quick GELU",
    "silu": "activated = hidden · sigmoid(hidden), SiLU",
    "relu": "activated = max(hidden, 0), ReLU",
    "tanh": "activated = tanh(hidden)",
    "no_activation": "activated = hidden",
    "gelu_0.44715": "activated = GELU with 0.44715 for 0.044715",
    "gelu_0.0044715": "activated = GELU with 0.0044715 for 0.044715",
    "gelu_2_pi": "activated = GELU with 2/π for √(2/π)",
    "ln_no_gain": "LayerNorm without its gain",
    "ln_plain": "LayerNorm without gain and bias",
    "ln_rms": "RMSNorm, x / √(mean of x² + eps) · gain",
    "ln_rms_bias": "RMSNorm, x / √(mean of x² + eps) · gain + bias",
    "ln_no_mean": "LayerNorm without its mean, x / √(variance + eps) · gain + bias",
    "ln_mean_of_squares": "LayerNorm with the mean of x² for the variance",
    "ln_no_root": "LayerNorm divides by variance + eps",
    "ln_over_tokens": "LayerNorm over the tokens",
    "ln_over_all": "LayerNorm over all tokens at once",
    "ln_eps_1e-3": "LayerNorm with eps = 0.001",
    "no_norms": "no LayerNorm anywhere",
    "X_in_residual": "mid = attention.X + attention.output",
    "X_in_second_residual": "output = mlp.X + mlp.output",
    "parallel": "the MLP's X = LayerNorm(input)",
    "input_for_mid": "output = input + mlp.output",
    "embedding_scaled": "embedding = √D · (token_embedding + position_embedding)",
    "token_scaled": "embedding = √D · token_embedding + position_embedding",
    "positions_0": "position_embedding = W_P[0] for every token",
    "cache_position_+1": "position_embedding = W_P[t + 1] from token {since} on",
    "cache_position_-1": "position_embedding = W_P[t - 1] from token {since} on",
    "cache_position_0": "position_embedding = W_P[0] from token {since} on",
    "cache_without_itself": "masked_scores without the query's own key, from token {since} on",
    "cache_without_first": "masked_scores without the first key, from token {since} on",
    "cache_without_previous": (
        "masked_scores without the key before the query, from token {since} on"
    ),
    "softmax_of_logits": "logits = softmax(final W_U)",
    "float16": "every parameter rounded to float16",
    "bfloat16": "every parameter rounded to bfloat16",
}

OTHERS = (
    "ln_eps_large",
    "keys_reversed",
    "rotated",
    "scale_3",
    "mask_window",
    "softmax_base_2",
    "ablated_head",
    "output_twice",
    "fill_3",
    "ids_shifted",
    "positions_reversed",
)

# The matrices that a mistake transposes, and the biases that a mistake omits.
TRANSPOSED = {
    "transposed_W_QKV": "W_QKV",
    "transposed_W_O": "W_O",
    "transposed_W_1": "W_1",
    "transposed_W_2": "W_2",
    "transposed_mlp": "W_1 W_2",
    "transposed_all": "W_QKV W_O W_1 W_2",
}
MISSING = {
    "no_b_QKV": "b_QKV",
    "no_b_O": "b_O",
    "no_b_1": "b_1",
    "no_b_2": "b_2",
    "no_b_mlp": "b_1 b_2",
    "no_bias": "b_QKV b_O b_1 b_2",
}


class Student:
    """A student's forward pass.

    Parameters
    ----------
    parameters : a model's, by path, as they are stored
    n_head, n_layer, epsilon : from its config
    mistakes : names of the mistakes that it makes
    """

    def __init__(
        self,
        parameters: Mapping[str, Array],
        n_head: int,
        n_layer: int,
        epsilon: float,
        dtype: str = "float64",
        mistakes: tuple[str, ...] = (),
    ) -> None:
        self.n_head, self.n_layer, self.epsilon = n_head, n_layer, epsilon
        self.mistakes = mistakes
        self.p = {path: self.as_loaded(array.astype(dtype)) for path, array in parameters.items()}
        self.steps: dict[str, Array] = {}
        self.rng = np.random.default_rng(5)

    def as_loaded(self, array: Array) -> Any:
        if "float16" in self.mistakes:
            return array.astype("float16").astype(array.dtype)
        if "bfloat16" in self.mistakes:  # by hand: 8 bits of the mantissa, the last one rounded
            mantissa, exponent = np.frexp(array)
            return np.ldexp(np.rint(mantissa * 256) / 256, exponent).astype(array.dtype)
        return array

    def has(self, *mistakes: str) -> bool:
        """Whether it makes one of these mistakes."""
        return any(mistake in self.mistakes for mistake in mistakes)

    def pick(self, by_mistake: Mapping[str, Any], usual: Any) -> Any:
        """What a mistake gives, if it makes one of these; else the usual."""
        return next((by_mistake[name] for name in self.mistakes if name in by_mistake), usual)

    def suffix(self, prefix: str) -> str:
        """What follows a prefix in the name of a mistake, such as 5 in fill_5, or ""."""
        names = (mistake for mistake in self.mistakes if mistake.startswith(prefix))
        return next(names, "").removeprefix(prefix)

    # ---- pieces ----

    def norm(self, x: Array, prefix: str) -> Any:
        epsilon = x.dtype.type(self.epsilon)
        mean, square = x.mean(-1, keepdims=True), (x * x).mean(-1, keepdims=True)
        variance = ((x - mean) ** 2).mean(-1, keepdims=True)
        unbiased = x.var(-1, ddof=1, keepdims=True)
        rms = x / np.sqrt(square + epsilon)
        y = self.pick(
            {
                "ln_ddof": (x - mean) / np.sqrt(unbiased + epsilon),
                "ln_mean_of_squares": (x - mean) / np.sqrt(square + epsilon),  # as in RMSNorm
                "ln_over_tokens": (x - x.mean(0)) / np.sqrt(x.var(0) + epsilon),
                "ln_over_all": (x - x.mean()) / np.sqrt(x.var() + epsilon),
                "ln_eps_outside": (x - mean) / (np.sqrt(variance) + epsilon),
                "ln_torch_std": (x - mean) / (x.std(-1, ddof=1, keepdims=True) + epsilon),
                "ln_no_mean": x / np.sqrt(variance + epsilon),
                "ln_rms": rms,
                "ln_rms_bias": rms,
                "ln_eps_large": (x - mean) / np.sqrt(variance + 7 * epsilon),
                "ln_eps_1e-3": (x - mean) / np.sqrt(variance + x.dtype.type(1e-3)),
                "ln_no_root": (x - mean) / (variance + epsilon),
            },
            (x - mean) / np.sqrt(variance + epsilon),
        )
        y = y if self.has("ln_no_gain", "ln_plain") else y * self.p[f"{prefix}gain"]
        return y if self.has("ln_no_bias", "ln_plain", "ln_rms") else y + self.p[f"{prefix}bias"]

    def gelu(self, x: Array) -> Any:
        if self.has("gelu_exact"):
            flat = [v * (1 + erf(v / 2**0.5)) / 2 for v in x.ravel().tolist()]
            return np.array(flat, x.dtype).reshape(x.shape)
        cubic = float(f"0.{self.suffix('gelu_0.') or '044715'}")
        root = 2 / np.pi if self.has("gelu_2_pi") else (2 / np.pi) ** 0.5
        activations = {
            "gelu_sigmoid": x / (1 + np.exp(-1.702 * x)),
            "relu": np.maximum(x, 0),
            "silu": x / (1 + np.exp(-x)),
            "no_activation": x,
            "tanh": np.tanh(x),
        }
        usual = x * (1 + np.tanh(root * (x + cubic * x * x * x))) / 2
        return self.pick(activations, usual).astype(x.dtype)

    def matrix(self, path: str) -> Any:
        W = self.p[path]
        # The same memory, read as if it were the transposed matrix.
        transposed = " ".join(TRANSPOSED.get(mistake, "") for mistake in self.mistakes)
        return W.reshape(W.shape[::-1]).T if path.rpartition(".")[2] in transposed.split() else W

    def vector(self, path: str) -> Any:
        missing = " ".join(MISSING.get(mistake, "") for mistake in self.mistakes)
        return self.p[path] * (path.rpartition(".")[2] not in missing.split())

    def with_dropout(self, x: Array, step: str) -> Any:
        if not self.has(f"dropout_{step}"):
            return x
        return x * (self.rng.random(x.shape) >= 0.25) / x.dtype.type(0.75)

    def heads(self, x: Array, prefix: str) -> Any:
        """Q, K and V, each (H, T, Dh)."""
        T, D = x.shape
        H, Dh = self.n_head, D // self.n_head
        W, b = self.matrix(f"{prefix}W_QKV"), self.vector(f"{prefix}b_QKV")
        thirds = [W[:, :D], W[:, D : 2 * D], W[:, 2 * D :]]
        if self.has("transposed_thirds", "transposed_squares"):
            thirds = [third.T for third in thirds]
        for n, name in enumerate("QKV"):
            if self.has(f"no_b_{name}"):
                b[n * D : (n + 1) * D] = 0
        QKV = x @ np.concatenate(thirds, axis=1) + b
        if self.has("order_per_head"):
            return QKV.reshape(T, H, 3, Dh).transpose(2, 1, 0, 3)
        if self.has("split_by_one_reshape"):
            return QKV.reshape(3, H, T, Dh)
        columns = {name: QKV[:, i * D : (i + 1) * D] for i, name in enumerate("QKV")}
        parts = [columns[name] for name in self.suffix("order_") or "QKV"]
        if self.has("split_dh_first", "split_and_merge_dh_first"):
            return [m.reshape(T, Dh, H).transpose(2, 0, 1) for m in parts]
        if self.has("split_by_reshape", "split_and_merge_by_reshape"):
            return [m.reshape(H, T, Dh) for m in parts]
        return [m.reshape(T, H, Dh).transpose(1, 0, 2) for m in parts]

    def softmax(self, scores: Array, masked: Array, future: Array) -> Any:
        if self.has("mask_after"):
            e = np.exp(scores - scores.max(-1, keepdims=True))
            return np.where(future, 0, e / e.sum(-1, keepdims=True))
        axis = self.pick({"softmax_queries": 1, "softmax_heads": 0}, 2)
        # Over other axes, all entries of a sum may be masked.
        finite = np.maximum(masked, -1e9) if axis < 2 else masked
        exp = np.exp2 if self.has("softmax_base_2") else np.exp
        e = exp(finite - finite.max(axis, keepdims=True))
        w = e / e.sum(axis, keepdims=True)
        twice = np.exp(w) / np.exp(w).sum(-1, keepdims=True)
        wrong = {"softmax_all": e / e.sum(), "exp_alone": np.exp(masked), "softmax_twice": twice}
        return self.pick(wrong, w)

    def attention(self, x: Array, prefix: str) -> Any:
        T, D = x.shape
        H, Dh = self.n_head, D // self.n_head
        q, k, v = self.heads(x, prefix)
        if self.has("keys_reversed"):
            k = k[::-1]
        reverse = q[::-1], k[::-1], v[::-1]
        swapped = {"V_is_K": (q, k, k), "Q_is_K": (k, k, v), "K_is_Q": (q, q, v)}
        q, k, v = self.pick({**swapped, "heads_reversed": reverse}, (q, k, v))
        if self.has("rotated"):
            k = np.roll(k, 1, axis=-1)
        self.record(prefix, Q=q, K=k, V=v)
        raw = np.einsum("hid,hjd->hij", q, k)
        if self.has("keys_by_queries"):
            raw = np.einsum("hid,hjd->hij", k, q)
        if self.has("keys_reshaped"):
            raw = np.stack([qh @ kh.reshape(Dh, T) for qh, kh in zip(q, k, strict=True)])
        divisors = {
            "no_scale": 1.0,
            "scale_D": D**0.5,
            "scale_Dk": float(Dh),
            "scale_T": T**0.5,
            "scale_3": 3 * Dh**0.5,
            "scale_multiplied": Dh**-0.5,
            "scale_H": H**0.5,
        }
        scores = (raw / self.pick(divisors, Dh**0.5)).astype(x.dtype)
        i, j = np.arange(T)[:, None], np.arange(T)
        cached = i >= T - 3  # the last three tokens are generated one by one
        masks = {
            "mask_upper": j < i,
            "mask_not": j <= i,
            "mask_ahead": j > i + 1,
            "mask_behind": j >= i,
            "cache_without_itself": (j > i) | ((j == i) & cached),
            "cache_without_first": (j > i) | ((j == 0) & cached),
            "cache_without_previous": (j > i) | ((j == i - 1) & cached),
            "mask_window": (j > i) | (j < i - 1),
        }
        future = self.pick(masks, j > i)
        # With these masks, some queries see no key; -inf in a whole row would give NaN.
        fill = -1e9 if self.has("mask_not", "mask_behind") else -np.inf
        fill = 0 if self.has("mask_zero") else -float(self.suffix("fill_") or -fill)
        wrong = {"no_mask": scores, "mask_one": scores + np.where(future, 0, 1)}
        if amount := self.suffix("lower_"):
            wrong[f"lower_{amount}"] = scores - future * float(amount)
        masked = self.pick(wrong, np.where(future, fill, scores)).astype(x.dtype)
        w = self.softmax(scores, masked, future)
        w = self.with_dropout(w.astype(x.dtype), "weights")
        self.record(prefix, raw_scores=raw, scores=scores, masked_scores=masked, weights=w)
        context = np.einsum("hij,hjd->hid", w, k if self.has("context_of_keys") else v)
        if self.has("ablated_head"):
            context[-1] = 0
        if self.has("merge_by_reshape", "split_and_merge_by_reshape"):
            concat = np.ascontiguousarray(context).reshape(T, D)
        elif self.has("merge_dh_first", "split_and_merge_dh_first"):
            concat = context.transpose(1, 2, 0).reshape(T, D)
        else:
            ordered = context[::-1] if self.has("concat_reversed") else context
            concat = ordered.transpose(1, 0, 2).reshape(T, D)
        W_O, b_O = self.matrix(f"{prefix}W_O"), self.vector(f"{prefix}b_O")
        output = concat @ (W_O.T if self.has("transposed_squares") else W_O) + b_O
        wrong = {"no_W_O": concat, "no_W_O_but_b_O": concat + b_O, "output_twice": output + b_O}
        output = self.pick(wrong, output)
        self.record(prefix, context=context, concat=concat, output=output)
        return output

    def record(self, prefix: str, **steps: Array) -> None:
        for name, array in steps.items():
            self.steps[prefix + name] = array

    # ---- the whole model ----

    def run(self, ids: Array) -> dict[str, Array]:
        """Every step by its path."""
        if self.has("prepended_token"):
            ids = np.concatenate([[len(self.p["W_E"]) - 1], ids])
        if self.has("ids_shifted"):
            ids = np.roll(ids, 1)
        T = len(ids)
        positions = np.arange(T) + self.has("positions_from_1")
        if self.has("positions_reversed"):
            positions = positions[::-1]
        if self.has("positions_0"):
            positions = 0 * positions
        if shift := self.suffix("cache_position_"):
            # The last three tokens are generated one by one.
            positions[-3:] = 0 if shift == "0" else positions[-3:] + int(shift)
        token, position = self.p["W_E"][ids], self.p["W_P"][positions]
        x = token + (0 if self.has("no_positions") else position)
        if self.has("token_scaled"):
            x = x + (x.dtype.type(x.shape[-1] ** 0.5) - 1) * token
        if self.has("embedding_scaled"):
            x = x * x.dtype.type(x.shape[-1] ** 0.5)
        x = self.with_dropout(x, "embedding")
        self.record("", token_embedding=token, position_embedding=position, embedding=x)
        post = self.has("post_norm", "post_norm_alone")
        for layer in range(self.n_layer):
            block = f"blocks.{layer}."
            attention, mlp = f"{block}attention.", f"{block}mlp."
            skips_norm = post or self.has("no_norm_1", "no_norms")
            X = x if skips_norm else self.norm(x, attention)
            self.record(block, input=x)
            self.record(attention, X=X)
            update = self.with_dropout(self.attention(X, attention), "mid")
            mid = update + (0 if self.has("no_residual_1", "no_residual") else x)
            if self.has("X_in_residual"):
                mid = update + X
            if post:
                mid = self.norm(mid, attention)
            X = mid if post or self.has("no_norm_2", "no_norms") else self.norm(mid, mlp)
            if self.has("parallel"):
                X = self.norm(x, mlp)
            hidden = X @ self.matrix(f"{mlp}W_1") + self.vector(f"{mlp}b_1")
            activated = self.gelu(hidden)
            output = activated @ self.matrix(f"{mlp}W_2") + self.vector(f"{mlp}b_2")
            lost = dict.fromkeys(("no_residual_2", "no_residual"), 0)
            stream = self.pick({"input_for_mid": x, "X_in_second_residual": X, **lost}, mid)
            after = self.with_dropout(output, "output") + stream
            if post:
                after = self.norm(after, mlp)
            self.record(mlp, X=X, hidden=hidden, activated=activated, output=output)
            self.record(block, mid=mid, output=after)
            x = after
        skips_norm = self.has("no_final", "no_norms", "post_norm_alone")
        final = x if skips_norm else self.norm(x, "")
        tied = "W_U" not in self.p or self.has("tied")
        logits = final @ (self.p["W_E"].T if tied else self.p["W_U"])
        if self.has("softmax_of_logits"):
            logits = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
        self.record("", final=final, logits=logits)
        return self.steps


def steps_of(model: Any, ids: Array, *mistakes: str, dtype: str = "float64") -> dict[str, Array]:
    """Every step of the student's pass through a model's parameters, by path."""
    config = model.config
    sizes = (config.n_head, config.n_layer, config.layer_norm_epsilon)
    with np.errstate(all="ignore"):
        arrays = {path: model.parameters.stored(path) for path in stored_shapes(model.config)}
        return Student(arrays, *sizes, dtype, mistakes).run(np.asarray(ids))
