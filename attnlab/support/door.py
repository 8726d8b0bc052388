"""The door upwards: what the methods of results need from the floors above them.

Numbers are at the bottom, analyses above them and views on top, so nothing below imports those. But
a reader asks a result: `head.why(...)`, `trace.plot()`. A method that answers with an analysis or a
view takes it from this module, which imports it on first use:

    door.plot_step(self, step)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attnlab.views.explaining.explain import explain as explain
    from attnlab.views.explaining.explanation import Explanation as Explanation
    from attnlab.views.frames import dataframe as dataframe
    from attnlab.views.frames import dataset as dataset
    from attnlab.views.frames import frame_of as frame_of
    from attnlab.views.notebook import View as View
    from attnlab.views.notebook import candidates_view as candidates_view
    from attnlab.views.notebook import document_view as document_view
    from attnlab.views.notebook import explanation_view as explanation_view
    from attnlab.views.notebook import generation_view as generation_view
    from attnlab.views.notebook import result_view as result_view
    from attnlab.views.notebook import tokens_view as tokens_view
    from attnlab.views.notebook import trace_view as trace_view
    from attnlab.views.notebook import view_of_tokens as view_of_tokens
    from attnlab.views.pictures import curves as curves
    from attnlab.views.plot import Picture as Picture
    from attnlab.views.plot import drawing_in as drawing_in
    from attnlab.views.plot import plot_heads as plot_heads
    from attnlab.views.plot import plot_step as plot_step
    from attnlab.views.plot import plot_table as plot_table
    from attnlab.views.plot import plot_tokens as plot_tokens
    from attnlab.views.sheets import write_model as write_model
    from attnlab.views.sheets import write_sheets as write_sheets

# The names above by their module in attnlab, and the module of each name.
_NAMES = {
    "views.explaining.explain": "explain",
    "views.explaining.explanation": "Explanation",
    "views.frames": "dataframe dataset frame_of",
    "views.notebook": (
        "View candidates_view document_view explanation_view generation_view result_view "
        "tokens_view trace_view view_of_tokens"
    ),
    "views.pictures": "curves",
    "views.plot": "Picture drawing_in plot_heads plot_step plot_table plot_tokens",
    "views.sheets": "write_model write_sheets",
}
_MODULES = {name: f"attnlab.{module}" for module, names in _NAMES.items() for name in names.split()}

if not TYPE_CHECKING:  # type checkers know the names above, and no others

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_MODULES[name]), name)
