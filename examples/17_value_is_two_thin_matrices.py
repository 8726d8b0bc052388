# %% [markdown]
# # 17. A value matrix is two thin ones
#
# What does a token change when another one looks at it? It adds a row of D numbers to that one. A
# matrix that turns a row of D numbers into a row of D numbers is D x D. A head does it with two
# thin matrices: `W_V`, D x Dh, down to Dh numbers, and `W_O`, Dh x D, up again. Change any number,
# and run it again.

# %%
import numpy as np

import attnlab
from attnlab import figures
from attnlab.console import prepare_script
from attnlab.tables import align

prepare_script()  # for any terminal, and for pipes

words = ["a", "small", "step"]
X = np.array(
    [
        [1, 0, 2, 0],  # a
        [0, 1, 0, 1],  # small
        [2, 1, 1, 0],  # step
    ]
)
W_V = np.array([[1, 0], [0, 1], [1, 1], [2, 0]])
W_O = np.array([[1, 0, 1, 2], [0, 1, -1, 0]])
weights = np.array([[1, 0, 0], [0.5, 0.5, 0], [0.25, 0.25, 0.5]])
D, Dh = W_V.shape

print(f"X, tokens of D = {D} numbers")
print(attnlab.table(X, rows=words, decimals=1))
print(f"\nW_V, down to Dh = {Dh}")
print(attnlab.table(W_V, decimals=1))
print(f"\nW_O, up to D = {D} again")
print(attnlab.table(W_O, decimals=1))
print("\nweights, written down by hand")
print(attnlab.table(weights, rows=words, columns=words, decimals=2))

# %% [markdown]
# ## 17.1 Their product
#
# `W_V W_O` is D x D, but not any D x D matrix: each of its rows is made of the Dh rows of `W_O`, so
# that its **rank** is Dh at most. With the numbers above it is 2: row 2 is the sum of rows 0 and 1,
# row 3 is twice row 0.

# %%
W_VO = W_V @ W_O
rank = np.linalg.matrix_rank(W_VO)
print(f"\n17.1 W_V W_O, {D} x {D}, rank {rank}")
print(attnlab.table(W_VO, decimals=1))

# %% [markdown]
# ## 17.2 Two ways, one result
#
# Go down, mix with the weights, go up, as the model does. Or make the D x D matrix first, and mix
# full rows. It does not matter where the brackets stand.
#
#     (weights (X W_V)) W_O  =  weights (X (W_V W_O))

# %%
context = weights @ (X @ W_V)
as_the_model = context @ W_O
in_one = weights @ (X @ W_VO)
print(f"\n17.2 context = weights (X W_V), {len(words)} x {Dh}")
print(attnlab.table(context, rows=words, decimals=2))
print("\n(weights (X W_V)) W_O")
print(attnlab.table(as_the_model, rows=words, decimals=2))
print("\nweights (X (W_V W_O))")
print(attnlab.table(in_one, rows=words, decimals=2))
print(f"\nat most {np.abs(as_the_model - in_one).max():.0e} apart")

# %% [markdown]
# ## 17.3 What it saves
#
# Two thin matrices hold 2 · D · Dh numbers, a full one D². GPT-2 small gets by with one sixth,
# GPT-3 with one in 48. (The small example above saves nothing: there Dh is half of D.)

# %%
gpt2 = attnlab.GPT2Config(vocab_size=50257, n_positions=1024, n_embd=768, n_layer=12, n_head=12)
gpt3 = attnlab.GPT2Config(vocab_size=50257, n_positions=2048, n_embd=12288, n_layer=96, n_head=96)

lines = [["", "D", "Dh", "thin: 2 · D · Dh", "full: D²", "full / thin"]]
sizes = {"our example": W_V.shape}
sizes |= {"GPT-2 small": (gpt2.n_embd, gpt2.d_head), "GPT-3": (gpt3.n_embd, gpt3.d_head)}
for name, (wide, narrow) in sizes.items():
    thin, full = 2 * wide * narrow, wide * wide
    ratio = f"{full / thin:.3g}"
    lines.append([name, f"{wide:,}", f"{narrow}", f"{thin:,}", f"{full:,}", ratio])
print("\n17.3 Numbers in one head's value map")
print(align(lines))

one_head = 4 * gpt3.n_embd * gpt3.d_head  # W_Q and W_K are as thin as W_V and its rows of W_O
print(f"\nA head of GPT-3, with W_Q and W_K: {one_head:,}")
notes = figures.load("gpt3_parameters")
of_gpt3 = {"D, Dh": ((gpt3.n_embd, gpt3.d_head), (notes["d_embed"], notes["d_head"]))}
print(figures.verdict(of_gpt3, 0, one_head=([one_head], [notes["attention_per_head"]])))

# %% [markdown]
# ## 17.4 Several heads: their shares add up
#
# With H heads the library joins the contexts (`concat`) and multiplies by one `W_O` of all heads.
# That is the same as giving each head its own rows of `W_O`, and adding up what comes out. Each
# head's `output` is its share. `b_O` belongs to no head and is added once.
#
# Head 0 has the matrices from above. All others are drawn.

# %%
rng = np.random.default_rng(0)
W_Q_both, W_K_both = rng.integers(0, 2, (2, D, 2 * Dh))
W_V_both = np.hstack([W_V, rng.integers(0, 2, (D, Dh))])  # head 0, head 1
W_O_both = np.vstack([W_O, rng.integers(-1, 3, (Dh, D))])  # head 0, head 1
b_O = rng.integers(-2, 3, D) / 2
layer = attnlab.multi_head_attention(
    X,
    W_Q_both,
    W_K_both,
    W_V_both,
    W_O_both,
    n_head=2,
    b_O=b_O,
    mask=attnlab.causal_mask(len(words)),
)

print("\n17.4 Two heads with a causal mask")
for h, head in enumerate(layer.heads):
    print(f"\nShare of head {h}: its context times its rows of W_O")
    print(attnlab.table(head.output, rows=words))
print("\nb_O")
print(attnlab.table([b_O], rows=["all tokens"]))
print("\nShares and b_O added up")
added = sum(head.output for head in layer.heads) + b_O
print(attnlab.table(added, rows=words))
print("\noutput = concat W_O + b_O, as the layer computes it")
print(attnlab.table(layer.output, rows=words))
layer

# %% [markdown]
# So a layer of H heads is H maps of rank Dh, each spread over the tokens by weights of its own.

# %%
total = b_O + sum(head.weights @ X @ (head.W_V @ head.W_O) for head in layer.heads)
difference = np.abs(total - layer.output).max()
print(f"\nWith each head's map in one piece, weights X (W_V W_O): at most {difference:.1e} apart")

# %% [markdown]
# ## With a pencil
#
# * Make the second row of `W_O` a multiple of its first. What is the rank of `W_V W_O` then?
# * How narrow would Dh have to be in the small example, so that two thin matrices save something?
