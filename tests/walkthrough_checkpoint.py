"""A checkpoint of GPT-2 small's shape that yields the figures of the published walkthrough.

This is NOT GPT-2: its weights are random, and its predictions are noise. But the walkthrough's
prompt gives every published figure in layer 0, head 0 (the similarity matrix apart), with the
arrays in `reference/walkthrough.npz`; its README says how they were found. A test without the real
weights can so run the whole path on it, files to tables.

    python tests/walkthrough_checkpoint.py DIRECTORY VOCABULARY

VOCABULARY is a directory with GPT-2's vocab.json and merges.txt.
"""

import math
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from attnlab import GPT2Config, figures, layer_norm
from attnlab.checkpoints.checkpoint import tensor_name
from attnlab.forward.parameters import parameter_count, stored_shapes

Tensors = dict[str, NDArray[Any]]

ROWS = "W_rows_published"
SOLVED = Path(__file__).parent / "reference" / "walkthrough.npz"

CONFIG = GPT2Config(vocab_size=50257, n_positions=1024, n_embd=768, n_layer=12, n_head=12)


def random_tensors() -> Tensors:
    """Every parameter at random: LayerNorm gains near 1, all else near 0.

    Repeats of a prime number of draws: no two rows or matrices are equal, and it takes no time.
    """
    rng = np.random.default_rng(768)
    drawn = np.resize(rng.standard_normal(5_000_011, dtype=np.float32), parameter_count(CONFIG))
    tensors: Tensors = {}
    for path, shape in stored_shapes(CONFIG).items():
        name = tensor_name(path)  # as openai-community/gpt2 has it
        tensor, drawn = drawn[: math.prod(shape)].reshape(shape), drawn[math.prod(shape) :]
        # All tokens have GPT-2's deviation; with a smaller one, they would have small logits.
        tensor *= 0.14 if name == "wte.weight" else 0.02
        if "ln_" in name and name.endswith(".weight"):
            tensor += 1.0
        tensors[name] = tensor
    return tensors


def projection(
    X: NDArray[Any], products: NDArray[Any], published: NDArray[Any], rows: list[int]
) -> NDArray[Any]:
    """A random W with these numbers at the beginning of some rows, and X W = products."""
    W = published.std() * np.random.default_rng(0).standard_normal((CONFIG.n_embd, CONFIG.d_head))
    W[rows, :3] = published
    free = np.delete(np.arange(CONFIG.n_embd), rows)
    W[free] += np.linalg.lstsq(X[:, free], products - X @ W, rcond=None)[0]
    return W


def write_checkpoint(directory: Path, vocabulary: Path) -> None:
    """Write config.json, model.safetensors, vocab.json and merges.txt into `directory`."""
    tensors, solved = random_tensors(), np.load(SOLVED)
    ids = solved["ids"]
    tensors["wte.weight"][ids] = solved["wte"]
    tensors["wpe.weight"][: len(ids)] = solved["wpe"]
    tensors["h.0.ln_1.weight"], tensors["h.0.ln_1.bias"] = solved["gain"], solved["bias"]
    stream = tensors["wte.weight"][ids] + tensors["wpe.weight"][: len(ids)]
    X = layer_norm(stream.astype(float), solved["gain"], solved["bias"])
    for part, name in enumerate("QKV"):  # c_attn's columns: each head by head
        start, published = part * CONFIG.n_embd, figures.load("walkthrough")
        W = projection(X, solved[name], np.array(published[f"W_{name}"]), published[ROWS])
        tensors["h.0.attn.c_attn.weight"][:, start : start + CONFIG.d_head] = W
    # GPT-2's files hold mask buffers that no reader needs. This one forbids every token: whoever
    # applies it can't get the figures.
    tensors["h.0.attn.bias"] = np.zeros((1, 1, 16, 16), dtype=np.float32)

    directory.mkdir(parents=True, exist_ok=True)
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    CONFIG.save(directory)
    for name in ("vocab.json", "merges.txt"):
        shutil.copyfile(vocabulary / name, directory / name)


if __name__ == "__main__":
    write_checkpoint(*map(Path, sys.argv[1:]))
