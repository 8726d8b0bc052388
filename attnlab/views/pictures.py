"""Pictures of your own numbers: a matrix, maps of the plane, arrows, curves.

>>> from attnlab import pictures
>>> pictures.heatmap([[0.7, 0.3], [0.2, 0.8]], rows=["猫", "吃"], columns=["猫", "吃"])

Each function returns a `Picture`. A notebook shows a picture that a cell ends with, and
`picture.save("picture.svg")` writes it. Labels can be any text, and are drawn literally. The
library's own words are in the language of ATTNLAB_LANGUAGE, or of the locale.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from attnlab.equations import AnyArray
from attnlab.errors import InvalidTypeError, InvalidValueError, quoted
from attnlab.steps.labels import Axis
from attnlab.support.checks import as_reals, check_kind, check_shape, importing_extra
from attnlab.support.colours import LIGHT
from attnlab.support.messages import say
from attnlab.support.tables import label, labels
from attnlab.views.plot import Picture, Words, axes_for, drawing_in, finish, in_title, plot_matrix

with importing_extra("plot"):
    from matplotlib.axes import Axes
    from matplotlib.collections import LineCollection
    from matplotlib.patches import Polygon
    from matplotlib.text import Text
    from matplotlib.ticker import MaxNLocator

# The largest numbers of things that a picture can show clearly.
MAX_VECTORS = 24
MAX_MATRICES = 8
MAX_CURVES = 16
LABEL_LENGTH = 32  # characters in a label

# The largest number that can be drawn. Larger numbers overflow in matplotlib's layout of axes.
LARGEST = 1e100

# The smallest extent of the grid on the plane, and the largest number of lines on each side of 0.
GRID, GRID_LINES = 2, 8

PANEL_INCHES = 2.6  # the width and height of a panel

# Curves also differ in dashes and markers, for black-and-white print.
COLOURS = LIGHT.positive, LIGHT.negative, LIGHT.ink, LIGHT.faint
DASHES = "-", "--", ":", "-."
MARKERS = "o", "s", "^", "D"
MARKED = 10  # points of a curve

# A label may be in 16 directions, none along an axis, at 9 distances (in pt): 144 candidates.
ANGLES = np.arange(0.5, 16) * math.tau / 16
DIRECTIONS = np.tile([(math.cos(t), math.sin(t)) for t in ANGLES], (9, 1))  # (144, 2)
DISTANCES = np.repeat([4, 8, 12, 18, 26, 36, 48, 64, 84], 16)[:, np.newaxis]  # (144, 1)
FAR = 20  # beyond this distance, a line joins a label to its point
MARGIN = 3  # the gap around a label, in pixels

Label = tuple[str, AnyArray, str]  # text, point, colour
Stroke = tuple[AnyArray, AnyArray]  # the two ends of a line


@drawing_in()
def heatmap(
    array: ArrayLike,
    rows: Sequence[object] | None = None,
    columns: Sequence[object] | None = None,
    title: str = "",
    ax: Axes | None = None,
) -> Picture:
    """A matrix as colours: orange above zero, blue below.

    Parameters
    ----------
    array : numbers (m, n), or (n,) for one row; NaN and infinite numbers are hatched
    rows, columns : m and n labels, such as words; by default the indices
    title : the picture's title
    ax : matplotlib's Axes to draw into; None for a new figure
    """
    numbers = _as_reals(array, "array", "biuf")
    if numbers.ndim not in (1, 2) or not numbers.size:
        raise InvalidValueError(
            f"a heatmap shows a matrix of numbers, such as weights[head]; got shape {numbers.shape}"
        )
    matrix = np.atleast_2d(numbers)
    m, n = matrix.shape
    check_kind(title, str, "title")
    return plot_matrix(matrix, _axis(rows, m, "rows"), _axis(columns, n, "columns"), title, ax)


@drawing_in()
def plane(
    matrices: Mapping[str, ArrayLike | tuple[ArrayLike, ArrayLike]],
    points: Mapping[str, ArrayLike] | None = None,
    title: str = "",
    ax: Axes | None = None,
) -> Picture:
    """What matrices do to the plane: to a grid, the basis vectors and the unit square.

    A point is a row vector x, as in Q = X W_Q, and becomes x W, or x W + b. So the basis vectors
    (1, 0) and (0, 1) become the rows of W. The first panel shows the plane before any map. All
    panels have the same scale.

    Parameters
    ----------
    matrices : a mapping from names to W (2, 2), or to a pair of W and a bias b (2,), such as
        {"W_Q": W_Q, "W_K": (W_K, b_K)}
    points : a mapping from labels to points (2,), to which the matrices are applied too
    title : the picture's title
    ax : matplotlib's Axes to draw into, whose panels are `ax.child_axes`; None for a new figure
    """
    named = _as_mapping(matrices, "matrices", "{'W_Q': W_Q}", MAX_MATRICES)
    maps = [(say("before"), np.eye(2), np.zeros(2))]
    maps += [(name, *_as_affine(x, f"matrices[{quoted(name)}]")) for name, x in named.items()]
    dots = {} if points is None else _as_vectors(points, "points")
    words = _words_for([*(name for name, _, _ in maps), *dots], title)
    farthest = max([GRID, *(float(np.abs(point).max()) for point in dots.values())])
    reach = math.ceil(farthest) if farthest <= GRID_LINES else farthest  # lines at whole numbers
    along = np.linspace(-reach, reach, 2 * min(math.ceil(reach), GRID_LINES) + 1)
    grid = [((x, -reach), (x, reach)) for x in along] + [((-reach, y), (reach, y)) for y in along]
    size = 1.05 * max(float(np.abs(np.array(grid) @ W + b).max()) for _, W, b in maps)  # a margin
    across = 2 if len(maps) in (2, 4) else 3  # the number of panels in a row
    down = math.ceil(len(maps) / across)
    outer = axes_for(ax, PANEL_INCHES * across, PANEL_INCHES * down + 0.3)
    outer.set_axis_off()
    items = "; ".join(
        say(
            "{name} takes (1, 0) to {first} and (0, 1) to {second}",
            name=name,
            first=_pair(W[0] + b),
            second=_pair(W[1] + b),
        )
        for name, W, b in maps[1:]
    )
    alt = say("Maps of the plane{of}: {items}", of=in_title(title), items=items)
    picture = finish(outer, ax, words, title, alt)
    labelled = []
    for n, (name, W, b) in enumerate(maps):
        row, column = divmod(n, across)
        # Each panel leaves room for its name above, and for the numbers along its axes.
        bounds = (column / across, 1 - (row + 0.88) / down, 0.86 / across, 0.78 / down)
        panel = outer.inset_axes(bounds)
        panel.set(xlim=(-size, size), ylim=(-size, size), aspect="equal")
        panel.tick_params(labelsize="small")
        panel.set_title(
            _short_label(words, name), fontsize="medium", parse_math=False, family=words.fonts
        )
        labelled.append((panel, *_put_map(panel, W, b, np.array(grid), dots)))
    _put_labels(words, labelled)
    return picture


@drawing_in()
def arrows(vectors: Mapping[str, ArrayLike], title: str = "", ax: Axes | None = None) -> Picture:
    """2-D vectors, each starting at the end of the vector before, and their sum, a thicker arrow.

    `vectors` are (2,) by label, such as {"0.37 · 猫": weights[0] * V[0], ...}. `title` and `ax` are
    as in `heatmap`.
    """
    named = _as_vectors(vectors, "vectors")
    ends = np.cumsum([*named.values()], axis=0)
    starts, total = ends - [*named.values()], ends[-1]
    alt = say(
        "Arrows head to tail{of}: {items}; their sum is {total}",
        of=in_title(title),
        items=_in_words(named),
        total=_pair(total),
    )
    return _arrows_from(starts, named, title, ax, alt, total)


@drawing_in()
def points(vectors: Mapping[str, ArrayLike], title: str = "", ax: Axes | None = None) -> Picture:
    """Arrows from the origin to 2-D vectors (2,) by label, such as {"猫": X[0], "吃": X[1]}."""
    named = _as_vectors(vectors, "vectors")
    alt = say("Arrows from the origin{of}: {items}", of=in_title(title), items=_in_words(named))
    return _arrows_from(np.zeros((len(named), 2)), named, title, ax, alt)


def _arrows_from(
    starts: AnyArray,
    named: Mapping[str, AnyArray],
    title: str,
    into: Axes | None,
    alt: str,
    total: AnyArray | None = None,
) -> Picture:
    """Draw arrows from `starts` (n, 2), labelled at their tips, or halfway if there is a total."""
    vectors = np.array([*named.values()])
    words = _words_for([*named], title)
    ax = _plane(into, np.vstack([starts, starts + vectors]))
    labelled: list[Label] = []
    strokes: list[Stroke] = [*zip(starts, starts + vectors, strict=True)]
    if total is not None:
        _arrows(ax, np.zeros((1, 2)), total[np.newaxis], LIGHT.positive, strength=2)
        labelled.append((say("sum"), total / 2, LIGHT.positive))
        strokes.append((np.zeros(2), total))
    _arrows(ax, starts, vectors, LIGHT.negative)
    points = starts + vectors / (1 if total is None else 2)
    labelled += [(text, point, LIGHT.ink) for text, point in zip(named, points, strict=True)]
    picture = finish(ax, into, words, title, alt)
    _put_labels(words, [(ax, labelled, strokes)])
    return picture


@drawing_in()
def curves(
    curves: Mapping[str, ArrayLike],
    x: ArrayLike | None = None,
    x_name: str = "",
    y_name: str = "",
    title: str = "",
    ax: Axes | None = None,
) -> Picture:
    """Curves (n,) by label, which differ in colour, dashes and markers.

    NaN and infinite numbers leave gaps. `x` are the n numbers along the x axis, by default 0, 1, 2,
    ...; `x_name` and `y_name` label the axes; `title` and `ax` are as in `heatmap`.
    """
    lines = {
        name: _as_row(numbers, f"curve {quoted(name)}")
        for name, numbers in _as_mapping(curves, "curves", "{'loss': losses}", MAX_CURVES).items()
    }
    along = None if x is None else _as_row(x, "x")
    for name, numbers in lines.items():
        if along is not None and len(along) != len(numbers):
            raise InvalidValueError(
                f"curve {quoted(name)} has {len(numbers)} numbers, and x has {len(along)}. "
                "They must have equally many"
            )
    check_kind(x_name, str, "x_name")
    check_kind(y_name, str, "y_name")
    words = _words_for([*lines, x_name, y_name], title)
    axes = axes_for(ax, 5.5, 3.6)
    descriptions = []
    for n, (name, numbers) in enumerate(lines.items()):
        xs = np.arange(len(numbers)) if along is None else along
        # After each turn through the colours, dashes and markers are shifted to new combinations.
        turn = n // len(COLOURS)
        every = math.ceil(len(numbers) / MARKED)  # every second, third, ... point is marked
        axes.plot(
            xs,
            np.where(np.isfinite(numbers), numbers, np.nan),
            color=COLOURS[n % len(COLOURS)],
            linestyle=DASHES[(n + turn) % len(DASHES)],
            marker=MARKERS[(n + 2 * turn) % len(MARKERS)],
            markevery=(n * every // len(lines), every),  # not at the other curves' marked points
            markersize=4.5,
        )
        descriptions.append(f"{name} {_ends_in_words(xs, numbers)}")
    if [*lines] != [y_name]:  # the y axis may already name a single curve
        _put_legend(axes, words, lines)
    _open_frame(axes)
    axes.set_xlabel(words.escaped(x_name), parse_math=False, family=words.fonts)
    axes.set_ylabel(words.escaped(y_name), parse_math=False, family=words.fonts)
    lost = sum(int((~np.isfinite(numbers)).sum()) for numbers in lines.values())
    notes = [say("not drawn: {lost} NaN or infinite", lost=lost)] if lost else []
    alt = say("Curves{of}: {items}", of=in_title(title), items="; ".join(descriptions))
    return finish(axes, ax, words, title, alt, hints=notes)


def _put_map(
    ax: Axes, W: AnyArray, b: AnyArray, grid: AnyArray, dots: Mapping[str, AnyArray]
) -> tuple[list[Label], list[Stroke]]:
    """Draw a grid of lines (n, 2, 2), basis vectors, their square and points, mapped by x W + b.

    Returns labels to be placed, and strokes for them to avoid. A point is a stroke of length 0.
    """
    _cross(ax)
    ax.add_collection(LineCollection(list(grid @ W + b), colors=LIGHT.faint, linewidths=0.6))
    square = np.array([(0, 0), (1, 0), (1, 1), (0, 1)]) @ W + b
    ax.add_patch(Polygon(square, color=LIGHT.ink, alpha=0.15, linewidth=0))
    labelled: list[Label] = []
    strokes: list[Stroke] = [(b, tip) for tip in W + b]
    for vector, colour in zip(W, (LIGHT.positive, LIGHT.negative), strict=True):
        _arrows(ax, b[np.newaxis], vector[np.newaxis], colour)
        labelled.append((_pair(vector + b, 3), vector + b, colour))
    for text, point in dots.items():
        moved = point @ W + b
        ax.plot(*moved, "o", color=LIGHT.ink, markersize=4.5)
        labelled.append((text, moved, LIGHT.ink))
        strokes.append((moved, moved))
    return labelled, strokes


def _plane(into: Axes | None, points: AnyArray) -> Axes:
    """Axes of equal scale that show the origin and points (n, 2)."""
    ax = axes_for(into, 5, 4.2)
    _cross(ax)
    ax.update_datalim(np.vstack([points, np.zeros(2)]))
    ax.margins(0.12)
    ax.set_aspect("equal", adjustable="datalim")
    return ax


def _cross(ax: Axes) -> None:
    """Draw the two axes through the origin, with a few ticks."""
    for line in (ax.axhline, ax.axvline):
        line(0, color=LIGHT.masked, linewidth=1, zorder=0.5)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    _open_frame(ax)


def _open_frame(ax: Axes) -> None:
    """Hide the frame at the top and right."""
    ax.spines[["top", "right"]].set_visible(False)


def _arrows(
    ax: Axes, starts: AnyArray, vectors: AnyArray, colour: str, strength: float = 1
) -> None:
    """Draw arrows. Arrows with less `strength` are thinner, and lie above stronger arrows."""
    ax.quiver(
        *starts.T,
        *vectors.T,
        angles="xy",
        scale_units="xy",
        scale=1,
        units="inches",
        width=0.028 * strength,
        color=colour,
        zorder=3 - strength / 2,
    )


def _put_labels(
    words: Words, panels: Sequence[tuple[Axes, Sequence[Label], Sequence[Stroke]]]
) -> None:
    """Lay out a figure's finished axes, and write each label near its point."""
    figure = panels[0][0].get_figure(root=True)
    assert figure is not None
    figure.draw_without_rendering()  # only once for all panels, since this takes long
    for ax, labelled, strokes in panels:
        _label(ax, figure.dpi, words, labelled, strokes)


def _label(
    ax: Axes, dpi: float, words: Words, labelled: Iterable[Label], strokes: Iterable[Stroke]
) -> None:
    """Write labels near their points, away from each other and from the strokes if possible.

    A thin line joins a label to its point if the label is far away.
    """
    pixels = dpi / 72  # the size of a point, 1/72 inch, in pixels
    to_pixels = ax.transData.transform
    # Points along the strokes, at most three pixels apart.
    stroke_points = np.vstack(
        [
            np.linspace(start, end, 2 + int(math.hypot(*(end - start)) / 3))
            for start, end in map(to_pixels, strokes)
        ]
    )
    frame = ax.get_window_extent()
    taken: list[tuple[AnyArray, AnyArray]] = []  # lower left and upper right corners in pixels
    for text, point, colour in labelled:
        note = ax.annotate(
            _short_label(words, text),
            tuple(point),
            (0, 0),
            textcoords="offset points",
            ha="center",
            va="center",
            color=colour,
            parse_math=False,
            family=words.fonts,
            bbox={"facecolor": LIGHT.paper, "alpha": 0.75, "linewidth": 0, "pad": 0},
            arrowprops={"arrowstyle": "-", "color": LIGHT.faint, "linewidth": 0.7, "shrinkB": 0},
        )
        half = np.array(Text.get_window_extent(note).size) / 2
        offsets = DISTANCES * DIRECTIONS + half / pixels * DIRECTIONS  # (n, 2), in points
        low = to_pixels(point) + offsets * pixels - half
        high = low + 2 * half
        overlaps = sum(((low < top) & (bottom < high)).all(axis=1) for bottom, top in taken)
        outside = ((low < frame.min) | (high > frame.max)).any(axis=1)
        near = (low[:, np.newaxis] - MARGIN < stroke_points) & (
            stroke_points < high[:, np.newaxis] + MARGIN
        )
        crossed = np.minimum(near.all(axis=2).sum(axis=1), 20)
        far = np.hypot(*offsets.T)
        # It is worst to overlap a label, then to leave the frame, to cross strokes, to be far away.
        best = int(np.argmin(1000 * overlaps + 500 * outside + 10 * crossed + far))
        note.xyann = tuple(offsets[best])
        is_far = far[best] > FAR + max(half) / pixels
        note.arrow_patch.set_visible(bool(is_far))  # type: ignore[union-attr]
        taken.append((low[best], high[best]))


def _put_legend(ax: Axes, words: Words, lines: Mapping[str, AnyArray]) -> None:
    """Draw a legend, in which the curve with the highest right end comes first."""
    drawn = list(zip(lines, ax.lines[-len(lines) :], strict=True))
    drawn.sort(key=lambda item: -_last_finite(lines[item[0]]))
    legend = ax.legend(
        [line for _, line in drawn],
        [str(n) for n in range(len(drawn))],  # replaced below, as matplotlib drops labels like _x
        loc="upper left",
        bbox_to_anchor=(1, 1),
        frameon=False,
        handlelength=3.2,
    )
    for text, (name, _) in zip(legend.get_texts(), drawn, strict=True):
        text.set(text=_short_label(words, name), parse_math=False, family=words.fonts)


def _last_finite(numbers: AnyArray) -> float:
    finite = numbers[np.isfinite(numbers)]
    return float(finite[-1]) if finite.size else -math.inf


def _ends_in_words(xs: AnyArray, numbers: AnyArray) -> str:
    """A curve's first and last finite numbers, in words."""
    (finite,) = np.nonzero(np.isfinite(numbers))
    if not finite.size:
        return say("has no finite numbers")
    (y, x), (last_y, last_x) = ((f"{numbers[n]:.4g}", f"{xs[n]:.4g}") for n in finite[[0, -1]])
    return say("from {y} at {x} to {last_y} at {last_x}", y=y, x=x, last_y=last_y, last_x=last_x)


def _as_mapping(value: object, name: str, example: str, most: int) -> dict[str, Any]:
    """Return a mapping from labels as a dict; raise if it has another type or too many entries."""
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise InvalidTypeError(
            f"{name} must be a dict with texts as labels, such as {example}; got {quoted(value)}"
        )
    if not 0 < len(value) <= most:
        raise InvalidValueError(f"a picture shows 1 to {most} {name}; got {len(value)}")
    return dict(value)


def _as_vectors(value: object, name: str) -> dict[str, AnyArray]:
    named = _as_mapping(value, name, "{'猫': (1, 2), '鱼': (0, -1)}", MAX_VECTORS)
    return {text: _as_finite(xy, f"{name}[{quoted(text)}]", (2,)) for text, xy in named.items()}


def _as_affine(value: Any, name: str) -> tuple[AnyArray, AnyArray]:
    """Split a value into a matrix and a bias, which is 0 by default."""
    if isinstance(value, tuple) and len(value) == 2 and np.ndim(value[0]) == 2:
        W, b = value
        return _as_finite(W, f"W of {name}", (2, 2)), _as_finite(b, f"b of {name}", (2,))
    return _as_finite(value, name, (2, 2)), np.zeros(2)


def _as_finite(value: Any, name: str, shape: tuple[int, ...]) -> AnyArray:
    """Convert to finite float64 numbers of this shape."""
    numbers = _as_reals(value, name)
    check_shape(numbers, shape, name, ", for the plane's two axes")
    if not np.isfinite(numbers).all():
        raise InvalidValueError(f"{name} must be finite numbers; got {quoted(numbers.tolist())}")
    return numbers


def _as_row(value: Any, name: str) -> AnyArray:
    numbers = _as_reals(value, name)
    if numbers.ndim != 1 or not numbers.size:
        raise InvalidValueError(f"{name} must be a row of numbers, (n,); got {numbers.shape}")
    return numbers


def _as_reals(value: Any, name: str, kinds: str = "iuf") -> AnyArray:
    """Convert real numbers to float64; raise if matplotlib can't draw such large numbers."""
    numbers = as_reals(value, name, kinds).astype(np.float64)
    if (np.abs(numbers[np.isfinite(numbers)]) > LARGEST).any():
        raise InvalidValueError(f"{name} has numbers beyond {LARGEST:g}, which can't be drawn")
    return numbers


def _axis(value: Sequence[object] | None, count: int, of: str) -> Axis:
    """An axis with the given labels, or with indices by default."""
    names = () if value is None else labels(value, count, of)
    return Axis("", range(count), (None,) * count, tuple(label(x, LABEL_LENGTH) for x in names))


def _words_for(texts: Sequence[str], title: str) -> Words:
    check_kind(title, str, "title")
    return Words([Axis("", range(len(texts)), (None,) * len(texts), tuple(texts))], title)


def _short_label(words: Words, text: str) -> str:
    return words.escaped(label(text, LABEL_LENGTH))


def _pair(vector: AnyArray, digits: int = 4) -> str:
    x, y = vector
    return f"({x:z.{digits}g}, {y:z.{digits}g})"


def _in_words(vectors: Mapping[str, AnyArray]) -> str:
    return say(", ").join(f"{text} {_pair(vector)}" for text, vector in vectors.items())
