"""attention.py against PyTorch's values, published figures and invariants."""

import math
import re
from typing import Any

import numpy as np
import pytest
from conftest import REFERENCE
from numpy.typing import NDArray
from runs import stored_steps
from stand_ins import Contrary

import attnlab
from attnlab import (
    AttnlabError,
    attention,
    causal_mask,
    cross_attention,
    figures,
    merge_heads,
    multi_head_attention,
    self_attention,
    softmax,
    split_heads,
)
from attnlab.forward.attention import MultiHeadAttention
from attnlab.forward.fast import ROWS
from attnlab.views.labelled_step import labelled_step

TORCH = np.load(REFERENCE / "ops.npz")
JOURNEY = figures.load("journey")
STEPS = ("raw_scores", "scores", "masked_scores", "weights", "context")

Matrix = NDArray[np.float64]


def random(*shape: int, seed: int = 0) -> Matrix:
    return np.random.default_rng(seed).standard_normal(shape)


def test_causal_mask() -> None:
    assert causal_mask(3).tolist() == [[True, False, False], [True, True, False], [True] * 3]
    assert causal_mask(3).dtype == bool
    assert np.array_equal(causal_mask(2, 3), causal_mask(5)[3:])


def test_split_heads_takes_adjacent_columns() -> None:
    x = np.arange(2 * 3 * 10).reshape(2, 3, 10).astype(float)
    heads = split_heads(x, 5)
    assert heads.shape == (2, 5, 3, 2)
    assert (heads[1, 4] == x[1, :, 8:]).all()
    assert (merge_heads(heads) == x).all()
    with pytest.raises(AttnlabError, match=r"10 columns.*3 heads"):
        split_heads(x, 3)


def test_attention_chain_against_torch() -> None:
    result = attention(TORCH["sdpa_Q"], TORCH["sdpa_K"], TORCH["sdpa_V"], TORCH["sdpa_mask"])
    assert np.allclose(result.context, TORCH["sdpa_out"], rtol=0, atol=1e-13)


def torch_parameters() -> dict[str, Matrix]:
    names = [f"{kind}_{letter}" for letter in "QKVO" for kind in "Wb"]
    return {name: TORCH[f"mha_{name}"] for name in names}


@pytest.mark.parametrize(
    ("kind", "settings"),
    [("mha", {"mask": causal_mask(5)}), ("cross", {"memory": TORCH["cross_memory"]})],
    ids=["self", "cross"],
)
def test_multi_head_attention_against_torch(kind: str, settings: dict[str, Any]) -> None:
    result = multi_head_attention(TORCH[f"{kind}_X"], **torch_parameters(), n_head=3, **settings)
    assert np.allclose(result.weights, TORCH[f"{kind}_weights"], rtol=0, atol=1e-13)
    assert np.allclose(result.output, TORCH[f"{kind}_out"], rtol=0, atol=1e-13)


@pytest.mark.parametrize("source", ["self_attention", "self_attention_linear"])
def test_self_attention_against_recorded_figures(source: str) -> None:
    recorded = JOURNEY[source]
    parameters = {name: np.float32(recorded[name]) for name in ("W_Q", "W_K", "W_V")}
    result = self_attention(np.float32(JOURNEY["inputs"]), **parameters)
    for name in ("Q", "K", "V", "raw_scores", "scores", "weights", "context"):
        computed = getattr(result, name)
        assert computed.dtype == np.float32
        assert figures.compare(name, computed, recorded[name], 6).agrees
    if source == "self_attention_linear":
        masked = self_attention(result.X, **parameters, mask=causal_mask(6))
        for name in ("weights", "context"):
            computed = getattr(masked, name)
            assert figures.compare(name, computed, JOURNEY["causal"][name], 6).agrees


def test_dropout_scales_the_kept_weights() -> None:
    Q, K, V = random(5, 3), random(7, 3, seed=1), random(7, 2, seed=2)
    plain = attention(Q, K, V)
    assert plain.dropout_mask is None
    dropped = attention(Q, K, V, dropout=0.25, rng=3)
    kept = dropped.weights != 0
    assert 0 < kept.sum() < kept.size
    assert np.allclose(dropped.weights[kept], plain.weights[kept] / 0.75)
    assert np.allclose(dropped.context, dropped.weights @ V)
    again = attention(Q, K, V, dropout=0.25, rng=np.random.default_rng(3))
    assert (again.weights == dropped.weights).all()
    draws = [attention(Q, K, V, dropout=0.25, rng=seed).weights for seed in range(2000)]
    assert np.abs(np.mean(draws, axis=0) - plain.weights).max() < 0.05


def test_dropout_matches_the_recorded_mask() -> None:
    """PyTorch's dropout after softmax, with the mask that PyTorch drew."""
    recorded, parameters = JOURNEY["dropout"], JOURNEY["self_attention_linear"]
    kept = np.array(recorded["mask"]) != 0

    class Recorded(np.random.Generator):
        def random(self, size: Any, dtype: Any) -> Any:  # type: ignore[override]
            return np.broadcast_to(kept.astype(dtype) * 0.99, size)

    result = self_attention(
        np.float32(JOURNEY["inputs"]),
        **{name: np.float32(parameters[name]) for name in ("W_Q", "W_K", "W_V")},
        mask=causal_mask(6),
        dropout=0.5,
        rng=Recorded(np.random.PCG64()),
    )
    assert figures.compare("weights", result.weights, recorded["weights"], 6).agrees
    V = np.array(parameters["V"])
    assert np.allclose(result.context, np.array(recorded["weights"]) @ V, rtol=0, atol=1e-5)


def heads_of(T: int, **settings: Any) -> MultiHeadAttention:
    X = random(2, T, 10)
    W = {f"W_{name}": random(10, 10, seed=ord(name)) / 3 for name in "QKVO"}
    b = {f"b_{name}": random(10, seed=ord(name) + 1) for name in "QKVO"}
    return multi_head_attention(X, **W, **b, n_head=5, mask=causal_mask(T), **settings)


@pytest.mark.parametrize("dropout", [0.0, 0.25])
def test_rowwise_context_keeps_no_scores(dropout: float) -> None:
    """The context is computed in blocks of rows, from the weights if they are kept."""
    layer, again = (heads_of(2 * ROWS + 3, dropout=dropout, rng=1) for _ in range(2))
    context = layer.context
    assert not {"raw_scores", "scores", "masked_scores", "weights"} & stored_steps(layer)
    assert np.allclose(context, again.weights @ layer.V, rtol=1e-12, atol=1e-14)
    assert np.array_equal(again.context, context)
    for result in (layer, again):
        assert np.shares_memory(result.concat, result.context)


def test_headings_name_X_for_self_attention() -> None:
    layer = heads_of(4)
    assert layer._heading_of("K") == "K = X W_K + b_K, split into heads"
    assert layer.heads[0]._heading_of("V") == "V = X W_V + b_V"
    assert layer.heads[0]._heading_of("X") == "X: the input of attention"
    assert layer.heads[0]._heading_of("memory") == "memory = X"
    crossed = heads_of(4, memory=random(2, 4, 10, seed=9))
    assert crossed.heads[0]._heading_of("memory") == "memory: the attended sequence"
    assert layer._heading_of("W_K") == "W_K"
    X, memory, W = random(5, 3), random(7, 4), random(3, 2)
    crossed = cross_attention(X, memory, W, random(4, 2), random(4, 2))
    assert crossed._heading_of("K") == "K = memory W_K"


def test_a_given_scale_and_bias_are_steps() -> None:
    X, W, bias = random(4, 3), random(3, 2), -np.abs(np.subtract.outer(*[np.arange(4.0)] * 2))
    bias[1:, 0] = -np.inf
    result = self_attention(X, W, W, W, mask=causal_mask(4), scale=1, bias=bias)
    assert np.array_equal(result.scores, result.raw_scores)
    assert result._heading_of("scale") == "scale: the given divisor"
    assert result._heading_of("masked_scores") == (
        "masked_scores = scores + score_bias where the mask is True, else -inf"
    )
    assert ["score_bias", "Tq", "Tk", "4"] in [x.split()[:4] for x in repr(result).splitlines()]
    lines = str(result.explain(3, 2)).splitlines()
    assert {"  scale = 1", "  score_bias[3, 2] = -1"} <= set(lines)
    assert any(x.startswith("  mask[3, 2] is True: ") and " + (-1) = " in x for x in lines)
    row = str(result.explain(3))
    assert re.search(r"scale = 1; the row's.*scores  score_bias  masked", row, re.DOTALL)
    assert "over the 1 unmasked keys" in str(result.explain(1, 0))  # key 0 is hidden by the bias
    assert labelled_step(result, "weights").masked[1:, 0].all()
    assert "score_bias: added to scores" in result._repr_html_()
    plain = self_attention(X, W, W, W)
    assert "bias" not in f"{plain} {plain.explain(3, 2)} {plain.explain(3)}"
    crossed = cross_attention(X, X[:2], W, W, W, scale=2.5)
    assert crossed.edited({"X": 0})._heading_of("K") == "K = memory W_K"
    assert crossed._heading_of("memory") == "memory: the attended sequence"


@pytest.mark.parametrize("T", [3, 2 * ROWS + 3])
@pytest.mark.parametrize("lowest", [-np.inf, -1e9, np.finfo(np.float32).min, np.finfo(float).min])
def test_a_bias_of_lowest_numbers_is_a_mask(T: int, lowest: float) -> None:
    Q, mask = np.float32(random(T, 2)), causal_mask(T)
    result = attention(Q, Q, Q, bias=np.where(mask, 0, lowest))
    assert result.context.dtype == np.float32
    assert np.allclose(result.context, attention(Q, Q, Q, mask).context, rtol=0, atol=1e-6)


def test_dropout_factors_of_your_own() -> None:
    Q, factors = random(2, 5, 3), np.array([0.0, 2.0, 0.5, 1.0, 3.0])
    given = attention(Q, Q, Q, dropout=0.5, rng=1).edited({"dropout_mask": factors})
    assert np.allclose(given.weights, attention(Q, Q, Q).weights * factors, rtol=0, atol=1e-15)


def test_input_arrays_are_not_modified() -> None:
    Q, K, V, mask = random(5, 3), random(5, 3), random(5, 2), causal_mask(5)
    result = attention(Q, K, V, mask)
    expected = softmax(np.where(mask, Q @ K.T / np.sqrt(3), -np.inf)) @ V
    Q[:], K[:], V[:], mask[:] = 0, 0, 0, True  # they are writable, without effect on the result
    assert np.allclose(result.context, expected)
    assert not result.mask.all()
    view = V.view()
    view.flags.writeable = False
    held = attention(np.ones((5, 3)), np.ones((5, 3)), view)
    V[:] = 5
    assert (held.V == 0).all()


E5, E6, E7 = np.ones((5, 2)), np.ones((6, 2)), np.ones((5, 3))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: attention(E5, E7, E5), r"columns.*\(5, 2\).*\(5, 3\)"),
        (lambda: attention(E5, E5, E6), r"rows.*\(5, 2\).*\(6, 2\)"),
        (lambda: attention([1.0], E5, E5), "matrices"),
        (lambda: attention(np.ones((0, 2)), E5, E5), "non-empty"),
        (lambda: attention(np.ones((2, 5, 2)), np.ones((3, 5, 2)), E5), "leading axes"),
        (lambda: attention(E5, E5, E5, np.tri(5)), "boolean.*float64.*mask == 1 if 1 means"),
        (lambda: attention(E5, E5, E5, np.tri(5) - 1), "boolean.*give it as bias= instead"),
        (lambda: attention(E5, E5, E5, np.zeros((5, 5))), "boolean.*give it as bias= instead"),
        (lambda: attention(E5, E5, E5, bias=np.ones((5, 4))), r"bias must.*\(5, 5\).*\(5, 4\)"),
        (lambda: attention(E5, E5, E5, bias=[0, 0, np.nan, 0, 0]), "bias contains NaN"),
        (lambda: attention(E5, E5, E5, bias=[0, 0, np.inf, 0, 0]), "bias contains NaN or"),
        (lambda: attention(E5, E5, E5, bias=[[0], [-np.inf]] + [[0]] * 3), "all keys from query 1"),
        (lambda: attention(E5, E5, E5, scale=0), "scale must not be 0"),
        (lambda: attention(E5, E5, E5, scale=np.ones(5)), "scale must be a finite number"),
        (
            lambda: multi_head_attention(
                *[np.ones((3, 5, 2)), np.eye(2), np.eye(2), np.eye(2), np.eye(2)],
                n_head=2,
                mask=np.ones((3, 5, 5), bool),
            ),
            r"\(3, 2, 5, 5\); got shape \(3, 5, 5\).*give mask\[:, None\]",
        ),
        (lambda: attention(E5, E5, E5, np.ones((5, 4), bool)), r"\(5, 5\).*\(5, 4\)"),
        (lambda: attention(E5, E5, E5, np.ones((2, 5, 5), bool)), r"\(5, 5\).*\(2, 5, 5\)"),
        (lambda: attention(E5, E5, E5, np.arange(25).reshape(5, 5) >= 5), "all keys from query 0"),
        (lambda: attention(E5, E5, E5, dropout=1.0), r"\[0, 1\)"),
        (lambda: attention(E5, E5, E5, dropout=-0.1), r"\[0, 1\)"),
        (lambda: attention(E5 * np.nan, E5, E5).weights, "NaN"),
        (lambda: attention(E5, E5, E5, "causal"), "causal_mask"),
        (lambda: attention(E5, E5, E5, [[True], [True, False]]), "mask isn.t an array"),
        (lambda: attention(E5, E5, E5, Contrary()), "mask isn't an array of numbers"),
        (lambda: attention(E5, E5, np.where(np.eye(5, 2), np.nan, E5)), "V contains NaN"),
        (lambda: attention(np.ones((5, 2), np.longdouble), E5, E5), "64 bits"),
        (lambda: causal_mask(2, -1), "cached.*-1"),
        (lambda: attention(E5, E5, E5, dropout="0.1"), r"\[0, 1\).*'0.1'"),
        (lambda: attention(E5, E5, E5, dropout=np.ones((5, 5))), r"a number in \[0, 1\); got"),
        (lambda: attention(E5, E5, E5, dropout=0.5, rng="seed"), "seed"),
        (lambda: attention(E5, E5, E5, dropout=0.5, rng=-1), "non-negative"),
        (
            lambda: self_attention([1.0, 2.0], E5[:2], E5[:2], E5[:2]),
            "X must be a non-empty matrix",
        ),
        (lambda: self_attention(E5, None, E5[:2], E5[:2]), "W_Q"),
        (lambda: multi_head_attention(E5, E5[:2], E5[:2], E5[:2], None, n_head=1), "W_O"),
        (lambda: split_heads([1.0], 1), "H·Dh"),
        (lambda: split_heads([[1, 2]], 0), "0 heads"),
        (lambda: merge_heads([[1.0]]), "H, T, Dh"),
        (lambda: self_attention(E5, np.ones((3, 2)), E5[:2], E5[:2]), r"W_Q.*\(3, 2\)"),
        (lambda: self_attention(E5, E5[:2], E5[:2], E5[:2], b_K=[1.0]), r"b_K.*\(2,\)"),
        (lambda: cross_attention(E5, E7, E5[:2], E5[:2], E5[:2]), r"W_K.*memory"),
        (
            lambda: multi_head_attention(E5, E5[:2], E5[:2], E5[:2], np.ones((3, 2)), n_head=1),
            r"W_O.*\(3, 2\)",
        ),
        (lambda: multi_head_attention(E5, E5[:2], E5[:2], E5[:2], E5[:2], n_head=0), "n_head.*0"),
        (lambda: multi_head_attention(E5, E5[:2], E5[:2], E5[:2], E5[:2], n_head=3), "3 heads"),
        (
            lambda: multi_head_attention(E5, E5[:2], E5[:2], E7[:2], E7[:3], n_head=2),
            "3 columns.*2 heads",
        ),
    ],
)
def test_invalid_input_is_rejected(call: Any, message: str) -> None:
    with pytest.raises(AttnlabError, match=message):
        call()


def test_cross_attention_to_itself_equals_self_attention() -> None:
    X, W = random(5, 3), [random(3, 2, seed=i) for i in range(1, 4)]
    crossed = cross_attention(X, X.copy(), *W)
    assert np.array_equal(crossed.context, self_attention(X, *W).context)
    assert "memory" in repr(crossed)
    to_itself = self_attention(X, *W)
    for _ in range(2):
        assert "memory" not in repr(to_itself)
        assert to_itself.memory is to_itself.X  # now it is there, under two names


def test_public_names_exist() -> None:
    for name in attnlab.__all__:
        assert getattr(attnlab, name).__doc__, name


# Leading axes of X, of memory (None for self-attention), and the mask's and bias's shape for
# (..., H, Tq, Tk) = (..., 2, 3, 4), or (..., 2, 3, 3).
ODD_SHAPES: list[tuple[tuple[int, ...], tuple[int, ...] | None, tuple[int, ...] | None]] = [
    ((), (), None),
    ((), (), (4,)),
    ((), (), (3, 1)),
    ((), (), (2, 3, 4)),
    ((), (), (2, 1, 1)),
    ((5,), (5,), (5, 1, 3, 4)),
    ((5,), (5,), (5, 1, 1, 4)),
    ((5,), (), (2, 1, 4)),
    ((), (5,), (5, 2, 3, 4)),
    ((1, 5), (4, 1), (4, 1, 1, 3, 4)),
    ((5,), None, (5, 2, 3, 3)),
    ((5,), None, (1, 1)),
    ((2, 5), None, (3, 3)),
]


@pytest.mark.parametrize(("of_X", "of_memory", "of_mask"), ODD_SHAPES)
def test_each_sequence_of_odd_shapes_is_as_if_alone(
    of_X: Any, of_memory: Any, of_mask: Any
) -> None:
    """Dv differs from Dk; the mask's leading axes select each sequence and head."""
    X = random(*of_X, 3, 6)
    memory = X if of_memory is None else random(*of_memory, 4, 6, seed=1)
    widths = {"Q": 4, "K": 4, "V": 10, "O": 6}
    W = {f"W_{n}": random(6, w, seed=w + ord(n)) for n, w in widths.items()}
    W["W_O"] = random(10, 6, seed=2)
    W |= {f"b_{n}": random(w, seed=w) for n, w in widths.items()}
    mask, settings = None, {} if of_memory is None else {"memory": memory}
    scale, bias = math.sqrt(2), np.zeros(1)
    if of_mask is not None:
        mask = np.random.default_rng(3).random(of_mask) < 0.5
        mask[..., 0] = True
        scale, bias = 0.8, random(*of_mask, seed=4)
        settings |= {"scale": scale, "bias": bias}
    result = multi_head_attention(X, **W, n_head=2, mask=mask, **settings)
    leading = np.broadcast_shapes(X.shape[:-2], memory.shape[:-2])
    shape = (*leading, 2, 3, memory.shape[-2])
    full = np.broadcast_to(True if mask is None else mask, shape)
    added = np.broadcast_to(bias, shape)
    assert result.output.shape == (*leading, 3, 6)
    Xs, memories = (np.broadcast_to(x, (*leading, *x.shape[-2:])) for x in (X, memory))
    for index in np.ndindex(leading):
        of_scores: Any = {"scale": scale, "bias": added[index], "mask": full[index]}
        alone = multi_head_attention(Xs[index], **W, n_head=2, memory=memories[index], **of_scores)
        assert np.allclose(result.output[index], alone.output, rtol=0, atol=1e-11)
    shares = sum(head.output for head in result.heads)
    assert np.allclose(shares + W["b_O"], result.output, rtol=0, atol=1e-11)
    for h, head in enumerate(result.heads):
        assert np.array_equal(
            np.broadcast_to(head.mask, full[..., h, :, :].shape), full[..., h, :, :]
        )
        assert head.scores_shape == head.scores.shape == (*leading, 3, memory.shape[-2])
        assert repr(head)
    assert repr(result)


def test_small_numpy_integers_do_not_overflow() -> None:
    assert causal_mask(2, np.uint8(255)).shape == (2, 257)
    assert causal_mask(np.int8(100), np.int8(100)).shape == (100, 200)
    assert attnlab.split_heads(np.zeros((2, 600)), np.uint8(3)).shape == (3, 2, 200)


@pytest.mark.parametrize(
    "settings",
    [{"T": 2**62}, {"T": 10**18}, {"T": 2, "cached": 2**62}, {"T": 2**63 - 1, "cached": 9}],
)
def test_masks_too_large_for_memory(settings: dict[str, int]) -> None:
    with pytest.raises(AttnlabError, match="not enough memory for a mask of "):
        causal_mask(**settings)


@pytest.mark.parametrize("T", [0, 1.0, True, None, [3], 10**400, np.timedelta64(1, "s")], ids=str)
def test_T_and_n_head_must_be_positive_integers(T: Any) -> None:
    with pytest.raises(AttnlabError, match="T must be an integer "):
        causal_mask(T)
    X, W = random(3, 4), random(4, 4)
    with pytest.raises(AttnlabError, match="n_head must be an integer "):
        multi_head_attention(X, W, W, W, W, n_head=None if isinstance(T, float | bool) else T)
