"""Faults on purpose, to see that the machines find them: `python planted.py NAME`.

The fault is planted in attnlab, then a short run must show it: status 0 if it does. NAME is one of
`FAULTS`, or `processes` for cases that are nothing but faults, each of which must be told by name.
"""

from __future__ import annotations

import ctypes
import functools
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import run  # first, as it sets up the process
from processes import Result, attack_all

import attnlab

# Cases without a library


def uninterruptible() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    time.sleep(60)


class AsItIs(attnlab.AttnlabError):
    """An error whose message is what it was given: others make theirs fit to be shown."""

    def __init__(self, message: str) -> None:
        Exception.__init__(self, message)


def refuse(message: str) -> Callable[[], None]:
    def attack() -> None:
        raise AsItIs(message)

    return attack


class Unspeakable(attnlab.AttnlabError):
    def __str__(self) -> str:
        raise TypeError("no words")


def unspeakable() -> None:
    raise Unspeakable


def swallowed() -> None:
    """A hang in code that catches all it can."""
    while True:
        try:
            time.sleep(60)
        except Exception:
            continue


def fail() -> None:
    raise TypeError("planted")


def wait() -> None:
    time.sleep(60)


def eat() -> None:
    assert b"\1" * (400 << 20)  # by far too much, whatever else the system takes back meanwhile


# What is done, and which result it must have.
DEEDS: list[tuple[Callable[[], Any], Result]] = [
    (lambda: 1, Result.RIGHT),
    (refuse("no"), Result.REFUSED),
    (refuse("two\nlines, é"), Result.REFUSED),
    (refuse("\x1b[2J"), Result.MESSAGE),
    (refuse("\ud800"), Result.MESSAGE),
    (refuse("\u202e"), Result.MESSAGE),
    (refuse("given " + "abcdefghij" * 21), Result.MESSAGE),
    (refuse("given " + "abcdefghij" * 19), Result.REFUSED),
    (refuse("many words " * 200), Result.MESSAGE),
    (unspeakable, Result.RAW),
    (lambda: {}["a"], Result.RAW),
    (lambda: sys.exit(0), Result.RAW),
    (wait, Result.HANG),
    (swallowed, Result.HANG),
    (uninterruptible, Result.HANG),
    (eat, Result.MEMORY),
    (lambda: bytearray(1 << 40), Result.MEMORY),
    (lambda: bytearray(100 << 20) and None, Result.RIGHT),
    (lambda: ctypes.string_at(0), Result.CRASH),
    (os.abort, Result.CRASH),
    (lambda: os._exit(0), Result.CRASH),
    (lambda: (Path(__file__).parent / "written").write_text("a"), Result.RAW),
]


class Deed:
    """A case that is nothing but a fault."""

    size = 0

    def __init__(self, number: int) -> None:
        self.attack = DEEDS[number][0]

    def given(self) -> list[str]:
        return ["abcdefghij" * 30]

    def judge(self, found: Any) -> tuple[Result, str]:
        return (Result.REFUSED if isinstance(found, Exception) else Result.RIGHT), ""

    def story(self) -> str:
        return "planted"


def show_deeds() -> int:
    """Each deed with its result; 1 if one has another than it must have."""
    wrong = 0
    cases = range(len(DEEDS))
    for outcome in sorted(attack_all(lambda n, _: Deed(n), cases), key=lambda o: o.number):
        must = DEEDS[outcome.number][1]
        wrong += outcome.result != must
        print(f"{outcome.number:3} {outcome.result:16} must be {must:16} {outcome.what}")
    return int(wrong > 0)


# Faults of the library

Method = Callable[..., Any]


def before(deed: Callable[[], Any], method: Method) -> Method:
    """A method that does something else first."""

    @functools.wraps(method)
    def changed(*given: Any, **named: Any) -> Any:
        deed()
        return method(*given, **named)

    return changed


def other_ids(trace: Method) -> Method:
    """A trace of the same ids in another order."""

    @functools.wraps(trace)
    def changed(self: Any, text_or_ids: Any, **named: Any) -> Any:
        return trace(self, list(text_or_ids)[::-1], **named)

    return changed


def other_words(encode: Method) -> Method:
    """All ids of a text but the last."""

    @functools.wraps(encode)
    def changed(*given: Any, **named: Any) -> Any:
        return encode(*given, **named)[:-1]

    return changed


def scaled(softmax: Method) -> Method:
    @functools.wraps(softmax)
    def changed(*given: Any, **named: Any) -> Any:
        return softmax(*given, **named) * 1.001

    return changed


def refusing(method: Method) -> Method:
    @functools.wraps(method)
    def changed(*given: Any, **named: Any) -> Any:
        raise attnlab.AttnlabError("no")

    return changed


def of_class(change: Callable[[Method], Method]) -> Callable[[Method], Any]:
    """The same for a class method, which is bound already."""
    return lambda method: staticmethod(change(method))


@dataclass(frozen=True)
class Fault:
    """What is planted where, and which result must show it in a short run of which kind.

    `sign` must stand in what is told of it, so that no other fault is taken for this one.
    """

    place: Any
    attribute: str
    change: Callable[[Method], Any]
    kind: str
    must: Result
    sign: str
    cases: int = 60

    def plant(self) -> None:
        setattr(self.place, self.attribute, self.change(getattr(self.place, self.attribute)))


def first(deed: Callable[[], Any]) -> Callable[[Method], Method]:
    return lambda method: before(deed, method)


def in_opening(attribute: str, change: Callable[[Method], Any], must: Result, sign: str) -> Fault:
    return Fault(attnlab.GPT2, attribute, change, "directories", must, sign)


FAULTS = {
    "logits": in_opening("trace", other_ids, Result.OTHER, "the logits are not"),
    "strict": in_opening("from_pretrained", of_class(refusing), Result.STRICT, "'no'"),
    "raw": in_opening("from_pretrained", of_class(first(fail)), Result.RAW, "planted"),
    "crash": in_opening("trace", first(os.abort), Result.CRASH, "planted.py"),
    "memory": in_opening("trace", first(eat), Result.MEMORY, "takes more than"),
    "ids": Fault(attnlab.Tokenizer, "encode", other_words, "directories", Result.OTHER, "ids"),
    "words": Fault(attnlab.Tokenizer, "encode", other_words, "calls", Result.OTHER, "encode", 900),
    "equation": Fault(attnlab, "softmax", scaled, "calls", Result.OTHER, "softmax", 900),
    "hang": Fault(attnlab, "causal_mask", first(wait), "calls", Result.HANG, "causal_mask", 150),
    "crash of a call": Fault(
        *(attnlab, "merge_heads", first(os.abort)),
        *("calls", Result.CRASH, "merge_heads", 300),
    ),
}


def show_fault(fault: Fault) -> int:
    fault.plant()
    found = run.attack_kinds([fault.kind], fault.cases, seed=1)
    print(run.table(found))
    told = [o.what + o.story for o in found[fault.kind] if o.result == fault.must]
    return int(not any(fault.sign in text for text in told))


if __name__ == "__main__":
    (name,) = sys.argv[1:]
    sys.exit(show_deeds() if name == "processes" else show_fault(FAULTS[name]))
