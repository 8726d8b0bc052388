"""Record forward passes of transformers in which steps are edited.

    python tests/reference/make_edits.py    (after make_models.py, whose models it reads)

needs torch and transformers, see README.md beside this file. Writes `edits.npz`.

Parameters are edited in the model itself, steps by the hooks of `hooked.py`.
"""

from __future__ import annotations

import copy

import numpy as np
import torch
from edit_cases import PLACES, Kind, cases, projection, recorded_paths
from hooked import HERE, Edits, load_model, run
from torch import Tensor, nn
from transformers import GPT2LMHeadModel

LEAST_EFFECT = 1e-6


def edit_parameters(model: GPT2LMHeadModel, edits: Edits) -> None:
    """Apply the edits to the model, a step before its parts."""
    transformer, D = model.transformer, model.config.n_embd
    H, Dh = model.config.n_head, model.config.n_embd // model.config.n_head

    def put(path: str, tensor: Tensor) -> None:
        tensor.copy_(edits.of(path, tensor))

    put("W_E", transformer.wte.weight)
    model.lm_head.weight = nn.Parameter(model.lm_head.weight.clone())
    put("W_U", model.lm_head.weight.T)
    put("W_P", transformer.wpe.weight)
    put("gain", transformer.ln_f.weight)
    put("bias", transformer.ln_f.bias)
    for norm in (module for module in model.modules() if isinstance(module, nn.LayerNorm)):
        norm.eps = edits.of_number("epsilon", norm.eps)
    for layer, block in enumerate(transformer.h):
        prefix = f"blocks.{layer}.attention"
        for name, W in (("W", block.attn.c_attn.weight), ("b", block.attn.c_attn.bias)):
            put(f"{prefix}.{name}_QKV", W)
            for n, part in enumerate("QKV"):
                put(f"{prefix}.{name}_{part}", W[..., n * D : (n + 1) * D])
                for h in range(H):
                    columns = W[..., n * D + h * Dh : n * D + (h + 1) * Dh]
                    put(f"{prefix}.heads.{h}.{name}_{part}", columns)
        put(f"{prefix}.W_O", block.attn.c_proj.weight)
        for h in range(H):
            put(f"{prefix}.heads.{h}.W_O", block.attn.c_proj.weight[h * Dh : (h + 1) * Dh])
        put(f"{prefix}.b_O", block.attn.c_proj.bias)
        for norm, part in ((block.ln_1, "attention"), (block.ln_2, "mlp")):
            put(f"blocks.{layer}.{part}.gain", norm.weight)
            put(f"blocks.{layer}.{part}.bias", norm.bias)
            norm.eps = edits.of_number(f"blocks.{layer}.{part}.epsilon", norm.eps)
        for n, linear in ((1, block.mlp.c_fc), (2, block.mlp.c_proj)):
            put(f"blocks.{layer}.mlp.W_{n}", linear.weight)
            put(f"blocks.{layer}.mlp.b_{n}", linear.bias)


@torch.no_grad()
def record(model: GPT2LMHeadModel, ids: Tensor, kinds: dict[str, Kind], seed: int) -> list[float]:
    """A projection of each step of an edited run."""
    model, edits = copy.deepcopy(model), Edits(kinds, seed)
    edit_parameters(model, edits)
    run(model, ids, edits)
    paths = recorded_paths(model.config.n_layer)
    return [projection(edits.steps[path].numpy()) for path in paths]


def main() -> None:
    recorded = {}
    for name, layer, head in PLACES:
        model = load_model(HERE / name)
        ids = torch.tensor(np.load(HERE / name / "expected.npz")["ids"])
        *_, plain = record(model, ids, {}, 0)  # of the logits
        rows = []
        for n, kinds in enumerate(cases(layer, head)):
            rows.append(record(model, ids, kinds, n))
            # b_K adds the same to all scores of a row, which softmax ignores.
            unfelt = all(path.endswith(".b_K") for path in kinds)
            assert unfelt == (abs(rows[-1][-1] - plain) < LEAST_EFFECT), kinds
        recorded[name] = np.array(rows)
    np.savez_compressed(HERE / "edits.npz", **recorded)
    print({name: rows.shape for name, rows in recorded.items()})
    print((HERE / "edits.npz").stat().st_size, "bytes")


if __name__ == "__main__":
    main()
