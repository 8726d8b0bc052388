"""Long texts, forged and damaged files, and edits of heads."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from damage import damaged
from guarded import directory, fuzz, linux, outcome
from hypothesis import note
from hypothesis import strategies as st

import attnlab
from attnlab.support.files import read_npz

pytestmark = [linux, pytest.mark.filterwarnings("ignore")]

ARRAYS = st.builds(
    np.zeros,
    st.lists(st.integers(0, 9), max_size=3),
    st.sampled_from(["float32", "float64", "int64", "uint8", "bool"]),
) | st.sampled_from([np.array(np.nan), np.full((2, 3), np.inf), np.array([-1]), np.array([2**62])])
NUMBERS = st.floats(allow_nan=True, width=64) | st.sampled_from([1e300, 3e38, 1e-300, 2**63])

NAMES = ("X", "Q", "K", "V", "W_Q", "b_V", "scale", "scores", "masked_scores", "weights")


@cache
def model() -> attnlab.GPT2:
    return attnlab.GPT2.from_pretrained("pocket")


@fuzz(
    15,
    500,
    piece=st.sampled_from([" ", "\n", "a", "the ", "\u3000", "🙂", "\x00", "ab1 !"]),
    length=st.sampled_from([10**5, 10**6, 10**7]),
)
def test_texts_longer_than_the_context_are_refused(piece: str, length: int) -> None:
    text = (piece * length)[:length]
    for call in (model().trace, lambda text: model().generate(text, 1)):
        assert isinstance(outcome(partial(call, text), lambda: [text[:1000]]), Exception)


@fuzz(15, 500, data=st.data(), array=ARRAYS, largest=st.sampled_from([10, 10**6]))
def test_damaged_npz_files_are_refused_or_read(
    data: st.DataObject, array: Any, largest: int
) -> None:
    with directory() as folder:
        file = folder / "a.npz"
        np.savez_compressed(file, weights=array, bomb=np.zeros(10**6, np.uint8))
        for _ in range(data.draw(st.sampled_from([0, 1, 1, 3]))):
            file.write_bytes(damaged(file.read_bytes(), data.draw))
        outcome(lambda: read_npz(file, largest), list)


def edited(trace: attnlab.Trace, draw: Callable[..., Any]) -> attnlab.Trace:
    """A trace with an edit of one head, which can be shown; the trace itself if it is refused."""
    path = f"blocks.{draw(st.integers(0, 1))}.attention.heads.1.{draw(st.sampled_from(NAMES))}"
    number = draw(NUMBERS)
    edits = [number, lambda x: x * number, lambda x: x[..., :1], lambda x: 1 / number]
    edit = draw(st.sampled_from(edits))
    note(f"{path}, {number}, {edits.index(edit)}")
    result = outcome(lambda: trace.edited({path: edit}), list)
    if isinstance(result, Exception):
        return trace
    outcome(lambda: (repr(result.head(1, 1)), result.logits), list)
    outcome(lambda: repr(result.logit_lens()), list)
    return result


@fuzz(15, 500, data=st.data())
def test_repeated_edits_of_a_head_are_refused_or_applied(data: st.DataObject) -> None:
    trace = model().trace("The dog chased")
    for _ in range(data.draw(st.integers(1, 3))):
        trace = edited(trace, data.draw)


def measured_in_chunks(folder: Path) -> attnlab.Atlas:
    texts = ["The dog", "The cat", "The hen", "The fox"]
    return attnlab.atlas(model(), texts, ["loss"], chunk=2, directory=folder, progress=False)


@fuzz(15, 500, data=st.data())
def test_damaged_chunks_are_refused_or_resumed(data: st.DataObject) -> None:
    with directory() as parent:
        folder = parent / "run"
        expected = measured_in_chunks(folder)
        (folder / "atlas.safetensors").unlink()
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        file = data.draw(st.sampled_from([path for path in files if path.suffix != ".html"]))
        note(file.name)
        if data.draw(st.integers(1, 4)) == 1:
            file.write_bytes(data.draw(st.sampled_from(files)).read_bytes())
        else:
            file.write_bytes(damaged(file.read_bytes(), data.draw))
        resumed = outcome(lambda: measured_in_chunks(folder), list)
        if not isinstance(resumed, Exception):
            assert np.array_equal(resumed["loss"].mean, expected["loss"].mean, equal_nan=True)
