"""Runs over a small corpus that are killed at each of their writes in turn, or that MPI starts.

python atlas_runs.py DIRECTORY            kills itself at each write, resumes, prints how often
python atlas_runs.py DIRECTORY --mpi      one run of 20 texts by MPI's processes
"""

import os
import signal
import sys
from concurrent.futures import Executor
from pathlib import Path

import numpy as np
from killed_run import killed_at_each_write

import attnlab
from attnlab import Trace
from attnlab.corpus import Atlas
from attnlab.corpus.run import LOCK
from attnlab.pocket.grammar import sample

MEASURES = ("induction", "entropy", "writer", "loss")


def texts(count: int, seed: int = 0) -> list[str]:
    """Texts of the pocket model's grammar."""
    rng = np.random.default_rng(seed)
    return [sample(rng).text for _ in range(count)]


def bits(atlas: Atlas) -> dict[str, object]:
    """Everything that an atlas stores."""
    tensors = {name: array.tobytes() for name, array in atlas._tally.tensors().items()}
    return {**tensors, **atlas._tally.metadata()}


def run(directory: Path | None, count: int = 7, executor: Executor | None = None) -> Atlas:
    return attnlab.atlas(
        "pocket",
        texts(count),
        MEASURES,
        executor=executor,
        chunk=3,
        directory=directory,
        progress=False,
    )


def deadly(trace: Trace) -> np.ndarray:
    """Kills its process at texts of five tokens."""
    if len(trace.tokens) == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return np.full((2, 4), float(len(trace.tokens)))


def main(top: Path) -> None:
    unbroken, kills = bits(run(None)), 0
    for directory in killed_at_each_write(top, run):
        kills += 1
        assert bits(run(directory)) == unbroken
        assert not (directory / LOCK).exists()
    print(kills)


if __name__ == "__main__":
    if "--mpi" in sys.argv:
        from mpi4py.futures import MPIPoolExecutor

        with MPIPoolExecutor(2) as executor:
            run(Path(sys.argv[1]), 20, executor)
    else:
        main(Path(sys.argv[1]))
