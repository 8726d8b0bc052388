"""What the book's pages fold in long cells."""

import ast
from pathlib import Path

import pytest
from book import CHAPTERS
from editions import cells
from folding import IN_VIEW, folded, length

LONG = "\n".join(f"x{n} = {n}" for n in range(14))


def test_short_cells_stay_whole() -> None:
    assert list(folded("print(1)\nprint(2)\nprint(3)\n")) == [
        ("print(1)\nprint(2)\nprint(3)\n", False)
    ]


def test_imports_and_prints_are_folded() -> None:
    imports, shown = "import a\nimport b\nimport c", "for x in y:\n    print(x)\nprint(1)"
    assert list(folded(f"{imports}\n\n{LONG}\n{shown}\nx0")) == [
        *((imports, True), (LONG, False), (shown, True), ("x0", False))
    ]
    few = f"import a\n{LONG}\nprint(1)"  # too short to fold
    assert list(folded(few)) == [(few, False)]
    sums = "for x in y:\n    print(x)\n    total += x"
    assert list(folded(f"{LONG}\n{sums}")) == [(f"{LONG}\n{sums}", False)]


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: chapter.stem)
def test_no_statement_is_lost(chapter: Path) -> None:
    for cell in cells(chapter.read_text(encoding="utf-8")):
        if not cell.is_prose:
            parts = [part for part, _ in folded(cell.text)]
            assert ast.dump(ast.parse("\n".join(parts))) == ast.dump(ast.parse(cell.text))
            assert length(cell.text) > IN_VIEW or len(parts) == 1
