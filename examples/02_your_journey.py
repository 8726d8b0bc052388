# %% [markdown]
# # 2. Your journey starts with one step
#
# Six words, three numbers each. We build attention in stages: with nothing to learn, with `W_Q`,
# `W_K` and `W_V`, then so that no word sees the words after it, with dropout, and with two heads.
#
# Each stage is held against recorded figures: the same stages computed with PyTorch, printed to six
# decimals.

# %%
import numpy as np

import attnlab
from attnlab import figures
from attnlab.console import prepare_script
from attnlab.equations import Array

prepare_script()  # for any terminal, and for pipes

recorded = figures.load("journey")
words = recorded["words"]
X = np.array(recorded["inputs"])

print("X: six words, three numbers each")
print(attnlab.table(X, rows=words, decimals=2))

# %% [markdown]
# ## 2.1 With nothing to learn
#
# How alike are two words? Multiply their rows number by number and add up: for "journey", six dot
# products. Softmax makes weights of them, and with these weights the six rows of `X` are mixed into
# a new row for "journey". (No division by a root here; that comes with 2.2.)

# %%
print("\n2.1 With nothing to learn")
journey = words.index("journey")
for word, row in zip(words, X, strict=True):
    terms = " + ".join(f"{a:.2f}·{b:.2f}" for a, b in zip(X[journey], row, strict=True))
    print(f"  journey · {word:7}  {terms} = {X[journey] @ row:.4f}")

raw_scores = X @ X.T
weights = attnlab.softmax(raw_scores)
context = weights @ X

print("\nweights: the softmax of all 36 dot products, row by row")
print(attnlab.table(weights, rows=words, columns=words))
print("\ncontext: weights times X")
print(attnlab.table(context, rows=words))
print()
stage = recorded["no_weights"]
print(figures.check("raw_scores", raw_scores, stage["scores"], decimals=6))
print(figures.check("weights", weights, stage["weights"], decimals=6))
print(figures.check("context", context, stage["context"], decimals=6))

# %% [markdown]
# ## 2.2 With W_Q, W_K and W_V
#
# No step of 2.1 holds anything to learn. Attention lets a word look with one row (its query), be
# found by another (its key) and give a third (its value), each made by a matrix of its own. The dot
# products are then divided by √2, the root of a key's width.
#
# The figures have two variants with different matrices: one drawn between 0 and 1, one drawn as
# PyTorch's `Linear` does, around 0.

# %%
print("\n2.2 With W_Q, W_K and W_V")
variants = {"self_attention": "between 0 and 1", "self_attention_linear": "around 0"}
heads = {}
for variant, how in variants.items():
    stage = recorded[variant]
    head = attnlab.self_attention(X, stage["W_Q"], stage["W_K"], stage["W_V"])
    heads[variant] = head
    print(f"\nWeights, with W_Q, W_K, W_V drawn {how}")
    print(attnlab.table(head.weights, rows=words, columns=words))
    for name in ("Q", "K", "V", "raw_scores", "scores", "weights", "context"):
        print(figures.check(name, getattr(head, name), stage[name], decimals=6))

# %% [markdown]
# **Round last.** In print you may meet 1.2, 1.8 and 1.5 as the first variant's raw scores of
# "journey" with "Your", "journey" and "step". Those are the products, cut off after one decimal in
# the end. Whoever cuts `Q` and `K` first gets others.


# %%
def cut(x: Array) -> Array:
    """x without what follows the first decimal."""
    cut_off: Array = np.trunc(x * 10) / 10
    return cut_off


head = heads["self_attention"]
exact = head.raw_scores[journey]
of_cut_rows = cut(head.Q[journey]) @ cut(head.K).T
print("\nRaw scores of journey, first variant")
print(
    attnlab.table(
        [exact, cut(exact), of_cut_rows],
        rows=["as they are", "cut off in the end", "Q and K cut off first"],
        columns=words,
    )
)
assert np.array_equal(cut(exact)[[0, 1, 5]], [1.2, 1.8, 1.5])
assert not np.allclose(cut(of_cut_rows), cut(exact))

# %% [markdown]
# ## 2.3 No word sees the future
#
# A model that predicts the next word must not look at it. Row by row (the word that asks), every
# column to the right of the diagonal is closed. `True` means: may attend.
#
# With queries as rows, the closed part is the **upper right**. Some drawings have the keys as rows;
# there it is the lower left. It is the same mask, turned over.

# %%
print("\n2.3 No word sees the future")
mask = attnlab.causal_mask(len(words))
print("\nThe mask: a row is the word that asks, 1 for may attend")
print(attnlab.table(mask, rows=words, columns=words, decimals=0))
print("\nTurned over: a row is a key, a column is the word that asks")
print(attnlab.table(mask.T, rows=words, columns=words, decimals=0))

# %% [markdown]
# **One way:** take the weights that we have, set the future to 0, and divide each row by what is
# left, so that it sums to 1 again.
#
# **The other way:** set the future's *scores* to -inf, so that softmax gives it `e^-inf = 0`, and
# take the softmax once.

# %%
head = heads["self_attention_linear"]
zeroed = np.where(mask, head.weights, 0.0)
renormalised = zeroed / zeroed.sum(axis=1, keepdims=True)

stage = recorded["self_attention_linear"]
causal = attnlab.self_attention(X, stage["W_Q"], stage["W_K"], stage["W_V"], mask=mask)

print("\nmasked_scores")
print(attnlab.table(causal.masked_scores, rows=words, columns=words))
print("\nTheir softmax: the weights")
print(attnlab.table(causal.weights, rows=words, columns=words))
print()
stage = recorded["causal"]
print(figures.check("zeroed weights", zeroed, stage["zeroed_weights"], 6))
print(figures.check("renormalised weights", renormalised, stage["renormalised_weights"], 6))
print(figures.check("weights, the other way", causal.weights, stage["weights"], 6))
print(figures.check("context, the other way", causal.context, stage["context"], 6))
assert np.allclose(renormalised, causal.weights)

# %% [markdown]
# Why do the two ways agree? Look at the row of "starts", the third word. The first way divides each
# power of `e` by the sum of all six, then by the share that the first three have of that sum. The
# sum of all six is in both divisions and cancels; what is left is the sum of three.
#
#     (e^score / sum of six) / (sum of three / sum of six)  =  e^score / sum of three

# %%
starts = words.index("starts")
powers = np.exp(head.scores[starts])
of_six, of_three = powers.sum(), powers[: starts + 1].sum()
print("\nThe row of starts")
print(f"  powers of e     {'  '.join(f'{power:.4f}' for power in powers)}")
print(f"  sum of six      {of_six:.4f}")
print(f"  sum of three    {of_three:.4f}, a share of {of_three / of_six:.4f}")
print()
for word, power in zip(words[: starts + 1], powers, strict=False):
    one_way = f"({power:.4f} / {of_six:.4f}) / {of_three / of_six:.4f}"
    first = (power / of_six) / (of_three / of_six)
    second = power / of_three
    print(f"  {word:8} {one_way} = {first:.4f}   {power:.4f} / {of_three:.4f} = {second:.4f}")
    assert np.isclose(first, second)

# %% [markdown]
# ## 2.4 Dropout
#
# While a model is trained, some weights are set to 0 at random, so that it does not come to rely
# on a few of them. With p = 0.5 that is half of them on average, and those that stay are multiplied
# by 1 / (1 - p) = 2.
#
# First with the mask that was recorded. Look at "journey": both its weights went, its row is empty.
# A row does not sum to 1 any more.

# %%
print("\n2.4 Dropout")
dropout_mask = np.array(recorded["dropout"]["mask"])
dropped = causal.weights * dropout_mask
print("\nThe recorded mask, and the weights times the mask with their sums")
print(attnlab.table(dropout_mask, rows=words, columns=words, decimals=0))
print()
sums = dropped.sum(axis=1, keepdims=True)
print(attnlab.table(np.hstack([dropped, sums]), rows=words, columns=[*words, "sum"]))
print()
print(figures.check("dropped weights", dropped, recorded["dropout"]["weights"], 6))

# %% [markdown]
# The library draws its own mask. The same seed, 123, gives other draws here than in PyTorch: the
# two have different random generators. The rule is the same.

# %%
stage = recorded["self_attention_linear"]
matrices = stage["W_Q"], stage["W_K"], stage["W_V"]
once = attnlab.self_attention(X, *matrices, mask=mask, dropout=0.5, rng=123)
assert once.dropout_mask is not None
assert np.allclose(once.weights, causal.weights * once.dropout_mask)
print("\nThe library's mask for dropout=0.5, rng=123")
print(attnlab.table(once.dropout_mask, rows=words, columns=words, decimals=0))

# %% [markdown]
# Why times 2? So that the **mean** stays what it was. Drop out 100,000 times: each draw is either 0
# or double, and the mean of all draws is the weight without dropout. Without the factor it would be
# half of it.

# %%
draws = 100_000
many = attnlab.self_attention(
    np.broadcast_to(X, (draws, *X.shape)), *matrices, mask=mask, dropout=0.5, rng=123
)
mean = many.weights.mean(axis=0)
last = words[-1]
print(f"\nThe weights of {last}")
print(
    attnlab.table(
        [causal.weights[-1], once.weights[-1], mean[-1], mean[-1] / 2],
        rows=["no dropout", "one draw", f"mean of {draws:,} draws", "mean without the factor 2"],
        columns=words,
    )
)
distance = np.abs(mean - causal.weights).max()
print(f"\nMean of the draws against no dropout, all 36 weights: at most {distance:.4f} apart")
assert distance < 0.01

# %% [markdown]
# ## 2.5 Two heads
#
# A head has one set of weights for each word. Two heads have two, from matrices of their own. Their
# contexts are put side by side: two columns from head 0, two from head 1.
#
# The library takes the heads' matrices side by side as well, as GPT-2 stores them. GPT-2 then mixes
# the four columns with an output matrix `W_O`. Our figures stop before that, so here `W_O` is the
# identity matrix, which changes nothing.

# %%
print("\n2.5 Two heads")
parts = recorded["multi_head"]["heads"]
W_Q, W_K, W_V = (np.hstack([part[name] for part in parts]) for name in ("W_Q", "W_K", "W_V"))
both = attnlab.multi_head_attention(X, W_Q, W_K, W_V, np.eye(4), n_head=2, mask=mask)

for h, (head_h, part) in enumerate(zip(both.heads, parts, strict=True)):
    print(f"\nWeights of head {h}")
    print(attnlab.table(head_h.weights, rows=words, columns=words))
    print(figures.check("weights", head_h.weights, part["weights"], 6))
    print(figures.check("context", head_h.context, part["context"], 6))

print("\nThe contexts side by side (concat)")
names = ["head 0, 0", "head 0, 1", "head 1, 0", "head 1, 1"]
print(attnlab.table(both.concat, rows=words, columns=names))
print(figures.check("concat", both.concat, recorded["multi_head"]["concatenated"], 6))
assert np.allclose(both.concat, np.hstack([head_h.context for head_h in both.heads]))
assert np.array_equal(both.output, both.concat)

# %% [markdown]
# ## With a pencil
#
# * In 2.3 the first word's only weight is 1. Could it be anything else?
# * In 2.3 the last row did not change when the mask came in. Why not?
# * In 2.4 take p = 0.2. What is 1 / (1 - p), and how often does a weight stay?
