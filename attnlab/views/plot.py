"""Pictures with matplotlib: a step of one head, all heads at once, and one token's lines to others.

Figures made here are no part of pyplot's state, so that none stays open. What tokens say is drawn
as it is: `$`, `_` and `^` in it are no formulas.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import numpy as np

from attnlab.checks import check_kind
from attnlab.equations import AnyArray
from attnlab.errors import InvalidValueError
from attnlab.errors import shown as quoted
from attnlab.tables import ELLIPSIS, elide
from attnlab.views.colours import LIGHT
from attnlab.views.explain import place
from attnlab.views.shown import (
    TOKENS_SHOWN,
    Axis,
    Result,
    Token,
    label,
    missing_extra,
    per_head,
    shown,
    shown_matrix,
)

try:
    from matplotlib import font_manager, rc_context, rcParams
    from matplotlib.axes import Axes
    from matplotlib.colors import LinearSegmentedColormap, Normalize
    from matplotlib.figure import Figure
except ModuleNotFoundError as error:
    raise missing_extra(error, "plot") from None

# How many rows and columns of each head the picture of all heads shows.
TILE_SHOWN = 32

INCHES_PER_LABEL = 0.28

ABOVE_ZERO = LinearSegmentedColormap.from_list("attnlab", [LIGHT.zero, LIGHT.positive])
AROUND_ZERO = LinearSegmentedColormap.from_list(
    "attnlab around zero", [LIGHT.negative, LIGHT.zero, LIGHT.positive]
)


class Picture(Figure):
    """A figure whose SVG keeps text as text, and that a notebook shows as PNG."""

    def savefig(self, *arguments: Any, **settings: Any) -> None:
        with rc_context({"svg.fonttype": "none"}):
            super().savefig(*arguments, **settings)

    def _repr_png_(self) -> bytes:
        written = io.BytesIO()
        self.savefig(written, format="png")
        return written.getvalue()


def plot_step(attention: Result, name: str, ax: Axes | None) -> Axes:
    """One step of one head as a heatmap, its tokens along both axes."""
    step = shown_matrix(attention, name, "picture all of them with trace.plot()")
    rows, columns = step.axes if len(step.axes) == 2 else (Axis("", range(1), (None,)), *step.axes)
    array = np.atleast_2d(step.array).astype(np.float64)
    if step.masked is not None:
        array[step.masked] = np.nan
    return plot_matrix(array, rows, columns, f"{attention.title}\n{step.heading}", ax)


def plot_matrix(array: AnyArray, rows: Axis, columns: Axis, title: str, ax: Axes | None) -> Axes:
    """Numbers (m, n) as a heatmap, labelled along both axes; NaN is hatched."""
    shown_rows, shown_columns = (
        elide(len(axis.positions), TOKENS_SHOWN) for axis in (rows, columns)
    )
    height, width = (len(shown) * INCHES_PER_LABEL for shown in (shown_rows, shown_columns))
    ax = _axes(ax, width + 2.5, height + 2)
    _image(ax, _cut(array, shown_rows, shown_columns), array)
    for places, span in ((shown_rows, ax.axhspan), (shown_columns, ax.axvspan)):
        for gap in (n for n, index in enumerate(places) if index is None):
            span(gap - 0.5, gap + 0.5, color=LIGHT.paper)
    words = Words([rows, columns])
    for places, axis, set_ticks in (
        (shown_rows, rows, ax.set_yticks),
        (shown_columns, columns, ax.set_xticks),
    ):
        texts = [ELLIPSIS if n is None else words.of(axis)[n] for n in places]
        turned: dict[str, Any] = {"rotation": 90} if axis is columns else {}
        set_ticks(range(len(texts)), texts, parse_math=False, family=words.fonts, **turned)
    ax.set_xlabel(columns.name)
    ax.set_ylabel(rows.name)
    cut = [_cut_word(axis) for axis in (rows, columns) if len(axis.positions) > TOKENS_SHOWN]
    _title(ax, title, [*cut, words.note])
    return ax


def plot_heads(trace: Result, name: str, ax: Axes | None) -> Axes:
    """One step of all heads, a row of small heatmaps for each layer."""
    known = per_head(trace.blocks[0].attention)
    if not isinstance(name, str) or name not in known:
        raise InvalidValueError(
            f"heads have no step {quoted(name)} each; those are {', '.join(known)}"
        )
    layers = []
    for block in trace.blocks:
        step = shown(block.attention, name)
        _, rows, columns = step.axes
        places = (
            [n for n in elide(len(axis.positions), TILE_SHOWN) if n is not None]
            for axis in (rows, columns)
        )
        picked = np.ix_(range(len(step.array)), *places)
        heads = step.array[picked].astype(np.float64)
        if step.masked is not None:
            heads[step.masked[picked]] = np.nan
        layers.append(np.hstack([_framed(head) for head in heads]))
    array = np.vstack(layers)
    L, H = len(layers), len(heads)
    high, wide = array.shape[0] // L, array.shape[1] // H
    ax = _axes(ax, max(4.0, 0.75 * H + 2), max(3.0, 0.75 * L + 1.5))
    _image(ax, array, array)
    for i in range(1, L):
        ax.axhspan(i * high - 1.5, i * high - 0.5, color=LIGHT.paper)
    for j in range(1, H):
        ax.axvspan(j * wide - 1.5, j * wide - 0.5, color=LIGHT.paper)
    ax.set_ylim(L * high - 1.5, -0.5)
    ax.set_xlim(-0.5, H * wide - 1.5)
    ax.set_yticks(np.arange(L) * high + (high - 2) / 2, [str(i) for i in range(L)])
    ax.set_xticks(np.arange(H) * wide + (wide - 2) / 2, [str(h) for h in range(H)])
    ax.set_xlabel(f"head; in each, {columns.name} across")
    ax.set_ylabel(f"layer; in each, {rows.name} down")
    cut = [
        _cut_word(axis, TILE_SHOWN) for axis in (rows, columns) if len(axis.positions) > TILE_SHOWN
    ]
    _title(ax, f"{trace.title}\n{step.heading}", cut)
    return ax


def plot_tokens(trace: Result, layer: int, head: int, query: int, ax: Axes | None) -> Axes:
    """Lines from one token to those that it looks at, as strong as the weights."""
    one = trace.head(layer, head)
    step = shown(one, "weights")
    queries, keys = step.axes
    query = place(query, "query", len(queries.positions))
    weights = step.array[query]
    masked = step.masked[query] if step.masked is not None else np.zeros(len(weights), bool)
    largest = np.sort(np.argsort(-weights, kind="stable")[:TOKENS_SHOWN])  # the largest, in order
    rest = len(weights) - len(largest)
    words = Words([queries, keys])
    ax = _axes(ax, 5.5, (len(largest) + 1) * INCHES_PER_LABEL + 1.2)
    middle = (len(largest) - 1) / 2
    settings: dict[str, Any] = {"va": "center", "parse_math": False, "family": words.fonts}
    for y, key in enumerate(largest):
        colour = LIGHT.faint if masked[key] else LIGHT.ink
        number = "masked" if masked[key] else f"{weights[key]:.2f}"
        text = f"{words.of(keys)[key]}  {number}"
        ax.text(-0.02, y, text, ha="right", color=colour, **settings)
        if not masked[key]:
            strength = float(np.clip(weights[key], 0, 1))
            ax.plot(
                [0, 1],
                [y, middle],
                color=LIGHT.positive,
                linewidth=0.5 + 7 * strength,
                alpha=0.3 + 0.7 * strength,
                solid_capstyle="butt",
            )
    if rest:
        text = f"{ELLIPSIS} {rest} more, {np.delete(weights, largest).sum():.2f} together"
        ax.text(-0.02, len(largest), text, ha="right", color=LIGHT.faint, **settings)
    ax.text(1.02, middle, words.of(queries)[query], ha="left", color=LIGHT.ink, **settings)
    ax.set_xlim(-0.6, 1.4)
    ax.set_ylim(len(largest) + bool(rest) - 0.5, -0.5)
    ax.set_axis_off()
    cut = [f"shown: the {len(largest)} largest of {len(weights)}"] if rest else []
    _title(ax, f"{one.title}\nweights of query {queries.positions[query]}", [*cut, words.note])
    return ax


def _axes(given: Axes | None, width: float, height: float) -> Axes:
    """Where to draw: the Axes that are given, else those of a new figure."""
    if given is not None:
        check_kind(given, Axes, "ax")
        return given
    return Picture(figsize=(width, height), layout="constrained").subplots()


def _title(ax: Axes, title: str, notes: Iterable[str]) -> None:
    lines = [title, *(note for note in notes if note)]
    ax.set_title("\n".join(lines), fontsize="small", loc="left", parse_math=False)


def _cut_word(axis: Axis, limit: int = TOKENS_SHOWN) -> str:
    return f"shown: the first {limit - 1} and the last of {len(axis.positions)} ({axis.name})"


def _cut(array: AnyArray, rows: Sequence[int | None], columns: Sequence[int | None]) -> AnyArray:
    """The rows and columns that are shown, and nothing where some are left out."""
    cut = array[np.ix_([i or 0 for i in rows], [j or 0 for j in columns])]
    cut[[i is None for i in rows]] = np.nan
    cut[:, [j is None for j in columns]] = np.nan
    return cut


def _framed(array: AnyArray) -> AnyArray:
    """With an empty row below and an empty column to the right."""
    return np.pad(array, (0, 1), constant_values=np.nan)


def _image(ax: Axes, shown: AnyArray, array: AnyArray) -> None:
    """Numbers as colours, with their scale; what is masked is hatched."""
    finite = array[np.isfinite(array)]
    largest = float(np.abs(finite).max()) if finite.size else 0.0
    largest = largest or 1.0
    below = bool((finite < 0).any())
    image = ax.imshow(
        np.ma.masked_invalid(shown),
        cmap=AROUND_ZERO if below else ABOVE_ZERO,
        norm=Normalize(-largest if below else 0, largest),
        interpolation="nearest",
        aspect="auto",
    )
    ax.patch.set(facecolor=LIGHT.paper, edgecolor=LIGHT.masked, hatch="/////", linewidth=0)
    figure = ax.get_figure()
    assert figure is not None
    figure.colorbar(image, ax=ax, shrink=0.6)


class Words:
    """Labels that the fonts at hand can draw.

    A token is drawn as people read it, with a space as Ġ; where no font has its characters, or it
    is only part of one, as its symbol.

    Attributes
    ----------
    fonts : families to draw the labels with, the usual one first
    note : a word on symbols that stand for what no font has, else ""
    """

    def __init__(self, axes: Iterable[Axis]) -> None:
        self._axes = list(axes)
        wanted = {
            character
            for axis in self._axes
            for token in axis.tokens
            if token is not None
            for character in readable(token)
        }
        self.fonts, self._missing = fonts_for(frozenset(wanted))
        lost = any(
            token is not None and not self._drawn(token)
            for axis in self._axes
            for token in axis.tokens
        )
        self.note = "symbols stand for characters that no font here has" if lost else ""

    def of(self, axis: Axis) -> list[str]:
        """The labels along an axis."""
        return [
            label(readable(token)) if token is not None and self._drawn(token) else symbol
            for token, symbol in zip(axis.tokens, axis.labels, strict=True)
        ]

    def _drawn(self, token: Token) -> bool:
        return not self._missing & set(readable(token))


def readable(token: Token) -> str:
    """A token as people read it, cut if it is long."""
    return label(token.readable)


def fonts_for(characters: frozenset[str]) -> tuple[list[str], frozenset[str]]:
    """Families that together have the characters, the usual one first, and what none has."""
    families = list(rcParams["font.family"])
    usual = font_manager.findfont(font_manager.FontProperties(family=families))
    missing = characters - _characters(usual)
    for entry in font_manager.fontManager.ttflist if missing else ():
        if entry.name.startswith("Last Resort"):  # matplotlib's, which draws boxes for all there is
            continue
        found = missing & _characters(entry.fname)
        if found:
            families.append(entry.name)
            missing -= found
    return families, missing


@cache
def _characters(path: str) -> frozenset[str]:
    """What a font file can draw; nothing, if it can't be read."""
    try:
        return frozenset(map(chr, font_manager.get_font(path).get_charmap()))
    except (OSError, RuntimeError):
        return frozenset()
