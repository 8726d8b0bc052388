"""Run the library on damaged files: its errors are AttnlabErrors with short messages."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import attnlab

# The longest quotation of input in a message, and the longest message.
LONGEST_QUOTE = 200
LONGEST_MESSAGE = 2000


def fuzz(few: int, many: int, **strategies: st.SearchStrategy[Any]) -> Callable[..., Any]:
    """A decorator that runs a test with a few examples, and with many if slow tests are chosen.

    The examples are the same each time, unless FUZZ_EXAMPLES gives another number of them.
    """
    override = int(os.environ.get("FUZZ_EXAMPLES", 0))

    def decorate(test: Callable[..., None]) -> Callable[[int], None]:
        @pytest.mark.parametrize("count", [few, pytest.param(many, marks=pytest.mark.slow)])
        def run(count: int) -> None:
            settings(
                max_examples=override or count,
                derandomize=not override,
                database=None,
                suppress_health_check=list(HealthCheck),
            )(given(**strategies)(test))()

        return run

    return decorate


@contextlib.contextmanager
def directory() -> Iterator[Path]:
    """An empty subdirectory as the working directory."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="fuzz-") as root:
        path = Path(root).resolve() / "outer" / "inner"
        path.mkdir(parents=True)
        os.chdir(path)
        try:
            yield path
        finally:
            os.chdir(before)


def problem_of(message: str, inputs: Sequence[str]) -> str:
    """What is wrong with an error's message, or ""."""
    try:
        message.encode("utf-8")
    except UnicodeEncodeError:
        return "can't be encoded to UTF-8"
    if not message.replace("\n", "").isprintable():
        return "isn't printable"
    if len(message) > LONGEST_MESSAGE:
        return f"has more than {LONGEST_MESSAGE} characters"
    for start in range(len(message) - LONGEST_QUOTE):
        if any(message[start : start + LONGEST_QUOTE + 1] in text for text in inputs):
            return f"quotes more than {LONGEST_QUOTE} characters of the input"
    return ""


def outcome(attack: Callable[[], Any], inputs: Callable[[], Sequence[str]]) -> Any:
    """What `attack` returns, or the AttnlabError that it raises; anything else is a failure.

    Parameters
    ----------
    inputs : texts that a message must not quote at length
    """
    refused: attnlab.AttnlabError | None = None
    try:
        result = attack()
    except attnlab.AttnlabError as error:
        refused = error
    if refused is None:
        return result
    message = str(refused)
    problem = problem_of(message, inputs() if len(message) > LONGEST_QUOTE else ())
    assert not problem, f"{type(refused).__name__} {problem}: {message[:160]!a}"
    return refused
