"""What each step is for: a sentence for every step, the right one where names are shared."""

import re
from typing import Any

import pytest

from attnlab.errors import InvalidValueError
from attnlab.forward.attention import MultiHeadAttention
from attnlab.forward.edits import steps_below
from attnlab.model.trace import Trace
from attnlab.views.purposes import PURPOSES, purpose

PATHS = [
    *(path.replace("#", "3") for path, _ in steps_below(Trace)),
    *(path.replace("#", "3") for path, _ in steps_below(MultiHeadAttention)),
    "probabilities",
]


def test_every_step_has_a_purpose_and_none_is_too_many() -> None:
    assert {purpose(path) for path in PATHS} == set(PURPOSES.values())
    assert len(set(PURPOSES.values())) == len(PURPOSES)
    for sentence in PURPOSES.values():
        assert re.fullmatch(r"[^.]+\.", sentence), sentence  # one, and no more


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("embedding", "The residual stream begins here"),
        ("blocks.3.attention.X", "LayerNorm gives all vectors one scale"),
        ("blocks.3.attention.heads.5.X", "the same for all heads"),
        ("blocks.3.mlp.X", "the MLP too"),
        ("X", "What enters attention, a vector"),
        ("blocks.3.mid", "A residual: what attention found"),
        ("blocks.3.output", "A residual again: what the MLP found"),
        ("blocks.3.attention.output", "W_O mixes"),
        ("output", "W_O mixes"),
        ("heads.2.output", "this head alone"),
        ("blocks.11.attention.heads.0.output", "this head alone"),
        ("blocks.3.mlp.output", "What the units that answered write"),
        ("blocks.3.attention.heads.5.weights", "the maximum is subtracted first since it cancels"),
        ("logits", "how far the vector points the way of that token's column"),
        ("probabilities", "shares of the logits"),
    ],
)
def test_names_that_several_steps_share(path: str, words: str) -> None:
    assert words in purpose(path)


@pytest.mark.parametrize("path", ["", ".", "3", "blocks.3", "blocks.3.attention", "nope", "a.b.c"])
def test_what_is_no_step(path: Any) -> None:
    with pytest.raises(InvalidValueError, match="there is no step"):
        purpose(path)
