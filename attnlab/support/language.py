"""The user's language, English or Chinese."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar

from attnlab.support.checks import check_choice

LANGUAGES = ENGLISH, CHINESE = "en", "zh"

# The first variable that is set determines the language; if no variable is set, the locale does.
VARIABLES = ("ATTNLAB_LANGUAGE", "LC_ALL", "LC_MESSAGES", "LANG")

_language: ContextVar[str | None] = ContextVar("language", default=None)


@contextmanager
def using_language(language: str | None) -> Iterator[None]:
    """Set the default language inside a `with` block; None keeps it."""
    token = _language.set(language_of(language))
    try:
        yield
    finally:
        _language.reset(token)


def language_of(language: str | None = None) -> str:
    """Check and return a language, "en" or "zh"; None selects the default.

    The default is set by `using_language`, else by ATTNLAB_LANGUAGE, else by the locale.
    """
    if language is None and (default := _language.get()):
        return default
    if language is None:
        name = next(filter(None, map(os.environ.get, VARIABLES)), None) or _locale()
        return CHINESE if name.lower().startswith(("zh", "chinese")) else ENGLISH
    check_choice(language, LANGUAGES, "language")
    return language


def language_option(arguments: Sequence[str] | None = None) -> str | None:
    """The language after `--lang` in a program's arguments, by default those of the command line.

    It is read before the program's parser is made, because the parser's help is in this language.
    Returns None without the option, or if the language is invalid, which the parser then reports.
    """
    import argparse  # imported late: only programs need it

    option = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    option.add_argument("--lang", nargs="?")
    language = option.parse_known_args(arguments)[0].lang
    return language if language in LANGUAGES else None


def _locale() -> str:
    """The locale's name if no variable is set, as on Windows."""
    import locale  # here, since it is slow and rarely needed

    with suppress(ValueError):  # Python may not know the locale
        return locale.getlocale()[0] or ""
    return ""
