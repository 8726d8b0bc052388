"""HTML for notebooks, readable without a kernel, scripts or style sheets.

Jupyter removes style elements from untrusted notebooks, so colours are inline; a style element
changes them on dark pages. All text from tokens is escaped by `safe`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape as escape
from pathlib import Path

from attnlab.support.colours import DARK, LIGHT, Theme
from attnlab.support.messages import say
from attnlab.support.tables import ELLIPSIS, Paragraph, Table, elide, label, printable

# The maximum number of rows of a table.
ROWS_SHOWN = 64

# The maximum number of characters of a token in a tooltip.
TOOLTIP_LENGTH = 120


def _variables(theme: Theme) -> str:
    return ";".join(f"--{name}:{colour}" for name, colour in theme._asdict().items())


def _dark_css(selector: str) -> str:
    """CSS for dark pages, matched by `selector`; it overrides inline colours, which are light."""
    # For dark pages, an element has its background as the variable --d, or its ink as --i.
    return (
        f"{selector} .attnlab{{{_variables(DARK)}}}"
        f"{selector} .attnlab [style*='--d']{{background:var(--d)!important}}"
        f"{selector} .attnlab [style*='--i']{{color:var(--i)!important}}"
        # Pictures are light. `invert` makes white black, and the rotation restores each hue.
        f"{selector} .attnlab img{{filter:invert(1) hue-rotate(180deg);{_variables(LIGHT)}}}"
    )


# JupyterLab and the book mark a page as light or dark, independently of the system's setting.
IS_LIGHT = "[data-jp-theme-light=true],[data-theme=light]"
IS_DARK = ":is([data-jp-theme-light=false],body[data-theme=dark])"

STYLE = (
    f".attnlab{{{_variables(LIGHT)}}}"
    f"@media (prefers-color-scheme:dark){{{_dark_css(f'body:not({IS_LIGHT})')}}}"
    f"{_dark_css(IS_DARK)}"
    + Path(__file__).with_suffix(".css").read_text(encoding="utf-8").replace("\n", "")
)


def safe(text: str, length: int = TOOLTIP_LENGTH) -> str:
    """Text escaped for HTML, with control characters as escapes."""
    return escape(label(text, length), quote=True)


def page(title: str, *body: str) -> str:
    heading = f"<div class=title>{safe(title)}</div>" if title else ""
    return f'<div class="attnlab"><style>{STYLE}</style>{heading}{"".join(body)}</div>'


def document(title: str, *body: str) -> str:
    """A page whose title may have several lines."""
    first, *lines = say(title).splitlines() or [""]
    titles = [f"<div class=title>{safe(line)}</div>" for line in lines]
    return page(first, *titles, *body)


def piece(part: str | Table) -> str:
    """A table or a text as HTML; Messages are translated."""
    if isinstance(part, Table):
        return table(part)
    escaped = escape("\n".join(map(printable, say(part).splitlines())))
    if isinstance(part, Paragraph):
        return f"<div class=faint>{escaped}</div>"
    # Lines that begin with spaces are aligned with lines above them.
    return f"<pre>{escaped}</pre>" if escaped.startswith(" ") else f"<div>{escaped}</div>"


def faint(text: str) -> str:
    return f"<div class=faint>{escape(text)}</div>"


def table(shown: Table, fractions: Sequence[float] = ()) -> str:
    """A table with its Messages translated; with `fractions`, each line ends with a bar."""
    header, *lines = shown.lines
    rows = [f"<tr>{_cells_of('th', header, shown.left)}</tr>"]
    for i in elide(len(lines), ROWS_SHOWN):
        cells = _cells_of("td", [ELLIPSIS] * len(header) if i is None else lines[i], shown.left)
        rows.append(f"<tr>{cells}{bar(fractions[i]) if fractions and i is not None else ''}</tr>")
    return f"<table class=lines>{''.join(rows)}</table>"


def _cells_of(tag: str, line: Iterable[str], left: Iterable[int]) -> str:
    return "".join(
        f"<{tag}{' class=l' if column in left else ''}>{safe(str(cell))}</{tag}>"
        for column, cell in enumerate(line)
    )


def bar(fraction: float) -> str:
    style = f"background:{LIGHT.positive};--d:{DARK.positive};width:{100 * fraction:.4g}px"
    return f'<td><div style="{style};height:10px"></div></td>'
