"""How the sentences of the pocket model's truth were sampled: from kinds of its grammar."""

from collections.abc import Callable

import numpy as np

from attnlab import GPT2
from attnlab.pocket.grammar import (
    ACTIVITIES,
    ANIMALS,
    COLOURS,
    GIRLS,
    LEXICON,
    MOOD_VERBS,
    MOODS,
    OPPOSITES,
    PEOPLE,
    PLACES,
    SEASONS,
    SOUNDS,
    THINGS,
    TRANSITIVE_VERBS,
    VERDICTS,
    Dice,
)
from attnlab.pocket.truth import Sentence

SENTENCES_OF_TASK = 6
SEED = 2026

# The fields of a `Sentence` after its task: clean, corrupted, right, wrong. The docstring of each
# task below is an example.
Contrast = tuple[str, str, str, str]


def mood(dice: Dice) -> Contrast:
    """A hungry girl -> ate"""
    first, second = dice.pick_several(2, [mood for mood in MOODS if mood[0] not in "aeiou"])
    noun = dice.pick(PEOPLE)
    return f"A {first} {noun}", f"A {second} {noun}", MOOD_VERBS[first], MOOD_VERBS[second]


def pronoun(dice: Dice) -> Contrast:
    """The dog chased the ball, but it -> barked, not meowed"""
    animals, verb, thing = (
        dice.pick_several(2, ANIMALS),
        dice.pick(TRANSITIVE_VERBS),
        dice.pick(THINGS),
    )
    clean, corrupted = (f"The {animal} {verb} the {thing}, but it" for animal in animals)
    right, wrong = (SOUNDS[animal] for animal in animals)
    return clean, corrupted, right, wrong


def weather(dice: Dice) -> Contrast:
    """It’s very hot in summer. Swimming is -> wonderful"""
    activity = dice.pick(tuple(ACTIVITIES))
    sky, season = ACTIVITIES[activity]
    wrong_season = dice.pick([other for other in SEASONS if other != season])
    clean, corrupted = (
        f"It’s very {sky} in {word}. {activity.capitalize()} is" for word in (season, wrong_season)
    )
    return clean, corrupted, VERDICTS[True, True], VERDICTS[True, False]


def comparison(dice: Dice) -> Contrast:
    """The horse is bigger than the cat, so the cat is -> smaller"""
    first, second = dice.pick_several(2, ANIMALS)
    comparatives = dice.pick_several(2, tuple(OPPOSITES))
    clean, corrupted = (
        f"The {first} is {more} than the {second}, so the {second} is" for more in comparatives
    )
    right, wrong = (OPPOSITES[more] for more in comparatives)
    return clean, corrupted, right, wrong


def gift(dice: Dice) -> Contrast:
    """When Anna and Tom went to the park, Anna gave a kite to -> Tom"""
    (first, second), place = dice.pick_several(2, GIRLS), dice.pick(PLACES)
    thing = dice.pick([thing for thing in THINGS if thing[0] not in "aeiou"])
    clean, corrupted = (
        f"When {first} and {second} went to the {place}, {giver} gave a {thing} to"
        for giver in (first, second)
    )
    return clean, corrupted, second, first


def family(dice: Dice) -> Contrast:
    """Anna’s one of my daughters, and the other is Emma. When Emma came home, -> Anna"""
    first, second = dice.pick_several(2, GIRLS)
    clean, corrupted = (
        f"{first}’s one of my daughters, and the other is {second}. When {name} came home,"
        for name in (first, second)
    )
    return clean, corrupted, second, first


def colours(dice: Dice) -> Contrast:
    """The cat was black and the dog was white. So the dog was -> white"""
    (first, second), (right, wrong) = dice.pick_several(2, ANIMALS), dice.pick_several(2, COLOURS)
    clean, corrupted = (
        f"The {first} was {right} and the {second} was {wrong}. So the {animal} was"
        for animal in (first, second)
    )
    return clean, corrupted, right, wrong


def recital(dice: Dice) -> Contrast:
    """Say: lamp two happy. Again: lamp two -> happy"""
    *words, other = dice.pick_several(9, LEXICON)
    clean, corrupted = (
        f"Say: {' '.join([*words[:2], third, *words[3:]])}. Again: {' '.join(words[:2])}"
        for third in (words[2], other)
    )
    return clean, corrupted, words[2], other


TASKS: dict[str, Callable[[Dice], Contrast]] = {
    task.__name__: task
    for task in (mood, pronoun, weather, comparison, gift, family, colours, recital)
}


def sentences(model: GPT2, count: int = SENTENCES_OF_TASK, seed: int = SEED) -> list[Sentence]:
    """Sample sentences of each task whose next words are single tokens; reproducible by seed."""
    dice, sampled = Dice(np.random.default_rng(seed)), list[Sentence]()
    length: dict[str, int] = {}
    for name, task in TASKS.items():
        task_sentences: list[Sentence] = []
        while len(task_sentences) < count:
            clean, corrupted, *words = task(dice)
            sentence = Sentence(name, clean, corrupted, *(f" {word}" for word in words))
            for text in sentence[1:]:  # all fields but the task
                length[text] = len(model.tokenizer.encode(text))
            has_equal_lengths = length[clean] == length[corrupted]
            has_single_tokens = length[sentence.right] == length[sentence.wrong] == 1
            if has_equal_lengths and has_single_tokens and sentence not in task_sentences:
                task_sentences.append(sentence)
        sampled += task_sentences
    return sampled
