"""An atlas as one HTML page: a map of every measure, whose cells link to heads.

The page has no script and loads nothing; CSS shows the head that the address names. A corpus's
texts are untrusted: they are escaped, and a Content-Security-Policy allows only the page's own
style.
"""

from __future__ import annotations

import html
import math
import shlex
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import urlencode

import numpy as np

from attnlab.support.tables import printable, with_error
from attnlab.views.colours import DARK, LIGHT
from attnlab.views.language import CHINESE, language_of, say
from attnlab.views.page.page import MARK, digest, source
from attnlab.views.scale import Scale

# These classes are in a package above this one, so they can't be imported here.
Atlas: TypeAlias = Any
Measured: TypeAlias = Any
Passage: TypeAlias = Any

# How many characters of a passage are shown.
LONGEST = 240

# Texts that could not be measured, of which as many are listed.
FAULTS_NAMED = 50

POLICY = "default-src 'none'; style-src 'sha256-{style}'; img-src data:; base-uri 'none'"


class Served(NamedTuple):
    """The explorer that serves the page: its links' token, and whether its model made the atlas."""

    token: str
    is_its_model: bool


def page(
    atlas: Atlas,
    language: str | None = None,
    *,
    is_beside: bool = False,
    served: Served | None = None,
) -> str:
    """The page's HTML, see `Atlas.to_html`.

    Parameters
    ----------
    is_beside : whether it will be in the atlas's directory
    served : by an explorer; None for a file
    """
    language = language_of(language)
    parts = [
        f'<!doctype html>\n<html lang="{"zh-Hans" if language == CHINESE else language}">',
        '<head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy()}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f'{MARK.decode()}<link rel="icon" href="data:,">',
        f"<title>{_escaped(atlas.title.splitlines()[0])}</title><style>{_style()}</style></head>",
        *_body(atlas, language, is_beside, served),
        "</html>",
    ]
    return "\n".join(parts)


def policy() -> str:
    """The Content-Security-Policy."""
    return POLICY.format(style=digest(_style()))


def _style() -> str:
    return source("atlas.css") + _colours()


def _body(atlas: Atlas, language: str, is_beside: bool, served: Served | None) -> Iterator[str]:
    title, *model = say(atlas.title, language).splitlines()
    yield f"<body><h1>{_escaped(title)}</h1>"
    yield from (f'<p class="note">{_escaped(line)}</p>' for line in model)
    if atlas.loss:
        yield f"<p>{_escaped(say(atlas.loss, language))}</p>"
    if atlas.caution:
        yield f'<p class="warning">{_escaped(say(atlas.caution, language))}</p>'
    yield f'<p class="note">{_of_traces(atlas, language, is_beside, served)}</p>'
    if served and not served.is_its_model:
        other = say(
            "The traces are of a different model, so their numbers differ from this atlas.",
            language,
        )
        yield f'<p class="warning">{other}</p>'
    for name, reason in atlas.faults[:FAULTS_NAMED]:
        yield f'<p class="note">{_escaped(name)}: {_escaped(reason)}</p>'
    maps = [one for one in atlas.values() if one.mean.ndim]
    yield f'<h2 id="heads">{say("Heads", language)}</h2>'
    yield f'<p class="note">{say("Each cell links to its head, below.", language)}</p>'
    yield '<div class="maps">'
    for one in maps:
        yield from _map(one, language)
    yield "</div>"
    for layer, head in np.ndindex(atlas.n_layer, atlas.n_head):
        yield f'<section class="head" id="{_anchor(layer, head)}">'
        yield f"<h2>{_escaped(_place(layer, head, language))}</h2>"
        yield f'<p class="note"><a href="#heads">↑ {say("Heads", language)}</a></p>'
        if not served and maps[0].most(layer, head):
            code = f'model.trace(atlas["{maps[0].name}"].most({layer}, {head})[0].ids)'
            words = say("To trace a text:", language)
            yield f'<p class="note">{words} <code>{_escaped(code)}</code></p>'
        for one in maps:
            yield from _of_head(one, layer, head, language, served)
        yield "</section>"
    errors = say("Errors are one standard error of the mean over texts like these.", language)
    yield f'<p class="note">{errors}</p></body>'


def _of_traces(atlas: Atlas, language: str, is_beside: bool, served: Served | None) -> str:
    """How to get from a passage to its trace."""
    if served:
        leads = say("Each passage links to its trace, in a new tab.", language)
        own = say("Explore your own text", language)
        link = f'href="/?{urlencode({"token": served.token})}" target="_blank" rel="noreferrer"'
        return f"{leads} <a {link}>{own}</a>"
    if is_beside and atlas.model_given:
        words = say(
            "For links to each passage's trace, run this in the page's directory:", language
        )
        code = f"attnlab explore --model {shlex.quote(atlas.model_given)} --atlas ."
    else:
        words = say("For links to each passage's trace, run this in Python:", language)
        code = "atlas.explore(model)"
    return f"{words} <code>{_escaped(code)}</code>"


def _place(layer: int, head: int, language: str) -> str:
    return say("layer {layer} head {head}", language, layer=layer, head=head)


def _map(one: Measured, language: str) -> Iterator[str]:
    """A measure of all heads as a heatmap."""
    scale = Scale.of(one.mean)
    there = one.mean[~np.isnan(one.mean)]
    low, high = there.min(initial=0.0), there.max(initial=0.0)
    yield f'<div class="map"><h3>{_escaped(one.name)}</h3>'
    bounds = f'<span class="bounds">{low:.3g} … {high:.3g}</span>'
    says = _escaped(say(one.says, language))
    yield f'<p class="note">{says}; {bounds}</p><table>'
    for layer, row in enumerate(one.mean.tolist()):
        cells = []
        for head, mean in enumerate(row):
            place = _place(layer, head, language)
            description = _escaped(f"{place}: {_formatted(one, layer, head)}")
            kind = "none" if math.isnan(mean) else f"c{scale.places(mean)}"
            link = f'class="{kind}" href="#{_anchor(layer, head)}" title="{description}"'
            cells.append(f'<td><a {link} aria-label="{description}"></a></td>')
        yield f"<tr><th>{layer}</th>{''.join(cells)}</tr>"
    heads = "".join(f"<th>{head}</th>" for head in range(one.mean.shape[1]))
    yield f"<tr><th></th>{heads}</tr></table></div>"


def _of_head(
    one: Measured, layer: int, head: int, language: str, served: Served | None
) -> Iterator[str]:
    """A measure of one head, with the passages that have most and least of it."""
    rank = int((one.mean > one.mean[layer, head]).sum()) + 1
    place = say("{rank} of {count}", language, rank=rank, count=one.mean.size)
    name = f"<b>{_escaped(one.name)}</b> <span>{_escaped(_formatted(one, layer, head))}</span>"
    yield f"<details><summary>{name} {_escaped(place)}</summary>"
    for kind, words, passages in (
        ("most", say("most", language), one.most(layer, head)),
        ("least", say("least", language), one.least(layer, head)),
    ):
        yield f'<p class="note">{words}</p><ol>'
        for rank, passage in enumerate(passages):
            is_cut = len(passage.content) > LONGEST
            says = _escaped(passage.content[:LONGEST] + ("…" if is_cut else ""))
            if served:
                asked = f"{one.name}.{kind}.{layer}.{head}.{rank}"
                query = urlencode({"token": served.token, "passage": asked})
                link = f"/?{query}#{urlencode({'layer': layer, 'head': head})}"
                says = f'<a href="{html.escape(link)}" target="_blank" rel="noreferrer">{says}</a>'
            where = f"<b>{passage.value:.3f}</b> <i>{_escaped(place_of(passage, language))}</i>"
            yield f"<li>{where} <bdi>{says}</bdi></li>"
        yield "</ol>"
    yield "</details>"


def place_of(passage: Passage, language: str) -> str:
    """A passage's place in the corpus."""
    return say("{text}, from token {start}", language, text=passage.text, start=passage.start)


def _formatted(one: Measured, layer: int, head: int) -> str:
    mean, error = one.mean[layer, head], one.error[layer, head]
    if np.isnan(mean):
        return "–"
    return " ± ".join(filter(None, with_error(mean, error)))


def _anchor(layer: int, head: int) -> str:
    return f"layer-{layer}-head-{head}"


def _colours() -> str:
    pairs = zip(LIGHT.palette(), DARK.palette(), strict=True)
    return "\n".join(
        f".c{n} {{ background: light-dark({light}, {dark}); }}"
        for n, (light, dark) in enumerate(pairs)
    )


def _escaped(text: str) -> str:
    return html.escape(printable(text))
