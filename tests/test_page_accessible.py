"""Accessibility of the page, checked by axe-core.

Skipped, with the reason, where axe_playwright_python or Chromium is missing; under
`ATTNLAB_STRICT=1` that is a failure.
"""

from pathlib import Path
from typing import Any

import pytest
from conftest import Open, Watched, lacking
from pages import OTHER, TEXT, drawn, settled, to_cell, until

import attnlab
from attnlab import GPT2

SERIOUS = ("serious", "critical")


@pytest.fixture(scope="module")
def axe() -> str:
    """The source of axe-core."""
    try:
        import axe_playwright_python
    except ImportError:
        lacking('axe-core comes with: pip install "attnlab[browsers]"')
    package = Path(axe_playwright_python.__path__[0])
    return (package / "axe.min.js").read_text(encoding="utf-8")


def found(page: Any, axe: str, part: str = "html") -> list[tuple[str, str]]:
    """Violations that axe rates serious or worse: the rule, and the first element."""
    page.evaluate(axe)
    violations = page.evaluate("(part) => axe.run(part).then((found) => found.violations)", part)
    return [(one["id"], one["nodes"][0]["html"]) for one in violations if one["impact"] in SERIOUS]


def test_a_violation_is_found(browser: Any, axe: str) -> None:
    page = browser.new_page()
    page.set_content("<img src='data:,'><button></button>")
    assert {rule for rule, _ in found(page, axe)} >= {"image-alt", "button-name"}
    page.close()


@pytest.mark.parametrize(("scheme", "width"), [("light", 390), ("dark", 1280)])
def test_no_accessibility_violations(
    odd: GPT2, open_page: Open, axe: str, scheme: str, width: int
) -> None:
    page = open_page(odd.trace(TEXT), color_scheme=scheme, viewport={"width": width, "height": 800})
    assert found(page, axe) == []
    to_cell(page, 5, 2)
    page.keyboard.press("Enter")
    for slider in page.locator("#settings input[type=range]").all():
        slider.fill("5")
    until(page, "document.querySelector('tr.struck') !== null")
    assert found(page, axe) == []


@pytest.mark.parametrize("language", ["en", "zh"])
def test_no_violations_with_two_texts(odd: GPT2, open_page: Open, axe: str, language: str) -> None:
    page = open_page(odd.trace(TEXT), odd.trace(OTHER), language=language)
    to_cell(page, 5, 2)
    page.keyboard.press("Enter")
    assert found(page, axe) == []


@pytest.mark.parametrize(("scheme", "width"), [("light", 390), ("dark", 1280)])
def test_no_violations_with_a_model(
    watched: Watched, axe: str, scheme: str, width: int, tmp_path: Path
) -> None:
    attnlab.playground(GPT2.from_pretrained("pocket")).save(tmp_path / "model.html")
    size, address = {"width": width, "height": 800}, (tmp_path / "model.html").as_uri()
    page = settled(watched.open(f"{address}#depth=look", color_scheme=scheme, viewport=size))
    assert found(page, axe) == []
    page.locator("#said .its-share").click()
    page.locator("#silence").click()
    drawn(page)
    page.locator("#layers summary").click()
    until(page, "document.querySelector('#picture svg') !== null")
    assert found(page, axe) == []
    page.locator("#menu summary").click()
    assert found(page, axe) == []
    page.locator("#prompt").fill("")
    page.locator("#prompt").press("Enter")
    until(page, "document.querySelector('#status').textContent !== ''")
    assert found(page, axe, "#explore") == []  # the rest is of another text, and faint
