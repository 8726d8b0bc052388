"""Results made of named steps, each computed on first access, then kept.

Read `declaration` first (a step's axes, formula and equation), then `graph` (the steps it needs, by
path, such as `blocks.3.attention.weights`), `run` (the arrays computed so far, and how to compute
the others) and `result` (what users access: `trace.blocks[3].attention` is a view of the steps of a
run below a path). `paths` takes paths apart, `labels` names the indices of a step's axes. A part
has no reference to the result that contains it, so memory is freed as soon as it is unused.
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
