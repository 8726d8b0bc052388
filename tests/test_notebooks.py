"""The executed notebooks: they have the scripts' cells, and the outputs that their cells give."""

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest
from book import CHAPTERS, LATER, execute, executed
from conftest import needs
from notebooks import LANGUAGES, WALKTHROUGH, file_for, notebook_of

NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:e-?\d+)?")
CLOSE = 0.01  # processors differ in the last digits
TIMED = ("11",)  # chapters that print how long something took
# Trained for fewer steps, so only words are compared: the numbers are those of the other edition.
SHORTER = {"zh/12_watching_a_head_form": ("STEPS, EVERY = 1200, 50", "STEPS, EVERY = 48, 2")}
FILES = {
    f"{language}/{chapter.stem}": (file_for(chapter, language), language)
    for language in LANGUAGES
    for chapter in (*CHAPTERS, *LATER)
} | {f"{language}/walkthrough": (file, language) for language, file in WALKTHROUGH.items()}


def cells_in(file: Path) -> list[dict[str, Any]]:
    cells: list[dict[str, Any]] = json.loads(file.read_text("utf-8"))["cells"]
    return cells


def text_of(outputs: list[Any]) -> str:
    texts = ("".join(each.get("text") or each["data"]["text/plain"]) for each in outputs)
    return re.sub(r"0x[0-9a-f]+", "", "".join(texts))  # without addresses of objects


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


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_a_notebook_shows_what_its_cells_give(
    name: str, whole_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs("IPython", "book")
    needs("matplotlib", "plot")
    monkeypatch.setattr(execute, "CACHE", whole_run / execute.CACHE.name)
    monkeypatch.delenv("ATTNLAB_MODEL", raising=False)
    file, language = FILES[name]
    code = [cell for cell in cells_in(file) if cell["cell_type"] == "code"]
    sources = ["".join(cell["source"]).replace(*SHORTER.get(name, ("", ""))) for cell in code]
    outputs, _ = executed(name[3:], sources, language)
    for cell, of_cell in zip(code, outputs, strict=True):
        if language == "zh" and "image/png" in str(of_cell):
            continue  # without a Chinese font, a picture's labels are English
        ours, theirs = text_of(of_cell), text_of(cell["outputs"])
        assert NUMBER.sub("#", ours) == NUMBER.sub("#", theirs)
        if name[3:5] not in TIMED and name not in SHORTER:
            for number, other in zip(NUMBER.findall(ours), NUMBER.findall(theirs), strict=True):
                pair = (float(each.replace(",", "")) for each in (number, other))
                assert next(pair) == pytest.approx(next(pair), rel=CLOSE, abs=CLOSE)


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
