"""What a notebook shows: read back as HTML, with numbers from elsewhere and hostile texts."""

import base64
import math
import re
import struct
import zlib
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
from conftest import REFERENCE
from runs import kept, plant_tokens

import attnlab
from attnlab import GPT2, Token, Tokens, causal_mask

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
    """Elements with their attributes and text; every element is closed by its own end tag."""

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


def page(shown: Any) -> Page:
    html: str = shown._repr_html_()
    html.encode("utf-8")
    parsed = Page(html)
    tags = {tag for tag, _ in parsed.elements}
    assert tags <= {
        *("div", "style", "span", "small", "b", "i", "pre", "details", "summary"),
        *("table", "tr", "th", "td", "img"),
    }
    names = {name for _, attributes in parsed.elements for name in attributes}
    assert names <= {
        *("class", "style", "title", "role", "aria-label"),
        *("src", "alt", "width", "height"),
    }
    sources = [str(attributes["src"]) for tag, attributes in parsed.elements if tag == "img"]
    assert all(source.startswith("data:image/png;base64,") for source in sources)
    assert "http" not in html
    assert "url(" not in html
    return parsed


@pytest.fixture(scope="module")
def odd() -> GPT2:
    return GPT2.from_pretrained(REFERENCE / "odd")


def test_tokens_are_chips(gpt2_tokenizer: attnlab.Tokenizer) -> None:
    shown = page(gpt2_tokenizer.tokens("It’s hot"))
    assert shown.titles("span") == [
        "token 0 · symbol It · text 'It' · bytes 49 74 · id 1026",
        "token 1 · symbol âĢ · text '�' · bytes e2 80 · id 447 · part of ’",
        "token 2 · symbol Ļ · text '�' · bytes 99 · id 247 · part of ’",
        "token 3 · symbol s · text 's' · bytes 73 · id 82",
        "token 4 · symbol Ġhot · text ' hot' · bytes 20 68 6f 74 · id 3024",
    ]
    assert shown.text == "5 tokensIt1026âĢ447Ļ247s82Ġhot3024"


def test_a_heads_weights_by_cell(odd: GPT2) -> None:
    head = odd.trace("the hen in").head(1, 2)
    expected = np.exp(head.masked_scores - head.masked_scores.max(axis=1, keepdims=True))
    expected /= expected.sum(axis=1, keepdims=True)
    symbols = head.tokens.symbols if head.tokens else ()
    T = len(symbols)
    shown = page(head)
    cells = [a for t, a in shown.elements if t == "i" and "title" in a][: T * T]
    for cell, (i, j) in zip(cells, np.ndindex(T, T), strict=True):
        if j > i:
            assert cell["title"] == f"{symbols[i]} → {symbols[j]}: masked"
            assert cell["class"] == "m"
            assert "style" not in cell
            continue
        assert str(cell["title"]).startswith(f"{symbols[i]} → {symbols[j]}: ")
        value = float(str(cell["title"]).rpartition(" ")[2])
        assert value == pytest.approx(float(expected[i, j]), rel=1e-3)
        assert cell["style"] == f"--v:{round(100 * math.sqrt(expected[i, j]))}"
    names = [title for title in shown.titles("b") if title.startswith(("query", "key"))]
    assert names[0] == "key 0 · symbol the · text 'the' · bytes 74 68 65 · id 260"
    assert "weights = softmax(masked_scores)" in shown.text
    assert "01, colour by √weight masked" in shown.text
    # The other steps are there too, folded up, and the table of all of them.
    folded = [a for t, a in shown.elements if t == "details"]
    assert len(folded) == 7
    assert "scores = raw_scores / scale" in shown.text
    assert repr(head).partition("\n")[2] in shown.text


def test_signs_and_the_scales_range() -> None:
    """Scores 2, -4 over √1; the colours go from -4 to 4."""
    result = attnlab.attention([[1.0]], [[2.0], [-4.0]], [[1.0], [1.0]])
    shown = page(result)
    cells = [a for t, a in shown.elements if t == "i" and str(a.get("title", "")).endswith("-4")]
    assert {(a.get("class"), a["style"]) for a in cells} == {("n", "--v:100")}
    assert any(
        a["style"] == "--v:50" and a["title"] == "0 → 0: 2"
        for t, a in shown.elements
        if t == "i" and "title" in a
    )
    assert "-44, 0 in the middle" in shown.text
    assert "masked" not in shown.text.replace("masked_scores", "")


@pytest.mark.parametrize("look", ["mask", "zeros"])
def test_masked_is_not_zero(look: str) -> None:
    """A weight of 0 that was not masked has a cell with a number."""
    far = [[0.0], [800.0]]
    mask = causal_mask(2) if look == "mask" else None
    result = attnlab.attention([[1.0], [1.0]], far, [[1.0], [1.0]], mask=mask)
    titles = page(result).titles("i")[:4]
    assert titles[1] == ("0 → 1: masked" if look == "mask" else "0 → 1: 1")
    assert titles[2] == "1 → 0: 0"


def test_a_long_prompt_is_cut_with_a_word(walkthrough_model: GPT2) -> None:
    trace = walkthrough_model.trace("the quick brown fox jumps over the lazy dog. " * 20)
    T = len(trace.tokens)
    html = trace.head(0, 1)._repr_html_()
    assert len(html) < 250_000
    shown = page(trace.head(0, 1))
    weights = [title for title in shown.titles("i") if " → " in title][: 24 * 24]
    assert weights[23].startswith("the → Ġ: ")
    assert f"the first 12 and the last 12 of {T} (query)" in shown.text
    assert f"the first 12 and the last 12 of {T} (key)" in shown.text
    assert "tokens=slice(None) shows all" in shown.text
    assert "the first 15 and the last of 64 (Dk)" in shown.text
    assert f"… {T - 64} more …" in page(trace).text
    assert len(trace.blocks[0].attention._repr_html_()) < 250_000


def test_the_cut_is_told_from_the_first_token_on() -> None:
    T = 25
    text = page(attnlab.attention(*np.zeros((3, T, 2)))).text
    assert "the first 12 and the last 12 of 25 (query)" in text
    assert "Shown" not in page(attnlab.attention(*np.zeros((3, T - 1, 2)))).text


def test_all_heads_at_once(odd: GPT2) -> None:
    trace = odd.trace("the hen in")
    shown = page(trace.blocks[1].attention)
    assert [f"head {h}" in shown.text for h in range(6)] == [True] * 5 + [False]
    T = len(trace.tokens)
    values = [title for title in shown.titles("i") if " → " in title]
    assert len(values) == 5 * T * T
    weights = trace.head(1, 4).weights
    assert float(values[-1].rpartition(" ")[2]) == pytest.approx(float(weights[-1, -1]), rel=1e-3)


def test_looking_computes_nothing_far(odd: GPT2) -> None:
    trace = odd.trace("the hen")
    assert repr(trace).partition("\n")[2].partition("\n.")[0] in page(trace).text
    assert kept(trace) == kept(odd.trace("the hen"))
    for shown in (trace.blocks[2], trace.blocks[0].mlp):
        assert repr(shown).partition("\n")[2].partition("\n.")[0] in page(shown).text
    assert "output" not in kept(trace.blocks[0])
    large = np.zeros((2, 1024, 2))
    result = attnlab.attention(large, large, large)
    assert "weights are many and not computed yet" in page(result).text
    assert "weights" not in kept(result)


def test_batches_are_shown_as_a_table() -> None:
    batch = np.ones((2, 3, 4))
    assert "Several sequences" in page(attnlab.attention(batch, batch, batch)).text


def hostile_tokens() -> Tokens:
    return Tokens(
        Token(i, text, text, text.encode("utf-8", "surrogatepass"))
        for i, text in enumerate(HOSTILE)
    )


def test_hostile_tokens_are_text() -> None:
    tokens = hostile_tokens()
    T = len(tokens)
    result = attnlab.attention(*np.random.default_rng(0).standard_normal((3, T, 4)))
    plant_tokens(result, tokens)
    for shown in (tokens, result):
        html = shown._repr_html_()
        assert not re.search(r"[\x00-\x09\x0b-\x1f\u202a-\u202e\ud800-\udfff]", html)
        parsed = page(shown)  # which knows no element <script> or <img>, and no attribute onerror
        assert len(html) < 65_000
    chips = page(tokens)
    assert "<script>alert(1)</scrip…" in chips.text
    assert "\\u202egnp.exe" in chips.text
    assert "\\ud800" in chips.text
    assert "\\x1b[31m\\x00\\r\\n" in chips.text
    assert "猫" in chips.text
    assert "x" * 200 not in parsed.text
    assert max(map(len, chips.titles("span"))) < 600


def test_both_themes_and_no_network() -> None:
    html = hostile_tokens()._repr_html_()
    for condition in ("prefers-color-scheme:dark", '"true"] .attnlab', '"false"] .attnlab'):
        assert condition in html
    assert html.index("prefers-color-scheme") < html.index("data-jp-theme-light")


def contrast(first: str, second: str) -> float:
    """WCAG 2's contrast ratio of two colours."""

    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((luminance(first), luminance(second)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_colours_can_be_told_apart() -> None:
    from attnlab.views.colours import DARK, LIGHT

    for theme in (LIGHT, DARK):
        assert contrast(theme.ink, theme.paper) > 7
        assert contrast(theme.faint, theme.paper) > 4.5
        assert contrast(theme.positive, theme.zero) > 4.5
        assert contrast(theme.negative, theme.zero) > 4.5


def test_what_can_not_be_computed_is_said() -> None:
    V = np.ones((2, 3, 4))
    nan = attnlab.attention([[np.nan, 1.0], [1.0, 1.0]], np.eye(2), np.eye(2))
    assert "No weights: Q holds NaN or infinite numbers" in page(nan).text
    batched = attnlab.attention(np.ones((3, 4)), np.ones((3, 4)), V)
    assert "shown as a table only" in page(batched).text


def test_masked_cells_of_all_heads_are_masked(odd: GPT2) -> None:
    trace = odd.trace("the hen in")
    symbols, T = trace.tokens.symbols, len(trace.tokens)
    masked = [
        title for title in page(trace.blocks[0].attention).titles("i") if title.endswith("masked")
    ]
    later = [(symbols[i], symbols[j]) for i in range(T) for j in range(i + 1, T)]
    assert masked == [f"{query} → {key}: masked" for query, key in later] * 5


def decoded(source: str) -> tuple[np.ndarray[Any, Any], list[str]]:
    """The places in the palette (h, w) of a PNG, and its palette."""
    png = base64.b64decode(source.removeprefix("data:image/png;base64,"))
    chunks, at = {}, 8
    while at < len(png):
        (length,) = struct.unpack(">I", png[at : at + 4])
        kind, data = png[at + 4 : at + 8], png[at + 8 : at + 8 + length]
        assert struct.unpack(">I", png[at + 8 + length : at + 12 + length])[0] == zlib.crc32(
            kind + data
        )
        chunks[kind], at = data, at + 12 + length
    width, height = struct.unpack(">II", chunks[b"IHDR"][:8])
    lines = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(height, width + 1)
    assert not lines[:, 0].any()
    palette = chunks[b"PLTE"]
    colours = [f"#{palette[i : i + 3].hex()}" for i in range(0, len(palette), 3)]
    return lines[:, 1:], colours


def test_a_traces_first_view(odd: GPT2) -> None:
    """Tokens, the prediction, and the weights of all heads, read back from the picture."""
    from attnlab.views.colours import DARK, LIGHT

    trace = odd.trace("the hen in")
    shown = page(trace)
    T = len(trace.tokens)
    for token in trace.next_tokens():
        assert f"{token.probability:.4f}" in shown.text
    assert "not computed yet" not in shown.text
    assert len([title for title in shown.titles("span") if title.startswith("token ")]) == T
    images = [a for tag, a in shown.elements if tag == "img"]
    assert [a["class"] for a in images] == ["light", "dark"] * 3
    for n, image in enumerate(images):
        pixels, colours = decoded(str(image["src"]))
        assert pixels.shape == (T, 5 * (T + 1))
        theme = (LIGHT, DARK)[n % 2]
        assert (colours[0], colours[2], colours[-1]) == (theme.paper, theme.zero, theme.positive)
        for h in range(5):
            head = pixels[:, h * (T + 1) : (h + 1) * (T + 1) - 1]
            assert np.array_equal(head == 1, ~causal_mask(T))
            roots = np.sqrt(trace.head(n // 2, h).weights)
            seen = causal_mask(T)
            assert np.allclose((head[seen] - 2.0) / (len(colours) - 3), roots[seen], atol=0.009)
        assert not pixels[:, T].any()


def test_the_first_view_of_a_long_text_computes_nothing(walkthrough_model: GPT2) -> None:
    trace = walkthrough_model.trace("the quick brown fox jumps over the lazy dog. " * 20)
    before = kept(trace)
    shown = page(trace)
    assert "The heads of a long text are many" in shown.text
    assert not [tag for tag, _ in shown.elements if tag == "img"]
    assert kept(trace) == before


def test_other_views_hold_what_print_shows(odd: GPT2) -> None:
    trace = odd.trace("the hen in")
    numbers = re.findall(r"[\d.]+", repr(trace.next_tokens()))
    assert all(number in page(trace.next_tokens()).text for number in numbers)
    written = odd.generate("the hen in", 3, seed=1)
    shown = page(written).text
    assert f"{written.prompt.texts[0]}" in shown
    assert "sampled with" in shown
    written = odd.generate("the hen in", 3, seed=1, temperature=0.5)
    shown = page(written).text
    for token in written.chosen:
        assert token.share != token.probability
        assert f"{token.share:.4f}" in shown
        assert f"{token.probability:.4f}" in shown
    assert "GPT2: 3 layers of 5 heads" in page(odd).text
    assert "55,335 parameters" in page(odd).text
    assert page(trace.blocks).text.count("Block ") == 3
    for explained in (trace.head(1, 2).explain(3, 1), trace.head(1, 2).explain(3)):
        words = [word for word in repr(explained).split() if re.fullmatch(r"-?[\d.]+", word)]
        assert len(words) > 20
        assert all(word in page(explained).text for word in words)


def test_the_page_in_a_frame_is_shut_in(odd: GPT2) -> None:
    trace = odd.trace("the hen")
    frame = trace.show(height=500)
    parsed = Page(frame._repr_html_())
    ((tag, attributes),) = parsed.elements
    assert tag == "iframe"
    assert attributes["srcdoc"] == trace.to_html()
    assert attributes["sandbox"] == "allow-scripts"
    assert "height:500px" in str(attributes["style"])
    assert "trace.save(" in repr(frame)
    with pytest.raises(attnlab.AttnlabError, match=r"height must be .* at least 1"):
        trace.show(height=0)


def test_the_tokens_that_are_asked_for() -> None:
    T = 30
    result = attnlab.attention(*np.random.default_rng(0).standard_normal((3, T, 4)))
    cells = page(result.show(tokens=slice(None))).titles("i")[: T * T]
    assert [float(cell.rpartition(" ")[2]) for cell in cells] == pytest.approx(
        result.weights.ravel().tolist(), rel=1e-3
    )
    last = page(result.show(tokens=slice(-3, None)))
    assert last.titles("i")[0].startswith("27 → 27: ")
    assert "Shown: 3 of 30 (query), 27 to 29, 3 of 30 (key), 27 to 29" in last.text
    assert repr(result.show()) == repr(result)
