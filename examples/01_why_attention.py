# %% [markdown]
# # 1. Similarity is not attention
#
# `X Xᵀ` says how alike two words are. `Q Kᵀ` says how much one word wants to know of another. The
# first is the same in both directions, the second is not, and it can be learned.
#
# Three words of "The dog dropped the ball because it was tired": dog, ball, it. Each has three
# numbers whose meaning we choose: is it an animal, is it a thing, is it a pronoun? The pronoun
# stands for something, so it is a bit of each. Change any number, and run it again.

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
dog, ball, it = 0, 1, 2  # their rows

print("X: three words, three numbers each")
print(attnlab.table(X, rows=words, columns=meanings, decimals=1))

# %% [markdown]
# ## 1.1 Plain similarity is a tie
#
# Multiply two rows number by number and add up. With the numbers above "it" comes out exactly as
# close to "dog" as to "ball". No softmax can undo that: equal scores get equal weights.

# %%
similarity = X @ X.T
print("\n1.1 Similarity, X Xᵀ")
print(attnlab.table(similarity, rows=words, columns=words, decimals=1))
print()
for other in (dog, ball):
    terms = " + ".join(f"{a:g}·{b:g}" for a, b in zip(X[it], X[other], strict=True))
    print(f"  {words[it]} · {words[other]:4} = {terms} = {similarity[it, other]:g}")
shares = attnlab.softmax(similarity)
print("\nIts softmax, row by row")
print(attnlab.table(shares, rows=words, columns=words))

# %% [markdown]
# The table of similarity is the same when rows and columns are exchanged, since a·b = b·a. (Its
# softmax need not be: each row is divided by its own sum.)

# %%
print(f"\nX Xᵀ equal to its transpose:           {np.allclose(similarity, similarity.T)}")
print(f"softmax(X Xᵀ) equal to its transpose:  {np.allclose(shares, shares.T)}")

# %% [markdown]
# ## 1.2 A learned question breaks the tie
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
W_V = np.eye(len(meanings))  # a word gives what it is

head = attnlab.self_attention(X, W_Q, W_K, W_V)
questions = [f"question {j}" for j in range(W_K.shape[1])]
print("\n1.2 Q = X W_Q, what each word asks")
print(attnlab.table(head.Q, rows=words, columns=questions, decimals=1))
print("\nK = X W_K, what each word answers")
print(attnlab.table(head.K, rows=words, columns=questions, decimals=1))
print("\nraw_scores = Q Kᵀ")
print(attnlab.table(head.raw_scores, rows=words, columns=words, decimals=1))
print()
for other in (dog, ball):
    terms = " + ".join(f"{q:g}·{k:g}" for q, k in zip(head.Q[it], head.K[other], strict=True))
    print(f"  {words[it]} asks {words[other]:4}  {terms} = {head.raw_scores[it, other]:g}")
print("\nweights")
print(attnlab.table(head.weights, rows=words, columns=words))
head

# %% [markdown]
# With these matrices "it" looks at "dog" most. The vectors of the words are the same as before; the
# question decides. Let the pronoun ask for a thing instead, as in "because it was round", and the
# same words give the ball.

# %%
W_Q_thing = W_Q.copy()
W_Q_thing[2] = W_Q[2, ::-1]  # what a pronoun asked of an animal it now asks of a thing
other_head = attnlab.self_attention(X, W_Q_thing, W_K, W_V)
print(f"\nWeights of {words[it]}")
print(
    attnlab.table(
        [shares[it], head.weights[it], other_head.weights[it]],
        rows=["similarity", "W_Q", "W_Q_thing"],
        columns=words,
    )
)

# %% [markdown]
# ## 1.3 Asking goes one way
#
# With the numbers above the dog asks for the ball, and the ball asks for nothing: `raw_scores` is
# not symmetric. Written out, `Q Kᵀ = X (W_Q W_Kᵀ) Xᵀ`. Similarity is the case in which the matrix
# in the middle is the identity. Ours is another one, and it need not be symmetric.

# %%
middle = W_Q @ W_K.T
print("\n1.3 W_Q W_Kᵀ: who (row) asks for whom (column)")
print(attnlab.table(middle, rows=meanings, columns=meanings, decimals=1))
distance = np.abs(X @ middle @ X.T - head.raw_scores).max()
print(f"\nX (W_Q W_Kᵀ) Xᵀ and raw_scores: at most {distance:g} apart")

pairs = [(dog, ball), (it, dog), (it, ball)]
lines = []
for i, j in pairs:
    lines.append([similarity[i, j], similarity[j, i], head.raw_scores[i, j], head.raw_scores[j, i]])
print("\nEach pair in both directions")
print(
    attnlab.table(
        lines,
        rows=[f"{words[i]}, {words[j]}" for i, j in pairs],
        columns=["similarity", "and back", "raw_score", "and back"],
        decimals=1,
    )
)

# %% [markdown]
# If a head used one matrix for both, `W_Q = W_K`, its raw scores would be symmetric again.

# %%
tied = attnlab.self_attention(X, W_K, W_K, W_V)
print("\nraw_scores with W_Q = W_K")
print(attnlab.table(tied.raw_scores, rows=words, columns=words, decimals=1))
print(f"\nEqual to their transpose: {np.allclose(tied.raw_scores, tied.raw_scores.T)}")

# %% [markdown]
# ## With a pencil
#
# * Choose the pronoun's row of `W_Q` so that "it" looks at "dog" and "ball" equally again.
# * Choose `W_Q` so that the ball asks for the dog.
