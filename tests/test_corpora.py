"""The guide's recipes for corpora in other formats, with local files."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

import attnlab
from attnlab.corpus.result import Atlas

GUIDE = Path(__file__).parents[1] / "examples" / "book" / "pages" / "en" / "guide.md"
TEXTS = [
    "The dog chased the ball, but it rolled.",
    "“The cat” – naïve 猫\nsecond line",
    "A shy girl",
]


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lines = (json.dumps({"id": n, "text": text}) + "\n" for n, text in enumerate(TEXTS))
    Path("corpus.jsonl").write_text("".join(lines), encoding="utf-8")


def run_recipe(library: str) -> Atlas:
    """Run the guide's block that imports a library, with the pocket model."""
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.S)
    (recipe,) = (block for block in blocks if re.match(rf"(import|from) {library}\b", block))
    names: dict[str, Any] = {"attnlab": attnlab}
    exec(recipe.replace('"gpt2", (', '"pocket", progress=False, texts=('), names)
    atlas: Atlas = names["atlas"]
    return atlas


def check(atlas: Atlas) -> None:
    expected = attnlab.atlas("pocket", TEXTS, progress=False)
    assert atlas["first"].mean.tobytes() == expected["first"].mean.tobytes()
    assert repr(atlas) == repr(expected)


def test_json_lines() -> None:
    check(run_recipe("json"))


def test_parquet() -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = arrow.table({"id": [*range(len(TEXTS))], "text": TEXTS})
    parquet.write_table(table, "corpus.parquet", row_group_size=2)
    check(run_recipe("pyarrow"))


def test_datasets() -> None:
    pytest.importorskip("datasets")
    check(run_recipe("datasets"))


def test_a_stream_resumes_without_computing_again() -> None:
    """Texts are read again from the beginning; chunks that are done aren't computed again."""
    read: list[str] = []

    def stream(most: int) -> Any:
        for text in TEXTS[:most]:
            read.append(text)
            yield text
        if most < len(TEXTS):
            raise KeyboardInterrupt

    settings: dict[str, Any] = {"chunk": 1, "directory": "run", "progress": False}
    with pytest.raises(KeyboardInterrupt):
        attnlab.atlas("pocket", stream(2), **settings)
    done = {file: file.stat().st_mtime_ns for file in Path("run").glob("chunk-*")}
    assert done
    read.clear()
    found = attnlab.atlas("pocket", stream(3), **settings)
    assert read == TEXTS
    assert done.items() <= {f: f.stat().st_mtime_ns for f in Path("run").glob("chunk-*")}.items()
    assert repr(found) == repr(attnlab.atlas("pocket", TEXTS, chunk=1, progress=False))
