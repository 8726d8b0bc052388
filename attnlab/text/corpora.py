"""Read a corpus as a stream of named texts, in chunks for the workers."""

from __future__ import annotations

import io
import json
import os
import re
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
from attnlab.support.files import (
    UTF_8,
    as_path,
    check_is_text,
    decode_text,
    open_regular,
    read_text,
    reading,
)
from attnlab.support.tables import printable
from attnlab.text.tokens import Tokens, check_ids

# A chunk ends once it has this many characters.
MAX_CHARACTERS = 1_000_000

EXPECTED = (
    "texts must be an iterable of strings, a file with one text per line, or a directory with "
    "one text per file"
)

# Files of records, whose texts are in the field with this name; and files that are refused.
FIELD = "text"
RECORDS = (".jsonl", ".ndjson", ".json")
TABLES = (".csv", ".tsv")
EXAMPLE = '{"text": "Hello"}'

# How many bytes tell a text from other files.
START = 8192

# Any id is smaller; the model's own limit is checked when it reads them.
LARGEST_ID = 2**31

# A str with more characters is a text, not a path; a shorter one with a separator or one of these
# endings, such as "no/such.md", is a path.
MAX_PATH = 1024
PATH_PATTERN = r"[/\\]|\.[A-Za-z]\w{0,7}$"


class Text(NamedTuple):
    """One text of a corpus."""

    name: str  # such as "line 7", "book/one.txt" or "text 0"
    content: str
    fault: str = ""  # why it can't be read; content is empty then
    ids: tuple[int, ...] = ()  # its tokens, if these are given; content is empty then


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
        if (
            len(pending) == size
            or sum(len(text.content or text.ids) for text in pending) >= MAX_CHARACTERS
        ):
            yield Chunk(next(numbers), first, tuple(pending))
            first += len(pending)
            pending = []
    if pending:
        yield Chunk(next(numbers), first, tuple(pending))


def texts_of(texts: Any) -> Iterator[Text]:
    """The texts of an iterable, a file of lines, or a directory of files."""
    if isinstance(texts, str | os.PathLike):
        path = as_path(texts, "texts")
        if os.path.isdir(path):
            return _texts_in_directory(path)
        if not os.path.exists(path):
            raise MissingFileError(f"{quoted(str(path))} not found; {EXPECTED}")
        return _texts_in_records(path) if _has_records(path) else _texts_in_lines(path)
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
        name = f"text {number}"
        if isinstance(text, str):
            yield Text(name, text)
            continue
        try:
            ids = check_ids(text.ids if isinstance(text, Tokens) else text, LARGEST_ID)
            yield Text(name, "", ids=tuple(ids.tolist()))
        except AttnlabError:
            yield Text(name, "", f"not a string, Tokens or ids: {quoted(text)}")


def _texts_in_directory(directory: Path) -> Iterator[Text]:
    root = directory.resolve()
    for parent, folders, files in os.walk(directory):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        linked = [name for name in folders if os.path.islink(Path(parent, name))]
        names = sorted(name for name in (*files, *linked) if not name.startswith("."))
        for file in (Path(parent, name) for name in names):
            name = printable(file.relative_to(directory).as_posix())  # it may not be Unicode
            try:
                if file.name in linked or not file.resolve().is_relative_to(root):
                    raise InvalidValueError(
                        f"{name} is a link to a directory, or out of {directory}: it isn't "
                        "followed. Give what it links to, or a copy"
                    )
                if _has_records(file):
                    for text in _texts_in_records(file):
                        yield text._replace(name=f"{name}, {text.name}")
                else:
                    yield Text(name, read_text(file, InvalidValueError).removesuffix("\n"))
            except AttnlabError as error:
                yield Text(name, "", str(error))


def _has_records(path: Path) -> bool:
    suffix = path.suffix.lower()
    if suffix in TABLES:  # as lines of text, its texts would be cut, and its other columns read
        raise InvalidValueError(
            f"{path.name} is a table, which isn't read. Give its texts instead: "
            "(row['text'] for row in csv.DictReader(open(path, newline='')))"
        )
    return suffix in RECORDS


def _texts_in_records(path: Path) -> Iterator[Text]:
    """The texts of JSON Lines; raise if the first record has none."""
    is_first = True
    for number, line in enumerate(_lines_of(path), 1):
        if not line.strip():
            continue
        # Bytes that aren't UTF-8 become lone surrogates, reported when a text is measured.
        text, fault = _text_of(line.decode(UTF_8, "surrogateescape"))
        if fault:
            fault = f"{path.name}, line {number}, {fault}"
        if fault and is_first:
            raise InvalidValueError(f"{fault}, or pass the texts themselves: a list of strings")
        yield Text(f"line {number}", text, fault)
        is_first = False


def _text_of(record: str) -> tuple[str, str]:
    """The text of a record, which is a string or an object with a field of text; or its fault."""
    try:
        text = json.loads(record)
    except (ValueError, RecursionError):
        text = None
    fault = f"isn't a record in JSON. Write one in each line, such as {EXAMPLE}"
    if isinstance(text, dict):
        names = ", ".join(map(quoted, text))
        fault = f'has no "{FIELD}" field with a text; it has {names}. Rename the field'
        text = text.get(FIELD)
    return (text, "") if isinstance(text, str) else ("", fault)


def _lines_of(path: Path) -> Iterator[bytes]:
    """A file's lines; each ends with `\\n`, where the file may have `\\r\\n` or `\\r`."""
    with reading(path, InvalidValueError):
        stream = open_regular(path)
    # Latin-1 keeps every byte; Python finds all three line ends only in text.
    with io.TextIOWrapper(stream, "latin-1") as lines:
        check_is_text(stream.read(START), path, InvalidValueError)
        stream.seek(0)
        for line in lines:
            yield line.encode("latin-1")


def _texts_in_lines(path: Path) -> Iterator[Text]:
    for number, line in enumerate(_lines_of(path), 1):
        if line.strip():
            name = f"line {number}"
            try:
                text = decode_text(line, name, InvalidValueError)
                yield Text(name, text.removesuffix("\n"))
            except InvalidValueError as error:
                yield Text(name, "", str(error))


def read_corpus(corpus: str | os.PathLike[str]) -> str:
    """A corpus as one text: that of a file or of all texts of a directory; a str that isn't one.

    Texts of records and of directories are joined by line breaks. Raise if a text can't be read.
    """
    is_short = not isinstance(corpus, str) or (len(corpus) < MAX_PATH and "\n" not in corpus)
    if isinstance(corpus, str) and not (is_short and corpus.strip() and "\0" not in corpus):
        return corpus
    path = as_path(corpus, "corpus")
    if not os.path.exists(path):
        if isinstance(corpus, str) and not re.search(PATH_PATTERN, corpus):
            return corpus
        raise MissingFileError(
            f"{quoted(str(path))} not found; corpus must be a text, its ids, or a file of text. A "
            "text that looks like a path needs a line break at its end"
        )
    if not (os.path.isdir(path) or _has_records(path)):
        return read_text(path, InvalidValueError)
    texts = [*texts_of(path)]
    for text in texts:
        if text.fault:
            raise InvalidValueError(text.fault)
    return "\n".join(text.content for text in texts)
