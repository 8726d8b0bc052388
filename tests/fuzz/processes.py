"""Cases in processes of their own, with limits of time and memory; what became of each.

All that is needed is imported once, by the process that asks. It forks: a fork works through a
batch of cases and reports each, and where it dies or hangs, the next one goes on behind the case
that killed it. What fails in a batch is run again alone, and only that counts, so that neither the
cases before it nor a busy machine are blamed on a case, and `--case` shows what the run did.

Linux only, for its /proc.
"""

from __future__ import annotations

import contextlib
import faulthandler
import fcntl
import json
import os
import re
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import deque
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

import attnlab

PACKAGE = str(Path(attnlab.__file__).parent)

SECONDS = 2.0
MEMORY = 200 << 20  # and twice the size of the files that are given,
LARGEST = 1 << 30  # but never more than this, for the machine's sake

# How long a fork may be silent: a case, what is prepared for it, and others on the machine.
PATIENCE = SECONDS + 6.0

# What the address space may grow by beyond the memory that is allowed: maps of files, stacks.
SLACK = 256 << 20

BATCH = 50

# At most this much of what was given stands in a message in one piece, and so long is none.
LONGEST_QUOTE = 200
LONGEST_MESSAGE = 2000


class Result(StrEnum):
    RIGHT = "right"
    REFUSED = "refused"
    STRICT = "refused though sound"
    MESSAGE = "bad message"
    OTHER = "silently other"
    RAW = "raw exception"
    HANG = "hang"
    MEMORY = "memory"
    CRASH = "crash"


FINE = frozenset((Result.RIGHT, Result.REFUSED))


class Case(Protocol):
    """One attack, ready to run."""

    @property
    def size(self) -> int:
        """Bytes of the files that are given."""

    def given(self) -> list[str]:
        """Texts that a message shall not quote at length."""

    def attack(self) -> Any:
        """The library at work, which is what the limits are for."""

    def judge(self, found: Any) -> tuple[Result, str]:
        """What to think of what `attack` returned, or of the AttnlabError that it raised."""

    def story(self) -> str:
        """How to see it by hand."""


Prepare = Callable[[int, Path], Case]


@dataclass(frozen=True)
class Outcome:
    number: int
    result: Result
    what: str = ""  # in one line
    where: str = ""  # the place in the library
    story: str = ""  # how to see it by hand, and the traceback
    seconds: float = 0.0
    grown: int = 0  # bytes of memory
    unsteady: bool = False  # failed in a batch, but not alone


# Whether the library is at work, under `limits`.
AT_WORK: list[bool] = []


class LateError(BaseException):
    """A case has used up its time. No `except Exception` may catch it."""


# In the fork


def unfit(message: str, case: Case) -> str:
    """What is wrong with an error's message, "" if nothing is."""
    try:
        message.encode("utf-8")
    except UnicodeEncodeError:
        return "can't be encoded to UTF-8"
    if not message.replace("\n", "").isprintable():
        odd = next(c for c in message if not c.isprintable() and c != "\n")
        return f"holds {odd!a}"
    if len(message) > LONGEST_MESSAGE:
        return f"has more than {LONGEST_MESSAGE} characters"
    given = case.given() if len(message) > LONGEST_QUOTE else []
    for start in range(len(message) - LONGEST_QUOTE):
        if any(message[start : start + LONGEST_QUOTE + 1] in text for text in given):
            return f"quotes more than {LONGEST_QUOTE} characters of what was given"
    return ""


def place_in_library(error: BaseException) -> str:
    """The last of the library's lines on the way to an error."""
    frames = traceback.extract_tb(error.__traceback__)
    inside = [f for f in frames if f.filename.startswith(PACKAGE)]
    return f"{Path(inside[-1].filename).name}:{inside[-1].name}" if inside else "outside"


def in_one_line(error: BaseException) -> str:
    try:
        message = str(error)
    except Exception as inner:
        message = f"whose str() raises {type(inner).__name__}"
    return f"{type(error).__name__}: {message[:160]!a}"


def status_of(field: str) -> int:
    """A figure of /proc/self/status, in bytes."""
    text = Path("/proc/self/status").read_text()
    found = re.search(rf"^{field}:\s+(\d+) kB", text, re.MULTILINE)
    assert found
    return int(found[1]) << 10


def clock(process: int | str = "self") -> float:
    """Seconds, without those in which a process waited for others to leave the processor."""
    _, waited, _ = Path(f"/proc/{process}/schedstat").read_text().split()
    return time.monotonic() - int(waited) / 1e9


@contextlib.contextmanager
def limits(memory: int, seconds: float = SECONDS) -> Iterator[None]:
    """An alarm after so many seconds, and a fence around the address space."""

    def late(*_: object) -> None:
        if working and clock() - started >= seconds:
            raise LateError

    started, working = clock(), True
    outside = resource.getrlimit(resource.RLIMIT_AS)
    fence = status_of("VmSize") + memory + SLACK
    AT_WORK.append(True)
    signal.signal(signal.SIGALRM, late)
    resource.setrlimit(resource.RLIMIT_AS, (min(fence, outside[1]), outside[1]))
    signal.setitimer(signal.ITIMER_REAL, seconds, 0.2)  # and again, if too early
    try:
        yield
    finally:
        working = False  # on a busy machine another alarm may come before the next line is done
        signal.setitimer(signal.ITIMER_REAL, 0)
        AT_WORK.pop()
        resource.setrlimit(resource.RLIMIT_AS, outside)


def outcome_of(number: int, case: Case) -> Outcome:
    """Run a prepared case."""
    memory = min(MEMORY + 2 * case.size, LARGEST)
    error: BaseException | None = None
    found: Any = None
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    before, started = status_of("VmRSS"), clock()
    try:
        with limits(memory):
            found = case.attack()
    except BaseException as raised:
        error = raised
    seconds, grown = clock() - started, status_of("VmHWM") - before

    if isinstance(error, LateError) or seconds > SECONDS:
        result, what = Result.HANG, f"more than {SECONDS:g} seconds"
    elif isinstance(error, MemoryError):
        result, what = Result.MEMORY, in_one_line(error)
    elif grown > memory:
        result, what = Result.MEMORY, f"takes more than {memory >> 20} MB"
    elif error is None:
        result, what = case.judge(found)
    elif isinstance(error, attnlab.AttnlabError):
        try:
            message = str(error)
        except Exception as inner:
            error, result, what = inner, Result.RAW, in_one_line(inner)
        else:
            if wrong := unfit(message, case):
                result, what = Result.MESSAGE, f"{type(error).__name__} {wrong}: {message[:160]!a}"
            else:
                result, what = case.judge(error)
    else:
        result, what = Result.RAW, in_one_line(error)
    where, lines = "", [case.story()]
    if error is not None and result is not Result.REFUSED:
        where = place_in_library(error)
        lines += traceback.format_exception(error, limit=-12)
    return Outcome(number, result, what, where, printable("\n".join(lines)), seconds, grown)


def printable(text: str) -> str:
    """As ASCII, whatever it holds, in lines that a terminal shows."""
    escaped = text.encode("ascii", "backslashreplace").decode()
    return "\n".join(
        "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in line)[:400]
        for line in escaped.split("\n")
    )


WRITES = ("os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.link", "os.symlink", "os.truncate")
WRITES += ("os.chmod", "os.chown", "os.utime", "shutil.rmtree", "shutil.move", "os.mknod")


def stay_in(place: Path) -> None:
    """Under `limits` nothing outside a directory can be written, whatever paths a case makes up."""

    def guard(event: str, given: tuple[Any, ...]) -> None:
        if not AT_WORK:
            return
        if event == "open":
            path, _, flags = given
            writes = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC)
            paths = [path] if writes and not isinstance(path, int) else []
        else:
            paths = [path for path in given if isinstance(path, str | bytes)]
            paths = paths if event in WRITES else []
        for path in paths:
            whole = os.path.realpath(os.fsdecode(path))
            if not whole.startswith(f"{place}/"):
                raise PermissionError(13, "a case may not write here", whole)

    sys.addaudithook(guard)


def settle(place: Path) -> None:
    """Give a fork streams, a group and a directory of its own, and a limit to all its memory."""
    most = status_of("VmSize") + 3 * LARGEST
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # who dies, dies at once
    os.setpgid(0, 0)  # so that it is killed with all that it started
    output = os.open(place / "output", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    nothing = os.open(place / "nothing", os.O_RDONLY | os.O_CREAT)
    for ours, theirs in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(ours, theirs)
    sys.stdout = open(1, "w", encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
    faulthandler.enable()
    (place / "temporary").mkdir()
    tempfile.tempdir = str(place / "temporary")
    stay_in(place.resolve())


def work(prepare: Prepare, numbers: Sequence[int], place: Path, report: int) -> None:
    """What a fork does: case after case, each with a directory of its own and a line of JSON."""
    settle(place)
    channel = fcntl.fcntl(report, fcntl.F_DUPFD_CLOEXEC, 500)  # where no stray number reaches it
    os.close(report)
    for number in numbers:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(place / "case")
        (place / "case" / "here").mkdir(parents=True)
        os.chdir(place / "case" / "here")
        (place / "story").write_text("while it was prepared")
        try:
            case = prepare(number, place / "case")
            (place / "story").write_text(printable(case.story()))
            line = json.dumps(asdict(outcome_of(number, case)))
        except Exception:  # a fault of the machine itself
            line = json.dumps({"number": number, "broken": traceback.format_exc()})
        os.write(channel, line.encode() + b"\n")


# In the process that asks


def end_group(pid: int) -> None:
    """End a fork and all that it started. Only then its number may become another process's."""
    for kill in (os.kill, os.killpg):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


class Fork:
    """A running batch.

    Attributes
    ----------
    waiting : the cases that it has not reported yet
    alone : whether it had only one from the start
    over : whether no more will come of it
    """

    def __init__(self, prepare: Prepare, numbers: Sequence[int], root: Path) -> None:
        self.place = Path(tempfile.mkdtemp(dir=root))
        self.waiting = deque(numbers)
        self.alone = len(numbers) == 1
        self.over = False
        self._rest = b""
        self.channel, report = os.pipe()
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            status = 70
            try:
                os.close(self.channel)
                work(prepare, numbers, self.place, report)
                status = 0
            finally:
                os._exit(status)
        os.close(report)
        self.heard = clock(self.pid)

    def news(self, ready: bool) -> Iterator[Outcome]:
        """The cases that have ended since one last asked."""
        if ready:
            yield from self._reports()
        elif clock(self.pid) > self.heard + PATIENCE:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGABRT)  # faulthandler writes where it is
                time.sleep(0.2)
            yield self._lost(Result.HANG, "can't be interrupted, and was killed")
        self.over = self.over or not self.waiting

    def _reports(self) -> Iterator[Outcome]:
        self._rest += (read := os.read(self.channel, 1 << 16))
        *lines, self._rest = self._rest.split(b"\n")
        for line in lines:
            fields = json.loads(line)
            if "broken" in fields:
                raise RuntimeError(f"case {fields['number']} is broken: {fields['broken']}")
            assert fields["number"] == self.waiting.popleft()
            self.heard = clock(self.pid)
            yield Outcome(**fields | {"result": Result(fields["result"])})
        if not read:
            ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
            by_itself = ended.si_code == os.CLD_EXITED
            status = ended.si_status
            ending = f"status {status}" if by_itself else signal.Signals(status).name
            yield self._lost(Result.CRASH, f"the process ended with {ending}")

    def _lost(self, result: Result, what: str) -> Outcome:
        """What became of the case that the process did not survive."""
        self.over = True
        output = (self.place / "output").read_text(encoding="utf-8", errors="replace")
        inside = re.search(rf'"{PACKAGE}/([^"]*)", line \d+ in (\w+)', output)
        where = f"{Path(inside[1]).name}:{inside[2]}" if inside else "outside"
        story = f"{(self.place / 'story').read_text()}\n{printable(output[-3000:])}"
        return Outcome(self.waiting.popleft(), result, what, where, story)

    def end(self) -> None:
        """Leave nothing behind: neither processes, nor files."""
        end_group(self.pid)
        os.close(self.channel)
        shutil.rmtree(self.place, ignore_errors=True)


def attack_all(
    prepare: Prepare, numbers: Sequence[int], fine: Container[Result] = FINE, processes: int = 2
) -> Iterator[Outcome]:
    """Every case's outcome, in the order in which they end.

    Parameters
    ----------
    prepare : makes a case of its number and a directory
    fine : results that need not be looked into
    processes : how many run at a time
    """
    batches = deque(numbers[i : i + BATCH] for i in range(0, len(numbers), BATCH))
    forks: list[Fork] = []
    suspects: set[int] = set()
    with tempfile.TemporaryDirectory(prefix="fuzz-") as root:
        try:
            while batches or forks:
                while batches and len(forks) < processes:
                    forks.append(Fork(prepare, batches.popleft(), Path(root)))
                ready, _, _ = select.select([fork.channel for fork in forks], [], [], 0.1)
                for fork in list(forks):
                    for outcome in fork.news(fork.channel in ready):
                        passed = outcome.result in fine
                        if passed or fork.alone:
                            yield replace(outcome, unsteady=passed and outcome.number in suspects)
                        else:
                            suspects.add(outcome.number)
                            batches.appendleft([outcome.number])
                    if fork.over:
                        if fork.waiting:
                            batches.appendleft(list(fork.waiting))
                        forks.remove(fork)
                        fork.end()
        finally:
            for fork in forks:
                fork.end()


def answer_of(function: Callable[[Path], Any], seconds: float = 60.0) -> Any:
    """What a function returns, as JSON has it, that runs in a fork and a directory of its own."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as root:
        place = Path(root)
        answer = place / "answer.json"
        pid = os.fork()
        if pid == 0:
            try:
                settle(place)
                answer.write_text(json.dumps(function(place)))
            finally:
                traceback.print_exc()
                os._exit(0)
        deadline = time.monotonic() + seconds
        running = os.WEXITED | os.WNOWAIT | os.WNOHANG
        while os.waitid(os.P_PID, pid, running) is None and time.monotonic() < deadline:
            time.sleep(0.05)
        end_group(pid)
        if not answer.exists():
            output = (place / "output").read_text(encoding="utf-8", errors="replace")
            raise ChildProcessError(f"{function.__name__} gave no answer:\n{output[-3000:]}")
        return json.loads(answer.read_text())
