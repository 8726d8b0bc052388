"""Traces, compared with transformers; and their other guarantees."""

import copy
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import MODELS, REFERENCE, RELATIVES
from hypothesis import given, settings
from hypothesis import strategies as st
from runs import stored_steps

import attnlab
from attnlab import GPT2, AttnlabError, GPT2Config, causal_mask
from attnlab.forward import ForwardPass
from attnlab.training.parameters import initial_parameters

TOLERANCE = {"float32": 1e-4, "float64": 1e-10}
STEPS = ("raw_scores", "scores", "masked_scores", "weights", "context")


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("name", MODELS + RELATIVES)
def test_every_intermediate_against_transformers(name: str, dtype: str) -> None:
    expected = np.load(REFERENCE / name / "expected.npz")
    trace = GPT2.from_pretrained(REFERENCE / name, dtype=dtype).trace(expected["ids"])
    assert len(expected.files) > 2 * 17
    for path in expected.files:
        if path == "ids":
            continue
        computed, wanted = attnlab.at(trace, path), expected[path]
        assert computed.shape == wanted.shape, path
        assert computed.dtype == dtype, path
        assert not computed.flags.writeable, path
        # A sum's rounding error is relative to its terms, which may cancel, not to the sum.
        scale = max(1, np.abs(wanted[np.isfinite(wanted)]).max())
        assert np.allclose(computed, wanted, rtol=0, atol=TOLERANCE[dtype] * scale), path


def test_reading_computes_only_needed_steps(odd: GPT2) -> None:
    trace = odd.trace("the hen in a thin inn")
    assert trace.head(0, 0).weights.shape == (12, 12)
    assert not {"mid", "output"} & stored_steps(trace.blocks[0])
    assert not {path for path in stored_steps(trace.blocks[0]) if path.startswith("mlp")}
    assert not stored_steps(trace.blocks[1])
    assert trace.blocks[2].output.shape == (12, 35)
    for block in trace.blocks:
        assert not set(STEPS[:3]) & stored_steps(block.attention)
        assert stored_steps(block.mlp) <= {"epsilon", "activation"}
        assert block.mlp.output.shape == (12, 35)
        assert not {"hidden", "activated"} & stored_steps(block.mlp)
    assert not {"logits", "token_embedding", "position_embedding"} & stored_steps(trace)
    assert len(trace.next_tokens(3)) == 3
    assert "logits" not in stored_steps(trace)
    trace = odd.trace("the hen in a thin inn")
    trace.next_tokens()
    attention = trace.blocks[1].attention
    assert "\nX " in repr(attention)
    assert "memory" not in repr(attention)
    assert attention.axes_of("W_K") == "D H·Dk"
    assert not {"X", "memory"} & stored_steps(attention)
    copied = copy.deepcopy(attention)
    assert attention.memory is attention.X
    assert np.array_equal(copied.X, attention.X)
    Q = attention.X @ attention.W_Q + attention.b_Q
    assert np.allclose(attention.heads[1].Q, np.split(Q, 5, axis=-1)[1], atol=1e-6)


def test_losses_of_a_text_longer_than_the_model() -> None:
    """Token by token: each is predicted in the first window that has it."""
    model = GPT2.from_pretrained(REFERENCE / "odd", dtype="float64")  # 17 positions
    ids = np.random.default_rng(3).integers(0, 263, 50)
    for length, stride in ((50, 5), (50, 16), (49, 1), (50, None), (17, 3), (18, 16), (2, 4)):
        text = ids[:length]
        expected = []
        for n in range(1, length):
            start = 0
            while start + 17 <= n:
                start += stride or 8
            p = np.exp(model.trace(text[start:n]).next_logits)
            expected.append(-np.log(p[text[n]] / p.sum()))
        losses = model.losses(text, stride)
        np.testing.assert_allclose(losses, expected, rtol=0, atol=1e-12)
    assert np.array_equal(model.losses(ids[:17]), model.trace(ids[:17]).losses)
    for stride in (0, 17, 1.5):
        with pytest.raises(AttnlabError, match="stride must be an integer from 1 to 16"):
            model.losses(ids, stride)
    with pytest.raises(AttnlabError, match="at least two tokens; got 1"):
        model.losses(ids[:1])


def test_losses() -> None:
    expected = np.load(REFERENCE / "odd/expected.npz")
    model = GPT2.from_pretrained(REFERENCE / "odd", dtype="float64")
    trace = model.trace(expected["ids"])
    by_hand = [
        math.log(math.fsum(math.exp(x - row[id]) for x in row))
        for row, id in zip(expected["logits"], expected["ids"][1:], strict=False)
    ]
    assert trace.losses == pytest.approx(by_hand, rel=1e-10)
    assert trace.loss == pytest.approx(math.fsum(by_hand) / len(by_hand), rel=1e-10)
    # The target's probability rounds to 0, its logarithm doesn't.
    logits = np.zeros(263)
    logits[expected["ids"][1]] = -5000
    assert trace.edited({"logits": logits}).losses[0] == pytest.approx(5000 + math.log(262))
    assert trace.edited({"final": 0}).loss == pytest.approx(math.log(263))
    assert not model.trace([0]).losses.size
    with pytest.raises(AttnlabError, match="at least two tokens"):
        _ = model.trace([0]).loss


def test_the_probability_of_a_word_in_several_tokens(odd: GPT2) -> None:
    """From logits that transformers computed."""
    expected = np.load(REFERENCE / "odd/expected.npz")
    model = GPT2.from_pretrained(REFERENCE / "odd", dtype="float64")
    ids, p = expected["ids"], np.exp(expected["logits"])
    p /= p.sum(axis=-1, keepdims=True)
    for start, stop in ((5, 8), (1, 11), (10, 11)):
        by_hand = math.prod(p[t, ids[t + 1]] for t in range(start - 1, stop - 1))
        found = model.probability(ids[:start], ids[start:stop])
        assert found == pytest.approx(by_hand, rel=1e-10)
    assert sum(model.probability([3, 1], [id]) for id in range(263)) == pytest.approx(1)
    text, word = "the hen", " in the"
    tokens = odd.tokenizer.tokens(text), odd.tokenizer.tokens(word)
    assert len(tokens[1]) > 2
    assert odd.probability(text, word) == odd.probability(*tokens)
    for word, message in (("", "at least one token"), (np.arange(12), "19 tokens are too many")):
        with pytest.raises(AttnlabError, match=message):
            odd.probability(np.arange(7), word)


def test_losses_of_a_long_text_are_computed_by_rows() -> None:
    config = GPT2Config(vocab_size=50, n_positions=300, n_embd=8, n_layer=1, n_head=2)
    parameters = initial_parameters(config, np.random.default_rng(0))
    parameters["W_E"][...] *= 20  # so that losses differ
    model = GPT2.from_arrays(config, parameters, dtype="float64")
    trace = model.trace(np.arange(300) % 50)
    losses = trace.losses
    assert "logits" not in stored_steps(trace)
    logits = trace.logits.astype(np.float64)[:-1]
    log_sums = np.log(np.exp(logits - logits.max()).sum(axis=-1)) + logits.max()
    expected = log_sums - logits[np.arange(299), trace.ids[1:]]
    assert np.ptp(expected) > 1
    np.testing.assert_allclose(losses, expected, rtol=1e-9)


def test_next_tokens(odd: GPT2) -> None:
    expected = np.load(REFERENCE / "odd/expected.npz")
    trace = odd.trace(expected["ids"])
    logits = expected["logits"][-1]
    probabilities = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
    best = trace.next_tokens(263)
    assert [token.id for token in best] == np.argsort(-logits).tolist()
    assert [token.probability for token in best] == pytest.approx(
        sorted(probabilities, reverse=True), rel=1e-4
    )
    assert best[0].logit == pytest.approx(logits.max(), rel=1e-5)
    for k in (0, 264, 1.0, True):
        with pytest.raises(AttnlabError, match="1 to 263"):
            trace.next_tokens(k)


@settings(max_examples=25)
@given(ids=st.lists(st.integers(0, 262), min_size=2, max_size=17), data=st.data())
def test_later_tokens_do_not_affect_earlier_ones(ids: list[int], data: st.DataObject) -> None:
    model = GPT2.from_pretrained(REFERENCE / "one_head", dtype="float64")
    t = data.draw(st.integers(1, len(ids) - 1))
    changed = [*ids[:t], *data.draw(st.lists(st.integers(0, 262), min_size=1, max_size=17 - t))]
    before, after = model.trace(ids), model.trace(changed)
    assert np.allclose(before.logits[:t], after.logits[:t], rtol=1e-11, atol=1e-11)
    weights = before.blocks[1].attention.weights
    assert np.allclose(weights.sum(axis=-1), 1)
    assert (weights[..., ~causal_mask(len(ids))] == 0).all()


def test_all_parts_have_tokens(odd: GPT2) -> None:
    trace = odd.trace("the hen")
    for part_ in (trace.blocks[1], trace.blocks[1].attention, trace.head(2, 3)):
        assert part_.tokens is trace.tokens
    generated = odd.generate("the hen", 2, temperature=0, trace=True)
    last = generated.steps[-1].trace
    assert last.head(0, 0).tokens == last.tokens
    assert len(last.tokens) == 1


def test_attributes_are_read_only(odd: GPT2) -> None:
    trace = odd.trace("the hen")
    for result in (trace, trace.blocks[0], trace.blocks[0].mlp, trace.head(0, 0)):
        with pytest.raises(AttributeError, match="read-only"):
            result.output = 3
        with pytest.raises(AttributeError, match="read-only"):
            del result.title
    assert trace.head(-1, -2) is trace.head(2, 3)


def test_reprs_compute_only_quick_steps(odd: GPT2, walkthrough_directory: Path) -> None:
    """A small model's table has all numbers; GPT-2's, those that don't need all blocks."""
    trace = odd.trace("the hen")
    for result in (trace, *trace.blocks):
        assert "not computed yet" not in repr(result)
    assert "output" not in stored_steps(trace.blocks[0])
    assert f"{trace.next_logits.min():.4g} … {trace.next_logits.max():.4g}" in repr(trace)

    trace = GPT2.from_pretrained(walkthrough_directory).trace([5, 6, 7])
    far = [line.split()[0] for line in repr(trace).splitlines() if "not computed yet" in line]
    assert far == ["final", "logits", "next_logits"]
    assert "not computed yet" not in repr(trace.blocks[0])
    assert not trace._is_stored("embedding")
    _ = trace.final
    assert repr(trace).count("not computed yet") == 2  # which read all of W_E


@pytest.mark.parametrize(
    ("look", "kind", "message"),
    [
        (lambda trace: trace.head(3, 0), IndexError, "no layer 3; layers are 0 to 2"),
        (lambda trace: trace.head(0, 5), IndexError, "no head 5; heads are 0 to 4"),
        (lambda trace: trace.head(-4, 0), IndexError, "no layer -4"),
        (lambda trace: trace.blocks[9], IndexError, "no layer 9"),
        (lambda trace: trace.head("0", 0), TypeError, "layer.*integer.*'0'"),
        (lambda trace: trace.head(0, 1.0), TypeError, "head.*integer.*1.0"),
        (lambda trace: trace.head(0, slice(0, 2)), TypeError, "head.*integer.*slice"),
        (lambda trace: trace.head(True, 0), TypeError, "layer.*integer.*True"),
        (lambda trace: trace.head(0, np.array([1])), TypeError, "head.*integer.*array"),
        (lambda trace: trace.blocks[10**30], IndexError, "no layer 1000"),
    ],
)
def test_layers_and_heads_out_of_range(
    odd: GPT2, look: Any, kind: type[Exception], message: str
) -> None:
    with pytest.raises(AttnlabError, match=message) as caught:
        look(odd.trace("the hen"))
    assert isinstance(caught.value, kind)


def test_a_batch_equals_its_sequences_alone(odd: GPT2) -> None:
    T = odd.config.n_positions
    ids = np.random.default_rng(2).integers(0, odd.config.vocab_size, (2, 3, T))
    together = ForwardPass(ids, odd.parameters)
    assert together.logits.shape == (2, 3, T, odd.config.vocab_size)
    for index in np.ndindex(2, 3):
        alone = odd.trace(ids[index])
        for path in ("embedding", "blocks.1.attention.weights", "blocks.2.mlp.hidden", "logits"):
            actual, expected = attnlab.at(together, path)[index], attnlab.at(alone, path)
            assert np.abs(actual - expected).max() < 1e-4 * max(1, np.abs(expected).max()), path


def test_a_tokens_text_in_place_of_a_step(odd: GPT2) -> None:
    trace = odd.trace("the hen")
    token = trace.tokens[-1].text
    message = re.escape(f"trace.head(layer, head).explain({token.strip()!r}, 0)")
    with pytest.raises(ValueError, match=message):
        trace.explain(token.strip(), 0)
    assert trace.head(0, 0).explain(token.strip(), 0)
    with pytest.raises(ValueError, match="has no step 'nothing'"):
        trace.explain("nothing", 0)
