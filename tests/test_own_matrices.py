"""Results of attention of one's own arrays: edited, differentiated, checked."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import attnlab
from attnlab import (
    GPT2,
    AttnlabError,
    attention,
    causal_mask,
    check,
    cross_attention,
    multi_head_attention,
    self_attention,
    softmax,
)
from attnlab.equations import Array

Arrays = dict[str, Array]
Attend = Callable[..., Any]

rng = np.random.default_rng(5)


def draw(**shapes: tuple[int, ...]) -> Arrays:
    return {name: rng.standard_normal(shape) for name, shape in shapes.items()}


TWO = {"W_Q": (6, 4), "W_K": (5, 4), "W_V": (5, 6), "W_O": (6, 3), "b_Q": (4,), "b_V": (6,)}
MASK = np.tri(3, 4, 1, dtype=bool)


def heads(**arrays: Any) -> Any:
    return multi_head_attention(n_head=2, mask=MASK, scale=1.3, dropout=0.25, rng=3, **arrays)


# By name: a computation, its arrays, and its last step.
CASES: dict[str, tuple[Attend, Arrays, str]] = {
    "heads": (heads, draw(X=(2, 3, 6), memory=(4, 5), **TWO, b_O=(3,), bias=(2, 3, 4)), "output"),
    "self": (
        lambda **arrays: self_attention(mask=causal_mask(3), **arrays),
        draw(X=(2, 3, 5), W_Q=(5, 4), W_K=(5, 4), W_V=(5, 2), bias=(3, 3)),
        "context",
    ),
    "cross": (
        lambda **arrays: cross_attention(**arrays),
        draw(X=(2, 3), memory=(4, 5), W_Q=(3, 2), W_K=(5, 2), W_V=(5, 6)),
        "context",
    ),
    "broadcast": (
        lambda **arrays: attention(mask=MASK, scale=2, **arrays),
        draw(Q=(2, 3, 3, 4), K=(2, 1, 4, 4), V=(1, 1, 4, 2), bias=(3, 1, 4)),
        "context",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_gradients_are_finite_differences(case: str) -> None:
    attend, arrays, last = CASES[case]
    result = attend(**arrays)
    d = rng.standard_normal(getattr(result, last).shape)
    gradients = attnlab.gradients(result, d=d)
    assert np.array_equal(getattr(gradients, last), d)
    for name, x in arrays.items():
        slopes = np.empty_like(x)
        for index in np.ndindex(x.shape):
            sums = []
            for step in (1e-5, -1e-5):
                moved = x.copy()
                moved[index] += step
                sums.append((d * getattr(attend(**arrays | {name: moved}), last)).sum())
            slopes[index] = (sums[0] - sums[1]) / 2e-5
        actual = getattr(gradients, "score_bias" if name == "bias" else name)
        repeated = tuple(n for n, size in enumerate(x.shape) if size != actual.shape[n])
        actual = actual.sum(axis=repeated, keepdims=True)  # a bias is repeated along Tq
        np.testing.assert_allclose(actual, slopes, rtol=0, atol=1e-7, err_msg=name)


def test_gradients_of_heads_add_up() -> None:
    attend, arrays, _ = CASES["heads"]
    gradients = attnlab.gradients(attend(**arrays))
    for name in ("X", "memory"):
        total = sum(getattr(head, name) for head in gradients.heads)
        np.testing.assert_allclose(total, getattr(gradients, name), rtol=0, atol=1e-12)
    for h, head in enumerate(gradients.heads):
        np.testing.assert_allclose(head.score_bias, gradients.score_bias[h], atol=1e-12)
    assert (gradients.b_K, gradients.scale) == (None, 1.3)
    assert "gradient of Σ d · output" in repr(gradients)


@pytest.mark.parametrize(
    ("edits", "changed"),
    [
        ({"X": 0.5}, {"X": np.full((2, 3, 6), 0.5)}),
        ({"memory": lambda x: 2 * x}, {"memory": 2 * CASES["heads"][1]["memory"]}),
        ({"W_V": 0.25}, {"W_V": np.full((5, 6), 0.25)}),
        ({"scale": 3}, {"scale": 3}),
        ({"score_bias": 0}, {"bias": None}),
        ({"heads.*.score_bias": 0}, {"bias": None}),
        ({"heads.0.W_Q": 0, "heads.1.W_Q": 0}, {"W_Q": np.zeros((6, 4))}),
        ({"heads.*.X": 0.5}, {"X": np.full((2, 3, 6), 0.5)}),
        ({"heads.*.scale": 3}, {"scale": 3}),
        ({"mask": True}, {"mask": None}),
        ({"dropout_mask": 1}, {"dropout": 0}),
    ],
    ids=lambda x: " ".join(x),
)
def test_an_edit_equals_other_arguments(edits: dict[str, Any], changed: dict[str, Any]) -> None:
    settings = {"mask": MASK, "scale": 1.3, "dropout": 0.25, "rng": 3}
    arguments = CASES["heads"][1] | settings
    edited = heads(**CASES["heads"][1]).edited(edits)
    other = multi_head_attention(n_head=2, **arguments | changed)
    np.testing.assert_allclose(edited.output, other.output, rtol=0, atol=1e-12)
    for head, expected in zip(edited.heads, other.heads, strict=True):
        np.testing.assert_allclose(head.context, expected.context, rtol=0, atol=1e-12)


def test_an_edit_of_one_head_changes_no_other() -> None:
    attend, arrays, _ = CASES["heads"]
    result = attend(**arrays)
    for name in ("X", "scale", "weights"):
        edited = result.edited({f"heads.1.{name}": 0.5})
        assert np.array_equal(edited.heads[0].context, result.heads[0].context)
        assert not np.allclose(edited.heads[1].context, result.heads[1].context)
        shares = sum(head.output for head in edited.heads) + result.b_O
        np.testing.assert_allclose(edited.output, shares, rtol=0, atol=1e-12)
    silent = result.edited({"heads.1.output": 0})
    np.testing.assert_allclose(silent.output, result.heads[0].output + result.b_O, atol=1e-12)


def test_a_star_stands_for_all_blocks_or_heads() -> None:
    trace = GPT2.from_pretrained("pocket").trace("The dog")
    starred = trace.edited({"blocks.*.attention.heads.*.context": 0})
    paths = [f"blocks.{layer}.attention.context" for layer in range(len(trace.blocks))]
    assert np.array_equal(starred.logits, trace.edited(dict.fromkeys(paths, 0)).logits)
    one = trace.edited({"blocks.*.attention.heads.1.weights": 0})
    assert [one.head(1, h).weights.any() for h in (0, 1)] == [True, False]
    with pytest.raises(AttnlabError, match=r"blocks\.1\.mid has two edits; one .* blocks\.1\.mid"):
        trace.edited({"blocks.*.mid": 0, "blocks.1.mid": 1})
    with pytest.raises(AttnlabError, match="isn't a step to edit"):
        trace.edited({"blocks.*.weights": 0})
    with pytest.raises(AttnlabError, match=r"'blocks\.1\*\.mid' isn't a step"):  # not block 10
        trace.edited({"blocks.1*.mid": 0})


E = np.eye(3)
HIDING = np.array([[0, -np.inf, -np.inf]])
RESULT = attention(E, E, E, mask=[[False, True, True], [True] * 3, [True] * 3], bias=[0, 0, 0])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: RESULT.edited({"score_bias": HIDING}), "mask and score_bias hide all keys .* 0"),
        (lambda: RESULT.edited({"score_bias": np.nan}), "NaN"),
        (lambda: attention(E, E, E).edited({"score_bias": 0}), "isn't a step to edit"),
        (lambda: attention(E, E, E).edited({"dropout_mask": 0}), "isn't a step to edit"),
        (lambda: self_attention(E, E, E, E).edited({"memory": 0}), "isn't a step to edit"),
        (lambda: self_attention(E, E, E, E).edited({"b_Q": 0}), "b_Q was left out"),
        (lambda: heads(**CASES["heads"][1]).heads[1].edited({"Q": 0}), r"start with heads\.1\."),
        (lambda: attnlab.gradients(attnlab.gradients(RESULT)), "can't be differentiated"),
        (lambda: attnlab.gradients(RESULT).edited({"Q": 0}), "can't be edited"),
        (lambda: attnlab.gradients(RESULT, d=[1, 2]), r"shape of context, \(3, 3\); got \(2,\)"),
        (lambda: attnlab.gradients(RESULT, d=np.nan), "d contains NaN"),
        (
            lambda: attnlab.gradients(heads(**CASES["heads"][1]).edited({"heads.1.X": 0})).X,
            "Edit the head's Q, K, V",
        ),
    ],
)
def test_what_is_refused(call: Any, message: str) -> None:
    with pytest.raises(AttnlabError, match=message):
        call()


def hidden(mask: Any, scores: Any) -> Any:
    return np.where(mask, scores, -np.inf)


# By words of a mistake's formula: masked scores, from a result and its scores with the bias added.
WITH_BIAS: dict[str, Callable[[Any, Any], Any]] = {
    "masked_scores = scores + score_bias": lambda x, biased: biased,
    "np.where(mask, scores, -np.inf)": lambda x, biased: hidden(x.mask, x.scores),
    "np.where(mask, scores - score_bias, -np.inf)": (
        lambda x, biased: hidden(x.mask, x.scores - x.score_bias)
    ),
    "np.where(mask, scores + score_bias, -5.0)": (lambda x, biased: np.where(x.mask, biased, -5)),
    "np.where(mask.swapaxes(-2, -1), scores + score_bias, -np.inf)": (
        lambda x, biased: hidden(x.mask.T, biased)
    ),
    "np.where(np.tri(T, k=1, dtype=bool), scores + score_bias, -np.inf)": (
        lambda x, biased: hidden(np.tri(6, k=1, dtype=bool), biased)
    ),
}


@pytest.mark.parametrize("formula", WITH_BIAS)
def test_check_names_mistakes_with_a_bias(formula: str) -> None:
    arrays = draw(X=(6, 8), memory=(6, 5), W_Q=(8, 4), W_K=(5, 4), W_V=(5, 3), bias=(6, 6))
    result = cross_attention(**arrays, mask=causal_mask(6), scale=2.5)
    biased = result.raw_scores / 2.5 + result.score_bias
    right, wrong = (
        softmax(x) for x in (hidden(result.mask, biased), WITH_BIAS[formula](result, biased))
    )
    assert check({"weights": right}, result).agrees
    verdict = check({"weights": wrong, "context": wrong @ result.V}, result)
    assert formula in verdict.mistakes[0].formula, verdict
    assert "scores + score_bias" in verdict.mistakes[0].lines[0]
