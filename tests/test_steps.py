"""Steps as data, their declarations, and what a run keeps and reports."""

import copy
import pickle
import pydoc
from typing import Any

import numpy as np
import pytest
from runs import stored_steps

from attnlab import (
    GPT2,
    AttnlabError,
    GPT2Config,
    attention,
    causal_mask,
    cross_attention,
    multi_head_attention,
    self_attention,
)
from attnlab.equations import Array
from attnlab.forward import ForwardPass
from attnlab.forward.attention import Attention, Head, MultiHeadAttention, SelfAttention
from attnlab.forward.fast import ROWS
from attnlab.forward.forward_pass import MLP, Block, BlockAttention
from attnlab.forward.parameters import ParameterVector, parameter_count
from attnlab.model.trace import Trace
from attnlab.steps import Result, as_data

KINDS = (Attention, SelfAttention, Head, MultiHeadAttention, BlockAttention, MLP, Block, Trace)
LENGTHS = (7, ROWS + 3)  # by the equations, and by the fast forms


def random(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape)


def heads_of(T: int, **settings: Any) -> MultiHeadAttention:
    """Three heads with Dk = 2 and Dv = 5, each with biases."""
    names, widths = ("W_Q", "W_K", "W_V"), (6, 6, 15)
    W = {name: random(4, n, seed=i) for i, (name, n) in enumerate(zip(names, widths, strict=True))}
    if "memory" in settings:
        W |= {name: random(9, n, seed=n) for name, n in (("W_K", 6), ("W_V", 15))}
    b = {f"b{name[1:]}": random(W[name].shape[1], seed=7 + i) for i, name in enumerate(names)}
    settings = {"mask": causal_mask(T)} | settings
    W_O, b_O = random(15, 4, seed=5), random(4, seed=6)
    return multi_head_attention(random(T, 4), **W, **b, W_O=W_O, b_O=b_O, n_head=3, **settings)


def test_the_graph_as_data() -> None:
    """As `as_data` says; only the first block's input differs from those of the other blocks."""
    data = as_data(GPT2.from_pretrained("pocket").trace([1, 2])._run.graph)
    assert data["blocks.#.attention.scores"] == ["scores", "", ".raw_scores", ".scale"]
    assert data["blocks.#.attention.heads.@.scale"] == ["", "shared"]
    assert [path for path in data if path.startswith("blocks.0.")] == ["blocks.0.input"]


# ---- declarations --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_help_shows_formula_and_axes(kind: type[Result]) -> None:
    assert set(kind._table_steps) <= kind.steps.keys()
    for name, step in kind.steps.items():
        assert getattr(kind, name) is step
        help_ = pydoc.render_doc(getattr(kind, name), renderer=pydoc.plaintext)
        assert f"{name} = {step.formula}" in help_ if step.formula else name in help_
        assert f"Axes: {step.axes or 'none'}" in help_


# ---- what a run keeps ----------------------------------------------------------------------------


@pytest.mark.parametrize("T", LENGTHS)
def test_heads_slice_the_layer_when_Dv_differs_from_Dk(T: int) -> None:
    layer = heads_of(T, dropout=0.5, rng=0)
    for h, head in enumerate(layer.heads):
        for name in ("Q", "K", "V", "raw_scores", "masked_scores", "weights", "context"):
            assert np.array_equal(getattr(head, name), getattr(layer, name)[h]), name
        keys, values = slice(2 * h, 2 * h + 2), slice(5 * h, 5 * h + 5)
        for name, columns in (("Q", keys), ("K", keys), ("V", values)):
            W, b = getattr(layer, f"W_{name}"), getattr(layer, f"b_{name}")
            assert np.array_equal(getattr(head, f"W_{name}"), W[:, columns])
            assert np.array_equal(getattr(head, f"b_{name}"), b[columns])
            of_head = layer.X @ W[:, columns] + b[columns]
            assert np.allclose(getattr(head, name), of_head, rtol=0, atol=1e-13)
        assert np.array_equal(head.W_O, layer.W_O[values])
        assert head.context.shape == (T, 5)
    assert layer.b_O is not None
    shares = sum(head.output for head in layer.heads)
    assert np.allclose(shares + layer.b_O, layer.output, rtol=0, atol=1e-12)


# ---- what a run reports --------------------------------------------------------------------------


def config() -> GPT2Config:
    return GPT2Config(vocab_size=256, n_positions=200, n_embd=6, n_layer=2, n_head=2)


def parameters(**changed: Any) -> ParameterVector:
    """Small random parameters, some replaced, with __ for the dots in their paths."""
    vector = np.float32(0.1 * random(parameter_count(config())))
    result = ParameterVector(config(), vector)
    for path, value in changed.items():
        result[path.replace("__", ".")][...] = value
    return result


SIGNS = np.float32([[1], [-1], [1], [1], [-1], [1]])


@pytest.mark.parametrize("T", LENGTHS)
@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"blocks__1__mlp__gain": 9, "blocks__1__mlp__W_1": 3e38 * SIGNS},
            r"^blocks.1.mlp.hidden overflows.*float64 may hold them$",
        ),
        (
            {"blocks__0__attention__b_V": 10, "blocks__0__attention__W_O": 3e38},
            r"^blocks.0.attention.output overflows",
        ),
        ({"blocks__0__attention__b_O": 3e38 * SIGNS[:, 0]}, r"^blocks.0.mlp.X overflows"),
        # x² overflows inside GELU, whose result is finite; in a long text, it is part of the output
        (
            {"blocks__0__mlp__b_1": 1e38, "blocks__0__mlp__W_1": 0, "blocks__0__mlp__W_2": 0},
            r"^blocks.0.mlp.(activated|output) overflows",
        ),
        (
            {"blocks__0__attention__W_Q": 1e30, "blocks__0__attention__W_K": 1e30},
            r"^blocks.0.attention.raw_scores overflows",
        ),
        ({"W_P": 3e38, "W_E": 3e38}, r"^embedding overflows"),
        ({"blocks__1__mlp__b_2": np.nan}, r"^blocks.1.mlp.b_2 contains NaN"),
        (
            {"blocks__1__attention__gain": np.inf},
            r"^blocks.1.attention.gain contains NaN or infinite",
        ),
        ({"bias": np.nan}, r"^bias contains NaN"),
    ],
)
def test_non_finite_numbers_are_located(T: int, changed: dict[str, Any], message: str) -> None:
    forward = ForwardPass(np.arange(T), parameters(**changed))
    with pytest.raises(AttnlabError, match=message):
        _ = forward.logits
    before = stored_steps(forward)
    with pytest.raises(AttnlabError, match=message):
        _ = forward.logits
    assert stored_steps(forward) == before


@pytest.mark.parametrize("T", LENGTHS)
def test_non_finite_numbers_of_a_head_are_located(T: int) -> None:
    W = np.ones((2, 2), np.float32)
    head = multi_head_attention(np.ones((T, 2), np.float32), W, W, W, W * 3e38, n_head=1).heads[0]
    with pytest.raises(AttnlabError, match=r"^heads.0.output overflows"):
        _ = head.output
    assert np.allclose(head.weights, 1 / T)


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_a_masked_score_of_minus_infinity_is_accepted(bad: float) -> None:
    """The error names the step of the first fault, before the masked scores."""
    X = np.full((3, 1), 1e30, np.float32)
    W = np.ones((1, 1), np.float32)
    with pytest.raises(AttnlabError, match=r"^raw_scores overflows"):
        _ = self_attention(X, W, W, W, mask=causal_mask(3)).context
    with pytest.raises(AttnlabError, match=r"^memory contains NaN or infinite"):
        _ = cross_attention(X, np.float32([[1.0], [bad]]), W, W, W).context


@pytest.mark.parametrize("flags", [True, False])
@pytest.mark.parametrize("value", [1.0, np.inf])
def test_overflowing_products_are_reported(
    monkeypatch: pytest.MonkeyPatch, value: float, flags: bool
) -> None:
    """Some BLAS libraries raise spurious floating-point flags, and some raise none."""

    def product(weights: Array, V: Array) -> Array:
        if flags and np.geterr()["invalid"] == "raise":
            raise FloatingPointError("invalid value encountered in matmul")
        return np.full((2, 2), value)

    monkeypatch.setattr(Attention.context, "equation", product)
    result = attention(np.eye(2), np.eye(2), np.eye(2))
    if value == 1.0:
        assert result.context.tolist() == [[1, 1], [1, 1]]
        return
    with pytest.raises(AttnlabError, match=r"^context overflows"):
        _ = result.context


def test_copies_of_results_keep_titles(odd: GPT2) -> None:
    heads = odd.trace("the hen").blocks[1].attention.heads
    for copied in (copy.copy(heads), copy.deepcopy(heads), pickle.loads(pickle.dumps(heads))):
        assert [head.title for head in copied] == [head.title for head in heads]
        assert repr(copied) == repr(heads)
        with pytest.raises(AttnlabError, match="no head 5; heads are 0 to 4"):
            copied[5]


@pytest.mark.parametrize("name", ["z", "", 5, None, ["weights"], np.arange(3), {}, iter("weights")])
def test_invalid_step_names(odd: GPT2, name: Any) -> None:
    trace = odd.trace("the hen")
    results = (trace, trace.blocks[0], trace.blocks[0].attention, trace.head(0, 0), heads_of(3))
    for result in results:
        for call in (
            *(result.axes_of, result.formula_of, result._heading_of),
            *(result._is_stored, result.is_edited, result.unedited),
        ):
            with pytest.raises(AttnlabError, match=r"has no step .*; its steps are "):
                call(name)
