"""The English model: its logits, and figures of its card that can be measured again."""

import math
import re

import numpy as np
import pytest
from pytorch import ROOT
from test_pocket import check_against_transformers

from attnlab import GPT2
from attnlab.checkpoints.hub import BUILT_IN
from attnlab.equations import AnyArray

DIRECTORY = BUILT_IN["english"].directory
CARD = (DIRECTORY / "MODEL_CARD.md").read_text(encoding="utf-8")
HELD_OUT = (DIRECTORY / "held_out.txt").read_text(encoding="utf-8").splitlines()


@pytest.fixture(scope="module")
def english() -> GPT2:
    return GPT2.from_pretrained("english")


@pytest.fixture(scope="module")
def heads() -> dict[str, AnyArray]:
    """The card's table: each head's weight for each job, (25,); the last is even attention's."""
    lines = CARD.splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith("layer   head"))
    rows = [line.split() for line in lines[start + 1 : lines.index("```", start)]]
    jobs = lines[start].split()[2:]
    weights = np.array([row[-len(jobs) :] for row in rows], float).T
    return dict(zip(jobs, weights, strict=True))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_logits_against_transformers(dtype: str) -> None:
    """Also of the float16 weights: transformers computes with them in float64."""
    check_against_transformers("english", dtype)


def test_perplexity(english: GPT2) -> None:
    """Of the package's text, a kind of the card's; a sentence's first word is only context."""
    nats, words = 0.0, 0
    for sentence in HELD_OUT:
        first = len(english.tokenizer.encode(sentence.split()[0]))
        nats += float(english.trace(sentence).losses[first - 1 :].sum(dtype=np.float64))
        words += len(sentence.split()) - 1
    [of_card] = re.findall(r"^winograd +(\d+) +(\d+) +(\d+) ", CARD, re.M)
    assert (len(HELD_OUT), words) == (int(of_card[0]), int(of_card[1]))
    assert math.exp(nats / words) == pytest.approx(float(of_card[2]), abs=0.6)


def test_heads_on_repeated_tokens(english: GPT2, heads: dict[str, AnyArray]) -> None:
    """20 sequences of 50 random tokens and the same again."""
    rng, end = np.random.default_rng(0), len(english.tokenizer) - 1
    induction = []
    for _ in range(20):
        trace = english.trace(np.tile(rng.choice(end, 50, replace=False), 2))
        weights = np.stack([block.attention.weights for block in trace.blocks])  # (L, H, 100, 100)
        induction.append(weights[:, :, range(50, 100), range(1, 51)].mean(axis=-1))
    measured = np.mean(induction, axis=0).ravel()
    np.testing.assert_allclose(measured, heads["induction"][:-1], rtol=0, atol=0.0051)
    assert measured.max() >= 0.6


def test_the_previous_token_head(english: GPT2, heads: dict[str, AnyArray]) -> None:
    found = np.mean(
        [
            [np.diagonal(block.attention.weights, -1, -2, -1).mean(-1) for block in trace.blocks]
            for trace in map(english.trace, HELD_OUT)
        ],
        axis=0,
    )  # (L, H)
    best = heads["previous"][:-1].argmax()
    assert best == found.argmax()
    assert found.ravel()[best] == pytest.approx(heads["previous"][best], abs=0.08)
    assert heads["previous"].max() >= 0.6


def test_words_of_the_book_are_one_token_each(english: GPT2) -> None:
    words = (ROOT / "examples/english/words.txt").read_text(encoding="utf-8").split()
    assert {len(english.tokenizer.encode(f" {word}")) for word in words} == {1}
    assert len(english.tokenizer.encode("It’s")) == 3


def test_after_a_pronoun_no_two_words_are_nearly_certain(english: GPT2) -> None:
    """People would go on in many ways."""
    for text in (
        "She put the letter on the table and then she",
        "When the boy saw the snake, he",
        "My parents were happy because they",
    ):
        best = english.trace(text).next_tokens(2)
        assert sum(token.probability for token in best) < 0.75
        assert all(token.text.startswith(" ") for token in best)  # no piece of a word


def test_she_or_he(english: GPT2) -> None:
    """The card's shares of “she” after “The nurse said that” and the like."""
    rows = CARD.split("she and he is:\n")[1].split("The books are of")[0]
    shares = dict(re.findall(r"(\w+)\s+(\d\.\d\d)", rows))
    assert len(shares) == 16
    she, he = (english.tokenizer.encode(word)[0] for word in (" she", " he"))
    for role, share in shares.items():
        logits = english.trace(f"The {role} said that").next_logits
        assert 1 / (1 + np.exp(logits[he] - logits[she])) == pytest.approx(float(share), abs=0.0051)
