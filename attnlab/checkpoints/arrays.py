"""GPT-2 models in memory: arrays, tensors, and transformers' models and tokenizers.

Objects of other libraries are recognised by their methods, without importing the libraries.
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
    other_name,
    select_parameters,
    tensor_name,
)
from attnlab.equations import Array, transpose
from attnlab.errors import (
    AttnlabError,
    CheckpointError,
    ConfigError,
    InvalidTypeError,
    InvalidValueError,
    UnknownNameError,
    VocabularyError,
)
from attnlab.forward.config import GPT2Config
from attnlab.forward.parameters import ParameterVector, Shape, stored_path, stored_shapes
from attnlab.steps import is_finite
from attnlab.support.checks import (
    as_model_dtype,
    as_reals,
    attribute,
    check_kind,
    reraised_as,
    with_article,
)
from attnlab.support.files import parse_json
from attnlab.support.formats import list_names
from attnlab.support.messages import Message
from attnlab.text.tokenizer import NoTokenizer, Tokenizer
from attnlab.text.tokenizer_files import tiktoken_settings

# Names of the matrices in a block that nn.Linear (in nanoGPT) stores transposed.
MATRICES = {NAMES[path] for path in ("attention.W_QKV", "attention.W_O", "mlp.W_1", "mlp.W_2")}
QKV_MATRIX, QKV_BIAS = NAMES["attention.W_QKV"], NAMES["attention.b_QKV"]

# Attributes in which wrappers, such as DataParallel, hold the model.
WRAPPER_ATTRIBUTES = ("module", "_orig_mod", "pretrained_model", "base_model", "model")

SOURCE = "the model in memory"


@dataclass(frozen=True)
class ArrayEntry:
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
        """The dtype's name in safetensors: F32 for float32, BF16 for torch.bfloat16."""
        name = str(getattr(self.array, "dtype", "")).removeprefix("torch.")
        return name.replace("float", "F").upper()

    def read(self) -> Array:
        try:
            array: Array = as_reals(self.array, list_names([self.name]))
        except AttnlabError as error:
            raise CheckpointError(f"{list_names([self.name])} can't be read: {error}") from None
        return transpose(array) if self.transposed else array


def parameters_in_memory(
    config: GPT2Config, arrays: Mapping[str, Any], dtype: DTypeLike = "float32"
) -> ParameterVector:
    """Copy arrays to the parameters of a GPT-2, see `GPT2.from_arrays`."""
    check_kind(config, GPT2Config, "config")
    check_kind(arrays, Mapping, "arrays", "a dict of names and arrays")
    dtype = as_model_dtype(dtype)
    entries = _entries(arrays, config)
    zeros = _zero_biases(entries, config)
    tensors, tied_copy, ignored = select_parameters(entries | zeros, config, SOURCE)
    if zeros:
        which = "query, key and value " if len(zeros) == config.n_layer else ""  # one b_QKV a layer
        ignored += f", without {which}biases, which are 0"
    parameters = ParameterVector(config, dtype=dtype)
    for path in stored_shapes(config):
        entry, stored = tensors[tensor_name(path)], parameters.stored(path)
        values = entry.read()
        with np.errstate(over="ignore", invalid="ignore"):  # `is_finite` finds overflow below
            stored[...] = transpose(values) if path == "W_U" else values
        if not is_finite(stored):
            raise CheckpointError(f"{list_names([entry.name])} contains NaN or infinite numbers")
    if tied_copy is not None and not np.array_equal(tied_copy.read(), tensors[EMBEDDING].read()):
        raise not_tied(SOURCE)
    parameters.vector.flags.writeable = False
    frozen = ParameterVector(config, parameters.vector)  # views of a read-only vector are read-only
    frozen.origin = Message("from {origin}", origin=f"arrays in memory{ignored}")
    return frozen


def _entries(arrays: Mapping[str, Any], config: GPT2Config) -> dict[str, ArrayEntry]:
    """Entries of the arrays by their names in a checkpoint, without prefix."""
    entries: dict[str, ArrayEntry] = {}
    with reraised_as(CheckpointError, "the model's arrays can't be read"):
        items = list(arrays.items())
    for bare, name, array in _with_known_names(items):
        if bare in entries:
            raise CheckpointError(
                f"{list_names([bare])} appears twice, as {list_names([entries[bare].name, name])}"
            )
        with reraised_as(InvalidValueError, f"{list_names([name])} isn't an array"):
            values = array if hasattr(array, "dtype") else np.asarray(array)
            # W_U is (D, vocab) under this name, but (vocab, D) under its name in files.
            entries[bare] = ArrayEntry(name, values, transposed=name == "W_U")
            _ = entries[bare].shape, entries[bare].dtype  # read here, since they may raise anything
    blocks = [match for name in entries if (match := IN_BLOCK.fullmatch(name))]
    matrices = [block[0] for block in blocks if block[2] in MATRICES]
    QKV_matrices = [block[0] for block in blocks if block[2] == QKV_MATRIX]
    # If one of these is transposed, nn.Linear has stored all matrices.
    if any(entries[name].shape == (3 * config.n_embd, config.n_embd) for name in QKV_matrices):
        entries |= {name: replace(entries[name], transposed=True) for name in matrices}
    return entries


def _with_known_names(items: list[tuple[str, Any]]) -> list[tuple[str, str, Any]]:
    """The arrays as (name in a checkpoint, given name, array); separate Q, K and V are joined."""
    known: list[tuple[str, str, Any]] = []
    # Separate arrays of Q, K and V, by the name of the joined array and by the axis along which to
    # join them: the first axis for nn.Linear, which stores Wᵀ.
    parts: dict[tuple[str, int], dict[str, tuple[str, Any]]] = {}
    for name, array in items:
        check_kind(name, str, "an array's name")
        stored = stored_path(name)
        try:
            bare, axis = tensor_name(stored), -1
            part = "" if stored == name else name[-1]  # the last letter of W_Q is Q
        except UnknownNameError:
            bare, part = other_name(name) or (bare_name(name), "")
            axis = 0
        if part:
            parts.setdefault((bare, axis), {})[part] = name, array
        elif bare:
            is_batch = name.endswith("pos_emb") and np.shape(array)[:-2] == (1,)  # as in minGPT
            known.append((bare, name, array[0] if is_batch else array))
    for (bare, axis), part_arrays in parts.items():
        names = [part_arrays[part][0] for part in "QKV" if part in part_arrays]
        if len(names) < 3:
            raise CheckpointError(f"of Q, K and V there is only {list_names(names)}")
        matrices = [ArrayEntry(*part_arrays[part]).read() for part in "QKV"]
        with reraised_as(CheckpointError, f"{list_names(names)} can't be joined"):
            known.append((bare, " and ".join(names), np.concatenate(matrices, axis)))
    return known


def _zero_biases(entries: Mapping[str, ArrayEntry], config: GPT2Config) -> dict[str, ArrayEntry]:
    """Zeros for biases that the model lacks: all biases, or the biases of Q, K and V."""
    biases = {
        tensor_name(path): shape
        for path, shape in stored_shapes(config).items()
        if len(shape) == 1 and not path.endswith("gain")
    }
    QKV_biases = {name: shape for name, shape in biases.items() if name.endswith(QKV_BIAS)}
    for missing in (biases, QKV_biases):
        if not missing.keys() & entries.keys():
            zeros = {name: np.zeros(shape, np.float32) for name, shape in missing.items()}
            return {name: ArrayEntry(name, zero) for name, zero in zeros.items()}
    return {}


def config_of(model: Any) -> GPT2Config:
    """The config of a transformers model, which may be wrapped in other models."""
    inner = model if callable(attribute(model, "state_dict")) else None
    for _ in WRAPPER_ATTRIBUTES:  # there is at most one wrapper of each kind
        to_dict = attribute(attribute(inner, "config"), "to_dict")
        if callable(to_dict):
            with reraised_as(ConfigError, "the model's config can't be read"):
                settings: Any = to_dict()
                return GPT2Config.from_dict(settings)
        inner_models = (attribute(inner, name) for name in WRAPPER_ATTRIBUTES)
        inner = next((value for value in inner_models if value is not None), None)
    raise InvalidTypeError(
        "model must be a transformers GPT-2, with a config and a state_dict(); got "
        f"{with_article(type(model).__name__)}. For arrays by name, use GPT2.from_arrays"
    )


def tokenizer_in_memory(tokenizer: Any, rows: int) -> Tokenizer:
    """Convert a tokenizer as `GPT2.from_arrays` takes it; the embedding has `rows` rows."""
    if tokenizer is None:
        return NoTokenizer(rows)
    if isinstance(tokenizer, Tokenizer):
        return tokenizer
    to_str = attribute(attribute(tokenizer, "backend_tokenizer") or tokenizer, "to_str")
    if callable(to_str):
        with reraised_as(VocabularyError, "the tokenizer can't be read"):
            content = str(to_str()).encode()
        return Tokenizer(parse_json(content, "the tokenizer", VocabularyError))
    if attribute(tokenizer, "_mergeable_ranks") is not None:
        with reraised_as(VocabularyError, "the tiktoken encoding can't be read"):
            return Tokenizer(tiktoken_settings(tokenizer))
    if not callable(attribute(tokenizer, "save_pretrained")):
        raise InvalidTypeError(
            "tokenizer must be a Tokenizer, or one of transformers, of the tokenizers library or "
            f"of tiktoken; got {with_article(type(tokenizer).__name__)}"
        )
    import tempfile  # imported late, so that `import attnlab` is quick

    with tempfile.TemporaryDirectory() as directory:  # a slow tokenizer has no backend
        with reraised_as(VocabularyError, "the tokenizer can't be read"):
            tokenizer.save_pretrained(directory)
        return Tokenizer.from_directory(directory)
