"""What the book's pages fold in long cells."""

import ast
from pathlib import Path

import pytest
from book import CHAPTERS, LATER
from editions import cells
from folding import IN_VIEW, fold, length

LONG = "\n".join(f"x{n} = {n}" for n in range(14))


def test_short_cells_stay_whole() -> None:
    assert list(fold("print(1)\nprint(2)\nprint(3)\n")) == [
        ("print(1)\nprint(2)\nprint(3)\n", False)
    ]


def test_imports_printing_and_labels_are_folded() -> None:
    imports = "import a\nimport b"
    shown = 'rows = ["a", f"{1 + 1}"]\nfor x in y:\n    print(x)\npictures.curves(rows)'
    assert list(fold(f"{imports}\n\n{LONG}\n{shown}\nx0")) == [
        *((imports, True), (LONG, False), (shown, True), ("x0", False))
    ]
    few = f"import a\n{LONG}\nprint(1)"  # too short to fold
    assert list(fold(few)) == [(few, False)]


@pytest.mark.parametrize(
    "line",
    [
        "for x in y:\n    print(x)\n    total += x",
        'rows = ["a", 1 + 1]\nprint(rows)',
        "rows = np.zeros(2)\nprint(rows)",
        'rows = ["a"]\nused = rows + x0',
        "f(1)\nf(2)",
    ],
)
def test_computations_stay_visible(line: str) -> None:
    assert list(fold(f"{LONG}\n{line}")) == [(f"{LONG}\n{line}", False)]


def test_labels_used_by_later_cells_stay_visible() -> None:
    labels = 'rows = ["a"]\nrows[0] = "b"'
    assert list(fold(f"{LONG}\n{labels}", ["print(1)", "rows = []\nrows"]))[1] == (labels, True)
    for later in ("rows", "if x0:\n    rows = 1\nrows", "def f():\n    return rows"):
        assert list(fold(f"{LONG}\n{labels}", ["", later])) == [(f"{LONG}\n{labels}", False)]


@pytest.mark.parametrize("chapter", [*CHAPTERS, *LATER], ids=lambda chapter: chapter.stem)
def test_visible_lines_of_a_cell_are_limited(chapter: Path) -> None:
    code = [cell.text for cell in cells(chapter.read_text("utf-8")) if not cell.is_prose]
    for number, cell in enumerate(code, 1):
        parts = fold(cell, code[number:])
        assert sum(length(part) for part, is_folded in parts if not is_folded) <= IN_VIEW, cell


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: chapter.stem)
def test_folding_loses_no_statement(chapter: Path) -> None:
    for cell in cells(chapter.read_text(encoding="utf-8")):
        if not cell.is_prose:
            parts = [part for part, _ in fold(cell.text)]
            assert ast.dump(ast.parse("\n".join(parts))) == ast.dump(ast.parse(cell.text))
            assert length(cell.text) > IN_VIEW or len(parts) == 1
