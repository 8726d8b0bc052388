"""Run the book's chapters, unchanged or with pieces replaced.

On the pocket model. Tests check a chapter's variables and its output.
"""

import contextlib
import io
import os
import re
import sys
import tomllib
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

from filelock import FileLock

from attnlab import figures, pictures
from attnlab.views import plot

sys.path.append(str(Path(__file__).parent.parent / "examples" / "book"))

import execute
from editions import CHAPTERS, LATER, file_of, lesson, prose, texts, translation_of

__all__ = ["CHAPTERS", "LATER", "execute", "file_of"]

PICTURES = ("arrows", "curves", "heatmap", "plane", "points")
PLOTS = tuple(name for name in vars(plot) if name.startswith("plot_"))

CHANGED = "You changed the input: the published figures are for\n"

# Changes of each chapter, by name: pieces of its text and their replacements. Those of OF_FIGURES
# change the input of published figures.
Changes = dict[str, dict[str, str]]
CHANGES: dict[str, Any] = tomllib.loads((Path(__file__).parent / "changes.toml").read_text("utf-8"))
OF_FIGURES: dict[str, Changes] = {
    number: changes.pop("of_figures", {}) for number, changes in CHANGES.items()
}

# Smaller sizes by chapter number, for tests that don't check the chapter's results.
FASTER = {
    "04": {"draws = 100_000": "draws = 500"},
    "05": {"draws = 50_000": "draws = 500", "queries, choices = 5_000": "queries, choices = 50"},
    "11": {"TRIES, TIMES = 8, 16": "TRIES, TIMES = 2, 16"},
    "12": {"STEPS, EVERY = 1200, 50": "STEPS, EVERY = 12, 6"},
    "13": {
        "queries, seed = 500, 0": "queries, seed = 40, 0",
        "steps_of_learning = 100, 16, 200": "steps_of_learning = 10, 16, 3",
    },
    "16": {
        "TEXTS, SEED = 1_600,": "TEXTS, SEED = 100,",
        "COMPARED = 400": "COMPARED = 20",
        "ABLATED = 60": "ABLATED = 3",
    },
}


class Chapter(dict[str, Any]):
    """The variables of an executed chapter, and its output."""

    printed: str


def changed(script: str, changes: dict[str, str]) -> str:
    """A chapter's text with pieces replaced, each of which must occur exactly once."""
    for old, new in changes.items():
        assert script.count(old) == 1, f"{old!r} is in the chapter {script.count(old)} times"
        script = script.replace(old, new)
    return script


def run(
    number: str,
    changes: dict[str, str],
    *,
    until: str = "",
    draws: bool = False,
    is_solved: bool = False,
    model: str = "pocket",
) -> Chapter:
    """Run a chapter, as far as `until`, with pieces replaced and its functions empty or written.

    Pictures and plots are replaced by mocks, because they are slow; `test_pictures.py` and
    `test_plot.py` test them.
    """
    file = file_of(number)
    script = changed(script_of(number, is_solved), changes)
    assert until in script
    script = script.partition(until)[0] if until else script
    chapter, printed = Chapter(__name__="__main__"), io.StringIO()
    left_out = ("_put_labels",) if draws else PICTURES
    plots = mock.patch.multiple(plot, **dict.fromkeys(PLOTS, mock.DEFAULT))
    with (
        mock.patch.dict(os.environ, ATTNLAB_MODEL=model),
        mock.patch.multiple(pictures, **dict.fromkeys(left_out, mock.DEFAULT)),
        contextlib.nullcontext() if draws else plots,
        contextlib.redirect_stdout(printed),
    ):
        exec(compile(script, file, "exec"), chapter)
    chapter.printed = printed.getvalue()
    return chapter


def executed(name: str, code: list[str], language: str) -> tuple[list[Any], bool]:
    """What a notebook's cells give; of the processes of a test run, one executes them for all."""
    execute.CACHE.mkdir(parents=True, exist_ok=True)
    with FileLock(execute.CACHE / f"{language}-{name}.lock"):
        return execute.execute(name, code, language)


HIDDEN = re.compile("### BEGIN HIDDEN TESTS\n.*?### END HIDDEN TESTS\n", re.DOTALL)


def script_of(number: str, is_solved: bool = False) -> str:
    """A chapter's script; if `is_solved`, the teacher's, without tests that stop at mistakes."""
    file = file_of(number)
    if is_solved:
        return HIDDEN.sub("", lesson(file, "en", "teacher"))
    return file.read_text(encoding="utf-8")


@cache
def run_unchanged(number: str, is_solved: bool = False) -> Chapter:
    return run(number, {}, is_solved=is_solved)


def check_figures(recorded: dict[str, Any], decimals: int, **computed: Any) -> None:
    for name, ours in computed.items():
        assert figures.compare(name, ours, recorded[name], decimals).agrees


EXERCISE = re.compile(
    r"\*\*(?:Exercise|练习) (\d+)(?:.(?!\*\*(?:Exercise|练习)))*?"
    r"<details><summary>[^<]+</summary>(.*?)</details>",
    re.DOTALL,
)


def answers(text: str) -> dict[int, str]:
    """The collapsed answers of a chapter's exercises, by number."""
    return {int(number): answer.strip() for number, answer in EXERCISE.findall(text)}


def answer_of(number: str, exercise: int) -> str:
    """The collapsed answer of a chapter's exercise, in English, on one line."""
    script = file_of(number).read_text(encoding="utf-8")
    text = answers("\n\n".join(cell.text for cell in prose(script)))[exercise]
    return " ".join(text.split())


def chinese(chapter: Path) -> list[str]:
    """A chapter's Chinese texts, in the order of its prose cells."""
    return [text for _, text in texts(translation_of(chapter).read_text(encoding="utf-8"))]
