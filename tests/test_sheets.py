"""Spreadsheets of formulas: formulas checked by hand, numbers computed by LibreOffice."""

import re
import shutil
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import lacking, needs

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

# A head of the pocket model, with one cell changed: sheet, cell, and the cell's index and value.
CHANGED = {
    "W_Q": ("B3", (0, 0), 3.0),
    "mask": ("C10", (7, 1), False),
    "weights": ("E10", (7, 3), 0.5),
}


def without_numbers(path: Path) -> None:
    """Remove the stored results of a workbook's formulas."""
    bare = path.with_name("bare")
    with zipfile.ZipFile(path) as book, zipfile.ZipFile(bare, "w") as copy:
        for name in book.namelist():
            copy.writestr(name, re.sub(rb"</f><v>[^<]*</v>", b"</f>", book.read(name)))
    bare.replace(path)
    book = openpyxl.load_workbook(path, read_only=True, data_only=True)
    assert book[book.sheetnames[-1]]["B3"].value is None
    book.close()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of LibreOffice's settings, which it completes when it first starts."""
    if shutil.which("soffice") is None:
        lacking("LibreOffice is not installed: apt-get install libreoffice-calc-nogui")
    home = tmp_path_factory.mktemp("libreoffice")
    (home / "user").mkdir()
    (home / "user" / "registrymodifications.xcu").write_text(PROFILE, encoding="utf-8")
    return home


def convert(home: Path, to: str, made: Path, *files: Path) -> None:
    profile = f"-env:UserInstallation={home.as_uri()}"
    run = ["soffice", profile, "--headless", "--convert-to", to, "--outdir", made, *files]
    subprocess.run(run, check=True, capture_output=True, timeout=600)


@pytest.fixture(scope="module")
def workbooks(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Any]:
    """Workbooks by name, as LibreOffice computes them, in one start of it."""
    made, head = tmp_path_factory.mktemp("made"), home / "head.xlsx"
    GPT2.from_pretrained("pocket").trace(TEXT).head(1, 2).to_xlsx(head)
    with_bias().heads[1].to_xlsx(home / "head_1.xlsx")
    for sheet, (cell, _, value) in CHANGED.items():
        book = openpyxl.load_workbook(head)
        book[sheet][cell] = value
        book.save(home / f"{sheet}.xlsx")
    files = [*home.glob("*.xlsx")]
    for file in files:
        without_numbers(file)
    convert(home, "xlsx:Calc MS Excel 2007 XML", made, *files)
    return lambda name: openpyxl.load_workbook(made / f"{name}.xlsx", data_only=True)


def with_bias() -> attnlab.MultiHeadAttention:
    """Two heads with a scale and biases, one of which hides a key."""
    rng = np.random.default_rng(3)
    X, W_Q, W_K, W_V, W_O = (rng.standard_normal(shape) for shape in ((4, 6), *[(6, 6)] * 4))
    bias = rng.standard_normal((2, 4, 4))
    bias[1, 2:, 1] = -np.inf
    mask = attnlab.causal_mask(4)
    return attnlab.multi_head_attention(
        X, W_Q, W_K, W_V, W_O, n_head=2, scale=1.5, bias=bias, mask=mask
    )


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


def test_formulas_by_hand(tmp_path: Path) -> None:
    mask, tokens = attnlab.causal_mask(3), ["=猫()", "吃", "鱼"]
    fish = attnlab.self_attention(X, W, W, W, mask=mask, tokens=tokens)
    fish.to_xlsx(tmp_path / "fish.xlsx")
    book = openpyxl.load_workbook(tmp_path / "fish.xlsx")
    cells = {
        ("X", "B3"): 1.0,
        ("Q", "C4"): "=MMULT(X!B4:D4,W_Q!C3:C5)",
        ("raw_scores", "C4"): "=SUMPRODUCT(Q!B4:C4,K!B4:C4)",
        ("scores", "C4"): "=raw_scores!C4/scale!B3",
        ("mask", "C3"): False,
        ("masked_scores", "C3"): "=IF(mask!C3,scores!C3,-1E+308)",
        ("weights.shifted", "C4"): "=masked_scores!C4-MAX(masked_scores!B4:D4)",
        ("weights.exp", "C4"): "=EXP(weights.shifted!C4)",
        ("weights.row_sum", "B4"): (
            "=SUMPRODUCT(EXP(masked_scores!B4:D4-MAX(masked_scores!B4:D4)))"
        ),
        ("weights", "C4"): "=weights.exp!C4/weights.row_sum!B4",
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


def test_a_given_scale_and_bias_are_cells(tmp_path: Path) -> None:
    fish = attnlab.self_attention(X, W, W, W, scale=1, bias=[0, -1, -np.inf])
    fish.to_xlsx(tmp_path / "fish.xlsx")
    book = openpyxl.load_workbook(tmp_path / "fish.xlsx")
    cells = [book[sheet]["C4"].value for sheet in ("score_bias", "masked_scores")]
    assert [str(x).replace("'", "") for x in cells] == [
        "-1",
        "=IF(mask!C4,scores!C4+score_bias!C4,-1E+308)",
    ]
    assert (book["scale"]["B3"].value, book["scale"]["A1"].value) == (1, "scale")


def test_workbooks_have_a_sheet_for_each_step(pocket: Any, tmp_path: Path) -> None:
    pocket.head(1, 2).to_xlsx(tmp_path / "head.xlsx")
    book = openpyxl.load_workbook(tmp_path / "head.xlsx")
    assert book["notes"]["A1"].value == "Layer 1, attention, head 2"
    assert {"X", "W_Q", "Q", "weights", "context", "output"} < set(book.sheetnames)
    assert book["K"]["A1"].value == "K = X W_K + b_K"  # X, as no one gave a memory
    assert numbers(book, "b_Q").shape == (1, 32)  # a row, as tokens are columns


@pytest.mark.slow
def test_a_heads_workbook_prints_on_six_pages(home: Path, pocket: Any, tmp_path: Path) -> None:
    pocket.head(1, 2).to_xlsx(tmp_path / "head.xlsx")
    convert(home, "pdf", tmp_path, tmp_path / "head.xlsx")
    counts = re.findall(rb"/Count (\d+)", (tmp_path / "head.pdf").read_bytes())
    assert max(map(int, counts)) == 6


@pytest.mark.slow
def test_libreoffice_computes_a_heads_numbers(pocket: Any, workbooks: Callable[[str], Any]) -> None:
    head, book = pocket.head(1, 2), workbooks("head")
    steps = ("Q", "K", "V", "raw_scores", "scores", "masked_scores", "weights", "context", "output")
    for step in steps:
        close(book, step, getattr(head, step))


@pytest.mark.slow
def test_libreoffice_computes_with_a_scale_and_a_bias(workbooks: Callable[[str], Any]) -> None:
    head, book = with_bias().heads[1], workbooks("head_1")
    for step in ("scores", "score_bias", "masked_scores", "weights", "context", "output"):
        close(book, step, getattr(head, step))


@pytest.mark.slow
@pytest.mark.parametrize("sheet", CHANGED)
def test_changed_cells_change_dependent_cells(
    sheet: str, pocket: Any, workbooks: Callable[[str], Any]
) -> None:
    _, index, value = CHANGED[sheet]
    edit = getattr(pocket.head(1, 2), sheet).copy()
    edit[index] = value
    edited = pocket.edited({f"blocks.1.attention.heads.2.{sheet}": edit}).head(1, 2)
    book = workbooks(sheet)
    for step in ("Q", "masked_scores", "weights", "context", "output"):
        close(book, step, getattr(edited, step))


def test_edited_steps_are_constants(pocket: Any, tmp_path: Path) -> None:
    path = tmp_path / "edited.xlsx"
    edited = pocket.edited({"blocks.1.attention.heads.2.weights": 0})
    edited.head(1, 2).to_xlsx(path)
    book = openpyxl.load_workbook(path)
    assert not numbers(book, "weights").any()
    assert book["weights"]["A1"].value == "weights, edited"
    assert book["context"]["B3"].value == "=MMULT(weights!B3:I3,V!B3:B10)"


def test_unsupported_workbooks(pocket: Any, tmp_path: Path) -> None:
    path = tmp_path / "none.xlsx"
    model = GPT2.from_pretrained("pocket")
    step = model.generate("The dog", 2, temperature=0, trace=True).steps[-1].trace
    with pytest.raises(AttnlabError, match=r"cached keys can.t be written"):
        step.head(1, 0).to_xlsx(path)
    with pytest.raises(AttnlabError, match="be written as formulas"):
        attnlab.gradients(pocket).blocks[1].attention.to_xlsx(path)
    with pytest.raises(AttnlabError, match="several heads or sequences"):
        pocket.blocks[1].attention.to_xlsx(path)
    T = 1100
    with pytest.raises(AttnlabError, match="more than 1,000,000 cells"):
        attnlab.attention(np.ones((T, 2)), np.ones((T, 2)), np.ones((T, 2))).to_xlsx(path)
    with pytest.raises(AttnlabError, match="doesn't exist"):
        pocket.head(0, 0).to_xlsx(tmp_path / "missing" / "x.xlsx")
    assert not list(tmp_path.iterdir())
