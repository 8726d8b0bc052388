"""The types of results, for annotations: what traces, analyses, checks and pages return."""

from contextlib import suppress

from attnlab.analysis.attribution import Attribution
from attnlab.analysis.gradients import Gradients
from attnlab.analysis.jobs import HeadJobs
from attnlab.analysis.lens import Lens, LogitLens, OneToken
from attnlab.analysis.patching import AttributionPatching, Patching
from attnlab.analysis.paths import PathPatching
from attnlab.analysis.why import Why, Without
from attnlab.checking.verdict import Verdict
from attnlab.corpus.result import Atlas, Measured, Passage
from attnlab.errors import MissingExtraError
from attnlab.forward.products import HeadWeights, Product
from attnlab.model.generation import Generation, GenerationStep
from attnlab.model.trace import ByWords, NextToken, NextTokens, Trace
from attnlab.model.traces import Traces
from attnlab.pages.page import Page
from attnlab.training.run import Training
from attnlab.views.explaining.explanation import Explanation

with suppress(MissingExtraError):  # matplotlib is optional
    from attnlab.views.plot import Picture

__all__ = [
    "Atlas",
    "Attribution",
    "AttributionPatching",
    "ByWords",
    "Explanation",
    "Generation",
    "GenerationStep",
    "Gradients",
    "HeadJobs",
    "HeadWeights",
    "Lens",
    "LogitLens",
    "Measured",
    "NextToken",
    "NextTokens",
    "OneToken",
    "Page",
    "Passage",
    "PathPatching",
    "Patching",
    "Picture",
    "Product",
    "Trace",
    "Traces",
    "Training",
    "Verdict",
    "Why",
    "Without",
]
