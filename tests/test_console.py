"""Programs that print: terminals that lack characters, closed pipes, Ctrl-C."""

import io
import os
import signal
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest
from conftest import REFERENCE
from streams import streams

import attnlab
from attnlab.errors import InvalidValueError
from attnlab.support.console import exit_status, is_watched, progress_bar

EXAMPLES = Path(__file__).parent.parent / "examples"
VERIFY = ("-m", "attnlab", "verify", "--model", "pocket")
# As each chapter begins.
SCRIPT = "from attnlab.support.console import prepare_script; prepare_script(); print('x')"


def start(
    *arguments: str, stdout: int = subprocess.PIPE, **environment: str
) -> subprocess.Popen[bytes]:
    """Start Python with some arguments."""
    return subprocess.Popen(
        [sys.executable, *arguments],
        stdout=stdout,
        stderr=subprocess.PIPE,
        env={**os.environ, "ATTNLAB_MODEL": "pocket", "PYTHONUNBUFFERED": "", **environment},
    )


@pytest.mark.parametrize("program", [("-c", SCRIPT), VERIFY])
def test_closed_pipe(program: tuple[str, ...]) -> None:
    reader, writer = os.pipe()
    os.close(reader)  # before it starts: a short text fits into a pipe that nobody reads
    process = start(*program, stdout=writer)
    os.close(writer)
    _, err = process.communicate(timeout=60)
    assert process.returncode in (141, -signal.SIGPIPE)  # for a shell the same
    assert err == b""


INTERRUPTED = """
import signal, sys, time
from attnlab.support.console import exit_status
signal.signal(signal.SIGINT, signal.default_int_handler)  # it may be ignored
sys.exit(exit_status(lambda: (print("x" * 10, flush=True), time.sleep(60))))
"""


def test_ctrl_c() -> None:
    process = start("-c", INTERRUPTED)
    assert process.stdout is not None
    assert process.stdout.readline() == b"x" * 10 + b"\n"
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=30) == (b"", b"Interrupted\n")
    assert process.returncode == 130


@pytest.mark.parametrize(
    ("platform", "variables", "expected"),
    [
        ("linux", {"DISPLAY": ":0"}, True),
        ("linux", {"WAYLAND_DISPLAY": "wayland-0"}, True),
        ("linux", {}, False),
        ("linux", {"DISPLAY": ":0", "CI": "true"}, False),
        ("linux", {"DISPLAY": "localhost:10.0", "SSH_CONNECTION": "a 1 b 22"}, True),
        ("darwin", {}, True),
        ("darwin", {"SSH_CONNECTION": "a 1 b 22"}, False),
        ("win32", {}, True),
        ("win32", {"CI": "1"}, False),
    ],
    ids=str,
)
def test_who_sees_a_window(
    platform: str,
    variables: dict[str, str],
    expected: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("CI", "DISPLAY", "WAYLAND_DISPLAY", "SSH_CONNECTION"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "platform", platform)
    terminal, pipe = io.StringIO(), io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)
    for stdin, stdout in ((terminal, terminal), (terminal, pipe), (pipe, terminal)):
        monkeypatch.setattr(sys, "stdin", stdin)
        monkeypatch.setattr(sys, "stdout", stdout)
        assert is_watched() is (expected and pipe not in (stdin, stdout))


def test_ctrl_c_while_the_package_is_imported(tmp_path: Path) -> None:
    (tmp_path / "numpy.py").write_text("raise KeyboardInterrupt")
    project = EXAMPLES.parent
    paths = os.pathsep.join(map(str, [tmp_path, project, project / "attnlab" / "cli"]))
    code = "import sys, attnlab_command; sys.exit(attnlab_command.main())"
    process = start("-c", code, "--version", PYTHONPATH=paths)
    output, errors = process.communicate()
    assert (process.returncode, output, errors) == (130, b"", b"Interrupted\n")


def test_progress_is_on_stderr_in_notebooks_too(capfd: pytest.CaptureFixture[str]) -> None:
    stdout = type("OutStream", (io.StringIO,), {"__module__": "ipykernel.iostream"})()
    with mock.patch.object(sys, "stdout", stdout), progress_bar(True, total=1) as bar:
        bar.update()
    assert not stdout.getvalue()
    assert "1/1" in capfd.readouterr().err


def test_exit_statuses(capsys: pytest.CaptureFixture[str]) -> None:
    def refused() -> int:
        raise InvalidValueError("not \x1b[31m this\nnor that")

    def interrupted() -> int:
        raise KeyboardInterrupt

    def full() -> int:
        raise OSError(28, "No space left on device")

    def helped() -> int:
        raise SystemExit

    for program, status in (
        (lambda: 0, 0), (lambda: 7, 7), (refused, 2), (interrupted, 130), (full, 2), (helped, 0)
    ):  # fmt: skip
        assert exit_status(program) == status
    assert capsys.readouterr().err == (
        "not \\x1b[31m this\nnor that\nInterrupted\n"
        "the output can't be written: No space left on device\n"
    )


def test_every_chapter_configures_the_console_first() -> None:
    """In notebooks, stdout isn't changed."""
    for lesson in EXAMPLES.glob("*.py"):
        before, called, _ = lesson.read_text(encoding="utf-8").partition("\nprepare_script(")
        assert called, lesson
        assert "print(" not in before
    code = (
        "import io, signal, sys; from attnlab.support.console import prepare_script\n"
        "sys.stdout = io.TextIOWrapper(io.BytesIO(), 'ascii'); prepare_script()\n"
        "assert sys.stdout.errors == 'strict'\n"
        "assert signal.getsignal(signal.SIGPIPE) == signal.SIG_IGN\n"
    )
    assert start("-c", code).communicate(timeout=60) == (b"", b"")


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "gbk"])
def test_reprs_print_in_any_encoding(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = attnlab.GPT2.from_pretrained("pocket").trace("It’s hot")
    head = trace.head(0, 0)
    with streams(encoding=encoding) as (out, err):
        for value in (trace.tokens, head, head.explain(-1, 0), trace, trace.blocks):
            print(value)
            exact = repr(value)
            whole = "Ġ" in exact or "√" in exact or "…" in exact
            assert whole or value is trace or value is trace.blocks
        print(trace.next_tokens(5))
        print(attnlab.table([[1.5]], rows=["猫"], columns=["âĢ"]))
    assert err.written() == b""
    assert b"\\u0120hot" in out.written()
    assert "猫".encode(encoding, "backslashreplace") in out.written()
    monkeypatch.setattr(sys, "stdout", None)
    assert str(trace.tokens) == repr(trace.tokens)


def test_import_leaves_stdout_alone() -> None:
    code = (
        "import sys, attnlab, signal\n"
        f"attnlab.GPT2.from_pretrained({str(REFERENCE / 'odd')!r}).trace('the').logits\n"
        "print(sys.stdout.errors, signal.getsignal(signal.SIGPIPE) == signal.SIG_IGN)"
    )
    out, err = start("-c", code, PYTHONIOENCODING="ascii").communicate(timeout=60)
    assert (out, err) == (b"strict True\n", b"")
