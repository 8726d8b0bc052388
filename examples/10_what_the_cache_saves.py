# %% [markdown]
# # 10. What the cache saves
#
# A GPT-2 writes one token at a time. To find the next one it needs the keys and values of all
# tokens before it, in every layer. Those of the earlier tokens were computed in the steps before.
# This lesson shows why they can be kept, and counts and measures what that saves.

# %%
import time

import numpy as np

import attnlab
from attnlab.console import prepare_script

prepare_script()  # for any terminal, and for pipes

model = attnlab.GPT2.at_hand()
print(model)

# %% [markdown]
# ## 10.1 Earlier keys and values never change
#
# The mask lets a token look only back. So nothing that belongs to a token, in any layer, depends on
# what comes after it. Here is a sentence, and the same one with two more words. In every layer the
# keys and values of the tokens that both have are the same.

# %%
short = model.trace("It’s very hot in summer.")
long = model.trace("It’s very hot in summer. Swimming is")
T = len(short.tokens)

print(f"\n10.1 Keys and values of the {T} tokens that both texts begin with, largest difference")
for layer in sorted({0, model.config.n_layer // 2, model.config.n_layer - 1}):
    a, b = short.blocks[layer].attention, long.blocks[layer].attention
    K_difference = np.abs(a.K - b.K[:, :T]).max()
    V_difference = np.abs(a.V - b.V[:, :T]).max()
    print(f"  layer {layer:2}   K {K_difference:.1e}   V {V_difference:.1e}")
    assert max(K_difference, V_difference) < 1e-4

# %% [markdown]
# They differ by float32's rounding at most. Without the mask that would not hold: then every token
# of layer 1 would have looked at the new words, and all its keys would be others.
#
# Queries of earlier tokens are not even needed again: only the newest token asks.

# %% [markdown]
# ## 10.2 Step by step
#
# `generate(..., trace=True)` keeps each step. The first one runs the prompt. Each later one runs a
# single token: one row of queries against all keys, most of which it finds in the cache.

# %%
generated = model.generate("It’s very hot in summer.", 4, temperature=0, trace=True)
print(f"\n10.2 {generated}")
lines = [("step", "computed", "found", "Q of layer 0", "K of layer 0", "chose")]
for number, step in enumerate(generated.steps):
    attention = step.trace.blocks[0].attention
    lines.append(
        (
            str(number),
            str(step.computed),
            str(step.cached),
            " x ".join(map(str, attention.Q.shape)),
            " x ".join(map(str, attention.K.shape)),
            step.token.symbol if step.token else "(only the last token's own rows)",
        )
    )
print(attnlab.tables.align(lines, left=(3, 4, 5)))

# %% [markdown]
# Joined, the steps' rows make one square trace over all tokens, the same that a single run over the
# finished text leaves behind.

# %%
assert generated.trace is not None
at_once = model.trace(generated.tokens.ids)
difference = max(
    float(np.abs(a.attention.weights - b.attention.weights).max())
    for a, b in zip(generated.trace.blocks, at_once.blocks, strict=True)
)
print(f"\nAll weights, step by step and at once: largest difference {difference:.1e}")
assert difference < 1e-4

# %% [markdown]
# ## 10.3 Counted
#
# Multiplications for one more token after T tokens, in all layers, without the output matrix, which
# is the same either way. Without the cache, T + 1 rows go through the model again; with it, one.
#
# * linear maps: D·3D for Q, K, V, D·D for W_O, 2·D·F for the MLP, times rows
# * attention: Dh for each query and key it may see, and Dh more for weights times values

# %%
config = model.config
D, F, L = config.n_embd, config.d_mlp, config.n_layer


def multiplications(rows: int, first_position: int) -> int:
    """Of running `rows` tokens from a position on, with everything before them in the cache."""
    pairs = sum(first_position + row + 1 for row in range(rows))
    linear_maps = rows * (4 * D * D + 2 * D * F)
    return L * (linear_maps + 2 * pairs * D)


print("\n10.3 Multiplications for one more token, in thousands")
counts = [("T", "without cache", "with cache", "saved")]
for T in (1, 16, 64, 127, 511, 1023):
    if config.n_positions <= T:
        break
    without, cached = multiplications(T + 1, 0), multiplications(1, T)
    counts.append(
        (str(T), f"{without / 1e3:,.0f}", f"{cached / 1e3:,.0f}", f"{without / cached:,.0f} times")
    )
print(attnlab.tables.align(counts, left=()))
assert multiplications(1, 5) + multiplications(5, 0) == multiplications(6, 0)

# %% [markdown]
# ## 10.4 Measured
#
# The same 12 tokens, written with the cache and without it. On a CPU the time falls less than the
# count: a single row can't keep the arithmetic units busy, since each weight is read from memory
# for one multiplication only.

# %%
prompt = model.tokenizer.encode("It’s very hot in summer. Swimming is" * 8)
count = 12
model.generate(prompt, 1, temperature=0)  # reads the parameters, which is not what is measured

start = time.perf_counter()
with_cache = model.generate(prompt, count, temperature=0)
seconds_with = time.perf_counter() - start

start = time.perf_counter()
ids = list(prompt)
for _ in range(count):
    ids.append(int(model.trace(ids).next_logits.argmax()))
seconds_without = time.perf_counter() - start

print(f"\n10.4 {count} tokens after {len(prompt)}, milliseconds a token")
print(f"  with the cache     {1e3 * seconds_with / count:7.1f}   (the prompt's run included)")
print(f"  without the cache  {1e3 * seconds_without / count:7.1f}")
print(f"  the same tokens:   {with_cache.new.ids.tolist() == ids[len(prompt) :]}")

# %% [markdown]
# What it costs is memory: two numbers, a key's and a value's, for each layer, column and token.

# %%
numbers = 2 * L * D
print(f"\nIn the cache: 2 · {L} · {D} = {numbers:,} numbers a token, {4 * numbers / 1e3:.0f} kB")
