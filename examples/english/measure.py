"""Measure an English GPT-2, on held-out text and on the sentences of `sentences.toml`.

    python examples/english/measure.py CORPUS MODEL

MODEL gets MODEL_CARD.md, with all figures and the sources, and averages.npz: each head's mean
`context` on held-out text, by which an ablated head is replaced.
"""

from __future__ import annotations

import argparse
import math
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from corpus import END_OF_TEXT, SOURCES, documents, names_in
from numpy.typing import NDArray

import attnlab
from attnlab import GPT2, Trace
from attnlab.analysis.jobs import JOBS, measure_jobs

SENTENCES = tomllib.loads((Path(__file__).parent / "sentences.toml").read_text("utf-8"))

# Documents of each source that are measured, passages of each, and words of a passage.
DOCUMENTS, PASSAGES, PASSAGE = 300, 20, 64

# Traces with the keys of each query, bool (T, T), by job.
Targeted = Iterable[tuple[Trace, Mapping[str, Any]]]

# ---- held-out text -------------------------------------------------------------------------------


def held_out(corpus: Path) -> dict[str, list[list[str]]]:
    """The passages of each held-out document, by source."""
    texts = {name: (corpus / f"held_{name}.txt").read_text("utf-8") for name in names_in(corpus)}
    return {
        name: [[*passages(document)][:PASSAGES] for document in documents(text)[:DOCUMENTS]]
        for name, text in texts.items()
    }


def all_passages(texts: Mapping[str, list[list[str]]]) -> list[str]:
    return [passage for part in texts.values() for text in part for passage in text]


def passages(document: str) -> Iterator[str]:
    """Whole sentences of about PASSAGE words, joined by spaces."""
    passage: list[str] = []
    for sentence in re.split(r"(?<=[.!?\"”])\s+(?=[\"“A-Z])", document.strip()):
        words = sentence.split()[: 2 * PASSAGE]
        if passage and len(passage) + len(words) > PASSAGE:
            yield " ".join(passage)
            passage = []
        passage += words
    if len(passage) > 1:
        yield " ".join(passage)


def perplexity(model: GPT2, texts: list[list[str]]) -> tuple[float, ...]:
    """Documents, words, perplexity a word (exp(Σ nats / Σ words)), its error over documents.

    Models with different tokenizers can be compared by it. The first word of each passage only
    gives the context: what a model expects there depends on how its training text was joined.
    """
    nats, words = (np.zeros(len(texts)) for _ in range(2))
    for n, text in enumerate(texts):
        for passage in text:
            first = len(model.tokenizer.encode(passage.split()[0]))
            ids = model.tokenizer.encode(passage)[: model.config.n_positions]
            if len(ids) > first:
                nats[n] += model.trace(ids).losses[first - 1 :].sum(dtype=np.float64)
                words[n] += len(model.tokenizer.decode(ids).split()) - 1
    per_word = nats.sum() / words.sum()
    spread = nats - per_word * words
    error = math.sqrt((spread**2).sum() * len(texts) / max(1, len(texts) - 1)) / words.sum()
    result = math.exp(per_word)
    return len(texts), words.sum(), result, result * error


# ---- heads ---------------------------------------------------------------------------------------

ON_TEXT = ("previous", "first", "same")

# The kinds of sentences with a pronoun. The keys are the noun that it stands for.
PRONOUNS = {"it", "person"}


def on_text(model: GPT2, texts: Iterable[str]) -> Targeted:
    """Texts with the keys of the jobs in ON_TEXT."""
    for text in texts:
        trace = model.trace(model.tokenizer.encode(text)[: model.config.n_positions])
        yield trace, {name: JOBS[name](trace.tokens) for name in ON_TEXT}


def on_repeats(model: GPT2, sequences: int = 20, length: int = 50) -> Targeted:
    """Random tokens, all different, and the same again."""
    rng, length = np.random.default_rng(0), min(length, model.config.n_positions // 2)
    for _ in range(sequences):
        ids = rng.choice(model.config.vocab_size - 1, length, replace=False)
        trace = model.trace(np.tile(ids, 2))
        yield trace, {"induction": JOBS["induction"](trace.tokens)}


def on_relations(model: GPT2) -> Targeted:
    """Sentences in which the {query} should attend to the [key], by kind."""
    for kind, sentences in SENTENCES["relations"].items():
        for marked in sentences:
            trace = model.trace(without_marks(marked))
            keys = np.zeros((len(trace.tokens),) * 2, bool)
            keys[word_span(model, marked, "{}").stop - 1, word_span(model, marked, "[]")] = True
            yield trace, {kind: keys}


def without_marks(marked: str) -> str:
    return re.sub(r"[\[\]{}]", "", marked)


def word_span(model: GPT2, marked: str, marks: str) -> slice:
    """The tokens of the word between two marks."""
    before, with_word = (without_marks(marked[: marked.index(mark)]).rstrip() for mark in marks)
    return slice(len(model.tokenizer.encode(before)), len(model.tokenizer.encode(with_word)))


def average_contexts(model: GPT2, texts: Iterable[str]) -> NDArray[np.float32]:
    """Each head's mean `context` over all positions of texts, (L, H, Dh).

    A head that is replaced by its average adds this vector times its W_O.
    """
    total, count = np.zeros(()), 0
    for text in texts:
        trace = model.trace(model.tokenizer.encode(text)[: model.config.n_positions])
        contexts = np.stack([block.attention.context for block in trace.blocks])  # (L, H, T, Dh)
        total = total + contexts.sum(axis=2, dtype=np.float64)
        count += len(trace.tokens)
    return np.asarray(total / count, np.float32)


# ---- minimal pairs -------------------------------------------------------------------------------


def pairs(kind: str) -> list[tuple[str, str, str]]:
    """Texts with a right and a wrong continuation."""
    frames, nouns, endings = (SENTENCES[kind][key] for key in ("frames", "nouns", "endings"))
    return [
        (frame.format(noun, other=other), endings[n], endings[1 - n])
        for n in (0, 1)
        for frame in frames
        for noun, other in zip(nouns[n], nouns[1 - n], strict=True)
    ]


def share_right(model: GPT2, kind: str) -> float:
    """The share of pairs whose right continuation is more probable than the wrong one."""
    encode = model.tokenizer.encode
    right = []
    for text, *endings in pairs(kind):
        logits = model.trace(text).next_logits
        # Endings of one token each are compared by it, others by their first.
        good, bad = (logits[encode(ending)[0]] for ending in endings)
        right.append(good > bad)
    return float(np.mean(right))


# ---- the card ------------------------------------------------------------------------------------

CARD = """\
---
license: mit
language: en
---

# The English GPT-2

A GPT-2 of {parameters:,} parameters that comes with attnlab and reads simple English.
{config.n_layer} layers of {config.n_head} heads, width {config.n_embd}, {config.n_positions} \
positions, {config.vocab_size:,} tokens; float16 in the file, float32 in use.

attnlab's repository has what makes it: `examples/english`.

## Data

Only text that people wrote: the share of each source in the training windows, and the perplexity a
word of held-out text, with its error. A word is what stands between spaces. Documents are held out
by their hash; the first word of each passage of up to 64 words only gives the context.

```
{perplexity}
```

## What its heads do

Each head's mean attention weight on the previous token, the first token and earlier occurrences of
the token, in held-out text; on what followed the token last time (induction), in random tokens said
twice; and from a pronoun to the noun that it stands for, in sentences written for this. The last
line is for a head that attends evenly to all visible tokens.

```
{heads}
```

In `sentences.toml`: from *it*, and from *she* or *he*, to the noun that it stands for; from *of* to
the noun before it; from a verb to its subject; from an object to its verb; from a name to its first
mention:

```
{relations}
```

## Minimal pairs

The right word is more probable than the wrong one in {number:.0%} of the pairs of a verb's number
and in {gender:.0%} of those of she or he.

## The most probable continuations

```
{continuations}
```

## Limits

Nothing that this model says is knowledge: don't use it to answer questions. Old books show what was
written then about women, men and peoples.

## Sources and licence

{sources}

The weights are MIT, like all of attnlab.
"""


def card(model: GPT2, texts: Mapping[str, list[list[str]]]) -> str:
    """The model card, on held-out documents by source."""
    sources = {name: SOURCES[name] for name in texts}
    shares = np.array([source["weight"] for source in sources.values()], float)
    losses = np.array([perplexity(model, part) for part in texts.values()])
    relations, on_held_out = [*on_relations(model)], on_text(model, all_passages(texts))
    pronouns = (
        (trace, {"subject": keys})
        for trace, keys_by_kind in relations
        for kind, keys in keys_by_kind.items()
        if kind in PRONOUNS
    )
    jobs = measure_jobs(
        chain(on_held_out, on_repeats(model), pronouns), (*ON_TEXT, "induction", "subject")
    )
    continuations = {
        opening: model.generate(opening, 30, temperature=0, stop=END_OF_TEXT).text
        for opening in SENTENCES["openings"]
    }
    return CARD.format(
        config=model.config,
        parameters=sum(parameter.size for parameter in model.parameters.values()),
        perplexity=attnlab.table(
            np.column_stack([100 * shares / shares.sum(), losses]),
            rows=[*sources],
            columns=["share, %", "documents", "words", "perplexity", "error"],
            decimals=1,
        ),
        heads=jobs.table(),
        relations=measure_jobs(relations, [*SENTENCES["relations"]]).table(),
        number=share_right(model, "number"),
        gender=share_right(model, "gender"),
        continuations="\n".join(f"{text} |{more!r}" for text, more in continuations.items()),
        sources="\n".join(
            "- {attribution} ({licence}, {link})".format(**source) for source in sources.values()
        ),
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("corpus", type=Path)
    parser.add_argument("model", type=Path)
    given = parser.parse_args()
    opened, held_out_texts = GPT2.from_pretrained(given.model), held_out(given.corpus)
    written = card(opened, held_out_texts)
    (given.model / "MODEL_CARD.md").write_text(written, encoding="utf-8")
    averages = average_contexts(opened, all_passages(held_out_texts))
    np.savez_compressed(given.model / "averages.npz", context=averages)
    print(written)
