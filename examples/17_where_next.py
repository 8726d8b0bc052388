# %% [markdown]
# # 17. Where next
#
# > Afterwards you can say: “Later models still take the softmax of queries times keys. They changed
# > how positions go in, which keys are seen and kept, and in which order it is computed. Faster
# > doesn't have to mean approximate.”
#
# GPT-2 is from 2019. Later models still compute `softmax(Q Kᵀ / √Dk) V`, but have changed what goes
# in, what is kept, and the order of the computation. Here are six such changes, each in a few lines
# on a real head, with the paper to read. [One recipe](later/llama.py) has four changes at once, and
# runs [SmolLM2](book/pages/en/2019_and_2026.md), a model of today.
#
# Change the text, the window, the sizes, and run the chapter again.
#
# * **Objective**: Compute the main changes that later models made to attention, and know what to
#   read.
# * **Before this**: [chapter 3](03_one_head_by_hand.py); [chapter 11](11_what_the_cache_saves.py)
#   for the cache.
# * **Time**: about 35 minutes, exercises included.
# * **Misconception**: "Faster attention is approximate." The tiled softmax computes the same
#   numbers; windows and linear attention don't.

# %%
import numpy as np

import attnlab
from attnlab import pictures
from attnlab.checking import checked
from attnlab.equations import AnyArray, Array
from attnlab.support.console import prepare_script
from attnlab.support.tables import align

prepare_script()  # print on any terminal, and into pipes

TEXT = "The dog chased the ball, but it"
window = 3  # how many tokens a query sees in 17.2, itself included
tile = 3  # how many keys 17.3 processes at a time
theta = 0.5  # rotation of a pair of columns from one position to the next, in radians

model = attnlab.GPT2.default("pocket")  # GPT-2 if you have it, otherwise pocket
head = model.trace(TEXT).head(0, 0)
words = head.tokens.symbols if head.tokens else [str(i) for i in range(len(head.Q))]
Q, K, V, scale = head.Q, head.K, head.V, float(head.scale)
T, Dh = Q.shape

# %% [markdown]
# ## 17.1 What T² costs
#
# Every token attends to every token before it: [`raw_scores`](../attnlab/equations.py) has T rows
# and T columns, in every head. A text of twice the length has four times as many scores. Here is
# how much memory GPT-2 small's 144 heads would need, in float32, if all scores were kept.

# %%
lengths = (1_024, 8_192, 131_072)
heads, columns = 144, 64
gigabytes = [
    [4 * heads * length**2 / 2**30, 2 * 4 * heads * length * columns / 2**30] for length in lengths
]
print("\n17.1 What T² costs")
for length in lengths:
    print(f"{length:7,} tokens: {length**2:14,} scores per head")
table = [["", "all scores, GiB", "all K and V, GiB"]]
for length, row in zip(lengths, gigabytes, strict=True):
    table.append([f"{length:,} tokens", *(f"{size:,.2f}" for size in row)])
print(align(table))

# %% [markdown]
# ## 17.2 A window
#
# The simplest solution is a **sliding window**: a token attends only to the few tokens before it.
# Then each head has only T · window scores, and information from further away travels through the
# layers: a token of layer 2 sees what its window saw in layer 1. (Longformer: Beltagy, Peters and
# Cohan, 2020. Mistral 7B: Jiang and others, 2023.)
#
# Here are other methods for long texts, and what each of them leaves out:
#
# * Sparse Transformer (Child and others, 2019) leaves out all keys outside a fixed pattern.
# * Adaptive span (Sukhbaatar and others, 2019) leaves out what is further back than a head has
#   learned to need.
# * Reformer (Kitaev, Kaiser and Levskaya, 2020) leaves out keys whose hash differs from the query's
#   hash.
# * Linformer (Wang and others, 2020) leaves out individual keys; it mixes them into a fixed number
#   of rows.
# * Blockwise parallel (Liu and Abbeel, 2023) and ring attention (Liu, Zaharia and Abbeel, 2023)
#   leave out nothing; they compute block by block (17.3), ring attention on many devices.

# %%
distance = np.arange(T)[:, None] - np.arange(T)
window_mask = (distance >= 0) & (distance < window)
windowed = attnlab.attention(Q, K, V, mask=window_mask, tokens=words)

print("\n17.2 A window")
print(f"scores to compute: {int(head.mask.sum())} without it, {int(window_mask.sum())} with it")
print(f"largest change of a context: {np.abs(windowed.context - head.context).max():.3f}")
windowed

# %% [markdown]
# ## 17.3 The same softmax, a few keys at a time
#
# Softmax needs the row's largest score and the sum of all powers, so it seems to need the whole
# row. It does not. Process a few keys at a time and keep three things: the largest score so far,
# the sum so far, the weighted sum of values so far. If a larger score turns up, the previous sums
# are rescaled. The result is [`context`](../attnlab/equations.py), and no T x T matrix was ever
# stored. (Milakov and Gimelshein, 2018; FlashAttention: Dao and others, 2022.)


# %%
def context_by_tiles(Q: Array, K: Array, V: Array, mask: AnyArray, tile: int) -> Array:
    """softmax(Q Kᵀ / scale) V, processing `tile` keys at a time."""
    largest = np.full((len(Q), 1), -np.inf)
    total, mixture = np.zeros((len(Q), 1)), np.zeros((len(Q), V.shape[1]))
    for start in range(0, len(K), tile):
        part = slice(start, start + tile)
        scores = np.where(mask[:, part], Q @ K[part].T / scale, -np.inf)
        new_largest = np.maximum(largest, scores.max(axis=1, keepdims=True))
        powers, shrink = np.exp(scores - new_largest), np.exp(largest - new_largest)
        total = shrink * total + powers.sum(axis=1, keepdims=True)
        mixture = shrink * mixture + powers @ V[part]
        largest = new_largest
    return mixture / total


by_tiles = context_by_tiles(Q, K, V, head.mask, tile)
print("\n17.3 The same softmax, a few keys at a time")
print(f"largest difference from the head's context: {np.abs(by_tiles - head.context).max():.0e}")

# %% [markdown]
# ## 17.4 Linear attention: without softmax
#
# Replace softmax with something simpler, `φ(q)·φ(k)` with a φ that is never negative, and the sums
# can be reordered. Everything from earlier tokens fits into one matrix, `S`, the sum of `φ(k)ᵀ v`,
# as wide as the head however long the text is. Each new token adds its own product to this matrix.
# The price is that the weights are different, and less sharp. (Katharopoulos and others, 2020,
# "Transformers are RNNs".)


# %%
def phi(x: Array) -> Array:
    """x + 1 above zero and e^x below: never negative."""
    return np.where(x > 0, x + 1, np.exp(np.minimum(x, 0)))


full_weights = phi(Q) @ phi(K).T * head.mask
linear_weights = full_weights / full_weights.sum(axis=1, keepdims=True)

S, norm, stepwise = np.zeros((Dh, V.shape[1])), np.zeros(Dh), []
for q, k, v in zip(phi(Q), phi(K), V, strict=True):
    S, norm = S + np.outer(k, v), norm + k
    stepwise.append(q @ S / (q @ norm))

difference = np.abs(np.array(stepwise) - linear_weights @ V).max()
print("\n17.4 Linear attention: without softmax")
print(f"all at once and one token after the other: at most {difference:.0e} apart")
print(f"largest weight of the last row: softmax {head.weights[-1].max():.2f}, ", end="")
print(f"without {linear_weights[-1].max():.2f}")
pictures.heatmap(linear_weights, rows=words, columns=words, title="weights without softmax")

# %% [markdown]
# ## 17.5 A smaller KV cache
#
# A model that generates text keeps the keys and values of all tokens ([chapter
# 11](11_what_the_cache_saves.py)). There are two ways to keep less:
#
# * **Share between heads.** Several heads have their own queries but share one set of keys and
#   values (Shazeer, 2019; grouped queries: Ainslie and others, 2023).
# * **Compress.** Keep `C = X W_down`, a few numbers for each token, and compute all heads' keys and
#   values from these numbers (multi-head latent attention: DeepSeek-V2, 2024). The keys need not
#   even be computed: `q·k = q·(c W_up) = (q W_upᵀ)·c`.
#
# The singular values of this head's `K` show how few numbers would do. The page on
# [MLA](later/mla.py) computes them for a whole layer.

# %%
U, singular, Vt = np.linalg.svd(K, full_matrices=False)
rank = max(1, len(singular) // 2)
C, W_up = U[:, :rank] * singular[:rank], Vt[:rank]
low_rank_scores = (Q @ W_up.T) @ C.T / scale
difference = np.abs(np.where(head.mask, low_rank_scores - head.scores, 0)).max()

H, L, latent = 32, 32, 512
cache = {
    "a set for each head": 2 * H * 128,
    "8 sets for 32 heads": 2 * 8 * 128,
    "one set for all": 2 * 128,
    f"{latent} latent numbers": latent,
}
print("\n17.5 A smaller KV cache: a model of 32 layers and 32 heads of width 128, float16")
print(
    attnlab.table(
        [[count, 2 * L * count / 1024] for count in cache.values()],
        rows=list(cache),
        columns=["numbers per token and layer", "KiB per token"],
        decimals=0,
    )
)
print(f"\nThis head's keys with {rank} numbers per token instead of {Dh}:")
print(f"scores change by at most {difference:.2f}; they range from ", end="")
print(f"{head.scores[head.mask].min():.2f} to {head.scores[head.mask].max():.2f}")
pictures.curves({"K": singular}, x_name="number", y_name="singular value")

# %% [markdown]
# ## 17.6 Position as a rotation
#
# GPT-2 adds a learned row for each position ([chapter 8](08_a_tokens_journey.py)), and has no row
# for position 1,024. Most models since then rotate queries and keys instead: the columns are taken
# in pairs, and a pair at position m is rotated by the angle m θ. The dot product of two rows
# rotated by m θ and n θ depends only on m - n. (RoPE: Su and others, 2021, "RoFormer"; [a model of
# 2026](later/llama.py) has it.)


# %%
def rotate(x: Array, position: int, theta: float) -> Array:
    """Two numbers, rotated by their position times theta."""
    cos, sin = np.cos(position * theta), np.sin(position * theta)
    return np.array([x[0] * cos - x[1] * sin, x[0] * sin + x[1] * cos])


q, k = np.array([1.0, 0.3]), np.array([0.8, -0.5])
pairs = [(2, 0), (5, 3), (102, 100), (5, 0)]
products = [float(rotate(q, m, theta) @ rotate(k, n, theta)) for m, n in pairs]
print("\n17.6 Position as a rotation: one query, one key, at several positions")
print(
    attnlab.table(
        [[m, n, m - n, product] for (m, n), product in zip(pairs, products, strict=True)],
        columns=["m", "n", "m - n", "q·k"],
        decimals=2,
    )
)
pictures.points({f"m = {m}": rotate(q, m, theta) for m in range(6)}, title="q at position m")

# %% [markdown]
# ## 17.7 Mixture of experts
#
# The other half of a block, the MLP, has two thirds of the block's parameters ([chapter
# 9](09_counting_parameters.py)). A **mixture of experts** has many MLPs, and a small matrix, the
# **router**. For each token the router decides which two MLPs run. It also decides the **gates**,
# the weights with which the outputs of the two MLPs are added. So the parameters grow, but the
# computation doesn't. (Shazeer and others, 2017; Switch Transformers: Fedus, Zoph and Shazeer,
# 2021; the page on [MoE](later/moe.py) cuts an MLP into experts.)

# %%
experts, active = 4, 2
rng = np.random.default_rng(0)
router = rng.normal(size=(head.X.shape[1], experts))
logits = head.X @ router / np.sqrt(head.X.shape[1])
chosen = np.argsort(-logits, axis=1)[:, :active]
only_chosen = np.full_like(logits, -np.inf)
np.put_along_axis(only_chosen, chosen, np.take_along_axis(logits, chosen, axis=1), axis=1)
gates = attnlab.softmax(only_chosen)
print(f"\n17.7 Mixture of experts: {active} of {experts} run for each token (untrained router)")
names = [f"expert {e}" for e in range(experts)]
print(attnlab.table(gates, rows=words, columns=names, decimals=2))

# %% [markdown]
# ### Quantization, and several tokens at once
#
# **Quantization** stores weights, or the KV cache, as small integers. Here each number takes 8
# bits, a quarter of float32, and each row has a scale. The computation stays the same, up to
# rounding. (LLM.int8: Dettmers and others, 2022.)
#
# **Multi-token prediction** trains additional outputs, which predict the second and later next
# tokens from the same residual stream. Each text then teaches more, and a model can propose several
# tokens at once and check them in one forward pass. (Gloeckle and others, 2024.)
#
# Other parts of such models lie in training, not in attention. **Distillation** trains a small
# model on what a large one writes; **reward by rules** checks an answer with a program, where a
# learned reward model could be fooled (both DeepSeek-R1, 2025). **PPO-ptx** adds the loss of
# pretraining to that of reinforcement learning, so that less is forgotten (InstructGPT: Ouyang and
# others, 2022).

# %%
step = np.maximum(np.abs(K).max(axis=1, keepdims=True) / 127, 1e-30)  # a row's scale
K_int8 = np.round(K / step).astype(np.int8)
rounded_scores = Q @ (K_int8 * step).T / scale
int8_difference = np.abs(np.where(head.mask, rounded_scores - head.scores, 0)).max()
print(f"\n17.7 This head's keys in 8 bits: scores change by at most {int8_difference:.3f}")

# %% [markdown]
# ## 17.8 Predict, change, see
#
# **Exercise 1 (basic).** With 8 tokens and a window of 3, how many scores are computed? And with a
# window of 4? Count first, then set `window = 4`. (The text above is 8 tokens in the pocket model.)
#
# <details><summary>Answer</summary>
#
# The first row sees 1 token, the second sees 2, and the other six see 3 each: 21 scores, of 36
# without a window. With a window of 4 there are 1 + 2 + 3 + 5 · 4 = 26 scores.
#
# </details>
#
# **Exercise 2 (basic).** Set `tile = 1`, then `tile = 100`. What happens to the difference in 17.3?
#
# <details><summary>Answer</summary>
#
# Nothing that matters happens. Whether the keys come one at a time or all at once, the sum is the
# same in another order. So the difference stays a rounding error, below 0.00001.
#
# </details>
#
# **Exercise 3 (medium).** In 17.6 set `theta = 0`. What are the four products, and what does a
# model with such positions know about the order of words?
#
# <details><summary>Answer</summary>
#
# No row is rotated, so all four products are q·k = 0.8 - 0.15 = 0.65. Every position looks the
# same, and only the causal mask still says what came before.
#
# </details>
#
# **Exercise 4 (medium).** In 17.7 let only one expert run: `experts, active = 4, 1`. What are the
# gates?
#
# <details><summary>Answer</summary>
#
# The softmax of a single number is 1, so every row has one 1.00 and zeros otherwise: with one
# expert the gate no longer says how sure the router is. That is why Switch Transformers multiply by
# the expert's share among all experts.
#
# </details>

# %% [markdown]
# **Task 1 (medium).** Write the head of 17.2, in which each token sees itself and the `window - 1`
# tokens before it. Return `masked_scores`, `weights` and `context`.


# %%
def my_windowed_head(Q: Array, K: Array, V: Array, window: int) -> dict[str, Array]:
    raise NotImplementedError


# %%
print("\n17.8 Your own windowed head")
print(checked(windowed, my_windowed_head, Q, K, V, window))

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# How far back is key j from query i? `i - j`. As a table: `np.arange(T)[:, None] - np.arange(T)`.
#
# <details><summary>Hint 2</summary>
#
# A key is visible if that distance is 0 or more, and less than `window`. Elsewhere the score is
# -inf.
#
# <details><summary>Hint 3</summary>
#
# Nothing else changes. Divide by the root of the number of columns of `K` before the mask, apply
# softmax over the keys, then compute `weights @ V`.
#
# <details><summary>Solution</summary>
#
# [`my_windowed_head`](book/solutions/chapter_17.py)
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
# * The number of scores grows with the square of the length; a sliding window drops the scores of
#   distant tokens.
# * Softmax can be computed over tiles of keys without ever holding the whole row.
# * Shared or compressed keys and values make the cache smaller.
# * Rotations put the distance of two tokens into their dot product.
# * A mixture of experts has more parameters for the same work per token.
