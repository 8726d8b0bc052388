"""corpus/measures.py: measures of models compared with plain sums."""

from typing import Any

import numpy as np
import pytest
from conftest import REFERENCE

from attnlab import GPT2, Trace
from attnlab.analysis.jobs import JOBS
from attnlab.corpus.measures import MEASURES, as_measures, measure_trace
from attnlab.errors import InvalidTypeError, InvalidValueError


def test_one_token_has_no_measures() -> None:
    actual = measure_trace(GPT2.from_pretrained("pocket").trace([7]), as_measures(None))
    assert not any(numbers.divisors.any() for numbers in actual.values())


@pytest.mark.parametrize("model", ["odd", "one_head", "float64", "silu"])
def test_measures_are_sums_over_queries_of_every_head(model: str) -> None:
    opened = GPT2.from_pretrained(REFERENCE / model)
    ids = np.random.default_rng(3).integers(0, 6, opened.config.n_positions)
    trace = opened.trace(ids)
    actual = measure_trace(opened.trace(ids), as_measures(None))
    assert list(actual) == list(MEASURES)
    for name, job in JOBS.items():
        targets = np.asarray(job(trace.tokens), float)
        has_target = targets[1:].any(axis=-1).sum()
        for layer, block in enumerate(trace.blocks):
            sums = (block.attention.weights * targets)[:, 1:].sum(axis=(-2, -1))
            np.testing.assert_allclose(actual[name].sums[layer], sums, rtol=2e-4, err_msg=name)
            np.testing.assert_allclose(actual[name].divisors[layer], has_target, err_msg=name)
    assert actual["loss"].sums == pytest.approx(trace.losses.sum(), rel=1e-5)
    assert actual["loss"].divisors == len(ids) - 1


def test_only_requested_measures_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = GPT2.from_pretrained("pocket").trace("The dog chased the ball, but it")
    measure_trace(trace, as_measures(["induction"]))
    assert not trace._is_stored("final")
    assert not trace._is_stored("logits")
    assert not trace.blocks[1]._is_stored("output")
    assert not trace.blocks[0].attention._is_stored("weights")
    assert trace.blocks[0]._is_stored("output")
    only = measure_trace(trace, as_measures(["loss"]))
    assert only["loss"].sums > 0


def even(trace: Trace) -> Any:
    return np.full((2, 4), float(len(trace.tokens)))


def loss(trace: Trace) -> Any:
    return even(trace)


def some(trace: Trace) -> Any:
    return np.where(np.eye(2, 4), 3.0, np.nan)


def test_user_defined_measures() -> None:
    trace = GPT2.from_pretrained("pocket").trace([1, 2, 3])
    actual = measure_trace(trace, as_measures([even, "loss", some]))
    assert list(actual) == ["even", "loss", "some"]
    assert (actual["even"].sums == 3).all()
    assert (actual["even"].divisors == 1).all()
    assert (actual["some"].divisors == np.eye(2, 4)).all()
    assert (actual["some"].sums == 3 * np.eye(2, 4)).all()
    for result, words in (
        (lambda trace: trace.no_such_thing, "the measure mine failed: AttributeError"),
        (lambda trace: np.zeros((4, 2)), r"shape \(2, 4\), .*; got \(4, 2\)"),
        (lambda trace: np.full((2, 4), np.inf), "the measure mine isn't finite"),
    ):
        with pytest.raises(InvalidValueError, match=words):
            measure_trace(trace, {"mine": result})


def test_invalid_measures_are_refused() -> None:
    assert list(as_measures(None)) == list(MEASURES)
    assert set(JOBS) < set(MEASURES)
    for measures in ("loss", [], {"loss": 1}, 7):
        with pytest.raises(InvalidTypeError, match="a list of names and functions"):
            as_measures(measures)
    for measures, words in (
        (["sleep"], "unknown measure 'sleep'"),
        ([3], "unknown measure 3"),
        (["loss", "loss"], "two measures are called loss"),
        ([loss], "two measures are called loss"),
    ):
        with pytest.raises(InvalidValueError, match=words):
            as_measures(measures)
