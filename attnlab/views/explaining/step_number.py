"""One number of a step: how it is computed, verified, and written as lines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np

from attnlab.errors import DisagreementError
from attnlab.steps import Result
from attnlab.steps.labels import axis_of
from attnlab.support.messages import Message
from attnlab.views.explaining.derivations import Formula, computes, derivation
from attnlab.views.explaining.explanation import Line, Parts, Term, TermTable, format_number
from attnlab.views.explaining.formulas import (
    CONSTANTS,
    OPERATIONS,
    Indexed,
    Leaf,
    Rounded,
    Tree,
    is_leaf,
    leaves,
    write,
)
from attnlab.views.labelled_step import index_label

# A sum is written in full if it has at most MAX_FULL_PRODUCTS products or MAX_FULL_TERMS other
# terms. Of a longer sum, only the TERMS_SHOWN largest terms are written.
MAX_FULL_PRODUCTS, MAX_FULL_TERMS, TERMS_SHOWN = 12, 64, 8

# The allowed difference from the stored number is NOISE times `Rounded.bound` plus RELATIVE times
# the number. Both are too small to be seen in the printed digits.
NOISE, RELATIVE = 8.0, 1e-5


@dataclass(frozen=True, eq=False)
class StepNumber:
    """One number of a step, or a row of numbers if the index has a slice."""

    result: Result
    name: str
    index: tuple[Any, ...]
    equation: Callable[..., Any] | None  # None for inputs and parameters
    needs: Mapping[str, tuple[str, Any]]  # path and value of each parameter of the equation
    stored: Any  # the number
    computed: Any  # the equation's result, which differs from `stored` if the step is edited
    numbers: dict[str, Any] = field(default_factory=dict)  # the printed numbers by name, unrounded
    # The results of the formulas evaluated so far, by name
    results: dict[str, Rounded] = field(default_factory=dict)

    @classmethod
    def of(cls, result: Result, name: str, index: tuple[Any, ...]) -> StepNumber:
        equation, needs = result._computation_of(name)
        value = getattr(result, name)
        computed = result.unedited(name) if result.is_edited(name) else value
        stored, computed = (array[index] if index else array for array in (value, computed))
        return cls(result, name, index, equation, needs, stored, computed)

    @property
    def path(self) -> str:
        return f"{self.result._prefix}{self.name}"

    # ---- names in formulas -----------------------------------------------------------------------

    @cached_property
    def indices(self) -> dict[str, Any]:
        """The values of `row` and `column` in formulas."""
        names = ("row", "column")[-len(self.index) :] if self.index else ()  # a vector has columns
        indices: dict[str, Any] = dict(zip(names, self.index, strict=True))
        if self.rows_cached:
            indices["row"] -= self.rows_cached
        return indices

    @property
    def rows_cached(self) -> int:
        """The number of rows of K or V from the cache; the rows of affine(x, W, b) follow."""
        is_extended = self.name in ("K", "V") and "x" in self.needs
        return int(self.result.tokens_before) if is_extended else 0

    def name_in_formula(self, parameter: str) -> str:
        """What the step's formula calls one of the equation's parameters."""
        path, value = self.needs[parameter]
        name = path.rpartition(".")[2].removeprefix("rows_of_")
        if name == "memory" and value is getattr(self.result, "X", None):  # self-attention
            return "X"
        return name

    def index_of(self, tree: Indexed) -> tuple[Any, ...]:
        """The index of an indexed array in a formula, such as [row, :]."""
        _, parameter, *subscripts = tree
        return tuple(self.subscript(part, parameter) for part in subscripts)

    def subscript(self, part: Tree, parameter: str) -> Any:
        match part:
            case ":":
                return slice(None)
            case str():
                return self.indices[part]
            case tuple():  # an indexed array, such as ids[row]
                return int(self.numbers_at(part))
        return part % len(self.needs[parameter][1])  # a constant, such as -1 for the last row

    def numbers_at(self, tree: Leaf) -> Any:
        """The value of a name, or of an indexed array."""
        if isinstance(tree, str):
            return self.needs[tree][1]
        value, index = self.needs[tree[1]][1], self.index_of(tree)
        if not isinstance(value, np.ndarray):  # an embedding on disk: read only this row
            return value[np.array(index[:1])][0][index[1:]]
        return value[index]

    def axis_of(self, tree: Indexed) -> str:
        """The name of the axis of the index `:`."""
        parent_path, _, name = self.needs[tree[1]][0].rpartition(".")
        if parent_path != self.result.path or name not in self.result.steps:
            return ""
        axes: list[str] = self.result.axes_of(name).split()
        from_end = tree.index(":") - len(tree)  # the tree begins with "at" and the name
        return str(axes[from_end])

    # ---- computing -------------------------------------------------------------------------------

    def value(self, tree: Tree) -> Rounded:
        match tree:
            case str() if tree in CONSTANTS:
                return Rounded(np.float64(CONSTANTS[tree][0]))
            case str() if tree in self.results:
                return self.results[tree]
            case str() | ("at", *_):
                return Rounded(np.asarray(self.numbers_at(tree), np.float64), self.bound_of(tree))
            case ("if", condition, yes, no):
                is_true = self.numbers_at(condition)
                first, second = self.value(yes), self.value(no)
                return Rounded(
                    np.where(is_true, first.value, second.value),
                    np.where(is_true, first.bound, 0.0),
                )
            case tuple():
                operation, *operands = tree
                return OPERATIONS[operation](*map(self.value, operands))
        return Rounded(np.float64(tree))

    def bound_of(self, tree: Leaf) -> Any:
        """The rounding error of an input that is computed in blocks of rows; 0 for other inputs."""
        if isinstance(tree, str) or not self.result._run.is_long:
            return 0.0
        if self.needs[tree[1]][0] != f"{self.result._prefix}{tree[1]}":  # a step of another result
            return 0.0
        # In a long text, steps with a number for each query and key are computed in blocks of rows,
        # which may round differently than the whole array does.
        is_by_key = self.result.axes_of(tree[1]) == "Tq Tk"
        if not is_by_key or not computes(self.result.steps[tree[1]].equation):
            return 0.0
        return StepNumber.of(self.result, tree[1], self.index_of(tree)).expected.bound

    @cached_property
    def evaluations(self) -> list[tuple[Formula, Rounded]]:
        """The formulas that compute the number, with their results."""
        assert self.equation is not None
        values = {name: value for name, (_, value) in self.needs.items()}
        evaluations: list[tuple[Formula, Rounded]] = []
        with np.errstate(all="ignore"):
            for formula in derivation(self.equation, values):
                value = self.results[formula.name] = self.value(formula.tree)
                evaluations.append((formula, value))
        return evaluations

    @property
    def expected(self) -> Rounded:
        return self.evaluations[-1][1]

    def verify(self, expected: Rounded) -> Any:
        """Return the equation's result if the formulas' result agrees; else raise.

        If an edited array of the layer contains a head's step, return the formulas' result.
        """
        result, computed = expected.value, np.asarray(self.computed, np.float64)
        dtype = np.asarray(self.stored).dtype
        eps = float(np.finfo(dtype).eps) if dtype.kind == "f" else float(np.finfo(float).eps)
        with np.errstate(all="ignore"):
            allowed = NOISE * eps * expected.bound + RELATIVE * np.abs(computed)
            agrees = (result == computed) | (np.abs(result - computed) <= allowed)
        if np.all(agrees):
            return self.computed
        if self.is_in_edited_array:
            self.numbers["unedited"] = {self.name: as_json(result)}
            return result
        first, name = int(np.argmin(agrees)), self.name  # argmin finds the first False
        if np.ndim(agrees):
            name += f" of {index_label(self.result, 'Tk', first, np.size(agrees))}"
        raise DisagreementError(
            f"{name} is stored as {format_number(np.atleast_1d(computed)[first])}, but "
            f"recomputing it gives {np.atleast_1d(result)[first]:.6g}"
        )

    @property
    def is_in_edited_array(self) -> bool:
        """Whether the array that contains this step is edited."""
        layer_path, _, _ = self.result.path.partition(".heads.")
        return f"{layer_path}.{self.name}".lstrip(".") in self.result.edited_steps

    # ---- writing ---------------------------------------------------------------------------------

    def name_of(self, tree: Leaf) -> str:
        """The name of a number in NumPy's notation, such as X[7, 3]; X[7, i] stands for a row."""
        if isinstance(tree, str):
            return self.name_in_formula(tree) if tree in self.needs else tree
        letter = "key" if ":" in tree and self.axis_of(tree) == "Tk" else "i"
        index = [letter if isinstance(part, slice) else part for part in self.index_of(tree)]
        return element_name(self.name_in_formula(tree[1]), index)

    def term(self, tree: Leaf, *, is_named: bool = False) -> Term:
        """Make a term of a number in a formula; add the numbers of steps to `numbers`."""
        match tree:
            case ("max", row):
                (largest,) = self.terms(row, [int(self.numbers_at(row).argmax())])
                self.numbers["maximum"] = largest.value
                return largest
            case str() if tree in self.results:
                return Term(float(self.results[tree].value), tree)
            case (operation, *_) if operation != "at":
                return Term(as_json(self.value(tree).value))
        number = self.numbers_at(tree)
        value = number.item() if isinstance(number, np.generic | np.ndarray) else number
        name = self.name_of(tree)
        self.numbers[name.partition("[")[0]] = value
        path = self.needs[tree if isinstance(tree, str) else tree[1]][0].replace("rows_of_", "")
        index = () if isinstance(tree, str) else self.index_of(tree)
        return Term(value, name, path, index, is_named)

    def terms(self, row: Indexed, picked: Sequence[int] | None = None) -> list[Term]:
        """The numbers of a row as terms: all numbers, or only at the `picked` indices."""
        index, path = self.index_of(row), self.needs[row[1]][0]
        name, numbers = self.name_in_formula(row[1]), np.asarray(self.numbers_at(row), np.float64)
        terms = []
        for i in range(len(numbers)) if picked is None else picked:
            element = tuple(i if isinstance(part, slice) else part for part in index)
            terms.append(Term(numbers[i].item(), element_name(name, element), path, element))
        return terms

    def in_numbers(self, tree: Tree) -> Parts:
        """A formula with numbers in place of names, then "= ". A single name is kept."""
        if tree in CONSTANTS:
            return []
        if is_leaf(tree):
            return [self.term(tree, is_named=True), " = "]
        if isinstance(tree, tuple) and tree[0] == "if":
            _, condition, yes, no = tree
            value = self.term(condition).value
            prefix = Message("{name} is {value}: ", name=self.name_of(condition), value=value)
            return [prefix, *self.in_numbers(yes if value else no)]
        return [*write(tree, self.term, lambda term: term.is_negative), " = "]

    def result_of(self, computed: Any) -> Parts:
        """The equation's result, and the edited number if there is one."""
        computed, stored = as_json(computed), as_json(self.stored)
        term = Term(computed, element_name(self.name, self.index), self.path, self.index)
        if computed == stored:
            return [term]
        return [
            term,
            Message(
                "; edited here: {stored} instead of {computed}",
                stored=Term(stored),
                computed=Term(computed),
            ),
        ]


def as_json(value: Any) -> Any:
    """A value for JSON: Python numbers, lists, or a function's name."""
    if callable(value):
        return value.__name__
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value


def element_name(name: str, index: Sequence[Any]) -> str:
    """The name of an array's element in NumPy's notation, such as X[7, 3]."""
    return f"{name}[{', '.join(map(str, index))}]" if index else name


# ---- lines ---------------------------------------------------------------------------------------


def lines_of(step: StepNumber, *, all_products: bool = False) -> list[Line | TermTable]:
    """The lines that explain a number. `all_products` lists every product of a long sum."""
    is_step = step.name in step.result.steps
    heading = step.result._heading_of(step.name) if is_step else f"{step.name} = softmax(logits)"
    if callable(step.stored):
        return [Line(heading, [Message("a function of one number")])]
    if step.equation is None:
        return [Line(heading, value_parts(step))]
    if step.rows_cached and step.index[0] < step.rows_cached:
        prefix = Message("from the cache: ")
        return [Line(heading, [prefix, *value_parts(step)])]
    if not computes(step.equation):  # the equation only moves numbers of another step
        return [Line(heading, copy_parts(step))]
    lines: list[Line | TermTable] = []
    for formula, value in step.evaluations:
        is_last = formula is step.evaluations[-1][0]
        computed = step.verify(value) if is_last else value.value
        result = step.result_of(computed) if is_last else [Term(float(computed), formula.name)]
        if formula.name and not is_last:
            step.numbers[formula.name] = float(computed)
        lines.append(line_of(step, formula, result, heading, all_products))
    return lines


def value_parts(step: StepNumber) -> Parts:
    """The parts of a line without computation."""
    return [f"{element_name(step.name, step.index)} = ", *step.result_of(step.computed)]


def copy_parts(step: StepNumber) -> Parts:
    """The parts of a line for a number copied from another step."""
    (_, (path, source)), *other_needs = step.needs.items()
    shape = np.shape(source)
    assert step.equation is not None
    move = partial(step.equation, **{name: value for name, (_, value) in other_needs})
    # The equation moves indices as it moves numbers, which shows where this number comes from.
    indices = (np.broadcast_to(axis, shape) for axis in np.ogrid[tuple(map(slice, shape))])
    index = tuple(int(move(axis)[step.index]) for axis in indices)
    number = source[index] if index else source
    parent_path, _, name = path.rpartition(".")
    origin = element_name(name if parent_path == step.result.path else path, index)
    # The numbers differ if an edit of the array that contains this step replaced the number.
    computed = step.computed if number == step.stored else step.verify(Rounded(np.float64(number)))
    result = step.result_of(computed)
    return [Term(as_json(number), origin, path, index, is_named=True), " = ", *result]


def line_of(
    step: StepNumber, formula: Formula, result: Parts, heading: str, all_products: bool
) -> Line | TermTable:
    """One formula with its numbers and result."""
    values = {name: placeholder(step, tree) for name, tree in formula.where.items()}
    tree = formula.tree
    match tree:
        case ("sum", ("*", first, second)):
            return products(step, heading, first, second, None, result, all_products)
        case ("+", ("sum", ("*", first, second)), bias):
            return products(step, heading, first, second, bias, result, all_products)
        case ("sum", terms):
            parts, counts = sum_terms_of(step, terms)
            return Line(Message(formula.heading, **counts), [*parts, " = ", *result])
    parts = step.in_numbers(tree)
    note = [" (", Message(formula.note, **values), ")"] if formula.note else []
    if not formula.heading:
        names = "".join(write(tree, step.name_of, lambda _: False))  # no name starts with a minus
        return Line(f"{formula.name} = {names}", [*parts, *result, *note])
    return Line(Message(formula.heading, heading=heading, **values), [*parts, *result, *note])


def placeholder(step: StepNumber, tree: Tree) -> str | Message:
    """The text that replaces a name in a heading: a count, an index, or a number's name."""
    match tree:
        case ("len", _):
            return str(step.value(tree).value)
        case ("max", row):
            numbers = step.numbers_at(row)
            return index_label(step.result, step.axis_of(row), int(numbers.argmax()), len(numbers))
    assert is_leaf(tree)
    return step.name_of(tree)


def sum_terms_of(step: StepNumber, tree: Tree) -> tuple[Parts, dict[str, Any]]:
    """The terms of a sum, all or only the largest, and the values for the heading's names."""
    terms = step.value(tree).value
    (row, *_) = leaves(tree)  # such as masked_scores[row, :]
    terms = terms[np.isfinite(step.numbers_at(row))]  # masked keys aren't listed
    shown, note = terms, Message("")
    if len(terms) > MAX_FULL_TERMS:
        order = np.argsort(-terms, kind="stable")
        shown = [*terms[order[:TERMS_SHOWN]], terms[order[TERMS_SHOWN:]].sum()]
        note = Message(", the {count} largest and the others together", count=TERMS_SHOWN)
    parts: list[Any] = []
    for number in shown:
        parts += [" + ", Term(float(number))]
    return parts[1:], {"n": len(terms), "note": note}


def products(
    step: StepNumber,
    heading: str,
    first: Indexed,
    second: Indexed,
    bias: Leaf | None,
    result: Parts,
    all_products: bool,
) -> TermTable:
    """A table of the products in a sum: all, or the largest and the sum of the others."""
    columns = [step.terms(first), step.terms(second)]
    x, w = (np.array([term.value for term in column]) for column in columns)
    numbers = x * w
    step.numbers[step.name_in_formula(first[1])] = x.tolist()
    step.numbers[step.name_in_formula(second[1])] = w.tolist()
    step.numbers["products"] = numbers.tolist()
    count, order = len(numbers), np.arange(len(numbers))
    if count > MAX_FULL_PRODUCTS and not all_products:
        order = np.argsort(-np.abs(numbers), kind="stable")[:TERMS_SHOWN]
    is_by_key = step.axis_of(first) == "Tk"
    keys = axis_of(step.result, "Tk", count)
    names = keys.numbered_labels if is_by_key else [*map(str, range(count))]
    header = [step.name_of(first), step.name_of(second), Message("product")]
    rows: list[Parts] = [[Message("key") if is_by_key else "i", *header]]
    for i in order.tolist():
        rows.append([names[i], columns[0][i], columns[1][i], Term(float(numbers[i]))])
    feet: list[Parts] = []
    rest = np.delete(numbers, order)
    if len(rest):
        words = Message("{others} others", others=len(rest))
        feet.append([words, "", "", Term(float(rest.sum()))])
    if bias:
        feet.append([step.name_of(bias), "", "", step.term(bias)])
    computed, *edited = result
    feet.append([Message("sum"), "", "", computed])
    if edited:
        feet.append([Message("edited here"), "", "", Term(as_json(step.stored))])
    template = "{heading}: the {all} products"
    if len(rest):
        template = "{heading}: the {all} products, the {count} largest first"
    title = Message(template, heading=heading, all=count, count=len(order))
    return TermTable(title, rows, feet)
