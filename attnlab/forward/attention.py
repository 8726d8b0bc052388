"""Scaled dot-product attention as a chain of named steps, for one head and for many.

    X ─ W_Q, W_K, W_V ─> Q, K, V ─> raw_scores ─> scores ─> masked_scores ─> weights ─> context
                                       Q Kᵀ       / scale   future -> -inf   softmax    @ V

Shapes: Tq queries look at Tk keys (both T in self-attention); Dk and Dv are the widths of a key and
of a value, both Dh = D / H in GPT-2; H heads. Leading axes pass through. Per-head arrays are
head-first: Q (..., H, Tq, Dk), weights (..., H, Tq, Tk).

The equations are in `attnlab.equations`, one for each step that is computed here.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

from attnlab import equations
from attnlab.equations import Array, Mask
from attnlab.forward import fast
from attnlab.forward.products import Product
from attnlab.steps import Numbered, Part, Result, Run, Step, view_of
from attnlab.support.files import Given
from attnlab.support.messages import Message
from attnlab.text.tokens import Tokens

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

    from attnlab.views.explanation import Explanation
    from attnlab.views.notebook import View
    from attnlab.views.plot import Picture

# What a multi-head attention has once for each head.
PER_HEAD = (
    *("Q", "K", "V", "raw_scores", "scores", "masked_scores"),
    *("dropout_mask", "weights", "context"),
)

# What is added where it is given.
BIASES = ("b_Q", "b_K", "b_V", "b_O")

SPLIT = ", split into heads"

# The largest T x T array (all heads together) that is computed only because a table shows it.
COMPUTED_FOR_REPR = 2**20


class Attention(Result):
    """The chain from Q, K and V to the context vectors, as `attention` returns it.

    Every step below `mask` is computed when it is first looked at. What is T x T is kept only if
    somebody looked at it; the weights of a short text (up to 64 tokens) also once its context is
    known.

    Attributes
    ----------
    Q, K, V : (..., Tq, Dk), (..., Tk, Dk), (..., Tk, Dv)
    mask : bool (..., Tq, Tk), True = may attend
    scale : √Dk, by which scores are divided
    raw_scores, scores, masked_scores, weights : (..., Tq, Tk)
    context : (..., Tq, Dv)
    dropout_mask : (..., Tq, Tk) of 0 and 1/(1-p), or None where nothing was dropped. Where there
        is one, `weights` are what is left after it, and their rows no longer sum to 1.
    tokens : Tokens of the queries; None where the matrices belong to no text
    """

    parts: ClassVar[tuple[str, ...]] = (
        *("Q", "K", "V", "raw_scores", "scale", "scores", "mask", "masked_scores"),
        *("dropout_mask", "weights", "context"),
    )
    if TYPE_CHECKING:
        tokens: Tokens | None

    Q = Step[Array]("Tq Dk")
    K = Step[Array]("Tk Dk")
    V = Step[Array]("Tk Dv")
    mask = Step[Mask]("Tq Tk", "True = may attend")
    dropout_mask = Step["Array | None"]("Tq Tk", "0 or 1 / (1 - p)", optional=True)
    scale = Step("", "√Dk", equations.scale)
    raw_scores = Step("Tq Tk", "Q Kᵀ", equations.raw_scores, passes=True)
    scores = Step("Tq Tk", "raw_scores / scale", equations.scores, passes=True)
    masked_scores = Step(
        "Tq Tk",
        "scores where the mask is True, else -inf",
        equations.masked_scores,
        passes=True,
    )
    weights = Step(
        "Tq Tk", "softmax(masked_scores)", equations.weights, fast=fast.weights, finite=True
    )
    context = Step("Tq Dv", "weights V", equations.context, fast=fast.context, finite=True)

    @property
    def by_rows(self) -> bool:
        """Whether weights and context are made some rows of queries at a time."""
        is_long: bool = self._run.is_long
        return is_long

    def explain(
        self,
        query: int | str | None = None,
        key: int | str | None = None,
        *,
        step: str = "weights",
        component: int | None = None,
    ) -> Explanation:
        """The arithmetic of one number with its real numbers, as text to follow with a pencil.

        Parameters
        ----------
        query, key : which weight, by numbers, of which negative ones count from the end, or by a
            token's text, as `explain("it", "dog")`; without a key the whole row of the query, and
            how it weighs the values into the query's context. Without a query that of the last
            token.
        step : another step, such as "scores", "Q" or "context", or the path of one from here; of K
            and V `query` is the token that is looked at, of a parameter the row
        component : which number of such a row, where it has no keys; the first one by default. Of
            several heads the components lie side by side.

        Returns
        -------
        Explanation
            `print` shows it: of a weight the products q_i·k_i, their sum, and each step to it

        Raises
        ------
        DisagreementError
            The printed numbers do not lead to the stored ones.
        InvalidValueError
            Weights of several heads or sequences at once: take one first, as `.heads[h]`.

        Examples
        --------
        >>> head.explain("it", "dog")
        >>> head.explain("it", step="Q", component=3)
        """
        return self._explained(step, query, component, key)

    def plot(
        self,
        step: str = "weights",
        ax: Axes | None = None,
        tokens: slice | None = None,
        *,
        language: str | None = None,
    ) -> Picture:
        """A step of one head as a heatmap, its tokens along the axes.

        Parameters
        ----------
        step : a step's name, such as "masked_scores"
        ax : matplotlib's Axes to draw into; None for a figure of its own
        tokens : which of them, such as `slice(-40, None)` for the last 40, `slice(None)` for all;
            None for the first and last ones of many
        language : "en" or "zh", Chinese; None for the reader's, as `Trace.to_html` takes it

        Returns
        -------
        Picture
            a notebook shows it, `.save("picture.svg")` writes it; `.axes`, `.figure` and `.alt`,
            its words, are there too
        """
        from attnlab.views.plot import drawn_in, plot_step

        with drawn_in(language):
            return plot_step(self, step, ax, tokens)

    def show(self, tokens: slice | None = None) -> View:
        """What a notebook shows of it, of more tokens.

        Parameters
        ----------
        tokens : as `plot` takes it
        """
        from attnlab.views.notebook import view_of_tokens

        return view_of_tokens(self, tokens)

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
        """
        from attnlab.views.frames import dataframe

        return dataframe(self, step)

    def to_xlsx(self, path: Given) -> None:
        """Write a spreadsheet whose cells are formulas: change a number and see what follows.

        Needs `pip install xlsxwriter`, the extra `sheets`.

        Parameters
        ----------
        path : such as "head.xlsx", for LibreOffice, Excel or Google Sheets. Each step is a sheet.
            What is given is numbers, as are edited steps; the rest is formulas over earlier sheets.
            -inf is -1E+308.

        Raises
        ------
        InvalidValueError
            It would have more than a million cells.
        """
        from attnlab.views.sheets import write_sheets

        write_sheets(self, path)

    @property
    def scores_shape(self) -> tuple[int, ...]:
        """The shape of the scores, (..., Tq, Tk), which is known before they are made."""
        shape: tuple[int, ...] = self._run.scores_shape
        return shape

    def _computes_for_repr(self, name: str) -> bool:
        return is_small(self._run)


def is_small(run: Run) -> bool:
    """Whether all of a run's scores in one layer are few enough to be made only to be shown."""
    return math.prod(run.scores_shape) <= COMPUTED_FOR_REPR


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
    memory = Step[Array]("Tk D'", "what is looked at", equations.same, x="X")
    W_Q = Step[Array]("D Dk")
    b_Q = Step["Array | None"]("Dk")
    W_K = Step[Array]("D' Dk")
    b_K = Step["Array | None"]("Dk")
    W_V = Step[Array]("D' Dv")
    b_V = Step["Array | None"]("Dv")
    Q = Step("Tq Dk", "X W_Q + b_Q", equations.affine, x="X", W="W_Q", b="b_Q")
    K = Step("Tk Dk", "memory W_K + b_K", equations.affine, x="memory", W="W_K", b="b_K")
    V = Step("Tk Dv", "memory W_V + b_V", equations.affine, x="memory", W="W_V", b="b_V")

    def axes_of(self, name: str) -> str:
        axes = super().axes_of(name)
        return axes.replace("D'", "D") if self._is_to_itself() else axes

    def formula_of(self, name: str) -> str:
        formula = super().formula_of(name)
        for bias in BIASES:
            if self._run.values.get(self._layer + bias, "a parameter") is None:
                formula = formula.replace(f" + {bias}", "")
        if not self._is_to_itself():
            return formula
        return "X" if name == "memory" else formula.replace("memory", "X")

    def _shown(self) -> tuple[str, ...]:
        hidden = {"memory"} if self._is_to_itself() else set()
        return tuple(name for name in self.parts if name not in hidden)

    @property
    def _layer(self) -> str:
        """What the paths of the layer's steps begin with."""
        layer: str = self._prefix
        return layer

    def _is_to_itself(self) -> bool:
        return is_to_itself(self._run, self._layer)


def is_to_itself(run: Run, prefix: str) -> bool:
    """Whether memory is X, as it is where no other was given."""
    X, memory = (run.values.get(prefix + name) for name in ("X", "memory"))
    return memory is None or memory is X


class Head(SelfAttention):
    """One head of a multi-head attention, under the same names.

    Its arrays are views of the layer's, where the layer has them; what only the head was asked for
    is made for the head alone, to the same bits.

    Attributes
    ----------
    W_Q, W_K, W_V, b_Q, b_K, b_V : this head's columns of the layer's
    W_O : (Dv, D), this head's rows of the layer's
    output : (..., Tq, D), this head's share, context W_O: all heads' shares and b_O add up to the
        layer's output. An edit of the layer's `concat` comes after the heads' contexts, so it
        changes the layer's output and no share; `attribution` then refuses.
    and all that `SelfAttention` has
    """

    parts: ClassVar[tuple[str, ...]] = (*SelfAttention.parts, "W_O", "output")

    X = SelfAttention.X.of(equations.all_of_it)
    memory = SelfAttention.memory.of(equations.all_of_it)
    W_Q = SelfAttention.W_Q.of(equations.columns_of_head)
    b_Q = SelfAttention.b_Q.of(equations.columns_of_head)
    W_K = SelfAttention.W_K.of(equations.columns_of_head)
    b_K = SelfAttention.b_K.of(equations.columns_of_head)
    W_V = SelfAttention.W_V.of(equations.columns_of_head)
    b_V = SelfAttention.b_V.of(equations.columns_of_head)
    Q = SelfAttention.Q.of(equations.one_of_heads, always=True)
    K = SelfAttention.K.of(equations.one_of_heads, always=True)
    V = SelfAttention.V.of(equations.one_of_heads, always=True)
    mask = Attention.mask.of(equations.one_of_heads)
    dropout_mask = Attention.dropout_mask.of(equations.one_of_heads)
    scale = Attention.scale.of(equations.all_of_it, always=True)
    raw_scores = Attention.raw_scores.of(equations.one_of_heads)
    scores = Attention.scores.of(equations.one_of_heads)
    masked_scores = Attention.masked_scores.of(equations.one_of_heads)
    weights = Attention.weights.of(equations.one_of_heads)
    context = Attention.context.of(equations.one_of_heads)
    W_O = Step[Array]("Dv D").of(equations.rows_of_head)
    output = Step("Tq D", "context W_O", equations.head_output, finite=True)

    @property
    def QK(self) -> Product:
        """W_Q W_Kᵀ, (D, D'): what a query and a key must have for a high score.

        Both sides are in the basis of X, which is LayerNorm's output, gain and bias included;
        b_Q and b_K are left out. raw_scores = X QK Xᵀ where they are 0.
        """
        return Product(self.W_Q, equations.transpose(self.W_K), f"{self.title}: QK = W_Q W_Kᵀ")

    @property
    def OV(self) -> Product:
        """W_V W_O, (D', D): what is written for what a key has.

        From the basis of X, which is LayerNorm's output, to that of the residual stream; b_V is
        left out.
        """
        return Product(self.W_V, self.W_O, f"{self.title}: OV = W_V W_O")

    def _step(self, name: str) -> Step[Any]:
        step = super()._step(name)
        if name in ("X", "memory"):
            layer = self._run.graph.kind_at(self.path.split(".")[:-2])
            step = layer.steps[name]
        return step

    @property
    def scores_shape(self) -> tuple[int, ...]:
        *leading, _, queries, keys = super().scores_shape
        return (*leading, queries, keys)

    @property
    def _layer(self) -> str:
        layer: str = self._prefix.rpartition("heads.")[0]
        return layer


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
    n_head : H
    heads : the H heads, each a `Head`
    """

    parts: ClassVar[tuple[str, ...]] = (*SelfAttention.parts, "concat", "W_O", "b_O", "output")
    children: ClassVar[dict[str, type[Result]]] = {"heads": Head}

    n_head = Step[int]("", "H")
    W_Q = Step[Array]("D H·Dk")
    b_Q = Step["Array | None"]("H·Dk")
    W_K = Step[Array]("D' H·Dk")
    b_K = Step["Array | None"]("H·Dk")
    W_V = Step[Array]("D' H·Dv")
    b_V = Step["Array | None"]("H·Dv")
    W_O = Step[Array]("H·Dv D")
    b_O = Step["Array | None"]("D")
    Q = Step("Tq Dk", f"X W_Q + b_Q{SPLIT}", equations.in_heads, x="X", W="W_Q", b="b_Q")
    K = Step("Tk Dk", f"memory W_K + b_K{SPLIT}", equations.in_heads, x="memory", W="W_K", b="b_K")
    V = Step("Tk Dv", f"memory W_V + b_V{SPLIT}", equations.in_heads, x="memory", W="W_V", b="b_V")
    concat = Step("Tq H·Dv", "the heads' contexts side by side", equations.concat, view=True)
    output = Step(
        *("Tq D", "concat W_O + b_O", equations.affine),
        x="concat",
        W="W_O",
        b="b_O",
        passes=True,
        fast=fast.affine,
    )

    def axes_of(self, name: str) -> str:
        axes = super().axes_of(name)
        return f"H {axes}" if name in PER_HEAD else axes

    @Part
    def heads(self) -> Numbered[Head]:
        return Numbered(
            "head",
            (
                view_of(
                    Head,
                    Message("{title}, head {head}", title=self._title, head=h),
                    self._run,
                    f"{self._prefix}heads.{h}",
                )
                for h in range(self.n_head)
            ),
        )
