"""Every chapter runs from start to end without network, on the pocket model if it needs one.

Chapters for models of GPT-2's shape also run on the constructed checkpoint. `test_built_book.py`
runs all notebooks; the chapters' claims are tested in `chapters/`.
"""

import io
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from book import CHAPTERS, FASTER, changed, run, script_of

NUMBERS = [chapter.name[:2] for chapter in CHAPTERS]
ON_A_MODEL = [number for number in NUMBERS if 'GPT2.default("pocket")' in script_of(number)]


def test_there_are_chapters() -> None:
    assert len(CHAPTERS) >= 19
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


def check_printed(number: str, output: str) -> None:
    first, second, *others = output.splitlines()
    assert len(others) > 18
    if number in ON_A_MODEL:
        assert "pocket" in first
        assert "attnlab download gpt2" in second


# The tests of the other chapters run them in each test run, without pictures.
FAST = ("12", "16")


@pytest.mark.parametrize(
    "number",
    [pytest.param(n, marks=() if n in FAST else pytest.mark.slow) for n in NUMBERS],
)
def test_chapter_on_an_ascii_terminal(
    number: str, nothing_cached: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    for stream in ("stdout", "__stdout__"):
        monkeypatch.setattr(sys, stream, output)
    script = changed(script_of(number), FASTER.get(number, {}))
    exec(compile(script, number, "exec"), {"__name__": "__main__"})
    output.seek(0)
    check_printed(number, output.read())


def test_chapter_as_a_script(tmp_path: Path) -> None:
    offline = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path), "HF_HUB_CACHE": str(tmp_path)}
    finished = subprocess.run(
        [sys.executable, "-W", "error", str(CHAPTERS[0])],
        capture_output=True,
        encoding="ascii",
        env={**os.environ, **offline, "ATTNLAB_MODEL": "", "PYTHONIOENCODING": "ascii"},
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    check_printed(NUMBERS[0], finished.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("number", ON_A_MODEL)
def test_chapter_on_a_model_of_gpt2s_shape(number: str, walkthrough_directory: Path) -> None:
    printed = run(number, FASTER.get(number, {}), model=str(walkthrough_directory)).printed
    assert len(printed.splitlines()) > 20
    assert "pocket" not in printed.splitlines()[0]
    assert number != "06" or "18 of 18 tables agree: reproduced" in printed
