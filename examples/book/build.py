"""Build the book as pages that work offline: executed chapters in English and Chinese.

    pip install -e ".[book]"
    python examples/book/build.py DIRECTORY

Open DIRECTORY/index.html. Each edition also has the chapters' notebooks, for Jupyter. Graphviz
draws the diagram (`apt-get install graphviz`).

If ATTNLAB_RUN_AT is set, each chapter links to its notebook at that address followed by
`en/03_one_head_by_hand.ipynb`, so that Colab or Binder can run it, for example
https://colab.research.google.com/github/OWNER/REPOSITORY/blob/BRANCH/
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

import jupytext  # type: ignore[import-untyped]
import typeset
from api import names, reference
from diagram import diagram
from drawings import DRAWINGS, as_markdown, drawing
from editions import CHAPTERS, LATER, lesson, notebook
from folding import fold
from nbformat.v4 import new_code_cell
from question_bank import page

import attnlab
from attnlab.views.page.page import source

HERE = Path(__file__).parent
LANGUAGES = {"en": "en", "zh": "zh_CN"}
EQUATION = re.compile(r"\[`(\w+)`\]\(\.\./attnlab/equations\.py\)")
FUNCTION = re.compile(r"\[`(?:attnlab\.)?(\w+)`\]\(\.\./attnlab/([\w/]+)\.py\)")
CHAPTER = re.compile(r"\]\((?:\.\./|later/)?(\w+)\.py\)")
DRAWING = re.compile("<!-- drawing: (\\w+) -->")
PLAYGROUNDS = {"pocket": "playground.html", "english": "english.html"}
PLAYGROUND = re.compile(r"\[([^\]]+)\]\(((?:playground|english)\.html#\S+)\)((?:.|\n(?=# \S))*)")

FRONT = f"""<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>attnlab: the book on attention</title>
<style>{source("theme.css")}
body {{ font: 1.5rem var(--sans); margin: 20vh auto; text-align: center;
  background: var(--paper); color: var(--ink) }}
a {{ color: var(--accent) }}</style>
<h1>attnlab {attnlab.__version__}</h1>
<p><a href="en/index.html">The book on attention</a></p>
<p><a href="zh/index.html" lang="zh">注意力之书</a></p>
"""


def with_links(script: str) -> str:
    """A chapter whose links to equations and chapters point to the book's pages."""
    source = r'<a href="../en/_modules/attnlab/\2.html#\1"><code>\1</code></a>'
    equation = r'<a href="equations.html#\1"><code>\1</code></a>'
    script = FUNCTION.sub(source, EQUATION.sub(equation, PLAYGROUND.sub(embed_playground, script)))
    return CHAPTER.sub(r"](\1.ipynb)", script)


def embed_playground(match: re.Match[str]) -> str:
    """A link to the playground, with the playground itself in a frame below the paragraph."""
    label, link, following = escape(match[1]), escape(match[2]), match[3]
    frame = f'<iframe class="playground" src="{link}" title="{label}" loading="lazy"></iframe>'
    return f'<a href="{link}">{label}</a>{following}\n#\n# {frame}'


def split_cells(cells: Sequence[Any]) -> Iterator[Any]:
    """A notebook's cells, each split into the parts that the page shows and folds."""
    code = [cell.source if cell.cell_type == "code" else "" for cell in cells]
    for number, cell in enumerate(cells, 1):
        if cell.cell_type != "code" or "nbgrader" in cell.metadata:
            yield cell
            continue
        for part, is_folded in fold(cell.source, code[number:]):
            metadata = {"tags": ["hide-input"]} if is_folded else {}
            yield new_code_cell(part, metadata=metadata)  # type: ignore[no-untyped-call]


def lay_out(source: Path, language: str) -> None:
    """Write Sphinx's input: the edition's pages, chapters as notebooks, reference and diagram."""
    shutil.copytree(HERE / "pages" / language, source)
    for chapter in (*CHAPTERS, *LATER):
        script = with_links(lesson(chapter, language, "home"))
        script = DRAWING.sub(lambda match: as_markdown(match[1], language), script)
        chapter_notebook = notebook(script)
        chapter_notebook.cells = [*split_cells(chapter_notebook.cells)]
        jupytext.write(chapter_notebook, source / f"{chapter.stem}.ipynb")
    (source / "questions.md").write_text(page(language), encoding="utf-8")
    (source / "equations.md").write_text(typeset.page(language), encoding="utf-8")
    (source / "names.inc").write_text(names(language), encoding="utf-8")
    (source / "diagram.svg").write_text(diagram(), encoding="utf-8")
    for name in DRAWINGS:
        (source / f"{name}.svg").write_text(drawing(name, language), encoding="utf-8")
    if language == "en":
        (source / "api.md").write_text(reference(), encoding="utf-8")


def start_sphinx(work: Path, language: str) -> subprocess.Popen[bytes]:
    """Start Sphinx on an edition; it runs the chapters on one core and on the pocket model."""
    lay_out(work / language, language)
    settings = {
        "ATTNLAB_LANGUAGE": language,
        "HF_HUB_OFFLINE": "1",
        "HF_HUB_CACHE": str(work / "hub"),
        "OPENBLAS_NUM_THREADS": "1",
    }
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html"),
            *("-c", str(HERE), "-D", f"language={LANGUAGES[language]}"),
            *("-d", str(work / f"{language}.doctrees")),
            *(str(work / language), str(work / "html" / language)),
        ],
        env={**os.environ, **settings},
    )


def build(directory: Path, work: Path) -> int:
    """Build both editions side by side; return 1 if Sphinx fails or warns."""
    running = [start_sphinx(work, language) for language in LANGUAGES]
    statuses = [process.wait() for process in running]
    if any(statuses):
        return 1
    for language in LANGUAGES:
        shutil.copytree(work / "html" / language, directory / language, dirs_exist_ok=True)
        for file in ("*.ipynb", "*.svg"):
            for written in (work / language).glob(file):
                shutil.copy(written, directory / language)
        for name, file in PLAYGROUNDS.items():
            model = attnlab.GPT2.from_pretrained(name)
            model.playground(directory / language / file, language=language)
    shutil.move(directory / "en/llms.txt", directory / "llms.txt")
    (directory / "index.html").write_text(FRONT, encoding="utf-8")
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory() as work:
        sys.exit(build(Path(sys.argv[1]), Path(work)))
