"""Paths as users give them, small files to be read, files written whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import re
import stat
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, BinaryIO

from numpy.lib import format as npy

from attnlab.equations import AnyArray
from attnlab.errors import (
    AttnlabError,
    InvalidTypeError,
    InvalidValueError,
    MissingFileError,
    WriteError,
    quoted,
)
from attnlab.support.checks import errors_of

if sys.platform != "win32":
    import fcntl

# The most bytes of a file that is read at once. The largest tokenizer's JSON has 35 MB.
LARGEST = 64_000_000

# The most digits that an integer in JSON has, one of more is a float. transformers writes 10³⁰ for
# a length without a limit.
DIGITS = 40
# More of them, once every digit is written as 0: found ten times as fast as by a pattern.
MANY_DIGITS = b"0" * (DIGITS + 1)
AS_ZEROS = bytes.maketrans(b"123456789", b"000000000")

# What a file is called while it is written, 64 random bits in the middle. Short, as the name that
# it gets in the end may be as long as the file system takes.
ASIDE = "attnlab-{}.part"
IS_ASIDE = re.compile(r"attnlab-[0-9a-f]{16}\.part")

# The longest path, in bytes, that any system takes: Windows does.
LONGEST_PATH = 32_767

# How many links lead from one to the next before that is a circle, as Linux counts.
LINKS = 40

KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}

Given = str | os.PathLike[str]


def as_path(given: Given, name: str = "path") -> Path:
    """A path as a user gave it, `~` expanded.

    Parameters
    ----------
    given : a str or PathLike
    name : what an error calls it
    """
    try:
        text = os.fspath(given)
    except Exception:  # an object may make its path as it likes
        text = None
    if not isinstance(text, str):
        raise InvalidTypeError(f"{name} must be a str or a Path; got {quoted(given)}")
    if not text:
        raise InvalidValueError(f"{name} is empty: give the name of a file or directory")
    try:
        encoded = os.fsencode(text)
        encodable = b"\0" not in encoded
    except UnicodeEncodeError:
        encodable = False
    if not encodable:
        raise InvalidValueError(f"{name} holds a character that no file's name has: {quoted(text)}")
    if len(encoded) > LONGEST_PATH:
        raise InvalidValueError(f"{name} is longer than any system takes: {quoted(text)}")
    path = Path(os.path.expanduser(text))
    # What begins with ~ here is a file's own name, and stays that when it comes here again.
    return path.absolute() if str(path).startswith("~") else path


def read_bytes(path: Given, unreadable: type[AttnlabError]) -> bytes:
    """What a small file holds, up to LARGEST bytes.

    Raises
    ------
    unreadable
        It can't be read, is too large, or is a directory, pipe or device.
    """
    file = as_path(path)
    try:
        with open_regular(file) as stream:
            content = stream.read(LARGEST + 1)
    except FileNotFoundError:
        raise MissingFileError(f"there is no {file.name} in {file.parent}") from None
    except OSError as error:
        raise unreadable(f"{file} can't be read: {_reason(error)}") from None
    if len(content) > LARGEST:
        raise unreadable(f"{file} can't be read: it has more than {LARGEST:,} bytes")
    return content


def open_regular(file: Path) -> BinaryIO:
    """Open an ordinary file for reading. On a pipe one would wait, a device may never end."""
    # A pipe that nobody writes to would keep already the opening waiting.
    without_waiting = getattr(os, "O_NONBLOCK", 0)
    stream = open(file, "rb", opener=lambda name, flags: os.open(name, flags | without_waiting))  # noqa: SIM115
    try:
        _check_regular(os.fstat(stream.fileno()))
    except OSError:
        stream.close()
        raise
    return stream


def read_text(path: Given, unreadable: type[AttnlabError]) -> str:
    """A small file's text, UTF-8, with or without a byte order mark; each line end is a `\\n`."""
    return decoded_text(read_bytes(path, unreadable), as_path(path), unreadable)


def decoded_text(content: bytes, where: object, unreadable: type[AttnlabError]) -> str:
    """The text that bytes are, as `read_text` reads it; `where` is what an error calls it."""
    text = _decoded(content, where, unreadable)
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_json(path: Given, unreadable: type[AttnlabError]) -> dict[str, Any]:
    """The one JSON object that a small file holds."""
    return parse_json(read_bytes(path, unreadable), as_path(path), unreadable)


def parse_json(content: bytes, where: object, unreadable: type[AttnlabError]) -> dict[str, Any]:
    """One JSON object, taken strictly: what two readers could read in two ways is refused.

    Numbers are as Python reads them, NaN and Infinity too, and what is longer than DIGITS is a
    float: under a name that matters they are refused by who asks for that name.

    Parameters
    ----------
    content : UTF-8
    where : what an error calls it, such as the file

    Raises
    ------
    unreadable
        It is not a JSON object, or repeats a name.
    """
    text = _decoded(content, where, unreadable)
    try:
        parse_int = _integer if MANY_DIGITS in content.translate(AS_ZEROS) else None
        value = json.loads(text, object_pairs_hook=_distinct, parse_int=parse_int)
    except RecursionError:
        raise unreadable(f"{where} can't be read as JSON: it is nested too deeply") from None
    except ValueError as error:
        raise unreadable(f"{where} can't be read as JSON: {error}") from None
    if not isinstance(value, dict):
        raise unreadable(f"{where} must hold one JSON object, and holds a {type(value).__name__}")
    return value


def read_npz(path: Given, most: int) -> dict[str, AnyArray]:
    """The arrays in a file that `numpy.savez` wrote.

    A file of few bytes may say that it holds billions of numbers, and does if they are all 0. So
    every array's header is read before the numbers of any.

    Parameters
    ----------
    most : how many numbers an array has at most
    """
    import zipfile  # here, so that `import attnlab` is quick

    file = as_path(path, "file")
    what = f"{file} isn't a file that numpy.savez wrote"
    try:
        stream = open_regular(file)
    except FileNotFoundError:
        raise MissingFileError(f"there is no {file.name} in {file.parent}") from None
    except OSError as error:
        raise InvalidValueError(f"{what}: {_reason(error)}") from None
    with stream, errors_of(InvalidValueError, what):
        if stream.read(len(npy.MAGIC_PREFIX)) == npy.MAGIC_PREFIX:
            raise ValueError("it has one unnamed array, as numpy.save writes it")
        with zipfile.ZipFile(stream) as archive:
            for name in archive.namelist():
                with archive.open(name) as member:
                    _check_header(name, member, most)
            return {
                name.removesuffix(".npy"): npy.read_array(member, allow_pickle=False)
                for name in archive.namelist()
                for member in [archive.open(name)]
            }


def _check_header(name: str, member: IO[bytes], most: int) -> None:
    """Refuse an array of more than so many numbers, of at most 128 bits each."""
    if npy.read_magic(member) != (1, 0):  # of longer headers, which arrays of numbers have not
        raise ValueError(f"{name} is no array of numbers")
    shape, _, dtype = npy.read_array_header_1_0(member)
    if math.prod(shape) > most or dtype.itemsize > 16:
        raise ValueError(
            f"{name} is {dtype} of shape {shape}, and nothing that it can be compared with has "
            f"more than {most:,} numbers"
        )


def make_directory(path: Given) -> None:
    """Make a directory and those above it, if it is not there."""
    directory = as_path(path)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WriteError(f"{directory} can't be made: {_reason(error)}") from None


def write_whole(path: Given, content: bytes) -> None:
    """Write a file to the side, then rename it, so that at any moment the old or the new is there.

    A link stays, and what it leads to is written. A file that is there keeps its mode, and its
    owner where that may be.
    """
    file = as_path(path)
    try:
        target = _end_of_links(file)
        try:
            old = os.stat(target)
        except FileNotFoundError:
            old = None
        if old is not None:
            _check_regular(old)
        elif not os.path.isdir(target.parent):
            raise OSError(f"there is no directory {target.parent}")
        _remove_abandoned(target.parent)
        _replace(target, content, old)
    except OSError as error:
        raise WriteError(f"{file} can't be written: {_reason(error)}") from None


@contextlib.contextmanager
def held(path: Given) -> Iterator[None]:
    """Hold a file for oneself, of all processes and their threads.

    It is made, and removed in the end. When its holder dies, however that may be, it is free.
    """
    from filelock import FileLock, Timeout  # which huggingface_hub brings

    file = as_path(path)
    if file.is_symlink():  # early versions of filelock empty what it leads to
        raise WriteError(f"{file} can't be locked: it is a link")
    lock = FileLock(file, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise WriteError(
            f"{file} can't be locked: another run is using the directory. Wait until it has ended, "
            "or use another directory"
        ) from None
    except NotImplementedError:  # the file system has no locks: go on without one, as for ENOLCK
        pass
    except OSError as error:
        if error.errno != errno.ENOLCK:
            raise WriteError(f"{file} can't be locked: {_reason(error)}") from None
    _held.add(lock)
    try:
        yield
    finally:
        _held.discard(lock)
        with contextlib.suppress(OSError):  # Windows keeps what is open, and filelock removes it
            os.unlink(file)  # while it is locked, so that nobody else's is removed
        lock.release()


def _let_go_in_fork() -> None:
    """Close the locks that a forked process inherits, which would hold them after its parent.

    The parent's lock stays: it is freed when the last descriptor of it is closed, or by itself.
    """
    for lock in _held:
        descriptor = getattr(getattr(lock, "_context", None), "lock_file_fd", None)
        if descriptor is not None:
            os.close(descriptor)
            lock._context.lock_file_fd = None
    _held.clear()


# The locks that this process holds.
_held: set[Any] = set()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go_in_fork)


def _replace(target: Path, content: bytes, old: os.stat_result | None) -> None:
    """Write a file to the side, then give it the name of the one that is there, or is not."""
    mode = 0o666 if old is None else stat.S_IMODE(old.st_mode)
    with _aside(target.parent, mode) as stream:
        try:
            if old is not None:
                if sys.platform != "win32":
                    with contextlib.suppress(OSError):  # only an administrator may always
                        os.chown(stream.fileno(), old.st_uid, old.st_gid)
                with contextlib.suppress(OSError):  # a file system without modes
                    os.chmod(stream.name, mode)
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
            if sys.platform == "win32":
                stream.close()  # there an open file can't be renamed
            os.replace(stream.name, target)
        except BaseException:  # Ctrl-C too leaves nothing behind
            with contextlib.suppress(OSError):
                stream.close()
            with contextlib.suppress(OSError):
                os.unlink(stream.name)
            raise


def _aside(directory: Path, mode: int) -> BinaryIO:
    """A new file with a name of its own, locked until it is closed, so that nobody removes it."""
    while True:
        name = directory / ASIDE.format(os.urandom(8).hex())
        stream = open(name, "xb", opener=lambda path, flags: os.open(path, flags, mode))  # noqa: SIM115
        if sys.platform != "win32":
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(stream, fcntl.LOCK_EX)
            if not os.path.exists(name):  # taken for abandoned, before it was locked
                stream.close()
                continue
        return stream


def _remove_abandoned(directory: Path) -> None:
    """Remove what was left by processes that were killed while they wrote: nobody has it locked.

    On Windows, which has no such locks, it stays.
    """
    names: list[str] = []
    with contextlib.suppress(OSError):  # a directory that may be written to, and not read
        names = os.listdir(directory)
    if sys.platform != "win32":
        for part in (directory / name for name in names if IS_ASIDE.fullmatch(name)):
            with contextlib.suppress(OSError):  # locked: somebody is writing it
                descriptor = os.open(part, os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    os.unlink(part)
                finally:
                    os.close(descriptor)


def _end_of_links(file: Path) -> Path:
    """Where a link leads in the end, whether that is there or not; else the file itself."""
    for _ in range(LINKS):
        try:
            file = file.parent / os.readlink(file)
        except OSError:  # no link
            return file
    raise OSError("it is a link that leads in a circle")


def _check_regular(status: os.stat_result) -> None:
    kind = stat.S_IFMT(status.st_mode)
    if kind != stat.S_IFREG:
        raise OSError(f"it is {KINDS.get(kind, 'something else')} and no ordinary file")


def _reason(error: OSError) -> str:
    """What an error of the system's says, without its number and the path."""
    return error.strerror or str(error)


def _decoded(content: bytes, where: object, unreadable: type[AttnlabError]) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise unreadable(
            f"{where} can't be read: it is not UTF-8, {error}; save it as UTF-8"
        ) from None


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        name, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise ValueError(f"{quoted(name)} stands there twice")
    return members


def _integer(digits: str) -> int | float:
    return int(digits) if len(digits) <= DIGITS else float(digits)
