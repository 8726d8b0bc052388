# %% [markdown]
# # 6. One head of GPT-2, step by step
#
# A published article (orczhou.com, "understanding-llm-attention", 2025-12-31) walks through one
# head of GPT-2, layer 0, head 0, and prints tables of what it finds. Here is the same walk on a
# model that you have, and the verdict: are these the article's numbers?
#
# The model is GPT-2 small where it is in the Hugging Face cache. Where it is not, it is the pocket
# GPT-2 that comes with attnlab: another vocabulary, narrower, with numbers of its own, but built in
# the same way, so that each step can be followed. The first line tells which, and how to get GPT-2.
# To use another model, name it, or a directory, in the environment variable `ATTNLAB_MODEL`. To see
# another text, change `PROMPT`.

# %%
import math
import textwrap

import numpy as np

import attnlab
from attnlab import figures, walkthrough
from attnlab.console import prepare_script

prepare_script()  # for any terminal, and for pipes

PROMPT = "It’s very hot in summer. Swimming is"

model = attnlab.GPT2.at_hand()
print(model)

# %% [markdown]
# ## 6.1 The walk
#
# From tokens to context: the embedding of each token and of each position, their sum, LayerNorm,
# then the chain of chapters 3 and 4. In a token's symbol `Ġ` stands for a space before it. A curly
# apostrophe is three bytes, which GPT-2's vocabulary cuts in two tokens, `âĢ` and `Ļ`.

# %%
print(f"\n6.1 The walk, for the prompt: {PROMPT}\n")
for step in walkthrough.walk(model, PROMPT):
    print(step)

# %% [markdown]
# The last token's second largest weight, with every number that it is made of. In a notebook the
# head then draws itself: point at a square, and it tells its number; what the mask took away is
# striped.

# %%
trace = model.trace(PROMPT)
head = trace.head(0, 0)
second = int(head.weights[-1].argsort()[-2:][0])
print(head.explain(-1, second))
head

# %% [markdown]
# ## 6.2 The verdict
#
# A table agrees when each computed number, rounded as the article rounds, is the printed one.

# %%
print("\n6.2 The verdict")
print(walkthrough.reproduce(model, PROMPT))

# %% [markdown]
# ## 6.3 A straight apostrophe
#
# Type the prompt on a keyboard, and the apostrophe is likely to be straight: `'` and not `’`. The
# vocabulary has a token `'s`, so what were three tokens in GPT-2 become one, and every later token
# sits two positions earlier. Other position embeddings, other numbers: no table can match. The
# library tells why, and never changes the quote for you.

# %%
straight = PROMPT.replace("’", "'")
print("\n6.3 A straight apostrophe")
for prompt in (PROMPT, straight):
    tokens = model.tokenizer.tokens(prompt)
    print(f"\n{prompt}    {len(tokens)} tokens")
    print(tokens)
print("\nAgainst the published figures:")
print(textwrap.fill(walkthrough.reproduce(model, straight).reason, width=88))

# %% [markdown]
# ## 6.4 Where the article's words slip
#
# Some of its sentences are not right. Each is quick to check.
#
# **LayerNorm** does not end with mean 0 and variance 1. After that comes a gain, a factor for each
# column, and a bias, both learned. `X` is the published table only with them. (Without them the
# variance is not quite 1 either, as a small epsilon is added to it before the division.)

# %%
columns = 3

ones, zeros = np.ones(model.config.n_embd), np.zeros(model.config.n_embd)
epsilon = model.config.layer_norm_epsilon
plain = attnlab.layer_norm(trace.embedding, ones, zeros, epsilon)
attention = trace.blocks[0].attention
gain, bias = attention.gain, attention.bias
X = attnlab.layer_norm(trace.embedding, gain, bias, epsilon)

print("\n6.4 Where the article's words slip")
print(f"\nLayerNorm, row of {trace.tokens.symbols[0]}")
print(
    attnlab.table(
        [[x[0].mean(), x[0].var(), *x[0, :columns]] for x in (plain, X)],
        rows=["without gain and bias", "with gain and bias (X)"],
        columns=["mean", "variance", *(f"column {j}" for j in range(columns))],
    )
)
published = figures.load("walkthrough")
if trace.tokens.ids.tolist() == published["token_ids"]:
    for name, x in {"without gain and bias": plain, "with gain and bias": X}.items():
        print(figures.compare(f"X {name}", x[:, :3], published["X"], decimals=4))

# %% [markdown]
# **Shapes.** A head's `W_Q` has a row for each of the model's columns: in GPT-2 small 768 rows, 64
# columns, not the other way round. The head's context is 12 x 64 for 12 tokens. It is 12 x 768
# after all heads are joined. Of the model at hand:

# %%
print("\nShapes")
for what, array in {
    "W_Q of one head": head.W_Q,
    "context of one head": head.context,
    "concat, all heads joined": trace.blocks[0].attention.concat,
}.items():
    print(f"  {what:<26}{' x '.join(map(str, array.shape))}")

# %% [markdown]
# **cos π** is -1, not 0.
#
# **Dividing by √Dk** is not there for speed. It keeps the variance of the scores near 1, so that
# softmax does not saturate: chapter 5. Here is what it does to this head: the spread shrinks by √Dk
# (in GPT-2 √64 = 8), and with it the largest weights. (The first row's only weight is 1 either
# way.)

# %%
print(f"\ncos π = {math.cos(math.pi):.0f}")

seen = head.mask
undivided = attnlab.softmax(np.where(seen, head.raw_scores, -np.inf))
print(f"\nDividing by √{model.config.d_head}")
print(
    attnlab.table(
        [
            [head.raw_scores[seen].std(), undivided.max(axis=1).mean()],
            [head.scores[seen].std(), head.weights.max(axis=1).mean()],
        ],
        rows=["raw_scores", "scores"],
        columns=["standard deviation", "largest weight of a row, mean"],
        decimals=2,
    )
)
