"""Gradients under the names of the steps: how a logit, or the loss, changes with each of them.

The graph of steps is gone through backwards: the gradient of a step is the sum of what comes back
from all steps that need it, each by the gradient of its equation (`attnlab.forward.gradients`).
Like the steps themselves, gradients are computed when they are looked at. Where a step is edited,
what took its place is held: nothing comes back past it.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from attnlab import equations
from attnlab.analysis.base import Target, Trace
from attnlab.equations import Array
from attnlab.errors import InvalidValueError
from attnlab.forward.edits import OWN, part_of, wholes
from attnlab.forward.forward_pass import ForwardPass
from attnlab.forward.gradients import GRADIENTS, affine_x, cross_entropy
from attnlab.steps import Graph, Node, Run, Step, read_only
from attnlab.support.messages import Message

# Steps that are no arrays of real numbers, or are the same whatever the numbers: they have no
# gradient, and are seen as they are.
WITHOUT = (
    *("ids", "positions", "cached", "mask", "n_head", "scale", "epsilon"),
    *("activation", "by_root", "layer_number"),
)


class GradientRun(Run):
    """The run of a pass, in which a step is its gradient.

    Parameters
    ----------
    run : the forward pass
    target : whose gradient it is; None for the loss
    """

    def __init__(self, run: Run, target: Target | None) -> None:
        super().__init__(
            run.graph,
            {},
            scores_shape=run.scores_shape,
            tokens=run.tokens,
            tokens_before=run.tokens_before,
            is_long=run.is_long,
        )
        self.run, self.target = run, target
        self.derivative_of = "the loss" if target is None else target.message
        self.note = Message(
            "{title}, gradient of {target}", title=run.note, target=self.derivative_of
        )

    def is_there(self, path: str) -> bool:
        return self._is_as_it_is(path) or super().is_there(path)

    def is_quick(self, layers: int) -> bool:
        return False  # whatever it is of, the whole pass comes first

    def look(self, path: str) -> Any:
        return self.run.look(path) if self._is_as_it_is(path) else super().look(path)

    def _is_as_it_is(self, path: str) -> bool:
        step = self.graph[path].step
        return step.name in WITHOUT or step.optional

    def _kept(self, path: str) -> Any:
        if path.startswith("blocks."):  # in order, as a deep model would recurse too far
            for later in range(self.graph.n_layer - 1, int(path.split(".")[1]), -1):
                self._keep(f"blocks.{later}.input")
        return self._keep(path)

    def _keep(self, path: str) -> Any:
        if path not in self.values:
            self.values.setdefault(path, read_only(self._made(path, self.graph[path])))
        return self.values[path]

    def _for_another(self, path: str) -> Any:
        node = self.graph[path]
        if self.is_long and node.step.axes == "Tq Tk" and path not in self.values:
            return self._made(path, node)  # for a long text not even the weights' are kept
        return super()._for_another(path)

    def _made(self, path: str, node: Node) -> Any:
        layer, of_head, _ = path.rpartition(".")[0].rpartition(".heads.")
        if node.step.name == "memory":  # another name of X
            return self._for_another(path.removesuffix("memory") + "X")
        if of_head and node.step.name == "output":  # the layer's is the sum of all heads'
            return self._for_another(f"{layer}.output")
        if of_head and node.step.name == "X":
            return self._by_way_of_head(path.removesuffix("X"))
        *_, place = wholes(self.graph, path)
        if place != path:
            return part_of(self, path, self._for_another(place))
        return self._added_up(path)

    def _added_up(self, path: str) -> Array:
        """What comes back from all steps that need a step."""
        if path == "logits":
            return self._from_target()
        if path == "final" and self.target is not None and not self.run.is_edited("logits"):
            return self._through_columns(self.target)
        parts = []
        for consumer, name in consumers(self.graph, path):
            node = self.graph[consumer]
            names = inspect.signature(node.step.equation).parameters
            places = dict(zip(names, node.needs, strict=True))
            gradient = GRADIENTS[node.step.equation][name]
            needed = {
                need: self._value(need, consumer, places)
                for need in inspect.signature(gradient).parameters
            }
            parts.append(gradient(**needed))
        if path == "W_E":  # its rows are read under another name
            parts.append(self._for_another("rows_of_W_E"))
        if not parts:
            return np.zeros_like(self.run.look(path))
        first, *others = parts
        for other in others:
            first = first + other
        return first

    def _value(self, name: str, consumer: str, places: dict[str, str]) -> Any:
        """What the gradient of an equation needs, by its name there."""
        if name == "d_y":
            return self._behind(consumer)
        path = consumer if name == "y" else places[name]
        return self.run._for_another(path.removeprefix("rows_of_"))  # which may not know how many

    def _behind(self, path: str) -> Any:
        """What comes back past the edits of a step."""
        d_y = self._for_another(path)
        for edited, edit in self.run.edits_of(path):
            if callable(edit) and part_of(self.run, edited, d_y).any():
                raise InvalidValueError(no_way_back(edited))
            if not callable(edit):
                d_y = np.array(d_y)
                part_of(self.run, edited, d_y)[...] = 0
        return d_y

    def _by_way_of_head(self, head: str) -> Array:
        """Of what enters attention, as far as one head has it."""
        node = self.graph[f"{head}X"]
        d_QKV = self._behind(node.whole.removesuffix("X") + "QKV")
        thirds = zip("QKV", (equations.W_Q, equations.W_K, equations.W_V), strict=True)
        by_Q, by_K, by_V = (
            affine_x(
                self.run.look(f"{head}W_{name}"),
                equations.columns_of_head(third(d_QKV), node.number, self.run.look(node.n_head)),
            )
            for name, third in thirds
        )
        d_X: Array = by_Q + (by_K + by_V)
        return d_X

    def _through_columns(self, target: Target) -> Array:
        """Of `final`, where all comes back by way of one or two columns of W_U."""
        d_final: Array = np.zeros_like(self.run.look("final"))
        d_final[target.position] = target.difference(self.run.look("W_U"))
        return d_final

    def _from_target(self) -> Array:
        """The gradient of what it is the gradient of, with respect to logits."""
        logits: Array = self.run._for_another("logits")
        d_logits = np.zeros_like(logits)
        if self.target is None:
            ids = self.run.look("ids")
            _, d_logits[:-1] = cross_entropy(logits[:-1], ids[1:])
            return d_logits
        d_logits[self.target.position, self.target.token.id] = 1
        if self.target.against is not None:
            d_logits[self.target.position, self.target.against.id] = -1
        return d_logits


class Gradients(ForwardPass):
    """Gradients under the names that the steps have in a trace, as `Trace.gradients` returns them.

    Each has the step's own shape: `attnlab.at(gradients, "blocks.0.attention.weights")`. It says by
    how much the target changes for a small change of that step, and of nothing before it: that of
    `blocks.1.attention.residual` is what comes back through attention alone, that of
    `blocks.1.input` all of it. A head's X is what that head has of it; W_E adds up both its uses.
    What has no gradient is seen as it is: ids, positions, the mask, and single numbers.

    Of an edited trace they are at the edited numbers. What took a step's place is held, whatever
    comes before it: nothing comes back past it.

    Parameters
    ----------
    trace : it may be edited
    target : whose gradient it is; None for the loss

    Raises
    ------
    InvalidValueError
        The trace has one token, and so no loss. When a gradient is read: it would have to come back
        past an edit that is a function, or past one of what a single head has.
    """

    hint: ClassVar[str] = (
        "A gradient can't tell what a large change does: a saturated softmax has none, whatever it "
        "carries.\nSource: the chain rule, equation by equation, in attnlab.gradients"
    )

    next_logits = Step[Array]("vocab", "the last row of logits")

    def __init__(self, trace: Trace, target: Target | None) -> None:
        if target is None and len(trace.tokens) < 2:
            raise InvalidValueError("the loss is of tokens that follow another; got one token")
        run = GradientRun(trace._run, target)
        self._stand(trace._title, run, "")
        vars(self).update(parameters=trace.parameters, config=trace.config)


def no_way_back(edited: str) -> str:
    """Why no gradient is known of what comes before an edit."""
    if ".heads." in edited and edited.rpartition(".")[2] in OWN:
        why = "it is the head's own, and no step that the layer computes with: edit Q, K, V, scores"
        return f"no gradient comes back past the edit of {edited}: {why} or context of the head"
    return (
        f"no gradient comes back past the edit of {edited}: a function may do anything there. Edit "
        "by the array that it makes, which is held: what it was made of then has no share in it"
    )


def consumers(graph: Graph, path: str) -> Iterator[tuple[str, str]]:
    """The steps whose equations need a step, and the name that it has there."""
    place, _, _ = path.rpartition(".")
    for consumer in nearby(graph, place):
        node = graph[consumer]
        if node.step.equation is None or path not in node.needs:
            continue
        if len(wholes(graph, consumer)) > 1 or consumer.endswith("memory"):
            continue  # a part, or a second name
        names = inspect.signature(node.step.equation).parameters
        for name, need in zip(names, node.needs, strict=True):
            if need == path and node.step.equation in GRADIENTS:
                yield consumer, name


def nearby(graph: Graph, place: str) -> Iterator[str]:
    """The steps that may need one at a place: those beside it, around it, and of the next block."""
    places = ["", "blocks.0"]
    if place:
        _, layer, *_ = place.split(".")
        block = f"blocks.{layer}"
        places = ["", block, f"{block}.attention", f"{block}.mlp", f"blocks.{int(layer) + 1}"]
    for somewhere in places:
        parts = somewhere.split(".") if somewhere else []
        if len(parts) > 1 and int(parts[1]) == graph.n_layer:
            continue
        for name in graph.kind_at(parts).steps:
            yield f"{somewhere}.{name}" if somewhere else name
