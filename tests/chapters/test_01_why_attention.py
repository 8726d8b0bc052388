"""Chapter 1, why attention: its claims hold."""

import numpy as np
import pytest
from book import Chapter, run

from attnlab import GPT2, softmax

CHAPTER = "01"


def test_one_vector_is_a_bottleneck(chapter: Chapter) -> None:
    assert chapter["averages"][0].tolist() == pytest.approx([4 / 3, 1 / 3])
    assert np.array_equal(chapter["averages"][0], chapter["averages"][1])
    assert chapter["difference"] < 1e-7
    left = chapter["remaining"]
    assert len(left) == 40
    assert left[0] == 1
    assert left[5] < 0.1
    assert left[20] < 1e-3
    assert round(left[10], 3) == 0.003
    small = run("01", {"SCALE = 1.0  #": "SCALE = 0.1  #"})["remaining"]
    assert round(small[10], 2) == 0.25
    width = chapter["WIDTH"]
    assert np.allclose(chapter["W_state"] @ chapter["W_state"].T, np.eye(width))


def test_vector_lengths(chapter: Chapter) -> None:
    stages = chapter["lengths"]
    assert stages["mean 0, variance 1"] == pytest.approx(128**0.5, rel=1e-3)
    after = stages["LayerNorm"]
    assert [f"{after.min():.2f}", f"{after.max():.2f}"] == ["7.34", "8.33"]
    assert not any(np.allclose(rows, 1, rtol=0.05) for rows in stages.values())
    assert chapter["cosines"].diagonal() == pytest.approx(1, abs=1e-5)
    assert chapter["correlation"] > 0.98


def test_similarity_is_not_attention(chapter: Chapter) -> None:
    similarity, weights, head = (
        chapter["similarity"],
        chapter["similarity_weights"],
        chapter["head"],
    )
    assert similarity[2].tolist() == [2, 2, 3]
    assert "it · ball = 1·0 + 1·2 + 1·0 = 2" in chapter.printed
    assert weights[2, 0] == weights[2, 1]
    assert weights[2].argmax() == 2
    assert head.raw_scores[2].tolist() == [6, 2, 4]
    assert "it asks dog   3·2 + 1·0 = 6" in chapter.printed
    assert head.weights[2].argmax() == chapter["words"].index("dog")
    assert chapter["W_Q_thing"].tolist() == [[0, 1], [0, 0], [0, 3]]
    assert chapter["other_head"].weights[2].argmax() == chapter["words"].index("ball")
    assert np.array_equal(chapter["X"] @ chapter["W_QK"] @ chapter["X"].T, head.raw_scores)
    assert "X Xᵀ equal to its transpose: True" in chapter.printed
    assert "Q Kᵀ equal to its transpose: False" in chapter.printed


def test_similarity_is_not_attention_in_a_trained_model(chapter: Chapter) -> None:
    symbols, last = chapter["symbols"], chapter["last_row"]
    animal, thing = symbols.index("Ġdog"), symbols.index("Ġball")
    assert chapter["softmax_of_products"].diagonal().min() > 0.9
    assert f"{last['weights'][animal]:.2f}" == "1.00"
    assert f"{last['softmax(X Xᵀ / √D)'][animal]:.2f}" == "0.00"
    assert last["X Xᵀ"][thing] > last["X Xᵀ"][animal]
    X = GPT2.from_pretrained("english").trace(chapter["PROMPT"]).blocks[0].attention.X
    assert softmax(X @ X.T / X.shape[1] ** 0.5).diagonal().max() < 0.5
    block = chapter["trace"].blocks[1].attention
    assert np.array_equal(chapter["trained_head"].X, block.X)


def test_exercise_1(answer: str) -> None:
    lesson = run(CHAPTER, {".token_embedding.mean(": ".embedding.mean("})
    assert lesson["difference"] < 1e-6
    assert "less than 1e-6" in answer


def test_exercise_2(chapter: Chapter, answer: str) -> None:
    similarity = chapter["similarity"]
    assert (similarity[0, 2], similarity[0, 0]) == (2, 4)
    longer = run(CHAPTER, {"[2, 0, 0],  # dog": "[4, 0, 0],  # dog"})
    assert (longer["similarity"][0, 2], longer["similarity"][0, 0]) == (4, 16)
    dog, it = longer["X"][0], longer["X"][2]
    assert "from 2 to 4. The similarity to itself goes from 4 to 16" in answer
    cosine = dog @ it / np.sqrt((dog @ dog) * (it @ it))
    assert f"{cosine:.4f}" in answer


def test_exercise_3(answer: str) -> None:
    head = run(CHAPTER, {"[3, 0],  # a": "[3, 2],  # a"})["head"]
    assert head.Q[2].tolist() == [3, 3]
    assert head.raw_scores[2].tolist() == [6, 6, 6]
    assert f"{head.weights[2, 2]:.4f}" in answer


def test_exercise_4(answer: str) -> None:
    head = run(CHAPTER, {"[0, 0],  # a thing asks": "[1, 0],  # a thing asks"})["head"]
    assert head.raw_scores[1].tolist() == [4, 0, 2]
    for weight in head.weights[1]:
        assert f"{weight:.4f}" in answer
