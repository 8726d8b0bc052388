# %% [markdown]
# # 3. One head of attention, by hand
#
# > Afterwards you can say: “I can compute a head of attention with a pencil. Each word's query is
# > compared with all keys, and softmax turns how well they fit into shares. What a word gets is the
# > mean of all values, by these shares.”
#
# Here are three words, 猫 吃 鱼 (cat eats fish), and one attention head, small enough for a pencil.
# Each word is a row of four numbers. These numbers are not trained: they were chosen to keep the
# arithmetic short. The head computes what a head of GPT-2 computes, except for its biases and its
# mask (the mask comes in [chapter 4](04_your_journey.py)).
#
#     X  ->  Q, K, V  ->  raw_scores  ->  scores  ->  weights  ->  context
#
# Change any number in the first cell and run the chapter again: everything is recomputed. A
# published tutorial prints the same steps; a line at the end of each section says whether its
# figures equal ours.
#
# * **Objective**: Compute a head of attention with a pencil, from the input to the context
#   vectors.
# * **Before this**: how to multiply matrices; a pencil.
# * **Time**: about 40 minutes, exercises included.
# * **Misconception**: "The value of a word is its weight." The weights say how much of each value
#   is taken; the values are what is taken.

# %%
import math
from collections.abc import Sequence

import numpy as np

import attnlab
from attnlab import figures, pictures
from attnlab.equations import Array
from attnlab.support.console import prepare_script
from attnlab.support.tables import align

prepare_script()  # print on any terminal, and into pipes

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
if W_K.shape[1] != W_Q.shape[1]:  # raw scores need queries and keys of one width
    W_K = np.resize(W_K, (len(W_K), W_Q.shape[1]))
    print(f"W_Q has {W_Q.shape[1]} columns, so W_K gets as many: its numbers, in order, repeated")

print("X: a row is a word")
print(attnlab.table(X, rows=words, decimals=2))

# %% [markdown]
# ## 3.1 Query, key, value
#
# Three matrices turn each word into three shorter rows (in GPT-2 a bias is added to each, which
# makes it [`affine`](../attnlab/equations.py)):
#
# * its **query**, what it looks for: `Q = X W_Q`
# * its **key**, what it can be found by: `K = X W_K`
# * its **value**, what it passes to a word that attends to it: `V = X W_V`
#
# It is like a library: the query is what you ask for, the keys are the index cards, the values are
# the books. The librarian compares your question with every card, and hands you a mixture of all
# books, weighted by how well their cards fit.
#
# Here are the matrices. Each number of `Q` is a row of `X` times a column of `W_Q`: four products
# and their sum. Take a pencil, work out a number of `Q`, and check it below.

# %%
recorded = figures.load("cat_eats_fish")
matrices = {"X": X, "W_Q": W_Q, "W_K": W_K, "W_V": W_V}

print("\n3.1 Query, key, value")
for name in ("W_Q", "W_K", "W_V"):
    print(f"\n{name}")
    print(attnlab.table(matrices[name], decimals=2))


# %%
def multiply(left: Array, right: Array, columns: Sequence[str] = ()) -> Array:
    """The matrix product of the two, with every sum of products printed."""
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
print(figures.verdict(recorded, matrices, 4, Q=Q, K=K, V=V))

# %% [markdown]
# ## 3.2 Raw scores
#
# How well does a query fit a key? Multiply the two rows number by number and add up the products.
# Doing this for each query and each key gives [`raw_scores`](../attnlab/equations.py) `= Q Kᵀ`. In
# the table a row is the word that asks, a column the word it attends to.

# %%
print("\n3.2 raw_scores = Q Kᵀ")
raw_scores = multiply(Q, K.T, [f"asks {word}" for word in words])
print()
print(attnlab.table(raw_scores, rows=words, columns=words))
print()
print(figures.verdict(recorded, matrices, 4, raw_scores=raw_scores))

# %% [markdown]
# **The second "it".** In "The dog chased the ball, but it couldn't catch it" the first "it" is the
# dog, the second "it" is the ball. In a widely read example, the dot products of the words' own
# vectors can't decide about the second "it": dog and ball get 0.51 and 0.51. With the query of "it"
# and the keys of the nouns, the dog gets 0.56 and the ball 0.96. The example's query and keys are
# below, and three lines compute the figures. The words' own vectors are chosen here to fit the
# figures: `W_Q` changes nothing, and the matrix of the keys doubles the second number, which is
# large for a thing.

# %%
it, dog, ball = np.array([[0.5, 0.5, 0.1], [0.9, 0.1, 0.1], [0.1, 0.9, 0.1]])
thing_keys = np.array([dog, ball]) @ np.diag([1, 2, 1])
before, after = [it] @ np.array([dog, ball]).T, [it] @ thing_keys.T
print("\nThe second it: its own vector, and the keys of dog and ball")
print(attnlab.table([it, *thing_keys], rows=["it", "dog", "ball"], decimals=1))
print(f"\ndog and ball by their own vectors {before}, by their keys {after}")

# %% [markdown]
# ## 3.3 Scores
#
# [`scores`](../attnlab/equations.py) are the raw scores divided by √Dk, where Dk is the width of a
# key: by √2, with the matrices above. [Chapter 5](05_why_divide_by_root_d.py) explains why.

# %%
width = K.shape[-1]
root = math.sqrt(width)
scores = raw_scores / root

print(f"\n3.3 scores = raw_scores / √{width} = raw_scores / {root:.4f}")
for word, raw_row, row in zip(words, raw_scores, scores, strict=True):
    quotients = [f"{r:.4f}/{root:.4f} = {s:.4f}" for r, s in zip(raw_row, row, strict=True)]
    print(f"  {word}   {'   '.join(quotients)}")
print()
print(figures.verdict(recorded, matrices, 4, scores=scores))

# %% [markdown]
# ## 3.4 Weights
#
# [`softmax`](../attnlab/equations.py) turns scores into weights. Raise `e` to the power of each
# score: whatever the score, the result is positive. Then divide by their sum, and the weights add
# up to 1.
#
# First, three round numbers: 1.0, 0.5, 0.1. (Some texts give 0.57, 0.29 and 0.14, which are not the
# softmax of these numbers; work it out and see. Two more rows in such texts, 0.12, 0.73, 0.15 and
# 0.18, 0.27, 0.55, are wrong too; the right ones are printed below.)

# %%
example = [1.0, 0.5, 0.1]


def shift_rows(scores: Array) -> Array:
    """Shift the rows of scores whose powers of e would be too large or too small."""
    largest = scores.max(axis=-1, keepdims=True)
    shifted: Array = scores - (largest - np.clip(largest, -700, 700))
    return shifted


powers = np.exp(shift_rows(np.array(example)))
print("\n3.4 weights = softmax(scores)")
print(f"\nsoftmax of {', '.join(map(str, example))}")
print(f"  {' + '.join(f'{power:#.5g}' for power in powers)} = {powers.sum():#.5g}")
for power in powers:
    print(f"  {power:#.5g} / {powers.sum():#.5g} = {power / powers.sum():.3f}")
more = [[0.2, 2.0, 0.3], [0.1, 0.4, 0.8]]
print(attnlab.table(attnlab.softmax(more), rows=more, decimals=3))

# %% [markdown]
# Now our words. (Above a score of 709 the power of `e` overflows a float64. Adding the same number
# to all scores of a row changes no weight, so `shift_rows` shifts a row whose scores are too large.
# The library always shifts each row's largest score to 0.)

# %%
exp_of_scores = np.exp(shift_rows(scores))
exp_row_sums = exp_of_scores.sum(axis=1)
weights = exp_of_scores / exp_row_sums[:, None]

print("\ne to the power of each score, and the sum of the row")
for i, word in enumerate(words):
    exponentials = " + ".join(f"e^{score:.4f}" for score in shift_rows(scores)[i])
    numbers = " + ".join(f"{number:#.5g}" for number in exp_of_scores[i])
    print(f"  {word}   {exponentials} = {numbers} = {exp_row_sums[i]:#.5g}")

print("\nEach of them divided by the sum of its row: the weights")
for word, row, total, row_weights in zip(words, exp_of_scores, exp_row_sums, weights, strict=True):
    quotients = [
        f"{e:#.5g}/{total:#.5g} = {weight:.4f}" for e, weight in zip(row, row_weights, strict=True)
    ]
    print(f"  {word}   {'   '.join(quotients)}")

print()
print(figures.verdict(recorded, matrices, 7, exp_of_scores=exp_of_scores))
print(figures.verdict(recorded, matrices, 4, weights=weights))

# %% [markdown]
# Every row of weights sums to 1. With the numbers above all nine weights are near a third, because
# the scores of a row are near each other: this untrained head has no strong preference.
#
# **Round last.** The lines above show four decimals, but the program used all decimals. If you
# continue with the four that you see, the powers of `e` differ from the fifth decimal on.

# %%
difference = np.abs(np.exp(np.round(shift_rows(scores), 4)) - exp_of_scores).max()
print("\nPowers of e, of scores with four decimals and with all of them")
print(f"  largest difference  {difference:.7f}")

# %% [markdown]
# ## 3.5 Context
#
# Each word collects the values of all words, in proportion to its weights:
# [`context`](../attnlab/equations.py) `= weights V`. This weighted sum is what the head passes on.
# All steps from Q, K and V to here are called **scaled dot-product attention**. In "The cat ate the
# fish because it was hungry" the context of "it" can be mostly the value of "cat". Every value
# takes part, scaled by its weight, and the weights sum to 1. In the picture each scaled value is an
# arrow; head to tail they lead to the context of the first word.

# %%
print("\n3.5 context = weights V")
context = multiply(weights, V)
print()
print(figures.verdict(recorded, matrices, 4, context=context))

V_plane = np.hstack([V, np.zeros_like(V)])[:, :2]  # a value's first two numbers
weighted_values = {
    f"{w:.2f} · V[{j}] {words[j]}": w * V_plane[j] for j, w in enumerate(weights[0, :20])
}
if len(words) > 20:
    weighted_values["all others"] = weights[0, 20:] @ V_plane[20:]
pictures.arrows(weighted_values, title=f"context of {words[0]}")

# %% [markdown]
# **The same in print, by hand.** Before its program, the tutorial works out the row of 猫 by hand:
# raw scores 0.455, 0.634, 0.605, weights 0.298, 0.356, 0.346 and context 0.512, 0.443. Its program
# is right. The work by hand is wrong, although its query, 0.6 and 0.47, is right. Follow it step by
# step:
#
# * The raw scores aren't that query times the keys: the keys are wrong.
# * The division by √2 is missing. The printed weights are the softmax of the raw scores as they
#   are.
# * The printed weights don't give the printed context with the values of 3.1: the values are wrong,
#   too.

# %%
by_hand = [0.455, 0.634, 0.605], [0.298, 0.356, 0.346], [0.512, 0.443]
printed_scores, printed_weights, printed_context = map(np.array, by_hand)
right = {name: np.array(recorded[name]) for name in ("raw_scores", "weights", "V", "context")}
slips = {
    "raw scores, by hand": printed_scores,
    "raw scores, right": right["raw_scores"][0],
    "weights, by hand": printed_weights,
    "softmax of its raw scores": attnlab.softmax(printed_scores),
    "softmax of them / √2": attnlab.softmax(printed_scores / math.sqrt(2)),
    "weights, right": right["weights"][0],
}
print("\nThe row of 猫, by hand in print, and what is right")
print(attnlab.table([*slips.values()], rows=[*slips], columns=recorded["words"]))

# %%
mixtures = {
    "context, by hand": printed_context,
    "its weights times V": printed_weights @ right["V"],
    "context, right": right["context"][0],
}
print(f"\n{attnlab.table([*mixtures.values()], rows=[*mixtures])}")

# %% [markdown]
# [A trained head](book/pages/en/guide.md#explore
# "playground.html#depth=lab&layer=1&head=2&query=7&ablate=1.2.mask.flip.7.1"). One score is masked:
# that of "it" and "dog". Read the sentence with the largest weight of "it". Then press × next to *1
# cell of the mask*: the score is back, and the sentence names another word. Click a cell of the map
# to open its arithmetic, from the dot product to the context vector.

# %% [markdown]
# ## 3.6 The same in one line
#
# [`attnlab.self_attention`](../attnlab/forward/functional.py) does the same and keeps every step
# under its name. A notebook draws the result: point at a cell of the heatmap for its number, and
# open the other steps. All nine weights look alike in the heatmap. The second picture shows how far
# each weight is from a third: with the numbers above, every word gives a little more to 鱼, and a
# little less to 猫.

# %%
head = attnlab.self_attention(X, W_Q, W_K, W_V, tokens=words)

print("\n3.6 attnlab.self_attention(X, W_Q, W_K, W_V, tokens=words)")
print("\nLargest difference from the steps by hand")
for name, matrix in {"scores": scores, "weights": weights, "context": context}.items():
    print(f"  {name:8} {np.abs(getattr(head, name) - matrix).max():.0e}")
head

# %%
even = 1 / len(words)
pictures.heatmap(weights - even, rows=words, columns=words, title=f"weights - {even:.2f}")

# %% [markdown]
# ## 3.7 Three heads of one sentence
#
# Other matrices compute other queries and keys from the same words. Look at the columns of `X`:
# with the numbers above, 猫 and 鱼 are large in the first and the third, 吃 in the second and the
# fourth. So first minus second plus third minus fourth is a number that separates nouns from verbs.
#
# Let a head's query be this single number (doubled, to make the effect clearer), and its key the
# same number with the sign flipped. Then nouns match the verb, and the verb matches nouns.

# %%
noun = np.resize([[1.0], [-1.0], [1.0], [-1.0]], (X.shape[1], 1))
other_kind = attnlab.self_attention(X, 2 * noun, -noun, W_V, tokens=words)

print("\n3.7 Three heads of one sentence")
print("\nX noun")
print(attnlab.table(X @ noun, rows=words, columns=["noun"], decimals=2))
print("\nWeights with W_Q = 2 noun, W_K = -noun")
print(attnlab.table(other_kind.weights, rows=words, columns=words))
other_kind.plot()

# %% [markdown]
# Without the flipped sign, like matches like: a noun attends to nouns, itself included, and the
# verb to itself.

# %%
same_kind = attnlab.self_attention(X, 2 * noun, noun, W_V, tokens=words)

print("\nWeights with W_Q = 2 noun, W_K = noun")
print(attnlab.table(same_kind.weights, rows=words, columns=words))
same_kind.plot()

# %% [markdown]
# A layer has many heads, which ask different questions at once: **multi-head attention**. Their
# contexts are concatenated, [`concat`](../attnlab/equations.py), and mixed by another matrix. Here
# we chose the questions; a model learns them in training, and [chapter 7](07_heads_that_learned.py)
# looks at some.

# %%
heads = {"by hand": head, "other kind": other_kind, "same kind": same_kind}
names = [f"{name}, {j}" for name, each in heads.items() for j in range(each.V.shape[1])]
concat = np.hstack([each.context for each in heads.values()])
print("\nThe three contexts side by side")
print(attnlab.table(concat, rows=words, columns=names))

# %% [markdown]
# Here are five words, 我去银行取钱 (I go to the bank to withdraw money). Each word is a separate
# column here, so the matrix W_Q can say for each pair whether the first asks for the second. One
# head asks which object belongs to the action 取 (withdraw), one what is done at the place 银行
# (bank), one what 我 (I) does.

# %%
sentence = ["我", "去", "银行", "取", "钱"]
questions = {
    "action, object": ("取", "钱"),
    "place, activity": ("银行", "取钱"),
    "who acts": ("我", "取"),
}
one_hot = np.eye(len(sentence))
rows = []
for asking, answering in questions.values():
    W_Q_pair = np.zeros_like(one_hot)
    W_Q_pair[sentence.index(asking), [sentence.index(word) for word in answering]] = 10
    pair_weights = attnlab.self_attention(one_hot, W_Q_pair, one_hot, one_hot).weights
    rows.append(pair_weights[sentence.index(asking)])

print("\n我去银行取钱: what each head's asking word attends to")
names = [f"{question}: {asking}" for question, (asking, _) in questions.items()]
print(attnlab.table(rows, rows=names, columns=sentence, decimals=2))

# %% [markdown]
# Whom does "he" mean in 李华看见张明，他笑了 (Li Hua saw Zhang Ming, he laughed)? Some say the
# nearer name. But nothing in attention prefers near tokens. Both names are names, so 他 (he) scores
# them alike, and each gets half. Only position embeddings, or what the model has learned from such
# sentences, can break the tie.

# %%
kinds = ["name", "verb", "name", "pronoun", "verb"]
X_kinds = np.array([[kind == other for other in ("name", "verb", "pronoun")] for kind in kinds])
W_Q_names = np.array([[0, 0, 0], [0, 0, 0], [10, 0, 0]])  # only pronouns ask, for names
pronoun_weights = attnlab.self_attention(1.0 * X_kinds, W_Q_names, np.eye(3), np.eye(3)).weights[3]
print("\n李华看见张明，他笑了: what 他 attends to")
print(
    attnlab.table(
        [pronoun_weights], rows=["他"], columns=["李华", "看见", "张明", "他", "笑了"], decimals=2
    )
)

# %% [markdown]
# ## 3.8 Rows or columns
#
# Here a word is a row, and the matrix is on the right: `Q = X W_Q`. Some texts and videos have
# words as columns and the matrix on the left. Then everything is transposed: `Qᵀ = W_Qᵀ Xᵀ`, and in
# their table of scores, `K Qᵀ`, the word that asks is a **column**. There the weights of a column
# sum to 1. The numbers are the same.
#
# PyTorch's `nn.Linear(4, 2)` uses a third convention: words are rows, but its `weight` has the
# shape (out, in), here (2, 4), and it computes `X weightᵀ`. GPT-2's files hold (in, out), as we do.
# With a square matrix the wrong convention gives no error, only wrong numbers.

# %%
transposed = {"X": X.T, "Q": W_Q.T @ X.T, "K": W_K.T @ X.T}
KQ = transposed["K"].T @ transposed["Q"] / root
linear_weight = W_Q.T

print("\n3.8 Rows or columns")
print("\nScores with words as columns: a column is the word that asks")
print(attnlab.table(KQ, rows=words, columns=words))
conventions = [
    ["by rows", "Q  = X W_Q", X.shape, W_Q.shape, Q.shape],
    ["by columns", "Qᵀ = W_Qᵀ Xᵀ", W_Q.T.shape, X.T.shape, transposed["Q"].shape],
    ["Linear", "Q  = X weightᵀ", X.shape, linear_weight.shape, (X @ linear_weight.T).shape],
]
print()
print(align([[*map(str, convention)] for convention in conventions], left=range(5)))
print(f"\nLargest difference of the scores, transposed back: {np.abs(KQ.T - scores).max():.0e}")

# %% [markdown]
# ## 3.9 Predict, change, see
#
# **Exercise 1 (basic).** Double every number of `W_Q`. What happens to the raw scores, and are the
# weights still near a third? Predict first, then put `W_Q = 2 * W_Q` below the matrices in the
# first cell and run the chapter again.
#
# <details><summary>Answer</summary>
#
# Every raw score doubles, and so does every difference between two raw scores. The largest of the
# nine weights goes from 0.3462 to 0.3590: a little sharper, still near a third.
#
# </details>
#
# **Exercise 2 (basic).** Put `W_Q = 0 * W_Q` in the same place. Which weights do you get, and which
# context?
#
# <details><summary>Answer</summary>
#
# All scores are 0 and all powers of `e` are 1, so every weight is exactly a third. Every word gets
# the same context, 0.4733 and 0.5867, the mean of the three values. With the original `W_Q` the
# context was not far from that.
#
# </details>
#
# **Exercise 3 (medium).** Let the fish eat the cat: swap the first and the third word, and their
# rows of `X`. Which numbers of the context does that change?
#
# <details><summary>Answer</summary>
#
# None of them. The rows trade places: 猫 still gets 0.4743 and 0.5875, though it now comes last.
# Attention by itself does not know the order of words: each query meets the same keys and values.
# That is why GPT-2 adds a vector for the position to each word before the first head.
#
# </details>
#
# **Exercise 4 (medium).** The head below has two mistakes, and `attnlab.check` reports them one
# after the other. Predict which steps differ, then run the cell. Fix the mistake that is reported
# first, and run the cell again, until six of six steps agree.


# %%
def my_head(X: Array, W_Q: Array, W_K: Array, W_V: Array) -> dict[str, Array]:
    """The steps of a head by their names."""
    Q, K, V = X @ W_Q, X @ W_K, X @ W_V
    scores = Q @ K.T / K.shape[-1]
    weights = attnlab.softmax(scores.T).T
    return {"Q": Q, "K": K, "V": V, "scores": scores, "weights": weights, "context": weights @ V}


print("\n3.9 Your own head")
print(attnlab.check(my_head(X, W_Q, W_K, W_V), head))

# %% [markdown]
# <details><summary>Answer</summary>
#
# Scores, weights and context differ. The first mistake is in the scores: they are divided by 2,
# which is Dk and by chance also √D, so `check` names both. The line should be
# `Q @ K.T / math.sqrt(K.shape[-1])`. The second mistake is in the weights: because of the
# two `.T` the softmax runs over the queries (`axis=-2`), so that columns sum to 1 instead of rows.
# Remove both: `attnlab.softmax(scores)`.
#
# </details>
#
# **Exercise 5 (basic).** Compute the queries of "I love AI": the rows of X are 0.1 0.2 0.3 0.4 for
# "I", 0.5 0.6 0.7 0.8 for "love" and 0.9 0.1 0.2 0.3 for "AI"; the rows of W_Q are 0.1 0.2 0.3, 0.4
# 0.5 0.6, 0.7 0.8 0.9 and 0.2 0.3 0.4. What is the query of "I"? What are the other two queries?
# (Change `words`, `X` and `W_Q` in the first cell. Queries have three numbers now, and keys have to
# match them: the chapter repeats the numbers of `W_K` until it has three columns.)
#
# <details><summary>Answer</summary>
#
# The queries are 0.38, 0.48, 0.58 for "I"; 0.94, 1.20, 1.46 for "love"; and 0.33, 0.48, 0.63 for
# "AI".
#
# </details>

# %% [markdown]
# ## Summary
#
# * Each word gets a query, a key and a value, one matrix each.
# * Queries times keys, divided by the root of the key's width, are the scores; softmax makes each
#   row of them weights that sum to 1.
# * The context vector of a word is the mean of all values, weighted by its row. All of this is
#   scaled dot-product attention.
# * Another set of matrices asks another question: that is another head.
