"""The initial parameters, and the mask of the parameters that decay."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import DTypeLike

from attnlab.forward.config import GPT2Config
from attnlab.forward.parameters import ParameterVector
from attnlab.support.checks import check_kind


def decay_mask(config: GPT2Config) -> ParameterVector:
    """A mask of the parameters that decay: 1 in matrices, 0 in biases and LayerNorms."""
    mask = ParameterVector(config)
    for values in mask.values():
        values[...] = 1 if values.ndim == 2 else 0
    return mask


def initial_parameters(
    config: GPT2Config, rng: np.random.Generator, dtype: DTypeLike = "float32"
) -> ParameterVector:
    """Draw initial parameters: matrices from N(0, 0.02²), gains 1, biases 0.

    The projections to the residual stream, W_O and W_2, are scaled by 1 / √(2 L).

    Source: "Language Models are Unsupervised Multitask Learners" (2019), section 2.3; 0.02 is in
    "Improving Language Understanding by Generative Pre-Training" (2018), section 4.1.
    """
    check_kind(config, GPT2Config, "config")
    check_kind(rng, np.random.Generator, "rng")
    parameters = ParameterVector(config, dtype=dtype)
    std = 0.02
    residual_std = std / math.sqrt(2 * config.n_layer)
    stds = {path: std for path in ("W_E", "W_P", "W_U") if path in parameters}
    for layer in range(config.n_layer):
        attention, mlp = f"blocks.{layer}.attention", f"blocks.{layer}.mlp"
        stds |= {f"{attention}.W_QKV": std, f"{mlp}.W_1": std}
        stds |= {f"{attention}.W_O": residual_std, f"{mlp}.W_2": residual_std}
        parameters[f"{attention}.gain"][:] = parameters[f"{mlp}.gain"][:] = 1.0
    parameters["gain"][:] = 1.0
    for path, std_of_path in stds.items():
        W = parameters.stored(path)
        W[...] = rng.standard_normal(W.shape, dtype=np.float32) * std_of_path
    return parameters
