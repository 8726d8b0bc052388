"""Output of programs: encodings, closed pipes, Ctrl-C and progress bars.

Only programs (the command and chapters) change stdout; the library never does.
"""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from collections.abc import Callable
from typing import Any

from attnlab.errors import AttnlabError
from attnlab.support.checks import as_flag
from attnlab.support.messages import say

# Exit statuses as a shell reports them: 128 + the signal's number, of SIGPIPE and of SIGINT.
CLOSED_PIPE, INTERRUPTED = 141, 130


def exit_status(program: Callable[[], int]) -> int:
    """Run a command-line program and return its exit status.

    The status is 2 after an `AttnlabError` or if the output's disk is full, and 130 after Ctrl-C.
    These are reported on stderr. If the output pipe is closed, the status is 141.
    """
    _escape_unencodable()
    try:
        try:
            status = program()
        except SystemExit as end:  # from argparse
            status = int(end.code or 0)
        sys.stdout.flush()
    except AttnlabError as error:
        print(*str(error).splitlines(), sep="\n", file=sys.stderr)
        return 2
    except BrokenPipeError:
        _discard_output()
        return CLOSED_PIPE
    except OSError as error:
        _discard_output()
        print(f"the output can't be written: {error.strerror}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        _discard_output()
        print(say("Interrupted"), file=sys.stderr)
        return INTERRUPTED
    return status


class StdoutSafe:
    """A base class whose `str` escapes characters of its `repr` that stdout can't encode."""

    def __str__(self) -> str:
        return for_stdout(repr(self))


class StdoutSafeStr(str):
    """A str whose `print` escapes characters that stdout can't encode."""

    def __str__(self) -> str:
        return for_stdout(self)


def for_stdout(text: str) -> str:
    """Escape characters that stdout can't encode."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def prepare_script(language: str = "en") -> None:
    """Prepare a script, such as a chapter, to print on any terminal and into any pipe.

    Characters that stdout can't encode are escaped, and the script exits quietly if the pipe is
    closed. In notebooks, stdout is left unchanged. The library prints in the script's `language`,
    whatever the user's language is: all output of a script is in one language.
    """
    os.environ["ATTNLAB_LANGUAGE"] = language
    if sys.stdout is sys.__stdout__:
        _escape_unencodable()
        import signal  # imported late, so that `import attnlab` is quick

        if hasattr(signal, "SIGPIPE"):
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)


def is_watched() -> bool:
    """Whether a person at a terminal can see a window that the program opens.

    It is false in CI and with pipes. On a remote machine it is true only with X forwarding.
    """
    if os.environ.get("CI") or not all(
        stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout)
    ):
        return False
    if sys.platform in ("win32", "darwin"):
        return "SSH_CONNECTION" not in os.environ
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def show_in_browser(url: str) -> None:
    """Open a page in the browser; print a message if there is no browser."""
    import webbrowser  # imported late, so that `import attnlab` is quick

    if not webbrowser.open(url):
        print(say("No browser found; open the link yourself."), file=sys.stderr)


def progress_bar(progress: bool, **settings: Any) -> Any:
    """A progress bar on stderr, which is hidden unless `progress` is True."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "IProgress not found")  # notebook widgets are optional
        from huggingface_hub.utils import tqdm  # type: ignore[attr-defined]

    is_unwanted = not as_flag(progress, "progress")
    return tqdm(disable=is_unwanted, **settings)  # type: ignore[no-untyped-call]


def _escape_unencodable() -> None:
    for stream in (sys.stdout, sys.stderr):
        if reconfigure := getattr(stream, "reconfigure", None):
            reconfigure(errors="backslashreplace")


def _discard_output() -> None:
    """Discard buffered output: send it to the null device, so that flushing at exit succeeds."""
    with contextlib.suppress(OSError, ValueError):  # stdout isn't a file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
