"""Model directories as values, and ways to change them, from a flipped bit to a pipe as a file.

Each function in `DAMAGE` makes one change with Hypothesis's `draw`; those in `NEUTRAL` write the
same model in other words, so that a reader that refuses everything is detected too.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray
from safetensors import deserialize
from safetensors.numpy import save

REFERENCE = Path(__file__).parents[1] / "reference"

CONFIG, VOCABULARY, MERGES = "config.json", "vocab.json", "merges.txt"
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"

Draw = Callable[[st.SearchStrategy[Any]], Any]

# A directory's files by name: their bytes, or a function that makes something else.
Files = dict[str, Any]


def files_of(directory: Path) -> Files:
    files = sorted(directory.iterdir())
    return {file.name: file.read_bytes() for file in files if file.name != "expected.npz"}


MODELS = {
    path.parent.name: files_of(path.parent) for path in sorted(REFERENCE.glob("*/config.json"))
}
TOKENIZERS = {path.name: files_of(path) for path in sorted(REFERENCE.glob("tokenizers/*/"))}


def write(files: Files, directory: Path) -> None:
    directory.mkdir()
    for name, content in files.items():
        if callable(content):
            content(directory / name)
        else:
            (directory / name).write_bytes(content)


def pick(draw: Draw, *options: Any) -> Any:
    return draw(st.sampled_from(options))


def is_drawn(draw: Draw, percent: int) -> bool:
    """Whether something that happens in `percent` of the cases happens now."""
    return bool(draw(st.integers(1, 100)) <= percent)


# ---- odd values ----------------------------------------------------------------------------------

CLIPBOARD = "\x1b]52;c;Zm9v\x07"  # copies "foo" to the clipboard in some terminals
SIZES = ["vocab_size", "n_positions", "n_embd", "n_layer", "n_head"]
FLAGS = ["scale_attn_weights", "scale_attn_by_inverse_layer_idx", "tie_word_embeddings"]
SETTINGS = [*SIZES, *FLAGS, "n_inner", "layer_norm_epsilon", "activation_function", "model_type"]
DTYPES = ["BOOL", "U8", "F8_E5M2", "F4", "I16", "F16", "BF16", "F32", "I64", "F64", "C64", "F33"]
NAMES = st.text(st.characters(), max_size=5) | st.sampled_from(
    [
        *("", ".", "..", "/", "a/b", "../a", "/etc", "C:\\a", "a\0b", "x" * 300, "x" * 5000),
        *(CLIPBOARD, "\x9b31m", "\u202eabc", "h.0.attn.bias", "h.٣.attn.bias", "nan", "Ġ", "th"),
        *("__metadata__", "transformer.", "transformer.wte.weight", "wte.weight", "lm_head.weight"),
        *("<|endoftext|>", "h.99.attn.masked_bias", *SETTINGS),
    ]
)
INTEGERS = st.integers(-2, 300) | st.integers() | st.sampled_from([2**31, 2**53 + 1, 2**63, 2**64])
JSON = st.recursive(
    st.none() | st.booleans() | INTEGERS | st.floats() | NAMES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=4,
) | st.sampled_from(["1", "true", "mish", 2.0, [0] * 2000, {"a": 1}, {CLIPBOARD: CLIPBOARD}])
DIRECTORIES = ["model", "a b", "é猫", CLIPBOARD, "a\nb", os.fsdecode(b"\xff\xfe"), "x" * 255, "{0}"]


def similar(value: Any) -> st.SearchStrategy[Any]:
    """Values like this one."""
    if type(value) is int:
        near = [value - 1, value + 1, value + 4, 2 * value, -value, value + 2**64]
        return st.sampled_from([*near, float(value), str(value)])
    if isinstance(value, str):
        return st.sampled_from(["gelu", "relu", *DTYPES, value + " ", value.upper()])
    return st.booleans()


def change_json(value: Any, draw: Draw) -> Any:
    """JSON with one change somewhere."""
    if not isinstance(value, dict | list) or not value or is_drawn(draw, 10):
        return draw(similar(value) | JSON)
    items: Any = value.copy()
    keys = list(items) if isinstance(items, dict) else range(len(items))
    key, other = draw(st.sampled_from(keys)), draw(st.sampled_from(keys))
    kind = pick(draw, *["inside"] * 4, "remove", "add", "exchange", "copy")
    if kind == "inside":
        items[key] = change_json(items[key], draw)
    elif kind == "exchange":
        items[key], items[other] = items[other], items[key]
    elif kind == "copy":
        items[key] = items[other]
    elif kind == "remove":
        del items[key]
    elif isinstance(items, dict):
        items[draw(NAMES)] = draw(JSON)
    else:
        items.insert(key, draw(st.just(1) | JSON))
    return items


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


# ---- damage --------------------------------------------------------------------------------------


def some(files: Files, draw: Draw, *endings: str) -> tuple[str, bytes]:
    """The name and content of a regular file with one of these endings."""
    regular = [name for name in sorted(files) if not callable(files[name])]
    name = pick(draw, *[name for name in regular if name.endswith(endings or "")] or ["none"])
    return name, files[name] if name in regular else b""


def damage_bytes(files: Files, draw: Draw) -> None:
    name, content = some(files, draw)
    files[name] = damaged(content, draw)


def replace_file(files: Files, draw: Draw) -> None:
    """Something other than a regular file, another file's content, or a failed download."""
    name, content = some(files, draw)
    files.pop(name, None)
    target = pick(draw, name, "nowhere", "..", ".", *sorted(files))
    head = pick(draw, b"", content, content[:8], (90_000_000).to_bytes(8, "little") + b"{")
    size = pick(draw, 1, 1000, 10**6, 300 * 10**6, 10**9)

    def sparse(path: Path) -> None:
        path.write_bytes(head)
        os.truncate(path, len(head) + size)

    others = [other for other in files.values() if not callable(other)]
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"
    links = [lambda path: path.symlink_to(target), lambda path: path.symlink_to("x" * 300)]
    instead = pick(draw, None, os.mkfifo, Path.mkdir, *links, sparse, pointer, b"<html>", *others)
    if instead is not None:
        files[name] = instead


def damage_text(files: Files, draw: Draw) -> None:
    name, content = some(files, draw, ".json", ".txt")
    files[name] = pick(
        draw,
        content.decode("utf-8", errors="replace").encode("utf-16"),
        *(content.replace(b"e", other, 1) for other in (b"\xc3", b"\xc1\xa5", b"\xed\xa0\x80")),
        *(b"[" + content + b"]", content + content, content.replace(b"}", b",}")),
        content.replace(b"}", b", " + content[1:], 1),  # every key twice
        content.replace(b"1", pick(draw, b"01", b"1e400", b"-0", b"1.0", b"9" * 5000), 1),
        b'{"a":' * 100_000,
        b"\0" * len(content),
        content.replace(b"\n", "\u2028".encode(), 2),
    )


def change_settings(files: Files, draw: Draw) -> None:
    name, content = some(files, draw, ".json")
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return
    if name == CONFIG and isinstance(value, dict) and is_drawn(draw, 70):
        key = pick(draw, *SETTINGS)
        likely = similar(value.get(key))
        files[name] = json.dumps(value | {key: draw(likely | likely | JSON)}).encode()
    else:
        files[name] = json.dumps(change_json(value, draw)).encode()


def damage_header(files: Files, draw: Draw) -> None:
    """Change what a safetensors file says of its tensors, or how long its header is."""
    name, content = some(files, draw, ".safetensors")
    end = 8 + int.from_bytes(content[:8], "little")
    text, data = content[8:end], content[end:]
    try:
        text = json.dumps(change_json(json.loads(text), draw)).encode()
    except (ValueError, RecursionError):
        return
    length = pick(draw, *[len(text)] * 8, len(text) + 1, 0, 10**8, 2**63, 2**64 - 8)
    files[name] = length.to_bytes(8, "little") + text + data


DAMAGE = [damage_bytes, replace_file, damage_text, change_settings, change_settings]
DAMAGE += [damage_header, damage_header]

# ---- the same model in other words ---------------------------------------------------------------

REALS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}


def tensors_of(content: bytes) -> dict[str, NDArray[Any]]:
    """A file's tensors in float64, as the safetensors library reads them."""
    tensors = {}
    for name, entry in deserialize(content):
        if entry["dtype"] not in REALS:  # a mask among the parameters of an old file
            continue
        stored = np.frombuffer(entry["data"], REALS[entry["dtype"]])
        if entry["dtype"] == "BF16":  # the upper half of a float32
            stored = (stored.astype("<u4") << 16).view("<f4")
        tensors[name] = stored.astype(np.float64).reshape(entry["shape"])
    return tensors


def rearrange_weights(files: Files, draw: Draw) -> None:
    """Float64, another order, another number of files, other prefixes, old files' masks."""
    weights = [name for name in files if name.endswith(".safetensors")]
    tensors = {}
    for name in weights:
        tensors |= tensors_of(files.pop(name))
    files.pop(INDEX, None)
    prefix = pick(draw, "", "transformer.", "_orig_mod.transformer.", "module.transformer.")
    tensors = {prefix + name.rpartition("transformer.")[2]: x for name, x in tensors.items()}
    if is_drawn(draw, 50):
        tensors[f"{prefix}h.0.attn.bias"] = np.ones((1, 1, 4, 4))
    names, parts = draw(st.permutations([*tensors])), pick(draw, 1, 1, 2, 5)
    index = {}
    for n in range(parts):
        file = WEIGHTS if parts == 1 else f"model-{n + 1:05}-of-{parts:05}.safetensors"
        index |= dict.fromkeys(names[n::parts], file)
        files[file] = save({name: tensors[name] for name in names[n::parts]})
    if parts > 1:
        files[INDEX] = json.dumps({"weight_map": index}).encode()


def rewrite_text(files: Files, draw: Draw) -> None:
    """Other white space and line ends, another order of keys, links instead of files."""
    name, content = some(files, draw, CONFIG, VOCABULARY, MERGES)
    if name.endswith(MERGES):
        files[name] = content.replace(b"\n", b"\r\n")
    else:
        value = json.loads(content)
        items = draw(st.permutations([*value.items()])) if name.endswith(CONFIG) else value.items()
        files[name] = json.dumps(dict(items), indent=pick(draw, None, 1)).encode()
    if is_drawn(draw, 30):
        files[f"really {name}"] = files.pop(name)
        files[name] = lambda path: path.symlink_to(f"really {name}")


NEUTRAL = [rearrange_weights, rewrite_text]
