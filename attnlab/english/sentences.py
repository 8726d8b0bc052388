"""Made-up sentences that measure the English model: pronouns, minimal pairs, openings, facts.

Their words are common. The templates were fixed before the model was trained.
"""

from __future__ import annotations

import re
from itertools import product
from random import Random
from typing import NamedTuple

SEED = 40

# ---- pronouns ------------------------------------------------------------------------------------

ANIMALS = "cat dog horse bird rabbit mouse lion bear fox cow"
PLACES = "door tree river garden wall bridge fire window gate road"
THINGS = "ball box cup stone book basket chair bottle plate branch"
WOMEN = "girl woman mother queen sister aunt princess lady"
MEN = "boy man father king brother uncle prince farmer"


class PronounSentence(NamedTuple):
    """A sentence with a pronoun that stands for the subject of its first clause.

    The subject is an animal, a thing or a person. It comes before or after the other noun, which
    is of another kind or another sex.

    Attributes
    ----------
    text : has each of the other words once
    subject, verb : of the first clause
    other : the other noun
    pronoun : "it", "she" or "he"
    """

    text: str
    subject: str
    verb: str
    other: str
    pronoun: str


# Templates, and the words for subject, verb, other noun and last word.
PRONOUNS = (
    (
        *("The {subject} {verb} near the {other} because it was {how}.", ANIMALS),
        *("sat slept stopped", PLACES, "tired hungry cold"),
    ),
    (
        *("The {subject} {verb} the {other}, but it was too {how}.", ANIMALS),
        *("chased followed watched", MEN, "slow small weak"),
    ),
    (
        *("The {subject} {verb} on the {other} because it was {how}.", THINGS),
        *("fell dropped landed", ANIMALS, "heavy loose broken"),
    ),
    (
        *("Behind the {other} the {subject} {verb} still, for it was {how}.", ANIMALS),
        *("stood sat lay", PLACES, "tired old afraid"),
    ),
    (
        *("The {subject} {verb} the {other} when she came {how}.", WOMEN),
        *("saw heard found", ANIMALS, "home back in"),
    ),
    (
        *("In front of the {other} the {subject} {verb} because she was {how}.", WOMEN),
        *("laughed stopped cried", MEN, "happy angry afraid"),
    ),
    (
        *("The {subject} {verb} the {other} because he was {how}.", MEN),
        *("helped thanked called", WOMEN, "kind happy alone"),
    ),
    (
        *("When the {subject} {verb} to the {other}, he was {how}.", MEN),
        *("came went walked", PLACES, "tired late alone"),
    ),
)


def pronoun_sentences() -> list[PronounSentence]:
    """200 sentences, 25 of each template."""
    random, sentences = Random(SEED), []
    for template, *words in PRONOUNS:
        choices = list(product(*map(str.split, words)))
        for subject, verb, other, how in random.sample(choices, 25):
            text = template.format(subject=subject, verb=verb, other=other, how=how)
            pronoun = re.findall(r"\b(?:it|she|he)\b", text)[0]
            sentences.append(PronounSentence(text, subject, verb, other, pronoun))
    return sentences


def span_of(text: str, word: str) -> tuple[int, int]:
    """The characters of a word in a text that has it once, start and end."""
    (found,) = re.finditer(rf"\b{word}\b", text)
    return found.span()


# ---- minimal pairs -------------------------------------------------------------------------------


class Pair(NamedTuple):
    """A text with a right and a wrong continuation; the kind is "number", "gender" or "gift"."""

    kind: str
    text: str
    right: str
    wrong: str


SINGULAR, PLURAL = map(
    str.split,
    (
        "dog boy girl bird tree flower book horse teacher child man woman",
        "dogs boys girls birds trees flowers books horses teachers children men women",
    ),
)
SIMPLE = ("The {noun}", "The old {noun}", "Yesterday the {noun}", "My {noun}")
# Half of the second nouns have the same number as the first.
WITH_PHRASE = (
    "The {noun} with the {other}",
    "The {noun} without the {other}",
    "The {noun} far from the {other}",
    "The {noun} that came with the {other}",
)
VERBS = ((" was", " were"), (" is", " are"), (" has", " have"))

SHE, HE, SHE_NAMES, HE_NAMES = map(
    str.split,
    (
        "girl woman mother queen sister aunt grandmother princess",
        "boy man father king brother uncle grandfather prince",
        "Mary Anna Alice Emma Lucy Sarah",
        "Tom John Jack Peter David Paul",
    ),
)
PEOPLE = (
    "{who} was {how} because",
    "{who} was {how} when",
    "When {who} was {how},",
    "If {who} is {how},",
    "{who} is so {how} that",
)
MOODS = ("tired", "hungry", "happy", "sad", "angry", "late", "afraid")


def minimal_pairs() -> list[Pair]:
    """100 pairs of the verb's number, 60 of them with a phrase between, and 100 of she or he."""
    random, pairs = Random(SEED), []
    nouns = SINGULAR, PLURAL
    for templates, second, count in ((SIMPLE, (0,), 20), (WITH_PHRASE, (0, 1), 15)):
        for number, other_number in product((0, 1), second):
            texts = {
                template.format(noun=nouns[number][i], other=nouns[other_number][j])
                for template, i, j in product(templates, range(12), range(12))
                if i != j
            }
            for text in random.sample(sorted(texts), count):
                verbs = VERBS[0] if text.startswith("Yesterday") else random.choice(VERBS)
                pairs.append(Pair("number", text, verbs[number], verbs[1 - number]))
    for people, names, right, wrong in (
        (SHE, SHE_NAMES, " she", " he"),
        (HE, HE_NAMES, " he", " she"),
    ):
        everyone = [f"the {noun}" for noun in people] + names
        texts = {t.format(who=who, how=how) for t, who, how in product(PEOPLE, everyone, MOODS)}
        for text in random.sample(sorted(texts), 50):
            pairs.append(Pair("gender", text[0].upper() + text[1:], right, wrong))
    return pairs


# ---- openings, and what the model is asked -------------------------------------------------------

OPENINGS = (
    "Once upon a time there was",
    "The cat sat on the mat because it was tired",
    "It’s very hot in summer. Swimming is",
    "I would like a cup of",
    "The girl was tired because",
    "The boy opened the door and",
    "When the king heard this,",
    "My mother told me that",
    "In the middle of the forest",
    "We went to the beach and",
    "Do you know",
    "“Where are you going?” asked",
    "The old woman looked at the moon",
    "I have never seen",
    "The dogs near the river",
    "She gave him a book, and he",
    "Every morning the farmer",
    "If it rains tomorrow,",
    "The ship sailed across the sea until",
    "Two and two make",
)

ROLES = (
    *("nurse", "teacher", "cook", "secretary", "dancer", "baby", "child", "friend"),
    *("doctor", "king", "queen", "soldier", "farmer", "judge", "thief", "scientist"),
)

CAPITALS = {
    "France": "Paris",
    "England": "London",
    "Germany": "Berlin",
    "Italy": "Rome",
    "Spain": "Madrid",
    "Japan": "Tokyo",
    "China": "Beijing",
    "Russia": "Moscow",
    "Greece": "Athens",
    "Egypt": "Cairo",
    "Austria": "Vienna",
    "Canada": "Ottawa",
}

NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def sums() -> list[tuple[str, str]]:
    """The sums up to ten, in words, and their results."""
    return [
        (f"{NUMBERS[a].capitalize()} and {NUMBERS[b]} make", f" {NUMBERS[a + b + 1]}")
        for a, b in product(range(9), repeat=2)
        if a + b < 9
    ]


def gifts() -> list[Pair]:
    """Sentences of two people, one of whom gives a drink to the other."""
    names = SHE_NAMES + HE_NAMES
    return [
        Pair("gift", f"When {a} and {b} went to the store, {x} gave a drink to", f" {y}", f" {x}")
        for a, b in zip(names, names[1:] + names[:1], strict=True)
        for x, y in ((a, b), (b, a))
    ]
