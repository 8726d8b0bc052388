"""A computation as a spreadsheet of formulas.

Each step becomes a sheet. Its cells are the formulas of its equation's derivation, as in an
explanation, with cells of earlier sheets instead of names. Equations that move numbers move cells.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np

from attnlab import equations
from attnlab.equations import AnyArray
from attnlab.errors import InvalidValueError
from attnlab.steps import Node, Result, Step, at
from attnlab.steps.declaration import parameters_of
from attnlab.steps.labels import axis_of
from attnlab.support.checks import importing_extra
from attnlab.support.colours import LIGHT
from attnlab.support.files import FilePath, check_writable, write_atomically
from attnlab.views.explaining.derivations import computes, derivation
from attnlab.views.explaining.formulas import (
    CONSTANTS,
    OPERATIONS,
    Indexed,
    Leaf,
    Rounded,
    Tree,
    is_leaf,
)

with importing_extra("sheets"):
    import xlsxwriter
    from xlsxwriter.utility import quote_sheetname, xl_rowcol_to_cell

# Larger workbooks take minutes to open.
MAX_CELLS = 1_000_000

# Stands for -inf, which spreadsheets lack.
MINUS_INFINITY = -1e308

NOTES = (
    "Change a number or formula, and everything that depends on it changes.",
    "Spreadsheets compute with 15 digits, a float32 model with 7, so the last digits differ.",
    f"-inf is written as {MINUS_INFINITY:g} and shown as -inf.",
)

ONE_HEAD = "Write one head, such as with trace.head(0, 0).to_xlsx(path)"

# The first cell with a number, below the heading and the column labels.
FIRST_ROW, FIRST_COLUMN = 2, 1

# Widths of columns in characters.
LABEL_WIDTH, NUMBER_WIDTH = 14, 6.5

# The axis of numbers that are the same in all columns.
ONE = "1"

# A cell's address is one integer, made of sheet, row and column.
NEXT_COLUMN, NEXT_ROW, NEXT_SHEET = 1, 2**16, 2**40

# Operators and functions of formulas.
PRECEDENCE = {"+": 1, "-": 1, "*": 2, "/": 2, "**": 3}
FUNCTIONS = {"if": "IF", "maximum": "MAX", **{f: f.upper() for f in ("erf", "exp", "sqrt", "tanh")}}


@dataclass(frozen=True, eq=False)
class Cells:
    """An array of cells of sheets, or of cells to be written."""

    values: AnyArray  # the numbers (...)
    addresses: Any = None  # (...) on a sheet, see NEXT_COLUMN; None if they aren't on one yet
    formulas: Any = None  # (...) to be written; None for numbers

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape


class Derived:
    """The cells of a derivation's lines, over the rows and columns of a step.

    `values` are the equation's parameters by name, then earlier lines: cells, or other values.
    """

    def __init__(self, book: Book, values: Mapping[str, Any]) -> None:
        self.book, self.values = book, dict(values)
        self.arrays: list[AnyArray] = []  # what to put in the places of a template

    def formulas(self, tree: Tree) -> AnyArray:
        """The spreadsheet's formulas of a formula, over rows and columns."""
        self.arrays = []
        template = self.template(tree)
        return _each(template.format, *self.arrays) if self.arrays else np.array(template, object)

    def template(self, tree: Tree, outer: int = 0) -> str:
        """A formula as a template of the spreadsheet's formulas, in parentheses if need be."""
        match tree:
            case "pi":
                return "PI()"
            case "-inf":
                return _literal(-np.inf)
            case str() | ("at", *_):
                return self.place(self.texts(tree))
            case ("len", ("at", name, *_)):
                return str(self.values[name].shape[-1])
            case ("sum", ("*", first, second)):
                return self.place(_each(Range.times, self.ranges(first), self.ranges(second)))
            case ("sum", row) if not is_leaf(row):
                return f"SUMPRODUCT({self.template(row)})"  # of an array, unlike SUM
            case ("sum" | "max" as reduction, row):
                return f"{reduction.upper()}({self.template(row)})"
            case (operation, *operands) if operation in FUNCTIONS:
                return f"{FUNCTIONS[operation]}({','.join(map(self.template, operands))})"
            case (operation, left, right):
                precedence = PRECEDENCE[operation]
                sign = "^" if operation == "**" else operation
                # a - (b - c) and (a^2)^2, but a - b - c and a * b * c
                inner = (precedence + (sign == "^"), precedence + (sign in "-/"))
                texts = map(self.template, (left, right), inner)
                return f"({sign.join(texts)})" if precedence < outer else sign.join(texts)
        return _literal(tree)

    def place(self, texts: AnyArray) -> str:
        self.arrays.append(texts)
        return f"{{{len(self.arrays) - 1}}}"

    def texts(self, tree: Leaf) -> AnyArray:
        """The references or ranges of a name in a formula, over rows and columns."""
        if isinstance(tree, tuple) and ":" in tree:
            return _each(str, self.ranges(tree))
        cells = self.values[tree if isinstance(tree, str) else tree[1]]
        if not isinstance(cells, Cells):
            return np.asarray(_literal(cells), object)
        return over_rows_and_columns(_each(self.book.reference, cells.addresses), tree)

    def ranges(self, tree: Indexed) -> AnyArray:
        """The `Range`s of an indexed array with ":", over rows and columns."""
        _, name, *index = tree
        addresses = self.values[name].addresses
        along_columns = addresses.swapaxes(-2, -1) if index[0] == ":" else addresses
        return over_rows_and_columns(self.book.ranges(along_columns), tree)

    def value(self, tree: Tree, *, is_reduced: bool = False) -> Any:
        """The numbers of a formula, over rows and columns, and along the row that is reduced."""
        if tree in CONSTANTS:
            return np.float64(CONSTANTS[tree][0])
        if is_leaf(tree):
            cells = self.values[tree if isinstance(tree, str) else tree[1]]
            values = np.asarray(cells.values if isinstance(cells, Cells) else cells, np.float64)
            if ":" in tree:
                return np.expand_dims(values, -2)
            return values[..., np.newaxis] if is_reduced and values.ndim else values
        if not isinstance(tree, tuple):
            return np.float64(tree)
        operation, *operands = tree
        reduces = operation in ("sum", "max", "len")
        numbers = (self.value(x, is_reduced=is_reduced or reduces) for x in operands)
        value = OPERATIONS[operation](*map(Rounded, numbers)).value
        return value[..., np.newaxis] if is_reduced and reduces else value


def over_rows_and_columns(array: AnyArray, tree: Tree) -> AnyArray:
    """Align an array, indexed as in a formula, with the rows and columns of a step."""
    match [part for part in tree[2:] if part != ":"] if isinstance(tree, tuple) else []:
        case [int(row)]:
            return np.asarray(array[row])
        case ["row"]:
            return np.expand_dims(array, -1)
        case ["column"] if array.ndim > 1:  # for each head
            return np.expand_dims(array, -2)
    return array


@dataclass(frozen=True)
class Range:
    """A row or column of cells, such as `Q!B3:AG3`."""

    text: str
    is_row: bool

    def __str__(self) -> str:
        return self.text

    def times(self, other: Range) -> str:
        """The formula of the dot product of two ranges."""
        if self.is_row == other.is_row:
            return f"SUMPRODUCT({self},{other})"
        row, column = (self, other) if self.is_row else (other, self)
        return f"MMULT({row},{column})"


def _each(function: Callable[..., Any], *arrays: Any) -> AnyArray:
    """Apply a function to each element, with broadcasting."""
    return np.asarray(np.frompyfunc(function, len(arrays), 1)(*arrays), object)


class Book:
    """A workbook: a sheet of notes, then one for each step, labelled with tokens."""

    def __init__(self, result: Result) -> None:
        self.result, self.stream, self.cell_count = result, BytesIO(), 0
        self.workbook = xlsxwriter.Workbook(self.stream, {"in_memory": True})
        self.bold = self.workbook.add_format({"bold": True})
        self.bold_right = self.workbook.add_format({"bold": True, "align": "right"})
        shown = {"font_color": LIGHT.faint, "bg_color": LIGHT.masked, "num_format": '"-inf";"-inf"'}
        self.masked = {"type": "cell", "criteria": "<=", "value": MINUS_INFINITY / 10}
        self.masked["format"] = self.workbook.add_format(shown)
        self.names: list[str] = []
        sheet = self._sheet("notes")
        sheet.write_string(0, 0, result.title, self.bold)
        for row, note in enumerate(NOTES, 1):
            sheet.write_string(row, 0, note)

    def _sheet(self, name: str) -> Any:
        self.names.append(name)
        return self.workbook.add_worksheet(name)

    def reference(self, address: int) -> str:
        """A cell's name, such as `Q!B3`."""
        sheet, cell = divmod(int(address), NEXT_SHEET)
        return f"{quote_sheetname(self.names[sheet])}!{_name(cell)}"

    def ranges(self, addresses: AnyArray) -> AnyArray:
        """Each row of addresses, of neighbours on a sheet, as a `Range`: (..., n) -> (...)."""
        is_row = addresses.shape[-1] < 2 or addresses.flat[1] - addresses.flat[0] == NEXT_COLUMN

        def of(first: int, last: int) -> Range:
            return Range(f"{self.reference(first)}:{_name(last % NEXT_SHEET)}", bool(is_row))

        return _each(of, addresses[..., 0], addresses[..., -1])

    def put(self, name: str, heading: str, cells: Cells, axes: str) -> Cells:
        """Write cells to a new sheet, with these last axes, such as "Tq Dk"; return its cells."""
        self.cell_count += cells.values.size
        if self.cell_count > MAX_CELLS:
            raise InvalidValueError(
                f"the workbook would have more than {MAX_CELLS:,} cells, too many to open. "
                f"{ONE_HEAD}, or trace a shorter text"
            )
        shape = cells.shape
        *leading, row_width = (1, *shape)
        size = (math.prod(leading), row_width)
        address = len(self.names) * NEXT_SHEET + FIRST_ROW * NEXT_ROW + FIRST_COLUMN * NEXT_COLUMN
        rows, columns = np.indices(size)
        addresses = address + rows * NEXT_ROW + columns * NEXT_COLUMN
        sheet = self._sheet(name)
        sheet.write_string(0, 0, heading, self.bold)
        sheet.freeze_panes(FIRST_ROW, FIRST_COLUMN)
        sheet.set_column(0, 0, LABEL_WIDTH)
        sheet.set_column(FIRST_COLUMN, row_width, NUMBER_WIDTH)
        self._label(sheet, shape, axes.split())
        self._write(sheet, cells, size)
        last_row, last_column = FIRST_ROW + size[0] - 1, FIRST_COLUMN + size[1] - 1
        sheet.conditional_format(FIRST_ROW, FIRST_COLUMN, last_row, last_column, self.masked)
        return Cells(cells.values, addresses.reshape(shape))

    def _write(self, sheet: Any, cells: Cells, size: tuple[int, int]) -> None:
        values = cells.values
        if values.dtype.kind == "f":
            values = np.where(np.isneginf(values), MINUS_INFINITY, values.astype(np.float64))
        numbers = values.reshape(size).tolist()
        if cells.formulas is None:
            for row, row_numbers in enumerate(numbers, FIRST_ROW):
                sheet.write_row(row, FIRST_COLUMN, row_numbers)
            return
        texts = cells.formulas.reshape(size)
        for row, (formulas, row_numbers) in enumerate(zip(texts, numbers, strict=True), FIRST_ROW):
            for column, (text, number) in enumerate(
                zip(formulas, row_numbers, strict=True), FIRST_COLUMN
            ):
                sheet.write_formula(row, column, f"={text}", None, number)

    def _label(self, sheet: Any, shape: tuple[int, ...], axes: Sequence[str]) -> None:
        """Label the rows and columns of a sheet."""
        # A row or a number has no names for the missing axes.
        rows, columns = (1, 1, *shape)[-2:]
        row_axis, column_axis = ("", "", *axes)[-2:]
        for column, text in enumerate(self._names(column_axis, columns), FIRST_COLUMN):
            sheet.write_string(FIRST_ROW - 1, column, text, self.bold_right)
        for row, text in enumerate(self._names(row_axis, rows), FIRST_ROW):
            sheet.write_string(row, 0, text, self.bold_right)

    def _names(self, axis: str, count: int) -> Sequence[str]:
        """The labels along an axis."""
        return [""] * count if axis in ("", ONE) else axis_of(self.result, axis, count).labels

    def file_content(self) -> bytes:
        self.workbook.close()
        return self.stream.getvalue()


class Sheets:
    """The steps of a result, each written when first used, as formulas of earlier sheets."""

    def __init__(self, result: Result, book: Book) -> None:
        self.run, self.book = result._run.fork(), book
        self.values_by_path: dict[str, Any] = {}
        self.result, self.path = result, result.path
        # Of a part of the model, such as a head, the inputs are written as numbers.
        self.inputs = {f"{result.path}.X", f"{result.path}.mask"} if result.path else set()

    def value(self, path: str) -> Any:
        """A step: cells, or a value that isn't an array."""
        if path not in self.values_by_path:
            self.values_by_path[path] = self._compute(path)
        return self.values_by_path[path]

    def _compute(self, path: str) -> Any:
        node, name = self.run.graph[path], self._name(path)
        value, step = self.run.value(path), node.step
        if self._is_number(path, node):
            if step.equation is equations.identity and not isinstance(value, np.ndarray):
                return value
            heading = path.rpartition(".")[2] + (", edited" if self.run.is_edited(path) else "")
            if not isinstance(value, np.ndarray | float):
                return value
            return self.book.put(name, heading, Cells(np.asarray(value)), step.axes)
        inputs = [self.value(need) for need in node.needs]
        heading = f"{step.name} = {self._formula(path, step)}"
        if computes(step.equation):
            formulas = self.formulas(step.equation, inputs, name, step.axes)
            cells = Cells(np.asarray(value), None, formulas.reshape(np.shape(value)))
            return self.book.put(name, heading, cells, step.axes)
        addresses = step.equation(*(x.addresses if isinstance(x, Cells) else x for x in inputs))
        if not isinstance(addresses, np.ndarray):  # a value that isn't an array
            return addresses
        return Cells(value, addresses)  # cells of an earlier sheet, such as W_U of W_E

    def _formula(self, path: str, step: Step[Any]) -> str:
        """The step's formula as its result shows it, such as X for the memory of self-attention."""
        prefix = f"{self.path}." if self.path else ""
        if not path.startswith(prefix):
            return self.run.graph.formulas.get(step.name, step.formula)
        part = path.removeprefix(prefix).rpartition(".")[0]
        owner = at(self.result, part) if part else self.result
        return str(owner.formula_of(step.name))

    def formulas(
        self, equation: Callable[..., Any], inputs: Sequence[Any], name: str, axes: str
    ) -> AnyArray:
        """The formulas of a step; the earlier lines of its derivation get sheets."""
        derived = Derived(self.book, dict(zip(parameters_of(equation), inputs, strict=True)))
        *parts, last = derivation(equation, derived.values)
        for part in parts:
            texts = derived.formulas(part.tree)
            cells = Cells(np.broadcast_to(derived.value(part.tree), texts.shape), None, texts)
            heading = f"{part.name}, a part of {name}"
            part_axes = axes if cells.shape[-1] > 1 else f"{axes.rpartition(' ')[0]} {ONE}"
            derived.values[part.name] = self.book.put(
                f"{name}.{part.name}", heading, cells, part_axes
            )
        return derived.formulas(last.tree)

    def _is_number(self, path: str, node: Node) -> bool:
        """Whether a step is written as numbers: an input, a parameter, or an edited step."""
        edited = path in self.run.edited_steps or self.run.is_edited(path)
        # A scale that is the same for all heads of a layer.
        is_scale_of_layer = node.always_select and not node.step.axes
        has_no_formula = path in self.inputs or node.step.equation is None or is_scale_of_layer
        return has_no_formula or edited

    def _name(self, path: str) -> str:
        """A step's path from the result, shortened for a sheet's name."""
        relative = path.removeprefix(f"{self.path}.") if self.path else path
        return relative.removeprefix("blocks.")


def write_sheets(result: Result, path: FilePath) -> None:
    """Write the steps of an attention, see `Attention.to_xlsx`."""
    check_writable(path)
    book = _book_of(result)
    sheets = Sheets(result, book)
    for name in result._table_steps:
        sheets.value(result._path_of(name))
    write_atomically(path, book.file_content())


def _book_of(result: Any) -> Book:  # an attention
    if result.derivative_of:
        raise InvalidValueError(f"{result.title} can't be written as formulas. Write its trace")
    if len(result.scores_shape) > 2:
        raise InvalidValueError(f"{result.title} has several heads or sequences. {ONE_HEAD}")
    if result.tokens_before:
        raise InvalidValueError(
            "a trace with cached keys can't be written as formulas. Trace the whole text"
        )
    return Book(result)


def _name(address: int) -> str:
    return xl_rowcol_to_cell(*divmod(address, NEXT_ROW))


def _literal(number: Any) -> str:
    text = repr(MINUS_INFINITY if number == -np.inf else float(number))
    return text.removesuffix(".0").upper()
