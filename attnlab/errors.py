"""Every error that the library raises on purpose.

Each is an `AttnlabError`, so that one `except` catches them all, and also the built-in exception
that fits, so that code which knows nothing of the library can catch it too.
"""

from __future__ import annotations

import re

# The longest piece of what was given that a message quotes whole.
LONGEST = 180

# The longest message.
LONGEST_MESSAGE = 2000


class AttnlabError(Exception):
    """What the library raises: it says what was given, what was expected, and where.

    Names of files and tensors, and whatever else is foreign in a message, may move a terminal's
    cursor or be no text at all: here, for all messages, they become printable.
    """

    def __init__(self, message: str = "") -> None:
        text = message if isinstance(message, str) else quoted(message)
        super().__init__(_shortened(_escaped(text)))


def _escaped(text: str) -> str:
    """With escapes for what can't be printed, line ends aside."""
    return "".join(
        c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text
    )


def _shortened(text: str) -> str:
    """Without the middle of pieces that are too long, and of all if that is too long."""
    half = LONGEST // 2
    text = re.sub(rf"(\S{{{half}}})\S{{{LONGEST - 2 * half},}}(\S{{{half}}})", r"\1…\2", text)
    half = LONGEST_MESSAGE // 2
    return text if len(text) <= LONGEST_MESSAGE else f"{text[: half - 1]}…{text[-half:]}"


class InvalidValueError(AttnlabError, ValueError):
    """An argument has the right type and a value, shape or dtype that can't be used."""


class InvalidTypeError(AttnlabError, TypeError):
    """An argument is of a type that can't be used."""


class OutOfRangeError(AttnlabError, IndexError):
    """A layer, head or position that does not exist."""


class UnknownParameterError(AttnlabError, KeyError):
    """A parameter's path that leads to none."""

    __str__ = Exception.__str__  # KeyError's would be the message's repr


class UnknownMeasureError(AttnlabError, KeyError):
    """A measure that an atlas does not have."""

    __str__ = Exception.__str__


class MissingFileError(AttnlabError, FileNotFoundError):
    """A directory, one of its files, or a repository on the hub is not there."""


class ConfigError(AttnlabError, ValueError):
    """`config.json` can't be read, or asks for what GPT-2's code here does not do."""


class VocabularyError(AttnlabError, ValueError):
    """A tokenizer's files can't be read, or do not fit each other or the model."""


class CheckpointError(AttnlabError, ValueError):
    """Weights that can't be read, are not GPT-2's, or are not finite."""


class WriteError(AttnlabError, OSError):
    """A file can't be written."""


class DownloadError(AttnlabError, ConnectionError):
    """The hub could not be reached, or refused."""


class MissingExtraError(AttnlabError, ImportError):
    """A library that an optional extra brings is not installed."""


class DisagreementError(AttnlabError, AssertionError):
    """The printed numbers of an explanation do not lead to the stored ones."""


class DivergedError(AttnlabError, ArithmeticError):
    """A training's loss is no longer finite."""


class RecordingError(AttnlabError, ValueError):
    """A trace file can't be read, or is damaged."""


class ResumeError(AttnlabError, ValueError):
    """What a run left to go on from can't be read, or belongs to another run."""


class WorkerError(AttnlabError, RuntimeError):
    """Workers that are to share some work can't do it, or are gone."""


def quoted(value: object, longest: int = 80) -> str:
    """What was given as a message shows it: its repr, cut where that is long, else its type."""
    try:
        text = repr(value)
    except Exception:  # of an integer with 5,000 digits, and of whatever has a repr of its own
        return f"one of type {type(value).__name__}"
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
