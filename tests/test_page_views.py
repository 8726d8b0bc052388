"""The page's views beside the map: arithmetic, print, links, two texts laid beside each other."""

from typing import Any

import pytest
from conftest import REFERENCE
from pages import OTHER, TEXT, Open, to_cell

from attnlab import GPT2


@pytest.fixture(scope="module")
def odd() -> GPT2:
    return GPT2.from_pretrained(REFERENCE / "odd")


# ---- arithmetic beside the map -----------------------------------------------------------------


def click_cell(page: Any, i: int, j: int, nth: int = 0) -> None:
    scroller = page.locator(".scroller").nth(nth)
    scroller.scroll_into_view_if_needed()
    columns = int(scroller.get_attribute("aria-colcount"))
    cell = scroller.evaluate("(x) => x.scrollWidth") / columns
    scroller.click(position={"x": (j + 0.5) * cell, "y": (i + 0.5) * cell})


def box_of(page: Any, selector: str, nth: int = 0) -> Any:
    return page.locator(selector).nth(nth).evaluate("(x) => x.getBoundingClientRect().toJSON()")


@pytest.mark.parametrize("size", [(1600, 900), (1280, 800)])
def test_arithmetic_opens_beside_the_map(odd: GPT2, open_page: Open, size: tuple[int, int]) -> None:
    page = open_page(odd.trace(TEXT), viewport=dict(zip(("width", "height"), size, strict=True)))
    click_cell(page, 9, 1)  # which may scroll so far that it can click
    before = page.evaluate("scrollY"), box_of(page, ".scroller")
    click_cell(page, 9, 3)
    assert (page.evaluate("scrollY"), box_of(page, ".scroller")) == before
    panel, cell = box_of(page, "#panel"), box_of(page, ".opened")
    assert panel["right"] <= box_of(page, "#head")["left"]
    assert panel["top"] >= 0
    assert panel["bottom"] <= size[1]
    assert panel["height"] > 300
    assert cell == pytest.approx(box_of(page, ".cursor"))
    # All of it can be read by scrolling it, and it is left by pointer.
    last = page.locator('#sums [data-rows="key"]')
    last.scroll_into_view_if_needed()
    assert box_of(page, '#sums [data-rows="key"] tfoot')["bottom"] <= size[1]
    page.locator("#close").click()
    assert page.locator("#close, .opened, #sums table").locator("visible=true").count() == 0
    assert page.evaluate("document.activeElement.className") == "cursor"
    assert box_of(page, ".scroller") == before[1]
    assert box_of(page, "#heads")["right"] <= box_of(page, "#head")["left"]


def test_the_panel_is_as_high_as_there_is_room(odd: GPT2, open_page: Open) -> None:
    page = open_page(odd.trace(TEXT))
    click_cell(page, 9, 3)
    for y in (0, 150, 240):
        page.evaluate(f"scrollTo(0, {y})")
        page.wait_for_timeout(100)
        panel = box_of(page, "#panel")
        assert panel["top"] == pytest.approx(max(16, box_of(page, "#overview")["top"]), abs=1)
        assert panel["bottom"] <= 800


def test_on_a_phone_arithmetic_lies_below_its_row(odd: GPT2, open_page: Open) -> None:
    page = open_page(odd.trace(TEXT), viewport={"width": 390, "height": 800})
    for i, j in ((11, 2), (0, 0)):
        click_cell(page, i, j)
        panel, cell = box_of(page, "#panel"), box_of(page, ".cursor")
        assert (panel["left"], panel["right"], panel["bottom"]) == (0, 390, 800)
        assert cell["top"] >= 0
        assert cell["bottom"] <= panel["top"]
        assert 300 < panel["height"] < 500
        page.locator("#close").click()
        assert page.locator("#sums article").count() == 0


def test_with_two_texts_the_map_stays_in_sight(odd: GPT2, open_page: Open) -> None:
    page = open_page(odd.trace(TEXT), odd.trace(OTHER))
    for nth in range(3):
        click_cell(page, 9, 3, nth)
        cell, panel = box_of(page, ".cursor", nth), box_of(page, "#panel")
        assert cell["top"] >= 0
        assert cell["bottom"] <= 800
        assert panel["right"] <= cell["left"]
        page.locator("#close").click()


def test_escape_leaves_the_arithmetic(odd: GPT2, open_page: Open) -> None:
    page = open_page(odd.trace(TEXT))
    to_cell(page, 5, 2)
    page.keyboard.press("Enter")
    assert page.locator("#sums article").count() == 1
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "close"
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.className") == "cursor"
    assert page.locator("#sums article").count() == 0
