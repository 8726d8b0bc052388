"""Explain the arithmetic of one number of any step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from attnlab import equations
from attnlab.errors import InvalidValueError, quoted
from attnlab.forward.attention import Attention
from attnlab.steps import Result
from attnlab.steps.labels import axis_of, token_axes, token_index
from attnlab.support.checks import as_index
from attnlab.support.messages import Message
from attnlab.views.explanation import Explanation, Line
from attnlab.views.labelled_step import vocabulary_index
from attnlab.views.purposes import purpose
from attnlab.views.step_number import StepNumber, as_json, lines_of
from attnlab.views.weights_row import STEPS, explain_row

# Not a step of the model, because it depends on the sampling settings.
PROBABILITIES = "probabilities"

# A number chosen along an axis, by its index or by a token's text; None for the default.
Choice: TypeAlias = int | str | None

# A number's position along an axis: the axis's kind, such as "query", the index, and its label.
Position: TypeAlias = tuple[str, int, str]

# The steps that are explained before a weight.
BEFORE_WEIGHTS = ("raw_scores", "scale", "scores", "mask", "masked_scores", "dropout_mask")

# The kinds of axes by name; all others are components.
KINDS = {"T": "token", "Tq": "query", "Tk": "key", "vocab": "id", "n_positions": "position"}
TOKENS = ("T", "Tq", "Tk")

# Titles of explanations with no, one and two positions; TITLES_OF if the first is in KINDS.
TITLES = ("{title}: {name}", "{title}: {name}, {first}", "{title}: {name}, {first}, {second}")
TITLES_OF = (
    "{title}: {name}",
    "{title}: {name} of {first}",
    "{title}: {name} of {first}, {second}",
)


def explain(
    result: Result, name: str, token: Choice = None, component: Choice = None, key: Choice = None
) -> Explanation:
    """Explain the arithmetic of one number of a step, or of a row of weights.

    The token chooses the row, by default the last token's, or a parameter's first row; the
    component, the number in it: for weights and scores, a key, by default all; for logits, a
    token's id or text, by default the most probable; else the first. `key` is another name for such
    a component.
    """
    is_probability = name == PROBABILITIES and "logits" in result.steps
    axes = result.axes_of("logits" if is_probability else name).split()
    if result.derivative_of:
        raise InvalidValueError(f"gradients can't be explained; got {result.title}")
    is_by_key = axes[-2:] == ["Tq", "Tk"]
    if key is not None and not is_by_key:
        raise InvalidValueError(f"{name} of {result.title} has no keys to choose from")
    if key is not None and component is not None:
        raise InvalidValueError("key and component are the same here; give only one")
    component = key if component is None else component
    if name == "rows_of_W_E":  # the same parameter
        return explain(result, "W_E", token, component)
    result = result.fork()  # steps computed below aren't kept in the caller's result
    if is_probability:
        return explain_probability(result, axes, token, component)
    if axes[0:1] == ["H"]:
        return explain_in_head(result, name, axes, token, component)
    is_from_weights = name in STEPS and (component is None or name == "weights")
    if is_by_key and is_from_weights and isinstance(result, Attention):
        if len(result.scores_shape) > 2 or result.V.ndim > 2:
            raise error_for_several(result, "weights", result.scores_shape)
        query = token_index(result, "query", -1 if token is None else token, result.Q.shape[0])
        if component is None:
            return explain_row(result, query)
        return explain_weight(result, query, token_index(result, "key", component, len(result.K)))
    value = getattr(result, name)
    if value is None:
        raise InvalidValueError(f"{result.title} was made without {name}")
    if np.ndim(value) > len(axes):
        raise error_for_several(result, name, np.shape(value))
    positions = positions_of(result, name, value, axes, token, component)
    step = StepNumber.of(result, name, tuple(number for _, number, _ in positions))
    return explain_number(step, positions)


def explain_number(step: StepNumber, positions: Sequence[Position]) -> Explanation:
    lines = lines_of(step)
    if inputs := [path for path, need in step.needs.values() if need is not None]:
        lines.append(Line(Message("computed from"), [", ".join(inputs)]))
    is_edited = step.name in step.result.steps and step.result.is_edited(step.name)
    numbers = {
        "step": step.path,
        **{kind: number for kind, number, _ in positions},
        "value": as_json(step.stored),
        "unedited": {step.name: as_json(step.computed)} if is_edited else {},
        **step.numbers,
    }
    title = title_of(step.result, step.name, positions)
    return Explanation(title, purpose(step.path), numbers, lines)


def explain_in_head(
    result: Result, name: str, axes: Sequence[str], token: Choice, component: Choice
) -> Explanation:
    """Explain a number of a step with all heads; components are numbered across the heads."""
    if name not in STEPS and getattr(result, name) is None:
        raise InvalidValueError(f"{result.title} was made without {name}")
    if axes[-2:] == ["Tq", "Tk"]:
        raise error_for_several(result, name, result.scores_shape)
    if name.endswith("_cache"):  # the first rows of K, or of V
        name = name.removesuffix("_cache")
        token = as_index(-1 if token is None else token, "key", result.tokens_before)
    shape = getattr(result, name).shape
    if len(shape) > 3:
        raise error_for_several(result, name, shape)
    n_head, _, width = shape
    column = as_index(0 if component is None else component, "component", n_head * width)
    return explain(result.heads[column // width], name, token, column % width)


def explain_probability(
    result: Result, axes: Sequence[str], token: Choice, component: Choice
) -> Explanation:
    """Explain a token's probability at temperature 1."""
    if np.ndim(result.logits) > len(axes):
        raise error_for_several(result, "logits", result.logits.shape)
    positions = positions_of(result, "logits", result.logits, axes, token, component)
    (_, row, _), (_, id, _) = positions
    probability = equations.softmax(result.logits[row].astype(np.float64))[id]
    step = StepNumber(
        result,
        PROBABILITIES,
        (row, id),
        equations.softmax,
        {"x": ("logits", result.logits)},
        stored=probability,
        computed=probability,
    )
    return explain_number(step, positions)


def error_for_several(result: Result, name: str, shape: tuple[int, ...]) -> InvalidValueError:
    """The error for a step with several heads or sequences."""
    path = f"{result._prefix}heads.0.{name}"
    example = f" (path {path})" if "heads" in result._children else ""
    return InvalidValueError(
        f"{result.title} has {name} of shape {shape}. To explain a number, first choose a "
        f"head, such as .heads[0]{example}, or a sequence, such as attention(Q[0], K[0], V[0])"
    )


def explain_weight(attention: Attention, query: int, key: int) -> Explanation:
    """Explain one weight, beginning with the dot product of query and key."""
    weight = StepNumber.of(attention, "weights", (query, key))
    names = [name for name in BEFORE_WEIGHTS if getattr(attention, name) is not None]
    earlier = {
        name: StepNumber.of(attention, name, () if name == "scale" else (query, key))
        for name in names
    }
    lines = [line for step in earlier.values() for line in lines_of(step, all_products=True)]
    lines += lines_of(weight)
    products = earlier["raw_scores"].numbers
    steps = {**earlier, "weights": weight}
    numbers = {
        "query": query,
        "key": key,
        "q": products["Q"],
        "k": products["K"],
        "products": products["products"],
        "dropout_mask": None,
        **{name: as_json(step.stored) for name, step in steps.items()},
        **{name: weight.numbers[name] for name in ("maximum", "shifted", "exp", "row_sum")},
        "unedited": {
            name: as_json(step.computed)
            for name, step in steps.items()
            if attention.is_edited(name)
        },
    }
    queries, keys = token_axes(attention)
    title = Message(
        "{title}: the weight of key {key} for query {query}",
        title=attention.title,
        query=queries.numbered_labels[query],
        key=keys.numbered_labels[key],
    )
    return Explanation(title, purpose("weights"), numbers, lines)


# ---- which number --------------------------------------------------------------------------------


def positions_of(
    result: Result, name: str, value: Any, axes: Sequence[str], token: Choice, component: Choice
) -> list[Position]:
    """A number's position along each axis."""
    indices = {"token": token, "component": component}
    if len(axes) < 2:
        kinds = ["token" if axes[0] == "T" else "component"] if axes else []
        for kind in indices.keys() - kinds:
            if indices[kind] is not None:
                raise InvalidValueError(
                    f"{name} of {result.title} has no {kind}s to choose from; got "
                    f"{quoted(indices[kind])}"
                )
        indices = {kind: indices[kind] for kind in kinds}
    is_matrix = len(axes) == 2 and not {*axes} & {*KINDS}
    positions: list[Position] = []
    for axis, count, choice in zip(axes, np.shape(value), indices.values(), strict=True):
        if axis in TOKENS:
            kind = KINDS[axis]
            number = token_index(result, kind, -1 if choice is None else choice, count)
            text = axis_of(result, axis, count).numbered_labels[number]
        elif axis == "vocab":
            kind = "id"
            row = value[positions[0][1]] if positions else value
            best = int(row.argmax()) if name in ("logits", "next_logits") else 0
            number, text = vocabulary_index(result, best if choice is None else choice, count)
        else:
            kind = KINDS.get(axis, "component")
            if is_matrix:
                kind = "column" if positions else "row"
            number = as_index(0 if choice is None else choice, kind, count)
            text = str(number)
        positions.append((kind, number, text))
    return positions


def title_of(result: Result, name: str, positions: Sequence[Position]) -> Message:
    """A number's title: its result, its step and its positions."""
    texts = [
        Message("{kind} {number}", kind=Message(kind), number=text) for kind, _, text in positions
    ]
    has_known_kind = bool(positions) and positions[0][0] in KINDS.values()
    template = (TITLES_OF if has_known_kind else TITLES)[len(texts)]
    values = dict(zip(("first", "second"), texts, strict=False))
    return Message(template, title=result.title, name=name, **values)
