"""Functions of arrays, compared with PyTorch, hand-worked values and invariants."""

import decimal
import math
from typing import Any

import numpy as np
import pytest
from conftest import REFERENCE
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from stand_ins import Contrary

from attnlab import (
    GPT2,
    AttnlabError,
    attention,
    cross_attention,
    layer_norm,
    multi_head_attention,
    self_attention,
    softmax,
    split_heads,
)
from attnlab.equations import Array, affine, gelu
from attnlab.errors import InvalidTypeError
from attnlab.forward.attention import Attention
from attnlab.views.labelled_step import labelled_step

TORCH = np.load(REFERENCE / "ops.npz")

floats = arrays(
    np.float64, array_shapes(min_dims=1, max_dims=4, max_side=5), elements=st.floats(-1e3, 1e3)
)


def test_against_torch() -> None:
    assert np.allclose(softmax(TORCH["softmax_in"]), TORCH["softmax_out"], rtol=1e-12, atol=1e-15)
    normalised = layer_norm(
        TORCH["layer_norm_in"], TORCH["layer_norm_gain"], TORCH["layer_norm_bias"]
    )
    assert np.allclose(normalised, TORCH["layer_norm_out"], rtol=1e-10, atol=1e-12)
    assert np.allclose(gelu(TORCH["gelu_in"]), TORCH["gelu_out"], rtol=0, atol=1e-14)
    mapped = affine(TORCH["linear_in"], TORCH["linear_W"], TORCH["linear_b"])
    assert np.allclose(mapped, TORCH["linear_out"], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dtypes(dtype: type) -> None:
    """Kept; narrower numbers become float32, and integers float64."""
    x = np.linspace(-3, 3, 10, dtype=dtype).reshape(2, 5)
    ones = np.ones(5, dtype)
    for result in (softmax(x), layer_norm(x, ones, ones)):
        assert result.dtype == dtype
    assert softmax(x.astype(np.float16 if dtype is np.float32 else int)).dtype == dtype


def test_empty_axes_and_no_axes() -> None:
    with pytest.raises(AttnlabError, match="0 columns can't be split into 9223372036854775808"):
        split_heads(np.zeros((3, 0)), 2**63)
    assert split_heads(np.zeros((3, 0)), 1).shape == (1, 3, 0)
    # x Φ(x) at 2 is 1.954500; the tanh form is 1.954598
    assert gelu(np.array(2.0)) == pytest.approx(1.954598, abs=1e-6)


def test_softmax_by_hand() -> None:
    # 1.0, 0.5, 0.1: e^1 = 2.7183, e^0.5 = 1.6487, e^0.1 = 1.1052, sum 5.4722
    assert softmax([1.0, 0.5, 0.1]) == pytest.approx([0.49675, 0.30129, 0.20196], abs=1e-5)
    largest = float(np.finfo(np.float32).max)
    assert softmax(np.float32([largest, -largest, largest])).tolist() == [0.5, 0, 0.5]
    assert softmax([1e4, 1e4 - math.log(3)]) == pytest.approx([0.75, 0.25])
    assert softmax([-math.inf, 5.0, -math.inf]).tolist() == [0, 1, 0]
    columns = softmax([[0.0, 2.0], [math.log(3), 2.0]], axis=0)
    assert columns == pytest.approx(np.array([[0.25, 0.5], [0.75, 0.5]]))
    x = np.arange(24.0).reshape(2, 3, 4) % 5
    for axis in (0, 1, 2, -3, -2):
        assert softmax(x, axis) == pytest.approx(np.exp(x) / np.exp(x).sum(axis, keepdims=True))


def test_layer_norm_by_hand() -> None:
    # mean 2, variance (1 + 0 + 1) / 3
    unit = 1 / math.sqrt(2 / 3)
    result = layer_norm([1.0, 2.0, 3.0], [1.0, 10.0, 2.0], [0.5, 7.0, 0.0], eps=0.0)
    assert result == pytest.approx([0.5 - unit, 7.0, 2 * unit])
    x = np.float32([[1, 2, 4]])
    normalised = layer_norm(x, np.ones(3, "f4"), np.zeros(3, "f4"), np.array(0.5))
    # By hand: the mean is 7/3, the variance 14/9.
    assert np.allclose(normalised, (x - 7 / 3) / math.sqrt(14 / 9 + 0.5))
    assert normalised.dtype == np.float32


@pytest.mark.parametrize(("dtype", "large"), [("float32", 1e20), ("float64", 1e200)])
def test_layer_norm_of_huge_numbers(dtype: str, large: float) -> None:
    """Refused, but right in a wider dtype."""
    x, ones, zeros = np.array([large, -large, 0], dtype), np.ones(3, dtype), np.zeros(3, dtype)
    hint = r"; float64 may hold them" if dtype == "float32" else ""
    with pytest.raises(
        AttnlabError, match=f"layer_norm overflows: .* too large for {dtype}{hint}$"
    ):
        layer_norm(x, ones, zeros)
    wide = layer_norm([1e20, -1e20, 0], ones, zeros)
    assert np.allclose(wide, np.array([1, -1, 0]) * 1.5**0.5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: layer_norm(np.ones((2, 3)), np.ones(3), np.ones(2)), r"\(3,\) and \(2,\)"),
        (lambda: softmax([[1.0], [1.0, 2.0]]), "isn't an array"),
        (lambda: softmax([1j]), "complex"),
        (lambda: softmax([True]), "bool"),
        (lambda: softmax(Contrary()), "x isn't an array of numbers"),
        (lambda: softmax([[1.0, 2.0], [-math.inf, -math.inf]]), "only -inf"),
        (lambda: softmax([1.0, math.nan]), "NaN"),
        (lambda: softmax([1.0, 2.0], axis=1), "axis 1 is out of range; axes are 0 to 0"),
        (lambda: softmax([1.0, math.inf]), r"\+inf"),
        *((lambda x=x: softmax(x), "non-empty rows") for x in ([], 3.0)),
    ],
)
def test_invalid_input_is_rejected(call: object, message: str) -> None:
    with pytest.raises(AttnlabError, match=message):
        call()


@given(floats)
def test_softmax_is_normalized_and_shift_invariant(x: Array) -> None:
    weights = softmax(x)
    assert weights.shape == x.shape
    assert (weights >= 0).all()
    assert np.allclose(weights.sum(axis=-1), 1)
    assert np.allclose(weights, softmax(x + 7.0))


@pytest.mark.parametrize(
    "eps",
    [
        *(-5.0, math.nan, math.inf, 10**400, True, None, "a", np.str_("a"), 1j, decimal.Decimal(1)),
        *([1.0], [[]], np.ones((3, 3)), np.ma.masked_equal(1e-5, 1e-5), np.timedelta64(1, "s")),
    ],
    ids=str,
)
def test_epsilon_is_a_number(eps: Any) -> None:
    with pytest.raises(AttnlabError, match="eps must be a number of at least 0; got "):
        layer_norm(np.eye(3), np.ones(3), np.ones(3), eps)


def test_masked_cells_are_rejected() -> None:
    """NumPy's masked arrays, which np.asarray silently converts with their masked cells."""
    x = np.ma.masked_equal(np.arange(6.0).reshape(2, 3), 4)
    mask = np.ma.masked_array(np.ones((2, 2), bool), mask=np.eye(2))
    for call, array in (
        (softmax, x),
        (lambda x: attention(x, x, x), x),
        (lambda mask: attention(*np.ones((3, 2, 2)), mask=mask), mask),
    ):
        with pytest.raises(InvalidTypeError, match="has masked cells"):
            call(array)
        call(array.filled(0) if array is x else array.data)
        call(np.ma.masked_array(array.data))  # none is masked


# ---- names of rows -------------------------------------------------------------------------------


def labels(result: Attention, name: str = "weights") -> list[tuple[str, ...]]:
    return [axis.labels for axis in labelled_step(result, name).axes]


def matrices(Tq: int, Tk: int) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(Tq, 3)), rng.normal(size=(Tk, 3)), rng.normal(size=(3, 3, 3))


def test_tokens_label_rows_of_your_own_matrices() -> None:
    X, memory, W = matrices(3, 2)
    cats, dogs = ("猫", "吃", "鱼"), ("dog", " eats")
    result = self_attention(X, *W, tokens=cats)
    assert labels(result) == [cats, cats]
    assert labels(result, "K") == [cats, ("0", "1", "2")]
    assert list(result.to_dataframe().index.get_level_values(1)) == list(cats)
    assert "query 1 (吃)" in repr(result.explain(1))
    assert "猫" in result._repr_html_()
    other = cross_attention(X, memory, *W, tokens=cats, memory_tokens=dogs)
    assert labels(other) == [cats, dogs]
    assert labels(other, "V")[0] == labels(other, "memory")[0] == dogs
    of_keys = cross_attention(X, memory, *W, memory_tokens=list(dogs))
    assert labels(of_keys) == [("0", "1", "2"), dogs]


def test_query_labels_apply_to_keys_only_in_self_attention() -> None:
    X, memory, W = matrices(2, 2)
    names, positions = ("a", "b"), ("0", "1")
    assert labels(cross_attention(X, memory, *W, tokens=names)) == [names, positions]
    assert labels(attention(X, memory, memory, tokens=names)) == [names, names]
    assert labels(attention(X[:1], memory, memory, tokens=["a"])) == [("a",), positions]
    heads = multi_head_attention(X, *W, W[0], n_head=3, tokens=names).heads
    assert labels(heads[2]) == [names, names]
    memory_of = multi_head_attention(
        X, *W, W[0], n_head=3, memory=memory, tokens=names, memory_tokens=("c", "d")
    )
    assert labels(memory_of.heads[0]) == [names, ("c", "d")]
    trace = GPT2.from_pretrained("pocket").trace("The dog")
    head = trace.head(0, 0)
    again = attention(head.Q, head.K, head.V, head.mask, tokens=trace.tokens)
    assert again.tokens is trace.tokens
    assert labels(again) == labels(head)


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (["a"], "tokens must be 3 texts, one per query; got 1"),
        ("abc", "tokens must be 3 texts, one per query; got 1"),
        ([1, 0, 3], r"tokens must be a text or a list of texts; got \[1, 0, 3\]"),
        (5, "got 5"),
    ],
)
def test_tokens_of_the_wrong_length_are_rejected(tokens: Any, message: str) -> None:
    X, memory, W = matrices(3, 2)
    with pytest.raises(AttnlabError, match=message):
        self_attention(X, *W, tokens=tokens)
    pattern = (
        message.replace("3 t", "2 t").replace("query", "key").replace("tokens", "memory_tokens")
    )
    with pytest.raises(AttnlabError, match=pattern):
        cross_attention(X, memory, *W, memory_tokens=tokens)
