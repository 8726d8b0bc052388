"""Record the logits that transformers computes from the directories of the models in the package.

    python tests/reference/make_built_in.py

Needs torch and transformers, see README.md beside this file. Writes `pocket.npz`, `english.npz`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from transformers import GPT2LMHeadModel, GPT2TokenizerFast

HERE = Path(__file__).parent
PACKAGE = HERE.parent.parent / "attnlab"
PROMPTS = {
    "curly": "It’s very hot in summer. Swimming is",
    "straight": "It's very hot in summer. Swimming is",
}

# About this many logits of each token are recorded: every one of the pocket model's.
LOGITS = 500


def main() -> None:
    for name in ("pocket", "english"):
        tokenizer = GPT2TokenizerFast.from_pretrained(PACKAGE / name)
        model = GPT2LMHeadModel.from_pretrained(PACKAGE / name, dtype=torch.float64).eval()
        every = max(1, model.config.vocab_size // LOGITS)
        recorded = {}
        for spelling, prompt in PROMPTS.items():
            ids = tokenizer.encode(prompt)
            with torch.no_grad():
                logits = model(torch.tensor([ids])).logits[0, :, ::every].numpy()
            recorded |= {f"{spelling}.ids": np.array(ids), f"{spelling}.logits": logits}
        np.savez_compressed(HERE / f"{name}.npz", **recorded)


if __name__ == "__main__":
    main()
