"""New texts from the grammar that made the pocket model's training texts.

Each kind of text needs attention for one task: to find a noun's adjective, the noun that "it"
refers to, or the word that came next last time:

    A sleepy blue fox yawned.                          the mood determines the verb
    The dog chased the ball, but it rolled.            "it" is the animal or the thing
    It’s very hot in summer. Swimming is wonderful.    weather and season determine the verdict
    Say: lamp two happy. Again: lamp two happy.        the list is repeated

`examples/pocket/grammar.py` in attnlab's repository drew the texts independently of each other.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from attnlab.support.checks import check_choice

FILE = Path(__file__).with_name("held_out.json.gz")


class Sample(NamedTuple):
    """One text of the grammar."""

    kind: str  # such as "recital"
    text: str  # one or two sentences, without a line break
    # Words that must attend to earlier words: the job, then the query's and the key's characters,
    # [start, end] each. "adjective" links a noun to its mood, "animal" and "thing" link "it".
    links: Sequence[tuple[str, Sequence[int], Sequence[int]]]


def samples(kind: str | None = None) -> list[Sample]:
    """The texts of one kind, or all 10,400 texts in random order.

    Half of the texts have typographic quotes (“ ” ’), the other half straight quotes (" ').
    """
    texts = _texts()
    check_choice(kind, (*dict.fromkeys(each.kind for each in texts), None), "kind")
    return [each for each in texts if kind in (each.kind, None)]


@cache
def _texts() -> tuple[Sample, ...]:
    with gzip.open(FILE, "rt", encoding="utf-8") as file:
        return tuple(Sample(*fields) for fields in json.load(file))
