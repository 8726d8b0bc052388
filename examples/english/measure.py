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
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from corpus import END_OF_TEXT, PRONOUNS, SOURCES, documents, key, pieces_of_words
from numpy.typing import NDArray

import attnlab
from attnlab import GPT2, Trace
from attnlab.analysis.jobs import JOBS, measure_jobs
from attnlab.checkpoints.checkpoint import save_averages
from attnlab.equations import softmax

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
    divided = {
        kind: measured_part(documents((texts / f"{kind}.txt").read_text("utf-8")))
        for kind in KINDS
        if (texts / f"{kind}.txt").exists()
    }
    of_passage = {passage: {*runs(passage)} for passage in all_passages(divided)}
    searched = set().union(*of_passage.values())
    known: set[str] = set()
    for corpus in trained:
        for file in corpus.glob("*.txt"):
            for line in file.read_text("utf-8").splitlines():
                known |= searched.intersection(runs(line))
    kept = {
        kind: [[text for text in part if not known & of_passage[text]] for part in parts]
        for kind, parts in divided.items()
    }
    return kept, len([*all_passages(divided)]) - len([*all_passages(kept)])


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


def all_passages(texts: Texts) -> Iterator[str]:
    return (passage for parts in texts.values() for part in parts for passage in part)


class Reading(NamedTuple):
    """What a model expects in held-out text.

    Attributes
    ----------
    nats : by kind, -log of the words' probabilities, for each document
    words : by kind, how many words these are, for each document
    prefixes : number of prefixes that end after a word of one token, not the first
    pieces : number of these whose most probable next token is a piece of a word
    pronouns : number of these that end after a pronoun
    certain : after these, pairs of tokens with more than CERTAIN of the probability, with the
        pronoun, and how often they occur
    """

    nats: dict[str, NDArray[np.float64]]
    words: dict[str, NDArray[np.float64]]
    prefixes: int
    pieces: int
    pronouns: int
    certain: Counter[str]


def read(model: GPT2, texts: Texts) -> Reading:
    """Read all passages with a model.

    The first word of a passage only gives the context: what a model expects there depends on how
    its training text was joined.
    """
    nats, words = ({kind: np.zeros(len(parts)) for kind, parts in texts.items()} for _ in range(2))
    vocabulary = [model.tokenizer.decode([id]) for id in range(model.config.vocab_size)]
    ids = [id for passage in all_passages(texts) for id in model.tokenizer.encode(passage)]
    is_piece = pieces_of_words(vocabulary, np.array(ids))
    prefixes = pieces = pronouns = 0
    certain: Counter[str] = Counter()
    for kind, parts in texts.items():
        for n, passage in ((n, passage) for n, part in enumerate(parts) for passage in part):
            first = len(model.tokenizer.encode(passage.split()[0]))
            trace = model.trace(model.tokenizer.encode(passage)[: model.config.n_positions])
            nats[kind][n] += trace.losses[first - 1 :].sum(dtype=np.float64)
            words[kind][n] += len(model.tokenizer.decode(trace.ids).split()) - 1
            tokens = trace.tokens.texts
            best = trace.logits.argmax(axis=-1)
            for i, (token, after) in enumerate(pairwise(tokens)):
                is_word = token.strip().isalpha() and not is_piece[trace.ids[i]]
                if not is_word or after[:1].isalnum():
                    continue
                prefixes += 1
                pieces += is_piece[best[i]]
                if token.strip().lower() in PRONOUNS:
                    pronouns += 1
                    probabilities = softmax(trace.logits[i].astype(np.float64))
                    two = np.argsort(-probabilities)[:2]
                    if probabilities[two].sum() > CERTAIN:
                        names = " or ".join(vocabulary[id].strip() for id in two)
                        certain[f"{token.strip()}: {names}"] += 1
    return Reading(nats, words, prefixes, pieces, pronouns, certain)


def perplexity(reading: Reading, kind: str) -> tuple[float, float]:
    """The perplexity a word, exp(Σ nats / Σ words), and its standard error over documents.

    Models with different tokenizers can be compared by it.
    """
    nats, words = reading.nats[kind], reading.words[kind]
    per_word = nats.sum() / words.sum()
    spread = nats - per_word * words
    error = math.sqrt((spread**2).sum() * len(nats) / max(1, len(nats) - 1)) / words.sum()
    return math.exp(per_word), math.exp(per_word) * error


def overall(reading: Reading) -> float:
    """The geometric mean over all kinds of the perplexity a word."""
    return math.exp(np.mean([math.log(perplexity(reading, kind)[0]) for kind in reading.nats]))


def perplexities(texts: Texts, readings: Mapping[str, Reading]) -> str:
    """A table: each model's perplexity by kind, and the first model's as a share of the others'."""
    own, *others = readings.values()
    rows = [
        [
            len([*all_passages({kind: parts})]),
            own.words[kind].sum(),
            *perplexity(own, kind),
            *(perplexity(other, kind)[0] for other in others),
        ]
        for kind, parts in texts.items()
    ]
    error = overall(own) / len(rows) * math.sqrt(sum((row[3] / row[2]) ** 2 for row in rows))
    sums = [*np.sum(rows, axis=0)[:2], overall(own), error, *map(overall, others)]
    numbers = np.array([*rows, sums])
    ratios = numbers[:, 2:3] / numbers[:, 4:]
    name, *names = readings
    return str(
        attnlab.table(
            np.column_stack([numbers, 100 * ratios]),
            rows=[*texts, "all kinds"],
            columns=["passages", "words", name, "error", *names, *(f"% of {n}" for n in names)],
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


def on_pronouns(model: GPT2) -> Targeted:
    """Sentences with the noun that their pronoun stands for."""
    for marked in SENTENCES["relations"]["pronoun"]:
        trace = model.trace(without_marks(marked))
        keys = np.zeros((len(trace.tokens),) * 2, bool)
        keys[word_span(model, marked, "{}").stop - 1, word_span(model, marked, "[]")] = True
        yield trace, {"subject": keys}


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
    on_key, on_both, evenly, most = [], [], [], []
    for marked in SENTENCES["relations"][kind]:
        trace = model.trace(without_marks(marked))
        query = word_span(model, marked, "{}").stop - 1
        word = word_span(model, marked, "[]")
        rows = np.stack([block.attention.weights[:, query] for block in trace.blocks])  # (L, H, T)
        on_key.append(rows[..., word].sum(axis=-1))
        others = np.delete(rows, np.arange(word.start, word.stop), axis=-1)
        most.append(on_key[-1] > others.max(axis=-1))
        evenly.append((word.stop - word.start) / (query + 1))
        if "<" in marked:
            second = rows[..., word_span(model, marked, "<>")].sum(axis=-1)
            on_both.append((on_key[-1], second))
    means = np.mean(on_key, axis=0)
    best = divmod(int(means.argmax()), means.shape[1])
    figures = [means[best], np.mean(evenly), np.mean(most, axis=0)[best]]
    return best, [*figures, *np.mean(on_both, axis=0)[(slice(None), *best)]]


def relations(model: GPT2) -> str:
    """A table of `relation` by kind."""
    heads, figures = zip(*(relation(model, kind) for kind in SENTENCES["relations"]), strict=True)
    rows = [
        f"{kind} ({layer}.{head})"
        for kind, (layer, head) in zip(SENTENCES["relations"], heads, strict=True)
    ]
    columns = ["on the key", "evenly", "key first", "with two: key", "second"]
    return str(attnlab.table(np.array(figures), rows=rows, columns=columns, decimals=2))


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


def is_right(model: GPT2, kind: str) -> list[bool]:
    """For each pair, whether the right continuation is more probable than the wrong one."""
    encode = model.tokenizer.encode
    found = []
    for text, *endings in pairs(kind):
        logits = model.trace(text).next_logits
        # Endings of one token each are compared by it, others by their first.
        good, bad = (logits[encode(ending)[0]] for ending in endings)
        found.append(bool(good > bad))
    return found


def share_of_she(model: GPT2, role: str) -> float:
    """The share of “she” in the probability of she and he, after “The nurse said that”."""
    logits = model.trace(f"The {role} said that").next_logits
    she, he = (logits[model.tokenizer.encode(f" {word}")[0]] for word in ("she", "he"))
    return float(1 / (1 + np.exp(he - she)))


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
    jobs = measure_jobs(
        chain(on_text(model, all_passages(texts)), on_repeats(model), on_pronouns(model)),
        (*ON_TEXT, "induction", "subject"),
    )
    right = {kind: is_right(model, kind) for kind in ("number", "gender")}
    half = len(right["number"]) // 2  # then come the frames with a second noun
    one, two = (
        sum(sum(found[part]) for found in right.values())
        for part in (slice(half), slice(half, None))
    )
    roles = sorted(((share_of_she(model, role), role) for role in SENTENCES["roles"]), reverse=True)
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
        number=sum(right["number"]),
        gender=sum(right["gender"]),
        one=one,
        two=two,
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
    ids = [model.tokenizer.encode(text)[:24] for text in all_passages(kept)]
    save_averages(attnlab.averages(model, ids), given.model)
    print(written)
