"""Chapter 3, one head by hand: its claims hold."""

import numpy as np
import pytest
from book import (
    CHANGED,
    OF_FIGURES,
    Chapter,
    check_figures,
    run,
    run_unchanged,
)

from attnlab import figures, softmax

CHAPTER = "03"


def test_one_head_by_hand(chapter: Chapter) -> None:
    recorded = figures.load("cat_eats_fish")
    assert chapter["words"] == recorded["words"]
    steps = ("Q", "K", "V", "raw_scores", "scores", "weights", "context")
    check_figures(recorded, 4, **{name: chapter[name] for name in steps})
    check_figures(recorded, 4, **{name: getattr(chapter["head"], name) for name in steps})
    check_figures(recorded, 7, exp_of_scores=chapter["exp_of_scores"])
    check_figures(recorded, 3, exp_row_sums=chapter["exp_row_sums"])
    assert np.array_equal(chapter["shift_rows"](chapter["scores"]), chapter["scores"])
    assert np.allclose(chapter["weights"], 1 / 3, atol=0.02)
    assert np.allclose(softmax(chapter["example"]), [0.497, 0.301, 0.202], atol=0.0005)
    assert all(f"= {share}\n" in chapter.printed for share in (0.497, 0.301, 0.202))
    rounded = np.exp(np.round(chapter["scores"], 4))
    assert not figures.compare("", rounded, recorded["exp_of_scores"], 7).agrees
    assert 0.00001 < chapter["difference"] < 0.0001  # from the fifth decimal on
    assert chapter.printed.count("published figures agree") == 6


def test_weights_of_scores_that_overflow_exp() -> None:
    """The chapter's arithmetic equals the library's."""
    for factor in (1e5, -1e5):
        chapter = run(CHAPTER, {"W_V = np.array": f"W_Q = {factor} * W_Q\nW_V = np.array"})
        assert np.abs(chapter["scores"]).max() > 709
        assert np.allclose(chapter["weights"], chapter["head"].weights)


def test_the_arrows_add_up_to_the_context() -> None:
    for changes in (
        {},
        OF_FIGURES[CHAPTER]["the same word twice"],
        OF_FIGURES[CHAPTER]["many words"],
    ):
        chapter = run(CHAPTER, changes)
        assert np.allclose(sum(chapter["weighted_values"].values()), chapter["context"][0])


def test_heads_with_different_queries(chapter: Chapter) -> None:
    noun = np.array([0.9, -1.2, 0.9])  # 0.8 - 0.2 + 0.4 - 0.1, ...
    assert np.allclose(chapter["X"] @ chapter["noun"], noun[:, None])
    assert np.allclose(chapter["other_kind"].weights, softmax(-2 * np.outer(noun, noun)))
    assert np.allclose(chapter["same_kind"].weights, softmax(2 * np.outer(noun, noun)))
    assert chapter["other_kind"].weights[0, 1] > 0.9  # a noun at the verb
    assert chapter["other_kind"].weights[1, [0, 2]].sum() > 0.9
    assert chapter["same_kind"].weights[0, [0, 2]].sum() > 0.9
    assert chapter["same_kind"].weights[1, 1] > 0.9
    assert chapter["concat"].shape == (3, 6)


def test_rows_or_columns(chapter: Chapter) -> None:
    assert np.allclose(chapter["KQ"], chapter["scores"].T)
    assert np.allclose(softmax(chapter["KQ"].T).T.sum(axis=0), 1)
    assert chapter["linear_weight"].shape == (2, 4)
    assert np.allclose(chapter["X"] @ chapter["linear_weight"].T, chapter["Q"])


def test_exercise_1(answer: str) -> None:
    once = run_unchanged(CHAPTER)
    twice = run(CHAPTER, {"W_V = np.array": "W_Q = 2 * W_Q\nW_V = np.array"})
    assert np.allclose(twice["raw_scores"], 2 * once["raw_scores"])
    assert f"{CHANGED}  W_Q = [[0.5, 0.2], [0.1, 0.3], [0.4, 0.6], [0.2, 0.1]]" in twice.printed
    for chapter in (once, twice):
        assert f"{chapter['weights'].max():.4f}" in answer


def test_exercise_2(answer: str) -> None:
    chapter = run(CHAPTER, {"W_V = np.array": "W_Q = 0 * W_Q\nW_V = np.array"})
    assert np.allclose(chapter["weights"], 1 / 3, rtol=1e-15)
    assert np.allclose(chapter["context"], chapter["V"].mean(axis=0))
    for mean in chapter["context"][0]:
        assert f"{mean:.4f}" in answer


def test_exercise_3(chapter: Chapter, answer: str) -> None:
    once = chapter
    swapped = run(CHAPTER, {"W_Q = np.array": "words, X = words[::-1], X[::-1]\nW_Q = np.array"})
    assert swapped["words"] == ["鱼", "吃", "猫"]
    assert np.allclose(swapped["context"], once["context"][::-1])
    assert "猫 still gets {:.4f} and {:.4f}".format(*swapped["context"][-1]) in answer


def test_exercise_4(answer: str) -> None:
    root = {"K.T / K.shape[-1]": "K.T / math.sqrt(K.shape[-1])"}
    axis = {"attnlab.softmax(scores.T).T": "attnlab.softmax(scores)"}
    as_given, half, mended = (run_unchanged(CHAPTER), run(CHAPTER, root), run(CHAPTER, root | axis))
    sections = [chapter.printed.partition("3.9 Your own head\n")[2] for chapter in (as_given, half)]
    assert "3 of 6 steps agree; the first that differs is scores" in sections[0]
    assert "    scores = raw_scores / Dk\n" in sections[0]
    assert "    scores = raw_scores / np.sqrt(D)\n" in sections[0]
    assert "4 of 6 steps agree; the first that differs is weights" in sections[1]
    assert "masked_scores.max(axis=-2, keepdims=True)" in sections[1]
    assert "6 of 6 steps agree" in mended.printed
    assert all(code in answer for code in ("axis=-2", "attnlab.softmax(scores)"))
    assert f"Q @ {root['K.T / K.shape[-1]']}" in answer


def test_exercise_5(answer: str) -> None:
    X = np.array([[0.1, 0.2, 0.3, 0.4], [0.5, 0.6, 0.7, 0.8], [0.9, 0.1, 0.2, 0.3]])
    W_Q = np.array([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6], [0.7, 0.8, 0.9], [0.2, 0.3, 0.4]])
    for word, query in zip(("I", "love", "AI"), X @ W_Q, strict=True):
        assert ", ".join(f"{number:.2f}" for number in query) + f' for "{word}"' in answer
    chapter = run(CHAPTER, OF_FIGURES[CHAPTER]["I love AI"])
    assert np.allclose(chapter["Q"], X @ W_Q)
    assert "W_Q has 3 columns, so W_K gets as many" in chapter.printed


def test_the_second_it(chapter: Chapter) -> None:
    assert chapter["thing_keys"] == pytest.approx(np.array([[0.9, 0.2, 0.1], [0.1, 1.8, 0.1]]))
    assert "by their own vectors [[0.51 0.51]], by their keys [[0.56 0.96]]" in chapter.printed


def test_slips_of_the_hand_example(chapter: Chapter) -> None:
    slips, mixtures = chapter["slips"], chapter["mixtures"]
    by_hand = slips["weights, by hand"]
    assert np.allclose(by_hand, slips["softmax of its raw scores"], atol=0.0005)
    assert not np.allclose(by_hand, slips["softmax of them / √2"], atol=0.003)
    assert not np.allclose(slips["raw scores, by hand"], [0.5361, 0.6232, 0.6613], atol=0.01)
    assert not np.allclose(mixtures["context, by hand"], mixtures["its weights times V"], atol=0.03)


def test_sentences_about_questions_and_names(chapter: Chapter) -> None:
    printed = chapter.printed
    rows = dict(
        line.split(": ")
        for line in printed.splitlines()
        if line[-1:] in "0123456789" and line.startswith(("action", "place", "who"))
    )
    weights = {name: [float(n) for n in row.split()[1:]] for name, row in rows.items()}
    assert [row.index(max(row)) for row in weights.values()] == [4, 3, 3]  # 钱, 取 and 取
    assert weights["place, activity"][3] == weights["place, activity"][4]
    he = chapter["pronoun_weights"]
    assert he[0] == he[2] == pytest.approx(0.5, abs=0.01)
    (most,) = set((chapter["weights"] - 1 / 3).argmax(axis=1))
    (least,) = set(chapter["weights"].argmin(axis=1))
    assert (most, least) == (2, 0)  # 鱼 and 猫
