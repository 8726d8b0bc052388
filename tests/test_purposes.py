"""Purposes of steps: a sentence for every step, also where steps share a name."""

import re
from typing import Any

import pytest

from attnlab.errors import InvalidValueError
from attnlab.forward.attention import MultiHeadAttention
from attnlab.model.trace import Trace
from attnlab.steps import steps_below
from attnlab.views.purposes import PURPOSES, purpose

PATHS = [
    *(path.replace("#", "3") for path, _ in steps_below(Trace)),
    *(path.replace("#", "3") for path, _ in steps_below(MultiHeadAttention)),
    "probabilities",
]


def test_every_step_has_a_purpose_and_every_purpose_a_step() -> None:
    assert {purpose(path) for path in PATHS} == set(PURPOSES.values())
    assert len(set(PURPOSES.values())) == len(PURPOSES)
    for sentence in PURPOSES.values():
        assert re.fullmatch(r"[^.]+\.", sentence), sentence  # exactly one


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("embedding", "The start of the residual stream"),
        ("blocks.3.attention.X", "LayerNorm brings all vectors to one scale"),
        ("blocks.3.attention.heads.5.X", "shared by all heads"),
        ("blocks.3.mlp.X", "the MLP also"),
        ("blocks.3.output", "the MLP's output is added"),
        ("output", "W_O combines"),
        ("heads.2.output", "This head's contribution"),
        ("blocks.3.mlp.output", "The sum of the rows of W_2"),
    ],
)
def test_names_that_several_steps_share(path: str, words: str) -> None:
    assert words in purpose(path)


@pytest.mark.parametrize("path", ["", ".", "3", "blocks.3", "blocks.3.attention", "nope", "a.b.c"])
def test_invalid_steps(path: Any) -> None:
    with pytest.raises(InvalidValueError, match="there is no step"):
        purpose(path)
