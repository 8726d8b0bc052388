"""Imports go one way, from bottom to top; what `import attnlab` doesn't load; requirements."""

import ast
import re
import subprocess
import sys
from collections import Counter
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import attnlab
from attnlab.pages.modules import GENERATED, SCRIPTS, imported, source

PACKAGE = Path(attnlab.__file__).parent

# Each module and folder may import only earlier ones, at the top of a module, in a
# function, or for types alone.
FLOORS = (
    "errors erf equations",
    "support",
    "text",
    "steps",
    "views",
    "forward",
    "checkpoints",
    "model",
    "analysis",
    "checking corpus training",
    "pocket english",
    "pages",
    "types walkthrough",
    "cli __main__",
)
ORDER = [room for floor in FLOORS for room in floor.split()]

# The most entries in one folder.
ENTRIES = 23


@cache
def modules_of(file: Path) -> set[str]:
    """The modules of attnlab that a file imports, also in functions and for types alone."""
    result = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            result |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            result |= {alias.name for alias in node.names}
    return {name for name in result if name.startswith("attnlab.")}


def imports_of(room: str) -> set[str]:
    """The other packages that a package imports."""
    file = PACKAGE / f"{room}.py"
    sources = [file] if file.is_file() else sorted((PACKAGE / room).rglob("*.py"))
    names = {name for source in sources for name in modules_of(source)}
    return ({name.split(".")[1] for name in names} & set(ORDER)) - {room}


def test_every_module_is_in_the_import_order() -> None:
    rooms = {file.stem for file in PACKAGE.glob("*.py")} | {
        folder.parent.name for folder in PACKAGE.glob("*/__init__.py")
    }
    assert rooms - {"__init__"} == set(ORDER)
    entries = {path.name for path in PACKAGE.iterdir()} - {"__pycache__"}
    assert len(entries) <= ENTRIES


@pytest.mark.parametrize("room", ORDER)
def test_imports_run_one_way(room: str) -> None:
    assert imports_of(room) <= set(ORDER[: ORDER.index(room)])


def test_no_circular_imports() -> None:
    files = {
        ".".join(("attnlab", *file.relative_to(PACKAGE).with_suffix("").parts)): file
        for file in PACKAGE.rglob("*.py")
        if file.name != "__init__.py"
    }
    graph = {name: modules_of(file) & set(files) - {name} for name, file in files.items()}
    assert len(graph["attnlab.model.gpt2"]) > 5
    assert tuple(TopologicalSorter(graph).static_order())  # CycleError names a circle


def test_the_first_step_loads_nothing_unused() -> None:
    code = (
        "import sys, attnlab; print(*sys.modules); attnlab.GPT2; "
        "model = attnlab.GPT2.from_pretrained('pocket'); "
        "model.trace([1, 2]).head(0, 0).weights; print(*sys.modules); "
        "model.trace([1, 2]).next_tokens(); print('tiktoken' in sys.modules); "
        "model.trace('the'); print('tiktoken' in sys.modules); attnlab.corpus.MEASURES"
    )
    run = [sys.executable, "-c", code]
    lines = subprocess.run(run, capture_output=True, text=True, check=True).stdout.splitlines()
    imported, looked = (set(line.split()) for line in lines[:2])
    assert {"attnlab", "numpy"} <= imported
    assert "safetensors" not in imported
    assert "safetensors" in looked
    late = {"argparse", "asyncio", "concurrent", "email", "gettext", "html", "http", "logging"}
    late |= {"importlib.metadata", "multiprocessing", "shutil", "socket", "ssl", "subprocess"}
    late |= {"filelock", "huggingface_hub", "tempfile", "tiktoken", "tokenizers"}
    optional = {"analysis", "checking", "cli", "corpus", "pages", "training"}
    optional |= {f"views.{name}" for name in ("explaining", "labelled_step", "notebook", "plot")}
    optional |= {"model.generation", "model.sampling"}
    assert not (late | {f"attnlab.{name}" for name in optional}) & looked
    assert lines[2:] == ["False", "True"]


# ---- the page's scripts --------------------------------------------------------------------------

# Folders of `scripts`, bottom to top: a module may import from its own folder and those before.
SCRIPT_FLOORS = ("numbers", "sources", "state", "drawing", "views", "start")
MODULES = sorted(
    {file.relative_to(SCRIPTS).as_posix() for file in SCRIPTS.rglob("*.js")} | {*GENERATED}
)

DECLARATION = r"(?:async )?(?:function\*?|class|const|let) ([\w$]+)"
TOP_LEVEL = re.compile(rf"^(?:export )?{DECLARATION}", re.M)
EXPORTED = re.compile(rf"^export {DECLARATION}", re.M)
IMPORTED = re.compile(r"^import \{([^}]*)\}", re.M)


def floor_of(module: str) -> int:
    return SCRIPT_FLOORS.index(module.split("/")[0])


def test_scripts_import_from_below() -> None:
    graph = {module: imported(module) for module in MODULES}
    assert sum(map(len, graph.values())) > 100
    assert tuple(TopologicalSorter(graph).static_order())  # CycleError names a circle
    above = [
        (module, other)
        for module, others in graph.items()
        for other in others
        if floor_of(other) > floor_of(module)
    ]
    assert above == []


def test_scripts_import_what_is_exported_and_declare_each_name_once() -> None:
    """Joined, they share one scope: what isn't exported would be found all the same."""
    exported = {(module, name) for module in MODULES for name in EXPORTED.findall(source(module))}
    for module in MODULES:
        paths = imported(module)
        for names, other in zip(IMPORTED.findall(source(module)), paths, strict=True):
            needed = [*filter(None, map(str.strip, names.split(",")))]
            assert {(other, name) for name in needed} <= exported
            words = Counter(re.findall(r"[\w$]+", source(module)))
            assert [name for name in needed if words[name] < 2] == [], module  # unused
    # A second declaration of a name is a SyntaxError, which stops the joined script.
    names = Counter(name for module in MODULES for name in TOP_LEVEL.findall(source(module)))
    assert len(names) > 400
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.slow
def test_type_checkers_report_misspelt_names(tmp_path: Path) -> None:
    """`__getattr__` says what was meant, and type checkers don't see it."""
    pytest.importorskip("mypy")
    code = tmp_path / "typos.py"
    lines = [
        "import attnlab",
        "from attnlab.types import Patching, Traces, Verdict",
        "model = attnlab.GPT2.default()",
        "traces: Traces = model.trace(['a', 'b'])",
        "model.tracee('a')",
        "model.trace('a').foo",
        "traces.foo",
        "attnlab.lenss(traces)",
        "model.trace('a').blocks[0].attention.wights",
    ]
    code.write_text("\n".join(lines), encoding="utf-8")
    run = [sys.executable, "-m", "mypy", "--strict", str(code)]
    found = subprocess.run(run, capture_output=True, text=True, cwd=PACKAGE.parent).stdout
    numbers = [int(number) for number in re.findall(r"typos\.py:(\d+): error", found)]
    assert numbers == [5, 6, 7, 8, 9], found
