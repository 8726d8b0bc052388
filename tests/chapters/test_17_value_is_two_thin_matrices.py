"""Chapter 17, value is two thin matrices: what it says holds, and its numbers may be changed."""

import numpy as np
import pytest
from book import Changes, as_it_is, holds, run

CHAPTER = "17"

CHANGES: Changes = {
    "rank 1": (False, {"[[1, 0, 1, 2], [0, 1, -1, 0]]": "[[1, 0, 1, 2], [3, 0, 3, 6]]"}),
    "a narrow head": (
        False,
        {
            "[[1, 0], [0, 1], [1, 1], [2, 0]]": "[[1], [0], [1], [2]]",
            "[[1, 0, 1, 2], [0, 1, -1, 0]]": "[[1, 0, 1, 2]]",
        },
    ),
    "W_V of zeros": (False, {"D, Dh =": "W_V = 0 * W_V\nD, Dh ="}),
    "negative W_O": (False, {"D, Dh =": "W_O = -W_O\nD, Dh ="}),
    "another seed": (False, {"default_rng(0)": "default_rng(3)"}),
    "two words": (
        False,
        {"D, Dh =": "words, X, weights = words[:2], X[:2], weights[:2, :2]\nD, Dh ="},
    ),
    "another GPT-3": (
        True,
        {"n_embd=12288, n_layer=96, n_head=96": "n_embd=8, n_layer=1, n_head=1"},
    ),
}


@pytest.mark.parametrize("what", CHANGES)
def test_it_goes_on_with_other_numbers(what: str) -> None:
    holds(CHAPTER, *CHANGES[what])


def test_value_is_two_thin_matrices() -> None:
    lesson = as_it_is(CHAPTER)
    W_VO, layer = lesson["W_VO"], lesson["layer"]
    assert lesson["rank"] == 2
    assert np.array_equal(W_VO[2], W_VO[0] + W_VO[1])
    assert np.array_equal(W_VO[3], 2 * W_VO[0])
    assert np.allclose(lesson["as_the_model"], lesson["in_one"])
    (gpt2,) = [line for line in lesson.printed.splitlines() if line.startswith("GPT-2 small")]
    assert gpt2.split()[-5:] == ["768", "64", "98,304", "589,824", "6"]
    assert "one_head: the published figure agrees" in lesson.printed
    assert np.array_equal(layer.heads[0].W_O, lesson["W_O"])
    assert np.array_equal(layer.heads[0].W_V, lesson["W_V"])
    assert np.allclose(lesson["added"], layer.output)
    assert np.allclose(lesson["total"], layer.output)


def test_its_exercises() -> None:
    rank_1 = run(CHAPTER, {"[[1, 0, 1, 2], [0, 1, -1, 0]]": "[[1, 0, 1, 2], [3, 0, 3, 6]]"})
    assert rank_1["rank"] == 1
    narrow = {
        "[[1, 0], [0, 1], [1, 1], [2, 0]]": "[[1], [0], [1], [2]]",
        "[[1, 0, 1, 2], [0, 1, -1, 0]]": "[[1, 0, 1, 2]]",
    }
    (line,) = [line for line in run(CHAPTER, narrow).printed.splitlines() if "our example" in line]
    assert line.split()[-3:] == ["8", "16", "2"]
