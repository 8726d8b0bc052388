"""HTML views for notebooks, readable without a kernel, scripts or style sheets.

Jupyter removes style elements from untrusted notebooks, so a heatmap is a table of numbers with
inline colours. Where the style sheet of `attnlab.support.markup` is kept, it makes cells square.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from html import escape
from typing import Any

import numpy as np

from attnlab.equations import AnyArray
from attnlab.errors import AttnlabError
from attnlab.steps import Result
from attnlab.steps.labels import Axis, Grid
from attnlab.support.colours import DARK, LIGHT, ink_on
from attnlab.support.document import Document
from attnlab.support.markup import TOOLTIP_LENGTH, faint, page, piece, safe
from attnlab.support.markup import document as html_document
from attnlab.support.messages import say
from attnlab.support.scale import SHADES
from attnlab.support.tables import ELLIPSIS, Table, elide, label
from attnlab.text.tokens import Token
from attnlab.views.arcs import image, sentence, small_heads
from attnlab.views.labelled_step import (
    MASKED,
    SHOW_ALL,
    TOKENS_SHOWN,
    LabelledStep,
    indices_of,
    labelled_step,
    omission_note,
)

# The largest numbers of what a view shows.
COLUMNS_SHOWN = 16  # columns without tokens, such as Q's 64 columns
CELLS_SHOWN = 32  # rows and columns of an analysis
TEXTS_SHOWN = 12  # columns of an analysis whose cells have texts
NUMBERS_SHOWN = 24  # columns, in all heatmaps of an analysis, whose cells show numbers
GRIDS_SHOWN = 12  # heatmaps of an analysis
TEXT_LENGTH = 12  # characters of a text in a cell
SHORT = 5  # characters of a column label that isn't rotated above numbers

# The width in pixels of a layer's row of drawings, which has a drawing for each head.
ROW_WIDTH = 760

# The steps of a head whose heatmaps are collapsed below its drawing.
COLLAPSED = ("weights", "scores", "score_bias", "masked_scores", "Q", "K", "V", "context")


def result_view(result: Result) -> str:
    """A result's attention weights, and its table of steps.

    The view computes only steps that the result's `repr` computes too.
    """
    body: list[str] = []
    steps = f"<pre>{escape(result._table())}</pre>"
    if "weights" in result.steps:
        try:
            body += [*_attention(result)]
            steps = collapsed(steps)
        except AttnlabError as error:  # the table below is still shown
            body.append(faint(say("No weights: {error}", error=error)))
    body.append(steps)
    if result._hint:
        body.append(faint(say(result._hint)))
    return page(say(result.title), *body)


def collapsed(steps: str) -> str:
    """The table of steps, which opens with a click."""
    return f"<details><summary>{say('steps')}</summary>{steps}</details>"


def all_heads(layers: Iterable[Result]) -> str:
    """The weights of all layers' heads: a row of small drawings for each layer."""
    title = say("a row for each layer, a drawing for each head; the last word’s arcs are darkest")
    return f"<div>{title}</div>{''.join(map(_heads, layers))}"


def _heads(attention: Any) -> str:
    """The weights of a layer's heads as small drawings; heatmaps for gradients of weights."""
    step = labelled_step(attention, "weights")
    if not step.is_weights:  # arcs don't show the signs of gradients
        steps = ((head.title, labelled_step(head, "weights")) for head in attention.heads)
        return "".join(f"<div>{escape(say(title))}</div>{_heatmap(x)}" for title, x in steps)
    size = min(160, ROW_WIDTH / len(step.array))
    alt = f"{say(attention.title)}: {say(step.heading)}"
    is_self = attention.memory_tokens is None  # if so, the queries are the last keys
    return f"<div>{image(small_heads(step.array, is_self, size), alt)}</div>"


def _sentence(step: LabelledStep) -> str:
    """The words of the text, with the arcs of the last word in one head."""
    *_, keys = step.axes
    texts = [text.replace("Ġ", " ", 1) for text in keys.labels]
    row = step.array[-1]
    alt = say(
        "“{word}” looks at {others}",
        word=texts[-1].strip() or "␣",
        others=say(", ").join(
            f"“{texts[n].strip() or '␣'}” {row[n]:.2f}" for n in np.argsort(-row, kind="stable")[:3]
        ),
    )
    return f"<div>{image(sentence(texts, row), alt)}</div>"


def document_view(document: Document, pieces: Iterable[str | Table | Grid]) -> str:
    """A document's title, its heatmaps side by side, then its texts and tables.

    Below, the text that `print` shows opens with a click.
    """
    title, *rest = pieces
    assert isinstance(title, str)
    body = [grids_view([each for each in rest if isinstance(each, Grid)])]
    body += [piece(each) for each in rest if not isinstance(each, Grid)]
    text = f"<summary>{say('as text')}</summary><pre>{escape(repr(document))}</pre>"
    return html_document(title, *body, f"<details>{text}</details>")


def grids_view(grids: Sequence[Grid]) -> str:
    """Heatmaps side by side, with one legend if they share a scale."""
    if not grids:
        return ""
    has_numbers = sum(len(grid.axes[1].positions) for grid in grids) <= NUMBERS_SHOWN
    is_shared = len({grid.scale for grid in grids}) == 1
    drawn = []
    for i in elide(len(grids), GRIDS_SHOWN):
        if i is None:
            drawn.append(faint(say("… {more} more …", more=len(grids) - GRIDS_SHOWN)))
            continue
        title = f"<div>{safe(say(grids[i].heading))}</div>" if len(grids) > 1 else ""
        legend = "" if is_shared else _scale(grids[i])
        drawn.append(f"<div class=grid>{title}{_grid(grids[i], has_numbers)}{legend}</div>")
    return f"<div>{''.join(drawn)}</div>{_scale(grids[0]) if is_shared else ''}"


def _grid(grid: Grid, has_numbers: bool) -> str:
    """An analysis's heatmap; numbers or texts are in its cells, or else only in tooltips."""
    rows, columns = (replace(axis, names=tuple(map(say, axis.names))) for axis in grid.axes)
    sizes = np.abs(np.nan_to_num(grid.array))
    indices = [
        _indices_to_show(rows, sizes.max(axis=1, initial=0), CELLS_SHOWN),
        _indices_to_show(
            columns, sizes.max(axis=0, initial=0), TEXTS_SHOWN if grid.texts else CELLS_SHOWN
        ),
    ]
    has_text = bool(grid.texts) or has_numbers
    css_class = "map texts" if has_text else "map"
    longest = max((len(columns.labels[j]) for j in indices[1] if j is not None), default=0)
    css_class += " short" if longest <= (SHORT if has_text else 2) else ""
    size = _cell_size(len(indices[1]))
    caption = _axes_caption(rows, columns) if rows.name and columns.name else ""
    table = _cells(replace(grid, axes=(rows, columns)), indices, css_class=css_class, size=size)
    return f"{caption}{table}{_cut_note(map(_omission, (rows, columns), indices))}"


def _indices_to_show(axis: Axis, sizes: AnyArray, limit: int) -> list[int | None]:
    """The indices to show along an axis: the first and last tokens, or the largest numbers."""
    if axis.is_of_tokens:
        return indices_of(axis, min(limit, TOKENS_SHOWN))
    return sorted(np.argsort(-sizes, kind="stable")[:limit].tolist())


def _omission(axis: Axis, indices: list[int | None]) -> str:
    """What is left out along an axis of an analysis's heatmap; "" if nothing is left out."""
    if axis.is_of_tokens or len(indices) == len(axis.positions):
        return omission_note(axis, indices)
    return say(
        "the {shown} of {count}{named} with the largest numbers",
        shown=len(indices),
        count=len(axis.positions),
        named=say(" ({axis})", axis=say(axis.name)) if axis.name else "",
    )


def _cut_note(words: Iterable[str], hint: str = "") -> str:
    """A note on what is left out, with a hint on how to show it; "" if nothing is left out."""
    cut = [*dict.fromkeys(filter(None, words))]
    return faint(say("Shown: {word}", word=say(", ").join(cut)) + hint) if cut else ""


def _attention(attention: Any) -> Iterator[str]:
    """The weights as drawings or heatmaps; the other steps of a single head open with a click."""
    if not attention._is_stored("weights") and not attention._computes_for_repr("weights"):
        yield faint(say("The weights haven't been computed yet, since the text is long."))
        return
    fork = attention._fork()  # steps computed below aren't kept in the caller's result
    dimensions = fork.weights.ndim
    if dimensions == fork.V.ndim == 2:  # one head, one sequence
        weights = labelled_step(fork, "weights")
        is_text = weights.axes[1].has_tokens and fork.memory_tokens is None
        if is_text and weights.is_weights:
            yield _sentence(weights)
        else:
            yield f"<div>{escape(say(weights.heading))}</div>{_heatmap(weights)}"
        for name in COLLAPSED:
            is_shown = name == "weights" and not is_text
            if is_shown or getattr(fork, name) is None:  # such as the score_bias of GPT-2
                continue
            step = labelled_step(fork, name)
            details = f"<summary>{escape(say(step.heading))}</summary>{_heatmap(step)}"
            yield f"<details>{details}</details>"
    elif "concat" in attention._table_steps and dimensions == 3:
        yield _heads(fork)
    else:
        yield faint(say("Several sequences at once are shown as a table only."))


def _heatmap(step: LabelledStep) -> str:
    """A step's heatmap with labels, a legend and a note on what is left out."""
    indices = [
        indices_of(axis, TOKENS_SHOWN if axis.is_of_tokens else COLUMNS_SHOWN) for axis in step.axes
    ]
    size = _cell_size(max(len(axis.labels) for axis in step.axes))
    return (
        f"{_axes_caption(*step.axes)}{_cells(step, indices, css_class='map', size=size)}"
        f"{_scale(step)}{_tokens_note(step.axes, indices)}"
    )


def _cell_size(count: int) -> int:
    """The size of a heatmap's cell in pixels, which is smaller for many rows or columns."""
    return 18 if count <= COLUMNS_SHOWN else 13


def _axes_caption(rows: Axis, columns: Axis) -> str:
    names = {"rows": say(rows.name), "columns": say(columns.name)}
    return faint(say("{rows} down, {columns} across", **names))


def _tokens_note(axes: Sequence[Axis], indices: Sequence[list[int | None]]) -> str:
    """A note on the rows and columns that are left out."""
    notes = [*map(omission_note, axes, indices)]
    is_cut = any(note and axis.is_of_tokens for axis, note in zip(axes, notes, strict=True))
    hint = f"; .plot(...): {say(SHOW_ALL)}" if is_cut else ""
    return _cut_note(notes, hint)


def _cells(
    step: LabelledStep | Grid,
    indices: Sequence[list[int | None]],
    *,
    css_class: str,
    size: int,
) -> str:
    """The chosen rows and columns of a matrix as a table of coloured numbers."""
    rows, columns = step.axes
    scale = step.scale
    lines = [["<th></th>", *(_axis_label("c", columns, j) for j in indices[1])]]
    for i in indices[0]:
        line = [_axis_label("r", rows, i)]
        for j in indices[1]:
            if i is None or j is None:
                line.append(f"<td>{ELLIPSIS}</td>")
                continue
            tooltip = f"{escape(rows.labels[i])} → {escape(columns.labels[j])}: "
            value = float(step.array[i, j])
            if step.masked is not None and step.masked[i, j]:
                line.append(f'<td class=m title="{tooltip}{say("masked")}">{MASKED}</td>')
            elif math.isnan(value):
                line.append(f'<td class=m title="{tooltip}nan">nan</td>')
            else:
                index = scale.palette_indices(value)
                style = f"{_styles()[index]}{_dark_inks()[index] if 'texts' in css_class else ''}"
                number = f"{value:z.{step.decimals}f}"
                if isinstance(step, Grid) and step.texts:
                    number = safe(step.texts[i][j], TEXT_LENGTH)
                    tooltip += f"{safe(step.texts[i][j])} "
                line.append(f'<td style={style} title="{tooltip}{value:.4g}">{number}</td>')
        lines.append(line)
    body = "".join(f"<tr>{''.join(line)}</tr>" for line in lines)
    name = escape(say(step.heading), quote=True)
    return f'<table class="{css_class}" style=--cell:{size}px aria-label="{name}">{body}</table>'


@cache
def _styles() -> tuple[str, ...]:
    """The inline styles by palette index. `--d` is the background on dark pages."""
    return tuple(
        f"background:{light};color:{ink_on(light)};--d:{dark}"
        for light, dark in zip(LIGHT.palette(), DARK.palette(), strict=True)
    )


@cache
def _dark_inks() -> tuple[str, ...]:
    """Styles by palette index for text colours on dark pages; they follow the `_styles`."""
    return tuple(f";--i:{ink_on(dark)}" for dark in DARK.palette())


def _description(token: Token) -> str:
    """A token's symbol, text, bytes and id."""
    return say(
        "symbol {symbol} · text {text} · bytes {bytes} · id {id}",
        symbol=safe(token.symbol),
        text=safe(repr(token.text)),
        bytes=label(token.bytes.hex(" "), TOOLTIP_LENGTH),
        id=token.id,
    )


def _axis_label(css_class: str, axis: Axis, index: int | None) -> str:
    if index is None:
        return f"<th class={css_class}>{ELLIPSIS}</th>"
    token = axis.tokens[index]
    details = "" if token is None else f" · {_description(token)}"
    tooltip = f"{say(axis.name)} {axis.positions[index]}{details}"
    return f'<th class={css_class} title="{tooltip}">{escape(axis.labels[index])}</th>'


def _scale(step: LabelledStep | Grid) -> str:
    """The legend: about 16 of the colours, with their range."""
    scale = step.scale
    styles = _styles() if scale.is_signed else _styles()[SHADES:]  # without negative numbers
    styles = styles[:: len(styles) // 16]
    bar = "".join(f"<span style={style}>&nbsp;</span>" for style in styles)
    middle = say("0 in the middle") if scale.is_signed else ""
    low, high = (f"{tick:.4g}" for tick in (scale.ticks[0], scale.ticks[-1]))
    caption = say(", ").join(filter(None, (high, middle, say(scale.note))))
    masked = step.masked is not None and step.masked.any()
    mask = f" <span class=m>&nbsp;{MASKED}&nbsp;</span> {say('masked')}" if masked else ""
    return f"<div class=faint>{low} {bar} {caption}{mask}</div>"
