"""Record the analyses' expected numbers, by transformers with hooks, autograd and full matrices.

    python tests/reference/make_analysis.py    (after make_models.py, whose models it reads)

needs torch, transformers and transformer_lens, see README.md beside this file. Writes
`analysis.npz`.

Every step is taken from the model by the hooks of `hooked.py`, with its gradient.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from hooked import HERE, Kept, load_model, run, steps_of
from torch import Tensor
from transformer_lens import FactoredMatrix
from transformer_lens.model_bridge import TransformerBridge
from transformers import GPT2LMHeadModel

# The tokens of the targets, one alone and one against another, and the position.
TARGETS = (("logit", 5, None, -1), ("difference", 7, 100, 3))

GRADIENTS = {
    "odd": ("loss", "difference"),
    "silu": ("logit",),
    "quick_gelu": ("loss",),
    "relu": ("difference",),
}
PLACES = ("odd", "silu", "quick_gelu")
PATCHED = {
    "heads": "blocks.{}.attention.heads.{}.context",
    "mlps": "blocks.{}.mlp.output",
    "stream": "blocks.{}.output",
}
CHANGED = 2  # the position at which the corrupted text has another token
LARGE, EVERY = 60, 11  # of a larger gradient, every eleventh number is recorded


class Patched(Kept):
    """Replace one step, or one row of it, by that of another run."""

    def __init__(self, model: GPT2LMHeadModel, path: str, other: Tensor, row: slice) -> None:
        super().__init__(model)
        self.path, self.other, self.row = path, other, row

    def changed(self, path: str, x: Tensor) -> Tensor:
        if path == self.path:
            x[self.row] = self.other[self.row]
        return x


def value(logits: Tensor, token: int, against: int | None, position: int) -> Tensor:
    row = logits[position]
    return row[token] if against is None else row[token] - row[against]


def lens(model: GPT2LMHeadModel, steps: dict[str, Tensor]) -> dict[str, Tensor]:
    stops = [steps["embedding"]]
    for layer in range(model.config.n_layer):
        stops += [steps[f"blocks.{layer}.mid"], steps[f"blocks.{layer}.output"]]
    logits = torch.stack([model.lm_head(model.transformer.ln_f(stop)) for stop in stops])
    probabilities = logits.softmax(dim=-1)
    return {
        "logits": logits[..., ::66],
        "best": logits.argmax(dim=-1),
        "probability": probabilities[..., 5],
        "rank": 1 + (logits.argsort(dim=-1, descending=True) == 5).int().argmax(dim=-1),
        "top": logits[:, 4].topk(3).indices,
    }


def attribution(
    model: GPT2LMHeadModel, steps: dict[str, Tensor], token: int, against: int | None, row: int
) -> dict[str, Tensor]:
    """Each part through the final LayerNorm, its deviation held constant, and the output matrix."""
    L, H = model.config.n_layer, model.config.n_head
    norm, last = model.transformer.ln_f, steps[f"blocks.{L - 1}.output"][row]
    deviation = (last.var(unbiased=False) + norm.eps).sqrt()

    def contribution(written: Tensor) -> Tensor:
        held = (written - written.mean(dim=-1, keepdim=True)) / deviation * norm.weight
        return value((held @ model.lm_head.weight.T)[None], token, against, 0)

    heads, by_token, mlps = [], [], []
    bias = value((norm.bias @ model.lm_head.weight.T)[None], token, against, 0)
    for layer, block in enumerate(model.transformer.h):
        prefix = f"blocks.{layer}.attention"
        for h in range(H):
            W_O = block.attn.c_proj.weight.chunk(H)[h]
            heads.append(contribution(steps[f"{prefix}.context"][h, row] @ W_O))
            weights, V = steps[f"{prefix}.weights"][h, row], steps[f"{prefix}.V"][h]
            by_token += [
                contribution(weight * v @ W_O) for weight, v in zip(weights, V, strict=True)
            ]
        bias = bias + contribution(block.attn.c_proj.bias)
        mlps.append(contribution(steps[f"blocks.{layer}.mlp.output"][row]))
    embedding = contribution(steps["embedding"][row])
    total = value(steps["logits"], token, against, row)
    assert abs(sum(heads) + sum(mlps) + embedding + bias - total) < 1e-10
    return {
        "heads": torch.stack(heads).reshape(L, H),
        "by_token": torch.stack(by_token).reshape(L, H, -1),
        "mlps": torch.stack(mlps),
        "embedding": embedding,
        "bias": bias,
        "total": total,
    }


def gradients(model: GPT2LMHeadModel, ids: Tensor, of: str) -> dict[str, Any]:
    """Names, with each one's numbers in turn."""
    model, kept = copy.deepcopy(model), Kept(model)
    with torch.enable_grad():
        run(model, ids, kept)
        logits = kept.kept["logits"]
        if of == "loss":
            target = torch.nn.functional.cross_entropy(logits[:-1], ids[1:])
        else:
            (settings,) = [fields for name, *fields in TARGETS if name == of]
            target = value(logits, *settings)
        target.backward()
    results = {path: step.grad for path, step in kept.kept.items()}
    results |= {f"parameter {name}": p.grad for name, p in model.named_parameters()}
    thinned = {
        name: d.flatten()[:: 1 if d.numel() <= LARGE else EVERY]
        for name, d in results.items()
        if d is not None and (".heads." not in name or ".1.attention.heads.1." in name)
    }
    return {"names": np.array("\n".join(thinned)), "numbers": torch.cat([*thinned.values()])}


def circuits(model: GPT2LMHeadModel) -> dict[str, Tensor]:
    """Composition scores of every pair of heads, by TransformerLens's factored matrices."""
    H, D = model.config.n_head, model.config.n_embd
    centre = torch.eye(D) - torch.ones(D, D) / D
    QK, OV, folded_QK, folded_OV = [], [], [], []
    for block in model.transformer.h:
        Q, K, V = (W.chunk(H, dim=1) for W in block.attn.c_attn.weight.split(D, dim=1))
        W_O = block.attn.c_proj.weight.chunk(H)
        QK.append([FactoredMatrix(Q[h], K[h].T) for h in range(H)])
        OV.append([FactoredMatrix(V[h], W_O[h]) for h in range(H)])
        # LayerNorm before: centring, then the gain. After W_O: the next LayerNorm's centring.
        reads = centre @ block.ln_1.weight.diag()
        folded_QK.append([reads @ product @ reads.T for product in QK[-1]])
        folded_OV.append([reads @ product @ centre for product in OV[-1]])
    L = len(QK)
    results = {name: torch.zeros(L, H, L, H) for name in "QKV"}
    for first, one, second, other in np.ndindex(L, H, L, H):
        if first >= second:
            continue
        writes, asks = folded_OV[first][one].AB, folded_QK[second][other].AB
        for name, reads in (("Q", asks), ("K", asks.T), ("V", folded_OV[second][other].AB)):
            score = (writes @ reads).norm() / writes.norm() / reads.norm()
            results[name][first, one, second, other] = score
    results["singular"] = torch.linalg.svdvals(QK[1][1].AB)
    eigenvalues = torch.linalg.eigvals(OV[1][1].AB)
    results["eigenvalues"] = eigenvalues[eigenvalues.abs().argsort(descending=True)]
    return results


def flow(model: GPT2LMHeadModel, steps: dict[str, Tensor]) -> dict[str, Tensor]:
    """Attention rollout, and the norms of the weighted values."""
    H, so_far, rollout, lengths = model.config.n_head, None, [], []
    for layer, block in enumerate(model.transformer.h):
        weights = steps[f"blocks.{layer}.attention.weights"]
        mixed = weights.mean(dim=0) + torch.eye(len(weights[0]))
        mixed = mixed / mixed.sum(dim=-1, keepdim=True)
        so_far = mixed if so_far is None else mixed @ so_far
        rollout.append(so_far)
        for h in range(H):
            V = steps[f"blocks.{layer}.attention.V"][h]
            written = V @ block.attn.c_proj.weight.chunk(H)[h]
            lengths.append((weights[h][..., None] * written[None]).norm(dim=-1))
    return {"rollout": torch.stack(rollout), "lengths": torch.stack(lengths).unflatten(0, (-1, H))}


def patching(model: GPT2LMHeadModel, ids: Tensor) -> dict[str, Any]:
    other = ids.clone()
    other[CHANGED] = (other[CHANGED] + 50) % model.config.vocab_size
    _, token, against, _ = TARGETS[1]
    clean, corrupted = steps_of(model, ids), steps_of(model, other)
    best, worst = (value(steps["logits"], token, against, -1) for steps in (clean, corrupted))

    with torch.enable_grad():
        kept = Kept(model)
        value(steps_of(model, other, kept)["logits"], token, against, -1).backward()

    def restored(path: str, row: slice) -> float:
        patched = steps_of(model, other, Patched(model, path, clean[path], row))
        return ((value(patched["logits"], token, against, -1) - worst) / (best - worst)).item()

    def guessed(path: str, row: slice) -> float:
        change = (clean[path] - corrupted[path])[row] * kept.kept[path].grad[row]
        return (change.sum() / (best - worst)).item()

    L, H, T = model.config.n_layer, model.config.n_head, len(ids)
    results: dict[str, Any] = {"ids": other}
    for name, path in PATCHED.items():
        numbers = [(n, h) for n in range(L) for h in range(H)] if name == "heads" else range(L)
        paths = [path.format(*n) if name == "heads" else path.format(n) for n in numbers]
        shape = (L, H) if name == "heads" else (L,)
        for kind, measure in (("restored", restored), ("guessed", guessed)):
            at_all_rows = [measure(path, slice(None)) for path in paths]
            results[f"{name}.{kind}"] = torch.tensor(at_all_rows).reshape(shape)
            rows = [[measure(path, slice(t, t + 1)) for t in range(T)] for path in paths]
            results[f"{name}.{kind}.rows"] = torch.tensor(rows).reshape(*shape, T)
    return results


def check_with_transformer_lens(name: str, ids: Tensor, recorded: dict[str, Any]) -> None:
    """TransformerLens agrees; its composition scores have LayerNorm folded into the weights."""
    model = TransformerBridge.boot_transformers(str(HERE / name), dtype=torch.float64)
    _, cache = model.run_with_cache(ids[None])
    L, H = model.cfg.n_layers, model.cfg.n_heads
    stops = [cache["blocks.0.hook_resid_pre"]]
    for layer in range(L):
        stops += [cache[f"blocks.{layer}.hook_resid_{stop}"] for stop in ("mid", "post")]
    logits = torch.stack([model.unembed(model.ln_final(stop))[0] for stop in stops])
    _, token, against, row = TARGETS[1]
    last, norm = stops[-1][0, row], model.ln_final
    heads = cache.stack_head_results(layer=-1, pos_slice=row)[:, 0]
    heads = heads - heads.mean(dim=-1, keepdim=True)
    heads = heads / (last.var(unbiased=False) + norm.eps).sqrt() * norm.weight
    w = model.unembed.W_U[:, token] - model.unembed.W_U[:, against]
    for results, expected in (
        (logits[..., ::66], "lens/logits"),
        ((heads @ w).reshape(L, H), "difference/heads"),
    ):
        assert np.abs(results.numpy() - recorded[f"{name}/{expected}"]).max() < 1e-12, expected
    model.enable_compatibility_mode()  # folds in float32
    for kind in "QKV":
        results, expected = model.all_composition_scores(kind), f"circuits/{kind}"
        assert np.abs(results.numpy() - recorded[f"{name}/{expected}"]).max() < 1e-7, expected


@torch.no_grad()
def main() -> None:
    torch.set_default_dtype(torch.float64)
    recorded: dict[str, Any] = {}

    def keep(prefix: str, results: dict[str, Any]) -> None:
        recorded.update({f"{prefix}/{name}": np.asarray(x) for name, x in results.items()})

    for name in PLACES:
        model = load_model(HERE / name)
        ids = torch.tensor(np.load(HERE / name / "expected.npz")["ids"])
        steps = steps_of(model, ids)
        keep(f"{name}/lens", lens(model, steps))
        for target, token, against, row in TARGETS:
            keep(f"{name}/{target}", attribution(model, steps, token, against, row))
        keep(f"{name}/circuits", circuits(model))
        keep(f"{name}/flow", flow(model, steps))
        keep(f"{name}/patching", patching(model, ids))
    ids = torch.tensor(np.load(HERE / "odd" / "expected.npz")["ids"])
    check_with_transformer_lens("odd", ids, recorded)
    for name, targets in GRADIENTS.items():
        model = load_model(HERE / name)
        ids = torch.tensor(np.load(HERE / name / "expected.npz")["ids"])
        for of in targets:
            keep(f"{name}/gradients/{of}", gradients(model, ids, of))
    np.savez_compressed(HERE / "analysis.npz", **recorded)
    print(len(recorded), "arrays,", (HERE / "analysis.npz").stat().st_size, "bytes")


if __name__ == "__main__":
    main()
