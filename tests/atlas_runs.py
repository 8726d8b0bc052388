"""Runs over a small corpus."""

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np

import attnlab
from attnlab import Trace
from attnlab.corpus import Atlas
from attnlab.pocket.held_out import samples

MEASURES = ("induction", "same", "loss")


def texts(count: int, first: int = 0) -> list[str]:
    """Texts of the pocket model's grammar."""
    return [sample.text for sample in samples()[first : first + count]]


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
