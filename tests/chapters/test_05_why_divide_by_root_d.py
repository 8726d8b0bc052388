"""Chapter 5, why divide by root d: what it says holds, and its numbers may be changed."""

import numpy as np
import pytest
from book import FASTER, Changes, as_it_is, holds, run

from attnlab import figures, softmax

CHAPTER = "05"

CHANGES: Changes = {
    "scores that are equal": (True, {"0.1, -0.2, 0.3, -0.2, 0.5])\nt": "0.7, 0.7])\nt"}),
    "one score": (True, {"0.1, -0.2, 0.3, -0.2, 0.5])\nt": "-3])\nt"}),
    "other factors": (True, {"times = (1, 8, 64)": "times = (0, -2, 1000, 5)"}),
    "other widths": (False, {"widths = (1, 5, 25, 100)": "widths = (64, 2)"}),
    "another seed": (False, {"default_rng(0)": "default_rng(7)"}),
    "divided by d": (False, {"products / math.sqrt(d)": "products / d"}),
    "two keys": (False, {", 10\nwinners": ", 2\nwinners"}),
    "other sizes": (False, {"T, d = 12, 64": "T, d = 1, 1"}),
}


@pytest.mark.parametrize("what", CHANGES)
def test_it_goes_on_with_other_numbers(what: str) -> None:
    holds(CHAPTER, *CHANGES[what])


def test_why_divide_by_root_d() -> None:
    lesson = as_it_is(CHAPTER)
    for d, (variance, deviation, divided) in zip(lesson["widths"], lesson["spread"], strict=True):
        assert np.allclose([variance / d, deviation / d**0.5, divided], 1, rtol=0.05)
    assert "shares: all 10 published figures agree" in lesson.printed
    softmaxes = {factor: softmax(factor * lesson["scores"]) for factor in (1, 8, 64)}
    assert figures.compare("1", softmaxes[1], [0.1925, 0.1426, 0.2351, 0.1426, 0.2872], 4).agrees
    assert figures.compare("8", softmaxes[8], [0.0326, 0.0030, 0.1615, 0.0030, 0.8000], 4).agrees
    for factor, weights in softmaxes.items():
        x, little = factor * lesson["scores"], 1e-6 * np.eye(5)
        measured = (softmax(x + little) - softmax(x - little)).T / 2e-6
        assert np.allclose(lesson["jacobian"](weights), measured, atol=1e-8)
        assert np.allclose(lesson["weights"][factor], weights)
    diagonals = {factor: np.diag(lesson["jacobian"](w)) for factor, w in softmaxes.items()}
    assert 0.1 < diagonals[1].min() < diagonals[1].max() < 0.25
    assert np.allclose(diagonals[8][[1, 3]], 0.0029, atol=0.0002)
    assert np.abs(lesson["jacobian"](softmaxes[64])).max() < 0.00005
    undivided, divided = np.transpose(lesson["winners"])
    assert undivided[-1] > 0.85
    assert divided.max() < 0.35


def test_its_exercises() -> None:
    equal = run(CHAPTER, FASTER[CHAPTER] | {"0.1, -0.2, 0.3, -0.2, 0.5])\nt": "2, 2, 2, 2])\nt"})
    assert all(np.allclose(weights, 1 / 4) for weights in equal["weights"].values())
    by_d = run(CHAPTER, FASTER[CHAPTER] | {"products / math.sqrt(d)": "products / d"})
    assert np.isclose(by_d["spread"][-1][2], 1 / 100, rtol=0.3)
