"""The dependency graph of a result class: steps by path, each with the paths that it needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from attnlab import equations
from attnlab.steps.declaration import Need, Step, parameters_of

# Pairs of the name of a step and its formula in words.
Formulas = tuple[tuple[str, str], ...]


class Node(NamedTuple):
    """A step in a graph, with paths from the root."""

    step: Any  # a Step; with that annotation, type checkers would apply its __get__
    needs: tuple[str, ...]  # the paths of the equation's inputs
    # The fast equation's inputs: parameter, path, whether it is passed only if already computed
    fast_needs: tuple[tuple[str, str, bool], ...]
    layer_step: str  # if this is a head's part of a layer's step, the path of that step; else ""
    number: int  # the number of the step's block or head; n_layer if it is in neither
    n_head: str  # for a head's part, the path of the step n_head, the number of heads; else ""
    # Takes a head's part from the layer's array, given the head's number and the number of heads
    select: Callable[..., Any] | None = None
    always_select: bool = False  # whether a head's step is never computed for the head alone

    def part_of(self, layer_value: Any, n_head: int) -> Any:
        """The head's part of the layer's array."""
        assert self.select is not None
        return self.select(layer_value, self.number, n_head)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The paths of the steps that this step is computed from or cut from."""
        return (*self.needs, self.layer_step) if self.layer_step else self.needs

    @property
    def is_input(self) -> bool:
        """Whether the step is an input or a model parameter, rather than computed."""
        # A head's W_Q has no equation either, but it is cut from the layer's W_Q.
        return self.step.equation is None and self.select is None and not self.step.optional


class Graph(dict[str, Node]):
    """The nodes of all steps of a result class and its parts, by path, created on first access.

    `formulas` are the formulas that differ from GPT-2's. `given` are the paths of steps that are
    parameters or inputs in this graph, but computed or left out in other graphs.
    """

    def __init__(
        self, root: type[Any], n_layer: int, formulas: Formulas = (), given: tuple[str, ...] = ()
    ) -> None:
        super().__init__()
        self.root, self.n_layer = root, n_layer
        self.formulas, self.given = dict(formulas), given

    def __reduce__(self) -> tuple[Any, ...]:
        # A pickle leaves out the nodes, since lambdas in declarations can't be pickled.
        return graph_of, self._arguments

    @property
    def _arguments(self) -> tuple[Any, ...]:
        return self.root, self.n_layer, tuple(self.formulas.items()), self.given

    # Python calls this for a missing key. Nodes are created here, since most are never needed.
    def __missing__(self, path: str) -> Node:
        # For blocks.3.attention.scores, the class is BlockAttention, whatever the layer.
        *prefix, name = path.split(".")
        result_class = self.class_at(prefix)
        step = result_class.steps[name]
        if path in self.given:  # such as W_U, in a model that doesn't tie it to W_E
            step = step.as_input()
        # The number of the head or the block. Outside of blocks it is n_layer, because `final`
        # needs the output of block n_layer - 1.
        number = int(prefix[-1]) if prefix and prefix[-1].isdigit() else self.n_layer

        def absolute(need: Need) -> str:
            """Convert a need, which is relative to the step's result, to a path from the root."""
            first, *rest = (need if isinstance(need, str) else need(number)).split(".")
            if first == "root":
                return ".".join(rest)
            result = prefix
            while first == "parent":  # blocks.3.mlp -> blocks.3, and blocks.3 -> the root
                result = result[: -2 if result[-1].isdigit() else -1]
                first, *rest = rest
            return ".".join((*result, first, *rest))

        select, always_select = None, False
        if name in result_class._parts_of_layer:
            layer_step = self.class_at(prefix[:-2]).steps[name]  # without "heads" and the number
            select = select_head(layer_step.axes)
            # If layer and head share an equation, such as softmax, both give the same numbers.
            # A head's Q would be rounded differently: the layer computes Q, K and V as one product.
            # A step without axes, such as the scale, is one number of the layer.
            is_shared = step.equation is not None and step.equation is layer_step.equation
            always_select = not is_shared or not step.axes

        self[path] = node = Node(
            step,
            needs=tuple(map(absolute, step.needs)),
            fast_needs=tuple(
                (name, absolute(step.inputs.get(name, name)), param.default is not param.empty)
                for name, param in parameters_of(step.fast).items()
            ),
            layer_step=absolute(f"parent.{name}") if select else "",  # blocks.3.attention.Q
            number=number,
            n_head=absolute("parent.n_head") if select else "",
            select=select,
            always_select=always_select,
        )
        return node

    def with_nodes(self, nodes: Mapping[str, Node]) -> Graph:
        """A copy of the graph with some nodes replaced."""
        # A new graph, since all runs share the graphs of `graph_of`.
        graph = Graph(*self._arguments)
        graph.update({**self, **nodes})
        return graph

    def class_at(self, prefix: Iterable[str]) -> type[Any]:
        """The class of the result at a path, such as blocks, 3, attention."""
        result_class = self.root
        for name in prefix:
            if not name.isdigit():  # all blocks have one class, and all heads have one
                result_class = result_class._children[name]
        return result_class


def select_head(axes: str) -> Callable[..., Any]:
    """Return the function that takes a head's part of a layer's step with these axes."""
    match axes.split():
        case [*_, last] if last.startswith("H·"):
            return equations.columns_of_head  # W_Q (D, H·Dk), b_Q (H·Dk,)
        case [first, _] if first.startswith("H·"):
            return equations.rows_of_head  # W_O (H·Dv, D)
        case ["H", *_] | ["Tq", "Tk"]:  # the second is a mask that all heads share
            return equations.head_slice  # Q (H, Tq, Dk), weights (H, Tq, Tk)
    return equations.shared  # X (Tq, D), scale


def as_data(graph: Graph) -> dict[str, list[str]]:
    """How each step is computed, by path, as data that the page's scripts can run.

    Each list has the step's equation, the function that selects it from the layer's step (or ""),
    and the paths of the steps that the equation needs. Inputs and parameters are left out. `#` is a
    block's number, `#-1` the number of the block before, and `@` a head's number. A path that
    starts with a dot is in the same part as the step.

        "blocks.#.attention.scores": ["scores", "", ".raw_scores", ".scale"]
        "blocks.#.attention.heads.@.scale": ["", "shared"]
    """
    # Block 1 and head 1 stand for all blocks and heads, except for steps that differ in block 0.
    paths = [path for path, _ in steps_below(graph.root, number="1")]
    data = {_pattern(path, 1): _node_as_data(graph, path) for path in paths}
    for path in paths:  # block 0's input is the embedding, not another block's output
        in_first_block = path.replace("blocks.1.", "blocks.0.")
        if (node := _node_as_data(graph, in_first_block)) != data[_pattern(path, 1)]:
            data[in_first_block] = node
    return {path: node for path, node in data.items() if node}  # inputs are []


def steps_below(result_class: type[Any], number: str = "#") -> Iterator[tuple[str, Step[Any]]]:
    """All steps of a class of results and its parts, by path; each block or head has `number`."""
    yield from result_class.steps.items()
    for name, part in result_class._children.items():
        prefix = f"{name}.{number}" if name in ("blocks", "heads") else name
        for path, step in steps_below(part, number):
            yield f"{prefix}.{path}", step


def _node_as_data(graph: Graph, path: str) -> list[str]:
    node = graph[path]
    step, prefix = node.step, path.rpartition(".")[0]
    if node.is_input:
        return []
    select = node.select.__name__ if node.select else ""
    if step.equation is None or node.always_select:
        return ["", select]  # it is taken from the layer's step, or optional
    if not prefix:
        # A step outside of blocks has no placeholders.
        return [step.equation.__name__, select, *node.needs]
    layer = int(path.split(".")[1])
    needs = (
        need.removeprefix(prefix) if need.rpartition(".")[0] == prefix else _pattern(need, layer)
        for need in node.needs
    )
    return [step.equation.__name__, select, *needs]


def _pattern(path: str, layer: int) -> str:
    """Replace the numbers of block `layer`, of the block before and of head 1 by placeholders."""
    for number, placeholder in (
        (f"blocks.{layer}.", "blocks.#."),
        (f"blocks.{layer - 1}.", "blocks.#-1."),
    ):
        path = path.replace(number, placeholder)
    return path.replace(".heads.1.", ".heads.@.")


# All models of one architecture share a graph, whose nodes have no arrays.
GRAPHS: dict[tuple[Any, ...], Graph] = {}


def graph_of(
    root: type[Any], n_layer: int = 0, formulas: Formulas = (), given: tuple[str, ...] = ()
) -> Graph:
    """The graph of a result class, created once."""
    key = root, n_layer, formulas, given
    # setdefault is atomic, so that two threads get the same graph.
    return GRAPHS.setdefault(key, Graph(*key))
