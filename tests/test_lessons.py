"""The lessons, done click by click: what is pressed lies in view, and shows what they say."""

import math
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import Watched
from pages import ask, drawn, idle, settled
from pytorch import ROOT

import attnlab
from attnlab import GPT2

sys.path.append(str(ROOT / "examples" / "pocket"))
from grammar import EVENTS, SOUNDS

PAGES = Path(__file__).parent.parent / "examples/book/pages"
ROW = re.compile(r"^\| ([^|-][^|]*) \| ([^|]*)\|$", re.MULTILINE)

# What a row says is done: a page is opened, a text typed, a head, a word or a control pressed.
DEED = re.compile(
    r"`(?P<file>\w+)\.html`|(?:type|输入)\s*“(?P<typed>.+?)”|(?:word|单词)\s*“(?P<word>\w+)”|"
    r"(?P<head>\d\.\d)|(?P<menu>⋯)|\*(?P<control>.+?)\*"
)

# Once in each language: on a projector, and on a phone.
OPENED = [
    ("en", {"width": 1366, "height": 768}, False),
    ("zh", {"width": 390, "height": 844}, True),
]


def steps(language: str) -> list[tuple[str, str]]:
    """The rows of the lessons' tables: what is done, and what the page then shows."""
    text = (PAGES / language / "teaching.md").read_text(encoding="utf-8")
    return [row for row in ROW.findall(text) if DEED.search(row[0])]


def parts(text: str) -> list[str]:
    """Words and numbers, without the punctuation between them."""
    return re.findall(r"[A-Za-z]+|[-−]?\d[\d.]*|[%→<]", text.replace("−", "-"))


class Lesson:
    """An open page, in which the rows of a lesson are done one after the other."""

    def __init__(self, watched: Watched, files: Path, language: str, size: Any, has_touch: bool):
        self.watched, self.files, self.language = watched, files, language
        self.settings = {"viewport": size, "has_touch": has_touch}
        self.size, self.has_touch = size, has_touch
        self.page: Any = None

    def do(self, deeds: str) -> None:
        for match in DEED.finditer(deeds):
            assert match.lastgroup is not None
            getattr(self, match.lastgroup)(match[match.lastgroup])
            idle(self.page)
            settled(self.page)

    def file(self, name: str) -> None:
        file = self.files / f"{name}.html"
        attnlab.playground(GPT2.from_pretrained(name), language=self.language).save(file)
        self.page = self.watched.open(f"{file.as_uri()}#depth=look", **self.settings)

    def typed(self, text: str) -> None:
        ask(self.page, f"{text} " if self.has_touch else text)  # a phone's keyboard adds a blank
        if self.has_touch:
            self.press(settled(self.page).locator("#notice button"))

    def word(self, text: str) -> None:
        word = self.page.locator(
            ".sentence .stage-word", has_text=re.compile(rf"^\s*{text}(?![a-z])")
        )
        box = self.seen(word)
        middle = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        (self.page.touchscreen.tap if self.has_touch else self.page.mouse.click)(*middle)

    def head(self, name: str) -> None:
        n = self.page.evaluate(
            "(name) => heads.buttons.findIndex((x) => `${x.layer}.${x.head}` === name)", name
        )
        self.press(self.page.locator(".head-drawing").nth(n))

    def menu(self, _: str) -> None:
        self.press(self.page.locator("#menu summary"))

    def control(self, words: str) -> None:
        exact = re.compile(r"^\s*" + r"\s".join(map(re.escape, words.split())) + r"\s*$")
        controls = self.page.locator("button, summary, label").filter(has_text=exact, visible=True)
        self.press(controls.first)

    def press(self, target: Any) -> None:
        """Press what lies in view; what still is there afterwards has not moved."""
        if not self.has_touch:
            target.hover()  # what was pointed at before isn't any more
            drawn(self.page)
        before = self.seen(target)
        (target.tap if self.has_touch else target.click)()
        settled(self.page)
        if target.count() == 1 and target.is_visible():
            after, slack = target.bounding_box(), 40 if self.has_touch else 2
            assert [after[k] for k in "xy"] == pytest.approx([before[k] for k in "xy"], abs=slack)

    def seen(self, target: Any) -> Any:
        """The box of an element that a reader sees without scrolling, on a phone by scrolling."""
        assert target.count() == 1
        if self.has_touch:
            target.scroll_into_view_if_needed()
        box = target.bounding_box()
        for start, length, room in (("x", "width", "width"), ("y", "height", "height")):
            assert box[start] >= 0
            assert box[start] + box[length] <= self.size[room]
        return box

    def shows(self, fragment: str) -> bool:
        """Whether words and their numbers stand together, in view."""
        wanted = parts(fragment)
        for element in self.page.locator(".next-words li, .stage-word, #softmax-row tr").all():
            shown = parts(element.inner_text())
            if any(shown[n : n + len(wanted)] == wanted for n in range(len(shown))):
                self.seen(element)
                return True
        return False


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_worksheets_words_and_row_are_the_models(language: str, pocket: GPT2) -> None:
    text = (PAGES / language / "worksheet.md").read_text(encoding="utf-8")
    lists = " ".join(line for line in text.splitlines() if "·" in line)
    listed = re.findall(r"([a-z]+)(?: [\u4e00-\u9fff]+)? ([a-z]+)(?= [·|])", lists)
    assert dict(listed).items() <= {**SOUNDS, **EVENTS}.items()
    assert len(listed) == 16
    scores = pocket.trace("The hen chased the lamp, but it").head(1, 1).scores[2, :3]
    powers = [round(math.exp(score - max(scores)), 2) for score in scores]
    rows = [parts(" ".join(line.split("|")[2:-1])) for line in text.splitlines() if "|" in line]
    for score, power in zip(scores, powers, strict=True):
        row = f"{score:.2f} {score - max(scores):.2f} {power:.2f} {100 * power / sum(powers):.0f} %"
        assert parts(row) in rows


def test_both_languages_have_the_same_steps() -> None:
    english, chinese = map(steps, ("en", "zh"))
    for (deed, shown), (other, other_shown) in zip(english, chinese, strict=True):
        kinds = [[match.lastgroup for match in DEED.finditer(text)] for text in (deed, other)]
        assert kinds[0] == kinds[1]
        assert parts(shown) == parts(other_shown)


@pytest.mark.slow
@pytest.mark.parametrize(("language", "size", "has_touch"), OPENED, ids=["projector", "phone"])
def test_lessons_click_by_click(
    language: str, size: Any, has_touch: bool, watched: Watched, tmp_path: Path
) -> None:
    lesson = Lesson(watched, tmp_path, language, size, has_touch)
    for deeds, shown in steps(language):
        lesson.do(deeds)
        for fragment in filter(parts, re.split("[;；]", shown)):
            assert lesson.shows(fragment), (deeds, fragment)
    assert watched.said == []
