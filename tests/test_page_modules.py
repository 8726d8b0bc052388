"""The page's modules, and whole pages without layout, in Node.js: `tests/page/*.test.mjs`."""

import os
import subprocess
from pathlib import Path

import pytest
from conftest import lacking
from node import TESTS, write_modules
from pages import BALL

import attnlab
from attnlab import GPT2

FILES = [*TESTS.glob("*.test.mjs")]
OF_PAGES = [file for file in FILES if "openPage" in file.read_text(encoding="utf-8")]


def run(node: str, directory: Path, files: list[Path]) -> None:
    result = subprocess.run(
        [node, "--test", "--test-reporter=spec", *(f"page/{file.name}" for file in files)],
        cwd=directory,
        capture_output=True,
        encoding="utf-8",
    )
    assert result.returncode == 0, result.stdout.partition("failing tests")[2]


def test_modules(node: str, tmp_path: Path) -> None:
    run(node, write_modules(tmp_path), [file for file in FILES if file not in OF_PAGES])


@pytest.mark.slow
def test_whole_pages(node: str, pocket: GPT2, tmp_path: Path) -> None:
    if "ATTNLAB_JSDOM" not in os.environ:
        lacking("npm install jsdom, and ATTNLAB_JSDOM names its node_modules/jsdom")
    directory = write_modules(tmp_path)
    ball, other = pocket.trace(BALL), pocket.trace("The old dog chased the cat, but it")
    other = other.edited({"blocks.1.attention.heads.2.scores": lambda x: -1.5 * x})
    cached = pocket.generate(BALL, 2, temperature=0, trace=True).steps[1].trace
    rows = [[1, 0, 0], [0.4, 0.6, 0], [0.1, 0.7, 0.2]]
    effects = {(0, 1): {"slept": 0.2, "was": 0.3}, (1, 0): {"sat": 0.9}, (1, 1): {"slept": 0.7}}
    share = {"was": 0.01, "slept": 0.6, "sat": 0.25}
    words = [[rows] * 2] * 2, ["the", "cat", "it"]
    for name, page in {
        "ball": attnlab.page(ball),
        "two": attnlab.page(ball, other),
        "cached": attnlab.page(cached),
        "model": attnlab.playground(pocket, BALL),
        "words": attnlab.words(*words, next_words=share, effects=effects),
    }.items():
        page.save(directory / f"{name}.html")
    run(node, directory, OF_PAGES)
