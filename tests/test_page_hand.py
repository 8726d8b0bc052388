"""What the page does under the hand: its menu, its tooltip, marks of what is ablated."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from pages import Open, drawn, silencing, strong_arcs, until

from attnlab import Trace


def choose(page: Any, item: str) -> None:
    """Choose from the menu."""
    page.locator("#menu summary").click()
    page.locator(f"#{item}").click()


def saved(page: Any, click: Callable[[], None], file: Path) -> bytes:
    with page.expect_download() as download:
        click()
    download.value.save_as(file)
    return file.read_bytes()


@pytest.mark.parametrize("silenced", [False, True])
def test_the_picture_is_saved_with_its_words_and_arcs(
    silenced: bool, ball: Trace, look: Open, tmp_path: Path
) -> None:
    page = look(ball)
    if silenced:
        page.locator("#silence").click()
    svg = ElementTree.fromstring(saved(page, lambda: choose(page, "save-svg"), tmp_path / "a.svg"))
    name = "{http://www.w3.org/2000/svg}"
    texts = [text.text for text in svg.iter(f"{name}text")]
    words = [token.text.strip() for token in ball.tokens]
    assert texts[: len(words) + 2] == [*words[:5], "99.9", "%", *words[5:]]
    assert [one.text.strip() for one in ball.next_tokens(3)] == [x for x in texts if x in NEXT][:3]
    sentence = " ".join(map(str, texts))
    assert "Without head 1.0, “ rolled ” falls" in sentence
    assert not re.search("silence it|temperature", sentence)  # no controls
    paths = [path for path in svg.iter(f"{name}path") if path.get("fill") == "none"]
    shown = page.locator("#stages path:not(.hit)").count()
    assert len(paths) == shown > 8
    widths = {float(str(path.get("stroke-width")).removesuffix("px")) for path in paths}
    assert {*strong_arcs(page).values()} <= widths
    assert all(
        path.get("stroke", "").startswith("rgb") for path in paths
    )  # without its style sheet
    png = saved(page, lambda: choose(page, "save-png"), tmp_path / "a.png")
    assert png.startswith(b"\x89PNG")
    size = [int.from_bytes(png[at : at + 4]) for at in (16, 20)]
    assert size == pytest.approx(
        [2 * float(str(svg.get(one))) for one in ("width", "height")], abs=2
    )


NEXT = ("rolled", "barked", "buzzed")


def test_all_numbers_are_shown_and_hidden_from_the_menu(ball: Trace, look: Open) -> None:
    page = look(ball)
    assert not page.locator("#heatmaps").is_visible()
    choose(page, "all-numbers")
    until(page, "location.hash.includes('depth=lab')")
    assert page.locator("#heatmaps").is_visible()
    assert page.locator("#prediction").is_visible()
    choose(page, "all-numbers")
    until(page, "!location.hash.includes('depth')")
    assert not page.locator("#heatmaps").is_visible()


def test_a_link_is_copied(ball: Trace, look: Open) -> None:
    page = look(ball, "depth=look&layer=1&head=2")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    choose(page, "copy-link")
    until(page, "document.querySelector('#done').textContent === 'Link copied.'")
    copied = page.evaluate("navigator.clipboard.readText()")
    until(page, f"location.href === '{copied}'")  # which is written after a delay
    assert "#layer=1&head=2&" in copied


def test_the_menu_has_help_and_closes(ball: Trace, look: Open) -> None:
    page = look(ball)
    choose(page, "ask")
    assert "An arc is attention" in page.locator("#help").inner_text()
    page.keyboard.press("Escape")
    assert not page.locator("#help").is_visible()
    page.keyboard.press("?")
    assert page.locator("#help").is_visible()
    page.locator("#close-help").click()
    assert not page.locator("#help").is_visible()
    leaving: list[Callable[[], None]] = [
        lambda: page.keyboard.press("Escape"),
        lambda: page.mouse.click(600, 700),
    ]
    for leave in leaving:
        page.locator("#menu summary").click()
        assert page.locator("#menu button").first.is_visible()
        leave()
        assert not page.locator("#menu button").first.is_visible()


def test_a_saved_page_marks_an_ablated_head(ball: Trace, look: Open) -> None:
    for edit in ({"blocks.1.attention.heads.2.context": 0}, silencing(ball, 1, 2)):
        page = look(ball.edited(edit), "depth=lab&layer=1&head=2")
        assert page.locator("#is-ablated").is_visible()
    assert page.locator("#head .ablation:visible").count() == 1
    page.locator(".head-drawing").nth(4).click()
    drawn(page)
    assert page.locator(".ablation").count() == 0
    assert page.locator("#is-ablated").is_hidden()
