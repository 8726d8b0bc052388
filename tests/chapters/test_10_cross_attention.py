"""Chapter 10, cross-attention: its claims hold."""

import numpy as np
import pytest
from book import Chapter, run

import attnlab

CHAPTER = "10"


def test_cross_attention(chapter: Chapter) -> None:
    cross, french = chapter["cross"], chapter["french"]
    assert cross.raw_scores.shape == cross.context.shape == (3, 4)
    assert np.allclose(cross.weights.sum(axis=1), 1)
    words = [french[j] for j in cross.weights.argmax(axis=1)]
    assert words == ["noirs", "chats", "dorment"]
    assert cross.weights[2].argsort()[-2] == french.index("chats")
    assert [chapter["meanings"][j] for j in cross.context[2].argsort()[:1:-1]] == [
        "action",
        "animal",
    ]
    assert cross.mask.all()
    assert chapter["masked"].weights[0, french.index("les")] == 1
    assert not chapter["masked"].weights[:, french.index("dorment")].any()
    assert np.allclose(chapter["shuffled"].weights, cross.weights[:, [3, 2, 1, 0]])
    assert np.allclose(chapter["shuffled"].context, cross.context)
    assert np.array_equal(chapter["same_sequence"].weights, chapter["self_attention"].weights)
    assert np.array_equal(chapter["same_sequence"].context, chapter["self_attention"].context)


def test_exercise_1(chapter: Chapter, answer: str) -> None:
    once = chapter["cross"].weights
    twice = run(CHAPTER, {"W_Q = 3 * np.eye(3)\n": "W_Q = 6 * np.eye(3)\n"})["cross"].weights
    assert f"from {once[2, 1]:.4f} to {twice[2, 1]:.4f}." in answer
    # By hand: sleep's scores are 0, 3, 0, 6 over the root of 3, and then twice those.
    e = np.exp(np.array([0, 6, 0, 12]) / np.sqrt(3))
    assert twice[2, 1] == pytest.approx(e[1] / e.sum())
    assert twice[2, 1] < once[2, 1]
    assert once[0].argmax() == twice[0].argmax() == 2


def test_exercise_2(chapter: Chapter, answer: str) -> None:
    once = chapter["cross"].weights[2]
    alone = run(CHAPTER, {"[0, 1, 2],  # sleep": "[0, 0, 2],  # sleep"})["cross"].weights[2]
    assert np.allclose(alone[:3], alone[0])
    assert f"falls to {alone[1]:.4f}," in answer
    assert f"rises from {once[3]:.4f} to {alone[3]:.4f}." in answer


def test_exercise_3(answer: str) -> None:
    negative = run(CHAPTER, {"W_Q = 3 * np.eye(3)\n": "W_Q = -3 * np.eye(3)\n"})["cross"].weights
    assert np.allclose(negative[0, [1, 3]], negative[0, 0])
    assert f"which keeps {negative[0, 2]:.4f};" in answer
    assert f"other three words have {negative[0, 0]:.4f} each" in answer


def test_exercise_4(chapter: Chapter, answer: str) -> None:
    turned = attnlab.cross_attention(
        *(chapter[name] for name in ("memory", "X", "W_K", "W_Q")), np.eye(3)
    )
    assert np.array_equal(turned.raw_scores, chapter["cross"].raw_scores.T)
    assert not np.allclose(turned.weights, chapter["cross"].weights.T, atol=0.01)
    assert turned.weights.shape == (4, 3)
    assert answer.startswith("The weights are 4 x 3.")
    assert np.allclose(turned.weights[0], 1 / 3)
    assert f"gets {turned.weights[0, 0]:.4f} of" in answer


def test_alignment(chapter: Chapter) -> None:
    best = [chapter["source"][j] for j in chapter["aligned"].weights.argmax(axis=1)]
    assert best == ["the", "Area", "Economic", "European", "was", "founded"]
    assert (chapter["aligned"].weights.max(axis=1) > 0.8).all()
