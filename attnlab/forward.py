"""GPT-2's forward pass, held still: each intermediate under its own name, computed on first look.

    token_embedding + position_embedding = embedding ─> block 0 ─> ... ─> final ─> logits

    one block:  input ─> LayerNorm ─> attention ─┐
                  └─────────────────────────────(+)─> mid ─> LayerNorm ─> MLP ─┐
                                                       └──────────────────────(+)─> output

Shapes are those of one sequence of T tokens; leading axes, several sequences side by side, pass
through.

Source: "Language Models are Unsupervised Multitask Learners" (2019), section 2.3; GPT-2's
`model.py`, `model` and `block`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from attnlab.attention import Mask, MultiHeadAttention, causal_mask, split_heads, transpose
from attnlab.checkpoint import BlockParameters, Parameters
from attnlab.config import GPT2Config
from attnlab.errors import InvalidValueError
from attnlab.ops import Array, gelu, layer_norm, linear
from attnlab.steps import Numbered, Result, Step, owned, read_only, step
from attnlab.tokenizer import Ids, Tokens, check_ids

# GELU takes so many rows at a time, so that what passes through stays in the processor's cache.
GELU_ROWS = 32


class KeyValueCache:
    """The keys and values of the tokens so far, in each layer, so that none is computed twice.

    In a causal model no later token changes an earlier one's keys and values.

    Parameters
    ----------
    config : the model's sizes; there is room for n_positions tokens
    dtype : the model's

    Attributes
    ----------
    length : how many tokens are in it
    """

    def __init__(self, config: GPT2Config, dtype: DTypeLike) -> None:
        shape = (config.n_layer, config.n_head, config.n_positions, config.d_head)
        self._K, self._V = np.empty(shape, dtype), np.empty(shape, dtype)
        self.length = 0

    def extend(self, layer: int, K: Array, V: Array) -> tuple[Array, Array]:
        """All keys and values of a layer, (H, length + T, Dh), the new (H, T, Dh) at the end."""
        end = self.length + K.shape[-2]
        self._K[layer][:, self.length : end] = K
        self._V[layer][:, self.length : end] = V
        return self._K[layer][:, :end], self._V[layer][:, :end]


class MLP(Result):
    """A block's second half, two linear maps with GELU between them.

    Attributes
    ----------
    X : (T, D), LayerNorm's output
    W_1, b_1, W_2, b_2 : (D, F), (F,), (F, D), (D,)
    hidden, activated : (T, F)
    output : (T, D)
    """

    parts: ClassVar[tuple[str, ...]] = (
        *("X", "W_1", "b_1", "W_2", "b_2"),
        *("hidden", "activated", "output"),
    )

    X = Step[Array]("T D", "what enters the MLP")
    W_1 = Step[Array]("D F")
    b_1 = Step[Array]("F")
    W_2 = Step[Array]("F D")
    b_2 = Step[Array]("D")

    @step("T F", "X W_1 + b_1")
    def hidden(self) -> Array:
        return linear(self.X, self.W_1, self.b_1)

    @step("T F", "GELU(hidden)")
    def activated(self) -> Array:
        hidden: Array = self.peek("hidden")
        activated = hidden if hidden.flags.writeable else np.empty_like(hidden)
        for start in range(0, hidden.shape[-2], GELU_ROWS):
            rows = np.s_[..., start : start + GELU_ROWS, :]
            gelu(hidden[rows], out=activated[rows])
        return activated

    @step("T D", "activated W_2 + b_2")
    def output(self) -> Array:
        return linear(self.peek("activated"), self.W_2, self.b_2)

    def _computes_for_repr(self) -> bool:
        return True


class BlockDropout(NamedTuple):
    """What dropout multiplies with in one block, arrays of 0 and 1 / (1 - p).

    Attributes
    ----------
    weights : (..., H, T, T), of the attention
    attention, mlp : (..., T, D), of what each writes to the residual stream
    """

    weights: Array
    attention: Array
    mlp: Array


class Dropout(NamedTuple):
    """What dropout multiplies with in one forward pass of a training, arrays of 0 and 1 / (1 - p).

    Attributes
    ----------
    embedding : (..., T, D)
    blocks : one `BlockDropout` for each layer
    """

    embedding: Array
    blocks: Sequence[BlockDropout]


class BlockAttention(MultiHeadAttention):
    """A block's attention, whose X is LayerNorm of the residual stream.

    Attributes
    ----------
    residual : (T, D), the block's input
    gain, bias, epsilon : (D,), (D,) and a number, of LayerNorm
    X, memory : (T, D), one array, kept once it or a head is looked at. Before, it only passes
        through on the way to Q, K and V. In a step of generation it has the new tokens' rows, and
        K and V have those of the cache too.
    and all that `MultiHeadAttention` has
    """

    residual: Array
    gain: Array
    bias: Array
    epsilon: float

    @step("Tq D", "LayerNorm(the block's input)")
    def X(self) -> Array:
        return layer_norm(self.residual, self.gain, self.bias, self.epsilon)

    @step("Tk D", "X")
    def memory(self) -> Array:
        return self.X

    def _is_to_itself(self) -> bool:
        return True


class Block(Result):
    """One block: the stops of the residual stream, and the two things that write to it.

    Attributes
    ----------
    input, mid, output : (T, D), the residual stream before, between and after
    attention : BlockAttention
    mlp : MLP
    tokens : Tokens of a text's trace, else None
    """

    parts: ClassVar[tuple[str, ...]] = ("input", "mid", "output")
    hint: ClassVar[str] = ".attention and .mlp have tables of their own"

    layer: int
    config: GPT2Config
    parameters: BlockParameters
    mask: Mask
    tokens: Tokens | None
    earlier: tuple[Block, ...]
    cache: KeyValueCache | None
    dropout: BlockDropout | None

    @step("T D", "the block before's output; for the first block, embedding")
    def input(self) -> Array:
        for block in self.earlier:  # in order: a deep model shall not recurse
            output = block.output
        return output

    @cached_property
    def attention(self) -> BlockAttention:
        attention = self.bare_attention()
        # Q, K and V as MultiHeadAttention would make them, in one product instead of three.
        QKV = read_only(linear(attention.peek("X"), *self.parameters.W_QKV))
        Q, K, V = (split_heads(part, self.config.n_head) for part in np.split(QKV, 3, axis=-1))
        if self.cache is not None:
            K, V = self.cache.extend(self.layer, K, V)
        attention.keep(Q=Q, K=K, V=V)
        return attention

    def bare_attention(self) -> BlockAttention:
        """The block's attention before Q, K and V are put in, of which a cache may know more."""
        gain, bias = self.parameters.ln_1
        return BlockAttention(
            f"Layer {self.layer}, attention",
            n_head=self.config.n_head,
            tokens=self.tokens,
            residual=self.input,
            gain=gain,
            bias=bias,
            epsilon=self.config.layer_norm_epsilon,
            mask=self.mask,
            dropout_mask=None if self.dropout is None else self.dropout.weights,
            **self.parameters.attention._asdict(),
        )

    @step("T D", "input + attention.output")
    def mid(self) -> Array:
        mid: Array = owned(self.attention.peek("output"))
        if self.dropout is not None:
            mid *= self.dropout.attention
        mid += self.input
        return mid

    @step("", "")
    def mlp(self) -> MLP:
        X = layer_norm(self.mid, *self.parameters.ln_2, self.config.layer_norm_epsilon)
        return MLP(f"Layer {self.layer}, MLP", X=X, **self.parameters.mlp._asdict())

    @step("T D", "mid + mlp.output")
    def output(self) -> Array:
        output: Array = owned(self.peek("mlp").peek("output"))
        if self.dropout is not None:
            output *= self.dropout.mlp
        output += self.mid
        return output


class ForwardPass(Result):
    """Token ids through every block to logits.

    Looking at a part computes what it needs and no more: layer 0 runs one block, the logits run
    all of them.

    Parameters
    ----------
    ids : int64 (..., T)
    parameters : the model's
    cache : keys and values of the tokens before these, None if there are none
    dropout : what is dropped while the model is trained, else None

    Raises
    ------
    InvalidTypeError, InvalidValueError
        Ids that are not integers, none at all, one outside the vocabulary, or more of them than
        positions.

    Attributes
    ----------
    token_embedding, position_embedding, embedding : (..., T, D), (T, D), (..., T, D)
    blocks : one `Block` for each layer
    final : (..., T, D), the last block's output after the last LayerNorm
    logits : (..., T, vocab), for each token what may follow it
    mask : bool (T, cached + T), True where a query may attend to a key, the same in all heads
    cached : how many tokens before these were found in the cache
    tokens : Tokens of a text's trace, None where there are only ids
    """

    parts: ClassVar[tuple[str, ...]] = (
        *("token_embedding", "position_embedding", "embedding"),
        *("final", "logits"),
    )
    kind: ClassVar[str] = "Forward pass"

    ids: Ids
    parameters: Parameters
    config: GPT2Config
    mask: Mask
    tokens: Tokens | None = None
    cached: int
    dropout: Dropout | None
    _cache: KeyValueCache | None

    def __init__(
        self,
        ids: Ids,
        parameters: Parameters,
        cache: KeyValueCache | None = None,
        dropout: Dropout | None = None,
    ) -> None:
        config = parameters.config
        cached = 0 if cache is None else cache.length
        try:
            ids = np.asarray(ids)
        except ValueError:
            raise InvalidValueError("ids must be rows of equal length") from None
        check_ids(ids.ravel(), config.vocab_size)
        *_, T = (0, *ids.shape)
        if not ids.size or not config.n_positions - cached >= T:
            raise InvalidValueError(
                f"a forward pass takes 1 to {config.n_positions - cached} tokens; given {T}"
            )
        after = f" after {cached} cached ones" if cached else ""
        super().__init__(
            f"{self.kind} of {' x '.join(map(str, ids.shape))} tokens{after} through "
            f"{config.n_layer} blocks of {config.n_head} heads",
            ids=ids,
            parameters=parameters,
            config=config,
            mask=causal_mask(T, cached),
            cached=cached,
            dropout=dropout,
            _cache=cache,
        )

    @step("T D", "rows of W_E, one for each id")
    def token_embedding(self) -> Array:
        return self.parameters.token_embedding(self.ids)

    @step("T D", "rows of W_P, one for each position")
    def position_embedding(self) -> Array:
        return self.parameters.position_embedding(self.cached, self.cached + self.ids.shape[-1])

    @step("T D", "token_embedding + position_embedding")
    def embedding(self) -> Array:
        embedding: Array = owned(self.peek("token_embedding"))
        embedding += self.peek("position_embedding")
        if self.dropout is not None:
            embedding *= self.dropout.embedding
        return embedding

    @cached_property
    def blocks(self) -> Numbered[Block]:
        blocks: list[Block] = []
        for layer in range(self.config.n_layer):
            blocks.append(
                Block(
                    f"Block {layer}",
                    layer=layer,
                    config=self.config,
                    parameters=self.parameters.block(layer),
                    mask=self.mask,
                    tokens=self.tokens,
                    earlier=tuple(blocks),
                    cache=self._cache,
                    dropout=None if self.dropout is None else self.dropout.blocks[layer],
                    **({} if blocks else {"input": self.embedding}),
                )
            )
        return Numbered("layer", blocks)

    @step("T D", "LayerNorm of the last block's output")
    def final(self) -> Array:
        residual = self.blocks[-1].output
        return layer_norm(residual, *self.parameters.ln_f, self.config.layer_norm_epsilon)

    @step("T vocab", "final W_Eᵀ")
    def logits(self) -> Array:
        return linear(self.final, transpose(self.parameters.W_E))
