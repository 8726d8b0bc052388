"""What is said to a reader: a template with values, in English; views say it in other languages."""

from __future__ import annotations

import re

# What files have as finished English.
MODEL = "GPT2: {layers} layers of {heads} heads, width {width}, {parameters} parameters, {dtype}"
EDITED = ", edited: {paths}"


class Message(str):
    """A template with its values filled in: a string that knows what it was made of.

    Attributes
    ----------
    template : in English, with {names}
    values : by name; those that are messages are said in the reader's language too
    """

    template: str
    values: dict[str, object]

    def __new__(cls, template: str, **values: object) -> Message:
        message = super().__new__(cls, template.format(**values) if values else template)
        message.template, message.values = template, values
        return message


def recognised(text: str, *templates: str) -> str:
    """The message that a file has as finished English, if it is one of these."""
    for template in templates:
        pattern = re.sub(r"\\{(\w+)\\}", r"(?P<\1>.*)", re.escape(template))
        if found := re.fullmatch(pattern, text, re.DOTALL):
            return Message(template, **found.groupdict())
    return text
