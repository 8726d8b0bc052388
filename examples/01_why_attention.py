# %% [markdown]
# # 1. Why attention
#
# > Afterwards you can say: “A single vector for a sentence has to forget something: the order of
# > the words, or the distant past. Attention keeps a vector for every word and takes what it needs
# > from all of them. It isn't similarity: A may attend to B without B attending to A.”
#
# A sentence is several words, and a network works with vectors. How does the network combine the
# vectors of the words to predict the next word? The first answer was a single vector for the whole
# sentence. This chapter shows with numbers what that loses, what attention does instead, and why
# attention is more than "how similar are two words".
#
# Change any name in capitals below, or any number, and run the chapter again.
#
# * **Objective**: Say what a single vector for a sentence loses, and why similarity alone can't
#   serve as attention.
# * **Before this**: how to multiply a vector by a matrix; a little Python.
# * **Time**: about 30 minutes, exercises included.
# * **Misconception**: "Attention weights are similarities." Similarity is symmetric and involves no
#   question; attention compares a query with keys.

# %%
import numpy as np

import attnlab
from attnlab import pictures
from attnlab.support.console import prepare_script

prepare_script()  # print on any terminal, and into pipes

model = attnlab.GPT2.default("pocket")  # GPT-2 if you have it, otherwise pocket

FIRST, SECOND = "The dog chased the cat", "The cat chased the dog"
PROMPT = "The dog chased the ball, but it"
LAYER, HEAD = 1, 2  # in the pocket model, this head attends from “it” to an animal
SEED, WIDTH, WORDS, DECAY = 0, 64, 40, 0.9  # sizes of a network that reads word by word
SCALE = 1.0  # standard deviation of the words' numbers

# %% [markdown]
# ## 1.1 One vector for a sentence
#
# Give each word a vector and add the vectors up. The arrows below are drawn head to tail: two
# sentences with the same words in another order take different routes and end at the same point.
# The average of their vectors is the same too, and it doesn't tell you who chased whom.

# %%
arrows = {"dog": [1.0, 1.5], "chased": [1.5, 0.5], "cat": [1.5, -1.0]}
orders = [["dog", "chased", "cat"], ["cat", "chased", "dog"]]

print("\n1.1 One vector for a sentence")
averages = [np.mean([arrows[word] for word in order], axis=0) for order in orders]
print(attnlab.table(averages, rows=[" ".join(order) for order in orders], columns=["x", "y"]))
first, second = (
    {f"{n} {word}": arrows[word] for n, word in enumerate(order, 1)} for order in orders
)
pictures.arrows(first, title=" ".join(orders[0]))

# %%
pictures.arrows(second, title=" ".join(orders[1]))

# %% [markdown]
# A trained model's word vectors have the same problem. (A model splits a text into **tokens**,
# words or pieces of words, and has a vector for each of them, its **embedding**. The first cell
# printed the model's name: GPT-2, or the small one that comes with attnlab, which this book calls
# the pocket model.) Here are the averages of the token embeddings of `FIRST` and `SECOND`: for the
# sentences above, they differ only by rounding.

# %%
means = [model.trace(text).token_embedding.mean(axis=0) for text in (FIRST, SECOND)]
difference = float(np.abs(means[0] - means[1]).max())
print(f"\n{FIRST!r} and {SECOND!r}")
print(f"{len(means[0])} numbers each, at most {difference:.1e} apart")

# %% [markdown]
# ## 1.2 One step after the other, or all at once
#
# A **recurrent network** keeps the order. It reads one word at a time and mixes it into a state:
# new state = tanh(old state times a matrix + word), where tanh, an **activation function**,
# squeezes each number between -1 and 1. But the state always has the same size, and each new word
# overwrites part of it. Change only the first word: how much of that change is still in the state
# some words later?

# %%
rng = np.random.default_rng(SEED)
W_state, _ = np.linalg.qr(rng.normal(size=(WIDTH, WIDTH)))  # orthogonal: it preserves lengths
sentence = SCALE * rng.normal(size=(WORDS, WIDTH))
states = np.zeros((2, WIDTH))  # of the sentence, and of one with a different first word
differences = []
for n, word in enumerate(sentence):
    inputs = np.stack([word, SCALE * rng.normal(size=WIDTH) if n == 0 else word])
    states = np.tanh(DECAY * states @ W_state + inputs)
    differences.append(np.linalg.norm(states[0] - states[1]))
remaining = np.array(differences) / differences[0]

print("\n1.2 What is left of a different first word, some words later")
offsets = [n for n in (0, 1, 2, 5, 10, 20) if n < WORDS]
print(attnlab.table([remaining[offsets]], rows=["fraction"], columns=offsets))
pictures.curves({"fraction": remaining}, x_name="words later", y_name="fraction of the difference")

# %% [markdown]
# The fractions that are left depend on the scale of the words. At `SCALE = 1.0` tanh is often near
# -1 or 1, where it is flat: 0.003 of the difference is left after 10 words. At `SCALE = 0.1` tanh
# is almost a straight line: 0.25 is left, not far from the 0.35 of `DECAY` to the power of 10.
#
# This network is not trained. A trained one (an LSTM, say) remembers longer: beside its state it
# has a **cell state**, which no matrix overwrites, and learned gates that erase parts of it, add to
# it and read it. Two problems remain: a state of fixed size has to hold everything, and word 40 has
# to wait for word 39.
#
# Suppose such a network translates "I will eat" into "je vais manger". The **encoder** (the network
# that reads) turns the words into states h₁, h₂ and h₃; the **decoder** (the one that writes)
# receives only h₃, as a relay runner receives one baton. Read a paragraph, close your eyes and
# translate it: you have the same problem.
#
# <!-- drawing: relay -->
#
# In 2014 Bahdanau, Cho and Bengio removed the bottleneck. They kept a vector for every word, and
# let each step of the translation take a weighted sum of **all** of these vectors. The weights are
# computed anew at each step: for "je", say, 80 % of h₁ and 10 % each of h₂ and h₃. That is
# **attention**. (Their weights came from a small network; the dot product came later.) In 2017 the
# **Transformer** dropped the recurrence too: any word is one step away from any other, and all
# words are processed at once, by matrix products. The price is that T words have T² pairs ([chapter
# 17](17_where_next.py)).
#
# A text begins "I come from Pune, India", and after many sentences it ends with "I speak ...": a
# word at the start decides the last word. With attention the two words are one step apart.
#
# Here is half a century on one line:
#
# <!-- drawing: timeline -->
#
# * 1966: ELIZA, a therapist made of rules (Weizenbaum).
# * 1980s: recurrent networks.
# * 1997: LSTM, a recurrent network that forgets less.
# * 2014: attention on top of a recurrent network.
# * 2017: the Transformer, attention without recurrence.
# * 2018: GPT, only the Transformer's decoder.
#
# One question remains: where do the weights come from?

# %% [markdown]
# ## 1.3 Similarity: dot product and cosine
#
# The dot product multiplies two vectors number by number and adds up the products. The cosine
# divides the dot product by both lengths, so that only the directions count:
#
#     a · b = a₀b₀ + a₁b₁ + …        cos(a, b) = a · b / (|a| |b|)
#
# Must all vectors have length 1 before a dot product means anything? Many say so. Here are the
# lengths of some vectors in a model. (`Ġ` at the start of a token stands for the space before it.)

# %%
trace = model.trace(PROMPT)
trained_head = trace.head(LAYER, HEAD)
symbols = trace.tokens.symbols
block = trace.blocks[0]
D = block.input.shape[-1]
stages = {
    "token embedding": trace.token_embedding,
    "+ position": block.input,
    "mean 0, variance 1": attnlab.layer_norm(block.input, np.ones(D), np.zeros(D)),
    "LayerNorm": block.attention.X,
    "queries": trained_head.Q,
    "keys": trained_head.K,
}
lengths = {stage: np.linalg.norm(rows, axis=-1) for stage, rows in stages.items()}

print(f"\n1.3 Lengths of the vectors of {PROMPT!r}; sqrt(D) = {D**0.5:.2f}")
print(attnlab.table([*lengths.values()], rows=[*lengths], columns=symbols, decimals=2))

# %% [markdown]
# The vectors needn't have length 1: their lengths differ, and no step makes them 1. Subtracting the
# mean and dividing by the standard deviation makes every length √D; **LayerNorm** then multiplies
# by a learned gain and adds a learned bias, and the lengths differ again. With the prompt above the
# pocket model's rows are between 7.34 and 8.33 long after LayerNorm. For these rows the dot product
# and the cosine are nearly equivalent: their ratio is almost constant. Queries and keys (section
# 1.5) may have any length, and the length matters: a longer query gives sharper attention, a longer
# key changes every score it enters.

# %%
X_block = block.attention.X
cosines = X_block @ X_block.T / np.outer(lengths["LayerNorm"], lengths["LayerNorm"])
if len(symbols) > 2:
    off_diagonal = ~np.eye(len(symbols), dtype=bool)
    correlation = np.corrcoef((X_block @ X_block.T)[off_diagonal], cosines[off_diagonal])[0, 1]
    print(f"\nDot products and cosines of different tokens correlate by {correlation:.3f}")
pictures.heatmap(cosines, rows=symbols, columns=symbols, title="cos(X, X), layer 0")

# %% [markdown]
# ## 1.4 Similarity alone can't decide
#
# Could similarity give the weights? Take three words of "The dog dropped the ball because it was
# tired". Each has three numbers whose meaning we choose: is it an animal, a thing, a pronoun? The
# pronoun stands for something, so it has a bit of each. **Softmax** turns each row into weights:
# all positive, with the sum 1 ([chapter 3](03_one_head_by_hand.py) works one out).

# %%
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

similarity = X @ X.T
print("\n1.4 Similarity, X Xᵀ")
print(attnlab.table(similarity, rows=words, columns=words, decimals=1))
print()
for other in (dog, ball):
    terms = " + ".join(f"{a:g}·{b:g}" for a, b in zip(X[it], X[other], strict=True))
    print(f"  {words[it]} · {words[other]:4} = {terms} = {similarity[it, other]:g}")
similarity_weights = attnlab.softmax(similarity)
print("\nsoftmax(X Xᵀ), row by row")
print(attnlab.table(similarity_weights, rows=words, columns=words))

# %% [markdown]
# With the numbers above "it" is exactly as close to "dog" as to "ball". No softmax can undo that:
# equal scores get equal weights. And "it" gives its largest weight to itself.

# %% [markdown]
# ## 1.5 A learned question breaks the tie
#
# Attention gives every word two more vectors: a **query**, what it asks for, and a **key**, what it
# answers to. Two learned matrices produce them. With `W_K`, an animal answers to question 0, and a
# thing to question 1. With `W_Q`, an animal asks for a thing, a thing asks for nothing, and a
# pronoun asks strongly for an animal. Balls don't get tired; training would learn that. Such a set
# of matrices, with what is computed from it, is an attention **head**.
#
# The products of queries and keys are [`raw_scores`](../attnlab/equations.py) = Q Kᵀ. Before
# softmax they are divided by the square root of the key's width, here √2; [chapter
# 5](05_why_divide_by_root_d.py) explains why.

# %%
W_K = np.array([[1, 0], [0, 1], [0, 0]])  # an animal answers to question 0, a thing to question 1
W_Q = np.array(
    [
        [0, 1],  # an animal asks for a thing
        [0, 0],  # a thing asks for nothing
        [3, 0],  # a pronoun asks for an animal
    ]
)
W_V = np.eye(len(meanings))  # a word's value is its vector

head = attnlab.self_attention(X, W_Q, W_K, W_V, tokens=words)
print("\n1.5 raw_scores = Q Kᵀ")
print(attnlab.table(head.raw_scores, rows=words, columns=words, decimals=1))
print()
for other in (dog, ball):
    terms = " + ".join(f"{q:g}·{k:g}" for q, k in zip(head.Q[it], head.K[other], strict=True))
    print(f"  {words[it]} asks {words[other]:4}  {terms} = {head.raw_scores[it, other]:g}")
head

# %% [markdown]
# The vectors of the words are the same as before; the question decides. Let the pronoun ask for a
# thing instead, as in "because it was round", and the same words select the ball.

# %%
W_Q_thing = W_Q.copy()
W_Q_thing[2] = W_Q[2, ::-1]  # a pronoun now asks for a thing, not for an animal
other_head = attnlab.self_attention(X, W_Q_thing, W_K, W_V, tokens=words)
rows = [similarity_weights[it], head.weights[it], other_head.weights[it]]
print(f"\nWeights of {words[it]}")
print(attnlab.table(rows, rows=["by similarity", "W_Q", "W_Q_thing"], columns=words))

# %% [markdown]
# ## 1.6 Attention is not symmetric
#
# Similarity is the same in both directions, since a · b = b · a. A question is not: with the
# numbers above, the dog asks for the ball, and the ball asks for nothing. As a formula:
#
#     Q Kᵀ = X (W_Q W_Kᵀ) Xᵀ
#
# Similarity is the case where the matrix in the middle is the identity. A head learns a different
# one, which need not be symmetric; [chapter 2](02_a_matrix_is_a_map.py) shows what such matrices
# do.

# %%
W_QK = W_Q @ W_K.T
print("\n1.6 W_Q W_Kᵀ: what each row asks for (column)")
print(attnlab.table(W_QK, rows=meanings, columns=meanings, decimals=1))
distance = np.abs(X @ W_QK @ X.T - head.raw_scores).max()
print(f"\nX (W_Q W_Kᵀ) Xᵀ and raw_scores: at most {distance:g} apart")
for name, matrix in {"X Xᵀ": similarity, "Q Kᵀ": head.raw_scores}.items():
    print(f"{name} equal to its transpose: {np.allclose(matrix, matrix.T)}")
pictures.heatmap(W_QK, rows=meanings, columns=meanings, title="W_Q W_Kᵀ")

# %% [markdown]
# ## 1.7 In a trained model
#
# Here is the same comparison in a model. Some articles print softmax(X Xᵀ / √D) to show which
# tokens attend to which. No head computes that. After LayerNorm all rows have about the same
# length, so nothing is as similar to a row as that row itself. How much of the weight the diagonal
# takes depends on that length, and so on the gains that the model learned. In layer 1 of the pocket
# model the diagonal takes nearly everything. In layer 0 of the model `english`, whose gains are
# small, it takes less than half. Here are the rows that the head chosen above starts from.

# %%
dot_products = trained_head.X @ trained_head.X.T
softmax_of_products = attnlab.softmax(dot_products / D**0.5)
print(
    f"\n1.7 Mean of the diagonal of softmax(X Xᵀ / √D): {softmax_of_products.diagonal().mean():.2f}"
)
pictures.heatmap(softmax_of_products, rows=symbols, columns=symbols, title="softmax(X Xᵀ / √D)")

# %% [markdown]
# From the same X the head computes Q and K with its learned matrices. In the pocket model head 2 of
# layer 1 (counting starts at 0) attends from "it" to the dog, with a weight of 1.00. Softmax of
# similarity gives the dog 0.00, and by similarity alone the ball would be nearer. (The hatched
# cells are masked: no token attends to later ones. The last row has no masked cells, so the two
# pictures can be compared there.)

# %%
last_row = {
    "X Xᵀ": dot_products[-1],
    "Q Kᵀ": trained_head.raw_scores[-1],
    "softmax(X Xᵀ / √D)": softmax_of_products[-1],
    "weights": trained_head.weights[-1],
}
print(f"\nThe row of {symbols[-1]!r}: similarity, and {trained_head.title!s}")
print(attnlab.table([*last_row.values()], rows=[*last_row], columns=symbols, decimals=2))
trained_head.plot("weights")

# %% [markdown]
# So attention is not "how similar are these words" but "how well does this word answer what that
# word asks for". What the asking word then gets is a third vector, the **value**. [Chapter
# 3](03_one_head_by_hand.py) works through all of it by hand, and [chapter
# 7](07_heads_that_learned.py) finds more heads that learned something.

# %% [markdown]
# [Head 1.2 in the playground](book/pages/en/guide.md#explore
# "playground.html#layer=1&head=2&query=7"). Replace "dog" with "hen" in
# the sentence, and watch where "it" looks and which next words rise. (The book shows
# the playground here; `attnlab playground playground.html` writes it beside a notebook.)

# %% [markdown]
# ## 1.8 Predict, change, see
#
# **Exercise 1 (basic).** GPT-2 adds a vector for its position to each token. In 1.1 use
# `.embedding`, which includes it, instead of `.token_embedding`. Can the average tell the two
# sentences apart now? Predict first.
#
# <details><summary>Answer</summary>
#
# No, the averages are still less than 1e-6 apart. The average of sums is the sum of averages, here
# of an average of words and one of positions. Both sentences have the same words and the same
# positions. The order survives only as long as the vectors stay separate.
#
# </details>
#
# **Exercise 2 (basic).** Make the dog twice as long: `[4, 0, 0],  # dog`. What happens to its
# similarity to "it", to its similarity to itself, and to the cosine between "dog" and "it"?
#
# <details><summary>Answer</summary>
#
# The similarity to "it" doubles, from 2 to 4. The similarity to itself goes from 4 to 16, since
# both factors doubled. The cosine stays at 0.5774: the direction is the same.
#
# </details>
#
# **Exercise 3 (medium).** Choose the pronoun's row of `W_Q` so that "it" attends to "dog" and
# "ball" equally again. What does "it" then give to itself?
#
# <details><summary>Answer</summary>
#
# `[3, 2]`, or any two numbers where the first is larger by 1. The query of "it" is the sum of the
# rows for animal, thing and pronoun, here [3, 3], and the raw scores are 6, 6 and 6. All three
# weights are 0.3333 then. (The animal in "it" already asks for a thing once, hence not `[3, 3]`.)
#
# </details>
#
# **Exercise 4 (medium).** Put a single 1 into the row of a thing in `W_Q`, so that the ball asks
# for the dog. What are the ball's weights?
#
# <details><summary>Answer</summary>
#
# With `[1, 0],` the ball's raw scores are 4, 0 and 2, and its weights 0.7679 (dog),
# 0.0454 (ball) and 0.1867 (it).
#
# </details>

# %% [markdown]
# ## Summary
#
# * A mean of word vectors loses the order; a state of fixed size forgets the distant past.
# * Attention keeps a vector for each word and takes a weighted sum of all of them.
# * The weights come from queries and keys, which two learned matrices compute from the same
#   vectors.
# * So the same words answer different questions differently, and A may attend to B without B
#   attending to A.
