"""One number of any step: against a forward pass written out here, by hand, and read back."""

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import REFERENCE, RELATIVES
from runs import every_step

import attnlab
from attnlab import GPT2, AttnlabError, GPT2Config, Tokenizer, Trace
from attnlab.parameters import ParameterVector, parameter_shapes
from attnlab.steps import Result

X = [[1.0, 0.0, 1.0], [0.0, 2.0, 0.0], [1.0, 1.0, 1.0]]
W = [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]

# A number as it is printed.
NUMBER = r"(-?[\d.]+(?:e[-+]\d+)?)"

PLACES = ("token", "query", "key", "id", "position", "row", "column", "component")


@pytest.fixture(scope="module")
def pocket() -> Trace:
    return GPT2.from_pretrained("pocket").trace("The dog chased the ball, but it")


@pytest.fixture(scope="module")
def odd() -> GPT2:
    return GPT2.from_pretrained(REFERENCE / "odd")


# ---- the right numbers ---------------------------------------------------------------------------

ACTIVATIONS: dict[str, Callable[[float], float]] = {
    "gelu_new": lambda x: x / 2 * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "gelu_fast": lambda x: x / 2 * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "gelu": lambda x: x * (1 + math.erf(x / math.sqrt(2))) / 2,
    "quick_gelu": lambda x: x / (1 + math.exp(-1.702 * x)),
    "silu": lambda x: x / (1 + math.exp(-x)),
    "relu": lambda x: max(x, 0.0),
}


class Plain(dict[str, Any]):
    """Every number of a pass by its path, in float64 and one line after the other."""

    def __init__(self, trace: Trace) -> None:
        config, ids, T = trace.config, trace.tokens.ids, len(trace.tokens)
        H, D = config.n_head, config.n_embd
        Dh = D // H
        for path in parameter_shapes(config):
            self[path] = np.array(trace.parameters[path], np.float64)
        self["rows_of_W_E"] = self["W_E"]
        self.setdefault("W_U", self["W_E"].T)
        self["ids"], self["positions"], self["cached"] = ids, np.arange(T), 0
        self["n_head"], self["epsilon"] = H, config.layer_norm_epsilon
        self["by_root"], self["mask"] = config.scale_attn_weights, np.tri(T, dtype=bool)
        self["token_embedding"] = np.stack([self["W_E"][id] for id in ids])
        self["position_embedding"] = np.stack([self["W_P"][i] for i in range(T)])
        self["embedding"] = stream = self["token_embedding"] + self["position_embedding"]
        for layer in range(config.n_layer):
            block, attention, mlp = (
                f"blocks.{layer}{name}." for name in ("", ".attention", ".mlp")
            )
            for place in (attention, mlp):
                self[f"{place}epsilon"] = config.layer_norm_epsilon
            self[f"{block}input"] = self[f"{attention}residual"] = stream
            self[f"{attention}X"] = X = self.layer_norm(stream, attention)
            self[f"{attention}memory"] = X
            QKV = X @ self[f"{attention}W_QKV"] + self[f"{attention}b_QKV"]
            self[f"{attention}QKV"] = QKV
            self[f"{attention}n_head"], self[f"{attention}mask"] = H, self["mask"]
            scale = math.sqrt(Dh) if config.scale_attn_weights else 1.0
            if config.scale_attn_by_inverse_layer_idx:
                self[f"{attention}layer_number"] = layer + 1
                scale *= layer + 1
            self[f"{attention}scale"] = scale
            for n, name in enumerate("QKV"):
                self[f"{attention}W_{name}"] = self[f"{attention}W_QKV"][:, n * D : (n + 1) * D]
                self[f"{attention}b_{name}"] = self[f"{attention}b_QKV"][n * D : (n + 1) * D]
            contexts = []
            for h in range(H):
                head, columns = f"{attention}heads.{h}.", slice(h * Dh, (h + 1) * Dh)
                self[f"{head}X"] = self[f"{head}memory"] = X
                self[f"{head}mask"], self[f"{head}scale"] = self["mask"], scale
                for n, name in enumerate("QKV"):
                    self[f"{head}{name}"] = QKV[:, n * D : (n + 1) * D][:, columns]
                    self[f"{head}W_{name}"] = self[f"{attention}W_{name}"][:, columns]
                    self[f"{head}b_{name}"] = self[f"{attention}b_{name}"][columns]
                raw = self[f"{head}Q"] @ self[f"{head}K"].T
                self[f"{head}raw_scores"], self[f"{head}scores"] = raw, raw / scale
                masked = np.where(self["mask"], raw / scale, -math.inf)
                powers = np.exp(masked)
                self[f"{head}masked_scores"] = masked
                self[f"{head}weights"] = powers / powers.sum(axis=1)[:, np.newaxis]
                contexts.append(self[f"{head}weights"] @ self[f"{head}V"])
                self[f"{head}context"] = contexts[-1]
                self[f"{head}W_O"] = self[f"{attention}W_O"][columns]
                self[f"{head}output"] = contexts[-1] @ self[f"{head}W_O"]
            self[f"{attention}concat"] = np.concatenate(contexts, axis=1)
            written = np.concatenate(contexts, axis=1) @ self[f"{attention}W_O"]
            self[f"{attention}output"] = written + self[f"{attention}b_O"]
            self[f"{block}mid"] = mid = stream + self[f"{attention}output"]
            self[f"{mlp}X"] = self.layer_norm(mid, mlp)
            self[f"{mlp}hidden"] = self[f"{mlp}X"] @ self[f"{mlp}W_1"] + self[f"{mlp}b_1"]
            activation = np.vectorize(ACTIVATIONS[config.activation_function])
            self[f"{mlp}activated"] = activation(self[f"{mlp}hidden"])
            written = self[f"{mlp}activated"] @ self[f"{mlp}W_2"] + self[f"{mlp}b_2"]
            self[f"{mlp}output"] = written
            self[f"{block}output"] = stream = mid + written
        self["final"] = self.layer_norm(stream, "")
        self["logits"] = self["final"] @ self["W_U"]
        self["next_logits"] = self["logits"][-1]

    def layer_norm(self, x: Any, place: str) -> Any:
        centred = x - x.mean(axis=1)[:, np.newaxis]
        deviation = np.sqrt((centred**2).mean(axis=1) + self["epsilon"])[:, np.newaxis]
        return centred / deviation * self[f"{place}gain"] + self[f"{place}bias"]


def is_of_all_heads(part: Result, name: str) -> bool:
    """Whether a step has a number for each head, query and key."""
    return part.axes_of(name) == "H Tq Tk"


def index_of(numbers: dict[str, Any]) -> tuple[int, ...]:
    return tuple(number for name, number in numbers.items() if name in PLACES)


@pytest.mark.parametrize("name", ["odd", "one_head", *RELATIVES])
def test_every_step_of_the_graph_is_explained(name: str) -> None:
    trace = GPT2.from_pretrained(REFERENCE / name).trace([5, 80, 5, 7, 120])
    plain, explained = Plain(trace), 0
    largest = {path: np.abs(x).max() for path, x in plain.items() if np.ndim(x)}
    for part, step in every_step(trace):
        path = f"{part.path}.{step}".lstrip(".")
        if getattr(part, step) is None:
            with pytest.raises(AttnlabError, match=f"was made without {step}"):
                trace.explain(path)
        elif step == "activation":
            assert trace.explain(path).numbers["value"] == getattr(part, step).__name__
        elif not is_of_all_heads(part, step):
            is_vector = len(part.axes_of(step).split()) == 1 and step not in ("ids", "positions")
            for token, component in ((None, None), (2, 1)):
                if np.ndim(getattr(part, step)) < 2:
                    where = (None, component if is_vector else None)
                elif part.axes_of(step) == "Tq Tk":
                    where = (token, component or 1)
                else:
                    where = (token, component)
                explanation = trace.explain(path, *where)
                numbers, stored = explanation.numbers, attnlab.at(trace, path)
                if step == "weights":
                    index: tuple[int, ...] = (numbers["query"], numbers["key"])
                    value = numbers["weights"]
                else:
                    path = numbers["step"].replace("rows_of_", "")  # a layer's Q is told of a head
                    index, value = index_of(numbers), numbers["value"]
                    stored = attnlab.at(trace, path)
                wanted = plain[path][index] if index else plain[path]
                assert value == (stored[index] if index else stored), path
                assert value == pytest.approx(wanted, rel=1e-4, abs=1e-5 * largest.get(path, 1))
                text = explanation.text(60)
                assert not re.search("edited|nan", text)
                assert max(map(len, text.splitlines())) <= 60
                explained += 1
    assert explained > 250


def test_the_numbers_on_the_way(odd: GPT2) -> None:
    """Each against the forward pass above; sums of what is listed are the step."""
    trace = odd.trace([5, 80, 5, 7, 120])
    plain = Plain(trace)
    numbers = trace.explain("blocks.1.mlp.X", 3, 4).numbers
    mid = plain["blocks.1.mid"][3]
    wanted = {"mean": mid.mean(), "variance": mid.var(), "deviation": mid.std()}
    assert {name: numbers[name] for name in wanted} == pytest.approx(wanted, rel=1e-4)
    assert numbers["normalised"] == pytest.approx((mid[4] - mid.mean()) / mid.std(), rel=1e-4)
    assert numbers["gain"] == plain["blocks.1.mlp.gain"][4]
    for path, place, terms in (
        ("logits", (3, 9), plain["final"][3] * plain["W_E"][9]),
        ("blocks.1.attention.heads.2.context", (3, 4), None),
        ("blocks.2.attention.heads.4.output", (1, 30), None),
    ):
        numbers = trace.explain(path, *place).numbers
        assert sum(numbers["terms"]) == pytest.approx(plain[path][place], rel=1e-4, abs=1e-6)
        if terms is not None:
            assert numbers["terms"] == pytest.approx(terms.tolist(), rel=1e-3, abs=1e-6)
    numbers = trace.explain("blocks.0.mlp.hidden", 2, 7).numbers
    assert numbers["terms"][-1] == plain["blocks.0.mlp.b_1"][7]
    assert sum(numbers["terms"]) == pytest.approx(plain["blocks.0.mlp.hidden"][2, 7], rel=1e-4)
    numbers = trace.explain("blocks.0.mlp.activated", 2, 7).numbers
    x = plain["blocks.0.mlp.hidden"][2, 7]
    assert numbers["hidden"] == pytest.approx(x, rel=1e-4)
    assert numbers["share"] == pytest.approx(ACTIVATIONS["gelu_new"](x) / x, rel=1e-4)
    numbers = trace.explain("blocks.2.mid", 2, 7).numbers
    assert numbers["input"] + numbers["output"] == pytest.approx(plain["blocks.2.mid"][2, 7])


# ---- by hand -------------------------------------------------------------------------------------


@pytest.fixture
def tiny() -> Trace:
    """A model of 2 components and 2 tokens, whose numbers a pencil can follow.

    embedding of token 1 at position 1: (1, 2) + (2, -1) = (3, 1), with mean 2 and deviation 1
    """
    config = GPT2Config(
        vocab_size=256, n_positions=4, n_embd=2, n_layer=1, n_head=1, layer_norm_epsilon=1e-300
    )
    vector = ParameterVector(config, dtype="float64")
    vector["W_E"][:2] = [[1, 0], [1, 2]]
    vector["W_P"][:2] = [[0, 1], [2, -1]]
    vector["blocks.0.attention.gain"][:] = [2, 3]
    vector["blocks.0.attention.bias"][:] = [0.5, -1]
    vector["blocks.0.attention.W_QKV"][:, :2] = [[1, 10], [4, 100]]
    vector["blocks.0.attention.b_QKV"][:2] = [7, 8]
    return GPT2(vector, Tokenizer.of_bytes()).trace([0, 1])


def test_a_sum_of_two(tiny: Trace) -> None:
    assert "\ntoken_embedding = rows of W_E, one for each id\n  W_E[1, 1] = 2\n" in str(
        tiny.explain("token_embedding", component=1)
    )
    assert "\n  W_P[1, 1] = -1\n" in str(tiny.explain("position_embedding", component=1))
    text = str(tiny.explain("embedding", component=1))
    assert "\nembedding = token_embedding + position_embedding\n  2 + (-1) = 1\n" in text
    assert text.endswith("\nmade of\n  token_embedding, position_embedding")


def test_layer_norm_by_hand(tiny: Trace) -> None:
    """(3, 1): mean 2, deviation 1, normalised (1, -1), X = (1 · 2 + 0.5, -1 · 3 - 1)."""
    lines = str(tiny.explain("blocks.0.attention.X", 1, 1)).splitlines()
    told = [line.strip() for line in lines if line.startswith("  ")]
    assert told[:5] == [
        "4 / 2 = 2",
        "2 / 2 = 1",
        "√(1 + 1e-300) = 1",
        "(1 - 2) / 1 = -1",
        "(-1) · 3 + (-1) = -4",
    ]


def test_products_by_hand(tiny: Trace) -> None:
    """X = (2.5, -4), so that Q is (2.5 - 16 + 7, 25 - 400 + 8)."""
    lines = str(tiny.head(0, 0).explain(1, step="Q", component=1)).splitlines()
    table = [line.split() for line in lines[lines.index("") + 2 :]]
    assert table[:5] == [
        ["i", "X[1,", "i]", "W_Q[i,", "1]", "product"],
        ["0", "2.5", "10", "25"],
        ["1", "-4", "100", "-400"],
        ["b_Q[1]", "8"],
        ["sum", "-367"],
    ]


def test_gelu_by_hand(odd: GPT2) -> None:
    """GELU(1) = ½ (1 + tanh(√(2/π) · 1.044715)) = 0.841192."""
    trace = odd.trace([5, 6]).edited({"blocks.0.mlp.hidden": 1.0})
    text = str(trace.blocks[0].mlp.explain("activated"))
    assert "½ (1 + tanh(√(2/π) (x + 0.044715 x³)))\n  of 1: 0.84119\n" in text
    assert "\nactivated = GELU(hidden) = x · share\n  1 · 0.84119 = 0.84119\n" in text


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("odd", "√7 = 2.6458"),
        ("relu", "1 = 1"),
        ("quick_gelu", "√3 · 2 = 3.4641"),
        ("gelu_fast", "2 = 2"),
    ],
)
def test_scales_by_hand(name: str, told: str) -> None:
    attention = GPT2.from_pretrained(REFERENCE / name).trace([5, 6]).blocks[1].attention
    for one in (attention, attention.heads[1]):
        assert f"\nscale = {one.formula_of('scale')}\n  {told}\n" in str(one.explain(step="scale"))


@pytest.mark.parametrize(
    ("name", "x", "share"),
    [
        ("gelu", -0.5, 0.30854),  # Φ(-0.5)
        ("quick_gelu", -0.5, 0.29922),  # 1 / (1 + e^0.851)
        ("silu", -0.5, 0.37754),  # 1 / (1 + e^0.5)
        ("relu", -0.5, 0),
        ("relu", 0.5, 1),
    ],
)
def test_activations_of_relatives_by_hand(name: str, x: float, share: float) -> None:
    trace = GPT2.from_pretrained(REFERENCE / name).trace([5, 6])
    mlp = trace.edited({"blocks.1.mlp.hidden": x}).blocks[1].mlp
    assert f"\n  of {x:g}: {share}\n" in str(mlp.explain("activated"))
    assert mlp.explain("activated").numbers["value"] == pytest.approx(x * share, abs=1e-5)
