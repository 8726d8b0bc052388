# %% [markdown]
# # 8. Cross-attention
#
# A translator writes "black cats sleep" and looks at "les chats noirs dorment" while it does. The
# queries come from one sequence, the keys and values from the other. All else is as before.
#
# The numbers are chosen so that each column has a meaning. An English word has three (colour,
# animal, action). A French word has four: the article "les" needs one of its own.

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
print(attnlab.table(X, rows=english, columns=["colour", "animal", "action"], decimals=0))
print("\nmemory, the sequence that is looked at")
meanings = ["article", "colour", "animal", "action"]
print(attnlab.table(memory, rows=french, columns=meanings, decimals=0))

# %% [markdown]
# ## 8.1 Queries here, keys and values there
#
# `Q = X W_Q` has a row for each English word, `K = memory W_K` and `V = memory W_V` one for each
# French word. The sequences differ in length and width. Only one thing has to fit: a query and a
# key must be equally wide, or they could not be multiplied.
#
# Our `W_Q` asks for the word's own meaning, and strongly. `W_K` answers with the meaning and drops
# the article. `W_V` hands over the French word as it is.

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

print("\n8.1 Queries here, keys and values there")
print(cross)
print("\nQ = X W_Q")
print(attnlab.table(cross.Q, rows=english, decimals=0))
print("\nK = memory W_K")
print(attnlab.table(cross.K, rows=french, decimals=0))
print("\nraw_scores = Q Kᵀ, 3 x 4: who asks in the rows, who answers in the columns")
print(attnlab.table(cross.raw_scores, rows=english, columns=french, decimals=0))
assert cross.raw_scores.shape == (3, 4)

# %% [markdown]
# ## 8.2 Weights and context
#
# Each row sums to 1: an English word shares out its attention among the French ones. "black" finds
# "noirs", "cats" finds "chats", although the order of the two is different in French. "sleep" finds
# "dorment", and looks at "chats" too.
#
# The context has a row for each English word, and it is written in French columns.

# %%
sums = cross.weights.sum(axis=1, keepdims=True)
print("\n8.2 weights = softmax(raw_scores / √3)")
print(attnlab.table(np.hstack([cross.weights, sums]), rows=english, columns=[*french, "sum"]))
print("\ncontext = weights V")
print(attnlab.table(cross.context, rows=english, columns=meanings))
assert np.allclose(sums, 1)
found = [french[j] for j in cross.weights.argmax(axis=1)]
assert found == ["noirs", "chats", "dorment"]
assert cross.weights[2].argsort()[-2] == french.index("chats")
assert cross.context.shape == (3, 4)

# %% [markdown]
# ## 8.3 No causal mask
#
# A causal mask hides words that are not written yet. The French sentence is there in full before
# the first English word, so there is nothing to hide. Lay a causal mask over it all the same, and
# the first English word sees the first French one and no more. No English word sees "dorment".
#
# (The English words among themselves do need one: they are written one by one. That is
# self-attention, and it comes before in the same layer.)

# %%
wrong_mask = np.tri(3, 4, dtype=bool)
masked = attnlab.cross_attention(X, memory, W_Q, W_K, W_V, mask=wrong_mask)
print(
    f"\n8.3 No mask in 8.2: every word sees every word, {np.count_nonzero(cross.mask)} pairs of 12"
)
print("\nWeights with a causal mask, which is wrong here")
print(attnlab.table(masked.weights, rows=english, columns=french))
assert cross.mask.all()
assert masked.weights[0, french.index("les")] == 1
assert (masked.weights[:, french.index("dorment")] == 0).all()

# %% [markdown]
# ## 8.4 Attention does not know the order of what it looks at
#
# Deal out the French words in another order: the columns of the weights move along, the context
# stays. That is why a model adds position embeddings.

# %%
order = [3, 0, 2, 1]
shuffled = attnlab.cross_attention(X, memory[order], W_Q, W_K, W_V)
print("\n8.4 Weights with the French words in another order")
print(attnlab.table(shuffled.weights, rows=english, columns=[french[j] for j in order]))
print(f"largest change of the context: {np.abs(shuffled.context - cross.context).max():.1e}")
assert np.allclose(shuffled.weights, cross.weights[:, order])
assert np.allclose(shuffled.context, cross.context)

# %% [markdown]
# ## 8.5 Self-attention is the special case
#
# Let the English sentence look at itself, and cross-attention is self-attention.

# %%
W_K_english, W_V_english = np.eye(3), np.eye(3)
itself = attnlab.cross_attention(X, X, W_Q, W_K_english, W_V_english)
self_attention = attnlab.self_attention(X, W_Q, W_K_english, W_V_english)
print("\n8.5 Cross-attention of the English sentence to itself: weights")
print(attnlab.table(itself.weights, rows=english, columns=english))
print("\nself_attention: weights")
print(attnlab.table(self_attention.weights, rows=english, columns=english))
assert np.array_equal(itself.weights, self_attention.weights)
assert np.array_equal(itself.context, self_attention.context)
