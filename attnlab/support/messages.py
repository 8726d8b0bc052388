"""Messages that keep their template and values, and their Chinese from `views/zh.po`."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from attnlab import errors
from attnlab.support.language import CHINESE, language_of

# Templates of messages stored in files as plain text.
MODEL_TEMPLATE = (
    "GPT2: {layers} layers of {heads} heads, width {width}, {parameters} parameters, {dtype}"
)
EDITED_TEMPLATE = ", edited: {paths}"


class Message(str):
    """A str that keeps the template it was made from; `print` shows it in the user's language.

    In an f-string, such as an error message, it stays in English.

    Attributes
    ----------
    template : English text with {names}; or a Message, which is copied
    values : the values of the names; messages among them are translated too
    """

    template: str
    values: dict[str, object]

    def __new__(cls, template: str, **values: object) -> Message:
        english = {  # without `str`, which would translate messages
            name: str.__str__(value) if isinstance(value, str) else value
            for name, value in values.items()
        }
        message = super().__new__(cls, template.format(**english) if values else template)
        message.template, message.values = template, values
        if isinstance(template, Message):
            message.template, message.values = template.template, template.values
        return message

    def __str__(self) -> str:
        return say(self)

    def __format__(self, spec: str) -> str:
        return format(str.__str__(self), spec)


SEMICOLON = Message("; ")


def join_messages(*parts: str, separator: str = "") -> Message:
    """Join texts into a message; messages among them are translated."""
    values: dict[str, object] = {f"part{number}": part for number, part in enumerate(parts)}
    template = "{separator}".join(f"{{{name}}}" for name in values)
    return Message(template, separator=separator, **values)


def recognise(text: str, *templates: str) -> str:
    """Recover a `Message` from its text, if a template matches."""
    for template in templates:
        pattern = re.sub(r"\\{(\w+)\\}", r"(?P<\1>.*)", re.escape(template))
        if match := re.fullmatch(pattern, text, re.DOTALL):
            return Message(template, **match.groupdict())
    return text


@cache
def translations() -> Mapping[str, str]:
    """The Chinese translation of each English text."""
    source = Path(__file__).parents[1].joinpath("views", "zh.po").read_text(encoding="utf-8")
    texts = [
        "".join(map(ast.literal_eval, re.findall(r'".*"', part)))
        for part in re.split(r"^(?:msgid|msgstr)", source, flags=re.M)[1:]
    ]
    _, *pairs = zip(texts[::2], texts[1::2], strict=True)  # the first is the file's header
    return dict(pairs)


def say(text: str, language: str | None = None, /, **values: object) -> str:
    """Translate a text and fill in its {names}; the user's language by default."""
    language = language_of(language)
    if isinstance(text, Message):
        values, text = text.values, text.template
    translated = translations().get(text, text) if language == CHINESE else text
    values = {name: _translate(value, language) for name, value in values.items()}
    return translated.format(**values) if values else translated


def _translate(value: object, language: str) -> object:
    """A message's or error's text in a language; any other value unchanged."""
    if isinstance(value, errors.AttnlabError):
        return value.translated(language)
    return say(value, language) if isinstance(value, Message) else value


errors.translate = say  # `errors` can't import this module
