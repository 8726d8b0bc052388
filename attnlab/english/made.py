"""Sentences made on purpose for the English model: gifts, number, she and he, what one does.

Books and Tatoeba have too few of them for a small model to learn whom a pronoun stands for, or
which of two nouns a verb agrees with. They are of the same kinds as the sentences that measure the
model, with many of the same nouns; their templates are others, and none of those sentences is among
them.

A pronoun pays off where what follows depends on the noun, not only on its sex: a cow gives milk, a
clock strikes twelve. Only then a head learns to look back at the noun from the pronoun.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import TypeAlias

Kind: TypeAlias = Callable[[random.Random], str]

# Phrases and the nouns that follow them.
Between: TypeAlias = tuple[tuple[str, str], ...]

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
SINGULAR = (
    "cat|kitten|duck|goat|nurse|farmer|friend|apple|letter|picture|chair|house|car|boat|star|cow|"
    "king|soldier|sister|brother|cup|box|road|window|ship|story|song|cake|coat|hat|rabbit|fish"
)
PLURAL = (
    "cats|kittens|ducks|goats|nurses|farmers|friends|apples|letters|pictures|chairs|"
    "houses|cars|boats|stars|cows|kings|soldiers|sisters|brothers|cups|boxes|roads|windows|ships|"
    "stories|songs|cakes|coats|hats|rabbits|fishes"
)
# What stands before the second noun, in any number, in the singular, in the plural.
NEAR = (
    "near the|behind the|beside the|in front of the|next to the|under the|by the|across from the|"
    "above the|from the|of the|like the|after the|on the|that we saw near the|"
    "that belonged to the|that stood by the|that I found under the"
)
WITH = "with one big|with no|without any|with that|far away from my|without her"
WITH_MANY = "with two|with many|without any|with those|far away from all|without her"
WITH_LAST = (
    "with our|with this|without my|without our|far from our|far from her|that came to the|"
    "that came before the|together with the|along with our"
)
WITH_MANY_LAST = (
    "with our|with a few|without my|without those of the|far from our|far from all her|"
    "that came to the|that came before the|together with the|along with our"
)
OTHER = (
    "house|school|lake|hill|fence|barn|church|bridge|wall|road|field|well|queen|neighbor|village|"
    "doctor|table|train|river|mountain"
)
OTHERS = (
    "houses|schools|lakes|hills|fences|barns|churches|bridges|walls|roads|fields|wells|queens|"
    "neighbors|villages|doctors|tables|trains|rivers|mountains"
)
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
PARTICIPLES = "been sold|gone|been there for years|changed|been lost|been found|been seen by all"

# What each noun alone does, by the pronoun that stands for it: all of a kind in one table.
DOES = {
    "it": (
        {
            "cat": "meowed|purred|licked its paw",
            "dog": "barked|wagged its tail|chewed a bone",
            "horse": "galloped away|neighed|wore a saddle",
            "bird": "sang a song|flew away|built a nest",
            "rabbit": "hopped away|ate a carrot|twitched its ears",
            "mouse": "squeaked|nibbled some cheese",
            "lion": "roared|shook its mane",
            "bear": "growled|ate some honey",
            "fox": "hid in its den|stole a hen",
            "cow": "mooed|gave milk|chewed grass",
            "sheep": "bleated|had thick wool",
            "pig": "grunted|rolled in the mud",
            "duck": "quacked|swam in the pond",
            "frog": "croaked|jumped into the water",
            "snake": "hissed|shed its skin",
            "bee": "buzzed|made honey",
            "owl": "hooted|hunted at night",
            "fish": "swam away|had shiny scales",
            "wolf": "howled|ran with its pack",
            "hen": "laid an egg|clucked",
            "elephant": "lifted its trunk|trumpeted",
            "monkey": "climbed a tree|ate a banana",
        },
        {
            "ball": "rolled away|bounced",
            "box": "was full of toys|had a lid",
            "cup": "was full of tea|had a crack",
            "stone": "was hard and gray|sank in the water",
            "book": "had many pages|told a story",
            "basket": "was full of apples|had a handle",
            "chair": "had a broken leg|had a soft seat",
            "bottle": "was full of wine|had a cork",
            "plate": "was full of food|broke in two",
            "branch": "had green leaves|broke off",
            "clock": "struck twelve|ticked loudly",
            "bell": "rang loudly",
            "candle": "burned brightly|melted",
            "lamp": "shone brightly|went out",
            "boat": "sank|sailed away",
            "car": "ran out of gas|broke down",
            "train": "left the station|was late",
            "letter": "was written in ink|came in the mail",
            "kite": "flew high in the sky",
            "drum": "boomed",
            "knife": "was sharp|cut the bread",
            "coat": "was warm|had two pockets",
            "door": "was locked|was open",
            "house": "had a red roof|had five rooms",
        },
    ),
    "she": (
        {
            "girl": "combed her long hair|played with her doll",
            "mother": "kissed her baby|cooked dinner",
            "queen": "wore her crown|ruled the land",
            "princess": "wore a golden dress|danced with the prince",
            "aunt": "baked a cake|wrote to her sister",
            "lady": "put on her hat|opened her fan",
            "witch": "cast a spell|flew on her broom",
            "nurse": "gave him medicine|washed her hands",
            "grandmother": "knitted a sweater|told a fairy tale",
            "sister": "shared her toys",
            "woman": "took her purse",
            "actress": "sang on the stage",
        },
    ),
    "he": (
        {
            "boy": "climbed the tree|kicked his ball",
            "father": "shaved his beard|smoked his pipe",
            "king": "wore his crown|sat on his throne",
            "prince": "drew his sword|married the princess",
            "farmer": "milked his cows|plowed the field",
            "soldier": "fired his gun|marched away",
            "sailor": "sailed his ship|tied a rope",
            "baker": "baked some bread",
            "fisherman": "caught a fish|mended his net",
            "hunter": "shot a deer",
            "brother": "broke his toy",
            "man": "took off his hat",
            "giant": "ate a whole ox",
            "thief": "stole the gold|ran from the police",
            "blacksmith": "made a horseshoe",
        },
    ),
}
# What a person or an animal does to another, a thing to anything, and either somewhere: verbs that
# aren't in the sentences that measure the model.
TO_OTHER = (
    "greeted|visited|noticed|remembered|touched|carried|pulled|pushed|feared|loved|missed|wanted|"
    "left|fed|led|looked at|ran to|waited for|turned to|spoke of|hid from|thought of|jumped over|"
    "played with|lived near|pointed at|forgot|brought|took|kept|worked for|needed|had lost"
)
BY_OTHER = (
    "hit|rolled to|leaned against|belonged to|was given to|was kept by|was near|was behind|"
    "hung over|slid past|missed|touched|was brought to|was left with|was bought from|was made for"
)
SOMEWHERE = (
    "rested|hid|waited|jumped|danced|ran about|smiled|shouted|worked|sang|turned around|arrived|"
    "stayed|lived|played|looked up|paused|fought|ate|was seen|was left|could be seen|grew tired"
)
OF_THINGS = (
    "rested|stayed|was seen|was left|could be seen|was kept|was hidden|hung|had been put|was lost"
)
TOWARDS = (
    "ran|hurried|returned|moved|rushed|was taken|was brought|was carried|had hurried|had moved"
)
BESIDE = "beside|behind|by|in front of|under|across from|not far from|next to|between the wall and"
LINKS = " because|, and|, but| when|, so| until| before|, for"
SCENERY = (
    "door|tree|river|garden|wall|bridge|fire|window|gate|road|lake|hill|barn|church|school|"
    "forest|market"
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


def number(choose: random.Random, between: Between = ((NEAR, OTHER), (NEAR, OTHERS))) -> str:
    """A noun, another between it and its verb, and a verb that agrees with the first."""
    many = choose.random() < 0.5
    noun = one(choose, PLURAL if many else SINGULAR)
    phrases, others = choose.choice(between)
    other = one(choose, others)
    if choose.random() < 0.3:
        ending = f"{'have' if many else 'has'} {one(choose, PARTICIPLES)}"
    else:
        verb = choose.choice([("was", "were"), ("is", "are"), ("was not", "were not")])[many]
        ending = f"{verb} {one(choose, ADJECTIVES)}"
    article = one(choose, "The|The|My|Our|Her|Then the")
    return f"{article} {noun} {one(choose, phrases)} {other} {ending}."


def number_later(choose: random.Random) -> str:
    """The same with other phrases between."""
    return number(choose, ((WITH, OTHER), (WITH_MANY, OTHERS)))


def person(choose: random.Random) -> str:
    """She after a woman, he after a man."""
    woman = choose.random() < 0.5
    people = choose.choice([SHE, WOMEN] if woman else [HE, MEN])
    reason = one(choose, REASONS).format(her="her" if woman else "his")
    seemed = f"{one(choose, people)} {one(choose, 'felt|looked|seemed')} {one(choose, FEELINGS)}"
    return f"{seemed} {one(choose, 'because|because|for')} {'she' if woman else 'he'} {reason}."


def doing(choose: random.Random, pronouns: str = "it|it|she|he") -> str:
    """A pronoun, after its noun and another, and what that noun does."""
    pronoun = one(choose, pronouns)
    table = choose.choice(DOES[pronoun])
    noun = choose.choice(list(table))
    does = one(choose, table[noun])
    how = one(choose, "||old |little |big |young |poor ")
    subject = f"{one(choose, 'The|The|That|My|Our|One day the')} {how}{noun}"
    link = one(choose, LINKS)
    if choose.random() < 0.45:
        stayed = one(choose, "stood|stayed|waited|lay|was")
        beside = f"{one(choose, 'beside|behind|by|in front of|under|across from')} the"
        beside = f"{beside} {one(choose, SCENERY)}"
        if choose.random() < 0.4:
            start = f"{beside.capitalize()} the {how}{noun} {stayed}"
        else:
            start = f"{subject} {stayed} {beside}"
    else:
        kinds = [kind for p, tables in DOES.items() if p != pronoun for kind in tables]
        if choose.random() < 0.2:
            kinds.append(table)
        others = [other for other in choose.choice(kinds) if other != noun]
        thing = table is DOES["it"][1]
        verbs = (
            "was behind|lay beside|belonged to|stood near"
            if thing
            else "met|passed|liked|helped|knew"
        )
        start = f"{subject} {one(choose, verbs)} the {choose.choice(others)}"
    who = "that" if pronoun == "it" else "who"
    repeated = f" It was the {noun} {who} {does}." if choose.random() < 0.3 else ""
    return f"{start}{link} {pronoun} {does}.{repeated}"


def doing_later(choose: random.Random) -> str:
    """The same, mostly of people."""
    return doing(choose, "it|she|she|he|he")


def number_last(choose: random.Random) -> str:
    """The same with still other phrases between, and all nouns there."""
    one_other, others = f"{OTHER}|{SINGULAR}", f"{OTHERS}|{PLURAL}"
    return number(choose, ((WITH_LAST, one_other), (WITH_MANY_LAST, others)))


def doing_last(choose: random.Random) -> str:
    """A pronoun after its noun, mostly with another before or after it, and many verbs."""
    pronoun, other = choose.sample(["it", "she", "he"], 2)
    table = choose.choice(DOES[pronoun])
    noun, place = choose.choice(list(table)), one(choose, SCENERY)
    one_of_other_kind = choose.choice(list(choose.choice(DOES[other])))
    first, second = choose.choices(
        [(noun, ""), (noun, place), (noun, one_of_other_kind), (one_of_other_kind, noun)],
        [0.2, 0.25, 0.35, 0.2],
    )[0]
    is_thing = first in DOES["it"][1]
    subject = one(choose, "|||old |little |big |young |poor ") + first
    who = f"{one(choose, 'the|the|that|my|our')} {subject}"
    to_other, somewhere = (BY_OTHER, OF_THINGS) if is_thing else (TO_OTHER, SOMEWHERE)
    beside, link = one(choose, BESIDE), one(choose, LINKS)
    start = choose.choice(
        [
            f"{who} {one(choose, to_other)} the {second}{link}",
            f"{who} {one(choose, somewhere)} {beside} the {second}{link}",
            f"{beside} the {second} the {subject} {one(choose, somewhere)}{link}",
            f"{one(choose, 'as|after|while|once|before')} {who} {one(choose, TOWARDS)} "
            f"{one(choose, 'toward|from|back to|past|into')} the {second},",
        ]
        if second
        else [f"{who} {one(choose, somewhere)}{link}"]
    )
    return f"{start[0].upper()}{start[1:]} {pronoun} {one(choose, table[noun])}."


# The sentences of each kind; those of LATER are for the second round of the training, those of LAST
# for the third.
COUNTS: Mapping[Kind, int] = {gift: 3_000, number: 16_000, person: 3_000, doing: 30_000}
LATER: Mapping[Kind, int] = {number_later: 6_000, doing_later: 14_000}
LAST: Mapping[Kind, int] = {number_last: 14_000, doing_last: 28_000}


def made_sentences(choose: random.Random, counts: Mapping[Kind, int] = COUNTS) -> list[str]:
    """Different sentences, in any order: as many of each kind."""
    made: dict[str, None] = {}
    for kind, count in counts.items():
        enough = len(made) + count
        while len(made) < enough:
            made[kind(choose)] = None
    sentences = list(made)
    choose.shuffle(sentences)
    return sentences
