"""A notice if a text has words that its model reads in small pieces, or can't read at all.

Also if it has names of special tokens, such as `<|endoftext|>`, which were split like other words,
or which the model doesn't have.
"""

from __future__ import annotations

from collections.abc import Iterable

from attnlab.checkpoints.hub import advice_of, training_of
from attnlab.forward.parameters import Parameters
from attnlab.support.messages import Message, joined
from attnlab.text.tokens import Tokens, Vocabulary
from attnlab.text.words import MAX_WORDS_LISTED, characters_of, script_of, special_names_of


def notice_on(tokens: Tokens, parameters: Parameters, vocabulary: Vocabulary) -> str:
    """Which words are spelled out, see `attnlab.text.words`, or can't be read, and what to do."""
    split, unknown, covered = special_names_of(
        characters_of(tokens.bytes), tokens.symbols, vocabulary.special, vocabulary.is_exact
    )
    spelled_out = [
        word.text
        for word in tokens.words
        if word.is_spelled_out and not covered.issuperset(range(word.start, word.stop))
    ]
    unread = [token.unread for token in tokens if token.unread]
    on_names, on_words = [], []
    if split:
        template = "Names of special tokens, read as plain characters: {words}."
        advice = "To mean the tokens: trace(text, special=True) in Python, --special in a command."
        on_names += [Message(template, words=_listed(split)), Message(advice)]
        if not vocabulary.is_exact:
            on_names.append(Message("Names of tokens must be written exactly so."))
    if unknown:
        template = (
            "This model has no special tokens of these names, so it reads them in pieces: {words}."
        )
        counted = (f"{name} ({count})" for name, count in unknown.items())
        on_names.append(Message(template, words=_listed(counted)))
    if spelled_out:
        template = (
            "Not in this model's vocabulary, so read in three or more pieces, or in pieces of at "
            "most two letters: {words}."
        )
        on_words.append(Message(template, words=_listed(spelled_out)))
    if unread:
        template = "This model can't read at all, and sees as an unknown token: {words}."
        on_words.append(Message(template, words=_listed(unread)))
    if on_words:
        scripts = sorted({*map(script_of, spelled_out + unread)})
        advice_on, on_training = advice_of(parameters), training_of(parameters)
        advised = dict.fromkeys(advice_on[script] for script in scripts if script in advice_on)
        on_words += [on_training, *map(Message, advised)]
    sentences = on_names + on_words
    return joined(*sentences) if sentences else ""


def _listed(words: Iterable[str]) -> str:
    """Words, each once, and not too many."""
    each = [*dict.fromkeys(words)]
    return " · ".join(each[:MAX_WORDS_LISTED] + ["…"] * (len(each) > MAX_WORDS_LISTED))
