"""The arithmetic of one weight, or of one row of weights, as text to follow with a pencil.

    products q_i · k_i ─sum─> raw score ─/ scale─> score ─mask─> - maximum ─exp─> / row's sum

What is printed is checked: each printed result must follow from the printed, rounded numbers
before it, as far as their rounding lets it.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import numpy as np

from attnlab.checks import as_count, as_number, is_integer
from attnlab.console import PrintedAnywhere
from attnlab.equations import AnyArray, Array
from attnlab.errors import DisagreementError, InvalidTypeError, InvalidValueError, OutOfRangeError
from attnlab.errors import shown as quoted
from attnlab.tables import ELLIPSIS, align, display_width, elide
from attnlab.views.shown import Result, shown

DIGITS = 5
WIDTH = 88

# Up to this many numbers are added up in writing; of more the table of the whole row has them.
TERMS_WRITTEN = 64

# A table of products of more lines than this is shown in two halves.
ROWS_WHOLE = 9

# How many columns of V the table of a row shows.
COLUMNS_SHOWN = 7

# The steps of a row of weights.
STEPS = ("raw_scores", "scores", "masked_scores", "weights")

# What float32 or float64 may lose in a sum, in units of its rounding and of the sum's terms.
SUM_NOISE = 8.0

# What the arithmetic here, in float64, may lose itself.
DOUBLE_NOISE = 1e-12

NOTE = f"Numbers are rounded to {DIGITS} digits; shorter ones are exact."


@dataclass(frozen=True)
class Printed:
    """A number as it is printed, and the numbers that are printed so: low ... high."""

    text: str
    low: float
    high: float

    @property
    def span(self) -> Span:
        return Span(self.low, self.high)

    def __str__(self) -> str:
        return self.text

    def __mul__(self, other: Printed) -> Span:
        ends = [a * b for a in (self.low, self.high) for b in (other.low, other.high)]
        return Span(min(ends), max(ends))

    def __sub__(self, other: Printed) -> Span:
        return Span(self.low - other.high, self.high - other.low)

    def __truediv__(self, positive: Printed) -> Span:
        ends = [a / b for a in (self.low, self.high) for b in (positive.low, positive.high)]
        return Span(min(ends), max(ends))


@dataclass(frozen=True)
class Span:
    """The results that rounded numbers may have, low ... high."""

    low: float
    high: float


def printed(number: float) -> Printed:
    """A number rounded to DIGITS digits; one that has no more than those is printed short."""
    number = float(number) + 0.0  # no -0
    short = f"{number:.{DIGITS}g}"
    if float(short) == number:
        return Printed(short, number, number)
    text = f"{number:#.{DIGITS}g}".removesuffix(".")
    exponent = Decimal(text).as_tuple().exponent
    half = 10.0 ** int(exponent) / 2
    return Printed(text, float(text) - half, float(text) + half)


def total(spans: Iterable[Printed | Span]) -> Span:
    """The results that the sum of rounded numbers may have."""
    kept = list(spans)
    return Span(math.fsum(one.low for one in kept), math.fsum(one.high for one in kept))


def check(name: str, span: Span, result: Printed, noise: float = 0.0) -> None:
    """Refuse a printed result that does not follow from the printed numbers before it.

    Raises
    ------
    DisagreementError
        It lies outside `span` by more than its own rounding and `noise`.
    """
    noise += DOUBLE_NOISE * max(abs(x) for x in (span.low, span.high, 0.0) if math.isfinite(x))
    if not (span.low - noise <= result.high and result.low <= span.high + noise):
        raise DisagreementError(
            f"{name} is stored as {result}, and the numbers that it is made of "
            f"lead to {span.low:.6g} … {span.high:.6g}"
        )


@dataclass(frozen=True, eq=False, repr=False)
class Explanation(PrintedAnywhere):
    """The arithmetic as text; `print` and `repr` show it.

    Attributes
    ----------
    title : what is explained
    numbers : what is printed, unrounded, under the steps' names; float, int, bool, or lists
    """

    title: str
    numbers: dict[str, Any]
    _parts: list[tuple[str, str | list[list[str]]]]
    _products: list[list[str]] = field(default_factory=list)

    @property
    def note(self) -> str:
        """How its numbers are written."""
        return NOTE

    def parts(self) -> list[tuple[str, str | list[list[str]]]]:
        """Each heading, and below it a line or the rows of a table."""
        products = [("the products", self._products)] if self._products else []
        return [*products, *self._parts]

    def text(self, width: int = WIDTH) -> str:
        """The lines, none longer than `width` where its longest number fits.

        Raises
        ------
        InvalidValueError
            `width` is no integer of at least 1.
        """
        width = as_count(width, "width", least=1)
        blocks = [[*textwrap.wrap(self.title, width), *textwrap.wrap(NOTE, width)]]
        if self._products:
            blocks.append(["the products", halve(self._products, width)])
        lines: list[str] = []
        for heading, body in self._parts:
            if isinstance(body, str):
                lines += textwrap.wrap(heading, width)
                lines += textwrap.wrap(
                    body,
                    width,
                    initial_indent="  ",
                    subsequent_indent="    ",
                    break_on_hyphens=False,
                )
            else:
                blocks += [lines, [*textwrap.wrap(heading, width), *fold(body, width)]]
                lines = []
        return "\n\n".join("\n".join(block) for block in (*blocks, lines) if block)

    def __repr__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        from attnlab.views.notebook import explanation_view

        return explanation_view(self)


def fold(rows: list[list[str]], width: int, left: Sequence[int] = (0,)) -> list[str]:
    """A table in as many parts below each other as the width asks for, each with column 0.

    `left` are the columns whose cells stand to the left.
    """
    widths = [max(map(display_width, column)) for column in zip(*rows, strict=True)]
    parts: list[str] = []
    start = 1
    while start < len(widths):
        stop, used = start + 1, widths[0] + 2 + widths[start]
        while stop < len(widths) and used + 2 + widths[stop] <= width:
            used += 2 + widths[stop]
            stop += 1
        part = [0, *range(start, stop)]
        to_the_left = [place for place, column in enumerate(part) if column in left]
        parts += [align([[row[column] for column in part] for row in rows], left=to_the_left), ""]
        start = stop
    return parts[:-1]


def halve(rows: list[list[str]], width: int) -> str:
    """A long table with its second half beside its first one, where both fit."""
    whole = align(rows)
    if len(rows) <= ROWS_WHOLE or 2 * max(map(display_width, whole.splitlines())) + 4 > width:
        return whole
    header, *lines = rows
    half = (len(lines) + 1) // 2
    right = [*lines[half:], [""] * len(header)][:half]
    beside = zip([header, *lines[:half]], [header, *right], strict=True)
    return align([[*left, "", *more] for left, more in beside])


@dataclass(frozen=True, eq=False)
class Row:
    """One query's numbers in an attention of matrices, as they are stored, in float64.

    Attributes
    ----------
    query : its place
    name : how it is called, place and symbol
    keys : how the keys are called
    q, raw_scores, scores, mask, masked_scores, weights, context : of the row
    dropped : its dropout_mask, None where nothing was dropped
    unedited : by name, what a step that is edited would be
    """

    attention: Result
    query: int
    name: str
    keys: tuple[str, ...]
    q: Array
    raw_scores: Array
    scores: Array
    mask: Array
    masked_scores: Array
    dropped: Array | None
    weights: Array
    context: Array
    unedited: dict[str, Any]

    @classmethod
    def of(cls, attention: Result, query: int | str) -> Row:
        """A row; what nobody looked at yet is computed aside, and not kept."""
        attention = attention.aside()
        if attention.derivative_of:
            raise InvalidValueError(
                f"a gradient is not made as a weight is, and only weights are explained: given "
                f"{attention.title}"
            )
        if len(attention.scores_shape) > 2 or attention.V.ndim > 2:
            raise InvalidValueError(
                f"{attention.title} has weights of shape {attention.scores_shape}; to explain "
                "one, first take one head, as .heads[h] of several, or the matrices of one "
                "sequence, as attention(Q[0], K[0], V[0])"
            )
        labels = shown(attention, "mask").axes
        query = place_of(attention, "query", query, attention.Q.shape[0])

        def row_of(step: AnyArray) -> AnyArray:
            of_query: AnyArray = step[query]
            return of_query if step.dtype == bool else of_query.astype(np.float64)

        def row(name: str) -> AnyArray:
            return row_of(getattr(attention, name))

        edited = [name for name in (*STEPS, "mask", "context") if attention.is_edited(name)]
        unedited = {name: row_of(attention.unedited(name)) for name in edited}
        if attention.is_edited("scale"):
            unedited["scale"] = attention.unedited("scale")

        return cls(
            attention=attention,
            query=query,
            name=called(labels[0].positions[query], labels[0].labels[query]),
            keys=tuple(called(j, text) for j, text in enumerate(labels[1].labels)),
            q=row("Q"),
            raw_scores=row("raw_scores"),
            scores=row("scores"),
            mask=row("mask"),
            masked_scores=row("masked_scores"),
            dropped=None if attention.dropout_mask is None else row("dropout_mask"),
            weights=row("weights"),
            context=row("context"),
            unedited=unedited,
        )

    @property
    def scale(self) -> float:
        return float(self.attention.scale)

    @property
    def scale_in_words(self) -> str:
        made = self.unedited.get("scale", self.scale)
        root = f"√{len(self.q)} = " if made == math.sqrt(len(self.q)) else ""
        return f"{root}{printed(made)}{edited_here(made, self.scale)}"

    @property
    def seen(self) -> AnyArray:
        """The keys that may be seen."""
        return np.flatnonzero(self.masked_scores > -math.inf)

    def made(self, name: str) -> AnyArray:
        """What a step's equation makes of the row: what is stored, where it is not edited."""
        made: AnyArray = self.unedited.get(name, getattr(self, name))
        return made

    def result(self, name: str, key: int) -> str:
        """What a step's equation makes, and what is there instead where it is edited."""
        made, stored = self.made(name)[key], getattr(self, name)[key]
        return f"{in_words(made)}{edited_here(made, stored)}"

    @property
    def largest(self) -> int:
        return int(self.masked_scores.argmax())

    @property
    def shifted(self) -> Array:
        shifted: Array = self.masked_scores - self.masked_scores.max()
        return shifted

    @property
    def exponentials(self) -> Array:
        exponentials: Array = np.exp(self.shifted)
        return exponentials

    @property
    def softmax(self) -> Array:
        """The weights before dropout: those stored, where nothing was dropped."""
        if self.dropped is None:
            return self.made("weights")
        softmax: Array = self.exponentials / self.exponentials.sum()
        return softmax

    def sum_noise(self, terms: Array) -> float:
        """What the floats of the attention may lose in a sum of these terms."""
        return len(terms) * self._least + SUM_NOISE * self._eps * float(np.abs(terms).sum())

    @property
    def score_noise(self) -> float:
        """The most that they may lose in one of the row's scores."""
        products = np.abs(self.attention.K.astype(np.float64)) @ np.abs(self.q)
        lost = len(self.q) * self._least + SUM_NOISE * self._eps * float(products.max())
        return self._least + lost / self.scale

    def weight_noise(self, key: int) -> float:
        """What they may lose in a weight.

        A long attention computes its weights in blocks of rows: by what the blocks' scores may
        differ, made larger by exp, is in it too.
        """
        largest = max(float(self.exponentials[key]), float(self.made("weights")[key]))
        smallest = float(np.finfo(self.attention.Q.dtype).tiny)  # below it exp gives 0
        in_blocks = 2 * self.score_noise * self.attention.by_rows
        noise: float = smallest + largest * (in_blocks + SUM_NOISE * self._eps)
        return noise

    @property
    def _least(self) -> float:
        """Numbers below it are lost, each product's and each result's."""
        return float(np.finfo(self.attention.Q.dtype).smallest_subnormal)

    @property
    def _eps(self) -> float:
        return float(np.finfo(self.attention.Q.dtype).eps)


def in_words(value: Any) -> str:
    """A number rounded, True and False as they are."""
    return str(value if isinstance(value, bool | np.bool_) else printed(value))


def edited_here(made: Any, stored: Any) -> str:
    """What a line ends with where an equation makes one value and an edit put another there."""
    if made == stored:
        return ""
    return f"; edited here: {in_words(stored)} instead of {in_words(made)}"


def place(index: int, kind: str, count: int) -> int:
    """An index from the front; negative ones count from the end.

    Raises
    ------
    OutOfRangeError, InvalidTypeError
        There is no such place; it is not an integer.
    """
    index = as_number(index)
    if not is_integer(index):
        raise InvalidTypeError(f"the number of a {kind} is an integer; given {quoted(index)}")
    if not -count <= index < count:
        kinds = "queries" if kind == "query" else f"{kind}s"
        raise OutOfRangeError(f"there is no {kind} {quoted(index)}; {kinds} are 0 to {count - 1}")
    return int(index) % count


def place_of(attention: Result, kind: str, given: int | str, count: int) -> int:
    """A query or key from the front, by its number or by its token's text or symbol.

    Raises
    ------
    OutOfRangeError, InvalidTypeError
        As `place` does.
    InvalidValueError
        No token has that text, or several have; the matrices belong to no text.
    """
    if not isinstance(given, str):
        return place(given, kind, count)
    of_memory = kind == "key" and attention.memory_tokens is not None
    tokens = attention.memory_tokens if of_memory else attention.tokens
    if not tokens:
        raise InvalidValueError(
            f"{attention.title} has no tokens that name its rows: give the number of a {kind}; "
            f"given {quoted(given)}"
        )
    found: int = tokens.find(given)
    return found + (attention.tokens_before if kind == "key" else 0)


def called(position: int, text: str) -> str:
    """A query or key in words: its place, and its symbol where it has one."""
    return str(position) if text == str(position) else f"{position} ({text})"


def explain_weight(attention: Result, query: int | str, key: int | str) -> Explanation:
    """One weight, from the products of a query's and a key's numbers to the stored value."""
    row = Row.of(attention, query)
    key = place_of(row.attention, "key", key, len(row.keys))
    k = row.attention.K[key].astype(np.float64)
    q_, k_, p_ = ([printed(x) for x in numbers] for numbers in (row.q, k, row.q * k))
    for i, (q_i, k_i, p_i) in enumerate(zip(q_, k_, p_, strict=True)):
        check(f"product {i}", q_i * k_i, p_i)

    def made(name: str) -> Printed:
        return printed(row.made(name)[key])

    raw_score, score, scale = map(printed, (row.raw_scores[key], row.scores[key], row.scale))
    check("raw_scores", total(p_), made("raw_scores"), row.sum_noise(row.q * k))
    check("scores", raw_score / scale, made("scores"), row.score_noise)

    allowed = bool(row.mask[key])
    masked, maximum = printed(row.masked_scores[key]), printed(row.masked_scores.max())
    expected = score.span if allowed else Span(-math.inf, -math.inf)
    check("masked_scores", expected, made("masked_scores"), row.score_noise)
    shifted, power = printed(row.shifted[key]), printed(row.exponentials[key])
    if math.isfinite(row.masked_scores[key]):
        check("minus the maximum", masked - maximum, shifted)
    check("exp", Span(math.exp(shifted.low), math.exp(shifted.high)), power)

    seen = row.seen
    powers = [printed(x) for x in row.exponentials[seen]]
    row_sum = printed(row.exponentials.sum())
    check("the row's sum", total(powers), row_sum)
    softmax, weight = printed(row.softmax[key]), printed(row.weights[key])
    noise = row.weight_noise(key)
    check("softmax" if row.dropped is not None else "weights", power / row_sum, softmax, noise)

    parts: list[tuple[str, str | list[list[str]]]] = [
        (
            attention.heading_of("raw_scores"),
            f"sum of the {len(k)} products = {row.result('raw_scores', key)}",
        ),
        (attention.heading_of("scale"), row.scale_in_words),
        (attention.heading_of("scores"), f"{raw_score} / {scale} = {row.result('scores', key)}"),
        (attention.heading_of("mask"), row.result("mask", key)),
        (attention.heading_of("masked_scores"), row.result("masked_scores", key)),
        (
            "minus the row's maximum",
            f"{masked} - {bracketed(maximum)} = {shifted}"
            f" (the maximum is that of key {row.keys[row.largest]})",
        ),
        ("exp", f"e^{bracketed(shifted)} = {power}"),
        (
            f"the row's sum of exp, over the {len(seen)} keys that may be seen",
            f"{written(powers)} = {row_sum}",
        ),
        (
            attention.heading_of("weights"),
            f"{power} / {row_sum} = {softmax}"
            f"{edited_here(row.made('weights')[key], row.weights[key])}",
        ),
    ]
    if row.dropped is not None:
        dropped = printed(row.dropped[key])
        check("weights", softmax * dropped, weight, noise * (1 + abs(dropped.high)))
        parts.append((attention.heading_of("dropout_mask"), str(dropped)))
        parts.append(("weights, after dropout", f"{softmax} · {dropped} = {weight}"))
    numbers = {
        "query": row.query,
        "key": key,
        "q": row.q.tolist(),
        "k": k.tolist(),
        "products": (row.q * k).tolist(),
        "raw_scores": float(row.raw_scores[key]),
        "scale": row.scale,
        "scores": float(row.scores[key]),
        "mask": allowed,
        "masked_scores": float(row.masked_scores[key]),
        "maximum": float(row.masked_scores.max()),
        "shifted": float(row.shifted[key]),
        "exp": float(row.exponentials[key]),
        "row_sum": float(row.exponentials.sum()),
        "dropout_mask": None if row.dropped is None else float(row.dropped[key]),
        "weights": float(row.weights[key]),
        "unedited": {
            name: made if name == "scale" else made[key].item()
            for name, made in row.unedited.items()
            if name != "context"
        },
    }
    title = f"{attention.title}: the weight that query {row.name} gives to key {row.keys[key]}"
    return Explanation(title, numbers, parts, products(q_, k_, p_))


def products(q: list[Printed], k: list[Printed], p: list[Printed]) -> list[list[str]]:
    """The products as a table."""
    numbered = enumerate(zip(q, k, p, strict=True))
    return [["i", "q_i", "k_i", "q_i·k_i"], *([str(i), *map(str, one)] for i, one in numbered)]


def bracketed(number: Printed) -> str:
    return f"({number})" if number.text.startswith("-") else number.text


def written(terms: Sequence[Printed]) -> str:
    if len(terms) > TERMS_WRITTEN:
        return f"{len(terms)} numbers, which explain(query) lists,"
    return " + ".join(map(str, terms))


def explain_row(attention: Result, query: int | str) -> Explanation:
    """A row of weights, all keys in a table, then the values that they weigh."""
    row = Row.of(attention, query)
    made = {name: [printed(x) for x in row.made(name)] for name in STEPS}
    stored = {name: [printed(x) for x in getattr(row, name)] for name in STEPS}
    shifted, powers = ([printed(x) for x in y] for y in (row.shifted, row.exponentials))
    scale, maximum = printed(row.scale), printed(row.masked_scores.max())
    row_sum, weight_sum = printed(row.exponentials.sum()), printed(row.weights.sum())
    for key, k in enumerate(row.attention.K.astype(np.float64)):
        name, terms, score = f"of key {row.keys[key]}", row.q * k, stored["scores"][key]
        masked, power = stored["masked_scores"][key], powers[key]
        check(f"raw_scores {name}", sum_of(terms), made["raw_scores"][key], row.sum_noise(terms))
        quotient = stored["raw_scores"][key] / scale
        check(f"scores {name}", quotient, made["scores"][key], row.score_noise)
        if row.mask[key]:
            expected, lost = score.span, row.score_noise
        else:
            expected, lost = Span(-math.inf, -math.inf), 0.0
        check(f"masked_scores {name}", expected, made["masked_scores"][key], lost)
        if math.isfinite(row.masked_scores[key]):
            check(f"- maximum {name}", masked - maximum, shifted[key])
        exponential = Span(math.exp(shifted[key].low), math.exp(shifted[key].high))
        check(f"exp {name}", exponential, power)
        share, noise = power / row_sum, row.weight_noise(key)
        if row.dropped is not None:
            softmax, dropped = printed(row.softmax[key]), printed(row.dropped[key])
            check(f"softmax {name}", share, softmax, noise)
            share, noise = softmax * dropped, noise * (1 + abs(dropped.high))
        check(f"weights {name}", share, made["weights"][key], noise)
    check("the sum of exp", total(powers), row_sum)
    check("the sum of weights", total(stored["weights"]), weight_sum)

    columns: dict[str, Sequence[object]] = {}
    for name in ("raw_scores", "scores", "mask", "masked_scores"):
        columns |= columns_of(row, name)
    columns |= {"- maximum": shifted, "exp": powers}
    if row.dropped is not None:
        columns["softmax"] = [printed(x) for x in row.softmax]
        columns["dropout_mask"] = [printed(x) for x in row.dropped]
    columns |= columns_of(row, "weights")
    table = [["key", *columns]]
    for key, name in enumerate(row.keys):
        table.append([name, *(str(column[key]) for column in columns.values())])
    sums = {"exp": str(row_sum), "weights": str(weight_sum)}
    table.append(["sum", *(sums.get(name, "") for name in columns)])

    steps = ("raw_scores", "scale", "scores", "mask", "masked_scores", "weights")
    formulas = [attention.heading_of(name) for name in steps]
    if row.dropped is not None:
        formulas.append(attention.heading_of("dropout_mask"))
    numbers = {
        "query": row.query,
        "key": None,
        "scale": row.scale,
        "maximum": float(row.masked_scores.max()),
        "row_sum": float(row.exponentials.sum()),
        "raw_scores": row.raw_scores.tolist(),
        "scores": row.scores.tolist(),
        "mask": row.mask.tolist(),
        "masked_scores": row.masked_scores.tolist(),
        "shifted": row.shifted.tolist(),
        "exp": row.exponentials.tolist(),
        "dropout_mask": None if row.dropped is None else row.dropped.tolist(),
        "weights": row.weights.tolist(),
        "context": row.context.tolist(),
        "unedited": {
            name: made if name == "scale" else made.tolist() for name, made in row.unedited.items()
        },
    }
    parts: list[tuple[str, str | list[list[str]]]] = [
        *((formula, "") for formula in formulas),
        (
            f"scale = {row.scale_in_words}, and the row's maximum is {maximum}, "
            f"that of key {row.keys[row.largest]}; - maximum is what is left of masked_scores "
            "without it, and softmax is exp / sum of exp",
            "",
        ),
        ("", table),
        (attention.heading_of("context"), values(row)),
    ]
    title = f"{attention.title}: the weights that query {row.name} gives, and its context"
    return Explanation(title, numbers, parts)


def sum_of(terms: Array) -> Span:
    """A sum whose terms are not printed here, so that nothing is rounded in it."""
    exact = float(terms.sum())
    return Span(exact, exact)


def columns_of(row: Row, name: str) -> dict[str, list[str]]:
    """The numbers of a row, after those that an edit took the place of; of a mask, only then."""
    columns = {name: list(map(in_words, getattr(row, name)))}
    if name in row.unedited:
        return {f"{name}, unedited": list(map(in_words, row.unedited[name])), **columns}
    return {} if name == "mask" else columns


def values(row: Row) -> list[list[str]]:
    """V beside the weights, and below it what they add up to; of many columns the first ones."""
    V, weights = row.attention.V.astype(np.float64), [printed(x) for x in row.weights]
    picked = elide(V.shape[1], COLUMNS_SHOWN)
    columns = [j for j in picked if j is not None]
    made, cells = row.made("context"), {j: [printed(x) for x in V[:, j]] for j in columns}
    for j, column in cells.items():
        sum_ = total(w * v for w, v in zip(weights, column, strict=True))
        noise = row.sum_noise(row.weights * V[:, j])
        check(f"context {j}", sum_, printed(made[j]), noise)

    def line(name: str, weight: object, numbers: Iterable[object]) -> list[str]:
        words = dict(zip(columns, map(str, numbers), strict=True))
        return [name, str(weight), *(ELLIPSIS if j is None else words[j] for j in picked)]

    lines = [line("key", "weights", (f"V {j}" for j in columns))]
    for key, name in enumerate(row.keys):
        lines.append(line(name, weights[key], (column[key] for column in cells.values())))
    lines.append(line("sum of weight · V", "", map(printed, made[columns])))
    if "context" in row.unedited:
        lines.append(line("edited here", "", map(printed, row.context[columns])))
    return lines
