"""transformers' GPT-2, with each of its steps seen, kept or replaced: the oracle of these scripts.

Steps between modules are seen by hooks on them, what is inside attention by a function that takes
the place of transformers' eager one. `make_models.py` checks that the results are transformers'.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from edit_cases import Kind, replacement
from torch import Tensor, nn
from transformers import GPT2LMHeadModel
from transformers.models.gpt2 import modeling_gpt2

HERE = Path(__file__).resolve().parent
TOLERANCE = 1e-12


def assert_close(actual: Tensor, expected: Tensor) -> None:
    """Assert that tensors of one shape agree to TOLERANCE, absolute and relative."""
    torch.testing.assert_close(actual, expected, rtol=TOLERANCE, atol=TOLERANCE)


def load_model(directory: Path) -> GPT2LMHeadModel:
    """Load a saved model, upcast to float64."""
    model = GPT2LMHeadModel.from_pretrained(
        directory, attn_implementation="eager", local_files_only=True, dtype=torch.float64
    )
    check_reordered(model)
    return model.double().eval()


@torch.no_grad()
def check_reordered(model: GPT2LMHeadModel) -> None:
    """Check that `reorder_and_upcast_attn` changes nothing in float32, and turn it off.

    transformers computes it in no other dtype.
    """
    if model.config.reorder_and_upcast_attn:
        ids = torch.arange(11)[None]
        reordered = model.float().eval()(ids).logits
        for block in model.transformer.h:
            block.attn.reorder_and_upcast_attn = False
        torch.testing.assert_close(model(ids).logits, reordered, rtol=1e-5, atol=1e-5)


class Edits:
    """The edits of one run; `of` gives a step or its replacement."""

    def __init__(self, kinds: dict[str, Kind], seed: int) -> None:
        self.kinds, self.seed = kinds, seed
        self.steps: dict[str, Tensor] = {}  # by path, as edited

    def of(self, path: str, x: Tensor) -> Tensor:
        if path in self.kinds:
            replaced = torch.tensor(replacement(self.kinds[path], x.detach().numpy(), self.seed))
            x = replaced.to(x.dtype).expand(x.shape).clone()
        self.steps[path] = x
        return x

    def of_number(self, path: str, x: float) -> float:
        return float(self.of(path, torch.tensor(x, dtype=torch.float64)))

    def of_heads(self, prefix: str, name: str, x: Tensor) -> Tensor:
        """A step of a layer with the heads first, then of each head."""
        rows = enumerate(self.of(f"{prefix}.{name}", x))
        x = torch.stack([self.of(f"{prefix}.heads.{h}.{name}", row) for h, row in rows])
        self.steps[f"{prefix}.{name}"] = x
        return x


class Kept(Edits):
    """Edits that change nothing and keep each step, a copy of its own."""

    def __init__(self, model: GPT2LMHeadModel) -> None:
        super().__init__({}, 0)
        self.kept: dict[str, Tensor] = {}
        self.config = model.config

    def of(self, path: str, x: Tensor) -> Tensor:
        if not x.is_floating_point() or path.endswith("scale"):
            return x
        self.kept[path] = self.steps[path] = self.changed(path, x.clone())
        if self.kept[path].requires_grad:
            self.kept[path].retain_grad()
        return self.kept[path]

    def changed(self, path: str, x: Tensor) -> Tensor:
        return x

    def of_number(self, path: str, x: float) -> float:
        if not path.endswith("attention.scale"):
            return x
        layer = int(path.split(".")[1])
        by_layer = self.config.scale_attn_by_inverse_layer_idx
        return (x if self.config.scale_attn_weights else 1.0) * (layer + 1 if by_layer else 1)


def attention_of(edits: Edits) -> Callable[..., tuple[Tensor, Tensor]]:
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
        return context.transpose(0, 1)[None], weights[None]

    return attend


def hook_up(model: GPT2LMHeadModel, edits: Edits) -> None:
    """Hooks on all modules whose inputs or outputs are steps."""
    transformer, steps, D = model.transformer, edits.steps, model.config.n_embd
    Dh = D // model.config.n_head

    def after(module: nn.Module, path: str) -> None:
        def hook(_: nn.Module, __: Any, x: Any) -> Any:
            if isinstance(x, tuple):  # before version 5, a block returned one
                return edits.of(path, x[0][0])[None], *x[1:]
            return edits.of(path, x[0])[None]

        module.register_forward_hook(hook)

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

    def mid(block: nn.Module, prefix: str) -> None:
        """Set attention's output so that its sum with the block's input is the edited one."""

        def hook(_: nn.Module, __: Any, inputs: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
            stream = steps[f"{prefix}.input"]
            return (edits.of(f"{prefix}.mid", stream + inputs[0][0]) - stream)[None], inputs[1]

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
        mid(block, prefix)
        after(block.ln_2, f"{prefix}.mlp.X")
        after(block.mlp.c_fc, f"{prefix}.mlp.hidden")
        after(block.mlp.act, f"{prefix}.mlp.activated")
        after(block.mlp.c_proj, f"{prefix}.mlp.output")
        after(block, f"{prefix}.output")
    after(transformer.ln_f, "final")
    after(model.lm_head, "logits")


def run(model: GPT2LMHeadModel, ids: Tensor, edits: Edits) -> Tensor:
    """The logits (T, vocab) of a model that from now on is hooked."""
    hook_up(model, edits)
    positions = edits.of("positions", torch.arange(len(ids)))
    with mock.patch.object(modeling_gpt2, "eager_attention_forward", attention_of(edits)):
        return model(ids[None], position_ids=positions[None], use_cache=False).logits[0]


def steps_of(model: GPT2LMHeadModel, ids: Tensor, kept: Kept | None = None) -> dict[str, Tensor]:
    """Every step of a pass by its path, computed in a copy of the model."""
    kept = kept or Kept(model)
    run(copy.deepcopy(model), ids, kept)
    return kept.kept
