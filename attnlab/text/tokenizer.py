"""Encode text to token ids and decode it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike

from attnlab.errors import (
    InvalidTypeError,
    InvalidValueError,
    MissingExtraError,
    VocabularyError,
    quoted,
)
from attnlab.support.checks import as_flag, check_kind, reraised_as
from attnlab.support.files import FilePath, as_path, write_atomically
from attnlab.text.bpe import GPT2Encoding, bert_data, is_byte_level, is_gpt2, prefix_and_suffix
from attnlab.text.tokenizer_files import (
    Settings,
    byte_pair_settings,
    check_settings,
    has_tokenizer_files,
    read_settings,
)
from attnlab.text.tokens import BYTES, Token, Tokens, Vocabulary, byte_symbols, check_ids
from attnlab.text.words import ALONE

if TYPE_CHECKING:
    import tokenizers


class Tokenizer:
    """Encodes text to token ids and decodes ids, as a model's files specify.

    GPT-2's byte-level byte pair encoding uses tiktoken. Other encodings, such as BERT's WordPiece,
    use the tokenizers library: `pip install "attnlab[tokenizers]"`.

    Parameters
    ----------
    settings : the content of a `tokenizer.json`; for a tokenizer of transformers,
        `json.loads(tokenizer.backend_tokenizer.to_str())`

    Attributes
    ----------
    settings : the given settings, with defaults filled in
    vocabulary : Vocabulary, with the symbol, text and bytes of each id

    Notes
    -----
    The text is encoded unchanged, without a start token, Unicode normalisation or other quotation
    marks. Changes that the model's files specify, such as a leading space or BERT's `[CLS]`, are
    made as in transformers; the tokens show them.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.settings = check_settings(settings)
        if is_byte_level(self.settings):
            self.vocabulary = _vocabulary_of_bytes(self.settings)
        else:
            decoder = self.settings["decoder"] or {}
            is_word_piece = decoder.get("type") == "WordPiece"
            self.vocabulary = LibraryVocabulary(
                self._library,
                word_piece_prefix=decoder.get("prefix") if is_word_piece else None,
                literal_ids=[token["id"] for token in self.settings["added_tokens"]],
                unknown=_unknown_symbol(self.settings["model"]),
            )
        added = self.settings["added_tokens"]
        self.vocabulary.special = tuple(token["content"] for token in added if token["special"])
        if self._gpt2 is None:
            with suppress(MissingExtraError):  # some vocabularies decode without the library
                self._library  # noqa: B018  (raises now if the settings are invalid)

    @classmethod
    def from_directory(cls, directory: FilePath) -> Tokenizer:
        """Read the tokenizer in a model's directory.

        The vocabulary is in `tokenizer.json`, or else in `vocab.json` and `merges.txt`, or in
        BERT's `vocab.txt`. Other settings are in `tokenizer_config.json`, `special_tokens_map.json`
        and `added_tokens.json`. All are read as in transformers 5, except that transformers ignores
        the normalizer in a GPT2Tokenizer's tokenizer.json.
        """
        path = as_path(directory, "directory")
        try:
            return cls(read_settings(path))
        except VocabularyError as error:
            if f"{path}{os.sep}" in str(error):  # the error names a file
                raise
            raise VocabularyError(f"tokenizer in {path}: {error}") from None

    @classmethod
    def from_merges(
        cls, ids: Mapping[str, int], merges: Sequence[tuple[str, str] | str]
    ) -> Tokenizer:
        """GPT-2's tokenizer with your own vocabulary.

        `ids` has each symbol's id, as in `vocab.json`; `<|endoftext|>`, if included, is special.
        `merges` are pairs of symbols in order of priority, as in `merges.txt`.
        """
        settings = byte_pair_settings(ids, merges)
        for symbol in ids:
            if len(symbol) == 1 and symbol not in BYTES:  # encoding would never give this symbol
                raise VocabularyError(
                    f"the symbol {quoted(symbol)} is a character, but symbols are made of "
                    "byte_symbols(), such as Ġ for a space. Use Tokenizer.from_characters(text), "
                    "or no tokenizer, with ids in place of texts"
                )
        return cls(settings)

    @classmethod
    def from_characters(cls, text: str) -> Tokenizer:
        """A tokenizer with a token for each character of a text, in the order of their codes.

        A character that isn't ASCII has two to four bytes, which are merged one after the other.
        The single bytes, and the results of all merges but the last, are tokens, too.
        """
        check_kind(text, str, "text")
        with reraised_as(InvalidValueError, "text has an unpaired surrogate"):
            encoded = [character.encode() for character in sorted(set(text))]
        symbols = ["".join(byte_symbols()[byte] for byte in character) for character in encoded]
        pairs = [(x[:n], x[n]) for x in symbols for n in range(1, len(x))]
        merges = list(dict.fromkeys(pairs))  # characters may begin with the same bytes
        tokens = dict.fromkeys([*"".join(symbols), *map("".join, merges)])  # bytes, then merges
        return cls.from_merges({symbol: id for id, symbol in enumerate(tokens)}, merges)

    @classmethod
    def byte_level(cls) -> Tokenizer:
        """A tokenizer with one token for each of the 256 bytes."""
        return cls.from_merges(BYTES, [])

    def for_rows(self, rows: int) -> Tokenizer:
        """Return a copy for an embedding with this number of rows."""
        if rows == len(self):
            return self
        tokenizer = copy(self)
        tokenizer.vocabulary = self.vocabulary.for_rows(rows)
        return tokenizer

    def save(self, directory: FilePath) -> None:
        """Write files that `from_directory` and transformers can read.

        The files are `vocab.json` and `merges.txt` if these suffice, otherwise `tokenizer.json` and
        `tokenizer_config.json`.
        """
        path = as_path(directory, "directory")
        model = self.settings["model"]
        pre_tokenizer = self.settings["pre_tokenizer"] or {}
        files: dict[str, str] = {}
        # If a vocab.json lacks END_OF_TEXT, which is an added token, transformers adds this token.
        has_end = is_byte_level(self.settings) and self.settings["added_tokens"]
        if has_end and self.settings == byte_pair_settings(model["vocab"], model["merges"]):
            in_order = dict(sorted(model["vocab"].items(), key=lambda item: item[1]))
            merges = "".join(f"{first} {second}\n" for first, second in model["merges"])
            files["vocab.json"] = json.dumps(in_order, ensure_ascii=False)
            files["merges.txt"] = f"#version: 0.2\n{merges}"
        else:
            # transformers 4 reads add_prefix_space only from tokenizer_config.json.
            config = {"tokenizer_class": "PreTrainedTokenizerFast"}
            if "add_prefix_space" in pre_tokenizer:
                config["add_prefix_space"] = pre_tokenizer["add_prefix_space"]
            files["tokenizer.json"] = json.dumps(self.settings)
            files["tokenizer_config.json"] = f"{json.dumps(config, indent=2)}\n"
        for name, text in files.items():
            write_atomically(path / name, text.encode())

    def as_data(self) -> dict[str, Any]:
        """The tokenizer's data for a page, see `bytepairs.js`."""
        self.encode("")  # raises if there is no tokenizer
        encoding: dict[str, Any] | None
        if self._gpt2 is not None:
            encoding = self._gpt2.as_data() | {"merges": self.settings["model"]["merges"]}
        else:
            encoding = bert_data(self.settings)
        if encoding is None:
            raise InvalidValueError(
                "a page supports only GPT-2's byte pair encoding and BERT's word pieces, and this "
                "model has another tokenizer. Use attnlab html, which supports any tokenizer"
            )
        added = [[token["id"], token["content"]] for token in self.settings["added_tokens"]]
        return {
            **encoding,
            "vocab": self.settings["model"]["vocab"],
            "names": added,
            "literalIds": sorted(self.vocabulary.literal_ids),
            "rows": len(self),
        }

    def __getstate__(self) -> dict[str, object]:  # tiktoken's encoding can't be pickled
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    def __repr__(self) -> str:
        tokens = len(self.vocabulary.ids)
        rows = len(self) - tokens
        return f"Tokenizer: {tokens} tokens" + (f", {rows} unused rows" if rows else "")

    def __len__(self) -> int:
        """Number of ids, including unused rows of the embedding."""
        return len(self.vocabulary)

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        """Encode a text to token ids.

        Names of special tokens, such as `<|endoftext|>`, are plain characters unless `special` is
        True. With True, the ids are those of transformers' `tokenizer(text)`; with False, those of
        `tokenizer(text, split_special_tokens=True)`.

        Raises
        ------
        InvalidValueError
            If the text has an unpaired surrogate, a byte without a token, or a million blanks, more
            than tiktoken supports
        """
        check_kind(text, str, "text")
        special = as_flag(special, "special")
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise InvalidValueError(
                f"text has an unpaired surrogate, {text[error.start]!r}, at index {error.start}"
            ) from None
        if self._gpt2 is not None:
            ids = self._gpt2.encode(text, special)
            if ids is not None:
                return ids
        library = self._library if special else self._plain_library
        with reraised_as(InvalidValueError, "text can't be encoded"):
            return list(library.encode(text).ids)

    def decode(self, ids: ArrayLike) -> str:
        """Decode token ids to text; invalid UTF-8 becomes �.

        This equals transformers' `decode(ids, clean_up_tokenization_spaces=False)`.
        """
        return self.decode_bytes(ids).decode("utf-8", errors="replace")

    def decode_bytes(self, ids: ArrayLike) -> bytes:
        """Decode token ids to bytes, which may end inside a character."""
        return self.vocabulary.decode_bytes(ids)

    def tokens(self, text_or_ids: str | ArrayLike | Tokens, *, special: bool = False) -> Tokens:
        """The tokens of a text or of ids, with the symbol, text and bytes of each.

        Names of special tokens in a text are plain characters unless `special` is True.
        """
        if isinstance(text_or_ids, str):
            return self._tokens_of(text_or_ids, self.encode(text_or_ids, special=special), special)
        if isinstance(text_or_ids, Tokens):
            tokens = self.vocabulary.tokens(text_or_ids.ids)
            for given, own in zip(text_or_ids, tokens, strict=True):
                if given.symbol != own.symbol:
                    raise InvalidValueError(
                        f"token {own.id} is {quoted(given.symbol)} in the given tokens, but "
                        f"{quoted(own.symbol)} in this tokenizer. Give the text, or tokens.ids"
                    )
            return _naming_unread(tokens, (token.unread for token in text_or_ids))
        return self.vocabulary.tokens(text_or_ids)

    def prompt_tokens(self, text: str, *, special: bool = False) -> Tokens:
        """The tokens of a text to trace or continue, see `encode_prompt`."""
        return self._tokens_of(text, self.encode_prompt(text, special=special), special)

    def _tokens_of(self, text: str, ids: list[int], special: bool) -> Tokens:
        """The tokens of a text's ids; unknown tokens get the words that they stand for."""

        def words() -> Iterator[str]:  # runs only if there are unknown tokens
            library = self._library if special else self._plain_library
            for start, end in library.encode(text).offsets:
                yield text[start:end]

        return _naming_unread(self.vocabulary.tokens(ids), words())

    def encode_prompt(self, text: str, *, special: bool = False) -> list[int]:
        """Encode a text to trace or continue.

        The ids are `encode(text)` without ids that the tokenizer appends to every text, such as
        BERT's `[SEP]`: after `[SEP]`, a model would predict what follows the end.
        """
        ids = self.encode(text, special=special)
        _, suffix = self._affixes
        return ids[: len(ids) - len(suffix)]

    def text_of(self, tokens: Tokens) -> str:
        """A text that `encode_prompt` would encode to these tokens, if there is one."""
        prefix = self._affixes[0]
        has_prefix = tokens.ids[: len(prefix)].tolist() == prefix
        content = b"".join(tokens.bytes[len(prefix) if has_prefix else 0 :])
        text = content.decode("utf-8", errors="replace")
        return text.removeprefix(" ") if isinstance(self.vocabulary, LibraryVocabulary) else text

    @cached_property
    def _affixes(self) -> tuple[list[int], list[int]]:
        """The ids that are added before and after every text."""
        return prefix_and_suffix(self.settings.get("post_processor"))

    @cached_property
    def _gpt2(self) -> GPT2Encoding | None:
        merges = self.settings.merges
        if merges is None or not is_gpt2(self.settings):
            return None
        return GPT2Encoding(self.settings, merges)

    @cached_property
    def _library(self) -> tokenizers.Tokenizer:
        return _library(self.settings)

    @cached_property
    def _plain_library(self) -> tokenizers.Tokenizer:
        """The library's tokenizer that reads names of special tokens as plain characters."""
        library = _library(self.settings)
        library.encode_special_tokens = True
        return library


class NoTokenizer(Tokenizer):
    """Stands for a missing tokenizer: the model has only ids, whose symbols are their numbers."""

    def __init__(self, rows: int) -> None:
        self.settings = Settings()
        self.vocabulary = IdVocabulary({id: str(id) for id in range(rows)})

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        raise InvalidTypeError(
            "this model has no tokenizer. Open it with tokenizer=..., or save one in its "
            "directory; without one, model.trace takes token ids"
        )

    def save(self, directory: FilePath) -> None:
        """Write nothing; raise if the directory has another model's tokenizer."""
        if has_tokenizer_files(path := as_path(directory, "directory")):
            raise InvalidValueError(
                f"this model has no tokenizer, but {path} contains one. Save to another directory"
            )

    def __repr__(self) -> str:
        return f"No tokenizer, {len(self)} ids"


class IdVocabulary(Vocabulary):
    """A vocabulary of ids without texts."""

    def bytes_of(self, id: int) -> bytes:
        return b""


class LibraryVocabulary(Vocabulary):
    """A vocabulary decoded by the tokenizers library.

    A token's bytes are the UTF-8 of what the token adds to a text, with its spaces: ` dog` for
    `▁dog`, `dog ` for `dog</w>`. In WordPiece, bytes lack `##`, the prefix of a word's later
    tokens, and words in letters have a space before them, as in GPT-2. Joined bytes may differ from
    the decoded text, which has no space at its ends, but has spaces between Chinese characters.
    """

    is_exact = False

    def __init__(
        self,
        library: tokenizers.Tokenizer,
        word_piece_prefix: str | None = None,
        literal_ids: Collection[int] = (),
        unknown: str | None = None,
    ) -> None:
        symbols = {id: symbol for symbol, id in library.get_vocab().items()}
        super().__init__(symbols, literal_ids)
        self._library, self._prefix, self._unknown = library, word_piece_prefix, unknown

    def token(self, id: int) -> Token:
        token = super().token(id)
        return replace(token, unread=token.symbol) if token.symbol == self._unknown else token

    def bytes_of(self, id: int) -> bytes:
        symbol = self._symbols.get(id, "")
        if self._prefix is None:  # decode between other tokens: decoders cut spaces off at the ends
            before, after = self._around or ([id], [])
            inside = self._decode([*before, id, *after])
            return inside.removeprefix(self._decode(before)).removesuffix(self._decode(after))
        # WordPiece marks tokens that continue a word by a prefix, such as ##ing, and drops spaces.
        # So a word's first token gets its space back, unless it starts with a character such as 猫,
        # which is a word without a space.
        if not symbol or id in self.literal_ids:
            return self._decode([id])
        if symbol.startswith(self._prefix) and symbol != self._prefix:
            return symbol.removeprefix(self._prefix).encode()
        starts_word = symbol[0].isalnum() and not re.match(ALONE, symbol)
        return f" {symbol}".encode() if starts_word else symbol.encode()

    def decode_bytes(self, ids: ArrayLike) -> bytes:
        return self._decode(check_ids(ids, len(self)).tolist())

    @cached_property
    def _around(self) -> tuple[list[int], list[int]] | None:
        """Ids to put before and after an id to decode; None to put the id itself before it."""
        if self._library.decoder is None:  # the library puts a space between any two tokens
            return ([], []) if any(" " in symbol for symbol in self._symbols.values()) else None
        # Find an id whose text doesn't change beside others. The first ids may be bytes: they join.
        for id in reversed(self.ids.tolist()):
            alone = self._decode([id])
            if alone and alone.isascii() and self._decode([id] * 3) == alone * 3:
                return [id], [id]
        return None

    def _decode(self, ids: list[int]) -> bytes:
        with reraised_as(InvalidValueError, "tokens can't be decoded"):
            return self._library.decode(ids, skip_special_tokens=False).encode()


def _vocabulary_of_bytes(settings: Mapping[str, Any]) -> Vocabulary:
    """The vocabulary of a byte-level tokenizer; the symbol of an added token is its text."""
    model = settings["model"]
    symbols = dict(zip(model["vocab"].values(), model["vocab"], strict=True))
    added = {token["id"]: token["content"] for token in settings["added_tokens"]}
    # In ASCII, a token's text and the bytes of its symbol are the same, so `literal_ids` needs only
    # other tokens. An added token that is also a byte or a merged token still stands for bytes.
    literal_ids = {id for id, content in added.items() if not content.isascii()}
    if literal_ids:
        merged = {model["vocab"]["".join(pair)] for pair in model["merges"]}
        literal_ids -= merged | {model["vocab"].get(symbol) for symbol in BYTES}
    symbols |= added
    return Vocabulary(symbols, literal_ids)


def _naming_unread(tokens: Tokens, words: Iterable[str]) -> Tokens:
    """Set `unread` of unknown tokens; `words` has a word for each token, and maybe more words."""
    if not any(token.unread for token in tokens):
        return tokens
    return Tokens(
        replace(token, unread=word) if token.unread and word else token
        for token, word in zip(tokens, words, strict=False)
    )


def _unknown_symbol(model: Mapping[str, Any]) -> str | None:
    """The symbol of the token that stands for unknown words, if a vocabulary has such a token."""
    if model["type"] == "Unigram":
        id = model.get("unk_id")
        symbol: str | None = None if id is None else model["vocab"][id][0]
        return symbol
    return model.get("unk_token")


def _library(settings: Mapping[str, Any]) -> tokenizers.Tokenizer:
    try:
        import tokenizers
    except ImportError:
        reason = "tiktoken can't encode this text with this vocabulary, or isn't installed"
        if not is_byte_level(settings):
            reason = f"only the tokenizers library reads {settings['model']['type']} vocabularies"
        raise MissingExtraError(
            f"{reason}. Install the tokenizers library: pip install tokenizers "
            "(attnlab's optional extra 'tokenizers')"
        ) from None
    with reraised_as(VocabularyError, "the tokenizers library can't read this tokenizer.json"):
        return tokenizers.Tokenizer.from_str(json.dumps(settings))
