"""Every lesson runs from start to end, without network, on the pocket model where it needs one.

Those that show a model of GPT-2's shape run on the constructed checkpoint too.

As scripts always, as notebooks where `-m slow` asks for it. What they say is held by
`test_lessons.py`.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import needs
from lessons import FASTER, LESSONS, changed

from attnlab.hub import HOW_TO_GET_GPT2

# How many results a lesson's cells end with, which a notebook draws.
DRAWN = {"01": 1, "02": 2, "04": 1, "05": 1, "06": 1, "08": 1, "09": 1}
ON_A_MODEL = [lesson for lesson in LESSONS if "GPT2.at_hand()" in lesson.read_text("utf-8")]


def run(lesson: Path, cache: Path, model: str = "", encoding: str = "utf-8") -> str:
    """What a lesson prints on a machine with no network and nothing in the hub's cache."""
    offline = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(cache), "HF_HUB_CACHE": str(cache)}
    finished = subprocess.run(
        [sys.executable, "-W", "error", str(lesson)],
        capture_output=True,
        encoding=encoding,
        env={**os.environ, **offline, "ATTNLAB_MODEL": model, "PYTHONIOENCODING": encoding},
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


def faster(lesson: Path, directory: Path) -> Path:
    """The lesson with what makes it faster."""
    script = directory / lesson.name
    script.write_text(changed(lesson, FASTER.get(lesson.name[:2], {})), encoding="utf-8")
    return script


def name(lesson: Path) -> str:
    return lesson.stem


def test_there_are_lessons() -> None:
    assert len(LESSONS) >= 12
    assert len(ON_A_MODEL) >= 3


@pytest.mark.parametrize("lesson", LESSONS, ids=name)
def test_lesson(lesson: Path, tmp_path: Path) -> None:
    """On a terminal that has letters and digits and nothing else."""
    output = run(faster(lesson, tmp_path), tmp_path, encoding="ascii")
    assert len(output.splitlines()) > 20
    if lesson in ON_A_MODEL:
        first = output.splitlines()[0]
        assert "pocket" in first
        assert HOW_TO_GET_GPT2 in first


@pytest.mark.parametrize("lesson", ON_A_MODEL, ids=name)
def test_lesson_on_a_model_of_gpt2s_shape(
    lesson: Path, walkthrough_directory: Path, tmp_path: Path
) -> None:
    output = run(faster(lesson, tmp_path), tmp_path, str(walkthrough_directory))
    if lesson.stem == "05_walkthrough":
        assert "18 of 18 tables agree: reproduced" in output


@pytest.mark.slow
@pytest.mark.parametrize("lesson", LESSONS, ids=name)
def test_lesson_as_a_notebook(lesson: Path, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Every cell runs, and the HTML that is made of it holds the views without a kernel."""
    for library in ("jupytext", "nbmake", "nbconvert", "ipykernel"):
        needs(library, "notebooks")
    on_a_model = lesson in ON_A_MODEL
    model = str(request.getfixturevalue("walkthrough_directory")) if on_a_model else "pocket"
    notebook = tmp_path / f"{lesson.stem}.ipynb"
    for command in (
        ("jupytext", "--quiet", "--to", "ipynb", "--output", str(notebook), str(lesson)),
        ("pytest", "--nbmake", "--overwrite", "-c", os.devnull, "-q", str(notebook)),
        ("nbconvert", "--to", "html", "--log-level", "WARN", str(notebook)),
    ):
        finished = subprocess.run(
            [sys.executable, "-m", *command],
            capture_output=True,
            encoding="utf-8",
            env={**os.environ, "ATTNLAB_MODEL": model, "PYTHONUTF8": "1"},
            check=False,
        )
        assert finished.returncode == 0, finished.stdout + finished.stderr
    html = notebook.with_suffix(".html").read_text(encoding="utf-8")
    assert html.count('<div class="attnlab">') == DRAWN.get(lesson.stem[:2], 0)
    if lesson.stem == "05_walkthrough":
        assert "Ġis → Ġhot: 0." in html
        assert "It → Ġis: masked" in html
