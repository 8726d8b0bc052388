"""A notice if a text has words that its model reads in small pieces, or can't read at all.

Also if it has names of special tokens, such as `<|endoftext|>`, which were split like other words.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from attnlab.checkpoints.hub import advice_of, training_of
from attnlab.forward.parameters import Parameters
from attnlab.support.messages import Message, joined
from attnlab.text.tokens import Tokens
from attnlab.text.words import MAX_WORDS_LISTED, script_of


def notice_on(tokens: Tokens, parameters: Parameters, special: Collection[str]) -> str:
    """Which words are spelled out, see `attnlab.text.words`, or can't be read, and what to do.

    `special` has the names of the model's special tokens.
    """
    is_spelled_out = [word.text for word in tokens.words if word.is_spelled_out]
    content = "".join(" " if token.symbol in special else token.text for token in tokens)
    split = [name for name in special if name in content]
    spelled_out = [word for word in is_spelled_out if not any(word in name for name in split)]
    unread = [token.unread for token in tokens if token.unread]
    sentences = []
    if spelled_out:
        template = (
            "Not in this model's vocabulary, so read in three or more pieces, or in pieces of at "
            "most two letters: {words}."
        )
        sentences.append(Message(template, words=_listed(spelled_out)))
    if unread:
        template = "This model can't read at all, and sees as an unknown token: {words}."
        sentences.append(Message(template, words=_listed(unread)))
    template = (
        "Names of special tokens, read as plain characters: {words}. To mean the tokens: "
        "trace(text, special=True) in Python, --special in a command."
    )
    on_split = [Message(template, words=_listed(split))] if split else []
    if not sentences:
        return on_split[0] if on_split else ""
    advice, scripts = advice_of(parameters), sorted({*map(script_of, spelled_out + unread)})
    advised = dict.fromkeys(advice[script] for script in scripts if script in advice)
    return joined(*on_split, *sentences, training_of(parameters), *map(Message, advised))


def _listed(words: Iterable[str]) -> str:
    """Words, each once, and not too many."""
    each = [*dict.fromkeys(words)]
    return " · ".join(each[:MAX_WORDS_LISTED] + ["…"] * (len(each) > MAX_WORDS_LISTED))
