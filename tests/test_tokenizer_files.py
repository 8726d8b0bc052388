"""tokenizer_files.py: each form of a tokenizer on disk, compared with transformers 4 and 5."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import REFERENCE, needs
from node import Evaluator

from attnlab import AttnlabError, Tokenizer
from attnlab.errors import InvalidValueError, MissingExtraError, MissingFileError, VocabularyError
from attnlab.pages.prediction import names
from attnlab.pages.saved import token_of
from attnlab.text.bpe import is_gpt2
from attnlab.text.tokens import END_OF_TEXT, byte_symbols

RECORDED = json.loads((REFERENCE / "tokenizers.json").read_text(encoding="utf-8"))
TEXTS = RECORDED["texts"]
DIRECTORIES = sorted(RECORDED["5"])

# Tokenizers that need the tokenizers library for tokens, and those that need it to encode texts.
WITHOUT_BYTES = ("bert", "bert_cased", "bert_saved", "metaspace", "unigram")
BY_LIBRARY = (*WITHOUT_BYTES, "digits", "normalized", "stripped")

# Here transformers adds END_OF_TEXT, GPT2Tokenizer's default, beyond the vocabulary.
WITHOUT_END = "trained"


def open_(name: str) -> Tokenizer:
    if name in BY_LIBRARY:
        needs("tokenizers", "tokenizers")
    return Tokenizer.from_directory(REFERENCE / "tokenizers" / name)


def recorded_values(version: str, name: str) -> list[tuple[str, list[int], list[int], str]]:
    """Text, ids, ids with special tokens as plain characters, and the text of the first ids."""
    values = zip(TEXTS, RECORDED[version][name]["values"], strict=True)
    return [
        (text, ids, ids if plain is None else plain, decoded)
        for text, (ids, plain, decoded) in values
        if not (name == WITHOUT_END and END_OF_TEXT in text)
    ]


def edited(content: dict[str, Any], **values: object) -> dict[str, Any]:
    """JSON with other values at paths such as model__vocab__the; ... removes one."""
    content = json.loads(json.dumps(content))
    for path, value in values.items():
        *above, last = path.split("__")
        part = content
        for name in above:
            part = part[int(name) if isinstance(part, list) else name]
        if value is ...:
            del part[last]
        else:
            part[int(last) if isinstance(part, list) else last] = value
    return content


def test_every_recorded_directory_is_tested() -> None:
    assert sorted(path.name for path in (REFERENCE / "tokenizers").iterdir()) == DIRECTORIES
    assert len(TEXTS) == 12
    for name in {*DIRECTORIES} - {*WITHOUT_BYTES}:
        tokenizer = Tokenizer.from_directory(REFERENCE / "tokenizers" / name)
        assert is_gpt2(tokenizer.settings) == (name not in BY_LIBRARY)


@pytest.mark.parametrize("name", DIRECTORIES)
def test_ids_and_texts_equal_transformers(name: str) -> None:
    tokenizer = open_(name)
    for text, ids, plain, decoded in recorded_values("5", name):
        assert tokenizer.encode(text, special=True) == ids, text
        assert tokenizer.encode(text) == plain, text
        assert tokenizer.decode(ids) == decoded, text
        assert tokenizer.tokens(text).ids.tolist() == plain
    assert len(tokenizer.vocabulary.ids) == RECORDED["5"][name]["tokens"] - (name == WITHOUT_END)


def test_a_tokenizer_json_alone_is_read_as_it_is(tmp_path: Path) -> None:
    """As by transformers 5.24; with a config.json, its GPT2Tokenizer adds no space."""
    settings = Tokenizer.from_directory(REFERENCE / "tokenizers/saved_by_5").settings
    settings = edited(settings, pre_tokenizer__add_prefix_space=True)
    (tmp_path / "tokenizer.json").write_text(json.dumps(settings))
    for tokenizer in (Tokenizer.from_directory(tmp_path), Tokenizer(settings)):
        assert tokenizer.tokens("a b").symbols == ("Ġ", "a", "Ġ", "b")
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    assert Tokenizer.from_directory(tmp_path).tokens("a b").symbols == ("a", "Ġ", "b")


@pytest.mark.parametrize("name", DIRECTORIES)
def test_a_pages_ids_equal_transformers(name: str, pure: Evaluator) -> None:
    tokenizer = open_(name)
    try:
        data = tokenizer.as_data()
    except InvalidValueError:
        return  # pages don't support it
    pure.evaluate("(data) => { globalThis.made = tokenizerOf(data); }", data)
    appended = tokenizer.encode("")[len(tokenizer.encode_prompt("")) :]
    for text, ids, plain, _ in recorded_values("5", name):
        for meant, expected in ((tokenizer.vocabulary.special, ids), ((), plain)):
            encoded = pure.evaluate("([text, meant]) => made.encode(text, meant)", [text, meant])
            assert encoded + appended == expected, (text, meant)
    ids = tokenizer.vocabulary.ids.tolist()
    described = [token_of(tokenizer.vocabulary.token(id)) | {"unread": None} for id in ids]
    read = "(all) => all.map((one) => ({ ...name(one), unread: null }))"
    for name, given in (("made.token", ids), ("tokenOf", names(tokenizer.vocabulary, ids))):
        assert pure.evaluate(read.replace("name", name), given) == described


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("two_files", ["the ", END_OF_TEXT, " hen"]),
        ("saved_by_5", ["the<|pad|>", END_OF_TEXT, "<|pad|>"]),
        ("bert", ["the ", "[MASK]", " [SEP] hen"]),
    ],
)
def test_special_tokens_of_a_page_are_chosen_by_name(
    name: str, parts: list[str], pure: Evaluator
) -> None:
    """Of a name that isn't meant, the characters are read; of one that is, its token."""
    tokenizer = open_(name)
    before, after = tokenizer.encode_prompt(parts[0]), tokenizer.encode_prompt(parts[2])
    prefix = tokenizer.encode_prompt("")
    expected = [*before, tokenizer.vocabulary.lookup(parts[1]).id, *after[len(prefix) :]]
    pure.evaluate("(data) => { globalThis.made = tokenizerOf(data); }", tokenizer.as_data())
    arguments = ["".join(parts), [parts[1]]]
    assert pure.evaluate("(given) => made.encode(...given)", arguments) == expected


def test_differences_from_transformers_4() -> None:
    """Where version 4 isn't recorded, it equals version 5."""
    assert sorted(RECORDED["4"]) == ["bos_and_eos", "trained_fast"]
    both = open_("bos_and_eos")
    for text, ids, *_ in recorded_values("4", "bos_and_eos"):  # 4 knows no add_eos_token
        assert both.encode(text, special=True) == [*ids, both.encode("")[-1]]
    spaced = open_("trained")  # version 4 reads add_prefix_space only from tokenizer_config.json
    for text, ids, *_ in recorded_values("4", "trained_fast"):
        if "<" not in text:
            assert spaced.encode(text) == ids


def test_files_settings_affect_the_tokens() -> None:
    assert open_("bos").tokens("the hen").symbols[:2] == (END_OF_TEXT, "Ġthe")
    assert open_("bos_and_eos").tokens("the").symbols == (END_OF_TEXT, "the", END_OF_TEXT)
    assert open_("template").tokens("the").symbols[::2] == ("<s>", "</s>")
    symbols = open_("bert").tokens("猫吃 Unaffable fish").symbols
    assert " ".join(symbols) == "[CLS] 猫 吃 una ##ff ##able [UNK] [SEP]"
    bert = open_("bert")
    tokens = bert.tokens("猫 unaffable")
    assert tokens.texts == ("[CLS]", "猫", " una", "ff", "able", "[SEP]")
    assert [(word.text, word.stop - word.start) for word in tokens.words[1:3]] == [
        ("猫", 1),
        ("unaffable", 3),
    ]
    assert bert.encode_prompt("猫 unaffable") == bert.encode("猫 unaffable")[:-1]
    assert bert.text_of(bert.tokens(bert.encode_prompt("unaffable 猫"))) == "unaffable猫"
    assert tokens.bytes[1] == "猫".encode()
    assert bert.decode(tokens.ids) == "[CLS] 猫 unaffable [SEP]"
    assert bert.decode_bytes(tokens.ids) == bert.decode(tokens.ids).encode()
    assert tokens.part_of == ("",) * 6
    # Here symbols represent bytes.
    assert open_("digits").tokens("’").bytes == (b"\xe2\x80", b"\x99")


def ids_of(symbols: str) -> dict[str, int]:
    return {symbol: id for id, symbol in enumerate(symbols.split())}


WORDS = {"type": "WordLevel", "unk_token": "?"}
UNIGRAM = {"type": "Unigram", "unk_id": 0}
MERGES = {"type": "BPE", "merges": ["t h", "i n", "▁ th", "▁th e", "▁ h"], "byte_fallback": True}
ENDS = {"type": "BPE", "merges": ["t h", "th e</w>", "i n</w>"], "end_of_word_suffix": "</w>"}
BLANK = {"type": "Whitespace"}
METASPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
REPLACE = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
PARTS = [REPLACE, {"type": "ByteFallback"}, {"type": "Fuse"}, STRIP]
LLAMA = {"type": "Sequence", "decoders": PARTS}  # as in Llama's tokenizer.json


@pytest.mark.parametrize(
    ("model", "symbols", "pre_tokenizer", "decoder"),
    [
        (WORDS, "the hen in thin", BLANK, None),
        (WORDS, "▁the ▁hen ▁in ▁thin", METASPACE, METASPACE),
        (UNIGRAM, "▁the ▁ hen ▁in ▁th in", METASPACE, METASPACE),
        (MERGES, "▁ t h e n i th in ▁th ▁the ▁h", METASPACE, METASPACE),
        (MERGES, "<0x41> <0xC3> <0xA9> ▁ t h e n i th in ▁th ▁the ▁h", METASPACE, LLAMA),
        (
            ENDS,
            "t h e n i e</w> n</w> th the</w> in</w>",
            BLANK,
            {"type": "BPEDecoder", "suffix": "</w>"},
        ),
    ],
)
def test_tokens_have_the_spaces_of_the_text(
    model: Any, symbols: str, pre_tokenizer: Any, decoder: Any
) -> None:
    """Texts and offsets are those of the tokenizers library, words those of the text."""
    needs("tokenizers", "tokenizers")
    vocab = [[symbol, -1] for symbol in ids_of(symbols)] if model is UNIGRAM else ids_of(symbols)
    model = {**model, "vocab": vocab}
    tokenizer = Tokenizer({"model": model, "pre_tokenizer": pre_tokenizer, "decoder": decoder})
    text = "the hen in thin"
    tokens, theirs = tokenizer.tokens(text), tokenizer._library.encode(text)
    spelled = "".join(tokens.texts)
    assert spelled.strip() == tokenizer.decode(theirs.ids) == text
    for (start, end), (a, b) in zip(tokens.offsets, theirs.offsets, strict=True):
        assert spelled[start:end].strip() == text[a:b].strip()
    words = ["".join(tokens.texts[word.start : word.stop]).strip() for word in tokens.words]
    assert words == [word.text for word in tokens.words] == text.split()
    assert tokenizer.vocabulary.lookup(tokens.texts[0]) == tokens[0] == tokens[tokens.find("the")]
    if decoder and "decoders" in decoder:  # bytes that are invalid alone
        assert tokenizer.tokens("é").texts == (" ", "\ufffd", "\ufffd")


def test_tokens_with_their_own_spaces_get_no_others() -> None:
    """Characters with the space, and no decoder: the library's decode would add more spaces."""
    needs("tokenizers", "tokenizers")
    split = {"type": "Split", "pattern": {"Regex": "."}, "behavior": "Isolated", "invert": False}
    model = {**WORDS, "vocab": {"a": 0, " ": 1}}
    assert Tokenizer({"model": model, "pre_tokenizer": split}).tokens("a a").texts == (
        "a",
        " ",
        "a",
    )


def test_pages_refuse_other_tokenizers() -> None:
    with pytest.raises(InvalidValueError, match="only GPT-2's byte pair encoding"):
        open_("unigram").as_data()


def test_added_tokens_are_literal_text() -> None:
    """Where transformers reads their letters as symbols of bytes; not if a merge makes them."""
    settings = open_("two_files").settings
    ids = settings["model"]["vocab"]
    token = {"id": 301, "content": "garçon", "special": False}
    merged = [{"id": ids[symbol], "content": symbol} for symbol in ("Ġthe", "é")]
    tokenizer = Tokenizer(settings | {"added_tokens": [*settings["added_tokens"], *merged, token]})
    tokens = tokenizer.tokens("the garçon")
    assert tokens[-1].id == 301
    assert tokens.texts[-1] == "garçon"
    assert tokenizer.decode(tokens.ids) == "the garçon"
    assert tokenizer.tokens([ids["Ġthe"], ids["é"]]).bytes == (b" the", b"\xe9")


@pytest.mark.parametrize("name", DIRECTORIES)
def test_saved_tokenizers_open_unchanged(name: str, tmp_path: Path) -> None:
    tokenizer = open_(name)
    tokenizer.save(tmp_path)
    again = Tokenizer.from_directory(tmp_path)
    assert again.settings == tokenizer.settings
    everything = range(len(tokenizer))
    assert again.tokens(everything) == tokenizer.tokens(everything)
    files = {file.name for file in tmp_path.iterdir()}
    if name == "two_files":  # the others' settings differ, or they have no END_OF_TEXT
        assert files == {"vocab.json", "merges.txt"}
    else:
        assert files == {"tokenizer.json", "tokenizer_config.json"}


def test_the_library_reads_what_is_saved_and_its_settings_open(tmp_path: Path) -> None:
    needs("tokenizers", "tokenizers")
    import tokenizers

    open_("bos").save(tmp_path)
    library = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    for text, ids, *_ in recorded_values("5", "bos"):
        assert library.encode(text).ids == ids
    for name in ("saved_by_5", "unigram"):
        file = REFERENCE / "tokenizers" / name / "tokenizer.json"
        tokenizer = Tokenizer(json.loads(tokenizers.Tokenizer.from_file(str(file)).to_str()))
        for text, ids, *_ in recorded_values("5", name):
            assert tokenizer.encode(text, special=True) == ids


ROBERTA = {"type": "RobertaProcessing", "sep": ["]", 93], "cls": ["[", 91]} | {
    "trim_offsets": True,
    "add_prefix_space": False,
}


@pytest.mark.parametrize(
    ("values", "text", "symbols"),
    [
        ({}, "Ab ax", "A b Ġ a x"),
        ({"model__merges": ["b Ġ"]}, "b a", "b Ġ a"),
        ({"model__merges": ["b Ġ"], "pre_tokenizer__use_regex": False}, "b a", "bĠ a"),
        ({"model__ignore_merges": True}, "bx b", "bx Ġ b"),
        ({"model__vocab__x": ..., "model__unk_token": "?"}, "axb", "a ? b"),
        ({"model__vocab__x": ..., "model__byte_fallback": True}, "axb", "a <0x78> b"),
        ({"model__end_of_word_suffix": "x"}, "ab", "a bx"),
        ({"model__continuing_subword_prefix": "#"}, "ab", "a #b"),
        ({"post_processor": ROBERTA}, "a", "[ a ]"),
        ({"post_processor": {"type": "Sequence", "processors": [ROBERTA]}}, "a", "[ a ]"),
        ({"normalizer": {"type": "Lowercase"}}, "Ab", "a b"),
        ({"added_tokens__0__rstrip": True}, "<> a", "<> a"),
        ({"added_tokens__0__lstrip": True}, "a <>", "a <>"),
        ({"added_tokens__0__single_word": True}, "a<> <>a <>", "a < > Ġ < > a Ġ <>"),
    ],
)
def test_non_gpt2_settings_use_the_library(values: dict[str, Any], text: str, symbols: str) -> None:
    """By hand, in a vocabulary of bytes, bĠ, bx, #b and two special-looking tokens."""
    needs("tokenizers", "tokenizers")
    more = ("bĠ", "bx", "#b", "<0x78>", "<>")
    ids = {symbol: id for id, symbol in enumerate([*byte_symbols(), *more])}
    settings = edited(Tokenizer.from_merges(ids, []).settings, added_tokens=[])
    settings["added_tokens"] = [{"id": ids["<>"], "content": "<>"}]
    tokens = Tokenizer(edited(settings, **values)).tokens(text)
    assert " ".join(tokens.symbols) == symbols


def test_a_missing_library_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    for name in WITHOUT_BYTES:
        with pytest.raises(MissingExtraError, match="pip install tokenizers"):
            Tokenizer.from_directory(REFERENCE / "tokenizers" / name)
    digits = Tokenizer.from_directory(REFERENCE / "tokenizers/digits")
    assert digits.tokens([256, 257]).texts[0]  # not needed for ids
    with pytest.raises(MissingExtraError, match="optional extra 'tokenizers'"):
        digits.encode("12")


def test_library_replaces_missing_tiktoken(monkeypatch: pytest.MonkeyPatch) -> None:
    needs("tokenizers", "tokenizers")
    monkeypatch.setitem(sys.modules, "tiktoken", None)
    for name in ("two_files", "added", "bos"):
        tokenizer = open_(name)
        for text, ids, plain, _ in recorded_values("5", name):
            assert tokenizer.encode(text, special=True) == ids
            assert tokenizer.encode(text) == plain
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(MissingExtraError, match=r"tiktoken .* isn't installed"):
        open_("two_files").encode("the")


# ------------------------------------------------------------------------------ invalid files


def copy_tokenizer(name: str, directory: Path) -> Path:
    return Path(shutil.copytree(REFERENCE / "tokenizers" / name, directory / name))


def change(file: Path, **values: object) -> None:
    """Change a JSON file like `changed`; the file may be missing."""
    content = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    file.write_text(json.dumps(edited(content, **values)), encoding="utf-8")


def refusal(directory: Path) -> str:
    with pytest.raises(VocabularyError) as caught:
        Tokenizer.from_directory(directory)
    assert str(caught.value).count(str(directory)) == 1
    return str(caught.value)


def around(ids: object) -> dict[str, Any]:
    """A post_processor that prepends a token with these ids."""
    return {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "x", "type_id": 0}}],
        "special_tokens": {"x": {"id": "x", "ids": ids, "tokens": ["x"]}},
    }


@pytest.mark.parametrize("file", ["vocab.json", "tokenizer.json"])
def test_added_tokens_inside_and_outside_the_vocabulary(tmp_path: Path, file: str) -> None:
    directory = copy_tokenizer("saved_by_4", tmp_path)
    path = {"vocab.json": "", "tokenizer.json": "model__vocab__"}[file]
    change(directory / file, **{f"{path}{END_OF_TEXT}": ...})
    tokenizer = Tokenizer.from_directory(directory)
    assert tokenizer.encode(END_OF_TEXT, special=True) == [300]


def test_maximum_length_of_a_tokenizer_is_ignored(tmp_path: Path) -> None:
    directory = copy_tokenizer("saved_by_5", tmp_path)
    cut = {"max_length": 2, "direction": "Right", "strategy": "LongestFirst", "stride": 0}
    change(directory / "tokenizer.json", truncation=cut, normalizer={"type": "NFC"})
    needs("tokenizers", "tokenizers")
    assert len(Tokenizer.from_directory(directory).encode("the hen is hot")) > 2


# By tokenizer and file: other values, and words of the refusal.
REFUSED: dict[tuple[str, str], list[tuple[dict[str, Any], str]]] = {
    ("saved_by_5", "tokenizer.json"): [
        ({"model": 5}, "model must be an object; got 5"),
        ({"model__dropout": 0.1}, "makes ids random; got 0.1"),
        ({"model__vocab": []}, "vocabulary must be an object of symbols and ids; got []"),
        ({"decoder": None, "model__vocab": 5}, "an object of symbols and ids; got 5"),
        ({"model__vocab__Ġthe": "5"}, "the id of 'Ġthe' isn't an integer: '5'"),
        ({"model__merges": {}}, "merges must be a list; got {}"),
        ({"decoder": None, "model__merges": 5}, "merges must be a list; got 5"),
        ({"model__merges__0": "t h e"}, "whose concatenation is a third; got 't h e'"),
        ({"model__merges__0": ["t", "q"]}, "merge 1 must be"),
        ({"pre_tokenizer": "ByteLevel"}, "pre_tokenizer must be null or have a type"),
        ({"decoder": {}}, "decoder must be null or have a type; got {}"),
        (
            {"added_tokens": 5},
            "added_tokens must be a list of tokens with an id and content; got 5",
        ),
        ({"added_tokens__0__id": -1}, "tokens with an id and content; got [{"),
        (
            {"added_tokens__0__content": "\ud800"},
            "added_tokens must be a list of tokens with an id",
        ),
        ({"added_tokens__0__id": 99}, "the added token '<|endoftext|>' has id 99, but must have"),
        ({"added_tokens__1__id": 400}, "'<|pad|>' has id 400, but must have 301"),
        ({"post_processor": {"type": "TemplateProcessing"}}, "post_processor can't be read"),
        ({"post_processor": around(["300"])}, "post_processor can't be read"),
        ({"post_processor": around("30")}, "post_processor can't be read"),
    ],
    ("two_files", "tokenizer_config.json"): [
        ({"add_prefix_space": 1}, "add_prefix_space must be true or"),
        ({"add_bos_token": "yes"}, "add_bos_token must be true or false"),
        ({"bos_token": 5}, "bos_token must be a string or an object with content"),
        ({"tokenizer_class": "CLIPTokenizer"}, "'CLIPTokenizer' requires"),
        ({"added_tokens_decoder": {"x": {}}}, "decoder can't be read"),
        ({"added_tokens_decoder": {"301": {}}}, "must have an id and"),
    ],
    ("two_files", "added_tokens.json"): [
        ({"<|pad|>": 303}, "'<|pad|>' has id 303, but must have"),
        ({"!": 301}, "the added token '!' has id 301, but must have"),
        ({"<|pad|>": "301"}, "must have an id and content"),
    ],
    ("two_files", "special_tokens_map.json"): [
        ({"pad_token": {"id": 1}}, "pad_token must be a string or")
    ],
    ("two_files", "config.json"): [
        ({"tokenizer_class": "XLNetTokenizer"}, "'XLNetTokenizer' requires a")
    ],
    ("two_files", "vocab.json"): [({"Ġthe": 0}, "'!' and 'Ġthe' have the same id, 0")],
}


@pytest.mark.parametrize(
    ("name", "file", "values", "message"),
    [(*place, *case) for place, cases in REFUSED.items() for case in cases],
)
def test_damaged_settings(
    tmp_path: Path, name: str, file: str, values: dict[str, object], message: str
) -> None:
    directory = copy_tokenizer(name, tmp_path)
    change(directory / file, **values)
    assert message in refusal(directory)


def test_changes_that_transformers_ignores(tmp_path: Path) -> None:
    """Merges as text, other line endings, and files that another one overrides."""
    for name, file, content in (
        ("saved_by_4", "vocab.json", "{}"),
        ("saved_by_4", "merges.txt", "no merges"),
        ("saved_by_5", "vocab.json", '{"a": 0}'),
        ("two_files", "merges.txt", "\r\n"),
        ("two_files", "merges.txt", "\r"),
    ):
        directory = copy_tokenizer(name, tmp_path / str(hash(content)))
        if name == "two_files":
            content = (directory / file).read_text(encoding="utf-8").replace("\n", content)
        (directory / file).write_bytes(content.encode())
        assert Tokenizer.from_directory(directory).settings == open_(name).settings, content
    merges = open_("saved_by_5").settings["model"]["merges"]
    for name, file, values in (
        ("saved_by_4", "special_tokens_map.json", {"pad_token": "zzz"}),
        ("saved_by_5", "tokenizer.json", {"model__merges": [" ".join(pair) for pair in merges]}),
    ):
        directory = copy_tokenizer(name, tmp_path / file)
        change(directory / file, **values)
        assert Tokenizer.from_directory(directory).settings == open_(name).settings, file


@pytest.mark.parametrize("name", ["unigram", "digits"])
def test_models_unsupported_by_the_library_are_refused(tmp_path: Path, name: str) -> None:
    needs("tokenizers", "tokenizers")
    directory = copy_tokenizer(name, tmp_path)
    change(directory / "tokenizer.json", pre_tokenizer={"type": "Tiktokenizer"})
    assert "the tokenizers library can't read this tokenizer.json" in refusal(directory)
    assert "PreTokenizer" in refusal(directory)


@pytest.mark.parametrize(
    ("kept", "added", "message"),
    [
        (45, "x y", "merge 45 must be two tokens whose concatenation is a third; got 'x y'"),
        (45, "a b c", "merge 45 must be two tokens whose concatenation is a third; got 'a b c'"),
        (5, "", "40 tokens are neither bytes nor merged nor special"),
    ],
)
def test_damaged_merges(tmp_path: Path, kept: int, added: str, message: str) -> None:
    directory = copy_tokenizer("two_files", tmp_path)
    lines = (directory / "merges.txt").read_text(encoding="utf-8").split("\n")
    text = "\n".join([*lines[:kept], added])
    (directory / "merges.txt").write_text(text, encoding="utf-8")
    assert message in refusal(directory)


def test_special_tokens_need_no_merge(tmp_path: Path) -> None:
    directory = copy_tokenizer("two_files", tmp_path)
    change(directory / "vocab.json", **{"<s>": 301, "[X]": 302, "pad": 303})
    assert "1 tokens are neither bytes nor merged nor special" in refusal(directory)
    change(directory / "tokenizer_config.json", pad_token="pad")
    tokenizer = Tokenizer.from_directory(directory)
    assert tokenizer.tokens([301, 302, 303]).texts == ("<s>", "[X]", "pad")
    assert 301 not in tokenizer.encode("<s>pad", special=True)  # no file says that it is special
    assert 303 in tokenizer.encode("<s>pad", special=True)


def test_only_the_first_line_of_merges_is_a_heading(tmp_path: Path) -> None:
    """`#version` may be an ordinary token, and begin a merge."""
    letters = [*"#version:"]
    result = ["".join(letters[: n + 1]) for n in range(1, len(letters))]
    merges = [f"{whole[:-1]} {whole[-1]}" for whole in result]
    assert merges[-1] == "#version :"
    ids = open_("two_files").settings["model"]["vocab"]
    ids = {symbol: id for symbol, id in ids.items() if id < 256}
    ids |= {symbol: id for id, symbol in enumerate(result, start=256)}
    (tmp_path / "vocab.json").write_text(json.dumps(ids), encoding="utf-8")
    for heading in ("#version: 0.2\n", ""):
        (tmp_path / "merges.txt").write_text(heading + "\n".join(merges), encoding="utf-8")
        # GPT-2's pattern splits `#` from letters; unsplit, it would be one token.
        merged = Tokenizer.from_directory(tmp_path).settings["model"]["merges"]
        assert merged[-1] == ("#version", ":")
        assert len(merged) == 8


def test_original_names_of_gpt2s_files(tmp_path: Path) -> None:
    directory = REFERENCE / "tokenizers" / "two_files"
    for name, original in (("vocab.json", "encoder.json"), ("merges.txt", "vocab.bpe")):
        (tmp_path / original).write_bytes((directory / name).read_bytes())
    text = "the hen’s eggs"
    mine, expected = map(Tokenizer.from_directory, (tmp_path, directory))
    assert mine.encode(text) == expected.encode(text)
    (tmp_path / "vocab.bpe").unlink()
    with pytest.raises(MissingFileError, match=r"vocab\.bpe"):
        Tokenizer.from_directory(tmp_path)


@pytest.mark.parametrize("name", ["vocab.json", "merges.txt"])
def test_one_of_two_files_is_missing_or_unreadable(tmp_path: Path, name: str) -> None:
    directory = copy_tokenizer("two_files", tmp_path)
    (directory / name).write_bytes(b"\xff\xfe{")
    assert name in refusal(directory)
    (directory / name).unlink()
    with pytest.raises(MissingFileError, match=f"there is no {name}"):
        Tokenizer.from_directory(directory)


def test_invalid_word_lists(tmp_path: Path) -> None:
    directory = copy_tokenizer("bert", tmp_path)
    (directory / "vocab.txt").write_text("")
    assert "vocab.txt has no tokens" in refusal(directory)
    (directory / "vocab.txt").write_text("a\nb\n[UNK]\n[SEP]\n")
    assert "'[CLS]' is added to every text, but has no id" in refusal(directory)
    shutil.copy(REFERENCE / "tokenizers/bert_saved/tokenizer.json", directory)
    change(directory / "tokenizer.json", model__vocab=[])
    assert "a vocabulary must be an object of symbols and ids; got []" in refusal(directory)


def test_word_lists_need_no_tokenizer_class(tmp_path: Path) -> None:
    """The class selects one of two older formats; a single one needs no class."""
    needs("tokenizers", "tokenizers")
    directory = copy_tokenizer("bert", tmp_path)
    for name in ("vocab.json", "merges.txt"):
        shutil.copy(REFERENCE / "tokenizers/two_files" / name, directory)
    assert Tokenizer.from_directory(directory).settings == open_("bert").settings
    (directory / "tokenizer_config.json").unlink()
    assert Tokenizer.from_directory(directory).settings == open_("two_files").settings
    (directory / "vocab.json").unlink()
    (directory / "merges.txt").unlink()
    assert Tokenizer.from_directory(directory).settings == open_("bert").settings


def test_bert_settings_come_from_the_config(tmp_path: Path) -> None:
    """Not those in tokenizer.json, like transformers 4 and 5."""
    needs("tokenizers", "tokenizers")
    for name, setting, text, symbols in (
        ("bert_saved", {"do_lower_case": False}, "the RUNNING", "the RU ##NN ##ING"),
        ("bert", {"unk_token": None}, "猫", "猫"),
    ):
        directory = copy_tokenizer(name, tmp_path)
        change(directory / "tokenizer_config.json", **setting)
        tokens = Tokenizer.from_directory(directory).tokens(text)
        assert " ".join(tokens.symbols) == f"[CLS] {symbols} [SEP]"


def test_ids_of_special_tokens(tmp_path: Path) -> None:
    directory = copy_tokenizer("trained_fast", tmp_path)
    change(directory / "tokenizer_config.json", mask_token="<mask>")
    assert Tokenizer.from_directory(directory).encode("<mask>", special=True) == [303]
    directory = copy_tokenizer("two_files", tmp_path)
    change(directory / "tokenizer_config.json", add_bos_token=True)
    change(directory / "vocab.json", **{END_OF_TEXT: ...})
    assert "'<|endoftext|>' is added to every text, but has no id" in refusal(directory)


def test_merges_of_non_byte_symbols() -> None:
    needs("tokenizers", "tokenizers")
    model = {"type": "BPE", "continuing_subword_prefix": "##", "merges": ["a ##b"]}
    model |= {"vocab": {"a": 0, "##b": 1, "ab": 2}}
    settings = {"model": model, "pre_tokenizer": {"type": "Whitespace"}}
    assert Tokenizer(settings).tokens("ab a").symbols == ("ab", "a")


def test_very_many_added_tokens(tmp_path: Path) -> None:
    """Numbered in linear, not quadratic, time."""
    directory = copy_tokenizer("two_files", tmp_path)
    added = {f"<{n}>": 301 + n for n in range(5_000)}
    (directory / "added_tokens.json").write_text(json.dumps(added))
    tokenizer = Tokenizer.from_directory(directory)
    assert tokenizer.encode("a<4999>")[1:] == [5_300]


def test_invalid_directories(tmp_path: Path) -> None:
    for value in (5, None, "\0", ""):
        with pytest.raises(AttnlabError):
            Tokenizer.from_directory(value)
    with pytest.raises(MissingFileError):
        Tokenizer.from_directory(tmp_path / "nowhere")
    with pytest.raises(MissingFileError, match=r"neither tokenizer\.json, nor.*save_pretrained"):
        Tokenizer.from_directory(tmp_path)
