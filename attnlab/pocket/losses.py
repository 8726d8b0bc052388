"""Compare a model's loss with the grammar's entropy."""

from __future__ import annotations

import math
from dataclasses import dataclass

from attnlab.forward.gradients import cross_entropy
from attnlab.model.gpt2 import GPT2
from attnlab.pocket.grammar import HELD_OUT_SEED, KINDS, Corpus, corpus
from attnlab.support.tables import align


@dataclass(frozen=True)
class Loss:
    """Mean losses on texts.

    Attributes
    ----------
    tokens : number of predicted tokens
    model : the model's cross-entropy, nats per token
    grammar : the grammar's -log probability, nats per token: the lowest expected loss
    """

    tokens: int
    model: float
    grammar: float


@dataclass(frozen=True)
class HeldOut:
    """Losses on newly sampled texts, by kind; `repr` is a table."""

    kinds: dict[str, Loss]

    @property
    def all(self) -> Loss:
        """The loss on all texts."""
        losses = self.kinds.values()
        tokens = sum(loss.tokens for loss in losses)
        by_model = sum(loss.model * loss.tokens for loss in losses)
        by_grammar = sum(loss.grammar * loss.tokens for loss in losses)
        return Loss(tokens, by_model / tokens, by_grammar / tokens)

    def __repr__(self) -> str:
        lines = [("kind", "tokens", "model", "grammar")]
        for kind, loss in (*self.kinds.items(), ("all", self.all)):
            lines.append((kind, str(loss.tokens), f"{loss.model:.2f}", f"{loss.grammar:.2f}"))
        return align(lines)


def held_out(model: GPT2, samples: int = 1000, seed: int = HELD_OUT_SEED) -> HeldOut:
    """Measure any GPT-2 on newly sampled texts, each between line breaks."""
    nats: dict[str, tuple[list[float], list[float], list[int]]] = {
        kind: ([], [], []) for kind in KINDS
    }
    for sample in corpus(seed, samples).samples:
        trace = model.trace(f"\n{sample.text}\n")
        loss, _ = cross_entropy(trace.logits[:-1], trace.tokens.ids[1:])
        count = len(trace.tokens) - 1
        by_model, by_grammar, tokens = nats[sample.kind]
        by_model.append(loss * count)
        by_grammar.append(Corpus((sample,)).nats)
        tokens.append(count)
    return HeldOut(
        {
            kind: Loss(
                sum(tokens), math.fsum(by_model) / sum(tokens), math.fsum(by_grammar) / sum(tokens)
            )
            for kind, (by_model, by_grammar, tokens) in nats.items()
            if tokens
        }
    )
