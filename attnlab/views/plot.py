"""Pictures with matplotlib, of a step of one head or of all heads.

Figures are created without pyplot, so no figure stays open. Tokens are drawn literally: `$`, `_`
and `^` don't start a formula.
"""

from __future__ import annotations

import io
import math
import os
import textwrap
import unicodedata
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cache
from html import escape
from typing import Any

import numpy as np

from attnlab.equations import AnyArray
from attnlab.errors import InvalidValueError, quoted
from attnlab.steps import Result
from attnlab.steps.labels import Axis
from attnlab.support.checks import check_kind, importing_extra
from attnlab.support.colours import LIGHT, ink_on
from attnlab.support.console import StdoutSafe
from attnlab.support.files import as_path, write_atomically
from attnlab.support.language import CHINESE, ENGLISH, language_of, using_language
from attnlab.support.markup import page
from attnlab.support.messages import counted, say, translations
from attnlab.support.scale import SHADES, WEIGHTS, Scale
from attnlab.support.tables import ELLIPSIS, display_width, label, printable
from attnlab.text.tokens import Token
from attnlab.views.labelled_step import (
    SHOW_ALL,
    TOKENS_SHOWN,
    indices_of,
    labelled_matrix,
    labelled_step,
    omission_note,
    per_head,
)

with importing_extra("plot"):
    from matplotlib import font_manager, rc_context, rcParams
    from matplotlib.axes import Axes
    from matplotlib.colors import BoundaryNorm, ListedColormap
    from matplotlib.figure import Figure
    from matplotlib.ticker import AutoLocator, ScalarFormatter

TILE_SHOWN = 32  # the largest number of rows and of columns of each head in `plot_heads`

# The size of a cell that has a label beside it, and the width of a label's character.
INCHES_PER_LABEL, INCHES_PER_CHARACTER = 0.28, 0.085

# A title's line has at most TITLE_PER_INCH characters per inch of the figure, and at most
# TITLE_PER_OPEN_INCH per inch to the right of the row labels and of AXIS_INCHES for an axis's name.
TITLE_PER_INCH, TITLE_PER_OPEN_INCH, AXIS_INCHES = 11, 13, 0.3

# The largest number of an analysis's rows or columns without tokens, such as the logit lens's 25
# points in GPT-2 or its 144 heads, and of columns with a token in each cell.
NAMES_SHOWN, WORDS_SHOWN = 160, 16

# The largest number of a token's characters in a cell, their size in points, and their width.
WORD_LENGTH, WORD_POINTS, WORD_INCHES_PER_CHARACTER = 10, 7.5, 0.068

# The largest size of a picture, and the smallest space for a label. Other labels are skipped.
MAX_INCHES, MIN_INCHES = 24, 0.1

LABEL_POINTS = 36  # the font size of a label, per inch of its cell
FITS_A_COLUMN = 2  # the largest width of a column label that isn't rotated, such as 猫
PIXELS = 2  # a saved picture's pixels for each pixel on the screen, so that text is sharp

# The metadata key for alt text, by file format. PDF has no such key.
DESCRIPTIONS = {"png": "Description", "svg": "Description"}

CHINESE_FONT = "a font with Chinese is fonts-noto-cjk (apt-get install fonts-noto-cjk)"

# The note below a picture whose labels are in English because no font has Chinese.
_font_note: ContextVar[str] = ContextVar("font note", default="")


@contextmanager
def drawing_in(language: str | None = None) -> Iterator[None]:
    """Draw in a language, by default the user's, or in English if no font has Chinese."""
    language = language_of(language)
    if language == CHINESE and fonts_for(frozenset("".join(translations().values())))[1]:
        token = _font_note.set(f"labels are in English; {CHINESE_FONT}")
        with using_language(ENGLISH):
            try:
                yield
            finally:
                _font_note.reset(token)
    else:
        with using_language(language):
            yield


@dataclass(frozen=True, eq=False, repr=False)
class Picture(StdoutSafe):
    """A picture. A notebook shows a picture that a cell ends with."""

    axes: Axes  # matplotlib's Axes; you can draw more into them
    alt: str  # alt text for screen readers
    _is_new_figure: bool

    @property
    def figure(self) -> Figure:
        figure = self.axes.get_figure(root=True)
        assert figure is not None
        return figure

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the picture to a .png, .svg or .pdf file. Text in an SVG file stays text."""
        file = as_path(path)
        kind = file.suffix.lower().removeprefix(".")
        if kind not in self.figure.canvas.get_supported_filetypes():
            raise InvalidValueError(
                f"{quoted(file.name)} has no known picture format: end it in .png, .svg or .pdf"
            )
        write_atomically(file, self._encode(kind, PIXELS * self.figure.dpi))

    def _encode(self, kind: str, dpi: float) -> bytes:
        file = io.BytesIO()
        metadata = {DESCRIPTIONS[kind]: self.alt} if kind in DESCRIPTIONS else None
        with rc_context({"svg.fonttype": "none"}):
            self.figure.savefig(file, format=kind, dpi=dpi, metadata=metadata)
        return file.getvalue()

    def __repr__(self) -> str:
        return self.alt

    def _repr_mimebundle_(self, **_: object) -> tuple[dict[str, str], dict[str, Any]]:
        """The picture for a notebook; only a text if the figure is the caller's."""
        text = {"text/plain": repr(self)}
        if not self._is_new_figure:
            return text, {}
        dpi = self.figure.dpi
        width, height = (round(inches * dpi) for inches in self.figure.get_size_inches())
        png = b64encode(self._encode("png", PIXELS * dpi)).decode()
        # Exported notebooks keep alt text only in HTML; the PNG is for viewers without HTML.
        html = (
            f'<img alt="{escape(printable(self.alt))}" width={width} height={height} '
            f'style="max-width:100%;height:auto;image-rendering:auto" '
            f'src="data:image/png;base64,{png}">'
        )
        size = {"width": width, "height": height, "alt": self.alt}
        return {"text/html": page("", html), "image/png": png, **text}, {"image/png": size}


def plot_step(
    attention: Result, name: str, ax: Axes | None, tokens: slice | None = None
) -> Picture:
    """Draw a step of one head as a heatmap, with tokens along both axes."""
    step = labelled_matrix(attention, name, "draw all of them with trace.plot()")
    single_row = Axis("", range(1), tokens=(None,))
    rows, columns = step.axes if len(step.axes) == 2 else (single_row, *step.axes)
    array = np.atleast_2d(step.array).astype(np.float64)
    if step.masked is not None:
        array[step.masked] = np.nan
    title = f"{say(attention.title)}\n{say(step.heading)}"
    return plot_matrix(array, rows, columns, title, ax, tokens, step.scale)


def plot_table(
    array: AnyArray,
    rows: Axis,
    columns: Axis,
    title: str,
    ax: Axes | None,
    tokens: slice | None,
    cells: Sequence[Sequence[Token]] = (),
) -> Picture:
    """Draw an analysis's numbers as a heatmap; `cells` may have a token for each cell."""
    rows, columns = (replace(axis, names=tuple(map(say, axis.names))) for axis in (rows, columns))
    return plot_matrix(array, rows, columns, say(title), ax, tokens, cells=cells, most=NAMES_SHOWN)


def plot_matrix(
    array: AnyArray,
    rows: Axis,
    columns: Axis,
    title: str,
    into: Axes | None,
    tokens: slice | None = None,
    scale: Scale | None = None,
    *,
    cells: Sequence[Sequence[Token]] = (),
    most: int = TOKENS_SHOWN,
) -> Picture:
    """Draw numbers (m, n) as a heatmap, labelled along both axes; NaN is hatched.

    `tokens` selects the tokens to show; None shows as many as fit. `most` is the largest number of
    indices of other axes. The tokens in `cells` are written into the cells if they fit. By default
    the scale is `Scale.of(array)`.
    """
    scale = scale or Scale.of(array)
    axes = rows, columns
    tokens_shown = WORDS_SHOWN if cells and into is None else TOKENS_SHOWN
    rows_shown, columns_shown = indices = [
        indices_of(x, tokens_shown if x.is_of_tokens else most, tokens) for x in axes
    ]
    height = min(INCHES_PER_LABEL, MAX_INCHES / max(map(len, indices)))
    every = math.ceil(MIN_INCHES / height)  # only every second, third, ... label may be drawn
    cell_axes = [Axis("", range(len(row)), tuple(row)) for row in cells]
    words = Words([*axes, *cell_axes], title)
    texts = [[label(text, WORD_LENGTH) for text in words.labels(axis)] for axis in cell_axes]
    longest = max((display_width(text) for row in texts for text in row), default=0)
    width = max(height, WORD_INCHES_PER_CHARACTER * (longest + 1))
    if width * len(columns_shown) > MAX_INCHES or into is not None:
        texts, width = [], height
    # Labels and the colour bar need about 2 inches more.
    ax = axes_for(into, len(columns_shown) * width + 2.5, len(rows_shown) * height + 2)
    _image(ax, _with_gaps(array, rows_shown, columns_shown), words, scale)
    for axis, shown_indices, set_ticks, span in (
        (rows, rows_shown, ax.set_yticks, ax.axhspan),
        (columns, columns_shown, ax.set_xticks, ax.axvspan),
    ):
        for gap in (n for n, index in enumerate(shown_indices) if index is None):
            span(gap - 0.5, gap + 0.5, color=LIGHT.paper)
        names = words.labels(axis)
        labels = [ELLIPSIS if n is None else names[n] for n in shown_indices][::every]
        style: dict[str, Any] = {"parse_math": False, "family": words.fonts}
        if axis is columns and max(map(display_width, labels)) > FITS_A_COLUMN:
            style["rotation"] = 90
        if height < INCHES_PER_LABEL:
            style["fontsize"] = min(every * height, INCHES_PER_LABEL) * LABEL_POINTS
        set_ticks(range(0, len(shown_indices), every), labels, **style)
    inks = [ink_on(colour) for colour in LIGHT.palette()]
    for y, i in enumerate(rows_shown if texts else ()):
        for x, j in enumerate(columns_shown):
            if i is not None and j is not None:
                ax.text(
                    x,
                    y,
                    texts[i][j],
                    ha="center",
                    va="center",
                    fontsize=WORD_POINTS,
                    color=inks[int(scale.palette_indices(array[i, j]))],
                    parse_math=False,
                    family=words.fonts,
                )
    ax.set_xlabel(say(columns.name), family=words.fonts)
    ax.set_ylabel(say(rows.name), family=words.fonts)
    visible = [[n for n in shown_indices if n is not None] for shown_indices in indices]
    largest, cell = _largest(array[np.ix_(*visible)])
    by_axis = [*zip(axes, visible, cell, strict=True)]
    # The single row of a vector has no name, so the alt text leaves it out.
    labelled = [
        (axis, shown_indices, n)
        for axis, shown_indices, n in by_axis
        if axis.name or len(axis.positions) > 1
    ] or by_axis[1:]
    size = " x ".join(str(len(shown_indices)) for _, shown_indices, _ in labelled)
    names_of_axes = say(" by ").join(say(axis.name) for axis, _, _ in labelled if axis.name)
    alt = say(
        "Heatmap{of}: {size}; the largest is {largest} at {cell}",
        of=in_title(title),
        size=say(", ").join(filter(None, (size, names_of_axes))),
        largest=largest,
        cell=say(", ").join(axis.in_words(shown_indices[n]) for axis, shown_indices, n in labelled),
    )
    return finish(ax, into, words, title, alt, *_omission_notes(axes, indices, tokens))


def plot_heads(
    title: str, layers: Sequence[Result], name: str, into: Axes | None, tokens: slice | None = None
) -> Picture:
    """Draw a step of all layers' heads, a row of small heatmaps for each layer; NaN is hatched."""
    known = per_head(layers[0])
    if not isinstance(name, str) or name not in known:
        raise InvalidValueError(
            f"{quoted(name)} is not a step of each head; choose one of {', '.join(known)}"
        )
    arrays, is_weights = [], True
    for attention in layers:
        step = labelled_step(attention, name)
        axes = step.axes[1:]
        indices = [indices_of(axis, TILE_SHOWN, tokens) for axis in axes]
        visible = [[n for n in shown_indices if n is not None] for shown_indices in indices]
        tile = np.ix_(range(len(step.array)), *visible)
        heads = step.array[tile].astype(np.float64)
        if step.masked is not None:
            heads[step.masked[tile]] = np.nan
        arrays.append(heads)
        is_weights = is_weights and step.is_weights
    rows, columns = axes
    title, tiles = f"{say(title)}\n{say(step.heading)}", np.stack(arrays)
    L, H, *_ = tiles.shape
    # Each head gets an empty row below and an empty column to the right.
    framed = np.pad(tiles, ((0, 0), (0, 0), (0, 1), (0, 1)), constant_values=np.nan)
    array = np.vstack([np.hstack([*heads]) for heads in framed])
    height, width = array.shape[0] // L, array.shape[1] // H  # the size of a head's tile
    ax = axes_for(into, max(4.0, 0.75 * H + 2), max(3.0, 0.75 * L + 1.5))
    words = Words([], title)
    _image(ax, array, words, WEIGHTS if is_weights else Scale.of(tiles))
    # A cell extends 0.5 to each side of its index. The paper's colour covers the empty rows and
    # columns.
    for i in range(1, L):
        ax.axhspan(i * height - 1.5, i * height - 0.5, color=LIGHT.paper)
    for j in range(1, H):
        ax.axvspan(j * width - 1.5, j * width - 0.5, color=LIGHT.paper)
    ax.set_ylim(L * height - 1.5, -0.5)
    ax.set_xlim(-0.5, H * width - 1.5)
    ax.set_yticks(np.arange(L) * height + (height - 2) / 2, [str(i) for i in range(L)])
    ax.set_xticks(np.arange(H) * width + (width - 2) / 2, [str(h) for h in range(H)])
    across = say("head; in each, {columns} across", columns=say(columns.name))
    down = say("layer; in each, {rows} down", rows=say(rows.name))
    ax.set_xlabel(across, family=words.fonts)
    ax.set_ylabel(down, family=words.fonts)
    largest, (row, column) = _largest(array)
    alt = say(
        "Heatmaps{of}: {layers} of {heads}; the largest is {largest} in layer {layer}, head {head}",
        of=in_title(title),
        layers=counted(L, "layer"),
        heads=counted(H, "head"),
        largest=largest,
        layer=row // height,
        head=column // width,
    )
    return finish(ax, into, words, title, alt, *_omission_notes(axes, indices, tokens))


def axes_for(into: Axes | None, width: float, height: float) -> Axes:
    """The Axes to draw into: the caller's Axes, or new Axes in a new figure."""
    if into is not None:
        check_kind(into, Axes, "ax")
        return into
    return Figure(figsize=(width, height), layout="constrained").subplots()


def finish(
    ax: Axes,
    into: Axes | None,
    words: Words,
    title: str,
    alt: str,
    omissions: Sequence[str] = (),
    hints: Sequence[str] = (),
) -> Picture:
    """Add the title and notes. The alt text has the `omissions` too, but not the `hints`."""
    text = "\n".join(filter(None, [words.escaped(title), *omissions, *hints, words.note]))
    figure = ax.get_figure()
    assert figure is not None
    longest = max((len(label.get_text()) for label in ax.get_yticklabels()), default=0)
    inches = figure.bbox.width / figure.dpi
    fits = (inches - INCHES_PER_CHARACTER * longest - AXIS_INCHES) * TITLE_PER_OPEN_INCH
    width = max(20, int(min(inches * TITLE_PER_INCH, fits)))
    lines = [line for part in text.split("\n") for line in textwrap.wrap(part, width)]
    ax.set_title(
        "\n".join(lines), fontsize="small", loc="left", parse_math=False, family=words.fonts
    )
    return Picture(ax, say("; ").join([alt, *omissions]), into is None)


def in_title(title: str) -> str:
    """The title as a part of an alt text, " of ..."; "" without a title."""
    return say(" of {name}", name=title.replace("\n", say(", "))) if title else ""


def _largest(array: AnyArray) -> tuple[str, tuple[int, int]]:
    """The largest finite number of a matrix as text, and its index."""
    finite = np.where(np.isfinite(array), array.astype(np.float64), -np.inf)
    i, j = divmod(int(finite.argmax()), array.shape[1])
    return f"{array[i, j]:.4g}", (i, j)


def _omission_notes(
    axes: Sequence[Axis], indices: Sequence[Sequence[int | None]], tokens: slice | None
) -> tuple[list[str], list[str]]:
    """Notes on what is left out, and a hint on how to show everything if that is possible."""
    words = filter(None, map(omission_note, axes, indices))
    has_gap = any(axis.name and None in shown for axis, shown in zip(axes, indices, strict=True))
    hints = [say(SHOW_ALL)] if tokens is None and has_gap else []
    return [say("shown: {word}", word=word) for word in words], hints


def _with_gaps(
    array: AnyArray, rows: Sequence[int | None], columns: Sequence[int | None]
) -> AnyArray:
    """The rows and columns to show, with NaN in the gaps between them."""
    shown = array[np.ix_([i or 0 for i in rows], [j or 0 for j in columns])]
    shown[[i is None for i in rows]] = np.nan
    shown[:, [j is None for j in columns]] = np.nan
    return shown


def _image(ax: Axes, shown: AnyArray, words: Words, scale: Scale) -> None:
    """Draw numbers as colours, with a colour bar; NaN is hatched."""
    colours = LIGHT.palette() if scale.is_signed else LIGHT.palette()[SHADES:]
    image = ax.imshow(
        np.ma.masked_invalid(shown),
        cmap=ListedColormap(colours, "attnlab"),
        norm=BoundaryNorm(scale.boundaries, len(colours), clip=True),
        interpolation="nearest",
        aspect="auto",
    )
    ax.patch.set(facecolor=LIGHT.paper, edgecolor=LIGHT.masked, hatch="/////", linewidth=0)
    figure = ax.get_figure()
    assert figure is not None
    if scale.is_sqrt:
        bar = figure.colorbar(image, ax=ax, shrink=0.6, ticks=scale.ticks, format="%g")
        bar.set_label(say(scale.note), fontsize="small", family=words.fonts)
    else:
        ticks: dict[str, Any] = {"spacing": "proportional", "ticks": AutoLocator()}
        bar = figure.colorbar(image, ax=ax, shrink=0.6, format=ScalarFormatter(), **ticks)
    bar.minorticks_off()


class Words:
    """Labels that the installed fonts can draw.

    A token is drawn in its readable form, with Ġ for a space, or as its symbol if no font has its
    characters. If no font has a character of the symbol either, the character is escaped, and
    `note` says so. The first of the `fonts` is matplotlib's default.
    """

    def __init__(self, axes: Iterable[Axis], title: str) -> None:
        texts = [title, *(text for axis in axes for text in (*axis.names, *axis.labels))]
        texts += translations().values() if language_of() == CHINESE else []
        self.fonts, self._missing = fonts_for(frozenset("".join(texts)))
        notes = [_font_note.get()] if _font_note.get() else []
        if self._missing:
            notes.append(say("characters missing from the fonts are shown as symbols"))
            if any(unicodedata.name(c, "").startswith("CJK ") for c in self._missing):
                notes.append(CHINESE_FONT)
        self.note = ";\n".join(notes)

    def labels(self, axis: Axis) -> list[str]:
        return [
            self.escaped(text if token is None else label(token.symbol))
            if self._missing & set(text)
            else text
            for token, text in zip(axis.tokens, axis.labels, strict=True)
        ]

    def escaped(self, text: str) -> str:
        """The text, with escapes for characters that no font has."""
        return "".join(ascii(c)[1:-1] if c in self._missing else c for c in text)


def fonts_for(characters: frozenset[str]) -> tuple[list[str], frozenset[str]]:
    """Font families for the characters, starting with the default, and the missing characters."""
    families = list(rcParams["font.family"])
    default = font_manager.findfont(font_manager.FontProperties(family=families))
    missing = characters - _characters(default) - {"\n"}
    for entry in _known_fonts() if missing else ():
        covered = missing & _characters(entry.fname)
        if covered:
            families.append(entry.name)
            missing -= covered
    return families, missing


def _known_fonts() -> list[font_manager.FontEntry]:
    """matplotlib's fonts: plain fonts first, and Simplified Chinese before other Chinese."""

    def order(entry: font_manager.FontEntry) -> tuple[bool, bool, bool]:
        name = entry.name
        return "Serif" in name or "Mono" in name, entry.style != "normal", name[-3:] != " SC"

    # matplotlib's Last Resort font draws a box for every character.
    entries = font_manager.fontManager.ttflist
    return sorted((e for e in entries if not e.name.startswith("Last Resort")), key=order)


@cache
def _characters(path: str) -> frozenset[str]:
    """The characters of a font file; no characters if the file can't be read."""
    try:
        return frozenset(map(chr, font_manager.get_font(path).get_charmap()))
    except (OSError, RuntimeError):
        return frozenset()
