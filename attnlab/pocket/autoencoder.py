"""Train the pocket model's sparse autoencoder, sparse_autoencoder/.

    python -m attnlab.pocket.autoencoder DIRECTORY

The autoencoder reads x = blocks.0.output, the residual stream between the two blocks. On 300 texts
that neither the model nor the autoencoder was trained on, 8 of the 256 features are active on each
token, 5 features are never active, and the explained variance is 0.950. The cross-entropy in nats
per token, with x and with its replacements, is

    x, the model's own    1.233
    its reconstruction    1.304
    b_dec alone           8.886

What the features detect, judging by the tokens on which they are most active:

- 25 features detect one token, with at least 90 % of their activation on it: 129 " it", 224 " was".
  Some of these also need a context: 186 detects " the" after " chased", " wanted" or " found", and
  151 a comma after a place.
- 8 others are active after one token: 123 on animals after " the", 110 on colours after " was",
  and 4 on the first token of a text.
- Some detect words that the grammar treats alike: 248 activities, 232 weathers, 201 numbers, 246
  verbs such as " chased".
- Most of the rest have no meaning that can be put into words. About 60 are active on more than 3 %
  of the tokens, and none of these has a fifth of its activation on one token: words are spread over
  several features. 256 features aren't enough for the 345 tokens of these texts, and the words of
  recitals are random.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from attnlab.analysis.autoencoder import SparseAutoencoder
from attnlab.errors import AttnlabError
from attnlab.model.gpt2 import GPT2
from attnlab.model.traces import Traces
from attnlab.pocket.grammar import HELD_OUT_SEED
from attnlab.pocket.lens import HELD_OUT, texts_of
from attnlab.training.sparse_autoencoder import sparse_autoencoder

# The residual stream between the two blocks.
PATH = "blocks.0.output"

# For the training texts. The seed differs from the model's and from the held-out texts'.
SEED, SAMPLES = 8, 4_000

MIN_FRACTION = 0.9


def make(directory: str) -> str:
    """Train the autoencoder and write it; return its measures on held-out texts."""
    model = GPT2.from_pretrained("pocket")
    sae = sparse_autoencoder(model, texts_of(SEED, SAMPLES), PATH)
    sae.save(directory)
    traces = model.trace(texts_of(HELD_OUT_SEED, HELD_OUT))
    token_features, previous_features = detectors(sae, traces)
    return (
        f"{sae.evaluate(traces)}\n"
        f"{len(token_features)} features detect one token: {token_features}\n"
        f"{len(previous_features)} others detect one previous token: {previous_features}"
    )


def detectors(sae: SparseAutoencoder, traces: Traces) -> tuple[list[int], list[int]]:
    """The features that detect one token, and those that detect one previous token.

    A feature detects a token if at least `MIN_FRACTION` of its activation is on or after it.
    """
    rows = [
        (previous, current, activations)
        for trace in traces.in_groups()
        for previous, current, activations in zip(
            (-1, *trace.ids), trace.ids, trace.features(sae).activations, strict=False
        )  # -1 for the first token, which has no previous one
    ]
    previous, current, activations = map(np.array, zip(*rows, strict=True))

    def detectors_of(ids: Any) -> list[int]:
        total = activations.sum(axis=0)
        sums_by_id = [activations[ids == id].sum(axis=0) for id in np.unique(ids)]
        is_detector = (np.max(sums_by_id, axis=0) >= MIN_FRACTION * total) & (total > 0)
        features: list[int] = np.flatnonzero(is_detector).tolist()
        return features

    token_features = detectors_of(current)
    return token_features, [
        feature for feature in detectors_of(previous) if feature not in token_features
    ]


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m attnlab.pocket.autoencoder DIRECTORY")
    try:
        print(make(sys.argv[1]))
    except AttnlabError as error:
        sys.exit(str(error))
