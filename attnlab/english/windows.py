"""What the English model is trained on: its vocabulary, and windows of tokens.

A window is T + 1 tokens, the last T of which are predicted. Most windows are cut out of the corpus
at the start of a sentence, because that is where a reader's text starts; some are made of
repetitions, because they teach a head to look back at what followed last time (induction), which
4 million words of English teach late or never.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnlab.equations import Ids
from attnlab.pocket.vocabulary import learn_vocabulary
from attnlab.text.tokenizer import Tokenizer

END_OF_TEXT = "<|endoftext|>"
TOKENS = 7936  # a multiple of 256: matrix products are fastest

# Symbols that close a sentence.
CLOSING = (".", "!", "?", '."', '!"', '?"', ".”", "!”", "?”", ".'", "!'", "?'")

# Words that are made whole: first those of the README's and the book's sentences, at the start of a
# text and inside; then common words of today that old books lack.
WORDS, TODAY = (
    words.split()
    for words in (Path(__file__).parent / "words.txt").read_text("utf-8").split("\n\n")
)

# Predicting these targets isn't trained: the first round of random tokens can't be known.
UNKNOWN = -100


class Round(NamedTuple):
    """Steps of the training in which the learning rate rises and falls to 0.

    Attributes
    ----------
    peak : the highest learning rate, as a share of the first round's
    falls_from : the share of the steps after which the rate falls
    shares : of the windows, by part of the corpus
    """

    steps: int
    peak: float
    falls_from: float
    shares: dict[str, float]


# One sentence at a time is what people type; stories teach what holds beyond a sentence, and
# storybooks are the simplest. In later rounds more sentences are made on purpose: small models
# learn last what matters seldom.
ROUNDS = (
    Round(8_000, 1.0, 0.5, {"tatoeba": 0.4, "storybooks": 0.08, "books": 0.4, "made": 0.12}),
    Round(
        *(1_600, 0.5, 0.0),
        {"tatoeba": 0.35, "storybooks": 0.07, "books": 0.28, "made": 0.1, "made_later": 0.2},
    ),
    Round(
        *(1_600, 0.3, 0.0),
        {"tatoeba": 0.33, "storybooks": 0.06, "books": 0.25, "made": 0.08, "made_last": 0.28},
    ),
)
PARTS = tuple({part: None for each in ROUNDS for part in each.shares})


def is_made(part: str) -> bool:
    """Whether a part's sentences were made on purpose, rather than written by people."""
    return part.startswith("made")


# The share of windows with repetitions, in the first EARLY steps of the training and in the rest.
# Early repetitions form the heads; later ones only have to keep them.
EARLY, REPEATED_EARLY, REPEATED = 1_500, 0.3, 0.08


def learn_tokens(documents: list[str], directory: Path) -> Tokenizer:
    """Learn a byte pair encoding with the end of text as its last token.

    WORDS and TODAY are counted as often as it takes to make them whole. The directory gets
    `vocab.json` and `merges.txt`.
    """
    rare = [*(f"{word} {word}" for word in WORDS), *(f". {word}" for word in TODAY)] * 1500
    learned = learn_vocabulary("\n".join([*documents, *rare]), directory, TOKENS - 1)
    model = learned.settings["model"]
    tokenizer = Tokenizer.from_merges(
        model["vocab"] | {END_OF_TEXT: len(model["vocab"])}, model["merges"]
    )
    tokenizer.save(directory)
    return tokenizer


@dataclass(frozen=True)
class Part:
    """A part of the corpus in tokens.

    Attributes
    ----------
    ids : uint16 (N,), all documents, each followed by the end of text
    starts : int64 (S,), where a window may start: at a sentence
    first : uint16 (S,), the token to start with: without the space before it
    """

    ids: NDArray[np.uint16]
    starts: Ids
    first: NDArray[np.uint16]

    def window(self, rng: np.random.Generator, length: int) -> Ids:
        """`length` tokens from the start of a sentence."""
        last = np.searchsorted(self.starts, len(self.ids) - length, side="right")
        start = int(rng.integers(last))
        window = self.ids[self.starts[start] :][:length].astype(np.int64)
        window[0] = self.first[start]
        return window


def tokenized(documents: list[str], tokenizer: Tokenizer) -> Part:
    """Encode documents; a line break stays a token."""
    ids = tokenizer.settings["model"]["vocab"]
    end, line_break = ids[END_OF_TEXT], ids["Ċ"]
    # Each token with a space before it, and the same without: "Ġthe" -> "the".
    bare = {
        id: ids[symbol[1:]] for symbol, id in ids.items() if symbol[0] == "Ġ" and symbol[1:] in ids
    }
    closing = {id for symbol, id in ids.items() if symbol in CLOSING}
    encoded: list[NDArray[np.uint16]] = []
    starts: list[int] = []
    first: list[int] = []
    position = 0
    for document in documents:
        before = line_break
        tokens = tokenizer.encode(document)
        for index, token in enumerate(tokens):
            if before == line_break or (before in closing and token in bare):
                starts.append(position + index)
                first.append(bare.get(token, token))
            before = token
        encoded.append(np.array([*tokens, end], np.uint16))
        position += len(tokens) + 1
    return Part(np.concatenate(encoded), np.array(starts), np.array(first, np.uint16))


def batch(
    parts: dict[str, Part],
    shares: dict[str, float],
    seed: int,
    step: int,
    count: int,
    T: int,
    repeated: float,
) -> tuple[Ids, Ids]:
    """The windows of one step: a function of seed and step, so that a resumed run has the same.

    Returns
    -------
    ids, targets : (count, T); targets that can't be known are UNKNOWN
    """
    rng = np.random.default_rng([seed, step])
    ids = np.empty((count, T + 1), np.int64)
    targets = np.empty((count, T), np.int64)
    for row, name in enumerate(rng.choice(list(shares), count, p=list(shares.values()))):
        window = parts[name].window(rng, T + 1)
        unknown = 0
        if rng.random() < repeated:
            period = int(rng.integers(T // 10, T // 2))
            if rng.random() < 0.5:
                unknown = period - 1
                window = rng.integers(TOKENS, size=period)
            window = np.resize(window[:period], T + 1)
        ids[row], targets[row] = window, window[1:]
        targets[row, :unknown] = UNKNOWN
    return ids[:, :-1], targets
