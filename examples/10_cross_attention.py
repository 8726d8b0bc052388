# %% [markdown]
# # 10. Cross-attention
#
# A translator writes "black cats sleep" and looks at "les chats noirs dorment" while it does. The
# queries come from one sequence, the keys and values from the other. All else is as before.
#
# The numbers are chosen so that each column has a meaning. An English word has three (colour,
# animal, action). A French word has four: the article "les" needs one of its own. Change any
# number, and run it again.

# %%
import numpy as np

import attnlab
from attnlab.console import prepare_script

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
print("X, the sequence that asks")
print(attnlab.table(X, rows=english, columns=["colour", "animal", "action"], decimals=1))
print("\nmemory, the sequence that is looked at")
meanings = ["article", "colour", "animal", "action"]
print(attnlab.table(memory, rows=french, columns=meanings, decimals=1))

# %% [markdown]
# ## 10.1 Queries here, keys and values there
#
# `Q = X W_Q` has a row for each English word, `K = memory W_K` and `V = memory W_V` one for each
# French word. The sequences differ in length and width. Only one thing has to fit: a query and a
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
W_V = np.eye(len(meanings))
cross = attnlab.cross_attention(X, memory, W_Q, W_K, W_V)

print("\n10.1 Queries here, keys and values there")
print(cross)
print("\nQ = X W_Q")
print(attnlab.table(cross.Q, rows=english, decimals=1))
print("\nK = memory W_K")
print(attnlab.table(cross.K, rows=french, decimals=1))
print("\nraw_scores = Q Kᵀ: who asks in the rows, who answers in the columns")
print(attnlab.table(cross.raw_scores, rows=english, columns=french, decimals=1))
cross

# %% [markdown]
# ## 10.2 Weights and context
#
# Each row sums to 1: an English word shares out its attention among the French ones. With the
# numbers above "black" finds "noirs", "cats" finds "chats", although the order of the two is
# different in French. "sleep" finds "dorment", and looks at "chats" too.
#
# The context has a row for each English word, and it is written in French columns.

# %%
sums = cross.weights.sum(axis=1, keepdims=True)
print(f"\n10.2 weights = softmax(raw_scores / √{W_K.shape[1]})")
print(attnlab.table(np.hstack([cross.weights, sums]), rows=english, columns=[*french, "sum"]))
print("\ncontext = weights V")
print(attnlab.table(cross.context, rows=english, columns=meanings))
print()
for word, row in zip(english, cross.weights, strict=True):
    print(f"  {word} looks most at {french[row.argmax()]}")

# %% [markdown]
# ## 10.3 No causal mask
#
# A causal mask hides words that are not written yet. The French sentence is there in full before
# the first English word, so there is nothing to hide. Lay a causal mask over it all the same, and
# the first English word sees the first French one and no more. No English word of the three sees
# the fourth French one, "dorment".
#
# (The English words among themselves do need one: they are written one by one. That is
# self-attention, and it comes before in the same layer.)

# %%
wrong_mask = np.tri(len(english), len(french), dtype=bool)
masked = attnlab.cross_attention(X, memory, W_Q, W_K, W_V, mask=wrong_mask)
seen = np.count_nonzero(cross.mask)
print(f"\n10.3 No mask in 10.2: every word sees every word, {seen} pairs of {cross.mask.size}")
print("\nWeights with a causal mask, which is wrong here")
print(attnlab.table(masked.weights, rows=english, columns=french))

# %% [markdown]
# ## 10.4 Attention does not know the order of what it looks at
#
# Give the French words from the last to the first: the columns of the weights move along, the
# context stays. That is why a model adds position embeddings.

# %%
order = list(reversed(range(len(french))))  # or any other
shuffled = attnlab.cross_attention(X, memory[order], W_Q, W_K, W_V)
print("\n10.4 Weights with the French words in another order")
print(attnlab.table(shuffled.weights, rows=english, columns=[french[j] for j in order]))
print(f"largest change of the context: {np.abs(shuffled.context - cross.context).max():.1e}")

# %% [markdown]
# ## 10.5 Self-attention is the special case
#
# Let the English sentence look at itself, and cross-attention is self-attention.

# %%
W_K_english, W_V_english = np.eye(X.shape[1], W_Q.shape[1]), np.eye(X.shape[1])
itself = attnlab.cross_attention(X, X, W_Q, W_K_english, W_V_english)
self_attention = attnlab.self_attention(X, W_Q, W_K_english, W_V_english)
print("\n10.5 Cross-attention of the English sentence to itself: weights")
print(attnlab.table(itself.weights, rows=english, columns=english))
print("\nself_attention: weights")
print(attnlab.table(self_attention.weights, rows=english, columns=english))

# %% [markdown]
# ## With a pencil
#
# * Make `W_Q` twice as large in 10.1. Does "sleep" look at "chats" more, or less?
# * Let "sleep" not ask who does: 0 and not 1 in its row of `X`. Where do its weights go?
