"""The tuned lens; tests/pytorch_lens.py compares its loss and gradients with PyTorch's."""

from pathlib import Path

import numpy as np
import pytest
from conftest import REFERENCE

import attnlab
from attnlab import GPT2
from attnlab.errors import InvalidTypeError, InvalidValueError, MissingFileError, RecordingError
from attnlab.pocket.grammar import HELD_OUT_SEED
from attnlab.pocket.lens import texts_of
from attnlab.support.sealed import write_sealed
from attnlab.training.tuned_lens import POCKET_LENS, loss_and_gradients

TEXT = "The dog chased the ball, but it"


def test_the_pocket_models_lens_beats_the_logit_lens(pocket: GPT2) -> None:
    losses = attnlab.open_tuned_lens("pocket").losses(pocket, texts_of(HELD_OUT_SEED, 60))
    assert losses.stops == ("embedding", "blocks.0.output", "blocks.1.output")
    first, second, last = losses.logit - losses.tuned
    assert first > 5
    assert second > 0.5
    assert last == 0
    assert (np.diff(losses.tuned) < 0).all()
    alone = pocket.trace(texts_of(HELD_OUT_SEED, 60)[0])
    logits = alone.logits[:-1].astype(float)
    expected = np.log(np.exp(logits).sum(axis=-1)) - logits[range(len(logits)), alone.ids[1:]]
    assert losses.each[0, -1, 0] == pytest.approx(expected.mean(), abs=1e-5)
    errors = losses.each[0].std(axis=-1, ddof=1) / np.sqrt(60)
    np.testing.assert_allclose(losses.tuned_errors, errors)
    assert "Belrose" in repr(losses)
    assert POCKET_LENS.stat().st_size < 200_000


def test_training_lowers_the_loss_and_is_reproducible(pocket: GPT2, tmp_path: Path) -> None:
    texts = texts_of(3, 30)
    result, again = (
        attnlab.tuned_lens(pocket, texts, steps=8, seed=1, progress=False) for _ in range(2)
    )
    for stop in result.stops:
        np.testing.assert_array_equal(result.W[stop], again.W[stop])
    losses = result.losses(pocket, texts)
    assert (losses.tuned[:-1] < losses.logit[:-1]).all()
    result.save(tmp_path / "lens.safetensors")
    opened = attnlab.open_tuned_lens(tmp_path / "lens.safetensors")
    assert opened.stops == result.stops
    trace = pocket.trace(TEXT)
    for stop in (*result.stops, "blocks.1.output"):
        np.testing.assert_array_equal(opened.logits(trace, stop), result.logits(trace, stop))
    np.testing.assert_allclose(result.logits(trace, "blocks.1.output"), trace.logits, atol=1e-4)


def test_gradients_equal_finite_differences(pocket: GPT2) -> None:
    trace = GPT2.from_pretrained(REFERENCE / "odd", dtype="float64").trace([5, 7, 100, 3])
    D = len(trace.gain)
    rng = np.random.default_rng(0)
    W, b, x = rng.normal(size=(D, D)) * 0.1, rng.normal(size=D), trace.embedding
    right = np.exp(trace.logits) / np.exp(trace.logits).sum(axis=-1, keepdims=True)
    loss, d_W, d_b = loss_and_gradients(trace, x, W, b, right)
    step = 1e-5 * rng.normal(size=(D, D)), 1e-5 * rng.normal(size=D)
    after, before = (
        loss_and_gradients(trace, x, W + sign * step[0], b + sign * step[1], right)[0]
        for sign in (1, -1)
    )
    expected = (d_W * step[0]).sum() + (d_b * step[1]).sum()
    assert (after - before) / 2 == pytest.approx(expected, rel=1e-6)
    exact, *_ = loss_and_gradients(trace, trace.blocks[-1].output, 0 * W, 0 * b, right)
    assert exact == pytest.approx(0, abs=1e-12)
    assert loss > 0


def test_lens_of_a_text(pocket: GPT2) -> None:
    lens, trace = attnlab.open_tuned_lens("pocket"), pocket.trace(TEXT)
    result = lens.of(trace)
    assert result.ids.shape == (3, 8)
    np.testing.assert_array_equal(result.ids[-1], trace.logits.argmax(axis=-1))
    logits = lens.logits(trace, "embedding")[2].astype(float)
    probabilities = np.exp(logits) / np.exp(logits).sum()
    assert result.probabilities[0, 2] == pytest.approx(probabilities.max(), rel=1e-4)
    assert "Tuned lens: the most probable token" in repr(result)
    assert "2 maps (128 x 128)" in repr(lens)


def test_losses_are_shown_with_errors_if_there_are_several_texts(pocket: GPT2) -> None:
    lens = attnlab.open_tuned_lens("pocket")
    losses = lens.losses(pocket, [TEXT, "The cat found the kite."])
    error = abs(losses.each[0, 0, 0] - losses.each[0, 0, 1]) / 2
    assert f"{losses.tuned[0]:.3f} ± {error:.3f}" in str(losses)
    alone = lens.losses(pocket, [TEXT])
    assert np.isnan(alone.tuned_errors).all()
    assert "nan" not in str(alone)
    assert f"{alone.tuned[0]:.3f}" in str(alone)


def test_invalid_arguments(pocket: GPT2, tmp_path: Path) -> None:
    lens = attnlab.open_tuned_lens("pocket")
    odd = GPT2.from_pretrained(REFERENCE / "odd").trace([5, 7])
    with pytest.raises(InvalidValueError, match="trained for another model"):
        lens.of(odd)
    with pytest.raises(InvalidValueError, match="stop must be one of embedding"):
        lens.logits(pocket.trace(TEXT), "blocks.0.mid")
    with pytest.raises(InvalidValueError, match="has only one token"):
        lens.losses(pocket, [TEXT, "The"])
    for texts in (TEXT, [], 3, [3, 5]):
        with pytest.raises(InvalidTypeError, match="texts must be a list"):
            attnlab.tuned_lens(pocket, texts, steps=1)  # type: ignore[arg-type]
        with pytest.raises(InvalidTypeError, match="texts must be a list"):
            lens.losses(pocket, texts)  # type: ignore[arg-type]
    with pytest.raises(InvalidTypeError, match="model must be a GPT2"):
        lens.losses(None, [TEXT])  # type: ignore[arg-type]
    for trace in (TEXT, pocket, pocket.trace([TEXT])):
        with pytest.raises(InvalidTypeError, match="trace must be a Trace"):
            lens.of(trace)  # type: ignore[arg-type]
        with pytest.raises(InvalidTypeError, match="trace must be a Trace"):
            lens.logits(trace, "embedding")  # type: ignore[arg-type]
    with pytest.raises(InvalidValueError):
        attnlab.tuned_lens(pocket, [TEXT], steps=0)
    with pytest.raises(MissingFileError):
        attnlab.open_tuned_lens(tmp_path / "none")
    write_sealed(tmp_path / "empty", "1", {}, {"kind": "tuned lens"})
    with pytest.raises(RecordingError, match="no maps"):
        attnlab.open_tuned_lens(tmp_path / "empty")
    (tmp_path / "broken").write_bytes(b"not one")
    with pytest.raises(RecordingError):
        attnlab.open_tuned_lens(tmp_path / "broken")
