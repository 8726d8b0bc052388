"""The page's other views: arithmetic, print, links, two texts side by side."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import REFERENCE
from numpy.typing import NDArray
from pages import (
    GRIDS,
    LOADED,
    MATRICES,
    OTHER,
    RECORD,
    SHADES,
    TEXT,
    Open,
    agrees,
    drawn,
    gpt2_shaped,
    numbers,
    shown_in,
    to_cell,
    until,
)

import attnlab
from attnlab import GPT2, Head
from attnlab.checkpoints.hub import BUILT_IN
from attnlab.support.colours import LIGHT


def click_cell(page: Any, i: int, j: int, nth: int = 0) -> None:
    scroller = page.locator(".scroller").nth(nth)
    scroller.scroll_into_view_if_needed()
    columns = int(scroller.get_attribute("aria-colcount"))
    cell = scroller.evaluate("(x) => x.scrollWidth") / columns
    scroller.click(position={"x": (j + 0.5) * cell, "y": (i + 0.5) * cell})


def box_of(page: Any, selector: str, nth: int = 0) -> Any:
    return page.locator(selector).nth(nth).evaluate("(x) => x.getBoundingClientRect().toJSON()")


# ---- the selection -----------------------------------------------------------------------------


def selected(page: Any) -> Any:
    """The selected layer, head, step, query and key."""
    return page.evaluate(
        "(({ layer, head, step, query, key }) => [layer, head, step, query, key])(selection)"
    )


def test_a_tap_chooses(odd: GPT2, open_page: Open) -> None:
    page = open_page(odd.trace(TEXT), viewport={"width": 390, "height": 800}, has_touch=True)
    page.locator(".map").nth(7).tap()
    until(page, "document.querySelector('#head-title').textContent === 'Layer 1, head 2'")
    page.locator(".flow .chip").nth(5).tap()
    assert selected(page)[3] == 5
    assert page.evaluate("selection.hovered") is None
    choose_look(page, "lines")
    page.locator(".all-lines").tap(position={"x": 20, "y": 24 * 7.5})
    assert selected(page)[3] == 7
    page.locator(".all-lines").tap(position={"x": 300, "y": 24 * 2.5})
    assert selected(page)[3:] == [7, 2]


def opened_at(page: Any, link: str) -> Any:
    """Reload the page at a link; returns the selection."""
    page.goto("about:blank")
    page.goto(f"file://{page.file}{link}{'&' if link else '#'}depth=lab")
    until(page, LOADED)
    until(page, "document.querySelector('#story p') !== null")
    drawn(page)
    return selected(page)


def test_a_link_opens_the_page_where_it_was(odd: GPT2, open_page: Open, tmp_path: Path) -> None:
    trace = odd.trace(TEXT)
    page = open_page(trace)
    page.file = tmp_path / "page.html"

    def most(layer: int, h: int, i: int) -> int:
        return int(trace.head(layer, h).weights[i].argmax())

    before = trace.next_tokens(1)[0]

    def change(layer: int, h: int) -> float:
        without = trace.edited({f"blocks.{layer}.attention.heads.{h}.context": 0})
        (after,) = (token for token in without.next_tokens(263) if token.id == before.id)
        return abs(after.probability - before.probability)

    head = max(np.ndindex(3, 5), key=lambda place: change(*place))
    for link, expected in (
        ("", [*head, "weights", 11, most(*head, 11)]),
        ("#layer=1&head=2&query=9", [1, 2, "weights", 9, most(1, 2, 9)]),
        ("#head=4&step=scores&query=7&key=3&layer=2", [2, 4, "scores", 7, 3]),
        ("#layer=77&head=-1&query=x&key=&step=magic&more=1", [2, 0, "weights", 11, most(2, 0, 11)]),
        ("#query=1e9&key=2.5", [0, 0, "weights", 11, 2]),
        ("#%F0%9F%92%A9&look=magic", [*head, "weights", 11, most(*head, 11)]),
    ):
        assert opened_at(page, link) == expected, link
    opened_at(page, "#look=lines")
    assert page.locator("#lines").is_visible()
    assert opened_at(page, "#layer=2&head=1&query=5&step=scores")[:2] == [2, 1]
    assert page.locator("#head-title").inner_text() == "Layer 2, head 1"
    assert page.locator("#steps input:checked").get_attribute("value") == "scores"
    assert page.locator(".readout .pair").inner_text().startswith("query 5 ")
    assert page.locator("#looks input:checked").get_attribute("value") == "map"
    page.evaluate("location.hash = 'layer=0&head=3&key=4'")
    until(page, "selection.head === 3")
    assert selected(page) == [0, 3, "scores", 5, 4]


def test_a_frame_without_an_address_has_no_link(odd: GPT2, browser: Any) -> None:
    page, messages = browser.new_page(), []
    page.on("console", lambda message: messages.append(message.text))
    page.on("pageerror", lambda error: messages.append(str(error)))
    page.set_content("<iframe width=900 height=700 sandbox='allow-scripts'></iframe>")
    html = attnlab.page(odd.trace(TEXT)).html
    page.locator("iframe").evaluate("(frame, html) => { frame.srcdoc = html; }", html)
    frame = page.frame_locator("iframe")
    frame.locator(".mini").nth(7).click()
    assert frame.locator("#head-title").inner_text() == "Layer 1, head 2"
    page.wait_for_timeout(400)
    assert messages == []
    page.close()


def test_letters_grow_and_all_stays_usable(odd: GPT2, open_page: Open, tmp_path: Path) -> None:
    trace = odd.trace(TEXT)
    for width in (320, 1366):
        page = open_page(trace, viewport={"width": width, "height": 768})
        page.file = tmp_path / "page.html"
        sizes = """[...document.querySelectorAll('main *')].filter((x) => x.innerText?.trim())
            .map((x) => parseFloat(getComputedStyle(x).fontSize))"""
        before = np.array(page.evaluate(sizes))
        assert page.locator("#smaller-letters").is_disabled()
        for _ in range(2):
            page.locator("#larger-letters").press("Enter")
        assert page.locator("#larger-letters").is_disabled()
        assert page.evaluate("document.activeElement.id") == "smaller-letters"
        assert np.allclose(np.array(page.evaluate(sizes)), 1.5 * before)
        drawn(page)
        assert (
            page.evaluate("document.querySelector('.labels').getContext('2d').font")[:4] == "18px"
        )
        for look in ("lines", "map"):
            choose_look(page, look)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
        click_cell(page, 9, 3)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.locator("#arithmetic-title").inner_text().endswith("query 9, key 3")
    until(page, "location.hash.includes('letters=1.5')")
    opened_at(page, page.evaluate("location.hash"))
    assert page.evaluate("textScale()") == 1.5
    page.emulate_media(media="print")
    until(page, "isPrinted() && textScale() === 1")
    page.emulate_media(media="screen")
    until(page, "textScale() === 1.5")
    page.locator("#smaller-letters").click()
    assert page.evaluate("textScale()") == 1.25


def test_the_masthead_names_model_and_text(odd: GPT2, open_page: Open) -> None:
    page = open_page(odd.trace(TEXT))
    assert page.locator("#about").inner_text() == f"odd {TEXT}"
    assert page.title() == f"attnlab odd: {TEXT}"
    letters = page.locator("#letters").inner_text()
    # Bytes among the predictions are tested elsewhere.
    assert letters.startswith("Ġ is a space; other letters, as in ")
    one_head = GPT2.from_pretrained(REFERENCE / "one_head")
    page = open_page(odd.trace("hen"), one_head.trace("a’\nhen"))
    assert page.locator("#about").inner_text() == "A: odd hen · B: one_head a’ hen"
    letters = page.locator("#letters").inner_text()
    assert letters.startswith("Ċ is a new line; other letters, as in â, are bytes, here e2 of ’; ")


# ---- two texts ---------------------------------------------------------------------------------


def test_two_texts_of_different_lengths(odd: GPT2, open_page: Open) -> None:
    ids = odd.trace(TEXT).tokens.ids.tolist()
    extra = [id for id in range(50) if id not in ids][:3]
    # B has another token 3, two more before 7, and lacks A's last one.
    a, b = odd.trace(ids), odd.trace([*ids[:3], extra[0], *ids[4:7], *extra[1:], *ids[7:11]])
    page = open_page(a, b)
    said = page.locator("#compared").inner_text()
    assert "1 of 11 paired tokens differ" in said
    assert "Only in A: 1; only in B: 2" in said
    in_a, in_b = [*range(11)], [*range(7), *range(9, 13)]
    difference = b.head(1, 2).weights[np.ix_(in_b, in_b)] - a.head(1, 2).weights[:11, :11]
    page.locator(".map").nth(7).click()
    scroller = page.locator(".scroller").nth(2)
    assert [scroller.get_attribute(f"aria-{one}count") for one in ("row", "col")] == ["11", "11"]
    for i, j in ((10, 8), (9, 7), (3, 3), (6, 0)):
        to_cell(page, i, j, nth=2)
        shown = page.locator(".readout data")
        for nth, expected in enumerate(
            (a.head(1, 2).weights[in_a[i], in_a[j]], b.head(1, 2).weights[in_b[i], in_b[j]])
        ):
            assert agrees(shown.nth(nth), expected)
        assert agrees(shown.nth(2), difference[i, j])
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
    axes = page.locator(".axes").all_inner_texts()
    assert sorted(axes) == ["layer ↓ head →"] * 3 + ["query ↓\nkey →"] * 3
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
    assert page.locator("#heatmaps .why").nth(2).inner_text() == ""  # the map's name says why
    assert page.locator("#heatmaps h3").nth(2).inner_text().startswith("B − A: 0 everywhere: ")
    assert page.locator("#alignment, .chip.changed, .chip.added").count() == 0
    edited = odd.trace(TEXT).edited({"blocks.1.attention.heads.0.weights": np.eye(12)})
    page = open_page(odd.trace(TEXT), edited)
    assert page.locator("#heatmaps .why").nth(2).inner_text().startswith("0 everywhere: ")
    page.locator(".map").nth(5).click()
    assert page.locator("#heatmaps .why").nth(2).inner_text() == ""
    # The first query always has all its weight on itself.
    ids = odd.trace(TEXT).tokens.ids.tolist()
    page = open_page(odd.trace(ids), odd.trace([ids[5], *ids[1:]]))
    assert page.locator("#heatmaps .why").nth(2).inner_text() == ""


def test_changed_tokens_are_marked(odd: GPT2, open_page: Open) -> None:
    ids = odd.trace(TEXT).tokens.ids.tolist()
    other = next(id for id in range(50) if id not in ids)
    page = open_page(odd.trace(ids), odd.trace([*ids[:3], other, *ids[4:], other]))
    marks = "(all) => all.map((one) => ['changed', 'added'].find((c) => one.classList.contains(c)))"
    for nth, expected in enumerate(([None] * 12, [*[None] * 12, "added"])):
        chips = page.locator(".flow").nth(nth).locator(".chip")
        expected[3] = "changed"
        assert chips.evaluate_all(marks) == expected
    assert page.locator(".flow .chip").nth(3).get_attribute("aria-label").endswith("another token")
    assert page.locator("#alignment li").evaluate_all(marks) == expected
    first, changed, new = odd.tokenizer.tokens([ids[0], ids[3], other]).symbols
    rows = page.locator("#alignment li").all_inner_texts()
    assert [re.sub(r"\s", "", rows[n]) for n in (0, 3, 12)] == [
        *(f"A:{first};B:{first}", f"A:{changed};B:{new}", f"A:–;B:{new}")
    ]


# ---- paper, high contrast, narrow screens ------------------------------------------------------


def cut_off(page: Any) -> list[str]:
    """Elements whose content is cut off."""
    return page.evaluate(  # type: ignore[no-any-return]
        """[...document.querySelectorAll('main *')]
            .filter((x) => x.getClientRects().length && getComputedStyle(x).overflow !== 'visible'
                && !x.matches('.unseen, .bar, .chip *')
                && (x.scrollHeight > x.clientHeight + 1 || x.scrollWidth > x.clientWidth + 1))
            .map((x) => x.id || x.className)"""
    )


@pytest.mark.usefixtures("short_story")
def test_paper_holds_all_on_white(odd: GPT2, open_page: Open) -> None:
    """A long text, in the dark theme, with a cell open and the map enlarged."""
    T = 60
    trace = gpt2_shaped(odd, T, n_layer=2, seed=0, n_embd=96)
    page = open_page(trace, color_scheme="dark", viewport={"width": 700, "height": 150})
    to_cell(page, 30, 7)
    page.keyboard.press("Enter")
    page.locator("#larger").click()
    until(page, "traces[0].loaded.size === 2")
    assert {"flow", "scroller", "table"} <= set(cut_off(page))
    assert not page.evaluate(f"{GRIDS}.every((map) => map.values)")
    page.evaluate(RECORD.replace("METHOD", "fillText"))

    page.emulate_media(media="print")
    until(page, "isPrinted()")
    assert cut_off(page) == []
    assert page.evaluate(f"{GRIDS}.every((map) => map.values)")
    assert page.locator("#unpainted").is_hidden()
    drawn_labels = page.evaluate("drawings.map(([name, [text]]) => [name, text])")
    for name in ("labels", "labels top"):
        shown = [text for one, text in drawn_labels if one == name]
        assert shown[-T:] == list(page.evaluate("views[0].queryLabels"))
    assert box_of(page, ".heatmap")["right"] <= 680
    assert box_of(page, ".frame")["height"] < 1000  # a page of A4 has 1017 pixels
    look = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(look) == "rgb(255, 255, 255)"
    zero = int(LIGHT.zero[1:3], 16)
    assert page.evaluate("pixels[127] & 255") == zero
    assert page.locator('[data-rows="key"] tbody tr').count() == T
    assert page.locator("#theme, #zoom, #close, footer").locator("visible=true").count() == 0

    page.emulate_media(media="screen")
    until(page, "!isPrinted()")
    drawn(page)
    assert {"flow", "scroller", "table"} <= set(cut_off(page))
    assert page.evaluate("pixels[127] & 255") != zero


def test_high_contrast_keeps_what_colours_mean(odd: GPT2, open_page: Open) -> None:
    page = open_page(odd.trace(TEXT), forced_colors="active")
    assert page.evaluate("matchMedia('(forced-colors: active)').matches")
    to_cell(page, 5, 2)
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    style = "(x, name) => getComputedStyle(x)[name]"
    assert page.locator(".map").first.evaluate(style, "outlineStyle") == "solid"
    assert page.locator(".map").nth(1).evaluate(style, "outlineStyle") == "none"
    assert page.locator(".cursor").evaluate(style, "borderTopWidth") == "2px"
    assert page.locator(".opened").evaluate(style, "borderTopStyle") == "double"
    marked = [page.locator(x) for x in ("#steps :checked + span", "tbody tr[aria-current] td")]
    others = [page.locator(x) for x in ("#steps span", "tbody tr:not([aria-current]) td")]
    for one, other in zip(marked, others, strict=True):
        grounds = [x.first.evaluate(style, "backgroundColor") for x in (one, other)]
        assert grounds[0] != grounds[1]
    expected = np.sqrt(np.where(np.tri(12) > 0, odd.trace(TEXT).head(0, 0).weights, np.nan))
    assert np.allclose(shown_in(page), expected, rtol=0, atol=SHADES, equal_nan=True)


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


# ---- other views of a head ---------------------------------------------------------------------

# JavaScript: record later strokes on a canvas in SELECTOR in `strokes`: colour, opacity,
# start and end.
STROKES = """(selector) => {
    window.strokes = [];
    const drawing = CanvasRenderingContext2D.prototype;
    const { moveTo, lineTo, stroke } = drawing;
    const path = new WeakMap();
    drawing.moveTo = function (...at) { path.set(this, [at]); moveTo.apply(this, at); };
    drawing.lineTo = function (...at) { path.get(this)?.push(at); lineTo.apply(this, at); };
    drawing.stroke = function () {
        if (this.canvas.closest(selector))
            strokes.push([this.strokeStyle, this.globalAlpha, path.get(this)]);
        stroke.apply(this);
    };
}"""


def choose_look(page: Any, look: str) -> None:
    page.locator(f"#looks input[value={look}]").dispatch_event("click")
    drawn(page)


def lines_of(page: Any) -> dict[str, NDArray[np.float64]]:
    """The weights (12, 12) that lines show, by colour; 0 if there is no line or a faint one."""
    result: dict[str, NDArray[np.float64]] = {}
    for colour, alpha, ((_, start), (_, end)) in page.evaluate("strokes"):
        i, j = int(start // 24), int(end // 24)
        result.setdefault(colour, np.zeros((12, 12)))[i, j] = alpha**2 if alpha > 0.06 else 0
    return result


def drawn_weights(head: Head) -> NDArray[np.float64]:
    """Lines have at least a fifth of their colour: the root of 0.04."""
    return np.where(head.weights < 0.01, 0, np.maximum(head.weights, 0.04)).astype(np.float64)


def test_lines_of_all_tokens(odd: GPT2, open_page: Open) -> None:
    trace = odd.trace(TEXT)
    page = open_page(trace, viewport={"width": 1280, "height": 1000})
    page.locator(".map").nth(7).click()
    page.evaluate(STROKES, "#lines")
    choose_look(page, "lines")
    assert page.locator("#heatmaps, #zoom, #steps").locator("visible=true").count() == 0
    ((_, weights),) = lines_of(page).items()
    expected = drawn_weights(trace.head(1, 2))
    assert np.allclose(weights, expected, atol=1e-4)
    # The token under the pointer: a query's lines, or those to a key.
    for x, n in ((0.1, 9), (0.9, 3)):
        page.mouse.move(0, 0)
        page.evaluate("strokes.length = 0")
        width = box_of(page, ".all-lines")["width"]
        page.locator(".all-lines").hover(position={"x": x * width, "y": 24 * n + 12})
        drawn(page)
        ((_, weights),) = lines_of(page).items()
        place = np.arange(12) == n
        meant = place[:, None] if x < 0.5 else place
        assert np.allclose(weights, expected * meant, atol=1e-4)
        assert page.evaluate("[describedCell().query, describedCell().key]")[x > 0.5] == n
        assert selected(page)[3] == 11
    page.mouse.move(0, 0)
    drawn(page)
    page.evaluate("strokes.length = 0")
    page.locator(".all-lines").focus()
    page.keyboard.press("ArrowUp")
    drawn(page)
    assert selected(page)[3] == 10
    ((_, weights),) = lines_of(page).items()
    assert np.flatnonzero(weights.any(axis=1)).tolist() == [10]
    # While the head's numbers are being loaded, keys do nothing.
    page.evaluate("[window.kept, traces[0].loaded] = [traces[0].loaded, new Map()]")
    page.keyboard.press("ArrowUp")
    page.evaluate("traces[0].loaded = kept")
    assert selected(page)[3] == 10
    choose_look(page, "map")
    assert page.locator("#lines").is_hidden()
    assert box_of(page, ".scroller")["width"] > 200


def test_heads_are_laid_over_each_other(odd: GPT2, open_page: Open) -> None:
    trace = odd.trace(TEXT)
    page = open_page(trace, viewport={"width": 1280, "height": 1000})
    choose_look(page, "lines")
    page.evaluate(STROKES, "#lines")

    def shown() -> list[tuple[int, int]]:
        """Check the heads whose lines are drawn, each in the colour of its name."""
        page.mouse.move(0, 0)
        drawn(page)
        page.evaluate("strokes.length = 0")
        page.locator(".all-lines").dispatch_event("scroll")  # draws them again
        drawn(page)
        lines = lines_of(page)
        heads = []
        for button in page.locator("#overlaid button").all():
            layer, h = map(int, re.findall(r"\d+", button.inner_text()))
            rgb = button.locator("span").evaluate("(x) => getComputedStyle(x).backgroundColor")
            colour = "#" + "".join(f"{int(x):02x}" for x in re.findall(r"\d+", rgb))
            assert np.allclose(lines.pop(colour), drawn_weights(trace.head(layer, h)), atol=1e-4)
            heads.append((layer, h))
        assert len(lines) == (0 if heads else 1)
        return heads

    page.locator(".map").nth(1).click(modifiers=["Control"])
    page.locator(".map").nth(7).click(modifiers=["Shift"])
    assert shown() == [(0, 0), (0, 1), (1, 2)]
    others = page.locator("#others")  # a button that leads from another look to these lines
    assert others.is_hidden()
    choose_look(page, "map")
    assert others.inner_text().startswith("One of 3 selected heads;")
    others.locator("button").click()
    assert page.evaluate("document.activeElement.value") == "lines"
    assert shown() == [(0, 0), (0, 1), (1, 2)]
    chosen = "(all) => all.flatMap((x, n) => (x.ariaSelected === 'true' ? [n] : []))"
    assert page.locator(".map").evaluate_all(chosen) == [0, 1, 7]
    assert page.locator("#head-title").inner_text() == "Layer 1, head 2"
    page.locator("#overlaid button").nth(1).click()
    assert shown() == [(0, 0), (1, 2)]
    page.locator(".map").nth(12).click()
    assert shown() == []
    # Without modifier keys, as on a phone; never more than there are colours.
    page.locator("#several").click()
    for n in range(10):
        page.locator(".map").nth(n).click()
    assert shown() == [(2, 2), (0, 0), (0, 1), (0, 2), (0, 3), (0, 4)]
    page.evaluate(STROKES, ".stage")
    page.locator(".flow .chip").nth(9).hover()
    drawn(page)
    assert len({colour for colour, *_ in page.evaluate("strokes")}) == 6
    page.locator("#several").click()
    page.evaluate(STROKES, "#lines")
    assert shown() == []
    page.locator(".map").nth(3).focus()
    page.keyboard.press("Control+Enter")
    assert shown() == [(0, 4), (0, 3)]


def test_models_differ_by_their_parameters(odd: GPT2, open_page: Open) -> None:
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
    assert "both texts are the same" not in page.locator("body").inner_text()
    page = open_page(odd.trace("the hen"), same.trace("the hen"))
    assert "0 everywhere: both texts are the same." in page.locator("body").inner_text()
    assert "B: model" not in page.locator("#about").inner_text()
    page = open_page(odd.trace("the hen"), changed.trace("the hen"))
    assert "odd A (from " in page.locator("#about").inner_text()


def test_the_english_models_card_says_what_its_heads_do(open_page: Open) -> None:
    card = (BUILT_IN["english"].directory / "MODEL_CARD.md").read_text(encoding="utf-8")
    table = re.findall(r"^(?:\d +\d|evenly) +(\d\.\d.*)", card, re.M)
    *heads, even = (list(map(float, row.split())) for row in table)
    assert len(heads) == 24
    page = open_page(GPT2.from_pretrained("english").trace("She saw"))
    for n, shown in enumerate(page.locator(".map").all()):
        shown.click()
        listed = [(mean, 2 * least) for mean, least in zip(heads[n], even, strict=True)]
        expected = {f"{mean:.2f}" for mean, least in listed if mean > least + 0.01}
        possible = {f"{mean:.2f}" for mean, least in listed if mean > least - 0.01}
        words = page.locator("#jobs").inner_text().partition("from the model card: ")[2]
        assert "undefined" not in words
        assert expected <= {*re.findall(r" (\d\.\d\d)(?: ·|$)", words)} <= possible, n
