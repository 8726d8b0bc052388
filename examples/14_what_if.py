# %% [markdown]
# # 14. What if
#
# > Afterwards you can say: “A head's weights don't tell me what it is needed for; changing
# > something does. I know four tools for that, and what each of them can't tell.”
#
# Weights show what a head attends to. They don't show what it is needed for ([chapter
# 7](07_heads_that_learned.py) has a head that attends to nothing in particular, yet is
# indispensable). For that you have to change something and see what follows. This chapter does so
# on the pocket model, with four tools: edits, the logit lens, attribution, and patching. Each
# answers one question, and is easily mistaken for the answer to another. So each section ends with
# what the tool can't tell.
#
# The findings hold for the pocket model and these texts. The tools work the same on GPT-2.
#
# * **Objective**: Use four tools on a trained model, and say what each of them can't tell.
# * **Before this**: [chapter 7](07_heads_that_learned.py) and [chapter
#   8](08_a_tokens_journey.py). This is an advanced chapter.
# * **Time**: about 50 minutes, exercises included.
# * **Misconception**: "What the logit lens doesn't show, the model doesn't know." The lens reads
#   in the directions of the vocabulary alone.

# %%
from typing import Any

import numpy as np

import attnlab
from attnlab import pictures
from attnlab.checking import checked
from attnlab.equations import Array, affine
from attnlab.support.console import prepare_script
from attnlab.support.tables import align

prepare_script()  # print on any terminal, and into pipes

TEXT = "The dog chased the ball, but it"
OTHER = "The cat chased the ball, but it"  # with as many tokens
SOUNDS = " barked", " meowed"  # what distinguishes the two texts

pocket = attnlab.GPT2.from_pretrained("pocket")
print(pocket)

trace = pocket.trace(TEXT)
first, second = words = trace.next_tokens(2)

print(f"\nWhat follows: {TEXT}\n")
print(words)

# %% [markdown]
# ## 14.1 Edit a step
#
# `trace.edited({path: value})` runs the same text with one step changed. The path names the step;
# the value is an array, a number, or a function of the original value. What comes before the edit
# is shared with the trace, what depends on it is recomputed.
#
# Head 2 of layer 1 attends to the dog. What if it wrote nothing (**zero ablation**)? If it wrote
# its mean over other texts (**mean ablation**)? If it could not see the dog (`mask`)? If it had to
# attend to the ball?

# %%
HEAD = 1, 2
MEANS = [
    "The cat chased the kite, but it",
    "The frog found the bell, but it",
    "The owl watched the drum, and it",
    "The hen touched the coin, but it",
]

head, path = trace.head(*HEAD), "blocks.{}.attention.heads.{}".format(*HEAD)
symbols = trace.tokens.symbols
attended = int(head.weights[-1].argmax())  # the dog
other_key = int(trace.head(1, 0).weights[-1].argmax())  # the ball, which head 0 attends to


# %%
mean_context = np.mean([pocket.trace(text).head(*HEAD).context[-1] for text in MEANS], axis=0)
blinded_mask = head.mask.copy()
blinded_mask[-1, attended] = len(symbols) == 1  # a query must see something
moved_weights = head.weights.copy()
moved_weights[-1] = np.arange(len(symbols)) == other_key

edits = {
    "no edit": {},
    "context 0": {f"{path}.context": 0},
    "context of other texts": {f"{path}.context": mean_context},
    f"{symbols[attended]} hidden": {f"{path}.mask": blinded_mask},
    f"all weight on {symbols[other_key]}": {f"{path}.weights": moved_weights},
}


# %%
def print_predictions(trace: attnlab.Trace, edits: dict[str, dict[str, Any]]) -> None:
    """Print the most probable next tokens with each edit."""
    lines = []
    for name, edit in edits.items():
        best = trace.edited(edit).next_tokens(3)
        lines.append([name, *(f"{word.symbol} {word.probability:.2f}" for word in best)])
    print(align(lines, left=range(4)))


print("\n14.1 Edit a step\n")
print_predictions(trace, edits)

# %% [markdown]
# With the text above, either ablation loses the dog and keeps the ball: `Ġbarked` is gone. With all
# of the head's weight on the ball it gets worse: the model says `Ġhissed`, though there is no
# snake. The head's `W_V` and `W_O` have learned what to do with animals. Training never tested them
# on a ball.
#
# With the mean of other texts the head writes what it usually writes, and nothing about this text.
# Is that the same as a 0? For this head it was the same. Now take head 2 of layer 0, which in
# chapter 7 attends to the first token and to nothing else.

# %%
SINK_HEAD = 0, 2
CREATURE = "A fluffy blue creature"
SIMILAR = ["A sleepy red king", "A hungry small frog", "A late green teacher"]

context_path = "blocks.{}.attention.heads.{}.context".format(*SINK_HEAD)
similar_mean = np.mean(
    [pocket.trace(text).head(*SINK_HEAD).context[-1] for text in SIMILAR], axis=0
)

print(f"\nWhat follows: {CREATURE}\n")
print_predictions(
    pocket.trace(CREATURE),
    {"all heads": {}, "zero": {context_path: 0}, "mean": {context_path: similar_mean}},
)

# %% [markdown]
# With the texts above, a 0 costs everything, and the mean costs nothing. The head writes the same
# for all of these texts, so it found out nothing about this one. Later parts rely on what it writes
# as on a bias, and the 0 takes that away.
#
# **What an edit can't tell.** It answers "what if", for a state that the model may never be in. The
# further an edited step is from anything in training, the less it says about how the model works.
# So try a mean before you trust a 0.

# %% [markdown]
# [Edits in the playground](book/pages/en/guide.md#explore
# "playground.html#layer=1&head=2&query=7&ablate=1.2"). Head 1.2 is ablated. Press × to restore the
# head, and compare the sentences and the next words. The bar under each head says how much more or
# less probable the first of the next words becomes without that head. Silence the head with the
# longest bar: which word comes first instead?

# %% [markdown]
# ## 14.2 The logit lens
#
# The residual stream has the same width at every layer, and at the end LayerNorm and `W_U` turn it
# into logits ([`logits`](../attnlab/equations.py)). That can be done at an earlier point too: what
# would the model predict if it stopped there? `attnlab.lens(trace)` says this, here for the last
# token.

# %%
lens = attnlab.lens(trace)

print("\n14.2 The logit lens, at the last token\n")
print(lens.top(4).table())
probabilities = {word.symbol: lens.of(word.id).probabilities[:, -1] for word in words}
pictures.curves(probabilities, x_name="point of the residual stream", y_name="probability")

# %% [markdown]
# With the text above, the stream first says `Ġit`, its own token: `W_U` is the token embedding's
# matrix, so a vector that has hardly changed reads as its own token. After layer 0 the stream is
# undecided, and some animal sounds appear. Then the attention of layer 1 brings the answer
# (`blocks.1.mid`), `Ġrolled` at first, and the MLP of layer 1 brings `Ġbarked` up beside it.
#
# **What the lens can't tell.** It reads only the directions that matter at the end. It misses
# whatever is written in other directions. (A [tuned lens](later/tuned_lens.py) learns to translate
# them.) Take the position of the animal: does the model know about barking there?

# %%
position = attended

print(f"\nRank and probability of {SOUNDS[0]!r} at {symbols[position]}\n")
try:
    sound_lens = lens.of(SOUNDS[0])
    for n, point in enumerate(sound_lens.stops):
        rank, chance = sound_lens.ranks[n, position], sound_lens.probabilities[n, position]
        print(f"  {point:<18}#{rank:<5}{chance:.4f}")
except attnlab.AttnlabError as error:
    print(error)

# %% [markdown]
# Among 979 tokens the sound is far from the top at every layer: the lens sees no barking at `Ġdog`.
# But 14.4 shows that all the information about it is right there after layer 0. **Not seen by the
# lens does not mean not known.**

# %% [markdown]
# ## 14.3 Attribution
#
# The residual stream is a sum: embedding, heads, MLPs, biases
# ([`residual`](../attnlab/equations.py)). A logit is the product of that sum with a column of
# `W_U`, once the last LayerNorm's scale is held fixed. So the logit is a sum too, to which each
# part contributes. `attnlab.attribution(trace, (a, b))` gives the contributions to the difference
# between two words' logits.

# %%
attribution = attnlab.attribution(trace, (first.id, second.id))

print(f"\n14.3 What puts {first.symbol} above {second.symbol}\n")
print(attribution.table())
attribution.plot()

# %% [markdown]
# With the text above, heads 0 and 1 of layer 1 favour `Ġrolled` by 3.12 and 1.26, head 2 favours
# `Ġbarked` by 3.88: the first two attended to the ball, the last to the dog. The parts add up to
# 0.23, and `e^0.23` is 1.26, which is 0.54 / 0.43, the ratio of the two probabilities.
#
# But what does the MLP of layer 0 know, with its 2.22? Nothing about dogs and balls. In chapter 7
# the vector of "it" after layer 0 is the same whatever the nouns are. Try texts with other nouns:

# %%
OTHERS = [
    TEXT,
    OTHER,
    "The lion wanted the cake, and it",
    "The king was chased by the girl, but it",
]

print(f"\nThe MLP of layer 0, in what puts {first.symbol} above {second.symbol}\n")
for text in OTHERS:
    print(
        f"  {attnlab.attribution(pocket.trace(text), (first.id, second.id)).mlps[0]:6.2f}  {text}"
    )

# %% [markdown]
# The MLP adds about the same in all of these texts: a constant of "it", which says nothing about
# this text.
#
# **What attribution can't tell.** It counts what a part writes directly to the logit, not its
# effect through later parts. So compare each contribution with what really happens to the
# difference when the part is ablated.


# %%
def difference(trace: attnlab.Trace) -> float:
    return float(trace.next_logits[first.id] - trace.next_logits[second.id])


parts = {}
for n in range(pocket.config.n_layer):
    for h in range(pocket.config.n_head):
        parts[f"layer {n} head {h}"] = (
            attribution.heads[n, h],
            f"blocks.{n}.attention.heads.{h}.context",
        )
    parts[f"layer {n} MLP"] = attribution.mlps[n], f"blocks.{n}.mlp.output"

effects = {}
for name, (contribution, context_path) in parts.items():
    edited = trace.edited({context_path: 0})
    effects[name] = [contribution, difference(trace) - difference(edited)]

columns = ["contribution", "lost if ablated"]
print("\nWhat each part writes, and what is lost without it\n")
print(attnlab.table([*effects.values()], rows=[*effects], columns=columns, decimals=2))

# %% [markdown]
# With the text above, the heads of layer 1 have a larger effect than what they write to the logit:
# the MLP after them amplifies it. And the MLP of layer 0, which seemed to favour `Ġrolled` by 2.22,
# shifts the difference by 6.85 the other way if ablated: without what it has written at the nouns,
# the heads of layer 1 do not find them.
#
# **Why does a head look where it looks?** That can be answered in the same way. What enters layer 1
# is a sum, and a score is the product of a query and a key. So once LayerNorm's deviation is held
# fixed, a score is a sum over pairs: a part of the query times a part of the key (Elhage et al.,
# 2021). The softmax sees only differences, so the mean of the row is subtracted. Which pair makes
# head 2 of layer 1 look at the dog: the words, their positions, or what layer 0 wrote, with its
# attention or with its MLP?

# %%
block, attention = trace.blocks[0], trace.blocks[1].attention
written = {
    "token": trace.token_embedding,
    "position": trace.position_embedding,
    "attention 0": block.attention.output,
    "MLP 0": block.mlp.output,
}
stream = trace.blocks[1].input
farthest = np.abs(np.sum([*written.values()], axis=0) - stream).max()
print(f"\nThe parts add up to the stream, to within {farthest:.0e}")

# %% [markdown]
# Five lines compute this sum. They apply LayerNorm to each part, with the deviation of the whole
# stream. Then they make the parts of the query and of the keys, and multiply each part of the query
# with each part of the keys.

# %%
deviation = np.sqrt(stream.var(axis=-1, keepdims=True) + trace.epsilon)
normed = [attention.gain * (p - p.mean(-1, keepdims=True)) / deviation for p in written.values()]
of_biases = affine(attention.bias, head.W_Q, head.b_Q)
queries = [*(p[-1] @ head.W_Q for p in normed), of_biases]
keys = [(p[attended] - p.mean(axis=0)) @ head.W_K for p in normed]  # the biases cancel
pairs = np.array([[q @ k for k in keys] for q in queries]) / head.scale

score = head.scores[-1, attended] - head.scores[-1].mean()
print(f"\nThe score of {symbols[attended]} minus the mean of its row: {score:.2f}")
print(f"The sum of these pairs: {pairs.sum():.2f}\n")
print(attnlab.table(pairs, rows=[*written, "biases"], columns=[*written], decimals=2))

# %% [markdown]
# With the text above, 7.16 of 7.55 come from what the MLP of layer 0 wrote at both words.
# `attnlab.why` does the same for every head and bias, and says the result in a sentence.
# `.open(part)` splits a head's part by the tokens that the head attends to, and so on down to the
# words.

# %%
why = attnlab.why(head, -1, attended)
print(f"\n{why.table()}")
why.plot()

# %% [markdown]
# **What the sum can't tell.** A part isn't a cause. `why.without(part)` says how much of the score
# is left without a part, in three ways. `held` leaves out the part's pairs, which is what the sum
# says. `recomputed` also computes LayerNorm again, since its deviation was smaller or larger
# because of the part. `ablated` sets the part to 0, so that all later parts change as well.

# %%
RECITAL = "Say: lamp two happy king blue. Again: lamp two happy"  # from chapter 7
MLP, PREVIOUS = "blocks.0.mlp.output", "blocks.0.attention.heads.1.output"

reciting = pocket.trace(RECITAL).head(*HEAD)
why_again = attnlab.why(reciting, -1, int(reciting.weights[-1].argmax()))

left = {
    "without MLP 0": why.without(MLP),
    "recital, without head 0.1": why_again.without(PREVIOUS),
}
print("\nWhat is left of a score without a part\n")
print(attnlab.table([*left.values()], rows=[*left], columns=why.without(MLP)._fields, decimals=2))

# %% [markdown]
# With the text above, the sum says that 0.05 of 7.55 is left without the MLP. With LayerNorm
# computed again, 0.99 is left: without the MLP the vector is shorter, so LayerNorm scales the rest
# up. (Only LayerNorm lies between this MLP and the head, so `ablated` is the same.) In the recital,
# head 2 does induction. According to the sum, 6.57 of 7.67 is left without head 1 of layer 0, which
# attends to the previous token. But if head 1 of layer 0 is ablated, -0.11 is left: the MLP reads
# what that head wrote, and passes it on. So the sum says what a score is made of, and an ablation
# says what it depends on.

# %% [markdown]
# ## 14.4 Patching
#
# **Activation patching** compares two texts that differ in one word, `TEXT` and `OTHER`: a dog, a
# cat. We measure the difference between the logits of their two sounds. Run `OTHER`, but put one
# part of the run of `TEXT` into it: how far does that move the answer, from the cat (0) to the dog
# (1)?

# %%
corrupted = pocket.trace(OTHER)


def patch_parts(parts: str, by_position: bool = False) -> Any:
    """What each part restores; None, and a line that says why, if these texts can't be patched."""
    try:
        return attnlab.patch(
            trace, corrupted, parts, target=SOUNDS, by_position=by_position, progress=False
        )
    except attnlab.AttnlabError as error:
        print(error)
        return None


print("\n14.4 Patching: layers down, heads across\n")
heads = patch_parts("blocks.*.attention.heads.*.context")
if heads:
    print(heads.table())
heads.plot() if heads else None

# %% [markdown]
# With the texts above, head 2 of layer 1 alone restores 0.99 of the difference. No other head
# affects which animal is chosen. Now patch the stream itself, at one position at a time, after each
# layer.

# %%
print("\nThe stream after each layer, at each position\n")
stream = patch_parts("blocks.*.output", by_position=True)
if stream:
    print(stream.table())
stream.plot() if stream else None

# %% [markdown]
# So the information takes this path: after layer 0 it is at the animal, and after layer 1 it is at
# "it". Head 2 has moved it. At the animal, where the lens saw no barking, all of the information is
# present.
#
# Swap the two texts, or change the things instead of the animals, and see whether the result is the
# same.
#
# **What patching can't tell.** A part that restores a lot is a part that the difference passes
# through. That need not be where the decision is made, and parts that only work together may each
# do nothing. What both texts have in common stays invisible: that there is an "it", and that an
# animal is asked for.

# %% [markdown]
# A patch brings in the other animal. An ablation only takes the text's own animal away. Ablate each
# head of `TEXT`, by 0 and by its mean over the texts of 14.1 (`attnlab.averages`): how far does
# that move the answer, from the dog (0) to the cat (1)?

# %%
averages = attnlab.averages(pocket, MEANS)
values_by: dict[str, Any] = {"by 0": dict.fromkeys(averages, 0), "by means": averages}
ablations = {}
for name, values in values_by.items():
    if heads:
        print(f"\nEach head ablated {name}\n")
        ablations[name] = attnlab.patch(
            corrupted, trace, target=SOUNDS, with_=values, progress=False
        )
        print(ablations[name].table())

# %% [markdown]
# With the texts above, ablating head 2 of layer 1 moves the answer by 0.45 and 0.43: without this
# head, the model prefers neither sound. No other head moves it by more than 0.10. Patching the head
# moved the answer by 0.99, since a patch brings the cat. Here 0 and the mean agree; for the head in
# the second table of 14.1, they don't.

# %% [markdown]
# ## 14.5 An estimate from one backward pass
#
# Patching runs the model once for each part. GPT-2 has 144 heads, and 144 heads at each of 12
# positions are 1,728 parts. Gradients say for all parts at once how the answer would change if a
# part changed a little. A part's gradient times its actual change estimates its effect:
# **attribution patching**.

# %%
print("\n14.5 The same heads, estimated\n")
estimate = None
if heads:
    estimate = attnlab.attribution_patch(trace, corrupted, target=SOUNDS)
    print(estimate.table())
estimate.plot() if estimate else None

# %% [markdown]
# With the texts above, the estimate finds the right head and says 0.82 where 0.99 was measured.
# **What the estimate can't tell** is what a large change does. Where softmax is saturated, a small
# change changes nothing, and a large change everything ([chapter
# 13](13_softmax_that_saturates.py)). Use the estimate to find where to look, and `attnlab.patch` to
# confirm.

# %% [markdown]
# ## 14.6 Four questions
#
# | tool | answers | is mistaken for |
# | --- | --- | --- |
# | edit | what follows if this step were different? | how the model does it |
# | logit lens | what would it say if it stopped here? | what it knows here |
# | attribution | what does this part write directly to the logit? | what this part is needed for |
# | `why` | which parts of the query and the key make this score? | what this score depends on |
# | patching | does the difference between two texts pass through here? | where it is decided |
#
# If two of these tools agree on a finding, trust it more than a strong finding from a single tool.

# %% [markdown]
# ## 14.7 Predict, change, see
#
# **Exercise 1 (medium).** Let the texts differ in the thing:
# `OTHER = "The dog chased the kite, but it"` and `SOUNDS = " rolled", " flew"`. Which heads will
# restore the thing? Is a single head enough?
#
# <details><summary>Answer</summary>
#
# Two heads are needed. Head 0 of layer 1 restores 0.75, head 1 restores 0.24: these two attended to
# the ball. After layer 0 the information is at `Ġkite` (0.98 restored), and after layer 1 it is at
# `Ġit`.
#
# </details>
#
# **Exercise 2 (medium).** Put the animal last: `TEXT = "The ball was chased by the dog, but it"`,
# and a cat for the dog in `OTHER`. What will the table of positions look like, and which head will
# carry the information?
#
# <details><summary>Answer</summary>
#
# After layer 0, patching restores 1.00 at `Ġcat`, now the seventh token. After layer 1 it restores
# 1.00 at `Ġit`. The same head carries the information and alone restores 1.00: what matters is
# which token it is, not its position.
#
# </details>
#
# **Exercise 3 (hard).** Take the mean of a single text,
# `MEANS = ["The cat chased the kite, but it"]`. Then `context of other texts` puts into our text
# what head 2 wrote in the other text. What will follow?
#
# <details><summary>Answer</summary>
#
# `Ġrolled` with 0.59 and `Ġmeowed` with 0.34 come first. The head carries the animal and not the
# thing: the ball stays, and the dog has become a cat. You have done activation patching by hand.
#
# </details>
#
# **Exercise 4 (medium).** Another question from chapter 7: `TEXT = "A fluffy blue creature"`,
# `OTHER = "A sleepy blue creature"`, `SOUNDS = " purred", " yawned"`. Does a single head carry the
# mood? Is the mood still at the adjective after layer 0?
#
# <details><summary>Answer</summary>
#
# Two heads carry the mood: head 3 of layer 1 restores 0.66, head 2 restores 0.26. After layer 0
# most of the mood, 0.90, is still at the adjective, but 0.11 is already at the noun. The estimate
# of 14.5 says 0.46 and 0.17: it finds the right heads, but says too little for both.
#
# </details>

# %% [markdown]
# **Task 1 (medium).** Write what `trace.edited` does to a layer when one head's context is 0: from
# the contexts of all heads, (H, T, Dh), return `context`, `concat` and `output`.


# %%
def my_ablation(context: Array, W_O: Array, b_O: Array, number: int) -> dict[str, Array]:
    raise NotImplementedError


# %%
print("\n14.7 Your own ablation")
attention = trace.blocks[HEAD[0]].attention
ablated = trace.edited({f"{path}.context": 0}).blocks[HEAD[0]].attention
print(checked(ablated, my_ablation, attention.context, attention.W_O, attention.b_O, HEAD[1]))

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Results are read-only, so copy first: `context.copy()`. Then one head's rows become 0:
# `context[number] = 0`.
#
# <details><summary>Hint 2</summary>
#
# `concat` has a row for each token, with the heads side by side: swap the first two axes, then
# `reshape(T, -1)`.
#
# <details><summary>Hint 3</summary>
#
# The output is `concat @ W_O + b_O`. The bias belongs to no head, so it stays.
#
# <details><summary>Solution</summary>
#
# [`my_ablation`](book/solutions/chapter_14.py)
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
# * An edit computes what follows if a step were different; try the mean of other texts before you
#   trust 0.
# * The logit lens reads the residual stream as if the model ended there.
# * Attribution splits a logit into what each part writes directly; `attnlab.why` splits a score.
# * Activation patching shows which parts the difference of two texts passes through; attribution
#   patching estimates that with one backward pass.
