"""A step of one head as a pandas DataFrame.

A token may occur twice, so the index is the position in the text, with the token as second level.
"""

from __future__ import annotations

from typing import Any

from attnlab.steps import Result
from attnlab.steps.labels import Axis
from attnlab.support.checks import importing_extra
from attnlab.support.messages import say
from attnlab.views.labelled_step import labelled_matrix

with importing_extra("frames"):
    import pandas as pd


def dataframe(result: Result, name: str) -> pd.DataFrame:
    """A step as a DataFrame, see `Attention.to_dataframe`."""
    step = labelled_matrix(result, name, "draw all of them with trace.plot()")
    rows, *columns = step.axes
    names = _index(columns[0]) if columns else pd.Index([name])
    frame = pd.DataFrame(step.array, index=_index(rows), columns=names)
    frame.attrs["title"] = f"{say(result.title)}: {say(step.heading)}"
    return frame


def _index(axis: Axis) -> pd.Index[Any]:
    if not axis.has_tokens:
        return pd.Index(axis.positions, name=axis.name)
    return pd.MultiIndex.from_arrays(list(map(list, axis.columns.values())), names=[*axis.columns])
