"""The loss and gradients of a sparse autoencoder, and what an edit does, compared with PyTorch's.

    python tests/pytorch_features.py DIRECTORY

needs torch.
"""

import sys
from pathlib import Path

import numpy as np
import torch

import attnlab
from attnlab.analysis.autoencoder import SparseAutoencoder
from attnlab.training.sparse_autoencoder import Weights, loss_and_gradients

directory = Path(sys.argv[1])
model = attnlab.GPT2.from_pretrained(directory, dtype="float64")
D, n, k = model.config.n_embd, 50, 6
rng = np.random.default_rng(0)
trace = model.trace(rng.integers(0, model.config.vocab_size, 9))
x = trace.blocks[1].output
parts = [rng.normal(size=shape) / 3 for shape in ((D, n), (n,), (n, D), (D,))]
weights = Weights(*parts)


def reconstructed(W_enc, b_enc, W_dec, b_dec, factors):  # type: ignore[no-untyped-def]
    z = (torch.tensor(x) - b_dec) @ W_enc + b_enc
    top = torch.topk(z, k)
    return torch.zeros_like(z).scatter(-1, top.indices, top.values.relu()) * factors @ W_dec + b_dec


theirs = [torch.tensor(array, requires_grad=True) for array in parts]
error = torch.tensor(x) - reconstructed(*theirs, torch.ones(n))
variance = torch.tensor(x).var(dim=0, correction=0).sum()
loss = error.square().sum(-1).mean() / variance
loss.backward()
mine, gradients = loss_and_gradients(x, weights, k, variance.item())
np.testing.assert_allclose(mine, loss.item(), rtol=1e-12)
for ours, their in zip(gradients, theirs, strict=True):
    np.testing.assert_allclose(ours, their.grad, rtol=0, atol=1e-10)

sae = SparseAutoencoder(*parts, architecture="topk", path="blocks.1.output", k=k)
features = trace.features(sae)
np.testing.assert_allclose(features.error, error.detach(), rtol=0, atol=1e-10)
feature = int(features.activations.sum(axis=0).argmax())
factors = torch.ones(n, dtype=torch.float64)
factors[feature] = 0.25
with torch.no_grad():
    stream = reconstructed(*theirs, factors) + error
edited = trace.edited(features.scaled(feature, 0.25))
np.testing.assert_allclose(edited.blocks[1].output, stream, rtol=0, atol=1e-10)
