"""Trace files: round trips, and refusal of damaged files."""

import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import MODELS, REFERENCE
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from attnlab import GPT2, AttnlabError, Trace, at, open_trace
from attnlab.errors import MissingFileError, RecordingError, WriteError
from attnlab.model.recordings import FORMAT
from attnlab.support.sealed import write_sealed

TEXT = "the hen in a thin inn"
FOLLOW = ("Q", "K", "V", "raw_scores", "scores", "masked_scores", "weights", "context", "concat")


@pytest.fixture
def trace() -> Trace:
    return GPT2.from_pretrained(REFERENCE / "odd").trace(TEXT)


def record_trace(trace: Trace, directory: Path) -> Path:
    file = directory / "hen.trace"
    trace.record(file)
    return file


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", MODELS)
def test_recomputed_steps_are_bitwise_equal(name: str, dtype: str, tmp_path: Path) -> None:
    trace = GPT2.from_pretrained(REFERENCE / name, dtype=dtype).trace(np.arange(60, 72))
    opened = open_trace(record_trace(trace, tmp_path))
    assert opened.tokens == trace.tokens
    assert opened.config == trace.config
    for path in ("embedding", "final", "next_logits", "mask"):
        assert np.array_equal(at(opened, path), at(trace, path)), path
    for layer, (block, expected) in enumerate(zip(opened.blocks, trace.blocks, strict=True)):
        for step in ("input", "mid", "output"):
            assert np.array_equal(getattr(block, step), getattr(expected, step)), step
        assert block.attention.scale == expected.attention.scale
        for step in FOLLOW:
            computed = getattr(block.attention, step)
            assert computed.dtype == dtype
            assert not computed.flags.writeable
            assert np.array_equal(computed, getattr(expected.attention, step)), step
        head = trace.head(layer, -1)
        assert np.array_equal(opened.head(layer, -1).weights, head.weights)
        assert (
            str(opened.head(layer, 0).explain(5, 2)).split("\n")[3:]
            == (str(trace.head(layer, 0).explain(5, 2)).split("\n")[3:])
        )
    assert repr(opened.next_tokens(5)) == repr(trace.next_tokens(5))
    assert opened.title == f"{trace.title}, from a file"


def test_page_of_a_trace_file(trace: Trace, tmp_path: Path) -> None:
    pages = (open_trace(record_trace(trace, tmp_path)).to_html(), trace.to_html())
    heads, expected = (re.findall(r'id="trace-0-attention.*</script>', page) for page in pages)
    assert heads == expected
    assert len(heads) == len(trace.blocks)


def test_steps_that_need_the_model_raise(trace: Trace, tmp_path: Path) -> None:
    opened = open_trace(record_trace(trace, tmp_path))
    for path, parameter in (
        ("logits", "W_E"),
        ("token_embedding", "W_E"),
        ("blocks.1.mlp.hidden", "blocks.1.mlp.gain"),
        ("blocks.0.attention.output", "blocks.0.attention.W_O"),
        ("blocks.0.attention.heads.2.W_Q", "blocks.0.attention.W_QKV"),
    ):
        with pytest.raises(AttnlabError, match=f"needs the model's {parameter}, .*from a file"):
            at(opened, path)
    assert "error: needs the model's" in repr(opened.head(0, 0))


def test_requested_parts(trace: Trace, tmp_path: Path) -> None:
    file = tmp_path / "more.trace"
    parts = ["blocks.1.mlp.activated", "blocks.0.attention.heads.3.weights", "logits"]
    trace.record(file, parts)
    opened = open_trace(file)
    for path in parts:
        assert np.array_equal(at(opened, path), at(trace, path))
        assert path in load_file(file)
    for wrong, message in (
        ("blocks.1", "isn.t a step"),
        ("blocks.1.mlp", "isn.t a step"),
        ("blocks.9.mid", "blocks has 0, 1, 2"),
        ("blocks.0.attention.pattern", "no part"),
    ):
        with pytest.raises(AttnlabError, match=message):
            trace.record(tmp_path / "none.trace", [wrong])
    assert not (tmp_path / "none.trace").exists()


def test_edited_traces_keep_their_edits(trace: Trace, tmp_path: Path) -> None:
    edits = {
        "blocks.0.attention.heads.2.weights": lambda w: np.full_like(w, 1 / len(w)),
        "blocks.1.attention.scale": 3.0,
        "blocks.1.attention.heads.4.W_V": 0,
        "mask": lambda mask: mask | True,
        "blocks.2.mid": lambda mid: mid + 1,
    }
    edited = trace.edited(edits)
    opened = open_trace(record_trace(edited, tmp_path))
    for layer in range(3):
        for step in ("mask", "scale", *FOLLOW):
            path = f"blocks.{layer}.attention.{step}"
            assert np.array_equal(at(opened, path), at(edited, path)), path
    assert np.array_equal(opened.next_logits, edited.next_logits)
    assert opened.title == f"{edited.title}, from a file"
    assert not np.array_equal(opened.next_logits, trace.next_logits)


def test_only_joined_traces_of_generations_are_recorded(tmp_path: Path) -> None:
    model = GPT2.from_pretrained(REFERENCE / "odd")
    generated = model.generate("the hen", 3, temperature=0, trace=True)
    with pytest.raises(AttnlabError, match=r"the \.trace of its Generation"):
        generated.steps[-1].trace.record(tmp_path / "step.trace")
    assert generated.trace is not None
    opened = open_trace(record_trace(generated.trace, tmp_path))
    assert np.allclose(opened.head(2, 1).context, generated.trace.head(2, 1).context, atol=1e-5)
    assert np.array_equal(opened.next_logits, generated.trace.next_logits)


def test_every_changed_byte_is_detected(trace: Trace, tmp_path: Path) -> None:
    file = record_trace(trace, tmp_path)
    content = file.read_bytes()
    rng = np.random.default_rng(0)
    for position in (*range(0, 64, 7), *rng.integers(0, len(content), 150).tolist()):
        damaged = bytearray(content)
        damaged[position] ^= 1 << int(rng.integers(8))
        file.write_bytes(damaged)
        with pytest.raises(RecordingError, match=r"hen\.trace"):
            open_trace(file)
    for length in (0, 7, 8, 100, len(content) // 2, len(content) - 1):
        file.write_bytes(content[:length])
        with pytest.raises(RecordingError):
            open_trace(file)
    file.write_bytes(content)
    assert open_trace(file).tokens == trace.tokens


def recorded(trace: Trace, directory: Path) -> tuple[Path, dict[str, Any], dict[str, str]]:
    """A trace file, its tensors, and its metadata without format and checksum."""
    file = record_trace(trace, directory)
    with safe_open(file, "np") as opened:
        metadata = opened.metadata()
    metadata.pop("sha256")
    assert metadata.pop("format") == FORMAT
    return file, load_file(file), metadata


def forge(
    file: Path, tensors: dict[str, Any], metadata: dict[str, str], changed: dict[str, Any]
) -> None:
    """Write a trace file with changed metadata or tensors and a correct checksum."""
    texts = {name: value for name, value in changed.items() if isinstance(value, str)}
    arrays = {name: value for name, value in changed.items() if name not in texts}
    write_sealed(file, FORMAT, tensors | arrays, metadata | texts)


def test_files_of_other_kinds(trace: Trace, tmp_path: Path) -> None:
    file, tensors, metadata = recorded(trace, tmp_path)
    ids = json.loads(metadata["ids"])
    lengths = tensors["vocabulary.lengths"].copy()
    lengths[:2] += [-2, 2]  # with the same sum
    for changed, message in (
        ({"config": "{}"}, "vocab_size is missing"),
        ({"ids": json.dumps([*ids, 9])}, "complete"),
        ({"vocabulary.lengths": lengths}, "lengths don't match its bytes"),
    ):
        forge(file, tensors, metadata, changed)
        with pytest.raises(RecordingError, match=message):
            open_trace(file)
    for name in ("embedding", "blocks.1.attention.K", "blocks.2.output", "vocabulary.bytes"):
        write_sealed(file, FORMAT, {n: x for n, x in tensors.items() if n != name}, metadata)
        with pytest.raises(RecordingError, match="complete"):
            open_trace(file)
        write_sealed(file, FORMAT, tensors | {name: tensors[name][:-1]}, metadata)
        with pytest.raises(RecordingError, match="complete"):
            open_trace(file)
    for name in ("final", "blocks.1.attention.K", "next_logits"):
        write_sealed(file, FORMAT, tensors | {name: tensors[name].astype(np.float64)}, metadata)
        with pytest.raises(
            RecordingError,
            match=f"isn't a complete trace file: {name} must be float32; got float64",
        ):
            open_trace(file)
    write_sealed(file, "attnlab.trace 9", tensors, metadata)
    with pytest.raises(RecordingError, match=f"must be '{FORMAT}'; got 'attnlab.trace 9'"):
        open_trace(file)
    save_file({"x": np.ones(3)}, file)
    with pytest.raises(RecordingError, match=f"its format must be '{FORMAT}'; got None"):
        open_trace(file)
    save_file({"x": np.ones(3)}, file, {"format": FORMAT})
    with pytest.raises(RecordingError, match=r"checksum|complete"):
        open_trace(file)
    with pytest.raises(RecordingError):
        open_trace(REFERENCE / "odd" / "config.json")
    with pytest.raises(MissingFileError):
        open_trace(tmp_path / "nowhere.trace")
    with pytest.raises(WriteError):
        trace.record(tmp_path / "nowhere" / "hen.trace")
    for path in (5, None, "a\0b"):
        with pytest.raises(AttnlabError):
            open_trace(path)  # type: ignore[arg-type]
        with pytest.raises(AttnlabError):
            trace.record(path)  # type: ignore[arg-type]


CONFIG = {"vocab_size": 263, "n_positions": 17, "n_embd": 35, "n_layer": 3, "n_head": 5}


@pytest.mark.parametrize(
    "forged",
    [
        {"config": "[" * 100_000},
        {"config": json.dumps(CONFIG | {"n_layer": 10**9})},
        {"config": json.dumps(CONFIG | {"n_layer": 1000})},
        {"config": json.dumps(CONFIG | {"n_head": 10})},
        {"config": "7"},
        {"config": "["},
        {"ids": "7"},
        {"ids": "[]"},
        {"ids": "[99999]"},
        {"ids": '{"a": 1}'},
        {"ids": "[1e400]"},
        {"ids": f"[{10**30}]"},
        {"symbols": "[" * 100_000},
        {"symbols": json.dumps([7] * 263)},
        {"symbols": "null"},
        {"symbols": "[]"},
        {"embedding": np.zeros((9, 20), np.float32)},
        {"embedding": np.zeros((12, 35), np.int64)},
        {"final": np.full((12, 35), np.nan, np.float32)},
        {"blocks.9.input": np.zeros(3)},
        {"": np.zeros(3)},
        {"blocks.0.attention.weights": np.zeros((9, 300, 300), np.float32)},
        {"vocabulary.lengths": np.array(3)},
        {"vocabulary.lengths": np.full(263, -1, np.int32)},
        {"vocabulary.lengths": np.full(263, np.nan)},
        {"vocabulary.bytes": np.array(3, np.uint8)},
    ],
)
def test_forged_files_with_a_correct_checksum_are_refused(
    forged: dict[str, Any], trace: Trace, tmp_path: Path
) -> None:
    file, tensors, metadata = recorded(trace, tmp_path)
    assert set(CONFIG.items()) <= set(json.loads(metadata["config"]).items())
    forge(file, tensors, metadata, forged)
    with pytest.raises(RecordingError, match="complete"):
        open_trace(file)


PEAK = """
import resource, sys, attnlab
from attnlab.cli.command import main
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    {call}
except attnlab.AttnlabError as error:
    print(error, file=sys.stderr)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="sparse files, and memory in KiB")
@pytest.mark.parametrize("kind", ["trace", "npz"])
def test_compressed_zeros_are_refused_before_reading(
    kind: str, trace: Trace, tmp_path: Path
) -> None:
    large = 1 << 28
    file = tmp_path / "bomb"
    if kind == "trace":
        entry = {"dtype": "U8", "shape": [large], "data_offsets": [0, large]}
        metadata = {"format": FORMAT, "config": json.dumps(CONFIG), "ids": "[1]", "symbols": "[]"}
        header = json.dumps({"__metadata__": metadata, "vocabulary.bytes": entry}).encode()
        file.write_bytes(len(header).to_bytes(8, "little") + header)
        os.truncate(file, 8 + len(header) + large)
        call = f"attnlab.open_trace({str(file)!r})"
    else:
        with (
            zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
            archive.open("weights.npy", "w", force_zip64=True) as member,
        ):
            header = {"descr": "|u1", "fortran_order": False, "shape": (large,)}
            np.lib.format.write_array_header_1_0(member, header)  # type: ignore[arg-type]
            for _ in range(large >> 20):
                member.write(bytes(1 << 20))
        call = f"main(['check', {str(file)!r}, '--text', 'the hen', '--model', 'pocket'])"
    program = PEAK.format(call=call)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "complete" in done.stderr or "too many for the" in done.stderr, done.stderr
    assert int(done.stdout.split()[-1]) < 200_000


def test_version_1_files_open(trace: Trace) -> None:
    """A stored file, which all later versions of the library must read."""
    opened = open_trace(REFERENCE / "version_1.trace")
    assert opened.tokens == trace.tokens
    assert np.allclose(opened.head(2, 4).weights, trace.head(2, 4).weights, atol=1e-6)
    assert np.allclose(opened.next_logits, trace.next_logits, atol=1e-5)


@pytest.mark.parametrize("parts", [5, {}, iter(["embedding"]), None, [5], [None], ["activation"]])
def test_parts_are_paths_of_steps(trace: Trace, parts: Any, tmp_path: Path) -> None:
    with pytest.raises(AttnlabError, match=r"parts must be a text or a list|isn.t a step"):
        trace.record(tmp_path / "a.trace", parts)
    assert not [*tmp_path.iterdir()]
