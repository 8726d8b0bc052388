"""Text to token ids and back, and what each token is made of.

GPT-2 cuts text into pieces with one regular expression, writes each piece as UTF-8 bytes, and
merges neighbouring bytes, most frequent pairs first (byte-pair encoding). tiktoken does that
here, built from the checkpoint's own `vocab.json` and `merges.txt`, so nothing is downloaded.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from numpy.typing import ArrayLike

from attnlab.errors import InvalidTypeError, InvalidValueError, VocabularyError
from attnlab.files import read_json, read_text, write_whole
from attnlab.steps import Part
from attnlab.tokens import END_OF_TEXT, Tokens, Vocabulary, byte_symbols

if TYPE_CHECKING:
    import tiktoken

# How text is cut before bytes are merged. Source: GPT-2's `encoder.py`.
PIECES = (
    r"'s|'t|'re|'ve|'m|'ll|'d"
    r"| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+"
    r"|\s+(?!\S)|\s+"
)


class Tokenizer:
    """GPT-2's byte-level byte-pair encoding, with the vocabulary that is given.

    Parameters
    ----------
    vocabulary : symbol -> id, as in `vocab.json`
    merges : pairs of symbols, most frequent first, as in `merges.txt`

    Attributes
    ----------
    vocabulary : Vocabulary, what each id stands for

    Raises
    ------
    VocabularyError
        Bytes are missing, ids leave gaps, or the merges and the vocabulary do not fit.

    Notes
    -----
    Nothing is put in front of a text and nothing in it is changed: no marker at the start, no
    Unicode normalisation, no straightened quotes.
    """

    def __init__(self, vocabulary: dict[str, int], merges: Sequence[tuple[str, str]]) -> None:
        _check_vocabulary(vocabulary, merges)
        self._merges = tuple(merges)
        to_bytes = {ord(symbol): chr(byte) for byte, symbol in enumerate(byte_symbols())}
        symbols = sorted(vocabulary, key=vocabulary.__getitem__)
        self.vocabulary = Vocabulary(
            symbols,
            (
                (symbol if symbol == END_OF_TEXT else symbol.translate(to_bytes)).encode("latin-1")
                for symbol in symbols
            ),
        )

    @classmethod
    def from_directory(cls, directory: str | Path) -> Tokenizer:
        """The tokenizer in a directory's `vocab.json` and `merges.txt`.

        Raises
        ------
        MissingFileError
            One of the two files is not there.
        VocabularyError
            One can't be read, or they do not fit each other.
        """
        vocab_file, merges_file = Path(directory) / "vocab.json", Path(directory) / "merges.txt"
        try:
            return cls(_read_vocabulary(vocab_file), _read_merges(merges_file))
        except VocabularyError as error:
            if str(directory) in str(error):
                raise
            raise VocabularyError(f"vocabulary in {directory}: {error}") from None

    @classmethod
    def of_bytes(cls) -> Tokenizer:
        """The tokenizer whose 256 tokens are the single bytes: no vocabulary to be learned."""
        return cls({symbol: byte for byte, symbol in enumerate(byte_symbols())}, [])

    def save(self, directory: str | Path) -> None:
        """Write `vocab.json` and `merges.txt`.

        Raises
        ------
        WriteError
            The directory can't be written to.
        """
        vocabulary = {symbol: id for id, symbol in enumerate(self.vocabulary.symbols)}
        text = json.dumps(vocabulary, ensure_ascii=False)
        merges = "".join(f"{first} {second}\n" for first, second in self._merges)
        write_whole(Path(directory) / "vocab.json", text.encode())
        write_whole(Path(directory) / "merges.txt", f"#version: 0.2\n{merges}".encode())

    def __getstate__(
        self,
    ) -> dict[str, object]:  # tiktoken's part can't be pickled, and is made anew
        return {name: value for name, value in vars(self).items() if name != "_encoding"}

    @Part
    def _encoding(self) -> tiktoken.Encoding:
        import tiktoken  # here, so that only who has a text waits for it

        ranks = {token: id for id, token in enumerate(self.vocabulary.bytes)}
        end = END_OF_TEXT.encode()
        special = {END_OF_TEXT: ranks.pop(end)} if end in ranks else {}
        return tiktoken.Encoding(
            "attnlab", pat_str=PIECES, mergeable_ranks=ranks, special_tokens=special
        )

    def __repr__(self) -> str:
        return f"Tokenizer of {len(self)} tokens"

    def __len__(self) -> int:
        """Number of tokens in the vocabulary."""
        return len(self.vocabulary)

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        """The ids of a text's tokens.

        Parameters
        ----------
        text : any text; "" has no tokens
        special : whether `<|endoftext|>` in the text is the one token of that name, and not the
            plain characters

        Raises
        ------
        InvalidTypeError
            `text` is not a str.
        InvalidValueError
            It holds half of a surrogate pair, which is no character and has no UTF-8 bytes; or
            white space that is too long for tiktoken.
        """
        if not isinstance(text, str):
            raise InvalidTypeError(f"text must be a str; given {type(text).__name__}")
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise InvalidValueError(
                f"text has half of a surrogate pair, {text[error.start]!r}, at index {error.start}"
            ) from None
        allowed = {END_OF_TEXT} if special else set()
        encoding = self._encoding
        try:
            return encoding.encode(text, allowed_special=allowed, disallowed_special=())
        except ValueError as error:  # its regular expression gives up on a million spaces
            raise InvalidValueError(f"text can't be cut into tokens: {error}") from None

    def decode(self, ids: ArrayLike) -> str:
        """The text of tokens; bytes that form no character become �.

        Raises
        ------
        InvalidTypeError, InvalidValueError
            As `check_ids` does.
        """
        return self.decode_bytes(ids).decode("utf-8", errors="replace")

    def decode_bytes(self, ids: ArrayLike) -> bytes:
        """The bytes of tokens; unlike `decode`, nothing is lost where they end inside a character.

        Raises
        ------
        InvalidTypeError, InvalidValueError
            As `check_ids` does.
        """
        return self.vocabulary.decode_bytes(ids)

    def tokens(self, text_or_ids: str | ArrayLike | Tokens) -> Tokens:
        """The tokens of a text, or of ids, with symbol, text and bytes of each.

        A text is encoded as it is; `encode(text, special=True)` gives ids in which `<|endoftext|>`
        is the one token of that name.

        Raises
        ------
        InvalidTypeError, InvalidValueError
            As `encode` and `check_ids` do.
        """
        if isinstance(text_or_ids, Tokens):
            text_or_ids = text_or_ids.ids
        ids = self.encode(text_or_ids) if isinstance(text_or_ids, str) else text_or_ids
        return self.vocabulary.tokens(ids)


def _read_vocabulary(path: Path) -> dict[str, int]:
    vocabulary = read_json(path, VocabularyError)
    wrong = [symbol for symbol, id in vocabulary.items() if type(id) is not int]
    if wrong:
        raise VocabularyError(f"{path}: the id of {wrong[0]!r} is no integer")
    return vocabulary


def _read_merges(path: Path) -> list[tuple[str, str]]:
    merges = []
    for number, line in enumerate(read_text(path, VocabularyError).split("\n"), start=1):
        if not line.strip() or (number == 1 and line.startswith("#version")):
            continue
        pair = line.split(" ")
        if len(pair) != 2:
            raise VocabularyError(f"{path}, line {number}: two symbols expected, found {line!r}")
        merges.append((pair[0], pair[1]))
    return merges


def _check_vocabulary(vocabulary: dict[str, int], merges: Sequence[tuple[str, str]]) -> None:
    """Refuse what tiktoken would panic about, or silently encode in another way than GPT-2.

    tiktoken knows no merges, only ranks: of all neighbours whose union is a token, it joins those
    with the lowest id first. That is the order of `merges.txt` when each merge makes a new token
    and their ids grow from merge to merge, as they do in what GPT-2's training wrote.
    """
    if sorted(vocabulary.values()) != list(range(len(vocabulary))):
        raise VocabularyError(f"the {len(vocabulary)} ids are not 0 to {len(vocabulary) - 1}")
    missing = [byte for byte, symbol in enumerate(byte_symbols()) if symbol not in vocabulary]
    if missing:
        raise VocabularyError(
            f"{len(missing)} of the 256 bytes have no token, the first is 0x{missing[0]:02x}: "
            "not every text could be encoded"
        )
    newest, made = -1, set[str]()
    for number, (first, second) in enumerate(merges, start=1):
        for symbol in (first, second, first + second):
            if symbol not in vocabulary:
                raise VocabularyError(f"merge {number} needs {symbol!r}, which has no id")
        merged = vocabulary[first + second]
        if merged <= newest:
            raise VocabularyError(
                f"merge {number}, {first} {second}, makes id {merged}, after id {newest}: "
                "the ids must grow in the order of the merges"
            )
        newest = merged
        made.add(first + second)
    other = sorted(vocabulary.keys() - made - {*byte_symbols(), END_OF_TEXT})
    if other:
        raise VocabularyError(
            f"{len(other)} tokens are neither a byte, nor made by a merge, nor {END_OF_TEXT}; "
            f"the first is {other[0]!r}"
        )
