"""Long texts, forged files, edits of heads, objects of other libraries, metrics, sequences."""

from __future__ import annotations

import contextlib
import copy
import json
import pickle
import zipfile
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from damage import JSON, damaged, dumps
from guarded import directory, examples, linux, outcome
from hypothesis import given, note
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import load_file

import attnlab
from attnlab.support.files import read_npz
from attnlab.support.sealed import write_sealed

pytestmark = [linux, pytest.mark.filterwarnings("ignore")]

COUNTS = pytest.mark.parametrize("count", [15, pytest.param(500, marks=pytest.mark.slow)])

ARRAYS = st.builds(
    np.zeros,
    st.lists(st.integers(0, 9), max_size=3),
    st.sampled_from(["float32", "float64", "int64", "uint8", "bool"]),
) | st.sampled_from([np.array(np.nan), np.full((2, 3), np.inf), np.array([-1]), np.array([2**62])])
NUMBERS = st.floats(allow_nan=True, width=64) | st.sampled_from([1e300, 3e38, 1e-300, 2**63])

REFERENCE = Path(__file__).parents[1] / "reference" / "float16"
NAMES = ("X", "Q", "K", "V", "W_Q", "b_V", "scale", "scores", "masked_scores", "weights")


@cache
def model() -> attnlab.GPT2:
    return attnlab.GPT2.from_pretrained("pocket")


@COUNTS
def test_texts_longer_than_the_context_are_refused(count: int) -> None:
    @examples(count)
    @given(
        piece=st.sampled_from([" ", "\n", "a", "the ", "\u3000", "🙂", "\x00", "ab1 !"]),
        length=st.sampled_from([10**5, 10**6, 10**7]),
    )
    def test(piece: str, length: int) -> None:
        text = (piece * length)[:length]
        for call in (model().trace, lambda text: model().generate(text, 1)):
            assert isinstance(outcome(partial(call, text), lambda: [text[:1000]]), Exception)

    test()


@COUNTS
@pytest.mark.parametrize("kind", ["trace", "atlas"])
def test_forged_files_are_refused_or_open(kind: str, count: int) -> None:
    @examples(count)
    @given(data=st.data())
    def test(data: st.DataObject) -> None:
        with directory() as folder:
            file = folder / "file"
            if kind == "trace":
                model().trace("The dog").record(file)
            else:
                attnlab.atlas(model(), ["The dog"], ["loss", "entropy"], progress=False).save(file)
            tensors = load_file(file)
            with safe_open(file, "np") as opened:
                metadata = opened.metadata()
            metadata.pop("sha256")
            file_format = metadata.pop("format")
            name = data.draw(st.sampled_from([*metadata, *tensors, "another"]))
            if name in metadata:
                metadata[name] = dumps(data.draw(JSON))
            else:
                tensors[name] = data.draw(ARRAYS)
            write_sealed(file, file_format, tensors, metadata)
            opens = attnlab.open_trace if kind == "trace" else attnlab.open_atlas
            outcome(lambda: repr(opens(file)), lambda: [*metadata.values()], file.stat().st_size)

    test()


@COUNTS
def test_damaged_npz_files_are_refused_or_read(count: int) -> None:
    @examples(count)
    @given(data=st.data(), array=ARRAYS, largest=st.sampled_from([10, 10**6]))
    def test(data: st.DataObject, array: Any, largest: int) -> None:
        with directory() as folder:
            file = folder / "a.npz"
            np.savez_compressed(file, weights=array, bomb=np.zeros(10**6, np.uint8))
            for _ in range(data.draw(st.sampled_from([0, 1, 1, 3]))):
                file.write_bytes(damaged(file.read_bytes(), data.draw))
            outcome(lambda: read_npz(file, largest), list)

    test()


def test_oversized_npz_arrays_are_refused_by_their_header() -> None:
    with directory() as folder:
        with zipfile.ZipFile("a.npz", "w") as archive, archive.open("x.npy", "w") as member:
            header = {"descr": "<f8", "fortran_order": False, "shape": (10**18,)}
            np.lib.format.write_array_header_1_0(member, header)  # type: ignore[arg-type]
        assert isinstance(outcome(lambda: read_npz(folder / "a.npz", 10**6), list), Exception)


@COUNTS
def test_repeated_edits_of_a_head_are_refused_or_applied(count: int) -> None:
    @examples(count)
    @given(data=st.data())
    def test(data: st.DataObject) -> None:
        trace = model().trace("The dog chased")
        names = st.sampled_from(NAMES)
        for _ in range(data.draw(st.integers(1, 3))):
            path = f"blocks.{data.draw(st.integers(0, 1))}.attention.heads.1.{data.draw(names)}"
            number = data.draw(NUMBERS)
            changes = [number, lambda x: x * number, lambda x: x[..., :1], lambda x: 1 / number]  # noqa: B023
            edit = data.draw(st.sampled_from(changes))
            note(f"{path}, {number}, {changes.index(edit)}")
            edited = outcome(lambda: trace.edited({path: edit}), list)  # noqa: B023
            if isinstance(edited, Exception):
                continue
            trace = edited
            outcome(lambda: (repr(trace.head(1, 1)), trace.logits), list)  # noqa: B023
            outcome(lambda: repr(trace.logit_lens()), list)  # noqa: B023

    test()


VALUES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | ARRAYS
    | st.builds(np.ma.masked_all, st.just(2))
    | st.lists(st.floats(), max_size=2)
)


class RaisedError(Exception):
    """Raised by an object's method."""


class Foreign:
    """An object of another library: attributes that are values, or methods that return or raise."""

    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


def methods(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Functions that return a value, or raise."""

    def raising(*_: Any) -> Any:
        raise RaisedError

    return values.map(lambda value: lambda *_: value) | st.just(raising)


@COUNTS
def test_models_of_other_libraries_are_refused_or_converted(count: int) -> None:
    parameters = {
        f"transformer.{name}": array
        for name, array in load_file(REFERENCE / "model.safetensors").items()
    }
    settings = json.loads((REFERENCE / "config.json").read_text())

    @examples(count)
    @given(data=st.data())
    def test(data: st.DataObject) -> None:
        arrays, config = dict(parameters), dict(settings)
        for wrong in (arrays, config):
            for name in data.draw(st.lists(st.sampled_from([*wrong, "another"]), max_size=2)):
                wrong[name] = data.draw(VALUES)
        to_dict = data.draw(st.just(lambda: config) | methods(VALUES))
        state_dict = data.draw(st.just(lambda: arrays) | methods(VALUES | st.just(arrays)))
        foreign = Foreign(config=Foreign(to_dict=to_dict), state_dict=state_dict)
        wrapped = data.draw(st.sampled_from([foreign, Foreign(module=foreign, config=None)]))
        tokenizer = data.draw(
            st.none() | VALUES | methods(VALUES).map(lambda method: Foreign(to_str=method))
        )
        outcome(
            lambda: repr(attnlab.GPT2.from_hf(wrapped, tokenizer).trace([1, 2]).logits),
            lambda: [*map(repr, (arrays, config))],
        )

    test()


@COUNTS
def test_odd_metrics_are_refused_or_evaluated(count: int) -> None:
    clean, corrupted = model().trace("The dog chased"), model().trace("The cat chased")
    tokens = st.sampled_from([" the", " The", "", "猫", "not one token", 3, -1, 10**9])

    @examples(count)
    @given(
        metric=tokens
        | st.tuples(tokens, tokens)
        | VALUES
        | methods(VALUES)
        | st.just(lambda trace: trace.next_logits[5])
        | st.just(lambda trace: trace.next_logits),
        analysis=st.sampled_from(["patch", "attribution_patch", "attribution", "gradients"]),
    )
    def test(metric: Any, analysis: str) -> None:
        def measured() -> str:
            if analysis == "patch":
                return repr(attnlab.patch(clean, corrupted, metric=metric, progress=False))
            if analysis == "attribution_patch":
                return repr(attnlab.attribution_patch(clean, corrupted, metric=metric))
            return repr(getattr(clean, analysis)(metric))

        with contextlib.suppress(RaisedError):  # a function's own error passes through
            outcome(measured, list)

    test()


@COUNTS
def test_damaged_chunks_are_refused_or_resumed(count: int) -> None:
    texts = ["The dog", "The cat", "The hen", "The fox"]

    def run(folder: Path) -> attnlab.Atlas:
        return attnlab.atlas(model(), texts, ["loss"], chunk=2, directory=folder, progress=False)

    @examples(count)
    @given(data=st.data())
    def test(data: st.DataObject) -> None:
        with directory() as folder:
            expected = run(folder / "run")
            (folder / "run" / "atlas.safetensors").unlink()
            files = sorted(path for path in (folder / "run").rglob("*") if path.is_file())
            file = data.draw(st.sampled_from([path for path in files if path.suffix != ".html"]))
            note(file.name)
            if data.draw(st.integers(1, 4)) == 1:
                file.write_bytes(data.draw(st.sampled_from(files)).read_bytes())
            else:
                file.write_bytes(damaged(file.read_bytes(), data.draw))
            resumed = outcome(lambda: run(folder / "run"), list)
            if not isinstance(resumed, Exception):
                assert np.array_equal(resumed["loss"].mean, expected["loss"].mean, equal_nan=True)

    test()


@pytest.mark.parametrize("count", [15, pytest.param(200, marks=pytest.mark.slow)])
def test_operations_on_a_trace_leave_it_unchanged(count: int) -> None:
    """Operations on a trace don't change its numbers, and their results can be shown."""
    first = model().trace("The dog chased the ball")
    logits = first.logits.copy()

    @examples(count)
    @given(data=st.data())
    def test(data: st.DataObject) -> None:
        with directory() as folder:
            traces = [first]
            for n in range(data.draw(st.integers(1, 6))):
                trace = data.draw(st.sampled_from(traces))
                calls: dict[str, Callable[[], Any]] = {
                    "edit": lambda: trace.edited({"blocks.0.attention.heads.1.V": 0}),  # noqa: B023
                    "mask": lambda: trace.edited({"mask": np.tri(len(trace.ids), dtype=bool)}),  # noqa: B023
                    "copy": lambda: copy.deepcopy(trace),  # noqa: B023
                    "pickle": lambda: pickle.loads(pickle.dumps(trace)),  # noqa: B023
                    "file": lambda: [
                        trace.record(folder / f"{n}.trace"),  # noqa: B023
                        attnlab.open_trace(folder / f"{n}.trace"),  # noqa: B023
                    ][1],
                    "again": lambda: model().trace(trace.ids),  # noqa: B023
                    "head": lambda: repr(trace.head(1, 2).explain(3, 1)),  # noqa: B023
                    "lens": lambda: repr(trace.logit_lens()),  # noqa: B023
                    "table": lambda: repr(attnlab.compare(first, trace)),  # noqa: B023
                    "save": lambda: trace.save(folder / f"{n}.html"),  # noqa: B023
                }
                name = data.draw(st.sampled_from([*calls]))
                note(f"{traces.index(trace)} {name}")
                result = outcome(calls[name], list)
                if isinstance(result, attnlab.Trace):
                    traces.append(result)
                    outcome(lambda: repr(result.next_tokens(1)), list)  # noqa: B023
            assert np.array_equal(first.logits, logits)

    test()
