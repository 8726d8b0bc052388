# %% [markdown]
# # 12. Watching a head form
#
# > Afterwards you can say: “A model of two layers can learn to copy what followed the last time,
# > and it learns it suddenly; a model of one layer doesn't. The second layer uses what a
# > previous-token head in the first has written.”
#
# "q k z v m q k": what comes next? z, since z followed k before. A head that finds this is called
# an **induction head** ([chapter 7](07_heads_that_learned.py) has some). It isn't built in. A model
# of two layers can learn it, a model of one layer can't, and it appears suddenly. Here we train
# both from scratch, on the same text, and watch their heads while they learn.
#
# The training takes about 20 seconds on a laptop. Change any number and run the chapter again. What
# the text says about positions and steps holds for the numbers below: with another seed the head
# may appear elsewhere, later, or not at all, which is worth seeing too.
#
# * **Objective**: Train two small models and see when, and why, an induction head forms in one of
#   them.
# * **Before this**: [chapter 7](07_heads_that_learned.py) and [chapter
#   8](08_a_tokens_journey.py). This is an advanced chapter.
# * **Time**: about 40 minutes, exercises included.
# * **Misconception**: "Every induction head attends to the token after the earlier copy." The head
#   that forms here attends to the token after that.

# %%
import math
from functools import partial

import numpy as np

import attnlab
from attnlab import pictures
from attnlab.equations import Array, Ids
from attnlab.forward import ForwardPass
from attnlab.support.console import prepare_script
from attnlab.training import Training, train

prepare_script()  # print on any terminal, and into pipes

LETTERS = "abcdefghijklmnopqrstuvwxyz"
LINE = "qkzvmqkzvm"  # the line whose weights are shown
SHORT = 0.7  # fraction of lines with two letters
LONGEST = 12  # letters in the other lines: 4 to LONGEST
N = 10  # letters in the test lines: 4 to LONGEST
STEPS, EVERY = 1200, 50  # training steps, and how often we look
WIDTH, HEADS, RATE, SEED = 48, 2, 1e-2, 1

# %% [markdown]
# ## 12.1 The text
#
# Each line begins with random letters, all different, and repeats them again and again. Seven lines
# in ten have only two letters, the others 4 to 12. The first round can't be predicted. The
# repetitions can, from the earlier letters.

# %%
LONGEST = min(max(LONGEST, 4), 25)
N = min(max(N, 4), LONGEST)
T = 2 * LONGEST
rng = np.random.default_rng(0)


def line(period: int, length: int) -> Ids:
    """A line of letters as ids: the first `period` of them, repeated."""
    return np.resize(rng.permutation(26)[:period], length)


def lines(count: int) -> list[Ids]:
    """Lines, some of two letters, the others of 4 to LONGEST."""
    short = rng.random(count) < SHORT
    return [
        line(2, 6) if is_short else line(int(rng.integers(4, LONGEST + 1)), T) for is_short in short
    ]


corpus = np.concatenate(lines(8_000))
print("12.1 Some lines")
for ids in lines(6):
    print(f"  {''.join(LETTERS[id] for id in ids)}")

# %% [markdown]
# ## 12.2 What we watch
#
# We watch 64 lines of ten letters, repeated once, which are not in the training text. The letters
# are ids and need no tokenizer: a `ForwardPass` over ids shows what a text's trace shows, here for
# all 64 lines at once.
#
# * **The loss on each half** (the cross-entropy). On the first half no model can do better than
#   about ln 26 = 3.26. On the second half a model that looks back can come near 0.
# * **The heads of the last layer.** A letter of the second half has a copy in the first half. How
#   much weight goes to the token 0, 1, 2, ... positions after that copy? The letter that comes next
#   is at 1.
# * **The heads of layer 0.** How much weight goes to the previous token?

# %%
held_out = np.stack([line(N, 2 * N) for _ in range(64)])
query_positions = np.arange(N + 1, 2 * N - 2)  # positions in the second half
line_ids = [LETTERS.index(letter) for letter in LINE.lower() if letter in LETTERS][:T] or [0, 1]
letters = [LETTERS[id] for id in line_ids]


def half_losses(forward: ForwardPass) -> list[float]:
    """The loss on the first and on the second half of each line."""
    probabilities = attnlab.softmax(forward.logits[:, :-1])
    next_probabilities = np.take_along_axis(probabilities, forward.ids[:, 1:, None], axis=-1)[
        ..., 0
    ]
    losses = -np.log(next_probabilities)
    return [float(losses[:, : N - 1].mean()), float(losses[:, N:].mean())]


# %%
def mean_weight_at(forward: ForwardPass, layer: int, shift: int) -> Array:
    """For each head, its mean weight on the token `shift` positions from the query."""
    weights = forward.blocks[layer].attention.weights  # (64, H, T, T)
    mean: Array = weights[:, :, query_positions, query_positions + shift].mean(axis=(0, 2))
    return mean


def weights_after_copy(forward: ForwardPass, layer: int) -> Array:
    """(H, 5): each head's mean weight 0 to 4 positions after the earlier copy."""
    return np.stack([mean_weight_at(forward, layer, offset - N) for offset in range(5)], axis=1)


# %% [markdown]
# ## 12.3 Training
#
# `train` updates the parameters by **backpropagation** and gradient descent, and after each step it
# calls `watch`, which only looks.

# %%
history: dict[int, list[list[float]]] = {1: [], 2: []}  # step, losses, after copy, previous token
weights_at: dict[int, Array] = {}  # of layer 1 on the line LINE, at some steps
runs: dict[int, Training] = {}


def watch(run: Training) -> None:
    """Record what we watch at this step."""
    if run.step != 1 and run.step % EVERY and run.step != STEPS:
        return
    forward = ForwardPass(held_out, run.parameters)
    layer = run.config.n_layer - 1
    best = float(weights_after_copy(forward, layer)[:, 1:].max())
    previous = float(mean_weight_at(forward, 0, -1).max())
    history[run.config.n_layer].append([run.step, *half_losses(forward), best, previous])
    if layer == 1:
        line_pass = ForwardPass(np.array([line_ids]), run.parameters)
        weights_at[run.step] = line_pass.blocks[1].attention.weights[0]


# %%
training = partial(train, steps=STEPS, batch_size=24, learning_rate=RATE, decay=0.2, seed=SEED)
for n_layer in (1, 2):
    config = attnlab.GPT2Config(
        vocab_size=26, n_positions=T, n_embd=WIDTH, n_layer=n_layer, n_head=HEADS
    )
    runs[n_layer] = training(config, corpus, watch=watch, progress=False)


# %%
one_layer, two_layers = (np.array(history[n_layer]).T for n_layer in (1, 2))
recorded_steps = two_layers[0]
print(f"\n12.3 Loss in nats (ln 26 = {math.log(26):.2f})")
columns = ["1 layer: first half", "second half", "2 layers: first half", "second half"]
table = np.stack([one_layer[1], one_layer[2], two_layers[1], two_layers[2]], axis=1)
steps = [f"step {step:.0f}" for step in recorded_steps]
stride = max(1, len(steps) // 10)  # about ten of them are shown
print(attnlab.table(table[::stride], rows=steps[::stride], columns=columns, decimals=2))
pictures.curves(
    {"one layer": one_layer[2], "two layers": two_layers[2]},
    recorded_steps,
    x_name="training step",
    y_name="loss on the second half",
)

# %% [markdown]
# For hundreds of steps the two models behave alike: they learn the lines of two letters, and
# nothing about the second half of the test lines. (Their loss is above 3.26, since they predict
# such lines of two letters.) Then, within some two hundred steps, the loss of the two-layer model
# falls. The loss of the one-layer model never falls that far.
#
# What happened inside? The two curves below show the two-layer model.

# %%
pictures.curves(
    {"layer 0, previous token": two_layers[4], "layer 1, after the copy": two_layers[3]},
    recorded_steps,
    x_name="training step",
    y_name="largest weight of a head",
)

# %% [markdown]
# Layer 0 has a **previous-token head** early, since lines of two letters need one: in `ababab` the
# next letter is the previous one. From step 300 on the head gives the previous token about 0.95 of
# its weight or more. For another 300 steps nothing else uses it. Then a head of layer 1 finds the
# right position, and that is when the loss falls.
#
# ## 12.4 Before, during and after it forms
#
# Here is the same head of layer 1 at three moments, on the line `qkzvmqkzvm`: after the first step,
# when a quarter of its weight goes to one position, and at the end. Each row is a letter of the
# second half, and each column is a letter that this letter attends to. (With `SHORT = 0.0`, as in
# exercise 4, no head reaches a quarter in 1,200 steps: the middle moment is missing, and the rest
# of the chapter shows a head that hasn't formed.)

# %%
forward = ForwardPass(held_out, runs[2].parameters)
after_copy = weights_after_copy(forward, 1)
best_head = int(after_copy[:, 1:].max(axis=1).argmax())
offset = 1 + int(after_copy[best_head, 1:].argmax())
forming = [
    int(step) for step, weight in zip(recorded_steps, two_layers[3], strict=True) if weight > 0.25
]
moments = sorted({1, *forming[:1], STEPS})
half = len(line_ids) // 2
stages = np.vstack([weights_at[step][best_head, half:] for step in moments])
stage_rows = [f"step {step}: {letter}" for step in moments for letter in letters[half:]]
heads = [f"head {h}" for h in range(HEADS)]

print("\n12.4 The heads of layer 1: mean weight, by positions after the earlier copy")
print(attnlab.table(after_copy, rows=heads, columns=range(5), decimals=2))
print(f"\nMost: head {best_head}, {offset} after the copy, {after_copy[best_head, offset]:.2f}")
if not forming:
    print("No head has formed: what follows shows what there is.")
pictures.heatmap(stages, rows=stage_rows, columns=letters, title=f"layer 1, head {best_head}")

# %% [markdown]
# With the numbers above, both heads of layer 1 found the same position. Look at the second k. A
# textbook induction head attends to the z after the earlier k. This head attends to the token after
# that z, the v: layer 0 has written the z there too, so either token can supply the z, and training
# happened to find the v. The next sections show what is written there, and how the head finds it.
#
# ## 12.5 What layer 0 has written there
#
# Each head of layer 0 attends a fixed number of tokens back. It writes the letter at that place
# into the residual stream, so at each token layer 1 can also read those earlier letters.

# %%
weights_back = np.stack([mean_weight_at(forward, 0, -distance) for distance in range(5)], axis=1)
print("\n12.5 The heads of layer 0: mean weight, by positions back")
print(attnlab.table(weights_back, rows=heads, columns=range(5), decimals=2))

# %% [markdown]
# So v holds a note "before me: z", and z is what comes next: the value of v delivers it.
#
# ## 12.6 What the weight depends on
#
# This is an **ablation** of one letter at a time. Replace a letter near the earlier copy by one
# that the line doesn't have, and look at the same query and the same key again. Which letter must
# be there for the head to find the position?

# %%
query = N + N // 2  # a position in the middle of the second half
copy = query - N


def replace_letter(distance: int) -> ForwardPass:
    """The test lines with another letter `distance` positions after the copy."""
    ids = held_out.copy()
    for row in ids:
        row[copy + distance] = np.setdiff1d(np.arange(26), row)[0]
    return ForwardPass(ids, runs[2].parameters)


# %%
def effect(edited: ForwardPass) -> list[float]:
    """The head's weight on its position, and the probability of the letter after the copy."""
    weight = float(edited.blocks[1].attention.weights[:, best_head, query, copy + offset].mean())
    probabilities = attnlab.softmax(edited.logits[:, query])
    probability = np.take_along_axis(probabilities, edited.ids[:, copy + 1, None], axis=-1)
    return [weight, float(probability.mean())]


NEAR = {"before the copy": -1, "the copy": 0, "1 after": 1, "2 after": 2}
edits = {name: replace_letter(distance) for name, distance in NEAR.items()}
rows = [effect(forward), *(effect(edited) for edited in edits.values())]
print(
    "\n12.6 One letter replaced: weight on the position, probability of the letter after the copy"
)
print(attnlab.table(rows, rows=["nothing", *NEAR], columns=["weight", "probability"], decimals=2))

# %% [markdown]
# It is the letter *before* the copy, three positions before v. In 12.5 one head of layer 0 attends
# one token back, the other head three tokens back. So the key of v carries the note "three before
# me: q", the query of k carries the note "before me: q", and the two match. (The second q finds no
# match: there is no letter before the first q.) Here queries and keys are made from what an earlier
# layer's heads wrote. That is **composition** (of keys, K-composition, and of queries,
# Q-composition).
#
# ## 12.7 Why one layer can't
#
# In layer 0 a key, a row of [`K`](../attnlab/equations.py), depends on its own letter and position,
# and nothing else. The key of z can't tell that k came before z, whatever W_K is. Replace the
# letter before a token, and the token's key in layer 0 stays the same to the last bit. Its key in
# layer 1 does not stay the same.

# %%
key_at = copy + offset
changes = []
for layer in (0, 1):
    K, K_edited = (f.blocks[layer].attention.K for f in (forward, edits["before the copy"]))
    changes.append(float(np.abs(K[:, :, key_at] - K_edited[:, :, key_at]).max()))

print(f"\n12.7 The letter {offset + 1} before a token is replaced: its key changes by at most")
for layer, change in enumerate(changes):
    print(f"  layer {layer}   {change:.2f}")

# %% [markdown]
# A head of a one-layer model can know *which* letters a line has, since every letter that it sees
# brings its own value. The head can't know which of the letters came after the k. For that, one
# head must have written "before me: k" on a token, and then another head must look for this note:
# two steps, two layers.
#
# ## 12.8 Predict, change, see
#
# **Exercise 1 (medium).** With a pencil, no program: a model that knows which ten letters a test
# line has, but not their order, gives each of them a tenth. What is its loss on the second half?
# Does one layer do as well?
#
# <details><summary>Answer</summary>
#
# The loss is -ln 0.1 = ln 10 = 2.30. The one-layer model ends at 3.3, not even that good. Most
# lines of its text have two letters, and the model predicts such lines.
#
# </details>
#
# **Exercise 2 (medium).** In 12.6 add `"2 before": -2` to `NEAR` and run the cell. What does the
# head do without that letter?
#
# <details><summary>Answer</summary>
#
# The head does the same as before: 0.9 of its weight is on the same position, as with nothing
# replaced. The key that it looks for says "three before me", which is one letter before the copy;
# that key has no information about earlier letters.
#
# </details>
#
# **Exercise 3 (medium).** Set `LINE = "qkzvmabqkzvmab"`, where the copies are seven tokens back
# instead of five. What does the second k attend to now?
#
# <details><summary>Answer</summary>
#
# It attends to the first v as before, with more than 0.6 of its weight. The head has not learned a
# distance. It looks for a letter, wherever that letter is.
#
# </details>
#
# **Exercise 4 (hard).** Set `SHORT = 1.0`, so that all lines have two letters. Then set
# `SHORT = 0.0`, so that no line has two. Which of the two curves in the second picture of 12.3
# rises, and what happens to the loss?
#
# <details><summary>Answer</summary>
#
# With 1.0 both heads of layer 0 become previous-token heads, which put all their weight on the
# previous token, and in layer 1 nothing forms: two letters need no more. On the test lines, which
# the model has never seen, it is confident and wrong: its loss on the second half rises far above
# 3.26. With 0.0 neither curve rises in 1,200 steps, and the loss of the two-layer model stays near
# 3.2. Without short lines nothing needs the previous letter, and without a note of the previous
# letter, layer 1 has nothing to read. The easy lines teach what the hard ones need.
#
# </details>

# %% [markdown]
# ## Summary
#
# * A model of two layers learns to copy, suddenly; a model of one layer does not.
# * First a previous-token head forms, which the easy lines need; the second layer then uses what
#   this head writes.
# * Computing queries and keys from what an earlier head wrote is called composition.
# * An ablation of one letter at a time shows what a weight depends on.
