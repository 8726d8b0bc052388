"""Chapter 15, write your own attention: its claims hold."""

import re

import numpy as np
import pytest
from book import Chapter, run, run_unchanged

CHAPTER = "15"

ROOT = "    scores = Q @ K.T / K.shape[1] ** 0.5\n"


def test_write_your_own() -> None:
    printed = run_unchanged(CHAPTER, is_solved=True).printed
    for agreement in ("7 of 7 steps agree", "6 of 6 steps agree", "7 of 7 steps agree"):
        assert agreement in printed
    named = (
        "scores = raw_scores\n",
        "scores = raw_scores / Dk\n",
        "np.where(mask.swapaxes(-2, -1), scores, -np.inf)",
        "weights = e / e.sum(axis=-1, keepdims=True) * mask",
        "e = np.exp(masked_scores - masked_scores.max(axis=-2, keepdims=True))",
        "output = concat @ W_O.T + b_O",
        "concat = context.reshape(T, -1)",
        "['raw_scores / Dk']",
    )
    assert [name for name in named if name not in printed] == []
    chapter = run_unchanged(CHAPTER, is_solved=True)
    assert np.allclose(chapter["edited"].logits, chapter["trace"].logits, atol=1e-4)
    assert chapter["edited"] is not chapter["trace"]


def test_unwritten_functions(chapter: Chapter) -> None:
    printed = chapter.printed
    for function in ("my_head", "my_layer", "my_block"):
        assert f"{function} isn't written yet." in printed
    assert np.array_equal(chapter["edited"].logits, chapter["trace"].logits)


def said(section: int, old: str, new: str) -> str:
    """The output of a section of the chapter with a piece of its code replaced."""
    chapter = run(CHAPTER, {old: new}, until=f"# ## 15.{section + 1}", is_solved=True)
    return re.split(r"\n\n15\.\d ", chapter.printed)[section]


def test_exercise_1(answer: str) -> None:
    printed = said(1, ROOT, "    scores = Q @ K.T\n")
    assert "3 of 7 steps agree; the first that differs is scores" in printed
    assert "    scores = raw_scores\n" in printed
    assert "3 of 7" in answer
    assert "`scores = raw_scores`" in answer


@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
def test_exercise_2(answer: str) -> None:
    mask = "np.tril(np.ones(scores.shape, dtype=bool)"
    printed = said(1, f"{mask})", f"{mask}, -1)")
    assert "weights contains NaN, first at (0, 0)" in printed
    assert "`(0, 0)` of the weights" in answer


@pytest.mark.slow
def test_exercise_3(answer: str) -> None:
    printed = said(3, "context.swapaxes(0, 1).reshape(T, -1)", "context.reshape(T, -1)")
    assert "the first that differs is concat" in printed
    assert answer.startswith("`concat`")


def test_exercise_4(answer: str) -> None:
    printed = said(4, "    mid = x + output", "    mid = output")
    assert "2 of 7 steps agree; the first that differs is mid" in printed
    assert "    mid = attention.output\n" in printed
    assert "2 of 7" in answer
