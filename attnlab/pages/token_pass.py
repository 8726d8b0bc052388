"""The steps of one token through the model, as the page lists them, and their packs.

The page shows one token's row of each listed step. The page includes some of the rows, from which
it computes the other rows.

    "pass.9"         token 9's rows of the steps in `packed_paths`, concatenated
    "norms"          each LayerNorm's gain (D,), bias (D,) and epsilon, the final LayerNorm last
    "columns.blocks.0.mlp.W_1.3.5"    columns 3 and 4 of a parameter, each with its bias
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Any

import numpy as np

from attnlab.equations import AnyArray
from attnlab.model.trace import Trace
from attnlab.steps import at
from attnlab.views.purposes import purpose

# The listed steps, in order.
STEPS_BEFORE_BLOCKS = ("token_embedding", "position_embedding", "embedding")
STEPS_IN_BLOCK = (
    "input",
    "attention.X",
    "attention.Q",
    "attention.K",
    "attention.V",
    "attention.concat",
    "attention.output",
    "mid",
    "mlp.X",
    "mlp.hidden",
    "mlp.activated",
    "mlp.output",
    "output",
)
STEPS_AFTER_BLOCKS = ("final", "logits")

# The listed steps that the page can't compute from other steps, and the listed steps that other
# packs have.
INPUT_STEPS = (
    "token_embedding",
    "position_embedding",
    "attention.output",
    "mlp.hidden",
    "mlp.output",
)
IN_OTHER_PACKS = ("attention.Q", "attention.K", "attention.V", "logits")

# Steps that aren't listed, each by the listed step that is computed from it.
HIDDEN_STEPS = {"attention.X": "attention.residual"}

# The matrices of a block's linear maps.
MATRICES = (
    "attention.W_Q",
    "attention.W_K",
    "attention.W_V",
    "attention.W_O",
    "mlp.W_1",
    "mlp.W_2",
)

# The bytes of rows and columns in a file, 4 for each number. A file includes at least the last
# token's rows, and one column of each matrix of block 0.
BUDGET = 300_000

NEXT_TOKENS = 5  # most probable next tokens whose columns of W_U are included


def description(trace: Trace, has_model: bool = False) -> dict[str, Any]:
    """The description of a trace's listed steps, without packs.

    Only a file's description lists columns: a page with a model requests the columns it needs.
    """
    D, F, _ = _sizes(trace)
    listed = (*STEPS_BEFORE_BLOCKS, *STEPS_IN_BLOCK, *STEPS_AFTER_BLOCKS)
    declared = {name: _declared(trace, name) for name in listed}
    probabilities = {
        "axes": trace.axes_of("logits"),
        "formula": "softmax(logits)",
        "purpose": purpose("probabilities"),
    }
    return {
        "D": D,
        "F": F,
        "vocab": trace.config.vocab_size,
        "activation": trace.config.activation.name,
        "steps": {**declared, "probabilities": probabilities},
        "packed": packed_paths(trace),
        "edited": [path for path in listed_paths(trace) if _is_edited(trace, path)],
        "columns": [] if has_model else columns_of_file(trace),
    }


def listed_paths(trace: Trace) -> list[str]:
    """The paths of all listed steps, in order."""
    blocks = [
        f"blocks.{layer}.{name}" for layer in range(len(trace.blocks)) for name in STEPS_IN_BLOCK
    ]
    return [*STEPS_BEFORE_BLOCKS, *blocks, *STEPS_AFTER_BLOCKS]


def packed_paths(trace: Trace) -> list[str]:
    """The paths of the listed steps that are edited, or that the page can't compute."""
    return [
        path
        for path in listed_paths(trace)
        if _name_in_block(path) not in IN_OTHER_PACKS
        if _name_in_block(path) in INPUT_STEPS or _is_edited(trace, path)
    ]


def rows(trace: Trace, position: int) -> Iterable[AnyArray]:
    """The arrays of a token's pack "pass"."""
    for _, paths in groupby(packed_paths(trace), key=lambda path: path.split(".")[:2]):
        fork = trace._fork()  # a fork for each block, whose numbers are freed before the next block
        yield from [at(fork, path)[position] for path in paths]


def norms(trace: Trace) -> Iterable[AnyArray]:
    """The arrays of the pack "norms"."""
    sublayers = [sublayer for block in trace.blocks for sublayer in (block.attention, block.mlp)]
    for result in (*sublayers, trace):
        yield from (result.gain, result.bias, np.array([result.epsilon]))


def columns(trace: Trace, path: str, start: int, stop: int) -> Iterable[AnyArray]:
    """The arrays of a parameter's pack "columns"."""
    W = at(trace, path)
    owner, _, name = path.rpartition(".")
    # The bias of W_1 is b_1, and so on.
    bias = None if path == "W_U" else at(trace, f"{owner}.{name.replace('W', 'b')}")
    for column in range(start, stop):
        yield W[:, column]
        yield np.zeros(1) if bias is None else bias[column : column + 1]


def packs_of_pass(trace: Trace) -> list[str]:
    """The names of a file's packs for the listed steps.

    Half of the budget is for rows, of the last tokens; the other half is for columns.
    """
    T = len(trace.tokens)
    passes = [f"pass.{position}" for position in range(T - _count_of_positions(trace), T)]
    ranges = [f"columns.{path}.{start}.{stop}" for path, start, stop in columns_of_file(trace)]
    return ["norms", *passes, *ranges]


def columns_of_file(trace: Trace) -> list[tuple[str, int, int]]:
    """The columns of parameters that a file includes, as (path, start, stop).

    Each matrix has the same number of columns. If no columns fit, only block 0's matrices have one
    column each. The columns of W_U belong to the most probable next tokens.
    """
    D, F, L = _sizes(trace)
    # The gain and bias of 2 L + 1 LayerNorms, and the rows.
    other_floats = (4 * L + 2) * D + _count_of_positions(trace) * _floats_of_rows(trace)
    # One column of each of a block's matrices, with its bias. A column of W_2 has F numbers.
    floats_per_column = L * (5 * (D + 1) + F + 1)
    count = (BUDGET // 4 - other_floats) // floats_per_column
    columns = [
        (f"blocks.{layer}.{name}", 0, min(max(count, 1), F if name == "mlp.W_1" else D))
        for layer in range(L if count > 0 else 1)
        for name in MATRICES
    ]
    next_tokens = trace.next_tokens(min(NEXT_TOKENS, trace.config.vocab_size))
    return columns + [("W_U", id, id + 1) for id in sorted(token.id for token in next_tokens)]


def _count_of_positions(trace: Trace) -> int:
    count = BUDGET // 2 // (4 * _floats_of_rows(trace))
    return max(1, min(len(trace.tokens), count))


def _floats_of_rows(trace: Trace) -> int:
    D, F, _ = _sizes(trace)
    widths = {"mlp.hidden": F, "mlp.activated": F}
    return sum(widths.get(_name_in_block(path), D) for path in packed_paths(trace))


def _sizes(trace: Trace) -> tuple[int, int, int]:
    """D, F and the number of blocks."""
    config = trace.config
    return config.n_embd, config.d_mlp, config.n_layer


def _declared(trace: Trace, name: str) -> dict[str, str]:
    """A listed step's axes, formula and purpose."""
    path = f"blocks.0.{name}" if name in STEPS_IN_BLOCK else name
    owner, _, step = path.rpartition(".")
    result = at(trace, owner) if owner else trace
    return {
        "axes": result.axes_of(step),
        "formula": result.formula_of(step),
        "purpose": purpose(path),
    }


def _name_in_block(path: str) -> str:
    """A listed step's path within its block: attention.X for blocks.3.attention.X."""
    return path.split(".", 2)[2] if path.startswith("blocks.") else path


def _is_edited(trace: Trace, path: str) -> bool:
    """Whether a listed step is edited, or the step in HIDDEN_STEPS from which it is computed."""
    name = _name_in_block(path)
    hidden = path.replace(name, HIDDEN_STEPS.get(name, name))
    edited: tuple[str, ...] = trace.edited_steps
    return path in edited or hidden in edited
