"""Chapter 12, watching a head form: what it says holds, and its numbers may be changed."""

import numpy as np
import pytest
from book import Changes, as_it_is, holds

CHAPTER = "12"

CHANGES: Changes = {
    "few steps": (False, {}),
    "another seed": (False, {"default_rng(0)": "default_rng(5)", "seed=1": "seed=9"}),
    "four letters": (False, {"N = 10": "N = 4"}),
    "twelve letters": (False, {"N = 10": "N = 12"}),
    "four heads": (False, {" 12, 6, 2": " 5, 2, 4"}),
    "one head, one step": (False, {" 12, 6, 2": " 1, 6, 1"}),
    "another text": (False, {'"qkzvmqkzvm"': '"abcabc"'}),
    "a faster start": (False, {"learning_rate=1e-2": "learning_rate=0.1"}),
}


@pytest.mark.parametrize("what", CHANGES)
def test_it_goes_on_with_other_numbers(what: str) -> None:
    holds(CHAPTER, *CHANGES[what])


@pytest.mark.slow
def test_watching_a_head_form() -> None:
    lesson = as_it_is(CHAPTER)
    history, table = lesson["history"], lesson["table"]
    assert lesson["forming"]
    assert lesson["places"] == 2
    assert lesson["back"][:, 1].max() > 0.9
    weight_of = {name: row[0] for name, row in zip(lesson["after"], lesson["rows"], strict=True)}
    assert weight_of["nothing"] > 0.7
    assert weight_of["before the copy"] < 0.2
    assert min(weight_of["the copy"], weight_of["1 after"], weight_of["2 after"]) > 0.5
    j = lesson["j"]
    edited = lesson["after"]["before the copy"]
    pairs = zip(lesson["forward"].blocks, edited.blocks, strict=True)
    changes = [np.abs((a.attention.K - b.attention.K)[:, :, j]).max() for a, b in pairs]
    assert changes[0] == 0 < 0.1 < changes[1]
    one, two = history[1][-1], history[2][-1]
    assert two[3] > 0.7
    assert max(row[3] for row in history[1]) < 0.4
    assert two[2] < one[2] - 1
    assert min(row[2] for row in history[1]) > 2.5
    assert table[lesson["best_head"], 2] == table.max()
