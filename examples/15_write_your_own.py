# %% [markdown]
# # 15. Write your own attention
#
# You have followed every step. Now write them yourself: one head, then a layer of heads, then a
# whole block. After each, `attnlab.check` compares your numbers with the model's and says which
# steps are right, which is the first wrong one, and, if it knows the mistake, what you did.
#
# The functions below are correct. Empty them and write your own; nothing else needs to change. Any
# error in them is reported, and the chapter continues.
#
# * **Objective**: Write a head, a layer and a block, and let a check find the first step that is
#   wrong.
# * **Before this**: [chapter 3](03_one_head_by_hand.py), [chapter 4](04_your_journey.py) and
#   [chapter 8](08_a_tokens_journey.py); NumPy. This is an advanced chapter.
# * **Time**: 90 minutes, exercises included.
# * **Misconception**: "If the shapes are right, the code is." Square matrices and reshapes hide
#   the commonest mistakes.

# %%
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import attnlab
from attnlab import pictures
from attnlab.equations import Array
from attnlab.support.console import prepare_script

prepare_script()  # for any terminal, and for pipes

TEXT = "The dog chased the ball, but it"
layer, number = 0, 1  # the head to reproduce

model = attnlab.GPT2.default()
trace = model.trace(TEXT)
head = trace.head(layer, number)
block: Any = trace.blocks[layer]


def checked(right: Any, write: Callable[..., Mapping[str, Array]], *given: Any) -> Any:
    """What `check` says about your function's result, or the error that stopped it."""
    try:
        return attnlab.check(write(*given), right)
    except attnlab.AttnlabError as error:
        return error
    except Exception as error:
        return f"{write.__name__} stopped with {type(error).__name__}: {error}"


# %% [markdown]
# ## 15.1 One head
#
# You are given `X` (T tokens, D numbers each) and the head's parameters. Return a dictionary from
# names to arrays, with as many of these as you like: `Q`, `K`, `V`, `raw_scores`, `scores`,
# `masked_scores`, `weights`, `context`. Their equations are on one page, from
# [`affine`](../attnlab/equations.py) to [`context`](../attnlab/equations.py).


# %%
def my_head(
    X: Array, W_Q: Array, b_Q: Array, W_K: Array, b_K: Array, W_V: Array, b_V: Array
) -> dict[str, Array]:
    Q, K, V = X @ W_Q + b_Q, X @ W_K + b_K, X @ W_V + b_V
    scores = Q @ K.T / math.sqrt(K.shape[1])
    may_attend = np.tril(np.ones(scores.shape, dtype=bool))
    masked_scores = np.where(may_attend, scores, -np.inf)
    powers = np.exp(masked_scores - masked_scores.max(axis=1, keepdims=True))
    weights = powers / powers.sum(axis=1, keepdims=True)
    return {
        "Q": Q,
        "K": K,
        "V": V,
        "scores": scores,
        "masked_scores": masked_scores,
        "weights": weights,
        "context": weights @ V,
    }


print("\n15.1 One head")
parameters = head.W_Q, head.b_Q, head.W_K, head.b_K, head.W_V, head.b_V
print(checked(head, my_head, head.X, *parameters))

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
for mistake, mine in mistakes.items():
    verdict = attnlab.check(mine, head)
    print(f"\n{mistake}: {verdict.reasons or 'no difference'}")

# %% [markdown]
# A mistake often shows in a picture, too. Masked after the softmax, rows of weights no longer sum
# to 1: the future got its share, which is then thrown away.

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


# %%
def my_layer(X: Array, W_QKV: Array, b_QKV: Array, W_O: Array, b_O: Array) -> dict[str, Array]:
    T, H = len(X), model.config.n_head
    Q, K, V = (
        part.reshape(T, H, -1).swapaxes(0, 1) for part in np.split(X @ W_QKV + b_QKV, 3, axis=1)
    )
    scores = Q @ K.swapaxes(1, 2) / math.sqrt(K.shape[2])
    masked_scores = np.where(np.tril(np.ones((T, T), dtype=bool)), scores, -np.inf)
    weights = attnlab.softmax(masked_scores)
    context = weights @ V
    concat = context.swapaxes(0, 1).reshape(T, -1)
    return {
        "Q": Q,
        "scores": scores,
        "weights": weights,
        "context": context,
        "concat": concat,
        "output": concat @ W_O + b_O,
    }


print("\n15.3 A layer")
attention = block.attention
of_layer = attention.X, attention.W_QKV, attention.b_QKV, attention.W_O, attention.b_O
print(checked(attention, my_layer, *of_layer))

# %% [markdown]
# Two mistakes that everybody makes once: `W_O` as `nn.Linear` would store it, with outputs as rows,
# and heads concatenated without the swap. No shape error warns you: both matrices are square, both
# reshapes fit.

# %%
context = attention.context
joined = context.reshape(len(attention.X), -1)
for mine in (
    {"output": attention.concat @ attention.W_O.T + attention.b_O},
    {"output": joined @ attention.W_O + attention.b_O},
):
    print(f"\n{attnlab.check(mine, attention).reasons or 'no difference'}")

# %% [markdown]
# ## 15.4 A block
#
# The rest is short: LayerNorm before attention and before the MLP, the activation function GELU,
# and the two additions that form the residual stream. Names are paths here, as in the whole trace.
# The variance is over all D, and epsilon is inside the root.


# %%
def my_block(x: Array) -> dict[str, Array]:
    def layer_norm(x: Array, gain: Array, bias: Array) -> Array:
        centred = x - x.mean(axis=1, keepdims=True)
        variance = (centred**2).mean(axis=1, keepdims=True)
        normal: Array = centred / np.sqrt(variance + model.config.layer_norm_epsilon)
        return normal * gain + bias

    mlp = block.mlp
    X = layer_norm(x, attention.gain, attention.bias)
    output = my_layer(X, *of_layer[1:])["output"]
    mid = x + output
    hidden = layer_norm(mid, mlp.gain, mlp.bias) @ mlp.W_1 + mlp.b_1
    inner = math.sqrt(2 / math.pi) * (hidden + 0.044715 * hidden**3)
    activated = hidden * (1 + np.tanh(inner)) / 2
    written = activated @ mlp.W_2 + mlp.b_2
    return {
        f"blocks.{layer}.attention.X": X,
        f"blocks.{layer}.attention.output": output,
        f"blocks.{layer}.mid": mid,
        f"blocks.{layer}.mlp.hidden": hidden,
        f"blocks.{layer}.mlp.activated": activated,
        f"blocks.{layer}.mlp.output": written,
        f"blocks.{layer}.output": mid + written,
    }


print("\n15.4 A block")
print(checked(trace, my_block, block.input))

# %% [markdown]
# ## 15.5 The next token
#
# Now use your block in the model. Replace the block's output by yours, and let the rest of the
# model continue: does it predict the same?

# %%
print("\n15.5 The next token")
try:
    my_output = my_block(block.input)[f"blocks.{layer}.output"]
    edited = trace.edited({f"blocks.{layer}.output": my_output})
except Exception as error:
    edited = trace
    print(f"your output can't be used: {error}")
print(edited.next_tokens(3))
edited

# %% [markdown]
# ## 15.6 Predict, change, see
#
# **Exercise 1.** Remove the division in `my_head`. How many of its seven steps still agree, and
# what will `check` report? Predict, then try.
#
# <details><summary>Answer</summary>
#
# `Q`, `K` and `V` do: 3 of 7. The first that doesn't is `scores`, and the mistake is
# `scores = raw_scores`: the division by √Dk is missing.
#
# </details>
#
# **Exercise 2.** In `my_head` put `np.tril(np.ones(scores.shape, dtype=bool), -1)`, which also
# hides each token from itself. What happens to the first row?
#
# <details><summary>Answer</summary>
#
# The first token can attend to nothing. All its scores are -inf, its softmax is NaN, and `check`
# says where the first NaN is, `(0, 0)` of the weights, and what causes one. A row with nothing to
# attend to has no softmax.
#
# </details>
#
# **Exercise 3.** In `my_layer` remove `.swapaxes(0, 1)` before the last `reshape`. Which step
# differs first?
#
# <details><summary>Answer</summary>
#
# `concat`: everything before it is unchanged. The shape is right, T rows of H · Dh, but each row
# holds numbers of several tokens.
#
# </details>
#
# **Exercise 4.** In `my_block` remove `x +` in `mid = x + output`. How many of the seven steps
# still agree, and what is reported?
#
# <details><summary>Answer</summary>
#
# 2 of 7, `attention.X` and `attention.output`. The first that doesn't is `blocks.0.mid`, and
# `mid = attention.output` is reported: the residual is missing.
#
# </details>

# %% [markdown]
# ## Summary
#
# * A head is seven steps; each is compared with the model's.
# * Two programs agree up to rounding, never bit by bit.
# * Heads are split with a reshape and a swap of axes; without the swap the shape is right and the
#   numbers are not.
# * A block is attention and an MLP, each after its own LayerNorm, each added to the residual
#   stream.
