"""tokenizer.py, compared with GPT-2's known ids, and on any text."""

import copy
import json
import pickle
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from conftest import REFERENCE
from hypothesis import given, settings
from hypothesis import strategies as st
from stand_ins import Contrary

from attnlab import GPT2, AttnlabError, Token, Tokenizer, Tokens, figures
from attnlab.errors import InvalidValueError
from attnlab.text.tokens import END_OF_TEXT, byte_symbols, check_ids

TINY = Tokenizer.from_directory(REFERENCE / "odd")
TINY_BYTES = TINY.tokens(range(256)).bytes
WALKTHROUGH = figures.load("walkthrough")


def test_byte_symbols() -> None:
    symbols = byte_symbols()
    assert len({symbol for symbol in symbols if symbol.isprintable() and symbol != " "}) == 256
    assert (symbols[ord(" ")], symbols[ord("\n")]) == ("Ġ", "Ċ")
    assert [symbols[byte] for byte in "’".encode()] == ["â", "Ģ", "Ļ"]


def tokens_of(*pieces: str | bytes) -> Tokens:
    """Tokens with these texts, symbols as GPT-2 writes them."""
    raw = [piece if isinstance(piece, bytes) else piece.encode() for piece in pieces]
    return Tokens(
        Token(i, "".join(byte_symbols()[b] for b in data), data.decode(errors="replace"), data)
        for i, data in enumerate(raw)
    )


def test_lookup_by_text() -> None:
    with pytest.raises(InvalidValueError, match=r"1000 tokens: 0 \(a\), .*, …, 999 \(a\)\. "):
        tokens_of(*["a"] * 1000).find("a")
    tokens = tokens_of("The", " dog", " bark", "ed", b" \xe2\x80", b"\x99", " ", "\n", " The", "猫")
    for text, index in (
        (" dog", 1), ("dog", 1), ("Ġdog", 1), ("ed", 3), ("Ļ", 5), (" ", 6), ("Ġ", 6), ("\n", 7),
        ("Ċ", 7), (" The", 8), ("猫", 9)
    ):  # fmt: skip
        assert tokens.find(text) == index, text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("The", "'The' matches 2 tokens: 0 (The), 4 (ĠThe). Give one by its index"),
        ("barked", "'barked' isn't one token; it is in 2 (Ġbark), 3 (ed). Give one of them"),
        ("do", "'do' isn't one token; it is in 1 (Ġdog). "),
        ("e", "'e' isn't one token; it is in 0 (The), 3 (ed), 4 (ĠThe). "),
        ("’", "'’' isn't one token; it is in 5 (Ġ’ 1/2), 6 (’ 2/2). "),
        ("cat", "'cat' isn't one of the tokens: 0 (The), 1 (Ġdog), 2 (Ġbark), 3 (ed), 4 (ĠThe), "),
        ("", "'' isn't one of the tokens: 0 (The), 1 "),
        ("\ud800", "'\\ud800' isn't one of the tokens: 0 (The), 1 "),
    ],
)
def test_lookup_of_text_with_several_tokens(text: str, message: str) -> None:
    tokens = tokens_of("The", " dog", " bark", "ed", " The", b" \xe2", b"\x80\x99", "", " ")
    with pytest.raises(InvalidValueError) as error:
        tokens.find(text)
    assert str(error.value).startswith(message)


def test_texts_with_gpt2s_vocabulary(gpt2_tokenizer: Tokenizer) -> None:
    tokens = gpt2_tokenizer.tokens("It’s very hot in summer. Swimming is")
    assert tokens.ids.tolist() == WALKTHROUGH["token_ids"]
    assert list(tokens.symbols) == WALKTHROUGH["symbols"]
    assert tokens.texts[4] == " very"
    assert tokens.bytes[:4] == (b"It", b"\xe2\x80", b"\x99", b"s")
    assert tokens.part_of[:4] == ("", "’", "’", "")
    assert "part of ’" in repr(tokens)
    assert len(gpt2_tokenizer) == 50257
    ids = gpt2_tokenizer.encode("It's very hot in summer. Swimming is")
    assert ids == [1026, 338, *WALKTHROUGH["token_ids"][4:]]
    sentence = "Martin’s one of my sons, and the other is Chanler."
    assert len(gpt2_tokenizer.encode(sentence)) == 16
    assert len(gpt2_tokenizer.encode(sentence.replace("’", "'"))) == 14
    recorded = json.loads((REFERENCE / "tokens.json").read_text(encoding="utf-8"))
    assert len(recorded) == 9
    for text, ids in recorded.items():
        assert gpt2_tokenizer.encode(text) == ids, text
        assert gpt2_tokenizer.decode(ids) == text
    assert gpt2_tokenizer.encode(END_OF_TEXT, special=True) == [50256]
    plain = gpt2_tokenizer.encode(f"a{END_OF_TEXT}")
    assert 50256 not in plain
    assert gpt2_tokenizer.decode(plain) == f"a{END_OF_TEXT}"
    assert gpt2_tokenizer.decode([50256]) == END_OF_TEXT


def test_merges_apply_in_order_of_rank() -> None:
    # "t h" comes before "h e", and "th e" makes "the" before "Ġ th" can
    symbols = TINY.tokens("the hen in a thin inn").symbols
    assert " ".join(symbols) == "the Ġ he n Ġ in Ġa Ġth in Ġ in n"


@settings(max_examples=40)
@given(st.text())
def test_any_text_round_trips(text: str) -> None:
    assert TINY.decode(TINY.encode(text)) == text
    tokens = TINY.tokens(text)
    assert b"".join(tokens.bytes) == text.encode()
    assert repr(tokens).count("\n") == len(tokens)


@given(st.binary())
def test_any_bytes_round_trip(data: bytes) -> None:
    ids = [TINY_BYTES.index(bytes([byte])) for byte in data]
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


@pytest.mark.parametrize("kind", [list, tuple, np.uint8, np.uint64])
def test_ids_of_any_integer_type(kind: Any) -> None:
    ids = kind([84, 72])
    assert TINY.decode(ids) == "ui"
    assert TINY.tokens(ids).ids.dtype == check_ids(ids, 263).dtype == np.int64


def test_copies_and_pickles_are_equal() -> None:
    TINY.encode("the hen")  # creates tiktoken's encoder, which can't be pickled
    for other in (copy.copy(TINY), copy.deepcopy(TINY), pickle.loads(pickle.dumps(TINY))):
        assert other.encode("the hen") == TINY.encode("the hen")
        assert other.decode([260]) == "the"


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: TINY.encode(3), TypeError, "text must be a str; got 3"),
        (lambda: TINY.encode("ab\ud800"), ValueError, "surrogate.*index 2"),
        (lambda: TINY.decode([263]), ValueError, "263 at position 0.*0 to 262"),
        (lambda: TINY.decode([1.0]), TypeError, "float64"),
        (lambda: TINY.decode([True]), TypeError, "bool"),
        (lambda: TINY.decode([[1, 2]]), ValueError, r"\(1, 2\)"),
        (lambda: TINY.decode([[1], [1, 2]]), ValueError, "token ids isn.t an array of numbers"),
        (lambda: TINY.decode(3), ValueError, "1-D array.*got 3"),
        (lambda: TINY.decode(["1"]), TypeError, r"integers; got <U1\. Give one text, or"),
        (
            lambda: TINY.tokens(Tokenizer.byte_level().tokens("a")),
            ValueError,
            "token 97 is 'a' in the given tokens, but '¤' in this tokenizer. Give the text, or",
        ),
        (lambda: TINY.decode(Contrary()), TypeError, "token ids isn't an array"),
        (lambda: TINY.decode({"input_ids": [1]}), ValueError, "got {'input_ids"),
        (lambda: TINY.tokens("the hen")[4], IndexError, "there is no token 4; tokens are 0 to 3"),
        (lambda: TINY.tokens("the hen").find(3), TypeError, "a token's text must be a str"),
        (lambda: Tokens([71]), TypeError, r"tokens must be a list of Token; got \[71\]"),
        (lambda: Tokens(None), TypeError, "tokens must be a list of Token; got None"),
        (lambda: Tokens("a"), TypeError, "must be a list of Token; got 'a'. To encode a text"),
        (
            lambda: TINY.encode("a", special=["<m>"]),
            TypeError,
            "special must be True or False; got",
        ),
        (lambda: TINY.for_rows(262), ValueError, r"up to 262 .<\|endoftext\|>.*262 rows"),
        (lambda: Tokenizer(5), TypeError, "a dict; got 5"),
        (lambda: Tokenizer({}), ValueError, "model must be an object; got None"),
        *(
            (lambda ids=ids, merges=merges: Tokenizer.from_merges(ids, merges), ValueError, words)
            for ids, merges, words in (
                (5, [], "an object of symbols and ids; got 5"),
                ({"a": 0}, 5, "merges must be a list; got 5"),
                ({}, [], "needs at least one token"),
                ({"a": 0, " ": 1}, [], "' ' is a character.*from_characters.*, or no tokenizer"),
                ({"a": "0"}, [], "'a' isn.t an integer: '0'"),
                ({5: 0}, [], "id of 5"),
                ({"a": -1}, [], "'a', -1, doesn.t fit in 32"),
                ({"a": 2**32}, [], "'a', 4294967296, doesn.t fit"),
                ({"a": 0, "b": 0}, [], "'a' and 'b'.*same id, 0"),
                ({"\ud800": 0}, [], "an unpaired surrogate"),
                ({"a": 0}, [5], "merge 1 .*; got 5"),
                ({"a": 0, "b": 1}, ["a b"], "merge 1 .*'a b'"),
                ({"a": 0, "ab": 1}, ["a b"], "merge 1 .*'a b'"),
            )
        ),
    ],
)
def test_invalid_input_is_rejected(call: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(AttnlabError, match=message) as caught:
        call()
    assert isinstance(caught.value, kind)


def test_rows_without_a_token_have_a_name() -> None:
    padded = TINY.for_rows(270)
    assert (len(TINY), len(padded), len(padded.vocabulary.ids)) == (263, 270, 263)
    token = padded.tokens([84, 269])[1]
    assert (token.symbol, token.text, token.bytes) == ("<row 269>", "", b"")
    assert token.readable == "<row 269>"
    assert padded.decode([84, 269, 72]) == "ui"
    assert padded.encode("<row 269>") == TINY.encode("<row 269>")  # no text gives it
    assert "7 unused rows" in repr(padded)
    with pytest.raises(AttnlabError, match="0 to 269"):
        padded.tokens([270])
    assert TINY.for_rows(263) is TINY
    assert len(TINY.vocabulary.for_rows(263)) == 263
    gap = Tokenizer.from_merges({"a": 0, "b": 2, "ab": 1_000_000}, [("a", "b")])
    assert gap.encode("abba") == [1_000_000, 2, 0]
    assert gap.vocabulary.ids.tolist() == [0, 2, 1_000_000]
    assert gap.tokens([1, 999_999]).symbols == ("<row 1>", "<row 999999>")


def test_vocabularies_that_lack_bytes_or_have_other_symbols() -> None:
    ids = {symbol: id for id, symbol in enumerate(byte_symbols()) if symbol not in "xĠ"}
    tokenizer = Tokenizer.from_merges(ids | {"猫猫": 256, "猫Ġ": 257}, [])
    assert tokenizer.decode(tokenizer.encode("abc")) == "abc"
    with pytest.raises(AttnlabError, match=r"byte 0x78.* 2 of the 256"):
        tokenizer.encode("axb")
    assert tokenizer.tokens([256, 257]).texts == ("猫猫", "猫Ġ")  # literal text
    assert tokenizer.decode(tokenizer.encode("猫")) == "猫"


def test_a_tokenizer_of_characters() -> None:
    """Of ASCII, ids are as in `sorted(set(text))`; a character is one token, whatever its bytes."""
    text = "First Citizen:\nBefore we proceed"
    characters = sorted(set(text))
    tokenizer = Tokenizer.from_characters(text)
    assert tokenizer.encode(text) == [characters.index(character) for character in text]
    assert len(tokenizer) == len(characters)
    text = "“猫”和狗，👋🏽 naïve\r\n\t  猫\0"
    tokens = Tokenizer.from_characters(text).tokens(text)
    assert tokens.texts == tuple(text)
    with pytest.raises(AttnlabError, match="surrogate"):
        Tokenizer.from_characters("a\ud800")


def test_repr_of_many_tokens_shows_the_first_and_last() -> None:
    lines = repr(TINY.tokens([84] * 1024)).split("\n")
    assert [line.split()[0] for line in lines[1:]] == [str(n) for n in range(1024)]
    lines = repr(TINY.tokens([84] * 2_000)).split("\n")
    assert [line.split()[0] for line in lines[-3:]] == ["1022", "…", "1999"]
    assert len(lines) == 1026


def test_a_million_spaces(capfd: pytest.CaptureFixture[str]) -> None:
    tokenizer = GPT2.from_pretrained("pocket").tokenizer
    with pytest.raises(InvalidValueError, match="text can't be encoded: ValueError"):
        tokenizer.encode(" " * 10**6)
    assert len(tokenizer.encode((" " * 500_000 + "x") * 2)) > 2
    assert capfd.readouterr().err == ""


def test_library_panics_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    class PanicError(BaseException):
        pass

    def panic(text: str, **_: Any) -> None:
        raise PanicError("unwrap")

    model = GPT2.from_pretrained("pocket")
    merges = model.tokenizer._gpt2._merges  # type: ignore[union-attr]
    monkeypatch.setattr(merges, "_encoding", SimpleNamespace(encode=panic), raising=False)
    with pytest.raises(InvalidValueError, match="can't be encoded: PanicError"):
        model.tokenizer.encode("the")
