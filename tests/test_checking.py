"""Check a student's numbers: find the first wrong step and the mistake."""

import dataclasses
import re
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from conftest import MODELS, REFERENCE
from runs import stored_steps
from student import MISTAKES, OTHERS, RIGHT, steps_of
from test_model import Tensor

import attnlab
from attnlab import GPT2, check
from attnlab.checking.relations import OTHER_PLACE
from attnlab.checking.verdict import Verdict
from attnlab.errors import InvalidTypeError, InvalidValueError
from attnlab.forward.parameters import ParameterVector, parameter_count

TEXT = "The dog chased the ball, but it"
ENDS = (
    *("attention.weights", "attention.context", "attention.output", "mid", "mlp.output"),
    "output",
)
PRECISIONS = [("float32", "float32"), ("float64", "float64"), ("float64", "float32")]


def ids_of(name: str) -> Any:
    return np.load(REFERENCE / name / "expected.npz")["ids"]


@pytest.fixture(scope="module")
def odd() -> GPT2:
    return GPT2.from_pretrained(REFERENCE / "odd", dtype="float64")


def formulas(verdict: Verdict) -> list[str]:
    return [mistake.formula for mistake in verdict.mistakes]


def names(verdict: Verdict, mistake: str) -> bool:
    """Whether a mistake is named, alone or as one of several that can't be told apart."""
    return any(MISTAKES[mistake][0] in formula for formula in formulas(verdict))


def of_layer(steps: dict[str, Any], layer: int = 0) -> dict[str, Any]:
    prefix = f"blocks.{layer}.attention."
    return {path.removeprefix(prefix): x for path, x in steps.items() if path.startswith(prefix)}


# ---- correct code --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "dtype", "students"),
    [
        *((name, *PRECISIONS[0]) for name in (*MODELS, "pocket")),
        *((name, *precisions) for name in ("odd", "pocket") for precisions in PRECISIONS[1:]),
    ],
)
def test_correct_submissions_agree_at_every_step(name: str, dtype: str, students: str) -> None:
    source, text = (REFERENCE / name, ids_of(name)) if name != "pocket" else (name, TEXT)
    trace = GPT2.from_pretrained(source, dtype=dtype).trace(text)
    steps = steps_of(GPT2.from_pretrained(source, dtype=students), trace.ids, dtype=students)
    verdict = check(steps, trace)
    assert len(verdict.stages) == 3 + 18 * trace.config.n_layer + 2
    assert verdict.agrees
    assert verdict.first is None
    assert verdict.mistakes == verdict.cells == ()
    assert max(stage.rounding for stage in verdict.stages) < 1 / 4
    assert "steps agree" in repr(verdict)


@pytest.mark.parametrize("form", RIGHT)
def test_right_programs_are_not_accused(pocket: GPT2, form: str) -> None:
    """All steps together, and each by itself: what is in another order is never a mistake."""
    trace = pocket.trace(TEXT)
    steps = steps_of(pocket, trace.ids, form, dtype="float32")
    verdict = check(steps, trace)
    assert verdict.agrees, str(verdict)
    assert check({"logits": steps["logits"]}, trace).agrees


# ---- every mistake -------------------------------------------------------------------------------


def every(count: int, cases: Iterable[str]) -> list[Any]:
    """Every so many cases in each test run, the others with the slow tests."""
    return [
        pytest.param(case, marks=[pytest.mark.slow] if number % count else [])
        for number, case in enumerate(cases)
    ]


def test_the_table_is_long() -> None:
    assert len(MISTAKES) >= 120


@pytest.mark.parametrize("mistake", every(24, MISTAKES))
def test_each_mistake_is_named_from_all_steps(pocket: GPT2, mistake: str) -> None:
    trace = pocket.trace(TEXT)
    verdict = check(steps_of(pocket, trace.ids, mistake, dtype="float32"), trace)
    assert not verdict.agrees
    assert names(verdict, mistake), verdict.reasons
    assert len(verdict.mistakes) <= 3
    assert verdict.further == verdict.unexplained == ()


# From the logits, another mistake that computes the same: a softmax doesn't change if a number is
# subtracted from all scores, and a head that attends only to itself has its values.
SAME = {
    "scale_subtracted": "scores = raw_scores",
    "mask_diagonal": "context = V",
    "concat_reversed": "np.flip(weights @ V, axis=-3)",
    "V_is_K": "context = weights @ K",
    "Q_is_K": "raw_scores = K @ K.swapaxes",
    "K_is_Q": "raw_scores = Q @ Q.swapaxes",
}
# A mistake that the logits of this text don't show.
UNSEEN = {"fill_50"}


@pytest.mark.parametrize("mistake", every(30, [*MISTAKES][::3]))
def test_each_mistake_is_named_from_the_logits(pocket: GPT2, mistake: str) -> None:
    trace = pocket.trace(TEXT)
    steps = steps_of(pocket, trace.ids, mistake, dtype="float32")
    verdict = check({"logits": steps["logits"]}, trace)
    words = SAME.get(mistake, MISTAKES[mistake][0])
    assert verdict.agrees == (mistake in UNSEEN)
    if mistake not in UNSEEN:
        assert any(words in formula for formula in formulas(verdict)), verdict.reasons


# ---- unknown mistakes ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mistake", "given"),
    [
        pytest.param("sinusoids", "embedding"),
        *(
            pytest.param(mistake, given, marks=pytest.mark.slow)
            for mistake in OTHERS
            for given in ("", "logits")
        ),
    ],
)
def test_unknown_mistakes_are_not_misidentified(pocket: GPT2, mistake: str, given: str) -> None:
    """From one step, or from all."""
    trace = pocket.trace(TEXT)
    steps = steps_of(pocket, trace.ids, mistake, dtype="float32")
    verdict = check({given: steps[given]} if given else steps, trace)
    assert not verdict.agrees
    assert verdict.mistakes == ()
    assert verdict.cells
    assert "No known mistake produces your " in repr(verdict)


@pytest.mark.slow
def test_arbitrary_numbers_are_not_explained(odd: GPT2) -> None:
    trace, rng = odd.trace(ids_of("odd")), np.random.default_rng(0)
    for path in ("blocks.1.attention.weights", "blocks.0.attention.Q", "embedding", "logits"):
        correct = attnlab.at(trace, path)
        for mine in (rng.standard_normal(correct.shape), np.zeros(correct.shape), correct + 1e-7):
            assert check({path: mine}, trace).mistakes == ()


def test_an_array_that_was_never_filled_is_not_explained(pocket: GPT2) -> None:
    """All numbers of this embedding are below 1: as integers, all would be 0."""
    trace = pocket.trace(TEXT)
    verdict = check({"embedding": np.zeros(trace.embedding.shape)}, trace)
    assert verdict.mistakes == ()
    assert verdict.cells


def test_raw_scores_and_scores_are_one_term(pocket: GPT2) -> None:
    """They are multiples of each other: huge multiples that cancel would explain anything."""
    layer = pocket.trace(TEXT).blocks[0].attention
    others = np.where(np.eye(len(layer.mask), dtype=bool), 0, layer.weights)
    submitted = {"raw_scores": layer.raw_scores, "scores": layer.scores, "weights": others}
    assert check(submitted, layer).mistakes == ()


def test_numbers_that_coincide_are_all_named(pocket: GPT2) -> None:
    """Of 8 tokens, 8 is T; and √D = 2 √Dk."""
    trace = pocket.trace(TEXT)
    for mistake, other in (("scale_8", "raw_scores / T"), ("scale_2", "raw_scores / np.sqrt(D)")):
        verdict = check(of_layer(steps_of(pocket, trace.ids, mistake)), trace.blocks[0].attention)
        assert names(verdict, mistake)
        assert f"scores = {other}" in formulas(verdict)


def test_sums_are_of_what_the_step_is_computed_from(pocket: GPT2) -> None:
    block = pocket.trace(TEXT).blocks[0]
    verdict = check({"mid": block.input + block.attention.output / 3}, block)
    assert formulas(verdict) == ["mid = 1 * input + 0.33333 * attention.output"]


@pytest.mark.slow
def test_a_multiple_must_explain_the_difference(pocket: GPT2) -> None:
    """These numbers are 1.0000 times the right ones, which says nothing."""
    mlp = pocket.trace(TEXT).blocks[0].mlp
    noise = np.cos(np.arange(mlp.output.size)).reshape(mlp.output.shape)
    almost = mlp.output + np.float32(3e-5) * noise.astype(np.float32)
    verdict = check({"output": almost}, mlp)
    assert verdict.mistakes == ()
    assert verdict.cells


def test_differing_cells_are_shown(odd: GPT2) -> None:
    trace = odd.trace(ids_of("odd"))
    weights = np.array(trace.blocks[0].attention.weights)
    weights[3, 4, 2] += 0.25
    verdict = check({"weights": weights}, trace.blocks[0].attention)
    symbols = trace.tokens.symbols
    prefix = f"head 3, query 4 {symbols[4]}, key 2 {symbols[2]}"
    correct = float(trace.blocks[0].attention.weights[3, 4, 2])
    assert verdict.first is not None
    assert verdict.first.place == prefix
    assert verdict.first.where == (3, 4, 2)
    assert verdict.first.difference == pytest.approx(0.25)
    assert verdict.differing == f"1 of {weights.size} cells differ, all at {prefix}:"
    assert verdict.cells == ((prefix, correct + 0.25, correct),)
    zeros = attnlab.attention(
        np.array([[0.0, 0], [1, 0]]), np.eye(2), np.eye(2)
    )  # in the first row
    verdict_of_zeros = check({"raw_scores": [[0.0, 0], [2, 0]]}, zeros)
    assert str(verdict_of_zeros.differing).startswith("1 of 4 cells differ")
    single = odd.trace([5])  # whose only query is no news
    verdict = check({"embedding": single.embedding + np.cos(np.arange(35))}, single)
    assert verdict.differing == "35 of 35 cells differ:"
    weights[3, 5, :5] = 0
    verdict = check({"weights": weights}, trace.blocks[0].attention)
    assert verdict.differing == f"6 of {weights.size} cells differ, all at head 3:"
    sizes = [abs(cell.mine - cell.expected) for cell in verdict.cells]
    assert sizes == sorted(sizes, reverse=True)


# ---- dropout -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dropout", "step", "dtype"),
    [
        ("embedding", "embedding", "float32"),
        ("weights", "blocks.0.attention.weights", "float64"),
    ],
)
def test_dropout_is_identified_at_the_changed_step(
    pocket: GPT2, dropout: str, step: str, dtype: str
) -> None:
    trace = GPT2.from_pretrained("pocket", dtype=dtype).trace(TEXT)
    steps = steps_of(pocket, trace.ids, f"dropout_{dropout}", dtype="float32")
    for submitted in (steps, {step: steps[step]}):
        verdict = check(submitted, trace)
        assert verdict.first is not None
        assert verdict.first.path == step
        (formula,) = formulas(verdict)
        assert formula.endswith(" with dropout, p = 0.25")
    head = {"weights": steps["blocks.0.attention.weights"][1]}
    if dropout == "weights":
        assert formulas(check(head, trace.head(0, 1))) == ["weights with dropout, p = 0.25"]


@pytest.mark.slow
def test_zeros_and_factors_that_are_not_dropout(pocket: GPT2) -> None:
    trace = pocket.trace(TEXT)
    correct = trace.blocks[0].attention.weights
    dropped = correct * (np.random.default_rng(0).random(correct.shape) > 0.5)
    halves = np.where(np.arange(correct.shape[-1]) % 2, 2 * dropped, 3 * dropped)
    alone = np.zeros_like(correct)
    alone[0, 5, 2] = 2 * correct[0, 5, 2]  # no evidence: any number is a multiple of any other
    for mine in (dropped, halves, dropped * 0.5, alone):
        assert check({"blocks.0.attention.weights": mine}, trace).mistakes == ()


def test_a_token_in_front_is_refused(odd: GPT2) -> None:
    """As TransformerLens prepends one."""
    trace = odd.trace(ids_of("odd"))
    longer = np.concatenate([trace.embedding[:1], trace.embedding])
    with pytest.raises(InvalidValueError, match=r"your embedding must .* without a token in front"):
        check({"embedding": longer}, trace)


# ---- several mistakes ----------------------------------------------------------------------------


PAIRS = (
    ("scale_D", "relu"),
    ("ln_no_gain", "no_b_2"),
    ("positions_from_1", "silu"),
    ("no_b_QKV", "gelu_exact"),
    ("embedding_scaled", "no_final"),
    ("merge_by_reshape", "scale_Dk"),
)


@pytest.mark.parametrize("pair", every(6, PAIRS))
def test_two_mistakes_are_both_named(odd: GPT2, pair: tuple[str, str]) -> None:
    trace = odd.trace(ids_of("odd"))
    steps = steps_of(odd, trace.ids, *pair)
    verdict = check(steps, trace)
    named = [x.formula for found in (verdict.mistakes, *verdict.further) for x in found]
    assert all(any(MISTAKES[name][0] in formula for formula in named) for name in pair), named
    assert verdict.unexplained == ()
    # The last LayerNorm may count as a mistake of its own.
    assert re.search("[23] mistakes together produce exactly your ", repr(verdict))


def test_a_mistake_is_named_beside_an_unknown_one(odd: GPT2) -> None:
    trace = odd.trace(ids_of("odd"))
    steps = steps_of(odd, trace.ids, "scale_D")
    steps["blocks.0.attention.output"] += np.cos(steps["blocks.0.attention.output"] * 5)
    verdict = check({x: steps[x] for x in steps if "blocks.0.attention." in x}, trace)
    assert names(verdict, "scale_D")
    assert verdict.unexplained == ("blocks.0.attention.output",)
    assert "everything; still different: blocks.0.attention.output." in repr(verdict)


def test_a_mistake_in_one_block_only(odd: GPT2) -> None:
    """Steps that agree narrow the search."""
    trace = odd.trace(ids_of("odd"))
    steps = steps_of(odd, trace.ids)
    mlp = trace.blocks[2].mlp
    steps["blocks.2.mlp.output"] = mlp.output - mlp.b_2
    steps["blocks.2.output"] = trace.blocks[2].output - mlp.b_2
    del steps["final"], steps["logits"]
    assert names(check(steps, trace), "no_b_2")


V_IS_K = "V = K"


def test_agreeing_steps_rule_out_mistakes(odd: GPT2) -> None:
    trace = odd.trace(ids_of("odd"))
    attention, wrong = trace.blocks[0].attention, of_layer(steps_of(odd, trace.ids, "V_is_K"))
    assert formulas(check({"V": wrong["V"]}, attention)) == [V_IS_K]
    for agreeing in ("K", "weights"):
        submitted = {agreeing: getattr(attention, agreeing), "V": wrong["V"]}
        assert names(check(submitted, attention), "V_is_K")
    wrong = of_layer(steps_of(odd, trace.ids, "no_b_QKV"))
    for submitted in ({"V": wrong["V"]}, {"Q": attention.Q, "V": wrong["V"]}):
        assert names(check(submitted, attention), "no_b_V")


def test_indistinguishable_mistakes_are_both_reported(odd: GPT2) -> None:
    trace = odd.trace(ids_of("odd"))
    steps = steps_of(odd, trace.ids, "no_b_QKV")
    submitted = {"blocks.0.attention.weights": steps["blocks.0.attention.weights"]}
    verdict = check(submitted, trace)  # which don't depend on b_K
    assert formulas(verdict) == [  # a softmax doesn't depend on b_K
        "Q = (X @ W_Q).reshape(T, H, -1).swapaxes(-3, -2)",
        "K = (X @ W_K).reshape(T, H, -1).swapaxes(-3, -2), likewise attention.Q",
    ]
    assert "Each of these produces exactly your blocks.0.attention.weights:" in repr(verdict)


@pytest.mark.slow
def test_float32_rounding_is_reported_as_the_explanation(odd: GPT2) -> None:
    trace = odd.trace(ids_of("odd"))
    hidden = trace.blocks[0].mlp.hidden.astype("float32").astype("float64")
    activated = attnlab.equations.gelu(hidden)
    verdict = check({"blocks.0.mlp.activated": activated}, trace)
    assert not verdict.agrees
    assert "Rounding to float32 would explain the differences." in repr(verdict)
    assert check({"blocks.0.mlp.hidden": hidden}, trace).agrees  # recognized as float32
    both = {"blocks.0.mlp.hidden": hidden.astype("float32"), "blocks.0.mlp.activated": activated}
    assert check(both, trace).agrees  # converting from float32 doesn't add precision
    difference = check({"blocks.0.mlp.activated": activated + 1e-3}, trace)
    assert "float32" not in repr(difference)


# ---- one head, a layer, the whole model; accepted kinds of arrays -------------------------------


@pytest.mark.slow
def test_a_head_a_layer_and_the_model(odd: GPT2) -> None:
    trace = odd.trace(ids_of("odd"))
    steps = steps_of(odd, trace.ids, "scale_D")
    layer = of_layer(steps, 1)
    head = {name: layer[name][2] for name in ("scores", "weights", "context")}
    correct, wrong = of_layer(steps_of(odd, trace.ids)), of_layer(steps)
    mixed = {name: correct[name] for name in ("X", "Q", "K")} | {"weights": wrong["weights"]}
    for submitted, result in (
        ({name: head[name] for name in ("scores", "weights")}, trace.head(1, 2)),
        ({"context": head["context"]}, trace.head(1, 2)),
        (mixed, trace.blocks[0].attention),
        ({"attention.weights": layer["weights"]}, trace.blocks[1]),
        ({"heads.2.weights": head["weights"]}, trace.blocks[1].attention),
        ({"blocks.1.attention.heads.2.weights": head["weights"]}, trace),
    ):
        assert names(check(submitted, result), "scale_D")
    verdict = check(mixed, trace.blocks[0].attention)
    assert [stage.agrees for stage in verdict.stages] == [True, True, True, False]


def test_hints_show_the_models_sizes(odd: GPT2) -> None:
    trace = odd.trace(ids_of("odd"))
    steps = of_layer(steps_of(odd, trace.ids, "scale_D"))
    (mistake,) = check(steps, trace.blocks[0].attention).mistakes
    assert mistake.hint == (
        "raw_scores / np.sqrt(D) stands where raw_scores / np.sqrt(Dk) belongs. D = 35 is the "
        "width of the whole residual stream; a head has Dk = 7 columns. Divide by √Dk."
    )
    assert mistake.lines == ("scores = raw_scores / np.sqrt(Dk)",)


def test_array_layouts_and_types(odd: GPT2) -> None:
    trace = odd.trace(ids_of("odd")[:7])  # so that T, not H, equals Dh
    attention = trace.blocks[0].attention
    Q, weights = attention.Q, attention.weights
    for mine in (
        Q,
        Q[None],
        Q.swapaxes(0, 1),  # (T, H, Dh), unlike F.scaled_dot_product_attention
        Q.swapaxes(0, 1)[None],
        np.moveaxis(Q, 0, -1),
        Q.tolist(),
        Q.astype("float32"),
        Tensor(Q.astype("float32"), gradients=True, device="cuda:0"),
        Tensor(Q.astype("float32"), "bfloat16", gradients=True),
    ):
        assert check({"Q": mine}, attention).agrees
    short = odd.trace(ids_of("odd")[:5]).blocks[0].attention  # T = H
    assert check({"weights": np.moveaxis(short.weights, 0, 1)}, short).agrees
    wrong = steps_of(odd, trace.ids, "scale_D")["blocks.0.attention.weights"]
    for mine in (wrong.transpose(1, 0, 2), wrong[None].tolist(), Tensor(wrong)):
        assert names(check({"weights": mine}, attention), "scale_D")
    single = GPT2.from_pretrained(REFERENCE / "one_head").trace(ids_of("one_head"))
    assert check({"blocks.0.attention.Q": single.blocks[0].attention.Q[0]}, single).agrees
    assert check({"scale": 7**0.5, "mask": trace.mask, "weights": weights}, attention).agrees
    assert check({"ids": trace.ids.tolist()}, trace).agrees
    assert not check({"ids": trace.ids + 1}, trace).agrees
    assert not check({"mask": ~trace.mask}, trace).agrees


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_gross_mistakes_are_named_in_half_precision(odd: GPT2, dtype: str) -> None:
    """The student in NumPy's float16, and its numbers converted to float32."""
    trace = odd.trace(ids_of("odd"))
    for mistakes in ((), ("mask_ahead",)):
        steps = steps_of(odd, trace.ids, *mistakes, dtype="float16")
        verdict = check({path: x.astype(dtype) for path, x in steps.items()}, trace)
        assert verdict.agrees == (not mistakes)
        assert all(names(verdict, mistake) for mistake in mistakes)
        assert "compute in float32" in repr(verdict)


@pytest.mark.slow
@pytest.mark.parametrize("mistake", OTHERS)
def test_half_precision_explains_no_unknown_mistake(pocket: GPT2, mistake: str) -> None:
    trace = pocket.trace(TEXT)
    steps = steps_of(pocket, trace.ids, mistake, dtype="float32")
    half = {path: x.astype("float16").astype("float32") for path, x in steps.items()}
    for submitted in (half, {"logits": half["logits"]}):
        assert check(submitted, trace).mistakes == ()


def test_masked_scores_may_have_any_large_negative_value(odd: GPT2) -> None:
    attention = odd.trace(ids_of("odd")).blocks[0].attention
    for fill in (-np.inf, -1e9, -1e4, np.finfo("float64").min):
        mine = np.where(attention.mask, attention.scores, fill)
        assert check({"masked_scores": mine}, attention).agrees
    assert not check(
        {"masked_scores": np.where(attention.mask, attention.scores, -5)}, attention
    ).agrees


def test_attention_of_your_own_arrays() -> None:
    rng = np.random.default_rng(0)
    Q, K, V = (rng.standard_normal((6, 8)) for _ in range(3))
    X, W_O = rng.standard_normal((6, 12)), rng.standard_normal((12, 12))
    W_Q, W_K, W_V = (rng.standard_normal((12, 12)) for _ in range(3))
    mask = attnlab.causal_mask(6)
    chain = attnlab.attention(Q, K, V, mask)
    assert check({"raw_scores": Q @ K.T, "weights": chain.weights}, chain).agrees
    assert names(check({"scores": Q @ K.T}, chain), "no_scale")
    single = attnlab.self_attention(X, W_Q, W_K, W_V, mask=mask, b_Q=X[0])
    assert formulas(check({"Q": X @ W_Q}, single)) == ["Q = X @ W_Q"]
    assert formulas(check({"K": X @ W_K.T}, single)) == ["K = X @ W_K.T"]
    assert formulas(check({"Q": X @ W_K}, single)) == ["Q = K"]
    many = attnlab.multi_head_attention(X, W_Q, W_K, W_V, W_O, n_head=3, mask=mask)
    joined = np.ascontiguousarray(many.context).reshape(6, 12)
    verdict = check({"context": many.context, "output": joined @ W_O}, many)
    assert names(verdict, "merge_by_reshape")
    assert names(check({"Q": (X @ W_Q).reshape(3, 6, 4)}, many), "split_by_reshape")
    batch = attnlab.attention(np.stack([Q, K]), np.stack([K, Q]), np.stack([V, V]), mask)
    mine = np.stack([Q, K]) @ np.stack([K, Q]).swapaxes(1, 2)
    verdict = check({"scores": mine / 8}, batch)
    assert names(verdict, "scale_Dk")
    assert "Dk = 8" in verdict.mistakes[0].hint


def test_cross_attention() -> None:
    rng = np.random.default_rng(0)
    X, memory, W = (rng.standard_normal(shape) for shape in ((2, 3), (5, 3), (3, 3)))
    chain = attnlab.cross_attention(X, memory, W, W, W)
    scores = X @ W @ (memory @ W).T
    assert check({"raw_scores": scores, "scores": scores / 3**0.5}, chain).agrees
    assert names(check({"scores": scores}, chain), "no_scale")
    other = attnlab.cross_attention(X, memory + 1e-9, W, W, W)
    first = check({"K": other.K, "weights": other.weights}, chain).first
    assert first is not None
    assert first.path == "K"


# ---- other traces --------------------------------------------------------------------------------


def variant_of(model: GPT2, **settings: Any) -> GPT2:
    """The model with other settings and the same parameters; W_U has the numbers of W_E."""
    config = dataclasses.replace(model.config, **settings)
    parameters = ParameterVector(config, dtype="float64")
    for path in parameters:
        source = model.parameters["W_E" if path == "W_U" else path]
        parameters[path][...] = source.reshape(parameters[path].shape)
    return GPT2(parameters, model.tokenizer)


def test_variants_of_gpt2(odd: GPT2) -> None:
    variant = variant_of(odd, activation_function="gelu", scale_attn_weights=False)
    trace = variant.trace(ids_of("odd"))
    exact = steps_of(variant, trace.ids, "no_scale", "gelu_exact")
    assert check(exact, trace).agrees
    verdict = check(steps_of(variant, trace.ids, "no_scale"), trace)
    assert formulas(verdict) == ["activated = gelu(hidden)"]
    verdict = check(steps_of(variant, trace.ids, "scale_D", "gelu_exact"), trace)
    assert names(verdict, "scale_D")
    assert verdict.mistakes[0].hint.endswith("Divide by 1.")


VARIANTS: dict[str, tuple[dict[str, Any], str, str]] = {
    "the layer's factor forgotten": (
        {"scale_attn_by_inverse_layer_idx": True},
        "scores = raw_scores / np.sqrt(Dk)",
        "scores = raw_scores / (np.sqrt(Dk) * layer_number)",
    ),
    "divided where the model does not": (
        {"scale_attn_weights": False},
        "scores = raw_scores / np.sqrt(Dk)",
        "scores = raw_scores / 1.0",
    ),
    "GELU for a ReLU model": (
        {"activation_function": "relu"},
        "activated = gelu(hidden)",
        "activated = np.maximum(hidden, 0.0)",
    ),
    "tied where untied": (
        {"tie_word_embeddings": False},
        "logits = final @ W_E.swapaxes(-2, -1)",
        "logits = final @ W_U",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_plain_gpt2_code_is_a_mistake_for_variants(odd: GPT2, variant: str) -> None:
    """GPT-2's code with the parameters of a variant."""
    settings, formula, line = VARIANTS[variant]
    trace = variant_of(odd, **settings).trace(ids_of("odd"))
    steps = steps_of(odd, trace.ids)
    for submitted in (steps, {"logits": steps["logits"]}):
        verdict = check(submitted, trace)
        assert formula in formulas(verdict)
        assert verdict.mistakes[0].lines == (line,)


def test_edited_steps_count_as_correct(odd: GPT2) -> None:
    trace = odd.trace(ids_of("odd")).edited({"blocks.0.attention.heads.4.context": 0})
    steps = steps_of(odd, trace.ids, "ablated_head")
    paths = [path for path in steps if path.startswith("blocks.0.")]
    assert check({path: steps[path] for path in paths}, trace).agrees


def test_a_mistake_in_an_edited_trace(odd: GPT2) -> None:
    plain = odd.trace(ids_of("odd"))
    trace = plain.edited({"blocks.0.attention.heads.4.context": 0, "blocks.1.mlp.b_2": 3.0})
    before = [np.array(x) for x in (trace.logits, plain.logits)]
    block = trace.blocks[1]
    mine = {"blocks.1.input": block.input, "blocks.1.mid": block.attention.output}
    assert names(check(mine, trace), "no_residual_1")
    scores = trace.blocks[0].attention.raw_scores / 35**0.5  # before the edits
    assert names(check({"blocks.0.attention.scores": scores}, trace), "scale_D")
    assert [x.tolist() for x in before] == [trace.logits.tolist(), plain.logits.tolist()]


@pytest.mark.slow
def test_long_texts() -> None:
    config = attnlab.GPT2Config(vocab_size=256, n_positions=200, n_embd=24, n_layer=2, n_head=3)
    vector = np.random.default_rng(0).standard_normal(parameter_count(config)) * 0.2
    model = GPT2(ParameterVector(config, vector), attnlab.Tokenizer.byte_level())
    trace = model.trace(np.random.default_rng(1).integers(0, 256, 170))
    assert check(steps_of(model, trace.ids), trace).agrees
    steps = steps_of(model, trace.ids, "mask_ahead")
    verdict = check({"blocks.1.output": steps["blocks.1.output"]}, trace)
    assert names(verdict, "mask_ahead")


# ---- side effects, and refused arguments ---------------------------------------------------------


def test_check_does_not_modify_its_arguments(odd: GPT2) -> None:
    trace = odd.trace(ids_of("odd"))
    steps = steps_of(odd, trace.ids, "scale_D")
    submitted = {path: array.copy() for path, array in steps.items()}
    before = stored_steps(trace)
    check(submitted, trace)
    assert stored_steps(trace) == before
    verdicts = [check({"logits": trace.logits}, trace) for _ in range(2)]
    assert len(set(verdicts)) == 2  # equal only to themselves
    for path, array in steps.items():
        assert np.array_equal(submitted[path], array)
        assert submitted[path].flags.writeable


NAN_AT_3 = np.where(np.arange(35) == 3, np.nan, np.ones((11, 35)))
INVALID_TYPES: list[tuple[Any, str]] = [
    ([1, 2], r"a dict of arrays by the names of steps, .* got \[1, 2\]"),
    (np.ones(3), "a dict of arrays by the names"),
    ({3: 1.0}, "path must be a str, .* got 3"),
    ({"embedding": np.ones((11, 35), complex)}, "real dtype of at most 64 bits; got .*complex128"),
    ({"embedding": None}, "must have a real dtype"),
]
INVALID_VALUES: list[tuple[Any, str]] = [
    ({}, "nothing to check"),
    ({"blocks.1.attention.wieghts": 1.0}, "similar ones are blocks.1.attention.weights"),
    ({"weights": 1.0}, "similar ones are blocks.0.attention.weights"),
    ({"blocks.7.attention.weights": 1.0}, "similar ones are blocks.2.attention.weights"),
    ({"blocks.0.attention": 1.0}, "'blocks.0.attention' isn't a step of Trace"),
    ({"activation": 1.0}, "activation of .* isn.t an array of numbers"),
    ({"blocks.1.attention.score_bias": 1.0}, "has no blocks.1.attention.score_bias"),
    ({"logits": np.ones((11, 5))}, r"must have shape \(11, 263\), T vocab; got \(11, 5\)"),
    ({"logits": np.broadcast_to(1.0, (10**9, 10**6))}, r"; got \(1000000000, 1000000\)$"),
    ({"logits": np.ones((0, 263))}, r"; got \(0, 263\)$"),
    ({"logits": np.ones((13, 263))}, r"; got \(13, 263\)$"),
    ({"embedding": 3.0}, r"your embedding must have shape .*; got \(1,\)"),
    ({"embedding": [[1.0], [1.0, 2.0]]}, "isn.t an array of numbers"),
    ({"embedding": NAN_AT_3}, r"contains NaN, first at \(0, 3\). The softmax of only -inf is NaN"),
]


def test_invalid_submissions_are_refused(odd: GPT2) -> None:
    trace = odd.trace(ids_of("odd"))
    for kind, cases in ((InvalidTypeError, INVALID_TYPES), (InvalidValueError, INVALID_VALUES)):
        for mine, message in cases:
            with pytest.raises(kind, match=message):
                check(mine, trace)


def test_invalid_references_are_refused(odd: GPT2) -> None:
    with pytest.raises(InvalidTypeError, match=r"a trace or a part of one, .* got 'x'"):
        check({"weights": 1.0}, "x")  # type: ignore[arg-type]
    step = odd.generate([1, 2], 2, temperature=0, trace=True).steps[-1]
    with pytest.raises(InvalidValueError, match=r"of generation.*model.trace\(generation.tokens"):
        check({"logits": 1.0}, step.trace)
    with pytest.raises(InvalidValueError, match="'X' isn't a step of Attention"):
        check({"X": 1.0}, attnlab.attention([[1.0]], [[1.0]], [[1.0]]))


def test_huge_and_infinite_numbers_differ(odd: GPT2) -> None:
    trace = odd.trace(ids_of("odd"))
    for number in (1e308, -1e308, np.inf, -np.inf):
        verdict = check({"embedding": np.full((11, 35), number)}, trace)
        assert not verdict.agrees
        assert verdict.mistakes == ()
        assert "No known mistake" in repr(verdict)


# ---- numbers as they are given -------------------------------------------------------------------


def test_keys_as_rows_are_one_reading(pocket: GPT2) -> None:
    """As in 3Blue1Brown's pictures, where a column is a query."""
    head = pocket.trace(TEXT).head(0, 1)
    turned = {x: getattr(head, x).T for x in ("raw_scores", "scores", "masked_scores", "weights")}
    verdict = check(turned | {"context": head.context}, head)
    assert verdict.agrees
    assert "keys are the rows of your matrices" in verdict.notes[0]
    alone = check({"weights": head.weights.T}, head)
    assert not alone.agrees
    assert "No known mistake" not in repr(alone)


def test_rounded_numbers_agree_up_to_their_decimals(pocket: GPT2) -> None:
    head = pocket.trace(TEXT).head(0, 1)
    for decimals in (2, 4):
        mine = {x: np.round(getattr(head, x), decimals) for x in ("scores", "weights", "context")}
        verdict = check(mine, head)
        assert verdict.agrees, str(verdict)
        assert f"rounded to {decimals} decimals" in verdict.notes[0]
    wrong = np.round(head.raw_scores.astype("float64") / 128**0.5, 4)
    assert names(check({"scores": wrong}, head), "scale_D")


def test_masked_arrays_and_means_of_heads(pocket: GPT2) -> None:
    layer = pocket.trace(TEXT).blocks[0].attention
    hidden = ~np.broadcast_to(layer.mask, layer.scores.shape)
    masked = {
        "masked_scores": np.ma.masked_array(layer.scores, hidden),
        "weights": np.ma.masked_array(layer.weights, hidden),
    }
    assert check(masked, layer).agrees
    whole = check({"scores": np.ma.masked_array(layer.scores.astype(int), hidden)}, layer)
    assert not whole.agrees
    with pytest.raises(
        InvalidValueError, match=r"is the mean over the heads.*average_attn_weights"
    ):
        check({"weights": layer.weights.mean(0)}, layer)
    with pytest.raises(InvalidValueError, match="'query' is called Q here"):
        check({"query": layer.Q}, layer)


def test_an_array_changed_in_place(pocket: GPT2) -> None:
    block = pocket.trace(TEXT).blocks[0]
    verdict = check({"input": block.mid, "mid": block.mid, "output": block.output}, block)
    assert formulas(verdict) == ["input = blocks.0.mid"]
    assert "also changes the array that you recorded" in verdict.mistakes[0].hint
    trace = pocket.trace(TEXT)  # an earlier step wasn't changed in place
    (mistake,) = check({"blocks.1.input": trace.blocks[0].mid}, trace).mistakes
    assert (mistake.formula, mistake.hint) == ("input = blocks.0.mid", OTHER_PLACE)


@pytest.mark.slow
def test_what_logits_cannot_tell_apart_is_said(pocket: GPT2) -> None:
    trace = pocket.trace(TEXT)
    steps = steps_of(pocket, trace.ids, "scores_negative", dtype="float32")
    verdict = check({"logits": steps["logits"]}, trace)
    assert len(verdict.mistakes) > 1
    assert "To tell them apart, give attention.scores, attention.raw_scores" in repr(verdict)
