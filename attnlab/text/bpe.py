"""GPT-2's byte-level byte pair encoding, by tiktoken.

A regular expression splits the text into pieces. A piece starts as UTF-8 bytes; then adjacent
tokens are merged, always by the merge that is first in the list, leftmost first.
"""

from __future__ import annotations

import itertools
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from attnlab.errors import InvalidValueError, VocabularyError, quoted
from attnlab.steps import Part
from attnlab.support.checks import reraised_as
from attnlab.text.tokens import BYTES

if TYPE_CHECKING:
    import tiktoken

# The pieces of a text. Source: GPT-2's `encoder.py`.
PIECES = (
    r"'s|'t|'re|'ve|'m|'ll|'d"
    r"| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+"
    r"|\s+(?!\S)|\s+"
)

# The longest supported run of white space. At a million, tiktoken's regular expression panics in
# Rust, which prints its stack to stderr.
MAX_WHITE_SPACE = 900_000

# Byte values by the code points of their symbols.
BYTE_OF = np.zeros(max(map(ord, BYTES)) + 1, np.uint8)
BYTE_OF[[*map(ord, BYTES)]] = [*BYTES.values()]

# Settings of a model and of an added token that aren't supported.
UNSUPPORTED_MODEL = (
    *("continuing_subword_prefix", "end_of_word_suffix"),
    *("byte_fallback", "ignore_merges"),
)
UNSUPPORTED_TOKEN = ("single_word", "lstrip", "rstrip")


class Merges:
    """A list of merges, applied by tiktoken if the result is the same.

    tiktoken has ranks instead of merges: it joins neighbours whose concatenation is a token, the
    lowest id first. For merges learned by training, the result is the same; for others it may
    differ: `b b`, `b a` and `b ba` turn “bba” into bb and a, but tiktoken into bba.

    Parameters
    ----------
    ids : symbol -> id
    merges : pairs of symbols in order of priority

    Attributes
    ----------
    merge_ids : int64 (merges, 3), for each merge the ids of the two tokens and of the merged token
    """

    def __init__(self, ids: Mapping[str, int], merges: Sequence[tuple[str, str]]) -> None:
        self._ids, self._merges = ids, merges
        try:  # vectorised: GPT-2 has 50,000 merges
            parts = [*map(ids.get, itertools.chain.from_iterable(merges))]
            self._symbols = [*map("".join, merges)]
            merged = np.array([*map(ids.get, self._symbols)], np.int64)
            self.merge_ids = np.column_stack([np.array(parts, np.int64).reshape(-1, 2), merged])
        except TypeError:  # from an unknown symbol's None, or from a pair that isn't text
            raise _first_invalid(ids, merges) from None
        self._missing = {byte for symbol, byte in BYTES.items() if symbol not in ids}

    def encode(self, text: str) -> list[int] | None:
        """Encode a text; None if tiktoken's result would differ, or it isn't installed."""
        if self._missing and (missing := self._missing.intersection(text.encode())):
            raise InvalidValueError(
                "the text has the byte 0x{byte}, which isn't in the vocabulary; "
                "{count} of the 256 bytes aren't",
                byte=f"{min(missing):02x}",
                count=len(self._missing),
            )
        if not self._in_order or self._encoding is None:
            return None
        if len(text) > MAX_WHITE_SPACE and (
            (longest := max((len(run[0]) for run in re.finditer(r"\s+", text)), default=0))
            > MAX_WHITE_SPACE
        ):
            raise InvalidValueError(
                "the text has {longest} consecutive white-space characters; "
                "tiktoken supports at most {most}. Remove some",
                longest=f"{longest:,}",
                most=f"{MAX_WHITE_SPACE:,}",
            )
        with reraised_as(InvalidValueError, "text can't be encoded"):
            ids = self._encoding.encode_ordinary(text)
        return ids if self._are_from_merges(ids) else None

    @Part
    def _encoding(self) -> tiktoken.Encoding | None:
        try:
            import tiktoken  # here, so that `import attnlab` is quick
        except ImportError:
            return None
        symbols, ids = [*self._bytes, *self._symbols], [*self._bytes.values(), *self._merged]
        # Vectorised over all symbols: each character stands for one byte.
        characters = np.frombuffer("".join(symbols).encode("utf-16-le"), "<u2")
        content, ends = BYTE_OF[characters].tobytes(), [*itertools.accumulate(map(len, symbols))]
        spans = zip([0, *ends], ends, ids, strict=False)
        ranks = {content[start:end]: id for start, end, id in spans}
        return tiktoken.Encoding(
            "attnlab", pat_str=PIECES, mergeable_ranks=ranks, special_tokens={}
        )

    @Part
    def _bytes(self) -> dict[str, int]:
        """The ids of single bytes."""
        return {symbol: self._ids[symbol] for symbol in BYTES if symbol in self._ids}

    @Part
    def _merged(self) -> list[int]:
        """The ids of merged tokens, in the order of the merges."""
        ids: list[int] = self.merge_ids[:, 2].tolist()
        return ids

    def _merge_of(self, id: int | None) -> int:
        """The index of the merge that makes a token, or -1; requires ids in ascending order."""
        if id is None:
            return -1
        index = bisect_left(self._merged, id)
        return index if index < len(self._merged) and self._merged[index] == id else -1

    @Part
    def _in_order(self) -> bool:
        """Whether ids of merged tokens ascend, and each merge joins bytes or earlier results."""
        parts, merged = self.merge_ids[:, :2], self.merge_ids[:, 2:]
        is_byte = np.isin(parts, [*self._bytes.values()])
        exists = is_byte | (np.isin(parts, merged) & (parts < merged))
        return bool((np.diff(merged, axis=0) > 0).all() and exists.all())

    @Part
    def _known(self) -> set[int]:
        """Tokens for which `_are_from_merges` is known to be true; initially the bytes."""
        return set(self._bytes.values())

    def _are_from_merges(self, ids: Iterable[int]) -> bool:
        """Whether tiktoken made these tokens only by merges in the list.

        This doesn't depend on a token's neighbours, so each token is checked once: its last merge,
        then those of its parts.
        """
        queue, seen = [*set(ids) - self._known], set[int]()
        while queue:
            id = queue.pop()
            first, second = self._merges[self._merge_of(id)]
            if self._joined_early(first, second):
                return False
            seen.add(id)
            queue += {self._ids[first], self._ids[second]} - self._known - seen
        self._known |= seen
        return True

    def _joined_early(self, first: str, second: str) -> bool:
        """Whether tiktoken joins across the boundary of two tokens before both are complete.

        Merges are undone, the latest first, until both tokens are single bytes. At no point may
        the tokens at the boundary form one of lower rank; at equal rank, the left pair is joined
        first.
        """
        while True:
            left, right = (self._merge_of(self._ids[symbol]) for symbol in (first, second))
            if left == right == -1:
                return False
            if left > right:
                first, until = self._merges[left][1], left
            else:
                second, until = self._merges[right][0], right + 1
            if 0 <= self._merge_of(self._ids.get(first + second)) < until:
                return True


def _first_invalid(ids: Mapping[str, int], merges: Sequence[tuple[str, str]]) -> VocabularyError:
    """The error for the first merge that doesn't join two tokens to a third."""
    for number, pair in enumerate(merges, start=1):
        is_text = {*map(type, pair)} == {str}
        if not is_text or not {*pair, "".join(pair)} <= ids.keys():
            return invalid_merge(number, " ".join(pair) if is_text else pair)
    raise AssertionError("all merges are valid")


def invalid_merge(number: int, merge: object) -> VocabularyError:
    return VocabularyError(
        "merge {number} must be two tokens whose concatenation is a third; got {merge}",
        number=number,
        merge=quoted(merge),
    )


class GPT2Encoding:
    """Encodes text with a `tokenizer.json` for which `is_gpt2` is true.

    Parameters
    ----------
    settings : the file's content
    merges : its merges

    Attributes
    ----------
    prefix, suffix : ids added before and after every text
    """

    def __init__(self, settings: Mapping[str, Any], merges: Merges) -> None:
        self._merges = merges
        self._prefix_space = settings["pre_tokenizer"].get("add_prefix_space", True)
        self.prefix, self.suffix = _template(settings["post_processor"])
        tokens = [token for token in settings["added_tokens"] if token["content"]]
        # Searched in two rounds: first the tokens that are matched before normalisation.
        self._added = [
            {
                token["content"]: token["id"]
                for token in tokens
                if bool(token.get("normalized")) is normalized
            }
            for normalized in (False, True)
        ]
        self._special = {token["content"] for token in tokens if token.get("special")}

    def encode(self, text: str, special: bool) -> list[int] | None:
        """Encode a text; None if `Merges.encode` returns None."""
        pieces: list[str | int] = [text]
        for tokens in self._added:
            pieces = [part for piece in pieces for part in self._split(piece, tokens, special)]
        ids = [*self.prefix]
        for piece in pieces:
            merged = [piece] if isinstance(piece, int) else self._encode_plain(piece)
            if merged is None:
                return None
            ids += merged
        return ids + self.suffix

    def as_data(self) -> dict[str, Any]:
        """Data for the page's encoding, see `bpe.js`."""
        rounds = [
            {name: id for name, id in tokens.items() if name not in self._special}
            for tokens in self._added
        ]
        return {
            "pattern": PIECES,
            "rounds": [[*tokens.items()] for tokens in rounds],
            "prefixSpace": self._prefix_space,
            "front": self.prefix,
            "end": self.suffix,
        }

    def _split(
        self, piece: str | int, tokens: Mapping[str, int], special: bool
    ) -> Iterator[str | int]:
        """Split a text at tokens, the longest first where several match."""
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
        if text and self._prefix_space and not text.startswith(" "):
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
        and not any(model.get(name) for name in UNSUPPORTED_MODEL)
        and (model.get("unk_token") is None or BYTES.keys() <= model["vocab"].keys())
        and not any(token.get(n) for token in settings["added_tokens"] for n in UNSUPPORTED_TOKEN)
    )


def _type(part: Mapping[str, Any] | None) -> str | None:
    return None if part is None else part.get("type")


def _template(part: Mapping[str, Any] | None) -> tuple[list[int], list[int]]:
    """The ids that a post_processor adds before and after a text."""
    if part is None or part["type"] != "TemplateProcessing":
        return [], []
    prefix: list[int] = []
    suffix: list[int] = []
    ids = prefix
    try:
        for item in part["single"]:
            if "Sequence" in item:
                ids = suffix
            else:
                ids += part["special_tokens"][item["SpecialToken"]["id"]]["ids"]
        if {*map(type, prefix + suffix)} - {int}:
            raise TypeError("an id isn't an integer")
    except (LookupError, TypeError):
        raise VocabularyError("post_processor can't be read: {part}", part=quoted(part)) from None
    return prefix, suffix
