# %% [markdown]
# # Tuned lens: what a layer predicts, translated
#
# The **logit lens** ([chapter 14](../14_what_if.py)) decodes the residual stream after a block as
# if the block were the last one. But an early block may write in directions of its own. A **tuned
# lens** (Belrose and others, 2023) first translates each vector x to x + x W + b, and learns W and
# b for each block. Here we train one between the two blocks of the pocket model. For other models
# [tuned-lens](https://github.com/AlignmentResearch/tuned-lens) trains them, and has trained ones.

# %%
import numpy as np

import attnlab
from attnlab import Trace, equations
from attnlab.equations import Array
from attnlab.forward.gradients import layer_norm_gradient
from attnlab.pocket.held_out import samples
from attnlab.support.console import prepare_script

prepare_script()  # print on any terminal, and into pipes

TEXT = "The dog chased the ball, but it"
STOP, LAST = "blocks.0.output", "blocks.1.output"
STEPS, BATCH, RATE = 100, 256, 0.3

model = attnlab.GPT2.from_pretrained("pocket")
traces, others = (
    model.trace([sample.text for sample in texts])
    for texts in (samples()[50:450], samples()[:50])  # to train on, to measure with
)
X = np.concatenate([attnlab.at(trace, STOP) for trace in traces])
Q = np.concatenate([attnlab.softmax(trace.logits) for trace in traces])  # what the lens learns
gain, bias, epsilon = traces[0].gain, traces[0].bias, traces[0].epsilon  # of the last LayerNorm
W_U, D = traces[0].W_U, X.shape[1]

# %% [markdown]
# ## Training
#
# W and b start at 0, where the tuned lens is the logit lens. The loss is the mean of Σ q log(q / p)
# over tokens, with q the model's own probabilities and p the lens's. Its gradient by the lens's
# logits is p - q; the rest is the chain rule. Each step is gradient descent with momentum: the
# parameters follow a fading sum of the gradients.

# %%
rng = np.random.default_rng(0)
W, b = np.zeros((D, D), X.dtype), np.zeros(D, X.dtype)
W_momentum, b_momentum = np.zeros_like(W), np.zeros_like(b)
for _ in range(STEPS):
    drawn = rng.integers(len(X), size=BATCH)
    x, q = X[drawn], Q[drawn]
    translated = x + equations.affine(x, W, b)
    p = attnlab.softmax(equations.layer_norm(translated, gain, bias, epsilon) @ W_U)
    d_final = (p - q) / BATCH @ W_U.T
    d_translated = layer_norm_gradient(translated, gain, epsilon, d_final)[0]
    gradients = x.T @ d_translated, d_translated.sum(axis=0)
    W_momentum, b_momentum = 0.9 * W_momentum + gradients[0], 0.9 * b_momentum + gradients[1]
    W, b = W - RATE * W_momentum, b - RATE * b_momentum

# %% [markdown]
# ## What it sees
#
# An edit puts the lens's vectors in the place of the last block's output, and the model decodes
# them. The first table has the cross-entropy of the next token on other texts: the tuned lens lies
# between the logit lens and the model, which has one more block. The second is of one text. There
# the logit lens still says "it". The tuned lens expects what an animal or a thing does, though not
# what this animal and this thing do: finding those is the next block's work. A lens may also
# predict from something that the model itself doesn't use: what it reads early need not be what
# later blocks read.


# %%
def decoded(trace: Trace, W: Array, b: Array) -> Trace:
    """The run with the lens's vectors as the last block's output."""
    x = attnlab.at(trace, STOP)
    return trace.edited({LAST: x + equations.affine(x, W, b)})


lenses = {"logit lens": (0 * W, 0 * b), "tuned lens": (W, b)}
runs = {name: [decoded(trace, *lens) for trace in others] for name, lens in lenses.items()}
losses = {
    name: np.mean([x.loss for x in run]) for name, run in (runs | {"the model": [*others]}).items()
}
print(attnlab.table([[loss] for loss in losses.values()], rows=[*losses], columns=["mean loss"]))
for name, lens in lenses.items():
    print(f"\n{name}\n{decoded(model.trace(TEXT), *lens).next_tokens(2)}")
