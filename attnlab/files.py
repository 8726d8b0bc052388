"""Reading a model's small text files; writing its files whole or not at all."""

import contextlib
import json
import os
from pathlib import Path
from typing import Any

from attnlab.errors import AttnlabError, MissingFileError, WriteError


def read_text(path: Path, unreadable: type[AttnlabError]) -> str:
    """A file's text, UTF-8.

    Raises
    ------
    MissingFileError
        There is no such file.
    unreadable
        It can't be read, or is not UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise MissingFileError(f"there is no {path.name} in {path.parent}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable(f"{path} can't be read: {error}") from None


def read_json(path: Path, unreadable: type[AttnlabError]) -> dict[str, Any]:
    """The one JSON object that a file holds.

    Raises
    ------
    MissingFileError
        There is no such file.
    unreadable
        It can't be read, is not JSON, or holds something else.
    """
    text = read_text(path, unreadable)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise unreadable(f"{path} can't be read as JSON: {error}") from None
    if not isinstance(value, dict):
        raise unreadable(f"{path} must hold one JSON object, and holds a {type(value).__name__}")
    return value


def make_directory(path: Path) -> None:
    """Make a directory and those above it, if it is not there.

    Raises
    ------
    WriteError
        That can't be done.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:  # ValueError: a path with a zero in it
        raise WriteError(f"{path} can't be made: {error}") from None


def write_whole(path: Path, content: bytes) -> None:
    """Write a file to the side, then rename it, so that at any moment the old or the new is there.

    Raises
    ------
    WriteError
        The directory is not there, can't be written to, or is full.
    """
    aside = path.with_name(f"{path.name}.{os.getpid()}.part")  # two processes don't share it
    try:
        with open(aside, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(aside, path)
    except BaseException as error:  # Ctrl-C too leaves nothing behind
        with contextlib.suppress(OSError, ValueError):
            aside.unlink()
        if isinstance(error, OSError | ValueError):  # ValueError: a path with a zero in it
            raise WriteError(f"{path} can't be written: {error}") from None
        raise
