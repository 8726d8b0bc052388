"""English messages as templates with values, which views can translate."""

from __future__ import annotations

import re

# Templates of messages that files store as plain text.
MODEL = "GPT2: {layers} layers of {heads} heads, width {width}, {parameters} parameters, {dtype}"
EDITED = ", edited: {paths}"


class Message(str):
    """A str made from a template, which it keeps for translation.

    Attributes
    ----------
    template : in English, with {names}
    values : by name; messages among them are translated too
    """

    template: str
    values: dict[str, object]

    def __new__(cls, template: str, **values: object) -> Message:
        message = super().__new__(cls, template.format(**values) if values else template)
        message.template, message.values = template, values
        return message


def recognised(text: str, *templates: str) -> str:
    """Recover the `Message` from its text, if it matches one of the templates."""
    for template in templates:
        pattern = re.sub(r"\\{(\w+)\\}", r"(?P<\1>.*)", re.escape(template))
        if found := re.fullmatch(pattern, text, re.DOTALL):
            return Message(template, **found.groupdict())
    return text
