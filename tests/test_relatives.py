"""Variants of GPT-2: other activation functions, other scales, an untied output matrix."""

import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import REFERENCE, RELATIVES
from runs import needs_of
from safetensors.numpy import load_file

from attnlab import GPT2, GPT2Config, Tokenizer
from attnlab.equations import exact_gelu, gelu, quick_gelu
from attnlab.erf import THRESHOLD, erf
from attnlab.forward.config import ACTIVATIONS
from attnlab.forward.parameters import ParameterVector, parameter_count

RECORDED = np.load(REFERENCE / "activations.npz")
SIZES: dict[str, Any] = {"vocab_size": 256, "n_positions": 300, "n_embd": 15, "n_layer": 3}


def config_of(**settings: Any) -> GPT2Config:
    return GPT2Config(**SIZES | {"n_head": 3} | settings)


def model_of(dtype: str = "float64", **settings: Any) -> GPT2:
    """A model with random parameters."""
    config = config_of(**settings)
    parameters = ParameterVector(config, dtype=dtype)
    parameters.vector[:] = np.random.default_rng(1).standard_normal(parameters.vector.size)
    return GPT2(parameters, Tokenizer.byte_level())


@pytest.mark.parametrize(("dtype", "bound"), [("float64", 1e-15), ("float32", 4e-7)])
def test_erf_is_within_its_bound_of_the_c_librarys(dtype: str, bound: float) -> None:
    rng = np.random.default_rng(0)
    bounds = np.array([0, THRESHOLD, -THRESHOLD, 4, 6, -6])
    x = np.concatenate(
        [
            np.linspace(-7, 7, 300_001),
            rng.standard_normal(200_000),
            rng.uniform(-1, 1, 200_000),
            10.0 ** rng.uniform(-300, 30, 100_000),
            bounds,
            np.nextafter(bounds, 9),
            np.nextafter(bounds, -9),
        ]
    ).astype(dtype)
    exact = np.fromiter(map(math.erf, x.tolist()), np.float64, x.size)
    assert erf(x).dtype == dtype
    assert np.abs(erf(x) - exact).max() <= bound


def test_erf_and_the_errors_of_gelus_approximations() -> None:
    x = np.array([0.0, -0.0, 1e-320, 0.3, 2.0, 5.0, 30.0, 1e300, math.inf])
    assert np.array_equal(erf(-x), -erf(x))
    assert erf(x[-3:]).tolist() == [1, 1, 1]
    assert math.copysign(1, erf(np.array([-0.0]))[0]) == -1
    assert np.isnan(erf(np.array([math.nan]))[0])
    assert set(RECORDED) == {"in", *ACTIVATIONS}
    x = np.linspace(-8, 8, 160_001)
    assert 4e-4 < np.abs(gelu(x) - exact_gelu(x)).max() < 5e-4
    assert 1.9e-2 < np.abs(quick_gelu(x) - exact_gelu(x)).max() < 2.1e-2


# Activations


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-11), ("float32", 1e-6)])
def test_activations_equal_those_of_transformers(name: str, dtype: str, tolerance: float) -> None:
    x = RECORDED["in"].astype(dtype)
    with np.errstate(over="raise", invalid="raise"):
        y = ACTIVATIONS[name].function(x)
    assert y.dtype == dtype
    assert np.allclose(y, RECORDED[name], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", ["gelu_new", "gelu", "quick_gelu", "relu", "silu"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_activation_of_long_texts(name: str, dtype: str) -> None:
    """The fast forms, with F-wide steps kept or not, compared with the equations."""
    model = model_of(dtype, activation_function=name, n_inner=19)
    ids = np.arange(250)
    kept, passing = (model.trace(ids).blocks[0].mlp for _ in range(2))
    expected = ACTIVATIONS[name].function(kept.hidden)
    tolerance = {"float32": 1e-4, "float64": 1e-11}[dtype]
    assert np.allclose(kept.activated, expected, rtol=tolerance, atol=tolerance)
    expected = expected @ kept.W_2 + kept.b_2
    for output in (kept.output, passing.output):
        assert output.dtype == dtype
        assert np.allclose(output, expected, rtol=tolerance, atol=tolerance)
    assert np.array_equal(kept.hidden, kept.X @ kept.W_1 + kept.b_1), "changed in place"


def test_activations_are_named_in_words() -> None:
    formulas = {
        name: GPT2.from_pretrained(REFERENCE / name).trace("the hen").blocks[0].mlp
        for name in RELATIVES
    }
    assert {name: mlp.formula_of("activated") for name, mlp in formulas.items()} == {
        "gelu": "exact GELU(hidden)",
        "relu": "ReLU(hidden)",
        "silu": "SiLU(hidden)",
        "quick_gelu": "quick GELU(hidden)",
        "gelu_fast": "GELU(hidden)",
        "reordered": "GELU(hidden)",
    }
    assert formulas["relu"].activation is ACTIVATIONS["relu"].function


@pytest.mark.parametrize(
    ("settings", "formula", "scales"),
    [
        ({}, "√Dk", [math.sqrt(5)] * 3),
        ({"scale_attn_weights": False}, "1", [1.0] * 3),
        (
            {"scale_attn_by_inverse_layer_idx": True},
            "√Dk · (layer + 1)",
            [math.sqrt(5), math.sqrt(5) * 2, math.sqrt(5) * 3],
        ),
        (
            {"scale_attn_by_inverse_layer_idx": True, "scale_attn_weights": False},
            "(layer + 1)",
            [1.0, 2.0, 3.0],
        ),
        ({"reorder_and_upcast_attn": True}, "√Dk", [math.sqrt(5)] * 3),
    ],
)
def test_score_scales(settings: dict[str, Any], formula: str, scales: list[float]) -> None:
    trace = model_of(**settings).trace("hen")
    for block, scale in zip(trace.blocks, scales, strict=True):
        head = block.attention.heads[1]
        for attention in (block.attention, head):
            assert attention.scale == scale
            assert type(attention.scale) is float
            assert attention.formula_of("scale") == formula
            assert attention._heading_of("scale") == f"scale = {formula}"
        assert np.allclose(head.scores, head.Q @ head.K.T / scale, rtol=1e-12)


# An untied output matrix


def test_untied_and_tied_output_matrices() -> None:
    model = GPT2.from_pretrained(REFERENCE / "silu")
    stored = load_file(REFERENCE / "silu" / "model.safetensors")
    assert parameter_count(model.config) == sum(tensor.size for tensor in stored.values())
    trace = model.trace([3, 4, 5])
    assert np.array_equal(trace.W_U, stored["lm_head.weight"].T)
    assert np.array_equal(trace.W_E, stored["transformer.wte.weight"])
    assert not np.array_equal(trace.W_U, trace.W_E.T)
    assert np.allclose(trace.logits, trace.final @ stored["lm_head.weight"].T, rtol=1e-4, atol=1e-4)
    order = list(model.parameters)
    assert order[:3] == ["W_E", "W_P", "blocks.0.attention.gain"]
    assert order[-3:] == ["gain", "bias", "W_U"]
    assert np.shares_memory(trace.W_U, model.parameters["W_U"])
    assert not trace.W_U.flags.writeable
    assert trace._heading_of("W_U") == "W_U: the output matrix, not tied to W_E"
    assert needs_of(trace, "W_U") == ()
    for model in (model_of(), GPT2.from_pretrained(REFERENCE / "relu")):
        trace = model.trace([3, 4, 5])
        assert np.shares_memory(trace.W_U, model.parameters["W_E"])
        assert np.array_equal(trace.W_U, trace.W_E.T)
        assert trace._heading_of("W_U") == "W_U = W_Eᵀ"
        assert needs_of(trace, "W_U") == ("W_E",)
        assert "W_U" not in model.parameters


@pytest.mark.parametrize("name", RELATIVES)
def test_saved_variants_open_unchanged(name: str, tmp_path: Path) -> None:
    model = GPT2.from_pretrained(REFERENCE / name)
    model.save(tmp_path)
    again = GPT2.from_pretrained(tmp_path)
    assert again.config == model.config
    assert np.array_equal(again.trace([7, 8, 9]).logits, model.trace([7, 8, 9]).logits)
    stored = load_file(tmp_path / "model.safetensors")
    assert ("lm_head.weight" in stored) == (name == "silu")


def test_unpickled_traces_of_variants_can_compute() -> None:
    trace = GPT2.from_pretrained(REFERENCE / "silu").trace([7, 8, 9])
    assert trace.blocks[0].attention.scale == math.sqrt(3)
    again = pickle.loads(pickle.dumps(trace))
    assert np.array_equal(again.logits, trace.logits)
    assert again.formula_of("W_U") == trace.formula_of("W_U")
    assert again.blocks[1].mlp.formula_of("activated") == "SiLU(hidden)"


def test_tied_and_untied_traces_coexist() -> None:
    """Data shared by all models of one config isn't shared between these."""
    for tie in (True, False, True):
        trace = model_of(tie_word_embeddings=tie).trace([7, 8])
        assert needs_of(trace, "W_U") == (("W_E",) if tie else ())
        assert np.isfinite(trace.logits).all()
        assert np.array_equal(trace.W_U, trace.W_E.T) == tie
        # If the two are tied, an edit changes both.
        assert (trace.edited({"W_E": 0.0}).W_U == 0).all() == tie
