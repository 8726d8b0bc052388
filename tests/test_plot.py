"""Pictures: what is drawn where, read from the Axes; files; tokens of any script."""

import io
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from conftest import REFERENCE, needs
from runs import plant_tokens

import attnlab
from attnlab import GPT2, AttnlabError, Token, Tokens, causal_mask
from attnlab.chain import Attention


@pytest.fixture(autouse=True)
def matplotlib() -> None:
    needs("matplotlib", "plot")


@pytest.fixture(scope="module")
def odd() -> GPT2:
    return GPT2.from_pretrained(REFERENCE / "odd")


def with_tokens(*texts: str) -> Attention:
    T = len(texts)
    numbers = np.random.default_rng(0).standard_normal((3, T, 4))
    result = attnlab.attention(*numbers, mask=causal_mask(T))
    symbols = Tokens(Token(i, f"S{i}", text, text.encode()) for i, text in enumerate(texts))
    plant_tokens(result, symbols)
    return result


def ticks(axis: Any) -> list[str]:
    return [text.get_text() for text in axis.get_ticklabels()]


def drawn(ax: Any) -> Any:
    (image,) = ax.images
    return image.get_array()


def test_a_heads_weights(odd: GPT2) -> None:
    head = odd.trace("the hen in").head(1, 2)
    ax = head.plot()
    numbers = drawn(ax)
    assert np.array_equal(np.ma.getmaskarray(numbers), ~causal_mask(len(head.weights)))
    assert np.allclose(numbers.filled(0), head.weights, atol=1e-6)
    symbols = list(head.tokens.symbols)  # type: ignore[union-attr]
    assert ticks(ax.xaxis) == ticks(ax.yaxis) == symbols
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("key", "query")
    assert head.title in ax.get_title(loc="left")
    assert "weights = softmax(masked_scores)" in ax.get_title(loc="left")
    assert ax.images[0].get_clim() == (0, pytest.approx(1))
    assert ax.patch.get_hatch()


def test_any_step_and_its_scale(odd: GPT2) -> None:
    head = odd.trace("the hen in").head(1, 2)
    ax = head.plot("scores")
    largest = float(np.abs(head.scores).max())
    assert ax.images[0].get_clim() == (pytest.approx(-largest), pytest.approx(largest))
    assert not np.ma.getmaskarray(drawn(ax)).any()
    assert ticks(head.plot("Q").xaxis) == [*map(str, range(7))]
    assert drawn(head.plot("b_Q")).shape == (1, 7)
    assert np.array_equal(np.ma.getmaskarray(drawn(head.plot("mask"))), ~causal_mask(6))


def test_into_axes_that_are_given(odd: GPT2) -> None:
    from matplotlib.figure import Figure

    trace = odd.trace("the hen in")
    left, middle, right = Figure().subplots(1, 3)
    assert trace.head(0, 0).plot("weights", ax=left) is left
    assert trace.plot("weights", ax=middle) is middle
    assert trace.plot_tokens(0, 0, ax=right) is right


def test_nothing_of_pyplot_stays_open() -> None:
    code = (
        "import sys, attnlab\n"
        "trace = attnlab.GPT2.from_pretrained(sys.argv[1]).trace('the hen')\n"
        "trace.plot(), trace.head(0, 0).plot(), trace.plot_tokens(0, 0)\n"
        "print('matplotlib.pyplot' in sys.modules)"
    )
    finished = subprocess.run(
        [sys.executable, "-c", code, REFERENCE / "odd"], capture_output=True, text=True, check=True
    )
    assert finished.stdout == "False\n"


def test_all_heads(odd: GPT2) -> None:
    trace = odd.trace("the hen in")
    T = len(trace.tokens)
    ax = trace.plot()
    numbers = drawn(ax)
    assert numbers.shape == (3 * (T + 1), 5 * (T + 1))
    for layer, head in ((0, 0), (1, 4), (2, 3)):
        top, left = layer * (T + 1), head * (T + 1)
        tile = numbers[top : top + T, left : left + T]
        assert np.allclose(tile.filled(0), trace.head(layer, head).weights, atol=1e-6)
        assert np.array_equal(np.ma.getmaskarray(tile), ~causal_mask(T))
    assert np.ma.getmaskarray(numbers)[T].all()
    assert ticks(ax.yaxis) == ["0", "1", "2"]
    assert ticks(ax.xaxis) == ["0", "1", "2", "3", "4"]
    assert ax.get_ylim() == (3 * (T + 1) - 1.5, -0.5)
    assert drawn(trace.plot("Q")).shape == (3 * (T + 1), 5 * 8)


def test_lines_are_as_strong_as_the_weights(odd: GPT2) -> None:
    trace = odd.trace("the hen in")
    weights = trace.head(1, 2).weights[3]
    ax = trace.plot_tokens(1, 2, query=3)
    assert len(ax.lines) == 4  # of six keys, two are masked
    widths = [line.get_linewidth() for line in ax.lines]
    assert np.argsort(widths).tolist() == np.argsort(weights[:4]).tolist()
    assert np.allclose(np.diff(widths), 7 * np.diff(weights[:4]), atol=1e-4)
    texts = [text.get_text() for text in ax.texts]
    assert texts[-1] == trace.tokens.symbols[3]
    assert texts[:4] == [
        f"{symbol}  {weight:.2f}"
        for symbol, weight in zip(trace.tokens.symbols, weights[:4], strict=False)
    ]
    assert texts[4].endswith("  masked")
    last = [text.get_text() for text in trace.plot_tokens(1, 2).texts]
    assert last[-1] == trace.tokens.symbols[-1]


def test_long_texts_are_cut_with_a_word(walkthrough_model: GPT2) -> None:
    trace = walkthrough_model.trace("the quick brown fox jumps over the lazy dog. " * 5)
    T = len(trace.tokens)
    ax = trace.head(0, 1).plot()
    assert drawn(ax).shape == (25, 25)  # and a gap among them
    assert f"shown: the first 23 and the last of {T} (key)" in ax.get_title(loc="left")
    assert ticks(ax.xaxis)[-2] == "…"
    weights = trace.head(0, 1).weights
    assert drawn(ax)[-1, -1] == pytest.approx(float(weights[-1, -1]), rel=1e-4)
    texts = [text.get_text() for text in trace.plot_tokens(0, 1).texts]
    smallest = np.sort(weights[-1])[:-24]
    assert f"… {T - 24} more, {smallest.sum():.2f} together" in texts
    best = int(weights[-1].argmax())
    label = f"{trace.tokens.symbols[best]}  {weights[-1, best]:.2f}"
    assert any(text.endswith(label) for text in texts)
    assert f"first 31 and the last of {T}" in trace.plot().get_title(loc="left")


def test_tokens_are_no_formulas() -> None:
    hostile = ("$x_1^2$", r"$\frac$", "a_b", "x^2", "<b>&", "\x1b[0m", "\u202eabc", "\n", "z" * 999)
    ax = with_tokens(*hostile).plot()
    shown = ["$x_1^2$", r"$\frac$", "a_b", "x^2", "<b>&", "ě[0m", r"\u202eabc", "Ċ"]
    assert ticks(ax.xaxis)[:8] == shown
    assert len(ticks(ax.xaxis)[8]) == 16
    written = io.BytesIO()
    ax.figure.savefig(written, format="svg")
    texts = [
        "".join(element.itertext())
        for element in ElementTree.fromstring(written.getvalue()).iter()
        if element.tag.endswith("}text")
    ]
    assert set(shown) <= set(texts)  # text, not outlines, and as it was


def test_png(odd: GPT2, tmp_path: Path) -> None:
    figure: Any = odd.trace("the hen").plot_tokens(0, 0).figure
    figure.savefig(tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
    assert figure._repr_png_().startswith(b"\x89PNG")


def test_symbols_where_no_font_has_the_characters() -> None:
    nowhere = "\U0002fa1d"
    ax = with_tokens("a", nowhere, " é").plot()
    assert ticks(ax.xaxis) == ["a", "S1", "Ġé"]
    assert "symbols stand for characters that no font here has" in ax.get_title(loc="left")
    ax.figure.savefig(io.BytesIO())  # with no warning of a missing glyph
    assert "symbols" not in with_tokens("a", "é").plot().get_title(loc="left")


def test_a_part_of_a_character_goes_by_its_symbol() -> None:
    assert ticks(with_tokens("a", "�").plot().xaxis) == ["a", "S1"]


def test_a_font_that_has_the_characters_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A font is made with one glyph, a square for 猫."""
    from fontTools.fontBuilder import FontBuilder
    from fontTools.pens.ttGlyphPen import TTGlyphPen
    from matplotlib import font_manager

    pen = TTGlyphPen(None)
    for point, move in (((0, 0), pen.moveTo), ((0, 700), pen.lineTo), ((700, 700), pen.lineTo)):
        move(point)
    pen.closePath()
    builder = FontBuilder(1000, isTTF=True)
    builder.setupGlyphOrder([".notdef", "cat"])
    builder.setupCharacterMap({ord("\U0002fa1d"): "cat", ord("猫"): "cat"})
    builder.setupGlyf({".notdef": pen.glyph(), "cat": pen.glyph()})
    builder.setupHorizontalMetrics({".notdef": (800, 0), "cat": (800, 0)})
    builder.setupHorizontalHeader(ascent=800, descent=-200)
    builder.setupNameTable({"familyName": "Only Cats", "styleName": "Regular"})
    builder.setupOS2()
    builder.setupPost()
    builder.save(str(tmp_path / "cats.ttf"))
    fonts = font_manager.fontManager
    monkeypatch.setattr(fonts, "ttflist", list(fonts.ttflist))
    fonts.addfont(str(tmp_path / "cats.ttf"))
    ax = with_tokens("a", "\U0002fa1d").plot()
    assert ticks(ax.xaxis) == ["a", "\U0002fa1d"]
    assert "Only Cats" in ax.xaxis.get_ticklabels()[1].get_fontfamily()
    ax.figure.savefig(io.BytesIO())


@pytest.mark.parametrize(
    ("look", "message"),
    [
        (lambda trace: trace.head(0, 0).plot("wieghts"), "'wieghts'; its steps are .*weights"),
        (lambda trace: trace.head(0, 0).plot("dropout_mask"), "made without dropout_mask"),
        (lambda trace: trace.blocks[0].attention.plot(), "first take one head"),
        (lambda trace: trace.plot("X"), "'X' each; those are Q, K"),
        (lambda trace: trace.plot_tokens(3, 0), "no layer 3; layers are 0 to 2"),
        (lambda trace: trace.plot_tokens(0, 5), "no head 5; heads are 0 to 4"),
        (lambda trace: trace.plot_tokens(0, 0, 9), "no query 9; queries are 0 to 3"),
    ],
)
def test_what_can_not_be_pictured(odd: GPT2, look: Any, message: str) -> None:
    with pytest.raises(AttnlabError, match=message):
        look(odd.trace("the hen"))


def test_without_matplotlib(odd: GPT2, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "attnlab.views.plot", raising=False)
    told = "this needs matplotlib: pip install matplotlib"
    with pytest.raises(AttnlabError, match=told) as caught:
        odd.trace("the hen").plot()
    assert isinstance(caught.value, ImportError)


@pytest.mark.parametrize("ax", [5, "a", [], np.arange(3), Path("a"), object()])
def test_pictures_are_drawn_on_axes(odd: GPT2, ax: Any) -> None:
    trace = odd.trace("the hen")
    for draw in (trace.plot, trace.head(0, 0).plot, lambda ax: trace.plot_tokens(0, 0, ax=ax)):
        with pytest.raises(AttnlabError, match="ax must be Axes; given "):
            draw(ax=ax)
