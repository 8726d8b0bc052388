"""Write the book as executed notebooks, which a code host shows: `examples/notebooks`.

    pip install -e ".[book]"
    python examples/book/notebooks.py [en|zh] [CHAPTER ...]

With chapters, such as 03 or mla, only these are written. The scripts stay the source: a test holds
that the notebooks have their cells. `walkthrough.ipynb` is its own source, and only its outputs
change. A chapter is executed again only if its code, the library or NumPy has changed.
"""

from __future__ import annotations

import base64
import io
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

from drawings import DRAWINGS
from editions import CHAPTERS, EXAMPLES, LATER, cells_for
from execute import execute
from links import LINK, ROOT

LANGUAGES = ("en", "zh")
WALKTHROUGH = {"en": EXAMPLES / "walkthrough.ipynb", "zh": EXAMPLES / "zh" / "walkthrough.ipynb"}
COLOURS = 64  # of a picture's PNG, so that a notebook stays small
WIDEST = 720  # of a picture, in pixels
DRAWING = re.compile("<!-- drawing: (\\w+) -->")


def file_for(chapter: Path, language: str) -> Path:
    """The notebook of a chapter in a language."""
    return EXAMPLES / "notebooks" / language / f"{chapter.stem}.ipynb"


def prose_of(text: str, chapter: Path, language: str) -> str:
    """A cell's Markdown, whose links lead to notebooks and to the repository's files."""

    def link(match: re.Match[str]) -> str:
        label, path, anchor, _ = match.groups(default="")
        file = (chapter.parent / path).resolve()
        if path in ("playground.html", "english.html"):  # which only the built book has
            file, anchor = EXAMPLES / "book/pages/en/guide.md", "#explore"
        if file in (*CHAPTERS, *LATER):
            return f"[{label}]({file.stem}.ipynb{anchor})"
        to = os.path.relpath(file, file_for(chapter, language).parent)
        return f"[{label}]({Path(to).as_posix()}{anchor})"

    text = DRAWING.sub(lambda match: f"*({DRAWINGS[match[1]][1 + (language == 'zh')]})*", text)
    return LINK.sub(link, text)


def notebook_of(chapter: Path, language: str) -> dict[str, Any]:
    """The notebook of a chapter, without outputs."""
    cells: list[dict[str, Any]] = []
    for number, cell in enumerate(cells_for(chapter, language, "home")):
        text = prose_of(cell.text, chapter, language) if cell.is_prose else cell.text
        written = {"id": f"{chapter.stem[:20]}-{number}", "metadata": {}}
        written["source"] = text.strip("\n").splitlines(keepends=True)
        code: dict[str, Any] = {"cell_type": "code", "execution_count": None, "outputs": []}
        cells.append(written | ({"cell_type": "markdown"} if cell.is_prose else code))
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def smaller(png: str) -> str:
    """A picture in few colours and not too wide, in base64 as it came."""
    from PIL import Image

    file, picture = io.BytesIO(), Image.open(io.BytesIO(base64.b64decode(png))).convert("RGB")
    picture.thumbnail((WIDEST, 10 * WIDEST))
    picture.quantize(COLOURS).save(file, "png", optimize=True)
    return base64.b64encode(file.getvalue()).decode()


def write(notebook: dict[str, Any], file: Path, language: str) -> None:
    """Execute a notebook and write it, without HTML, whose styles GitHub drops."""
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    outputs, _ = execute(file.stem, ["".join(cell["source"]) for cell in code], language)
    for cell, of_cell in zip(code, outputs, strict=True):
        cell["outputs"] = of_cell
        for data in (output["data"] for output in of_cell if "data" in output):
            data.pop("text/html", None)
            if "image/png" in data:
                data["image/png"] = smaller(data["image/png"])
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{json.dumps(notebook, ensure_ascii=False, indent=1)}\n", encoding="utf-8")
    print(f"{file.relative_to(ROOT)}  {file.stat().st_size / 1000:.0f} kB", flush=True)


def main(arguments: list[str]) -> None:
    """Write the notebooks of the languages and chapters that are named, or all."""
    languages = [each for each in arguments if each in LANGUAGES] or LANGUAGES
    chosen = tuple(each for each in arguments if each not in LANGUAGES) or ("",)
    for language in languages:
        for chapter in (*CHAPTERS, *LATER):
            if chapter.stem.startswith(chosen):
                write(notebook_of(chapter, language), file_for(chapter, language), language)
        if "walkthrough".startswith(chosen):
            file = WALKTHROUGH[language]
            write(json.loads(file.read_text(encoding="utf-8")), file, language)


if __name__ == "__main__":
    main(sys.argv[1:])
