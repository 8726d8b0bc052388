"""Train the pocket model's sparse autoencoder, sparse_autoencoder/.

python -m attnlab.pocket.autoencoder DIRECTORY
"""

from __future__ import annotations

import sys

from attnlab.analysis.features import FeatureEvaluation
from attnlab.errors import AttnlabError
from attnlab.model.gpt2 import GPT2
from attnlab.pocket.grammar import HELD_OUT_SEED
from attnlab.pocket.lens import HELD_OUT, texts_of
from attnlab.training.sparse_autoencoder import sparse_autoencoder

# Between the blocks: all that block 0 found out, and all that block 1's heads can read.
PATH = "blocks.0.output"

# Other texts than those of the model's training, of the lens and of the losses.
SEED, SAMPLES = 8, 4_000


def make(directory: str) -> FeatureEvaluation:
    """Train the autoencoder and write it; returns its measures on texts that it hasn't seen."""
    model = GPT2.from_pretrained("pocket")
    sae = sparse_autoencoder(model, texts_of(SEED, SAMPLES), PATH)
    sae.save(directory)
    return sae.evaluate(model.trace(texts_of(HELD_OUT_SEED, HELD_OUT)))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m attnlab.pocket.autoencoder DIRECTORY")
    try:
        print(make(sys.argv[1]))
    except AttnlabError as error:
        sys.exit(str(error))
