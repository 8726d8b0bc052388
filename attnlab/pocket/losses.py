"""How close a model comes to the least loss that the grammar allows."""

from __future__ import annotations

import math
from dataclasses import dataclass

from attnlab.forward.gradients import cross_entropy
from attnlab.model.gpt2 import GPT2
from attnlab.pocket.grammar import HELD_OUT_SEED, KINDS, Corpus, corpus
from attnlab.support.tables import align


@dataclass(frozen=True)
class Loss:
    """The mean loss on texts, beside what their grammar told.

    Attributes
    ----------
    tokens : how many were predicted
    model : mean cross-entropy of the model, nats per token
    grammar : -log of the probability that the grammar gave the texts, nats per token. No model
        can be expected to do better.
    """

    tokens: int
    model: float
    grammar: float


@dataclass(frozen=True)
class HeldOut:
    """Losses on texts drawn anew from the grammar; `repr` is a table of them.

    Attributes
    ----------
    kinds : for each kind of text its `Loss`
    """

    kinds: dict[str, Loss]

    @property
    def all(self) -> Loss:
        """Of all texts together."""
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
    """Measure a model on texts drawn anew from the pocket grammar, each after a line end.

    Parameters
    ----------
    model : any GPT-2; one that was not trained on the grammar is at a loss
    samples, seed : which texts, see `grammar.corpus`
    """
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
