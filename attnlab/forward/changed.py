"""A run in which some steps are computed otherwise: the one way to change a run.

    ids ─> ... ─> Q ─> scores ─> weights ─> ...     the base: keeps what it has computed
                        scores' ─> weights' ─> ...  the changed run: only what depends on the change

Edits (`edits`), the later rows of a text (`slices`) and other equations (`attnlab.checking`) are
changed runs. They differ in what they change: a step's value after its equation, the step's whole
value, or its equation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from attnlab.steps import Graph, Node, Run, read_only


class ChangedRun(Run):
    """A run that shares all steps with another one, except some and what depends on them.

    The base may itself be a changed run. The graph's nodes may differ from the base's; `changed`
    are the paths of the steps that are computed otherwise, in an `EditedRun` also by earlier edits.
    """

    def __init__(self, base: Run, graph: Graph, changed: Iterable[str]) -> None:
        vars(self).update(vars(base))  # tokens, note, ...
        # Its values are only what the change affects; everything else is in the base.
        self.base, self.graph, self.values, self._ready = base, graph, {}, {}
        self._depends = dict.fromkeys(changed, True)
        self.changed = set(self._depends)

    def fork(self) -> Run:
        fork = super().fork()
        assert isinstance(fork, ChangedRun)
        fork.base = self.base.fork()  # else the base would keep what the fork computes
        return fork

    def depends(self, path: str) -> bool:
        """Whether a step is changed, or computed from a step that is."""
        if path not in self._depends:
            node = self.graph[path]
            if node.step.after_blocks:  # in order, to limit recursion
                for layer in range(node.number):
                    self.depends(f"blocks.{layer}.output")
            self._depends[path] = any(map(self.depends, inputs_of(node)))
        return self._depends[path]

    def owner(self, path: str) -> Run:
        """The run that computes a step: the earliest one with the same result."""
        run: Run = self
        while isinstance(run, ChangedRun) and not run.depends(path):
            run = run.base
        return run

    # Run's methods on the owner, since a ChangedRun's would search for the owner again.

    def is_stored(self, path: str) -> bool:
        return Run.is_stored(self.owner(path), path)

    def value(self, path: str) -> Any:
        return Run.value(self.owner(path), path)

    def _input(self, path: str) -> Any:
        return Run._input(self.owner(path), path)

    def _store(self, path: str) -> Any:
        owner = self.owner(path)
        if owner is not self:
            return owner._stored_value(path)  # computed once, for both runs
        # Run doesn't keep parameters, which the model keeps; but a changed one is no longer there.
        return self.values.setdefault(path, read_only(super()._store(path)))

    # Shortcuts past a changed step would lose the change.

    def _selects_from_layer(self, node: Node) -> bool:
        return super()._selects_from_layer(node) or node.layer_step in self.changed

    def _is_fast(self, path: str) -> bool:
        # If scores are edited, fast weights, computed from Q and K, would ignore the edit.
        return super()._is_fast(path) and not any(
            step in self.changed or self.graph[step].layer_step in self.changed
            for step in self._skipped_steps(path)
        )

    def _skipped_steps(self, path: str) -> Iterator[str]:
        """The steps that the fast equation of a step skips."""
        node = self.graph[path]
        needs = {need for _, need, is_optional in node.fast_needs if not is_optional}
        # Walk back from the equation's needs to those of the fast equation.
        queue = [*node.needs]
        while queue:
            step = queue.pop()
            if step not in needs:
                yield step
                queue += self.graph[step].needs


def inputs_of(node: Node) -> tuple[str, ...]:
    """The paths of the steps that a step is computed from."""
    return (*node.needs, node.layer_step) if node.layer_step else node.needs
