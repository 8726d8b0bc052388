"""Sentences made on purpose for the English model: gifts, number, she and he, it.

They are about two hundredths of its text. Books and Tatoeba have too few of them for a small model
to learn whom a pronoun stands for, or which of two nouns a verb agrees with. Their templates are
not those of the sentences that measure the model.
"""

from __future__ import annotations

import random

# Words and phrases to choose from, with | between.
WOMEN = (
    "The girl|The woman|The queen|The little girl|The old woman|My mother|My sister|"
    "My aunt|My daughter|My niece"
)
MEN = (
    "The boy|The man|The king|The little boy|The old man|My father|My brother|My uncle|"
    "My son|My nephew"
)
SHE = (
    "Mary|Anna|Alice|Emma|Sarah|Lucy|Jane|Kate|Susan|Lisa|Laura|Julia|Helen|Emily|"
    "Grace|Amy|Betty|Nancy|Ruth|Rose|Maria|Eva|Ellen|Mei|Yuki|Priya|Fatima|Leila|"
    "Amina|Carmen|Rosa|Elena|Olga|Marie|Ingrid"
)
HE = (
    "John|Tom|James|Peter|David|Michael|Paul|Mark|Robert|William|George|Henry|Jack|"
    "Daniel|Sam|Ben|Adam|Tim|Bill|Bob|Jim|Joe|Charles|Harry|Max|Fred|Wei|Kenji|"
    "Ravi|Omar|Ali|Hassan|Kofi|Carlos|Pedro|Ivan|Pierre|Hans|Marco|Lars"
)
ANIMALS = (
    "kitten|puppy|lamb|goat|monkey|elephant|frog|duck|hen|pig|sheep|wolf|tiger|squirrel|donkey"
)
SINGULAR = (
    "cat|kitten|duck|goat|nurse|farmer|friend|apple|letter|picture|chair|house|car|boat|star|cow"
)
PLURAL = (
    "cats|kittens|ducks|goats|nurses|farmers|friends|apples|letters|pictures|chairs|"
    "houses|cars|boats|stars|cows"
)
NEAR = "near|behind|beside|in front of|next to|under|by|across from"
OTHER = "house|school|lake|hill|fence|barn|church|bridge|wall|road|field|well"
OTHERS = "houses|schools|lakes|hills|fences|barns|churches|bridges|walls|roads|fields|wells"
ADJECTIVES = (
    "old|new|big|small|very old|very beautiful|clean|ready|still there|quiet|lost|cold|wet|white"
)
PLACES = "market|school|park|station|garden|library|river|beach|farm|church|bakery|cinema|store"
GIFTS = (
    "a book|a drink|an apple|a letter|a flower|a ring|a cake|a ball|a present|"
    "some bread|a cup of tea|some money|the key|a coat|a picture|the map"
)
REASONS = (
    "had worked all day|had not slept well|had lost {her} bag|could not find {her} key|"
    "was late again|missed {her} friends|had found a coin|wanted to go home|had a new coat|"
    "had walked a long way|was going to see {her} friends|had won the game|"
    "had broken {her} cup|wanted to help|did not know the way|was alone"
)
FEELINGS = "tired|happy|sad|angry|glad|proud|worried|hungry|thirsty|sleepy|cold|excited|afraid"
FOR_IT = (
    "wanted some milk|had hurt its leg|saw some food|heard a noise|was thirsty|"
    "was afraid of the dark|had run too far|could not find its mother|wanted to play|was full"
)


def one(choose: random.Random, phrases: str) -> str:
    """One of the phrases."""
    return choose.choice(phrases.split("|"))


def gift(choose: random.Random) -> str:
    """Two people go somewhere and one gives the other something: who the other is stands before."""
    first, second = choose.sample(f"{SHE}|{HE}".split("|"), 2)
    giver, taker = choose.sample([first, second], 2)
    going = one(choose, "went to the|met at the|were at the|walked to the|sat in the")
    verb, to = one(choose, "gave to|handed to|showed to|brought to|bought for").split()
    opening = one(choose, "{} and {} {} {}.|When {} and {} {} {},|Yesterday {} and {} {} {}.")
    start = opening.format(first, second, going, one(choose, PLACES))
    return f"{start} {giver} {verb} {one(choose, GIFTS)} {to} {taker}."


def number(choose: random.Random) -> str:
    """A noun, another between it and its verb, and a verb that agrees with the first."""
    many = choose.random() < 0.5
    noun = one(choose, PLURAL if many else SINGULAR)
    other = one(choose, choose.choice([OTHER, OTHERS]))
    verb = choose.choice([("was", "were"), ("is", "are"), ("was not", "were not")])[many]
    article = one(choose, "The|The|My|Our")
    return f"{article} {noun} {one(choose, NEAR)} the {other} {verb} {one(choose, ADJECTIVES)}."


def person(choose: random.Random) -> str:
    """She after a woman, he after a man."""
    woman = choose.random() < 0.5
    people = choose.choice([SHE, WOMEN] if woman else [HE, MEN])
    reason = one(choose, REASONS).format(her="her" if woman else "his")
    seemed = f"{one(choose, people)} {one(choose, 'felt|looked|seemed')} {one(choose, FEELINGS)}"
    return f"{seemed} {one(choose, 'because|because|for')} {'she' if woman else 'he'} {reason}."


def animal(choose: random.Random) -> str:
    """It after an animal, with a place between."""
    noun, place = one(choose, ANIMALS), one(choose, OTHER)
    did = one(
        choose, "ran to the|lay in front of the|waited behind the|came to the|jumped over the"
    )
    return f"The {noun} {did} {place} because it {one(choose, FOR_IT)}."


def made_sentences(choose: random.Random, count: int = 20_000) -> list[str]:
    """That many different sentences, of the four kinds in turn."""
    kinds = (gift, number, person, animal)
    made: dict[str, None] = {}
    while len(made) < count:
        made[kinds[len(made) % len(kinds)](choose)] = None
    return list(made)
