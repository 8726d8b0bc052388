"""Record gradients, AdamW's steps and a learning rate schedule from PyTorch and transformers.

    python tests/reference/make_training.py

Needs torch and transformers, see README.md beside this file. Writes `training.npz`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from transformers import GPT2LMHeadModel, get_cosine_with_min_lr_schedule_with_warmup

HERE = Path(__file__).parent
B, T = 5, 11

# Parameters recorded in full; of the others, every seventh number is recorded, to save space.
RECORDED_IN_FULL = ("bias", "ln_")


def gradients(recorded: dict[str, np.ndarray]) -> None:
    """Gradients of the loss of the model in `odd` over a batch, in float64."""
    model = GPT2LMHeadModel.from_pretrained(
        HERE / "odd", dtype=torch.float64, attn_implementation="eager"
    ).eval()
    rng = np.random.default_rng(11)
    ids = rng.integers(0, model.config.vocab_size, (B, T + 1))
    ids[:, 7] = ids[:, 2]  # rows of the embedding that are used twice
    rows = torch.tensor(ids)
    logits = model(rows[:, :-1]).logits
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
    loss.backward()
    recorded |= {"gradient.ids": ids, "gradient.loss": np.array(loss.item())}
    for name, parameter in model.named_parameters():  # W_U is W_E, which is listed once
        short = name.removeprefix("transformer.")
        stride = 1 if any(part in short for part in RECORDED_IN_FULL) else 7
        recorded[f"gradient.of.{short}"] = parameter.grad.numpy().ravel()[::stride]


def optimizer(recorded: dict[str, np.ndarray]) -> None:
    """Ten steps of AdamW on a matrix that decays and a bias that does not, gradients clipped."""
    rng = np.random.default_rng(13)
    matrix = torch.nn.Parameter(torch.tensor(rng.standard_normal((3, 5))))
    bias = torch.nn.Parameter(torch.tensor(rng.standard_normal(7)))
    groups = [{"params": [matrix], "weight_decay": 0.1}, {"params": [bias], "weight_decay": 0.0}]
    adam = torch.optim.AdamW(groups, lr=0.03, betas=(0.9, 0.95), eps=1e-8)
    schedule = get_cosine_with_min_lr_schedule_with_warmup(adam, 3, 10, min_lr_rate=0.1)
    all_gradients, norms, after, rates = [], [], [], []
    start = np.concatenate([p.detach().numpy().ravel().copy() for p in (matrix, bias)])
    for step in range(10):
        schedule.step()  # attnlab counts steps from 1
        gradient = rng.standard_normal(22) * (0.1 if step % 3 else 4.0)
        matrix.grad = torch.tensor(gradient[:15].reshape(3, 5))
        bias.grad = torch.tensor(gradient[15:])
        norm = torch.nn.utils.clip_grad_norm_([matrix, bias], 1.0)
        rates.append(adam.param_groups[0]["lr"])
        adam.step()
        all_gradients.append(gradient)
        norms.append(norm.item())
        after.append(np.concatenate([p.detach().numpy().ravel().copy() for p in (matrix, bias)]))
    recorded |= {
        "adamw.start": start,
        "adamw.gradients": np.array(all_gradients),
        "adamw.lengths": np.array(norms),
        "adamw.rates": np.array(rates),
        "adamw.after": np.array(after),
    }


def main() -> None:
    recorded: dict[str, np.ndarray] = {}
    gradients(recorded)
    optimizer(recorded)
    np.savez_compressed(HERE / "training.npz", **recorded)
    print(len(recorded), "arrays,", (HERE / "training.npz").stat().st_size, "bytes")


if __name__ == "__main__":
    main()
