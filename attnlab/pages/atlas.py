"""An atlas as one HTML page: a map of every measure, and a part for every head.

The page loads no other files. Beside the maps, CSS shows the head that the address names. The
script, `start/atlas.js`, switches the language, and draws top texts as any page draws a sentence. A
corpus's texts are untrusted: they are escaped, and a Content-Security-Policy allows only the page's
own style and script.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from attnlab.analysis.base import head_name
from attnlab.corpus.details import TABLES, Details, meaning_of, title_of
from attnlab.corpus.result import Atlas, Measured
from attnlab.errors import InvalidValueError
from attnlab.pages.modules import ATLAS
from attnlab.pages.saved import TAGS, page_with_one_script, style
from attnlab.support.colours import DARK, LIGHT, ink_on
from attnlab.support.language import CHINESE, ENGLISH, language_of, using_language
from attnlab.support.messages import say
from attnlab.support.scale import SHADES, Scale
from attnlab.support.tables import plus_minus, printable

# The largest numbers of what the page shows.
PASSAGE_LENGTH = 200  # characters of a passage
FEW_HEADS = 8  # heads in a layer whose cells show their numbers
FAULTS_LISTED = 50  # texts that could not be measured

# The names of the languages.
NAMES = {ENGLISH: "English", CHINESE: "中文"}

# Matches the texts and labels of a body, which a reader can read or hear.
READABLE = re.compile(r'>([^<]*[^<\s][^<]*)(?=<)|(?:title|aria-label)="([^"]*)"')


def atlas_page(atlas: Atlas, language: str | None = None) -> str:
    """Return the page's HTML; see `attnlab.page`."""
    if not atlas.per_head:
        raise InvalidValueError("this atlas has only loss, which isn't measured by head")
    language = language_of(language)
    other = CHINESE if language == ENGLISH else ENGLISH
    bodies = list[str]()
    for language_of_body in (language, other):
        with using_language(language_of_body):
            bodies.append("\n".join(_body(atlas)))
    data = {
        "texts": _differing(*bodies),
        "description": [_shown(details) for details in atlas.details],
    }
    with using_language(language):
        title = say(atlas.title).splitlines()[0]
        css = style("words.css", "atlas.css") + _colours()
        return page_with_one_script(title, css, bodies[0], data, "", ATLAS)


def _differing(body: str, other: str) -> dict[str, list[int]]:
    """The texts of `other` that differ from a body's texts, each with its indices among them."""
    indices: dict[str, list[int]] = {}
    pairs = zip(READABLE.findall(body), READABLE.findall(other), strict=True)
    for n, (own, translated) in enumerate(pairs):
        if own != translated:
            text = html.unescape("".join(translated))  # one of the two groups is empty
            indices.setdefault(text, []).append(n)
    return indices


def _body(atlas: Atlas) -> Iterator[str]:
    title, *model = say(atlas.title).splitlines()
    [other] = NAMES.keys() - {language_of()}
    yield f'<body><main><header><button id="language" lang="{TAGS[other]}" hidden>{NAMES[other]}'
    yield f'</button><h1>{_escaped(title)}</h1><p class="note">'
    facts = [*model, *([say(atlas.loss)] if atlas.loss else [])]
    yield f"{_escaped(' · '.join(facts))}</p>"
    yield "</header>"
    yield from _maps(atlas)
    errors = say("Errors are one standard error of the mean over texts like these.")
    yield f'<footer><p class="note">{errors}</p>'
    for name, reason in atlas.faults[:FAULTS_LISTED]:
        yield f'<p class="note">{_escaped(name)}: {_escaped(reason)}</p>'
    yield '</footer></main><aside id="beside">'
    for layer, head in np.ndindex(atlas.n_layer, atlas.n_head):
        kind = "head first" if layer == head == 0 else "head"  # the first is shown by default
        yield f'<section class="{kind}" id="{_anchor(layer, head)}">'
        close = say("Close")
        yield f'<a class="close" href="#beside" title="{close}" aria-label="{close}">×</a>'
        yield f"<h2>{_escaped(say(head_name(layer, head)))}</h2>"
        for measure in atlas.per_head:
            yield from _head_measure(measure, layer, head)
        example = next(iter(atlas.values()))
        if example.mean.ndim and example.most(layer, head):
            code = f'model.trace(atlas["{example.name}"].most({layer}, {head})[0].ids)'
            words = say("To trace a text:")
            yield f'<p class="note">{words} <code>{_escaped(code)}</code></p>'
        yield "</section>"
    if atlas.details:
        yield from _template()
    yield "</aside>"


def _template() -> Iterator[str]:
    """What the page shows of each head, without the numbers, which the script fills in."""
    yield '<div id="details">'
    headings = {
        "pairs": ("query", "key", "mean", "texts"),
        "writes": ("promotes", "", "demotes", ""),
    }
    for name in TABLES:
        yield f'<div class="detail" id="{name}"><h3>{say(title_of(name))}</h3>'
        yield f'<p class="note">{say(meaning_of(name))}</p>'
        if name in headings:
            cells = (f"<th>{say(word)}</th>" if word else "<td></td>" for word in headings[name])
            yield f"<table><thead><tr>{''.join(cells)}</tr></thead><tbody></tbody></table>"
        else:
            note = LINES_NOTE if name == "tops" else BAND_NOTE
            yield f'<p class="note">{say(note)}</p><div class="drawing"></div>'
        yield "</div>"
    yield "</div>"


# Notes on how to read the drawings.
LINES_NOTE = (
    "Arcs run from the word that looks most strongly, or that you point at, to those it looks at; "
    "pale words are earlier, or later than that word. After ⇒, what the strongest query’s output "
    "promotes most."
)
BAND_NOTE = "The band is one standard error."


def _shown(details: Details) -> dict[str, Any]:
    """A head's tables as the page draws them: means with errors as texts, and charts' numbers."""
    shown: dict[str, Any] = {}
    for name, columns in details.items():
        left_out = {"id", "ids", "window", "content"}
        if name not in ("positions", "distances"):
            left_out |= {"mean", "error"}
        shown[name] = {key: _rounded(x) for key, x in columns.items() if key not in left_out}
        if "mean" in columns:
            shown[name]["said"] = [*map(plus_minus, columns["mean"], columns["error"])]
    return shown


def _rounded(numbers: Sequence[Any]) -> list[Any]:
    """Floats with four digits; None for NaN, which JSON doesn't have."""
    short = (float(f"{x:.4g}") if isinstance(x, float) else x for x in numbers)
    return [None if x != x else x for x in short]  # only NaN differs from itself


def _maps(atlas: Atlas) -> Iterator[str]:
    """The maps of the measures."""
    few = " few" if atlas.n_head <= FEW_HEADS else ""
    yield f'<section id="heads"><h2>{say("Heads")}</h2>'
    yield f'<p class="note">{say("Each cell links to its head.")}</p><div class="maps{few}">'
    for measure in atlas.per_head:
        yield from _map(measure)
    yield "</div></section>"


def _map(measure: Measured) -> Iterator[str]:
    """A measure of all heads as a heatmap."""
    scale = measure.scale
    known = measure.mean[~np.isnan(measure.mean)]
    low, high = known.min(initial=math.inf), known.max(initial=-math.inf)
    bounds = f"{low:.3g} … {high:.3g}" if known.size else "–"
    yield f'<div class="map"><h3>{_escaped(say(measure.short_title))}</h3>'
    yield f'<p class="note">{_escaped(say(measure.says))}; '
    yield f'<span class="bounds">{bounds}</span></p><table>'
    for layer, row in enumerate(measure.mean.tolist()):
        cells = []
        for head, mean in enumerate(row):
            name = say(head_name(layer, head))
            description = _escaped(f"{name}: {_formatted(measure, layer, head)}")
            is_known = not math.isnan(mean)
            kind = f"c{scale.palette_indices(mean)}" if is_known else "none"
            link = f'class="{kind}" href="#{_anchor(layer, head)}" title="{description}"'
            number = f"{mean:.2f}" if is_known else ""
            label = f"{description} ({number})"  # screen readers read it instead of the number
            cells.append(f'<td><a {link} aria-label="{label}">{number}</a></td>')
        yield f"<tr><th>{layer}</th>{''.join(cells)}</tr>"
    heads = "".join(f"<th>{head}</th>" for head in range(measure.mean.shape[1]))
    yield f"<tr><td></td>{heads}</tr></table>{_legend(scale)}</div>"


def _legend(scale: Scale) -> str:
    """The scale's colours between its ends."""
    start = 0 if scale.is_signed else SHADES
    step = SHADES // 12  # shows about 12 colours on each side of zero
    cells = "".join(f'<i class="c{n}"></i>' for n in range(start, 2 * SHADES + 1, step))
    note = f" {say(scale.note)}" if scale.note else ""
    low, high = f"{scale.ticks[0]:.3g}", f"{scale.ticks[-1]:.3g}"
    return f'<p class="legend">{low} <span>{cells}</span> {high}{note}</p>'


def _head_measure(measure: Measured, layer: int, head: int) -> Iterator[str]:
    """A measure of one head, with the passages where the measure is largest and smallest."""
    title = _escaped(say(measure.short_title))
    number = _escaped(_formatted(measure, layer, head))
    name = f'<b title="{_escaped(measure.name)}">{title}</b>'
    yield f"<details><summary>{name} {number}</summary>"
    for words, passages in (
        (say("largest"), measure.most(layer, head)),
        (say("least"), measure.least(layer, head)),
    ):
        yield f'<p class="note">{words}</p><ol>'
        for passage in passages:
            is_cut = len(passage.content) > PASSAGE_LENGTH
            text = _escaped(passage.content[:PASSAGE_LENGTH] + ("…" if is_cut else ""))
            location = _escaped(
                say("{text}, from token {start}", text=passage.text, start=passage.start)
            )
            yield f"<li><b>{passage.value:.3f}</b> <i>{location}</i> <bdi>{text}</bdi></li>"
        yield "</ol>"
    yield "</details>"


def _formatted(measure: Measured, layer: int, head: int) -> str:
    mean, error = measure.mean[layer, head], measure.standard_errors[layer, head]
    return "–" if np.isnan(mean) else plus_minus(mean, error)


def _anchor(layer: int, head: int) -> str:
    return f"layer-{layer}-head-{head}"


def _colours() -> str:
    pairs = zip(LIGHT.palette(), DARK.palette(), strict=True)
    return "\n".join(
        f".c{n} {{ background: light-dark({light}, {dark}); "
        f"color: light-dark({ink_on(light)}, {ink_on(dark)}); }}"
        for n, (light, dark) in enumerate(pairs)
    )


def _escaped(text: str) -> str:
    return html.escape(printable(text))
