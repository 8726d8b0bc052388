"""Runs that take steps from another run: one text of several, or the later rows of a text.

A run of several texts of one length computes each product once for all of them. A run of later rows
computes only the rows from one position on: in a causal model, a change at a position changes
nothing before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from attnlab.equations import AnyArray, identity
from attnlab.forward import fast
from attnlab.forward.changed import ChangedRun
from attnlab.steps import Node, Run


class SliceRun(Run):
    """A run whose large steps are slices of another run's steps, which that run computes and keeps.

    Transient steps, steps of heads and parameters are computed as in any run. `run` has the inputs
    of the slice, such as its ids; slices are taken from `source`.
    """

    def __init__(self, run: Run, source: Run) -> None:
        vars(self).update(vars(run))  # graph, tokens, note, ...
        self.values, self._ready, self.source = dict(run.values), {}, source

    def slice_of(self, path: str, value: Any) -> Any:
        raise NotImplementedError

    def _evaluate(self, path: str, node: Node) -> Any:
        if not is_kept(node):
            return super()._evaluate(path, node)
        return self.slice_of(path, self.source.value(path))

    def _selects_from_layer(self, node: Node) -> bool:
        return True  # even in long texts, where other runs compute single heads


class TextRun(SliceRun):
    """The run of one of several texts side by side, number `number` on `source`'s leading axis."""

    def __init__(self, run: Run, source: Run, number: int) -> None:
        super().__init__(run, source)
        self.number = number

    def slice_of(self, path: str, value: Any) -> Any:
        return value[self.number]

    def __reduce__(self) -> tuple[Any, ...]:  # without the other texts
        state = super().__getstate__()
        del state["source"], state["number"], state["_ready"]
        # A plain Run: slices so far are in its values, and it computes the others by itself.
        return partial(Run, **state), ()


class LaterRows(SliceRun):
    """The rows of a run without cached tokens from one position on, with all keys and values."""

    def __init__(self, source: Run, start: int) -> None:
        super().__init__(source, source)
        self.start = start
        # Later queries attend to earlier keys, which are the source's: as in generation.
        self.values = {
            f"blocks.{layer}.attention.{name}_cache": EarlierRows(
                source, f"blocks.{layer}.attention.{name}", start
            )
            for layer in range(source.graph.n_layer)
            for name in "KV"
        }

    def _evaluate(self, path: str, node: Node) -> Any:
        step = node.step
        # Only the source has optional steps and edits of aliases.
        if node.is_input or step.optional or step.equation is identity:
            value = self.source.value(path)
            return None if value is None else self.slice_of(path, value)  # None: an input left out
        return super()._evaluate(path, node)

    def slice_of(self, path: str, value: Any) -> Any:
        axes: list[str] = self.graph[path].step.axes.split()
        # The last two axes; "" for those that a vector or a number doesn't have.
        *_, rows, columns = ["", "", *axes]
        if columns == "T":  # ids and positions
            return value[..., self.start :]
        return value[..., self.start :, :] if rows in ("T", "Tq") else value


class EarlierRows:
    """The keys or values of earlier positions, as the cache of a run of later rows."""

    def __init__(self, run: Run, path: str, count: int) -> None:
        self._run, self._path, self._count = run, path, count

    def extend(self, new: AnyArray) -> AnyArray:
        """Append new rows (..., T, Dh) and return all, (..., count + T, Dh)."""
        rows = self._run.value(self._path)[..., : self._count, :]
        shape = (*new.shape[:-2], *rows.shape[-2:])  # all runs share the earlier rows
        return np.concatenate([np.broadcast_to(rows, shape), new], axis=-2)


def is_kept(node: Node) -> bool:
    """Whether a step has a row for each token, and is kept once computed."""
    step = node.step
    return (
        step.equation not in (None, identity)
        and step.has_rows_for_tokens
        and node.select is None
        and not step.transient
    )


def with_steps(run: Run, values: Mapping[str, AnyArray], start: int) -> ChangedRun:
    """A run of the rows from `start` on, the first that changes, in which steps have other values.

    The paths are those of whole steps, not of a head's parts of them, see `changed_steps`. The
    values (..., T, n) have all rows; leading axes are for several runs.
    """
    later = LaterRows(run, start)
    changed = ChangedRun(later, later.graph, values)
    for path, value in values.items():
        changed.keep(path, later.slice_of(path, value))  # given, so its equation never runs
        rows = value.size // value.shape[-1]  # of all runs
        changed.is_long = rows > fast.SHORT
    return changed


def final_row(run: ChangedRun) -> AnyArray:
    """The last row of `final`, (..., D), computed block by block; earlier blocks are freed.

    In the last block, only keys and values are computed for all rows.
    """
    last = run.graph.n_layer - 1
    for layer in range(last):
        # All that later blocks need of this one.
        run._stored_value(f"blocks.{layer}.output")
        for path in [path for path in run.values if path.startswith(f"blocks.{layer}.")]:
            if path != f"blocks.{layer}.output":
                del run.values[path]
    # Only the last row of the last block is wanted. Its query needs all keys and values, but no
    # other query.
    query = f"blocks.{last}.attention.Q"
    if run.depends(query):
        run = with_steps(run, {query: run.value(query)}, run.value("positions").size - 1)
    return run.value("final")[..., -1, :]
