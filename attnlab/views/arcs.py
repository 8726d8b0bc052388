"""Attention drawn over words, as the page draws it (`pages/scripts/drawing/arcs.js`).

Arcs run from the word that looks to the words that it looks at. An arc is as wide as its weight.
Arcs to the first word, where attention rests, are grey. Lengths are in units of the letters' size;
y points down.
"""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from html import escape
from typing import NamedTuple

import numpy as np

from attnlab.equations import AnyArray
from attnlab.support.colours import LIGHT
from attnlab.support.markup import safe
from attnlab.support.tables import display_width

LINE = 3.2  # the distance from a line to the next one
ABOVE = 3.8  # the space above the first line
HALF = 0.6  # half the height of the letters
LETTER = 0.6  # the width of a letter in a monospaced font
LONGEST_LINE, PIXELS = 48, 16  # the width of the longest line, and the letters' size in pixels

# A text of more than MANY_WORDS shows only its last words, and the words that are looked at most.
MANY_WORDS, LAST_WORDS, MOST_ATTENDED = 60, 24, 12

FAINTEST = 0.35  # the opacity of an arc of weight 0
MIN_SHARE = 0.01  # a smaller share of the attention isn't written below its word
SHARE_WIDTH = 2.4  # the width of a share as text

# The sizes of a head's small drawing, in its own units. A text of more than MANY_ROWS words has
# only the last word's arcs.
SMALL_WIDTH, SMALL_HEIGHT, GAP, MANY_ROWS = 100, 30, 4, 64


class Shape(NamedTuple):
    """How arcs look. An arc's height is rise + steepness · distance of its words, up to highest."""

    rise: float
    steepness: float
    highest: float
    widest: float  # the width of an arc of weight 1
    thinnest: float  # the smallest width
    least: float  # the smallest weight that has an arc


SENTENCE = Shape(rise=0.39, steepness=0.36, highest=2.9, widest=0.23, thinnest=0.04, least=0.004)
SMALL = Shape(rise=18, steepness=0.3, highest=20, widest=2.2, thinnest=0.4, least=0.08)


class Place(NamedTuple):
    """A word's middle. Arcs start and end at its top, or at its bottom towards a lower line."""

    x: float  # the word's middle
    top: float
    bottom: float
    room: float = math.inf  # the height between the word and the line above it


def path_of(start: Place, end: Place, shape: Shape) -> str:
    """The path of an arc: above the words of one line, or between two lines."""
    if start.top == end.top:
        distance = abs(start.x - end.x)
        room = start.room * (0.5 + 0.5 * min(1, distance / 9))  # short arcs use half of the room
        rise = min(shape.highest, shape.rise + shape.steepness * distance, room)
        # A curve reaches three quarters of its control points' height, hence about 4/3 of `rise`.
        ys = start.top, start.top - 1.3 * rise, end.top
    else:
        is_above = end.top < start.top
        first, last = (start.top, end.bottom) if is_above else (start.bottom, end.top)
        ys = first, (first + last) / 2, last
    points = (start.x, ys[0]), (start.x, ys[1]), (end.x, ys[1]), (end.x, ys[2])
    first_point, *others = (f"{x:.4g} {y:.4g}" for x, y in points)
    return f"M{first_point}C{','.join(others)}"


def _arcs(
    start: Place,
    places: Sequence[Place | None],
    row: AnyArray,
    shape: Shape,
    opacity: Callable[[float], float],
) -> Iterator[tuple[str, str]]:
    """Yield each arc's style and path, for a query at `start`; the strongest arc comes last."""
    for key in np.argsort(row, kind="stable").tolist():
        end, weight = places[key], float(row[key])
        if end and end != start and weight >= shape.least:
            width = max(shape.thinnest, shape.widest * weight)
            style = (
                f'stroke="{LIGHT.positive if key else LIGHT.faint}" stroke-width="{width:.3g}" '
                f'opacity="{opacity(weight):.2g}"'
            )
            yield style, path_of(start, end, shape)


def _drawn(arcs: Iterable[tuple[str, str]]) -> str:
    """Arcs as SVG elements, one element for all arcs of the same style."""
    paths: dict[str, str] = {}
    for style, path in arcs:
        paths[style] = paths.get(style, "") + path
    return "".join(f'<path d="{path}" {style}/>' for style, path in paths.items())


def _opacity(least: float, slope: float, weight: float) -> float:
    return min(1, least + slope * weight)


def _percent(share: float) -> str:
    # One decimal where rounding would turn a smaller share into 100 %.
    decimals = 1 if 0.995 <= share < 0.9995 else 0
    return f"{100 * share:.{decimals}f} %"


def sentence(texts: Sequence[str], row: AnyArray) -> str:
    """An SVG of a text's words with the arcs of the last word, whose weights are `row`."""
    own = len(texts) - 1  # the index of the last word
    places, height = _laid_out(texts, row)
    start = places[own]
    assert start is not None  # the last word is never left out
    parts = [_drawn(_arcs(start, places, row, SENTENCE, partial(_opacity, FAINTEST, 1)))]
    # The first word, where many heads rest, is the strongest only if no other word is before `own`.
    strongest = 1 + int(row[1:own].argmax()) if own > 1 else 0
    inks = {strongest: LIGHT.positive, own: LIGHT.negative}  # the colours of scales, as on the page
    taken = list[Place]()
    for n in np.argsort(-row, kind="stable").tolist():
        if not (place := places[n]):
            continue
        text = texts[n].strip()
        length = f'textLength="{LETTER * display_width(text):.4g}"' if text else ""
        parts.append(
            f'<text x="{place.x:.4g}" y="{place.bottom - 0.25:.4g}" {length} '
            f'fill="{inks.get(n, LIGHT.ink)}">{safe(text)}</text>'
        )
        # Of two shares that would overlap, only the larger share is written.
        in_line = (other for other in taken if other.top == place.top)
        if row[n] >= MIN_SHARE and all(abs(o.x - place.x) > SHARE_WIDTH for o in in_line):
            taken.append(place)
            parts.append(
                f'<text x="{place.x:.4g}" y="{place.bottom + 0.65:.4g}" font-size=".75" '
                f'fill="{LIGHT.faint}">{_percent(row[n])}</text>'
            )
    width = max(place.x for place in places if place) + 4
    style = 'font-family="ui-monospace,monospace" font-size="1" text-anchor="middle"'
    return _svg(width, height, PIXELS, f"<g {style}>{''.join(parts)}</g>")


def _laid_out(texts: Sequence[str], row: AnyArray) -> tuple[list[Place | None], float]:
    """The words' places in lines, None for words that are left out, and the total height."""
    shown = {*range(len(texts))}
    if len(texts) > MANY_WORDS:
        most = np.argsort(-row, kind="stable")[:MOST_ATTENDED]
        shown = {int(n) for n in most if row[n] >= MIN_SHARE}
        shown |= {*range(len(texts) - LAST_WORDS, len(texts))}
    x, line, places = 0.0, 0, list[Place | None]()
    for n, text in enumerate(texts):
        if n not in shown:
            places.append(None)
            continue
        x += 1.5 if n and places[-1] is None else 0  # a gap for the words that are left out
        width = LETTER * display_width(text)
        if x and x + width > LONGEST_LINE:
            x, line = 0.0, line + 1
        middle = ABOVE + LINE * line
        # The arc starts above the middle of the letters, without the space before them.
        lead = LETTER if text.startswith(" ") else 0
        room = 1.2 if line else math.inf  # a line above limits the room
        places.append(Place(x + (lead + width) / 2, middle - HALF, middle + HALF, room))
        x += width
    return places, ABOVE + LINE * line + 1.6


def small_heads(weights: AnyArray, is_self: bool, size: float) -> str:
    """A layer's weights (H, T, Tk) as small drawings side by side, each `size` pixels wide.

    With self-attention (`is_self`) queries are the last keys; otherwise keys are drawn above them.
    """
    H, T, Tk = weights.shape
    ground, parts = SMALL_HEIGHT - 1, list[str]()
    rounded = np.round(20 * weights) / 20  # so that many arcs have the same style
    for head in range(H):
        left = head * (SMALL_WIDTH + GAP)
        keys, queries = (
            [Place(left + SMALL_WIDTH * (n + 0.5) / count, y, y) for n in range(count)]
            for count, y in ((Tk, ground if is_self else 1), (T, ground))
        )
        starts = keys[Tk - T :] if is_self else queries
        parts.append(f'<path d="M{left} {ground + 0.5}h{SMALL_WIDTH}" stroke="{LIGHT.masked}"/>')
        arcs = list[tuple[str, str]]()
        for i in range(T - 1 if T > MANY_ROWS else 0, T):
            least, slope = (0.25, 1.0) if i == T - 1 else (0.05, 0.28)  # the last query stands out
            opacity = partial(_opacity, least, slope)
            arcs += _arcs(starts[i], keys, rounded[head, i], SMALL, opacity)
        parts.append(_drawn(arcs))
    return _svg(H * (SMALL_WIDTH + GAP), SMALL_HEIGHT, size / SMALL_WIDTH, "".join(parts))


def _svg(width: float, height: float, scale: float, content: str) -> str:
    size = f'width="{math.ceil(width * scale)}" height="{math.ceil(height * scale)}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {width:.4g} {height:.4g}" '
        f'fill="none" stroke-linecap="round">{content}</svg>'
    )


def image(svg: str, alt: str) -> str:
    """A drawing as an image, which untrusted notebooks keep, though they drop SVG elements."""
    source = b64encode(svg.encode()).decode()
    alt = escape(alt, quote=True)
    return f'<img alt="{alt}" src="data:image/svg+xml;base64,{source}">'
