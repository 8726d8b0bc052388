"""Chapter 13, softmax that saturates: its claims hold."""

import numpy as np
import pytest
from book import Chapter, run, run_unchanged

CHAPTER = "13"


@pytest.fixture(scope="module")
def chapter() -> Chapter:
    """Without what takes longest, learning."""
    return run(CHAPTER, {}, until="# ## 13.6")


KEYS = '{"key 0": (16, 0), "key 1": (8, -1), "key 2": (0, 0)}'


def test_gradient_through_softmax(chapter: Chapter) -> None:
    e = np.e
    w = np.array([e**2, e, 1]) / (e**2 + e + 1)
    assert np.allclose(chapter["weights"]["divided"], w)
    assert np.allclose(
        chapter["d_scores"]["divided"], [w[0] * w[1], w[1] * (w[1] - 1), w[2] * w[1]]
    )
    for witnesses in chapter["gradients"].values():
        assert len(witnesses) == 4
        for d_scores in witnesses.values():
            assert np.allclose(d_scores, witnesses["the formula of 13.1"], atol=1e-9)
            assert np.isclose(d_scores.sum(), 0)
    assert np.allclose(chapter["jacobians"].sum(axis=0), 0)
    lengths = {way: np.linalg.norm(gradient) for way, gradient in chapter["d_scores"].items()}
    assert lengths["divided"] > 500 * lengths["not divided"]
    assert np.abs(chapter["d_scores"]["not divided"]).max() < 0.00035
    assert np.abs(chapter["jacobians"][:, 3:]).max() < 0.001  # blank


def test_two_keys(chapter: Chapter) -> None:
    at = dict(zip(chapter["shown"], chapter["shown_weights"], strict=True))
    for gap, slope in {0: 0.25, 1: 0.20, 4: 0.02, 8: 0.0003}.items():
        assert np.isclose(at[gap], 1 / (1 + np.exp(-gap)))
        assert np.isclose(at[gap] * (1 - at[gap]), slope, rtol=0.15)
    gaps, of_first = chapter["gaps"], chapter["first_weights"]
    measured = np.gradient(of_first, gaps)[1:-1]
    assert np.allclose(measured, (of_first * (1 - of_first))[1:-1], atol=0.002)


def test_random_queries_and_keys(chapter: Chapter) -> None:
    assert chapter["widths"] == (4, 16, 64, 256, 1024)
    divided, without = (np.array(chapter["medians"][way]) for way in (True, False))
    assert (divided.max(axis=0) < 1.3 * divided.min(axis=0)).all()
    assert without[-1, 0] > 0.9
    assert without[-1, 1:].max() < 0.01 * divided[-1, 1:].min()
    assert without[1, 2] > divided[1, 2]  # d = 16
    medians, means, _, vanished = np.array(chapter["lines"]).T
    assert means[-1] > 100 * medians[-1]
    assert means[-1] > means[0]
    assert vanished[-1] > 0.5 > 0.02 > vanished[0]


def test_d_Q_without_the_division(chapter: Chapter) -> None:
    """The chain rule through Q · √d equals a finite difference."""
    rng = np.random.default_rng(3)
    Q, K, d_context = (rng.standard_normal((n, 5)) for n in (1, 5, 1))
    for divided in (True, False):
        attend = chapter["attend"]
        d_Q, d_K = chapter["backward"](attend(Q, K, divided), d_context, divided)
        for x, gradient, other in ((Q, d_Q, K), (K, d_K, Q)):
            step = np.zeros_like(x)
            step[0, 2] = 1e-6
            pairs = [(x + s * step, other) for s in (1, -1)]
            losses = [
                float(
                    (attend(*(pair if x is Q else pair[::-1]), divided).context * d_context).sum()
                )
                for pair in pairs
            ]
            assert np.isclose((losses[0] - losses[1]) / 2e-6, gradient[0, 2], atol=1e-7)


@pytest.mark.slow
def test_effect_on_learning() -> None:
    chapter = run_unchanged(CHAPTER)
    shares = chapter["fractions"]
    (plain, plain_without), (adam, adam_without) = ([max(row) for row in shares[a]] for a in (0, 1))
    assert min(plain, adam) > 0.95
    assert plain_without < 0.5
    assert plain_without < adam_without < 0.75
    # Before the first step of GPT-2.
    (_, divided), (_, without) = chapter["at_start"]
    assert np.isclose(without, 0.5, atol=0.1)
    assert 1 / 16 < divided < 2 / 16


def test_exercise_1(answer: str) -> None:
    keys = '{"key 0": (16, -1), "key 1": (8, -1), "key 2": (0, -1)}'
    d_scores = run(CHAPTER, {KEYS: keys}, until="# ## 13.2")["d_scores"]
    assert "All are 0" in answer
    assert np.allclose([*d_scores.values()], 0, atol=1e-15)


def test_exercise_2(chapter: Chapter, answer: str) -> None:
    keys = '{"key 0": (116, 0), "key 1": (108, -1), "key 2": (100, 0)}'
    moved, before = run(CHAPTER, {KEYS: keys}, until="# ## 13.2"), chapter
    for way, d_scores in moved["d_scores"].items():
        assert np.allclose(moved["weights"][way], before["weights"][way])
        assert f"{d_scores[1]:.4f}" in answer


def test_exercise_3(answer: str) -> None:
    keys = '{"key 0": (16, -1), "key 1": (8, 0), "key 2": (0, 0)}'
    chapter = run(CHAPTER, {KEYS: keys}, until="# ## 13.2")
    for d_scores in chapter["d_scores"].values():
        assert f"{d_scores[0]:.4f}" in answer
    assert f"weight {chapter['weights']['not divided'][0]:.4f} is" in answer


@pytest.mark.slow
def test_exercise_4(answer: str) -> None:
    chapter = run(CHAPTER, {"d = 64 ": "d = 4 ", "queries, seed = 500,": "queries, seed = 40,"})
    assert f"Key 1's d_score is {chapter['d_scores']['divided'][1]:.4f}," in answer
    with_it, without = (max(row) for row in chapter["fractions"][False])
    assert f"{without:.2f} of the queries" in answer
    assert f"{with_it:.2f} find it with the division" in answer
    assert without > with_it
