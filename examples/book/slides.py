"""A lesson's slides: cells of executed chapters, chosen by their tags, as one file for a browser.

A cell with the tag `slide-45-03` is on slide 3 of the lesson of 45 minutes: of prose the heading
and the first paragraph, the others are speaker notes; of code what it drew, or else printed, which
appears at the next key. nbconvert makes the slides with reveal.js, which is put into the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import sphinx_revealjs  # type: ignore[import-untyped]
from nbconvert.exporters import SlidesExporter
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

import attnlab
from attnlab.pages.saved import source

HERE = Path(__file__).parent
REVEAL = Path(sphinx_revealjs.__file__).parent / "_static" / "revealjs"
TAG = re.compile(r"slide-(\d+)-(\d+)")
HEADING = re.compile(r"^#+ ((?:[\d.]+ )?.+)$", re.MULTILINE)
# A lesson in teaching.md: its minutes, its title, and its plan; and what pupils answer at its end.
LESSON = re.compile(r"^## (\d+) (?:minutes: |分钟：)(.+)\n\n((?:.|\n)*?)(?=^## )", re.MULTILINE)
QUOTED = re.compile("“[^”]+”")
TICKET = re.compile(r"^\*\*[\d–]+[.　 ]*(Ticket out|出门条)\W*\*\*(.+(?:\n.+)*)", re.MULTILINE)


def lessons(language: str) -> list[tuple[str, str, str]]:
    """Minutes, title and plan of each lesson."""
    text = (HERE / "pages" / language / "teaching.md").read_text(encoding="utf-8")
    return LESSON.findall(text)


def slide(text: str, kind: str = "slide") -> Any:
    return new_markdown_cell(text, metadata={"slideshow": {"slide_type": kind}})  # type: ignore[no-untyped-call]


def chosen(chapters: Iterable[Any], minutes: str) -> Iterator[tuple[int, str, Any]]:
    """Each cell on a lesson's slides: the slide's number, its section's heading, the cell."""
    for chapter in chapters:
        heading = ""
        for cell in chapter["cells"]:
            text = "".join(cell["source"])
            if cell["cell_type"] == "markdown" and (found := HEADING.search(text)):
                heading = re.sub(r"^[\d.]+ ", "", found[1])
            for tag in cell["metadata"].get("tags", ()):
                if (named := TAG.fullmatch(tag)) and named[1] == minutes:
                    yield int(named[2]), heading, cell


def paragraphs(text: str) -> tuple[str, str]:
    """What a slide shows of prose, without its heading, and the rest."""
    text = HEADING.sub("", text).replace(".ipynb)", ".html)")
    text = re.sub(r"<iframe.*?</iframe>", "", text)  # the link before it opens the playground
    first, *others = text.strip().split("\n\n")
    while first.endswith((":", "：")) and others:
        first += "\n\n" + others.pop(0)
    return first, "\n\n".join(others)


def shown(cells: list[Any]) -> list[Any]:
    """The pictures of cells, or if there are none, what they printed."""
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    pictures = [output for output in outputs if "image/png" in output.get("data", {})]
    return pictures or [output for output in outputs if output["output_type"] == "stream"]


def deck(chapters: list[Any], language: str, number: int) -> Any:
    """The slides of lesson `number`, counted from 0, as a notebook."""
    plans = lessons(language)
    minutes, title, plan = plans[number]
    result = new_notebook(metadata={"title": title})  # type: ignore[no-untyped-call]
    result.cells = [slide(f"# {title[0].upper()}{title[1:]}"), slide(plan, "notes")]
    found = sorted(chosen(chapters, minutes), key=lambda each: each[0])
    for _, group in groupby(found, lambda each: each[0]):
        _, headings, cells = zip(*group, strict=True)
        prose = [cell for cell in cells if cell["cell_type"] == "markdown"]
        parts = [paragraphs("".join(cell["source"])) for cell in prose]
        result.cells.append(slide("\n\n".join([f"## {headings[0]}", *(part[0] for part in parts)])))
        for output in shown([*cells]):
            shows = new_code_cell(outputs=[output])  # type: ignore[no-untyped-call]
            shows.metadata["slideshow"] = {"slide_type": "fragment" if prose else "-"}
            result.cells.append(shows)
        if notes := "\n\n".join(part[1] for part in parts if part[1]):
            result.cells.append(slide(notes, "notes"))
    tickets = [ticket for _, _, plan in plans for ticket in TICKET.findall(plan)]
    asked = [question for _, text in tickets[: number + 1] for question in QUOTED.findall(text)]
    result.cells.append(slide("\n\n".join([f"## {tickets[0][0]}", *asked])))
    return result


def as_page(notebook: Any, language: str) -> str:
    """The slides as one file, which needs no network."""
    ours = HERE / "theme"
    styles = [REVEAL / "dist/reveal.css", ours / "static/columns.css", ours / "slides.css"]
    scripts = [REVEAL / "dist/reveal.js", REVEAL / "plugin/notes/notes.js"]
    texts = [[file.read_text(encoding="utf-8") for file in files] for files in (styles, scripts)]
    exporter: Any = SlidesExporter(  # type: ignore[no-untyped-call]
        extra_template_basedirs=[str(ours)],
        template_name="slides",
        exclude_input=True,
        exclude_anchor_links=True,
    )
    resources = {
        "attnlab": {
            "styles": [source("theme.css"), *texts[0]],
            "scripts": texts[1],
            "version": attnlab.__version__,
        },
        "language_code": language,
    }
    page, _ = exporter.from_notebook_node(notebook, resources)
    return page
