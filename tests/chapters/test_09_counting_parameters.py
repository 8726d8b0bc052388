"""Chapter 9, counting parameters: what it says holds, and its numbers may be changed."""

import pytest
from book import Changes, as_it_is, holds, run

from attnlab import figures
from attnlab.parameters import parameter_count

CHAPTER = "09"

CHANGES: Changes = {
    "twice the positions": (False, {"n_positions=1024, n_embd": "n_positions=2048, n_embd"}),
    "another width": (True, {"1024, n_embd=768": "1024, n_embd=1536"}),
    "one layer": (True, {"n_layer=12, n_head=12)": "n_layer=1, n_head=12)"}),
    "a small vocabulary": (False, {"GPT2Config(vocab_size=50257": "GPT2Config(vocab_size=9"}),
    "another GPT-3": (True, {"n_layer=96, n_head=96, n_embd=12288": "2, 4, 64"}),
    "another size": (False, {"config(6, 12, 768)": "config(7, 1, 7)"}),
}


@pytest.mark.parametrize("what", CHANGES)
def test_it_goes_on_with_other_numbers(what: str) -> None:
    holds(CHAPTER, *CHANGES[what])


def test_counting_parameters() -> None:
    lesson, notes = as_it_is(CHAPTER), figures.load("gpt3_parameters")
    assert sum(count for _, count in lesson["whole"].values()) == 124_439_808
    assert parameter_count(lesson["gpt2"]) == 124_439_808
    counts = {
        "distilgpt2": 81_912_576,
        "gpt2": 124_439_808,
        "gpt2-medium": 354_823_168,
        "gpt2-large": 774_030_080,
        "gpt2-xl": 1_557_611_200,
    }
    for name, count in counts.items():
        config = lesson["published"][name]
        assert sum(lesson["shares"](config).values()) == parameter_count(config) == count
        assert f"{count:,}" in lesson.printed
    gpt3 = lesson["gpt3"]
    assert round(parameter_count(gpt3), -9) == 175_000_000_000
    assert (gpt3.d_head, gpt3.vocab_size) == (notes["d_head"], notes["n_vocab"])
    assert [count for _, count in lesson["counts"].values()] == list(notes["rows"].values())
    assert lesson["in_attention"] == notes["attention_total"]
    assert "count: the published figure agrees" in lesson.printed
    assert "table, one_head, all_heads: all 7 published figures agree" in lesson.printed
    assert "= 617,558,016, which is GPT-3's published count" in lesson.printed
    assert "= 620,875,776, which is not GPT-3's published count" in lesson.printed


def test_its_exercise() -> None:
    lesson = run(CHAPTER, {"n_positions=1024, n_embd": "n_positions=2048, n_embd"})
    assert f"{124_439_808 + 1024 * 768:,}" in lesson.printed
