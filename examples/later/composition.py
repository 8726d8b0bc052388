# %% [markdown]
# # Composition: what heads can read and write
#
# A head's matrices say what it can do in any text ([chapter 9](../09_counting_parameters.py)): QK =
# W_Q W_Kᵀ decides which vectors attend to which, OV = W_V W_O what is written when they do. If a
# later head reads what a head writes, the two can work together: they **compose** (Elhage and
# others, 2021). Here we look for such pairs in the pocket model.

# %%
from typing import Any

import numpy as np

import attnlab
from attnlab import Head, Trace
from attnlab.equations import Array, affine, layer_norm
from attnlab.support.console import prepare_script

prepare_script()  # print on any terminal, and into pipes

KIND, PAIRS = "K", 6  # Q, K or V, and how many pairs to show
LAYER, HEAD, TOKEN, SHOWN = 1, 2, " dog", 5  # of the tokens below

model = attnlab.GPT2.from_pretrained("pocket")
trace = model.trace("The")  # any text: only parameters are used

# %% [markdown]
# ## Composition scores
#
# The later head reads with QK for its queries (Q-composition), with QKᵀ for its keys (K), and with
# OV for its values (V). The score is ‖OV · reads‖ / (‖OV‖ ‖reads‖), where ‖M‖ is the root of the
# sum of squares. It is 0 if nothing is read, and about 1 / √D for random matrices. LayerNorm comes
# before each head: it subtracts the mean, a product with C, and multiplies by its gain. Both are
# multiplied into the matrices. Its division by the deviation depends on the text and is left out.


# %%
def composition(trace: Trace, kind: str) -> Array:
    """The score of each head with each head of a later layer, (L, H, L, H); 0 for others."""
    L, H, D = trace.config.n_layer, trace.config.n_head, trace.config.n_embd
    C, scores = np.eye(D) - 1 / D, np.zeros((L, H, L, H))
    written: dict[tuple[int, int], Any] = {}  # OV of each head so far
    for n, block in enumerate(trace.blocks):
        norm = C * block.attention.gain
        for h, head in enumerate(block.attention.heads):
            QK, OV = norm @ head.QK @ norm.T, norm @ head.OV @ C
            read = {"Q": QK, "K": QK.T, "V": OV}[kind]
            for (m, g), earlier in written.items():
                if m < n:
                    scores[m, g, n, h] = (earlier @ read).norm / (earlier.norm * read.norm)
            written[n, h] = OV
    return scores


scores = composition(trace, KIND)
strongest = np.argsort(-scores, axis=None, kind="stable")[:PAIRS]
for n, h, later, other in zip(*np.unravel_index(strongest, scores.shape), strict=True):
    print(f"{later}.{other} reads by {KIND} what {n}.{h} writes: {scores[n, h, later, other]:.3f}")
print(f"random matrices: {trace.config.n_embd**-0.5:.3f}")

# %% [markdown]
# In the first two pairs, the keys of the induction heads 1.2 and 1.3 read what head 0.1 writes,
# which attends to the previous token. A score says that a head can read this, not that it does.
#
# ## Tokens that a head reads and writes
#
# Let the stream be a token's row of W_E, without position or earlier blocks: the deeper the layer,
# the worse this approximation. Then QK gives a score to each pair of tokens, and OV what attending
# to a token adds to the logits (before the last LayerNorm's division).


# %%
def reads(head: Head, X: Array, token: int) -> Array:
    """The score of every token as a key, for one as the query; X has a row for every token."""
    return affine(X, head.W_K, head.b_K) @ affine(X[token], head.W_Q, head.b_Q) / head.scale


def writes(head: Head, X: Array, token: int) -> Array:
    """What the head adds to every logit when it attends to a token."""
    output = affine(X[token], head.W_V, head.b_V) @ head.W_O
    return (output - output.mean()) * trace.gain @ trace.W_U


attention = trace.blocks[LAYER].attention
X = layer_norm(trace.W_E, attention.gain, attention.bias, attention.epsilon)
for function in (reads, writes):
    numbers = function(attention.heads[HEAD], X, model.tokenizer.encode(TOKEN)[0])
    top = np.argsort(-numbers, kind="stable")[:SHOWN].tolist()
    words = (f"{model.tokenizer.decode([id])!r} {numbers[id]:.2f}" for id in top)
    print(f"{LAYER}.{HEAD} {function.__name__} for {TOKEN!r}: {', '.join(words)}")
