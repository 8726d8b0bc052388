"""Measure an English GPT-2 on text that people wrote, and write its card.

    python examples/english/measure.py MODEL TEXTS --trained CORPUS ... --against OTHER ...

TEXTS has a file NAME.txt for each kind of text in `held_out.toml`, a document on each line.
Passages of which a part is in the training text of a CORPUS are left out. MODEL gets MODEL_CARD.md:
`card.md` with the figures. It also gets head_averages.json.
"""

from __future__ import annotations

import argparse
import math
import re
import textwrap
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from corpus import END_OF_TEXT, SOURCES, documents, key, kinds_of_tokens

import attnlab
from attnlab import GPT2, Trace
from attnlab.analysis.jobs import JOBS, measure_jobs
from attnlab.checkpoints.checkpoint import save_averages
from attnlab.equations import AnyArray, softmax

HERE = Path(__file__).parent
SENTENCES, KINDS = (
    tomllib.loads((HERE / f"{name}.toml").read_text("utf-8")) for name in ("sentences", "held_out")
)

# Passages of each kind that are measured, about as many of each document, and words of a passage.
PASSAGES, PASSAGE = 120, 64

# A passage with so many words in a row that are in the training text, names aside, isn't held out.
SHARED = 8

CERTAIN = 0.75  # of the probability, on two tokens

# By kind, the passages of each document.
Texts = Mapping[str, list[list[str]]]

# Traces with the keys of each query, bool (T, T), by job.
Targeted = Iterator[tuple[Trace, Mapping[str, Any]]]

# ---- held-out text -------------------------------------------------------------------------------


def held_out(texts: Path, trained: Iterable[Path]) -> tuple[Texts, int]:
    """The passages of each held-out document, by kind, and how many were left out."""
    found = {
        kind: measured_part(documents((texts / f"{kind}.txt").read_text("utf-8")))
        for kind in KINDS
        if (texts / f"{kind}.txt").exists()
    }
    of_passage = {passage: {*runs(passage)} for passage in chain(*chain(*found.values()))}
    searched = set().union(*of_passage.values())
    known: set[str] = set()
    for corpus in trained:
        for file in corpus.glob("*.txt"):
            for line in file.read_text("utf-8").splitlines():
                known |= searched.intersection(runs(line))
    kept = {
        kind: [[text for text in part if not known & of_passage[text]] for part in parts]
        for kind, parts in found.items()
    }
    return kept, sum(bool(known & of_this) for of_this in of_passage.values())


def measured_part(texts: list[str]) -> list[list[str]]:
    """The first passages of documents, PASSAGES or a few more."""
    return [[*passages(text)][: math.ceil(PASSAGES / len(texts))] for text in texts[:PASSAGES]]


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


def runs(text: str) -> Iterator[str]:
    """All runs of SHARED words."""
    words = key(text).split()
    return (" ".join(words[n : n + SHARED]) for n in range(len(words) - SHARED + 1))


class Reading(NamedTuple):
    """What a model expects in held-out text.

    Attributes
    ----------
    nats : by kind, -log of the probability of all words of each document
    words : by kind, how many words these are
    prefixes : number of prefixes that end after a word of one token, not the first
    pieces : number of these whose most probable next token is a piece of a word
    pronouns : number of these that end after a pronoun
    certain : after these, pairs of tokens with more than CERTAIN of the probability, with the
        pronoun, and how often they occur
    """

    nats: dict[str, AnyArray]
    words: dict[str, AnyArray]
    prefixes: int
    pieces: int
    pronouns: int
    certain: Counter[str]


def read(model: GPT2, texts: Texts) -> Reading:
    """Read all passages with a model.

    The first word of a passage only gives the context: what a model expects there depends on how
    its training text was joined.
    """
    encode = model.tokenizer.encode
    vocabulary = [model.tokenizer.decode([id]) for id in range(model.config.vocab_size)]
    ids = [id for passage in chain(*chain(*texts.values())) for id in encode(passage)]
    kinds = kinds_of_tokens(vocabulary, np.array(ids))
    is_piece, is_pronoun = kinds["pieces"], kinds["pronouns"]
    is_word = np.array([text.strip().isalpha() for text in vocabulary]) & ~is_piece
    is_joined = np.array([text[:1].isalnum() for text in vocabulary])
    nats, words = ({kind: np.zeros(len(parts)) for kind, parts in texts.items()} for _ in range(2))
    certain: Counter[str] = Counter()
    prefixes = pieces = pronouns = 0
    placed = ((k, n, text) for k in texts for n, part in enumerate(texts[k]) for text in part)
    for kind, n, passage in placed:
        first = len(encode(passage.split()[0]))
        trace = model.trace(encode(passage)[: model.config.n_positions])
        nats[kind][n] += trace.losses[first - 1 :].sum(dtype=np.float64)
        words[kind][n] += len(model.tokenizer.decode(trace.ids).split()) - 1
        ends = np.flatnonzero(is_word[trace.ids[:-1]] & ~is_joined[trace.ids[1:]])
        prefixes += len(ends)
        pieces += int(is_piece[trace.logits[ends].argmax(axis=-1)].sum())
        for end in ends[is_pronoun[trace.ids[ends]]]:
            pronouns += 1
            probabilities = softmax(trace.logits[end].astype(np.float64))
            two = np.argsort(-probabilities)[:2]
            if probabilities[two].sum() > CERTAIN:
                names = " or ".join(vocabulary[id].strip() for id in two)
                certain[f"{vocabulary[trace.ids[end]].strip()}: {names}"] += 1
    return Reading(nats, words, prefixes, pieces, pronouns, certain)


def perplexity(reading: Reading, kind: str) -> tuple[float, float]:
    """The perplexity a word, exp(Σ nats / Σ words), and its standard error over documents."""
    nats, words = reading.nats[kind], reading.words[kind]
    per_word = nats.sum() / words.sum()
    variance = ((nats - per_word * words) ** 2).sum() * len(nats) / max(1, len(nats) - 1)
    return math.exp(per_word), math.exp(per_word) * math.sqrt(variance) / words.sum()


def perplexities(texts: Texts, readings: Mapping[str, Reading]) -> str:
    """A table: each model's perplexity by kind, and the first model's as a share of the others'."""
    by_kind = [[perplexity(reading, kind)[0] for reading in readings.values()] for kind in texts]
    numbers = np.vstack([by_kind, np.exp(np.mean(np.log(by_kind), axis=0))])  # geometric mean
    name, *others = readings
    errors = [perplexity(readings[name], kind)[1] for kind in texts]
    errors.append(numbers[-1, 0] * np.linalg.norm(errors / numbers[:-1, 0]) / len(errors))
    sizes = [[len([*chain(*texts[kind])]), readings[name].words[kind].sum()] for kind in texts]
    shares = 100 * numbers[:, :1] / numbers[:, 1:]
    return str(
        attnlab.table(
            np.column_stack(
                [[*sizes, np.sum(sizes, axis=0)], numbers[:, 0], errors, numbers[:, 1:], shares]
            ),
            rows=[*texts, "all kinds"],
            columns=["passages", "words", name, "error", *others, *(f"% of {n}" for n in others)],
            decimals=0,
            max_rows=100,
        )
    )


# ---- heads ---------------------------------------------------------------------------------------

ON_TEXT = ("previous", "first", "same")


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


def on_relation(model: GPT2, kind: str) -> Targeted:
    """A kind's sentences: from the {query} to the [key], also if there is a <second> word, and it.

    The query is the last token of its word.
    """
    for marked in SENTENCES["relations"][kind]:
        trace = model.trace(without_marks(marked))
        query = word_span(model, marked, "{}").stop - 1
        keys = {}
        for job, marks in (("key", "[]"), ("key of two", "[]"), ("second", "<>")):
            if job == "key" or "<" in marked:
                keys[job] = np.zeros((len(trace.tokens),) * 2, bool)
                keys[job][query, word_span(model, marked, marks)] = True
        yield trace, keys


def without_marks(marked: str) -> str:
    return re.sub(r"[\[\]{}<>]", "", marked)


def word_span(model: GPT2, marked: str, marks: str) -> slice:
    """The tokens of the word between two marks."""
    before, with_word = (without_marks(marked[: marked.index(mark)]).rstrip() for mark in marks)
    return slice(len(model.tokenizer.encode(before)), len(model.tokenizer.encode(with_word)))


def relation(model: GPT2, kind: str) -> tuple[tuple[int, int], list[float]]:
    """The head that attends most from the {query} to the [key] of a kind's sentences, and figures.

    The figures: its mean weight on the key; that of a head that attends evenly; the share of the
    sentences in which no other token gets as much; its mean weight on the key, and on the <second>
    word, in the sentences that have one.
    """
    found = measure_jobs(on_relation(model, kind), ("key", "key of two", "second"))
    layer, head = found.best("key")
    on_key, *on_two = found.attention[:, layer, head]
    is_most = []
    for trace, targets in on_relation(model, kind):
        query, keys = targets["key"].any(axis=1).argmax(), targets["key"].any(axis=0)
        row = trace.head(layer, head).weights[query]
        is_most.append(row[keys].sum() > row[~keys].max())
    return (layer, head), [on_key, found.even[0], np.mean(is_most), *on_two]


def relations(model: GPT2) -> str:
    """A table of `relation` by kind."""
    found = {kind: relation(model, kind) for kind in SENTENCES["relations"]}
    rows = [f"{kind} ({layer}.{head})" for kind, ((layer, head), _) in found.items()]
    columns = ["on the key", "evenly", "key first", "with two: key", "second"]
    figures = [figures for _, figures in found.values()]
    return str(attnlab.table(figures, rows=rows, columns=columns, decimals=2))


# ---- minimal pairs -------------------------------------------------------------------------------


def pairs(kind: str) -> list[tuple[str, str, str]]:
    """Texts with a right and a wrong continuation."""
    frames, nouns, endings = (SENTENCES[kind][name] for name in ("frames", "nouns", "endings"))
    return [
        (frame.format(noun, other=other), endings[n], endings[1 - n])
        for frame in frames
        for n in (0, 1)
        for noun, other in zip(nouns[n], nouns[1 - n], strict=True)
    ]


def lead(model: GPT2, text: str, one: str, other: str) -> float:
    """By how much the logit of a continuation's first token is above that of another's."""
    logits = model.trace(text).next_logits
    first, second = (model.tokenizer.encode(ending)[0] for ending in (one, other))
    return float(logits[first] - logits[second])


# ---- the card ------------------------------------------------------------------------------------


def continuations(model: GPT2) -> str:
    """The three most probable tokens after each opening, and the most probable text."""
    lines = []
    for opening in SENTENCES["openings"]:
        trace = model.trace(opening)
        best = ", ".join(f"{t.text.strip()} {t.probability:.0%}" for t in trace.next_tokens(3))
        more = model.generate(opening, 24, temperature=0, stop=END_OF_TEXT).text
        more = more.removesuffix(END_OF_TEXT)
        text = f"{opening} |{more.replace(chr(10), ' / ')} ({best})"
        lines.append(textwrap.fill(text, 100, subsequent_indent="    "))
    return "\n".join(lines)


def listed(entries: Mapping[str, Mapping[str, Any]]) -> str:
    """Sources or kinds of text, with their licences."""
    line = "- {}: {attribution} ({licence}, {link})"
    return "\n".join(line.format(name, **entry) for name, entry in entries.items())


def card(model: GPT2, texts: Texts, left_out: int, readings: Mapping[str, Reading]) -> str:
    """The model card. The first of the readings is the model's own."""
    own, *_ = readings.values()
    pronouns = ((trace, {"subject": keys["key"]}) for trace, keys in on_relation(model, "pronoun"))
    jobs = measure_jobs(
        chain(on_text(model, chain(*chain(*texts.values()))), on_repeats(model), pronouns),
        (*ON_TEXT, "induction", "subject"),
    )
    right = np.array(
        [[lead(model, *pair) > 0 for pair in pairs(kind)] for kind in ("number", "gender")]
    )
    # The share of “she” in the probability of she and he.
    odds = {
        role: lead(model, f"The {role} said that", " she", " he") for role in SENTENCES["roles"]
    }
    roles = sorted(((1 / (1 + math.exp(-odd)), role) for role, odd in odds.items()), reverse=True)
    template = (HERE / "card.md").read_text("utf-8")
    return template.format(
        config=model.config,
        parameters=sum(parameter.size for parameter in model.parameters.values()),
        shares=", ".join(f"{name} {source['weight']} %" for name, source in SOURCES.items()),
        perplexity=perplexities(texts, readings),
        left_out=left_out,
        shared=SHARED,
        kinds=len(texts),
        reading=own,
        pieces=", ".join(f"{r.pieces / r.prefixes:.2%} ({n})" for n, r in readings.items()),
        n_certain=own.certain.total(),
        certain="; ".join(f"{two} ({n})" for two, n in own.certain.most_common(8)) or "none",
        heads=jobs.table(),
        best={name: f"{jobs.attention[n].max():.2f}" for n, name in enumerate(jobs.jobs)},
        relations=relations(model),
        right=right.sum(axis=1),  # of verbs, of pronouns
        nouns=right.reshape(2, 2, -1).sum(axis=(0, 2)),  # one noun, two
        roles=", ".join(f"{role} {share:.2f}" for share, role in roles),
        continuations=continuations(model),
        held_out=listed({kind: KINDS[kind] for kind in texts}),
        sources=listed(SOURCES),
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("texts", type=Path)
    parser.add_argument("--trained", type=Path, nargs="*", default=[])
    parser.add_argument("--against", type=Path, nargs="*", default=[])
    given = parser.parse_args()
    kept, n_left_out = held_out(given.texts, given.trained)
    models = {path.name: GPT2.from_pretrained(path) for path in (given.model, *given.against)}
    measured = {name: read(each, kept) for name, each in models.items()}
    model = models[given.model.name]
    written = card(model, kept, n_left_out, measured)
    (given.model / "MODEL_CARD.md").write_text(written, encoding="utf-8")
    # The beginnings are as long as what readers type: some heads write other things further on.
    ids = [model.tokenizer.encode(text)[:24] for text in chain(*chain(*kept.values()))]
    save_averages(attnlab.averages(model, ids), given.model)
