"""The languages of views: English, and Chinese from `zh.po`, with the English as the key."""

from __future__ import annotations

import ast
import locale
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from pathlib import Path

from attnlab.errors import InvalidValueError, quoted
from attnlab.support.messages import Message

ENGLISH, CHINESE = "en", "zh"

# The first of these that is set determines the language; then the locale.
VARIABLES = ("ATTNLAB_LANGUAGE", "LC_ALL", "LC_MESSAGES", "LANG")

_language: ContextVar[str | None] = ContextVar("language", default=None)


@contextmanager
def using_language(language: str) -> Iterator[None]:
    """Set the default language in this context."""
    before = _language.set(language)
    try:
        yield
    finally:
        _language.reset(before)


def language_of(given: str | None = None) -> str:
    """The language: `given`, or the context's, or the reader's; "zh" for Chinese, otherwise "en".

    The reader's is ATTNLAB_LANGUAGE if set, otherwise the locale's.
    """
    if given is None and (default := _language.get()):
        return default
    if given is None:
        name = next(filter(None, map(os.environ.get, VARIABLES)), None) or _locale()
        return CHINESE if name.lower().startswith(("zh", "chinese")) else ENGLISH
    if not isinstance(given, str) or given not in (ENGLISH, CHINESE):
        raise InvalidValueError(f"language must be 'en' or 'zh'; got {quoted(given)}")
    return given


def _locale() -> str:
    """The locale's name if no variable is set, as on Windows."""
    with suppress(ValueError):  # a locale unknown to Python
        return locale.getlocale()[0] or ""
    return ""


@cache
def words() -> Mapping[str, str]:
    """The Chinese translation of each English text."""
    source = Path(__file__).with_name("zh.po").read_text(encoding="utf-8")
    texts = [
        "".join(map(ast.literal_eval, re.findall(r'".*"', part)))
        for part in re.split(r"^(?:msgid|msgstr)", source, flags=re.M)[1:]
    ]
    _, *pairs = zip(texts[::2], texts[1::2], strict=True)  # the first is the file's header
    return dict(pairs)


def say(text: str, language: str | None = None, /, **values: object) -> str:
    """Translate a text and fill in its {names}; the reader's language by default."""
    language = language_of(language)
    if isinstance(text, Message):
        values = {
            name: say(value, language) if isinstance(value, Message) else value
            for name, value in text.values.items()
        }
        text = text.template
    translated = words().get(text, text) if language == CHINESE else text
    return translated.format(**values) if values else translated
