"""Who imports whom: one way, leaf to top; and what `import attnlab` does not load."""

import ast
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

import attnlab

PACKAGE = Path(attnlab.__file__).parent

# Each room may import those before it.
ORDER = [
    *("errors", "files", "tables", "steps", "ops", "config", "tokenizer", "attention"),
    *("checkpoint", "hub", "forward", "trace", "views", "generation", "model", "figures"),
    *("walkthrough", "training", "pocket", "cli", "__main__"),
]

# What draws. A method such as `Trace.to_html` may import it when it is called, and
# types may name it, wherever it stands.
DRAWS = {"views"}


def trees_of(room: str) -> list[ast.Module]:
    """A file, or a folder's files, as syntax."""
    file = PACKAGE / f"{room}.py"
    sources = [file] if file.is_file() else sorted((PACKAGE / room).glob("*.py"))
    return [ast.parse(source.read_text(encoding="utf-8")) for source in sources]


def late_in(tree: ast.AST) -> set[ast.AST]:
    """What does not run when the file is imported: functions, and what is only for types."""
    for_types = "TYPE_CHECKING"
    late = (
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        or (isinstance(node, ast.If) and ast.unparse(node.test) == for_types)
    )
    return {node for part in late for node in ast.walk(part)}


def rooms_of(nodes: Iterable[ast.AST]) -> set[str]:
    """The rooms that are imported by some of a tree's nodes."""
    found = set()
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        found |= {name.split(".")[1] for name in names if name.startswith("attnlab.")}
    return found & set(ORDER)


def imports_of(room: str) -> set[str]:
    """The other rooms that a room imports, those aside that it imports only to draw."""
    found = set()
    for tree in trees_of(room):
        late = late_in(tree)
        found |= rooms_of(late) - DRAWS
        found |= rooms_of(set(ast.walk(tree)) - late)
    return found - {room}


def test_every_room_has_its_place() -> None:
    rooms = {file.stem for file in PACKAGE.glob("*.py")} | {
        folder.parent.name for folder in PACKAGE.glob("*/__init__.py")
    }
    assert rooms - {"__init__"} == set(ORDER)


@pytest.mark.parametrize("room", ORDER)
def test_imports_run_one_way(room: str) -> None:
    assert imports_of(room) <= set(ORDER[: ORDER.index(room)])


def test_what_draws_may_be_imported_inside_a_method_only() -> None:
    method = "class A:\n    def to_html(self):\n        from attnlab.views.page import page\n"
    above = "from attnlab.views.page import page\n"
    for source, allowed in ((method, True), (above, False), (f"if True:\n    {above}", False)):
        tree = ast.parse(source)
        assert rooms_of(ast.walk(tree)) == DRAWS
        assert (rooms_of(late_in(tree)) == DRAWS) == allowed


def test_import_loads_nothing_heavy() -> None:
    code = "import sys, attnlab; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "numpy" in loaded
    late = {"tiktoken", "safetensors", "huggingface_hub", "argparse", "attnlab.training"}
    late |= {"attnlab.views", "attnlab.views.page"}
    assert not late & set(loaded)


def test_tiktoken_is_loaded_for_a_text_and_not_for_ids() -> None:
    code = (
        "import sys, attnlab; model = attnlab.GPT2.from_pretrained('pocket'); "
        "model.trace([1, 2]).next_tokens(); print('tiktoken' in sys.modules); "
        "model.trace('the'); print('tiktoken' in sys.modules)"
    )
    run = [sys.executable, "-c", code]
    assert subprocess.run(run, capture_output=True, text=True, check=True).stdout.split() == [
        "False",
        "True",
    ]


def test_tensor_names_live_in_checkpoint_alone() -> None:
    for file in PACKAGE.rglob("*.py"):
        if file.stem != "checkpoint":
            text = file.read_text(encoding="utf-8")
            assert not [name for name in ("c_attn", "c_proj", "c_fc", "lm_head") if name in text]
