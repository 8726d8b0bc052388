"""Spreadsheets of formulas: formulas checked by hand, numbers computed by LibreOffice."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import REFERENCE, RELATIVES, lacking, needs

import attnlab
from attnlab import GPT2, AttnlabError

needs("xlsxwriter", "sheets")
needs("openpyxl", "test")

import openpyxl  # noqa: E402

# LibreOffice recomputes a file's formulas on opening only if its profile says so.
PROFILE = """<?xml version="1.0" encoding="UTF-8"?>
<oor:items xmlns:oor="http://openoffice.org/2001/registry">
<item oor:path="/org.openoffice.Office.Calc/Formula/Load">
<prop oor:name="OOXMLRecalcMode" oor:op="fuse"><value>0</value></prop></item></oor:items>"""

TEXT = "The dog chased the ball, but it"

Changes = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def recalculated(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """Open a workbook with changed cells and without stored numbers in LibreOffice."""
    if shutil.which("soffice") is None:
        lacking("LibreOffice is not installed: apt-get install libreoffice-calc-nogui")
    home = tmp_path_factory.mktemp("libreoffice")
    (home / "user").mkdir()
    (home / "user" / "registrymodifications.xcu").write_text(PROFILE, encoding="utf-8")

    def recalculate(path: Path, changes: Changes | None = None) -> Any:
        book = openpyxl.load_workbook(path)  # keeps only formulas
        for sheet, cells in (changes or {}).items():
            for cell, value in cells.items():
                book[sheet][cell] = value
        bare, result = home / "bare.xlsx", home / "made"
        book.save(bare)
        assert openpyxl.load_workbook(bare, data_only=True)[book.sheetnames[-1]]["B3"].value is None
        to_xlsx = ["--headless", "--convert-to", "xlsx:Calc MS Excel 2007 XML", "--outdir", result]
        subprocess.run(
            ["soffice", f"-env:UserInstallation={home.as_uri()}", *to_xlsx, bare],
            check=True,
            capture_output=True,
            timeout=300,
        )
        return openpyxl.load_workbook(result / "bare.xlsx", data_only=True)

    return recalculate


def numbers(book: Any, sheet: str) -> Any:
    rows = [list(row) for row in book[sheet].iter_rows(min_row=3, min_col=2, values_only=True)]
    return np.array(rows, float)


def close(book: Any, sheet: str, expected: Any) -> None:
    """Within 1e-6 of a step's numbers, or of the largest of them."""
    actual, expected = numbers(book, sheet), np.asarray(expected, float)
    expected = np.where(np.isneginf(expected), -1e308, expected).reshape(actual.shape)
    largest = np.abs(expected[expected > -1e300]).max()
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-6 * max(1.0, largest))


@pytest.fixture
def pocket() -> Any:
    return GPT2.from_pretrained("pocket").trace(TEXT)


X = [[1.0, 0.0, 1.0], [0.0, 2.0, 0.0], [1.0, 1.0, 1.0]]
W = [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]


def test_formulas_that_can_be_read(tmp_path: Path) -> None:
    fish = attnlab.self_attention(
        X, W, W, W, mask=attnlab.causal_mask(3), tokens=["=猫()", "吃", "鱼"]
    )
    fish.to_xlsx(tmp_path / "fish.xlsx")
    book = openpyxl.load_workbook(tmp_path / "fish.xlsx")
    cells = {
        ("X", "B3"): 1.0,
        ("Q", "C4"): "=MMULT(X!B4:D4,W_Q!C3:C5)",
        ("raw_scores", "C4"): "=SUMPRODUCT(Q!B4:C4,K!B4:C4)",
        ("scores", "C4"): "=raw_scores!C4/scale!B3",
        ("mask", "C3"): False,
        ("masked_scores", "C3"): "=IF(mask!C3,scores!C3,-1E+308)",
        ("weights.exp", "C4"): "=EXP(masked_scores!C4-MAX(masked_scores!B4:D4))",
        ("weights", "C4"): "=weights.exp!C4/SUM(weights.exp!B4:D4)",
        ("context", "C4"): "=MMULT(weights!B4:D4,V!C3:C5)",
    }
    actual = {at: book[at[0]][at[1]].value for at in cells}
    # Early versions of the library put names of sheets in quotes.
    plain = {at: x.replace("'", "") if isinstance(x, str) else x for at, x in actual.items()}
    assert plain == cells
    assert [book["weights"][at].value for at in ("A3", "A4", "B2", "C2")] == ["=猫()", "吃"] * 2
    assert book["weights"]["A3"].data_type == "s"  # a token isn't a formula
    stored = openpyxl.load_workbook(tmp_path / "fish.xlsx", data_only=True)
    assert np.array_equal(numbers(stored, "context"), fish.context)


def test_a_workbook_lists_its_sheets(pocket: Any, tmp_path: Path) -> None:
    pocket.to_xlsx(tmp_path / "head.xlsx", layer=1, head=2)
    book = openpyxl.load_workbook(tmp_path / "head.xlsx")
    first = book["steps"]
    assert first["A1"].value == "Layer 1, attention, head 2"
    links = [cell for (cell,) in first.iter_rows(max_col=1) if cell.hyperlink]
    assert [link.value for link in links] == book.sheetnames[1:]
    assert {"X", "W_Q", "Q", "weights", "context", "output"} < set(book.sheetnames)
    (rules,) = book["weights"].conditional_formatting
    (scale,) = [rule.colorScale for rule in rules.rules if rule.colorScale]
    assert [(end.type, float(end.val)) for end in scale.cfvo] == [("num", n) for n in (-1, 0, 1)]


@pytest.mark.slow
def test_a_head_as_libreoffice_computes_it(
    pocket: Any, tmp_path: Path, recalculated: Callable[..., Any]
) -> None:
    head = pocket.head(1, 2)
    pocket.to_xlsx(tmp_path / "head.xlsx", layer=1, head=2)
    book = recalculated(tmp_path / "head.xlsx")
    steps = ("Q", "K", "V", "raw_scores", "scores", "masked_scores", "weights", "context", "output")
    for step in steps:
        close(book, step, getattr(head, step))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pocket", *RELATIVES])
def test_a_whole_model_up_to_the_next_token(
    name: str, tmp_path: Path, recalculated: Callable[..., Any]
) -> None:
    model = GPT2.from_pretrained("pocket" if name == "pocket" else REFERENCE / name)
    trace = model.trace(TEXT if name == "pocket" else "the hen in")
    trace.to_xlsx(tmp_path / "model.xlsx")
    book = recalculated(tmp_path / "model.xlsx")
    for layer, block in enumerate(trace.blocks):
        close(book, f"{layer}.attention.weights", block.attention.weights)
        close(book, f"{layer}.mlp.activated", block.mlp.activated)
        close(book, f"{layer}.output", block.output)
    close(book, "next_logits", trace.next_logits)
    best = trace.next_tokens(1)[0]
    answer = {row[0]: row[1] for row in book["steps"].iter_rows(values_only=True)}
    assert answer["the most probable next token"] == best.symbol
    assert numbers(book, "probabilities").max() == pytest.approx(best.probability, abs=1e-6)


@pytest.mark.slow
def test_a_changed_cell_changes_dependent_cells(
    pocket: Any, tmp_path: Path, recalculated: Callable[..., Any]
) -> None:
    """Change a number of W_Q, the mask's last row, a weight, and a token."""
    path = tmp_path / "head.xlsx"
    pocket.to_xlsx(path, layer=1, head=2)
    head = pocket.head(1, 2)
    W_Q, mask, weights = head.W_Q.copy(), head.mask.copy(), head.weights.copy()
    W_Q[0, 0], mask[7, 1], weights[7, 3] = 3.0, False, 0.5
    place = "blocks.1.attention.heads.2"
    for sheet, cell, value, edit in (
        ("W_Q", "B3", 3.0, W_Q),
        ("mask", "C10", False, mask),
        ("weights", "E10", 0.5, weights),
    ):
        book = recalculated(path, {sheet: {cell: value}})
        edited = pocket.edited({f"{place}.{sheet}": edit}).head(1, 2)
        for step in ("Q", "masked_scores", "weights", "context", "output"):
            close(book, step, getattr(edited, step))
    pocket.to_xlsx(path)
    other = GPT2.from_pretrained("pocket").trace(TEXT.replace("dog", "cat"))
    book = recalculated(path, {"ids": {"B4": int(other.tokens.ids[1])}})
    close(book, "next_logits", other.next_logits)
    assert book["1.attention.weights"]["A4"].value == "0: Ġcat"


def test_edited_steps_are_numbers(pocket: Any, tmp_path: Path) -> None:
    path = tmp_path / "edited.xlsx"
    edited = pocket.edited({"blocks.1.attention.heads.2.weights": 0})
    edited.to_xlsx(path, layer=1, head=2)
    book = openpyxl.load_workbook(path)
    assert not numbers(book, "weights").any()
    assert book["weights"]["A1"].value == "weights, edited"
    assert book["context"]["B3"].value == "=MMULT(weights!B3:I3,V!B3:B10)"


def test_what_no_workbook_holds(pocket: Any, tmp_path: Path) -> None:
    path = tmp_path / "none.xlsx"
    model = GPT2.from_pretrained("pocket")
    long = model.trace("The dog chased the ball, but it chased the dog, and the dog sat.")
    step = model.generate("The dog", 2, temperature=0, trace=True).steps[-1].trace
    for trace, where, message in (
        (long, {}, "at most 12 tokens; the text has 1"),
        (pocket, {"head": 1}, "head 1 needs a layer"),
        (pocket, {"layer": 2}, "2"),
        (pocket, {"layer": 1, "head": 4}, "4"),
        (step, {"layer": 1, "head": 0}, "cached keys can.t be written"),
    ):
        with pytest.raises(AttnlabError, match=message):
            trace.to_xlsx(path, **where)
    with pytest.raises(AttnlabError, match="be written as formulas"):
        pocket.gradients().blocks[1].attention.to_xlsx(path)
    T = 1100
    with pytest.raises(AttnlabError, match="more than 1,000,000 cells"):
        attnlab.attention(np.ones((T, 2)), np.ones((T, 2)), np.ones((T, 2))).to_xlsx(path)
    with pytest.raises(AttnlabError, match="doesn't exist"):
        pocket.to_xlsx(tmp_path / "missing" / "x.xlsx", layer=0, head=0)
    assert not list(tmp_path.iterdir())
