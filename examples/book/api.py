"""The book's reference, generated from the library's docstrings."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from typing import Any

import attnlab
from attnlab.corpus.result import Passage
from attnlab.forward.products import Product
from attnlab.pocket.truth import Truth, open_truth, shapley_values
from attnlab.steps import Result
from attnlab.support.console import StdoutSafe
from attnlab.support.document import Document

# Modules whose public names are all in the reference.
MODULES = {
    "attnlab.equations": "The equations",
    "attnlab.forward.gradients": "The gradient of each equation",
    "attnlab.views.pictures": "Pictures of your own numbers",
    "attnlab.checking.figures": "Published figures",
    "attnlab.walkthrough": "The published walkthrough",
    "attnlab.errors": "Errors",
}

# Packages whose results, classes that print themselves, are all in the reference, and others.
PACKAGES = ("analysis", "checking", "corpus", "model")
OTHERS = (Document, Passage, Product, Truth, open_truth, shapley_values)

INTRODUCTION = """\
# Reference

Each name with its own heading is an attribute of the package: `attnlab.NAME`.

Every error is an `AttnlabError` and a matching built-in exception. An argument of the wrong type
raises `InvalidTypeError`, an invalid value or shape `InvalidValueError`, a layer, head or position
that doesn't exist `OutOfRangeError`, a missing file `MissingFileError`, a file that can't be
written `WriteError`, and a missing optional library `MissingExtraError`. The `Raises` section of a
function lists only other errors; see [Errors](#errors).
"""


def reference() -> str:
    """A page with every public name of the library and its docstring."""
    page = [INTRODUCTION]
    public = {name: getattr(attnlab, name) for name in attnlab.__all__}
    for name in sorted(public, key=str.lower):
        if not inspect.ismodule(public[name]) and public[name].__module__ not in MODULES:
            page += [f"## {name}", *directive(public[name])]
    page += ["## Results of analyses"]
    for result in dict.fromkeys((*results(), *OTHERS)):
        if result not in public.values():
            page += directive(result)
    for module, heading in MODULES.items():
        page += [f"## {heading}", "```{eval-rst}", f".. automodule:: {module}"]
        page += ["   :members:", "   :undoc-members:", "```", ""]
    return "\n".join(page)


def results() -> Iterator[type]:
    """The classes of `PACKAGES` that print themselves."""
    for package in PACKAGES:
        path = [f"{folder}/{package}" for folder in attnlab.__path__]
        for module in pkgutil.iter_modules(path, f"attnlab.{package}."):
            for name, value in vars(importlib.import_module(module.name)).items():
                is_here = inspect.isclass(value) and value.__module__ == module.name
                if is_here and issubclass(value, StdoutSafe) and not name.startswith("_"):
                    yield value


def directive(documented: Any) -> list[str]:
    """The Sphinx directive for a class, with its members, or for a function."""
    path = f"{documented.__module__}.{documented.__qualname__}"
    if not inspect.isclass(documented):
        return ["```{eval-rst}", f".. autofunction:: {path}", "```", ""]
    # A named tuple's `__new__` says that it is of another module, which doesn't exist.
    options = ["   :members:", "   :show-inheritance:", "   :exclude-members: __new__"]
    if issubclass(documented, Result):  # such as `explain`, which every part of a trace has
        options.append(f"   :inherited-members: {Result.__name__}")
    return ["```{eval-rst}", f".. autoclass:: {path}", *options, "```", ""]
