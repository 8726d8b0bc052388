"""Read a corpus as a stream of named texts, in chunks for the workers."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sized
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from attnlab.errors import (
    AttnlabError,
    InvalidTypeError,
    InvalidValueError,
    MissingFileError,
    quoted,
)
from attnlab.support.checks import attribute
from attnlab.support.files import as_path, decode_text, open_regular, read_bytes, reading

# A chunk ends once it has this many characters.
MAX_CHARACTERS = 1_000_000

EXPECTED = (
    "texts must be an iterable of strings, a file with one text per line, or a directory with "
    "one text per file"
)


class Text(NamedTuple):
    """One text of a corpus."""

    name: str  # such as "line 7", "book/one.txt" or "text 0"
    content: str
    fault: str = ""  # why it can't be read; content is empty then

    @classmethod
    def from_file(cls, name: str, content: bytes) -> Text:
        """Decode a file's text, without its final line break; line breaks become `\\n`."""
        try:
            return cls(name, decode_text(content, name, InvalidValueError).removesuffix("\n"))
        except InvalidValueError as error:
            return cls(name, "", str(error))


class Chunk(NamedTuple):
    """Texts for one task, with the chunk's number and its first text's number."""

    number: int
    first: int
    texts: tuple[Text, ...]


def chunks_of(texts: Any, size: int) -> Iterator[Chunk]:
    """Split a corpus into chunks of `size` texts, or fewer if they are long."""
    pending: list[Text] = []
    numbers, first = count(), 0
    for text in texts_of(texts):
        pending.append(text)
        if len(pending) == size or sum(len(text.content) for text in pending) >= MAX_CHARACTERS:
            yield Chunk(next(numbers), first, tuple(pending))
            first += len(pending)
            pending = []
    if pending:
        yield Chunk(next(numbers), first, tuple(pending))


def count_of(texts: Any) -> int | None:
    """How many texts a corpus has; None if that is unknown before it is read."""
    if isinstance(texts, str | os.PathLike):
        path = as_path(texts, "texts")
        if os.path.isdir(path):
            return sum(1 for _ in _files_of(path))
        try:
            with open_regular(path) as stream:
                return sum(1 for line in stream if line.strip())
        except OSError:
            return None
    return len(texts) if isinstance(texts, Sized) else None


def texts_of(texts: Any) -> Iterator[Text]:
    """The texts of an iterable, a file of lines, or a directory of files."""
    if isinstance(texts, str | os.PathLike):
        path = as_path(texts, "texts")
        if os.path.isdir(path):
            return _texts_in_directory(path)
        if not os.path.exists(path):
            raise MissingFileError(f"{quoted(str(path))} not found; {EXPECTED}")
        return _texts_in_lines(path)
    is_table = any(attribute(texts, name) is not None for name in ("columns", "column_names"))
    if is_table or isinstance(texts, Mapping):
        raise InvalidTypeError(
            f"iterating over a {type(texts).__name__} gives its keys or rows, not its texts; "
            "pass the texts, such as df['text'] or (row['text'] for row in rows)"
        )
    if not isinstance(texts, Iterable) or isinstance(texts, bytes):
        raise InvalidTypeError(f"{EXPECTED}; got {quoted(texts)}")
    return _texts_in_iterable(texts)


def _texts_in_iterable(texts: Iterable[Any]) -> Iterator[Text]:
    for number, text in enumerate(texts):
        fault = "" if isinstance(text, str) else f"not a string: {quoted(text)}"
        yield Text(f"text {number}", "" if fault else text, fault)


def _texts_in_lines(path: Path) -> Iterator[Text]:
    with reading(path, InvalidValueError):
        stream = open_regular(path)
    with stream:
        for number, line in enumerate(stream, 1):
            if line.strip():
                yield Text.from_file(f"line {number}", line)


def _texts_in_directory(directory: Path) -> Iterator[Text]:
    for file in _files_of(directory):
        name = file.relative_to(directory).as_posix()
        try:
            yield Text.from_file(name, read_bytes(file, InvalidValueError))
        except AttnlabError as error:
            yield Text(name, "", str(error))


def _files_of(directory: Path) -> Iterator[Path]:
    for parent, folders, files in os.walk(directory):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(parent, name) for name in sorted(files) if not name.startswith("."))
