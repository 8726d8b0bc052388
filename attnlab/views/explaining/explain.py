"""Explain the arithmetic of one number of any step."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np

from attnlab import equations
from attnlab.errors import InvalidValueError, quoted
from attnlab.steps import Result
from attnlab.steps.labels import axis_of, token_axes, token_index
from attnlab.support.checks import as_index
from attnlab.support.messages import Message
from attnlab.support.tables import ELLIPSIS, elide
from attnlab.views.explaining.explanation import Explanation, Line, Parts, Term, TermTable
from attnlab.views.explaining.step_number import StepNumber, as_json, lines_of
from attnlab.views.labelled_step import vocabulary_index
from attnlab.views.purposes import purpose

# Probabilities aren't a step of the model, because they depend on the sampling settings.
PROBABILITIES = "probabilities"

# What chooses a number along an axis: an index, a token's text, or None for the default.
Choice: TypeAlias = int | str | None

# A number's position along an axis: the axis's kind, such as "query", the index, and its label.
Position: TypeAlias = tuple[str, int, str]

COLUMNS_SHOWN = 7  # the number of V's columns in the table of a row of weights

# What an index along an axis is called, by the axis's name. On other axes it is a component.
KINDS = {"T": "token", "Tq": "query", "Tk": "key", "vocab": "id", "n_positions": "position"}
TOKENS = ("T", "Tq", "Tk")

# Titles of numbers with zero, one and two positions. TITLES_OF is for a first position in KINDS.
TITLES = ("{title}: {name}", "{title}: {name}, {first}", "{title}: {name}, {first}, {second}")
TITLES_OF = (
    "{title}: {name}",
    "{title}: {name} of {first}",
    "{title}: {name} of {first}, {second}",
)


def explain(
    result: Any, name: str, token: Choice = None, component: Choice = None, key: Choice = None
) -> Explanation:
    """Explain the arithmetic of one number of a step, or of a row of weights.

    `token` chooses the row: by default the last token's row, or a parameter's first row.
    `component` chooses the number in the row. For weights and scores, `component` is a key, by
    default all keys, and may be given as `key`. For logits it is a token's id or text, by default
    the most probable token's. For other steps it is an index, by default 0.
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
    if name == "rows_of_W_E":  # another name of the same parameter
        return explain(result, "W_E", token, component)
    result = result._fork()  # steps computed below aren't kept in the caller's result
    if is_probability:
        return explain_probability(result, axes, token, component)
    if axes and axes[0] == "H":
        return explain_in_head(result, name, axes, token, component)
    explains_row = component is None and is_computed(result, name)
    if is_by_key and (name == "weights" or explains_row) and "context" in result.steps:
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
    positions = resolved_positions(result, name, value, axes, token, component)
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
    title = number_title(step.result, step.name, positions)
    return Explanation(title, purpose(step.path), numbers, lines)


def explain_in_head(
    result: Any, name: str, axes: Sequence[str], token: Choice, component: Choice
) -> Explanation:
    """Explain a number of a step that has all heads. Its component counts across the heads."""
    if not is_computed(result, name) and getattr(result, name) is None:
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
    result: Any, axes: Sequence[str], token: Choice, component: Choice
) -> Explanation:
    """Explain a token's probability at temperature 1."""
    if np.ndim(result.logits) > len(axes):
        raise error_for_several(result, "logits", result.logits.shape)
    positions = resolved_positions(result, "logits", result.logits, axes, token, component)
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


def steps_to_weights(attention: Any) -> list[str]:
    """The steps from raw_scores to weights, in the order of the table, without absent steps."""
    names = attention._table_steps
    first = next(n for n, name in enumerate(names) if attention.axes_of(name) == "Tq Tk")
    to_weights = names[first : names.index("weights") + 1]
    return [name for name in to_weights if getattr(attention, name) is not None]


def is_computed(result: Result, name: str) -> bool:
    """Whether a step is computed, rather than an input or another name of a step."""
    return result.steps[name].equation not in (None, equations.identity)


def explain_weight(attention: Any, query: int, key: int) -> Explanation:
    """Explain one weight, starting with the dot product of query and key."""
    weight = StepNumber.of(attention, "weights", (query, key))
    earlier = {
        name: StepNumber.of(attention, name, (query, key) if attention.axes_of(name) else ())
        for name in steps_to_weights(attention)[:-1]
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
        "dropout_mask": None,  # if it isn't one of the steps
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


# ---- a row of weights ----------------------------------------------------------------------------


def explain_row(attention: Any, query: int) -> Explanation:
    """Explain a row of weights by a table of all keys and a table of the values."""
    shown = steps_to_weights(attention)
    steps = {
        name: StepNumber.of(attention, name, (query, slice(None)))
        for name in shown
        if attention.axes_of(name)
    }
    for name, step in steps.items():
        if is_computed(attention, name):
            step.verify(step.expected)
    weights, scale = steps["weights"], StepNumber.of(attention, "scale", ())
    queries, keys = (axis.numbered_labels for axis in token_axes(attention))
    best_key = int(steps["masked_scores"].stored.argmax())
    maximum = float(steps["masked_scores"].stored[best_key])
    intermediate = {name: weights.results[name].value.tolist() for name in ("shifted", "exp")}
    row_sum = float(weights.results["row_sum"].value)

    columns: dict[str, Sequence[Any]] = {}
    for name, step in steps.items():
        if name not in ("dropout_mask", "weights"):  # these columns come after the softmax
            columns |= columns_of(step)
    columns |= {Message("- maximum"): intermediate["shifted"], "exp": intermediate["exp"]}
    if "dropout_mask" in steps:
        columns["softmax"] = weights.results["softmax"].value.tolist()
        columns |= {"dropout_mask": terms(steps["dropout_mask"], steps["dropout_mask"].stored)}
    columns |= columns_of(weights)
    rows: list[Parts] = [[Message("key"), *columns]]
    for key, name in enumerate(keys):
        cells = (column[key] for column in columns.values())
        rows.append([name, *(x if isinstance(x, Term) else Term(x) for x in cells)])
    sums = {"exp": row_sum, "weights": math.fsum(weights.stored.tolist())}
    footer = [Message("sum"), *(Term(sums[name]) if name in sums else "" for name in columns)]

    (scale_line,) = lines_of(scale)
    assert isinstance(scale_line, Line)
    divisor = scale_line.text if scale.equation else str(Term(scale.stored))
    summary = Message(
        "scale = {scale}; the row's maximum is {maximum}, at key {key}; - maximum is the masked "
        "score minus the maximum, and softmax is exp / sum of exp",
        scale=divisor,
        maximum=Term(maximum),
        key=keys[best_key],
    )
    context = attention.context[query]
    edited = [name for name in steps if attention.is_edited(name)]
    unedited = {name: as_json(steps[name].computed) for name in edited}
    if attention.is_edited("context"):
        unedited["context"] = as_json(attention.unedited("context")[query])
    if attention.is_edited("scale"):
        unedited["scale"] = as_json(scale.computed)
    numbers = {
        "query": query,
        "key": None,
        "scale": as_json(scale.stored),
        "maximum": maximum,
        "row_sum": row_sum,
        "dropout_mask": None,  # if it isn't one of the steps
        **{name: as_json(step.stored) for name, step in steps.items()},
        **intermediate,
        "context": as_json(context),
        "unedited": unedited,
    }
    lines: list[Line | TermTable] = [
        *(Line(attention._heading_of(name), []) for name in shown),
        Line(summary, []),
        TermTable("", rows, [footer]),
        values_table(attention, query, keys, weights),
    ]
    title = Message(
        "{title}: the weights and context of query {query}",
        title=attention.title,
        query=queries[query],
    )
    return Explanation(title, purpose("weights"), numbers, lines)


def terms(step: StepNumber, row: Any) -> list[Term]:
    query, _ = step.index
    return [Term(x, path=step.path, index=(query, key)) for key, x in enumerate(row.tolist())]


def columns_of(step: StepNumber) -> dict[str, Sequence[Any]]:
    """The columns of a step: its numbers, after its unedited numbers if the step is edited."""
    columns: dict[str, Sequence[Any]] = {step.name: terms(step, step.stored)}
    if step.result.is_edited(step.name):
        unedited = Message("{name}, unedited", name=step.name)
        return {unedited: step.computed.tolist(), **columns}
    return {} if step.name == "mask" else columns  # masked_scores shows the mask


def values_table(attention: Any, query: int, keys: Sequence[str], weights: StepNumber) -> TermTable:
    """A table of the weights and V, and the weighted sum; long rows of V are shortened."""
    columns = elide(attention.V.shape[1], COLUMNS_SHOWN)
    context = {j: StepNumber.of(attention, "context", (query, j)) for j in columns if j is not None}
    for step in context.values():
        step.verify(step.expected)
    path = f"{attention._prefix}V"

    def line(name: str, weight: Any, numbers: Iterable[Any]) -> Parts:
        cells = dict(zip(context, numbers, strict=True))
        return [name, weight, *(ELLIPSIS if j is None else cells[j] for j in columns)]

    rows = [line(Message("key"), "weights", (f"V {j}" for j in context))]
    for key, (name, weight) in enumerate(zip(keys, terms(weights, weights.stored), strict=True)):
        numbers = (Term(attention.V[key, j].item(), path=path, index=(key, j)) for j in context)
        rows.append(line(name, weight, numbers))
    computed = (Term(as_json(x.computed), path=x.path, index=x.index) for x in context.values())
    feet = [line(Message("sum of weight · V"), "", computed)]
    if attention.is_edited("context"):
        stored = (Term(as_json(step.stored)) for step in context.values())
        feet.append(line(Message("edited here"), "", stored))
    return TermTable(attention._heading_of("context"), rows, feet)


# ---- which number --------------------------------------------------------------------------------


def resolved_positions(
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
    is_matrix = len(axes) == 2 and not {*axes} & {*KINDS}  # such as W_1, without tokens or ids
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


def number_title(result: Result, name: str, positions: Sequence[Position]) -> Message:
    """A number's title: its result, its step and its positions."""
    texts = [
        Message("{kind} {number}", kind=Message(kind), number=text) for kind, _, text in positions
    ]
    has_known_kind = bool(positions) and positions[0][0] in KINDS.values()
    template = (TITLES_OF if has_known_kind else TITLES)[len(texts)]
    values = dict(zip(("first", "second"), texts, strict=False))
    return Message(template, title=result.title, name=name, **values)
