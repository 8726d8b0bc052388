# %% [markdown]
# # 7. All heads at once
#
# A model has many heads: GPT-2 small 12 layers of 12, which is 144. Each makes its own weights.
# Here are all of them for one sentence, on one screen. Put another in `PROMPT` and see.
#
# What you read off these tables says something about language only if the model was trained. A
# model with random numbers gives tables that look just like these. So look first which model it is.

# %%

import numpy as np

import attnlab
from attnlab.console import prepare_script
from attnlab.tables import align

prepare_script()  # for any terminal, and for pipes

model = attnlab.GPT2.at_hand()
print(model)

# %% [markdown]
# ## 7.1 The sentence
#
# In GPT-2's vocabulary it is 16 tokens with the curly apostrophe, and 14 with a straight one. (It
# has been counted as 21, which is neither.) Tokens are not words: there "Chanler" is two, and so
# are the bytes of `’`. Other vocabularies cut it in other places.

# %%
PROMPT = "Martin’s one of my sons, and the other is Chanler."
trace = model.trace(PROMPT)
straight = model.tokenizer.tokens(PROMPT.replace("’", "'"))

print("\n7.1 The sentence")
for tokens in (trace.tokens, straight):
    print(f"\n{len(tokens)} tokens: {' '.join(tokens.symbols)}")

# %% [markdown]
# ## 7.2 Where the last token looks
#
# The last token, here the full stop, sees all the others. For each layer (row) and head (column):
# which token gets its largest weight? The first token is shown as a dash, so that the others stand
# out.

# %%
T, L, H = len(trace.tokens), model.config.n_layer, model.config.n_head
weights = np.stack([block.attention.weights for block in trace.blocks])  # (L, H, T, T)

names = [symbol.removeprefix("Ġ") for symbol in trace.tokens.symbols]
last = weights[:, :, -1]  # (L, H, T)
grid = [["", *map(str, range(H))]]
for layer in range(L):
    favourites = last[layer].argmax(axis=-1)
    grid.append([str(layer), *("-" if j == 0 else names[j] for j in favourites)])

print(f"\n7.2 The token that {names[-1]!r} looks at most: layers down, heads across")
print(f"    - is the first token, {names[0]}\n")
print(align(grid))

# %% [markdown]
# ## 7.3 How much
#
# The weight that the last token gives to the first token, to the one before it, and to itself.
# Even shares would be 1 / T.
#
# A row of weights sums to 1 even where a head has nothing to say, so that the weight has to go
# somewhere. Does the first token get more than its even share here?

# %%
print(f"\n7.3 How much of the last token's weight goes where (even shares: {1 / T:.2f})")
before = max(T - 2, 0)
for where, position in {"the first token": 0, "the one before": before, "itself": T - 1}.items():
    print(f"\nTo {where}, {names[position]!r}: layers down, heads across")
    print(attnlab.table(last[:, :, position], decimals=2, max_rows=100, max_columns=100))
    print(f"mean of all {L * H} heads: {last[:, :, position].mean():.2f}")

# %% [markdown]
# ## 7.4 Heads with a habit
#
# One token is one sample. A head with a habit has it for every token. So take the mean over all
# tokens but the first: which heads give most to the first token, to the one before, to the token
# itself? Early tokens see few others, so that even shares come to more than 1 / T here.

# %%
i = np.arange(min(1, T - 1), T)  # a single token is the first
habits = {
    "the first token": weights[:, :, i, 0].mean(axis=-1),
    "the one before": weights[:, :, i, i - 1].mean(axis=-1),
    "itself": weights[:, :, i, i].mean(axis=-1),
}
even = (1 / (i + 1)).mean()
print(f"\n7.4 Heads with a habit: mean over all tokens but the first (even shares: {even:.2f})")
for where, mean in habits.items():
    order = np.argsort(-mean, axis=None)[:3]
    best = [divmod(int(index), H) for index in order]
    found = ",  ".join(
        f"layer {layer} head {head}: {mean[layer, head]:.2f}" for layer, head in best
    )
    print(f"  {where:<16} {found}")

# %% [markdown]
# ## 7.5 One of them, closer
#
# All weights of the last token in the head that looks at the token before it most.

# %%
layer, head = divmod(int(habits["the one before"].argmax()), H)
print(f"\n7.5 Layer {layer}, head {head}: the weights of {names[-1]!r}")
for symbol, weight in zip(trace.tokens.symbols, trace.head(layer, head).weights[-1], strict=True):
    print(f"  {symbol:8} {weight:.3f}  {'█' * round(50 * float(weight))}")
trace.head(layer, head)

# %% [markdown]
# ## 7.6 What all this is for
#
# The last token's row, after all layers, says what may come next.

# %%
print("\n7.6 What may come next")
print(trace.next_tokens(5))
