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
from typing import Any, NamedTuple, TypeAlias

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
    """The code of a step; code with the same text is equal."""

    lines: Lines

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Code) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    @cached_property
    def text(self) -> tuple[tuple[str, str], ...]:
        return tuple((name, ast.unparse(line)) for name, line in self.lines)

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

        Masked scores are large numbers instead of infinity if the value has NaN, or if a query has
        no key, whose softmax would be NaN. Working code has such numbers.
        """
        value = self.evaluated(values)[self.lines[-1][0]]
        if np.isnan(value).any():
            finite = {n: np.maximum(values[n], -1e9) for n in self.names if np.ndim(values[n]) > 1}
            value = self.evaluated({**values, **finite})[self.lines[-1][0]]
        has_no_key = np.isneginf(np.max(value, axis=-1)).any()
        return np.maximum(value, -1e9) if has_no_key else value

    def shown(self, number: int) -> str:
        """A line as text."""
        name, line = self.lines[number]
        return f"{name} = {shown(line)}"


def names_in(lines: Lines) -> Iterator[str]:
    for _, line in lines:
        yield from (node.id for node in ast.walk(line) if isinstance(node, ast.Name))


@lru_cache(maxsize=1000)  # mutants share the lines that don't change
def compiled(expression: ast.expr) -> Any:
    return compile(ast.Expression(expression), "<code>", "eval")


@cache
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
    if not isinstance(node, ast.expr | ast.keyword):  # such as an operator
        return node
    if (new := change(node)) is not None:
        return new
    old = vars(node)
    parts = {name: rewritten(old[name], change) for name in node._fields if name in old}
    if all(part == old[name] for name, part in parts.items()):
        return node
    return type(node)(**old | parts)


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


def written_out(
    tree: ast.expr, names: Mapping[str, ast.expr], values: Mapping[str, Any], lines: Lines
) -> ast.expr:
    """An expression with others in the place of names, and bodies in the place of equations' calls.

    Lines before the value are appended to `lines`. `values` decide what is known, such as whether a
    bias is None.
    """

    def change(node: Any) -> Any:
        if isinstance(node, ast.Name):
            return copy.deepcopy(names.get(node.id))
        if isinstance(node, ast.IfExp):
            is_true = eval(compiled(rewritten(node.test, change)), NAMESPACE, {**values})
            return rewritten(node.body if is_true else node.orelse, change)
        name = getattr(node.func, "id", "") if isinstance(node, ast.Call) else ""
        function = values.get(name) or vars(eq).get(name)
        if getattr(function, "__module__", "") != eq.__name__:
            return None
        parameters, body = definition(function)
        inside = dict(zip(parameters, rewritten(node.args, change), strict=True))
        for name, line in body[:-1]:
            lines.append((name, written_out(line, inside, values, lines)))
            inside[name] = named(name)
        return written_out(body[-1][1], inside, values, lines)

    result: ast.expr = rewritten(tree, change)
    return result


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
# activations, W for a matrix of parameters, v for a vector of them, n for indices, m for a mask, s
# for a whole step, u for a step of one array, a, b and c for anything.
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
        epsilon => 1.0 0.0 | 1.0 0.1 | 1.0 0.01 | 1.0 0.001 | 1.0 1e-4 | 1.0 1e-5 | 1.0 1e-6
        epsilon => 1.0 1e-7 | 1.0 1e-8 | 1.0 1e-9 | 1.0 1e-10 | 1.0 1e-12
        a.sum(axis=-1, keepdims=True) => 1.3 a.mean(axis=-1, keepdims=True)
        a.mean(axis=-1, keepdims=True) => 1.3 a.sum(axis=-1, keepdims=True)
        np.where(m, a, b) => 0.9 a | 1.4 np.where(m, a, -a)
        n => 1.3 n + 1 | 1.3 n - 1 | 1.3 0 * n | 1.3 n[::-1]
        n => 1.3 np.roll(n, 1) | 1.3 np.roll(n, -1)
        v => 1.4 1.0 + v | 1.8 H * v
        x => 1.35 x * math.sqrt(D) | 1.9 x / H | 1.9 x / math.sqrt(Dk)
        x => 2.0 softmax(x) | 2.0 normalised(x, 1e-5) | 2.0 np.tril(x) | 2.0 np.roll(x, 1, axis=-2)
        x => 2.1 x[..., :1, :] + 0 * x | 2.1 x[..., :1, :, :] + 0 * x | 2.0 np.flip(x, axis=-3)
        u => 1.0 np.maximum(u, 0.0) | 1.0 gelu(u) | 1.0 np.tanh(u)
        u => 1.0 u / (1.0 + np.exp(-u)) | 1.0 np.where(u > 0, u, 0.01 * u)
        u => 1.0 0.5 * u * (1.0 + erf(u / math.sqrt(2.0))) | 1.0 u / (1.0 + np.exp(-1.702 * u))
        s => 1.0 softmax(s) | 1.2 s.swapaxes(-2, -1) | 1.2 np.log(softmax(s)) | 1.3 -s
        s => 1.3 s * math.sqrt(D) | 1.3 s / math.sqrt(D) | 1.4 s / math.sqrt(Dk) | 1.5 s / Dk
        s => 1.5 normalised(s, 1e-5) | 1.5 gelu(s) | 1.5 np.maximum(s, 0.0) | 1.4 np.log(s)
        s => 1.6 np.exp(s) | 1.6 np.tanh(s) | 1.6 np.tril(s) | 1.7 s**2
        s => 1.6 s / np.linalg.norm(s, axis=-1, keepdims=True)
        s => 1.6 s / s.sum(axis=-1, keepdims=True) | 1.6 s - s.max(axis=-1, keepdims=True)
        s => 1.6 s - s.mean(axis=-1, keepdims=True) | 1.6 2 * s | 1.6 s / 2
        s => 1.8 np.roll(s, 1, axis=-1) | 1.8 np.roll(s, 1, axis=-2) | 1.8 np.flip(s, axis=-3)""",
    "A factor of {old} is transposed, or its transpose is missing.": """
        a @ b => 1.0 a.swapaxes(-2, -1) @ b | 1.0 (a @ b).swapaxes(-2, -1) | 1.2 b @ a
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
        a * (b + c) => 1.2 a * b + c | 1.2 b + a * c
        np.sqrt(a + b) => 1.0 np.sqrt(a) + b""",
    "keepdims=True is missing: what belongs to rows is applied to columns.": """
        a.max(axis=-1, keepdims=True) => 1.0 a.max(axis=-1)[..., None, :]
        a.sum(axis=-1, keepdims=True) => 1.0 a.sum(axis=-1)[..., None, :]""",
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
    "The mask hides other scores. A query may attend to itself and to earlier tokens.": """
        m => 1.0 m.swapaxes(-2, -1) | 1.0 ~m | 1.5 m[..., ::-1] | 1.3 m & (np.arange(T) > 0)
        m => 1.0 np.tri(T, dtype=bool) | 1.0 np.tri(T, k=1, dtype=bool)
        m => 1.0 np.tri(T, k=-1, dtype=bool) | 1.3 m & ~np.eye(T, k=-1, dtype=bool)
        m => 1.2 np.eye(T, dtype=bool) | 1.3 ~np.eye(T, k=1, dtype=bool)
        np.where(m, a, b) => 1.0 a + m | 1.2 a - m | 1.1 a - 1e9 * m | 1.1 a - 1e4 * m""",
    "Hidden scores must be -inf: the exp of other numbers isn't 0.": """
        -np.inf => 1.0 0.0 | 1.0 1.0 | 1.0 -1.0 | 1.0 -2.0 | 1.0 -5.0 | 1.0 -10.0 | 1.0 -20.0
        -np.inf => 1.0 -50.0 | 1.0 1e4 | 1.0 1e9
        np.where(m, a, b) => 1.2 a - 1.0 * ~m | 1.2 a - 10.0 * ~m""",
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
            node = parsed(pattern)
            if type(node).__name__ == kind and letter in ("", pattern):
                for replacement in replacements.split(" | "):
                    cost, _, template = replacement.partition(" ")
                    found.append((node, sentence, template, float(cost)))
    return found


def filled(template: str, **parts: ast.expr) -> ast.expr:
    """A template's expression, in which other expressions stand for its letters."""
    new: ast.expr = rewritten(parsed(template), partial(with_names, names=parts))
    return new


def named(name: str) -> ast.expr:
    return ast.Name(name, ast.Load(), lineno=1, col_offset=0)  # also for names with dots


def called(name: str, arguments: list[ast.expr]) -> ast.expr:
    return ast.Call(named(name), arguments, [], lineno=1, col_offset=0)


# ---- mutants -------------------------------------------------------------------------------------


class Mutant(NamedTuple):
    """Code with a change."""

    code: Code
    changed: tuple[int, ...]  # the indices of the changed lines
    cost: float
    message: Callable[[], Message]  # says what the change is
    key: tuple[Any, ...]  # the same for the same change of another step's code


class Kind(NamedTuple):
    """What the rules know of a value."""

    shape: tuple[int, ...]
    dtype: str  # NumPy's kind, such as "f"


class Other(NamedTuple):
    """A step or parameter that a mistake may use in the place of another."""

    part: str  # the path of the result that has it, such as blocks.0.mlp
    role: str  # its name there
    distance: int  # 0 in the same part, 1 in the same block, 2 elsewhere
    is_parameter: bool
    is_finite: bool  # unlike masked scores


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


# Traces of as many tokens share mutants, which are compiled only once.
@lru_cache(maxsize=64)
def mutants_of(
    code: Code, kinds: tuple[tuple[str, Kind], ...], others: tuple[tuple[str, Other], ...]
) -> list[Mutant]:
    """All mutants of a step's code by their cost; their numbers are unknown."""
    return sorted(Rules(code, dict(kinds), dict(others)).mutants(), key=lambda x: x.cost)


class Rules:
    """The rewrites of a step's code.

    `kinds` has all names in the code, `others` what may stand in the place of a name.
    """

    def __init__(self, code: Code, kinds: Mapping[str, Kind], others: Mapping[str, Other]) -> None:
        self.code, self.kinds, self.others = code, kinds, others
        self.arrays = {name for name, kind in kinds.items() if kind.shape}

    def mutants(self) -> Iterator[Mutant]:
        yield from self.of_lines()
        for number, (step, line) in enumerate(self.code.lines):
            nodes = [node for node in ast.walk(line) if isinstance(node, ast.expr)]
            places = [(place, node, self.of_node(node)) for place, node in enumerate(nodes)]
            if number == len(self.code.lines) - 1:
                places.append((-1, line, self.of_step(step, line)))
            for place, old, rewrites in places:
                for new, cost, sentence, rule in rewrites:
                    message = partial(message_of, sentence, old, new, step if place < 0 else "")
                    change = partial(replaced, old=old, new=new)
                    yield self.changed((number,), change, cost, message, (number, place, rule))

    # ---- one expression ----

    def of_node(self, node: ast.expr) -> Iterator[Rewrite]:
        for pattern, sentence, template, cost in rules_for(type(node).__name__):
            parts: dict[str, ast.expr] = {}
            if self.fits(pattern, node, parts):
                yield filled(template, **parts), cost, sentence, template
        if isinstance(node, ast.Name) and node.id in self.arrays:
            yield from self.of_others(node, self.kinds[node.id])
        if isinstance(node, ast.Constant) and isinstance(node.value, float):
            for number in other_numbers(node.value):
                yield ast.Constant(number, lineno=1, col_offset=0), 1.3, "", f"{number}"

    def of_step(self, step: str, line: ast.expr) -> Iterator[Rewrite]:
        """What may be done to a step as a whole: a function of it, another step added."""
        kind = self.kinds[step]
        parts = {"s": line}
        arrays = [name for name in self.code.names if name in self.arrays]
        if len(arrays) == 1 and self.kinds[arrays[0]].shape == kind.shape:
            parts["u"] = named(arrays[0])
        for letter, part in parts.items():
            for _, sentence, template, cost in rules_for("Name", letter):
                yield filled(template, **{letter: part}), cost, sentence, template
        yield from self.of_others(line, kind, is_step=True)

    def of_others(self, node: ast.expr, kind: Kind, is_step: bool = False) -> Iterator[Rewrite]:
        """Another step or parameter in the place of an operand or a step, or added to it."""
        for name, other in self.others.items():
            (cost, role), own = self.cost_and_role(name), self.kinds[name]
            is_known = not is_step or name in self.code.names
            if own == kind:
                yield named(name), cost if is_known else cost + 0.5, "", f"other {role}"
            elif other.is_parameter and own == Kind(kind.shape[::-1], kind.dtype):
                yield filled("o.swapaxes(-2, -1)", o=named(name)), cost, "", f"other {role}"
            # Rows and columns of the same number.
            is_like = len(own.shape) > 1 and own.shape == kind.shape[-len(own.shape) :]
            if is_like and other.is_finite and not other.is_parameter:
                cost += 0.9 if is_step else 1.0
                for sign in "+-*" if is_step else "+":
                    combined = filled(f"a {sign} o", a=node, o=named(name))
                    yield combined, cost, "", f"{sign} {role}"

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
            return self.arrays.isdisjoint(names_in([("", node)]))
        if letter in "abc":
            return True
        if not isinstance(node, ast.Name) or node.id not in self.arrays:
            return False
        shape, dtype = self.kinds[node.id]
        is_parameter = node.id in self.others and self.others[node.id].is_parameter
        kind = "W" if is_parameter and len(shape) == 2 else "v" if is_parameter else "x"
        return letter == {"i": "n", "b": "m", "f": kind}.get(dtype)

    def cost_and_role(self, name: str) -> tuple[float, str]:
        """The cost of a name, and what it is in all code of the same form."""
        if name in self.code.names:
            return 1.06, f"operand {self.code.names.index(name)}"
        return 1.06 + self.others[name].distance / 2, self.others[name].role

    # ---- all lines ----

    def of_lines(self) -> Iterator[Mutant]:
        """The same change in all lines: other names, another axis; an axis also in one line."""
        own = [name for name in self.code.names if name in self.arrays]
        used, every = [*names_in(self.code.lines)], range(len(self.code.lines))
        for a, b in combinations(own, 2):
            if self.kinds[a] == self.kinds[b]:
                yield self.renamed({a: b, b: a}, 1.2, partial(Message, EXCHANGED, old=f"{a}, {b}"))
        for old, new in product(own, self.others):
            if used.count(old) > 1 and new != old and self.kinds[new] == self.kinds[old]:
                message = partial(Message, REPLACED, old=old, new=new)
                yield self.renamed({old: new}, self.cost_and_role(new)[0], message)
        parameters = {name: other for name, other in self.others.items() if other.is_parameter}
        mine = [name for name in own if name in parameters]
        for part in sorted({other.part for other in parameters.values()}) if len(mine) > 1 else ():
            theirs = {other.role: new for new, other in parameters.items() if other.part == part}
            names = {n: theirs[x] for n in mine if (x := parameters[n].role) in theirs}
            alike = [n for n, new in names.items() if self.kinds[n] == self.kinds[new]]
            if alike == mine:
                yield self.renamed(names, 0.95, partial(Message, OTHERS, new=part or "final"))
        for axes in ("-2", "-3", "(-2, -1)", "(-3, -2, -1)"):
            axis = ast.keyword("axis", parsed(axes), lineno=1, col_offset=0)
            for numbers in (every, *((n,) for n in every)):
                change = partial(with_axis, axis=axis)
                yield self.changed(numbers, change, 0.9, partial(Message, AXIS), (axes, *numbers))

    def renamed(self, names: Mapping[str, str], cost: float, message: Any) -> Mutant:
        """The code with other names."""
        change = partial(with_names, names={old: named(new) for old, new in names.items()})
        roles = [(self.code.names.index(x), new.rpartition(".")[2]) for x, new in names.items()]
        numbers = range(len(self.code.lines))
        return self.changed(numbers, change, cost, message, ("lines", *sorted(roles)))

    def changed(
        self, numbers: Sequence[int], change: Any, cost: float, message: Any, key: Any
    ) -> Mutant:
        """The code with the same change in some lines."""
        lines = [*self.code.lines]
        for number in numbers:
            lines[number] = lines[number][0], rewritten(lines[number][1], change)
        differing = tuple(n for n in numbers if lines[n][1] is not self.code.lines[n][1])
        return Mutant(Code(lines), differing, cost, message, key)


def with_names(node: Any, names: Mapping[str, ast.expr]) -> Any:
    """What stands for a name; None for another node."""
    return names.get(node.id) if isinstance(node, ast.Name) else None


def with_axis(node: Any, axis: ast.keyword) -> Any:
    return axis if isinstance(node, ast.keyword) and node.arg == "axis" else None


def replaced(node: Any, old: ast.expr, new: ast.expr) -> Any:
    return new if node is old else None


def other_numbers(value: float) -> tuple[float, ...]:
    """What a person may write for a number, such as one digit less."""
    digits = f"{value}" if value % 1 else ""
    shorter = (float(digits[:n] + digits[n + 1 :]) for n in range(2, len(digits)))
    multiples = 0.0, -value, 2 * value, value / 2, 10 * value, value / 10
    return 1.0, *multiples, value**2, value**0.5, *shorter
