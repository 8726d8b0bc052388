"""Messages that keep their template and values; `support/zh.po` has their Chinese."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from attnlab.support.language import CHINESE, language_of


class Message(str):
    """A str that keeps the template it was made from; `print` shows it in the user's language.

    In an f-string, such as an error message, it stays in English.
    """

    template: str  # an English text with {names}
    values: dict[str, object]  # values by these names; values that are messages are translated too

    def __new__(cls, template: str, **values: object) -> Message:
        english = {  # `str.__str__`, since `str(value)` would translate messages
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


# Numbers of things, for one and for several.
COUNTED = {
    "token": ("{count} token", "{count} tokens"),
    "layer": ("{count} layer", "{count} layers"),
    "head": ("{count} head", "{count} heads"),
    "block": ("{count} block", "{count} blocks"),
    "trace": ("{count} trace", "{count} traces"),
}


def counted(count: int | str, noun: str) -> Message:
    """A number of things in `COUNTED`, such as "1 token"."""
    one, several = COUNTED[noun]
    return Message(one if str(count) == "1" else several, count=count)


def joined(*texts: str, template: str = "{first} {second}") -> str:
    """Join texts to one message, with a space between them if the language has spaces."""
    first, *others = texts or ("",)
    for second in others:
        first = Message(template, first=first, second=second)
    return first


def message_as_data(text: str) -> Any:
    """A text as JSON, which a page translates to its own language.

    A message becomes [template, values], in which a value that is a message is such a list, too.
    """
    if not isinstance(text, Message):
        return text
    return [text.template, {name: _value_as_data(value) for name, value in text.values.items()}]


def _value_as_data(value: object) -> Any:
    return message_as_data(value) if isinstance(value, str) else f"{value}"


@cache
def translations() -> Mapping[str, str]:
    """The Chinese translation of each English text."""
    source = Path(__file__).parents[1].joinpath("support", "zh.po").read_text(encoding="utf-8")
    texts = [
        "".join(map(ast.literal_eval, re.findall(r'".*"', part)))
        for part in re.split(r"^(?:msgid|msgstr)", source, flags=re.M)[1:]
    ]
    _, *pairs = zip(texts[::2], texts[1::2], strict=True)  # the first pair is the file's header
    return dict(pairs)


def say(text: str, /, **values: object) -> str:
    """Translate a text to the user's language, and fill in its {names}."""
    if isinstance(text, Message):
        values, text = text.values, text.template
    translated = translations().get(text, text) if language_of() == CHINESE else text
    said_values = {
        name: say(value) if isinstance(value, Message) else value for name, value in values.items()
    }
    return translated.format(**said_values) if said_values else translated
