"""Make the small tokenizers, and record what transformers 4 and 5 do with them.

    python tests/reference/make_tokenizers.py make      with 4 and with 5: writes tokenizers/
    python tests/reference/make_tokenizers.py record    with 4 and with 5: writes tokenizers.json

Each directory is one form of a GPT-2 tokenizer on disk.
"""

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}

import transformers
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import AutoTokenizer

HERE = Path(__file__).parent / "tokenizers"
RECORDED = HERE.with_suffix(".json")
VERSION = transformers.__version__.split(".")[0]
END = "<|endoftext|>"

TEXTS = [
    "",
    " ",
    "It's very hot. I'll swim, they've swum!",
    " leading and  two  spaces\tand\ttabs\n\nlines \r\n ",
    "12345 67, 3.14 and ½ Ⅷ",
    "naïve café — “quotes” it’s ﬁne",
    "猫吃鱼，很好。今天 天气",
    "🎉👨‍👩‍👧 e\u0301\x1cx\x85y\u3000z\u200b",
    f"a{END} b<|pad|>c  <s>the</s> {END}{END}",
    "<|im_start|>user\nhot dog hotdog <|im_end|>",
    "中文 the hen hens <m> x <m><M>",
    "[CLS] the Unaffable [MASK] RUNNING [SEP]",
]
CORPUS = [*TEXTS[2:8], *["the hen in the thin inn is very hot and they swim"] * 3]


def trained(tokenizer: Tokenizer, **settings: object) -> Tokenizer:
    trainer = trainers.BpeTrainer(show_progress=False, **settings)
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def byte_pairs(special: tuple[str, ...] = (), cut: object = None) -> Tokenizer:
    """A byte-level BPE as GPT-2's; `special` come before the bytes."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = cut or pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return trained(
        tokenizer,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        vocab_size=300 + len(special),
        special_tokens=list(special),
    )


class Directory:
    """A directory of one tokenizer, empty at first."""

    def __init__(self, name: str) -> None:
        self.path = HERE / name
        shutil.rmtree(self.path, ignore_errors=True)
        self.path.mkdir(parents=True)

    def write(self, name: str, value: object) -> "Directory":
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        (self.path / name).write_text(f"{text.rstrip()}\n", encoding="utf-8")
        return self

    def two_files(self) -> "Directory":
        """`vocab.json` and `merges.txt`, with the end of text after the merges."""
        model = json.loads(byte_pairs().to_str())["model"]
        vocabulary = model["vocab"] | {END: len(model["vocab"])}
        merges = "\n".join(" ".join(pair) for pair in model["merges"])
        return self.write("vocab.json", vocabulary).write("merges.txt", f"#version: 0.2\n{merges}")

    def tokenizer_json(self, tokenizer: Tokenizer) -> "Directory":
        return self.write("tokenizer.json", json.loads(tokenizer.to_str()))

    def config(self, **settings: object) -> "Directory":
        return self.write("tokenizer_config.json", settings)


def make() -> None:
    # As each version writes it, with a padding token and two other added tokens.
    with tempfile.TemporaryDirectory() as scratch:
        saved = Directory(f"saved_by_{VERSION}")
        for file in Directory("two_files").two_files().path.iterdir():
            shutil.copy(file, scratch)
        (Path(scratch) / "config.json").write_text('{"model_type": "gpt2"}')
        tokenizer = AutoTokenizer.from_pretrained(scratch)
        tokenizer.add_special_tokens({"pad_token": "<|pad|>"})
        tokenizer.add_tokens(["hot dog", "中文"])
        tokenizer.save_pretrained(saved.path)
        for name in ("tokenizer.json", "tokenizer_config.json", "vocab.json"):
            if (saved.path / name).exists():  # in one line
                saved.write(name, json.loads((saved.path / name).read_text(encoding="utf-8")))
    if VERSION == "4":
        return

    Directory("prefix_space").two_files().config(add_prefix_space=True)
    Directory("bos").two_files().config(add_bos_token=True, add_prefix_space=True)
    Directory("bos_and_eos").two_files().config(add_bos_token=True, add_eos_token=True)
    end = byte_pairs().get_vocab_size()
    Directory("added").two_files().write(
        "added_tokens.json",
        {"b<|": end + 4, "<|pad|>": end + 1, "hot dog": end + 2, "中文": end + 3},
    ).write("special_tokens_map.json", {"pad_token": "<|pad|>", "bos_token": {"content": END}})
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    Directory("added_in_config").two_files().config(
        additional_special_tokens=["<|im_start|>", "<|im_end|>"],
        added_tokens_decoder={
            end: {"content": END, **flags, "special": True},
            end + 1: {"content": "<|im_start|>", **flags, "special": True},
            end + 2: {"content": "<|im_end|>", **flags, "special": True},
            end + 3: {"content": "hotdog", **flags, "special": False},
            end + 4: {"content": "hot d", **flags, "special": False},
            end + 5: {"content": "hot dog", **flags, "special": False},
            # Matched after the others, because it contains part of them.
            end + 6: {"content": "a<|", **flags | {"normalized": True}, "special": False},
        },
    )
    Directory("named").two_files().config(pad_token="<|pad|>", mask_token="<m>")

    # Special tokens first, as the tokenizers library trains them. GPT2Tokenizer, the default class,
    # doesn't read add_prefix_space from tokenizer.json.
    special = ("<s>", "<|pad|>", "</s>")
    space = pre_tokenizers.ByteLevel(add_prefix_space=True)
    Directory("trained").tokenizer_json(byte_pairs(special, cut=space))
    Directory("trained_fast").tokenizer_json(byte_pairs(special, cut=space)).config(
        tokenizer_class="PreTrainedTokenizerFast", bos_token="<s>", pad_token="<|pad|>"
    )
    around = byte_pairs(special)
    around.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    Directory("template").tokenizer_json(around).config(tokenizer_class="PreTrainedTokenizerFast")

    # Tokenizers that need the tokenizers library.
    fast = {"tokenizer_class": "PreTrainedTokenizerFast"}
    lower = byte_pairs(special)
    lower.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])
    Directory("normalized").tokenizer_json(lower).config(**fast)
    digits = [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(False)]
    Directory("digits").tokenizer_json(byte_pairs(cut=pre_tokenizers.Sequence(digits))).config(
        **fast
    )
    stripped = byte_pairs()
    stripped.add_special_tokens([AddedToken("<m>", lstrip=True, rstrip=True)])
    stripped.add_tokens([AddedToken("hen", single_word=True)])
    Directory("stripped").tokenizer_json(stripped).config(**fast)
    scores = {
        "<unk>": 0.0,
        "<s>": 0.0,
        "</s>": 0.0,
        "▁": -2.0,
        "▁the": -3.0,
        "▁he": -3.5,
        "hen": -4.0,
    }
    scores |= {character: -6.0 - i / 10 for i, character in enumerate("aehinotsv'.,I猫吃鱼éï😀")}
    pieces = Tokenizer(models.Unigram([*scores.items()], unk_id=0))
    pieces.pre_tokenizer, pieces.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    pieces.add_special_tokens(["<unk>", "<s>", "</s>"])
    Directory("unigram").tokenizer_json(pieces).config(**fast)
    meta = Tokenizer(models.BPE(unk_token="<unk>"))
    by_digit = pre_tokenizers.Split(Regex(r"\d"), "isolated")
    meta.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Metaspace(), by_digit])
    meta.decoder = decoders.Metaspace()
    trained(meta, vocab_size=160, special_tokens=["<unk>", "<s>", "</s>"])
    Directory("metaspace").tokenizer_json(meta).config(**fast)

    # BERT's tokenizer over a GPT-2, one Chinese character a token.
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words += [*"猫吃鱼很好今天气中文，。.,'!-abcdehinost", "the", "hen", "hot", "it", "very"]
    words += ["una", "##ff", "##able", "##s", "RU", "##NN", "##ING", "run", "##ning"]
    words += ["naive", "café", "12", "##34", "##5"]
    bert = {"tokenizer_class": "BertTokenizer"}
    Directory("bert").write("vocab.txt", "\n".join(words)).config(**bert)
    words[1] = "<unk>"
    Directory("bert_cased").write("vocab.txt", "\n".join(words)).config(
        **bert,
        do_lower_case=False,
        strip_accents=True,
        tokenize_chinese_chars=False,
        unk_token="<unk>",
    )
    with tempfile.TemporaryDirectory() as scratch:
        shutil.copytree(HERE / "bert", scratch, dirs_exist_ok=True)
        saved = Directory("bert_saved")
        AutoTokenizer.from_pretrained(scratch).save_pretrained(saved.path)
        for file in saved.path.iterdir():
            saved.write(file.name, json.loads(file.read_text(encoding="utf-8")))


def record() -> None:
    recorded = json.loads(RECORDED.read_text(encoding="utf-8")) if RECORDED.exists() else {}
    mine = {}
    for directory in sorted(HERE.iterdir()):
        with tempfile.TemporaryDirectory() as scratch:
            shutil.copytree(directory, scratch, dirs_exist_ok=True)
            (Path(scratch) / "config.json").write_text('{"model_type": "gpt2"}')
            tokenizer = AutoTokenizer.from_pretrained(scratch)
        values = []
        for text in TEXTS:
            ids = tokenizer(text)["input_ids"]
            plain = tokenizer(text, split_special_tokens=True)["input_ids"]
            decoded = tokenizer.decode(ids, clean_up_tokenization_spaces=False)
            values.append([ids, None if plain == ids else plain, decoded])
        mine[directory.name] = {"tokens": len(tokenizer), "values": values}
    recorded |= {"texts": TEXTS, f"transformers {VERSION}": transformers.__version__, VERSION: mine}
    if {"4", "5"} <= recorded.keys():  # of version 4, only what differs from version 5
        newer = recorded["5"]
        recorded["4"] = {name: it for name, it in recorded["4"].items() if it != newer.get(name)}
    RECORDED.write_text(f"{json.dumps(recorded)}\n", encoding="utf-8")


if __name__ == "__main__":
    {"make": make, "record": record}[sys.argv[1]]()
