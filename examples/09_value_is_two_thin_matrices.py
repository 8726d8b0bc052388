# %% [markdown]
# # 9. A value matrix is two thin ones
#
# What does a token change when another one looks at it? It adds a row of D numbers to that one. A
# matrix that turns a row of D numbers into a row of D numbers is D x D. A head does it with two
# thin matrices: `W_V`, D x Dh, down to Dh numbers, and `W_O`, Dh x D, up again.

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

print("X, three tokens of D = 4 numbers")
print(attnlab.table(X, rows=words, decimals=0))
print("\nW_V, down to Dh = 2")
print(attnlab.table(W_V, decimals=0))
print("\nW_O, up to D = 4 again")
print(attnlab.table(W_O, decimals=0))
print("\nweights, written down by hand")
print(attnlab.table(weights, rows=words, columns=words, decimals=2))

# %% [markdown]
# ## 9.1 Their product
#
# `W_V W_O` is 4 x 4, but not any 4 x 4 matrix: each of its rows is made of the two rows of `W_O`,
# so that its **rank** is 2. Row 2 is the sum of rows 0 and 1, row 3 is twice row 0.

# %%
W_VO = W_V @ W_O
rank = np.linalg.matrix_rank(W_VO)
print(f"\n9.1 W_V W_O, 4 x 4, rank {rank}")
print(attnlab.table(W_VO, decimals=0))
assert rank == 2
assert np.array_equal(W_VO[2], W_VO[0] + W_VO[1])
assert np.array_equal(W_VO[3], 2 * W_VO[0])

# %% [markdown]
# ## 9.2 Two ways, one result
#
# Go down, mix with the weights, go up, as the model does. Or make the D x D matrix first, and mix
# full rows. It does not matter where the brackets stand.
#
#     (weights (X W_V)) W_O  =  weights (X (W_V W_O))

# %%
context = weights @ (X @ W_V)
as_the_model = context @ W_O
in_one = weights @ (X @ W_VO)
print("\n9.2 context = weights (X W_V), 3 x 2")
print(attnlab.table(context, rows=words, decimals=2))
print("\n(weights (X W_V)) W_O")
print(attnlab.table(as_the_model, rows=words, decimals=2))
print("\nweights (X (W_V W_O))")
print(attnlab.table(in_one, rows=words, decimals=2))
assert np.allclose(as_the_model, in_one)

# %% [markdown]
# ## 9.3 What it saves
#
# Two thin matrices hold 2 · D · Dh numbers, a full one D². GPT-2 small gets by with one sixth,
# GPT-3 with one in 48. (Our small example saves nothing: there Dh is half of D.)

# %%
gpt2 = attnlab.GPT2Config(vocab_size=50257, n_positions=1024, n_embd=768, n_layer=12, n_head=12)
gpt3 = attnlab.GPT2Config(vocab_size=50257, n_positions=2048, n_embd=12288, n_layer=96, n_head=96)

lines = [["", "D", "Dh", "thin: 2 · D · Dh", "full: D²", "full / thin"]]
sizes = {"our example": W_V.shape}
sizes |= {"GPT-2 small": (gpt2.n_embd, gpt2.d_head), "GPT-3": (gpt3.n_embd, gpt3.d_head)}
for name, (D, Dh) in sizes.items():
    thin, full = 2 * D * Dh, D * D
    lines.append([name, f"{D:,}", f"{Dh}", f"{thin:,}", f"{full:,}", f"{full / thin:.0f}"])
print("\n9.3 Numbers in one head's value map")
print(align(lines))

assert (2 * 768 * 64, 768**2) == (98_304, 589_824)
notes = figures.load("gpt3_parameters")
one_head = 4 * gpt3.n_embd * gpt3.d_head  # W_Q and W_K are as thin as W_V and its rows of W_O
print(f"\nA head of GPT-3, with W_Q and W_K: {one_head:,}")
print(figures.check("a head of GPT-3", [one_head], [notes["attention_per_head"]], decimals=0))

# %% [markdown]
# ## 9.4 Several heads: their shares add up
#
# With H heads the library joins the contexts (`concat`) and multiplies by one `W_O` of all heads.
# That is the same as giving each head its own rows of `W_O`, and adding up what comes out. Each
# head's `output` is its share. `b_O` belongs to no head and is added once.

# %%
W_Q_both = np.array([[1, 0, 0, 1], [0, 1, 1, 0], [1, 1, 0, 0], [0, 0, 1, 1]])
W_K_both = np.array([[0, 1, 1, 0], [1, 0, 0, 1], [1, 0, 1, 0], [0, 1, 0, 1]])
W_V_both = np.hstack([W_V, [[0, 1], [1, 0], [0, 0], [1, 1]]])  # head 0, head 1
W_O_both = np.vstack([W_O, [[0, 2, 0, 1], [1, 0, 0, -1]]])  # head 0, head 1
b_O = np.array([0.5, 0, 0, -0.5])
layer = attnlab.multi_head_attention(
    X,
    W_Q_both,
    W_K_both,
    W_V_both,
    W_O_both,
    n_head=2,
    b_O=b_O,
    mask=attnlab.causal_mask(3),
)
assert np.array_equal(layer.heads[0].W_O, W_O)

print("\n9.4 Two heads with a causal mask")
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
assert np.allclose(added, layer.output)

# %% [markdown]
# So a layer of H heads is H maps of rank Dh, each spread over the tokens by weights of its own.

# %%
total = b_O + sum(head.weights @ X @ (head.W_V @ head.W_O) for head in layer.heads)
difference = np.abs(total - layer.output).max()
print(f"\nWith each head's map in one piece, weights X (W_V W_O): at most {difference:.1e} apart")
assert np.allclose(total, layer.output)
