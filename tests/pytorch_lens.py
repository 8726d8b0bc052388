"""The tuned lens's loss and gradients, and what it reads, compared with PyTorch's.

    python tests/pytorch_lens.py DIRECTORY

needs torch.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import cross_entropy, kl_div, layer_norm

import attnlab
from attnlab.training.tuned_lens import TunedLens, fingerprint, loss_and_gradients

directory = Path(sys.argv[1])
model = attnlab.GPT2.from_pretrained(directory, dtype="float64")
D, vocab = model.config.n_embd, model.config.vocab_size
rng = np.random.default_rng(0)
texts = rng.integers(0, vocab, (3, 8)).tolist()
traces = model.trace(texts)
whole, _ = traces.side_by_side([0, 1, 2])
W, b = rng.normal(size=(D, D)) * 0.1, rng.normal(size=D) * 0.1


def read(x: np.ndarray, W: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    stream = torch.tensor(x)
    gain, bias = torch.tensor(whole.gain), torch.tensor(whole.bias)
    final = layer_norm(stream + stream @ W + b, (D,), gain, bias, whole.epsilon)
    return final @ torch.tensor(whole.W_U)


right = torch.tensor(whole.logits).log_softmax(-1)
for stop in ("embedding", "blocks.1.output"):
    x = attnlab.at(whole, stop)
    theirs = [torch.tensor(array, requires_grad=True) for array in (W, b)]
    logits = read(x, *theirs)
    loss = kl_div(logits.log_softmax(-1), right, reduction="none", log_target=True)
    loss = loss.sum(-1).mean()
    loss.backward()
    ours = loss_and_gradients(whole, x, W, b, right.exp().numpy())
    for mine, wanted in zip(
        ours, (loss.detach(), *(parameter.grad for parameter in theirs)), strict=True
    ):
        np.testing.assert_allclose(mine, wanted, rtol=0, atol=1e-10)
    lens = TunedLens({stop: (W, b)}, fingerprint(traces[0]))
    np.testing.assert_allclose(lens.logits(whole, stop), logits.detach(), rtol=0, atol=1e-10)
    losses = lens.losses(model, texts)
    row = losses.stops.index(stop)
    for kind, read_there in enumerate((logits, read(x, 0 * theirs[0], 0 * theirs[1]))):
        wanted = [
            cross_entropy(text_logits[:-1], torch.tensor(ids[1:])).item()
            for text_logits, ids in zip(read_there, texts, strict=True)
        ]
        np.testing.assert_allclose(losses.each[kind, row], wanted, rtol=0, atol=1e-10)
