"""The published walkthrough, on a constructed checkpoint and, if available, on GPT-2 itself."""

import re
import runpy
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from conftest import REFERENCE

from attnlab import GPT2, AttnlabError, figures
from attnlab.checking.figures import compare
from attnlab.walkthrough import PROMPT, reproduce, walk

TABLES = [
    *("token_ids", "symbols", "wte", "wpe", "embedding", "X", "W_Q", "W_K", "W_V"),
    *("Q", "K", "V", "scores", "masked_scores", "weights", "context"),
    *("shapes", "parameter_count"),
]


def test_every_published_figure(walkthrough_model: GPT2) -> None:
    verdict = reproduce(walkthrough_model)
    assert [table.name for table in verdict.tables] == TABLES
    assert [str(table) for table in verdict.tables if not table.agrees] == []
    assert verdict.agrees
    published = figures.load("walkthrough")
    for table in verdict.tables[2:-2]:
        assert table.figures == np.array(published[table.name], dtype=float).size
    assert "18 of 18 tables agree: reproduced" in str(verdict)


@pytest.mark.parametrize(
    ("table", "cell"),
    [("wte", (3, 1)), ("masked_scores", (9, 2)), ("masked_scores", (0, 1)), ("context", (8, 1))],
)
def test_altered_figures_are_reported(
    walkthrough_model: GPT2, monkeypatch: pytest.MonkeyPatch, table: str, cell: tuple[int, int]
) -> None:
    published = figures.load("walkthrough")
    row, column = cell
    figure = published[table][row][column] or 0.0  # None where masked
    published[table][row][column] = figure + 2 * 10 ** -published["decimals"][table]
    monkeypatch.setattr(figures, "load", lambda name: published)
    verdict = reproduce(walkthrough_model)
    assert [result.name for result in verdict.tables if not result.agrees] == [table]
    assert not verdict.agrees
    assert "17 of 18 tables agree: NOT reproduced" in str(verdict)


def test_straight_apostrophe(walkthrough_model: GPT2) -> None:
    verdict = reproduce(walkthrough_model, PROMPT.replace("’", "'"))
    assert not verdict.agrees
    assert verdict.tables == ()
    assert "U+0027" in verdict.reason
    assert "10 tokens instead of 12" in verdict.reason
    assert "Not compared with the published tables" in str(verdict)
    assert max(map(len, str(verdict).splitlines()[-3:])) <= 90


def test_other_prompts_and_models(walkthrough_model: GPT2, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "2 tokens" in reproduce(walkthrough_model, "Hello there").reason
    other = GPT2.from_pretrained(REFERENCE / "odd")
    with pytest.raises(AttnlabError, match="17 positions"):
        reproduce(other)
    assert not reproduce(other, "the").agrees
    published = figures.load("walkthrough")
    published["shapes"]["W_Q"] = [768, 65]
    monkeypatch.setattr(figures, "load", lambda name: published)
    message = "the model's W_Q has shape (768, 64); the published shape is (768, 65)"
    assert reproduce(walkthrough_model).reason == message


def test_steps_are_in_the_articles_order(walkthrough_model: GPT2) -> None:
    steps = list(walk(walkthrough_model))
    assert [step.name for step in steps] == [
        *("token_embedding", "position_embedding", "embedding", "X", "W_Q", "W_K", "W_V"),
        *("Q", "K", "V", "scores", "masked_scores", "weights", "context"),
    ]
    published = figures.load("walkthrough")
    readable = {"âĢ": "’ 1/2", "Ļ": "’ 2/2"}  # the two parts of an apostrophe's bytes
    labels = [readable.get(symbol, symbol) for symbol in published["symbols"]]
    for step in steps:
        text = str(step)
        assert f"{step.array.shape[0]} x {step.array.shape[1]}" in text
        assert step.heading in text
        if not step.name.startswith("W_"):
            assert all(label in text for label in labels)
    text = {step.name: str(step) for step in steps}
    for row in published["weights"]:
        assert "  ".join(f"{weight:.2f}" for weight in row[:4]) in text["weights"].replace(
            "   ", "  "
        )
    assert "-inf" in text["masked_scores"]
    assert "0.0129  -0.1104  -0.0317" in text["X"]


def test_walkthrough_of_any_head_and_model() -> None:
    model = GPT2.from_pretrained(REFERENCE / "odd")
    steps = {step.name: step for step in walk(model, "the hen", layer=2, head=4)}
    head = model.trace("the hen").head(2, 4)
    assert np.array_equal(steps["weights"].array, head.weights)
    assert np.array_equal(steps["W_V"].array, head.W_V)
    with pytest.raises(AttnlabError, match="no head 5"):
        walk(model, "the hen", head=5)  # raised by the call, not at the first step
    with pytest.raises(AttnlabError, match="no layer 99; layers are 0 to 2"):
        walk(model, "the hen", layer=99)


@pytest.mark.parametrize(
    ("computed", "recorded", "decimals", "agrees"),
    [
        ([0.12344], [0.1234], 4, True),
        ([0.12346], [0.1234], 4, False),
        ([-np.inf, 1.0], [None, 1.0], 2, True),
        ([-5.0, 1.0], [None, 1.0], 2, False),
        ([-90.0, 1.0], [None, 1.0], 2, True),  # its weight is exp(-91)
        ([np.nan], [0.0], 2, False),
        ([0.0], [None], 2, False),
        ([1.0, 1.0], [1.0], 2, False),
        ([3], [3], 0, True),
        ([4], [3], 0, False),
        ([-np.inf], [np.inf], 2, False),
    ],
)
def test_compare(computed: Any, recorded: Any, decimals: int, agrees: bool) -> None:
    assert compare("table", computed, recorded, decimals).agrees is agrees


def test_changed_input_is_noted() -> None:
    published = {"x": [3, 4], "text": "It’s", "y": [1.5, 2.0], "z": [3.0, 4.2], "n": 4}
    x = np.array([3.0, 4.0])
    assert figures.verdict(published, {"x": [x], "y": x / 2, "text": "It's"}, 1, z=x) == (
        "You changed the input: the published figures are for\n  x = [3, 4]\n  text = 'It’s'"
    )
    wrong: list[tuple[Any, dict[str, Any], dict[str, Any], str]] = [
        (x, {}, {"x": x}, "published must be a dict of arrays; got array"),
        (published, {"w": 1}, {"x": x}, "published are ['x', 'text', 'y', 'z', 'n']; got ['w']"),
        (published, {}, {"v": x}, "got ['v']"),
        (published, {}, {}, "got none"),
    ]
    for given, used, computed, message in wrong:
        with pytest.raises(AttnlabError, match=re.escape(message)):
            figures.verdict(given, used, 4, **computed)
    with pytest.raises(AttnlabError, match="'sonata'"):
        figures.load("sonata")


SCRIPT = Path(__file__).parent.parent / "examples" / "walkthrough.py"


def output_of_the_script(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    model: GPT2,
    *arguments: str,
) -> str:
    monkeypatch.setattr(GPT2, "default", lambda: model)
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), *arguments])
    runpy.run_path(str(SCRIPT))
    return capsys.readouterr().out


def test_script_compares_with_published_figures(
    walkthrough_model: GPT2, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("attnlab.pages.page.page", lambda _: mock.Mock())  # a large one
    text = " ".join(output_of_the_script(monkeypatch, capsys, walkthrough_model).split())
    published = figures.load("walkthrough")
    weights, symbols = np.array(published["weights"][11]), published["symbols"]
    first, second = weights.argsort()[::-1][:2]
    assert f"Ġis attends most to: {symbols[first]} {weights[first]:.0%}, {symbols[second]}" in text
    assert f"with {max(published['scores'][11]):.2f}" in text
    assert "66 of the 144 scores become -inf" in text
    assert "18 of 18 tables agree: reproduced" in text


def test_script_on_the_pocket_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its output about “it” equals the README's; no published figures, and at most 80 lines."""
    page = tmp_path / "page.html"
    arguments = ("The dog chased the ball, but it", "--layer", "1", "--head", "2")
    model = GPT2.from_pretrained("pocket")
    output = output_of_the_script(monkeypatch, capsys, model, *arguments, "--page", str(page))
    text = " ".join(output.split())
    assert "Ġit attends most to: Ġdog more than 99%," in text  # 0.997: 100% would be all
    assert "next token is ' rolled' (54%)" in text
    assert "agree" not in text
    named, *lines, written = output.splitlines()
    assert 40 < len(lines) < 80
    assert max(map(len, lines)) <= 90
    assert named.startswith(f"Writing {page}: ")
    assert str(page) in written
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_script_shows_the_head_of_the_pages_headline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The head with the largest effect × share of what it looks at, which nobody chose."""
    model, page = GPT2.from_pretrained("pocket"), str(tmp_path / "page.html")
    for text, named in (
        ("The dog chased the ball, but it", "8 tokens. Layer 1, head 0."),  # as README's picture
        ("Hello", "3 tokens. Layer 1, head 1."),
        ("a", "1 token. Layer"),
    ):
        output = output_of_the_script(monkeypatch, capsys, model, text, "--page", page)
        assert f"“{text}”: {named}" in output
        assert "It is the head that the page describes first" in output
    arguments = ("Hello", "--layer", "-1", "--page", page)
    chosen = output_of_the_script(monkeypatch, capsys, model, *arguments)
    assert "What comes before layer 1 adds to these vectors." in chosen
    assert "describes first" not in chosen


def test_script_in_chinese(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All of its words, by --lang or by the locale; what is left in Latin letters are names."""
    monkeypatch.setenv("ATTNLAB_LANGUAGE", "en")
    model = GPT2.from_pretrained("pocket")
    arguments = ("The dog chased the ball, but it", "--page", str(tmp_path / "page.html"))
    output = output_of_the_script(monkeypatch, capsys, model, *arguments, "--lang", "zh")
    assert "每个词元变成一个有 128 个数的向量" in output
    names = r"|".join([*arguments, "attention.html", "LayerNorm", "softmax", "input", r"\w*_\w*"])
    kept = {"embedding", "weights", "context", "scores", "scale", "True", "else", "inf", "rolled"}
    kept |= {"layer", "head"}  # of the options
    words = set(re.findall("[A-Za-z]{3,}", re.sub(names, "", output)))
    assert words - kept <= {*re.findall(r"\w+", arguments[0])}

    monkeypatch.delenv("ATTNLAB_LANGUAGE")
    monkeypatch.setenv("LC_ALL", "zh_CN.UTF-8")
    assert output_of_the_script(monkeypatch, capsys, model, *arguments) == output
