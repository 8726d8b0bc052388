"""GPT-2's forward pass, held still: each intermediate under its own name, computed on first look.

    token_embedding + position_embedding = embedding ─> block 0 ─> ... ─> final ─> logits

    one block:  input ─> LayerNorm ─> attention ─┐
                  └─────────────────────────────(+)─> mid ─> LayerNorm ─> MLP ─┐
                                                       └──────────────────────(+)─> output

Source: "Language Models are Unsupervised Multitask Learners" (2019), section 2.3; GPT-2's
`model.py`, `model` and `block`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from attnlab.attention import Head, Mask, MultiHeadAttention, causal_mask, transpose
from attnlab.checkpoint import BlockParameters, Checkpoint
from attnlab.config import GPT2Config
from attnlab.errors import InvalidValueError
from attnlab.ops import Array, gelu, layer_norm, linear, softmax
from attnlab.steps import Numbered, Result, Step, read_only, step
from attnlab.tables import align
from attnlab.tokenizer import Token, Tokenizer, Tokens


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
        return gelu(self.peek("hidden"))

    @step("T D", "activated W_2 + b_2")
    def output(self) -> Array:
        return linear(self.peek("activated"), self.W_2, self.b_2)

    def _computes_for_repr(self) -> bool:
        return True


class Block(Result):
    """One block: the stops of the residual stream, and the two things that write to it.

    Attributes
    ----------
    input, mid, output : (T, D), the residual stream before, between and after
    attention : MultiHeadAttention
    mlp : MLP
    """

    parts: ClassVar[tuple[str, ...]] = ("input", "mid", "output")

    layer: int
    trace: Trace
    parameters: BlockParameters

    @step("T D", "the block before's output; for the first block, embedding")
    def input(self) -> Array:
        return self.trace.residual_stream(self.layer)

    @cached_property
    def attention(self) -> MultiHeadAttention:
        config = self.trace.config
        X = read_only(layer_norm(self.input, *self.parameters.ln_1, config.layer_norm_epsilon))
        return MultiHeadAttention(
            f"Layer {self.layer}, attention",
            n_head=config.n_head,
            X=X,
            memory=X,
            mask=self.trace.mask,
            dropout_mask=None,
            **self.parameters.attention._asdict(),
        )

    @step("T D", "input + attention.output")
    def mid(self) -> Array:
        return self.input + self.attention.output

    @cached_property
    def mlp(self) -> MLP:
        epsilon = self.trace.config.layer_norm_epsilon
        X = layer_norm(self.mid, *self.parameters.ln_2, epsilon)
        return MLP(f"Layer {self.layer}, MLP", X=X, **self.parameters.mlp._asdict())

    @step("T D", "mid + mlp.output")
    def output(self) -> Array:
        return self.mid + self.mlp.output

    def __repr__(self) -> str:
        return f"{super().__repr__()}\n.attention and .mlp have tables of their own"


class Trace(Result):
    """What one forward pass leaves behind, as `GPT2.trace` returns it.

    Looking at a part computes what it needs and no more: layer 0 runs one block, the logits run
    all of them.

    Attributes
    ----------
    tokens : ids, symbols, texts and bytes, see `Tokens`
    token_embedding, position_embedding, embedding : (T, D)
    blocks : one `Block` for each layer
    final : (T, D), the last block's output after the last LayerNorm
    logits : (T, vocab), for each token what may follow it
    """

    parts: ClassVar[tuple[str, ...]] = (
        *("token_embedding", "position_embedding", "embedding"),
        *("final", "logits"),
    )

    tokens: Tokens
    config: GPT2Config
    _tokenizer: Tokenizer
    _checkpoint: Checkpoint

    def __init__(self, tokens: Tokens, tokenizer: Tokenizer, checkpoint: Checkpoint) -> None:
        config = checkpoint.config
        super().__init__(
            f"Trace of {len(tokens)} tokens through {config.n_layer} blocks "
            f"of {config.n_head} heads",
            tokens=tokens,
            config=config,
        )
        vars(self).update(_tokenizer=tokenizer, _checkpoint=checkpoint)

    @step("T D", "rows of W_E, one for each id")
    def token_embedding(self) -> Array:
        return self._checkpoint.token_embedding(self.tokens.ids)

    @step("T D", "the first T rows of W_P")
    def position_embedding(self) -> Array:
        return self._checkpoint.position_embedding(len(self.tokens))

    @step("T D", "token_embedding + position_embedding")
    def embedding(self) -> Array:
        return self.token_embedding + self.position_embedding

    @cached_property
    def mask(self) -> Mask:
        """bool (T, T), True where query i may attend to key j, the same in all heads."""
        return read_only(causal_mask(len(self.tokens)))

    @cached_property
    def blocks(self) -> Numbered[Block]:
        blocks = (
            Block(
                f"Block {layer}",
                layer=layer,
                trace=self,
                parameters=self._checkpoint.block(layer),
            )
            for layer in range(self.config.n_layer)
        )
        return Numbered("layer", blocks)

    def residual_stream(self, layer: int) -> Array:
        """(T, D), what enters a block; past the last block, what leaves it."""
        residual = self.embedding
        for block in self.blocks[:layer]:  # in order: a deep model shall not recurse
            residual = block.output
        return residual

    def head(self, layer: int, head: int) -> Head:
        """One head, `blocks[layer].attention.heads[head]`.

        Raises
        ------
        OutOfRangeError
            There is no such layer or head.
        """
        return self.blocks[layer].attention.heads[head]

    @step("T D", "LayerNorm of the last block's output")
    def final(self) -> Array:
        residual = self.residual_stream(self.config.n_layer)
        return layer_norm(residual, *self._checkpoint.ln_f, self.config.layer_norm_epsilon)

    @step("T vocab", "final W_Eᵀ")
    def logits(self) -> Array:
        return self.final @ transpose(self._checkpoint.W_E)

    def next_tokens(self, k: int = 5) -> NextTokens:
        """The k tokens that most probably follow the last one, the most probable first.

        probability = softmax(final W_Eᵀ) of the last row; the other rows' logits are not made.

        Raises
        ------
        InvalidValueError
            k is not an integer from 1 to the size of the vocabulary.
        """
        vocab = self.config.vocab_size
        if not isinstance(k, int | np.integer) or isinstance(k, bool) or not 1 <= k <= vocab:
            raise InvalidValueError(f"k must be an integer from 1 to {vocab}; given {k!r}")
        logits = self.final[-1] @ transpose(self._checkpoint.W_E)
        probabilities = softmax(logits)
        best = np.argsort(-logits, kind="stable")[:k]
        return NextTokens(
            NextToken(
                **vars(token),
                logit=float(logits[token.id]),
                probability=float(probabilities[token.id]),
            )
            for token in self._tokenizer.tokens(best)
        )

    def __repr__(self) -> str:
        return f"{super().__repr__()}\n.tokens, .blocks[layer] and .head(layer, head) show the rest"


@dataclass(frozen=True)
class NextToken(Token):
    """A token that may come next, with its logit and its probability."""

    logit: float
    probability: float


class NextTokens(tuple[NextToken, ...]):
    """Tokens that may come next; `repr` is a table of them."""

    def __repr__(self) -> str:
        lines = [("id", "symbol", "text", "logit", "probability")]
        for token in self:
            numbers = (f"{token.logit:.4f}", f"{token.probability:.4f}")
            lines.append((str(token.id), token.symbol, repr(token.text), *numbers))
        return align(lines, left=(1, 2))
