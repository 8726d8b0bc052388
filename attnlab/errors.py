"""The exceptions that the library raises.

Each is an `AttnlabError`, so that one `except` catches them all, and also a matching built-in
exception, such as ValueError.
"""

from __future__ import annotations

import re

# Limits in characters, above which words and messages are shortened.
LONGEST_WORD = 180
LONGEST_MESSAGE = 2000


class AttnlabError(Exception):
    """Base class of the library's exceptions.

    Messages are in English, so that they can be searched. Unprintable characters, for instance from
    file or tensor names, are escaped, and long messages are shortened.
    """

    def __init__(self, message: str = "", /) -> None:
        super().__init__(_shorten(_escape(f"{message}")))  # f"{...}" of a Message is English


def _escape(text: str) -> str:
    """Escape unprintable characters except newlines."""
    return "".join(
        c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text
    )


def _shorten(text: str) -> str:
    """Cut the middle out of long words, and out of the text if it is still too long."""
    half = LONGEST_WORD // 2
    text = re.sub(rf"(\S{{{half}}})\S+(\S{{{half}}})", r"\1…\2", text)  # words over LONGEST_WORD
    half = LONGEST_MESSAGE // 2
    return text if len(text) <= LONGEST_MESSAGE else f"{text[: half - 1]}…{text[-half:]}"


class InvalidValueError(AttnlabError, ValueError):
    """An argument has an invalid value, shape or dtype."""


class InvalidTypeError(AttnlabError, TypeError):
    """An argument has the wrong type."""


class OutOfRangeError(AttnlabError, IndexError):
    """No layer, head or position has the given index."""


class UnknownNameError(AttnlabError, KeyError):
    """No parameter has the given path, or the atlas doesn't have the given measure."""

    __str__ = Exception.__str__  # the __str__ of KeyError returns the message's repr


class OutOfMemoryError(InvalidValueError, MemoryError):
    """An array doesn't fit in memory: the text, the batch or the model is too large."""


class MissingFileError(AttnlabError, FileNotFoundError):
    """A directory, a file in it, or a repository on the hub doesn't exist."""


class ConfigError(AttnlabError, ValueError):
    """`config.json` is unreadable, or has a setting that isn't supported."""


class VocabularyError(AttnlabError, ValueError):
    """A tokenizer's files are unreadable, or don't match each other or the model."""


class CheckpointError(AttnlabError, ValueError):
    """Weights are unreadable, don't belong to a GPT-2, or aren't finite."""


class WriteError(AttnlabError, OSError):
    """A file can't be written."""


class DownloadError(AttnlabError, ConnectionError):
    """The hub couldn't be reached, or refused the request."""


class MissingExtraError(AttnlabError, ImportError):
    """An optional library isn't installed."""


class DisagreementError(AttnlabError, AssertionError):
    """The printed numbers of an explanation don't add up to the step's number."""


class DivergedError(AttnlabError, ArithmeticError):
    """The training loss is no longer finite."""


class AtlasError(AttnlabError, ValueError):
    """A file of an atlas or of its run is unreadable or damaged."""


class WorkerError(AttnlabError, RuntimeError):
    """Worker processes can't be used, or have died."""


def quoted(value: object, longest: int = 80) -> str:
    """Format a value for an error message: its repr, shortened, or its type if repr fails."""
    try:
        first_line, *others = repr(value).split("\n", 1)
    except Exception:  # repr fails for an integer with 5,000 digits, for example
        return f"an object of type {type(value).__name__}"
    return f"{first_line[: longest - 1]}…" if others or len(first_line) > longest else first_line
