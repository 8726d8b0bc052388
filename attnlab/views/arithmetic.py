"""The arithmetic of one number by the equation that makes it, each told in its own way.

There is a function here for each equation of the page, and the numbers on the way are made by the
page itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from attnlab import equations
from attnlab.equations import AnyArray
from attnlab.errors import DisagreementError
from attnlab.views.explanation import (
    SUM_NOISE,
    Parts,
    Printed,
    Span,
    bracketed,
    check,
    edited_here,
    exact,
    in_words,
    printed,
    sum_noise,
    total,
)
from attnlab.views.places import called
from attnlab.views.shown import Result, axis_of

# Up to so many products all of them are told, of more the largest.
PRODUCTS_WHOLE, PRODUCTS_SHOWN = 12, 8


@dataclass(frozen=True, eq=False)
class One:
    """One number of a step.

    Attributes
    ----------
    result, name : the step
    index : where the number is in the step's array
    equation : what makes the step; None where it is given
    needs : of the equation's parameters, path and value
    stored : the number
    made : what the equation makes, which is the number unless it is edited
    numbers : what is printed, unrounded
    """

    result: Result
    name: str
    index: tuple[int, ...]
    equation: Callable[..., Any] | None
    needs: dict[str, tuple[str, Any]]
    stored: Any
    made: Any
    numbers: dict[str, Any] = field(default_factory=dict)

    @property
    def heading(self) -> str:
        heading: str = self.result.heading_of(self.name)
        return heading

    def need(self, parameter: str) -> Any:
        return self.needs[parameter][1]

    def called(self, parameter: str) -> str:
        """The name of what the equation is given, as the step's formula has it."""
        name = self.needs[parameter][0].rpartition(".")[2].removeprefix("rows_of_")
        is_X = name == "memory" and self.need(parameter) is self.result.X
        return "X" if is_X else name

    def printed(self, parameter: str) -> Printed:
        """The number at the same place of what the equation is given."""
        number = float(self.need(parameter)[self.index])
        self.numbers[self.called(parameter)] = number
        return printed(number)

    def noise(self, *terms: Span) -> float:
        """What the step's floats may lose in a sum of so large numbers."""
        kind = np.finfo(np.asarray(self.stored).dtype)
        size = sum(max(abs(term.low), abs(term.high)) for term in terms)
        return SUM_NOISE * (float(kind.eps) * size + float(kind.smallest_subnormal))

    def edited(self) -> str:
        """What the equation makes, and what is there instead where it is edited."""
        return f"{in_words(self.made)}{edited_here(self.made, self.stored)}"

    def result_of(self, expected: Span, noise: float = 0.0) -> str:
        """What the equation makes, checked, and what is there instead where it is edited.

        Raises
        ------
        DisagreementError
            It does not follow from the numbers before it.
        """
        made = self.checked(expected, noise)
        return f"{in_words(made)}{edited_here(made, self.stored)}"

    def checked(self, expected: Span, noise: float) -> Any:
        """What the equation makes, once it is known to follow from the numbers before it."""
        try:
            check(self.name, expected, printed(self.made), noise)
        except DisagreementError:
            if not self._follows_an_edit:
                raise
            made = (expected.low + expected.high) / 2
            self.numbers["unedited"] = {self.name: made}
            return made
        return self.made

    @property
    def _follows_an_edit(self) -> bool:
        """Whether the step is another one because of an edit that is not its own."""
        place, _, _ = self.result.path.partition(".heads.")
        names = {self.name, "QKV"} if self.name in ("Q", "K", "V") else {self.name}
        edited = set(self.result.edited_steps)
        return not edited.isdisjoint(f"{place}.{name}".lstrip(".") for name in names)


def told(one: One) -> Parts:
    """A heading for each line of the arithmetic, and the line, or a table.

    Raises
    ------
    DisagreementError
        The printed numbers do not lead to the stored one.
    """
    return TELL.get(one.equation, moved)(one) if one.equation else given(one)


def located(name: str, index: Sequence[int | str]) -> str:
    """A number as NumPy would be asked for it, such as X[7, 3]."""
    return f"{name}[{', '.join(map(str, index))}]" if index else name


# ---- what is given, or stands elsewhere ----------------------------------------------------------


def given(one: One) -> Parts:
    """What nothing is computed for."""
    if callable(one.stored):
        return [(one.heading, "a function of one number")]
    return [(one.heading, f"{located(one.name, one.index)} = {one.edited()}")]


def from_cache(one: One) -> Parts:
    """A key or value of a token before these."""
    where = located(one.name, one.index)
    made = "found in the cache, made when its token was new"
    return [(one.heading, f"{made}: {where} = {one.edited()}")]


def moved(one: One) -> Parts:
    """A number of another step, in another place or under another name."""
    (_, (path, source)), *others = one.needs.items()
    if callable(source):
        return [(one.heading, "a function of one number")]
    shape = np.shape(source)
    assert one.equation is not None
    move = partial(one.equation, **{name: value for name, (_, value) in others})
    # Each number's place along each axis goes the way of the number.
    places = (np.broadcast_to(axis, shape) for axis in np.ogrid[tuple(map(slice, shape))])
    where = tuple(int(move(along)[one.index]) for along in places)
    number = source[where] if where else source
    # Where the whole is edited in this part, the number there is the edited one.
    result = one.edited() if number == one.stored else one.result_of(exact(number))
    place, _, name = path.rpartition(".")
    called = located(name if place == one.result.path else path, where)
    return [(one.heading, f"{called} = {result}")]


def token_embedding(one: One) -> Parts:
    token, component = one.index
    id = int(one.need("ids")[token])
    number = equations.token_embedding(np.array([id]), one.need("W_E"))[0, component]
    return [(one.heading, f"{located('W_E', (id, component))} = {one.result_of(exact(number))}")]


def position_embedding(one: One) -> Parts:
    token, component = one.index
    position = int(one.need("positions")[token])
    number = one.need("W_P")[position, component]
    where = located("W_P", (position, component))
    return [(one.heading, f"{where} = {one.result_of(exact(number))}")]


# ---- sums ----------------------------------------------------------------------------------------


def embedding(one: One) -> Parts:
    token, position = one.printed("token_embedding"), one.printed("position_embedding")
    sum_, noise = f"{token} + {bracketed(position)}", one.noise(token, position)
    if one.need("embedding_dropout") is None:
        return [(one.heading, f"{sum_} = {one.result_of(token + position, noise)}")]
    dropout = one.printed("embedding_dropout")
    result = one.result_of((token + position) * dropout, noise * dropout.high)
    return [(f"{one.heading}, times embedding_dropout", f"({sum_}) · {dropout} = {result}")]


def residual(one: One) -> Parts:
    stream, written = one.printed("stream"), one.printed("written")
    if one.need("dropout") is None:
        result = one.result_of(stream + written, one.noise(stream, written))
        return [(one.heading, f"{stream} + {bracketed(written)} = {result}")]
    dropout = one.printed("dropout")
    kept = written * dropout
    sum_ = f"{stream} + {bracketed(written)} · {dropout}"
    result = one.result_of(stream + kept, one.noise(stream, kept))
    return [(f"{one.heading} · {one.called('dropout')}", f"{sum_} = {result}")]


class Factor(NamedTuple):
    """What is multiplied in a sum of products, or added to it.

    Attributes
    ----------
    name, where : the step that it stands in, and where in it
    numbers : (n,), or one number
    """

    name: str
    where: tuple[int | str, ...]
    numbers: AnyArray

    def __str__(self) -> str:
        return located(self.name, self.where)


def affine(one: One) -> Parts:
    x, W, b = (one.need(parameter) for parameter in ("x", "W", "b"))
    row, column = one.index
    of_x = row - (one.result.tokens_before if one.name in ("K", "V") else 0)
    if of_x < 0:
        return from_cache(one)
    return products(
        one,
        Factor(one.called("x"), (of_x, "i"), x[of_x]),
        Factor(one.called("W"), ("i", column), W[:, column]),
        None if b is None else Factor(one.called("b"), (column,), b[column]),
    )


def head_output(one: One) -> Parts:
    (row, column), context, W_O = one.index, one.need("context"), one.need("W_O")
    of_context = Factor("context", (row, "i"), context[row])
    return products(one, of_context, Factor("W_O", ("i", column), W_O[:, column]))


def logits(one: One) -> Parts:
    final, W_U = one.need("final"), one.need("W_U")
    *rows, id = one.index  # next_logits have one row, the last
    row = rows[0] if rows else len(final) - 1
    of_final = Factor("final", (row, "i"), final[row])
    return products(one, of_final, Factor("W_U", ("i", id), W_U[:, id]))


def raw_scores(one: One) -> Parts:
    (query, key), Q, K = one.index, one.need("Q"), one.need("K")
    return products(one, Factor("Q", (query, "i"), Q[query]), Factor("K", (key, "i"), K[key]))


def context(one: One) -> Parts:
    (query, column), weights, V = one.index, one.need("weights"), one.need("V")
    keys = axis_of(one.result, "Tk", len(V))
    return products(
        one,
        Factor("weights", (query, "key"), weights[query]),
        Factor("V", ("key", column), V[:, column]),
        names=("key", *map(called, keys.positions, keys.labels)),
    )


def products(
    one: One,
    first: Factor,
    second: Factor,
    bias: Factor | None = None,
    names: Sequence[str] = (),
) -> Parts:
    """A sum of products as a table, of many the largest ones and what the others add up to.

    Parameters
    ----------
    first, second : what is multiplied
    bias : what is added to the sum
    names : what the products are called, and each of them; () for numbers
    """
    x, w = first.numbers.astype(np.float64), second.numbers.astype(np.float64)
    terms = x * w
    header, *rows_called = names or ("i", *map(str, range(len(terms))))
    order = np.arange(len(terms))
    if len(terms) > PRODUCTS_WHOLE:
        order = np.argsort(-np.abs(terms), kind="stable")[:PRODUCTS_SHOWN]
    rows = [[header, str(first), str(second), "product"]]
    added = []
    for i in order.tolist():
        x_i, w_i, product = map(printed, (x[i], w[i], terms[i]))
        check(f"product {i}", x_i * w_i, product)
        rows.append([rows_called[i], str(x_i), str(w_i), str(product)])
        added.append(product)
    heading = f"{one.heading}: the {len(terms)} products"
    others = np.delete(terms, order)
    if len(others):
        heading += f", the {len(order)} largest first"
        added.append(printed(others.sum()))
        rows.append([f"{len(others)} others", "", "", str(added[-1])])
    one.numbers.update(
        {first.name: x.tolist(), second.name: w.tolist(), "products": terms.tolist()}
    )
    if bias:
        one.numbers[bias.name] = number = float(bias.numbers)
        added.append(printed(number))
        rows.append([str(bias), "", "", str(added[-1])])
        terms = np.append(terms, number)
    made = one.checked(total(added), sum_noise(terms, np.asarray(one.stored).dtype))
    rows.append(["sum", "", "", in_words(made)])
    if made != one.stored:
        rows.append(["edited here", "", "", in_words(one.stored)])
    return [(heading, rows)]


# ---- LayerNorm, the activation, scores -----------------------------------------------------------


def layer_norm(one: One) -> Parts:
    row, column = one.index
    x, epsilon = one.need("x")[row].astype(np.float64), float(one.need("epsilon"))
    mean = equations.mean(x).item()
    centred = x - mean
    squares = np.square(centred)
    variance = equations.mean(squares).item()
    deviation = equations.deviation(centred, epsilon).item()
    normalised = float(equations.normalised(x, epsilon)[column])
    gain, bias = float(one.need("gain")[column]), float(one.need("bias")[column])

    D = printed(len(x))
    sum_, sum_of_squares = printed(x.sum()), printed(squares.sum())
    x_, mean_, variance_ = printed(x[column]), printed(mean), printed(variance)
    epsilon_, deviation_, normalised_ = printed(epsilon), printed(deviation), printed(normalised)
    gain_, bias_ = printed(gain), printed(bias)
    check("the mean", sum_ / D, mean_)
    check("the variance", sum_of_squares / D, variance_)
    check("the deviation", (variance_ + epsilon_).through(math.sqrt), deviation_)
    check("normalised", (x_ - mean_) / deviation_, normalised_)
    # Of a number, what is subtracted before it is divided may lose as much as the largest one.
    lost = abs(gain) * (np.abs(x).max() / deviation) * (1 + abs(normalised)) + abs(bias)
    result = one.result_of(normalised_ * gain_ + bias_, one.noise(exact(lost)))
    one.numbers.update(
        mean=mean,
        variance=variance,
        deviation=deviation,
        normalised=normalised,
        gain=gain,
        bias=bias,
    )
    name = one.called("x")
    of_row, of_number = located(name, (row,)), located(name, (row, column))
    return [
        (f"mean, of the {D} numbers of {of_row}: their sum / {D}", f"{sum_} / {D} = {mean_}"),
        (
            f"variance: the sum of all ({name} - mean)² / {D}",
            f"{sum_of_squares} / {D} = {variance_}",
        ),
        ("deviation = √(variance + epsilon)", f"√({variance_} + {epsilon_}) = {deviation_}"),
        (
            f"normalised = ({of_number} - mean) / deviation",
            f"({x_} - {bracketed(mean_)}) / {deviation_} = {normalised_}",
        ),
        (
            f"{one.heading} = normalised · gain + bias",
            f"{bracketed(normalised_)} · {bracketed(gain_)} + {bracketed(bias_)} = {result}",
        ),
    ]


class Share(NamedTuple):
    """How much of a number x an activation lets pass: it makes x · share.

    Attributes
    ----------
    of : makes it; the larger x is, the larger is its share
    words : it as a formula, of x
    """

    of: Callable[[Any], Any]
    words: str


SHARES: dict[Any, Share] = {
    equations.gelu: Share(
        lambda x: 0.5 * (1.0 + equations.gelu_tanh(x)),
        "½ (1 + tanh(√(2/π) (x + 0.044715 x³)))",
    ),
    equations.exact_gelu: Share(
        equations.normal_share, "Φ(x), how much of a normal distribution lies below x"
    ),
    equations.quick_gelu: Share(lambda x: equations.sigmoid(1.702 * x), "1 / (1 + e^(-1.702 x))"),
    equations.silu: Share(equations.sigmoid, "1 / (1 + e^(-x))"),
    equations.relu: Share(lambda x: float(x > 0.0), "1 of what is above 0, else 0"),
}


def activated(one: One) -> Parts:
    hidden, share = one.printed("hidden"), SHARES[one.need("activation")]
    x = one.numbers["hidden"]
    one.numbers["share"] = number = float(share.of(np.float64(x)))
    passing = printed(number)
    check("the share", hidden.through(lambda x: float(share.of(np.float64(x)))), passing)
    where = located("hidden", one.index)
    # Of a share near 0, floats lose as much as of one near 1.
    result = one.result_of(hidden * passing, one.noise(exact(x)))
    return [
        (f"share of x = {where} that passes: {share.words}", f"of {hidden}: {passing}"),
        (f"{one.heading} = x · share", f"{bracketed(hidden)} · {passing} = {result}"),
    ]


def scale(one: One) -> Parts:
    by_root = one.need("by_root") if "by_root" in one.needs else True
    layer_number = one.needs.get("layer_number", ("", None))[1]
    Dk = one.need("K").shape[-1]
    factors = [f"√{Dk}"] * by_root + [str(layer_number)] * (layer_number is not None)
    assert one.equation is not None
    number = one.equation(**{name: value for name, (_, value) in one.needs.items()})
    return [(one.heading, f"{' · '.join(factors) or '1'} = {one.result_of(exact(number))}")]


def scores(one: One) -> Parts:
    raw_score, scale = one.printed("raw_scores"), printed(one.need("scale"))
    one.numbers["scale"] = float(one.need("scale"))
    quotient = raw_score / scale
    result = one.result_of(quotient, one.noise(quotient))
    return [(one.heading, f"{bracketed(raw_score)} / {scale} = {result}")]


def masked_scores(one: One) -> Parts:
    score, seen = one.printed("scores"), bool(one.need("mask")[one.index])
    one.numbers["mask"] = seen
    result = one.result_of(score if seen else exact(-math.inf))
    number = f"{located('scores', one.index)} = {result}" if seen else result
    return [(one.heading, f"{located('mask', one.index)} is {seen}: {number}")]


# How the numbers are told of each equation; of what only stands elsewhere, by `moved`.
TELL: dict[Any, Callable[[One], Parts]] = {
    equations.token_embedding: token_embedding,
    equations.position_embedding: position_embedding,
    equations.embedding: embedding,
    equations.layer_norm: layer_norm,
    equations.affine: affine,
    equations.scale: scale,
    equations.scale_of_layer: scale,
    equations.raw_scores: raw_scores,
    equations.scores: scores,
    equations.masked_scores: masked_scores,
    equations.context: context,
    equations.head_output: head_output,
    equations.residual: residual,
    equations.activated: activated,
    equations.logits: logits,
    equations.next_logits: logits,
}
