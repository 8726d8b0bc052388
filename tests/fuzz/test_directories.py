"""Damaged model directories: each is refused with a message, or gives the oracle's numbers.

A case starts from one of the tiny reference models and makes one to three changes.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import guarded
import numpy as np
import oracle
import pytest
from damage import BASES, CHANGES, CONFIG, REFERENCE, Draw, Folder, is_drawn, pick
from guarded import directory, examples, linux, outcome
from hypothesis import given, note
from hypothesis import strategies as st

import attnlab

TEXTS = ["the thin the", "in a heath, than  then \n\tin", "é’猫🙈 don't 12½ ___\x00\x7f", "", " "]

# Tests of the oracle itself


@pytest.mark.parametrize("model", BASES)
def test_the_oracles_logits_are_those_of_transformers(model: str) -> None:
    expected = np.load(REFERENCE / model / "expected.npz")
    read = oracle.read(REFERENCE / model, "float64", 17)
    assert read.doubts == []
    logits = oracle.gpt2_logits(read.parameters, read.sizes, expected["ids"].tolist(), "float64")
    assert np.abs(logits - expected["logits"]).max() < 1e-10


def test_the_oracles_tokens_are_those_of_transformers(vocabulary: Path) -> None:
    doubts: list[str] = []
    words = oracle.vocabulary(vocabulary, 50257, doubts)
    assert words is not None
    assert doubts == []
    for text, ids in json.loads((REFERENCE / "tokens.json").read_text()).items():
        assert words.encoded(text) == [ids] * len(words.merges)


# Cases


def damaged_folder(draw: Draw) -> Folder:
    base = pick(draw, *BASES)
    folder = Folder(dict(BASES[base]))
    for _ in range(pick(draw, 1, 1, 1, 1, 2, 2, 3)):
        change = pick(draw, *CHANGES)
        note(f"{base}: {change.__name__}")
        change(folder, draw)
    return folder


def files_of(path: Path) -> list[Path]:
    return [file for file in path.iterdir() if os.path.isfile(file)]


def texts_of(path: Path) -> list[str]:
    """The contents of a directory's files that a message might quote."""
    files = [file for file in files_of(path) if file.stat().st_size < 10**6]
    texts = [file.read_bytes().decode("utf-8", errors="replace") for file in files]
    return [*texts, *map(ascii, texts)]


def size_of(path: Path) -> int:
    return sum(file.stat().st_size for file in files_of(path))


@linux
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("count", [40, pytest.param(1500, marks=pytest.mark.slow)])
def test_damaged_directories_are_refused_or_give_the_oracles_numbers(count: int) -> None:
    @examples(count)
    @given(data=st.data())
    def test(data: st.DataObject) -> None:
        folder = damaged_folder(data.draw)
        with directory() as parent:
            path = folder.write(parent)
            text = data.draw(st.text("tehina ", max_size=200))
            dtype = pick(data.draw, "float32", "float64")
            compare_with_oracle(path, dtype, text, is_drawn(data.draw, 10), is_drawn(data.draw, 30))

    test()


def compare_with_oracle(
    path: Path, dtype: str, drawn_text: str, saves: bool, generates: bool
) -> None:
    """Open a model and compute ids and logits; if asked, save it or generate a continuation."""
    saved = path.parent / "saved" if saves else None
    positions, vocab = 4, 256
    expected: oracle.Model | None = None
    try:
        sizes = oracle.sizes(path / CONFIG, [])
        positions, vocab = min(positions, sizes.n_positions), sizes.vocab_size
        expected = oracle.read(path, dtype, positions)
    except oracle.UnsoundError as reason:
        note(f"unsound: {str(reason)!a}")
    ids = [n % vocab for n in (71, 259, 3, 71)[:positions]]
    max_new_tokens = 2 if positions == 4 and generates else 0

    def attack() -> Any:
        model = attnlab.GPT2.from_pretrained(path, dtype=dtype)
        repr(model)
        encoded = {text: list(model.tokenizer.encode(text)) for text in [*TEXTS, drawn_text]}
        decoded = {text: model.tokenizer.decode_bytes(ids) for text, ids in encoded.items()}
        trace = model.trace(ids)
        logits = np.array(trace.logits), np.array(trace.next_logits)
        if saved is not None:
            model.save(saved)
        generated = model.generate(ids[:2], max_new_tokens, temperature=0).new.ids
        return encoded, decoded, logits, np.array(generated).tolist()

    result = outcome(attack, lambda: texts_of(path), size_of(path))
    expected_logits = expected.logits(ids, dtype) if expected else None
    if isinstance(result, Exception):
        strict = expected is not None and not expected.doubts and expected_logits is not None
        assert not strict, f"refused, and is sound: {result}"
        return
    assert expected is not None, "opened, and is unsound"
    encoded, decoded, (logits, next_logits), generated = result
    if expected.vocabulary is not None:
        for text, tokens in encoded.items():
            assert tokens in expected.vocabulary.encoded(text), text
            assert decoded[text] == text.encode()
    if expected_logits is None:  # numbers too large to compare
        return
    assert expected_logits.contains(logits)
    assert oracle.Range(expected_logits.numbers[-1], expected_logits.tolerance).contains(
        next_logits
    )
    if expected.vocabulary and not expected.doubts:  # a token for each row
        check_greedy(expected, ids[:2], generated, dtype)
    if saved is not None:
        reread = oracle.read(saved, dtype, len(ids)).logits(ids, dtype)
        assert reread is not None
        assert expected_logits.contains(reread.numbers), "the saved model differs"


def check_greedy(expected: oracle.Model, ids: list[int], generated: list[int], dtype: str) -> None:
    """Check that each generated id is the most probable one."""
    for id in generated:
        logits = expected.logits(ids, dtype)
        if logits is None:
            return
        *_, second, best = np.sort(logits.numbers[-1])
        if best - second <= 2 * logits.tolerance:  # either may be the largest
            return
        assert id == logits.numbers[-1].argmax()
        ids = [*ids, id]


# Injected faults must be detected


def reversed_ids(model: Any, ids: Any, **kwargs: Any) -> Any:
    return TRACE(model, list(ids)[::-1], **kwargs)


def without_last_token(tokenizer: Any, text: str, **kwargs: Any) -> Any:
    return ENCODE(tokenizer, text, **kwargs)[:-1]


def refusing(*_: object, **__: object) -> Any:
    raise attnlab.AttnlabError("no")


def failing(*_: object, **__: object) -> Any:
    raise TypeError("injected")


def hanging(*_: object, **__: object) -> Any:
    while True:  # in code that catches every Exception
        with contextlib.suppress(Exception):
            time.sleep(60)


def allocating(*args: Any, **kwargs: Any) -> Any:
    assert b"\1" * (400 << 20)
    return TRACE(*args, **kwargs)


TRACE, ENCODE = attnlab.GPT2.trace, attnlab.Tokenizer.encode


@linux
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("owner", "name", "fault", "message"),
    [
        (attnlab.GPT2, "trace", reversed_ids, "expected_logits.contains(logits)"),
        (attnlab.Tokenizer, "encode", without_last_token, "tokens in"),
        (attnlab.GPT2, "from_pretrained", refusing, "refused, and is sound"),
        (attnlab.GPT2, "from_pretrained", failing, "injected"),
        (attnlab.GPT2, "trace", hanging, "hangs"),
        (attnlab.GPT2, "trace", allocating, "takes more than"),
    ],
)
def test_injected_faults_are_detected(
    monkeypatch: pytest.MonkeyPatch, owner: type, name: str, fault: Any, message: str
) -> None:
    monkeypatch.setattr(owner, name, fault)
    monkeypatch.setattr(guarded, "SECONDS", 0.3 if fault is hanging else guarded.SECONDS)
    with directory() as parent:
        shutil.copytree(REFERENCE / "odd", parent / "odd")
        with pytest.raises((AssertionError, TypeError)) as error:
            compare_with_oracle(parent / "odd", "float64", "the thin", False, False)
    assert message in f"{error.value} {error.traceback[-1].statement}"
