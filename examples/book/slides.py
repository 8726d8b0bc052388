"""Slides of every chapter as HTML pages that request nothing else.

    pip install -e ".[book]"
    python examples/book/slides.py DIRECTORY [zh]

Each section is a slide with its first paragraph; code and answers are slides below it, and later
paragraphs are speaker notes. The arrow keys, the space bar or a click on an edge change the slide;
N shows and hides the notes. A slide fits a window of 1280 x 720 pixels: a taller one is scaled
down, or continues on the next.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Any

import jupytext  # type: ignore[import-untyped]
from drawings import drawing
from editions import CHAPTERS, lesson
from markdown_it import MarkdownIt
from nbclient import NotebookClient
from pygments import highlight  # type: ignore[import-untyped]
from pygments.formatters import HtmlFormatter  # type: ignore[import-untyped]
from pygments.lexers import PythonLexer  # type: ignore[import-untyped]

from attnlab.views.page.page import source

STYLE = """
body { margin: 0; min-height: 100vh; background: var(--paper); color: var(--ink); }
body { font: 1.5rem/1.5 var(--sans); }
section { box-sizing: border-box; max-width: 64rem; margin: auto; }
section { padding: 2rem; }
section:not(.shown), body:not(.with-notes) aside { display: none; }
aside { border-top: 1px solid; margin-top: 2rem; font-size: 1.1rem; }
pre { font-size: 1rem; overflow-x: auto; white-space: pre-wrap; }
.output pre { white-space: pre; }
section.measured { display: block; }
img { max-width: 100%; }
img, .drawing svg { filter: var(--picture-filter); mix-blend-mode: var(--picture-blend); }
td, th { padding: 0 0.75rem 0 0; text-align: left; }
#number { position: fixed; right: 1rem; bottom: 0.5rem; font-size: 1rem; }
"""
SCRIPT = """
const HEIGHT = 718, SMALLEST_SCALE = 0.8;  // scaled heights may be rounded up
let slides = [];

/** Scale a slide to HEIGHT; what is too tall at the smallest scale moves to a slide after it. */
function fit(slide) {
  const rest = slide.cloneNode(false);
  slide.classList.add("measured");
  for (const text of slide.querySelectorAll("pre")) {
    if (text.scrollWidth > text.clientWidth) text.style.zoom = text.clientWidth / text.scrollWidth;
  }
  const parts = [...slide.children].filter((part) => part.tagName !== "ASIDE");
  while (slide.offsetHeight > HEIGHT / SMALLEST_SCALE && parts.length > 1) {
    rest.prepend(parts.pop());
  }
  slide.style.zoom = Math.min(1, HEIGHT / slide.offsetHeight);
  slide.classList.remove("measured");
  if (rest.hasChildNodes()) {
    slide.after(rest);
    fit(rest);
  }
}
function show() {
  const current = Math.min(Math.max(Number(location.hash.slice(1)) || 1, 1), slides.length);
  slides.forEach((slide, index) => slide.classList.toggle("shown", index === current - 1));
  document.querySelector("#number").textContent = `${current} / ${slides.length}`;
  return current;
}
function go(offset) {
  location.hash = Math.min(Math.max(show() + offset, 1), slides.length);
  show();
  scrollTo(0, 0);
}
const FORTH = ["ArrowRight", "ArrowDown", "PageDown", " "];
const BACK = ["ArrowLeft", "ArrowUp", "PageUp"];
addEventListener("hashchange", show);
addEventListener("keydown", ({ key, target }) => {
  if (target.closest("summary, a, input, textarea, select, button, .attnlab")) return;
  if (FORTH.includes(key)) go(1);
  if (BACK.includes(key)) go(-1);
  if (key === "n") document.body.classList.toggle("with-notes");
});
addEventListener("click", ({ clientX, target }) => {
  if (target !== document.body) return;
  go(clientX > innerWidth / 2 ? 1 : -1);
});
addEventListener("load", () => {
  document.querySelectorAll("section").forEach(fit);
  slides = [...document.querySelectorAll("section")];
  show();
});
"""
MARKDOWN = MarkdownIt("commonmark", {"html": True}).enable("table")
LINK = re.compile(r'<a href="(?!https?:)[^"]*">(.*?)</a>', re.DOTALL)  # to pages of the book
DRAWING = re.compile("<!-- drawing: (\\w+) -->")


def page(chapter: Path, language: str) -> str:
    """A chapter's slides; runs the chapter."""
    notebook = jupytext.reads(lesson(chapter, language, "slides"), fmt="py:percent")
    client = NotebookClient(notebook, kernel_name="python3", timeout=None)
    client.execute(env={**os.environ, "ATTNLAB_LANGUAGE": language})
    numbered, number = [], 0
    for cell in notebook.cells:
        number += cell.metadata["slideshow"]["slide_type"] != "notes"  # notes join the slide before
        numbered.append((number, cell))
    sections = (
        f"<section>{''.join(content(cell, language) for _, cell in group)}</section>"
        for _, group in groupby(numbered, lambda pair: pair[0])
    )
    light, dark = (HtmlFormatter(style=name) for name in ("default", "monokai"))
    colours = light.get_style_defs(".code") + "@media (prefers-color-scheme: dark) {"
    colours += dark.get_style_defs(".code") + "} .code { background: none !important }"
    return (
        f'<!DOCTYPE html>\n<html lang="{language}">\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width">\n'
        f"<title>{escape(chapter.stem)}</title>\n"
        f"<style>{source('theme.css')}{colours}{STYLE}</style>\n<body>\n"
        + "\n".join(sections)
        + f'\n<div id="number"></div>\n<script>{SCRIPT}</script>\n</body>\n</html>\n'
    )


def content(cell: Any, language: str) -> str:
    """A cell as HTML: prose, or code with its output."""
    if cell.cell_type == "markdown":
        prose = LINK.sub(r"\1", MARKDOWN.render(cell.source))
        prose = DRAWING.sub(
            lambda match: f'<div class="drawing">{drawing(match[1], language)}</div>', prose
        )
        is_note = cell.metadata["slideshow"]["slide_type"] == "notes"
        return f"<aside>{prose}</aside>" if is_note else prose
    code: str = highlight(cell.source, PythonLexer(), HtmlFormatter(cssclass="code"))
    return code + "".join(render_outputs(cell.outputs))


def render_outputs(outputs: list[Any]) -> Iterator[str]:
    """A cell's outputs as HTML: text, pictures and pages."""
    for output in outputs:
        data = output.get("data", {"text/plain": output.get("text", "")})
        if "text/html" in data:
            yield f"<div>{data['text/html']}</div>"
        elif "image/png" in data:
            label = escape(data.get("text/plain", ""), quote=True)
            yield f'<img alt="{label}" src="data:image/png;base64,{data["image/png"]}">'
        else:
            yield f'<div class="output"><pre>{escape(data["text/plain"])}</pre></div>'


if __name__ == "__main__":
    match sys.argv[1:]:
        case [directory, *rest] if rest in ([], ["en"], ["zh"]):
            Path(directory).mkdir(parents=True, exist_ok=True)
            for chapter in CHAPTERS:
                html = page(chapter, *(rest or ["en"]))
                (Path(directory) / f"{chapter.stem}.html").write_text(html, encoding="utf-8")
        case _:
            sys.exit(__doc__)
