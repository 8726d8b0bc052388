"""Does the oracle know right from wrong? Are planted faults found? Does attnlab hold?

The last two take minutes and run where they are asked for, with -m slow. The machines run as the
command does, in a process of their own.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import oracle
import pytest

HERE = Path(__file__).parent
REFERENCE = HERE.parent / "reference"
MODELS = sorted(config.parent.name for config in REFERENCE.glob("*/config.json"))


@pytest.mark.parametrize("model", MODELS)
def test_the_oracle_computes_what_transformers_does(model: str) -> None:
    expected = np.load(REFERENCE / model / "expected.npz")
    read = oracle.read(REFERENCE / model, "float64", 17)
    assert read.doubts == []
    logits = oracle.gpt2_logits(read.parameters, read.sizes, expected["ids"].tolist(), "float64")
    assert np.abs(logits - expected["logits"]).max() < 1e-10


def test_the_oracle_cuts_texts_as_transformers_does(vocabulary: Path) -> None:
    doubts: list[str] = []
    words = oracle.vocabulary(vocabulary, 50257, doubts)
    assert doubts == []
    for text, ids in json.loads((REFERENCE / "tokens.json").read_text()).items():
        assert words.encoded(text) == [ids] * len(words.merges)


def stored(*header: str, data: bytes = b"") -> bytes:
    """A safetensors file of one text, or of pieces of one."""
    text = "".join(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def one(name: str = "a", dtype: str = "F32", shape: str = "[2]", offsets: str = "[0, 8]") -> str:
    return f'"{name}": {{"dtype": "{dtype}", "shape": {shape}, "data_offsets": {offsets}}}'


SOUND = {
    "a tensor": stored("{", one(), "}", data=bytes(8)),
    "spaces behind": stored("{", one(), "}   ", data=bytes(8)),
    "none": stored("{}"),
    "a scalar": stored("{", one(shape="[]", offsets="[0, 4]"), "}", data=bytes(4)),
    "an empty one": stored("{", one(shape="[0, 5]", offsets="[0, 0]"), "}"),
    "metadata": stored('{"__metadata__": {"a": "b"}, ', one(), "}", data=bytes(8)),
    "another order": stored(
        *("{", one("a", offsets="[8, 16]"), ",", one("b"), "}"), data=bytes(16)
    ),
}
UNSOUND = {
    "nothing": b"",
    "a header cut off": stored("{", one(), "}", data=bytes(8))[:30],
    "a length too long": (10**18).to_bytes(8, "little") + b"{}",
    "no brace": stored(" {", one(), "}", data=bytes(8)),
    "a key twice": stored("{", one(), ", ", one(), "}", data=bytes(8)),
    "a byte too many": stored("{", one(), "}", data=bytes(9)),
    "a byte too few": stored("{", one(), "}", data=bytes(7)),
    "a hole": stored(*("{", one("a"), ",", one("b", offsets="[12, 20]"), "}"), data=bytes(20)),
    "an overlap": stored(*("{", one("a"), ",", one("b", offsets="[4, 12]"), "}"), data=bytes(12)),
    "another size": stored("{", one(shape="[3]"), "}", data=bytes(8)),
    "a size that wraps around": stored("{", one(shape=f"[2, {2**62}]"), "}", data=bytes(8)),
    "a negative size": stored("{", one(shape="[-2]"), "}", data=bytes(8)),
    "a broken size": stored("{", one(shape="[2.0]"), "}", data=bytes(8)),
    "a size that is true": stored("{", one(shape="[2, true]"), "}", data=bytes(8)),
    "another dtype": stored("{", one(dtype="float32"), "}", data=bytes(8)),
    "offsets turned round": stored("{", one(offsets="[8, 0]"), "}", data=bytes(8)),
    "numbers as metadata": stored('{"__metadata__": {"a": 1}, ', one(), "}", data=bytes(8)),
    "a list": stored("[]"),
}


@pytest.mark.parametrize("name", [*SOUND, *UNSOUND])
def test_the_oracle_reads_the_format(tmp_path: Path, name: str) -> None:
    file, doubts = tmp_path / "model.safetensors", list[str]()
    file.write_bytes((SOUND | UNSOUND)[name])
    if name in UNSOUND:
        with pytest.raises(oracle.UnsoundError):
            oracle.safetensors(file, doubts)
    else:
        oracle.safetensors(file, doubts)
        assert doubts == []


def command(script: str, *arguments: str) -> Any:
    return subprocess.run(
        [sys.executable, str(HERE / script), *arguments], capture_output=True, text=True
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault",
    [
        *("processes", "logits", "ids", "strict", "raw", "crash", "memory"),
        *("equation", "words", "hang", "crash of a call"),
    ],
)
def test_the_machines_find_a_planted_fault(fault: str) -> None:
    ended = command("planted.py", fault)
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["directories", "calls"])
def test_nothing_breaks_attnlab(kind: str) -> None:
    ended = command("run.py", "--cases", "1500", "--seed", "1", "--only", kind)
    assert ended.returncode == 0, ended.stdout + ended.stderr
