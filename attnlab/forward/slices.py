"""Runs that take steps from another run: one text of several, and later rows of a text.

A run of several texts of one length computes each product once for all texts. A run of later rows
computes only the rows from one position on: in a causal model, a change at a position changes
nothing before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from attnlab.equations import AnyArray, identity
from attnlab.forward import fast
from attnlab.steps import Node, Run


def one_of_many(run: Run, source: Run, number: int) -> Run:
    """The run of one text, which takes steps from `source`, a run of several texts side by side.

    `run` has the inputs of the text, such as its ids; `number` is its index on the leading axis.
    """

    # Heads' steps and transient steps are computed for this text: given other steps, it is cheap.
    def part_of_source(_: Run, path: str, node: Node) -> Any:
        return source.value(path)[number] if is_kept(node) else None  # a view, not a copy

    return run.fork(elsewhere=part_of_source)


def later_rows(source: Run, start: int) -> Run:
    """A run that computes only the rows from one position on, and has all keys and values."""

    def rows_of_source(_: Run, path: str, node: Node) -> Any:
        step = node.step
        # Edited parameters, optional steps and aliases are only in the source.
        if is_kept(node) or node.is_input or step.optional or step.equation is identity:
            return rows_from(start, node, source.value(path))
        return None

    # Later queries also attend to earlier keys, whose rows this run lacks. As in generation, a
    # cache has the earlier keys and values.
    caches = {
        f"blocks.{layer}.attention.{name}_cache": EarlierRows(
            source, f"blocks.{layer}.attention.{name}", source.tokens_before + start
        )
        for layer in range(source.graph.n_layer)
        for name in "KV"
    }
    return Run.like(source, values=caches, elsewhere=rows_of_source)


def rows_from(start: int, node: Node, value: Any) -> Any:
    """Cut a step's rows from one position on. A step without a row for each token is kept whole."""
    axes: list[str] = node.step.axes.split()
    if value is None:  # an input that was left out
        return None
    # The last two axes. A vector or a number has fewer axes, so two empty names come first.
    *_, rows, columns = ["", "", *axes]
    if columns == "T":  # ids and positions
        return value[..., start:]
    return value[..., start:, :] if rows in ("T", "Tq") else value


class EarlierRows:
    """The keys or values of earlier positions, as the cache of a run of later rows."""

    def __init__(self, run: Run, path: str, count: int) -> None:
        self._run, self._path, self._count = run, path, count

    def extend(self, new: AnyArray) -> AnyArray:
        """Append new rows (..., T, Dh) and return all, (..., count + T, Dh)."""
        rows = self._run.value(self._path)[..., : self._count, :]  # (..., count, Dh)
        shape = (*new.shape[:-2], *rows.shape[-2:])  # all runs share the earlier rows
        return np.concatenate([np.broadcast_to(rows, shape), new], axis=-2)


def is_kept(node: Node) -> bool:
    """Whether a step has a row for each token, and is kept once computed."""
    has_rows = node.step.has_rows_for_tokens
    # Transient steps are freed: to take one would compute the source's whole array again.
    return has_rows and not node.step.transient and not is_input_or_head(node)


def is_input_or_head(node: Node) -> bool:
    """Whether a step is an input, an alias of another step, or one head's step."""
    return node.step.equation in (None, identity) or node.select is not None


def with_steps(run: Run, values: Mapping[str, AnyArray], start: int) -> Run:
    """A run in which some steps have other values, without the rows before `start`.

    Rows before `start` must not change. `values` has arrays (..., T, n) with all rows, by path of
    whole steps, not of a head's parts, see `changed_steps`. Leading axes are for several runs.
    """
    # The changed run has a base of later rows, so that both share the rows that don't change.
    later = later_rows(run, start)
    changed = Run.changing(later, values)
    for path, value in values.items():
        changed.keep(path, rows_from(start, run.graph[path], value))
        rows = value.size // value.shape[-1]  # the number of rows of all runs together
        changed.is_long = rows > fast.SHORT
    return changed


def final_row(run: Run) -> AnyArray:
    """The last row of `final`, (..., D), computed block by block; earlier blocks are freed.

    In the last block, only keys and values are computed for all rows.
    """
    last = run.graph.n_layer - 1
    for layer in range(last):
        run._stored(f"blocks.{layer}.output")  # later blocks need only this step
        # A list, since the loop removes steps from `values`.
        for path in [path for path in run.values if path.startswith(f"blocks.{layer}.")]:
            if path != f"blocks.{layer}.output":
                del run.values[path]
    # In the last block, the last row needs all keys and values, but only its own query.
    query = f"blocks.{last}.attention.Q"
    if run.depends(query):
        run = with_steps(run, {query: run.value(query)}, run.value("positions").size - 1)
    return run.value("final")[..., -1, :]
