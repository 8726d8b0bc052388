"""Chapter 4, your journey: its claims hold."""

import numpy as np
import pytest
from book import FASTER, Chapter, check_figures, run

from attnlab import figures, multi_head_attention
from attnlab.equations import Array

CHAPTER = "04"


def test_stages_agree(chapter: Chapter) -> None:
    recorded = figures.load("journey")
    assert chapter["words"] == recorded["words"]
    check_figures(recorded, 6, inputs=chapter["X"])
    assert chapter.printed.count("published figures agree") == 6
    first, second = chapter["heads"].values()
    steps = ("Q", "K", "V", "raw_scores", "scores", "weights", "context")
    for name, head in chapter["heads"].items():
        check_figures(recorded[name], 6, **{step: getattr(head, step) for step in steps})
    assert first is not second
    assert chapter["truncate"](chapter["exact"])[[0, 1, 5]].tolist() == [1.2, 1.8, 1.5]
    for name in ("divided by √2, truncated", "not divided, truncated"):
        assert chapter["alphas"][name][[0, 1, 5]].tolist() == [0.1, 0.2, 0.1]
    assert not np.allclose(chapter["alphas"]["divided by √2"], chapter["alphas"]["not divided"])
    assert not np.allclose(
        chapter["truncate"](chapter["from_truncated"]), chapter["truncate"](chapter["exact"])
    )
    both = chapter["two_heads"]
    for head, part in zip(both.heads, recorded["multi_head"]["heads"], strict=True):
        check_figures(part, 6, weights=head.weights, context=head.context)
    check_figures(recorded["multi_head"], 6, concatenated=both.concat)
    assert np.array_equal(both.output, both.concat)


def test_two_causal_masks(chapter: Chapter) -> None:
    recorded = figures.load("journey")
    causal = chapter["causal"]
    check_figures(recorded["causal"], 6, weights=causal.weights, context=causal.context)
    check_figures(recorded["causal"], 6, zeroed_weights=chapter["zeroed"])
    check_figures(recorded["causal"], 6, renormalised_weights=chapter["renormalised"])
    assert np.allclose(chapter["first"], chapter["second"])
    assert np.allclose(chapter["second"], causal.weights[2, :3])
    assert np.isclose(chapter["sum_of_all"], np.exp(chapter["head"].scores[2]).sum())
    assert np.isclose(chapter["fraction_seen"], chapter["head"].weights[2, :3].sum())


def test_masking_weights_fails_where_the_future_has_all_weight() -> None:
    far = "    W_Q, W_K = 1000 * np.ones((3, 2)), np.eye(3, 2)\n    return attnlab.self"
    large = run(CHAPTER, {"    return attnlab.self": far}, until="# ## 4.4")
    assert np.allclose(large["causal"].weights.sum(axis=1), 1)
    assert large["renormalised"].sum(axis=1).min() == 0


def test_dropout(chapter: Chapter) -> None:
    recorded = figures.load("journey")
    check_figures(recorded["dropout"], 6, weights=chapter["dropped"])
    assert not chapter["dropped"][1].any()
    once, causal = chapter["one_draw"], chapter["causal"]
    assert set(np.unique(once.dropout_mask)) == {0, 2}
    assert np.allclose(once.weights, causal.weights * once.dropout_mask)
    assert np.allclose(chapter["mean"], causal.weights, atol=0.01)


def test_gradient_equals_finite_differences() -> None:
    """The first training step equals finite differences of the loss."""
    one_step = run(
        CHAPTER,
        FASTER[CHAPTER]
        | {
            "steps, rate = 500, 0.03": "steps, rate = 1, 0.03",
            "    return layer, errors\n": "    global made\n    made = layer, gradients\n"
            "    return layer, errors\n",
            "identical, errors_identical = train(a, a)": ""
            "different, errors_different = train(a, b)\n"
            "identical, errors_identical = different, errors_different",
        },
    )
    _, gradients = one_step["made"]
    X, wanted, mask = (one_step[name] for name in ("X", "target", "mask"))
    a, b = one_step["a"], one_step["b"]
    matrices = [np.hstack([a[n], b[n]]) for n in range(3)] + [np.vstack([a[3], b[3]])]

    def loss(matrices: list[Array]) -> float:
        made = multi_head_attention(X, *matrices, n_head=2, mask=mask)
        return float(0.5 * ((made.output - wanted) ** 2).sum())

    for n, gradient in enumerate(gradients):
        for index in [(0, 0), (1, 2)]:
            losses = []
            for little in (1e-6, -1e-6):
                moved = [matrix.copy() for matrix in matrices]
                moved[n][index] += little
                losses.append(loss(moved))
            assert np.isclose(gradient[index], (losses[0] - losses[1]) / 2e-6, rtol=1e-5)


@pytest.mark.parametrize(
    "seed", [123, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (0, 1))]
)
def test_identically_initialized_heads_stay_identical(seed: int) -> None:
    chapter = run(CHAPTER, FASTER[CHAPTER] | {"p, seed = 0.5, 123": f"p, seed = 0.5, {seed}"})
    assert np.allclose(chapter["identical"].weights[0], chapter["identical"].weights[1], atol=1e-3)
    assert np.abs(np.diff(chapter["different"].weights, axis=0)).max() > 0.5
    assert chapter["errors_different"][-1] < chapter["errors_identical"][-1] / 2


def test_exercise_1(chapter: Chapter, answer: str) -> None:
    causal = chapter["causal"]
    assert np.array_equal(causal.context[0], causal.V[0])
    assert "{:.4f} and {:.4f}".format(*causal.V[0]) in answer


def test_exercise_2(chapter: Chapter, answer: str) -> None:
    same = np.isclose(chapter["head"].weights, chapter["causal"].weights).all(axis=1)
    assert same.tolist() == [False] * 5 + [True]
    assert f"{chapter['causal'].weights[5, 0]:.4f} both times" in answer


def test_exercise_3(answer: str) -> None:
    mask = "= attnlab.causal_mask(T)"
    turned = run(CHAPTER, {f"{mask}\n": f"{mask}.T\n"}, until="# ## 4.4")
    seen = (turned["causal"].weights > 0).sum(axis=1)
    assert seen.tolist() == [6, 5, 4, 3, 2, 1]
    assert turned["causal"].weights[-1, -1] == 1
    assert '"step" sees only itself' in answer


def test_exercise_4(answer: str) -> None:
    chapter = run(CHAPTER, {"p, seed = 0.5": "p, seed = 0.2"}, until="# ## 4.5")
    kept = chapter["many_draws"].dropout_mask
    assert np.isclose(kept.max(), 1.25)
    assert np.isclose((kept > 0).mean(), 4 / 5, atol=0.001)
    assert np.allclose(chapter["mean"], chapter["causal"].weights, atol=0.01)
    assert "mean without the factor 1.25" in chapter.printed
    assert "= 1.25, and a weight stays in four draws of five" in answer


def test_exercise_5(chapter: Chapter, answer: str) -> None:
    half = run(CHAPTER, FASTER[CHAPTER] | {"train(a, a)": "train(a, [*a[:3], b[3]])"})
    assert np.abs(np.diff(half["identical"].weights, axis=0)).max() > 0.5
    for ended in (half["errors_identical"][-1], chapter["errors_identical"][-1]):
        assert f" {ended:.2f}" in answer


def test_printed_alpha_and_z(chapter: Chapter) -> None:
    assert chapter["truncate"](chapter["alpha"])[[0, 1, 5]].tolist() == [0.1, 0.2, 0.1]
    assert round(chapter["alpha"][5], 1) == 0.2
    assert chapter["truncate"](chapter["z"]).tolist() == [0.3, 0.8]


def test_pictures_match_the_text(chapter: Chapter) -> None:
    assert set(chapter["head"].weights.argmax(axis=1)) == {chapter["words"].index("Your")}
    assert np.allclose(chapter["head"].weights, 1 / 6, atol=0.04)
