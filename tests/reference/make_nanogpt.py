"""Record the logits of two tiny random models in nanoGPT's format, with and without biases.

nanoGPT uses ``nn.Linear``, so its matrices are transposed, unlike GPT-2's.  Writes ``nanogpt.npz``
beside this file: for each model, its state dict in float32, and its logits, computed in float64,
for every third token of the vocabulary.

Run it with ``python make_nanogpt.py``; README.md says which versions were used.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

HERE = Path(__file__).resolve().parent

VOCABULARY, POSITIONS, WIDTH, HEADS, LAYERS = 263, 17, 6, 2, 2
IDS = (5, 260, 17, 5, 262, 0, 99)


class Norm(nn.Module):
    """LayerNorm, with or without a bias."""

    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))
        self.bias = nn.Parameter(torch.zeros(WIDTH)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, (WIDTH,), self.weight, self.bias, 1e-5)


class Attention(nn.Module):
    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.c_attn = nn.Linear(WIDTH, 3 * WIDTH, bias=bias)
        self.c_proj = nn.Linear(WIDTH, WIDTH, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        heads = (part.unflatten(-1, (HEADS, -1)) for part in self.c_attn(x).split(WIDTH, -1))
        q, k, v = (head.transpose(-3, -2) for head in heads)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(mixed.transpose(-3, -2).flatten(-2))


class MLP(nn.Module):
    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.c_fc = nn.Linear(WIDTH, 4 * WIDTH, bias=bias)
        self.c_proj = nn.Linear(4 * WIDTH, WIDTH, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.c_proj(F.gelu(self.c_fc(x)))  # exact GELU


class Block(nn.Module):
    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.ln_1, self.attn = Norm(bias), Attention(bias)
        self.ln_2, self.mlp = Norm(bias), MLP(bias)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Model(nn.Module):
    """A model whose state dict has nanoGPT's names and shapes."""

    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(VOCABULARY, WIDTH),
                "wpe": nn.Embedding(POSITIONS, WIDTH),
                "h": nn.ModuleList(Block(bias) for _ in range(LAYERS)),
                "ln_f": Norm(bias),
            }
        )
        self.lm_head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.transformer["wte"].weight = self.lm_head.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.transformer["wte"](ids) + self.transformer["wpe"](torch.arange(len(ids)))
        for block in self.transformer["h"]:
            x = block(x)
        return self.lm_head(self.transformer["ln_f"](x))


def main() -> None:
    arrays = {"ids": np.array(IDS)}
    for seed, (name, bias) in enumerate({"biases": True, "none": False}.items()):
        torch.manual_seed(seed)
        model = Model(bias)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 0.4 * torch.randn(parameter.shape)
        state = model.state_dict()
        arrays |= {f"{name}.state.{key}": value.numpy().copy() for key, value in state.items()}
        with torch.no_grad():
            arrays[f"{name}.logits"] = model.double()(torch.tensor(IDS)).numpy()[:, ::3]
    np.savez_compressed(HERE / "nanogpt.npz", **arrays)


if __name__ == "__main__":
    main()
