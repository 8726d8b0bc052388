"""Chapter 11, what the cache saves: its claims hold."""

import numpy as np
from book import FASTER, Chapter, run

from attnlab import GPT2Config
from attnlab.forward.parameters import parameter_count

CHAPTER = "11"
TEXT = 'TEXT, MORE = "The dog chased the ball, but it", " rolled."'


def fast(changes: dict[str, str]) -> Chapter:
    """Run the chapter with timings repeated twice instead of eight times."""
    return run(CHAPTER, FASTER[CHAPTER] | changes)


def test_cached_keys_and_values_equal_recomputed(chapter: Chapter) -> None:
    short, long = chapter["short"], chapter["long"]
    text = chapter["TEXT"] + chapter["MORE"]
    assert long.tokens.ids.tolist() == chapter["model"].tokenizer.encode(text)
    T = len(short.tokens)
    for a, b in zip(short.blocks, long.blocks, strict=True):
        assert np.allclose(a.attention.K, b.attention.K[:, :T], atol=1e-4)
        assert np.allclose(a.attention.V, b.attention.V[:, :T], atol=1e-4)
    assert chapter["before"].shape[-2] < chapter["after"].shape[-2]
    assert np.abs(chapter["before"] - chapter["after"][:, :T]).max() > 0.1  # without the mask
    head = chapter["head"]
    assert chapter["chosen"] == (1, 2)
    assert np.allclose(chapter["weights"], head.weights[-1], atol=1e-5)
    assert np.allclose(chapter["context"], head.context[-1], atol=1e-4)
    assert [(step.computed, step.cached) for step in chapter["generated"].steps] == [
        (8, 0),
        *((1, cached) for cached in (8, 9, 10, 11)),
    ]
    assert max(chapter["differences"]) < 1e-4


def test_operation_counts(chapter: Chapter) -> None:
    count, pocket, gpt2 = (chapter[name] for name in ("multiplications", "pocket", "gpt2"))
    logits = 128 * pocket.config.vocab_size
    assert count(pocket.config, 1, 1) - logits == 2 * (4 * 128**2 + 2 * 128 * 512 + 2 * 2 * 128)
    assert count(gpt2, 1, 5) + count(gpt2, 5, 0) == count(gpt2, 6, 0) + 768 * 50257
    # 85 million weights of linear maps once, 2 · 1,024 · 768 · 12 of attention, the output matrix
    assert count(gpt2, 1, 1023) == 84_934_656 + 18_874_368 + 38_597_376
    assert chapter["cache_bytes"](gpt2, 1) == 2 * 12 * 768 * 4
    # 2 · 12 · 768 · 4 bytes, 1,024 times as many, and 124,439,808 weights of 4
    assert chapter["costs"][2][1:] == ["0.074", "1,024", "75.497", "497.759"]


def test_exercise_1(answer: str) -> None:
    chapter = fast({"NEW = 4 ": "NEW = 10 "})
    steps = [step for step in chapter["generated"].steps if step.token]
    computed = sum(step.computed for step in steps)
    without_cache = sum(step.computed + step.cached for step in steps)
    assert f" {computed}. Without the cache there are 8 + 9 + ... + 17 = {without_cache}." in answer


def test_exercise_2(answer: str) -> None:
    original = (
        "longer, shared = [*ids, *new_ids], slice(0, T)  # the positions of the shared tokens\n"
    )
    chapter = fast({original: original + "longer, shared = [*new_ids, *ids], slice(-T, None)\n"})
    short, longer = chapter["layers"][0]
    difference = np.abs(short.K - longer.K[:, -chapter["T"] :]).max()
    assert f"up to {difference:.1f} apart" in answer
    assert len(chapter["new_ids"]) == 2  # the shift of the shared tokens


def test_exercise_3(chapter: Chapter, answer: str) -> None:
    count, gpt2 = (chapter[name] for name in ("multiplications", "gpt2"))
    pair = count(gpt2, 1, 1) - count(gpt2, 1, 0)
    linear_maps = count(gpt2, 1, 0) - pair - 768 * 50257
    tokens, rest = divmod(linear_maps, pair)
    assert rest == 0
    assert f" {tokens:,} for D = 768" in answer
    attention = 1024 * pair
    assert f"{100 * attention / (attention + linear_maps):.1f} percent" in answer


def test_exercise_4(chapter: Chapter, answer: str) -> None:
    xl = GPT2Config(vocab_size=50257, n_positions=1024, n_embd=1600, n_layer=48, n_head=25)
    cache_bytes = chapter["cache_bytes"]
    assert f"{cache_bytes(xl, 1) / 1e6:.4f} MB" in answer
    assert f"{cache_bytes(xl, 1024) / 1e6:.1f} MB" in answer
    weights = 4 * parameter_count(xl)
    assert round(weights / 1e7) == 623
    assert 9 * cache_bytes(xl, 1024) < weights < 10 * cache_bytes(xl, 1024)
    assert "Ten texts" in answer
