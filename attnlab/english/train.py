"""Train the model that reads English, with PyTorch.

    pip install attnlab tokenizers torch
    python -m attnlab.english.train CORPUS FIRST
    python -m attnlab.english.train CORPUS LAST --from FIRST

It takes hours, and wants the machine alone. Repeat a command to resume: a checkpoint is written
every three minutes. FIRST gets the weights after all rounds but the last (`ROUNDS`), LAST those
after it. The last round starts from FIRST's weights, in float16, with new optimizers.

The library trains too (`attnlab.train`, which made the pocket model), with exact gradients in
NumPy; PyTorch computes in bfloat16 and compiles, which is several times as fast. The forward pass
here is `attnlab.equations` in PyTorch; a test holds its loss and gradients to the library's.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.numpy import save

from attnlab.checkpoints.checkpoint import tensor_name
from attnlab.english.windows import (
    EARLY,
    PARTS,
    REPEATED,
    REPEATED_EARLY,
    ROUNDS,
    TOKENS,
    UNKNOWN,
    Part,
    Round,
    batch,
    learn_tokens,
    tokenized,
)
from attnlab.equations import AnyArray
from attnlab.forward.config import GPT2Config
from attnlab.model.gpt2 import GPT2
from attnlab.support.files import write_atomically
from attnlab.text.tokenizer import Tokenizer
from attnlab.training.parameters import initial_parameters

CONFIG = GPT2Config(vocab_size=TOKENS, n_positions=256, n_embd=192, n_layer=4, n_head=6)
SEED = 1
TOKENS_PER_STEP = 4096

# Three steps of four have windows of 128 tokens, so that the first positions, where a reader's
# text is, are seen often; one has windows of all 256 positions.
LENGTHS = (128, 128, 128, 256)

WARMUP = 100  # steps
LEARNING_RATE, MATRIX_RATE = 4e-3, 0.02

Tensors = dict[str, torch.Tensor]


def loss(
    parameters: Tensors, ids: torch.Tensor, targets: torch.Tensor, config: GPT2Config = CONFIG
) -> torch.Tensor:
    """GPT-2's mean cross-entropy in nats; parameters by the library's paths."""
    P = parameters
    D, H, T = config.n_embd, config.n_head, ids.shape[-1]

    def layer_norm(x: torch.Tensor, path: str) -> torch.Tensor:
        return F.layer_norm(x, (D,), P[f"{path}gain"], P[f"{path}bias"], config.layer_norm_epsilon)

    def heads(x: torch.Tensor) -> torch.Tensor:  # (B, T, D) -> (B, H, T, Dh)
        return x.unflatten(-1, (H, D // H)).transpose(1, 2)

    future = torch.ones(T, T, dtype=torch.bool).triu(1)
    residual = P["W_E"][ids] + P["W_P"][:T]
    for layer in range(config.n_layer):
        attention, mlp = f"blocks.{layer}.attention.", f"blocks.{layer}.mlp."
        X = layer_norm(residual, attention)
        QKV = X @ P[f"{attention}W_QKV"] + P[f"{attention}b_QKV"]
        Q, K, V = map(heads, QKV.chunk(3, dim=-1))
        scores = (Q @ K.mT / (D // H) ** 0.5).masked_fill(future, -math.inf)
        context = scores.softmax(dim=-1) @ V
        concat = context.transpose(1, 2).flatten(2)
        residual = residual + concat @ P[f"{attention}W_O"] + P[f"{attention}b_O"]
        hidden = layer_norm(residual, mlp) @ P[f"{mlp}W_1"] + P[f"{mlp}b_1"]
        activated = F.gelu(hidden, approximate="tanh")
        residual = residual + activated @ P[f"{mlp}W_2"] + P[f"{mlp}b_2"]
    logits = layer_norm(residual, "") @ P["W_E"].T
    return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), ignore_index=UNKNOWN)


class Muon:
    """Updates of the blocks' matrices: the momentum, made orthogonal.

    All singular values of an update are then about 1, so that rare directions learn as fast as
    frequent ones.

    Source: "Muon: An optimizer for hidden layers in neural networks" (Jordan and others, 2024),
    with its coefficients of the Newton-Schulz iteration.
    """

    def __init__(self, matrices: Tensors) -> None:
        self.matrices = matrices
        self.momentum = {path: torch.zeros_like(W) for path, W in matrices.items()}

    def step(self, rate: float) -> None:
        # Matrices of one shape are updated as one stack; W_Q, W_K and W_V are three matrices.
        stacks: dict[tuple[int, ...], list[tuple[torch.Tensor, torch.Tensor]]] = {}
        for path, W in self.matrices.items():
            momentum = self.momentum[path].mul_(0.95).add_(W.grad)
            update = W.grad + 0.95 * momentum
            D = W.shape[0]
            parts = 3 if path.endswith("W_QKV") else 1
            for to, of in zip(W.detach().chunk(parts, 1), update.chunk(parts, 1), strict=True):
                stacks.setdefault((D, to.shape[1]), []).append((to, of))
        for (rows, columns), pairs in stacks.items():
            updates = orthogonal(torch.stack([update for _, update in pairs]))
            scale = rate * max(1, columns / rows) ** 0.5
            for (W, _), update in zip(pairs, updates, strict=True):
                W.mul_(1 - 0.1 * rate).add_(update, alpha=-scale)


def orthogonal(matrices: torch.Tensor) -> torch.Tensor:
    """Five Newton-Schulz iterations towards U Vᵀ of each matrix U S Vᵀ; in bfloat16."""
    X = matrices.bfloat16()
    X = X / (X.norm(dim=(1, 2), keepdim=True) + 1e-7)
    wide = X.shape[1] <= X.shape[2]
    X = X if wide else X.mT
    for _ in range(5):
        A = X @ X.mT
        X = 3.4445 * X + (-4.7750 * A + 2.0315 * A @ A) @ X
    return (X if wide else X.mT).float()


def scheduled(step: int) -> tuple[Round, float]:
    """The round of a step, and the share of the learning rate: a short rise, then a fall to 0."""
    for current in ROUNDS:
        if step < current.steps:
            falling = (1 - step / current.steps) / (1 - current.falls_from)
            return current, min((step + 1) / WARMUP, current.peak * min(1, falling))
        step -= current.steps
    raise IndexError(step)


class Run:
    """A training run in a directory."""

    def __init__(self, corpus: Path, directory: Path, start: Path | None = None) -> None:
        self.directory, self.step, self.seconds = directory, 0, 0.0
        self.last = sum(each.steps for each in ROUNDS[:-1])
        directory.mkdir(parents=True, exist_ok=True)
        weights: Mapping[str, AnyArray] = initial_parameters(CONFIG, np.random.default_rng(SEED))
        if start is not None:
            self.step, self.last = self.last, self.last + ROUNDS[-1].steps
            Tokenizer.from_directory(start).save(directory)
            weights = GPT2.from_pretrained(start).parameters
        self.tokenizer = tokenizer_of(corpus, directory)

        def part(name: str) -> Part:
            return tokenized(documents(corpus / f"{name}.txt"), self.tokenizer)

        self.parts = {name: part(name) for name in PARTS}
        self.held_out = {name: part(f"held_{name}") for name in ("tatoeba", "stories")}
        self.parameters = {
            path: torch.from_numpy(np.array(weights[path])).requires_grad_() for path in weights
        }
        matrices = {path: W for path, W in self.parameters.items() if "W_" in path and "." in path}
        others = [W for path, W in self.parameters.items() if path not in matrices]
        self.muon = Muon(matrices)
        self.adam = torch.optim.AdamW(
            others, lr=LEARNING_RATE, betas=(0.9, 0.97), weight_decay=0.0, fused=True
        )
        self.state = directory / "training.pt"
        if self.state.exists():
            saved = torch.load(self.state)
            self.step, self.seconds = saved["step"], saved["seconds"]
            with torch.no_grad():
                for path, W in self.parameters.items():
                    W.copy_(saved["parameters"][path])
            self.muon.momentum = saved["momentum"]
            self.adam.load_state_dict(saved["adam"])

    def save(self) -> None:
        """Write the state to resume from, and the model as it is now."""
        saved = {
            "step": self.step,
            "seconds": self.seconds,
            "parameters": {path: W.detach() for path, W in self.parameters.items()},
            "momentum": self.muon.momentum,
            "adam": self.adam.state_dict(),
        }
        unfinished = self.state.with_suffix(".new")
        torch.save(saved, unfinished)
        unfinished.replace(self.state)
        tensors = {
            tensor_name(path): W.detach().half().numpy() for path, W in self.parameters.items()
        }
        write_atomically(self.directory / "model.safetensors", save(tensors, {"format": "pt"}))
        CONFIG.save(self.directory)

    def train(self) -> None:
        """Train to the last step, and log losses on held-out text."""
        torch.set_num_threads(os.cpu_count() or 1)
        compiled = torch.compile(loss, dynamic=False)
        started = saved = time.monotonic()
        before = self.seconds
        losses: list[float] = []
        while self.step < self.last:
            current, rate = scheduled(self.step)
            T = LENGTHS[self.step % len(LENGTHS)]
            repeated = REPEATED_EARLY if self.step < EARLY else REPEATED
            count = TOKENS_PER_STEP // T
            ids, targets = batch(self.parts, current.shares, SEED, self.step, count, T, repeated)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                value = compiled(
                    self.parameters, torch.from_numpy(ids.copy()), torch.from_numpy(targets)
                )
            value.backward()
            self.adam.param_groups[0]["lr"] = LEARNING_RATE * rate
            self.adam.step()
            self.muon.step(MATRIX_RATE * rate)
            for W in self.parameters.values():
                W.grad = None
            losses.append(value.item())
            self.step += 1
            now = time.monotonic()
            self.seconds = before + now - started
            if now - saved > 180 or self.step == self.last:
                self.save()
                self.log(float(np.mean(losses)))
                saved, losses = time.monotonic(), []

    def log(self, trained: float) -> None:
        """Append the losses at this step to `log.jsonl`, and print them."""
        record: dict[str, Any] = {
            "step": self.step,
            "tokens": self.step * TOKENS_PER_STEP,
            "minutes": round(self.seconds / 60, 1),
            "training": round(trained, 4),
        }
        for name, held_out in self.held_out.items():
            record[name] = round(self.held_out_loss(held_out), 4)
        line = json.dumps(record)
        print(line, flush=True)
        with (self.directory / "log.jsonl").open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")

    def held_out_loss(self, held_out: Part) -> float:
        """The loss, nats a token, on 128 windows of 128 tokens; the same ones each time."""
        rng = np.random.default_rng(SEED)
        windows = torch.from_numpy(np.stack([held_out.window(rng, 129) for _ in range(128)]))
        with torch.no_grad():
            parts = [
                loss(self.parameters, some[:, :-1], some[:, 1:]).item()
                for some in windows.split(32)
            ]
        return math.fsum(parts) / len(parts)


def documents(file: Path) -> list[str]:
    """Documents of a corpus file: separated by an empty line; else one a line."""
    text = file.read_text(encoding="utf-8").strip()
    return text.split("\n\n") if "\n\n" in text else text.splitlines()


def tokenizer_of(corpus: Path, directory: Path) -> Tokenizer:
    """The directory's tokenizer, learned if it has none."""
    if (directory / "merges.txt").exists():
        return Tokenizer.from_directory(directory)
    # Tatoeba's sentences, the only ones of today, count six times; those made on purpose don't.
    weights = dict.fromkeys(ROUNDS[0].shares, 1) | {"tatoeba": 6, "made": 0}
    texts = [
        text
        for name, weight in weights.items()
        for text in documents(corpus / f"{name}.txt") * weight
    ]
    return learn_tokens(texts, directory)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--from", dest="start", type=Path, help="train the last round")
    arguments = parser.parse_args()
    torch.manual_seed(SEED)
    Run(arguments.corpus, arguments.directory, arguments.start).train()
