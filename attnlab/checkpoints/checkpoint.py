"""GPT-2's parameters in safetensors files, read when they are first used.

Only this package uses tensor names such as `h.0.attn.c_attn.weight`. Elsewhere parameters have
paths such as `blocks.0.attention.W_Q`. W_Q, W_K and W_V are the thirds of one tensor.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import DTypeLike

from attnlab.equations import AnyArray, Array, Ids, transpose
from attnlab.errors import AttnlabError, CheckpointError, MissingFileError, quoted
from attnlab.forward.config import GPT2Config
from attnlab.forward.parameters import (
    Averages,
    Parameters,
    Shape,
    as_averages,
    no_parameter,
    stored_shapes,
)
from attnlab.steps import is_finite, read_only
from attnlab.support.checks import as_model_dtype, check_kind
from attnlab.support.files import (
    FilePath,
    as_path,
    open_regular,
    parse_json,
    read_json,
    reason_of,
    write_atomically,
)
from attnlab.support.formats import describe_unsupported, list_names
from attnlab.support.messages import Message

# The origin of a model in the package is shown relative to the package.
PACKAGE = Path(__file__).parents[1]

# The end of the path of a snapshot in the hub's cache; the group is owner--name of a repository.
CACHED_SNAPSHOT = r"/models--([^/]+)/snapshots/[^/]+$"

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
AVERAGES = "head_averages.json"  # each head's average context (Dh,), by its path

# NumPy's dtypes by safetensors' names. NumPy lacks bfloat16, the upper half of a float32.
STORED_AS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}

# Size limit of a safetensors header in bytes, enough for 1,000 layers. GPT-2's takes 15,000.
LARGEST_HEADER = 2_000_000

# Tensor names in a block, by the parameter's path in the block.
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
    "W_U": "lm_head.weight",
}
EMBEDDING, OUTPUT = OUTSIDE_OF_BLOCKS["W_E"], OUTSIDE_OF_BLOCKS["W_U"]
EMBEDDINGS = (EMBEDDING, OUTSIDE_OF_BLOCKS["W_P"])
IN_BLOCK = re.compile(r"h\.(0|[1-9]\d*)\.(.+)")

# Patterns of names in other implementations, with the parameter's path within its block: those of
# LLMs-from-scratch (the chapters' model, and a faster one with qkv), and of minGPT before it took
# transformers' names. "Q", "K" and "V" are parts of W_QKV or b_QKV. Matrices are nn.Linear's.
OTHER_BLOCK = r"(?:trf_blocks|blocks)\.(\d+)\."
OTHER_NAMES = {
    r"tok_emb\.weight": "W_E",
    r"pos_emb(?:\.weight)?": "W_P",
    r"final_norm\.(?:scale|weight)": "gain",
    r"final_norm\.(?:shift|bias)": "bias",
    r"(?:out_)?head\.weight": "W_U",
    OTHER_BLOCK + r"(?:norm1\.scale|(?:norm|ln)1\.weight)": "attention.gain",
    OTHER_BLOCK + r"(?:norm1\.shift|(?:norm|ln)1\.bias)": "attention.bias",
    OTHER_BLOCK + r"(?:att\.W_query|attn\.query)\.(weight|bias)": "Q",
    OTHER_BLOCK + r"(?:att\.W_key|attn\.key)\.(weight|bias)": "K",
    OTHER_BLOCK + r"(?:att\.W_value|attn\.value)\.(weight|bias)": "V",
    OTHER_BLOCK + r"att\.qkv\.weight": "attention.W_QKV",
    OTHER_BLOCK + r"att\.qkv\.bias": "attention.b_QKV",
    OTHER_BLOCK + r"(?:att\.out_proj|attn?\.proj)\.weight": "attention.W_O",
    OTHER_BLOCK + r"(?:att\.out_proj|attn?\.proj)\.bias": "attention.b_O",
    OTHER_BLOCK + r"(?:norm2\.scale|(?:norm|ln)2\.weight)": "mlp.gain",
    OTHER_BLOCK + r"(?:norm2\.shift|(?:norm|ln)2\.bias)": "mlp.bias",
    OTHER_BLOCK + r"(?:ff\.layers|mlp)\.0\.weight": "mlp.W_1",
    OTHER_BLOCK + r"(?:ff\.layers|mlp)\.0\.bias": "mlp.b_1",
    OTHER_BLOCK + r"(?:ff\.layers|mlp)\.2\.weight": "mlp.W_2",
    OTHER_BLOCK + r"(?:ff\.layers|mlp)\.2\.bias": "mlp.b_2",
    OTHER_BLOCK + r"(?:att|attn)\.mask": "",  # the causal mask, not a parameter
}

# Prefixes that wrappers add to tensor names: torch.compile, parallel training, PEFT, TRL, and
# models for another task. (?=.) requires that a name follows.
WRAPPERS = re.compile(r"((_orig_mod|module|base_model|model|pretrained_model|transformer)\.)+(?=.)")

# Output layers for other tasks, by the first part of their tensors' names. They are ignored.
TASK_HEADS = ("score", "classifier", "qa_outputs", "multiple_choice_head", "v_head")

# Old files have the causal mask, and the score of hidden keys, among the parameters.
MASK_BUFFER = re.compile(r"h\.\d+\.attn\.(bias|masked_bias)")

# Tensors of unmerged LoRA layers.
LORA = r".+\.(lora_\w+|base_layer)\..+"


def tensor_name(path: str) -> str:
    """The name of a stored array in files: h.0.mlp.c_fc.weight for blocks.0.mlp.W_1.

    Source: transformers' `modeling_gpt2.py`; OpenAI's names are the same with slashes.
    """
    if isinstance(path, str) and path in OUTSIDE_OF_BLOCKS:
        return OUTSIDE_OF_BLOCKS[path]
    match = re.fullmatch(r"blocks\.(\d+)\.(.+)", path) if isinstance(path, str) else None
    if match is None or match[2] not in NAMES:
        raise no_parameter(path)
    return f"h.{match[1]}.{NAMES[match[2]]}"


def other_name(name: str) -> tuple[str, str] | None:
    """The name in a checkpoint for a name in another implementation; None for unknown names.

    The name is "" for an array that isn't a parameter. The second text returned is "Q", "K" or "V"
    if the array is only this part of the checkpoint's array, else "".
    """
    for pattern, path in OTHER_NAMES.items():
        if match := re.fullmatch(pattern, bare_name(name)):
            if path in ("Q", "K", "V"):
                joined = "W_QKV" if match[2] == "weight" else "b_QKV"
                return tensor_name(f"blocks.{match[1]}.attention.{joined}"), path
            if not path:
                return "", ""
            block = f"blocks.{match[1]}." if match.groups() else ""  # the group is its number
            return tensor_name(f"{block}{path}"), ""
    return None


def save_parameters(parameters: Parameters, directory: Path) -> None:
    """Write parameters to `model.safetensors` in their dtype."""
    from safetensors.numpy import save  # imported late, so that `import attnlab` is quick

    tensors = {
        tensor_name(path): parameters.stored(path) for path in stored_shapes(parameters.config)
    }
    if OUTPUT in tensors:  # files have W_U as nn.Linear stores it, (vocab, D)
        tensors[OUTPUT] = np.ascontiguousarray(transpose(tensors[OUTPUT]))
    write_atomically(directory / WEIGHTS, save(tensors, metadata={"format": "pt"}))
    if parameters.averages:
        save_averages(parameters.averages, directory)
    else:  # averages that are already in the directory belong to another model
        (directory / AVERAGES).unlink(missing_ok=True)


def save_averages(averages: Averages, directory: Path) -> None:
    """Write each head's average beside the parameters."""
    write_atomically(directory / AVERAGES, json.dumps(averages_as_data(averages)).encode())


def averages_as_data(averages: Averages | None) -> dict[str, list[float]]:
    """Averages for JSON; {} without averages."""
    items = averages.items() if averages else ()
    # str(x) has the fewest digits that determine a float32; float(x) would have twice as many.
    return {path: [float(str(x)) for x in vector] for path, vector in items}


def read_averages(file: Path, config: GPT2Config) -> Averages | None:
    """Read each head's average; None if there is no file."""
    if not os.path.isfile(file):
        return None
    try:
        return as_averages(read_json(file, CheckpointError), config)
    except CheckpointError:
        raise
    except AttnlabError as error:
        raise CheckpointError(f"{file}: {error}") from None


class Checkpoint(Parameters):
    """The parameters of a GPT-2 in a directory.

    Opening reads only the files' headers and checks that every tensor exists with its shape. A
    tensor is read when first used. It is copied to memory, not mapped: mapped tensors may be
    unaligned, and every matrix product would copy them. Traces read the embedding rows that they
    use, until the logits need the whole matrix. The first read raises an error if the tensor isn't
    finite, if its file has changed, or if a stored output matrix differs from the tied embedding.

    Parameters
    ----------
    directory : holds `model.safetensors`, or its shards and `model.safetensors.index.json`
    config : the sizes that the tensors must have
    dtype : "float32" or "float64", for any dtype in the file

    Attributes
    ----------
    origin : the directory, and the names of ignored tensors, such as those of an added head
    name : the repository's name in the hub's cache, or the directory's name
    """

    def __init__(
        self,
        directory: FilePath,
        config: GPT2Config,
        dtype: DTypeLike = "float32",
    ) -> None:
        self.directory = as_path(directory, "directory")
        check_kind(config, GPT2Config, "config")
        self.config = config
        self.dtype = as_model_dtype(dtype)
        self._arrays = {}
        self._entries, self._tied_copy, ignored = select_parameters(
            _entries(self.directory), config, str(self.directory)
        )
        self.averages = read_averages(self.directory / AVERAGES, config)
        is_built_in = self.directory.is_relative_to(PACKAGE)
        path = self.directory.relative_to(PACKAGE.parent) if is_built_in else self.directory
        self.origin = Message("from {origin}", origin=f"{path}{ignored}")
        snapshot = re.search(CACHED_SNAPSHOT, self.directory.as_posix())
        self.name = snapshot[1].replace("--", "/") if snapshot else self.directory.absolute().name

    def equals(self, other: object) -> bool:
        if isinstance(other, Checkpoint) and self.origin == other.origin:
            return self.dtype == other.dtype
        return super().equals(other)

    def stored(self, path: str) -> Array:
        name = tensor_name(path)
        if path not in self._arrays:
            if name not in self._entries:
                raise no_parameter(path)
            tensor = self._read(self._entries[name], name)
            copy = self._tied_copy if path == "W_E" else None
            if copy is not None and not np.array_equal(self._read(copy, OUTPUT), tensor):
                raise not_tied(str(self.directory))
            parameter = transpose(tensor) if path == "W_U" else tensor
            return self._arrays.setdefault(path, read_only(parameter))
        return self._arrays[path]

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_arrays": {}}  # an unpickled checkpoint reads tensors again

    def __deepcopy__(self, memo: object) -> Checkpoint:
        return self  # no copy is needed, since it is read-only

    def rows(self, path: str) -> Array | Rows:
        """A parameter to index by rows; indexing an embedding reads only the indexed rows."""
        name = tensor_name(path)
        return self[path] if path in self._arrays or name not in EMBEDDINGS else Rows(self, name)

    def _read(self, entry: Entry, name: str, rows: Ids | None = None) -> Array:
        """Read a tensor, or some of its rows, and check that the numbers are finite."""
        stored = entry.read() if rows is None else entry.read_rows(rows)
        if entry.dtype == "BF16":  # the upper 16 bits of a float32
            stored = (stored.astype("<u4") << 16).view("<f4")
        with np.errstate(over="ignore", invalid="ignore"):  # `is_finite` finds overflow below
            values: Array = stored.astype(self.dtype, copy=False)
        if not is_finite(values):
            raise CheckpointError(f"{name} in {entry.file} contains NaN or infinite numbers")
        return values


@dataclass(frozen=True)
class Rows:
    """A matrix in a checkpoint; indexing reads only the requested rows."""

    checkpoint: Checkpoint
    name: str

    def __getitem__(self, rows: Ids) -> Array:
        """Read rows, integers of any shape: (...) -> (..., D)."""
        distinct, inverse = np.unique(rows, return_inverse=True)
        read = self.checkpoint._read(self.checkpoint._entries[self.name], self.name, distinct)
        return read[inverse.reshape(np.shape(rows))]  # NumPy 1 returns a flat `inverse`


@dataclass(frozen=True)
class Entry:
    """A tensor that starts at byte `start` of a file; `version` shows if the file has changed."""

    file: Path
    dtype: str
    shape: tuple[int, ...]
    start: int
    version: tuple[int, ...]

    def read(self) -> AnyArray:
        """Read the tensor in its stored dtype."""
        return self._read(self.start, math.prod(self.shape)).reshape(self.shape)

    def read_rows(self, rows: Ids) -> AnyArray:
        """Read only some rows of a matrix; `rows` must be in ascending order."""
        width = self.shape[1]
        row_bytes = width * np.dtype(STORED_AS[self.dtype]).itemsize
        # Split where a row doesn't follow the one before, to read consecutive rows at once.
        runs = np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1)
        parts = [self._read(self.start + int(run[0]) * row_bytes, run.size * width) for run in runs]
        return np.concatenate(parts).reshape(-1, width)

    def _read(self, start: int, count: int) -> AnyArray:
        try:
            with open_regular(self.file) as stream:
                numbers = np.fromfile(stream, STORED_AS[self.dtype], count, offset=start)
                version = _version(os.fstat(stream.fileno()))
        except OSError as error:
            raise CheckpointError(f"{self.file} can't be read: {reason_of(error)}") from None
        if version != self.version:
            raise CheckpointError(f"{self.file} has changed since it was opened. Open it again")
        return numbers


def _version(status: os.stat_result) -> tuple[int, ...]:
    return status.st_ino, status.st_size, status.st_mtime_ns


def weight_files(directory: Path) -> list[Path]:
    """The safetensors files of a directory: one file, or its shards."""
    index = directory / INDEX
    files = [directory / name for name in weight_names(directory)]
    missing = [file.name for file in files if not os.path.isfile(file)]
    if missing and not os.path.isfile(index):
        advice = ". Add the model's weights"
        if format := describe_unsupported(
            os.listdir(directory) if os.path.isdir(directory) else ()
        ):
            advice = f", only {format}"
        raise MissingFileError(f"there is no {WEIGHTS} (nor {INDEX}) in {directory}{advice}")
    if missing:
        raise MissingFileError(f"{list_names(missing)}, named in {index}, doesn't exist")
    return files


def weight_names(directory: Path) -> list[str]:
    """The names of the safetensors files that a directory needs: shards if it has an index."""
    if os.path.isfile(directory / WEIGHTS) or not os.path.isfile(directory / INDEX):
        return [WEIGHTS]
    return sorted(set(weight_map(directory / INDEX).values()))


def weight_map(index: Path) -> dict[str, str]:
    """The shard of each tensor, a file name in the index's directory."""
    shards = read_json(index, CheckpointError).get("weight_map")
    if not isinstance(shards, dict) or not all(isinstance(name, str) for name in shards.values()):
        raise CheckpointError(f"{index} must have a weight_map of tensors and file names")
    for name in shards.values():
        if re.search(r"[/\\:]|^\.*$", name):
            raise CheckpointError(f"{index} points outside its directory: {quoted(name, 200)}")
    return shards


def _entries(directory: Path) -> dict[str, Entry]:
    """Entries of the tensors in a directory's weight files, by name without prefix."""
    entries: dict[str, Entry] = {}
    files = weight_files(directory)
    for file in files:
        for name, entry in read_header(file).items():
            bare = bare_name(name)
            if bare in entries:
                raise CheckpointError(
                    f"{list_names([bare])} appears twice, in {file} and in {entries[bare].file}"
                )
            entries[bare] = entry
    index = directory / INDEX
    if [file.name for file in files] != [WEIGHTS]:  # there are shards, which an index lists
        listed = set(map(bare_name, weight_map(index)))
        unlisted = [x for x in entries if x not in listed and not MASK_BUFFER.fullmatch(x)]
        if unlisted:
            raise CheckpointError(
                f"{index} doesn't list {list_names(unlisted)}, which its files contain"
            )
    return entries


def bare_name(name: str) -> str:
    """A tensor's name without prefix: h.0.ln_1.bias for transformer.h.0.ln_1.bias."""
    wrapped = WRAPPERS.match(name)
    return name[wrapped.end() :] if wrapped else name


def read_header(file: Path) -> dict[str, Entry]:
    """Read the header of a safetensors file; the safetensors library validates the file.

    A file has 8 bytes, the length of the header (little-endian), then the header in JSON, then the
    tensors. Source: safetensors' README, "Format".
    """
    from safetensors import SafetensorError, safe_open  # imported late: it is slow to load

    try:
        with open_regular(file) as stream:
            version = _version(os.fstat(stream.fileno()))
            start = stream.read(8)
            if start == b"version ":
                raise OSError("a Git LFS pointer, not the file itself: run `git lfs pull`")
            length = int.from_bytes(start, "little")
            if length > LARGEST_HEADER:
                raise OSError(f"header of {length:,} bytes")
            header = stream.read(length)
            if not header.startswith(b"{"):
                raise OSError("the header doesn't start with a brace")
        with safe_open(file, framework="np"):
            pass
    except (SafetensorError, OSError, MemoryError) as error:  # 1 TB raises MemoryError
        raise CheckpointError(
            f"{file} isn't a safetensors file, or is truncated ({reason_of(error)})"
        ) from None
    tensors = parse_json(header, f"the header of {file}", CheckpointError)
    tensors.pop("__metadata__", None)
    return {
        name: Entry(
            file, info["dtype"], tuple(info["shape"]), 8 + length + info["data_offsets"][0], version
        )
        for name, info in tensors.items()
    }


class Stored(Protocol):
    """A tensor in a file or of another library; `dtype` is the dtype's name in safetensors."""

    @property
    def shape(self) -> Shape: ...
    @property
    def dtype(self) -> str: ...


Tensor = TypeVar("Tensor", bound=Stored)


def select_parameters(
    entries: Mapping[str, Tensor], config: GPT2Config, source: str
) -> tuple[dict[str, Tensor], Tensor | None, str]:
    """Select and check a model's parameters among its tensors, by name without prefix.

    Returns the parameters; the output matrix, if it is stored although the config ties it to the
    embedding, else None; and a description of ignored tensors, to append to the model's origin.
    `source` says in errors where the tensors are from.
    """
    prefixes = tuple(f"{head}." for head in TASK_HEADS)
    ignored = [name for name in entries if name.startswith(prefixes)]
    parameters = _check_entries(
        {name: entry for name, entry in entries.items() if name not in ignored}, config, source
    )
    # A tied embedding may be stored twice, or only under the name of the output matrix.
    tied_copy = parameters.pop(OUTPUT, None) if config.tie_word_embeddings else None
    if tied_copy is not None:
        parameters.setdefault(EMBEDDING, tied_copy)
    if not ignored:
        return parameters, tied_copy, ""
    return parameters, tied_copy, f", without the head for another task ({list_names(ignored)})"


def not_tied(source: str) -> CheckpointError:
    """The error for an output matrix that differs from a tied embedding."""
    return CheckpointError(
        f"{OUTPUT} in {source} differs from {EMBEDDING}, but the config ties them. If the "
        'output matrix is a separate parameter, set "tie_word_embeddings": false'
    )


def _check_entries(
    entries: Mapping[str, Tensor], config: GPT2Config, source: str
) -> dict[str, Tensor]:
    """Return the parameters among tensors; raise if any is missing, unexpected or invalid."""
    tensors = {name: entry for name, entry in entries.items() if not MASK_BUFFER.fullmatch(name)}
    expected = {tensor_name(path): shape for path, shape in stored_shapes(config).items()}
    if OUTPUT in expected:
        expected[OUTPUT] = expected[OUTPUT][::-1]  # stored transposed, as in nn.Linear
    elif OUTPUT in tensors:  # W_E is stored under this name, too or instead
        expected[OUTPUT] = expected[EMBEDDING]
        if EMBEDDING not in tensors:
            del expected[EMBEDDING]
    problems = _mismatches(tensors, expected)
    if not problems:
        return tensors
    if reason := _not_gpt2(tensors, expected):
        raise CheckpointError(f"{source} {reason}")
    raise CheckpointError(f"the tensors in {source} don't match its config. {'; '.join(problems)}")


def _mismatches(tensors: Mapping[str, Stored], expected: Mapping[str, Shape]) -> list[str]:
    """Descriptions of all differences between tensors and the shapes that a config expects."""
    present = {name: shape for name, shape in expected.items() if name in tensors}
    names_by_problem = {
        "missing": [name for name in expected if name not in tensors],
        "unexpected": [name for name in tensors if name not in expected],
        "wrong shape": [
            f"{name} is {list(tensors[name].shape)}, expected {list(shape)}"
            for name, shape in present.items()
            if tensors[name].shape != shape
        ],
        "unsupported dtype": [
            f"{name} is {tensors[name].dtype}, expected one of {', '.join(STORED_AS)}"
            for name in present
            if tensors[name].dtype not in STORED_AS
        ],
    }
    problems = [
        f"{problem}: {list_names(names)}" for problem, names in names_by_problem.items() if names
    ]
    qkv = tensor_name("blocks.0.attention.W_QKV")
    if qkv in present and tensors[qkv].shape == expected[qkv][::-1]:
        problems.append(
            "the blocks' matrices are transposed, as in nn.Linear and nanoGPT. "
            "GPT2.from_arrays(config, arrays, tokenizer) accepts these"
        )
    return problems


def _not_gpt2(tensors: Mapping[str, Stored], expected: Mapping[str, Shape]) -> str:
    """Why the names of tensors aren't those of a plain GPT-2; "" if they may be."""
    for name in tensors:
        if re.fullmatch(LORA, name):
            return (
                f"contains unmerged LoRA layers ({list_names([name])}). Merge them where peft "
                "is installed: model.merge_and_unload().save_pretrained('NEW')"
            )
    if tensors and tensors.keys().isdisjoint(expected):
        return f"has no tensors with GPT-2's names, only {list_names(sorted(tensors))}"
    return ""
