"""The characters and words of a text in tokens, and which words have several tokens.

**The rule.** A word is a sequence of letters, with the space before it. In scripts without spaces
between words, each character is a word. A word often has two tokens, its pieces: GPT-2 reads
“Swimming” as Sw + imming. Views draw the pieces as one word. A word is *spelled out*, and a notice
names it, if it has three or more pieces, such as ar + cha + e + olog + ist, or if each piece has at
most two letters, such as s + at. A character that isn't a letter, such as an emoji, is spelled out
if it has three or more pieces. In simple English, one word in 180 is spelled out with GPT-2's
vocabulary, one in 33 with the English model's, and every second word with the pocket model's.

The page computes the same in `words.js`, with the constants of this module.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

# Characters that are words: Chinese, Japanese, and Korean, which has syllables.
ALONE = "[ᄀ-ᇿ⺀-鿿가-퟿豈-﫿ｦ-ﾟ\U00020000-\U0003ffff]"

# Matches words in a text's kinds of characters, see `_kind`. A word is a sequence of letters and
# marks, with the space before it (L, M), a character that is a word (A), or another character (O).
WORDS = r" ?L[LM]*|A|O"

# The maximum number of bytes of a character in UTF-8.
LONGEST_CHARACTER = 4

# A word is spelled out if it has this many pieces, or if no piece has more letters than this.
MANY_PIECES = 3
FEW_LETTERS = 2

LATIN = "[A-Za-zªºÀ-ÖØ-öø-ʸḀ-ỿＡ-Ｚａ-ｚ]"

# The maximum number of words that a notice lists.
MAX_WORDS_LISTED = 8

# If a larger share of a text's words is spelled out, the page doubts its sentences about words.
MAX_SPELLED_OUT = 1 / 3

# Names that special tokens have in some models.
SPECIAL_NAMES = (
    r"<\|[^\s<>|]+\|>"
    r"|<(?:/?s|pad|unk|mask|cls|sep|bos|eos|endoftext|user|system|assistant|speaker\d+)>"
    r"|\[(?:PAD|UNK|MASK|CLS|SEP|BOS|EOS|EOT|INST)\]"
)


class Word(NamedTuple):
    """A word of a text, or a character in several tokens that isn't a letter.

    Attributes
    ----------
    text : the word without the space before it
    start, stop : the word's tokens are tokens[start:stop]
    is_spelled_out : whether the word has many pieces, or only short pieces
    """

    text: str
    start: int
    stop: int
    is_spelled_out: bool


class Character(NamedTuple):
    """A character of a text, and the indices of the tokens that have its bytes."""

    text: str  # a byte that isn't valid UTF-8 is an unpaired surrogate
    owners: list[int]


def characters_of(pieces: Sequence[bytes]) -> list[Character]:
    """The characters of a text, given the bytes of each of its tokens."""
    owner_of_byte = [i for i, piece in enumerate(pieces) for _ in piece]
    characters, start = [], 0
    # surrogateescape keeps invalid bytes, as unpaired surrogates.
    for character in b"".join(pieces).decode("utf-8", errors="surrogateescape"):
        end = start + len(character.encode("utf-8", errors="surrogateescape"))
        characters.append(Character(character, sorted({*owner_of_byte[start:end]})))
        start = end
    return characters


def words_of(characters: Sequence[Character]) -> list[Word]:
    """The words of a text, and other characters that have several tokens."""
    kinds = "".join(_kind(character.text) for character in characters)
    words = []
    for match in re.finditer(WORDS, kinds):
        found = characters[match.start() : match.end()]
        is_letters = match[0] != "O"
        visible = found[1:] if match[0][0] == " " else found
        if match.start() and characters[match.start() - 1].owners[-1] == found[0].owners[0]:
            found = visible  # a space here belongs to the token before, as in `the</w>`
        start, stop = found[0].owners[0], found[-1].owners[-1] + 1
        text = "".join(character.text for character in visible)
        letters_of = Counter(owner for _, owners in visible for owner in owners)  # by token
        is_short = is_letters and stop - start > 1 and max(letters_of.values()) <= FEW_LETTERS
        is_spelled_out = is_short or stop - start >= MANY_PIECES
        if is_letters or stop - start > 1:
            words.append(Word(text, start, stop, is_spelled_out))
    return words


def script_of(word: str) -> str:
    """The kind of a word's characters, for advice: "latin", "other", "signs" or "punctuation"."""
    if re.search(LATIN, word):
        return "latin"
    if any(_kind(character) in "LA" for character in word):
        return "other"
    has_signs = any(unicodedata.category(character)[0] == "S" for character in word)
    return "signs" if has_signs else "punctuation"


def special_names_of(
    characters: Sequence[Character], symbols: Sequence[str], special: Sequence[str], is_exact: bool
) -> tuple[list[str], dict[str, int], set[int]]:
    """Find names of special tokens in a text that were read like other words.

    Returns the names of tokens that the model has, in `special`; names of tokens that the model
    lacks, each with the number of its pieces; and the indices of the tokens of all these names. If
    not `is_exact`, tokens may lack the text's white space and capital letters, as BERT's do.
    """

    def as_read(text: str) -> str:
        return text if is_exact else "".join(text.lower().split())

    def is_apart(text: str, owners: list[int]) -> bool:
        return "\udc80" <= text <= "\udcff" or symbols[owners[0]] in special

    parts = [
        (part, owners)  # an invalid byte or a special token isn't part of a name
        for text, owners in characters
        for part in (" " if is_apart(text, owners) else as_read(text))
    ]
    content = "".join(part for part, _ in parts)
    split = [name for name in special if as_read(name) in content]
    unknown: dict[str, int] = {}
    covered: set[int] = set()

    def owners_of(name: str, start: int) -> set[int]:
        return {owner for _, owners in parts[start : start + len(name)] for owner in owners}

    for name in map(as_read, split):
        for start in range(len(content)):
            if content.startswith(name, start):
                covered |= owners_of(name, start)
    for match in re.finditer(SPECIAL_NAMES, content, 0 if is_exact else re.IGNORECASE):
        owners = owners_of(match[0], match.start())
        if len(owners) > 1 and match[0] not in map(as_read, split):
            unknown[match[0]] = len(owners)
            covered |= owners
    return split, unknown, covered


def _kind(character: str) -> str:
    """The kind of a character: " " for a space, L for a letter, M for a mark, A for a word.

    It is "-" for other white space, control characters and invalid bytes, and O for the rest.
    """
    if character == " ":
        return " "
    if re.match(ALONE, character):
        return "A"
    category = unicodedata.category(character)[0]
    return category if category in "LM" else "-" if category in "ZC" else "O"
