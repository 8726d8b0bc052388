"""Published figures, and comparisons of computed numbers with them.

| name | figures | decimals | source |
| --- | --- | --- | --- |
| walkthrough | GPT-2, layer 0, head 0, on `It’s very hot in summer. Swimming is` | 4; 2 for scores and weights | orczhou.com, "understanding-llm-attention", 2025-12-31 |
| journey | "Your journey starts with one step", six tokens of three numbers | 6 | computed with PyTorch 2.13.0, float32 |
| cat_eats_fish | 猫 吃 鱼, three tokens of four numbers | 4 | the printed output of a tutorial's program |
| gpt3_parameters | GPT-3's attention and embedding parameters | exact | notes on 3Blue1Brown's chapter on attention |
| gpt2_patterns | GPT-2's attention on two prompts: `prompt_0`, `ids_0`, `weights_0` (layers, heads, T, T), ... | float32 | the examples of github.com/poloclub/transformer-explainer (MIT licence, copyright 2022 Polo Club of Data Science) |
"""  # noqa: E501 (a table)

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from attnlab.checking.comparison import distance
from attnlab.errors import InvalidValueError, quoted
from attnlab.support.checks import as_array, as_count, as_reals, check_choice, check_kind
from attnlab.support.files import read_json
from attnlab.support.messages import Message

# The effect of the order of summation in float32.
FLOAT32_NOISE = 1e-6

MAX_DECIMALS = 300  # 10**-300 is still larger than 0


@dataclass(frozen=True)
class Comparison:
    """The comparison of a table of figures with computed numbers."""

    name: str  #: the table's
    figures: int  #: how many were compared
    largest_difference: float  #: inf if the shapes differ, or only one of two scores is hidden
    tolerance: float  #: half a unit of the last printed decimal, plus float32 rounding

    @property
    def agrees(self) -> bool:
        return self.largest_difference <= self.tolerance

    def __str__(self) -> str:
        one, many = "1 figure agrees", "{count} figures agree"
        if not self.agrees:
            one, many = "1 figure DOES NOT agree", "{count} figures DO NOT agree"
        verdict = Message(one if self.figures == 1 else many, count=self.figures)
        template = "{name}: {verdict}, largest difference {largest}"
        largest = f"{self.largest_difference:.1e}"
        return str(Message(template, name=self.name, verdict=verdict, largest=largest))


def load(name: str) -> dict[str, Any]:
    """Load recorded figures by a name in the module's table."""
    files = {x.stem: x for x in Path(__file__).parent.iterdir() if x.suffix in (".json", ".npz")}
    check_choice(name, sorted(files), "name")
    if files[name].suffix == ".json":
        return read_json(files[name], InvalidValueError)
    with np.load(files[name]) as arrays:
        return {key: array if array.ndim else array.item() for key, array in arrays.items()}


def compare(name: str, computed: ArrayLike, recorded: ArrayLike, decimals: int) -> Comparison:
    """Compare numbers with recorded ones that were rounded to some decimals.

    None means -inf. Any score that is so low that its weight is 0 counts as -inf.
    """
    tolerance = 0.5 * 10.0 ** -as_count(decimals, "decimals", most=MAX_DECIMALS) + FLOAT32_NOISE
    cells = as_array(recorded, "recorded")
    numbers = np.where(cells == np.array(None), -np.inf, cells).tolist()
    expected = as_reals(numbers, f"the recorded {name}", "biuf")
    actual = as_reals(computed, f"the computed {name}", "biuf")
    if not expected.size:
        raise InvalidValueError(f"the recorded {name} is empty")
    is_like = actual.shape == expected.shape
    largest = float(distance(actual, expected).max()) if is_like else np.inf
    return Comparison(name, expected.size, largest, tolerance)


def verdict(
    published: Mapping[str, Any],
    inputs: Mapping[str, Any],
    decimals: int,
    **computed: ArrayLike,
) -> str:
    """Compare computed tables with the published ones of the same names.

    They aren't compared if an input of the computation is not the published one.
    """
    for given, name in ((published, "published"), (inputs, "inputs")):
        check_kind(given, Mapping, name, "a dict of arrays")
    if not computed or (unknown := {*inputs, *computed} - {*published}):
        got = quoted([*unknown]) if computed else "none"
        raise InvalidValueError(f"published are {quoted([*published], 200)}; got {got}")
    changed = [
        f"\n  {name} = {quoted(np.asarray(published[name]).tolist())}"
        for name, used in inputs.items()
        if not np.array_equal(used, published[name])
    ]
    if changed:
        template = "You changed the input: the published figures are for{inputs}"
        return Message(template, inputs="".join(changed))
    comparisons = [compare(name, x, published[name], decimals) for name, x in computed.items()]
    disagreeing = [str(comparison) for comparison in comparisons if not comparison.agrees]
    if disagreeing:
        return "\n".join(disagreeing)
    count = sum(comparison.figures for comparison in comparisons)
    one, many = "the published figure agrees", "all {count} published figures agree"
    agree = Message(one if count == 1 else many, count=count)
    return Message("{names}: {agree}", names=", ".join(computed), agree=agree)
