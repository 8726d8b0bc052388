"""Models from memory: arrays, tensors, models of transformers.

PyTorch isn't needed: stand-ins for its tensors behave like them, with gradients, devices and
bfloat16, and refuse what they refuse.
"""

from __future__ import annotations

import copy
import importlib
import json
import pickle
import re
import shutil
from collections import UserDict
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest
from conftest import REFERENCE
from numpy.typing import NDArray
from safetensors.numpy import load_file
from stand_ins import Contrary, Dtype, Tensor

import attnlab
from attnlab import GPT2, AttnlabError, GPT2Config, Tokenizer, self_attention
from attnlab.checkpoints.arrays import parameters_in_memory, tokenizer_in_memory
from attnlab.checkpoints.checkpoint import Checkpoint
from attnlab.errors import CheckpointError, ConfigError, VocabularyError
from attnlab.forward.parameters import parameter_shapes

MODELS = ("odd", "one_head", "float16", "float64", "gelu", "relu", "silu", "quick_gelu")

TOKENIZER = Tokenizer.from_directory(REFERENCE / "odd")

Arrays = dict[str, NDArray[Any]]


def config_of(model: str) -> GPT2Config:
    return GPT2Config.from_file(REFERENCE / model / "config.json")


def arrays_of(model: str) -> Arrays:
    """A reference model's tensors by their names in the file."""
    return load_file(REFERENCE / model / "model.safetensors")


def expected_of(model: str) -> Arrays:
    with np.load(REFERENCE / model / "expected.npz") as file:
        return dict(file)


def check(model: GPT2, expected: Arrays, tolerance: float = 1e-4) -> None:
    """Check that logits and every layer's weights equal the recorded ones."""
    trace = model.trace(expected["ids"])
    np.testing.assert_allclose(trace.logits, expected["logits"], atol=tolerance, rtol=tolerance)
    for layer, block in enumerate(trace.blocks):
        weights = expected[f"blocks.{layer}.attention.weights"]
        np.testing.assert_allclose(block.attention.weights, weights, atol=tolerance)


# Arrays


@pytest.mark.parametrize("model", MODELS)
def test_arrays_by_checkpoint_names(model: str) -> None:
    result = GPT2.from_arrays(config_of(model), arrays_of(model), TOKENIZER)
    assert result.parameters.dtype == np.float32
    check(result, expected_of(model))
    in_float64 = GPT2.from_arrays(config_of(model), arrays_of(model), TOKENIZER, dtype="float64")
    check(in_float64, expected_of(model), 1e-10)


@pytest.mark.parametrize("model", ["odd", "silu"])
def test_arrays_by_parameter_paths(model: str) -> None:
    directory = REFERENCE / model
    paths = dict(Checkpoint(directory, config_of(model)))
    assert ("W_U" in paths) == (model == "silu")
    result = GPT2.from_arrays(config_of(model), paths, TOKENIZER)
    check(result, expected_of(model))
    again = GPT2.from_arrays(config_of(model), result.parameters, TOKENIZER)
    for path in paths:
        np.testing.assert_array_equal(again.parameters[path], paths[path])


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (
            lambda m: m.generate(["a dog", "a cat"], 1),
            r"expected one text or token ids; got \['a dog'",
        ),
        (lambda m: m.losses([[1, 2], [3, 4]]), r"expected one text .*got \[\[1, 2"),
        (lambda m: m.trace(["the hen", None]), "text 1: expected one text or token ids; got None"),
        (lambda m: m.trace(["the hen", ""]), "text 1: nothing to trace"),
        (lambda m: attnlab.averages(m, ["hen", "a " * 99]), "text 1: .*tokens are too many"),
        (lambda m: m.trace(np.array(["a", "b"])), r"got <U1\. Give one text, or.*\.tolist\(\)"),
        (lambda m: m.trace(np.array(["a"], object)), "got object. Give one text, or to trace"),
        (lambda m: m.trace({"input_ids": [[1, 2], [3]]}), r"several texts.*batch\[.input_ids.\]"),
        (lambda m: attnlab.train(m.config, ["a", "b"], steps=1), r"got <U1\. Give one text"),
        (
            lambda m: m.trace("the hen").explain("blocks.1.attention.scores"),
            "path blocks.1.attention.heads.0.scores",
        ),
    ],
)
def test_call_conventions_of_other_tools(ask: Any, message: str) -> None:
    with pytest.raises(AttnlabError, match=message):
        ask(GPT2.from_pretrained(REFERENCE / "odd"))


def test_square_output_matrix() -> None:
    """A square matrix's layout follows from its name, not its shape."""
    sizes = {"vocab_size": 6, "n_positions": 3, "n_embd": 6, "n_layer": 1, "n_head": 2}
    config = GPT2Config(**sizes, tie_word_embeddings=False)
    rng = np.random.default_rng(0)
    paths = {
        path: rng.standard_normal(shape).astype(np.float32)
        for path, shape in parameter_shapes(config).items()
    }
    W_U = paths.pop("W_U")
    by_path = parameters_in_memory(config, paths | {"W_U": W_U})
    by_name = parameters_in_memory(config, paths | {"lm_head.weight": W_U})
    np.testing.assert_array_equal(by_path["W_U"], W_U)
    np.testing.assert_array_equal(by_name["W_U"], W_U.T)


@pytest.mark.parametrize("biases", ["biases", "none"])
def test_matrices_of_linear_layers_as_in_nanogpt(biases: str) -> None:
    with np.load(REFERENCE / "nanogpt.npz") as file:
        recorded = dict(file)
    prefix = f"{biases}.state."
    state = {n.removeprefix(prefix): a for n, a in recorded.items() if n.startswith(prefix)}
    assert any(name.endswith("bias") for name in state) == (biases == "biases")
    sizes = {"vocab_size": 263, "n_positions": 17, "n_embd": 6, "n_layer": 2, "n_head": 2}
    config = GPT2Config(**sizes, activation_function="gelu")
    for dtype, tolerance in (("float32", 1e-4), ("float64", 1e-10)):
        model = GPT2.from_arrays(config, state, TOKENIZER, dtype=dtype)
        logits = model.trace(recorded["ids"]).logits[:, ::3]
        np.testing.assert_allclose(logits, recorded[f"{biases}.logits"], atol=tolerance)


# A checkpoint's names in other implementations, recorded from their sources:
# rasbt/LLMs-from-scratch 016d230e, ch05/01_main-chapter-code/previous_chapters.py, and 7bd26314,
# ch05/10_llm-training-speed/01_opt_single_gpu.py; karpathy/minGPT 8860486, mingpt/model.py. In the
# first and the last, c_attn is split. Names in nanoGPT, llm.c and later minGPTs are transformers'.
OTHERS = {
    "LLMs-from-scratch": {
        "wte.weight": "tok_emb.weight",
        "wpe.weight": "pos_emb.weight",
        "ln_f.weight": "final_norm.scale",
        "ln_f.bias": "final_norm.shift",
        "lm_head.weight": "out_head.weight",
        "h.": "trf_blocks.",
        "ln_1.weight": "norm1.scale",
        "ln_1.bias": "norm1.shift",
        "ln_2.weight": "norm2.scale",
        "ln_2.bias": "norm2.shift",
        "mlp.c_fc": "ff.layers.0",
        "mlp.c_proj": "ff.layers.2",
        "attn.c_proj": "att.out_proj",
        "attn.c_attn": "att.W_query att.W_key att.W_value",
    },
    "LLMs-from-scratch, faster": {
        "wte.weight": "tok_emb.weight",
        "wpe.weight": "pos_emb.weight",
        "ln_f": "final_norm",
        "lm_head.weight": "out_head.weight",
        "h.": "trf_blocks.",
        "ln_1": "norm1",
        "ln_2": "norm2",
        "mlp.c_fc": "ff.layers.0",
        "mlp.c_proj": "ff.layers.2",
        "attn.c_proj": "att.proj",
        "attn.c_attn": "att.qkv",
    },
    "minGPT": {
        "wte.weight": "tok_emb.weight",
        "wpe.weight": "pos_emb",
        "lm_head.weight": "head.weight",
        "h.": "blocks.",
        "ln_1": "ln1",
        "ln_2": "ln2",
        "mlp.c_fc": "mlp.0",
        "mlp.c_proj": "mlp.2",
        "attn.c_proj": "attn.proj",
        "attn.c_attn": "attn.query attn.key attn.value",
    },
}


def renamed(model: str, tool: str) -> Arrays:
    """A reference model's arrays as another implementation names and stores them."""
    result: Arrays = {}
    for name, array in arrays_of(model).items():
        name = name.removeprefix("transformer.")
        values = array.T if array.ndim == 2 and name.startswith("h.") else array
        for mine, other in OTHERS[tool].items():
            if name.startswith(mine) if mine == "h." else mine in name:
                parts = other.split()
                before, after = name.split(mine, 1)
                if len(parts) == 1:
                    name = before + other + after
        if "c_attn" in name:
            before, after = name.split("attn.c_attn")
            for part, third in zip(parts, np.split(values, len(parts)), strict=True):
                result[before + part + after] = third
        else:
            result[name] = values[np.newaxis] if name == "pos_emb" else values
    mask = "attn.mask" if tool == "minGPT" else "att.mask"
    block = next(name for name in result if "blocks.0" in name).split(".0.")[0]
    return result | {f"{block}.0.{mask}": np.triu(np.ones((4, 4)))}


@pytest.mark.parametrize("tool", OTHERS)
@pytest.mark.parametrize("model", ["odd", "silu"])
def test_names_of_other_implementations(model: str, tool: str) -> None:
    arrays = renamed(model, tool)
    assert not arrays.keys() & arrays_of(model).keys()
    result = GPT2.from_arrays(config_of(model), arrays, TOKENIZER)
    check(result, expected_of(model))
    assert result.parameters.origin == "from arrays in memory"
    biases = [name for name in arrays if re.search(r"(query|key|value|qkv)\.bias", name)]
    without = {name: array for name, array in arrays.items() if name not in biases}
    assert GPT2.from_arrays(config_of(model), without).parameters.origin == (
        "from arrays in memory, without query, key and value biases, which are 0"
    )
    if key := next((name for name in arrays if "key.weight" in name), None):
        with pytest.raises(CheckpointError, match=r"of Q, K and V there is only .*query.*value"):
            GPT2.from_arrays(config_of(model), {n: a for n, a in arrays.items() if n != key})


def test_missing_biases_of_queries_keys_and_values_are_zero() -> None:
    arrays = arrays_of("odd")
    of_QKV = [name for name in arrays if name.endswith("attn.c_attn.bias")]
    zeros = arrays | {name: np.zeros_like(arrays[name]) for name in of_QKV}
    without = {name: array for name, array in arrays.items() if name not in of_QKV}
    model, expected = (
        GPT2.from_arrays(config_of("odd"), one, TOKENIZER) for one in (without, zeros)
    )
    assert model.parameters.equals(expected.parameters)
    assert model.parameters.origin == (
        "from arrays in memory, without query, key and value biases, which are 0"
    )
    del zeros[of_QKV[0]]  # one alone is an accident
    with pytest.raises(CheckpointError, match=f"missing: .*{of_QKV[0].partition('h.')[2]}"):
        GPT2.from_arrays(config_of("odd"), zeros, TOKENIZER)


def test_one_transposed_matrix_of_another_size_is_reported_alone() -> None:
    arrays = arrays_of("odd")
    for name in arrays:
        if arrays[name].ndim == 2 and ".h." in name:
            arrays[name] = arrays[name].T
    arrays["transformer.h.1.attn.c_attn.weight"] = np.ones((104, 35), np.float32)
    message = r"wrong shape: h\.1\.attn\.c_attn\.weight is \[35, 104\], expected \[35, 105\]$"
    with pytest.raises(CheckpointError, match=message):
        GPT2.from_arrays(config_of("odd"), arrays, TOKENIZER)


def test_input_arrays_may_change_later() -> None:
    arrays = arrays_of("odd")
    model = GPT2.from_arrays(config_of("odd"), arrays, TOKENIZER)
    for array in arrays.values():
        array[...] = 7
    check(model, expected_of("odd"))
    for path in model.parameters:
        with pytest.raises(ValueError, match="read-only"):
            model.parameters[path][...] = 1
    assert model.parameters.origin == "from arrays in memory"
    assert "from arrays in memory" in repr(model)
    for again in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        check(again, expected_of("odd"))
    arrays = {name: array.tolist() for name, array in arrays_of("gelu").items()}
    check(GPT2.from_arrays(config_of("gelu"), arrays, TOKENIZER), expected_of("gelu"))


# Tensors


def tensors_of(model: str, **more: Any) -> dict[str, Tensor]:
    return {name: Tensor(array, **more) for name, array in arrays_of(model).items()}


@pytest.mark.parametrize(
    ("model", "more"),
    [
        ("odd", {"gradients": True}),
        ("odd", {"gradients": True, "device": "mps:0"}),
        ("float16", {"device": "cuda:0"}),
        ("float64", {"gradients": True}),
    ],
)
def test_tensors(model: str, more: dict[str, Any]) -> None:
    result = GPT2.from_arrays(config_of(model), tensors_of(model, **more), TOKENIZER)
    check(result, expected_of(model))


@pytest.mark.parametrize("name", ["to_str", "save_pretrained"])
def test_tokenizers_that_raise_are_reported(name: str) -> None:
    tokenizer = mock.Mock(spec=[name], **{f"{name}.side_effect": RuntimeError("closed")})
    with pytest.raises(AttnlabError, match="tokenizer can't be read: RuntimeError"):
        GPT2.from_arrays(config_of("odd"), arrays_of("odd"), tokenizer)


@pytest.mark.parametrize("kind", ["masked", "complex"])
def test_lossy_array_conversions_are_rejected(kind: str) -> None:
    arrays: dict[str, Any] = arrays_of("odd")
    name = next(name for name in arrays if name.endswith("wpe.weight"))
    values = arrays[name]
    cells = np.zeros(values.shape, bool)
    arrays[name] = np.ma.masked_array(values, cells)  # none is masked
    GPT2.from_arrays(config_of("odd"), arrays)
    if kind == "masked":
        cells[0, 0] = True
        arrays[name] = np.ma.masked_array(values, cells)
    else:
        arrays[name] = Tensor(values)
        arrays[name].values = values + 1j  # claims to be float32
    with pytest.raises(CheckpointError, match=r"wpe\.weight.*(masked cells|real dtype)"):
        GPT2.from_arrays(config_of("odd"), arrays)


def test_tensors_of_bfloat16() -> None:
    """bfloat16: the upper halves of float32 numbers."""
    checkpoint = Checkpoint(REFERENCE / "bfloat16", config_of("bfloat16"))
    tensors = {
        path: Tensor(array, "bfloat16", gradients=True) for path, array in checkpoint.items()
    }
    model = GPT2.from_arrays(config_of("bfloat16"), tensors, TOKENIZER)
    check(model, expected_of("bfloat16"))


GAIN = "transformer.h.0.ln_1.weight"
QKV = "transformer.h.0.attn.c_attn"
MATRIX = np.ones((35, 105), np.float32)


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("transformer.h.1.mlp.c_fc.bias", None, r"missing: h\.1\.mlp\.c_fc\.bias$"),
        (GAIN, np.ones(36, np.float32), r"h\.0\.ln_1\.weight is \[36\], expected \[35\]"),
        (GAIN, np.ones(35, int), r"h\.0\.ln_1\.weight is INT64, expected one of"),
        (GAIN, np.full(35, np.inf), r"transformer\.h\.0\.ln_1\.weight contains NaN or infinite"),
        (GAIN, np.full(35, 1e300), r"transformer\.h\.0\.ln_1\.weight contains NaN or infinite"),
        ("W_P", np.ones((17, 35)), r"wpe\.weight appears twice, as transformer\.wpe\.weight, W_P"),
        (
            "lm_head.weight",
            np.ones((263, 35)),
            r"lm_head\.weight in the model in memory differs from wte\.weight",
        ),
        (f"{QKV}.weight", MATRIX.T, r"is \[35, 105\], expected|is \[105, 35\], expected"),
        (
            f"{QKV}.lora_A.default.weight",
            np.ones((8, 35)),
            "^the model in memory contains unmerged LoRA layers",
        ),
        (f"{QKV}.weight", Tensor(MATRIX, "float8_e4m3fn"), "unsupported dtype: h.0"),
        (f"{QKV}.weight", Tensor(MATRIX, device="meta"), r"c_attn\.weight can't be .*meta tensor"),
    ],
)
def test_arrays_that_do_not_match_the_config(name: str, array: Any, message: str) -> None:
    arrays: dict[str, Any] = arrays_of("odd") | {name: array}
    if array is None:
        del arrays[name]
    with pytest.raises(CheckpointError, match=message):
        GPT2.from_arrays(config_of("odd"), arrays, TOKENIZER)


def test_arguments_of_the_wrong_type() -> None:
    config, arrays = config_of("odd"), arrays_of("odd")
    for wrong in (5, None, "odd", [("W_E", 1)]):
        with pytest.raises(TypeError, match="config must be"):
            GPT2.from_arrays(wrong, arrays, TOKENIZER)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="arrays must be"):
            GPT2.from_arrays(config, wrong, TOKENIZER)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=r"use GPT2\.from_arrays"):
            GPT2.from_hf(wrong, TOKENIZER)
    with pytest.raises(TypeError, match="name must be a str"):
        GPT2.from_arrays(config, {5: np.ones(3)}, TOKENIZER)  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="dtype must be"):
        GPT2.from_arrays(config, arrays, TOKENIZER, dtype="float16")
    for nothing in ({}, {"W_E": None}, {"W_E": [[1], [1, 2]]}, {"W_E": object()}):
        with pytest.raises(AttnlabError):
            GPT2.from_arrays(config, nothing, TOKENIZER)


# Models of transformers


def hf_model(model: str, tensors: dict[str, Tensor], **settings: object) -> Any:
    """A stand-in for a GPT-2 of transformers."""
    saved = json.loads((REFERENCE / model / "config.json").read_text())
    config = SimpleNamespace(to_dict=lambda: saved | settings)
    return SimpleNamespace(config=config, state_dict=lambda: tensors)


def wrapped(name: str, inside: Any) -> Any:
    """A model inside another object without a config."""
    tensors = {f"{name}.{path}": tensor for path, tensor in inside.state_dict().items()}
    return SimpleNamespace(**{name: inside, "state_dict": lambda: tensors})


def test_transformers_models() -> None:
    model = hf_model("odd", tensors_of("odd", gradients=True))
    check(GPT2.from_hf(model, TOKENIZER), expected_of("odd"))
    check(GPT2.from_hf(model, TOKENIZER, dtype="float64"), expected_of("odd"), 1e-10)
    tensors = tensors_of("odd") | {"score.weight": Tensor(np.ones((2, 35), np.float32))}
    model = GPT2.from_hf(hf_model("odd", tensors), TOKENIZER)
    check(model, expected_of("odd"))
    assert model.parameters.origin == (
        "from arrays in memory, without the head for another task (score.weight)"
    )


@pytest.mark.parametrize("name", ["to_dict", "state_dict", "items"])
def test_models_that_raise_are_reported(name: str) -> None:
    model = hf_model("odd", tensors_of("odd"))
    fails = mock.Mock(side_effect=RuntimeError(name))
    if name == "to_dict":
        model.config.to_dict = fails
    elif name == "state_dict":
        model.state_dict = fails
    else:
        model.state_dict = lambda: mock.MagicMock(spec=dict, items=fails)
    with pytest.raises(AttnlabError, match=rf"can't be read: RuntimeError\('{name}"):
        GPT2.from_hf(model)


@pytest.mark.parametrize(
    "names", [("module",), ("_orig_mod",), ("module", "_orig_mod"), ("pretrained_model",)]
)
def test_wrapped_model(names: tuple[str, ...]) -> None:
    model: Any = hf_model("silu", tensors_of("silu", gradients=True))
    for name in names:
        model = wrapped(name, model)
    check(GPT2.from_hf(model, TOKENIZER), expected_of("silu"))


def test_model_of_another_architecture() -> None:
    with pytest.raises(ConfigError, match="is 'llama'"):
        GPT2.from_hf(hf_model("odd", tensors_of("odd"), model_type="llama"), TOKENIZER)
    quantized = hf_model("odd", tensors_of("odd"), quantization_config={"quant_method": "bnb"})
    with pytest.raises(ConfigError, match="quantized"):
        GPT2.from_hf(quantized, TOKENIZER)
    with pytest.raises(TypeError, match="got a SimpleNamespace"):
        GPT2.from_hf(wrapped("other", hf_model("odd", tensors_of("odd"))), TOKENIZER)


# Tokenizers


def save_slowly(directory: str) -> None:
    """The method of a slow tokenizer of transformers."""
    for name in ("vocab.json", "merges.txt"):
        shutil.copy(REFERENCE / "tokenizers" / "two_files" / name, directory)


SAVED = REFERENCE / "tokenizers" / "saved_by_5" / "tokenizer.json"

# A tokenizer of the tokenizers library, which is the backend of transformers' fast ones.
BACKEND = SimpleNamespace(to_str=lambda: SAVED.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("tokenizer", "name"),
    [
        (SimpleNamespace(backend_tokenizer=BACKEND), "saved_by_5"),
        (BACKEND, "saved_by_5"),
        (SimpleNamespace(save_pretrained=save_slowly), "two_files"),
        (Tokenizer.from_directory(REFERENCE / "tokenizers" / "added"), "added"),
    ],
    ids=["fast", "backend", "slow", "ours"],
)
def test_tokenizers_in_memory(tokenizer: Any, name: str) -> None:
    """Compare with transformers' ids."""
    recorded = json.loads((REFERENCE / "tokenizers.json").read_text(encoding="utf-8"))
    result = tokenizer_in_memory(tokenizer, 400)
    for text, (ids, *_) in zip(recorded["texts"], recorded["5"][name]["values"], strict=True):
        assert result.encode(text, special=True) == ids


TEXTS = ("The hen’s  eggs, 12 of them\n\n don't", "猫 naïve\t x", "<|endoftext|>")


def test_a_tiktoken_encoding_as_tokenizer() -> None:
    tiktoken = pytest.importorskip("tiktoken")
    tokens = [bytes([n]) for n in range(256)]
    tokens += [
        b"he",
        b"th",
        b"the",
        b" the",
        b"en",
        b"hen",
        b" t",
        "猫".encode()[:2],
        "猫".encode(),
    ]
    encoding = tiktoken.Encoding(
        "mine",
        pat_str=importlib.import_module("tiktoken_ext.openai_public").r50k_pat_str,
        mergeable_ranks={token: n for n, token in enumerate(tokens)},
        special_tokens={"<|endoftext|>": len(tokens), "<x>": len(tokens) + 1},
    )
    tokenizer = tokenizer_in_memory(encoding, 300)
    for text in (*TEXTS, "<x>the hen"):
        assert tokenizer.encode(text) == encoding.encode_ordinary(text)
        assert tokenizer.encode(text, special=True) == encoding.encode(text, allowed_special="all")
    encoding._pat_str = r"\w+|\W+"
    with pytest.raises(VocabularyError, match="'mine' splits texts by another pattern"):
        tokenizer_in_memory(encoding, 300)


def test_no_tokenizer() -> None:
    """Ids alone: each one's symbol is its number, and it has no text."""
    expected = expected_of("odd")
    model = GPT2.from_arrays(config_of("odd"), arrays_of("odd"))
    check(model, expected)
    trace = model.trace(expected["ids"])
    assert trace.tokens.symbols == tuple(map(str, expected["ids"].tolist()))
    assert set(trace.tokens.texts) == {""}
    assert set(trace.tokens.bytes) == {b""}
    assert trace.tokens[0].readable == str(expected["ids"][0])
    assert trace.by_words().words == trace.tokens.symbols
    with pytest.raises(ValueError, match="stop needs tokens with texts"):
        model.generate(expected["ids"], 1, stop="a")
    with pytest.raises(TypeError, match=r"no tokenizer\. .*save one in its directory; without one"):
        attnlab.playground(model, expected["ids"])
    prompt, with_texts = expected["ids"][:3], GPT2.from_pretrained(REFERENCE / "odd")
    generation, same = (one.generate(prompt, 4, temperature=0) for one in (model, with_texts))
    assert generation.new.ids.tolist() == same.new.ids.tolist()
    assert generation.text == str(generation) == ""
    assert str(trace.tokens[1].id) in repr(trace.tokens)
    assert str(trace.next_tokens(1)[0].id) in repr(trace.next_tokens(1))
    assert trace.head(0, 0).explain(2, 0).text(100)
    with pytest.raises(TypeError, match="has no tokenizer"):
        model.trace("the hen")
    check(pickle.loads(pickle.dumps(model)), expected)


def test_a_words_probability_is_without_what_is_added_to_texts() -> None:
    tokenizer = Tokenizer.from_directory(REFERENCE / "tokenizers" / "bos_and_eos")
    sizes = {"vocab_size": len(tokenizer), "n_positions": 8, "n_embd": 4, "n_layer": 1, "n_head": 1}
    run = attnlab.train(GPT2Config(**sizes), range(9), tokenizer, steps=1, progress=False)
    _, *ids, _ = tokenizer.encode(" hen")
    assert run.model.probability("the", " hen") == run.model.probability("the", ids)


def test_a_directory_without_a_tokenizer(tmp_path: Path) -> None:
    """It opens for ids, or with another tokenizer; saving keeps that."""
    for name in ("config.json", "model.safetensors"):
        shutil.copy(REFERENCE / "odd" / name, tmp_path)
    expected = expected_of("odd")
    model = GPT2.from_pretrained(tmp_path)
    check(model, expected)
    with pytest.raises(TypeError, match="has no tokenizer"):
        model.trace("the hen")

    whole = GPT2.from_pretrained(REFERENCE / "odd")
    for tokenizer in (whole.tokenizer, REFERENCE / "odd", str(REFERENCE / "odd")):
        other = GPT2.from_pretrained(tmp_path, tokenizer=tokenizer)
        assert other.trace("the hen").tokens == whole.trace("the hen").tokens
    with pytest.raises(TypeError, match="tokenizer must be"):
        GPT2.from_pretrained(tmp_path, tokenizer=5)

    model.save(tmp_path / "saved")
    check(GPT2.from_pretrained(tmp_path / "saved"), expected)
    with pytest.raises(ValueError, match=r"has no tokenizer, but .*odd contains one"):
        model.save(shutil.copytree(REFERENCE / "odd", tmp_path / "odd"))


@pytest.mark.parametrize("wrong", [5, "odd", b"", {"model": {}}, object(), lambda text: [1]])
def test_invalid_tokenizers(wrong: Any) -> None:
    with pytest.raises(TypeError, match="tokenizer must be a Tokenizer, or one of transformers"):
        GPT2.from_arrays(config_of("odd"), arrays_of("odd"), wrong)


# What scripts pass


IDS = [71, 259, 3]

# transformers' BatchEncoding is such a dict.
FORMS: dict[str, Any] = {
    "a batch of one": np.array([IDS]),
    "a list of one": [IDS],
    "a list of one array": [np.array(IDS)],
    "a tensor": Tensor(np.array(IDS)),
    "a tensor on a device": Tensor(np.array([IDS]), device="cuda:0"),
    "int32": np.array(IDS, np.int32),
    "an answer": UserDict(input_ids=IDS, attention_mask=[1, 1, 1]),
    "an answer for a batch": {"input_ids": [IDS], "attention_mask": [[1, 1, 1]]},
    "an answer of tensors": {
        "input_ids": Tensor(np.array([IDS])),
        "attention_mask": Tensor(np.ones((1, 3), int)),
    },
}


@pytest.mark.parametrize("form", FORMS)
def test_types_of_ids(odd: GPT2, form: str) -> None:
    trace = odd.trace(FORMS[form])
    assert trace.tokens.ids.tolist() == IDS
    np.testing.assert_array_equal(trace.final, odd.trace(IDS).final)
    generation = odd.generate(FORMS[form], 2, temperature=0)
    assert generation.tokens.ids.tolist()[:3] == IDS
    drawn = [token.id for token in odd.stream(FORMS[form], 2, temperature=0)]
    assert generation.new.ids.tolist() == drawn


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        (np.array([IDS, IDS]), r"a 1-D array of integers; got shape \(2, 3\)"),
        (np.array([[IDS]]), r"a 1-D array of integers; got shape \(1, 1, 3\)"),
        ({"ids": IDS}, r"must have input_ids; got the keys \['ids'\]"),
        ({"input_ids": [[0, *IDS]], "attention_mask": [[0, 1, 1, 1]]}, "excludes tokens"),
        ({"input_ids": IDS, "attention_mask": Tensor(np.array([1, 1, 0]))}, "excludes tokens"),
        (Tensor(np.array([0.5])), "must be integers; got float64"),
        (Tensor(np.array(IDS), device="meta"), "token ids isn.t an array"),
        *((nothing, "no tokens") for nothing in ("", [], [[]], {"input_ids": []})),
        ([5, -1], "-1 at position 1"),
        ([*range(18)], "1[89] tokens.*17 positions"),
        ("hen " * 10, "17 positions"),
        (None, "expected one text or token ids; got None"),
    ],
)
def test_invalid_ids_and_texts(odd: GPT2, argument: Any, message: str) -> None:
    for call in (odd.trace, lambda ids: odd.generate(ids, 1)):
        with pytest.raises(AttnlabError, match=message):
            call(argument)


def number(value: float) -> Tensor:
    return Tensor(np.array(value))


def test_zero_dimensional_arguments(odd: GPT2) -> None:
    settings = {"temperature": 0.5, "top_k": 5, "top_p": 0.9, "seed": 3}
    plain = odd.generate(IDS, 3, **settings)
    for wrap in (number, np.array, lambda value: np.array(value)[()]):
        wrapped = {name: wrap(value) for name, value in settings.items()}
        assert repr(odd.generate(IDS, wrap(3), **wrapped)) == repr(plain)
        trace = odd.trace(IDS)
        assert trace.head(wrap(1), wrap(2)).path == "blocks.1.attention.heads.2"
        assert trace.blocks[wrap(-1)].path == "blocks.2"
        assert trace.next_tokens(wrap(2)) == trace.next_tokens(2)
        assert str(trace.head(0, 0).explain(wrap(2), wrap(1))) == str(
            trace.head(0, 0).explain(2, 1)
        )
        for half in (wrap(0.5), wrap(True)):
            with pytest.raises(TypeError, match="number must be an integer"):
                trace.head(half, 0)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_dtypes(dtype: str) -> None:
    for argument in (dtype, np.dtype(dtype), getattr(np, dtype), Dtype(dtype)):
        model = GPT2.from_pretrained(REFERENCE / "odd", dtype=argument)
        assert model.parameters.dtype == dtype
    for wrong in (Dtype("bfloat16"), Dtype("float16"), Dtype("nothing")):
        with pytest.raises(ValueError, match=rf"float32 or float64; got {wrong}"):
            GPT2.from_pretrained(REFERENCE / "odd", dtype=wrong)  # type: ignore[arg-type]


def test_pytorch_tensors_as_matrices() -> None:
    rng = np.random.default_rng(0)
    X, W = rng.standard_normal((3, 4)), rng.standard_normal((4, 2))
    expected = self_attention(X, W, W, W)
    result = self_attention(
        *(Tensor(array, gradients=True, device="mps:0") for array in (X, W, W, W))
    )
    np.testing.assert_array_equal(result.context, expected.context)
    with pytest.raises(TypeError, match=r"W_Q isn't an array of numbers: .*meta"):
        self_attention(X, Tensor(W, device="meta"), W, W)


def test_results_are_not_arrays(odd: GPT2) -> None:
    trace = odd.trace(IDS)
    results = {trace: "logits", trace.blocks[0]: "mid", trace.blocks[0].mlp: "activated"}
    for result, name in (results | {trace.head(0, 0): "weights"}).items():
        with pytest.raises(TypeError, match=rf"{result.title} has several arrays; .*\b{name}\b"):
            np.asarray(result)
        with pytest.raises(AttnlabError):
            np.array([result, result])


def test_objects_of_other_kinds(odd: GPT2) -> None:
    for call, words in (
        (lambda: GPT2.from_hf(Contrary()), r"got an? .*Contrary"),
        (lambda: GPT2.from_arrays(odd.config, odd.parameters, Contrary()), r"got an? .*Contrary"),
        (lambda: GPT2.from_arrays(odd.config, {"wte.weight": Contrary()}), "an array: RuntimeE"),
        (lambda: odd.trace(Contrary()), "token ids"),
        (lambda: odd.generate(Contrary(), 1), "token ids"),
        (lambda: odd.generate("the", 1, temperature=Contrary()), "temperature must be a number"),
    ):
        with pytest.raises(AttnlabError, match=words):
            call()


def test_missing_attributes_suggest_where_to_look(odd: GPT2) -> None:
    trace = odd.trace([1, 2])
    with pytest.raises(AttributeError, match=r"its parts have blocks\.0\.attention\.weights$"):
        _ = trace.weights
    with pytest.raises(AttributeError, match=r"use attnlab\.GPT2\.from_pretrained$"):
        _ = attnlab.from_pretrained
    for owner in (attnlab, odd, trace):  # for Python's "Did you mean"
        with pytest.raises(AttributeError) as caught:
            _ = owner.missing_name
        assert (caught.value.name, caught.value.obj) == ("missing_name", owner)
