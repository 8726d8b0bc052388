"""Record greedy continuations and sampling probabilities of Hugging Face transformers.

python tests/reference/make_generation.py    (after make_models.py, whose models it reads)

It writes beside itself ``generation.json`` (token ids and settings) and ``generation.npz``
(logits and probabilities in float64); README.md describes both.  A second run on one machine
writes the same bytes.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass

import torch
import transformers
from hooked import HERE, load_model
from make_models import MODELS, N_POSITIONS, Spec, make_vocabulary, save_arrays
from torch import Tensor, nn
from transformers import (
    GPT2LMHeadModel,
    LogitsProcessorList,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

VOCABULARY_SIZE = len(make_vocabulary())
PROMPT_LENGTHS = (1, 6)
LEAST_GAP = 1e-3  # between the best and the second best logit, so that float32 picks the same
LEAST_DISTINCT = 6  # ids in a continuation; most prompts lead to a few that repeat
COLUMN_STEP = 3  # every third logit is stored

TEMPERATURES = (0.5, 1.0, 2.0)
TOP_KS = (None, 1, 3, 7, 100)
TOP_PS = (None, 0.1, 0.5, 0.9, 1.0)


# --------------------------------------------------------------------- greedy continuations


@contextmanager
def recording_last(module: nn.Module) -> Iterator[list[Tensor]]:
    """Record the last position of a module's output in each forward pass.

    ``generate`` can return logits itself, but rounds them to float32.
    """
    record: list[Tensor] = []

    def keep(module: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> None:
        record.append(output[0, -1].clone())

    handle = module.register_forward_hook(keep)
    try:
        yield record
    finally:
        handle.remove()


@torch.no_grad()
def continue_greedily(model: GPT2LMHeadModel, prompt: Tensor) -> tuple[Tensor, Tensor]:
    """Return the ids that follow a prompt, up to the last position, and each one's logits."""
    with recording_last(model.lm_head) as record:
        ids = model.generate(
            prompt[None],
            attention_mask=torch.ones_like(prompt)[None],
            do_sample=False,
            max_length=N_POSITIONS,
            eos_token_id=None,
            pad_token_id=0,
        )[0]
    new, logits = ids[len(prompt) :], torch.stack(record)
    assert len(ids) == N_POSITIONS
    assert torch.equal(ids[: len(prompt)], prompt)
    assert torch.equal(logits.argmax(-1), new)
    return new, logits


def best_two(logits: Tensor) -> Tensor:
    """Return the largest and the second largest logit of each row."""
    return logits.topk(2).values


def draw_prompt(model: GPT2LMHeadModel, length: int, generator: torch.Generator) -> Tensor:
    """Draw prompts until one has a varied continuation without a close call."""
    while True:
        prompt = torch.randint(VOCABULARY_SIZE, (length,), generator=generator)
        new, logits = continue_greedily(model, prompt)
        best, second = best_two(logits).T
        if (best - second).min() > LEAST_GAP and len(new.unique()) >= LEAST_DISTINCT:
            return prompt


def make_continuations(spec: Spec, arrays: dict[str, Tensor]) -> list[dict[str, list[int]]]:
    """Return a model's prompts and continuations and add their logits to the arrays."""
    model = load_model(HERE / spec.name)
    generator = torch.Generator().manual_seed(2000 + spec.seed)
    continuations = []
    for n, length in enumerate(PROMPT_LENGTHS):
        prompt = draw_prompt(model, length, generator)
        new, logits = continue_greedily(model, prompt)
        arrays[f"greedy.{spec.name}.{n}.logits"] = logits[:, ::COLUMN_STEP]
        arrays[f"greedy.{spec.name}.{n}.best"] = best_two(logits)
        continuations.append({"prompt": prompt.tolist(), "new": new.tolist()})

    model.float()
    for continuation in continuations:
        new, _ = continue_greedily(model, torch.tensor(continuation["prompt"]))
        assert new.tolist() == continuation["new"], "float32 picks other ids"
    return continuations


# -------------------------------------------------------------------- sampling probabilities


@dataclass(frozen=True)
class Setting:
    """How to sample; None for what is not applied."""

    temperature: float
    top_k: int | None
    top_p: float | None

    def warpers(self) -> LogitsProcessorList:
        """Return transformers' own steps; ``check_order`` shows that they are generate's."""
        warpers = LogitsProcessorList()
        if self.temperature != 1:
            warpers.append(TemperatureLogitsWarper(self.temperature))
        if self.top_k is not None:
            warpers.append(TopKLogitsWarper(self.top_k))
        if self.top_p is not None and self.top_p < 1:
            warpers.append(TopPLogitsWarper(self.top_p))
        return warpers

    def warp(self, logits: Tensor) -> Tensor:
        """Return the logits after all steps, -inf where they remove one."""
        no_ids = torch.empty(1, 0, dtype=torch.long)
        return self.warpers()(no_ids, logits[None])[0]


SETTINGS = [Setting(*values) for values in itertools.product(TEMPERATURES, TOP_KS, TOP_PS)]


@torch.no_grad()
def check_order(model: GPT2LMHeadModel) -> None:
    """Check each setting's steps against what ``generate`` itself makes of a model's logits."""
    prompt = torch.tensor([[1, 2, 3]])
    for setting in SETTINGS:
        output = model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            do_sample=True,
            max_new_tokens=1,
            pad_token_id=0,
            return_dict_in_generate=True,
            output_logits=True,
            output_scores=True,
            **asdict(setting),
        )
        assert torch.equal(output.scores[0][0], setting.warp(output.logits[0][0]))


def shuffled(values: list[float], generator: torch.Generator) -> Tensor:
    """Return the values in random order."""
    order = torch.randperm(len(values), generator=generator)
    return torch.tensor(values, dtype=torch.float64)[order]


def make_vectors() -> dict[str, Tensor]:
    """Return the logits to sample from, by name."""
    generator = torch.Generator().manual_seed(3000)

    def noise(size: int) -> Tensor:
        return 3 * torch.randn(size, generator=generator, dtype=torch.float64)

    dominated = noise(23)
    dominated[5] = 40.0
    # Equal are the first and second largest, the third to fifth, the seventh and eighth.
    tie_top_k = [4.5, 4.5, 3.25, 3.25, 3.25, 2.0, 0.75, 0.75, -0.5, -1.25, -2.0, -3.5, -6.0]
    return {
        "random_11": noise(11),
        "random_29": noise(29),
        "random_53": noise(53),
        "tie_top_k": shuffled(tie_top_k, generator),
        "tie_top_p": shuffled([2.0] * 3 + [1.0] * 4 + [0.0] * 6, generator),
        "tie_top_p_long": shuffled([2.0] * 7 + [1.0] * 9 + [0.0] * 15, generator),
        "dominated": dominated,
        "uniform": torch.full((16,), 1.25, dtype=torch.float64),
        "uniform_long": torch.full((19,), -0.75, dtype=torch.float64),
    }


def splits_tie(logits: Tensor, probabilities: Tensor) -> bool:
    """Return whether some of equal logits were kept and some removed."""
    kept = probabilities > 0
    return bool(torch.isin(logits[~kept], logits[kept]).any())


def make_probabilities(arrays: dict[str, Tensor]) -> None:
    """Add each vector's logits and its probabilities under all settings to the arrays."""
    for name, logits in make_vectors().items():
        rows = [setting.warp(logits).softmax(-1) for setting in SETTINGS]
        arrays[f"sampling.{name}.logits"] = logits
        arrays[f"sampling.{name}.probabilities"] = torch.stack(rows)
        arrays[f"sampling.{name}.splits_tie"] = torch.tensor(
            [splits_tie(logits, row) for row in rows]
        )


def main() -> None:
    """Write both files."""
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)  # the order of summation must not depend on the machine
    check_order(load_model(HERE / MODELS[0].name))

    arrays: dict[str, Tensor] = {}
    continuations = {spec.name: make_continuations(spec, arrays) for spec in MODELS}
    make_probabilities(arrays)

    save_arrays(HERE / "generation.npz", arrays)
    record = {"greedy": continuations, "settings": [asdict(setting) for setting in SETTINGS]}
    text = json.dumps(record, indent=1) + "\n"
    (HERE / "generation.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
