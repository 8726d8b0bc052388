"""A corpus as a stream: texts with names, in chunks for the workers."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count, starmap
from pathlib import Path
from typing import Any, NamedTuple

from attnlab.errors import InvalidTypeError, InvalidValueError, MissingFileError, shown
from attnlab.support.checks import attribute
from attnlab.support.files import as_path, decoded_text, open_regular

# The most bytes of one text. What is longer is several, so that none need be held whole.
LONGEST = 1_000_000


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
        if len(taken) == size or sum(len(text.content) for text in taken) >= LONGEST:
            yield Chunk(next(numbers), first, tuple(taken))
            first += len(taken)
            taken = []
    if taken:
        yield Chunk(next(numbers), first, tuple(taken))


def texts_of(given: Any) -> Iterator[Text]:
    """The texts of an iterable, of a file of lines, or of the files in a directory.

    Raises
    ------
    InvalidTypeError, InvalidValueError, MissingFileError
        It is none of these; there is no such file, or it can't be read.
    """
    if isinstance(given, str | os.PathLike):
        path = as_path(given, "texts")
        if path.is_dir():
            return _of_directory(path)
        if not path.exists():
            raise MissingFileError(
                f"there is no {shown(str(path))}: texts are a list of them or another iterable, a "
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
            f"directory with one in each file; given {shown(given)}"
        )
    return _of_iterable(given)


def _of_iterable(given: Iterable[Any]) -> Iterator[Text]:
    for number, text in enumerate(given):
        name = f"text {number}"
        if not isinstance(text, str):
            yield Text(name, "", f"it is no text: {shown(text)}")
            continue
        try:
            content = text.encode()
        except UnicodeEncodeError:
            yield Text(name, "", "it has half of a surrogate pair, which is no character")
            continue
        for part_name, part in _named(name, _parts(io.BytesIO(content).read)):
            yield Text(part_name, part.decode())


def _of_lines(path: Path) -> Iterator[Text]:
    try:
        stream = open_regular(path)
    except OSError as error:
        raise InvalidValueError(f"{path} can't be read: {error.strerror or error}") from None
    with stream:
        for number in count(1):
            parts = _parts(stream.readline, ends=b"\n")
            first = next(parts, None)
            if first is None:
                return
            if first.strip():
                yield from starmap(Text.of_file, _named(f"line {number}", parts, first))


def _of_directory(directory: Path) -> Iterator[Text]:
    for place, folders, files in os.walk(directory):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for file in (Path(place, name) for name in sorted(files) if not name.startswith(".")):
            name = file.relative_to(directory).as_posix()
            try:
                with open_regular(file) as stream:
                    yield from starmap(Text.of_file, _named(name, _parts(stream.read)))
            except OSError as error:
                yield Text(name, "", f"it can't be read: {error.strerror or error}")


def _named(
    name: str, parts: Iterator[bytes], first: bytes | None = None
) -> Iterator[tuple[str, bytes]]:
    """The parts of one text with names, the second and further ones numbered."""
    yield name, next(parts, b"") if first is None else first
    for number, part in enumerate(parts, 2):
        yield f"{name}, part {number}", part


def _parts(read: Callable[[int], bytes], ends: bytes | None = None) -> Iterator[bytes]:
    """One text, of which `read` gives so many bytes at a time, in parts that are not too long.

    It ends where nothing follows, or with `ends`.
    """
    rest = b""
    while more := read(LONGEST - len(rest)):
        piece = rest + more
        if len(piece) < LONGEST or (ends is not None and more.endswith(ends)):
            yield piece
            return
        cut = _cut(piece)
        yield piece[:cut]
        rest = piece[cut:]
    if rest:
        yield rest


def _cut(piece: bytes) -> int:
    """Where a text that goes on is cut: before its last word, else before its last character."""
    space = piece.rfind(b" ", 1)
    if space > 0:
        return space
    end = len(piece) - 1
    while end > 1 and piece[end] & 0b1100_0000 == 0b1000_0000:  # a character's further bytes
        end -= 1
    return end
