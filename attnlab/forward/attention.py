"""Scaled dot-product attention as named steps, for one head and for many.

    X ─ W_Q, W_K, W_V ─> Q, K, V ─> raw_scores ─> scores ─> masked_scores ─> weights ─> context
                                       Q Kᵀ       / scale   future -> -inf   softmax    @ V

In shapes, Tq queries attend to Tk keys (both T in self-attention). A key has Dk and a value Dv
components, both Dh = D / H in GPT-2. There are H heads. Leading axes are batch axes. In arrays of
all heads, the axis of heads comes before tokens: Q (..., H, Tq, Dk), weights (..., H, Tq, Tk).

The equations are in `attnlab.equations`, one for each computed step.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

from attnlab import equations
from attnlab.equations import Array, Mask
from attnlab.errors import InvalidValueError
from attnlab.forward import fast
from attnlab.forward.edits import Edit, edit_run
from attnlab.forward.products import Circuits
from attnlab.steps import Numbered, Result, Step, step_at
from attnlab.support.files import FilePath
from attnlab.support.messages import Message
from attnlab.views.shown import ShownResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

    from attnlab.views.explaining.explanation import Explanation
    from attnlab.views.plot import Picture

# GPT-2 has all biases. Your own attention may lack some, and formulas then don't show these.
BIASES = ("b_Q", "b_K", "b_V", "b_O")

# The end of the formulas of Q, K and V in multi-head attention.
SPLIT = ", split into heads"


def affine_step(axes: str, x: str, W: str, b: str, **settings: Any) -> Step[Array]:
    """Declare the step x W + b, where x, W and b are names of steps."""
    return Step(axes, f"{x} {W} + {b}", equations.affine, x=x, W=W, b=b, **settings)


class Attention(ShownResult):
    """The steps from Q, K and V to the context vectors, as `attention` returns them.

    Steps are computed on first access, then kept. T x T steps are kept only if you access them;
    accessing the context of up to 64 tokens also keeps the weights.

    Attributes
    ----------
    Q, K, V : (..., Tq, Dk), (..., Tk, Dk), (..., Tk, Dv)
    mask : bool (..., Tq, Tk), True = may attend
    scale : the divisor of the scores: √Dk, or the number that was given
    score_bias : (..., Tq, Tk), added to the scores, or None; always None in GPT-2
    raw_scores, scores, masked_scores, weights : (..., Tq, Tk)
    context : (..., Tq, Dv)
    dropout_mask : (..., Tq, Tk) of 0 and 1/(1-p), or None without dropout. It is applied to
        `weights`, whose rows then no longer sum to 1.
    tokens : Tokens of the queries, or None
    """

    _table_steps: ClassVar[tuple[str, ...]] = (
        *("Q", "K", "V", "raw_scores", "scale", "scores", "score_bias", "mask"),
        *("masked_scores", "dropout_mask", "weights", "context"),
    )

    # The chain of one head, in order. Reading a step computes it and the steps that it needs.
    # A step without an equation is an input. Tq, Tk, ... are names of axes, see above.
    Q = Step[Array]("Tq Dk")  # a row for each token that attends: what it looks for
    K = Step[Array]("Tk Dk")  # a row for each token that may be attended to: what it offers
    V = Step[Array]("Tk Dv")  # what that token passes on; V may be wider or narrower than K
    mask = Step[Mask]("Tq Tk", "True where the query may attend")
    # It isn't called `bias`, since in a block `attention.bias` is the bias of the LayerNorm before.
    score_bias = Step["Array | None"]("Tq Tk", "added to scores", optional=True, infinite=True)
    # dropout_mask is None without dropout, as in every trace.
    dropout_mask = Step["Array | None"]("Tq Tk", "0 or 1 / (1 - p)", optional=True)
    # The scale has no axes: it is one number. The equation uses only the shape of K.
    # It is √Dk, not Dk, since dot products of Dk random components grow like √Dk.
    scale = Step("", "√Dk", equations.scale)
    # Other libraries often name only one of raw_scores, scores and weights, or all "attention".
    # transient: each T x T step is needed once, by the next step. It is kept if a user reads it.
    raw_scores = Step("Tq Tk", "Q Kᵀ", equations.raw_scores, transient=True)
    scores = Step("Tq Tk", "raw_scores / scale", equations.scores, transient=True)
    # With -inf, softmax gives a weight of exactly 0: exp(-inf) = 0.
    masked_scores = Step(
        "Tq Tk",
        "scores where the mask is True, else -inf",
        equations.masked_scores,
        transient=True,
        infinite=True,
    )
    # The softmax runs over the keys, the last axis: each row sums to 1.
    # finite: infinite scores are noticed here, since masked_scores may contain -inf.
    weights = Step(
        "Tq Tk", "softmax(masked_scores)", equations.weights, fast=fast.weights, finite=True
    )
    # The context is also called z, or the attention output before W_O.
    # fast: it is computed by blocks of queries, without keeping the (Tq, Tk) weights.
    context = Step("Tq Dv", "weights V", equations.context, fast=fast.context, finite=True)

    def edited(self, edits: Mapping[str, Edit]) -> Self:
        """The same computation with some steps replaced and everything after them recomputed.

        For the result of `attention` and similar functions; see `Trace.edited`.

        Parameters
        ----------
        edits : new values by path, such as `{"weights": 0.25}` or `{"heads.1.context": 0}`

        Examples
        --------
        >>> result.edited({"scale": 1}).weights
        """
        self._check_whole("edited")  # editing a part would change the whole result
        return self._with_run(edit_run(self._run, edits))

    def _check_whole(self, verb: str) -> None:
        """Raise for a part of another result, and for gradients."""
        if self.derivative_of:
            raise InvalidValueError(f"{self.title} can't be {verb}")
        if self.path:
            raise InvalidValueError(
                f"{self.title} is a part of another result, which can be {verb} as a whole. Its "
                f"paths there start with {self._prefix}"
            )

    def explain(
        self,
        query: int | str | None = None,
        key: int | str | None = None,
        *,
        step: str = "weights",
        component: int | None = None,
    ) -> Explanation:
        """Return the arithmetic behind one number, to check by hand; `print` shows it.

        Parameters
        ----------
        query, key : the weight to explain, by position (negative positions count from the end) or
            by the token's text, as in `explain("it", "dog")`. Without a key, all of the query's
            weights and the weighted values are explained. The default query is the last token.
        step : another step, such as "scores", "Q" or "context", or its path from here. For K and V,
            `query` is the attended token; for parameters, it is a row.
        component : the column, for steps whose columns aren't keys; default 0. In steps of several
            heads, the columns of head 0 come first.

        Examples
        --------
        >>> head.explain("it", "dog")
        >>> head.explain("it", step="Q", component=3)
        """
        from attnlab.views.explaining.explain import explain  # imported late: it is slow to load

        return explain(*step_at(self, step), query, component, key)

    def plot(
        self,
        step: str = "weights",
        ax: Axes | None = None,
        tokens: slice | None = None,
        *,
        language: str | None = None,
    ) -> Picture:
        """Plot a step of one head as a heatmap, labelled with tokens.

        Parameters
        ----------
        step : the step's name, such as "masked_scores"
        ax : matplotlib Axes to draw into; None for a new figure
        tokens : which tokens, such as `slice(-40, None)` for the last 40, `slice(None)` for all;
            None shows the first and last tokens of a long text
        language : "en" or "zh" (Chinese); None for the user's language, see `attnlab.page`

        Returns
        -------
        Picture
            a notebook displays it, `.save("picture.svg")` writes it; it has `.axes`, `.figure` and
            `.alt`, a description
        """
        from attnlab.views.plot import drawing_in, plot_step  # needs matplotlib, which is optional

        with drawing_in(language):
            return plot_step(self, step, ax, tokens)

    def to_dataframe(self, step: str = "weights") -> DataFrame:
        """Return a step of one head as a labelled pandas DataFrame.

        Parameters
        ----------
        step : the step's name, such as "scores"

        Returns
        -------
        DataFrame
            with rows and columns named query, key, Dk, ... Token axes have a two-level index,
            position and symbol: `frame.loc[11]`, `frame.xs("Ġhot", level="key_token", axis=1)`, or
            `frame.stack(["key", "key_token"])` for one line per query and key
        """
        return super().to_dataframe(step)

    def to_xlsx(self, path: FilePath) -> None:
        """Write one head as a spreadsheet of formulas: change a number, and later steps follow.

        Each step is a sheet. Computed steps are formulas, which refer to earlier sheets; inputs and
        edited steps are numbers; -inf is -1E+308. This needs xlsxwriter, see the extra `sheets`.
        More than a million cells are refused.

        Parameters
        ----------
        path : the file to write, such as "head.xlsx", for LibreOffice, Excel or Google Sheets
        """
        from attnlab.views.sheets import write_sheets  # needs xlsxwriter, which is optional

        write_sheets(self, path)

    @property
    def scores_shape(self) -> tuple[int, ...]:
        """The shape of the scores, (..., Tq, Tk), known before they are computed."""
        return self._run.scores_shape  # from the shapes of the inputs


class SelfAttention(Attention):
    """One head with projections of X, or of X and `memory` in cross-attention.

    Attributes
    ----------
    X : (..., Tq, D), the querying sequence
    memory : (..., Tk, D'), the attended sequence; X itself in self-attention
    W_Q, W_K, W_V : (D, Dk), (D', Dk), (D', Dv)
    b_Q, b_K, b_V : (Dk,), (Dk,), (Dv,) or None
    and the attributes of `Attention`
    """

    _table_steps: ClassVar[tuple[str, ...]] = (
        *("X", "memory", "W_Q", "b_Q", "W_K", "b_K", "W_V", "b_V"),
        *Attention._table_steps,
    )

    # X has one vector for each token. Queries are made of X, keys and values of memory.
    X = Step[Array]("Tq D", "the input of attention")
    # In cross-attention memory is an input, and this equation isn't used.
    memory = Step[Array]("Tk D'", "the attended sequence", equations.identity, x="X")
    # Three learned maps: what a token looks for, what it is found by, and what it passes on.
    W_Q = Step[Array]("D Dk")
    b_Q = Step["Array | None"]("Dk")
    W_K = Step[Array]("D' Dk")  # as wide as W_Q, since queries and keys are multiplied
    b_K = Step["Array | None"]("Dk")  # adds one number to all scores of a query: no weight changes
    W_V = Step[Array]("D' Dv")
    b_V = Step["Array | None"]("Dv")
    # (Tq, D) (D, Dk) -> (Tq, Dk): a row of Q depends on the same row of X only.
    Q = affine_step("Tq Dk", "X", "W_Q", "b_Q")
    K = affine_step("Tk Dk", "memory", "W_K", "b_K")
    V = affine_step("Tk Dv", "memory", "W_V", "b_V")

    def axes_of(self, name: str) -> str:
        axes = super().axes_of(name)
        # D' is the width of memory, and D is the width of X. In self-attention, memory is X.
        return axes.replace("D'", "D") if self._is_self_attention() else axes

    def formula_of(self, name: str) -> str:
        formula = super().formula_of(name)
        for bias in BIASES:
            path, term = self._layer_prefix + bias, f" + {bias}"
            # A bias that was left out is stored as None. `is_stored` avoids reading parameters.
            if term in formula and self._run.is_stored(path) and self._run.value(path) is None:
                formula = formula.replace(term, "")
        if not self._is_self_attention():
            return formula
        # In self-attention, formulas show X instead of memory, which the user didn't give.
        return "X" if name == "memory" else formula.replace("memory", "X")

    def _steps_shown(self) -> tuple[str, ...]:
        # X and memory are one array here, and two rows for it would only confuse.
        hidden = {"memory"} if self._is_self_attention() else set()
        return tuple(name for name in self._table_steps if name not in hidden)

    @property
    def _layer_prefix(self) -> str:
        """The path prefix of the layer's steps."""
        return self._prefix

    def _is_self_attention(self) -> bool:
        """Whether the attended sequence, memory, is X."""
        # If the user gave a memory, it is an input of this run's graph.
        return f"{self._layer_prefix}memory" not in self._run.graph.given


class Head(Circuits, SelfAttention):
    """One head of multi-head attention, with the same step names.

    Its arrays are views of the layer's arrays, if these are computed. If not, they are computed for
    this head only, with identical results.

    Attributes
    ----------
    W_Q, W_K, W_V, b_Q, b_K, b_V : this head's columns of the layer's parameters
    W_O : (Dv, D), this head's rows of the layer's W_O
    output : (..., Tq, D), context W_O. The layer's output is the sum of all heads' outputs and b_O.
        An edit of the layer's `concat` changes the layer's output but no head's output, since heads
        don't use `concat`; `attribution` then raises an error.
    and the attributes of `SelfAttention`
    """

    _table_steps: ClassVar[tuple[str, ...]] = (*SelfAttention._table_steps, "W_O", "output")

    # Each of these is the head's part of the layer's step of that name, or, if heads share the step
    # (X, scale), the layer's step itself.
    _parts_of_layer: ClassVar[tuple[str, ...]] = (*SelfAttention.steps, "W_O")

    # Head 0 is in the first Dv columns of concat, so its rows of W_O are the first Dv.
    W_O = Step[Array]("Dv D")
    # The layer's output, the sum of all heads' outputs and b_O, doesn't contain it as a part.
    output = Step("Tq D", "context W_O", equations.head_output, finite=True)

    def _step(self, name: str) -> Step[Any]:
        step = super()._step(name)
        # A head alone has X as an input; in a block, X is LayerNorm of the residual stream.
        if name in ("X", "memory"):  # the layer's class declares their formulas
            *layer_path, _, _ = self.path.split(".")  # without "heads" and the number
            step = self._run.graph.class_at(layer_path).steps[name]
        return step

    @property
    def scores_shape(self) -> tuple[int, ...]:
        *leading, _, queries, keys = super().scores_shape  # without the axis of heads
        return (*leading, queries, keys)

    @property
    def _layer_prefix(self) -> str:
        return self._prefix.rpartition("heads.")[0]  # "blocks.3.attention."


class MultiHeadAttention(SelfAttention):
    """H heads in parallel, joined and projected by W_O.

    Attributes
    ----------
    X, memory : (..., Tq, D), (..., Tk, D')
    W_Q, W_K, W_V, b_Q, b_K, b_V : columns of all heads, head 0 first: (D, H·Dk), ..., (H·Dv,)
    Q, K, V : (..., H, Tq, Dk), (..., H, Tk, Dk), (..., H, Tk, Dv)
    raw_scores, scores, masked_scores, weights : (..., H, Tq, Tk)
    mask : bool, broadcastable to (..., H, Tq, Tk)
    context : (..., H, Tq, Dv)
    concat : (..., Tq, H·Dv), the heads' contexts joined
    W_O, b_O : (H·Dv, D), (D,)
    output : (..., Tq, D)
    n_head : H
    heads : the H heads, each a `Head`
    """

    _table_steps: ClassVar[tuple[str, ...]] = (
        *SelfAttention._table_steps,
        "concat",
        "W_O",
        "b_O",
        "output",
    )
    _children: ClassVar[dict[str, type[Result]]] = {"heads": Head}

    # Columns of all heads lie side by side. `select_head` finds a head's columns by the axes.
    # In GPT-2 H·Dk = D: with more heads, each head is narrower.
    n_head = Step[int]("", "H")
    W_Q = Step[Array]("D H·Dk")  # head h has the Dk columns from h·Dk on
    b_Q = Step["Array | None"]("H·Dk")
    W_K = Step[Array]("D' H·Dk")
    b_K = Step["Array | None"]("H·Dk")
    W_V = Step[Array]("D' H·Dv")
    b_V = Step["Array | None"]("H·Dv")
    # The output projection: from the heads back to the residual stream.
    W_O = Step[Array]("H·Dv D")
    b_O = Step["Array | None"]("D")  # added once for the layer: it belongs to no head
    # A cache is an object with `extend`, see `CachedRows`; only a model that generates has one.
    K_cache = Step[Any]("H Tk Dk", "keys of cached tokens", optional=True)
    V_cache = Step[Any]("H Tk Dv", "values of cached tokens", optional=True)
    # The axis of heads comes first, so that Q @ Kᵀ is one product for each head.
    Q = Step("H Tq Dk", f"X W_Q + b_Q{SPLIT}", equations.Q)
    K = Step("H Tk Dk", f"memory W_K + b_K{SPLIT}", equations.K)
    V = Step("H Tk Dv", f"memory W_V + b_V{SPLIT}", equations.V)
    # The equations are those of one head, since NumPy's products and reductions keep leading axes.
    dropout_mask = SelfAttention.dropout_mask.with_axes("H Tq Tk")
    raw_scores = SelfAttention.raw_scores.with_axes("H Tq Tk")
    scores = SelfAttention.scores.with_axes("H Tq Tk")
    masked_scores = SelfAttention.masked_scores.with_axes("H Tq Tk")
    weights = SelfAttention.weights.with_axes("H Tq Tk")
    context = SelfAttention.context.with_axes("H Tq Dv")
    # This step is the first that joins heads; the steps before it treat each head separately.
    # view: in long texts concat is a view of the context; in short texts a copy is quickly made.
    concat = Step("Tq H·Dv", "the heads' contexts side by side", equations.concat, view=True)
    # transient: in a block, `mid` is the sum of the stream and this output.
    output = affine_step("Tq D", "concat", "W_O", "b_O", transient=True, fast=fast.affine)

    @cached_property
    def heads(self) -> Numbered[Head]:
        # Heads are views of this run, created on access: they have no arrays of their own.
        return Numbered(
            "head",
            (
                Head(
                    Message("{title}, head {head}", title=self._title, head=h),
                    self._run,
                    f"{self._prefix}heads.{h}",  # blocks.3.attention.heads.5
                )
                for h in range(self.n_head)
            ),
        )
