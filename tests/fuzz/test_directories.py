"""Damaged directories are refused or hold what they say; other words for a model give its numbers.

The recorded numbers are transformers'. If a damaged model opens, its sizes are those in config.json
and its parameters are what the safetensors library reads.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import posix
from damage import (
    DAMAGE,
    DIRECTORIES,
    INDEX,
    MODELS,
    NEUTRAL,
    REFERENCE,
    SIZES,
    TOKENIZERS,
    WEIGHTS,
    Files,
    is_drawn,
    pick,
    tensors_of,
    write,
)
from guarded import directory, fuzz, outcome
from hypothesis import note
from hypothesis import strategies as st

import attnlab
from attnlab.checkpoints.checkpoint import tensor_name
from attnlab.forward.parameters import stored_paths

pytestmark = [posix, pytest.mark.filterwarnings("ignore")]  # pipes, and links

TEXTS = ["the thin the", "in a heath, than  then \n\tin", "é’猫🙈 don't 12½ ___\x00\x7f", "", " "]
IDS = [71, 259, 3, 71]


def changed(data: st.DataObject, bases: dict[str, Files], changes: list[Any]) -> tuple[str, Files]:
    """The name of a base, and its files after one to three changes."""
    base = data.draw(st.sampled_from([*bases]))
    files = dict(bases[base])
    for _ in range(pick(data.draw, 1, 1, 1, 2, 3)):
        change = pick(data.draw, *changes)
        note(f"{base}: {change.__name__}")
        change(files, data.draw)
    return base, files


def texts_of(files: Files) -> list[str]:
    """The contents of files that a message might quote."""
    contents = [content for content in files.values() if not callable(content)]
    texts = [content.decode("utf-8", errors="replace") for content in contents]
    return [*texts, *map(ascii, texts)]


def tokens_of(tokenizer: attnlab.Tokenizer, texts: list[str]) -> dict[str, list[int]]:
    """The ids of texts; decoding gives the texts again."""
    ids = {text: list(tokenizer.encode(text)) for text in texts}
    assert all(tokenizer.decode_bytes(ids[text]) == text.encode() for text in texts)
    return ids


def opened(path: Path, files: Files, dtype: str, texts: list[str], saves: bool) -> Any:
    """Open a model and use it; the error if it is refused."""

    def attack() -> Any:
        model = attnlab.GPT2.from_pretrained(path, dtype=dtype)
        repr(model)
        ids = [id % model.config.vocab_size for id in IDS[: model.config.n_positions]]
        tokens, logits = tokens_of(model.tokenizer, texts), model.trace(ids).logits
        model.generate(ids[:2], min(2, model.config.n_positions - 2), temperature=0)
        if saves:
            model.save("saved")
            again = attnlab.GPT2.from_pretrained("saved", dtype=dtype)
            assert np.array_equal(again.trace(ids).logits, logits), "the saved model differs"
        return model, tokens, {n: model.parameters.stored(n) for n in stored_paths(model.config)}

    return outcome(attack, lambda: texts_of(files))


@fuzz(40, 1000, data=st.data())
def test_damaged_models_are_refused_or_hold_what_they_say(data: st.DataObject) -> None:
    _, files = changed(data, MODELS, DAMAGE)
    text, dtype = data.draw(st.text("tehina ", max_size=200)), pick(data.draw, "float32", "float64")
    with directory() as parent:
        path = parent / pick(data.draw, *DIRECTORIES)
        write(files, path)
        result = opened(path, files, dtype, [*TEXTS, text], is_drawn(data.draw, 10))
        if isinstance(result, Exception):
            return
        model, _, parameters = result
        settings = json.loads((path / "config.json").read_bytes().decode("utf-8-sig"))
        assert {name: getattr(model.config, name) for name in SIZES}.items() <= settings.items()
        names = {WEIGHTS}
        if not (path / WEIGHTS).is_file():
            names = {*json.loads((path / INDEX).read_bytes())["weight_map"].values()}
        stored: dict[str, Any] = {}
        for name in names:
            stored |= tensors_of((path / name).read_bytes())
    for name, parameter in parameters.items():
        held = [x for key, x in stored.items() if f".{key}".endswith(f".{tensor_name(name)}")]
        if name == "W_E" and not held:  # a shared tensor may have either name
            held = [x for key, x in stored.items() if key.endswith("lm_head.weight")]
        (tensor,) = held
        with np.errstate(over="ignore"):
            tensor = tensor.astype(dtype)
        assert np.array_equal(parameter, tensor.T if name == "W_U" else tensor), name


@fuzz(20, 200, data=st.data())
def test_the_same_model_in_other_words_has_the_recorded_numbers(data: st.DataObject) -> None:
    base, files = changed(data, MODELS, NEUTRAL)
    with directory() as parent:
        write(files, parent / "model")
        check_recorded(base, parent / "model")


def check_recorded(base: str, path: Path) -> None:
    """Check a model's logits against transformers', and its tokens against the base's."""
    expected = np.load(REFERENCE / base / "expected.npz")
    result = opened(path, {}, "float64", TEXTS, True)
    assert not isinstance(result, Exception), f"refused: {result}"
    model, tokens, _ = result
    traced = outcome(lambda: model.trace(expected["ids"]).logits, list)
    assert np.abs(traced - expected["logits"]).max() < 1e-9, "other logits"
    plain = attnlab.Tokenizer.from_directory(REFERENCE / "odd")
    assert tokens == {text: plain.encode(text) for text in TEXTS}


@fuzz(20, 200, data=st.data())
def test_damaged_tokenizers_are_refused_or_encode(data: st.DataObject) -> None:
    _, files = changed(data, TOKENIZERS, DAMAGE)
    with directory() as parent:
        write(files, parent / "model")

        def attack() -> list[bytes]:
            tokenizer = attnlab.Tokenizer.from_directory(parent / "model")
            return [tokenizer.decode_bytes(tokenizer.encode(text)) for text in TEXTS]

        outcome(attack, lambda: texts_of(files))


# ---- injected faults must be detected ------------------------------------------------------------

TRACE, ENCODE = attnlab.GPT2.trace, attnlab.Tokenizer.encode


@pytest.mark.parametrize(
    ("message", "owner", "name", "fault"),
    [
        ("other logits", attnlab.GPT2, "trace", lambda self, ids: TRACE(self, list(ids)[::-1])),
        ("decode_bytes", attnlab.Tokenizer, "encode", lambda *args, **_: ENCODE(*args)[:-1]),
    ],
)
def test_injected_faults_are_detected(
    monkeypatch: pytest.MonkeyPatch, message: str, owner: type, name: str, fault: Any
) -> None:
    monkeypatch.setattr(owner, name, fault)
    with directory() as parent:
        write(MODELS["odd"], parent / "odd")
        with pytest.raises(AssertionError) as error:
            check_recorded("odd", parent / "odd")
    assert message in f"{error.value} {error.traceback[-1].statement}"
