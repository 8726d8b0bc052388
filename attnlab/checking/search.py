"""The search for mistakes that produce a user's numbers.

Candidates are mutants of the equations between the steps that agree and the first that differs.
"""

from __future__ import annotations

import ast
import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, cached_property, partial
from typing import Any, NamedTuple

import numpy as np

from attnlab import equations as eq
from attnlab.checking.comparison import (
    ERRORS,
    MAX_REMAINING,
    Submission,
    in_run,
    numbers_at,
    path_in_block,
)
from attnlab.checking.mutants import (
    Code,
    Kind,
    Lines,
    Mutant,
    Other,
    called,
    mutants_of,
    named,
    parsed,
    written_out,
)
from attnlab.checking.orders import scale_in, table_name
from attnlab.checking.relations import (
    GROUPS,
    HINTS,
    Mistake,
    few_differ,
    relations,
    runs_with_mistakes,
    same_numbers,
)
from attnlab.checking.replaced import upstream, with_equation, with_nodes
from attnlab.steps import Run, steps_below
from attnlab.steps.paths import parse
from attnlab.support.messages import Message, joined

# Mistakes are searched for one after another, up to this number.
MAX_MISTAKES = 4

# Equally good mistakes differ less in cost; so many of them are reported.
TIE = 0.15
MAX_TIES = 3

# The most runs in a search, and the most numbers of parameters that all of them use: some seconds.
MAX_RUNS = 4000
MAX_NUMBERS = 1e11

# Mutants of less than this cost are also tried in all steps that are computed alike.
MAX_SHARED = 1.6

# Only mutants of up to this cost explain fewer than `MIN_CELLS` cells.
MAX_COST_OF_FEW = 1.35

NOT_ALL = "To save time, not all candidates were tried."
TANH = "GELU in its tanh form"
LIKEWISE = "{line}, likewise {others}"


class Explanation(NamedTuple):
    """Mistakes that produce the same numbers in the first differing step."""

    mistakes: tuple[Mistake, ...]
    run: Run  # with the first mistake
    unexplained: tuple[str, ...] = ()  # names of later steps that the mistakes don't explain
    cost: float = 0.0


def first_differing(submitted: Sequence[Submission]) -> Submission:
    return next(step for step in submitted if not step.agrees)


# ---- the code of a step, in a run ----------------------------------------------------------------


def number_of(path: str) -> int:
    """The number of a step's block; -1 if it has none."""
    layer = parse(path).layer
    return -1 if layer is None else layer


def name_in_code(path: str, of: str) -> str:
    """The name of a step in the code of another one, the same in every block n.

    X, input, attention.W_O, block.output, final.gain, blocks[n - 1].mid
    """
    number, own, name = number_of(path), number_of(of), parse(path).step
    if name == "n_head" or parse(path).part == parse(of).part:
        return name.replace("n_head", "H")
    if number < 0:
        return f"final.{name}" if path in ("gain", "bias") else path
    name = path_in_block(path)
    if number == own:
        return f"block.{name}" if name == "output" else name
    return f"blocks[n - {own - number}].{name}" if own > number else f"blocks[{number}].{name}"


class StepCode:
    """A step's code in a run, and its mutants."""

    def __init__(self, run: Run, sizes: Mapping[str, Any], path: str) -> None:
        self.run, self.path, self.name = run, path, path.rpartition(".")[2]
        node, self.right = run.graph[path], run.value(path)
        self.equation = node.step.equation
        self.kind = "QKV" if self.name in ("Q", "K", "V") else self.equation  # computed alike
        self.sizes = {**sizes, "T": np.shape(self.right)[-2:][0]}
        self.values = self.sizes | {"equation": self.equation}
        self.paths: dict[str, str] = {}
        self.others = self.other_steps()
        arguments = [self.argument(need) for need in node.needs]
        self.code = self.written(called("equation", arguments))

    def argument(self, need: str) -> ast.expr:
        """A step that the equation needs, by its name, which gets its value; numbers as code."""
        path, graph = need, self.run.graph
        while graph[path].step.equation is eq.identity and not path.endswith(".input"):
            path = graph[path].needs[0]  # another name of a step; a block's input keeps its own
        step, name = graph[path].step, name_in_code(path, self.path)
        if not step.axes and step.equation:
            arguments = [self.argument(x) for x in graph[path].needs]
            return called(step.equation.__name__, arguments)
        self.values[name], self.paths[name] = self.run.value(path), path
        return named(name)

    def written(self, expression: ast.expr, **names: ast.expr) -> Code:
        """The code of an expression, in which other expressions stand for some names."""
        lines: Lines = []
        line = written_out(expression, names, self.values, lines)
        return Code([*lines, (self.name, line)])

    def other_steps(self) -> dict[str, Other]:
        """What may stand in another step's place: none that follows from this one."""
        graph, number = self.run.graph, number_of(self.path)
        last = graph.n_layer - 1 if number < 0 else number
        paths = [
            path.replace("#", str(n))
            for path, _ in steps_below(graph.root)
            for n in ([*{0, max(last - 1, 0), last}] if "blocks.#" in path else [0])
            if "heads.#" not in path
        ]
        follows, found = Run.changing(self.run, [self.path]).depends, dict[str, Other]()
        for path in paths:
            step, block = graph[path].step, number_of(path)
            is_parameter = not step.has_rows_for_tokens
            is_name = step.equation is eq.identity and path != f"blocks.{number}.input"
            if follows(path) or is_name or path in ("rows_of_W_E", "next_logits"):
                continue
            value = self.run.value(path)
            if isinstance(value, np.ndarray):
                part = parse(path).part
                distance = 0 if part == parse(self.path).part else 1 if block == number else 2
                name = name_in_code(path, self.path)
                found[name] = Other(part, step.name, distance, is_parameter, not step.infinite)
                self.values[name], self.paths[name] = value, path
        return found

    @cached_property
    def mutants(self) -> list[Mutant]:
        """The mutants by their cost; none if batch axes come before those of the code."""
        try:
            values = self.code.evaluated(self.values)
        except ERRORS:
            return []
        kinds = [(n, Kind(np.shape(x), np.asarray(x).dtype.kind)) for n, x in values.items()]
        return mutants_of(self.code, tuple(kinds), tuple(self.others.items()))

    @cached_property
    def rounding(self) -> Any:
        """Differences of float32 numbers that count as none."""
        size = np.abs(np.where(np.isfinite(self.right), self.right, 0))
        return 1e-6 * size + 1e-7 * size.max(initial=0)

    def differs_from(self, value: Any) -> bool:
        """Whether numbers differ from the right ones, and none is NaN."""
        value = np.asarray(value, np.float32)
        with np.errstate(all="ignore"):
            is_right = (value == self.right) | (np.abs(value - self.right) <= self.rounding)
        return not is_right.all() and not np.isnan(value).any()

    @cached_property
    def by_key(self) -> dict[tuple[Any, ...], Mutant]:
        return {mutant.key: mutant for mutant in reversed(self.mutants)}


def model_sizes(run: Run) -> dict[str, Any]:
    """The sizes and other numbers that code may use by name; some results lack some."""
    prefix = "blocks.0.attention." if "blocks" in run.graph.root._children else ""
    steps = run.graph.class_at(prefix.split(".")[:-1]).steps
    widths = {"Dk": "K", "D": "X"}
    sizes = {x: run.value(prefix + y).shape[-1] for x, y in widths.items() if y in steps}
    sizes |= {"H": run.value(f"{prefix}n_head")} if "n_head" in steps else {}
    return sizes | ({"epsilon": run.value("epsilon")} if "epsilon" in run.graph.root.steps else {})


# ---- the search ----------------------------------------------------------------------------------


class Variant(NamedTuple):
    """A mutant of one step or several."""

    mutants: Mapping[str, Mutant]  # by the step's name in tables, such as attention.Q
    cost: float
    rest: float = 0.0  # the part of the difference that remains with it, if it is known


class Search:
    """The search in one run, for the numbers that a user submitted."""

    def __init__(self, submitted: Sequence[Submission]) -> None:
        self.submitted, self.first = submitted, first_differing(submitted)
        self.run = run = self.first.run
        first, graph = self.first, run.graph
        self.agreeing = [step for step in submitted if step.agrees]
        self.later = [step for step in submitted if not step.agrees and step is not first]
        self.paths_of: dict[str, list[str]] = defaultdict(list)
        numbers = 1  # of all parameters
        for path in upstream(graph, [step.path for step in submitted]):
            if not graph[path].select:  # a head's part changes with its layer's step
                self.paths_of[table_name(graph, path)].append(path)
                numbers += np.size(run.value(path)) if graph[path].is_input else 0
        self.code = cache(partial(StepCode, run, model_sizes(run)))
        self.steps: dict[str, StepCode] = {}  # by their names in tables, of one block
        for name, paths in self.paths_of.items():
            own = [path for path in paths if number_of(path) == number_of(first.path)]
            path = (own or paths)[-1]
            equation = graph[path].step.equation
            is_computed = getattr(equation, "__module__", "") == eq.__name__
            if is_computed and equation is not eq.identity and np.ndim(run.value(path)):
                self.steps[name] = self.code(path)
        self.runs, self.max_runs = 0, min(MAX_RUNS, MAX_NUMBERS / numbers)

    def run_with(self, variant: Variant, block: int | None) -> Run:
        """The run in which a variant's steps have other code, in one block or in all.

        A LookupError is raised if the block hasn't all of its steps.
        """
        nodes = {}
        for name, mutant in variant.mutants.items():
            paths = [x for x in self.paths_of[name] if block in (None, number_of(x))]
            if not paths:
                raise LookupError(name)
            for path in paths:
                step = self.code(path)
                names = [n for n in mutant.code.names if n not in step.sizes]
                if step.paths.keys() >= {*names}:  # block 0 has none before it
                    equation = partial(call, mutant.code, step.sizes, names)
                    needs = [step.paths[n] for n in names]
                    nodes[path] = with_equation(self.run.graph[path], equation, needs)
        return with_nodes(self.run, nodes)

    def variants(self, names: Sequence[str]) -> Iterator[Variant]:
        """The mutants of these steps, each alone and with the same change in other steps."""
        done: set[Any] = set()
        for name in names:
            if not (step := self.steps.get(name)):
                continue
            seen: dict[bytes, float] = {}
            for mutant in step.mutants:
                try:
                    value = np.asarray(mutant.code.value(step.values))
                except ERRORS:
                    continue
                if value.shape != step.right.shape:
                    continue
                rest = self.rest_of(step.path, value)
                # Of equal numbers, only those of the likeliest mutants.
                cost = seen.setdefault(value.astype(np.float32).tobytes(), mutant.cost)
                if mutant.cost <= cost + TIE and step.differs_from(value):
                    yield Variant({name: mutant}, mutant.cost, rest)
                if rest > MAX_REMAINING and len(names) == 1:
                    continue
                for others in self.shared(name, mutant) if mutant.cost < MAX_SHARED else ():
                    if (key := (*sorted(others), mutant.key)) not in done:
                        done.add(key)
                        yield Variant(others, mutant.cost)
        for sentence, texts in ((x, texts) for x, groups in GROUPS.items() for texts in groups):
            steps = {name: self.steps[name] for name in texts if name in self.steps}
            is_some = len({*texts.values()}) == 1 or len(steps) == len(texts)
            if is_some and not steps.keys().isdisjoint(names):
                yield Variant({n: group_mutant(x, texts[n], sentence) for n, x in steps.items()}, 1)

    def rest_of(self, path: str, value: Any) -> float:
        """What remains with a value of the first differing step, or of its layer."""
        node = self.run.graph[self.first.path]
        if node.select and path == node.layer_step:
            value = node.part_of(value, self.run.value(node.n_head))
        elif path != self.first.path:
            return 0.0
        return self.first.remaining_with(np.atleast_1d(value))

    def shared(self, name: str, mutant: Mutant) -> Iterator[dict[str, Mutant]]:
        """The same change in all steps that are computed alike, in blocks, or in the same part."""
        part, kind, key = name.rpartition(".")[0], self.steps[name].kind, mutant.key
        alike = {x: step.by_key for x, step in self.steps.items() if step.kind is kind}
        same = {x: mutants[key] for x, mutants in alike.items() if key in mutants}
        in_blocks = {x: other for x, other in same.items() if number_of(self.paths_of[x][0]) >= 0}
        in_part = {x: other for x, other in same.items() if x.rpartition(".")[0] == part}
        yield from (group for group in (in_part, in_blocks, same) if len(group) > 1)

    def explained_by(self, variants: Sequence[Variant], block: int | None) -> Iterator[Explanation]:
        """Explanations by variants of one block, or of all, given the likeliest variants first.

        After one that explains all steps, only equally good ones are tried.
        """
        # A few numbers may agree by chance.
        most = MAX_COST_OF_FEW if few_differ(self.first) else math.inf
        # A change of earlier blocks, too, changes what a later block gets.
        is_local = block is not None or number_of(self.first.path) <= 0
        for variant in variants:
            if variant.cost > most or self.runs >= self.max_runs:
                return
            if is_local and variant.rest > MAX_REMAINING:
                continue
            try:
                run = self.run_with(variant, block)
                left = self.left_by(run)
            except ERRORS:
                continue
            self.runs += 1
            if left is not None:
                yield Explanation((self.mistake(variant),), run, left, variant.cost)
                most = most if left else min(most, variant.cost + TIE)

    def left_by(self, run: Run) -> tuple[str, ...] | None:
        """The later steps that differ from a run's; None if it hasn't the user's other numbers."""
        if self.first.remaining_with(numbers_at(run, self.first.path)) > MAX_REMAINING:
            return None
        left = tuple(step.name for step in in_run(self.submitted, run) if not step.agrees)
        return left if {*left} <= {step.name for step in self.later} else None

    def mistake(self, variant: Variant) -> Mistake:
        """What to say about a variant."""
        (name, mutant), *others = variant.mutants.items()
        step = self.steps[name]
        formula = Message("; ".join(map(mutant.code.shown, mutant.changed)))
        if others:
            formula = Message(LIKEWISE, line=formula, others=", ".join(x for x, _ in others))
        right = tuple(step.code.shown(n) for n in mutant.changed if n < len(step.code.lines))
        hint: str = mutant.message()
        if more := next((x for code, x in HINTS.items() if re.search(code, formula)), ""):
            activation = self.run.graph.formulas.get("activation", Message(TANH))
            values = {"scale": scale_in(self.run), "activation": activation, **step.sizes}
            hint = joined(hint, Message(more, **values))
        return Mistake(formula, hint, right, name)

    def explanations(self) -> list[Explanation]:
        """What produces the user's numbers: alternatives."""
        graph, first = self.run.graph, self.first
        numbers = first.nearest
        if numbers.dtype.kind == "f" and (not numbers.any() or np.isinf(numbers).all()):
            return []  # an array that was never filled, or that no code of a learner's produces
        left = tuple(step.name for step in self.later)
        if places := [*same_numbers(self.run, first)]:  # another index is likelier than code
            return [Explanation((mistake,), self.run, left) for mistake in places]
        agreeing = {step.path for step in self.agreeing}
        agreeing |= {graph[path].layer_step for path in agreeing if graph[path].select}
        found = [
            Explanation((mistake,), run, unexplained, 1.0)
            for mistake, run in runs_with_mistakes(self.run, self.submitted)
            if (unexplained := self.left_by(run)) is not None
        ]
        blocks = {number_of(step.path) for step in (first, *self.later)}
        for stop_at in (agreeing, set[str]()):
            paths = upstream(graph, [first.path], stop_at)[::-1]
            names = [*dict.fromkeys(table_name(graph, path) for path in paths)]
            variants = sorted(self.variants(names), key=lambda variant: variant.cost)
            # Numbers of one block are usually computed from its right input.
            for block in (*blocks, None) if len(blocks) == 1 and min(blocks) >= 0 else (None,):
                if all(explanation.unexplained for explanation in found):
                    found += self.explained_by(variants, block)
            if found or not agreeing:
                break
        if not found:
            step = self.steps.get(table_name(graph, first.path))
            others = {name: step.values[name] for name in step.others} if step else {}
            mistakes = relations(first, others, step.code.names if step else [])
            found = [Explanation((mistake,), self.run) for mistake in mistakes]
        return found


def group_mutant(step: StepCode, text: str, sentence: str) -> Mutant:
    """A step computed by other code; in its text, x is the first name of the right code."""
    names = {name.replace(".", "_"): named(name) for name in step.paths}
    code = step.written(parsed(text), **names, x=named(step.code.names[0]))
    return Mutant(code, (len(code.lines) - 1,), 1.0, partial(Message, sentence), (text,))


def call(code: Code, sizes: Mapping[str, Any], names: Sequence[str], *values: Any) -> Any:
    """The value of code, given those of names."""
    return code.value({**sizes, **dict(zip(names, values, strict=True))})


def form_of(formula: str) -> tuple[str, ...]:
    """What the same sums have in common, such as a + (b + a) and a + b + a."""
    return tuple(sorted(re.findall(r"[\w.]+|[^\w\s()]", formula)))


def explain(submitted: Sequence[Submission], notes: list[str]) -> list[Explanation]:
    """The mistakes that explain the numbers, one after another; [] if none is known.

    A note is appended to `notes` if not all candidates were tried. If a mistake leaves steps
    unexplained, the search is repeated in the run with that mistake.
    """
    explanations: list[Explanation] = []
    while len(explanations) < MAX_MISTAKES and not all(step.agrees for step in submitted):
        search = Search(submitted)
        found = search.explanations()
        if not found:
            if search.runs >= search.max_runs:
                notes.append(Message(NOT_ALL))
            break
        # Those that leave the fewest later steps unexplained, the likeliest of them.
        found.sort(key=lambda explanation: (len(explanation.unexplained), explanation.cost))
        best = found[0]
        equal = [x for x in found if len(x.unexplained) == len(best.unexplained)]
        ties = {x.mistakes[0].formula: x.mistakes[0] for x in equal if x.cost <= best.cost + TIE}
        forms = {form_of(formula): mistake for formula, mistake in reversed(ties.items())}
        explanations.append(best._replace(mistakes=tuple([*forms.values()][: -MAX_TIES - 1 : -1])))
        if not best.unexplained or best.run is search.run:
            break
        submitted = in_run(submitted, best.run)
    return explanations
