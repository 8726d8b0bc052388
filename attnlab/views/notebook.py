"""What a notebook shows of tokens and results: HTML and CSS that need no kernel and no script.

A number's colour is mixed in CSS from how far it lies from zero, so that one document serves a
light and a dark page. All text from tokens goes through `safe`.
"""

from __future__ import annotations

import math
import struct
import zlib
from base64 import b64encode
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from attnlab.equations import AnyArray
from attnlab.errors import AttnlabError
from attnlab.support.console import PrintedAnywhere
from attnlab.support.messages import MODEL, recognised
from attnlab.support.tables import ELLIPSIS, elide, printable
from attnlab.views.colours import DARK, LIGHT, Theme, shades
from attnlab.views.language import say
from attnlab.views.shown import (
    ALL_OF_IT,
    TOKEN_AXES,
    TOKENS_SHOWN,
    Axis,
    Result,
    Shown,
    Token,
    axis_of,
    cut_word,
    label,
    places_of,
    shown,
)
from attnlab.views.terms import Line, Term

# How many tokens are shown as chips, and of a small picture of one head among several.
CHIPS_SHOWN = 64
SMALL_SHOWN = 16

# How many columns of what is not tokens, such as the 64 of Q.
COLUMNS_SHOWN = 16

# A text whose heads have more scores than these shows none of them in its first view.
SCORES_SHOWN = 2**18

# A row of pictures, one for each head, is about so wide, in pixels, and has so many colours.
ROW_WIDTH, SHADES = 760, 64

# What a head shows folded up, below its weights.
FOLDED = ("scores", "masked_scores", "Q", "K", "V", "context")

# How much of a long token the text beside the pointer shows.
HOVER_LENGTH = 120


def _variables(theme: Theme) -> str:
    colours = (f"--{name}:{colour}" for name, colour in theme._asdict().items())
    light, dark = ("block", "none") if theme is LIGHT else ("none", "block")
    return ";".join((*colours, f"--light:{light}", f"--dark:{dark}"))


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
.attnlab table{border-collapse:collapse;margin:6px 0;font-variant-numeric:tabular-nums}
.attnlab :is(td,th){background:none;color:inherit;border:0;text-align:right;padding:1px 12px 1px 0;
font-size:12px;unicode-bidi:isolate;white-space:pre}
.attnlab th{color:var(--faint);font-weight:400}
.attnlab :is(td,th):nth-child(-n+3){font-family:ui-monospace,monospace}
.attnlab table tr:nth-child(n){background:none}
.attnlab i.bar{width:calc(1px*var(--v));height:10px;background:var(--positive)}
.attnlab .written{white-space:pre-wrap;margin:6px 0}
.attnlab .written b{background:var(--zero);color:var(--positive)}
.attnlab .step{margin-top:8px;font-family:ui-monospace,monospace}
.attnlab .line{margin-left:20px;overflow-wrap:anywhere}
.attnlab .layers{display:grid;grid-template-columns:max-content max-content;gap:3px 8px;
align-items:center;margin:6px 0}
.attnlab .numbers{display:flex;color:var(--faint);font-size:11px}
.attnlab .numbers span{flex:1;text-align:center}
.attnlab img{image-rendering:pixelated;max-width:none;margin:0;
background:repeating-linear-gradient(135deg,var(--masked) 0 1px,var(--paper) 1px 4px)}
.attnlab img.light{display:var(--light)}
.attnlab img.dark{display:var(--dark)}
""".replace("\n", "")
)


def safe(text: str, length: int = HOVER_LENGTH) -> str:
    """Text as HTML shows it: nothing in it is markup, control characters are escapes."""
    return escape(label(text, length), quote=True)


def tokens_view(tokens: Any) -> str:
    """Tokens as chips."""
    return _page(_count(len(tokens)), _chips(tokens))


def _count(T: int) -> str:
    return say("{T} token", T=T) if T == 1 else say("{T} tokens", T=T)


def result_view(result: Result, tokens: slice | None = None) -> str:
    """A result: its tokens, its weights as heatmaps where it is attention, the table of its parts.

    It computes no more than the result's `repr` does.
    """
    body: list[str] = []
    steps = f"<pre>{escape(result._table())}</pre>"
    is_attention = "weights" in result.parts
    if result.tokens is not None and not is_attention:
        body.append(_chips(result.tokens))
    if is_attention:
        try:
            body += [*_attention(result, tokens)]
            steps = _folded(steps)
        except AttnlabError as error:  # the table below shows what there is
            body.append(_faint(say("No weights: {error}", error=error)))
    body.append(steps)
    if result.hint:
        body.append(_faint(say(result.hint)))
    return _page(say(result.title), *body)


def _folded(steps: str) -> str:
    return f"<details><summary>{say('steps')}</summary>{steps}</details>"


def _faint(text: str) -> str:
    return f"<div class=faint>{escape(text)}</div>"


def trace_view(trace: Result) -> str:
    """A text's first view: its tokens, what follows, and all heads, where the text is short."""
    body = [_chips(trace.tokens)]
    trace = trace.fork()
    if len(trace.blocks) * math.prod(trace.blocks[0].attention.scores_shape) <= SCORES_SHOWN:
        for draw in (_prediction, _all_heads):
            try:
                body.append(draw(trace))
            except AttnlabError as error:  # a trace from a file, without parameters
                body.append(_faint(str(error)))
    else:
        body.append(
            _faint(
                say(
                    "The heads of a long text are many: trace.next_tokens(), trace.plot() and "
                    "trace.head(layer, head) look at some of it."
                )
            )
        )
    steps = f"<pre>{escape(trace._table())}</pre>"
    body += [_folded(steps), _faint(say(trace.hint))]
    return _page(say(trace.title), *body)


def _prediction(trace: Result) -> str:
    last = f"<b>{safe(trace.tokens[-1].symbol, 24)}</b>"
    title = say("Next tokens after {last}", last=last)
    return f"<div>{title}</div>{_candidates(trace.next_tokens())}"


def _all_heads(trace: Result) -> str:
    """The weights of all heads, a row of small pictures for each layer."""
    steps = [shown(block.attention, "weights") for block in trace.blocks]
    H, Tq, Tk = steps[0].array.shape
    size = max(2, min(8, ROW_WIDTH // (H * (Tk + 1))))
    width = H * (Tk + 1) * size
    numbers = "".join(f"<span>{h}</span>" for h in range(H))
    rows = [f'<span></span><div class=numbers style="width:{width}px">{numbers}</div>']
    for layer, step in enumerate(steps):
        pixels = _pixels(step)
        described = escape(
            say(
                "layer {layer}: {heading} of {H} heads",
                layer=layer,
                heading=say(step.heading),
                H=H,
            ),
            quote=True,
        )
        images = "".join(
            f'<img class={name} alt="{described}" width={width} height={Tq * size} '
            f'src="data:image/png;base64,{b64encode(_png(pixels, theme)).decode()}">'
            for name, theme in (("light", LIGHT), ("dark", DARK))
        )
        rows.append(f"<span class=faint>{layer}</span><div>{images}</div>")
    title = say(
        "{heading}: a row for each layer, a picture for each head; in each, query down, key across",
        heading=say(steps[0].heading),
    )
    layers = f"<div class=layers>{''.join(rows)}</div>"
    return f"<div>{escape(title)}</div>{layers}{_scale(steps[0])}"


def _pixels(step: Shown) -> AnyArray:
    """All heads side by side as places in the palette: 0 a gap, 1 masked, then from 0 to 1."""
    cells = 2 + np.rint(np.sqrt(np.clip(step.array, 0, 1)) * (SHADES - 1)).astype(np.uint8)
    if step.masked is not None:
        cells[step.masked] = 1
    gap = np.zeros((*cells.shape[:-1], 1), np.uint8)
    return np.hstack([*np.concatenate([cells, gap], axis=-1)])


def _png(pixels: AnyArray, theme: Theme) -> bytes:
    """Places in the palette (h, w) as a PNG. Source: the PNG specification, third edition."""
    palette = [theme.paper, theme.paper, *shades(theme, theme.positive, SHADES)]
    height, width = pixels.shape

    def chunk(kind: bytes, data: bytes) -> bytes:
        checked = kind + data
        return struct.pack(">I", len(data)) + checked + struct.pack(">I", zlib.crc32(checked))

    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)  # 8 bits, from a palette
    lines = np.pad(pixels, ((0, 0), (1, 0)))  # each begins with how it is filtered: not
    return b"".join(
        (
            b"\x89PNG\r\n\x1a\n",
            chunk(b"IHDR", header),
            chunk(b"PLTE", b"".join(bytes.fromhex(colour[1:]) for colour in palette)),
            chunk(b"tRNS", b"\xff\x00"),  # what is masked lets the stripes below it through
            chunk(b"IDAT", zlib.compress(lines.astype(np.uint8).tobytes(), 9)),
            chunk(b"IEND", b""),
        )
    )


def candidates_view(tokens: Any) -> str:
    """Tokens that may come next, each with a bar as long as it is probable."""
    return _page(say("Next tokens"), _candidates(tokens))


def _candidates(tokens: Any, start: int | None = None) -> str:
    """A table of tokens with bars; those that were drawn are numbered from `start` on."""
    bars = [f'<i class=bar style="--v:{100 * token.share:.4g}"></i>' for token in tokens]
    header = [say("id"), say("symbol"), say("text"), "logit", say("probability"), ""]
    rows = [
        [
            str(token.id),
            safe(token.symbol, 24),
            safe(repr(token.text), 24),
            f"{token.logit:.4f}",
            f"{token.share:.4f}",
            bar,
        ]
        for token, bar in zip(tokens, bars, strict=True)
    ]
    if start is not None:
        header = ["", *header, say("sampled with")]
        rows = [
            [str(i), *row, f"{token.probability:.4f}"]
            for i, (token, row) in enumerate(zip(tokens, rows, strict=True), start)
        ]
    return _table(header, [rows[i] if i is not None else [ELLIPSIS] for i in _cut(len(rows))])


def _cut(count: int) -> list[int | None]:
    return elide(count, CHIPS_SHOWN)


def _table(header: list[str], rows: list[list[str]]) -> str:
    """A table of cells that are HTML already."""
    lines = ["".join(f"<th>{cell}</th>" for cell in header)]
    lines += ["".join(f"<td>{cell}</td>" for cell in row) for row in rows]
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def generation_view(generation: Any) -> str:
    """What was written after the prompt, and each new token with its probability."""
    count, prompt = len(generation.new), len(generation.prompt)
    written = (
        f"<div class=written>{_readable(generation.prompt)}<b>{_readable(generation.new)}</b></div>"
    )
    title = say("{new} after a prompt of {prompt}", new=_count(count), prompt=prompt)
    return _page(title, written, _candidates(generation.chosen, start=prompt))


def _readable(tokens: Any) -> str:
    """The text of tokens with its line ends; other control characters are escapes."""
    text = b"".join(tokens.bytes).decode("utf-8", errors="replace")
    return escape("\n".join(printable(line) for line in text.split("\n")), quote=True)


def explanation_view(explanation: Any) -> str:
    """The arithmetic, a heading and a line or a table for each step."""
    body = [
        f"<div>{escape(say(explanation.purpose))}</div>",
        f"<div class=faint>{escape(say(explanation.note))}</div>",
    ]
    for line in explanation.lines:
        if line.heading:
            body.append(f"<div class=step>{escape(say(line.heading))}</div>")
        if isinstance(line, Line):
            told = "".join(map(_said, line.parts))
            body.append(f"<div class=line>{escape(told)}</div>" if told else "")
        else:
            header, *rows = [
                [escape(_said(cell)) for cell in row] for row in (*line.rows, *line.feet)
            ]
            body.append(_table(header, rows))
    return _page(say(explanation.title), *body)


def _said(part: str | Term) -> str:
    """A part of a line in the reader's language."""
    return say(part) if isinstance(part, str) else str(part)


def numbered_view(results: Any) -> str:
    """Results by their numbers, each one's table folded up under its title."""
    kind = results.kind
    body = []
    for n, result in enumerate(results):
        title = safe(say(getattr(result, "title", "")) or f"{say(kind)} {n}")
        body.append(
            f"<details><summary>{title}</summary><pre>{escape(_steps(result))}</pre></details>"
        )
    count = len(results)
    called = say(kind if count == 1 else f"{kind}s")
    return _page(
        say("{count} {kind}, 0 to {last}", count=count, kind=called, last=count - 1), *body
    )


def _steps(result: Any) -> str:
    return result._table() if hasattr(result, "_table") else repr(result)


def model_view(model: Any) -> str:
    """A model's sizes, where it is from, and what to ask it."""
    first, _, origin = repr(model).partition("\n")
    config = model.config
    sizes = {
        say("layers"): config.n_layer,
        say("heads"): config.n_head,
        say("width"): config.n_embd,
        say("width of a head"): config.d_head,
        say("width of the MLP"): config.d_mlp,
        say("positions"): config.n_positions,
        say("tokens of the vocabulary"): config.vocab_size,
    }
    rows = [[name, f"{size:,}"] for name, size in sizes.items()]
    hint = say("model.trace(text) computes every step; model.generate(text, 20) continues a text")
    return _page(
        say(recognised(first, MODEL)),
        f"<div class=faint>{safe(say(recognised(origin, 'from {origin}')), 200)}</div>",
        _table(["", ""], rows),
        _faint(hint),
    )


@dataclass(frozen=True, repr=False)
class Frame(PrintedAnywhere):
    """A page of its own inside a notebook: no script of it runs outside its frame.

    Attributes
    ----------
    page : its HTML
    title : what it is
    height : in pixels
    """

    page: str
    title: str
    height: int

    def __repr__(self) -> str:
        return f"{self.title}: a notebook shows it, and trace.save('attention.html') writes it"

    def _repr_html_(self) -> str:
        return (
            f'<iframe title="{safe(self.title)}" sandbox="allow-scripts" '
            f'style="width:100%;height:{self.height}px;border:0" '
            f'srcdoc="{escape(self.page, quote=True)}"></iframe>'
        )


def view_of_tokens(attention: Result, tokens: slice | None) -> View:
    """The view of an attention with the tokens that are asked for."""
    for axis, count in zip(("Tq", "Tk"), attention.scores_shape[-2:], strict=True):
        places_of(axis_of(attention, axis, count), TOKENS_SHOWN, tokens)  # told before it is drawn
    return View(result_view(attention, tokens), attention)


@dataclass(frozen=True, repr=False)
class View(PrintedAnywhere):
    """A result as a notebook shows it, and as its table elsewhere.

    Attributes
    ----------
    html : of the view
    result : what it is of
    """

    html: str
    result: Result

    def __repr__(self) -> str:
        return repr(self.result)

    def _repr_html_(self) -> str:
        return self.html


def _page(title: str, *body: str) -> str:
    heading = f"<div class=title>{safe(title)}</div>"
    return f'<div class="attnlab"><style>{STYLE}</style>{heading}{"".join(body)}</div>'


def _chips(tokens: Any) -> str:
    chips = []
    for i in elide(len(tokens), CHIPS_SHOWN):
        if i is None:
            more = say("… {more} more …", more=len(tokens) - CHIPS_SHOWN)
            chips.append(f"<span class=faint>{more} </span>")
            continue
        token, shared = tokens[i], printable(tokens.part_of[i])
        note = f" · {say('part of {shared}', shared=shared)}" if shared else ""
        hover = f"{_described(token)}{escape(label(note, HOVER_LENGTH))}"
        chips.append(
            f'<span class=chip title="{say("token {i}", i=i)} · {hover}">{safe(token.symbol, 24)}'
            f"<small>{token.id}</small></span>"
        )
    return f"<div>{''.join(chips)}</div>"


def _described(token: Token) -> str:
    """A token in words, as HTML."""
    text = safe(repr(token.text))
    data = label(token.bytes.hex(" "), HOVER_LENGTH)
    return say(
        "symbol {symbol} · text {text} · bytes {bytes} · id {id}",
        symbol=safe(token.symbol),
        text=text,
        bytes=data,
        id=token.id,
    )


def _attention(attention: Result, tokens: slice | None) -> Iterator[str]:
    """The weights as heatmaps, and for one head its other steps folded up."""
    if not attention.is_there("weights") and not attention._computes_for_repr("weights"):
        yield _faint(say("The weights are many and not computed yet."))
        return
    fork = attention.fork()
    dimensions = fork.weights.ndim
    if dimensions == fork.V.ndim == 2:
        weights = shown(fork, "weights")
        yield f"<div>{escape(say(weights.heading))}</div>{_heatmap(weights, tokens)}"
        for name in FOLDED:
            step = shown(fork, name)
            folded = f"<summary>{escape(say(step.heading))}</summary>{_heatmap(step, tokens)}"
            yield f"<details>{folded}</details>"
    elif "concat" in attention.parts and dimensions == 3:
        yield from _heads(fork, tokens)
    else:
        yield _faint(say("Several sequences at once are shown as a table only."))


def _heads(attention: Result, tokens: slice | None) -> Iterator[str]:
    weights = shown(attention, "weights")
    _, queries, keys = weights.axes
    yield f"<div>{escape(say(weights.heading))}</div><div class=heads>"
    for h, matrix in enumerate(weights.array):
        masked = None if weights.masked is None else weights.masked[h]
        one = Shown(weights.name, weights.heading, matrix, (queries, keys), masked)
        cells = _map(one, SMALL_SHOWN, tokens, named=False, size=8)
        yield f"<div>{_faint(say('head {h}', h=h))}{cells}</div>"
    yield f"</div>{_scale(weights)}"
    yield _cut_note((queries, keys), SMALL_SHOWN, tokens)


def _heatmap(step: Shown, tokens: slice | None) -> str:
    """One matrix with labels, scale, and a word on what is left out."""
    rows, columns = step.axes
    size = 18 if max(map(len, (rows.labels, columns.labels))) <= COLUMNS_SHOWN else 13
    axes = say("{rows} down, {columns} across", rows=say(rows.name), columns=say(columns.name))
    return (
        f"{_faint(axes)}"
        f"{_map(step, TOKENS_SHOWN, tokens, named=True, size=size)}"
        f"{_scale(step)}{_cut_note(step.axes, TOKENS_SHOWN, tokens)}"
    )


def _limit(axis: Axis, tokens: int) -> int:
    return tokens if axis.name in TOKEN_AXES.values() else COLUMNS_SHOWN


def _map(step: Shown, limit: int, tokens: slice | None, *, named: bool, size: int) -> str:
    """The cells of a matrix as a grid, with the labels of its axes where they are asked for."""
    rows, columns = step.axes
    shown_rows, shown_columns = (
        places_of(axis, _limit(axis, limit), tokens) for axis in (rows, columns)
    )
    widths = ("auto " if named else "") + " ".join(
        f"{10 if j is None else size}px" for j in shown_columns
    )
    by_root = step.is_weights
    largest = 1.0 if by_root else _largest(step.array)
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
                cells.append(f'<i class=m title="{hover}{say("masked")}"></i>')
            else:
                cells.append(_cell(float(step.array[i, j]), largest, hover, by_root))
    return (
        f'<div><div class=map role=img aria-label="{escape(say(step.heading))}" '
        f'style="--cell:{size}px;grid-template-columns:{widths}">{"".join(cells)}</div></div>'
    )


def _axis_label(kind: str, axis: Axis, place: int | None) -> str:
    if place is None:
        return f"<b class={kind}>{ELLIPSIS}</b>"
    token = axis.tokens[place]
    described = "" if token is None else f" · {_described(token)}"
    hover = f"{say(axis.name)} {axis.positions[place]}{described}"
    return f'<b class={kind} title="{hover}">{escape(axis.labels[place])}</b>'


def _cell(value: float, largest: float, hover: str, by_root: bool) -> str:
    if np.isnan(value):
        return f'<i class=m title="{hover}nan"></i>'
    share = min(abs(value) / largest, 1) if largest else 0
    percent = round(100 * (math.sqrt(share) if by_root else share))
    sign = "class=n " if value < 0 else ""
    return f'<i {sign}style=--v:{percent} title="{hover}{value:.4g}"></i>'


def _largest(array: AnyArray) -> float:
    """The largest distance from zero among the finite numbers, where the colours end."""
    finite = np.abs(array[np.isfinite(array)].astype(np.float64))
    return float(finite.max()) if finite.size else 0.0


def _scale(step: Shown) -> str:
    """The colours with the range that they stand for."""
    array, masked = step.array, step.masked
    largest = _largest(array)
    mask = f"<i class=m></i>{say('masked')}" if masked is not None and masked.any() else ""
    if step.is_weights:
        bar = f"0<i class=p></i>1, {say('colour by √weight')}"
    elif (array[np.isfinite(array)] < 0).any():
        middle = say("0 in the middle")
        bar = f'-{largest:.4g}<i style="--from:var(--negative)"></i>{largest:.4g}, {middle}'
    else:
        bar = f"0<i class=p></i>{largest:.4g}"
    return f'<div class="scale faint">{bar} {mask}</div>'


def _cut_note(axes: Iterable[Axis], limit: int, tokens: slice | None) -> str:
    """A word on the rows and columns that are left out, "" where none is."""
    cut, is_of_tokens = dict[str, None](), False
    for axis in axes:
        places = places_of(axis, _limit(axis, limit), tokens)
        if word := cut_word(axis, places):
            cut[word] = None
            is_of_tokens |= axis.name in TOKEN_AXES.values()
    if not cut:
        return ""
    told = say("Shown: {word}", word=say(", ").join(cut))
    hint = f"; .show(...): {say(ALL_OF_IT)}" if is_of_tokens and tokens is None else ""
    return _faint(f"{told}{hint}")
