"""A notice if a text has words that its model reads in small pieces."""

from __future__ import annotations

from attnlab.checkpoints.hub import training_of
from attnlab.forward.parameters import Parameters
from attnlab.support.messages import Message
from attnlab.text.tokens import Tokens
from attnlab.text.words import MAX_WORDS_LISTED


def notice_on(tokens: Tokens, parameters: Parameters) -> str:
    """Which words are spelled out, see `attnlab.text.words`, and what to do; "" if none is."""
    words = [*dict.fromkeys(word.text for word in tokens.words if word.is_spelled_out)]
    if not words:
        return ""
    shown = words[:MAX_WORDS_LISTED] + ["…"] * (len(words) > MAX_WORDS_LISTED)
    return Message(
        "Not in this model's vocabulary, so read in the smallest pieces: {words}. {training}",
        words=" · ".join(shown),
        training=training_of(parameters),
    )
