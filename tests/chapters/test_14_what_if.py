"""Chapter 14, what if: its claims hold."""

import math

import numpy as np
import pytest
from book import CHANGES, Chapter, run, run_unchanged

import attnlab

CHAPTER = "14"
TEXT = 'TEXT = "The dog chased the ball, but it"'
OTHER = 'OTHER = "The cat chased the ball, but it"'
SOUNDS = 'SOUNDS = " barked", " meowed"'


def line(chapter: Chapter, beginning: str) -> str:
    (match,) = (row for row in chapter.printed.splitlines() if row.startswith(beginning))
    return " ".join(match.split())


def test_next_tokens_after_each_edit(chapter: Chapter) -> None:
    symbols = chapter["symbols"]
    assert (symbols[chapter["attended"]], symbols[chapter["other_key"]]) == ("Ġdog", "Ġball")
    for edit in ("context 0", "context of other texts"):
        after = line(chapter, f"{edit}  ")
        assert "Ġrolled 0.9" in after
        assert "Ġbarked" not in after
    assert line(chapter, "all weight on").startswith("all weight on Ġball Ġhissed 0.83")
    assert line(chapter, "no edit  ").startswith("no edit Ġrolled 0.54 Ġbarked 0.43")


def test_mean_ablation_differs_from_zero_ablation(chapter: Chapter) -> None:
    assert "Ġpurred 0.99" in line(chapter, "all heads  ")
    assert "Ġpurred" not in line(chapter, "zero  ")
    assert "Ġpurred 0.99" in line(chapter, "mean  ")
    pocket, head = chapter["pocket"], chapter["SINK_HEAD"]
    for text in (*chapter["SIMILAR"], chapter["CREATURE"]):
        context = pocket.trace(text).head(*head).context[-1]
        assert context == pytest.approx(chapter["similar_mean"], abs=0.001)


def test_logit_lens_at_each_point(chapter: Chapter) -> None:
    lens = chapter["lens"]
    assert [tokens[-1].symbol for tokens in lens.tokens][:3] == ["Ġit", "Ġit", "Ġit"]
    assert lens.probabilities[2, -1] < 0.1
    assert [tokens[-1].symbol for tokens in lens.tokens][3:] == ["Ġrolled", "Ġrolled"]
    assert chapter["probabilities"]["Ġbarked"] == pytest.approx([0, 0, 0, 0.03, 0.43], abs=0.01)
    assert chapter["sound_lens"].ranks[:, chapter["position"]].min() > 100
    W_U, W_E = chapter["trace"].W_U, chapter["pocket"].parameters["W_E"]
    assert np.array_equal(W_U, W_E.T)
    assert chapter["pocket"].config.vocab_size == 979


def test_direct_attribution_and_ablation_effects(chapter: Chapter) -> None:
    attribution, effects = chapter["attribution"], chapter["effects"]
    assert attribution.heads[1, :3] == pytest.approx([3.12, 1.26, -3.88], abs=0.005)
    assert f"{math.exp(attribution.total):.2f}" == f"{0.5420 / 0.4294:.2f}" == "1.26"
    for text in chapter["OTHERS"]:
        mlp = attnlab.attribution(chapter["pocket"].trace(text), (" rolled", " barked")).mlps[0]
        assert mlp == pytest.approx(2.22, abs=0.15)
    for head in (0, 1, 2):
        direct, ablation = effects[f"layer 1 head {head}"]
        assert ablation / direct > 1.1
    assert effects["layer 0 MLP"] == pytest.approx([2.22, -6.85], abs=0.01)
    without = chapter["trace"].edited({"blocks.0.mlp.output": 0})
    assert max(without.head(1, h).weights[-1, [1, 4]].max() for h in range(3)) < 0.3


def test_why_a_head_looks_where_it_looks(chapter: Chapter) -> None:
    pairs, score, why = chapter["pairs"], chapter["score"], chapter["why"]
    assert pairs.shape == (5, 4)
    assert (pairs[3, 3], score) == pytest.approx((7.16, 7.55), abs=0.005)
    assert pairs.sum() == pytest.approx(score, abs=1e-4) == why.total
    assert why.sentence.endswith("because of what MLP 0 wrote at both: 7.16 of 7.55.")
    mlp, previous = chapter["left"].values()
    assert mlp[1:] == pytest.approx((0.05, 0.99, 0.99), abs=0.005)
    assert (previous.score, previous.held) == pytest.approx((7.67, 6.57), abs=0.005)
    assert previous.ablated == pytest.approx(-0.11, abs=0.005)
    jobs = attnlab.jobs(chapter["pocket"].trace(chapter["RECITAL"]))
    assert jobs.best("previous") == (0, 1)


def test_activation_and_attribution_patching(chapter: Chapter) -> None:
    heads, stream, estimate = chapter["heads"], chapter["stream"].restored, chapter["estimate"]
    assert heads.restored[1, 2] == pytest.approx(0.99, abs=0.005)
    assert np.sort(heads.restored.ravel())[-2] < 0.05
    assert stream[0, 1] == pytest.approx(1, abs=0.005)
    assert stream[1, -1] == pytest.approx(1)
    assert estimate.restored[1, 2] == pytest.approx(0.82, abs=0.005)
    for ablation, restored in zip(chapter["ablations"].values(), (0.45, 0.43), strict=True):
        assert ablation.restored[1, 2] == pytest.approx(restored, abs=0.005)
        assert np.sort(abs(ablation.restored).ravel())[-2] < 0.105


def test_exercise_1(answer: str) -> None:
    other, sounds = OTHER.replace("cat", "dog").replace("ball", "kite"), '" rolled", " flew"'
    chapter = run(CHAPTER, {OTHER: other, SOUNDS: f"SOUNDS = {sounds}"})
    heads, stream = chapter["heads"].restored, chapter["stream"].restored
    assert (
        f"Head 0 of layer 1 restores {heads[1, 0]:.2f}, head 1 restores {heads[1, 1]:.2f}" in answer
    )
    assert f"at `Ġkite` ({stream[0, 4]:.2f} restored)" in answer
    assert stream[1, -1] == pytest.approx(1)


def test_exercise_2(answer: str) -> None:
    text = "The ball was chased by the dog, but it"
    chapter = run(
        CHAPTER, {TEXT: f'TEXT = "{text}"', OTHER: f'OTHER = "{text.replace("dog", "cat")}"'}
    )
    heads, stream = chapter["heads"].restored, chapter["stream"].restored
    assert chapter["corrupted"].tokens.find("cat") == 6
    assert f"{stream[0, 6]:.2f} at `Ġcat`, now the seventh" in answer
    assert f"{stream[1, -1]:.2f} at `Ġit`" in answer
    assert f"alone restores {heads[1, 2]:.2f}: what matters" in answer


def test_exercise_3(answer: str) -> None:
    texts = run_unchanged(CHAPTER)["MEANS"][1:]
    chapter = run(CHAPTER, {f'    "{text}",\n': "" for text in texts})
    assert chapter["MEANS"] == ["The cat chased the kite, but it"]
    after = line(chapter, "context of other texts")
    first, second = after.removeprefix("context of other texts ").split()[:4:2]
    chances = after.split()[5:8:2]
    assert f"`{first}` with {chances[0]} and `{second}` with {chances[1]}" in answer


def test_exercise_4(answer: str) -> None:
    chapter = run(CHAPTER, CHANGES[CHAPTER]["a creature"])
    heads, estimate = chapter["heads"].restored[1], chapter["estimate"].restored[1]
    assert f"head 3 of layer 1 restores {heads[3]:.2f}, head 2 restores {heads[2]:.2f}" in answer
    adjective, noun = chapter["stream"].restored[0, [1, 3]]
    assert f"most of the mood, {adjective:.2f}, is" in answer
    assert f"but {noun:.2f} is already at the noun" in answer
    assert f"says {estimate[3]:.2f} and {estimate[2]:.2f}" in answer
