"""Steps with named axes, for pandas and xarray."""

import sys
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from conftest import needs

import attnlab
from attnlab import GPT2, AttnlabError
from attnlab.analysis.base import Analysis
from attnlab.checking import figures
from attnlab.checking.comparison import Stages
from attnlab.checking.hugging_face import Verification
from attnlab.errors import MissingExtraError
from attnlab.pocket.truth import open_truth
from attnlab.support.language import using_language
from attnlab.support.messages import translations
from attnlab.support.tables import Document, Table
from attnlab.walkthrough import Reproduction


@pytest.fixture(autouse=True)
def libraries() -> None:
    needs("pandas", "frames")
    needs("xarray", "frames")


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
    expected = [*((n, str(n)) for n in range(5)), (5, symbol)]
    assert frame.columns.tolist() == expected


def test_data_frames_of_a_whole_trace(odd: GPT2) -> None:
    trace = odd.trace("the hen in a thin inn")
    data = trace.to_xarray()
    assert data.weights.dims == ("layer", "head", "query", "key")
    assert dict(data.sizes) == {
        "layer": 3,
        "head": 5,
        "query": 12,
        "key": 12,
        "position": 12,
        "Dk": 7,
        "Dv": 7,
        "D": 35,
    }
    for layer, head in ((0, 0), (2, 4)):
        row = data.sel(query=11).isel(layer=layer, head=head)
        assert np.array_equal(row.weights, trace.head(layer, head).weights[11])
        assert np.array_equal(data.Q[layer, head], trace.head(layer, head).Q)
        assert np.array_equal(data.V[layer, head], trace.head(layer, head).V)
    assert np.array_equal(data.mid[1], trace.blocks[1].mid)
    assert data.query_token.values.tolist() == list(trace.tokens.symbols)
    attended = data.weights.where(data.key_token == "n", drop=True)
    assert attended.key.values.tolist() == [3, 11]
    assert data.weights.attrs["long_name"] == "weights = softmax(masked_scores)"
    rows = data.weights.sum("key")
    assert np.allclose(rows, 1)


def test_chosen_steps(odd: GPT2) -> None:
    trace = odd.trace("the hen")
    data = trace.to_xarray(["embedding", "scores", "logits"])
    assert list(data.data_vars) == ["embedding", "scores", "logits"]
    assert data.embedding.dims == ("position", "D")
    assert np.array_equal(data.logits, trace.logits)
    assert list(trace.to_xarray("weights").data_vars) == ["weights"]


@pytest.mark.parametrize(
    ("export", "message"),
    [
        (lambda trace: trace.head(0, 0).to_dataframe("wieghts"), "'wieghts'; its steps are"),
        (lambda trace: trace.head(0, 0).to_dataframe("scale"), r"scale is a single number, 2\.646"),
        (lambda trace: trace.blocks[0].attention.to_dataframe(), "first choose a head"),
        (lambda trace: trace.to_xarray(["wieghts"]), "'wieghts'; steps are .*weights"),
        (lambda trace: trace.to_xarray(["dropout_mask"]), "made without dropout_mask"),
        (lambda trace: trace.to_xarray(name for name in ["Q"]), "steps must be a text or a list"),
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
        ("views.frames", "xarray", "frames"),
        ("views.sheets", "xlsxwriter", "sheets"),
        ("views.explorer", "uvicorn", "explore"),
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


class WithoutRepr:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


@pytest.mark.parametrize(
    "name", [5, [WithoutRepr()], WithoutRepr(), np.arange(3), "z" * 1000, [1] * 100_000]
)
def test_invalid_steps_are_quoted_in_short(odd: GPT2, name: Any) -> None:
    trace = odd.trace("the hen")
    for call in (
        trace.head(0, 0).to_dataframe,
        trace.to_xarray,
        lambda name: trace.to_xarray([name]),
    ):
        with pytest.raises(AttnlabError, match=r"step|one of type") as caught:
            call(name)
        assert len(str(caught.value)) < 1000


def test_edits_are_marked(odd: GPT2) -> None:
    path = "blocks.1.attention.heads.2.weights"
    edited = odd.trace("the hen").edited({path: 0.25})
    data = edited.to_xarray()
    assert data.title.endswith(f"edited: {path}")
    assert (data.weights.sel(layer=1, head=2) == 0.25).all()
    assert (edited.head(1, 2).to_dataframe() == 0.25).all(axis=None)
    assert path in edited.head(1, 2).to_dataframe().attrs["title"]


TEXTS = ("The dog chased the ball, but it", "The cat chased the ball, but it")


@pytest.fixture(scope="module")
def results(pocket: GPT2) -> dict[str, Any]:
    """A result of every kind, by a name."""
    texts = pocket.trace([*TEXTS])
    trace, other = texts
    pairs: Any = (texts, pocket.trace([*TEXTS[::-1]]))
    words = [(" barked", " meowed"), (" meowed", " barked")]
    settings: Any = {"metric": words[0], "progress": False}
    edges = attnlab.edges(trace, other, **settings)
    lens, truth, why = trace.logit_lens(), open_truth(), trace.head(1, 2).why("it", "dog")
    sentences = ["The dog barked.", "A cat meowed.", "The dog saw the dog."]
    atlas, second = (
        attnlab.atlas("pocket", x, ["induction", "entropy", "loss"], progress=False, heads=True)
        for x in (sentences, sentences[:2])
    )
    return {
        "patching": attnlab.patch(trace, other, by_position=True, **settings),
        "patching of pairs": attnlab.patch(*pairs, metric=words, progress=False),
        "attribution patching": attnlab.attribution_patch(trace, other, metric=words[0]),
        "path patching": attnlab.path_patch(trace, other, **settings),
        "edges": edges,
        "circuit": edges.circuit(3),
        "circuits": edges.circuits([0, 5]),
        "attribution": trace.attribution(" barked"),
        "attribution of texts": texts.attribution([x for x, _ in words]),
        "by token": trace.attribution(" barked").by_token(),
        "lens": lens,
        "one token": lens.of(" barked"),
        "top": lens.top(3),
        "lens of texts": texts.logit_lens([x for x, _ in words]),
        "reads": trace.reads(1, 2, " it"),
        "writes": trace.writes(1, 2, " dog"),
        "composition": trace.composition(),
        "QK": trace.head(1, 2).QK,
        "why": why,
        "why by token": why.by_token(),
        "without": why.without("blocks.0.mlp.output"),
        "why of a head": texts.why(1, 2),
        "jobs": trace.jobs(),
        "next tokens": trace.next_tokens(3),
        "generation": pocket.generate("The dog", 2, temperature=0),
        "traces": texts,
        "comparison": attnlab.compare(trace, other),
        "check": attnlab.check({"weights": other.head(1, 2).weights}, trace.head(1, 2)),
        "verification": Verification(attnlab.compare(trace, other).stages, "title", 1),
        "figures": Reproduction("", "", (figures.compare("ids", [1], [1], 0),)),
        "atlas": atlas,
        "measure": atlas["entropy"],
        "loss": atlas["loss"],
        "profile": atlas.head(1, 2),
        "top texts of a head": atlas.head(1, 2).tops,
        "two atlases": atlas.compare(second),
        "standouts": atlas.standouts(),
        "passages": atlas["entropy"].most(1, 2),
        "truth": truth,
        "truth's circuits": truth.circuits("pronoun"),
        "Shapley values": truth.shapley(),
        "interactions": truth.interactions("pronoun"),
        "methods": truth.methods(),
    }


def documents(kind: type = Document) -> set[type]:
    """The package's classes that are printed as tables."""
    below = {x for x in kind.__subclasses__() if x.__module__.startswith("attnlab.")}
    return below.union(*map(documents, below))


def headings_in(language: str, result: Document) -> list[str]:
    with using_language(language):
        tables = [piece for piece in result.pieces() if isinstance(piece, Table)]
        return [str(cell) for table in tables for cell in table.lines[0]]


def test_every_result_is_a_data_frame(results: dict[str, Any]) -> None:
    assert {*map(type, results.values())} == documents() - {Analysis, Stages}
    for name, result in results.items():
        frame = result.to_dataframe()
        assert len(frame), name
        assert frame.columns.is_unique, name
        assert "<table" in result._repr_html_() or name in ("QK", "circuit"), name
        english, chinese = map(headings_in, ("en", "zh"), (result, result))
        same = {x for x in set(english) & set(chinese) if x in translations()}
        assert same <= {"", "logit", "id", "entropy", "induction", "mean"}, name


# The columns that say what a number is of, the column of the number, and the array.
NUMBERS: dict[str, tuple[list[str], str, Any]] = {
    "patching": (["layer", "head", "position"], "restored", lambda x: x.restored),
    "patching of pairs": (["layer", "head"], "standard_error", lambda x: x.standard_errors),
    "by token": (["layer", "head", "key"], "contribution", lambda x: x.heads),
    "lens": (["position"], "probability", lambda x: x.probabilities[0]),
    "composition": (
        ["writes_layer", "writes_head", "reads_layer", "reads_head"],
        "score",
        lambda x: x.scores,
    ),
    "jobs": (["layer", "head"], "attention", lambda x: x.attention[0]),
    "interactions": ([], "interaction", lambda x: x.values),
    "why by token": (["key"], "total", lambda x: x.shares),
    "atlas": (["layer", "head"], "error", lambda x: x["induction"].error),
    "measure": (["layer", "head"], "mean", lambda x: x.mean),
    "QK": ([], "singular_value", lambda x: x.singular_values),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_the_numbers_of_results(results: dict[str, Any], name: str) -> None:
    indices, column, array_of = NUMBERS[name]
    frame, array = results[name].to_dataframe(), array_of(results[name])
    rows = frame.iloc[: array.size]
    assert np.array_equal(rows[column], array.ravel(), equal_nan=True)
    if indices:
        assert [*rows[indices].itertuples(index=False, name=None)] == [*np.ndindex(array.shape)]


def test_the_rows_of_results(results: dict[str, Any]) -> None:
    frames = {name: result.to_dataframe() for name, result in results.items()}
    edges, effects = frames["edges"], results["edges"].effects
    assert len(edges) == np.isfinite(effects).sum() == 110
    assert (edges.effect.abs().diff().dropna() <= 0).all()
    assert [*edges.head(3).itertuples(index=False, name=None)] == results["edges"].strongest(3)
    assert frames["circuits"].edges.tolist() == [0, 5]
    attribution, terms = results["attribution"], frames["attribution"]
    assert terms.contribution.sum() == pytest.approx(attribution.total)
    head = terms[(terms["layer"] == 1) & (terms["head"] == 2)]
    assert head.contribution.item() == attribution.heads[1, 2]
    assert frames["why"].score.sum() == pytest.approx(results["why"].total, abs=1e-5)
    tokens, trace = frames["traces"], results["traces"][1]
    assert tokens.symbol[8:].tolist() == [*trace.tokens.symbols]
    assert np.array_equal(tokens.loss[9:], trace.losses)
    assert np.isnan(tokens.loss[8])
    assert tokens.loss[8:].equals(tokens.loss[8:].set_axis(range(8, 16)))
    assert frames["next tokens"].id.tolist() == [token.id for token in results["next tokens"]]
    last = frames["two atlases"].iloc[-1]  # of the loss
    assert (last.measure, last.layer is last["head"]) == ("loss", True)
    measures = [standout.measure for standout in results["standouts"]]
    assert frames["standouts"].measure.tolist() == measures
    with using_language("zh"):  # texts are data
        for name in ("jobs", "why by token", "comparison"):
            assert results[name].to_dataframe().equals(frames[name])


def test_steps_and_gradients_are_data_frames(pocket: GPT2) -> None:
    trace = pocket.trace(TEXTS[0])
    assert np.array_equal(trace.to_dataframe("embedding"), trace.embedding)
    assert np.array_equal(trace.blocks[1].to_dataframe("mid"), trace.blocks[1].mid)
    gradients = trace.gradients(" barked")
    head = gradients.blocks[1].attention.heads[2]
    assert np.array_equal(head.to_dataframe(), head.weights)
    assert np.array_equal(trace.to_dataframe().loss[1:], trace.losses)


def test_dataset_of_an_atlas() -> None:
    texts = ["The dog barked.", "A cat meowed."]
    atlas = attnlab.atlas("pocket", texts, ["induction", "entropy", "loss"], progress=False)
    data = atlas.dataset
    assert data.sizes == {"measure": 2, "layer": 2, "head": 4}
    cell = data.sel(measure="entropy", layer=1, head=2)
    assert float(cell["mean"]) == atlas["entropy"].mean[1, 2]
    assert float(cell["error"]) == atlas["entropy"].error[1, 2]
    assert data.attrs["loss"] == float(atlas["loss"].mean)
