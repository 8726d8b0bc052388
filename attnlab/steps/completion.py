"""Completion in IPython and JupyterLab: `trace.blocks[0].attention.<Tab>`.

IPython's own completion stops at an index or a call, and Jedi, which reads the source, also offers
the names that a module imports.
"""

from __future__ import annotations

import re
from types import ModuleType
from typing import Any

from attnlab.support.names import with_dots
from attnlab.support.parts import Numbered

# Text before the cursor: a variable, the path from it to a part, and the beginning of a name.
TYPED_PATH = re.compile(r"(?:.*[^\w.\])])?([^\W\d]\w*)((?:\.\w+|\[-?\d+\])*)\.(\w*)", re.DOTALL)

# `.head(layer, head)`, and the equivalent path.
HEAD_CALL = re.compile(r"\.head\((-?\d+), *(-?\d+)\)")
HEAD_PATH = r".blocks[\1].attention.heads[\2]"


def complete_in_ipython(package: ModuleType) -> None:
    """Make the running IPython shell, if any, complete `package` and results."""
    from IPython import get_ipython

    try:
        from IPython.core.completer import SimpleCompletion, context_matcher
    except ImportError:  # before IPython 8.6
        return
    shell = get_ipython()
    if shell is None:
        return

    @context_matcher()  # type: ignore[untyped-decorator]
    def attnlab_matcher(context: Any) -> dict[str, Any]:
        match = TYPED_PATH.fullmatch(HEAD_CALL.sub(HEAD_PATH, context.text_until_cursor))
        if match is None:
            return {"completions": []}
        variable, path, beginning = match.groups()
        part = find_part(shell.user_ns.get(variable), path)
        # Leave None and other packages' objects to IPython.
        if part is not package and not type(part).__module__.startswith(f"{package.__name__}."):
            return {"completions": []}
        names = [name for name in dir(part) if name.startswith(beginning)]
        if not beginning:
            names = [name for name in names if not name.startswith("_")]
        return {
            "completions": [SimpleCompletion(name) for name in names],
            "matched_fragment": beginning,
            "suppress": True,
        }

    matchers = shell.Completer.custom_matchers  # includes an older one if attnlab was reloaded
    others = [other for other in matchers if getattr(other, "__module__", "") != __name__]
    matchers[:] = [*others, attnlab_matcher]


def find_part(part: Any, path: str) -> Any:
    """The part of a result at a path such as `.blocks[0].mlp`, or None."""
    for name in with_dots(path).split(".")[1:]:
        if isinstance(part, Numbered) and re.fullmatch(r"-?\d+", name):
            part = part[int(name)] if -len(part) <= int(name) < len(part) else None
        # Only parts and stored values: Tab mustn't compute a step or run a property.
        elif name in getattr(part, "_children", ()) or name in getattr(part, "__dict__", ()):
            part = getattr(part, name)
        else:
            return None
    return part
