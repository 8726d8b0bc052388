"""Run the library under limits; its errors must be AttnlabErrors with short, printable messages.

Linux only, for its /proc.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import attnlab

linux = pytest.mark.skipif(sys.platform != "linux", reason="limits by means of /proc")

SECONDS = 8.0  # products in several threads take their time on a busy machine
MEMORY = 200 << 20  # plus twice the size of the input files,
LARGEST = 1 << 30  # but never more than this

# The growth of the address space beyond the allowed memory: file maps and stacks.
SLACK = 256 << 20

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


class LateError(BaseException):
    """Timeout. A BaseException, so that no `except Exception` catches it."""


def status_of(field: str) -> int:
    """A number from /proc/self/status, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith(f"{field}:"))
    return int(line.split()[1]) << 10


def clock() -> float:
    """Seconds, without those in which the process waited for a processor."""
    _, waited, _ = Path("/proc/self/schedstat").read_text().split()
    return time.monotonic() - int(waited) / 1e9


@contextlib.contextmanager
def limits(memory: int, seconds: float) -> Iterator[None]:
    """An alarm after some seconds, and a limit of the address space."""
    import resource

    def late(*_: object) -> None:
        if working and clock() - started >= seconds:
            raise LateError(f"more than {seconds:g} seconds")

    started, working = clock(), True
    outside = resource.getrlimit(resource.RLIMIT_AS)
    handler = signal.signal(signal.SIGALRM, late)
    resource.setrlimit(resource.RLIMIT_AS, (status_of("VmSize") + memory + SLACK, outside[1]))
    signal.setitimer(signal.ITIMER_REAL, seconds, 0.2)  # set again if too early
    try:
        yield
    finally:
        working = False  # on a busy machine another alarm may come before the next line has run
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        resource.setrlimit(resource.RLIMIT_AS, outside)


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


def outcome(attack: Callable[[], Any], inputs: Callable[[], Sequence[str]], size: int = 0) -> Any:
    """What `attack` returns, or the AttnlabError that it raises; anything else is a failure.

    Parameters
    ----------
    inputs : texts that a message must not quote at length
    size : bytes of the input files
    """
    result, refused = None, None
    memory = min(MEMORY + 2 * size, LARGEST)
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak
    before = status_of("VmRSS")
    try:
        with limits(memory, SECONDS):
            result = attack()
    except LateError as late:
        raise AssertionError("hangs") from late
    except attnlab.AttnlabError as error:
        refused = error
    assert status_of("VmHWM") - before <= memory, f"takes more than {memory >> 20} MB"
    if refused is not None:
        message = str(refused)
        problem = problem_of(message, inputs() if len(message) > LONGEST_QUOTE else ())
        assert not problem, f"{type(refused).__name__} {problem}: {message[:160]!a}"
    return result if refused is None else refused
