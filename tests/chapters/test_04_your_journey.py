"""Chapter 4, your journey: what it says holds, and its numbers may be changed."""

import numpy as np
import pytest
from book import Changes, agree, as_it_is, holds, run

from attnlab import figures

CHAPTER = "04"

CHANGES: Changes = {
    "less dropout": (False, {"p, seed = 0.5, 123": "p, seed = 0.2, 4"}),
    "no dropout": (False, {"p, seed = 0.5": "p, seed = 0"}),
    "X of zeros": (True, {"T = len": "X = 0 * X\nT = len"}),
    "negative X": (True, {"T = len": "X = -X\nT = len"}),
    "two words": (True, {"T = len": "words, X = words[:2], X[:2]\nT = len"}),
    "one word": (True, {"T = len": "words, X = words[:1], X[:1]\nT = len"}),
    "twelve words": (True, {"T = len": "words, X = 2 * words, np.vstack([X, X])\nT = len"}),
    "no mask": (True, {"attnlab.causal_mask(T)": "np.ones((T, T), dtype=bool)"}),
    "W_Q of zeros": (
        True,
        {"    head = attnlab.self": "    W_Q = 0 * W_Q\n    head = attnlab.self"},
    ),
    "other heads": (True, {"W_O = np.eye": "W_V = 2 * W_V\nW_O = np.eye"}),
}


@pytest.mark.parametrize("what", CHANGES)
def test_it_goes_on_with_other_numbers(what: str) -> None:
    holds(CHAPTER, *CHANGES[what])


def test_your_journey() -> None:
    lesson, recorded = as_it_is(CHAPTER), figures.load("journey")
    assert lesson["words"] == recorded["words"]
    assert figures.compare("X", lesson["X"], recorded["inputs"], 6).agrees
    assert lesson.printed.count("published figures agree") == 6
    first, second = lesson["heads"].values()
    steps = ("Q", "K", "V", "raw_scores", "scores", "weights", "context")
    for name, head in lesson["heads"].items():
        agree(recorded[name], 6, **{step: getattr(head, step) for step in steps})
    assert first is not second
    assert lesson["cut"](lesson["exact"])[[0, 1, 5]].tolist() == [1.2, 1.8, 1.5]
    assert not np.allclose(lesson["cut"](lesson["of_cut_rows"]), lesson["cut"](lesson["exact"]))

    causal = lesson["causal"]
    agree(recorded["causal"], 6, weights=causal.weights, context=causal.context)
    agree(recorded["causal"], 6, zeroed_weights=lesson["zeroed"])
    agree(recorded["causal"], 6, renormalised_weights=lesson["renormalised"])
    assert np.isclose(lesson["first"], lesson["second"])
    assert np.isclose(lesson["second"], causal.weights[2, 2])

    assert figures.compare("dropped", lesson["dropped"], recorded["dropout"]["weights"], 6).agrees
    assert not lesson["dropped"][1].any()
    once = lesson["once"]
    assert set(np.unique(once.dropout_mask)) == {0, 2}
    assert np.allclose(once.weights, causal.weights * once.dropout_mask)
    assert np.allclose(lesson["mean"], causal.weights, atol=0.01)

    both = lesson["both"]
    for head, part in zip(both.heads, recorded["multi_head"]["heads"], strict=True):
        agree(part, 6, weights=head.weights, context=head.context)
    assert figures.compare("concat", both.concat, recorded["multi_head"]["concatenated"], 6).agrees
    assert np.array_equal(both.output, both.concat)


def test_its_exercise() -> None:
    lesson = run(CHAPTER, {"p, seed = 0.5": "p, seed = 0.2"})
    kept = lesson["many"].dropout_mask
    assert np.isclose(kept.max(), 1.25)
    assert np.isclose((kept > 0).mean(), 0.8, atol=0.001)
    assert np.allclose(lesson["mean"], lesson["causal"].weights, atol=0.01)
    assert "mean without the factor 1.25" in lesson.printed
