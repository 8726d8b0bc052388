"""Kill a program at each of its writes in turn.

A child kills itself at its n-th call that changes a file; a write is done by half.
"""

import io
import os
import signal
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import attnlab.support.files

CHANGE_FILES = ("fsync", "replace", "unlink", "chmod", "ftruncate", "write", "mkdir")


def be_killed_at(number: int) -> None:
    """Make this process kill itself at its `number`-th call."""
    remaining = number

    def last() -> bool:
        nonlocal remaining
        remaining -= 1
        return remaining == 0

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def counting(*arguments: Any, **more: Any) -> Any:
            if last():
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments, **more)

        return counting

    class Written(io.BufferedWriter):
        def write(self, content: Any) -> int:
            if last():
                super().write(content[: len(content) // 2])
                self.flush()
                os.kill(os.getpid(), signal.SIGKILL)
            return super().write(content)

    def make(path: Path) -> io.BufferedWriter:
        return Written(io.FileIO(path, "x"))

    def opened(path: Path, mode: str) -> Any:
        return counted(make)(path) if mode == "xb" else open(path, mode)

    files: Any = attnlab.support.files
    files.open = opened
    for name in CHANGE_FILES:
        setattr(os, name, counted(getattr(os, name)))


def killed_at_each_write(top: Path, run: Callable[[Path], object]) -> Iterator[Path]:
    """Yield the directories of runs killed at their first write, their second, and so on."""
    for number in count():
        directory = top / str(number)
        child = os.fork()
        if not child:
            be_killed_at(number + 1)
            run(directory)
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status == 0:
            return
        assert status == -signal.SIGKILL, status
        yield directory
