"""What a notebook shows of tokens and results: HTML and CSS that need no kernel and no script.

A number's colour is mixed in CSS from how far it lies from zero, so that one document serves a
light and a dark page. All text from tokens goes through `safe`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape
from typing import Any

import numpy as np

from attnlab.equations import AnyArray
from attnlab.errors import AttnlabError
from attnlab.tables import ELLIPSIS, elide, printable
from attnlab.views.colours import DARK, LIGHT, Theme
from attnlab.views.shown import TOKENS_SHOWN, Axis, Result, Shown, Token, label, shown

# How many tokens are shown as chips, and of a small picture of one head among several.
CHIPS_SHOWN = 64
SMALL_SHOWN = 16

# How many columns of what is not tokens, such as the 64 of Q.
COLUMNS_SHOWN = 16

# What a head shows folded up, below its weights.
FOLDED = ("scores", "masked_scores", "Q", "K", "V", "context")

# How much of a long token the text beside the pointer shows.
HOVER_LENGTH = 120


def _variables(theme: Theme) -> str:
    return ";".join(f"--{name}:{colour}" for name, colour in theme._asdict().items())


STYLE = (
    f".attnlab{{{_variables(LIGHT)}}}"
    f"@media (prefers-color-scheme:dark){{.attnlab{{{_variables(DARK)}}}}}"
    f'[data-jp-theme-light="true"] .attnlab{{{_variables(LIGHT)}}}'
    f'[data-jp-theme-light="false"] .attnlab{{{_variables(DARK)}}}'
    """
.attnlab{background:var(--paper);color:var(--ink);font:13px/1.5 system-ui,sans-serif;padding:8px;
overflow-x:auto;text-align:left}
.attnlab .title{font-weight:600;margin-bottom:4px}
.attnlab .faint{color:var(--faint);font-size:12px}
.attnlab pre{background:none;color:inherit;font:12px/1.45 ui-monospace,monospace;margin:6px 0;
padding:0;white-space:pre}
.attnlab .chip{display:inline-block;border:1px solid var(--masked);border-radius:4px;
margin:0 3px 4px 0;padding:0 5px;font-family:ui-monospace,monospace;unicode-bidi:isolate}
.attnlab .chip small{color:var(--faint);margin-left:5px;font-size:10px}
.attnlab summary{cursor:pointer;font-size:12px}
.attnlab .map{display:inline-grid;gap:1px;align-items:center;margin:6px 0}
.attnlab .map b{font:11px/1.2 ui-monospace,monospace;unicode-bidi:isolate;white-space:pre}
.attnlab .map .r{text-align:right;padding-right:5px}
.attnlab .map .c{writing-mode:vertical-rl;transform:rotate(180deg);padding-top:4px;
justify-self:center;align-self:end}
.attnlab i{display:block;height:var(--cell);
background:color-mix(in oklab,var(--positive) calc(1%*var(--v,0)),var(--zero))}
.attnlab i.n{background:color-mix(in oklab,var(--negative) calc(1%*var(--v,0)),var(--zero))}
.attnlab i.m{background:repeating-linear-gradient(135deg,var(--masked) 0 1px,var(--paper) 1px 4px)}
.attnlab i.e{background:none;text-align:center;font:10px/1 sans-serif;color:var(--faint)}
.attnlab .scale i{display:inline-block;width:80px;height:10px;margin:0 5px;vertical-align:middle;
background:linear-gradient(90deg in oklab,var(--from),var(--zero),var(--positive))}
.attnlab .scale i.p{background:linear-gradient(90deg in oklab,var(--zero),var(--positive))}
.attnlab .scale i.m{width:14px;background:
repeating-linear-gradient(135deg,var(--masked) 0 1px,var(--paper) 1px 4px)}
.attnlab .heads{display:flex;flex-wrap:wrap;gap:10px}
""".replace("\n", "")
)


def safe(text: str, length: int = HOVER_LENGTH) -> str:
    """Text as HTML shows it: nothing in it is markup, control characters are escapes."""
    return escape(label(text, length), quote=True)


def tokens_view(tokens: Any) -> str:
    """Tokens as chips."""
    return _page(f"{len(tokens)} token{'s' * (len(tokens) != 1)}", _chips(tokens))


def result_view(result: Result) -> str:
    """A result: its tokens, its weights as heatmaps where it is attention, the table of its parts.

    It computes no more than the result's `repr` does.
    """
    body: list[str] = []
    is_attention = "weights" in result.parts
    if result.tokens is not None and not is_attention:
        body.append(_chips(result.tokens))
    if is_attention:
        try:
            body += [*_attention(result)]
        except AttnlabError as error:  # the table below shows what there is
            body.append(f"<div class=faint>No weights: {escape(str(error))}</div>")
    body.append(f"<pre>{escape(result._table())}</pre>")
    if result.hint:
        body.append(f"<div class=faint>{escape(result.hint)}</div>")
    return _page(result.title, *body)


def _page(title: str, *body: str) -> str:
    heading = f"<div class=title>{safe(title)}</div>"
    return f'<div class="attnlab"><style>{STYLE}</style>{heading}{"".join(body)}</div>'


def _chips(tokens: Any) -> str:
    chips = []
    for i in elide(len(tokens), CHIPS_SHOWN):
        if i is None:
            chips.append(f"<span class=faint>… {len(tokens) - CHIPS_SHOWN} more … </span>")
            continue
        token, shared = tokens[i], printable(tokens.part_of[i])
        note = f" · part of {shared}" if shared else ""
        hover = f"{_described(token)}{escape(label(note, HOVER_LENGTH))}"
        chips.append(
            f'<span class=chip title="token {i} · {hover}">{safe(token.symbol, 24)}'
            f"<small>{token.id}</small></span>"
        )
    return f"<div>{''.join(chips)}</div>"


def _described(token: Token) -> str:
    """A token in words, as HTML."""
    text = safe(repr(token.text))
    data = label(token.bytes.hex(" "), HOVER_LENGTH)
    return f"symbol {safe(token.symbol)} · text {text} · bytes {data} · id {token.id}"


def _attention(attention: Result) -> Iterator[str]:
    """The weights as heatmaps, and for one head its other steps folded up."""
    if not attention.is_there("weights") and not attention._computes_for_repr():
        yield "<div class=faint>The weights are many and not computed yet.</div>"
        return
    aside = attention.aside()
    dimensions = aside.weights.ndim
    if dimensions == aside.V.ndim == 2:
        weights = shown(aside, "weights")
        yield f"<div>{escape(weights.heading)}</div>{_heatmap(weights)}"
        for name in FOLDED:
            step = shown(aside, name)
            yield f"<details><summary>{escape(step.heading)}</summary>{_heatmap(step)}</details>"
    elif "concat" in attention.parts and dimensions == 3:
        yield from _heads(aside)
    else:
        yield "<div class=faint>Several sequences at once are shown as a table only.</div>"


def _heads(attention: Result) -> Iterator[str]:
    weights = shown(attention, "weights")
    _, queries, keys = weights.axes
    yield f"<div>{escape(weights.heading)}</div><div class=heads>"
    for h, matrix in enumerate(weights.array):
        masked = None if weights.masked is None else weights.masked[h]
        one = Shown(weights.name, weights.heading, matrix, (queries, keys), masked)
        cells = _map(one, SMALL_SHOWN, named=False, size=8)
        yield f"<div><div class=faint>head {h}</div>{cells}</div>"
    yield f"</div>{_scale(weights.array, weights.masked)}"
    yield _cut_note((queries, keys), SMALL_SHOWN)


def _heatmap(step: Shown) -> str:
    """One matrix with labels, scale, and a word on what is left out."""
    rows, columns = step.axes
    size = 18 if max(map(len, (rows.labels, columns.labels))) <= COLUMNS_SHOWN else 13
    return (
        f"<div class=faint>{escape(rows.name)} down, {escape(columns.name)} across</div>"
        f"{_map(step, TOKENS_SHOWN, named=True, size=size)}"
        f"{_scale(step.array, step.masked)}{_cut_note(step.axes, TOKENS_SHOWN)}"
    )


def _limit(axis: Axis, tokens: int) -> int:
    return tokens if axis.name in ("query", "key", "position") else COLUMNS_SHOWN


def _map(step: Shown, limit: int, *, named: bool, size: int) -> str:
    """The cells of a matrix as a grid, with the labels of its axes where they are asked for."""
    rows, columns = step.axes
    shown_rows = elide(len(rows.labels), _limit(rows, limit))
    shown_columns = elide(len(columns.labels), _limit(columns, limit))
    widths = "auto " * named + " ".join(f"{10 if j is None else size}px" for j in shown_columns)
    largest = _largest(step.array)
    cells = []
    if named:
        cells.append("<b></b>")
        cells += [_axis_label("c", columns, j) for j in shown_columns]
    for i in shown_rows:
        if named:
            cells.append(_axis_label("r", rows, i))
        for j in shown_columns:
            if i is None or j is None:
                cells.append(f"<i class=e>{ELLIPSIS if named else ''}</i>")
                continue
            hover = f"{escape(rows.labels[i])} → {escape(columns.labels[j])}: "
            if step.masked is not None and step.masked[i, j]:
                cells.append(f'<i class=m title="{hover}masked"></i>')
            else:
                cells.append(_cell(float(step.array[i, j]), largest, hover))
    return (
        f'<div><div class=map role=img aria-label="{escape(step.heading)}" '
        f'style="--cell:{size}px;grid-template-columns:{widths}">{"".join(cells)}</div></div>'
    )


def _axis_label(kind: str, axis: Axis, place: int | None) -> str:
    if place is None:
        return f"<b class={kind}>{ELLIPSIS}</b>"
    token = axis.tokens[place]
    described = "" if token is None else f" · {_described(token)}"
    hover = f"{axis.name} {axis.positions[place]}{described}"
    return f'<b class={kind} title="{hover}">{escape(axis.labels[place])}</b>'


def _cell(value: float, largest: float, hover: str) -> str:
    if np.isnan(value):
        return f'<i class=m title="{hover}nan"></i>'
    share = round(100 * min(abs(value) / largest, 1)) if largest else 0
    sign = "class=n " if value < 0 else ""
    return f'<i {sign}style=--v:{share} title="{hover}{value:.4g}"></i>'


def _largest(array: AnyArray) -> float:
    """The largest distance from zero among the finite numbers, where the colours end."""
    finite = np.abs(array[np.isfinite(array)].astype(np.float64))
    return float(finite.max()) if finite.size else 0.0


def _scale(array: AnyArray, masked: AnyArray | None) -> str:
    """The colours with the range that they stand for."""
    largest = _largest(array)
    mask = "<i class=m></i>masked" if masked is not None and masked.any() else ""
    if (array[np.isfinite(array)] < 0).any():
        bar = f'-{largest:.4g}<i style="--from:var(--negative)"></i>{largest:.4g}, 0 in the middle'
    else:
        bar = f"0<i class=p></i>{largest:.4g}"
    return f'<div class="scale faint">{bar} {mask}</div>'


def _cut_note(axes: Iterable[Axis], limit: int) -> str:
    """A word on the rows and columns that are left out, "" where none is."""
    cut: dict[str, Any] = {}
    for axis in axes:
        count, most = len(axis.labels), _limit(axis, limit)
        if count > most:
            cut[axis.name] = f"the first {most - 1} and the last of {count} ({axis.name})"
    return f"<div class=faint>Shown: {', '.join(cut.values())}</div>" if cut else ""
