"""Files: paths, reading, and atomic writing."""

import contextlib
import errno
import gzip
import math
import os
import stat
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnlab import figures
from attnlab.errors import (
    AttnlabError,
    ConfigError,
    InvalidTypeError,
    InvalidValueError,
    MissingFileError,
    WriteError,
    quoted,
)
from attnlab.support.files import (
    LARGEST_FILE,
    as_path,
    make_directory,
    parse_json,
    read_bytes,
    read_json,
    read_text,
    write_atomically,
)

LONGEST_NAME = 255  # bytes, on Linux and macOS


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def refusal(path: Any) -> str:
    """The error message of writing a path; the working directory is unchanged."""
    before = names(Path())
    with pytest.raises(WriteError) as caught:
        write_atomically(path, b"new")
    assert names(Path()) == before
    return str(caught.value)


def make_special(kind: str, path: Path) -> None:
    """Something that isn't a regular file."""
    if kind == "directory":
        path.mkdir()
    else:
        os.mkfifo(path)


READERS: tuple[Callable[..., Any], ...] = (read_bytes, read_text, read_json)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


# Paths


def ascii_id(value: object) -> str:
    """The same in every process."""
    return ascii(quoted(value)).partition(" at 0x")[0]


class Odd:
    def __fspath__(self) -> Any:
        return 5

    def __repr__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("path", "error", "words"),
    [
        (5, InvalidTypeError, "path must be a str or a Path; got 5"),
        (b"name", InvalidTypeError, "path must be a str or a Path; got b'name'"),
        (Odd(), InvalidTypeError, "path must be a str or a Path; got an object of type Odd"),
        ("", InvalidValueError, "path is empty"),
        ("a\0b", InvalidValueError, "path has a character that file names can't have"),
        (Path("a\ud800b"), InvalidValueError, "path has a character that file names can't have"),
    ],
    ids=ascii_id,
)
def test_invalid_paths(path: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        as_path(path)


def test_a_tilde_is_the_home_directory(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(here / "home"))
    assert as_path("~/a") == as_path(Path("~") / "a") == here / "home" / "a"
    make_directory("~/new")
    write_atomically("~/new/file", b"new")
    assert (here / "home/new/file").read_bytes() == b"new"
    # The user's name for a file is kept.
    assert as_path(as_path("./~/a")) == here / "~" / "a"
    assert as_path("~nobody-of-this-name/a").name == "a"
    assert as_path("a~b") == Path("a~b")


def test_messages_are_printable_and_shortened() -> None:
    for message, expected in (
        ("", ""),
        ("a\x1b[2J\nb", "a\\x1b[2J\nb"),
        ("x" * 1000, "x" * 90 + "…" + "x" * 90),
        ("word " * 400, "word " * 400),  # 2000 characters
    ):
        assert str(AttnlabError(message)) == expected
    message = str(AttnlabError("first " + "word " * 1000 + "last"))
    assert len(message) == 2000
    assert message.startswith("first word ")
    assert message.endswith(" word last")
    assert quoted("x") == "'x'"
    assert quoted(Odd()) == "an object of type Odd"
    assert quoted(10**5000) == "an object of type int"
    assert quoted([7] * 100, 10) == "[7, 7, 7,…"


def test_uncreatable_directories(here: Path) -> None:
    (here / "file").write_text("")
    for path in ("file", "file/below", "x" * 300):
        with pytest.raises(WriteError, match=f"{path[:9]}.* can't be created: "):
            make_directory(path)
    make_directory("a/b")
    make_directory("a/b")
    assert (here / "a/b").is_dir()


# Writing


def test_writing_through_a_link_keeps_the_link(here: Path) -> None:
    (here / "place").mkdir()
    (here / "place/link").symlink_to("../file")
    (here / "link").symlink_to("place/link")
    for content in (b"new", b"newer"):
        write_atomically("link", content)
        assert (here / "file").read_bytes() == content
        assert os.readlink(here / "link") == "place/link"
    (here / "lost").symlink_to("nowhere/file")
    assert refusal("lost") == f"lost can't be written: directory {here}/nowhere doesn't exist"


@pytest.mark.parametrize("kind", ["directory", "pipe"])
def test_special_files_are_neither_replaced_nor_read(kind: str, here: Path) -> None:
    """A pipe without a writer would block."""
    make_special(kind, here / "special")
    (here / "link").symlink_to("special")
    for path in ("special", "link"):
        assert refusal(path) == f"{path} can't be written: it isn't a regular file"
        for reads in READERS:
            with pytest.raises(ConfigError, match=f"{path} can't be read: it isn't a regular"):
                reads(path, ConfigError)
    assert not (here / "special").is_file()


@pytest.fixture
def umask() -> Iterator[Callable[[int], int]]:
    """Sets the umask for the time of a test."""
    old = os.umask(0o022)
    yield os.umask
    os.umask(old)


@pytest.mark.parametrize("mode", [0o600, 0o666, 0o755])
def test_file_modes_are_kept(mode: int, here: Path, umask: Callable[[int], int]) -> None:
    file = here / "file"
    file.write_bytes(b"old")
    file.chmod(mode)
    umask(0o077)
    write_atomically(file, b"new")
    assert stat.S_IMODE(file.stat().st_mode) == mode
    assert file.read_bytes() == b"new"


def test_new_files_follow_the_umask(here: Path, umask: Callable[[int], int]) -> None:
    for mask, mode in ((0o022, 0o644), (0o077, 0o600)):
        umask(mask)
        write_atomically(f"{mask}", b"new")
        assert stat.S_IMODE((here / f"{mask}").stat().st_mode) == mode


def raise_os_error(number: int) -> Callable[..., None]:
    def refused(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    return refused


def test_long_names(here: Path) -> None:
    write_atomically("é" * (LONGEST_NAME // 2), b"new")
    assert (here / ("é" * (LONGEST_NAME // 2))).read_bytes() == b"new"


def test_unwritable_files_are_reported(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "file").write_bytes(b"old")
    assert refusal("none/file").endswith("none doesn't exist")
    assert "too long" in refusal("x" * (LONGEST_NAME + 1))
    for name in ("fsync", "replace"):
        monkeypatch.setattr(os, name, raise_os_error(errno.ENOSPC))
        assert refusal("file") == "file can't be written: No space left on device"
        monkeypatch.undo()
        monkeypatch.chdir(here)
    assert (here / "file").read_bytes() == b"old"


def test_eight_threads_write_one_file(here: Path) -> None:
    contents = [bytes([65 + n]) * 200_000 for n in range(8)]
    seen = set()

    def write(content: bytes) -> None:
        for _ in range(25):
            write_atomically("file", content)
            seen.add((here / "file").read_bytes())

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, contents))  # reraises a thread's error
    assert seen <= set(contents)
    assert names(here) == ["file"]


def test_interrupted_write_leaves_no_partial_file(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_atomically("file", b"new")
    assert names(here) == []


# Reading


def test_size_limits() -> None:
    for size in (20_000_000_000, LARGEST_FILE + 1):
        with open("sparse", "wb") as stream:
            stream.truncate(size)
        with pytest.raises(ConfigError, match="sparse can't be read: it is larger than 64,000"):
            read_bytes("sparse", ConfigError)
    os.truncate("sparse", LARGEST_FILE)
    assert len(read_bytes("sparse", ConfigError)) == LARGEST_FILE


def test_missing_files_and_long_names(here: Path) -> None:
    for reads in READERS:
        with pytest.raises(MissingFileError, match=f"there is no file in {here}"):
            reads(here / "file", ConfigError)
        for path in ("x" * 300, "x/" * 3000):
            with pytest.raises(ConfigError, match="can't be read: File name too long"):
                reads(path, ConfigError)


def test_byte_order_mark_and_line_endings(here: Path) -> None:
    (here / "file").write_bytes(b'\xef\xbb\xbf{"a":\r\n1}\r')
    assert read_json("file", ConfigError) == {"a": 1}
    assert read_text("file", ConfigError) == '{"a":\n1}\n'
    (here / "file").write_bytes(b"\xff\xfe{")
    with pytest.raises(ConfigError, match=r"file can't be read: it isn't UTF-8"):
        read_text("file", ConfigError)


def test_binary_files_are_not_text(here: Path) -> None:
    np.savez(here / "a.npz", np.ones(3))
    (here / "a.gz").write_bytes(gzip.compress(b"The cat"))
    (here / "a.txt").write_bytes("The cat".encode("utf-16-le"))
    for name in ("a.npz", "a.gz", "a.txt"):
        with pytest.raises(ConfigError, match=f"{name} can't be read as text: it is binary. Save"):
            read_text(name, ConfigError)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"a": %s1%s}' % (b"[" * 100_000, b"]" * 100_000), "maximum recursion depth"),
        (b'{"a": %s1%s}' % (b'{"a": ' * 100_000, b"}" * 100_000), "maximum recursion depth"),
        (b"", "line 1 column 1"),
        (b'{"a": 1} {}', "Extra data"),
        (b"{'a': 1}", "line 1 column 2"),
        (b'{"a": 1%s}' % (b"0" * 5000), "integer string conversion"),
    ],
    ids=lambda value: value[:16].decode() if isinstance(value, bytes) else "",
)
def test_invalid_json(content: bytes, message: str) -> None:
    with pytest.raises(ConfigError, match="the file can't be read as JSON: ") as caught:
        parse_json(content, "the file", ConfigError)
    assert message in str(caught.value)
    assert len(str(caught.value)) < 200


def test_valid_json() -> None:
    content = (
        b'{"a": {"a": [1, -2.5e3, null, true]}, "": 18446744073709551615, "\\ud83d\\ude00": 0.1}'
    )
    expected = {"a": {"a": [1, -2500.0, None, True]}, "": 2**64 - 1, "😀": 0.1}
    assert parse_json(content, "the file", ConfigError) == expected
    odd = b'{"a": [Infinity, -1e400, 1%s], "b": NaN}' % (b"0" * 30)
    taken = parse_json(odd, "the file", ConfigError)
    assert taken["a"] == [math.inf, -math.inf, 10**30]
    assert math.isnan(taken["b"])
    for content in (b"[]", b"1", b'"{}"', b"null"):
        with pytest.raises(ConfigError, match=r"the file must be a JSON object; got an? "):
            parse_json(content, "the file", ConfigError)


@given(st.binary(max_size=60) | st.text(alphabet='{}[]":,01eE.-+NaInfity \\u', max_size=60))
def test_arbitrary_bytes_are_json_or_an_error(content: bytes | str) -> None:
    raw = content if isinstance(content, bytes) else content.encode()
    with contextlib.suppress(ConfigError):
        assert isinstance(parse_json(raw, "the file", ConfigError), dict)


# Published figures


@pytest.mark.parametrize(
    "name",
    ["", "..", "../figures/walkthrough", "a\0b", "x" * 300, 5, None, [], np.array(["a", "b"])],
    ids=ascii_id,
)
def test_unknown_published_figures(name: Any) -> None:
    with pytest.raises(InvalidValueError, match="name must be one of cat_eats_fish, "):
        figures.load(name)


@pytest.mark.parametrize(
    ("computed", "recorded"),
    [
        ("x", [1.0]),
        ([1.0, 1.0], ["1.0", None]),
        ([1j], [1.0]),
        ([[1.0], [1.0, 2.0]], [[1.0], [1.0, None]]),
        (None, object()),
        ([], []),
        ([10**400], [1.0]),
    ],
    ids=ascii_id,
)
def test_incomparable_figures(computed: Any, recorded: Any) -> None:
    with pytest.raises((InvalidValueError, InvalidTypeError)):
        figures.compare("table", computed, recorded, 2)
    for decimals in (-1, 2.0):
        with pytest.raises((InvalidValueError, InvalidTypeError)):
            figures.compare("table", [1.0], [1.0], decimals)  # type: ignore[arg-type]
