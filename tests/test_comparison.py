"""Two traces step by step: what differs, where, and what rounding explains."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from conftest import MODELS, REFERENCE
from runs import stored_steps

import attnlab
from attnlab import GPT2, GPT2Config, Tokenizer, compare
from attnlab.checking.comparison import MARGIN, PERTURBATION, distance, tolerance_of
from attnlab.errors import AttnlabError, InvalidTypeError, InvalidValueError
from attnlab.forward.parameters import ParameterVector, parameter_count, parameter_shapes

TEXT = "The dog chased the ball, but it"
BLOCK = (
    *("attention.X", "attention.Q", "attention.K", "attention.V", "attention.raw_scores"),
    *("attention.scores", "attention.masked_scores", "attention.weights", "attention.context"),
    *("attention.concat", "attention.output", "mid", "mlp.X", "mlp.hidden", "mlp.activated"),
    *("mlp.output", "output"),
)


def ids_of(name: str) -> Any:
    return np.load(REFERENCE / name / "expected.npz")["ids"]


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


# ---- what rounding explains ----------------------------------------------------------------------


@pytest.mark.parametrize("name", [*MODELS, "pocket"])
def test_float32_and_float64_agree_at_every_step(name: str) -> None:
    source = name if name == "pocket" else REFERENCE / name
    text = TEXT if name == "pocket" else ids_of(name)
    single, double = (
        GPT2.from_pretrained(source, dtype=dtype).trace(text) for dtype in ("float32", "float64")
    )
    for differences in (compare(single, double), compare(double, single)):
        assert differences.agrees
        assert differences.first is None
        largest = max(stage.rounding for stage in differences.stages)
        assert 1 / 100 < largest < 1 / 4  # not too loose
        assert "rounding explains every difference" in repr(differences)


@pytest.mark.parametrize("std", [0.02, 0.5])
def test_large_columns_and_sharp_scores_get_larger_tolerances(std: float) -> None:
    sizes = {"n_embd": 96, "n_layer": 6, "n_head": 3}
    single, double = (
        random_model(dtype, std, **sizes).trace(np.arange(40, 60))
        for dtype in ("float32", "float64")
    )
    differences = compare(single, double)
    assert differences.agrees
    # With sharp scores, float32's errors are much larger than its epsilon.
    largest = max(stage.relative for stage in differences.stages)
    assert largest > (1e-5 if std == 0.5 else 1e-7)


def test_cancelling_sums_get_larger_tolerances() -> None:
    rng = np.random.default_rng(0)
    Q = 1000 * rng.standard_normal((5, 64))
    K = rng.standard_normal((5, 64))
    K -= Q * ((K * Q).sum(-1) / (Q * Q).sum(-1))[:, None]  # each key orthogonal to its query
    single = attnlab.attention(Q.astype("float32"), K.astype("float32"), K.astype("float32"))
    exact = attnlab.attention(*(x.astype("float32").astype("float64") for x in (Q, K, K)))
    for step in ("raw_scores", "scores"):
        stage = next(s for s in compare(exact, single).stages if s.path == step)
        assert stage.agrees
        assert replace(stage, rounding=1.0).agrees
        assert not replace(stage, rounding=1.001).agrees
        difference = np.abs(getattr(single, step) - getattr(exact, step)).max()
        assert stage.difference == difference > 0


def test_a_row_with_cancelling_perturbations_gets_the_median_tolerance() -> None:
    value, by = np.full((3, 2), 7.0), PERTURBATION * np.array([[0], [1], [3]])
    within = tolerance_of(value, [value * (1 + by), value * (1 - by)], 2.0**-23)
    np.testing.assert_allclose(within, MARGIN * 2.0**-23 * 7 * (1 + np.array([[1], [1], [3]])))


@pytest.mark.parametrize(("dtype", "size"), [("float32", 3e-5), ("float64", 1e-13)])
def test_differences_larger_than_rounding_are_reported(dtype: str, size: float) -> None:
    trace = GPT2.from_pretrained("pocket", dtype=dtype).trace(TEXT)
    for path in ("embedding", "blocks.0.attention.X", "blocks.1.mlp.hidden", "final"):
        first = compare(trace, trace.edited({path: lambda x: x * (1 + size)})).first
        assert first is not None
        assert first.path == path
        assert first.relative == pytest.approx(size, rel=0.1)
        extra_rounding = trace.edited({path: lambda x: np.nextafter(x, x.dtype.type(np.inf))})
        differences = compare(trace, extra_rounding)
        assert differences.agrees
        assert any(stage.difference for stage in differences.stages)


def test_numbers_that_overflow_when_perturbed() -> None:
    largest = np.full((3, 2), np.finfo("float32").max)
    chain = attnlab.attention(np.eye(3, dtype="float32"), np.eye(3, dtype="float32"), largest)
    assert chain.context.dtype == "float32"
    assert compare(chain, chain).agrees


def test_long_texts(pocket: GPT2) -> None:
    sizes = {"n_embd": 32, "n_layer": 2, "n_head": 2}
    ids = np.random.default_rng(0).integers(0, 256, 140)
    single, double = (random_model(d, 0.1, **sizes).trace(ids) for d in ("float32", "float64"))
    assert compare(single, double).agrees
    edited = single.edited({"blocks.1.attention.heads.1.scores": 0.0})
    first = compare(single, edited).first
    assert first is not None
    assert first.path == "blocks.1.attention.scores"


# ---- the report ----------------------------------------------------------------------------------


def test_stages_are_in_the_order_of_the_forward_pass(pocket: GPT2) -> None:
    trace = pocket.trace(TEXT)
    paths = [stage.path for stage in compare(trace, trace).stages]
    assert paths == [
        *("token_embedding", "position_embedding", "embedding"),
        *(f"blocks.{layer}.{name}" for layer in range(2) for name in BLOCK),
        *("final", "logits"),
    ]


def test_the_first_difference_is_the_edited_step(pocket: GPT2) -> None:
    trace = pocket.trace(TEXT)
    other = trace.edited({"blocks.1.attention.heads.2.context": 0})
    before = stored_steps(trace), stored_steps(other)
    differences = compare(trace, other)
    assert (stored_steps(trace), stored_steps(other)) == before
    assert len({differences, compare(trace, other)}) == 2  # equal only to itself
    at_first = [stage.path for stage in differences.stages].index("blocks.1.attention.context")
    assert differences.first is differences.stages[at_first]
    assert all(stage.difference == stage.rounding == 0 for stage in differences.stages[:at_first])
    assert all(not stage.place for stage in differences.stages[:at_first])
    assert all(not stage.agrees for stage in differences.stages[at_first:])
    stage, context = differences.first, trace.head(1, 2).context
    assert stage.shape == trace.blocks[1].attention.context.shape
    assert stage.difference == np.abs(context).max()
    largest = np.abs(trace.blocks[1].attention.context).max()
    assert stage.relative == pytest.approx(stage.difference / largest)
    query, column = np.unravel_index(np.abs(context).argmax(), context.shape)
    assert stage.where == (2, query, column)
    assert stage.place == f"head 2, query {query} {trace.tokens.symbols[query]}, column {column}"
    after = compare(trace, other).stages[-1]
    assert after.difference == np.abs(trace.logits - other.logits).max()


def test_comparison_table(pocket: GPT2) -> None:
    trace = pocket.trace(TEXT)
    text = repr(compare(trace, trace.edited({"blocks.1.mlp.hidden": 0})))
    a, b, verdict, header, *lines = text.splitlines()
    assert a.startswith("a  Trace of ")
    assert "float32, from " in a
    assert "edited: blocks.1.mlp.hidden" in b
    assert verdict.startswith("6 of 39 steps differ by more than rounding explains; the first is ")
    assert re.split("  +", header) == [
        *("step", "shape", "difference", "relative", "x rounding", "largest at")
    ]
    assert len(lines) == 39
    assert [line.split()[0] for line in lines if " differs " in line] == [
        *(f"blocks.1.{name}" for name in ("mlp.hidden", "mlp.activated", "mlp.output", "output")),
        *("final", "logits"),
    ]


def test_a_deep_models_table_is_shortened() -> None:
    trace = random_model("float64", n_embd=8, n_layer=6, n_head=2).trace([1, 2, 3])
    differences = compare(trace, trace.edited({"blocks.3.attention.weights": 0.2}))
    assert len(differences.stages) == 5 + 6 * 17
    shown = [line.split()[0] for line in repr(differences).splitlines()[4:]]
    assert shown == [
        "embedding",
        *(f"blocks.{n}.{name}" for n in range(3) for name in ("mid", "output")),
        *(f"blocks.3.{name}" for name in BLOCK),
        *(f"blocks.{n}.{name}" for n in (4, 5) for name in ("mid", "output")),
        *("final", "logits"),
    ]


def test_different_tokens_are_reported(pocket: GPT2) -> None:
    ids = pocket.trace(TEXT).ids
    other = np.where(np.arange(len(ids)) == 3, 7, ids)
    differences = compare(pocket.trace(ids), pocket.trace(other))
    assert differences.note == "Their tokens differ at 3."
    assert differences.note in repr(differences)
    assert differences.stages[0].place.startswith("position 3 ")
    assert compare(pocket.trace(ids), pocket.trace(ids)).note == ""


def test_heads_of_two_models_are_ranked_by_how_much_they_changed(pocket: GPT2) -> None:
    """Models that differ in one head without queries and one with slightly larger queries."""
    arrays = {path: np.array(array) for path, array in pocket.parameters.items()}
    W, b = (arrays[f"blocks.1.attention.{name}"] for name in ("W_QKV", "b_QKV"))
    W[:, 64:96], b[64:96] = 0, 0  # Q of head 2
    W[:, 0:32] *= 1.1  # Q of head 0
    other = GPT2.from_arrays(pocket.config, arrays, pocket.tokenizer)
    a, b = pocket.trace(TEXT), other.trace(TEXT)
    comparison = compare(a, b)
    assert comparison.are_models
    assert comparison.heads[:2] == ((1, 2), (1, 0))
    for layer, head in comparison.heads:
        difference = np.abs(a.head(layer, head).weights - b.head(layer, head).weights)
        moved = np.mean([sum(row) / 2 for row in difference])
        assert comparison.changes is not None
        assert comparison.changes[layer, head] == pytest.approx(moved, abs=1e-7)
    assert comparison.changes[0].max() == 0
    lines = repr(comparison).splitlines()
    assert lines[2] == "Two models; the first step that differs is blocks.1.attention.Q."
    assert lines[5].split() == ["1", "2", f"{comparison.changes[1, 2]:.3f}"]

    edited = compare(a, a.edited({"blocks.0.attention.heads.1.context": 0}))
    assert not edited.are_models
    assert edited.heads[0][0] == 1  # the effect on the next layer
    assert not compare(a, other.trace("The cat chased the ball, but it")).are_models
    assert compare(a.blocks[1], b.blocks[1]).heads == ()


def test_parts_of_traces_and_attention_of_your_own_arrays(pocket: GPT2) -> None:
    trace = pocket.trace(TEXT)
    other = trace.edited({"blocks.1.attention.heads.2.scores": lambda x: x + 1e-3})
    same, first = (compare(trace.head(1, h), other.head(1, h)).first for h in (1, 2))
    assert same is None
    assert first is not None
    assert first.path == "scores"
    assert first.place.startswith("query ")
    paths = [stage.path for stage in compare(trace.blocks[1].mlp, other.blocks[1].mlp).stages]
    assert paths == ["X", "hidden", "activated", "output"]
    X, W = np.eye(4), np.arange(8.0).reshape(4, 2)
    first, second = (
        attnlab.self_attention(X, W, W, V, mask=attnlab.causal_mask(4)) for V in (W, W + 1e-9)
    )
    names = [stage.path for stage in compare(first, second).stages if not stage.agrees]
    assert names == ["V", "context"]


def test_masked_cells_agree_whatever_the_fill_value() -> None:
    expected = np.array([[1.0, -np.inf, -np.inf], [2.0, -50.0, -np.inf]])
    mine = np.array([[1.5, -1e4, -1e9], [2.0, -np.inf, np.finfo("float32").min]])
    assert distance(mine, expected).tolist() == [[0.5, 0, 0], [0, np.inf, 0]]
    assert distance(expected - 1, expected).tolist() == [[1, 0, 0], [1, 1, 0]]
    small = np.where(np.isneginf(expected), -50.0, expected)  # whose exp isn't negligible
    assert distance(small, expected).tolist() == [[0, np.inf, np.inf], [0, 0, np.inf]]
    assert distance(np.full(2, np.nan), np.zeros(2)).tolist() == [np.inf, np.inf]


# ---- side effects, and refused arguments ---------------------------------------------------------


def test_invalid_arguments_are_refused(pocket: GPT2) -> None:
    trace = pocket.trace(TEXT)
    generation = pocket.generate("The dog", 2, temperature=0, trace=True)
    cases = {
        "a and b must have the same type": (trace, trace.head(0, 0)),
        "two traces or parts of traces; got 'x'": (trace, "x"),
        "got None": (None, trace),
        r"of 8 tokens .* scores \(4, 8, 8\), and Trace of 2": (trace, pocket.trace("The dog")),
        "through 3 blocks": (trace, GPT2.from_pretrained(REFERENCE / "odd").trace(np.arange(12))),
        "Compare gradients with": (attnlab.gradients(trace), attnlab.gradients(trace, " dog")),
        "is a step of generation": (trace, generation.steps[-1].trace),
    }
    for message, (a, b) in cases.items():
        with pytest.raises(AttnlabError, match=message) as caught:
            compare(a, b)  # type: ignore[arg-type]
        assert isinstance(caught.value, InvalidTypeError | InvalidValueError)
    wide, wider = (
        random_model("float32", n_embd=n, n_layer=1, n_head=2).trace([1, 2]) for n in (8, 12)
    )
    with pytest.raises(InvalidValueError, match=r"same shape in both; got \(2, 8\) and \(2, 12\)"):
        compare(wide, wider)
