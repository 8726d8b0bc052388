"""Every step of transformers' GPT-2.

Steps between modules are seen by hooks on them, what is inside attention by a function that takes
the place of transformers' eager one.
"""

from __future__ import annotations

import copy
import math
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from transformers import GPT2LMHeadModel
from transformers.models.gpt2 import modeling_gpt2


def steps_of(model: GPT2LMHeadModel, ids: Tensor) -> dict[str, Tensor]:
    """The steps of a pass by their paths, computed in a copy of the model."""
    model, steps = copy.deepcopy(model), {}
    transformer, config = model.transformer, model.config

    def after(module: nn.Module, path: str) -> None:
        def hook(_: nn.Module, __: Any, x: Any) -> None:
            steps[path] = (x[0] if isinstance(x, tuple) else x)[0].clone()

        module.register_forward_hook(hook)

    def before(module: nn.Module, path: str) -> None:
        def hook(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            steps[path] = inputs[0][0].clone()

        module.register_forward_pre_hook(hook)

    def attend(
        module: nn.Module, query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        prefix, (Q, K, V) = f"blocks.{module.layer_idx}.attention", (query[0], key[0], value[0])
        _, T, Dh = Q.shape
        scale = math.sqrt(Dh) if config.scale_attn_weights else 1.0
        scores = torch.einsum("hqd,hkd->hqk", Q, K) / torch.tensor(scale, dtype=Q.dtype)
        mask = torch.ones(T, T, dtype=torch.bool).tril()
        weights = scores.masked_fill(~mask, -math.inf).softmax(dim=-1)
        context = weights @ V
        named = zip(
            ("Q", "K", "V", "scores", "weights", "context"),
            (Q, K, V, scores, weights, context),
            strict=True,
        )
        steps.update({f"{prefix}.{name}": x.clone() for name, x in named})
        return context.transpose(0, 1)[None], weights[None]

    before(transformer.drop, "embedding")
    for layer, block in enumerate(transformer.h):
        prefix = f"blocks.{layer}"
        after(block.ln_1, f"{prefix}.attention.X")
        before(block.attn.c_proj, f"{prefix}.attention.concat")
        after(block.attn.c_proj, f"{prefix}.attention.output")
        before(block.ln_2, f"{prefix}.mid")
        after(block.ln_2, f"{prefix}.mlp.X")
        after(block.mlp.c_fc, f"{prefix}.mlp.hidden")
        after(block.mlp.act, f"{prefix}.mlp.activated")
        after(block.mlp.c_proj, f"{prefix}.mlp.output")
        after(block, f"{prefix}.output")
    after(transformer.ln_f, "final")
    after(model.lm_head, "logits")
    with mock.patch.object(modeling_gpt2, "eager_attention_forward", attend):
        model(ids[None], use_cache=False)
    return steps
