"""Pictures: drawings, read from the Axes; files; tokens of any script."""

import base64
import re
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from conftest import needs
from runs import replace_tokens

import attnlab
from attnlab import GPT2, AttnlabError, GPT2Config, Token, Tokenizer, Tokens, causal_mask
from attnlab.forward.attention import Attention
from attnlab.forward.parameters import ParameterVector, parameter_count


@pytest.fixture(autouse=True)
def matplotlib() -> None:
    needs("matplotlib", "plot")


def with_tokens(*texts: str) -> Attention:
    T = len(texts)
    numbers = np.random.default_rng(0).standard_normal((3, T, 4))
    result = attnlab.attention(*numbers, mask=causal_mask(T))
    symbols = Tokens(Token(i, f"S{i}", text, text.encode()) for i, text in enumerate(texts))
    replace_tokens(result, symbols)
    return result


def ticks(axis: Any) -> list[str]:
    return [text.get_text() for text in axis.get_ticklabels()]


def image_data(ax: Any) -> Any:
    (image,) = ax.images
    return image.get_array()


def test_steps_of_a_head_and_their_scales(odd: GPT2) -> None:
    head = odd.trace("the hen in").head(1, 2)
    ax = head.plot().axes
    numbers = image_data(ax)
    assert np.array_equal(np.ma.getmaskarray(numbers), ~causal_mask(len(head.weights)))
    assert np.allclose(numbers.filled(0), head.weights, atol=1e-6)
    symbols = list(head.tokens.symbols)  # type: ignore[union-attr]
    assert ticks(ax.xaxis) == ticks(ax.yaxis) == symbols
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("key", "query")
    assert head.title in ax.get_title(loc="left")
    assert "weights = softmax(masked_scores)" in ax.get_title(loc="left")
    assert ax.images[0].get_clim() == (0, 1)
    assert ax.images[0].norm(0.25) == 64  # √0.25, the middle of 128 colours
    assert ax.patch.get_hatch()
    ax = head.plot("scores").axes
    assert ax.images[0].cmap(0.0)[:3] == pytest.approx([c / 255 for c in (11, 79, 156)], abs=0.005)
    largest = float(np.abs(head.scores).max())
    assert ax.images[0].get_clim() == (pytest.approx(-largest), pytest.approx(largest))
    assert not np.ma.getmaskarray(image_data(ax)).any()
    assert ticks(head.plot("Q").axes.xaxis) == [*map(str, range(7))]
    assert image_data(head.plot("b_Q").axes).shape == (1, 7)
    assert np.array_equal(np.ma.getmaskarray(image_data(head.plot("mask").axes)), ~causal_mask(6))


def test_drawing_into_existing_axes(odd: GPT2) -> None:
    from matplotlib.figure import Figure

    trace = odd.trace("the hen in")
    left, right = Figure().subplots(1, 2)
    assert trace.head(0, 0).plot("weights", ax=left).axes is left
    picture = trace.plot("weights", ax=right)
    assert picture.axes is right
    assert picture.figure is right.figure
    data, _ = picture._repr_mimebundle_()
    assert [*data] == ["text/plain"]  # the owner of the figure shows it


def test_pyplot_keeps_no_figure_open(odd: GPT2, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)  # importing it fails
    trace = odd.trace("the hen")
    for draw in (trace.plot, trace.head(0, 0).plot):
        assert draw().axes


def test_all_heads(odd: GPT2) -> None:
    trace = odd.trace("the hen in")
    T = len(trace.tokens)
    ax = trace.plot().axes
    numbers = image_data(ax)
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
    width, height = ax.figure.get_size_inches()
    assert min(width / 5, height / 3) > 1  # inches for each head
    assert image_data(trace.plot("Q").axes).shape == (3 * (T + 1), 5 * 8)
    ax = trace.plot(tokens=slice(-2, None)).axes
    numbers = image_data(ax)
    assert numbers.shape == (3 * 3, 5 * 3)
    assert np.allclose(numbers[3:5, 6:8].filled(0), trace.head(1, 2).weights[-2:, -2:], atol=1e-6)
    assert "shown: 2 of 6 (key)" in ax.get_title(loc="left")
    step = odd.generate("the hen", 2, temperature=0, trace=True).steps[-1].trace.head(0, 0)
    assert np.allclose(image_data(step.plot(tokens=slice(-1, None)).axes), step.weights[:, -1:])


def test_tokens_are_drawn_literally(tmp_path: Path) -> None:
    hostile = ("$x_1^2$", r"$\frac$", "a_b", "x^2", "<b>&", "\x1b[0m", "\u202eabc", "\n", "z" * 999)
    picture = with_tokens(*hostile).plot()
    ax = picture.axes
    texts_shown = ["$x_1^2$", r"$\frac$", "a_b", "x^2", "<b>&", "ě[0m", r"\u202eabc", "Ċ"]
    assert ticks(ax.xaxis)[:8] == texts_shown
    assert len(ticks(ax.xaxis)[8]) == 16
    picture.save(tmp_path / "hostile.svg")
    root = ElementTree.fromstring((tmp_path / "hostile.svg").read_bytes())
    texts = [
        "".join(element.itertext()) for element in root.iter() if element.tag.endswith("}text")
    ]
    assert set(texts_shown) <= set(texts)  # text, not outlines, and unchanged


def png_size(png: bytes) -> tuple[int, int]:
    """Width and height in pixels, of a PNG's first chunk."""
    assert png.startswith(b"\x89PNG")
    return int.from_bytes(png[16:20], "big"), int.from_bytes(png[20:24], "big")


def as_xml(img: str) -> str:
    """An HTML element as XML."""
    return re.sub(r"=(\d+)", r'="\1"', img.replace(">", "/>"))


def test_hostile_tokens_are_escaped_in_alt_text() -> None:
    hostile = ['"><script>', "\x1b"]
    result = attnlab.attention(np.eye(2), np.eye(2), np.eye(2), tokens=hostile)
    data, _ = result.plot()._repr_mimebundle_()
    assert "script&gt;" in data["text/html"]
    assert data["text/html"].count("<") == 5  # a div with a style and an image


def test_notebook_pictures_have_high_resolution_and_alt_text(odd: GPT2) -> None:
    trace = odd.trace("the hen in")
    for picture in (trace.plot(), trace.head(1, 2).plot()):
        data, metadata = picture._repr_mimebundle_(include=None, exclude=None)
        image_metadata = metadata["image/png"]
        width, height = png_size(base64.b64decode(data["image/png"]))
        assert (width / 2, height / 2) == pytest.approx(
            (image_metadata["width"], image_metadata["height"]), abs=1
        )
        assert image_metadata["alt"] == data["text/plain"] == repr(picture) == picture.alt
        (img,) = re.findall(r"<img[^>]*>", data["text/html"])
        (image,) = ElementTree.fromstring(f"<p>{as_xml(img)}</p>")
        assert image.attrib.pop("src") == f"data:image/png;base64,{data['image/png']}"
        assert {name: image.get(name) for name in image_metadata} == {
            name: str(value) for name, value in image_metadata.items()
        }


def test_alt_text(odd: GPT2) -> None:
    trace = odd.trace("the hen in")
    head = trace.head(1, 2)
    below = np.where(causal_mask(6), head.scores, -np.inf)
    q, k = np.unravel_index(below.argmax(), below.shape)
    symbols = trace.tokens.symbols
    assert head.plot("masked_scores").alt == (
        f"Heatmap of {head.title}, {head._heading_of('masked_scores')}: 6 x 6, query by "
        f"key; the largest is {below[q, k]:.4g} at query {q} ({symbols[q]}), "
        f"key {k} ({symbols[k]})"
    )
    row = odd.generate("the hen in", 2, temperature=0, trace=True).steps[1].trace  # of one query
    for shown, name in ((trace, "weights"), (trace, "V"), (row, "scores")):
        every = np.stack([getattr(block.attention, name) for block in shown.blocks])
        layer, h = np.argwhere(every == every.max())[0, :2]
        largest = f"the largest is {every.max():.4g} in layer {layer}, head {h}"
        assert shown.plot(name).alt.endswith(f"3 layers of 5 heads; {largest}")
    b_Q = np.asarray(head.b_Q)
    text = f"b_Q: 7, Dk; the largest is {b_Q.max():.4g} at Dk {b_Q.argmax()}"
    assert head.plot("b_Q").alt.endswith(text)


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_files(odd: GPT2, tmp_path: Path, ending: str) -> None:
    picture = odd.trace("the hen").head(0, 0).plot()
    file = tmp_path / f"picture.{ending}"
    picture.save(file)
    content = file.read_bytes()
    assert content.startswith({"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[ending])
    if ending != "pdf":
        assert b"Heatmap of Layer 0, attention, head 0" in content
    assert [*tmp_path.iterdir()] == [file]


def test_unknown_picture_formats(odd: GPT2, tmp_path: Path) -> None:
    picture = odd.trace("the hen").plot()
    for name in ("picture", "picture.txt", "picture.html", ".png"):
        with pytest.raises(AttnlabError, match=r"end it in \.png, \.svg or \.pdf"):
            picture.save(tmp_path / name)
        assert not [*tmp_path.iterdir()]
    with pytest.raises(AttnlabError, match="nowhere doesn't exist"):
        picture.save(tmp_path / "nowhere" / "picture.png")


@pytest.fixture
def few_fonts(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Only matplotlib's own fonts."""
    from matplotlib import font_manager

    fonts = font_manager.fontManager
    bundled = [entry for entry in fonts.ttflist if "mpl-data" in entry.fname]
    monkeypatch.setattr(fonts, "ttflist", bundled)
    return fonts


@pytest.mark.usefixtures("few_fonts")
def test_symbols_replace_characters_missing_from_all_fonts() -> None:
    picture = with_tokens("a", "\U0002fa1d", " é").plot()
    assert ticks(picture.axes.xaxis) == ["a", "S1", "Ġé"]
    title = picture.axes.get_title(loc="left").replace("\n", " ")
    assert "characters missing from the fonts are shown as symbols" in title
    assert "apt-get install fonts-noto-cjk" in title
    picture._repr_mimebundle_()  # with no warning of a missing glyph
    assert "symbols" not in with_tokens("a", "é").plot().axes.get_title(loc="left")
    hieroglyph = with_tokens("\U00013000").plot()
    no_chinese = hieroglyph.axes.get_title(loc="left").replace("\n", " ")
    assert "missing from the fonts" in no_chinese
    assert "apt-get" not in no_chinese


@pytest.mark.usefixtures("few_fonts")
def test_characters_without_glyphs_are_escaped() -> None:
    from attnlab.analysis.base import numbered_axis
    from attnlab.views.plot import plot_matrix

    of_token = attnlab.self_attention(*np.ones((4, 1, 1)), tokens=["猫"]).plot()
    assert ticks(of_token.axes.xaxis) == [r"\u732b"]
    assert "猫" in of_token.alt
    rows = numbered_axis("layer", 1)
    titled = plot_matrix(np.ones((1, 1)), rows, rows, "logit of 猫", None)
    assert titled.axes.get_title(loc="left").startswith(r"logit of \u732b")
    for picture in (of_token, titled):
        picture._repr_mimebundle_()  # with no warning of a missing glyph


def of_length(T: int) -> Attention:
    numbers = np.random.default_rng(0).standard_normal((3, T, 4))
    return attnlab.attention(*numbers, tokens=[f"t{i}" for i in range(T)])


def test_long_texts_show_the_last_tokens() -> None:
    result = of_length(30)
    ax = result.plot().axes
    positions = [*range(12), *range(18, 30)]
    kept = np.delete(np.delete(image_data(ax), 12, axis=0), 12, axis=1)
    assert np.allclose(kept, result.weights[np.ix_(positions, positions)])
    for gap in (image_data(ax)[12], image_data(ax)[:, 12]):
        assert np.ma.getmaskarray(gap).all()
    names = [f"t{i}" for i in positions]
    assert ticks(ax.xaxis) == [*names[:12], "…", *names[12:]]


@pytest.mark.parametrize(
    ("tokens", "positions"),
    [
        (slice(None), range(30)),
        (slice(-4, None), range(26, 30)),
        (slice(5, 9), range(5, 9)),
        (slice(20, 99), range(20, 30)),
    ],
    ids=str,
)
def test_chosen_tokens(tokens: slice, positions: range) -> None:
    result = of_length(30)
    picture = result.plot(tokens=tokens)
    assert np.allclose(image_data(picture.axes), result.weights[np.ix_(positions, positions)])
    title = picture.axes.get_title(loc="left")
    assert ("shown:" in title) == (len(positions) < 30)
    assert "tokens=slice(None)" not in title
    if len(positions) < 30:
        text = f"{len(positions)} of 30 (key), {positions[0]} to {positions[-1]}"
        assert f"shown: {text}" in title
        assert picture.alt.endswith(f"; shown: {text}")
    cells = result.weights[np.ix_(positions, positions)]
    q, k = np.unravel_index(cells.argmax(), cells.shape)
    assert f": {len(positions)} x {len(positions)}, query by key" in picture.alt
    largest = f"{cells.max():.4g} at query {positions[q]} (t{positions[q]}), key {positions[k]} "
    assert f"the largest is {largest}" in picture.alt


def test_lens_plot_writes_tokens_into_cells(pocket: GPT2) -> None:
    lens = attnlab.lens(pocket.trace("The dog chased the ball, but it"))

    def texts(picture: Any) -> list[str]:
        return [text.get_text() for text in picture.axes.texts]

    symbols = [[token.readable for token in row] for row in lens.tokens]
    assert texts(lens.plot()) == [symbol for row in symbols for symbol in row]
    assert texts(lens.plot(tokens=slice(6, 8))) == [s for row in symbols for s in row[6:]]
    assert texts(lens.top(2).plot())[-2:] == [t.readable for t in lens.top(2).tokens[-1]]
    assert texts(lens.of(" rolled").plot()) == []
    assert texts(lens.plot(lens.of(" dog").plot().axes)) == []  # where the size of cells is unknown


@pytest.fixture(scope="module")
def deep() -> GPT2:
    """Twelve layers of twelve heads, like GPT-2."""
    config = GPT2Config(vocab_size=256, n_positions=200, n_embd=24, n_layer=12, n_head=12)
    numbers = 0.3 * np.random.default_rng(0).standard_normal(parameter_count(config))
    return GPT2(ParameterVector(config, np.float32(numbers)), Tokenizer.byte_level())


def test_pictures_of_twelve_layers_show_every_point_and_head(deep: GPT2) -> None:
    lens = attnlab.lens(deep.trace("a thin hen " * 3))
    ax = lens.plot().axes
    assert ticks(ax.yaxis) == [*lens.stops]
    assert (len(lens.stops), len(ax.texts)) == (25, 25 * 16)
    corners = ax.texts[0].get_text(), ax.texts[-1].get_text()
    assert corners == (lens.tokens[0][0].readable, lens.tokens[-1][-1].readable)


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (5, "tokens must be a slice; got 5"),
        (slice("a", None), "tokens must be a slice of integers"),
        (slice(None, None, 0), "tokens must be a slice of integers"),
        (slice(9, 12), r"slice\(9, 12, None\) selects no query; expected 0 to 3"),
    ],
    ids=str,
)
def test_invalid_tokens(odd: GPT2, tokens: Any, message: str) -> None:
    trace = odd.trace("the hen")
    for view in (trace.plot, trace.head(0, 0).plot):
        with pytest.raises(AttnlabError, match=message):
            view(tokens=tokens)


@pytest.mark.usefixtures("few_fonts")
def test_fonts_with_the_needed_characters_are_used() -> None:
    bracket = "\u23dc"  # in matplotlib's STIX, but not in its default font
    picture = with_tokens("a", bracket).plot()
    assert ticks(picture.axes.xaxis) == ["a", bracket]
    families = picture.axes.xaxis.get_ticklabels()[1].get_fontfamily()
    assert any(family.startswith("STIX") for family in families)
    picture._repr_mimebundle_()  # with no warning of a missing glyph


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda trace: trace.head(0, 0).plot("wieghts"), "'wieghts'; its steps are .*weights"),
        (lambda trace: trace.head(0, 0).plot("scale"), r"scale is a single number, 2\.646"),
        (lambda trace: trace.head(0, 0).plot("dropout_mask"), "made without dropout_mask"),
        (lambda trace: trace.blocks[0].attention.plot(), "first choose a head"),
        (lambda trace: trace.plot("X"), "'X' is not a step of each head; choose one of Q, K"),
    ],
)
def test_invalid_arguments(odd: GPT2, draw: Any, message: str) -> None:
    with pytest.raises(AttnlabError, match=message):
        draw(odd.trace("the hen"))


@pytest.mark.parametrize("ax", [5, np.arange(3)])
def test_ax_must_be_axes(odd: GPT2, ax: Any) -> None:
    trace = odd.trace("the hen")
    for draw in (trace.plot, trace.head(0, 0).plot):
        with pytest.raises(AttnlabError, match="ax must be Axes; got "):
            draw(ax=ax)
