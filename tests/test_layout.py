"""Who imports whom: one way, leaf to top; and what `import attnlab` does not load."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import attnlab

PACKAGE = Path(attnlab.__file__).parent

# Each room may import those before it.
ORDER = [
    *("errors", "files", "tables", "steps", "ops", "config", "attention", "tokenizer"),
    *("checkpoint", "hub", "forward", "trace", "generation", "model", "figures", "walkthrough"),
    *("training", "pocket"),
]


def imports_of(room: str) -> set[str]:
    """The other rooms that a file, or a folder's files, import."""
    file = PACKAGE / f"{room}.py"
    sources = [file] if file.is_file() else sorted((PACKAGE / room).glob("*.py"))
    trees = [ast.parse(source.read_text(encoding="utf-8")) for source in sources]
    found = set()
    for node in (node for tree in trees for node in ast.walk(tree)):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        found |= {name.split(".")[1] for name in names if name.startswith("attnlab.")}
    return found & set(ORDER) - {room}


def test_every_room_has_its_place() -> None:
    rooms = {file.stem for file in PACKAGE.glob("*.py")} | {
        folder.parent.name for folder in PACKAGE.glob("*/__init__.py")
    }
    assert rooms - {"__init__"} == set(ORDER)


@pytest.mark.parametrize("room", ORDER)
def test_imports_run_one_way(room: str) -> None:
    assert imports_of(room) <= set(ORDER[: ORDER.index(room)])


def test_import_loads_nothing_heavy() -> None:
    code = "import sys, attnlab; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "numpy" in loaded
    late = {"tiktoken", "safetensors", "huggingface_hub", "argparse", "attnlab.training"}
    assert not late & set(loaded)


def test_tensor_names_live_in_checkpoint_alone() -> None:
    for file in PACKAGE.rglob("*.py"):
        if file.stem != "checkpoint":
            text = file.read_text(encoding="utf-8")
            assert not [name for name in ("c_attn", "c_proj", "c_fc", "lm_head") if name in text]
