"""Texts of the grammar that the pocket model was trained on, drawn anew.

Each kind of text needs attention for one task, such as finding a noun's adjective, what "it" refers
to, or the word that followed the same word before:

    A sleepy blue fox yawned.                          the mood determines the verb
    The dog chased the ball, but it rolled.            "it" is the animal or the thing
    It’s very hot in summer. Swimming is wonderful.    weather and season determine the verdict
    Say: lamp two happy. Again: lamp two happy.        the list is repeated

`examples/pocket/grammar.py` in attnlab's repository drew them independently of each other.
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
    # Words that must attend to an earlier word: (job, (start, end) of the query's characters, those
    # of the key's). Jobs: from a noun to its "adjective", from "it" to its "animal" or "thing".
    links: Sequence[tuple[str, Sequence[int], Sequence[int]]]


def samples(kind: str | None = None) -> list[Sample]:
    """The texts of one kind, or the 10,400 texts of all kinds in random order.

    Half of the texts have typographic quotes (“ ” ’), the other half straight ones (" ').
    """
    texts = _texts()
    check_choice(kind, (*dict.fromkeys(each.kind for each in texts), None), "kind")
    return [each for each in texts if kind in (each.kind, None)]


@cache
def _texts() -> tuple[Sample, ...]:
    with gzip.open(FILE, "rt", encoding="utf-8") as file:
        return tuple(Sample(*fields) for fields in json.load(file))
