# %% [markdown]
# # 6. One head of GPT-2, step by step
#
# > Afterwards you can say: “I have recomputed a published table of GPT-2's attention, from its
# > scores to its weights. I can name the steps of a head in order. And I know why one other
# > character in the prompt can change every number.”
#
# A published article (orczhou.com, "understanding-llm-attention", 2025-12-31) walks through one
# head of GPT-2, layer 0, head 0, and prints tables of what it finds. This chapter repeats that
# walkthrough twice. The first time is on paper: the article's tables are in attnlab, and its
# arithmetic can be redone from them, with no model and no download. The second time is on the model
# you have, step by step, with a verdict: are these the article's numbers?
#
# The model is GPT-2 small if it is in the Hugging Face cache. Otherwise it is the pocket GPT-2 that
# comes with attnlab. The pocket GPT-2 has the same architecture, but another vocabulary, narrower
# vectors and its own numbers. The first line of output says which model it is, and how to get
# GPT-2. To use another model, put its name or directory in the environment variable
# `ATTNLAB_MODEL`. To see another text, change `PROMPT`.
#
# * **Objective**: Follow every number of one trained head, and check a published table against a
#   model.
# * **Before this**: [chapter 3](03_one_head_by_hand.py) and [chapter 4](04_your_journey.py).
# * **Time**: about 35 minutes, exercises included.
# * **Misconception**: "LayerNorm leaves mean 0 and variance 1." A learned gain and bias follow.

# %%
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

import attnlab
from attnlab import figures, pictures, walkthrough
from attnlab.support.console import prepare_script
from attnlab.support.tables import Paragraph

prepare_script()  # print on any terminal, and into pipes

# %%
PROMPT = "It’s very hot in summer. Swimming is"
model = attnlab.GPT2.default("pocket")  # GPT-2 if you have it, otherwise pocket

# %% [markdown]
# ## 6.1 What was printed
#
# The article's prompt is 12 tokens. In a token's symbol `Ġ` stands for a space before it. The
# apostrophe is curly, three bytes, which GPT-2's **byte pair encoding** (BPE) splits into two
# tokens, `âĢ` and `Ļ`.
#
# A row of GPT-2 has 768 numbers, and one head's row has 64. That is too long for an article, so
# most of its tables show three columns, and the table of `V` shows six rows. The scores are there
# in full. The arrays below are these tables. Add a line such as `scores[5, 0] = 1` below the line
# that sets `V`, and everything after it is computed from your number.

# %%
recorded = figures.load("walkthrough")
wte, wpe = np.array(recorded["wte"]), np.array(recorded["wpe"])
symbols = recorded["symbols"]

# %%
scores = np.array(recorded["scores"])
V = np.array(recorded["V"][:5])  # of the first five tokens; the article omits most of the rest
T = len(scores)


# %%
def show(
    heading: str, table: ArrayLike, rows: Sequence[str], columns: Sequence[str], decimals: int = 4
) -> None:
    """Print a table under a heading."""
    print(f"\n{heading}")
    print(attnlab.table(table, rows=rows, columns=columns, decimals=decimals))


# %%
three = ["column 0", "column 1", "column 2"]
first_six = symbols[: min(T, 6)]

# %%
print("\n6.1 What was printed")
show("scores, the first six rows and columns", scores[:6, :6], first_six, first_six, 2)
show("V", V, symbols[: len(V)], three)

# %%
pictures.heatmap(scores, rows=symbols[:T], columns=symbols[:T], title="scores")

# %% [markdown]
# ## 6.2 Token plus position
#
# The model looks up a row for each token (`wte`) and one for each position (`wpe`), and adds them:
# [`embedding`](../attnlab/equations.py). Both were rounded to four decimals before they were
# printed, so the last digit of our sum may be off by one. With the numbers above, this happens in
# 10 of 36 sums. So the sums are compared to three decimals here.

# %%
print("\n6.2 Token plus position")
show("wte, of the tokens", wte, symbols, three)
show("wpe, of the positions", wpe, symbols, three)

# %%
embedding = wte + wpe
show("their sum", embedding, symbols, three)
pictures.heatmap(embedding, rows=symbols, columns=three, title="wte + wpe")

# %%
printed = np.array(recorded["embedding"])
show("the printed sum", printed, symbols, three)

# %%
differs = np.abs(embedding - printed) > 0.00005
print(f"\n{differs.sum()} of {differs.size} sums differ from the printed one in the last digit")
print(figures.verdict(recorded, {"wte": wte, "wpe": wpe}, decimals=3, embedding=embedding))

# %% [markdown]
# ## 6.3 The mask
#
# Between the sum and the scores lie LayerNorm and two matrices of 768 rows, of which an article can
# print only corners. From the scores on, everything is printed again.
#
# A token must not attend to later tokens. That makes the model **autoregressive**, so it can
# predict each token from those before it. Where the key comes after the query, the score becomes
# -inf, which softmax turns into a weight of exactly 0: [`masked_scores`](../attnlab/equations.py).

# %%
mask = attnlab.causal_mask(T)
masked_scores = np.where(mask, scores, -math.inf)

# %%
print("\n6.3 The mask")
show("The first six rows and columns", masked_scores[:6, :6], first_six, first_six, 2)

# %%
pictures.heatmap(masked_scores, rows=symbols[:T], columns=symbols[:T], title="masked_scores")

# %%
print(figures.verdict(recorded, {"scores": scores}, decimals=2, masked_scores=masked_scores))

# %% [markdown]
# ## 6.4 Softmax
#
# A weight is `e` to the power of a score, divided by the sum of these powers over the row:
# [`weights`](../attnlab/equations.py). (First the row's largest score is subtracted, so that no
# power can overflow. Why is that allowed? See exercise 1.) Here is one row with all its steps. Set
# `row` to another number, from 0 to 11.

# %%
row = 5

# %%
largest = masked_scores.max(axis=1, keepdims=True)
powers = np.exp(masked_scores - largest)  # e to the power of -inf is 0
weights = powers / powers.sum(axis=1, keepdims=True)

# %%
printed = np.array(recorded["weights"])[:T, :T]
steps = np.stack([masked_scores, masked_scores - largest, powers, weights, printed], axis=-1)
names = ["masked_scores", "minus the largest", "e to that power", "weights", "printed"]

# %%
print("\n6.4 Softmax")
show(f"What {symbols[row]} attends to", steps[row, : row + 1], symbols[: row + 1], names)

# %%
print(f"\nthe sum of the powers: {powers[row].sum():.4f}\n")
print(figures.verdict(recorded, {"scores": scores}, decimals=2, weights=weights))

# %% [markdown]
# A row can be read aloud, from its query: "summer" gives 26 % to "It", 15 % to "hot", and 12 % each
# to "very" and to itself. Attention isn't symmetric: "hot" gives "summer" nothing, since "summer"
# comes later.

# %%
summer = min(7, T - 1)
ranked = sorted(zip(weights[summer, : summer + 1], symbols, strict=False), reverse=True)

# %%
print(f"\n{symbols[summer]} gives")
for weight, symbol in ranked:
    print(f"  {weight:4.0%} to {symbol if symbol != symbols[summer] else 'itself'}")

# %% [markdown]
# All 144 weights follow from the printed scores. Softmax depends only on the scores: whatever the
# queries and keys were, the weights are the same. That makes a picture easy. Let `X`, `W_K` and
# `W_V` be the identity matrix, and `W_Q` the scores times √12: then `Q Kᵀ` is also the scores times
# √12, and dividing by √12 gives the scores. In a notebook the head draws itself: point at a square
# to read its number. Masked squares are striped.

# %%
identity, W_Q = np.eye(T), scores * math.sqrt(T)
drawn = attnlab.self_attention(identity, W_Q, identity, identity, mask=mask, tokens=symbols[:T])
drawn

# %% [markdown]
# ## 6.5 Context, as far as it was printed
#
# The weights mix the values: [`context`](../attnlab/equations.py) `= weights V`. `V` is printed for
# the first five tokens (and the last). The mask lets the first five attend to no others, so their
# five rows of context can be computed from what is printed.
#
# **Round last.** We compute the context twice: with our own weights, and with the article's
# weights, which are printed to two decimals. For the numbers above, the first result agrees to
# three decimals and the second doesn't. A weight of 0.16 may be anything between 0.155 and 0.165
# (and the printed weights of `Ġis` sum to 0.97 only).

# %%
n_known = min(len(V), T)
context = weights[:n_known, :n_known] @ V[:n_known]

# %%
print("\n6.5 Context")
show("With our weights", context, symbols[:n_known], three)

# %%
row_4 = zip(weights[n_known - 1], V[:n_known, :2], symbols, strict=False)
mixed = {f"{weight:.2f} · {symbol}": weight * value for weight, value, symbol in row_4}
pictures.arrows(mixed, title=f"context of {symbols[n_known - 1]}, its first two numbers")

# %%
rounded_context = printed[:n_known, :n_known] @ V[:n_known]
printed_context = np.array(recorded["context"])[:n_known]

# %%
show("With the printed weights", rounded_context, symbols[:n_known], three)
show("As printed", printed_context, symbols[:n_known], three)

# %%
print("\nLargest difference from the printed context")
print(f"  with our weights          {np.abs(context - printed_context).max():.4f}")
print(f"  with the printed weights  {np.abs(rounded_context - printed_context).max():.4f}\n")

# %%
published = recorded | {"V": recorded["V"][:5], "context": recorded["context"][:5]}
print(figures.verdict(published, {"scores": scores, "V": V}, decimals=3, context=context))

# %% [markdown]
# ## 6.6 The same walk on a model
#
# Now all numbers are available, for the model that the first line names. First the input: the
# embedding of each token and of each position, and their sum.

# %%
walk_steps = {step.name: step for step in walkthrough.walk(model, PROMPT)}

# %%
print(f"\n6.6 The walk, for the prompt: {PROMPT}\n")
for name in ("token_embedding", "position_embedding", "embedding"):
    print(walk_steps[name])

# %% [markdown]
# LayerNorm turns the embedding into `X`, and the head has three matrices. In GPT-2 each matrix has
# 768 rows and 64 columns: a row for each column of `X`.

# %%
for name in ("X", "W_Q", "W_K", "W_V"):
    print(walk_steps[name])

# %% [markdown]
# Every row of `X` times these matrices, plus a bias, gives that token's query, key and value.

# %%
for name in ("Q", "K", "V"):
    print(walk_steps[name])

# %% [markdown]
# The scores are query times key, divided by √Dk. Then they are masked.

# %%
for name in ("scores", "masked_scores"):
    print(walk_steps[name])

# %% [markdown]
# Softmax of each row gives the weights, the head's **attention pattern**, which then mixes the
# values.

# %%
for name in ("weights", "context"):
    print(walk_steps[name])

# %% [markdown]
# Here is the last token's second largest weight, with every number it is computed from.

# %%
trace = model.trace(PROMPT)
head = trace.head(0, 0)
second = int(head.weights[-1].argsort()[-2:][0])

# %%
print(head.explain(-1, second))
head

# %% [markdown]
# The page below has all of this for every head, with the arithmetic behind each cell: click a cell.
# (A notebook shows the page; in a script, `attnlab.page(trace).save("page.html")` writes it.)

# %%
attnlab.page(trace)

# %% [markdown]
# [The same walk](book/pages/en/guide.md#explore
# "playground.html#layer=1&head=0&query=9&ids=429.374.82.900.662.430.604.13.925.287"). Point at one
# word after the other, and see where each word looks. *All layers* draws the whole way from the
# tokens on the left to the prediction on the right. Then change one embedding: replace "hot" with
# "cold" in the sentence. The page then describes another head, and predicts another next word.

# %% [markdown]
# ## 6.7 The verdict
#
# A table agrees when each computed number, rounded as the article rounds, equals the printed one.
# The tables belong to GPT-2: on another model, or with another prompt, they aren't compared, and
# the verdict says why.

# %%
print("\n6.7 The verdict\n")
print(walkthrough.reproduce(model, PROMPT))

# %% [markdown]
# ## 6.8 A straight apostrophe
#
# Type the prompt on a keyboard, and the apostrophe is likely to be straight: `'` and not `’`. The
# vocabulary has a token `'s`, so the apostrophe and the `s` become one token, and every later token
# moves to an earlier position. In GPT-2, where the curly apostrophe is two tokens, it moves two
# positions; in the pocket model, where the curly apostrophe is one token, it moves one position.
# Other position embeddings give other numbers, so the article's tables can't match. The library
# says so, and never changes the quote for you.

# %%
straight = PROMPT.replace("’", "'")
tokens_of = {prompt: model.tokenizer.tokens(prompt) for prompt in (PROMPT, straight)}
print("\n6.8 A straight apostrophe")

# %%
for prompt, tokens in tokens_of.items():
    print(f"\n{prompt}    {len(tokens)} tokens")
    print(" ".join(tokens.symbols))

# %%
print("\nCompared with the published figures:")
print(Paragraph(walkthrough.reproduce(model, straight).reason))

# %% [markdown]
# ## 6.9 Where the article is wrong
#
# Some of the article's sentences are wrong. Each is quick to check.
#
# **LayerNorm** does not end with mean 0 and variance 1. After that come a learned gain (a factor
# for each column) and a learned bias: [`layer_norm`](../attnlab/equations.py). `X` equals the
# published table only with gain and bias. (Without them the variance is not quite 1 either, as a
# small epsilon is added to it before the division.)

# %%
print("\n6.9 Where the article is wrong")
D, epsilon = model.config.n_embd, model.config.layer_norm_epsilon
normalised = attnlab.layer_norm(trace.embedding, np.ones(D), np.zeros(D), epsilon)

# %%
attention = trace.blocks[0].attention
gain, bias = attention.gain, attention.bias
X = attnlab.layer_norm(trace.embedding, gain, bias, epsilon)

# %%
rows = [[x[0].mean(), x[0].var(), *x[0, :3]] for x in (normalised, X)]
names = ["without gain and bias", "with gain and bias (X)"]
show(f"LayerNorm, row of {trace.tokens.symbols[0]}", rows, names, ["mean", "variance", *three])

# %%
if trace.tokens.ids.tolist() == recorded["token_ids"]:
    for name, x in {"without gain and bias": normalised, "with gain and bias": X}.items():
        print(figures.compare(f"X {name}", x[:, :3], recorded["X"], decimals=4))

# %% [markdown]
# **X without GPT-2.** The article prints three of 768 columns, too few for a row's mean and
# deviation. But mean and deviation are the same for all columns of a row. So if `X_k` is printed
# and `d_k` is how far column k of the sum is from column 0, in each row
#
#     (X_1 / gain_1 - bias_1 / gain_1 - X_0) d_2  =  (X_2 / gain_2 - bias_2 / gain_2 - X_0) d_1
#
# with gain 1 and bias 0 for column 0. The gains and biases of the other two columns are four
# numbers, and they must fit twelve rows. They do, to the printed digits; without any gain and bias
# the two sides differ.

# %%
x_0, x_1, x_2 = np.array(recorded["embedding"]).T
d_1, d_2 = x_1 - x_0, x_2 - x_0
X_0, X_1, X_2 = np.array(recorded["X"]).T

# %%
factors = np.stack([d_2 * X_1, -d_2, -d_1 * X_2, d_1], axis=1)
four_numbers, *_ = np.linalg.lstsq(factors, (d_2 - d_1) * X_0)

# %%
gains, biases = 1 / four_numbers[::2], four_numbers[1::2] / four_numbers[::2]
show("If column 0 has gain 1 and bias 0", [gains, biases], ["gain", "bias"], three[1:])

# %%
for which, numbers in {"with these": four_numbers, "without": np.array([1, 0, 1, 0])}.items():
    apart = np.abs(factors @ numbers - (d_2 - d_1) * X_0).max()
    print(f"The two sides, {which}: at most {apart:.5f} apart")

# %% [markdown]
# **Shapes.** A head's `W_Q` has a row for each of the model's columns: in GPT-2 small it has 768
# rows and 64 columns, not the other way round. The head's context is 12 x 64 for 12 tokens. The
# context is 12 x 768 after all heads are concatenated: that is **multi-head attention**. On the
# model that runs here:

# %%
arrays = {"W_Q of one head": head.W_Q, "context of one head": head.context}
arrays["concat, all heads joined"] = attention.concat

# %%
print("\nShapes")
for description, array in arrays.items():
    print(f"  {' x '.join(map(str, array.shape)):<10}{description}")

# %% [markdown]
# **cos π** is -1, not 0.
#
# **Dividing by √Dk** is not there for speed. Without the division the spread of the scores grows
# with the width of a key, as √Dk, and softmax gives one token nearly all the weight: [chapter
# 5](05_why_divide_by_root_d.py). Here is what the division does to this head: the spread shrinks by
# a factor of √Dk (in GPT-2 √64 = 8), and with it the largest weights. (The first row's only weight
# is 1 either way.)
#
# **Similarity** is printed as a table, too, and its formula doesn't fit: see the text below the
# numbers.

# %%
print(f"\ncos π = {math.cos(math.pi):.0f}")

visible = head.mask
undivided = attnlab.softmax(np.where(visible, head.raw_scores, -np.inf))

# %%
pairs = ((head.raw_scores, undivided), (head.scores, head.weights))
rows = [[each[visible].std(), of_each.max(axis=1).mean()] for each, of_each in pairs]

# %%
columns = ["standard deviation", "largest weight of a row, mean"]
show(f"Dividing by √{model.config.d_head}", rows, ["raw_scores", "scores"], columns)

# %% [markdown]
# **The similarity table.** The article prints how similar the tokens are, as a table of 12 x 12,
# and twice it prints a formula for this table: softmax(X Xᵀ / √768). The table tells how far apart
# two rows of `X` are. In log(cell ii · cell jj / (cell ij · cell ji)) the sums of the rows cancel:
# what is left is the squared distance of rows i and j, divided by √768 or not. Take the four tokens
# whose cells have enough digits, " very", " in", "." and " is". If the table was made with the
# root, their squared distances would be 121 to 284; without the root, they would be 4.4 to 10.2.
#
# Which is it? The three printed columns of `X` give an estimate of the squared distance: the mean
# square of the differences, times 768. Over all 66 pairs of tokens the mean of this estimate is
# 8.6, and the largest is 30. So the table is softmax(X Xᵀ), very likely. It isn't certain, with 3
# columns of 768, so the verdict leaves the table out. [Chapter 1](01_why_attention.py) shows why
# similarity is not attention.
#
# "It" and " very" are the most similar, the article says. In the row of "It" they are, with 0.0386.
# Of all pairs, " in" and "." are the most similar, with 0.0974 and 0.0779. " hot" and " summer" are
# each other's most similar token, with 0.0020 and 0.0015: dot products of rows do know that these
# words go together.

# %%
similarity = np.array(recorded["similarity"])
show("The similarity table, as printed", similarity, recorded["symbols"], recorded["symbols"], 2)

# %%
logs = np.log(similarity[np.ix_([4, 6, 8, 11], [4, 6, 8, 11])])
squares = logs.diagonal() + logs.diagonal()[:, None] - logs - logs.T
squared = squares[np.triu_indices(4, 1)]

# %%
printed_X = np.array(recorded["X"])
differences = (printed_X[:, None] - printed_X)[np.triu_indices(12, 1)]
estimates = 768 * (differences**2).mean(axis=1)

# %%
distances = {"from the table, without √768": squared}
distances["from the table, with √768"] = squared * math.sqrt(768)
distances["from X, estimated"] = estimates

# %%
extremes = [[each.min(), each.max()] for each in distances.values()]
show("Squared distances of two rows of X", extremes, [*distances], ["smallest", "largest"])

# %%
names = recorded["symbols"]
others = np.where(np.eye(12), 0, similarity)
not_empty = np.flatnonzero(others.any(axis=1))  # a row may have nothing left at four decimals

# %%
print("\nIn each row the largest cell off the diagonal")
for i in not_empty:
    print(f"  {names[i]:<9}{names[others[i].argmax()]:<9}{others[i].max():.4f}")

# %%
without_root = attnlab.softmax(head.X @ head.X.T)
with_root = attnlab.softmax(head.X @ head.X.T / D**0.5)

# %%
symbols = trace.tokens.symbols
show("softmax(X Xᵀ / √D) of the model that runs here", with_root, symbols, symbols, 2)

# %%
means = [[table.diagonal().mean()] for table in (similarity, without_root, with_root)]
names = ["as printed", "this model, without √D", "this model, with √D"]
show("Diagonal", means, names, ["mean"], 2)

# %% [markdown]
# ## 6.10 Predict, change, see
#
# Predict what will happen. Then change the tables in 6.1, below the line that sets `V`, and run the
# chapter again: the exercises don't need GPT-2.
#
# **Exercise 1 (basic).** Add 1 to all twelve scores of `Ġhot`: `scores[5] += 1`. What happens to
# its weights?
#
# <details><summary>Answer</summary>
#
# Nothing happens. Every power of `e` grows by the same factor, 2.7183, and so does their sum, so
# the weights stay the same. `Ġhot` still gives 0.2901 to `It`. Only differences within a row
# matter.
#
# </details>
#
# **Exercise 2 (medium).** The scores are `Q Kᵀ` divided by 8. Undo that: `scores *= 8`. The weight
# that `Ġis` gives to `It` is 0.30 now. What will it be, roughly? (Set `row = 11` in 6.4 to see its
# row.)
#
# <details><summary>Answer</summary>
#
# Almost 1: it is 0.9987. The second largest score is 0.91 lower, and 8 times that is 7.28: the
# weight of the second token is smaller by a factor of 1451. Such a head attends to one token and
# nothing else; chapter 5 shows why it would then hardly learn.
#
# </details>
#
# **Exercise 3 (medium).** `V` of `Ġhot` (row 5) is not printed, but its context is: 0.0327 in
# column 0. Can you find the value with a pencil? You need the five values in 6.1 and their weights
# in 6.4.
#
# <details><summary>Answer</summary>
#
# Subtract what the other five contribute, and divide by the weight that `Ġhot` gives to itself:
# (0.0327 + 0.0054) / 0.2548 = 0.1495. Its last digits are uncertain, since the scores were rounded
# to two decimals.
#
# </details>
#
# **Exercise 4 (medium).** Which rows of context change if you change the value of the first token,
# `V[0] += 1`, and which if you change the value of the fifth, `V[4] += 1`?
#
# <details><summary>Answer</summary>
#
# The first token's value changes all five rows, since every token attends to the first: the rows
# change by 1.00, 0.84, 0.65, 0.54 and 0.54, the first column of the weights. The fifth token's
# value changes only its own row, by 0.16, since none of the other four tokens attends to it.
#
# </details>

# %% [markdown]
# ## Summary
#
# * From the printed scores, all weights can be recomputed; from rounded weights, the context
#   vectors can't be.
# * The order in GPT-2: embedding, LayerNorm, queries, keys and values, scores, mask, softmax,
#   context.
# * One character of the prompt can shift every position, and with it every number.
