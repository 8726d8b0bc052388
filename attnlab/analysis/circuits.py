"""What heads are made to do, whatever the text: the tokens they read and write, and each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from attnlab import equations
from attnlab.analysis.base import Analysis, Named, Trace, head_called, named
from attnlab.equations import AnyArray, Array, Ids, mean, transpose
from attnlab.errors import InvalidValueError, quoted
from attnlab.forward.products import triangle
from attnlab.steps import read_only
from attnlab.support.checks import as_count
from attnlab.support.messages import Message
from attnlab.support.tables import Table
from attnlab.text.tokens import Token
from attnlab.views.shown import Axis

FRAMEWORK = "Elhage et al., “A Mathematical Framework for Transformer Circuits” (2021)"

# How many pairs of heads a table shows.
PAIRS_SHOWN = 10


class TokensOfHead(Analysis):
    """The tokens that a head gives most to, as `Trace.writes` and `Trace.reads` return them.

    Attributes
    ----------
    ids : int64 (k,), the largest number first
    numbers : (k,)
    tokens : of the ids, see `Token`
    """

    decimals: ClassVar[int] = 4
    note: ClassVar[str] = (
        "The token's row of W_E alone goes through the block's LayerNorm, without position and "
        "without what earlier blocks add: the further from the first block, the less it says."
    )
    source: ClassVar[str] = FRAMEWORK

    ids: Ids
    numbers: Array
    tokens: tuple[Token, ...]

    def __init__(self, title: str, trace: Trace, numbers: Array, k: int) -> None:
        k = as_count(k, "k", least=1, most=len(numbers))
        self.title = Message("{title}{note}", title=title, note=trace.note)
        self.ids = read_only(np.argsort(-numbers, kind="stable")[:k])
        self.numbers = read_only(numbers[self.ids])
        self.tokens = tuple(trace.vocabulary.token(int(id)) for id in self.ids)

    def _grid(self) -> tuple[AnyArray, Axis, Axis]:
        rows = Axis("token", range(len(self.ids)), self.tokens)
        return self.numbers[:, np.newaxis], rows, named("", (self._column,))

    _column: ClassVar[str] = "logit"


class TokensRead(TokensOfHead):
    """Keys that a head of a query's token looks at, by their scores."""

    _column: ClassVar[str] = "score"


def writes(trace: Trace, layer: int, head: int, token: Named, k: int) -> TokensOfHead:
    """As `Trace.writes` returns it."""
    one, source = trace.head(layer, head), trace.vocabulary.named(token)
    x = entering(trace, layer, np.array([source.id]))[0]
    written = (x @ one.W_V + one.b_V) @ one.W_O
    centred = (written - mean(written)) * trace.gain
    template = "{title}: what it writes where it looks at {token}"
    title = Message(template, title=one.title, token=source.symbol)
    return TokensOfHead(title, trace, equations.logits(centred, trace.W_U), k)


def reads(trace: Trace, layer: int, head: int, token: Named, k: int) -> TokensOfHead:
    """As `Trace.reads` returns it."""
    one, asking = trace.head(layer, head), trace.vocabulary.named(token)
    x = entering(trace, layer, np.array([asking.id]))[0]
    q = x @ one.W_Q + one.b_Q
    K = entering(trace, layer, np.arange(trace.config.vocab_size)) @ one.W_K + one.b_K
    template = "{title}: what it looks at from {token}"
    title = Message(template, title=one.title, token=asking.symbol)
    return TokensRead(title, trace, equations.scores(K @ q, one.scale), k)


def entering(trace: Trace, layer: int, ids: Ids) -> Array:
    """What would enter a block's attention, were the residual stream rows of W_E, (n, D)."""
    attention = trace.blocks.one(layer).attention
    rows = equations.token_embedding(ids, trace.W_E)
    return equations.layer_norm(rows, attention.gain, attention.bias, attention.epsilon)


class Composition(Analysis):
    """How much of what heads write later heads read, as `Trace.composition` returns it.

    Attributes
    ----------
    kind : "Q", "K" or "V": by what the later head reads it
    scores : (L, H, L, H), of the head that writes and of the one that reads; 0 where the second is
        not in a later layer
    even : about what matrices of random numbers would have, 1 / √D
    """

    note: ClassVar[str] = (
        "It is of the matrices alone, whatever the text: that a head could read what another one "
        "writes does not mean that it does. LayerNorm's gain and centring are folded into the "
        "matrices; its division by the deviation, and MLPs in between, are left out."
    )
    source: ClassVar[str] = f"{FRAMEWORK}, ‖OV · reads‖ / (‖OV‖ ‖reads‖), LayerNorm folded in"

    scores: Array

    def __init__(self, trace: Trace, kind: str) -> None:
        if not isinstance(kind, str) or kind not in ("Q", "K", "V"):
            raise InvalidValueError(f"composition is by 'Q', 'K' or 'V'; got {quoted(kind)}")
        self.kind = kind
        self.title = Message("{kind}-composition of heads{title}", kind=kind, title=trace.note)
        writing = [writing_of(block.attention) for block in trace.blocks]
        reading = [reading_of(block.attention, kind) for block in trace.blocks]
        L, H, self.even = len(writing), len(writing[0]), trace.config.n_embd**-0.5
        scores = np.zeros((L, H, L, H), writing[0].dtype)
        for first in range(L):
            for second in range(first + 1, L):
                both = writing[first][:, np.newaxis] @ reading[second]  # (H, H, Dh, Dh)
                sizes = norm(writing[first])[:, np.newaxis] * norm(reading[second])
                there = sizes > 0
                scores[first, :, second] = np.divide(norm(both), sizes, where=there, out=0 * sizes)
        self.scores = read_only(scores)

    def strongest(self, count: int = PAIRS_SHOWN) -> list[tuple[int, int, int, int]]:
        """The pairs with the largest scores: layer and head that write, and those that read."""
        count = as_count(count, "count", least=1)
        best = np.argsort(-self.scores, axis=None, kind="stable")[:count]
        places = zip(*np.unravel_index(best, self.scores.shape), strict=True)
        return [(int(a), int(b), int(c), int(d)) for a, b, c, d in places if a < c]

    def _grid(self) -> tuple[AnyArray, Axis, Axis]:
        L, H, *_ = self.scores.shape
        names = tuple(head_called(n, h) for n in range(L) for h in range(H))
        return self.scores.reshape(L * H, L * H), named("writes", names), named("reads", names)

    def _tables(self) -> Iterator[Table]:
        lines = [("writes", f"reads by {self.kind}", "score")]
        for pair in self.strongest():
            first, one, second, other = pair
            words = (head_called(first, one), head_called(second, other))
            lines.append((*words, f"{self.scores[pair]:.3f}"))
        lines.append(("random numbers", "", f"{self.even:.3f}"))
        yield Table(lines, left=(0, 1))


def writing_of(attention: Trace) -> Array:
    """Of each head a small matrix that writes as its OV does, (H, Dh, D).

    With W_V = Q R, R W_O has the norms that W_V W_O has, and so has all that it is multiplied with.
    """
    return np.stack([triangle(read_by(attention, h.W_V)) @ centred(h.W_O) for h in attention.heads])


def reading_of(attention: Trace, kind: str) -> Array:
    """Of each head a small matrix that reads as it does by Q, K or V, (H, D, Dh)."""

    def thin_of(head: Trace) -> tuple[Array, Array]:
        if kind == "V":
            return read_by(attention, head.W_V), transpose(centred(head.W_O))
        Q, K = read_by(attention, head.W_Q), read_by(attention, head.W_K)
        return (Q, K) if kind == "Q" else (K, Q)

    thin = [thin_of(head) for head in attention.heads]
    return np.stack([reads @ transpose(triangle(other)) for reads, other in thin])


def read_by(attention: Trace, W: Array) -> Array:
    """What a head's W reads of the stream: LayerNorm takes the mean away, then has a gain."""
    return transpose(centred(transpose(attention.gain[:, np.newaxis] * W)))


def centred(W: Array) -> Array:
    """W without the mean of each row, which the next LayerNorm takes away."""
    return W - mean(W)


def norm(x: Array) -> Array:
    """√ of the sum of squares of matrices, (..., n, m) -> (...)."""
    size: Array = np.sqrt(np.square(x).sum(axis=(-2, -1)))
    return size
