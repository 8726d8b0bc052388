"""Chapter 17, where next: its claims hold."""

import numpy as np
from book import Chapter, run

CHAPTER = "17"


def test_where_next(chapter: Chapter) -> None:
    head = chapter["head"]
    # 1,024 · 1,024 · 144 heads · 4 bytes, and twice 1,024 · 64 · 144 · 4
    assert np.allclose(chapter["gigabytes"][0], [0.5625, 0.0703125])
    assert "17,179,869,184 scores per head" in chapter.printed
    assert "9,216.00" in chapter.printed
    for i, row in enumerate(chapter["windowed"].weights):
        assert (row > 0).nonzero()[0].tolist() == list(range(max(0, i - 2), i + 1))
    assert np.allclose(chapter["by_tiles"], head.context, atol=1e-5)
    assert (chapter["linear_weights"] >= 0).all()
    assert np.allclose(chapter["linear_weights"].sum(axis=1), 1)
    assert np.allclose(chapter["stepwise"], chapter["linear_weights"] @ chapter["V"], atol=1e-5)
    assert list(chapter["cache"].values()) == [8192, 2048, 256, 512]
    exact = chapter["U"] * chapter["singular"] @ chapter["Vt"]
    assert np.allclose(exact, head.K, atol=1e-4)
    first, second, third, other = chapter["products"]
    assert np.allclose([second, third], first)
    assert abs(other - first) > 0.1
    assert np.isclose(first, np.cos(1) * 0.65 - np.sin(1) * 0.74)
    gates = chapter["gates"]
    assert ((gates > 0).sum(axis=1) == 2).all()
    assert np.allclose(gates.sum(axis=1), 1)
    assert np.abs(chapter["K_int8"]).max(axis=1).tolist() == [127] * len(head.K)
    # Each number of a key is off by half a step at most.
    off = np.abs(head.Q).sum(axis=1)[:, np.newaxis] * chapter["step"].T / 2 / chapter["scale"]
    assert 0 < chapter["int8_difference"] <= off.max()


def test_exercise_1(chapter: Chapter, answer: str) -> None:
    counts = [
        int(run(CHAPTER, {"window = 3 ": f"window = {w} "})["window_mask"].sum()) for w in (3, 4)
    ]
    assert counts == [21, 26]
    for count in (*counts, int(chapter["head"].mask.sum())):
        assert f" {count}" in answer


def test_exercise_2(answer: str) -> None:
    assert "below 0.00001" in answer
    for tile in (1, 100):
        chapter = run(CHAPTER, {"tile = 3 ": f"tile = {tile} "})
        assert np.abs(chapter["by_tiles"] - chapter["head"].context).max() < 0.00001


def test_exercise_3(answer: str) -> None:
    chapter = run(CHAPTER, {"theta = 0.5 ": "theta = 0 "})
    assert np.allclose(chapter["products"], 0.65)
    assert "0.65" in answer


def test_exercise_4(answer: str) -> None:
    gates = run(CHAPTER, {"experts, active = 4, 2": "experts, active = 4, 1"})["gates"]
    assert set(np.unique(gates)) == {0, 1}
    assert "one 1.00" in answer
