# %% [markdown]
# # 19. The heads of GPT-2
#
# > Afterwards you can say: “Most of GPT-2's attention rests on the first token, and the deeper the
# > layer, the more. A few heads have a job that I can see in two sentences, such as attending to
# > the token before. What the others do, two sentences can't tell me.”
#
# [Chapter 7](07_heads_that_learned.py) looked at a small model. GPT-2's parameters are 550 MB, but
# here is what they make of two sentences: 288 matrices of attention weights, from the examples of
# [Transformer Explainer](https://github.com/poloclub/transformer-explainer), a page that shows
# GPT-2 in a browser (MIT licence). The matrices are in attnlab and take 29 kB, so everything here
# works without a network. We measure them and compare them with what papers say about these heads.
# Then we look for such heads in the two models that come with attnlab.
#
# * **Objective**: Measure what the heads of a real model attend to, and say which claims about
#   them two sentences can support.
# * **Before this**: [chapter 7](07_heads_that_learned.py).
# * **Time**: about 35 minutes, exercises included.
# * **Misconception**: "A head attends to the first word because that word matters." It would
#   attend to any word in that place.

# %%
import numpy as np

import attnlab
from attnlab import figures, pictures
from attnlab.analysis.jobs import induction
from attnlab.checking import checked
from attnlab.checkpoints.hub import BUILT_IN
from attnlab.equations import AnyArray, Array
from attnlab.pocket.held_out import samples
from attnlab.support.console import prepare_script
from attnlab.support.sink import RESTING
from attnlab.support.tables import align
from attnlab.training import initial_parameters

prepare_script()  # print on any terminal, and into pipes

SHOWN = 1  # which of the two prompts the pictures show: 0 or 1
RESTS_FROM = RESTING  # 0.9: a token rests if it gives the first token at least this weight
ROUND = "On the deserted planet they discovered a cave."  # for 19.6
AGAIN = ROUND  # the sentence that follows it in 19.6
DRAWN, SEED = 200, 0  # how many sentences of the pocket model's grammar, and a model's seed

PIECES = [  # the tokens of the two prompts
    ["Art", "ificial", "ĠIntelligence", "Ġis", "Ġtransforming", "Ġthe"],
    ["On", "Ġthe", "Ġdeserted", "Ġplanet", "Ġthey", "Ġdiscovered", "Ġa"],
]
english, pocket = map(attnlab.GPT2.from_pretrained, ("english", "pocket"))

# %% [markdown]
# ## 19.1 All heads at once
#
# Each prompt has 12 layers of 12 heads, and each head has a matrix. A row of it says how one token
# distributes its attention over itself and the tokens before it.

# %%
patterns = figures.load("gpt2_patterns")
gpt2: list[Array] = [patterns["weights_0"], patterns["weights_1"]]
L, H = gpt2[0].shape[:2]

print("19.1 All heads at once\n")
for n, weights in enumerate(gpt2):
    print(f"{patterns[f'prompt_{n}']:<45}{weights.shape}")

# %% [markdown]
# To draw these matrices, put them into a model. The model has GPT-2's 12 layers of 12 heads and
# random parameters, and an edit replaces the weights of every layer. So the weights that the views
# show are GPT-2's. The next words mean nothing, since everything else is random: the views say
# "edited". (`attnlab.page(traces[1]).save("gpt2.html")` writes the page.)

# %%
vocabulary = dict(attnlab.Tokenizer.byte_level().settings["model"]["vocab"])
for piece in PIECES[0] + PIECES[1]:
    vocabulary.setdefault(piece, len(vocabulary))
config = attnlab.GPT2Config(
    vocab_size=len(vocabulary), n_positions=7, n_embd=H, n_layer=L, n_head=H
)
parameters = initial_parameters(config, np.random.default_rng(SEED))
tokenizer = attnlab.Tokenizer.from_merges(vocabulary, [])
frame = attnlab.GPT2.from_arrays(config, parameters, tokenizer)

# %%
traces = []
for pieces, weights in zip(PIECES, gpt2, strict=True):
    edits = {f"blocks.{layer}.attention.weights": weights[layer] for layer in range(L)}
    traces.append(frame.trace([vocabulary[piece] for piece in pieces]).edited(edits))
traces[SHOWN].plot()

# %% [markdown]
# Look before you read on. What do most of these 144 small maps have in common? Which maps differ?

# %% [markdown]
# ## 19.2 Where attention rests
#
# Most maps have a dark first column: every token gives most of its attention to the first token. A
# row of weights must sum to 1, even if a head finds nothing to fetch, and the first token is where
# GPT-2 puts the weight that it doesn't need: it is an **attention sink**. attnlab says that a token
# **rests** in a head if it gives the first token at least 0.9 of its attention
# (`attnlab/support/sink.py`). Here is the mean weight on the first token, layer by layer, and the
# share of tokens that rest. (The first token itself is left out: it has nowhere else to look.)


# %%
def first(weights: AnyArray) -> AnyArray:
    """The weight of every token but the first on the first, (..., T - 1)."""
    return weights[..., 1:, 0]


means = np.array([first(weights).mean(axis=(1, 2)) for weights in gpt2])
resting = np.array([(first(weights) >= RESTS_FROM).mean(axis=(1, 2)) for weights in gpt2])
evenly = [float((1 / np.arange(2, len(pieces) + 1)).mean()) for pieces in PIECES]

# %%
print("\n19.2 Weight on the first token, and the share of tokens that rest, by layer\n")
labels = ["weight in prompt 0", "in prompt 1", "rest in prompt 0", "in prompt 1"]
print(attnlab.table(np.vstack([means, resting]), rows=labels, decimals=2))
print("\nAll tokens alike: {:.2f} and {:.2f}".format(*evenly))
last = [int((weights[:, :, -1, 0] >= RESTS_FROM).sum()) for weights in gpt2]
print("Heads in which the last token rests: {} and {}".format(*last))
pictures.curves(
    {"in prompt 0": means[0], "in prompt 1": means[1], "all alike": np.full(L, np.mean(evenly))},
    x_name="layer",
    y_name="weight on the first token",
)

# %% [markdown]
# In layer 0 a third of the attention goes to the first token, hardly more than if all tokens got
# the same. This share rises to nine tenths in layer 10, with a dip in layer 8, and falls in layer
# 11, the last. That the two prompts' curves agree says more than either curve: the words are
# different, the habit is the same. Over all layers, the first token gets 0.73 of the attention in
# one prompt and 0.71 in the other. So a map of GPT-2's heads shows little else, unless it leaves
# the first token out.
#
# Three heads do the opposite. They give the first token next to nothing, in both sentences:

# %%
on_first = np.array([first(weights).mean(axis=-1) for weights in gpt2])  # (2, L, H)
never = [(int(layer), int(h)) for layer, h in np.argwhere(on_first.max(axis=0) < 0.01)]

print("\nHeads that give the first token less than 0.01, and the last token's weights\n")
last_rows = [gpt2[SHOWN][head][-1] for head in never]
names = ["{}.{}".format(*head) for head in never]
print(attnlab.table(last_rows, rows=names, columns=PIECES[SHOWN], decimals=2))

# %% [markdown]
# (0.1 stands for layer 0, head 1, as in papers.) Head 0.1 attends to the token itself, see 19.5.
# Head 1.10 gives some attention to every token but the first, from 0.11 to 0.24. Head 11.8 prefers
# the last few tokens. So the model can tell which token is the first, and a head can use that to
# attend to the first token or to avoid it.

# %% [markdown]
# ## 19.3 Why the first token?
#
# The first token's row in every map is 1, 0, 0, ...: it sees only itself. So its vector is the same
# whatever follows, in every layer: a fixed place, which all later tokens can see. The matrices show
# that much. They don't contain vectors. But the heads of `english`, the model in attnlab that reads
# simple English, rest too. Take the first seven tokens of sentences that this model wasn't trained
# on. How long is the first token's vector in the residual stream, and how long are its values times
# `W_O`, which are what a head adds where it attends to that token?

# %%
sentences = (BUILT_IN["english"].directory / "held_out.txt").read_text("utf-8").splitlines()
drawn = [text.text for text in samples()[:DRAWN]]


def beginnings(model: attnlab.GPT2, texts: list[str]) -> list[attnlab.Trace]:
    """Traces of the first seven tokens of those texts that have as many."""
    encoded = map(model.tokenizer.encode, texts)
    return [model.trace(ids[:7]) for ids in encoded if len(ids) >= 7]


read, played = beginnings(english, sentences), beginnings(pocket, drawn)


# %%
def lengths(trace: attnlab.Trace) -> Array:
    """The lengths of a layer's input and of its heads' values times W_O: (layers, 2, T)."""
    layers = []
    for block in trace.blocks:
        written = np.stack([head.V @ head.W_O for head in block.attention.heads])
        values = np.linalg.norm(written, axis=-1).mean(axis=0)
        layers.append([np.linalg.norm(block.input, axis=-1), values])
    return np.array(layers)


mean_lengths = np.mean([lengths(trace) for trace in read], axis=0)
of_first, of_others = mean_lengths[..., 0], mean_lengths[..., 1:].mean(axis=-1)

print(f"\n19.3 Mean lengths in english, over {len(read)} beginnings\n")
columns = ["first token", "other tokens", "value of the first", "other values"]
by_layer = np.stack([of_first, of_others], axis=-1).reshape(len(mean_lengths), 4)
layer_names = [f"layer {layer}" for layer in range(len(by_layer))]
print(attnlab.table(by_layer, rows=layer_names, columns=columns, decimals=2))

# %% [markdown]
# The first token's vector is the longest, and in the last layer more than twice as long as the
# others. LayerNorm takes the length away before a head sees the vector. What the length shows is
# that the blocks before wrote much into this vector, and so marked it. And the first token's values
# become shorter than the other tokens' values: in layer 3, attending to the first token adds about
# half of what attending to another token adds. **A head that rests adds little.** In layers 0 and
# 1, where none or one of the blocks has written, the first token's values are longer than the
# others. (Sun and others, 2024, "Massive Activations in Large Language Models", found very long
# vectors at such tokens in large models.)

# %% [markdown]
# ## 19.4 The token before
#
# Back to GPT-2. How much attention goes to the previous token? The second token is left out here,
# since its previous token is the first, and a head that rests would seem to look back.


# %%
def previous(weights: AnyArray) -> AnyArray:
    """The weight on the previous token, from the third token on, (..., T - 2)."""
    return np.diagonal(weights, -1, -2, -1)[..., 1:]


def itself(weights: AnyArray) -> AnyArray:
    """The weight of a token on itself, from the third token on, (..., T - 2)."""
    return np.diagonal(weights, 0, -2, -1)[..., 2:]


def ranking(measured: AnyArray, count: int = 6) -> str:
    """The heads with the most in both prompts (2, L, H): the smaller number decides."""
    lines = []
    for n in np.argsort(-measured.min(axis=0), axis=None)[:count]:
        layer, head = divmod(int(n), H)
        both = (f"{number:.2f}" for number in measured[:, layer, head])
        lines.append([f"{layer}.{head}", *both])
    return align(lines)


# %%
on_previous = np.array([previous(weights).mean(axis=-1) for weights in gpt2])
even_third = [float((1 / np.arange(3, len(pieces) + 1)).mean()) for pieces in PIECES]

print("\n19.4 Weight on the previous token, prompts 0 and 1\n")
print(ranking(on_previous))
print("All tokens alike: {:.2f} and {:.2f}".format(*even_third))
traces[SHOWN].head(4, 11)

# %% [markdown]
# One head does nothing else: in 4.11 every token gives the one before it more than 0.99, whatever
# the words. Head 2.2 comes next and gives the previous token half of its attention. Head 3.2 gives
# it 0.50 in one prompt and 0.41 in the other, head 3.7 0.47 and 0.35. In layers 5 to 10 no head
# gives it more than 0.36. A **previous-token head** as clear as this one is rare: one of 144.

# %% [markdown]
# ## 19.5 The same token
#
# No token occurs twice in these prompts. So a head that looks for the same token finds only one:
# the token itself.

# %%
on_itself = np.array([itself(weights).mean(axis=-1) for weights in gpt2])

print("\n19.5 Weight on the token itself, prompts 0 and 1\n")
print(ranking(on_itself))
traces[SHOWN].head(0, 5)

# %% [markdown]
# Head 0.1 gives 1.00 and 0.97 to the token itself. Does it look for the same token, or for the same
# position? Without a token that occurs twice, this can't be told. The next head, 0.5, lets us
# guess: in prompt 1 `Ġa` gives 0.37 to `Ġthe`, the other article, five positions before, and next
# to nothing to the words between. So that head compares words, not positions.

# %% [markdown]
# ## 19.6 What papers say of these heads
#
# Wang and others (2022, "Interpretability in the Wild") looked for the heads that complete "When
# Mary and John went to the store, John gave a drink to", and named each head by its job. Here are
# the jobs that can be compared, measured over the two prompts together, beside the mean of each
# head's layer.

# %%
JOBS = {
    "previous-token head": [(2, 2), (4, 11)],
    "duplicate-token head": [(0, 1), (0, 10), (3, 0)],
    "induction head": [(5, 5), (5, 8), (5, 9), (6, 9)],
    "name-mover head": [(9, 6), (9, 9), (10, 0)],
}

# %%
measured = np.array([on_first, on_previous, on_itself]).mean(axis=1)  # (3, L, H)
named = [(job, head) for job, heads in JOBS.items() for head in heads]
numbers = [[*measured[:, *head], measured[0, head[0]].mean()] for _, head in named]

print("\n19.6 Heads with a job, in two prompts\n")
print(
    attnlab.table(
        numbers,
        rows=["{} {}.{}".format(job, *head) for job, head in named],
        columns=["on the first", "on the previous", "on itself", "its layer on the first"],
        decimals=2,
    )
)

# %% [markdown]
# * **Previous token**: the claim holds for 4.11. Head 2.2 gives the previous token about half, the
#   second most of all heads.
# * **Duplicate token**, an earlier copy of the token: there is none here, so the claim can't be
#   tested. 0.1 attends to the token itself, 3.0 rests, and 0.10 does some of both.
# * **Induction**: nothing repeats, so there is nothing to find, and all four heads give the first
#   token more than their layers do. That fits, and proves little: in these layers most heads rest.
# * **Name mover**: there are no names. These heads rest too.
#
# Does a head that rests wake up when there is something to find? GPT-2's matrices can't be asked
# again, but `english` can. Its model card says that 3.1 is its induction head. Here is a sentence,
# and the same sentence again.

# %%
again = english.trace(f"{ROUND} {AGAIN}")
once = len(english.tokenizer.encode(ROUND))
awake = again.head(3, 1).weights
targets = induction(again.tokens)  # (T, T), True where an induction head should look
found = (awake * targets).sum() / max(targets.any(axis=-1).sum(), 1)

print("\nHead 3.1 of english\n")
print(f"first time:  on the first token {awake[1:once, 0].mean():.2f}")
print(f"second time: on the first token {awake[once:, 0].mean():.2f}")
print(f"             on what came next  {found:.2f}")
again.head(3, 1).plot()

# %% [markdown]
# While the head reads the sentence above for the first time, most of its attention rests on the
# first token. The second time that token gets much less, and the token after the earlier copy gets
# the most. **A head that rests isn't idle by nature: it waits for what it looks for.** So from two
# prompts nobody can say what a resting head is for.
#
# These 288 matrices can't test other claims at all. One is that there are heads for punctuation,
# pronouns or parts of speech (Vig and Belinkov, 2019): the prompts have no punctuation, one
# pronoun, and one word of most kinds. Another is that deeper layers look further back (the same
# paper): here nothing is further than six tokens away. One more claim of that paper holds:
# attention rests on the first token, and more so in deeper layers.

# %% [markdown]
# ## 19.7 The two models in attnlab
#
# Here are the same measures of `english` and of the pocket model. `english` has a token for each
# word of prompt 1, so it can read the same sentence. The pocket model knows only its grammar, so it
# gets sentences of that grammar, cut to seven tokens too.


# %%
def all_weights(trace: attnlab.Trace) -> Array:
    return np.stack([block.attention.weights for block in trace.blocks])


def profile(texts: list[Array]) -> list[str]:
    """Where attention goes, on average over texts; of two measures the best head."""
    by_layer = np.mean([first(weights).mean(axis=(1, 2)) for weights in texts], axis=0)
    rest = np.mean([(first(weights) >= RESTS_FROM).mean() for weights in texts])
    lines = [*by_layer[[0, -1]], by_layer.max(), rest]
    found = [f"{number:.2f}" for number in lines]
    for measure in (first, previous, itself):
        heads = np.mean([measure(weights).mean(axis=-1) for weights in texts], axis=0)
        layer, head = divmod(int(heads.argmax()), heads.shape[1])
        found.append(f"{heads.max():.2f} ({layer}.{head})")
    return found


# %%
profiles = {
    "GPT-2": profile(gpt2),
    "english, prompt 1": profile([all_weights(english.trace(patterns["prompt_1"]))]),
    "english": profile([all_weights(trace) for trace in read]),
    "pocket": profile([all_weights(trace) for trace in played]),
}

# %%
asked = ["first token, layer 0", "first token, last layer", "first token, highest layer"]
asked += ["tokens that rest", "first token, best head", "previous token, best head"]
asked += ["itself, best head"]
print("\n19.7 Three models\n")
columns_of = [["", *asked], *([name, *found] for name, found in profiles.items())]
print(align([list(line) for line in zip(*columns_of, strict=True)], left=(0,)))
print(f"\nAll tokens alike: {evenly[1]:.2f} for the first, {even_third[1]:.2f} for the others")

# %% [markdown]
# * **A previous-token head**: all three models have one. Induction needs such a head ([chapter
#   12](12_watching_a_head_form.py)), and such a head needs to know no words.
# * **Resting**: `english` rests a little, in the last of its four layers more than in the first.
#   GPT-2 begins with 0.34 on the first token and takes ten layers to reach 0.91. In the pocket
#   model it is the other way round: its last layer has 0.26 on the first token, less than if all
#   tokens were alike. In the pocket model's sentences each of its eight heads has something to
#   find. The head that attends to the first token most, 0.2, looks for where the current part of
#   the text starts ([chapter 16](16_one_head_over_ten_thousand.py), exercise 1).
# * **The token itself**: no head of `english` does what head 0.1 does in GPT-2.
#
# Why do the models differ? No special token marks the start for any of the three. The texts that
# the pocket model was trained on began anywhere. Those of `english` began where a sentence begins,
# with a token that has no space before it. GPT-2 is deeper and wider than both, and read far more.
# Any of these differences may matter, and three models can't tell which.

# %% [markdown]
# ## 19.8 Predict, change, see
#
# Predict what will happen, then change the chapter and run it again.
#
# **Exercise 1 (basic).** `attnlab.jobs(traces[1])` counts all tokens but the first. In head 5.1 all
# of them rest. What will the column `previous` say for this head?
#
# <details><summary>Answer</summary>
#
# 0.17. Each token rests, so it attends to the first token. For the second token, the first token is
# also the previous one. The second token is one of six tokens that are counted, so the mean is one
# sixth. A head with equal weights on all visible tokens would have 0.27. This is why 19.4 begins
# with the third token.
#
# </details>
#
# **Exercise 2 (medium).** `RESTS_FROM = 0.5`: a token rests if at least half of its attention is on
# the first. What share of tokens will rest in layers 0 and 10 of prompt 1?
#
# <details><summary>Answer</summary>
#
# In layer 0 it is 0.26 instead of 0.07, and in layer 10 it is 0.99 instead of 0.75. Where the line
# is drawn matters a lot, so whoever says "rests" has to say how much attention that takes.
#
# </details>
#
# **Exercise 3 (medium).** Explore: set `AGAIN` to another sentence, such as "They saw a ship in the
# sky.". How much attention will the tokens of this second sentence give to the first token in head
# 3.1, and where will they look instead? See the map.
#
# <details><summary>Answer</summary>
#
# They give the first token less than the first sentence does, and more than when the sentence is
# repeated. A few tokens repeat here too, and the head looks at what came after them: the second
# `Ġa` looks at `Ġcave`, the full stop at `ĠThey`.
#
# </details>

# %% [markdown]
# **Task 1 (medium).** What does a head do apart from resting? Write a function that says so, from
# the `weights` of a head and its values. Take each token's weight on the first token, and give it
# to the other tokens, in proportion to the weights that they already have. Return the new `weights`
# and `context`. The first token can only keep its own weight.


# %%
def my_attention_without_rest(weights: Array, V: Array) -> dict[str, Array]:
    raise NotImplementedError


# %%
print("\n19.8 Your own attention without rest")
resting_head = again.head(3, 3)
mask = resting_head.mask.copy()
mask[1:, 0] = False  # before softmax, which is the same
restless = attnlab.attention(resting_head.Q, resting_head.K, resting_head.V, mask=mask)
print(checked(restless, my_attention_without_rest, resting_head.weights, resting_head.V))

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Copy the weights, so that the head's own weights stay as they are. Then set column 0 of the copy
# to 0, except in row 0.
#
# <details><summary>Hint 2</summary>
#
# The weights that are left in each row sum to less than 1. Divide each row by its sum.
#
# <details><summary>Hint 3</summary>
#
# `kept.sum(axis=1, keepdims=True)` is the column of sums; the context is the new weights times `V`.
#
# <details><summary>Solution</summary>
#
# [`my_attention_without_rest`](book/solutions/chapter_19.py)
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
# * Most of GPT-2's attention rests on the first token: a third of it in layer 0, nine tenths in
#   layer 10.
# * The first token sees only itself, so nothing after it changes it; where a head of `english`
#   rests, it adds little.
# * One head of 144, 4.11, attends to the previous token and nothing else, in both sentences.
# * A head that rests waits for something: an induction head rests until a text repeats.
# * Two sentences show habits. About what is rare in them, they show nothing, not even that it is
#   absent from the model.
