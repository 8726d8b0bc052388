"""A corpus as a stream: texts with names, in chunks for the workers."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from attnlab.errors import InvalidTypeError, InvalidValueError, MissingFileError, shown
from attnlab.files import as_path, decoded_text, open_regular

# The most bytes of one text. What is longer is several, so that none need be held whole.
LONGEST = 1_000_000


class Text(NamedTuple):
    """One text of a corpus.

    Attributes
    ----------
    name : such as "line 7", "book/one.txt" or "text 0"
    content : UTF-8; empty where it can't be read
    fault : why not; empty where it can
    """

    name: str
    content: bytes
    fault: str = ""

    def decoded(self) -> str:
        """What it says; line ends are `\\n`.

        Raises
        ------
        InvalidValueError
            It can't be read.
        """
        if self.fault:
            raise InvalidValueError(self.fault)
        return decoded_text(self.content, self.name, InvalidValueError).removesuffix("\n")


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
            yield Text(name, b"", f"it is no text: {shown(text)}")
            continue
        try:
            content = text.encode()
        except UnicodeEncodeError:
            yield Text(name, b"", "it has half of a surrogate pair, which is no character")
            continue
        yield from _named(name, _parts(io.BytesIO(content).read))


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
                yield from _named(f"line {number}", parts, first)


def _of_directory(directory: Path) -> Iterator[Text]:
    for place, folders, files in os.walk(directory):
        folders.sort()
        for file in (Path(place, name) for name in sorted(files) if not name.startswith(".")):
            name = file.relative_to(directory).as_posix()
            try:
                with open_regular(file) as stream:
                    yield from _named(name, _parts(stream.read))
            except OSError as error:
                yield Text(name, b"", f"it can't be read: {error.strerror or error}")


def _named(name: str, parts: Iterator[bytes], first: bytes | None = None) -> Iterator[Text]:
    """The parts of one text, the second and further ones numbered."""
    here = next(parts, b"") if first is None else first
    yield Text(name, here)
    for number, part in enumerate(parts, 2):
        yield Text(f"{name}, part {number}", part)


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
