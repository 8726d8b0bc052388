"""Results made of named steps, each computed on first access, then kept.

Read `declaration` first: it has a step's axes, formula and equation. `graph` finds the steps that
a step needs, by path, such as `blocks.3.attention.weights`. `run` computes and keeps their arrays.
`result` is what users access: `trace.blocks[3].attention` is a view of a run's steps below a path.
`paths` parses paths, and `labels` names the indices of a step's axes. A part of a result has no
reference to the whole result, so memory is freed as soon as it is unused.
"""

from attnlab.steps.declaration import Step
from attnlab.steps.graph import Formulas, Graph, Node, as_data, graph_of, steps_below
from attnlab.steps.result import Computation, ReadOnly, Result, at, describe, parts_of, step_at
from attnlab.steps.run import Run, is_finite, overflow_error
from attnlab.support.parts import Numbered, read_only

__all__ = [
    "Formulas",
    "Graph",
    "Computation",
    "Node",
    "Numbered",
    "ReadOnly",
    "Result",
    "Run",
    "Step",
    "as_data",
    "at",
    "describe",
    "graph_of",
    "is_finite",
    "overflow_error",
    "parts_of",
    "read_only",
    "step_at",
    "steps_below",
]
