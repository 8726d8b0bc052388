"""A computation as a spreadsheet of formulas.

The functions of `attnlab.equations` run on `Cells` instead of arrays: adding two cells makes the
formula that adds them. Each step becomes a sheet, to which the formulas of later steps refer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any, TypeAlias

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from attnlab import equations
from attnlab.equations import AnyArray
from attnlab.errors import InvalidValueError
from attnlab.model.trace import Trace
from attnlab.steps import Result
from attnlab.steps.labels import axis_of, label
from attnlab.support.checks import importing_extra
from attnlab.support.files import FilePath, write_atomically
from attnlab.views.colours import LIGHT

with importing_extra("sheets"):
    import xlsxwriter
    from xlsxwriter.utility import quote_sheetname, xl_rowcol_to_cell

# Larger workbooks take minutes to open.
MAX_CELLS = 1_000_000

# The most tokens in a workbook of a whole model.
MAX_TOKENS = 12

# Stands for -inf, which spreadsheets lack.
MINUS_INFINITY = -1e308

NOTES = (
    "Change a number or formula, and everything that depends on it changes.",
    "Spreadsheets compute with 15 digits, a float32 model with 7, so the last digits differ.",
    f"-inf is written as {MINUS_INFINITY:g} and shown as -inf.",
)

ONE_HEAD = "Write one head, such as with trace.to_xlsx(path, layer=0, head=0)"

# The first cell with a number, below the heading and the column labels.
FIRST_ROW, FIRST_COLUMN = 2, 1

# A cell's address is one integer, made of sheet, row and column.
NEXT_COLUMN, NEXT_ROW, NEXT_SHEET = 1, 2**16, 2**40

# Operator precedence. An atom, which is a reference, a number or a call, needs no parentheses.
COMPARISON, SUM, PRODUCT, POWER, ATOM = range(5)

OPERATORS = {
    np.less_equal: ("{}<={}", COMPARISON),
    np.add: ("{}+{}", SUM),
    np.negative: ("-({})", SUM),
    np.subtract: ("{}-{}", SUM),
    np.multiply: ("{}*{}", PRODUCT),
    np.divide: ("{}/{}", PRODUCT),
    np.square: ("{}^2", POWER),
}
FUNCTIONS = {
    np.absolute: "ABS({})",
    np.copysign: "IF({1}<0,-ABS({0}),ABS({0}))",
    np.exp: "EXP({})",
    np.maximum: "MAX({},{})",
    np.minimum: "MIN({},{})",
    np.sqrt: "SQRT({})",
    np.tanh: "TANH({})",
}

Node: TypeAlias = Any


class Cells(NDArrayOperatorsMixin):
    """An array of cells, which equations use like an array of numbers.

    Parameters
    ----------
    book : the workbook; sums and products put their operands on its sheets
    values : the numbers (...)
    texts : formulas (...); None for cells of a sheet
    addresses : addresses (...) of cells of a sheet, see NEXT_COLUMN; None for formulas
    precedence : precedence of the formulas' outermost operator
    source : the name of the function that made the formulas
    """

    def __init__(
        self,
        book: Book,
        values: AnyArray,
        texts: AnyArray | None = None,
        addresses: AnyArray | None = None,
        precedence: int = ATOM,
        source: str = "",
    ) -> None:
        self.book, self.values, self.texts, self.addresses = book, values, texts, addresses
        self.precedence, self.source = precedence, source

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.values.dtype

    def formulas(self, precedence: int = COMPARISON) -> AnyArray:
        """The cells as texts, in parentheses if their operator binds less than `precedence`."""
        if self.texts is None:
            assert self.addresses is not None
            return np.asarray(np.frompyfunc(self.book.reference, 1, 1)(self.addresses), object)
        return self.texts if self.precedence >= precedence else "(" + self.texts + ")"

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None) -> Any:
        if ufunc is np.matmul:
            return _product(*inputs)
        template, precedence = OPERATORS.get(ufunc) or (FUNCTIONS[ufunc], ATOM)
        if precedence == ATOM:  # a call's arguments need no parentheses
            least = [COMPARISON] * 2
        else:  # at equal precedence, the right operand needs them: a - (b - c), but a - b - c
            left = ATOM if precedence == POWER else precedence  # (a^2)^2, but a*b*c
            least = [left, precedence + 1]
        result = self._elementwise(ufunc, template, inputs, least, precedence)
        if out is None:
            return result
        vars(out[0]).update(vars(result))  # an in-place operation, such as +=
        return out[0]

    def __array_function__(
        self, function: Any, _: Any, arguments: Sequence[Any], named: dict[str, Any]
    ) -> Any:
        if function is np.where:
            return self._elementwise(np.where, "IF({},{},{})", arguments, [COMPARISON] * 3, ATOM)
        if function is np.broadcast_to:
            return self._view(lambda x: np.broadcast_to(x, *arguments[1:], **named))
        return NotImplemented

    def _elementwise(
        self,
        function: Callable[..., Any],
        template: str,
        inputs: Iterable[Any],
        least: Sequence[int],
        precedence: int,
    ) -> Cells:
        """The result of an elementwise function.

        Parameters
        ----------
        template : template of the result's formulas, with braces for the inputs
        least : the least precedence at which each input needs no parentheses
        precedence : precedence of the result
        """
        cells = [x if isinstance(x, Cells) else self.book.constants(x) for x in inputs]
        texts = [x.formulas(lowest) for x, lowest in zip(cells, least, strict=False)]
        formulas = np.asarray(np.frompyfunc(template.format, len(texts), 1)(*texts), object)
        with np.errstate(all="ignore"):  # the branch that IF doesn't take may overflow
            values = np.asarray(function(*(x.values for x in cells)))
        return Cells(self.book, values, formulas, None, precedence, function.__name__)

    def _view(self, take: Callable[[AnyArray], AnyArray]) -> Cells:
        texts, addresses = (None if x is None else take(x) for x in (self.texts, self.addresses))
        return Cells(self.book, take(self.values), texts, addresses, self.precedence, self.source)

    def __getitem__(self, index: Any) -> Cells:
        if not isinstance(index, Cells):
            return self._view(lambda x: np.asarray(x[index]))
        # An array of ids: look up each id in every column, in formulas that follow the ids.
        columns, numbers = self.book.lines(self.swapaxes(0, 1)), index.formulas(SUM)
        texts = [[f"INDEX({column.text},{number}+1)" for column in columns] for number in numbers]
        return Cells(self.book, self.values[index.values], np.array(texts, object))

    def reshape(self, *shape: int) -> Cells:
        return self._view(lambda x: x.reshape(*shape))

    def swapaxes(self, *axes: int) -> Cells:
        return self._view(lambda x: x.swapaxes(*axes))

    def sum(self, axis: int, keepdims: bool) -> Cells:
        return self._reduce_rows("SUM({})", self.values.sum(axis=axis, keepdims=keepdims))

    def max(self, axis: int, keepdims: bool) -> Cells:
        return self._reduce_rows("MAX({})", self.values.max(axis=axis, keepdims=keepdims))

    def _reduce_rows(self, template: str, values: AnyArray) -> Cells:
        texts = [template.format(line.text) for line in self.book.lines(self).flat]
        return Cells(self.book, values, np.array(texts, object).reshape(values.shape))


@dataclass(frozen=True)
class Line:
    """A row or column of cells.

    Attributes
    ----------
    text : such as `Q!B3:AG3`
    is_row : whether it is a row
    """

    text: str
    is_row: bool

    def times(self, other: Line) -> str:
        """The formula of the dot product of two lines."""
        if self.is_row == other.is_row:
            return f"SUMPRODUCT({self.text},{other.text})"
        row, column = (self, other) if self.is_row else (other, self)
        return f"MMULT({row.text},{column.text})"


def _product(left: Cells, right: Cells) -> Cells:
    book = left.book
    rows, columns = book.lines(left), book.lines(right.swapaxes(-2, -1))
    if left.values.ndim > 1:
        rows, columns = rows[..., :, np.newaxis], columns[..., np.newaxis, :]
    texts = np.asarray(np.frompyfunc(Line.times, 2, 1)(rows, columns), object)
    return Cells(book, left.values @ right.values, texts)


class Book:
    """A workbook: a table of contents, then a sheet for each step.

    Parameters
    ----------
    result : its tokens label rows and columns
    """

    def __init__(self, result: Result) -> None:
        self.result, self.stream, self.cell_count = result, BytesIO(), 0
        self.workbook = xlsxwriter.Workbook(self.stream, {"in_memory": True})
        self.bold = self.workbook.add_format({"bold": True})
        self.bold_right = self.workbook.add_format({"bold": True, "align": "right"})
        self.masked = self.workbook.add_format(
            {"font_color": LIGHT.faint, "bg_color": LIGHT.masked, "num_format": '"-inf";"-inf"'}
        )
        self.names: list[str] = []
        self.entries: list[tuple[str, str, str]] = []  # of the table of contents
        self.token_formulas: list[str] = []
        self.contents = self._sheet("steps")
        self.step, self.axes = "", ""  # of the formulas that are being made

    def _sheet(self, name: str) -> Any:
        self.names.append(name)
        return self.workbook.add_worksheet(name)

    def reference(self, address: int) -> str:
        """A cell's name, such as `Q!B3`."""
        sheet, cell = divmod(int(address), NEXT_SHEET)
        return f"{quote_sheetname(self.names[sheet])}!{_name(cell)}"

    def constants(self, numbers: Any) -> Cells:
        """Numbers as literals in formulas."""
        values = np.asarray(numbers)
        texts = np.asarray(np.frompyfunc(_literal, 1, 1)(values), object)
        return Cells(self, values, texts, None, SUM if (values < 0).any() else ATOM)

    def lines(self, cells: Cells) -> AnyArray:
        """Each row of cells as a `Line`, (..., n) -> (...); formulas get a sheet first."""
        step = None if cells.addresses is None else _spacing(cells.addresses)
        if step is None:
            name = f"{self.step}.{cells.source}"
            sheet_cells = self.put(name, f"{cells.source}, a part of {self.step}", cells, self.axes)
            vars(cells).update(vars(sheet_cells))  # so that further uses refer to the sheet
            return self.lines(cells)
        assert cells.addresses is not None

        def line(first: int, last: int) -> Line:
            return Line(f"{self.reference(first)}:{_name(last % NEXT_SHEET)}", step == NEXT_COLUMN)

        lines = np.frompyfunc(line, 2, 1)(cells.addresses[..., 0], cells.addresses[..., -1])
        return np.asarray(lines, object)

    def row_labels(self, cells: Cells) -> str:
        """The range of a sheet's row labels."""
        assert cells.addresses is not None
        # Column 0 of the first and last row.
        first, last = (cells.addresses.flat[i] // NEXT_ROW * NEXT_ROW for i in (0, -1))
        return f"{self.reference(first)}:{_name(last % NEXT_SHEET)}"

    def put(self, name: str, heading: str, cells: Cells, axes: str) -> Cells:
        """Write cells to a new sheet, and return the sheet's cells.

        Parameters
        ----------
        name, heading : the sheet's name and heading
        axes : the names of the last axes, such as "Tq Dk"
        """
        self.cell_count += cells.values.size
        if self.cell_count > MAX_CELLS:
            raise InvalidValueError(
                f"the workbook would have more than {MAX_CELLS:,} cells, too many to open. "
                f"{ONE_HEAD}, or trace a shorter text"
            )
        shape = cells.shape
        last_axis = axes.rpartition(" ")[2]
        is_column = len(shape) == 1 and last_axis in ("T", "vocab")
        *leading, row_width = (*shape, 1) if is_column else (1, *shape)
        size = (math.prod(leading), row_width)
        address = len(self.names) * NEXT_SHEET + FIRST_ROW * NEXT_ROW + FIRST_COLUMN * NEXT_COLUMN
        rows, columns = np.indices(size)
        addresses = address + rows * NEXT_ROW + columns * NEXT_COLUMN
        sheet = self._sheet(name)
        sheet.write_string(0, 0, heading, self.bold)
        sheet.freeze_panes(FIRST_ROW, FIRST_COLUMN)
        self._label(sheet, shape, axes.split(), is_column)
        self._write(sheet, cells, size)
        if cells.values.dtype.kind == "f" and shape:
            self._colour(sheet, size, cells.values, name.endswith("weights"))
        self.entries.append((name, heading, " x ".join(map(str, shape))))
        return Cells(self, cells.values, None, addresses.reshape(shape))

    def _write(self, sheet: Any, cells: Cells, size: tuple[int, int]) -> None:
        values = cells.values
        if values.dtype.kind == "f":
            values = np.where(np.isneginf(values), MINUS_INFINITY, values.astype(np.float64))
        numbers = values.reshape(size).tolist()
        if cells.texts is None and cells.addresses is None:
            for row, row_numbers in enumerate(numbers, FIRST_ROW):
                sheet.write_row(row, FIRST_COLUMN, row_numbers)
            return
        texts = cells.formulas().reshape(size)
        for row, (formulas, row_numbers) in enumerate(zip(texts, numbers, strict=True), FIRST_ROW):
            for column, (text, number) in enumerate(
                zip(formulas, row_numbers, strict=True), FIRST_COLUMN
            ):
                sheet.write_formula(row, column, f"={text}", None, number)

    def _label(
        self, sheet: Any, shape: tuple[int, ...], axes: Sequence[str], is_column: bool
    ) -> None:
        """Label the rows and columns of a sheet.

        Of several matrices, such as one for each head, row labels start with the matrix's index.
        """
        if is_column:  # one column without a name
            shape, axes = (*shape, 1), (*axes, "")
        else:  # a row or a number has no names for the missing axes
            shape, axes = (1, 1, *shape), ("", "", *axes)
        *leading, rows, columns = shape
        for column, (text, formula) in enumerate(self._names(axes[-1], columns), FIRST_COLUMN):
            _write_label(sheet, FIRST_ROW - 1, column, text, formula, self.bold_right)
        row = FIRST_ROW
        for numbers in np.ndindex(*leading):
            matrix = " ".join(
                str(n) for n, count in zip(numbers, leading, strict=True) if count > 1
            )
            for text, formula in self._names(axes[-2], rows):
                start = f"{matrix}: " if matrix else ""
                prefixed = f'"{start}"&{formula}' if formula and start else formula
                _write_label(sheet, row, 0, start + text, prefixed, self.bold_right)
                row += 1

    def _names(self, axis: str, count: int) -> list[tuple[str, str]]:
        """The labels along an axis, each with a formula that computes it, or ""."""
        if not axis:
            return [("", "")] * count
        if axis == "vocab":
            vocabulary = self.result.vocabulary
            return [(label(vocabulary.token(id).symbol), "") for id in range(count)]
        named = axis_of(self.result, axis, count)
        formulas = self.token_formulas if named.has_tokens and self.token_formulas else [""] * count
        return [*zip(named.labels, formulas, strict=True)]

    def _colour(
        self, sheet: Any, size: tuple[int, int], values: AnyArray, is_weights: bool
    ) -> None:
        """Colour numbers as in a heatmap; the colours follow the numbers."""
        last_row, last_column = FIRST_ROW + size[0] - 1, FIRST_COLUMN + size[1] - 1
        area = (FIRST_ROW, FIRST_COLUMN, last_row, last_column)
        masked = {"type": "cell", "criteria": "<=", "value": MINUS_INFINITY / 10}
        sheet.conditional_format(*area, {**masked, "format": self.masked, "stop_if_true": True})
        finite = np.abs(values[np.isfinite(values)])
        largest = 1.0 if is_weights else float(finite.max(initial=0)) or 1.0
        ends = (("min", -largest, LIGHT.negative), ("mid", 0, LIGHT.zero))
        colours: dict[str, Any] = {"type": "3_color_scale"}
        for end, value, colour in (*ends, ("max", largest, LIGHT.positive)):
            colours |= {f"{end}_type": "num", f"{end}_value": value, f"{end}_color": colour}
        sheet.conditional_format(*area, colours)

    def file_content(self, next_token: tuple[str, str] | None = None) -> bytes:
        """Fill the table of contents and return the file.

        Parameters
        ----------
        next_token : a formula for the most probable token, and its value
        """
        sheet = self.contents
        sheet.set_column(0, 0, 34)
        sheet.set_column(1, 1, 60)
        sheet.write_string(0, 0, self.result.title, self.bold)
        for row, note in enumerate(NOTES, 1):
            sheet.write_string(row, 0, note)
        start = len(NOTES) + 2
        if next_token:
            sheet.write_string(start, 0, "the most probable next token", self.bold)
            _write_label(sheet, start, 1, next_token[1], next_token[0], self.bold)
            start += 2
        for row, (name, heading, shape) in enumerate(self.entries, start):
            sheet.write_url(row, 0, f"internal:{quote_sheetname(name)}!A1", string=name)
            sheet.write_string(row, 1, heading)
            sheet.write_string(row, 2, shape)
        self.workbook.close()
        return self.stream.getvalue()


class Sheets:
    """The steps of a result, each written when first used, as formulas of earlier sheets.

    Parameters
    ----------
    result : such as a trace or a head
    book : the workbook
    """

    def __init__(self, result: Result, book: Book) -> None:
        self.run, self.book = result._run.fork(), book
        self.values_by_path: dict[str, Any] = {}
        self.path = result.path
        # Of a part of the model, such as a head, the inputs are written as numbers.
        self.inputs = {f"{result.path}.X", f"{result.path}.mask"} if result.path else set()

    def value(self, path: str) -> Any:
        """A step: cells, or a value that isn't an array."""
        if path == "rows_of_W_E":  # the same parameter, read by rows
            path = "W_E"
        if path not in self.values_by_path:
            self.values_by_path[path] = self._compute(path)
        return self.values_by_path[path]

    def _compute(self, path: str) -> Any:
        node, book = self.run.graph[path], self.book
        step = node.step
        if self._is_number(path, node):
            value = self.run.value(path)
            heading = path.rpartition(".")[2] + (", edited" if self.run.is_edited(path) else "")
        else:
            inputs = [self.value(need) for need in node.needs]
            book.step, book.axes = self._name(path), step.axes
            value = step.equation(*inputs)
            heading = f"{step.name} = {self.run.graph.formulas.get(step.name, step.formula)}"
        if step.equation is equations.identity and not isinstance(value, np.ndarray):
            return value
        if isinstance(value, Cells):
            # Cells of an earlier sheet, such as W_Q of W_QKV, get no sheet, except rows for tokens.
            is_part = value.addresses is not None and not step.has_rows_for_tokens
            return value if is_part else book.put(self._name(path), heading, value, step.axes)
        if isinstance(value, np.ndarray | float):
            numbers = Cells(book, np.asarray(value))
            return book.put(self._name(path), heading, numbers, step.axes)
        return value

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
    book = _book_of(result)
    sheets = Sheets(result, book)
    for name in result._table_steps:
        sheets.value(result._path_of(name))
    write_atomically(path, book.file_content())


def write_model(trace: Trace, path: FilePath) -> None:
    """Write a whole forward pass up to the next token, see `Trace.to_xlsx`."""
    T = len(trace.ids)
    if T > MAX_TOKENS:
        raise InvalidValueError(
            f"a workbook of the whole model supports at most {MAX_TOKENS} tokens; the text has "
            f"{T}. {ONE_HEAD}"
        )
    book = _book_of(trace)
    sheets = Sheets(trace, book)
    # Row labels are formulas too, so that they change with the ids: the sheet of ids looks up
    # symbols in the labels of W_E; later sheets refer to the labels of the sheet of ids.
    symbols = book.row_labels(sheets.value("W_E"))
    book.token_formulas = [f"INDEX({symbols},B{FIRST_ROW + 1 + n}+1)" for n in range(T)]
    ids = sheets.value("ids")
    book.token_formulas = [book.reference(address - NEXT_COLUMN) for address in ids.addresses]
    logits = sheets.value("next_logits")
    book.step, book.axes = "probabilities", "vocab"
    probabilities: Any = equations.softmax(logits)
    cells = book.put("probabilities", "softmax(next_logits)", probabilities, "vocab")
    line = book.lines(cells).item().text
    best = f"INDEX({book.row_labels(cells)},MATCH(MAX({line}),{line},0))"
    write_atomically(path, book.file_content((best, label(trace.next_tokens(1)[0].symbol))))


def _book_of(result: Result) -> Book:
    if result.derivative_of:
        raise InvalidValueError(
            f"{result.title} can't be written as formulas. Write the trace itself"
        )
    if result.tokens_before:
        raise InvalidValueError(
            "a trace with cached keys can't be written as formulas. Trace the whole text"
        )
    return Book(result)


def _write_label(
    sheet: Any, row: int, column: int, text: str, formula: str, cell_format: Any
) -> None:
    if formula:
        sheet.write_formula(row, column, f"={formula}", cell_format, text)
    elif text:
        sheet.write_string(row, column, text, cell_format)


def _name(address: int) -> str:
    name: str = xl_rowcol_to_cell(*divmod(address, NEXT_ROW))
    return name


def _literal(number: Any) -> str:
    text = repr(MINUS_INFINITY if number == -np.inf else float(number))
    return text.removesuffix(".0").upper()


def _spacing(addresses: AnyArray) -> int | None:
    """The distance between neighbours if each row of addresses is contiguous on a sheet."""
    distances = np.unique(np.diff(addresses))
    if not distances.size:
        return NEXT_COLUMN
    distance = int(distances[0])
    return distance if distances.size == 1 and distance in (NEXT_COLUMN, NEXT_ROW) else None
