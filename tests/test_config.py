"""GPT2Config: the sizes and settings in config.json, and refused ones."""

import dataclasses
import json
import math
import re
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import REFERENCE

from attnlab import GPT2Config
from attnlab.errors import ConfigError, InvalidTypeError, InvalidValueError
from attnlab.forward.config import ACTIVATIONS, LARGEST_SIZES
from attnlab.forward.parameters import ParameterVector, parameter_count

SIZES: dict[str, Any] = {
    "vocab_size": 263,
    "n_positions": 17,
    "n_embd": 35,
    "n_layer": 3,
    "n_head": 5,
}
NAMES = tuple(SIZES)
GPT2S: dict[str, Any] = {
    "n_inner": None,
    "layer_norm_epsilon": 1e-5,
    "activation_function": "gelu_new",
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "reorder_and_upcast_attn": False,
    "tie_word_embeddings": True,
}
FLAGS = tuple(name for name, value in GPT2S.items() if isinstance(value, bool))


def test_settings_of_a_dict() -> None:
    """Missing ones have GPT-2's defaults, and unrelated ones are ignored."""
    config = GPT2Config.from_dict(SIZES)
    assert dataclasses.asdict(config) == SIZES | GPT2S
    other = {"n_ctx": 1024, "attn_pdrop": 0.1, "d_head": "?", "from_dict": None}
    assert GPT2Config.from_dict(SIZES | other) == config
    for changed, d_mlp in (({}, 140), ({"n_inner": None}, 140), ({"n_inner": 29}, 29)):
        assert GPT2Config.from_dict(SIZES | changed).d_mlp == d_mlp
    for name, activation in ACTIVATIONS.items():
        changed = {"activation_function": name}
        assert GPT2Config.from_dict(SIZES | changed).activation is activation


def test_defaults_equal_those_of_transformers() -> None:
    recorded = json.loads((REFERENCE / "odd" / "config.json").read_text())
    assert {name: recorded[name] for name in GPT2S} == GPT2S


@pytest.mark.parametrize("name", FLAGS)
def test_supported_variants_of_settings(name: str, tmp_path: Path) -> None:
    config = GPT2Config.from_dict(SIZES | {name: not GPT2S[name]})
    assert getattr(config, name) is not GPT2S[name]
    config.save(tmp_path)
    assert GPT2Config.from_file(tmp_path / "config.json") == config


def test_saved_config_is_readable_by_transformers(tmp_path: Path) -> None:
    GPT2Config(**SIZES | {"activation_function": "relu", "n_inner": 9}).save(tmp_path)
    saved = json.loads((tmp_path / "config.json").read_text())
    recorded = json.loads((REFERENCE / "odd" / "config.json").read_text())
    assert saved.keys() <= recorded.keys()
    assert saved["model_type"] == "gpt2"
    assert saved["architectures"] == recorded["architectures"]
    assert (saved["activation_function"], saved["n_inner"]) == ("relu", 9)


def test_numpy_scalars_become_python_numbers() -> None:
    config = GPT2Config(
        **SIZES | {"n_layer": np.int32(3), "scale_attn_weights": np.False_},
        layer_norm_epsilon=np.float32(1e-5),
    )
    assert type(config.n_layer) is int
    assert config.scale_attn_weights is False
    assert type(config.layer_norm_epsilon) is float


UNIMPLEMENTED: list[tuple[str, Any]] = [
    ("activation_function", "gelu_10"),  # clipped
    ("activation_function", "GELU"),
    ("activation_function", None),
    ("activation_function", ["gelu"]),
    ("add_cross_attention", True),
    ("add_cross_attention", None),
    ("add_cross_attention", 0),
    ("pruned_heads", {"0": [1]}),
]


def test_how_to_open_a_model_with_pruned_heads_is_said() -> None:
    with pytest.raises(ConfigError, match="zeros in the place of these heads"):
        GPT2Config.from_dict(SIZES | {"pruned_heads": {"0": [1]}})


@pytest.mark.parametrize(("key", "value"), UNIMPLEMENTED)
def test_unsupported_settings_are_rejected(key: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=rf"{key} must be .*; got {re.escape(repr(value))}"):
        GPT2Config.from_dict(SIZES | {key: value})


NOT_FLAGS = (1, 0, "true", None, 1.0, [])
NOT_SIZES = ("12", "", True, False, 12.0, 0, -1, math.nan, [12], {})
BETWEEN_0_AND_1 = "layer_norm_epsilon must be a number between 0 and 1"
NOT_EPSILON = (0, 0.0, -1e-5, 1, 1e5, math.nan, math.inf, "1e-5", True, None, [1e-5])

# Settings with one invalid value, and the problem.
INVALID: list[tuple[dict[str, Any], str]] = [
    *(({f: x}, f"{f} must be true or false; got {x!r}") for f in FLAGS for x in NOT_FLAGS),
    *(
        ({name: x}, f"{name} must be a positive integer; got {x!r}")
        for name in [*NAMES, "n_inner"]
        for x in NOT_SIZES
    ),
    *(({name: None}, f"{name} must be a positive integer; got None") for name in NAMES),
    *(({"layer_norm_epsilon": x}, f"{BETWEEN_0_AND_1}; got {x!r}") for x in NOT_EPSILON),
    ({"n_head": 4}, "n_head = 4 does not divide n_embd = 35"),
    (  # all problems together
        {"n_embd": "35", "n_layer": 0},
        "n_embd must be a positive integer; got '35'; n_layer must be a positive integer; got 0",
    ),
]


@pytest.mark.parametrize(("changed", "problem"), INVALID, ids=str)
def test_invalid_values_are_reported(changed: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        GPT2Config.from_dict(SIZES | changed)
    assert str(caught.value) == problem


# Other models


@pytest.mark.parametrize("kind", ["llama", "bert", "gpt_neo", "", None, 2, ["gpt2"]])
def test_other_architectures_are_reported_by_name(kind: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        GPT2Config.from_dict({"model_type": kind, "n_layer": 10**9, "hidden_size": 4096})
    assert str(caught.value) == f"model_type is {kind!r}; only 'gpt2' is supported"


@pytest.mark.parametrize(
    ("quantized", "message"),
    [
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "'bitsandbytes'"),
        ({"quant_method": "gptq", "bits": 4}, "'gptq'"),
        ({"quant_method": "awq"}, "'awq'"),
        ({"quant_method": "fp8"}, "'fp8'"),
        ({"quant_method": Enum("Method", {"FP8": "fp8"})["FP8"]}, "'fp8'"),
        ({"load_in_8bit": True}, "{'load_in_8bit': True}"),
        ("int4", "'int4'"),
    ],
)
def test_quantized_models_are_recognized(quantized: Any, message: str) -> None:
    with pytest.raises(ConfigError, match="weights are quantized") as caught:
        GPT2Config.from_dict(SIZES | {"quantization_config": quantized})
    assert f"({message})" in str(caught.value)
    assert "dequantize()" in str(caught.value)


@pytest.mark.parametrize("settings", [5, None, "gpt2", [1], np.zeros(2), {1, 2}])
def test_settings_must_be_a_dict(settings: Any) -> None:
    with pytest.raises(InvalidTypeError, match="settings must be a dict; got"):
        GPT2Config.from_dict(settings)


@pytest.mark.parametrize("name", NAMES)
def test_missing_sizes_are_reported(name: str) -> None:
    others = {key: value for key, value in SIZES.items() if key != name}
    with pytest.raises(ConfigError, match=f"^{name} is missing$"):
        GPT2Config.from_dict(others)


def test_sizes_that_transformers_files_leave_out() -> None:
    """As transformers' GPT2Config has them, under its other names too."""
    small = GPT2Config(vocab_size=50257, n_positions=1024, n_embd=768, n_layer=12, n_head=12)
    assert GPT2Config.from_dict({"model_type": "gpt2"}) == small
    others = {"hidden_size": 6, "num_hidden_layers": 2, "num_attention_heads": 3}
    named = {"n_embd": 6, "n_layer": 2, "n_head": 3, "n_positions": 5}
    with_others = {"model_type": "gpt2", **others, "max_position_embeddings": 5}
    assert GPT2Config.from_dict(with_others) == dataclasses.replace(small, **named)
    assert GPT2Config.from_dict(with_others | named) == dataclasses.replace(small, **named)
    with pytest.raises(ConfigError, match="n_embd and hidden_size differ: 8, 6"):
        GPT2Config.from_dict(with_others | {"n_embd": 8})


@pytest.mark.parametrize("name", LARGEST_SIZES)
@pytest.mark.parametrize("digits", [9, 12, 18, 5000])
def test_implausible_sizes_are_rejected(name: str, digits: int) -> None:
    with pytest.raises(ConfigError, match=f"{name} must be at most") as caught:
        GPT2Config.from_dict(SIZES | {name: 10**digits})
    assert len(str(caught.value)) < 200


def test_the_largest_sizes() -> None:
    config = GPT2Config(**LARGEST_SIZES)
    assert parameter_count(config) > 10**16
    with pytest.raises(InvalidValueError, match=r"not enough memory for [\d,]+ parameters"):
        ParameterVector(config)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "can't be read as JSON"),
        (b"GPT-2", "can't be read as JSON"),
        (b'{"n_embd": 35,', "can't be read as JSON"),
        (b'{"n_embd": "\xff"}', "can't be read: .*utf-8"),
        (b'\xff\xfe{\x00"\x00', "can't be read: .*utf-8"),
        (b'{"n_embd": 1' + b"0" * 10_000 + b"}", "integer string conversion"),
        (b"[" * 100_000, "can't be read as JSON"),
        (b"[35]", "must be a JSON object"),
        (b"null", "must be a JSON object"),
        (b"{}", "vocab_size is missing"),
        (json.dumps(SIZES | {"n_head": 4}).encode(), "n_head = 4 does not divide n_embd = 35"),
        (json.dumps(SIZES | {"n_head": False}).encode(), "n_head must be a positive .* got False"),
    ],
    ids=lambda value: value[:16].decode("latin-1") if isinstance(value, bytes) else "",
)
def test_invalid_config_files_are_named(tmp_path: Path, content: bytes, problem: str) -> None:
    file = tmp_path / "config.json"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=problem) as caught:
        GPT2Config.from_file(file)
    assert str(file) in str(caught.value)
