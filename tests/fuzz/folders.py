"""Model directories as values: what they hold, taken apart and put together again."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import dataclass, field
from json.encoder import encode_basestring_ascii as quoted
from pathlib import Path
from typing import Any

import oracle

REFERENCE = Path(__file__).parents[1] / "reference"
MODELS = sorted(config.parent.name for config in REFERENCE.glob("*/config.json"))

CONFIG, VOCABULARY, MERGES = "config.json", "vocab.json", "merges.txt"
WEIGHTS, INDEX, STATE = "model.safetensors", "model.safetensors.index.json", "training.safetensors"

# The files of the models that a case starts from, and what a training has left.
BASES: dict[str, dict[str, bytes]] = {
    name: {
        file.name: file.read_bytes()
        for file in sorted((REFERENCE / name).iterdir())
        if file.name != "expected.npz"
    }
    for name in MODELS
}
TRAINED: dict[str, bytes] = {}


def load_trained(directory: Path) -> None:
    """Keep what the training left in a directory as one more model to start from."""
    TRAINED.update({file.name: file.read_bytes() for file in sorted(directory.iterdir())})


# Files that are not there yet


@dataclass(frozen=True)
class Special:
    """What stands in a file's place: a pipe, a link to `target`, zeros behind `content`."""

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
    """A directory to be: its name, its files, and what was done to them."""

    base: str
    name: str
    files: dict[str, bytes | Special]
    log: list[str] = field(default_factory=list)

    def write(self, place: Path) -> Path:
        path = place / self.name
        path.mkdir()
        before = Path.cwd()
        os.chdir(path)
        for name, content in self.files.items():
            if isinstance(content, Special):
                content.make(Path(name))
            else:
                Path(name).write_bytes(content)
        os.chdir(before)
        return path

    def bytes_of(self, name: str) -> bytes:
        content = self.files.get(name, b"")
        return content if isinstance(content, bytes) else content.content

    def weight_files(self) -> list[str]:
        return [name for name in self.files if name.endswith(".safetensors") and name != STATE]


# JSON as text, so that it can also be what no writer of JSON writes


class Raw(str):
    """A piece of JSON that is written as it stands."""


def dumps(value: Any) -> str:
    if isinstance(value, Raw):
        return str(value)
    if isinstance(value, dict):
        return pairs_text([(str(key), item) for key, item in value.items()])
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(dumps, value))}]"
    return str(value) if type(value) is int else json.dumps(value)


def pairs_text(pairs: list[tuple[str, Any]]) -> str:
    return "{" + ", ".join(f"{quoted(key)}: {dumps(value)}" for key, value in pairs) + "}"


def json_pairs(content: bytes) -> list[tuple[str, Any]] | None:
    """What an object in JSON holds, in its order; None where there is no object."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return list(value.items()) if isinstance(value, dict) else None


# Safetensors

# Dtype, shape and bytes of tensors, by name.
Arrays = dict[str, tuple[str, list[Any], bytes]]


@dataclass
class Tensors:
    """A safetensors file, taken apart: what its header says, and the rest."""

    header: list[tuple[str, Any]]
    data: bytes

    @classmethod
    def of(cls, content: bytes) -> Tensors | None:
        length = int.from_bytes(content[:8], "little")
        pairs = json_pairs(content[8 : 8 + length]) if length < len(content) else None
        return None if pairs is None else cls(pairs, content[8 + length :])

    def content(self, before: bytes = b"", after: bytes = b"", length: int | None = None) -> bytes:
        head = before + pairs_text(self.header).encode("utf-8", "surrogatepass") + after
        return (len(head) if length is None else length).to_bytes(8, "little") + head + self.data

    def entries(self) -> list[int]:
        """Where in the header tensors are told that are described as the format has it."""
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
        """Dtype, shape and bytes of each tensor."""
        found = {}
        for i in self.entries():
            name, info = self.header[i]
            begin, end = info["data_offsets"]
            found[name] = (info.get("dtype"), info["shape"], self.data[begin:end])
        return found

    @classmethod
    def holding(cls, arrays: Arrays) -> Tensors:
        header, data = [], b""
        for name, (dtype, shape, content) in arrays.items():
            offsets = [len(data), len(data) + len(content)]
            header.append((name, {"dtype": dtype, "shape": shape, "data_offsets": offsets}))
            data += content
        return cls(header, data)


def opened(folder: Folder, name: str) -> Tensors | None:
    return Tensors.of(folder.bytes_of(name)) if name in folder.files else None
