"""Make the pocket model: corpus, vocabulary, training and model card.

    pip install attnlab tokenizers
    python examples/pocket/make.py DIRECTORY

At the end, DIRECTORY, which must have no model, has the package's files: config.json,
model.safetensors, tokenizer.json, tokenizer_config.json, head_averages.json, held_out.json.gz,
MODEL_CARD.md. The package has the tokenizer as vocab.json and merges.txt.
`grammar.py` generates the texts.
"""

from __future__ import annotations

import gzip
import json
import os
import platform
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tokenizers
from grammar import (
    HELD_OUT_SEED,
    KINDS,
    TRAINING_SEED,
    Corpus,
    Sample,
    corpus,
    sample,
)

from attnlab import GPT2, AttnlabError, GPT2Config, Tokenizer, Trace, averages, train
from attnlab.analysis.jobs import HeadJobs, first, induction, measure_jobs, previous
from attnlab.equations import Mask
from attnlab.forward.parameters import parameter_count
from attnlab.support.tables import align
from attnlab.training import Training

SAMPLES = 60_000
STEPS, WARMUP = 7_000, 200
MAX_TOKENS = 1024

JOBS = ("previous", "first", "induction", "adjective", "animal", "thing")

# The kinds of texts that heads are measured on, which together have targets for every job, and the
# number of texts of each kind.
MEASURED, TEXTS = ("recital", "creature", "pronoun"), 40

# Held-out texts that come with the model, and those over which the heads' averages are taken.
HELD_OUT, AVERAGED = 10_400, 1000

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
        tokenizer = learn_vocabulary(text, Path(scratch))
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
    )
    model, held_out = run.model, corpus(HELD_OUT_SEED, HELD_OUT).samples
    model.averages = averages(model, [one.text for one in held_out[:AVERAGED]])
    model.save(directory)
    write_held_out(directory, held_out)
    model_card = card(run)
    (directory / "MODEL_CARD.md").write_text(model_card, encoding="utf-8")
    return model_card


def write_held_out(directory: Path, held_out: Sequence[Sample]) -> None:
    """Write the texts that come with the model, see `attnlab.pocket.held_out`."""
    fields = json.dumps([(one.kind, one.text, one.links) for one in held_out], ensure_ascii=False)
    content = gzip.compress(fields.encode(), mtime=0)
    (directory / "held_out.json.gz").write_bytes(content)


def learn_vocabulary(text: str, directory: Path) -> Tokenizer:
    """Learn a byte-level BPE: the 256 bytes, then a token for each merge.

    Every word of the grammar becomes one token, so that MAX_TOKENS isn't reached. There is no
    `<|endoftext|>`: the texts end with a line break.

    Source: "Neural Machine Translation of Rare Words with Subword Units" (2016), algorithm 1, in
    the tokenizers library.
    """
    learner = tokenizers.Tokenizer(tokenizers.models.BPE())
    learner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=MAX_TOKENS, initial_alphabet=alphabet, show_progress=False
    )
    learner.train_from_iterator(text.splitlines(keepends=True), trainer)
    learner.model.save(str(directory))
    return Tokenizer.from_directory(directory)


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
            machine=f"{os.cpu_count()} cores ({platform.processor() or platform.machine()})",
            held_out_seed=HELD_OUT_SEED,
            losses=align(losses),
            jobs=head_jobs(model).table(),
            following=align(lines, left=(0, 1)),
        )
    )


def head_jobs(model: GPT2) -> HeadJobs:
    """Measure what each head does on newly sampled texts."""
    rng = np.random.default_rng(HELD_OUT_SEED)
    texts = [sample(rng, kind) for kind in MEASURED for _ in range(TEXTS)]
    return measure_jobs((targets(model, text) for text in texts), JOBS)


def targets(model: GPT2, sampled: Sample) -> tuple[Trace, dict[str, Mask]]:
    """The trace of a sample, and the target keys of each query by job, bool (T, T)."""
    trace = model.trace(sampled.text)
    tokens = trace.tokens
    masks = {"previous": previous(tokens), "first": first(tokens)}
    if sampled.kind == "recital":
        masks["induction"] = induction(tokens)
    for job, source, target in sampled.links:
        # Every word of the grammar is one token: the last one up to its end.
        query, key = (
            len(model.tokenizer.encode(sampled.text[:end])) - 1 for _, end in (source, target)
        )
        masks.setdefault(job, np.zeros((len(tokens),) * 2, bool))[query, key] = True
    return trace, masks


@dataclass(frozen=True)
class Loss:
    """Mean losses on texts, in nats per token."""

    tokens: int  # number of predicted tokens
    model: float  # the model's cross-entropy
    grammar: float  # the grammar's -log probability: the lowest expected loss


def held_out_losses(model: GPT2, samples: int = 1000) -> dict[str, Loss]:
    """The losses on held-out texts, each between line breaks, by kind, and of "all" together."""
    sums = {kind: np.zeros(3) for kind in KINDS}  # tokens, the model's nats, the grammar's nats
    for text in corpus(HELD_OUT_SEED, samples).samples:
        trace = model.trace(f"\n{text.text}\n")
        tokens = len(trace.tokens) - 1
        sums[text.kind] += tokens, trace.loss * tokens, Corpus((text,)).nats

    def mean(tokens: float, model_nats: float, grammar_nats: float) -> Loss:
        return Loss(int(tokens), model_nats / tokens, grammar_nats / tokens)

    kinds = {kind: mean(*numbers) for kind, numbers in sums.items() if numbers[0]}
    return {**kinds, "all": mean(*np.sum([*sums.values()], axis=0))}


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python examples/pocket/make.py DIRECTORY")
    try:
        print(make(Path(sys.argv[1])))
    except AttnlabError as error:
        sys.exit(str(error))
