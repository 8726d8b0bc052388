"""Chapter 1, why attention: what it says holds, and its numbers may be changed."""

import numpy as np
import pytest
from book import Changes, as_it_is, holds, run

CHAPTER = "01"

CHANGES: Changes = {
    "both asked for": (False, {"[3, 0],  # a": "[3, 2],  # a"}),
    "a ball that asks": (False, {"[0, 0],  # a thing asks": "[1, 0],  # a thing asks"}),
    "X of zeros": (False, {"dog, ball, it =": "X = 0 * X\ndog, ball, it ="}),
    "negative X": (False, {"dog, ball, it =": "X = -0.5 * X\ndog, ball, it ="}),
    "other words": (False, {'["dog", "ball", "it"]': '["猫", "鱼", "它"]'}),
    "a fourth word": (
        False,
        {'"ball", "it"]': '"ball", "it", "tired"]', "[1, 1, 1],": "[1, 1, 1], [0, 0, 3],"},
    ),
    "a third question": (False, {"W_V = np": "W_Q, W_K = np.eye(3)[::-1], np.eye(3)\nW_V = np"}),
}


@pytest.mark.parametrize("what", CHANGES)
def test_it_goes_on_with_other_numbers(what: str) -> None:
    holds(CHAPTER, *CHANGES[what])


def test_similarity_is_not_attention() -> None:
    lesson = as_it_is(CHAPTER)
    similarity, shares, head = lesson["similarity"], lesson["shares"], lesson["head"]
    assert similarity[2].tolist() == [2, 2, 3]
    assert "it · ball = 1·0 + 1·2 + 1·0 = 2" in lesson.printed
    assert shares[2, 0] == shares[2, 1]
    assert np.array_equal(similarity, similarity.T)
    assert not np.allclose(shares, shares.T)
    assert head.raw_scores[2].tolist() == [6, 2, 4]
    assert "it asks dog   3·2 + 1·0 = 6" in lesson.printed
    assert head.weights[2].argmax() == lesson["words"].index("dog")
    assert lesson["W_Q_thing"].tolist() == [[0, 1], [0, 0], [0, 3]]
    assert lesson["other_head"].weights[2].argmax() == lesson["words"].index("ball")
    assert np.array_equal(lesson["X"] @ lesson["middle"] @ lesson["X"].T, head.raw_scores)
    assert not np.array_equal(head.raw_scores, head.raw_scores.T)
    assert np.array_equal(lesson["tied"].raw_scores, lesson["tied"].raw_scores.T)


def test_its_exercises() -> None:
    both = run(CHAPTER, {"[3, 0],  # a": "[3, 2],  # a"})["head"]
    assert both.weights[2, 0] == both.weights[2, 1]
    ball = run(CHAPTER, {"[0, 0],  # a thing asks": "[1, 0],  # a thing asks"})["head"]
    assert ball.weights[1].argmax() == 0
