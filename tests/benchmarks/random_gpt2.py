"""A GPT-2 with random weights and all the files of a real one.

    python tests/benchmarks/random_gpt2.py DIRECTORY [--small]

Its predictions are noise, but it costs as much to read, load and run as a real one. The vocabulary
is GPT-2's if ATTNLAB_GPT2_VOCAB points to a directory with vocab.json and merges.txt; else it is
made up: the 256 bytes, 50,000 pairs of them, and <|endoftext|>.
"""

import argparse
import itertools
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from attnlab.checkpoints.checkpoint import tensor_name
from attnlab.forward.config import GPT2Config
from attnlab.forward.parameters import parameter_shapes
from attnlab.text.tokens import END_OF_TEXT, byte_symbols

SEED = 1024
MERGES = 50_000

GPT2_SMALL: dict[str, Any] = {
    "activation_function": "gelu_new",
    "architectures": ["GPT2LMHeadModel"],
    "attn_pdrop": 0.1,
    "bos_token_id": 50256,
    "embd_pdrop": 0.1,
    "eos_token_id": 50256,
    "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-5,
    "model_type": "gpt2",
    "n_ctx": 1024,
    "n_embd": 768,
    "n_head": 12,
    "n_layer": 12,
    "n_positions": 1024,
    "resid_pdrop": 0.1,
    "vocab_size": 50257,
}
VERY_SMALL = GPT2_SMALL | {"n_embd": 128, "n_head": 4, "n_layer": 2}


def write_weights(directory: Path) -> None:
    """model.safetensors, float32, for the directory's config.json: as if training just began."""
    rng = np.random.default_rng(SEED)
    tensors = {}
    config = GPT2Config.from_file(directory / "config.json")
    for path, shape in parameter_shapes(config).items():
        name = tensor_name(path)
        tensors[name] = 0.02 * rng.standard_normal(shape, dtype=np.float32)
        if "ln_" in name and name.endswith(".weight"):
            tensors[name] += 1
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})


def write_vocabulary(directory: Path) -> None:
    """Write vocab.json and merges.txt: GPT-2's if available, otherwise made up."""
    if source := os.environ.get("ATTNLAB_GPT2_VOCAB"):
        for name in ("vocab.json", "merges.txt"):
            shutil.copyfile(Path(source) / name, directory / name)
        return
    symbols = byte_symbols()
    pairs = list(itertools.islice(itertools.product(symbols, symbols), MERGES))
    tokens = [*symbols, *(first + second for first, second in pairs), END_OF_TEXT]
    vocabulary = json.dumps({token: id for id, token in enumerate(tokens)}, ensure_ascii=False)
    merges = "".join(f"{first} {second}\n" for first, second in pairs)
    (directory / "vocab.json").write_text(vocabulary, encoding="utf-8")
    (directory / "merges.txt").write_text(f"#version: 0.2\n{merges}", encoding="utf-8")


def write_model(directory: Path, config: dict[str, Any]) -> None:
    """Write all four files."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    write_weights(directory)
    write_vocabulary(directory)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Write a GPT-2 of random weights.")
    parser.add_argument("directory", type=Path, help="where to write it")
    parser.add_argument("--small", action="store_true", help="2 layers of width 128")
    arguments = parser.parse_args()
    write_model(arguments.directory, VERY_SMALL if arguments.small else GPT2_SMALL)


if __name__ == "__main__":
    main()
