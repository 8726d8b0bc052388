# %% [markdown]
# # 18. A model whose truth is known
#
# > Afterwards you can say: “In a model so small that all subsets of its parts can be tried, I know
# > what each part is worth. Methods that agree may still share a blind spot. What carries a
# > difference and what is needed are two questions.”
#
# The tools of chapter 14 disagreed about what a part is needed for. Which of them is right? For
# GPT-2 nobody can say: it has 156 heads and MLPs, and 2^156 subsets of them to remove. The pocket
# model has ten such parts, and so 1,024 subsets. All 1,024 were tried, so the answer is known, and
# methods can be compared with it.
#
# * **Objective**: Compute from all ablations what parts are worth, alone and together, and say what
#   it means if a method disagrees.
# * **Before this**: [chapter 14](14_what_if.py); standard errors as in [chapter
#   16](16_one_head_over_ten_thousand.py). This is an advanced chapter.
# * **Time**: about 45 minutes, exercises included.
# * **Misconception**: "A part that restores nothing when patched isn't needed." Patching sees only
#   what differs between two texts.

# %%
from collections.abc import Callable
from itertools import combinations

import numpy as np

import attnlab
from attnlab import pictures
from attnlab.checking import checked
from attnlab.equations import Array
from attnlab.pocket.held_out import samples
from attnlab.pocket.truth import open_truth, shapley_values
from attnlab.support.console import prepare_script

prepare_script()  # print on any terminal, and into pipes

TASK = "pronoun"  # one of the eight tasks below
ABLATIONS = ("mean", "zero")
ABLATION = "mean"  # or zero
SUBSET = ["0.2", "MLP 0", "1.2", "MLP 1"]  # the parts kept in 18.1
FAITHFUL = 0.9  # how much of the effect a circuit must have in 18.4
WATCHED = "0.2"  # the part in 18.6
READER = "1.2"  # a head of layer 1, whose score is explained in 18.6

truth = open_truth()
print(f"{len(truth.sentences)} sentences of {len(truth.tasks)} tasks, for example:\n")
for task in truth.tasks:
    sentence = next(each for each in truth.sentences if each.task == task)
    print(f"  {task:<11}{sentence.clean} ...{sentence.right}")

parts, tasks = truth.parts, truth.tasks
row = tasks.index(TASK)

# %% [markdown]
# ## 18.1 All subsets
#
# The parts are eight heads, named layer.head, and two MLPs. To keep a **subset** S of them, ablate
# the others: replace what they write at every position by its mean over other texts. Then measure
# v(S), the logit of the correct next token minus that of a wrong one. The table has v for each of
# the 1,024 subsets in 48 sentences, six of each task. Here are one task's subsets, grouped by their
# size. Each v is a mean over the task's sentences.

# %%
v = truth.values(TASK, ABLATION).mean(axis=0)  # (1024,)
# Bit i of a subset's index in v says whether part i is kept.
kept = (np.arange(1024)[:, None] >> np.arange(10) & 1).astype(bool)  # (1024, 10)
sizes = kept.sum(axis=1)
v_by_size = [v[sizes == n] for n in range(len(parts) + 1)]
lines = np.array([[scores.min(), scores.mean(), scores.max()] for scores in v_by_size])

print(f"\n18.1 v of all subsets by size: {TASK}\n")
names = ["least", "mean", "most"]
rows = [f"{n} parts" for n in range(len(lines))]
print(attnlab.table(lines, rows=rows, columns=names, decimals=2))
pictures.curves(dict(zip(names, lines.T, strict=True)), x_name="parts kept", y_name="v")

# %% [markdown]
# With the settings above, no part alone reaches more than 0.06, and no three parts reach more than
# 1.80 of the whole model's 6.28. Then some four parts reach 6.42, as much as all ten, and some six
# parts reach 7.14, more than all ten: some parts do harm. The mean rises late: with eight parts it
# is still less than half of what the whole model has. It matters which parts are kept together.
#
# You don't have to trust the table. Here is one of its values, computed by hand with edits:

# %%
pocket = attnlab.GPT2.from_pretrained("pocket")
number = [each.task for each in truth.sentences].index(TASK)
sentence = truth.sentences[number]
is_kept = np.array([part in SUBSET for part in parts])
others = [pocket.trace(text.text) for text in samples()[:200]]


# %%
def ablation_of(path: str, is_kept: Array) -> Callable[[Array], Array]:
    """Replace what is written by its mean over the other texts, or by 0, where it isn't kept."""
    written = np.concatenate([attnlab.at(other, path) for other in others], axis=-2)
    replacement = np.zeros(1) if ABLATIONS[1] == ABLATION else written.mean(axis=-2, keepdims=True)
    return lambda x: np.where(is_kept, x, replacement)


# %%
edits = {}
for n in (0, 1):
    attention, mlp = f"blocks.{n}.attention.context", f"blocks.{n}.mlp.output"
    edits[attention] = ablation_of(attention, is_kept[5 * n : 5 * n + 4, None, None])
    edits[mlp] = ablation_of(mlp, is_kept[5 * n + 4])

logits = pocket.trace(sentence.clean).edited(edits).next_logits
correct, wrong = (pocket.tokenizer.encode(word)[0] for word in (sentence.right, sentence.wrong))
by_hand = float(logits[correct] - logits[wrong])
in_table = truth.values(TASK, ABLATION)[0, (1 << np.flatnonzero(is_kept)).sum()]

print(f"\n{sentence.clean} ...{sentence.right}, not{sentence.wrong}; kept: {', '.join(SUBSET)}")
print(f"by hand {by_hand:.4f}, in the table {in_table:.4f}")

# %% [markdown]
# ## 18.2 What is one part worth?
#
# There are two obvious answers: what a part does alone, v(part) - v(none), and what is lost without
# it, v(all) - v(all but the part). A third answer is the **Shapley value** (Shapley, 1953): add the
# parts in random order, and note how much v rises when this part is added. The mean over all 10!
# orders is
#
#     φ(part) = Σ over S without the part: |S|! (9 - |S|)! / 10! · (v(S with the part) - v(S))


# %%
def shapley_by_task(ablation: str) -> Array:
    """The parts' Shapley values, means over a task's sentences, (tasks, parts)."""
    return np.stack([shapley_values(truth.values(task, ablation)).mean(axis=0) for task in tasks])


alone = v[1 << np.arange(10)] - v[0]
without = v[-1] - v[1023 - (1 << np.arange(10))]
shapley = shapley_by_task(ABLATION)
worth = np.array([alone, without, shapley[row]]).T

print(f"\n18.2 What is one part worth? {TASK}\n")
names = ["alone", "lost without it", "Shapley value"]
print(attnlab.table([*worth, worth.sum(axis=0)], rows=[*parts, "sum"], columns=names, decimals=2))
print(f"\nv(all) - v(none) = {v[-1] - v[0]:.2f}")
pictures.heatmap(shapley, rows=tasks, columns=parts, title="Shapley values")

# %% [markdown]
# With the settings above, the whole effect to be shared is v(all) - v(none) = 6.33. The column
# "alone" adds up to -0.47, since the parts only work together. The column "lost without it" adds up
# to 17.72, since it counts twice what two parts do together. Shapley values add up to 6.33, exactly
# and for every v: 2.14 for MLP 0, 1.91 for head 1.2, 1.24 for MLP 1, 0.86 for head 0.2, and next to
# nothing for the other six parts.

# %% [markdown]
# ## 18.3 Together
#
# How much more do two parts do together than apart? Their **interaction** is the mean of v(S with
# both) - v(S with one) - v(S with the other) + v(S): above 0 if they need each other, below 0 if
# one can replace the other.

# %%
subsets, interactions = np.arange(1024), np.full((10, 10), np.nan)
for j in range(10):
    # The same as the difference that part j makes to the Shapley values of the others.
    without_j = subsets[~kept[:, j]]
    with_j = without_j + (1 << j)
    difference = shapley_values(v[with_j]) - shapley_values(v[without_j])
    interactions[np.delete(np.arange(10), j), j] = difference
pairs = sorted(combinations(range(10), 2), key=lambda pair: interactions[pair], reverse=True)

print(f"\n18.3 The strongest interactions, of both signs: {TASK}\n")
for i, j in (*pairs[:4], *pairs[-2:]):
    print(f"  {parts[i]:>5} and {parts[j]:<5}  {interactions[i, j]:5.2f}")
pictures.heatmap(interactions, rows=parts, columns=parts)

# %% [markdown]
# With the settings above, MLP 0, head 1.2 and MLP 1 need each other: their three pairs have
# interactions of 2.17, 2.01 and 1.87. [Chapter 14](14_what_if.py) saw part of this: head 1.2 moves
# the animal to "it", and MLP 1 makes the animal's sound more probable. The pair of heads 0.2 and
# 0.3 has -0.75: each can partly replace the other.

# %% [markdown]
# ## 18.4 The smallest circuits
#
# A **circuit** is a subset that has nearly all of the effect: its **faithfulness** is (v(S) -
# v(none)) / (v(all) - v(none)). A search for circuits can miss a smaller one. A table of all
# subsets can't.


# %%
def smallest_circuit(task: str) -> str:
    v = truth.values(task, ABLATION).mean(axis=0)
    faithfulness = (v - v[0]) / (v[-1] - v[0])
    is_faithful = faithfulness >= FAITHFUL
    if not is_faithful.any():
        return f"no subset has {FAITHFUL:g}; the highest is {faithfulness.max():.3g}"
    size = sizes[is_faithful].min()
    circuits = np.flatnonzero(is_faithful & (sizes == size))
    best = circuits[faithfulness[circuits].argmax()]
    chosen = ", ".join(np.array(parts)[kept[best]])
    return f"{size:2}  {faithfulness[best]:.2f}  {chosen}  ({len(circuits) - 1} more)"


print(f"\n18.4 The smallest circuits with a faithfulness of {FAITHFUL:g}\n")
for task in tasks:
    print(f"  {task:<11}{smallest_circuit(task)}")

# %% [markdown]
# With the settings above, `pronoun` needs four parts, and no other four work. `weather` needs nine
# of ten: not everything has a small circuit. In `mood` three circuits of six parts are equally
# good, so "the" circuit doesn't exist. In `family` five parts have a faithfulness of 1.52: the rest
# of the model works against them.

# %% [markdown]
# ## 18.5 Methods against the truth
#
# Now let other methods rank the ten parts: patching, its estimate by gradients (attribution
# patching), and the sum of a part's [edges by EAP and EAP-IG](later/edges.py). Each method compares
# two sentences in which different words are right. The methods' scores are stored with the table.
# How well does a method's ranking agree with that of the Shapley values? Spearman's correlation is
# 1 for the same order, 0 on average by chance.

# %%
METHODS = ["patching", "attribution patching", "EAP", "EAP-IG", "removal"]
v_of_tasks = np.array([truth.values(task, ABLATION).mean(axis=0) for task in tasks])
removal = v_of_tasks[:, -1:] - v_of_tasks[:, 1023 - (1 << np.arange(10))]
by_method = np.array([*truth.scores, removal])  # (methods, tasks, parts)


# %%
def spearman(a: Array, b: Array) -> float:
    """The correlation of the ranks; equal numbers have their mean rank."""
    ranks = [(x[:, None] > x).sum(axis=1) + (x[:, None] == x).sum(axis=1) / 2 for x in (a, b)]
    return float(np.corrcoef(ranks)[0, 1])


def correlations_with(truths: Array) -> Array:
    """For each method and task, the correlation with these values of the parts, (tasks, parts)."""
    return np.array([[*map(spearman, scores, truths)] for scores in by_method])


# %%
correlations = correlations_with(shapley)
with_patching = correlations_with(by_method[0]).mean(axis=1)

print("\n18.5 Correlation with the Shapley values\n")
with_means = np.column_stack([correlations, correlations.mean(axis=1)])
print(attnlab.table(with_means, rows=METHODS, columns=[*tasks, "mean"], decimals=2))
print("\nMean correlation with patching\n")
print(attnlab.table(with_patching[:, None], rows=METHODS, columns=["mean"], decimals=2))
pictures.heatmap(correlations, rows=METHODS, columns=tasks)

# %% [markdown]
# With the settings above, the four methods agree with each other: their correlations with patching
# are 0.939 or more. They don't agree with the truth: their correlations with the Shapley values are
# 0.57 or 0.58. Integrated gradients, made to be more exact than gradients, are not better here.
# Removing one part at a time takes ten runs and has a correlation of 0.91: it asks the same
# question as the table. **That four methods agree doesn't make them right**: they may share a blind
# spot.

# %% [markdown]
# ## 18.6 Two questions
#
# What do these methods miss? Take one part. For each task, compare three differences of logits: the
# effect of patching the part, what is lost without it, and its Shapley value.

# %%
part = parts.index(WATCHED)
scores = np.array([*by_method[[0, -1], :, part], shapley[:, part]]).T

print(f"\n18.6 Two questions: {WATCHED}\n")
names = ["patching", "lost without it", "Shapley value"]
print(attnlab.table(scores, rows=tasks, columns=names, decimals=2))

# %% [markdown]
# With the settings above, patching head 0.2 changes next to nothing, 0.07 at most. Without this
# head up to 9.74 is lost, and in `family` its Shapley value is the highest of all parts. Both
# results are true. In chapter 14 this head wrote the same for several texts, and later parts relied
# on it. The same happens here: what the head writes in the two sentences of a pair differs by at
# most 8 % of its largest number, so patching replaces it with nearly the same vector.
#
# **Patching asks what carries the difference between two texts. Ablation asks what is needed.** A
# low correlation doesn't show that patching answers its question wrongly. It shows what goes wrong
# if the answer of patching is taken for an answer to the other question.
#
# The same holds for a **score**. [Chapter 14](14_what_if.py) splits a score into parts. The next
# table has four columns for each part of layer 0. The first is the part's share in that sum. The
# second is the share of the score that is lost if the part is ablated. The third says how much of
# the difference between the two sentences of a pair goes from the part straight to the head's keys
# (path patching). The fourth is their interaction: how much the part and the head need each other.

# %%
reader = f"blocks.1.attention.heads.{READER[-1]}"
clean, corrupted = pocket.trace(sentence.clean), pocket.trace(sentence.corrupted)
attended = int(attnlab.at(clean, reader).weights[-1].argmax())
why = attnlab.why(attnlab.at(clean, reader), -1, attended)


def preference(trace: attnlab.Trace) -> float:
    of_row = attnlab.at(trace, reader).scores[-1]
    return float(of_row[attended] - of_row[: len(clean.tokens)].mean())


# %%
def share_on_path(sender: str) -> float:
    """By path patching; not a number if this head's scores are the same in both sentences."""
    try:
        path = attnlab.path_patch(
            clean, corrupted, sender, f"{reader}.K", target=preference, progress=False
        )
    except attnlab.AttnlabError:
        return np.nan
    return float(path.restored)


# %%
answers = []
for n in range(5):
    output = f"blocks.0.attention.heads.{n}.output" if n < 4 else "blocks.0.mlp.output"
    left = why.without(output)
    lost = [1 - left.held / left.score, 1 - left.ablated / left.score]
    answers.append([*lost, share_on_path(output), interactions[n, parts.index(READER)]])

print(f"\nWhat head {READER} at the end looks at {clean.tokens.symbols[attended]} for\n")
names = ["in the sum", "lost without it", "path to keys", "interaction"]
print(attnlab.table(answers, rows=parts[:5], columns=names, decimals=2))

# %% [markdown]
# With the settings above, all four columns put MLP 0 first, and heads 0.0 and 0.1 have 0.14 at
# most. The columns disagree on head 0.2. It has 0.03 of the sum, and nothing of what the path
# carries. Yet 0.67 of the score is lost without it, and its interaction with head 1.2 is 1.28. The
# reason is that MLP 0 reads what head 0.2 writes: if only this path is cut, 0.65 is lost. So the
# sum and the path say what reaches the head directly. The ablation and the interaction say what the
# head depends on.

# %% [markdown]
# ## 18.7 Whose truth?
#
# The table is complete, but it too answers only one question: what follows if ablated parts write
# their means. What if they write 0 instead? Here are the Shapley values of the two MLPs, once with
# means and once with 0. The last column is the correlation between the ten parts' values by mean
# and by 0.

# %%
both = map(shapley_by_task, ABLATIONS)
mlp_columns = [parts.index("MLP 0"), parts.index("MLP 1")]
by_task = [
    [*by_mean[mlp_columns], *by_zero[mlp_columns], spearman(by_mean, by_zero)]
    for by_mean, by_zero in zip(*both, strict=True)
]

print("\n18.7 Ablation by mean, and by zero\n")
names = ["MLP 0, mean", "MLP 1, mean", "MLP 0, zero", "MLP 1, zero", "correlation"]
print(attnlab.table(by_task, rows=tasks, columns=names, decimals=2))

# %% [markdown]
# In seven tasks the order of the parts hardly depends on that choice, with correlations of 0.87 to
# 0.98; in `colours` the correlation is 0.64. Individual values differ more: in `weather` MLP 1 is
# worth 0.40 by mean and 2.27 by 0.
#
# `attnlab.patch` asks one of the table's questions of any texts: what is lost without each head?
# Here it asks this of the sentences of `TASK`. The means are `attnlab.averages` over all 48
# sentences.

# %%
averages = attnlab.averages(pocket, [each.clean for each in truth.sentences])
of_task = [each for each in truth.sentences if each.task == TASK]
all_clean = pocket.trace([each.clean for each in of_task])
all_corrupted = pocket.trace([each.corrupted for each in of_task])
targets = [(each.right, each.wrong) for each in of_task]
lost_by = []
for values in (averages, dict.fromkeys(averages, 0)):
    ablated = attnlab.patch(all_corrupted, all_clean, target=targets, with_=values, progress=False)
    lost_by.append(-ablated.effects.mean(axis=0).ravel())

print(f"\nWhat is lost without each head: {TASK}\n")
heads = [name for name in parts if name[0].isdigit()]
print(attnlab.table(np.transpose(lost_by), rows=heads, columns=ABLATIONS, decimals=2))

# %% [markdown]
# With the settings above, both ablations show that head 1.2 is needed: without it 5.47 and 5.59 are
# lost. Without head 0.2, 1.11 and 2.82 are lost. Later parts rely on what this head always writes;
# the mean leaves that in place, and the 0 takes it away. The losses with 0 are also in the table of
# subsets: it was computed once with means and once with 0.
#
# **What the truth can't tell.** The parts are whole heads and whole MLPs. The sentences are of
# eight kinds from a small grammar, six sentences of each kind; the standard errors are in
# `attnlab/pocket/TRUTH_CARD.md`. And no part was missing when the model was trained. So a model
# without a part is in a state that training never saw, whatever replaces the part.

# %% [markdown]
# ## 18.8 Predict, change, see
#
# **Exercise 1 (basic).** `TASK = "recital"`: random words are said twice, and the model has to
# continue the second round. Which two heads have the largest Shapley values, and how much does each
# of them do alone?
#
# <details><summary>Answer</summary>
#
# Head 0.1, the previous-token head, with 4.02, and head 0.2 with 2.08. The induction heads 1.2 and
# 1.3 follow with 1.79 and 1.50. Alone, the first two heads do next to nothing: 0.01 and 0.02. An
# induction head finds only what a previous-token head has marked.
#
# </details>
#
# **Exercise 2 (medium).** `WATCHED = "0.1"`. In one task patching says 0.07 for this head, and its
# Shapley value is 4.02. Which task is that, and why do the two numbers differ?
#
# <details><summary>Answer</summary>
#
# In `recital`. The two texts of a pair differ in the third word. The induction heads find the third
# word because the watched head wrote into its position which word comes before it. The word before
# it is the same in both texts, so patching changes next to nothing. In `colours`, patching says
# 11.24, and the head's Shapley value is 1.07.
#
# </details>
#
# **Exercise 3 (medium).** `FAITHFUL = 0.5`. How many parts will be needed for half of the effect in
# `pronoun`, and how many in `weather`?
#
# <details><summary>Answer</summary>
#
# `pronoun` still needs 4 parts: no three parts have half of the effect. `weather` needs 5 parts
# instead of 9: a few parts have half of the effect, and the rest of it is spread over all parts.
#
# </details>
#
# **Exercise 4 (hard).** `TASK = "gift"`, `WATCHED = "1.2"`. The Shapley value of this head is
# negative. Where does this head attend in `pocket.trace(sentence.clean)`, and where in
# `sentence.corrupted`? Why does patching say almost nothing?
#
# <details><summary>Answer</summary>
#
# The Shapley value is -2.35, and patching says -0.01. In both sentences the last token attends to
# the first name, and the head makes that name more probable. The first name is the wrong answer in
# one sentence and the right one in the other. Patching changes next to nothing, since the head does
# the same in both. The best subset leaves this head out and has 18.55; all parts have 10.57.
#
# </details>

# %% [markdown]
# ## 18.9 Write your own
#
# The table is computed with one step: attention in which some heads write their means.
#
# **Task 1 (medium).** `context` is what each head writes, (H, T, Dh); `is_kept` (H,) says which
# heads are kept, and `replacement` (H, 1, Dh) has the means. Return the new `context` and the
# layer's `output`.


# %%
def my_ablation(
    context: Array, is_kept: Array, replacement: Array, W_O: Array, b_O: Array
) -> dict[str, Array]:
    raise NotImplementedError


# %%
print("\n18.9 Your own ablation")
trace, path, kept_heads = pocket.trace(sentence.clean), "blocks.1.attention", is_kept[5:9]
layer = trace.blocks[1].attention
contexts = np.concatenate([other.blocks[1].attention.context for other in others], axis=-2)
head_means = contexts.mean(axis=-2, keepdims=True)
edited = trace.edited(
    {f"{path}.context": np.where(kept_heads[:, None, None], layer.context, head_means)}
)
after = edited.blocks[1].attention
print(checked(after, my_ablation, layer.context, kept_heads, head_means, layer.W_O, layer.b_O))

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# `np.where(condition, a, b)` takes `a` where the condition is true and `b` elsewhere. Here a head's
# condition holds for all of its T x Dh numbers.
#
# <details><summary>Hint 2</summary>
#
# `is_kept` has the shape (H,). With `is_kept[:, None, None]` it is (H, 1, 1) and fits (H, T, Dh),
# as `replacement` does.
#
# <details><summary>Hint 3</summary>
#
# The heads' rows side by side are (T, H Dh): swap the first two axes, then reshape. Multiply by
# `W_O` and add `b_O`.
#
# <details><summary>Solution</summary>
#
# [`my_ablation`](book/solutions/chapter_18.py)
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
# * Parts of a model work together: what one does alone, and what is lost without it, don't add up.
# * Shapley values share out the whole effect; interactions say which parts need each other.
# * With all subsets, the smallest circuits are known; there may be several, or no small one.
# * Methods that agree with each other may share a blind spot.
# * Patching asks what carries a difference, ablation asks what is needed, and both depend on what
#   replaces a part.
