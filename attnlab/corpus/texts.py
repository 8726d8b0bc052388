"""A corpus as a stream: texts with names, in chunks for the workers."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
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
from attnlab.support.files import as_path, decoded_text, open_regular, read_bytes

# A chunk has no more texts once it has so many characters.
LONG = 1_000_000


class Text(NamedTuple):
    """One text of a corpus.

    Attributes
    ----------
    name : such as "line 7", "book/one.txt" or "text 0"
    content : what is measured; empty where it can't be read
    fault : why not; empty where it can
    """

    name: str
    content: str
    fault: str = ""

    @classmethod
    def of_file(cls, name: str, content: bytes) -> Text:
        """As files have it: line ends are `\\n`, and the last one does not count."""
        try:
            return cls(name, decoded_text(content, name, InvalidValueError).removesuffix("\n"))
        except InvalidValueError as error:
            return cls(name, "", str(error))


class Chunk(NamedTuple):
    """Some texts that a worker takes at once.

    Attributes
    ----------
    number : of the chunk, from 0
    first : the first text's number
    texts : in order
    """

    number: int
    first: int
    texts: tuple[Text, ...]


def chunks_of(texts: Any, size: int) -> Iterator[Chunk]:
    """A corpus in chunks of so many texts, or of fewer where they are long.

    Parameters
    ----------
    texts, size : as `atlas` takes texts and chunk
    """
    taken: list[Text] = []
    numbers, first = count(), 0
    for text in texts_of(texts):
        taken.append(text)
        if len(taken) == size or sum(len(text.content) for text in taken) >= LONG:
            yield Chunk(next(numbers), first, tuple(taken))
            first += len(taken)
            taken = []
    if taken:
        yield Chunk(next(numbers), first, tuple(taken))


def texts_of(given: Any) -> Iterator[Text]:
    """The texts of an iterable, of a file of lines, or of the files in a directory."""
    if isinstance(given, str | os.PathLike):
        path = as_path(given, "texts")
        if path.is_dir():
            return _of_directory(path)
        if not path.exists():
            raise MissingFileError(
                f"there is no {quoted(str(path))}: texts are a list of them or another iterable, a "
                "file with one on each line, or a directory with one in each file"
            )
        return _of_lines(path)
    if isinstance(given, Mapping) or attribute(given, "columns") is not None:
        raise InvalidTypeError(
            f"of a {type(given).__name__} the names of what is in it would be measured: give the "
            "texts alone, such as df['text']"
        )
    if not isinstance(given, Iterable) or isinstance(given, bytes):
        raise InvalidTypeError(
            "texts are a list of them or another iterable, a file with one on each line, or a "
            f"directory with one in each file; given {quoted(given)}"
        )
    return _of_iterable(given)


def _of_iterable(given: Iterable[Any]) -> Iterator[Text]:
    for number, text in enumerate(given):
        name = f"text {number}"
        if not isinstance(text, str):
            yield Text(name, "", f"it is no text: {quoted(text)}")
            continue
        try:
            text.encode()
        except UnicodeEncodeError:
            yield Text(name, "", "it has half of a surrogate pair, which is no character")
        else:
            yield Text(name, text)


def _of_lines(path: Path) -> Iterator[Text]:
    try:
        stream = open_regular(path)
    except OSError as error:
        raise InvalidValueError(f"{path} can't be read: {error.strerror or error}") from None
    with stream:
        for number, line in enumerate(stream, 1):
            if line.strip():
                yield Text.of_file(f"line {number}", line)


def _of_directory(directory: Path) -> Iterator[Text]:
    for place, folders, files in os.walk(directory):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for file in (Path(place, name) for name in sorted(files) if not name.startswith(".")):
            name = file.relative_to(directory).as_posix()
            try:
                yield Text.of_file(name, read_bytes(file, InvalidValueError))
            except AttnlabError as error:
                yield Text(name, "", str(error))
