# %% [markdown]
# # 4. Similarity is not attention
#
# `X Xᵀ` says how alike two words are. `Q Kᵀ` says how much one word wants to know of another. The
# first is the same in both directions, the second is not, and it can be learned.
#
# Three words of "The dog dropped the ball because it was tired": dog, ball, it. Each has three
# numbers whose meaning we choose: is it an animal, is it a thing, is it a pronoun? The pronoun
# stands for something, so it is a bit of each.

# %%
import numpy as np

import attnlab
from attnlab.console import prepare_script

prepare_script()  # for any terminal, and for pipes

words = ["dog", "ball", "it"]
meanings = ["animal", "thing", "pronoun"]
X = np.array(
    [
        [2, 0, 0],  # dog
        [0, 2, 0],  # ball
        [1, 1, 1],  # it
    ]
)
print("X: three words, three numbers each")
print(attnlab.table(X, rows=words, columns=meanings, decimals=0))

# %% [markdown]
# ## 4.1 Plain similarity is a tie
#
# Multiply two rows number by number and add up. "it" comes out exactly as close to "dog" as to
# "ball". No softmax can undo that: equal scores get equal weights.

# %%
similarity = X @ X.T
print("\n4.1 Similarity, X Xᵀ")
print(attnlab.table(similarity, rows=words, columns=words, decimals=0))
print("\n  it · dog  = 1·2 + 1·0 + 1·0 = 2")
print("  it · ball = 1·0 + 1·2 + 1·0 = 2")
assert similarity[2, 0] == similarity[2, 1] == 2
shares = attnlab.softmax(similarity)
print("\nIts softmax, row by row")
print(attnlab.table(shares, rows=words, columns=words))
assert shares[2, 0] == shares[2, 1]

# %% [markdown]
# The table of similarity is the same when rows and columns are exchanged, since a·b = b·a. (Its
# softmax is not: each row is divided by its own sum.)

# %%
print(f"\nX Xᵀ equal to its transpose:           {np.array_equal(similarity, similarity.T)}")
print(f"softmax(X Xᵀ) equal to its transpose:  {np.allclose(shares, shares.T)}")
assert np.array_equal(similarity, similarity.T)
assert not np.allclose(shares, shares.T)

# %% [markdown]
# ## 4.2 A learned question breaks the tie
#
# `W_K` says what a word answers to: an animal answers to question 0, a thing to question 1.
# `W_Q` says what a word asks: an animal asks for a thing (question 1), a thing asks nothing, and a
# pronoun asks strongly for an animal (question 0, three times). Somebody who is tired is not a
# ball; that is what training would find out.

# %%
W_K = np.array(
    [
        [1, 0],  # an animal answers to question 0
        [0, 1],  # a thing answers to question 1
        [0, 0],
    ]
)
W_Q = np.array(
    [
        [0, 1],  # an animal asks for a thing
        [0, 0],  # a thing asks nothing
        [3, 0],  # a pronoun asks for an animal
    ]
)
W_V = np.eye(3)  # a word gives what it is

head = attnlab.self_attention(X, W_Q, W_K, W_V)
questions = ["an animal?", "a thing?"]
print("\n4.2 Q = X W_Q, what each word asks")
print(attnlab.table(head.Q, rows=words, columns=questions, decimals=0))
print("\nK = X W_K, what each word answers")
print(attnlab.table(head.K, rows=words, columns=questions, decimals=0))
print("\nraw_scores = Q Kᵀ")
print(attnlab.table(head.raw_scores, rows=words, columns=words, decimals=0))
print("\n  it asks dog:   3·2 + 1·0 = 6")
print("  it asks ball:  3·0 + 1·2 = 2")
print("\nweights")
print(attnlab.table(head.weights, rows=words, columns=words))
assert head.raw_scores[2].tolist() == [6, 2, 4]
assert head.weights[2].argmax() == words.index("dog")

# %% [markdown]
# "it" now looks at "dog" most. The vectors of the words are the same as before; the question
# decides. Let the pronoun ask for a thing instead, as in "because it was round", and the same words
# give the ball.

# %%
W_Q_thing = np.array(
    [
        [0, 1],
        [0, 0],
        [0, 3],  # now a pronoun asks for a thing
    ]
)
other_head = attnlab.self_attention(X, W_Q_thing, W_K, W_V)
print("\nWeights of it")
print(
    attnlab.table(
        [shares[2], head.weights[2], other_head.weights[2]],
        rows=["similarity", "asks for an animal", "asks for a thing"],
        columns=words,
    )
)
assert other_head.weights[2].argmax() == words.index("ball")

# %% [markdown]
# ## 4.3 Asking goes one way
#
# The dog asks for the ball, the ball asks for nothing: `raw_scores` is not symmetric. Written out,
# `Q Kᵀ = X (W_Q W_Kᵀ) Xᵀ`. Similarity is the case in which the matrix in the middle is the
# identity. Ours is another one, and it need not be symmetric.

# %%
middle = W_Q @ W_K.T
print("\n4.3 W_Q W_Kᵀ: who (row) asks for whom (column)")
print(attnlab.table(middle, rows=meanings, columns=meanings, decimals=0))
assert np.array_equal(X @ middle @ X.T, head.raw_scores)

pairs = [("dog", "ball"), ("it", "dog"), ("it", "ball")]
lines = []
for one, other in pairs:
    i, j = words.index(one), words.index(other)
    lines.append([similarity[i, j], similarity[j, i], head.raw_scores[i, j], head.raw_scores[j, i]])
print("\nEach pair in both directions")
print(
    attnlab.table(
        lines,
        rows=[f"{one}, {other}" for one, other in pairs],
        columns=["similarity", "and back", "raw_score", "and back"],
        decimals=0,
    )
)
assert not np.array_equal(head.raw_scores, head.raw_scores.T)

# %% [markdown]
# If a head used one matrix for both, `W_Q = W_K`, its raw scores would be symmetric again.

# %%
tied = attnlab.self_attention(X, W_K, W_K, W_V)
print("\nraw_scores with W_Q = W_K")
print(attnlab.table(tied.raw_scores, rows=words, columns=words, decimals=0))
assert np.array_equal(tied.raw_scores, tied.raw_scores.T)

# %% [markdown]
# ## With a pencil
#
# * Choose the pronoun's row of `W_Q` so that "it" looks at "dog" and "ball" equally again.
# * Choose `W_Q` so that the ball asks for the dog.
