# %% [markdown]
# # 3. One head of attention, by hand
#
# Three words, 猫 吃 鱼 (cat eats fish), and one head of attention that is small enough for a
# pencil. Each word is a row of four numbers. Nobody trained these numbers: they were written down
# so that the arithmetic stays short. What is done with them is what a head of GPT-2 does, but for
# its biases and its mask (the mask comes in chapter 4).
#
#     X  ->  Q, K, V  ->  raw_scores  ->  scores  ->  weights  ->  context
#
# Change any number here, and run it again: the chapter goes on with yours. A tutorial's program has
# printed the same steps; each section ends with a line that tells whether its figures are ours.

# %%
import math
from collections.abc import Sequence

import numpy as np

import attnlab
from attnlab import figures
from attnlab.console import prepare_script
from attnlab.equations import Array

prepare_script()  # for any terminal, and for pipes

words = ["猫", "吃", "鱼"]
X = np.array(
    [
        [0.8, 0.2, 0.4, 0.1],  # 猫
        [0.1, 0.9, 0.3, 0.7],  # 吃
        [0.3, 0.1, 0.9, 0.2],  # 鱼
    ]
)
W_Q = np.array([[0.5, 0.2], [0.1, 0.3], [0.4, 0.6], [0.2, 0.1]])
W_K = np.array([[0.1, 0.5], [0.3, 0.2], [0.6, 0.4], [0.2, 0.3]])
W_V = np.array([[0.2, 0.4], [0.5, 0.1], [0.3, 0.6], [0.1, 0.2]])

print("X: three words, four numbers each")
print(attnlab.table(X, rows=words, decimals=2))

# %% [markdown]
# ## 3.1 Query, key, value
#
# Three small matrices turn each word into three shorter rows:
#
# * its **query**, what it looks for: `Q = X W_Q`
# * its **key**, what it is found by: `K = X W_K`
# * its **value**, what it gives to a word that looks at it: `V = X W_V`
#
# Every number of `Q` is one row of `X` times one column of `W_Q`: four products and their sum. To
# do it with a pencil, start with the matrices.

# %%
recorded = figures.load("cat_eats_fish")
matrices = {"X": X, "W_Q": W_Q, "W_K": W_K, "W_V": W_V}
inputs = {name: (matrix, recorded[name]) for name, matrix in matrices.items()}

print("\n3.1 Query, key, value")
for name in ("W_Q", "W_K", "W_V"):
    print(f"\n{name}")
    print(attnlab.table(matrices[name], decimals=2))


def multiply(left: Array, right: Array, columns: Sequence[str] = ()) -> Array:
    """The matrix product of the two, every sum of products written out."""
    product = np.zeros((len(left), right.shape[1]))
    names = columns or [f"column {j}" for j in range(right.shape[1])]
    for i, word in enumerate(words):
        for j, name in enumerate(names):
            pairs = list(zip(left[i], right[:, j], strict=True))
            product[i, j] = sum(a * b for a, b in pairs)
            terms = " + ".join(f"{a:.4g}·{b:.4g}" for a, b in pairs)
            print(f"  {word} {name}   {terms} = {product[i, j]:.4f}")
    return product


# %%
print("\nQ = X W_Q")
Q = multiply(X, W_Q)
print("\nK = X W_K")
K = multiply(X, W_K)
print("\nV = X W_V")
V = multiply(X, W_V)
print()
print(figures.verdict(inputs, 4, Q=(Q, recorded["Q"]), K=(K, recorded["K"]), V=(V, recorded["V"])))

# %% [markdown]
# ## 3.2 Raw scores
#
# How well does a query fit a key? Multiply the two rows number by number and add up:
# `raw_scores = Q Kᵀ`. In the table a row is the word that asks, a column the word that it looks at.

# %%
print("\n3.2 raw_scores = Q Kᵀ")
raw_scores = multiply(Q, K.T, [f"asks {word}" for word in words])
print()
print(attnlab.table(raw_scores, rows=words, columns=words))
print()
print(figures.verdict(inputs, 4, raw_scores=(raw_scores, recorded["raw_scores"])))

# %% [markdown]
# ## 3.3 Scores
#
# Every raw score is divided by √Dk, where Dk is how many numbers a key has: by √2, with the
# matrices above. Chapter 5 is about why.

# %%
width = K.shape[-1]
root = math.sqrt(width)
scores = raw_scores / root

print(f"\n3.3 scores = raw_scores / √{width} = raw_scores / {root:.4f}")
for word, raw_row, row in zip(words, raw_scores, scores, strict=True):
    quotients = [f"{r:.4f}/{root:.4f} = {s:.4f}" for r, s in zip(raw_row, row, strict=True)]
    print(f"  {word}   {'   '.join(quotients)}")
print()
print(figures.verdict(inputs, 4, scores=(scores, recorded["scores"])))

# %% [markdown]
# ## 3.4 Weights
#
# Softmax makes shares out of scores. Raise `e` to the power of each score: whatever the score, that
# is positive. Then divide by the sum, so that the shares add up to 1.
#
# First on three round numbers, 1.0, 0.5 and 0.1. (They also circulate with the shares 0.57, 0.29
# and 0.14. Those are not their softmax; work it out and see.)

# %%
print("\n3.4 weights = softmax(scores)")
example = [1.0, 0.5, 0.1]
powers = [math.exp(score) for score in example]
print(f"\nsoftmax of {', '.join(map(str, example))}")
print(f"  {' + '.join(f'{power:.4f}' for power in powers)} = {sum(powers):.4f}")
for power in powers:
    print(f"  {power:.4f} / {sum(powers):.4f} = {power / sum(powers):.3f}")

# %% [markdown]
# Now our words. (With scores above 709 a power of `e` is more than a float64 can hold. So the
# library takes each row's largest score off first, which changes no share.)

# %%
exp_of_scores = np.exp(scores)
exp_row_sums = exp_of_scores.sum(axis=1)
weights = exp_of_scores / exp_row_sums[:, None]

print("\ne to the power of each score, and the sum of the row")
for i, word in enumerate(words):
    written = " + ".join(f"e^{score:.4f}" for score in scores[i])
    numbers = " + ".join(f"{number:.4f}" for number in exp_of_scores[i])
    print(f"  {word}   {written} = {numbers} = {exp_row_sums[i]:.4f}")

print("\nEach of them divided by the sum of its row: the weights")
for word, row, total, shares in zip(words, exp_of_scores, exp_row_sums, weights, strict=True):
    quotients = [f"{e:.4f}/{total:.4f} = {share:.4f}" for e, share in zip(row, shares, strict=True)]
    print(f"  {word}   {'   '.join(quotients)}")

print()
print(figures.verdict(inputs, 7, exp_of_scores=(exp_of_scores, recorded["exp_of_scores"])))
print(figures.verdict(inputs, 4, weights=(weights, recorded["weights"])))

# %% [markdown]
# Every row of weights sums to 1. With the numbers above all nine are near a third, because the
# scores of a row are near each other: this head, which nobody trained, has no strong opinion.
#
# **Round last.** The lines above show four decimals, but the program went on with all of them. If
# you go on with the four that you see, the powers of `e` come out different from the fifth decimal
# on.

# %%
difference = np.abs(np.exp(np.round(scores, 4)) - exp_of_scores).max()
print("\nPowers of e, of scores with four decimals and with all of them")
print(f"  largest difference  {difference:.7f}")

# %% [markdown]
# ## 3.5 Context
#
# Each word collects the values of all words, as much of each as the weights say:
# `context = weights V`. This mixture is what the head hands on.

# %%
print("\n3.5 context = weights V")
context = multiply(weights, V)
print()
print(figures.verdict(inputs, 4, context=(context, recorded["context"])))

# %% [markdown]
# ## 3.6 The same in one line
#
# The library goes the same way and keeps every step under its name.

# %%
head = attnlab.self_attention(X, W_Q, W_K, W_V)

print("\n3.6 attnlab.self_attention(X, W_Q, W_K, W_V)")
print(head)
print("\nLargest difference from what we did by hand")
for name, matrix in {"scores": scores, "weights": weights, "context": context}.items():
    print(f"  {name:8} {np.abs(getattr(head, name) - matrix).max():.0e}")
head

# %% [markdown]
# ## With a pencil
#
# * Which word does 鱼 look at most, and by how much?
# * Double every number of `W_Q`. What happens to `raw_scores`, and are the weights still near a
#   third? Put `W_Q = 2 * W_Q` below the matrices in the first cell and see.
