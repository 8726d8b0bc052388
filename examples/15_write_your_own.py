# %% [markdown]
# # 15. Write your own attention
#
# > Afterwards you can say: “I have written a head, a layer and a block myself, and every step
# > agrees with the model's. Right shapes don't prove right numbers: I compare the numbers.”
#
# You have followed every step. Now write them yourself: one head, then a layer of heads, then a
# whole block. After each, `attnlab.check` compares your numbers with the model's. It says which
# steps agree and which step differs first, and it names the mistake if it recognizes it.
#
# The functions below are empty. Write them; nothing else needs to change. Any error in them is
# reported, and the chapter continues. Each function has three hints, to be opened one after the
# other.
#
# * **Objective**: Write a head, a layer and a block, and let a check find the first step that is
#   wrong.
# * **Before this**: [chapter 3](03_one_head_by_hand.py), [chapter 4](04_your_journey.py) and
#   [chapter 8](08_a_tokens_journey.py); NumPy. This is an advanced chapter.
# * **Time**: about 50 minutes, exercises included.
# * **Misconception**: "If the shapes are right, the code is." Square matrices and reshapes hide
#   the commonest mistakes.

# %%
from collections.abc import Mapping
from typing import Any

import numpy as np

import attnlab
from attnlab import pictures
from attnlab.checking import checked
from attnlab.equations import Array
from attnlab.support.console import prepare_script

prepare_script()  # print on any terminal, and into pipes

TEXT = "The dog chased the ball, but it"
layer, number = 0, 1  # the head to reproduce

model = attnlab.GPT2.default("pocket")  # GPT-2 if you have it, otherwise pocket
trace = model.trace(TEXT)
head = trace.head(layer, number)
block: Any = trace.blocks[layer]

# %% [markdown]
# ## 15.1 One head
#
# **Task 1 (medium).** Write `my_head`. You are given `X` (T tokens, D numbers each) and the head's
# parameters. Return a dictionary from names to arrays: `Q`, `K`, `V`, `scores`, `masked_scores`,
# `weights` and `context`. You may leave some steps out at first, and check the others. The
# equations of the steps are on one page, from [`affine`](../attnlab/equations.py) to
# [`context`](../attnlab/equations.py).


# %%
def my_head(
    X: Array, W_Q: Array, b_Q: Array, W_K: Array, b_K: Array, W_V: Array, b_V: Array
) -> dict[str, Array]:
    raise NotImplementedError


# %%
print("\n15.1 One head")
parameters = head.W_Q, head.b_Q, head.W_K, head.b_K, head.W_V, head.b_V
print(checked(head, my_head, head.X, *parameters))

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Start with `return {"Q": X @ W_Q + b_Q}` and run the check: a single step is enough for it. Then
# add `K`, `V` and the scores, a dot product of each query with each key, divided by a root.
#
# <details><summary>Hint 2</summary>
#
# `np.tril(np.ones((T, T), dtype=bool))` is `True` where a token may attend.
# `np.where(mask, scores, -np.inf)` hides the rest, before softmax and not after it.
#
# <details><summary>Hint 3</summary>
#
# Softmax runs over the keys: `axis=1` of a matrix whose rows are queries. Subtract the maximum of
# each row first, take `np.exp`, and divide by the row's sum, with `keepdims=True`.
#
# <details><summary>Solution</summary>
#
# [`my_head`](book/solutions/chapter_15.py)
#
# </details>
#
# </details>
#
# </details>
#
# </details>

# %% [markdown]
# Two programs never give exactly the same numbers, as they add in different orders. So a step
# agrees if rounding explains the difference, and the table's column `x rounding` gives the
# difference as a multiple of that rounding.

# %% [markdown]
# ## 15.2 What check says about common mistakes
#
# Each line below makes one mistake on purpose; everything before it is right. Guess what `check`
# will say before you read it.

# %%
Q, K, V, scores, mask = head.Q, head.K, head.V, head.scores, head.mask
mistakes: dict[str, dict[str, Array]] = {
    "no division": {"scores": Q @ K.T},
    "divided by Dk": {"scores": Q @ K.T / K.shape[1]},
    "the mask transposed": {"masked_scores": np.where(mask.T, scores, -np.inf)},
    "masked after the softmax": {"weights": attnlab.softmax(scores) * mask},
    "softmax down the columns": {"weights": attnlab.softmax(head.masked_scores.T).T},
}

print("\n15.2 Common mistakes")
for mistake, attempt in mistakes.items():
    verdict = attnlab.check(attempt, head)
    print(f"\n{mistake}: {verdict.reasons or 'no difference'}")

# %% [markdown]
# Nobody wrote a list of these mistakes. `check` takes the line of the first step that differs,
# changes one thing in it that a person might write, runs the changed line on the right numbers, and
# compares. A changed line that gives your numbers in every cell is printed; if two changed lines
# do, both are printed. Here is the idea in three lines:

# %%
Dk, D = K.shape[1], head.X.shape[1]
lines = {"raw_scores": 1, "raw_scores / Dk": 1 / Dk, "raw_scores / np.sqrt(D)": D**-0.5}
print([line for line, x in lines.items() if np.allclose(Q @ K.T * x, Q @ K.T / K.shape[1])])

# %% [markdown]
# A mistake often shows in a picture, too. If the mask is applied after the softmax, rows no longer
# sum to 1: later tokens were given some weight, which the mask then discards.

# %%
pictures.heatmap(
    mistakes["masked after the softmax"]["weights"],
    rows=trace.tokens.symbols,
    columns=trace.tokens.symbols,
    title="masked after the softmax",
)

# %% [markdown]
# ## 15.3 A layer
#
# **Multi-head attention**: all heads at once. One matrix holds `W_Q`, `W_K` and `W_V` of all heads
# side by side: the columns are Q of all heads, then K of all, then V. Between (T, H · Dh) and (H,
# T, Dh) you need a reshape **and** a swap of axes; a reshape alone mixes tokens
# ([`split_heads`](../attnlab/equations.py), [`merge_heads`](../attnlab/equations.py)). Then `W_O`
# mixes the heads.
#
# **Task 2 (hard).** Write `my_layer` for `H` heads. Return `Q`, `scores`, `weights` and `context`,
# each with an axis for the heads in front; `concat`, which is the contexts side by side; and
# `output`.


# %%
def my_layer(
    X: Array, W_QKV: Array, b_QKV: Array, W_O: Array, b_O: Array, H: int
) -> dict[str, Array]:
    raise NotImplementedError


# %%
print("\n15.3 A layer")
attention = block.attention
W_QKV = np.concatenate([attention.W_Q, attention.W_K, attention.W_V], axis=1)
b_QKV = np.concatenate([attention.b_Q, attention.b_K, attention.b_V])
layer_arguments = attention.X, W_QKV, b_QKV, attention.W_O, attention.b_O
print(checked(attention, my_layer, *layer_arguments, model.config.n_head))

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# `np.split(X @ W_QKV + b_QKV, 3, axis=1)` gives Q, K and V of all heads, each (T, H · Dh).
#
# <details><summary>Hint 2</summary>
#
# A token's row holds head 0, then head 1, and so on: `part.reshape(T, H, -1)` takes it apart, and
# `.swapaxes(0, 1)` brings the heads to the front.
#
# <details><summary>Hint 3</summary>
#
# `Q @ K.swapaxes(1, 2)` multiplies head by head, and a mask of (T, T) fits every head. To join the
# contexts, swap the axes back before the reshape to (T, H · Dh). `attnlab.softmax` runs over the
# last axis.
#
# <details><summary>Solution</summary>
#
# [`my_layer`](book/solutions/chapter_15.py)
#
# </details>
#
# </details>
#
# </details>
#
# </details>

# %% [markdown]
# Everybody makes these two mistakes once: `W_O` as `nn.Linear` would store it, with outputs as
# rows, and heads concatenated without the swap. No shape error warns you: both matrices are square,
# both reshapes fit.
#
# PyTorch's `nn.MultiheadAttention` is this layer too. Its `in_proj_weight` is `W_QKV` transposed,
# `True` in its mask means that a token may *not* attend, and the weights it returns are the mean
# over the heads unless you pass `average_attn_weights=False`:
#
#     layer = torch.nn.MultiheadAttention(D, H, batch_first=True)
#     layer.in_proj_weight.data = torch.tensor(W_QKV.T.copy())
#     layer.in_proj_bias.data = torch.tensor(b_QKV)
#     layer.out_proj.weight.data = torch.tensor(W_O.T.copy())
#     layer.out_proj.bias.data = torch.tensor(b_O)
#     x, hidden = torch.tensor(X)[None], torch.tensor(~mask)
#     output, weights = layer(x, x, x, attn_mask=hidden, average_attn_weights=False)

# %%
context = attention.context
joined = context.reshape(len(attention.X), -1)
for attempt in (
    {"output": attention.concat @ attention.W_O.T + attention.b_O},
    {"output": joined @ attention.W_O + attention.b_O},
):
    print(f"\n{attnlab.check(attempt, attention).reasons or 'no difference'}")

# %% [markdown]
# ## 15.4 A block
#
# The rest is short: LayerNorm before attention and before the MLP, the activation function GELU,
# and the two additions that form the residual stream. Names are paths here, as in a whole trace.
# The variance is over all D, and epsilon is inside the root.
#
# **Task 3 (hard).** Write `my_block`. `attention_params` and `mlp_params` are parameters by name:
# `gain` and `bias` of a LayerNorm, then `W_QKV`, `b_QKV`, `W_O` and `b_O`, or `W_1`, `b_1`, `W_2`
# and `b_2`. Return `attention.X`, `attention.output`, `mid`, `mlp.hidden`, `mlp.activated`,
# `mlp.output` and `output`.


# %%
def my_block(
    x: Array,
    attention_params: Mapping[str, Array],
    mlp_params: Mapping[str, Array],
    H: int,
    epsilon: float,
) -> dict[str, Array]:
    raise NotImplementedError


# %%
print("\n15.4 A block")
norm = "gain", "bias"
attention_params = {name: getattr(attention, name) for name in (*norm, "W_O", "b_O")}
attention_params |= {"W_QKV": W_QKV, "b_QKV": b_QKV}
mlp_params = {name: getattr(block.mlp, name) for name in (*norm, "W_1", "b_1", "W_2", "b_2")}
sizes = model.config.n_head, model.config.layer_norm_epsilon
print(checked(block, my_block, block.input, attention_params, mlp_params, *sizes))

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# LayerNorm, for each row: subtract the mean, divide by √(variance + epsilon), multiply by `gain`
# and add `bias`. `x.mean(axis=1, keepdims=True)` is a column of means.
#
# <details><summary>Hint 2</summary>
#
# `attention.X` is the LayerNorm of `x`; `my_layer(...)["output"]` is attention's output; `mid` is
# `x` plus that output. The MLP begins with its own LayerNorm, of `mid`.
#
# <details><summary>Hint 3</summary>
#
# The MLP is two matrices with GELU between:
# `hidden · (1 + tanh(√(2/π) (hidden + 0.044715 hidden³))) / 2`. The block's `output` is `mid` plus
# the MLP's output, not `x` plus it.
#
# <details><summary>Solution</summary>
#
# [`my_block`](book/solutions/chapter_15.py)
#
# </details>
#
# </details>
#
# </details>
#
# </details>

# %% [markdown]
# ## 15.5 The next token
#
# Now use your block in the model: replace the block's output with yours, and compute the rest of
# the model. Are the predictions the same?

# %%
print("\n15.5 The next token")
try:
    my_output = my_block(block.input, attention_params, mlp_params, *sizes)["output"]
    edited = trace.edited({f"blocks.{layer}.output": my_output})
except NotImplementedError:
    edited = trace
    print("my_block isn't written yet. This is what the model predicts:")
except Exception as error:
    edited = trace
    print(f"your output can't be used: {error}")
print(edited.next_tokens(3))
edited

# %% [markdown]
# ## 15.6 Predict, change, see
#
# **Exercise 1 (basic).** Remove the division in `my_head`. How many of its seven steps still agree,
# and what will `check` report? Predict, then try.
#
# <details><summary>Answer</summary>
#
# `Q`, `K` and `V` still agree: 3 of 7. The first step that doesn't is `scores`, and the reported
# mistake is `scores = raw_scores`: the division by √Dk is missing.
#
# </details>
#
# **Exercise 2 (medium).** In `my_head` put `np.tril(np.ones(scores.shape, dtype=bool), -1)`, which
# also hides each token from itself. What happens to the first row?
#
# <details><summary>Answer</summary>
#
# The first token can attend to nothing. All its scores are -inf, its softmax is NaN, and `check`
# says where the first NaN is, in cell `(0, 0)` of the weights, and what causes a NaN. A row with
# nothing to attend to has no softmax.
#
# </details>
#
# **Exercise 3 (medium).** In `my_layer` remove `.swapaxes(0, 1)` before the last `reshape`. Which
# step differs first?
#
# <details><summary>Answer</summary>
#
# `concat` differs first: everything before it is unchanged. The shape is right, T rows of H · Dh,
# but each row holds numbers of several tokens.
#
# </details>
#
# **Exercise 4 (medium).** In `my_block` remove `x +` in `mid = x + output`. How many of the seven
# steps still agree, and what is reported?
#
# <details><summary>Answer</summary>
#
# 2 of 7 still agree, `attention.X` and `attention.output`. The first step that doesn't is `mid`,
# and the reported mistake is `mid = attention.output`: the residual is missing.
#
# </details>

# %% [markdown]
# ## Summary
#
# * A head is seven steps; the check compares each of them with the model's.
# * Two programs agree up to rounding, never bit by bit.
# * Heads are split with a reshape and a swap of axes; without the swap the shape is right and the
#   numbers are not.
# * A block is attention and an MLP, each after its own LayerNorm, each added to the residual
#   stream.
