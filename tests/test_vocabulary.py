"""pocket/vocabulary.py: byte pairs by hand, the two files, and words as single tokens."""

import os
from pathlib import Path

import pytest

from attnlab import Tokenizer
from attnlab.pocket.grammar import LEXICON, corpus
from attnlab.pocket.vocabulary import MAX_TOKENS, learn_vocabulary
from attnlab.text.tokens import byte_symbols

if os.environ.get("ATTNLAB_STRICT") == "1":
    import tokenizers
else:
    tokenizers = pytest.importorskip("tokenizers", reason="only learning a vocabulary needs it")

TEXT = corpus(0, 3000).text


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vocabulary")
    learn_vocabulary(TEXT, folder)
    return folder


@pytest.fixture(scope="module")
def tokenizer(directory: Path) -> Tokenizer:
    return Tokenizer.from_directory(directory)


def test_merges_by_hand(tmp_path: Path) -> None:
    # a b 5 times, b c 3, Ġ a 2; then ab c 3, Ġ ab 2; then Ġ abc and Ġ ab once each.
    learned = learn_vocabulary("abc abc\nabc ab\nab", tmp_path)
    lines = (tmp_path / "merges.txt").read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("#version: 0.2")
    assert lines[1:3] == ["a b", "ab c"]
    assert set(lines[3:]) == {"Ġ abc", "Ġ ab"}
    assert [token.symbol for token in learned.tokens(range(256))] == sorted(byte_symbols())
    assert [token.symbol for token in learned.tokens([256, 257])] == ["ab", "abc"]


def test_vocabulary_training_is_deterministic(directory: Path, tmp_path: Path) -> None:
    learn_vocabulary(TEXT, tmp_path)
    for name in ("vocab.json", "merges.txt"):
        assert (tmp_path / name).read_bytes() == (directory / name).read_bytes()


def test_every_word_is_one_token(tokenizer: Tokenizer) -> None:
    assert all(len(tokenizer.encode(f" {word}")) == 1 for word in LEXICON)
    ids = tokenizer.encode(TEXT)
    assert tokenizer.decode(ids) == TEXT
    assert max(ids) < len(tokenizer) < MAX_TOKENS
    words = (" very", " hot", " in", " summer", ".", " Swimming", " is")
    curly = tokenizer.tokens("It’s very hot in summer. Swimming is")
    straight = tokenizer.tokens("It's very hot in summer. Swimming is")
    assert curly.texts == ("It", "’", "s", *words)
    assert straight.texts == ("It", "'s", *words)


def test_same_ids_as_the_tokenizers_library(tokenizer: Tokenizer, directory: Path) -> None:
    files = (str(directory / "vocab.json"), str(directory / "merges.txt"))
    theirs = tokenizers.Tokenizer(tokenizers.models.BPE.from_file(*files))
    theirs.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    for text in (TEXT[:50_000], "héllo 猫 — “quotes” it's\n\n  x\tÿ", "Sat in the mattress’s"):
        assert tokenizer.encode(text) == theirs.encode(text).ids
