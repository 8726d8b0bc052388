"""Text to token ids and back, and what each token is made of."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from copy import copy
from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike

from attnlab.errors import (
    InvalidTypeError,
    InvalidValueError,
    MissingExtraError,
    VocabularyError,
    quoted,
)
from attnlab.steps import Part
from attnlab.support.checks import as_count, as_flag, errors_of
from attnlab.support.files import FilePath, as_path, write_whole
from attnlab.text.bpe import GPT2Encoding, is_byte_level, is_gpt2
from attnlab.text.tokenizer_files import (
    Settings,
    byte_pairs,
    checked,
    holds_tokenizer,
    read_settings,
)
from attnlab.text.tokens import BYTES, Tokens, Vocabulary, check_ids

if TYPE_CHECKING:
    import tokenizers


class Tokenizer:
    """What cuts a text into tokens, as a model's files say.

    tiktoken does GPT-2's byte-level byte-pair encoding. Others, such as BERT's WordPiece, are done
    by the tokenizers library: `pip install "attnlab[tokenizers]"`.

    Parameters
    ----------
    settings : what a `tokenizer.json` holds; that of a tokenizer of transformers is
        `json.loads(tokenizer.backend_tokenizer.to_str())`

    Attributes
    ----------
    settings : as given
    vocabulary : Vocabulary, what each id stands for

    Notes
    -----
    Nothing is put in front of a text and nothing in it is changed: no marker at the start, no
    Unicode normalisation, no straightened quotes. Where a model's own files ask for it, for a space
    in front or BERT's `[CLS]`, it is done as transformers does it, and the tokens show it.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.settings = checked(settings)
        if is_byte_level(self.settings):
            self.vocabulary = _vocabulary_of_bytes(self.settings)
        else:
            self.vocabulary = LibraryVocabulary(self._library)
        # What can't be made is told now. Ids alone do without the library where symbols are bytes.
        if self._gpt2 is None:
            with suppress(MissingExtraError):
                self._library  # noqa: B018

    @classmethod
    def from_directory(cls, directory: FilePath) -> Tokenizer:
        """The tokenizer that a model's directory holds.

        It is read from `tokenizer.json`, `vocab.json` and `merges.txt`, or BERT's `vocab.txt`, and
        from `tokenizer_config.json`, `special_tokens_map.json` and `added_tokens.json`, as
        transformers 4 and 5 read them. Where they differ, it is as 5 does it; but of a
        GPT2Tokenizer's tokenizer.json, 5 leaves the normalizer out, and it is honoured here.
        """
        path = as_path(directory, "directory")
        settings = read_settings(path)
        try:
            return cls(settings)
        except VocabularyError as error:
            raise VocabularyError(f"tokenizer in {path}: {error}") from None

    @classmethod
    def of_merges(
        cls, ids: Mapping[str, int], merges: Sequence[tuple[str, str] | str]
    ) -> Tokenizer:
        """GPT-2's tokenizer with a vocabulary of your own.

        Parameters
        ----------
        ids : symbol -> id, as in `vocab.json`; `<|endoftext|>` is special if it is there
        merges : pairs of symbols, the first to be merged first, as in `merges.txt`
        """
        if (
            not isinstance(ids, Mapping)
            or isinstance(merges, str)
            or not isinstance(merges, Sequence)
        ):
            raise InvalidTypeError(
                "a vocabulary is a dict of ids, and merges are a list of pairs; got "
                f"{quoted(ids)} and {quoted(merges)}"
            )
        return cls(byte_pairs(dict(ids), merges))

    @classmethod
    def of_bytes(cls) -> Tokenizer:
        """The tokenizer whose 256 tokens are the single bytes: no vocabulary to be learned."""
        return cls.of_merges(BYTES, [])

    def for_rows(self, rows: int) -> Tokenizer:
        """The same for an embedding of so many rows; those without a token get a name."""
        rows = as_count(rows, "rows", least=1)
        if rows == len(self):
            return self
        tokenizer = copy(self)
        tokenizer.vocabulary = self.vocabulary.for_rows(rows)
        return tokenizer

    def save(self, directory: FilePath) -> None:
        """Write the files of which `from_directory` makes the same, and transformers too.

        They are `vocab.json` and `merges.txt` where those say all, else `tokenizer.json` and a
        `tokenizer_config.json` for it.
        """
        path, model = as_path(directory, "directory"), self.settings["model"]
        cut = self.settings["pre_tokenizer"] or {}
        files: dict[str, str] = {}
        if is_byte_level(self.settings) and self.settings == byte_pairs(
            model["vocab"], model["merges"]
        ):
            in_order = dict(sorted(model["vocab"].items(), key=lambda item: item[1]))
            merges = "".join(f"{first} {second}\n" for first, second in model["merges"])
            files["vocab.json"] = json.dumps(in_order, ensure_ascii=False)
            files["merges.txt"] = f"#version: 0.2\n{merges}"
        else:
            # transformers 4 takes the space in front from this file alone.
            space = {name: cut[name] for name in ("add_prefix_space",) if name in cut}
            config = {"tokenizer_class": "PreTrainedTokenizerFast"} | space
            files["tokenizer.json"] = json.dumps(self.settings)
            files["tokenizer_config.json"] = f"{json.dumps(config, indent=2)}\n"
        for name, text in files.items():
            write_whole(path / name, text.encode())

    def as_data(self) -> dict[str, Any]:
        """What a page needs to cut texts itself, see `bpe.js`.

        Raises
        ------
        InvalidValueError
            It isn't GPT-2's byte pairs.
        """
        if self._gpt2 is None:
            raise InvalidValueError(
                "a page cuts texts by GPT-2's byte-pair encoding alone, and this model's tokenizer "
                "is another one; attnlab explore takes any"
            )
        added = [[token["id"], token["content"]] for token in self.settings["added_tokens"]]
        return {
            **self._gpt2.as_data(),
            "vocab": self.settings["model"]["vocab"],
            "merges": self.settings["model"]["merges"],
            "names": added,
            "asTheyAre": sorted(self.vocabulary.as_they_are),
            "rows": len(self),
        }

    def __getstate__(self) -> dict[str, object]:  # tiktoken's part can't be pickled: made anew
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    def __repr__(self) -> str:
        tokens = len(self.vocabulary.ids)
        rows = len(self) - tokens
        return f"Tokenizer of {tokens} tokens" + (f", {rows} more rows have none" if rows else "")

    def __len__(self) -> int:
        """Number of ids, with those of rows that belong to no token."""
        return len(self.vocabulary)

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        """The ids of a text's tokens.

        Added tokens that are not special are found in any text. The ids are transformers': with
        `special` of `tokenizer(text)`, else of `tokenizer(text, split_special_tokens=True)`.

        Parameters
        ----------
        text : any text; "" has no tokens but those that the model's files put around every text
        special : whether the name of a special token in the text, such as `<|endoftext|>` or
            `<|im_start|>`, is that one token, and not the plain characters

        Raises
        ------
        InvalidValueError
            The text holds half of a surrogate pair, a byte that has no token, or white space that
            is too long for tiktoken.
        """
        if not isinstance(text, str):
            raise InvalidTypeError(f"text must be a str; got {type(text).__name__}")
        special = as_flag(special, "special")
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise InvalidValueError(
                f"text has half of a surrogate pair, {text[error.start]!r}, at index {error.start}"
            ) from None
        if self._gpt2 is not None:
            ids = self._gpt2.encode(text, special)
            if ids is not None:
                return ids
        library = self._library if special else self._library_for_plain_text
        with errors_of(InvalidValueError, "text can't be cut into tokens"):
            return list(library.encode(text).ids)

    def check_length(self, text: str, most: int) -> None:
        """Raise if a text can't have as few as `most` tokens, without encoding it.

        If symbols stand for bytes, no token has more characters than its symbol.
        """
        most = as_count(most, "most")
        if not isinstance(text, str):
            raise InvalidTypeError(f"text must be a str; got {quoted(text)}")
        if len(text) > most and self._gpt2 is not None:
            room = most * self.vocabulary.longest
            if len(text) > room:
                raise InvalidValueError(
                    f"a text of {len(text):,} characters is too long: the model has {most} "
                    f"positions, which hold {room:,} characters at most; give a shorter text"
                )

    def decode(self, ids: ArrayLike) -> str:
        """The text of tokens; bytes that form no character become �.

        It is transformers' `decode(ids, clean_up_tokenization_spaces=False)`.
        """
        return self.decode_bytes(ids).decode("utf-8", errors="replace")

    def decode_bytes(self, ids: ArrayLike) -> bytes:
        """The bytes of tokens; unlike `decode`, nothing is lost if they end inside a character."""
        return self.vocabulary.decode_bytes(ids)

    def tokens(self, text_or_ids: str | ArrayLike | Tokens) -> Tokens:
        """The tokens of a text, or of ids, with symbol, text and bytes of each.

        A text is encoded as it is; `encode(text, special=True)` gives ids in which `<|endoftext|>`
        is the one token of that name.
        """
        if isinstance(text_or_ids, Tokens):
            text_or_ids = text_or_ids.ids
        ids = self.encode(text_or_ids) if isinstance(text_or_ids, str) else text_or_ids
        return self.vocabulary.tokens(ids)

    @Part
    def _gpt2(self) -> GPT2Encoding | None:
        merges = self.settings.merges
        if merges is None or not is_gpt2(self.settings):
            return None
        return GPT2Encoding(self.settings, merges)

    @Part
    def _library(self) -> tokenizers.Tokenizer:
        return _library(self.settings)

    @Part
    def _library_for_plain_text(self) -> tokenizers.Tokenizer:
        library = _library(self.settings)
        library.encode_special_tokens = True
        return library


class NoTokenizer(Tokenizer):
    """Of a model that came with none: it takes ids alone, and each id's symbol is its number.

    Parameters
    ----------
    rows : of the embedding
    """

    def __init__(self, rows: int) -> None:
        self.settings = Settings()
        self.vocabulary = Numbers({id: str(id) for id in range(rows)})

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        """No ids: there is nothing that cuts a text."""
        raise InvalidTypeError(
            "this model came without a tokenizer: give ids, or open it with tokenizer=..."
        )

    def save(self, directory: FilePath) -> None:
        """Write nothing; a directory that holds another model's tokenizer is refused."""
        if holds_tokenizer(path := as_path(directory, "directory")):
            raise InvalidValueError(
                f"this model came without a tokenizer, and {path} holds one: save it elsewhere"
            )

    def __repr__(self) -> str:
        return f"No tokenizer, {len(self)} ids"


class Numbers(Vocabulary):
    """Ids that stand for no text."""

    def _bytes_of(self, id: int) -> bytes:
        return b""


class LibraryVocabulary(Vocabulary):
    """A vocabulary whose tokens' texts only the tokenizers library knows.

    Side by side they need not be what the text is made of: WordPiece puts spaces between words. A
    token's bytes are the UTF-8 of its text alone.
    """

    def __init__(self, library: tokenizers.Tokenizer) -> None:
        super().__init__({id: symbol for symbol, id in library.get_vocab().items()})
        self._library = library

    def _bytes_of(self, id: int) -> bytes:
        return self._decoded([id])

    def decode_bytes(self, ids: ArrayLike) -> bytes:
        return self._decoded(check_ids(ids, len(self)).tolist())

    def _decoded(self, ids: list[int]) -> bytes:
        with errors_of(InvalidValueError, "tokens can't be written as text"):
            return self._library.decode(ids, skip_special_tokens=False).encode()


def _vocabulary_of_bytes(settings: Mapping[str, Any]) -> Vocabulary:
    """The vocabulary of settings whose symbols stand for bytes, and added tokens for themselves."""
    model = settings["model"]
    symbols = dict(zip(model["vocab"].values(), model["vocab"], strict=True))
    added = {token["id"]: token["content"] for token in settings["added_tokens"]}
    as_they_are = {id for id, content in added.items() if not content.isascii()}
    if as_they_are:
        made = {model["vocab"]["".join(pair)] for pair in model["merges"]}
        as_they_are -= made | {model["vocab"].get(symbol) for symbol in BYTES}
    return Vocabulary(symbols | added, as_they_are)


def _library(settings: Mapping[str, Any]) -> tokenizers.Tokenizer:
    """The tokenizers library's own tokenizer."""
    try:
        import tokenizers
    except ImportError:
        raise MissingExtraError(
            "tiktoken can't cut this text into the tokens of this vocabulary, or is not installed; "
            "tokenizers can: pip install tokenizers (attnlab's optional extra 'tokenizers')"
        ) from None
    with errors_of(VocabularyError, "the tokenizers library can't take this tokenizer.json"):
        return tokenizers.Tokenizer.from_str(json.dumps(settings))
