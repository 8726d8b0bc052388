"""The book as it is built: every page of both editions, opened in a browser that has no network.

Slow, since all chapters are executed twice; `-m slow` asks for it.
"""

import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from book import CHAPTERS
from conftest import needs

import attnlab

pytestmark = pytest.mark.slow

BUILD = Path(__file__).parent.parent / "examples" / "book" / "build.py"
LANGUAGES = ("en", "zh")


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for library in ("sphinx", "myst_nb", "furo", "jupytext"):
        needs(library, "book")
    directory = tmp_path_factory.mktemp("book")
    finished = subprocess.run(
        [sys.executable, str(BUILD), str(directory)],
        capture_output=True,
        encoding="utf-8",
        env={name: value for name, value in os.environ.items() if name != "ATTNLAB_MODEL"},
        check=False,
    )
    assert finished.returncode == 0, finished.stderr[-5000:]
    return directory


class Page(HTMLParser):
    """What a page links to, and where it can be linked to."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors = {""}
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = dict(attributes)
        self.anchors |= {name for name in (found.get("id"), found.get("name")) if name}
        self.links += [link for link in (found.get("href"), found.get("src")) if link is not None]


def test_every_chapter_is_there_twice(book: Path) -> None:
    for language in LANGUAGES:
        for chapter in CHAPTERS:
            html = (book / language / f"{chapter.stem}.html").read_text(encoding="utf-8")
            assert f'<a href="{chapter.stem}.ipynb" download>' in html
            assert ">下一页<" in html or ">Next<" in html
            assert (">下一页<" in html) == (language == "zh")
            assert '<div class="attnlab">' in html or 'src="data:image/png' in html
            notebook = json.loads((book / language / f"{chapter.stem}.ipynb").read_text("utf-8"))
            assert notebook["cells"]


def test_every_link_leads_somewhere(book: Path) -> None:
    pages = {file: Page(file) for file in book.rglob("*.html")}
    lost = []
    for file, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme in ("data", "https", "mailto"):
                continue
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            anchors = pages[target].anchors if target in pages else {"", parts.fragment}
            if not target.exists() or unquote(parts.fragment) not in anchors:
                lost.append(f"{file.relative_to(book)}: {link}")
    assert not lost


def test_the_reference_has_every_public_name(book: Path) -> None:
    page = Page(book / "en" / "api.html")
    public = {name for name in attnlab.__all__ if name != "errors"}
    assert public <= {name.rpartition(".")[2] for name in page.anchors if "attnlab." in name}


def test_every_page_names_the_version(book: Path) -> None:
    for file in book.rglob("*.html"):
        assert f"attnlab {attnlab.__version__}" in file.read_text(encoding="utf-8"), file


def test_llms_txt_lists_every_english_page(book: Path) -> None:
    text = (book / "llms.txt").read_text(encoding="utf-8")
    assert text.startswith(f"# attnlab {attnlab.__version__}\n")
    listed = {target for _, target in re.findall(r"\[([^\]]+)\]\(([^)]+)\)", text)}
    pages = {f"en/{file.name}" for file in (book / "en").glob("*.html")}
    assert listed == pages - {f"en/{page}.html" for page in ("genindex", "search", "py-modindex")}


@pytest.mark.parametrize("language", LANGUAGES)
def test_pages_are_quiet_and_alone(book: Path, browser: Any, language: str) -> None:
    """No page asks for anything outside, none has an error; none is wider than a phone."""
    asked, said, wide = [], [], []
    page = browser.new_page(viewport={"width": 390, "height": 800})
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    for file in sorted((book / language).glob("*.html")):
        page.goto(file.as_uri())
        width = page.evaluate("document.documentElement.scrollWidth")
        if width > 390:
            wide.append((file.name, width))
    page.close()
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:", "about:"))] == []
    assert said == []
    assert wide == []


CHINESE = ("掩码", "残差流", "注意力权重", "因果掩码", "归纳头", "层归一化", "softmax")


@pytest.mark.parametrize(
    ("language", "word"), [("en", "softmax"), *(("zh", word) for word in CHINESE)]
)
def test_search_and_the_other_language(book: Path, browser: Any, language: str, word: str) -> None:
    page = browser.new_page()
    page.goto((book / "index.html").as_uri())
    page.click(f"a[href^={language}]")
    page.fill("input[name=q]", word)
    page.keyboard.press("Enter")
    page.locator("#search-results li a").nth(2).wait_for()  # results come one after another
    page.goto((book / language / "03_one_head_by_hand.html").as_uri())
    (other,) = set(LANGUAGES) - {language}
    page.click(f"a[hreflang={other}]")
    assert page.url.endswith(f"/{other}/03_one_head_by_hand.html")
    assert page.locator("html").get_attribute("lang").startswith(other)
    page.close()


def test_answers_are_folded_away(book: Path, browser: Any) -> None:
    page = browser.new_page()
    page.goto((book / "en" / "03_one_head_by_hand.html").as_uri())
    answers = page.locator("details", has_text="Answer")
    assert answers.count() >= 2
    text = answers.first.locator("p").first
    assert not text.is_visible()
    answers.first.locator("summary").click()
    assert text.is_visible()
    page.close()
