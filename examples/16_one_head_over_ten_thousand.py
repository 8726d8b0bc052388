# %% [markdown]
# # 16. One head over ten thousand sentences
#
# > Afterwards you can say: “What a head does in one sentence may be false of many. I can give a
# > mean over texts and its standard error, which falls with the root of their number. And I can say
# > what the mean hides.”
#
# [Chapter 7](07_heads_that_learned.py) looked at a few sentences and said what heads do. A few
# sentences are an anecdote. Here we measure the same heads over thousands of sentences, and
# estimate how certain the answer is. You will see a claim that holds for a sentence but not for
# many, another that holds for many but not for that sentence, and what even ten thousand sentences
# don't show.
#
# The model is the pocket GPT-2, the sentences are sampled from its grammar. (Some of its texts are
# two sentences; we count each text as one.) The findings hold for this model and these sentences.
# The chapter uses 1,600 of them, and takes about ten seconds. With `TEXTS = 10_000` it takes about
# a minute; 16.4 gives the results for ten thousand.
#
# * **Objective**: Measure heads over a corpus, with a standard error, and say what the mean
#   hides.
# * **Before this**: [chapter 7](07_heads_that_learned.py); mean and standard deviation. This is
#   an advanced chapter.
# * **Time**: about 50 minutes, exercises included.
# * **Misconception**: "More tokens, smaller error." What counts is how many texts were drawn
#   independently.

# %%
import math
from typing import Any

import numpy as np

import attnlab
from attnlab import pictures
from attnlab.analysis.jobs import induction
from attnlab.checking import checked
from attnlab.equations import AnyArray, Array
from attnlab.pocket.held_out import samples
from attnlab.support.console import prepare_script
from attnlab.support.tables import align
from attnlab.training import initial_parameters

prepare_script()  # print on any terminal, and into pipes

ANECDOTE = "Let’s count: three, four, five."
HEAD_A, HEAD_B = (0, 1), (1, 2)  # two heads, layer and head
TEXTS, SEED = 1_600, 99  # number of sentences, and a seed for 16.3 and 16.7
KIND = None  # their kind, such as recital; None for the grammar's mixture
COMPARED = 400  # sentences in 16.7
ABLATED = 60  # sentences in 16.8

pocket = attnlab.GPT2.from_pretrained("pocket")
print(pocket)

L, H = pocket.config.n_layer, pocket.config.n_head
HEADS = [(layer, head) for layer in range(L) for head in range(H)]
NAMES = [f"layer {layer} head {head}" for layer, head in HEADS]

# %% [markdown]
# ## 16.1 An anecdote
#
# An induction head attends to the token that came after the last occurrence of the current one.
# Which heads of the pocket model are induction heads? Take a sentence in which something occurs
# twice, here the comma, and see how much weight each head puts on the token after the first comma.

# %%
anecdote = pocket.trace(ANECDOTE)

print(f"\n16.1 An anecdote: {ANECDOTE}\n")
print(attnlab.jobs(anecdote).table())

# %% [markdown]
# With the sentence above, the column `induction` could not be clearer: head 1 of layer 0 has 0.97,
# and no other head has more than 0.15. This suggests two claims:
#
# * **Head 1 of layer 0 is an induction head.** (0.97)
# * **Head 2 of layer 1 is not.** (0.02)
#
# We chose the sentence as people choose anecdotes: because it makes the point so well. Before you
# read on, look at the column `previous`, and at the sentence. What did the first head do?

# %% [markdown]
# ## 16.2 Many sentences
#
# Draw sentences, and measure the two heads in each. A token allows induction if it occurred earlier
# in its sentence. Its row of [`weights`](../attnlab/equations.py) says how much weight goes to the
# token that came after that earlier occurrence. For each sentence keep the sum of these weights, s,
# and the number of such tokens, n. (The anecdote has a single one, its second comma: n is 1, and s
# is 0.97 for one head, 0.02 for the other.) The mean over all such tokens is r = Σ s / Σ n.
# Sentences in which nothing occurs twice are left out.
#
# How different might r be with other sentences? Each sentence deviates from what r predicts by s -
# r n. If sentences are drawn independently, such deviations partly cancel, and their squares add
# up:
#
#     error of r = √(N / (N - 1) · Σ (s - r n)²) / Σ n
#
# (Cochran, "Sampling Techniques", 1977, section 2.11, for a ratio of two sums.) If all n were
# equal, that would be the familiar standard error: the standard deviation of the s / n, divided by
# √N.


# %%
def mean_and_error(s: AnyArray, n: AnyArray) -> tuple[float, float]:
    """The mean per token and its standard error, from sums s over n tokens each."""
    r, N = s.sum() / n.sum(), len(n)
    return float(r), math.sqrt(N / (N - 1) * ((s - r * n) ** 2).sum()) / float(n.sum())


# %%
TEXTS = max(TEXTS, 100)  # fewer say little
rng = np.random.default_rng(SEED)
draws = samples(KIND)[:TEXTS]

kinds, job_weights = [], []
for draw in draws:
    trace = pocket.trace(draw.text)
    targets = induction(trace.tokens)  # (T, T), True where a token should look
    has_target = targets.any(axis=-1)
    if has_target.any():
        weights = np.stack([trace.head(*head).weights for head in (HEAD_A, HEAD_B)])
        kinds.append(draw.kind)
        job_weights.append((weights * targets).sum(axis=-1)[:, has_target])  # (2, n)

s = np.array([each.sum(axis=-1, dtype=np.float64) for each in job_weights])  # (N, 2)
n = np.array([each.shape[-1] for each in job_weights])  # (N,)
N = len(n)

# %%
counts, rows = (max(2, N // 16), max(2, N // 4), N), []
for count in counts:
    (first, first_error), (second, second_error) = (
        mean_and_error(s[:count, column], n[:count]) for column in (0, 1)
    )
    rows.append([first, first_error, second, second_error])

print("\n16.2 Many sentences: induction, mean weight and its error\n")
names = ["layer {} head {}".format(*head) for head in (HEAD_A, HEAD_B)]
print(
    attnlab.table(
        rows,
        rows=[f"{count:,} sentences" for count in counts],
        columns=[names[0], "error", names[1], "error"],
        decimals=3,
    )
)

# %% [markdown]
# (Of 1,600 sentences, 1,373 have something that occurs twice.) With the sentences above, head 1 of
# layer 0 has fallen from 0.97 to 0.02, and head 2 of layer 1 has risen from 0.02 to 0.67. **"Head 1
# of layer 0 is an induction head" was true of one sentence and is false of many. "Head 2 of layer 1
# is an induction head" was false of that sentence and is true of many.** The errors are about 0.01,
# so this difference isn't chance.
#
# Note how errors shrink: with four times as many sentences, the error is half as large, since it
# falls as 1/√N. That is slow. Here is the mean of head 2 of layer 1 as the number of sentences
# grows, with one error above and below.

# %%
steps = np.unique(np.geomspace(min(10, N), N, 60).astype(int))
running_means = np.array([mean_and_error(s[:count, 1], n[:count]) for count in steps])
mean, error = running_means.T
pictures.curves(
    {"mean": mean, "one error above": mean + error, "one error below": mean - error},
    x=steps,
    x_name="sentences",
    y_name=names[1],
)

# %% [markdown]
# What does "± one error" mean? Not that the true value lies within. If everything were drawn again
# and again, about two of three means would lie within one error of the true value, and 95 of 100
# within two. We can test that: split the sentences into 16 parts, and see how far each part's mean
# is from the mean of all, in units of the part's error.

# %%
PARTS = min(16, N // 2)
parts = [mean_and_error(s[part, 1], n[part]) for part in np.array_split(np.arange(N), PARTS)]
deviations = np.array([abs(part - mean[-1]) / error if error else 0 for part, error in parts])

print(f"\n{PARTS} parts of about {N // PARTS} sentences each: how many of them lie")
print(f"  within one error:  {(deviations <= 1).sum():2}   (expected: {0.68 * PARTS:.0f})")
print(f"  within two:        {(deviations <= 2).sum():2}   (expected: {0.95 * PARTS:.0f})")

# %% [markdown]
# ## 16.3 By texts, not by tokens
#
# There are far more tokens than sentences. Why not treat each token as a separate draw, and divide
# the standard deviation by the root of the number of tokens? Because tokens were not drawn
# independently. If the head copies in a sentence, it copies at each token of the sentence; the
# second token adds little to the first. Here are both errors, and a third that needs no formula:
# draw N of our sentences with replacement, take their mean, repeat this 1,000 times, and see how
# much these means vary (the **bootstrap**: Efron, 1979).

# %%
tokens = np.concatenate([text_weights[1] for text_weights in job_weights])
by_tokens = tokens.std(ddof=1) / math.sqrt(len(tokens))
by_texts = mean_and_error(s[:, 1], n)[1]
resamples = (rng.integers(N, size=N) for _ in range(1000))
bootstrap_error = np.std([mean_and_error(s[drawn, 1], n[drawn])[0] for drawn in resamples], ddof=1)

print(f"\n16.3 The error of the mean of {names[1]}, in three ways\n")
print(
    attnlab.table(
        [[by_tokens], [by_texts], [bootstrap_error]],
        rows=[f"by {len(tokens):,} tokens", f"by {N:,} texts", "texts drawn again"],
        columns=["error"],
        decimals=4,
    )
)

# %% [markdown]
# With the sentences above, the error by tokens is a third of what it should be. Really reaching
# that error would take nine times the sentences. (The error by tokens may also be too large:
# exercise 3.) **Count what was drawn independently**: here texts.

# %% [markdown]
# ## 16.4 An atlas
#
# `attnlab.atlas` does this for all heads and many measures, in one process or on a cluster. It
# reads texts as a stream, and what it keeps does not grow with the corpus. For each measure and
# head it keeps six sums over texts, which give mean and error, and the three texts with the highest
# and the lowest values. `attnlab.corpus.MEASURES` lists what can be measured.

# %%
texts = [draw.text for draw in draws]
atlas = attnlab.atlas(
    pocket, texts, ["first", "previous", "same", "induction", "loss"], progress=False
)
measured = atlas["induction"]
by_hand = mean_and_error(s[:, 1], n)
by_atlas = measured.mean[HEAD_B], measured.standard_errors[HEAD_B]

print("\n16.4 An atlas\n")
print(atlas.title)
print(align(atlas.lines()))
print(atlas.loss)
print(f"\n{names[1]}, induction: by hand ", "{:.4f} ± {:.4f}".format(*by_hand), end="")
print(", in the atlas ", "{:.4f} ± {:.4f}".format(*by_atlas))
measured.plot()

# %% [markdown]
# The atlas has the same numbers as our own arithmetic, and it gives 0.66 for head 3 of layer 1, the
# other induction head of chapter 7. **Ten thousand sentences** of the same draw give an induction
# of 0.024 ± 0.001 for head 1 of layer 0, and of 0.665 ± 0.005 for head 2 of layer 1. These figures
# are 2.5 times as precise, which is √(10,000 / 1,600).

# %% [markdown]
# ## 16.5 The texts behind a mean
#
# A mean doesn't say why. So open the texts with a head's highest and lowest values. Here is head 1
# of layer 0, which turned out not to be an induction head.

# %%
print(f"\n16.5 Induction of {names[0]}: highest and lowest\n")
for passage in (*measured.most(*HEAD_A), *measured.least(*HEAD_A)):
    print(passage)

# %% [markdown]
# With the sentences above, the value is highest in sentences that count things, our anecdote among
# them, and zero in those that repeat words. Look at the first sentence: `pocket.trace(passage.ids)`
# has the measured tokens.

# %%
top = measured.most(*HEAD_A)[0]
pocket.trace(top.ids).head(*HEAD_A)

# %% [markdown]
# Each token attends to the previous one: this is the previous-token head of chapter 7. At a comma
# it attends to the number before, and **the number before a comma is what came after the last
# comma**. In a list the two jobs can't be told apart. Testing for induction on a list finds every
# previous-token head of the model. Random words said twice are the better test: there, the token
# that came after a word the last time is far away.
#
# Where does the other head do its job most, and where least? (`attnlab atlas` in a terminal writes
# a page that shows all of this in a browser; with `--heads` the page also has token pairs,
# distances and what a head writes.)

# %%
print(f"\nInduction of {names[1]}: highest and lowest\n")
for passage in (*measured.most(*HEAD_B), *measured.least(*HEAD_B)):
    print(passage)

# %% [markdown]
# With the sentences above, the value of head 2 is lowest where creatures do things. What repeats
# there is mostly `Ġa`. What came after `Ġa` the last time was another creature's adjective.
# Attending to that adjective would not help, since each creature's adjective is drawn
# independently.
#
# The three highest sentences are not the recitals of chapter 7. Each has a single token that allows
# induction, the second `Ġthe`, and a single token reaches 0.97 by chance more easily than the mean
# of twenty tokens does. **Small samples end up at both ends of a ranking.** Open such sentences to
# see what a head can do, not what it usually does.

# %% [markdown]
# ## 16.6 A mean can hide two kinds of texts
#
# So the head does its job in some sentences and not in others. Here is the distribution of s / n
# over the sentences.

# %%
edges = np.linspace(0, 1, 21)
per_text = s[:, 1] / n
is_recital = np.array([kind == "recital" for kind in kinds])
recital_counts = np.histogram(per_text[is_recital].clip(0, 1), edges)[0]
other_counts = np.histogram(per_text[~is_recital].clip(0, 1), edges)[0]

near_mean = np.abs(per_text - by_hand[0]) < 0.1
print("\n16.6 A mean can hide two kinds of texts")
print(f"mean {by_hand[0]:.2f}; of {N:,} sentences {near_mean.sum():,} lie within 0.1 of it")
pictures.curves(
    {"words said twice": recital_counts, "all others": other_counts},
    x=(edges[1:] + edges[:-1]) / 2,
    x_name=f"induction of {names[1]}",
    y_name="sentences",
)

# %% [markdown]
# With the sentences above, there are two peaks, and the mean lies in the valley between them, where
# there is hardly any sentence. An error of 0.01 says how certain the mean is. It does not say that
# sentences are near it. Here are the kinds of the grammar separately.

# %%
lines = []
for kind in dict.fromkeys(kinds):
    selected = np.array([name == kind for name in kinds])
    if selected.sum() > 1:
        both = [mean_and_error(s[selected, column], n[selected]) for column in (0, 1)]
        lines.append([kind, f"{selected.sum():,}", *(f"{r:.3f} ± {e:.3f}" for r, e in both)])
lines.sort(key=lambda line: line[-1], reverse=True)

print(align([["kind", "sentences", *names], *lines], left=(0,)))

# %% [markdown]
# **A mean is the mean of a corpus.** The model card says 0.92 for head 2 of layer 1, and says for
# which texts: recitals, where random words are said twice. The card measured 40 recitals. Here
# there are 395, and they give 0.914 ± 0.001; the card's figure may be off by 0.003. In the other
# kinds of sentences the mean is lower: 0.68 where a verb agrees with its noun (25 of these
# sentences allow induction), and from 0.39 to 0.03 in the rest. So the 0.67 says less about the
# head than about the mixture. It depends on how many recitals there are, and on how long they are,
# as a sentence with more tokens that allow induction counts more. And "true of many" was true of
# many sentences of one kind.
#
# Head 1 of layer 0, too, reaches 0.94 in one kind, but 0.15 or less in all others. With 1,600
# sentences that count things, we would be certain of something wrong. Standard errors know nothing
# about sentences that were never drawn.

# %% [markdown]
# ## 16.7 Two atlases
#
# Two means differ. Do the models differ, or would other sentences cause such a difference too? If
# the texts were drawn independently, the error of a difference is the root of the sum of both
# errors' squares. First a comparison without a real difference: the same model, on other sentences.

# %%
COMPARED = max(COMPARED, 20)
other_texts = [other.text for other in samples(KIND)[-COMPARED:]]
jobs = ["first", "previous", "same", "induction"]
same_model = attnlab.atlas(pocket, other_texts, jobs, progress=False)


def z_scores(first: Any, second: Any) -> Array:
    """Each difference of two means divided by its error, by measure and head."""
    difference = np.array([second[job].mean - first[job].mean for job in jobs])
    error = np.array(
        [np.hypot(first[job].standard_errors, second[job].standard_errors) for job in jobs]
    )
    ratios: Array = np.divide(difference, error, out=np.zeros_like(difference), where=error > 0)
    return ratios


z = np.abs(z_scores(atlas, same_model))
print(f"\n16.7 The same model on other sentences: {z.size} differences")
print(f"  beyond two errors:   {(z > 2).sum():2}   (about {z.size / 20:.1f} by chance)")
print(f"  beyond four errors:  {(z > 4).sum():2}")

# %% [markdown]
# Of 32 differences, one or two lie beyond two errors by chance. Measure GPT-2's 144 heads in four
# ways, and you will find about 29 such differences between a model and itself. So with many
# comparisons, demand more than two errors; here we demand four. Now take an untrained model of the
# same shape, with the parameters that training would start from.

# %%
start = initial_parameters(pocket.config, np.random.default_rng(SEED))
untrained = attnlab.GPT2.from_arrays(pocket.config, start, pocket.tokenizer)
untrained_atlas = attnlab.atlas(untrained, other_texts, jobs, progress=False)

z = np.abs(z_scores(untrained_atlas, atlas))
print(f"\nWhat was learned: {(z > 4).sum()} of {z.size} differences beyond four errors\n")
print(
    attnlab.table(
        [
            numbers.ravel()
            for numbers in (
                untrained_atlas["induction"].mean,
                measured.mean,
                np.hypot(untrained_atlas["induction"].standard_errors, measured.standard_errors),
            )
        ],
        rows=["untrained", "pocket", "error of the difference"],
        columns=["{}.{}".format(*head) for head in HEADS],
        decimals=3,
    )
)

# %% [markdown]
# With the sentences above, nearly all heads differ from untrained ones, in nearly all jobs. An
# untrained head attends to all tokens equally, and so gives 0.047 to the tokens that an induction
# head attends to. Compared with that, the 0.024 of head 1 of layer 0 is not "a little induction".
# This head has learned to attend elsewhere. **Without a baseline, a number is neither large nor
# small.**
#
# (An unusual text raises or lowers the numbers of two models together, such as one before and after
# fine-tuning, so their difference over the same texts is known better than this formula says. Then
# let the atlas measure the difference: as in 16.8, with a function of a trace that also traces
# `trace.ids` with the other model.)

# %% [markdown]
# ## 16.8 What an atlas does not say
#
# What a head attends to is not what it is needed for, however precisely we know it. Heads are
# said to attend to the first token when they have nothing to fetch (Xiao and others, 2023, call it
# an **attention sink**). Is that so? Your own measure is a function that returns a number for each
# head of a trace. This one ablates (silences) each head in turn, as [chapter 14](14_what_if.py)
# does, and says by how much the loss rises: the mean cross-entropy, -log of the probability of the
# next word.


# %%
def loss(trace: attnlab.Trace) -> float:
    probabilities = attnlab.softmax(trace.logits[:-1])[np.arange(len(trace.ids) - 1), trace.ids[1:]]
    return float(-np.log(probabilities).mean()) if len(probabilities) else math.nan


def loss_rise(trace: attnlab.Trace) -> Array:
    ablations = [{f"blocks.{n}.attention.heads.{h}.context": 0} for n, h in HEADS]
    return np.array([loss(trace.edited(edit)) - loss(trace) for edit in ablations]).reshape(L, H)


ABLATED = max(ABLATED, 2)
rise = attnlab.atlas(pocket, texts[:ABLATED], [loss_rise], progress=False)["loss_rise"]

lines = [["", "on the first token", "rise of the loss without it"]]
for name, head in zip(NAMES, HEADS, strict=True):
    on_first = f"{atlas['first'].mean[head]:.2f} ± {atlas['first'].standard_errors[head]:.2f}"
    lines.append([name, on_first, f"{rise.mean[head]:.2f} ± {rise.standard_errors[head]:.2f}"])

print("\n16.8 What an atlas does not say\n")
print(align(lines, left=(0,)))
print(f"\nWhere the loss rises least without {NAMES[-1]}\n")
for passage in rise.least(*HEADS[-1]):
    print(passage)

# %% [markdown]
# With the sentences above, two heads attend to the first token more than all others, with 0.37 and
# 0.28. The first of them, head 2 of layer 0, is needed more than all other heads; the second, head
# 1 of layer 1, is needed less than all. **Attention is not importance**, neither in one sentence
# nor in ten thousand.
#
# The last lines again show single sentences that contradict the many: without head 3 of layer 1 the
# model does better on them. On average it does worse, by 0.14 ± 0.03.
#
# **What this can't tell.** The rise says what follows when a head writes a 0, a state that the
# model is never in; chapter 14 has a head for which a 0 costs everything, and a mean nothing. And
# the rise is itself a mean.

# %% [markdown]
# ## 16.9 Predict, change, see
#
# Predict what will happen, then change the numbers and run the chapter again.
#
# **Exercise 1 (medium).** In chapter 7 head 2 of layer 0 attends to the first token of "A fluffy
# blue creature" and to nothing else. Put that into `ANECDOTE`, and look at the column `first` in
# 16.1 and in 16.4. Then print `atlas["first"].least(0, 2)`, and what the head attends to in
# `pocket.trace("Say: lamp two happy. Again: lamp two happy.")`. What does it look for?
#
# <details><summary>Answer</summary>
#
# The column says 1.00 in the anecdote, 0.37 in the mean: the claim is true of one sentence and
# false of many. The value is lowest in sentences with quotes, 0.085. In this text the words of
# the first round attend to `Say`, and those of the second round attend to `ĠAgain`; the last full
# stop gives it 0.90. The head does not look for the first token. It looks for the start of the
# current part of the text, and in a text of one part that is the first token.
#
# </details>
#
# **Exercise 2 (medium).** Set `TEXTS = 400`, a quarter of the sentences. What happens to the mean
# of head 2 of layer 1 in 16.4, and to its error?
#
# <details><summary>Answer</summary>
#
# The atlas gives 0.6577 ± 0.0234 instead of 0.6652 ± 0.0114. The error is twice as large, and the
# mean has moved by less than its error.
#
# </details>
#
# **Exercise 3 (medium).** Set `KIND = "recital"`, so that there are only sentences in which words
# are said twice. How large is the error of head 2 of layer 1 in 16.3 now, and is the error by
# tokens too small again?
#
# <details><summary>Answer</summary>
#
# The error is 0.0005, with no more sentences than before: the recitals are of one kind, and
# similar. And now the error by tokens is too large, 0.0012. The last full stop of a recital gives
# 0.03 to `ĠAgain`, which came after the full stop before it; the other tokens of the recital have a
# mean of 0.96. So tokens differ a lot. But every recital has exactly one such full stop, so the
# means of the recitals differ little.
#
# </details>
#
# **Exercise 4 (hard).** Count every sentence twice: write `draws = 2 * draws` below the line that
# draws them. What happens to the mean and to the error? What is wrong with counting twice?
#
# <details><summary>Answer</summary>
#
# The mean stays 0.6652, and the error falls from 0.0114 to 0.0080, by √2, as if we knew more. We
# know nothing new: each copy was not drawn independently. Web corpora contain many duplicates;
# remove them before you believe an error.
#
# </details>

# %% [markdown]
# **Task 1 (basic).** 16.7 says that a number needs something to compare with. Write a head that
# treats all visible tokens alike: from the mask and the values, return `weights` and `context`.


# %%
def my_even_head(mask: Array, V: Array) -> dict[str, Array]:
    raise NotImplementedError


# %%
print("\n16.9 Your own head that attends evenly")
anecdote_head = anecdote.head(*HEAD_A)
even = attnlab.attention(
    np.zeros_like(anecdote_head.Q), anecdote_head.K, anecdote_head.V, mask=anecdote_head.mask
)
print(checked(even, my_even_head, anecdote_head.mask, anecdote_head.V))

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# `True` counts as 1 and `False` as 0, so `mask` is nearly the matrix of weights already. What must
# each row sum to?
#
# <details><summary>Hint 2</summary>
#
# `mask.sum(axis=1, keepdims=True)` is the number of tokens that each query sees, as a column.
#
# <details><summary>Hint 3</summary>
#
# Divide the mask by that column. The context is `weights @ V`: the running mean of the values.
#
# <details><summary>Solution</summary>
#
# [`my_even_head`](book/solutions/chapter_16.py)
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
# * A claim from one text may be false over many, and the other way round.
# * The standard error falls with the root of the number of texts; tokens of one text are not
#   independent.
# * A mean belongs to a corpus: look at its groups, and at texts from both ends.
# * Compare with a baseline, and demand more where you compare many numbers at once.
# * What a head attends to is not what it is needed for.
