"""Make the reference values of the tests from PyTorch and Hugging Face transformers.

The tests read what this script leaves beside itself and need neither library.  It writes

* one directory for each tiny random GPT-2 in ``MODELS`` and ``RELATIVES``: a complete model in the
  format of the published ones, and ``expected.npz``, every intermediate of every layer in float64;
* ``ops.npz``, inputs and outputs of single operations in float64;
* ``activations.npz``, one input and what each activation makes of it, in float64;
* ``sizes.json``, the shapes and the parameter counts of the published GPT-2s.

Run it with ``python make_models.py``; README.md says which versions were used.  All randomness
is seeded, so with the same versions a second run on one machine writes the same bytes.
``python make_models.py --check`` writes nothing: it holds the recorded values against what the
installed version of transformers computes from the models as they are.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from hooked import HERE, assert_close, load_model, steps_of
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import GPT2Config, GPT2LMHeadModel, GPT2Tokenizer
from transformers.activations import ACT2FN

N_TOKENS = 11
N_POSITIONS = 17

MERGES = ["t h", "Ġ a", "h e", "i n", "th e", "Ġ th"]
END_OF_TEXT = "<|endoftext|>"

PUBLISHED_SIZES = {  # name: (n_layer, n_head, n_embd, parameters)
    "gpt2": (12, 12, 768, 124_439_808),
    "gpt2-medium": (24, 16, 1024, 354_823_168),
    "gpt2-large": (36, 20, 1280, 774_030_080),
    "gpt2-xl": (48, 25, 1600, 1_557_611_200),
    "distilgpt2": (6, 12, 768, 81_912_576),
}


# --------------------------------------------------------------------------- the vocabulary


def byte_symbols() -> list[str]:
    """Return the symbol of each byte token, in the order of GPT-2's token ids.

    Printable bytes stand for themselves and come first; each of the others is written as the
    next unused character from U+0100 on.
    """
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = sorted(set(range(256)) - set(printable))
    return [chr(byte) for byte in printable] + [chr(256 + n) for n in range(len(others))]


def make_vocabulary() -> dict[str, int]:
    """Return the ids of the tokens: the bytes, the merges in order, the end of text."""
    tokens = [*byte_symbols(), *(merge.replace(" ", "") for merge in MERGES), END_OF_TEXT]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    assert len(vocabulary) == len(tokens), "a token occurs twice"
    return vocabulary


def save_vocabulary(directory: Path) -> None:
    """Write vocab.json and merges.txt, and check that transformers reads them as meant."""
    vocabulary = make_vocabulary()
    (directory / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    lines = ["#version: 0.2", *MERGES]
    (directory / "merges.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")

    tokenizer = GPT2Tokenizer.from_pretrained(directory, local_files_only=True)
    assert tokenizer.get_vocab() == vocabulary
    assert tokenizer.tokenize("the hen in a thin inn") == (
        ["the", "Ġ", "he", "n", "Ġ", "in", "Ġa", "Ġth", "in", "Ġ", "in", "n"]
    )
    text = "the naïve cat\n\tin \x00 “☃” " + END_OF_TEXT
    assert tokenizer.decode(tokenizer.encode(text)) == text


# ------------------------------------------------------------------------------- the models


def save_modern(model: GPT2LMHeadModel, directory: Path) -> None:
    """Save one file, as transformers does it today."""
    model.save_pretrained(directory)


def save_sharded(model: GPT2LMHeadModel, directory: Path) -> None:
    """Save several files with an index."""
    model.save_pretrained(directory, max_shard_size="28KB")
    assert len(list(directory.glob("model-*.safetensors"))) >= 3


def save_old(model: GPT2LMHeadModel, directory: Path) -> None:
    """Save one file as old versions did: no prefix, mask buffers, a second copy of wte.

    The mask was stored as floats or as uint8, depending on the version; layers alternate here.
    """
    model.config.save_pretrained(directory)
    tensors = dict(model.transformer.state_dict())
    tensors["lm_head.weight"] = tensors["wte.weight"].clone()
    mask = torch.ones(1, 1, N_POSITIONS, N_POSITIONS).tril()
    for layer in range(model.config.n_layer):
        mask_dtype = torch.uint8 if layer % 2 else torch.float32
        tensors[f"h.{layer}.attn.bias"] = mask.to(mask_dtype, copy=True)
        tensors[f"h.{layer}.attn.masked_bias"] = torch.tensor(-1e4)
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})


@dataclass(frozen=True)
class Spec:
    """How to make one model."""

    name: str
    n_layer: int
    n_head: int
    n_embd: int
    seed: int
    n_inner: int | None = None
    dtype: torch.dtype = torch.float32
    epsilon: float = 1e-5
    embedding_std: float = 0.5
    save: Callable[[GPT2LMHeadModel, Path], None] = save_modern
    n_tokens: int = N_TOKENS
    settings: dict[str, Any] = field(default_factory=dict)

    def config(self) -> GPT2Config:
        """Return the configuration in transformers' terms."""
        return GPT2Config(
            vocab_size=len(make_vocabulary()),
            n_positions=N_POSITIONS,
            n_embd=self.n_embd,
            n_layer=self.n_layer,
            n_head=self.n_head,
            n_inner=self.n_inner,
            layer_norm_epsilon=self.epsilon,
            bos_token_id=make_vocabulary()[END_OF_TEXT],
            eos_token_id=make_vocabulary()[END_OF_TEXT],
            **self.settings,
        )


MODELS = [
    Spec("odd", n_layer=3, n_head=5, n_embd=35, seed=1),
    # Small embeddings, so that the large epsilon matters in the first LayerNorm.
    Spec(
        "one_head", n_layer=2, n_head=1, n_embd=13, n_inner=29, seed=2,
        epsilon=1e-3, embedding_std=0.1, save=save_old,
    ),
    Spec("float16", n_layer=2, n_head=3, n_embd=21, n_inner=31, seed=3, dtype=torch.float16),
    Spec("bfloat16", n_layer=2, n_head=2, n_embd=22, n_inner=37, seed=4, dtype=torch.bfloat16),
    Spec("float64", n_layer=2, n_head=3, n_embd=33, n_inner=23, seed=5, dtype=torch.float64),
    Spec("sharded", n_layer=3, n_head=2, n_embd=26, n_inner=19, seed=6, save=save_sharded),
]  # fmt: skip

# Variants of GPT-2, all of one small shape.
RELATIVE = {"n_layer": 2, "n_head": 2, "n_embd": 6, "n_inner": 11, "n_tokens": 7}
BY_LAYER = {"scale_attn_by_inverse_layer_idx": True}

RELATIVES = [
    Spec("gelu", **RELATIVE, seed=7, settings={"activation_function": "gelu"}),
    Spec(
        "relu", **RELATIVE, seed=8,
        settings={"activation_function": "relu", "scale_attn_weights": False},
    ),
    Spec(
        "silu", **RELATIVE, seed=12,
        settings={"activation_function": "silu", "tie_word_embeddings": False},
    ),
    Spec(
        "quick_gelu", **RELATIVE, seed=20,
        settings={"activation_function": "quick_gelu", **BY_LAYER},
    ),
    Spec(
        "gelu_fast", **RELATIVE, seed=10,
        settings={"activation_function": "gelu_fast", "scale_attn_weights": False, **BY_LAYER},
    ),
    Spec(
        "reordered", **RELATIVE, seed=23,
        settings={"reorder_and_upcast_attn": True, **BY_LAYER},
    ),
]  # fmt: skip


def draw_parameter(name: str, shape: torch.Size, spec: Spec, generator: torch.Generator) -> Tensor:
    """Draw a parameter so that attention is far from uniform and no activation is tiny."""
    noise = torch.randn(shape, generator=generator, dtype=torch.float64)
    if name.endswith(".bias"):
        return 0.2 * noise
    if ".ln_" in name:
        return 1 + 0.3 * noise
    if name.endswith(("wte.weight", "wpe.weight", "lm_head.weight")):
        return spec.embedding_std * noise
    gain = 1.6 if "c_attn" in name else 1.0
    return gain / math.sqrt(shape[0]) * noise  # GPT-2 stores its matrices as (in, out)


def make_model(spec: Spec) -> GPT2LMHeadModel:
    """Return a random model of the dtype wanted, drawn in float64 and rounded once."""
    model = GPT2LMHeadModel(spec.config()).to(spec.dtype)
    generator = torch.Generator().manual_seed(spec.seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(draw_parameter(name, parameter.shape, spec, generator))
    return model


def save_model(spec: Spec) -> Path:
    """Write the model's directory anew and return it."""
    directory = HERE / spec.name
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    spec.save(make_model(spec), directory)
    (directory / "generation_config.json").unlink(missing_ok=True)
    save_vocabulary(directory)
    for file in directory.iterdir():
        file.chmod(0o644)  # safetensors writes files that only their owner can read
    return directory


def draw_ids(spec: Spec) -> Tensor:
    """Draw token ids, one of them twice."""
    generator = torch.Generator().manual_seed(1000 + spec.seed)
    ids = torch.randint(len(make_vocabulary()), (spec.n_tokens,), generator=generator)
    ids[-2] = ids[2]
    return ids


# ---------------------------------------------------------------------------- their contents


@torch.no_grad()
def record_model(model: GPT2LMHeadModel, ids: Tensor) -> dict[str, Tensor]:
    """Return every intermediate of a pass by its key.

    transformers exposes neither the heads by themselves nor any scores, so the hooks' own attention
    is used; its weights and the logits must be those of transformers.
    """
    steps = steps_of(model, ids)
    result = model(ids[None], output_attentions=True, use_cache=False)
    assert_close(steps["logits"], result.logits[0])
    for layer, weights in enumerate(result.attentions):
        assert_close(steps[f"blocks.{layer}.attention.weights"], weights[0])
    unrecorded = re.compile(r".*\.(heads\..*|residual|QKV)")
    return {"ids": ids} | {key: x for key, x in steps.items() if not unrecorded.fullmatch(key)}


def save_arrays(file: Path, tensors: dict[str, Tensor]) -> None:
    """Write tensors, sorted by key, as NumPy arrays."""
    arrays = {key: np.ascontiguousarray(tensors[key].numpy()) for key in sorted(tensors)}
    np.savez_compressed(file, **arrays)


def check_reference(spec: Spec) -> None:
    """Check that the installed transformers computes what was recorded, from the saved model."""
    directory = HERE / spec.name
    record = record_model(load_model(directory), draw_ids(spec))
    with np.load(directory / "expected.npz") as recorded:
        assert set(recorded) == set(record)
        for key in recorded:
            assert_close(record[key], torch.from_numpy(recorded[key]))


def make_reference(spec: Spec) -> None:
    """Make one model's directory."""
    directory = save_model(spec)
    save_arrays(directory / "expected.npz", record_model(load_model(directory), draw_ids(spec)))


# ------------------------------------------------------------------------ single operations


def softmax_values(generator: torch.Generator) -> dict[str, Tensor]:
    """Softmax of ordinary rows, of very large values and of rows with -inf."""
    x = 3 * torch.randn(2, 3, 5, 7, generator=generator, dtype=torch.float64)
    x[0, 0, 0] += 1e4
    x[0, 0, 1] -= 1e4
    x[0, 1, 0, 2], x[0, 1, 0, 4] = 1e4, -1e4
    x[0, 1, 1] = 1e4
    x[0, 2, 0, 3:] = -math.inf
    x[0, 2, 1, ::2] = -math.inf
    x[1, 0, 0, 1:] = -math.inf
    x[1, 0, 1, :3] = -math.inf
    x[1, 0, 1, 3:] -= 1e4
    return {"softmax_in": x, "softmax_out": F.softmax(x, dim=-1)}


def layer_norm_values(generator: torch.Generator) -> dict[str, Tensor]:
    """LayerNorm of rows from tiny to huge, one with a large mean and one constant."""
    x = torch.randn(3, 5, 11, generator=generator, dtype=torch.float64)
    scales = torch.logspace(-7, 7, 15, dtype=torch.float64).reshape(3, 5, 1)
    x = scales * (x + 2)
    x[0, 0] = 3.75
    x[1, 2] += 1e4
    gain = 1 + 0.3 * torch.randn(11, generator=generator, dtype=torch.float64)
    bias = 0.2 * torch.randn(11, generator=generator, dtype=torch.float64)
    return {
        "layer_norm_in": x,
        "layer_norm_gain": gain,
        "layer_norm_bias": bias,
        "layer_norm_out": F.layer_norm(x, (11,), gain, bias, eps=1e-5),
    }


def gelu_values() -> dict[str, Tensor]:
    """GELU in its tanh form, from where it is 0 to where it is the identity."""
    x = torch.linspace(-12, 12, 101, dtype=torch.float64)
    return {"gelu_in": x, "gelu_out": F.gelu(x, approximate="tanh")}


def linear_values(generator: torch.Generator) -> dict[str, Tensor]:
    """An affine map x @ W + b with W of shape (in, out)."""
    x = torch.randn(2, 3, 5, 7, generator=generator, dtype=torch.float64)
    weight = torch.randn(7, 13, generator=generator, dtype=torch.float64)
    bias = torch.randn(13, generator=generator, dtype=torch.float64)
    output = F.linear(x, weight.T, bias)
    return {"linear_in": x, "linear_W": weight, "linear_b": bias, "linear_out": output}


def sdpa_values(generator: torch.Generator) -> dict[str, Tensor]:
    """Scaled dot-product attention of 5 queries on 11 keys; the mask is True where allowed."""
    queries = 2 * torch.randn(2, 3, 5, 7, generator=generator, dtype=torch.float64)
    keys = torch.randn(2, 3, 11, 7, generator=generator, dtype=torch.float64)
    values = torch.randn(2, 3, 11, 13, generator=generator, dtype=torch.float64)
    mask = torch.rand(5, 11, generator=generator) < 0.5
    mask[torch.arange(5), torch.randint(11, (5,), generator=generator)] = True
    output = F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask)
    return {
        "sdpa_Q": queries,
        "sdpa_K": keys,
        "sdpa_V": values,
        "sdpa_mask": mask,
        "sdpa_out": output,
    }


def split_parameters(module: nn.MultiheadAttention) -> dict[str, Tensor]:
    """Return the parameters as W_Q, b_Q and so on, such that Q = X @ W_Q + b_Q."""
    weights = [*module.in_proj_weight.chunk(3), module.out_proj.weight]
    biases = [*module.in_proj_bias.chunk(3), module.out_proj.bias]
    parameters: dict[str, Tensor] = {}
    for part, weight, bias in zip("QKVO", weights, biases, strict=True):
        parameters |= {f"W_{part}": weight.T, f"b_{part}": bias}
    return parameters


def multi_head_values(generator: torch.Generator) -> dict[str, Tensor]:
    """nn.MultiheadAttention: causal self-attention, and cross-attention without a mask."""
    width, n_head = 12, 3
    module = nn.MultiheadAttention(width, n_head, batch_first=True, dtype=torch.float64).eval()
    for parameter in module.parameters():
        std = 0.2 if parameter.ndim == 1 else 1.6 / math.sqrt(width)
        noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        parameter.copy_(std * noise)
    parameters = split_parameters(module)

    x = torch.randn(2, 5, width, generator=generator, dtype=torch.float64)
    causal = torch.ones(5, 5, dtype=torch.bool).tril()
    out, weights = module(x, x, x, attn_mask=~causal, average_attn_weights=False)

    cross_x = torch.randn(2, 5, width, generator=generator, dtype=torch.float64)
    memory = torch.randn(2, 7, width, generator=generator, dtype=torch.float64)
    cross_out, cross_weights = module(cross_x, memory, memory, average_attn_weights=False)

    return {f"mha_{key}": value for key, value in parameters.items()} | {
        "mha_X": x,
        "mha_weights": weights,
        "mha_out": out,
        "cross_X": cross_x,
        "cross_memory": memory,
        "cross_weights": cross_weights,
        "cross_out": cross_out,
    }


@torch.no_grad()
def make_ops() -> None:
    """Write ops.npz."""
    generator = torch.Generator().manual_seed(7)
    values = (
        softmax_values(generator)
        | layer_norm_values(generator)
        | gelu_values()
        | linear_values(generator)
        | sdpa_values(generator)
        | multi_head_values(generator)
    )
    assert all(value.isfinite().all() for key, value in values.items() if key != "softmax_in")
    save_arrays(HERE / "ops.npz", {key: value.detach() for key, value in values.items()})


# The activation functions, by transformers' names.
ACTIVATIONS = (
    *("gelu", "gelu_python", "gelu_new", "gelu_accurate", "gelu_pytorch_tanh", "gelu_python_tanh"),
    *("gelu_fast", "quick_gelu", "relu", "silu", "swish"),
)


def activation_values() -> dict[str, Tensor]:
    """Each activation function's values, from where it is 0 to where it is the identity."""
    x = torch.cat([torch.linspace(-12, 12, 97), torch.tensor([-1e4, -40.0, 1e-9, 40.0, 1e4])])
    return {"in": x.double(), **{name: ACT2FN[name](x.double()) for name in ACTIVATIONS}}


def check_activations() -> None:
    """Check that the installed transformers computes what was recorded."""
    with np.load(HERE / "activations.npz") as recorded:
        for name, values in activation_values().items():
            assert_close(values, torch.from_numpy(recorded[name]))


# ------------------------------------------------------------------------ published sizes


def count_parameters(config: GPT2Config) -> int:
    """Count the parameters of a language model, tied ones once, without allocating any."""
    with torch.device("meta"):
        model = GPT2LMHeadModel(config)
    return sum(parameter.numel() for parameter in model.parameters())


def make_sizes() -> None:
    """Write sizes.json."""
    sizes = {}
    for name, (n_layer, n_head, n_embd, expected) in PUBLISHED_SIZES.items():
        config = GPT2Config(n_layer=n_layer, n_head=n_head, n_embd=n_embd)
        parameters = count_parameters(config)
        assert parameters == expected, (name, parameters)
        sizes[name] = {
            "vocab_size": config.vocab_size,
            "n_positions": config.n_positions,
            "n_layer": n_layer,
            "n_head": n_head,
            "n_embd": n_embd,
            "parameters": parameters,
        }
    (HERE / "sizes.json").write_text(json.dumps(sizes, indent=2) + "\n", encoding="utf-8")


def main() -> None:
    """Write all files."""
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)  # the order of summation must not depend on the machine
    print(
        f"torch {torch.__version__}, transformers {transformers.__version__},"
        f" numpy {np.__version__}"
    )
    if sys.argv[1:] == ["--check"]:
        for spec in (*MODELS, *RELATIVES):
            if spec.save is save_old and transformers.__version__ < "5":
                print(f"{spec.name} can't be loaded by it")
                continue
            check_reference(spec)
        check_activations()
        return
    for spec in (*MODELS, *RELATIVES):
        make_reference(spec)
    save_arrays(HERE / "activations.npz", activation_values())
    make_ops()
    make_sizes()


if __name__ == "__main__":
    main()
