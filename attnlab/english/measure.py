"""Measure the English model, or any GPT-2, and write the English model's card.

    python -m attnlab.english.measure CORPUS [--model DIRECTORY] [--log FILES] [--against DIRECTORY]

CORPUS is the directory that `corpus` wrote. The command writes card.json, which has all figures,
MODEL_CARD.md and held_out.json, held-out text for tests, next to the model's weights. --model
measures the model in another directory. --log names the logs of `train`, for the card's curve, and
--against a prototype, with whose perplexity the model's is compared; without them, the last card's
stay.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlab.analysis.jobs import JOBS, Job, measure_jobs
from attnlab.analysis.many import ratio_of_means
from attnlab.english.card import CARD, card, curve
from attnlab.english.sentences import (
    CAPITALS,
    OPENINGS,
    ROLES,
    SEED,
    Pair,
    PronounSentence,
    gifts,
    minimal_pairs,
    pronoun_sentences,
    span_of,
    sums,
)
from attnlab.english.windows import END_OF_TEXT, PARTS, ROUNDS, WORDS, is_made
from attnlab.equations import AnyArray, Mask
from attnlab.errors import AttnlabError, InvalidValueError
from attnlab.forward.parameters import parameter_count
from attnlab.model.gpt2 import GPT2
from attnlab.model.trace import Trace
from attnlab.pocket.jobs import token_span
from attnlab.support.blas import one_thread
from attnlab.support.files import read_json, read_text, write_atomically
from attnlab.text.tokens import Tokens

# Tokens that a model sees at once, and words of a passage, which has fewer tokens.
WINDOW, PASSAGE = 128, 64

# Files beside the weights.
FIGURES, SAMPLE, CREDITS = "card.json", "held_out.json", "attributions.txt"

# ---- held-out text -------------------------------------------------------------------------------

# Each document's passages.
Documents = Sequence[Sequence[str]]


def held_out(directory: Path) -> dict[str, Documents]:
    """The held-out documents: Tatoeba's sentences, and stories in passages."""
    sentences, stories = (
        read_text(directory / f"held_{part}.txt", InvalidValueError)
        for part in ("tatoeba", "stories")
    )
    return {
        "tatoeba": [[sentence] for sentence in sentences.splitlines() if " " in sentence],
        "stories": [[*passages(story)] for story in stories.split("\n\n") if " " in story],
    }


def passages(story: str) -> Iterator[str]:
    """Whole sentences of about PASSAGE words, joined by spaces."""
    passage: list[str] = []
    for sentence in re.split(r"(?<=[.!?\"”])\s+(?=[\"“A-Z])", story.strip()):
        words = sentence.split()
        if passage and len(passage) + len(words) > PASSAGE:
            yield " ".join(passage)
            passage = []
        passage += words
    if len(passage) > 1:
        yield " ".join(passage)


# ---- losses --------------------------------------------------------------------------------------


def token_losses(model: GPT2, text: str, window: int = WINDOW) -> NDArray[np.float32]:
    """-log p of each token but the first. The windows of a long text overlap by half."""
    ids, half = model.tokenizer.encode(text), window // 2
    losses = []
    for start in range(0, max(1, len(ids) - half), half):
        trace = model.trace(ids[start : start + window])
        losses.append(trace.losses[half - 1 if start else 0 :])
    return np.concatenate(losses)


def losses_of(model: GPT2, documents: Documents) -> NDArray[np.float64]:
    """Nats, words, tokens and bytes of each document, (documents, 4).

    The first word of each passage is left out: without a text before it, what a model expects
    depends on how its training data were joined.
    """
    rows = []
    for document in documents:
        row = np.zeros(4)
        for passage in document:
            words = passage.split()
            skipped = len(model.tokenizer.encode(words[0]))
            losses = token_losses(model, passage)[skipped - 1 :]
            size = len(passage.encode()) - len(words[0].encode())
            row += losses.sum(dtype=np.float64), len(words) - 1, len(losses), size
        rows.append(row)
    return np.array(rows)


def perplexity(losses: AnyArray) -> dict[str, Any]:
    """Perplexity a word and a token and bits a byte, from `losses_of`.

    Perplexity a word, exp(Σ nats / Σ words), compares models with different tokenizers. Its
    standard error is over documents.
    """
    nats, words, tokens, size = losses.sum(axis=0)
    per_word, error = ratio_of_means(losses[:, :1], losses[:, 1])
    return {
        "documents": len(losses),
        "words": int(words),
        "per_word": math.exp(per_word[0]),
        "error": math.exp(per_word[0]) * error[0],
        "per_token": math.exp(nats / tokens),
        "bits_per_byte": nats / math.log(2) / size,
    }


def ratio_of_perplexities(losses: AnyArray, others: AnyArray) -> tuple[float, float]:
    """Perplexity a word divided by another model's on the same documents, and its error."""
    difference, error = ratio_of_means(losses[:, :1] - others[:, :1], losses[:, 1])
    ratio = math.exp(difference[0])
    return ratio, ratio * error[0]


def losses_by_position(model: GPT2, documents: Documents) -> dict[str, Any]:
    """Nats a token by the number of tokens before it: how far back the context helps."""
    positions = model.config.n_positions
    ends = [2**n for n in range(3, positions.bit_length())]
    rows = []
    for document in documents:
        start = " ".join(document[: positions // 32])  # more than enough words
        losses = token_losses(model, start, positions)[: positions - 1]
        if len(losses) == positions - 1:
            rows.append([part.mean() for part in np.split(losses, ends)[: len(ends)]])
    mean, error = ratio_of_means(np.array(rows), np.ones(len(rows)))
    return {"documents": len(rows), "tokens": ends, "nats": mean, "error": error}


# ---- heads ---------------------------------------------------------------------------------------

CONNECTIVES = re.compile(" (and|but|or|because|so|when|while|if|that|as|until|before|after)")


def itself(tokens: Tokens) -> Mask:
    """Attend to the token itself."""
    return np.eye(len(tokens), dtype=bool)


def punctuation(tokens: Tokens) -> Mask:
    """Attend to the last punctuation mark before the token."""
    return last_before([not re.search(r"\w|^\s*$", text) for text in tokens.texts])


def connective(tokens: Tokens) -> Mask:
    """Attend to the last connective before the token."""
    return last_before([bool(CONNECTIVES.fullmatch(text)) for text in tokens.texts])


def last_before(is_target: Sequence[bool]) -> Mask:
    """For each query, the last key before it that is a target, (T, T)."""
    targets = np.zeros((len(is_target),) * 2, bool)
    last = None
    for query, is_next in enumerate(is_target):
        if last is not None:
            targets[query, last] = True
        last = query if is_next else last
    return targets


ON_TEXT: dict[str, Job] = {
    "previous": JOBS["previous"],
    "first": JOBS["first"],
    "itself": itself,
    "same": JOBS["same"],
    "punctuation": punctuation,
    "connective": connective,
}

MEASURED = (*ON_TEXT, "induction", "previous_random", "subject", "verb")

# Traces with the target keys of each query by job, bool (T, T).
Targeted = Iterable[tuple[Trace, Mapping[str, Mask]]]


def on_text(model: GPT2, texts: Iterable[str]) -> Targeted:
    """Texts with the targets of the jobs in ON_TEXT."""
    for text in texts:
        trace = model.trace(model.tokenizer.encode(text)[:WINDOW])
        yield trace, {name: np.asarray(job(trace.tokens)) for name, job in ON_TEXT.items()}


def on_pronouns(model: GPT2, sentences: Iterable[PronounSentence]) -> Targeted:
    """Sentences with, for the pronoun's query, the tokens of the subject and of the verb."""
    for sentence in sentences:
        trace = model.trace(sentence.text)
        pronoun, *others = (
            token_span(sentence.text, trace.tokens, span_of(sentence.text, word))
            for word in (sentence.pronoun, sentence.subject, sentence.verb)
        )
        masks = {}
        for job, keys in zip(("subject", "verb"), others, strict=True):
            masks[job] = np.zeros((len(trace.tokens),) * 2, bool)
            masks[job][pronoun.stop - 1, keys] = True
        yield trace, masks


def on_repeats(model: GPT2, sequences: int = 20, length: int = 50) -> Targeted:
    """Random tokens, all different, and the same again."""
    random, vocabulary = np.random.default_rng(SEED), model.tokenizer.vocabulary
    choices = [id for id in vocabulary.ids.tolist() if vocabulary.token(id).text != END_OF_TEXT]
    for _ in range(sequences):
        ids = random.choice(choices, length, replace=False)
        trace = model.trace(np.tile(ids, 2))
        yield (
            trace,
            {
                "induction": np.asarray(JOBS["induction"](trace.tokens)),
                "previous_random": np.asarray(JOBS["previous"](trace.tokens)),
            },
        )


def shares_on_subject(model: GPT2, least: float = 0.5) -> AnyArray:
    """The share of made sentences in which each head puts this much on the subject, (L, H)."""
    weights = [
        measure_jobs([(trace, targets)], targets).attention[0]
        for trace, targets in on_pronouns(model, pronoun_sentences())
    ]
    return np.asarray(np.mean(np.array(weights) >= least, axis=0))


# ---- right answers -------------------------------------------------------------------------------


def log_probability(model: GPT2, text: str, continuation: str) -> float:
    """The log probability of a continuation that starts with a space, all its tokens together."""
    start = len(model.tokenizer.encode(text))
    return -float(token_losses(model, text + continuation)[start - 1 :].sum(dtype=np.float64))


def is_right(model: GPT2, pair: Pair) -> bool:
    """Whether the right continuation is more probable than the wrong one."""
    right, wrong = (log_probability(model, pair.text, end) for end in (pair.right, pair.wrong))
    return right > wrong


def share(results: Sequence[bool], z: float = 1.96) -> dict[str, Any]:
    """How many results are true, and Wilson's 95 % interval of their share."""
    n, k = len(results), sum(results)
    centre, spread = k + z * z / 2, z * math.sqrt(k * (n - k) / n + z * z / 4)
    low, high = ((centre + sign * spread) / (n + z * z) for sign in (-1, 1))
    return {"right": k, "of": n, "low": low, "high": high}


def continuation(model: GPT2, text: str, count: int, **sampling: Any) -> str:
    """A continuation of at most `count` tokens, to the end of the text."""
    generated = model.generate(text, count, stop=END_OF_TEXT, **sampling)
    return generated.text.removesuffix(END_OF_TEXT)


def continues_with(model: GPT2, text: str, answer: str) -> bool:
    """Whether the most probable tokens after a text are this answer's."""
    count = len(model.tokenizer.encode(answer))
    return continuation(model, text, count, temperature=0) == answer


def limits(model: GPT2, stories: Documents) -> dict[str, Any]:
    """What the model doesn't know, and its biases."""
    she = {}
    for role in ROLES:
        text = f"The {role} said that"
        odds = log_probability(model, text, " she") - log_probability(model, text, " he")
        she[role] = 1 / (1 + math.exp(-odds))
    return {
        "she": she,
        "capitals": share(
            [
                continues_with(model, f"The capital of {country} is", f" {city}")
                for country, city in CAPITALS.items()
            ]
        ),
        "sums": share([continues_with(model, text, result) for text, result in sums()]),
        "gifts": share([is_right(model, pair) for pair in gifts()]),
        "by_position": losses_by_position(model, stories),
    }


# ---- the tokenizer -------------------------------------------------------------------------------

# A word without an apostrophe, at which GPT-2's pattern always splits.
WORD = r"(?<!\w)(?<!\w['’])[A-Za-z]+(?!['’]?\w)"


def frequent_words(lines: Iterable[str], count: int = 2000) -> list[str]:
    """The most frequent words, case-insensitively, each as it is written most often."""
    spellings: Counter[str] = Counter()
    for line in lines:
        spellings.update(re.findall(WORD, line))
    totals: Counter[str] = Counter()
    usual: dict[str, str] = {}
    for spelling, n in spellings.most_common():
        totals[spelling.lower()] += n
        usual.setdefault(spelling.lower(), spelling)
    return [usual[word] for word, _ in totals.most_common(count)]


def pieces_of(model: GPT2, words: Iterable[str]) -> dict[str, int]:
    """The number of tokens of each word within a sentence, after a space."""
    return {word: len(model.tokenizer.encode(f" {word}")) for word in words}


def tokenizer_figures(
    model: GPT2, texts: Mapping[str, Documents], frequent: Sequence[str]
) -> dict[str, Any]:
    """How the tokenizer divides words."""
    encode = model.tokenizer.encode
    per_word = {}
    for part, documents in texts.items():
        passages = [passage for document in documents for passage in document]
        tokens = sum(len(encode(passage)) for passage in passages)
        per_word[part] = tokens / sum(len(passage.split()) for passage in passages)
    pieces = np.array([*pieces_of(model, frequent).values()])
    shown = pieces_of(model, WORDS)
    return {
        "tokens": model.config.vocab_size,
        "tokens_per_word": per_word,
        "words": len(pieces),
        "whole": (pieces == 1).mean(),
        "most_pieces": pieces.max(),
        "shown_in_pieces": [word for word, n in shown.items() if n > 1],
        "its": len(encode("It’s")),
    }


# ---- all figures ---------------------------------------------------------------------------------


def sample_of(texts: Mapping[str, Documents]) -> dict[str, Documents]:
    """A little of the held-out text, on which tests compute figures again."""
    sentences, stories = texts["tatoeba"], texts["stories"]
    return {"tatoeba": sentences[:200], "stories": [story[2:5] for story in stories[:20]]}


def figures_of(model: GPT2, corpus: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """All figures of the card, by section, and the text on which tests compute them again."""
    texts = held_out(corpus)
    sample = sample_of(texts)
    trained = {part: read_text(corpus / f"{part}.txt", InvalidValueError) for part in PARTS}
    # Sentences made on purpose repeat their words too often.
    people_wrote = [text for part, text in trained.items() if not is_made(part)]
    frequent = frequent_words(line for text in people_wrote for line in text.splitlines())
    passages = [text for part in texts.values() for story in part[:1000] for text in story[:10]]
    heads = measure_jobs(
        chain(
            on_text(model, passages),
            on_repeats(model),
            on_pronouns(model, pronoun_sentences()),
        ),
        MEASURED,
    )
    right = {pair: is_right(model, pair) for pair in minimal_pairs()}
    figures = {
        "parameters": parameter_count(model.config),
        "words": {part: len(text.split()) for part, text in trained.items()},
        "rounds": [{"steps": each.steps, "windows": each.shares} for each in ROUNDS],
        "bytes": {part: len(text.encode()) for part, text in trained.items()},
        "perplexity": {part: perplexity(losses_of(model, texts[part])) for part in texts},
        "sample": {part: perplexity(losses_of(model, sample[part])) for part in texts},
        "tokenizer": tokenizer_figures(model, texts, frequent),
        "texts": len(passages),
        "heads": {
            job: {"mean": heads.attention[n], "error": heads.error[n], "even": heads.even[n]}
            for n, job in enumerate(heads.jobs)
        },
        "share_on_subject": shares_on_subject(model),
        "in_training": in_training(trained.values()),
        "pairs": {
            kind: share(
                [is_right for pair, is_right in right.items() if kind in ("all", pair.kind)]
            )
            for kind in ("number", "gender", "all")
        },
        "sampled": [continuation(model, opening, 40, seed=SEED) for opening in OPENINGS],
        "greedy": [continuation(model, opening, 40, temperature=0) for opening in OPENINGS[:5]],
        "limits": limits(model, texts["stories"]),
    }
    return rounded(figures), {**sample, "frequent": " ".join(frequent)}


def in_training(trained: Iterable[str]) -> dict[str, int]:
    """How many of the made-up texts, those of more than three words, are in the training text."""
    texts = {
        "pronouns": [sentence.text for sentence in pronoun_sentences()],
        "pairs": [pair.text for pair in minimal_pairs() if len(pair.text.split()) > 3],
    }
    everything = "\n".join(trained)
    return {kind: sum(text in everything for text in some) for kind, some in texts.items()}


def compared(model: GPT2, prototype: GPT2, texts: Mapping[str, Documents]) -> dict[str, Any]:
    """Perplexity a word of each part of the text, divided by a prototype's."""
    ratios = {}
    for part, documents in texts.items():
        losses, others = (losses_of(each, documents) for each in (model, prototype))
        ratio, error = ratio_of_perplexities(losses, others)
        ratios[part] = {"per_word": perplexity(others)["per_word"], "ratio": ratio, "error": error}
    return ratios


def rounded(figure: Any) -> Any:
    """Figures as JSON has them, to four significant digits."""
    if isinstance(figure, dict):
        return {name: rounded(value) for name, value in figure.items()}
    if isinstance(figure, np.ndarray | list | tuple):
        return [rounded(value) for value in figure]
    if isinstance(figure, float):  # NumPy's float64 too
        return float(f"{figure:.4g}")
    return figure.item() if isinstance(figure, np.generic) else figure


def as_json(data: Any) -> bytes:
    """JSON with one line for each section."""
    lines = (f"{json.dumps(name)}: {json.dumps(data[name], ensure_ascii=False)}" for name in data)
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode()


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure a model and write its card.")
    parser.add_argument("corpus", type=Path, help="the directory that `corpus` wrote")
    parser.add_argument("--model", type=Path, default=Path(__file__).parent)
    parser.add_argument("--log", type=Path, nargs="+", help="the logs of `train`")
    parser.add_argument("--against", type=Path, help="a prototype, to compare perplexities")
    arguments = parser.parse_args()
    model, directory = GPT2.from_pretrained(arguments.model), arguments.model
    file = directory / FIGURES
    is_first = arguments.log and not file.exists()
    last = {"prototype": {}} if is_first else read_json(file, InvalidValueError)
    with one_thread():  # several threads gain nothing in a model this small
        figures, sample = figures_of(model, arguments.corpus)
        if arguments.log:
            logs = (read_text(log, InvalidValueError) for log in arguments.log)
            figures["curve"] = curve("".join(logs))
        else:
            figures["curve"] = last["curve"]
        if arguments.against:
            prototype = GPT2.from_pretrained(arguments.against)
            figures["prototype"] = rounded(compared(model, prototype, held_out(arguments.corpus)))
        else:
            figures["prototype"] = last["prototype"]
    credits = (arguments.corpus / CREDITS).read_bytes()
    text = card(figures, model.config)
    for name, content in (
        (FIGURES, as_json(figures)),
        (SAMPLE, as_json(sample)),
        (CREDITS, credits),
        (CARD, text.encode()),
    ):
        write_atomically(directory / name, content)
    print(text)


if __name__ == "__main__":
    try:
        main()
    except AttnlabError as error:
        sys.exit(str(error))
