# %% [markdown]
# # 7. Heads that learned
#
# > Afterwards you can say: “A head can find the noun behind ‘it’ by which noun it is, not by where
# > it is. That a head attends to a word doesn't show that the model needs this. To know, I ablate
# > the head.”
#
# So far the matrices were written down or drawn at random; the head of chapter 6 was trained, but
# we asked only how it computes. Here we ask what trained heads do: they find what "it" refers to,
# which adjective decides what happens, and what followed this word the last time.
#
# The model is the pocket GPT-2 that comes with attnlab: 2 layers of 4 heads, trained on sentences
# of a small grammar. In these sentences the next word depends on earlier words, so the heads had to
# learn to attend to earlier words. Its heads are clearer than those of models trained on human
# text, and what you see here is true of the pocket model, not of GPT-2. Section 7.6 is about GPT-2,
# if it is in the Hugging Face cache, and section 7.8 about a model that was trained on human text.
#
# Change any text. The pocket model knows the words of its grammar; others are split into pieces,
# about which it learned nothing.
#
# * **Objective**: Find out what a trained head does: read its pattern, change the text, ablate
#   the head.
# * **Before this**: [chapter 3](03_one_head_by_hand.py); [chapter 4](04_your_journey.py) for the
#   mask.
# * **Time**: about 55 minutes, exercises included.
# * **Misconception**: "A large weight means that the head matters." Only an ablation shows
#   whether its output is used.

# %%
import textwrap
from collections.abc import Mapping, Sequence

import numpy as np

import attnlab
from attnlab import pictures
from attnlab.equations import Array, Mask
from attnlab.support.console import prepare_script
from attnlab.support.tables import align

prepare_script()  # print on any terminal, and into pipes

TEXT = "The dog chased the ball, but it"

model = attnlab.GPT2.default("pocket")  # GPT-2 if you have it, otherwise pocket; for 7.6
pocket = attnlab.GPT2.from_pretrained("pocket")  # for all other sections but 7.8

# %% [markdown]
# ## 7.1 What does "it" refer to?
#
# In the grammar only dogs bark and only balls roll. So after "it" two words make sense, and to
# predict them the model has to know which animal and which thing were mentioned. It does know. (A
# token's **logit** is the score from which softmax makes its probability.)

# %%
trace = pocket.trace(TEXT)
words = trace.next_tokens(2)  # the two most probable

print(f"\n7.1 What follows: {TEXT}\n")
print(trace.next_tokens(5))

# %% [markdown]
# The model must have used the earlier words. Which head did? Here is what the last token attends to
# in all eight heads: there is a row for each head, with its weights on the tokens. Which heads
# found the animal, and which the thing? Look before you read on.

# %%
symbols = trace.tokens.symbols
L, H = pocket.config.n_layer, pocket.config.n_head
HEADS = [(layer, head) for layer in range(L) for head in range(H)]
names = [f"layer {layer} head {head}" for layer, head in HEADS]
last = np.stack([trace.head(layer, head).weights[-1] for layer, head in HEADS])

print(f"\nWhat {symbols[-1]} attends to\n")
print(attnlab.table(last, rows=names, columns=symbols, decimals=2))
pictures.heatmap(last, rows=names, columns=symbols, title=f"What {symbols[-1]} attends to")

# %% [markdown]
# With the text above, three rows of layer 1 are almost certain: head 2 gives its whole weight to
# `Ġdog`, heads 0 and 1 give theirs to `Ġball`. Let us follow head 2, which found the animal, and
# head 0, which found the thing. The thicker an arc, the larger the weight.

# %%
ANIMAL, THING = (1, 2), (1, 0)  # layer and head

trace.head(*ANIMAL)

# %%
trace.head(*THING)

# %% [markdown]
# ## 7.2 Swap the nouns
#
# A single text shows little. Perhaps head 2 attends to the second token, or to the subject? Swap
# the nouns, make the sentence passive, let the ball chase the dog.

# %%
TEXTS = [
    TEXT,
    "The cat chased the kite, but it",
    "The ball was chased by the dog, but it",
    "The ball chased the dog, but it",
    "The frog found the bell near the lake, and it",
]

print("\n7.2 What the two heads attend to, and what follows\n")
lines = [["", "animal", "thing", "next word", "or"]]
for text in TEXTS:
    run = pocket.trace(text)
    nouns = [run.tokens.symbols[run.head(*head).weights[-1].argmax()] for head in (ANIMAL, THING)]
    verbs = [f"{token.symbol} {token.probability:.2f}" for token in run.next_tokens(2)]
    lines.append([text, *nouns, *verbs])
print(align(lines, left=range(5)))

# %% [markdown]
# Wherever the nouns are, head 2 finds the animal and head 0 the thing, and the two next words
# follow from them. What matters is neither a noun's position nor whether it is the subject, but
# which noun it is.

# %% [markdown]
# ## 7.3 Ablate a head
#
# That a head attends to a token doesn't mean that the model uses it. So silence a head, and see
# what is lost: this is called an **ablation** of the head. `trace.edited` runs the text again with
# the [`context`](../attnlab/equations.py) of one head set to 0, so that it writes nothing, and
# everything that depends on it is recomputed. Here are the probabilities of the two words, head by
# head.


# %%
def ablate_heads(trace: attnlab.Trace, *heads: tuple[int, int]) -> attnlab.Trace:
    """The same text, with some heads ablated."""
    return trace.edited({f"blocks.{n}.attention.heads.{h}.context": 0 for n, h in heads})


def probabilities(trace: attnlab.Trace, words: Sequence[attnlab.Token]) -> list[float]:
    probability = attnlab.softmax(trace.next_logits)
    return [float(probability[word.id]) for word in words]


ablated = [probabilities(ablate_heads(trace, head), words) for head in HEADS]

print("\n7.3 Probability of the two words, with one head ablated\n")
print(
    attnlab.table(
        [probabilities(trace, words), *ablated],
        rows=["all heads", *(f"without {name}" for name in names)],
        columns=[word.symbol for word in words],
        decimals=2,
    )
)

# %% [markdown]
# With the text above, the model loses the dog without head 2 of layer 1: `Ġbarked` falls from 0.43
# to 0.00. Without head 0 it loses the ball. Head 1 attends to the ball too and helps, but it isn't
# enough alone. Ablating any of the other five shifts the odds, but neither word is lost. And
# without both heads 2 and 0?

# %%
print("\nWhat follows without both\n")
print(ablate_heads(trace, ANIMAL, THING).next_tokens(5))

# %% [markdown]
# Without both heads the model still knows that some animal makes a noise or that something happens
# to some thing, but not which animal or thing.

# %% [markdown]
# [Ablate a head yourself](book/pages/en/guide.md#explore
# "playground.html#layer=1&head=2&query=7"). Read the sentence
# about the head, and press *silence it*: "barked" falls to less than 1 %. Press *give it back*,
# click head 1.0, and silence that instead.

# %% [markdown]
# ## 7.4 A fluffy blue creature
#
# In this grammar moods decide: a sleepy creature yawns, a fluffy one purrs. Colours decide nothing.
# So at the noun the model has to attend to the right adjective and skip the other. (In this book
# "creature" attends to "fluffy": the token that asks attends, and it receives the other token's
# value. Some notes say the reverse, that fluffy attends to creature, and mean the same pair.)

# %%
CREATURE = "A fluffy blue creature"

creature = pocket.trace(CREATURE)

print("\n7.4 What follows the last token, and how probably\n")
for text in (CREATURE, "A blue fluffy creature", "A sleepy blue creature", "A blue creature"):
    word = pocket.trace(text).next_tokens(1)[0]
    print(f"  {text:<28}{word.symbol:<12}{word.probability:.2f}")

creature_rows = np.stack([creature.head(layer, head).weights[-1] for layer, head in HEADS])
ablated_probability = [
    probabilities(ablate_heads(creature, head), creature.next_tokens(1))[0] for head in HEADS
]
print(f"\nWhat {creature.tokens.symbols[-1]} attends to, and the next word without the head\n")
columns = [*creature.tokens.symbols, "without"]
print(
    attnlab.table(
        np.column_stack([creature_rows, ablated_probability]),
        rows=names,
        columns=columns,
        decimals=2,
    )
)
creature.head(1, 3)

# %% [markdown]
# What does a head do with what it found? It adds a value, times its weight and `W_O`, to the noun's
# vector. Here the vectors are drawn in the plane of two words that may follow. The horizontal axis
# is the dot product with the column of `W_U` for `Ġpurred`, and the vertical axis is the dot
# product with the column for `Ġyawned`. So an axis says how much a vector speaks for its word.
# Before the attention of layer 1 the two creatures are nearly alike; then head 3 adds the value of
# `Ġfluffy` or of `Ġsleepy`. The value is the second arrow: it moves the noun's vector towards one
# word or the other.

# %%
SLEEPY = "A sleepy blue creature"

verb_ids = [pocket.tokenizer.encode(word)[0] for word in (" purred", " yawned")]
arrows: dict[str, dict[str, Array]] = {}
for text in (CREATURE, SLEEPY):
    run = pocket.trace(text)
    mood_head, tokens = run.head(1, 3), run.tokens.symbols
    key = int(mood_head.weights[-1].argmax())
    value = mood_head.weights[-1, key] * (mood_head.V[key] @ mood_head.W_O)
    vectors = {tokens[-1]: run.blocks[1].input[-1], f"value of {tokens[key]}": value}
    arrows[text] = {name: vector @ run.W_U[:, verb_ids] for name, vector in vectors.items()}
print("\nDot products with Ġpurred and Ġyawned, before and after the value is added\n")
sums = [np.cumsum([*moved.values()], axis=0).ravel() for moved in arrows.values()]
columns = ["Ġpurred", "Ġyawned", "Ġpurred after", "Ġyawned after"]
print(attnlab.table(sums, rows=[*arrows], columns=columns, decimals=2))
pictures.arrows(arrows[CREATURE], title=CREATURE)

# %%
pictures.arrows(arrows[SLEEPY], title=SLEEPY)

# %% [markdown]
# With the texts above, heads 0 and 3 of layer 1 attend to `Ġfluffy` and hardly anything else. So,
# mostly, does head 2, which found the dog. **A head may have several jobs.** And several heads may
# share a job: ablate any one of the three, and `Ġpurred` is still the first choice.
#
# Now look at head 2 of layer 0. All its weight is on the first token, as if it had nothing to do,
# yet without this head `Ġpurred` is lost. **Weights do not show what a head is needed for.** The
# head passes on the first token's value, and later layers rely on it. [Chapter 14](14_what_if.py)
# looks closer.

# %% [markdown]
# ## 7.5 The previous token, and what followed it the last time
#
# Here are words without any grammar, said twice. To predict the next word, the model has to find
# where the current word occurred before, and what came after it. A head that does so is called an
# **induction head** (Olsson et al., 2022). `attnlab.jobs(trace)` measures how much weight each head
# puts where a job requires it: on the previous token, on the first, on earlier copies of the same
# token, and on the token after the last copy. The row `evenly` is for comparison: the weight that
# a head would put there if it attended to all tokens equally.

# %%
RECITAL = "Say: lamp two happy king blue. Again: lamp two happy"

recital = pocket.trace(RECITAL)
jobs = attnlab.jobs(recital)

print("\n7.5 Jobs of heads: mean weight where the job requires it\n")
print(jobs.table())
print(f"\nWhat follows: {RECITAL}")
print(recital.next_tokens(2))
jobs.plot()

# %% [markdown]
# With the text above, head 1 of layer 0 attends to the previous token: it is a **previous-token
# head**. Heads 2 and 3 of layer 1 do induction. Here is head 2. Each word of the second round
# attends to the word that came after it in the first round.

# %%
PREVIOUS, INDUCTION = (0, 1), (1, 2)

recital.head(*INDUCTION)

# %% [markdown]
# How can head 2 know which token came before another? Alone it can't: it sees a token's vector, not
# the token's neighbours. But head 1 of layer 0 has attended to the previous token, and has written
# into each vector which token that was. So head 2 of layer 1 searches for a token whose vector says
# "the token before me was `Ġhappy`". **It takes two heads, one after the other.** If that is so,
# induction must break when head 1 of layer 0 is ablated.

# %%
head = recital.head(*INDUCTION)
position, next_word = int(head.weights[-1].argmax()), recital.next_tokens(1)

print(f"\nWeight of the last token on {recital.tokens.symbols[position]}, and the next word\n")
variants = {"all heads": recital, "without the head of layer 0": ablate_heads(recital, PREVIOUS)}
measured = [
    [variant.head(*INDUCTION).weights[-1, position], *probabilities(variant, next_word)]
    for variant in variants.values()
]
columns = ["weight", next_word[0].symbol]
print(attnlab.table(measured, rows=[*variants], columns=columns, decimals=2))

# %% [markdown]
# Clark and others (2019, "What Does BERT Look At?") sorted BERT's heads by what they attend to.
# Some attend to the next token or to the previous one, some to separators, some from a noun to its
# determiner, and some from "it" to what it refers to. Here is such a gallery of the pocket model's
# heads, measured on 150 sentences of its grammar. (No head attends to the next token, or from a
# verb to the object after it: BERT sees both sides, GPT-2 is masked. For an adjective the query is
# its noun; for an animal or thing the query is the "it" after them.)

# %%
from attnlab.analysis.jobs import JOBS, measure_jobs
from attnlab.pocket.held_out import Sample, samples

RELATIONS: tuple[str, ...] = ("previous", "first", "induction", "adjective", "animal", "thing")
RELATIONS += ("separator", "determiner")


def pair(text: Sample, *spans: Sequence[int]) -> list[int]:
    """The tokens of two words, such as a noun and its adjective."""
    return [len(pocket.tokenizer.encode(text.text[:end])) - 1 for _, end in spans]


# %%
def relations(text: Sample) -> tuple[attnlab.Trace, dict[str, Mask]]:
    """The trace of a text, and for each relation which keys belong to which query."""
    trace = pocket.trace(text.text)
    symbols, earlier = trace.tokens.symbols, np.tri(len(trace.tokens), k=-1, dtype=bool)
    key_symbols = {"separator": [",", ".", ":"], "determiner": ["The", "A", "Ġthe", "Ġa"]}
    masks = {name: earlier & np.isin(symbols, keys) for name, keys in key_symbols.items()}
    for name, keys_of in JOBS.items():
        if name in RELATIONS and (name != "induction" or text.kind == "recital"):
            masks[name] = np.asarray(keys_of(trace.tokens))
    for name, *spans in text.links:
        query, key = pair(text, *spans)
        masks.setdefault(name, np.zeros_like(earlier))[query, key] = True
    return trace, masks


# %%
KINDS = ("recital", "creature", "pronoun")
sampled = [text for kind in KINDS for text in samples(kind)[:50]]
gallery = measure_jobs(map(relations, sampled), RELATIONS)
print("\nA gallery of heads: mean weight on the key of the relation\n")
print(gallery.table())
gallery.plot()

# %% [markdown]
# Most relations have a dedicated head, and head 1.2 serves three relations: induction, a noun's
# mood, and the animal. No head attends to separators: 0.14 is hardly more than the 0.10 of equal
# attention. (Determiners are everywhere; head 0.2, with 0.56, attends to the start of a text, which
# often is a determiner.) Here are all eight patterns on one sentence.

# %%
trace.plot()

# %% [markdown]
# BertViz draws the heads of BERT and GPT-2 one by one, and articles name what they see there: a
# head for passive sentences, say, or for parts of speech. Does the pocket model have a head for the
# passive? Take the noun after the verb, and measure its weight on that verb, in both voices.

# %%
VOICES = {
    "active": ("The dog chased the ball, but it", "Ġball"),
    "passive": ("The ball was chased by the dog, but it", "Ġdog"),
}

verb_weights = {}
for voice, (text, noun) in VOICES.items():
    run = pocket.trace(text)
    query, key = run.tokens.find(noun), run.tokens.find("chased")
    verb_weights[voice] = [float(run.head(*head).weights[query, key]) for head in HEADS]
print("\nThe weight of the noun after the verb on the verb\n")
print(
    attnlab.table(
        np.transpose([*verb_weights.values()]), rows=names, columns=[*verb_weights], decimals=2
    )
)

# %% [markdown]
# In the passive sentence, head 3 of layer 1 attends from "dog" to "chased" with 0.89. Whoever looks
# at that sentence alone calls it a head for the passive. In the active sentence the head does the
# same, from "ball": it attends from a noun to its verb, in either voice. So compare with a text in
# which the job is absent before you name a head. Nobody gave the heads their jobs. They started
# from different random weights, and training made each of them useful in a different way ([chapter
# 12](12_watching_a_head_form.py)).

# %% [markdown]
# ## 7.6 All heads of a text at once
#
# Now we use the model that the first line of output names: GPT-2 small with its 144 heads if you
# have it, otherwise the pocket model with its 8 heads. The sentence comes from an article. In
# GPT-2's vocabulary the sentence is 16 tokens with the curly apostrophe and 14 tokens with a
# straight one. (It has also been counted as 21 tokens, which is wrong for both.)
#
# The tables of heads say something about language only if the model was trained. With random
# parameters they look similar. So check first which model it is.

# %%
PROMPT = "Martin’s one of my sons, and the other is Chanler."

whole = model.trace(PROMPT)
T, layers, heads = len(whole.tokens), model.config.n_layer, model.config.n_head
weights = np.stack([block.attention.weights for block in whole.blocks])  # (layers, heads, T, T)

print("\n7.6 All heads of a text at once")
print(f"\n{T} tokens: {' '.join(whole.tokens.symbols)}")
straight = model.tokenizer.tokens(PROMPT.replace("’", "'"))
print(f"{len(straight)} tokens: {' '.join(straight.symbols)}")
whole.plot()

# %% [markdown]
# Beside the heads stands the sentence's similarity with itself, softmax(X Xᵀ) of layer 0 ([chapter
# 6](06_walkthrough.py) has such a table). An article prints a picture like this with 21 rows and
# columns; with GPT-2 it has 16. The pocket model's rows are longer than GPT-2's, so hardly any
# weight is left beside the diagonal.

# %%
X_whole = whole.blocks[0].attention.X
similarity = attnlab.softmax(X_whole @ X_whole.T)
shown = whole.tokens.symbols
pictures.heatmap(similarity, rows=shown, columns=shown, title="softmax(X Xᵀ), layer 0")

# %% [markdown]
# The last token, here the full stop, can attend to all the others. Which token gets its largest
# weight? Layers go down, heads across. The first token is shown as a dash, so that the others stand
# out.

# %%
words_shown = [symbol.removeprefix("Ġ") for symbol in whole.tokens.symbols]
grid = [["", *map(str, range(heads))]]
for layer, top_keys in enumerate(weights[:, :, -1].argmax(axis=-1)):
    grid.append([str(layer), *("-" if j == 0 else words_shown[j] for j in top_keys)])

print(f"\nThe token {words_shown[-1]!r} attends to most; - is the first token, {words_shown[0]}\n")
print(align(grid))

# %% [markdown]
# A row of weights sums to 1 even where a head has nothing to contribute, so the weight has to go
# somewhere. In many heads of GPT-2 it goes to the first token, a dash in this table (Vig and
# Belinkov, 2019); such a token is called an **attention sink**. With this text none of the pocket
# model's eight heads shows a dash. That a head attends to the first token need not mean anything
# about the word at that position. ([Chapter 19](19_heads_of_gpt2.py) has GPT-2's own numbers.)
#
# A single token is a single sample; a habit shows across all tokens. So here is the mean over all
# tokens but the first: how much weight goes to the first token, to the previous one, to the token
# itself? A token that can attend to n tokens would give each of them 1/n if it shared evenly, and
# early tokens can attend to few. So equal weights average more than 1/T.

# %%
i = np.arange(min(1, T - 1), T)  # all tokens but the first, or the only one
mean_weights = {
    "the first token": weights[:, :, i, 0].mean(axis=-1),
    "the one before": weights[:, :, i, np.maximum(i - 1, 0)].mean(axis=-1),
    "itself": weights[:, :, i, i].mean(axis=-1),
}
equal = (1 / (i + 1)).mean()
print(f"\nMean weight of all tokens but the first (equal weights: {equal:.2f}; 1/T: {1 / T:.2f})\n")
lines = []
for name, mean in mean_weights.items():
    order = [divmod(int(n), heads) for n in np.argsort(-mean, axis=None)[:2]]
    best = ",  ".join(f"layer {n} head {h}: {mean[n, h]:.2f}" for n, h in order)
    lines.append([name, f"{mean.mean():.2f}", best])
print(align([["", "all heads", "largest"], *lines], left=(0, 2)))

# %% [markdown]
# ## 7.7 Context changes a word's vector
#
# The embedding has one row for "it", whatever "it" refers to. Heads add to that vector what they
# found. To see this, take the last token of two texts, and compute the cosine between the two
# vectors at each point of the **residual stream** ([`residual`](../attnlab/equations.py)). The
# cosine is 1 where the vectors point the same way. The residual stream is a token's vector on its
# way through the model. Each layer adds to it twice: what its attention found (`mid`), and what its
# feed-forward network, the MLP, computes from it (`output`).

# %%
OTHERS = [
    "The dog watched the ball, but it",
    "The frog chased the ball, but it",
    "The dog chased the kite, but it",
    "The cat chased the kite, but it",
]
POINTS = ["embedding", *(f"blocks.{n}.{part}" for n in range(L) for part in ("mid", "output"))]


def cosine(x: Array, y: Array) -> float:
    return float(x @ y / (np.linalg.norm(x) * np.linalg.norm(y)))


cosines = {}
for other in OTHERS:
    sentence = pocket.trace(other)
    cosines[other] = [
        cosine(attnlab.at(trace, point)[-1], attnlab.at(sentence, point)[-1]) for point in POINTS
    ]

print(f"\n7.7 Cosine of the last token's vectors, with: {TEXT}\n")
points = [part.removeprefix("blocks.") for part in POINTS]
print(attnlab.table(np.array([*cosines.values()]), rows=[*cosines], columns=points, decimals=2))
pictures.heatmap([*cosines.values()], rows=[*cosines], columns=points, title="cosine")

# %% [markdown]
# With the texts above, the vectors are identical at first, as word and position are the same, and
# still very similar after layer 0. Then the attention of layer 1 writes the animal and the thing
# into them (`blocks.1.mid`), and they diverge: a little if the animal is different, more if the
# thing is, and if both are, the two "it" have nothing left in common. A different verb changes
# nothing: nothing later depends on it.
#
# This is what it means that attention makes vectors depend on context.

# %% [markdown]
# Here is the same with numbers chosen by hand. "Tower" stands for anything tall; beside "Eiffel"
# the tower is of iron and in Paris, beside "miniature" it is small and of plastic. The first column
# is iron and Paris, the second is small and plastic. Attention adds the value of the other word,
# and one vector becomes two. (In the same way 苹果 is a fruit beside 好吃, tasty, and a company
# beside 股价, share price: the second table has fruit and company as its columns. A model may be a
# language model or a fashion model.)

# %%
WORD, NEIGHBOURS = [1.0, 1.0], {"Eiffel": [3.0, 0.0], "miniature": [0.0, 3.0]}


def in_contexts(word: str, neighbours: Mapping[str, list[float]]) -> dict[str, Array]:
    """A word's vector alone, and with the value of each neighbour added by attention."""
    results = {word: np.array(WORD)}
    for neighbour, vector in neighbours.items():
        X = np.array([vector, WORD])
        context = attnlab.self_attention(X, *3 * [np.eye(2)]).context[-1]
        results[f"{neighbour} {word}"] = WORD + context
    return results


vectors = in_contexts("tower", NEIGHBOURS)
apples = in_contexts("苹果", dict(zip(["好吃", "股价"], NEIGHBOURS.values(), strict=True)))
print("\nOne word in two contexts")
for each, meanings in (
    (vectors, ["iron, Paris", "small, plastic"]),
    (apples, ["fruit", "company"]),
):
    print(attnlab.table([*each.values()], rows=[*each], columns=meanings))
    print()
pictures.points(vectors)

# %% [markdown]
# ## 7.8 A model that reads English
#
# The pocket model knows the sentences of its grammar. attnlab comes with a second model, `english`.
# It was trained on simple English: everyday sentences, children's stories and novels (its model
# card, `attnlab/english/MODEL_CARD.md`, lists them, and says how it was trained). After "The girl
# was tired because" a person goes on with "she": the noun decides. Does the model have a head that
# looks back at the noun there? Each line below is a text that stops before a pronoun, and the noun
# that the pronoun will stand for. Change them, or add your own. Predict first: one such head,
# several, or none?

# %%
SENTENCES = [
    ("The girl was tired because", " girl"),
    ("My brother opened the door and then", " brother"),
    ("The old woman sat by the fire because", " woman"),
    ("The king was angry because", " king"),
    ("The cat sat on the mat because", " cat"),
    ("The children went home because", " children"),
]

english = attnlab.GPT2.from_pretrained("english")


def from_end_to_noun(text: str, noun: str) -> tuple[attnlab.Trace, Mask]:
    """The trace of a text, and True where the last token is the query and the noun the key."""
    trace = english.trace(text)
    mask = np.zeros((len(trace.tokens), len(trace.tokens)), bool)
    mask[-1, trace.tokens.find(noun)] = True
    return trace, mask


# %%
pairs = [from_end_to_noun(*sentence) for sentence in SENTENCES]
at_nouns = measure_jobs(((run, {"noun": mask}) for run, mask in pairs), ["noun"])
best_head = at_nouns.best("noun")
layer_numbers = [f"layer {layer}" for layer in range(english.config.n_layer)]
head_numbers = [f"head {head}" for head in range(english.config.n_head)]

print(f"\n7.8 Mean weight of the last token on the noun (equal weights: {at_nouns.even[0]:.2f})\n")
print(attnlab.table(at_nouns.attention[0], rows=layer_numbers, columns=head_numbers, decimals=2))
print(f"\nText by text, layer {best_head[0]} head {best_head[1]}\n")
noun_weights = [float(run.head(*best_head).weights[mask][0]) for run, mask in pairs]
texts = [text for text, _ in SENTENCES]
print(attnlab.table(np.transpose([noun_weights]), rows=texts, columns=["the noun"], decimals=2))
pairs[0][0].head(*best_head)

# %% [markdown]
# There is such a head, and others give the noun more than an equal share too. But this head isn't
# equally sure of every noun: compare its weights with the pocket model's, where head 1.2 gives 1.00
# to the animal each time. English refers to a noun in more ways than a grammar does.
#
# Does the model use what its heads find? Here are the probabilities of "she" and "he" after such a
# text. Beside them stands what is left of the probabilities without one head, the head whose
# ablation costs the right pronoun most.

# %%
PRONOUNS = [" she", " he"]
NOUNS = {"girl": " she", "queen": " she", "boy": " he", "king": " he"}

she_or_he = english.tokenizer.tokens("".join(PRONOUNS))
fit: dict[str, list[float]] = {}
needed: dict[str, tuple[int, int]] = {}
for noun, pronoun in NOUNS.items():
    run = english.trace(f"The {noun} was tired because")
    left = {
        (layer, head): probabilities(ablate_heads(run, (layer, head)), she_or_he)
        for layer, head in np.ndindex(*at_nouns.attention[0].shape)
    }
    right = PRONOUNS.index(pronoun)
    needed[noun] = min(left, key=lambda head: left[head][right])
    fit[noun] = [*probabilities(run, she_or_he), *left[needed[noun]]]

print("\nThe … was tired because: all heads, and without the head that is needed most\n")
rows = [f"{noun}, without {layer}.{head}" for noun, (layer, head) in needed.items()]
columns = ["she", "he", "she without", "he without"]
print(attnlab.table([*fit.values()], rows=rows, columns=columns, decimals=2))

# %% [markdown]
# With the texts above the right pronoun is the more probable one each time, and each time some head
# carries a part of that. Nobody wrote this rule into the model: it is in the texts. (In the model's
# first rounds of training, some texts were sentences made to show this rule; its card says which.)
#
# And where does its knowledge end? Here is a phrase that people often say, a fact, a sum, and a
# story that the model tells alone, always with the most probable token.

# %%
print("\nThe three most probable next tokens\n")
for text in ("I would like a cup of", "The capital of France is", "Seven and eight are"):
    following = (
        f"{token.symbol} {token.probability:.2f}" for token in english.trace(text).next_tokens(3)
    )
    print(f"  {text:<26}{', '.join(following)}")
story = english.generate("Once upon a time there was a", 60, temperature=0).whole_text
print(f"\n{textwrap.fill(story, 80)}")

# %% [markdown]
# The model has often read what belongs in a cup. It doesn't know the fact and the sum: the words
# that it proposes could stand there, but none is the answer. A model predicts what is likely to be
# said, and four million parameters hold how words follow each other, but little of what is true.
# Nor do they hold a plan for a story: soon the story repeats itself. GPT-2 small uses the same
# equations with thirty times the parameters, and it read far more.
#
# [Type a sentence of your own](book/pages/en/guide.md#explore
# "english.html#depth=look"). The page describes a
# head that matters for it. Find a sentence that the model continues well, and one that it
# doesn't understand. (`attnlab playground english.html --model english` writes this page.)

# %% [markdown]
# ## 7.9 Predict, change, see
#
# Predict what will happen, then change the texts and run the chapter again.
#
# **Exercise 1 (medium).** Put two animals and no thing into `TEXT`: "The dog chased the cat, but
# it". The grammar has no such sentence. What will the two heads attend to, and what will follow?
#
# <details><summary>Answer</summary>
#
# The head that finds the animal chooses: 0.95 on `Ġdog`, 0.05 on `Ġcat`. The head that finds the
# thing finds none, and its weight goes to tokens that don't matter: 0.51 to `Ġchased`. What follows
# is `Ġbarked`, with 0.86 of the probability.
#
# </details>
#
# **Exercise 2 (medium).** Give one creature two moods, which the grammar doesn't do either. What
# does "A fluffy sleepy creature" do, and what does "A sleepy fluffy creature" do? Put them in
# `CREATURE`.
#
# <details><summary>Answer</summary>
#
# Nothing in the grammar decides it. Both creatures yawn, with 0.85 for the first and 0.99 for the
# second. Head 3 attends to the mood that comes first, with 0.96 in both texts, but head 2 gives
# most to `Ġsleepy` in both.
#
# </details>
#
# **Exercise 3 (medium).** Make induction ambiguous, with a word that is said twice in the first
# round: put "Say: lamp two lamp king. Again: lamp" into `RECITAL`. After `Ġlamp` came `Ġtwo`, then
# `Ġking`. What will the two heads of layer 1 attend to, and which word will follow?
#
# <details><summary>Answer</summary>
#
# Both heads attend to both words, and more to the later one: head 2 gives 0.59 to `Ġking` and 0.40
# to `Ġtwo`. But the word that follows is neither: it is `Ġgarden`, with 0.69 of the probability. A
# mixture of two values need not lie near one of them, and in training no word was said twice.
#
# </details>
#
# **Exercise 4 (hard).** Add "The dog chased the ball near the lake, but it" to `OTHERS`. The last
# token is the same, three positions later; the animal and the thing are the same too. What will the
# cosine be at the embedding, and what at the end?
#
# <details><summary>Answer</summary>
#
# The cosine is 0.92 at the embedding, because the position embedding is different. It is 0.99 at
# the end: what matters after "it" is the same. Heads not only make vectors differ, they also make
# them alike.
#
# </details>

# %% [markdown]
# ## Summary
#
# * A head may find the noun that "it" stands for by the noun itself, not by its position.
# * One head can have several jobs, and several heads can share one job.
# * An induction head needs a previous-token head in an earlier layer.
# * A head with nothing to attend to often puts its weight on the first token: an attention sink.
