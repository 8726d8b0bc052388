"""GPT-2's sizes, as `config.json` names them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from attnlab.checks import is_integer, is_real
from attnlab.errors import ConfigError
from attnlab.files import read_json, write_whole

# Keys that change the computation, each with the values that are computed here. A key that is
# not in the file has GPT-2's value, the first one.
IMPLEMENTED: dict[str, tuple[object, ...]] = {
    "model_type": ("gpt2",),
    "activation_function": ("gelu_new", "gelu_pytorch_tanh"),  # two names of the tanh form
    "scale_attn_weights": (True,),
    "scale_attn_by_inverse_layer_idx": (False,),
    "reorder_and_upcast_attn": (False,),
    "add_cross_attention": (False,),
    "tie_word_embeddings": (True,),
}


@dataclass(frozen=True, kw_only=True)
class GPT2Config:
    """The sizes of a GPT-2.

    Parameters
    ----------
    vocab_size : number of tokens in the vocabulary
    n_positions : most tokens that the model can take
    n_embd : D, width of the residual stream
    n_layer : L, number of blocks
    n_head : H, heads in a block; divides n_embd
    n_inner : F, width of the MLP; None means 4 D
    layer_norm_epsilon : added to the variance in LayerNorm

    Raises
    ------
    ConfigError
        A size that is not a positive integer, or heads that do not divide the width.

    Notes
    -----
    Source: GPT-2's `hparams.json`, with the names of transformers' `GPT2Config`.
    """

    vocab_size: int
    n_positions: int
    n_embd: int
    n_layer: int
    n_head: int
    n_inner: int | None = None
    layer_norm_epsilon: float = 1e-5

    def __post_init__(self) -> None:
        if problems := _wrong_sizes(vars(self)):
            raise ConfigError("; ".join(problems))
        for name, value in vars(self).items():  # NumPy's numbers, which JSON does not know
            if isinstance(value, np.generic):
                object.__setattr__(self, name, value.item())

    @property
    def d_head(self) -> int:
        """Dh = D / H, width of one head's queries, keys and values."""
        return self.n_embd // self.n_head

    @property
    def d_mlp(self) -> int:
        """F, width of the MLP's hidden layer."""
        return 4 * self.n_embd if self.n_inner is None else self.n_inner

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> GPT2Config:
        """The config in what a `config.json` holds; keys that do not matter here are passed over.

        Raises
        ------
        ConfigError
            A size is missing or wrong, or a setting is one that is not implemented. All that is
            wrong is told at once.
        """
        problems = [
            f"{key} {settings[key]!r} is not implemented (only {' or '.join(map(repr, values))})"
            for key, values in IMPLEMENTED.items()
            if key in settings and settings[key] not in values
        ]
        sizes = {f.name: settings[f.name] for f in fields(cls) if f.name in settings}
        if problems := problems + _wrong_sizes(sizes):
            raise ConfigError("; ".join(problems))
        return cls(**sizes)

    @classmethod
    def from_file(cls, path: str | Path) -> GPT2Config:
        """The config in a `config.json`; an error names the file.

        Raises
        ------
        MissingFileError
            There is no such file.
        ConfigError
            It is not JSON, or what `from_dict` refuses.
        """
        settings = read_json(Path(path), ConfigError)
        try:
            return cls.from_dict(settings)
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from None

    def save(self, directory: str | Path) -> None:
        """Write `config.json`, as transformers reads it too.

        Raises
        ------
        WriteError
            The directory can't be written to.
        """
        settings = {key: values[0] for key, values in IMPLEMENTED.items()} | {
            "architectures": ["GPT2LMHeadModel"],
            "bos_token_id": None,
            "eos_token_id": None,
        }
        text = json.dumps(settings | vars(self), indent=2)
        write_whole(Path(directory) / "config.json", f"{text}\n".encode())


def _wrong_sizes(sizes: Mapping[str, Any]) -> list[str]:
    """What is wrong with the sizes that a config is to be made of."""
    counts = ("vocab_size", "n_positions", "n_embd", "n_layer", "n_head")
    problems = [f"{name} is missing" for name in counts if name not in sizes]
    for name in (*counts, "n_inner"):
        value = sizes.get(name, 1)
        if not (is_integer(value) and value >= 1) and not (name == "n_inner" and value is None):
            problems.append(f"{name} must be a positive integer, not {value!r}")
    epsilon = sizes.get("layer_norm_epsilon", 1e-5)
    if not is_real(epsilon) or not 0 < epsilon < 1:
        problems.append(f"layer_norm_epsilon must be a small positive number, not {epsilon!r}")
    if not problems and sizes["n_embd"] % sizes["n_head"]:
        problems.append(f"n_head {sizes['n_head']} does not divide n_embd {sizes['n_embd']}")
    return problems
