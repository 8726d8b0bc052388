"""Files: paths, reading, and atomic writing."""

import base64
import contextlib
import errno
import gzip
import math
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from files import copy_model
from hypothesis import given
from hypothesis import strategies as st

import attnlab.support.files
from attnlab import GPT2, figures
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
    LARGEST,
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


def make_odd(kind: str, path: Path) -> Path:
    """Something that isn't a regular file."""
    if kind == "directory":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path.name)  # in the working directory: its path may have 108 bytes
    else:
        try:
            os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 5))  # like /dev/zero
        except PermissionError:
            pytest.skip("only an administrator can create a device")
    return path


ODD = ("directory", "pipe", "socket", "device")
READERS: tuple[Callable[..., Any], ...] = (read_bytes, read_text, read_json)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


# Paths


def ascii_id(value: object) -> str:
    """The same in every process."""
    return ascii(quoted(value)).partition(" at 0x")[0]


class Raising:
    def __fspath__(self) -> Any:
        raise RuntimeError


class Odd:
    def __fspath__(self) -> Any:
        return 5

    def __repr__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("names", "error", "words"),
    [
        (
            [5, 0, True, None, b"name", ["name"], Odd(), Raising(), 10**5000],
            InvalidTypeError,
            "path must be a str or a Path; got ",
        ),
        ([""], InvalidValueError, "path is empty"),
        (
            ["a\0b", "a\ud800b", Path("a\0b"), Path("a\udfffb")],
            InvalidValueError,
            "path has a character that file names can't have",
        ),
    ],
    ids=["types", "empty", "characters"],
)
def test_invalid_paths(names: list[Any], error: type[Exception], words: str, here: Path) -> None:
    for call in (
        *(as_path, make_directory, lambda path: write_atomically(path, b"")),
        *(lambda path, read=read: read(path, ConfigError) for read in READERS),
    ):
        for name in names:
            with pytest.raises(error, match=words):
                call(name)
    assert not any(here.iterdir())
    with pytest.raises(InvalidValueError, match="directory is empty"):
        as_path("", "directory")


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


@pytest.mark.parametrize("path", ["file", "a link to a link", "through a link"])
def test_writing_through_a_link_keeps_the_link(path: str, here: Path) -> None:
    (here / "place").mkdir()
    file = here / "place" / "file"
    file.write_bytes(b"old")
    links = {
        "file": "place/file",
        "place/second": "../file",
        "a link to a link": "place/second",
        "through a link": "directory/file",
        "directory": "place",
    }
    for link, target in links.items():
        (here / link).symlink_to(target)
    before = names(here)
    write_atomically(path, b"new")
    assert file.read_bytes() == b"new"
    assert not file.is_symlink()
    assert names(here) == before
    assert names(file.parent) == ["file", "second"]
    assert {link: os.readlink(link) for link in links} == links


def test_links_to_missing_files_and_circular_ones(here: Path) -> None:
    for link, target in (("one", "two"), ("two", "one"), ("self", "self")):
        (here / link).symlink_to(target)
    for path in ("one", "self"):
        assert "symbolic links" in refusal(path)
    (here / "place").mkdir()
    (here / "link").symlink_to("place/file")
    write_atomically("link", b"new")
    assert (here / "link").is_symlink()
    assert (here / "place/file").read_bytes() == b"new"
    (here / "lost").symlink_to("nowhere/file")
    assert refusal("lost") == f"lost can't be written: directory {here}/nowhere doesn't exist"


@pytest.mark.parametrize("kind", ODD)
def test_special_files_are_not_replaced(kind: str, here: Path) -> None:
    odd = make_odd(kind, here / "odd")
    (here / "link").symlink_to(odd)
    before = os.lstat(odd)
    for path in ("odd", "link"):
        assert refusal(path) == f"{path} can't be written: it is a {kind}, not a regular file"
    after = os.lstat(odd)
    assert (after.st_ino, after.st_mode) == (before.st_ino, before.st_mode)


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


def test_private_files_are_private_while_being_written(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = here / "file"
    file.write_bytes(b"old")
    file.chmod(0o600)
    modes = []

    def fsync(descriptor: int) -> None:
        modes.append(stat.S_IMODE(os.fstat(descriptor).st_mode))

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "chmod", raise_os_error(errno.EPERM))  # a file system that has no modes
    write_atomically(file, b"new")
    assert modes == [0o600]


def raise_os_error(number: int) -> Callable[..., None]:
    def refused(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    return refused


def test_unusual_file_names(here: Path) -> None:
    for name in ("x", "x" * 245, "x" * LONGEST_NAME, "é" * (LONGEST_NAME // 2)):
        for content in (b"new", b"newer"):
            write_atomically(name, content)
            assert (here / name).read_bytes() == content
    write_atomically("a\udcffb", b"new")
    assert b"a\xffb" in os.listdir(b".")


def test_unwritable_files_are_reported(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "file").write_bytes(b"old")
    assert "Not a directory" in refusal("file/below")
    assert refusal("none/file").endswith("directory none doesn't exist")
    assert "too long" in refusal("x" * (LONGEST_NAME + 1))
    assert "too long" in refusal("x/" * 3000)
    for name in ("fsync", "replace"):
        monkeypatch.setattr(os, name, raise_os_error(errno.ENOSPC))
        assert refusal("file") == "file can't be written: No space left on device"
        monkeypatch.undo()
        monkeypatch.chdir(here)
    assert (here / "file").read_bytes() == b"old"


@pytest.mark.parametrize("room", [0, 10_000])
def test_full_disk_leaves_no_partial_file(room: int, here: Path) -> None:
    """Like a full disk: the system's own error, in the middle."""
    code = (
        "import resource, signal; from attnlab.support.files import write_atomically\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({room}, {room}))\n"
        f"write_atomically('file', b'new' * (1 + {room}))\n"
    )
    (here / "file").write_bytes(b"old")
    finished = run(code)
    assert "WriteError: file can't be written: File too large" in finished.stderr
    assert names(here) == ["file"]
    assert (here / "file").read_bytes() == b"old"


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=False, timeout=60
    )


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


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("reads", READERS)
def test_only_regular_files_are_read(reads: Callable[..., Any], kind: str, here: Path) -> None:
    make_odd(kind, here / "odd")
    (here / "link").symlink_to("odd")
    for path in ("odd", "link"):
        with pytest.raises(ConfigError, match=f"{path} can't be read: ") as caught:
            reads(path, ConfigError)
    if kind in ("pipe", "device"):
        assert str(caught.value) == f"link can't be read: it is a {kind}, not a regular file"


def test_opening_pipes_does_not_block(here: Path) -> None:
    files = ("config.json", "vocab.json", "merges.txt", "model.safetensors.index.json")
    for name in files:
        model = copy_model("sharded", here / name)
        (model / name).unlink()
        os.mkfifo(model / name)
    message = run(
        f"import attnlab\nfor name in {files}:\n"
        "    try: attnlab.GPT2.from_pretrained(name)\n"
        "    except attnlab.AttnlabError as error: print(error)"
    ).stdout.splitlines()
    for line, name in zip(message, files, strict=True):
        assert name in line


def test_size_limits(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for size, readers in ((20_000_000_000, (read_text, read_json)), (LARGEST + 1, (read_bytes,))):
        with open("sparse", "wb") as stream:
            stream.truncate(size)
        for reads in readers:
            with pytest.raises(ConfigError, match="sparse can't be read: it is larger than 64,000"):
                reads("sparse", ConfigError)
    os.truncate("sparse", LARGEST)
    assert len(read_bytes("sparse", ConfigError)) == LARGEST
    # Like those in /proc, which have size 0.
    (here / "file").write_bytes(b"x" * 200)
    monkeypatch.setattr(attnlab.support.files, "LARGEST", 100)
    monkeypatch.setattr(os, "fstat", lambda _: os.stat_result((stat.S_IFREG, *[0] * 9)))
    with pytest.raises(ConfigError, match="larger than 100 bytes"):
        read_bytes("file", ConfigError)


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
    for encoding in ("utf-16", "utf-32"):  # Python writes the mark
        (here / "file").write_bytes("猫\r\na".encode(encoding))
        assert read_text("file", ConfigError) == "猫\na"
    (here / "file").write_bytes(b"\xff\xfe{")
    with pytest.raises(ConfigError, match=r"file can't be read: it isn't UTF-16"):
        read_text("file", ConfigError)


def test_what_a_file_is_that_is_not_text(here: Path) -> None:
    np.savez(here / "a.npz", np.ones(3))
    np.save(here / "a.npy", np.ones(3))
    (here / "a.gz").write_bytes(gzip.compress(b"The cat"))
    (here / "a.png").write_bytes(base64.b64decode("iVBORw0KGgoAAAANSUhEUg=="))
    (here / "a.pdf").write_bytes(b"%PDF-1.4")
    (here / "a.txt").write_bytes("The cat".encode("utf-16-le"))
    for name, kind in {
        "a.npz": "a ZIP archive, as .npz, .docx",
        "a.npy": "an array written by numpy.save",
        "a.gz": "compressed with gzip",
        "a.png": "a PNG picture",
        "a.pdf": "a PDF",
        "a.txt": "binary, or UTF-16 without a byte order mark",
    }.items():
        with pytest.raises(ConfigError, match=f"{name} can't be read as text: it is {kind}"):
            read_text(name, ConfigError)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"a": %s1%s}' % (b"[" * 100_000, b"]" * 100_000), "it is nested too deeply"),
        (b'{"a": %s1%s}' % (b'{"a": ' * 100_000, b"}" * 100_000), "it is nested too deeply"),
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


@pytest.mark.parametrize("at", [1, 2, 3, 4])
def test_an_interrupted_save_is_all_new(
    at: int, odd: GPT2, pocket: GPT2, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C between the files of a model that is saved over another."""
    pocket.save(tmp_path)
    moved, calls = os.replace, []

    def replace(start: Any, end: Any) -> None:
        moved(start, end)
        calls.append(end)
        if len(calls) == at:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(KeyboardInterrupt):
        odd.save(tmp_path)
    assert GPT2.from_pretrained(tmp_path).parameters.equals(odd.parameters)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
