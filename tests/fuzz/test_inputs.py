"""Long texts, forged files under a right checksum, edits of heads, and sequences of calls."""

from __future__ import annotations

import json
import random
import zipfile
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
from guarded import directory, examples, linux, outcome
from hypothesis import given, note
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import load_file

import attnlab
from attnlab.support.files import read_npz
from attnlab.support.sealed import write_sealed

pytestmark = [linux, pytest.mark.filterwarnings("ignore")]

MANY = pytest.mark.parametrize("many", [15, pytest.param(500, marks=pytest.mark.slow)])

# What metadata and tensors become; JSON that is nested deeper than Python goes among them.
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
).map(json.dumps) | st.sampled_from(["[" * 10**5, "1e999", "9" * 5000, ""])
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


@MANY
def test_a_long_text_is_refused_or_cut(many: int) -> None:
    @examples(many)
    @given(
        piece=st.sampled_from([" ", "\n", "a", "the ", "\u3000", "🙂", "\x00", "ab1 !"]),
        length=st.sampled_from([10**5, 10**6, 10**7]),
    )
    def attacked(piece: str, length: int) -> None:
        text = (piece * length)[:length]
        for call in (model().trace, lambda text: model().generate(text, 1)):
            assert isinstance(outcome(partial(call, text), lambda: [text[:1000]]), Exception)

    attacked()


@MANY
@pytest.mark.parametrize("kind", ["trace", "atlas"])
def test_a_forged_file_is_refused_or_shown(kind: str, many: int) -> None:
    @examples(many)
    @given(data=st.data())
    def attacked(data: st.DataObject) -> None:
        with directory() as place:
            file = place / "file"
            if kind == "trace":
                model().trace("The dog").record(file)
            else:
                attnlab.atlas(model(), ["The dog"], ["loss", "entropy"], progress=False).save(file)
            tensors = load_file(file)
            with safe_open(file, "np") as opened:
                words = opened.metadata()
            words.pop("sha256")
            form = words.pop("format")
            name = data.draw(st.sampled_from([*words, *tensors, "another"]))
            if name in words:
                words[name] = data.draw(JSON)
            else:
                tensors[name] = data.draw(ARRAYS)
            write_sealed(file, form, tensors, words)
            opens = attnlab.open_trace if kind == "trace" else attnlab.open_atlas
            outcome(lambda: repr(opens(file)), lambda: [*words.values()], file.stat().st_size)

    attacked()


@MANY
def test_a_damaged_npz_is_refused_or_read(many: int) -> None:
    @examples(many)
    @given(rng=st.randoms(use_true_random=False), array=ARRAYS)
    def attacked(rng: random.Random, array: Any) -> None:
        with directory() as place:
            np.savez_compressed(place / "a.npz", weights=array, bomb=np.zeros(10**6, np.uint8))
            content = bytearray((place / "a.npz").read_bytes())
            for _ in range(rng.choice([0, 1, 1, 3])):
                content[rng.randrange(len(content))] = rng.randrange(256)
            (place / "a.npz").write_bytes(content)
            outcome(lambda: read_npz(place / "a.npz", rng.choice([10, 10**6])), list)

    attacked()


def test_an_npz_of_many_numbers_is_refused_by_its_header() -> None:
    with directory() as place:
        with zipfile.ZipFile("a.npz", "w") as archive, archive.open("x.npy", "w") as member:
            header = {"descr": "<f8", "fortran_order": False, "shape": (10**18,)}
            np.lib.format.write_array_header_1_0(member, header)  # type: ignore[arg-type]
        assert isinstance(outcome(lambda: read_npz(place / "a.npz", 10**6), list), Exception)


@MANY
def test_heads_are_edited_again_and_again_or_refused(many: int) -> None:
    @examples(many)
    @given(data=st.data())
    def attacked(data: st.DataObject) -> None:
        trace = model().trace("The dog chased")
        names = st.sampled_from(NAMES)
        for _ in range(data.draw(st.integers(1, 3))):
            path = f"blocks.{data.draw(st.integers(0, 1))}.attention.heads.1.{data.draw(names)}"
            number = data.draw(NUMBERS)
            changes = [number, lambda x: x * number, lambda x: x[..., :1], lambda x: 1 / number]  # noqa: B023
            edit = data.draw(st.sampled_from(changes))
            note(f"{path}, {number}, {changes.index(edit)}")
            found = outcome(lambda: trace.edited({path: edit}), list)  # noqa: B023
            if isinstance(found, Exception):
                continue
            trace = found
            outcome(lambda: (repr(trace.head(1, 1)), trace.logits), list)  # noqa: B023
            outcome(lambda: repr(trace.logit_lens()), list)  # noqa: B023

    attacked()
