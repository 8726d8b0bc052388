"""Each step of a trace equals its equation in equations.py, and so does each fast form."""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from conftest import MODELS, REFERENCE, RELATIVES
from runs import every_step, needs_of

from attnlab import (
    GPT2,
    GPT2Config,
    at,
    attention,
    causal_mask,
    cross_attention,
    equations,
    multi_head_attention,
    self_attention,
)
from attnlab.equations import Array, Mask
from attnlab.forward import ForwardPass, fast
from attnlab.forward.attention import Head
from attnlab.forward.parameters import ParameterVector, parameter_count
from attnlab.steps import Result

TOLERANCE = {np.float32: 2e-6, np.float64: 1e-14}


def of_head(whole: Any, name: str, h: int, H: int) -> Any:
    """A head's part of its layer's step: all, rows, columns, or its own matrix."""
    if name in ("X", "memory", "mask", "scale"):
        return whole
    if name.startswith(("W_", "b_")):
        return np.split(whole, H, axis=0 if name == "W_O" else -1)[h]
    return whole[h]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", [*MODELS, *RELATIVES])
def test_each_step_equals_its_equation_applied_to_its_inputs(name: str, dtype: str) -> None:
    """Bit for bit, from the equations alone."""
    model, count = GPT2.from_pretrained(REFERENCE / name, dtype=dtype), 0
    trace = model.trace(np.load(REFERENCE / name / "expected.npz")["ids"])
    for result, step in every_step(trace):
        path, actual = f"{result._prefix}{step}", getattr(result, step)
        equation, needed = result.steps[step].equation, needs_of(trace, path)
        if isinstance(actual, np.ndarray) and actual.dtype.kind == "f":
            assert actual.dtype == dtype, path
        if isinstance(result, Head) and actual is not None and step != "output":
            layer, h = result.path.rsplit(".heads.")
            whole = at(trace, f"{layer}.{step}")
            assert np.array_equal(actual, of_head(whole, step, int(h), model.config.n_head)), path
        elif equation is not None and needed:  # an untied output matrix is given
            expected = equation(*(at(trace, p) for p in needed))
            if step in "QKV":  # one product for all three, which a BLAS may round otherwise
                assert np.allclose(actual, expected, rtol=0, atol=10 * np.finfo(dtype).eps), path
            else:
                assert np.array_equal(actual, expected), path
            count += 1
    assert count > 50


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", [*MODELS, "gelu"])
def test_gpt2_composed_equals_the_trace(name: str, dtype: str) -> None:
    """The trace multiplies W_Q, W_K and W_V at once, so the last bits may differ."""
    model = GPT2.from_pretrained(REFERENCE / name, dtype=dtype)
    config, ids = model.config, np.load(REFERENCE / name / "expected.npz")["ids"]
    sizes = config.n_head, config.n_layer, config.layer_norm_epsilon, config.activation.function
    logits = equations.gpt2(ids, model.parameters, *sizes)
    expected = model.trace(ids).logits
    tolerance = 100 * np.finfo(dtype).eps * np.abs(expected).max()
    assert np.allclose(logits, expected, rtol=0, atol=tolerance)


# ---- the fast forms ------------------------------------------------------------------------------

LENGTHS = (1, 2, 127, 128, 129, 200, 256, 257)
LEADING = ((), (3,), (2, 3))


def draw(*shape: int, dtype: Any = np.float64, seed: int = 0) -> Any:
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape).astype(dtype)


def close(actual: Array, expected: Array, dtype: Any) -> bool:
    """Equal up to rounding, relative to the largest number that is summed."""
    assert actual.dtype == expected.dtype == dtype
    assert actual.shape == expected.shape
    noise = TOLERANCE[dtype] * max(1.0, float(np.abs(expected).max()))
    return np.allclose(actual, expected, rtol=TOLERANCE[dtype], atol=noise)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("leading", LEADING)
@pytest.mark.parametrize("T", LENGTHS)
def test_fast_forms_of_rows(T: int, leading: tuple[int, ...], dtype: Any) -> None:
    x, W, b = draw(*leading, T, 5, dtype=dtype), draw(5, 7, dtype=dtype), draw(7, dtype=dtype)
    before = x.copy()
    assert close(fast.affine(x, W, b), equations.affine(x, W, b), dtype)
    assert close(fast.affine(x, W, None), equations.affine(x, W, None), dtype)
    assert close(fast.logits(x, W), equations.logits(x, W), dtype)
    gain, bias = draw(5, dtype=dtype, seed=1), draw(5, dtype=dtype, seed=2)
    expected = equations.layer_norm(x, gain, bias, 1e-3)
    assert close(fast.layer_norm(x, gain, bias, 1e-3), expected, dtype)
    activated = equations.gelu(x)
    gelu, relu = equations.gelu, equations.relu
    assert close(fast.activated(x, gelu), activated, dtype)
    assert close(fast.activated(x, relu), relu(x), dtype)
    W_2, b_2 = draw(7, 5, dtype=dtype), draw(5, dtype=dtype, seed=3)
    hidden = equations.affine(x, W, b)
    expected = equations.affine(equations.gelu(hidden), W_2, b_2)
    assert close(fast.mlp_output(x, W, b, W_2, b_2, gelu), expected, dtype)
    known = equations.gelu(hidden)
    assert close(fast.mlp_output(x, W, b, W_2, b_2, gelu, known), expected, dtype)
    assert np.array_equal(known, equations.gelu(hidden))
    assert np.array_equal(x, before)  # the input isn't changed
    assert close(fast.gelu(x, out=x), activated, dtype)  # except on request


def masks(rng: np.random.Generator, leading: tuple[int, ...], Tq: int, Tk: int) -> Iterator[Mask]:
    """Masks of every kind for scores (*leading, Tq, Tk), over their last two axes."""
    yield np.ones((Tq, Tk), dtype=bool)
    yield np.tri(Tq, Tk, max(Tk - Tq, 0), dtype=bool)
    yield np.broadcast_to(np.arange(Tk) < (Tk + 1) // 2, (Tq, Tk))  # padding
    yield np.broadcast_to(np.arange(Tk) >= Tk // 2, (Tq, Tk))  # left padding
    sparse = rng.random((*leading, Tq, Tk)) < 0.02
    sparse[..., 0] |= ~sparse.any(axis=-1)
    yield sparse
    if leading:
        yield sparse[(0,) * len(leading)]
        yield sparse[..., :1, :, :] if len(leading) > 1 else sparse[:1]


def textbook(
    Q: Array,
    K: Array,
    V: Array,
    scale: float,
    mask: Mask,
    bias: Array | None,
    dropout: Array | None,
) -> tuple[Array, Array]:
    """Weights and context by the equations."""
    scores = equations.scores(equations.raw_scores(Q, K), scale)
    weights = equations.weights(equations.masked_scores(scores, mask, bias), dropout)
    return weights, equations.context(weights, V)


# Leading axes of Q, of K and of V, which broadcast.
SIDE_BY_SIDE = [
    ((), (), ()),
    ((3,), (3,), (3,)),
    ((2, 3), (2, 3), (2, 3)),
    ((3,), (), ()),
    ((), (3,), (3,)),
    ((), (), (3,)),
    ((2, 1), (3,), (2, 3)),
]


@pytest.mark.parametrize("leading", SIDE_BY_SIDE)
@pytest.mark.parametrize(
    ("Tq", "dtype"),
    [(1, np.float32), (128, np.float64), (129, np.float32)],
)
def test_fast_weights_and_context(Tq: int, leading: Any, dtype: Any) -> None:
    rng = np.random.default_rng(Tq)
    Q_axes, K_axes, V_axes = leading
    for Tk in {Tq, 1, Tq + 5}:
        Q, K = draw(*Q_axes, Tq, 3, dtype=dtype), draw(*K_axes, Tk, 3, dtype=dtype, seed=1)
        V, scale = draw(*V_axes, Tk, 4, dtype=dtype, seed=2), equations.scale(K)
        of_scores = np.broadcast_shapes(Q_axes, K_axes)
        drawn = np.where(rng.random((*of_scores, Tq, Tk)) < 0.3, 0, 1 / 0.7).astype(dtype)
        settings = (None, None), (draw(Tq, Tk, dtype=dtype, seed=3), drawn)  # bias, dropout
        for mask, (bias, dropout) in itertools.product(masks(rng, of_scores, Tq, Tk), settings):
            weights, context = textbook(Q, K, V, scale, mask, bias, dropout)
            actual = fast.weights(Q, K, scale, mask, bias, dropout)
            assert close(actual, weights, dtype)
            assert ((actual == 0) == (weights == 0)).all()
            by_rows, of_known = (
                fast.context(Q, K, V, scale, mask, bias, dropout, known) for known in (None, actual)
            )
            assert close(by_rows, context, dtype)
            assert np.array_equal(by_rows, of_known)
            for joined in (by_rows, of_known):
                if joined.ndim > 2:  # joined without a copy, as the heads are adjacent
                    assert np.shares_memory(equations.concat(joined), joined)


def of_random_numbers(T: int, dtype: Any) -> ForwardPass:
    config = GPT2Config(vocab_size=31, n_positions=300, n_embd=12, n_layer=2, n_head=3, n_inner=20)
    rng = np.random.default_rng(0)
    vector = (0.3 * rng.standard_normal(parameter_count(config))).astype(dtype)
    return ForwardPass(rng.integers(0, 31, T), ParameterVector(config, vector))


def chains(T: int, dtype: Any) -> Iterator[Result]:
    """Each kind of attention, with leading axes, a mask and dropout."""
    rng, mask = np.random.default_rng(T), causal_mask(T)
    X = draw(2, T, 6, dtype=dtype)
    memory, W = draw(2, T, 5, dtype=dtype, seed=1), draw(6, 6, dtype=dtype, seed=2)
    yield attention(X, X[0], memory, mask, 0.2, rng)
    yield self_attention(X, W, W, W[:, :4], mask=mask, dropout=0.2, rng=rng)
    yield cross_attention(X, memory, W, W[:5], W[:5], mask=mask)
    yield multi_head_attention(X, W, W, W, W, n_head=3, mask=mask, dropout=0.2, rng=rng)
    W_V, W_O = draw(5, 12, dtype=dtype, seed=3), draw(12, 6, dtype=dtype, seed=4)
    yield multi_head_attention(X, W, W[:5], W_V, W_O, n_head=3, memory=memory, mask=mask)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("T", [5, 128, 129, 257])
def test_fast_forms_give_the_same_run_as_equations(T: int, dtype: Any) -> None:
    count = 0
    for result in (of_random_numbers(T, dtype), *chains(T, dtype)):
        assert result._run.is_long == (T > fast.SHORT)
        long, short = result._fork(), result._fork()
        long._run.is_long, short._run.is_long = True, False
        for (part, name), (other, _) in zip(every_step(long), every_step(short), strict=True):
            actual, expected = getattr(part, name), getattr(other, name)
            if not isinstance(expected, np.ndarray) or expected.dtype.kind != "f":
                assert np.array_equal(actual, expected), (part.path, name)
                continue
            count += part.steps[name].fast is not None
            finite = np.isfinite(expected)
            assert (np.isfinite(actual) == finite).all(), (part.path, name)
            noise = 4 * TOLERANCE[dtype] * max(1.0, float(np.abs(expected[finite]).max()))
            assert np.allclose(actual[finite], expected[finite], rtol=0, atol=noise), (
                part.path,
                name,
            )
    assert count > 40
