"""tokenizer.py against GPT-2's known ids, and on any text."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import REFERENCE
from hypothesis import given
from hypothesis import strategies as st

from attnlab import AttnlabError, Tokenizer, figures
from attnlab.errors import MissingFileError
from attnlab.tokens import END_OF_TEXT, byte_symbols

TINY = Tokenizer.from_directory(REFERENCE / "odd")
WALKTHROUGH = figures.load("walkthrough")


def test_byte_symbols() -> None:
    symbols = byte_symbols()
    assert len(set(symbols)) == 256
    assert all(symbol.isprintable() and not symbol.isspace() for symbol in symbols)
    assert symbols[ord(" ")] == "Ġ"
    assert symbols[ord("\n")] == "Ċ"
    assert [symbols[byte] for byte in "’".encode()] == ["â", "Ģ", "Ļ"]


def test_curly_prompt(gpt2_tokenizer: Tokenizer) -> None:
    tokens = gpt2_tokenizer.tokens("It’s very hot in summer. Swimming is")
    assert tokens.ids.tolist() == WALKTHROUGH["token_ids"]
    assert list(tokens.symbols) == WALKTHROUGH["symbols"]
    assert tokens.texts[4] == " very"
    assert tokens.bytes[:4] == (b"It", b"\xe2\x80", b"\x99", b"s")
    assert tokens.part_of[:4] == ("", "’", "’", "")
    assert "part of ’" in repr(tokens)
    assert len(gpt2_tokenizer) == 50257


def test_straight_prompt(gpt2_tokenizer: Tokenizer) -> None:
    ids = gpt2_tokenizer.encode("It's very hot in summer. Swimming is")
    assert ids == [1026, 338, *WALKTHROUGH["token_ids"][4:]]


def test_token_counts_of_the_chanler_sentence(gpt2_tokenizer: Tokenizer) -> None:
    sentence = "Martin’s one of my sons, and the other is Chanler."
    assert len(gpt2_tokenizer.encode(sentence)) == 16
    assert len(gpt2_tokenizer.encode(sentence.replace("’", "'"))) == 14


def test_awkward_texts_against_transformers(gpt2_tokenizer: Tokenizer) -> None:
    recorded = json.loads((REFERENCE / "tokens.json").read_text(encoding="utf-8"))
    assert len(recorded) == 9
    for text, ids in recorded.items():
        assert gpt2_tokenizer.encode(text) == ids, text


def test_end_of_text_is_special_only_when_asked(gpt2_tokenizer: Tokenizer) -> None:
    assert gpt2_tokenizer.encode(END_OF_TEXT, special=True) == [50256]
    plain = gpt2_tokenizer.encode(f"a{END_OF_TEXT}")
    assert 50256 not in plain
    assert gpt2_tokenizer.decode(plain) == f"a{END_OF_TEXT}"
    assert gpt2_tokenizer.decode([50256]) == END_OF_TEXT


def test_merges_are_made_in_their_order() -> None:
    # "t h" comes before "h e", and "th e" makes "the" before "Ġ th" can
    symbols = TINY.tokens("the hen in a thin inn").symbols
    assert " ".join(symbols) == "the Ġ he n Ġ in Ġa Ġth in Ġ in n"


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "   \t\n\r\n  ", " " * 10_000, "a" * 10_000, "日本語" * 100),
        *("🎉👨\u200d👩\u200d👧", "猫 吃 鱼", "e\u0301 é ﬁ", "'s 'S ’s", "١٢٣ Ⅷ ½"),
        *("\x00\x1b[31m\u202e", "\ufeff"),
    ],
)
def test_round_trip(gpt2_tokenizer: Tokenizer, text: str) -> None:
    ids = gpt2_tokenizer.encode(text)
    assert gpt2_tokenizer.decode(ids) == text
    assert gpt2_tokenizer.decode_bytes(ids) == text.encode()


@given(st.text())
def test_any_text_round_trips(text: str) -> None:
    assert TINY.decode(TINY.encode(text)) == text
    tokens = TINY.tokens(text)
    assert b"".join(tokens.bytes) == text.encode()
    assert repr(tokens).count("\n") == len(tokens)


@given(st.binary())
def test_any_bytes_round_trip(data: bytes) -> None:
    ids = [list(TINY.tokens(range(256)).bytes).index(bytes([byte])) for byte in data]
    assert TINY.decode_bytes(ids) == data
    assert TINY.decode(ids) == data.decode("utf-8", errors="replace")
    assert all(line.isprintable() for line in repr(TINY.tokens(ids)).split("\n"))


def test_tokens_are_a_sequence() -> None:
    tokens = TINY.tokens("the hen")
    assert len(tokens) == 4
    assert (tokens[-1].id, tokens[-1].symbol, tokens[-1].text) == (tokens.ids[3], "n", "n")
    assert tokens[1:].symbols == ("Ġ", "he", "n")
    with pytest.raises(ValueError, match="read-only"):
        tokens.ids[0] = 1
    assert TINY.tokens(tokens) == tokens == TINY.tokens("the hen")
    assert tokens != TINY.tokens("the") != "the"


def test_hostile_characters_are_escaped_in_the_table() -> None:
    table = repr(TINY.tokens("\u202e\x1b[2J"))
    assert "\x1b" not in table
    assert "\u202e" not in table


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: TINY.encode(3), TypeError, "str.*int"),
        (lambda: TINY.encode("ab\ud800"), ValueError, "surrogate.*index 2"),
        (lambda: TINY.decode([263]), ValueError, "263 at position 0.*0 to 262"),
        (lambda: TINY.decode([5, -1]), ValueError, "-1 at position 1"),
        (lambda: TINY.decode([1.0]), TypeError, "float64"),
        (lambda: TINY.decode([True]), TypeError, "bool"),
        (lambda: TINY.decode([[1, 2]]), ValueError, r"\(1, 2\)"),
        (lambda: TINY.decode([[1], [1, 2]]), ValueError, "one row"),
        (lambda: TINY.decode(3), ValueError, "one row.*given 3"),
        (lambda: TINY.decode(b"ab"), ValueError, "given b'ab'"),
        (lambda: TINY.tokens("the hen")[4], IndexError, "no token 4; tokens are 0 to 3"),
        (lambda: TINY.decode([2**70]), (ValueError, TypeError), "integers|not in"),
    ],
)
def test_bad_input_is_told(call: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(AttnlabError, match=message) as caught:
        call()
    assert isinstance(caught.value, kind)


def damage(vocabulary: dict[str, int], merges: list[str], how: str) -> None:
    if how == "a byte is missing":
        vocabulary["xx"] = vocabulary.pop("Ġ")
    elif how == "ids leave a gap":
        vocabulary[END_OF_TEXT] = 300
    elif how == "an id is there twice":
        vocabulary["the"] = vocabulary["Ġth"]
    elif how == "a merge has no token":
        merges.append("x y")
    elif how == "merges in another order":
        merges[1], merges[2] = merges[2], merges[1]
    elif how == "merges cut off":
        del merges[4:]
    elif how == "a line of three":
        merges.append("a b c")
    elif how == "ids are strings":
        vocabulary["the"] = "260"


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("a byte is missing", "1 of the 256 bytes.*0x20"),
        ("ids leave a gap", "0 to 262"),
        ("an id is there twice", "0 to 262"),
        ("a merge has no token", "merge 7 needs 'x?y?"),
        ("merges in another order", "merge 3.*after id 258"),
        ("merges cut off", "2 tokens.*neither"),
        ("a line of three", "line 8"),
        ("ids are strings", "id of 'the' is no integer"),
    ],
)
def test_damaged_vocabulary(tmp_path: Path, how: str, message: str) -> None:
    vocabulary = json.loads((REFERENCE / "odd/vocab.json").read_text(encoding="utf-8"))
    merges = (REFERENCE / "odd/merges.txt").read_text(encoding="utf-8").split("\n")
    head, pairs = merges[:1], [line for line in merges[1:] if line]
    damage(vocabulary, pairs, how)
    (tmp_path / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    (tmp_path / "merges.txt").write_text("\n".join(head + pairs), encoding="utf-8")
    with pytest.raises(AttnlabError, match=message) as caught:
        Tokenizer.from_directory(tmp_path)
    assert isinstance(caught.value, ValueError)
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize("name", ["vocab.json", "merges.txt"])
def test_missing_and_unreadable_files(tmp_path: Path, name: str) -> None:
    for file in ("vocab.json", "merges.txt"):
        shutil.copy(REFERENCE / "odd" / file, tmp_path)
    (tmp_path / name).write_bytes(b"\xff\xfe{")
    with pytest.raises(AttnlabError, match=name):
        Tokenizer.from_directory(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(MissingFileError, match=name):
        Tokenizer.from_directory(tmp_path)


def test_windows_line_ends(tmp_path: Path) -> None:
    shutil.copy(REFERENCE / "odd/vocab.json", tmp_path)
    merges = (REFERENCE / "odd/merges.txt").read_bytes().replace(b"\n", b"\r\n")
    (tmp_path / "merges.txt").write_bytes(merges)
    assert Tokenizer.from_directory(tmp_path).encode("the hen") == TINY.encode("the hen")


def test_ids_of_any_integer_dtype() -> None:
    assert TINY.decode(np.array([84, 72], dtype=np.uint8)) == TINY.decode((84, 72))
