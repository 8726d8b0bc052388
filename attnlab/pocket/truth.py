"""The effect of every subset of the pocket model's parts, as a ground truth for methods.

`open_truth` opens the table in truth.npz, see TRUTH_CARD.md.

The ten parts are the eight heads and the two MLPs. The model ran 48 sentences with each of the
1,024 subsets of parts. The other parts were ablated: their outputs were replaced by 0, or by their
means over all positions of other texts.
"""

from __future__ import annotations

import json
from math import factorial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnlab.equations import AnyArray
from attnlab.steps import read_only
from attnlab.support.checks import check_choice

FILE = Path(__file__).parent / "truth.npz"

# The parts, in the order of the forward pass.
PARTS = ("0.0", "0.1", "0.2", "0.3", "MLP 0", "1.0", "1.1", "1.2", "1.3", "MLP 1")
ABLATIONS = ("zero", "mean")


class Sentence(NamedTuple):
    """A sentence, and a corrupted sentence that continues with another token."""

    task: str  # such as "pronoun"
    clean: str
    corrupted: str  # has as many tokens as the clean text
    right: str  # the next token of the clean text
    wrong: str  # the next token of the corrupted text


class Truth(NamedTuple):
    """The table of all subsets, as `open_truth` returns it.

    Attributes
    ----------
    sentences : the sentences, 6 for each of 8 tasks
    tasks : names of the tasks
    parts : names of the 10 parts, layer.head or MLP
    table : float32 (2, 48, 1024, 2). The axes are: ablation by zero or by mean; the sentence; the
        subset kept, in whose number bit n is 1 if it has part n; and two measures, the logit of
        the right token minus that of the wrong one, and the right token's log-probability
    scores : float64 (4, 8, 10), of each task and part by four methods: patching, attribution
        patching, and edge attribution patching (EAP, and EAP-IG of 5 steps), summed by part
    """

    sentences: tuple[Sentence, ...]
    tasks: tuple[str, ...]
    parts: tuple[str, ...]
    table: NDArray[np.float32]
    scores: NDArray[np.float64]

    def values(self, task: str, ablation: str = "mean") -> NDArray[np.float64]:
        """The difference of logits for each sentence of a task and each subset, (sentences, 1024).

        The ablation is "mean" or "zero". `table` also has log-probabilities.
        """
        check_choice(task, self.tasks, "task")
        check_choice(ablation, ABLATIONS, "ablation")
        rows = [n for n, sentence in enumerate(self.sentences) if sentence.task == task]
        return self.table[ABLATIONS.index(ablation), rows, :, 0].astype(np.float64)


def open_truth() -> Truth:
    """Open the table that comes with attnlab."""
    with np.load(FILE, allow_pickle=False) as file:
        metadata = json.loads(str(file["about"]))
        sentences = tuple(Sentence(*fields) for fields in metadata["sentences"])
        tasks = tuple(dict.fromkeys(sentence.task for sentence in sentences))
        return Truth(sentences, tasks, PARTS, read_only(file["table"]), read_only(file["scores"]))


def shapley_values(v: AnyArray) -> NDArray[np.float64]:
    """Shapley values (..., n): each part's mean effect over all orders in which parts are added.

    φ_i = Σ s! (n - s - 1)! / n! · (v(S with i) - v(S)) over all subsets S without i, where S has s
    parts. The values φ_i sum to v(all) - v(none).

    v (..., 2ⁿ) is the value of each subset; bit i of a subset's number says whether it contains i.

    Source: Shapley, “A Value for n-Person Games” (1953)

    Examples
    --------
    >>> shapley_values(open_truth().values("pronoun")).mean(axis=0)
    """
    n, subsets, values = int(np.log2(v.shape[-1])), np.arange(v.shape[-1]), []
    for i in range(n):
        without = subsets[subsets >> i & 1 == 0]  # the subsets whose bit i is 0
        effects = v[..., without | 1 << i] - v[..., without]
        values.append(effects @ order_weights(without, n))
    return np.stack(values, axis=-1)


def order_weights(subsets: NDArray[np.int64], n: int) -> NDArray[np.float64]:
    """The fraction of all orders of n parts that start with each subset and then one given part."""
    sizes = [subset.bit_count() for subset in subsets.tolist()]
    return np.array([factorial(s) * factorial(n - s - 1) / factorial(n) for s in sizes])
