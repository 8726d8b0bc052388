"""Record what SAELens computes with random sparse autoencoders, and with the pocket model's.

    python tests/reference/make_autoencoders.py

needs sae-lens, see README.md beside this file. Writes `autoencoders/`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sae_lens import SAE

HERE = Path(__file__).parent / "autoencoders"
POCKET = Path(__file__).parents[2] / "attnlab" / "pocket" / "sparse_autoencoder"
D, N, ROWS = 35, 17, 11  # the width of `odd`; features; vectors

# Settings as SAELens writes them in cfg.json, and the shape of one input.
CASES: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {
    "standard": ({"metadata": {"hook_name": "blocks.1.hook_resid_pre"}}, (D,)),
    "layer_norm": (
        {
            "apply_b_dec_to_input": False,
            "normalize_activations": "layer_norm",
            "metadata": {"hook_name": "blocks.1.hook_resid_mid"},
        },
        (D,),
    ),
    "hook_z": (
        {"reshape_activations": "hook_z", "metadata": {"hook_name": "blocks.2.attn.hook_z"}},
        (5, 7),
    ),
    "topk": (
        {
            "architecture": "topk",
            "k": 4,
            "rescale_acts_by_decoder_norm": True,
            "normalize_activations": "constant_norm_rescale",
            "metadata": {"hook_name": "blocks.0.hook_mlp_out"},
        },
        (D,),
    ),
    "jumprelu": (
        {
            "architecture": "jumprelu",
            "dtype": "bfloat16",
            "metadata": {"hook_name": "blocks.2.hook_resid_post"},
        },
        (D,),
    ),
}

# As before SAELens 6.
OLD = {
    "d_in": D,
    "d_sae": N,
    "dtype": "torch.float32",
    "device": "cpu",
    "model_name": "gpt2-small",
    "hook_point": "blocks.1.hook_attn_out",
    "hook_point_head_index": None,
    "activation_fn_str": "topk",
    "activation_fn_kwargs": {"k": 3},
    "normalize_activations": False,
}


def record(name: str, sae: Any, shape: tuple[int, ...], directory: Path) -> None:
    """Write inputs, activations and reconstructions, in float64."""
    rng = np.random.default_rng(len(name))
    x = torch.tensor(rng.normal(size=(ROWS, *shape)) + rng.normal())
    sae = sae.to(torch.float64)
    with torch.no_grad():
        activations = sae.encode(x)
        reconstruction = sae.decode(activations)
    active = (activations > 0).sum(-1)
    assert 0 < active.float().mean() < N
    arrays = {"x": x, "activations": activations, "reconstruction": reconstruction}
    flat = {key: np.asarray(array).reshape(ROWS, -1) for key, array in arrays.items()}
    np.savez_compressed(directory / f"{name}.npz", **flat)


def main() -> None:
    for seed, (name, (settings, shape)) in enumerate(CASES.items()):
        metadata = {"sae_lens_version": "6.54.12", **settings["metadata"]}
        config = {"architecture": "standard", "d_in": D, "d_sae": N, **settings}
        sae = SAE.from_dict({**config, "metadata": metadata})
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for key, parameter in sae.named_parameters():
                values = torch.randn(parameter.shape, generator=generator) / 3
                parameter.copy_(values.abs() + 0.2 if key == "threshold" else values)
        sae.save_model(HERE / name)
        record(name, SAE.load_from_disk(HERE / name), shape, HERE)
    standard = HERE / "standard" / "sae_weights.safetensors"
    (HERE / "old").mkdir(exist_ok=True)
    (HERE / "old" / "cfg.json").write_text(json.dumps(OLD))
    (HERE / "old" / "sae_weights.safetensors").write_bytes(standard.read_bytes())
    record("old", SAE.load_from_disk(HERE / "old"), (D,), HERE)
    record("pocket", SAE.load_from_disk(POCKET), (128,), HERE)


if __name__ == "__main__":
    main()
