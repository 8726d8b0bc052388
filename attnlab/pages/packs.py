"""The page's numbers, in named packs, which a file includes and a served page requests.

"attention.3"    layer 3's Q (H, T, Dh), K (H, Tk, Dh), V (H, Tk, Dh), then each head's edited
                 steps, (T, Tk) each, the context (T, Dh)
"prediction.9"   predictions after position 9, see `prediction`, only in a file
"logits.9"       all logits after position 9, only in a page with a model
"pass.9", "norms", "columns.blocks.0.mlp.W_1.3.5"
                 for the steps of a token, see `token_pass`
"maps.3", "stream", "story"
                 for the picture of the model, see `overview`
"why", "why.1.2.7.4.mean"
                 what makes scores of layer 1, head 2, see `pairs`
"""

from __future__ import annotations

import re
import zlib
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from attnlab.equations import AnyArray
from attnlab.errors import InvalidValueError, quoted
from attnlab.forward.attention import MultiHeadAttention
from attnlab.model.trace import Trace
from attnlab.pages import overview, pairs, token_pass
from attnlab.pages.prediction import positions_of, prediction, row_of_logits
from attnlab.steps import Result

# A head's steps that are included if edited; a scale is in the description.
PACKED_STEPS = ("mask", "raw_scores", "scale", "scores", "masked_scores", "weights", "context")

NUMBERED_PACK = re.compile(r"(attention|maps|prediction|logits|pass)\.(\d{1,9})")
SUM_PACK = re.compile(r"why\.(\d{1,9})\.(\d{1,9})\.(\d{1,9})\.(\d{1,9})\.(mean|\d{1,9})")
COLUMNS_PACK = re.compile(r"columns\.(.+)\.(\d{1,9})\.(\d{1,9})")


def pack(trace: Trace, name: str) -> bytes:
    """A pack of a trace as little-endian float32. NaN and overflow raise InvalidValueError."""
    if match := NUMBERED_PACK.fullmatch(name):
        kind, number = match[1], int(match[2])  # a layer, or a position
        if kind == "attention" and number < len(trace.blocks):
            return _attention(trace, number)
        if kind == "maps" and number < len(trace.blocks):
            return b"".join(
                _to_float32(small_map, name, np.isnan(small_map))
                for small_map in overview.maps(trace, number)
            )
        if kind == "prediction" and number in positions_of(trace):
            return _to_float32(prediction(trace, number), "logits")
        if kind == "logits" and number < len(trace.tokens):
            return _to_float32(row_of_logits(trace, number), "logits")
        if kind == "pass" and number < len(trace.tokens):
            return _join(token_pass.rows(trace, number), name)
    if name == "norms":
        return _join(token_pass.norms(trace), name)
    if name == "stream":
        return _join(overview.stream(trace), name)
    if name == "story":
        return b"".join(story_parts(trace))
    if name == "why":
        return _join(pairs.rows(trace), name)
    if match := SUM_PACK.fullmatch(name):
        layer, head, query, key = map(int, match.groups()[:4])
        return _join(pairs.sum_of(trace, layer, head, query, key, match[5]), name)
    if match := COLUMNS_PACK.fullmatch(name):
        return _join(token_pass.columns(trace, match[1], int(match[2]), int(match[3])), name)
    raise InvalidValueError(f"unknown pack {quoted(name)}")


def story_parts(trace: Trace) -> Iterator[bytes]:
    """The pack "story" in parts: it takes long, so a server answers other requests in between."""
    return (_to_float32(part, "story") for part in overview.story(trace))


def packs_of_file(trace: Trace) -> list[str]:
    """The names of the packs that a file includes."""
    return [
        *(f"attention.{layer}" for layer in range(len(trace.blocks))),
        *token_pass.packs_of_pass(trace),
        *("stream", "story", "why"),
        *(f"prediction.{position}" for position in positions_of(trace)),
    ]


def elements(traces: Sequence[Trace], stories: Sequence[bytes]) -> str:
    """HTML elements with the packs of a file's traces, which `source.js` reads.

    `stories` are their packs "story", which take long and are computed once.
    """
    element = '<script type="text/plain" id="trace-{}-{}">{}</script>'
    return "\n".join(
        element.format(number, name, embedded(story if name == "story" else pack(trace, name)))
        for number, (trace, story) in enumerate(zip(traces, stories, strict=True))
        for name in packs_of_file(trace)
    )


def embedded(numbers: bytes) -> str:
    """A pack as text, for `source.js`.

    Numbers' first bytes come first, then their second bytes, and so on, so that similar exponents
    are adjacent. It uses Huffman coding only, with a code for each of the four, because mantissas
    don't repeat.
    """
    deflate = zlib.compressobj(memLevel=9, strategy=zlib.Z_HUFFMAN_ONLY)
    planes = np.frombuffer(numbers, np.uint8).reshape(-1, 4).T
    coded = [deflate.compress(plane.tobytes()) + deflate.flush(zlib.Z_BLOCK) for plane in planes]
    return b64encode(b"".join([*coded, deflate.flush()])).decode()


def edited_heads(attention: MultiHeadAttention) -> dict[int, list[str]]:
    """The edited steps by head, without heads that have none."""
    edited = {
        h: [name for name in PACKED_STEPS if head.is_edited(name)]
        for h, head in enumerate(attention.heads)
    }
    return {h: names for h, names in edited.items() if names}


def _attention(trace: Trace, layer: int) -> bytes:
    attention = trace.blocks[layer].attention
    parts = [_step(attention, name) for name in "QKV"]
    for h, names in edited_heads(attention).items():
        parts += [_step(attention.heads[h], name) for name in names if name != "scale"]
    return b"".join(parts)


def _step(result: Result, name: str) -> bytes:
    values = getattr(result, name)
    is_masked = np.isneginf(values) & (name == "masked_scores")
    return _to_float32(values, name, is_masked)


def _join(parts: Iterable[AnyArray], name: str) -> bytes:
    return b"".join(_to_float32(part, name) for part in parts)


def _to_float32(values: AnyArray, name: str, allowed: AnyArray | bool = False) -> bytes:
    """Values as bytes of float32, which must be finite except where `allowed`."""
    with np.errstate(over="ignore"):
        numbers = np.ascontiguousarray(values, dtype="<f4")
    if not (np.isfinite(numbers) | allowed).all():
        raise InvalidValueError(
            f"{name} has NaN or numbers that overflow float32, which the page uses"
        )
    return numbers.tobytes()
