"""Reading the small text files of a model's directory."""

import json
from pathlib import Path
from typing import Any

from attnlab.errors import AttnlabError, MissingFileError


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
