# %% [markdown]
# # Llama: a model of today in one recipe
#
# Llama, SmolLM and many other open models are GPT-2 with four equations changed:
#
# * **RMSNorm** (Zhang and Sennrich, 2019) for LayerNorm: no mean is subtracted, no bias added.
# * **Rotary positions** ([RoPE](../17_where_next.py)) for a position embedding, in pairs half a
#   head apart.
# * **Grouped queries** (Ainslie and others, 2023): some heads share their keys and values.
# * **SwiGLU** (Shazeer, 2020) for GELU: a hidden number is multiplied by its **gate**, also from X.
#
# This opens any checkpoint of transformers' `LlamaForCausalLM`, a directory named below or in the
# variable ATTNLAB_LLAMA. Without one, weights of a GPT-2 stand in, and the numbers mean nothing.
# [2019 and 2026, one sentence](../book/pages/en/2019_and_2026.md) says what SmolLM2 computes.

# %%
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

import attnlab
from attnlab import equations
from attnlab.checkpoints.checkpoint import read_header, weight_files
from attnlab.equations import Array, Ids, gelu, mean, silu, split_heads
from attnlab.support.console import prepare_script
from attnlab.text.tokenizer import Tokenizer

Parameters = dict[str, Any]  # arrays by path, as in a trace, and the checkpoint's config
prepare_script()  # print on any terminal, and into pipes

TEXT, KEY = "The dog chased the ball, but it", 1  # KEY is the position of dog
DIRECTORY = os.environ.get("ATTNLAB_LLAMA", "")  # of a checkpoint


# %%
def rms_norm(x: Array, gain: Array, epsilon: float) -> Array:
    return x / np.sqrt(mean(np.square(x)) + epsilon) * gain  # (T, D)


def rotated(x: Array, theta: float) -> Array:
    T, half = x.shape[-2], x.shape[-1] // 2
    angles = np.arange(T)[:, None] * theta ** (-np.arange(half) / half)  # (T, Dh / 2)
    cos, sin = np.cos(angles).astype(x.dtype), np.sin(angles).astype(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)  # (H, T, Dh)


def grouped(x: Array, n_head: int) -> Array:
    return x.repeat(n_head // len(x), axis=0)  # (groups, T, Dh) -> (H, T, Dh)


def swiglu(X: Array, W_gate: Array, W_up: Array, W_down: Array) -> Array:
    return (silu(X @ W_gate) * (X @ W_up)) @ W_down  # (T, D) -> (T, F) -> (T, D)


# %% [markdown]
# ## The forward pass
#
# The order is that of [`equations.gpt2`](../../attnlab/equations.py). If `silenced` names a layer
# and head, that head's context is 0.


# %%
def attend(X: Array, p: Parameters, n: int, rotate: Any = rotated, group: Any = grouped) -> Any:
    name, theta = f"blocks.{n}.attention", p["config"]["rope_theta"]
    n_head, groups = p["config"]["num_attention_heads"], p["config"]["num_key_value_heads"]
    q = rotate(split_heads(X @ p[f"{name}.W_Q"], n_head), theta)  # (H, T, Dh)
    k = rotate(split_heads(X @ p[f"{name}.W_K"], groups), theta)  # (groups, T, Dh)
    v = split_heads(X @ p[f"{name}.W_V"], groups)
    return attnlab.attention(q, group(k, n_head), group(v, n_head), attnlab.causal_mask(len(X)))


def llama(ids: Ids, parameters: Parameters, seen: Any = None, silenced: Any = None) -> Array:
    p, epsilon = parameters, parameters["config"]["rms_norm_eps"]
    stream = equations.token_embedding(ids, p["W_E"])  # (T, D); no position is added
    for n in range(p["config"]["num_hidden_layers"]):
        block, mlp = f"blocks.{n}", f"blocks.{n}.mlp"
        attention = attend(rms_norm(stream, p[f"{block}.attention.gain"], epsilon), p, n)
        kept = [[[(n, head) != silenced]] for head in range(len(attention.weights))]
        heads = equations.concat(attention.context * np.array(kept))  # (T, H·Dh)
        mid = equations.residual(stream, heads @ p[f"{block}.attention.W_O"])
        if seen is not None:
            seen |= {f"{block}.input": stream, f"{block}.attention": attention, f"{block}.mid": mid}
        X = rms_norm(mid, p[f"{mlp}.gain"], epsilon)
        update = swiglu(X, p[f"{mlp}.W_gate"], p[f"{mlp}.W_up"], p[f"{mlp}.W_down"])
        stream = equations.residual(mid, update)
    return equations.logits(rms_norm(stream, p["gain"], epsilon), p["W_U"])  # (T, vocab)


# %%
NAMES = {
    "embed_tokens": "W_E",
    "input_layernorm": "attention.gain",
    "q_proj": "attention.W_Q",
    "k_proj": "attention.W_K",
    "v_proj": "attention.W_V",
    "o_proj": "attention.W_O",
    "post_attention_layernorm": "mlp.gain",
    "gate_proj": "mlp.W_gate",
    "up_proj": "mlp.W_up",
    "down_proj": "mlp.W_down",
    "norm": "gain",
    "lm_head": "W_U",
}


# %%
def load(directory: str | Path) -> Parameters:
    config = json.loads((Path(directory) / "config.json").read_text(encoding="utf-8"))
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    config = {"rope_theta": 10_000.0, "rope_type": rope.get("type", "default")} | config | rope
    computed = {"model_type": "llama", "hidden_act": "silu", "rope_type": "default"}
    if not computed.items() <= config.items():
        raise ValueError(f"{directory} isn't a Llama with {computed}")
    p: Parameters = {"config": config}
    for file in weight_files(Path(directory)):
        for name, entry in read_header(file).items():
            *parents, part, _ = name.split(".")  # such as model.layers.3.mlp.up_proj.weight
            if part not in NAMES or not name.endswith(".weight"):
                raise ValueError(f"{name} in {file} isn't part of a Llama without biases")
            x = entry.read()
            if entry.dtype == "BF16":
                x = (x.astype("<u4") << 16).view("<f4")  # bfloat16 is the upper half of a float32
            block = f"blocks.{parents[2]}." if ".layers." in name else ""
            p[block + NAMES[part]] = x.astype(np.promote_types(x.dtype, np.float32))
    transposed = {path: x.T for path, x in p.items() if path != "config" and path != "W_E"}
    return {"W_U": p["W_E"].T, **p, **transposed}


# %%
def stand_in(gpt2: attnlab.GPT2) -> Parameters:
    config = {"num_hidden_layers": gpt2.config.n_layer, "rms_norm_eps": 1e-5, "rope_theta": 1e4}
    config |= dict.fromkeys(("num_attention_heads", "num_key_value_heads"), gpt2.config.n_head)
    p = {**gpt2.parameters, "config": config, "W_U": gpt2.parameters["W_E"].T}
    for mlp in (f"blocks.{n}.mlp" for n in range(gpt2.config.n_layer)):
        p[f"{mlp}.W_gate"] = p[f"{mlp}.W_up"] = p[f"{mlp}.W_1"]
        p[f"{mlp}.W_down"] = p[f"{mlp}.W_2"]
    return p


gpt2 = attnlab.GPT2.from_pretrained("english")
p = load(DIRECTORY) if DIRECTORY else stand_in(gpt2)
tokenizer = Tokenizer.from_directory(DIRECTORY) if DIRECTORY else gpt2.tokenizer

# %% [markdown]
# ## One head, and all of them
#
# The first part is about the head above layer 0 in which the last token gives KEY the most. The
# page then draws all heads, with the next words, and what follows without each head.

# %%
tokens, seen = tokenizer.tokens(TEXT), Parameters()
share = attnlab.softmax(llama(tokens.ids, p, seen)[-1])  # of each next token
attentions = [value for path, value in seen.items() if path.endswith(".attention")]
to_key = np.stack([attention.weights[:, -1, KEY] for attention in attentions])
layer, head = (int(n) for n in np.argwhere(to_key == to_key[1:].max())[-1])
for name in ("Q", "K", "scores", "weights", "context"):
    array = getattr(attentions[layer], name)[head]
    columns = tokens.symbols if name in ("scores", "weights") else range(6)
    print(f"\nhead {layer}.{head}, {name}, {array.shape}")
    print(attnlab.table(array[:, : len(columns)], rows=tokens.symbols, columns=columns, decimals=2))

# %%
without = {}
for place in np.ndindex(to_key.shape):  # each layer and head
    without[place] = attnlab.softmax(llama(tokens.ids, p, silenced=place)[-1])
likely = np.unique([np.argsort(-each)[:4] for each in (share, *without.values())])
texts = [tokenizer.decode([n]) for n in likely]
page = attnlab.words(
    [attention.weights for attention in attentions],
    tokens.symbols,
    next_words=dict(zip(texts, share[likely], strict=True)),
    effects={at: dict(zip(texts, each[likely], strict=True)) for at, each in without.items()},
)
if DIRECTORY:
    page.save("llama.html")
page

# %% [markdown]
# ## The head's last row, with one equation of GPT-2's
#
# GPT-2 has no groups, so instead the head gets another group's keys. SwiGLU is replaced in the MLP
# of the layer before.

# %%
gain, epsilon = p[f"blocks.{layer}.attention.gain"], p["config"]["rms_norm_eps"]
stream, mid = seen[f"blocks.{layer}.input"], seen[f"blocks.{layer - 1}.mid"]
X, mlp = rms_norm(stream, gain, epsilon), f"blocks.{layer - 1}.mlp"
hidden = gelu(rms_norm(mid, p[f"{mlp}.gain"], epsilon) @ p[f"{mlp}.W_up"])
X_ungated = rms_norm(mid + hidden @ p[f"{mlp}.W_down"], gain, epsilon)
changed = {
    "as it is": attend(X, p, layer),
    "mean subtracted": attend(rms_norm(stream - mean(stream), gain, epsilon), p, layer),
    "not rotated": attend(X, p, layer, rotate=lambda x, theta: x),
    "another group": attend(X, p, layer, group=lambda x, n: grouped(np.roll(x, 1, axis=0), n)),
    "GELU, no gate": attend(X_ungated, p, layer),
}
last_rows = [attention.weights[head, -1] for attention in changed.values()]
print(attnlab.table(last_rows, rows=[*changed], columns=tokens.symbols, decimals=2))
