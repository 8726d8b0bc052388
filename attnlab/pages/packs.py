"""The numbers of a page, in named packs, which a file includes. A page with a model computes them.

"attention.3"    layer 3's Q (H, T, Dh), K (H, Tk, Dh), V (H, Tk, Dh), then the edited steps of
                 each head: (T, Tk), or (T, Dh) for the context
"prediction.9"   predictions after position 9, see `prediction`
"pass.9", "norms", "columns.blocks.0.mlp.W_1.3.5"
                 for the steps of a token, see `token_pass`
"stream", "story"
                 for the picture of the model, see `overview`
"why"            scores as sums over pairs of parts, see `pairs`
"""

from __future__ import annotations

import zlib
from base64 import b64encode
from collections.abc import Sequence

import numpy as np

from attnlab.equations import AnyArray
from attnlab.errors import InvalidValueError
from attnlab.forward.attention import Attention, MultiHeadAttention
from attnlab.model.trace import Trace
from attnlab.pages import overview, pairs, token_pass
from attnlab.pages.prediction import predicted_positions, prediction
from attnlab.steps import Result

# A head's steps, from Q to context, without optional steps, which a trace doesn't have.
HEAD_STEPS = tuple(name for name in Attention._table_steps if not Attention.steps[name].optional)

# The steps that a pack includes if they are edited, in this order. An edited scale is in the
# description instead.
PACKED_STEPS = tuple(name for name in HEAD_STEPS if name not in ("Q", "K", "V"))


def pack(trace: Trace, name: str) -> bytes:
    """A pack of a trace as little-endian float32. NaN and overflow raise InvalidValueError."""
    kind, _, rest = name.partition(".")  # rest is a layer, a position, or a range of columns
    match kind:
        case "attention":
            return _attention(trace, int(rest))
        case "prediction":
            return _to_float32(prediction(trace, int(rest)), "logits")
        case "pass":
            parts = token_pass.rows(trace, int(rest))
        case "columns":
            path, start, stop = rest.rsplit(".", 2)
            parts = token_pass.columns(trace, path, int(start), int(stop))
        case "norms":
            parts = token_pass.norms(trace)
        case "stream":
            parts = overview.stream(trace)
        case "story":
            parts = overview.story(trace)
        case "why":
            parts = pairs.rows(trace)
    return b"".join(_to_float32(part, name) for part in parts)


def packs_of_file(trace: Trace) -> list[str]:
    """The names of the packs that a file includes."""
    return [
        *(f"attention.{layer}" for layer in range(len(trace.blocks))),
        *token_pass.packs_of_pass(trace),
        "stream",
        "story",
        "why",
        *(f"prediction.{position}" for position in predicted_positions(trace)),
    ]


def elements(traces: Sequence[Trace], stories: Sequence[bytes]) -> str:
    """HTML elements with the packs of a file's traces, which `source.js` reads.

    `stories` are the traces' packs "story", which take long to compute and so are computed once.
    """
    element = '<script type="text/plain" id="trace-{}-{}">{}</script>'
    return "\n".join(
        element.format(number, name, embedded(story if name == "story" else pack(trace, name)))
        for number, (trace, story) in enumerate(zip(traces, stories, strict=True))
        for name in packs_of_file(trace)
    )


def embedded(numbers: bytes) -> str:
    """Compress a pack to a text for `source.js`.

    The first bytes of all numbers come first, then all second bytes, and so on, so that similar
    exponents are adjacent. Each of these four parts has its own Huffman code. deflate doesn't
    search for repetitions, since mantissas don't repeat.
    """
    deflate = zlib.compressobj(memLevel=9, strategy=zlib.Z_HUFFMAN_ONLY)
    planes = np.frombuffer(numbers, np.uint8).reshape(-1, 4).T
    coded = [deflate.compress(plane.tobytes()) + deflate.flush(zlib.Z_BLOCK) for plane in planes]
    return b64encode(b"".join([*coded, deflate.flush()])).decode()


def edited_heads(attention: MultiHeadAttention) -> dict[int, list[str]]:
    """The edited steps by head, without unedited heads."""
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
    is_masked = np.isneginf(values) & result.steps[name].infinite
    return _to_float32(values, name, is_masked)


def _to_float32(values: AnyArray, name: str, allowed: AnyArray | bool = False) -> bytes:
    """Convert values to bytes of float32; raise if a value isn't finite, except where `allowed`."""
    with np.errstate(over="ignore"):
        numbers = np.ascontiguousarray(values, dtype="<f4")
    if not (np.isfinite(numbers) | allowed).all():
        raise InvalidValueError(
            f"{name} has NaN or numbers that overflow float32, which the page uses"
        )
    return numbers.tobytes()
