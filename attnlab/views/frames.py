"""Steps with named axes: a pandas DataFrame of one head, an xarray Dataset of a trace.

Tokens repeat, so the index is the position in the text; the symbol is a second level (pandas) or a
second coordinate (xarray).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from attnlab.errors import InvalidValueError, quoted
from attnlab.model.trace import Trace
from attnlab.steps import Result
from attnlab.steps.labels import Axis
from attnlab.support.checks import as_texts, importing_extra
from attnlab.support.messages import say
from attnlab.views.labelled_step import labelled_matrix, labelled_step, per_head

with importing_extra("frames"):
    import pandas as pd

if TYPE_CHECKING:
    import xarray as xr


def dataframe(result: Result, name: str) -> pd.DataFrame:
    """A step as a DataFrame, see `Attention.to_dataframe`."""
    step = labelled_matrix(result, name, "take all of them with trace.to_xarray()")
    rows, *columns = step.axes
    names = _index(columns[0]) if columns else pd.Index([name])
    frame = pd.DataFrame(step.array, index=_index(rows), columns=names)
    frame.attrs["title"] = f"{say(result.title)}: {say(step.heading)}"
    return frame


def _index(axis: Axis) -> pd.Index[Any]:
    if not axis.has_tokens:
        return pd.Index(axis.positions, name=axis.name)
    return pd.MultiIndex.from_arrays(list(map(list, axis.columns.values())), names=[*axis.columns])


def frame_of(columns: Mapping[str, Any], title: str) -> pd.DataFrame:
    """A result's columns as a DataFrame. Its texts are in English, like names of steps."""
    frame = pd.DataFrame({name: _series(values) for name, values in columns.items()})
    frame.attrs["title"] = say(title)
    return frame


def _series(values: Any) -> Any:
    if isinstance(values, np.ndarray):
        return values
    if None in values:  # integers, such as of the head of an MLP, which has none
        return pd.array([*values], "Int64")
    return [f"{value}" if isinstance(value, str) else value for value in values]


def dataset(trace: Trace, steps: Sequence[str]) -> xr.Dataset:
    """Steps of a trace, its blocks and heads as a Dataset, see `Trace.to_xarray`."""
    steps = as_texts(steps, "steps")
    known = (
        *trace._table_steps,
        *trace.blocks[0]._table_steps,
        *per_head(trace.blocks[0].attention),
    )
    for name in steps:
        if name not in known:
            raise InvalidValueError(
                f"there is no step {quoted(name)}; steps are {', '.join(known)}"
            )
    variables: dict[str, Any] = {}
    coordinates: dict[str, Any] = {}
    for name in steps:
        dimensions, results = _results_with(trace, name)
        labelled = [labelled_step(result, name) for result in results]
        first, axes = labelled[0], labelled[0].axes
        array = np.stack([step.array for step in labelled]) if dimensions else first.array
        names = [*dimensions, *("head" if axis.name == "H" else axis.name for axis in axes)]
        variables[name] = (names, array, {"long_name": first.heading})
        for axis in axes:
            if axis.has_tokens:
                coordinates[axis.name] = (axis.name, list(axis.positions))
                coordinates[f"{axis.name}_token"] = (axis.name, list(axis.labels))
    return _dataset(variables, coordinates, {"title": trace.title})


def _results_with(trace: Trace, name: str) -> tuple[list[str], list[Any]]:
    """The dimension along which to stack a step, and the results that have it."""
    if name in per_head(trace.blocks[0].attention):
        return ["layer"], [block.attention for block in trace.blocks]
    if name in trace.blocks[0]._table_steps:
        return ["layer"], list(trace.blocks)
    return [], [trace]


def _dataset(*parts: dict[str, Any]) -> xr.Dataset:
    with importing_extra("frames"):
        import xarray as xr  # here, since data frames don't need it
    return xr.Dataset(*parts)
