"""Every lesson runs from start to end; where one needs a model, on the constructed checkpoint."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

LESSONS = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))
NEED_A_MODEL = {"05_walkthrough.py", "06_all_heads.py", "10_what_the_cache_saves.py"}


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
