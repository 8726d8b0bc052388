"""The book's drawings of blocks, with labels in both languages."""

import shutil

import pytest
from book import CHAPTERS  # puts the book's modules on the path
from conftest import lacking
from drawings import CHINESE, DRAWINGS, drawing

assert CHAPTERS


@pytest.mark.parametrize("name", DRAWINGS)
def test_drawing_in_both_languages(name: str) -> None:
    if not shutil.which("dot"):
        lacking("drawings need Graphviz: apt-get install graphviz")
    graph, *_ = DRAWINGS[name]
    english, chinese = drawing(name, "en"), drawing(name, "zh")
    for before, after in CHINESE.items():
        if f'"{before}"' in graph:
            for line, translated in zip(*(x.split("\\n") for x in (before, after)), strict=True):
                assert (line in english, translated in chinese) == (True, True)
                assert line == translated or f">{line}<" not in chinese
