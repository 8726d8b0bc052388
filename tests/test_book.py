"""Every chapter of the book has what a chapter has, and its two editions say the same."""

import re
from collections import Counter
from pathlib import Path

import pytest
from book import CHAPTERS, answers, chinese
from editions import Cell, cells, marked, prose, stale, texts, translated, translation_of

NUMBER = re.compile(r"(?<![\w.])-?\d+\.\d+(?!\.?\w)", re.ASCII)
CODE = re.compile(r"`[^`\n]+`|^    .*$", re.MULTILINE)

SCRIPT = """\
# %% [markdown]
# # 1. One
#
# Two plus two.

# %%
print(2 + 2)

# %% [markdown]
# ## 1.1 More
"""
CHINESE = "<!-- 00000000 -->\n# 1. 一\n\n二加二。\n\n<!-- new -->\n## 1.1 更多\n"


def name(chapter: Path) -> str:
    return chapter.stem


def text_of(chapter: Path) -> str:
    return chapter.read_text(encoding="utf-8")


def test_the_cells_of_a_script() -> None:
    assert cells(SCRIPT) == [
        Cell("# 1. One\n\nTwo plus two.", True),
        Cell("print(2 + 2)\n", False),
        Cell("## 1.1 More", True),
    ]
    assert "\n".join(map(str, cells(SCRIPT))) == SCRIPT


def test_an_edition_is_the_same_code_with_other_prose() -> None:
    both = translated(SCRIPT, CHINESE)
    assert both == (
        "# %% [markdown]\n# # 1. 一\n#\n# 二加二。\n\n# %%\nprint(2 + 2)\n\n"
        "# %% [markdown]\n# ## 1.1 更多\n"
    )
    with pytest.raises(ValueError, match="2 cells of prose in English, 1 in Chinese"):
        translated(SCRIPT, CHINESE.partition("<!-- new")[0])


def test_a_text_that_is_older_than_its_english_is_told() -> None:
    assert stale(SCRIPT, CHINESE) == ["# 1. One", "## 1.1 More"]
    fresh = marked(SCRIPT, CHINESE)
    assert [text for _, text in texts(fresh)] == [text for _, text in texts(CHINESE)]
    assert stale(SCRIPT, fresh) == []
    assert stale(SCRIPT.replace("Two plus", "2 plus"), fresh) == ["# 1. One"]
    assert stale(SCRIPT + "#\n# And more.\n", fresh) == ["## 1.1 More"]
    assert stale(SCRIPT.replace("print(2 + 2)", "print(4)"), fresh) == []


def test_what_has_no_chinese_yet_is_not_marked_as_translated() -> None:
    half = CHINESE.partition("<!-- new")[0]
    assert stale(SCRIPT, marked(SCRIPT, half)) == ["## 1.1 More"]
    assert texts(marked(SCRIPT, half))[1] == ("new", "## 1.1 More")
    assert texts(marked(SCRIPT, CHINESE + "<!-- new -->\n多余\n"))[2] == ("new", "多余")


@pytest.mark.parametrize("chapter", CHAPTERS, ids=name)
def test_nothing_in_a_learners_way(chapter: Path) -> None:
    code = "".join(cell.text for cell in cells(text_of(chapter)) if not cell.is_prose)
    assert not re.search(r"^\s*assert\b", code, re.MULTILINE)


@pytest.mark.parametrize("chapter", CHAPTERS, ids=name)
def test_exercises_and_changes(chapter: Path) -> None:
    """Two to five exercises whose answers a test computes, and five ways to change it."""
    found = answers("\n\n".join(cell.text for cell in prose(text_of(chapter))))
    assert 2 <= len(found) <= 5
    assert list(found) == list(range(1, len(found) + 1))
    tests = (Path(__file__).parent / "chapters" / f"test_{chapter.stem}.py").read_text("utf-8")
    for number in found:
        assert f"def test_exercise_{number}(" in tests
        assert f"answer(CHAPTER, {number})" in tests
    changes = tests.partition(": Changes = {\n")[2].partition("\n@pytest")[0]
    assert len(re.findall(r'^    "[^"]+": ', changes, re.MULTILINE)) >= 5


@pytest.mark.parametrize("chapter", CHAPTERS, ids=name)
def test_a_chapter_opens_with_what_to_expect_and_ends_with_a_summary(chapter: Path) -> None:
    english = [cell.text for cell in prose(text_of(chapter))]
    for texts_of, title, words, advanced in (
        (english, "Summary", ["Objective", "Before this", "Time", "Misconception"], "advanced"),
        (chinese(chapter), "小结", ["目标", "基础", "用时", "常见误解"], "进阶"),
    ):
        assert re.findall(r"^\* \*\*(.+?)\*\*[:：]", texts_of[0], re.MULTILINE) == words
        assert (advanced in texts_of[0]) == ("12" <= chapter.name[:2] <= "16")
        assert texts_of[-1].startswith(f"## {title}\n")
        assert 3 <= len(re.findall(r"^\* ", texts_of[-1], re.MULTILINE)) <= 5


@pytest.mark.parametrize("chapter", CHAPTERS, ids=name)
def test_the_chinese_says_what_the_english_says(chapter: Path) -> None:
    english = [cell.text for cell in prose(text_of(chapter))]
    assert stale(text_of(chapter), translation_of(chapter).read_text(encoding="utf-8")) == []
    for one, other in zip(english, chinese(chapter), strict=True):
        assert re.search(r"[\u4e00-\u9fff]", other), other
        for pattern in (NUMBER, CODE):
            assert Counter(pattern.findall(other)) == Counter(pattern.findall(one)), other[:60]
        assert answers(one).keys() == answers(other).keys()
