"""The arithmetic of one weight, or of one row of weights, as text to follow with a pencil.

products q_i · k_i ─sum─> raw score ─/ scale─> score ─mask─> - maximum ─exp─> / row's sum
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from attnlab.equations import AnyArray, Array
from attnlab.errors import InvalidValueError
from attnlab.support.tables import ELLIPSIS, elide
from attnlab.views.explanation import (
    SUM_NOISE,
    Explanation,
    Parts,
    Printed,
    bracketed,
    check,
    edited_here,
    exact,
    in_words,
    printed,
    sum_noise,
    total,
)
from attnlab.views.places import called, place_of
from attnlab.views.purposes import purpose
from attnlab.views.shown import Result, shown

# Up to this many numbers are added up in writing; of more the table of the whole row has them.
TERMS_WRITTEN = 64

# How many columns of V the table of a row shows.
COLUMNS_SHOWN = 7

# The steps of a row of weights.
STEPS = ("raw_scores", "scores", "masked_scores", "weights")


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
        """A row of an attention of matrices.

        Raises
        ------
        InvalidValueError
            It is one of several heads or sequences, or there is no such query.
        """
        if len(attention.scores_shape) > 2 or attention.V.ndim > 2:
            raise of_several(attention, "weights", attention.scores_shape)
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
        return sum_noise(terms, self.attention.Q.dtype)

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


def of_several(result: Result, name: str, shape: tuple[int, ...]) -> InvalidValueError:
    """What to raise where one number of a step is one of several heads or sequences."""
    path = f"{result.path}.heads.0.{name}".lstrip(".")
    of_head = f", {path} as a path" if "heads" in result.children else ""
    return InvalidValueError(
        f"{result.title} has {name} of shape {shape}; to explain one, first take one head, as "
        f".heads[h] of several{of_head}, or one sequence, as attention(Q[0], K[0], V[0])"
    )


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
    expected = score if allowed else exact(-math.inf)
    check("masked_scores", expected, made("masked_scores"), row.score_noise)
    shifted, power = printed(row.shifted[key]), printed(row.exponentials[key])
    if math.isfinite(row.masked_scores[key]):
        check("minus the maximum", masked - maximum, shifted)
    check("exp", shifted.through(math.exp), power)

    seen = row.seen
    powers = [printed(x) for x in row.exponentials[seen]]
    row_sum = printed(row.exponentials.sum())
    check("the row's sum", total(powers), row_sum)
    softmax, weight = printed(row.softmax[key]), printed(row.weights[key])
    noise = row.weight_noise(key)
    check("softmax" if row.dropped is not None else "weights", power / row_sum, softmax, noise)

    parts: Parts = [
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
    return Explanation(title, purpose("weights"), numbers, parts, products(q_, k_, p_))


def products(q: list[Printed], k: list[Printed], p: list[Printed]) -> list[list[str]]:
    """The products as a table."""
    numbered = enumerate(zip(q, k, p, strict=True))
    return [["i", "q_i", "k_i", "q_i·k_i"], *([str(i), *map(str, one)] for i, one in numbered)]


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
        check(
            f"raw_scores {name}", exact(terms.sum()), made["raw_scores"][key], row.sum_noise(terms)
        )
        quotient = stored["raw_scores"][key] / scale
        check(f"scores {name}", quotient, made["scores"][key], row.score_noise)
        expected = score if row.mask[key] else exact(-math.inf)
        lost = row.score_noise if row.mask[key] else 0.0
        check(f"masked_scores {name}", expected, made["masked_scores"][key], lost)
        if math.isfinite(row.masked_scores[key]):
            check(f"- maximum {name}", masked - maximum, shifted[key])
        exponential = shifted[key].through(math.exp)
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
    parts: Parts = [
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
    return Explanation(title, purpose("weights"), numbers, parts)


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
