"""GPT-2's byte-level byte pair encoding, computed by tiktoken.

A regular expression splits the text into pieces. A piece starts as UTF-8 bytes. Then, repeatedly,
the first merge in the list that applies joins two adjacent tokens, the leftmost pair first.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from attnlab.errors import InvalidValueError, VocabularyError, quoted
from attnlab.support.checks import reraised_as
from attnlab.text.tokens import BYTES

if TYPE_CHECKING:
    import tiktoken

# Matches a piece of a text. Source: GPT-2's `encoder.py`.
PIECES = (
    r"'s|'t|'re|'ve|'m|'ll|'d"
    r"| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+"
    r"|\s+(?!\S)|\s+"
)

# The digest of GPT-2's merges. A test proves that tiktoken's result for them is always right.
GPT2_MERGES = "0b084ff8581dc653b7f79073e5e68cffadf4acdf58c7ef791ab497102a5fa2dc"

# The byte that each symbol stands for, by the symbol's code point.
BYTE_OF = np.zeros(max(map(ord, BYTES)) + 1, np.uint8)
BYTE_OF[[*map(ord, BYTES)]] = [*BYTES.values()]

# Unsupported settings of a model, and of an added token.
UNSUPPORTED_MODEL_SETTINGS = (
    *("continuing_subword_prefix", "end_of_word_suffix"),
    *("byte_fallback", "ignore_merges"),
)
UNSUPPORTED_TOKEN_FLAGS = ("single_word", "lstrip", "rstrip")

# In a tokenizer.json of BERT's word pieces, the types of the normalizer, pre_tokenizer, model and
# decoder, and the model's default settings.
WORD_PIECE_TYPES = ["BertNormalizer", "BertPreTokenizer", "WordPiece", "WordPiece"]
WORD_PIECE_DEFAULTS = {
    "unk_token": "[UNK]",
    "continuing_subword_prefix": "##",
    "max_input_chars_per_word": 100,
}

# GPT-2's pattern in tiktoken: since version 0.9, and before it. All split texts as PIECES does.
TIKTOKEN_PIECES = (
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s",
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    PIECES,
)


def merges_of_ranks(ranks: Mapping[bytes, int]) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Convert tiktoken's ranks to ids and merges: a token's merge joins its last two parts."""
    symbols = {byte: symbol for symbol, byte in BYTES.items()}
    ids = {"".join(symbols[byte] for byte in token): rank for token, rank in ranks.items()}
    merges = []
    for symbol in sorted(ids, key=ids.__getitem__):
        # Join the token's bytes as tiktoken does, until the last two parts, which are the merge.
        parts = [*symbol]
        while len(parts) > 2:
            joined = [ids.get(a + b, ids[symbol]) for a, b in itertools.pairwise(parts)]
            lowest = min(joined)
            if lowest >= ids[symbol]:
                break
            first = joined.index(lowest)
            parts[first : first + 2] = ["".join(parts[first : first + 2])]
        if len(parts) > 2:
            raise VocabularyError(f"no merges give the token {quoted(symbol)}")
        if len(parts) == 2:
            merges.append((parts[0], parts[1]))
    return ids, merges


class Merges:
    """A list of merges, in order of priority; tiktoken applies them if the result is the same.

    tiktoken has ranks instead of merges: it joins neighbours whose concatenation is a token, the
    lowest id first. For merges learned by training, the result is the same. For other merges it may
    differ: `b b`, `b a` and `b ba` turn “bba” into bb and a, but tiktoken turns it into bba.

    `merge_ids`, int64 (merges, 3), has the ids of each merge's two tokens and of the merged token.
    """

    def __init__(self, ids: Mapping[str, int], merges: Sequence[tuple[str, str]]) -> None:
        self._ids, self._merges = ids, merges
        try:  # arrays instead of loops, since GPT-2 has 50,000 merges
            pair_ids = [*map(ids.get, itertools.chain.from_iterable(merges))]
            self._merged_symbols = [*map("".join, merges)]
            merged_ids = np.array([*map(ids.get, self._merged_symbols)], np.int64)
            self.merge_ids = np.column_stack(
                [np.array(pair_ids, np.int64).reshape(-1, 2), merged_ids]
            )
        except TypeError:  # an unknown symbol's id is None, or a pair isn't text
            raise _first_invalid(ids, merges) from None
        self._missing_bytes = {byte for symbol, byte in BYTES.items() if symbol not in ids}

    def encode(self, text: str) -> list[int] | None:
        """Encode a text; None if tiktoken isn't installed, or if its result would differ."""
        missing = self._missing_bytes and self._missing_bytes.intersection(text.encode())
        if missing:
            raise InvalidValueError(
                f"the text has the byte 0x{min(missing):02x}, for which the vocabulary has no "
                f"token; it lacks {len(self._missing_bytes)} of the 256 bytes"
            )
        if not (self._is_gpt2 or self._is_in_order) or self._encoding is None:
            return None
        # `encode_ordinary` would panic in Rust at a million blanks, and print its stack.
        with reraised_as(InvalidValueError, "text can't be encoded"):
            ids = self._encoding.encode(text, disallowed_special=())
        return ids if self._is_gpt2 or self._are_from_merges(ids) else None

    @cached_property
    def _encoding(self) -> tiktoken.Encoding | None:
        try:
            import tiktoken  # imported late, so that `import attnlab` is quick
        except ImportError:
            return None
        symbols = [*self._byte_ids, *self._merged_symbols]
        ids = [*self._byte_ids.values(), *self.merge_ids[:, 2].tolist()]
        # This is fast: all symbols, with 2 bytes a character, are joined, then cut at their ends.
        characters = np.frombuffer("".join(symbols).encode("utf-16-le"), "<u2")
        content = BYTE_OF[characters].tobytes()
        ends = list(itertools.accumulate(map(len, symbols)))
        spans = zip([0, *ends], ends, ids, strict=False)
        ranks = {content[start:end]: id for start, end, id in spans}
        return tiktoken.Encoding(
            "attnlab", pat_str=PIECES, mergeable_ranks=ranks, special_tokens={}
        )

    @cached_property
    def _byte_ids(self) -> dict[str, int]:
        """The ids of single bytes, by symbol."""
        return {symbol: self._ids[symbol] for symbol in BYTES if symbol in self._ids}

    @cached_property
    def _is_gpt2(self) -> bool:
        from hashlib import sha256  # imported late, so that `import attnlab` is quick

        return sha256(self.merge_ids.astype("<i4").tobytes()).hexdigest() == GPT2_MERGES

    @cached_property
    def _is_in_order(self) -> bool:
        """Whether merged tokens' ids ascend, and each merge joins bytes or earlier tokens."""
        pairs, merged = self.merge_ids[:, :2], self.merge_ids[:, 2:]
        is_byte = np.isin(pairs, [*self._byte_ids.values()])
        is_earlier_result = np.isin(pairs, merged) & (pairs < merged)
        is_ascending = np.diff(merged, axis=0) > 0
        return bool(is_ascending.all() and (is_byte | is_earlier_result).all())

    @cached_property
    def _verified(self) -> set[int]:
        """Ids for which `_are_from_merges` is known to be true; initially the bytes."""
        return set(self._byte_ids.values())

    def _are_from_merges(self, ids: Iterable[int]) -> bool:
        """Whether tiktoken made these tokens only by merges in the list.

        A token's neighbours don't matter, so each token is checked only once.
        """
        new = set(ids) - self._verified
        symbols = [self._symbol_of[id] for id in new]
        if any(self._merge([*symbol]) != [symbol] for symbol in symbols):
            return False
        self._verified |= new
        return True

    def _merge(self, symbols: list[str]) -> list[str]:
        """Merge neighbours in the order of the list, each merge at the leftmost pair first."""
        while True:
            pairs = enumerate(itertools.pairwise(symbols))
            possible = [(self._priority[pair], n) for n, pair in pairs if pair in self._priority]
            if not possible:
                return symbols
            _, n = min(possible)
            symbols[n : n + 2] = ["".join(symbols[n : n + 2])]

    @cached_property
    def _priority(self) -> dict[tuple[str, str], int]:
        return {(first, second): number for number, (first, second) in enumerate(self._merges)}

    @cached_property
    def _symbol_of(self) -> dict[int, str]:
        return dict(zip(self.merge_ids[:, 2].tolist(), self._merged_symbols, strict=True))


def _first_invalid(ids: Mapping[str, int], merges: Sequence[tuple[str, str]]) -> VocabularyError:
    """The error for the first merge that doesn't join two tokens into a third."""
    for number, pair in enumerate(merges, start=1):
        is_text = all(type(symbol) is str for symbol in pair)
        if not is_text or not {*pair, "".join(pair)} <= ids.keys():
            return invalid_merge(number, " ".join(pair) if is_text else pair)
    raise AssertionError("all merges are valid")


def invalid_merge(number: int, merge: object) -> VocabularyError:
    return VocabularyError(
        f"merge {number} must be two tokens whose concatenation is a third; got {quoted(merge)}"
    )


class GPT2Encoding:
    """Encodes text by a `tokenizer.json` with `is_gpt2`, between the ids `prefix` and `suffix`."""

    def __init__(self, settings: Mapping[str, Any], merges: Merges) -> None:
        self._merges = merges
        self._add_prefix_space = settings["pre_tokenizer"].get("add_prefix_space", True)
        self.prefix, self.suffix = prefix_and_suffix(settings["post_processor"])
        tokens = [token for token in settings["added_tokens"] if token["content"]]
        # In order of search: tokens that are matched before normalisation, then other tokens.
        self._added = [
            {
                token["content"]: token["id"]
                for token in tokens
                if bool(token.get("normalized")) is normalized
            }
            for normalized in (False, True)
        ]
        self._special = [token["content"] for token in tokens if token.get("special")]

    def encode(self, text: str, special: bool) -> list[int] | None:
        """Encode a text, with special tokens or without; None if `Merges.encode` returns None."""
        pieces: list[str | int] = [text]
        for tokens in self._added:
            pieces = [part for piece in pieces for part in self._split(piece, tokens, special)]
        ids = [*self.prefix]
        for piece in pieces:
            piece_ids = [piece] if isinstance(piece, int) else self._encode_plain(piece)
            if piece_ids is None:
                return None
            ids += piece_ids
        return ids + self.suffix

    def as_data(self) -> dict[str, Any]:
        """Data for the page's encoding, see `bytepairs.js`."""
        return {
            "pattern": PIECES,
            "addedTokens": [[*tokens.items()] for tokens in self._added],
            "special": self._special,
            "addPrefixSpace": self._add_prefix_space,
            "prefix": self.prefix,
        }

    def _split(
        self, piece: str | int, tokens: Mapping[str, int], special: bool
    ) -> Iterator[str | int]:
        """Split a text at tokens, at the longest if several match; an id is yielded unchanged."""
        if isinstance(piece, int) or not tokens:
            yield piece
            return
        start = 0
        names = sorted(tokens, key=len, reverse=True)
        for match in re.finditer("|".join(map(re.escape, names)), piece):
            if special or match[0] not in self._special:
                yield piece[start : match.start()]
                yield tokens[match[0]]
                start = match.end()
        yield piece[start:]

    def _encode_plain(self, text: str) -> list[int] | None:
        if text and self._add_prefix_space and not text.startswith(" "):
            text = f" {text}"
        return self._merges.encode(text)


def is_byte_level(settings: Mapping[str, Any]) -> bool:
    """Whether the symbols in a `tokenizer.json` stand for bytes."""
    return settings["model"]["type"] == "BPE" and _type(settings["decoder"]) == "ByteLevel"


def is_gpt2(settings: Mapping[str, Any]) -> bool:
    """Whether a `tokenizer.json` is GPT-2's encoding with supported settings only."""
    model, pre_tokenizer = settings["model"], settings["pre_tokenizer"]
    return (
        is_byte_level(settings)
        and settings["normalizer"] is None
        and _type(pre_tokenizer) == "ByteLevel"
        and pre_tokenizer.get("use_regex", True)
        and _type(settings["post_processor"]) in (None, "ByteLevel", "TemplateProcessing")
        and not any(model.get(name) for name in UNSUPPORTED_MODEL_SETTINGS)
        # An unknown token is never used if every byte has a token.
        and (model.get("unk_token") is None or BYTES.keys() <= model["vocab"].keys())
        and not any(
            token.get(flag)
            for token in settings["added_tokens"]
            for flag in UNSUPPORTED_TOKEN_FLAGS
        )
    )


def bert_data(settings: Mapping[str, Any]) -> dict[str, Any] | None:
    """Data for BERT's word pieces in the page, see `wordpiece.js`; None for other encodings."""
    parts = ("normalizer", "pre_tokenizer", "model", "decoder")
    model = {**WORD_PIECE_DEFAULTS, **(settings.get("model") or {})}
    if (
        [_type(settings.get(part)) for part in parts] != WORD_PIECE_TYPES
        or model["unk_token"] not in model["vocab"]
        or settings["decoder"].get("prefix", "##") != model["continuing_subword_prefix"]
        or not all(token["special"] for token in settings["added_tokens"])
    ):
        return None
    # Only tokens that match a text before it is normalised, like BERT's special tokens.
    flags = ("normalized", *UNSUPPORTED_TOKEN_FLAGS)
    special = [token for token in settings["added_tokens"] if not any(map(token.get, flags))]
    return {
        "wordPiece": {
            "settings": settings["normalizer"],
            "unknown": model["vocab"][model["unk_token"]],
            "piecePrefix": model["continuing_subword_prefix"],
            "longest": model["max_input_chars_per_word"],
        },
        "pattern": "",
        "merges": [],
        "addedTokens": [[(token["content"], token["id"]) for token in special], []],
        "special": [token["content"] for token in special],
        "addPrefixSpace": False,
        "prefix": prefix_and_suffix(settings["post_processor"])[0],
    }


def _type(part: Mapping[str, Any] | None) -> str | None:
    return None if part is None else part.get("type")


def prefix_and_suffix(post_processor: Mapping[str, Any] | None) -> tuple[list[int], list[int]]:
    """The ids that a post_processor adds before and after a text; none if its type is unknown."""
    kind = _type(post_processor)
    if post_processor is not None and kind in ("BertProcessing", "RobertaProcessing"):
        return [post_processor["cls"][1]], [post_processor["sep"][1]]
    if post_processor is None or kind != "TemplateProcessing":
        return [], []
    prefix: list[int] = []
    suffix: list[int] = []
    ids = prefix  # items before the text; the loop changes to `suffix` after it
    try:
        for item in post_processor["single"]:
            if "Sequence" in item:  # this item stands for the text
                ids = suffix
            else:
                ids += post_processor["special_tokens"][item["SpecialToken"]["id"]]["ids"]
        if {*map(type, prefix + suffix)} - {int}:
            raise TypeError("an id isn't an integer")
    except (LookupError, TypeError):
        raise VocabularyError(f"post_processor can't be read: {quoted(post_processor)}") from None
    return prefix, suffix
