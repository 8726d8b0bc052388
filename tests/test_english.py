"""The English model: its logits, and figures of its card that can be measured again."""

import json
import math
import re
from typing import Any

import numpy as np
import pytest
from test_pocket import check_against_transformers

from attnlab import GPT2
from attnlab.analysis.jobs import JOBS, measure_jobs
from attnlab.checkpoints.hub import BUILT_IN
from attnlab.equations import AnyArray

DIRECTORY = BUILT_IN["english"].directory
CARD = (DIRECTORY / "MODEL_CARD.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def english() -> GPT2:
    return GPT2.from_pretrained("english")


@pytest.fixture(scope="module")
def sample() -> dict[str, Any]:
    """A little of the held-out text: passages of each document, by source."""
    content: dict[str, Any] = json.loads((DIRECTORY / "held_out.json").read_text(encoding="utf-8"))
    return content


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


@pytest.mark.parametrize(("source", "recorded"), [("tatoeba", 100.2), ("stories", 494.6)])
def test_perplexity(english: GPT2, sample: Any, source: str, recorded: float) -> None:
    """exp(Σ nats / Σ words) of the sample, recorded with the card; the whole text's is similar.

    The first word of each passage only gives the context.
    """
    nats, words = 0.0, 0
    for passage in (passage for document in sample[source] for passage in document):
        ids = english.tokenizer.encode(passage)
        first = len(english.tokenizer.encode(passage.split()[0]))
        words += len(passage.split()) - 1
        for start in range(0, max(1, len(ids) - 64), 64):  # windows that overlap by half
            losses = english.trace(ids[start : start + 128]).losses
            nats += float(losses[63 if start else first - 1 :].sum(dtype=np.float64))
    assert math.exp(nats / words) == pytest.approx(recorded, rel=2e-3)
    of_all = re.search(rf"^{source} +\S+ +\S+ +(\d+\.\d) ", CARD, re.M)
    assert of_all
    assert math.exp(nats / words) == pytest.approx(float(of_all[1]), rel=0.2)


def test_heads_on_repeated_tokens(english: GPT2, heads: dict[str, AnyArray]) -> None:
    """20 sequences of 50 random tokens and the same again."""
    rng, end = np.random.default_rng(40), len(english.tokenizer) - 1
    traces = [english.trace(np.tile(rng.choice(end, 50, replace=False), 2)) for _ in range(20)]
    induction = []
    for trace in traces:
        weights = np.stack([block.attention.weights for block in trace.blocks])  # (L, H, 100, 100)
        induction.append(weights[:, :, range(50, 100), range(1, 51)].mean(axis=-1))
    measured = np.mean(induction, axis=0).ravel()
    np.testing.assert_allclose(measured, heads["induction"][:-1], rtol=0, atol=0.0051)
    assert measured.max() >= 0.6


def test_heads_on_held_out_text(english: GPT2, sample: Any, heads: dict[str, AnyArray]) -> None:
    """The sample's sentences are shorter, so that heads which attend evenly have larger weights."""
    jobs = ("previous", "first")
    texts = [text for name in ("tatoeba", "stories") for part in sample[name] for text in part]
    traces = (english.trace(english.tokenizer.encode(text)[:128]) for text in texts)
    found = measure_jobs(
        ((trace, {job: np.asarray(JOBS[job](trace.tokens)) for job in jobs}) for trace in traces),
        jobs,
    )
    for n, job in enumerate(jobs):
        best = heads[job][:-1].argmax()
        assert best == found.attention[n].argmax()
        assert found.attention[n].ravel()[best] == pytest.approx(heads[job][best], abs=0.05)


def test_tokens(english: GPT2, sample: Any) -> None:
    pieces = [len(english.tokenizer.encode(f" {word}")) for word in sample["frequent"].split()]
    assert len(pieces) == 2000
    assert f"{100 * np.mean(np.equal(pieces, 1)):.1f} % are one token" in CARD
    assert max(pieces) == 2
    assert len(english.tokenizer.encode("It’s")) == 3


def test_most_probable_continuation(english: GPT2) -> None:
    opening = "Once upon a time there was"
    generated = english.generate(opening, 40, temperature=0, stop="<|endoftext|>").text
    assert f"{opening} |{generated}" in " ".join(CARD.split())


def test_she_or_he(english: GPT2) -> None:
    """The card's shares of “she” after “The nurse said that” and the like."""
    rows = CARD.split("and he is:\n")[1].split("\n  The books")[0]
    shares = dict(re.findall(r"(\w+)\s+(\d\.\d\d)", rows))
    assert len(shares) == 16
    she, he = (english.tokenizer.encode(word)[0] for word in (" she", " he"))
    for role, share in shares.items():
        logits = english.trace(f"The {role} said that").next_logits
        assert 1 / (1 + np.exp(logits[he] - logits[she])) == pytest.approx(float(share), abs=0.0051)
