"""QK and OV circuits: the tokens that heads read and write, and composition."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from attnlab import equations
from attnlab.analysis.base import Analysis, head_name, heads_axis, named_axis
from attnlab.equations import AnyArray, Array, Ids, mean, transpose
from attnlab.forward.attention import Head
from attnlab.forward.forward_pass import BlockAttention
from attnlab.forward.products import r_factor
from attnlab.model.trace import Trace
from attnlab.steps import read_only
from attnlab.steps.labels import Axis
from attnlab.support.checks import as_count, check_choice
from attnlab.support.messages import Message
from attnlab.support.tables import Columns, Table, header, listed
from attnlab.text.tokens import Token, TokenLike

FRAMEWORK_PAPER = "Elhage et al., “A Mathematical Framework for Transformer Circuits” (2021)"

# The number of pairs of heads in a printed table.
PAIRS_SHOWN = 10


class TokensOfHead(Analysis):
    """A head's top tokens, as `Trace.writes` and `Trace.reads` return them.

    Attributes
    ----------
    ids : int64 (k,), the largest number first
    numbers : (k,), logits for `writes`, scores for `reads`
    tokens : the ids' tokens, see `Token`
    """

    decimals: ClassVar[int] = 4
    meaning: ClassVar[str] = "Each number is what the head adds to a token's logit."
    note: ClassVar[str] = (
        "The block's input is approximated by the token's row of W_E, without positions or earlier "
        "blocks: the deeper the layer, the worse the approximation."
    )
    source: ClassVar[str] = FRAMEWORK_PAPER
    _column: ClassVar[str] = "logit"

    ids: Ids
    numbers: Array
    tokens: tuple[Token, ...]

    def __init__(self, title: str, trace: Trace, numbers: Array, k: int) -> None:
        k = as_count(k, "k", least=1, most=len(numbers))
        self.title = Message("{title}{note}", title=title, note=trace._note)
        self.ids = read_only(np.argsort(-numbers, kind="stable")[:k])
        self.numbers = read_only(numbers[self.ids])
        self.tokens = tuple(trace.vocabulary.token(int(id)) for id in self.ids)

    def _data(self) -> Columns:
        tokens = [token.readable for token in self.tokens]
        return {"id": self.ids, "token": tokens, self._column: self.numbers}

    def _tables(self) -> Iterator[Table]:
        yield listed(self._data(), {self._column: f".{self.decimals}f"})

    def _grid(self) -> tuple[AnyArray, Axis, Axis]:
        rows = Axis("token", range(len(self.ids)), self.tokens)
        return self.numbers[:, np.newaxis], rows, named_axis("", (self._column,))


class TokensRead(TokensOfHead):
    """The keys with the largest scores for a query token."""

    meaning: ClassVar[str] = "Each number is the score of a token as a key, before the softmax."
    _column: ClassVar[str] = "score"


def writes(trace: Trace, layer: int, head: int, token: TokenLike, k: int) -> TokensOfHead:
    """See `Trace.writes`."""
    result, source = trace.head(layer, head), trace.vocabulary.lookup(token)
    x = attention_input(trace, layer, np.array([source.id]))[0]
    output = equations.affine(x, result.W_V, result.b_V) @ result.W_O
    template = "{title}: tokens it promotes when it attends to {token}"
    title = Message(template, title=result.title, token=source.readable)
    return TokensOfHead(title, trace, equations.logits(centred(output) * trace.gain, trace.W_U), k)


def reads(trace: Trace, layer: int, head: int, token: TokenLike, k: int) -> TokensOfHead:
    """See `Trace.reads`."""
    result, query = trace.head(layer, head), trace.vocabulary.lookup(token)
    x = attention_input(trace, layer, np.array([query.id]))[0]
    q = equations.affine(x, result.W_Q, result.b_Q)
    X = attention_input(trace, layer, np.arange(trace.config.vocab_size))
    K = equations.affine(X, result.W_K, result.b_K)
    template = "{title}: tokens it attends to from {token}"
    title = Message(template, title=result.title, token=query.readable)
    return TokensRead(title, trace, equations.scores(K @ q, result.scale), k)


def attention_input(trace: Trace, layer: int, ids: Ids) -> Array:
    """The input of a block's attention if the residual stream were W_E[ids], (n, D)."""
    attention = trace.blocks.item(layer).attention
    rows = equations.token_embedding(ids, trace.W_E)
    return equations.layer_norm(rows, attention.gain, attention.bias, attention.epsilon)


class Composition(Analysis):
    """Composition scores of pairs of heads, as `Trace.composition` returns it.

    Attributes
    ----------
    kind : "Q", "K" or "V"
    scores : (L, H, L, H), indexed by the head that writes, then the head that reads; 0 unless the
        second is in a later layer
    even : 1 / √D, the approximate score of random matrices
    """

    meaning: ClassVar[str] = (
        "Each number is ‖OV · reads‖ / (‖OV‖ ‖reads‖): how much of what one head writes the other "
        "reads."
    )
    note: ClassVar[str] = (
        "Scores depend on the matrices alone: that a head can read what another writes doesn't "
        "mean that it does in a text. LayerNorm's gain and centring are folded into the matrices; "
        "its division by the standard deviation, and MLPs in between, are ignored."
    )
    source: ClassVar[str] = f"{FRAMEWORK_PAPER}, ‖OV · reads‖ / (‖OV‖ ‖reads‖), LayerNorm folded in"

    _number: ClassVar[str] = "score"

    scores: Array

    def __init__(self, trace: Trace, kind: str) -> None:
        check_choice(kind, ("Q", "K", "V"), "kind")
        self.kind = kind
        self.title = Message("{kind}-composition of heads{note}", kind=kind, note=trace._note)
        writers = [write_factors(block.attention) for block in trace.blocks]
        readers = [read_factors(block.attention, kind) for block in trace.blocks]
        L, H, self.even = len(writers), len(writers[0]), trace.config.n_embd**-0.5
        scores = np.zeros((L, H, L, H), writers[0].dtype)
        for i in range(L):
            for j in range(i + 1, L):
                scores[i, :, j] = composition_scores(writers[i][:, np.newaxis], readers[j])
        self.scores = read_only(scores)

    def strongest(self, count: int = PAIRS_SHOWN) -> list[tuple[int, int, int, int]]:
        """The pairs with the largest scores: layer and head of the writer, then of the reader."""
        count = as_count(count, "count", least=1)
        order = np.argsort(-self.scores, axis=None, kind="stable")[:count]
        pairs = zip(*np.unravel_index(order, self.scores.shape), strict=True)
        # A large count includes pairs whose reader isn't in a later layer; they score 0.
        return [(int(i), int(h), int(j), int(k)) for i, h, j, k in pairs if i < j]

    def _grid(self) -> tuple[AnyArray, Axis, Axis]:
        L, H, *_ = self.scores.shape
        writes, reads = heads_axis("writes", L, H), heads_axis("reads", L, H)
        return self.scores.reshape(L * H, L * H), writes, reads

    def _tables(self) -> Iterator[Table]:
        lines = [(*header("writes"), Message("reads by {kind}", kind=self.kind), *header("score"))]
        for pair in self.strongest():
            names = head_name(*pair[:2]), head_name(*pair[2:])
            lines.append((*names, f"{self.scores[pair]:.3f}"))
        lines.append((Message("random matrices"), "", f"{self.even:.3f}"))
        yield Table(lines, left=(0, 1))


def composition_scores(writers: Array, readers: Array) -> Array:
    """‖W F‖ / (‖W‖ ‖F‖) of write factors W and read factors F; 0 if one of them is 0."""
    sizes = norm(writers) * norm(readers)
    return np.divide(norm(writers @ readers), sizes, where=sizes > 0, out=np.zeros_like(sizes))


def write_factors(attention: BlockAttention) -> Array:
    """R W_O of each head, (H, Dh, D), with the same norms as OV.

    W_V = Q R (QR decomposition): Q has orthonormal columns, so it doesn't change norms.
    """
    return np.stack(
        [r_factor(fold_layer_norm(attention, h.W_V)) @ centred(h.W_O) for h in attention.heads]
    )


def read_factors(attention: BlockAttention, kind: str) -> Array:
    """A factor F for each head's read matrix R, (H, D, Dh), with ‖W F‖ = ‖W R‖ for any W."""

    def thin_factors(head: Head) -> tuple[Array, Array]:
        """Matrices (D, Dh) with R = left @ right.T."""
        if kind == "V":
            return fold_layer_norm(attention, head.W_V), transpose(centred(head.W_O))
        Q, K = fold_layer_norm(attention, head.W_Q), fold_layer_norm(attention, head.W_K)
        return (Q, K) if kind == "Q" else (K, Q)

    pairs = map(thin_factors, attention.heads)
    return np.stack([left @ transpose(r_factor(right)) for left, right in pairs])


def fold_layer_norm(attention: BlockAttention, W: Array) -> Array:
    """W with LayerNorm's gain and centring folded in: C gain W, see `centred`."""
    return transpose(centred(transpose(attention.gain[:, np.newaxis] * W)))


def centred(W: Array) -> Array:
    """W C: each row minus its mean, which the next LayerNorm subtracts."""
    return W - mean(W)


def norm(x: Array) -> Array:
    """Frobenius norms of matrices, (..., n, m) -> (...)."""
    return np.sqrt(np.square(x).sum(axis=(-2, -1)))
