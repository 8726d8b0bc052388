# %% [markdown]
# # 1. One head of attention, by hand
#
# Three words, 猫 吃 鱼 (cat eats fish), and one head of attention that is small enough for a
# pencil. Each word is a row of four numbers. Nobody trained these numbers: they were written down
# so that the arithmetic stays short. What is done with them is what a head of GPT-2 does, but for
# its biases and its mask (the mask comes in lesson 2).
#
#     X  ->  Q, K, V  ->  raw_scores  ->  scores  ->  weights  ->  context
#
# Each step is held against recorded figures: the printed output of a tutorial's program.

# %%
import math

import numpy as np

import attnlab
from attnlab import figures
from attnlab.console import prepare_script
from attnlab.equations import Array

prepare_script()  # for any terminal, and for pipes

recorded = figures.load("cat_eats_fish")
words = recorded["words"]
X, W_Q, W_K, W_V = (np.array(recorded[name]) for name in ("X", "W_Q", "W_K", "W_V"))

print("X: three words, four numbers each")
print(attnlab.table(X, rows=words, decimals=1))

# %% [markdown]
# ## 1.1 Query, key, value
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
print("\n1.1 Query, key, value")
for name, W in {"W_Q": W_Q, "W_K": W_K, "W_V": W_V}.items():
    print(f"\n{name}")
    print(attnlab.table(W, decimals=1))


def multiply(left: Array, right: Array, columns: list[str], decimals: tuple[int, int]) -> Array:
    """The matrix product of the two, every sum of products written out."""
    product = np.zeros((len(left), len(columns)))
    for i, word in enumerate(words):
        for j, column in enumerate(columns):
            pairs = list(zip(left[i], right[:, j], strict=True))
            product[i, j] = sum(a * b for a, b in pairs)
            terms = " + ".join(f"{a:.{decimals[0]}f}·{b:.{decimals[1]}f}" for a, b in pairs)
            print(f"  {word} {column}   {terms} = {product[i, j]:.4f}")
    return product


# %%
columns = ["column 0", "column 1"]
print("\nQ = X W_Q")
Q = multiply(X, W_Q, columns, decimals=(1, 1))
print("\nK = X W_K")
K = multiply(X, W_K, columns, decimals=(1, 1))
print("\nV = X W_V")
V = multiply(X, W_V, columns, decimals=(1, 1))

print("\nAgainst the recorded figures")
for name, matrix in {"Q": Q, "K": K, "V": V}.items():
    print(figures.check(name, matrix, recorded[name], decimals=4))

# %% [markdown]
# ## 1.2 Raw scores
#
# How well does a query fit a key? Multiply the two rows number by number and add up:
# `raw_scores = Q Kᵀ`. In the table a row is the word that asks, a column the word that it looks at.

# %%
print("\n1.2 raw_scores = Q Kᵀ")
raw_scores = multiply(Q, K.T, [f"asks {word}" for word in words], decimals=(2, 2))
print()
print(attnlab.table(raw_scores, rows=words, columns=words))
print()
print(figures.check("raw_scores", raw_scores, recorded["raw_scores"], decimals=4))

# %% [markdown]
# ## 1.3 Scores
#
# A key has two numbers, so every raw score is divided by √2. Lesson 3 is about why.

# %%
width = K.shape[-1]
root = math.sqrt(width)
scores = raw_scores / root

print(f"\n1.3 scores = raw_scores / √{width} = raw_scores / {root:.4f}")
for i, word in enumerate(words):
    quotients = [f"{raw_scores[i, j]:.4f}/{root:.4f} = {scores[i, j]:.4f}" for j in range(3)]
    print(f"  {word}   {'   '.join(quotients)}")
print()
print(figures.check("scores", scores, recorded["scores"], decimals=4))

# %% [markdown]
# ## 1.4 Weights
#
# Softmax makes shares out of scores. Raise `e` to the power of each score: whatever the score, that
# is positive. Then divide by the sum, so that the shares add up to 1.
#
# First on three round numbers, 1.0, 0.5 and 0.1. (They also circulate with the shares 0.57, 0.29
# and 0.14. Those are not their softmax; work it out and see.)

# %%
print("\n1.4 weights = softmax(scores)")
example = [1.0, 0.5, 0.1]
powers = [math.exp(score) for score in example]
print("\nsoftmax of 1.0, 0.5, 0.1")
print(f"  {' + '.join(f'{power:.4f}' for power in powers)} = {sum(powers):.4f}")
for power in powers:
    print(f"  {power:.4f} / {sum(powers):.4f} = {power / sum(powers):.3f}")
assert np.allclose(attnlab.softmax(example), [0.497, 0.301, 0.202], atol=0.0005)

# %% [markdown]
# Now our three words.

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
for i, word in enumerate(words):
    total = exp_row_sums[i]
    quotients = [f"{exp_of_scores[i, j]:.4f}/{total:.4f} = {weights[i, j]:.4f}" for j in range(3)]
    print(f"  {word}   {'   '.join(quotients)}")

print()
print(figures.check("exp_of_scores", exp_of_scores, recorded["exp_of_scores"], decimals=7))
print(figures.check("exp_row_sums", exp_row_sums, recorded["exp_row_sums"], decimals=3))
print(figures.check("weights", weights, recorded["weights"], decimals=4))
assert np.allclose(weights.sum(axis=1), 1)
assert np.allclose(weights, 1 / 3, atol=0.02)
assert np.allclose(weights, attnlab.softmax(scores))

# %% [markdown]
# Every row of weights sums to 1. All nine are near a third, because the scores of a row are near
# each other: this head, which nobody trained, has no strong opinion.
#
# **Round last.** The lines above show four decimals, but the program went on with all of them. If
# you go on with the four that you see, the powers of `e` differ from the recorded ones in the fifth
# decimal.

# %%
print("\nLargest difference between our powers of e and the recorded ones")
for what, starting_from in {"all decimals": scores, "four decimals": np.round(scores, 4)}.items():
    difference = np.abs(np.exp(starting_from) - recorded["exp_of_scores"]).max()
    print(f"  starting from scores with {what:13}  {difference:.7f}")
assert not figures.compare("", np.exp(np.round(scores, 4)), recorded["exp_of_scores"], 7).agrees

# %% [markdown]
# ## 1.5 Context
#
# Each word collects the values of all three words, as much of each as the weights say:
# `context = weights V`. This mixture is what the head hands on.

# %%
print("\n1.5 context = weights V")
context = multiply(weights, V, columns, decimals=(4, 2))
print()
print(figures.check("context", context, recorded["context"], decimals=4))

# %% [markdown]
# ## 1.6 The same in one line
#
# The library goes the same way and keeps every step under its name.

# %%
head = attnlab.self_attention(X, W_Q, W_K, W_V)

print("\n1.6 attnlab.self_attention(X, W_Q, W_K, W_V)")
print(head)
by_hand = {"Q": Q, "K": K, "V": V, "raw_scores": raw_scores, "scores": scores}
by_hand |= {"weights": weights, "context": context}
print("\nAgainst the recorded figures")
for name, matrix in by_hand.items():
    assert np.allclose(getattr(head, name), matrix)
    print(figures.check(name, getattr(head, name), recorded[name], decimals=4))

# %% [markdown]
# ## With a pencil
#
# * Which word does 鱼 look at most, and by how much?
# * Double every number of `W_Q`. What happens to `raw_scores`, and are the weights still near a
#   third? Change `W_Q` in the first cell and see.
