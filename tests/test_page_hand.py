"""What the page does under the hand: it names what is pointed at, and saves it."""

import csv
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from pages import BALL, Open, until

from attnlab import Trace, softmax


def card(page: Any) -> str | None:
    """What the tooltip says; None if it is hidden."""
    element = page.locator("#card")
    return element.inner_text() if element.is_visible() else None


def length(vector: Any) -> str:
    return f"{np.linalg.norm(np.asarray(vector, np.float64)):.2f}"


def test_the_pointer_names_what_it_is_at_and_opens_it(ball: Trace, look: Open) -> None:
    page = look(ball)
    canvas = page.locator(".scene > canvas")

    def hover(kind: str) -> Any:
        find = f"""partsOf(...[picture.spot.shown()].flatMap(({{ plan, layers, curves }}) =>
            [plan, layers, curves, 5])).findLast(({{ kind }}) => kind === {kind!r})"""
        at = page.evaluate(f"(({{ x, y }}) => ({{ x, y }}))({find})")
        canvas.hover(position=at, force=True)
        return at

    hover("added")
    assert (
        card(page) == f"MLP 1 adds to “,” a vector of length {length(ball.blocks[1].mlp.output[5])}"
    )
    at = hover("vector")
    canvas.click(position={"x": at["x"] + 40, "y": at["y"]}, force=True)
    assert page.evaluate("[selection.isFollowing, selection.query]") == [True, 5]
    page.mouse.move(0, 0)
    assert card(page) is None
    page.locator("#about b").hover()
    assert "was trained on the sentences of a small grammar" in str(card(page))
    page.locator(".mini").nth(1).hover()
    assert str(card(page)).startswith("layer 0, head 1")
    page.locator("#all-tokens").click()
    best = page.locator(".leaving .word").first
    best.hover()
    token = ball.next_tokens(1)[0]
    assert (
        card(page)
        == f"“{token.text.strip()}”: {100 * token.probability:.2f}\xa0%; open its numbers"
    )
    best.click()
    until(page, "document.activeElement.id === 'prediction-title'")
    assert page.evaluate("selection.depth") == "lab"


def test_a_finger_names_before_it_opens(ball: Trace, look: Open) -> None:
    page = look(ball, has_touch=True, viewport={"width": 1000, "height": 800})
    box = page.locator(".scene > canvas").bounding_box()
    part = """(({ plan, layers, curves }) => partsOf(plan, layers, curves, 7).find(
        ({ kind }) => kind === "added"))(picture.spot.shown())"""
    at = page.evaluate(part)
    touch = (box["x"] + at["x"], box["y"] + at["y"])
    page.touchscreen.tap(*touch)
    assert (
        card(page)
        == f"MLP 0 adds to “it” a vector of length {length(ball.blocks[0].mlp.output[7])}"
    )
    assert page.evaluate("selection.level") == "model"
    page.touchscreen.tap(*touch)
    until(page, "selection.level === 'block' && selection.layer === 0")


def test_a_saved_page_marks_an_ablated_head_in_lab(ball: Trace, look: Open) -> None:
    ablated = ball.edited({"blocks.1.attention.heads.2.context": 0})
    page = look(ablated, "depth=lab&layer=1&head=2")
    until(page, "document.querySelectorAll('#grids .map.drawn').length === 8")
    marked = page.locator("#grids .map.ablated")
    assert marked.evaluate_all("(all) => all.map((map) => map.ariaLabel)") == [
        "layer 1, head 2, ablated"
    ]
    assert page.locator("#is-ablated").is_visible()
    for n in range(2):  # map, lines
        page.locator("#looks input").nth(n).check()
        assert page.locator("#head .ablation:visible").count() == 1
    page.locator("#grids .map").nth(4).click()
    assert page.locator(".ablation").count() == 0
    assert page.locator("#is-ablated").is_hidden()


def test_the_legend_opens_by_its_key_and_closes_alone(ball: Trace, look: Open) -> None:
    page = look(ball, "depth=look&layer=1&head=0&level=head")
    page.keyboard.press("?")
    assert "Layer 1, head 0" in page.locator("#help").inner_text()
    page.keyboard.press("Escape")
    assert not page.locator("#help").is_visible()
    assert page.evaluate("selection.level") == "head"


def saved(page: Any, click: Callable[[], None], file: Path) -> bytes:
    with page.expect_download() as download:
        click()
    download.value.save_as(file)
    return file.read_bytes()


def test_pictures_are_saved(ball: Trace, look: Open, tmp_path: Path) -> None:
    page = look(ball)

    def save(kind: str) -> Callable[[], None]:
        def click() -> None:
            page.locator("#share summary").click()
            page.locator(f"#save-{kind}").click()

        return click

    svg = ElementTree.fromstring(saved(page, save("svg"), tmp_path / "a.svg"))
    name = "{http://www.w3.org/2000/svg}"
    texts = [text.text for text in svg.iter(f"{name}text")]
    words = BALL.replace(",", "").split()
    assert [text for text in texts if text in words] == words
    assert "1.0" in texts
    strokes = [path for path in svg.iter(f"{name}path") if path.get("fill") == "none"]
    curves = [path for path in strokes if "C" in str(path.get("d"))]  # neither rings nor ticks
    assert len(curves) == page.evaluate("picture.curves.filter(({ i, j }) => i !== j).length") > 8
    assert len(list(svg.iter(f"{name}image"))) == 8  # the heads' maps
    framed = [rect.get("fill") for rect in svg.iter(f"{name}rect") if rect.get("stroke")]
    assert len(framed) >= 8  # frames cover nothing
    assert {*framed} == {"none"}
    png = saved(page, save("png"), tmp_path / "a.png")
    assert png.startswith(b"\x89PNG")
    size = [int.from_bytes(png[at : at + 4]) for at in (16, 20)]
    assert size == [2 * int(str(svg.get(side))) for side in ("width", "height")]


def test_tables_and_maps_are_saved_with_all_digits(ball: Trace, look: Open, tmp_path: Path) -> None:
    page = look(ball, "depth=lab&layer=1&head=2")

    def rows(click: Callable[[], None]) -> list[list[str]]:
        content = saved(page, click, tmp_path / "a.csv").decode("utf-8-sig")
        return list(csv.reader(io.StringIO(content, newline="")))

    def save_map() -> None:
        page.locator("#share summary").click()
        page.locator("#save-map").click()

    heading, *body = rows(save_map)
    assert heading[1:] == [row[0] for row in body] == list(ball.tokens.symbols)
    weights = np.array([[float(x) for x in row[1:]] for row in body])
    assert np.allclose(weights, ball.head(1, 2).weights, rtol=1e-5, atol=1e-7)
    table = page.locator("#predictions table")
    heading, *body = rows(lambda: table.locator("[data-csv=save]").click())
    assert heading[:2] == ["token", "logit"]
    logits = {token.symbol: float(ball.next_logits[token.id]) for token in ball.next_tokens(10)}
    shown = {row[0]: float(row[1]) for row in body[:10]}
    assert shown == pytest.approx(logits, rel=1e-6)
    assert table.locator("caption").inner_text().startswith("The 10 most probable of")
    # A cell with two numbers, or a text and a number, becomes two columns.
    ranked = page.locator("#ranked table").first
    heading, *body = rows(lambda: ranked.locator("[data-csv=save]").click())
    assert heading[:5] == ["head", "ablated", "ablated 2", "rests", "Ġit attends to"]
    layer, head = map(int, body[0][0].split("."))
    top = ball.next_tokens(1)[0]
    ablated = ball.edited({f"blocks.{layer}.attention.heads.{head}.context": 0})
    then, now, rest = map(float, body[0][1:4])
    assert then == pytest.approx(top.probability, rel=1e-5)
    assert now == pytest.approx(softmax(ablated.next_logits)[top.id], rel=1e-4)
    assert rest == pytest.approx(ball.head(layer, head).weights[-1, 0], rel=1e-4)


def test_a_link_is_copied(ball: Trace, look: Open) -> None:
    page = look(ball, "depth=lab&layer=1&head=2")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.locator("#share summary").click()
    page.locator("#copy-link").click()
    until(page, "document.querySelector('#done').textContent === 'Link copied.'")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == page.evaluate("location.href")
    assert "#layer=1&head=2&" in copied


def test_presenting_by_a_button(ball: Trace, look: Open) -> None:
    page = look(ball)
    page.locator("#present").click()
    until(page, "document.documentElement.classList.contains('presenting')")
    assert not page.locator(".masthead").is_visible()
    page.locator("#leave").click()
    until(page, "!document.documentElement.classList.contains('presenting')")
    assert page.locator(".masthead").is_visible()
