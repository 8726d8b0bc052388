"""The book as pages that need no network: chapters, executed, in English and in Chinese.

    pip install -e ".[book]"
    python examples/book/build.py DIRECTORY

DIRECTORY/index.html is where it begins. Each edition holds the chapters' notebooks too, to be
opened in Jupyter. Graphviz draws the diagram (`apt-get install graphviz`).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import jupytext  # type: ignore[import-untyped]
from diagram import diagram
from editions import CHAPTERS, edition
from reference import names, reference

HERE = Path(__file__).parent
LANGUAGES = {"en": "en", "zh": "zh_CN"}
EQUATION = re.compile(r"\[`(\w+)`\]\(\.\./attnlab/(\w+)\.py\)")
CHAPTER = re.compile(r"\]\((\d\d_\w+)\.py\)")

FRONT = """<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>attnlab: the book on attention</title>
<style>body { font: 1.5rem system-ui; margin: 20vh auto; text-align: center }</style>
<h1>attnlab</h1>
<p><a href="en/index.html">The book on attention</a></p>
<p><a href="zh/index.html" lang="zh">注意力之书</a></p>
"""


def linked(script: str) -> str:
    """A chapter with its links to equations and to chapters turned to where the book has them."""
    source = r'<a href="../en/_modules/attnlab/\2.html#\1"><code>\1</code></a>'
    return CHAPTER.sub(r"](\1.ipynb)", EQUATION.sub(source, script))


def lay_out(source: Path, language: str) -> None:
    """What Sphinx reads: the edition's pages, chapters as notebooks, reference and diagram."""
    shutil.copytree(HERE / "pages" / language, source)
    for chapter in CHAPTERS:
        notebook = jupytext.reads(linked(edition(chapter, language)), fmt="py:percent")
        notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
        jupytext.write(notebook, source / f"{chapter.stem}.ipynb")
    (source / "names.inc").write_text(names(language), encoding="utf-8")
    (source / "diagram.svg").write_text(diagram(), encoding="utf-8")
    if language == "en":
        (source / "api.md").write_text(reference(), encoding="utf-8")


def build(directory: Path) -> int:
    """Both editions; Sphinx's exit status, which a warning makes 1."""
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        settings = {"HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(Path(work) / "hub")}
        for language, sphinx_language in LANGUAGES.items():
            source = Path(work) / language
            lay_out(source, language)
            status = subprocess.run(
                [
                    *(sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-E"),
                    *("-c", str(HERE), "-D", f"language={sphinx_language}"),
                    *("-d", str(Path(work) / f"{language}.doctrees")),
                    *(str(source), str(Path(work) / "out" / language)),
                ],
                env={**os.environ, **settings, "ATTNLAB_LANGUAGE": language},
                check=False,
            ).returncode
            if status:
                return status
            shutil.copytree(Path(work) / "out" / language, directory / language, dirs_exist_ok=True)
            for notebook in source.glob("*.ipynb"):
                shutil.copy(notebook, directory / language)
    (directory / "index.html").write_text(FRONT, encoding="utf-8")
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(build(Path(sys.argv[1])))
