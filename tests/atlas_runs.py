"""Runs over a small corpus that are killed: at each of their writes in turn, or from outside.

python atlas_runs.py DIRECTORY            kills itself at each write, goes on, prints how often
python atlas_runs.py DIRECTORY --once     one run, to be killed by somebody else
"""

import os
import signal
import sys
from pathlib import Path

import numpy as np
from killed_run import be_killed_at

import attnlab
from attnlab import Trace
from attnlab.corpus import Atlas
from attnlab.corpus.run import LOCK
from attnlab.files import IS_ASIDE
from attnlab.pocket.grammar import sample

MEASURES = ("induction", "entropy", "writer", "loss")


def texts(count: int, seed: int = 0) -> list[str]:
    """Of the pocket model's grammar."""
    rng = np.random.default_rng(seed)
    return [sample(rng).text for _ in range(count)]


def bits(atlas: Atlas) -> dict[str, object]:
    """All that an atlas is made of."""
    tensors = {name: array.tobytes() for name, array in atlas._tally.tensors().items()}
    return {**tensors, **atlas._tally.words()}


def run(directory: Path | None, count: int = 7) -> Atlas:
    return attnlab.atlas(
        "pocket", texts(count), MEASURES, chunk=3, directory=directory, progress=False
    )


def deadly(trace: Trace) -> np.ndarray:
    """Kills its process at texts of five tokens."""
    if len(trace.tokens) == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return np.full((2, 4), float(len(trace.tokens)))


def main(top: Path) -> None:
    unbroken, number = bits(run(None)), 0
    while True:
        directory = top / str(number)
        child = os.fork()
        if not child:
            be_killed_at(number + 1)
            run(directory)
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status == 0:
            break
        assert status == -signal.SIGKILL, status
        assert bits(run(directory)) == unbroken
        assert not [name for name in os.listdir(directory) if IS_ASIDE.match(name) or name == LOCK]
        number += 1
    print(number)


if __name__ == "__main__":
    if "--once" in sys.argv:
        run(Path(sys.argv[1]), 400)
    else:
        main(Path(sys.argv[1]))
