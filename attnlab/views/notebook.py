"""HTML views for notebooks, readable without a kernel, scripts or style sheets.

Jupyter removes style elements from untrusted notebooks, so a heatmap is a table of numbers with
inline colours. The style sheet, in `attnlab.support.markup`, turns its cells into squares.
"""

from __future__ import annotations

import math
import struct
import zlib
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from html import escape
from typing import Any

import numpy as np

from attnlab.equations import AnyArray
from attnlab.errors import AttnlabError
from attnlab.steps import Result
from attnlab.steps.labels import Axis, Grid, token_axes
from attnlab.support.colours import DARK, LIGHT, ink_on
from attnlab.support.console import StdoutSafe
from attnlab.support.document import Document
from attnlab.support.markup import document as html_document
from attnlab.support.markup import faint, page, piece, safe
from attnlab.support.messages import say
from attnlab.support.scale import SHADES
from attnlab.support.tables import ELLIPSIS, Table, elide
from attnlab.text.chips import chips, description
from attnlab.views.labelled_step import (
    MASKED,
    SHOW_ALL,
    TOKENS_SHOWN,
    LabelledStep,
    indices_of,
    labelled_step,
    omission_note,
)

# The most tokens along each axis of a small heatmap.
SMALL_SHOWN = 16

# The most columns that are not tokens, such as the 64 of Q.
COLUMNS_SHOWN = 16

# The most rows and columns of a result's heatmap, and columns if its cells hold texts.
CELLS_SHOWN = 32
TEXTS_SHOWN = 12

# Results whose heatmaps have more columns than this show their numbers in tooltips only.
NUMBERS_SHOWN = 24

# The most heatmaps of a result.
GRIDS_SHOWN = 12

# The approximate width in pixels of a layer's row of images, one per head.
ROW_WIDTH = 760

# The most characters of a text in a cell.
TEXT_LENGTH = 12

# Longer labels of columns with numbers are rotated, in characters.
SHORT = 5

# The steps of a head whose heatmaps are collapsed below its weights.
COLLAPSED = ("scores", "score_bias", "masked_scores", "Q", "K", "V", "context")


def result_view(result: Result, tokens: slice | None = None) -> str:
    """Tokens, attention weights as heatmaps, and the table of steps.

    Nothing is computed that the result's `repr` wouldn't compute.
    """
    body: list[str] = []
    steps = f"<pre>{escape(result._table())}</pre>"
    if result.tokens is not None and "weights" not in result.steps:
        body.append(chips(result.tokens))
    if "weights" in result.steps:
        try:
            body += [*_attention(result, tokens)]
            steps = collapsed(steps)
        except AttnlabError as error:  # the table below still works
            body.append(faint(say("No weights: {error}", error=error)))
    body.append(steps)
    if result._hint:
        body.append(faint(say(result._hint)))
    return page(say(result.title), *body)


def collapsed(steps: str) -> str:
    """The table of steps, closed until it is clicked."""
    return f"<details><summary>{say('steps')}</summary>{steps}</details>"


def all_heads(layers: Iterable[Result]) -> str:
    """The weights of all layers' heads: a row of small images for each layer."""
    steps = [labelled_step(attention, "weights") for attention in layers]
    H, _, Tk = steps[0].array.shape
    size = max(2, min(8, ROW_WIDTH // (H * (Tk + 1))))
    numbers = "".join(f"<th width={(Tk + 1) * size}>{h}</th>" for h in range(H))
    rows = [f"<tr><th></th>{numbers}</tr>"]
    for layer, step in enumerate(steps):
        alt = say(
            "layer {layer}: {heading} of {H} heads", layer=layer, heading=say(step.heading), H=H
        )
        pixels = _pixels(step).repeat(size, axis=0).repeat(size, axis=1)
        image = (
            f'<img alt="{escape(alt, quote=True)}" '
            f'src="data:image/png;base64,{b64encode(_png(pixels)).decode()}">'
        )
        rows.append(f"<tr><th>{layer}</th><td colspan={H}>{image}</td></tr>")
    title = say(
        "{heading}: a row for each layer, a picture for each head; in each, query down, key across",
        heading=say(steps[0].heading),
    )
    table = f"<table class=layers>{''.join(rows)}</table>"
    return f"<div>{escape(title)}</div>{table}{_scale(steps[0])}"


def _pixels(step: LabelledStep) -> AnyArray:
    """All heads side by side as colour indices: 0 gap, 1 masked, then weights from 0 to 1."""
    cells = step.scale.palette_indices(np.clip(step.array, 0, 1)) - SHADES + 2
    if step.masked is not None:
        cells[step.masked] = 1
    return np.hstack([*np.pad(cells, ((0, 0), (0, 0), (0, 1)))])


def _png(indices: AnyArray) -> bytes:
    """A PNG of colour indices (h, w). Source: PNG specification, third edition."""
    height, width = indices.shape
    palette = "".join((LIGHT.paper, LIGHT.paper, *LIGHT.palette()[SHADES:])).replace("#", "")
    lines = np.pad(indices, ((0, 0), (1, 0))).astype(np.uint8)  # each line starts with filter 0
    chunks = {
        b"IHDR": struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0),  # 8-bit palette
        b"PLTE": bytes.fromhex(palette),
        b"tRNS": b"\xff\x00",  # masked is transparent, over stripes
        b"IDAT": zlib.compress(lines.tobytes(), 9),
        b"IEND": b"",
    }
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in chunks.items()
    )


@dataclass(frozen=True, repr=False)
class View(StdoutSafe):
    """HTML in a notebook, and text elsewhere."""

    html: str
    text: str

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return self.html


def document_view(document: Document, pieces: Iterable[str | Table | Grid]) -> str:
    """A document's title and other pieces: heatmaps side by side, then texts and tables.

    The text that `print` shows is collapsed below.
    """
    title, *rest = pieces
    assert isinstance(title, str)
    body = [grids_view([one for one in rest if isinstance(one, Grid)])]
    body += [piece(one) for one in rest if not isinstance(one, Grid)]
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
    """A result's heatmap, with numbers or texts in its cells or in tooltips only."""
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
    size = 18 if len(indices[1]) <= COLUMNS_SHOWN else 13
    caption = _axes_caption(rows, columns) if rows.name and columns.name else ""
    table = _cells(replace(grid, axes=(rows, columns)), indices, css_class=css_class, size=size)
    return f"{caption}{table}{_cut_note(map(_omission, (rows, columns), indices))}"


def _indices_to_show(axis: Axis, sizes: AnyArray, limit: int) -> list[int | None]:
    """The indices to show along an axis: of tokens the first and last, otherwise the largest."""
    if axis.is_of_tokens:
        return indices_of(axis, min(limit, TOKENS_SHOWN))
    return sorted(np.argsort(-sizes, kind="stable")[:limit].tolist())


def _omission(axis: Axis, indices: list[int | None]) -> str:
    """What is left out along an axis of a result's heatmap; "" if nothing is."""
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


def view_of_tokens(attention: Result, tokens: slice | None) -> View:
    """The view of an attention that shows the chosen tokens."""
    for axis in token_axes(attention):
        indices_of(axis, TOKENS_SHOWN, tokens)  # raises before drawing
    return View(result_view(attention, tokens), repr(attention))


def _attention(attention: Any, tokens: slice | None) -> Iterator[str]:
    """The weights as heatmaps, and the other steps of a single head collapsed."""
    if not attention._is_stored("weights") and not attention._computes_for_repr("weights"):
        yield faint(say("The weights haven't been computed yet, since the text is long."))
        return
    fork = attention._fork()  # steps computed below aren't kept in the caller's result
    dimensions = fork.weights.ndim
    if dimensions == fork.V.ndim == 2:  # one head, one sequence
        weights = labelled_step(fork, "weights")
        yield f"<div>{escape(say(weights.heading))}</div>{_heatmap(weights, tokens)}"
        for name in COLLAPSED:
            if getattr(fork, name) is None:  # GPT-2's scores have no bias
                continue
            step = labelled_step(fork, name)
            details = f"<summary>{escape(say(step.heading))}</summary>{_heatmap(step, tokens)}"
            yield f"<details>{details}</details>"
    elif "concat" in attention._table_steps and dimensions == 3:
        yield from _heads(fork, tokens)
    else:
        yield faint(say("Several sequences at once are shown as a table only."))


def _heads(attention: Result, tokens: slice | None) -> Iterator[str]:
    """The weights of a layer's heads as small heatmaps without labels."""
    weights = labelled_step(attention, "weights")
    _, *axes = weights.axes
    indices = _indices(axes, SMALL_SHOWN, tokens)
    yield f"<div>{escape(say(weights.heading))}</div>"
    for h, matrix in enumerate(weights.array):
        masked = None if weights.masked is None else weights.masked[h]
        head = LabelledStep(weights.name, weights.heading, matrix, tuple(axes), masked)
        cells = _cells(head, indices, css_class="map", size=8, has_labels=False)
        style = "style=display:inline-block;margin-right:10px"
        yield f"<div {style}>{faint(say('head {h}', h=h))}{cells}</div>"
    yield _scale(weights)
    yield _tokens_note(axes, indices, tokens)


def _heatmap(step: LabelledStep, tokens: slice | None) -> str:
    """One matrix with labels, legend and a note on what is left out."""
    indices = _indices(step.axes, TOKENS_SHOWN, tokens)
    size = 18 if max(len(axis.labels) for axis in step.axes) <= COLUMNS_SHOWN else 13
    return (
        f"{_axes_caption(*step.axes)}{_cells(step, indices, css_class='map', size=size)}"
        f"{_scale(step)}{_tokens_note(step.axes, indices, tokens)}"
    )


def _indices(axes: Sequence[Axis], limit: int, tokens: slice | None) -> list[list[int | None]]:
    """The indices to show along each axis, at most `limit` of tokens."""
    return [
        indices_of(axis, limit if axis.is_of_tokens else COLUMNS_SHOWN, tokens) for axis in axes
    ]


def _axes_caption(rows: Axis, columns: Axis) -> str:
    names = {"rows": say(rows.name), "columns": say(columns.name)}
    return faint(say("{rows} down, {columns} across", **names))


def _tokens_note(
    axes: Sequence[Axis], indices: Sequence[list[int | None]], tokens: slice | None
) -> str:
    """A note on the rows and columns that are left out."""
    words = [*map(omission_note, axes, indices)]
    is_cut = any(word and axis.is_of_tokens for axis, word in zip(axes, words, strict=True))
    hint = f"; .show(...): {say(SHOW_ALL)}" if is_cut and tokens is None else ""
    return _cut_note(words, hint)


def _cells(
    step: LabelledStep | Grid,
    indices: Sequence[list[int | None]],
    *,
    css_class: str,
    size: int,
    has_labels: bool = True,
) -> str:
    """The chosen rows and columns of a matrix as a table of coloured numbers."""
    rows, columns = step.axes
    scale = step.scale
    lines = []
    if has_labels:
        lines.append(["<th></th>", *(_axis_label("c", columns, j) for j in indices[1])])
    for i in indices[0]:
        line = [_axis_label("r", rows, i)] if has_labels else []
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
    """Inline styles by palette index; `--d` is the background on dark pages."""
    return tuple(
        f"background:{light};color:{ink_on(light)};--d:{dark}"
        for light, dark in zip(LIGHT.palette(), DARK.palette(), strict=True)
    )


@cache
def _dark_inks() -> tuple[str, ...]:
    """Text colours on dark pages by palette index, to append to `_styles`."""
    return tuple(f";--i:{ink_on(dark)}" for dark in DARK.palette())


def _axis_label(css_class: str, axis: Axis, index: int | None) -> str:
    if index is None:
        return f"<th class={css_class}>{ELLIPSIS}</th>"
    token = axis.tokens[index]
    details = "" if token is None else f" · {description(token)}"
    tooltip = f"{say(axis.name)} {axis.positions[index]}{details}"
    return f'<th class={css_class} title="{tooltip}">{escape(axis.labels[index])}</th>'


def _scale(step: LabelledStep | Grid) -> str:
    """The legend: about 16 of the colours, with their range."""
    scale = step.scale
    styles = (
        _styles()[:: 2 * SHADES // 16] if scale.is_signed else _styles()[SHADES :: SHADES // 15]
    )
    bar = "".join(f"<span style={style}>&nbsp;</span>" for style in styles)
    middle = say("0 in the middle") if scale.is_signed else ""
    low, high = (f"{tick:.4g}" for tick in (scale.ticks[0], scale.ticks[-1]))
    caption = say(", ").join(filter(None, (high, middle, say(scale.note))))
    masked = step.masked is not None and step.masked.any()
    mask = f" <span class=m>&nbsp;{MASKED}&nbsp;</span> {say('masked')}" if masked else ""
    return f"<div class=faint>{low} {bar} {caption}{mask}</div>"
