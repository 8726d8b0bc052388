"""`check` on code as others write it: right in another order, or wrong as students are."""

from functools import cache
from typing import Any

import numpy as np
import pytest
from conftest import REFERENCE
from own_code import (
    PRECISIONS,
    RIGHT,
    WRONG,
    Code,
    as_bfloat16,
    divided_late,
    from_scratch,
    gelu_in_steps,
    keras,
    sdpa,
    softmax,
    turned,
    whole_model,
)
from test_model import Tensor

import attnlab
from attnlab import GPT2, Trace, check
from attnlab.forward.parameters import ParameterVector

TEXT = "The dog chased the ball, but it"
MODELS = ("pocket", "odd", "saturated pocket", "saturated odd")


@cache
def trace_of(name: str) -> Trace:
    """A trace by name; in a saturated model, queries are 12 times as large."""
    source = "pocket" if name.endswith("pocket") else REFERENCE / "odd"
    model = GPT2.from_pretrained(source, dtype="float32" if source == "pocket" else "float64")
    if name.startswith("saturated"):
        parameters = ParameterVector(model.config, dtype=model.parameters.dtype.name)
        for path in parameters:
            parameters[path][...] = model.parameters[path]
            if path.endswith("_Q"):
                parameters[path][...] *= 12
        model = GPT2(parameters, model.tokenizer)
    ids = np.load(REFERENCE / "odd" / "expected.npz")["ids"]
    return model.trace(TEXT if source == "pocket" else ids)


def result_of(name: str) -> Any:
    """A layer's or a head's attention, or attention of arrays, by name."""
    model, _, part = name.partition(", ")
    if model in MODELS:
        trace = trace_of(model)
        return trace.head(1, 1) if part == "head" else trace.blocks[0].attention
    rng = np.random.default_rng(0)
    shapes = {
        "batch": ((2, 5, 6),) * 3,
        "cross": ((3, 4), (7, 4), (7, 5)),
        "one": ((1, 16), (9, 16), (9, 16)),
    }
    Q, K, V = (rng.standard_normal(shape) for shape in shapes[model])
    mask = attnlab.causal_mask(5) if model == "batch" else None
    return attnlab.attention(Q, K, V, mask)


RESULTS = (
    *(f"{model}, {part}" for model in MODELS for part in ("layer", "head")),
    *("batch", "cross", "one"),
)


def submitted(code: Code, result: Any, precision: str) -> dict[str, Any]:
    low = PRECISIONS[precision]
    Q, K, V = (low(getattr(result, name)) for name in "QKV")
    with np.errstate(all="ignore"):
        return code(Q, K, V, np.asarray(result.mask), low)


def some(cases: list[Any], every: int) -> list[Any]:
    """Every so many cases in each test run, the others with the slow tests."""
    return [
        pytest.param(*case, marks=[pytest.mark.slow] if number % every else [])
        for number, case in enumerate(cases)
    ]


@pytest.mark.parametrize(
    ("result", "code", "precision"),
    some([(r, c, p) for p in PRECISIONS for r in RESULTS for c in RIGHT], every=82),
)
def test_right_code_in_any_order_gets_full_marks(result: str, code: Code, precision: str) -> None:
    expected = result_of(result)
    steps = submitted(code, expected, precision)
    verdict = check(steps, expected)
    assert verdict.agrees, str(verdict)
    assert verdict.mistakes == verdict.cells == ()
    orders = [note for note in verdict.notes if note.startswith("Another order")]
    if code.__name__ in ("textbook", "renormalised", "row_by_row"):
        assert orders == []
    elif code.__name__ not in ("divided_late", "one_name", "raw_masked"):  # or nothing is hidden
        assert len(orders) == 1
    # The last step alone says the same.
    *_, last = steps
    assert check({last: steps[last]}, expected).agrees


@pytest.mark.parametrize(
    ("model", "code", "precision", "adds_early"),
    some(
        [
            (model, code, precision, adds_early)
            for model in ("pocket", "saturated pocket")
            for code in (from_scratch, keras, sdpa, divided_late)
            for precision in ("bfloat16", "float16")
            for adds_early in (True, False)
        ],
        every=32,
    ),
)
def test_right_models_in_low_precision_get_full_marks(
    model: str, code: Code, precision: str, adds_early: bool
) -> None:
    trace = trace_of(model)
    with np.errstate(all="ignore"):
        steps = whole_model(trace, code, PRECISIONS[precision], adds_early)
    verdict = check(steps, trace)
    assert verdict.agrees, str(verdict)


def test_gelu_in_steps_of_low_precision() -> None:
    mlp = GPT2.from_pretrained("english").trace("Tom lost his toy car.").blocks[1].mlp
    hidden = as_bfloat16(mlp.hidden)
    mine = {"hidden": hidden, "activated": gelu_in_steps(hidden, as_bfloat16)}
    verdict = check({name: Tensor(x, "bfloat16") for name, x in mine.items()}, mlp)
    assert verdict.agrees, str(verdict)


@pytest.mark.parametrize("result", some([(r,) for r in RESULTS[:2]], every=2))
def test_a_step_of_another_order_alone_asks_what_follows(result: str) -> None:
    expected = result_of(result)
    hidden = np.where(expected.mask, expected.raw_scores, -np.inf)
    verdict = check({"masked_scores": hidden}, expected)
    assert not verdict.agrees
    assert verdict.notes == (
        "Perhaps another order: the scores aren't divided by √Dk yet. That is right if the rest of "
        "your code allows for it; check your weights, too.",
    )
    assert [mistake.formula for mistake in verdict.mistakes] == ["scores = raw_scores"]
    divided = check({"Q": expected.Q / expected.scale}, expected)
    assert divided.mistakes == ()
    assert "Q is divided by √Dk already" in repr(divided)
    both = {"masked_scores": hidden, "weights": expected.weights}
    assert check(both, expected).agrees


@pytest.mark.parametrize(
    ("result", "name", "precision"),
    # Half of all; each mistake, each result and each precision with some of the others.
    some([(r, n, p) for p in ("float64", "float32") for n in WRONG for r in RESULTS[1:6]][::2], 17),
)
def test_each_mistake_is_named_in_one_head(result: str, name: str, precision: str) -> None:
    code, words = WRONG[name]
    expected = result_of(result)
    verdict = check(submitted(code, expected, precision), expected)
    assert any(words in mistake.formula for mistake in verdict.mistakes), str(verdict)
    assert verdict.unexplained == ()


def test_numbers_of_another_place(pocket: GPT2) -> None:
    trace = trace_of("pocket")
    head, other, layer = trace.head(1, 1), trace.head(1, 2), trace.blocks[0].attention
    X, *matrices = np.random.default_rng(0).standard_normal((5, 4, 4))
    own = attnlab.multi_head_attention(X, *matrices, n_head=2)
    cases: list[tuple[dict[str, Any], Any, str]] = [
        ({"Q": other.Q, "K": head.K}, head, "Q = blocks.1.attention.heads.2.Q"),
        (
            {"weights": trace.head(0, 3).weights},
            head,
            "weights = blocks.0.attention.heads.3.weights",
        ),
        (
            {"weights": layer.weights},
            trace.blocks[1].attention,
            "weights = blocks.0.attention.weights",
        ),
        ({"heads.0.Q": own.heads[1].Q}, own, "Q = heads.1.Q"),
    ]
    for mine, expected, formula in cases:
        verdict = check(mine, expected)
        assert [str(mistake.formula) for mistake in verdict.mistakes] == [formula]
        assert "counted from 0" in verdict.mistakes[0].hint


def normalised(x: Any, part: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt(x.var(-1, keepdims=True) + part.epsilon) * part.gain + part.bias


@pytest.mark.slow
def test_mistakes_of_a_block() -> None:
    block = trace_of("odd").blocks[1]
    x, out = block.input, block.attention.output
    ln_1 = normalised(block.mid, block.attention)
    twice = {"attention.output": x + out, "mid": 2 * x + out}
    named: list[tuple[dict[str, Any], str]] = [
        (twice, "output = concat @ W_O + b_O + input"),
        ({"mlp.X": ln_1}, "* attention.gain + attention.bias"),
        ({"attention.X": normalised(x, block.mlp)}, "* mlp.gain + mlp.bias"),
    ]
    for mine, words in named:
        (mistake,) = check(mine, block).mistakes
        assert words in mistake.formula
    once = check({"attention.output": x + out, "mid": x + out}, block)
    assert once.agrees
    assert "the same mid: attention's output has the residual stream" in repr(once)
    folded = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    assert check({"attention.X": folded, "attention.Q": block.attention.Q}, block).agrees


def test_agreeing_steps_rule_out_transposed_matrices() -> None:
    """Only W_Q is transposed, within W_QKV, and K and V agree."""
    block = trace_of("odd").blocks[0].attention
    W_Q = block.W_Q
    Q = (block.X @ W_Q.T + block.b_Q).reshape(-1, 5, 7).swapaxes(0, 1)
    mine = {"X": block.X, "Q": Q, "K": block.K, "V": block.V}
    mine["weights"] = softmax(np.where(block.mask, Q @ turned(block.K) / 7**0.5, -np.inf))
    verdict = check(mine, block)
    assert any("W_Q.T" in mistake.formula for mistake in verdict.mistakes)
    assert verdict.further == verdict.unexplained == ()


def test_rounding_may_turn_a_saturated_softmax_over() -> None:
    """Scores 2004.5 and 2011.5 are both 2008 in bfloat16; weights 0.001 and 0.999 become equal."""
    Q, K = np.array([[32.0, 1.0]]), np.array([[62.5, 4.5], [62.75, 3.5]])
    expected = attnlab.attention(Q, K, K, scale=1)
    weights = softmax(as_bfloat16(Q @ K.T))
    assert weights.tolist() == [[0.5, 0.5]]
    low = {"Q": as_bfloat16(Q), "K": as_bfloat16(K), "weights": as_bfloat16(weights)}
    assert check({name: Tensor(x, "bfloat16") for name, x in low.items()}, expected).agrees


def test_low_precision_hides_what_cancels_but_no_wrong_division() -> None:
    """1024 - 1024 + 2: rounding of Q and K may hide any score. 2 - 1 + 2 has nothing to hide."""
    K = np.array([[1.0, -1, 2], [1, -1, 3]])
    for x, y, factor, wrong in (
        (1024.0, 1024, 1, None),
        (1024.0, 1024, 1.125, None),
        (2.0, 1, 1, None),
        (2.0, 1, 1.125, "scores"),
    ):
        Q = np.array([[x, y, 1]])
        expected = attnlab.attention(Q, K, K, scale=1)
        steps = {"Q": Q, "K": K, "raw_scores": Q @ K.T, "scores": Q @ K.T * factor}
        first = check({name: x.astype("float16") for name, x in steps.items()}, expected).first
        assert (first and first.path) == wrong


def test_half_precision_says_what_it_hides() -> None:
    expected = result_of("saturated pocket, layer")
    verdict = check(submitted(RIGHT[0], expected, "bfloat16"), expected)
    assert verdict.agrees
    assert "Mistakes smaller than its rounding can't be seen" in verdict.notes[-1]
    # Hidden scores of -3e4 aren't rounded to decimals, although 10⁴ times as much overflows.
    expected = result_of("pocket, head")
    assert "decimals" not in repr(check(submitted(RIGHT[1], expected, "float16"), expected))
