"""Train a small English GPT-2 with PyTorch.

    python examples/english/train.py CORPUS MODEL

CORPUS is the directory that `corpus.py` wrote. MODEL gets the model, which `GPT2.from_pretrained`
opens, a log, and a checkpoint every three minutes; repeat the command to resume. MODEL/averaged has
the mean of the weights over the last tenth of the steps.

It takes hours and wants the machine alone. The library trains too (`attnlab.train`), in NumPy with
gradients that can be read; PyTorch computes in bfloat16 and compiles, which is several times as
fast.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from corpus import UNKNOWN, Part, batch, learn_tokens, names_in, part_of, tokenizer_of
from safetensors.torch import save_file

from attnlab import GPT2Config

SEED = 1
TOKENS_PER_STEP = 4096

# Three steps of four have half windows, so that the first positions, where a reader's text is, are
# seen often.
FULL_EVERY = 4

WARMUP = 100  # steps
LEARNING_RATE, MATRIX_RATE = 4e-3, 0.02
FALLS_FROM = 0.5  # share of the steps after which the learning rate falls to 0
AVERAGED_FROM, AVERAGED_EVERY = 0.9, 20  # share of the steps, steps

# The share of windows with repeated text: in the first fifth of the steps, in which heads learn
# induction, and in the rest, where they only have to keep it.
REPEATED_EARLY, REPEATED = 0.3, 0.06

SAVE_EVERY = 180  # seconds

Tensors = dict[str, torch.Tensor]

# ---- the model -----------------------------------------------------------------------------------


def initial(config: GPT2Config) -> Tensors:
    """Draw parameters as GPT-2's are drawn, by their names in a checkpoint."""
    D, layers = config.n_embd, config.n_layer
    generator = torch.Generator().manual_seed(SEED)

    def normal(*shape: int, std: float = 0.02) -> torch.Tensor:
        return torch.randn(*shape, generator=generator) * std

    P = {"wte.weight": normal(config.vocab_size, D), "wpe.weight": normal(config.n_positions, D)}
    norms = ["ln_f"]
    for layer in range(layers):
        h, residual = f"h.{layer}.", 0.02 / math.sqrt(2 * layers)
        norms += [f"{h}ln_1", f"{h}ln_2"]
        for name, rows, columns, std in (
            ("attn.c_attn", D, 3 * D, 0.02),
            ("attn.c_proj", D, D, residual),
            ("mlp.c_fc", D, 4 * D, 0.02),
            ("mlp.c_proj", 4 * D, D, residual),
        ):
            P[f"{h}{name}.weight"] = normal(rows, columns, std=std)
            P[f"{h}{name}.bias"] = torch.zeros(columns)
    for norm in norms:
        P[f"{norm}.weight"], P[f"{norm}.bias"] = torch.ones(D), torch.zeros(D)
    return P


def loss(P: Tensors, ids: torch.Tensor, targets: torch.Tensor, n_head: int) -> torch.Tensor:
    """GPT-2's mean cross-entropy in nats a token."""
    T, D = ids.shape[-1], P["wte.weight"].shape[1]
    layers = sum(name.endswith("ln_1.weight") for name in P)

    def layer_norm(x: torch.Tensor, name: str) -> torch.Tensor:
        return F.layer_norm(x, (D,), P[f"{name}.weight"], P[f"{name}.bias"])

    def affine(x: torch.Tensor, name: str) -> torch.Tensor:
        return x @ P[f"{name}.weight"] + P[f"{name}.bias"]

    def heads(x: torch.Tensor) -> torch.Tensor:  # (B, T, D) -> (B, H, T, Dh)
        return x.unflatten(-1, (n_head, D // n_head)).transpose(1, 2)

    future = torch.ones(T, T, dtype=torch.bool).triu(1)
    residual = P["wte.weight"][ids] + P["wpe.weight"][:T]
    for layer in range(layers):
        h = f"h.{layer}."
        QKV = affine(layer_norm(residual, f"{h}ln_1"), f"{h}attn.c_attn")
        Q, K, V = map(heads, QKV.chunk(3, dim=-1))
        scores = (Q @ K.mT / (D // n_head) ** 0.5).masked_fill(future, -math.inf)
        context = scores.softmax(dim=-1) @ V
        concat = context.transpose(1, 2).flatten(2)
        residual = residual + affine(concat, f"{h}attn.c_proj")
        hidden = affine(layer_norm(residual, f"{h}ln_2"), f"{h}mlp.c_fc")
        activated = F.gelu(hidden, approximate="tanh")
        residual = residual + affine(activated, f"{h}mlp.c_proj")
    logits = layer_norm(residual, "ln_f") @ P["wte.weight"].T
    return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), ignore_index=UNKNOWN)


# ---- the optimizer -------------------------------------------------------------------------------


class Muon:
    """Updates of the blocks' matrices: the momentum, made orthogonal.

    All singular values of an update are then about 1, so that rare directions learn as fast as
    frequent ones.

    Source: "Muon: An optimizer for hidden layers in neural networks" (Jordan and others, 2024),
    with its coefficients of the Newton-Schulz iteration.
    """

    def __init__(self, matrices: Tensors) -> None:
        self.matrices = matrices
        self.momentum = {name: torch.zeros_like(W) for name, W in matrices.items()}

    def step(self, rate: float) -> None:
        for name, W in self.matrices.items():
            momentum = self.momentum[name].mul_(0.95).add_(W.grad)
            update = W.grad + 0.95 * momentum
            rows, columns = W.shape
            parts = 3 if "c_attn" in name else 1  # W_Q, W_K and W_V are three matrices
            scale = rate * max(1, columns / parts / rows) ** 0.5
            updates = torch.cat([orthogonal(part) for part in update.chunk(parts, 1)], 1)
            W.detach().mul_(1 - 0.1 * rate).add_(updates, alpha=-scale)


def orthogonal(matrix: torch.Tensor) -> torch.Tensor:
    """Five Newton-Schulz iterations towards U Vᵀ of a matrix U S Vᵀ; in bfloat16."""
    X = matrix.bfloat16()
    X = X / (X.norm() + 1e-7)
    wide = X.shape[0] <= X.shape[1]
    X = X if wide else X.mT
    for _ in range(5):
        A = X @ X.mT
        X = 3.4445 * X + (-4.7750 * A + 2.0315 * A @ A) @ X
    return (X if wide else X.mT).float()


def rate_at(step: int, steps: int) -> float:
    """The share of the learning rate: a short rise, then constant, then a fall to 0."""
    return min((step + 1) / WARMUP, 1, (1 - step / steps) / (1 - FALLS_FROM))


# ---- a run ---------------------------------------------------------------------------------------


class Run:
    """A training run in a directory."""

    def __init__(self, corpus: Path, directory: Path, steps: int, config: GPT2Config) -> None:
        self.directory, self.steps, self.step, self.averaged = directory, steps, 0, 0
        (directory / "averaged").mkdir(parents=True, exist_ok=True)
        if not (directory / "merges.txt").exists():
            learn_tokens(corpus, directory, config.vocab_size)
        tokenizer = tokenizer_of(directory)
        # A small corpus has fewer tokens than asked for.
        self.config = config = replace(config, vocab_size=tokenizer.get_vocab_size())
        self.parts = {name: part_of(corpus, name, tokenizer) for name in names_in(corpus)}
        self.held_out = {name: part_of(corpus, f"held_{name}", tokenizer) for name in self.parts}
        self.P = {name: W.requires_grad_() for name, W in initial(config).items()}
        self.mean = {name: torch.zeros_like(W) for name, W in self.P.items()}
        matrices = {name: W for name, W in self.P.items() if name[0] == "h" and W.ndim == 2}
        self.muon = Muon(matrices)
        self.adam = torch.optim.AdamW(
            [W for name, W in self.P.items() if name not in matrices],
            lr=LEARNING_RATE,
            betas=(0.9, 0.97),
            weight_decay=0.0,
            fused=True,
        )
        self.state = directory / "training.pt"
        if self.state.exists():
            saved = torch.load(self.state)
            self.step, self.averaged, self.mean = saved["step"], saved["averaged"], saved["mean"]
            with torch.no_grad():
                for name, W in self.P.items():
                    W.copy_(saved["parameters"][name])
            self.muon.momentum = saved["momentum"]
            self.adam.load_state_dict(saved["adam"])

    def save(self) -> None:
        """Write the state to resume from, and the model as it is now."""
        saved = {
            "step": self.step,
            "parameters": {name: W.detach() for name, W in self.P.items()},
            "averaged": self.averaged,
            "mean": self.mean,
            "momentum": self.muon.momentum,
            "adam": self.adam.state_dict(),
        }
        unfinished = self.state.with_suffix(".new")
        torch.save(saved, unfinished)
        unfinished.replace(self.state)
        self.write(self.directory, self.P)
        if self.averaged:
            self.write(self.directory / "averaged", self.mean)

    def write(self, directory: Path, tensors: Tensors) -> None:
        """Write a model as transformers does, in float16."""
        half = {name: W.detach().half().contiguous() for name, W in tensors.items()}
        save_file(half, directory / "model.safetensors", {"format": "pt"})
        self.config.save(directory)
        for name in ("vocab.json", "merges.txt"):
            (directory / name).write_bytes((self.directory / name).read_bytes())

    def train(self) -> None:
        """Train to the last step, and log losses."""
        compiled = torch.compile(loss, dynamic=False)
        positions, saved = self.config.n_positions, time.monotonic()
        losses: list[float] = []
        while self.step < self.steps:
            T = positions if self.step % FULL_EVERY == FULL_EVERY - 1 else positions // 2
            repeated = REPEATED_EARLY if self.step < self.steps / 5 else REPEATED
            # Seeded by the step, so that a resumed run draws the same windows.
            rng = np.random.default_rng([SEED, self.step])
            ids, targets = batch(self.parts, rng, TOKENS_PER_STEP // T, T, repeated)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                value = compiled(
                    self.P, torch.from_numpy(ids), torch.from_numpy(targets), self.config.n_head
                )
            value.backward()
            rate = rate_at(self.step, self.steps)
            self.adam.param_groups[0]["lr"] = LEARNING_RATE * rate
            self.adam.step()
            self.muon.step(MATRIX_RATE * rate)
            for W in self.P.values():
                W.grad = None
            losses.append(value.item())
            self.step += 1
            self.average()
            if time.monotonic() - saved > SAVE_EVERY or self.step == self.steps:
                self.save()
                self.log(float(np.mean(losses)))
                saved, losses = time.monotonic(), []

    def average(self) -> None:
        """Add the weights to their mean, at some of the last steps."""
        if self.step >= AVERAGED_FROM * self.steps and self.step % AVERAGED_EVERY == 0:
            self.averaged += 1
            for name, W in self.P.items():
                self.mean[name] += (W.detach() - self.mean[name]) / self.averaged

    def log(self, trained: float) -> None:
        """Append the losses at this step to `log.jsonl`, and print them."""
        record: dict[str, Any] = {
            "step": self.step,
            "tokens": self.step * TOKENS_PER_STEP,
            "training": round(trained, 4),
        }
        for name, part in self.held_out.items():
            record[name] = round(self.held_out_loss(part, self.P), 4)
            if self.averaged:
                record[f"{name}, averaged"] = round(self.held_out_loss(part, self.mean), 4)
        line = json.dumps(record)
        print(line, flush=True)
        with (self.directory / "log.jsonl").open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")

    def held_out_loss(self, part: Part, P: Tensors) -> float:
        """The loss, nats a token, on 64 half windows; the same ones each time."""
        rng = np.random.default_rng(SEED)
        T = self.config.n_positions // 2
        windows = torch.from_numpy(np.stack([part.window(rng, T + 1) for _ in range(64)]))
        with torch.no_grad():
            return loss(P, windows[:, :-1], windows[:, 1:], self.config.n_head).item()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("corpus", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("--steps", type=int, default=16_000)
    sizes = {"vocab_size": 7936, "n_positions": 256, "n_embd": 192, "n_layer": 4, "n_head": 6}
    for name, default in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    given = vars(parser.parse_args())
    torch.set_num_threads(os.cpu_count() or 1)
    config = GPT2Config(**{name: given[name] for name in sizes})
    Run(given["corpus"], given["model"], given["steps"], config).train()
