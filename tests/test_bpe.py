"""bpe.py against a byte pair encoder written here from its description."""

import sys
from itertools import pairwise

import numpy as np
import pytest
import tiktoken
from conftest import needs

from attnlab import Tokenizer
from attnlab.checkpoints.hub import BUILT_IN
from attnlab.errors import MissingExtraError, VocabularyError
from attnlab.text.bpe import PIECES, Merges, merges_of_ranks
from attnlab.text.tokens import byte_symbols, symbol_bytes

Pair = tuple[str, str]


def by_merges(piece: str, merges: list[Pair]) -> list[str]:
    """Merge the pair that is first in the list, leftmost first."""
    rank = {pair: number for number, pair in enumerate(merges)}
    parts = list(piece)
    while pairs := [(rank[p], index) for index, p in enumerate(pairwise(parts)) if p in rank]:
        index = min(pairs)[1]
        parts[index : index + 2] = [parts[index] + parts[index + 1]]
    return parts


def test_ranks_without_merges_of_a_token() -> None:
    """abc can't be joined from two tokens, since neither ab nor bc is one."""
    ranks = {bytes([n]): n for n in range(256)}
    with pytest.raises(VocabularyError, match="no merges give the token 'abc'"):
        merges_of_ranks(ranks | {b"abc": 256})
    _, merges = merges_of_ranks(ranks | {b"bc": 256, b"abc": 257})
    assert merges == [("b", "c"), ("a", "bc")]


def random_merges(seed: int) -> tuple[dict[str, int], list[Pair]]:
    """A vocabulary over a, b and c, with merges and ids sometimes in different orders."""
    rng = np.random.default_rng(seed)
    symbols, merges = ["a", "b", "c"], []
    for _ in range(rng.integers(1, 12)):
        first, second = rng.choice(symbols, 2).tolist()
        if len(first + second) <= 6 and (first, second) not in merges:
            merges.append((first, second))
            symbols.append(first + second)
    joined = list(dict.fromkeys(symbols[3:]))
    if seed % 8 == 0:
        merges = [merges[i] for i in rng.permutation(len(merges))]
    if seed % 8 == 1:
        joined = [joined[i] for i in rng.permutation(len(joined))]
    return {symbol: id for id, symbol in enumerate([*byte_symbols(), *joined])}, merges


def texts(seed: int) -> list[str]:
    rng = np.random.default_rng(seed + 1_000_000)
    return ["".join(rng.choice([*"abc"], rng.integers(1, 13))) for _ in range(8)]


def test_merging_bba_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = {symbol: id for id, symbol in enumerate([*byte_symbols(), "bb", "ba", "bba"])}
    merges = [("b", "b"), ("b", "a"), ("b", "ba")]
    assert by_merges("bba", merges) == ["bb", "a"]
    assert Merges(ids, merges).encode("bba") is None  # tiktoken makes one token of it
    assert Merges(ids, merges).encode("bbabb") is None
    assert Merges(ids, merges).encode("bb ba") == [ids["bb"], ids["Ġ"], ids["ba"]]
    needs("tokenizers", "tokenizers")
    assert Tokenizer.from_merges(ids, merges).tokens("bba").symbols == ("bb", "a")
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(MissingExtraError, match="pip install tokenizers"):
        Tokenizer.from_merges(ids, merges).encode("bba")
    assert Tokenizer.from_merges(ids, merges).encode("ba") == [ids["ba"]]


@pytest.mark.parametrize(
    ("merges", "text"),
    [
        # With equal ranks the left pair is first: aaa is aa, a.
        ([("a", "a"), ("a", "aa")], "aaa"),
        # ab is merged across the border before bc, part of a bc, exists.
        ([("a", "b"), ("b", "c"), ("a", "bc")], "abc"),
        # The same with nested parts: c | d e, where c d is merged first.
        ([("c", "d"), ("d", "e"), ("b", "c"), ("bc", "de")], "bcde"),
        # One token of two merges, and a merge listed before its parts.
        ([("a", "b"), ("b", "c"), ("ab", "c"), ("a", "bc")], "abc"),
        ([("ab", "c"), ("a", "b")], "abc"),
        ([("a", "bc"), ("b", "c")], "abc"),
    ],
)
def test_merges_that_ranks_cannot_express_are_not_encoded(merges: list[Pair], text: str) -> None:
    result = dict.fromkeys(first + second for first, second in merges)
    ids = {symbol: id for id, symbol in enumerate([*byte_symbols(), *result])}
    assert Merges(ids, merges).encode(text) is None


@pytest.mark.slow
def test_merges_apply_in_any_vocabulary() -> None:
    """2,000 made-up ones; what tiktoken can't do is left to the tokenizers library."""
    needs("tokenizers", "tokenizers")
    all_texts = left = otherwise = 0
    for seed in range(2_000):
        ids, merges = random_merges(seed)
        tokenizer = Tokenizer.from_merges(ids, merges)
        assert tokenizer._gpt2 is not None
        alone = tokenizer._gpt2._merges
        ranks = {symbol_bytes(symbol): id for symbol, id in ids.items()}
        by_ranks = tiktoken.Encoding(
            "ranks", pat_str=PIECES, mergeable_ranks=ranks, special_tokens={}
        )
        for text in texts(seed):
            expected = [ids[symbol] for symbol in by_merges(text, merges)]
            assert tokenizer.encode(text) == expected, (merges, text)
            by_tiktoken = alone.encode(text)
            assert by_tiktoken in (expected, None), (merges, text)
            all_texts += 1
            left += by_tiktoken is None
            otherwise += by_ranks.encode_ordinary(text) != expected
    assert otherwise > 100  # how often tiktoken alone would be wrong
    assert left < all_texts / 2


@pytest.mark.parametrize(
    ("merges", "text"),
    [
        ([("a", "a"), ("aa", "aa")], "aaaa"),
        ([("a", "a"), ("a", "b"), ("aa", "ab")], "aaab"),
        ([("a", "b"), ("ab", "ab"), ("ab", "c"), ("abab", "abc")], "abababc"),
    ],
)
def test_merges_that_ranks_express_use_tiktoken(merges: list[Pair], text: str) -> None:
    result = [first + second for first, second in merges]
    ids = {symbol: id for id, symbol in enumerate([*byte_symbols(), *result])}
    expected = [ids[symbol] for symbol in by_merges(text, merges)]
    assert Merges(ids, merges).encode(text) == expected


def test_trained_merges_are_expressed_as_ranks() -> None:
    model = Tokenizer.from_directory(BUILT_IN["pocket"].directory).settings["model"]
    merges = Merges(model["vocab"], model["merges"])
    assert len(model["merges"]) > 200
    assert merges._is_in_order
    assert merges._are_from_merges(model["vocab"].values())


def test_gpt2_merges_are_expressed_as_ranks(gpt2_tokenizer: Tokenizer) -> None:
    model = gpt2_tokenizer.settings["model"]
    merges = Merges(model["vocab"], model["merges"])
    assert merges._is_gpt2
    assert merges._is_in_order
    assert merges._are_from_merges(range(50256))
