"""Token ids, and what each stands for: symbol, text and bytes.

Data alone. What cuts a text into tokens is in `attnlab.text.tokenizer`.
"""

from __future__ import annotations

import codecs
import contextlib
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike

from attnlab.equations import AnyArray, Ids
from attnlab.errors import InvalidTypeError, InvalidValueError, VocabularyError, quoted
from attnlab.steps import Numbered, Part, read_only
from attnlab.support.checks import as_count, as_number, check_kind, is_integer
from attnlab.support.console import PrintedAnywhere
from attnlab.support.tables import ELLIPSIS, Table, elide, printable

END_OF_TEXT = "<|endoftext|>"

# How many tokens an error names.
MOST_NAMED = 24


def byte_symbols() -> list[str]:
    """The printable character that stands for each byte in `vocab.json`.

    Bytes that Latin-1 can print stand for themselves; the other 68, in order, for U+0100, U+0101
    and so on: a space is Ġ (U+0120), a newline Ċ (U+010A).

    Source: GPT-2's `encoder.py`, `bytes_to_unicode`.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


BYTES = {symbol: byte for byte, symbol in enumerate(byte_symbols())}
CHARMAP = codecs.charmap_build("".join(BYTES))  # the symbols as an encoding of bytes


@dataclass(frozen=True)
class Token:
    """One token.

    Attributes
    ----------
    id : its row in the embedding
    symbol : as `vocab.json` writes it, `Ġvery`; `<row 50258>` for a row of the embedding that
        belongs to no token
    text : as people read it, ` very`; bytes that are only part of a character show as �
    bytes : what it stands for, `b" very"`
    """

    id: int
    symbol: str
    text: str
    bytes: bytes

    def __post_init__(self) -> None:
        object.__setattr__(self, "id", as_count(self.id, "a token's id"))
        for name, kind in (("symbol", str), ("text", str), ("bytes", bytes)):
            check_kind(getattr(self, name), kind, f"a token's {name}")

    @property
    def readable(self) -> str:
        """As people read it, with Ġ for a space; its symbol if it is no text or not all of one."""
        if not self.text or "�" in self.text:
            return self.symbol
        symbols = byte_symbols()
        return "".join(symbols[ord(c)] if ord(c) < 128 else c for c in self.text)


class Tokens(PrintedAnywhere, Sequence[Token]):
    """The tokens of a text, in order; `repr` is a table of them.

    Attributes
    ----------
    ids : int64 (T,), read-only
    symbols, texts, bytes : T of each, see `Token`
    part_of : for each token the characters that it shares with its neighbours, such as "’", else ""
    """

    def __init__(self, tokens: Iterable[Token]) -> None:
        self._tokens = checked_tokens(tokens)
        self._numbered = Numbered("token", self._tokens)
        self.ids: Ids = read_only(np.array([token.id for token in self._tokens], dtype=np.int64))
        self.symbols = tuple(token.symbol for token in self._tokens)
        self.texts = tuple(token.text for token in self._tokens)
        self.bytes = tuple(token.bytes for token in self._tokens)

    @overload
    def __getitem__(self, index: int) -> Token: ...
    @overload
    def __getitem__(self, index: slice) -> Tokens: ...
    def __getitem__(self, index: int | slice) -> Token | Tokens:
        if isinstance(index, slice):
            return Tokens(self._tokens[index])
        return self._numbered[index]

    def __iter__(self) -> Iterator[Token]:
        return iter(self._tokens)

    def __len__(self) -> int:
        return len(self._tokens)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tokens) and self._tokens == other._tokens

    def __hash__(self) -> int:
        return hash(self._tokens)

    @Part
    def _owners(self) -> list[int]:
        """The place of each byte's token."""
        return [i for i, token in enumerate(self._tokens) for _ in token.bytes]

    @Part
    def part_of(self) -> tuple[str, ...]:
        owners = self._owners
        shared: list[str] = [""] * len(self)
        start = 0
        # A byte that is in no character decodes to a surrogate, which encodes to that byte again.
        for character in b"".join(self.bytes).decode("utf-8", errors="surrogateescape"):
            end = start + len(character.encode("utf-8", errors="surrogateescape"))
            parts = sorted(set(owners[start:end]))
            if len(parts) > 1:
                for i in parts:
                    shared[i] += character
            start = end
        return tuple(shared)

    def index(self, value: Any, start: int = 0, stop: int | None = None) -> int:
        """The place of a token, as of any sequence; `find` takes a text."""
        start = as_count(start, "start", least=-sys.maxsize)
        stop = len(self) if stop is None else as_count(stop, "stop", least=-sys.maxsize)
        try:
            return super().index(value, start, stop)
        except ValueError:
            raise InvalidValueError(
                f"{quoted(value)} is no Token among these; tokens.find(text) finds one by its text"
            ) from None

    def find(self, text: str) -> int:
        """The place of the one token that has this text or symbol.

        A space in front may be left out: "dog" finds " dog" and "dog", " dog" the first alone.

        Raises
        ------
        InvalidValueError
            No token has this text, or several have.
        """
        check_kind(text, str, "a token's text")
        found = [
            i
            for i, token in enumerate(self)
            if text and text in (token.text, token.text.removeprefix(" "), token.symbol)
        ]
        if len(found) == 1:
            return found[0]
        if found:
            raise InvalidValueError(
                f"{quoted(text)} is {len(found)} of the tokens, {self._called(found)}: give the "
                "number of one"
            )
        if parts := self._holding(text.encode(errors="surrogatepass")):
            raise InvalidValueError(
                f"{quoted(text)} is no token here, and is held by {self._called(parts)}: give one "
                "of these, by its number or its text"
            )
        raise InvalidValueError(
            f"{quoted(text)} is not among the tokens, {self._called(range(len(self)))}"
        )

    def _holding(self, searched: bytes) -> list[int]:
        """The tokens in which bytes are that stand in the text, those of every place."""
        whole, held, start = b"".join(self.bytes), set[int](), -1
        while searched and (start := whole.find(searched, start + 1)) >= 0:
            held.update(self._owners[start : start + len(searched)])
        return sorted(held)

    def _called(self, places: Sequence[int]) -> str:
        """Tokens in words: place and symbol of each, of many the first ones and the last."""
        picked = elide(len(places), MOST_NAMED)
        names = (
            ELLIPSIS if i is None else f"{places[i]} ({self.symbols[places[i]]})" for i in picked
        )
        return ", ".join(names)

    def __reduce__(self) -> tuple[Any, ...]:  # a copied or unpickled array could be written to
        return Tokens, (self._tokens,)

    def lines(self) -> list[tuple[str, ...]]:
        """Each token in words, below a header."""
        lines: list[tuple[str, ...]] = [("", "id", "symbol", "text", "bytes", "")]
        for i, token in enumerate(self):
            shared = printable(self.part_of[i])
            note = f"part of {shared}" if shared else ""
            text = repr(token.text)
            lines.append((str(i), str(token.id), token.symbol, text, token.bytes.hex(" "), note))
        return lines

    def __repr__(self) -> str:
        return str(Table(self.lines(), left=(2, 3, 4, 5)))

    def _repr_html_(self) -> str:
        from attnlab.views.notebook import tokens_view

        return tokens_view(self)


def checked_tokens(tokens: Iterable[Token]) -> tuple[Token, ...]:
    """Tokens in order, once they are known to be some."""
    with contextlib.suppress(Exception):  # an object may do what it likes when it is gone through
        kept = tuple(tokens)
        if all(isinstance(token, Token) for token in kept):
            return kept
    raise InvalidTypeError(
        "Tokens are made of a list of Token, and by a model's tokenizer.tokens(text); got "
        f"{quoted(tokens)}"
    )


def as_tokens(
    texts: Sequence[str] | Tokens | None, count: int, name: str, of: str
) -> Tokens | None:
    """Texts that name the rows of a matrix as tokens, their ids the rows' numbers.

    Parameters
    ----------
    texts : one for each row, or Tokens as they are; None where the rows have no names
    count, name, of : how many rows, and what an error calls the texts and the rows
    """
    if texts is None:
        return None
    tokens = None
    if isinstance(texts, Tokens):
        tokens = texts
    elif not isinstance(texts, str):
        # An object may do what it likes when it is gone through.
        with contextlib.suppress(Exception):
            tokens = Tokens(
                Token(i, text, text, text.encode(errors="surrogatepass"))
                for i, text in enumerate(texts)
            )
    if tokens is None:
        raise InvalidTypeError(
            f"{name} must be a list of texts, one for each of the {count} {of}, such as "
            f"['猫', '吃', '鱼']; got {quoted(texts)}"
        )
    if len(tokens) != count:
        raise InvalidValueError(f"{len(tokens)} {name} given for {count} {of}")
    return tokens


class Vocabulary:
    """What each id stands for, in symbols of bytes as GPT-2 writes them.

    Parameters
    ----------
    symbols : id -> symbol
    as_they_are : ids whose symbol is their text; in the others each character stands for a byte
    size : how many rows the embedding has; None for no more than the ids need. A row without a
        symbol belongs to no token: it is named `<row 50258>`, which no token can be called, as a
        space is written Ġ, and its bytes are empty.
    """

    def __init__(
        self,
        symbols: Mapping[int, str],
        as_they_are: Collection[int] = (),
        size: int | None = None,
    ) -> None:
        self._symbols = symbols
        self.as_they_are = frozenset(as_they_are)
        self._size = max(symbols, default=-1) + 1 if size is None else size

    def __len__(self) -> int:
        """How many ids there are, with those of rows that belong to no token."""
        return self._size

    @Part
    def ids(self) -> Ids:
        """The ids that belong to a token, int64."""
        return read_only(np.array(sorted(self._symbols), dtype=np.int64))

    @Part
    def longest(self) -> int:
        """How many characters the longest symbol has."""
        return max(map(len, self._symbols.values()), default=0)

    def for_rows(self, rows: int) -> Vocabulary:
        """The same for an embedding of so many rows."""
        rows = as_count(rows, "rows", least=1)
        if len(self) > rows:
            raise VocabularyError(
                f"the tokenizer has ids up to {len(self) - 1}, {self.token(len(self) - 1).symbol}, "
                f"and the embedding {rows} rows, of ids 0 to {rows - 1}. In transformers, "
                f"model.resize_token_embeddings({len(self)}) gives every token a row"
            )
        vocabulary = copy(self)
        vocabulary._size = rows
        return vocabulary

    def tokens(self, ids: ArrayLike) -> Tokens:
        """The tokens of ids, with symbol, text and bytes of each."""
        return Tokens([self.token(id) for id in check_ids(ids, len(self)).tolist()])

    def token(self, id: int) -> Token:
        """The token of an id."""
        id = as_count(id, "a token's id", most=len(self) - 1)
        symbol = self._symbols.get(id)
        if symbol is None:
            return Token(id, f"<row {id}>", "", b"")
        raw = self._bytes_of(id)
        return Token(id, symbol, raw.decode("utf-8", errors="replace"), raw)

    def named(self, token: int | str | Token) -> Token:
        """The one token that is meant by its id, its text, its symbol, or a Token.

        Raises
        ------
        InvalidValueError
            The text is not exactly one token.
        """
        name = as_number(token.id if isinstance(token, Token) else token)
        if is_integer(name):
            return self.tokens([name])[0]
        if not isinstance(name, str):
            raise InvalidTypeError(
                f"a token is named by its id or its text, such as ' dog'; got {quoted(name)}"
            )
        raw = name.encode(errors="surrogatepass")
        for id in self.ids.tolist():
            if self._bytes_of(id) == raw:
                return self.token(id)
        for id, symbol in self._symbols.items():
            if symbol == name:
                return self.token(id)
        raise InvalidValueError(
            f"{quoted(name)} is not one token of the vocabulary: give the id of one, or its text "
            "as trace.tokens and next_tokens show it, with the space in front"
        )

    def bytes_of(self, id: int) -> bytes:
        """The bytes of an id."""
        return self._bytes_of(as_count(id, "a token's id", most=len(self) - 1))

    def _bytes_of(self, id: int) -> bytes:
        symbol = self._symbols.get(id, "")
        return symbol.encode() if id in self.as_they_are else spelled(symbol)

    def decode_bytes(self, ids: ArrayLike) -> bytes:
        """The bytes of tokens; unlike their text, nothing is lost where they end in a character."""
        return b"".join(map(self._bytes_of, check_ids(ids, len(self)).tolist()))


def spelled(symbol: str) -> bytes:
    """The bytes that a symbol's characters stand for; its UTF-8 where one stands for none."""
    try:
        return codecs.charmap_encode(symbol, "strict", CHARMAP)[0]
    except UnicodeEncodeError:
        return symbol.encode()


def check_ids(ids: ArrayLike, vocab_size: int) -> Ids:
    """Token ids as an array, once they are known to be usable.

    Returns
    -------
    int64 (T,)
    """
    array = as_ids(ids)
    if array.ndim != 1:
        given = f"shape {array.shape}" if array.ndim else quoted(ids, 40)
        raise InvalidValueError(f"token ids must be one row of integers; got {given}")
    if array.size == 0:
        return np.empty(0, dtype=np.int64)
    if array.dtype.kind not in "iu":
        raise InvalidTypeError(f"token ids must be integers; got {array.dtype}")
    outside = np.flatnonzero((array < 0) | (array >= vocab_size))
    if outside.size:
        first = outside[0]
        raise InvalidValueError(
            f"token id {array[first]} at position {first} is not in the vocabulary; "
            f"ids are 0 to {vocab_size - 1}"
        )
    return array.astype(np.int64)


def as_ids(ids: ArrayLike) -> AnyArray:
    """What is said to be token ids, as an array of whatever it holds."""
    try:
        return np.asarray(ids)
    except ValueError:
        raise InvalidValueError(
            "token ids must be one row of integers, or rows of equal length; got rows that are "
            f"not: {quoted(ids)}"
        ) from None
    except Exception as error:  # an object may make its array as it likes
        raise InvalidTypeError(
            f"token ids must be one row of integers; got {quoted(ids, 40)}, of which no array "
            f"can be made: {quoted(error)}"
        ) from None
