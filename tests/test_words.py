"""Words in pieces, and readable tokens; the page's are compared with the library's."""

import itertools
import os
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chinese import in_chinese
from node import Evaluator

import attnlab
from attnlab import GPT2, Trace
from attnlab.checkpoints.hub import BUILT_IN
from attnlab.cli.command import main
from attnlab.errors import InvalidValueError
from attnlab.pages.saved import token_of
from attnlab.text.tokenizer import Tokenizer
from attnlab.text.tokens import END_OF_TEXT, Token, Tokens, text_in_quotes
from attnlab.text.words import characters_of, special_names_of

SENTENCE = "The cat sat on the mat because it was tired"


def tokens_of(*pieces: bytes | str) -> Tokens:
    """Tokens with these bytes, whose symbols aren't their text."""
    contents = [piece.encode() if isinstance(piece, str) else piece for piece in pieces]
    return Tokens(
        Token(id, "?", content.decode(errors="replace"), content)
        for id, content in enumerate(contents)
    )


def in_pieces(tokens: Tokens) -> dict[str, tuple[str, ...]]:
    words = (word for word in tokens.words if word.stop - word.start > 1)
    return {word.text: tokens.texts[word.start : word.stop] for word in words}


def spelled_out(tokens: Tokens) -> list[str]:
    return [word.text for word in tokens.words if word.is_spelled_out]


def test_words_that_the_pocket_model_does_not_know_are_spelled_out(pocket: GPT2) -> None:
    tokens = pocket.tokenizer.tokens(SENTENCE)
    assert in_pieces(tokens) == {
        "sat": (" s", "at"),
        "on": (" ", "on"),
        "mat": (" m", "at"),
        "because": (" be", "c", "a", "u", "se"),
    }
    assert spelled_out(tokens) == ["sat", "on", "mat", "because"]
    assert [word.text for word in tokens.words] == SENTENCE.split()


def test_words_in_three_pieces_or_in_short_ones_are_spelled_out() -> None:
    for pieces, expected in (
        ([" Sw", "imming", " is", " can", "not"], []),
        (
            [" ar", "cha", "e", "olog", "ist", " un", "believ", "able"],
            ["archaeologist", "unbelievable"],
        ),
        ([" X", "ie", " Zh", "an", " Z", "hou"], ["Xie", "Zhan"]),
        ([" ", "on", " ", "the"], ["on"]),
        (["我", "喜", b"\xe5", b"\xb0\x8f", "안", "녕", "の"], ["小"]),
        # Of other characters only those in three pieces; they are no words otherwise.
        (["It", b"\xe2\x80", b"\x99", "s!"], []),
        (["It", b"\xe2", b"\x80", b"\x99", "s!"], ["’"]),
        ([*(bytes([byte]) for byte in "😀".encode())], ["😀"]),
    ):
        assert spelled_out(tokens_of(*pieces)) == expected, pieces
    apostrophe = tokens_of("It", b"\xe2\x80", b"\x99", "s!")
    assert in_pieces(apostrophe) == {"’": ("�", "�")}


def test_a_combining_accent_belongs_to_its_word() -> None:
    assert [word.text for word in tokens_of("cafe\u0301 ", "3a", "\n").words] == ["cafe\u0301", "a"]


def test_offsets_are_those_of_transformers(gpt2_tokenizer: Tokenizer) -> None:
    """As `GPT2TokenizerFast` of transformers 5 returns them, return_offsets_mapping=True."""
    text = "It’s very hot 😀 小 naïve\n\n café  x"
    expected = [(0, 2), (2, 3), (2, 3), (3, 4), (4, 9), (9, 13), (13, 15), (14, 15), (15, 17)]
    expected += [(16, 17), (16, 17), (17, 23), (23, 25), (25, 30), (30, 31), (31, 33)]
    assert gpt2_tokenizer.tokens(text).offsets == tuple(expected)
    family = "e\u0301 👩\u200d👩\u200d👧 ok"
    expected = [(0, 1), (1, 2), (1, 2), (2, 4), (3, 4), (4, 5), (4, 5), (5, 6), (5, 6), (6, 7)]
    expected += [(6, 7), (7, 8), (7, 8), (8, 11)]
    assert gpt2_tokenizer.tokens(family).offsets == tuple(expected)
    assert tokens_of("a", "", b"\xe5", "b").offsets == ((0, 1), (0, 0), (1, 2), (2, 3))


def test_weights_and_losses_by_words() -> None:
    model = GPT2.from_pretrained("pocket", dtype="float64")
    trace = model.trace(f"{SENTENCE}.")
    by_words = trace.by_words()
    assert by_words.words == ("The", *(f" {word}" for word in SENTENCE.split()[1:]), ".")
    tokens = [range(len(trace.tokens))[span] for span in by_words.spans]
    assert [i for word in tokens for i in word] == [*range(len(trace.tokens))]
    assert max(map(len, tokens)) == 5  # because
    assert by_words.weights.shape == (2, 4, 11, 11)
    for layer, head, a, b in np.ndindex(by_words.weights.shape):
        weights = trace.head(layer, head).weights
        expected = sum(weights[i, j] for i in tokens[a] for j in tokens[b]) / len(tokens[a])
        assert by_words.weights[layer, head, a, b] == pytest.approx(expected, abs=1e-14)
    for loss, word in zip(by_words.losses, tokens[1:], strict=True):
        assert loss == pytest.approx(sum(trace.losses[i - 1] for i in word), rel=1e-14)
    frame = by_words.to_dataframe()
    assert [*frame.columns] == ["word", "position", "tokens", "loss"]
    assert frame["loss"][6:8].sum() == pytest.approx(trace.losses[8:14].sum())
    attnlab.words(by_words.weights, by_words.words)
    step = model.generate("The cat", 2, trace=True, temperature=0).steps[1].trace
    with pytest.raises(InvalidValueError, match="one whole text"):
        step.by_words()


def test_the_first_word_in_pieces_and_words_that_share_a_token(pocket: GPT2) -> None:
    first = pocket.trace("because").by_words()
    assert (first.words, first.losses.shape) == (("because",), (0,))
    assert np.allclose(first.weights, 1)
    tokens = tokens_of("the d", "og", "你好", "吗", "?")
    shared = Trace(tokens, pocket.tokenizer.vocabulary, pocket.parameters).by_words()
    assert shared.words == ("the dog", "你好", "吗", "?")
    joined = tokens_of("👩", b"\xe2\x80", b"\x8d", "👧")  # by a character without width
    shared = Trace(joined, pocket.tokenizer.vocabulary, pocket.parameters).by_words()
    assert shared.words == ("👩", "\u200d", "👧")


def test_readable_tokens() -> None:
    assert tokens_of(" very", "\n", "’", "\t小").readable == ("Ġvery", "Ċ", "’", "ĉ小")
    parts = tokens_of(b" \xe5", b"\xb0", b"\x8fs", b"\xe5\xb0")
    assert parts.readable == ("Ġ小 1/3", "小 2/3", "小 3/3 s", "<e5 b0>")
    assert parts[1].readable == "<b0>"
    invisible = tokens_of("🌧", b"\xef\xb8", b"\x8f", b"\xe3", b"\x80\x80")
    names = ("U+FE0F 1/2", "U+FE0F 2/2", "U+3000 1/2", "U+3000 2/2")
    assert invisible.readable == ("🌧", *names)
    assert parts.find("小 2/3") == 1
    labels = Tokens([Token(0, "my dog", "my dog", b"my dog"), Token(1, "<row 1>", "", b"")])
    assert labels.readable == ("my dog", "<row 1>")


def test_tables_name_characters(pocket: GPT2) -> None:
    trace = pocket.trace("It’s 小")
    table = str(trace.head(0, 0).explain(-1).text(80))
    assert "小 2/3" in table
    assert "’" in table
    assert "âĢĻ" not in table
    # A next token that completes a character is known.
    unfinished = pocket.trace(pocket.tokenizer.encode("小")[:2])
    completing = Tokens([*unfinished.tokens, *pocket.tokenizer.tokens("小")[2:]])
    assert text_in_quotes(completing, 2) == "小 3/3"
    assert unfinished.next_tokens(1)._before == unfinished.tokens


# ---- notices ------------------------------------------------------------------------------------


IN_PIECES = (
    "Not in this model's vocabulary, so read in three or more pieces, or in pieces of at most two "
    "letters: "
)


HOW_TO_MEAN = "To mean the tokens: trace(text, special=True) in Python, --special in a command."


def test_a_notice_says_what_the_model_knows(pocket: GPT2, capsys: Any, tmp_path: Path) -> None:
    notice = pocket.trace(SENTENCE).notice
    assert notice == (
        f"{IN_PIECES}sat · on · mat · because. The model “pocket” was trained on the sentences of "
        "a small grammar. Use its words, or a model that reads English: "
        "attnlab explore."
    )
    assert notice in repr(pocket.trace(SENTENCE)).replace("\n", " ")
    assert in_chinese(notice) == (
        "这个模型的词表里没有这些词，要拆成三块或更多块，或拆成不超过两个字母的块来读："
        "sat · on · mat · because。模型 pocket 是用一套小语法的句子训练的。"
        "请用它认识的词，或换一个读英文的模型：attnlab explore。"
    )
    assert not pocket.trace("The dog chased the ball, but it").notice
    assert main(["html", "--model", "pocket", SENTENCE, "-o", str(tmp_path / "page.html")]) == 0
    output = capsys.readouterr()
    assert output.err == f"{notice}\n"
    assert notice not in output.out


def test_names_of_special_tokens_are_split_unless_asked_for(capsys: Any, tmp_path: Path) -> None:
    file = str(tmp_path / "page.html")
    english = GPT2.from_pretrained("english")
    text = "The dog<|endoftext|>A cat"
    trace, special = english.trace(text), english.trace(text, special=True)
    split = "Names of special tokens, read as plain characters: <|endoftext|>. "
    assert trace.notice == f"{split}{HOW_TO_MEAN}"
    assert "in pieces" not in trace.notice  # its letters aren't words that the model doesn't know
    assert special.notice == ""
    assert special.tokens.symbols.count(END_OF_TEXT) == 1
    assert END_OF_TEXT not in trace.tokens.symbols
    assert english.tokenizer.tokens(text, special=True).ids.tolist() == special.ids.tolist()
    assert english.tokenizer.decode(english.tokenizer.encode(text, special=True)) == text
    assert english.trace([text, "A cat"], special=True)[0].ids.tolist() == special.ids.tolist()
    spelled = english.trace(f"{text} 猫").notice
    assert spelled.startswith(split)
    assert "letters: 猫. " in spelled
    for options, is_split in (((), True), (("--special",), False)):
        assert main(["html", "--model", "english", text, *options, "-o", file]) == 0
        assert (split in capsys.readouterr().err) == is_split


def test_continuations_mean_special_tokens_as_traces_do() -> None:
    english = GPT2.from_pretrained("english")
    expected = english.trace(f"{END_OF_TEXT}The", special=True).ids.tolist()
    assert len(expected) == 2
    options: Any = {"temperature": 0, "special": True}
    generated = english.generate(f"{END_OF_TEXT}The", 2, **options)
    assert generated.prompt.ids.tolist() == expected
    streamed = english.stream(f"{END_OF_TEXT}The", 2, **options)
    assert tuple(streamed) == generated.chosen
    assert len(english.generate(f"{END_OF_TEXT}The", 1).prompt) > 2


# By hand: a model's special tokens, whether its tokens are exact, a text's tokens (* ends a
# special one); the names that are split, and those that the model doesn't have with their pieces.
NAMES: list[tuple[list[str], bool, list[str], list[str], list[str]]] = [
    (["<s>"], True, ["a<", "s", ">b"], ["<s>"], []),
    (["<s>"], True, ["a", "<s>*", "< s>"], [], []),
    (["<s>"], True, ["<", "<s>*", "s>"], [], []),
    ([], True, ["<", "ma", "sk", ">."], [], ["<mask> (4)"]),
    ([], True, [" <mask>", "<mask", ">", "[mask", "]"], [], ["<mask> (2)"]),
    (
        [],
        True,
        ["</", "s><|", "im_", "start|>", "<speaker", "12>"],
        [],
        ["</s> (2)", "<|im_start|> (3)", "<speaker12> (2)"],
    ),
    ([], True, ["<div", "><", "b>[", "1]", " a<", "b>"], [], []),
    (["[MASK]"], False, ["[CLS", "]", " [", " mask", "]"], ["[MASK]"], ["[cls] (2)"]),
    (["[MASK]", "[UNK]"], False, ["[", "[UNK]*", "mask", "]"], [], []),
]


NAMES_ON_PAGE = """([tokens, names, isExact]) => {
    const { split, unknown } = difficultIn([], tokens, { names, isExact });
    return [split, unknown];
}"""


def test_words_beside_names_of_special_tokens_are_spelled_out(
    pure: Evaluator, pocket: GPT2
) -> None:
    text = "<|endoftext|> tqx doft"
    assert "letters: tqx · doft. " in GPT2.from_pretrained("english").trace(text).notice
    texts = ["<", "s", ">", " <", "m", "as", "k", ">", " m", "as", " s"]
    tokens = tokens_of(*texts)
    *_, covered = special_names_of(characters_of(tokens.bytes), tokens.symbols, ["<s>"], True)
    assert sorted(covered) == [*range(8)]
    find = """({ tokens }) => difficultIn(wordsIn(charactersIn(tokens)), tokens,
        { names: ["<s>"], isExact: true })"""
    on_page = pure.evaluate(find, {"tokens": [token_of(token) for token in tokens]})
    assert on_page["spelledOut"] == ["mas"]
    assert "letters: mas. " in pocket.trace("<mask> mas").notice


def test_a_byte_is_no_part_of_a_name(pure: Evaluator) -> None:
    tokens = tokens_of("<|endof", b"\xff", "text|>")
    found = special_names_of(characters_of(tokens.bytes), tokens.symbols, [END_OF_TEXT], True)
    assert found == ([], {}, set())
    on_page = pure.evaluate(NAMES_ON_PAGE, [[token_of(token) for token in tokens], [], True])
    assert on_page == [[], []]


def test_names_of_special_tokens_are_found(pure: Evaluator) -> None:
    for special, is_exact, texts, split, unknown in NAMES:
        symbols = [text.removesuffix("*") if text.endswith("*") else "?" for text in texts]
        contents = [text.removesuffix("*").encode() for text in texts]
        found, others, _ = special_names_of(characters_of(contents), symbols, special, is_exact)
        assert found == split, texts
        assert [f"{name} ({n})" for name, n in others.items()] == unknown, texts
        tokens = [
            {"symbol": symbol, "bytes": content.hex(" ")}
            for symbol, content in zip(symbols, contents, strict=True)
        ]
        assert pure.evaluate(NAMES_ON_PAGE, [tokens, special, is_exact]) == [split, unknown], texts


def test_a_notice_names_special_tokens_that_a_model_does_not_have(pocket: GPT2) -> None:
    none = "This model has no special tokens of these names, so it reads them in pieces: {}."
    assert pocket.trace("The dog </s>").notice == none.format("</s> (4)")
    english = GPT2.from_pretrained("english")
    both = english.trace(f"<mask>{END_OF_TEXT}").notice
    split = f"Names of special tokens, read as plain characters: {END_OF_TEXT}."
    assert both == f"{split} {HOW_TO_MEAN} {none.format('<mask> (4)')}"


def test_a_notice_says_that_a_text_ends_in_a_blank(pocket: GPT2) -> None:
    said = (
        "This text ends in a blank, which the model reads as a token of its own. "
        "Without it: text.rstrip()."
    )
    for blank in (" ", "  ", "\n", "\u00a0"):  # a no-break space is in two tokens
        assert pocket.trace(f"The dog{blank}").notice == said
        generated = pocket.generate(f"The dog{blank}", 1)
        assert repr(generated).replace("\n", " ").endswith(said)
    assert "blank" not in repr(pocket.generate("The dog", 1))
    for text in ("The dog", " dog", " ", "The dog ."):
        assert not pocket.trace(text).notice
    assert "空格结尾" in in_chinese(pocket.trace("The dog ").notice)


def test_a_notice_lists_each_word_once_and_eight_at_most(pocket: GPT2) -> None:
    assert "letters: 小 · 猫. " in pocket.trace("小猫小猫").notice
    many = pocket.trace("一二三四五六七八九").notice
    assert "七 · 八 · …. " in many


def test_a_notice_advises_what_helps(odd: GPT2, monkeypatch: pytest.MonkeyPatch) -> None:
    words = {"latin": "mat", "other": "小", "signs": "😀", "punctuation": "，"}
    chinese, emoji = "gpt2-chinese-cluecorpussmall", "GPT-2 reads most emoji in pieces, too."
    models = {name: GPT2.from_pretrained(name) for name in BUILT_IN}
    for name, training, advice in (
        (
            "pocket",
            "a small grammar",
            {"latin": "attnlab explore.", "other": chinese, "signs": emoji},
        ),
        ("english", "simple English", {"latin": "download gpt2", "other": chinese, "signs": emoji}),
        ("openai-community/gpt2", "English web pages", {"other": chinese}),
        ("uer/gpt2-chinese-cluecorpussmall", "Chinese texts", {"latin": "such as gpt2."}),
        ("my-gpt2", "isn't known", {"latin": "that it knows", "other": "that it knows"}),
    ):
        model = models.get(name, odd)
        if model is odd:
            monkeypatch.setattr(odd.parameters, "name", name)
        for script, word in words.items():
            word = "Schwierigkeiten" if (script, name) == ("latin", "english") else word
            notice = model.trace(word).notice
            assert notice.startswith(f"{IN_PIECES}{word}. ")
            assert training in notice
            for other, sentence in advice.items():
                assert (sentence in notice) == (sentence == advice.get(script)), (name, other)


# ---- the page ------------------------------------------------------------------------------------

SHOWN = """({ tokens }) => {
    const characters = charactersIn(tokens);
    return [
        wordsIn(characters).map(({ text, start, stop, isSpelledOut }) =>
            [text, start, stop, isSpelledOut]),
        withWords(tokens).map(({ word }) => word),
    ];
}"""


def check_page(evaluator: Evaluator, tokens: Tokens) -> None:
    """The page finds the same words, and the same parts of characters."""
    words, names = evaluator.evaluate(SHOWN, {"tokens": [token_of(token) for token in tokens]})
    assert [tuple(word) for word in words] == [tuple(word) for word in tokens.words]
    for name, readable in zip(names, tokens.readable, strict=True):
        if not re.search("[ĠĊ\u3000]", shown := readable.removeprefix("Ġ")) and shown:
            assert name == shown


def test_the_page_finds_the_same_words(pure: Evaluator, pocket: GPT2) -> None:
    check_page(pure, pocket.tokenizer.tokens(f"{SENTENCE}; It’s 小猫! 😀 schöne cafe\u0301"))
    check_page(pure, tokens_of("the ", "hen", " ", "in ", " a"))  # spaces after words, too
    characters, chance = "ab é小ᄀ😀’\u0301 \u3000\ufe0f३-\n1안", random.Random(0)
    for _ in range(200):
        text = "".join(chance.choices(characters, k=12)).encode()
        cuts = sorted({0, len(text), *chance.choices(range(len(text)), k=8)})
        check_page(pure, tokens_of(*(text[a:b] for a, b in itertools.pairwise(cuts))))


def test_gpt2s_words(pure: Evaluator) -> None:
    if "ATTNLAB_GPT2_VOCAB" not in os.environ:
        pytest.skip("ATTNLAB_GPT2_VOCAB isn't set")
    tokenizer = Tokenizer.from_directory(Path(os.environ["ATTNLAB_GPT2_VOCAB"]))
    assert spelled_out(tokenizer.tokens(f"{SENTENCE}. It’s Swimming 😀")) == []
    chinese = tokenizer.tokens("小猫")
    assert spelled_out(chinese) == ["小", "猫"]
    assert chinese.readable == ("小 1/2", "小 2/2", "猫 1/3", "猫 2/3", "猫 3/3")
    check_page(pure, chinese)
