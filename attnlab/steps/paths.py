"""Parse paths of steps, such as `blocks.3.attention.heads.5.weights[-1]`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise, product
from typing import Any

from attnlab.errors import InvalidValueError, quoted


@dataclass(frozen=True)
class StepPath:
    """A parsed path of a step, or of a part such as a head.

    Attributes
    ----------
    path : the path without the index, "blocks.3.attention.heads.5.weights"
    index : the index as written, "-1"; None if the path has no brackets
    part : the path of the result that has the step, "blocks.3.attention.heads.5"; "" for the root
    step : the step's name, "weights"
    layer, head : their numbers, 3 and 5; None if the path has no such number, or has a * instead
    """

    path: str
    index: str | None  # a text, since titles and errors show it
    part: str
    step: str
    layer: int | None
    head: int | None

    @property
    def layer_prefix(self) -> str | None:
        """For a path in a head, the start of the layer's paths, "blocks.3.attention."; or None."""
        return None if self.head is None else self.path[: self.path.rindex("heads.")]


@lru_cache(maxsize=10_000)  # each access of a step parses its path again
def parse(path: str) -> StepPath:
    """Parse a path, whether or not a step has it."""
    # "blocks.3.attention.weights[-1]" -> "blocks.3.attention.weights" and "-1".
    without_index, index = path, None
    if found := re.fullmatch(r"([^\[\]]+)\[([^\[\]]*)\]", path):
        without_index, index = found.groups()
    part, _, step = without_index.rpartition(".")
    # A number belongs to the word before it: blocks 3, heads 5. No model has 10 digits of either.
    words = pairwise(without_index.split("."))
    numbers = {kind: int(n) for kind, n in words if re.fullmatch(r"\d{1,9}", n)}
    return StepPath(without_index, index, part, step, numbers.get("blocks"), numbers.get("heads"))


def starred(pattern: str) -> list[str]:
    """For each * of a pattern, what it stands for: "blocks" or "heads"."""
    return [before for before, word in pairwise(pattern.split(".")) if word == "*"]


def fill(pattern: str, counts: Mapping[str, int]) -> Iterator[str]:
    """Yield a pattern's paths. A * is all blocks or all heads; `counts` says how many there are."""
    template = re.sub(r"(?<=\.)\*(?=\.|$)", "{}", pattern)  # a * between dots, or at the end
    for numbers in product(*(range(counts[kind]) for kind in starred(pattern))):
        yield template.format(*numbers)


def parse_index(text: str) -> tuple[Any, ...]:
    """Convert an index as written, "-1" or "..., 2:5", to a tuple that NumPy can index with."""
    items: list[Any] = []
    try:
        # The text isn't evaluated as Python: a path may come from a link or a file.
        for item in map(str.strip, text.split(",")):
            if item == "...":
                items.append(...)
            elif ":" not in item:
                items.append(int(item))
            else:
                bounds = [int(bound) if bound.strip() else None for bound in item.split(":")]
                items.append(slice(*bounds))
                items[-1].indices(0)  # raises if the step is 0
    except (TypeError, ValueError):
        shown = quoted(text)[1:-1]  # without the quotation marks
        raise InvalidValueError(f"[{shown}] isn't an index, such as [-1] or [2:5]") from None
    return tuple(items)


def with_dots(path: str) -> str:
    """Replace Python indices by dots: blocks[1].mid becomes blocks.1.mid."""
    return re.sub(r"\[(-?\d+)\]", r".\1", path)


def dots_hint(path: str) -> str:
    """The end of a message about a path with Python indices; "" for other paths."""
    valid = with_dots(path)
    if valid == path:
        return ""
    is_negative = ".-" in valid  # a path can't have negative numbers between dots
    example = "such as blocks.0.mid" if is_negative else valid
    return f"; in a path, write numbers between dots, from 0: {example}"
