"""Steps with named axes, for pandas."""

import sys
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from conftest import needs

import attnlab
from attnlab import GPT2, AttnlabError
from attnlab.errors import MissingExtraError


@pytest.fixture(autouse=True)
def libraries() -> None:
    needs("pandas", "frames")


def test_data_frame_by_position_and_by_symbol(odd: GPT2) -> None:
    """A trace of "the hen in a thin inn", which has repeated tokens."""
    head = odd.trace("the hen in a thin inn").head(1, 2)
    symbols = list(head.tokens.symbols)  # type: ignore[union-attr]
    assert symbols.count("n") == 2
    frame = head.to_dataframe()
    assert frame.shape == (12, 12)
    assert frame.index.is_unique
    assert frame.columns.is_unique
    assert np.array_equal(frame.to_numpy(), head.weights)
    assert list(frame.index.names) == ["query", "query_token"]
    assert list(frame.columns.names) == ["key", "key_token"]
    assert frame.index.get_level_values("query_token").tolist() == symbols
    assert frame.loc[(11, "n"), (3, "n")] == head.weights[11, 3]
    assert np.array_equal(frame.loc[11].to_numpy()[0], head.weights[11])
    both: Any = frame.xs("n", level="key_token", axis=1)
    assert np.array_equal(both.to_numpy(), head.weights[:, [3, 11]])


def test_data_frames_of_other_steps_and_your_own_arrays(odd: GPT2) -> None:
    head = odd.trace("the hen in").head(0, 0)
    frame = head.to_dataframe("Q")
    assert frame.columns.name == "Dk"
    assert frame.columns.tolist() == list(range(7))
    assert head.to_dataframe("b_Q").columns.tolist() == ["b_Q"]
    assert head.to_dataframe("masked_scores").iloc[0, 1] == -np.inf
    toy = attnlab.attention(np.eye(2), np.eye(2), [[1.0, 2.0], [3.0, 4.0]])
    frame = toy.to_dataframe("raw_scores")
    assert (frame.index.name, frame.columns.name) == ("query", "key")
    assert frame.to_numpy().tolist() == [[1, 0], [0, 1]]
    step = odd.generate("the hen", 2, temperature=0, trace=True).steps[-1].trace
    frame = step.head(0, 0).to_dataframe()
    symbol = step.tokens.symbols[0]
    assert frame.index.tolist() == [(5, symbol)]
    assert frame.columns.tolist() == [*((n, str(n)) for n in range(5)), (5, symbol)]


@pytest.mark.parametrize(
    ("export", "message"),
    [
        (lambda trace: trace.head(0, 0).to_dataframe("wieghts"), "'wieghts'; its steps are"),
        (lambda trace: trace.head(0, 0).to_dataframe("scale"), r"scale is a single number, 2\.646"),
        (lambda trace: trace.blocks[0].attention.to_dataframe(), "first choose a head"),
        (lambda trace: trace.blocks[0].to_dataframe(), "name of a step: input, mid, output"),
        (lambda trace: trace.head(0, 0).to_dataframe("dropout_mask"), "made without dropout_mask"),
    ],
)
def test_invalid_exports(odd: GPT2, export: Any, message: str) -> None:
    with pytest.raises(AttnlabError, match=message):
        export(odd.trace("the hen"))


@pytest.mark.parametrize(
    ("module", "library", "extra"),
    [
        ("views.plot", "matplotlib", "plot"),
        ("views.pictures", "matplotlib", "plot"),
        ("views.frames", "pandas", "frames"),
        ("views.sheets", "xlsxwriter", "sheets"),
    ],
)
def test_without_an_optional_library(
    monkeypatch: pytest.MonkeyPatch, module: str, library: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    for name in (module, "views.plot"):
        monkeypatch.delitem(sys.modules, f"attnlab.{name}", raising=False)
    message = f"this needs {library}: pip install {library} (attnlab's optional extra '{extra}')"
    with pytest.raises(MissingExtraError) as caught:
        import_module(f"attnlab.{module}")
    assert str(caught.value) == message
    assert isinstance(caught.value, ImportError)


def test_edits_are_marked(odd: GPT2) -> None:
    path = "blocks.1.attention.heads.2.weights"
    edited = odd.trace("the hen").edited({path: 0.25})
    assert (edited.head(1, 2).to_dataframe() == 0.25).all(axis=None)
    assert path in edited.head(1, 2).to_dataframe().attrs["title"]


def test_steps_and_gradients_are_data_frames(pocket: GPT2) -> None:
    trace = pocket.trace("The dog chased the ball, but it")
    assert np.array_equal(trace.to_dataframe("embedding"), trace.embedding)
    assert np.array_equal(trace.blocks[1].to_dataframe("mid"), trace.blocks[1].mid)
    gradients = attnlab.gradients(trace, " barked")
    head = gradients.blocks[1].attention.heads[2]
    assert np.array_equal(head.to_dataframe(), head.weights)
    assert np.array_equal(trace.to_dataframe().loss[1:], trace.losses)
