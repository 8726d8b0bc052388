"""Tokens as HTML for a notebook: a chip for each, with its id and a tooltip."""

from __future__ import annotations

from html import escape
from typing import Any

from attnlab.support.markup import ROWS_SHOWN, TOOLTIP_LENGTH, safe
from attnlab.support.messages import say
from attnlab.support.tables import elide, label, printable


def chips(tokens: Any) -> str:  # Tokens, which import this module
    """The tokens in a row; of many, the first and the last."""
    chips = []
    for i in elide(len(tokens), ROWS_SHOWN):
        if i is None:
            more = say("… {more} more …", more=len(tokens) - ROWS_SHOWN)
            chips.append(f"<span class=faint>{more}</span>")
            continue
        token, shared = tokens[i], printable(tokens.part_of[i])
        note = f" · {say('part of {shared}', shared=shared)}" if shared else ""
        tooltip = f"{description(token)}{escape(label(note, TOOLTIP_LENGTH))}"
        chips.append(
            f'<span class=chip title="{say("token {i}", i=i)} · {tooltip}">'
            f"<code>{safe(tokens.readable[i], 24)}</code> <small>{token.id}</small></span>"
        )
    return f"<div>{' '.join(chips)}</div>"


def description(token: Any) -> str:
    """A token's symbol, text, bytes and id."""
    text = safe(repr(token.text))
    data = label(token.bytes.hex(" "), TOOLTIP_LENGTH)
    return say(
        "symbol {symbol} · text {text} · bytes {bytes} · id {id}",
        symbol=safe(token.symbol),
        text=text,
        bytes=data,
        id=token.id,
    )
