"""The residual stream as a sum of parts, and what each part adds to a linear map X W + b.

The stream at a block's input is the sum of what embeddings, earlier heads, MLPs and biases wrote.
With LayerNorm's deviation held constant, X = LayerNorm(stream) is linear in each part:

    X = Σ (part - mean(part)) / deviation · gain + bias

A head's part is in turn the sum of weights[query, key] V[key] W_O over the keys that it attends to,
and V[key] is again X W + b at the head's block. An MLP's part is a sum over its neurons.
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

NEURONS = 10  # an opened MLP's neurons that are separate terms; the others are one term


@dataclass(frozen=True, eq=False)
class Term:
    """One term of a sum of vectors."""

    #: The term's path in the trace. A part of an opened part is named "outer path < its own path".
    name: str
    label: str  #: the term's name in tables
    vector: Array  #: (1, Dh), or (T, Dh) with a row for each position
    #: Opens the term into its parts, given the term and the vector (Dh,) that multiplies it and so
    #: determines which neurons are largest. None if the term can't be opened.
    parts: Callable[[Term, Array], list[Term]] | None = None

    @property
    def phrase(self) -> str:
        """What a sentence calls the term."""
        return self.label if self.parts is None else Message("what {part} wrote", part=self.label)

    def within(self, outer: Term) -> Term:
        """Rename the term as a part of another term."""
        label = Message("{title}: {name}", title=outer.label, name=self.label)
        return replace(self, name=f"{outer.name} < {self.name}", label=label)


def block_at(part: Result, layer: int) -> Block:
    """A block of the forward pass that a part belongs to."""
    return Block(Message("Block {layer}", layer=layer), part._run, f"blocks.{layer}")


def fold_layer_norm(attention: BlockAttention, W: Array) -> Array:
    """W (D, n) combined with LayerNorm's gain and its subtraction of the mean."""
    return transpose(centred(transpose(attention.gain[:, np.newaxis] * W)))


def centred(W: Array) -> Array:
    """Subtract from each row its mean, as LayerNorm does."""
    return W - mean(W)


def weighted(rows: Array, x: Array) -> Array:
    """Weight the rows of x (..., T, n): `rows` (1, T) also sums them, `rows` (T, 1) doesn't."""
    return rows @ x if rows.shape[-1] == x.shape[-2] else rows * x


def scaled_rows(attention: BlockAttention, rows: Array) -> Array:
    """Divide `rows` by LayerNorm's deviation at each position."""
    deviations = deviation(centred(attention.residual), attention.epsilon)  # (T, 1)
    return rows / (deviations if rows.shape[-1] == 1 else deviations.T)


def written_by_mlp(block: Block) -> Array:
    """What an MLP adds to the stream, (T, D)."""
    # The trace keeps `output` and `mid` but not the MLP's output, which takes two matrix products.
    return block.mlp.output if block.is_edited("output") else block.output - block.mid


def written_by_heads(block: Block, rows: Array) -> Array:
    """What each head adds to the stream, as `weighted` by `rows`: (H, 1, D) or (H, T, D)."""
    attention = block.attention
    W_O = attention.W_O.reshape(attention.n_head, -1, attention.W_O.shape[-1])  # (H, Dv, D)
    written = weighted(rows, attention.context) @ W_O
    for number, head in enumerate(attention.heads):
        if head.is_edited("output"):  # then the output isn't context W_O
            written[number] = weighted(rows, head.output)
    return written


def stream_terms(
    part: Result, layer: int, rows: Array, W: Array, b: tuple[str, Array]
) -> list[Term]:
    """The terms of Σ rows[t] (X[t] W + b) at a block's attention.

    Parameters
    ----------
    rows : weights of the positions (1, T); or ones (T, 1), which keep the positions separate
    W : (D, Dh)
    b : the name of the bias, and the bias (Dh,)
    """
    block = block_at(part, layer)
    attention, scaled = block.attention, scaled_rows(block.attention, rows)
    read = fold_layer_norm(attention, W)  # maps a scaled part of the stream to its term, (D, Dh)
    total = rows.sum(axis=-1, keepdims=True)  # multiplies b and LayerNorm's bias
    factor = scaled.sum(axis=-1, keepdims=True)  # multiplies b_O, which all positions share

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

    bias_path, label = f"{attention.path}.bias", Message("LayerNorm's bias")
    b_name, b_vector = b
    return [
        *before(),
        Term(bias_path, label, total * (attention.bias @ W)),
        Term(f"{attention.path}.{b_name}", b_name, total * b_vector),
    ]


def bias_name(name: str, layer: int) -> Message:
    return Message("{name} of layer {layer}", name=name, layer=layer)


def head_terms(
    head: Head, layer: int, rows: Array, read: Array, outer: Term, multiplier: Array
) -> list[Term]:
    """Split a head's part into a term for each token that the head attends to."""
    weights = (rows @ head.weights)[0]  # (Tk,)
    read = head.W_O @ read  # maps a value V[key] to its term
    vectors = (weights[:, np.newaxis] * head.V) @ read
    labels = axis_of(head, "Tk", len(weights)).numbered_labels
    terms = []
    for key in np.flatnonzero(weights):  # masked keys have the weight 0
        label = Message("{title} from {token}", title=outer.label, token=labels[key])
        opened = partial(value_terms, head, layer, int(key), weights[key], read)
        name = outer.name.removesuffix("output") + f"V[{key}]"
        is_cached = key < head.tokens_before  # an earlier pass has the stream of a cached token
        terms.append(Term(name, label, vectors[[key]], None if is_cached else opened))
    return terms


def value_terms(
    head: Head, layer: int, key: int, weight: float, read: Array, outer: Term, multiplier: Array
) -> list[Term]:
    """Split a token's weighted value into terms, one for each part of the stream at that token."""
    rows = np.zeros((1, head.scores_shape[-2]), read.dtype)
    rows[0, key - head.tokens_before] = weight
    assert head.b_V is not None  # a head of a block has biases
    terms = stream_terms(head, layer, rows, head.W_V @ read, ("b_V", head.b_V @ read))
    return [term.within(outer) for term in terms]


def mlp_terms(
    mlp: MLP, layer: int, rows: Array, read: Array, outer: Term, multiplier: Array
) -> list[Term]:
    """Split an MLP's part into its largest neurons, the other neurons together, and b_2."""
    activated = (rows @ mlp.activated)[0]  # (F,)
    effects = activated * (mlp.W_2 @ (read @ multiplier))  # what each neuron adds to the score
    largest = np.sort(np.argsort(-np.abs(effects), kind="stable")[:NEURONS])
    others = np.delete(np.arange(len(activated)), largest)

    def term(name: str, label: str, vector: Array) -> Term:
        """A term whose path has `name` in place of "output"."""
        path = outer.name.removesuffix("output") + name
        return Term(path, Message("{title}: {name}", title=outer.label, name=label), vector)

    neurons = [
        term(
            f"W_2[{n}]",
            Message("neuron {number}", number=n),
            activated[[[n]]] * (mlp.W_2[[n]] @ read),  # (1, 1) times (1, Dh)
        )
        for n in largest
    ]
    if others.size:
        rest = (activated[others] @ mlp.W_2[others])[np.newaxis] @ read
        count = Message("the other {count} neurons", count=len(others))
        neurons.append(term("W_2[others]", count, rest))
    bias = rows.sum(axis=-1, keepdims=True) * (mlp.b_2 @ read)
    return [*neurons, term("b_2", "b_2", bias)]
