"""The built book: every page of both editions, opened in a browser without network.

Slow, since the English chapters are executed; `test_notebooks.py` compares their outputs.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from book import CHAPTERS, LATER
from conftest import needs
from pages import until

import attnlab

pytestmark = pytest.mark.slow

TESTS = Path(__file__).parent

# The Chinese chapter that is run; `test_book.py` shows that the others have the same code.
IN_CHINESE = "03"
BUILD = f"""
import sys
from pathlib import Path

sys.path[:0] = {[str(TESTS.parent / "examples" / "book"), str(TESTS)]}
import build
from book import executed

def execute(name, code, language):
    is_run = language == "en" or name.startswith({IN_CHINESE!r})
    return executed(name, code, language) if is_run else ([[] for _ in code], True)

build.execute = execute
sys.exit(build.build(*map(Path, sys.argv[1:])))
"""
LANGUAGES = ("en", "zh")
PLAYGROUNDS = ("playground.html", "english.html")
EMBEDDING = ("01", "03", "04", "05", "06", "07", "08", "13", "14")  # chapters


@pytest.fixture(scope="module")
def book(whole_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    for library in ("sphinx", "myst_nb", "furo", "jupytext"):
        needs(library, "book")
    directory, work = map(tmp_path_factory.mktemp, ("book", "work"))
    finished = subprocess.run(
        [sys.executable, "-c", BUILD, str(directory), str(work)],
        capture_output=True,
        encoding="utf-8",
        env={name: value for name, value in os.environ.items() if name != "ATTNLAB_MODEL"}
        | {"XDG_CACHE_HOME": str(whole_run)},
        check=False,
    )
    assert finished.returncode == 0, finished.stderr[-5000:]
    assert finished.stderr == ""
    for chapter in CHAPTERS:
        assert re.search(
            rf"^en/{chapter.stem} +([\d.]+ s|as before)$", finished.stdout, re.MULTILINE
        )
    return directory


@pytest.fixture(scope="module")
def page(browser: Any) -> Iterator[Any]:
    """A page in which tests open the book's pages."""
    page = browser.new_page()
    yield page
    page.close()


class Page(HTMLParser):
    """A page's links, and its anchors."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors = {""}
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        result = dict(attributes)
        self.anchors |= {name for name in (result.get("id"), result.get("name")) if name}
        self.links += [link for link in (result.get("href"), result.get("src")) if link is not None]


def test_every_chapter_is_in_both_languages(book: Path) -> None:
    for language in LANGUAGES:
        for chapter in (*CHAPTERS, *LATER):
            html = (book / language / f"{chapter.stem}.html").read_text(encoding="utf-8")
            assert f'<a href="{chapter.stem}.ipynb" download>' in html
            assert ">下一页<" in html or ">Next<" in html
            assert (">下一页<" in html) == (language == "zh")
            is_drawn = '<div class="attnlab">' in html or 'src="data:image/png' in html
            is_run = is_drawn or (chapter in LATER and "cell_output" in html)
            assert is_run == (language == "en" or chapter.stem[:2] == IN_CHINESE)
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
            has_anchors = target in pages and target.name not in PLAYGROUNDS
            anchors = pages[target].anchors if has_anchors else {"", parts.fragment}
            if not target.exists() or unquote(parts.fragment) not in anchors:
                lost.append(f"{file.relative_to(book)}: {link}")
    assert not lost


def test_the_reference_has_every_public_name(book: Path) -> None:
    page = Page(book / "en" / "api.html")
    public = {name for name in attnlab.__all__ if name != "errors"}
    results = {"LogitLens", "Verdict", "Gradients", "Truth", "open_truth", "Atlas", "Passage"}
    assert public | results <= {
        name.rpartition(".")[2] for name in page.anchors if "attnlab." in name
    }


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_worksheet_prints_on_one_page_and_its_solutions_on_another(
    book: Path, language: str, page: Any
) -> None:
    page.goto((book / language / "worksheet.html").as_uri())
    count = r"/Type\s*/Page\b"
    assert len(re.findall(count.encode(), page.pdf(format="A4"))) == 2
    page.evaluate(
        "(mark => { while (mark.nextSibling) mark.nextSibling.remove(); mark.remove(); })"
        "(document.querySelector('.new-page'))"
    )
    assert len(re.findall(count.encode(), page.pdf(format="A4"))) == 1


@pytest.mark.parametrize("language", LANGUAGES)
def test_equations_are_typeset(book: Path, language: str) -> None:
    html = (book / language / "equations.html").read_text(encoding="utf-8")
    assert html.count("<math ") >= 12
    assert "\\frac" not in html


def test_every_page_names_the_version(book: Path) -> None:
    for file in {file for file in book.rglob("*.html") if file.name not in PLAYGROUNDS}:
        assert f"attnlab {attnlab.__version__}" in file.read_text(encoding="utf-8"), file


def test_llms_txt_lists_every_english_page(book: Path) -> None:
    text = (book / "llms.txt").read_text(encoding="utf-8")
    assert text.startswith(f"# attnlab {attnlab.__version__}\n")
    listed = {target for _, target in re.findall(r"\[([^\]]+)\]\(([^)]+)\)", text)}
    pages = {f"en/{file.name}" for file in (book / "en").glob("*.html")}
    others = (*PLAYGROUNDS, "genindex.html", "search.html", "py-modindex.html")
    assert listed == pages - {f"en/{name}" for name in others}


@pytest.mark.parametrize("language", LANGUAGES)
def test_pages_are_quiet_and_alone(book: Path, browser: Any, language: str) -> None:
    """No page requests anything external, has errors, or is wider than a phone."""
    requested, said, wide = [], [], []
    page = browser.new_page(viewport={"width": 390, "height": 800})
    page.on("request", lambda request: requested.append(request.url))
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    for file in sorted((book / language).glob("*.html")):
        page.goto(file.as_uri())
        width = page.evaluate("document.documentElement.scrollWidth")
        if width > 390:
            wide.append((file.name, width))
    page.close()
    assert [
        url for url in requested if not url.startswith(("file:", "data:", "blob:", "about:"))
    ] == []
    assert said == []
    assert wide == []


CHINESE = ("掩码", "残差流", "注意力权重", "因果掩码", "归纳头", "层归一化", "softmax")


@pytest.mark.parametrize(
    ("language", "word"), [("en", "softmax"), *(("zh", word) for word in CHINESE)]
)
def test_search_and_the_other_language(book: Path, page: Any, language: str, word: str) -> None:
    page.set_viewport_size({"width": 1280, "height": 720})
    page.goto((book / "index.html").as_uri())
    if language == "zh":
        page.click("a[hreflang=zh]")
    page.click(f"a[href='{language}/index.html']")
    page.fill("input[name=q]", word)
    page.keyboard.press("Enter")
    page.locator("#search-results li a").nth(2).wait_for()  # results appear one by one
    page.goto((book / language / "03_one_head_by_hand.html").as_uri())
    (other,) = set(LANGUAGES) - {language}
    page.click(f"a[hreflang={other}]")
    assert page.url.endswith(f"/{other}/03_one_head_by_hand.html")
    assert page.locator("html").get_attribute("lang").startswith(other)


def test_answers_open_after_a_prediction(book: Path, page: Any) -> None:
    page.set_viewport_size({"width": 1280, "height": 720})
    page.goto((book / "en" / "03_one_head_by_hand.html").as_uri())
    answers = page.locator("details", has_text="Answer")
    assert answers.count() >= 2
    text = answers.first.locator("p").first
    assert not text.is_visible()
    answers.first.locator("summary").click()
    assert not text.is_visible()
    page.keyboard.type("all equal")  # the click has put the cursor into the field
    answers.first.locator("summary").click()
    assert text.is_visible()
    assert not answers.nth(1).locator("p").first.is_visible()


@pytest.mark.parametrize("language", LANGUAGES)
def test_chapters_show_the_playground(book: Path, language: str) -> None:
    for chapter in CHAPTERS:
        html = (book / language / f"{chapter.stem}.html").read_text(encoding="utf-8")
        frames = re.findall(r'<iframe class="playground" src="playground.html#([^"]+)"', html)
        assert len(frames) == (chapter.stem[:2] in EMBEDDING)
        assert html.count('<iframe class="playground" src="english.html#') == (
            chapter.stem[:2] == "07"
        )
        assert all("layer=" in link and "head=" in link for link in frames)


@pytest.mark.parametrize("width", [390, 1280])
def test_a_playground_in_a_chapter(book: Path, page: Any, width: int) -> None:
    """Loaded when the reader comes to it, as tall as what it shows, with what its link edits."""
    page.set_viewport_size({"width": width, "height": 800})
    page.goto((book / "en" / "05_why_divide_by_root_d.html").as_uri())
    frame = page.locator("iframe.playground")
    frame.scroll_into_view_if_needed()
    inside = page.frames[1]
    until(inside, "document.querySelector('#ablated').innerText.includes('no division by √Dk')")
    until(inside, "traces.at(-1).story !== undefined")  # which comes late, and changes the height
    until(inside, "innerHeight === document.documentElement.offsetHeight")
    until(inside, "document.documentElement.scrollHeight === innerHeight")
    assert inside.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert "Layer 0, head 3" in inside.locator("#head-title").inner_text()
    assert width > 390 or frame.bounding_box()["width"] == 390
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    inside.locator("#ablated button").first.click()
    until(inside, "!document.querySelector('#ablated button')")
    until(inside, "traces.at(-1).story !== undefined")
    until(inside, "innerHeight === document.documentElement.offsetHeight")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_printed_chapter_is_white_with_answers_unfolded(
    book: Path, page: Any, scheme: str
) -> None:
    page.goto((book / "en" / "03_one_head_by_hand.html").as_uri())
    answers = page.locator("details", has_text="Answer").locator("p")
    assert not answers.first.is_visible()
    page.emulate_media(media="print", color_scheme=scheme)
    assert all(answer.is_visible() for answer in answers.all())
    colour = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(colour) == "rgb(255, 255, 255)"
    assert not page.locator(".headerlink:visible, iframe:visible, .copybtn:visible").count()
    page.emulate_media(media="screen", color_scheme="light")
