"""pocket/vocabulary.py: byte pairs by hand, in GPT-2's two files, and as other libraries do it."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnlab import Tokenizer, VocabularyError
from attnlab.pocket.grammar import LEXICON, corpus
from attnlab.pocket.vocabulary import learn_merges, write_vocabulary
from attnlab.tokenizer import byte_symbols

TEXT = corpus(0, 3000).text
MERGES = learn_merges(TEXT)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return write_vocabulary(MERGES, tmp_path_factory.mktemp("vocabulary"))


def test_merges_by_hand() -> None:
    # a b 5 times, b c 3, Ġ a 2; then ab c 3, Ġ ab 2; then Ġ abc and Ġ ab once each.
    merges = [("a", "b"), ("ab", "c"), ("Ġ", "abc"), ("Ġ", "ab")]
    assert learn_merges("abc abc\nabc ab\nab") == merges


def test_equally_frequent_pairs_have_an_order() -> None:
    assert learn_merges("ab\ncd") == learn_merges("cd\nab") == [("c", "d"), ("a", "b")]


def test_a_pair_is_merged_wherever_it_stands() -> None:
    assert learn_merges("ababab") == [("a", "b"), ("ab", "ab"), ("abab", "ab")]


def test_merges_stay_inside_pieces() -> None:
    assert learn_merges("a b") == [("Ġ", "b")]
    assert learn_merges("") == []


def test_every_word_is_one_token(tokenizer: Tokenizer) -> None:
    assert all(len(tokenizer.encode(f" {word}")) == 1 for word in LEXICON)
    ids = tokenizer.encode(TEXT)
    assert tokenizer.decode(ids) == TEXT
    assert max(ids) < len(tokenizer) == 256 + len(MERGES) <= 1024


def test_the_walkthrough_prompt(tokenizer: Tokenizer) -> None:
    words = (" very", " hot", " in", " summer", ".", " Swimming", " is")
    curly = tokenizer.tokens("It’s very hot in summer. Swimming is")
    straight = tokenizer.tokens("It's very hot in summer. Swimming is")
    assert curly.texts == ("It", "’", "s", *words)
    assert straight.texts == ("It", "'s", *words)


@given(st.text())
def test_any_text_encodes(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_files(tokenizer: Tokenizer, tmp_path: Path) -> None:
    written = write_vocabulary(MERGES, tmp_path)
    assert (tmp_path / "merges.txt").read_text(encoding="utf-8").startswith("#version: 0.2\n")
    assert [token.symbol for token in written.tokens(range(256))] == sorted(byte_symbols())
    assert [token.symbol for token in written.tokens(range(256, 260))] == [
        first + second for first, second in MERGES[:4]
    ]


def test_merges_that_make_a_token_twice(tmp_path: Path) -> None:
    with pytest.raises(VocabularyError, match="ids"):
        write_vocabulary([("a", "b"), ("a", "b")], tmp_path)


def test_same_ids_as_the_tokenizers_library(tokenizer: Tokenizer, tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    write_vocabulary(MERGES, tmp_path)
    theirs = tokenizers.ByteLevelBPETokenizer(
        str(tmp_path / "vocab.json"), str(tmp_path / "merges.txt")
    )
    for text in (TEXT[:50_000], "héllo 猫 — “quotes” it's\n\n  x\tÿ", "Sat in the mattress’s"):
        assert tokenizer.encode(text) == theirs.encode(text).ids
