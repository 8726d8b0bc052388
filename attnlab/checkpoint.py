"""GPT-2's parameters in safetensors files, read when they are first used.

The only module that knows the tensors' names (`h.0.attn.c_attn.weight`). Everything else uses the
paths of the equations' names: `blocks.0.attention.W_QKV`.
"""

from __future__ import annotations

import json
import math
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from attnlab.config import GPT2Config
from attnlab.equations import AnyArray, Array, Ids
from attnlab.errors import CheckpointError, InvalidValueError, MissingFileError
from attnlab.files import read_json, write_whole
from attnlab.parameters import Parameters, parameter_shapes
from attnlab.steps import read_only

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"

# How the file format's dtypes are read. NumPy has no bfloat16, the upper half of a float32.
STORED_AS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}

# Old files hold the causal mask and its fill value as if they were parameters.
MASK_BUFFER = re.compile(r"h\.\d+\.attn\.(bias|masked_bias)")


# What this project calls a block's parameters, and what the files call them.
NAMES = {
    "attention.gain": "ln_1.weight",
    "attention.bias": "ln_1.bias",
    "attention.W_QKV": "attn.c_attn.weight",
    "attention.b_QKV": "attn.c_attn.bias",
    "attention.W_O": "attn.c_proj.weight",
    "attention.b_O": "attn.c_proj.bias",
    "mlp.gain": "ln_2.weight",
    "mlp.bias": "ln_2.bias",
    "mlp.W_1": "mlp.c_fc.weight",
    "mlp.b_1": "mlp.c_fc.bias",
    "mlp.W_2": "mlp.c_proj.weight",
    "mlp.b_2": "mlp.c_proj.bias",
}
OUTSIDE_OF_BLOCKS = {
    "W_E": "wte.weight",
    "W_P": "wpe.weight",
    "gain": "ln_f.weight",
    "bias": "ln_f.bias",
}


def tensor_name(path: str) -> str:
    """What Hugging Face's files call a parameter: `blocks.0.mlp.W_1` is `h.0.mlp.c_fc.weight`.

    Source: transformers' `modeling_gpt2.py`; OpenAI's names are the same with slashes.
    """
    if path in OUTSIDE_OF_BLOCKS:
        return OUTSIDE_OF_BLOCKS[path]
    _, layer, name = path.split(".", 2)
    return f"h.{layer}.{NAMES[name]}"


def tensor_shapes(config: GPT2Config) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor of a GPT-2, as Hugging Face's files name them."""
    return {tensor_name(path): shape for path, shape in parameter_shapes(config).items()}


def save_parameters(parameters: Parameters, directory: Path) -> None:
    """Write parameters as `model.safetensors`, float32 or float64 as they are.

    Raises
    ------
    WriteError
        The directory can't be written to.
    """
    from safetensors.numpy import save  # here, so that `import attnlab` is quick

    tensors = {tensor_name(path): parameters[path] for path in parameters}
    write_whole(directory / WEIGHTS, save(tensors, metadata={"format": "pt"}))


class Checkpoint(Parameters):
    """The parameters of a GPT-2 in a directory, as arrays of one dtype.

    Opening reads no tensor, only the files' headers, and checks that every tensor is there in
    its shape. A tensor is read once, when it is first used, into memory of its own: mapped from
    the file it would lie unaligned, and every matrix product would copy it first. Of the token
    embedding each trace reads the rows that it uses, until the logits have needed the whole.

    Parameters
    ----------
    directory : holds `model.safetensors`, or its shards and `model.safetensors.index.json`
    config : the sizes that the tensors must have
    dtype : "float32" or "float64", what the arrays are, whatever the file holds

    Raises
    ------
    MissingFileError
        There are no weights, a shard is missing, or there is only a pickle.
    CheckpointError
        A file is not safetensors, or tensors are missing, unexpected, misshaped or of a dtype that
        can't be read. Later, when a tensor is read: it is not finite, or the output matrix is not
        the embedding.
    InvalidValueError
        `dtype` is neither of the two.
    """

    def __init__(
        self, directory: str | Path, config: GPT2Config, dtype: DTypeLike = "float32"
    ) -> None:
        self.directory = Path(directory)
        self.config = config
        self.dtype = _checked_dtype(dtype)
        self.origin = f"from {self.directory}"
        self._kept: dict[str, Array] = {}
        self._entries = _check_entries(_entries(self.directory), config, self.directory)

    def __getitem__(self, path: str) -> Array:
        if path not in self._kept:
            tensor = self._read(tensor_name(path))
            if path == "W_E":
                self._check_tied(tensor)
            return self._kept.setdefault(path, read_only(tensor))
        return self._kept[path]

    def __getstate__(self) -> dict[str, object]:
        return vars(self) | {"_kept": {}}  # what is in the file is read again

    def __deepcopy__(self, memo: object) -> Checkpoint:
        return self

    def rows(self, path: str) -> Array | Rows:
        """What gives rows of an embedding: the whole where it has been read, else those rows."""
        return self._kept[path] if path in self._kept else Rows(self, tensor_name(path))

    def _check_tied(self, W_E: Array) -> None:
        tied = "lm_head.weight"
        if tied in self._entries and not np.array_equal(self._read(tied), W_E):
            raise CheckpointError(
                f"{tied} in {self.directory} is not equal to wte.weight: "
                "GPT-2's output matrix is its token embedding"
            )

    def _read(self, name: str, rows: Ids | None = None) -> Array:
        entry = self._entries[name]
        stored = entry.read() if rows is None else entry.read_rows(rows)
        if entry.dtype == "BF16":
            stored = (stored.astype("<u4") << 16).view("<f4")
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is told below
            values: Array = stored.astype(self.dtype, copy=False)
        if not (np.isfinite(values.min()) and np.isfinite(values.max())):
            raise CheckpointError(f"{name} in {entry.file} holds NaN or infinite numbers")
        return values


@dataclass(frozen=True)
class Rows:
    """A matrix in a checkpoint, of which rows are read as they are asked for."""

    checkpoint: Checkpoint
    name: str

    def __getitem__(self, rows: Ids) -> Array:
        distinct, places = np.unique(rows, return_inverse=True)
        read = self.checkpoint._read(self.name, distinct)
        return read[places.reshape(rows.shape)]  # flat before NumPy 2


@dataclass(frozen=True)
class Entry:
    """Where a tensor lies in a safetensors file: its bytes begin at `start`.

    `version` tells whether the file is still the one whose header was read.
    """

    file: Path
    dtype: str
    shape: tuple[int, ...]
    start: int
    version: tuple[int, ...]

    def read(self) -> AnyArray:
        """The tensor, as the numbers that the file holds."""
        return self._read(self.start, math.prod(self.shape)).reshape(self.shape)

    def read_rows(self, rows: Ids) -> AnyArray:
        """Some rows of a matrix, given in ascending order, without reading the others."""
        width = self.shape[1]
        row_bytes = width * np.dtype(STORED_AS[self.dtype]).itemsize
        neighbours = np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1)
        read = [self._read(self.start + int(n[0]) * row_bytes, n.size * width) for n in neighbours]
        return np.concatenate(read).reshape(-1, width)

    def _read(self, start: int, count: int) -> AnyArray:
        try:
            numbers = np.fromfile(self.file, STORED_AS[self.dtype], count, offset=start)
            same = _version(os.stat(self.file)) == self.version
        except OSError as error:
            raise CheckpointError(f"{self.file} can't be read: {error}") from None
        if not same:
            raise CheckpointError(f"{self.file} was changed after it was opened; open it again")
        return numbers


def _version(status: os.stat_result) -> tuple[int, ...]:
    return status.st_ino, status.st_size, status.st_mtime_ns


def _checked_dtype(dtype: DTypeLike) -> np.dtype[Any]:
    try:
        checked = np.dtype(object if dtype is None else dtype)  # of None NumPy makes float64
    except (TypeError, ValueError, SyntaxError):  # all of which NumPy raises here
        checked = np.dtype(object)
    if checked not in (np.float32, np.float64):
        raise InvalidValueError(f"dtype must be float32 or float64; given {dtype!r}")
    return checked


def weight_files(directory: Path) -> list[Path]:
    """The directory's safetensors files, whole or in shards.

    Raises
    ------
    MissingFileError
        There are none, only a pickle, or a shard is missing.
    CheckpointError
        The shards' index can't be read, or points outside the directory.
    """
    if os.path.isfile(directory / WEIGHTS):
        return [directory / WEIGHTS]
    if os.path.isfile(directory / INDEX):
        return _shards(directory / INDEX)
    raise MissingFileError(_no_weights(directory))


def _entries(directory: Path) -> dict[str, Entry]:
    """Every tensor in the directory's weight files, by name and without `transformer.`."""
    entries: dict[str, Entry] = {}
    for file in weight_files(directory):
        for name, entry in _read_header(file).items():
            bare = name.removeprefix("transformer.")
            if bare in entries:
                raise CheckpointError(
                    f"{bare} is there twice, in {file} and in {entries[bare].file}"
                )
            entries[bare] = entry
    return entries


def _no_weights(directory: Path) -> str:
    pickles = sorted(file.name for file in directory.glob("pytorch_model*.bin"))
    message = f"there is no {WEIGHTS} (nor {INDEX}) in {directory}"
    return f"{message}, only {pickles[0]}. {HOW_TO_CONVERT}" if pickles else message


HOW_TO_CONVERT = (
    "That is a pickle, which can run any code when it is opened, so it is never opened here. "
    "Where transformers and torch are installed, and you trust the file, convert it: "
    'python -c "from transformers import GPT2LMHeadModel as M; '
    "M.from_pretrained('NAME_OR_DIRECTORY').save_pretrained('DIRECTORY')\", "
    "with vocab.json and merges.txt in that DIRECTORY too"
)


def _shards(index: Path) -> list[Path]:
    """The shard files that an index names, each of them in the index's own directory."""
    weight_map = read_json(index, CheckpointError).get("weight_map")
    files = weight_map.values() if isinstance(weight_map, dict) else [None]
    if not all(isinstance(name, str) for name in files):
        raise CheckpointError(f"{index} holds no weight_map of tensors and their files")
    names = sorted(set(files))
    outside = [name for name in names if re.search(r"[/\\:]|^\.*$", name)]
    if outside:
        raise CheckpointError(f"{index} points outside its directory: {outside[0]!r}")
    shards = [index.parent / name for name in names]
    missing = [shard.name for shard in shards if not os.path.isfile(shard)]
    if missing:
        raise MissingFileError(f"{', '.join(missing)}, named in {index}, is not there")
    return shards


def _read_header(file: Path) -> dict[str, Entry]:
    """What a safetensors file holds, once the safetensors library found the file sound.

    Notes
    -----
    The format: 8 bytes, little-endian, the length of a JSON header; the header; the tensors.
    Source: safetensors' README, "Format".
    """
    from safetensors import SafetensorError, safe_open  # here, so that `import attnlab` is quick

    try:
        with safe_open(file, framework="np"):
            pass
        with open(file, "rb") as stream:
            version = _version(os.fstat(stream.fileno()))
            length = int.from_bytes(stream.read(8), "little")
            header = json.loads(stream.read(length))
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{file} {_what_it_is(file)} ({error})") from None
    header.pop("__metadata__", None)
    return {
        name: Entry(
            file,
            info["dtype"],
            tuple(info["shape"]),
            8 + length + info["data_offsets"][0],
            version,
        )
        for name, info in header.items()
    }


def _what_it_is(file: Path) -> str:
    """Why a file is not safetensors, as far as its first bytes tell."""
    try:
        with open(file, "rb") as stream:
            start = stream.read(64)
    except OSError:
        return "can't be read"
    if not start:
        return "is empty"
    if start.startswith(b"version https://git-lfs"):
        return "is a Git LFS pointer and not the file itself: run `git lfs pull`"
    if start.lstrip().startswith(b"<"):
        return "is a web page and not a safetensors file: the download went wrong"
    return "is not a safetensors file, or is truncated"


def _check_entries(
    entries: dict[str, Entry], config: GPT2Config, directory: Path
) -> dict[str, Entry]:
    """The entries that are parameters, if they are those of a GPT-2 with this config."""
    found = {name: entry for name, entry in entries.items() if not MASK_BUFFER.fullmatch(name)}
    shapes = tensor_shapes(config)
    accepted = shapes | {"lm_head.weight": shapes["wte.weight"]}
    kinds = {
        "missing": [name for name in shapes if name not in found],
        "unexpected": [name for name in found if name not in accepted],
        "misshaped": [
            f"{name} is {list(entry.shape)} and not {list(accepted[name])}"
            for name, entry in found.items()
            if name in accepted and entry.shape != accepted[name]
        ],
        "of a dtype that can't be read": [
            f"{name} is {entry.dtype} and not one of {', '.join(STORED_AS)}"
            for name, entry in found.items()
            if name in accepted and entry.dtype not in STORED_AS
        ],
    }
    problems = [f"{kind}: {_listed(names)}" for kind, names in kinds.items() if names]
    if problems:
        raise CheckpointError(
            f"the tensors in {directory} are not those of its config.json. {'; '.join(problems)}"
        )
    return found


def _listed(names: list[str], limit: int = 12) -> str:
    rest = len(names) - limit
    return ", ".join(names[:limit]) + (f" and {rest} more" if rest > 0 else "")
