"""A small grammar of English whose next words can be predicted only from earlier ones.

The pocket model is trained only on these texts. Each kind of text needs attention for one task,
such as finding the adjective that described this noun, what "it" refers to, or which word came
next last time.

    A sleepy blue fox yawned.                          the mood determines the verb
    The dog chased the ball, but it rolled.            "it" is the animal or the thing
    It’s very hot in summer. Swimming is wonderful.    weather and season determine the verdict
    Say: lamp two happy. Again: lamp two happy.        the list is repeated

A kind is a function that samples a text with marks. `[sleepy#adjective]` marks the target of the
job "adjective", and `[fox:adjective]` a word that must attend to it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np

from attnlab.support.checks import check_choice

Option = TypeVar("Option")

# ----------------------------------------------------------------------------------- the words


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _pairs(text: str) -> dict[str, str]:
    words = text.replace(",", "").split()
    return dict(zip(words[::2], words[1::2], strict=True))


BOYS = _words("Martin Chanler Tom Ben Sam Max Paul Jack Leo Hugo Oscar")
GIRLS = _words("Anna Emma Lucy Mia Nina Clara Ruth Rosa Alice Julia Ella")
NAMES = BOYS + GIRLS

# Each animal's sound and each thing's event, which show what "it" refers to.
SOUNDS = _pairs(
    "dog barked, cat meowed, cow mooed, duck quacked, pig grunted, horse neighed, lion roared, "
    "sheep bleated, frog croaked, wolf howled, owl hooted, bee buzzed, mouse squeaked, "
    "hen clucked, goose honked, snake hissed, bear growled, bird chirped"
)
EVENTS = _pairs(
    "ball rolled, kite flew, egg cracked, bell rang, drum boomed, boat sank, balloon popped, "
    "bubble burst, snowman melted, clock ticked, lamp glowed, stick broke, wheel turned, "
    "rope tore, cup fell, coin vanished, door opened, cake crumbled"
)
ANIMALS, THINGS = tuple(SOUNDS), tuple(EVENTS)
COUNTABLE_ANIMALS = _words("dog cat cow duck frog bird owl horse bear lion")  # with a plural in -s

# The verb that each mood determines.
MOOD_VERBS = _pairs(
    "sleepy yawned, hungry ate, thirsty drank, happy danced, sad wept, angry stamped, scared hid, "
    "brave fought, lazy rested, fluffy purred, curious peeked, cold shivered, dirty washed, "
    "late hurried, noisy shouted, shy whispered, tired slept, busy worked"
)
MOODS = tuple(MOOD_VERBS)
COLOURS = _words("red blue green yellow black white brown grey")
OTHER_ADJECTIVES = (*COLOURS, *_words("small big old young tall round"))
PEOPLE = _words("creature girl boy king queen giant child teacher farmer")

PLACES = _words("garden forest river house school park farm bridge lake hill")
LANDMARKS = _words("tree flower stone wall")
PREPOSITIONS = _words("near behind by")

# Each activity's matching weather and season.
ACTIVITIES = {
    "swimming": ("hot", "summer"),
    "sailing": ("windy", "summer"),
    "skating": ("cold", "winter"),
    "skiing": ("snowy", "winter"),
    "reading": ("rainy", "autumn"),
    "hiking": ("sunny", "autumn"),
    "planting": ("rainy", "spring"),
    "cycling": ("sunny", "spring"),
}
WEATHERS = _words("hot cold rainy windy snowy sunny")
SEASONS = _words("spring summer autumn winter")
# The verdict, by whether the weather and the season match the activity.
VERDICTS = {
    (True, True): "wonderful",
    (True, False): "nice",
    (False, True): "brave",
    (False, False): "silly",
}

OPPOSITES = _pairs(
    "bigger smaller, older younger, faster slower, louder quieter, taller shorter, stronger weaker"
)
FEELINGS = _words("glad proud calm cross")
TRANSITIVE_VERBS = _words("chased found wanted watched touched")
NUMBERS = _words("one two three four five six seven eight nine ten")

LEXICON = tuple(
    dict.fromkeys(
        [
            *(*NAMES, *ANIMALS, *THINGS, *MOODS, *OTHER_ADJECTIVES, *PEOPLE, *PLACES, *LANDMARKS),
            *(*ACTIVITIES, *WEATHERS, *SEASONS, *OPPOSITES, *FEELINGS, *TRANSITIVE_VERBS, *NUMBERS),
            *(*SOUNDS.values(), *EVENTS.values(), *MOOD_VERBS.values()),
            *(*OPPOSITES.values(), *VERDICTS.values()),
        ]
    )
)

# ---------------------------------------------------------------------------- random choices


class Dice:
    """Random choices; `nats` is -log of the probability of all choices so far."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self.nats = 0.0

    def pick(self, options: Sequence[Option]) -> Option:
        """Pick one of the options, each with the same probability."""
        self.nats += math.log(len(options))
        return options[int(self._rng.integers(len(options)))]

    def pick_several(self, count: int, options: Sequence[Option]) -> list[Option]:
        """Pick `count` different options, in random order."""
        remaining, chosen = list(options), []
        for _ in range(count):
            chosen.append(self.pick(remaining))
            remaining.remove(chosen[-1])
        return chosen

    def chance(self, probability: float = 0.5) -> bool:
        """Return True with this probability."""
        outcome = bool(self._rng.random() < probability)
        self.nats -= math.log(probability if outcome else 1 - probability)
        return outcome

    def mostly(self, favourite: Option, options: Sequence[Option]) -> Option:
        """Pick the favourite with probability ½, otherwise one of the other options."""
        if self.chance():
            return favourite
        return self.pick([option for option in options if option != favourite])


# ----------------------------------------------------------------------------------- the kinds


def creature(dice: Dice) -> str:
    """A fluffy blue creature purred: one of the adjectives determines the verb."""
    opening = dice.pick(("", "One day ", "Yesterday ", "By the "))
    if opening == "By the ":
        opening += f"{dice.pick(PLACES)} "
    creatures = " and ".join(_creature(dice) for _ in range(dice.pick((1, 2, 3))))
    return _capitalised(f"{opening}{creatures}.")


def _creature(dice: Dice) -> str:
    mood = dice.pick(MOODS)
    adjectives = dice.pick_several(dice.pick((0, 1, 2)), OTHER_ADJECTIVES)
    adjectives.insert(dice.pick(range(len(adjectives) + 1)), f"[{mood}#adjective]")
    noun = dice.pick(ANIMALS + PEOPLE)
    return f"{_article(adjectives[0])} {' '.join(adjectives)} [{noun}:adjective] {MOOD_VERBS[mood]}"


def _capitalised(text: str) -> str:
    return text[0].upper() + text[1:]


def _article(word: str) -> str:
    return "an" if word.strip("[")[0] in "aeiou" else "a"


def pronoun(dice: Dice) -> str:
    """The dog chased the ball, but it rolled: the verb fits one of the two."""
    animal, thing, verb = dice.pick(ANIMALS), dice.pick(THINGS), dice.pick(TRANSITIVE_VERBS)
    subject, target = f"[{animal}#animal]", f"[{thing}#thing]"
    location = f" {dice.pick(PREPOSITIONS)} the {dice.pick(PLACES)}" if dice.chance() else ""
    if dice.chance():
        clause = f"The {subject} {verb} the {target}{location}"
    else:
        clause = f"The {target} was {verb} by the {subject}{location}"
    second_verb = dice.pick((SOUNDS[animal], EVENTS[thing]))
    return f"{clause}, {dice.pick(('and', 'but'))} [it:animal:thing] {second_verb}."


def weather(dice: Dice) -> str:
    """It’s very hot in summer. Swimming is wonderful: weather and season determine the verdict."""
    first, second = dice.pick_several(2, tuple(ACTIVITIES))
    matching_weather, matching_season = ACTIVITIES[first]
    weather = dice.mostly(matching_weather, WEATHERS)
    season = dice.mostly(matching_season, SEASONS)

    def verdict(activity: str) -> str:
        matching_weather, matching_season = ACTIVITIES[activity]
        return f"{activity} is {VERDICTS[weather == matching_weather, season == matching_season]}"

    text = f"It’s {dice.pick(('very', 'so', 'quite'))} {weather} in {season}. "
    return f"{text}{verdict(first).capitalize()}, and {verdict(second)}."


def family(dice: Dice) -> str:
    """Martin’s one of my sons, and the other is Chanler: both names recur."""
    names, children = dice.pick(((BOYS, "sons"), (GIRLS, "daughters")))
    first, second = both = dice.pick_several(2, names)
    arriving, waiting = dice.pick_several(2, both)
    return (
        f"{first}’s one of my {children}, and the other is {second}. "
        f"When {arriving} came home, {waiting} was {dice.pick(FEELINGS)}."
    )


def gift(dice: Dice) -> str:
    """When Anna and Tom went to the park, Anna gave a kite to Tom: nobody gives to themselves."""
    both = dice.pick_several(2, NAMES)
    giver, receiver = dice.pick_several(2, both)
    thing = dice.pick(THINGS)
    return (
        f"When {' and '.join(both)} went to the {dice.pick(PLACES)}, "
        f"{giver} gave {_article(thing)} {thing} to {receiver}."
    )


def quote(dice: Dice) -> str:
    """Tom said, “The dog isn’t in the garden.” Quotation marks must match."""
    name, verb = dice.pick(NAMES), dice.pick(("is", "isn’t"))
    clause = f"the {dice.pick(ANIMALS)} {verb} {dice.pick(PREPOSITIONS)} the {dice.pick(PLACES)}"
    if dice.chance():
        clause += f" with {dice.pick(NAMES)}"
    return dice.pick(
        (
            f"{name} said, “{_capitalised(clause)}.”",
            f"{name} said that {clause}.",
            f"“{_capitalised(clause)},” said {name}.",
        )
    )


def agreement(dice: Dice) -> str:
    """The dogs near the tree are old: the verb agrees with the subject, not with its neighbour."""
    subject, is_plural = dice.pick(COUNTABLE_ANIMALS), dice.chance()
    text = f"The {subject}{'s' if is_plural else ''} {_near(dice, LANDMARKS)}"
    if dice.chance():
        text += f" {_near(dice, PLACES)}"
    return f"{text} {'are' if is_plural else 'is'} {dice.pick(OTHER_ADJECTIVES)}."


def _near(dice: Dice, landmarks: Sequence[str]) -> str:
    return f"{dice.pick(PREPOSITIONS)} the {dice.pick(landmarks)}{'s' if dice.chance() else ''}"


def colours(dice: Dice) -> str:
    """The cat was black and the dog was white. So the dog was white: colours are recalled."""
    count = dice.pick((2, 3))
    facts = [
        f"the {animal} was {colour}"
        for animal, colour in zip(
            dice.pick_several(count, ANIMALS), dice.pick_several(count, COLOURS), strict=True
        )
    ]
    text = _capitalised(" and ".join(facts))
    return f"{text}. So {' and '.join(dice.pick_several(2, facts))}."


def question(dice: Dice) -> str:
    """Anna has a ball and Tom has a kite. Who has the kite? Tom."""
    owners = dict(zip(dice.pick_several(2, THINGS), dice.pick_several(2, NAMES), strict=True))
    facts = [f"{name} has {_article(thing)} {thing}" for thing, name in owners.items()]
    asked = dice.pick(tuple(owners))
    return f"{' and '.join(facts)}. Who has the {asked}? {owners[asked]}."


def comparison(dice: Dice) -> str:
    """The horse is bigger than the cat, so the cat is smaller than the horse."""
    first, second = dice.pick_several(2, ANIMALS)
    more = dice.pick(tuple(OPPOSITES))
    less = OPPOSITES[more]
    return f"The {first} is {more} than the {second}, so the {second} is {less} than the {first}."


def counting(dice: Dice) -> str:
    """Let’s count: three, four, five. It may begin with any number up to six."""
    start = dice.pick(range(6))
    end = start + dice.pick((3, 4, 5))
    return f"Let’s count: {', '.join(NUMBERS[start:end])}."


def promise(dice: Dice) -> str:
    """I’ll meet Anna by the park, and we’ll walk from the park to the lake: both recur."""
    name, (start, end) = dice.pick(NAMES), dice.pick_several(2, PLACES)
    return (
        f"I’ll meet {name} by the {start}, and we’ll walk from the {start} to the {end}. "
        f"At the {end} {name} sings."
    )


def recital(dice: Dice) -> str:
    """Say: lamp two happy. Again: lamp two happy. Random words, repeated."""
    words = " ".join(dice.pick_several(dice.pick(range(8, 29)), LEXICON))
    return f"Say: {words}. Again: {words}."


KINDS: Mapping[str, Callable[[Dice], str]] = {
    kind.__name__: kind
    for kind in (
        *(creature, pronoun, weather, family, gift, quote, agreement, colours, question),
        *(comparison, counting, promise, recital),
    )
}

# Relative frequencies of kinds, 1 by default, chosen so that each task is learned. Recitals make up
# almost half of all words.
WEIGHTS = {
    "recital": 8,
    "pronoun": 5,
    "creature": 3,
    "weather": 3,
    "colours": 2,
    "question": 2,
    "gift": 2,
    "family": 2,
    "comparison": 2,
}
WEIGHTED_KINDS = tuple(kind for kind in KINDS for _ in range(WEIGHTS.get(kind, 1)))

# --------------------------------------------------------------------------------- the samples


class Link(NamedTuple):
    """A word and the word that it should attend to, as spans of characters.

    job : "adjective", from a noun to its mood; "animal" or "thing", from "it" to what it refers to
    source, target : text[start:end] of the query and of the key
    """

    job: str
    source: tuple[int, int]
    target: tuple[int, int]


@dataclass(frozen=True)
class Sample:
    """One text of the grammar."""

    kind: str  # its name in `KINDS`
    text: str  # one or two sentences, without a line break
    nats: float  # -log of the probability of the text, given its kind
    links: tuple[Link, ...]  # words that must attend to earlier ones


@dataclass(frozen=True)
class Corpus:
    """Samples, one on each line.

    `nats` is -log of the probability of the text, including the choice of kinds: the lowest
    expected loss of any model.
    """

    samples: tuple[Sample, ...]

    @property
    def text(self) -> str:
        return "".join(f"{sample.text}\n" for sample in self.samples)

    @property
    def nats(self) -> float:
        kinds = (
            math.log(len(WEIGHTED_KINDS) / WEIGHTED_KINDS.count(sample.kind))
            for sample in self.samples
        )
        return math.fsum(sample.nats for sample in self.samples) + math.fsum(kinds)


# The seeds of the training texts and of the held-out texts.
TRAINING_SEED = 0
HELD_OUT_SEED = 99


def sample(rng: np.random.Generator, kind: str | None = None) -> Sample:
    """Sample a text, of the given kind or a random one.

    Half of the texts have typographic quotes (“ ” ’), the other half straight ones (" ').
    """
    if kind is None:
        kind = Dice(rng).pick(WEIGHTED_KINDS)
    check_choice(kind, KINDS, "kind")
    dice = Dice(rng)
    text, links = _without_marks(KINDS[kind](dice))
    if set(text) & set("“”’") and dice.chance():
        text = text.translate({ord("“"): '"', ord("”"): '"', ord("’"): "'"})
    return Sample(kind, text, dice.nats, links)


def corpus(seed: int, samples: int) -> Corpus:
    """Texts of random kinds, reproducible by seed."""
    rng = np.random.default_rng(seed)
    return Corpus(tuple(sample(rng) for _ in range(samples)))


def _without_marks(marked: str) -> tuple[str, tuple[Link, ...]]:
    """Split a marked text into plain text and links."""
    text, end = "", 0
    targets: dict[str, tuple[int, int]] = {}
    links = []
    for mark in re.finditer(r"\[(\w+)([#:])([\w:]+)\]", marked):
        text += marked[end : mark.start()]
        word, separator, jobs = mark.groups()
        span = (len(text), len(text) + len(word))
        for job in jobs.split(":"):
            if separator == "#":
                targets[job] = span
            else:
                links.append(Link(job, span, targets[job]))
        text, end = text + word, mark.end()
    return text + marked[end:], tuple(links)
