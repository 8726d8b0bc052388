# %% [markdown]
# # 11. What the cache saves
#
# A GPT-2 writes one token at a time. To find the next one it needs the keys and values of all
# tokens before it, in every layer. Those of the earlier tokens were computed in the steps before.
# This chapter shows why they can be kept, and counts and measures what that saves.

# %%
from collections.abc import Callable
from time import perf_counter

import numpy as np

import attnlab
from attnlab.console import prepare_script

prepare_script()  # for any terminal, and for pipes

TEXT, MORE = "It’s very hot in summer.", " Swimming is"

model = attnlab.GPT2.at_hand()
print(model)

# %% [markdown]
# ## 11.1 Earlier keys and values never change
#
# The mask lets a token look only back. So nothing that belongs to a token, in any layer, depends on
# what comes after it. Here is a text, and the same one with more words. In every layer the keys and
# values of the tokens that both have are the same.

# %%
short = model.trace(TEXT)
long = model.trace([*short.tokens.ids, *model.tokenizer.encode(MORE)])
T = len(short.tokens)

print(f"\n11.1 Keys and values of the {T} tokens that both texts begin with, largest difference")
for layer in sorted({0, model.config.n_layer // 2, model.config.n_layer - 1}):
    a, b = short.blocks[layer].attention, long.blocks[layer].attention
    K_difference = np.abs(a.K - b.K[:, :T]).max()
    V_difference = np.abs(a.V - b.V[:, :T]).max()
    print(f"  layer {layer:2}   K {K_difference:.1e}   V {V_difference:.1e}")

# %% [markdown]
# They differ by float32's rounding at most. Without the mask that would not hold: then every token
# of layer 1 would have looked at the new words, and all its keys would be others.
#
# Queries of earlier tokens are not even needed again: only the newest token asks.

# %% [markdown]
# ## 11.2 Step by step
#
# `generate(..., trace=True)` keeps each step. The first one runs the prompt. Each later one runs a
# single token: one row of queries against all keys, most of which it finds in the cache.

# %%
generated = model.generate(TEXT, 4, temperature=0, trace=True)
print(f"\n11.2 {generated}")
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
if generated.trace is not None:  # with trace=True
    at_once = model.trace(generated.tokens.ids)
    difference = max(
        float(np.abs(a.attention.weights - b.attention.weights).max())
        for a, b in zip(generated.trace.blocks, at_once.blocks, strict=True)
    )
    print(f"\nAll weights, step by step and at once: largest difference {difference:.1e}")

# %% [markdown]
# ## 11.3 Counted
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


print("\n11.3 Multiplications for one more token, in thousands")
counts = [("T", "without cache", "with cache", "saved")]
for T in (1, 16, 64, 127, 511, 1023):
    if config.n_positions <= T:
        break
    without, cached = multiplications(T + 1, 0), multiplications(1, T)
    counts.append(
        (str(T), f"{without / 1e3:,.0f}", f"{cached / 1e3:,.0f}", f"{without / cached:,.0f} times")
    )
print(attnlab.tables.align(counts, left=()))

# %% [markdown]
# ## 11.4 Measured
#
# One more token after a longer text: with the cache, without it, and the products of the step with
# the cache alone, which is one row times each matrix. Of several tries the quickest counts. The
# pocket model comes first, and below it the model at hand, where that is another.

# %%
TRIES = 8


def quickest(work: Callable[[], object]) -> float:
    """Milliseconds."""
    times = []
    for _ in range(TRIES):
        start = perf_counter()
        work()
        times.append(perf_counter() - start)
    return 1e3 * min(times)


def measured(model: attnlab.GPT2) -> list[float]:
    """What a token takes with the cache, what of that is products, and what it takes without."""
    config, parameters = model.config, model.parameters
    ids = model.tokenizer.encode((TEXT + MORE) * 8)[: config.n_positions - TRIES - 1]
    steps = model.stream(ids, TRIES + 1, temperature=0)
    next(steps)  # runs the prompt and reads the parameters, which is not what is measured
    matrices = [parameters["W_E"].T]
    for layer in range(config.n_layer):
        for name in ("attention.W_QKV", "attention.W_O", "mlp.W_1", "mlp.W_2"):
            matrices.append(parameters[f"blocks.{layer}.{name}"])
    rows = [np.ones((1, len(W)), W.dtype) for W in matrices]
    return [
        quickest(lambda: next(steps)),
        quickest(lambda: [row @ W for row, W in zip(rows, matrices, strict=True)]),
        quickest(lambda: model.trace(ids).next_logits),
    ]


models = [attnlab.GPT2.from_pretrained("pocket")]
if model.config != models[0].config:
    models.append(model)
print("\n11.4 Milliseconds for one more token")
print(
    attnlab.table(
        [measured(one) for one in models],
        rows=[f"{one.config.n_layer} layers, D = {one.config.n_embd}" for one in models],
        columns=["with the cache", "its products alone", "without the cache"],
        decimals=2,
    )
)

# %% [markdown]
# The time falls less than the count, for two reasons. In a small model nearly all of a step is what
# stands around its products: many calls of Python and NumPy for each layer, which take nearly as
# long for one row as for many. The cache can't save those. In a large model the products are most
# of a step, but a single row can't keep the arithmetic units busy: each weight is read from memory
# for one multiplication only, where all rows together would share it.
#
# What the cache costs is memory: two numbers, a key's and a value's, for each layer, column and
# token.

# %%
numbers = 2 * L * D
print(f"\nIn the cache: 2 · {L} · {D} = {numbers:,} numbers a token, {4 * numbers / 1e3:.0f} kB")
