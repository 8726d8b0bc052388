# %% [markdown]
# # 5. Why scores are divided by √d
#
# `scores = raw_scores / √d`, where d is the width of a key. Not for speed: the division is one more
# thing to compute. It keeps the scores from growing with d, so that softmax stays soft enough to
# learn from. A few experiments show it. Change any number, and run them again.

# %%
import math

import numpy as np

import attnlab
from attnlab import figures
from attnlab.console import prepare_script
from attnlab.equations import Array

prepare_script()  # for any terminal, and for pipes

# %% [markdown]
# ## 5.1 A dot product of d numbers varies by d
#
# Take a query q and a key k of d numbers each, all drawn from a normal distribution with mean 0 and
# variance 1. One product of two such numbers has variance 1. q·k is the sum of d of them, so its
# variance is d: about 5 for d = 5, about 100 for d = 100. (It is the standard deviation that grows
# with √d, not the variance.) So dividing by √d brings the variance back to 1, whatever d is.

# %%
rng = np.random.default_rng(0)
draws = 50_000
spread = []
widths = (1, 5, 25, 100)
for d in widths:
    q, k = rng.standard_normal((2, draws, d))
    products = (q * k).sum(axis=1)
    divided = products / math.sqrt(d)
    spread.append([products.var(), products.std(), divided.var()])

print(f"5.1 The spread of q·k over {draws:,} draws")
print(
    attnlab.table(
        spread,
        rows=[f"d = {d}" for d in widths],
        columns=["variance of q·k", "standard deviation", "variance of q·k / √d"],
        decimals=2,
    )
)

# %% [markdown]
# ## 5.2 Softmax grows sharp when its input grows
#
# Five scores, and the same five times 8. Why 8? A head of GPT-2 has d = 64 and √64 = 8, so this is
# what its softmax would get without the division. The order stays, the shares do not: with these
# scores one key takes 80 %, and two keep 0.3 % each. Times 64 is the same once more.

# %%
scores = np.array([0.1, -0.2, 0.3, -0.2, 0.5])
times = (1, 8, 64)
weights = {factor: attnlab.softmax(factor * scores) for factor in times}
keys = [f"key {j}" for j in range(len(scores))]

print("\n5.2 Softmax of some scores, and of the same scores made larger")
print(
    attnlab.table(
        [scores, *weights.values()],
        rows=["scores", *(f"softmax(scores · {factor})" for factor in times)],
        columns=keys,
    )
)
print()
print(
    figures.verdict(
        {"scores": (scores, [0.1, -0.2, 0.3, -0.2, 0.5]), "times": (times[:2], (1, 8))},
        4,
        shares=(
            [weights[factor] for factor in times[:2]],
            [[0.1925, 0.1426, 0.2351, 0.1426, 0.2872], [0.0326, 0.0030, 0.1615, 0.0030, 0.8000]],
        ),
    )
)

# %% [markdown]
# ## 5.3 A sharp softmax stops learning
#
# A model learns by asking: if this score were a little larger, how much would each weight change?
# The answers for all pairs are the **Jacobian** of softmax. With weights w it is
#
#     change of weight i for score j  =  w_i · (1 - w_i)  if i = j,  else  -w_i · w_j
#
# or in one line: `diag(w) - w wᵀ`.


# %%
def jacobian(w: Array) -> Array:
    """How each weight (row) changes with each score (column)."""
    changes: Array = np.diag(w) - np.outer(w, w)
    return changes


print("\n5.3 How each weight (row) changes with each score (column): diag(w) - w wᵀ")
for factor in times:
    print(f"\nscores · {factor}")
    print(attnlab.table(jacobian(weights[factor])))

# %% [markdown]
# Is the formula right? Make one score a little larger, look at what the weights do, and compare.

# %%
little = 1e-6
print()
for factor in times:
    x = factor * scores
    measured = np.empty((len(x), len(x)))
    for j, step in enumerate(little * np.eye(len(x))):
        more, less = attnlab.softmax(x + step), attnlab.softmax(x - step)
        measured[:, j] = (more - less) / (2 * little)
    distance = np.abs(measured - jacobian(weights[factor])).max()
    print(f"scores · {factor:<2}  formula and measurement are at most {distance:.0e} apart")

# %% [markdown]
# Read the tables by column; the numbers named here are those of the five scores above. With the
# scores as they are, every column has a number near 0.1 or 0.2 on the diagonal: each key's score
# can be learned. Times 8, keys 1 and 3 have 0.0029: a key that lost hardly hears of it. Times 64,
# all 25 numbers are 0 to four decimals: the softmax is **saturated**, and nothing is learned
# whichever key should have won.

# %%
print("\nThe diagonal of each Jacobian")
print(
    attnlab.table(
        [np.diag(jacobian(weights[factor])) for factor in times],
        rows=[f"scores · {factor}" for factor in times],
        columns=keys,
        decimals=7,
    )
)

# %% [markdown]
# ## 5.4 Both together
#
# A random query looks at ten random keys: how much does the winner take? With the division about
# three tenths, whatever d is. Without it, the wider the keys, the more the winner takes all. (With
# two keys and not ten: other shares, the same story.)

# %%
queries, choices = 5_000, 10
winners = []
for d in widths:
    Q = rng.standard_normal((queries, 1, d))
    K = rng.standard_normal((queries, choices, d))
    result = attnlab.attention(Q, K, K)
    undivided = attnlab.softmax(result.raw_scores)
    winners.append([undivided.max(axis=-1).mean(), result.weights.max(axis=-1).mean()])

print(f"\n5.4 The largest weight, mean over {queries:,} queries with {choices} keys each")
print(
    attnlab.table(
        winners,
        rows=[f"d = {d}" for d in widths],
        columns=["softmax(q·k)", "softmax(q·k / √d)"],
        decimals=2,
    )
)

# %% [markdown]
# ## 5.5 What it costs
#
# One head of GPT-2, 12 tokens: the division comes on top of the products, so it can't be what makes
# attention fast.

# %%
T, d = 12, 64
print(f"\n5.5 One head, {T} tokens, d = {d}")
print(f"  raw_scores                  {T} · {T} · {d} = {T * T * d:,} multiplications")
print(f"  scores = raw_scores / √{d}   {T} · {T}      = {T * T:,} divisions more")

# %% [markdown]
# ## With a pencil
#
# * In 5.2 take scores that are all equal. What does multiplying them do to their shares?
# * In 5.1 divide by d and not by its root. What is the variance for d = 100, and what would softmax
#   make of ten such scores?
