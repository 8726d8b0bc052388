"""Every chapter runs from start to end without network, on the pocket model if it needs one.

Chapters for models of GPT-2's shape also run on the constructed checkpoint.

They run as scripts, one in a separate process. `test_built_book.py` runs all notebooks on the
pocket model. The chapters' claims are tested in `chapters/`.
"""

import io
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from book import CHAPTERS, FASTER, changed
from book import run as run_here

from attnlab.checkpoints.hub import DOWNLOAD_COMMAND

ON_A_MODEL = [chapter for chapter in CHAPTERS if "GPT2.default()" in chapter.read_text("utf-8")]


def run(chapter: Path, cache: Path, model: str = "", encoding: str = "utf-8") -> str:
    """A chapter's output on a machine without network and with an empty hub cache."""
    offline = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(cache), "HF_HUB_CACHE": str(cache)}
    finished = subprocess.run(
        [sys.executable, "-W", "error", str(chapter)],
        capture_output=True,
        encoding=encoding,
        env={**os.environ, **offline, "ATTNLAB_MODEL": model, "PYTHONIOENCODING": encoding},
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


def faster(chapter: Path, directory: Path) -> Path:
    """The chapter with smaller sizes."""
    script = directory / chapter.name
    script.write_text(
        changed(chapter.read_text("utf-8"), FASTER.get(chapter.name[:2], {})), encoding="utf-8"
    )
    return script


def name(chapter: Path) -> str:
    return chapter.stem


def test_there_are_chapters() -> None:
    assert len(CHAPTERS) >= 18
    assert len(ON_A_MODEL) >= 3


@pytest.fixture
def nothing_cached(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No network, an empty hub cache, and default signal handlers."""
    monkeypatch.setenv("ATTNLAB_MODEL", "")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    pipe = getattr(signal, "SIGPIPE", signal.SIGINT)
    before = signal.getsignal(pipe)
    yield
    signal.signal(pipe, before)


def check_printed(chapter: Path, output: str) -> None:
    assert len(output.splitlines()) > 20
    if chapter in ON_A_MODEL:
        first, second, *_ = output.splitlines()
        assert "pocket" in first
        assert DOWNLOAD_COMMAND in second


# The tests of the other chapters run them in each test run, without pictures.
FAST = ("12", "16")


@pytest.mark.parametrize(
    "chapter",
    [
        pytest.param(chapter, marks=() if chapter.name.startswith(FAST) else pytest.mark.slow)
        for chapter in CHAPTERS
    ],
    ids=name,
)
def test_chapter(
    chapter: Path, nothing_cached: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """On an ASCII terminal."""
    output = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    for stream in ("stdout", "__stdout__"):
        monkeypatch.setattr(sys, stream, output)
    runpy.run_path(str(faster(chapter, tmp_path)), run_name="__main__")
    output.seek(0)
    check_printed(chapter, output.read())


def test_chapter_as_a_script(tmp_path: Path) -> None:
    chapter = ON_A_MODEL[0]
    check_printed(chapter, run(faster(chapter, tmp_path), tmp_path, encoding="ascii"))


@pytest.mark.slow
@pytest.mark.parametrize("chapter", ON_A_MODEL, ids=name)
def test_chapter_on_a_model_of_gpt2s_shape(chapter: Path, walkthrough_directory: Path) -> None:
    number = chapter.name[:2]
    ran = run_here(number, FASTER.get(number, {}), model=str(walkthrough_directory))
    assert len(ran.printed.splitlines()) > 20
    assert "pocket" not in ran.printed.splitlines()[0]
    if number == "06":
        assert "18 of 18 tables agree: reproduced" in ran.printed
