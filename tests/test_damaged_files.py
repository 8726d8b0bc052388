"""Models and tokenizers in damaged files are refused by a short message, or compute.

`FUZZ_EXAMPLES=20000 pytest -m slow tests/test_damaged_files.py` tries new cases each time.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import REFERENCE, posix
from files import contents
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

import attnlab

pytestmark = [posix, pytest.mark.filterwarnings("ignore")]  # pipes, and links

TEXTS = ["the thin the", "in a heath, than  then \n\tin", "é’猫🙈 don't 12½ ___\x00\x7f", "", " "]

# A directory's files by name: their bytes, or a function that makes something else.
Files = dict[str, Any]
Draw = Callable[[st.SearchStrategy[Any]], Any]


MODELS = {path.parent.name: contents(path.parent.name) for path in REFERENCE.glob("*/config.json")}
TOKENIZERS = {
    path.name: contents(f"tokenizers/{path.name}") for path in REFERENCE.glob("tokenizers/*/")
}

NAMES = st.text(st.characters(), max_size=5) | st.sampled_from(
    [
        *("", "..", "/", "../a", "/etc", "C:\\a", "a\0b", "x" * 5000, "\x1b]52;c;Zm9v\x07"),
        *("\u202eabc", "h.٣.attn.bias", "h.99.attn.masked_bias", "nan", "Ġ", "th"),
        *("__metadata__", "transformer.", "wte.weight", "lm_head.weight", "<|endoftext|>"),
        *("n_embd", "n_layer", "n_head", "vocab_size", "tie_word_embeddings", "BF16", "F33"),
    ]
)
INTEGERS = st.integers(-2, 300) | st.integers() | st.sampled_from([2**31, 2**63, 2**64])
JSON = st.recursive(
    st.none() | st.booleans() | INTEGERS | st.floats() | NAMES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=4,
)


def pick(draw: Draw, *options: Any) -> Any:
    return draw(st.sampled_from(options))


def change_json(value: Any, draw: Draw) -> Any:
    """JSON with one change somewhere."""
    if not isinstance(value, dict | list) or not value or draw(st.integers(1, 10)) == 1:
        near = [value - 1, value + 1, 2 * value, float(value)] if type(value) is int else [value]
        return draw(st.sampled_from(near) | JSON)
    items: Any = value.copy()
    keys = list(items) if isinstance(items, dict) else range(len(items))
    key, other = draw(st.sampled_from(keys)), draw(st.sampled_from(keys))
    kind = pick(draw, *["inside"] * 4, "remove", "add", "exchange")
    if kind == "inside":
        items[key] = change_json(items[key], draw)
    elif kind == "exchange":
        items[key], items[other] = items[other], items[key]
    elif kind == "remove":
        del items[key]
    elif isinstance(items, dict):
        items[draw(NAMES)] = draw(JSON)
    else:
        items.insert(key, draw(JSON))
    return items


def damaged_bytes(content: bytes, draw: Draw) -> Any:
    """Bytes with some of them changed; the first ones, in headers, more often."""
    start = min(draw(st.integers(0, 64) | st.integers(0, len(content))), len(content))
    end = start + pick(draw, 1, 7, 100)
    noise = draw(st.binary(max_size=100)) or b"\xff" * (end - start)
    instead = pick(draw, noise, noise + content[start:end], b"", 2 * content[start:end])
    return pick(draw, content[:start] + instead + content[end:], content[:start], content + noise)


def damaged_json(content: bytes, draw: Draw) -> Any:
    """Another value somewhere in JSON, or in the header of a safetensors file."""
    has_header = not content.startswith(b"{")
    end = 8 + int.from_bytes(content[:8], "little") if has_header else len(content)
    try:
        value = json.loads(content[8 * has_header : end])
    except (ValueError, RecursionError):
        return content
    text = json.dumps(change_json(value, draw)).encode()
    length = pick(draw, *[len(text)] * 8, len(text) + 1, 0, 10**8, 2**63)
    return length.to_bytes(8, "little") + text + content[end:] if has_header else text


def replaced(content: bytes, draw: Draw) -> Any:
    """Something other than a regular file, a failed download, or JSON that no reader likes."""

    def sparse(path: Path) -> None:
        path.write_bytes(content[:8])
        os.truncate(path, 10**9)

    links = [lambda path: path.symlink_to(pick(draw, "nowhere", "..", path.name, "x" * 300))]
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"
    texts = [pointer, b"<html>", b'{"a":' * 100_000, content.replace(b"e", b"\xed\xa0\x80", 1)]
    return pick(draw, os.mkfifo, Path.mkdir, *links, sparse, *texts, b"\0" * len(content))


DAMAGE = [damaged_bytes, damaged_json, damaged_json, damaged_json, replaced]


def fuzz(few: int, many: int) -> Callable[..., Any]:
    """Run a test with a few examples, the same each time, and with many as a slow test."""
    override = int(os.environ.get("FUZZ_EXAMPLES", 0))

    def decorate(test: Callable[..., None]) -> Callable[[int], None]:
        @pytest.mark.parametrize("count", [few, pytest.param(many, marks=pytest.mark.slow)])
        def run(count: int) -> None:
            settings(
                max_examples=override or count,
                derandomize=not override,
                database=None,
                suppress_health_check=list(HealthCheck),
            )(given(data=st.data())(test))()

        return run

    return decorate


def check(data: st.DataObject, bases: dict[str, Files], use: Callable[[Path], None]) -> None:
    """Use a directory after one to three changes; only short, printable refusals may happen."""
    base = pick(data.draw, *sorted(bases))
    files = dict(bases[base])
    for _ in range(pick(data.draw, 1, 1, 1, 2, 3)):
        name, damage = pick(data.draw, *sorted(files)), pick(data.draw, *DAMAGE)
        note(f"{base}: {damage.__name__} of {name}")
        if not callable(files[name]):
            files[name] = damage(files[name], data.draw)
    with tempfile.TemporaryDirectory() as root:
        for name, content in files.items():
            if callable(content):
                content(Path(root, name))
            else:
                Path(root, name).write_bytes(content)
        try:
            use(Path(root))
        except attnlab.AttnlabError as error:
            message = str(error)
            message.encode()
            assert message.replace("\n", "").isprintable()
            assert len(message) <= 2000


def encode(tokenizer: attnlab.Tokenizer) -> None:
    for text in TEXTS:
        tokenizer.decode_bytes(tokenizer.encode(text))


def compute(path: Path) -> None:
    model = attnlab.GPT2.from_pretrained(path)
    config, ids = model.config, [71 % model.config.vocab_size, 3 % model.config.vocab_size]
    given = json.loads((path / "config.json").read_bytes().decode("utf-8-sig"))
    assert (config.n_layer, config.n_head) == (given["n_layer"], given["n_head"])
    logits = model.trace(ids[: config.n_positions]).logits
    assert logits.shape[-1] == config.vocab_size
    assert np.isfinite(logits).all()
    encode(model.tokenizer)
    model.save(path / "saved")
    again = attnlab.GPT2.from_pretrained(path / "saved").trace(ids[: config.n_positions])
    assert np.array_equal(again.logits, logits)


@fuzz(40, 1000)
def test_damaged_models_are_refused_or_compute(data: st.DataObject) -> None:
    check(data, MODELS, compute)


@fuzz(20, 200)
def test_damaged_tokenizers_are_refused_or_encode(data: st.DataObject) -> None:
    check(data, TOKENIZERS, lambda path: encode(attnlab.Tokenizer.from_directory(path)))
