"""Train the pocket model's sparse autoencoder, sparse_autoencoder/.

python -m attnlab.pocket.autoencoder DIRECTORY
"""

from __future__ import annotations

import sys

import numpy as np

from attnlab.analysis.autoencoder import SparseAutoencoder
from attnlab.errors import AttnlabError
from attnlab.model.gpt2 import GPT2
from attnlab.model.traces import Traces
from attnlab.pocket.grammar import HELD_OUT_SEED
from attnlab.pocket.lens import HELD_OUT, texts_of
from attnlab.training.sparse_autoencoder import sparse_autoencoder

# Between the blocks: what block 0 found out, and all that block 1 reads.
PATH = "blocks.0.output"

# Other texts than those of the model's training, of the lens and of the measures.
SEED, SAMPLES = 8, 4_000

# A feature detects a token if this share of all its activation is on it.
DETECTS = 0.9


def make(directory: str) -> str:
    """Train the autoencoder and write it; returns its measures on texts that it hasn't seen."""
    model = GPT2.from_pretrained("pocket")
    sae = sparse_autoencoder(model, texts_of(SEED, SAMPLES), PATH)
    sae.save(directory)
    traces = model.trace(texts_of(HELD_OUT_SEED, HELD_OUT))
    of_token, of_previous = detectors(sae, traces)
    return (
        f"{sae.evaluate(traces)}\n"
        f"{len(of_token)} features detect one token: {of_token}\n"
        f"{len(of_previous)} others detect one previous token: {of_previous}"
    )


def detectors(sae: SparseAutoencoder, traces: Traces) -> tuple[list[int], list[int]]:
    """The features that are active on one token, or after one token, see DETECTS."""
    places = [
        (before, here, activations)
        for trace in traces.in_groups()
        for before, here, activations in zip(
            (-1, *trace.ids), trace.ids, trace.features(sae).activations, strict=False
        )
    ]
    before, here, rows = (np.array(one) for one in zip(*places, strict=True))
    total, found = rows.sum(axis=0), []
    for ids in (here, before):
        largest = np.max([rows[ids == id].sum(axis=0) for id in np.unique(ids)], axis=0)
        found.append(np.flatnonzero((largest >= DETECTS * total) & (total > 0)).tolist())
    of_token, of_previous = found
    return of_token, [one for one in of_previous if one not in of_token]


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m attnlab.pocket.autoencoder DIRECTORY")
    try:
        print(make(sys.argv[1]))
    except AttnlabError as error:
        sys.exit(str(error))
