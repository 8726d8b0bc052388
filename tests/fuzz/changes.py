"""What is done to model directories: from a bit to a pipe in a file's place.

Each function changes one thing and says what. Some leave a model sound, so that a reader that
refuses everything is found out too.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import oracle
from folders import (
    BASES,
    CONFIG,
    INDEX,
    MERGES,
    REFERENCE,
    STATE,
    VOCABULARY,
    WEIGHTS,
    Arrays,
    Folder,
    Raw,
    Special,
    Tensors,
    dumps,
    json_pairs,
    opened,
    pairs_text,
)

TOKENIZERS = REFERENCE / "tokenizers"

CLIPBOARD = "\x1b]52;c;Zm9v\x07"  # what makes some terminals put "foo" on the clipboard

HUGE = [0, -1, 1, 2, 3, 7, 255, 256, 257, 10**6, 2**31 - 1, 2**31, 2**32, 2**53 + 1, 10**18]
HUGE += [2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), 10**30]

NAMES = [
    *("", "a", "é", "猫", "🙈", ".", "..", "/", "a/b", "../a", "/etc", "C:\\a", "a\0b", " ", "\n"),
    *(CLIPBOARD, "\x1b[2J", "\x9b31m", "\u202eabc", "\u2028", "\ufeff", "%s{0}", "<b>a</b>"),
    *("x" * 300, "x" * 5000, "h.0.attn.bias", "h.٣.attn.bias", "h.99.attn.masked_bias"),
    *("__metadata__", "transformer.", "transformer.wte.weight", "wte.weight", "lm_head.weight"),
    *("nan", "null", "-1", END := "<|endoftext|>", "Ġ", "th", "ÿ"),
]
ODD = [
    *(None, True, False, 0.0, -0.0, 1.5, 2.0, 1e-5, 1e308, -1.0, "", "1", "gelu", "gpt2", "true"),
    *("relu", "quick_gelu", "gelu_10", "mish"),
    *([], [1], [[1]], {}, {"a": 1}, [None], "x" * 5000, [0] * 2000, CLIPBOARD, "a\0b", *HUGE),
    *map(Raw, ("NaN", "Infinity", "-Infinity", "1e400", "1E2", "-0", "01", "1_0", "0x10", "'a'")),
    *map(Raw, ('"\\ud800"', '"\\udc80\\ud800"', '"\\u001b]52;c;Zm9v\\u0007"', "undefined", "//")),
    *map(
        Raw, ("9" * 5000, "[" * 200 + "]" * 200, "[" * 100_000, '{"a":' * 3000, "1.0e-400", "3.0")
    ),
]

# What stands before the names in files of a model that was part of something else; added heads.
AROUND = ["_orig_mod.", "module.transformer.", "base_model.model.transformer.", "model.module."]
HEADS = ["score.weight", "classifier.bias", "qa_outputs.weight", "v_head.summary.weight", "score"]

Change = Callable[[Folder, random.Random], str | None]
CHANGES: list[Change] = []
OF_STATE: list[Change] = []


def change(function: Change) -> Change:
    """One way to change a folder; it returns what it did in words, None where there was nothing."""
    CHANGES.append(function)
    return function


def change_of_state(function: Change) -> Change:
    """The same for the state of a training."""
    OF_STATE.append(function)
    return function


# Any file


def some_file(folder: Folder, rng: random.Random) -> str:
    return rng.choice(sorted(folder.files))


def damaged(content: bytes, rng: random.Random) -> tuple[bytes, str]:
    """Bytes with some of them changed; the first ones, where headers are, more often."""
    size = len(content)
    at = rng.randrange(min(size, rng.choice([8, 64, 1000, size])) or 1) if size else 0
    length = rng.choice([1, 1, 2, 7, 100])
    noise = rng.choice([rng.randbytes(length), b"\0" * length, b"\xff" * length, b" " * length])
    cut = rng.randrange(size + 1)
    kind = rng.choice(["bit", "over", "insert", "delete", "twice", "truncate", "append", "empty"])
    bit = bytes([content[at] ^ (1 << rng.randrange(8))]) if size else b""
    return {
        "bit": content[:at] + bit + content[at + 1 :],
        "over": content[:at] + noise + content[at + length :],
        "insert": content[:at] + noise + content[at:],
        "delete": content[:at] + content[at + length :],
        "twice": content[: at + length] + content[at:],
        "truncate": content[:cut],
        "append": content + noise,
        "empty": b"",
    }[kind], f"{kind} at {cut if kind == 'truncate' else at}"


def damage(folder: Folder, name: str, rng: random.Random) -> str:
    folder.files[name], what = damaged(folder.bytes_of(name), rng)
    return f"{name}: {what}"


@change
def bytes_change(folder: Folder, rng: random.Random) -> str:
    return damage(folder, some_file(folder, rng), rng)


@change
def a_file_is_missing(folder: Folder, rng: random.Random) -> str:
    name = some_file(folder, rng)
    del folder.files[name]
    return f"{name}: removed"


def special(folder: Folder, name: str, rng: random.Random) -> str:
    content = folder.bytes_of(name)
    kind = rng.choice(["pipe", "directory", "link", "socket", "sparse", "sparse"])
    target = rng.choice([name, "nowhere", "..", ".", some_file(folder, rng), "x" * 300])
    head = rng.choice([b"", content, content[:8], (90_000_000).to_bytes(8, "little") + b"{"])
    huge = 10**12 if is_text(name) else 10**9  # what can be mapped may be mapped
    size = len(head) + rng.choice([1, 1000, 10**6, 300 * 10**6, huge])
    folder.files[name] = Special(kind, target, head, size)
    return f"{name}: {kind} {target if kind == 'link' else ''}{size if kind == 'sparse' else ''}"


@change
def something_else_in_place(folder: Folder, rng: random.Random) -> str:
    return special(folder, some_file(folder, rng), rng)


@change
def a_link_to_the_same(folder: Folder, rng: random.Random) -> str:
    name = some_file(folder, rng)
    folder.files[f"really {name}"] = folder.files[name]
    folder.files[name] = Special("link", f"really {name}")
    return f"{name}: a link to the same file of another name"


@change
def the_wrong_file_in_place(folder: Folder, rng: random.Random) -> str:
    name = some_file(folder, rng)
    other = rng.choice([file for file in sorted(folder.files) if file != name] or [name])
    from_other_model = BASES[rng.choice(sorted(BASES))]
    if rng.random() < 0.5 and name in from_other_model:
        folder.files[name] = from_other_model[name]
        return f"{name}: another model's"
    folder.files[name], folder.files[other] = folder.files[other], folder.files[name]
    return f"{name} and {other} exchanged"


@change
def only_other_weights(folder: Folder, rng: random.Random) -> str:
    for name in folder.weight_files():
        del folder.files[name]
    odd = rng.choice(["", "-00001-of-00002", CLIPBOARD, "\n", "é", "x" * 200])
    folder.files[f"pytorch_model{odd}.bin"] = b"PK\x03\x04"
    return f"only pytorch_model{odd!a}.bin"


@change
def what_a_failed_download_leaves(folder: Folder, rng: random.Random) -> str:
    name = some_file(folder, rng)
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"
    folder.files[name] = rng.choice([pointer, b"<!DOCTYPE html><html></html>", b"Entry not found"])
    return f"{name}: {folder.bytes_of(name)[:15]!r}"


@change
def the_name(folder: Folder, rng: random.Random) -> str:
    surrogate = os.fsdecode(b"\xff\xfe")
    names = [
        "a b",
        "é猫",
        CLIPBOARD,
        "\x1b[2J",
        "a\nb",
        surrogate,
        "x" * 255,
        "-x",
        "\u202e",
        "{0}",
    ]
    folder.name = rng.choice(names)
    return f"the directory's name is {folder.name!a}"


# Text files


def is_text(name: str) -> bool:
    return name.endswith((".json", ".txt"))


@change
def the_text(folder: Folder, rng: random.Random) -> str | None:
    if not (names := [name for name in sorted(folder.files) if is_text(name)]):
        return None
    name = rng.choice(names)
    content = folder.bytes_of(name)
    text = content.decode("utf-8", errors="replace")
    whole: dict[str, bytes] = {
        "byte order mark": b"\xef\xbb\xbf" + content,
        "UTF-16": text.encode("utf-16"),
        "Latin-1": text.encode("latin-1", errors="replace"),
        "carriage returns": content.replace(b"\n", b"\r\n"),
        "old line ends": content.replace(b"\n", b"\r"),
        "no last line end": content.rstrip(b"\n"),
        "white space around": b" \n\t" + content + b"\n\n  ",
        "invalid UTF-8": content.replace(b"e", b"\xc3", 1),
        "overlong UTF-8": content.replace(b"e", b"\xc1\xa5", 1),
        "encoded surrogate": content.replace(b"e", b"\xed\xa0\x80", 1),
        "a list": b"[" + content + b"]",
        "twice": content + content,
        "a comma too many": content.replace(b"}", b",}"),
        "odd JSON": dumps(rng.choice(ODD)).encode(),
        "deep": b'{"a":' * 100_000,
        "zeros": b"\0" * len(content),
        "line separators": content.replace(b"\n", "\u2028".encode(), 2),
    }
    what = rng.choice(sorted(whole))
    folder.files[name] = whole[what]
    return f"{name}: {what}"


def change_pair(pairs: list[tuple[str, Any]], rng: random.Random) -> str:
    """One pair removed, renamed, doubled, moved, or with another value."""
    at = rng.randrange(len(pairs)) if pairs else 0
    key, value = pairs[at] if pairs else ("a", 1)
    kind = rng.choice(["value", "value", "value", "remove", "rename", "double", "move", "add"])
    odd = rng.choice(ODD)
    name = rng.choice([*NAMES, *(k for k, _ in pairs[:50])])
    if kind in ("value", "remove", "rename", "move"):
        del pairs[at : at + 1]
    if kind == "value":
        pairs.insert(at, (key, odd))
    elif kind == "rename":
        pairs.insert(at, (name, value))
    elif kind == "double":
        pairs.insert(rng.randrange(len(pairs) + 1), (key, rng.choice([value, odd])))
    elif kind == "move":
        pairs.insert(rng.randrange(len(pairs) + 1), (key, value))
    elif kind == "add":
        pairs.insert(rng.randrange(len(pairs) + 1), (name, odd))
    detail = {"value": dumps(odd), "rename": ascii(name), "add": f"{name!a}: {dumps(odd)}"}
    return f"{key[:60]!a} {kind} {detail.get(kind, '')[:80]}"


def change_json(folder: Folder, name: str, rng: random.Random) -> str | None:
    pairs = json_pairs(folder.bytes_of(name))
    if name not in folder.files or pairs is None:
        return None
    what = change_pair(pairs, rng)
    folder.files[name] = pairs_text(pairs).encode()
    return f"{name}: {what}"


@change
def a_setting(folder: Folder, rng: random.Random) -> str | None:
    """Sizes and what changes the equations more often than the rest."""
    pairs = json_pairs(folder.bytes_of(CONFIG))
    if pairs is None:
        return None
    if rng.random() < 0.3:
        return change_json(folder, CONFIG, rng)
    keys = [*oracle.DEFAULTS, "n_inner", "layer_norm_epsilon", "activation_function", "model_type"]
    key = rng.choice([*keys, *oracle.FLAGS])
    near = [v + d for k, v in pairs if k == key and isinstance(v, int) for d in (-1, 1, -v, v)]
    value = rng.choice(near) if near and rng.random() < 0.3 else rng.choice(ODD)
    if rng.random() < 0.3:
        known = {"activation_function": [*oracle.ACTIVATIONS, "gelu_10", "tanh"]}
        value = rng.choice(known.get(key, [True, False]))
    folder.files[CONFIG] = pairs_text(
        [*((k, v) for k, v in pairs if k != key), (key, value)]
    ).encode()
    return f"{CONFIG}: {key} = {dumps(value)[:80]}"


@change
def a_token(folder: Folder, rng: random.Random) -> str | None:
    pairs = json_pairs(folder.bytes_of(VOCABULARY))
    if not pairs or rng.random() < 0.5:
        return change_json(folder, VOCABULARY, rng)
    i, j = rng.randrange(len(pairs)), rng.randrange(len(pairs))
    (one, id_of_one), (other, id_of_other) = pairs[i], pairs[j]
    as_float = float(id_of_one) if isinstance(id_of_one, int) else 0.0
    pairs[i] = (one, rng.choice([id_of_other, len(pairs), -1, as_float, str(id_of_one)]))
    if rng.random() < 0.7:
        pairs[i], pairs[j] = (one, id_of_other), (other, id_of_one)
    folder.files[VOCABULARY] = pairs_text(pairs).encode()
    return f"{VOCABULARY}: the ids of {one[:60]!a} and {other[:60]!a}"


@change
def a_merge(folder: Folder, rng: random.Random) -> str:
    lines = folder.bytes_of(MERGES).decode("utf-8", errors="replace").split("\n")
    at, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    odd = [
        "",
        " ",
        "a",
        "a b c",
        "a  b",
        " a b",
        "a b ",
        "a\tb",
        "t h",
        "h e",
        "Ġ Ġ",
        "#version: 9",
    ]
    odd += ["a\u00a0b", "a\u2028b", "th e ", "t he", CLIPBOARD, "x" * 5000, "\ufeff", "é é", "q \0"]
    kind = rng.choice(["exchange", "remove", "double", "replace", "insert", "split"])
    if kind == "exchange":
        lines[at], lines[other] = lines[other], lines[at]
    elif kind == "remove":
        del lines[at]
    elif kind == "double":
        lines.insert(other, lines[at])
    elif kind == "replace":
        lines[at] = rng.choice(odd)
    elif kind == "insert":
        lines.insert(at, rng.choice(odd))
    else:  # the same token of other halves
        whole = lines[at].replace(" ", "")
        cut = rng.randrange(len(whole) + 1)
        lines[at] = f"{whole[:cut]} {whole[cut:]}"
    folder.files[MERGES] = "\n".join(lines).encode()
    return f"{MERGES}: line {at + 1} {kind}"


@change
def the_index(folder: Folder, rng: random.Random) -> str | None:
    pairs = json_pairs(folder.bytes_of(INDEX))
    if pairs is None:
        whole = folder.bytes_of(WEIGHTS)
        folder.files[INDEX] = dumps({"weight_map": {"wte.weight": WEIGHTS}}).encode()
        if rng.random() < 0.5:
            folder.files["a.safetensors"] = whole
            folder.files.pop(WEIGHTS, None)
        return "an index beside or instead of the weights"
    places = dict(pairs).get("weight_map")
    if rng.random() < 0.2 or not isinstance(places, dict):
        return change_json(folder, INDEX, rng)
    inner = list(places.items())
    if rng.random() < 0.5:
        what = change_pair(inner, rng)
    else:
        at = rng.randrange(len(inner))
        files = [*folder.weight_files(), *NAMES, *(f"./{n}" for n in folder.weight_files()), STATE]
        inner[at] = (inner[at][0], rng.choice(files))
        what = f"{inner[at][0]} in {inner[at][1][:80]!a}"
    changed = [(k, Raw(pairs_text(inner)) if k == "weight_map" else v) for k, v in pairs]
    folder.files[INDEX] = pairs_text(changed).encode()
    return f"{INDEX}: {what}"


# Safetensors


def some_weights(folder: Folder, rng: random.Random) -> str:
    return rng.choice(sorted(folder.weight_files()) or [WEIGHTS])


def odd_shape(shape: list[Any], rng: random.Random) -> Any:
    last = shape[-1] if shape and isinstance(shape[-1], int) else 1
    return rng.choice(
        [
            shape[::-1],
            [*shape, 1],
            [1, *shape],
            shape[:-1],
            [*shape[:-1], last + 1],
            [*shape[:-1], -last],
            [*shape[:-1], float(last)],
            [*shape[:-1], 0],
            [*shape[:-1], rng.choice(HUGE)],
            [2**32, 2**32],
            [2**63, 2],
            [2**64 + last],
            [0, 2**64],
            [1] * 100,
            [1] * 5000,
            [True, *shape],
            rng.choice(ODD),
        ]
    )


def odd_offsets(offsets: list[int], rng: random.Random) -> Any:
    begin, end = offsets
    return rng.choice(
        [
            [end, begin],
            [begin, begin],
            [begin + 1, end + 1],
            [begin, end + 4],
            [begin - 1, end],
            [begin + 4, end],
            [0, end],
            [0, end - begin],
            [float(begin), float(end)],
            [begin + 2**64, end + 2**64],
            [begin, rng.choice(HUGE)],
            [rng.choice(HUGE), rng.choice(HUGE)],
            [begin],
            [begin, end, end],
            [-8, end - begin - 8],
            rng.choice(ODD),
        ]
    )


DTYPES = [*oracle.BITS, "f32", "F128", "F33", "", "float32", "C128", CLIPBOARD, "U7"]


def change_header(stored: Tensors, rng: random.Random) -> str | None:
    """One field of one tensor, or one tensor of the header."""
    if not (entries := stored.entries()):
        return None
    at, other = rng.choice(entries), rng.choice(entries)
    name, info = stored.header[at][0], dict(stored.header[at][1])
    kind = rng.choice(
        ["shape", "shape", "dtype", "offsets", "offsets", "name", "exchange", "field"]
    )
    if rng.random() < 0.25:
        kind = rng.choice(["pair", "double", "metadata", "swap"])
    if kind == "shape":
        info["shape"] = odd_shape(info["shape"], rng)
    elif kind == "dtype":
        info["dtype"] = rng.choice([*DTYPES, rng.choice(ODD)])
    elif kind == "offsets":
        info["data_offsets"] = odd_offsets(info["data_offsets"], rng)
    elif kind == "name":
        name = rng.choice(
            [*NAMES, f"transformer.{name}", name.removeprefix("transformer."), name + " "]
        )
    elif kind == "field":
        fields = list(info.items())
        change_pair(fields, rng)
        stored.header[at] = (name, Raw(pairs_text(fields)))
        return f"{name[:60]!a}: {dumps(stored.header[at][1])[:80]}"
    elif kind == "double":
        stored.header.insert(other, (name, rng.choice([info, stored.header[other][1]])))
        return f"{name[:60]!a} is there twice"
    elif kind == "metadata":
        value = rng.choice([*ODD, {"a": "b"}, {"a": 1}, {"a": None}, {CLIPBOARD: CLIPBOARD}])
        stored.header.insert(rng.choice([0, at]), ("__metadata__", value))
        return f"metadata {dumps(value)[:80]}"
    elif kind == "pair":
        return change_pair(stored.header, rng)
    elif kind == "swap":  # two names for each other's numbers, which is sound where shapes agree
        there = stored.header[other]
        stored.header[at], stored.header[other] = (name, there[1]), (there[0], info)
        return f"{name[:60]!a} and {there[0][:60]!a} exchanged"
    else:  # the same numbers read as another tensor's
        info["data_offsets"] = stored.header[other][1]["data_offsets"]
    stored.header[at] = (name, info)
    return f"{kind} of {name[:60]!a}: {dumps(info)[:100]}"


def change_safetensors(folder: Folder, name: str, rng: random.Random) -> str | None:
    stored = opened(folder, name)
    what = None if stored is None else change_header(stored, rng)
    if stored is None or what is None:
        return None
    folder.files[name] = stored.content()
    return f"{name}: {what}"


@change
def the_header(folder: Folder, rng: random.Random) -> str | None:
    return change_safetensors(folder, some_weights(folder, rng), rng)


def reframe(folder: Folder, name: str, rng: random.Random) -> str | None:
    """What stands around the header."""
    if (stored := opened(folder, name)) is None:
        return None
    exact = len(stored.content()) - 8 - len(stored.data)
    kind = rng.choice(["spaces", "white space", "before", "length", "no tensors", "twice", "pad"])
    if kind == "spaces":
        content = stored.content(after=b" " * rng.choice([1, 8, 100]))
    elif kind == "white space":
        content = stored.content(after=rng.choice([b"\n", b"\t", b"\r\n  ", b"\0", b"\x0b"]))
    elif kind == "before":
        content = stored.content(before=rng.choice([b" ", b"\n", b"\xef\xbb\xbf", b"[", b"\0"]))
    elif kind == "length":
        lengths = [exact + d for d in (-1, 1, 2, 8, len(stored.data), len(stored.data) + 1)]
        lengths += [0, 1, 2, 10**8, 10**8 + 1, 2**31, 2**63 - 1, 2**63, 2**64 - 1, 2**64 - 8]
        content = stored.content(length=rng.choice(lengths))
    elif kind == "no tensors":
        content = Tensors([], rng.choice([b"", stored.data])).content()
    elif kind == "twice":
        content = stored.content() + stored.content()
    else:
        stored.data = b"\0" * rng.choice([1, 8]) + stored.data
        content = stored.content()
    folder.files[name] = content
    return f"{name}: {kind}"


@change
def around_the_header(folder: Folder, rng: random.Random) -> str | None:
    return reframe(folder, some_weights(folder, rng), rng)


VALUES = [
    np.nan,
    np.inf,
    -np.inf,
    0.0,
    -0.0,
    1e-320,
    1e-40,
    1e-8,
    65504.0,
    65520.0,
    1e10,
    1e30,
    -1e30,
]
VALUES += [3.4e38, 3.5e38, -1e300, 1.0, -1.0]


def spoil(stored: Tensors, rng: random.Random) -> str | None:
    """Some numbers of a tensor."""
    dtypes = {i: stored.header[i][1].get("dtype") for i in stored.entries()}
    entries = [i for i, dtype in dtypes.items() if isinstance(dtype, str) and dtype in oracle.REALS]
    if not entries:
        return None
    name, info = stored.header[rng.choice(entries)]
    begin, end = info["data_offsets"]
    dtype = oracle.REALS[info["dtype"]]
    numbers = np.frombuffer(stored.data[begin:end].ljust(8, b"\0")[: end - begin], dtype).copy()
    if not numbers.size:
        return None
    value = rng.choice(VALUES)
    at = rng.choice([0, numbers.size - 1, rng.randrange(numbers.size)])
    count = rng.choice([1, 1, 1, 5, numbers.size])
    with np.errstate(all="ignore"):
        if info["dtype"] == "BF16":
            numbers[at : at + count] = np.float32(value).view(np.uint32) >> 16
        else:
            numbers[at : at + count] = value
    stored.data = stored.data[:begin] + numbers.tobytes() + stored.data[end:]
    return f"{name[:60]!a}: {count} from {at} are {value}"


@change
def the_numbers(folder: Folder, rng: random.Random) -> str | None:
    name = some_weights(folder, rng)
    stored = opened(folder, name)
    what = None if stored is None else spoil(stored, rng)
    if stored is None or what is None:
        return None
    folder.files[name] = stored.content()
    return f"{name}: {what}"


# What leaves a model sound


def all_arrays(folder: Folder) -> Arrays | None:
    """Every tensor of the weights, whole or in shards."""
    arrays: Arrays = {}
    for name in folder.weight_files():
        if (stored := opened(folder, name)) is None:
            return None
        arrays |= stored.arrays()
    return arrays or None


def put(folder: Folder, arrays: Arrays, files: int = 1) -> None:
    """All tensors as new weights, in so many files."""
    for name in [*folder.weight_files(), INDEX]:
        folder.files.pop(name, None)
    if files == 1:
        folder.files[WEIGHTS] = Tensors.holding(arrays).content()
        return
    places = {}
    for n in range(files):
        file = f"model-{n + 1:05}-of-{files:05}.safetensors"
        names = list(arrays)[n::files]
        folder.files[file] = Tensors.holding({name: arrays[name] for name in names}).content()
        places |= dict.fromkeys(names, file)
    folder.files[INDEX] = dumps({"metadata": {}, "weight_map": places}).encode()


@change
def another_layout(folder: Folder, rng: random.Random) -> str | None:
    """Other dtypes, another order, another number of files, other prefixes."""
    if (arrays := all_arrays(folder)) is None:
        return None
    items = list(arrays.items())
    rng.shuffle(items)
    wider = rng.random() < 0.5
    prefix = rng.choice(["", "transformer.", None, *AROUND])
    changed = {}
    for name, (dtype, shape, content) in items:
        if wider and dtype in ("F32", "F16"):
            with np.errstate(invalid="ignore"):
                content = np.frombuffer(content, oracle.REALS[dtype]).astype("<f8").tobytes()
            dtype = "F64"
        bare = name.removeprefix("transformer.")
        ours = rng.choice(["", "transformer."]) if prefix is None else prefix
        if bare == "lm_head.weight":
            ours = ours.removesuffix("transformer.")
        changed[ours + bare] = (dtype, shape, content)
    if rng.random() < 0.2:
        changed[rng.choice(["", *AROUND]) + rng.choice(HEADS)] = ("F32", [1], b"\0\0\xc0\x7f")
    files = rng.choice([1, 1, 2, 5])
    put(folder, changed, files)
    return f"laid out anew: {files} files, prefix {prefix!r}{', F64' if wider else ''}"


@change
def what_old_files_hold(folder: Folder, rng: random.Random) -> str | None:
    """Mask buffers, and the output matrix once more."""
    if (arrays := all_arrays(folder)) is None:
        return None
    prefix = "transformer." if "transformer.wte.weight" in arrays else ""
    for layer in range(2):
        dtype, data = rng.choice([("BOOL", b"\1"), ("U8", b"\0"), ("F32", b"\0\0\xc0\x7f")])
        name = f"{prefix}h.{layer}.attn.{rng.choice(['bias', 'masked_bias'])}"
        arrays[name] = (dtype, rng.choice([[], [1, 1, 1]]), data)
    embedding = arrays.get(f"{prefix}wte.weight")
    if embedding is not None and rng.random() < 0.7:
        dtype, shape, content = embedding
        if rng.random() < 0.3:
            content = damaged(content, rng)[0].ljust(len(content), b"\0")[: len(content)]
        arrays["lm_head.weight"] = (dtype, shape, content)
    put(folder, arrays)
    return "mask buffers, or an output matrix"


def set_rows(folder: Folder, arrays: Arrays, count: int) -> bool:
    """Give the embedding, and an output matrix, so many rows; whether that can be done."""
    config = json_pairs(folder.bytes_of(CONFIG))
    names = [name for name in arrays if name.endswith(("wte.weight", "lm_head.weight"))]
    shapes = [arrays[name][1] for name in names]
    if config is None or not names or any(len(s) != 2 or not all(map(is_size, s)) for s in shapes):
        return False
    for name in names:
        dtype, (rows, columns), content = arrays[name]
        width = len(content) // rows
        more = (content * (count // rows + 1))[: count * width]
        arrays[name] = (dtype, [count, columns], more)
    put(folder, arrays)
    sizes = [(k, count if k == "vocab_size" else v) for k, v in config]
    folder.files[CONFIG] = pairs_text(sizes).encode()
    return True


def is_size(value: object) -> bool:
    return oracle.is_count(value) and value != 0


@change
def more_merges(folder: Folder, rng: random.Random) -> str | None:
    """More merges of tokens that are there, with their tokens and their rows of the embedding."""
    arrays, tokens = all_arrays(folder), json_pairs(folder.bytes_of(VOCABULARY))
    if arrays is None or tokens is None:
        return None
    lines = folder.bytes_of(MERGES).decode("utf-8", errors="replace").rstrip("\n").split("\n")
    symbols = [token for token, _ in tokens]
    letters = [s for s in (*"tehinaĠ", "th", "he", "in", "the", "Ġth", "Ġa") if s in symbols]
    added: list[str] = []
    for _ in range(rng.choice([1, 5, 20, 60]) if letters else 0):
        first, second = rng.choice([*letters, *added]), rng.choice([*letters, *added])
        if first + second not in symbols and len(first + second) < 12:
            symbols.append(first + second)
            added.append(first + second)
            lines.append(f"{first} {second}")
    if not set_rows(folder, arrays, len(tokens) + len(added)):
        return None
    ids = [(token, len(tokens) + i) for i, token in enumerate(added)]
    folder.files[VOCABULARY] = pairs_text([*tokens, *ids]).encode()
    folder.files[MERGES] = ("\n".join(lines) + "\n").encode()
    return f"{len(added)} more merges"


def change_tree(value: Any, rng: random.Random) -> Any:
    """JSON with one thing changed, somewhere in it."""
    if isinstance(value, dict):
        pairs = list(value.items())
        if pairs and rng.random() < 0.7:
            at = rng.randrange(len(pairs))
            pairs[at] = (pairs[at][0], change_tree(pairs[at][1], rng))
        else:
            change_pair(pairs, rng)
        return Raw(pairs_text(pairs))
    if isinstance(value, list) and value and rng.random() < 0.8:
        at = rng.randrange(len(value))
        changed = rng.choice(
            [[change_tree(value[at], rng)], [], [value[at]] * 2, [rng.choice(ODD)]]
        )
        return [*value[:at], *changed, *value[at + 1 :]]
    return rng.choice(ODD)


@change
def another_tokenizer(folder: Folder, rng: random.Random) -> str | None:
    """A tokenizer of the reference, with rows of the embedding for it, whole or changed somewhere.

    What it makes of texts nobody is asked here: that is held against transformers' elsewhere.
    """
    choices = sorted(path for path in TOKENIZERS.glob("*") if path.is_dir())
    arrays = all_arrays(folder)
    if not choices or arrays is None or not set_rows(folder, arrays, 400):
        return None
    tokenizer = rng.choice(choices)
    for name in (VOCABULARY, MERGES):
        folder.files.pop(name, None)
    files = {file.name: file.read_bytes() for file in sorted(tokenizer.iterdir())}
    folder.files.update(files)
    name = rng.choice(sorted(files))
    pairs = json_pairs(files[name])
    if pairs is None or rng.random() < 0.2:
        return f"tokenizer {tokenizer.name}"
    folder.files[name] = str(change_tree(dict(pairs), rng)).encode()
    return f"tokenizer {tokenizer.name}, {name} changed"


@change
def nothing(folder: Folder, rng: random.Random) -> str:
    return "nothing"


# What has most to get wrong has its turn more often.
CHANGES += [the_header] * 4
CHANGES += [a_setting, a_token, a_merge, the_index, the_numbers, another_layout, more_merges] * 2
CHANGES += [another_tokenizer] * 2


# The state of a training


@change_of_state
def the_states_bytes(folder: Folder, rng: random.Random) -> str:
    return damage(folder, STATE, rng)


@change_of_state
def the_states_header(folder: Folder, rng: random.Random) -> str | None:
    return change_safetensors(folder, STATE, rng)


@change_of_state
def the_states_numbers(folder: Folder, rng: random.Random) -> str | None:
    stored = opened(folder, STATE)
    what = None if stored is None else spoil(stored, rng)
    if stored is None or what is None:
        return None
    folder.files[STATE] = stored.content()
    return f"{STATE}: {what}"


@change_of_state
def the_states_run(folder: Folder, rng: random.Random) -> str | None:
    stored = opened(folder, STATE)
    if stored is None or not isinstance(dict(stored.header).get("__metadata__"), dict):
        return None
    inner = list(dict(stored.header)["__metadata__"].items())
    what = change_pair(inner, rng)
    stored.header = [
        (k, Raw(pairs_text(inner)) if k == "__metadata__" else v) for k, v in stored.header
    ]
    folder.files[STATE] = stored.content()
    return f"{STATE}: metadata, {what}"


@change_of_state
def the_states_tensors(folder: Folder, rng: random.Random) -> str | None:
    """Tensors that fit the format, but not the run."""
    stored = opened(folder, STATE)
    if stored is None or not (arrays := stored.arrays()):
        return None
    name = rng.choice(sorted(arrays))
    dtype, _, content = arrays[name]
    kind = rng.choice(
        ["longer", "shorter", "wider", "integers", "matrix", "scalar", "none", "gone"]
    )
    itemsize = oracle.BITS.get(dtype, 8) // 8 if isinstance(dtype, str) else 1
    count = len(content) // itemsize
    numbers = {
        "longer": (
            dtype,
            [count + 5],
            content + content[: 5 * itemsize].ljust(5 * itemsize, b"\0"),
        ),
        "shorter": (dtype, [max(count - 1, 0)], content[: max(count - 1, 0) * itemsize]),
        "wider": ("F64", [count], bytes(8 * count)),
        "integers": ({4: "I32", 8: "I64"}.get(itemsize, "U8"), [count], content),
        "matrix": (dtype, [1, count], content),
        "scalar": (dtype, [], content[:itemsize].ljust(itemsize, b"\0")),
        "none": (dtype, [0], b""),
    }
    if kind == "gone":
        del arrays[name]
    else:
        arrays[name] = numbers[kind]
    header = [(k, v) for k, v in stored.header if k == "__metadata__"]
    anew = Tensors.holding(arrays)
    folder.files[STATE] = Tensors([*header, *anew.header], anew.data).content()
    return f"{STATE}: {name} {kind}"


@change_of_state
def the_states_frame(folder: Folder, rng: random.Random) -> str | None:
    return reframe(folder, STATE, rng)


@change_of_state
def something_else_in_the_states_place(folder: Folder, rng: random.Random) -> str:
    return special(folder, STATE, rng)
