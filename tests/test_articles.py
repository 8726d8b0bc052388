"""The map from articles to chapters: its sections exist, its code runs, its numbers stand there."""

import contextlib
import io
import re
from typing import NamedTuple

import numpy as np
import pytest
from book import file_of, run_unchanged
from pytorch import ROOT

import attnlab

ROW = re.compile(r"^\| (?!-|part|claim|部分|常见)(.+?) \| (.+?) \| (.*?) ?\|$", re.MULTILINE)
SECTION = re.compile(r"\[(\d+)((?:\.\d+)?)\]\(")  # a chapter, or one of its sections
NUMBER = re.compile(r"\d[\d,]*\.\d+|\d{1,3}(?:,\d{3})+")  # such as 0.497 and 12,288


class Row(NamedTuple):
    """A row of the map: what it says, its sections, and the code of the first one's chapter."""

    text: str
    sections: list[tuple[str, str]]
    code: list[str]


def rows(language: str) -> list[Row]:
    page = ROOT / "examples/book/pages" / language / "articles.md"
    found = []
    for first, second, third in ROW.findall(page.read_text(encoding="utf-8")):
        is_claim = "](" in third
        sections, code = (third, "") if is_claim else (second, third)
        text = f"{first} {second}" if is_claim else first
        found.append(Row(text, SECTION.findall(sections), re.findall("`(.+?)`", code)))
    return found


CHAPTERS = sorted({row.sections[0][0] for row in rows("en")}, key=int)


def test_both_pages_have_the_same_code() -> None:
    pages = ROOT / "examples/book/pages"
    english, chinese = (
        re.findall("```.+?```", (pages / language / "articles.md").read_text("utf-8"), re.DOTALL)
        for language in ("en", "zh")
    )
    assert len(english) == 3
    assert english == chinese


def test_both_maps_have_the_same_rows_and_name_sections_that_exist() -> None:
    english, chinese = map(rows, ("en", "zh"))
    assert len(english) > 208
    for row, other in zip(english, chinese, strict=True):
        assert row[1:] == other[1:]
        assert sorted(NUMBER.findall(row.text)) == sorted(NUMBER.findall(other.text)), row.text
        for number, section in row.sections:
            script = file_of(number.zfill(2)).read_text(encoding="utf-8")
            assert not section or f"# ## {number}{section} " in script, row.text


@pytest.mark.slow
@pytest.mark.parametrize("number", CHAPTERS)
def test_rows_are_computed_where_they_say(number: str) -> None:
    name = number.zfill(2)
    chapter, script = run_unchanged(name), file_of(name).read_text(encoding="utf-8")
    for row in rows("en"):
        if row.sections[0][0] == number:
            with contextlib.redirect_stdout(io.StringIO()):
                for code in row.code:
                    eval(code, {**chapter, "np": np, "attnlab": attnlab})
            for printed in NUMBER.findall(row.text):
                assert printed in chapter.printed + script, row.text
