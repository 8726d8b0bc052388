"""Check paths, read small files, and write files atomically."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import stat
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.lib.format import MAGIC_PREFIX

from attnlab.equations import AnyArray
from attnlab.errors import (
    AttnlabError,
    InvalidTypeError,
    InvalidValueError,
    MissingFileError,
    WriteError,
    quoted,
)
from attnlab.support.checks import reraised_as, with_article

if sys.platform != "win32":
    import fcntl

# Size limit, in bytes, of files read into memory. The largest known tokenizer.json is 35 MB.
LARGEST = 64_000_000

# Integers in JSON with more digits are read as floats. transformers writes 10³⁰ for "no limit".
MAX_DIGITS = 40
# To find long integers, map every digit to 0 and search: ten times as fast as a regular expression.
MANY_DIGITS = b"0" * (MAX_DIGITS + 1)
AS_ZEROS = bytes.maketrans(b"123456789", b"000000000")

# Name of a temporary file, with 64 random bits. It doesn't contain the final name, which may
# already be as long as the file system allows.
TEMPORARY = "attnlab-{}.part"
IS_TEMPORARY = re.compile(r"attnlab-[0-9a-f]{16}\.part")

# Windows's limit on a path, in bytes.
LONGEST_PATH = 32_767

# Linux's limit on a chain of symbolic links.
MAX_LINKS = 40

# The largest size of a number in an .npz file, a complex one, and of an array's header, in bytes.
LARGEST_NUMBER, LARGEST_HEADER = 16, 10_000

KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}

FilePath = str | os.PathLike[str]


def as_path(given: FilePath, name: str = "path") -> Path:
    """Check a path and expand `~`; `name` is for error messages."""
    try:
        text = os.fspath(given)
    except Exception:  # __fspath__ may raise anything
        text = None
    if not isinstance(text, str):
        raise InvalidTypeError(f"{name} must be a str or a Path; got {quoted(given)}")
    if not text:
        raise InvalidValueError(f"{name} is empty. Give a file or directory")
    try:
        encoded = os.fsencode(text)
        encodable = b"\0" not in encoded
    except UnicodeEncodeError:
        encodable = False
    if not encodable:
        raise InvalidValueError(
            f"{name} has a character that file names can't have: {quoted(text)}"
        )
    if len(encoded) > LONGEST_PATH:
        raise InvalidValueError(f"{name} is longer than {LONGEST_PATH:,} bytes: {quoted(text)}")
    path = Path(os.path.expanduser(text))
    # A file whose name starts with ~: made absolute, so that a second call doesn't expand it.
    return path.absolute() if str(path).startswith("~") else path


def read_bytes(path: FilePath, unreadable: type[AttnlabError]) -> bytes:
    """Read a file of up to LARGEST bytes."""
    file = as_path(path)
    try:
        with open_regular(file) as stream:
            content = stream.read(LARGEST + 1)
    except FileNotFoundError:
        raise MissingFileError(f"there is no {file.name} in {file.parent}") from None
    except OSError as error:
        raise unreadable(f"{file} can't be read: {_reason(error)}") from None
    if len(content) > LARGEST:
        raise unreadable(f"{file} can't be read: it is larger than {LARGEST:,} bytes")
    return content


def open_regular(file: Path) -> BinaryIO:
    """Open a regular file for reading; raise OSError for a pipe or device, which may never end."""
    nonblocking = getattr(os, "O_NONBLOCK", 0)  # opening a pipe without a writer would block
    stream = open(file, "rb", opener=lambda name, flags: os.open(name, flags | nonblocking))  # noqa: SIM115
    try:
        _check_regular(os.fstat(stream.fileno()))
    except OSError:
        stream.close()
        raise
    return stream


def read_text(path: FilePath, unreadable: type[AttnlabError]) -> str:
    """Read UTF-8 text, with or without a byte order mark; newlines become `\\n`."""
    return decoded_text(read_bytes(path, unreadable), as_path(path), unreadable)


def decoded_text(content: bytes, where: object, unreadable: type[AttnlabError]) -> str:
    """Decode bytes as `read_text` does; `where` is for error messages."""
    text = _decoded(content, where, unreadable)
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_json(path: FilePath, unreadable: type[AttnlabError]) -> dict[str, Any]:
    """Read a file that contains one JSON object."""
    return parse_json(read_bytes(path, unreadable), as_path(path), unreadable)


def parse_json(content: bytes, where: object, unreadable: type[AttnlabError]) -> dict[str, Any]:
    """Parse one JSON object; keys may not repeat.

    Numbers are Python's, including NaN and Infinity; integers of more than MAX_DIGITS digits become
    floats. Callers check the values that they use.

    Parameters
    ----------
    content : UTF-8
    where : for error messages, such as the file
    """
    text = _decoded(content, where, unreadable)
    try:
        parse_int = _integer if MANY_DIGITS in content.translate(AS_ZEROS) else None
        value = json.loads(text, object_pairs_hook=_without_duplicates, parse_int=parse_int)
    except RecursionError:
        raise unreadable(f"{where} can't be read as JSON: it is nested too deeply") from None
    except ValueError as error:
        raise unreadable(f"{where} can't be read as JSON: {error}") from None
    if not isinstance(value, dict):
        kind = with_article(type(value).__name__)
        raise unreadable(f"{where} must be a JSON object; got {kind}")
    return value


def read_npz(path: FilePath, most: int) -> dict[str, AnyArray]:
    """Read the arrays in a file written by `numpy.savez`.

    Sizes are checked first: a small compressed file may expand to billions of zeros.

    Parameters
    ----------
    most : the largest allowed size of an array
    """
    import zipfile  # here, so that `import attnlab` is quick

    file = as_path(path, "file")
    what = f"{file} isn't a file written by numpy.savez"
    try:
        stream = open_regular(file)
    except FileNotFoundError:
        raise MissingFileError(f"there is no {file.name} in {file.parent}") from None
    except OSError as error:
        raise InvalidValueError(f"{what}: {_reason(error)}") from None
    with stream, reraised_as(InvalidValueError, what):
        if stream.read(len(MAGIC_PREFIX)) == MAGIC_PREFIX:
            raise ValueError("it is a single array, as written by numpy.save")
        with zipfile.ZipFile(stream) as archive:
            for member in archive.infolist():
                if member.file_size > most * LARGEST_NUMBER + LARGEST_HEADER:
                    raise ValueError(
                        f"{member.filename} must have at most {most:,} numbers, like the largest "
                        f"step; got {member.file_size:,} bytes"
                    )
        stream.seek(0)
        with np.load(stream, allow_pickle=False) as arrays:
            return dict(arrays)


def make_directory(path: FilePath) -> None:
    """Make a directory and its parents, unless it exists."""
    directory = as_path(path)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WriteError(f"{directory} can't be created: {_reason(error)}") from None


def write_whole(path: FilePath, content: bytes) -> None:
    """Write a file atomically: write a temporary file, then rename it.

    A symbolic link is followed. An existing file keeps its mode and, if permitted, its owner.
    """
    file = as_path(path)
    try:
        target = _link_target(file)
        try:
            old = os.stat(target)
        except FileNotFoundError:
            old = None
        if old is not None:
            _check_regular(old)
        elif not os.path.isdir(target.parent):
            raise OSError(f"directory {target.parent} doesn't exist")
        _remove_abandoned(target.parent)
        _replace(target, content, old)
    except OSError as error:
        raise WriteError(f"{file} can't be written: {_reason(error)}") from None


@contextlib.contextmanager
def locked(path: FilePath) -> Iterator[None]:
    """Lock a file against all other processes and threads.

    The file is created, and removed at the end. The lock is released even if the process dies.
    """
    from filelock import FileLock, Timeout  # installed with huggingface_hub

    file = as_path(path)
    if file.is_symlink():  # early versions of filelock empty the link's target
        raise WriteError(f"{file} can't be locked: it is a link")
    lock = FileLock(file, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise WriteError(
            f"{file} can't be locked: another run is using the directory. Wait until it ends, or "
            "use another directory"
        ) from None
    except NotImplementedError:  # no locks on this file system: continue without, as for ENOLCK
        pass
    except OSError as error:
        if error.errno != errno.ENOLCK:
            raise WriteError(f"{file} can't be locked: {_reason(error)}") from None
    _locks.add(lock)
    try:
        yield
    finally:
        _locks.discard(lock)
        with contextlib.suppress(OSError):  # an open file can't be removed on Windows
            os.unlink(file)  # while it is locked: afterwards it may be another process's
        lock.release()


def _close_locks_after_fork() -> None:
    """Close inherited locks in a forked process, which would hold them longer than its parent.

    The parent keeps its lock.
    """
    for lock in _locks:
        descriptor = getattr(getattr(lock, "_context", None), "lock_file_fd", None)
        if descriptor is not None:
            os.close(descriptor)
            lock._context.lock_file_fd = None
    _locks.clear()


# Locks held by this process.
_locks: set[Any] = set()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_locks_after_fork)


def _replace(target: Path, content: bytes, old: os.stat_result | None) -> None:
    """Write a temporary file and rename it to `target`, whose status was `old`."""
    mode = 0o666 if old is None else stat.S_IMODE(old.st_mode)
    with _temporary_file(target.parent, mode) as stream:
        try:
            if old is not None:
                if sys.platform != "win32":
                    with contextlib.suppress(OSError):  # may need root
                        os.chown(stream.fileno(), old.st_uid, old.st_gid)
                with contextlib.suppress(OSError):  # not every file system has permissions
                    os.chmod(stream.name, mode)
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
            if sys.platform == "win32":
                stream.close()  # an open file can't be renamed
            os.replace(stream.name, target)
        except BaseException:  # also for Ctrl-C
            with contextlib.suppress(OSError):
                stream.close()
            with contextlib.suppress(OSError):
                os.unlink(stream.name)
            raise


def _temporary_file(directory: Path, mode: int) -> BinaryIO:
    """Create a file, locked until it is closed so that `_remove_abandoned` skips it."""
    while True:
        name = directory / TEMPORARY.format(os.urandom(8).hex())
        stream = open(name, "xb", opener=lambda path, flags: os.open(path, flags, mode))  # noqa: SIM115
        if sys.platform != "win32":
            with contextlib.suppress(OSError):  # not every file system has locks
                fcntl.flock(stream, fcntl.LOCK_EX)
            if not os.path.exists(name):  # removed as abandoned before it was locked
                stream.close()
                continue
        return stream


def _remove_abandoned(directory: Path) -> None:
    """Remove temporary files of killed processes, which aren't locked.

    On Windows, which has no such locks, the files stay.
    """
    names: list[str] = []
    with contextlib.suppress(OSError):  # a writable directory may be unreadable
        names = os.listdir(directory)
    if sys.platform != "win32":
        for part in (directory / name for name in names if IS_TEMPORARY.fullmatch(name)):
            with contextlib.suppress(OSError):  # locked: still being written
                descriptor = os.open(part, os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    os.unlink(part)
                finally:
                    os.close(descriptor)


def _link_target(file: Path) -> Path:
    """Follow symbolic links; the target need not exist."""
    for _ in range(MAX_LINKS):
        try:
            file = file.parent / os.readlink(file)
        except OSError:  # not a link
            return file
    raise OSError("too many levels of symbolic links")


def _check_regular(status: os.stat_result) -> None:
    kind = stat.S_IFMT(status.st_mode)
    if kind != stat.S_IFREG:
        raise OSError(f"it is {KINDS.get(kind, 'a special file')}, not a regular file")


def _reason(error: OSError) -> str:
    """The operating system's message, without the number and path."""
    return error.strerror or str(error)


def _decoded(content: bytes, where: object, unreadable: type[AttnlabError]) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise unreadable(
            f"{where} can't be read: it isn't UTF-8 ({error}). Save it as UTF-8"
        ) from None


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        name, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise ValueError(f"key {quoted(name)} appears twice")
    return members


def _integer(digits: str) -> int | float:
    return int(digits) if len(digits) <= MAX_DIGITS else float(digits)
