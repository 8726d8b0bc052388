"""Results made of named steps: each computed on first look from those that it needs, then kept.

Read `declaration` first (what a step says of itself), then `graph` (which steps it needs, by path,
such as `blocks.3.attention.weights`), `run` (the arrays that are there so far, and how the others
are made) and `result` (what you look at: `trace.blocks[3].attention` knows its run and its own
path), with its `parts`. `completion` is what a notebook offers to type behind a result. No result
knows the one that it is part of, so that what nobody holds is freed at once.
"""

from attnlab.steps.declaration import Step
from attnlab.steps.graph import Formulas, Graph, Node, as_data, graph_of
from attnlab.steps.parts import Numbered, Part
from attnlab.steps.result import Made, Result, at, describe, needs, parts_of, step_at, view_of
from attnlab.steps.run import Run, is_finite, overflow, read_only

__all__ = [
    "Formulas",
    "Graph",
    "Made",
    "Node",
    "Numbered",
    "Part",
    "Result",
    "Run",
    "Step",
    "as_data",
    "at",
    "describe",
    "graph_of",
    "is_finite",
    "needs",
    "overflow",
    "parts_of",
    "read_only",
    "step_at",
    "view_of",
]
