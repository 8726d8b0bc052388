"""Create the pocket model: corpus, vocabulary, training and model card.

    pip install attnlab tokenizers
    python -m attnlab.pocket.make DIRECTORY

Repeat the command to resume an interrupted run. At the end, DIRECTORY has the package's files:
config.json, model.safetensors, vocab.json, merges.txt, MODEL_CARD.md. A directory that already has
a model is refused.
"""

from __future__ import annotations

import os
import platform
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from attnlab.errors import AttnlabError
from attnlab.forward.config import GPT2Config
from attnlab.forward.parameters import parameter_count
from attnlab.model.gpt2 import GPT2
from attnlab.pocket.grammar import HELD_OUT_SEED, KINDS, TRAINING_SEED, Corpus, corpus
from attnlab.pocket.jobs import head_jobs
from attnlab.pocket.vocabulary import learn_vocabulary
from attnlab.support.files import write_atomically
from attnlab.support.tables import align
from attnlab.training.run import STATE, Training, train

SAMPLES = 60_000
STEPS, WARMUP = 7_000, 200

PROMPTS = (
    "It’s very hot in summer. Swimming is",
    "It's very hot in summer. Swimming is",
    "The dog chased the ball, but it",
    "A fluffy blue creature",
)


def make(directory: Path) -> str:
    """Make all files in a directory, created if needed; return the model card."""
    text = corpus(TRAINING_SEED, SAMPLES).text
    with tempfile.TemporaryDirectory() as scratch:
        tokenizer = learn_vocabulary(text, scratch)
    config = GPT2Config(vocab_size=len(tokenizer), n_positions=128, n_embd=128, n_layer=2, n_head=4)
    run = train(
        config,
        text,
        tokenizer,
        steps=STEPS,
        batch_size=16,
        learning_rate=2e-3,
        warmup=WARMUP,
        seed=TRAINING_SEED,
        directory=directory,
    )
    model_card = card(run)
    write_atomically(directory / "MODEL_CARD.md", model_card.encode())
    (directory / STATE).unlink()
    return model_card


def card(run: Training) -> str:
    settings, model = run.settings, run.model
    lines = [("prompt", "next", "probability")]
    for prompt in PROMPTS:
        for token in model.trace(prompt).next_tokens(2):
            lines.append((prompt, token.text, f"{token.probability:.2f}"))
    losses = [("kind", "tokens", "model", "grammar")]
    for kind, loss in held_out_losses(model).items():
        losses.append((kind, str(loss.tokens), f"{loss.model:.2f}", f"{loss.grammar:.2f}"))
    return (
        (Path(__file__).parent / "card.md")
        .read_text(encoding="utf-8")
        .format(
            config=run.config,
            settings=settings,
            parameters=parameter_count(run.config),
            samples=SAMPLES,
            kinds=len(KINDS),
            millions=settings.steps * settings.batch_size * settings.sequence_length / 1e6,
            numpy=np.__version__,
            minutes=run.seconds / 60,
            machine=f"{os.cpu_count()} cores ({processor()})",
            held_out_seed=HELD_OUT_SEED,
            losses=align(losses),
            jobs=head_jobs(model).table(),
            following=align(lines, left=(0, 1)),
        )
    )


@dataclass(frozen=True)
class Loss:
    """Mean losses on texts, in nats per token."""

    tokens: int  # number of predicted tokens
    model: float  # the model's cross-entropy
    grammar: float  # the grammar's -log probability: the lowest expected loss


def held_out_losses(model: GPT2, samples: int = 1000) -> dict[str, Loss]:
    """The losses on held-out texts, each between line breaks, by kind, and of "all" together."""
    sums = {kind: np.zeros(3) for kind in KINDS}  # tokens, the model's nats, the grammar's nats
    for sample in corpus(HELD_OUT_SEED, samples).samples:
        trace = model.trace(f"\n{sample.text}\n")
        tokens = len(trace.tokens) - 1
        sums[sample.kind] += tokens, trace.loss * tokens, Corpus((sample,)).nats

    def mean(tokens: float, model_nats: float, grammar_nats: float) -> Loss:
        return Loss(int(tokens), model_nats / tokens, grammar_nats / tokens)

    kinds = {kind: mean(*numbers) for kind, numbers in sums.items() if numbers[0]}
    return {**kinds, "all": mean(*np.sum([*sums.values()], axis=0))}


def processor() -> str:
    """The processor's name, as Linux reports it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    names = (line.split(": ", 1)[1] for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m attnlab.pocket.make DIRECTORY")
    try:
        print(make(Path(sys.argv[1])))
    except AttnlabError as error:
        sys.exit(str(error))
