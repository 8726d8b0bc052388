"""Trace files: what of a trace the rest can be computed from, without the model.

A safetensors file, format version 1. Tensors are steps by path:

| tensor | shape | |
| --- | --- | --- |
| embedding, final | (T, D) | |
| next_logits | (vocab,) | |
| blocks.L.mid, blocks.L.output | (T, D) | of each layer L |
| blocks.L.attention.Q, K, V | (H, T, Dh) | |
| other steps | | those that were asked for, and those that were edited |
| vocabulary.bytes, vocabulary.lengths | uint8 (n,), int32 (vocab,) | the bytes of all tokens one after the other, and how many each has |

The metadata are texts: `format` "attnlab.trace 1"; `config`, `ids` and `symbols` (of the whole
vocabulary, null for a row that belongs to no token) as JSON; `note`, what the trace's title ends with, such as its edits; `origin`, where the
parameters were from, and `origin_sha256`, of the last LayerNorm's gain and bias; and `sha256`, of all
the rest.
"""  # noqa: E501 (a table)

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from attnlab.equations import Array, Ids
from attnlab.errors import InvalidValueError, RecordingError, quoted
from attnlab.forward.config import GPT2Config
from attnlab.forward.edits import check_path, steps_below
from attnlab.forward.forward_pass import ForwardPass
from attnlab.forward.parameters import Parameters, parameter_shapes
from attnlab.steps import at, is_finite
from attnlab.support.checks import as_texts, checked_dtype, errors_of
from attnlab.support.files import LARGEST, FilePath, as_path
from attnlab.support.sealed import Shapes, read_sealed, sha256, write_sealed
from attnlab.text.tokens import Vocabulary, check_ids

FORMAT = "attnlab.trace 1"


class NoParameters(Parameters):
    """What a trace from a file has in the place of parameters.

    Parameters
    ----------
    config, dtype, origin : of those that the trace was made with
    """

    def __init__(self, config: GPT2Config, dtype: np.dtype[Any], origin: str) -> None:
        self.config, self.dtype, self.origin = config, dtype, origin

    def __getitem__(self, path: str) -> Array:
        raise InvalidValueError(f"needs the model's {path}, and this trace is from a file")


class RecordedVocabulary(Vocabulary):
    """What each id stands for, as a file tells it.

    Parameters
    ----------
    symbols : of id 0, 1, ...; None of a row that belongs to no token
    raw, lengths : the bytes of all of them, one after the other, and how many each has
    """

    def __init__(self, symbols: list[str | None], raw: bytes, lengths: Iterable[int]) -> None:
        known = {id: symbol for id, symbol in enumerate(symbols) if symbol is not None}
        super().__init__(known, size=len(symbols))
        ends = accumulate(lengths)
        pairs = zip(symbols, lengths, ends, strict=True)
        self._raw = [raw[end - length : end] for _, length, end in pairs]

    def _bytes_of(self, id: int) -> bytes:
        return self._raw[id]


class Recording(NamedTuple):
    """What a file tells of a trace."""

    ids: Ids
    vocabulary: Vocabulary
    parameters: NoParameters
    values: dict[str, Any]
    note: str


def shapes(config: GPT2Config, T: int) -> dict[str, tuple[int, ...]]:
    """The steps that every file holds, by path, with their shapes."""
    stop, of_heads = (T, config.n_embd), (config.n_head, T, config.d_head)
    found: dict[str, tuple[int, ...]] = {"embedding": stop, "final": stop}
    for layer in range(config.n_layer):
        block = f"blocks.{layer}"
        found |= {f"{block}.mid": stop, f"{block}.output": stop}
        found |= {f"{block}.attention.{name}": of_heads for name in "QKV"}
    return found | {"next_logits": (config.vocab_size,)}


def record(trace: Any, path: FilePath, parts: Sequence[str] = ()) -> None:
    """Write a trace file, see `Trace.record`."""
    if trace.tokens_before:
        raise InvalidValueError("a step of generation has no file: record its generation's .trace")
    file = as_path(path)
    config: GPT2Config = trace.config
    paths = [*shapes(config, len(trace.tokens))]
    of_parameters = (*parameter_shapes(config), "rows_of_W_E")
    paths += [path for path in trace.edited_steps if path not in of_parameters]
    tensors = {name: np.asarray(at(trace, name)) for name in paths}
    for name in as_texts(parts, "parts"):
        part = at(trace, name)
        if not isinstance(part, np.ndarray | int | float) or not np.size(part):
            raise InvalidValueError(f"{quoted(name)} is no step, which alone can be recorded")
        tensors[name] = np.asarray(part)
    vocabulary: Vocabulary = trace.vocabulary
    symbols: list[str | None] = [None] * len(vocabulary)
    for id in vocabulary.ids.tolist():
        symbols[id] = vocabulary.token(id).symbol
    raws = [vocabulary.bytes_of(id) for id in range(len(vocabulary))]
    tensors["vocabulary.bytes"] = np.frombuffer(b"".join(raws), np.uint8)
    tensors["vocabulary.lengths"] = np.array([len(raw) for raw in raws], np.int32)
    metadata = {
        "config": json.dumps(asdict(config)),
        "ids": json.dumps(trace.ids.tolist()),
        "symbols": json.dumps(symbols),
        "note": trace._run.note,
        "origin": trace.parameters.origin,
        "origin_sha256": sha256([trace.gain.tobytes(), trace.bias.tobytes()]),
    }
    write_sealed(file, FORMAT, tensors, metadata)


def check_shapes(metadata: dict[str, str], there: Shapes) -> None:
    """Refuse what no trace of the config's sizes has, before any number is read."""
    config = GPT2Config.from_dict(json.loads(metadata["config"]))
    T = len(json.loads(metadata["ids"]))
    symbols = json.loads(metadata["symbols"])
    if not all(isinstance(symbol, str | None) for symbol in symbols):
        raise InvalidValueError("symbols are texts, or null")
    if 5 * config.n_layer + 3 > len(there) or not 0 < T <= config.n_positions:
        raise InvalidValueError(f"{config.n_layer} layers and {T} tokens do not fit its tensors")
    known = [path for path, _ in steps_below(ForwardPass)]
    expected = shapes(config, T) | {
        "vocabulary.bytes": (min(there["vocabulary.bytes"][0], LARGEST),),
        "vocabulary.lengths": (len(symbols),),
    }
    if len(symbols) != config.vocab_size:
        raise InvalidValueError(f"{len(symbols)} symbols are no vocabulary of {config.vocab_size}")
    for name, shape in ({**dict.fromkeys(there, None), **expected}).items():
        if shape is None:  # a step that was asked for, or edited
            check_path(name, known, config.n_head, config.n_layer, "step")
            if math.prod(there[name]) > config.largest_step(T):
                raise InvalidValueError(f"{name} has shape {there[name]}")
        elif there[name] != shape:
            raise InvalidValueError(f"{name} has shape {there[name]}, not {shape}")


def read(path: FilePath) -> Recording:
    """What a trace file holds."""
    file = as_path(path)
    tensors, metadata = read_sealed(file, FORMAT, RecordingError, check_shapes)
    with errors_of(RecordingError, f"{file} isn't a complete trace file"):
        config = GPT2Config.from_dict(json.loads(metadata["config"]))
        raw, lengths = tensors.pop("vocabulary.bytes"), tensors.pop("vocabulary.lengths")
        vocabulary = RecordedVocabulary(json.loads(metadata["symbols"]), raw.tobytes(), lengths)
        if lengths.ndim != 1 or lengths.min() < 0 or lengths.sum() != raw.size:
            raise InvalidValueError("the vocabulary's bytes and their lengths do not fit")
        ids = check_ids(json.loads(metadata["ids"]), config.vocab_size)
        parameters = NoParameters(config, tensors["embedding"].dtype, metadata["origin"])
        for name in shapes(config, len(ids)):
            if tensors[name].dtype != checked_dtype(parameters.dtype):
                raise InvalidValueError(f"{name} is {tensors[name].dtype}")
        for name, tensor in tensors.items():
            may_hide = name.endswith("masked_scores")  # where -inf is meant
            if not is_finite(np.where(np.isneginf(tensor), 0, tensor) if may_hide else tensor):
                raise InvalidValueError(f"{name} holds NaN or infinite numbers")
        metadata["note"], metadata["origin_sha256"]
    values = {name: tensor if tensor.ndim else tensor.item() for name, tensor in tensors.items()}
    return Recording(ids, vocabulary, parameters, values, metadata["note"])
