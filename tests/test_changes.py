"""Which parts of a model changed: against models whose parts are swapped in their files."""

from typing import Any

import numpy as np
import pytest
from conftest import REFERENCE
from safetensors.numpy import load_file

import attnlab
from attnlab import GPT2
from attnlab.errors import InvalidTypeError, InvalidValueError

TEXTS = ["the hen", "a thin inn", "the hen in a thin inn"]


@pytest.fixture(scope="module")
def odd() -> GPT2:
    return GPT2.from_pretrained(REFERENCE / "odd", dtype="float64")


@pytest.fixture(scope="module")
def arrays() -> dict[str, Any]:
    stored = load_file(REFERENCE / "odd" / "model.safetensors")
    return {name: array.astype(np.float64) for name, array in stored.items()}


def with_arrays(odd: GPT2, arrays: dict[str, Any]) -> GPT2:
    return GPT2.from_arrays(odd.config, arrays, odd.tokenizer, dtype="float64")


def with_noise(odd: GPT2, arrays: dict[str, Any], head: bool, mlp: bool) -> GPT2:
    """A model with noise in head 1.2's values and output, or in MLP 0, or in both."""
    rng, result = np.random.default_rng(0), {name: array.copy() for name, array in arrays.items()}
    names = {name.removeprefix("transformer."): name for name in result}
    D, H = odd.config.n_embd, odd.config.n_head
    columns = slice(2 * D + 2 * (D // H), 2 * D + 3 * (D // H))
    noise = rng.normal(size=(D, D // H)), rng.normal(size=(D // H, D))
    if head:
        result[names["h.1.attn.c_attn.weight"]][:, columns] += 0.5 * noise[0]
        result[names["h.1.attn.c_proj.weight"]][2 * (D // H) : 3 * (D // H)] += 0.5 * noise[1]
    if mlp:
        weight = result[names["h.0.mlp.c_proj.weight"]]
        weight += 0.2 * np.random.default_rng(1).normal(size=weight.shape)
    return with_arrays(odd, result)


def divergences(base: GPT2, other: GPT2) -> Any:
    """The mean over positions of Σ p log(p / q) of each text."""
    result = []
    for text in TEXTS:
        p, q = (np.exp(model.trace(text).logits) for model in (base, other))
        p, q = (x / x.sum(axis=-1, keepdims=True) for x in (p, q))
        result.append((p * np.log(p / q)).sum(axis=-1).mean())
    return np.array(result)


def test_swapping_one_part_of_a_model(odd: GPT2, arrays: dict[str, Any]) -> None:
    tuned = with_noise(odd, arrays, head=True, mlp=True)
    comparison = attnlab.compare(odd, tuned, TEXTS, progress=False)
    before = divergences(odd, tuned)
    np.testing.assert_allclose(comparison.before, before, atol=1e-12)
    rows = {part: comparison.divergences[:, n] for n, part in enumerate(comparison.parts)}
    without_head = divergences(odd, with_noise(odd, arrays, head=False, mlp=True))
    without_mlp = divergences(odd, with_noise(odd, arrays, head=True, mlp=False))
    np.testing.assert_allclose(rows["layer 1 head 2"], without_head, atol=1e-12)
    np.testing.assert_allclose(rows["layer 0 MLP"], without_mlp, atol=1e-12)
    for part, row in rows.items():
        if part not in ("layer 1 head 2", "layer 0 MLP"):
            np.testing.assert_array_equal(row, comparison.before)
    restored = dict(zip(comparison.parts, comparison.restored, strict=True))
    expected = 1 - without_head.sum() / before.sum()
    assert restored["layer 1 head 2"] == pytest.approx(expected)
    residuals = before - without_head - expected * before
    error = np.sqrt((residuals**2).sum() / 6) / before.mean()
    errors = dict(zip(comparison.parts, comparison.standard_errors, strict=True))
    assert errors["layer 1 head 2"] == pytest.approx(error)
    assert {part for part, *_ in comparison.ranked()[:2]} == {"layer 1 head 2", "layer 0 MLP"}
    for shown in ("layer 1 head 2", "± standard error", "nats per token", "3 texts"):
        assert shown in repr(comparison)


def test_swapping_every_part_gives_the_other_model(odd: GPT2, arrays: dict[str, Any]) -> None:
    """All parameters differ, so that a part left out of the list would show."""
    from attnlab.checking.changes import divergence, log_probabilities, swaps_of

    rng = np.random.default_rng(0)
    noisy = {name: x + 0.05 * rng.normal(size=x.shape) for name, x in arrays.items()}
    tuned = with_arrays(odd, noisy)
    base, changed_trace = (model.trace(TEXTS[2]) for model in (odd, tuned))
    swaps = swaps_of(base, changed_trace)
    assert all(swaps.values())
    edits = {path: value for some in swaps.values() for path, value in some.items()}
    whole = log_probabilities(changed_trace.edited(edits))
    assert divergence(log_probabilities(base), whole) == pytest.approx(0, abs=1e-12)


def test_changes_rejects_invalid_arguments(odd: GPT2, arrays: dict[str, Any]) -> None:
    tuned = with_noise(odd, arrays, head=True, mlp=False)
    with pytest.raises(InvalidValueError, match="nothing changed"):
        attnlab.compare(odd, odd, TEXTS, progress=False)
    with pytest.raises(InvalidTypeError, match="each of two models"):
        attnlab.compare(odd, odd.trace(TEXTS[0]), TEXTS)  # type: ignore[call-overload]
    for texts in (None, [], "the hen"):
        with pytest.raises(InvalidTypeError, match="texts must be a list"):
            attnlab.compare(odd, tuned, texts)  # type: ignore[call-overload]
    pocket = GPT2.from_pretrained("pocket")
    with pytest.raises(InvalidValueError, match="the same config"):
        attnlab.compare(odd, pocket, TEXTS)
