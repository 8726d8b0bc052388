"""Sparse autoencoders: SAELens's values are in tests/reference/autoencoders."""

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import REFERENCE
from safetensors.numpy import load_file, save_file

import attnlab
from attnlab import GPT2, Trace
from attnlab.analysis.autoencoder import POCKET_AUTOENCODER, SparseAutoencoder
from attnlab.errors import (
    CheckpointError,
    ConfigError,
    InvalidTypeError,
    InvalidValueError,
    MissingFileError,
    OutOfRangeError,
    WriteError,
)
from attnlab.pocket import autoencoder
from attnlab.pocket.autoencoder import detectors
from attnlab.pocket.lens import texts_of
from attnlab.training.sparse_autoencoder import Weights, loss_and_gradients

TEXT = "The dog chased the ball, but it"
SAVED = REFERENCE / "autoencoders"
PATHS = {
    "standard": "blocks.1.input",
    "layer_norm": "blocks.1.mid",
    "hook_z": "blocks.2.attention.concat",
    "topk": "blocks.0.mlp.output",
    "jumprelu": "blocks.2.output",
    "old": "blocks.1.attention.output",
}


@pytest.fixture(scope="module")
def trace(pocket: GPT2) -> Trace:
    return pocket.trace(TEXT)


@pytest.fixture(scope="module")
def odd() -> Trace:
    return GPT2.from_pretrained(REFERENCE / "odd", dtype="float64").trace([5, 7, 100, 3])


def copy_with(name: str, to: Path, tensors: Any = None, **settings: Any) -> Path:
    """A copy of a saved autoencoder with other settings or tensors."""
    shutil.copytree(SAVED / name, to)
    file = to / "cfg.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | settings))
    weights = to / "sae_weights.safetensors"
    save_file({**load_file(weights), **(tensors or {})}, weights)
    return to


# ---- files ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*PATHS, "pocket"])
def test_features_equal_saelens_values(name: str, tmp_path: Path) -> None:
    recorded = np.load(SAVED / f"{name}.npz")
    first = attnlab.open_sparse_autoencoder("pocket" if name == "pocket" else SAVED / name)
    first.save(tmp_path / "again")
    for sae in (first, attnlab.open_sparse_autoencoder(tmp_path / "again")):
        actual = sae.encode(recorded["x"])
        atol = 1e-6 if name == "topk" else 1e-12  # whose decoder norms are moved in float32
        np.testing.assert_allclose(actual, recorded["activations"], rtol=0, atol=atol)
        decoded = sae.decode(actual, recorded["x"])
        np.testing.assert_allclose(decoded, recorded["reconstruction"], rtol=0, atol=atol)
        assert sae.path == PATHS.get(name, "blocks.0.output")


def test_centered_stream_is_read_without_its_mean(tmp_path: Path) -> None:
    kwargs = {"model_from_pretrained_kwargs": {"center_writing_weights": True}}
    sae = attnlab.open_sparse_autoencoder(copy_with("old", tmp_path / "one", **kwargs))
    plain, x = attnlab.open_sparse_autoencoder(SAVED / "old"), np.load(SAVED / "old.npz")["x"]
    centred = x - x.mean(axis=-1, keepdims=True)
    np.testing.assert_allclose(sae.encode(x), plain.encode(centred), atol=1e-12)
    expected = plain.decode(plain.encode(centred), centred) + x - centred
    np.testing.assert_allclose(sae.decode(sae.encode(x), x), expected, atol=1e-12)


def test_old_files_may_hold_a_scaling_factor_of_ones(tmp_path: Path) -> None:
    ones, twos = ({"scaling_factor": np.full(17, factor, np.float32)} for factor in (1, 2))
    attnlab.open_sparse_autoencoder(copy_with("old", tmp_path / "ones", ones))
    with pytest.raises(CheckpointError, match="scaling_factor"):
        attnlab.open_sparse_autoencoder(copy_with("old", tmp_path / "twos", twos))


@pytest.mark.parametrize(
    ("name", "settings", "match"),
    [
        ("standard", {"architecture": "gated"}, "architecture 'gated' isn't supported; supported"),
        ("standard", {"architecture": ["topk"]}, r"architecture \['topk'\] isn't supported"),
        ("standard", {"normalize_activations": "expected_average_only_in"}, "normalize_activ"),
        ("old", {"activation_fn_str": "tanh-relu"}, "activation_fn 'tanh-relu'"),
        ("old", {"hook_point_head_index": 3}, "hook_head_index 3"),
        ("old", {"activation_fn_kwargs": {"k": 18}}, "k must be from 1 to 17; got 18"),
        ("old", {"activation_fn_kwargs": None}, "k must be from 1 to 17; got None"),
        ("standard", {"architecture": "topk", "k": True}, "k must be from 1 to 17; got True"),
        ("standard", {"metadata": [3]}, "metadata must be a JSON object"),
        ("standard", {"apply_b_dec_to_input": "false"}, "apply_b_dec_to_input 'false'"),
    ],
)
def test_unsupported_settings(
    tmp_path: Path, name: str, settings: dict[str, Any], match: str
) -> None:
    with pytest.raises(ConfigError, match=match):
        attnlab.open_sparse_autoencoder(copy_with(name, tmp_path / "one", **settings))


def test_damaged_files(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match=r"cfg\.json not found. Give the directory"):
        attnlab.open_sparse_autoencoder(tmp_path)
    empty = {"W_enc": (35, 0), "W_dec": (0, 35), "b_enc": (0,)}
    none = copy_with(
        "standard", tmp_path / "none", {n: np.zeros(s, "f4") for n, s in empty.items()}
    )
    with pytest.raises(CheckpointError, match="that fit together; got shapes"):
        attnlab.open_sparse_autoencoder(none)
    wrong = copy_with("standard", tmp_path / "wrong", {"b_dec": np.zeros(36, np.float32)})
    with pytest.raises(CheckpointError, match=r"got shapes .*\(36,\)"):
        attnlab.open_sparse_autoencoder(wrong)
    for number, tensors in enumerate(
        ({"W_enc": np.zeros(3, np.float32)}, {"threshold": np.zeros(17, np.float32)})
    ):
        with pytest.raises(CheckpointError, match="must have tensors W_dec, W_enc, b_dec, b_enc"):
            attnlab.open_sparse_autoencoder(copy_with("old", tmp_path / str(number), tensors))
    nan = copy_with("standard", tmp_path / "nan", {"b_dec": np.full(35, np.nan, np.float32)})
    with pytest.raises(CheckpointError, match="NaN"):
        attnlab.open_sparse_autoencoder(nan)
    integers = copy_with("standard", tmp_path / "integers", {"b_dec": np.zeros(35, np.int64)})
    with pytest.raises(CheckpointError, match="b_dec must have one of the dtypes"):
        attnlab.open_sparse_autoencoder(integers)
    (wrong / "sae_weights.safetensors").unlink()
    with pytest.raises(MissingFileError, match=r"weights\.safetensors not found"):
        attnlab.open_sparse_autoencoder(wrong)


def test_interrupted_save_leaves_no_mismatched_settings(tmp_path: Path) -> None:
    copy_with("standard", tmp_path / "one")
    weights = tmp_path / "one" / "sae_weights.safetensors"
    weights.unlink()
    weights.mkdir()  # so that it can't be written
    with pytest.raises(WriteError):
        attnlab.open_sparse_autoencoder("pocket").save(tmp_path / "one")
    assert not (tmp_path / "one" / "cfg.json").exists()


def test_feature_with_a_zero_decoder_row(tmp_path: Path, odd: Trace) -> None:
    """SAELens would divide its direction by its norm, 0."""
    W_dec = load_file(SAVED / "topk" / "sae_weights.safetensors")["W_dec"].copy()
    W_dec[4] = 0
    settings = {"rescale_acts_by_decoder_norm": True}
    directory = copy_with("topk", tmp_path / "one", {"W_dec": W_dec}, **settings)
    features = odd.features(attnlab.open_sparse_autoencoder(directory))
    assert np.isfinite(features.reconstruction).all()
    assert (features.shares[:, 4] == 0).all()


def test_a_vector_of_zeros(odd: Trace, trace: Trace) -> None:
    """Its shares are NaN; the other tokens keep theirs, and their largest features are shown."""
    path = PATHS["topk"]
    zero = odd.edited({path: lambda x: x * np.array([[0.0], [1], [1], [1]])})
    features = zero.features(attnlab.open_sparse_autoencoder(SAVED / "topk"))
    assert np.isfinite(features.activations).all()
    assert np.isnan(features.error_share).tolist() == [True, False, False, False]
    stream = trace.edited({"blocks.0.output": lambda x: x * (np.arange(len(x)) > 0)[:, np.newaxis]})
    labels = stream.features(attnlab.open_sparse_autoencoder("pocket"))._grid()[1].labels
    others = trace.features(attnlab.open_sparse_autoencoder("pocket")).shares[1:]
    assert f"feature {others.max(axis=0).argmax()}" in labels


# ---- in a text -----------------------------------------------------------------------------------


def test_step_equals_features_plus_bias_plus_error(odd: Trace) -> None:
    for name, path in PATHS.items():
        sae = attnlab.open_sparse_autoencoder(SAVED / name)
        features = odd.features(sae)
        x = attnlab.at(odd, path)
        np.testing.assert_allclose(features.reconstruction + features.error, x, atol=1e-12)
        parts = features.shares.sum(axis=-1) + features.bias_share + features.error_share
        np.testing.assert_allclose(parts, 1, atol=1e-9)
        scale = {"layer_norm": x.std(axis=-1, ddof=1), "topk": np.sqrt((x**2).mean(axis=-1))}
        feature = int(features.activations[2].argmax())
        directions = (
            features.activations[2, feature] * sae.W_dec[feature] * scale.get(name, np.ones(4))[2]
        )
        share = directions @ x[2] / (x[2] @ x[2])
        assert features.shares[2, feature] == pytest.approx(share)


def test_scaling_a_feature_keeps_the_error(odd: Trace) -> None:
    sae = attnlab.open_sparse_autoencoder(SAVED / "topk")
    features = odd.features(sae)
    first, second = (int(n) for n in np.argsort(-features.activations[3])[:2])
    edited = odd.edited(features.scaled(first, 0)).edited(features.scaled(second, 2))
    activations = np.array(features.activations)
    activations[:, first] = 0
    activations[:, second] *= 2
    expected = sae.decode(activations, features.x) + features.error
    np.testing.assert_allclose(attnlab.at(edited, sae.path), expected, atol=1e-12)
    assert not np.allclose(edited.logits, odd.logits)
    same = odd.edited(features.scaled(first, 1))
    np.testing.assert_allclose(same.logits, odd.logits, atol=1e-12)


def test_logit_contribution_of_a_feature(odd: Trace) -> None:
    """At the end of the stream, switching it off takes away activation · writes / deviation."""
    sae = attnlab.open_sparse_autoencoder(SAVED / "jumprelu")
    features = odd.features(sae)
    feature = int(features.activations[1].argmax())
    vocab = odd.config.vocab_size
    writes = features.writes(feature, vocab)
    per_activation = np.empty(vocab)
    per_activation[writes.ids] = writes.numbers
    step = 1e-4  # so small that the deviation stays
    edited = odd.edited(features.scaled(feature, 1 + step))
    x = odd.blocks[-1].output[1]
    direct = features.activations[1, feature] * per_activation / np.sqrt(x.var() + odd.epsilon)
    final = (x - x.mean()) / np.sqrt(x.var() + odd.epsilon)
    directions = sae.W_dec[feature].astype(float)
    along = features.activations[1, feature] * (directions - directions.mean()) @ final / len(x)
    through = along * (final * odd.gain) @ odd.W_U / np.sqrt(x.var() + odd.epsilon)
    change = (edited.logits[1] - odd.logits[1]) / step
    np.testing.assert_allclose(change, direct - through, atol=1e-3 * np.abs(direct).max())
    within = odd.features(attnlab.open_sparse_autoencoder(SAVED / "hook_z"))
    with pytest.raises(InvalidValueError, match="isn't added to the residual stream"):
        within.writes(0)
    assert "raises" in repr(within.top(1))


def test_the_top_features_of_a_token(trace: Trace) -> None:
    features = trace.features(attnlab.open_sparse_autoencoder("pocket"))
    top = features.top("it", 3)
    assert top.position == 7
    order = sorted(range(256), key=lambda feature: -features.activations[7, feature])
    assert list(top.features) == order[:3]
    assert top.shares.sum() == pytest.approx(1, abs=1e-5)
    assert top.shares[-1] == features.error_share[7]
    lines = repr(top).splitlines()
    raised = " ".join(token.symbol for token in features.writes(order[0], 3).tokens)
    assert lines[2].startswith(f"feature {order[0]}")
    assert lines[2].endswith(raised)
    assert [line.split()[0] for line in lines[5:8]] == ["other", "b_dec", "error"]
    assert len(features.top(0, 100).features) == 8  # no more are active
    assert f"#{order[0]} " in repr(features).splitlines()[9]
    assert "error" in features._repr_html_()
    nothing = trace.edited({"blocks.0.output": 0.0}).features(features.sae)
    assert np.isnan(nothing.error_share).all()
    np.testing.assert_allclose(nothing.error, -nothing.reconstruction)
    assert "nan" in repr(nothing)
    # Another path: the stream that block 1 reads is the one that block 0 writes.
    same = trace.features(features.sae, "blocks.1.input")
    np.testing.assert_array_equal(same.activations, features.activations)


def test_features_reject_invalid_arguments(trace: Trace, odd: Trace, tmp_path: Path) -> None:
    sae = attnlab.open_sparse_autoencoder("pocket")
    features = trace.features(sae)
    for wrong in (None, "pocket", tmp_path):
        with pytest.raises(InvalidTypeError, match="sae must be a SparseAutoencoder"):
            trace.features(wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidValueError, match=r"reads vectors of 128 numbers; .* \(4, 35\)"):
        odd.features(sae)
    with pytest.raises(InvalidValueError, match="reads vectors of 128 numbers"):
        trace.features(sae, "blocks.0.attention.weights")
    with pytest.raises(InvalidTypeError, match="has several arrays; choose one of"):
        trace.features(sae, "blocks.0.mlp")
    with pytest.raises(InvalidValueError, match=r"there is no part 'blocks\.7\.mid'"):
        trace.features(sae, "blocks.7.mid")
    other = trace.edited({"gain": 2.0})
    with pytest.raises(InvalidValueError, match="trained for another model"):
        other.features(sae)
    weird = copy_with("standard", tmp_path / "weird", metadata={"hook_name": "blocks.0.hook_weird"})
    with pytest.raises(InvalidValueError, match=r"hook_name in cfg\.json .* 'blocks\.0\.hook_w"):
        odd.features(attnlab.open_sparse_autoencoder(weird))
    unknown = copy_with("standard", tmp_path / "one", metadata={})
    with pytest.raises(InvalidValueError, match="doesn't say what it reads"):
        odd.features(attnlab.open_sparse_autoencoder(unknown))
    for feature in (256, -257):
        with pytest.raises(OutOfRangeError, match="features are 0 to 255"):
            features.scaled(feature, 0)
    with pytest.raises(InvalidTypeError, match="feature must be an integer"):
        features.writes("dog")  # type: ignore[arg-type]
    for factor in (np.nan, np.inf, -np.inf, "0"):
        with pytest.raises(InvalidValueError, match="factor must be a finite number"):
            features.scaled(3, factor)  # type: ignore[arg-type]
    with pytest.raises(InvalidValueError, match="k must be an integer"):
        features.top(0, 0)
    with pytest.raises(InvalidTypeError, match=r"traces must be model\.trace"):
        sae.evaluate(trace)  # type: ignore[arg-type]


# ---- training ------------------------------------------------------------------------------------


def test_the_pocket_models_autoencoder(pocket: GPT2) -> None:
    """The figures of the model card, on some of its texts."""
    texts = texts_of(99, 60)
    sae = attnlab.open_sparse_autoencoder("pocket")
    actual = sae.evaluate(pocket.trace(texts))
    assert actual.explained > 0.93
    assert actual.active == pytest.approx(8)
    loss, reconstruction, bias = actual.losses
    assert loss < reconstruction < loss + 0.2
    assert bias > 6
    # One text by itself.
    trace = pocket.trace(texts[3])
    features = trace.features(sae)
    edited = trace.edited({sae.path: features.reconstruction})
    for row, run in enumerate((trace, edited)):
        logits = run.logits[:-1].astype(float)
        loss = np.log(np.exp(logits).sum(axis=-1)) - logits[range(len(logits)), run.ids[1:]]
        assert actual.each[row, 3] == pytest.approx(loss.mean(), abs=1e-4)
    few = sae.evaluate(pocket.trace([texts[3]]))
    x = features.x.astype(float)
    explained = 1 - (features.error.astype(float) ** 2).sum() / ((x - x.mean(axis=0)) ** 2).sum()
    assert few.explained == pytest.approx(explained, abs=1e-5)
    np.testing.assert_allclose(few.density, (features.activations > 0).mean(axis=0))
    assert few.dead == (~(features.activations > 0).any(axis=0)).sum()
    assert f"{few.dead} of 256 dead" in repr(few)
    assert "nan" not in repr(few)
    with pytest.raises(InvalidValueError, match="text 1 has only one token"):
        sae.evaluate(pocket.trace([TEXT, "The"]))
    of_token, of_previous = detectors(sae, pocket.trace(texts))
    assert {129, 186, 224} < set(of_token)
    assert not set(of_token) & set(of_previous)
    alone = [
        row
        for text_trace in pocket.trace(texts)
        for row in zip(text_trace.ids, text_trace.features(sae).activations, strict=True)
    ]
    on_it = sum(row[129] for id, row in alone if id == pocket.tokenizer.encode(" it")[0])
    assert on_it > 0.9 * sum(row[129] for _, row in alone)
    assert sum(file.stat().st_size for file in POCKET_AUTOENCODER.iterdir()) < 500_000


def test_gradients_equal_finite_differences() -> None:
    rng = np.random.default_rng(0)
    x, vector = rng.normal(size=(6, 5)), rng.normal(size=5 * 7 + 7 + 7 * 5 + 5)
    step = 1e-6 * rng.normal(size=len(vector))
    loss, gradients = loss_and_gradients(x, Weights.of(vector, 5), 3, 2.5)
    after, before = (
        loss_and_gradients(x, Weights.of(vector + sign * step, 5), 3, 2.5)[0] for sign in (1, -1)
    )
    gradient = np.concatenate([part.ravel() for part in gradients])
    assert (after - before) / 2 == pytest.approx(float(gradient @ step), rel=1e-6)
    W_enc, b_enc, W_dec, b_dec = Weights.of(vector, 5)
    z = (x - b_dec) @ W_enc + b_enc
    kept = np.where(z >= np.sort(z, axis=-1)[:, [-3]], np.maximum(z, 0), 0)
    assert loss == pytest.approx(((kept @ W_dec + b_dec - x) ** 2).sum() / (6 * 2.5))


def test_invalid_training(pocket: GPT2) -> None:
    settings: Any = {"steps": 1, "progress": False}
    with pytest.raises(InvalidValueError, match="k must be an integer from 1 to 4"):
        attnlab.sparse_autoencoder(pocket, [TEXT], "embedding", features=4, k=5, **settings)
    huge: dict[str, Any] = {"features": 10**12, **settings}
    with pytest.raises(InvalidValueError, match="not enough memory for features=1,000,000,000,000"):
        attnlab.sparse_autoencoder(pocket, [TEXT], "embedding", **huge)
    with pytest.raises(InvalidValueError, match="isn't a step with a vector for each token"):
        attnlab.sparse_autoencoder(pocket, [TEXT], "blocks.0.attention.Q", **settings)
    with pytest.raises(InvalidValueError, match="there is no part"):
        attnlab.sparse_autoencoder(pocket, [TEXT], "blocks.9.mid", **settings)
    with pytest.raises(InvalidValueError, match="the same vector for all tokens"):
        attnlab.sparse_autoencoder(pocket, ["The"], "embedding", **settings)
    with pytest.raises(InvalidTypeError, match="texts must be a list"):
        attnlab.sparse_autoencoder(pocket, TEXT, "embedding", **settings)


def test_training_step_by_step(pocket: GPT2, tmp_path: Path) -> None:
    """60 steps of it: the start, the batches, the rate up and down, the norms."""
    result = attnlab.sparse_autoencoder(
        pocket, [TEXT], "blocks.0.mlp.output", features=40, k=5, steps=60, seed=1, progress=False
    )
    vectors, rng = pocket.trace(TEXT).blocks[0].mlp.output, np.random.default_rng(1)
    T, D = vectors.shape
    W_dec = rng.normal(size=(40, D))
    W_dec /= np.linalg.norm(W_dec, axis=1, keepdims=True)
    mean = vectors.mean(axis=0)
    vector = np.concatenate([W_dec.T.ravel(), np.zeros(40), W_dec.ravel(), mean]).astype("f4")
    variance = float(((vectors - mean) ** 2).sum(axis=1).mean())
    rows = Weights.of(vector, D).W_dec
    m, v = np.zeros_like(vector), np.zeros_like(vector)
    for step in range(1, 61):
        x = vectors[rng.integers(0, T, 512)]
        _, gradients = loss_and_gradients(x, Weights.of(vector, D), 5, variance)
        gradient = np.concatenate([part.ravel() for part in gradients])
        gradient /= max(1.0, float(np.linalg.norm(gradient)))
        m, v = 0.9 * m + 0.1 * gradient, 0.95 * v + 0.05 * gradient**2
        falling = 0.1 + 0.45 * (1 + np.cos(np.pi * (step - 50) / 10))
        rate = 2e-3 * (step / 50 if step < 50 else falling)
        vector -= rate * (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.95**step)) + 1e-8)
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    for name, expected in Weights.of(vector, D)._asdict().items():
        np.testing.assert_allclose(getattr(result, name), expected, atol=1e-4, err_msg=name)
    result.save(tmp_path / "made")
    opened = attnlab.open_sparse_autoencoder(tmp_path / "made")
    assert repr(opened) == repr(result)
    assert "40 features" in repr(result)
    trace = pocket.trace("The cat found the kite.")
    again, features = (trace.features(sae) for sae in (opened, result))
    np.testing.assert_array_equal(again.activations, features.activations)
    assert ((features.activations > 0).sum(axis=-1) <= 5).all()


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With little text and few steps."""
    few = partial(autoencoder.sparse_autoencoder, steps=3, progress=False)
    monkeypatch.setattr(autoencoder, "sparse_autoencoder", few)
    monkeypatch.setattr(autoencoder, "SAMPLES", 20)
    monkeypatch.setattr(autoencoder, "HELD_OUT", 20)
    printed = autoencoder.make(str(tmp_path / "made"))
    made = attnlab.open_sparse_autoencoder(tmp_path / "made")
    shipped = attnlab.open_sparse_autoencoder("pocket")
    assert (made.path, made.k, made.W_dec.shape) == (shipped.path, shipped.k, shipped.W_dec.shape)
    assert (made.path, made.k) == ("blocks.0.output", 8)
    assert printed.startswith("256 features of blocks.0.output in 20 texts\n")
    assert "features detect one token: [" in printed


@pytest.mark.slow
def test_docstring_figures_equal_the_shipped_autoencoders(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As the command prints them, without training."""
    shipped = attnlab.open_sparse_autoencoder("pocket")
    monkeypatch.setattr(autoencoder, "sparse_autoencoder", lambda *_: shipped)
    monkeypatch.setattr(SparseAutoencoder, "save", lambda *_: None)
    printed, stated = autoencoder.make(""), " ".join(str(autoencoder.__doc__).split())
    lines = printed.splitlines()
    assert f"explained variance is {lines[5].split()[2].rstrip(';')}." in stated
    assert "8 of the 256 features are active on each token, 5 features are never active" in stated
    assert lines[5].endswith("8.0 active features a token; 5 of 256 dead")
    table = [line.split()[-1] for line in str(autoencoder.__doc__).splitlines()[9:12]]
    assert table == [line.split()[-2] for line in lines[2:5]]
    detect, others = (int(line.split()[0]) for line in lines[-2:])
    assert f"- {detect} features detect one token, with at least 90 %" in stated
    assert f"- {others} others are active after one token" in stated
