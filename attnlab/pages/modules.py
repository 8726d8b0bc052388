"""The page's scripts are ES modules, which are joined into one script when a page is written.

The folder `scripts` has the modules; three more are generated. A browser doesn't load modules for a
page that is opened from a file, so `joined` writes each module after the modules that it imports,
without the words `import` and `export`. Top-level names are therefore unique among all modules.
"""

from __future__ import annotations

import json
import posixpath
import re
from base64 import b64encode
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

from attnlab.forward.attention import Attention
from attnlab.pages import overview, pairs
from attnlab.pages.packs import HEAD_STEPS, PACKED_STEPS
from attnlab.pages.translate import equations_script
from attnlab.text import words

HERE = Path(__file__).parent
SCRIPTS = HERE / "scripts"

# The scripts of each kind of page, each named by the module that starts it. A worker also runs the
# first script of the playground.
SAVED = ("start/saved.js",)
PLAYGROUND = ("start/worker.js", "start/playground.js")
WORDS = ("start/words.js",)
ATLAS = ("start/atlas.js",)

EXCERPT_LENGTH = 200  # the largest number of the text's characters in a page's header

# The steps of a head that a reader can multiply by a factor of at most LARGEST_FACTOR: arrays of
# numbers, but not masked_scores, since -inf times 0 is NaN.
STEPS_TO_CHANGE = tuple(
    name
    for name in HEAD_STEPS
    if name != "mask" and Attention.steps[name].axes and not Attention.steps[name].infinite
)
LARGEST_FACTOR = 10_000

# The files with the matrix product, compiled from `product.ts`. The fastest comes first.
COMPILED = ("product_fused.wasm", "product.wasm")

# Matches a call that shows a text. The text is a literal, so that the page gets its translation.
SAID = re.compile(r'\b(?:say(?:Parts)?|Refusal)\(\s*("[^"]*")')

IMPORT = re.compile(r'^import \{[^}]*\} from "([^"]+)";\n', re.MULTILINE)
EXPORT = re.compile(r"^export (?=\w)", re.MULTILINE)

INDENTATION = re.compile(r"^ +|^\n", re.MULTILINE)  # also matches empty lines
COMMENT = re.compile(r"^ *(//.*|/\*\*(.|\n)*?\*/)\n", re.MULTILINE)
TRAILING_COMMENT = re.compile(r"(?<=[;,{}()\]]) +//[^\"'`\n]*$", re.MULTILINE)  # after code


def _constants() -> str:
    """The module of constants that Python and the scripts share."""
    values = {
        "PACKED_STEPS": PACKED_STEPS,
        "STEPS_TO_CHANGE": STEPS_TO_CHANGE,
        "LARGEST_FACTOR": LARGEST_FACTOR,
        "COMPARED": overview.COMPARED,
        "MAX_ABLATION_WORK": overview.MAX_ABLATION_WORK_IN_TAB,
        "PREVIOUS": overview.PREVIOUS,
        "PREVIOUS_ROWS": overview.PREVIOUS_ROWS,
        "MIN_ABLATED_HEADS": overview.MIN_ABLATED_HEADS,
        "SHOWN_PAIRS": pairs.SHOWN,
        "EXCERPT_LENGTH": EXCERPT_LENGTH,
        "ALONE": words.ALONE,
        "WORDS": words.WORDS,
        "LATIN": words.LATIN,
        "MANY_PIECES": words.MANY_PIECES,
        "FEW_LETTERS": words.FEW_LETTERS,
        "MAX_SPELLED_OUT": words.MAX_SPELLED_OUT,
        "MAX_WORDS_LISTED": words.MAX_WORDS_LISTED,
        "SPECIAL_NAMES": words.SPECIAL_NAMES,
    }
    return "".join(
        f"export const {name} = {json.dumps(value)};\n" for name, value in values.items()
    )


def _compiled() -> str:
    modules = [b64encode((HERE / name).read_bytes()).decode() for name in COMPILED]
    return f"export const MODULES = {json.dumps(modules)};\n"


# The generated modules.
GENERATED: dict[str, Callable[[], str]] = {
    "numbers/equations.js": equations_script,
    "numbers/constants.js": _constants,
    "numbers/compiled.js": _compiled,
}


def source(path: str) -> str:
    """The code of a module, by its path in `scripts`."""
    return GENERATED[path]() if path in GENERATED else (SCRIPTS / path).read_text(encoding="utf-8")


def imported(path: str) -> list[str]:
    """The paths of the modules that a module imports."""
    folder = posixpath.dirname(path)
    return [
        posixpath.normpath(posixpath.join(folder, name)) for name in IMPORT.findall(source(path))
    ]


def modules_of(*entries: str) -> list[str]:
    """The modules that entries need, each after the modules that it imports."""
    seen: dict[str, None] = {}

    def walk(path: str) -> Iterator[str]:
        if path not in seen:
            seen[path] = None
            for other in imported(path):
                yield from walk(other)
            yield path

    return [module for entry in entries for module in walk(entry)]


@cache
def joined(entries: tuple[str, ...]) -> str:
    """The last entry's modules as one script, without modules of the scripts before it."""
    before = modules_of(*entries[:-1])
    modules = [module for module in modules_of(*entries) if module not in before]
    script = "\n".join(EXPORT.sub("", IMPORT.sub("", source(module))) for module in modules)
    # Modules are strict. Comments, indentation and empty lines aren't written into each page.
    for needless in (COMMENT, TRAILING_COMMENT, INDENTATION):
        script = needless.sub("", script)
    return f'"use strict";\n{script}'


def scripts_of(entries: tuple[str, ...]) -> list[str]:
    """A page's scripts, in order."""
    return [joined(entries[: n + 1]) for n in range(len(entries))]


@cache
def texts_said(entries: tuple[str, ...]) -> frozenset[str]:
    """The English texts that a page's scripts show."""
    return frozenset(
        json.loads(text) for script in scripts_of(entries) for text in SAID.findall(script)
    )
