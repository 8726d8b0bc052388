"""Corpora in files, and as streams."""

import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import attnlab
from attnlab.corpus.result import Atlas
from attnlab.corpus.texts import read_corpus, texts_of
from attnlab.errors import InvalidValueError, MissingFileError

measured = partial(attnlab.atlas, progress=False)
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


def check(atlas: Atlas) -> None:
    expected = measured("pocket", TEXTS)
    assert atlas["first"].mean.tobytes() == expected["first"].mean.tobytes()
    assert repr(atlas) == repr(expected)


def written(name: str, content: str, encoding: str = "utf-8") -> str:
    Path(name).write_bytes(content.encode(encoding))
    return name


def test_files_of_records() -> None:
    """JSON Lines and tables are read as records, in a directory too."""
    check(measured("pocket", "corpus.jsonl"))
    quoted = "".join(f'{n},"{text}"\r\n' for n, text in enumerate(TEXTS))
    check(measured("pocket", written("corpus.csv", f"id,text\r\n{quoted}", "utf-8-sig")))
    long = "The dog barked. " * 10_000  # more than csv's limit of 131,072 characters
    [text] = texts_of(written("long.csv", f'text\n"{long}"\n'))
    assert text.content == long
    tabs = quoted.replace(',"', '\t"')
    check(measured("pocket", written("corpus.tsv", f"id\ttext\n{tabs}")))
    Path("folder").mkdir()
    Path("corpus.jsonl").rename("folder/a.jsonl")
    check(measured("pocket", "folder"))
    assert [text.name for text in texts_of("folder")] == [f"a.jsonl, line {n}" for n in (1, 2, 3)]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "a.jsonl",
            '{"id": 0, "body": "x"}',
            "a.jsonl, line 1, has no .text. field .* 'id', 'body'",
        ),
        ("a.json", '[\n"The cat"\n]', "a.json, line 1, isn't a record in JSON. Write one"),
        ("a.csv", "id,body\n1,The cat", "a.csv, row 1, has no .text. column .* 'id', 'body'"),
        ("a.txt", "PK\3\4\0", "a.txt can't be read as text: it is binary"),
    ],
)
def test_files_without_texts(name: str, content: str, message: str) -> None:
    written(name, content)
    for reads in (partial(measured, "pocket"), read_corpus):
        with pytest.raises(InvalidValueError, match=message):
            reads(name)
    Path("folder").mkdir()
    Path(name).rename(f"folder/{name}")
    (text,) = texts_of("folder")
    assert re.search(message, text.fault)


def test_later_records_without_a_text_are_faults() -> None:
    written("a.jsonl", '{"text": "The cat"}\n{"text": 5}\nThe\n"A dog"')
    assert [(text.name, text.content, bool(text.fault)) for text in texts_of("a.jsonl")] == [
        ("line 1", "The cat", False),
        ("line 2", "", True),
        ("line 3", "", True),
        ("line 4", "A dog", False),
    ]
    with pytest.raises(InvalidValueError, match=r"a.jsonl, line 2, has no"):
        read_corpus("a.jsonl")


def test_a_corpus_to_train_on_may_be_a_path() -> None:
    """Files are read, never their names; a text stays a text."""
    text = "The cat\n\nsat. 猫\n"
    written("input.txt", text)
    assert read_corpus("input.txt") == read_corpus(Path("input.txt")) == text
    assert read_corpus("corpus.jsonl") == "\n".join(TEXTS)
    for kept in (text, "The cat", "", "a\0b", "x" * 5000):
        assert read_corpus(kept) == kept
    for missing in ("inptu.txt", Path("nowhere")):
        with pytest.raises(MissingFileError, match="not found; corpus must be"):
            read_corpus(missing)
    config = attnlab.GPT2Config(vocab_size=256, n_positions=4, n_embd=4, n_layer=1, n_head=1)
    train = partial(attnlab.train, config, steps=1, batch_size=2, progress=False)
    assert train(Path("input.txt")).losses == train("input.txt").losses == train(text).losses


def test_streams_resume_without_recomputing() -> None:
    """Texts are read again from the beginning; chunks that are done aren't computed again."""
    read: list[str] = []

    def stream(most: int) -> Any:
        for text in TEXTS[:most]:
            read.append(text)
            yield text
        if most < len(TEXTS):
            raise KeyboardInterrupt

    settings: dict[str, Any] = {"chunk": 1, "directory": "run"}
    with pytest.raises(KeyboardInterrupt):
        measured("pocket", stream(2), **settings)
    done = {file: file.stat().st_mtime_ns for file in Path("run").glob("chunk-*")}
    assert done
    read.clear()
    atlas = measured("pocket", stream(3), **settings)
    assert read == TEXTS
    assert done.items() <= {f: f.stat().st_mtime_ns for f in Path("run").glob("chunk-*")}.items()
    assert repr(atlas) == repr(measured("pocket", TEXTS, chunk=1))
