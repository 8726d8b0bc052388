"""Tokens and vocabularies: the symbol, text and bytes of each token id.

`attnlab.text.tokenizer` encodes texts.
"""

from __future__ import annotations

import codecs
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, TypeAlias, overload

import numpy as np
from numpy.typing import ArrayLike

from attnlab.equations import Ids
from attnlab.errors import InvalidTypeError, InvalidValueError, VocabularyError, quoted
from attnlab.support.checks import as_array, as_number, as_texts, check_kind, is_integer
from attnlab.support.console import StdoutSafe
from attnlab.support.messages import Message
from attnlab.support.parts import Numbered, read_only, sliced
from attnlab.support.tables import ELLIPSIS, Table, elide, header, printable
from attnlab.text.words import Character, Word, characters_of, words_of

END_OF_TEXT = "<|endoftext|>"

# Invisible characters that choose how the character before them is drawn, such as an emoji.
VARIATION_SELECTORS = "\ufe0e\ufe0f"

# The maximum number of tokens that an error message lists.
MAX_LISTED = 24


@cache
def byte_symbols() -> tuple[str, ...]:
    """The printable character that represents each byte in `vocab.json`.

    A byte that is printable in Latin-1 has this character. The other 68 bytes have U+0100, U+0101
    and so on: a space has Ġ (U+0120), a newline has Ċ (U+010A).

    Source: GPT-2's `encoder.py`, `bytes_to_unicode`.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return tuple(chr(byte if byte in printable else next(others)) for byte in range(256))


BYTES = {symbol: byte for byte, symbol in enumerate(byte_symbols())}
# Converts symbols to bytes, with `codecs.charmap_encode`.
CHARMAP = codecs.charmap_build("".join(BYTES))


@dataclass(frozen=True)
class Token:
    """One token."""

    id: int  #: the token's row in the embedding
    #: The name in `vocab.json`, such as `Ġvery`; `<row 50258>` for an unused row of the embedding
    symbol: str
    text: str  #: the decoded token, such as ` very`; bytes of a part of a character become �
    bytes: bytes  #: the token's bytes, such as `b" very"`
    #: The word in the text that an unknown token, such as BERT's `[UNK]`, stands for. If the word
    #: isn't known, it is the token's symbol. "" for all other tokens
    unread: str = field(default="", kw_only=True, compare=False)

    @property
    def readable(self) -> str:
        """The text with Ġ for a space; `Tokens.readable` also uses the token's neighbours."""
        return Tokens([self]).readable[0]


# A token's id, text or symbol, or a Token.
TokenLike: TypeAlias = int | str | Token


class Tokens(StdoutSafe, Sequence[Token]):
    """The tokens of a text, in order; `repr` is a table of them.

    Attributes
    ----------
    ids : int64 (T,), read-only
    symbols, texts, bytes : the symbol, text and bytes of each token, see `Token`
    part_of : for each token, the characters whose bytes it shares with its neighbours, such as "’"
    readable : each token's name in tables and pictures: its text with Ġ for a space, such as
        `Ġvery`. The first of two parts of a character is `’ 1/2`, and bytes of an incomplete
        character are `<e5 b0>`. The name of a token without a text is its symbol.
    words : the words, each with its tokens, see `Word`
    offsets : for each token, where its characters begin and end in the text of all tokens; tokens
        that share a character overlap. A token without bytes has (0, 0).
    """

    def __init__(self, tokens: Iterable[Token]) -> None:
        is_list = isinstance(tokens, Iterable) and not isinstance(tokens, str)
        self._tokens = tuple(tokens) if is_list else ()
        if not is_list or not all(isinstance(token, Token) for token in self._tokens):
            raise InvalidTypeError(
                f"tokens must be a list of Token; got {quoted(tokens)}. To encode a text, use "
                "model.tokenizer.tokens(text)"
            )
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
            return Tokens(sliced(self._tokens, index))
        return self._numbered[index]

    def __iter__(self) -> Iterator[Token]:
        return iter(self._tokens)

    def __len__(self) -> int:
        return len(self._tokens)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tokens) and self._tokens == other._tokens

    def __hash__(self) -> int:
        return hash(self._tokens)

    @cached_property
    def _token_of_byte(self) -> list[int]:
        """For each byte of the text, the index of its token."""
        return [i for i, token in enumerate(self._tokens) for _ in token.bytes]

    @cached_property
    def _characters(self) -> list[Character]:
        return characters_of(self.bytes)

    @cached_property
    def part_of(self) -> tuple[str, ...]:
        shared = [""] * len(self)
        for character, owners in self._characters:
            for i in owners if len(owners) > 1 else ():
                shared[i] += character
        return tuple(shared)

    @cached_property
    def readable(self) -> tuple[str, ...]:
        shown: list[list[str]] = [[] for _ in self]
        for character, owners in self._characters:
            for part, i in enumerate(owners, start=1):
                shown[i].append(_shown(character, part, len(owners)))
        return tuple(
            token.symbol if token.symbol == token.text or not parts else _joined(parts)
            for token, parts in zip(self, shown, strict=True)
        )

    @cached_property
    def offsets(self) -> tuple[tuple[int, int], ...]:
        indices: list[list[int]] = [[] for _ in self]
        for n, (_, owners) in enumerate(self._characters):
            for i in owners:
                indices[i].append(n)
        return tuple((own[0], own[-1] + 1) if own else (0, 0) for own in indices)

    @cached_property
    def words(self) -> tuple[Word, ...]:
        return tuple(words_of(self._characters))

    def find(self, text: str) -> int:
        """Return the index of the token with this text or symbol.

        Spaces around a token may be left out: "dog" finds " dog" and "dog", " dog" only " dog".
        """
        check_kind(text, str, "a token's text")
        matches = [
            i
            for i, token in enumerate(self)
            if text and text in (token.text, token.text.strip(" "), token.symbol, self.readable[i])
        ]
        if len(matches) == 1:
            return matches[0]
        if matches:
            raise InvalidValueError(
                f"{quoted(text)} matches {len(matches)} tokens: {self._format_list(matches)}. "
                "Give one by its index"
            )
        if overlapping := self._overlapping(text.encode(errors="surrogatepass")):
            raise InvalidValueError(
                f"{quoted(text)} isn't one token; it is in {self._format_list(overlapping)}. "
                "Give one of them, by its index or text"
            )
        raise InvalidValueError(
            f"{quoted(text)} isn't one of the tokens: {self._format_list(range(len(self)))}"
        )

    def _overlapping(self, searched: bytes) -> list[int]:
        """The indices of tokens that overlap any occurrence of some bytes in the text."""
        text = b"".join(self.bytes)
        indices: set[int] = set()
        start = -1
        while searched and (start := text.find(searched, start + 1)) >= 0:
            indices.update(self._token_of_byte[start : start + len(searched)])
        return sorted(indices)

    def _format_list(self, indices: Sequence[int]) -> str:
        """The index and name of each token, for a message; long lists are elided."""
        names = (
            ELLIPSIS if i is None else f"{indices[i]} ({self.readable[indices[i]]})"
            for i in elide(len(indices), MAX_LISTED)
        )
        return ", ".join(names)

    def __reduce__(self) -> tuple[Any, ...]:  # without this, copied arrays would be writable
        return Tokens, (self._tokens,)

    def lines(self) -> list[tuple[str, ...]]:
        """Cells of a table: a header, then one line per token."""
        lines = [header("", "id", "symbol", "text", "bytes", "")]
        for i, token in enumerate(self):
            shared = printable(self.part_of[i])
            note = Message("part of {shared}", shared=shared) if shared else ""
            if token.unread not in ("", token.symbol):
                note = Message("for {word}", word=printable(token.unread))
            text = repr(token.text)
            lines.append((str(i), str(token.id), token.symbol, text, token.bytes.hex(" "), note))
        return lines

    def __repr__(self) -> str:
        return str(Table(self.lines(), left=(2, 3, 4, 5)))


def _shown(character: str, part: int, parts: int) -> str:
    """How a label shows a character, a part of a character, or an invalid byte."""
    if parts > 1:
        is_visible = character.isprintable() and character not in VARIATION_SELECTORS
        shown = character if is_visible else _code_of(character)
        return f" {shown} {part}/{parts} "
    if 0xDC80 <= ord(character) <= 0xDCFF:  # `characters_of` turns invalid bytes into surrogates
        return f" <{ord(character) - 0xDC00:02x}> "
    return byte_symbols()[ord(character)] if ord(character) < 128 else character


def _code_of(character: str) -> str:
    return f"U+{ord(character):04X}"


def text_in_quotes(tokens: Tokens, index: int) -> str:
    """A token's text in quotes, or its readable form if the text has a part of a character."""
    text = tokens.texts[index]
    return tokens.readable[index] if "�" in text else repr(text)


def _joined(parts: Sequence[str]) -> str:
    if all(part in VARIATION_SELECTORS for part in parts):
        return "".join(map(_code_of, parts))
    # Two bytes, <e5> and <b0>, become <e5 b0>. Ġ, which is a space, needs no space after it.
    return "".join(parts).replace(">  <", " ").replace("Ġ ", "Ġ").strip()


def as_tokens(
    texts: Sequence[str] | Tokens | None, count: int, name: str, row: str
) -> Tokens | None:
    """Convert labels of a matrix's rows to tokens, with the rows' indices as ids.

    `name` and `row` are the names of the labels and of a row in error messages, such as "tokens"
    and "query".
    """
    if texts is None:
        return None
    if not isinstance(texts, Tokens):
        texts = as_texts(texts, name)
        texts = Tokens(
            Token(i, text, text, text.encode(errors="surrogatepass"))
            for i, text in enumerate(texts)
        )
    if len(texts) != count:
        raise InvalidValueError(f"{name} must be {count} texts, one per {row}; got {len(texts)}")
    return texts


class Vocabulary:
    """The symbol of each token id, from which the token's text and bytes follow.

    The symbols of `literal_ids` are texts; in other symbols, each character represents a byte.
    `size` is the number of rows of the embedding, by default the largest id + 1. Rows without a
    symbol have no bytes, and names such as `<row 50258>`, which has a space, as no symbol has.
    `special` has the names of special tokens. `is_exact` says whether tokens keep the text's white
    space and capital letters.
    """

    special: tuple[str, ...] = ()
    is_exact = True

    def __init__(
        self, symbols: Mapping[int, str], literal_ids: Collection[int] = (), size: int | None = None
    ) -> None:
        self._symbols = symbols
        self.literal_ids = frozenset(literal_ids)
        self._size = max(symbols, default=-1) + 1 if size is None else size

    def __len__(self) -> int:
        """Number of ids, including unused rows of the embedding."""
        return self._size

    @cached_property
    def ids(self) -> Ids:
        """The ids of tokens, int64, without unused rows of the embedding."""
        return read_only(np.array(sorted(self._symbols), dtype=np.int64))

    def for_rows(self, rows: int) -> Vocabulary:
        """Return a copy for an embedding with this number of rows."""
        if len(self) > rows:
            last = self.token(len(self) - 1)
            raise VocabularyError(
                f"the tokenizer has ids up to {last.id} ({last.symbol}), but the embedding has "
                f"{rows} rows, for ids 0 to {rows - 1}. In transformers, "
                f"model.resize_token_embeddings({len(self)}) gives every token a row"
            )
        vocabulary = copy(self)
        vocabulary._size = rows
        return vocabulary

    def tokens(self, ids: ArrayLike) -> Tokens:
        return Tokens([self.token(id) for id in check_ids(ids, len(self)).tolist()])

    def token(self, id: int) -> Token:
        symbol = self._symbols.get(id)
        if symbol is None:
            return Token(id, f"<row {id}>", "", b"")
        raw = self.bytes_of(id)
        return Token(id, symbol, raw.decode("utf-8", errors="replace"), raw)

    def lookup(self, token: int | str | Token) -> Token:
        """The token with this id, text or symbol, or with the id of this Token."""
        id_or_text = as_number(token.id if isinstance(token, Token) else token)
        if is_integer(id_or_text):
            return self.tokens([id_or_text])[0]
        check_kind(id_or_text, str, "a token", "given by its id or text, such as ' dog'")
        raw = id_or_text.encode(errors="surrogatepass")
        for id in self.ids.tolist():
            if self.bytes_of(id) == raw:
                return self.token(id)
        for id, symbol in self._symbols.items():
            if symbol == id_or_text:
                return self.token(id)
        raise InvalidValueError(
            f"{quoted(id_or_text)} isn't one token of the vocabulary. Give an id, or a text as "
            "in trace.tokens or next_tokens, with its leading space"
        )

    def bytes_of(self, id: int) -> bytes:
        symbol = self._symbols.get(id, "")
        return symbol.encode() if id in self.literal_ids else symbol_bytes(symbol)

    def decode_bytes(self, ids: ArrayLike) -> bytes:
        """The concatenated bytes of tokens, which may end inside a character."""
        return b"".join(map(self.bytes_of, check_ids(ids, len(self)).tolist()))


def symbol_bytes(symbol: str) -> bytes:
    """The bytes that a symbol's characters stand for; UTF-8 if a character isn't in BYTES."""
    try:
        return codecs.charmap_encode(symbol, "strict", CHARMAP)[0]
    except UnicodeEncodeError:
        return symbol.encode()


def check_ids(ids: ArrayLike, vocab_size: int) -> Ids:
    """Check token ids and convert them to an int64 array of shape (T,)."""
    array = as_array(ids, "token ids")
    if array.ndim != 1:
        description = f"shape {array.shape}" if array.ndim else quoted(array.item(), 40)
        raise InvalidValueError(f"token ids must be a 1-D array of integers; got {description}")
    if array.size == 0:
        return np.empty(0, dtype=np.int64)
    if array.dtype.kind not in "iu":
        hint = ""
        if any(isinstance(item, str) for item in array.tolist()):
            hint = ". Give one text, or to trace several, a list of texts, as from .tolist()"
        raise InvalidTypeError(f"token ids must be integers; got {array.dtype}{hint}")
    outside = np.flatnonzero((array < 0) | (array >= vocab_size))
    if outside.size:
        first = outside[0]
        raise InvalidValueError(
            f"token id {array[first]} at position {first} isn't in the vocabulary; ids are 0 "
            f"to {vocab_size - 1}"
        )
    return array.astype(np.int64)
