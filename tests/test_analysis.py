"""Analyses against transformers with hooks, autograd and full matrices, and by hand."""

from typing import Any

import numpy as np
import pytest
from conftest import REFERENCE, needs

from attnlab import (
    GPT2,
    Trace,
)

RECORDED = np.load(REFERENCE / "analysis.npz")
TOLERANCE = {"float32": 1e-5, "float64": 1e-10}
# An untied output matrix, another activation, a scale by layer.
PLACES = ("odd", "silu", "quick_gelu")
TARGETS = (("logit", (5,)), ("difference", (7, 100, 3)))

every_model = pytest.mark.parametrize("name", PLACES)
every_dtype = pytest.mark.parametrize("dtype", TOLERANCE)


def trace_of(name: str, dtype: str = "float64") -> Trace:
    ids = np.load(REFERENCE / name / "expected.npz")["ids"]
    return GPT2.from_pretrained(REFERENCE / name, dtype=dtype).trace(ids)


def check(found: Any, name: str, dtype: str) -> None:
    """Against what was recorded, relative to its largest number."""
    wanted = RECORDED[name]
    assert np.shape(found) == wanted.shape, name
    off = np.abs(found - wanted).max()
    assert off <= TOLERANCE[dtype] * max(np.abs(wanted).max(), 1e-3), name


@pytest.fixture(scope="module")
def odd() -> Trace:
    return trace_of("odd")


@pytest.fixture(scope="module")
def pocket() -> GPT2:
    return GPT2.from_pretrained("pocket")


@pytest.fixture(scope="module")
def it(pocket: GPT2) -> Trace:
    return pocket.trace("The dog chased the ball, but it")


# ---- the logit lens --------------------------------------------------------------------------


@every_model
@every_dtype
def test_lens_against_transformers(name: str, dtype: str) -> None:
    lens = trace_of(name, dtype).logit_lens()
    logits = [lens.logits(stop)[:, ::66] for stop in lens.stops]
    check(logits, f"{name}/lens/logits", dtype)
    assert np.array_equal(lens.ids, RECORDED[f"{name}/lens/best"])
    assert (lens.ranks == 1).all()
    one = lens.of(5)
    check(one.probabilities, f"{name}/lens/probability", dtype)
    assert np.array_equal(one.ranks, RECORDED[f"{name}/lens/rank"])
    assert (one.ids == 5).all()
    top = lens.top(3, 4)
    assert np.array_equal(top.ids, RECORDED[f"{name}/lens/top"])
    assert np.array_equal(top.ids[:, 0], lens.ids[:, 4])
    assert np.allclose(top.probabilities[:, 0], lens.probabilities[:, 4], rtol=1e-5, atol=0)
    assert {x.probabilities.dtype for x in (lens, one, top)} == {np.dtype(dtype)}


def test_the_last_stop_is_what_the_model_predicts(odd: Trace) -> None:
    lens = odd.logit_lens()
    assert np.array_equal(lens.logits(lens.stops[-1]), odd.logits)
    last = lens.top(4).tokens[-1]
    assert [token.id for token in last] == [token.id for token in odd.next_tokens(4)]
    assert lens.stops[:3] == ("embedding", "blocks.0.mid", "blocks.0.output")


def test_a_long_text_through_the_lens(pocket: GPT2, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some rows at a time and all at once are the same."""
    lens = pocket.trace(np.arange(128) % 100).logit_lens()
    whole = lens.of(7)
    monkeypatch.setattr("attnlab.analysis.lens.ROWS", 50)
    parts = lens.of(7)
    assert np.array_equal(whole.ranks, parts.ranks)
    assert np.allclose(whole.probabilities, parts.probabilities, rtol=1e-4, atol=0)


def test_the_lens_as_text(it: Trace) -> None:
    lens = it.logit_lens()
    header, *stops = repr(lens).splitlines()[1:7]
    assert header.split() == [*it.tokens.symbols]
    best = it.next_tokens(1)[0]
    assert stops[-1].startswith("blocks.1.output ")
    assert stops[-1].endswith(f"  {best.symbol} {best.probability:.2f}")
    assert lens.note in repr(lens)
    assert lens.source in repr(lens)
    line = repr(lens.of(" rolled")).splitlines()[6]
    assert line.endswith(f" {best.probability:.2f} #1")
    line = repr(lens.top(2)).splitlines()[6]
    assert line.split()[:3] == ["blocks.1.output", best.symbol, f"{best.probability:.2f}"]


def test_an_edited_trace_through_the_lens(it: Trace) -> None:
    edited = it.edited({"blocks.1.attention.heads.2.context": 0})
    lens = edited.logit_lens()
    assert "edited" in lens.title
    assert np.array_equal(lens.logits("blocks.1.output"), edited.logits)
    assert np.array_equal(lens.logits("embedding"), it.logit_lens().logits("embedding"))


@pytest.mark.parametrize("name", ["id", "text", "symbol", "Token", "NextToken", "NumPy's"])
def test_a_token_by_whatever_names_it(it: Trace, name: str) -> None:
    rolled = it.next_tokens(1)[0]
    by = {
        "id": rolled.id,
        "text": " rolled",
        "symbol": "Ġrolled",
        "Token": it.vocabulary.token(rolled.id),
        "NextToken": rolled,
        "NumPy's": np.int32(rolled.id),
    }
    assert (it.logit_lens().of(by[name]).ids == rolled.id).all()


@pytest.mark.parametrize("k", [0, -1, 10_000, True, 1.5, "2"])
def test_a_k_that_is_none(it: Trace, k: Any) -> None:
    with pytest.raises(ValueError, match="k must be an integer from 1"):
        it.logit_lens().top(k)


@pytest.mark.parametrize("stop", ["blocks.0.input", "logits", 0, None])
def test_where_the_stream_does_not_stop(it: Trace, stop: Any) -> None:
    with pytest.raises(ValueError, match=r"blocks\.0\.mid"):
        it.logit_lens().logits(stop)


def test_a_picture_of_the_lens(it: Trace) -> None:
    needs("matplotlib", "plot")
    lens = it.logit_lens()
    ax = lens.plot()
    (image,) = ax.images
    assert np.allclose(image.get_array(), lens.probabilities)
    assert [text.get_text() for text in ax.get_yticklabels()] == list(lens.stops)
    assert lens.title in ax.get_title(loc="left")
