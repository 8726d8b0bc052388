# %% [markdown]
# # 10. Cross-attention
#
# > Afterwards you can say: “In a translation the queries come from the text being written, the keys
# > and values from the text being read. So there is a row of weights for each word written and a
# > column for each word read. The text being read needs no mask, since it is complete.”
#
# A translation model writes "black cats sleep" while attending to "les chats noirs dorment". An
# **encoder** has read the French; the **decoder** writes the English. The queries come from one
# sequence, the keys and values from the other. (In speech recognition the queries come from the
# text, the keys and values from the audio.) Everything else is as in [chapter
# 3](03_one_head_by_hand.py).
#
# The numbers are chosen so that each column has a meaning. An English word has three numbers
# (colour, animal, action). A French word has four: the article "les" needs a column too. Change any
# number, and run the chapter again.
#
# * **Objective**: Compute attention between two sequences, as in a translation model.
# * **Before this**: [chapter 3](03_one_head_by_hand.py).
# * **Time**: about 35 minutes, exercises included.
# * **Misconception**: "The two sequences must be equally long or wide." Only queries and keys
#   must be equally wide.

# %%
import numpy as np

import attnlab
from attnlab import pictures
from attnlab.checking import checked
from attnlab.equations import Array
from attnlab.support.console import prepare_script

prepare_script()  # print on any terminal, and into pipes

english = ["black", "cats", "sleep"]
X = np.array(
    [
        [2, 0, 0],  # black
        [0, 2, 0],  # cats
        [0, 1, 2],  # sleep, which also asks a little who sleeps
    ]
)

# %%
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

print("X, the querying sequence")
print(attnlab.table(X, rows=english, columns=meanings[1:], decimals=1))
print("\nmemory, the attended sequence")
print(attnlab.table(memory, rows=french, columns=meanings, decimals=1))

# %% [markdown]
# ## 10.1 Queries from one sequence, keys and values from the other
#
# `Q = X W_Q` has a row for each English word, and `K = memory W_K` and `V = memory W_V` have a row
# for each French word. The sequences differ in length and in width. Only one thing has to match: a
# query and a key must be equally wide, or they can't be multiplied.
#
# The `W_Q` here makes each word ask for its meaning, with a factor that sharpens the weights. `W_K`
# gives each French word's meaning and drops the article. `W_V` passes on the French word unchanged.

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

print("\n10.1 Queries from one sequence, keys and values from the other")
print("\nQ = X W_Q")
print(attnlab.table(cross.Q, rows=english, decimals=1))
print("\nK = memory W_K")
print(attnlab.table(cross.K, rows=french, decimals=1))

# %% [markdown]
# The equation is the same as for any attention, [`raw_scores`](../attnlab/equations.py): `Q Kᵀ`.
# The rows of this product are the queries, its columns the keys. With 3 words on one side and 4 on
# the other it is not square, and no diagonal means "the word itself".

# %%
print("\nraw_scores = Q Kᵀ")
print(attnlab.table(cross.raw_scores, rows=english, columns=french, decimals=1))
print()
print(cross)
cross

# %% [markdown]
# ## 10.2 Weights
#
# Each row sums to 1: an English word divides its attention among the French ones. With the numbers
# above, "black" finds "noirs" and "cats" finds "chats", although their order is reversed in French.
# "sleep" finds "dorment", and also attends to "chats".

# %%
print(f"\n10.2 weights = softmax(raw_scores / √{cross.K.shape[1]})")
sums = cross.weights.sum(axis=1, keepdims=True)
print(attnlab.table(np.hstack([cross.weights, sums]), rows=english, columns=[*french, "sum"]))
print()
for word, row in zip(english, cross.weights, strict=True):
    print(f"  {word} attends most to {french[row.argmax()]}")

pictures.heatmap(cross.weights, rows=english, columns=french, title="weights")

# %% [markdown]
# Such a picture of a trained translation model made attention famous (Bahdanau and others, 2014):
# it has one language on each axis, and nearly a diagonal. The large weights leave the diagonal
# where the two languages order their words differently: "European Economic Area" is "zone
# économique européenne". In their picture a brighter cell is a larger weight; in ours, below, a
# darker cell is a larger weight. Our meanings are chosen by hand; theirs were learned. In both
# pictures, English has been read and French is being written.

# %%
source = ["the", "European", "Economic", "Area", "was", "founded"]
target = ["la", "zone", "économique", "européenne", "fut", "fondée"]
meaning_rows = [
    source.index(word) for word in ("the", "Area", "Economic", "European", "was", "founded")
]
one_hot = np.eye(len(source))  # each meaning is a column
aligned = attnlab.cross_attention(one_hot[meaning_rows], one_hot, 8 * one_hot, one_hot, one_hot)
print("\nEach French word and the English word that it attends to most")
for word, row in zip(target, aligned.weights, strict=True):
    print(f"  {word:12}{source[row.argmax()]:12}{row.max():.2f}")
pictures.heatmap(aligned.weights, rows=target, columns=source, title="alignment")

# %% [markdown]
# ## 10.3 Context
#
# The context has a row for each **English** word, in **French** columns: it has as many rows as
# there are queries, and it is as wide as a value. "sleep" gets mostly "dorment", and some of
# "chats".

# %%
print("\n10.3 context = weights V")
print(attnlab.table(cross.context, rows=english, columns=meanings))

# %% [markdown]
# ## 10.4 No causal mask
#
# A causal mask hides words that are not written yet. The French sentence is complete before the
# first English word, so there is nothing to hide. With a causal mask, the first English word would
# see only the first French one. With the words above, no English word would see the fourth French
# one, "dorment": not even "sleep", which needs it.

# %%
wrong_mask = np.tri(len(english), len(french), dtype=bool)
masked = attnlab.cross_attention(X, memory, W_Q, W_K, W_V, mask=wrong_mask)

seen = np.count_nonzero(cross.mask)
print(f"\n10.4 No mask: every word sees every word, {seen} pairs of {cross.mask.size}")
print("\nWeights with a causal mask, which is wrong here")
print(attnlab.table(masked.weights, rows=english, columns=french))

pictures.heatmap(masked.weights, rows=english, columns=french, title="weights, causal mask")

# %% [markdown]
# Among themselves the English words do need a causal mask, since they are written one by one. That
# is **self-attention**, and it comes first in each layer of the decoder. A word attends to what is
# written so far, then to the other sentence; then the MLP processes both ([chapter
# 8](08_a_tokens_journey.py)). GPT-2 is only a decoder: it has no second sequence, and so no
# cross-attention. Its prompt is part of its only sequence.
#
# ## 10.5 Attention ignores the order of the keys
#
# Pass the French words in reverse order: the columns of the weights move along, and the context
# stays the same. That is why a model adds position embeddings.

# %%
order = list(reversed(range(len(french))))  # or any other
shuffled = attnlab.cross_attention(X, memory[order], W_Q, W_K, W_V)

print("\n10.5 Weights with the French words in another order")
print(attnlab.table(shuffled.weights, rows=english, columns=[french[j] for j in order]))
print(f"\nLargest change of the context: {np.abs(shuffled.context - cross.context).max():.1e}")

# %% [markdown]
# ## 10.6 Self-attention is the special case
#
# If the English sentence attends to itself, cross-attention is self-attention. It is the same
# function, with the same sequence as both arguments.

# %%
W_K_english, W_V_english = np.eye(X.shape[1], W_Q.shape[1]), np.eye(X.shape[1])
same_sequence = attnlab.cross_attention(X, X, W_Q, W_K_english, W_V_english)
self_attention = attnlab.self_attention(X, W_Q, W_K_english, W_V_english)

print("\n10.6 The English sentence attends to itself: weights")
print(attnlab.table(same_sequence.weights, rows=english, columns=english))
difference = np.abs(same_sequence.weights - self_attention.weights).max()
print(f"\nLargest difference from self_attention: {difference:.1e}")

# %% [markdown]
# ## 10.7 Predict, change, see
#
# **Exercise 1 (medium).** Make `W_Q` twice as large in 10.1. Does "sleep" attend to "chats" more,
# or less? And does "black" still attend most to "noirs"?
#
# <details><summary>Answer</summary>
#
# It attends to "chats" less: the weight falls from 0.1427 to 0.0303. All scores are twice as far
# apart, so softmax gives even more to the largest. Which score is the largest does not change:
# "black" still attends most to "noirs".
#
# </details>
#
# **Exercise 2 (medium).** Let "sleep" not ask who sleeps: replace the 1 in the row of "sleep" in
# `X` by 0. Where does the weight of "chats" go?
#
# <details><summary>Answer</summary>
#
# "chats" falls to 0.0286, the same as "les" and "noirs", and "dorment" rises from 0.8068 to 0.9142.
# A row always sums to 1: what one word loses, the others share.
#
# </details>
#
# **Exercise 3 (basic).** Put `W_Q = -3 * np.eye(3)`. What does "black" attend to now?
#
# <details><summary>Answer</summary>
#
# It attends to everything but "noirs", which keeps 0.0103; the other three words have 0.3299 each.
# A negative score repels.
#
# </details>
#
# **Exercise 4 (medium).** Now let the French words query the English words:
# `attnlab.cross_attention(memory, X, W_K, W_Q, np.eye(3))`. What shape do the weights have? Are
# these weights the transpose of those in 10.2?
#
# <details><summary>Answer</summary>
#
# The weights are 4 x 3. The raw scores are the transpose of those in 10.1, since the same rows are
# multiplied. The weights are not the transpose: softmax normalises each row separately, and the
# rows are different now. "les" asks for nothing, so all its scores are 0, and each English word
# gets 0.3333 of its attention.
#
# </details>

# %% [markdown]
# **Task 1 (medium).** Write cross-attention. Return `Q`, `K`, `scores`, `weights` and `context`.
# Before you run it, say the shape of each.


# %%
def my_cross_attention(
    X: Array, memory: Array, W_Q: Array, W_K: Array, W_V: Array
) -> dict[str, Array]:
    raise NotImplementedError


# %%
print("\n10.7 Your own cross-attention")
print(checked(cross, my_cross_attention, X, memory, W_Q, W_K, W_V))

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Which sequence has the queries, and which the keys? Only the queries come from `X`; keys and
# values both come from `memory`.
#
# <details><summary>Hint 2</summary>
#
# `Q @ K.T` has a row for each English word and a column for each French one, 3 x 4. Divide by the
# root of the keys' width. There is no mask.
#
# <details><summary>Hint 3</summary>
#
# Take the softmax over the French words: `axis=1`, so that each English word's row sums to 1. The
# context, `weights @ V`, is 3 x 4 as well, but its columns are those of V.
#
# <details><summary>Solution</summary>
#
# [`my_cross_attention`](book/solutions/chapter_10.py)
#
# </details>
#
# </details>
#
# </details>
#
# </details>

# %% [markdown]
# ## Summary
#
# * Queries come from one sequence; keys and values come from the other.
# * The weights have a row for each query and a column for each key: no square, no diagonal.
# * A complete source needs no causal mask; the text being written needs one.
# * Self-attention is the case where both sequences are the same.
