"""Train a small English GPT-2 with PyTorch.

    python examples/english/train.py CORPUS MODEL

CORPUS is the directory that `corpus.py` wrote. MODEL gets the model, which `GPT2.from_pretrained`
opens, and a checkpoint every three minutes; repeat the command to resume. `--start OTHER`
makes it a further round, with lower learning rates, from the weights and the tokenizer of OTHER.
With a `--vocab_size` above that of OTHER, further tokens are learned for the round.

It takes hours and wants the machine alone. The library trains too (`attnlab.train`), in NumPy with
gradients that can be read; PyTorch computes in bfloat16 and compiles, which is several times as
fast.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
import transformers
from corpus import UNKNOWN, batch, kinds_of_tokens, learn_tokens, names_in, part_of, tokens_in
from safetensors.torch import save_file
from tokenizers import ByteLevelBPETokenizer
from transformers import GPT2LMHeadModel

from attnlab import GPT2Config

SEED = 1
TOKENS_PER_STEP = 4096

# Three steps of four have half windows, so that the first positions, where a reader's text is, are
# seen often.
FULL_EVERY = 4

WARMUP = 100  # steps
LEARNING_RATE, MATRIX_RATE = 4e-3, 0.02
FURTHER = 0.4  # of these, in a round that starts from weights
FALLS_FROM = 0.3  # share of the steps after which the learning rate falls to 0

# The share of windows with repeated text: in the first fifth of the steps of a first round, where
# heads learn induction, and in the rest, where they only have to keep it.
REPEATED_EARLY, REPEATED = 0.3, 0.05

# Of a further round, beside the loss: where a word has ended, the best token that goes on with a
# word, or only begins one, costs COSTS times the logits by which it isn't MARGIN below the best
# other token; and after a pronoun, two tokens with more than MOST of the probability cost CERTAIN
# times the nats above that.
COSTS, MARGIN = {"goes_on": 4, "begins": 3}, 0.6
CERTAIN, MOST = 5, 0.66

SAVE_EVERY = 180  # seconds
STATES = ("model", "muon", "adam")  # of a run, in its checkpoint

# ---- the model -----------------------------------------------------------------------------------


def model_of(directory: Path, start: Path | None) -> GPT2LMHeadModel:
    """Transformers' GPT-2 with the config.json of a directory, or a model's weights; no dropout."""
    settings = dict.fromkeys(("attn_pdrop", "embd_pdrop", "resid_pdrop"), 0.0)
    if not start:
        torch.manual_seed(SEED)
        return GPT2LMHeadModel(transformers.GPT2Config.from_pretrained(directory, **settings))
    model = GPT2LMHeadModel.from_pretrained(start, dtype=torch.float32, **settings)
    W_E = model.transformer.wte.weight.detach()
    (old, _), (new, merges) = tokens_in(start), tokens_in(directory)
    rows = {symbol: W_E[id] for symbol, id in old.items()}
    for one, other in merges:  # a new token starts as the mean of its two parts
        rows.setdefault(one + other, (rows[one] + rows[other]) / 2)
    model.resize_token_embeddings(len(new), mean_resizing=False)
    for symbol, id in new.items():
        model.transformer.wte.weight.data[id] = rows[symbol]
    return model


def loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The mean cross-entropy in nats a token."""
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=UNKNOWN)


def penalty(
    logits: torch.Tensor, ids: torch.Tensor, targets: torch.Tensor, kinds: dict[str, torch.Tensor]
) -> torch.Tensor:
    """What readers take for a fault, though it is probable: a piece of a word after a whole one,
    and two tokens alone after a pronoun.

    It moves only what is most probable, and only where the text's word has ended. After a token
    that is nearly always a whole word, a piece costs wherever the text goes on.
    """
    ended = kinds["ends"][ids] & ~kinds["goes_on"][targets.clamp(min=0)]
    two = logits.topk(2).values.logsumexp(-1) - logits.logsumexp(-1)
    paid = CERTAIN * F.relu(two - math.log(MOST)) * (ended & kinds["pronouns"][ids])
    others = logits.masked_fill(kinds["goes_on"] | kinds["begins"], -torch.inf).amax(-1)
    for kind, cost in COSTS.items():
        best = logits.masked_fill(~kinds[kind], -torch.inf).amax(-1)
        paid += cost * F.relu(best - others + MARGIN) * (ended | kinds["whole"][ids])
    return (paid * (targets != UNKNOWN)).mean()


# ---- the optimizer -------------------------------------------------------------------------------


def matrices_in(P: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    """The blocks' matrices in parameters or gradients, transposed as in torch's layers; no copies.

    W_Q, W_K and W_V are three matrices.
    """
    return [
        part.T
        for name, W in P.items()
        if name.startswith("h.") and W.ndim == 2
        for part in W.detach().chunk(3 if "c_attn" in name else 1, dim=1)
    ]


def rate_at(step: int, steps: int) -> float:
    """The share of the learning rate: a short rise, then constant, then a fall to 0."""
    return min((step + 1) / WARMUP, 1, (1 - step / steps) / (1 - FALLS_FROM))


# ---- a run ---------------------------------------------------------------------------------------


class Run:
    """A training run in a directory.

    Muon makes the updates of the blocks' matrices: their momentum, made orthogonal. All singular
    values of an update are then about 1, so that rare directions learn as fast as frequent ones.

    Source: "Muon: An optimizer for hidden layers in neural networks" (Jordan and others, 2024).
    """

    def __init__(
        self, corpus: Path, directory: Path, steps: int, config: GPT2Config, start: Path | None
    ) -> None:
        self.directory, self.steps, self.step, self.start = directory, steps, 0, start
        directory.mkdir(parents=True, exist_ok=True)
        if start:
            config = replace(
                GPT2Config.from_file(start / "config.json"), vocab_size=config.vocab_size
            )
        if not (directory / "vocab.json").exists():
            learn_tokens(corpus, directory, config.vocab_size, start)
        tokenizer = ByteLevelBPETokenizer(*tokens_in(directory))
        # A small corpus has fewer tokens than asked for.
        self.config = config = replace(config, vocab_size=tokenizer.get_vocab_size())
        self.parts = {name: part_of(corpus, name, tokenizer) for name in names_in(corpus)}
        texts = [tokenizer.decode([id]) for id in range(config.vocab_size)]
        kinds = kinds_of_tokens(texts, np.concatenate([part.ids for part in self.parts.values()]))
        self.kinds = {kind: torch.from_numpy(which) for kind, which in kinds.items()}
        config.save(directory)
        self.model = model_of(directory, start)
        self.P = dict(self.model.transformer.named_parameters())
        self.muon = torch.optim.Muon([torch.nn.Parameter(part) for part in matrices_in(self.P)])
        others = [W for name, W in self.P.items() if not (name.startswith("h.") and W.ndim == 2)]
        self.adam = torch.optim.AdamW(others, betas=(0.9, 0.97), weight_decay=0.0, fused=True)
        self.state = directory / "training.pt"
        if self.state.exists():
            saved = torch.load(self.state)
            self.step = saved["step"]
            for name in STATES:
                getattr(self, name).load_state_dict(saved[name])

    def save(self) -> None:
        """Write the state to resume from, and the model as transformers does, in float16."""
        saved = {name: getattr(self, name).state_dict() for name in STATES}
        unfinished = self.state.with_suffix(".new")
        torch.save({"step": self.step, **saved}, unfinished)
        unfinished.replace(self.state)
        half = {name: W.detach().half().contiguous() for name, W in self.P.items()}
        save_file(half, self.directory / "model.safetensors", {"format": "pt"})

    def train(self) -> None:
        """Train to the last step, and print the loss from time to time, in nats a token."""
        compiled = torch.compile(self.model, dynamic=False)
        positions, saved = self.config.n_positions, time.monotonic()
        losses: list[float] = []
        while self.step < self.steps:
            T = positions if self.step % FULL_EVERY == FULL_EVERY - 1 else positions // 2
            is_early = not self.start and self.step < self.steps / 5
            # Seeded by the step, so that a resumed run draws the same windows.
            rng = np.random.default_rng([SEED, self.step])
            repeated = REPEATED_EARLY if is_early else REPEATED
            ids, targets = batch(self.parts, rng, TOKENS_PER_STEP // T, T, repeated)
            x, y = torch.from_numpy(ids), torch.from_numpy(targets)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                logits = compiled(x, use_cache=False).logits.float()
            value = loss(logits, y)
            some = slice(max(1, len(x) // 4))  # a quarter of the windows says enough, and is fast
            paid = penalty(logits[some], x[some], y[some], self.kinds) if self.start else 0
            (value + paid).backward()
            rate = rate_at(self.step, self.steps) * (FURTHER if self.start else 1)
            gradients = matrices_in({name: W.grad for name, W in self.P.items()})
            for matrix, gradient in zip(
                self.muon.param_groups[0]["params"], gradients, strict=True
            ):
                matrix.grad = gradient
            for optimizer, highest in ((self.adam, LEARNING_RATE), (self.muon, MATRIX_RATE)):
                optimizer.param_groups[0]["lr"] = highest * rate
                optimizer.step()
            self.model.zero_grad()
            losses.append(value.item())
            self.step += 1
            if time.monotonic() - saved > SAVE_EVERY or self.step == self.steps:
                self.save()
                print(f"{self.step:,} steps: {np.mean(losses):.3f} nats a token", flush=True)
                saved, losses = time.monotonic(), []


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("corpus", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("--steps", type=int, default=16_000)
    parser.add_argument("--start", type=Path, help="the model whose weights are trained further")
    sizes = {"vocab_size": 7936, "n_positions": 256, "n_embd": 192, "n_layer": 4, "n_head": 6}
    for name, default in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    given = vars(parser.parse_args())
    torch.set_num_threads(os.cpu_count() or 1)
    config = GPT2Config(**{name: given[name] for name in sizes})
    Run(given["corpus"], given["model"], given["steps"], config, given["start"]).train()
