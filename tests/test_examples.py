"""Every chapter runs from start to end, without network, on the pocket model where it needs one.

Those that show a model of GPT-2's shape run on the constructed checkpoint too.

As scripts always, one of them in a process of its own; as notebooks where `-m slow` asks for it.
`test_built_book.py` has all notebooks on the pocket model. What they say is held by the tests in
`chapters/`.
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
from conftest import needs

from attnlab.checkpoints.hub import HOW_TO_GET_GPT2

# What a notebook draws in HTML: the library's views, and pictures.
DRAWN = ('<div class="attnlab">', 'src="data:image/')
ON_A_MODEL = [chapter for chapter in CHAPTERS if "GPT2.default()" in chapter.read_text("utf-8")]


def run(chapter: Path, cache: Path, model: str = "", encoding: str = "utf-8") -> str:
    """What a chapter prints on a machine with no network and nothing in the hub's cache."""
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
    """The chapter with what makes it faster."""
    script = directory / chapter.name
    script.write_text(
        changed(chapter.read_text("utf-8"), FASTER.get(chapter.name[:2], {})), encoding="utf-8"
    )
    return script


def name(chapter: Path) -> str:
    return chapter.stem


def test_there_are_chapters() -> None:
    assert len(CHAPTERS) >= 17
    assert len(ON_A_MODEL) >= 3


@pytest.fixture
def nothing_cached(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No network, nothing in the hub's cache, and signals as they were."""
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
        assert HOW_TO_GET_GPT2 in second


@pytest.mark.parametrize("chapter", CHAPTERS, ids=name)
def test_chapter(
    chapter: Path, nothing_cached: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """On a terminal that has letters and digits and nothing else."""
    output = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    for stream in ("stdout", "__stdout__"):
        monkeypatch.setattr(sys, stream, output)
    runpy.run_path(str(faster(chapter, tmp_path)), run_name="__main__")
    output.seek(0)
    check_printed(chapter, output.read())


def test_chapter_in_a_process(tmp_path: Path) -> None:
    chapter = ON_A_MODEL[0]
    check_printed(chapter, run(faster(chapter, tmp_path), tmp_path, encoding="ascii"))


@pytest.mark.slow
@pytest.mark.parametrize("chapter", ON_A_MODEL, ids=name)
def test_chapter_on_a_model_of_gpt2s_shape(
    chapter: Path, walkthrough_directory: Path, tmp_path: Path
) -> None:
    output = run(faster(chapter, tmp_path), tmp_path, str(walkthrough_directory))
    if chapter.stem == "06_walkthrough":
        assert "18 of 18 tables agree: reproduced" in output


@pytest.mark.slow
@pytest.mark.parametrize("chapter", ON_A_MODEL, ids=name)
def test_chapter_as_a_notebook(chapter: Path, walkthrough_directory: Path, tmp_path: Path) -> None:
    """Every cell runs, and the HTML that is made of it holds the views without a kernel."""
    for library in ("jupytext", "nbmake", "nbconvert", "ipykernel"):
        needs(library, "notebooks")
    notebook = tmp_path / f"{chapter.stem}.ipynb"
    for command in (
        ("jupytext", "--quiet", "--to", "ipynb", "--output", str(notebook), str(chapter)),
        ("pytest", "--nbmake", "--overwrite", "-c", os.devnull, "-q", str(notebook)),
        ("nbconvert", "--to", "html", "--log-level", "WARN", str(notebook)),
    ):
        finished = subprocess.run(
            [sys.executable, "-m", *command],
            capture_output=True,
            encoding="utf-8",
            env={**os.environ, "ATTNLAB_MODEL": str(walkthrough_directory), "PYTHONUTF8": "1"},
            check=False,
        )
        assert finished.returncode == 0, finished.stdout + finished.stderr
    html = notebook.with_suffix(".html").read_text(encoding="utf-8")
    assert any(drawn in html for drawn in DRAWN)
    if chapter.stem == "06_walkthrough":
        assert "Ġis → Ġhot: 0." in html
        assert "It → Ġis: masked" in html
