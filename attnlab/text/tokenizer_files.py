"""Read a model's tokenizer files into the structure of `tokenizer.json`.

A `tokenizer.json` of the tokenizers library has the keys "model", "added_tokens", "normalizer",
"pre_tokenizer", "post_processor" and "decoder". Without this file, the vocabulary is read from
`vocab.json` and `merges.txt`, or from BERT's `vocab.txt`. `tokenizer_config.json`,
`special_tokens_map.json` and `added_tokens.json` change the settings as in transformers.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from attnlab.errors import MissingFileError, VocabularyError, quoted
from attnlab.support.checks import check_kind
from attnlab.support.files import read_json, read_text
from attnlab.support.formats import CONFIG
from attnlab.text.bpe import (
    TIKTOKEN_PIECES,
    WORD_PIECE_DEFAULTS,
    Merges,
    invalid_merge,
    is_byte_level,
    merges_of_ranks,
)
from attnlab.text.tokens import BYTES, END_OF_TEXT

JsonObject = dict[str, Any]
SpecialTokens = Mapping[str, Sequence[JsonObject]]

# Classes of transformers that modify the files' settings, and the classes' default special tokens.
# Files without a class have GPT-2's.
GPT2_CLASSES = ("GPT2Tokenizer", "GPT2TokenizerFast")
GPT2_SPECIAL: Mapping[str, str] = dict.fromkeys(
    ("bos_token", "eos_token", "unk_token"), END_OF_TEXT
)
BERT_CLASSES = ("BertTokenizer", "BertTokenizerFast")
BERT_SPECIAL: Mapping[str, str] = {
    "unk_token": "[UNK]",
    "sep_token": "[SEP]",
    "pad_token": "[PAD]",
    "cls_token": "[CLS]",
    "mask_token": "[MASK]",
}

# Names of special tokens, in the order in which those without an id get an id.
SPECIAL = (
    *("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"),
    *("additional_special_tokens", "extra_special_tokens"),
)
TOKEN_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")

# Matches tokens that are probably special, in a vocabulary that doesn't mark special tokens.
LOOKS_SPECIAL = r"<.*>|\[.*\]"

# Keys of a `tokenizer.json` whose value is null or an object with a "type".
PARTS = ("normalizer", "pre_tokenizer", "post_processor", "decoder")
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}

# The settings that go with `vocab.json` and `merges.txt` (BYTE_PAIRS) and with `vocab.txt`.
BYTE_PAIRS: JsonObject = {"pre_tokenizer": BYTE_LEVEL, "decoder": BYTE_LEVEL}
WORD_PIECES: JsonObject = {
    "normalizer": {"type": "BertNormalizer", "clean_text": True},
    "pre_tokenizer": {"type": "BertPreTokenizer"},
    "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
    "model": {"type": "WordPiece", **WORD_PIECE_DEFAULTS},
}

# tiktoken and the tokenizers library store ids in 32 bits.
MAX_IDS = 2**32 - 1

# The original names of vocab.json and merges.txt.
OPENAI = ("encoder.json", "vocab.bpe")

HOW_TO_CONVERT = (
    "In transformers, AutoTokenizer.from_pretrained(DIRECTORY).save_pretrained(DIRECTORY) "
    "writes one"
)


class Settings(dict[str, Any]):
    """The content of a valid `tokenizer.json`, as returned by `check_settings`."""

    merges: Merges | None = None  # None if the tokenizer isn't byte-level


def has_tokenizer_files(directory: Path) -> bool:
    """Whether a directory has any tokenizer file, valid or not."""
    files = ("tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt", "vocab.txt")
    return any(_exists(directory, name) for name in (*files, *OPENAI))


def check_settings(settings: Any) -> Settings:
    """Check the content of a `tokenizer.json` and fill in defaults."""
    if isinstance(settings, Settings):
        return settings
    check_kind(settings, Mapping, "settings", "the content of a tokenizer.json, a dict")
    parts = {name: settings.get(name) for name in PARTS}
    for name, part in parts.items():
        if not (part is None or (isinstance(part, dict) and isinstance(part.get("type"), str))):
            raise VocabularyError(f"{name} must be null or have a type; got {quoted(part)}")
    model = settings.get("model")
    if not isinstance(model, dict):
        raise VocabularyError(f"model must be an object; got {quoted(model)}")
    if model.get("dropout"):
        raise VocabularyError(
            f"model.dropout must be null, since it makes ids random; got {quoted(model['dropout'])}"
        )
    added = settings.get("added_tokens") or []
    if not isinstance(added, list) or not all(map(_is_added_token, added)):
        raise VocabularyError(
            f"added_tokens must be a list of tokens with an id and content; got {quoted(added)}"
        )
    result = Settings(
        version="1.0",
        **parts,
        # Old files don't name the model's type, so it gets a default; `| model` overrides that.
        model={"type": "BPE" if "merges" in model else None} | model,
        added_tokens=[dict.fromkeys(TOKEN_FLAGS, False) | token for token in added],
    )
    model_type = result["model"]["type"]
    if model_type in ("BPE", "WordPiece", "WordLevel"):
        _check_vocabulary(model.get("vocab"))
    if model_type == "BPE":
        result["model"]["merges"] = pairs = _pairs(model.get("merges"))
        if is_byte_level(result):
            result.merges = Merges(model["vocab"], pairs)
    return result


def _is_added_token(token: object) -> bool:
    return (
        isinstance(token, dict)
        and _is_text(token.get("content"))
        and type(token.get("id")) is int
        and 0 <= token["id"] < MAX_IDS
    )


def _is_text(value: object) -> bool:
    """Whether a value is a str without an unpaired surrogate."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_vocabulary(ids: object) -> None:
    """Raise unless `ids` maps symbols to distinct ids."""
    if not isinstance(ids, dict):
        raise VocabularyError(
            f"a vocabulary must be an object of symbols and ids; got {quoted(ids)}"
        )
    if not ids:
        raise VocabularyError("a vocabulary needs at least one token; got none")
    # `type`, since a bool is an instance of int. JSON's keys are strings, but a user's may not be.
    for symbol, id in ids.items():
        if type(symbol) is not str or type(id) is not int:
            raise VocabularyError(f"the id of {quoted(symbol)} isn't an integer: {quoted(id)}")
    for id in (min(ids.values()), max(ids.values())):
        if not 0 <= id < MAX_IDS:
            symbol = next(symbol for symbol in ids if ids[symbol] == id)
            raise VocabularyError(f"the id of {quoted(symbol)}, {id}, doesn't fit in 32 bits")
    if len(set(ids.values())) < len(ids):
        repeated = Counter(ids.values()).most_common(1)[0][0]
        first, second = [quoted(symbol) for symbol, id in ids.items() if id == repeated][:2]
        raise VocabularyError(f"{first} and {second} have the same id, {repeated}")
    if not _is_text("".join(ids)):
        raise VocabularyError("a token has an unpaired surrogate, which isn't text")


def _pairs(merges: object) -> list[tuple[str, str]]:
    """Convert merges to pairs; a merge is a pair, or a str of two symbols and a space."""
    if not isinstance(merges, Sequence):
        raise VocabularyError(f"merges must be a list; got {quoted(merges)}")
    pairs: list[tuple[str, str]] = []
    for merge in merges:
        try:
            first, second = merge.split(" ") if isinstance(merge, str) else merge
        except (TypeError, ValueError):
            raise invalid_merge(len(pairs) + 1, merge) from None
        pairs.append((first, second))
    return pairs


def read_settings(directory: Path) -> Settings:
    """Read a tokenizer's settings from the files in a directory."""
    config = _read(directory, "tokenizer_config.json")
    tokenizer_class = config.get("tokenizer_class")
    if not tokenizer_class:
        tokenizer_class = _read(directory, CONFIG).get("tokenizer_class")
    is_legacy = not _exists(directory, "tokenizer.json")  # there are only older files, vocab.json …
    # In transformers, a tokenizer.json alone is complete. If there is a config, GPT2Tokenizer
    # changes some of its settings.
    is_complete = not (is_legacy or config or _exists(directory, CONFIG))
    if is_legacy:
        settings = _read_legacy_files(directory, tokenizer_class)
    else:
        settings = check_settings(read_json(directory / "tokenizer.json", VocabularyError))
    is_bert = (  # the class decides, but without a tokenizer.json the vocabulary's format
        settings["model"]["type"] == "WordPiece" if is_legacy else tokenizer_class in BERT_CLASSES
    )
    is_gpt2 = not is_bert and tokenizer_class in (None, *GPT2_CLASSES)

    defaults = BERT_SPECIAL if is_bert else GPT2_SPECIAL if is_gpt2 else {}
    special = _special_tokens(directory, config, defaults)
    by_content = {token["content"]: token for tokens in special.values() for token in tokens}
    added = settings["added_tokens"] + _more_added_tokens(directory, config, by_content)
    settings["added_tokens"] = _with_ids(settings["model"], added, by_content, defaults.values())
    if is_bert:
        _apply_bert_config(settings, config, special, is_legacy)
    if is_gpt2 and not is_complete:
        _apply_gpt2_config(settings, config, special, is_legacy)
    if is_legacy and not is_bert:
        _check_merges_complete(settings)
    return settings


def _read_legacy_files(directory: Path, tokenizer_class: str | None) -> Settings:
    """Read settings from older files; if both formats exist, the class decides."""
    is_openai = not _exists(directory, "vocab.json") and _exists(directory, OPENAI[0])
    vocab, merges = OPENAI if is_openai else ("vocab.json", "merges.txt")
    has_byte_pairs = _exists(directory, vocab) or _exists(directory, merges)
    has_word_pieces = _exists(directory, "vocab.txt")
    if not has_byte_pairs and not has_word_pieces:
        raise MissingFileError(
            f"there is no tokenizer in {directory}: neither tokenizer.json, nor vocab.json and "
            f"merges.txt, nor vocab.txt. {HOW_TO_CONVERT}"
        )
    if tokenizer_class not in (None, *GPT2_CLASSES, *BERT_CLASSES):
        raise VocabularyError(
            f"tokenizer_class {quoted(tokenizer_class)} requires a tokenizer.json. {HOW_TO_CONVERT}"
        )
    if has_word_pieces and (tokenizer_class in BERT_CLASSES or not has_byte_pairs):
        return _read_word_pieces(directory / "vocab.txt")
    return _read_byte_pairs(directory / vocab, directory / merges)


def _read_byte_pairs(vocab: Path, merges: Path) -> Settings:
    """Read GPT-2's vocabulary from two files; other settings are the defaults."""
    ids = read_json(vocab, VocabularyError)
    lines = read_text(merges, VocabularyError).split("\n")
    if lines[0].startswith("#version"):  # another line that starts so is a merge
        lines[0] = ""
    try:
        return byte_pair_settings(ids, [*filter(None, lines)])
    except VocabularyError as error:
        raise VocabularyError(f"{vocab} and {merges.name}: {error}") from None


def byte_pair_settings(ids: object, merges: object) -> Settings:
    """GPT-2's settings with the given vocabulary and merges."""
    added = []
    if isinstance(ids, dict) and END_OF_TEXT in ids:
        added = [{"id": ids[END_OF_TEXT], "content": END_OF_TEXT, "special": True}]
    return check_settings(
        BYTE_PAIRS
        | {"added_tokens": added, "model": {"type": "BPE", "vocab": ids, "merges": merges}}
    )


def tiktoken_settings(encoding: Any) -> Settings:
    """GPT-2's settings with the vocabulary of a tiktoken.Encoding."""
    if encoding._pat_str not in TIKTOKEN_PIECES:
        raise VocabularyError(
            f"the tiktoken encoding {quoted(encoding.name)} splits texts by another pattern than "
            "GPT-2's, which isn't supported. tiktoken.get_encoding('gpt2') has GPT-2's"
        )
    ids, merges = merges_of_ranks(encoding._mergeable_ranks)
    special = encoding._special_tokens
    settings = byte_pair_settings(ids | special, merges)
    added = [{"id": id, "content": token, "special": True} for token, id in special.items()]
    return check_settings({**settings, "added_tokens": added})


def _read_word_pieces(path: Path) -> Settings:
    """BERT's settings with a vocabulary of one token per line."""
    lines = read_text(path, VocabularyError).split("\n")
    tokens = lines[:-1] if lines[-1] == "" else lines  # without what follows the last line break
    ids = {token: id for id, token in enumerate(tokens)}
    if not ids:
        raise VocabularyError(f"{path} has no tokens")
    return check_settings({**WORD_PIECES, "model": {**WORD_PIECES["model"], "vocab": ids}})


def _special_tokens(
    directory: Path, config: JsonObject, defaults: Mapping[str, str]
) -> dict[str, list[JsonObject]]:
    """The special tokens by name, such as eos_token."""
    entries = dict(config)
    if "added_tokens_decoder" not in config:
        entries |= _read(directory, "special_tokens_map.json")
    special = {}
    for name in SPECIAL:
        value = entries.get(name, defaults.get(name))
        if isinstance(value, dict) and "content" not in value:  # a dict of extra_special_tokens
            value = list(value.values())
        tokens = value if isinstance(value, list) else [value]
        special[name] = [_token(token, name) for token in tokens if token is not None]
    return special


def _token(value: object, name: str) -> JsonObject:
    """Convert a special token to an added token without an id."""
    token = {"content": value} if isinstance(value, str) else value
    if not isinstance(token, dict) or not _is_text(token.get("content")):
        raise VocabularyError(
            f"{name} must be a string or an object with content; got {quoted(value)}"
        )
    flags = {flag: token[flag] for flag in TOKEN_FLAGS if flag in token}
    return {"content": token["content"], **flags, "special": True}


def _with_ids(
    model: JsonObject,
    tokens: Sequence[JsonObject],
    special: Mapping[str, JsonObject],
    defaults: Collection[str],
) -> list[JsonObject]:
    """Return all added tokens with ids: first `tokens`, then special tokens, which may lack ids.

    As in transformers, tokens that aren't in the vocabulary get the next ids after the vocabulary;
    files with other ids are rejected. A class's default special tokens are left out if the
    vocabulary doesn't have them.
    """
    ids = dict(_ids(model))
    next_id = len(ids)
    added: dict[str, JsonObject] = {}

    def add(token: JsonObject) -> None:
        nonlocal next_id
        id = ids.setdefault(token["content"], next_id)
        next_id = max(next_id, id + 1)
        if token.get("id", id) != id:
            raise VocabularyError(
                f"the added token {quoted(token['content'])} has id {token['id']}, but must "
                f"have {id}, the next id after the vocabulary"
            )
        added[token["content"]] = dict.fromkeys(TOKEN_FLAGS, False) | token | {"id": id}

    for token in tokens:
        add(token)
    for content, token in special.items():
        if content in ids:
            add(added.get(content, token) | {"special": True})
    without_id = [token for content, token in special.items() if content not in ids]
    # If a token that isn't a default gets a new id, the defaults get ids, too.
    if any(token["content"] not in defaults for token in without_id):
        for token in without_id:
            add(token)
    return list(added.values())


def _more_added_tokens(
    directory: Path, config: JsonObject, special: Collection[str]
) -> list[JsonObject]:
    """Added tokens in files other than tokenizer.json, in the order of their ids."""
    decoder = config.get("added_tokens_decoder")
    if decoder is None:
        tokens = [
            {
                "content": content,
                "id": id,
                "special": content in special,
                "normalized": content not in special,
            }
            for content, id in _read(directory, "added_tokens.json").items()
        ]
    else:
        try:
            tokens = [{**token, "id": int(id)} for id, token in decoder.items()]
        except (AttributeError, TypeError, ValueError):
            raise VocabularyError(
                f"added_tokens_decoder can't be read: {quoted(decoder)}"
            ) from None
    for token in tokens:
        if not _is_added_token(token):
            raise VocabularyError(
                f"an added token must have an id and content; got {quoted(token)}"
            )
    return sorted(tokens, key=lambda token: token["id"])


def _ids(model: JsonObject) -> dict[str, int]:
    """Symbols and ids of a model's vocabulary, which is a list in a Unigram model."""
    vocabulary = model.get("vocab")
    if isinstance(vocabulary, list):
        pieces = [entry[0] for entry in vocabulary if isinstance(entry, list) and entry]
        return {piece: id for id, piece in enumerate(pieces) if isinstance(piece, str)}
    return vocabulary if isinstance(vocabulary, dict) else {}


def _apply_gpt2_config(
    settings: Settings, config: JsonObject, special: SpecialTokens, is_legacy: bool
) -> None:
    """Apply settings that GPT2Tokenizer reads only from tokenizer_config.json."""
    pre_tokenizer = settings["pre_tokenizer"]
    if pre_tokenizer is not None and pre_tokenizer["type"] == "ByteLevel":
        add_prefix_space = _flag(config, "add_prefix_space", False)
        settings["pre_tokenizer"] = pre_tokenizer | {"add_prefix_space": add_prefix_space}
    if is_legacy:
        prefix = special["bos_token"] if _flag(config, "add_bos_token", False) else []
        suffix = special["eos_token"] if _flag(config, "add_eos_token", False) else []
        settings["post_processor"] = _template(settings, prefix, suffix)


def _apply_bert_config(
    settings: Settings, config: JsonObject, special: SpecialTokens, is_legacy: bool
) -> None:
    """Apply settings that BertTokenizer reads only from tokenizer_config.json."""
    normalizer = settings["normalizer"]
    if normalizer is not None and normalizer["type"] == "BertNormalizer":
        settings["normalizer"] = normalizer | {
            "handle_chinese_chars": _flag(config, "tokenize_chinese_chars", True),
            "strip_accents": _flag(config, "strip_accents", None),
            "lowercase": _flag(config, "do_lower_case", True),
        }
    if is_legacy:
        for token in special["unk_token"]:  # one token, or none
            settings["model"]["unk_token"] = token["content"]
        settings["post_processor"] = _template(settings, special["cls_token"], special["sep_token"])


def _flag(config: JsonObject, name: str, default: bool | None) -> bool | None:
    value = config.get(name)
    if value is not None and not isinstance(value, bool):
        raise VocabularyError(f"{name} must be true or false; got {quoted(value)}")
    return default if value is None else value


def _template(
    settings: Settings, prefix: Sequence[JsonObject], suffix: Sequence[JsonObject]
) -> JsonObject | None:
    """The post_processor that adds tokens before and after every text, or None."""
    contents = [token["content"] for token in (*prefix, *suffix)]
    ids = {token["content"]: token["id"] for token in settings["added_tokens"]}
    if missing := [content for content in contents if content not in ids]:
        raise VocabularyError(f"{quoted(missing[0])} is added to every text, but has no id")
    if not contents:
        return None
    pieces = [{"SpecialToken": {"id": content, "type_id": 0}} for content in contents]
    pieces.insert(len(prefix), {"Sequence": {"id": "A", "type_id": 0}})
    return {
        "type": "TemplateProcessing",
        "single": pieces,
        "pair": [*pieces, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {
            content: {"id": content, "ids": [ids[content]], "tokens": [content]}
            for content in contents
        },
    }


def _check_merges_complete(settings: Settings) -> None:
    """Raise if the list of merges seems truncated."""
    ids, merges = settings["model"]["vocab"], settings.merges
    assert merges is not None
    merged = set(merges.merge_ids[:, 2].tolist())
    unmerged = BYTES.keys() | {token["content"] for token in settings["added_tokens"]}
    unexplained = [
        symbol
        for symbol, id in ids.items()
        if id not in merged
        and symbol not in unmerged
        and not re.fullmatch(LOOKS_SPECIAL, symbol, re.DOTALL)
    ]
    if unexplained:
        raise VocabularyError(
            f"{len(unexplained)} tokens are neither bytes nor merged nor special, such as "
            f"{quoted(min(unexplained))}; merges.txt may be truncated"
        )


def _exists(directory: Path, name: str) -> bool:
    return os.path.exists(directory / name)


def _read(directory: Path, name: str) -> JsonObject:
    """Read a JSON file; an empty dict if it doesn't exist."""
    return read_json(directory / name, VocabularyError) if _exists(directory, name) else {}
