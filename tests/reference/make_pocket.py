"""Record the logits that transformers computes from the pocket model's directory.

    python tests/reference/make_pocket.py

Needs torch and transformers, see README.md beside this file. Writes `pocket.npz`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from transformers import GPT2LMHeadModel, GPT2TokenizerFast

HERE = Path(__file__).parent
POCKET = HERE.parent.parent / "attnlab" / "pocket"
PROMPTS = {
    "curly": "It’s very hot in summer. Swimming is",
    "straight": "It's very hot in summer. Swimming is",
}


def main() -> None:
    tokenizer = GPT2TokenizerFast.from_pretrained(POCKET)
    model = GPT2LMHeadModel.from_pretrained(POCKET, dtype=torch.float64).eval()
    recorded = {}
    for name, prompt in PROMPTS.items():
        ids = tokenizer.encode(prompt)
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits[0].numpy()
        recorded |= {f"{name}.ids": np.array(ids), f"{name}.logits": logits}
    np.savez_compressed(HERE / "pocket.npz", **recorded)


if __name__ == "__main__":
    main()
