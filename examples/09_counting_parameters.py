# %% [markdown]
# # 9. Counting parameters
#
# > Afterwards you can say: “GPT-2 has 124 million parameters, and I can count them from five sizes.
# > Two thirds of a block are its MLP. At the same width, more heads don't mean more parameters.”
#
# Where are GPT-2's 124 million numbers, and how many of GPT-3's 175 billion are in attention? The
# answers follow from five sizes, by multiplication. You also see why a head's value matrix is the
# product of two thin matrices, and what the output matrix is for. No model is needed. Change a
# size, and count again.
#
# * **Objective**: Count the parameters of GPT-2 and GPT-3 from five sizes.
# * **Before this**: [chapter 3](03_one_head_by_hand.py); what a block contains ([chapter
#   8](08_a_tokens_journey.py)).
# * **Time**: about 40 minutes, exercises included.
# * **Misconception**: "Most of a transformer is attention." Two thirds of a block are its MLP.
#   "More heads mean more parameters." At the same width they don't.

# %%
import numpy as np

import attnlab
from attnlab import figures, pictures
from attnlab.forward.parameters import parameter_count
from attnlab.support.console import prepare_script
from attnlab.support.tables import align

prepare_script()  # print on any terminal, and into pipes

gpt2 = attnlab.GPT2Config(vocab_size=50257, n_positions=1024, n_embd=768, n_layer=12, n_head=12)
gpt3 = attnlab.GPT2Config(vocab_size=50257, n_positions=2048, n_embd=12288, n_layer=96, n_head=96)

print("The five sizes of GPT-2 small, and the width of a head")
print(f"  vocab_size    {gpt2.vocab_size:>6,}  tokens in the vocabulary")
print(f"  n_positions   {gpt2.n_positions:>6,}  maximum number of tokens in a text")
print(f"  n_embd        {gpt2.n_embd:>6,}  D, numbers per token")
print(f"  n_layer       {gpt2.n_layer:>6,}  L, layers")
print(f"  n_head        {gpt2.n_head:>6,}  H, heads per layer")
print(f"  D / H         {gpt2.d_head:>6,}  Dh, numbers in a query, a key or a value")

# %% [markdown]
# ## 9.1 Queries, keys and values
#
# A head of GPT-2 small has three matrices, `W_Q`, `W_K` and `W_V`, of 768 rows and 64 columns. (Not
# 64 rows: a token's 768 numbers are a row, to the left of the matrix.) There are 12 heads in each
# of 12 layers, 144 in all. This count omits the biases.

# %%
heads = gpt2.n_head * gpt2.n_layer
qkv = gpt2.n_embd * gpt2.d_head * 3 * heads
print("\n9.1 Queries, keys and values")
print(f"{gpt2.n_embd} · {gpt2.d_head} · 3 · {heads} = {qkv:,}")
count = figures.load("walkthrough")["parameter_count"]["value"]
published = {"n_embd, n_head, n_layer": (768, 12, 12), "count": count}
sizes = {"n_embd, n_head, n_layer": (gpt2.n_embd, gpt2.n_head, gpt2.n_layer)}
print(figures.verdict(published, sizes, 0, count=qkv))

# %% [markdown]
# ## 9.2 The whole of GPT-2 small
#
# Each layer has attention with an output matrix `W_O` (9.5), an MLP of two matrices, F = 4 D wide,
# and two LayerNorms with a gain and a bias each. Outside the layers there are a row for each token
# of the vocabulary, a row for each position, and a final LayerNorm. The output reuses the token
# embedding (**weight tying**), so the output adds no parameters.

# %%
D, F, L = gpt2.n_embd, gpt2.d_mlp, gpt2.n_layer
layer_counts = {
    "W_Q, W_K, W_V": ("3 · D · D", 3 * D * D),
    "b_Q, b_K, b_V": ("3 · D", 3 * D),
    "W_O, b_O": ("D · D + D", D * D + D),
    "MLP: W_1, b_1": ("D · F + F", D * F + F),
    "MLP: W_2, b_2": ("F · D + D", F * D + D),
    "two LayerNorms": ("2 · 2 · D", 4 * D),
}
one_layer = sum(count for _, count in layer_counts.values())

# %%
whole = {
    f"{L} layers": ("L · layer", L * one_layer),
    "token embedding W_E": ("vocab · D", gpt2.vocab_size * D),
    "position embedding W_P": ("n_positions · D", gpt2.n_positions * D),
    "last LayerNorm": ("2 · D", 2 * D),
}


def count_table(counts: dict[str, tuple[str, int]], result: str) -> str:
    """The counts in columns, and their sum."""
    rows = [(name, formula, f"{count:,}") for name, (formula, count) in counts.items()]
    total = sum(count for _, count in counts.values())
    return align([*rows, (result, "", f"{total:,}")], left=(0, 1))


print(f"\n9.2 D = {D}, F = {F}, L = {L}, vocab = {gpt2.vocab_size:,}")
print("\nOne layer")
print(count_table(layer_counts, "sum"))
print("\nThe whole model")
print(count_table(whole, "sum"))
print(f"\nparameter_count says {parameter_count(gpt2):,}")

# %% [markdown]
# ## 9.3 The published sizes
#
# Here are the same five sizes for each published GPT-2 and for GPT-3. The parameters of the layers
# grow with D², those of the embedding only with D: the larger the model, the smaller the share of
# its vocabulary. A head has 64 columns in every GPT-2, and 128 in GPT-3: a larger GPT-2 has more
# heads, not wider ones. A model's designers choose D and the number of heads H. The width of a head
# follows, in GPT-3 D / H = 12,288 / 96 = 128, so that the heads' contexts side by side are as wide
# as the input.


# %%
def config(n_layer: int, n_head: int, n_embd: int) -> attnlab.GPT2Config:
    """A config of these sizes, with GPT-2's vocabulary."""
    return attnlab.GPT2Config(
        vocab_size=50257, n_positions=1024, n_embd=n_embd, n_layer=n_layer, n_head=n_head
    )


published = {
    "distilgpt2": config(6, 12, 768),
    "gpt2": config(12, 12, 768),
    "gpt2-medium": config(24, 16, 1024),
    "gpt2-large": config(36, 20, 1280),
    "gpt2-xl": config(48, 25, 1600),
    "GPT-3": gpt3,
}


# %%
def part_counts(c: attnlab.GPT2Config) -> dict[str, int]:
    """The number of parameters in each part."""
    D, F, L = c.n_embd, c.d_mlp, c.n_layer
    return {
        "embeddings": (c.vocab_size + c.n_positions) * D,
        "attention": L * (4 * D * D + 4 * D),
        "MLP": L * (2 * D * F + F + D),
        "LayerNorm": (2 * L + 1) * 2 * D,
    }


# %%
table = [["", "L", "H", "D", "D/H", "parameters", *part_counts(gpt2)]]
percentages = []
for name, c in published.items():
    count = sum(part_counts(c).values())
    percentages.append([100 * part / count for part in part_counts(c).values()])
    numbers = (c.n_layer, c.n_head, c.n_embd, c.d_head, count)
    table.append(
        [
            name,
            *(f"{value:,}" for value in numbers),
            *(f"{percentage:.2f} %" for percentage in percentages[-1]),
        ]
    )
print("\n9.3 The published sizes, and where their parameters are\n")
print(align(table))
pictures.heatmap(
    percentages, rows=[*published], columns=[*part_counts(gpt2)], title="% of the parameters"
)

# %% [markdown]
# ## 9.4 A value matrix is two thin ones
#
# What does a token change in another token that attends to it? It adds a row of D numbers to the
# other token's row. A matrix that turns D numbers into D numbers is D x D. A head uses two thin
# matrices instead: `W_V`, D x Dh, projects down to Dh numbers, and `W_O`, Dh x D, projects up
# again. Here is a small example, with D = 4 and Dh = 2:

# %%
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
weights = np.array([[1, 0, 0], [0.5, 0.5, 0], [0.25, 0.25, 0.5]])  # chosen by hand

W_VO = W_V @ W_O
rank = np.linalg.matrix_rank(W_VO)
print(f"\n9.4 W_V W_O, {len(W_V)} x {W_O.shape[1]}, rank {rank}")
print(attnlab.table(W_VO, decimals=1))
pictures.heatmap(W_VO, rows=range(len(W_V)), columns=range(W_O.shape[1]), title="W_V W_O")

# %% [markdown]
# The product is D x D, but not any D x D matrix: each of its rows is a combination of the Dh rows
# of `W_O`, so its **rank** is at most Dh ([chapter 2](02_a_matrix_is_a_map.py)). With the numbers
# above the rank is 2: row 2 is the sum of rows 0 and 1, row 3 is twice row 0.
#
# You can project down, mix with the weights ([`context`](../attnlab/equations.py)) and project up,
# as the model does. Or you can compute the D x D matrix first, and mix full rows. The brackets
# don't matter:
#
#     (weights (X W_V)) W_O  =  weights (X (W_V W_O))

# %%
as_the_model = (weights @ (X @ W_V)) @ W_O
combined = weights @ (X @ W_VO)
print("\nWhat the head adds to each token")
print(attnlab.table(as_the_model, rows=words, decimals=2))
print(f"with W_V W_O as one matrix: at most {np.abs(as_the_model - combined).max():.0e} apart")

thin_and_full = [["", "D", "Dh", "thin: 2 · D · Dh", "full: D²", "full / thin"]]
examples = {"our example": W_V.shape}
examples |= {"GPT-2 small": (gpt2.n_embd, gpt2.d_head), "GPT-3": (gpt3.n_embd, gpt3.d_head)}
for name, (wide, narrow) in examples.items():
    thin, full = 2 * wide * narrow, wide * wide
    row = f"{wide:,}", f"{narrow}", f"{thin:,}", f"{full:,}", f"{full / thin:.3g}"
    thin_and_full.append([name, *row])
print("\nNumbers in one head's value map")
print(align(thin_and_full))

# %% [markdown]
# ## 9.5 The output matrix: the heads' contributions add up
#
# With H heads the contexts are concatenated to a row of D numbers, and multiplied by `W_O`, which
# all heads share. That equals multiplying each head's context by that head's rows of `W_O`, and
# adding up the results ([`head_output`](../attnlab/equations.py)). So `W_O` does not only "mix" the
# heads: it is the second half of each head's value map. `b_O` belongs to no head and is added once.
# Head 0 has the matrices from above; all others are random.

# %%
rng = np.random.default_rng(0)
D_small, Dh_small = W_V.shape
W_Q_both, W_K_both = rng.integers(0, 2, (2, D_small, 2 * Dh_small))
W_V_both = np.hstack([W_V, rng.integers(0, 2, (D_small, Dh_small))])  # head 0, head 1
W_O_both = np.vstack([W_O, rng.integers(-1, 3, (Dh_small, D_small))])  # head 0, head 1
b_O = rng.integers(-2, 3, D_small) / 2
matrices, mask = (W_Q_both, W_K_both, W_V_both, W_O_both), attnlab.causal_mask(len(words))
layer = attnlab.multi_head_attention(X, *matrices, n_head=2, b_O=b_O, mask=mask)
last = {f"head {h}": head.output[-1] for h, head in enumerate(layer.heads)} | {"b_O": b_O}
last |= {"added up": sum(last.values()), "output": layer.output[-1]}
print(f"\n9.5 The last token, {words[-1]!r}: two heads' contributions, b_O, and the layer's output")
print(attnlab.table([*last.values()], rows=[*last]))
layer

# %% [markdown]
# ## 9.6 GPT-3: how much is attention?
#
# The architecture is the same, but larger: 96 layers of 96 heads, D = 12,288, D / H = 128. Each
# head's value map is counted as its two thin matrices, down (`W_V`) and up (its rows of `W_O`). The
# table omits biases. "The whole model" is what a GPT-2 of these sizes has, with biases. For GPT-3
# it is the 175 billion that GPT-3 is known for, to the nearest billion. (With a separate output
# matrix, and without biases, LayerNorms and positions, the count is 175,181,291,520.)

# %%
all_heads = gpt3.n_head * gpt3.n_layer
one_matrix = gpt3.n_embd * gpt3.d_head
per_head = f"{gpt3.n_embd:,} · {gpt3.d_head} · {gpt3.n_head} · {gpt3.n_layer}"
counts = {"embedding": (f"{gpt3.vocab_size:,} · {gpt3.n_embd:,}", gpt3.vocab_size * gpt3.n_embd)}
for part in ("key", "query", "value_down", "value_up (the output matrix)"):
    counts[part] = (per_head, one_matrix * all_heads)
in_attention = 4 * one_matrix * all_heads
total = parameter_count(gpt3)

print("\n9.6 GPT-3")
rows = [(part, product, f"{count:,}") for part, (product, count) in counts.items()]
print(align(rows, left=(0, 1)))
print(f"\nattention, one head:   4 · {one_matrix:,} = {4 * one_matrix:,}")
print(f"attention, all heads:  {4 * one_matrix:,} · {all_heads:,} = {in_attention:,}")
print(f"the whole model:       {total:,}")
print(f"attention's share:     {100 * in_attention / total:.0f} %")
print(f"the MLPs' share:       {100 * part_counts(gpt3)['MLP'] / total:.0f} %")
print()
notes = figures.load("gpt3_parameters")
notes["table"] = [*notes["rows"].values()]
size_of_gpt3 = {"d_embed": gpt3.n_embd, "n_heads": gpt3.n_head, "n_layers": gpt3.n_layer}
computed = {"attention_per_head": 4 * one_matrix, "attention_total": in_attention}
of_rows = [number for _, number in counts.values()]
print(figures.verdict(notes, size_of_gpt3, 0, table=of_rows, **computed))

# %% [markdown]
# So attention, which everybody talks about, is a third of GPT-3; two thirds are the MLPs. Two
# mistakes have been printed: 1.75亿 parameters, which is 175 million, for 1750亿, which is 175
# billion; and a vocabulary of 50,527, with two digits swapped. Multiplying exposes the second
# mistake.

# %%
print()
for vocabulary in (50_257, 50_527):
    product = vocabulary * gpt3.n_embd
    verdict = "is" if product == notes["rows"]["embedding"] else "is not"
    print(
        f"{vocabulary:,} · {gpt3.n_embd:,} = {product:,}, which {verdict} GPT-3's published count"
    )
print(f"50,257 = 256 bytes + 50,000 merges + 1 end of text = {256 + 50_000 + 1:,}")

# %% [markdown]
# ### A walk of shapes
#
# What are the shapes on the way? "The next day is bright" is 5 tokens. In an article each token has
# 8 numbers, and a matrix of 8 x 4 makes Q, K and V 5 x 4. In GPT-2 and GPT-3 the heads together are
# as wide as the input: 96 contexts of 128 columns are 12,288 again. Here is the walk for that
# sentence and for 1,000 tokens of GPT-3. Tokens are rows, and a query is a row of 128 numbers;
# where tokens are columns, as in some notes, everything is transposed, but nothing is "128 * 128".


# %%
def walk(T: int, D: int, Dh: int, H: int) -> dict[str, tuple[int, ...]]:
    """The shape of each step, of a head and of the whole layer."""
    head = attnlab.self_attention(
        np.zeros((T, D), np.float32), *3 * [np.zeros((D, Dh), np.float32)]
    )
    shapes = {name: getattr(head, name).shape for name in ("X", "W_Q", "Q", "K", "V")}
    shapes |= {"weights": head.weights.shape, "context": head.context.shape}
    joined = np.broadcast_to(head.context, (H, T, Dh)).swapaxes(0, 1).reshape(T, H * Dh)
    return shapes | {"concat": joined.shape, "W_O": (H * Dh, D), "output": (T, D)}


five, eight = np.arange(40).reshape(5, 8) % 3, np.arange(32).reshape(8, 4) % 5 - 2
print("\nX, 5 x 8, times W_Q, 8 x 4, is Q, 5 x 4")
for matrix in (five, eight, five @ eight):
    print(attnlab.table(matrix, decimals=0))

short, long = walk(5, 8, 4, 2), walk(1000, gpt3.n_embd, gpt3.d_head, gpt3.n_head)
print("\nShapes: 'The next day is bright' with two heads; 1,000 tokens of GPT-3\n")
for name, shape in short.items():
    shapes = (" x ".join(f"{n:,}" for n in sizes) for sizes in (shape, long[name]))
    print("  {:8}{:>8}{:>18}".format(name, *shapes))

sentence = attnlab.GPT2.from_pretrained("english").trace("The next day is bright")
print("\nIts weights, α, in a head of a trained model, `english`: layer 0, head 0")
symbols = sentence.tokens.symbols
print(attnlab.table(sentence.head(0, 0).weights, rows=symbols, columns=symbols, decimals=2))

# %% [markdown]
# ## 9.7 Predict, change, see
#
# **Exercise 1 (basic).** How many parameters does GPT-2 small have with 2,048 positions instead of
# 1,024? Which line of 9.2 changes?
#
# <details><summary>Answer</summary>
#
# It has 125,226,240: the position embedding grows by 1,024 · 768 = 786,432, and nothing else grows.
# Attention has no parameters for positions: the same matrices serve a text of any length.
#
# </details>
#
# **Exercise 2 (medium).** Make GPT-2 small twice as wide: `n_embd=1536` in `gpt2`, all else the
# same. Does that double the parameters? What about half the heads, `n_head=6`?
#
# <details><summary>Answer</summary>
#
# The parameters more than triple, to 418,748,928. The layers' matrices grow fourfold, the
# embeddings twofold. The number of heads changes nothing: the count is 124,439,808 with 6 heads as
# with 12, since fewer heads are wider.
#
# </details>
#
# **Exercise 3 (medium).** Without biases and LayerNorms a layer has a multiple of D² parameters.
# Which multiple is it, and why? How many parameters is that for GPT-2 small?
#
# <details><summary>Answer</summary>
#
# A layer has 12 D²: one D² each for `W_Q`, `W_K`, `W_V` and `W_O`, and 4 D² for each matrix of the
# MLP. That is 7,077,888 of a layer's 7,087,872.
#
# </details>
#
# **Exercise 4 (hard).** In 9.4 make the second row of `W_O` a multiple of the first:
# `[3, 0, 3, 6]`. What is the rank of `W_V W_O`? And how narrow must Dh be here for two thin
# matrices to save something?
#
# <details><summary>Answer</summary>
#
# The rank is 1: all rows are multiples of the same row. With Dh = 1 the thin matrices together have
# 8 numbers and the full matrix has 16. With Dh = 2, half of D, both have 16. So Dh must be less
# than 2.
#
# </details>

# %% [markdown]
# ## Summary
#
# * A layer has about 12 D² parameters: 4 D² in attention, 8 D² in the MLP.
# * A head's value map is two thin matrices, so its rank is at most the head's width.
# * W_O adds up what the heads write; each head has separate rows of it.
