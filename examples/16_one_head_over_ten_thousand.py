# %% [markdown]
# # 16. One head over ten thousand sentences
#
# [Chapter 7](07_heads_that_learned.py) looked at a few sentences and said what heads do. A few
# sentences are an anecdote. Here we ask the same heads over thousands, and count how sure the
# answer is. We meet a claim that one sentence proves and the many refute, and another that one
# sentence refutes and the many bear out. And we meet what even ten thousand sentences do not tell.
#
# The model is the pocket GPT-2, the sentences are those of its grammar, drawn anew. (Some of its
# texts are two sentences; we count each text as one.) What is found is true of this model and of
# these sentences. The chapter takes 1,600 of them, and some ten seconds. With `TEXTS = 10_000` it
# takes about a minute; what ten thousand say is told in 16.4.

# %%
import math
from typing import Any

import numpy as np

import attnlab
from attnlab import pictures
from attnlab.analysis.jobs import induction
from attnlab.equations import AnyArray, Array
from attnlab.pocket.grammar import KINDS, sample
from attnlab.support.console import prepare_script
from attnlab.support.tables import align
from attnlab.training import initial_parameters

prepare_script()  # for any terminal, and for pipes

ANECDOTE = "Let’s count: three, four, five."
ONE, OTHER = (0, 1), (1, 2)  # two heads, layer and head
TEXTS, SEED = 1_600, 99  # sentences, and which
KIND = None  # of which kind they are, such as "recital"; None for the grammar's own mixture
COMPARED = 400  # sentences in 16.7
SILENCED = 60  # sentences in 16.8

pocket = attnlab.GPT2.from_pretrained("pocket")
print(pocket)

L, H = pocket.config.n_layer, pocket.config.n_head
HEADS = [(layer, head) for layer in range(L) for head in range(H)]
NAMES = [f"layer {layer} head {head}" for layer, head in HEADS]

# %% [markdown]
# ## 16.1 An anecdote
#
# An induction head looks at what came after this word the last time. Which heads of the pocket
# model are induction heads? Take a sentence in which something stands twice, here the comma, and
# look how much weight each head puts there.

# %%
anecdote = pocket.trace(ANECDOTE)

print(f"\n16.1 An anecdote: {ANECDOTE}\n")
print(anecdote.jobs().table())

# %% [markdown]
# With the sentence above the column `induction` could not be clearer: head 1 of layer 0 has 0.97,
# no other more than 0.15. Two claims:
#
# * **Head 1 of layer 0 is an induction head.** (0.97)
# * **Head 2 of layer 1 is none.** (0.02)
#
# We chose the sentence, as one chooses an anecdote: because it makes its point so well. Before you
# read on, look at the column `previous`, and at the sentence. What did the first head do?

# %% [markdown]
# ## 16.2 Many sentences
#
# Draw sentences, and ask the two heads in each. A token has a place for the job if it stood in its
# sentence before; the [`weights`](../attnlab/equations.py) of its row say how much goes to what
# came after it then. Of each sentence keep how much that is together, s, and how many such places
# it has, n. (The anecdote has one, its second comma: n is 1, and s is 0.97 for one head, 0.02 for
# the other.) The mean over all places is r = Σ s / Σ n. Sentences in which nothing stands twice
# have no say.
#
# How far may r be off, had we drawn other sentences? Each sentence is s - r n away from what r
# would have it be. If sentences are drawn apart, such deviations cancel in part, and their squares
# add up:
#
#     error of r = √(N / (N - 1) · Σ (s - r n)²) / Σ n
#
# (Cochran, "Sampling Techniques", 1977, section 2.11, for a ratio of two sums.) If all n were
# equal, that would be the well-known spread of the s / n, divided by √N.


# %%
def mean_and_error(s: AnyArray, n: AnyArray) -> tuple[float, float]:
    """Of sums over n places each."""
    r, N = s.sum() / n.sum(), len(n)
    return float(r), math.sqrt(N / (N - 1) * ((s - r * n) ** 2).sum()) / float(n.sum())


TEXTS = max(TEXTS, 100)  # of fewer there is not much to say
rng = np.random.default_rng(SEED)
draws = [sample(rng, KIND) for _ in range(TEXTS)]

kinds, looks = [], []
for draw in draws:
    trace = pocket.trace(draw.text)
    targets = induction(trace.tokens)  # (T, T), True where a token should look
    asked = targets.any(axis=-1)
    if asked.any():
        weights = np.stack([trace.head(*head).weights for head in (ONE, OTHER)])
        kinds.append(draw.kind)
        looks.append((weights * targets).sum(axis=-1)[:, asked])  # (2, n)

s = np.array([look.sum(axis=-1, dtype=np.float64) for look in looks])  # (N, 2)
n = np.array([look.shape[-1] for look in looks])  # (N,)
N = len(n)

# %%
counts, rows = (max(2, N // 16), max(2, N // 4), N), []
for count in counts:
    (first, first_error), (second, second_error) = (
        mean_and_error(s[:count, which], n[:count]) for which in (0, 1)
    )
    rows.append([first, first_error, second, second_error])

print("\n16.2 Many sentences: induction, mean weight and its error\n")
names = ["layer {} head {}".format(*head) for head in (ONE, OTHER)]
print(
    attnlab.table(
        rows,
        rows=[f"{count:,} sentences" for count in counts],
        columns=[names[0], "error", names[1], "error"],
        decimals=3,
    )
)

# %% [markdown]
# (Of 1,600 sentences 1,373 have something that stands twice.) With the sentences above head 1 of
# layer 0 has fallen from 0.97 to 0.02, and head 2 of layer 1 has risen from 0.02 to 0.67. **That
# head 1 of layer 0 is an induction head was right on one sentence, and is wrong on the many. That
# head 2 of layer 1 is one was wrong on that sentence, and is right on the many.** Errors are about
# a hundredth, so chance did not do that.
#
# See how errors shrink: four times the sentences, half the error, as √N does. That is slow. Here is
# the mean of the second head as sentences come in, with one error above and below.

# %%
steps = np.unique(np.geomspace(min(10, N), N, 60).astype(int))
course = np.array([mean_and_error(s[:count, 1], n[:count]) for count in steps])
mean, error = course.T
pictures.curves(
    {"mean": mean, "one error above": mean + error, "one error below": mean - error},
    x=steps,
    x_name="sentences",
    y_name=names[1],
)

# %% [markdown]
# What does "± one error" promise? Not that the truth lies within. Were the whole drawn again and
# again, about two means of three would lie within one error of the truth, and 95 of 100 within two.
# We can try that out: cut the sentences into 16 parts, and see how far the parts' own means lie
# from the mean of all, in errors of their own.

# %%
PARTS = min(16, N // 2)
parts = [mean_and_error(s[part, 1], n[part]) for part in np.array_split(np.arange(N), PARTS)]
off = np.array([abs(part - mean[-1]) / error if error else 0 for part, error in parts])

print(f"\n{PARTS} parts of about {N // PARTS} sentences each: so many of them lie")
print(f"  within one error:  {(off <= 1).sum():2}   (expected: {0.68 * PARTS:.0f})")
print(f"  within two:        {(off <= 2).sum():2}   (expected: {0.95 * PARTS:.0f})")

# %% [markdown]
# ## 16.3 By texts, not by tokens
#
# There are far more tokens than sentences. Why not take each token for a draw of its own, its
# spread divided by the root of how many there are? Because they were not drawn apart. If a sentence
# is one in which the head copies, it copies at each of its tokens; the second token tells little
# that the first has not told. Here are both errors, and beside them a third that takes no formula:
# draw N sentences from those that we have, with repeats, take their mean, do so 1,000 times, and
# see how far these means lie apart (the bootstrap: Efron, 1979).

# %%
tokens = np.concatenate([look[1] for look in looks])
by_tokens = tokens.std(ddof=1) / math.sqrt(len(tokens))
by_texts = mean_and_error(s[:, 1], n)[1]
again = (rng.integers(N, size=N) for _ in range(1000))
drawn_again = np.std([mean_and_error(s[one, 1], n[one])[0] for one in again], ddof=1)

print(f"\n16.3 The error of the mean of {names[1]}, in three ways\n")
print(
    attnlab.table(
        [[by_tokens], [by_texts], [drawn_again]],
        rows=[f"by {len(tokens):,} tokens", f"by {N:,} texts", "texts drawn again"],
        columns=["error"],
        decimals=4,
    )
)

# %% [markdown]
# With the sentences above the error by tokens is a third of what it should be. One would need nine
# times the sentences to have that error in earnest. (It may be too large as well: exercise 3.)
# **Count what was drawn apart**: here texts.

# %% [markdown]
# ## 16.4 An atlas
#
# `attnlab.atlas` does this for all heads and many measures, in one process or on a cluster. It
# reads texts as a stream, and what it keeps does not grow with the corpus: of each measure and head
# six sums over texts, from which mean and error follow; two sums of each of at most 128 batches of
# texts, so that two atlases can be compared; and the three texts that have most of it and least.
# `attnlab.corpus.MEASURES` says what can be measured.

# %%
texts = [draw.text for draw in draws]
atlas = attnlab.atlas(
    pocket, texts, ["first", "previous", "same", "induction", "loss"], progress=False
)
found = atlas["induction"]
by_hand, by_atlas = mean_and_error(s[:, 1], n), (found.mean[OTHER], found.error[OTHER])

print("\n16.4 An atlas\n")
print(atlas.title)
print(align(atlas.lines()))
print(atlas.loss)
print(f"\n{names[1]}, induction: by hand ", "{:.4f} ± {:.4f}".format(*by_hand), end="")
print(", in the atlas ", "{:.4f} ± {:.4f}".format(*by_atlas))
found.plot()

# %% [markdown]
# The atlas has the same numbers as our own arithmetic, and 0.66 for head 3 of layer 1, the other
# induction head of chapter 7. **Ten thousand sentences** of the same seed give head 1 of layer 0 an
# induction of 0.024 ± 0.001, and head 2 of layer 1 one of 0.665 ± 0.005: 2.5 times as sure, which
# is √(10,000 / 1,600).

# %% [markdown]
# ## 16.5 The texts behind a mean
#
# A mean says that it is so, and not why. So open the texts in which a head does most of something,
# and least. Here is head 1 of layer 0, the one that was no induction head.

# %%
print(f"\n16.5 Induction of {names[0]}: most, and least\n")
for passage in (*found.most(*ONE), *found.least(*ONE)):
    print(passage)

# %% [markdown]
# With the sentences above it does most in those that count, our anecdote among them, and nothing in
# those that say words again. Look into the first: `pocket.trace(passage.ids)` has the tokens that
# were measured.

# %%
top = found.most(*ONE)[0]
pocket.trace(top.ids).head(*ONE)

# %% [markdown]
# Each token looks at the one before it: this is the previous-token head of chapter 7. At a comma it
# looks at the number before, and **the number before a comma is what came after the last comma**.
# In a list the two jobs cannot be told apart. Who tests for induction on a list finds every
# previous-token head of the model. Random words said twice are the better test: there, what came
# after a word the last time stands far away.
#
# And the other head, where does it do its job most, and least? (`atlas.explore(pocket)` shows all
# of this in a browser, each text a link to its trace.)

# %%
print(f"\nInduction of {names[1]}: most, and least\n")
for passage in (*found.most(*OTHER), *found.least(*OTHER)):
    print(passage)

# %% [markdown]
# With the sentences above it does least where creatures do things. What stands twice there is above
# all `Ġa`. What came after `Ġa` the last time was another creature's adjective, and to look at that
# would help nobody: this one's is drawn anew.
#
# The three that have most are not the recitals of chapter 7. Each has one place for the job, the
# second `Ġthe`, and a single place reaches 0.97 by luck more easily than the mean of twenty. **The
# ends of a list are taken by small samples.** Open them to see what a head can do, not to see what
# it does.

# %% [markdown]
# ## 16.6 A mean can hide two kinds of texts
#
# So the head does its job in some sentences and not in others. How many sentences are there that
# have so much, s / n of each?

# %%
edges = np.linspace(0, 1, 21)
shares = s[:, 1] / n
recital = np.array([kind == "recital" for kind in kinds])
said_twice = np.histogram(shares[recital].clip(0, 1), edges)[0]
others = np.histogram(shares[~recital].clip(0, 1), edges)[0]

near = np.abs(shares - by_hand[0]) < 0.1
print("\n16.6 A mean can hide two kinds of texts")
print(f"mean {by_hand[0]:.2f}; of {N:,} sentences {near.sum():,} lie within 0.1 of it")
pictures.curves(
    {"words said twice": said_twice, "all others": others},
    x=(edges[1:] + edges[:-1]) / 2,
    x_name=f"induction of {names[1]}",
    y_name="sentences",
)

# %% [markdown]
# With the sentences above there are two hills, and the mean lies in the valley between them, where
# hardly any sentence is. An error of 0.01 says how sure we are of the mean. It does not say that
# sentences are like it. Here are the kinds of the grammar, each by itself.

# %%
lines = []
for kind in KINDS:
    those = np.array([one == kind for one in kinds])
    if those.sum() > 1:
        both = [mean_and_error(s[those, which], n[those]) for which in (0, 1)]
        lines.append([kind, f"{those.sum():,}", *(f"{r:.3f} ± {e:.3f}" for r, e in both)])
lines.sort(key=lambda line: line[-1], reverse=True)

print(align([["kind", "sentences", *names], *lines], left=(0,)))

# %% [markdown]
# **A mean is the mean of a corpus.** The model's card says 0.92 of head 2 of layer 1, and says of
# which texts: recitals, where random words are said twice. It has that from 40 of them. Here there
# are 395, and they say 0.914 ± 0.001; the card's figure may be off by 0.003. In the other kinds it
# does less: 0.68 where a verb agrees with its noun, of which there are 25 with a place for it, and
# from 0.39 to 0.03 in the rest. So the 0.67 says less of the head than of the mixture: how many
# recitals there are, and how long they are, as a sentence with more places has more say. And "right
# on the many" was right on the many of one kind.
#
# Head 1 of layer 0, too, has its 0.94 in one kind, and 0.15 or less in all others. Who had drawn
# 1,600 sentences that count would be sure of a thing that is wrong. Errors know nothing of the
# sentences that were never drawn.

# %% [markdown]
# ## 16.7 Two atlases
#
# Two means differ. Do the models, or would other sentences have made such a difference too? If the
# texts were drawn apart, the error of a difference is the root of the sum of both errors' squares.
# First a comparison in which there is nothing to find: the same model, on other sentences.

# %%
COMPARED = max(COMPARED, 20)
other_texts = [sample(rng, KIND).text for _ in range(COMPARED)]
jobs = ["first", "previous", "same", "induction"]
itself = atlas.compare(attnlab.atlas(pocket, other_texts, jobs, progress=False))


def in_errors(difference: Any) -> Array:
    """By measure and head, each difference over its error."""
    of, error = (
        np.array([*numbers.values()]) for numbers in (difference.difference, difference.error)
    )
    times: Array = np.divide(of, error, out=np.zeros_like(of), where=error > 0)
    return times


apart = np.abs(in_errors(itself))
print(f"\n16.7 The same model on other sentences: {apart.size} differences")
print(f"  beyond two errors:   {(apart > 2).sum():2}   (about {apart.size / 20:.1f} by chance)")
print(f"  beyond four errors:  {(apart > 4).sum():2}")

# %% [markdown]
# Of 32 differences one or two lie beyond two errors by chance, give or take. Who measures GPT-2's
# 144 heads in four ways will find some 29, between a model and itself. So where many are asked, ask
# for more than two errors; here for four. Now a model of the same shape that learned nothing, with
# numbers that training would start from.

# %%
start = initial_parameters(pocket.config, np.random.default_rng(SEED))
untrained = attnlab.GPT2.from_arrays(pocket.config, start, pocket.tokenizer)
nothing = attnlab.atlas(untrained, other_texts, jobs, progress=False)
learned = nothing.compare(atlas)

apart = np.abs(in_errors(learned))
print(f"\nWhat was learned: {(apart > 4).sum()} of {apart.size} differences beyond four errors\n")
print(
    attnlab.table(
        [
            one.ravel()
            for one in (nothing["induction"].mean, found.mean, learned.error["induction"])
        ],
        rows=["untrained", "pocket", "error of the difference"],
        columns=["{}.{}".format(*head) for head in HEADS],
        decimals=3,
    )
)

# %% [markdown]
# With the sentences above nearly all heads differ from untrained ones, in nearly all jobs. An
# untrained head looks at all tokens alike, and so has 0.045 where induction would look. Beside that
# the 0.024 of head 1 of layer 0 is not "a little induction". It has learned to look elsewhere.
# **Without something to hold it against, a number is neither large nor small.**
#
# (Two models over the same texts, such as one before and after fine-tuning, share what is special
# in a text. Then `compare` goes by the differences in the texts.)

# %% [markdown]
# ## 16.8 What an atlas does not say
#
# Where a head looks is not what it is needed for, however sure we are of where it looks. Heads that
# rest on the first token are said to have nothing to do there (Xiao and others, 2023, call it a
# sink). Is that so? A measure of your own is a function that makes a number for each head of a
# trace. This one silences each head in turn, as [chapter 14](14_what_if.py) does, and says by how
# much the loss rises: -log of the probability of the word that comes, in the mean.


# %%
def loss(trace: attnlab.Trace) -> float:
    chances = attnlab.softmax(trace.logits[:-1])[np.arange(len(trace.ids) - 1), trace.ids[1:]]
    return float(-np.log(chances).mean()) if len(chances) else math.nan


def lost(trace: attnlab.Trace) -> Array:
    silent = [{f"blocks.{n}.attention.heads.{h}.context": 0} for n, h in HEADS]
    return np.array([loss(trace.edited(edit)) - loss(trace) for edit in silent]).reshape(L, H)


SILENCED = max(SILENCED, 2)
needed = attnlab.atlas(pocket, texts[:SILENCED], [lost], progress=False)["lost"]

lines = [["", "on the first token", "lost without it"]]
for name, head in zip(NAMES, HEADS, strict=True):
    looked = f"{atlas['first'].mean[head]:.2f} ± {atlas['first'].error[head]:.2f}"
    lines.append([name, looked, f"{needed.mean[head]:.2f} ± {needed.error[head]:.2f}"])

print("\n16.8 What an atlas does not say\n")
print(align(lines, left=(0,)))
print(f"\nWhere least is lost without {NAMES[-1]}\n")
for passage in needed.least(*HEADS[-1]):
    print(passage)

# %% [markdown]
# With the sentences above two heads look at the first token more than all others, with 0.37 and
# 0.28. The first is needed more than all other heads, the second less than all. **Attention is not
# importance**, neither in one sentence nor in ten thousand.
#
# The last lines are once more sentences against the many: without head 3 of layer 1 the model does
# better on them. In the mean it does worse, by 0.14 ± 0.03.
#
# **What this can't tell.** It says what follows when a head writes a 0, a state that the model is
# never in; chapter 14 has a head for which a 0 costs everything, and a mean nothing. And it is a
# mean as well.

# %% [markdown]
# ## 16.9 Predict, change, see
#
# Say first what will happen, then change the numbers and run the chapter again.
#
# **Exercise 1.** In chapter 7 head 2 of layer 0 looks at the first token of "A fluffy blue
# creature" and at nothing else. Put that into `ANECDOTE`, and look at the column `first` in 16.1
# and in 16.4. Then print `atlas["first"].least(0, 2)`, and where the head looks in
# `pocket.trace("Say: lamp two happy. Again: lamp two happy.")`. What does it look at?
#
# <details><summary>Answer</summary>
#
# 1.00 in the anecdote, 0.37 in the mean: right on one sentence, wrong on the many. It has least of
# it where somebody says something in quotes, 0.085. In the recital the words of the first round
# look at `Say`, those of the second at `ĠAgain`, the last full stop with 0.90. It does not look for
# the first token. It looks for where this part of the text began, and in a text of one part that is
# the first token.
#
# </details>
#
# **Exercise 2.** `TEXTS = 400`, a quarter. What becomes of the mean of head 2 of layer 1 in 16.4,
# what of its error?
#
# <details><summary>Answer</summary>
#
# 0.6577 ± 0.0234 in place of 0.6652 ± 0.0114. The error is twice as large, and the mean has moved
# by less than that.
#
# </details>
#
# **Exercise 3.** `KIND = "recital"`: only sentences in which words are said twice. How large is the
# error of head 2 of layer 1 in 16.3 now, and is the one by tokens too small again?
#
# <details><summary>Answer</summary>
#
# 0.0005, with no more sentences than before: they are of one kind, and alike. And now the error by
# tokens is too large, 0.0011. The last full stop of a recital has 0.03 on `ĠAgain`, which came
# after the full stop before it; its other places have 0.96 in the mean. So tokens differ much. But
# every recital has one such place, and so their means do not.
#
# </details>
#
# **Exercise 4.** Count every sentence twice: `draws = 2 * draws` below the line that makes them.
# What becomes of mean and error? What is wrong with it?
#
# <details><summary>Answer</summary>
#
# The mean stays, 0.6652, and the error falls from 0.0114 to 0.0080, by √2, as if we knew more. We
# know nothing new: the second of each two was not drawn apart. Corpora from the web hold many texts
# twice; throw copies out before you believe an error.
#
# </details>
