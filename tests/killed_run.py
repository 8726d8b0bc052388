"""Kill a training at each of its writes in turn, and check the files that it leaves.

    python killed_run.py DIRECTORY

A child kills itself at its n-th call that changes a file; a write is done by half.
It must leave the old state or the new one, and resuming must give the bits of an uninterrupted
run.
Prints as JSON, for each n, the training steps of the state and of the model that were left.
"""

import io
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import attnlab.support.files
from attnlab import GPT2, GPT2Config, train
from attnlab.errors import MissingFileError
from attnlab.training import Training
from attnlab.training.run import LOCK, STATE

CONFIG = GPT2Config(vocab_size=256, n_positions=8, n_embd=4, n_layer=1, n_head=1)
TEXT = "The cat eats a fish. The fish eats a fly. The fly sings. "
CHANGE_FILES = ("fsync", "replace", "unlink", "chmod", "ftruncate", "write", "mkdir")


def run(directory: Path | None) -> Training:
    """A run that saves twice: at the start, and after the second and last step."""
    return train(CONFIG, TEXT, steps=2, batch_size=3, progress=False, directory=directory)


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

    def make(path: Path, opener: Any) -> io.BufferedWriter:
        return Written(io.FileIO(path, "x", opener=opener))

    def opened(path: Path, mode: str, opener: Any) -> Any:
        return counted(make)(path, opener) if mode == "xb" else open(path, mode, opener=opener)

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


def numbers(model: GPT2) -> bytes:
    return b"".join(x.tobytes() for x in model.parameters.values())


def steps_on_disk(directory: Path, uninterrupted: Training) -> tuple[int | None, int | None]:
    """The training steps of the state and of the model; None if there is none."""
    training = Training(
        CONFIG, uninterrupted._corpus, uninterrupted.settings, uninterrupted.tokenizer
    )
    expected = {0: numbers(training.model), 2: numbers(uninterrupted.model)}
    training.resume(directory)
    assert training.losses == uninterrupted.losses[: training.step]
    state = training.step if (directory / STATE).exists() else None
    try:
        opened = numbers(GPT2.from_pretrained(directory))
    except MissingFileError:
        return state, None
    (model,) = (step for step, content in expected.items() if content == opened)
    return state, model


def main(top: Path) -> None:
    uninterrupted = run(None)
    result: list[tuple[int | None, int | None]] = []
    for directory in killed_at_each_write(top, run):
        result.append(steps_on_disk(directory, uninterrupted))
        resumed = run(directory)
        assert resumed.losses == uninterrupted.losses
        assert numbers(resumed.model) == numbers(uninterrupted.model)
        assert numbers(GPT2.from_pretrained(directory)) == numbers(uninterrupted.model)
        assert not (directory / LOCK).exists()
    print(json.dumps(result))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
