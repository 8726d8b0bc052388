"""Chapter 10, cross attention: what it says holds, and its numbers may be changed."""

import numpy as np
import pytest
from book import Changes, as_it_is, holds, run

CHAPTER = "10"

CHANGES: Changes = {
    "twice W_Q": (False, {"W_Q = 3 *": "W_Q = 6 *"}),
    "W_Q of zeros": (False, {"W_Q = 3 *": "W_Q = 0 *"}),
    "negative W_Q": (False, {"W_Q = 3 *": "W_Q = -0.3 *"}),
    "who does not matter": (False, {"[0, 1, 2],  # sleep": "[0, 0, 2],  # sleep"}),
    "a longer sentence": (
        False,
        {'"dorment"]': '"dorment", "bien"]', "[0, 0, 0, 1],": "[0, 0, 0, 1], [0, 0.5, 0, 1],"},
    ),
    "one word": (
        False,
        {'["black", "cats", "sleep"]': '["cats"]', "[2, 0, 0],": "", "[0, 1, 2],": ""},
    ),
    "W_V of zeros": (False, {"W_V = np.eye": "W_V = 0 * np.eye"}),
}


@pytest.mark.parametrize("what", CHANGES)
def test_it_goes_on_with_other_numbers(what: str) -> None:
    holds(CHAPTER, *CHANGES[what])


def test_cross_attention() -> None:
    lesson = as_it_is(CHAPTER)
    cross, french = lesson["cross"], lesson["french"]
    assert cross.raw_scores.shape == cross.context.shape == (3, 4)
    assert np.allclose(cross.weights.sum(axis=1), 1)
    found = [french[j] for j in cross.weights.argmax(axis=1)]
    assert found == ["noirs", "chats", "dorment"]
    assert cross.weights[2].argsort()[-2] == french.index("chats")
    assert cross.mask.all()
    assert lesson["masked"].weights[0, french.index("les")] == 1
    assert not lesson["masked"].weights[:, french.index("dorment")].any()
    assert np.allclose(lesson["shuffled"].weights, cross.weights[:, [3, 2, 1, 0]])
    assert np.allclose(lesson["shuffled"].context, cross.context)
    assert np.array_equal(lesson["itself"].weights, lesson["self_attention"].weights)
    assert np.array_equal(lesson["itself"].context, lesson["self_attention"].context)


def test_its_exercises() -> None:
    once = as_it_is(CHAPTER)["cross"].weights[2]
    twice = run(CHAPTER, {"W_Q = 3 *": "W_Q = 6 *"})["cross"].weights[2]
    assert twice[1] < once[1]
    alone = run(CHAPTER, {"[0, 1, 2],  # sleep": "[0, 0, 2],  # sleep"})["cross"].weights[2]
    assert alone[3] > once[3]
    assert np.allclose(alone[:3], alone[0])
