"""Gradients of a logit, or of the loss, with respect to every step of a trace.

This is backpropagation through the graph of steps: the gradient of a step is the sum of
contributions from all steps that need it (its *consumers*), each computed with the gradient of the
consumer's equation (`attnlab.forward.gradients`). Like steps, gradients are computed when they are
read. Edited values are constants: no gradient flows through them.
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

# Steps without a gradient; the results show their values in the forward pass.
CONSTANTS = (
    *("ids", "positions", "cached", "mask", "n_head", "scale", "epsilon"),
    *("activation", "divide_by_sqrt_d", "layer_number"),
)


# Equations that no gradient flows through. A scale depends on the width of K, not on its numbers. A
# head's output isn't used further: the layer's output is computed from the context of all heads.
ENDS = (equations.scale, equations.scale_of_layer, equations.head_output)


class GradientRun(Run):
    """A run whose steps are gradients, in the forward pass that is its base.

    The target is None for the loss. Steps without a gradient are the base's.
    """

    target: Target | None

    @classmethod
    def of(cls, run: Run, target: Target | None, derivative_of: str) -> Self:
        title = Message("{title}, gradient of {target}", title=run.note, target=derivative_of)
        new = cls.changing(run, derivative_of=derivative_of, note=title)
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
        if path.startswith("blocks."):  # block by block: a deep model would recurse too far
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
        except FloatingPointError:  # in this step: other steps raise InvalidValueError
            dtype = self.forward.value(path).dtype
            raise overflow_error(f"the gradient of {path}", dtype) from None

    def _gradient(self, path: str, node: Node) -> Any:
        layer, name = parse(path).layer_prefix, node.step.name
        if name == "memory" and self._is_self_attention(node.layer_step or path):
            return self._input(path.removesuffix("memory") + "X")
        if layer is not None and name == "output":  # a term of the layer's output: same gradient
            return self._input(f"{layer}output")
        if layer is not None and name in ("X", "memory"):
            return self._through_head(path.removesuffix(name), layer, name)
        if layer is not None and name == "score_bias":  # heads may share it
            d_scores = self._input(path.removesuffix("score_bias") + "scores")
            return summed_to(self.forward.value(path).shape, d_scores)
        *_, container = enclosing_steps(self.graph, path)
        if container != path:
            return select_part(self, path, self._input(container))
        return self._sum_over_consumers(path)

    def _sum_over_consumers(self, path: str) -> Array:
        """The sum of the gradients from all steps that need a step."""
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
        if path == "W_E":  # the embedding needs it as `rows_of_W_E`
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
        """The gradient of a step before its edits, which is 0 where an edit replaces the value."""
        d_y = self._input(path)
        for edited, edit in self.forward.edits_of(path):
            d_y = np.array(d_y)
            part = select_part(self.forward, edited, d_y)
            for index, replacement in edits_in(edit)[::-1]:
                if callable(replacement) and part[index].any():
                    raise InvalidValueError(no_gradient(edited))
                part[index] = 0
        return d_y

    def _is_self_attention(self, memory: str) -> bool:
        return unalias(self.graph, memory) != memory

    def _through_head(self, head: str, layer: str, source: str) -> Array:
        """The gradient of X, or of memory, that flows through one head."""
        node = self.graph[f"{head}X"]
        n_head = self.forward.value(node.n_head)
        of_source = {"X": "Q", "memory": "KV"}[source]
        names = "QKV" if self._is_self_attention(f"{layer}memory") else of_source
        rows = self.forward.value(f"{head}{source}").shape[-2]  # keys of cached tokens come first
        parts = {
            name: equations.head_slice(self._before_edits(f"{layer}{name}"), node.number, n_head)
            for name in names
        }
        through = [
            affine_x(self.forward.value(f"{head}W_{name}"), d[..., -rows:, :])
            for name, d in parts.items()
        ]
        return reduce(np.add, reversed(through))

    def _through_projections(self, layer: str) -> Array:
        """The gradient of a block's X through Q, K and V, with one product for all three."""
        X = self.forward._input(f"{layer}X")
        d_QKV = [new_rows(X, self._before_edits(f"{layer}{name}")) for name in "QKV"]
        W_QKV = side_by_side(*(self.forward.value(f"{layer}W_{name}") for name in "QKV"))
        return affine_x(W_QKV, np.concatenate(d_QKV, axis=-1))

    def _gradient_of_final(self, target: Target) -> Array:
        """The gradient of `final`: a column of W_U, or the difference of two."""
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
    """Gradients of Σ d · y in the run of `attention` or a similar function; y is the last step."""

    last: str
    d: Array

    def depends(self, path: str) -> bool:
        step = self.graph[path].step
        # A bias that was left out is absent.
        is_absent = step.equation is None and self.forward.value(path) is None
        return step.name not in CONSTANTS and not is_absent

    def _sum_over_consumers(self, path: str) -> Array:
        total = self.d if path == self.last else super()._sum_over_consumers(path)
        return summed_to(self.forward.value(path).shape, total)


def summed_to(shape: tuple[int, ...], d_y: Array) -> Array:
    """Sum d_y over the axes along which a step of this shape was broadcast to the shape of y."""
    added = d_y.ndim - len(shape)
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
    """Compute the gradients with respect to every step, by backpropagation.

    For a trace, they are gradients of a logit, of a difference of two, or of the loss. For the
    result of `attention` or a similar function, they are gradients of Σ d · y, where y is the last
    step: `context` or, with several heads, `output`.

    Gradients describe small changes only: a saturated softmax has almost none, even if the result
    depends on it.

    Parameters
    ----------
    result : a trace, or the result of `attention` or a similar function
    target, at : as for `attribution`; None for the loss, the text's mean cross-entropy
    d : the gradient of a number L with respect to y, dL/dy, to compute the gradients of L; it
        broadcasts to y, and is 1 by default

    Returns
    -------
    Gradients
        for a trace; for an attention, a result of the same class. Each gradient has the shape of
        its step. Steps without a gradient, such as the mask, have their values.

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
    with np.errstate(over="ignore"):  # numbers that overflow become infinite: refused below
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

    Each has the shape of its step: `attnlab.at(gradients, "blocks.0.attention.weights")`. The
    gradient of `blocks.1.attention.residual` is the part of the gradient of `blocks.1.input` that
    flows through attention. The gradient of a head's X is the part that flows through that head.
    The gradient of W_E includes both of its uses. Ids, positions, the mask and scalars have no
    gradient, and show their values.

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
    """The error for a gradient that would flow through an edit."""
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
    """The steps whose equations need a step, and the step's parameter name in each."""
    for consumer in possible_consumers(graph, parse(path).layer):
        node = graph[consumer]
        needs = [unalias(graph, need) for need in node.needs]
        if node.step.equation is None or path not in needs:
            continue
        if len(enclosing_steps(graph, consumer)) > 1 or consumer.endswith("memory"):
            continue  # the consumer is a slice or an alias of another step
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
    """The steps that may need a step of a layer: in its block, the next block, or outside."""
    prefixes = ["", "blocks.0"]
    if layer is not None:
        block = f"blocks.{layer}"
        prefixes = ["", block, f"{block}.attention", f"{block}.mlp", f"blocks.{layer + 1}"]
    for prefix in prefixes:
        names = prefix.split(".") if prefix else []
        if len(names) > 1 and int(names[1]) == graph.n_layer:  # the last block has no next one
            continue
        for name in graph.class_at(names).steps:
            yield f"{prefix}.{name}" if prefix else name
