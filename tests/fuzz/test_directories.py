"""Damaged model directories: each is refused with a message, or gives the oracle's numbers.

A case starts from one of the tiny reference models and makes one to three changes.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import time
from pathlib import Path
from typing import Any

import guarded
import numpy as np
import oracle
import pytest
from damage import BASES, CHANGES, CONFIG, REFERENCE, Folder
from guarded import directory, examples, linux, outcome
from hypothesis import given, note
from hypothesis import strategies as st

import attnlab

TEXTS = ["the thin the", "in a heath, than  then \n\tin", "é’猫🙈 don't 12½ ___\x00\x7f", "", " "]

# Tests of the oracle itself


@pytest.mark.parametrize("model", BASES)
def test_the_oracle_computes_what_transformers_does(model: str) -> None:
    expected = np.load(REFERENCE / model / "expected.npz")
    read = oracle.read(REFERENCE / model, "float64", 17)
    assert read.doubts == []
    logits = oracle.gpt2_logits(read.parameters, read.sizes, expected["ids"].tolist(), "float64")
    assert np.abs(logits - expected["logits"]).max() < 1e-10


def test_the_oracle_cuts_texts_as_transformers_does(vocabulary: Path) -> None:
    doubts: list[str] = []
    words = oracle.vocabulary(vocabulary, 50257, doubts)
    assert words is not None
    assert doubts == []
    for text, ids in json.loads((REFERENCE / "tokens.json").read_text()).items():
        assert words.encoded(text) == [ids] * len(words.merges)


# Cases


def damaged_folder(rng: random.Random) -> Folder:
    base = rng.choice([*BASES])
    folder = Folder(dict(BASES[base]))
    for _ in range(rng.choice([1, 1, 1, 1, 2, 2, 3])):
        change = rng.choice(CHANGES)
        note(f"{base}: {change.__name__}")
        change(folder, rng)
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
def test_a_damaged_directory_is_refused_or_right(count: int) -> None:
    @examples(count)
    @given(rng=st.randoms(use_true_random=False))
    def attacked(rng: random.Random) -> None:
        folder = damaged_folder(rng)
        with directory() as directory_path:
            opened(folder.write(directory_path), rng)

    attacked()


def opened(path: Path, rng: random.Random) -> None:
    """Open a model and compute ids, logits and a continuation; sometimes save it."""
    dtype = rng.choice(["float32", "float64"])
    random_text = "".join(rng.choice("tehinaa  ") for _ in range(rng.choice([0, 20, 200])))
    saved = path.parent / "saved" if rng.random() < 0.1 else None
    positions, vocab = 4, 256
    expected: oracle.Model | None = None
    try:
        sizes = oracle.sizes(path / CONFIG, [])
        positions, vocab = min(positions, sizes.n_positions), sizes.vocab_size
        expected = oracle.read(path, dtype, positions)
    except oracle.UnsoundError as reason:
        note(f"unsound: {str(reason)!a}")
    ids = [n % vocab for n in (71, 259, 3, 71)[:positions]]
    more = 2 if positions == 4 and rng.random() < 0.3 else 0

    def attack() -> Any:
        model = attnlab.GPT2.from_pretrained(path, dtype=dtype)
        repr(model)
        encoded = {text: list(model.tokenizer.encode(text)) for text in [*TEXTS, random_text]}
        decoded = {text: model.tokenizer.decode_bytes(ids) for text, ids in encoded.items()}
        trace = model.trace(ids)
        logits = np.array(trace.logits), np.array(trace.next_logits)
        if saved is not None:
            model.save(saved)
        written = model.generate(ids[:2], more, temperature=0).new.ids
        return encoded, decoded, logits, np.array(written).tolist()

    result = outcome(attack, lambda: texts_of(path), size_of(path))
    expected_logits = expected.logits(ids, dtype) if expected else None
    if isinstance(result, Exception):
        strict = expected is not None and not expected.doubts and expected_logits is not None
        assert not strict, f"refused, and is sound: {result}"
        return
    assert expected is not None, "opened, and is unsound"
    encoded, decoded, (logits, next_logits), written = result
    if expected.vocabulary is not None:
        for text, tokens in encoded.items():
            assert tokens in expected.vocabulary.encoded(text), text
            assert decoded[text] == text.encode()
    if expected_logits is None:  # numbers too large to compare
        return
    assert expected_logits.holds(logits)
    assert oracle.Range(expected_logits.numbers[-1], expected_logits.tolerance).holds(next_logits)
    if expected.vocabulary and not expected.doubts:  # a token for each row
        continued(expected, ids[:2], written, dtype)
    if saved is not None:
        reread = oracle.read(saved, dtype, len(ids)).logits(ids, dtype)
        assert reread is not None
        assert expected_logits.holds(reread.numbers), "what is saved is another model"


def continued(expected: oracle.Model, ids: list[int], written: list[int], dtype: str) -> None:
    """Each id that was generated is the most probable one."""
    for id in written:
        logits = expected.logits(ids, dtype)
        if logits is None:
            return
        *_, second, best = np.sort(logits.numbers[-1])
        if best - second <= 2 * logits.tolerance:  # either may be the largest
            return
        assert id == logits.numbers[-1].argmax()
        ids = [*ids, id]


# Planted faults must be found


def reversed_ids(model: Any, ids: Any, **named: Any) -> Any:
    return TRACE(model, list(ids)[::-1], **named)


def all_but_the_last(tokenizer: Any, text: str, **named: Any) -> Any:
    return ENCODE(tokenizer, text, **named)[:-1]


def refusing(*_: object, **__: object) -> Any:
    raise attnlab.AttnlabError("no")


def failing(*_: object, **__: object) -> Any:
    raise TypeError("planted")


def hanging(*_: object, **__: object) -> Any:
    while True:  # in code that catches every Exception
        with contextlib.suppress(Exception):
            time.sleep(60)


def eating(*given: Any, **named: Any) -> Any:
    assert b"\1" * (400 << 20)
    return TRACE(*given, **named)


TRACE, ENCODE = attnlab.GPT2.trace, attnlab.Tokenizer.encode


@linux
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("owner", "name", "fault", "sign"),
    [
        (attnlab.GPT2, "trace", reversed_ids, "expected_logits.holds(logits)"),
        (attnlab.Tokenizer, "encode", all_but_the_last, "tokens in"),
        (attnlab.GPT2, "from_pretrained", refusing, "refused, and is sound"),
        (attnlab.GPT2, "from_pretrained", failing, "planted"),
        (attnlab.GPT2, "trace", hanging, "hangs"),
        (attnlab.GPT2, "trace", eating, "takes more than"),
    ],
)
def test_a_planted_fault_is_found(
    monkeypatch: pytest.MonkeyPatch, owner: type, name: str, fault: Any, sign: str
) -> None:
    monkeypatch.setattr(owner, name, fault)
    monkeypatch.setattr(guarded, "SECONDS", 0.3 if fault is hanging else guarded.SECONDS)
    with directory() as directory_path:
        shutil.copytree(REFERENCE / "odd", directory_path / "odd")
        with pytest.raises((AssertionError, TypeError)) as error:
            opened(directory_path / "odd", random.Random(0))
    assert sign in str(error.value) or sign in str(error.traceback[-1].statement)
