"""The pages on later models and methods: what they say holds."""

import itertools
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from book import changed, run, run_unchanged
from conftest import REFERENCE

import attnlab
from attnlab import GPT2, Trace, at


def test_latents_are_enough() -> None:
    page = run_unchanged("mla")
    attention = page["attention"]
    assert (page["n_kept"], page["n_full"]) == (64, 256)
    assert page["context"] == pytest.approx(page["expanded"].context, abs=1e-4)
    thin = page["C"] @ page["W_up"]  # the nearest of rank 64 to X [W_K W_V], by its own SVD
    full = np.hstack([page["W_K"], page["W_V"]])
    U, sizes, Vt = np.linalg.svd(full)
    assert thin == pytest.approx(page["X"] @ (U[:, :64] * sizes[:64]) @ Vt[:64], abs=1e-4)
    changes = np.array([*page["changes"].values()])
    assert changes[0] == pytest.approx([0, 0], abs=1e-4)  # as wide as X
    assert (np.diff(changes, axis=0) > 0).all()
    assert np.allclose(run("mla", {"LATENT = 64": "LATENT = 128"})["weights"], attention.weights)


def test_an_mlp_is_a_sum_of_experts() -> None:
    page = run_unchanged("moe")
    assert page["outputs"].sum(axis=0) + page["mlp"].b_2 == pytest.approx(
        page["mlp"].output, abs=1e-4
    )
    assert (page["is_active"].sum(axis=1) == 2).all()
    assert ((page["gates"] > 0) <= page["is_active"]).all()
    assert page["gates"].sum(axis=1) == pytest.approx(1)
    longest = np.sort(page["lengths"], axis=1)[:, -2:]
    assert (
        page["lengths"][page["is_active"]].reshape(-1, 2).sum(axis=1) == longest.sum(axis=1)
    ).all()
    errors = np.array([*page["errors"].values()])[:, 1]
    assert (np.diff(errors) < 0).all()
    assert errors[-1] < 1e-5
    assert re.search(r"tokens for each expert: \[1, 1, 3", page.printed)


def test_effects_of_edges_equal_finite_differences() -> None:
    """Edges to and from parts of each kind, with a small part of the change instead of a slope."""
    pocket = 'GPT2.from_pretrained("pocket"'
    page = run(
        "edges",
        {f"{pocket})": f"{pocket}, dtype='float64')", "STEPS, SHOWN = 5": "STEPS, SHOWN = 2"},
    )
    clean, corrupted, streams = page["clean"], page["corrupted"], page["streams"]
    right, wrong = (page["model"].tokenizer.encode(word)[0] for word in page["TARGET"])

    def metric(run: Trace) -> float:
        return float(run.next_logits[right] - run.next_logits[wrong])

    def slope(run: Trace, writer: str, reader: str) -> float:
        ends = []
        for small in (1e-5, -1e-5):
            stream = at(run, streams[reader]) + small * (at(clean, writer) - at(corrupted, writer))
            read = at(run.edited({streams[reader]: stream}), reader)
            ends.append(metric(run.edited({reader: read})))
        return (ends[0] - ends[1]) / 2e-5

    half = corrupted.edited({"embedding": (corrupted.embedding + clean.embedding) / 2})
    total = metric(clean) - metric(corrupted)
    assert len(page["edges"]) == len({*page["edges"]}) == 4 * 3 + 5 + 6 * 4 * 3 + 10 + 11
    for edge in page["edges"][::3]:
        slopes = slope(corrupted, *edge), slope(half, *edge)
        assert page["eap"][edge] == pytest.approx(slopes[0] / total, rel=1e-5, abs=1e-9)
        assert page["eap_ig"][edge] == pytest.approx(sum(slopes) / 2 / total, rel=1e-5, abs=1e-9)


def test_composition_and_the_tokens_of_heads() -> None:
    """Scores that TransformerLens's factored matrices gave; tokens by hand."""
    page = run_unchanged("composition")
    recorded = np.load(REFERENCE / "analysis.npz")
    for name, kind in itertools.product(("odd", "silu", "quick_gelu"), "QKV"):
        trace = GPT2.from_pretrained(REFERENCE / name, dtype="float64").trace([5, 7])
        scores = page["composition"](trace, kind)
        np.testing.assert_allclose(scores, recorded[f"{name}/circuits/{kind}"], atol=1e-10)
    best = np.argsort(-page["scores"], axis=None)[:2]
    heads = {tuple(map(int, np.unravel_index(n, page["scores"].shape))) for n in best}
    assert heads == {(0, 1, 1, 2), (0, 1, 1, 3)}
    p, layer, dog = page["trace"], page["attention"], 428
    rows = p.W_E - p.W_E.mean(axis=1, keepdims=True)
    X = rows / np.sqrt(p.W_E.var(axis=1, keepdims=True) + 1e-5) * layer.gain + layer.bias
    head = layer.heads[2]
    query, key, value = (
        X @ getattr(head, f"W_{x}") + getattr(head, f"b_{x}") for x in ("Q", "K", "V")
    )
    assert page["reads"](head, page["X"], dog) == pytest.approx(
        key @ query[dog] / 32**0.5, abs=1e-4
    )
    output = value[dog] @ head.W_O
    logits = ((output - output.mean()) * p.gain) @ p.W_U
    assert page["writes"](head, page["X"], dog) == pytest.approx(logits, abs=1e-4)
    assert "' dog': '.' 2.77, ' girl' 2.44" in page.printed


def test_a_llama_equals_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ATTNLAB_LLAMA", raising=False)
    page = run_unchanged("llama")
    recorded = np.load(REFERENCE / "llama" / "expected.npz")
    ids, p = recorded["ids"], page["load"](REFERENCE / "llama")
    exact = {path: x if path == "config" else x.astype(float) for path, x in p.items()}
    for parameters, dtype, tolerance in ((p, "float32", 2e-5), (exact, "float64", 1e-10)):
        seen: dict[str, Any] = {}
        logits = page["llama"](ids, parameters, seen)
        assert logits.dtype == dtype
        np.testing.assert_allclose(logits, recorded[dtype], rtol=0, atol=tolerance)
        weights = [seen[f"blocks.{n}.attention"].weights for n in range(3)]
        np.testing.assert_allclose(weights, recorded["weights"], rtol=0, atol=tolerance)
    silenced = page["llama"](ids, exact, silenced=(1, 2))
    exact["blocks.1.attention.W_O"][12:18] = 0  # the rows of head 2, whose width is 6
    np.testing.assert_allclose(silenced, page["llama"](ids, exact), rtol=0, atol=1e-12)


@pytest.mark.parametrize("setting", ["llama", "silu", "default"])
def test_a_recipe_refuses_what_it_does_not_compute(setting: str, tmp_path: Path) -> None:
    config = (REFERENCE / "llama" / "config.json").read_text("utf-8")
    (tmp_path / "config.json").write_text(changed(config, {f': "{setting}"': ': "other"'}))
    with pytest.raises(ValueError, match="isn't a Llama with"):
        run_unchanged("llama")["load"](tmp_path)


@pytest.mark.slow
def test_sparse_autoencoder() -> None:
    page = run_unchanged("sparse_autoencoder")
    assert page["explained"] > 0.9
    assert ((page["found"] > 0).sum(axis=1) == 8).mean() > 0.9
    assert np.linalg.norm(page["W_dec"], axis=1) == pytest.approx(1)
    assert "on it it it it it; without it" in page.printed
    assert "8 of 256 features explain 0.90 of the variance" in page.printed


@pytest.mark.slow
def test_gradients_of_the_sparse_autoencoder_equal_finite_differences() -> None:
    page = run(
        "sparse_autoencoder", {"STEPS, BATCH, RATE = 300, 512": "STEPS, BATCH, RATE = 1, 40"}
    )
    x, rng = page["batch"] - page["center"], np.random.default_rng(0)
    W = np.random.default_rng(0).normal(size=(256, 128))
    W /= np.linalg.norm(W, axis=1, keepdims=True)
    initial = [W.T, np.zeros(256), W]
    z = x @ W.T
    kept = np.argsort(np.argsort(-z, axis=1), axis=1) < 8

    def loss(W_enc: Any, b_enc: Any, W_dec: Any) -> float:
        activations = np.where(kept, np.maximum(x @ W_enc + b_enc, 0), 0)
        return float(np.square(activations @ W_dec - x).sum(axis=1).mean())

    for number, gradient in enumerate(page["gradients"]):
        step = 1e-6 * rng.normal(size=gradient.shape)
        plus, minus = initial.copy(), initial.copy()
        plus[number], minus[number] = initial[number] + step, initial[number] - step
        difference = (loss(*plus) - loss(*minus)) / 2
        assert (gradient * step).sum() == pytest.approx(difference, rel=1e-4)
    # Adam's first step is RATE times the sign of the gradient.
    moved = page["W_enc"] - initial[0]
    assert moved == pytest.approx(-0.003 * np.sign(page["gradients"][0]), abs=1e-4)
    dead = np.linalg.norm(page["gradients"][2], axis=1) == 0
    assert page["W_dec"][dead] == pytest.approx(W[dead])


@pytest.mark.slow
def test_tuned_lens() -> None:
    page = run_unchanged("tuned_lens")
    logit, tuned, model = page["losses"].values()
    assert logit - tuned > 0.9
    assert tuned > model
    lens = page["decoded"](page["model"].trace("The dog"), 0 * page["W"], 0 * page["b"])
    logit_lens = attnlab.lens(page["model"].trace("The dog"))
    assert lens.logits == pytest.approx(logit_lens.logits("blocks.0.output"), abs=1e-5)
    text = page["model"].trace("The dog barked.")
    p = np.exp(text.logits.astype(float))
    expected = [np.log(p[n].sum() / p[n, text.ids[n + 1]]) for n in range(len(p) - 1)]
    assert text.loss == pytest.approx(np.mean(expected), rel=1e-5)
    assert "Ġit" in page.printed.split("logit lens")[2]
    assert "Ġclucked" in page.printed.split("tuned lens")[2]


@pytest.mark.slow
def test_gradients_of_the_tuned_lens_equal_finite_differences() -> None:
    page = run(
        "tuned_lens", {"STEPS, BATCH, RATE = 100, 256, 0.3": "STEPS, BATCH, RATE = 1, 40, 0.3"}
    )
    x, q = page["x"].astype(float), page["q"].astype(float)

    def loss(W: Any, b: Any) -> float:
        y = x + x @ W + b
        y = (y - y.mean(axis=1, keepdims=True)) / np.sqrt(y.var(axis=1, keepdims=True) + 1e-5)
        logits = (y * page["gain"] + page["bias"]) @ page["W_U"]
        p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        return float((q * np.log(q / p)).sum(axis=1).mean())

    W, b = np.random.default_rng(0).normal(size=(2, 128, 128)) * 1e-5
    for step in ((W, 0 * b[0]), (0 * W, b[0])):
        difference = (loss(*step) - loss(-step[0], -step[1])) / 2
        expected = sum((g * s).sum() for g, s in zip(page["gradients"], step, strict=True))
        assert difference == pytest.approx(expected, rel=1e-3)
    assert page["W"] == pytest.approx(-0.3 * page["gradients"][0], rel=1e-5, abs=1e-8)
    assert page["b"] == pytest.approx(-0.3 * page["gradients"][1], rel=1e-5, abs=1e-8)
