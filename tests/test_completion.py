"""What dir lists, which Python, IPython and editors complete."""

import re
from pathlib import Path

import pytest

import attnlab

ROOT = Path(__file__).parents[1]


def test_dir_lists_only_public_names() -> None:
    assert set(dir(attnlab)) == {*attnlab.__all__, "__version__", "corpus", "equations"}
    code = "".join(file.read_text(encoding="utf-8") for file in (ROOT / "examples").glob("*.py"))
    typed = set(re.findall(r"[\s([{]attnlab\.(\w+)[(\[]", code))
    assert {"softmax", "table"} <= typed <= set(dir(attnlab))


@pytest.mark.parametrize("result", ["trace", "trace.blocks[0].attention", "trace.head(0, 1)"])
def test_internals_are_not_completed(result: str) -> None:
    trace = attnlab.GPT2.from_pretrained("pocket").trace([1, 2, 3])
    names = {name for name in dir(eval(result, {"trace": trace})) if not name.startswith("_")}
    assert {"explain", "plot", "tokens", "title"} <= names
    assert set(eval(f"{result}.steps", {"trace": trace})) <= names
    assert not names & {
        "children",
        "computation_of",
        "graph_as_data",
        "hint",
        "note",
        "table_steps",
    }
