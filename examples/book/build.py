"""Build the book as pages that work offline: executed chapters in English and Chinese.

    pip install -e ".[book]"
    python examples/book/build.py DIRECTORY [en|zh]

Open DIRECTORY/index.html, or zh.html. With a language, only its edition is built, and its links to
the other one lead nowhere. What chapters printed is kept in ~/.cache/attnlab-book, and a chapter is
executed again only if its code, the library or NumPy has changed. Each edition also has the
chapters' notebooks, for Jupyter. Graphviz draws the diagram (`apt-get install graphviz`).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from api import reference
from diagram import diagram
from drawings import DRAWINGS, as_markdown, drawing
from editions import CHAPTERS, EXAMPLES, LATER, lesson, notebook
from execute import execute
from links import ROOT, in_book

import attnlab
from attnlab.pages.saved import source

HERE = Path(__file__).parent
LANGUAGES = {"en": "en", "zh": "zh_CN"}
DRAWING = re.compile("<!-- drawing: (\\w+) -->")
PLAYGROUNDS = {"pocket": "playground.html", "english": "english.html"}

# Of each edition's door: its file, the README that it is made from, and what only a door says.
DOORS = {
    "en": (
        *("index.html", ROOT / "README.md", "English"),
        "For learners, teachers with a projector, researchers with a laptop, and everyone who has "
        "trained a GPT-2. There is nothing to install: open the page below, or read ",
        "the book on attention",
        "What attnlab shows of one text. Open it: a model runs in your browser, offline.",
    ),
    "zh": (
        *("zh.html", EXAMPLES / "zh" / "README.md", "中文"),
        "写给学习者、带投影仪上课的老师、用笔记本电脑的研究者，以及训练过 GPT-2 的人。"
        "什么都不用装：打开下面的页面，或者读",
        "注意力之书",
        "attnlab 看一句话时显示的页面。点开它：模型就在浏览器里运行，不用联网。",
    ),
}
WAYS = re.compile(r"^## (?:Where to start|从哪里开始)\n\n((?:[-* ].*\n)+)", re.MULTILINE)
PICTURE = re.compile(r"^(.+)\n\n!\[(.+)\]\(.*?(\w+\.png)\)", re.MULTILINE)


def door(language: str) -> str:
    """The book's front page in a language: what this is, for whom, and the README's ways in."""
    from jinja2 import Template
    from markdown_it import MarkdownIt

    _, readme, _, whom, book, picture = DOORS[language]
    text = readme.read_text(encoding="utf-8")
    what, alt, file = re.findall(PICTURE, text)[0]
    ways = re.sub(r"\]\(#.*?\)", "](index.md)", re.findall(WAYS, text)[0])
    ways = re.sub(r"(?<=[^\x00-\x7f])\n {2,}", "", ways).replace("**：", "**")
    ways = in_book(ways, readme.parent, language)
    ways = re.sub(r"\]\(([\w/.]+)\.(?:md|ipynb)", r"](\1.html", ways)
    ways = re.sub(r'(\]\(|href=")(?!https:)', rf"\1{language}/", ways)
    (other,) = LANGUAGES.keys() - {language}
    return Template((HERE / "theme/door.html").read_text(encoding="utf-8")).render(
        language=language,
        version=attnlab.__version__,
        theme=source("theme.css"),
        other=other,
        other_file=DOORS[other][0],
        other_name=DOORS[other][2],
        what=what,
        whom=whom,
        book=book,
        alt=alt,
        file=file,
        picture=picture,
        ways=MarkdownIt().render(ways),
    )


def since(start: float) -> str:
    return f"{time.perf_counter() - start:.1f} s"


def say(what: str, how_long: str) -> None:
    print(f"{what:<40}{how_long:>10}\n", end="", flush=True)  # one write, as threads take turns


def lay_out(source: Path, language: str) -> None:
    """Write Sphinx's input: the edition's pages, chapters as notebooks, reference and diagram."""
    import jupytext  # type: ignore[import-untyped]

    pages = HERE / "pages" / language
    shutil.copytree(pages, source)
    for file in source.glob("*.md"):
        text = in_book(file.read_text(encoding="utf-8"), pages, language)
        file.write_text(text, encoding="utf-8")
    for chapter in (*CHAPTERS, *LATER):
        chapter_notebook = notebook(lesson(chapter, language, "home"))
        for cell in chapter_notebook.cells:
            if cell.cell_type == "markdown":
                text = in_book(cell.source, chapter.parent, language)
                cell.source = DRAWING.sub(lambda match: as_markdown(match[1], language), text)
        jupytext.write(chapter_notebook, source / f"{chapter.stem}.ipynb")
    shutil.copy((EXAMPLES / "zh" if language == "zh" else EXAMPLES) / "walkthrough.ipynb", source)
    (source / "diagram.svg").write_text(diagram(), encoding="utf-8")
    for name in DRAWINGS:
        (source / f"{name}.svg").write_text(drawing(name, language), encoding="utf-8")
    if language == "en":
        (source / "api.md").write_text(reference(), encoding="utf-8")


def run_chapter(file: Path, language: str) -> None:
    """Put the outputs into a chapter's notebook, for Sphinx to show."""
    start = time.perf_counter()
    chapter = json.loads(file.read_text(encoding="utf-8"))
    code = [cell for cell in chapter["cells"] if cell["cell_type"] == "code"]
    sources = ["".join(cell["source"]) for cell in code]
    outputs, is_known = execute(file.stem, sources, language)
    for cell, of_cell in zip(code, outputs, strict=True):
        cell["outputs"] = of_cell
    chapter["metadata"]["language_info"] = {"name": "python", "pygments_lexer": "ipython3"}
    file.write_text(json.dumps(chapter), encoding="utf-8")
    say(f"{language}/{file.stem}", "as before" if is_known else since(start))


def run_sphinx(source: Path, work: Path, language: str) -> int:
    """Make the pages of an edition; the exit status of Sphinx."""
    start = time.perf_counter()
    status = subprocess.run(
        [
            *(sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html"),
            *("-c", str(HERE), "-D", f"language={LANGUAGES[language]}"),
            *("-d", str(work / f"{language}.doctrees")),
            *(str(source), str(work / "html" / language)),
        ],
        env={**os.environ, "ATTNLAB_LANGUAGE": language},
    ).returncode
    say(f"{language}: pages", since(start))
    return status


def build(directory: Path, work: Path, languages: Sequence[str] = tuple(LANGUAGES)) -> int:
    """Build the editions in some languages; return 1 if Sphinx fails or warns."""
    start = time.perf_counter()
    for language in languages:
        lay_out(work / language, language)
        (work / "html" / language).mkdir(parents=True)
        for file in ("*.ipynb", "*.svg"):  # to download, so without outputs
            for written in (work / language).glob(file):
                shutil.copy(written, work / "html" / language)
    say("laid out", since(start))
    chapters = [
        (work / language / f"{chapter.stem}.ipynb", language)
        for language in languages
        for chapter in (*CHAPTERS, *LATER)
    ]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for _ in pool.map(lambda each: run_chapter(*each), chapters):
            pass
        statuses = [*pool.map(lambda each: run_sphinx(work / each, work, each), languages)]
    if any(statuses):
        return 1
    for language in languages:
        shutil.copytree(work / "html" / language, directory / language, dirs_exist_ok=True)
        for name, file in PLAYGROUNDS.items():
            model = attnlab.GPT2.from_pretrained(name)
            attnlab.playground(model, language=language).save(directory / language / file)
        (directory / DOORS[language][0]).write_text(door(language), encoding="utf-8")
    for picture in HERE.glob("*.png"):
        shutil.copy(picture, directory)
    if "en" in languages:
        shutil.move(directory / "en/llms.txt", directory / "llms.txt")
    say(str(directory / DOORS[languages[0]][0]), since(start))
    return 0


if __name__ == "__main__":
    match sys.argv[1:]:
        case [directory, *languages] if directory[0] != "-" and {*languages} <= LANGUAGES.keys():
            with tempfile.TemporaryDirectory() as work:
                sys.exit(build(Path(directory), Path(work), languages or [*LANGUAGES]))
        case _:
            sys.exit(__doc__)
