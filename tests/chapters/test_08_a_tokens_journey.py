"""Chapter 8, a token's journey: its claims hold."""

import math

import numpy as np
import pytest
from book import Chapter, run, run_unchanged

CHAPTER = "08"
LATER = 'LATER = " rolled."'


def test_steps_by_hand_equal_the_trace(chapter: Chapter) -> None:
    trace, last = chapter["trace"], chapter["last"]
    assert np.array_equal(chapter["one_hot"] @ chapter["W_E"], trace.token_embedding[last])
    assert np.allclose(chapter["normalised"].mean(), 0, atol=1e-7)
    assert np.allclose(chapter["normalised"].var(), 1, atol=1e-3)
    assert chapter["X_row"].var() < 0.6  # gain and bias follow "mean 0, variance 1"
    assert np.allclose(chapter["X_row"], trace.blocks[0].attention.X[last], atol=1e-6)
    assert chapter["hidden"].size == 4 * chapter["D"]
    assert np.allclose(chapter["output"], trace.blocks[0].mlp.output[last], atol=1e-5)
    assert np.allclose(chapter["stream"], trace.blocks[-1].output, atol=1e-4)
    assert chapter["product"] == pytest.approx(float(trace.next_logits.max()), abs=1e-4)
    assert np.array_equal(trace.W_U, chapter["W_E"].T)
    lines = str(chapter["lens"].top(1, last).table()).splitlines()
    assert [line.split()[:2] for line in lines[1:]] == [
        ["embedding", "Ġit"],
        ["blocks.0.mid", "Ġit"],
        ["blocks.0.output", "Ġit"],
        ["blocks.1.mid", "Ġrolled"],
        ["blocks.1.output", "Ġrolled"],
    ]


def test_temperature_keeps_the_order(chapter: Chapter) -> None:
    half, one, two = chapter["probabilities"]
    assert np.allclose(
        one, one[chapter["best"][0]] * np.exp(chapter["logits"] - chapter["logits"].max())
    )
    assert half.max() > one.max() > two.max()
    assert half.argmax() == one.argmax() == two.argmax()
    for p, drawn in zip(chapter["probabilities"], chapter["draw_counts"], strict=True):
        spread = math.sqrt(1000 * p.max() * (1 - p.max()))
        assert abs(drawn[p.argmax()] - 1000 * p.max()) < 4 * spread


def test_loss_of_each_token_and_coverage_of_windows(chapter: Chapter) -> None:
    assert chapter["story"].tokens.texts[-2:] == (" rolled", ".")
    assert chapter["losses"].mean() == pytest.approx(chapter["story"].loss, abs=1e-5)
    assert chapter["losses"][0] > 2  # the animal can't be predicted
    assert list(chapter["counts"]) == [0, 1, 1, 2, 2, 2, 2, 1, 1, 0]
    rolled, barked = chapter["best_probabilities"].T
    assert rolled[:3].max() < 0.03 < 0.3 < rolled[3]  # where the ball appears
    assert barked[:6].max() < 0.05 < 0.15 < barked[6] < barked[7]  # and the dog
    assert chapter["symbols"][-4] == "Ġball"


def test_exercise_1(answer: str) -> None:
    cold = run(CHAPTER, {"[0.5, 1.0, 2.0]": "[0.1, 1.0, 2.0]"})
    first, second = sorted(cold["logits"])[:-3:-1]
    assert f"{first:.4f} {second:.4f}" == "12.3077 12.0749"
    assert f"e^0.2328 = {math.exp(12.3077 - 12.0749):.2f} at temperature 1" in answer
    assert f"e^2.328 = {math.exp(10 * (12.3077 - 12.0749)):.2f} at temperature 0.1:" in answer
    p = cold["probabilities"]
    ratio = p[0].max() / np.sort(p[0])[-2]
    assert ratio == pytest.approx(math.exp(10 * (first - second)))
    assert f"from {p[1].max():.3f} to {p[0].max():.3f}." in answer


def test_exercise_2(answer: str) -> None:
    dogs = run(CHAPTER, {"The dog chased the ball, but it": " dog dog dog"})["trace"]
    assert dogs.tokens.texts == (" dog",) * 3
    assert (dogs.token_embedding == dogs.token_embedding[0]).all()
    apart = np.linalg.norm(dogs.embedding[1] - dogs.embedding[0])
    assert apart > 0.1
    assert f" {apart:.2f} apart" in answer
    assert chapter_ids("dog") != chapter_ids(" dog")


def chapter_ids(text: str) -> list[int]:
    ids: list[int] = run_unchanged(CHAPTER)["model"].tokenizer.encode(text)
    return ids


def test_exercise_3(chapter: Chapter, answer: str) -> None:
    unchanged = chapter
    meowed = run(CHAPTER, {LATER: 'LATER = " meowed."'})
    changed = ~np.isclose(
        unchanged["target_probabilities"], meowed["target_probabilities"], atol=1e-6
    )
    assert list(np.flatnonzero(changed)) == [7]
    full_stop = unchanged["target_probabilities"][8], meowed["target_probabilities"][8]
    assert min(full_stop) > 0.999
    probability, loss = unchanged["target_probabilities"][7], unchanged["losses"][7]
    assert f"probability of {probability:.3f}, a loss of {loss:.3f};" in answer
    probability, loss = meowed["target_probabilities"][7], meowed["losses"][7]
    assert f"has {probability:.4f}, a loss of {loss:.2f}," in answer


def test_exercise_4(answer: str) -> None:
    one, four = (
        run(CHAPTER, {"CONTEXT, STRIDE = 4, 2": f"CONTEXT, STRIDE = 4, {n}"}) for n in (1, 4)
    )
    assert one["N"] == 10
    assert four["counts"].max() == 1
    assert four["counts"][-1] == 0
    assert f"stride 4 there are {len(four['starts'])} windows, and each token" in answer
    assert f"stride 1 there are {len(one['starts'])} windows," in answer
    assert f"are targets {one['counts'].max()} times." in answer
