"""Chapter 16, one head over ten thousand sentences: its claims hold."""

import re
from collections import defaultdict

import numpy as np
import pytest
from book import Chapter, run

import attnlab
from attnlab.analysis.jobs import induction
from attnlab.checkpoints.hub import BUILT_IN
from attnlab.equations import AnyArray
from attnlab.forward import ForwardPass
from attnlab.forward.gradients import cross_entropy
from attnlab.pocket.held_out import samples

pytestmark = pytest.mark.slow

CHAPTER = "16"
ANECDOTE = 'ANECDOTE = "Let’s count: three, four, five."'
PREVIOUS, INDUCTION, RESTING, IDLE = (0, 1), (1, 2), (0, 2), (1, 1)


def shares(text: str, job: str) -> AnyArray:
    jobs = attnlab.jobs(attnlab.GPT2.from_pretrained("pocket").trace(text))
    return jobs.attention[jobs.jobs.index(job)]


def test_single_example() -> None:
    weights = shares("Let’s count: three, four, five.", "induction")
    assert round(float(weights[PREVIOUS]), 2) == 0.97
    assert round(float(weights[INDUCTION]), 2) == 0.02
    assert round(float(np.sort(weights, axis=None)[-2]), 2) == 0.15


def test_many_sentences(chapter: Chapter) -> None:
    assert (chapter["TEXTS"], chapter["N"]) == (1600, 1373)
    first, second = np.array(chapter["rows"])[:, :2], np.array(chapter["rows"])[:, 2:]
    assert [round(mean, 2) for mean in (first[-1, 0], second[-1, 0])] == [0.02, 0.67]
    # Four times as many sentences halve the error, up to sampling error.
    for errors in (first[:, 1], second[:, 1]):
        assert np.allclose(errors[:-1] / errors[1:], 2, atol=0.4)
    assert second[-1, 1] == pytest.approx(0.01, abs=0.002)
    # The curve's last point is the table's number.
    assert chapter["running_means"][-1].tolist() == [second[-1, 0], second[-1, 1]]
    assert len(chapter["parts"]) == 16
    assert (chapter["deviations"] <= 2).sum() >= 13


def test_errors_are_computed_over_texts(chapter: Chapter) -> None:
    assert chapter["by_tokens"] / chapter["by_texts"] == pytest.approx(1 / 3, abs=0.02)
    assert (chapter["by_texts"] / chapter["by_tokens"]) ** 2 == pytest.approx(9, abs=0.5)
    assert chapter["bootstrap_error"] == pytest.approx(chapter["by_texts"], rel=0.1)


def test_the_atlas_equals_the_chapters_calculation(chapter: Chapter) -> None:
    assert chapter["by_hand"] == pytest.approx(chapter["by_atlas"], rel=1e-5)
    assert round(float(chapter["measured"].mean[1, 3]), 2) == 0.66
    assert chapter["measured"].texts[INDUCTION] == chapter["N"]


def test_ten_thousand_sentences(chapter: Chapter) -> None:
    """By texts of equal length, side by side."""
    pocket = chapter["pocket"]
    by_length = defaultdict(list)
    for sample in samples()[:10_000]:
        tokens = pocket.tokenizer.tokens(sample.text)
        by_length[len(tokens)].append(tokens)
    sums = []  # of each text with targets: their number, and the weights there of both heads
    for texts in by_length.values():
        forward = ForwardPass(np.stack([text.ids for text in texts]), pocket.parameters)
        targets = np.stack([induction(text) for text in texts])
        weights = [forward.blocks[n].attention.weights[:, h] for n, h in (PREVIOUS, INDUCTION)]
        sums += ([targets.any(-1).sum(-1), *((w * targets).sum((1, 2)) for w in weights)],)
    n, *by_head = np.concatenate(sums, axis=1)
    shown = [chapter["mean_and_error"](s[n > 0], n[n > 0]) for s in by_head]
    assert ["{:.3f} ± {:.3f}".format(*one) for one in shown] == ["0.024 ± 0.001", "0.665 ± 0.005"]
    fewer = chapter["measured"].standard_errors[INDUCTION]
    assert fewer / shown[1][1] == pytest.approx(2.5, abs=0.1)


def test_the_texts_behind_a_mean(chapter: Chapter) -> None:
    found, pocket = chapter["measured"], chapter["pocket"]
    most, least = found.most(*PREVIOUS), found.least(*PREVIOUS)
    assert chapter["ANECDOTE"] in [passage.content for passage in most]
    assert all(passage.content.startswith("Let’s count: ") for passage in most)
    assert all(passage.content.startswith("Say: ") for passage in least)
    weights = pocket.trace(most[0].ids).head(*PREVIOUS).weights
    assert [int(row.argmax()) for row in weights[2:]] == list(range(1, len(weights) - 1))
    # Samples at the ends are small: one position, the second Ġthe.
    for passage in found.most(*INDUCTION):
        trace = pocket.trace(passage.ids)
        (row,) = np.flatnonzero(induction(trace.tokens).any(axis=-1))
        assert trace.tokens.symbols[row] == "Ġthe"
    assert round(found.most(*INDUCTION)[0].value, 2) == 0.97
    for passage in found.least(*INDUCTION):
        tokens = pocket.trace(passage.ids).tokens
        twice = {tokens.symbols[i] for i in np.flatnonzero(induction(tokens).any(axis=-1))}
        assert "Ġa" in twice


def of_kinds(chapter: Chapter, which: int) -> dict[str, tuple[float, float]]:
    kinds = np.array(chapter["kinds"])
    return {
        kind: chapter["mean_and_error"](
            chapter["s"][kinds == kind, which], chapter["n"][kinds == kind]
        )
        for kind in set(chapter["kinds"])
    }


def test_means_hide_two_kinds_of_texts(chapter: Chapter) -> None:
    # Two modes, with almost nothing between them.
    said_twice, others = chapter["recital_counts"], chapter["other_counts"]
    assert said_twice[16:].sum() == said_twice.sum() == 395
    assert others[:12].sum() / others.sum() > 0.9
    assert chapter["near_mean"].sum() / chapter["N"] < 0.03
    kinds = of_kinds(chapter, 1)
    card = (BUILT_IN["pocket"].directory / "MODEL_CARD.md").read_text(encoding="utf-8")
    row = re.search(r"^1 +2((?: +\d\.\d\d)+)$", card, re.MULTILINE)
    assert row
    assert row[1].split()[2] == "0.92"
    mean, error = kinds.pop("recital")
    assert f"{mean:.3f} ± {error:.3f}" == "0.914 ± 0.001"
    assert f"{error * (395 / 40) ** 0.5:.3f}" == "0.003"
    assert chapter["kinds"].count("agreement") == 25
    others = sorted(round(mean, 2) for mean, _ in kinds.values())
    assert (others[0], others[-2], others[-1]) == (0.03, 0.39, 0.68)
    *rest, most = sorted(round(mean, 2) for mean, _ in of_kinds(chapter, 0).values())
    assert (most, max(rest)) == (0.94, 0.15)


def test_two_atlases(chapter: Chapter) -> None:
    atlas, z_scores = chapter["atlas"], chapter["z_scores"]
    same, learned = (
        np.abs(z_scores(chapter[name], atlas)) for name in ("same_model", "untrained_atlas")
    )
    assert same.size == 32
    assert (same > 4).sum() == 0
    assert (learned > 4).sum() >= 27
    assert round(144 * 4 / 20) == 29
    # An untrained head attends uniformly.
    places, total = 0, 0.0
    for text in chapter["other_texts"]:
        rows = np.flatnonzero(induction(chapter["pocket"].tokenizer.tokens(text)).any(axis=-1))
        places, total = places + len(rows), total + float((1 / (rows + 1)).sum())
    assert round(total / places, 3) == 0.047
    assert chapter["untrained_atlas"]["induction"].mean == pytest.approx(total / places, abs=0.0005)
    assert round(float(chapter["measured"].mean[PREVIOUS]), 3) == 0.024


def test_attention_is_not_importance(chapter: Chapter) -> None:
    first, needed = chapter["atlas"]["first"].mean, chapter["rise"]
    order = [divmod(int(index), 4) for index in np.argsort(-first, axis=None)]
    assert order[:2] == [RESTING, IDLE]
    assert [round(float(first[head]), 2) for head in order[:2]] == [0.37, 0.28]
    assert divmod(int(needed.mean.argmax()), 4) == RESTING
    assert divmod(int(needed.mean.argmin()), 4) == IDLE
    assert f"{needed.mean[1, 3]:.2f} ± {needed.standard_errors[1, 3]:.2f}" == "0.14 ± 0.03"
    for passage in needed.least(1, 3):
        trace = chapter["pocket"].trace(passage.ids)
        without = trace.edited({"blocks.1.attention.heads.3.context": 0})
        losses = [cross_entropy(t.logits[:-1], t.ids[1:])[0] for t in (trace, without)]
        assert losses[1] - losses[0] == pytest.approx(passage.value, abs=1e-5)
        assert passage.value < 0


def loss_of(chapter: Chapter) -> str:
    return "{:.4f} ± {:.4f}".format(*chapter["by_atlas"])


def test_exercise_1(chapter: Chapter, answer: str) -> None:
    atlas, pocket = chapter["atlas"], chapter["pocket"]
    first = shares("A fluffy blue creature", "first")[RESTING]
    assert f"{first:.2f} in the anecdote, {atlas['first'].mean[RESTING]:.2f} in the mean" in answer
    least = atlas["first"].least(*RESTING)
    assert all("said, “" in passage.content for passage in least)
    assert f"quotes, {least[0].value:.3f}" in answer
    trace = pocket.trace("Say: lamp two happy. Again: lamp two happy.")
    weights, symbols = trace.head(*RESTING).weights, trace.tokens.symbols
    again = symbols.index("ĠAgain")
    looked = [symbols[int(row.argmax())] for row in weights]
    assert looked[2:again] == ["Say"] * (again - 2)
    assert looked[again + 1 :] == ["ĠAgain"] * (len(symbols) - again - 1)
    assert f"full stop gives it {weights[-1, again]:.2f}" in answer


def test_exercise_2(chapter: Chapter, answer: str) -> None:
    fewer = run(CHAPTER, {"TEXTS, SEED = 1_600,": "TEXTS, SEED = 400,"}, until="# ## 16.5")
    assert f"{loss_of(fewer)} instead of {loss_of(chapter)}" in answer
    (mean, error), (before, error_before) = fewer["by_atlas"], chapter["by_atlas"]
    assert error / error_before == pytest.approx(2, abs=0.1)
    assert abs(mean - before) < error_before


def test_exercise_3(answer: str) -> None:
    chapter = run(CHAPTER, {"KIND = None ": 'KIND = "recital" '}, until="# ## 16.4")
    assert answer.startswith(f"The error is {chapter['by_texts']:.4f}, with")
    assert f"too large, {chapter['by_tokens']:.4f}." in answer
    stops = np.array([look[1, -1] for look in chapter["job_weights"]])
    others = np.concatenate([look[1, :-1] for look in chapter["job_weights"]])
    assert f"gives {stops.mean():.2f} to `ĠAgain`" in answer
    assert f"other tokens of the recital have a mean of {others.mean():.2f}." in answer


def test_exercise_4(chapter: Chapter, answer: str) -> None:
    """From the sums of each sentence; `changes.toml` has the change that the exercise asks for."""
    s, n = np.tile(chapter["s"][:, 1], 2), np.tile(chapter["n"], 2)
    (mean, error), (before, error_before) = chapter["mean_and_error"](s, n), chapter["by_atlas"]
    assert mean == pytest.approx(before)
    assert f"{mean:.4f}, and the error falls from {error_before:.4f} to {error:.4f}" in answer
    assert error_before / error == pytest.approx(2**0.5, abs=0.001)
