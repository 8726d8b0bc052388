"""Chapter 3, one head by hand: what it says holds, and its numbers may be changed."""

import numpy as np
import pytest
from book import CHANGED, Changes, agree, as_it_is, holds, run

from attnlab import figures, softmax

CHAPTER = "03"

CHANGES: Changes = {
    "twice W_Q": (True, {"W_V = np.array": "W_Q = 2 * W_Q\nW_V = np.array"}),
    "W_Q of zeros": (True, {"W_V = np.array": "W_Q = 0 * W_Q\nW_V = np.array"}),
    "negative W_K": (True, {"W_V = np.array": "W_K = -W_K\nW_V = np.array"}),
    "a wider W_V": (True, {"[0.1, 0.2]])\n": "[0.1, 0.2]])\nW_V = np.hstack([W_V, -W_V])\n"}),
    "three numbers in a key": (
        True,
        {"W_V = np.array": "W_Q, W_K = np.ones((4, 3)), np.eye(4, 3)\nW_V = np.array"},
    ),
    "four words": (
        True,
        {
            'words = ["猫", "吃", "鱼"]': 'words = ["the", "cat", "eats", "fish"]',
            "[0.3, 0.1, 0.9, 0.2],  # 鱼": "[0.3, 0.1, 0.9, 0.2], [-4, 0, 2, 0.25],",
        },
    ),
    "one word": (
        True,
        {
            'words = ["猫", "吃", "鱼"]': 'words = ["鱼"]',
            "[0.8, 0.2, 0.4, 0.1],": "",
            "[0.1, 0.9, 0.3, 0.7],": "",
        },
    ),
    "other scores": (False, {"example = [1.0, 0.5, 0.1]": "example = [-3, 2.5]"}),
}


@pytest.mark.parametrize("what", CHANGES)
def test_it_goes_on_with_other_numbers(what: str) -> None:
    holds(CHAPTER, *CHANGES[what])


def test_one_head_by_hand() -> None:
    lesson, recorded = as_it_is(CHAPTER), figures.load("cat_eats_fish")
    assert lesson["words"] == recorded["words"]
    steps = ("Q", "K", "V", "raw_scores", "scores", "weights", "context")
    agree(recorded, 4, **{name: lesson[name] for name in steps})
    agree(recorded, 4, **{name: getattr(lesson["head"], name) for name in steps})
    agree(recorded, 7, exp_of_scores=lesson["exp_of_scores"])
    agree(recorded, 3, exp_row_sums=lesson["exp_row_sums"])
    assert np.allclose(lesson["weights"], 1 / 3, atol=0.02)
    assert np.allclose(softmax(lesson["example"]), [0.497, 0.301, 0.202], atol=0.0005)
    assert all(f"= {share}\n" in lesson.printed for share in (0.497, 0.301, 0.202))
    rounded = np.exp(np.round(lesson["scores"], 4))
    assert not figures.compare("", rounded, recorded["exp_of_scores"], 7).agrees
    assert 0.00001 < lesson["difference"] < 0.0001  # from the fifth decimal on
    assert lesson.printed.count("published figures agree") == 6


def test_its_exercise() -> None:
    once = as_it_is(CHAPTER)
    twice = run(CHAPTER, {"W_V = np.array": "W_Q = 2 * W_Q\nW_V = np.array"})
    assert np.allclose(twice["raw_scores"], 2 * once["raw_scores"])
    assert np.allclose(twice["weights"], 1 / 3, atol=0.05)
    assert f"{CHANGED}  W_Q = [[0.5, 0.2], [0.1, 0.3], [0.4, 0.6], [0.2, 0.1]]" in twice.printed
