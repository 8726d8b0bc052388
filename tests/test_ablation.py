"""The model without one of its heads, compared with transformers and with single edits."""

import json
import pickle
import re
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import REFERENCE
from pages import BALL, gpt2_shaped, silencing
from runs import log_computed

import attnlab
from attnlab import GPT2, AttnlabError, Trace
from attnlab.analysis.ablation import next_logits_without
from attnlab.analysis.patching import HEADS
from attnlab.errors import CheckpointError, InvalidTypeError, InvalidValueError
from attnlab.training import initial_parameters

RECORDED = np.load(REFERENCE / "ablations.npz")
TOLERANCE = {"float32": 1e-6, "float64": 1e-12}
every_dtype = pytest.mark.parametrize("dtype", TOLERANCE)


def odd_trace(dtype: str) -> Trace:
    ids = np.load(REFERENCE / "odd" / "expected.npz")["ids"]
    return GPT2.from_pretrained(REFERENCE / "odd", dtype=dtype).trace(ids)


def heads_of(trace: Trace) -> list[tuple[int, int]]:
    return [*product(range(trace.config.n_layer), range(trace.config.n_head))]


def check_against_single_edits(trace: Trace, heads: list[tuple[int, int]], dtype: str) -> None:
    logits = next_logits_without(trace, heads)
    assert logits.shape == (len(heads), trace.config.vocab_size)
    for (layer, head), row in zip(heads, logits, strict=True):
        single = trace.edited(silencing(trace, layer, head)).next_logits
        assert row.dtype == single.dtype == dtype
        assert np.abs(row - single).max() <= 5 * TOLERANCE[dtype] * np.abs(single).max()


@every_dtype
def test_every_head_is_switched_off_as_in_transformers(dtype: str) -> None:
    trace = odd_trace(dtype)
    logits = next_logits_without(trace, heads_of(trace))[:, ::11]
    expected = RECORDED["zero"]
    assert logits.shape == expected.shape == (15, 24)
    assert np.abs(logits - expected).max() <= 10 * TOLERANCE[dtype] * np.abs(expected).max()


@every_dtype
def test_batches_equal_single_edits(dtype: str) -> None:
    odd = GPT2.from_pretrained(REFERENCE / "odd", dtype=dtype)
    trace = odd_trace(dtype)
    check_against_single_edits(trace, heads_of(trace), dtype)
    check_against_single_edits(trace, [(0, 4), (2, 0), (2, 3)], dtype)
    check_against_single_edits(odd.trace([7]), [(0, 1), (2, 2)], dtype)
    # Edits before, within and after the layer, one of them a function; and cached tokens.
    edits = {"blocks.0.mid": lambda x: x[::-1], "blocks.1.attention.heads.0.context": 0.5}
    check_against_single_edits(trace.edited(edits | {"blocks.2.mlp.output": 1}), [(1, 3)], dtype)
    steps = odd.generate([3, 1, 4, 1, 5], 3, temperature=0, trace=True).steps
    for step in steps:
        check_against_single_edits(step.trace, heads_of(step.trace), dtype)
    assert steps[2].trace.cached == 6


def test_batches_of_one_layer_and_of_a_long_text_equal_single_edits() -> None:
    odd = GPT2.from_pretrained(REFERENCE / "odd")
    check_against_single_edits(
        gpt2_shaped(odd, 12, n_layer=1, seed=0, n_embd=96), [(0, 3)], "float32"
    )
    check_against_single_edits(
        gpt2_shaped(odd, 150, n_layer=3, seed=0, n_embd=96), [(0, 3), (0, 4), (2, 1)], "float32"
    )


def test_heads_of_a_layer_are_one_batch_and_only_the_last_row_is_completed(
    pocket: GPT2, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = pocket.trace(BALL)
    trace.next_logits  # noqa: B018
    paths = log_computed(monkeypatch)
    next_logits_without(trace, heads_of(trace))
    assert paths.count("blocks.1.mlp.output") == 2
    assert paths.count("blocks.0.mlp.output") == 1
    assert not {"blocks.0.attention.Q", "logits"} & {*paths}


# ---- averages ------------------------------------------------------------------------------------


@every_dtype
def test_averages_and_heads_set_to_them_are_transformers(dtype: str) -> None:
    trace = odd_trace(dtype)
    model = GPT2.from_pretrained(REFERENCE / "odd", dtype=dtype)
    averages = attnlab.averages(model, [trace.tokens, RECORDED["second"]])
    assert [*averages] == [
        f"blocks.{layer}.attention.heads.{head}.context" for layer, head in heads_of(trace)
    ]
    recorded = RECORDED["averages"].reshape(15, 7)
    for vector, expected in zip(averages.values(), recorded, strict=True):
        assert (vector.shape, vector.dtype) == ((7,), np.float32)
        assert np.abs(vector - expected).max() <= 1e-6
    assert model.averages is None
    model.averages = averages  # as float32, so the logits are too
    by_batch = next_logits_without(model.trace(trace.tokens), heads_of(trace))[:, ::11]
    by_edits = [trace.edited({path: x}).next_logits[::11] for path, x in averages.items()]
    for logits in (by_batch, np.array(by_edits)):
        expected = RECORDED["average"]
        assert np.abs(logits - expected).max() <= 1e-5 * np.abs(expected).max()


@pytest.mark.parametrize(("kind", "tolerance"), [("zero", 1e-12), ("average", 1e-5)])
def test_patching_with_given_values_is_ablation(kind: str, tolerance: float) -> None:
    """Against transformers with hooks; of one pair, of pairs side by side, and by a function."""
    model, trace = GPT2.from_pretrained(REFERENCE / "odd", dtype="float64"), odd_trace("float64")
    values: Any = {HEADS: 0}
    if kind == "average":
        values = attnlab.averages(model, [trace.tokens, RECORDED["second"]])
    logits = np.load(REFERENCE / "odd" / "expected.npz")["logits"][-1]
    expected = RECORDED[kind][:, 4] - RECORDED[kind][:, 1] - (logits[44] - logits[11])
    other, settings = model.trace(trace.ids[::-1]), {"with_": values, "progress": False}
    patching = attnlab.patch(other, trace, target=(44, 11), **settings)
    assert patching.effects.reshape(15) == pytest.approx(expected, abs=tolerance)
    restored = expected / (patching.clean - patching.corrupted)
    assert patching.restored.reshape(15) == pytest.approx(restored, abs=1e-4)
    assert "with given values" in repr(patching)
    texts, others = [[*trace.ids], [5, 7, 100]], [[*other.ids], [5, 3, 41]]
    pairs = model.trace(others + others), model.trace(texts + texts)
    targets: tuple[Any, ...] = ((44, 11), lambda x: x.next_logits[44] - x.next_logits[11])
    for target in targets:
        effects = attnlab.patch(*pairs, target=target, **settings).effects.reshape(4, 15)
        assert effects[2] == pytest.approx(expected, abs=tolerance)
    alone = [attnlab.patch(*pair, target=(44, 11), **settings) for pair in zip(*pairs, strict=True)]
    assert effects[3] == pytest.approx(alone[1].effects.reshape(15), abs=1e-12)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "no value for blocks.0.attention.heads.0.context; it has \\[\\]"),
        ({"blocks.0.mlp.output": 0}, "no value for blocks.0.attention.heads.0.context"),
        ({"blocks.*.attention.heads.*.context": abs}, "arrays or numbers; got a function"),
        (0, "with_ must be a dict, as attnlab.averages returns it; got 0"),
    ],
)
def test_refused_values_for_patching(pocket: GPT2, values: Any, message: str) -> None:
    pair = pocket.trace(BALL), pocket.trace(BALL.replace("dog", "cat"))
    with pytest.raises(AttnlabError, match=message):
        attnlab.patch(*pair, target=(" barked", " meowed"), with_=values, progress=False)


def test_texts_count_by_their_tokens(pocket: GPT2) -> None:
    texts = [BALL, "The cat", "The hen saw the cat", "The dog"]
    contexts = [pocket.trace(text).head(1, 2).context for text in texts]
    expected = np.concatenate(contexts).astype(np.float64).mean(axis=0)
    averages = attnlab.averages(pocket, iter(texts))
    assert np.allclose(averages["blocks.1.attention.heads.2.context"], expected, atol=1e-6)


def test_averages_are_saved_with_a_model_and_silence_its_heads(
    pocket: GPT2, tmp_path: Path
) -> None:
    model = GPT2(initial_parameters(pocket.config, np.random.default_rng(0)), pocket.tokenizer)
    trace = model.trace(BALL)
    check_against_single_edits(trace, heads_of(trace), "float32")  # 0 without averages
    model.save(tmp_path)
    assert GPT2.from_pretrained(tmp_path).averages is None
    model.averages = attnlab.averages(model, [BALL])
    for one in (model, pickle.loads(pickle.dumps(model))):
        one.save(tmp_path)
        opened = GPT2.from_pretrained(tmp_path)
        for path, vector in model.averages.items():
            assert np.array_equal(opened.averages[path], vector)
            assert not opened.averages[path].flags.writeable
    trace = opened.trace(BALL)
    path = "blocks.1.attention.heads.3.context"
    expected = trace.edited({path: trace.head(1, 3).context.mean(axis=0)}).next_logits
    assert np.allclose(next_logits_without(trace, [(1, 3)])[0], expected, atol=1e-5)
    edited = trace.edited({"blocks.0.mlp.output": lambda x: 2 * x})
    expected = edited.edited({path: model.averages[path]}).next_logits
    assert np.allclose(next_logits_without(edited, [(1, 3)])[0], expected, atol=1e-5)
    opened.averages = None
    expected = trace.edited({path: 0}).next_logits
    assert np.allclose(next_logits_without(opened.trace(BALL), [(1, 3)])[0], expected, atol=1e-5)
    # A model without averages in the same directory doesn't get the former one's.
    GPT2(model.parameters.copy(), pocket.tokenizer).save(tmp_path)
    assert GPT2.from_pretrained(tmp_path).averages is None


PATH = "blocks.0.attention.heads.0.context"
WRONG_TEXTS: list[tuple[Any, type[Exception], str]] = [
    ([], InvalidValueError, "averages need at least one text"),
    (BALL, InvalidTypeError, "texts must be a list of texts; got 'The dog"),
    (7, InvalidTypeError, "texts must be a list of texts; got 7"),
    ([BALL, ""], InvalidValueError, "nothing to trace: got no tokens"),
    ([[BALL]], InvalidTypeError, "expected one text or token ids"),
    ([BALL * 20], InvalidValueError, "tokens are too many: the model has 128 positions"),
]


@pytest.mark.parametrize(("texts", "error", "message"), WRONG_TEXTS)
def test_texts_without_averages(
    texts: Any, error: type[Exception], message: str, pocket: GPT2
) -> None:
    with pytest.raises(error, match=re.escape(message)):
        attnlab.averages(pocket, texts)


def test_wrong_averages(pocket: GPT2, tmp_path: Path) -> None:
    pocket.save(tmp_path)
    model = GPT2.from_pretrained(tmp_path)
    right = {path: x.tolist() for path, x in (model.averages or {}).items()}
    wrong: list[tuple[Any, str]] = [
        ({PATH: right[PATH]}, "averages must have a vector for each head, from blocks.0"),
        (right | {PATH: [1.0] * 31}, f"{PATH} must have shape (32,); got (31,)"),
        (right | {PATH: [np.inf] * 32}, f"{PATH} contains NaN or infinite numbers"),
        (right | {PATH: ["x"] * 32}, PATH),
    ]
    for averages, message in wrong:
        with pytest.raises(AttnlabError, match=re.escape(message)):
            model.averages = averages
        (tmp_path / "head_averages.json").write_text(json.dumps(averages))
        with pytest.raises(CheckpointError, match=re.escape(message)) as caught:
            GPT2.from_pretrained(tmp_path)
        assert "head_averages.json" in str(caught.value)
    (tmp_path / "head_averages.json").write_text("[")
    with pytest.raises(CheckpointError, match=r"head_averages\.json can't be read as JSON"):
        GPT2.from_pretrained(tmp_path)


@pytest.mark.parametrize("name", ["english", "pocket"])
def test_averages_in_the_package_are_of_its_models(name: str) -> None:
    """On other texts, each head writes something near its average, rather than near 0."""
    model = GPT2.from_pretrained(name)
    assert model.averages is not None
    texts = ["The dog chased the ball, but it rolled.", "The cat saw the hen.", "It was happy."]
    other = attnlab.averages(model, texts)
    pairs = [(model.averages[path], x) for path, x in other.items()]
    nearer = [np.linalg.norm(own - x) < np.linalg.norm(x) for own, x in pairs]
    assert np.mean(nearer) > 0.8
