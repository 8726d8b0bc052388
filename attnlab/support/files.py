"""Check paths, read small files, and write files atomically."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from attnlab.errors import (
    AttnlabError,
    InvalidTypeError,
    InvalidValueError,
    MissingFileError,
    WriteError,
    quoted,
)
from attnlab.support.checks import with_article

# The most bytes of a file that is read into memory. The largest known tokenizer.json is 35 MB.
LARGEST_FILE = 64_000_000

# The start of a temporary file's name.
TEMPORARY = ".attnlab-"

# UTF-8 with or without a byte order mark.
UTF_8 = "utf-8-sig"

FilePath = str | os.PathLike[str]


def as_path(path: FilePath, name: str = "path") -> Path:
    """Check a path and expand `~`; `name` is for error messages."""
    try:
        text = os.fspath(path)
    except Exception:  # __fspath__ may raise anything
        text = None
    if not isinstance(text, str):
        raise InvalidTypeError(f"{name} must be a str or a Path; got {quoted(path)}")
    if not text:
        raise InvalidValueError(f"{name} is empty. Give a file or directory")
    try:
        if b"\0" in os.fsencode(text):
            raise ValueError
    except ValueError:  # includes UnicodeEncodeError
        raise InvalidValueError(
            f"{name} has a character that file names can't have: {quoted(text)}"
        ) from None
    expanded = Path(os.path.expanduser(text))
    # If the file's name starts with ~, its path is made absolute: a second call must not expand it.
    return expanded.absolute() if str(expanded).startswith("~") else expanded


@contextlib.contextmanager
def reading(file: Path, error_type: type[AttnlabError]) -> Iterator[None]:
    """Turn the system's errors into `error_type`, or a MissingFileError if there is no file."""
    try:
        yield
    except FileNotFoundError:
        raise MissingFileError(f"there is no {file.name} in {file.parent}") from None
    except OSError as error:
        raise error_type(f"{file} can't be read: {reason_of(error)}") from None


def read_bytes(path: FilePath, error_type: type[AttnlabError]) -> bytes:
    """Read a file; raise if it is larger than LARGEST_FILE."""
    file = as_path(path)
    with reading(file, error_type), open_regular(file) as stream:
        content = stream.read(LARGEST_FILE + 1)
    if len(content) > LARGEST_FILE:
        raise error_type(f"{file} can't be read: it is larger than {LARGEST_FILE:,} bytes")
    return content


def open_regular(file: Path) -> BinaryIO:
    """Open a regular file for reading; raise OSError for a pipe or device, which may never end."""
    _check_regular(file)
    return open(file, "rb")


def check_is_text(start: bytes, source: object, error_type: type[AttnlabError]) -> None:
    """Raise if a file that starts with these bytes is binary; `source` is for the message."""
    if b"\0" in start:
        raise error_type(
            f"{source} can't be read as text: it is binary. Save its text as a .txt file in UTF-8"
        )


def read_text(path: FilePath, error_type: type[AttnlabError]) -> str:
    """Read text in UTF-8; newlines become `\\n`."""
    return decode_text(read_bytes(path, error_type), as_path(path), error_type)


def decode_text(content: bytes, source: object, error_type: type[AttnlabError]) -> str:
    """Decode bytes as `read_text` does; `source` is for error messages."""
    check_is_text(content, source, error_type)
    text = _decode(content, source, error_type)
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_json(path: FilePath, error_type: type[AttnlabError]) -> dict[str, Any]:
    """Read a file that contains one JSON object."""
    return parse_json(read_bytes(path, error_type), as_path(path), error_type)


def parse_json(content: bytes, source: object, error_type: type[AttnlabError]) -> dict[str, Any]:
    """Parse one JSON object in UTF-8; `source` says in errors where the object comes from.

    NaN and Infinity are accepted, as in `json.loads`. Callers check the values that they use.
    """
    text = _decode(content, source, error_type)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise error_type(f"{source} can't be read as JSON: {error}") from None
    if not isinstance(value, dict):
        kind = with_article(type(value).__name__)
        raise error_type(f"{source} must be a JSON object; got {kind}")
    return value


def make_directory(path: FilePath) -> None:
    """Make a directory and its parents, unless it exists."""
    directory = as_path(path)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WriteError(f"{directory} can't be created: {reason_of(error)}") from None


def check_writable(path: FilePath) -> Path:
    """Raise if a file can't be written, before long work; return its path without symbolic links.

    Whether there is enough space isn't checked.
    """
    file = as_path(path)
    target = Path(os.path.realpath(file))
    try:
        _check_regular(target)
        if not os.path.isdir(target.parent):
            raise OSError(f"directory {target.parent} doesn't exist")
        if not os.access(target.parent, os.W_OK):
            raise OSError(f"directory {target.parent} can't be written to")
    except OSError as error:
        raise WriteError(f"{file} can't be written: {reason_of(error)}") from None
    return target


def write_atomically(path: FilePath, content: bytes) -> None:
    """Write a file atomically: write a temporary file, then rename it.

    A symbolic link is followed. An existing file keeps its mode.
    """
    file = as_path(path)
    target = check_writable(file)
    try:
        # The name isn't made from the target's, which may already have the maximum length.
        temporary = target.with_name(f"{TEMPORARY}{os.urandom(8).hex()}")
        try:
            with open(temporary, "xb") as stream:
                if os.path.exists(target):
                    os.chmod(temporary, os.stat(target).st_mode & 0o777)
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(temporary, target)
        except BaseException:  # Ctrl-C, too
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise WriteError(f"{file} can't be written: {reason_of(error)}") from None


def _check_regular(file: Path) -> None:
    if os.path.exists(file) and not os.path.isfile(file):
        raise OSError("it isn't a regular file")


def reason_of(error: BaseException) -> str:
    """An error's message, without the operating system's number and path."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error)


def _decode(content: bytes, source: object, error_type: type[AttnlabError]) -> str:
    try:
        return content.decode(UTF_8)
    except UnicodeDecodeError as error:
        raise error_type(
            f"{source} can't be read: it isn't UTF-8 ({error}). Save it as UTF-8"
        ) from None
