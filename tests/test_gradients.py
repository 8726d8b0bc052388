"""Gradients: each operation's against finite differences, the whole model's against PyTorch."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from conftest import REFERENCE

from attnlab import (
    GPT2,
    attention,
    causal_mask,
    equations,
    layer_norm,
    softmax,
)
from attnlab.checkpoints.checkpoint import tensor_name
from attnlab.equations import Activation, Array, affine, gelu, masked_scores
from attnlab.errors import InvalidValueError
from attnlab.forward import ForwardPass
from attnlab.forward.config import ACTIVATIONS
from attnlab.forward.forward_pass import MLP
from attnlab.forward.gradients import ACTIVATION_GRADIENTS, embedding_gradient, masked_scores_scores
from attnlab.forward.parameters import stored_shapes
from attnlab.steps import Run, graph_of
from attnlab.training import (
    attention_gradient,
    cross_entropy,
    gelu_gradient,
    layer_norm_gradient,
    linear_gradient,
    loss_and_gradients,
    softmax_gradient,
)
from attnlab.training.gradients import mlp_gradient

RECORDED = np.load(REFERENCE / "training.npz")
rng = np.random.default_rng(17)


def differences(loss: Callable[[], float], x: Array, step: float = 1e-5) -> Array:
    """dloss/dx by central differences, x changed in place, one number at a time."""
    slopes = np.empty_like(x)
    for index in np.ndindex(x.shape):
        kept = x[index]
        x[index] = kept + step
        above = loss()
        x[index] = kept - step
        slopes[index] = (above - loss()) / (2 * step)
        x[index] = kept
    return slopes


def check(y: Callable[[], Array], d_y: Array, inputs: list[Array], actual: list[Array]) -> None:
    """The gradients of Σ d_y · y, each against finite differences, relative error under 1e-6."""
    for x, d_x in zip(inputs, actual, strict=True):
        expected = differences(lambda: float((d_y * y()).sum()), x)
        assert d_x.shape == x.shape
        assert np.linalg.norm(d_x - expected) < 1e-6 * np.linalg.norm(expected)


MASK, IDS = rng.standard_normal((3, 5)) > 0, np.array([[2, 5, 2], [6, 2, 0]])

# By name: a function, the shapes of its arguments, and its gradients, of d_y and the arguments.
OPERATIONS: dict[str, tuple[Callable[..., Array], list[tuple[int, ...]], Callable[..., Any]]] = {
    "linear": (affine, [(2, 3, 5), (5, 7), (7,)], lambda d, x, W, b: linear_gradient(x, W, d)),
    "softmax": (softmax, [(2, 3, 5)], lambda d, x: [softmax_gradient(softmax(x), d)]),
    "masked scores": (
        lambda x: np.nan_to_num(masked_scores(x, MASK, None), neginf=0),
        [(3, 5)],
        lambda d, x: [masked_scores_scores(MASK, d)],
    ),
    **{
        f"LayerNorm, epsilon {eps}": (
            partial(layer_norm, eps=eps),
            [(2, 3, 5), (5,), (5,)],
            lambda d, x, gain, bias, eps=eps: layer_norm_gradient(x, gain, eps, d),
        )
        for eps in (1e-5, 0.7)
    },
    "GELU": (lambda x: gelu(2 * x), [(5, 7)], lambda d, x: [2 * gelu_gradient(2 * x, d)]),
    "embedding": (lambda W: W[IDS], [(7, 3)], lambda d, W: [embedding_gradient(IDS, d, 7)]),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_operation(name: str) -> None:
    function, shapes, gradients = OPERATIONS[name]
    inputs = [rng.standard_normal(shape) for shape in shapes]
    d_y = rng.standard_normal(function(*inputs).shape)
    check(lambda: function(*inputs), d_y, inputs, [*gradients(d_y, *inputs)])


def test_saturated_softmax_has_no_gradient() -> None:
    y = softmax([0.0, 900.0, 3.0])
    assert softmax_gradient(y, np.array([5.0, -2.0, 3.0])).tolist() == [0, 0, 0]


@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_attention(dropout: float) -> None:
    Q, K, V = (rng.standard_normal(shape) for shape in ((2, 5, 3), (2, 7, 3), (2, 7, 11)))
    d_context = rng.standard_normal((2, 5, 11))
    mask = causal_mask(5, 2)

    def context() -> Array:
        return attention(Q, K, V, mask, dropout, rng=3).context

    gradients = attention_gradient(attention(Q, K, V, mask, dropout, rng=3), d_context)
    check(context, d_context, [Q, K, V], [*gradients])


def test_long_attention() -> None:
    """With more queries than one block of rows."""
    T = 131
    Q, K, V, d_context = (rng.standard_normal((T, 3)) for _ in range(4))
    gradients = attention_gradient(attention(Q, K, V, causal_mask(T)), d_context)
    for x, d_x in zip((Q, K, V), gradients, strict=True):
        part = x[-2:]  # a view: changing it changes x

        def context() -> Array:
            return attention(Q, K, V, causal_mask(T)).context

        check(context, d_context, [part], [d_x[-2:]])


@pytest.mark.parametrize("activation", ACTIVATION_GRADIENTS)
def test_mlp(activation: Activation) -> None:
    shapes = {"X": (2, 3, 5), "W_1": (5, 7), "b_1": (7,), "W_2": (7, 5), "b_2": (5,)}
    values = {name: rng.standard_normal(shape) for name, shape in shapes.items()}
    d_output = rng.standard_normal((2, 3, 5))

    def mlp() -> MLP:
        copies: dict[str, Any] = {name: value.copy() for name, value in values.items()}
        return MLP("MLP", Run(graph_of(MLP), copies | {"activation": activation}))

    d_X, parameters = mlp_gradient(mlp(), d_output)
    check(
        lambda: mlp().output,
        d_output,
        [*values.values()],
        [d_X, *(parameters[name] for name in list(values)[1:])],
    )


def test_every_activation_has_a_gradient() -> None:
    assert {activation.function for activation in ACTIVATIONS.values()} == set(ACTIVATION_GRADIENTS)


def test_negative_targets_are_refused() -> None:
    """NumPy would take the last class."""
    for targets in ([-1, 0], [0, 2]):
        with pytest.raises(IndexError):
            equations.cross_entropy(np.eye(2), np.array(targets))


def test_cross_entropy() -> None:
    logits, targets = rng.standard_normal((2, 3, 5)), np.array([[0, 4, 1], [2, 2, 3]])
    d_logits = cross_entropy(logits, targets)[1]
    check(lambda: np.array(cross_entropy(logits, targets)[0]), np.ones(()), [logits], [d_logits])
    # Probabilities 1/4 and 3/4 with the target at the first: -log 1/4; and -log 1/2.
    logits = np.log([[1.0, 3.0], [5.0, 5.0]])
    assert cross_entropy(logits, np.array([0, 1]))[0] == pytest.approx((np.log(4) + np.log(2)) / 2)
    loss, d_logits = cross_entropy(np.float32([[0, 300]]), np.array([0]))  # of probability 0
    assert loss == 300
    assert d_logits.tolist() == [[-1, 1]]
    assert d_logits.dtype == np.float32


@pytest.mark.parametrize(
    ("logits", "targets", "message"),
    [
        ([[0.0, np.nan]], [0], "NaN"),
        ([[0.0, np.inf]], [0], "NaN"),
        ([[0.0, 0.0]], [-1], "vocabulary"),
        ([[0.0, 0.0]], [2], "vocabulary"),
        (np.zeros((0, 2)), [], r"got logits \(0, 2\)"),
        (np.zeros((2, 3, 5)), [1, 2], r"\(2, 3, 5\) and targets \(2,\)"),
    ],
)
def test_cross_entropy_rejects_invalid_input(logits: Any, targets: list[int], message: str) -> None:
    with pytest.raises(InvalidValueError, match=message):
        cross_entropy(np.array(logits), np.array(targets, int))


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-4), ("float64", 1e-10)])
def test_whole_model_against_pytorch(dtype: str, tolerance: float) -> None:
    model = GPT2.from_pretrained(REFERENCE / "odd", dtype=dtype)
    ids = RECORDED["gradient.ids"]
    forward = ForwardPass(ids[:, :-1], model.parameters)
    loss, gradients = loss_and_gradients(forward, ids[:, 1:])
    assert loss == pytest.approx(float(RECORDED["gradient.loss"]), rel=tolerance)
    assert gradients.dtype == dtype
    for path in stored_shapes(model.config):
        name = tensor_name(path)
        expected = RECORDED[f"gradient.of.{name}"]
        every = 1 if "bias" in name or "ln_" in name else 7
        actual = gradients.stored(path).ravel()[::every]
        assert actual.shape == expected.shape
        assert np.abs(actual - expected).max() < tolerance * np.abs(expected).max(), name
