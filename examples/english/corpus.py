"""The text of a small English GPT-2: read, cleaned, divided, and cut into windows of tokens.

    python examples/english/corpus.py TEXTS CORPUS

TEXTS has a file NAME.txt for each source, in UTF-8: documents separated by an empty line, or one
sentence on each line. `sources.toml` says which sources are used, how, and under which licence.
CORPUS gets the cleaned NAME.txt.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import tomllib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import ByteLevelBPETokenizer, Tokenizer, models
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer

Ids = NDArray[np.int64]

HERE = Path(__file__).parent
SOURCES: dict[str, dict[str, Any]] = tomllib.loads((HERE / "sources.toml").read_text("utf-8"))

CURLY = 0.12  # share of the documents that get curly quotes, so that “It’s” is read
RENAMED = 0.85  # share of the sentences about Tom, a fifth of Tatoeba, that get other names

END_OF_TEXT = "<|endoftext|>"

# When tokens are learned: how often a word counts that is once in the source that counts most, and
# how often a word of words.txt.
MOST_COUNTED, WORDS_COUNT = 3, 1500
FIRST_CHARACTER = 0xF0000  # of those for private use, which stand for tokens

PRONOUNS = {"i", "you", "he", "she", "it", "we", "they"}

# Targets that nothing in the window predicts have this id, and no loss.
UNKNOWN = -100

# ---- cleaning ------------------------------------------------------------------------------------

CLEANING: dict[str, Any] = tomllib.loads((HERE / "cleaning.toml").read_text("utf-8"))
MALE, FEMALE = CLEANING["male"], CLEANING["female"]
NAMES = re.compile(rf"\b({'|'.join(f'Tom Mary John {MALE} {FEMALE}'.split())})\b")
UNWANTED, SLURS = (
    re.compile(rf"\b({'|'.join(CLEANING[name].split())})\b", re.IGNORECASE)
    for name in ("unwanted", "slurs")
)

PLAIN = {ord(char): by for by, chars in CLEANING["replaced"].items() for char in chars}


def plain(line: str) -> str:
    """A line with straight quotes and ordinary spaces."""
    return re.sub(r" +", " ", line.translate(PLAIN)).strip()


def curly(text: str) -> str:
    """A text whose straight quotes are made curly."""
    text = re.sub(r"(?<=\w)'(?=\w)", "’", text)
    text = re.sub(r'(^|[\s(—\'])"', r"\1“", text, flags=re.MULTILINE).replace('"', "”")
    return re.sub(r"(^|[\s(—“])'", r"\1‘", text, flags=re.MULTILINE).replace("'", "’")


def renamed(sentence: str, generator: random.Random) -> str:
    """Call Tom, Mary and John by other names, each by the same name throughout the sentence."""
    others: dict[str, str] = {}
    for name in sorted({*re.findall(r"\b(?:Tom|Mary|John)\b", sentence)}):
        if generator.random() < RENAMED:
            people = (FEMALE if name == "Mary" else MALE).split()
            others[name] = generator.choice(
                [each for each in people if each not in others.values()]
            )
    return re.sub(r"\b(Tom|Mary|John)\b", lambda found: others.get(found[1], found[1]), sentence)


def key(document: str) -> str:
    """What copies of a text have in common: its letters and digits, without people's names."""
    return re.sub(r"[^a-z0-9 ]", "", NAMES.sub("N", document).lower())


def documents(text: str) -> list[str]:
    """The documents of a text, separated by an empty line; without one, one on each line."""
    return text.strip().split("\n\n") if "\n\n" in text.strip() else text.strip().splitlines()


def cleaned(text: str, source: dict[str, Any], generator: random.Random) -> list[str]:
    """The wanted documents of a source, each once, with straight quotes."""
    without = re.compile(source.get("without", "(?!)"))
    kept: dict[str, str] = {}
    for document in documents(text):
        lines = [line for line in map(plain, document.splitlines()) if not SLURS.search(line)]
        is_unwanted = len(lines) == 1 and UNWANTED.search(lines[0])
        wanted = "\n".join(filter(None, lines))
        if wanted and not is_unwanted and not without.search(document):
            kept.setdefault(key(wanted), wanted)
    return [renamed(each, generator) if "renamed" in source else each for each in kept.values()]


def build(texts: Path, corpus: Path) -> None:
    """Write the corpus, and print a line on each source."""
    corpus.mkdir(parents=True, exist_ok=True)
    for name in SOURCES:
        if not (texts / f"{name}.txt").exists():
            continue
        generator = random.Random(name)
        text = (texts / f"{name}.txt").read_text("utf-8")
        dressed = [
            curly(document) if generator.random() < CURLY else document
            for document in cleaned(text, SOURCES[name], generator)
        ]
        generator.shuffle(dressed)
        # A source of sentences has one on each line; the others have an empty line between.
        separator = "\n\n" if any("\n" in document for document in dressed) else "\n"
        text = separator.join(dressed)
        (corpus / f"{name}.txt").write_text(f"{text}\n", encoding="utf-8")
        print(f"{name}: {len(dressed):,} documents, {len(text.split()):,} words")


# ---- tokens --------------------------------------------------------------------------------------


def word_counts(corpus: Path, divide: Callable[[str], list[Any]]) -> Counter[str]:
    """How often each word counts when tokens are learned.

    A source counts in proportion to its weight, not to its size. A word counts at most twice in a
    document, and only if two sources have it, so that names in one book don't become tokens. The
    words of words.txt count so often that each becomes one token.
    """
    words_of: dict[str, Counter[str]] = {}
    for name in (name for name in names_in(corpus) if "of" not in SOURCES[name]):
        words_of[name] = Counter()
        for text in texts_of(corpus, name):
            in_text = Counter(word for word, _ in divide(text))
            words_of[name].update({word: min(n, 2) for word, n in in_text.items()})
    factors = {name: SOURCES[name]["weight"] / words.total() for name, words in words_of.items()}
    largest = max(factors.values()) / MOST_COUNTED
    sources = Counter(chain.from_iterable(words_of.values()))
    counts: Counter[str] = Counter()
    for name, words in words_of.items():
        for word in (word for word in words if sources[word] > 1):
            counts[word] += round(words[word] * factors[name] / largest)
    for word in (HERE / "words.txt").read_text("utf-8").split():
        counts.update({part: WORDS_COUNT for part, _ in divide(f"{word} {word}")})
    return counts


def learn_tokens(corpus: Path, directory: Path, count: int, start: Path | None = None) -> None:
    """Learn a byte pair encoding of `count` tokens, or continue that of `start` by further merges.

    Writes vocab.json, with the end of text as the last token, and merges.txt.
    """
    vocabulary = {symbol: id for id, symbol in enumerate(sorted(ByteLevel.alphabet()))}
    merges: list[tuple[str, str]] = []
    if start:
        vocabulary, merges = tokens_in(start)
        del vocabulary[END_OF_TEXT]
    known = ByteLevelBPETokenizer(vocabulary, merges)
    # Each known token is one character, so that merges of characters are merges of tokens.
    symbols = {chr(FIRST_CHARACTER + id): symbol for symbol, id in vocabulary.items()}
    words = (
        ["".join(chr(FIRST_CHARACTER + token.id) for token in known.model.tokenize(word))] * n
        for word, n in word_counts(corpus, known.pre_tokenizer.pre_tokenize_str).items()
    )
    learner = Tokenizer(models.BPE())
    trainer = BpeTrainer(vocab_size=count - 1, initial_alphabet=[*symbols], show_progress=False)
    learner.train_from_iterator(words, trainer)
    for pair in json.loads(learner.to_str())["model"]["merges"]:
        one, other = ("".join(map(symbols.__getitem__, part)) for part in pair)
        merges.append((one, other))
        vocabulary.setdefault(one + other, len(vocabulary))
    vocabulary[END_OF_TEXT] = len(vocabulary)
    ByteLevelBPETokenizer(vocabulary, merges).save_model(str(directory))


def tokens_in(directory: Path) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """The vocabulary and the merges of a directory."""
    return models.BPE.read_file(*(str(directory / name) for name in ("vocab.json", "merges.txt")))


def kinds_of_tokens(texts: list[str], ids: NDArray[np.integer]) -> dict[str, NDArray[np.bool_]]:
    """Which tokens are of which kind, bool (V,). `texts` are the tokens' texts.

    goes_on : goes on with a word
    begins : begins a word, which goes on after it in more than half of the places of `ids`
    ends : a word may end with it
    whole : begins a word, which ends with it in nine tenths of the places
    pieces : goes on with a word, or begins one, which goes on in nine tenths of the places
    """
    goes_on = np.array([text[:1].isalpha() for text in texts])
    is_word = np.array([text.strip().isalpha() for text in texts])
    begins = is_word & np.array([text[:1] == " " for text in texts])
    is_capital = is_word & np.array([text[:1].isupper() for text in texts])
    # The share of each token's places after which the word goes on.
    count = np.maximum(1, np.bincount(ids, minlength=len(texts)))
    continued = np.bincount(ids[:-1], goes_on[ids[1:]], len(texts)) / count
    return {
        "goes_on": goes_on,
        "begins": begins & (continued > 0.5),
        "ends": is_word & (continued <= np.where(begins, 0.9, 0.5)),
        "whole": (begins | is_capital) & (continued <= 0.1),
        "pieces": goes_on | (begins & (continued > 0.9)),
        "pronouns": np.array([text.strip().lower() in PRONOUNS for text in texts]),
    }


def names_in(corpus: Path) -> list[str]:
    """The sources that a corpus has."""
    return [
        name
        for name, source in SOURCES.items()
        if (corpus / f"{source.get('of', name)}.txt").exists() and texts_of(corpus, name)
    ]


def texts_of(corpus: Path, name: str) -> list[str]:
    """The documents of a source. If it is a part `of` another one, the matching lines of that."""
    source = SOURCES[name]
    texts = documents((corpus / f"{source.get('of', name)}.txt").read_text("utf-8"))
    if "of" not in source:
        return texts
    matching = re.compile(source["matching"])
    return [line for text in texts for line in text.splitlines() if matching.search(line)]


# ---- windows -------------------------------------------------------------------------------------

# Tokens that close a sentence.
CLOSING = (".", "!", "?", '."', '!"', '?"', ".”", "!”", "?”", ".'", "!'", "?'")


@dataclass(frozen=True)
class Part:
    """A source in tokens.

    Attributes
    ----------
    ids : uint16 (N,), all documents, each followed by the end of text
    starts : int64 (S,), where a window may start: at a sentence
    bare : uint16 (V,), each token without the space before it, as a window starts
    """

    ids: NDArray[np.uint16]
    starts: Ids
    bare: NDArray[np.uint16]

    def window(self, rng: np.random.Generator, length: int) -> Ids:
        """Draw `length` tokens from the start of a sentence."""
        last = np.searchsorted(self.starts, len(self.ids) - length, side="right")
        window = self.ids[self.starts[rng.integers(last)] :][:length].astype(np.int64)
        window[0] = self.bare[window[0]]
        return window


def part_of(corpus: Path, name: str, tokenizer: ByteLevelBPETokenizer) -> Part:
    """A source of a corpus in tokens. A line break is a token."""
    vocabulary = tokenizer.get_vocab()
    closing = [id for symbol, id in vocabulary.items() if symbol in CLOSING]
    breaks = [vocabulary[END_OF_TEXT], vocabulary["Ċ"]]
    bare = np.arange(len(vocabulary), dtype=np.uint16)
    for symbol, id in vocabulary.items():  # “Ġthe” -> “the”
        if symbol[0] == "Ġ":
            bare[id] = vocabulary.get(symbol[1:], id)
    encodings = tokenizer.encode_batch(texts_of(corpus, name))
    ids = np.array([id for each in encodings for id in (*each.ids, breaks[0])], np.uint16)
    before = np.roll(ids, 1)
    is_start = np.isin(before, breaks) | (np.isin(before, closing) & (bare[ids] != ids))
    return Part(ids, np.flatnonzero(is_start), bare)


def batch(
    parts: dict[str, Part], rng: np.random.Generator, count: int, T: int, repeated: float
) -> tuple[Ids, Ids]:
    """Draw `count` windows of T tokens, and the token after each token, (count, T) both.

    A share of the windows is repeated text, half of it random tokens: from these a head learns to
    look back at what followed last time (induction), which English alone teaches small models late
    or never. Random tokens can't be predicted in their first round, so their targets are UNKNOWN.
    """
    # A source shorter than a window, in a small corpus, has none.
    parts = {name: part for name, part in parts.items() if part.starts[0] + T < len(part.ids)}
    weights = np.array([SOURCES[name]["weight"] for name in parts])
    tokens = 1 + max(int(part.ids.max()) for part in parts.values())
    windows = np.empty((count, T + 1), np.int64)
    targets = np.empty((count, T), np.int64)
    for row, name in enumerate(rng.choice(list(parts), count, p=weights / weights.sum())):
        window, unknown = parts[name].window(rng, T + 1), 0
        if rng.random() < repeated:
            period = int(rng.integers(T // 10 + 1, T // 2))
            if rng.random() < 0.5:
                window, unknown = rng.integers(tokens, size=period), period - 1
            window = np.resize(window[:period], T + 1)
        windows[row], targets[row] = window, window[1:]
        targets[row, :unknown] = UNKNOWN
    return windows[:, :-1].copy(), targets


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("texts", type=Path)
    parser.add_argument("corpus", type=Path)
    build(**vars(parser.parse_args()))
