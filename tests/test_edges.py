"""Path patching, edges and circuits; tests/pytorch_edges.py compares them with PyTorch."""

import numpy as np
import pytest
from conftest import REFERENCE

import attnlab
from attnlab import GPT2, Trace
from attnlab.errors import InvalidTypeError, InvalidValueError

TOKEN, OTHER = 9, 60
METRIC = (TOKEN, OTHER)


@pytest.fixture(scope="module")
def odd() -> GPT2:
    return GPT2.from_pretrained(REFERENCE / "odd", dtype="float64")


@pytest.fixture(scope="module")
def pair(odd: GPT2) -> tuple[Trace, Trace]:
    return odd.trace([5, 7, 100, 3, 41]), odd.trace([5, 7, 33, 3, 41])


def metric(trace: Trace) -> float:
    return float(trace.next_logits[TOKEN] - trace.next_logits[OTHER])


def test_a_direct_path_to_the_logits_goes_through_layer_norm_and_w_u(
    pair: tuple[Trace, Trace],
) -> None:
    clean, corrupted = pair
    patching = attnlab.path_patch(clean, corrupted, metric=METRIC, progress=False)
    ends = metric(clean), metric(corrupted)
    for layer, head in np.ndindex(patching.restored.shape):
        results = [trace.head(layer, head) for trace in pair]
        outputs = [result.context @ result.W_O for result in results]
        change = (outputs[0] - outputs[1])[-1]
        x = corrupted.blocks[-1].output[-1] + change
        x = (x - x.mean()) / np.sqrt(x.var() + corrupted.epsilon)
        logits = (x * corrupted.gain + corrupted.bias) @ corrupted.W_U
        share = (logits[TOKEN] - logits[OTHER] - ends[1]) / (ends[0] - ends[1])
        assert patching.restored[layer, head] == pytest.approx(share, abs=1e-12)
    assert "Path patching from blocks.*.attention.heads.*.output to final" in repr(patching)
    assert patching.note.split()[0] in repr(patching)


def test_senders_after_the_receiver_restore_nothing(pair: tuple[Trace, Trace]) -> None:
    receiver = "blocks.0.attention.heads.1.Q"
    patching = attnlab.path_patch(*pair, receiver=receiver, metric=METRIC, progress=False)
    assert (patching.restored == 0).all()
    patching = attnlab.path_patch(*pair, "embedding", receiver, metric=METRIC, progress=False)
    assert patching.restored.shape == ()
    # The head's whole query in the clean run, since only the embedding precedes block 0.
    query = pair[0].head(0, 1).Q
    patched = metric(pair[1].edited({receiver: query}))
    ends = metric(pair[0]), metric(pair[1])
    assert patching.restored == pytest.approx((patched - ends[1]) / (ends[0] - ends[1]), abs=1e-12)


def test_all_edges_give_the_clean_run_and_none_the_corrupted(
    pair: tuple[Trace, Trace],
) -> None:
    edges = attnlab.edges(*pair, metric=METRIC, progress=False)
    count = int(np.isfinite(edges.effects).sum())
    L, H = pair[0].config.n_layer, pair[0].config.n_head
    before = [1 + (H + 1) * n for n in range(L + 1)]  # senders before each block, and after all
    assert count == sum(3 * H * n + n + H for n in before[:-1]) + before[-1]
    whole, none = edges.circuit(count), edges.circuit(0)
    np.testing.assert_allclose(whole.trace.next_logits, pair[0].next_logits, atol=1e-12)
    np.testing.assert_allclose(none.trace.next_logits, pair[1].next_logits, atol=1e-12)
    assert edges.faithfulness([0, count]) == pytest.approx([0, 1], abs=1e-12)
    assert repr(whole) == f"Circuit of {count} edges, faithfulness 1.000"


def test_gradients_are_exact_for_a_small_change() -> None:
    """Finite differences: effects in the metric's units, for a slightly changed embedding."""
    model = GPT2.from_pretrained(REFERENCE / "silu", dtype="float64")
    corrupted = model.trace([5, 7, 33, 3, 41])
    change = np.random.default_rng(0).normal(size=corrupted.embedding.shape) * 1e-6
    clean = corrupted.edited({"embedding": corrupted.embedding + change})
    by_gradients = attnlab.edges(clean, corrupted, metric=METRIC, progress=False)
    exact = attnlab.edges(clean, corrupted, metric=METRIC, exact=True, progress=False)
    np.testing.assert_allclose(by_gradients.effects, exact.effects, rtol=2e-3, atol=2e-4)
    several = attnlab.edges(clean, corrupted, metric=METRIC, steps=3, progress=False)
    np.testing.assert_allclose(several.effects, exact.effects, rtol=2e-3, atol=2e-4)


def test_integrated_gradients_are_means_along_the_way(pair: tuple[Trace, Trace]) -> None:
    clean, corrupted = pair
    halfway = corrupted.edited({"embedding": (clean.embedding + corrupted.embedding) / 2})
    two, first, second = (
        (metric(clean) - metric(start))
        * attnlab.edges(clean, start, metric=METRIC, steps=steps, progress=False).effects[0]
        for start, steps in ((corrupted, 2), (corrupted, 1), (halfway, 1))
    )
    # Edges from the embedding: halfway, its change is half as large.
    np.testing.assert_allclose(two, (first + 2 * second) / 2, atol=1e-12)
    assert not np.allclose(two, first, atol=1e-3)


def test_the_strongest_edges_are_shown(pair: tuple[Trace, Trace]) -> None:
    edges = attnlab.edges(*pair, metric=METRIC, progress=False)
    strongest = edges.strongest(3)
    sizes = np.sort(np.abs(edges.effects[np.isfinite(edges.effects)]))[::-1]
    assert [abs(effect) for *_, effect in strongest] == pytest.approx(sizes[:3])
    for sender, receiver, effect in strongest:
        index = edges.senders.index(sender), edges.receivers.index(receiver)
        assert edges.effects[index] == effect
        assert f"{effect:+.3f}" in edges.table()
    assert f"20 of {np.isfinite(edges.effects).sum()} edges" in repr(edges)
    alt = edges.plot(n=3, language="en").alt
    assert alt.count("→") == 3
    assert f"{strongest[0][-1]:+.3f}" in alt


def test_edges_rejects_invalid_arguments(pair: tuple[Trace, Trace], odd: GPT2) -> None:
    clean, corrupted = pair
    for sender in ("blocks.0.attention.heads.1.context", "logits", "blocks.7.mlp.output", 3):
        with pytest.raises(InvalidValueError):
            attnlab.path_patch(clean, corrupted, sender, metric=METRIC)  # type: ignore[arg-type]
    for receiver in ("blocks.0.mlp.output", "blocks.0.attention.heads.9.Q", [3], [], None):
        with pytest.raises(InvalidValueError):
            attnlab.path_patch(clean, corrupted, receiver=receiver, metric=METRIC)  # type: ignore[arg-type]
    with pytest.raises(InvalidValueError, match="in both traces"):
        attnlab.edges(clean, clean, metric=METRIC)
    with pytest.raises(InvalidTypeError, match="exact=True"):
        attnlab.edges(clean, corrupted, metric=metric)
    with pytest.raises(InvalidValueError, match="steps must be 1"):
        attnlab.edges(clean, corrupted, metric=METRIC, steps=2, exact=True)
    with pytest.raises(InvalidValueError):
        attnlab.edges(clean, odd.trace([1, 2]), metric=METRIC)
    steps = [odd.generate(trace.ids, 2, trace=True, temperature=0).steps[1].trace for trace in pair]
    for function in (attnlab.edges, attnlab.path_patch):
        with pytest.raises(InvalidValueError, match="with a cache"):
            function(*steps, metric=METRIC)
    edited = corrupted.edited({"blocks.1.attention.output": 0})
    with pytest.raises(InvalidValueError, match=r"edit of blocks\.1\.attention\.output"):
        attnlab.edges(clean, edited, metric=METRIC)
    edges = attnlab.edges(clean, corrupted, metric=METRIC, progress=False)
    for n in (0, "x"):
        with pytest.raises(InvalidValueError, match="n must be"):
            edges.plot(n=n)  # type: ignore[arg-type]
    with pytest.raises(InvalidValueError):
        edges.circuit(10**6)
    with pytest.raises(InvalidTypeError, match="counts must be a list of numbers of edges"):
        edges.faithfulness(3)  # type: ignore[arg-type]


def test_a_custom_metric() -> None:
    model = GPT2.from_pretrained(REFERENCE / "one_head", dtype="float64")
    pair = model.trace([5, 7, 100]), model.trace([5, 7, 33])
    named, custom = (
        attnlab.edges(*pair, metric=each, exact=True, progress=False) for each in (METRIC, metric)
    )
    np.testing.assert_allclose(custom.effects, named.effects, atol=1e-12)
