"""Messages that keep their template and values, so that views can translate them."""

from __future__ import annotations

import re

# Templates of messages stored in files as plain text.
MODEL = "GPT2: {layers} layers of {heads} heads, width {width}, {parameters} parameters, {dtype}"
EDITED = ", edited: {paths}"


class Message(str):
    """A str that keeps the template it was made from.

    Attributes
    ----------
    template : in English, with {names}; or a Message, which is copied
    values : by name; messages among them are translated too
    """

    template: str
    values: dict[str, object]

    def __new__(cls, template: str, **values: object) -> Message:
        message = super().__new__(cls, template.format(**values) if values else template)
        message.template, message.values = template, values
        if isinstance(template, Message):
            message.template, message.values = template.template, template.values
        return message


def recognised(text: str, *templates: str) -> str:
    """Recover a `Message` from its text, if a template matches."""
    for template in templates:
        pattern = re.sub(r"\\{(\w+)\\}", r"(?P<\1>.*)", re.escape(template))
        if found := re.fullmatch(pattern, text, re.DOTALL):
            return Message(template, **found.groupdict())
    return text
