"""Analyses against transformers with hooks, autograd and full matrices, and by hand."""

import copy
import pickle
import re
from collections.abc import Callable
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from conftest import REFERENCE, needs
from runs import every_step, log_computed, stored_steps
from safetensors.numpy import load_file

import attnlab
from attnlab import (
    GPT2,
    AttnlabError,
    GPT2Config,
    Token,
    Tokenizer,
    Tokens,
    Trace,
    softmax,
)
from attnlab.analysis.jobs import JOBS
from attnlab.analysis.patching import HEADS, has_row_per_token
from attnlab.checkpoints.checkpoint import tensor_name
from attnlab.equations import merge_heads
from attnlab.forward.edits import FIXED, editable_paths
from attnlab.forward.parameters import ParameterVector, parameter_count, parts_of, stored_shapes
from attnlab.forward.products import Product

RECORDED = np.load(REFERENCE / "analysis.npz")
TOLERANCE = {"float32": 1e-4, "float64": 1e-10}
# An untied output matrix, another activation, a scale by layer.
MODEL_NAMES = ("odd", "silu", "quick_gelu")
# By the name of the recorded numbers: the target, and its position.
TARGETS = (("logit", (5, -1)), ("difference", ((7, 100), 3)))

every_model = pytest.mark.parametrize("name", MODEL_NAMES)
every_dtype = pytest.mark.parametrize("dtype", TOLERANCE)


def trace_of(name: str, dtype: str = "float64") -> Trace:
    ids = np.load(REFERENCE / name / "expected.npz")["ids"]
    return GPT2.from_pretrained(REFERENCE / name, dtype=dtype).trace(ids)


def check(actual: Any, name: str, dtype: str) -> None:
    """Compare with recorded numbers, relative to the largest."""
    expected = RECORDED[name]
    assert np.shape(actual) == expected.shape, name
    difference = np.abs(actual - expected).max()
    assert difference <= TOLERANCE[dtype] * max(np.abs(expected).max(), 1e-3), name


@pytest.fixture(scope="module")
def odd() -> Trace:
    return trace_of("odd")


@pytest.fixture(scope="module")
def it(pocket: GPT2) -> Trace:
    return pocket.trace("The dog chased the ball, but it")


# ---- the logit lens --------------------------------------------------------------------------


@every_model
@every_dtype
def test_lens_against_transformers(name: str, dtype: str) -> None:
    lens = attnlab.lens(trace_of(name, dtype))
    logits = [lens.logits(stop)[:, ::66] for stop in lens.stops]
    check(logits, f"{name}/lens/logits", dtype)
    assert np.array_equal(lens.ids, RECORDED[f"{name}/lens/best"])
    assert (lens.ranks == 1).all()
    followed = lens.of(5)
    check(followed.probabilities, f"{name}/lens/probability", dtype)
    assert np.array_equal(followed.ranks, RECORDED[f"{name}/lens/rank"])
    assert (followed.ids == 5).all()
    top = lens.top(3, 4)
    assert np.array_equal(top.ids, RECORDED[f"{name}/lens/top"])
    assert np.array_equal(top.ids[:, 0], lens.ids[:, 4])
    assert np.allclose(top.probabilities[:, 0], lens.probabilities[:, 4], rtol=1e-5, atol=0)
    assert {x.probabilities.dtype for x in (lens, followed, top)} == {np.dtype(dtype)}


def test_lens_of_a_long_text_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of rows, across stops, give the softmax of all rows at once."""
    pocket = GPT2.from_pretrained("pocket", dtype="float64")
    lens = attnlab.lens(pocket.trace(np.arange(128) % 100))
    logits = np.stack([lens.logits(stop) for stop in lens.stops])
    expected = softmax(logits)[..., 7]
    for rows in (10_000, 50):
        monkeypatch.setattr("attnlab.analysis.lens.ROWS", rows)
        followed = lens.of(7)
        assert np.array_equal(followed.ranks, 1 + (logits > logits[..., [7]]).sum(axis=-1))
        assert np.allclose(followed.probabilities, expected, rtol=1e-9, atol=0)


def test_a_lens_computes_the_positions_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    pocket = GPT2.from_pretrained("pocket", dtype="float64")
    trace = pocket.trace(np.arange(3, 103))
    whole = attnlab.lens(trace)
    expected = whole.ids, whole.probabilities
    decoded: list[int] = []
    decode = attnlab.analysis.lens.decode_stream

    def counted(trace: Trace, stream: Any) -> Any:
        decoded.append(len(stream))
        return decode(trace, stream)

    monkeypatch.setattr("attnlab.analysis.lens.decode_stream", counted)
    stops = len(whole.stops)
    for position, rows in ((-1, [99]), (slice(4, 10, 3), [4, 7]), (trace.tokens.symbols[50], [50])):
        lens = attnlab.lens(trace, at=position)
        assert np.array_equal(lens.ids, expected[0][:, rows])
        np.testing.assert_allclose(lens.probabilities, expected[1][:, rows], rtol=1e-12)
        assert [*lens._grid()[2].positions] == rows
        assert lens.of(7).ids.shape == lens.logits("embedding")[:, :stops].T.shape
    decoded.clear()
    attnlab.lens(trace).top(3, 5)
    assert sum(decoded) == stops
    assert "…" not in repr(attnlab.lens(pocket.trace(np.arange(14)))).splitlines()[1]
    with pytest.raises(ValueError, match="selects none of the 100 positions"):
        attnlab.lens(trace, at=slice(100, None))


def test_lens_of_an_edited_trace(it: Trace) -> None:
    edited = it.edited({"blocks.1.attention.heads.2.context": 0})
    lens = attnlab.lens(edited)
    assert "edited" in lens.title
    assert np.array_equal(lens.logits("blocks.1.output"), edited.logits)
    assert np.array_equal(lens.logits("embedding"), attnlab.lens(it).logits("embedding"))


def test_equally_probable_tokens_share_a_rank(it: Trace) -> None:
    assert (attnlab.lens(it.edited({"W_U": 0})).of(" barked").ranks == 1).all()


# ---- direct logit attribution ----------------------------------------------------------------


@every_model
@every_dtype
@pytest.mark.parametrize(("target", "arguments"), TARGETS)
def test_attribution_against_transformers(
    name: str, dtype: str, target: str, arguments: Any
) -> None:
    tokens, position = arguments
    attribution = attnlab.attribution(trace_of(name, dtype), tokens, at=position)
    prefix = f"{name}/{target}"
    for part in ("heads", "mlps", "embedding", "bias", "total"):
        check(getattr(attribution, part), f"{prefix}/{part}", dtype)
    assert attribution.heads.dtype == attribution.mlps.dtype == dtype


def test_attribution_of_edited_traces(it: Trace) -> None:
    head = "blocks.1.attention.heads.2"
    ablated = it.edited({f"{head}.context": 0})
    attribution = attnlab.attribution(ablated, (" rolled", " barked"))
    assert attribution.heads[1, 2] == 0
    assert attnlab.attribution(ablated, [" rolled", " barked"]).total == attribution.total
    assert attribution.total == pytest.approx(
        float(ablated.next_logits[it.next_tokens(1)[0].id])
        - float(ablated.next_logits[it.vocabulary.lookup(" barked").id]),
        rel=1e-5,
    )
    edited = it.edited({f"{head}.output": lambda x: 2 * x + 1})
    attribution = attnlab.attribution(edited, 5)  # refused unless the parts sum to the logit
    before, final = attnlab.attribution(it, 5), edited.blocks[1].output[-1]
    unit = edited.gain * edited.W_U[:, 5]
    unit = (unit - unit.mean()) / np.sqrt(final.var() + edited.epsilon)
    assert attribution.heads[1, 2] == pytest.approx(edited.head(1, 2).output[-1] @ unit, rel=1e-4)
    assert attribution.heads[1, 2] != pytest.approx(before.heads[1, 2], rel=1e-2)
    block = ("blocks.0.attention.output", "blocks.1.attention.concat", "blocks.1.mid")
    for path in ("embedding", *block, "final", "logits"):
        with pytest.raises(ValueError, match=r"don't sum to the logit.*edited"):
            attnlab.attribution(it.edited({path: lambda x: 2 * x + 1}), 5)


def test_attribution_of_nearly_equal_logits(it: Trace) -> None:
    """Rounding is relative to the parts, which may cancel, not to their small sum."""
    order = np.argsort(it.next_logits)
    nearest = int(np.diff(it.next_logits[order]).argmin())
    attribution = attnlab.attribution(it, (int(order[nearest + 1]), int(order[nearest])))
    parts = np.array(
        [*attribution.heads.flat, *attribution.mlps, attribution.embedding, attribution.bias]
    )
    assert abs(attribution.total) < 1e-4 * np.abs(parts).sum()
    assert parts.sum() == pytest.approx(attribution.total, abs=1e-6)


def test_attribution_in_a_step_of_generation(pocket: GPT2) -> None:
    """The numbers equal those of one pass."""
    generation = pocket.generate("The dog chased the ball, but it", 2, temperature=0, trace=True)
    step, whole = generation.steps[1].trace, pocket.trace(generation.tokens)
    attribution, of_whole = (attnlab.attribution(step, 5), attnlab.attribution(whole, 5, at=8))
    assert np.allclose(attribution.heads, of_whole.heads, atol=1e-4)


# ---- gradients -------------------------------------------------------------------------------

GRADIENTS = (
    ("odd", "loss", (None, -1)),
    ("odd", "difference", ((7, 100), 3)),
    ("silu", "logit", (5, -1)),
    ("quick_gelu", "loss", (None, -1)),
    ("relu", "difference", ((7, 100), 3)),
)


@every_dtype
@pytest.mark.parametrize(("name", "target", "arguments"), GRADIENTS)
def test_gradients_of_every_step_against_pytorch(
    name: str, target: str, arguments: Any, dtype: str
) -> None:
    tokens, position = arguments
    gradients = attnlab.gradients(trace_of(name, dtype), tokens, at=position)
    prefix = f"{name}/gradients/{target}"
    names = str(RECORDED[f"{prefix}/names"]).splitlines()
    by_tensor = {
        f"parameter transformer.{tensor_name(path)}": path
        for path in stored_shapes(gradients.config)
    }
    by_tensor["parameter lm_head.weight"] = "W_U"
    assert by_tensor.keys() & {*names} == {x for x in names if x.startswith("parameter")}
    assert len(names) > 80
    numbers = RECORDED[f"{prefix}/numbers"]
    for key in names:
        parts = [attnlab.at(gradients, path) for path in parts_of(by_tensor.get(key, key))]
        if len(parts) > 1:  # transformers computes Q, K and V by one product
            columns = (merge_heads(x) if x.ndim == 3 else x for x in parts)
            parts = [np.concatenate([*columns], axis=-1)]
        (d,) = parts
        assert d.dtype == dtype, key
        d = (d.T if key == "parameter lm_head.weight" else d).ravel()
        d = d if d.size <= 60 else d[::11]
        expected, numbers = np.split(numbers, [d.size])
        difference = np.abs(d - expected).max()
        assert difference <= TOLERANCE[dtype] * max(np.abs(expected).max(), 1e-2), key
    assert not numbers.size


# A head, a layer, a parameter, a slice of one, shared steps, and steps without gradients.
HELD: dict[str, Any] = {
    "blocks.1.attention.heads.0.context": 0,
    "blocks.1.attention.heads.1.weights": 0.2,
    "blocks.1.attention.heads.1.W_Q": 0.5,
    "blocks.1.mlp.hidden": 0.3,
    "blocks.2.attention.heads.0.K": 0.7,
    "blocks.2.attention.heads.1.scores": 0.1,
    "blocks.2.mlp.gain": 2,
    "blocks.2.attention.epsilon": 0.5,
    "blocks.2.attention.heads.1.mask": True,
}


@pytest.mark.parametrize("held", [{}, HELD], ids=["as it is", "edited"])
@pytest.mark.parametrize("T", [5, 100], ids=["short", "long"])
def test_gradients_of_every_step_by_differences(T: int, held: dict[str, Any]) -> None:
    """Central differences: the step is edited slightly up and down, and the rest is recomputed."""
    config = GPT2Config(vocab_size=256, n_positions=T, n_embd=6, n_layer=3, n_head=2)
    rng = np.random.default_rng(0)
    parameters = ParameterVector(config, rng.standard_normal(parameter_count(config)) / 2)
    trace = GPT2(parameters, Tokenizer.byte_level()).trace(rng.integers(0, 256, T))
    trace = trace.edited(held) if held else trace
    gradients = attnlab.gradients(trace, (5, 7), at=T // 2)
    tried = 0
    for part, name in every_step(trace):
        path = part._prefix + name
        step = getattr(part, name)
        left_alone = (*FIXED, "positions", "mask", "scale", "epsilon", "masked_scores")
        if name in left_alone or step is None or "blocks.0" in path:
            continue
        direction = rng.standard_normal(step.shape)
        direction /= np.linalg.norm(direction)

        def moved(by: float, path: str = path, direction: Any = direction) -> float:
            edited = trace.edited({path: lambda x: x + by * direction})
            return float(edited.logits[T // 2, 5] - edited.logits[T // 2, 7])

        slope = (moved(1e-5) - moved(-1e-5)) / 2e-5
        actual = float((attnlab.at(gradients, path) * direction).sum())
        assert slope == pytest.approx(actual, rel=1e-5, abs=1e-7), path
        tried += 1
    assert tried > 140


def test_gradients_are_computed_on_access(odd: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    result = attnlab.gradients(odd, 5)
    last = result.blocks[2].mlp.activated
    assert not [path for path in result._run.values if path.startswith(("blocks.0", "blocks.1"))]
    assert not [path for path in result._run.values if "W_" in path]
    assert last is result.blocks[2].mlp.activated


def test_gradients_of_a_deep_model() -> None:
    config = GPT2Config(vocab_size=256, n_positions=4, n_embd=2, n_layer=150, n_head=1)
    trace = GPT2(ParameterVector(config), Tokenizer.byte_level()).trace([1, 2, 3])
    assert (attnlab.gradients(trace, 5).embedding == 0).all()


def test_gradients_as_text_and_picture(it: Trace) -> None:
    gradients = attnlab.gradients(it, (" rolled", " barked"))
    of = "gradient of the logit of Ġrolled minus that of Ġbarked at position 7"
    head = gradients.head(1, 2)
    assert np.array_equal(head.weights, gradients.blocks[1].attention.weights[2])
    for part in (gradients, gradients.blocks[1].attention, head):
        assert part.title.endswith(f", {of}")
        assert repr(part).startswith(part.title)
    assert repr(gradients).endswith(gradients._hint)
    assert "not computed yet" not in repr(gradients)
    assert head._heading_of("weights") == f"{of} with respect to weights"
    needs("matplotlib", "plot")
    (image,) = head.plot("weights").axes.images
    assert np.allclose(image.get_array().filled(0), np.tril(head.weights), atol=1e-6)


def test_gradients_in_a_step_of_generation(pocket: GPT2) -> None:
    generation = pocket.generate("The dog chased the ball, but it", 2, temperature=0, trace=True)
    step = attnlab.gradients(generation.steps[1].trace, 5)
    whole = attnlab.gradients(pocket.trace(generation.tokens), 5, at=8)
    assert step.blocks[1].attention.K.shape == (4, 9, 32)
    assert np.allclose(step.blocks[1].output[-1], whole.blocks[1].output[8], atol=1e-4)
    assert np.allclose(
        step.blocks[1].attention.K[:, 8], whole.blocks[1].attention.K[:, 8], atol=1e-4
    )
    Q, V = step.blocks[1].attention.Q, step.blocks[1].attention.V
    assert np.allclose(Q[:, 0], whole.blocks[1].attention.Q[:, 8], atol=1e-4)
    assert np.allclose(V[:, 8], whole.blocks[1].attention.V[:, 8], atol=1e-4)
    assert np.allclose(step.blocks[1].attention.X[0], whole.blocks[1].attention.X[8], atol=1e-4)


def test_patching_of_a_logit_at_another_position(it: Trace, it_again: Trace) -> None:
    """By edits, one by one; of several pairs, too. A function reads any position itself."""
    pair = (" barked", " meowed")
    barked, meowed = (it.vocabulary.lookup(token).id for token in pair)
    columns = it.W_U[:, barked] - it.W_U[:, meowed]

    def measure(trace: Trace) -> float:
        return float(trace.final[5] @ columns)

    parts = "blocks.*.mlp.output"
    expected = attnlab.patch(it, it_again, parts, target=measure, progress=False)
    for position in (5, 5 - len(it.tokens), it.tokens.symbols[5]):
        found = attnlab.patch(it, it_again, parts, target=pair, at=position, progress=False)
        np.testing.assert_allclose(found.restored, expected.restored, rtol=1e-3)
    assert "at position 5" in found.title
    estimate = attnlab.attribution_patch(it, it_again, parts, target=pair, at=5)
    assert estimate.clean == pytest.approx(measure(it), rel=1e-4)
    path = attnlab.path_patch(it, it_again, parts, target=pair, at=5, progress=False)
    by_hand = attnlab.path_patch(it, it_again, parts, target=measure, progress=False)
    np.testing.assert_allclose(path.restored, by_hand.restored, rtol=1e-3, atol=1e-5)
    with pytest.raises(AttnlabError, match="a function reads any position"):
        attnlab.patch(it, it_again, parts, target=measure, at=5, progress=False)


def test_the_gradient_of_a_dropout_mask_and_gradients_that_overflow() -> None:
    """y is linear in each factor: the gradient is what a factor of 1 more would add."""
    random = np.random.default_rng(5)
    Q, K, V, d = random.normal(size=(4, 2, 3, 5))
    mask = np.tril(np.ones((3, 3), bool))
    factors = random.choice([0.0, 2.0], (2, 3, 3))

    def result(factors: Any) -> Any:
        dropped = attnlab.attention(Q, K, V, mask, dropout=0.5, rng=1)
        return dropped.edited({"dropout_mask": factors})

    gradients = attnlab.gradients(result(factors), d=d)
    expected = np.zeros_like(factors)
    for index in np.ndindex(factors.shape):
        more = factors.copy()
        more[index] += 1
        change = result(more).context - result(factors).context
        expected[index] = (d * change).sum()
    np.testing.assert_allclose(gradients.dropout_mask, expected, rtol=0, atol=1e-12)
    assert np.count_nonzero(expected) == 12  # none where the mask hides the key
    with pytest.raises(AttnlabError, match=r"the gradient of .* overflows"):
        attnlab.gradients(result(0.0), d=1e308).Q  # noqa: B018


@pytest.mark.parametrize("step", ["logits", "next_logits"])
def test_no_gradient_flows_through_edited_logits(odd: Trace, step: str) -> None:
    d = attnlab.gradients(odd.edited({step: 1}), 5)
    assert d.logits[-1, 5] == 1
    assert not d.final.any()
    assert not d.W_E.any()
    loss = attnlab.gradients(odd.edited({step: 1})).final
    assert loss.any() == (step == "next_logits")  # the loss excludes it


def test_gradients_do_not_flow_through_function_edits(odd: Trace) -> None:
    """Later steps have gradients; earlier ones only if no gradient flows through the edit."""
    mid = {"blocks.1.mid": lambda x: 2 * x}
    edited = odd.edited(mid)
    d = attnlab.gradients(edited, 5)
    held = attnlab.gradients(odd.edited({"blocks.1.mid": edited.blocks[1].mid}), 5)
    for path in ("final", "blocks.2.attention.weights", "blocks.1.mid", "blocks.1.mlp.W_1"):
        assert np.array_equal(attnlab.at(d, path), attnlab.at(held, path))
        assert attnlab.at(d, path).any()
    for path in ("blocks.1.input", "blocks.1.attention.output", "embedding", "W_P", "W_E"):
        with pytest.raises(
            ValueError, match=r"through the edit of blocks\.1\.mid: the derivative of a function"
        ):
            attnlab.at(d, path)
    assert "through the edit of blocks.1.mid" in repr(d.blocks[1].attention)
    assert not held.embedding.any()
    constant = {f"blocks.2.attention.{name}": 0.1 for name in "QKV"}
    cut = attnlab.gradients(odd.edited(constant), 5).blocks[2].attention
    assert cut.V.any()
    assert not cut.X.any()
    assert not cut.heads[0].X.any()
    assert "edited: blocks.1.mid, gradient of the logit" in d.title
    # A later edit makes its result constant; an earlier one precedes the function.
    assert not attnlab.gradients(edited.edited({"blocks.1.mid": 3}), 5).embedding.any()
    assert not attnlab.gradients(edited.edited({"blocks.2.input": 3}), 5).blocks[1].input.any()
    with pytest.raises(ValueError, match="derivative of a function"):
        attnlab.gradients(odd.edited({"blocks.1.mid": 3}).edited(mid), 5).embedding  # noqa: B018


@pytest.mark.parametrize("step", ["X", "scale", "output"])
def test_gradients_of_edits_of_a_single_heads_steps(odd: Trace, step: str) -> None:
    path = f"blocks.1.attention.heads.2.{step}"
    d = attnlab.gradients(odd.edited({path: 0.5}), 5)
    assert d.blocks[1].attention.output.any()
    with pytest.raises(ValueError, match=rf"edit of {path}: the layer doesn.t compute"):
        d.embedding  # noqa: B018


def test_attribution_patching_of_an_edited_trace(odd: Trace) -> None:
    """If everything after is linear, attribution patching equals patching."""
    other = GPT2.from_pretrained(REFERENCE / "odd", dtype="float64").trace(odd.tokens.ids[::-1])
    other = other.edited({"blocks.0.mid": 0.1, "blocks.2.attention.weights": 0.1, "final": 1})
    settings: Any = {"target": (7, 100), "parts": "final"}
    guessed = attnlab.attribution_patch(odd, other, **settings)
    patching = attnlab.patch(odd, other, **settings, progress=False)
    assert guessed.restored == pytest.approx(patching.restored)
    assert patching.restored == pytest.approx(1)


# ---- patching --------------------------------------------------------------------------------

PARTS = {
    "heads": "blocks.*.attention.heads.*.context",
    "mlps": "blocks.*.mlp.output",
    "stream": "blocks.*.output",
}


@every_model
@every_dtype
def test_patching_against_transformers(name: str, dtype: str) -> None:
    clean = trace_of(name, dtype)
    model = GPT2.from_pretrained(REFERENCE / name, dtype=dtype)
    corrupted = model.trace(RECORDED[f"{name}/patching/ids"])
    # The smaller the difference to restore, the larger the rounding error of shares.
    ends = [trace.next_logits[7] - trace.next_logits[100] for trace in (clean, corrupted)]
    scale = max(1.0, 1 / abs(float(ends[0] - ends[1])))
    for kind, parts in PARTS.items():
        for by_position in (False, True):
            rows = ".rows" * by_position
            settings: dict[str, Any] = {"target": (7, 100), "by_position": by_position}
            patching = attnlab.patch(clean, corrupted, parts, **settings, progress=False)
            guessed = attnlab.attribution_patch(clean, corrupted, parts, **settings)
            for result, recorded in ((patching, "restored"), (guessed, "guessed")):
                expected = RECORDED[f"{name}/patching/{kind}.{recorded}{rows}"]
                assert result.restored.shape == expected.shape
                difference = np.abs(result.restored - expected).max()
                assert difference <= TOLERANCE[dtype] * scale * max(1, np.abs(expected).max())


@pytest.fixture(scope="module")
def it_again(pocket: GPT2) -> Trace:
    return pocket.trace("The cat chased the ball, but it")


def test_scores_that_both_texts_hide_change_nothing(it: Trace, it_again: Trace) -> None:
    masked, scores = (
        attnlab.attribution_patch(
            it, it_again, f"blocks.*.attention.heads.*.{step}", target=(" barked", " meowed")
        )
        for step in ("masked_scores", "scores")
    )
    assert np.abs(scores.restored).max() > 0.005
    assert masked.restored == pytest.approx(scores.restored, rel=1e-5, abs=1e-7)


def test_a_path_without_a_star_is_one_patch(it: Trace, it_again: Trace) -> None:
    """Everything depends on the embedding; the logits of the last token, on its last row alone."""
    settings: Any = {"target": (" barked", " meowed"), "progress": False}
    embedding = attnlab.patch(it, it_again, "embedding", **settings)
    assert embedding.restored == pytest.approx(1, abs=1e-4)
    assert embedding.restored.shape == embedding.standard_errors.shape == ()
    assert embedding.effects.shape == (1,)
    assert np.isnan(embedding.standard_errors)
    stream = attnlab.patch(it, it_again, "blocks.*.output", by_position=True, **settings)
    assert stream.restored[-1, -1] == pytest.approx(1, abs=1e-4)
    assert (stream.restored[-1, :-1] == 0).all()
    assert stream.paths == ("blocks.0.output", "blocks.1.output")
    # Linear, and a step without rows.
    logits = attnlab.attribution_patch(it, it_again, "next_logits", target=settings["target"])
    assert logits.restored == pytest.approx(1, abs=1e-5)


def patch_one_by_one(clean: Trace, corrupted: Trace, parts: str, by_position: bool) -> Any:
    """Equal to `patch` with a metric function, which gets one trace at a time."""

    def metric(trace: Trace) -> Any:
        return trace.logits[-1, 7] - trace.logits[-1, 100]

    settings: Any = {"by_position": by_position, "progress": False}
    return attnlab.patch(clean, corrupted, parts, target=metric, **settings).restored


@pytest.mark.parametrize(
    ("dtype", "at_once", "every"),
    [
        ("float32", 256, 4),
        ("float64", 32, 3),
        pytest.param("float64", 32, 1, marks=pytest.mark.slow),
    ],
)
def test_batched_patches_equal_separate_patches(
    dtype: str, at_once: int, every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For every step of layers and heads; with 11 tokens, a batch of 32 rows has two runs."""
    monkeypatch.setattr("attnlab.analysis.patching.MAX_ROWS", at_once)
    monkeypatch.setattr("attnlab.analysis.patching.ENOUGH_ROWS", at_once // 2)
    clean = trace_of("odd", dtype)
    T = len(clean.tokens)
    assert 2 * T <= 32 < 3 * T
    model = GPT2.from_pretrained(REFERENCE / "odd", dtype=dtype)
    other = model.trace(RECORDED["odd/patching/ids"])
    # These give other numbers to steps that are equal in both traces.
    changes = {"positions": np.arange(T)[::-1], "epsilon": 0.1, "gain": 1.1, "W_P": 0.5}
    changes |= {"blocks.1.attention.scale": 3, "blocks.1.attention.heads.2.W_Q": 0.1}
    clean = clean.edited(changes)
    tried = 0
    forms = editable_paths(other._run.graph)
    for n, form in enumerate(forms[::every]):
        parts = form.replace("#", "*")
        rows = has_row_per_token(other._run.graph, form.replace("#", "0"))
        for by_position in (False, True) if rows and n % 2 and "heads" not in parts else (False,):
            expected = patch_one_by_one(clean, other, parts, by_position)
            settings: Any = {"by_position": by_position, "progress": False}
            patching = attnlab.patch(clean, other, parts, target=(7, 100), **settings).restored
            difference = np.abs(patching - expected).max()
            assert difference <= 3 * TOLERANCE[dtype] * max(1, np.abs(expected).max()), parts
            tried += bool(np.abs(expected).max() > 1e-3)
    assert tried > 48 / every


def test_patches_of_edited_traces_and_of_steps_of_generation(odd: Trace, pocket: GPT2) -> None:
    """Edits after the patched step, whose functions expect one run, and cached keys."""
    other = GPT2.from_pretrained(REFERENCE / "odd", dtype="float64").trace(odd.tokens.ids[::-1])

    def first_row_out(x: Any) -> Any:
        changed = x.copy()
        changed[0] = 0
        return changed

    steps = [
        pocket.generate(text, 2, temperature=0, trace=True).steps[1].trace
        for text in ("The dog chased the ball, but it", "The cat saw the hen, but it")
    ]
    for clean, corrupted in ((odd, other.edited({"blocks.2.mid": first_row_out})), steps):
        patching = attnlab.patch(clean, corrupted, target=(7, 100), progress=False)
        expected = patch_one_by_one(clean, corrupted, HEADS, False)
        assert np.allclose(patching.restored, expected, atol=1e-3)
        assert np.abs(expected).max() > 0.1


def test_patches_of_a_layer_are_batched_and_share_earlier_steps(
    it: Trace, it_again: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One product for all patches instead of one for each; earlier steps aren't recomputed."""
    attnlab.patch(it, it_again, target=5, progress=False)
    paths = log_computed(monkeypatch)
    attnlab.patch(it, it_again, target=5, progress=False)
    assert paths.count("blocks.1.mlp.output") == 2
    assert paths.count("blocks.0.mlp.output") == 1
    assert not {"blocks.0.attention.Q", "logits", "next_logits"} & {*paths}
    for _ in range(2):  # the first computes the steps of the two traces
        paths.clear()
        attnlab.patch(it, it_again, "blocks.1.mlp.output", target=5, progress=False)
    assert {*paths} == {"blocks.1.output", "final"}


@pytest.mark.parametrize("step", ["logits", "next_logits"])
def test_a_target_reads_edited_logits(it: Trace, step: str) -> None:
    target = attnlab.attribution(it, " barked").target
    edited = it.edited({step: 7.5})
    assert target.value(edited) == 7.5
    earlier = attnlab.attribution(it, " barked", at=3).target
    expected = edited.logits[3, earlier.token.id]  # next_logits only affects the last position
    assert earlier.value(edited) == pytest.approx(expected)


# ---- circuits --------------------------------------------------------------------------------


def products() -> tuple[Product, Any]:
    rng = np.random.default_rng(0)
    left, right = rng.standard_normal((7, 3)), rng.standard_normal((3, 7))
    return Product(left, right), left @ right


def test_products_equal_full_matrices() -> None:
    product, full = products()
    x, X = np.arange(7.0), np.random.default_rng(1).standard_normal((5, 7))
    assert np.allclose(product.full(), full)
    assert product.shape == (7, 7)
    assert np.allclose(product.T.full(), full.T)
    assert np.allclose(product @ x, full @ x)
    assert np.allclose(x @ product, x @ full)
    for result, expected in (
        (X @ product, X @ full),
        (product @ X.T, full @ X.T),
        (product @ product, full @ full),
        ((X @ product) @ product.T, X @ full @ full.T),
        (product.T @ (product @ X.T), full.T @ full @ X.T),
    ):
        assert isinstance(result, Product)
        assert result.left.shape[1] == 3
        assert np.allclose(result.full(), expected)


def test_product_of_products_keeps_the_smaller_inner_dimension() -> None:
    rng = np.random.default_rng(0)
    wide = Product(rng.standard_normal((9, 5)), rng.standard_normal((5, 8)))
    thin = Product(rng.standard_normal((8, 2)), rng.standard_normal((2, 6)))
    result = wide @ thin
    assert result.left.shape == (9, 2)
    assert np.allclose(result.full(), wide.full() @ thin.full())
    assert (thin.T @ wide.T).left.shape == (6, 2)


def test_singular_values_and_norms_of_a_product() -> None:
    product, full = products()
    U, values, Vt = product.svd()
    assert (U.shape, values.shape, Vt.shape) == ((7, 3), (3,), (3, 7))
    assert np.allclose(U * values @ Vt, full)
    assert np.allclose(U.T @ U, np.eye(3))
    assert np.allclose(Vt @ Vt.T, np.eye(3))
    assert np.allclose(product.singular_values, np.linalg.svd(full)[1][:3])
    assert np.allclose(values, product.singular_values)
    assert product.norm == pytest.approx(np.linalg.norm(full))
    assert repr(product).startswith("Product, 7 x 7 = (7 x 3) (3 x 7)\nsingular values ")


@every_model
@every_dtype
def test_circuits_against_full_matrices(name: str, dtype: str) -> None:
    trace = trace_of(name, dtype)
    head = trace.head(1, 1)
    assert head.QK.left.shape == (trace.config.n_embd, trace.config.d_head)
    r = trace.config.d_head
    singular = RECORDED[f"{name}/circuits/singular"]
    assert np.allclose(head.QK.singular_values, singular[:r], atol=TOLERANCE[dtype])


@pytest.mark.parametrize("path", ["final", "logits"])
def test_lens_ignores_edits_after_the_residual_stream(odd: Trace, path: str) -> None:
    edited = odd.edited({path: 0})
    last = attnlab.lens(edited)
    assert np.allclose(last.logits("blocks.2.output"), odd.logits)
    assert not edited.logits.any()
    assert f"The edit of {path} comes after the residual stream" in " ".join(str(last).split())
    assert "comes after" not in str(attnlab.lens(odd.edited({"blocks.2.output": 0})))


def test_QK_and_OV_give_scores_and_outputs(odd: Trace) -> None:
    """Without biases."""
    none = {f"blocks.1.attention.b_{name}": 0 for name in "QKV"}
    head = odd.edited(none).head(1, 2)
    assert np.allclose((head.X @ head.QK @ head.X.T).full(), head.raw_scores)
    assert np.allclose(head.weights @ (head.X @ head.OV).full(), head.output)
    assert "QK = W_Q W_Kᵀ" in repr(head.QK)
    for n, shown in ((8, "9, 8, 7, 6, 5, 4, 3, 2"), (9, "9, 8, 7, 6, 5, 4, 3, 2, … 1")):
        product = Product(np.diag(np.arange(9.0, 9 - n, -1)), np.eye(n), "P")
        assert repr(product).endswith(f"\nsingular values {shown}")
    assert repr(head.OV).startswith(head.title)


def test_a_heads_parameters_without_a_text() -> None:
    """By hand, from the file; no other layer is read."""
    directory = REFERENCE / "odd"
    model = GPT2.from_pretrained(directory)
    tensors = load_file(directory / "model.safetensors")
    D, H = model.config.n_embd, model.config.n_head
    Dh, names = D // H, ("Q", "K", "V")
    prefix = "transformer.h.1.attn."
    W, b = (tensors[f"{prefix}c_attn.{name}"] for name in ("weight", "bias"))
    heads = {n: model.head(1, n) for n in (0, H - 1, -1)}
    for n, head in heads.items():
        first = n % H * Dh
        for part, name in enumerate(names):
            columns = slice(part * D + first, part * D + first + Dh)
            assert np.array_equal(getattr(head, f"W_{name}"), W[:, columns])
            assert np.array_equal(getattr(head, f"b_{name}"), b[columns])
        W_O = tensors[f"{prefix}c_proj.weight"][first : first + Dh]
        assert np.array_equal(head.W_O, W_O)
        assert np.allclose(head.OV.full(), head.W_V @ W_O, atol=1e-6)
        assert np.allclose(head.QK.full(), head.W_Q @ head.W_K.T, atol=1e-6)
        assert head.title == model.trace([1]).head(1, n).title
    assert repr(heads[0]).startswith(f"Layer 1, attention, head 0: W_Q ({D}, {Dh}), b_Q ({Dh},), ")
    assert {path.split(".")[1] for path in model.parameters._arrays} == {"1"}
    for layer, head in ((0, H), (model.config.n_layer, 0)):
        with pytest.raises(IndexError, match="out of range"):
            model.head(layer, head)


# ---- jobs of heads ---------------------------------------------------------------------------


def named_tokens(*names: str) -> Tokens:
    return Tokens(Token(ord(name), name, name, name.encode()) for name in names)


def test_keys_of_each_job() -> None:
    tokens = named_tokens(*"abab")
    targets = {name: np.argwhere(job(tokens)).tolist() for name, job in JOBS.items()}
    assert targets == {
        "previous": [[1, 0], [2, 1], [3, 2]],
        "first": [[1, 0], [2, 0], [3, 0]],
        "same": [[2, 0], [3, 1]],
        "induction": [[2, 1], [3, 2]],
    }
    tokens = named_tokens(*"aaba")
    assert np.argwhere(JOBS["same"](tokens)).tolist() == [[1, 0], [3, 0], [3, 1]]
    assert np.argwhere(JOBS["induction"](tokens)).tolist() == [[1, 1], [3, 2]]


def test_a_job_with_several_keys(it: Trace) -> None:
    """All earlier tokens: i of the i + 1 visible ones."""
    jobs = attnlab.jobs(it, {"earlier": lambda tokens: np.tri(len(tokens), k=-1, dtype=bool)})
    i = np.arange(1, 8)
    assert jobs.even[0] == pytest.approx(np.mean(i / (i + 1)))
    itself = np.diagonal(it.head(1, 2).weights)[1:]
    assert jobs.attention[0, 1, 2] == pytest.approx(np.mean(1 - itself), rel=1e-5)


def test_a_custom_job(it: Trace) -> None:
    def it_to_animal(tokens: Tokens) -> Any:
        return np.outer(
            [text == " it" for text in tokens.texts], [t == " dog" for t in tokens.texts]
        )

    jobs = attnlab.jobs(it, {"animal": it_to_animal})
    assert jobs.best("animal") == (1, 2)
    assert np.allclose(jobs.attention[0, 1, 2], it.head(1, 2).weights[-1, 1])
    assert jobs.even == pytest.approx([1 / 8])
    # Masked keys don't count, and a job without keys has no share.
    nobody = attnlab.jobs(it, {"after": lambda tokens: np.eye(len(tokens), k=1, dtype=bool)})
    assert np.isnan(nobody.attention).all()


# ---- refusals --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def on(pocket: GPT2, it: Trace, it_again: Trace, odd: Trace) -> SimpleNamespace:
    """What the refused calls start from."""
    texts = ("The dog chased the ball", "The cat chased the ball")
    steps = [pocket.generate(text, 2, trace=True).steps[-1].trace for text in texts]
    return SimpleNamespace(
        pocket=pocket,
        it=it,
        odd=odd,
        other=pocket.trace("The dog"),
        likely=it.next_tokens(1)[0],
        two=pocket.trace(["The dog", "The dog chased"]),
        lens=attnlab.lens(it),
        gradients=attnlab.gradients(it, 5),
        jobs=attnlab.jobs(it, {"after": lambda tokens: np.eye(len(tokens), k=1, dtype=bool)}),
        product=products()[0],
        patching={"clean": it, "corrupted": it_again, "target": 5, "progress": False},
        # One token, and keys of all earlier ones.
        steps={"clean": steps[0], "corrupted": steps[1], "target": 5, "by_position": True},
    )


KEYS = "blocks.*.attention.heads.*.K"
IN_HEAD = "blocks.1.attention.heads.2"

# Refused calls, the built-in exception that each raises, and words of its message.
REFUSALS: list[tuple[Callable[[Any], Any], type, str]] = [
    (lambda on: attnlab.attribution(on.it, (" rolled", "Ġrolled")), ValueError, "must differ"),
    (lambda on: attnlab.attribution(on.it, (" rolled", True)), TypeError, "got True"),
    (lambda on: attnlab.gradients(on.pocket.trace("The")), ValueError, "two tokens; got one"),
    (lambda on: attnlab.gradients(on.it, "loss of it"), ValueError, "isn't one token"),
    (lambda on: on.gradients._heading_of("weights"), AttnlabError, "has no step 'weights'"),
    (lambda on: attnlab.at(on.gradients, IN_HEAD).explain(7), ValueError, "gradient"),
    (lambda on: attnlab.at(on.gradients, IN_HEAD).explain(7, 0), ValueError, "gradient"),
    (lambda on: attnlab.patch(on.it, on.odd, target=5), ValueError, "same model and number"),
    (lambda on: attnlab.patch(on.it, on.other, target=5), ValueError, "model and number of tokens"),
    (lambda on: attnlab.patch(**on.steps, parts=KEYS), ValueError, r"1 positions; .*heads\.0\.K"),
    (lambda on: attnlab.attribution_patch(on.it, on.it, target=len), TypeError, "got a function"),
    (lambda on: attnlab.attribution(on.it, len), TypeError, "pair of tokens; got a function"),
    (lambda on: attnlab.gradients(on.it, len), TypeError, "pair of tokens; got a function"),
    (lambda on: on.product @ np.ones(3), ValueError, "can't be multiplied"),
    (lambda on: np.ones((2, 3)) @ on.product, ValueError, "can't be multiplied"),
    (lambda on: on.product @ np.ones((2, 7, 7)), ValueError, "can't be multiplied"),
    (lambda on: on.product @ "text", AttnlabError, "the factor"),
    (lambda on: attnlab.jobs(on.steps["clean"]), ValueError, "a whole text"),
    (lambda on: attnlab.jobs([]), ValueError, "at least one trace; got an empty list"),
    (lambda on: attnlab.jobs("a"), TypeError, "trace must be a Trace, or several; got 'a'"),
    (lambda on: attnlab.playground(on.pocket, ["The dog"]), TypeError, r"one text; got \['The dog"),
]


@pytest.mark.parametrize(("call", "kind", "words"), REFUSALS)
def test_refused_calls(on: SimpleNamespace, call: Any, kind: type, words: str) -> None:
    with pytest.raises(AttnlabError, match=words) as error:
        call(on)
    assert isinstance(error.value, kind)


# Calls that take a value, by name.
CALLS: dict[str, tuple[Callable[[Any, Any], Any], ...]] = {
    "top": (lambda on, k: on.lens.top(k),),
    "logits": (lambda on, stop: on.lens.logits(stop),),
    "token": (
        lambda on, token: on.lens.of(token),
        lambda on, token: attnlab.attribution(on.it, token),
    ),
    "position": (
        lambda on, position: on.lens.top(2, position),
        lambda on, position: attnlab.attribution(on.it, 5, at=position),
        lambda on, position: attnlab.gradients(on.it, 5, at=position),
    ),
    "patch": (lambda on, changes: attnlab.patch(**on.patching | changes),),
    "target": (lambda on, metric: attnlab.patch(**on.patching | {"target": metric}),),
    "parts": (lambda on, parts: attnlab.patch(**on.patching, parts=parts),),
    "by_position": (
        lambda on, flag: attnlab.patch(**on.patching, by_position=flag),
        lambda on, flag: attnlab.attribution_patch(on.it, on.it, target=5, by_position=flag),
    ),
    "progress": (lambda on, flag: attnlab.patch(**on.patching | {"progress": flag}),),
    "jobs": (lambda on, jobs: attnlab.jobs(on.it, jobs),),
    "best": (lambda on, job: on.jobs.best(job),),
    "constant": (lambda on, path: attnlab.attribution_patch(on.it, on.it, path, target=5),),
    "slice": (
        lambda on, part: on.two[part],
        lambda on, part: on.it.tokens[part],
        lambda on, part: on.it.blocks[part],
    ),
    "bytes": (
        lambda on, ids: on.pocket.trace(ids),
        lambda on, ids: on.pocket.generate(ids, 1),
        lambda on, ids: on.pocket.tokenizer.decode(ids),
        lambda on, ids: attnlab.softmax(ids),
    ),
}

STOPS = ("blocks.0.input", "logits", 0, None, np.ones(3))
NO_STEPS = ("blocks.*.contxt", "blocks.*", "*", "blocks.2.output", "ids")
NO_ROWS = ({"parts": "W_E", "by_position": True}, {"parts": "gain", "by_position": True})
NO_TRACES = ({"clean": "text"}, {"corrupted": None}, {"clean": np.empty(0)})
NO_JOBS = ({}, [JOBS["same"]], {"mine": 3})
RAGGED = {"mine": lambda tokens: [[True], [True, False]]}
CONSTANT_PATHS = ("mask", "epsilon", "positions", "blocks.*.attention.heads.*.scale")
BYTES_LIKE = (b"\1\2", bytearray(b"\1\2"), memoryview(b"\1\2"))
NO_MASKS = ({"mine": lambda tokens: np.eye(len(tokens))}, {"mine": lambda tokens: None})

# The name of a call, the built-in exception, words of its message, and the refused values.
REFUSED_VALUES: list[tuple[str, type, str, tuple[Any, ...]]] = [
    ("top", ValueError, "k must be an integer from 1", (0, 10_000, True, 1.5)),
    ("logits", ValueError, r"stop must be one of embedding, blocks\.0\.mid", STOPS),
    ("token", ValueError, "isn't one token", (" rolled away", "", "\ud800")),
    ("token", ValueError, "10000|-1", (10_000, -1)),
    ("token", TypeError, r"got (True|1\.0|nan|None|\[5\])", (True, 1.0, np.nan, None, [5])),
    ("position", IndexError, "position", (8, -9)),
    ("position", TypeError, "position", (True, 1.0, None)),
    ("position", ValueError, "'cat' isn't one of the tokens", ("cat",)),
    ("target", ValueError, "isn't one token", (" barked away",)),
    ("target", TypeError, "got True", (True,)),
    ("target", ValueError, "tokens must differ", ((" barked", " barked"),)),
    ("target", TypeError, "return a number", (lambda trace: None, lambda trace: trace.logits)),
    ("target", ValueError, "finite number; got nan", (lambda trace: np.nan,)),
    ("target", ValueError, "nothing to restore", (lambda trace: 1,)),
    ("parts", TypeError, "parts must be a path.*got 3", (3,)),
    ("parts", ValueError, "isn't a step to edit", NO_STEPS),
    ("parts", ValueError, "leave the index out of blocks", ("blocks.*.mlp.output[-1]",)),
    ("patch", ValueError, "one row for each of 8 positions", NO_ROWS),
    ("patch", TypeError, "must be traces, .*got (str|NoneType|ndarray)", NO_TRACES),
    ("by_position", TypeError, "by_position must be True or False; got ", (np.ones(2), 1, None)),
    ("progress", TypeError, "progress must be True or False; got ", (np.ones(2), 1, None)),
    ("jobs", TypeError, "a dict from names to functions of Tokens", NO_JOBS),
    ("jobs", TypeError, "mine must return bool", NO_MASKS),
    ("jobs", ValueError, r"mine must have shape \(8, 8\)", ({"mine": lambda tokens: [True]},)),
    ("jobs", ValueError, "result of the job mine isn't an array", (RAGGED,)),
    ("constant", ValueError, "has no gradient. Use attnlab.patch", CONSTANT_PATHS),
    ("slice", TypeError, "a slice takes integers", (slice("a", "b"), slice(None, None, 0))),
    ("bytes", TypeError, "ids must be|ids; got|must be an array", BYTES_LIKE),
    ("best", ValueError, "the text has no keys for the job", ("after",)),
    ("best", ValueError, "one of after; got ", ("sleep", None, np.empty(0))),
]


@pytest.mark.parametrize(("name", "kind", "words", "values"), REFUSED_VALUES)
def test_refused_values(
    on: SimpleNamespace, name: str, kind: type, words: str, values: tuple[Any, ...]
) -> None:
    for call, value in product(CALLS[name], values):
        with pytest.raises(AttnlabError, match=words) as error:
            call(on, value)
        assert isinstance(error.value, kind)


# ---- arguments -------------------------------------------------------------------------------


def test_a_table_shows_all_heads_of_a_deep_model() -> None:
    config = GPT2Config(vocab_size=256, n_positions=3, n_embd=4, n_layer=6, n_head=4)
    vector = np.random.default_rng(0).standard_normal(parameter_count(config))
    model = GPT2(ParameterVector(config, vector), Tokenizer.byte_level())
    pair = model.trace("cat"), model.trace("cap")
    lines = attnlab.attribution_patch(*pair, target=5, by_position=True).table().splitlines()
    heads = [f"layer {layer} head {head}" for layer, head in np.ndindex(6, 4)]
    assert [line[:14] for line in lines[1:]] == heads


def test_analyses_do_not_retain_other_steps(pocket: GPT2) -> None:
    """An analysis leaves no T x T matrix in the trace."""
    trace = pocket.trace(np.arange(70))
    attnlab.jobs(trace)
    assert not [path for path in stored_steps(trace) if path.endswith(("weights", "scores"))]


def test_copies_of_gradients(it: Trace) -> None:
    assert copy.copy(attnlab.gradients(it, 5)).blocks[1].output.shape == (8, 128)
    again = pickle.loads(pickle.dumps(attnlab.gradients(it, 5)))
    assert np.array_equal(again.embedding, attnlab.gradients(it, 5).embedding)


def test_patching_shows_its_progress_bar_before_the_first_run(
    it: Trace, it_again: Trace, capsys: pytest.CaptureFixture[str]
) -> None:
    shown: list[str] = []

    def metric(trace: Trace) -> float:
        shown.append(capsys.readouterr().err)
        return float(trace.next_logits[7])

    for analyse in (attnlab.patch, attnlab.path_patch):
        shown.clear()
        analyse(it, it_again, target=metric)
        assert re.search(r"0run|0/8", shown[0])
        assert "8/8" in capsys.readouterr().err
    attnlab.patch(it, it_again, target=5, progress=False)
    assert capsys.readouterr().err == ""
