"""Every chapter runs with the changes of `changes.toml`, those of different pieces together."""

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from book import CHANGED, CHANGES, FASTER, OF_FIGURES, Changes, changed, run, script_of

SOLVED = ("15",)  # its changes are mistakes in the solutions


def combined(script: str, changes: Changes) -> Changes:
    """Join changes of different pieces of a chapter, so that one run tests several."""
    groups: Changes = {}
    for name, change in changes.items():
        for names, group in groups.items():
            with contextlib.suppress(AssertionError):  # they change the same piece
                assert not group.keys() & change.keys()
                changed(script, group | change)
                groups[f"{names}; {name}"] = groups.pop(names) | change
                break
        else:
            groups[name] = change
    return groups


def runs() -> Iterator[Any]:
    """Each run's chapter, its changes, and whether they are of published figures."""
    for number in CHANGES:
        script = script_of(number, number in SOLVED)
        for of_figures, changes in ((False, CHANGES[number]), (True, OF_FIGURES[number])):
            for names, group in combined(script, changes).items():
                yield pytest.param(number, group, of_figures, id=f"{number}: {names}")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")  # mistakes of chapter 15
@pytest.mark.parametrize(("number", "changes", "of_figures"), [*runs()])
def test_chapter_runs_with_other_numbers(
    number: str, changes: dict[str, str], of_figures: bool
) -> None:
    is_solved = number in SOLVED
    faster = FASTER.get(number, {})
    printed = run(number, faster | changes, draws=True, is_solved=is_solved).printed
    assert len(printed.splitlines()) > (20 if number.isdigit() else 2)
    assert (CHANGED in printed) == of_figures
    assert "NOT agree" not in printed
    assert "nan" not in printed.replace("-", " ").split()
