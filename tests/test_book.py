"""Every chapter of the book has the same structure, and its two editions correspond."""

import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from book import (
    CHANGES,
    CHAPTERS,
    FASTER,
    HIDDEN,
    LATER,
    OF_FIGURES,
    Chapter,
    answers,
    chinese,
    file_of,
    run,
)
from editions import (
    EXAMPLES,
    FIELD,
    IN_CHINESE,
    MARK,
    SOLUTIONS,
    Cell,
    cells,
    cells_for,
    edition,
    lesson,
    marked,
    prose,
    stale_headings,
    texts,
    texts_of_code,
    translate,
    translation_of,
    untranslated_texts,
)
from links import in_book

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


def test_script_is_split_into_cells() -> None:
    assert cells(SCRIPT) == [
        Cell("# 1. One\n\nTwo plus two.", True),
        Cell("print(2 + 2)\n", False),
        Cell("## 1.1 More", True),
    ]
    assert "\n".join(map(str, cells(SCRIPT))) == SCRIPT


def test_editions_share_code() -> None:
    both = translate(SCRIPT, CHINESE)
    assert both == (
        "# %% [markdown]\n# # 1. 一\n#\n# 二加二。\n\n# %%\nprint(2 + 2)\n\n"
        "# %% [markdown]\n# ## 1.1 更多\n"
    )
    with pytest.raises(ValueError, match="2 cells of prose in English, 1 in Chinese"):
        translate(SCRIPT, CHINESE.partition("<!-- new")[0])


def test_every_text_in_code_has_its_chinese() -> None:
    used = set()
    for chapter in (*CHAPTERS, *LATER):
        script = text_of(chapter)
        used.update(texts_of_code(script))
        assert untranslated_texts(script) == []
        compile(edition(chapter, "zh"), chapter, "exec")
    assert set(IN_CHINESE) <= used
    for english, translation in IN_CHINESE.items():
        if translation:
            assert english.count("\\n") == translation.count("\\n"), english
            assert len(FIELD.findall(english)) == len(FIELD.findall(translation)), english
            assert not re.search(r"[\u4e00-\u9fff][,.:;?!]", FIELD.sub("", translation)), english
            words = translation.replace("\\n", "")
            assert not re.search(r"[\u4e00-\u9fff][A-Za-z]|[A-Za-z][\u4e00-\u9fff]", words), english


def test_a_chapter_speaks_its_own_language(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATTNLAB_LANGUAGE", "zh")
    assert not re.search("[\u4e00-\u9fff]", run("10", {}).printed)
    for chapter in (*CHAPTERS, *LATER):  # in an f-string, a message is English unless !s is there
        assert not re.search(r"\{[\w.]*title\}", text_of(chapter)), chapter


def test_untranslated_strings_in_code_are_reported() -> None:
    assert untranslated_texts(SCRIPT) == []
    assert untranslated_texts(SCRIPT + '\n# %%\nprint("two words")  # and a comment\n') == [
        "two words",
        "and a comment",
    ]


def test_an_outdated_translation_is_reported() -> None:
    assert stale_headings(SCRIPT, CHINESE) == ["# 1. One", "## 1.1 More"]
    fresh = marked(SCRIPT, CHINESE)
    assert [text for _, text in texts(fresh)] == [text for _, text in texts(CHINESE)]
    assert stale_headings(SCRIPT, fresh) == []
    assert stale_headings(SCRIPT.replace("Two plus", "2 plus"), fresh) == ["# 1. One"]
    assert stale_headings(SCRIPT + "#\n# And more.\n", fresh) == ["## 1.1 More"]
    assert stale_headings(SCRIPT.replace("print(2 + 2)", "print(4)"), fresh) == []


@pytest.mark.parametrize(
    ("link", "in_script"),
    [
        ("03_one_head_by_hand.md#x", "03_one_head_by_hand.py#x"),
        ("../later/zh/mla.md", "later/mla.py"),
        ("../../zh/03_one_head_by_hand.md", "../03_one_head_by_hand.py"),
        ("../../attnlab/equations.py", "../attnlab/equations.py"),
        ("../book/solutions/chapter_04.py", "book/solutions/chapter_04.py"),
        ('README.md#a "playground.html#layer=1"', "playground.html#layer=1"),
        ("https://example.org/zh/a.md", "https://example.org/zh/a.md"),
    ],
)
def test_links_of_translations_lead_from_their_folder(link: str, in_script: str) -> None:
    translation = f"> Code.\n\n<!-- new -->\n[a]({link})\n"
    assert texts(translation) == [("new", f"[a]({in_script})")]
    again = marked(f"# %% [markdown]\n# [a]({in_script})\n", translation)
    assert MARK.sub("", again) == MARK.sub("", translation)


@pytest.mark.parametrize(
    ("language", "link", "expected"),
    [
        ("en", "[7.6](../07_heads_that_learned.py#a)", "[7.6](07_heads_that_learned.ipynb#a)"),
        ("zh", "[a](../zh/01_why_attention.md) [b](#c)", "[a](01_why_attention.ipynb) [b](#c)"),
        ("zh", "[a](pages/en/guide.md#b)", '<a href="../en/guide.html#b">a</a>'),
        (
            *("zh", "[`attnlab.Q`](../../attnlab/steps/graph.py)"),
            '<a href="../en/_modules/attnlab/steps/graph.html#Q"><code>Q</code></a>',
        ),
    ],
)
def test_links_become_pages_of_the_book(language: str, link: str, expected: str) -> None:
    assert in_book(link, EXAMPLES / "book", language) == expected


def test_untranslated_prose_is_not_marked_as_translated() -> None:
    half = CHINESE.partition("<!-- new")[0]
    assert stale_headings(SCRIPT, marked(SCRIPT, half)) == ["## 1.1 More"]
    assert texts(marked(SCRIPT, half))[1] == ("new", "## 1.1 More")
    assert texts(marked(SCRIPT, CHINESE + "<!-- new -->\n多余\n"))[2] == ("new", "多余")


@cache
def audience_cells(audience: str, language: str = "en") -> dict[str, list[Cell]]:
    """The cells of each chapter, as an audience has them."""
    return {chapter.name[:2]: cells_for(chapter, language, audience) for chapter in CHAPTERS}


def graded_cells(audience: str, language: str = "en") -> dict[str, Cell]:
    """The cells that nbgrader handles, by their ids."""
    every = [cell for some in audience_cells(audience, language).values() for cell in some]
    graded = [cell for cell in every if "nbgrader" in cell.metadata]
    by_id = {cell.metadata["nbgrader"]["grade_id"]: cell for cell in graded}
    assert len(by_id) == len(graded)
    return by_id


def test_learner_editions_have_no_answers_or_solutions() -> None:
    audiences = ("home", "learner", "teacher")
    for audience in audiences:
        for every in audience_cells(audience).values():
            text = "\n".join(cell.text for cell in every)
            assert ("<summary>Answer" in text) == (audience == "home")
            assert ("**Answer**" in text) == (audience == "teacher")
            assert "raise NotImplementedError" not in text or audience != "teacher"
            assert audience != "learner" or not re.search("<summary>Solution|BEGIN", text)
    ids = [graded_cells(audience).keys() for audience in audiences]
    assert ids[0] == ids[1] == ids[2]


@pytest.mark.parametrize("language", ["en", "zh"])
def test_nbgrader_gets_solutions_and_tests_of_each_task(language: str) -> None:
    teacher, tests = graded_cells("teacher", language), 0
    for grade_id, cell in teacher.items():
        about = cell.metadata["nbgrader"]
        is_test = grade_id.endswith("-check")
        assert about["schema_version"] == 3
        assert about["locked"] == is_test != about["solution"]
        assert about["grade"] == ("points" in about) == (is_test or cell.is_prose)
        if is_test:
            tests += 1
            assert teacher[grade_id.removesuffix("-check")].text.count("### BEGIN SOLUTION\n") == 1
            shown, hidden = cell.text.split("### BEGIN HIDDEN TESTS\n")
            assert "print(checked(" in shown
            assert f", {about['points']})  # partial credit" in hidden
    assert tests == sum(file.read_text().count("\ndef ") for file in SOLUTIONS.glob("*.py"))


WITH_TASKS = sorted(file.stem[-2:] for file in SOLUTIONS.glob("*.py"))


def hidden_tests(number: str) -> list[str]:
    return HIDDEN.findall(lesson(file_of(number), "en", "teacher"))


def points_of(tests: str, chapter: Chapter) -> tuple[float, int]:
    """The points that hidden tests give, as their last line shows, and those that they can give."""
    *setup, last, _ = tests.splitlines()
    exec("\n".join(setup), chapter)
    return eval(last, chapter), int(re.findall(r", (\d)\)  #", last)[0])


@pytest.mark.slow
@pytest.mark.parametrize("number", WITH_TASKS)
def test_solutions_get_all_points_and_the_answers_of_the_chapter_none(number: str) -> None:
    chapter = run(number, FASTER.get(number, {}), is_solved=True)
    assert "isn't written yet" not in chapter.printed
    for tests in hidden_tests(number):
        gained, points = points_of(tests, chapter)
        assert gained == points
        name, arguments = re.findall(r"\]\((\w+), hidden\[\S+\], (.+), \d\)  #", tests)[0]
        known = chapter[name](*eval(arguments, chapter))
        copied = Chapter({**chapter, name: lambda *_, known=known: known})  # getattr(head, ...)
        assert points_of(tests, copied)[0] == 0


@pytest.mark.parametrize(
    ("old", "new", "gained", "printed"),
    [
        ("np.exp(", "(np.exp)(", 2, "5 of 5 steps agree"),
        ("K.shape[1] ** 0.5", "K.shape[1]", 0.8, "    scores = raw_scores / Dk\n"),
        ('"scores": scores, ', "", 1.6, "4 of 4 steps agree"),
        ("weights @ V}", "V @ weights}", ValueError, "my_cross_attention stopped with ValueError:"),
        ("    return {", "    return 3, {", AttributeError, "must be a dict of arrays by"),
    ],
)
def test_mistakes_are_named_and_cost_the_points_of_their_steps(
    old: str, new: str, gained: float | type[Exception], printed: str
) -> None:
    chapter = run("10", {old: new}, is_solved=True)
    assert printed in chapter.printed
    (tests,) = hidden_tests("10")
    if isinstance(gained, type):
        with pytest.raises(gained):
            points_of(tests, chapter)
    else:
        assert points_of(tests, chapter) == (gained, 2)


@pytest.mark.parametrize("chapter", CHAPTERS, ids=name)
def test_exercises_and_changes(chapter: Path) -> None:
    """Two to five exercises whose answers a test computes, and five ways to change it."""
    actual = answers("\n\n".join(cell.text for cell in prose(text_of(chapter))))
    assert 2 <= len(actual) <= 5
    assert list(actual) == list(range(1, len(actual) + 1))
    tests = (Path(__file__).parent / "chapters" / f"test_{chapter.stem}.py").read_text("utf-8")
    for number in actual:  # the test takes the answer, and uses it
        _, test = tests.split(f"def test_exercise_{number}(")
        assert test.partition("\ndef ")[0].count("answer") >= 2
    assert len(CHANGES[chapter.name[:2]] | OF_FIGURES[chapter.name[:2]]) >= 5


@pytest.mark.parametrize("chapter", [*CHAPTERS, *LATER], ids=name)
def test_chinese_structure_matches_english(chapter: Path) -> None:
    english = [cell.text for cell in prose(text_of(chapter))]
    assert (
        stale_headings(text_of(chapter), translation_of(chapter).read_text(encoding="utf-8")) == []
    )
    for english_text, other in zip(english, chinese(chapter), strict=True):
        assert re.search(r"[\u4e00-\u9fff]", other), other
        for pattern in (NUMBER, CODE):
            assert Counter(pattern.findall(other)) == Counter(pattern.findall(english_text)), other[
                :60
            ]
        assert answers(english_text).keys() == answers(other).keys()
