"""Chapter 7, heads that learned: what it says holds, and its numbers may be changed."""

import numpy as np
import pytest
from book import Changes, as_it_is, holds

from attnlab import Tokenizer

CHAPTER = "07"

CHANGES: Changes = {
    "one token": (False, {"Martin’s one of my sons, and the other is Chanler.": "a"}),
    "two tokens": (False, {"Martin’s one of my sons, and the other is Chanler.": "aa"}),
    "Chinese": (False, {"Martin’s one of my sons": "这是我的儿子"}),
    "another text": (False, {"Martin’s one of my sons": "The dog chased the ball"}),
    "a longer text": (False, {"is Chanler.": "is Chanler." * 8}),
    "lines": (False, {"is Chanler.": r"is\nChanler.\n"}),
}


@pytest.mark.parametrize("what", CHANGES)
def test_it_goes_on_with_other_numbers(what: str) -> None:
    holds(CHAPTER, *CHANGES[what])


def test_all_heads() -> None:
    lesson = as_it_is(CHAPTER)
    T, L, H = lesson["T"], lesson["L"], lesson["H"]
    assert lesson["weights"].shape == (L, H, T, T)
    assert np.allclose(lesson["weights"].sum(axis=-1), 1, atol=1e-5)
    assert lesson["even"] > 1 / T


def test_its_tokens_of_gpt2(gpt2_tokenizer: Tokenizer) -> None:
    lesson = as_it_is(CHAPTER)
    counts = [len(gpt2_tokenizer.encode(lesson["PROMPT"].replace("’", q))) for q in "’'"]
    assert counts == [16, 14]
