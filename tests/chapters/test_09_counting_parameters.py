"""Chapter 9, counting parameters: its claims hold."""

import numpy as np
from book import CHANGES, OF_FIGURES, Chapter, run

from attnlab import figures
from attnlab.forward.parameters import parameter_count

CHAPTER = "09"
GPT2 = "n_positions=1024, n_embd=768, n_layer=12, n_head=12)"
W_O = "[[1, 0, 1, 2], [0, 1, -1, 0]]"
NARROW = {"[[1, 0], [0, 1], [1, 1], [2, 0]]": "[[1], [0], [1], [2]]", W_O: "[[1, 0, 1, 2]]"}


def test_counting_parameters(chapter: Chapter) -> None:
    assert sum(count for _, count in chapter["whole"].values()) == 124_439_808
    assert parameter_count(chapter["gpt2"]) == 124_439_808
    counts = {
        "distilgpt2": 81_912_576,
        "gpt2": 124_439_808,
        "gpt2-medium": 354_823_168,
        "gpt2-large": 774_030_080,
        "gpt2-xl": 1_557_611_200,
    }
    for name, count in counts.items():
        config = chapter["published"][name]
        assert sum(chapter["part_counts"](config).values()) == parameter_count(config) == count
        assert f"{count:,}" in chapter.printed
        assert config.d_head == 64
    assert "count: the published figure agrees" in chapter.printed


def test_gpt3(chapter: Chapter) -> None:
    notes = figures.load("gpt3_parameters")
    gpt3 = chapter["gpt3"]
    assert chapter["total"] == parameter_count(gpt3) == sum(chapter["part_counts"](gpt3).values())
    assert round(chapter["total"], -9) == 175_000_000_000
    assert (gpt3.d_head, gpt3.vocab_size) == (notes["d_head"], notes["n_vocab"])
    assert [count for _, count in chapter["counts"].values()] == list(notes["rows"].values())
    assert chapter["in_attention"] == notes["attention_total"]
    assert "attention_total: all 7 published figures agree" in chapter.printed
    D, L = gpt3.n_embd, gpt3.n_layer
    assert 12 * D**2 * L + 2 * gpt3.vocab_size * D == 175_181_291_520  # as its prose says
    assert "attention's share:     33 %" in chapter.printed
    assert "the MLPs' share:       66 %" in chapter.printed
    assert "= 617,558,016, which is GPT-3's published count" in chapter.printed
    assert "= 620,875,776, which is not GPT-3's published count" in chapter.printed


def test_value_output_product_is_low_rank(chapter: Chapter) -> None:
    W_VO, layer = chapter["W_VO"], chapter["layer"]
    assert chapter["rank"] == 2
    assert np.array_equal(W_VO[2], W_VO[0] + W_VO[1])
    assert np.array_equal(W_VO[3], 2 * W_VO[0])
    assert np.allclose(chapter["as_the_model"], chapter["combined"])
    lines = chapter.printed.splitlines()
    (gpt2,) = [line for line in lines if line.startswith("GPT-2 small")]
    assert gpt2.split()[-5:] == ["768", "64", "98,304", "589,824", "6"]
    assert np.array_equal(layer.heads[0].W_O, chapter["W_O"])
    assert np.array_equal(layer.heads[0].W_V, chapter["W_V"])
    assert np.allclose(chapter["last"]["added up"], chapter["last"]["output"])


def test_exercise_1(answer: str) -> None:
    lesson = run(CHAPTER, CHANGES[CHAPTER]["twice the positions"], until="# ## 9.3")
    count = sum(count for _, count in lesson["whole"].values())
    assert count == 124_439_808 + 1024 * 768
    assert f"{count:,}" in answer
    assert f"{1024 * 768:,}" in answer


def test_exercise_2(answer: str) -> None:
    wide = run(CHAPTER, OF_FIGURES[CHAPTER]["another width"], until="# ## 9.3")
    count = sum(count for _, count in wide["whole"].values())
    assert count == parameter_count(wide["gpt2"])
    assert 3 < count / 124_439_808 < 4
    assert f"{count:,}" in answer
    few = run(CHAPTER, {GPT2: GPT2.replace("n_head=12", "n_head=6")}, until="# ## 9.3")
    assert f"{parameter_count(few['gpt2']):,} with 6" in answer


def test_exercise_3(chapter: Chapter, answer: str) -> None:
    matrices = 4 * 768 * 768 + 2 * 768 * 4 * 768
    assert matrices == 12 * 768**2
    assert f"{matrices:,} of a layer's {chapter['one_layer']:,}" in answer


def test_exercise_4(answer: str) -> None:
    assert run(CHAPTER, CHANGES[CHAPTER]["rank 1"], until="# ## 9.5")["rank"] == 1
    for changes, thin in ((NARROW, 8), ({}, 16)):
        lines = run(CHAPTER, changes, until="# ## 9.5").printed.splitlines()
        (line,) = [line for line in lines if line.startswith("our example")]
        assert line.split()[-3:-1] == [str(thin), "16"]
    assert "have 8 numbers and the full matrix has 16" in answer


def test_shapes_through_the_model(chapter: Chapter) -> None:
    assert chapter["symbols"] == ("The", "Ġnext", "Ġday", "Ġis", "Ġbright")  # 5 tokens
    assert chapter["sentence"].head(0, 0).weights.shape == (5, 5)
    assert (chapter["short"]["X"], chapter["short"]["W_Q"]) == ((5, 8), (8, 4))
    assert {chapter["short"][name] for name in "QKV"} == {(5, 4)}
    long = chapter["long"]
    assert (long["weights"], long["V"], long["concat"]) == (
        (1000, 1000),
        (1000, 128),
        (1000, 12288),
    )
    assert (long["W_O"], long["output"]) == ((12288, 12288), long["X"])
