"""GPT-2's forward pass as in textbooks: plain NumPy, nothing kept, nothing optimized.

The baseline for attnlab: the cost of the same arithmetic without names, checks and laziness, and
an independent check of the logits.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

Array = NDArray[np.float32]


class PlainGPT2:
    """A GPT-2 in a directory with config.json and model.safetensors."""

    def __init__(self, directory: Path) -> None:
        config: dict[str, Any] = json.loads((directory / "config.json").read_text("utf-8"))
        self.n_layer: int = config["n_layer"]
        self.n_head: int = config["n_head"]
        self.vocab_size: int = config["vocab_size"]
        tensors = load_file(directory / "model.safetensors")
        self.w = {name.removeprefix("transformer."): array for name, array in tensors.items()}

    def next_logits(self, ids: NDArray[np.int64]) -> Array:
        """(vocab,), the last position's logits."""
        x = self.w["wte.weight"][ids] + self.w["wpe.weight"][: len(ids)]
        for layer in range(self.n_layer):
            x = x + self.attention(f"h.{layer}.attn", self.layer_norm(f"h.{layer}.ln_1", x))
            x = x + self.mlp(f"h.{layer}.mlp", self.layer_norm(f"h.{layer}.ln_2", x))
        logits: Array = self.layer_norm("ln_f", x[-1]) @ self.w["wte.weight"].T
        return logits

    def linear(self, name: str, x: Array) -> Array:
        y: Array = x @ self.w[f"{name}.weight"] + self.w[f"{name}.bias"]
        return y

    def layer_norm(self, name: str, x: Array) -> Array:
        mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
        normal = (x - mean) / np.sqrt(variance + 1e-5)
        y: Array = normal * self.w[f"{name}.weight"] + self.w[f"{name}.bias"]
        return y

    def attention(self, name: str, x: Array) -> Array:
        T, D = x.shape
        qkv = self.linear(f"{name}.c_attn", x).reshape(T, 3, self.n_head, D // self.n_head)
        Q, K, V = qkv.transpose(1, 2, 0, 3)  # (H, T, Dh) each
        scores = Q @ K.transpose(0, 2, 1) / np.float32(np.sqrt(D // self.n_head))
        scores = np.where(np.tri(T, dtype=bool), scores, np.float32(-np.inf))
        exponentials = np.exp(scores - scores.max(-1, keepdims=True))
        weights = exponentials / exponentials.sum(-1, keepdims=True)
        context = (weights @ V).transpose(1, 0, 2).reshape(T, D)
        return self.linear(f"{name}.c_proj", context)

    def mlp(self, name: str, x: Array) -> Array:
        h = self.linear(f"{name}.c_fc", x)
        gelu = 0.5 * h * (1 + np.tanh(np.float32(np.sqrt(2 / np.pi)) * (h + 0.044715 * h * h * h)))
        return self.linear(f"{name}.c_proj", gelu)
