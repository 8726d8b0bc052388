"""GPT-2's parameters in safetensors files, read when they are first used.

The only module that knows the tensors' names (`h.0.attn.c_attn.weight`). Everything else uses the
paths of the equations' names: `blocks.0.attention.W_QKV`.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import DTypeLike

from attnlab.equations import AnyArray, Array, Ids, transpose
from attnlab.errors import (
    CheckpointError,
    InvalidTypeError,
    InvalidValueError,
    MissingFileError,
    OutOfRangeError,
    quoted,
)
from attnlab.forward.config import GPT2Config
from attnlab.forward.parameters import (
    Parameters,
    Shape,
    no_parameter,
    parameter_paths,
    parameter_shapes,
    shapes_in_block,
    shapes_outside_of_blocks,
)
from attnlab.steps import read_only
from attnlab.support.checks import as_array, check_kind, checked_dtype
from attnlab.support.files import (
    FilePath,
    as_path,
    open_regular,
    parse_json,
    read_json,
    write_whole,
)
from attnlab.support.formats import HOW_TO_DEQUANTISE, listed, unsupported

# Where the pocket model is, of which no path of this machine is told.
PACKAGE = Path(__file__).parents[1]

# A repository's directory in the hub's cache.
CACHED = re.compile(r"/models--([^/]+)/snapshots/[^/]+$")

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"

# How the file format's dtypes are read. NumPy has no bfloat16, the upper half of a float32.
STORED_AS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}

# The most bytes of a safetensors header. GPT-2's has 15,000, one of 1,000 layers would have fewer.
LARGEST_HEADER = 2_000_000

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
    "W_U": "lm_head.weight",
}
EMBEDDING, OUTPUT = OUTSIDE_OF_BLOCKS["W_E"], OUTSIDE_OF_BLOCKS["W_U"]
EMBEDDINGS = (EMBEDDING, OUTSIDE_OF_BLOCKS["W_P"])
IN_BLOCK = re.compile(r"h\.(0|[1-9]\d*)\.(.+)")

# What stands before the names where the model was part of something else: compiled, trained in
# parallel, with PEFT or TRL, or had a head added.
WRAPPERS = re.compile(r"((_orig_mod|module|base_model|model|pretrained_model|transformer)\.)+(?=.)")

# Heads that are added to GPT-2, and do not change what is looked at here.
HEADS = {
    "score": "sequence classification",
    "classifier": "token classification",
    "qa_outputs": "question answering",
    "multiple_choice_head": "multiple choice",
    "v_head": "values",
}

# Old files hold the causal mask and its fill value as if they were parameters.
MASK_BUFFER = re.compile(r"h\.\d+\.attn\.(bias|masked_bias)")

# What only weights have that are rounded to few bits, and LoRA layers that were not added up.
QUANTISED = re.compile(
    r".+\.(SCB|absmax|quant_map|nested_absmax|nested_quant_map|quant_state\..+|qweight|qzeros|"
    r"scales|g_idx|weight_scale|weight_scale_inv|weight_packed)"
)
LORA = re.compile(r".+\.(lora_\w+|base_layer)\..+")


def tensor_name(path: str) -> str:
    """What Hugging Face's files call a parameter: `blocks.0.mlp.W_1` is `h.0.mlp.c_fc.weight`.

    Notes
    -----
    Source: transformers' `modeling_gpt2.py`; OpenAI's names are the same with slashes.
    """
    if isinstance(path, str) and path in OUTSIDE_OF_BLOCKS:
        return OUTSIDE_OF_BLOCKS[path]
    found = re.fullmatch(r"blocks\.(\d+)\.(.+)", path) if isinstance(path, str) else None
    if found is None or found[2] not in NAMES:
        raise no_parameter(path)
    return f"h.{found[1]}.{NAMES[found[2]]}"


def stored_shape(path: str, shape: Shape) -> Shape:
    """A parameter's shape in files: W_U lies there transposed, as nn.Linear keeps it."""
    return shape[::-1] if path == "W_U" else shape


def tensor_shapes(config: GPT2Config) -> dict[str, Shape]:
    """Name and shape of every tensor of a GPT-2, as Hugging Face's files name them."""
    return {
        tensor_name(path): stored_shape(path, shape)
        for path, shape in parameter_shapes(config).items()
    }


def save_parameters(parameters: Parameters, directory: Path) -> None:
    """Write parameters as `model.safetensors`, float32 or float64 as they are."""
    from safetensors.numpy import save  # here, so that `import attnlab` is quick

    tensors = {tensor_name(path): parameters[path] for path in parameters}
    if OUTPUT in tensors:
        tensors[OUTPUT] = np.ascontiguousarray(transpose(tensors[OUTPUT]))
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
    variant : of the files' names, such as "fp16" of `model.fp16.safetensors`

    Attributes
    ----------
    origin : the directory, and the names of tensors in it that are left out: a head that was added
    name : of the repository in the hub's cache, else of the directory

    Raises
    ------
    CheckpointError
        When a tensor is first read: it isn't finite, its file has changed, or the output matrix
        isn't the embedding although the config ties the two.
    """

    def __init__(
        self,
        directory: FilePath,
        config: GPT2Config,
        dtype: DTypeLike = "float32",
        variant: str | None = None,
    ) -> None:
        self.directory = as_path(directory, "directory")
        check_kind(config, GPT2Config, "config")
        check_variant(variant)
        self.config = config
        self.dtype = checked_dtype(dtype)
        self._kept: dict[str, Array] = {}
        self._entries, self._copy, left_out = parameters_among(
            _entries(self.directory, variant), config, str(self.directory)
        )
        own = self.directory.is_relative_to(PACKAGE)
        place = self.directory.relative_to(PACKAGE.parent) if own else self.directory
        self.origin = f"from {place}{left_out}"
        cached = CACHED.search(self.directory.as_posix())
        self.name = "/".join(cached[1].split("--")) if cached else self.directory.absolute().name

    def equals(self, other: object) -> bool:
        if isinstance(other, Checkpoint) and self.origin == other.origin:
            return self.dtype == other.dtype
        return super().equals(other)

    def __getitem__(self, path: str) -> Array:
        name = tensor_name(path)
        if path not in self._kept:
            if name not in self._entries:
                raise no_parameter(path)
            tensor = self._read(self._entries[name], name)
            if path == "W_E":
                self._check_copy(tensor)
            parameter = transpose(tensor) if path == "W_U" else tensor
            return self._kept.setdefault(path, read_only(parameter))
        return self._kept[path]

    def __getstate__(self) -> dict[str, object]:
        return vars(self) | {"_kept": {}}  # what is in the file is read again

    def __deepcopy__(self, memo: object) -> Checkpoint:
        return self

    def rows(self, path: str) -> Array | Rows:
        """What gives rows of an embedding: the whole where it has been read, else those rows."""
        name = tensor_name(path)
        return self[path] if path in self._kept or name not in EMBEDDINGS else Rows(self, name)

    def _check_copy(self, W_E: Array) -> None:
        if self._copy is not None and not np.array_equal(self._read(self._copy, OUTPUT), W_E):
            raise not_tied(str(self.directory))

    def _read(self, entry: Entry, name: str, rows: Ids | None = None) -> Array:
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
        """Those rows."""
        numbers, entry = as_array(rows, "rows"), self.checkpoint._entries[self.name]
        if not numbers.size:
            return np.empty((*numbers.shape, entry.shape[1]), self.checkpoint.dtype)
        if numbers.dtype.kind not in "iu":
            raise InvalidTypeError(f"rows of {self.name} are integers; got {quoted(rows)}")
        count = entry.shape[0]
        if ((numbers < 0) | (numbers >= count)).any():
            raise OutOfRangeError(f"rows of {self.name} are 0 to {count - 1}; got {quoted(rows)}")
        distinct, places = np.unique(numbers.astype(np.int64), return_inverse=True)
        read = self.checkpoint._read(entry, self.name, distinct)
        return read[places.reshape(numbers.shape)]  # flat before NumPy 2


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
            with open_regular(self.file) as stream:
                numbers = np.fromfile(stream, STORED_AS[self.dtype], count, offset=start)
                same = _version(os.fstat(stream.fileno())) == self.version
        except OSError as error:
            raise CheckpointError(f"{self.file} can't be read: {error}") from None
        if not same:
            raise CheckpointError(f"{self.file} was changed after it was opened; open it again")
        return numbers


def _version(status: os.stat_result) -> tuple[int, ...]:
    return status.st_ino, status.st_size, status.st_mtime_ns


def check_variant(variant: object) -> None:
    """Refuse what can't be a part of a file's name."""
    if variant is None:
        return
    if not isinstance(variant, str):
        raise InvalidTypeError(f"variant must be a str; got {quoted(variant)}")
    if not re.fullmatch(r"\w[\w.-]{0,99}", variant, re.ASCII):
        raise InvalidValueError(
            f'variant must be part of the weights\' name, such as "fp16"; got '
            f"{quoted(variant, 200)}"
        )


def weights_name(variant: str | None = None) -> str:
    """What the weights' one file is called; of the variant fp16, `model.fp16.safetensors`."""
    return _of_variant(WEIGHTS, variant)


def index_name(variant: str | None = None) -> str:
    """What the index of the weights' shards is called."""
    return _of_variant(INDEX, variant)


def _of_variant(name: str, variant: str | None) -> str:
    stem, _, ending = name.rpartition(".")
    return name if variant is None else f"{stem}.{variant}.{ending}"


def weight_files(directory: Path, variant: str | None = None) -> list[Path]:
    """The directory's safetensors files, whole or in shards."""
    whole, index = directory / weights_name(variant), directory / index_name(variant)
    if os.path.isfile(whole):
        return [whole]
    if not os.path.isfile(index):
        raise MissingFileError(_no_weights(directory, variant))
    shards = [directory / name for name in shard_names(index)]
    missing = [shard.name for shard in shards if not os.path.isfile(shard)]
    if missing:
        raise MissingFileError(f"{listed(missing)}, named in {index}, is not there")
    for shard in shards:
        _check_place(shard, index)
    return shards


def _check_place(shard: Path, index: Path) -> None:
    """Refuse a shard that is a link to elsewhere, unless it is one of the hub's cache."""
    directory = os.path.realpath(index.parent)
    snapshots = os.path.dirname(directory)
    allowed = [directory]
    if os.path.basename(snapshots) == "snapshots":
        allowed.append(os.path.join(os.path.dirname(snapshots), "blobs"))
    if os.path.dirname(os.path.realpath(shard)) not in allowed:
        raise CheckpointError(
            f"{index} leads outside its directory: {shard.name} is a link to "
            f"{quoted(os.path.realpath(shard), 200)}"
        )


def _no_weights(directory: Path, variant: str | None) -> str:
    message = f"there is no {weights_name(variant)} (nor {index_name(variant)}) in {directory}"
    told = unsupported(os.listdir(directory)) if os.path.isdir(directory) else ""
    return f"{message}, only {told}" if told else message


def weight_map(index: Path) -> dict[str, str]:
    """Of each tensor the shard that holds it, which is in the index's own directory."""
    shards = read_json(index, CheckpointError).get("weight_map")
    if not isinstance(shards, dict) or not all(isinstance(name, str) for name in shards.values()):
        raise CheckpointError(f"{index} holds no weight_map of tensors and their files")
    for name in shards.values():
        if re.search(r"[/\\:]|^\.*$", name):
            raise CheckpointError(f"{index} points outside its directory: {quoted(name, 200)}")
    return shards


def shard_names(index: Path) -> list[str]:
    """The shards that an index names."""
    return sorted(set(weight_map(index).values()))


def _entries(directory: Path, variant: str | None) -> dict[str, Entry]:
    """Every tensor in the directory's weight files, by name and without what stands before it."""
    files = weight_files(directory, variant)
    entries: dict[str, Entry] = {}
    found: dict[str, str] = {}
    for file in files:
        for name, entry in _read_header(file).items():
            bare = bare_name(name)
            if bare in entries:
                raise CheckpointError(
                    f"{listed([bare])} is there twice, in {file} and in {entries[bare].file}"
                )
            entries[bare], found[name] = entry, file.name
    if files != [directory / weights_name(variant)]:
        _check_map(directory / index_name(variant), found)
    return entries


def _head(name: str) -> str:
    """Of the name of a head's tensor what the head is called, else ""."""
    head, dot, _ = name.partition(".")
    return head if dot and head in HEADS else ""


def _check_map(index: Path, found: dict[str, str]) -> None:
    """Refuse an index that says of tensors other than what is so."""
    told = weight_map(index)
    for name in (*told, *found):
        if told.get(name) != found.get(name):
            said, is_in = (places.get(name, "no file") for places in (told, found))
            raise CheckpointError(
                f"{index} contradicts its shards: it says that {listed([name])} is in "
                f"{listed([said])}, and it is in {listed([is_in])}"
            )


def bare_name(name: str) -> str:
    """A tensor's name without what stands before it: h.0.ln_1.bias of transformer.h.0.ln_1.bias."""
    wrapped = WRAPPERS.match(name)
    return name[wrapped.end() :] if wrapped else name


def _read_header(file: Path) -> dict[str, Entry]:
    """What a safetensors file holds, once the safetensors library found the file sound.

    Notes
    -----
    The format: 8 bytes, little-endian, the length of a JSON header; the header; the tensors.
    Source: safetensors' README, "Format".
    """
    from safetensors import SafetensorError, safe_open  # here, so that `import attnlab` is quick

    try:
        with open_regular(file) as stream:
            version = _version(os.fstat(stream.fileno()))
            length = int.from_bytes(stream.read(8), "little")
            if length > LARGEST_HEADER:
                raise OSError(f"its header would have {length:,} bytes")
            header = stream.read(length)
            if not header.startswith(b"{"):
                raise OSError("its header does not begin with a brace")
        with safe_open(file, framework="np"):
            pass
        same = _version(os.stat(file)) == version
    except (SafetensorError, OSError, MemoryError) as error:  # MemoryError: for a file of 1 TB
        raise CheckpointError(f"{file} {_what_it_is(file)} ({error})") from None
    if not same:
        raise CheckpointError(f"{file} was changed while it was opened; open it again")
    tensors = parse_json(header, f"the header of {file}", CheckpointError)
    tensors.pop("__metadata__", None)
    return {
        name: Entry(
            file,
            info["dtype"],
            tuple(info["shape"]),
            8 + length + info["data_offsets"][0],
            version,
        )
        for name, info in tensors.items()
    }


# What a file is that is not safetensors, by its first bytes.
BEGINNINGS = {
    b"version https://git-lfs": "is a Git LFS pointer and not the file itself: run `git lfs pull`",
    b"GGUF": "is in llama.cpp's format GGUF and not in safetensors'",
    b"PK\3\4": "is a zip, such as PyTorch's pickles are, and not a safetensors file",
    b"<": "is a web page and not a safetensors file: the download went wrong",
}


def _what_it_is(file: Path) -> str:
    """Why a file is not safetensors, as far as its first bytes tell."""
    try:
        with open_regular(file) as stream:
            start = stream.read(64)
    except OSError:
        return "can't be read"
    if not start:
        return "is empty"
    for beginning, told in BEGINNINGS.items():
        if start.lstrip().startswith(beginning):
            return told
    return "is not a safetensors file, or is truncated"


class Stored(Protocol):
    """A tensor as a file or another library keeps it; `dtype` is safetensors' name for it."""

    @property
    def shape(self) -> Shape: ...
    @property
    def dtype(self) -> str: ...


Kept = TypeVar("Kept", bound=Stored)


def parameters_among(
    entries: Mapping[str, Kept], config: GPT2Config, where: str
) -> tuple[dict[str, Kept], Kept | None, str]:
    """Of a model's tensors those that are parameters of a GPT-2 with this config.

    Parameters
    ----------
    entries : by their bare names
    where : they are from, in words

    Returns
    -------
    The parameters by name; where the config ties the output matrix to the embedding and both are
    there, the one; and in words, to follow `where`, the head that is left out, or "".
    """
    left_out = [name for name in entries if _head(name)]
    found = _check_entries(
        {name: entry for name, entry in entries.items() if name not in left_out}, config, where
    )
    # The embedding that is the output matrix too may be there twice, or under that name.
    copy = found.pop(OUTPUT, None) if config.tie_word_embeddings else None
    if copy is not None:
        found.setdefault(EMBEDDING, copy)
    if not left_out:
        return found, copy, ""
    kinds = " and ".join(sorted({HEADS[_head(name)] for name in left_out}))
    return found, copy, f", without its head for {kinds} ({listed(left_out)})"


def not_tied(where: str) -> CheckpointError:
    """An error of an output matrix that should be the embedding."""
    return CheckpointError(
        f"{OUTPUT} in {where} is not equal to {EMBEDDING}, though its config ties the two. If the "
        'model has an output matrix of its own, that should say "tie_word_embeddings": false'
    )


def _check_entries(entries: Mapping[str, Kept], config: GPT2Config, where: str) -> dict[str, Kept]:
    """The entries that are parameters, if they are those of a GPT-2 with this config.

    It takes time that grows with the entries, and not with the numbers in the config.

    Parameters
    ----------
    where : they are from, in words
    """
    found = {name: entry for name, entry in entries.items() if not MASK_BUFFER.fullmatch(name)}
    in_block = {NAMES[path]: shape for path, shape in shapes_in_block(config).items()}
    outside = {
        OUTSIDE_OF_BLOCKS[path]: stored_shape(path, shape)
        for path, shape in shapes_outside_of_blocks(config).items()
    }

    def shape_of(name: str) -> Shape | None:
        block = IN_BLOCK.fullmatch(name)
        if block is None:
            return outside.get(EMBEDDING if name == OUTPUT and OUTPUT not in outside else name)
        is_there = len(block[1]) <= len(str(config.n_layer)) and int(block[1]) < config.n_layer
        return in_block.get(block[2]) if is_there else None

    expected = {name: shape for name in found if (shape := shape_of(name)) is not None}
    if told := _what_else(found, {*in_block, *outside}):
        raise CheckpointError(f"{where} {told}")
    given = set(expected)
    if config.tie_word_embeddings and OUTPUT in given:  # W_E under another name, or twice
        given = given - {OUTPUT} | {EMBEDDING}
    missing = len(outside) + config.n_layer * len(in_block) - len(given)
    names = (tensor_name(path) for path in parameter_paths(config))
    unexpected = [name for name in found if name not in expected]
    misshaped = [
        f"{name} is {list(found[name].shape)} and not {list(shape)}"
        for name, shape in expected.items()
        if found[name].shape != shape
    ]
    unreadable = [
        f"{name} is {found[name].dtype} and not one of {', '.join(STORED_AS)}"
        for name in expected
        if found[name].dtype not in STORED_AS
    ]
    kinds = {
        "missing": listed((name for name in names if name not in given), missing),
        "unexpected": listed(unexpected),
        "misshaped": listed(misshaped),
        "of a dtype that can't be read": listed(unreadable),
    }
    problems = [f"{kind}: {told}" for kind, told in kinds.items() if told]
    first = tensor_name("blocks.0.attention.W_QKV")
    if first in expected and found[first].shape == expected[first][::-1]:
        problems.append(
            "a block's matrices are the other way round, as nn.Linear and nanoGPT keep them: "
            "GPT2.from_arrays(config, arrays, tokenizer) takes such"
        )
    if problems:
        raise CheckpointError(
            f"the tensors in {where} are not those of its config. {'; '.join(problems)}"
        )
    return found


def _what_else(found: Mapping[str, Stored], ours: set[str]) -> str:
    """What tensors are, where their names tell that they are not a GPT-2's as it stands."""

    def is_ours(name: str) -> bool:
        block = IN_BLOCK.fullmatch(name)
        return (block[2] if block else name) in ours

    for name, entry in found.items():
        if QUANTISED.fullmatch(name) or (entry.dtype.startswith("F8") and is_ours(name)):
            return f"holds quantised weights ({listed([name])}, {entry.dtype}). {HOW_TO_DEQUANTISE}"
        if LORA.fullmatch(name):
            return (
                f"holds LoRA layers beside the weights that they change ({listed([name])}). Where "
                "peft is installed, add the two up: model.merge_and_unload().save_pretrained('NEW')"
            )
    if found and not any(map(is_ours, found)):
        return f"holds no tensor by a name of GPT-2's, but {listed(sorted(found))}"
    return ""
