"""The model without one of its heads, compared with transformers and with single edits."""

from itertools import product

import numpy as np
import pytest
from conftest import REFERENCE
from pages import BALL, gpt2_shaped
from runs import log_computed

from attnlab import GPT2, Trace
from attnlab.analysis.ablation import next_logits_without

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
        single = trace.edited({f"blocks.{layer}.attention.heads.{head}.context": 0}).next_logits
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
