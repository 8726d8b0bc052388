"""Chapter 6, walkthrough: its claims hold."""

import math

import numpy as np
from book import (
    CHANGED,
    Chapter,
    check_figures,
    run,
    run_unchanged,
)

from attnlab import Tokenizer, figures, softmax

CHAPTER = "06"
V_OF = "# of the first five tokens; the article omits most of the rest\n"


def test_figures_on_paper(chapter: Chapter) -> None:
    """The article's arithmetic, recomputed from its own tables."""
    recorded = figures.load("walkthrough")
    check_figures(recorded, 3, embedding=chapter["embedding"])
    check_figures(recorded, 2, masked_scores=chapter["masked_scores"], weights=chapter["weights"])
    assert figures.compare("context", chapter["context"], recorded["context"][:5], 3).agrees
    assert not figures.compare("", chapter["rounded_context"], recorded["context"][:5], 3).agrees
    assert "10 of 36 sums differ from the printed one in the last digit" in chapter.printed
    assert chapter.printed.count("published figures agree") == 4
    assert math.isclose(sum(recorded["weights"][-1]), 0.97)
    drawn = chapter["drawn"]
    assert np.allclose(drawn.scores, recorded["scores"])
    assert np.allclose(drawn.weights, chapter["weights"])


def test_walkthrough_on_a_model(chapter: Chapter) -> None:
    trace, head, model = chapter["trace"], chapter["head"], chapter["model"]
    variance, eps = trace.embedding.var(axis=1), model.config.layer_norm_epsilon
    assert np.allclose(chapter["normalised"].mean(axis=1), 0, atol=1e-5)
    assert np.allclose(chapter["normalised"].var(axis=1), variance / (variance + eps), rtol=1e-3)
    assert np.array_equal(chapter["X"], head.X)
    assert head.W_Q.shape == (model.config.n_embd, model.config.d_head)
    assert head.context.shape == (len(trace.tokens), model.config.d_head)
    assert np.allclose(head.raw_scores, head.scores * model.config.d_head**0.5, atol=1e-5)
    assert (chapter["undivided"].max(axis=1) >= head.weights.max(axis=1) - 1e-6).all()
    assert "\n\n6.7 The verdict\n\n" in chapter.printed
    assert all(str(step) in chapter.printed for step in chapter["walk_steps"].values())
    another = run(CHAPTER, {"It’s very hot": "The dog chased the ball, but it"})
    assert (
        "Not compared with the published tables: the figures are for the prompt 'It’s"
        in another.printed
    )


def test_a_straight_apostrophe(gpt2_tokenizer: Tokenizer, chapter: Chapter) -> None:
    """How many positions later tokens move, in GPT-2 and in the pocket model."""
    for tokenizer, earlier in ((gpt2_tokenizer, 2), (chapter["model"].tokenizer, 1)):
        curly, straight = (tokenizer.encode(chapter[text]) for text in ("PROMPT", "straight"))
        assert len(curly) - len(straight) == earlier


def test_exercise_1(answer: str) -> None:
    chapter, once = run(CHAPTER, {V_OF: "\nscores[5] += 1\n"}), run_unchanged(CHAPTER)
    assert CHANGED in chapter.printed
    assert np.allclose(chapter["weights"], once["weights"])
    assert f"{math.e:.4f}" in answer
    assert f"{chapter['weights'][5, 0]:.4f} to `It`" in answer


def test_exercise_2(answer: str) -> None:
    chapter = run(CHAPTER, {V_OF: "\nscores *= 8\n"})
    assert f"it is {chapter['weights'][-1, 0]:.4f}." in answer
    best, second = np.sort(figures.load("walkthrough")["scores"][-1])[:-3:-1]
    assert f"{best - second:.2f} lower" in answer
    assert f"is {8 * (best - second):.2f}:" in answer
    assert f"factor of {math.exp(8 * (best - second)):.0f}" in answer
    assert f"{run_unchanged(CHAPTER)['weights'][-1, 0]:.2f}" == "0.30"


def test_exercise_3(chapter: Chapter, answer: str) -> None:
    recorded, weights = figures.load("walkthrough"), chapter["weights"][5]
    others = sum(w * v[0] for w, v in zip(weights[:5], recorded["V"], strict=False))
    context = recorded["context"][5][0]
    value = (context - others) / weights[5]
    written = f"({context} + {-others:.4f}) / {weights[5]:.4f} = {value:.4f}"
    assert written in answer


def test_exercise_4(chapter: Chapter, answer: str) -> None:
    before = chapter["context"]
    first = run(CHAPTER, {V_OF: "\nV[0] += 1\n"})["context"] - before
    *most, last = (f"{change:.2f}" for change in first[:, 0])
    assert f"{', '.join(most)} and {last}" in answer
    fifth = run(CHAPTER, {V_OF: "\nV[4] += 1\n"})["context"] - before
    assert np.allclose(fifth[:4], 0)
    assert f"only its own row, by {fifth[4, 0]:.2f}, since" in answer


def test_sentence_about_a_row(chapter: Chapter) -> None:
    printed = chapter.printed.partition("Ġsummer gives\n")[2].splitlines()
    rows = [line.split() for line in printed[:4]]
    assert rows[:2] == [["26%", "to", "It"], ["15%", "to", "Ġhot"]]
    assert sorted(rows[2:]) == [["12%", "to", "itself"], ["12%", "to", "Ġvery"]]


def test_the_printed_x_is_layer_norm_of_the_printed_sum(chapter: Chapter) -> None:
    """The four numbers make all three columns, with a mean and a deviation for each row."""
    recorded = figures.load("walkthrough")
    x, expected = np.array(recorded["embedding"]), np.array(recorded["X"])
    gains, biases = [np.r_[one, chapter[name]] for one, name in ((1, "gains"), (0, "biases"))]
    for row, wanted in zip(x, expected, strict=True):
        plain = (wanted - biases) / gains  # (x - mean) / deviation: a line
        line = np.polyfit(row, plain, 1)
        assert np.allclose(gains * np.polyval(line, row) + biases, wanted, atol=1e-4)
        assert 0 < line[0] < 2
    assert "with these: at most 0.00002 apart" in chapter.printed
    assert "without: at most 0.01975 apart" in chapter.printed


def test_the_similarity_table_fits_no_root(chapter: Chapter) -> None:
    squared, estimates = chapter["squared"], chapter["estimates"]
    assert [round(float(n), 1) for n in (squared.min(), squared.max())] == [4.4, 10.2]
    assert [round(float(n) * 768**0.5) for n in (squared.min(), squared.max())] == [121, 284]
    assert len(estimates) == 66
    assert round(float(estimates.mean()), 1) == 8.6
    assert round(float(estimates.max())) == 30
    # A table that is made either way, rounded to four decimals, gives its distances.
    X = 0.08 * np.random.default_rng(0).standard_normal((4, 768))
    for factor in (1, 1 / 4):
        logs = np.log(np.round(softmax(factor * X @ X.T), 4))
        found = np.diag(logs)[0] + np.diag(logs)[1] - logs[0, 1] - logs[1, 0]
        assert np.isclose(found / factor, ((X[0] - X[1]) ** 2).sum(), rtol=0.02)


def test_the_most_similar_tokens(chapter: Chapter) -> None:
    rows = chapter.printed.partition("off the diagonal\n")[2].splitlines()[:11]
    assert rows[0].split() == ["It", "Ġvery", "0.0386"]
    assert rows[5].split() == ["Ġhot", "Ġsummer", "0.0020"]
    assert rows[7].split() == ["Ġsummer", "Ġhot", "0.0015"]
    assert max(row.split()[2] for row in rows) == rows[8].split()[2] == "0.0974"
    assert rows[6].split() == ["Ġin", ".", "0.0779"]
