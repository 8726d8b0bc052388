# %% [markdown]
# # 4. Your journey starts with one step
#
# > Afterwards you can say: “I can build attention in stages. What it learns are W_Q, W_K and W_V;
# > the mask hides later words before softmax, so that every row still sums to 1. Heads become
# > different because they start from different random numbers.”
#
# There are six words of three numbers each. We build attention in stages: with nothing to learn,
# with `W_Q`, `W_K` and `W_V`, then with a mask that hides later words, with dropout, and with two
# heads.
#
# Change any number at the top and run the chapter again: everything is recomputed. The same stages
# were computed with PyTorch to six decimals; a line at the end of each stage says whether those
# figures equal ours.
#
# * **Objective**: Build causal multi-head attention in stages: without parameters, with them,
#   with a mask, with dropout, with two heads.
# * **Before this**: [chapter 3](03_one_head_by_hand.py).
# * **Time**: about 50 minutes, exercises included.
# * **Misconception**: "Dropout makes attention focus." It removes weights at random, so that the
#   model relies on no single one.

# %%
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

import attnlab
from attnlab import figures, pictures
from attnlab.checking import checked
from attnlab.equations import Array
from attnlab.support.console import prepare_script
from attnlab.training import AdamW, attention_gradient, linear_gradient

prepare_script()  # print on any terminal, and into pipes

# %%
words = ["Your", "journey", "starts", "with", "one", "step"]
X = np.array(
    [
        [0.43, 0.15, 0.89],  # Your
        [0.55, 0.87, 0.66],  # journey
        [0.57, 0.85, 0.64],  # starts
        [0.22, 0.58, 0.33],  # with
        [0.77, 0.25, 0.10],  # one
        [0.05, 0.80, 0.55],  # step
    ]
)
T = len(words)

# %%
p, seed = 0.5, 123  # of dropout
draws = 100_000
steps, rate = 500, 0.03  # of training


# %%
def show(
    heading: str, table: ArrayLike, rows: Sequence[str], columns: Sequence[str] = words
) -> None:
    """Print a table under a heading."""
    print(f"\n{heading}")
    print(attnlab.table(table, rows=rows, columns=columns))


# %%
published = figures.load("journey")
published |= {"X": published["inputs"], "causal mask": np.tri(6, dtype=bool)}
inputs = {"X": X}


# %%
def compare(stage: str, **computed: ArrayLike) -> None:
    """Compare with a stage's figures, if the inputs are theirs."""
    print(figures.verdict(published | published[stage], inputs, decimals=6, **computed))


# %%
print("X: a row is a word")
print(attnlab.table(X, rows=words, decimals=2))
pictures.heatmap(X, rows=words, title="X")

# %% [markdown]
# ## 4.1 With nothing to learn
#
# How similar are two words? Multiply their rows number by number and add up the products: for
# "journey", this gives six dot products. [`softmax`](../attnlab/equations.py) turns them into
# weights, and with these weights the six rows of `X` are mixed into a new row for "journey". (There
# is no division by √Dk yet; that comes in 4.2.)

# %%
journey = min(1, T - 1)  # the second word
raw_scores = X @ X.T

# %%
print("\n4.1 With nothing to learn")
products = np.column_stack([X[journey] * X, raw_scores[journey]])
show(f"{words[journey]} times each word, and the sum", products, words, ["0", "1", "2", "sum"])

# %%
pictures.heatmap(raw_scores, rows=words, columns=words, title="X Xᵀ")

# %%
weights = attnlab.softmax(raw_scores)
show(f"Weights of {words[journey]}", [weights[journey]], [words[journey]])
pictures.heatmap(weights, rows=words, columns=words, title="softmax(X Xᵀ)")

# %%
context = weights @ X
print(f"Its new row: {context[journey].round(4)}")

# %%
scaled = weights[journey][:, None] * X  # each word's row, times its weight
arrows = dict(zip(words, scaled[:, :2], strict=True))
pictures.arrows(arrows, title=f"the new row of {words[journey]}, two of its numbers")

# %%
compare("no_weights", scores=raw_scores, weights=weights, context=context)

# %% [markdown]
# ## 4.2 With W_Q, W_K and W_V
#
# No step of 4.1 has anything to learn. Attention lets a word search with one row (its query), be
# found by another (its key) and pass on a third (its value), and each of these rows is made by its
# own matrix. The dot products, [`raw_scores`](../attnlab/equations.py), are then divided by the
# square root of a key's width: by √2, with the matrices here.
#
# The recorded figures have two variants with different matrices. In the first variant the matrices
# are drawn between 0 and 1. In the second they are drawn around 0, as PyTorch's `Linear` does. All
# weights are near a sixth, so the picture shows how far the second variant's weights are from a
# sixth: every word gives most to "Your".


# %%
def head_with(variant: str) -> attnlab.SelfAttention:
    """A head with the matrices of a variant."""
    W_Q, W_K, W_V = (np.array(published[variant][name]) for name in ("W_Q", "W_K", "W_V"))
    return attnlab.self_attention(X, W_Q, W_K, W_V, tokens=words)


# %%
variants = {"self_attention": "between 0 and 1", "self_attention_linear": "around 0"}
heads = {variant: head_with(variant) for variant in variants}
head = heads["self_attention_linear"]

# %%
print("\n4.2 With W_Q, W_K and W_V")
rows = [each.weights[journey] for each in heads.values()]
show(f"Weights of {words[journey]}, with matrices drawn", rows, [*variants.values()])

# %%
pictures.points(dict(zip(words, head.Q[:, :2], strict=True)), title="queries")

# %%
pictures.points(dict(zip(words, head.K[:, :2], strict=True)), title="keys")

# %%
head.plot("scores")

# %%
pictures.heatmap(head.weights - 1 / T, rows=words, columns=words, title=f"weights - 1/{T}")

# %%
weighted_values = dict(zip(words, head.weights[journey][:, None] * head.V, strict=True))
pictures.arrows(weighted_values, title=f"context of {words[journey]}")

# %%
steps_of_a_head = ("Q", "K", "V", "raw_scores", "scores", "weights", "context")
for variant, head in heads.items():
    compare(variant, **{name: getattr(head, name) for name in steps_of_a_head})

# %% [markdown]
# **Round last.** You may find 1.2, 1.8 and 1.5 in print as the first variant's raw scores of
# "journey" with "Your", "journey" and "step". Those are the products of the numbers above,
# truncated to one decimal at the end. Truncating `Q` and `K` first gives different raw scores.
#
# In the same way the rows of X are printed as 0.4, 0.1, 0.8 and so on, and k(1), k(T), v(1) and
# v(T) with one decimal. The weights of "journey" on these three words are printed as α = 0.1, 0.2
# and 0.1, and its context as z = 0.3 and 0.8. These figures are truncated, too. Rounded, 0.89 would
# be 0.9, and the last weight 0.2. Without the division by √2 these three weights also truncate to
# 0.1, 0.2 and 0.1, so the printed figures can't tell whether it was done.


# %%
def truncate(x: Array) -> Array:
    """x, truncated to one decimal."""
    truncated: Array = np.trunc(x * 10) / 10
    return truncated


# %%
show("X, truncated", truncate(X), words, ["0", "1", "2"])

# %%
first_variant = heads["self_attention"]
Q, K, V = first_variant.Q, first_variant.K, first_variant.V

# %%
vectors = {f"q({journey + 1})": Q[journey], "k(1)": K[0], f"k({journey + 1})": K[journey]}
vectors |= {"k(T)": K[-1], "v(1)": V[0], f"v({journey + 1})": V[journey], "v(T)": V[-1]}

# %%
both = [[*row, *truncate(row)] for row in vectors.values()]
columns = ["0", "1", "0, truncated", "1, truncated"]
show(f"{words[journey]}, first variant", both, [*vectors], columns)

# %%
exact = first_variant.raw_scores[journey]
from_truncated = truncate(Q[journey]) @ truncate(K).T

# %%
names = ["all decimals", "truncated at the end", "Q and K truncated first"]
show("Its raw scores", [exact, truncate(exact), from_truncated], names)

# %%
alpha, z = first_variant.weights[journey], first_variant.context[journey]
print(f"\nIts context: {z.round(4)}")

# %%
alphas = {"divided by √2": alpha, "not divided": attnlab.softmax(exact)}
alphas |= {f"{name}, truncated": truncate(row) for name, row in alphas.items()}
show("Its weights", [*alphas.values()], [*alphas])

# %% [markdown]
# ## 4.3 The causal mask: no word sees the future
#
# A model that predicts the next word must not see that word: the model is **autoregressive**. In
# each row (the word that asks), every column to the right of the diagonal is masked: the **causal
# mask**. `True` means that the word may attend.
#
# With queries as rows, the masked part is the **upper right**. Some drawings have the keys as rows;
# there it is the lower left. It is the same mask, transposed.
#
# With this mask attention is called **unidirectional** (单向), as in GPT; without it each word
# sees both sides, **bidirectional** (双向), as in BERT, which fills in gaps instead of continuing
# a text.
#
# **The first way:** take the weights above, set the weights of later words to 0, and divide each
# row by what is left, so that it sums to 1 again.
#
# **The second way:** set the *scores* of later words to -inf
# ([`masked_scores`](../attnlab/equations.py)), so that softmax gives them `e^-inf = 0`, and take
# the softmax once.

# %%
mask = attnlab.causal_mask(T)
zeroed = np.where(mask, head.weights, 0.0)  # of the second variant
pictures.heatmap(zeroed, rows=words, columns=words, title="the first way: the future is 0")

# %%
tiny = 1e-300  # avoids dividing by 0
renormalised = zeroed / np.maximum(zeroed.sum(axis=1, keepdims=True), tiny)
pictures.heatmap(renormalised, rows=words, columns=words, title="divided by what is left")

# %%
causal = attnlab.self_attention(X, head.W_Q, head.W_K, head.W_V, mask=mask, tokens=words)
print("\n4.3 The causal mask: no word sees the future")
show("masked_scores: a row is the word that asks", causal.masked_scores, words)

# %%
causal.plot("masked_scores")

# %%
show("Their softmax: the weights", causal.weights, words)
print(f"\nThe two ways: at most {np.abs(renormalised - causal.weights).max():.0e} apart")

# %%
inputs["causal mask"] = mask
two_ways = {"zeroed_weights": zeroed, "renormalised_weights": renormalised}
compare("causal", weights=causal.weights, context=causal.context, **two_ways)

# %% [markdown]
# Why do the two ways agree? Look at the row of "starts", the third word of six. The first way
# divides each power of `e` by the sum of all six, then by the fraction that the first three have of
# that sum. The sum of all six is in both divisions and cancels, leaving the sum of three.
#
#     (e^score / sum of six) / (sum of three / sum of six)  =  e^score / sum of three

# %%
starts = min(2, T - 1)  # the third word
seen = mask[starts]

# %%
largest = head.scores[starts].max()
shift = largest - np.clip(largest, -700, 700)  # not 0 if exp would overflow or underflow
powers = np.exp(head.scores[starts] - shift)

# %%
sum_of_all, sum_of_seen = powers.sum(), max(powers[seen].sum(), tiny)
fraction_seen = max(sum_of_seen / sum_of_all, tiny)

# %%
show(f"The row of {words[starts]}: powers of e", [powers], [words[starts]])
print(f"Sum of all {sum_of_all:.5g}, of those seen {sum_of_seen:.5g}: {fraction_seen:.4f} of it")

# %%
first, second = powers[seen] / sum_of_all / fraction_seen, powers[seen] / sum_of_seen
names = [f"power / {sum_of_all:.5g} / {fraction_seen:.4f}", f"power / {sum_of_seen:.5g}"]
show("The two ways", [first, second], names, [*np.array(words)[seen]])

# %% [markdown]
# So why does everybody use the second way? The first way needs some weight to be left. If later
# words had taken nearly all of the weight, the first way would divide 0 by 0.
#
# [A head without the causal mask](book/pages/en/guide.md#explore
# "playground.html#depth=lab&layer=0&head=3&query=2&ablate=mask").
# Here every query attends to later tokens, too. Press × next to *no causal mask*, and watch the
# weights above the diagonal move to earlier tokens.
#
# ## 4.4 Dropout
#
# **Dropout** sets each weight to 0 at random, with probability p, while a model is trained, so that
# the model does not rely on a few of the weights. It does not steer attention to certain words:
# which weights are dropped is random, and different in every step. The weights that stay are
# multiplied by 1 / (1 - p). GPT-2 was trained with dropout, p = 0.1. There it was applied to the
# weights, to the embedding, and to the outputs of attention and MLP before they are added to the
# residual stream.
#
# First we use a mask that was recorded for p = 0.5: it has 0 where a weight is dropped, and 2 where
# it stays. Look at "journey": with the words above both its weights are dropped, and its row is all
# zeros. Rows no longer sum to 1.

# %%
dropout_mask = np.resize(published["dropout"]["mask"], (T, T))
print("\n4.4 Dropout")
show("The recorded dropout mask", dropout_mask, words)

# %%
pictures.heatmap(dropout_mask, rows=words, columns=words, title="the recorded dropout mask")

# %%
dropped = causal.weights * dropout_mask
rows_and_sums = np.column_stack([dropped, dropped.sum(axis=1)])
show("Weights times that mask, and the sums of the rows", rows_and_sums, words, [*words, "sum"])

# %%
pictures.heatmap(dropped, rows=words, columns=words, title="weights after dropout")

# %%
compare("dropout", weights=dropped)

# %% [markdown]
# The library draws its own mask, with the `p` and the `seed` set at the top. The recorded mask was
# drawn with PyTorch's seed 123; from that seed NumPy draws different numbers, by the same rule.

# %%
matrices = head.W_Q, head.W_K, head.W_V
one_draw = attnlab.self_attention(X, *matrices, mask=mask, dropout=p, rng=seed, tokens=words)

# %%
show(f"The weights with dropout={p}, rng={seed}", one_draw.weights, words)
one_draw.plot()

# %% [markdown]
# Why multiply by 1 / (1 - p)? So that the **mean** stays the same. Draw many masks: a fraction p of
# the draws is 0, the others are larger by that factor, and the mean of all draws is the weight
# without dropout. Without the factor the mean would be 1 - p times that weight.

# %%
copies = np.broadcast_to(X, (draws, *X.shape))
many_draws = attnlab.self_attention(copies, *matrices, mask=mask, dropout=p, rng=seed)
mean = many_draws.weights.mean(axis=0)

# %%
factor = 1 / (1 - p)
names = ["no dropout", "one draw", f"mean of {draws:,} draws"]
names.append(f"mean without the factor {factor:.4g}")

# %%
rows = [causal.weights[-1], one_draw.weights[-1], mean[-1], mean[-1] / factor]
show(f"The weights of {words[-1]}, p = {p}", rows, names)

# %%
distance = np.abs(mean - causal.weights).max()
print(f"\nMean of the draws and no dropout, all weights: at most {distance:.4f} apart")

# %% [markdown]
# ## 4.5 Two heads
#
# A head has one row of weights for each word. **Multi-head attention** has several heads, each with
# its own matrices; here there are two heads. Their contexts are concatenated,
# [`concat`](../attnlab/equations.py): two columns from head 0, two from head 1. The picture
# compares H heads with a single head of width D. The single head's three maps are D × D; each of
# the H heads has maps of D × D/H. Both have equally many numbers, but with H heads a word has H
# rows of weights.
#
# <!-- drawing: heads -->
#
# The library also takes the heads' matrices side by side, as GPT-2 stores them. The output matrix
# `W_O` then mixes the columns. The recorded figures stop before that, so here `W_O` is the
# identity matrix, which changes nothing.

# %%
parts = published["multi_head"]["heads"]
W_Q, W_K, W_V = (np.hstack([part[name] for part in parts]) for name in ("W_Q", "W_K", "W_V"))
W_O = np.eye(W_V.shape[1])

# %%
two_heads = attnlab.multi_head_attention(X, W_Q, W_K, W_V, W_O, n_head=2, mask=mask, tokens=words)
print("\n4.5 Two heads")
show(f"Weights of {words[-1]}", two_heads.weights[:, -1], ["head 0", "head 1"])

# %%
two_heads

# %%
columns = [f"head {h}, {j}" for h in (0, 1) for j in (0, 1)]
show("The contexts, concatenated (concat)", two_heads.concat, words, columns)

# %%
compare("multi_head", concatenated=two_heads.concat)
pictures.heatmap(two_heads.concat, rows=words, columns=columns, title="concat")

# %% [markdown]
# ## 4.6 Heads differ because they start differently
#
# Nobody programs what a head looks for. Its matrices start as random numbers, and training, by
# **gradient descent**, moves each number a little at a time against its **gradient** (how much the
# error grows with that number). So what if two heads start with the same numbers, in their rows of
# `W_O` too? They have the same gradients, take the same steps, and stay identical.
#
# Here is a test. The task: each word has to output the row of the word before it (the first word
# outputs its own row). One pair of heads starts differently, and one pair starts identically; both
# pairs train for the same number of steps. The loss is the mean square of the error; the picture
# shows its root. You need not follow every line of `train`: each step computes the layer, its error
# and the gradients (**backpropagation**), and the optimizer AdamW, which decides how large a step
# is, updates the matrices.
#
# The gradients go back from the error, one step of the layer at a time. For a product `Y = X W`,
# two rules are enough: `d_W = Xᵀ d_Y` and `d_X = d_Y Wᵀ`. `linear_gradient` applies both to `W_O`;
# `attention_gradient` leads back through the mixture of values and softmax ([chapter
# 13](13_softmax_that_saturates.py)) to `d_Q`, `d_K` and `d_V`; and `Xᵀ` times each of these is the
# gradient of its matrix.

# %%
target = np.vstack([X[:1], X[:-1]])


# %%
def new_head(rng: np.random.Generator) -> list[Array]:
    """Random W_Q, W_K, W_V and rows of W_O for a head of width 2."""
    D = X.shape[1]
    return [0.5 * rng.standard_normal(shape) for shape in ((D, 2), (D, 2), (D, 2), (2, D))]


# %%
def train(*starts: list[Array]) -> tuple[attnlab.MultiHeadAttention, list[float]]:
    """Train heads from starting matrices; return the layer, and its error at each step."""
    matrices = [np.hstack([start[n] for start in starts]) for n in range(3)]
    matrices.append(np.vstack([start[3] for start in starts]))  # W_O
    n_head, errors, optimizers = len(starts), [], [AdamW(np.zeros(W.size)) for W in matrices]
    for _ in range(max(steps, 1)):
        layer = attnlab.multi_head_attention(X, *matrices, n_head=n_head, mask=mask, tokens=words)
        error = layer.output - target
        errors.append(float(np.sqrt((error**2).mean())))
        d_concat, d_W_O, _ = linear_gradient(layer.concat, matrices[-1], error)
        d_QKV = attention_gradient(layer, attnlab.split_heads(d_concat, n_head))
        gradients = *(X.T @ attnlab.merge_heads(d) for d in d_QKV), d_W_O
        for optimizer, W, gradient in zip(optimizers, matrices, gradients, strict=True):
            optimizer.update(W.reshape(-1), gradient.reshape(-1), rate)  # reshape: a view of W
    return layer, errors


# %%
rng = np.random.default_rng(seed)
a, b = new_head(rng), new_head(rng)

# %%
different, errors_different = train(a, b)
identical, errors_identical = train(a, a)

# %%
print("\n4.6 Heads differ because they start differently")
errors = [errors_different[-1], errors_identical[-1]]
apart = [np.abs(np.diff(pair.weights, axis=0)).max() for pair in (different, identical)]

# %%
names, columns = ["start differently", "start alike"], ["error", "difference"]
heading = f"After {steps} steps: the error, and how far apart the heads' weights are"
show(heading, np.transpose([errors, apart]), names, columns)

# %%
both_errors = {"start alike": errors_identical, "start differently": errors_different}
pictures.curves(both_errors, x_name="training step", y_name="error")

# %% [markdown]
# Here are the two heads that started differently, after training. Two different **attention
# patterns** can produce what one pattern, used twice, can't.

# %%
for h, trained in enumerate(different.weights):
    show(f"Weights of head {h}", trained, words)
different

# %% [markdown]
# ### A class to keep
#
# Here is what 4.2 to 4.5 build, in one class for your own code. [In
# PyTorch](book/pages/en/articles.md#in-pytorch) such a class is as short.


# %%
class CausalAttention:
    """Causal multi-head attention: (T, D) -> (T, D)."""

    def __init__(self, W_Q: Array, W_K: Array, W_V: Array, W_O: Array, n_head: int) -> None:
        self.maps, self.W_O, self.n_head = (W_Q, W_K, W_V), W_O, n_head

    def __call__(self, X: Array) -> Array:
        Q, K, V = (np.stack(np.hsplit(X @ W, self.n_head)) for W in self.maps)  # (H, T, Dh)
        scores = Q @ K.swapaxes(1, 2) / K.shape[2] ** 0.5
        visible = np.tri(len(X), dtype=bool)
        weights = attnlab.softmax(np.where(visible, scores, -np.inf))
        return np.hstack([*(weights @ V)]) @ self.W_O


# %%
kept = CausalAttention(W_Q, W_K, W_V, W_O, n_head=2)
print(f"From the two heads of 4.5: at most {np.abs(kept(X) - two_heads.output).max():.0e} apart")

# %% [markdown]
# ## 4.7 Predict, change, see
#
# **Exercise 1 (basic).** In 4.3 the first word's only weight is 1. Could other matrices change
# that? And what is the first word's context? Predict, then `print(causal.context[0])`.
#
# <details><summary>Answer</summary>
#
# No. The first word sees only itself, and the weights of a row sum to 1. So its context is its own
# value, -0.0872 and 0.0286, whatever the scores are.
#
# </details>
#
# **Exercise 2 (basic).** One row of weights is the same with and without the mask. Which one, and
# why?
#
# <details><summary>Answer</summary>
#
# It is the last row. "step" has no word after it, so nothing is masked. The row begins with 0.1935
# both times.
#
# </details>
#
# **Exercise 3 (medium).** Transpose the mask: `mask = attnlab.causal_mask(T).T`. Which word now has
# only one weight, and which sees all six?
#
# <details><summary>Answer</summary>
#
# "step" sees only itself, with a weight of 1, and "Your" sees all six words. Every word sees itself
# and what comes after it: a model trained like that can copy the next word from its input, and
# learns nothing.
#
# </details>
#
# **Exercise 4 (medium).** Put `p, seed = 0.2, 123` at the top. What is 1 / (1 - p) now, and how
# often does a weight stay? Does the mean of the draws change?
#
# <details><summary>Answer</summary>
#
# The factor is 1 / 0.8 = 1.25, and a weight stays in four draws of five. The mean does not change:
# that is what the factor is for.
#
# </details>
#
# **Exercise 5 (hard).** In 4.6 let the two heads start with the same `W_Q`, `W_K` and `W_V`, and
# differ only in their rows of `W_O`:
# `identical, errors_identical = train(a, [*a[:3], b[3]])`. Do they stay identical?
#
# <details><summary>Answer</summary>
#
# No. The gradient reaches a head through its rows of `W_O`, so the first step already moves the two
# heads differently. After 500 steps their error is 0.01, no longer 0.13.
#
# </details>

# %% [markdown]
# **Task 1 (basic).** Write the head of 4.3 yourself, with the mask. Return `scores`,
# `masked_scores`, `weights` and `context`. The check names the step that differs first.


# %%
def my_causal_head(X: Array, W_Q: Array, W_K: Array, W_V: Array) -> dict[str, Array]:
    raise NotImplementedError


# %%
print("\n4.7 Your own head, with a mask")
print(checked(causal, my_causal_head, X, *matrices))

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Three products with `X` give Q, K and V. The scores are `Q @ K.T`, divided by the root of the
# number of columns of K: `K.shape[1]`, not of `X`.
#
# <details><summary>Hint 2</summary>
#
# `np.tril(np.ones(scores.shape, dtype=bool))` is `True` on the diagonal and below it. Put -inf
# where it is `False`: `np.where(may_attend, scores, -np.inf)`.
#
# <details><summary>Hint 3</summary>
#
# `np.exp` of -inf is 0, so softmax needs nothing special: powers divided by their sum,
# `powers.sum(axis=1, keepdims=True)`. The context is `weights @ V`.
#
# <details><summary>Solution</summary>
#
# [`my_causal_head`](book/solutions/chapter_04.py)
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
# * W_Q, W_K and W_V are what attention learns.
# * The causal mask sets later scores to -inf before softmax, so each row still sums to 1.
# * Dropout is for training only; scaling the remaining weights preserves their mean.
# * Heads differ because they start from different random numbers: equal heads get equal gradients
#   and stay equal.
