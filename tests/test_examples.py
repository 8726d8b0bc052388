"""Every lesson runs from start to end, without network, on the pocket model where it needs one.

Those that show a model of GPT-2's shape run on the constructed checkpoint too.

As scripts always, as notebooks where `-m slow` asks for it.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import needs

from attnlab.hub import HOW_TO_GET_GPT2

LESSONS = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))
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


def name(lesson: Path) -> str:
    return lesson.stem


def test_there_are_lessons() -> None:
    assert len(LESSONS) >= 12
    assert len(ON_A_MODEL) >= 3


@pytest.mark.parametrize("lesson", LESSONS, ids=name)
def test_lesson(lesson: Path, tmp_path: Path) -> None:
    """On a terminal that has letters and digits and nothing else."""
    output = run(lesson, tmp_path, encoding="ascii")
    assert len(output.splitlines()) > 20
    if lesson in ON_A_MODEL:
        first = output.splitlines()[0]
        assert "pocket" in first
        assert HOW_TO_GET_GPT2 in first


@pytest.mark.parametrize("lesson", ON_A_MODEL, ids=name)
def test_lesson_on_a_model_of_gpt2s_shape(
    lesson: Path, walkthrough_directory: Path, tmp_path: Path
) -> None:
    output = run(lesson, tmp_path, str(walkthrough_directory))
    if lesson.stem == "05_walkthrough":
        assert "18 of 18 tables agree: reproduced" in output


@pytest.mark.slow
@pytest.mark.parametrize("lesson", LESSONS, ids=name)
def test_lesson_as_a_notebook(lesson: Path, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Every cell runs, and the HTML that is made of it holds the views without a kernel."""
    for library in ("jupytext", "nbmake", "nbconvert", "ipykernel"):
        needs(library, "notebooks")
    draws = lesson.stem == "05_walkthrough"
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
    assert html.count('<div class="attnlab">') == draws
    if draws:
        assert "Ġis → Ġhot: 0." in html
        assert "It → Ġis: masked" in html
