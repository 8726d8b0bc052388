"""Record forward passes of transformers in which steps are edited.

    python tests/reference/make_edits.py    (after make_models.py, whose models it reads)

needs torch and transformers, see README.md beside this file. Writes `edits.npz`.

Steps between modules are edited by hooks on them, parameters in the model itself, and what is
inside attention in a function that takes the place of transformers' eager one; with nothing edited
it is checked to give the same.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from edit_cases import PLACES, Kind, cases, replacement
from make_models import HERE, load_model
from torch import Tensor, nn
from transformers import GPT2LMHeadModel
from transformers.models.gpt2 import modeling_gpt2

TOLERANCE = 1e-12
LEAST_EFFECT = 1e-3


class Edits:
    """The edits of one run; `of` gives a step or its replacement."""

    def __init__(self, kinds: dict[str, Kind], seed: int) -> None:
        self.kinds, self.seed = kinds, seed

    def of(self, path: str, x: Tensor) -> Tensor:
        if path not in self.kinds:
            return x
        replaced = torch.tensor(replacement(self.kinds[path], x.detach().numpy(), self.seed))
        return replaced.to(x.dtype).expand(x.shape).clone()

    def of_number(self, path: str, x: float) -> float:
        return float(self.of(path, torch.tensor(x, dtype=torch.float64)))

    def of_heads(self, prefix: str, name: str, x: Tensor) -> Tensor:
        """A step of a layer with the heads first, then of each head."""
        x = self.of(f"{prefix}.{name}", x)
        return torch.stack([self.of(f"{prefix}.heads.{h}.{name}", row) for h, row in enumerate(x)])


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


def attention_of(edits: Edits, steps: dict[str, Tensor]) -> Callable[..., tuple[Tensor, Tensor]]:
    """A replacement of transformers' eager attention."""

    def attend(
        module: nn.Module, query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        prefix = f"blocks.{module.layer_idx}.attention"
        Q, K, V = (
            edits.of_heads(prefix, name, x[0])
            for name, x in (("Q", query), ("K", key), ("V", value))
        )
        H, T, Dh = Q.shape
        raw = edits.of_heads(prefix, "raw_scores", torch.einsum("hqd,hkd->hqk", Q, K))
        scale = edits.of_number(f"{prefix}.scale", math.sqrt(Dh))
        scales = [edits.of_number(f"{prefix}.heads.{h}.scale", scale) for h in range(H)]
        scores = edits.of_heads(
            prefix, "scores", raw / torch.tensor(scales, dtype=raw.dtype)[:, None, None]
        )
        mask = edits.of("mask", torch.ones(T, T, dtype=torch.bool).tril())
        mask = edits.of(f"{prefix}.mask", mask).expand(H, T, T)
        mask = torch.stack(
            [edits.of(f"{prefix}.heads.{h}.mask", row) for h, row in enumerate(mask)]
        )
        masked = edits.of_heads(prefix, "masked_scores", scores.masked_fill(~mask, -math.inf))
        weights = edits.of_heads(prefix, "weights", masked.softmax(dim=-1))
        context = edits.of_heads(prefix, "context", weights @ V)
        steps[f"{prefix}.weights"], steps[f"{prefix}.context"] = weights, context
        return context.transpose(0, 1)[None], weights[None]

    return attend


def hook_up(model: GPT2LMHeadModel, edits: Edits, steps: dict[str, Tensor]) -> None:
    """Hooks on all modules whose inputs or outputs are steps."""
    transformer, D = model.transformer, model.config.n_embd
    Dh = D // model.config.n_head

    def after(module: nn.Module, path: str) -> None:
        module.register_forward_hook(lambda _, inputs, x: edits.of(path, x[0])[None])

    def before(module: nn.Module, path: str) -> None:
        module.register_forward_pre_hook(
            lambda _, inputs: (edits.of(path, inputs[0][0])[None], *inputs[1:])
        )

    def heads_X(linear: nn.Module, prefix: str) -> None:
        def hook(_: nn.Module, inputs: tuple[Tensor, ...], QKV: Tensor) -> Tensor:
            for h in range(D // Dh):
                edited = linear.forward(edits.of(f"{prefix}.heads.{h}.X", inputs[0][0])[None])
                for start in range(h * Dh, 3 * D, D):
                    QKV[..., start : start + Dh] = edited[..., start : start + Dh]
            return QKV

        linear.register_forward_hook(hook)

    def heads_output(linear: nn.Module, prefix: str) -> None:
        def hook(_: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
            for h, context in enumerate(steps[f"{prefix}.context"]):
                contribution = context @ linear.weight[h * Dh : (h + 1) * Dh]
                output = (
                    output + edits.of(f"{prefix}.heads.{h}.output", contribution) - contribution
                )
            return output

        linear.register_forward_hook(hook)

    def mid(block: nn.Module, path: str) -> None:
        """Set attention's output so that its sum with the block's input is the edited one."""

        def keep(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            steps[f"{path}.input"] = inputs[0][0]

        def hook(_: nn.Module, __: Any, inputs: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
            stream = steps[f"{path}.input"]
            steps[path] = edits.of(path, stream + inputs[0][0])
            return (steps[path] - stream)[None], inputs[1]

        block.register_forward_pre_hook(keep)
        block.attn.register_forward_hook(hook)

    after(transformer.wte, "token_embedding")
    after(transformer.wpe, "position_embedding")
    before(transformer.drop, "embedding")
    for layer, block in enumerate(transformer.h):
        prefix = f"blocks.{layer}"
        before(block, f"{prefix}.input")
        before(block.ln_1, f"{prefix}.attention.residual")
        after(block.ln_1, f"{prefix}.attention.X")
        heads_X(block.attn.c_attn, f"{prefix}.attention")
        after(block.attn.c_attn, f"{prefix}.attention.QKV")
        before(block.attn.c_proj, f"{prefix}.attention.concat")
        heads_output(block.attn.c_proj, f"{prefix}.attention")
        after(block.attn.c_proj, f"{prefix}.attention.output")
        mid(block, f"{prefix}.mid")
        after(block.ln_2, f"{prefix}.mlp.X")
        after(block.mlp.c_fc, f"{prefix}.mlp.hidden")
        after(block.mlp.act, f"{prefix}.mlp.activated")
        after(block.mlp.c_proj, f"{prefix}.mlp.output")
        after(block, f"{prefix}.output")
    after(transformer.ln_f, "final")
    after(model.lm_head, "logits")


@torch.no_grad()
def record(model: GPT2LMHeadModel, ids: Tensor, kinds: dict[str, Kind], seed: int) -> np.ndarray:
    """Some numbers of an edited run: of each row of logits, more of the last, and of late steps."""
    model, edits = copy.deepcopy(model), Edits(kinds, seed)
    steps: dict[str, Tensor] = {}
    edit_parameters(model, edits)
    hook_up(model, edits, steps)
    modeling_gpt2.eager_attention_forward = attention_of(edits, steps)
    positions = edits.of("positions", torch.arange(len(ids)))
    logits = model(ids[None], position_ids=positions[None], use_cache=False).logits[0]
    last = f"blocks.{model.config.n_layer - 1}"
    late = [steps[f"{last}.attention.weights"][:, -1, 0], steps[f"{last}.mid"][-1, :4]]
    kept = [logits[:, ::66].flatten(), logits[-1, ::33], *late]
    return torch.cat(kept).numpy()


def main() -> None:
    recorded = {}
    eager = modeling_gpt2.eager_attention_forward
    for name, layer, head in PLACES:
        model = load_model(HERE / name)
        expected = np.load(HERE / name / "expected.npz")
        ids = torch.tensor(expected["ids"])
        modeling_gpt2.eager_attention_forward = eager
        with torch.no_grad():
            logits = model(ids[None]).logits[0].numpy()
        plain = record(model, ids, {}, 0)
        assert np.abs(plain[: logits[:, ::66].size] - logits[:, ::66].ravel()).max() < TOLERANCE
        all_kinds = cases(layer, head)
        recorded[name] = np.array(
            [record(model, ids, kinds, n) for n, kinds in enumerate(all_kinds)]
        )
        for kinds, row in zip(all_kinds, recorded[name], strict=True):
            # b_K adds the same to all scores of a row, which softmax ignores.
            unfelt = all(path.endswith(".b_K") for path in kinds)
            assert unfelt == (np.abs(row - plain).max() < LEAST_EFFECT), kinds
    np.savez_compressed(HERE / "edits.npz", **recorded)
    print({name: rows.shape for name, rows in recorded.items()})
    print((HERE / "edits.npz").stat().st_size, "bytes")


if __name__ == "__main__":
    main()
