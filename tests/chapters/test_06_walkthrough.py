"""Chapter 6, walkthrough: what it says holds, and its numbers may be changed."""

import numpy as np
import pytest
from book import Changes, as_it_is, holds, run

CHAPTER = "06"

CHANGES: Changes = {
    "a straight apostrophe": (False, {'PROMPT = "It’s': "PROMPT = \"It's"}),
    "one token": (False, {'PROMPT = "It’s very hot in summer. Swimming is"': 'PROMPT = "a"'}),
    "Chinese": (False, {"It’s very hot": "夏天很热。"}),
    "another text": (False, {"It’s very hot": "The dog chased the ball, but it"}),
    "lines": (False, {"It’s very hot": r"\n\n\tIt"}),
    "more columns": (False, {"columns = 3": "columns = 5"}),
    "another head": (
        False,
        {
            "trace.head(0, 0)": "trace.head(1, 2)",
            "gain, bias = attention": "gain, bias = -attention",
        },
    ),
}


@pytest.mark.parametrize("what", CHANGES)
def test_it_goes_on_with_other_numbers(what: str) -> None:
    holds(CHAPTER, *CHANGES[what])


def test_walkthrough() -> None:
    lesson = as_it_is(CHAPTER)
    trace, head, model = lesson["trace"], lesson["head"], lesson["model"]
    variance, eps = trace.embedding.var(axis=1), model.config.layer_norm_epsilon
    assert np.allclose(lesson["plain"].mean(axis=1), 0, atol=1e-5)
    assert np.allclose(lesson["plain"].var(axis=1), variance / (variance + eps), rtol=1e-3)
    assert np.array_equal(lesson["X"], head.X)
    assert head.W_Q.shape == (model.config.n_embd, model.config.d_head)
    assert head.context.shape == (len(trace.tokens), model.config.d_head)
    assert np.allclose(head.raw_scores, head.scores * model.config.d_head**0.5, atol=1e-5)
    assert (lesson["undivided"].max(axis=1) >= head.weights.max(axis=1) - 1e-6).all()
    assert "\n\n6.2 The verdict\n" in lesson.printed
    another = run(CHAPTER, {"It’s very hot": "The dog chased the ball, but it"})
    assert "No table can match: the figures are those of the prompt 'It’s" in another.printed
