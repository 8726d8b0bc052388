"""Results of every kind: tables, data frames, pictures, their sources and limits."""

from typing import Any

import numpy as np
import pytest
from conftest import needs

import attnlab
import attnlab.types
from attnlab import GPT2, GPT2Config
from attnlab.analysis.base import Analysis
from attnlab.checking import figures
from attnlab.checking.comparison import Stages
from attnlab.checking.hugging_face import Verification
from attnlab.support.document import Document
from attnlab.support.language import using_language
from attnlab.support.messages import translations
from attnlab.support.tables import Table
from attnlab.walkthrough import Reproduction

TINY = GPT2Config(vocab_size=256, n_positions=8, n_embd=4, n_layer=1, n_head=1)
TEXTS = ("The dog chased the ball, but it", "The cat chased the ball, but it")


@pytest.fixture(scope="module")
def results(pocket: GPT2) -> dict[str, Any]:
    """A result of every kind, by a name."""
    texts = pocket.trace([*TEXTS])
    trace, other = texts
    pairs: Any = (texts, pocket.trace([*TEXTS[::-1]]))
    words = [(" barked", " meowed"), (" meowed", " barked")]
    settings: Any = {"target": words[0], "progress": False}
    verdict = attnlab.check({"weights": other.head(1, 2).weights}, trace.head(1, 2))
    lens, why = attnlab.lens(trace), attnlab.why(trace.head(1, 2), "it", "dog")
    sentences = ["The dog barked.", "A cat meowed.", "The dog saw the dog."]
    measures = ["induction", "previous", "loss"]
    atlas = attnlab.atlas("pocket", sentences, measures, progress=False)
    return {
        "patching": attnlab.patch(trace, other, by_position=True, **settings),
        "patching of pairs": attnlab.patch(*pairs, target=words, progress=False),
        "attribution patching": attnlab.attribution_patch(trace, other, target=words[0]),
        "path patching": attnlab.path_patch(trace, other, **settings),
        "attribution": attnlab.attribution(trace, " barked"),
        "lens": lens,
        "one token": lens.of(" barked"),
        "top": lens.top(3),
        "why": why,
        "without": why.without("blocks.0.mlp.output"),
        "jobs": attnlab.jobs(trace),
        "by words": trace.by_words(),
        "next tokens": trace.next_tokens(3),
        "generation": pocket.generate("The dog", 2, temperature=0),
        "traces": texts,
        "check": verdict,
        "verification": Verification("title", verdict.stages),
        "figures": Reproduction("", "", (figures.compare("ids", [1], [1], 0),)),
        "atlas": atlas,
        "measure": atlas["previous"],
        "loss": atlas["loss"],
        "training": attnlab.train(TINY, TEXTS[0], steps=2, sequence_length=4, progress=False),
    }


def documents(kind: type = Document) -> set[type]:
    """The package's classes that are printed as tables."""
    below = {x for x in kind.__subclasses__() if x.__module__.startswith("attnlab.")}
    return below.union(*map(documents, below))


def test_types_has_every_result_of_public_functions(results: dict[str, Any]) -> None:
    """The others are what commands return."""
    internal = ("verification", "figures")
    public = {type(result).__name__ for name, result in results.items() if name not in internal}
    assert public <= {*attnlab.types.__all__}


def headings_in(language: str, result: Document) -> list[str]:
    with using_language(language):
        tables = [piece for piece in result.pieces() if isinstance(piece, Table)]
        return [str(cell) for table in tables for cell in table.lines[0]]


def test_every_result_is_a_data_frame(results: dict[str, Any]) -> None:
    needs("pandas", "frames")
    assert {*map(type, results.values())} == documents() - {Analysis, Stages}
    for name, result in results.items():
        frame = result.to_dataframe()
        assert len(frame), name
        assert frame.columns.is_unique, name
        assert "<table" in result._repr_html_() or name in ("training", "traces"), name
        english, chinese = map(headings_in, ("en", "zh"), (result, result))
        same = {x for x in set(english) & set(chinese) if x in translations()}
        assert same <= {"", "logit", "id", "previous", "induction", "mean"}, name


# The columns that say what a number is of, the column of the number, and the array.
NUMBERS: dict[str, tuple[list[str], str, Any]] = {
    "patching": (["layer", "head", "position"], "restored", lambda x: x.restored),
    "patching of pairs": (["layer", "head"], "standard_error", lambda x: x.standard_errors),
    "lens": (["position"], "probability", lambda x: x.probabilities[0]),
    "jobs": (["layer", "head"], "attention", lambda x: x.attention[0]),
    "atlas": (["layer", "head"], "standard_error", lambda x: x["induction"].standard_errors),
    "measure": (["layer", "head"], "mean", lambda x: x.mean),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_the_numbers_of_results(results: dict[str, Any], name: str) -> None:
    needs("pandas", "frames")
    indices, column, array_of = NUMBERS[name]
    frame, array = results[name].to_dataframe(), array_of(results[name])
    rows = frame.iloc[: array.size]
    assert np.array_equal(rows[column], array.ravel(), equal_nan=True)
    assert [*rows[indices].itertuples(index=False, name=None)] == [*np.ndindex(array.shape)]


def test_the_rows_of_results(results: dict[str, Any]) -> None:
    needs("pandas", "frames")
    frames = {name: result.to_dataframe() for name, result in results.items()}
    attribution, terms = results["attribution"], frames["attribution"]
    assert terms.contribution.sum() == pytest.approx(attribution.total)
    assert terms.contribution[0] == attribution.token_embedding
    head = terms[(terms["layer"] == 1) & (terms["head"] == 2)]
    assert head.contribution.item() == attribution.heads[1, 2]
    assert [*frames["patching"]] == ["layer", "head", "position", "position_token", "restored"]
    assert np.array_equal(frames["jobs"].even[::8], results["jobs"].even, equal_nan=True)
    headings = [str(grid.heading) for grid in results["jobs"]._grids()]  # mean of 1/2 … 1/8
    assert headings == ["previous; evenly 0.25", "first; evenly 0.25"]
    assert frames["why"].score.sum() == pytest.approx(results["why"].total, abs=1e-5)
    tokens, trace = frames["traces"], results["traces"][1]
    assert tokens.symbol[8:].tolist() == [*trace.tokens.symbols]
    assert np.array_equal(tokens.loss[9:], trace.losses)
    assert np.isnan(tokens.loss[8])
    assert tokens.loss[8:].equals(tokens.loss[8:].set_axis(range(8, 16)))
    assert frames["next tokens"].id.tolist() == [token.id for token in results["next tokens"]]
    assert frames["training"].loss.tolist() == results["training"].losses
    with using_language("zh"):  # texts are data
        for name in ("jobs", "check"):
            assert results[name].to_dataframe().equals(frames[name])


def test_analyses_have_pictures(results: dict[str, Any]) -> None:
    needs("matplotlib", "plot")
    result = {n: x for n, x in results.items() if isinstance(x, Analysis)}
    for name, analysis in result.items():
        picture = analysis.plot()
        assert picture.axes.images or picture.axes.lines or picture.axes.texts, name
        assert picture.alt, name
        if picture.axes.images:
            (image,) = picture.axes.images
            numbers = np.ma.filled(image.get_array(), np.nan)
            assert np.allclose(numbers, analysis._grid()[0], equal_nan=True), name
