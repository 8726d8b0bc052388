"""The user's language, English or Chinese."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar

from attnlab.support.checks import check_choice

ENGLISH, CHINESE = "en", "zh"

# The first variable that is set determines the language; if none is, the locale does.
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
    check_choice(language, (ENGLISH, CHINESE), "language")
    return language


def _locale() -> str:
    """The locale's name if no variable is set, as on Windows."""
    import locale  # slow, and rarely needed

    with suppress(ValueError):  # a locale unknown to Python
        return locale.getlocale()[0] or ""
    return ""
