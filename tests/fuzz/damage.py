"""Model directories as values, and ways to damage them, from a flipped bit to a pipe as a file.

Each function in `CHANGES` changes one thing. Some leave a model sound, so that a reader that
refuses everything is detected too. If there is nothing to change, nothing changes.
"""

from __future__ import annotations

import json
import os
import random
import socket
from collections.abc import Callable
from dataclasses import dataclass
from json.encoder import encode_basestring_ascii as quoted
from pathlib import Path
from typing import Any

import numpy as np
import oracle

REFERENCE = Path(__file__).parents[1] / "reference"
TOKENIZERS = sorted(path for path in (REFERENCE / "tokenizers").glob("*") if path.is_dir())

CONFIG, VOCABULARY, MERGES = "config.json", "vocab.json", "merges.txt"
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"

BASES: dict[str, dict[str, bytes]] = {
    config.parent.name: {
        file.name: file.read_bytes()
        for file in sorted(config.parent.iterdir())
        if file.name != "expected.npz"
    }
    for config in sorted(REFERENCE.glob("*/config.json"))
}

# Odd values, names and numbers

CLIPBOARD = "\x1b]52;c;Zm9v\x07"  # copies "foo" to the clipboard in some terminals


class Raw(str):
    """A piece of JSON that is written unchanged."""


HUGE = [0, -1, 1, 2, 3, 7, 255, 256, 257, 10**6, 2**31 - 1, 2**31, 2**32, 2**53 + 1, 10**18]
HUGE += [2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), 10**30]
NAMES = [
    *("", "a", "é", "猫", "🙈", ".", "..", "/", "a/b", "../a", "/etc", "C:\\a", "a\0b", " ", "\n"),
    *(CLIPBOARD, "\x1b[2J", "\x9b31m", "\u202eabc", "\u2028", "\ufeff", "%s{0}", "<b>a</b>"),
    *("x" * 300, "x" * 5000, "h.0.attn.bias", "h.٣.attn.bias", "h.99.attn.masked_bias"),
    *("__metadata__", "transformer.", "transformer.wte.weight", "wte.weight", "lm_head.weight"),
    *("nan", "null", "-1", "<|endoftext|>", "Ġ", "th", "ÿ"),
]
ODD_JSON = ["NaN", "Infinity", "-Infinity", "1e400", "1E2", "-0", "01", "1_0", "0x10", "'a'", "//"]
ODD_JSON += ['"\\ud800"', '"\\udc80\\ud800"', '"\\u001b]52;c;Zm9v\\u0007"', "undefined", "9" * 5000]
ODD_JSON += ["[" * 200 + "]" * 200, "[" * 100_000, '{"a":' * 3000, "1.0e-400", "3.0"]
ODD = [
    *(None, True, False, 0.0, -0.0, 1.5, 2.0, 1e-5, 1e308, -1.0, "", "1", "gelu", "gpt2", "true"),
    *("relu", "quick_gelu", "gelu_10", "mish", [], [1], [[1]], {}, {"a": 1}, [None], "x" * 5000),
    *([0] * 2000, CLIPBOARD, "a\0b", *HUGE, *map(Raw, ODD_JSON)),
]
NUMBERS = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-320, 1e-40, 1e-8, 65504.0, 65520.0, 1e10, 1e30]
NUMBERS += [-1e30, 3.4e38, 3.5e38, -1e300, 1.0, -1.0]
DTYPES = ["BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F4", "F6_E2M3", "I16", "U16", "F16", "BF16"]
DTYPES += ["I32", "U32", "F32", "I64", "U64", "F64", "C64", "f32", "F128", "F33", "", "float32"]
DTYPES += ["C128", CLIPBOARD, "U7"]
MERGED = ["", " ", "a", "a b c", "a  b", " a b", "a b ", "a\tb", "t h", "h e", "Ġ Ġ", "#version: 9"]
MERGED += ["a\u00a0b", "a\u2028b", "th e ", "t he", CLIPBOARD, "x" * 5000, "\ufeff", "é é", "q \0"]
DIRECTORIES = ["a b", "é猫", CLIPBOARD, "\x1b[2J", "a\nb", os.fsdecode(b"\xff\xfe"), "x" * 255]
DIRECTORIES += ["-x", "\u202e", "{0}"]
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"

# Prefixes of names in files of wrapped models, and names of added heads.
AROUND = ["_orig_mod.", "module.transformer.", "base_model.model.transformer.", "model.module."]
HEADS = ["score.weight", "classifier.bias", "qa_outputs.weight", "v_head.summary.weight", "score"]


# JSON as text, so that it can be invalid


def dumps(value: Any) -> str:
    if isinstance(value, Raw):
        return str(value)
    if isinstance(value, dict):
        pairs = (f"{quoted(str(key))}: {dumps(item)}" for key, item in value.items())
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, Pairs):
        return "{" + ", ".join(f"{quoted(key)}: {dumps(item)}" for key, item in value) + "}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(dumps, value))}]"
    return str(value) if type(value) is int else json.dumps(value)


class Pairs(list[tuple[str, Any]]):
    """A JSON object that may have duplicate keys."""

    @classmethod
    def of(cls, content: bytes) -> Pairs:
        """An object's items in order; empty if it isn't an object."""
        try:
            value = json.loads(content)
        except (ValueError, RecursionError):
            value = {}
        return cls(value.items() if isinstance(value, dict) else ())


# Directories and files


@dataclass(frozen=True)
class Special:
    """Something in place of a file: a pipe, a link to `target`, or `content` followed by zeros."""

    kind: str
    target: str = ""
    content: bytes = b""
    size: int = 0

    def make(self, path: Path) -> None:
        if self.kind == "pipe":
            os.mkfifo(path)
        elif self.kind == "directory":
            path.mkdir()
        elif self.kind == "link":
            path.symlink_to(self.target)
        elif self.kind == "socket":
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(path.name)  # its whole path may be too long
        else:
            path.write_bytes(self.content)
            os.truncate(path, self.size)


@dataclass
class Folder:
    """A directory to be created."""

    files: dict[str, bytes | Special]
    name: str = "model"

    def write(self, parent: Path) -> Path:
        """Create it below `place`, the current directory."""
        path = parent / self.name
        path.mkdir()
        os.chdir(path)
        for name, content in self.files.items():
            if isinstance(content, Special):
                content.make(Path(name))
            else:
                Path(name).write_bytes(content)
        os.chdir(parent)
        return path

    def __getitem__(self, name: str) -> bytes:
        content = self.files.get(name, b"")
        return content if isinstance(content, bytes) else content.content

    def __setitem__(self, name: str, content: bytes | str | Pairs) -> None:
        text = dumps(content) if isinstance(content, Pairs) else content
        self.files[name] = text.encode() if isinstance(text, str) else text

    def weight_files(self) -> list[str]:
        return [name for name in self.files if name.endswith(".safetensors")]


# Dtype, shape and bytes of tensors, by name.
Arrays = dict[str, tuple[str, list[Any], bytes]]


@dataclass
class Tensors:
    """A safetensors file, split into its header and the rest."""

    header: Pairs
    data: bytes

    @classmethod
    def of(cls, content: bytes) -> Tensors:
        length = int.from_bytes(content[:8], "little")
        return cls(Pairs.of(content[8 : 8 + length]), content[8 + length :])

    @classmethod
    def holding(cls, arrays: Arrays) -> Tensors:
        header, data = Pairs(), b""
        for name, (dtype, shape, content) in arrays.items():
            offsets = [len(data), len(data) + len(content)]
            header.append((name, {"dtype": dtype, "shape": shape, "data_offsets": offsets}))
            data += content
        return cls(header, data)

    def content(self, before: bytes = b"", after: bytes = b"", length: int | None = None) -> bytes:
        head = before + dumps(self.header).encode("utf-8", "surrogatepass") + after
        return (len(head) if length is None else length).to_bytes(8, "little") + head + self.data

    def entries(self) -> list[int]:
        """The positions of well-formed tensors in the header."""
        return [
            i
            for i, (name, info) in enumerate(self.header)
            if name != "__metadata__"
            and isinstance(info, dict)
            and isinstance(info.get("shape"), list)
            and isinstance(info.get("data_offsets"), list)
            and len(info["data_offsets"]) == 2
            and all(map(oracle.is_count, info["data_offsets"]))
        ]

    def arrays(self) -> Arrays:
        found = {}
        for name, info in (self.header[i] for i in self.entries()):
            begin, end = info["data_offsets"]
            found[name] = (info.get("dtype"), info["shape"], self.data[begin:end])
        return found


# Changes of bytes, of JSON and of tensors


def damaged(content: bytes, rng: random.Random) -> bytes:
    """Bytes with some of them changed; the first ones, in headers, more often."""
    size = len(content)
    at = rng.randrange(min(size, rng.choice([8, 64, 1000, size])) or 1)
    length = rng.choice([1, 1, 2, 7, 100])
    noise = rng.choice([rng.randbytes(length), b"\0" * length, b"\xff" * length, b" " * length])
    bit = bytes([content[at] ^ (1 << rng.randrange(8))]) if size else b""
    return rng.choice(
        [
            content[:at] + bit + content[at + 1 :],
            content[:at] + noise + content[at + length :],
            content[:at] + noise + content[at:],
            content[:at] + content[at + length :],
            content[: at + length] + content[at:],
            content[: rng.randrange(size + 1)],
            content + noise,
            b"",
        ]
    )


def change_pair(pairs: Pairs, rng: random.Random) -> None:
    """One item removed, renamed, duplicated, moved, or with another value."""
    at, to = (rng.randrange(len(pairs) or 1) for _ in range(2))
    key, value = pairs[at] if pairs else ("a", 1)
    odd, name = rng.choice(ODD), rng.choice([*NAMES, *(k for k, _ in pairs[:50])])
    kind = rng.choice(["value", "value", "value", "remove", "rename", "double", "move", "add"])
    if kind in ("value", "remove", "rename", "move"):
        del pairs[at : at + 1]
    if kind == "value":
        pairs.insert(at, (key, odd))
    elif kind == "rename":
        pairs.insert(at, (name, value))
    elif kind == "double":
        pairs.insert(to, (key, rng.choice([value, odd])))
    elif kind == "move":
        pairs.insert(to, (key, value))
    elif kind == "add":
        pairs.insert(to, (name, odd))


def change_tree(value: Any, rng: random.Random) -> Any:
    """JSON with one change somewhere."""
    if isinstance(value, dict):
        pairs = Pairs(value.items())
        if pairs and rng.random() < 0.7:
            at = rng.randrange(len(pairs))
            pairs[at] = (pairs[at][0], change_tree(pairs[at][1], rng))
        else:
            change_pair(pairs, rng)
        return pairs
    if isinstance(value, list) and value and rng.random() < 0.8:
        at = rng.randrange(len(value))
        one = value[at]
        changed = rng.choice([[change_tree(one, rng)], [], [one] * 2, [rng.choice(ODD)]])
        return [*value[:at], *changed, *value[at + 1 :]]
    return rng.choice(ODD)


def odd_shape(shape: list[Any], rng: random.Random) -> Any:
    *others, last = shape or [1]
    last = last if isinstance(last, int) else 1
    endings = (last + 1, -last, float(last), 0, rng.choice(HUGE))
    shapes = [shape[::-1], [*shape, 1], [1, *shape], others, *([*others, end] for end in endings)]
    shapes += [[2**32, 2**32], [2**63, 2], [2**64 + last], [0, 2**64], [1] * 100, [1] * 5000]
    return rng.choice([*shapes, [True, *shape], rng.choice(ODD)])


def odd_offsets(offsets: list[int], rng: random.Random) -> Any:
    b, e = offsets
    changed = [[e, b], [b, b], [b + 1, e + 1], [b, e + 4], [b - 1, e], [b + 4, e], [0, e]]
    changed += [[0, e - b], [float(b), float(e)], [b + 2**64, e + 2**64], [b], [b, e, e]]
    changed += [[-8, e - b - 8], [b, rng.choice(HUGE)], [rng.choice(HUGE), rng.choice(HUGE)]]
    return rng.choice([*changed, rng.choice(ODD)])


def change_header(content: bytes, rng: random.Random) -> bytes:
    """Change one field of a tensor, or one tensor, in the header."""
    stored = Tensors.of(content)
    header = stored.header
    if not (entries := stored.entries()):
        return content
    at, other = rng.choice(entries), rng.choice(entries)
    (name, info), (other_name, other_info) = header[at], header[other]
    kinds = ["shape", "shape", "dtype", "offsets", "offsets", "name", "exchange", "field"]
    if rng.random() < 0.25:
        kinds = ["pair", "double", "metadata", "swap"]
    kind = rng.choice(kinds)
    if kind == "shape":
        header[at] = name, info | {"shape": odd_shape(info["shape"], rng)}
    elif kind == "dtype":
        header[at] = name, info | {"dtype": rng.choice([*DTYPES, rng.choice(ODD)])}
    elif kind == "offsets":
        header[at] = name, info | {"data_offsets": odd_offsets(info["data_offsets"], rng)}
    elif kind == "name":
        near = [f"transformer.{name}", name.removeprefix("transformer."), name + " "]
        header[at] = rng.choice([*NAMES, *near]), info
    elif kind == "exchange":  # another tensor's bytes
        header[at] = name, info | {"data_offsets": other_info["data_offsets"]}
    elif kind == "field":
        fields = Pairs(info.items())
        change_pair(fields, rng)
        header[at] = name, fields
    elif kind == "pair":
        change_pair(header, rng)
    elif kind == "double":
        header.insert(other, (name, rng.choice([info, other_info])))
    elif kind == "metadata":
        texts = [{"a": "b"}, {"a": 1}, {"a": None}, {CLIPBOARD: CLIPBOARD}]
        header.insert(rng.choice([0, at]), ("__metadata__", rng.choice([*ODD, *texts])))
    else:  # two tensors swapped, which is sound if their shapes agree
        header[at], header[other] = (name, other_info), (other_name, info)
    return stored.content()


def change_frame(content: bytes, rng: random.Random) -> bytes:
    """Change the bytes around the header."""
    stored = Tensors.of(content)
    length = len(content) - 8 - len(stored.data)
    lengths = [length + d for d in (-1, 1, 2, 8, len(stored.data), len(stored.data) + 1)]
    lengths += [0, 1, 2, 10**8, 10**8 + 1, 2**31, 2**63 - 1, 2**63, 2**64 - 1, 2**64 - 8]
    spaces = [b" " * n for n in (1, 8, 100)]
    odd = [b"\n", b"\t", b"\r\n  ", b"\0", b"\x0b"]
    padded = Tensors(stored.header, b"\0" * rng.choice([1, 8]) + stored.data)
    return rng.choice(
        [
            stored.content(after=rng.choice(spaces)),
            stored.content(after=rng.choice(odd)),
            stored.content(before=rng.choice([b" ", b"\n", b"\xef\xbb\xbf", b"[", b"\0"])),
            stored.content(length=max(rng.choice(lengths), 0)),
            Tensors(Pairs(), rng.choice([b"", stored.data])).content(),
            content + content,
            padded.content(),
        ]
    )


def change_numbers(content: bytes, rng: random.Random) -> bytes:
    """Change some numbers of a tensor."""
    stored = Tensors.of(content)
    reals = [i for i in stored.entries() if str(stored.header[i][1].get("dtype")) in oracle.REALS]
    if not reals:
        return content
    info = stored.header[rng.choice(reals)][1]
    begin, end = info["data_offsets"]
    part = stored.data[begin:end]
    dtype = np.dtype(oracle.REALS[info["dtype"]])
    numbers = np.frombuffer(part[: len(part) // dtype.itemsize * dtype.itemsize], dtype).copy()
    if not numbers.size:
        return content
    value = rng.choice(NUMBERS)
    at = rng.choice([0, numbers.size - 1, rng.randrange(numbers.size)])
    with np.errstate(all="ignore"):
        if info["dtype"] == "BF16":
            value = np.float32(value).view(np.uint32) >> 16
        numbers[at : at + rng.choice([1, 1, 1, 5, numbers.size])] = value
    whole = numbers.tobytes().ljust(end - begin, b"\0")
    stored.data = stored.data[:begin] + whole + stored.data[end:]
    return stored.content()


def special(folder: Folder, name: str, rng: random.Random) -> Special:
    """Put something other than a regular file in a file's place."""
    content = folder[name]
    kind = rng.choice(["pipe", "directory", "link", "socket", "sparse", "sparse"])
    target = rng.choice([name, "nowhere", "..", ".", some_file(folder, rng), "x" * 300])
    head = rng.choice([b"", content, content[:8], (90_000_000).to_bytes(8, "little") + b"{"])
    huge = 10**12 if is_text(name) else 10**9  # files that can be memory-mapped
    size = len(head) + rng.choice([1, 1000, 10**6, 300 * 10**6, huge])
    return Special(kind, target, head, size)


# Changes of a folder

Change = Callable[[Folder, random.Random], None]
CHANGES: list[Change] = []


def change(function: Change) -> Change:
    CHANGES.append(function)
    return function


def some_file(folder: Folder, rng: random.Random) -> str:
    return rng.choice(sorted(folder.files))


def some_weights(folder: Folder, rng: random.Random) -> str:
    return rng.choice(sorted(folder.weight_files()) or [WEIGHTS])


def is_text(name: str) -> bool:
    return name.endswith((".json", ".txt"))


@change
def damage_bytes(folder: Folder, rng: random.Random) -> None:
    name = some_file(folder, rng)
    folder[name] = damaged(folder[name], rng)


@change
def remove_file(folder: Folder, rng: random.Random) -> None:
    if len(folder.files) > 1:
        del folder.files[some_file(folder, rng)]


@change
def put_special_file(folder: Folder, rng: random.Random) -> None:
    name = some_file(folder, rng)
    folder.files[name] = special(folder, name, rng)


@change
def link_file(folder: Folder, rng: random.Random) -> None:
    name = some_file(folder, rng)
    folder.files[f"really {name}"] = folder.files[name]
    folder.files[name] = Special("link", f"really {name}")


@change
def swap_files(folder: Folder, rng: random.Random) -> None:
    name, other = some_file(folder, rng), some_file(folder, rng)
    another_model = BASES[rng.choice(sorted(BASES))]
    if rng.random() < 0.5 and name in another_model:
        folder[name] = another_model[name]
    else:
        folder.files[name], folder.files[other] = folder.files[other], folder.files[name]


@change
def keep_only_pickled_weights(folder: Folder, rng: random.Random) -> None:
    for name in folder.weight_files():
        del folder.files[name]
    odd = rng.choice(["", "-00001-of-00002", CLIPBOARD, "\n", "é", "x" * 200])
    folder[f"pytorch_model{odd}.bin"] = b"PK\x03\x04"


@change
def leave_a_failed_download(folder: Folder, rng: random.Random) -> None:
    answers = [POINTER, b"<!DOCTYPE html><html></html>", b"Entry not found"]
    folder[some_file(folder, rng)] = rng.choice(answers)


@change
def rename_directory(folder: Folder, rng: random.Random) -> None:
    folder.name = rng.choice(DIRECTORIES)


@change
def damage_text(folder: Folder, rng: random.Random) -> None:
    name = rng.choice([name for name in sorted(folder.files) if is_text(name)] or [CONFIG])
    content = folder[name]
    text = content.decode("utf-8", errors="replace")
    folder[name] = rng.choice(
        [
            b"\xef\xbb\xbf" + content,
            text.encode("utf-16"),
            text.encode("latin-1", errors="replace"),
            content.replace(b"\n", b"\r\n"),
            content.replace(b"\n", b"\r"),
            content.rstrip(b"\n"),
            b" \n\t" + content + b"\n\n  ",
            *(content.replace(b"e", other, 1) for other in (b"\xc3", b"\xc1\xa5", b"\xed\xa0\x80")),
            b"[" + content + b"]",
            content + content,
            content.replace(b"}", b",}"),
            dumps(rng.choice(ODD)).encode(),
            b'{"a":' * 100_000,
            b"\0" * len(content),
            content.replace(b"\n", "\u2028".encode(), 2),
        ]
    )


def change_json(folder: Folder, name: str, rng: random.Random) -> None:
    if pairs := Pairs.of(folder[name]):
        change_pair(pairs, rng)
        folder[name] = pairs


@change
def change_setting(folder: Folder, rng: random.Random) -> None:
    """Change the config; sizes and settings of equations more often than the rest."""
    if rng.random() < 0.3:
        return change_json(folder, CONFIG, rng)
    pairs = Pairs.of(folder[CONFIG])
    keys = [*oracle.DEFAULTS, "n_inner", "layer_norm_epsilon", "activation_function", "model_type"]
    key = rng.choice([*keys, *oracle.FLAGS])
    near = [v + d for k, v in pairs if k == key and isinstance(v, int) for d in (-1, 1, -v, v)]
    fits = [*oracle.ACTIVATIONS, "gelu_10"] if key == "activation_function" else [True, False]
    value = rng.choice([rng.choice(ODD), rng.choice(near or ODD), rng.choice(fits)])
    folder[CONFIG] = Pairs([*((k, v) for k, v in pairs if k != key), (key, value)])
    return None


@change
def change_token(folder: Folder, rng: random.Random) -> None:
    pairs = Pairs.of(folder[VOCABULARY])
    if not pairs or rng.random() < 0.5:
        return change_json(folder, VOCABULARY, rng)
    i, j = rng.randrange(len(pairs)), rng.randrange(len(pairs))
    (one, id), (other, id_of_other) = pairs[i], pairs[j]
    if rng.random() < 0.7:
        pairs[i], pairs[j] = (one, id_of_other), (other, id)
    else:
        pairs[i] = (one, rng.choice([id_of_other, len(pairs), -1, float(id), str(id)]))
    folder[VOCABULARY] = pairs
    return None


@change
def change_merge(folder: Folder, rng: random.Random) -> None:
    lines = folder[MERGES].decode("utf-8", errors="replace").split("\n")
    at, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    whole = lines[at].replace(" ", "")
    cut = rng.randrange(len(whole) + 1)
    kind = rng.choice(["exchange", "remove", "double", "replace", "insert", "split"])
    if kind == "exchange":
        lines[at], lines[other] = lines[other], lines[at]
    elif kind == "remove":
        del lines[at]
    elif kind == "double":
        lines.insert(other, lines[at])
    elif kind == "replace":
        lines[at] = rng.choice(MERGED)
    elif kind == "insert":
        lines.insert(at, rng.choice(MERGED))
    else:  # the same token from other parts
        lines[at] = f"{whole[:cut]} {whole[cut:]}"
    folder[MERGES] = "\n".join(lines)


@change
def change_index(folder: Folder, rng: random.Random) -> None:
    pairs = Pairs.of(folder[INDEX])
    file_of_tensor = dict(pairs).get("weight_map")
    if not pairs:  # one beside or instead of the weights
        folder[INDEX] = dumps({"weight_map": {"wte.weight": WEIGHTS}})
        if rng.random() < 0.5:
            folder["a.safetensors"] = folder[WEIGHTS]
            folder.files.pop(WEIGHTS, None)
    elif not isinstance(file_of_tensor, dict) or not file_of_tensor or rng.random() < 0.2:
        change_json(folder, INDEX, rng)
    else:
        inner = Pairs(file_of_tensor.items())
        if rng.random() < 0.5:
            change_pair(inner, rng)
        else:
            at, files = rng.randrange(len(inner)), folder.weight_files()
            file = rng.choice([*files, *NAMES, *(f"./{name}" for name in files)])
            inner[at] = (inner[at][0], file)
        folder[INDEX] = Pairs((k, inner if k == "weight_map" else v) for k, v in pairs)


@change
def damage_header(folder: Folder, rng: random.Random) -> None:
    name = some_weights(folder, rng)
    folder[name] = change_header(folder[name], rng)


@change
def damage_around_header(folder: Folder, rng: random.Random) -> None:
    name = some_weights(folder, rng)
    folder[name] = change_frame(folder[name], rng)


@change
def damage_numbers(folder: Folder, rng: random.Random) -> None:
    name = some_weights(folder, rng)
    folder[name] = change_numbers(folder[name], rng)


# Changes that leave a model sound


def all_arrays(folder: Folder) -> Arrays:
    """Every tensor of the weights, whole or in shards."""
    found: Arrays = {}
    for name in folder.weight_files():
        found |= Tensors.of(folder[name]).arrays()
    return found


def write_weights(folder: Folder, arrays: Arrays, files: int = 1) -> None:
    """All tensors as new weights, in `count` files."""
    for name in [*folder.weight_files(), INDEX]:
        folder.files.pop(name, None)
    if files == 1:
        folder[WEIGHTS] = Tensors.holding(arrays).content()
        return
    file_of_tensor = {}
    for n in range(files):
        file = f"model-{n + 1:05}-of-{files:05}.safetensors"
        names = list(arrays)[n::files]
        folder[file] = Tensors.holding({name: arrays[name] for name in names}).content()
        file_of_tensor |= dict.fromkeys(names, file)
    folder[INDEX] = dumps({"metadata": {}, "weight_map": file_of_tensor})


@change
def rearrange_weights(folder: Folder, rng: random.Random) -> None:
    """Other dtypes, another order, another number of files, other prefixes."""
    items = list(all_arrays(folder).items())
    rng.shuffle(items)
    wider = rng.random() < 0.5
    prefix = rng.choice(["", "transformer.", None, *AROUND])
    arranged: Arrays = {}
    for name, (dtype, shape, content) in items:
        if wider and dtype in ("F32", "F16"):
            with np.errstate(invalid="ignore"):
                content = np.frombuffer(content, oracle.REALS[dtype]).astype("<f8").tobytes()
            dtype = "F64"
        bare = name.removeprefix("transformer.")
        before = rng.choice(["", "transformer."]) if prefix is None else prefix
        if bare == "lm_head.weight":
            before = before.removesuffix("transformer.")
        arranged[before + bare] = (dtype, shape, content)
    if rng.random() < 0.2:
        arranged[rng.choice(["", *AROUND]) + rng.choice(HEADS)] = ("F32", [1], b"\0\0\xc0\x7f")
    write_weights(folder, arranged, rng.choice([1, 1, 2, 5]))


@change
def add_old_buffers(folder: Folder, rng: random.Random) -> None:
    """Add mask buffers, and a second copy of the output matrix."""
    arrays = all_arrays(folder)
    prefix = "transformer." if "transformer.wte.weight" in arrays else ""
    for layer in range(2):
        dtype, data = rng.choice([("BOOL", b"\1"), ("U8", b"\0"), ("F32", b"\0\0\xc0\x7f")])
        name = f"{prefix}h.{layer}.attn.{rng.choice(['bias', 'masked_bias'])}"
        arrays[name] = (dtype, rng.choice([[], [1, 1, 1]]), data)
    embedding = arrays.get(f"{prefix}wte.weight")
    if embedding is not None and rng.random() < 0.7:
        dtype, shape, content = embedding
        if rng.random() < 0.3:
            content = damaged(content, rng).ljust(len(content), b"\0")[: len(content)]
        arrays["lm_head.weight"] = (dtype, shape, content)
    write_weights(folder, arrays)


def is_size(value: object) -> bool:
    return oracle.is_count(value) and value != 0


def set_rows(folder: Folder, count: int) -> bool:
    """Resize the embedding and an output matrix; returns whether that is possible."""
    arrays, config = all_arrays(folder), Pairs.of(folder[CONFIG])
    names = [name for name in arrays if name.endswith(("wte.weight", "lm_head.weight"))]
    shapes = [arrays[name][1] for name in names]
    if not config or not names or any(len(s) != 2 or not all(map(is_size, s)) for s in shapes):
        return False
    for name in names:
        dtype, (rows, columns), content = arrays[name]
        width = len(content) // rows
        more = (content * (count // rows + 1))[: count * width]
        arrays[name] = (dtype, [count, columns], more)
    write_weights(folder, arrays)
    folder[CONFIG] = Pairs((k, count if k == "vocab_size" else v) for k, v in config)
    return True


@change
def add_merges(folder: Folder, rng: random.Random) -> None:
    """Add merges of existing tokens, with the new tokens and rows of the embedding."""
    tokens = Pairs.of(folder[VOCABULARY])
    lines = folder[MERGES].decode("utf-8", errors="replace").rstrip("\n").split("\n")
    symbols = {token for token, _ in tokens}
    pieces = [s for s in (*"tehinaĠ", "th", "he", "in", "the", "Ġth", "Ġa") if s in symbols]
    added: list[str] = []
    for _ in range(rng.choice([1, 5, 20, 60]) if pieces else 0):
        first, second = rng.choice([*pieces, *added]), rng.choice([*pieces, *added])
        if first + second not in symbols and len(first + second) < 12:
            symbols.add(first + second)
            added.append(first + second)
            lines.append(f"{first} {second}")
    if set_rows(folder, len(tokens) + len(added)):
        ids = [(token, len(tokens) + i) for i, token in enumerate(added)]
        folder[VOCABULARY] = Pairs([*tokens, *ids])
        folder[MERGES] = "\n".join(lines) + "\n"


@change
def replace_tokenizer(folder: Folder, rng: random.Random) -> None:
    """A reference tokenizer with matching rows of the embedding, unchanged or with one change.

    Its ids aren't checked here: they are compared with transformers' elsewhere.
    """
    if not set_rows(folder, 400):
        return
    for name in (VOCABULARY, MERGES):
        folder.files.pop(name, None)
    files = {file.name: file.read_bytes() for file in sorted(rng.choice(TOKENIZERS).iterdir())}
    folder.files.update(files)
    name = rng.choice(sorted(files))
    if (pairs := Pairs.of(files[name])) and rng.random() < 0.8:
        folder[name] = dumps(change_tree(dict(pairs), rng))


@change
def change_nothing(folder: Folder, rng: random.Random) -> None:
    """Changes that keep a sound model sound."""


# The most error-prone parts are changed more often.
CHANGES += [damage_header] * 4
CHANGES += [
    change_setting,
    change_token,
    change_merge,
    change_index,
    damage_numbers,
    rearrange_weights,
    add_merges,
] * 2
CHANGES += [replace_tokenizer] * 2
