"""Path patching, with what each receiver reads computed by hand."""

from typing import Any

import numpy as np
import pytest
from conftest import REFERENCE

import attnlab
from attnlab import GPT2, Trace, layer_norm
from attnlab.equations import Array
from attnlab.errors import InvalidValueError

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
    patching = attnlab.path_patch(clean, corrupted, target=METRIC, progress=False)
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


def test_receivers_read_a_changed_stream(pair: tuple[Trace, Trace]) -> None:
    """Each sender, to Q, K and V of a head and the MLP of layer 1, alone and together."""
    clean, corrupted = pair
    block, ends = corrupted.blocks[1], (metric(clean), metric(corrupted))
    attention, head, mlp = block.attention, corrupted.head(1, 2), block.mlp
    paths = [*(f"blocks.1.attention.heads.2.{name}" for name in "QKV"), "blocks.1.mlp.X"]
    before = ["embedding", "blocks.0.attention.heads.3.output", "blocks.0.mlp.output"]
    for sender in (*before, "blocks.1.attention.heads.4.output", "blocks.1.mlp.output"):
        change = attnlab.at(clean, sender) - attnlab.at(corrupted, sender)
        X = layer_norm(block.input + change, attention.gain, attention.bias, attention.epsilon)
        read: dict[str, Array] = {}
        if sender in before:
            for path in paths[:3]:
                W, b = (getattr(head, f"{kind}_{path[-1]}") for kind in "Wb")
                read[path] = X @ W + b
        if sender != "blocks.1.mlp.output":
            read[paths[3]] = layer_norm(block.mid + change, mlp.gain, mlp.bias, mlp.epsilon)
        for receivers in (*([path] for path in paths), paths):
            edits = {path: read[path] for path in receivers if path in read}
            share = (metric(corrupted.edited(edits)) - ends[1]) / (ends[0] - ends[1])
            patching = attnlab.path_patch(
                clean, corrupted, sender, receivers, target=METRIC, progress=False
            )
            assert patching.restored == pytest.approx(share, abs=1e-12)


def forward(corrupted: Trace, change: dict[str, Array]) -> dict[str, Array]:
    """What receivers read if attention is frozen and MLPs aren't, with changes of what is written.

    As in Wang et al. (2022): the MLPs of layers whose stream has changed are computed anew.
    """
    stream, read = corrupted.embedding + change.get("embedding", 0), {}
    for layer, block in enumerate(corrupted.blocks):
        attention, mlp, path = block.attention, block.mlp, f"blocks.{layer}"
        X = layer_norm(stream, attention.gain, attention.bias, attention.epsilon)
        for number, head in enumerate(attention.heads):
            name = f"{path}.attention.heads.{number}"
            read |= {
                f"{name}.{k}": X @ getattr(head, f"W_{k}") + getattr(head, f"b_{k}") for k in "QKV"
            }
            stream = stream + head.context @ head.W_O + change.get(f"{name}.output", 0)
        stream = stream + attention.b_O
        read[f"{path}.mlp.X"] = X = layer_norm(stream, mlp.gain, mlp.bias, mlp.epsilon)
        x = X @ mlp.W_1 + mlp.b_1
        gelu = x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
        stream = stream + gelu @ mlp.W_2 + mlp.b_2 + change.get(f"{path}.mlp.output", 0)
    read["final"] = layer_norm(stream, corrupted.gain, corrupted.bias, corrupted.epsilon)
    return read


def test_mlps_on_the_path_are_recomputed(pair: tuple[Trace, Trace]) -> None:
    clean, corrupted = pair
    ends, path = (metric(clean), metric(corrupted)), "blocks.{}.attention.heads.{}.{}".format
    for sender in ("embedding", path(0, 3, "output"), "blocks.0.mlp.output", path(1, 2, "output")):
        change = {sender: attnlab.at(clean, sender) - attnlab.at(corrupted, sender)}
        read = forward(corrupted, change)
        for receivers in (["final"], [path(2, 1, "V"), path(2, 4, "Q")], ["blocks.1.mlp.X"]):
            patched = corrupted.edited({receiver: read[receiver] for receiver in receivers})
            share = (metric(patched) - ends[1]) / (ends[0] - ends[1])
            settings: Any = {"target": METRIC, "progress": False}
            found = attnlab.path_patch(*pair, sender, receivers, recompute_mlps=True, **settings)
            assert found.restored == pytest.approx(share, abs=1e-12), (sender, receivers)
    frozen, found = (
        attnlab.path_patch(*pair, recompute_mlps=recomputed, **settings).restored
        for recomputed in (False, True)
    )
    assert np.abs(frozen - found).max() > 0.01


def test_senders_after_the_receiver_restore_nothing(pair: tuple[Trace, Trace]) -> None:
    receiver = "blocks.0.attention.heads.1.Q"
    patching = attnlab.path_patch(*pair, receiver=receiver, target=METRIC, progress=False)
    assert (patching.restored == 0).all()
    patching = attnlab.path_patch(*pair, "embedding", receiver, target=METRIC, progress=False)
    assert patching.restored.shape == ()
    # The head's whole query in the clean run, since only the embedding precedes block 0.
    query = pair[0].head(0, 1).Q
    patched = metric(pair[1].edited({receiver: query}))
    ends = metric(pair[0]), metric(pair[1])
    assert patching.restored == pytest.approx((patched - ends[1]) / (ends[0] - ends[1]), abs=1e-12)


def test_refused_arguments(pair: tuple[Trace, Trace], odd: GPT2) -> None:
    clean, corrupted = pair
    senders = ("blocks.0.attention.heads.1.context", "logits", "blocks.7.mlp.output", 3)
    receivers = ("blocks.0.mlp.output", "blocks.0.attention.heads.9.Q", [3], [], None)
    refused: list[dict[str, object]] = [{"sender": sender} for sender in senders]
    refused += [{"receiver": receiver} for receiver in receivers]
    for arguments in refused:
        with pytest.raises(InvalidValueError):
            attnlab.path_patch(clean, corrupted, target=METRIC, **arguments)  # type: ignore[arg-type]
    steps = [odd.generate(trace.ids, 2, trace=True, temperature=0).steps[1].trace for trace in pair]
    with pytest.raises(InvalidValueError, match="with a cache"):
        attnlab.path_patch(*steps, target=METRIC)
