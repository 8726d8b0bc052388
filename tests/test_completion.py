"""Completion: dir, and IPython in a terminal and in JupyterLab."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import needs

import attnlab

ROOT = Path(__file__).parents[1]


def test_dir_lists_only_public_names() -> None:
    assert set(dir(attnlab)) == {*attnlab.__all__, "__version__", "corpus", "equations"}
    typed = {
        node.attr
        for chapter in (ROOT / "examples").glob("*.py")
        for node in ast.walk(ast.parse(chapter.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "attnlab"
    }
    assert {"GPT2", "softmax", "table"} <= typed <= set(dir(attnlab))


@pytest.fixture(
    scope="module",
    params=[pytest.param(way, marks=pytest.mark.slow) for way in ("Jedi", "evaluation")],
)
def shell(request: pytest.FixtureRequest) -> Iterator[Any]:
    """IPython in a separate process with attnlab imported."""
    needs("IPython", "notebooks")
    process = subprocess.Popen(
        [sys.executable, "-c", SHELL, request.param],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )
    with process:
        yield process
        process.stdin.close()  # type: ignore[union-attr]


SHELL = """
import sys, warnings
from IPython.core.completer import provisionalcompleter
from IPython.core.interactiveshell import InteractiveShell

warnings.simplefilter("ignore")
shell = InteractiveShell.instance()
shell.Completer.use_jedi = sys.argv[1] == "Jedi"
shell.run_cell('''
import attnlab
model = attnlab.GPT2.from_pretrained("pocket")
trace = model.trace([1, 2, 3])
''')
for line in sys.stdin:
    text = line.rstrip("\\n")
    with provisionalcompleter():
        print(*(text[: c.start] + c.text for c in shell.Completer.completions(text, len(text))))
    print(*shell.user_ns["trace"]._run.values, flush=True)
"""


def completions(shell: Any, text: str) -> list[str]:
    """IPython's completions of a text, which must not compute steps."""
    shell.stdin.write(f"{text}\n")
    shell.stdin.flush()
    names = shell.stdout.readline().split()
    assert "blocks.0.output" not in shell.stdout.readline().split()
    return [name.removeprefix(text) for name in names]


@pytest.mark.parametrize(
    ("typed", "ends"),
    [
        ("attnlab.causal", ["_mask"]),
        ("attnlab.__v", ["ersion__"]),
        ("trace.blocks[0].attention.raw", ["_scores"]),
        ("trace.blocks[-1].attention.heads[3].W_", ["K", "O", "Q", "V"]),
        ("trace.head(1,2).raw", ["_scores"]),
        ("trace.blocks[0].mlp.hid", ["den"]),
        ("model.tokenizer.enc", ["ode", "ode_prompt"]),
        ("model.config.n_he", ["ad"]),
    ],
)
def test_completion_of_a_prefix(shell: Any, typed: str, ends: list[str]) -> None:
    assert completions(shell, typed) == ends


def test_completion_lists_all_names(shell: Any) -> None:
    assert set(completions(shell, "attnlab.")) == set(dir(attnlab)) - {"__version__"}
    attention = completions(shell, "trace.blocks[0].attention.")
    assert {"Q", "raw_scores", "weights", "heads", "explain"} <= set(attention)
    assert not [name for name in attention if name.startswith("_")]


@pytest.mark.parametrize("typed", ["trace.blocks[7].attention.", "nothing.blocks[0]."])
def test_no_completions_for_unknown_objects(shell: Any, typed: str) -> None:
    assert "weights" not in completions(shell, typed)


@pytest.mark.parametrize("result", ["trace", "trace.blocks[0].attention", "trace.head(0, 1)"])
def test_internals_are_not_completed(result: str) -> None:
    trace = attnlab.GPT2.from_pretrained("pocket").trace([1, 2, 3])
    names = {name for name in dir(eval(result, {"trace": trace})) if not name.startswith("_")}
    assert {"explain", "plot", "show", "tokens", "title"} <= names
    assert set(eval(f"{result}.steps", {"trace": trace})) <= names
    assert not names & {
        "children",
        "computation_of",
        "graph_as_data",
        "hint",
        "note",
        "table_steps",
    }
