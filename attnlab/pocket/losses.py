"""Compare a model's loss with the grammar's entropy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from attnlab.forward.gradients import cross_entropy
from attnlab.model.gpt2 import GPT2
from attnlab.pocket.grammar import HELD_OUT_SEED, KINDS, Corpus, corpus
from attnlab.support.tables import align


@dataclass(frozen=True)
class Loss:
    """Mean losses on texts, in nats per token."""

    tokens: int  # number of predicted tokens
    model: float  # the model's cross-entropy
    grammar: float  # the grammar's -log probability: the lowest expected loss


@dataclass(frozen=True)
class HeldOut:
    """Losses on newly sampled texts, of each kind and of all; `repr` is a table."""

    kinds: dict[str, Loss]
    all: Loss

    def __repr__(self) -> str:
        lines = [("kind", "tokens", "model", "grammar")]
        for kind, loss in (*self.kinds.items(), ("all", self.all)):
            lines.append((kind, str(loss.tokens), f"{loss.model:.2f}", f"{loss.grammar:.2f}"))
        return align(lines)


def held_out_losses(model: GPT2, samples: int = 1000, seed: int = HELD_OUT_SEED) -> HeldOut:
    """Measure any GPT-2 on newly sampled texts, each between line breaks."""
    sums = {kind: np.zeros(3) for kind in KINDS}  # tokens, the model's nats, the grammar's nats
    for sample in corpus(seed, samples).samples:
        trace = model.trace(f"\n{sample.text}\n")
        loss, _ = cross_entropy(trace.logits[:-1], trace.tokens.ids[1:])
        tokens = len(trace.tokens) - 1
        sums[sample.kind] += tokens, loss * tokens, Corpus((sample,)).nats

    def mean(tokens: float, model_nats: float, grammar_nats: float) -> Loss:
        return Loss(int(tokens), model_nats / tokens, grammar_nats / tokens)

    kinds = {kind: mean(*numbers) for kind, numbers in sums.items() if numbers[0]}
    return HeldOut(kinds, mean(*np.sum([*sums.values()], axis=0)))
