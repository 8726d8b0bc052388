"""The dependency graph of a result class: steps by path, each with its needs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from attnlab.steps.declaration import Need, Step, parameters_of

# (name of a step, formula in words) pairs.
Formulas = tuple[tuple[str, str], ...]


class Node(NamedTuple):
    """A step in a graph, with paths from the root.

    Attributes
    ----------
    needs : the paths of the equation's parameters
    fast_needs : for the fast equation: parameter, path, whether to pass it only if computed
    layer_step : for a head's step, the path of the layer's step; else ""
    number : the number of the block or head that the step belongs to; n_layer outside of them
    n_head : for a head's step, the path of the number of heads; else ""
    """

    step: Any  # a Step; with that annotation, type checkers would apply its __get__
    needs: tuple[str, ...]
    fast_needs: tuple[tuple[str, str, bool], ...]
    layer_step: str
    number: int
    n_head: str


class Graph(dict[str, Node]):
    """The steps of a result class by path; nodes are created on first access.

    Parameters
    ----------
    root : the class of the outermost result
    n_layer : the number of blocks
    formulas : for steps that differ from GPT-2's
    learned : paths of steps that are parameters in this model and computed in others
    """

    def __init__(
        self, root: type[Any], n_layer: int, formulas: Formulas = (), learned: tuple[str, ...] = ()
    ) -> None:
        super().__init__()
        self.root, self.n_layer = root, n_layer
        self.formulas, self.learned = dict(formulas), learned

    def __reduce__(self) -> tuple[Any, ...]:
        return graph_of, self._arguments

    @property
    def _arguments(self) -> tuple[Any, ...]:
        return self.root, self.n_layer, tuple(self.formulas.items()), self.learned

    def __missing__(self, path: str) -> Node:
        *prefix, name = path.split(".")
        step = self.class_at(prefix).steps[name]
        if path in self.learned:
            step = step.as_parameter()
        number = int(prefix[-1]) if prefix and prefix[-1].isdigit() else self.n_layer

        def absolute(need: Need) -> str:
            """The path from the root of a need, which is relative to the step's result."""
            first, *rest = (need if isinstance(need, str) else need(number)).split(".")
            if first == "root":
                return ".".join(rest)
            result = prefix
            while first == "parent":  # blocks.3 for blocks.3.mlp, the root for blocks.3
                result = result[: -2 if result[-1].isdigit() else -1]
                first, *rest = rest
            return ".".join((*result, first, *rest))

        self[path] = node = Node(
            step,
            needs=tuple(map(absolute, step.needs)),
            fast_needs=tuple(
                (name, absolute(step.inputs.get(name, name)), param.default is not param.empty)
                for name, param in parameters_of(step.fast).items()
            ),
            layer_step=absolute(f"parent.{name}") if step.select else "",
            number=number,
            n_head=absolute("parent.n_head") if step.select else "",
        )
        return node

    def with_nodes(self, nodes: Mapping[str, Node]) -> Graph:
        """A copy of the graph with some nodes replaced."""
        graph = Graph(*self._arguments)
        graph.update({**self, **nodes})
        return graph

    def class_at(self, prefix: Iterable[str]) -> type[Any]:
        """The class of the result at a path, such as blocks, 3, attention."""
        result_class = self.root
        for name in prefix:
            if not name.isdigit():
                result_class = result_class._children[name]
        return result_class


def as_data(graph: Graph) -> dict[str, list[str]]:
    """How each step is computed, by path, for running the graph outside Python.

    Each list has the step's equation, the function that selects it from the layer's step (or ""),
    and the paths of the steps that the equation needs. Inputs and parameters are left out. `#` is a
    block's number, `#-1` the previous block's, `@` a head's; a path that starts with a dot is in
    the same part.

        "blocks.#.attention.scores": ["scores", "", ".raw_scores", ".scale"]
        "blocks.#.attention.heads.@.scale": ["", "shared"]
    """
    paths = [path for path, _ in steps_below(graph.root, number="1")]
    data = {_pattern(path, 1): _node_as_data(graph, path) for path in paths}
    for path in paths:  # the first block's input is the embedding
        in_first_block = path.replace("blocks.1.", "blocks.0.")
        if (node := _node_as_data(graph, in_first_block)) != data[_pattern(path, 1)]:
            data[in_first_block] = node
    return {path: node for path, node in data.items() if node}


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
    if step.is_input:
        return []
    select = step.select.__name__ if step.select else ""
    if step.equation is None or step.always_select:
        return ["", select]
    if not prefix:
        return [step.equation.__name__, select, *node.needs]
    layer = int(path.split(".")[1])
    needs = (
        need.removeprefix(prefix) if need.rpartition(".")[0] == prefix else _pattern(need, layer)
        for need in node.needs
    )
    return [step.equation.__name__, select, *needs]


def _pattern(path: str, layer: int) -> str:
    """A path with placeholders for block and head numbers, relative to a block."""
    for number, placeholder in (
        (f"blocks.{layer}.", "blocks.#."),
        (f"blocks.{layer - 1}.", "blocks.#-1."),
    ):
        path = path.replace(number, placeholder)
    return path.replace(".heads.1.", ".heads.@.")


GRAPHS: dict[tuple[Any, ...], Graph] = {}


def graph_of(
    root: type[Any], n_layer: int = 0, formulas: Formulas = (), learned: tuple[str, ...] = ()
) -> Graph:
    """The graph of a result class, created once."""
    key = root, n_layer, formulas, learned
    return GRAPHS.setdefault(key, Graph(*key))
