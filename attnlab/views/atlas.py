"""An atlas as one HTML page: a map of every measure, and behind each cell its head.

There is no script in it, and nothing that it would load: a cell leads to its head's part of the
page, which is shown while it is what the address names. Texts of a corpus are hostile; each is
escaped, and a Content-Security-Policy allows the page its own style and no more.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np

from attnlab.tables import printable
from attnlab.views.colours import DARK, LIGHT, shades
from attnlab.views.language import CHINESE, language_of, say, titled
from attnlab.views.page import MARK, digest, source

# An atlas, and one of its measures, which stand above: known by what they show.
Atlas: TypeAlias = Any
Measured: TypeAlias = Any

# How many colours there are between none and most.
SHADES = 21

# How many characters of a passage are shown.
LONGEST = 240

# How many texts that could not be measured are named.
FAULTS_NAMED = 50


def page(atlas: Atlas, language: str | None = None) -> str:
    """The page's HTML, see `Atlas.to_html`."""
    language = language_of(language)
    style = source("atlas.css") + _colours()
    policy = f"default-src 'none'; style-src 'sha256-{digest(style)}'; img-src data:"
    parts = [
        f'<!doctype html>\n<html lang="{"zh-Hans" if language == CHINESE else language}">',
        '<head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f'{MARK.decode()}<link rel="icon" href="data:,">',
        f"<title>{_escaped(atlas.title.splitlines()[0])}</title><style>{style}</style></head>",
        *_body(atlas, language),
        "</html>",
    ]
    return "\n".join(parts)


def _body(atlas: Atlas, language: str) -> Iterator[str]:
    title, *model = atlas.title.splitlines()
    yield f"<body><h1>{_escaped(titled(title, language))}</h1>"
    yield from (f'<p class="note">{_escaped(titled(line, language))}</p>' for line in model)
    if atlas.loss:
        yield f"<p>{_escaped(titled(atlas.loss, language))}</p>"
    for name, reason in atlas.faults[:FAULTS_NAMED]:
        yield f'<p class="note">{_escaped(name)}: {_escaped(reason)}</p>'
    maps = [one for one in atlas.values() if one.mean.ndim]
    yield f"<h2>{say('Heads', language)}</h2>"
    yield f'<p class="note">{say("A cell leads to its head, below.", language)}</p>'
    yield '<div class="maps">'
    for one in maps:
        yield from _map(one, language)
    yield "</div>"
    for layer, head in np.ndindex(atlas.n_layer, atlas.n_head):
        yield f'<section class="head" id="{_anchor(layer, head)}">'
        yield f"<h2>{_escaped(titled(f'layer {layer} head {head}', language))}</h2>"
        code = f'model.trace(atlas["{maps[0].name}"].most({layer}, {head})[0].ids)'
        yield f'<p class="note">{say("To look into a text:", language)} <code>{code}</code></p>'
        for one in maps:
            yield from _of_head(one, layer, head, language)
        yield "</section>"
    errors = say("Errors are one standard error of a mean over texts like these.", language)
    yield f'<p class="note">{errors}</p></body>'


def _map(one: Measured, language: str) -> Iterator[str]:
    """A measure of all heads, in colours from 0, or its least below it, to its most."""
    there = one.mean[~np.isnan(one.mean)]
    low, high = min(0.0, *there.tolist(), 0.0), max([0.0, *there.tolist()])
    yield f'<div class="map"><h3>{_escaped(one.name)}</h3>'
    says = f"{say(one.says, language)}; {low:.3g} … {high:.3g}"
    yield f'<p class="note">{_escaped(says)}</p><table>'
    for layer, row in enumerate(one.mean.tolist()):
        cells = []
        for head, mean in enumerate(row):
            place = titled(f"layer {layer} head {head}", language)
            told = _escaped(f"{place}: {_told(one, layer, head)}")
            share = 0.0 if math.isnan(mean) or high == low else (mean - low) / (high - low)
            kind = "none" if math.isnan(mean) else f"c{round(share * (SHADES - 1))}"
            link = f'class="{kind}" href="#{_anchor(layer, head)}" title="{told}"'
            cells.append(f'<td><a {link} aria-label="{told}"></a></td>')
        yield f"<tr><th>{layer}</th>{''.join(cells)}</tr>"
    heads = "".join(f"<th>{head}</th>" for head in range(one.mean.shape[1]))
    yield f"<tr><th></th>{heads}</tr></table></div>"


def _of_head(one: Measured, layer: int, head: int, language: str) -> Iterator[str]:
    """A measure of one head, and behind it the passages that have most and least of it."""
    rank = int((one.mean > one.mean[layer, head]).sum()) + 1
    place = say("{rank} of {count}", language, rank=rank, count=one.mean.size)
    told = f"<b>{_escaped(one.name)}</b> <span>{_escaped(_told(one, layer, head))}</span>"
    yield f"<details><summary>{told} {_escaped(place)}</summary>"
    for words, passages in (
        (say("most", language), one.most(layer, head)),
        (say("least", language), one.least(layer, head)),
    ):
        yield f'<p class="note">{words}</p><ol>'
        for passage in passages:
            cut = passage.content[:LONGEST] + "…" * (len(passage.content) > LONGEST)
            where = f"{passage.text}, {passage.start}"
            number = f"<b>{passage.value:.3f}</b> <i>{_escaped(where)}</i>"
            yield f"<li>{number} {_escaped(cut)}</li>"
        yield "</ol>"
    yield "</details>"


def _told(one: Measured, layer: int, head: int) -> str:
    mean, error = one.mean[layer, head], one.error[layer, head]
    if np.isnan(mean):
        return "–"
    return f"{mean:.3g}" if np.isnan(error) else f"{mean:.3g} ± {error:.2g}"


def _anchor(layer: int, head: int) -> str:
    return f"layer-{layer}-head-{head}"


def _colours() -> str:
    pairs = zip(
        shades(LIGHT, LIGHT.positive, SHADES), shades(DARK, DARK.positive, SHADES), strict=True
    )
    return "\n".join(
        f".c{n} {{ background: light-dark({light}, {dark}); }}"
        for n, (light, dark) in enumerate(pairs)
    )


def _escaped(text: str) -> str:
    return html.escape(printable(text))
