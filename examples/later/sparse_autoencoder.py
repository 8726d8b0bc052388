# %% [markdown]
# # Sparse autoencoder: a vector as a sum of a few features
#
# A token's vector in the residual stream holds many things at once, and no column of it means
# anything alone. A **sparse autoencoder** (SAE: Bricken and others, 2023; Cunningham and others,
# 2023) learns directions, the **features**, a few of which add up to nearly any vector. Here we
# train one between the two blocks of the pocket model. For other models
# [SAELens](https://github.com/decoderesearch/SAELens) trains them, and has trained ones.

# %%
import numpy as np

import attnlab
from attnlab.equations import Array
from attnlab.pocket.held_out import samples
from attnlab.support.console import prepare_script

prepare_script()  # print on any terminal, and into pipes

TEXT, TOKEN = "The dog chased the ball, but it", -1
PATH = "blocks.0.output"  # the vectors to take apart
FEATURES, ACTIVE = 256, 8  # how many there are, and how many one vector uses
STEPS, BATCH, RATE = 300, 512, 0.003

model = attnlab.GPT2.from_pretrained("pocket")
traces, others = (
    model.trace([sample.text for sample in texts])
    for texts in (samples()[100:700], samples()[:100])  # to train on, to measure with
)
vectors = np.concatenate([attnlab.at(trace, PATH) for trace in traces]).astype(float)
center = vectors.mean(axis=0)

# %% [markdown]
# ## Training
#
# The activations are the largest numbers of ReLU((x - center) W_enc + b_enc), and 0 elsewhere
# ("topk": Gao and others, 2024); x̂ = activations W_dec + center. The loss is the mean of ‖x -
# x̂‖². Its gradients are the chain rule, and each step is Adam's (Kingma and Ba, 2015): a running
# mean of the gradients, divided by their usual size. Rows of W_dec keep length 1, so that an
# activation is a length.

# %%
rng = np.random.default_rng(0)
W_dec = rng.normal(size=(FEATURES, len(center)))
W_dec /= np.linalg.norm(W_dec, axis=1, keepdims=True)
W_enc, b_enc = W_dec.T.copy(), np.zeros(FEATURES)


def encode(x: Array) -> Array:
    """The features' activations, (T, D) -> (T, FEATURES)."""
    z = (x - center) @ W_enc + b_enc
    is_largest = z >= np.partition(z, -ACTIVE, axis=1)[:, [-ACTIVE]]
    return np.where(is_largest, np.maximum(z, 0), 0)


# %%
parameters = W_enc, b_enc, W_dec
means, squares = ([np.zeros_like(array) for array in parameters] for _ in range(2))
for step in range(1, STEPS + 1):
    batch = vectors[rng.integers(len(vectors), size=BATCH)]
    activations = encode(batch)
    d_out = 2 / BATCH * (activations @ W_dec + center - batch)  # of the loss, by x̂
    d_z = (d_out @ W_dec.T) * (activations > 0)
    gradients = (batch - center).T @ d_z, d_z.sum(axis=0), activations.T @ d_out
    for array, gradient, mean, square in zip(parameters, gradients, means, squares, strict=True):
        mean += 0.1 * (gradient - mean)
        square += 0.001 * (gradient**2 - square)
        size = np.sqrt(square / (1 - 0.999**step)) + 1e-8
        array -= RATE * mean / (1 - 0.9**step) / size
    W_dec /= np.linalg.norm(W_dec, axis=1, keepdims=True)

# %% [markdown]
# ## What the features find, and what the model does with them
#
# First comes the fraction of the variance that x̂ explains on other texts. The model also uses the
# rest, the **error**. Then come one token's features: where each is most active, and what follows
# without it, by an edit that subtracts only what the feature adds. Another seed gives other
# features; none need have one meaning.

# %%
ids = np.concatenate([trace.ids for trace in others])
x = np.concatenate([attnlab.at(trace, PATH) for trace in others])
found = encode(x)
explained = 1 - np.square(x - center - found @ W_dec).sum() / np.square(x - x.mean(axis=0)).sum()
print(f"{ACTIVE} of {FEATURES} features explain {explained:.2f} of the variance")
trace = model.trace(TEXT)
print(trace.next_tokens(2))
for feature in np.argsort(-encode(attnlab.at(trace, PATH))[TOKEN])[:3]:
    strongest = ids[np.argsort(-found[:, feature])[:5]]
    print(f"\nfeature {feature}, on{model.tokenizer.decode(strongest)}; without it")
    without = {PATH: lambda x, f=feature: x - encode(x)[:, [f]] * W_dec[f]}
    print(trace.edited(without).next_tokens(2))
