"""A checkpoint of `tests/reference` for the scripts that compute it in PyTorch."""

import json
from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from torch import Tensor


def checkpoint(directory: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The configuration, and the parameters in float64 without their prefix."""
    parameters = {
        name.removeprefix("transformer."): tensor.double()
        for name, tensor in load_file(directory / "model.safetensors").items()
    }
    return json.loads((directory / "config.json").read_text()), parameters
