"""Train a GPT-2 from scratch in NumPy.

`parameters` initializes the parameters, `gradients` is the backward pass, `optimizer` is AdamW, and
`run` is the training loop.
"""

from attnlab.forward.gradients import (
    cross_entropy,
    gelu_gradient,
    layer_norm_gradient,
    linear_gradient,
    softmax_gradient,
)
from attnlab.forward.parameters import ParameterVector
from attnlab.training.gradients import attention_gradient, loss_and_gradients
from attnlab.training.optimizer import AdamW, clip, learning_rate
from attnlab.training.parameters import initial_parameters
from attnlab.training.run import Settings, Training, train

__all__ = [
    "AdamW",
    "ParameterVector",
    "Settings",
    "Training",
    "attention_gradient",
    "clip",
    "cross_entropy",
    "gelu_gradient",
    "initial_parameters",
    "layer_norm_gradient",
    "learning_rate",
    "linear_gradient",
    "loss_and_gradients",
    "softmax_gradient",
    "train",
]
