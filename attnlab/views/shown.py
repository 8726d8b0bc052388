"""A result with views: its display in a notebook, and its data frame."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnlab.errors import InvalidValueError
from attnlab.steps import Result

if TYPE_CHECKING:
    from pandas import DataFrame


class ShownResult(Result):
    """The named steps of one computation, with views, which are imported when they are used."""

    def to_dataframe(self, step: str = "") -> DataFrame:
        """Return a step as a labelled pandas DataFrame, see `Attention.to_dataframe`."""
        from attnlab.views.frames import dataframe

        if isinstance(step, str) and not step:
            steps = ", ".join(self._steps_shown())
            raise InvalidValueError(f"to_dataframe needs the name of a step: {steps}")
        return dataframe(self, step)

    def _repr_html_(self) -> str:
        from attnlab.views.notebook import result_view

        return result_view(self)
