"""Patching of many pairs with transformers and hooks, compared with the library's.

    python tests/pytorch_traces.py DIRECTORY

needs torch and transformers.
"""

import sys
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from transformers import GPT2LMHeadModel

import attnlab

directory = Path(sys.argv[1])
theirs = GPT2LMHeadModel.from_pretrained(directory, attn_implementation="eager").double().eval()
ours = attnlab.GPT2.from_pretrained(directory, dtype="float64")
L, H = theirs.config.n_layer, theirs.config.n_head
Dh = theirs.config.n_embd // H

rng = np.random.default_rng(0)
clean = rng.integers(0, theirs.config.vocab_size, (7, 9))
corrupted = clean.copy()
corrupted[:4, 3] += 1  # two groups: by the first position that differs
corrupted[4:, 6] -= 1
corrupted %= theirs.config.vocab_size
targets = rng.choice(theirs.config.vocab_size, (7, 2))
targets[:, 1] = (targets[:, 0] + 1) % theirs.config.vocab_size


def measured(logits: Tensor) -> Tensor:
    last = logits[:, -1]
    return torch.stack([row[a] - row[b] for row, (a, b) in zip(last, targets, strict=True)])


contexts: dict[int, Tensor] = {}
layers = [block.attn.c_proj for block in theirs.transformer.h]


def keep(layer: int) -> object:
    def hook(_: object, inputs: tuple[Tensor]) -> None:
        contexts[layer] = inputs[0].clone()

    return layers[layer].register_forward_pre_hook(hook)


def patch(layer: int, head: int) -> object:
    def hook(_: object, inputs: tuple[Tensor]) -> tuple[Tensor]:
        context, columns = inputs[0].clone(), slice(head * Dh, (head + 1) * Dh)
        context[..., columns] = contexts[layer][..., columns]
        return (context,)

    return layers[layer].register_forward_pre_hook(hook)


with torch.no_grad():
    hooks = [keep(layer) for layer in range(L)]
    ends = [measured(theirs(torch.tensor(clean)).logits)]
    for hook in hooks:
        hook.remove()
    ends.append(measured(theirs(torch.tensor(corrupted)).logits))
    effects = np.empty((len(clean), L, H))
    for layer, head in np.ndindex(L, H):
        hook = patch(layer, head)
        effects[:, layer, head] = measured(theirs(torch.tensor(corrupted)).logits) - ends[1]
        hook.remove()

pairs = (ours.trace(side.tolist()) for side in (clean, corrupted))
metric = [tuple(map(int, pair)) for pair in targets]
found = attnlab.patch(*pairs, metric=metric, progress=False)
np.testing.assert_allclose(found.effects, effects, rtol=0, atol=1e-10)
np.testing.assert_allclose(found.clean, ends[0], rtol=0, atol=1e-10)
change = (ends[0] - ends[1]).numpy()
np.testing.assert_allclose(found.restored, effects.mean(axis=0) / change.mean(), atol=1e-10)

# The logit lens, and direct paths from heads to the logits.
received: list[Tensor] = []
hook = theirs.transformer.ln_f.register_forward_pre_hook(
    lambda _, inputs: received.append(inputs[0])
)
with torch.no_grad():
    hooks = [keep(layer) for layer in range(L)]
    theirs(torch.tensor(corrupted))
    before = dict(contexts)
    states = theirs(torch.tensor(clean), output_hidden_states=True).hidden_states
for one in (hook, *hooks):
    one.remove()


def decoded(stream: Tensor) -> Tensor:
    return theirs.lm_head(theirs.transformer.ln_f(stream))


streams = torch.stack([*states[:-1], received[1]])[:, :, -1]  # (L + 1, 7, D)
texts, tokens = ours.trace(clean.tolist()), targets[:, 0].tolist()
with torch.no_grad():
    probabilities = decoded(streams).softmax(-1)[:, range(7), tokens].numpy()
lens = attnlab.lens(texts, tokens)
stops = [lens.stops.index(stop) for stop in lens.stops if not stop.endswith("mid")]
close = partial(np.testing.assert_allclose, rtol=0, atol=1e-10)
close(lens.probabilities[stops], probabilities.mean(axis=1))
errors = probabilities.std(axis=1, ddof=1) / 7**0.5
close(lens.standard_errors["probabilities"][stops], errors)

written = torch.empty(L, H, *received[0].shape, dtype=torch.float64)
for layer, head in np.ndindex(L, H):
    columns = slice(head * Dh, (head + 1) * Dh)
    context = contexts[layer][..., columns] - before[layer][..., columns]
    written[layer, head] = (context @ layers[layer].weight[columns]).detach()
with torch.no_grad():
    along = [
        [measured(decoded(received[0] + x)) - ends[1] for x in of_layer] for of_layer in written
    ]
pairs = texts, ours.trace(corrupted.tolist())
paths = attnlab.path_patch(*pairs, metric=metric, progress=False)
close(paths.effects, np.moveaxis(np.array(along), -1, 0))
close(paths.restored, np.array(along).mean(axis=-1) / change.mean())
