# %% [markdown]
# # 9. Counting parameters
#
# Where are GPT-2's 124 million numbers, and how many of GPT-3's 175 billion are attention? All of
# it follows from five sizes, with multiplication. No model is needed. Change a size, and count
# again.

# %%
import attnlab
from attnlab import figures
from attnlab.console import prepare_script
from attnlab.parameters import parameter_count
from attnlab.tables import align

prepare_script()  # for any terminal, and for pipes

gpt2 = attnlab.GPT2Config(vocab_size=50257, n_positions=1024, n_embd=768, n_layer=12, n_head=12)
print("Five sizes, here those of GPT-2 small, and what follows for a head")
print(f"  vocab_size    {gpt2.vocab_size:>6,}  tokens in the vocabulary")
print(f"  n_positions   {gpt2.n_positions:>6,}  tokens in a text, at most")
print(f"  n_embd        {gpt2.n_embd:>6,}  D, numbers for a token")
print(f"  n_layer       {gpt2.n_layer:>6,}  L, layers")
print(f"  n_head        {gpt2.n_head:>6,}  H, heads in a layer")
print(f"  D / H         {gpt2.d_head:>6,}  Dh, numbers in a query, a key or a value")

# %% [markdown]
# ## 9.1 Queries, keys and values
#
# A head of GPT-2 small has three matrices, `W_Q`, `W_K` and `W_V`, of 768 rows and 64 columns.
# There are 12 heads in each of 12 layers, 144 in all. This count leaves the biases out.

# %%
heads = gpt2.n_head * gpt2.n_layer
qkv = gpt2.n_embd * gpt2.d_head * 3 * heads
print("\n9.1 Queries, keys and values")
print(f"{gpt2.n_embd} · {gpt2.d_head} · 3 · {heads} = {qkv:,}")
recorded = figures.load("walkthrough")["parameter_count"]["value"]
sizes = {"n_embd, n_head, n_layer": ((gpt2.n_embd, gpt2.n_head, gpt2.n_layer), (768, 12, 12))}
print(figures.verdict(sizes, 0, count=([qkv], [recorded])))

# %% [markdown]
# ## 9.2 The whole of GPT-2 small
#
# Per layer: attention, with an output matrix `W_O` that mixes the heads; an MLP of two matrices;
# two LayerNorms with a gain and a bias each. Outside of the layers: a row for each token of the
# vocabulary, a row for each position, and one last LayerNorm. The output uses the token embedding
# again, so it adds nothing.

# %%
D, F, L = gpt2.n_embd, gpt2.d_mlp, gpt2.n_layer
layer = {
    "W_Q, W_K, W_V": ("3 · D · D", 3 * D * D),
    "b_Q, b_K, b_V": ("3 · D", 3 * D),
    "W_O, b_O": ("D · D + D", D * D + D),
    "MLP: W_1, b_1": ("D · F + F", D * F + F),
    "MLP: W_2, b_2": ("F · D + D", F * D + D),
    "two LayerNorms": ("2 · 2 · D", 4 * D),
}
one_layer = sum(count for _, count in layer.values())
whole = {
    f"{L} layers": ("L · layer", L * one_layer),
    "token embedding W_E": ("vocab · D", gpt2.vocab_size * D),
    "position embedding W_P": ("n_positions · D", gpt2.n_positions * D),
    "last LayerNorm": ("2 · D", 2 * D),
}


def lines(counts: dict[str, tuple[str, int]], result: str) -> str:
    """The counts in columns, and their sum."""
    rows = [(name, formula, f"{count:,}") for name, (formula, count) in counts.items()]
    everything = sum(count for _, count in counts.values())
    return align([*rows, (result, "", f"{everything:,}")], left=(0, 1))


print(f"\n9.2 D = {D}, F = 4 D = {F}, L = {L}, vocab = {gpt2.vocab_size:,}")
print("\nOne layer")
print(lines(layer, "sum"))
print("\nAll of it")
print(lines(whole, "sum"))
print(f"\nattnlab.parameters.parameter_count says {parameter_count(gpt2):,}")

# %% [markdown]
# ## 9.3 The five published sizes
#
# The same five sizes for each. Layers grow with D², the embedding with D alone: the larger the
# model, the smaller the share of its vocabulary.


# %%
def config(n_layer: int, n_head: int, n_embd: int, n_positions: int = 1024) -> attnlab.GPT2Config:
    """A GPT-2 of these sizes, with GPT-2's vocabulary."""
    return attnlab.GPT2Config(
        vocab_size=50257,
        n_positions=n_positions,
        n_embd=n_embd,
        n_layer=n_layer,
        n_head=n_head,
    )


def shares(c: attnlab.GPT2Config) -> dict[str, int]:
    """How many parameters are where."""
    D, F, L = c.n_embd, c.d_mlp, c.n_layer
    return {
        "embeddings": (c.vocab_size + c.n_positions) * D,
        "attention": L * (4 * D * D + 4 * D),
        "MLP": L * (2 * D * F + F + D),
        "LayerNorm": (2 * L + 1) * 2 * D,
    }


published = {
    "distilgpt2": config(6, 12, 768),
    "gpt2": config(12, 12, 768),
    "gpt2-medium": config(24, 16, 1024),
    "gpt2-large": config(36, 20, 1280),
    "gpt2-xl": config(48, 25, 1600),
}
table = [["", "L", "H", "D", "parameters", "embeddings", "attention", "MLP", "LayerNorm"]]
for name, c in published.items():
    where = shares(c)
    count = sum(where.values())
    percent = [f"{100 * part / count:.2f} %" for part in where.values()]
    table.append([name, str(c.n_layer), str(c.n_head), str(c.n_embd), f"{count:,}", *percent])
print("\n9.3 The five published sizes, and where their parameters are\n")
print(align(table))

# %% [markdown]
# ## 9.4 GPT-3
#
# The same shape, larger: 96 layers of 96 heads, D = 12,288. Here each head's value matrix is
# counted as the two thin ones that it is made of, down to 128 numbers (`W_V`) and up again (this
# head's rows of `W_O`); chapter 17 is about that. Biases are left out of the table. "All of it" is
# what a GPT-2 of these sizes has, with biases: for GPT-3 the 175 billion of its name, to the
# nearest billion.

# %%
gpt3 = config(n_layer=96, n_head=96, n_embd=12288, n_positions=2048)

all_heads = gpt3.n_head * gpt3.n_layer
one_matrix = gpt3.n_embd * gpt3.d_head
per_head = f"{gpt3.n_embd:,} · {gpt3.d_head} · {gpt3.n_head} · {gpt3.n_layer}"
counts = {"embedding": (f"{gpt3.vocab_size:,} · {gpt3.n_embd:,}", gpt3.vocab_size * gpt3.n_embd)}
for row in ("key", "query", "value_down", "value_up (the output matrix)"):
    counts[row] = (per_head, one_matrix * all_heads)

print("\n9.4 GPT-3")
print(
    align([(row, product, f"{count:,}") for row, (product, count) in counts.items()], left=(0, 1))
)
in_attention = 4 * one_matrix * all_heads
print(f"\nattention, one head:   4 · {one_matrix:,} = {4 * one_matrix:,}")
print(f"attention, all heads:  {4 * one_matrix:,} · {all_heads:,} = {in_attention:,}")
everything = parameter_count(gpt3)
print(f"all of it:             {everything:,}")
print(f"attention's share:     {100 * in_attention / everything:.0f} %")
print(f"the MLPs' share:       {100 * shares(gpt3)['MLP'] / everything:.0f} %")
print()
notes = figures.load("gpt3_parameters")
sizes = {
    "n_embd, n_head, n_layer": (
        (gpt3.n_embd, gpt3.n_head, gpt3.n_layer),
        (notes["d_embed"], notes["n_heads"], notes["n_layers"]),
    )
}
print(
    figures.verdict(
        sizes,
        0,
        table=([count for _, count in counts.values()], list(notes["rows"].values())),
        one_head=([4 * one_matrix], [notes["attention_per_head"]]),
        all_heads=([in_attention], [notes["attention_total"]]),
    )
)

# %% [markdown]
# ## 9.5 50,257 and not 50,527
#
# The vocabulary is also found in print with two digits exchanged. The product gives it away.

# %%
print("\n9.5 50,257 and not 50,527")
for vocabulary in (50_257, 50_527):
    product = vocabulary * gpt3.n_embd
    verdict = "is" if product == notes["rows"]["embedding"] else "is not"
    print(
        f"{vocabulary:,} · {gpt3.n_embd:,} = {product:,}, which {verdict} GPT-3's published count"
    )
print(f"50,257 = 256 bytes + 50,000 merges + 1 end of text = {256 + 50_000 + 1:,}")

# %% [markdown]
# ## With a pencil
#
# * Without biases and LayerNorms a layer has 12 D² parameters. Why 12?
# * How many parameters would GPT-2 small have with 2,048 positions?
