"""The executed notebooks: they have the scripts' cells, and are small.

`test_built_book.py` holds that they have the outputs that their cells give.
"""

import base64
import json
import re
from pathlib import Path
from typing import Any

import book  # noqa: F401 - puts the book's modules on the path
import pytest
from editions import CHAPTERS, LATER
from notebooks import LANGUAGES, WALKTHROUGH, file_for, notebook_of

FILES = {
    f"{language}/{chapter.stem}": (file_for(chapter, language), language)
    for language in LANGUAGES
    for chapter in (*CHAPTERS, *LATER)
} | {f"{language}/walkthrough": (file, language) for language, file in WALKTHROUGH.items()}


def cells_in(file: Path) -> list[dict[str, Any]]:
    cells: list[dict[str, Any]] = json.loads(file.read_text("utf-8"))["cells"]
    return cells


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("chapter", [*CHAPTERS, *LATER], ids=lambda chapter: chapter.stem)
def test_a_notebook_has_the_cells_of_its_script(chapter: Path, language: str) -> None:
    written = cells_in(file_for(chapter, language))
    for cell in written:
        if cell["cell_type"] == "code":
            cell["outputs"] = []
    assert written == notebook_of(chapter, language)["cells"]
    prose = "".join("".join(cell["source"]) for cell in written if cell["cell_type"] == "markdown")
    for target in re.findall(r"\]\((?![a-z]+:|#)([^)\s#]+)", re.sub("`[^`\n]+`", "", prose)):
        assert (file_for(chapter, language).parent / target).exists(), target


def test_notebooks_are_small_and_have_pictures() -> None:
    files = [file for file, _ in FILES.values()]
    assert sum(file.stat().st_size for file in files) < 6_000_000
    outputs = [
        output for file in files for cell in cells_in(file) for output in cell.get("outputs", ())
    ]
    assert "text/html" not in str(outputs)
    pictures = [output["data"]["image/png"] for output in outputs if "image/png" in str(output)]
    assert len(pictures) > 150
    assert all(base64.b64decode(picture).startswith(b"\x89PNG") for picture in pictures)


def test_both_walkthroughs_have_the_same_code() -> None:
    for cell, other in zip(*map(cells_in, WALKTHROUGH.values()), strict=True):
        assert cell["cell_type"] == other["cell_type"]
        assert (cell["source"] == other["source"]) == (cell["cell_type"] == "code")
