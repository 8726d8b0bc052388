"""Scaled dot-product attention as a chain of named steps, and what is built on it.

    X ─ W_Q, W_K, W_V ─> Q, K, V ─> raw_scores ─> scores ─> masked_scores ─> weights ─> context
                                       Q Kᵀ       / √Dk     future -> -inf   softmax    @ V

Shapes: Tq queries look at Tk keys (both T in self-attention); Dk and Dv are the widths of a key and
of a value, both Dh = D / H in GPT-2; H heads. Leading axes pass through. Per-head arrays are
head-first: Q (..., H, Tq, Dk), weights (..., H, Tq, Tk).

Source of the equations: "Attention Is All You Need" (2017), sections 3.2.1 to 3.2.3.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnlab.errors import InvalidTypeError, InvalidValueError
from attnlab.ops import (
    Array,
    Rng,
    as_floats,
    dropout_mask,
    generator,
    is_integer,
    is_real,
    linear,
    softmax,
)
from attnlab.steps import Numbered, Result, Step, owned, step
from attnlab.tokenizer import Tokens

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

    from attnlab.views.explain import Explanation

Mask: TypeAlias = NDArray[np.bool_]

Chain = TypeVar("Chain", bound="Attention")

# An attention of more query rows than these is worked through so many at a time: enough for fast
# matrix products, few enough that what passes through stays small, and keys that none of them may
# see are left out. A shorter one keeps its weights, which are then no larger than Q and K.
ROWS_AT_A_TIME = 128

# What a multi-head attention has once for each head.
PER_HEAD = (
    *("Q", "K", "V", "raw_scores", "scores", "masked_scores"),
    *("dropout_mask", "weights", "context"),
)

# The largest T x T array (all heads together) that is computed only because a table shows it.
COMPUTED_FOR_REPR = 2**20


def causal_mask(T: int, cached: int = 0) -> Mask:
    """Which keys each query may attend to when no one may look ahead.

    Parameters
    ----------
    T : number of tokens that ask, at least 1
    cached : number of tokens before them, whose keys are there but whose queries are not needed

    Returns
    -------
    bool (T, cached + T), True where key j may be seen by query i: j <= cached + i

    Raises
    ------
    InvalidValueError
        T is not a positive integer, or cached is below 0.
    """
    if not is_integer(T) or T < 1:
        raise InvalidValueError(f"a causal mask needs a positive integer of tokens; given {T!r}")
    if not is_integer(cached) or cached < 0:
        raise InvalidValueError(f"cached must be an integer of at least 0; given {cached!r}")
    return np.tri(T, cached + T, cached, dtype=bool)


def split_heads(x: ArrayLike, n_head: int) -> Array:
    """The columns of x dealt out to heads: (..., T, H·Dh) -> (..., H, T, Dh).

    Raises
    ------
    InvalidValueError
        x is no matrix, or H does not divide its columns.
    """
    x = as_floats(x)
    if x.ndim < 2:
        raise InvalidValueError(f"splitting needs x of shape (..., T, H·Dh); given {x.shape}")
    if not is_integer(n_head) or n_head < 1 or x.shape[-1] % n_head:
        raise InvalidValueError(f"{x.shape[-1]} columns can't be split into {n_head!r} heads")
    heads_last = x.reshape(*x.shape[:-1], n_head, -1)  # (..., T, H, Dh)
    return heads_last.swapaxes(-3, -2)


def merge_heads(x: ArrayLike) -> Array:
    """The heads' columns side by side again: (..., H, T, Dh) -> (..., T, H·Dh).

    Raises
    ------
    InvalidValueError
        x has fewer than three axes.
    """
    x = as_floats(x)
    if x.ndim < 3:
        raise InvalidValueError(f"merging needs x of shape (..., H, T, Dh); given {x.shape}")
    heads_last = x.swapaxes(-3, -2)  # (..., T, H, Dh)
    return heads_last.reshape(*heads_last.shape[:-2], -1)


def transpose(x: Array) -> Array:
    """The last two axes exchanged, Xᵀ."""
    return x.swapaxes(-2, -1)


class Attention(Result):
    """The chain from Q, K and V to the context vectors, as `attention` returns it.

    Every step below `mask` is computed when it is first looked at. What is T x T is kept only if
    somebody looked at it; the weights of a short text (up to 128 tokens) also once its context is
    known.

    Attributes
    ----------
    Q, K, V : (..., Tq, Dk), (..., Tk, Dk), (..., Tk, Dv)
    mask : bool (..., Tq, Tk), True = may attend
    raw_scores, scores, masked_scores, weights : (..., Tq, Tk)
    context : (..., Tq, Dv)
    dropout_mask : (..., Tq, Tk) of 0 and 1/(1-p), or None where nothing was dropped. Where there
        is one, `weights` are what is left after it, and their rows no longer sum to 1.
    tokens : Tokens of the queries; None where the matrices belong to no text
    """

    parts: ClassVar[tuple[str, ...]] = (
        *("Q", "K", "V", "raw_scores", "scores", "mask", "masked_scores"),
        *("dropout_mask", "weights", "context"),
    )
    tokens: Tokens | None = None

    Q = Step[Array]("Tq Dk")
    K = Step[Array]("Tk Dk")
    V = Step[Array]("Tk Dv")
    mask = Step[Mask]("Tq Tk", "True = may attend")
    dropout_mask = Step["Array | None"]("Tq Tk", "0 or 1 / (1 - p)")

    @step("Tq Tk", "Q Kᵀ")
    def raw_scores(self) -> Array:
        return self.Q @ transpose(self.K)

    @step("Tq Tk", "raw_scores / √Dk")
    def scores(self) -> Array:
        scores: Array = owned(self.peek("raw_scores"))
        scores /= math.sqrt(self.K.shape[-1])
        return scores

    @step("Tq Tk", "scores where the mask is True, else -inf")
    def masked_scores(self) -> Array:
        masked_scores: Array = owned(self.peek("scores"))
        np.copyto(masked_scores, -math.inf, where=~self.mask)
        return masked_scores

    @step("Tq Tk", "softmax(masked_scores)")
    def weights(self) -> Array:
        if self._is_long():
            weights = np.zeros(self._scores_shape(), np.result_type(self.Q, self.K))
            for rows, keys, block in self._row_blocks():
                weights[..., rows, keys] = block.weights
            return weights
        masked_scores: Array = owned(self.peek("masked_scores"))
        weights = softmax(masked_scores, out=masked_scores)
        return weights if self.dropout_mask is None else weights * self.dropout_mask

    @step("Tq Dv", "weights V")
    def context(self) -> Array:
        if not self._is_long():
            return self.weights @ self.V
        Q, K, V = self.Q, self.K, self.V
        leading = np.broadcast_shapes(Q.shape[:-2], K.shape[:-2], V.shape[:-2])
        # In memory the heads lie side by side, so that joining them later copies nothing.
        shape = (*leading[:-1], Q.shape[-2], *leading[-1:], V.shape[-1])
        context = np.empty(shape, np.result_type(Q, K, V))
        if leading:
            context = context.swapaxes(-3, -2)
        for rows, _, block in self._row_blocks():
            context[..., rows, :] = block.context
        return context

    def explain(self, query: int, key: int | None = None) -> Explanation:
        """The arithmetic of one weight with its real numbers, as text to follow with a pencil.

        Parameters
        ----------
        query, key : which weight, negative numbers count from the end; without a key the whole row
            of the query, and how it weighs the values into the query's context

        Returns
        -------
        Explanation
            `print` shows it: the products q_i·k_i, their sum, and each step to the weight

        Raises
        ------
        DisagreementError
            The printed numbers do not lead to the stored ones.
        OutOfRangeError, InvalidTypeError
            There is no such query or key.
        InvalidValueError
            Several heads or sequences at once: take one first, as `.heads[h]`.
        """
        from attnlab.views.explain import explain_row, explain_weight

        return explain_row(self, query) if key is None else explain_weight(self, query, key)

    def plot(self, step: str = "weights", ax: Axes | None = None) -> Axes:
        """A step of one head as a heatmap, its tokens along the axes; of many the first ones.

        Parameters
        ----------
        step : a step's name, such as "masked_scores"
        ax : where to draw; None for a figure of its own, found in the result's `.figure`, which
            a notebook shows and `.figure.savefig("weights.svg")` writes

        Raises
        ------
        InvalidValueError
            There is no such step, or several heads or sequences at once.
        MissingExtraError
            matplotlib is not installed.
        """
        from attnlab.views.plot import plot_step

        return plot_step(self, step, ax)

    def to_dataframe(self, step: str = "weights") -> DataFrame:
        """A step of one head as a pandas DataFrame, labelled.

        Parameters
        ----------
        step : a step's name, such as "scores"

        Returns
        -------
        DataFrame
            rows and columns named query, key, Dk, ... Where they are tokens, they have an index of
            two levels, position and symbol: `frame.loc[11]`, `frame.xs("Ġhot", level="key_token",
            axis=1)`, and `frame.stack(["key", "key_token"])` for one line for each pair

        Raises
        ------
        InvalidValueError
            There is no such step, or several heads or sequences at once.
        MissingExtraError
            pandas is not installed.
        """
        from attnlab.views.frames import dataframe

        return dataframe(self, step)

    def _is_long(self) -> bool:
        queries: int = self.Q.shape[-2]
        return queries > ROWS_AT_A_TIME

    def _scores_shape(self) -> tuple[int, ...]:
        leading = np.broadcast_shapes(self.Q.shape[:-2], self.K.shape[:-2])
        return (*leading, self.Q.shape[-2], self.K.shape[-2])

    def _row_blocks(self) -> Iterator[tuple[slice, slice, Attention]]:
        """The same attention a few queries at a time, each block with only the keys it may see."""
        for start in range(0, self.Q.shape[-2], ROWS_AT_A_TIME):
            rows = slice(start, start + ROWS_AT_A_TIME)
            mask = self.mask[..., rows, :]
            seen = np.flatnonzero(mask.any(axis=tuple(range(mask.ndim - 1))))
            keys = slice(0, seen[-1] + 1)
            dropped = self.dropout_mask
            block = Attention(
                "rows of attention",
                Q=self.Q[..., rows, :],
                K=self.K[..., keys, :],
                V=self.V[..., keys, :],
                mask=mask[..., keys],
                dropout_mask=None if dropped is None else dropped[..., rows, keys],
            )
            if "weights" in vars(self):  # not to be computed again
                block.keep(weights=self.weights[..., rows, keys])
            yield rows, keys, block

    def _computes_for_repr(self) -> bool:
        return math.prod(self._scores_shape()) <= COMPUTED_FOR_REPR


class SelfAttention(Attention):
    """One head that makes its own Q, K and V; in cross-attention, K and V of another sequence.

    Attributes
    ----------
    X : (..., Tq, D), the sequence that asks
    memory : (..., Tk, D'), the sequence that is looked at; X itself in self-attention
    W_Q, W_K, W_V : (D, Dk), (D', Dk), (D', Dv)
    b_Q, b_K, b_V : (Dk,), (Dk,), (Dv,) or None
    and all that `Attention` has
    """

    parts: ClassVar[tuple[str, ...]] = (
        *("X", "memory", "W_Q", "b_Q", "W_K", "b_K", "W_V", "b_V"),
        *Attention.parts,
    )

    X = Step[Array]("Tq D", "what enters attention")
    memory = Step[Array]("Tk D'", "what is looked at")
    W_Q = Step[Array]("D Dk")
    b_Q = Step["Array | None"]("Dk")
    W_K = Step[Array]("D' Dk")
    b_K = Step["Array | None"]("Dk")
    W_V = Step[Array]("D' Dv")
    b_V = Step["Array | None"]("Dv")

    def axes_of(self, name: str) -> str:
        axes = super().axes_of(name)
        return axes.replace("D'", "D") if self._is_to_itself() else axes

    def formula_of(self, name: str) -> str:
        if not self._is_to_itself():
            return super().formula_of(name)
        return "X" if name == "memory" else super().formula_of(name).replace("memory", "X")

    def _shown(self) -> tuple[str, ...]:
        hidden = {"memory"} if self._is_to_itself() else set()
        return tuple(name for name in self.parts if name not in hidden)

    def _is_to_itself(self) -> bool:
        return self.memory is self.X

    @step("Tq Dk", "X W_Q + b_Q")
    def Q(self) -> Array:
        return linear(self.X, self.W_Q, self.b_Q)

    @step("Tk Dk", "memory W_K + b_K")
    def K(self) -> Array:
        return linear(self.memory, self.W_K, self.b_K)

    @step("Tk Dv", "memory W_V + b_V")
    def V(self) -> Array:
        return linear(self.memory, self.W_V, self.b_V)


class Head(SelfAttention):
    """One head of a multi-head attention, under the same names.

    Attributes
    ----------
    W_Q, W_K, W_V, b_Q, b_K, b_V : this head's columns of the layer's
    W_O : (Dv, D), this head's rows of the layer's
    output : (..., Tq, D), this head's share: all heads' shares and b_O add up to the layer's output
    and all that `SelfAttention` has
    """

    parts: ClassVar[tuple[str, ...]] = (*SelfAttention.parts, "W_O", "output")

    W_O = Step[Array]("Dv D")

    @step("Tq D", "context W_O")
    def output(self) -> Array:
        return linear(self.context, self.W_O)


class MultiHeadAttention(SelfAttention):
    """H heads side by side, joined and mixed by W_O.

    Attributes
    ----------
    X, memory : (..., Tq, D), (..., Tk, D')
    W_Q, W_K, W_V, b_Q, b_K, b_V : all heads' columns, head 0 first: (D, H·Dk), ..., (H·Dv,)
    Q, K, V : (..., H, Tq, Dk), (..., H, Tk, Dk), (..., H, Tk, Dv)
    raw_scores, scores, masked_scores, weights : (..., H, Tq, Tk)
    mask : bool, (Tq, Tk) or with leading axes that fit (..., H, Tq, Tk)
    context : (..., H, Tq, Dv)
    concat : (..., Tq, H·Dv), the heads' contexts joined
    W_O, b_O : (H·Dv, D), (D,)
    output : (..., Tq, D)
    heads : the H heads, each a `Head`
    """

    parts: ClassVar[tuple[str, ...]] = (*SelfAttention.parts, "concat", "W_O", "b_O", "output")

    W_Q = Step[Array]("D H·Dk")
    b_Q = Step["Array | None"]("H·Dk")
    W_K = Step[Array]("D' H·Dk")
    b_K = Step["Array | None"]("H·Dk")
    W_V = Step[Array]("D' H·Dv")
    b_V = Step["Array | None"]("H·Dv")
    W_O = Step[Array]("H·Dv D")
    b_O = Step["Array | None"]("D")
    n_head: int

    def axes_of(self, name: str) -> str:
        axes = super().axes_of(name)
        return f"H {axes}" if name in PER_HEAD else axes

    @step("Tq Dk", "X W_Q + b_Q, split into heads")
    def Q(self) -> Array:
        return split_heads(linear(self.X, self.W_Q, self.b_Q), self.n_head)

    @step("Tk Dk", "memory W_K + b_K, split into heads")
    def K(self) -> Array:
        return split_heads(linear(self.memory, self.W_K, self.b_K), self.n_head)

    @step("Tk Dv", "memory W_V + b_V, split into heads")
    def V(self) -> Array:
        return split_heads(linear(self.memory, self.W_V, self.b_V), self.n_head)

    @step("Tq H·Dv", "the heads' contexts side by side")
    def concat(self) -> Array:
        return merge_heads(self.context)

    @step("Tq D", "concat W_O + b_O")
    def output(self) -> Array:
        return linear(self.concat, self.W_O, self.b_O)

    @cached_property
    def heads(self) -> Numbered[Head]:
        return Numbered("head", (self._head(h) for h in range(self.n_head)))

    def _head(self, h: int) -> Head:
        def columns(parameter: Array | None) -> Array | None:
            if parameter is None:
                return None
            width = parameter.shape[-1] // self.n_head
            return parameter[..., h * width : (h + 1) * width]

        def of_head(per_head: Any) -> Any:
            if per_head is None:
                return None
            shape = (*per_head.shape[:-3], self.n_head, *per_head.shape[-2:])
            return np.broadcast_to(per_head, shape)[..., h, :, :]

        Dv = self.V.shape[-1]
        return Head(
            f"{self.title}, head {h}",
            tokens=self.tokens,
            X=self.X,
            memory=self.memory,
            W_Q=columns(self.W_Q),
            b_Q=columns(self.b_Q),
            W_K=columns(self.W_K),
            b_K=columns(self.b_K),
            W_V=columns(self.W_V),
            b_V=columns(self.b_V),
            Q=of_head(self.Q),
            K=of_head(self.K),
            V=of_head(self.V),
            mask=of_head(self.mask),
            dropout_mask=of_head(self.dropout_mask),
            W_O=self.W_O[h * Dv : (h + 1) * Dv],
        )


def attention(
    Q: ArrayLike,
    K: ArrayLike,
    V: ArrayLike,
    mask: ArrayLike | None = None,
    dropout: float = 0.0,
    rng: Rng = None,
) -> Attention:
    """Scaled dot-product attention, softmax(Q Kᵀ / √Dk) V, every step of it.

    Parameters
    ----------
    Q, K, V : (..., Tq, Dk), (..., Tk, Dk), (..., Tk, Dv); leading axes broadcast
    mask : bool, True = may attend; any shape that broadcasts to (..., Tq, Tk), such as
        `causal_mask(T)`; None lets every query see every key
    dropout : share p of the weights that is set to 0, the others scaled by 1 / (1 - p)
    rng : where dropout draws from: a NumPy generator, a seed, or None for fresh randomness

    Returns
    -------
    Attention
        Q K V raw_scores scores mask masked_scores weights context, float32 or float64 as the
        inputs are

    Raises
    ------
    InvalidValueError
        Shapes that do not fit, a query that may see no key, a dropout outside [0, 1).
    InvalidTypeError
        Arrays that are not of real numbers, a mask that is not boolean.

    Notes
    -----
    Source: "Attention Is All You Need" (2017), equation 1.

    Examples
    --------
    >>> result = attention([[1, 0], [0, 1]], [[1, 0], [0, 1]], [[1, 2], [3, 4]])
    >>> result.raw_scores
    array([[1., 0.],
           [0., 1.]])
    """
    result = Attention("Attention", Q=held(Q, "Q"), K=held(K, "K"), V=held(V, "V"))
    return _masked(result, mask, dropout, rng)


def self_attention(
    X: ArrayLike,
    W_Q: ArrayLike,
    W_K: ArrayLike,
    W_V: ArrayLike,
    *,
    b_Q: ArrayLike | None = None,
    b_K: ArrayLike | None = None,
    b_V: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    dropout: float = 0.0,
    rng: Rng = None,
) -> SelfAttention:
    """Attention of a sequence to itself: Q = X W_Q + b_Q, K = X W_K + b_K, V = X W_V + b_V.

    Parameters
    ----------
    X : (..., T, D)
    W_Q, W_K, W_V : (D, Dk), (D, Dk), (D, Dv)
    b_Q, b_K, b_V : (Dk,), (Dk,), (Dv,) or None
    mask, dropout, rng : as `attention` takes them

    Returns
    -------
    SelfAttention
        X, the parameters, and all that `attention` returns

    Raises
    ------
    InvalidValueError, InvalidTypeError
        As `attention` does.
    """
    parameters = _held_parameters(W_Q=W_Q, b_Q=b_Q, W_K=W_K, b_K=b_K, W_V=W_V, b_V=b_V)
    X = held(X, "X")
    result = SelfAttention("Self-attention", X=X, memory=X, **parameters)
    return _masked(result, mask, dropout, rng)


def cross_attention(
    X: ArrayLike,
    memory: ArrayLike,
    W_Q: ArrayLike,
    W_K: ArrayLike,
    W_V: ArrayLike,
    *,
    b_Q: ArrayLike | None = None,
    b_K: ArrayLike | None = None,
    b_V: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    dropout: float = 0.0,
    rng: Rng = None,
) -> SelfAttention:
    """Attention of one sequence to another: Q from X, K and V from `memory`.

    Parameters
    ----------
    X : (..., Tq, D), the sequence that asks
    memory : (..., Tk, D'), the sequence that is looked at
    W_Q, W_K, W_V : (D, Dk), (D', Dk), (D', Dv)
    b_Q, b_K, b_V : (Dk,), (Dk,), (Dv,) or None
    mask, dropout, rng : as `attention` takes them

    Returns
    -------
    SelfAttention
        X, memory, the parameters, and all that `attention` returns

    Raises
    ------
    InvalidValueError, InvalidTypeError
        As `attention` does.

    Notes
    -----
    Source: "Attention Is All You Need" (2017), section 3.2.3, "encoder-decoder attention".
    """
    parameters = _held_parameters(W_Q=W_Q, b_Q=b_Q, W_K=W_K, b_K=b_K, W_V=W_V, b_V=b_V)
    X, memory = held(X, "X"), held(memory, "memory")
    result = SelfAttention("Cross-attention", X=X, memory=memory, **parameters)
    return _masked(result, mask, dropout, rng)


def multi_head_attention(
    X: ArrayLike,
    W_Q: ArrayLike,
    W_K: ArrayLike,
    W_V: ArrayLike,
    W_O: ArrayLike,
    *,
    n_head: int,
    b_Q: ArrayLike | None = None,
    b_K: ArrayLike | None = None,
    b_V: ArrayLike | None = None,
    b_O: ArrayLike | None = None,
    memory: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    dropout: float = 0.0,
    rng: Rng = None,
) -> MultiHeadAttention:
    """H heads of attention side by side, joined and mixed: concat(context of each head) W_O + b_O.

    Parameters
    ----------
    X : (..., Tq, D)
    W_Q, W_K, W_V : (D, H·Dk), (D', H·Dk), (D', H·Dv), the heads' columns side by side
    W_O : (H·Dv, D)
    n_head : H
    b_Q, b_K, b_V, b_O : (H·Dk,), (H·Dk,), (H·Dv,), (D,) or None
    memory : (..., Tk, D') for cross-attention; None for self-attention
    mask, dropout, rng : as `attention` takes them, the mask for shape (..., H, Tq, Tk)

    Returns
    -------
    MultiHeadAttention
        the chain with a head axis, concat, output, and each head in `heads`

    Raises
    ------
    InvalidValueError, InvalidTypeError
        As `attention` does, and where H does not divide the columns.

    Notes
    -----
    Source: "Attention Is All You Need" (2017), section 3.2.2; GPT-2's `model.py`, `attn`.
    """
    parameters = _held_parameters(W_Q=W_Q, b_Q=b_Q, W_K=W_K, b_K=b_K, W_V=W_V, b_V=b_V, b_O=b_O)
    if not is_integer(n_head) or n_head < 1:
        raise InvalidValueError(f"n_head must be a positive integer; given {n_head!r}")
    X = held(X, "X")
    result = MultiHeadAttention(
        "Multi-head attention",
        n_head=int(n_head),
        X=X,
        memory=X if memory is None else held(memory, "memory"),
        W_O=held(W_O, "W_O"),
        **parameters,
    )
    return _masked(result, mask, dropout, rng)


def held(x: ArrayLike, name: str) -> Array:
    """`x` as floats that the caller can't change under a result that has yet to look at them."""
    return np.array(as_floats(x, name))


def _held_parameters(**parameters: ArrayLike | None) -> dict[str, Array | None]:
    """All as floats of their own; a bias may be None."""
    return {
        name: None if value is None and name.startswith("b_") else held(value, name)  # type: ignore[arg-type]
        for name, value in parameters.items()
    }


def _masked(result: Chain, mask: ArrayLike | None, dropout: float, rng: Rng) -> Chain:
    """The result with its masks, once everything that was given is known to fit together."""
    if isinstance(result, SelfAttention):
        _check_projections(result)
    _check_chain(result.Q, result.K, result.V)
    scores_shape = result._scores_shape()
    mask = _checked_mask(mask, scores_shape)
    if not is_real(dropout) or not 0 <= dropout < 1:
        raise InvalidValueError(f"dropout must be a number in [0, 1); given {dropout!r}")
    dropped = None
    if dropout:
        dropped = dropout_mask(scores_shape, dropout, generator(rng), result.Q.dtype)
    result.keep(mask=mask, dropout_mask=dropped)
    return result


def _check_projections(result: SelfAttention) -> None:
    X, memory = result.X, result.memory
    sources = {"W_Q": ("X", X), "W_K": ("memory", memory), "W_V": ("memory", memory)}
    if isinstance(result, MultiHeadAttention):
        sources["W_O"] = ("W_V", result.W_V)  # as wide as the heads' joined contexts
    for name, (source, x) in sources.items():
        W, b = getattr(result, name), getattr(result, f"b_{name[-1]}")
        if x.ndim < 2:
            raise InvalidValueError(f"{source} must be a matrix; given shape {x.shape}")
        if W.ndim != 2 or W.shape[0] != x.shape[-1]:
            raise InvalidValueError(
                f"{name} must have as many rows as {source} has columns, {x.shape[-1]}; "
                f"given {name} of shape {W.shape}"
            )
        if b is not None and b.shape != W.shape[1:]:
            raise InvalidValueError(
                f"b_{name[-1]} must have shape {W.shape[1:]}, "
                f"as many as {name}'s columns; given {b.shape}"
            )


def _check_chain(Q: Array, K: Array, V: Array) -> None:
    """Refuse what does not fit, and a V whose NaN would spoil rows that give it no weight."""
    given = f"given Q {Q.shape}, K {K.shape}, V {V.shape}"
    if min(Q.ndim, K.ndim, V.ndim) < 2 or 0 in Q.shape + K.shape + V.shape:
        raise InvalidValueError(f"Q, K and V must be matrices that are not empty; {given}")
    if Q.shape[-1] != K.shape[-1]:
        raise InvalidValueError(f"Q and K must have equally many columns; {given}")
    if K.shape[-2] != V.shape[-2]:
        raise InvalidValueError(f"K and V must have equally many rows, one for each key; {given}")
    if not np.isfinite(V).all():
        raise InvalidValueError("V holds NaN or infinite numbers")
    try:
        np.broadcast_shapes(Q.shape[:-2], K.shape[:-2], V.shape[:-2])
    except ValueError:
        raise InvalidValueError(f"the leading axes of Q, K and V do not fit; {given}") from None


def _checked_mask(mask: ArrayLike | None, scores_shape: tuple[int, ...]) -> Mask:
    """The mask over the scores' last two axes, with the leading axes that it came with."""
    last_two = scores_shape[-2:]
    if mask is None:
        return np.ones(last_two, dtype=bool)
    try:
        given = np.array(mask)
    except ValueError:
        given = np.array(None)
    if given.dtype != bool:
        raise InvalidTypeError(
            f"a mask is boolean, True = may attend, such as causal_mask(T); given dtype "
            f"{given.dtype}. Of 0 and 1 make `mask == 1`; of what is added to scores, `mask == 0`"
        )
    try:
        if np.broadcast_shapes(given.shape, scores_shape) != scores_shape:
            raise ValueError
    except ValueError:
        raise InvalidValueError(
            f"a mask must fit the scores, of shape {scores_shape}; given shape {given.shape}"
        ) from None
    full = np.broadcast_to(given, (*given.shape[:-2], *last_two))
    blind = ~full.any(axis=-1)
    if blind.any():
        where = ", ".join(map(str, np.argwhere(blind)[0]))
        raise InvalidValueError(f"the mask leaves query {where} no key to attend to")
    return full
