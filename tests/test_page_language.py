"""The page's language, switched in place: the words are those of a page written in it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Watched
from pages import OTHER, TEXT, ask, drawn, idle, settled, until

import attnlab
from attnlab import GPT2
from attnlab.cli.arguments import parser

# JavaScript: what a reader sees or hears, line by line.
WORDS = """() => {
    const all = [...document.querySelectorAll("body *")];
    const seen = all.filter((part) => part.checkVisibility());
    const labelsOf = (part) => [part.title, part.ariaLabel, part.placeholder];
    const labels = seen.flatMap(labelsOf);
    const closed = ["help", "menu"].map((id) => document.getElementById(id).textContent);
    return [...labels.filter(Boolean), ...closed, ...document.body.innerText.split("\\n")];
}"""

# JavaScript: wait for all numbers that were asked for, and those that are asked for then.
ALL_READ = """async () => {
    const all = () => traces.flatMap(({ packs }) => [...packs.values()]);
    for (let known = -1; known !== all().length; ) {
        known = all().length;
        await Promise.all(all());
    }
}"""

# JavaScript: whether each next word that is listed is complete, where a model completes them.
COMPLETED = """!live.complete || texts.every(({ next, completions }) =>
    next && completions?.size === Math.min(4, next.length))"""

Opened = Callable[..., dict[str, Any]]


@pytest.fixture
def in_both(watched: Watched, tmp_path: Path) -> Iterator[Opened]:
    """Open a page that is written in each language, at the same link."""

    def open_(write: Callable[[Path, str], None], link: str) -> dict[str, Any]:
        pages = {}
        for language in ("en", "zh"):
            file = tmp_path / f"{language}.html"
            write(file, language)
            pages[language] = watched.open(file.as_uri() + link)
        return pages

    yield open_
    watched.close()
    assert watched.said == []


def steady(page: Any) -> None:
    """Wait until the words are there that come with numbers."""
    settled(page)
    until(
        page, "document.body.dataset.depth === 'look' || document.querySelector('#predictions tr')"
    )
    until(page, "!document.querySelector('main [aria-busy=true]')")
    page.evaluate(ALL_READ)
    until(page, COMPLETED)
    look = None
    while look != (look := page.evaluate(WORDS)):
        drawn(page)


def switch(page: Any) -> None:
    page.locator("#language").click()
    steady(page)


def check_words(pages: dict[str, Any]) -> None:
    """There and back; what is selected stays."""
    for page in pages.values():
        steady(page)
    english, chinese = (page.evaluate(WORDS) for page in pages.values())
    selected = pages["en"].evaluate("JSON.stringify(selection)")
    switch(pages["en"])
    assert pages["en"].evaluate(WORDS) == chinese
    assert pages["en"].evaluate("document.documentElement.lang") == "zh-Hans"
    switch(pages["en"])
    assert pages["en"].evaluate(WORDS) == english
    assert pages["en"].evaluate("JSON.stringify(selection)") == selected
    switch(pages["zh"])
    assert pages["zh"].evaluate(WORDS) == english


@pytest.mark.parametrize(
    "link",
    [
        "#depth=look",
        "#depth=look&predict&query=5",
        "#depth=lab&layer=2&head=4&query=5&key=1&open=layer.2.head.4.query.5.key.1.component.3",
        "#depth=lab&stop=blocks.1.mlp.activated&component=7",
        "#depth=lab&stop=logits&component=2",
    ],
)
def test_words_of_a_saved_page(link: str, odd: GPT2, in_both: Opened) -> None:
    trace = odd.trace(TEXT)
    check_words(
        in_both(lambda file, language: attnlab.page(trace, language=language).save(file), link)
    )


@pytest.mark.slow
@pytest.mark.parametrize("edited", [False, True])
def test_words_of_two_traces(edited: bool, odd: GPT2, in_both: Opened) -> None:
    """With names, notes and differences, which Python and the page make together."""
    trace, other = odd.trace(TEXT), odd.trace(OTHER)
    if edited:
        other = trace.edited({"blocks.1.attention.heads.2.context": 0})

    def write(file: Path, language: str) -> None:
        attnlab.page(trace, other, language=language).save(file)

    check_words(in_both(write, "#depth=lab&layer=1&head=2"))


def test_words_of_a_playground(odd: GPT2, in_both: Opened) -> None:
    """What was typed, chosen and generated stays."""

    def write(file: Path, language: str) -> None:
        attnlab.playground(odd, TEXT, language=language).save(file)

    pages = in_both(write, "#depth=lab&layer=1&head=2")
    for page in pages.values():
        idle(page)
        ask(page, OTHER)
        idle(page)
        page.locator("#head-toggle").click()
        idle(page)
        page.locator("#changes summary").click()
        page.locator("#changed-step").select_option("scores")
        ask(page, "typed")
        idle(page)
    check_words(pages)
    page = pages["en"]
    assert page.locator("#prompt").input_value() == "typed"
    assert page.locator("#changed-step").input_value() == "scores"
    page.locator("#compare").check()  # the history is there, and the controls work
    idle(page)
    assert page.evaluate("traces.length") == 2


def test_the_link_remembers_the_language(odd: GPT2, watched: Watched, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    attnlab.page(odd.trace(TEXT), language="en").save(file)
    page = watched.open(file.as_uri())
    page.locator("#language").click()
    until(page, "location.hash.includes('language=zh')")
    again = watched.open(page.url)
    assert again.locator("#head-title").inner_text().startswith("第 0 层")
    assert again.locator("#language").inner_text() == "English"
    again.locator("#language").click()
    until(again, "!location.hash.includes('language')")
    for other in ("klingon", "constructor"):
        page = watched.open(f"{file.as_uri()}#language={other}")
        assert page.locator("#head-title").inner_text().startswith("Layer 0")
    assert watched.said == []


def test_a_saved_page_says_where_one_with_a_text_box_comes_from(
    odd: GPT2, watched: Watched, tmp_path: Path
) -> None:
    attnlab.page(odd.trace(TEXT), language="en").save(tmp_path / "page.html")
    for depth in ("look", "lab"):
        page = watched.open(f"{(tmp_path / 'page.html').as_uri()}#depth={depth}")
        commands = page.locator("#own-text:visible code").all_inner_texts()
        assert commands == ["attnlab playground page.html", "attnlab explore"]
        for command in commands:  # as they stand, without the program's name
            parser().parse_args(command.split()[1:])
    attnlab.playground(odd, TEXT).save(tmp_path / "page.html")
    assert watched.open((tmp_path / "page.html").as_uri()).locator("#own-text").count() == 0
