# %% [markdown]
# # 11. What the cache saves
#
# > Afterwards you can say: “Keys and values of earlier tokens never change, so a model keeps them
# > and computes one row for each new token. That takes memory. It saves less time than the count
# > suggests, because reading the parameters takes most of a step.”
#
# GPT-2 is **autoregressive**: it generates one token at a time. To find the next one it needs the
# keys and values of all tokens before it, in every layer. They were already computed in earlier
# steps. This chapter shows why they can be kept in a **KV cache**, does a step with it by hand, and
# counts and measures what that saves and what it costs.
#
# Change the texts, or any number below them, and run the chapter again.
#
# * **Objective**: Say what a KV cache keeps, why it can, and what it saves and costs.
# * **Before this**: [chapter 4](04_your_journey.py) and [chapter 8](08_a_tokens_journey.py).
# * **Time**: about 40 minutes, exercises included.
# * **Misconception**: "The cache changes the result." It is the same arithmetic. "It keeps the
#   queries too." Old queries are never used again.

# %%
from collections.abc import Callable
from time import perf_counter

import numpy as np

import attnlab
from attnlab import pictures
from attnlab.checking import checked
from attnlab.equations import Array
from attnlab.forward.parameters import parameter_count
from attnlab.support.console import prepare_script
from attnlab.support.tables import align

prepare_script()  # print on any terminal, and into pipes

TEXT, MORE = "The dog chased the ball, but it", " rolled."
NEW = 4  # tokens generated in 11.3
LAYER, HEAD = 1, 2  # the head to look at

model = attnlab.GPT2.default("pocket")  # GPT-2 if you have it, otherwise pocket
print(model)

# %% [markdown]
# ## 11.1 Earlier keys and values never change
#
# The mask lets a token attend only to earlier tokens and itself ([chapter 4](04_your_journey.py)).
# So nothing computed for a token, in any layer, depends on what comes after that token. Here is a
# text, and the same text with more words. In every layer the keys and values of the shared tokens
# are the same.

# %%
new_ids = model.tokenizer.encode(MORE) or [0]  # if empty, any token
max_prompt = model.config.n_positions - max(len(new_ids), NEW)
ids = model.tokenizer.encode(TEXT)[-max_prompt:] or [0]
T = len(ids)
longer, shared = [*ids, *new_ids], slice(0, T)  # the positions of the shared tokens

short, long = model.trace(ids), model.trace(longer)
layers = [(a.attention, b.attention) for a, b in zip(short.blocks, long.blocks, strict=True)]

print(f"\n11.1 Keys and values of the {T} shared tokens, largest difference")
for layer in sorted({0, len(layers) // 2, len(layers) - 1}):
    short_layer, long_layer = layers[layer]
    K_difference = np.abs(short_layer.K - long_layer.K[:, shared]).max()
    V_difference = np.abs(short_layer.V - long_layer.V[:, shared]).max()
    print(f"  layer {layer:2}   K {K_difference:.1e}   V {V_difference:.1e}")

# %% [markdown]
# They differ at most by float32's rounding. The mask ensures that. Without the mask, the tokens of
# the short text would attend to the new words too: their contexts would differ already in layer 0,
# and so would all keys and values of layer 1. (A model that attends in both directions, like BERT,
# can't reuse keys and values.)

# %%
short_layer, long_layer = layers[0]
print("\nContexts of layer 0, largest difference")
for name, masks in {
    "with the mask": (short_layer.mask, long_layer.mask),
    "without the mask": (None, None),
}.items():
    before = attnlab.attention(short_layer.Q, short_layer.K, short_layer.V, masks[0]).context
    after = attnlab.attention(long_layer.Q, long_layer.K, long_layer.V, masks[1]).context
    print(f"  {name}  {np.abs(before - after[:, shared]).max():.1e}")

# %% [markdown]
# ## 11.2 One step by hand
#
# So keep the keys and values. Take a head of the longer text, just before its last token: the keys
# and values of all other tokens are in the cache. Now the last token arrives, one row `x`. Three
# products with that row give its query, its key and its value. The key and the value are appended
# to the others. The query is multiplied with all keys (the equation
# [`raw_scores`](../attnlab/equations.py)), and the weights mix all values
# ([`context`](../attnlab/equations.py)).
#
# No mask is needed: everything in the cache came earlier. Queries are never kept: only the newest
# token has a query that is still needed.

# %%
chosen = min(LAYER, model.config.n_layer - 1), min(HEAD, model.config.n_head - 1)
head = long.head(*chosen)
K_cache, V_cache, x = head.K[:-1], head.V[:-1], head.X[-1]

q = x @ head.W_Q + head.b_Q
k = x @ head.W_K + head.b_K
v = x @ head.W_V + head.b_V
K, V = np.vstack([K_cache, k]), np.vstack([V_cache, v])
weights = attnlab.softmax(q @ K.T / head.scale)
context = weights @ V

print(f"\n11.2 One step by hand: layer {chosen[0]}, head {chosen[1]}")
for name, array in {"K_cache": K_cache, "x": x, "q": q, "K": K, "context": context}.items():
    print(f"  {name:8} {' x '.join(map(str, array.shape))}")
print("\nLargest difference from the last row of the full trace")
print(f"  weights  {np.abs(weights - head.weights[-1]).max():.0e}")
print(f"  context  {np.abs(context - head.context[-1]).max():.0e}")

# %% [markdown]
# ## 11.3 Step by step
#
# `generate` does this in every head. With `trace=True` it keeps each step. The first step runs the
# prompt. Each later step runs a single token: one row of queries against all keys, most of which
# are in the cache.

# %%
generated = model.generate(ids, NEW, temperature=0, trace=True)
symbols = generated.tokens.symbols

print("\n11.3 Step by step")
lines = [["step no.", "computed", "cached", "Q of a head", "K of a head", "chose"]]
for number, step in enumerate(generated.steps):
    step_head = step.trace.head(*chosen)
    shapes = [" x ".join(map(str, array.shape)) for array in (step_head.Q, step_head.K)]
    chose = step.token.symbol if step.token else "(the last token's own rows)"
    lines.append([str(number), str(step.computed), str(step.cached), *shapes, chose])
print(align(lines, left=(3, 4, 5)))

# %% [markdown]
# Here are the weights of one step, for the head of 11.2. Only the token chosen in the previous step
# has a query, so there is a single row.

# %%
step = generated.steps[min(1, len(generated.steps) - 1)]
rows = slice(step.cached, step.cached + step.computed)
pictures.heatmap(
    step.trace.head(*chosen).weights,
    rows=symbols[rows],
    columns=symbols[: rows.stop],
    title="weights of a step",
)

# %% [markdown]
# Stacked, the rows of all steps form one square. A single run over the finished text gives the same
# square.

# %%
at_once = model.trace(generated.tokens.ids)
differences = []
for step in generated.steps:
    new_rows = slice(step.cached, step.cached + step.computed)
    for a, b in zip(step.trace.blocks, at_once.blocks, strict=True):
        same_rows = b.attention.weights[:, new_rows, : new_rows.stop]
        differences.append(float(np.abs(a.attention.weights - same_rows).max()))
print(f"\nAll weights, step by step and at once: largest difference {max(differences):.1e}")

pictures.heatmap(
    at_once.head(*chosen).weights,
    rows=symbols,
    columns=symbols,
    title="weights of the whole",
)

# %% [markdown]
# ## 11.4 The count
#
# How many multiplications does one more token take after T tokens? Without the cache, T + 1 rows go
# through the model again; with the cache, one row does. Each layer takes these multiplications:
#
# * linear maps: D · 3D for Q, K and V, D · D for W_O, 2 · D · F for the MLP, for each row
# * attention: Dh for each pair of a query and a key it may attend to, and Dh more for weights times
#   values, in each of the H heads, so 2 · D for a pair
#
# With or without the cache, the newest token's [`logits`](../attnlab/equations.py) are needed once:
# D multiplications for each token of the vocabulary. Counting needs no weights, only sizes, so
# GPT-2's counts are here too, whichever model runs.

# %%
pocket = attnlab.GPT2.from_pretrained("pocket")
gpt2 = attnlab.GPT2Config(vocab_size=50257, n_positions=1024, n_embd=768, n_layer=12, n_head=12)
gpt3 = attnlab.GPT2Config(vocab_size=50257, n_positions=2048, n_embd=12288, n_layer=96, n_head=96)


def multiplications(config: attnlab.GPT2Config, rows: int, first_position: int) -> int:
    """Multiplications to run `rows` tokens from a position, with everything before cached."""
    D, F = config.n_embd, config.d_mlp
    pairs = sum(first_position + row + 1 for row in range(rows))
    linear_maps = rows * (4 * D * D + 2 * D * F)
    return config.n_layer * (linear_maps + 2 * pairs * D) + D * config.vocab_size


# %%
print("\n11.4 Millions of multiplications for one more token")
for name, config in {"the pocket model": pocket.config, "GPT-2 small": gpt2}.items():
    counts = [["T", "without cache", "with cache", "times as many"]]
    for tokens in sorted({16, 127, 511, config.n_positions - 1}):
        if tokens < config.n_positions:
            without = multiplications(config, tokens + 1, 0)
            cached = multiplications(config, 1, tokens)
            millions = [f"{count / 1e6:,.2f}" for count in (without, cached)]
            counts.append([str(tokens), *millions, f"{without / cached:,.0f}"])
    print(f"\n{name}")
    print(align(counts, left=()))

# %% [markdown]
# With the cache the count hardly depends on T: most of it is linear maps of one row, and only the
# attention to all earlier tokens grows. Without the cache each token costs more than the one
# before. The picture shows GPT-2 small, in billions of multiplications; the lower line is hard to
# tell from the axis.

# %%
lengths = range(1, gpt2.n_positions, 32)
billions = {
    "without cache": [multiplications(gpt2, tokens + 1, 0) / 1e9 for tokens in lengths],
    "with cache": [multiplications(gpt2, 1, tokens) / 1e9 for tokens in lengths],
}
pictures.curves(billions, x=list(lengths), x_name="T", y_name="10⁹ multiplications")

# %% [markdown]
# ## 11.5 The time
#
# Now with a timer. One more token after a longer text is timed in three ways. The first is with the
# cache. The second is only the matrix products of that step, one row times each matrix. The third
# is without the cache. Each time is the fastest of several runs, as many as fit in a second. The
# pocket model comes first, and below it the model that runs, if it is a different one.

# %%
TRIES, TIMES = 8, 16


def fastest_ms(work: Callable[[], object]) -> float:
    """The shortest of several runs, in milliseconds."""
    times: list[float] = []
    while not times or (len(times) < TRIES and sum(times) < 1):
        start = perf_counter()
        work()
        times.append(perf_counter() - start)
    return 1e3 * min(times)


# %%
def measure(model: attnlab.GPT2) -> list[str]:
    """Layers, D, T; times for a token: with the cache, only its products, without the cache."""
    config, parameters = model.config, model.parameters
    ids = model.tokenizer.encode((TEXT + MORE) * TIMES)[: config.n_positions - TRIES - 1] or [0]
    steps = model.stream(ids, TRIES + 1, temperature=0)
    next(steps)  # runs the prompt and reads the parameters, which we don't measure
    matrices = [parameters["W_E"].T, *(parameters[path] for path in parameters if ".W_" in path)]
    pairs = [(np.ones((1, len(W)), W.dtype), W) for W in matrices]
    with_cache = fastest_ms(lambda: next(steps))
    products_only = fastest_ms(lambda: [row @ W for row, W in pairs])
    without = fastest_ms(lambda: model.trace(ids).next_logits)
    sizes = map(str, (config.n_layer, config.n_embd, len(ids)))
    return [*sizes, *(f"{time:.2f}" for time in (with_cache, products_only, without))]


# %%
models = [pocket] if model.config == pocket.config else [pocket, model]
print("\n11.5 Milliseconds for one more token")
columns = ["layers", "D", "T", "with cache", "only its products", "without cache"]
print(align([columns, *map(measure, models)], left=()))

# %% [markdown]
# The time saved is less than the count suggests. In the **pocket model** the products are a small
# part of a step. Nearly all of it is overhead: many calls of Python and NumPy in each layer, which
# take nearly as long for one row as for many. No cache saves those.
#
# In a model of **GPT-2 small's** shape the products are most of a step. This was measured on a
# machine with two cores (`tests/benchmarks/README.md` says how). A token with the cache, after 32
# to 95 others, took 31 ms; the products alone took 27 to 31 ms of it. Without the cache, running
# 128 tokens took 200 ms, and running 1,024 tokens took 1,612 ms. So the cache saves much, but at
# 128 tokens it saves a factor of about six rather than 88. The reason is memory bandwidth: a single
# row uses each weight for one multiplication, and that machine can't read 498 MB of weights faster.
# Many rows processed together share a single read.

# %% [markdown]
# ## 11.6 What it costs
#
# The cache costs memory: two rows, a key and a value, for each layer and each token. Each row is D
# numbers wide, all heads together, and a float32 takes 4 bytes.

# %%
SIZES = {"pocket": pocket.config, "GPT-2 small": gpt2, "GPT-3": gpt3}


def cache_bytes(config: attnlab.GPT2Config, tokens: int) -> int:
    """The size of the cache in float32."""
    return 4 * 2 * config.n_layer * config.n_embd * tokens


print("\n11.6 The cache of one text, in MB, beside the weights")
costs = [["", "per token", "max tokens", "at max tokens", "weights"]]
for name, config in SIZES.items():
    max_tokens, weights_bytes = config.n_positions, 4 * parameter_count(config)
    sizes = [cache_bytes(config, 1), cache_bytes(config, max_tokens), weights_bytes]
    per_token, all_tokens, parameters = (f"{size / 1e6:,.3f}" for size in sizes)
    costs.append([name, per_token, f"{max_tokens:,}", all_tokens, parameters])
print(align(costs))

# %% [markdown]
# For one text the cache is small beside the weights. But there is one set of weights, and each text
# being generated has its own cache: a server with many users holds more cache than model. That is
# why later models keep less for each token ([chapter 17](17_where_next.py)).
#
# ## 11.7 Predict, change, see
#
# **Exercise 1 (basic).** The text at the top has 8 tokens in the pocket model's vocabulary. Put
# `NEW = 10`. How many rows go through the model until the tenth token is chosen? How many would it
# be without a cache? (After the tenth token is chosen, one more step computes only that token's own
# rows. Don't count that step.)
#
# <details><summary>Answer</summary>
#
# With the cache, 8 rows go through for the text, and then one row in each of nine steps: 17.
# Without the cache there are 8 + 9 + ... + 17 = 125.
#
# </details>
#
# **Exercise 2 (medium).** Put the new words before the text instead of after it. Are the keys and
# values of the old words still the same? In 11.1, below the line that defines `longer`, write
# `longer, shared = [*new_ids, *ids], slice(-T, None)`.
#
# <details><summary>Answer</summary>
#
# No, not even in layer 0: the keys there are up to 2.7 apart. Each old word has moved by two
# positions, so it includes another row of `W_P`, and in layer 1 it has also attended to other
# words. That is why GPT-2 has to recompute all tokens when the text has grown too long and the
# oldest token is dropped.
#
# </details>
#
# **Exercise 3 (medium).** With the cache a token needs 12 · D · D multiplications for the linear
# maps of a layer (F = 4D) and 2 · D for each token it attends to. From how many tokens on does
# attending cost more? Work it out for GPT-2 small, with a pencil.
#
# <details><summary>Answer</summary>
#
# Both costs are equal at 6 · D tokens, which is 4,608 for D = 768: four and a half times as many as
# GPT-2 can take. At GPT-2's last position attending is 18.2 percent of a layer's count. So T² makes
# attention expensive only for long texts.
#
# </details>
#
# **Exercise 4 (medium).** The largest GPT-2, XL, has 48 layers and D = 1600. How many MB does the
# cache of a text of 1,024 tokens take? How many such texts must be generated at once for the caches
# to take more than the 6,230 MB of XL's weights? (To check, add XL to `SIZES`, with 25 heads.)
#
# <details><summary>Answer</summary>
#
# A token takes 4 · 2 · 48 · 1600 bytes, which is 0.6144 MB, and a text takes 629.1 MB. Ten texts
# take more than the weights.
#
# </details>

# %% [markdown]
# **Task 1 (medium).** Write the step of 11.2: it takes one row `x` and the caches. Return `K` and
# `V` with the new rows, `scores`, `weights` and `context`; the last three have one row.


# %%
def my_step(
    x: Array,
    K_cache: Array,
    V_cache: Array,
    Q_params: tuple[Array, Array],
    K_params: tuple[Array, Array],
    V_params: tuple[Array, Array],
) -> dict[str, Array]:
    """One step with the cache; each pair is a matrix and its bias."""
    raise NotImplementedError


# %%
print("\n11.7 Your own step with the cache")
Q_params, K_params, V_params = ((getattr(head, f"W_{n}"), getattr(head, f"b_{n}")) for n in "QKV")
expected = attnlab.attention(q[np.newaxis], K, V)
print(checked(expected, my_step, x, K_cache, V_cache, Q_params, K_params, V_params))

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# There are three products, each plus its bias: `x @ W + b`. The row of the query is used now and
# never stored; the rows of the key and of the value join their caches.
#
# <details><summary>Hint 2</summary>
#
# `np.vstack([K_cache, k])` puts the new row last. The scores are the query times every key:
# `K @ q` divided by the root of the number of columns of `K`.
#
# <details><summary>Hint 3</summary>
#
# There is no mask: everything in the cache is earlier. Divide the powers of e by their sum. To make
# a vector a single row, `scores[np.newaxis]` has the shape (1, T).
#
# <details><summary>Solution</summary>
#
# [`my_step`](book/solutions/chapter_11.py)
#
# </details>
#
# </details>
#
# </details>
#
# </details>

# %% [markdown]
# ## Summary
#
# * Under a causal mask, keys and values of earlier tokens never change.
# * A new token costs one row through the model instead of all of them.
# * The time saved is less than the count suggests: reading the weights takes most of a step.
# * The price is memory: two rows per layer and token, for each text being written.
