"""Chinese views: how the language is chosen, that every label is translated, and what isn't."""

import copy
import gettext
import json
import locale
import pickle
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chinese import in_chinese
from conftest import needs

import attnlab
from attnlab import GPT2
from attnlab.analysis.base import Analysis
from attnlab.checking import mutants, relations, search, verdict
from attnlab.checking.orders import ORDERS
from attnlab.cli.arguments import parser
from attnlab.cli.command import main
from attnlab.corpus.measures import MEASURES
from attnlab.errors import InvalidValueError
from attnlab.model.trace import Trace
from attnlab.pages.saved import FRAME_TEXT
from attnlab.steps.labels import TOKEN_AXES
from attnlab.support import language
from attnlab.support.language import language_of, using_language
from attnlab.support.messages import Message, counted, say, translations
from attnlab.support.tables import display_width
from attnlab.views.explaining.derivations import ACTIVATIONS, computing, derivation
from attnlab.views.labelled_step import SHOW_ALL
from attnlab.views.purposes import PURPOSES

PACKAGE = Path(attnlab.__file__).parent
PAGES = PACKAGE / "pages"

PLACE = re.compile(r"\{(\w+)\}")


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, "en"),
        ({"LANG": "C.UTF-8"}, "en"),
        ({"LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LANG": "de_DE.UTF-8"}, "en"),
        ({"LANG": "zh_CN.UTF-8", "LC_ALL": "en_US.UTF-8"}, "en"),
        ({"LANG": "en_US.UTF-8", "LC_MESSAGES": "zh_CN.UTF-8"}, "zh"),
        ({"LC_MESSAGES": "en_US.UTF-8", "LC_ALL": "zh_CN.UTF-8"}, "zh"),
        ({"LANG": "zh_CN.UTF-8", "LC_ALL": ""}, "zh"),
        ({"LANG": "zh_CN.UTF-8", "ATTNLAB_LANGUAGE": "en"}, "en"),
        ({"LANG": "C", "ATTNLAB_LANGUAGE": "zh-CN"}, "zh"),
        ({"ATTNLAB_LANGUAGE": "klingon"}, "en"),
    ],
    ids=str,
)
def test_language_of_the_reader(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], expected: str
) -> None:
    for name in language.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert language_of() == expected
    assert language_of("zh") == "zh"
    assert language_of("en") == "en"


def test_the_locale_without_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in language.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(locale, "getlocale", lambda: ("Chinese (Simplified)_China", "936"))
    assert language_of() == "zh"

    def unknown() -> None:
        raise ValueError("unknown locale: UTF-8")

    monkeypatch.setattr(locale, "getlocale", unknown)
    assert language_of() == "en"


@pytest.mark.parametrize("language", ["de", "zh_CN", "", 3, ["zh"], True])
def test_other_languages(odd: GPT2, language: Any) -> None:
    with pytest.raises(InvalidValueError, match="language must be one of en, zh; got "):
        attnlab.page(odd.trace("the hen"), language=language)


# ---- every label is translated, and every translation used ---------------------------------------


STRING = r'"(?:[^"\\]|\\.)*"'
# What is shown: a call's first text, a template, and all of `header`, which names columns.
SHOWING = re.compile(
    rf"\b(?:say|sayParts|Refusal|Message|PageError|Axis|named_axis|numbered_axis|heads_axis)"
    rf"\(\s*({STRING})|\btemplate = \(?\s*({STRING})|\bheader\(\s*((?:{STRING},?\s*)+)"
)


def source_of(file: Path) -> str:
    """A file's text, with adjacent strings as one."""
    text = re.sub(r"""["']\s*\n\s*f?["']""", "", file.read_text(encoding="utf-8"))
    return text.replace("{{", "{").replace("}}", "}")


def frame_texts() -> list[str]:
    """The texts of the page's frame."""
    return FRAME_TEXT.findall((PAGES / "page.html").read_text(encoding="utf-8"))


def has_words(text: str) -> bool:
    """Whether a text has words to translate, not only a formula."""
    around = PLACE.sub("", text)
    return bool(re.search("[A-Za-z]{2}", around)) and around not in FORMULAS


# Words of English in a formula.
ENGLISH = re.compile(
    r"\b(the|of|with|without|over|every|each|likewise|no|from|where|may|into|side)\b"
)

FORMULAS = {
    *("exp", "logit", "-inf"),
    *(" = x · share", " = share · x", " = normalised · gain + bias", "activated = "),
}


def collected() -> Iterator[str]:
    """The labels that stand in tables of the package, not in a call that shows them."""
    for equation in computing(Trace):
        for activation in ACTIVATIONS:
            lines = derivation(equation, {"activation": activation, "divide_by_sqrt_d": True})
            yield from (text for line in lines for text in (line.heading, line.note) if text)
    yield from (*PURPOSES.values(), *MEASURES.values(), *TOKEN_AXES.values())
    yield from (SHOW_ALL,)
    yield from (*ORDERS, *relations.GROUPS)
    yield from (*relations.HINTS.values(), *filter(None, mutants.RULES))
    names = (
        *("REPLACED", "MISSING", "EXTRA", "EXCHANGED", "AXIS", "OTHERS"),
        *("SUM", "LOAD_FLOAT32", "OF_BLOCKS", "OTHER_PLACE", "IN_PLACE", "DROPOUT"),
        *("NOT_ALL", "TANH", "LIKEWISE", "HALF"),
    )
    for module in (mutants, relations, search, verdict):
        yield from (vars(module)[name] for name in names if name in vars(module))
    for kind in Analysis.__subclasses__():
        if kind.__module__.startswith("attnlab."):
            yield from (kind.meaning, kind.note)


def test_translations_are_complete_and_all_used() -> None:
    files = [*PACKAGE.rglob("*.py"), *PAGES.rglob("*.js")]
    source = "".join(map(source_of, (*files, PACKAGE.parent / "examples" / "walkthrough.py")))
    shown = "".join("".join(texts) for texts in SHOWING.findall(source))
    labels = {json.loads(text) for text in re.findall(STRING, shown)}
    labels |= {*collected(), *frame_texts()}
    assert len(labels) > 500
    assert {text for text in labels if has_words(text)} <= translations().keys()
    source = source.replace('\\"', '"').replace("'", '"')
    for text in translations().keys() - labels:
        written = text.replace("\n", "\\n").replace("'", '"')
        assert f'"{written}"' in source, text


def test_formulas_in_words_have_their_chinese(odd: GPT2) -> None:
    trace = odd.trace("the hen")
    attention, mlp = trace.blocks[0].attention, trace.blocks[0].mlp
    for part in (trace, trace.blocks[0], attention, attention.heads[0], mlp):
        for name in part._steps_shown():
            assert not ENGLISH.search(in_chinese(part._heading_of(name))), name


def test_translations_have_the_same_placeholders_and_chinese_punctuation() -> None:
    for english, chinese in translations().items():
        names = Counter(PLACE.findall(chinese)), Counter(PLACE.findall(english))
        assert names[0] - names[1] == Counter(), english
        assert names[1] - names[0] <= Counter(["kinds"]), english  # Chinese has no plurals
        if re.search("[a-z]", PLACE.sub("", english)):
            assert re.search(r"[\u4e00-\u9fff（，：；。×]", chinese), english
        around = re.sub(r"<[^>]*>|\{\w+\}|\w+\(.*?\)", "", chinese)
        assert not re.search(r"[\u4e00-\u9fff][,.:;?!]", around), english  # full width there
        assert not re.search(r"[\u4e00-\u9fff][A-Za-z]|[A-Za-z][\u4e00-\u9fff]", around), english


def test_po_file_reads_like_gettext(tmp_path: Path) -> None:
    msgfmt = shutil.which("msgfmt")
    if msgfmt is None:
        pytest.skip("gettext is not installed")
    result = tmp_path / "zh.mo"
    subprocess.run(
        [msgfmt, "-c", "-o", result, PACKAGE / "support" / "zh.po"], check=True, capture_output=True
    )
    with result.open("rb") as file:
        catalogue = gettext.GNUTranslations(file)
    for english, chinese in translations().items():
        assert catalogue.gettext(english) == chinese


def test_one_of_something_has_no_plural(odd: GPT2) -> None:
    assert [str(counted(n, "token")) for n in (1, "2 x 1")] == ["1 token", "2 x 1 tokens"]
    assert odd.trace("a").title.startswith("Trace of 1 token through 3 blocks of 5 heads")
    assert in_chinese(odd.trace("a").title).startswith("1 个词元经过 3 个块，每块 5 个头")


def test_a_message_repr_has_its_template_and_values() -> None:
    head = Message("{title}, head {head}", title=Message("Layer {layer}, MLP", layer=3), head="{x}")
    assert head == "Layer 3, MLP, head {x}"
    assert in_chinese(head) == "第 3 层，MLP，{x} 号头"
    for again in (copy.deepcopy(head), pickle.loads(pickle.dumps(head))):
        assert again == head
        assert in_chinese(again) == in_chinese(head)
    assert in_chinese("query {i}", i=3) == "查询 3"
    assert say("query {i}", i=3) == "query 3"
    assert in_chinese("head {layer}.{head}", layer="{i}", head=2) == "头 {i}.2"
    assert in_chinese("Dk") == "Dk"
    assert in_chinese("{no label}") == "{no label}"


def test_a_page_in_each_language(odd: GPT2, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = odd.trace("the hen")
    english = attnlab.page(trace).html
    assert '<html lang="en">' in english
    shown = re.sub(r"<script.*?</script>|<style>.*?</style>", "", english, flags=re.S)
    assert not re.search(r"[\u4e00-\u9fff]", shown)
    chinese = attnlab.page(trace, language="zh").html
    assert '<html lang="zh-Hans">' in chinese
    assert ">所有层</summary>" in chinese
    for page in (english, chinese):
        assert "[[" not in re.sub(r"<script.*?</script>", "", page, flags=re.S)
    monkeypatch.setenv("ATTNLAB_LANGUAGE", "zh")
    assert attnlab.page(trace).html == chinese
    assert attnlab.page(trace, language="en").html == english
    packs = re.compile(r'id="trace-0-([\w.]+)">([^<]*)<')
    assert packs.findall(chinese) == packs.findall(english) != []  # numbers never change


def test_a_page_carries_the_words_of_both_languages(odd: GPT2) -> None:
    """Those that it says: its frame, its scripts, its steps; not those of tables and commands."""
    words, description = (
        json.loads(
            re.findall(f'id="{name}">(.*?)</script>', attnlab.page(odd.trace("the hen")).html)[0]
        )
        for name in ("words", "description")
    )
    said = {*frame_texts(), "Remove the blank"}
    steps = [*description["steps"].values(), *description["traces"][0]["pass"]["steps"].values()]
    said |= {step["purpose"] for step in steps}
    assert said <= words.keys()
    assert words == {text: translations()[text] for text in words}
    assert "print the most probable next tokens" not in words
    assert len(json.dumps(words, ensure_ascii=False).encode()) < 40_000


def test_texts_of_the_frame_can_be_told_apart() -> None:
    """The page finds their English by their Chinese."""
    chinese = [in_chinese(text) for text in {*frame_texts()}]
    assert len({*chinese}) == len(chinese)


def test_an_atlas_describes_its_model_in_english(odd: GPT2) -> None:
    with using_language("zh"):
        atlas = attnlab.atlas(odd, ["the hen in"], ["first"], progress=False)
    assert atlas.model.startswith("GPT2: 3 layers of 5 heads")


# ---- pictures -----------------------------------------------------------------------------------


@pytest.fixture
def with_any_font(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend that a Chinese font is installed."""
    needs("matplotlib", "plot")
    from attnlab.views import plot

    monkeypatch.setattr(plot, "fonts_for", lambda _: (["DejaVu Sans"], frozenset()))


def labels_of(picture: Any) -> tuple[str, str, str]:
    ax = picture.axes
    return ax.get_xlabel(), ax.get_ylabel(), ax.get_title(loc="left")


@pytest.mark.usefixtures("with_any_font")
def test_plots_in_chinese(odd: GPT2, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = odd.trace("the hen in")
    head = trace.head(1, 2)
    english = ("key", "query", "Layer 1, attention, head 2\nweights = softmax(masked_scores)")
    chinese = ("键", "查询", "第 1 层，注意力，2 号头\nweights = softmax(masked_scores)")
    picture = head.plot(language="zh")
    assert labels_of(picture) == chinese
    assert picture.alt.startswith(
        "热力图（第 1 层，注意力，2 号头，weights = softmax(masked_scores)）：6 x 6"
    )
    assert (picture.axes.images[0].get_array() == head.plot().axes.images[0].get_array()).all()
    assert labels_of(head.plot()) == english
    monkeypatch.setenv("ATTNLAB_LANGUAGE", "zh")
    assert labels_of(head.plot()) == chinese
    assert labels_of(head.plot(language="en")) == english
    with pytest.raises(InvalidValueError, match="language must be one of en, zh"):
        head.plot(language="de")


def test_english_where_no_font_has_chinese(odd: GPT2, monkeypatch: pytest.MonkeyPatch) -> None:
    needs("matplotlib", "plot")
    from attnlab.views import plot

    monkeypatch.setattr(plot, "_known_fonts", list)
    assert plot.fonts_for(frozenset("key\n"))[1] == frozenset()  # a line break needs no font
    across, down, title = labels_of(odd.trace("the hen").head(0, 0).plot(language="zh"))
    assert (across, down) == ("key", "query")
    note = "labels are in English; a font with Chinese is fonts-noto-cjk (apt-get install"
    assert note in title.replace("\n", " ")
    assert "fonts" not in labels_of(odd.trace("the hen").head(0, 0).plot())[2]
    from attnlab import pictures

    monkeypatch.setenv("ATTNLAB_LANGUAGE", "zh")
    assert labels_of(pictures.curves({"a": [1, np.nan]}))[2].startswith("not drawn: 1")


# ---- notebooks ----------------------------------------------------------------------------------


def test_errors_are_in_english(odd: GPT2, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that they can be searched for."""
    from attnlab.checking import checked

    monkeypatch.setenv("ATTNLAB_LANGUAGE", "zh")
    trace, english = odd.trace("the hen"), "there is no layer 7; layers are 0 to 2"
    with pytest.raises(attnlab.errors.OutOfRangeError) as caught:
        trace.head(7, 0)
    assert str(caught.value) == english
    assert str(attnlab.AttnlabError(trace.title)).startswith("Trace of 4 tokens")
    assert checked(trace, lambda: trace.head(7, 0)) == english
    with pytest.raises(InvalidValueError, match="Layer 0, attention, head 0 has no step"):
        trace.head(0, 0).explain(step="nothing")


def test_the_commands_help_in_chinese(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ATTNLAB_LANGUAGE", "zh")
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("用法：attnlab")
    for text in ("位置参数", "选项", "显示帮助并退出", "把模型下载到 hub 的缓存"):
        assert text in shown
    root = parser()
    (commands,) = (action.choices for action in root._actions if isinstance(action.choices, dict))
    for command in commands.values():
        for option in command._actions:
            text = command._get_formatter()._expand_help(option)
            assert re.search(r"[\u4e00-\u9fff]", text), text
    lines = [line for action in commands.values() for line in action.format_help().splitlines()]
    assert max(map(display_width, lines)) <= 80


def test_the_option_lang(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It stands before or after the command's name, and wins over the variables."""
    for variable, chosen, usage in (("zh", "en", "usage: "), ("en", "zh", "用法：")):
        monkeypatch.setenv("ATTNLAB_LANGUAGE", variable)
        for arguments in (["--lang", chosen, "html"], ["html", f"--lang={chosen}"]):
            assert main([*arguments, "--help"]) == 0
            assert capsys.readouterr().out.startswith(f"{usage}attnlab html")
    assert main(["html", "--lang", "de"]) == 2
    assert "'de'" in capsys.readouterr().err
    assert main(["html", "--lang"]) == 2
