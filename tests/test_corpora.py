"""Corpora in files, and as streams."""

import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import attnlab
from attnlab.corpus.result import Atlas
from attnlab.errors import InvalidValueError, MissingFileError
from attnlab.text.corpora import read_corpus, texts_of

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
    Path("folder").mkdir()
    Path("corpus.jsonl").rename("folder/a.jsonl")
    check(measured("pocket", "folder"))
    assert [text.name for text in texts_of("folder")] == [f"a.jsonl, line {n}" for n in (1, 2, 3)]


def contents(name: str, content: str) -> list[str]:
    return [text.content or text.fault for text in texts_of(written(name, content))]


def test_a_tables_cells_are_those_of_its_columns() -> None:
    """A comma or a quotation mark in the wrong place never cuts or joins texts."""
    table = "text,id\nThe cat,0\nHello, world, this is it,1\n\nThe dog,2\nA ball\n"
    assert contents("a.csv", table) == [
        "The cat",
        "a.csv, row 2, line 3, has 4 cells for 2 columns; quote a cell that has a comma",
        "The dog",
        "a.csv, row 4, line 6, has 1 cells for 2 columns; quote a cell that has a comma",
    ]
    tabs = 'id\ttext\n1\t"The cat\n2\t"The dog" and, a cat\n3\tA ball\t4\n'
    assert contents("a.tsv", tabs) == [
        '"The cat',
        '"The dog" and, a cat',
        "a.tsv, row 3, line 4, has 3 cells for 2 columns",
    ]
    unclosed = 'id,text\n1,"The cat\nsat"\n2,"The dog\n3,A ball\n'
    for content in (unclosed, unclosed.replace("dog", 'dog" sat')):
        with pytest.raises(InvalidValueError, match=r"a\.csv can't be read .* from line 4 on"):
            contents("a.csv", content)
    with pytest.raises(InvalidValueError, match=r"a\.csv has two columns"):
        contents("a.csv", "text,text\nThe cat,The dog\n")


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines_may_end_in_three_ways(end: str) -> None:
    assert contents("a.txt", f"The cat{end}{end}A dog") == ["The cat", "A dog"]
    assert contents("a.csv", f'text{end}The cat{end}"A{end}dog"{end}') == ["The cat", "A\ndog"]
    assert contents("a.jsonl", f'"The cat"{end}"A dog"') == ["The cat", "A dog"]


def test_file_names_never_reach_the_terminal_raw() -> None:
    """Names with escapes, a bell and a mark that turns text round, of a directory's files."""
    Path("folder").mkdir()
    written("folder/a\x1b[31m\x07\u202e.txt", "The dog chased the ball. The dog barked.")
    written("folder/b\x1b.csv", "body\nThe cat")
    atlas = measured("pocket", "folder", ["induction", "loss"])
    (passage,) = atlas["induction"].most(1, 2)
    assert passage.text == r"a\x1b[31m\x07\u202e.txt"
    shown = [atlas, atlas["induction"], passage, *atlas.faults]
    for text in [*map(repr, shown), *map(str, shown), atlas._repr_html_()]:
        assert not re.search("[\x00-\x09\x1b\u202e]", text)


def test_links_out_of_a_directory_are_not_followed() -> None:
    Path("inside").mkdir()
    written("inside/a.txt", "The cat")
    written("secret.txt", "A dog")
    for link, target in (("b.txt", "a.txt"), ("c.txt", "../secret.txt"), ("d", "..")):
        Path("inside", link).symlink_to(target)
    texts = {text.name: text for text in texts_of("inside")}
    assert [*texts] == ["a.txt", "b.txt", "c.txt", "d"]
    assert texts["b.txt"].content == "The cat"
    for name in ("c.txt", "d"):
        assert not texts[name].content
        assert "it isn't followed" in texts[name].fault


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
    for kept in (text, "The cat sat.", "1.5", "", "a\0b", "x/" * 5000, "and/or\n"):
        assert read_corpus(kept) == kept
    for missing in ("inptu.txt", Path("nowhere"), "no/such/file.md", "no/such/file", "my file.md"):
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
