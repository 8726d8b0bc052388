"""Read a corpus as a stream of named texts, in chunks for the workers."""

from __future__ import annotations

import csv
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

# Files of records have their texts in the field or column FIELD. TABLES has tables' delimiters.
FIELD = "text"
JSON_LINES = (".jsonl", ".ndjson", ".json")
TABLES = {".csv": ",", ".tsv": "\t"}
EXAMPLE = '{"text": "Hello"}'

# The number of bytes at a file's start that show whether it is a text.
START = 8192

# No model has larger ids. A model's own limit is checked when the model reads the ids.
LARGEST_ID = 2**31

# A str with more characters is a text, not a path. A shorter str that matches the pattern, since it
# has a separator or a file's ending, is a path, such as "no/such.md".
MAX_PATH = 1024
PATH_PATTERN = r"[/\\]|\.[A-Za-z]\w{0,7}$"


class Text(NamedTuple):
    """One text of a corpus."""

    name: str  # such as "line 7", "book/one.txt" or "text 0"
    content: str
    fault: str = ""  # why the text can't be read; content is empty then
    ids: tuple[int, ...] = ()  # the ids, if the corpus has ids; content is empty then


class Chunk(NamedTuple):
    """Texts for one task of a worker."""

    number: int
    first: int  # the number of the first text
    texts: tuple[Text, ...]


def chunks_of(texts: Any, size: int) -> Iterator[Chunk]:
    """Split a corpus into chunks of `size` texts, or of fewer texts if these are long."""
    pending: list[Text] = []
    numbers = count()
    first = 0
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
        # os.walk visits the folders that are left in this list.
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        linked = [name for name in folders if os.path.islink(Path(parent, name))]
        names = sorted(name for name in (*files, *linked) if not name.startswith("."))
        for file in (Path(parent, name) for name in names):
            name = printable(file.relative_to(directory).as_posix())  # a name may not be Unicode
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
    return path.suffix.lower() in (*JSON_LINES, *TABLES)


def _texts_in_records(path: Path) -> Iterator[Text]:
    """The texts of JSON Lines or of a table; raise if the first record has no text."""
    is_table = path.suffix.lower() in TABLES
    for number, text in enumerate(_texts_in_table(path) if is_table else _texts_in_json(path)):
        fault = text.fault and f"{path.name}, {text.name}, {text.fault}"
        if fault and number == 0:
            raise InvalidValueError(f"{fault}, or pass the texts themselves: a list of strings")
        yield text._replace(fault=fault)


def _text_of(record: Mapping[str, Any], name: str, kind: str) -> Text:
    """The text of a record, or its fault."""
    if isinstance(text := record.get(FIELD), str):
        return Text(name, text)
    names = ", ".join(map(quoted, record))
    fault = f'has no "{FIELD}" {kind} with a text; it has {names}. Rename the {kind}'
    return Text(name, "", fault)


def _lines_of(path: Path) -> Iterator[bytes]:
    """A file's lines, each with `\\n` at its end; the file may have `\\r\\n` or `\\r` there."""
    with reading(path, InvalidValueError):
        stream = open_regular(path)
    # Python finds all three line ends only in text, and Latin-1 keeps every byte.
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


def _decoded_lines_of(path: Path) -> Iterator[str]:
    # Invalid bytes become unpaired surrogates, which are reported when a text is measured.
    return (line.decode(UTF_8, "surrogateescape") for line in _lines_of(path))


def _texts_in_json(path: Path) -> Iterator[Text]:
    """The texts of JSON Lines: strings, or objects with a field of texts."""
    for number, line in enumerate(_decoded_lines_of(path), 1):
        if not line.strip():
            continue
        name = f"line {number}"
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, dict):
            yield _text_of(value, name, "field")
        elif isinstance(value, str):
            yield Text(name, value)
        else:
            fault = f"isn't a record in JSON. Write one in each line, such as {EXAMPLE}"
            yield Text(name, "", fault)


def _texts_in_table(path: Path) -> Iterator[Text]:
    """The texts of a table's rows; a row with too many or too few cells has a fault."""
    # The limit is a C long, which has 32 bits on Windows. It holds for the whole process, so a
    # higher limit that is already set stays.
    csv.field_size_limit(max(csv.field_size_limit(), 2**31 - 1))
    delimiter = TABLES[path.suffix.lower()]
    rows = csv.reader(
        _decoded_lines_of(path),
        delimiter=delimiter,
        # In a .tsv file, quotation marks have no meaning.
        quoting=csv.QUOTE_NONE if delimiter == "\t" else csv.QUOTE_MINIMAL,
        strict=True,
    )
    line = 1  # the number of a row's first line
    try:
        header = next(rows, [])
        if header.count(FIELD) > 1:
            raise InvalidValueError(f'{path} has two columns "{FIELD}". Rename one of them')
        line = rows.line_num + 1
        for number, row in enumerate(filter(None, rows), 1):  # `filter` skips blank lines
            name = f"row {number}"
            if len(row) == len(header):
                yield _text_of(dict(zip(header, row, strict=True)), name, "column")
            else:
                advice = "" if delimiter == "\t" else "; quote a cell that has a comma"
                fault = f"line {line}, has {len(row)} cells for {len(header)} columns{advice}"
                yield Text(name, "", fault)
            line = rows.line_num + 1
    except csv.Error as error:
        raise InvalidValueError(
            f"{path} can't be read as a table from line {line} on: {error}. Look for a quotation "
            "mark too many or too few"
        ) from None


def read_corpus(corpus: str | os.PathLike[str]) -> str:
    """Read a corpus as one text: a file, all texts of a directory, or a str that isn't a path.

    Texts of records and of directories are joined by line breaks. Raise if a text can't be read.
    """
    if isinstance(corpus, str):
        may_be_path = len(corpus) < MAX_PATH and corpus.strip() and not re.search("[\n\0]", corpus)
        if not may_be_path:
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
