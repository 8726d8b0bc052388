"""Chapter 5, why divide by root d: its claims hold."""

import math

import numpy as np
from book import FASTER, Chapter, check_figures, file_of, run

from attnlab import softmax

CHAPTER = "05"


def test_variances_of_dice_and_dot_products_grow_linearly(chapter: Chapter) -> None:
    for n in (2, 8, 32):
        assert np.allclose(chapter["throws"][n].var(), n * np.var([1, 2, 3, 4, 5, 6]), rtol=0.03)
        chance, distance = chapter["probabilities"][f"{n} dice"], chapter["distances"]
        assert np.isclose(chance.sum(), 1, atol=0.01)
        assert np.isclose((chance * distance**2).sum(), n * 35 / 12, rtol=0.02)
    for d, (variance, deviation, divided) in zip(chapter["widths"], chapter["spread"], strict=True):
        assert np.allclose([variance / d, deviation / d**0.5, divided], 1, rtol=0.05)


def test_softmax_gradients_vanish_for_large_scores(chapter: Chapter) -> None:
    assert "weights: all 10 published figures agree" in chapter.printed
    softmaxes = {factor: softmax(factor * chapter["scores"]) for factor in (1, 8, 64)}
    published = {
        "1": [0.1925, 0.1426, 0.2351, 0.1426, 0.2872],
        "8": [0.0326, 0.0030, 0.1615, 0.0030, 0.8000],
    }
    check_figures(published, 4, **{"1": softmaxes[1], "8": softmaxes[8]})
    for factor, w in softmaxes.items():
        assert np.allclose(chapter["weights"][factor], w)
        assert np.allclose(
            chapter["changes"][factor], np.diag(np.diag(w) - np.outer(w, w)), atol=1e-6
        )
    assert set(np.round(chapter["changes"][1], 1)) == {0.1, 0.2}
    assert np.allclose(chapter["changes"][8][[1, 3]], 0.0029, atol=0.0001)
    assert chapter["changes"][64].max() < 0.00005


def test_largest_weight_depends_on_d_unless_divided_by_sqrt_d(chapter: Chapter) -> None:
    undivided, by_sqrt_d, by_d, by_d_squared = np.transpose(chapter["largest_weights"])
    assert undivided[-1] > 0.85
    assert 0.25 < by_sqrt_d.min() < by_sqrt_d.max() < 0.35
    assert by_d[-1] < 0.15
    assert np.isclose(by_d_squared[-1], 0.1, atol=0.001)


def test_deviation_of_queries_before_training() -> None:
    """The deviation of GPT-2's Q: rows of variance 1 times a matrix with deviation 0.02."""
    rng = np.random.default_rng(0)
    drawn = rng.standard_normal((1000, 768)) @ rng.normal(0, 0.02, (768, 64))
    text = file_of(CHAPTER).read_text(encoding="utf-8")
    assert f"√768 · 0.02 = {drawn.std():.2f}" in text


def test_exercise_1(answer: str) -> None:
    chapter = run(CHAPTER, {"dice = (2, 8, 32)": "dice = (1, 10, 100)"}, until="# ## 5.2")
    one, ten, hundred = (math.sqrt(n * np.var([1, 2, 3, 4, 5, 6])) for n in (1, 10, 100))
    assert f"one die has a spread of {one:.2f}, and a hundred dice have {hundred:.2f}" in answer
    assert f"have a spread of {ten:.2f}" in answer
    assert all(f"{exact:.2f}" in chapter.printed for exact in (one, ten, hundred))


def test_exercise_2(answer: str) -> None:
    by_d = run(CHAPTER, {"products / math.sqrt(d)": "products / d"}, until="# ## 5.3")
    assert f"{by_d['spread'][-1][2]:.2f}: dividing" in answer


def test_exercise_3(answer: str) -> None:
    equal = run(
        CHAPTER,
        FASTER[CHAPTER] | {"0.1, -0.2, 0.3, -0.2, 0.5])\nf": "0.7, 0.7, 0.7, 0.7, 0.7])\nf"},
    )
    assert all(np.allclose(weights, 1 / 5) for weights in equal["weights"].values())
    assert f"{equal['weights'][64][0]:.4f}" in answer


def test_exercise_4(answer: str) -> None:
    negated = run(CHAPTER, FASTER[CHAPTER] | {"factors = (1, 8, 64)": "factors = (1, 8, -1)"})
    powers = [math.exp(-score) for score in (0.1, -0.2, 0.3, -0.2, 0.5)]
    assert np.allclose(negated["weights"][-1], np.array(powers) / sum(powers))
    assert negated["weights"][-1].argmax() in (1, 3)
    assert f"{negated['weights'][-1][1]:.4f} each" in answer


def test_exercise_5(answer: str) -> None:
    other = {
        "scores = np.array([0.1, -0.2, 0.3, -0.2, 0.5])": (
            "scores = np.array([0.1, 1.8, 0.6, 0.1, 0.1])"
        ),
        "factors = (1, 8, 64)": "factors = (1, 1 / 2)",
    }
    chapter = run(CHAPTER, FASTER[CHAPTER] | other)
    without, divided = answer.split("Divided by 2")
    for factor, answer_part in {1: without, 0.5: divided}.items():
        assert ", ".join(f"{weight:.3f}" for weight in chapter["weights"][factor]) in answer_part
    assert chapter["weights"][1].round(1).tolist() == [0.1, 0.5, 0.2, 0.1, 0.1]
