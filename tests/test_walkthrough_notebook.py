"""Notebooks of the walkthrough: the same code in both, and the outputs that its cells give."""

import ast
import base64
import contextlib
import io
import json
import re
from pathlib import Path
from typing import Any

import book  # noqa: F401 - puts the book's modules on the path
import pytest
from conftest import needs
from walkthrough_notebook import FILES

from attnlab.support.language import using_language

NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")
CLOSE = 0.01  # processors differ in the last digits


def run(source: str, variables: dict[str, Any]) -> str:
    """Run a cell; return what it prints, and the text of its last expression."""
    tree, printed = ast.parse(source), io.StringIO()
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "cell", "exec"), variables)
        result = last and eval(compile(ast.Expression(last.value), "cell", "eval"), variables)
    return printed.getvalue() + (repr(result) if result is not None else "")


def text_of(cell: dict[str, Any]) -> str:
    """The text of a cell's outputs in the file."""
    texts = (output.get("text") or output["data"]["text/plain"] for output in cell["outputs"])
    return "".join(map("".join, texts))


@pytest.mark.parametrize("language", FILES)
def test_a_notebook_shows_what_its_cells_give(language: str) -> None:
    needs("matplotlib", "plot")
    file = FILES[language]
    recorded = json.loads(file.read_text("utf-8"))["cells"]
    variables: dict[str, Any] = {}
    with using_language(language):
        for cell in recorded:
            if cell["cell_type"] == "code":
                ours, theirs = run("".join(cell["source"]), variables), text_of(cell)
                if language == "zh" and "image/png" in str(cell["outputs"]):
                    continue  # without a Chinese font, a picture's labels are English
                assert NUMBER.sub("#", ours) == NUMBER.sub("#", theirs)
                for number, other in zip(NUMBER.findall(ours), NUMBER.findall(theirs), strict=True):
                    assert float(number) == pytest.approx(float(other), abs=CLOSE)


def test_both_notebooks_have_the_same_code() -> None:
    english, chinese = (json.loads(file.read_text("utf-8"))["cells"] for file in FILES.values())
    for cell, other in zip(english, chinese, strict=True):
        assert cell["cell_type"] == other["cell_type"]
        assert (cell["source"] == other["source"]) == (cell["cell_type"] == "code")


@pytest.mark.parametrize("file", FILES.values(), ids=FILES)
def test_notebooks_are_small_and_have_pictures(file: Path) -> None:
    assert file.stat().st_size < 400_000
    cells = json.loads(file.read_text("utf-8"))["cells"]
    assert len(cells) <= 60
    outputs = [output.get("data", {}) for cell in cells for output in cell.get("outputs", ())]
    pictures = [output["image/png"] for output in outputs if "image/png" in output]
    assert len(pictures) == 4
    assert all(base64.b64decode(picture).startswith(b"\x89PNG") for picture in pictures)
