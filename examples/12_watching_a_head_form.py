# %% [markdown]
# # 12. Watching a head form
#
# "q k z v q k": what comes next? You say z, since z came after k before. A head that does this is
# called an **induction head**. Two layers can grow one, one layer can't, and it comes all of a
# sudden. We train both from nothing on the same text, and look into their heads meanwhile.
#
# Each line of the text begins with random letters, all different, and says them again and again.
# Seven lines in ten have only two letters, the others 4 to 12. What comes first can't be known,
# what comes again can.
#
# Change any number, and run it again. What the text says about places and steps is so with the
# numbers below: another seed may grow its head elsewhere, later, or not at all.

# %%
import math

import numpy as np

import attnlab
from attnlab.console import prepare_script
from attnlab.equations import Array, Ids
from attnlab.tables import align
from attnlab.training import Training, train

prepare_script()  # for any terminal, and for pipes

LETTERS = "abcdefghijklmnopqrstuvwxyz"
rng = np.random.default_rng(0)


def line(period: int, length: int) -> Ids:
    """So many letters, as ids: the first few of them said over and over."""
    return np.resize(rng.permutation(26)[:period], length)


def lines(count: int) -> list[Ids]:
    """Seven in ten of two letters, the others of 4 to 12."""
    short = rng.random(count) < 0.7
    return [line(2, 6) if two else line(int(rng.integers(4, 13)), 24) for two in short]


corpus = np.concatenate(lines(8_000))
print("Some lines")
for some in lines(6):
    print(f"  {''.join(LETTERS[id] for id in some)}")

# %% [markdown]
# ## 12.1 What we watch
#
# 64 lines of ten random letters, said twice, on which nothing is trained. The loss on each half
# tells what a model knows. On the first half nobody can do better than about ln 26 = 3.26.
#
# And for each head: a letter in the second half has an earlier copy. How much of its weight goes to
# what stands 0, 1, 2, ... places after that copy? The letter that comes next stands at 1.
#
# The letters are ids and need no tokenizer. What a text's trace shows, a `ForwardPass` over ids
# shows under the same names, here for all 64 lines at once.

# %%
N = 10  # letters in a line that is said twice: 4 to 12
held_out = np.stack([line(N, 2 * N) for _ in range(64)])
asking = np.arange(N + 1, 2 * N - 2)  # places in the second half


def halves(forward: attnlab.ForwardPass) -> list[float]:
    """The loss on the first and on the second half of each line."""
    probabilities = attnlab.softmax(forward.logits[:, :-1])
    of_next = np.take_along_axis(probabilities, forward.ids[:, 1:, None], axis=-1)[..., 0]
    losses = -np.log(of_next)
    return [float(losses[:, : N - 1].mean()), float(losses[:, N:].mean())]


def looks_at(forward: attnlab.ForwardPass, layer: int, shift: int) -> Array:
    """For each head, its mean weight on what stands `shift` places from the asking letter."""
    weights = forward.blocks[layer].attention.weights  # (64, H, T, T)
    mean: Array = weights[:, :, asking, asking + shift].mean(axis=(0, 2))
    return mean


def after_the_copy(forward: attnlab.ForwardPass, layer: int) -> Array:
    """(H, 5): each head's mean weight 0 to 4 places after the earlier copy."""
    return np.stack([looks_at(forward, layer, places - N) for places in range(5)], axis=1)


# %% [markdown]
# ## 12.2 Training
#
# `watch` is called after each step. It looks at the held-out lines, and at `qkzvmqkzvm`.

# %%
STEPS, EVERY, HEADS = 2000, 100, 2
SAID = "qkzvmqkzvm"
SHOWN = np.array([[LETTERS.index(letter) for letter in SAID]])
history: dict[int, list[list[float]]] = {1: [], 2: []}
shown: dict[int, Array] = {}  # the weights of layer 1 on SHOWN, at some steps


def watch(run: Training) -> None:
    """What is seen at one step."""
    if run.step != 1 and run.step % EVERY:
        return
    forward = attnlab.ForwardPass(held_out, run.parameters)
    layer = run.config.n_layer - 1
    best = float(after_the_copy(forward, layer)[:, 1:].max())
    previous = float(looks_at(forward, 0, -1).max())
    history[run.config.n_layer].append([run.step, *halves(forward), best, previous])
    if run.config.n_layer == 2:
        small = attnlab.ForwardPass(SHOWN, run.parameters)
        shown[run.step] = small.blocks[1].attention.weights[0]


runs = {}
for n_layer in (1, 2):
    config = attnlab.GPT2Config(
        vocab_size=26, n_positions=24, n_embd=32, n_layer=n_layer, n_head=HEADS
    )
    runs[n_layer] = train(
        config,
        corpus,
        steps=STEPS,
        learning_rate=1e-2,
        decay=0.01,
        seed=1,
        watch=watch,
        progress=False,
    )

print(f"\n12.2 Loss on the first and the second half (ln 26 = {math.log(26):.2f})")
halves_of = ("one layer: first", "second", "two layers: first", "second")
cells = [["step", *halves_of, "weight*", "previous*"]]
for one, two in zip(history[1], history[2], strict=True):
    numbers = [f"{value:.2f}" for value in [*one[1:3], *two[1:]]]
    cells.append([f"{one[0]:.0f}", *numbers])
print(align(cells, left=()))
print("weight*    layer 1's largest on one place, 1 to 4 after the earlier copy")
print("previous*  layer 0's largest on the token before")

# %% [markdown]
# For hundreds of steps the two go side by side: they learn the lines of two letters, and nothing
# about the second half. (On the first half they lose more than 3.26, since they bet on such lines.)
# Layer 0 has its **previous-token head** early: in `ababab` the next letter is the one before.
# Then, within some two hundred steps, layer 1 finds its place, and the loss on the second half
# falls. One layer never gets there.
#
# ## 12.3 The head, before, while and after it forms
#
# It counts as forming when a quarter of its weight goes to one place.

# %%
forward = attnlab.ForwardPass(held_out, runs[2].parameters)
table = after_the_copy(forward, 1)
best_head, places = divmod(int(table.argmax()), table.shape[1])
forming = [step for (step, _, _, best, _) in history[2] if best > 0.25]
if not forming:
    print("\nNo head has formed: the tables below show what there is.")
half = len(SAID) // 2
for step in sorted({1, *map(int, forming[:1]), max(shown)}):
    print(f"\n12.3 Layer 1, head {best_head}, after step {step}: the second {SAID[half:]} looks at")
    print(attnlab.table(shown[step][best_head, half:], rows=SAID[half:], columns=SAID, decimals=2))

print("\nThe heads of layer 1: mean weight so many places after the earlier copy")
names = [f"head {h}" for h in range(HEADS)]
print(attnlab.table(table, rows=names, columns=range(table.shape[1]), decimals=2))
print(f"Most: head {best_head}, {places} after the copy")

# %% [markdown]
# Look at the second k. A textbook's induction head looks at the z after the earlier k. This one
# looks one place further, at v! How does it know the place, and what does it want there?
#
# ## 12.4 What layer 0 has written there
#
# Each head of layer 0 looks back by a fixed number of places. What it finds it writes into the
# residual stream, so that layer 1 reads at each token also the letters that stood there.

# %%
back = np.stack([looks_at(forward, 0, -distance) for distance in range(5)], axis=1)
print("\n12.4 The heads of layer 0: mean weight so many places back")
print(attnlab.table(back, rows=names, columns=range(back.shape[1]), decimals=2))

# %% [markdown]
# So v holds a note "before me: z", which is what comes next: layer 1's V reads it. To see what the
# weight hangs on, we replace one letter near the earlier copy by one that the line doesn't have,
# and look at the same query and key again.

# %%
q = N + N // 2
after = {"nothing": forward}
for where, name in {-1: "before the copy", 0: "the copy", 1: "1 after", 2: "2 after"}.items():
    changed = held_out.copy()
    for ids in changed:
        ids[q - N + where] = np.setdiff1d(np.arange(26), ids)[0]
    after[name] = attnlab.ForwardPass(changed, runs[2].parameters)
rows = []
for edited in after.values():
    weight = float(edited.blocks[1].attention.weights[:, best_head, q, q - N + places].mean())
    probabilities = attnlab.softmax(edited.logits[:, q])
    right = np.take_along_axis(probabilities, edited.ids[:, q - N + 1, None], axis=-1)
    rows.append([weight, float(right.mean())])
print(
    "\nOne letter replaced: the head's weight, and the probability of what stands 1 after the copy"
)
print(attnlab.table(rows, rows=list(after), columns=["weight", "probability"], decimals=2))

# %% [markdown]
# The weight hangs on the letter *before* the copy, three places before v. The key of v carries the
# note "three before me: q", the query of k the note "before me: q", and the two fit. (The second
# q finds nothing to fit: before the first q there is no letter.) Queries and keys that are made of
# what an earlier layer's heads wrote: that is **composition** (of keys, K-composition, and of
# queries, Q-composition).
#
# ## 12.5 Why one layer can't
#
# In layer 0 a key is made of its own letter and its place, nothing else. z's key can't tell that k
# came before it, whatever W_K is. Replace the letter before a token, and layer 0's key of the token
# stays the same to the last bit. Layer 1's doesn't.

# %%
j = q - N + places
print(f"\n12.5 The letter {places + 1} before a token is replaced: its key changes by at most")
for layer in (0, 1):
    K, K_edited = (f.blocks[layer].attention.K for f in (forward, after["before the copy"]))
    print(f"  layer {layer}   {np.abs(K[:, :, j] - K_edited[:, :, j]).max():.2f}")

one, two = history[1][-1], history[2][-1]
print(f"\nAt the end   {'one layer':>9}  {'two layers':>10}")
print(f"second half  {one[2]:9.2f}  {two[2]:10.2f}   nats")
print(f"best head    {one[3]:9.2f}  {two[3]:10.2f}   of the weight in one place after the copy")
