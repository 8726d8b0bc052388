"""A model's tokenizer files, brought to one form: what `tokenizer.json` holds.

That is "model", "added_tokens", "normalizer", "pre_tokenizer", "post_processor" and "decoder", as
the tokenizers library writes them. Older models have `vocab.json` and `merges.txt`, or BERT's
`vocab.txt`, instead of it or beside it. What `tokenizer_config.json`, `special_tokens_map.json` and
`added_tokens.json` change in that is taken as transformers takes it.
"""

from __future__ import annotations

import gc
import os
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import Any

from attnlab.errors import InvalidTypeError, MissingFileError, VocabularyError, quoted
from attnlab.support.files import read_json, read_text
from attnlab.text.bpe import Merges, is_byte_level, no_merge
from attnlab.text.tokens import BYTES, END_OF_TEXT

JsonObject = dict[str, Any]
Special = Mapping[str, Sequence[JsonObject]]

# Classes of transformers that change what the files say, and the special tokens that each has
# without being told. A model that names no class has GPT-2's.
GPT2_CLASSES = ("GPT2Tokenizer", "GPT2TokenizerFast")
GPT2_SPECIAL = dict.fromkeys(("bos_token", "eos_token", "unk_token"), END_OF_TEXT)
BERT_CLASSES = ("BertTokenizer", "BertTokenizerFast")
BERT_SPECIAL = {
    "unk_token": "[UNK]",
    "sep_token": "[SEP]",
    "pad_token": "[PAD]",
    "cls_token": "[CLS]",
    "mask_token": "[MASK]",
}

# How special tokens are named, in the order in which those that have no id get one.
SPECIAL = (
    *("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"),
    *("additional_special_tokens", "extra_special_tokens"),
)
FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")

# What a special token looks like in a vocabulary that does not tell which are special.
SPECIAL_LOOK = re.compile(r"<.*>|\[.*\]", re.DOTALL)

PARTS = ("normalizer", "pre_tokenizer", "post_processor", "decoder")
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}

# tiktoken and the tokenizers library count ids in 32 bits.
MOST_IDS = 2**32 - 1

SENTENCE_PIECE = ("tokenizer.model", "spiece.model", "sentencepiece.bpe.model")
HOW_TO_SAVE = (
    "Where transformers trained the model, tokenizer.save_pretrained(DIRECTORY) writes one"
)
HOW_TO_CONVERT = (
    "transformers writes one: AutoTokenizer.from_pretrained(DIRECTORY).save_pretrained(DIRECTORY)"
)


class Settings(dict[str, Any]):
    """What a `tokenizer.json` holds, once it is known to be usable. `checked` makes it.

    Attributes
    ----------
    merges : the byte pairs; None where symbols don't stand for bytes
    """

    merges: Merges | None = None


def read_settings(directory: Path) -> Settings:
    """What a directory's files say about its tokenizer."""
    try:
        with _without_garbage_collection():
            return _read_settings(directory)
    except VocabularyError as error:
        if str(directory) in str(error):
            raise
        raise VocabularyError(f"tokenizer in {directory}: {error}") from None


def holds_tokenizer(directory: Path) -> bool:
    """Whether a directory has any of a tokenizer's files, whether or not they can be used."""
    files = ("tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt", "vocab.txt")
    return any(_is_there(directory, name) for name in (*files, *SENTENCE_PIECE))


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Pause garbage collection: 100,000 pairs are made here, and none of them is garbage."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def checked(settings: object) -> Settings:
    """What a `tokenizer.json` holds, once what is read of it here is known to be usable."""
    if isinstance(settings, Settings):
        return settings
    if not isinstance(settings, Mapping):
        raise InvalidTypeError(
            f"a tokenizer is made of what tokenizer.json holds, a dict; got {quoted(settings)}"
        )
    parts = {name: settings.get(name) for name in PARTS}
    for name, part in parts.items():
        if not (part is None or (isinstance(part, dict) and isinstance(part.get("type"), str))):
            raise VocabularyError(f"{name} must be null or have a type; it is {quoted(part)}")
    model = settings.get("model")
    if not isinstance(model, dict):
        raise VocabularyError(f"model must be an object; it is {quoted(model)}")
    if model.get("dropout"):
        raise VocabularyError(f"model.dropout {quoted(model['dropout'])} makes ids random")
    added = settings.get("added_tokens") or []
    if not isinstance(added, list) or not all(map(_is_added_token, added)):
        raise VocabularyError(f"added_tokens must have an id and a text each: {quoted(added)}")
    done = Settings(
        version="1.0",
        **parts,
        model={"type": "BPE" if "merges" in model else None} | model,
        added_tokens=[dict.fromkeys(FLAGS, False) | token for token in added],
    )
    kind, vocabulary = done["model"]["type"], model.get("vocab")
    if kind in ("BPE", "WordPiece", "WordLevel"):
        _check_vocabulary(vocabulary)
    if kind == "BPE":
        done["model"]["merges"] = pairs = _pairs(model.get("merges"))
        if is_byte_level(done):
            done.merges = Merges(model["vocab"], pairs)
    return done


def _is_added_token(token: object) -> bool:
    return (
        isinstance(token, dict)
        and _is_text(token.get("content"))
        and type(token.get("id")) is int
        and 0 <= token["id"] < MOST_IDS
    )


def _is_text(value: object) -> bool:
    """Whether it is a str without half a surrogate pair, which is no character."""
    try:
        return isinstance(value, str) and value.encode() is not None
    except UnicodeEncodeError:
        return False


def _check_vocabulary(ids: object) -> None:
    """Refuse what is no dict of symbols and ids."""
    if not isinstance(ids, dict):
        raise VocabularyError(f"a vocabulary must be an object of ids; it is {quoted(ids)}")
    if {*map(type, ids)} - {str} or {*map(type, ids.values())} - {int}:
        wrong = [item for item in ids.items() if [*map(type, item)] != [str, int]]
        raise VocabularyError(
            f"the id of {quoted(wrong[0][0])} isn't an integer: {quoted(wrong[0][1])}"
        )
    for extreme in (min(ids.values()), max(ids.values())) if ids else ():
        if not 0 <= extreme < MOST_IDS:
            symbol = next(symbol for symbol, id in ids.items() if id == extreme)
            raise VocabularyError(f"the id of {quoted(symbol)}, {extreme}, doesn't fit in 32 bits")
    if len(set(ids.values())) < len(ids):
        twice = Counter(ids.values()).most_common(1)[0][0]
        one, other = [quoted(symbol) for symbol, id in ids.items() if id == twice][:2]
        raise VocabularyError(f"{one} and {other} have the same id, {twice}")
    if not _is_text("".join(ids)):
        raise VocabularyError("a token holds half of a surrogate pair, which is no text")


def _pairs(merges: object) -> list[tuple[str, str]]:
    """Merges as pairs, given as pairs or as text with a space between the two."""
    if not isinstance(merges, Sequence):
        raise VocabularyError(f"merges must be a list; it is {quoted(merges)}")
    pairs = []
    try:
        for merge in merges:
            first, second = merge.split(" ") if isinstance(merge, str) else merge
            pairs.append((first, second))
    except (TypeError, ValueError):
        raise no_merge(len(pairs) + 1, merge) from None
    return pairs


def _read_settings(directory: Path) -> Settings:
    config = _read(directory, "tokenizer_config.json")
    kind = config.get("tokenizer_class") or _read(directory, "config.json").get("tokenizer_class")
    older = _older(directory, kind)
    if _is_there(directory, "tokenizer.json"):
        settings = checked(read_json(directory / "tokenizer.json", VocabularyError))
        if older is not None:
            _compare(settings, older)
    elif older is None:
        raise _no_tokenizer(directory)
    elif kind not in (None, *GPT2_CLASSES, *BERT_CLASSES):
        raise VocabularyError(
            f"tokenizer_class {quoted(kind)} needs a tokenizer.json here. {HOW_TO_CONVERT}"
        )
    else:
        settings = older
    is_older = settings is older
    is_bert = settings["model"]["type"] == "WordPiece" if is_older else kind in BERT_CLASSES
    is_gpt2 = not is_bert and kind in (None, *GPT2_CLASSES)

    defaults = BERT_SPECIAL if is_bert else GPT2_SPECIAL if is_gpt2 else {}
    special = _special_tokens(directory, config, defaults)
    named = {token["content"]: token for tokens in special.values() for token in tokens}
    told = settings["added_tokens"] + _told_apart(directory, config, named)
    settings["added_tokens"] = _numbered(settings["model"], told, named, defaults.values())
    if is_bert:
        _bert_rules(settings, config, special, is_older)
    if is_gpt2:
        _gpt2_rules(settings, config, special, is_older)
    if is_older and not is_bert:
        _check_all_made(settings)
    return settings


def _older(directory: Path, kind: str | None) -> Settings | None:
    """What the files say that older models have: of two formats, that of the class."""
    pairs = [_is_there(directory, name) for name in ("vocab.json", "merges.txt")]
    if _is_there(directory, "vocab.txt") and (kind in BERT_CLASSES or not any(pairs)):
        return _word_pieces(directory / "vocab.txt")
    if all(pairs) or (any(pairs) and not _is_there(directory, "tokenizer.json")):
        return _byte_pairs(directory / "vocab.json", directory / "merges.txt")
    return None


def _byte_pairs(vocab: Path, merges: Path) -> Settings:
    """The settings of GPT-2, with a vocabulary that is told in two files."""
    ids = read_json(vocab, VocabularyError)
    lines = read_text(merges, VocabularyError).split("\n")
    if lines[0].startswith("#version"):  # in any other line that is a merge like others
        lines[0] = ""
    try:
        return byte_pairs(ids, [*filter(None, lines)])
    except VocabularyError as error:
        for number, line in enumerate(lines, start=1):
            if line and line.count(" ") != 1:
                raise VocabularyError(
                    f"{merges}, line {number}: two symbols expected, found {quoted(line)}"
                ) from None
        raise VocabularyError(f"{vocab} and {merges.name}: {error}") from None


def byte_pairs(ids: object, merges: object) -> Settings:
    """The settings of GPT-2, with a vocabulary of one's own."""
    added = []
    if isinstance(ids, dict) and END_OF_TEXT in ids:
        added = [{"id": ids[END_OF_TEXT], "content": END_OF_TEXT, "special": True}]
    return checked(
        {
            "added_tokens": added,
            "pre_tokenizer": BYTE_LEVEL,
            "decoder": BYTE_LEVEL,
            "model": {"type": "BPE", "vocab": ids, "merges": merges},
        }
    )


def _word_pieces(path: Path) -> Settings:
    """The settings of BERT, with a vocabulary of one token in each line."""
    lines = read_text(path, VocabularyError).split("\n")
    ids = {line: id for id, line in enumerate(lines[:-1] if lines[-1] == "" else lines)}
    if not ids:
        raise VocabularyError(f"{path} holds no token")
    return checked(
        {
            "normalizer": {"type": "BertNormalizer", "clean_text": True},
            "pre_tokenizer": {"type": "BertPreTokenizer"},
            "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
            "model": {
                "type": "WordPiece",
                "unk_token": BERT_SPECIAL["unk_token"],
                "continuing_subword_prefix": "##",
                "max_input_chars_per_word": 100,
                "vocab": ids,
            },
        }
    )


def _compare(settings: Settings, older: Settings) -> None:
    """Refuse two vocabularies that are not the same."""
    ours, theirs = settings["model"], older["model"]
    if ours["type"] != theirs["type"]:
        raise VocabularyError(
            f"tokenizer.json holds a {ours['type']}, and the older files a {theirs['type']}"
        )
    added = {token["content"]: token["id"] for token in settings["added_tokens"]}
    all_of_ours = added | ours["vocab"]
    for symbol in {**theirs["vocab"], **ours["vocab"]}:
        one, other = all_of_ours.get(symbol), theirs["vocab"].get(symbol, added.get(symbol))
        if one != other:
            raise VocabularyError(
                f"the id of {quoted(symbol)} is {one} in tokenizer.json and {other} in the older "
                "files (None: not there)"
            )
    for number, pair in enumerate(zip_longest(ours.get("merges", ()), theirs.get("merges", ())), 1):
        if pair[0] != pair[1]:
            raise VocabularyError(
                f"merge {number} is {pair[0]} in tokenizer.json and {pair[1]} in merges.txt"
            )


def _special_tokens(
    directory: Path, config: JsonObject, defaults: Mapping[str, str]
) -> dict[str, list[JsonObject]]:
    """The tokens that the files call special, by what they call them."""
    told = dict(config)
    if "added_tokens_decoder" not in config:
        told |= _read(directory, "special_tokens_map.json")
    found = {}
    for name in SPECIAL:
        given = told.get(name, defaults.get(name))
        if isinstance(given, dict) and "content" not in given:  # tokens by names of their own
            given = list(given.values())
        tokens = given if isinstance(given, list) else [given]
        found[name] = [_token(token, name) for token in tokens if token is not None]
    return found


def _token(given: object, name: str) -> JsonObject:
    """A special token as an added token, without its id."""
    token = {"content": given} if isinstance(given, str) else given
    if not isinstance(token, dict) or not _is_text(token.get("content")):
        raise VocabularyError(f"{name} must be a text, or have a content; it is {quoted(given)}")
    flags = {flag: token[flag] for flag in FLAGS if flag in token}
    return {"content": token["content"], **flags, "special": True}


def _numbered(
    model: JsonObject,
    told: Sequence[JsonObject],
    named: Mapping[str, JsonObject],
    defaults: Collection[str],
) -> list[JsonObject]:
    """All added tokens, each with its id.

    transformers numbers what is not in the vocabulary from its end on, one after the other; files
    that tell other ids are refused. Special tokens that a class has without being told are left out
    where the vocabulary has none of that name.

    Parameters
    ----------
    told : added tokens, with the ids that files tell
    named : special tokens by content
    defaults : those that the class has without being told
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
                f"the added token {quoted(token['content'])} has id {token['id']}, and "
                f"transformers gives it {id}: added tokens are numbered after the vocabulary"
            )
        added[token["content"]] = dict.fromkeys(FLAGS, False) | token | {"id": id}

    for token in told:
        add(token)
    for content, token in named.items():
        if content in ids:
            add(added.get(content, token) | {"special": True})
    nameless = [token for content, token in named.items() if content not in ids]
    if any(token["content"] not in defaults for token in nameless):
        for token in nameless:
            add(token)
    return list(added.values())


def _told_apart(
    directory: Path, config: JsonObject, named: Mapping[str, JsonObject]
) -> list[JsonObject]:
    """Added tokens that are told outside of tokenizer.json, by id."""
    told = config.get("added_tokens_decoder")
    if told is None:
        tokens = [
            {
                "content": content,
                "id": id,
                "special": content in named,
                "normalized": content not in named,
            }
            for content, id in _read(directory, "added_tokens.json").items()
        ]
    else:
        try:
            tokens = [{**token, "id": int(id)} for id, token in told.items()]
        except (AttributeError, TypeError, ValueError):
            raise VocabularyError(f"added_tokens_decoder can't be read: {quoted(told)}") from None
    for token in tokens:
        if not _is_added_token(token):
            raise VocabularyError(f"an added token must have an id and a text: {quoted(token)}")
    return sorted(tokens, key=lambda token: token["id"])


def _ids(model: JsonObject) -> dict[str, int]:
    """The ids of a model's tokens, of which a Unigram model has a list."""
    vocabulary = model.get("vocab")
    if isinstance(vocabulary, list):
        pieces = [entry[0] for entry in vocabulary if isinstance(entry, list) and entry]
        return {piece: id for id, piece in enumerate(pieces) if isinstance(piece, str)}
    return vocabulary if isinstance(vocabulary, dict) else {}


def _gpt2_rules(settings: Settings, config: JsonObject, special: Special, is_older: bool) -> None:
    """What GPT2Tokenizer is told by tokenizer_config.json alone."""
    cut = settings["pre_tokenizer"]
    if cut is not None and cut["type"] == "ByteLevel":
        space = _flag(config, "add_prefix_space", False)
        settings["pre_tokenizer"] = cut | {"add_prefix_space": space}
    if is_older:
        front = special["bos_token"] if _flag(config, "add_bos_token", False) else []
        end = special["eos_token"] if _flag(config, "add_eos_token", False) else []
        settings["post_processor"] = _template(settings, front, end)


def _bert_rules(settings: Settings, config: JsonObject, special: Special, is_older: bool) -> None:
    """What BertTokenizer is told by tokenizer_config.json alone."""
    normalizer = settings["normalizer"]
    if normalizer is not None and normalizer["type"] == "BertNormalizer":
        settings["normalizer"] = normalizer | {
            "handle_chinese_chars": _flag(config, "tokenize_chinese_chars", True),
            "strip_accents": _flag(config, "strip_accents", None),
            "lowercase": _flag(config, "do_lower_case", True),
        }
    if is_older:
        for token in special["unk_token"]:
            settings["model"]["unk_token"] = token["content"]
        settings["post_processor"] = _template(settings, special["cls_token"], special["sep_token"])


def _flag(config: JsonObject, name: str, default: bool | None) -> bool | None:
    value = config.get(name)
    if value is not None and not isinstance(value, bool):
        raise VocabularyError(f"{name} must be true or false; it is {quoted(value)}")
    return default if value is None else value


def _template(
    settings: Settings, front: Sequence[JsonObject], end: Sequence[JsonObject]
) -> JsonObject | None:
    """The post_processor that puts tokens around every text."""
    around = [token["content"] for token in (*front, *end)]
    ids = {token["content"]: token["id"] for token in settings["added_tokens"]}
    if nameless := [content for content in around if content not in ids]:
        raise VocabularyError(f"{quoted(nameless[0])} is to stand by every text, and has no id")
    if not around:
        return None
    pieces = [{"SpecialToken": {"id": content, "type_id": 0}} for content in around]
    pieces.insert(len(front), {"Sequence": {"id": "A", "type_id": 0}})
    return {
        "type": "TemplateProcessing",
        "single": pieces,
        "pair": [*pieces, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {
            content: {"id": content, "ids": [ids[content]], "tokens": [content]}
            for content in around
        },
    }


def _check_all_made(settings: Settings) -> None:
    """Refuse a list of merges that seems to have been cut off."""
    ids, merges = settings["model"]["vocab"], settings.merges
    assert merges is not None
    named = ids.keys() & (BYTES.keys() | {token["content"] for token in settings["added_tokens"]})
    known = {*merges.merge_ids[:, 2].tolist(), *(ids[symbol] for symbol in named)}
    if len(known) == len(ids):
        return
    other = {
        symbol
        for symbol, id in ids.items()
        if id not in known and not SPECIAL_LOOK.fullmatch(symbol)
    }
    if other:
        raise VocabularyError(
            f"{len(other)} tokens are neither a byte, nor made by a merge, nor special; the first "
            f"is {quoted(min(other))}: merges.txt may have been cut off"
        )


def _no_tokenizer(directory: Path) -> MissingFileError:
    message = (
        f"there is no tokenizer in {directory}: neither tokenizer.json, nor vocab.json and "
        "merges.txt, nor vocab.txt"
    )
    if pieces := [name for name in SENTENCE_PIECE if _is_there(directory, name)]:
        message += f". {pieces[0]} is SentencePiece's: it takes a tokenizer.json. {HOW_TO_CONVERT}"
    else:
        message += f". {HOW_TO_SAVE}"
    return MissingFileError(message)


def _is_there(directory: Path, name: str) -> bool:
    return os.path.exists(directory / name)


def _read(directory: Path, name: str) -> JsonObject:
    """What a JSON file holds; nothing, if it is not there."""
    return read_json(directory / name, VocabularyError) if _is_there(directory, name) else {}
