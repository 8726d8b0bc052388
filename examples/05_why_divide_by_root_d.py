# %% [markdown]
# # 5. Why scores are divided by √d
#
# > Afterwards you can say: “The wider a key, the further the scores spread, by √d. Then softmax
# > gives almost everything to one key and hardly learns. Divided by √d, scores spread equally at
# > every width.”
#
# [`scores`](../attnlab/equations.py) `= raw_scores / √d`, where d is the width of a key. This isn't
# for speed: the division is an additional operation. It keeps the scores from growing with d, so
# that softmax stays soft enough to learn from. A few experiments show this.
#
# Change any number in the first cell and run the chapter again: everything is recomputed.
#
# * **Objective**: Explain by experiment why **scaled dot-product attention** divides by √d, and
#   neither by d nor by nothing.
# * **Before this**: [chapter 3](03_one_head_by_hand.py).
# * **Time**: about 35 minutes, exercises included.
# * **Misconception**: "The division saves time." It costs a little time; it keeps softmax where it
#   can learn. "√d is the variance." It is the standard deviation.

# %%
import math

import numpy as np

import attnlab
from attnlab import figures, pictures
from attnlab.support.console import prepare_script

prepare_script()  # print on any terminal, and into pipes

rng = np.random.default_rng(0)
dice = (2, 8, 32)  # how many are thrown at once
draws = 50_000
widths = (1, 5, 25, 100)  # of a key
scores = np.array([0.1, -0.2, 0.3, -0.2, 0.5])
factors = (1, 8, 64)
queries, choices = 5_000, 10

# %% [markdown]
# ## 5.1 Dice
#
# How far is a sum of dice from its mean? The **variance** is the mean square of that distance, and
# the **spread** (standard deviation) is the root of the variance. One die has variance 35/12 =
# 2.9167. Dice are independent: a high one does not make the next one high, and often offsets a low
# one. So the variances add up: n dice have n times the variance of one die, and only √n times its
# spread. Four times as many dice spread twice as far, not four times as far.

# %%
throws = {}
probabilities = {}
distances = np.arange(-30, 31)
for n in dice:
    throws[n] = rng.integers(1, 7, (draws, n)).sum(axis=1)
    probability = np.ones(1)
    for _ in range(n):
        probability = np.convolve(probability, np.full(6, 1 / 6))  # one more die
    sums = np.arange(n, 6 * n + 1)
    probabilities[f"{n} dice"] = np.interp(distances, sums - 3.5 * n, probability, left=0, right=0)

print("5.1 Dice")
print(f"\nThe sum of n dice, {draws:,} throws")
print(
    attnlab.table(
        [[35 / 12 * n, throws[n].var(), math.sqrt(35 / 12 * n), throws[n].std()] for n in dice],
        rows=[f"n = {n}" for n in dice],
        columns=["n · 35/12", "variance", "√(n · 35/12)", "spread"],
        decimals=2,
    )
)
pictures.curves(probabilities, x=distances, x_name="distance from the mean", y_name="probability")

# %% [markdown]
# ## 5.2 A dot product of d numbers is like a sum of d dice
#
# Take a query q and a key k of d numbers each, all drawn from a normal distribution with mean 0 and
# variance 1. One product of two such numbers acts like a die of variance 1. q·k is the sum of d
# such products, so its variance is d: about 5 for d = 5, about 100 for d = 100. (The variance grows
# with d; the spread, its root, grows with √d.) So dividing by √d brings the variance back to 1,
# whatever d is.

# %%
spread = []
for d in widths:
    q, k = rng.standard_normal((2, draws, d))
    products = (q * k).sum(axis=1)
    divided = products / math.sqrt(d)
    spread.append([products.var(), products.std(), divided.var()])

print(f"\n5.2 q·k, {draws:,} draws")
print(
    attnlab.table(
        spread,
        rows=[f"d = {d}" for d in widths],
        columns=["variance of q·k", "spread of q·k", "variance of q·k / √d"],
        decimals=2,
    )
)

# %% [markdown]
# ## 5.3 Softmax gets sharper as its input grows
#
# Here are five scores, and the same five scores times 8. Why 8? A head of GPT-2 has d = 64, and √64
# is 8, so this is what its [`softmax`](../attnlab/equations.py) would get without the division. The
# order stays the same, the weights do not: with the scores above, one key takes 80 %, and two keys
# keep 0.3 % each. Times 64, the weights are sharper still.

# %%
weights = {factor: attnlab.softmax(factor * scores) for factor in factors}
keys = [f"key {j}" for j in range(len(scores))]

print("\n5.3 Softmax of some scores, and of larger multiples of them")
print(
    attnlab.table(
        [scores, *weights.values()],
        rows=["scores", *(f"softmax(scores · {factor})" for factor in weights)],
        columns=keys,
    )
)
print()
published = {
    "scores": [0.1, -0.2, 0.3, -0.2, 0.5],
    "factors": (1, 8),
    "weights": [[0.1925, 0.1426, 0.2351, 0.1426, 0.2872], [0.0326, 0.0030, 0.1615, 0.0030, 0.8000]],
}
inputs = {"scores": scores, "factors": factors[:2]}
print(figures.verdict(published, inputs, 4, weights=[weights[factor] for factor in factors[:2]]))
pictures.heatmap(
    [*weights.values()],
    rows=[f"scores · {factor}" for factor in weights],
    columns=keys,
    title="softmax",
)

# %% [markdown]
# [A head without division by √d](book/pages/en/guide.md#explore
# "playground.html#depth=lab&layer=0&head=3&query=7&ablate=root").
# In most rows one key has nearly all the weight. Press × next to *no division by √Dk*, and watch
# the row of "it" spread over several keys.

# %% [markdown]
# ## 5.4 A sharp softmax stops learning
#
# Training by **gradient descent** asks: if this score were a little larger, how much would the
# weights change? Let us try it: make one score at a time a millionth larger, and look at its
# weight. By calculus the weight changes w · (1 - w) times as much as the score.

# %%
epsilon = 1e-6
changes = {}
for factor, w in weights.items():
    perturbed = attnlab.softmax(factor * scores + epsilon * np.eye(len(scores)))  # a row for each
    changes[factor] = (np.diag(perturbed) - w) / epsilon

print("\n5.4 How much a key's weight changes per small change of its score")
print(
    attnlab.table(
        [*changes.values()],
        rows=[f"scores · {factor}" for factor in weights],
        columns=keys,
    )
)
difference = max(np.abs(changes[factor] - w * (1 - w)).max() for factor, w in weights.items())
print(f"w · (1 - w) and the measured values: at most {difference:.0e} apart")

# %% [markdown]
# With the scores above, every number is near 0.1 or 0.2: each key's score can be learned. With the
# scores times 8, keys 1 and 3 have 0.0029: the keys that lost get hardly any gradient. Times 64,
# all numbers are 0 to four decimals, the winner's too: the softmax is **saturated**, and nothing is
# learned, whichever key should have won. [Chapter 13](13_softmax_that_saturates.py) shows what that
# does to training.

# %% [markdown]
# ## 5.5 Why the root, and not d or d²
#
# A random query attends to random keys (ten keys, with the numbers above): how much weight does the
# winner take? Without division, the wider the keys, the closer the winner comes to taking all.
# Divided by d or d² the scores shrink as d grows, until all keys get equal weights: then the head
# can't select, and the matrices would have to grow to compensate. Only with the root is the
# winner's weight nearly the same for every d, since only the root cancels exactly the spread of d
# dice.

# %%
divisors = {"1": 0.0, "√d": 0.5, "d": 1.0, "d²": 2.0}  # as powers of d
largest_weights = []
for d in widths:
    Q = rng.standard_normal((queries, 1, d))
    K = rng.standard_normal((queries, choices, d))
    raw_scores = attnlab.attention(Q, K, K).raw_scores
    by_divisor = [attnlab.softmax(raw_scores / d**power) for power in divisors.values()]
    largest_weights.append([row_weights.max(axis=-1).mean() for row_weights in by_divisor])

print(f"\n5.5 The largest weight, mean over {queries:,} queries with {choices} keys each")
print(
    attnlab.table(
        largest_weights,
        rows=[f"d = {d}" for d in widths],
        columns=[f"q·k / {name}" for name in divisors],
        decimals=2,
    )
)
print(f"Equal weights would be {1 / choices:.2f}")
pictures.curves(
    {
        f"q·k / {name}": line
        for name, line in zip(divisors, zip(*largest_weights, strict=True), strict=True)
    },
    x=widths,
    x_name="d",
    y_name="largest weight",
)

# %% [markdown]
# Are a model's queries and keys like these random ones? Before training they are, but smaller. In
# GPT-2 each number of a query is the sum of 768 products of a number with variance 1 (LayerNorm
# ensures that) and a number of `W_Q` with spread 0.02. As with the dice, its spread is
# √768 · 0.02 = 0.55. Training may then make queries and keys longer, and some heads end up giving
# nearly all their weight to one token ([chapter 7](07_heads_that_learned.py)). The division does
# not prevent that. It makes the start soft, where every score can still be learned.

# %% [markdown]
# ## 5.6 What it costs
#
# Here is the cost for one head of GPT-2 and 12 tokens. The division comes on top of the products,
# so it can't be what makes attention fast.

# %%
T, d = 12, 64
print(f"\n5.6 One head, {T} tokens, d = {d}")
print(f"  raw_scores                  {T} · {T} · {d} = {T * T * d:,} multiplications")
print(f"  scores = raw_scores / √{d}   {T} · {T}      = {T * T:,} divisions more")

# %% [markdown]
# ## 5.7 Predict, change, see
#
# **Exercise 1 (basic).** How many dice spread ten times as far as one? Predict first, then put
# `dice = (1, 10, 100)` into the first cell and read the column of the exact spread.
#
# <details><summary>Answer</summary>
#
# A hundred dice do, since the root of 100 is 10: one die has a spread of 1.71, and a hundred dice
# have 17.08. Ten dice only have a spread of 5.40.
#
# </details>
#
# **Exercise 2 (medium).** In 5.2 divide by d instead of its root: `divided = products / d`. What is
# the variance for d = 100?
#
# <details><summary>Answer</summary>
#
# The variance is 0.01: dividing a number by d divides its variance by d², and 100 / 100² is 1 /
# 100.
#
# </details>
#
# **Exercise 3 (basic).** In the first cell make all five scores 0.7. What does multiplying them by
# 64 do to their weights?
#
# <details><summary>Answer</summary>
#
# It does nothing: each key has 0.2000 whatever the factor. Softmax depends only on differences
# between scores, and these five scores don't differ.
#
# </details>
#
# **Exercise 4 (medium).** Put `factors = (1, 8, -1)`. Which keys win when the signs of the scores
# flip, and can you say by how much before you look?
#
# <details><summary>Answer</summary>
#
# Keys 1 and 3, which were last, tie for first with 0.2602 each. Each has e^0.2 out of the sum of
# e^-0.1, e^0.2, e^-0.3, e^0.2 and e^-0.5.
#
# </details>
#
# **Exercise 5 (medium).** A text divides the raw scores 0.1, 1.8, 0.6, 0.1, 0.1 by √4 = 2, and
# gives the weights 0.1, 0.5, 0.2, 0.1, 0.1. Is that possible? Predict first, then make the five raw
# scores the `scores`, and put `factors = (1, 1 / 2)`.
#
# <details><summary>Answer</summary>
#
# No, these are the weights without the division: 0.099, 0.541, 0.163, 0.099, 0.099. Divided by 2
# the same scores give softer weights: 0.151, 0.353, 0.194, 0.151, 0.151.
#
# </details>

# %% [markdown]
# ## Summary
#
# * A dot product of d independent products has a variance that grows with d, and a standard
#   deviation that grows with √d.
# * Scores that are spread too far make softmax give almost everything to one key.
# * A softmax that is almost 0 or 1 has almost no slope, so it hardly learns.
# * Dividing by √d keeps the spread the same at every width.
