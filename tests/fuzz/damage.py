"""Model directories as values, and ways to damage them, from a flipped bit to a pipe as a file.

Each function in `CHANGES` makes one change with Hypothesis's `draw`. Some leave a model sound,
so that a reader that refuses everything is detected too. If there is nothing to change, nothing
changes.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import oracle
from hypothesis import strategies as st

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

Draw = Callable[[st.SearchStrategy[Any]], Any]


def pick(draw: Draw, *options: Any) -> Any:
    return draw(st.sampled_from(options))


def is_drawn(draw: Draw, percent: int) -> bool:
    """Whether something that happens in `percent` of the cases happens now."""
    return bool(draw(st.integers(1, 100)) <= percent)


# Odd values

CLIPBOARD = "\x1b]52;c;Zm9v\x07"  # copies "foo" to the clipboard in some terminals
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"
SETTINGS = [*oracle.DEFAULTS, *oracle.FLAGS, "n_inner", "layer_norm_epsilon"]
SETTINGS += ["activation_function", "model_type"]
DTYPES = ["BOOL", "U8", "F8_E5M2", "F4", "I16", "F16", "BF16", "F32", "I64", "F64", "C64", "F33"]

# Prefixes of names in files of wrapped models, and names of added heads.
WRAPPERS = ["_orig_mod.", "module.transformer.", "base_model.model.transformer.", "model.module."]
HEADS = ["score.weight", "classifier.bias", "qa_outputs.weight", "v_head.summary.weight", "score"]


INTEGERS = st.integers(-2, 300) | st.integers() | st.sampled_from([2**31, 2**53 + 1, 2**63, 2**64])
NAMES = st.text(st.characters(), max_size=5) | st.sampled_from(
    [
        *("", ".", "..", "/", "a/b", "../a", "/etc", "C:\\a", "a\0b", "x" * 300, "x" * 5000),
        *(CLIPBOARD, "\x9b31m", "\u202eabc", "h.0.attn.bias", "h.٣.attn.bias", "nan", "Ġ", "th"),
        *("__metadata__", "transformer.", "transformer.wte.weight", "wte.weight", "lm_head.weight"),
        *("<|endoftext|>", "h.99.attn.masked_bias", *SETTINGS),
    ]
)
JSON = st.recursive(
    st.none() | st.booleans() | INTEGERS | st.floats() | NAMES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=4,
) | st.sampled_from(["1", "true", "mish", 2.0, [0] * 2000, {"a": 1}, {CLIPBOARD: CLIPBOARD}])
NUMBERS = st.floats() | st.sampled_from([65504.0, 65520.0, 1e30, 3.4e38, 3.5e38, -1e300])
MERGE_LINES = st.text("thean Ġé\t\u00a0\u2028\ufeff\0", max_size=6) | st.sampled_from(
    ["t h", "h e", "Ġ Ġ", "#version: 9", "th e ", CLIPBOARD, "x" * 5000]
)
DIRECTORIES = ["a b", "é猫", CLIPBOARD, "\x1b[2J", "a\nb", os.fsdecode(b"\xff\xfe"), "x" * 255]
DIRECTORIES += ["-x", "\u202e", "{0}"]


# JSON


def json_object(content: bytes) -> dict[str, Any]:
    """A JSON object; empty if it isn't one."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def similar(value: Any) -> st.SearchStrategy[Any]:
    """Values like this one."""
    if type(value) is int:
        near = [value - 1, value + 1, value + 4, 2 * value, -value, value + 2**64]
        return st.sampled_from([*near, float(value), str(value)])
    if isinstance(value, str):
        return st.sampled_from([*oracle.ACTIVATIONS, *DTYPES, value + " ", value.lower()])
    return st.booleans()


def change_json(value: Any, draw: Draw) -> Any:
    """JSON with one change somewhere."""
    if not isinstance(value, dict | list) or not value or is_drawn(draw, 10):
        return draw(similar(value) | JSON)
    is_object = isinstance(value, dict)
    items: Any = value.copy()
    keys = list(items) if is_object else range(len(items))
    key, other = draw(st.sampled_from(keys)), draw(st.sampled_from(keys))
    kind = pick(draw, *["inside"] * 6, "remove", "add", "exchange", "copy", "rename")
    if kind == "inside":
        items[key] = change_json(items[key], draw)
    elif kind == "exchange":
        items[key], items[other] = items[other], items[key]
    elif kind == "copy":
        items[key] = items[other]
    elif kind == "remove":
        del items[key]
    elif not is_object:
        items.insert(key, draw(st.just(1) | JSON))
    elif kind == "add":
        items[draw(NAMES)] = draw(JSON)
    else:
        items[draw(NAMES | st.sampled_from([f"transformer.{key}", key + " "]))] = items.pop(key)
    return items


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
        """Create it in `parent`, the current directory."""
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

    def __setitem__(self, name: str, content: bytes | str | dict[str, Any]) -> None:
        text = json.dumps(content) if isinstance(content, dict) else content
        self.files[name] = text.encode() if isinstance(text, str) else text

    def weight_files(self) -> list[str]:
        return [name for name in self.files if name.endswith(".safetensors")]


# Dtype, shape and bytes of tensors, by name.
Arrays = dict[str, tuple[str, list[Any], bytes]]


@dataclass
class Tensors:
    """A safetensors file, split into its header and the rest."""

    header: Any
    data: bytes

    @classmethod
    def of(cls, content: bytes) -> Tensors:
        length = int.from_bytes(content[:8], "little")
        return cls(json_object(content[8 : 8 + length]), content[8 + length :])

    @classmethod
    def holding(cls, arrays: Arrays) -> Tensors:
        header, data = {}, b""
        for name, (dtype, shape, content) in arrays.items():
            offsets = [len(data), len(data) + len(content)]
            header[name] = {"dtype": dtype, "shape": shape, "data_offsets": offsets}
            data += content
        return cls(header, data)

    def content(self, before: bytes = b"", after: bytes = b"", length: int | None = None) -> bytes:
        head = before + json.dumps(self.header).encode() + after
        return (len(head) if length is None else length).to_bytes(8, "little") + head + self.data

    def arrays(self) -> Arrays:
        """The well-formed tensors."""
        arrays: Arrays = {}
        for name, info in self.header.items():
            offsets = info.get("data_offsets") if isinstance(info, dict) else None
            is_pair = isinstance(offsets, list) and len(offsets) == 2
            if (
                is_pair
                and all(map(oracle.is_count, offsets))
                and isinstance(info.get("shape"), list)
            ):
                begin, end = offsets
                arrays[name] = (info.get("dtype"), info["shape"], self.data[begin:end])
        return arrays


def damaged(content: bytes, draw: Draw) -> bytes:
    """Bytes with some of them changed; the first ones, in headers, more often."""
    size = len(content)
    start = min(draw(st.integers(0, 64) | st.integers(0, size)), size)
    end = start + pick(draw, 1, 2, 7, 100)
    before, middle, after = content[:start], content[start:end], content[end:]
    noise = draw(st.binary(max_size=100)) or pick(draw, b"\0", b"\xff", b" ") * len(middle)
    flipped = bytes([middle[0] ^ 1 << draw(st.integers(0, 7))]) if middle else b""
    variants = [flipped + middle[1:], noise, noise + middle, b"", middle * 2]
    return bytes(pick(draw, *(before + part + after for part in variants), before, content + noise))


def special(folder: Folder, name: str, draw: Draw) -> Special:
    """Put something other than a regular file in a file's place."""
    content = folder[name]
    kind = pick(draw, "pipe", "directory", "link", "socket", "sparse", "sparse")
    target = pick(draw, name, "nowhere", "..", ".", *sorted(folder.files), "x" * 300)
    head = pick(draw, b"", content, content[:8], (90_000_000).to_bytes(8, "little") + b"{")
    huge = 10**12 if is_text(name) else 10**9  # files that can be memory-mapped
    size = len(head) + pick(draw, 1, 1000, 10**6, 300 * 10**6, huge)
    return Special(kind, target, head, size)


# Changes of a folder

Change = Callable[[Folder, Draw], None]
CHANGES: list[Change] = []


def change(function: Change) -> Change:
    CHANGES.append(function)
    return function


def some_file(folder: Folder, draw: Draw) -> str:
    return str(pick(draw, *sorted(folder.files)))


def some_weights(folder: Folder, draw: Draw) -> str:
    return str(pick(draw, *sorted(folder.weight_files()) or [WEIGHTS]))


def is_text(name: str) -> bool:
    return name.endswith((".json", ".txt"))


@change
def damage_bytes(folder: Folder, draw: Draw) -> None:
    name = some_file(folder, draw)
    folder[name] = damaged(folder[name], draw)


@change
def remove_file(folder: Folder, draw: Draw) -> None:
    if len(folder.files) > 1:
        del folder.files[some_file(folder, draw)]


@change
def put_special_file(folder: Folder, draw: Draw) -> None:
    name = some_file(folder, draw)
    folder.files[name] = special(folder, name, draw)


@change
def link_file(folder: Folder, draw: Draw) -> None:
    name = some_file(folder, draw)
    folder.files[f"really {name}"] = folder.files[name]
    folder.files[name] = Special("link", f"really {name}")


@change
def swap_files(folder: Folder, draw: Draw) -> None:
    name, other = some_file(folder, draw), some_file(folder, draw)
    another_model = BASES[pick(draw, *BASES)]
    if is_drawn(draw, 50) and name in another_model:
        folder[name] = another_model[name]
    else:
        folder.files[name], folder.files[other] = folder.files[other], folder.files[name]


@change
def keep_only_pickled_weights(folder: Folder, draw: Draw) -> None:
    for name in folder.weight_files():
        del folder.files[name]
    suffix = pick(draw, "", "-00001-of-00002", CLIPBOARD, "\n", "é", "x" * 200)
    folder[f"pytorch_model{suffix}.bin"] = b"PK\x03\x04"


@change
def leave_a_failed_download(folder: Folder, draw: Draw) -> None:
    answers = [POINTER, b"<!DOCTYPE html><html></html>", b"Entry not found"]
    folder[some_file(folder, draw)] = pick(draw, *answers)


@change
def rename_directory(folder: Folder, draw: Draw) -> None:
    folder.name = pick(draw, *DIRECTORIES)


@change
def damage_text(folder: Folder, draw: Draw) -> None:
    name = pick(draw, *[name for name in sorted(folder.files) if is_text(name)] or [CONFIG])
    content = folder[name]
    text = content.decode("utf-8", errors="replace")
    folder[name] = pick(
        draw,
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
        json.dumps(draw(JSON)).encode(),
        content.replace(b"}", b", " + content[1:], 1),  # every key twice
        content.replace(b"1", pick(draw, b"01", b"1e400", b"-0", b"1.0", b"9" * 5000), 1),
        b'{"a":' * 100_000,
        b"\0" * len(content),
        content.replace(b"\n", "\u2028".encode(), 2),
    )


@change
def change_json_file(folder: Folder, draw: Draw) -> None:
    name = pick(
        draw, *[name for name in sorted(folder.files) if name.endswith(".json")] or [CONFIG]
    )
    folder[name] = json.dumps(change_json(json_object(folder[name]), draw))


@change
def change_setting(folder: Folder, draw: Draw) -> None:
    """Change or add one of the settings that equations and sizes depend on."""
    settings, key = json_object(folder[CONFIG]), pick(draw, *SETTINGS)
    likely = similar(settings.get(key))
    folder[CONFIG] = settings | {key: draw(likely | likely | JSON)}


@change
def exchange_ids(folder: Folder, draw: Draw) -> None:
    """Exchange two tokens' ids, give both the same, or one an id that is too large."""
    ids = json_object(folder[VOCABULARY])
    if ids:
        token, other = (pick(draw, *ids) for _ in range(2))
        other_id = pick(draw, ids[token], ids[token], ids[other], len(ids))
        folder[VOCABULARY] = ids | {token: ids[other], other: other_id}


@change
def change_merge(folder: Folder, draw: Draw) -> None:
    lines = folder[MERGES].decode("utf-8", errors="replace").split("\n")
    i, j = (draw(st.integers(0, len(lines) - 1)) for _ in range(2))
    symbol = lines[i].replace(" ", "")
    cut = draw(st.integers(0, len(symbol)))
    kind = pick(draw, "exchange", "remove", "repeat", "replace", "insert", "split")
    if kind == "exchange":
        lines[i], lines[j] = lines[j], lines[i]
    elif kind == "remove":
        del lines[i]
    elif kind == "repeat":
        lines.insert(j, lines[i])
    elif kind == "replace":
        lines[i] = draw(MERGE_LINES)
    elif kind == "insert":
        lines.insert(i, draw(MERGE_LINES))
    else:  # the same token from other parts
        lines[i] = f"{symbol[:cut]} {symbol[cut:]}"
    folder[MERGES] = "\n".join(lines)


@change
def change_index(folder: Folder, draw: Draw) -> None:
    """Name another file for a tensor, or add an index beside or instead of the weights."""
    shards = json_object(folder[INDEX]).get("weight_map")
    if isinstance(shards, dict) and shards:
        files = folder.weight_files()
        existing = st.sampled_from([*files, *(f"./{name}" for name in files)]) if files else NAMES
        shards[pick(draw, *shards)] = draw(existing | NAMES)
        folder[INDEX] = {"metadata": {}, "weight_map": shards}
    else:
        folder[INDEX] = {"weight_map": {"wte.weight": WEIGHTS}}
        if is_drawn(draw, 50):
            folder["a.safetensors"] = folder[WEIGHTS]
            folder.files.pop(WEIGHTS, None)


@change
def damage_header(folder: Folder, draw: Draw) -> None:
    name = some_weights(folder, draw)
    stored = Tensors.of(folder[name])
    stored.header = change_json(stored.header, draw)
    folder[name] = stored.content()


@change
def damage_around_header(folder: Folder, draw: Draw) -> None:
    name = some_weights(folder, draw)
    content = folder[name]
    stored = Tensors.of(content)
    size = len(stored.data)
    length = len(content) - 8 - size
    near = [max(length + n, 0) for n in (-1, 1, 2, 8, size, size + 1)]
    lengths = [*near, 0, 1, 2, 10**8, 10**8 + 1, 2**31, 2**63 - 1, 2**63, 2**64 - 1, 2**64 - 8]
    folder[name] = pick(
        draw,
        stored.content(after=b" " * pick(draw, 1, 8, 100)),
        stored.content(after=pick(draw, b"\n", b"\t", b"\r\n  ", b"\0", b"\x0b")),
        stored.content(before=pick(draw, b" ", b"\n", b"\xef\xbb\xbf", b"[", b"\0")),
        stored.content(length=pick(draw, *lengths)),
        Tensors({}, pick(draw, b"", stored.data)).content(),
        content + content,
        Tensors(stored.header, b"\0" * pick(draw, 1, 8) + stored.data).content(),
    )


@change
def change_numbers(folder: Folder, draw: Draw) -> None:
    """Change some numbers of a tensor."""
    file = some_weights(folder, draw)
    arrays = Tensors.of(folder[file]).arrays()
    names = [name for name, (dtype, _, data) in arrays.items() if dtype in oracle.REALS and data]
    if not names:
        return
    name = pick(draw, *names)
    dtype, shape, data = arrays[name]
    stored_as = np.dtype(oracle.REALS[dtype])
    numbers = np.frombuffer(data[: len(data) // stored_as.itemsize * stored_as.itemsize], stored_as)
    numbers, start = numbers.copy(), draw(st.integers(0, max(numbers.size - 1, 0)))
    value = draw(NUMBERS)
    with np.errstate(all="ignore"):
        if dtype == "BF16":
            value = np.float32(value).view(np.uint32) >> 16
        numbers[start : start + pick(draw, 1, 5, len(numbers))] = value
    arrays[name] = (dtype, shape, numbers.tobytes().ljust(len(data), b"\0"))
    folder[file] = Tensors.holding(arrays).content()


# Changes that leave a model sound


def all_arrays(folder: Folder) -> Arrays:
    """Every tensor of the weights, whole or in shards."""
    arrays: Arrays = {}
    for name in folder.weight_files():
        arrays |= Tensors.of(folder[name]).arrays()
    return arrays


def write_weights(folder: Folder, arrays: Arrays, files: int = 1) -> None:
    """Replace the weights by these tensors, in several files."""
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
    folder[INDEX] = {"metadata": {}, "weight_map": file_of_tensor}


@change
def rearrange_weights(folder: Folder, draw: Draw) -> None:
    """Other dtypes, another order, another number of files, other prefixes."""
    is_wider = is_drawn(draw, 50)
    prefix = pick(draw, "", "transformer.", None, *WRAPPERS)
    arranged: Arrays = {}
    for name, (dtype, shape, content) in draw(st.permutations(list(all_arrays(folder).items()))):
        if is_wider and dtype in ("F32", "F16"):
            with np.errstate(invalid="ignore"):
                content = np.frombuffer(content, oracle.REALS[dtype]).astype("<f8").tobytes()
            dtype = "F64"
        bare = name.removeprefix("transformer.")
        before = pick(draw, "", "transformer.") if prefix is None else prefix
        if bare == "lm_head.weight":
            before = before.removesuffix("transformer.")
        arranged[before + bare] = (dtype, shape, content)
    if is_drawn(draw, 20):
        arranged[pick(draw, "", *WRAPPERS) + pick(draw, *HEADS)] = ("F32", [1], b"\0\0\xc0\x7f")
    write_weights(folder, arranged, pick(draw, 1, 1, 2, 5))


@change
def add_old_buffers(folder: Folder, draw: Draw) -> None:
    """Add mask buffers, and a second copy of the output matrix."""
    arrays = all_arrays(folder)
    prefix = "transformer." if "transformer.wte.weight" in arrays else ""
    for layer in range(2):
        dtype, data = pick(draw, ("BOOL", b"\1"), ("U8", b"\0"), ("F32", b"\0\0\xc0\x7f"))
        name = f"{prefix}h.{layer}.attn.{pick(draw, 'bias', 'masked_bias')}"
        arrays[name] = (dtype, pick(draw, [], [1, 1, 1]), data)
    embedding = arrays.get(f"{prefix}wte.weight")
    if embedding is not None and is_drawn(draw, 70):
        dtype, shape, content = embedding
        if is_drawn(draw, 50):
            content = damaged(content, draw).ljust(len(content), b"\0")[: len(content)]
        arrays["lm_head.weight"] = (dtype, shape, content)
    write_weights(folder, arrays)


def is_size(value: object) -> bool:
    return oracle.is_count(value) and value != 0


def set_rows(folder: Folder, count: int) -> bool:
    """Resize the embedding and an output matrix; returns whether that is possible."""
    arrays, config = all_arrays(folder), json_object(folder[CONFIG])
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
    folder[CONFIG] = config | {"vocab_size": count}
    return True


@change
def add_merges(folder: Folder, draw: Draw) -> None:
    """Add merges of existing tokens, with the new tokens and rows of the embedding."""
    tokens = json_object(folder[VOCABULARY])
    lines = folder[MERGES].decode("utf-8", errors="replace").rstrip("\n").split("\n")
    symbols = {*tokens}
    pieces = [s for s in (*"tehinaĠ", "th", "he", "in", "the", "Ġth", "Ġa") if s in symbols]
    added: list[str] = []
    for _ in range(pick(draw, 1, 5, 20, 60) if pieces else 0):
        first, second = (pick(draw, *pieces, *added) for _ in range(2))
        if first + second not in symbols and len(first + second) < 12:
            symbols.add(first + second)
            added.append(first + second)
            lines.append(f"{first} {second}")
    if set_rows(folder, len(tokens) + len(added)):
        folder[VOCABULARY] = tokens | {token: len(tokens) + i for i, token in enumerate(added)}
        folder[MERGES] = "\n".join(lines) + "\n"


@change
def replace_tokenizer(folder: Folder, draw: Draw) -> None:
    """A reference tokenizer with matching rows of the embedding, unchanged or with one change.

    Its ids aren't checked here: they are compared with transformers' elsewhere.
    """
    if not set_rows(folder, 400):
        return
    for name in (VOCABULARY, MERGES):
        folder.files.pop(name, None)
    files = {file.name: file.read_bytes() for file in sorted(pick(draw, *TOKENIZERS).iterdir())}
    folder.files.update(files)
    name = pick(draw, *sorted(files))
    if (content := json_object(files[name])) and is_drawn(draw, 80):
        folder[name] = json.dumps(change_json(content, draw))


@change
def change_nothing(folder: Folder, draw: Draw) -> None:
    """Changes that keep a sound model sound."""


# The most error-prone parts are changed more often.
CHANGES += [damage_header] * 4
CHANGES += [change_setting, exchange_ids, change_merge, change_index, change_numbers] * 2
CHANGES += [rearrange_weights, add_old_buffers, add_merges, replace_tokenizer] * 2
