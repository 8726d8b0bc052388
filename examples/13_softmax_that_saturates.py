# %% [markdown]
# # 13. A softmax that saturates
#
# > Afterwards you can say: “Where softmax gives everything to one key, hardly any gradient comes
# > back, whether that key is right or wrong. So without the division by √d, most queries of a wide
# > head learn nothing.”
#
# [Chapter 5](05_why_divide_by_root_d.py) showed that without the division by √d a softmax gets
# sharp, since the variance of q·k is d. Why is that bad? A sharp softmax can be right. The trouble
# is in the backward pass (**backpropagation**): this chapter follows the loss back through softmax
# and asks how much gradient still reaches the scores, the queries and the keys, and what they can
# learn from it.
#
# We begin with three keys. The first number of each is its raw score. The second is the gradient of
# the loss L with respect to its weight: how much L changes per unit of weight. Key 0 has the
# largest score, but the loss favours key 1.
#
# Change any number and run the chapter again. `d_y` stands for dL/dy: by how much the loss changes
# per unit of y.
#
# * **Objective**: Follow the gradient back through softmax, and see what saturation does to
#   learning.
# * **Before this**: [chapter 5](05_why_divide_by_root_d.py); what a derivative is. This is an
#   advanced chapter.
# * **Time**: about 40 minutes, exercises included.
# * **Misconception**: "A sharp softmax is a sure sign of learning." It has no gradient when it is
#   right, and none when it is wrong.

# %%
import math

import numpy as np

import attnlab
from attnlab import pictures
from attnlab.checking import checked
from attnlab.equations import Array
from attnlab.forward import ForwardPass
from attnlab.support.console import prepare_script
from attnlab.training import AdamW, attention_gradient, initial_parameters, softmax_gradient

prepare_script()  # print on any terminal, and into pipes

keys = {"key 0": (16, 0), "key 1": (8, -1), "key 2": (0, 0)}  # raw score, d_weight
d = 64  # how wide queries and keys are, as in GPT-2
widths = (4, 16, 64, 256, 1024)  # of queries and keys, in 13.4 and 13.5
queries, seed = 500, 0

names = list(keys)
raw_scores, d_weights = np.array([*keys.values()], dtype=float).T
divisors = {"divided": math.sqrt(d), "not divided": 1.0}  # what raw scores are divided by

# %% [markdown]
# ## 13.1 Three keys, with a pencil
#
# The forward pass computes [`scores`](../attnlab/equations.py), then
# [`weights`](../attnlab/equations.py). With the numbers above, the raw scores 16, 8 and 0 become 2,
# 1 and 0 when divided by √64. The backward pass through softmax is
#
#     d_score = weight · (d_weight - sum)    with    sum = Σ weight · d_weight
#
# `sum` is the weighted mean of d_weight. A key whose d_weight is below this mean is better than
# average, and its score should rise. (**Gradient descent** steps against the gradient: where
# d_score is negative, the score rises.) Take a pencil and work out one row.

# %%
weights = {variant: attnlab.softmax(raw_scores / divisor) for variant, divisor in divisors.items()}
d_scores = {}

print("13.1 Three keys, with a pencil")
for variant, w in weights.items():
    total = w @ d_weights
    d_scores[variant] = w * (d_weights - total)
    products = [f"{weight:.4f}·{d_weight:g}" for weight, d_weight in zip(w, d_weights, strict=True)]
    print(f"\n{variant}: sum = {' + '.join(products)} = {total:.4f}")
    steps = [raw_scores / divisors[variant], w, d_weights, d_weights - total, d_scores[variant]]
    columns = ["score", "weight", "d_weight", "d_weight - sum", "d_score"]
    print(attnlab.table(np.stack(steps, axis=1), rows=names, columns=columns))

# %% [markdown]
# With the division, key 1's score is pushed up and key 0's score down. Without the division, the
# same d_weight gives key 1 a d_score of size 0.0003. Look at the two factors of each product: key
# 1's bracket is nearly -1, the largest possible, but its weight is 0.0003; key 0's weight is nearly
# 1, but its bracket is 0.0003. Each product has one factor that is nearly 0. That is what
# **saturated** means: one weight is 1, the rest are 0, and whatever gradient the loss sends, next
# to nothing comes through.
#
# ## 13.2 The Jacobian
#
# The derivatives of all weights by all scores form a table, the **Jacobian**: row i, column j says
# how much weight i changes when score j rises. For softmax it is `diag(w) - w wᵀ`, and the formula
# above is this table times d_weights. The picture shows both, with and without the division, on one
# colour scale.


# %%
def jacobian(w: Array) -> Array:
    """How much each weight (row) changes with each score (column)."""
    changes: Array = np.diag(w) - np.outer(w, w)
    return changes


jacobians = np.hstack([jacobian(w) for w in weights.values()])
pairs = [f"{name}, {variant}" for variant in divisors for name in names]

print("\n13.2 The Jacobian of softmax: diag(w) - w wᵀ")
for variant, w in weights.items():
    print(f"\n{variant}")
    print(attnlab.table(jacobian(w), rows=names, columns=names))
pictures.heatmap(jacobians, rows=names, columns=pairs, title="weight of a row, score of a column")

# %% [markdown]
# Every column sums to 0: what one weight gains, the others lose. The second half of the picture,
# without the division, is blank: any gradient multiplied by this table vanishes.
#
# Is the formula right? Make each score a little larger, see how the loss changes, and compare. The
# library's own `softmax_gradient`, which trains models, is a third check.

# %%
epsilon = 1e-6
gradients = {}
for variant, divisor in divisors.items():
    moved = [raw_scores / divisor + sign * epsilon * np.eye(len(names)) for sign in (1, -1)]
    more, less = (attnlab.softmax(scores) @ d_weights for scores in moved)
    gradients[variant] = {
        "the formula of 13.1": d_scores[variant],
        "Jacobian · d_weights": jacobian(weights[variant]) @ d_weights,
        "measured": (more - less) / (2 * epsilon),
        "softmax_gradient": softmax_gradient(weights[variant], d_weights),
    }
    print(f"\nd_scores, {variant}")
    lines = [*gradients[variant].values()]
    print(attnlab.table(lines, rows=[*gradients[variant]], columns=names, decimals=6))

# %% [markdown]
# ## 13.3 How far apart is too far?
#
# With two keys softmax depends on one number, the difference of their scores. The upper curve is
# the weight of the first key. The lower one is its slope `w (1 - w)`, the factor by which the
# gradient comes through.

# %%
gaps = np.linspace(-10, 10, 81)
first_weights = attnlab.softmax(np.stack([gaps, np.zeros_like(gaps)], axis=1))[:, 0]
shown = [0, 1, 2, 4, 8, 16]
shown_weights = np.array([attnlab.softmax(np.array([gap, 0.0]))[0] for gap in shown])

print("\n13.3 Two keys, by the difference of their scores")
print(
    attnlab.table(
        np.stack([shown_weights, shown_weights * (1 - shown_weights)], axis=1),
        rows=[f"{gap}" for gap in shown],
        columns=["weight", "slope"],
        decimals=7,
    )
)
pictures.curves(
    {"weight": first_weights, "slope": first_weights * (1 - first_weights)},
    gaps,
    x_name="scores apart",
)

# %% [markdown]
# At a difference of one the slope is 0.20, at a difference of four it is 0.02, and from there each
# further unit divides the slope by nearly e. Random scores of variance 64 easily differ by eight,
# and there the slope is 0.0003. Divided by 8, such scores differ by one. So the division keeps
# scores where the curve is steep.
#
# [Doubled scores](book/pages/en/guide.md#explore
# "playground.html#depth=lab&layer=0&head=3&query=7&ablate=0.3.scores.200").
# Press × next to *scores × 2*, and watch the row of "it" spread out. *Edit a step* has a
# slider for any factor from 0 to 2.
#
# ## 13.4 Random queries and keys
#
# Now take 500 queries with 16 keys each, all numbers of variance 1, and a random gradient of length
# 1 for the weights. How much of it reaches the scores, the queries and the keys? The values are the
# identity matrix, so context = weights. `attention_gradient` divides by √d, as attention does. To
# avoid the division, we give the function Q · √d, and the two factors cancel; by the chain rule d_Q
# is the result times √d.


# %%
def attend(Q: Array, K: Array, divided: bool) -> attnlab.Attention:
    """Attention of queries to keys, with the division by √d or without it."""
    V = np.broadcast_to(np.eye(K.shape[-2]), (*K.shape[:-1], K.shape[-2]))
    return attnlab.attention(Q if divided else Q * math.sqrt(K.shape[-1]), K, V)


def backward(result: attnlab.Attention, d_context: Array, divided: bool) -> tuple[Array, Array]:
    """d_Q and d_K."""
    d_Q, d_K, _ = attention_gradient(result, d_context)
    return (d_Q if divided else d_Q * math.sqrt(d_Q.shape[-1])), d_K


# %%
rng = np.random.default_rng(seed)
lengths: dict[bool, list[Array]] = {True: [], False: []}  # of each query's gradient, at each width
medians: dict[bool, list[list[float]]] = {True: [], False: []}
for width in widths:
    Q, K = rng.standard_normal((queries, 1, width)), rng.standard_normal((queries, 16, width))
    d_context = rng.standard_normal((queries, 1, 16))
    d_context /= np.linalg.norm(d_context, axis=-1, keepdims=True)
    for divided in (True, False):
        result = attend(Q, K, divided)
        d_Q, d_K = backward(result, d_context, divided)
        reached = [softmax_gradient(result.weights, d_context), d_Q, d_K]
        sizes = [np.linalg.norm(gradient, axis=(1, 2)) for gradient in reached]
        lengths[divided].append(sizes[1])
        largest = float(result.weights.max(axis=-1).mean())
        medians[divided].append([largest, *(float(np.median(size)) for size in sizes)])

print("\n13.4 The largest weight (mean), and how long gradients are (median)")
for divided, variant in ((True, "divided"), (False, "not divided")):
    print(f"\n{variant}")
    print(
        attnlab.table(
            medians[divided],
            rows=[f"d = {width}" for width in widths],
            columns=["largest weight", "d_scores", "d_Q", "d_K"],
            decimals=6,
        )
    )
pictures.curves(
    {variant: [d_Q for _, _, d_Q, _ in medians[variant == "divided"]] for variant in divisors},
    np.log2(widths),
    x_name="log2 of d",
    y_name="length of d_Q",
)

# %% [markdown]
# With the division every column stays the same, whatever d is. Without it, half of the queries get
# almost no gradient once d is large. Note the start: at d = 16 a median query gets *more* than with
# the division, since its gradient isn't divided by √d in the backward pass either. As d grows,
# saturation outweighs that.
#
# ## 13.5 Most gradients vanish, a few are too large
#
# The mean and the median disagree. A query whose two best keys happen to be nearly equal is not
# saturated, and its gradient has the full factor √d. So the mean does not vanish: most queries get
# almost no gradient, a few get a very large one. No single learning rate suits both.

# %%
lines = []
for divided_lengths, undivided_lengths in zip(lengths[True], lengths[False], strict=True):
    vanished = float((undivided_lengths < np.median(divided_lengths) / 10).mean())
    lines.append(
        [np.median(undivided_lengths), undivided_lengths.mean(), undivided_lengths.max(), vanished]
    )

print(f"\n13.5 Not divided: the length of d_Q, over {queries} queries")
rows = [f"d = {width}" for width in widths]
print(attnlab.table(lines, rows=rows, columns=["median", "mean", "largest", "vanished*"]))
print("* fraction that gets less than a tenth of the median with the division")

# %% [markdown]
# ## 13.6 What it does to learning
#
# Take 100 queries of d = 64. Each has to learn to attend to one of its 16 keys, chosen at random:
# loss = ½ |context - target|². Only Q learns, in 200 steps of gradient descent, `Q - rate · d_Q`. A
# comparison at one learning rate would not be fair, so each variant gets a range of them. How many
# queries end with more than 0.9 of their weight on their key?


# %%
def fraction_correct(divided: bool, rate: float, adam: bool) -> float:
    """The fraction of queries that found their key."""
    rng = np.random.default_rng(seed)
    Q, K = rng.standard_normal((learners, 1, d)), rng.standard_normal((learners, choices, d))
    target = np.eye(choices)[rng.integers(0, choices, (learners, 1))]
    optimizer = AdamW(np.zeros(Q.size))
    for _ in range(steps_of_learning):
        result = attend(Q, K, divided)
        d_Q, _ = backward(result, result.context - target, divided)
        if adam:
            optimizer.update(Q.reshape(-1), d_Q.reshape(-1), rate)  # reshape: a view of Q
        else:
            Q -= rate * d_Q
    return float(((attend(Q, K, divided).weights * target).sum(axis=-1) > 0.9).mean())


# %%
learners, choices, steps_of_learning = 100, 16, 200

# %%
descent_rates = (0.03, 0.1, 0.3, 1, 3)
adam_rates = (0.003, 0.01, 0.03, 0.1)
fractions = {
    adam: [[fraction_correct(divided, rate, adam) for rate in rates] for divided in (True, False)]
    for adam, rates in ((False, descent_rates), (True, adam_rates))
}
print("\n13.6 Fraction of the queries that found their key")
for adam, rates in ((False, descent_rates), (True, adam_rates)):
    print(f"\n{'AdamW' if adam else 'gradient descent'}")
    columns = [f"rate {rate}" for rate in rates]
    print(attnlab.table(fractions[adam], rows=list(divisors), columns=columns, decimals=2))

# %% [markdown]
# Without the division, gradient descent leaves most queries without their key at any rate: small
# rates don't move the saturated queries, large ones make the others overshoot. AdamW divides each
# number's gradient by its typical size, so that even a tiny gradient gives a full step. That helps,
# but does not replace the division.
#
# ## 13.7 And in GPT-2?
#
# GPT-2 starts from matrices with standard deviation 0.02, not from Q and K of variance 1. Here is
# one layer of GPT-2 small's width before its first training step, over random tokens: what is the
# spread of the scores of the last of 16 tokens, and how large is its largest weight?

# %%
config = attnlab.GPT2Config(vocab_size=500, n_positions=16, n_embd=768, n_layer=1, n_head=12)
parameters = initial_parameters(config, rng)
texts = rng.integers(0, config.vocab_size, (16, config.n_positions))
start = ForwardPass(texts, parameters).blocks[0].attention
last = start.raw_scores[:, :, -1]  # of the last token, which sees all
at_start = []
for divisor in (math.sqrt(config.d_head), 1.0):
    weights_at_start = attnlab.softmax(last / divisor)
    at_start.append([last.std() / divisor, weights_at_start.max(axis=-1).mean()])

print(f"\n13.7 D = {config.n_embd}, before the first step")
columns = ["spread of scores", "largest weight (mean)"]
print(attnlab.table(at_start, rows=list(divisors), columns=columns, decimals=2))

# %% [markdown]
# So GPT-2 would not start saturated even without the division, thanks to its small matrices: the
# largest weight is about one half. With the division GPT-2 starts near equal weights, 1/16 = 0.06,
# with more room before the matrices, which grow in training, saturate the softmax.
#
# ## 13.8 Predict, change, see
#
# **Exercise 1 (basic).** Let the loss want more weight everywhere: give all three keys the d_weight
# -1 in the first cell. What are the d_scores?
#
# <details><summary>Answer</summary>
#
# All are 0, with the division and without it. The weights of a row sum to 1 whatever the scores
# are, so none can grow except at the cost of another. A gradient that is the same for all keys
# cancels in the bracket: sum = -1, and -1 - (-1) = 0.
#
# </details>
#
# **Exercise 2 (basic).** Add 100 to all three raw scores (116, 108 and 100). What happens to
# weights and d_scores?
#
# <details><summary>Answer</summary>
#
# Nothing happens: softmax depends only on differences. Key 1's d_score is still -0.1848 with the
# division and -0.0003 without it. For the same reason each row of the Jacobian sums to 0: raise all
# scores equally, and no weight changes.
#
# </details>
#
# **Exercise 3 (medium).** Let the loss want key 0, which already has the weight: d_weight -1 for
# key 0, 0 for the others. Without the division the d_scores are tiny again. Is that saturation bad?
#
# <details><summary>Answer</summary>
#
# Key 0's d_score is -0.2227 with the division and -0.0003 without it. This time there is nothing
# left to learn: the weight 0.9997 is where the loss wants it. A saturated softmax gets no gradient
# when it is right and none when it is wrong. That is the trouble: it can't tell the two cases
# apart.
#
# </details>
#
# **Exercise 4 (medium).** Set `d = 4`, so that the raw scores 16, 8 and 0 are divided by 2. What
# happens to key 1's d_score? And in 13.6, where each query now has 4 numbers: does gradient descent
# still need the division?
#
# <details><summary>Answer</summary>
#
# The scores are 8, 4 and 0. Key 1's d_score is -0.0177, a tenth of what it was at d = 64. In 13.6
# the division is now a disadvantage: at the best rate of each variant, 0.69 of the queries find
# their key without the division, and 0.50 find it with the division. Raw scores of variance 4 do
# not saturate, and the larger gradient only helps. (Neither variant reaches 1: in four dimensions
# 16 random keys can't all be told apart.) Saturation is a problem of wide heads.
#
# </details>

# %% [markdown]
# **Task 1 (hard).** Write one step of learning, backwards through the softmax. The values are the
# identity, so `context` is `weights`, and the loss is ½ |context - target|². Compute d_Q, move `Q`
# against it by `rate`, and return the new `Q`, and the new `scores` and `weights`.


# %%
def my_learning_step(Q: Array, K: Array, target: Array, rate: float) -> dict[str, Array]:
    raise NotImplementedError


# %%
print("\n13.8 Your own step of learning")
rng = np.random.default_rng(seed)
Q, K, target = rng.standard_normal((4, d)), rng.standard_normal((6, d)), np.eye(6)[:4]
before = attend(Q, K, True)
expected = attend(Q - 2.0 * backward(before, before.context - target, True)[0], K, True)
print(checked(expected, my_learning_step, Q, K, target, 2.0))

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# First go forward: compute the scores, divide them by the root of d, and compute the weights. The
# gradient of ½ |w - target|² with respect to w is `w - target`: that is d_weights.
#
# <details><summary>Hint 2</summary>
#
# Then apply the formula of 13.1 to each row: `w * (d_weights - total)`, where `total` is the sum of
# each row of `w * d_weights`, with `keepdims=True`.
#
# <details><summary>Hint 3</summary>
#
# `scores` is `Q @ K.T / root`, so d_Q is `d_scores @ K / root`. The new `Q` is `Q - rate * d_Q`. Go
# forward once more with this matrix.
#
# <details><summary>Solution</summary>
#
# [`my_learning_step`](book/solutions/chapter_13.py)
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
# * A score's gradient is its weight times how far its d_weight is above the weighted mean of all
#   d_weights.
# * Where one weight is 1 and the rest 0, every such product is almost 0: softmax is saturated.
# * Without the division by √d most queries of a wide head learn nothing, and a few get steps that
#   are too large.
# * GPT-2 starts with small matrices, so it isn't saturated at first; the division leaves room for
#   training.
