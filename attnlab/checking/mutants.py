"""Mistakes, generated: a step's equation as a learner writes it, and one change of it.

    X = layer_norm(x, gain, bias, epsilon)                       the equation, as it is declared
    X = centred / np.sqrt(variance + epsilon) * gain + bias      its code: calls are written out
    X = centred / np.sqrt(variance + epsilon) * gain             one mutant: `+ bias` is missing

The rules know kinds of expressions, never a step's name. A cost is low for common mistakes. Code
also uses the model's sizes: T tokens, H heads, D columns of the residual stream, Dk of a key.
"""

from __future__ import annotations

import ast
import copy
import inspect
import math
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache, partial
from itertools import combinations, product
from typing import Any, TypeAlias

import numpy as np

from attnlab import equations as eq
from attnlab.erf import erf
from attnlab.support.messages import Message

# ---- code ----------------------------------------------------------------------------------------

# Names and their expressions; the last one is the step's.
Lines: TypeAlias = list[tuple[str, ast.expr]]

SCALE = "(scale(K) if divide_by_sqrt_d else 1.0)"

# Equations that a learner writes in another way, which gives the same numbers.
WRITTEN = {
    "mean": "x.mean(axis=-1, keepdims=True)",
    "sigmoid": "1.0 / (1.0 + np.exp(-x))",
    "transpose": "x.swapaxes(-2, -1)",
    "split_heads": "x.reshape(T, n_head, -1).swapaxes(-3, -2)",
    "merge_heads": "x.swapaxes(-3, -2).reshape(T, -1)",
    "scale": "math.sqrt(Dk)",
    "scale_of_layer": f"{SCALE} * layer_number if layer_number else {SCALE}",
    "masked_scores": "np.where(mask, biased(scores, score_bias), -np.inf)",
    "gelu": "0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))",
    "exact_gelu": "0.5 * x * (1.0 + erf(x / math.sqrt(2.0)))",
}

# One matrix for Q, K and V, and its bias, as GPT-2's own code has them.
W_QKV = "np.concatenate([W_Q, W_K, W_V], axis=-1)"
B_QKV = "np.concatenate([b_Q, b_K, b_V])"

# Code as it is shown.
SHOWN = {W_QKV: "W_QKV", B_QKV: "b_QKV", "math.": "np.", "rows_of_W_E": "W_E"}

# What code may use beside steps and sizes.
NAMESPACE: dict[str, Any] = {"np": np, "math": math, "erf": erf, "softmax": eq.softmax}
NAMESPACE |= {"gelu": eq.gelu, "normalised": eq.normalised, "bool": bool, "int": int, "abs": abs}


@dataclass(frozen=True, eq=False)
class Code:
    """The code of a step."""

    lines: Lines

    @cached_property
    def names(self) -> list[str]:
        """The names that the lines use, in order, without those of earlier lines."""
        own = NAMESPACE.keys() | {name for name, _ in self.lines[:-1]}
        return [name for name in dict.fromkeys(names_in(self.lines)) if name not in own]

    @cached_property
    def compiled(self) -> list[tuple[str, Any]]:
        return [(name, compiled(line)) for name, line in self.lines]

    def evaluated(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The values of all lines, and those of the names that are given."""
        names = dict(values)
        with np.errstate(all="ignore"):
            for name, line in self.compiled:
                names[name] = eval(line, NAMESPACE, names)
        return names

    def value(self, values: Mapping[str, Any]) -> Any:
        """The step's value, given those of the names.

        If it has NaN, masked scores are a large number instead of infinity, as in working code.
        """
        value = self.evaluated(values)[self.lines[-1][0]]
        if np.isnan(value).any():
            finite = {n: np.maximum(x, -1e9) for n, x in values.items() if np.ndim(x) > 1}
            value = self.evaluated({**values, **finite})[self.lines[-1][0]]
        return value

    def shown(self, number: int) -> str:
        """A line as text."""
        name, line = self.lines[number]
        return f"{name} = {shown(line)}"


def names_in(lines: Lines) -> Iterator[str]:
    for _, line in lines:
        yield from (node.id for node in ast.walk(line) if isinstance(node, ast.Name))


@lru_cache(maxsize=1000)  # mutants share the lines that don't change
def compiled(expression: ast.expr) -> Any:
    return compile(ast.fix_missing_locations(ast.Expression(expression)), "<code>", "eval")


def parsed(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def shown(expression: ast.AST) -> str:
    """An expression as a learner writes it."""
    text = ast.unparse(expression)
    for old, new in SHOWN.items():
        text = text.replace(old, new)
    return text


def rewritten(node: Any, change: Callable[[Any], Any]) -> Any:
    """A tree in which `change` replaces nodes, unless it returns None; other nodes are shared."""
    if isinstance(node, list):
        return [rewritten(part, change) for part in node]
    if not isinstance(node, ast.AST):
        return node
    if (new := change(node)) is not None:
        return new
    old = vars(node)
    parts = {name: rewritten(old[name], change) for name in node._fields if name in old}
    if all(part == old[name] for name, part in parts.items()):
        return node
    result = copy.copy(node)
    vars(result).update(parts)
    return result


@cache
def definition(function: Callable[..., Any]) -> tuple[list[str], Lines]:
    """An equation's parameters and lines; the last line has no name."""
    source = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    assert isinstance(source, ast.FunctionDef)
    parameters = [parameter.arg for parameter in source.args.args]
    if function.__name__ in WRITTEN:
        return parameters, [("", parsed(WRITTEN[function.__name__]))]
    lines: Lines = []
    for statement in source.body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            lines.append((statement.targets[0].id, statement.value))
        elif isinstance(statement, ast.Return) and statement.value:
            lines.append(("", statement.value))
    return parameters, lines


class WritingOut(ast.NodeTransformer):
    """Replaces parameters by arguments, and calls of equations by their bodies.

    Lines before the value are appended to `lines`. `values` decide what is known, such as whether a
    bias is None.
    """

    def __init__(
        self, arguments: Mapping[str, Any], values: Mapping[str, Any], lines: Lines
    ) -> None:
        self.arguments, self.values, self.lines = {**arguments}, values, lines

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return copy.deepcopy(self.arguments.get(node.id, node))

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        is_true = eval(compiled(self.visit(node.test)), NAMESPACE, dict(self.values))
        return self.visit(node.body if is_true else node.orelse)

    def visit_Call(self, node: ast.Call) -> Any:
        self.generic_visit(node)
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        function = self.values.get(name) or vars(eq).get(name)
        if getattr(function, "__module__", "") != eq.__name__:
            return node
        parameters, body = definition(function)
        inside = WritingOut(dict(zip(parameters, node.args, strict=True)), self.values, self.lines)
        for name, line in body[:-1]:
            self.lines.append((name, inside.visit(copy.deepcopy(line))))
            inside.arguments[name] = named(name)
        return inside.visit(copy.deepcopy(body[-1][1]))


# ---- sentences -----------------------------------------------------------------------------------

REPLACED = "{new} stands where {old} belongs."
MISSING = "{old} is missing."
EXTRA = "{new} has no place here."
EXCHANGED = "{old} are exchanged."
AXIS = "It is taken over another axis than the last, -1."
OTHERS = "The parameters are those of {new}."

# ---- the rules -----------------------------------------------------------------------------------

# By sentence ("" for one made from the code): patterns, and what may take their place, each with
# its cost. In patterns, single letters stand for expressions: k for a number, x for an array of
# activations, W for a matrix of parameters, v for a vector of them, n for indices, s for a whole
# step, u for a step of one array, a, b, c and m for anything.
RULES = {
    "": """
        a + b => 0.9 a | 1.1 b | 1.0 a - b | 2.0 a * b
        a - b => 0.9 a | 1.1 b | 1.0 a + b | 1.2 b - a
        a * b => 0.9 a | 1.1 b | 1.0 a / b | 2.0 a + b
        a / b => 0.9 a | 1.1 b | 1.0 a * b | 1.2 b / a | 2.0 a - b
        a / k => 1.0 a / math.sqrt(Dk) | 1.0 a / math.sqrt(D) | 1.0 a / math.sqrt(T)
        a / k => 1.0 a / math.sqrt(H) | 1.0 a / Dk | 1.0 a / D | 1.0 a / T | 1.0 a / H | 1.1 a / 8.0
        a / k => 1.1 a / k / 2 | 1.1 2 * a / k
        a @ b => 0.9 a | 1.1 b
        a**3 => 1.0 a**2 | 1.0 a
        np.exp(a) => 1.0 a | 1.3 np.exp2(a)
        np.exp(-a) => 1.2 np.exp(a)
        np.sqrt(a) => 1.0 a | 1.3 np.sqrt(np.sqrt(a))
        math.sqrt(k) => 1.0 k
        np.square(a) => 1.3 a | 1.3 abs(a)
        np.tanh(a) => 1.0 a | 1.3 erf(a) | 1.3 1.0 / (1.0 + np.exp(-a))
        erf(a) => 1.0 a | 1.3 np.tanh(a)
        math.pi => 1.4 1.0
        a.sum(axis=-1, keepdims=True) => 1.3 a.mean(axis=-1, keepdims=True)
        a.sum(axis=-1, keepdims=True) => 1.3 a.max(axis=-1, keepdims=True)
        a.mean(axis=-1, keepdims=True) => 1.3 a.sum(axis=-1, keepdims=True)
        np.where(m, a, b) => 0.9 a | 1.2 np.where(m, b, a) | 1.4 np.where(m, a, -a)
        n => 1.3 n + 1 | 1.3 n - 1 | 1.3 0 * n | 1.3 n[::-1]
        n => 1.3 np.roll(n, 1) | 1.3 np.roll(n, -1)
        v => 1.4 1.0 + v | 1.8 H * v
        x => 1.35 x * math.sqrt(D) | 1.9 x / H | 1.9 x / math.sqrt(Dk)
        x => 2.0 softmax(x) | 2.0 normalised(x, 1e-5) | 2.0 np.tril(x) | 2.0 np.roll(x, 1, axis=-2)
        x => 2.0 np.flip(x, axis=-1) | 2.0 np.flip(x, axis=-2) | 2.0 np.flip(x, axis=-3)
        x => 2.1 x[..., :1, :] + 0 * x | 2.1 x[..., :1, :, :] + 0 * x
        u => 1.0 np.maximum(u, 0.0) | 1.0 gelu(u) | 1.0 np.tanh(u)
        u => 1.0 u / (1.0 + np.exp(-u)) | 1.0 np.where(u > 0, u, 0.01 * u)
        u => 1.0 0.5 * u * (1.0 + erf(u / math.sqrt(2.0))) | 1.0 u / (1.0 + np.exp(-1.702 * u))
        s => 1.0 softmax(s) | 1.2 s.swapaxes(-2, -1) | 1.2 np.log(softmax(s)) | 1.3 -s
        s => 1.3 s * math.sqrt(D) | 1.3 s / math.sqrt(D) | 1.4 s / math.sqrt(Dk) | 1.5 s / Dk
        s => 1.6 2 * s | 1.6 s / 2
        s => 1.5 normalised(s, 1e-5) | 1.5 gelu(s) | 1.5 np.maximum(s, 0.0) | 1.4 np.log(s)
        s => 1.6 np.exp(s) | 1.6 np.tanh(s) | 1.6 np.tril(s) | 1.6 s.astype(int) | 1.7 s**2
        s => 1.6 s / np.linalg.norm(s, axis=-1, keepdims=True)
        s => 1.6 s / s.sum(axis=-1, keepdims=True) | 1.6 s - s.max(axis=-1, keepdims=True)
        s => 1.6 s - s.mean(axis=-1, keepdims=True)
        s => 1.8 np.roll(s, 1, axis=-1) | 1.8 np.roll(s, 1, axis=-2) | 1.8 np.roll(s, 1, axis=-3)
        s => 1.8 np.flip(s, axis=-1) | 1.8 np.flip(s, axis=-2) | 1.8 np.flip(s, axis=-3)""",
    "A factor of {old} is transposed, or its transpose is missing.": """
        a @ b => 1.0 a.swapaxes(-2, -1) @ b | 1.0 a @ b.swapaxes(-2, -1) | 1.2 b @ a
        a @ b => 1.0 a.swapaxes(-2, -1) @ b.swapaxes(-2, -1) | 1.0 (a @ b).swapaxes(-2, -1)
        a.swapaxes(-2, -1) => 1.0 a | 1.0 a.reshape(*a.shape[:-2], a.shape[-1], a.shape[-2])""",
    (
        "A matrix is read as if it were transposed. GPT-2 stores its matrices for `X @ W`, "
        "nn.Linear for `X @ W.T`: drop the transpose, or transpose the matrices that you load."
    ): """
        a @ W => 0.84 a @ W.T
        W => 1.05 W.reshape(W.shape[::-1]).T""",
    "A bracket is in another place.": """
        a + k * b => 1.2 (a + k) * b
        a * b + c => 1.2 a * (b + c)
        a @ b + c => 1.2 (a + c) @ b
        a / b - c => 1.2 a / (b - c)
        a * (b + c) => 1.2 a * b + c | 1.2 b + a * c
        (b + c) / a => 1.2 b + c / a
        (b - c) / a => 1.2 b - c / a
        np.sqrt(a + b) => 1.0 np.sqrt(a) + b""",
    "keepdims=True is missing: what belongs to rows is applied to columns.": """
        a.max(axis=-1, keepdims=True) => 1.0 a.max(axis=-1)[..., None, :]
        a.sum(axis=-1, keepdims=True) => 1.0 a.sum(axis=-1)[..., None, :]
        a.mean(axis=-1, keepdims=True) => 1.0 a.mean(axis=-1)[..., None, :]""",
    "The variance is over D - 1, not D: use np.var(x), torch.var(x, unbiased=False).": """
        a.mean(axis=-1, keepdims=True) => 0.95 a.sum(axis=-1, keepdims=True) / (a.shape[-1] - 1)""",
    (
        "A reshape mixes tokens or heads. Reshape (T, H·Dh) to (T, H, Dh), then swap the first two "
        "axes; back, swap them first."
    ): """
        a.reshape(T, H, -1).swapaxes(-3, -2) => 0.9 a.reshape(H, T, -1)
        a.reshape(T, H, -1).swapaxes(-3, -2) => 1.0 a.reshape(T, -1, H).transpose(2, 0, 1)
        a.swapaxes(-3, -2).reshape(T, -1) => 0.9 a.reshape(T, -1)
        a.swapaxes(-3, -2).reshape(T, -1) => 1.0 a.transpose(1, 2, 0).reshape(T, -1)""",
    # Where a query has no key, the softmax of -inf would be NaN.
    "The mask hides other scores. A query may attend to itself and to earlier tokens.": """
        np.where(m, a, b) => 1.0 np.where(m.swapaxes(-2, -1), a, b) | 1.0 np.where(~m, a, -1e9)
        np.where(m, a, b) => 1.0 np.where(np.tri(T, k=1, dtype=bool), a, b)
        np.where(m, a, b) => 1.0 np.where(np.tri(T, k=-1, dtype=bool), a, -1e9)
        np.where(m, a, b) => 1.0 np.where(np.tri(T, dtype=bool), a, b)
        np.where(m, a, b) => 1.2 np.where(np.eye(T, dtype=bool), a, b)
        np.where(m, a, b) => 1.3 np.where(~np.eye(T, k=1, dtype=bool), a, b)
        np.where(m, a, b) => 1.3 np.where(m & ~np.eye(T, k=-1, dtype=bool), a, b)
        np.where(m, a, b) => 1.3 np.where(m & (np.arange(T) > 0), a, -1e9)
        np.where(m, a, b) => 1.5 np.where(m[..., ::-1], a, b)
        np.where(m, a, b) => 1.0 a + m | 1.2 a * m | 1.2 a - m
        np.where(m, a, b) => 1.1 a - 1e9 * m | 1.1 a - 1e4 * m""",
    "Hidden scores must be -inf: the exp of other numbers isn't 0.": """
        -np.inf => 1.0 0.0 | 1.0 1.0 | 1.0 -1.0 | 1.0 -2.0 | 1.0 -5.0 | 1.0 -10.0 | 1.0 -20.0
        -np.inf => 1.0 -50.0 | 1.0 -100.0 | 1.0 -1000.0 | 1.0 1e4 | 1.0 1e9
        np.where(m, a, b) => 1.2 a - 1.0 * ~m | 1.2 a - 10.0 * ~m | 1.2 a - 100.0 * ~m""",
}

# What may take the place of an expression: cost, sentence, and the rule by name.
Rewrite: TypeAlias = tuple[ast.expr, float, str, str]


@cache
def rules_for(kind: str, letter: str = "") -> list[tuple[ast.expr, str, str, float]]:
    """The rules whose pattern is such a node: pattern, sentence, template and cost."""
    found = []
    for sentence, lines in RULES.items():
        for line in lines.strip().splitlines():
            pattern, _, replacements = line.strip().partition(" => ")
            node = template_of(pattern)
            if type(node).__name__ == kind and letter in ("", pattern):
                for replacement in replacements.split(" | "):
                    cost, _, template = replacement.partition(" ")
                    found.append((node, sentence, template, float(cost)))
    return found


@cache
def template_of(text: str) -> ast.expr:
    return parsed(text)


def filled(template: str, **parts: ast.expr) -> ast.expr:
    """A template's expression, in which other expressions stand for its letters."""

    def part(node: Any) -> Any:
        return parts.get(node.id) if isinstance(node, ast.Name) else None

    new: ast.expr = rewritten(template_of(template), part)
    return new


def named(name: str) -> ast.expr:
    return ast.Name(name, ast.Load())  # also for names with dots


# ---- mutants -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Mutant:
    """Code with a change."""

    code: Code
    changed: tuple[int, ...]  # the indices of the changed lines
    cost: float
    message: Callable[[], Message]  # says what the change is
    key: tuple[Any, ...]  # the same for the same change of another step's code


@dataclass(frozen=True, eq=False)
class Other:
    """A step or parameter that a mistake may use in the place of another."""

    path: str
    value: Any
    distance: int  # 0 in the same part, 1 in the same block, 2 elsewhere
    is_parameter: bool


def message_of(sentence: str, old_code: ast.expr, new_code: ast.expr, step: str) -> Message:
    """A sentence with the old and the new code; without one, what the code shows.

    If the old code is a whole step, it is shown by the step's name.
    """
    old, new = shown(old_code), shown(new_code)
    if step:
        old, new = step, new.replace(old, step)
    if not sentence and (old.startswith(new) or old.endswith(new)):
        return Message(MISSING, old=old.replace(new, "", 1).strip())
    if not sentence and new.startswith(old):
        return Message(EXTRA, new=new.replace(old, "", 1).strip())
    return Message(sentence or REPLACED, old=old, new=new)


class Rules:
    """The rewrites of a step's code.

    `values` are those of all names in the code, `others` what may stand in the place of a name.
    """

    def __init__(self, values: Mapping[str, Any], others: Mapping[str, Other]) -> None:
        self.values, self.others = values, others
        self.operands: Sequence[str] = ()

    def mutants(self, code: Code) -> Iterator[Mutant]:
        self.operands = code.names
        yield from self.of_lines(code)
        for number, (step, line) in enumerate(code.lines):
            nodes = [node for node in ast.walk(line) if isinstance(node, ast.expr)]
            found = [
                (place, node, rewrite)
                for place, node in enumerate(nodes)
                for rewrite in self.of_node(node)
            ]
            if number == len(code.lines) - 1:
                found += [(-1, line, rewrite) for rewrite in self.of_step(step, line)]
            for place, old, (new, cost, sentence, rule) in found:
                lines = [*code.lines]
                lines[number] = step, replaced(line, old, new)
                message = partial(message_of, sentence, old, new, step if place < 0 else "")
                yield Mutant(Code(lines), (number,), cost, message, (number, place, rule))

    # ---- one expression ----

    def of_node(self, node: ast.expr) -> Iterator[Rewrite]:
        for pattern, sentence, template, cost in rules_for(type(node).__name__):
            parts: dict[str, ast.expr] = {}
            if self.fits(pattern, node, parts):
                yield filled(template, **parts), cost, sentence, template
        if isinstance(node, ast.Name) and np.ndim(self.values.get(node.id, 0)):
            yield from self.of_operand(node.id)
        numbers: dict[float, float] = {}
        if isinstance(node, ast.Name) and node.id == "epsilon":
            numbers = dict.fromkeys((0.0, *(10.0**-n for n in range(1, 13))), 1.0)
        elif isinstance(node, ast.Constant) and isinstance(node.value, float):
            numbers = other_numbers(node.value)
        for number, cost in numbers.items():
            yield ast.Constant(number), cost, "", f"{number}"

    def of_operand(self, name: str) -> Iterator[Rewrite]:
        """Another step or parameter in the place of one, or added to it."""
        value = self.values[name]
        for new, other in self.others.items():
            cost, role = self.cost_and_role(new)
            if new == name or other.value.dtype.kind != value.dtype.kind:
                continue
            if other.value.shape == value.shape:
                yield named(new), cost, "", f"other {role}"
            elif other.is_parameter and other.value.shape == value.shape[::-1]:
                yield filled("o.swapaxes(-2, -1)", o=named(new)), cost, "", f"other {role}"
            if is_addable(other.value, value) and not other.is_parameter:
                added = filled("a + o", a=named(name), o=named(new))
                yield added, cost + 1, "", f"plus {role}"

    def of_step(self, step: str, line: ast.expr) -> Iterator[Rewrite]:
        """What may be done to a step as a whole: a function of it, another step added."""
        value = self.values[step]
        for _, sentence, template, cost in rules_for("Name", "s"):
            yield filled(template, s=line), cost, sentence, template
        arrays = [name for name in self.operands if np.ndim(self.values.get(name, 0))]
        if len(arrays) == 1 and self.values[arrays[0]].shape == value.shape:
            for _, sentence, template, cost in rules_for("Name", "u"):
                yield filled(template, u=named(arrays[0])), cost, sentence, template
        for name, other in self.others.items():
            node, (cost, role) = named(name), self.cost_and_role(name)
            if is_like(other.value, value):
                yield node, cost if role.startswith("operand") else cost + 0.5, "", f"is {role}"
            if is_addable(other.value, value):
                for sign in "+-*":
                    yield filled(f"s {sign} o", s=line, o=node), cost + 0.9, "", f"{sign} {role}"

    def fits(self, pattern: Any, node: Any, parts: dict[str, ast.expr]) -> bool:
        """Whether a node has the form of a pattern; its letters' expressions are put in `parts`."""
        if isinstance(pattern, ast.Name) and len(pattern.id) == 1 and pattern.id not in "TDH":
            parts[pattern.id] = node
            return self.is_of_kind(pattern.id, node)
        if type(pattern) is not type(node):
            return False
        if isinstance(pattern, list):
            pairs = zip(pattern, node, strict=False)
            return len(pattern) == len(node) and all(self.fits(x, y, parts) for x, y in pairs)
        if not isinstance(pattern, ast.AST):
            return bool(pattern == node)
        return all(self.fits(x, getattr(node, name), parts) for name, x in ast.iter_fields(pattern))

    def is_of_kind(self, letter: str, node: ast.expr) -> bool:
        """Whether a letter of a pattern may stand for a node."""
        if letter == "k":  # no array
            return not any(np.ndim(self.values.get(name, 0)) for name in names_in([("", node)]))
        if letter not in "xWvnsu":
            return True
        value = self.values.get(node.id) if isinstance(node, ast.Name) else None
        if not isinstance(value, np.ndarray) or not isinstance(node, ast.Name):
            return False
        is_parameter = node.id in self.others and self.others[node.id].is_parameter
        kind = "W" if is_parameter and value.ndim == 2 else "v" if is_parameter else "x"
        return letter == {"i": "n", "f": kind}.get(value.dtype.kind)

    def cost_and_role(self, name: str) -> tuple[float, str]:
        """The cost of a name, and what it is in all code of the same form."""
        if name in self.operands:
            return 1.06, f"operand {self.operands.index(name)}"
        return 1.06 + self.others[name].distance / 2, name.rpartition(".")[2]

    # ---- all lines ----

    def of_lines(self, code: Code) -> Iterator[Mutant]:
        """The same change in all lines: other names, another axis; an axis also in one line."""
        own = [name for name in code.names if np.ndim(self.values.get(name, 0))]
        used = [*names_in(code.lines)]
        for a, b in combinations(own, 2):
            if is_like(self.values[a], self.values[b]):
                yield renamed(code, {a: b, b: a}, 1.2, partial(Message, EXCHANGED, old=f"{a}, {b}"))
        for old, (new, other) in product(own, self.others.items()):
            if used.count(old) > 1 and new != old and is_like(other.value, self.values[old]):
                message = partial(Message, REPLACED, old=old, new=new)
                yield renamed(code, {old: new}, self.cost_and_role(new)[0], message)
        mine = [n for n in own if n in self.others and self.others[n].is_parameter]
        parts = {x.path.rpartition(".")[0] for x in self.others.values() if x.is_parameter}
        for part in sorted(parts) if len(mine) > 1 else ():  # the parameters of another part
            paths = {
                f"{part}.{self.others[n].path.rpartition('.')[2]}".lstrip("."): n for n in mine
            }
            names = {paths[x.path]: new for new, x in self.others.items() if x.path in paths}
            pairs = [(self.values[n], self.values[new]) for n, new in names.items()]
            if len(names) == len(mine) and all(is_like(*pair) for pair in pairs):
                yield renamed(code, names, 0.95, partial(Message, OTHERS, new=part or "final"))
        for axes in ("-2", "-3", "(-2, -1)", "(-3, -2, -1)"):

            def over(node: Any, axes: str = axes) -> Any:
                is_axis = isinstance(node, ast.keyword) and node.arg == "axis"
                return ast.keyword("axis", parsed(axes)) if is_axis else None

            for numbers in ((*range(len(code.lines)),), *((n,) for n in range(len(code.lines)))):
                yield in_lines(
                    code, over, numbers, 0.9, partial(Message, AXIS), ("axis", axes, numbers)
                )


def renamed(code: Code, names: Mapping[str, str], cost: float, message: Any) -> Mutant:
    """The code with other names."""

    def other_name(node: Any) -> Any:
        is_old = isinstance(node, ast.Name) and node.id in names
        return named(names[node.id]) if is_old else None

    key = "lines", *sorted((code.names.index(x), y.rpartition(".")[2]) for x, y in names.items())
    return in_lines(code, other_name, range(len(code.lines)), cost, message, key)


def in_lines(
    code: Code, change: Any, numbers: Sequence[int], cost: float, message: Any, key: Any
) -> Mutant:
    """The code with the same change in some lines."""
    lines = [*code.lines]
    for number in numbers:
        lines[number] = lines[number][0], rewritten(lines[number][1], change)
    changed = tuple(n for n in numbers if lines[n][1] is not code.lines[n][1])
    return Mutant(Code(lines), changed, cost, message, key)


def replaced(line: ast.expr, old: ast.expr, new: ast.expr) -> ast.expr:
    """A line with another expression in the place of one."""
    result: ast.expr = rewritten(line, lambda node: new if node is old else None)
    return result


def is_like(a: Any, b: Any) -> bool:
    """Whether one array can take another's place."""
    return bool(a.shape == b.shape and a.dtype.kind == b.dtype.kind)


def is_addable(a: Any, b: Any) -> bool:
    """Whether a matrix has the shape of another one's rows and columns."""
    return 2 <= a.ndim <= b.ndim and a.shape == b.shape[b.ndim - a.ndim :] and np.isfinite(a).all()


def other_numbers(value: float) -> dict[float, float]:
    """What a person may write for a number, with its cost."""
    others = dict.fromkeys((2 * value, value / 2, 0.0, 1.0), 1.4)
    others |= dict.fromkeys((-value, 10 * value, value / 10, value**2, value**0.5), 1.3)
    digits = f"{value}" if value % 1 else ""
    others |= {float(digits[:n] + digits[n + 1 :]): 1.3 for n in range(2, len(digits))}
    others.pop(value, None)
    return others
