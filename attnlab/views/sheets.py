"""One head as a spreadsheet: a sheet for each step, with formulas that use earlier sheets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from typing import Any, TypeAlias

import numpy as np

from attnlab import equations
from attnlab.errors import InvalidValueError
from attnlab.steps.labels import axis_of
from attnlab.support.checks import importing_extra
from attnlab.support.colours import LIGHT
from attnlab.support.files import FilePath, check_writable, write_atomically

with importing_extra("sheets"):
    import xlsxwriter
    from xlsxwriter.utility import quote_sheetname, xl_range, xl_rowcol_to_cell

MAX_CELLS = 1_000_000  # workbooks with more cells take minutes to open

MINUS_INFINITY = -1e308  # stands for -inf, which spreadsheets lack

NOTES = (
    "Change a number or formula, and everything that depends on it changes.",
    "Spreadsheets compute with 15 digits, a float32 model with 7, so the last digits differ.",
    f"-inf is written as {MINUS_INFINITY:g} and shown as -inf.",
    "Q, K, V, scores, weights and context are printed; other sheets have an empty print area.",
)

ONE_HEAD = "Write one head, such as with trace.head(0, 0).to_xlsx(path)"

# The first cell with a number, below the heading and the column labels.
FIRST_ROW, FIRST_COLUMN = 2, 1

# The steps that are printed, each on a page. The print area of other sheets, NOTHING, is an empty
# cell, so these sheets print nothing.
PRINTED = ("Q", "K", "V", "scores", "weights", "context")
NOTHING = (2**20 - 1, 0, 2**20 - 1, 0)

# Widths of columns in characters.
LABEL_WIDTH, NUMBER_WIDTH = 14, 6.5

# A function from the row and column of a step's number to the formula of its cell.
Formula: TypeAlias = Callable[[int, int], str]


class Sheet:
    """How formulas name a sheet's cells and ranges, given the row and column in its array."""

    def __init__(self, name: str, shape: tuple[int, int]) -> None:
        self.name, (self.rows, self.columns) = name, shape

    def cell(self, i: int, j: int) -> str:
        """One cell, such as `Q!B3`."""
        return self._name(xl_rowcol_to_cell(FIRST_ROW + i, FIRST_COLUMN + j))

    def row(self, i: int) -> str:
        """A row of cells, such as `Q!B3:AG3`."""
        return self._range(i, 0, i, self.columns - 1)

    def column(self, j: int) -> str:
        return self._range(0, j, self.rows - 1, j)

    def _range(self, top: int, left: int, bottom: int, right: int) -> str:
        return self._name(
            xl_range(FIRST_ROW + top, FIRST_COLUMN + left, FIRST_ROW + bottom, FIRST_COLUMN + right)
        )

    def _name(self, cells: str) -> str:
        return f"{quote_sheetname(self.name)}!{cells}"


def sheet_formulas(sheets: Mapping[str, Sheet]) -> dict[str, Formula]:
    """The formulas of a head's computed steps, which refer to the sheets of earlier steps."""

    def product(left: str, right: str, bias: str = "") -> Formula:
        def formula(i: int, j: int) -> str:
            # In self-attention, memory is another name of X.
            rows, columns = sheets[left if left in sheets else "X"], sheets[right]
            added = f"+{sheets[bias].cell(0, j)}" if bias in sheets else ""
            return f"MMULT({rows.row(i)},{columns.column(j)}){added}"

        return formula

    def cell(name: str) -> Formula:
        return lambda i, j: sheets[name].cell(i, j)

    def masked_scores(i: int, j: int) -> str:
        names = ("scores", "score_bias") if "score_bias" in sheets else ("scores",)
        kept = "+".join(cell(name)(i, j) for name in names)
        return f"IF({cell('mask')(i, j)},{kept},{MINUS_INFINITY:.0E})"

    def shifted(i: int, j: int) -> str:
        return f"{cell('masked_scores')(i, j)}-MAX({sheets['masked_scores'].row(i)})"

    def row_sum(i: int, j: int) -> str:
        row = sheets["masked_scores"].row(i)
        return f"SUMPRODUCT(EXP({row}-MAX({row})))"  # SUM doesn't evaluate EXP cell by cell

    def softmax(i: int, j: int) -> str:
        return f"{cell('weights.exp')(i, j)}/{sheets['weights.row_sum'].cell(i, 0)}"

    def weights(i: int, j: int) -> str:
        if "dropout_mask" not in sheets:
            return softmax(i, j)
        return f"{cell('weights.softmax')(i, j)}*{cell('dropout_mask')(i, j)}"

    return {
        "Q": product("X", "W_Q", "b_Q"),
        "K": product("memory", "W_K", "b_K"),
        "V": product("memory", "W_V", "b_V"),
        "raw_scores": lambda i, j: f"SUMPRODUCT({sheets['Q'].row(i)},{sheets['K'].row(j)})",
        "scale": lambda i, j: f"SQRT({sheets['K'].columns})",
        "scores": lambda i, j: f"{cell('raw_scores')(i, j)}/{sheets['scale'].cell(0, 0)}",
        "masked_scores": masked_scores,
        "weights.shifted": shifted,
        "weights.exp": lambda i, j: f"EXP({cell('weights.shifted')(i, j)})",
        "weights.row_sum": row_sum,
        "weights.softmax": softmax,
        "weights": weights,
        "context": product("weights", "V"),
        "output": product("context", "W_O"),
    }


class Book:
    """A workbook: a sheet of notes, then a sheet for each step, labelled with tokens."""

    def __init__(self, head: Any) -> None:  # an attention
        self.head, self.stream, self.cell_count = head, BytesIO(), 0
        self.sheets = dict[str, Sheet]()
        self.formulas = sheet_formulas(self.sheets)
        self.workbook = xlsxwriter.Workbook(self.stream, {"in_memory": True})
        self.bold = self.workbook.add_format({"bold": True})
        self.bold_right = self.workbook.add_format({"bold": True, "align": "right"})
        shown = {"font_color": LIGHT.faint, "bg_color": LIGHT.masked, "num_format": '"-inf";"-inf"'}
        # Numbers below MINUS_INFINITY / 10 stand for -inf, since no other number is as small.
        self.masked = {"type": "cell", "criteria": "<=", "value": MINUS_INFINITY / 10}
        self.masked["format"] = self.workbook.add_format(shown)
        sheet = self.workbook.add_worksheet("notes")
        sheet.write_string(0, 0, head.title, self.bold)
        for row, note in enumerate(NOTES, 1):
            sheet.write_string(row, 0, note)
        sheet.print_area(*NOTHING)

    def put_step(self, name: str) -> None:
        """Write a computed step as formulas, and a given or edited step as numbers."""
        value, is_edited = getattr(self.head, name), self.head.is_edited(name)
        if not isinstance(value, np.ndarray | float) or (
            name == "memory" and value is self.head.X and not is_edited
        ):
            return  # the head doesn't have this input, or the memory is X
        axes = self.head.axes_of(name)
        if is_edited or not self.is_computed(name):
            self.put(name, name + (", edited" if is_edited else ""), value, axes)
            return
        if name == "weights":
            self.put_parts_of_softmax(axes)
        heading = f"{name} = {self.head.formula_of(name)}"
        self.put(name, heading, value, axes, self.formulas[name])

    def is_computed(self, name: str) -> bool:
        """Whether a step has a formula. A scale has none if it is given or a layer's own scale."""
        if name == "scale":
            node = self.head._run.graph[self.head._path_of(name)]
            return node.step.equation is equations.scale and not node.always_select
        return name in self.formulas and self.head.steps[name].equation is not None

    def put_parts_of_softmax(self, axes: str) -> None:
        masked_scores = self.head.masked_scores.astype(np.float64)
        shifted = masked_scores - masked_scores.max(axis=-1, keepdims=True)
        exp = equations.exponentials(masked_scores)
        row_sum = exp.sum(axis=-1, keepdims=True)
        parts = {"shifted": shifted, "exp": exp, "row_sum": row_sum}
        if self.head.dropout_mask is not None:
            parts["softmax"] = exp / row_sum
        for part, numbers in parts.items():
            name, rows = f"weights.{part}", axes.split()[0]
            columns = "" if part == "row_sum" else axes.split()[1]
            heading = f"{part}, a part of weights"
            self.put(name, heading, numbers, f"{rows} {columns}", self.formulas[name])

    def put(
        self, name: str, heading: str, value: Any, axes: str, formula: Formula | None = None
    ) -> None:
        """Write an array with these axes, such as "Tq Dk", to a new sheet."""
        array = np.atleast_2d(np.asarray(value))
        self.cell_count += array.size
        if self.cell_count > MAX_CELLS:
            raise InvalidValueError(
                f"the workbook would have more than {MAX_CELLS:,} cells, too many to open. "
                f"{ONE_HEAD}, or trace a shorter text"
            )
        sheet, (rows, columns) = self.workbook.add_worksheet(name), array.shape
        self.sheets[name] = Sheet(name, (rows, columns))
        sheet.write_string(0, 0, heading, self.bold)
        sheet.freeze_panes(FIRST_ROW, FIRST_COLUMN)
        sheet.set_column(0, 0, LABEL_WIDTH)
        sheet.set_column(FIRST_COLUMN, columns, NUMBER_WIDTH)
        # A row or a single number lacks axes: "" stands for a missing axis.
        row_axis, column_axis = ("", "", *axes.split(" "))[-2:]
        for column, text in enumerate(self._names(column_axis, columns), FIRST_COLUMN):
            sheet.write_string(FIRST_ROW - 1, column, text, self.bold_right)
        for row, text in enumerate(self._names(row_axis, rows), FIRST_ROW):
            sheet.write_string(row, 0, text, self.bold_right)
        if array.dtype.kind == "f":
            array = np.where(np.isneginf(array), MINUS_INFINITY, array.astype(np.float64))
        for i, numbers in enumerate(array.tolist()):
            if formula is None:
                sheet.write_row(FIRST_ROW + i, FIRST_COLUMN, numbers)
                continue
            for j, number in enumerate(numbers):
                cell = FIRST_ROW + i, FIRST_COLUMN + j
                sheet.write_formula(*cell, f"={formula(i, j)}", None, number)
        last_cell = FIRST_ROW + rows - 1, FIRST_COLUMN + columns - 1
        sheet.conditional_format(FIRST_ROW, FIRST_COLUMN, *last_cell, self.masked)
        sheet.fit_to_pages(1, 1)
        if name not in PRINTED:
            sheet.print_area(*NOTHING)

    def _names(self, axis: str, count: int) -> Sequence[str]:
        """The labels along an axis, which are empty for a missing axis."""
        return axis_of(self.head, axis, count).labels if axis else [""] * count

    def file_content(self) -> bytes:
        self.workbook.close()
        return self.stream.getvalue()


def write_sheets(result: Any, path: FilePath) -> None:
    """Write the steps of one head, see `Attention.to_xlsx`."""
    check_writable(path)
    if result.derivative_of:
        raise InvalidValueError(f"{result.title} can't be written as formulas. Write its trace")
    if len(result.scores_shape) > 2:
        raise InvalidValueError(f"{result.title} has several heads or sequences. {ONE_HEAD}")
    if result.tokens_before:
        raise InvalidValueError(
            "a trace with cached keys can't be written as formulas. Trace the whole text"
        )
    book = Book(result._fork())  # a fork, so that the caller's result keeps no steps
    for name in result._table_steps:
        book.put_step(name)
    write_atomically(path, book.file_content())
