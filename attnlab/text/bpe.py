"""GPT-2's way from a text to token ids: byte-level byte-pair encoding, done by tiktoken.

One regular expression cuts the text into pieces. A piece is written as UTF-8 bytes, and neighbours
are merged: always those whose merge stands first in the list, and of them the leftmost.
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
from attnlab.support.checks import errors_of
from attnlab.text.tokens import BYTES

if TYPE_CHECKING:
    import tiktoken

# How text is cut before bytes are merged. Source: GPT-2's `encoder.py`.
PIECES = (
    r"'s|'t|'re|'ve|'m|'ll|'d"
    r"| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+"
    r"|\s+(?!\S)|\s+"
)

# The most white space in a row. Of a million tiktoken's regular expression gives up, by a panic in
# Rust, which writes its stack to stderr.
MOST_SPACE = 900_000

# The byte that a symbol's character stands for.
BYTE_OF = np.zeros(max(map(ord, BYTES)) + 1, np.uint8)
BYTE_OF[[*map(ord, BYTES)]] = [*BYTES.values()]

# What a model, and an added token, may ask for that is not done here.
ODD_MODEL = ("continuing_subword_prefix", "end_of_word_suffix", "byte_fallback", "ignore_merges")
ODD_TOKEN = ("single_word", "lstrip", "rstrip")


class Merges:
    """Byte pairs, merged by tiktoken where that does what the list of merges says.

    tiktoken knows no merges, only ranks: it joins neighbours whose union is a token, those with the
    lowest id first. Merges that training has written come to the same. Others may not: `b b`, `b a`
    and `b ba` make bb and a of “bba”, and tiktoken makes bba of it.

    Parameters
    ----------
    ids : symbol -> id
    merges : pairs of symbols, the first to be merged first

    Attributes
    ----------
    merge_ids : int64 (merges, 3), of each merge the ids of the two tokens and of what they make
    """

    def __init__(self, ids: Mapping[str, int], merges: Sequence[tuple[str, str]]) -> None:
        self._ids, self._merges = ids, merges
        try:  # all at once, as there are 50,000
            parts = [*map(ids.get, itertools.chain.from_iterable(merges))]
            self._symbols = [*map("".join, merges)]
            made = np.array([*map(ids.get, self._symbols)], np.int64)
            self.merge_ids = np.column_stack([np.array(parts, np.int64).reshape(-1, 2), made])
        except TypeError:  # of None, which is no id, or of what is no text
            raise _first_wrong(ids, merges) from None
        self._lacking = {byte for symbol, byte in BYTES.items() if symbol not in ids}

    def encode(self, text: str) -> list[int] | None:
        """The ids of a text; None where tiktoken does not know them, or is not installed.

        Raises
        ------
        InvalidValueError
            A byte of the text has no token, or white space is too long for tiktoken.
        """
        if self._lacking and (absent := self._lacking.intersection(text.encode())):
            raise InvalidValueError(
                f"the text needs the byte 0x{min(absent):02x}, and {len(self._lacking)} of the 256 "
                "bytes, that one too, have no token in this vocabulary"
            )
        if not self._in_order or self._encoding is None:
            return None
        if len(text) > MOST_SPACE and (
            (longest := max((len(run[0]) for run in re.finditer(r"\s+", text)), default=0))
            > MOST_SPACE
        ):
            raise InvalidValueError(
                f"text has {longest:,} white-space characters in a row, and tiktoken can cut "
                f"{MOST_SPACE:,}: leave some out"
            )
        with errors_of(InvalidValueError, "text can't be cut into tokens"):
            ids = self._encoding.encode_ordinary(text)
        return ids if self._are_listed(ids) else None

    @Part
    def _encoding(self) -> tiktoken.Encoding | None:  # of merges that are in order
        try:
            import tiktoken  # here, so that only who has a text waits for it
        except ImportError:
            return None
        symbols, ids = [*self._bytes, *self._symbols], [*self._bytes.values(), *self._made]
        # All at once, as there are 50,000: each character stands for one byte.
        characters = np.frombuffer("".join(symbols).encode("utf-16-le"), "<u2")
        content, ends = BYTE_OF[characters].tobytes(), [*itertools.accumulate(map(len, symbols))]
        places = zip([0, *ends], ends, ids, strict=False)
        ranks = {content[start:end]: id for start, end, id in places}
        return tiktoken.Encoding(
            "attnlab", pat_str=PIECES, mergeable_ranks=ranks, special_tokens={}
        )

    @Part
    def _bytes(self) -> dict[str, int]:
        """The ids of single bytes."""
        return {symbol: self._ids[symbol] for symbol in BYTES if symbol in self._ids}

    @Part
    def _made(self) -> list[int]:
        """The ids of what merges make, in the order of the merges."""
        ids: list[int] = self.merge_ids[:, 2].tolist()
        return ids

    def _merge_of(self, id: int | None) -> int:
        """Which merge makes a token, -1 where none does: merges are in order, so their ids are."""
        if id is None:
            return -1
        number = bisect_left(self._made, id)
        return number if number < len(self._made) and self._made[number] == id else -1

    @Part
    def _in_order(self) -> bool:
        """Whether each merge makes a token of its own, with a higher id than those before it, of
        what is there by then."""
        parts, made = self.merge_ids[:, :2], self.merge_ids[:, 2:]
        is_byte = np.isin(parts, [*self._bytes.values()])
        is_there = is_byte | (np.isin(parts, made) & (parts < made))
        return bool((np.diff(made, axis=0) > 0).all() and is_there.all())

    @Part
    def _known(self) -> set[int]:
        """Tokens that are known to be made by listed merges alone; at first the bytes."""
        return set(self._bytes.values())

    def _are_listed(self, ids: Iterable[int]) -> bool:
        """Whether tiktoken made tokens by listed merges alone.

        How neighbours outside a token are joined does not change how it is made itself. So the
        merge at its end is looked at, and those of its parts, each token once.
        """
        todo, seen = [*set(ids) - self._known], set[int]()
        while todo:
            id = todo.pop()
            first, second = self._merges[self._merge_of(id)]
            if self._bridged(first, second):
                return False
            seen.add(id)
            todo += {self._ids[first], self._ids[second]} - self._known - seen
        self._known |= seen
        return True

    def _bridged(self, first: str, second: str) -> bool:
        """Whether tiktoken joins across the border of two tokens before both of them are made.

        Back in time: the one that was made later is taken apart, until both are single bytes. What
        stood at the border then must not be joined at a lower rank; at the same rank, the left
        pair is joined first.
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


def _first_wrong(ids: Mapping[str, int], merges: Sequence[tuple[str, str]]) -> VocabularyError:
    """What to raise where a merge is not of two tokens that make a third one."""
    for number, pair in enumerate(merges, start=1):
        is_text = {*map(type, pair)} == {str}
        if not is_text or not {*pair, "".join(pair)} <= ids.keys():
            return no_merge(number, " ".join(pair) if is_text else pair)
    raise AssertionError("all merges are right")


def no_merge(number: int, merge: object) -> VocabularyError:
    return VocabularyError(
        f"merge {number} must be of two tokens that make a third one; {quoted(merge)} is not"
    )


class GPT2Encoding:
    """From a text to ids as a `tokenizer.json` says for which `is_gpt2` holds.

    Parameters
    ----------
    settings : what the file holds
    merges : its byte pairs

    Attributes
    ----------
    front, end : ids that are put around every text
    """

    def __init__(self, settings: Mapping[str, Any], merges: Merges) -> None:
        self._merges = merges
        self._prefix_space = settings["pre_tokenizer"].get("add_prefix_space", True)
        self.front, self.end = _template(settings["post_processor"])
        tokens = [token for token in settings["added_tokens"] if token["content"]]
        # In two rounds: what no normalizer may touch is looked for first.
        self._added = [
            {
                token["content"]: token["id"]
                for token in tokens
                if bool(token.get("normalized")) is late
            }
            for late in (False, True)
        ]
        self._special = {token["content"] for token in tokens if token.get("special")}

    def encode(self, text: str, special: bool) -> list[int] | None:
        """The ids of a text; None as `Merges.encode` has it."""
        pieces: list[str | int] = [text]
        for tokens in self._added:
            pieces = [part for piece in pieces for part in self._cut(piece, tokens, special)]
        ids = [*self.front]
        for piece in pieces:
            merged = [piece] if isinstance(piece, int) else self._encode_plain(piece)
            if merged is None:
                return None
            ids += merged
        return ids + self.end

    def as_data(self) -> dict[str, Any]:
        """What the page's own encoding is made of, see `bpe.js`."""
        rounds = [
            {name: id for name, id in tokens.items() if name not in self._special}
            for tokens in self._added
        ]
        return {
            "pattern": PIECES,
            "rounds": [[*tokens.items()] for tokens in rounds],
            "prefixSpace": self._prefix_space,
            "front": self.front,
            "end": self.end,
        }

    def _cut(
        self, piece: str | int, tokens: Mapping[str, int], special: bool
    ) -> Iterator[str | int]:
        """Cut tokens out of a text, the longest of those that begin at one place."""
        if isinstance(piece, int) or not tokens:
            yield piece
            return
        start = 0
        names = sorted(tokens, key=len, reverse=True)
        for found in re.finditer("|".join(map(re.escape, names)), piece):
            if special or found[0] not in self._special:
                yield piece[start : found.start()]
                yield tokens[found[0]]
                start = found.end()
        yield piece[start:]

    def _encode_plain(self, text: str) -> list[int] | None:
        if text and self._prefix_space and not text.startswith(" "):
            text = f" {text}"
        return self._merges.encode(text)


def is_byte_level(settings: Mapping[str, Any]) -> bool:
    """Whether the symbols in a `tokenizer.json` stand for bytes."""
    return settings["model"]["type"] == "BPE" and _type(settings["decoder"]) == "ByteLevel"


def is_gpt2(settings: Mapping[str, Any]) -> bool:
    """Whether a `tokenizer.json` asks for what GPT-2's asks for, and no more than is done here."""
    model, cut = settings["model"], settings["pre_tokenizer"]
    return (
        is_byte_level(settings)
        and settings["normalizer"] is None
        and _type(cut) == "ByteLevel"
        and cut.get("use_regex", True)
        and _type(settings["post_processor"]) in (None, "ByteLevel", "TemplateProcessing")
        and not any(model.get(name) for name in ODD_MODEL)
        and (model.get("unk_token") is None or BYTES.keys() <= model["vocab"].keys())
        and not any(token.get(name) for token in settings["added_tokens"] for name in ODD_TOKEN)
    )


def _type(part: Mapping[str, Any] | None) -> str | None:
    return None if part is None else part.get("type")


def _template(part: Mapping[str, Any] | None) -> tuple[list[int], list[int]]:
    """The ids that a post_processor puts in front of a text, and at its end."""
    if part is None or part["type"] != "TemplateProcessing":
        return [], []
    front: list[int] = []
    end: list[int] = []
    ids = front
    try:
        for item in part["single"]:
            if "Sequence" in item:
                ids = end
            else:
                ids += part["special_tokens"][item["SpecialToken"]["id"]]["ids"]
        if {*map(type, front + end)} - {int}:
            raise TypeError("an id is no integer")
    except (LookupError, TypeError):
        raise VocabularyError(f"post_processor can't be read: {quoted(part)}") from None
    return front, end
