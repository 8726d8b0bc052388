# %% [markdown]
# # 13. A softmax that saturates, seen in its gradients
#
# Chapter 5 showed that without the division by √d a softmax grows sharp, since the variance of q·k
# is d. This chapter follows the loss back through it: what still reaches the scores, the queries
# and the keys, and what can they learn from that?
#
# `d_y` stands for dL/dy: by how much the loss L changes for a change of y.
#
# Change any number, and run it again. Where the text names figures, they are those of the numbers
# here.

# %%
import math

import numpy as np

import attnlab
from attnlab.console import prepare_script
from attnlab.equations import Array
from attnlab.training import (
    AdamW,
    attention_gradient,
    initial_parameters,
    softmax_gradient,
)

prepare_script()  # for any terminal, and for pipes

# %% [markdown]
# ## 13.1 Three keys, with a pencil
#
# One query, three keys, d = 64: raw scores 16, 8 and 0, and divided by √64 = 8 they are 2, 1 and 0.
# The query looks at key 0 most. The loss wants key 1: each unit of weight more there makes it one
# unit smaller, so d_weights = 0, -1, 0. The backward pass through softmax is
#
#     d_score = weight · (d_weight - sum)    with    sum = Σ weight · d_weight

# %%
d_weights = np.array([0.0, -1.0, 0.0])
raw_scores = np.array([16.0, 8.0, 0.0])
d = 64
gradients = {}
print("13.1 Three keys")
for name, scores in {"divided": raw_scores / math.sqrt(d), "not divided": raw_scores}.items():
    weights = attnlab.softmax(scores)
    total = float(weights @ d_weights)
    print(f"\n{name}: scores {', '.join(f'{score:.4g}' for score in scores)}")
    products = [f"{w:.4f}·{wish:g}" for w, wish in zip(weights, d_weights, strict=True)]
    print(f"  sum = {' + '.join(products)} = {total:.4f}")
    gradients[name] = softmax_gradient(weights, d_weights)
    for key, (w, wish) in enumerate(zip(weights, d_weights, strict=True)):
        d_score = w * (wish - total)
        print(f"  d_score of key {key} = {w:.4f} · ({wish:g} - {total:.4f}) = {d_score:.4f}")
    print(f"  softmax_gradient says  {', '.join(f'{d_score:.4f}' for d_score in gradients[name])}")

# %% [markdown]
# Divided, key 1 is told: up (a step goes against the gradient), key 0: down. Not divided, the same
# wish arrives as 0.0003. Look at the factors: key 1's bracket is nearly -1, as loud as can be, but
# its weight is 0.0003; key 0's weight is nearly 1, but its bracket is 0.0003. Each product has one
# factor that is nearly 0. That is what **saturated** means: one weight is 1, the rest are 0, and
# every product vanishes.

# %%
print("\nLength of the gradient that reaches the scores")
for name, gradient in gradients.items():
    print(f"  {name:11}  {np.linalg.norm(gradient):.6f}")

# %% [markdown]
# ## 13.2 Random queries and keys
#
# Now 2,000 queries, each with 16 keys of its own, all numbers of variance 1. The values are the
# identity matrix, so that context = weights, and d_context = d_weights is drawn at random with
# length 1. `attention_gradient` divides by √d, as attention does. To leave that out, we feed it
# Q · √d, and the two cancel; by the chain rule d_Q is then what comes back, times √d.


# %%
def attend(Q: Array, K: Array, divided: bool) -> attnlab.Attention:
    """Weights of queries that look at keys, with the division by √d or without it."""
    V = np.broadcast_to(np.eye(K.shape[-2]), (*K.shape[:-1], K.shape[-2]))
    return attnlab.attention(Q if divided else Q * math.sqrt(K.shape[-1]), K, V)


def way_back(result: attnlab.Attention, d_context: Array, divided: bool) -> tuple[Array, Array]:
    """d_Q and d_K."""
    d_Q, d_K, _ = attention_gradient(result, d_context)
    return (d_Q if divided else d_Q * math.sqrt(d_Q.shape[-1])), d_K


rng = np.random.default_rng(0)
queries, keys, widths = 2_000, 16, (4, 16, 64, 256, 1024)
lengths: dict[tuple[int, bool], Array] = {}  # of what each query gets, in Q
medians: dict[tuple[int, bool], list[float]] = {}
for d in widths:
    Q, K = rng.standard_normal((queries, 1, d)), rng.standard_normal((queries, keys, d))
    d_context = rng.standard_normal((queries, 1, keys))
    d_context /= np.linalg.norm(d_context, axis=-1, keepdims=True)
    for divided in (True, False):
        result = attend(Q, K, divided)
        d_Q, d_K = way_back(result, d_context, divided)
        lengths[d, divided] = np.linalg.norm(d_Q, axis=(1, 2))
        d_scores = softmax_gradient(result.weights, d_context)
        medians[d, divided] = [result.weights.max(axis=-1).mean()]
        for gradient in (d_scores, d_Q, d_K):
            medians[d, divided].append(float(np.median(np.linalg.norm(gradient, axis=(1, 2)))))

for divided, heading in ((True, "13.2 With the division by √d"), (False, "Without it")):
    print(f"\n{heading}: the largest weight (mean), the gradients' lengths (median)")
    print(
        attnlab.table(
            [medians[d, divided] for d in widths],
            rows=[f"d = {d}" for d in widths],
            columns=["largest weight", "d_scores", "d_Q", "d_K"],
            decimals=6,
        )
    )

# %% [markdown]
# With the division every column stays as it is, whatever d. Without it, half of the queries get
# almost nothing once d is large. Note where it begins: at d = 16 a median query gets *more* than
# with the division, since its gradient isn't divided by √d in the backward pass either. Saturation
# overtakes that as d grows.
#
# ## 13.3 The few that hear, hear too much
#
# The mean tells another story than the median. A query whose two best keys happen to be nearly
# equal is not saturated, and its gradient has the full factor √d. So the mean doesn't vanish: most
# queries are deaf, a few get shouted at. One learning rate can't suit both.

# %%
print(f"\n13.3 Without the division: length of d_Q over {queries:,} queries")
lines = []
for d in widths:
    of_d, usual = lengths[d, False], float(np.median(lengths[d, True]))
    deaf = (of_d < usual / 10).mean()
    lines.append([np.median(of_d), of_d.mean(), of_d.max(), of_d.max() / of_d.mean(), deaf])
columns = ["median", "mean", "largest", "largest / mean", "share below a tenth*"]
print(attnlab.table(lines, rows=[f"d = {d}" for d in widths], columns=columns))
print("* of the median with the division")

# %% [markdown]
# ## 13.4 What it does to learning
#
# 200 queries, d = 64 as in GPT-2. Each is to learn to look at one of its 16 keys, chosen at random:
# loss = ½ |context - wanted|². Only Q learns, in 200 plain steps `Q - rate · d_Q`. A comparison at
# one rate would not be fair, so each way gets a range of rates. How many queries end with more than
# 0.9 of their weight on their key?


# %%
learners, choices, width, steps, seed = 200, 16, 64, 200, 1


def found(divided: bool, rate: float, adam: bool = False) -> float:
    """The share of queries that found their key."""
    rng = np.random.default_rng(seed)
    Q = rng.standard_normal((learners, 1, width))
    K = rng.standard_normal((learners, choices, width))
    wanted = np.eye(choices)[rng.integers(0, choices, (learners, 1))]
    optimizer = AdamW(np.zeros(Q.size))
    for _ in range(steps):
        result = attend(Q, K, divided)
        d_Q, _ = way_back(result, result.context - wanted, divided)
        if adam:
            optimizer.update(Q.reshape(-1), d_Q.reshape(-1), rate)  # reshape: a view of Q
        else:
            Q -= rate * d_Q
    return float(((attend(Q, K, divided).weights * wanted).sum(axis=-1) > 0.9).mean())


def compare(rates: tuple[float, ...], adam: bool) -> tuple[float, float]:
    """Print what each rate came to; the best of each way."""
    shares = [[found(divided, rate, adam) for rate in rates] for divided in (True, False)]
    rows = ["with the division", "without it"]
    print(attnlab.table(shares, rows=rows, columns=[f"rate {r}" for r in rates], decimals=2))
    return max(shares[0]), max(shares[1])


print("\n13.4 Share of the queries that found their key, plain steps")
best_with, best_without = compare((0.03, 0.1, 0.3, 1, 3, 10), adam=False)

print("\nThe same with AdamW")
adam_with, adam_without = compare((0.003, 0.01, 0.03, 0.1), adam=True)

print("\nAt the best rate    plain steps  AdamW")
print(f"with the division   {best_with:11.2f}  {adam_with:5.2f}")
print(f"without it          {best_without:11.2f}  {adam_without:5.2f}")

# %% [markdown]
# Without the division most queries end where they should not, at every rate: small steps don't move
# the deaf ones, large ones throw the others about. AdamW divides each number's gradient by its own
# usual size, which makes a full step of a faint gradient. That helps, and does not replace the
# division.
#
# ## 13.5 And in GPT-2?
#
# GPT-2 starts from matrices of deviation 0.02 and not from Q and K of variance 1. Here is one layer
# of GPT-2 small's width before its first step, over random tokens.

# %%
config = attnlab.GPT2Config(vocab_size=500, n_positions=16, n_embd=768, n_layer=1, n_head=12)
parameters = initial_parameters(config, rng)
texts = rng.integers(0, config.vocab_size, (64, config.n_positions))
start = attnlab.ForwardPass(texts, parameters).blocks[0].attention
last = start.raw_scores[:, :, -1]  # of the last token, which sees all
spread = [float(last.std()), float(last.std() / math.sqrt(config.d_head))]
largest = [float(attnlab.softmax(last).max(axis=-1).mean())]
largest.append(float(start.weights[:, :, -1].max(axis=-1).mean()))
print(f"\n13.5 D = {config.n_embd}, before its first step, the last of {config.n_positions} tokens")
print(
    attnlab.table(
        [spread, largest],
        rows=["deviation of the scores", "largest weight, mean"],
        columns=["without the division", "with it"],
        decimals=2,
    )
)

# %% [markdown]
# So GPT-2 would not begin saturated even without the division, thanks to its small matrices: the
# largest weight is one half. With the division it begins near even shares, 1/16 = 0.06, with
# more room before the matrices, which training makes larger, saturate it.
