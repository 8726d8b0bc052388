"""The residual stream as a sum of parts, as a linear map of X reads it.

The stream at a block's input is the sum of what came before: embeddings, heads, MLPs and biases.
With LayerNorm's deviation held constant, X is linear in each part, and so is X W + b:

    X = Σ (part - mean(part)) / deviation · gain + bias

A head's part is in turn the sum of weights[query, key] V[key] W_O over the tokens that it attends
to, where V[key] is a linear map of X at the head's block; an MLP's part is a sum over neurons.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from attnlab.analysis.base import head_name
from attnlab.equations import Array, deviation, mean, transpose
from attnlab.forward.attention import Head
from attnlab.forward.forward_pass import MLP, Block, BlockAttention
from attnlab.steps import Result
from attnlab.steps.labels import axis_of
from attnlab.support.messages import Message

# The number of neurons of an opened MLP that are separate terms.
NEURONS = 10


@dataclass(frozen=True, eq=False)
class Term:
    """One term of a sum of vectors."""

    #: The term's path in the trace. A part of an opened part is named "outer path < its own path".
    name: str
    label: str  #: the term's name in tables
    vector: Array  #: (1, Dh), or (T, Dh) with a row for each position
    #: Returns the terms that it opens into, given this term and the vector (Dh,) that it is
    #: multiplied by, which decides which neurons are large. None if it doesn't open.
    parts: Callable[[Term, Array], list[Term]] | None = None

    @property
    def phrase(self) -> str:
        """The term in a sentence."""
        return self.label if self.parts is None else Message("what {part} wrote", part=self.label)

    def within(self, outer: Term) -> Term:
        """The term as a part of another one."""
        label = Message("{title}: {name}", title=outer.label, name=self.label)
        return replace(self, name=f"{outer.name} < {self.name}", label=label)


def block_at(part: Result, layer: int) -> Block:
    """A block of the pass that a part belongs to."""
    return Block(Message("Block {layer}", layer=layer), part._run, f"blocks.{layer}")


def fold_layer_norm(attention: BlockAttention, W: Array) -> Array:
    """W (D, n) combined with LayerNorm's gain and its subtraction of the mean."""
    return transpose(centred(transpose(attention.gain[:, np.newaxis] * W)))


def centred(W: Array) -> Array:
    """Subtract from each row its mean, as LayerNorm does."""
    return W - mean(W)


def weighted(rows: Array, x: Array) -> Array:
    """Weigh the rows of x (..., T, n): their sum for `rows` (1, T), each row for `rows` (T, 1)."""
    return rows @ x if rows.shape[-1] == x.shape[-2] else rows * x


def scaled_rows(attention: BlockAttention, rows: Array) -> Array:
    """rows / deviation, where LayerNorm has one deviation for each position."""
    deviations = deviation(centred(attention.residual), attention.epsilon)  # (T, 1)
    return rows / (deviations if rows.shape[-1] == 1 else deviations.T)


def written_by_mlp(block: Block) -> Array:
    """What an MLP adds to the stream, (T, D)."""
    # The run keeps output and mid, but not the MLP's output: a difference is quick to compute.
    return block.mlp.output if block.is_edited("output") else block.output - block.mid


def written_by_heads(block: Block, rows: Array) -> Array:
    """What each head adds to the stream, `weighted` by `rows`: (H, 1, D), or (H, T, D)."""
    attention = block.attention
    width = (attention.n_head, -1, attention.W_O.shape[-1])
    written = weighted(rows, attention.context) @ attention.W_O.reshape(width)  # (H, Dv, D)
    for number, head in enumerate(attention.heads):
        if head.is_edited("output"):  # the output is no longer context W_O
            written[number] = weighted(rows, head.output)
    return written


def stream_terms(
    part: Result, layer: int, rows: Array, W: Array, b: tuple[str, Array]
) -> list[Term]:
    """The terms of Σ rows[t] (X[t] W + b) at a block's attention.

    Parameters
    ----------
    rows : (1, T); or (T, 1) of ones, to keep the positions apart
    W : (D, Dh)
    b : the name of the bias, and the bias (Dh,)
    """
    block = block_at(part, layer)
    attention, scaled = block.attention, scaled_rows(block.attention, rows)
    read = fold_layer_norm(attention, W)  # (D, Dh), the map from a part of the stream to Q or K
    total = rows.sum(axis=-1, keepdims=True)
    factor = scaled.sum(axis=-1, keepdims=True)  # the factor of b_O, which all positions share

    def before() -> Iterator[Term]:
        for name in ("token_embedding", "position_embedding"):
            embedding = part._run.value(name)
            label = Message(name.replace("_", " "))
            yield Term(name, label, weighted(scaled, embedding) @ read)
        for n in range(layer):
            source = block_at(part, n)
            vectors = written_by_heads(source, scaled) @ read
            for head, vector in zip(source.attention.heads, vectors, strict=True):
                number = int(head.path.rpartition(".")[2])
                opened = partial(head_terms, head, n, scaled, read)
                yield Term(f"{head.path}.output", head_name(n, number), vector, opened)
            bias = factor * (source.attention.b_O @ read)
            yield Term(f"{source.path}.attention.b_O", bias_name("b_O", n), bias)
            vector = weighted(scaled, written_by_mlp(source)) @ read
            opened = partial(mlp_terms, source.mlp, n, scaled, read)
            yield Term(f"{source.path}.mlp.output", f"MLP {n}", vector, opened)

    bias_path, name = f"{attention.path}.bias", Message("LayerNorm's bias")
    return [
        *before(),
        Term(bias_path, name, total * (attention.bias @ W)),
        Term(f"{attention.path}.{b[0]}", b[0], total * b[1]),
    ]


def bias_name(name: str, layer: int) -> Message:
    return Message("{name} of layer {layer}", name=name, layer=layer)


def head_terms(
    head: Head, layer: int, rows: Array, read: Array, outer: Term, other: Array
) -> list[Term]:
    """A head's part as a sum over the tokens that it attends to."""
    weights = (rows @ head.weights)[0]  # (Tk,)
    read = head.W_O @ read
    vectors = (weights[:, np.newaxis] * head.V) @ read
    labels = axis_of(head, "Tk", len(weights)).numbered_labels
    terms = []
    for key in np.flatnonzero(weights):  # 0 where masked
        label = Message("{title} from {token}", title=outer.label, token=labels[key])
        opened = partial(value_terms, head, layer, int(key), weights[key], read)
        name = outer.name.removesuffix("output") + f"V[{key}]"
        is_cached = key < head.tokens_before  # then the key's stream is in another pass
        terms.append(Term(name, label, vectors[[key]], None if is_cached else opened))
    return terms


def value_terms(
    head: Head, layer: int, key: int, weight: float, read: Array, outer: Term, other: Array
) -> list[Term]:
    """A token's value as a sum over the parts of the stream at that token."""
    rows = np.zeros((1, head.scores_shape[-2]), read.dtype)
    rows[0, key - head.tokens_before] = weight
    assert head.b_V is not None  # a head of a block has biases
    terms = stream_terms(head, layer, rows, head.W_V @ read, ("b_V", head.b_V @ read))
    return [term.within(outer) for term in terms]


def mlp_terms(
    mlp: MLP, layer: int, rows: Array, read: Array, outer: Term, other: Array
) -> list[Term]:
    """An MLP's part as its largest neurons, the rest, and b_2."""
    activated = (rows @ mlp.activated)[0]  # (F,)
    effects = activated * (mlp.W_2 @ (read @ other))
    largest = np.sort(np.argsort(-np.abs(effects), kind="stable")[:NEURONS])
    others = np.delete(np.arange(len(activated)), largest)

    def term(name: str, label: str, vector: Array) -> Term:
        """A term whose path has `name` instead of the MLP's "output"."""
        path = outer.name.removesuffix("output") + name
        return Term(path, Message("{title}: {name}", title=outer.label, name=label), vector)

    neurons = [
        term(
            f"W_2[{n}]",
            Message("neuron {number}", number=n),
            activated[[[n]]] * (mlp.W_2[[n]] @ read),
        )
        for n in largest
    ]
    if others.size:
        rest = (activated[others] @ mlp.W_2[others])[np.newaxis] @ read
        count = Message("the other {count} neurons", count=len(others))
        neurons.append(term("W_2[others]", count, rest))
    bias = rows.sum(axis=-1, keepdims=True) * (mlp.b_2 @ read)
    return [*neurons, term("b_2", "b_2", bias)]
