"""GPT-2's parameters by path, such as `blocks.0.attention.W_Q`."""

from __future__ import annotations

import math
import re
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from attnlab.equations import Array
from attnlab.errors import InvalidValueError, UnknownNameError, quoted
from attnlab.forward.config import GPT2Config
from attnlab.support.checks import as_floats, as_model_dtype, check_kind, check_shape, memory_for

Shape = tuple[int, ...]

# Each head's mean context, (Dh,), by the path of its context.
Averages = Mapping[str, Array]


def shapes_in_block(config: GPT2Config) -> dict[str, Shape]:
    """The shapes in which one block's parameters are stored, by path within the block.

    `gain` and `bias` belong to the LayerNorm that computes X.

    Source: transformers' `modeling_gpt2.py`.
    """
    D, F = config.n_embd, config.d_mlp
    return {
        # The names in files are in `attnlab.checkpoints`. Matrices are (in, out): x @ W.
        "attention.gain": (D,),
        "attention.bias": (D,),
        "attention.W_QKV": (D, 3 * D),  # the columns of W_Q, then W_K, then W_V: see `parts_of`
        "attention.b_QKV": (3 * D,),
        "attention.W_O": (D, D),  # head 0 has the first Dh rows
        "attention.b_O": (D,),
        "mlp.gain": (D,),  # the second LayerNorm of a block
        "mlp.bias": (D,),
        "mlp.W_1": (D, F),
        "mlp.b_1": (F,),
        "mlp.W_2": (F, D),
        "mlp.b_2": (D,),
    }


def shapes_outside_of_blocks(config: GPT2Config) -> dict[str, Shape]:
    """The shapes of the other parameters, embeddings first.

    `gain` and `bias` belong to the last LayerNorm. W_U is a parameter only if it isn't tied to W_E.
    """
    D = config.n_embd
    shapes: dict[str, Shape] = {
        "W_E": (config.vocab_size, D),
        "W_P": (config.n_positions, D),  # learned, so later positions have no rows
        "gain": (D,),  # for the LayerNorm after the last block, which GPT-2 added
        "bias": (D,),
    }
    return shapes if config.tie_word_embeddings else shapes | {"W_U": (D, config.vocab_size)}


def parts_of(stored: str) -> tuple[str, ...]:
    """The paths of the parameters in a stored array: W_Q, W_K and W_V are the thirds of W_QKV."""
    # OpenAI's checkpoints store these three as one matrix, `c_attn`, and so does this package.
    start = stored.removesuffix("QKV")
    return (stored,) if start == stored else tuple(f"{start}{name}" for name in "QKV")


def stored_path(path: str) -> str:
    """The path of the stored array that has a parameter; other paths are returned unchanged."""
    return re.sub(r"(attention\.[Wb]_)[QKV]$", r"\1QKV", path)  # W_Q -> W_QKV, b_K -> b_QKV


def stored_shapes(config: GPT2Config) -> dict[str, Shape]:
    """The shapes of all stored arrays, by path, in the order of the forward pass."""
    in_block = shapes_in_block(config)
    embedding, positions, *last = shapes_outside_of_blocks(config).items()
    blocks = (
        (f"blocks.{layer}.{path}", shape)
        for layer in range(config.n_layer)
        for path, shape in in_block.items()
    )
    return dict([embedding, positions, *blocks, *last])


def parameter_shapes(config: GPT2Config) -> dict[str, Shape]:
    shapes: dict[str, Shape] = {}
    for stored, (*rest, width) in stored_shapes(config).items():
        # W_Q, W_K and W_V each have a third of the columns of W_QKV: (D, 3 D) -> (D, D).
        parts = parts_of(stored)
        shapes |= dict.fromkeys(parts, (*rest, width // len(parts)))
    return shapes


def parameter_count(config: GPT2Config) -> int:
    """The number of trained values; 124,439,808 for GPT-2 small."""
    # W_E counts once, although a tied model also uses it as W_U.
    return sum(map(math.prod, stored_shapes(config).values()))


class Parameters(Mapping[str, Array]):
    """The parameters of a GPT-2, read-only arrays by path."""

    config: GPT2Config
    dtype: np.dtype[Any]  # the dtype of all arrays
    origin: str  # where the parameters come from, in words
    name: str = ""  # the model's name, or ""
    averages: Averages | None = None  # see `GPT2.averages`
    _arrays: dict[str, Array]  # parameters read so far, and stored arrays such as W_QKV, by path

    # Identity decides whether two are equal: comparing values would read all parameters.
    __eq__ = object.__eq__
    __hash__ = object.__hash__  # pyright: ignore[reportAssignmentType]  # Mapping has none

    @abstractmethod
    def stored(self, path: str) -> Array:
        """A stored array, such as `blocks.0.attention.W_QKV`; it is kept once it has been read."""

    def __getitem__(self, path: str) -> Array:
        # `_arrays` also has W_QKV, which isn't one parameter but three.
        if not isinstance(path, str) or path.endswith("QKV"):
            raise no_parameter(path)
        if path not in self._arrays:
            # Views of W_QKV let `fast.side_by_side` join W_Q, W_K and W_V without a copy. Another
            # stored array is one parameter, of which the view is the whole array.
            stored = stored_path(path)
            parts = parts_of(stored)
            views = np.split(self.stored(stored), len(parts), axis=-1)
            for part, view in zip(parts, views, strict=True):
                self._arrays.setdefault(part, view)
        return self._arrays[path]

    def __contains__(self, path: object) -> bool:
        return isinstance(path, str) and path in parameter_shapes(self.config)  # reads no file

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(map(parts_of, stored_shapes(self.config)))

    def __len__(self) -> int:
        return len(parameter_shapes(self.config))

    def __repr__(self) -> str:
        count = f"{parameter_count(self.config):,} parameters"
        return f"{type(self).__name__} of {count}, {self.dtype}, {self.origin}"

    def rows(self, path: str) -> Any:
        """A parameter whose rows are read on demand, as `rows(path)[ids]`."""
        return self[path]

    def read(self, path: str) -> Any:
        """A parameter by path; `rows_of_W_E` is W_E with rows read on demand."""
        # In memory, both are the same array. From a file, only the indexed rows are read.
        return self.rows("W_E") if path == "rows_of_W_E" else self[path]

    def frozen(self) -> Parameters:
        """The same parameters, unaffected by later changes."""
        return self  # arrays from a file are read-only; see `ParameterVector` for training

    def equals(self, other: object) -> bool:
        """Whether these and other parameters have the same numbers."""
        if self is other:
            return True
        if not isinstance(other, Parameters) or self.config != other.config:
            return False
        # For array_equal, 0.5 in float32 and in float64 would be equal.
        if self.dtype != other.dtype:
            return False
        return all(np.array_equal(self[path], other[path]) for path in self)


class ParameterVector(Parameters):
    """All parameters in one vector, or their gradients, or an optimizer's state.

    Each parameter is a view of the writable `vector`, (parameter_count(config),), so that an
    optimizer updates all parameters at once. By default, the vector is zeros of `dtype`.
    """

    origin = "in memory"

    def __init__(
        self, config: GPT2Config, vector: Array | None = None, dtype: DTypeLike = "float32"
    ) -> None:
        check_kind(config, GPT2Config, "config")
        self.config = config
        count = parameter_count(config)
        if vector is None:  # gradients and optimizer states start at 0
            dtype = as_model_dtype(dtype)
            with memory_for(f"{count:,} parameters"):
                vector = np.zeros(count, dtype)
        self.vector = vector
        self.dtype = self.vector.dtype
        self._arrays = {}
        # The vector has one array after the other, in the order of the forward pass.
        start = 0
        for path, shape in stored_shapes(config).items():
            stop = start + math.prod(shape)
            self._arrays[path] = self.vector[start:stop].reshape(shape)  # a view
            start = stop

    def stored(self, path: str) -> Array:
        if path not in self._arrays:
            raise no_parameter(path)
        return self._arrays[path]

    def __reduce__(self) -> tuple[Any, ...]:  # recreates the views
        state = {"averages": self.averages}
        return _from_vector, (self.config, self.vector, self.vector.flags.writeable), state

    def copy(self) -> ParameterVector:
        """A copy with a new vector."""
        return ParameterVector(self.config, self.vector.copy())

    def frozen(self) -> ParameterVector:
        """A read-only copy, or itself if it is read-only already."""
        # If the vector is a view of another array, that array must be read-only too.
        buffers = (self.vector, self.vector.base)
        if any(isinstance(array, np.ndarray) and array.flags.writeable for array in buffers):
            return _from_vector(self.config, self.vector.copy(), writeable=False)
        return self


def context_of(layer: int, head: int) -> str:
    """The path of a head's context."""
    return f"blocks.{layer}.attention.heads.{head}.context"


def as_averages(averages: Any, config: GPT2Config) -> Averages:
    """Each head's average context, by path, as a read-only float32 vector (Dh,)."""
    check_kind(averages, Mapping, "averages", "a dict, as attnlab.averages returns it")
    heads = np.ndindex(config.n_layer, config.n_head)
    paths = [context_of(layer, head) for layer, head in heads]
    if {*averages} != {*paths}:
        raise InvalidValueError(
            f"averages must have a vector for each head, from {paths[0]} to {paths[-1]}; got "
            f"{len(averages)} paths, {quoted([*averages], 100)}"
        )
    # float64 models have float32 averages, too: averages over some texts aren't more exact.
    vectors = {path: as_floats(averages[path], path).astype(np.float32) for path in paths}
    for path, vector in vectors.items():
        check_shape(vector, (config.d_head,), path)
        if not np.isfinite(vector).all():
            raise InvalidValueError(f"{path} contains NaN or infinite numbers")
        vector.flags.writeable = False
    return vectors


def no_parameter(path: object) -> UnknownNameError:
    """An error that lists the names of parameters."""
    return UnknownNameError(
        f"there is no parameter {quoted(path)}; parameters are W_E, W_P, gain, bias, "
        "blocks.0.attention.W_Q and so on. list(parameters) has all of them"
    )


def _from_vector(config: GPT2Config, vector: Array, writeable: bool) -> ParameterVector:
    if not writeable:
        vector.flags.writeable = False
    return ParameterVector(config, vector)
