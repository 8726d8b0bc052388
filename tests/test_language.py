"""What views say in Chinese: whose language it is, that every label has it, and what stays."""

import ast
import locale
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import REFERENCE

import attnlab
from attnlab import GPT2, causal_mask
from attnlab.errors import InvalidValueError
from attnlab.views import language
from attnlab.views.language import TITLES, WORDS, language_of, say, titled
from attnlab.views.shown import TOKEN_AXES

PACKAGE = Path(attnlab.__file__).parent
VIEWS = PACKAGE / "views"

PLACE = re.compile(r"\{(\w+)\}")


@pytest.fixture(scope="module")
def odd() -> GPT2:
    return GPT2.from_pretrained(REFERENCE / "odd")


@pytest.mark.parametrize(
    ("variables", "wanted"),
    [
        ({}, "en"),
        ({"LANG": "C.UTF-8"}, "en"),
        ({"LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LANG": "zh_TW"}, "zh"),
        ({"LANG": "de_DE.UTF-8"}, "en"),
        ({"LANG": "zh_CN.UTF-8", "LC_ALL": "en_US.UTF-8"}, "en"),
        ({"LANG": "en_US.UTF-8", "LC_MESSAGES": "zh_CN.UTF-8"}, "zh"),
        ({"LANG": "zh_CN.UTF-8", "LC_ALL": ""}, "zh"),
        ({"LANG": "zh_CN.UTF-8", "ATTNLAB_LANGUAGE": "en"}, "en"),
        ({"LANG": "C", "ATTNLAB_LANGUAGE": "zh"}, "zh"),
        ({"LANG": "C", "ATTNLAB_LANGUAGE": "zh-CN"}, "zh"),
        ({"ATTNLAB_LANGUAGE": "klingon"}, "en"),
    ],
    ids=str,
)
def test_the_readers_language(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], wanted: str
) -> None:
    for name in language.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert language_of() == wanted
    assert language_of("zh") == "zh"
    assert language_of("en") == "en"


def test_the_locale_where_no_variable_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in language.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(locale, "getlocale", lambda: ("Chinese (Simplified)_China", "936"))
    assert language_of() == "zh"

    def unknown() -> None:
        raise ValueError("unknown locale: UTF-8")

    monkeypatch.setattr(locale, "getlocale", unknown)
    assert language_of() == "en"


@pytest.mark.parametrize("given", ["de", "zh_CN", "", 3, ["zh"], True])
def test_other_languages(odd: GPT2, given: Any) -> None:
    with pytest.raises(InvalidValueError, match="language must be 'en' or 'zh'; given "):
        odd.trace("the hen").to_html(language=given)


# ---- every label, and no other ------------------------------------------------------------------


def said_in_python(source: str) -> Iterator[str]:
    """The texts of all calls of `say`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and node.args:
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if name == "say" and isinstance(node.args[0], ast.Constant):
                yield str(node.args[0].value)


def said_in_javascript(source: str) -> list[str]:
    return [ast.literal_eval(text) for text in re.findall(r'\bsay(?:Parts)?\(\s*("[^"]*")', source)]


def test_every_label_has_its_chinese_and_none_is_too_many() -> None:
    said = {*TOKEN_AXES.values()}
    for file in (*VIEWS.glob("*.py"), PACKAGE / "pictures.py"):
        said.update(said_in_python(file.read_text(encoding="utf-8")))
    for file in VIEWS.glob("*.js"):
        source = file.read_text(encoding="utf-8")
        found = said_in_javascript(source)
        assert len(found) == len(re.findall(r"\bsay(?:Parts)?\(", source)), file.name
        said.update(found)
    said.update(re.findall(r"\[\[(.+?)\]\]", (VIEWS / "page.html").read_text(encoding="utf-8")))
    assert said == WORDS.keys()


@pytest.mark.parametrize("words", [WORDS, TITLES], ids=["words", "titles"])
def test_chinese_has_the_same_places_and_its_own_signs(words: dict[str, str]) -> None:
    for english, chinese in words.items():
        assert Counter(PLACE.findall(chinese)) == Counter(PLACE.findall(english)), english
        assert re.search(r"[\u4e00-\u9fff（，：；]", chinese), english
        around = re.sub(r"<[^>]*>|\{\w+\}|\w+\(.*?\)", "", chinese)
        assert not re.search(r"[\u4e00-\u9fff][,.:;?!]", around), english  # full width there
        assert not re.search(r"[\u4e00-\u9fff][A-Za-z]|[A-Za-z][\u4e00-\u9fff]", around), english


def test_values_are_put_in_place() -> None:
    assert say("query {i}", "zh", i=3) == "查询 3"
    assert say("query {i}", "en", i=3) == "query 3"
    assert say("{symbol}, found in the cache", "zh", symbol="{i}") == "{i}，来自缓存"
    assert say("Dk", "zh") == "Dk"
    assert say("{no label}", "zh") == "{no label}"


# ---- the page, without a browser ---------------------------------------------------------------


def test_a_page_in_each_language(odd: GPT2, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = odd.trace("the hen")
    english = trace.to_html()
    assert '<html lang="en">' in english
    assert not re.search(r"[\u4e00-\u9fff]", english)
    chinese = trace.to_html(language="zh")
    assert '<html lang="zh-Hans">' in chinese
    assert ">注意力头</h2>" in chinese
    for page in (english, chinese):
        assert "[[" not in re.sub(r"<script.*?</script>", "", page, flags=re.S)
    monkeypatch.setenv("ATTNLAB_LANGUAGE", "zh")
    assert trace.to_html() == chinese
    assert trace.to_html(language="en") == english
    layer = re.compile(r'id="trace-0-layer-\d">([^<]*)<')
    assert layer.findall(chinese) == layer.findall(english)  # numbers never change


# ---- what results call themselves ---------------------------------------------------------------


def titles(odd: GPT2) -> dict[str, str]:
    """Titles of results, with what they are in Chinese."""
    X = np.eye(3)
    trace = odd.trace("the hen in")
    edited = trace.edited({"blocks.1.attention.heads.2.context": 0})
    token, other = trace.tokens[-1].symbol, trace.tokens[0].symbol
    one = trace.gradients(trace.tokens[-1].id)
    two = trace.gradients(trace.tokens[-1].id, trace.tokens[0].id)
    logit = f"位置 5 上 {token} 的 logit"
    minus = f"位置 5 上 {token} 的 logit 减去 {other} 的 logit"
    return {
        attnlab.attention(X, X, X).title: "注意力",
        attnlab.self_attention(X, X, X, X).title: "自注意力",
        attnlab.cross_attention(X, X, X, X, X, mask=causal_mask(3)).title: "交叉注意力",
        attnlab.multi_head_attention(X, X, X, X, X, n_head=1).title: "多头注意力",
        trace.title: "6 个词元经过 3 个块，每块 5 个头",
        trace.blocks[1].title: "第 1 块",
        trace.blocks[1].mlp.title: "第 1 层，MLP",
        trace.blocks[1].attention.title: "第 1 层，注意力",
        trace.head(1, 2).title: "第 1 层，注意力，头 2",
        edited.head(1, 2).title: (
            "第 1 层，注意力，头 2，已修改：blocks.1.attention.heads.2.context"
        ),
        one.blocks[0].title: f"第 0 块，梯度：{logit}",
        two.blocks[0].title: f"第 0 块，梯度：{minus}",
        f"{edited.title}, from a file": (
            "6 个词元经过 3 个块，每块 5 个头，已修改：blocks.1.attention.heads.2.context，来自文件"
        ),
    }


def test_titles(odd: GPT2) -> None:
    for english, chinese in titles(odd).items():
        assert titled(english, "zh") == chinese
        assert titled(english, "en") == english
    assert titled("of my own", "zh") == "of my own"


def test_no_title_is_too_many(odd: GPT2, monkeypatch: pytest.MonkeyPatch) -> None:
    given = titles(odd)
    for english in TITLES:
        fewer = {key: chinese for key, chinese in TITLES.items() if key != english}
        monkeypatch.setattr(language, "TITLES", fewer)
        language._patterns.cache_clear()
        assert any(titled(title, "zh") != chinese for title, chinese in given.items()), english
    monkeypatch.undo()
    language._patterns.cache_clear()
