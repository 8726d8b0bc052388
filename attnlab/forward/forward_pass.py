"""GPT-2's forward pass as named steps, computed on first access.

    token_embedding + position_embedding = embedding ─> block 0 ─> ... ─> final ─> logits

    one block:  input ─> LayerNorm ─> attention ─┐
                  └─────────────────────────────(+)─> mid ─> LayerNorm ─> MLP ─┐
                                                       └──────────────────────(+)─> output

Shapes are for one sequence of T tokens; leading axes are batch axes. The equations are in
`attnlab.equations`; this module declares which step each of them computes.

Source: "Language Models are Unsupervised Multitask Learners" (2019), section 2.3; GPT-2's
`model.py`, `model` and `block`.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from attnlab import equations
from attnlab.equations import Activation, Array, Ids, Mask
from attnlab.errors import InvalidValueError, quoted
from attnlab.forward import fast
from attnlab.forward.attention import SPLIT, Head, MultiHeadAttention, affine_step
from attnlab.forward.config import GPT2Config
from attnlab.forward.functional import causal_mask
from attnlab.forward.parameters import Parameters, parameter_count
from attnlab.steps import Formulas, Numbered, Result, Run, Step, graph_of, step_at
from attnlab.steps.paths import parse
from attnlab.support.checks import as_array
from attnlab.support.messages import Message, counted
from attnlab.text.tokens import Tokens, check_ids
from attnlab.views.shown import ShownResult

if TYPE_CHECKING:
    from attnlab.views.explaining.explanation import Explanation

# The number of multiplications allowed to show a trace's table; they take less than 50 ms.
MAX_MULTIPLICATIONS = 10**9

# Reading one parameter from disk takes as long as this many multiplications.
READ_COST = 60


class CachedRows:
    """The first `length` rows of a layer's cached keys or values, (H, n_positions, Dh)."""

    def __init__(self, rows: Array, length: int, cache: KeyValueCache | None = None) -> None:
        # This is the length at the start of the pass; the cache's own length grows later.
        self._rows, self._length, self._cache = rows, length, cache

    def extend(self, new: Array) -> Array:
        """Append new rows (H, T, Dh) and return all, (H, length + T, Dh)."""
        # The cache is filled in place, without copying earlier rows for each new token. Only the
        # pass that follows the last cached token may write; an earlier pass, such as an edited
        # trace, must not overwrite the rows of newer tokens, so it gets a copy.
        if self._cache is None or self._cache.length != self._length:
            return np.concatenate([self._rows[:, : self._length], new], axis=-2)
        end = self._length + new.shape[-2]  # T new rows
        self._rows[:, self._length : end] = new
        return self._rows[:, :end]

    def __reduce__(self) -> tuple[Any, ...]:  # without the unused positions
        return CachedRows, (self._rows[:, : self._length], self._length)


class KeyValueCache:
    """The keys and values of the `length` earlier tokens, at most n_positions, in each layer.

    This works because in a causal model, later tokens don't change earlier keys and values.
    """

    def __init__(self, config: GPT2Config, dtype: DTypeLike) -> None:
        # The axis of 2 is for keys and values. Rows after `length` are never read.
        shape = (2, config.n_layer, config.n_head, config.n_positions, config.d_head)
        self._rows = np.empty(shape, dtype)
        self.length = 0

    def by_path(self) -> dict[str, CachedRows]:
        """The cached keys and values for a pass over the next tokens, by step path."""
        return {
            f"blocks.{layer}.attention.{name}_cache": CachedRows(rows, self.length, self)
            for name, layers in zip("KV", self._rows, strict=True)
            for layer, rows in enumerate(layers)  # (H, n_positions, Dh)
        }


class Explainable(ShownResult):
    """A result whose numbers can be explained."""

    # The step that is explained by default.
    _default_step: ClassVar[str]

    def explain(
        self,
        step: str | None = None,
        token: int | str | None = None,
        component: int | str | None = None,
    ) -> Explanation:
        """Return the arithmetic behind one number, to check by hand; `print` shows it.

        Parameters
        ----------
        step : a name, or a path such as "blocks.0.mlp.hidden"; None for the final step,
            logits or output. "probabilities" are softmax(logits).
        token : the row, by position (negative positions count from the end) or by the token's text,
            such as "it"; None for the last row. For a parameter, the row's number.
        component : the column; default 0. For logits, a token of the vocabulary by its id or text,
            such as " dog", by default the most probable; for weights a key, by default all keys.

        Examples
        --------
        >>> trace.explain()    # the logit of the most probable next token
        >>> trace.explain("blocks.0.mlp.hidden", "it", 17)
        >>> trace.blocks[0].explain("mid", "it")
        """
        # A likely mistake: explain("it", "dog") is how a head explains a weight.
        texts = {token.text.strip() for token in self.tokens or ()}
        if isinstance(step, str) and step not in self.steps and step.strip() in texts:
            key = "key" if token is None else quoted(token)
            step = quoted(step)
            raise InvalidValueError(
                f"{step} is a token, not a step of {self.title}. To explain a weight between "
                f"tokens: trace.head(layer, head).explain({step}, {key})"
            )
        step = self._default_step if step is None else step
        from attnlab.views.explaining.explain import explain  # imported late: it is slow to load

        return explain(*step_at(self, step), token, component)


class MLP(Explainable):
    """The MLP of a block: two linear maps with an activation function in between.

    Attributes
    ----------
    X : (T, D), LayerNorm's output
    gain, bias, epsilon : LayerNorm's parameters (D,) and (D,), and a number
    W_1, b_1, W_2, b_2 : (D, F), (F,), (F, D), (D,)
    activation : the activation function, GELU in GPT-2
    hidden, activated : (T, F)
    output : (T, D)
    """

    _table_steps: ClassVar[tuple[str, ...]] = (
        *("X", "W_1", "b_1", "W_2", "b_2"),
        *("hidden", "activated", "output"),
    )
    _default_step: ClassVar[str] = "output"

    # A step without an equation is a parameter, which the run reads from the model by its path.
    gain = Step[Array]("D")  # gain and bias belong to LayerNorm, not to the linear maps
    bias = Step[Array]("D")
    # Every LayerNorm has the same epsilon, so it is an input of the whole pass.
    epsilon = Step[float]("", "added to the variance", equations.identity, x="root.epsilon")
    X = Step(
        "T D",
        "LayerNorm(mid)",  # before the MLP, not after it as in the Transformer of 2017
        equations.layer_norm,
        x="parent.mid",
        fast=fast.layer_norm,
        transient=True,
    )
    # The MLP works on each token alone: only attention moves information between tokens.
    # W_1 is (D, F), as GPT-2 stores it (PyTorch's Linear stores W_1ᵀ). F = 4 D in GPT-2.
    W_1 = Step[Array]("D F")  # each of the F columns is a pattern in a token's vector
    b_1 = Step[Array]("F")
    W_2 = Step[Array]("F D")  # row f is what the MLP writes when it finds pattern f
    b_2 = Step[Array]("D")
    # transient: (T, F) is four times as large as the residual stream.
    hidden = affine_step("T F", "X", "W_1", "b_1", fast=fast.affine, transient=True)
    # The value of this step is a function. Without it, W_1 and W_2 would be one linear map.
    activation = Step[Activation]("", "GELU", equations.identity, x="root.activation")
    activated = Step(
        "T F", "GELU(hidden)", equations.activated, fast=fast.activated, transient=True
    )
    output = affine_step("T D", "activated", "W_2", "b_2", fast=fast.mlp_output, transient=True)


class BlockAttention(MultiHeadAttention):
    """The attention of a block; X is LayerNorm of the residual stream.

    Attributes
    ----------
    residual : (T, D), the block's input
    gain, bias, epsilon : LayerNorm's parameters (D,) and (D,), and a number
    X, memory : (T, D), the same array. In generation with a cache, X has only the new tokens, while
        K and V also have the cached tokens.
    and the attributes of `MultiHeadAttention`
    """

    # The block's input under another name: an edit of it doesn't change the residual stream.
    residual = Step[Array]("Tq D", "the block's input", equations.identity, x="parent.input")
    gain = Step[Array]("D")  # the parameters of the LayerNorm before attention
    bias = Step[Array]("D")
    epsilon = Step[float]("", "added to the variance", equations.identity, x="root.epsilon")
    n_head = Step[int]("", "H", equations.identity, x="root.n_head")
    # LayerNorm comes before attention ("pre-LN"), so the stream itself is never normalised.
    X = Step(
        "Tq D",
        "LayerNorm(the block's input)",
        equations.layer_norm,
        x="residual",
        fast=fast.layer_norm,
        transient=True,
    )
    # Unlike in `multi_head_attention`, no bias is optional.
    b_Q, b_K, b_V = Step[Array]("H·Dk"), Step[Array]("H·Dk"), Step[Array]("H·Dv")
    b_O = Step[Array]("D")
    # joint: a checkpoint's W_Q, W_K and W_V lie side by side, and one product is faster than three.
    # K and V use X instead of memory, its alias: X is transient, but memory would be kept.
    Q = Step("H Tq Dk", f"X W_Q + b_Q{SPLIT}", equations.Q, joint=fast.projections)
    K = Step("H Tk Dk", f"X W_K + b_K{SPLIT}", equations.K, memory="X", joint=fast.projections)
    V = Step("H Tk Dv", f"X W_V + b_V{SPLIT}", equations.V, memory="X", joint=fast.projections)
    # This is 1 in the first layer. Only variants with scale_attn_by_inverse_layer_idx have it.
    layer_number = Step["int | None"]("", "layer + 1, if the scale includes it", optional=True)
    scale = Step("", "√Dk", equations.scale_of_layer, divide_by_sqrt_d="root.divide_by_sqrt_d")
    # All layers and heads share one mask.
    mask = Step[Mask]("Tq Tk", "True where the query may attend", equations.identity, x="root.mask")


class Block(Explainable):
    """One block: attention and MLP, and the residual stream around them.

    Attributes
    ----------
    input, mid, output : (T, D), the residual stream before attention, before the MLP, after both
    attention : BlockAttention
    mlp : MLP
    tokens : Tokens, or None
    """

    _table_steps: ClassVar[tuple[str, ...]] = ("input", "mid", "output")
    _default_step: ClassVar[str] = "output"
    _children: ClassVar[dict[str, type[Result]]] = {"attention": BlockAttention, "mlp": MLP}
    _hint: ClassVar[str] = ".attention and .mlp have their own tables"

    # TransformerLens calls input, mid and output resid_pre, resid_mid and resid_post.
    input = Step[Array](
        "T D",
        "the previous block's output; for the first block, embedding",
        equations.identity,
        # The residual stream runs through all blocks: the output of one is the input of the next.
        x=lambda layer: f"root.blocks.{layer - 1}.output" if layer else "root.embedding",
        after_blocks=True,
    )
    # mid is a sum: attention only adds to what the blocks before have written.
    mid = Step(
        "T D",
        "input + attention.output",
        equations.residual,
        stream="input",
        update="attention.output",
        # Only sums are checked, not their terms: NaN and infinity stay in a sum.
        finite=True,
    )
    output = Step(
        "T D",
        "mid + mlp.output",
        equations.residual,
        stream="mid",  # mid includes attention's output, so the MLP also reads that
        update="mlp.output",
        finite=True,
    )

    @cached_property
    def attention(self) -> BlockAttention:
        title = Message("Layer {layer}, attention", layer=parse(self.path).layer)
        path = f"{self.path}.attention"
        return BlockAttention(title, self._run, path)  # a view of the same run

    @cached_property
    def mlp(self) -> MLP:
        title = Message("Layer {layer}, MLP", layer=parse(self.path).layer)
        return MLP(title, self._run, f"{self.path}.mlp")


class ForwardPass(Explainable):
    """A forward pass from token ids to logits.

    Each step is computed on access, with only the blocks it needs: layer 0 runs one block, the
    logits run all of them.

    Parameters
    ----------
    ids : integers (..., T)
    parameters : the model's parameters; copied if they are writable
    cache : keys and values of earlier tokens, or None
    tokens : the ids' Tokens, if known

    Attributes
    ----------
    ids : int64 (..., T)
    token_embedding, position_embedding, embedding : (..., T, D), (T, D), (..., T, D)
    blocks : one `Block` for each layer
    final : (..., T, D), the last block's output after the last LayerNorm
    gain, bias, epsilon : the last LayerNorm's parameters (D,) and (D,), and a number
    W_E, W_P, W_U : (vocab, D), (n_positions, D), and (D, vocab), which is W_Eᵀ in GPT-2
    logits : (..., T, vocab), scores of the next token after each position
    mask : bool (T, cached + T), True where a query may attend to a key, shared by all heads
    cached : the number of cached tokens
    tokens : Tokens, or None if there are only ids
    """

    _table_steps: ClassVar[tuple[str, ...]] = (
        *("token_embedding", "position_embedding", "embedding"),
        *("final", "logits"),
    )
    _default_step: ClassVar[str] = "logits"
    _children: ClassVar[dict[str, type[Result]]] = {"blocks": Block}

    parameters: Parameters
    config: GPT2Config

    # The order of computation: ids, embeddings, the blocks (a part with steps of its own), logits.
    ids = Step[Ids]("T", "token ids")  # the only input that comes from the text
    # Positions are absolute: W_P has a learned row for each of n_positions.
    positions = Step[Ids]("T", "each token's position, from 0")
    mask = Step[Mask]("Tq Tk", "True where the query may attend")
    cached = Step[int]("", "the number of cached tokens")  # 0 except in generation
    n_head = Step[int]("", "H")
    epsilon = Step[float]("", "added to the variance")  # against division by 0
    activation = Step[Activation]("", "GELU")  # variants of GPT-2 have other activations
    divide_by_sqrt_d = Step[bool]("", "whether √Dk is in the scale")
    W_E = Step[Array]("vocab D")  # a row for each token of the vocabulary
    W_P = Step[Array]("n_positions D")  # a row for each position
    # W_E is a third of GPT-2 small, so only the rows of the text's tokens are read from the disk.
    rows_of_W_E = Step[Array]("vocab D", "W_E, of which only the needed rows are read")
    token_embedding = Step(
        "T D",
        "rows of W_E, one for each id",
        equations.token_embedding,
        W_E="rows_of_W_E",
        transient=True,
    )
    position_embedding = Step(
        "T D", "rows of W_P, one for each position", equations.position_embedding, transient=True
    )
    # The residual stream starts here. Positions enter it here and nowhere else.
    embedding = Step("T D", "token_embedding + position_embedding", equations.embedding)
    gain = Step[Array]("D")  # the parameters of the last LayerNorm
    bias = Step[Array]("D")
    # GPT-2 normalises before attention and MLP, so the last block's output isn't normalised yet.
    final = Step(
        "T D",
        "LayerNorm of the last block's output",
        equations.layer_norm,
        # Outside of blocks, the function is called with n_layer.
        x=lambda layers: f"blocks.{layers - 1}.output",
        fast=fast.layer_norm,
        after_blocks=True,
    )
    W_U = Step("D vocab", "W_Eᵀ", equations.W_U, view=True)  # so pickles don't store W_E twice
    # A token's logit is the product of `final` and the token's embedding. Row t has a logit for
    # every possible token t + 1; softmax of the row is the model's prediction.
    logits = Step("T vocab", "final W_U", equations.logits, fast=fast.logits, finite=True)

    def __init__(
        self,
        ids: ArrayLike,
        parameters: Parameters,
        cache: KeyValueCache | None = None,
        tokens: Tokens | None = None,
    ) -> None:
        config = parameters.config
        cached = 0 if cache is None else cache.length  # tokens whose keys and values are known
        new_ids = ids_of_pass(ids, config, cached)  # (..., T)
        T = new_ids.shape[-1]
        values = {
            "ids": new_ids,
            # With a cache, the positions of the new tokens follow those of the cached tokens.
            "positions": np.arange(cached, cached + T),
            # GPT-2 is causal: it learned to predict each token from the tokens before it.
            "mask": causal_mask(T, cached),  # (T, cached + T)
            "cached": cached,
            "n_head": config.n_head,
            # Settings are inputs too, since an equation takes steps only.
            "epsilon": config.layer_norm_epsilon,
            "activation": config.activation.function,
            "divide_by_sqrt_d": config.scale_attn_weights,
            **layer_numbers(config),
            **({} if cache is None else cache.by_path()),  # keys and values of each layer
        }
        parameters = parameters.frozen()  # a later training step must not change this pass
        # If W_U isn't tied to W_E, it is a parameter of the model.
        given = () if config.tie_word_embeddings else ("W_U",)
        graph = graph_of(type(self), config.n_layer, formulas_of(config), given)
        run = Run(
            graph,
            values,
            parameters.read,  # called when a step needs a parameter
            scores_shape=(*new_ids.shape[:-1], config.n_head, T, cached + T),
            tokens=tokens,
            tokens_before=cached,
            is_long=new_ids.size > fast.SHORT,  # `size` counts the tokens of all texts
        )
        title = Message(
            "Trace of {tokens}{cached} through {blocks} of {heads}",
            tokens=counted(" x ".join(map(str, new_ids.shape)), "token"),
            blocks=counted(config.n_layer, "block"),
            heads=counted(config.n_head, "head"),
            cached=Message(" after {cached} cached ones", cached=cached) if cached else "",
        )
        # Nothing is computed here: a step is computed when it is read.
        Result.__init__(self, title, run)
        vars(self).update(parameters=parameters, config=config)  # attributes can't be assigned

    def _computes_for_repr(self, name: str) -> bool:
        # Gradients, and all steps but the embeddings, need all blocks. The cost is an estimate in
        # multiplications: each parameter is read once, and multiplied once for each token.
        cost = parameter_count(self.config) * (READ_COST + self.ids.size)
        needs_blocks = self.derivative_of or not name.endswith("embedding")
        is_quick = cost <= MAX_MULTIPLICATIONS or not needs_blocks
        return is_quick and super()._computes_for_repr(name)

    def head(self, layer: int, head: int) -> Head:
        """One head, `blocks[layer].attention.heads[head]`."""
        return self.blocks.item(layer).attention.heads.item(head)

    @cached_property
    def blocks(self) -> Numbered[Block]:
        blocks = (
            Block(Message("Block {layer}", layer=layer), self._run, f"blocks.{layer}")
            for layer in range(self.config.n_layer)
        )
        return Numbered("layer", blocks)  # a block runs when one of its steps is read


def layer_numbers(config: GPT2Config) -> dict[str, int]:
    """The extra factors of the layers' scales, by path; none in GPT-2."""
    if not config.scale_attn_by_inverse_layer_idx:
        return {}
    return {f"blocks.{layer}.attention.layer_number": layer + 1 for layer in range(config.n_layer)}


def formulas_of(config: GPT2Config) -> Formulas:
    """The formulas that differ in variants of GPT-2."""
    # Scores are divided by the product of these factors.
    factors = ["√Dk"] if config.scale_attn_weights else []
    if config.scale_attn_by_inverse_layer_idx:
        factors.append("(layer + 1)")  # later layers then have smaller scores
    name = config.activation.name
    return (
        ("scale", " · ".join(factors) or "1"),
        ("activation", name),
        ("activated", f"{name}(hidden)"),
        ("W_U", "W_Eᵀ" if config.tie_word_embeddings else "the output matrix, not tied to W_E"),
    )


def ids_of_pass(ids: ArrayLike, config: GPT2Config, cached: int) -> Ids:
    """Check the ids of a pass and convert them to a new int64 array (..., T)."""
    array = as_array(ids, "token ids")
    flat = check_ids(array.ravel(), config.vocab_size)  # NumPy would take -1 as the last token
    T = array.shape[-1] if array.ndim else 0  # a single number isn't a text
    # W_P has no rows for positions after n_positions.
    free = config.n_positions - cached
    if not flat.size or not 1 <= T <= free:
        raise InvalidValueError(f"a forward pass takes 1 to {free} tokens; got {T}")
    return flat.reshape(array.shape)
