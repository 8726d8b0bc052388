"""A notice if a text has words that the model reads in small pieces, or can't read at all.

The notice also says if the text ends in a blank, and if it has names of special tokens, such as
`<|endoftext|>`, that were split like other words or that the model doesn't have.
"""

from __future__ import annotations

from collections.abc import Iterable

from attnlab.checkpoints.hub import PUBLISHED, SHORT_NAMES, built_in_model
from attnlab.forward.parameters import Parameters
from attnlab.support.messages import Message, joined
from attnlab.support.tables import printable
from attnlab.text.tokens import Tokens, Vocabulary
from attnlab.text.words import MAX_WORDS_LISTED, characters_of, script_of, special_names_of

# Texts for published models: what they were trained on, and what to do about unknown words.
TRAINED_ON_ENGLISH = "GPT-2 was trained on English web pages."
TRAINED_ON_CHINESE = "This model was trained on Chinese texts."
FOR_CHINESE = (
    "A text in another language needs a model that was trained on it; for Chinese, use "
    "“attnlab explore gpt2-chinese-cluecorpussmall”."
)
FOR_ENGLISH = "An English text needs a model that was trained on it, such as gpt2."
FOR_SIGNS = "GPT-2 reads most emoji in pieces, too."

# These texts are for models that aren't in `PUBLISHED`.
NOT_KNOWN = "What {name} was trained on isn't known; its vocabulary has {count} tokens."
NAMELESS = "this model"
FOR_ANY = "Use words that it knows, or a model that was trained on such texts."
ADVICE_ON_OTHERS = {"latin": FOR_ANY, "other": FOR_ANY}

# Few training texts have a blank as a token, so after such a token the model predicts nonsense.
ON_BLANK = "This text ends in a blank, which the model reads as a token of its own."
WITHOUT_BLANK = "Without it: text.rstrip()."


def notice_on(tokens: Tokens, parameters: Parameters, vocabulary: Vocabulary) -> str:
    """The notice on a text; "" if there is nothing to say. `attnlab.text.words` finds the words."""
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
        advice_on = advice_of(parameters)
        advised = dict.fromkeys(advice_on[script] for script in scripts if script in advice_on)
        on_words += [training_of(parameters), *map(Message, advised)]
    # In most vocabularies a blank belongs to the next word, so the model rarely saw one at the end.
    text = b"".join(tokens.bytes).decode(errors="replace")
    blank = text[len(text.rstrip()) :].encode()
    last = tokens.bytes[-1]  # a part of the blank, or empty if the last token has no text
    ends_in_blank = text.strip() and last and blank.endswith(last)
    on_blank = [Message(ON_BLANK), Message(WITHOUT_BLANK)] if ends_in_blank else []
    sentences = on_names + on_words + on_blank
    return joined(*sentences)


def _listed(words: Iterable[str]) -> str:
    """Join words, each once, and at most MAX_WORDS_LISTED of them."""
    distinct = [*dict.fromkeys(words)]
    shown = distinct if len(distinct) <= MAX_WORDS_LISTED else [*distinct[:MAX_WORDS_LISTED], "…"]
    return " · ".join(shown)


def training_of(parameters: Parameters) -> Message:
    """What a model was trained on."""
    if model := built_in_model(parameters):
        return Message(model.training)
    if _is_published(parameters):
        return Message(TRAINED_ON_CHINESE if _is_chinese(parameters) else TRAINED_ON_ENGLISH)
    name = printable(parameters.name) or Message(NAMELESS)
    return Message(NOT_KNOWN, name=name, count=f"{parameters.config.vocab_size:,}")


def advice_of(parameters: Parameters) -> dict[str, str]:
    """What to do with words that a model doesn't know, by script, see `script_of`."""
    if model := built_in_model(parameters):
        return {"latin": model.advice, "other": FOR_CHINESE, "signs": FOR_SIGNS}
    if not _is_published(parameters):
        return ADVICE_ON_OTHERS
    return {"latin": FOR_ENGLISH} if _is_chinese(parameters) else {"other": FOR_CHINESE}


def _is_published(parameters: Parameters) -> bool:
    return parameters.name in (*PUBLISHED, *SHORT_NAMES)


def _is_chinese(parameters: Parameters) -> bool:
    return "-chinese-" in parameters.name
