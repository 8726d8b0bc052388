"""Chapter 11, what the cache saves: what it says holds, and its numbers may be changed."""

import numpy as np
import pytest
from book import Changes, as_it_is, holds

CHAPTER = "11"

CHANGES: Changes = {
    "another text": (False, {"It’s very hot in summer.": "The dog chased the ball"}),
    "a word that goes on": (False, {'" Swimming is"': '"time"'}),
    "nothing more": (False, {'" Swimming is"': '""'}),
    "Chinese": (False, {"It’s very hot in summer.": "夏天很热。"}),
    "one new token": (False, {"generate(TEXT, 4": "generate(TEXT, 1"}),
    "no new token": (False, {"generate(TEXT, 4": "generate(TEXT, 0"}),
    "no steps kept": (False, {"trace=True)\n": "trace=False)\n"}),
    "a long text": (False, {"(TEXT + MORE) * 8": "(TEXT + MORE) * 100"}),
}


@pytest.mark.parametrize("what", CHANGES)
def test_it_goes_on_with_other_numbers(what: str) -> None:
    holds(CHAPTER, *CHANGES[what])


def test_what_the_cache_saves() -> None:
    lesson = as_it_is(CHAPTER)
    short, long = lesson["short"], lesson["long"]
    assert long.tokens.ids.tolist() == lesson["model"].tokenizer.encode(
        lesson["TEXT"] + lesson["MORE"]
    )
    T = len(short.tokens)
    for a, b in zip(short.blocks, long.blocks, strict=True):
        assert np.allclose(a.attention.K, b.attention.K[:, :T], atol=1e-4)
        assert np.allclose(a.attention.V, b.attention.V[:, :T], atol=1e-4)
    assert lesson["difference"] < 1e-4
    count = lesson["multiplications"]
    assert count(1, 1) == 2 * (4 * 128 * 128 + 2 * 128 * 512 + 2 * 2 * 128)
    assert count(1, 5) + count(5, 0) == count(6, 0)
