"""The book's reference, of what the library says of itself: its public names, others' names."""

from __future__ import annotations

import inspect

import attnlab
from attnlab.names import NAMES

# Modules of which the reference tells every public name.
MODULES = {
    "attnlab.equations": "The equations",
    "attnlab.gradients": "The gradient of each equation",
    "attnlab.figures": "Published figures",
    "attnlab.walkthrough": "The published walkthrough",
    "attnlab.errors": "Errors",
}

HEADINGS = {
    "en": ("Name", "Tool", "Here, from a trace on"),
    "zh": ("名称", "工具", "在这里，从一个 trace 出发"),
}


def reference() -> str:
    """A page with every public name of the library and what its docstring says."""
    page = ["# Reference", "Every name is `attnlab.NAME`, unless its module is written.", ""]
    public = [name for name in attnlab.__all__ if not name.endswith(("errors", "Error"))]
    for name in sorted(public, key=str.lower):
        kind = "class" if inspect.isclass(getattr(attnlab, name)) else "function"
        members = "\n:members:\n:inherited-members: dict, list, tuple" if kind == "class" else ""
        options = f"{members}\n".lstrip("\n")
        page += [f"## {name}", "```{eval-rst}"]
        page += [f".. auto{kind}:: attnlab.{name}"]
        page += [f"   {option}" for option in options.splitlines()] + ["```", ""]
    for module, heading in MODULES.items():
        page += [
            f"## {heading}",
            "```{eval-rst}",
            f".. automodule:: {module}",
            "   :members:",
            "   :undoc-members:",
        ]
        page += ["```", ""]
    return "\n".join(page)


def names(language: str) -> str:
    """The table of what other tools call things, in Markdown."""
    rows = [HEADINGS[language], ("---",) * 3]
    rows += [(f"`{theirs}`", tool, f"`{ours}`") for theirs, tool, ours in NAMES]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"
