"""The page's other views: arithmetic, print, links, two texts side by side."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pages import (
    MATRICES,
    OTHER,
    TEXT,
    Open,
    agrees,
    drawn,
    gpt2_shaped,
    numbers,
    ticks,
    to_cell,
    until,
)

import attnlab
from attnlab import GPT2, Trace
from attnlab.checkpoints.hub import BUILT_IN


def test_a_frame_without_an_address_has_no_link(odd: GPT2, browser: Any) -> None:
    page, messages = browser.new_page(), []
    page.on("console", lambda message: messages.append(message.text))
    page.on("pageerror", lambda error: messages.append(str(error)))
    page.set_content("<iframe width=900 height=700 sandbox='allow-scripts'></iframe>")
    html = attnlab.page(odd.trace(TEXT)).html
    page.locator("iframe").evaluate("(frame, html) => { frame.srcdoc = html; }", html)
    frame = page.frame_locator("iframe")
    frame.locator(".head-drawing").nth(7).click()
    assert frame.locator("#head-title").text_content() == "Layer 1, head 2"
    until(page.frames[1], "linkTimer === null")  # the link has been refused
    assert messages == []
    page.close()


# ---- two texts ---------------------------------------------------------------------------------


def test_two_texts_of_different_lengths(odd: GPT2, open_page: Open) -> None:
    ids = odd.trace(TEXT).tokens.ids.tolist()
    extra = [id for id in range(50) if id not in ids][:3]
    # B has another token 3, two more before 7, and lacks A's last one.
    a, b = odd.trace(ids), odd.trace([*ids[:3], extra[0], *ids[4:7], *extra[1:], *ids[7:11]])
    page = open_page(a, b)
    in_b = [*range(7), *range(9, 13)]
    page.locator(".head-drawing").nth(7).click()
    scroller = page.locator(".scroller").nth(2)
    assert [scroller.get_attribute(f"aria-{one}count") for one in ("row", "col")] == ["11", "11"]
    for i, j in ((10, 8), (9, 7), (3, 3), (6, 0)):
        to_cell(page, i, j, nth=2)
        first, second = a.head(1, 2).weights[i, j], b.head(1, 2).weights[in_b[i], in_b[j]]
        assert agrees(page.locator(".readout data"), (first, second, second - first))
    to_cell(page, 10, 8, nth=2)
    pairs = page.locator(".readout .pair").all_inner_texts()
    assert [re.findall(r"(?:query|key) ([\d |]+) ", pair) for pair in pairs] == [
        *(["10", "8"], ["12", "10"], ["10 | 12", "8 | 10"])
    ]
    page.keyboard.press("Enter")
    assert page.locator("#arithmetic-title").inner_text().endswith("query 10 | 12, key 8 | 10")
    for row, step in zip(page.locator(".compared tbody tr").all(), MATRICES, strict=True):
        first, second = getattr(a.head(1, 2), step)[10, 8], getattr(b.head(1, 2), step)[12, 10]
        assert agrees(row.locator("data"), (first, second, second - first), 100)
    page.locator('[data-trace="1"] [data-rows="key"] .row-button').nth(2).click()
    assert page.locator("#arithmetic-title").inner_text().endswith("key 2")
    to_cell(page, 3, 5, nth=2)  # masked in both
    page.keyboard.press("Enter")
    row = page.locator(".compared tbody tr").nth(MATRICES.index("masked_scores"))
    assert agrees(row.locator("data"), (-np.inf, -np.inf, 0))
    page.keyboard.press("Escape")
    # A token only in one text: the other's cursor stays before it, without arithmetic.
    to_cell(page, 8, 7, nth=1)
    pairs = page.locator(".readout .pair").all_inner_texts()
    assert [re.findall(r"query ([\d |]+) ", pair) for pair in pairs] == [["6"], ["8"], ["6"]]
    page.keyboard.press("Enter")
    assert page.locator("#sums article").count() == 1
    assert page.locator('#sums [data-trace="1"]').count() == 1


def test_the_reason_why_a_difference_is_0_is_shown(odd: GPT2, open_page: Open) -> None:
    page = open_page(odd.trace(TEXT), odd.trace(OTHER))
    assert not re.search(r"\bT[qk]\b", page.locator("body").inner_text())
    why = page.locator("#heatmaps .why")
    assert why.all_inner_texts() == [
        *("", ""),
        "0 up to query 9: both texts are the same up to there, and later tokens are masked.",
    ]
    to_cell(page, 9, 3, nth=2)
    assert numbers(page.locator("#heatmaps .readout").nth(2)) == [0]
    page.locator("#steps input[value=raw_scores]").dispatch_event("click")  # later ones too
    assert why.nth(2).inner_text() == ""
    page = open_page(odd.trace(TEXT), odd.trace(TEXT))
    assert page.locator("#heatmaps .why").nth(2).inner_text().startswith("0 everywhere: ")
    edited = odd.trace(TEXT).edited({"blocks.1.attention.heads.0.scores": lambda x: -1.5 * x})
    page = open_page(odd.trace(TEXT), edited)
    assert page.locator("#heatmaps .why").nth(2).inner_text().startswith("0 everywhere: ")
    page.locator(".head-drawing").nth(5).click()
    assert page.locator("#heatmaps .why").nth(2).inner_text() == ""
    # The colours of A and B are comparable; their difference has a scale of its own.
    page.locator("#steps input[value=scores]").dispatch_event("click")
    largest = np.abs(odd.trace(TEXT).head(1, 0).scores).max()
    bounds = [ticks(page, nth)[1][2] / largest for nth in range(3)]
    assert bounds == pytest.approx([1.5, 1.5, 2.5], rel=1e-3)
    # The first query always has all its weight on itself.
    ids = odd.trace(TEXT).tokens.ids.tolist()
    page = open_page(odd.trace(ids), odd.trace([ids[5], *ids[1:]]))
    assert page.locator("#heatmaps .why").nth(2).inner_text() == ""


# ---- all layers --------------------------------------------------------------------------------


def test_all_layers_are_drawn(ball: Trace, look: Open) -> None:
    page = look(ball)
    page.locator("#layers summary").click()
    until(page, "document.querySelector('#picture svg') !== null")
    picture = page.locator("#picture svg")
    words = picture.locator("text:not(.title)").all_text_contents()
    assert words == [token.text.strip() for token in ball.tokens]
    assert picture.locator(".title").all_text_contents() == ["Layer 0", "Layer 1"]
    # A dot's area is what an MLP adds to a token.
    radii = "(all) => all.map((x) => Number(x.getAttribute('r')))"
    dots = np.array(picture.locator("circle").evaluate_all(radii)).reshape(2, 8)
    added = np.array([np.linalg.norm(block.mlp.output, axis=-1) for block in ball.blocks])
    assert np.allclose(dots**2 / dots.max() ** 2, added / added.max(), atol=0.03)
    # A curve is as wide as its weight; the first token and the token itself are left out.
    widths: list[float] = []
    for layer, head, i in np.ndindex(2, 4, 8):
        weights = ball.head(layer, head).weights[i, 1:i].astype(float)
        widths += weights[weights >= 0.12].tolist()
    strokes = "(all) => all.map((x) => Number(x.getAttribute('stroke-width')))"
    drawn_widths = np.sort(picture.locator(".curve").evaluate_all(strokes))
    assert np.allclose(drawn_widths / max(drawn_widths), np.sort(widths) / max(widths), atol=0.01)
    assert picture.locator(".band").count() == 8


# ---- paper, high contrast, narrow screens ------------------------------------------------------


@pytest.mark.usefixtures("short_story")
def test_paper_is_white(odd: GPT2, open_page: Open) -> None:
    """A long text, in the dark theme, with a cell open."""
    trace = gpt2_shaped(odd, 60, n_layer=2, seed=0, n_embd=96)
    page = open_page(trace, color_scheme="dark", viewport={"width": 700, "height": 150})
    to_cell(page, 30, 7)
    page.keyboard.press("Enter")
    ground = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(ground)
    page.emulate_media(media="print")
    assert page.evaluate(ground) == "rgb(255, 255, 255)"
    assert page.locator('[data-rows="key"] tbody tr').count() == 60
    page.emulate_media(media="screen")
    assert page.evaluate(ground) == dark
    assert page.locator(".arcs .arc").count() > 0


def test_the_sentence_fits_on_paper(odd: GPT2, look: Open) -> None:
    """A4 leaves 718 pixels within its margins; a browser resizes nothing for it."""
    page = look(odd.trace(TEXT))
    page.emulate_media(media="print")
    parts = "document.querySelectorAll('.sentence-stage :is(.letters, small, .arc, .next-words *)')"
    right = f"Math.max(...[...{parts}].map((part) => part.getBoundingClientRect().right))"
    on_screen = page.evaluate(right)
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate(right) <= 718 < on_screen
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate(right) == on_screen


def test_nothing_sticks_out_of_a_narrow_screen(odd: GPT2, open_page: Open) -> None:
    width = 320
    for traces in ([odd.trace(TEXT)], [odd.trace(TEXT), odd.trace(OTHER)]):
        page = open_page(*traces, viewport={"width": width, "height": 700})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        for path in ("embedding", "blocks.0.attention.Q", "blocks.1.mlp.X", "logits"):
            page.evaluate("(path) => goTo(path, 1)", path)
            drawn(page)
            assert page.evaluate("document.documentElement.scrollWidth") <= width, path
        to_cell(page, 9, 3)
        page.keyboard.press("Enter")
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_models_differ_by_their_parameters(odd: GPT2, open_page: Open, tmp_path: Path) -> None:
    """Models are compared by parameters: two models in memory have no names."""
    arrays = {path: array.copy() for path, array in odd.parameters.items()}
    arrays["blocks.1.attention.b_Q"] += 0.5
    changed, same = (
        GPT2.from_arrays(odd.config, given, odd.tokenizer) for given in (arrays, odd.parameters)
    )
    page = open_page(same.trace("the hen"), changed.trace("the hen"))
    about = page.locator("#about").inner_text()
    assert "A: model A (from arrays in memory)" in about
    assert "B: model B (from arrays in memory)" in about
    page = open_page(odd.trace("the hen"), same.trace("the hen"))
    assert "B: model" not in page.locator("#about").inner_text()
    changed.save(tmp_path / "odd")
    for other in (changed, GPT2.from_pretrained(tmp_path / "odd")):  # of no name, or of the same
        page = open_page(odd.trace("the hen"), other.trace("the hen"))
        assert "odd A (from " in page.locator("#about").inner_text()
    assert f"odd B (from {tmp_path / 'odd'})" in page.locator("#about").inner_text()


def test_the_english_models_card_says_what_its_heads_do(open_page: Open) -> None:
    card = (BUILT_IN["english"].directory / "MODEL_CARD.md").read_text(encoding="utf-8")
    table = re.findall(r"^(?:\d +\d|evenly) +(\d\.\d.*)", card, re.M)
    *heads, even = (list(map(float, row.split())) for row in table)
    assert len(heads) == 24
    page = open_page(GPT2.from_pretrained("english").trace("She saw"))
    for n, shown in enumerate(page.locator(".head-drawing").all()):
        shown.click()
        listed = [(mean, 2 * least) for mean, least in zip(heads[n], even, strict=True)]
        expected = {f"{mean:.2f}" for mean, least in listed if mean > least + 0.01}
        possible = {f"{mean:.2f}" for mean, least in listed if mean > least - 0.01}
        words = page.locator("#jobs").inner_text().partition("from the model card: ")[2]
        assert "undefined" not in words
        assert expected <= {*re.findall(r" (\d\.\d\d)(?: ·|$)", words)} <= possible, n
