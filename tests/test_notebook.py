"""Notebook views: the HTML is parsed and compared; hostile texts."""

import base64
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from itertools import product
from pathlib import Path
from typing import Any, ClassVar
from xml.etree import ElementTree

import numpy as np
import pytest
from runs import replace_tokens, stored_steps

import attnlab
from attnlab import GPT2, Token, Tokens, causal_mask
from attnlab.analysis.base import Analysis, heads_axis, numbered_axis
from attnlab.steps.labels import Axis
from attnlab.support.colours import DARK, LIGHT
from attnlab.support.tables import label
from attnlab.views.arcs import SENTENCE, Place, _percent, path_of, sentence, small_heads
from attnlab.views.labelled_step import labelled_step

VOID = {"br", "img", "hr", "meta", "link", "input"}

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "&lt;b&gt;",
    "</style></script>",
    "\u202egnp.exe",
    "\ud800",
    "\x1b[31m\x00\r\n",
    "x" * 10_000,
    "猫",
]


class Page(HTMLParser):
    """Elements with attributes and text; every element must have its end tag."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open[-1] != "style":
            self.text += data

    def titles(self, tag: str) -> list[str]:
        return [str(a["title"]) for t, a in self.elements if t == tag and "title" in a]


def page(view: Any) -> Page:
    html: str = view._repr_html_()
    html.encode("utf-8")
    parsed = Page(html)
    tags = {tag for tag, _ in parsed.elements}
    assert tags <= {
        *("div", "style", "span", "small", "b", "code", "pre", "details", "summary"),
        *("table", "tr", "th", "td", "img"),
    }
    names = {name for _, attributes in parsed.elements for name in attributes}
    assert names <= {
        *("class", "style", "title", "aria-label"),
        *("src", "alt"),
    }
    sources = [str(attributes["src"]) for tag, attributes in parsed.elements if tag == "img"]
    assert all(source.startswith("data:image/svg+xml;base64,") for source in sources)
    assert "http" not in html
    assert "url(" not in html
    return parsed


def test_heatmap_cells_of_a_head(odd: GPT2) -> None:
    head = odd.trace("the hen in").head(1, 2)
    expected = np.exp(head.masked_scores - head.masked_scores.max(axis=1, keepdims=True))
    expected /= expected.sum(axis=1, keepdims=True)
    symbols = head.tokens.symbols if head.tokens else ()
    T = len(symbols)
    view = page(head)
    cells = [a for t, a in view.elements if t == "td" and "title" in a][: T * T]
    for cell, (i, j) in zip(cells, np.ndindex(T, T), strict=True):
        if j > i:
            assert cell["title"] == f"{symbols[i]} → {symbols[j]}: masked"
            assert cell["class"] == "m"
            assert "style" not in cell
            continue
        assert str(cell["title"]).startswith(f"{symbols[i]} → {symbols[j]}: ")
        value = float(str(cell["title"]).rpartition(" ")[2])
        assert value == pytest.approx(float(expected[i, j]), rel=1e-3)
    for i in range(T):
        row = ("-" if j > i else f"{expected[i, j]:.2f}" for j in range(T))
        assert "".join((symbols[i], *row)) in view.text
    shades = [str(a["style"]) for t, a in view.elements if t == "span" and "style" in a]
    assert f"background:{LIGHT.zero};" in shades[0]  # the legend of weights begins at 0
    alt = [
        f"“{symbols[n].strip('Ġ') or '␣'}” {expected[-1, n]:.2f}" for n in np.argsort(-expected[-1])
    ]
    assert dict(view.elements)["img"]["alt"] == f"“in” looks at {', '.join(alt[:3])}"
    names = [title for title in view.titles("th") if title.startswith(("query", "key"))]
    assert names[0] == "key 0 · symbol the · text 'the' · bytes 74 68 65 · id 260"
    assert "weights = softmax(masked_scores)" in view.text
    assert "1, colour by √weight \xa0-\xa0 masked" in view.text
    masked = [title for title in view.titles("td") if title.endswith(": masked")]
    assert len(masked) == T * (T - 1)  # of weights and of masked scores
    # The other steps are there too, collapsed, and the table of all steps.
    folded = [a for t, a in view.elements if t == "details"]
    assert len(folded) == 8
    assert "scores = raw_scores / scale" in view.text
    assert repr(head).partition("\n")[2] in view.text


def test_signed_colours_and_scale() -> None:
    """Scores 2, -4 over √1; the colours go from -4 to 4."""
    result = attnlab.attention([[1.0]], [[2.0], [-4.0]], [[1.0], [1.0]])
    view = page(result)
    styles = {
        str(a["title"]).partition(": ")[2]: str(a["style"])
        for t, a in view.elements
        if t == "td" and str(a.get("title", "")).startswith("0 → ")
    }
    assert f"background:{LIGHT.negative};" in styles["-4"]
    assert f"--d:{DARK.negative}" in styles["-4"]
    assert re.search("-4 \xa0+ 4, 0 in the middle", view.text)
    assert "masked" not in view.text.replace("masked_scores", "")


@pytest.mark.parametrize(
    "hiding", [{"mask": causal_mask(2)}, {"bias": [[0, -np.inf], [0, 0]]}, {}], ids=list
)
def test_masked_is_not_zero(hiding: Any, odd: GPT2) -> None:
    """An unmasked weight of 0 has a cell with a number, and so has a masked one that is edited."""
    far = [[0.0], [800.0]]
    result = attnlab.attention([[1.0], [1.0]], far, [[1.0], [1.0]], **hiding)
    titles = page(result).titles("td")[:4]
    assert titles[1] == ("0 → 1: masked" if hiding else "0 → 1: 1")
    assert titles[2] == "1 → 0: 0"
    for weight in (0.25, -0.25):
        edit = {"blocks.0.attention.heads.0.weights[0, 1]": weight}
        head = odd.trace("the hen").edited(edit).head(0, 0)
        masked = ~causal_mask(len(head.weights))
        masked[0, 1] = False
        weights = labelled_step(head, "weights")
        assert np.array_equal(weights.masked, masked)
        assert weights.is_weights == (not weights.scale.is_signed) == (weight > 0)


def test_long_texts_are_cut_with_a_note(pocket: GPT2) -> None:
    trace = pocket.trace("The dog ran. " * 20)
    T = len(trace.tokens)
    head = trace.head(0, 1)
    assert len(head._repr_html_()) < 400_000
    view = page(head)
    weights = [title for title in view.titles("td") if " → " in title][: 24 * 24]
    assert weights[23].startswith("The → Ġ: ")
    assert f"the first 12 and the last 12 of {T} (query)" in view.text
    assert f"the first 12 and the last 12 of {T} (key)" in view.text
    assert "tokens=slice(None) shows all" in view.text
    assert "the first 15 and the last of 32 (Dk)" in view.text
    assert len(trace.blocks[0].attention._repr_html_()) < 400_000
    T = 25
    text = page(attnlab.attention(*np.zeros((3, T, 2)))).text
    assert "the first 12 and the last 12 of 25 (query)" in text
    assert "Shown" not in page(attnlab.attention(*np.zeros((3, T - 1, 2)))).text
    for T, size in ((16, 18), (17, 13)):
        assert f"--cell:{size}px" in attnlab.attention(*np.zeros((3, T, 2)))._repr_html_()


def test_views_compute_no_extra_steps(odd: GPT2) -> None:
    trace = odd.trace("the hen")
    assert repr(trace).partition("\n")[2].partition("\n.")[0] in page(trace).text
    assert stored_steps(trace) == stored_steps(odd.trace("the hen"))
    for view in (trace.blocks[2], trace.blocks[0].mlp):
        assert repr(view).partition("\n")[2].partition("\n.")[0] in page(view).text
    assert "output" not in stored_steps(trace.blocks[0])
    edited = trace.edited({"blocks.1.mlp.output": np.negative})  # computes steps of the trace
    before = stored_steps(trace)
    assert "edited: blocks.1.mlp.output" in page(edited).text
    assert stored_steps(trace) == before
    large = np.zeros((2, 1024, 2))
    result = attnlab.attention(large, large, large)
    assert "weights haven't been computed yet" in page(result).text
    assert "weights" not in stored_steps(result)


def hostile_tokens() -> Tokens:
    return Tokens(
        Token(i, text, text, text.encode("utf-8", "surrogatepass"))
        for i, text in enumerate(HOSTILE)
    )


def test_hostile_tokens_are_escaped() -> None:
    tokens = hostile_tokens()
    T = len(tokens)
    result = attnlab.attention(*np.random.default_rng(0).standard_normal((3, T, 4)))
    replace_tokens(result, tokens)
    html = result._repr_html_()
    assert not re.search(r"[\x00-\x09\x0b-\x1f\u202a-\u202e\ud800-\udfff]", html)
    parsed = page(result)  # which has no element <script> or <img>, and no attribute onerror
    assert len(html) < 100_000
    titles = " ".join(parsed.titles("th"))
    escaped = (r"\u202egnp.exe", r"\ud800", r"\x1b[31m\x00\r\n")
    for shown in ("<script>alert(1…", *escaped, "猫"):
        assert shown in titles or shown in parsed.text
    assert "x" * 200 not in parsed.text
    assert max(map(len, parsed.titles("th"))) < 600


def test_uncomputable_steps_are_reported() -> None:
    V = np.ones((2, 3, 4))
    nan = attnlab.attention([[np.nan, 1.0], [1.0, 1.0]], np.eye(2), np.eye(2))
    assert "No weights: Q contains NaN or infinite numbers" in page(nan).text
    for batched in (attnlab.attention(V[0], V[0], V), attnlab.attention(V, V, V)):
        assert "shown as a table only" in page(batched).text


def test_html_of_a_trace(odd: GPT2) -> None:
    """The prediction, and the arcs of all heads."""
    trace = odd.trace("the hen in")
    view = page(trace)
    for token in trace.next_tokens():
        assert f"{token.probability:.4f}" in view.text
    assert "not computed yet" not in view.text
    assert len([*drawings(view)]) == len(trace.blocks)


def test_cross_attention_shows_both_texts() -> None:
    texts = {"tokens": ["il", "dort"], "memory_tokens": ["he", "sleeps", "now"]}
    view = page(attnlab.attention(np.eye(2), np.eye(3, 2), np.ones((3, 2)), **texts))
    assert not [*drawings(view)]  # a sentence's words would look at each other
    e = np.exp(0.5**0.5)
    weights = np.array([[e, 1, 1], [1, e, 1]]) / (e + 2)
    pairs = zip(product(*texts.values()), weights.flat, strict=True)
    assert view.titles("td")[:6] == [f"{i} → {j}: {weight:.4g}" for (i, j), weight in pairs]


def test_arcs_run_above_a_line_or_between_two() -> None:
    """By hand: a curve's control points are 1.3 times as far as its rise."""
    start, far, near, below = (Place(x, y, y + 1.2) for x, y in ((0, 5), (10, 5), (1, 5), (3, 9)))
    assert path_of(start, far, SENTENCE) == "M0 5C0 1.23,10 1.23,10 5"  # at most 2.9 high
    assert path_of(far, near, SENTENCE) == "M10 5C10 1.23,1 1.23,1 5"
    low = start._replace(room=1.2)  # of which a short arc has little more than half
    assert path_of(low, near, SENTENCE) == "M0 5C0 4.133,1 4.133,1 5"
    assert path_of(start, below, SENTENCE) == "M0 6.2C0 7.6,3 7.6,3 9"
    assert path_of(below, start, SENTENCE) == "M3 9C3 7.6,0 7.6,0 6.2"
    one = np.array([[[0.25, 0.5, 0.25]]])  # a query after two cached keys, or of another sentence
    for is_self, x, top in ((True, 83.33, 29), (False, 50, 1)):
        paths = [path.get("d", "") for path in ElementTree.fromstring(small_heads(one, is_self, 9))]
        assert [path.split("C")[0] for path in paths[1:]] == [f"M{x} 29"] * len(paths[1:])
        ends = {end.split(",")[-1] for path in paths[1:] for end in path.split("M")[1:]}
        assert ends == {f"{16.67} {top}", f"{50} {top}", *([] if is_self else [f"{83.33} {top}"])}
    many = np.broadcast_to(np.eye(66)[None, :, ::-1], (2, 66, 66))
    assert small_heads(many, True, 9).count("M") == 2 * 2  # the ground, and the last word's arc
    shares = [_percent(share) for share in (0.0051, 0.994, 0.996, 0.9994, 0.9996, 1)]
    assert shares == ["1 %", "99 %", "99.6 %", "99.9 %", "100 %", "100 %"]
    long = sentence(["x" * 90, " y", " z" * 30], np.array([0.5, 0.3, 0.2]))
    assert {float(y) for y in re.findall(r' y="([\d.]+)" text', long)} == {4.15, 7.35}


def drawings(view: Page) -> Iterator[ElementTree.Element]:
    """A view's drawings."""
    for tag, attributes in view.elements:
        if tag == "img":
            source = str(attributes["src"]).removeprefix("data:image/svg+xml;base64,")
            yield ElementTree.fromstring(base64.b64decode(source))


def strokes(drawing: ElementTree.Element) -> Iterator[tuple[float, str, list[str]]]:
    """Width, colour and paths of what is drawn in one element."""
    for path in drawing.iter("{http://www.w3.org/2000/svg}path"):
        if width := path.get("stroke-width"):  # the ground has none
            yield float(width), path.get("stroke", ""), path.get("d", "")[1:].split("M")


@pytest.mark.parametrize(
    ("text", "first"), [("The dog chased the ball, but it", 1), ("The dog ran. " * 20 + "It", 0)]
)
def test_a_heads_words_have_arcs_and_shares(pocket: GPT2, text: str, first: int) -> None:
    """As wide as the last word's weights; of a long text, the last words and those looked at."""
    trace = pocket.trace(text).edited({"blocks.1.attention.heads.2.weights[-1, 0]": first})
    T, row = len(trace.tokens), trace.head(1, 2).weights[-1]
    most = np.argsort(-row, kind="stable")[:12]
    shown = [n for n in range(T) if T <= 60 or n >= T - 24 or (n in most and row[n] >= 0.01)]
    for drawing in drawings(page(trace.head(1, 2))):
        found = sorted((width, colour) for width, colour, paths in strokes(drawing) for _ in paths)
        expected = sorted(
            (max(0.04, 0.23 * float(row[n])), LIGHT.positive if n else LIGHT.faint)
            for n in shown[:-1]
            if row[n] >= 0.004
        )
        assert [colour for _, colour in found] == [colour for _, colour in expected]
        assert [width for width, _ in found] == pytest.approx([w for w, _ in expected], rel=0.01)
        inks = (LIGHT.ink, LIGHT.negative, LIGHT.positive)
        texts = {one.get("fill"): one.text or "" for one in drawing.iter()}
        assert texts[LIGHT.negative] == trace.tokens.texts[-1].strip()
        assert texts[LIGHT.positive] == trace.tokens.texts[1 + int(row[1:-1].argmax())].strip()
        words = [one.text or "" for one in drawing.iter() if one.get("fill") in inks]
        assert sorted(words) == sorted(trace.tokens.texts[n].strip() for n in shown)


def test_gradients_of_a_layers_weights_have_signs(odd: GPT2) -> None:
    """Arcs would show the positive ones alone, as if they were weights."""
    layer = attnlab.gradients(odd.trace("the hen"), 5).blocks[1].attention
    html = layer._repr_html_()
    assert "<svg" not in html
    assert "<img" not in html
    for head in layer.heads:
        assert any(number < 0 for number in head.weights.ravel())
        for number in head.weights[-1]:
            assert f"{number:z.2f}" in html


def test_html_of_a_long_trace_computes_nothing(
    pocket: GPT2, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("attnlab.model.trace.SCORES_SHOWN", 1000)
    trace = pocket.trace("The dog ran. " * 9)
    before = stored_steps(trace)
    view = page(trace)
    assert "The heads aren't shown for a long text" in view.text
    assert not [tag for tag, _ in view.elements if tag == "img"]
    assert stored_steps(trace) == before


def test_html_of_predictions_and_generations(odd: GPT2) -> None:
    trace = odd.trace("the hen in")
    numbers = re.findall(r"[\d.]+", repr(trace.next_tokens()))
    assert all(number in page(trace.next_tokens()).text for number in numbers)
    generation = odd.generate("the hen in", 3, seed=1)
    view = page(generation).text
    assert generation.prompt.texts[0] in view
    assert "sampled with" in view
    generation = odd.generate("the hen in", 3, seed=1, temperature=0.5)
    view = page(generation).text
    for token in generation.chosen:
        assert token.sampled_with != token.probability
        assert f"{token.sampled_with:.4f}" in view
        assert f"{token.probability:.4f}" in view
    for explained in (trace.head(1, 2).explain(3, 1), trace.head(1, 2).explain(3)):
        words = [word for word in repr(explained).split() if re.fullmatch(r"-?[\d.]+", word)]
        assert len(words) > 20
        assert all(word in page(explained).text for word in words)


def test_pages_in_a_sandboxed_frame(odd: GPT2, tmp_path: Path) -> None:
    trace = odd.trace("the hen")
    playground = attnlab.playground(odd, "the hen", height=500, language="zh")
    attnlab.playground(odd, "the hen", language="zh").save(tmp_path / "odd.html")
    for frame, content in (
        (attnlab.page(trace, height=500), attnlab.page(trace).html),
        (playground, (tmp_path / "odd.html").read_text("utf-8")),
    ):
        ((tag, attributes),) = Page(frame._repr_html_()).elements
        assert tag == "iframe"
        assert attributes["srcdoc"] == content
        assert attributes["sandbox"] == "allow-scripts"
        assert "height:500px" in str(attributes["style"])
        assert ".save(" in repr(frame)
    for make, of in ((attnlab.page, trace), (attnlab.playground, odd)):
        with pytest.raises(attnlab.AttnlabError, match=r"height must be .* at least 1"):
            make(of, height=0)


# ---- results -------------------------------------------------------------------------------------


class Numbers(Analysis):
    """An analysis with any numbers."""

    title = "Numbers"
    note: ClassVar[str] = "None of them means anything."
    source: ClassVar[str] = "here"

    def __init__(self, numbers: Any, rows: Axis, columns: Axis, cells: Any = ()) -> None:
        self._shown, self._cells = (np.asarray(numbers, float), rows, columns), cells

    def _grid(self) -> tuple[Any, Axis, Axis]:
        return self._shown

    def _cell_tokens(self) -> Any:
        return self._cells


def results(odd: GPT2) -> dict[str, tuple[Any, Any]]:
    """Results, each with the numbers that its heatmaps show, row by row."""
    trace, other = odd.trace("the hen in"), odd.trace([1, 2, 3, 4, 5, 6])
    last, first = trace.tokens[-1].id, trace.tokens[0].id
    settings: Any = {"target": (last, first), "progress": False}
    attribution, jobs = attnlab.attribution(trace, last), attnlab.jobs(odd.trace([1, 2, 3, 4]))
    patched = attnlab.patch(trace, other, **settings)
    by_position = attnlab.patch(trace, other, "blocks.*.output", by_position=True, **settings)
    atlas = attnlab.atlas(odd, ["the hen in", "a thin hen"], ["first", "same"], progress=False)
    why = attnlab.why(trace.head(1, 2), 2, 1)
    lens, of_token = attnlab.lens(trace), attnlab.lens(trace).of(last)
    has_keys = [not np.isnan(numbers).all() for numbers in jobs.attention]
    assert {True, False} <= {*has_keys}
    return {
        "lens": (lens, lens.probabilities),
        "one token": (of_token, of_token.probabilities),
        "attribution": (attribution, np.c_[attribution.heads, attribution.mlps]),
        "patch": (patched, patched.restored),
        "by position": (by_position, by_position.restored),
        "jobs": (jobs, jobs.attention[has_keys]),
        "atlas": (atlas, [atlas["first"].mean, atlas["same"].mean]),
        "measure": (atlas["same"], atlas["same"].mean),
        "why": (why, why.pairs),
        "check": (attnlab.check({"weights": other.head(1, 2).weights}, trace.head(1, 2)), []),
    }


RESULTS = (
    "lens", "one token", "attribution", "patch", "by position", "jobs",
    "atlas", "measure", "why", "check",
)  # fmt: skip


@pytest.fixture(scope="module")
def results_to_draw(odd: GPT2) -> dict[str, tuple[Any, Any]]:
    actual = results(odd)
    assert (*actual,) == RESULTS
    return actual


def numbers_in(view: Page) -> list[float]:
    """The numbers in a view's tooltips, row by row."""
    cells = [title for title in view.titles("td") if " → " in title]
    return [float(cell.rpartition(" ")[2]) for cell in cells]


@pytest.mark.parametrize("name", RESULTS)
def test_html_of_a_result_shows_its_numbers(results_to_draw: Any, name: str) -> None:
    result, numbers = results_to_draw[name]
    view = page(result)
    expected = [float(number) for row in numbers for number in np.ravel(row)]
    np.testing.assert_allclose(numbers_in(view), expected, rtol=1e-3, atol=1e-8)
    assert " ".join(repr(result).split()) in " ".join(view.text.split())  # the same as print
    assert len(result._repr_html_()) < 90_000


@pytest.mark.parametrize("name", RESULTS)
def test_html_of_a_result_in_chinese(
    results_to_draw: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    result, _ = results_to_draw[name]
    english = page(result)
    monkeypatch.setenv("ATTNLAB_LANGUAGE", "zh")
    chinese = page(result)
    np.testing.assert_array_equal(numbers_in(chinese), numbers_in(english))
    before, _, text = chinese.text.partition("文字形式")
    assert text.split() == repr(result).split()
    for words in re.findall(r"(?:[A-Za-z]+ ){3,}[a-z]+", before):
        assert not set(words.split()) & {"the", "is", "that", "may", "by", "in"}, words


def test_cells_of_tokens_and_of_numbers(odd: GPT2) -> None:
    lens = attnlab.lens(odd.trace("the hen in"))
    view = page(lens)
    for row in lens.tokens:
        assert "".join(label(token.readable, 12) for token in row) in view.text
    rows, columns = numbered_axis("layer", 2), numbered_axis("head", 2)
    assert "0.50-1.00" in page(Numbers([[0.5, -1], [0, 0.25]], rows, columns)).text
    rows, columns = numbered_axis("layer", 2), numbered_axis("head", 2)
    invalid = page(Numbers([[np.nan, np.inf], [-np.inf, 2]], rows, columns))
    np.testing.assert_array_equal(numbers_in(invalid), [np.nan, np.inf, -np.inf, 2])
    cells = [a for tag, a in invalid.elements if tag == "td"]
    assert cells[0]["class"] == "m"
    assert f"background:{LIGHT.positive};" in str(cells[1]["style"])
    assert f"background:{LIGHT.negative};" in str(cells[2]["style"])
    nothing = page(Numbers(np.zeros((0, 0)), numbered_axis("layer", 0), numbered_axis("head", 0)))
    assert numbers_in(nothing) == []


def test_large_results_are_cut_with_a_count(odd: GPT2) -> None:
    """GPT-2's heads are all there; of 144 in a row the largest, of 400 tokens the ends."""
    rng = np.random.default_rng(0)
    heads = rng.standard_normal((12, 12))
    all_heads = page(Numbers(heads, numbered_axis("layer", 12), numbered_axis("head", 12)))
    np.testing.assert_allclose(numbers_in(all_heads), heads.ravel(), rtol=1e-3)
    assert "Shown" not in all_heads.text
    vocabulary = odd.tokenizer.vocabulary
    tokens = Axis("position", range(400), (vocabulary.token(3),) * 400)
    numbers = rng.standard_normal((144, 400))
    numbers[[3, 140]] *= 100
    large = Numbers(numbers, heads_axis("head", 12, 12), tokens)
    view = page(large)
    assert "the 32 of 144 (head) with the largest numbers" in view.text
    assert "the first 12 and the last 12 of 400 (position)" in view.text
    largest = np.sort(np.argsort(-np.abs(numbers).max(axis=1))[:32])
    assert {3, 140} <= {*largest}
    ends = [*range(12), *range(388, 400)]
    expected = numbers[np.ix_(largest, ends)]
    np.testing.assert_allclose(numbers_in(view), expected.ravel(), rtol=1e-3)
    assert len(large._repr_html_()) < 200_000
