"""Chinese GPT-2s, which have BERT's tokenizer: their files, tokens, example texts and pages."""

import json
import pickle
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chinese import TEXTS, write_checkpoint
from conftest import REFERENCE, Watched, needs
from pages import ask, settled, until

import attnlab
from attnlab import GPT2
from attnlab.pages.saved import EXAMPLES, examples_of, first_text, token_of
from attnlab.support.language import using_language

needs("tokenizers", "tokenizers")

TEXT = "今天天气很好，我们一起去"

# Texts on which an approximation of BERT's tokenizer would differ.
HOSTILE = (
    "",
    "## ##ed [CLS] [UNK]x [unused1]",
    "it" * 50 + " " + "it" * 51,
    "İSTANBUL ΑΣ ǅ ß ﬁ Å a\u0301 が\u3099 e\u0301\u0327",
    "a\u2028b\u0085c\x1cd\ufeffe\u00adf\u200dg\ufffdh\0i\x7fj\x0bk\ue000l\u0378m",
    "$5+3=8 ^_^ `x` ~ |a| <b> ©® €5 ¿que? ٣ Ⅷ ½ \u3007",
    "𠀀𪜀\U0002b820𫠠\U0002b920\U0002ceb0豈丽㐀⺀々〆ㄅｶ",
    "它12月ed played",
)


@pytest.fixture(scope="module")
def chinese(tmp_path_factory: pytest.TempPathFactory) -> GPT2:
    return GPT2.from_pretrained(write_checkpoint(tmp_path_factory.mktemp("chinese")))


@pytest.mark.parametrize("lower", [False, True])
def test_tokens_are_berts(tmp_path: Path, lower: bool) -> None:
    tokenizer = GPT2.from_pretrained(write_checkpoint(tmp_path, lower)).tokenizer
    expected = json.loads((REFERENCE / "chinese.json").read_text())[
        "lower" if lower else "as written"
    ]
    assert [tokenizer.encode(text) for text in TEXTS] == expected
    assert [tokenizer.encode_prompt(text) for text in TEXTS] == [ids[:-1] for ids in expected]


@pytest.mark.parametrize("lower", [False, True])
def test_a_pages_tokens_are_the_librarys(tmp_path: Path, pure: Any, lower: bool) -> None:
    tokenizer = GPT2.from_pretrained(write_checkpoint(tmp_path, lower)).tokenizer
    pure.evaluate("(data) => { globalThis.made = tokenizerOf(data); }", tokenizer.as_data())
    for text in (*TEXTS, *HOSTILE):
        expected = tokenizer.prompt_tokens(text)
        shown = pure.evaluate("(text) => made.tokens(made.encode(text), text)", text)
        for token, one in zip(expected, shown, strict=True):
            # The page names unknown words as the tokenizer cleaned them.
            unread = one.get("unread", "") if lower or text in HOSTILE else token.unread
            assert one == {**token_of(replace(token, unread=unread)), "part_of": ""}, text
        ids = expected.ids.tolist()
        assert pure.evaluate("(ids) => made.textOf(ids)", ids) == tokenizer.text_of(expected)


def test_a_chinese_checkpoint_opens(chinese: GPT2) -> None:
    trace = chinese.trace(TEXT)
    assert trace.tokens.symbols == ("[CLS]", *TEXT)  # without [SEP], which ends a text
    assert trace.tokens.readable == ("[CLS]", *TEXT)
    assert not trace.notice
    assert chinese.tokenizer.text_of(trace.tokens) == TEXT
    assert [word.text for word in trace.tokens.words if word.stop - word.start > 1] == []
    generated = chinese.generate(TEXT, 2, temperature=0)
    assert generated.prompt == trace.tokens


def test_english_words_have_their_pieces_and_spaces(chinese: GPT2) -> None:
    tokens = chinese.tokenizer.tokens("it played 天 xyz")
    assert tokens.texts == ("[CLS]", " it", " play", "ed", "天", " x", "y", "z", "[SEP]")
    notice = chinese.trace("xyz").notice
    assert "pieces of at most two letters: xyz. What " in notice
    assert "its vocabulary has 21,128 tokens" in notice


def test_words_that_cannot_be_read_are_named(chinese: GPT2) -> None:
    unread = "This model can't read at all, and sees as an unknown token: {}. What "
    trace = chinese.trace("今天𠮷野家 한국 한국 😀")
    assert unread.format("𠮷 · 한국 · 😀") in trace.notice
    assert [token.unread for token in trace.tokens if token.unread] == ["𠮷", "한국", "한국", "😀"]
    assert "for 한국" in repr(trace.tokens)
    # They are known where the text is: not from ids, but from tokens, in parts and copies.
    assert unread.format("[UNK]") in chinese.trace(trace.tokens.ids).notice
    tokens = pickle.loads(pickle.dumps(trace.tokens))[2:4]
    assert unread.format("𠮷") in chinese.trace(tokens).notice


def test_example_texts_follow_the_language_that_the_model_reads(
    chinese: GPT2, pocket: GPT2, odd: GPT2
) -> None:
    for language in ("en", "zh"):
        with using_language(language):
            assert examples_of(chinese) == EXAMPLES["zh"]
            assert examples_of(odd) == EXAMPLES["en"]  # which has no whole words
            assert examples_of(pocket)[0] == "The dog chased the ball, but it"
            assert chinese.tokenizer.decode(first_text(chinese)).startswith("[CLS] 今 天 天 气")


def test_a_page_of_a_chinese_model(chinese: GPT2) -> None:
    page = attnlab.page(chinese.trace(TEXT), language="zh").html
    description = json.loads(re.search(r'id="description">(.*?)</script>', page)[1])  # type: ignore[index]
    (trace,) = description["traces"]
    assert trace["excerpt"] == f"[CLS]{TEXT}"
    assert trace["training"][1]["count"] == "21,128"


def test_a_playground_of_a_chinese_model(chinese: GPT2, watched: Watched, tmp_path: Path) -> None:
    attnlab.playground(chinese).save(tmp_path / "model.html")
    page = watched.open((tmp_path / "model.html").as_uri())
    text = "今天它 played 🤖，한국"
    ask(page, text)
    trace = chinese.trace(text)
    assert page.evaluate("traces[0].ids") == trace.tokens.ids.tolist()
    assert page.locator("#notice").inner_text() == trace.notice
    logits = page.evaluate(
        "source.pack(traces[0], 'logits.' + (traces[0].T - 1)).then((x) => [...x])"
    )
    assert np.allclose(logits, trace.logits[-1], atol=1e-5)
    page.evaluate("writeToken({ id: traces[0].ids.at(-1) })")
    until(page, f"traces[0].T === {len(trace.tokens) + 1}")
    assert page.locator("#prompt").input_value().startswith("今天它 played[UNK]，[UNK]")
    # The name of a special token is this token; the link keeps it.
    ask(page, "今天[MASK]好")
    expected = chinese.tokenizer.encode_prompt("今天[MASK]好", special=True)
    until(page, f"traces[0].ids.join() === '{','.join(map(str, expected))}'")
    assert page.locator("#notice").inner_text() == ""
    assert "must be written exactly so." in chinese.trace("今天[mask]好").notice
    until(page, "location.hash.includes('ids=' + traces[0].ids.join('.'))")
    page.goto(page.url)
    page.reload()
    until(page, "traces[0].tokens.some(({ symbol }) => symbol === '[MASK]')")


def test_numbers_of_a_text_that_the_model_cant_read_are_folded(play: Any) -> None:
    page = play(GPT2.from_pretrained("english"), link="#depth=look")
    shown = ("#said", "#every-head", ".next-words")

    def visible() -> list[bool]:
        return [page.locator(part).is_visible() for part in shown]

    settled(page)
    assert visible() == [True] * 3
    ask(page, "我去银行取钱")
    assert "attnlab explore gpt2-chinese-cluecorpussmall" in page.locator("#notice").inner_text()
    assert visible() == [False] * 3
    assert page.locator("#language").is_visible()
    page.locator("#show-anyway").click()
    assert visible() == [True] * 3
    ask(page, "I go to the bank")
    assert visible() == [True] * 3
    assert page.locator("#show-anyway").is_hidden()
