"""Every step of a kind of result, found by its path, with the paths of the steps that it needs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from attnlab.steps.declaration import Need, parameters_of

# Formulas in words, by the names of their steps.
Formulas = tuple[tuple[str, str], ...]


class Node(NamedTuple):
    """A step at its place in a graph, with paths from the root.

    Attributes
    ----------
    needs : of the equation's parameters
    fast_needs : name, path, and whether it is used only where it is there, of the fast form's
    whole, number, n_head : of a part of a whole: the path of the whole's step, which part it is,
        and the path of how many there are
    """

    step: Any  # a Step, which as such would be looked up in the node
    needs: tuple[str, ...]
    fast_needs: tuple[tuple[str, str, bool], ...]
    whole: str
    number: int
    n_head: str


class Graph(dict[str, Node]):
    """Every step of a kind of result by its path; a node is made when it is first asked for.

    Parameters
    ----------
    root : the kind of the result that is part of no other
    n_layer : how many blocks it has
    formulas : of steps that are made in another way than GPT-2 makes them, by name
    own : paths of steps that others compute, and of which this model has a parameter of its own
    """

    def __init__(
        self, root: type[Any], n_layer: int, formulas: Formulas = (), own: tuple[str, ...] = ()
    ) -> None:
        super().__init__()
        self.root, self.n_layer = root, n_layer
        self.formulas, self.own = dict(formulas), own

    def __reduce__(self) -> tuple[Any, ...]:
        return graph_of, (self.root, self.n_layer, tuple(self.formulas.items()), self.own)

    def __missing__(self, path: str) -> Node:
        *place, name = path.split(".")
        step = self.kind_at(place).steps[name]
        if path in self.own:
            step = step.as_parameter()
        number = int(place[-1]) if place and place[-1].isdigit() else self.n_layer

        def absolute(need: Need) -> str:
            first, *rest = (need if isinstance(need, str) else need(number)).split(".")
            if first == "root":
                return ".".join(rest)
            above = place
            while first == "parent":
                above = above[: -2 if above[-1].isdigit() else -1]
                first, *rest = rest
            return ".".join((*above, first, *rest))

        self[path] = node = Node(
            step,
            tuple(map(absolute, step.needs)),
            tuple(
                (name, absolute(step.where.get(name, name)), it.default is not it.empty)
                for name, it in parameters_of(step.fast).items()
            ),
            absolute(f"parent.{name}") if step.of_whole else "",
            number,
            absolute("parent.n_head") if step.of_whole else "",
        )
        return node

    def with_others(self, nodes: Mapping[str, Node]) -> Graph:
        """A graph of its own, in which some nodes are others."""
        graph = Graph(self.root, self.n_layer, tuple(self.formulas.items()), self.own)
        graph.update({**self, **nodes})
        return graph

    def kind_at(self, place: Iterable[str]) -> type[Any]:
        """The kind of the result at a place, such as blocks, 3, attention."""
        kind = self.root
        for name in place:
            if not name.isdigit():
                kind = kind.children[name]
        return kind


def as_data(graph: Graph) -> dict[str, list[str]]:
    """What each step is computed from, by path, for a run outside of Python.

    A list names the step's equation, the equation that takes it out of the whole's step ("" where
    there is none), and the steps that its equation needs. Steps that are given are left out. `#` is
    a block's number, `#-1` the one before, `@` a head's; what begins with a point is of the same
    part.

        "blocks.#.attention.scores": ["scores", "", ".raw_scores", ".scale"]
        "blocks.#.attention.heads.@.scale": ["", "all_of_it"]
    """
    data = {_form(path, 1): _node_as_data(graph, path) for path in _paths(graph.root)}
    for path in _paths(graph.root):  # the first block is made of what no other block is made of
        first = path.replace("blocks.1.", "blocks.0.")
        if _node_as_data(graph, first) != data[_form(path, 1)]:
            data[first] = _node_as_data(graph, first)
    return {path: node for path, node in data.items() if node}


def _paths(kind: type[Any], place: str = "") -> Iterator[str]:
    """The paths of all steps, of several parts those of number 1."""
    yield from (f"{place}{name}" for name in kind.steps)
    for name, part in kind.children.items():
        number = "1." if name in ("blocks", "heads") else ""
        yield from _paths(part, f"{place}{name}.{number}")


def _node_as_data(graph: Graph, path: str) -> list[str]:
    node = graph[path]
    step, place = node.step, path.rpartition(".")[0]
    if step.is_given:
        return []
    take = step.of_whole.__name__ if step.of_whole else ""
    if step.equation is None or step.always_of_whole:
        return ["", take]
    if not place:
        return [step.equation.__name__, take, *node.needs]
    layer = int(path.split(".")[1])
    needs = (
        need.removeprefix(place) if need.rpartition(".")[0] == place else _form(need, layer)
        for need in node.needs
    )
    return [step.equation.__name__, take, *needs]


def _form(path: str, layer: int) -> str:
    """A path as all blocks and heads have it, seen from one of the blocks."""
    for number, form in (
        (f"blocks.{layer}.", "blocks.#."),
        (f"blocks.{layer - 1}.", "blocks.#-1."),
    ):
        path = path.replace(number, form)
    return path.replace(".heads.1.", ".heads.@.")


GRAPHS: dict[tuple[Any, ...], Graph] = {}


def graph_of(
    root: type[Any], n_layer: int = 0, formulas: Formulas = (), own: tuple[str, ...] = ()
) -> Graph:
    """The graph of a kind of result, one for all of them."""
    key = root, n_layer, formulas, own
    return GRAPHS.setdefault(key, Graph(*key))
