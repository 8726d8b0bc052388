"""The book's reference, of what the library says of itself: its public names, others' names."""

from __future__ import annotations

import inspect
from typing import Any

import attnlab
from attnlab.analysis.attribution import Attribution, ByToken
from attnlab.analysis.circuits import Composition, TokensOfHead, TokensRead
from attnlab.analysis.edges import Circuit, Edges
from attnlab.analysis.flow import Rollout, ValueWeighted, ValueWeightedHeads
from attnlab.analysis.gradients import Gradients
from attnlab.analysis.jobs import HeadJobs
from attnlab.analysis.lens import LogitLens, OneToken
from attnlab.analysis.patching import AttributionPatching, Patching
from attnlab.analysis.paths import PathPatching
from attnlab.corpus.result import Atlas, Difference, HeadProfile, Measured, Passage
from attnlab.forward.products import Product
from attnlab.model.explorer import Explorer
from attnlab.steps import Result
from attnlab.support.names import MODEL_ATTRIBUTES, NAMES

# Modules of which the reference tells every public name.
MODULES = {
    "attnlab.equations": "The equations",
    "attnlab.forward.gradients": "The gradient of each equation",
    "attnlab.views.pictures": "Pictures of your own numbers",
    "attnlab.checking.figures": "Published figures",
    "attnlab.walkthrough": "The published walkthrough",
    "attnlab.errors": "Errors",
}

# What analyses, an atlas and `explore` return.
ANALYSES = (
    *(LogitLens, OneToken, Attribution, ByToken, Patching, AttributionPatching, PathPatching),
    *(Edges, Circuit, Gradients, Product),
    *(TokensOfHead, TokensRead, Composition, HeadJobs, Rollout, ValueWeighted, ValueWeightedHeads),
    *(Atlas, Measured, HeadProfile, Passage, Difference, Explorer),
)

INTRODUCTION = """\
# Reference

What has a heading of its own here is `attnlab.NAME`.

Every error is an `AttnlabError`, and also the built-in exception that fits. An argument of the
wrong type raises `InvalidTypeError`, one whose value or shape can't be used `InvalidValueError`, a
layer, head or position that doesn't exist `OutOfRangeError`, a file that isn't there or can't be
written `MissingFileError` or `WriteError`, and a missing optional library `MissingExtraError`. The
`Raises` section of a function lists only what goes beyond that; see [Errors](#errors).
"""

HEADINGS = {
    "en": ("Name", "Tool", "Here, from a trace on"),
    "zh": ("名称", "工具", "在这里，从一个 trace 出发"),
}


def reference() -> str:
    """A page with every public name of the library and what its docstring says."""
    page = [INTRODUCTION]
    public = {name: getattr(attnlab, name) for name in attnlab.__all__}
    for name in sorted(public, key=str.lower):
        if not inspect.ismodule(public[name]) and public[name].__module__ not in MODULES:
            page += [f"## {name}", *directive(public[name])]
    page += ["## Results of analyses"]
    for result in ANALYSES:
        page += directive(result)
    for module, heading in MODULES.items():
        page += [f"## {heading}", "```{eval-rst}", f".. automodule:: {module}"]
        page += ["   :members:", "   :undoc-members:", "```", ""]
    return "\n".join(page)


def directive(described: Any) -> list[str]:
    """What has Sphinx tell of a class, with its members, or of a function."""
    path = f"{described.__module__}.{described.__qualname__}"
    if not inspect.isclass(described):
        return ["```{eval-rst}", f".. autofunction:: {path}", "```", ""]
    options = ["   :members:", "   :show-inheritance:"]
    if issubclass(described, Result):  # such as `explain`, which every part of a trace has
        options += [f"   :inherited-members: {Result.__name__}", "   :exclude-members: __new__"]
    return ["```{eval-rst}", f".. autoclass:: {path}", *options, "```", ""]


def names(language: str) -> str:
    """The table of what other tools call things, in Markdown."""
    rows = [HEADINGS[language], ("---",) * 3]
    rows += [
        (f"`{theirs}`", tool, f"`{ours}`") for theirs, tool, ours in (*NAMES, *MODEL_ATTRIBUTES)
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"
