"""Every lesson runs from start to end; where one needs a model, on the constructed checkpoint.

As scripts always, as notebooks where `-m slow` asks for it.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import needs

LESSONS = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))
NEED_A_MODEL = {"05_walkthrough.py", "06_all_heads.py", "10_what_the_cache_saves.py"}

DRAW = {"05_walkthrough.py"}


def run(lesson: Path, model: str) -> str:
    finished = subprocess.run(
        [sys.executable, "-W", "error", str(lesson)],
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, "ATTNLAB_MODEL": model, "PYTHONUTF8": "1"},
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


def test_there_are_lessons() -> None:
    assert len(LESSONS) >= 10
    assert {lesson.name for lesson in LESSONS} >= NEED_A_MODEL


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.stem)
def test_lesson(lesson: Path, request: pytest.FixtureRequest) -> None:
    needs_a_model = lesson.name in NEED_A_MODEL
    model = str(request.getfixturevalue("walkthrough_directory")) if needs_a_model else "none"
    output = run(lesson, model)
    assert len(output.splitlines()) > 20
    if lesson.name == "05_walkthrough.py":
        assert "18 of 18 tables agree: reproduced" in output


@pytest.mark.slow
@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.stem)
def test_lesson_as_a_notebook(lesson: Path, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Every cell runs, and the HTML that is made of it holds the views without a kernel."""
    for library in ("jupytext", "nbconvert", "ipykernel"):
        needs(library, "notebooks")
    needs_a_model = lesson.name in NEED_A_MODEL
    model = str(request.getfixturevalue("walkthrough_directory")) if needs_a_model else "none"
    notebook = tmp_path / f"{lesson.stem}.ipynb"
    for command in (
        ("jupytext", "--quiet", "--to", "ipynb", "--output", str(notebook), str(lesson)),
        ("nbconvert", "--execute", "--to", "html", "--log-level", "WARN", str(notebook)),
    ):
        finished = subprocess.run(
            [sys.executable, "-m", *command],
            capture_output=True,
            encoding="utf-8",
            env={**os.environ, "ATTNLAB_MODEL": model, "PYTHONUTF8": "1"},
            check=False,
        )
        assert finished.returncode == 0, finished.stderr
    html = notebook.with_suffix(".html").read_text(encoding="utf-8")
    assert html.count('<div class="attnlab">') == (lesson.name in DRAW)
    if lesson.name in DRAW:
        assert "Ġis → Ġhot: 0." in html
        assert "It → Ġis: masked" in html
