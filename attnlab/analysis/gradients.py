"""Gradients of a logit, or of the loss, with respect to every step of a trace.

They are computed by backpropagation through the graph of steps. A step's gradient is the sum of
contributions from its consumers, the steps that need it; the gradient of a consumer's equation
(`attnlab.forward.gradients`) computes each contribution. Like steps, gradients are computed when
they are read. Edited values are constants, through which no gradient flows.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from typing import Any, ClassVar, Self, TypeVar, overload

import numpy as np
from numpy.typing import ArrayLike

from attnlab import equations
from attnlab.analysis.base import Target, TargetLike
from attnlab.equations import Array
from attnlab.errors import InvalidTypeError, InvalidValueError
from attnlab.forward.attention import Attention
from attnlab.forward.edits import HEAD_ONLY, edits_in, enclosing_steps, select_part
from attnlab.forward.fast import side_by_side
from attnlab.forward.forward_pass import ForwardPass
from attnlab.forward.gradients import GRADIENTS, affine_x, cross_entropy, new_rows
from attnlab.model.trace import Trace
from attnlab.steps import Graph, Node, Result, Run, Step
from attnlab.steps.declaration import parameters_of
from attnlab.steps.paths import parse
from attnlab.steps.run import overflow_error
from attnlab.support.checks import as_floats, check_kind
from attnlab.support.messages import Message

AttentionType = TypeVar("AttentionType", bound=Attention)

# Steps without a gradient. Tables of gradients show their values in the forward pass instead.
CONSTANTS = (
    *("ids", "positions", "cached", "mask", "n_head", "scale", "epsilon"),
    *("activation", "divide_by_sqrt_d", "layer_number"),
)


# Equations that no gradient flows through. A scale depends on the width of K, not on its numbers. A
# head's output isn't used further: the layer's output is computed from the context of all heads.
ENDS = (equations.scale, equations.scale_of_layer, equations.head_output)


class GradientRun(Run):
    """A run whose steps are gradients of the forward pass, which is the run's base.

    The target is None for the loss. Steps without a gradient are read from the base.
    """

    target: Target | None

    @classmethod
    def of(cls, run: Run, target: Target | None, derivative_of: str) -> Self:
        note = Message("{title}, gradient of {target}", title=run.note, target=derivative_of)
        new = cls.changing(run, derivative_of=derivative_of, note=note)
        new.target = target
        return new

    @property
    def forward(self) -> Run:
        """The forward pass."""
        assert self.base is not None
        return self.base

    def depends(self, path: str) -> bool:
        step = self.graph[path].step
        return step.name not in CONSTANTS and not step.optional

    def is_stored(self, path: str) -> bool:
        return not self.depends(path) or super().is_stored(path)  # so that tables show constants

    def _compute_first(self, path: str, node: Node) -> None:
        if path.startswith("blocks."):  # later blocks come first, as a deep recursion would fail
            for later in range(self.graph.n_layer - 1, parse(path).layer or 0, -1):
                self._stored(f"blocks.{later}.input")

    def _input(self, path: str) -> Any:
        node = self.graph[path]
        if self.is_long and node.step.axes.endswith("Tq Tk") and path not in self.values:
            return self.compute(path, node)  # too large to keep for a long text
        return super()._input(path)

    def compute(self, path: str, node: Node) -> Any:
        try:
            return self._gradient(path, node)
        except FloatingPointError:  # from this step: other steps' errors became InvalidValueError
            dtype = self.forward.value(path).dtype
            raise overflow_error(f"the gradient of {path}", dtype) from None

    def _gradient(self, path: str, node: Node) -> Any:
        layer_prefix, name = parse(path).layer_prefix, node.step.name  # None outside of heads
        if name == "memory" and self._is_self_attention(node.layer_step or path):
            return self._input(path.removesuffix("memory") + "X")
        if layer_prefix is not None and name == "output":  # the layer adds up its heads' outputs
            return self._input(f"{layer_prefix}output")
        if layer_prefix is not None and name in ("X", "memory"):
            return self._through_head(path.removesuffix(name), layer_prefix, name)
        if layer_prefix is not None and name == "score_bias":  # heads may share a score_bias
            d_scores = self._input(path.removesuffix("score_bias") + "scores")
            return summed_to(self.forward.value(path).shape, d_scores)
        *_, container = enclosing_steps(self.graph, path)
        if container != path:
            return select_part(self, path, self._input(container))
        return self._sum_over_consumers(path)

    def _sum_over_consumers(self, path: str) -> Array:
        """Sum the contributions to a step's gradient from all steps that need the step."""
        if path == "logits":
            return self._gradient_of_logits()
        if path == "final" and self.target is not None and not self.forward.is_edited("logits"):
            return self._gradient_of_final(self.target)
        if path.endswith(".attention.X"):
            return self._through_projections(path.removesuffix("X"))
        contributions = []
        for consumer, name in consumers(self.graph, path):
            node = self.graph[consumer]
            names = parameters_of(node.step.equation)
            paths = dict(zip(names, node.needs, strict=True))
            gradient = GRADIENTS[node.step.equation][name]
            arguments = {
                argument: self._argument(argument, consumer, paths)
                for argument in parameters_of(gradient)
            }
            contributions.append(gradient(**arguments))
        if path == "W_E":  # the embedding reads W_E under the name rows_of_W_E
            contributions.append(self._input("rows_of_W_E"))
        if not contributions:
            return np.zeros_like(self.forward.value(path))
        first, *others = contributions
        return sum(others, start=first)

    def _argument(self, name: str, consumer: str, paths: dict[str, str]) -> Any:
        """An argument of the gradient of a consumer's equation."""
        if name == "d_y":
            return self._before_edits(consumer)
        path = consumer if name == "y" else paths[name]
        return self.forward._input(path.removeprefix("rows_of_"))  # W_E has the whole shape

    def _before_edits(self, path: str) -> Any:
        """The gradient of a step's value before its edits: 0 where an edit replaced the value."""
        d_y = self._input(path)
        for edited, edit in self.forward.edits_of(path):
            d_y = np.array(d_y)  # a copy, since the gradient after the edits is stored
            part = select_part(self.forward, edited, d_y)
            for index, replacement in edits_in(edit)[::-1]:
                if callable(replacement) and part[index].any():
                    raise InvalidValueError(no_gradient(edited))
                part[index] = 0
        return d_y

    def _is_self_attention(self, memory_path: str) -> bool:
        return unalias(self.graph, memory_path) != memory_path  # then memory is X

    def _through_head(self, head_prefix: str, layer_prefix: str, source: str) -> Array:
        """The gradient of the source, "X" or "memory", through one head alone."""
        node = self.graph[f"{head_prefix}X"]
        n_head = self.forward.value(node.n_head)
        # With cross-attention, Q is computed from X, K and V from memory.
        names = {"X": "Q", "memory": "KV"}[source]
        if self._is_self_attention(f"{layer_prefix}memory"):
            names = "QKV"
        # K and V may begin with rows of cached tokens, which weren't computed from the source.
        n_rows = self.forward.value(f"{head_prefix}{source}").shape[-2]
        through = []
        for name in names:
            d_layer = self._before_edits(f"{layer_prefix}{name}")
            d_head = equations.head_slice(d_layer, node.number, n_head)
            W = self.forward.value(f"{head_prefix}W_{name}")
            through.append(affine_x(W, d_head[..., -n_rows:, :]))
        return reduce(np.add, reversed(through))  # the order fixes the rounding

    def _through_projections(self, layer_prefix: str) -> Array:
        """The gradient of a block's X through Q, K and V, which one matrix product computes."""
        X = self.forward._input(f"{layer_prefix}X")
        d_QKV = [new_rows(X, self._before_edits(f"{layer_prefix}{name}")) for name in "QKV"]
        W_QKV = side_by_side(*(self.forward.value(f"{layer_prefix}W_{name}") for name in "QKV"))
        return affine_x(W_QKV, np.concatenate(d_QKV, axis=-1))

    def _gradient_of_final(self, target: Target) -> Array:
        """The gradient of `final`: a column of W_U, or the difference of two columns."""
        d_final: Array = np.zeros_like(self.forward.value("final"))
        d_final[target.position] = target.difference(self.forward.value("W_U"))
        return d_final

    def _gradient_of_logits(self) -> Array:
        logits: Array = self.forward._input("logits")
        d_logits = np.zeros_like(logits)
        if self.target is None:
            ids = self.forward.value("ids")
            _, d_logits[:-1] = cross_entropy(logits[:-1], ids[1:])
            return d_logits
        d_logits[self.target.position, self.target.token.id] = 1
        if self.target.against is not None:
            d_logits[self.target.position, self.target.against.id] = -1
        return d_logits


class AttentionGradientRun(GradientRun):
    """Gradients of Σ d · y, where y is the last step of `attention` or a similar function."""

    last: str  # the name of the last step
    d: Array  # in the shape of y

    def depends(self, path: str) -> bool:
        step = self.graph[path].step
        # A step is absent if it is an optional input that the user didn't give, such as a bias.
        is_absent = step.equation is None and self.forward.value(path) is None
        return step.name not in CONSTANTS and not is_absent

    def _sum_over_consumers(self, path: str) -> Array:
        total = self.d if path == self.last else super()._sum_over_consumers(path)
        return summed_to(self.forward.value(path).shape, total)


def summed_to(shape: tuple[int, ...], d_y: Array) -> Array:
    """Sum the gradient of y over the axes along which a step of this shape was broadcast to y."""
    added = d_y.ndim - len(shape)  # the number of leading axes that broadcasting added
    repeated = (n + added for n, size in enumerate(shape) if size < d_y.shape[n + added])
    total = d_y.sum(axis=(*range(added), *repeated), keepdims=True)
    return np.asarray(total.reshape(shape))


@overload
def gradients(
    result: Trace, target: TargetLike | None = None, *, at: int | str = -1
) -> Gradients: ...
@overload
def gradients(result: AttentionType, *, d: ArrayLike = 1.0) -> AttentionType: ...
def gradients(
    result: Trace | Attention,
    target: Any = None,
    *,
    at: int | str = -1,
    d: ArrayLike | None = None,
) -> Any:
    """Gradients of a number L with respect to every step, by backpropagation.

    For a trace, L is a logit, a difference of two logits, or the loss. For the result of
    `attention` or a similar function, L is Σ d · y, where y is the last step: `context` or, with
    several heads, `output`.

    Gradients describe small changes only: they almost vanish at a saturated softmax, however much
    depends on the softmax.

    Parameters
    ----------
    result : a trace, or the result of `attention` or a similar function
    target, at : as for `attribution`; without a target, L is the loss, the mean cross-entropy of
        the text's tokens
    d : dL/dy, which broadcasts to y; 1 by default

    Returns
    -------
    Gradients
        for a trace; the gradients of an attention have the attention's class. A gradient has the
        shape of its step; the mask and the constants, such as `scale`, keep their values.

    Examples
    --------
    >>> attnlab.gradients(trace, (" rolled", " barked")).blocks[0].attention.weights
    >>> attnlab.gradients(attention(Q, K, V, bias=bias), d=d_context).score_bias
    """
    if isinstance(result, Attention):
        if target is not None or at != -1:
            raise InvalidTypeError(f"{result.title} has no tokens to take a logit of. Give d=")
        result._check_whole("differentiated")
        return attention_gradients(result, 1.0 if d is None else d)
    if d is not None:
        raise InvalidTypeError(
            "d is for the result of attention and similar functions. Give target="
        )
    check_kind(result, Trace, "result", "a Trace or the result of an attention")
    return Gradients(result, None if target is None else Target.of(result, target, at))


def attention_gradients(attention: AttentionType, d: ArrayLike) -> AttentionType:
    """Compute the gradients of Σ d · y with respect to the steps of an attention."""
    last = attention._table_steps[-1]
    y = getattr(attention, last)
    with np.errstate(over="ignore"):  # an overflow becomes infinite, which is refused below
        array = as_floats(d, "d").astype(y.dtype)
    if not np.isfinite(array).all():
        raise InvalidValueError("d contains NaN or infinite numbers")
    try:
        array = np.broadcast_to(array, y.shape)
    except ValueError:
        raise InvalidValueError(
            f"d must broadcast to the shape of {last}, {y.shape}; got {array.shape}"
        ) from None
    run = AttentionGradientRun.of(attention._run, None, f"Σ d · {last}")
    run.last = last
    run.d = array
    return attention._with_run(run)


class Gradients(ForwardPass):
    """Gradients with respect to every step of a trace, see `gradients`.

    A gradient has the shape of its step: `attnlab.at(gradients, "blocks.0.attention.weights")`. The
    gradient of `blocks.1.attention.residual` is what flows to `blocks.1.input` through attention.
    The gradient of a head's X is the part that flows through that head. The gradient of W_E
    includes both of its uses. Ids, positions, the mask and scalars have no gradient, and show their
    values.

    In an edited trace, edited values are constants. A gradient raises an error when it is read if
    it would flow through an edit that is a function, or an edit of a head's X, scale or output.
    """

    _hint: ClassVar[str] = (
        "Gradients describe small changes only: a saturated softmax has almost none, however much "
        "depends on it.\nSource: the chain rule, equation by equation, in attnlab.forward.gradients"
    )

    next_logits = Step[Array]("vocab", "the last row of logits")

    def __init__(self, trace: Trace, target: Target | None) -> None:
        if target is None and len(trace.tokens) < 2:
            raise InvalidValueError("the loss needs at least two tokens; got one")
        derivative_of = "the loss" if target is None else target.message
        run = GradientRun.of(trace._run, target, derivative_of)
        Result.__init__(self, trace._title, run)
        vars(self).update(parameters=trace.parameters, config=trace.config)


def no_gradient(edited: str) -> str:
    """The error message for a gradient that would flow through an edit."""
    if parse(edited).head is not None and parse(edited).step in HEAD_ONLY:
        return (
            f"no gradient through the edit of {edited}: the layer doesn't compute with this step. "
            "Edit the head's Q, K, V, scores or context instead"
        )
    return (
        f"no gradient through the edit of {edited}: the derivative of a function isn't known. Edit "
        "with the array that it returns, which is taken as a constant"
    )


def consumers(graph: Graph, path: str) -> Iterator[tuple[str, str]]:
    """Yield the steps whose equations need a step, and the name of the parameter that takes it."""
    for consumer in possible_consumers(graph, parse(path).layer):
        node = graph[consumer]
        needs = [unalias(graph, need) for need in node.needs]
        if node.step.equation is None or path not in needs:
            continue
        if len(enclosing_steps(graph, consumer)) > 1 or consumer.endswith("memory"):
            continue  # the consumer is a slice or an alias of another step, which is yielded itself
        names = parameters_of(node.step.equation)
        for name, need in zip(names, needs, strict=True):
            if need == path and node.step.equation not in ENDS:
                yield consumer, name


def unalias(graph: Graph, path: str) -> str:
    """The path of X for that of memory if memory is X; other paths are returned unchanged."""
    node = graph[path]
    is_alias = node.step.name == "memory" and node.step.equation is equations.identity
    return node.needs[0] if is_alias else path


def possible_consumers(graph: Graph, layer: int | None) -> Iterator[str]:
    """Yield the steps of a block, of the next block, and outside of blocks."""
    prefixes = ["", "blocks.0"]
    if layer is not None:
        block = f"blocks.{layer}"
        prefixes = ["", block, f"{block}.attention", f"{block}.mlp", f"blocks.{layer + 1}"]
    for prefix in prefixes:
        names = prefix.split(".") if prefix else []
        if len(names) > 1 and int(names[1]) == graph.n_layer:  # no block follows the last block
            continue
        for name in graph.class_at(names).steps:
            yield f"{prefix}.{name}" if prefix else name
