"""Trace files: enough of a trace to recompute the rest without the model.

A safetensors file, format version 1. Tensors are steps by path:

| tensor | shape | |
| --- | --- | --- |
| embedding, final | (T, D) | |
| next_logits | (vocab,) | |
| blocks.L.mid, blocks.L.output | (T, D) | of each layer L |
| blocks.L.attention.Q, K, V | (H, T, Dh) | |
| other steps | | those requested, and those edited |
| vocabulary.bytes, vocabulary.lengths | uint8 (n,), int32 (vocab,) | the bytes of all tokens, concatenated, and how many each has |

The metadata are strings: `format` "attnlab.trace 1"; `config`, `ids` and `symbols` (of the whole
vocabulary, null for a row without a token) as JSON; `note`, the end of the trace's title, such as its edits; `origin`, the
source of the parameters; `origin_sha256`, of the last LayerNorm's gain and bias; and `sha256`, of
everything else.
"""  # noqa: E501 (a table)

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from itertools import accumulate
from typing import Any

import numpy as np

from attnlab.equations import Array, Ids
from attnlab.errors import InvalidValueError, RecordingError, quoted
from attnlab.forward.config import GPT2Config
from attnlab.forward.edits import check_path
from attnlab.forward.forward_pass import ForwardPass
from attnlab.forward.parameters import Parameters, parameter_shapes
from attnlab.steps import at, is_finite, steps_below
from attnlab.support.checks import as_model_dtype, as_texts, reraised_as
from attnlab.support.files import LARGEST, FilePath, as_path
from attnlab.support.messages import Message
from attnlab.support.sealed import Shapes, read_sealed, sha256, write_sealed
from attnlab.text.tokens import Vocabulary, check_ids

FORMAT = "attnlab.trace 1"


class NoParameters(Parameters):
    """A stand-in for the parameters of a trace from a file; reading one raises.

    Parameters
    ----------
    config, dtype, origin : as in the model that computed the trace
    """

    def __init__(self, config: GPT2Config, dtype: np.dtype[Any], origin: str) -> None:
        self.config, self.dtype, self.origin = config, dtype, origin

    def __getitem__(self, path: str) -> Array:
        raise InvalidValueError(
            "needs the model's {path}, which a trace from a file doesn't have", path=path
        )


class RecordedVocabulary(Vocabulary):
    """The vocabulary in a trace file.

    Parameters
    ----------
    symbols : the symbol of each id, None for a row of the embedding without a token
    raw, lengths : the bytes of all tokens, concatenated, and how many each has
    """

    def __init__(self, symbols: list[str | None], raw: bytes, lengths: Iterable[int]) -> None:
        symbols_by_id = {id: symbol for id, symbol in enumerate(symbols) if symbol is not None}
        super().__init__(symbols_by_id, size=len(symbols))
        ends = accumulate(lengths)
        pairs = zip(symbols, lengths, ends, strict=True)
        self._raw = [raw[end - length : end] for _, length, end in pairs]

    def _bytes_of(self, id: int) -> bytes:
        return self._raw[id]


def shapes(config: GPT2Config, T: int) -> dict[str, tuple[int, ...]]:
    """The shapes of the steps that every file contains, by path."""
    stream, heads = (T, config.n_embd), (config.n_head, T, config.d_head)
    shapes_by_path: dict[str, tuple[int, ...]] = {"embedding": stream, "final": stream}
    for layer in range(config.n_layer):
        block = f"blocks.{layer}"
        shapes_by_path |= {f"{block}.mid": stream, f"{block}.output": stream}
        shapes_by_path |= {f"{block}.attention.{name}": heads for name in "QKV"}
    return shapes_by_path | {"next_logits": (config.vocab_size,)}


def record(trace: Any, path: FilePath, parts: Sequence[str] = ()) -> None:
    """Write a trace file, see `Trace.record`."""
    if trace.tokens_before:
        raise InvalidValueError(
            "a step of generation can't be recorded. Record the .trace of its Generation"
        )
    file = as_path(path)
    config: GPT2Config = trace.config
    paths = [*shapes(config, len(trace.tokens))]
    parameters = (*parameter_shapes(config), "rows_of_W_E")  # not recorded, even if edited
    paths += [path for path in trace.edited_steps if path not in parameters]
    tensors = {name: np.asarray(at(trace, name)) for name in paths}
    for name in as_texts(parts, "parts"):
        value = at(trace, name)
        if not isinstance(value, np.ndarray | int | float) or not np.size(value):
            raise InvalidValueError(
                "{name} isn't a step; only steps can be recorded", name=quoted(name)
            )
        tensors[name] = np.asarray(value)
    vocabulary: Vocabulary = trace.vocabulary
    symbols: list[str | None] = [None] * len(vocabulary)
    for id in vocabulary.ids.tolist():
        symbols[id] = vocabulary.token(id).symbol
    bytes_of_ids = [vocabulary.bytes_of(id) for id in range(len(vocabulary))]
    tensors["vocabulary.bytes"] = np.frombuffer(b"".join(bytes_of_ids), np.uint8)
    tensors["vocabulary.lengths"] = np.array([len(raw) for raw in bytes_of_ids], np.int32)
    metadata = {
        "config": json.dumps(asdict(config)),
        "ids": json.dumps(trace.ids.tolist()),
        "symbols": json.dumps(symbols),
        "note": trace._run.note,
        "origin": trace.parameters.origin,
        "origin_sha256": sha256([trace.gain.tobytes(), trace.bias.tobytes()]),
    }
    write_sealed(file, FORMAT, tensors, metadata)


def check_shapes(metadata: dict[str, str], tensor_shapes: Shapes) -> None:
    """Check metadata and tensor shapes against the config, before any tensor is read."""
    config = GPT2Config.from_dict(json.loads(metadata["config"]))
    T = len(json.loads(metadata["ids"]))
    symbols = json.loads(metadata["symbols"])
    if not all(isinstance(symbol, str | None) for symbol in symbols):
        raise InvalidValueError("symbols must be strings or null")
    # At least mid, output, Q, K and V of each block, and embedding, final and next_logits.
    if 5 * config.n_layer + 3 > len(tensor_shapes) or not 0 < T <= config.n_positions:
        raise InvalidValueError(
            "{n_layer} layers and {T} tokens don't match the tensors", n_layer=config.n_layer, T=T
        )
    known = [path for path, _ in steps_below(ForwardPass)]
    expected = shapes(config, T) | {
        # Any length up to LARGEST.
        "vocabulary.bytes": (min(tensor_shapes["vocabulary.bytes"][0], LARGEST),),
        "vocabulary.lengths": (len(symbols),),
    }
    if len(symbols) != config.vocab_size:
        raise InvalidValueError(
            "{count} symbols for a vocabulary of {vocab_size}",
            count=len(symbols),
            vocab_size=config.vocab_size,
        )
    for name, shape in (dict.fromkeys(tensor_shapes) | expected).items():
        if shape is None:  # not in every file: requested or edited
            check_path(name, known, config.n_head, config.n_layer, Message("step"))
            if math.prod(tensor_shapes[name]) > config.largest_step(T):
                raise InvalidValueError(
                    "{name} is too large: shape {actual}", name=name, actual=tensor_shapes[name]
                )
        elif tensor_shapes[name] != shape:
            raise InvalidValueError(
                "{name} must have shape {shape}; got {actual}",
                name=name,
                shape=shape,
                actual=tensor_shapes[name],
            )


def read(path: FilePath) -> tuple[Ids, Vocabulary, NoParameters, dict[str, Any], str]:
    """Read and check a trace file: ids, vocabulary, parameters, steps by path, and note."""
    file = as_path(path)
    tensors, metadata = read_sealed(file, FORMAT, RecordingError, check_shapes)
    with reraised_as(RecordingError, "{file} isn't a complete trace file", file=file):
        config = GPT2Config.from_dict(json.loads(metadata["config"]))
        raw, lengths = tensors.pop("vocabulary.bytes"), tensors.pop("vocabulary.lengths")
        vocabulary = RecordedVocabulary(json.loads(metadata["symbols"]), raw.tobytes(), lengths)
        if lengths.min() < 0 or lengths.sum() != raw.size:
            raise InvalidValueError("the vocabulary's lengths don't match its bytes")
        ids = check_ids(json.loads(metadata["ids"]), config.vocab_size)
        parameters = NoParameters(config, tensors["embedding"].dtype, metadata["origin"])
        for name in shapes(config, len(ids)):
            if tensors[name].dtype != as_model_dtype(parameters.dtype):
                raise InvalidValueError(
                    "{name} must be {dtype}; got {actual}",
                    name=name,
                    dtype=parameters.dtype,
                    actual=tensors[name].dtype,
                )
        for name, tensor in tensors.items():
            if name.endswith("masked_scores"):  # -inf for masked keys
                tensor = np.where(np.isneginf(tensor), 0, tensor)
            if not is_finite(tensor):
                raise InvalidValueError("{name} contains NaN or infinite numbers", name=name)
        metadata["note"], metadata["origin_sha256"]  # raise KeyError if they are missing
    values = {name: tensor if tensor.ndim else tensor.item() for name, tensor in tensors.items()}
    return ids, vocabulary, parameters, values, metadata["note"]
