"""Record the logits of two tiny random models in nanoGPT's format, with and without biases.

    python tests/reference/make_nanogpt.py

needs torch and transformers, see README.md beside this file. Writes `nanogpt.npz`: for each model,
its state dict in float32, and its logits, computed in float64, for every third token of the
vocabulary. nanoGPT's names are transformers'; but its matrices are those of ``nn.Linear``, so
transposed, a missing bias is 0, and GELU is the exact one.
"""

from __future__ import annotations

import numpy as np
import torch
from hooked import HERE
from transformers import GPT2Config, GPT2LMHeadModel

SIZES = {"vocab_size": 263, "n_positions": 17, "n_embd": 6, "n_head": 2, "n_layer": 2}
IDS = (5, 260, 17, 5, 262, 0, 99)


@torch.no_grad()
def main() -> None:
    config = GPT2Config(**SIZES, activation_function="gelu", bos_token_id=None, eos_token_id=None)
    arrays = {"ids": np.array(IDS)}
    for seed, (name, bias) in enumerate({"biases": True, "none": False}.items()):
        torch.manual_seed(seed)
        model = GPT2LMHeadModel(config).eval()
        for key, parameter in model.named_parameters():
            parameter += 0.4 * torch.randn(parameter.shape)
            parameter *= bias or not key.endswith(".bias")
        for key, tensor in model.state_dict().items():
            matrix = tensor.T if ".c_" in key and tensor.ndim == 2 else tensor
            if bias or not key.endswith(".bias"):
                arrays[f"{name}.state.{key}"] = matrix.numpy().copy()
        logits = model.double()(torch.tensor([IDS])).logits[0]
        arrays[f"{name}.logits"] = logits[:, ::3].numpy()
    np.savez_compressed(HERE / "nanogpt.npz", **arrays)


if __name__ == "__main__":
    main()
