"""A GPT-2 of what is in memory: arrays, tensors, a model and a tokenizer of transformers.

What another library keeps is known by what it can do: that library is not loaded here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from attnlab.checkpoints.checkpoint import (
    EMBEDDING,
    IN_BLOCK,
    NAMES,
    bare_name,
    not_tied,
    parameters_among,
    tensor_name,
)
from attnlab.equations import Array, transpose
from attnlab.errors import (
    AttnlabError,
    CheckpointError,
    ConfigError,
    InvalidTypeError,
    InvalidValueError,
    UnknownParameterError,
    VocabularyError,
    quoted,
)
from attnlab.forward.config import GPT2Config
from attnlab.forward.parameters import ParameterVector, Shape, parameter_shapes
from attnlab.steps import is_finite
from attnlab.support.checks import as_reals, attribute, check_kind, checked_dtype, errors_of
from attnlab.support.files import parse_json
from attnlab.support.formats import listed
from attnlab.text.tokenizer import NoTokenizer, Tokenizer

# A block's matrices. As nn.Linear keeps them, as nanoGPT does, they are transposed.
MATRICES = {NAMES[path] for path in ("attention.W_QKV", "attention.W_O", "mlp.W_1", "mlp.W_2")}
FIRST = NAMES["attention.W_QKV"]

# Where a wrapped model keeps the one that is inside.
INSIDE = ("module", "_orig_mod", "pretrained_model", "base_model", "model")

WHERE = "the model in memory"


@dataclass(frozen=True)
class Held:
    """An array in memory, or its transpose."""

    name: str
    array: Any
    transposed: bool = False

    @property
    def shape(self) -> Shape:
        shape = tuple(np.shape(self.array))
        return shape[::-1] if self.transposed else shape

    @property
    def dtype(self) -> str:
        """As safetensors calls it: F32 of float32, BF16 of torch.bfloat16."""
        name = str(getattr(self.array, "dtype", "")).removeprefix("torch.")
        return name.replace("float", "F").upper()

    def read(self) -> Array:
        try:  # another library raises whatever it likes, such as on a meta device
            array: Array = as_reals(self.array, listed([self.name]))
        except AttnlabError as error:
            raise CheckpointError(f"{listed([self.name])} can't be read: {error}") from None
        return transpose(array) if self.transposed else array


def parameters_in_memory(
    config: GPT2Config, arrays: Mapping[str, Any], dtype: DTypeLike = "float32"
) -> ParameterVector:
    """The parameters that arrays are, copied, so that no later change finds them.

    Parameters
    ----------
    config : the sizes that they must have
    arrays : by the names of a checkpoint, whatever stands before them, or by the paths of
        parameters. Where a block's first matrix is (3 D, D) and not (D, 3 D), all of a block's
        matrices are those of nn.Linear, and are transposed. Where none of them has a bias, biases
        are zero.
    dtype : "float32" or "float64", what the copies are
    """
    check_kind(config, GPT2Config, "config")
    if not isinstance(arrays, Mapping):
        raise InvalidTypeError(f"arrays must be a dict of names and arrays; got {quoted(arrays)}")
    checked = checked_dtype(dtype)
    found, copy, left_out = parameters_among(_entries(arrays, config), config, WHERE)
    parameters = ParameterVector(config, dtype=checked)
    for path in parameters:
        entry = found[tensor_name(path)]
        values = entry.read()
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is told below
            parameters[path][...] = transpose(values) if path == "W_U" else values
        if not is_finite(parameters[path]):
            raise CheckpointError(f"{listed([entry.name])} holds NaN or infinite numbers")
    if copy is not None and not np.array_equal(copy.read(), found[EMBEDDING].read()):
        raise not_tied(WHERE)
    parameters.vector.flags.writeable = False
    frozen = ParameterVector(config, parameters.vector)
    frozen.origin = f"from arrays in memory{left_out}"
    return frozen


def _entries(arrays: Mapping[str, Any], config: GPT2Config) -> dict[str, Held]:
    """Every array by its tensor's bare name, as it would lie in a checkpoint."""
    entries: dict[str, Held] = {}
    with errors_of(CheckpointError, "the model's arrays can't be read"):
        items = list(arrays.items())
    for name, array in items:
        if not isinstance(name, str):
            raise InvalidTypeError(f"an array's name is a str; got {quoted(name)}")
        try:
            bare = tensor_name(name)
        except UnknownParameterError:
            bare = bare_name(name)
        if bare in entries:
            raise CheckpointError(
                f"{listed([bare])} is there twice, as {listed([entries[bare].name, name])}"
            )
        # Lists of different lengths, and whatever an object raises.
        with errors_of(InvalidValueError, f"{listed([name])} is no array"):
            held = array if hasattr(array, "dtype") else np.asarray(array)
            entries[bare] = Held(name, held, transposed=name == "W_U")
            entries[bare].shape, entries[bare].dtype
    matrices = {bare: path for bare in entries if (path := _matrix(bare))}
    D = config.n_embd
    if any(entries[m].shape == (3 * D, D) for m, path in matrices.items() if path == FIRST):
        entries |= {m: replace(entries[m], transposed=True) for m in matrices}
    biases = {
        tensor_name(path): shape
        for path, shape in parameter_shapes(config).items()
        if len(shape) == 1 and not path.endswith("gain")
    }
    if not biases.keys() & entries.keys():
        zeros = {name: np.zeros(shape, np.float32) for name, shape in biases.items()}
        entries |= {name: Held(name, zero) for name, zero in zeros.items()}
    return entries


def _matrix(name: str) -> str:
    """What a block's matrix is called there; "" of all else."""
    block = IN_BLOCK.fullmatch(name)
    return block[2] if block and block[2] in MATRICES else ""


def config_of(model: Any) -> GPT2Config:
    """The config of a model of transformers, or of the one that is wrapped in it."""
    inside = model if callable(attribute(model, "state_dict")) else None
    for _ in INSIDE:
        to_dict = attribute(attribute(inside, "config"), "to_dict")
        if callable(to_dict):
            with errors_of(ConfigError, "the model's config can't be read"):
                return GPT2Config.from_dict(to_dict())
        found = (attribute(inside, name) for name in INSIDE)
        inside = next((one for one in found if one is not None), None)
    raise InvalidTypeError(
        "a GPT-2 of transformers has a config and a state_dict(); got a "
        f"{type(model).__name__}. GPT2.from_arrays takes arrays by their names"
    )


def tokenizer_in_memory(tokenizer: Any, rows: int) -> Tokenizer:
    """A tokenizer of transformers, or of the tokenizers library, as it is now; ours as it is.

    Parameters
    ----------
    tokenizer : None for that of a model that takes ids alone
    rows : of the embedding
    """
    if tokenizer is None:
        return NoTokenizer(rows)
    if isinstance(tokenizer, Tokenizer):
        return tokenizer
    to_str = attribute(attribute(tokenizer, "backend_tokenizer") or tokenizer, "to_str")
    if callable(to_str):
        with errors_of(VocabularyError, "the tokenizer can't be read"):
            content = to_str().encode()
        return Tokenizer(parse_json(content, "the tokenizer", VocabularyError))
    if not callable(attribute(tokenizer, "save_pretrained")):
        raise InvalidTypeError(
            "tokenizer must be a Tokenizer, or one of transformers or of the tokenizers library; "
            f"got a {type(tokenizer).__name__}"
        )
    import tempfile  # here, as it brings all that unpacks archives

    with tempfile.TemporaryDirectory() as directory:  # one written in Python
        with errors_of(VocabularyError, "the tokenizer can't be read"):
            tokenizer.save_pretrained(directory)
        return Tokenizer.from_directory(directory)
