"""Evaluate the formulas that explain one number of a step, and compare with the stored number.

`lines_of` returns the lines; `attnlab.views.explanations` declares them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np

from attnlab.errors import DisagreementError
from attnlab.support.messages import Message
from attnlab.views.explanations import EXPLANATIONS, Explained, Formula
from attnlab.views.formulas import CONSTANTS, OPERATIONS, Rounded, Tree, leaves, parse, write
from attnlab.views.places import number_in_words, position_in_words
from attnlab.views.shown import Result, axis_of
from attnlab.views.terms import Line, Parts, Table, Term, printed

# Sums of up to this many products, or other terms, are written in full; for longer ones, only the
# largest are.
PRODUCTS_WHOLE, TERMS_WHOLE, TERMS_SHOWN = 12, 64, 8

# Allowed differences from the stored number: in units of `Rounded.bound`, and relative to it. Both
# are too small to be printed.
NOISE, RELATIVE = 8.0, 1e-5

# Steps that are computed in blocks of rows for long texts, which may change rounding.
IN_BLOCKS = ("raw_scores", "scores", "masked_scores", "weights")


@dataclass(frozen=True, eq=False)
class StepNumber:
    """One number of a step, or a row of them if the index has a slice.

    Attributes
    ----------
    result, name : the step
    index : into the step's array
    equation : computes the step; None if it is given
    needs : path and value of each parameter of the equation
    stored : the number
    computed : the equation's result, which differs if the step is edited
    numbers : what is printed, unrounded
    """

    result: Result
    name: str
    index: tuple[Any, ...]
    equation: Callable[..., Any] | None
    needs: Mapping[str, tuple[str, Any]]
    stored: Any
    computed: Any
    numbers: dict[str, Any] = field(default_factory=dict)
    results: dict[str, Rounded] = field(default_factory=dict)

    @classmethod
    def of(cls, result: Result, name: str, index: tuple[Any, ...]) -> StepNumber:
        equation, needs = result.computation_of(name)
        value = getattr(result, name)
        computed = result.unedited(name) if result.is_edited(name) else value
        stored, computed = (array[index] if index else array for array in (value, computed))
        return cls(result, name, index, equation, needs, stored, computed)

    @property
    def path(self) -> str:
        return f"{self.result.path}.{self.name}".lstrip(".")

    @property
    def explained(self) -> Explained | None:
        """Its explanation; None if it is given, or only copied from another step."""
        found = EXPLANATIONS.get(self.equation) if self.equation else None
        return found[self.needs["activation"][1]] if isinstance(found, dict) else found

    # ---- names in formulas -----------------------------------------------------------------------

    @cached_property
    def places(self) -> dict[str, Any]:
        """Its row and column in its inputs."""
        names = ("row", "column")[-len(self.index) :] if self.index else ()
        places = dict(zip(names, self.index, strict=True))
        return places | {"row": places["row"] - self.rows_cached} if self.rows_cached else places

    @property
    def rows_cached(self) -> int:
        """The number of rows of K or V that come from the cache."""
        is_extended = self.name in ("K", "V") and "x" in self.needs
        return int(self.result.tokens_before) if is_extended else 0

    def name_in_formula(self, parameter: str) -> str:
        """A parameter's name in the step's formula."""
        path, value = self.needs[parameter]
        name = path.rpartition(".")[2].removeprefix("rows_of_")
        if name == "memory" and value is self.result.X:
            return "X"
        return name

    def index_of(self, tree: Tree) -> tuple[Any, ...]:
        """The index in a formula, such as [row, :]."""
        _, parameter, *places = tree
        return tuple(
            slice(None)
            if place == ":"
            else self.places[place]
            if isinstance(place, str)
            else int(self.found(place))
            if isinstance(place, tuple)
            else place % len(self.needs[parameter][1])
            for place in places
        )

    def found(self, tree: Tree) -> Any:
        """The numbers at a place in a formula."""
        if isinstance(tree, str):
            return self.needs[tree][1]
        value, index = self.needs[tree[1]][1], self.index_of(tree)
        if not isinstance(value, np.ndarray):  # reads single rows from disk
            return value[np.array(index[:1])][0][index[1:]]
        return value[index]

    def axis_of(self, tree: Tree) -> str:
        """The axis that `:` stands for in a formula."""
        place, _, name = self.needs[tree[1]][0].rpartition(".")
        if place != self.result.path or name not in self.result.steps:
            return ""
        axes: list[str] = self.result.axes_of(name).split()
        return str(axes[tree.index(":") - len(tree)])

    # ---- computing -------------------------------------------------------------------------------

    def present(self, tree: Tree) -> Tree:
        """A formula without absent parameters; None if nothing is left."""
        match tree:
            case str() | ("at", *_):
                name = tree if isinstance(tree, str) else tree[1]
                is_absent = name in self.needs and self.needs[name][1] is None
                return None if is_absent else tree
            case ("if", str(condition), yes, no):
                return self.present(yes if self.needs[condition][1] else no)
            case (operation, *operands) if operation != "if":
                kept = [one for one in map(self.present, operands) if one is not None]
                if len(kept) < len(operands):
                    return kept[0] if kept else None
                return (operation, *kept)
        return tree

    def value(self, tree: Tree) -> Rounded:
        """Evaluate a formula."""
        match tree:
            case str() if tree in CONSTANTS:
                return Rounded(CONSTANTS[tree][0])
            case str() if tree in self.results:
                return self.results[tree]
            case str() | ("at", *_):
                return Rounded(np.asarray(self.found(tree), np.float64), self.bound_of(tree))
            case ("if", condition, yes, no):
                chosen = self.found(condition)
                first, second = self.value(yes), self.value(no)
                return Rounded(
                    np.where(chosen, first.value, second.value), np.where(chosen, first.bound, 0.0)
                )
            case (operation, *operands):
                return OPERATIONS[operation](*map(self.value, operands))
        return Rounded(np.float64(tree))

    def bound_of(self, tree: Tree) -> Any:
        """A bound on the difference from the numbers used, if computed in blocks of rows."""
        if isinstance(tree, str) or not getattr(self.result, "by_rows", False):
            return 0.0
        if tree[1] not in IN_BLOCKS or self.needs[tree[1]][0] != self.path_of(tree[1]):
            return 0.0
        return StepNumber.of(self.result, tree[1], self.index_of(tree)).expected.bound

    def path_of(self, name: str) -> str:
        """The path of another step of the same result."""
        return f"{self.result.path}.{name}".lstrip(".")

    @cached_property
    def worked(self) -> list[tuple[Formula, Tree, Rounded]]:
        """The formulas that compute something, with their results.

        A formula that is reduced to a single name, for example without dropout, is skipped.
        """
        assert self.explained is not None
        done: list[tuple[Formula, Tree, Rounded]] = []
        names: dict[str, Tree] = {}
        *_, last = self.explained.lines
        with np.errstate(all="ignore"):
            for line in self.explained.lines:
                tree = self.present(replaced(parse(line.formula), names))
                if done and tree == done[-1][0].name:
                    continue
                if line is not last and tree in leaves(tree):
                    names[line.name] = tree
                    continue
                value = self.value(1 if tree is None else tree)
                self.results[line.name] = value
                done.append((line, tree, value))
        return done

    @property
    def expected(self) -> Rounded:
        """The result of its formulas."""
        return self.worked[-1][2]

    def checked(self, expected: Rounded) -> Any:
        """The equation's result, checked against the formulas' result."""
        reached, computed = expected.value, np.asarray(self.computed, np.float64)
        dtype = np.asarray(self.stored).dtype
        eps = float(np.finfo(dtype).eps) if dtype.kind == "f" else float(np.finfo(float).eps)
        with np.errstate(all="ignore"):
            allowed = NOISE * eps * expected.bound + RELATIVE * np.abs(computed)
            agrees = (reached == computed) | (np.abs(reached - computed) <= allowed)
        if np.all(agrees):
            return self.computed
        if self.follows_an_edit:
            self.numbers["unedited"] = {self.name: plain(reached)}
            return reached
        which, name = int(np.argmin(agrees)), self.name
        if np.ndim(agrees):
            name += f" of {number_in_words(self.result, 'Tk', which, np.size(agrees))}"
        raise DisagreementError(
            f"{name} is stored as {printed(np.atleast_1d(computed)[which])}, but recomputing it "
            f"gives {np.atleast_1d(reached)[which]:.6g}"
        )

    @property
    def follows_an_edit(self) -> bool:
        """Whether an edit of the array that contains this step changes it."""
        place, _, _ = self.result.path.partition(".heads.")
        names = {self.name, "QKV"} if self.name in ("Q", "K", "V") else {self.name}
        edited = set(self.result.edited_steps)
        return not edited.isdisjoint(f"{place}.{name}".lstrip(".") for name in names)

    # ---- writing ---------------------------------------------------------------------------------

    def located(self, tree: Tree) -> str:
        """A place in NumPy's notation, such as X[7, 3], or X[7, i] for a row."""
        if isinstance(tree, str):
            return self.name_in_formula(tree) if tree in self.needs else tree
        letter = "key" if ":" in tree and self.axis_of(tree) == "Tk" else "i"
        index = [letter if isinstance(one, slice) else one for one in self.index_of(tree)]
        return located(self.name_in_formula(tree[1]), index)

    def term(self, tree: Tree, *, is_named: bool = False) -> Term:
        """A number in a formula; numbers of steps are recorded in `numbers`."""
        match tree:
            case ("max", row):
                (largest,) = self.terms(row, [int(self.found(row).argmax())])
                self.numbers["maximum"] = largest.value
                return largest
            case str() if tree in self.results:
                return Term(float(self.results[tree].value), tree)
            case (operation, *_) if operation != "at":
                return Term(plain(self.value(tree).value))
        number = self.found(tree)
        value = number.item() if isinstance(number, np.generic | np.ndarray) else number
        name = self.located(tree)
        self.numbers[name.partition("[")[0]] = value
        path = self.needs[tree if isinstance(tree, str) else tree[1]][0].replace("rows_of_", "")
        index = () if isinstance(tree, str) else self.index_of(tree)
        return Term(value, name, path, index, is_named)

    def terms(self, row: Tree, picked: Sequence[int] | None = None) -> list[Term]:
        """The numbers of a row, or the `picked` ones, as terms."""
        index, path = self.index_of(row), self.needs[row[1]][0]
        name, numbers = self.name_in_formula(row[1]), np.asarray(self.found(row), np.float64)
        terms = []
        for i in range(len(numbers)) if picked is None else picked:
            at = tuple(i if isinstance(one, slice) else one for one in index)
            terms.append(Term(numbers[i].item(), located(name, at), path, at))
        return terms

    def in_numbers(self, tree: Tree) -> Parts:
        """A formula with its numbers, before its result; a single number is written by name."""
        if tree is None:
            return ["1 = "]
        if tree in CONSTANTS:
            return []
        if tree in leaves(tree):
            return [self.term(tree, is_named=True), " = "]
        if tree[0] == "if":
            _, condition, yes, no = tree
            is_so = self.term(condition).value
            prefix = Message("{place} is {is_so}: ", place=self.located(condition), is_so=is_so)
            return [prefix, *self.in_numbers(yes if is_so else no)]
        return [*write(tree, self.term, lambda term: term.is_negative), " = "]

    def in_names(self, tree: Tree) -> str:
        """A formula with the names of its numbers."""
        return "".join(write(tree, self.located, lambda _: False))

    def result_of(self, computed: Any) -> Parts:
        """The equation's result, and the value that an edit replaced it with."""
        computed, stored = plain(computed), plain(self.stored)
        term = Term(computed, located(self.name, self.index), self.path, self.index)
        if computed == stored:
            return [term]
        return [
            term,
            Message(
                "; edited here: {stored} instead of {made}",
                stored=Term(stored),
                made=Term(computed),
            ),
        ]


def plain(value: Any) -> Any:
    """A value for JSON: Python numbers, lists, or a function's name."""
    if callable(value):
        return value.__name__
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value


def located(name: str, index: Sequence[Any]) -> str:
    """A number's place in NumPy's notation, such as X[7, 3]."""
    return f"{name}[{', '.join(map(str, index))}]" if index else name


def replaced(tree: Tree, names: Mapping[str, Tree]) -> Tree:
    """Substitute names in a formula."""
    if isinstance(tree, tuple):
        return tuple(replaced(one, names) for one in tree)
    return names.get(tree, tree) if isinstance(tree, str) else tree


# ---- lines ---------------------------------------------------------------------------------------


def lines_of(one: StepNumber, *, whole: bool = False) -> list[Line | Table]:
    """The lines that explain a number.

    Parameters
    ----------
    whole : whether to show all products in a table
    """
    is_step = one.name in one.result.steps
    heading = one.result.heading_of(one.name) if is_step else f"{one.name} = softmax(logits)"
    if one.equation is None or callable(one.stored):
        if callable(one.stored):
            return [Line(heading, [Message("a function of one number")])]
        return [Line(heading, given(one))]
    if one.rows_cached and one.index[0] < one.rows_cached:
        prefix = Message("from the cache: ")
        return [Line(heading, [prefix, *given(one)])]
    if one.explained is None:
        return [Line(heading, moved(one))]
    lines: list[Line | Table] = []
    for formula, tree, value in one.worked:
        is_last = tree is one.worked[-1][1]
        computed = one.checked(value) if is_last else value.value
        result = one.result_of(computed) if is_last else [Term(float(computed), formula.name)]
        if formula.name and not is_last:
            one.numbers[formula.name] = float(computed)
        lines.append(line_of(one, formula, tree, result, heading, whole))
    return lines


def given(one: StepNumber) -> Parts:
    """The parts of a line without computation."""
    return [f"{located(one.name, one.index)} = ", *one.result_of(one.computed)]


def moved(one: StepNumber) -> Parts:
    """The parts of a line for a number copied from another step."""
    (_, (path, source)), *others = one.needs.items()
    shape = np.shape(source)
    assert one.equation is not None
    move = partial(one.equation, **{name: value for name, (_, value) in others})
    # Apply the equation to the indices of each axis, to find where the number comes from.
    indices = (np.broadcast_to(axis, shape) for axis in np.ogrid[tuple(map(slice, shape))])
    where = tuple(int(move(axis)[one.index]) for axis in indices)
    number = source[where] if where else source
    place, _, name = path.rpartition(".")
    origin = located(name if place == one.result.path else path, where)
    # If an edit of the containing array replaced this number, use the edited one.
    computed = one.computed if number == one.stored else one.checked(Rounded(np.float64(number)))
    result = one.result_of(computed)
    return [Term(plain(number), origin, path, where, is_named=True), " = ", *result]


def line_of(
    one: StepNumber, formula: Formula, tree: Tree, result: Parts, heading: str, whole: bool
) -> Line | Table:
    """One formula with its numbers and result."""
    values = {name: named(one, parse(text)) for name, text in formula.where.items()}
    match tree:
        case ("sum", ("*", first, second)):
            return products(one, heading, first, second, None, result, whole)
        case ("+", ("sum", ("*", first, second)), bias):
            return products(one, heading, first, second, bias, result, whole)
        case ("sum", terms):
            parts, counts = added(one, terms)
            return Line(Message(formula.heading, **counts), [*parts, " = ", *result])
    parts = one.in_numbers(tree)
    note = [" (", Message(formula.note, **values), ")"] if formula.note else []
    if not formula.heading:
        names = one.in_names(tree)
        return Line(f"{formula.name} = {names}", [*parts, *result, *note])
    return Line(Message(formula.heading, heading=heading, **values), [*parts, *result, *note])


def named(one: StepNumber, tree: Tree) -> str | Message:
    """The value of a name in a heading: a place or a count."""
    match tree:
        case ("len", _):
            return str(one.value(tree).value)
        case ("max", row):
            numbers = one.found(row)
            return number_in_words(
                one.result, one.axis_of(row), int(numbers.argmax()), len(numbers)
            )
    return one.located(tree)


def added(one: StepNumber, tree: Tree) -> tuple[Parts, dict[str, Any]]:
    """The terms of a sum, or the largest of many; and counts for the heading."""
    terms = one.value(tree).value
    (row, *_) = leaves(tree)
    terms = terms[np.isfinite(one.found(row))]
    written, which = terms, Message("")
    if len(terms) > TERMS_WHOLE:
        order = np.argsort(-terms, kind="stable")
        written = [*terms[order[:TERMS_SHOWN]], terms[order[TERMS_SHOWN:]].sum()]
        which = Message(", the {count} largest and the others together", count=TERMS_SHOWN)
    parts: list[Any] = []
    for number in written:
        parts += [" + ", Term(float(number))] if parts else [Term(float(number))]
    return parts, {"n": len(terms), "which": which}


def products(
    one: StepNumber,
    heading: str,
    first: Tree,
    second: Tree,
    bias: Tree | None,
    result: Parts,
    whole: bool,
) -> Table:
    """A sum of products as a table: all, or the largest of many and the sum of the rest."""
    columns = [one.terms(first), one.terms(second)]
    x, w = (np.array([term.value for term in column]) for column in columns)
    numbers = x * w
    of_both = {
        one.name_in_formula(first[1]): x.tolist(),
        one.name_in_formula(second[1]): w.tolist(),
    }
    one.numbers.update(of_both, products=numbers.tolist())
    count, order = len(numbers), np.arange(len(numbers))
    if count > PRODUCTS_WHOLE and not whole:
        order = np.argsort(-np.abs(numbers), kind="stable")[:TERMS_SHOWN]
    is_by_key = one.axis_of(first) == "Tk"
    keys = axis_of(one.result, "Tk", count)
    names = (
        [*map(position_in_words, keys.positions, keys.labels)]
        if is_by_key
        else [*map(str, range(count))]
    )
    rows: list[Parts] = [
        [
            Message("key") if is_by_key else "i",
            *map(one.located, (first, second)),
            Message("product"),
        ]
    ]
    for i in order.tolist():
        rows.append([names[i], columns[0][i], columns[1][i], Term(float(numbers[i]))])
    feet: list[Parts] = []
    others = np.delete(numbers, order)
    if len(others):
        words = Message("{others} others", others=len(others))
        feet.append([words, "", "", Term(float(others.sum()))])
    if bias:
        feet.append([one.located(bias), "", "", one.term(bias)])
    computed, *edited = result
    feet.append([Message("sum"), "", "", computed])
    if edited:
        feet.append([Message("edited here"), "", "", Term(plain(one.stored))])
    template = "{heading}: the {all} products"
    if len(others):
        template = "{heading}: the {all} products, the {count} largest first"
    title = Message(template, heading=heading, all=count, count=len(order))
    return Table(title, rows, feet, in_halves=whole)
