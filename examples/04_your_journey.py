# %% [markdown]
# # 4. Your journey starts with one step
#
# Six words, three numbers each. We build attention in stages: with nothing to learn, with `W_Q`,
# `W_K` and `W_V`, then so that no word sees the words after it, with dropout, and with two heads.
#
# Change any number, and run it again: the chapter goes on with yours. The same stages were computed
# with PyTorch to six decimals; each ends with a line that tells whether those figures are ours.

# %%
import numpy as np

import attnlab
from attnlab import figures
from attnlab.console import prepare_script
from attnlab.equations import Array

prepare_script()  # for any terminal, and for pipes

words = ["Your", "journey", "starts", "with", "one", "step"]
X = np.array(
    [
        [0.43, 0.15, 0.89],  # Your
        [0.55, 0.87, 0.66],  # journey
        [0.57, 0.85, 0.64],  # starts
        [0.22, 0.58, 0.33],  # with
        [0.77, 0.25, 0.10],  # one
        [0.05, 0.80, 0.55],  # step
    ]
)
T = len(words)

print("X: six words, three numbers each")
print(attnlab.table(X, rows=words, decimals=2))

# %% [markdown]
# ## 4.1 With nothing to learn
#
# How alike are two words? Multiply their rows number by number and add up: for "journey", six dot
# products. Softmax makes weights of them, and with these weights the six rows of `X` are mixed into
# a new row for "journey". (No division by a root here; that comes with 4.2.)

# %%
recorded = figures.load("journey")

print("\n4.1 With nothing to learn")
journey = min(1, T - 1)  # the second word
for word, row in zip(words, X, strict=True):
    terms = " + ".join(f"{a:.4g}·{b:.4g}" for a, b in zip(X[journey], row, strict=True))
    print(f"  {words[journey]} · {word:7}  {terms} = {X[journey] @ row:.4f}")

raw_scores = X @ X.T
weights = attnlab.softmax(raw_scores)
context = weights @ X

print("\nweights: the softmax of all dot products, row by row")
print(attnlab.table(weights, rows=words, columns=words))
print("\ncontext: weights times X")
print(attnlab.table(context, rows=words))
print()
stage = recorded["no_weights"]
print(
    figures.verdict(
        {"X": (X, recorded["inputs"])},
        6,
        raw_scores=(raw_scores, stage["scores"]),
        weights=(weights, stage["weights"]),
        context=(context, stage["context"]),
    )
)

# %% [markdown]
# ## 4.2 With W_Q, W_K and W_V
#
# No step of 4.1 holds anything to learn. Attention lets a word look with one row (its query), be
# found by another (its key) and give a third (its value), each made by a matrix of its own. The dot
# products are then divided by the root of a key's width: by √2, with the matrices here.
#
# The figures have two variants with different matrices: one drawn between 0 and 1, one drawn as
# PyTorch's `Linear` does, around 0.

# %%
print("\n4.2 With W_Q, W_K and W_V")
variants = {"self_attention": "between 0 and 1", "self_attention_linear": "around 0"}
heads = {}
for variant, how in variants.items():
    stage = recorded[variant]
    W_Q, W_K, W_V = (np.array(stage[name]) for name in ("W_Q", "W_K", "W_V"))
    head = attnlab.self_attention(X, W_Q, W_K, W_V)
    heads[variant] = head
    print(f"\nWeights, with W_Q, W_K, W_V drawn {how}")
    print(attnlab.table(head.weights, rows=words, columns=words))
    inputs = {name: (getattr(head, name), stage[name]) for name in ("W_Q", "W_K", "W_V")}
    inputs["X"] = (X, recorded["inputs"])
    steps = ("Q", "K", "V", "raw_scores", "scores", "weights", "context")
    ours = {name: (getattr(head, name), stage[name]) for name in steps}
    print()
    print(figures.verdict(inputs, 6, **ours))

# %% [markdown]
# **Round last.** In print you may meet 1.2, 1.8 and 1.5 as the first variant's raw scores of
# "journey" with "Your", "journey" and "step". Those are the products of the numbers above, cut off
# after one decimal in the end. Whoever cuts `Q` and `K` first gets others.


# %%
def cut(x: Array) -> Array:
    """x without what follows the first decimal."""
    cut_off: Array = np.trunc(x * 10) / 10
    return cut_off


head = heads["self_attention"]
exact = head.raw_scores[journey]
of_cut_rows = cut(head.Q[journey]) @ cut(head.K).T
print(f"\nRaw scores of {words[journey]}, first variant")
print(
    attnlab.table(
        [exact, cut(exact), of_cut_rows],
        rows=["as they are", "cut off in the end", "Q and K cut off first"],
        columns=words,
    )
)

# %% [markdown]
# ## 4.3 No word sees the future
#
# A model that predicts the next word must not look at it. Row by row (the word that asks), every
# column to the right of the diagonal is closed. `True` means: may attend.
#
# With queries as rows, the closed part is the **upper right**. Some drawings have the keys as rows;
# there it is the lower left. It is the same mask, turned over.

# %%
print("\n4.3 No word sees the future")
mask = attnlab.causal_mask(T)
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

causal = attnlab.self_attention(X, head.W_Q, head.W_K, head.W_V, mask=mask)

print("\nmasked_scores")
print(attnlab.table(causal.masked_scores, rows=words, columns=words))
print("\nTheir softmax: the weights")
print(attnlab.table(causal.weights, rows=words, columns=words))
print()
print(f"One way and the other: at most {np.abs(renormalised - causal.weights).max():.0e} apart")
inputs["mask"] = (mask, np.tri(6, dtype=bool))
stage = recorded["causal"]
print(
    figures.verdict(
        inputs,
        6,
        zeroed=(zeroed, stage["zeroed_weights"]),
        renormalised=(renormalised, stage["renormalised_weights"]),
        weights=(causal.weights, stage["weights"]),
        context=(causal.context, stage["context"]),
    )
)
causal

# %% [markdown]
# Why do the two ways agree? Look at the row of "starts", the third word of six. The first way
# divides each power of `e` by the sum of all six, then by the share that the first three have of
# that sum. The sum of all six is in both divisions and cancels; what is left is the sum of three.
#
#     (e^score / sum of six) / (sum of three / sum of six)  =  e^score / sum of three

# %%
starts = min(2, T - 1)  # the third word
seen = mask[starts]
powers = np.exp(head.scores[starts])
of_all, of_seen = powers.sum(), powers[seen].sum()
print(f"\nThe row of {words[starts]}")
print(f"  powers of e   {'  '.join(f'{power:.4f}' for power in powers)}")
print(f"  sum of all    {of_all:.4f}")
print(f"  sum of seen   {of_seen:.4f}, a share of {of_seen / of_all:.4f}")
print()
for j in np.flatnonzero(seen):
    first = (powers[j] / of_all) / (of_seen / of_all)
    second = powers[j] / of_seen
    one_way = f"({powers[j]:.4f} / {of_all:.4f}) / {of_seen / of_all:.4f} = {first:.4f}"
    print(f"  {words[j]:8} {one_way}   {powers[j]:.4f} / {of_seen:.4f} = {second:.4f}")

# %% [markdown]
# ## 4.4 Dropout
#
# While a model is trained, some weights are set to 0 at random, so that it does not come to rely
# on a few of them. With p = 0.5 that is half of them on average, and those that stay are multiplied
# by 1 / (1 - p) = 2.
#
# First with a mask that was recorded, for p = 0.5. Look at "journey": with the words above both its
# weights went, its row is empty. A row does not sum to 1 any more.

# %%
print("\n4.4 Dropout")
dropout_mask = np.resize(recorded["dropout"]["mask"], (T, T))
dropped = causal.weights * dropout_mask
sums = dropped.sum(axis=1, keepdims=True)
print("\nThe recorded dropout mask")
print(attnlab.table(dropout_mask, rows=words, columns=words, decimals=0))
print("\nWeights times that mask, and the sums of the rows")
print(attnlab.table(np.hstack([dropped, sums]), rows=words, columns=[*words, "sum"]))
print()
print(figures.verdict(inputs, 6, dropped=(dropped, recorded["dropout"]["weights"])))

# %% [markdown]
# The library draws its own mask. The same seed, 123, gives other draws here than in PyTorch: the
# two have different random generators. The rule is the same.

# %%
p, seed = 0.5, 123
matrices = head.W_Q, head.W_K, head.W_V
once = attnlab.self_attention(X, *matrices, mask=mask, dropout=p, rng=seed)
print(f"\nThe library's weights for dropout={p}, rng={seed}")
print(attnlab.table(once.weights, rows=words, columns=words))

# %% [markdown]
# Why times 1 / (1 - p)? So that the **mean** stays what it was. Drop out 100,000 times: a share p
# of the draws is 0, the others are that much larger, and the mean of all draws is the weight
# without dropout. Without the factor it would be a share of 1 - p of it.

# %%
draws = 100_000
many = attnlab.self_attention(
    np.broadcast_to(X, (draws, *X.shape)), *matrices, mask=mask, dropout=p, rng=seed
)
mean = many.weights.mean(axis=0)
factor = 1 / (1 - p)
print(f"\nThe weights of {words[-1]}, p = {p}")
print(
    attnlab.table(
        [causal.weights[-1], once.weights[-1], mean[-1], mean[-1] / factor],
        rows=[
            "no dropout",
            "one draw",
            f"mean of {draws:,} draws",
            f"mean without the factor {factor:.4g}",
        ],
        columns=words,
    )
)
distance = np.abs(mean - causal.weights).max()
print(f"\nMean of the draws against no dropout, all weights: at most {distance:.4f} apart")

# %% [markdown]
# ## 4.5 Two heads
#
# A head has one set of weights for each word. Two heads have two, from matrices of their own. Their
# contexts are put side by side: two columns from head 0, two from head 1.
#
# The library takes the heads' matrices side by side as well, as GPT-2 stores them. GPT-2 then mixes
# the four columns with an output matrix `W_O`. Our figures stop before that, so here `W_O` is the
# identity matrix, which changes nothing.

# %%
print("\n4.5 Two heads")
parts = recorded["multi_head"]["heads"]
W_Q, W_K, W_V = (np.hstack([part[name] for part in parts]) for name in ("W_Q", "W_K", "W_V"))
W_O = np.eye(W_V.shape[1])
both = attnlab.multi_head_attention(X, W_Q, W_K, W_V, W_O, n_head=len(parts), mask=mask)

inputs = {"X": (X, recorded["inputs"]), "mask": (mask, np.tri(6, dtype=bool))}
for h, head_h in enumerate(both.heads):
    print(f"\nWeights of head {h}")
    print(attnlab.table(head_h.weights, rows=words, columns=words))
    for name in ("W_Q", "W_K", "W_V"):
        inputs[f"{name} of head {h}"] = (getattr(head_h, name), parts[h][name])

print("\nThe contexts side by side (concat)")
names = [f"head {h}, {j}" for h in range(len(parts)) for j in range(both.heads[h].W_V.shape[1])]
print(attnlab.table(both.concat, rows=words, columns=names))
print()
print(
    figures.verdict(
        inputs,
        6,
        weights=([one.weights for one in both.heads], [part["weights"] for part in parts]),
        concat=(both.concat, recorded["multi_head"]["concatenated"]),
    )
)
both

# %% [markdown]
# ## With a pencil
#
# * In 4.3 the first word's only weight is 1. Could it be anything else?
# * In 4.3 the last row did not change when the mask came in. Why not?
# * In 4.4 take p = 0.2. What is 1 / (1 - p), and how often does a weight stay?
