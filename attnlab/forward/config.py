"""GPT-2's sizes and settings, as `config.json` names them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from typing import Any, NamedTuple

import numpy as np

from attnlab import equations
from attnlab.errors import ConfigError, quoted
from attnlab.support.checks import check_kind, is_integer, is_real
from attnlab.support.files import FilePath, as_path, read_json, write_atomically
from attnlab.support.formats import CONFIG, HOW_TO_DEQUANTIZE

MODEL_TYPE = "gpt2"

# Other names of sizes in transformers' files, and the sizes that these files may leave out.
ALIASES = {
    "max_position_embeddings": "n_positions",
    "hidden_size": "n_embd",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
}
DEFAULT_SIZES = {  # the sizes of GPT-2 small
    "vocab_size": 50257,
    "n_positions": 1024,
    "n_embd": 768,
    "n_layer": 12,
    "n_head": 12,
}

# Keys with only one supported value, the default. Other values are refused: if they were ignored,
# the numbers would be another model's, and nothing would show this.
FIXED: dict[str, object] = {"add_cross_attention": False, "pruned_heads": {}}
HOW_TO_RESTORE = (
    "Put zeros in the place of these heads, in the columns of W_Q, W_K, W_V and the rows of W_O, "
    "and remove pruned_heads: heads of zeros add nothing"
)


class NamedActivation(NamedTuple):
    """An activation function and its name in formulas."""

    function: equations.Activation
    name: str


# OpenAI's GPT-2 has the tanh approximation of GELU, which transformers calls gelu_new.
# transformers' "gelu" is the exact function.
GELU = NamedActivation(equations.gelu, "GELU")
EXACT_GELU = NamedActivation(equations.exact_gelu, "exact GELU")
SILU = NamedActivation(equations.silu, "SiLU")

# The function of each `activation_function` in transformers. Several are the tanh approximation of
# GELU, whose terms transformers orders differently, with differences below 1e-11.
ACTIVATIONS = {
    "gelu_new": GELU,
    "gelu_fast": GELU,
    "gelu_pytorch_tanh": GELU,
    "gelu_python_tanh": GELU,
    "gelu_accurate": GELU,
    "gelu": EXACT_GELU,
    "gelu_python": EXACT_GELU,
    "quick_gelu": NamedActivation(equations.quick_gelu, "quick GELU"),
    "relu": NamedActivation(equations.relu, "ReLU"),
    "silu": SILU,
    "swish": SILU,
}

# The maximum of each size in a config: a damaged file must not ask for terabytes of memory.
LARGEST_SIZES = {
    "vocab_size": 100_000_000,
    "n_positions": 100_000_000,
    "n_embd": 1_000_000,
    "n_layer": 1_000,
    "n_head": 1_000_000,
    "n_inner": 10_000_000,
}


@dataclass(frozen=True, kw_only=True)
class GPT2Config:
    """The sizes of a GPT-2, and the settings of its variants, named as in transformers.

    Parameters
    ----------
    vocab_size : number of tokens in the vocabulary
    n_positions : the maximum number of tokens
    n_embd : D, width of the residual stream
    n_layer : L, number of blocks
    n_head : H, number of heads in a block; must divide n_embd
    n_inner : F, width of the MLP; None means 4 D
    layer_norm_epsilon : added to the variance in LayerNorm
    activation_function : the MLP's activation function, such as "gelu_new" or "relu"
    scale_attn_weights : whether scores are divided by √Dh
    scale_attn_by_inverse_layer_idx : whether scores are also divided by layer + 1
    reorder_and_upcast_attn : only affects float16 computation, and so nothing here
    tie_word_embeddings : whether the output matrix is the token embedding
    """

    vocab_size: int
    n_positions: int  # the context window: W_P has a row for each position
    n_embd: int  # d_model in the paper of 2017
    n_layer: int
    n_head: int  # with more heads, each head is narrower: H · Dh = D
    n_inner: int | None = None
    layer_norm_epsilon: float = 1e-5
    activation_function: str = "gelu_new"
    scale_attn_weights: bool = True
    scale_attn_by_inverse_layer_idx: bool = False  # from Stanford's Mistral, against overflow
    reorder_and_upcast_attn: bool = False
    tie_word_embeddings: bool = True  # if False, the checkpoint has a W_U of its own

    def __post_init__(self) -> None:
        if problems := _invalid_settings(vars(self)):
            raise ConfigError("; ".join(problems))
        for name, value in vars(self).items():  # NumPy scalars aren't JSON serialisable
            if isinstance(value, np.generic):
                object.__setattr__(self, name, value.item())  # the class is frozen
        object.__setattr__(self, "layer_norm_epsilon", float(self.layer_norm_epsilon))

    @property
    def d_head(self) -> int:
        """Dh = D / H, width of one head's queries, keys and values."""
        return self.n_embd // self.n_head

    @property
    def d_mlp(self) -> int:
        """F, width of the MLP's hidden layer."""
        # The paper of 2017 has d_ff = 4 d_model, and so has GPT-2.
        return 4 * self.n_embd if self.n_inner is None else self.n_inner

    @property
    def activation(self) -> NamedActivation:
        """The MLP's activation function."""
        return ACTIVATIONS[self.activation_function]

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> GPT2Config:
        """Create a config from a `config.json`'s content; unrelated keys are ignored.

        If there is a model_type, missing sizes are GPT-2 small's, as in transformers.
        """
        check_kind(settings, Mapping, "settings", "a dict")
        # Another model is reported first: settings with other names would seem to be missing.
        if reason := _unsupported_model(settings):
            raise ConfigError(reason)
        differing = [
            f"{name} and {alias} differ: {quoted(settings[name])}, {quoted(settings[alias])}"
            for alias, name in ALIASES.items()
            if alias in settings and name in settings and settings[alias] != settings[name]
        ]
        renamed = {name: settings[alias] for alias, name in ALIASES.items() if alias in settings}
        # In a union of dicts the last value counts: names come before aliases, then defaults.
        settings = (DEFAULT_SIZES if "model_type" in settings else {}) | renamed | {**settings}
        problems = differing + [
            f"{key} must be {value!r}; got {quoted(settings[key])}"
            + (f". {HOW_TO_RESTORE}" if key == "pruned_heads" else "")
            for key, value in FIXED.items()
            if key in settings and not _same_type_and_value(settings[key], value)
        ]
        known: dict[str, Any] = {
            f.name: settings[f.name] for f in fields(cls) if f.name in settings
        }
        if problems := problems + _invalid_settings(known):  # all problems are reported together
            raise ConfigError("; ".join(problems))
        return cls(**known)

    @classmethod
    def from_file(cls, path: FilePath) -> GPT2Config:
        """Read a `config.json`."""
        settings = read_json(path, ConfigError)
        if code := _custom_code(settings):
            raise ConfigError(
                f"{as_path(path)}: the model has custom code (auto_map: {quoted(code)}), which "
                "isn't run and may not compute GPT-2. If you are sure that it does, remove "
                "auto_map from the file"
            )
        try:
            return cls.from_dict(settings)
        except ConfigError as error:
            raise ConfigError(f"{as_path(path)}: {error}") from None

    def save(self, directory: FilePath) -> None:
        """Write a `config.json` that transformers can read."""
        settings = {
            "model_type": MODEL_TYPE,
            "architectures": ["GPT2LMHeadModel"],
            # transformers' default is 50256, which a smaller vocabulary doesn't have.
            "bos_token_id": None,
            "eos_token_id": None,
        }
        text = json.dumps(settings | asdict(self), indent=2)
        write_atomically(as_path(directory, "directory") / CONFIG, f"{text}\n".encode())


def _custom_code(settings: Mapping[str, Any]) -> str:
    """The class that transformers loads with trust_remote_code=True, or ""; it is never run."""
    auto_map = settings.get("auto_map")
    entries = auto_map.items() if isinstance(auto_map, Mapping) else ()
    return next((str(code) for name, code in entries if str(name).startswith("AutoModel")), "")


def _unsupported_model(settings: Mapping[str, Any]) -> str:
    """Why a config's model isn't supported, or "" if it is."""
    model_type = settings.get("model_type", MODEL_TYPE)  # a dict written by hand may leave it out
    if not _same_type_and_value(model_type, MODEL_TYPE):
        return f"model_type is {quoted(model_type)}; only '{MODEL_TYPE}' is supported"
    quantized = settings.get("quantization_config")
    if quantized is None:
        return ""
    method = quantized.get("quant_method") if isinstance(quantized, Mapping) else None
    method = getattr(method, "value", method)  # in a model in memory, it is an enum
    return f"the weights are quantized ({quoted(method or quantized)}). {HOW_TO_DEQUANTIZE}"


def _same_type_and_value(value: object, expected: object) -> bool:
    # In Python 0 == False, but in config.json 0 isn't false.
    return isinstance(value, type(expected)) and value == expected


def _invalid_settings(settings: Mapping[str, Any]) -> list[str]:
    """A message for each invalid setting of a config."""
    problems = [
        f"{f.name} is missing"
        for f in fields(GPT2Config)
        if f.default is MISSING and f.name not in settings
    ]
    for name, largest in LARGEST_SIZES.items():
        value = settings.get(name, 1)  # 1 is valid: missing sizes are reported above
        if name == "n_inner" and value is None:  # None means 4 D
            continue
        if not is_integer(value) or value < 1:
            problems.append(f"{name} must be a positive integer; got {quoted(value)}")
        elif value > largest:
            problems.append(f"{name} must be at most {largest:,}; got {quoted(value)}")
    epsilon = settings.get("layer_norm_epsilon", 1e-5)
    # With epsilon = 0, LayerNorm of a vector of equal numbers would divide by 0.
    if not is_real(epsilon) or not 0 < epsilon < 1:
        problems.append(
            f"layer_norm_epsilon must be a number between 0 and 1; got {quoted(epsilon)}"
        )
    activation = settings.get("activation_function", "gelu_new")
    if not isinstance(activation, str) or activation not in ACTIVATIONS:
        problems.append(
            f"activation_function must be one of {', '.join(ACTIVATIONS)}; got {quoted(activation)}"
        )
    for f in fields(GPT2Config):
        value = settings.get(f.name, f.default)
        # Settings that are bools by default take only bools, not 0 and 1.
        if isinstance(f.default, bool) and not isinstance(value, bool | np.bool_):
            problems.append(f"{f.name} must be true or false; got {quoted(value)}")
    # Without other problems, both numbers are positive integers.
    if not problems and settings["n_embd"] % settings["n_head"]:
        problems.append(
            f"n_head = {settings['n_head']} does not divide n_embd = {settings['n_embd']}"
        )
    return problems
