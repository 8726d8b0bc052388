"""Chapter 13, softmax that saturates: what it says holds, and its numbers may be changed."""

import numpy as np
import pytest
from book import FASTER, Changes, as_it_is, holds, run

from attnlab import softmax

CHAPTER = "13"

CHANGES: Changes = {
    "another seed": (False, {"default_rng(0)": "default_rng(2)", "3, 1\n": "3, 8\n"}),
    "no wish": (False, {"[0.0, -1.0, 0.0]": "[0.0, 0.0, 0.0]"}),
    "four keys": (
        False,
        {"[0.0, -1.0, 0.0]": "[1, 2, -3, 4]", "[16.0, 8.0, 0.0]": "[-9, 0, 0, 1]"},
    ),
    "another width": (False, {"\nd = 64": "\nd = 1", "16, 64, 3, 1": "4, 9, 3, 1"}),
    "other widths": (False, {"(4, 16, 64, 256, 1024)": "(1, 300)"}),
    "other rates": (False, {"(0.03, 0.1, 0.3, 1, 3, 10)": "(0, 0.5)"}),
    "another model": (
        False,
        {"vocab_size=500, n_positions=16, n_embd=768": "vocab_size=9, n_positions=2, n_embd=24"},
    ),
}


@pytest.mark.parametrize("what", CHANGES)
def test_it_goes_on_with_other_numbers(what: str) -> None:
    holds(CHAPTER, *CHANGES[what])


def test_softmax_that_saturates() -> None:
    """Of the first three sections and the last."""
    lesson = run(CHAPTER, FASTER[CHAPTER] | {"widths = 40": "widths = 400"})
    for name, scores in {"divided": [2, 1, 0], "not divided": [16, 8, 0]}.items():
        w = softmax(np.array(scores, dtype=float))
        by_hand = w * (lesson["d_weights"] - w @ lesson["d_weights"])
        assert np.allclose(lesson["gradients"][name], by_hand)
        assert np.isclose(by_hand.sum(), 0)
    lengths = {name: np.linalg.norm(one) for name, one in lesson["gradients"].items()}
    assert lengths["divided"] > 500 * lengths["not divided"]

    medians, widths, d_Q = lesson["medians"], lesson["widths"], lesson["lengths"]
    assert widths == (4, 16, 64, 256, 1024)
    divided = np.array([medians[d, True] for d in widths])
    assert (divided.max(axis=0) < 1.3 * divided.min(axis=0)).all()
    assert medians[1024, False][0] > 0.9
    assert max(medians[1024, False][1:]) < 0.01 * min(medians[1024, True][1:])
    assert medians[16, False][2] > medians[16, True][2]
    lines = lesson["lines"]
    assert lines[-1][1] > 100 * lines[-1][0]
    assert lines[-1][4] > 0.5 > 0.02 > lines[0][4]
    assert (d_Q[1024, True] < np.median(d_Q[1024, True]) / 10).mean() < 0.01

    assert lesson["largest"][0] > 2 * lesson["largest"][1]
    assert np.isclose(lesson["largest"][0], 0.5, atol=0.1)


@pytest.mark.slow
def test_what_it_does_to_learning() -> None:
    lesson = as_it_is(CHAPTER)
    assert min(lesson["best_with"], lesson["adam_with"]) > 0.95
    assert lesson["best_without"] < 0.6
    assert lesson["best_without"] < lesson["adam_without"] < 0.75
