# %% [markdown]
# # 8. A token's journey
#
# > Afterwards you can say: “A model reads ids, not words. Each block adds to a token's vector what
# > attention fetches and what the MLP makes of it; the last row is compared with every token there
# > is. It learns from the next token at every position.”
#
# A text goes in, and the next word comes out. Attention is only a step in between. This chapter
# follows the whole path, from characters to a sampled token, and ends with what a model learns
# from.
#
#     text -> ids -> vectors -> block 0 -> block 1 -> ... -> logits -> probabilities -> a token
#
# It is like a train ride: the id is the token's badge, its embedding is the uniform, and the blocks
# are the stations. At the last station GPT-2's 768 numbers become 50,257, one for each possible
# next token.
#
# We follow the last token of the text, since the next token is predicted from its row. Change the
# text, or any number below it, and run the chapter again.
#
# * **Objective**: Follow a token from characters to the next token, and say what the loss
#   compares.
# * **Before this**: [chapter 3](03_one_head_by_hand.py) and [chapter 4](04_your_journey.py).
# * **Time**: about 45 minutes, exercises included.
# * **Misconception**: "A token is a word." It is a piece of the vocabulary, often with the space
#   before it. "Attention is the whole model." Each block also has an MLP.

# %%
import math
from itertools import pairwise

import numpy as np

import attnlab
from attnlab import pictures
from attnlab.checking import checked
from attnlab.equations import Array
from attnlab.support.console import prepare_script

prepare_script()  # print on any terminal, and into pipes

TEXT = "The dog chased the ball, but it"
LATER = " rolled."  # how the text continues, for 8.8 and 8.9
TEMPERATURES = [0.5, 1.0, 2.0]
SEED = 0
CONTEXT, STRIDE = 4, 2  # for 8.9

model = attnlab.GPT2.default("pocket")  # GPT-2 if you have it, otherwise pocket
print(model)

# %% [markdown]
# ## 8.1 From text to ids
#
# A model doesn't see letters. Its **vocabulary** is a list of pieces of text, and a piece's **id**
# is its number in that list. A text is split into such pieces, the **tokens**. `Ġ` stands for a
# space: the space belongs to the word after it, so `The` and `Ġthe` are different tokens with
# unrelated ids.
#
# GPT-2 builds its pieces from bytes, by **byte pair encoding**: a word that isn't in the vocabulary
# is split further, if necessary into single bytes. So the vocabulary can express any text; rare
# words just take more tokens.

# %%
max_tokens = model.config.n_positions
ids = model.tokenizer.encode(TEXT)[-max_tokens:] or [0]  # for an empty text, any token
trace = model.trace(ids)
symbols = trace.tokens.symbols
T, D = trace.embedding.shape

print(f"\n8.1 {T} tokens of a vocabulary of {model.config.vocab_size:,}")
print(trace.tokens)
print(f"\nunbelievable: {' '.join(model.tokenizer.tokens('unbelievable').symbols)}")
trace.tokens

# %% [markdown]
# ## 8.2 From ids to vectors
#
# The id picks a row of a matrix `W_E`, which has a row for each token of the vocabulary:
# [`token_embedding`](../attnlab/equations.py). Some write this as a product: a **one-hot** row
# (zeros with a single 1) times `W_E`. The result is the same, but computing the product is slower.
#
# That row says which token it is, but not where the token is. So a row of a second matrix is added,
# `W_P`, which has a row for each position: [`embedding`](../attnlab/equations.py). Both matrices
# are learned, like all others.

# %%
W_E = model.parameters["W_E"]
last = T - 1
one_hot = np.zeros(len(W_E))
one_hot[ids[last]] = 1

print(
    f"\n8.2 The vector of {symbols[last]}: row {ids[last]} of W_E, row {last} of W_P, and the sum"
)
vectors = {
    "token": trace.token_embedding,
    "position": trace.position_embedding,
    "sum": trace.embedding,
}
shown = np.stack([vector[last, :6] for vector in vectors.values()])
print(attnlab.table(shown, rows=list(vectors)))
print(f"the first 6 of {D} numbers")
print(f"\nW_E[id] and one-hot times W_E: {np.abs(one_hot @ W_E - W_E[ids[last]]).max():.0e} apart")

# %% [markdown]
# ## 8.3 LayerNorm, before each part of a block
#
# Numbers that pass through many layers can grow or shrink. So before each part of a block a token's
# row is normalised: its mean is subtracted, and the result is divided by the root of its variance.
# Each row is normalised separately, over its D numbers.
#
# Often "mean 0, variance 1" is given as the result. That is only halfway: then each column is
# multiplied by a learned **gain**, and a learned **bias** is added:
# [`layer_norm`](../attnlab/equations.py).

# %%
block = trace.blocks[0]
x = block.input[last].astype(np.float64)
normalised = (x - x.mean()) / np.sqrt(x.var() + block.attention.epsilon)
X_row = normalised * block.attention.gain + block.attention.bias

print(f"\n8.3 {symbols[last]} before the attention of block 0")
stages = {"input": x, "mean 0, variance 1": normalised, "times gain, plus bias": X_row}
table = [[row.mean(), row.var(), *row[:4]] for row in stages.values()]
names = ["mean", "variance", *(f"column {j}" for j in range(4))]
print(attnlab.table(table, rows=list(stages), columns=names))
print(f"\nLargest difference from attention.X: {np.abs(X_row - block.attention.X[last]).max():.0e}")

# %% [markdown]
# ## 8.4 A block: attention fetches, the MLP processes
#
# A block has two parts. In **attention** a token looks at others and fetches their values ([chapter
# 3](03_one_head_by_hand.py)). Nowhere else in the model does information move from one token to
# another.
#
# The **MLP** (multi-layer perceptron, or feed-forward network) works on each token alone: a linear
# map to four times as many columns, an **activation function**
# ([`activated`](../attnlab/equations.py)), and a linear map back. To show that it needs no other
# token, we give it a single row.

# %%
mlp = block.mlp
hidden = mlp.X[last] @ mlp.W_1 + mlp.b_1
activated = mlp.activation(hidden)
output = activated @ mlp.W_2 + mlp.b_2

print(f"\n8.4 The MLP of block 0, with the row of {symbols[last]} alone")
for name, row in {"X": mlp.X[last], "hidden": hidden, "output": output}.items():
    print(f"  {name:7} {row.shape[0]:5} numbers")
print(f"above 0 in hidden: {np.count_nonzero(hidden > 0)} of {hidden.size}")
print(f"largest difference from mlp.output: {np.abs(output - mlp.output[last]).max():.0e}")

# %% [markdown]
# The activation function is GELU: values well above 0 pass, values well below become 0. Without
# this **nonlinearity** the two linear maps would equal a single map ([chapter
# 2](02_a_matrix_is_a_map.py)), and the MLP could only stretch and rotate.

# %%
line = np.linspace(-4, 4, 81)
functions = {
    "GELU": attnlab.equations.gelu(line),
    "ReLU": np.maximum(line, 0),
    "no nonlinearity": line,
}
pictures.curves(functions, x=line, x_name="hidden", y_name="activated")

# %% [markdown]
# ## 8.5 The residual stream
#
# Neither part replaces the row: each **adds** its output to the row:
# [`residual`](../attnlab/equations.py). So a sum runs from the embedding to the last block, the
# **residual stream**; blocks read from it and write to it.
#
#     stream = embedding + attention 0 + MLP 0 + attention 1 + MLP 1 + ...
#
# The picture shows the lengths of the vectors written to it, for each token.

# %%
writes = {"embedding": trace.embedding}
for layer, block in enumerate(trace.blocks):
    writes |= {f"attention {layer}": block.attention.output, f"MLP {layer}": block.mlp.output}
stream = np.sum(list(writes.values()), axis=0)
lengths = np.stack([np.linalg.norm(rows, axis=-1) for rows in writes.values()])

print("\n8.5 Lengths of the vectors written to the stream")
print(attnlab.table(lengths, rows=list(writes), columns=symbols, decimals=1, max_rows=26))
difference = np.abs(stream - trace.blocks[-1].output).max()
print(f"\nThe sum of all, and the last block's output: {difference:.0e} apart")

pictures.heatmap(lengths, rows=list(writes), columns=symbols, title="length of what is written")

# %% [markdown]
# [The whole journey as a picture](book/pages/en/guide.md#explore
# "playground.html#layer=1&head=2&query=7&ablate=1"). The last MLP is ablated, so the stream reaches
# the logits without its vectors. Press × next to *MLP of layer 1* and look at the next words again:
# which word needed that MLP? Then open *All layers*, and see where attention brings "it" something
# from another token, and where an MLP changes "it" alone.

# %% [markdown]
# ## 8.6 From the stream to logits
#
# After the last block comes a final LayerNorm. Then the row is compared with every token of the
# vocabulary, by a dot product with that token's column of `W_U`:
# [`logits`](../attnlab/equations.py). In GPT-2 `W_U` is `W_E` transposed, so input and output share
# the same vectors. A token's **logit** says how well it would fit next; it may be any number.

# %%
logits = trace.next_logits.astype(np.float64)
best = [int(id) for id in np.argsort(-logits, kind="stable")[:6]]
names = [model.tokenizer.tokens([id]).symbols[0] for id in best]

print(f"\n8.6 {logits.size:,} logits after {symbols[last]}, the largest")
print(trace.next_tokens(6))
product = float(trace.final[last] @ trace.W_U[:, best[0]])
print(f"\nby hand, for {names[0]}: a dot product of {D} numbers = {product:.4f}")

# %% [markdown]
# The same can be done after each part of a block, as if the model ended there: that is a **logit
# lens** ([chapter 14](14_what_if.py) uses it too). It shows how an answer forms. With the pocket
# model and the text above, the stream says "it" at first, its own token; the attention of block 1
# brings the answer.

# %%
lens = attnlab.lens(trace)
print("\nThe two best at each point, as if the model ended there")
print(lens.top(2, last).table())
lens.plot()

# %% [markdown]
# ## 8.7 Temperature and sampling
#
# Softmax turns the logits into probabilities ([chapter 3](03_one_head_by_hand.py)). Before that the
# logits may be divided by a **temperature**. Below 1 the differences grow, and the best token gets
# more; above 1 the differences shrink, and the other tokens get more. The order doesn't change.
#
# Then one token is **sampled** (drawn) with these probabilities.

# %%
draws = 1000


def at_temperature(temperature: float) -> Array:
    """The probabilities; at temperature 0 the best token has probability 1."""
    scaled = logits / (temperature or 1e-9)
    powers = np.exp(scaled - scaled.max())
    probabilities: Array = powers / powers.sum()
    return probabilities


probabilities = np.stack([at_temperature(temperature) for temperature in TEMPERATURES])
labels = [f"temperature {temperature:g}" for temperature in TEMPERATURES]

print("\n8.7 Probabilities of the best tokens")
print(attnlab.table(probabilities[:, best], rows=labels, columns=names))
rng = np.random.default_rng(SEED)
draw_counts = [
    np.bincount(rng.choice(logits.size, draws, p=p), minlength=logits.size) for p in probabilities
]
print(f"\nHow often each is drawn, in {draws} draws")
print(attnlab.table(np.stack(draw_counts)[:, best], rows=labels, columns=names, decimals=0))

pictures.heatmap(probabilities[:, best], rows=labels, columns=names, title="probability")

# %% [markdown]
# The sampled token is appended to the text, and the model runs again with one more token: this
# **autoregressive** loop is how a model generates text. (Nothing about the earlier tokens has to be
# recomputed, see [chapter 11](11_what_the_cache_saves.py).)

# %%
generation = model.generate(ids, 8, temperature=0, drop_oldest=True)
print("\nEight more tokens, always the best")
print(generation)

# %% [markdown]
# ## 8.8 What the model learns from: each position has a target
#
# Where do all those matrices come from? They are learned from texts, whose next tokens are known.
# Take a text, and put next to each token the token that follows it. Inputs are all tokens but the
# last, **targets** are all tokens but the first: the same text, shifted by one.
#
# The **loss** at a position, its **cross-entropy**, is -ln of the probability that the target got:
# 0 if the model was certain of the target, large if it was surprised. A text's loss is the mean
# over positions. Training by gradient descent changes every matrix a little so that the loss falls
# ([chapter 12](12_watching_a_head_form.py)). One pass trains all positions at once, since the
# causal mask hides each position's target ([chapter 4](04_your_journey.py)). e to the power of the
# mean loss is the **perplexity**: among how many equally likely tokens the model seems to choose.

# %%
story = model.trace((model.tokenizer.encode(TEXT + LATER) or [0, 0])[-max_tokens:])
inputs, targets = story.ids[:-1], story.ids[1:]
target_probabilities = attnlab.softmax(story.logits[:-1].astype(np.float64))[
    range(len(targets)), targets
]
losses = -np.log(np.maximum(target_probabilities, 1e-300))

print("\n8.8 Each token, its target, and the probability the model gave it")
arrows = [f"{a} -> {b}" for a, b in pairwise(story.tokens.symbols)]
print(
    attnlab.table(
        np.stack([target_probabilities, losses], 1),
        rows=arrows,
        columns=["probability", "loss in nats"],
    )
)
if len(targets):
    print(f"\nmean loss {losses.mean():.4f}, by the library {story.loss:.4f}")
    print(f"perplexity e^{losses.mean():.2f} = {math.exp(losses.mean()):.1f} tokens")
print(f"a model that knows nothing has a loss of ln {logits.size} = {math.log(logits.size):.2f}")

# %% [markdown]
# The loss can't be 0 everywhere: after "The" nobody can know which animal comes. The loss that
# comes from what can't be known remains in the best model, too.
#
# ## 8.9 Context length and stride
#
# A model sees a limited number of tokens, its **context length** (`n_positions`), and a book is
# longer. So for training a text is cut into windows. Each window gives as many predictions as it
# has tokens, the first prediction from one token, the last from all of them. The **stride** is the
# distance from the start of a window to the start of the next. If the stride equals the window's
# length, each token is a target once. If it is smaller, windows overlap, and tokens come up again
# with more context. A **batch** is several windows side by side, trained in one step.

# %%
N = len(story.tokens)
length, stride = max(CONTEXT, 1), max(STRIDE, 1)
starts = range(0, max(N - length, 0), stride)
counts = np.zeros(N, int)

print(f"\n8.9 Windows of {length} with stride {stride}: {len(starts)}")
for start in starts:
    window = story.tokens[start : start + length + 1].symbols
    counts[start + 1 : start + length + 1] += 1
    if start < 8 * stride:
        print(f"  {' '.join(window[:-1])}  ->  {' '.join(window[1:])}")
print("\nHow often each token is a target")
print(attnlab.table([counts], rows=[""], columns=story.tokens.symbols, decimals=0))

# %% [markdown]
# What is a long context good for? Here the model sees only the last few tokens of the text, then
# more and more of them. With the pocket model and the text above, "it" alone says little. When
# "ball" comes into view, the model knows of something that can roll, and when "The dog" is there,
# of something that may bark.

# %%
tokens_seen = range(1, min(T, 32) + 1)
best_probabilities = np.stack(
    [attnlab.softmax(model.trace(ids[-n:]).next_logits)[best[:2]] for n in tokens_seen]
)

print("\nProbability of the two best next tokens, by number of tokens seen")
labels = [f"{n} from {symbols[-n]}" for n in tokens_seen]
print(attnlab.table(best_probabilities, rows=labels, columns=names[:2]))
pictures.curves(
    dict(zip(names[:2], best_probabilities.T, strict=True)),
    x=list(tokens_seen),
    x_name="tokens seen",
    y_name="probability",
)

# %% [markdown]
# ## 8.10 Predict, change, see
#
# The answers are for the pocket model.
#
# **Exercise 1 (medium).** The two best logits after "but it" are 12.3077 and 12.0749. By what
# factor is the first more probable than the second, at temperature 1? At 0.1? Work it out before
# you add 0.1 to `TEMPERATURES`.
#
# <details><summary>Answer</summary>
#
# By e^0.2328 = 1.26 at temperature 1, and by e^2.328 = 10.26 at temperature 0.1: the difference of
# the logits is divided by the temperature. The best token goes from 0.542 to 0.911.
#
# </details>
#
# **Exercise 2 (basic).** Put `TEXT = " dog dog dog"`. Are the three rows of `trace.token_embedding`
# equal? Are those of `trace.embedding` equal?
#
# <details><summary>Answer</summary>
#
# The token embeddings are the same to the last bit: one id, one row of `W_E`. The embeddings
# differ, since each includes another row of `W_P`; the first two are 1.04 apart (the length of
# their difference). (Without the leading space the first token would be another one.)
#
# </details>
#
# **Exercise 3 (medium).** Put `LATER = " meowed."`. Which lines of the table in 8.8 change?
#
# <details><summary>Answer</summary>
#
# The line of "it" changes, which now has " meowed" as its target: " rolled" had a probability of
# 0.542, a loss of 0.613; " meowed" has 0.0001, a loss of 9.23, as there is no cat in the text.
# Earlier positions don't see the new word. The line after it could change, but after " meowed" a
# full stop is just as certain.
#
# </details>
#
# **Exercise 4 (medium).** The text with its continuation has 10 tokens, and the windows above have
# stride 2. How many windows of 4 tokens are there with stride 4, and how many with stride 1? And
# how often is a token a target at most?
#
# <details><summary>Answer</summary>
#
# With stride 4 there are 2 windows, and each token is a target at most once; the last token is
# never one, as no whole window is left for it. With stride 1 there are 6 windows, and tokens in the
# middle are targets 4 times.
#
# </details>

# %% [markdown]
# **Task 1 (basic).** Write the first step of the journey, from ids to vectors. Return
# `token_embedding`, `position_embedding` and `embedding`.


# %%
def my_embedding(ids: Array, W_E: Array, W_P: Array) -> dict[str, Array]:
    raise NotImplementedError


# %%
print("\n8.10 Your own embedding")
print(checked(trace, my_embedding, np.array(ids), W_E, model.parameters["W_P"]))

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# No product is needed: an id is the number of a row. What does `W_E[3]` give, and what does
# `W_E[[3, 5]]`?
#
# <details><summary>Hint 2</summary>
#
# `W_E[ids]` is a row for each token, (T, D). The first token is at position 0, so the positions are
# 0, 1, 2 and so on.
#
# <details><summary>Hint 3</summary>
#
# `W_P` has a row for each possible position, more than this text needs: take the first `len(ids)`
# rows. The embedding is the sum of the two.
#
# <details><summary>Solution</summary>
#
# [`my_embedding`](book/solutions/chapter_08.py)
#
# </details>
#
# </details>
#
# </details>
#
# </details>

# %% [markdown]
# **Task 2 (medium).** Write the last step, from the residual stream after all blocks to the logits.
# It is a LayerNorm, then the unembedding. Return `final` and `logits`.


# %%
def my_logits(x: Array, gain: Array, bias: Array, epsilon: float, W_U: Array) -> dict[str, Array]:
    raise NotImplementedError


# %%
print("\n8.10 Your own logits")
norm_parameters = trace.gain, trace.bias, model.config.layer_norm_epsilon
print(checked(trace, my_logits, trace.blocks[-1].output, *norm_parameters, trace.W_U))

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# 8.3 has the LayerNorm of one row. Here `x` has T rows: every mean and every variance is taken over
# `axis=1`.
#
# <details><summary>Hint 2</summary>
#
# `keepdims=True` keeps a column of means, (T, 1), which NumPy can subtract from (T, D). The
# variance is the mean of the squares of what remains.
#
# <details><summary>Hint 3</summary>
#
# Divide by √(variance + epsilon), with epsilon under the root, multiply by `gain` and add `bias`:
# that is `final`. The logits are `final @ W_U`, without a softmax.
#
# <details><summary>Solution</summary>
#
# [`my_logits`](book/solutions/chapter_08.py)
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
# * Text becomes ids, ids become rows, and a row for the position is added.
# * Each block adds to the residual stream what attention fetches and what the MLP makes of it.
# * Logits compare the last row with every token; softmax with a temperature makes them
#   probabilities.
# * Every position of a text is a training example; the loss is the mean cross-entropy, and e to the
#   power of the loss is the perplexity.
