"""A GPT-2's parameters in memory, as views of one vector."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import DTypeLike

from attnlab.checkpoint import Parameters, parameter_count, tensor_shapes
from attnlab.config import GPT2Config
from attnlab.ops import Array


class ParameterVector(Parameters):
    """All parameters of a GPT-2 one after the other, or their gradients, or what belongs to each.

    Each tensor is a view of the vector, so that an optimizer updates all of them at once.

    Parameters
    ----------
    config : their sizes
    vector : (parameter_count(config),); None for zeros
    dtype : of the zeros

    Attributes
    ----------
    vector : (parameter_count(config),)
    """

    origin = "in memory"

    def __init__(
        self, config: GPT2Config, vector: Array | None = None, dtype: DTypeLike = "float32"
    ) -> None:
        self.config = config
        self.vector = np.zeros(parameter_count(config), dtype) if vector is None else vector
        self.dtype = self.vector.dtype
        self._tensors: dict[str, Array] = {}
        start = 0
        for name, shape in tensor_shapes(config).items():
            stop = start + math.prod(shape)
            self._tensors[name] = self.vector[start:stop].reshape(shape)
            start = stop

    def _tensor(self, name: str) -> Array:
        return self._tensors[name]

    def copy(self) -> ParameterVector:
        """The same numbers in a vector of their own."""
        return ParameterVector(self.config, self.vector.copy())


def is_matrix(config: GPT2Config) -> ParameterVector:
    """1 for each number that stands in a matrix, 0 for those of biases and LayerNorms."""
    matrices = ParameterVector(config)
    for name, shape in tensor_shapes(config).items():
        matrices._tensor(name)[...] = len(shape) == 2
    return matrices


def initial_parameters(
    config: GPT2Config, rng: np.random.Generator, dtype: DTypeLike = "float32"
) -> ParameterVector:
    """What training starts from: matrices normal with deviation 0.02, gains 1, biases 0.

    What writes to the residual stream, W_O and W_2, is scaled by 1 / √(2 L), as 2 L of them add up.

    Notes
    -----
    Source: "Language Models are Unsupervised Multitask Learners" (2019), section 2.3; 0.02 from
    "Improving Language Understanding by Generative Pre-Training" (2018), section 4.1.
    """
    parameters = ParameterVector(config, dtype=dtype)
    deviation = 0.02
    matrices = [(W, deviation) for W in (parameters.W_E, parameters.W_P)]
    for layer in range(config.n_layer):
        block = parameters.block(layer)
        matrices += [(W, deviation) for W in (block.W_QKV[0], block.mlp.W_1)]
        of_residual = deviation / math.sqrt(2 * config.n_layer)
        matrices += [(W, of_residual) for W in (block.attention.W_O, block.mlp.W_2)]
        block.ln_1.gain[:] = block.ln_2.gain[:] = 1.0
    parameters.ln_f.gain[:] = 1.0
    for W, scale in matrices:
        W[...] = rng.standard_normal(W.shape, dtype=np.float32) * scale
    return parameters
