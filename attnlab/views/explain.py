"""The arithmetic of one number of any step, as text to follow with a pencil."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from attnlab import equations
from attnlab.errors import InvalidValueError
from attnlab.errors import shown as quoted
from attnlab.views.arithmetic import One, told
from attnlab.views.explanation import Explanation, Parts, bracketed, check, printed, total
from attnlab.views.places import called, place, place_of
from attnlab.views.purposes import purpose
from attnlab.views.shown import Result, axis_of, label
from attnlab.views.weights import STEPS, explain_row, explain_weight, of_several

# What softmax makes of logits, which is no step: it depends on how the next token is drawn.
PROBABILITIES = "probabilities"

# Up to so many of the largest powers are written of all tokens of the vocabulary.
POWERS_WRITTEN = 8

# Which number is meant along an axis: by its place, or by a token's text; None for the default.
Wanted: TypeAlias = int | str | None

# What stands along axes that are not components.
KINDS = {
    "T": "token",
    "Tq": "query",
    "Tk": "key",
    "vocab": "id",
    "n_positions": "position",
}
TOKENS = ("T", "Tq", "Tk")


def explain(
    result: Result,
    name: str,
    token: Wanted = None,
    component: Wanted = None,
    key: Wanted = None,
) -> Explanation:
    """The arithmetic of one number of a step, or of a row of weights.

    Parameters
    ----------
    result, name : the step
    token : which row, by a token's number or text, of a parameter the row's number; None for the
        last token, or the first row
    component : which number in it; of weights and the steps before them the key, of logits the
        token of the vocabulary, by its id or its text. None for the first one; of logits for the
        most probable; of weights, and the scores before them, for the whole row
    key : the same, where it is a key

    Raises
    ------
    DisagreementError
        The printed numbers do not lead to the stored one.
    InvalidValueError, InvalidTypeError, OutOfRangeError
        There is no such step, token or component; the step has no such rows; it is None; it is of
        several heads or sequences; or the result is one of gradients.
    """
    is_probability = name == PROBABILITIES and "logits" in result.steps
    axes = result.axes_of("logits" if is_probability else name).split()
    if result.derivative_of:
        raise InvalidValueError(
            f"a gradient is not made as its step is, and is not explained: given {result.title}"
        )
    is_by_key = axes[-2:] == ["Tq", "Tk"]
    if key is not None and not is_by_key:
        raise InvalidValueError(f"{name} of {result.title} has no keys to choose from")
    if key is not None and component is not None:
        raise InvalidValueError("key and component are the same here: give one of them")
    component = key if component is None else component
    if name == "rows_of_W_E":  # all of W_E, which is read in another way
        return explain(result, "W_E", token, component)
    result = result.aside()
    if is_probability:
        return explain_probability(result, axes, token, component)
    if axes[0:1] == ["H"]:
        return explain_in_head(result, name, axes, token, component)
    if is_by_key and name in STEPS and (component is None or name == "weights"):
        query = -1 if token is None else token
        if component is None:
            return explain_row(result, query)
        return explain_weight(result, query, component)
    value = getattr(result, name)
    if value is None:
        raise InvalidValueError(f"{result.title} was made without {name}")
    if np.ndim(value) > len(axes):
        raise of_several(result, name, np.shape(value))
    places = placed(result, name, value, axes, token, component)
    one = one_at(result, name, value, tuple(number for _, number, _ in places))
    parts = told(one)
    made_of = [path for path, need in one.needs.values() if need is not None]
    if made_of:
        parts.append(("made of", ", ".join(made_of)))
    numbers = {
        "step": f"{result.path}.{name}".lstrip("."),
        **{kind: number for kind, number, _ in places},
        "value": plain(one.stored),
        "unedited": {name: plain(one.made)} if result.is_edited(name) else {},
        **one.numbers,
    }
    title = f"{result.title}: {name}{where(places)}"
    return Explanation(title, purpose(numbers["step"]), numbers, parts)


def explain_in_head(
    result: Result, name: str, axes: Sequence[str], token: Wanted, component: Wanted
) -> Explanation:
    """A step that each head has for itself: the components of all heads lie side by side.

    Raises
    ------
    InvalidValueError, InvalidTypeError, OutOfRangeError
        As `explain` does.
    """
    if name not in STEPS and getattr(result, name) is None:
        raise InvalidValueError(f"{result.title} was made without {name}")
    if axes[-2:] == ["Tq", "Tk"]:
        raise of_several(result, name, result.scores_shape)
    if name.endswith("_cache"):  # the first rows of K, or of V
        name = name.removesuffix("_cache")
        token = place(-1 if token is None else token, "key", result.tokens_before)
    shape = getattr(result, name).shape
    if len(shape) > 3:
        raise of_several(result, name, shape)
    n_head, _, width = shape
    of_all = place(0 if component is None else component, "component", n_head * width)
    return explain(result.heads[of_all // width], name, token, of_all % width)


def explain_probability(
    result: Result, axes: Sequence[str], token: Wanted, component: Wanted
) -> Explanation:
    """What softmax makes of a logit: how probable its token is, at temperature 1.

    Raises
    ------
    InvalidValueError, InvalidTypeError, OutOfRangeError
        As `explain` does.
    """
    if np.ndim(result.logits) > len(axes):
        raise of_several(result, "logits", result.logits.shape)
    places = placed(result, "logits", result.logits, axes, token, component)
    (_, row, _), (_, id, _) = places
    logits = result.logits[row].astype(np.float64)
    best = int(logits.argmax())
    powers, probability = np.exp(logits - logits[best]), float(equations.softmax(logits)[id])

    logit, maximum, share = printed(logits[id]), printed(logits[best]), printed(probability)
    shifted, power = printed(logits[id] - logits[best]), printed(powers[id])
    largest = np.argsort(-powers, kind="stable")[:POWERS_WRITTEN]
    added = [printed(x) for x in powers[largest]]
    others = np.delete(powers, largest)
    if len(others):
        added.append(printed(others.sum()))
    sum_ = printed(powers.sum())
    check("minus the maximum", logit - maximum, shifted)
    check("exp", shifted.through(math.exp), power)
    check("the sum", total(added), sum_)
    check(PROBABILITIES, power / sum_, share)

    more = f", the {len(largest)} largest and the others together" if len(others) else ""
    parts: Parts = [
        (result.heading_of("logits"), str(logit)),
        (
            "minus the row's maximum",
            f"{logit} - {bracketed(maximum)} = {shifted}"
            f" (the maximum is that of id {id_of(result, best, len(logits))[1]})",
        ),
        ("exp", f"e^{bracketed(shifted)} = {power}"),
        (
            f"the sum of exp over all {len(powers)} tokens of the vocabulary{more}",
            f"{' + '.join(map(str, added))} = {sum_}",
        ),
        ("probabilities = softmax(logits)", f"{power} / {sum_} = {share}"),
        ("made of", "logits"),
    ]
    numbers = {
        "step": PROBABILITIES,
        **{kind: number for kind, number, _ in places},
        "value": probability,
        "unedited": {},
        "logits": float(logits[id]),
        "maximum": float(logits[best]),
        "shifted": float(logits[id] - logits[best]),
        "exp": float(powers[id]),
        "row_sum": float(powers.sum()),
    }
    title = f"{result.title}: {PROBABILITIES}{where(places)}"
    return Explanation(title, purpose(PROBABILITIES), numbers, parts)


# ---- which number --------------------------------------------------------------------------------


def placed(
    result: Result, name: str, value: Any, axes: Sequence[str], token: Wanted, component: Wanted
) -> list[tuple[str, int, str]]:
    """Where a number is along each axis: what stands along it, the place, and it in words.

    Raises
    ------
    InvalidValueError, InvalidTypeError, OutOfRangeError
        As `explain` does.
    """
    wanted = {"token": token, "component": component}
    if len(axes) < 2:
        has = [*axes] and ["token" if axes[0] == "T" else "component"]
        for kind in wanted.keys() - has:
            if wanted[kind] is not None:
                raise InvalidValueError(
                    f"{name} of {result.title} has no {kind}s to choose from; given "
                    f"{quoted(wanted[kind])}"
                )
        wanted = {kind: wanted[kind] for kind in has}
    is_matrix = len(axes) == 2 and not {*axes} & {*KINDS}
    places: list[tuple[str, int, str]] = []
    for axis, count, one in zip(axes, np.shape(value), wanted.values(), strict=True):
        if axis in TOKENS:
            kind = KINDS[axis]
            number = place_of(result, kind, -1 if one is None else one, count)
            along = axis_of(result, axis, count)
            word = called(along.positions[number], along.labels[number])
        elif axis == "vocab":
            kind = "id"
            row = value[places[0][1]] if places else value
            best = int(row.argmax()) if name in ("logits", "next_logits") else 0
            number, word = id_of(result, best if one is None else one, count)
        else:
            kind = KINDS.get(axis, "component")
            if is_matrix:
                kind = "column" if places else "row"
            number = place(0 if one is None else one, kind, count)
            word = str(number)
        places.append((kind, number, word))
    return places


def where(places: Sequence[tuple[str, int, str]]) -> str:
    """Places as a title has them behind a step's name."""
    words = [f"{kind} {word}" for kind, _, word in places]
    if words and places[0][0] in KINDS.values():
        words = [f" of {words[0]}", *words[1:]]
        return ", ".join(words)
    return "".join(f", {word}" for word in words)


def id_of(result: Result, given: int | str, count: int) -> tuple[int, str]:
    """A token of the vocabulary by its id or its text, and what it is called.

    Raises
    ------
    InvalidValueError, InvalidTypeError, OutOfRangeError
        There is no such token, or no vocabulary that tells what a text's id is.
    """
    vocabulary = getattr(result, "vocabulary", None)
    if vocabulary is None:
        number = place(given, "token id", count)
        return number, str(number)
    token = vocabulary.named(given)
    return token.id, called(token.id, label(token.symbol))


def one_at(result: Result, name: str, value: Any, index: tuple[int, ...]) -> One:
    """One number of a step, with what it is made of."""
    equation, needs = result.made_of(name)
    made = result.unedited(name) if result.is_edited(name) else value
    stored, made = (array[index] if index else array for array in (value, made))
    return One(result, name, index, equation, needs, stored, made)


def plain(value: Any) -> Any:
    """A value as JSON can have it."""
    if callable(value):
        return value.__name__
    return value.item() if isinstance(value, np.generic | np.ndarray) else value
