"""Path patching in PyTorch, compared with the library's.

    python tests/pytorch_paths.py DIRECTORY

needs torch. A GPT-2 in float64 in which each receiver has its own copy of the residual stream, so
that it can be changed.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from pytorch_checkpoint import checkpoint
from torch import Tensor
from torch.nn.functional import gelu, layer_norm

import attnlab

directory = Path(sys.argv[1])
config, weights = checkpoint(directory)
L, H, D = config["n_layer"], config["n_head"], config["n_embd"]
Dh, eps = D // H, config["layer_norm_epsilon"]
assert config["activation_function"] == "gelu_new"

Read = Callable[[str, Tensor], Tensor]
SENDERS = [
    "embedding",
    *(f"blocks.{n}.attention.heads.{h}.output" for n in range(L) for h in range(H)),
    *(f"blocks.{n}.mlp.output" for n in range(L)),
]
RECEIVERS = [
    *(f"blocks.{n}.attention.heads.{h}.{x}" for x in "QKV" for n in range(L) for h in range(H)),
    *(f"blocks.{n}.mlp.X" for n in range(L)),
    "final",
]


def norm(x: Tensor, name: str) -> Tensor:
    return layer_norm(x, (D,), weights[f"{name}.weight"], weights[f"{name}.bias"], eps)


def affine(x: Tensor, name: str) -> Tensor:
    return x @ weights[f"{name}.weight"] + weights[f"{name}.bias"]


def run(
    embedding: Tensor, read: Read = lambda name, stream: stream
) -> tuple[Tensor, dict[str, Tensor]]:
    """The last logits and what each sender writes; `read` may change what each receiver reads."""
    T = len(embedding)
    mask = torch.full((T, T), -torch.inf, dtype=torch.float64).triu(1)
    stream, written = embedding, {"embedding": embedding}
    for n in range(L):
        W, b = weights[f"h.{n}.attn.c_attn.weight"], weights[f"h.{n}.attn.c_attn.bias"]
        W_O = weights[f"h.{n}.attn.c_proj.weight"]
        update = weights[f"h.{n}.attn.c_proj.bias"]
        for h in range(H):
            q, k, v = (
                norm(read(f"blocks.{n}.attention.heads.{h}.{name}", stream), f"h.{n}.ln_1")
                @ W[:, i * D + h * Dh : i * D + (h + 1) * Dh]
                + b[i * D + h * Dh : i * D + (h + 1) * Dh]
                for i, name in enumerate("QKV")
            )
            context = (q @ k.T / Dh**0.5 + mask).softmax(-1) @ v
            output = context @ W_O[h * Dh : (h + 1) * Dh]
            written[f"blocks.{n}.attention.heads.{h}.output"] = output
            update = update + output
        stream = stream + update
        x = norm(read(f"blocks.{n}.mlp.X", stream), f"h.{n}.ln_2")
        output = affine(gelu(affine(x, f"h.{n}.mlp.c_fc"), approximate="tanh"), f"h.{n}.mlp.c_proj")
        written[f"blocks.{n}.mlp.output"] = output
        stream = stream + output
    return norm(read("final", stream), "ln_f")[-1] @ weights["wte.weight"].T, written


def stage(path: str) -> float:
    """The stage of a part: its output is read at later stages."""
    if path in ("embedding", "final"):
        return -1 if path == "embedding" else L
    return int(path.split(".")[1]) + (0.5 if ".mlp." in path else 0)


ids = [5, 7, 100, 3, 41, 8, 2]
others = [5, 7, 33, 3, 41, 8, 2]
token, against = 9, 60


def metric(logits: Tensor) -> Tensor:
    return logits[token] - logits[against]


def embedded(ids: list[int]) -> Tensor:
    return weights["wte.weight"][ids] + weights["wpe.weight"][: len(ids)]


clean_logits, clean = run(embedded(ids))
streams: dict[str, Tensor] = {}


def note(name: str, stream: Tensor) -> Tensor:
    streams[name] = stream
    return stream


base_logits, base = run(embedded(others), note)
ends = metric(clean_logits), metric(base_logits)


def share(logits: Tensor) -> float:
    return float((metric(logits) - ends[1]) / (ends[0] - ends[1]))


def patched(changes: dict[str, Tensor]) -> float:
    """Some receivers read the corrupted stream with a change."""
    logits, _ = run(
        embedded(others), lambda name, x: streams[name] + changes[name] if name in changes else x
    )
    return share(logits)


def close(ours: object, theirs: object) -> None:
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-10)


model = attnlab.GPT2.from_pretrained(directory, dtype="float64")
pair = model.trace(ids), model.trace(others)
settings = {"metric": (token, against), "progress": False}

# Direct paths from all senders to every third receiver, which has each kind of them.
for receiver in RECEIVERS[::3]:
    expected = {
        sender: patched({receiver: clean[sender] - base[sender]})
        if stage(sender) < stage(receiver)
        else 0
        for sender in SENDERS
    }
    for path in ("embedding", "blocks.*.attention.heads.*.output", "blocks.*.mlp.output"):
        found = attnlab.path_patch(*pair, path, receiver, **settings)
        close(found.restored.ravel(), [expected.pop(sender) for sender in found.paths])
    assert not expected

# Several receivers together.
together = [f"blocks.{L - 1}.attention.heads.{h}.V" for h in range(H)] + ["final"]
change = clean["blocks.0.mlp.output"] - base["blocks.0.mlp.output"]
path = attnlab.path_patch(
    *pair, "blocks.0.mlp.output", [f"blocks.{L - 1}.attention.heads.*.V", "final"], **settings
)
close(path.restored, patched(dict.fromkeys(together, change)))
