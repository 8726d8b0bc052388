# %% [markdown]
# # 10. Cross-attention
#
# A translator writes "black cats sleep" and looks at "les chats noirs dorment" while it does. The
# queries come from one sequence, the keys and values from the other. All else is as in
# [chapter 3](03_one_head_by_hand.py).
#
# The numbers are chosen so that each column has a meaning. An English word has three (colour,
# animal, action). A French word has four: the article "les" needs one of its own. Change any
# number, and run it again.

# %%
import numpy as np

import attnlab
from attnlab import pictures
from attnlab.support.console import prepare_script

prepare_script()  # for any terminal, and for pipes

english = ["black", "cats", "sleep"]
X = np.array(
    [
        [2, 0, 0],  # black
        [0, 2, 0],  # cats
        [0, 1, 2],  # sleep, and a little: who does?
    ]
)
french = ["les", "chats", "noirs", "dorment"]
memory = np.array(
    [
        [1, 0, 0, 0],  # les
        [0, 0, 1, 0],  # chats
        [0, 1, 0, 0],  # noirs
        [0, 0, 0, 1],  # dorment
    ]
)
meanings = ["article", "colour", "animal", "action"]

print("X, the sequence that asks")
print(attnlab.table(X, rows=english, columns=meanings[1:], decimals=1))
print("\nmemory, the sequence that is looked at")
print(attnlab.table(memory, rows=french, columns=meanings, decimals=1))

# %% [markdown]
# ## 10.1 Queries here, keys and values there
#
# `Q = X W_Q` has a row for each English word, `K = memory W_K` and `V = memory W_V` one for each
# French word. The sequences differ in length and in width. Only one thing has to fit: a query and a
# key must be equally wide, or they could not be multiplied.
#
# The `W_Q` here asks for the word's own meaning, and strongly. `W_K` answers with the meaning and
# drops the article. `W_V` hands over the French word as it is.

# %%
W_Q = 3 * np.eye(3)
W_K = np.array(
    [
        [0, 0, 0],  # article: answers to nothing
        [1, 0, 0],  # colour
        [0, 1, 0],  # animal
        [0, 0, 1],  # action
    ]
)
W_V = np.eye(4)

cross = attnlab.cross_attention(X, memory, W_Q, W_K, W_V)

print("\n10.1 Queries here, keys and values there")
print("\nQ = X W_Q")
print(attnlab.table(cross.Q, rows=english, decimals=1))
print("\nK = memory W_K")
print(attnlab.table(cross.K, rows=french, decimals=1))

# %% [markdown]
# The equation is that of any attention, [`raw_scores`](../attnlab/equations.py): `Q Kᵀ`. Its rows
# are who asks, its columns who is looked at. With 3 words here and 4 there it is no square any
# more, and has no diagonal that would mean "the word itself".

# %%
print("\nraw_scores = Q Kᵀ")
print(attnlab.table(cross.raw_scores, rows=english, columns=french, decimals=1))
print()
print(cross)
cross

# %% [markdown]
# ## 10.2 Weights
#
# Each row sums to 1: an English word shares out its attention among the French ones. With the
# numbers above "black" finds "noirs" and "cats" finds "chats", although the two stand in the other
# order in French. "sleep" finds "dorment", and looks at "chats" too.

# %%
print(f"\n10.2 weights = softmax(raw_scores / √{cross.K.shape[1]})")
sums = cross.weights.sum(axis=1, keepdims=True)
print(attnlab.table(np.hstack([cross.weights, sums]), rows=english, columns=[*french, "sum"]))
print()
for word, row in zip(english, cross.weights, strict=True):
    print(f"  {word} looks most at {french[row.argmax()]}")

pictures.heatmap(cross.weights, rows=english, columns=french, title="weights")

# %% [markdown]
# Such a picture, drawn for a translator that had learned to look by itself, made attention known:
# the dark squares leave the diagonal just where the two languages order their words otherwise
# ([chapter 1](01_why_attention.py)).

# %% [markdown]
# ## 10.3 Context
#
# The context has a row for each **English** word, and it is written in **French** columns: as many
# rows as there are queries, as wide as a value. What "sleep" gets is mostly "dorment", and some of
# "chats".

# %%
print("\n10.3 context = weights V")
print(attnlab.table(cross.context, rows=english, columns=meanings))

# %% [markdown]
# ## 10.4 No causal mask
#
# A causal mask hides words that are not written yet. The French sentence is there in full before
# the first English word, so there is nothing to hide. Lay a causal mask over it all the same, and
# the first English word sees the first French one and no more. With the words above, no English
# word sees the fourth French one, "dorment": not even "sleep", which needs it.

# %%
wrong_mask = np.tri(len(english), len(french), dtype=bool)
masked = attnlab.cross_attention(X, memory, W_Q, W_K, W_V, mask=wrong_mask)

seen = np.count_nonzero(cross.mask)
print(f"\n10.4 No mask: every word sees every word, {seen} pairs of {cross.mask.size}")
print("\nWeights with a causal mask, which is wrong here")
print(attnlab.table(masked.weights, rows=english, columns=french))

pictures.heatmap(masked.weights, rows=english, columns=french, title="weights, causal mask")

# %% [markdown]
# The English words among themselves do need a causal mask, since they are written one by one. That
# is self-attention, and it comes first in each layer of a translator: look at what is written so
# far, then at the other sentence, then think about both (the MLP, of which
# [chapter 8](08_a_tokens_journey.py) tells). GPT-2 has no second sequence, and so no
# cross-attention: its prompt stands in the one sequence.
#
# ## 10.5 Attention does not know the order of what it looks at
#
# Give the French words from the last to the first: the columns of the weights move along, the
# context stays. That is why a model adds position embeddings.

# %%
order = list(reversed(range(len(french))))  # or any other
shuffled = attnlab.cross_attention(X, memory[order], W_Q, W_K, W_V)

print("\n10.5 Weights with the French words in another order")
print(attnlab.table(shuffled.weights, rows=english, columns=[french[j] for j in order]))
print(f"\nLargest change of the context: {np.abs(shuffled.context - cross.context).max():.1e}")

# %% [markdown]
# ## 10.6 Self-attention is the special case
#
# Let the English sentence look at itself, and cross-attention is self-attention: the same function
# with the same sequence in both places.

# %%
W_K_english, W_V_english = np.eye(X.shape[1], W_Q.shape[1]), np.eye(X.shape[1])
itself = attnlab.cross_attention(X, X, W_Q, W_K_english, W_V_english)
self_attention = attnlab.self_attention(X, W_Q, W_K_english, W_V_english)

print("\n10.6 The English sentence looks at itself: weights")
print(attnlab.table(itself.weights, rows=english, columns=english))
difference = np.abs(itself.weights - self_attention.weights).max()
print(f"\nLargest difference from self_attention: {difference:.1e}")

# %% [markdown]
# ## 10.7 Predict, change, see
#
# **Exercise 1.** Make `W_Q` twice as large in 10.1. Does "sleep" look at "chats" more, or less? And
# is "noirs" still what "black" looks at most?
#
# <details><summary>Answer</summary>
#
# Less: the weight falls from 0.1427 to 0.0303. All scores are twice as far apart, so
# that softmax gives still more to the largest. Which one is the largest does not change: "black"
# still looks most at "noirs".
#
# </details>
#
# **Exercise 2.** Let "sleep" not ask who does: put 0 for the 1 in its row of `X`. Where does what
# "chats" had go to?
#
# <details><summary>Answer</summary>
#
# "chats" falls to 0.0286, as little as "les" and "noirs" have, and "dorment" rises from
# 0.8068 to 0.9142. A row always sums to 1: what one word loses, the others share.
#
# </details>
#
# **Exercise 3.** Put `W_Q = -3 * np.eye(3)`. What does "black" look at now?
#
# <details><summary>Answer</summary>
#
# At everything but "noirs", which has 0.0103 left; the other three have 0.3299
# each. A negative score repels.
#
# </details>
#
# **Exercise 4.** Now the French ask and the English answer:
# `attnlab.cross_attention(memory, X, W_K, W_Q, np.eye(3))`. What shape do the weights have? Are
# they those of 10.2, turned over?
#
# <details><summary>Answer</summary>
#
# 4 x 3. The raw scores are those of 10.1 turned over, as the same rows are multiplied. The weights
# are not: softmax shares out each row by itself, and the rows are others now. "les" asks for
# nothing, all its scores are 0, and each English word gets 0.3333 of its attention.
#
# </details>
