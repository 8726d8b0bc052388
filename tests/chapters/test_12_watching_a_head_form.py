"""Chapter 12, watching a head form: its claims hold."""

import math
import re

import numpy as np
import pytest
from book import Chapter, run

from attnlab import softmax
from attnlab.forward import ForwardPass

pytestmark = pytest.mark.slow

CHAPTER = "12"

STEPS = "STEPS, EVERY = 1200, 50"


def test_watching_a_head_form(chapter: Chapter) -> None:
    (steps, _, one, one_best, _), (_, _, two, two_best, previous) = (
        chapter["one_layer"],
        chapter["two_layers"],
    )
    assert steps[-1] == 1200

    # equal at first, then the loss with two layers falls within about two hundred steps
    formed = steps[two_best > 0.25][0]
    before, after = steps < formed - 100, steps > formed + 200
    assert 400 < formed < 1000
    assert np.abs(one - two)[before].max() < 0.4
    assert min(one.min(), two[before].min()) > 3
    assert two[after].max() < 2
    assert two[-1] < one[-1] - 1.5
    assert steps[previous > 0.75][0] < formed - 200
    assert two_best[-1] > 0.75
    assert one_best.max() < 0.25

    # the position, and what it depends on
    assert chapter["offset"] == 2
    back = chapter["weights_back"]
    assert sorted(row.argmax() for row in back) == [1, 3]
    assert back.max(axis=1).min() > 0.9
    weight_of = dict(zip(["nothing", *chapter["NEAR"]], chapter["rows"], strict=True))
    assert weight_of["nothing"][0] > 0.8
    assert weight_of["before the copy"][0] < 0.2
    assert weight_of["before the copy"][1] < 0.1 < weight_of["nothing"][1]
    for name in ("the copy", "1 after", "2 after"):
        assert weight_of[name][0] > 0.8
    in_layer_0, in_layer_1 = chapter["changes"]
    assert in_layer_0 == 0 < 0.1 < in_layer_1


def test_before_during_and_after_formation(chapter: Chapter) -> None:
    assert chapter["letters"] == list("qkzvmqkzvm")
    first, forming, last = np.split(chapter["stages"], 3)
    second_k, v = 1, 3
    assert first[second_k].max() < 0.25
    assert first[second_k, v] < forming[second_k].max()
    assert last[second_k].argmax() == v
    assert last[second_k, v] > 0.7
    assert last[0].max() < 0.8  # the second q matches nothing


def test_watched_quantities(chapter: Chapter) -> None:
    """Losses and weights, recomputed one by one."""
    forward, held_out = chapter["forward"], chapter["held_out"]
    probabilities = softmax(forward.logits)
    losses = [
        [-math.log(probabilities[i, t, held_out[i, t + 1]]) for t in range(19)] for i in range(64)
    ]
    halves = np.array(losses)[:, :9].mean(), np.array(losses)[:, 10:].mean()
    assert np.allclose(chapter["half_losses"](forward), halves, rtol=1e-4)
    weights = forward.blocks[1].attention.weights
    after = [
        [weights[:, h, t, (t - 10) + places].mean() for t in range(11, 18)]
        for h in range(2)
        for places in range(5)
    ]
    assert np.allclose(chapter["after_copy"].ravel(), np.mean(after, axis=1), rtol=1e-4)
    assert (held_out[:, :10] == held_out[:, 10:]).all()


def number_after(text: str, before: str) -> float:
    """The number that follows some words in a text.

    On other machines, the final numbers of a training differ in the second digit.
    """
    text = " ".join(text.split())
    assert text.count(before) == 1
    match = re.match(r"\d\.\d+", text.partition(before)[2])
    assert match
    return float(match[0])


def test_exercise_1(chapter: Chapter, answer: str) -> None:
    assert number_after(answer, "-ln 0.1 = ln 10 = ") == round(math.log(10), 2)
    assert np.isclose(
        number_after(answer, "The one-layer model ends at "),
        chapter["one_layer"][2][-1],
        atol=0.2,
    )


def test_exercise_2(chapter: Chapter, answer: str) -> None:
    for edited in (chapter["replace_letter"](-2), chapter["forward"]):
        assert np.isclose(
            number_after(answer, "as before: "), chapter["effect"](edited)[0], atol=0.15
        )


def test_exercise_3(chapter: Chapter, answer: str) -> None:
    """The inserted line doesn't change the training."""
    line = "qkzvmabqkzvmab"
    ids = np.array([[chapter["LETTERS"].index(letter) for letter in line]])
    forward = ForwardPass(ids, chapter["runs"][2].parameters)
    second_k = forward.blocks[1].attention.weights[0, chapter["best_head"], 8]
    assert second_k.argmax() == line.index("v")
    assert second_k.max() > number_after(answer, "as before, with more than ")


def test_exercise_4(answer: str) -> None:
    assert "rises far above 3.26" in answer
    # Two layers are enough; of two letters alone they have learned all there is after 300 steps.
    two_alone = {"for n_layer in (1, 2):\n    config": "for n_layer in (2,):\n    config"}
    table, fewer = "one_layer, two_layers = ", {"STEPS, EVERY = 1200": "STEPS, EVERY = 300"}
    short = run(CHAPTER, two_alone | fewer | {"SHORT = 0.7": "SHORT = 1.0"}, until=table)
    _, _, loss, after_copy, _ = np.transpose(short["history"][2])
    forward = ForwardPass(short["held_out"], short["runs"][2].parameters)
    assert short["mean_weight_at"](forward, 0, -1).min() > 0.9
    assert after_copy.max() < 0.25
    assert loss[-1] > 4
    none = run(CHAPTER, two_alone | {"SHORT = 0.7": "SHORT = 0.0"}, until=table)
    _, _, loss, *best = np.transpose(none["history"][2])
    assert np.max(best) < 0.25  # so no head has a quarter of its weight there
    assert np.isclose(
        number_after(answer, "the loss of the two-layer model stays near "), loss[-1], atol=0.2
    )
