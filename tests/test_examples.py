"""Every lesson runs from start to end, without network, on the pocket model where it needs one.

Those that show a model of GPT-2's shape run on the constructed checkpoint too.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from attnlab.hub import HOW_TO_GET_GPT2

LESSONS = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))
ON_A_MODEL = [lesson for lesson in LESSONS if "GPT2.at_hand()" in lesson.read_text("utf-8")]


def run(lesson: Path, cache: Path, model: str = "") -> str:
    """What a lesson prints on a machine with no network and nothing in the hub's cache."""
    offline = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(cache), "HF_HUB_CACHE": str(cache)}
    finished = subprocess.run(
        [sys.executable, "-W", "error", str(lesson)],
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, **offline, "ATTNLAB_MODEL": model, "PYTHONUTF8": "1"},
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
    output = run(lesson, tmp_path)
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
