"""What programs need that print: any encoding, readers that leave early, Ctrl-C.

The library leaves stdout as its user has it. A program's stdout is its own: that of the command, of
`python -m attnlab.walkthrough`, of each chapter.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any, TextIO

from attnlab.errors import AttnlabError

CLOSED_PIPE = 141
INTERRUPTED = 130


def exit_status(program: Callable[[], int]) -> int:
    """Run a command line program; its exit status.

    That is what the program returns; 2 after an `AttnlabError`, or where the output can't be
    written, both told on stderr; 130 after Ctrl-C, told in one line; 141 when nobody reads the
    output any more.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed before Python began
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    _escape_what_is_lacking()
    ignored = signal.getsignal(signal.SIGINT) == signal.SIG_IGN  # as a shell has it for `program &`
    if ignored and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        try:
            status = program()
        except SystemExit as end:  # of argparse, whose help is still to be written
            status = int(end.code or 0)
        sys.stdout.flush()
    except AttnlabError as error:
        _tell(*str(error).splitlines())
        return 2
    except OSError as error:
        _drop(sys.stdout)
        if isinstance(error, BrokenPipeError):
            return CLOSED_PIPE
        _tell(f"the output can't be written: {error.strerror}")
        return 2
    except KeyboardInterrupt as interrupt:
        _drop(sys.stdout)
        _tell(str(interrupt) or "Interrupted")
        return INTERRUPTED
    return status


class PrintedAnywhere:
    """What `print` shows on any terminal: its `repr`, with escapes for what stdout can't print.

    Only `print` and `str` do so, as Python's prompt does by itself; `repr` is the same everywhere.
    """

    def __str__(self) -> str:
        return for_stdout(repr(self))


class PrintedText(str):
    """A text that `print` shows on any terminal, as what is `PrintedAnywhere`."""

    def __str__(self) -> str:
        return for_stdout(self)


def for_stdout(text: str) -> str:
    """With escapes for what stdout can't print."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def prepare_script() -> None:
    """Let a script that prints, such as a lesson, do so on any terminal and into any pipe.

    Characters that stdout's encoding lacks are printed as escapes, and the script ends quietly when
    nobody reads its output any more. In a notebook nothing is done, as nothing is needed.
    """
    if sys.stdout is sys.__stdout__:
        _escape_what_is_lacking()
        if hasattr(signal, "SIGPIPE"):
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)


def progress_bar(**settings: Any) -> Any:
    """The hub's progress bar, on stderr; in a notebook on stdout, as stderr is red there."""
    # Loaded here, so that `import attnlab` is quick.
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "IProgress not found")  # widgets that it does without
        from huggingface_hub.utils import tqdm  # type: ignore[attr-defined]

    is_notebook = type(sys.stdout).__module__.startswith("ipykernel.")
    return tqdm(file=sys.stdout if is_notebook else None, **settings)  # type: ignore[no-untyped-call]


def _escape_what_is_lacking() -> None:
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _tell(*lines: str) -> None:
    try:
        print(*lines, sep="\n", file=sys.stderr)
    except OSError:  # nobody reads what is wrong either
        _drop(sys.stderr)


def _drop(stream: TextIO) -> None:
    """What is still buffered must not be written when Python ends, nor be waited for."""
    with contextlib.suppress(OSError, ValueError):  # one that is no file
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
