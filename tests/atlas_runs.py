"""Runs over a small corpus, and as a program: runs that are killed at each of their writes in turn.

python atlas_runs.py DIRECTORY            kills itself at each write, resumes, prints how often
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
from killed_run import killed_at_each_write

import attnlab
from attnlab import Trace
from attnlab.corpus import Atlas
from attnlab.pocket.grammar import sample

MEASURES = ("induction", "same", "loss")


def texts(count: int, seed: int = 0) -> list[str]:
    """Texts of the pocket model's grammar."""
    rng = np.random.default_rng(seed)
    return [sample(rng).text for _ in range(count)]


def bits(atlas: Atlas) -> dict[str, object]:
    """Everything that an atlas stores."""
    arrays, about = atlas._tally.to_store()
    return {**{name: array.tobytes() for name, array in arrays.items()}, **about}


def run(directory: Path | None, count: int = 7, **settings: Any) -> Atlas:
    settings = {"measures": MEASURES, "chunk": 3, "progress": False} | settings
    return attnlab.atlas("pocket", texts(count), directory=directory, **settings)


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
    print(kills)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
