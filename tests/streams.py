"""Standard streams for a program that runs in the tests' own process."""

import contextlib
import io
import sys
from collections.abc import Iterator
from unittest import mock


class Stream(io.TextIOWrapper):
    """A standard stream, as a pipe or as a terminal."""

    def __init__(self, content: str = "", encoding: str = "utf-8", terminal: bool = False) -> None:
        super().__init__(io.BytesIO(content.encode()), encoding, newline="\n")
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal

    def written(self) -> bytes:
        self.flush()
        return self.buffer.getvalue()  # type: ignore[attr-defined,no-any-return]

    def text(self) -> str:
        return self.written().decode(self.encoding)


@contextlib.contextmanager
def streams(encoding: str = "utf-8") -> Iterator[tuple[Stream, Stream]]:
    """Replace the standard streams by pipes; yield stdout and stderr."""
    out, err = Stream(encoding=encoding), Stream(encoding=encoding)
    with mock.patch.multiple(sys, stdout=out, stderr=err):
        yield out, err
