"""What rounding explains: runs in two precisions agree at every step, and little else does."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from conftest import MODELS, REFERENCE

import attnlab
from attnlab import GPT2, GPT2Config, Tokenizer, Trace, check
from attnlab.checking.comparison import (
    MARGIN,
    PERTURBATION,
    as_bfloat16,
    distance,
    tolerance_of,
)
from attnlab.forward.parameters import ParameterVector, parameter_count, parameter_shapes

TEXT = "The dog chased the ball, but it"
BLOCK = (
    *("attention.X", "attention.Q", "attention.K", "attention.V", "attention.raw_scores"),
    *("attention.scores", "attention.masked_scores", "attention.weights", "attention.context"),
    *("attention.concat", "attention.output", "mid", "mlp.X", "mlp.hidden", "mlp.activated"),
    *("mlp.output", "output"),
)


def steps_of(trace: Trace) -> dict[str, Any]:
    """All steps, in the order of the forward pass."""
    in_blocks = [f"blocks.{n}.{name}" for n in range(trace.config.n_layer) for name in BLOCK]
    first = ("token_embedding", "position_embedding", "embedding")
    return {path: attnlab.at(trace, path) for path in (*first, *in_blocks, "final", "logits")}


def random_model(dtype: str, std: float = 0.02, **sizes: int) -> GPT2:
    """A model with two columns of the stream much larger than the others, as in GPT-2."""
    config = GPT2Config(vocab_size=256, n_positions=400, **sizes)
    rng = np.random.default_rng(1)
    vector = rng.standard_normal(parameter_count(config)) * std
    parameters = ParameterVector(config, vector)
    for path in parameter_shapes(config):
        parameters[path][...] += path.endswith("gain")
    parameters["W_E"][:, 3] *= 30
    parameters["W_P"][0, 5] = 300
    return GPT2(ParameterVector(config, vector.astype(dtype)), Tokenizer.byte_level())


@pytest.mark.parametrize("name", [*MODELS, "pocket"])
def test_float32_and_float64_agree_at_every_step(name: str) -> None:
    source, text = name, TEXT
    if name != "pocket":
        source, text = REFERENCE / name, np.load(REFERENCE / name / "expected.npz")["ids"]
    single, double = (
        GPT2.from_pretrained(source, dtype=dtype).trace(text) for dtype in ("float32", "float64")
    )
    for mine, trace in ((single, double), (double, single)):
        verdict = check(steps_of(mine), trace)
        assert verdict.agrees
        assert [stage.path for stage in verdict.stages] == [*steps_of(trace)]
        largest = max(stage.rounding for stage in verdict.stages)
        assert 1 / 100 < largest < 1 / 4  # not too loose


@pytest.mark.parametrize("std", [0.02, 0.5])
def test_large_columns_and_sharp_scores_get_larger_tolerances(std: float) -> None:
    sizes = {"n_embd": 96, "n_layer": 6, "n_head": 3}
    single, double = (
        random_model(dtype, std, **sizes).trace(np.arange(40, 60))
        for dtype in ("float32", "float64")
    )
    verdict = check(steps_of(double), single)
    assert verdict.agrees
    # With sharp scores, float32's errors are much larger than its epsilon.
    largest = max(stage.relative for stage in verdict.stages)
    assert largest > (1e-5 if std == 0.5 else 1e-7)


def test_cancelling_sums_get_larger_tolerances() -> None:
    rng = np.random.default_rng(0)
    Q = 1000 * rng.standard_normal((5, 64))
    K = rng.standard_normal((5, 64))
    K -= Q * ((K * Q).sum(-1) / (Q * Q).sum(-1))[:, None]  # each key orthogonal to its query
    single = attnlab.attention(Q.astype("float32"), K.astype("float32"), K.astype("float32"))
    exact = attnlab.attention(*(x.astype("float32").astype("float64") for x in (Q, K, K)))
    for step in ("raw_scores", "scores"):
        (stage,) = check({step: getattr(single, step)}, exact).stages
        assert stage.agrees
        assert replace(stage, rounding=1.0).agrees
        assert not replace(stage, rounding=1.001).agrees
        difference = np.abs(getattr(single, step) - getattr(exact, step)).max()
        assert stage.difference == difference > 0


def test_a_row_with_cancelling_perturbations_gets_the_median_tolerance() -> None:
    value, by = np.full((3, 2), 7.0), PERTURBATION * np.array([[0], [1], [3]])
    within = tolerance_of(value, [value * (1 + by), value * (1 - by)], 2.0**-23)
    np.testing.assert_allclose(within, MARGIN * 2.0**-23 * 7 * (1 + np.array([[1], [1], [3]])))


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "size"), [("float32", 3e-5), ("float64", 1e-13)])
def test_differences_larger_than_rounding_are_reported(dtype: str, size: float) -> None:
    trace = GPT2.from_pretrained("pocket", dtype=dtype).trace(TEXT)
    for path in ("embedding", "blocks.0.attention.X", "blocks.1.mlp.hidden", "final"):
        expected = attnlab.at(trace, path)
        (stage,) = check({path: expected * expected.dtype.type(1 + size)}, trace).stages
        assert not stage.agrees
        assert stage.relative == pytest.approx(size, rel=0.1)
        further = trace.edited({path: lambda x: np.nextafter(x, x.dtype.type(np.inf))})
        verdict = check(steps_of(further), trace)
        assert verdict.agrees
        assert any(stage.difference for stage in verdict.stages)


def test_numbers_that_overflow_when_perturbed() -> None:
    largest = np.full((3, 2), np.finfo("float32").max)
    chain = attnlab.attention(np.eye(3, dtype="float32"), np.eye(3, dtype="float32"), largest)
    assert chain.context.dtype == "float32"
    assert check({"V": chain.V, "context": chain.context}, chain).agrees


@pytest.mark.parametrize(
    ("number", "rounded"),
    [
        *((0.1, 0.10009765625), (3.14159265, 3.140625), (-2.7182818, -2.71875)),
        *((1 + 2**-8, 1.0), (1 + 3 * 2**-8, 1 + 2**-6), (1 + 2**-8 + 2**-20, 1 + 2**-7)),  # halves
        *((-1 - 2**-8, -1.0), (255.5, 256.0), (0.0, 0.0), (-np.inf, -np.inf), (3.4e38, np.inf)),
    ],
)
def test_rounding_to_bfloat16(number: float, rounded: float) -> None:
    """As torch.tensor(number).bfloat16() does: to 8 significant bits, halves to even."""
    for dtype in ("float32", "float64"):
        found = as_bfloat16(np.array([number, 1.0], dtype))
        assert found.dtype == dtype
        assert found.tolist() == [rounded, 1.0]


def test_masked_cells_agree_whatever_the_fill_value() -> None:
    expected = np.array([[1.0, -np.inf, -np.inf], [2.0, -50.0, -np.inf]])
    mine = np.array([[1.5, -1e4, -1e9], [2.0, -np.inf, np.finfo("float32").min]])
    assert distance(mine, expected).tolist() == [[0.5, 0, 0], [0, np.inf, 0]]
    assert distance(expected - 1, expected).tolist() == [[1, 0, 0], [1, 1, 0]]
    small = np.where(np.isneginf(expected), -50.0, expected)  # whose exp isn't negligible
    assert distance(small, expected).tolist() == [[0, np.inf, np.inf], [0, 0, np.inf]]
    assert distance(np.full(2, np.nan), np.zeros(2)).tolist() == [np.inf, np.inf]
