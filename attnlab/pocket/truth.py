"""The effect of every subset of the pocket model's parts: ground truth for comparing methods.

`open_truth` opens the table in truth.npz, see TRUTH_CARD.md.

The ten parts are the eight heads and the two MLPs. For each of 48 sentences of the grammar, each of
the 1,024 subsets was kept while the other parts were ablated: their output was replaced by 0, or by
its mean over all positions of other texts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from math import factorial
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnlab.analysis.base import Analysis, named_axis
from attnlab.analysis.many import standard_error
from attnlab.equations import AnyArray
from attnlab.steps import read_only
from attnlab.steps.labels import Axis
from attnlab.support.checks import check_choice
from attnlab.support.document import Document
from attnlab.support.messages import Message
from attnlab.support.tables import Columns, Format, Heading, Table, header, listed

FILE = Path(__file__).parent / "truth.npz"

# The parts, in the order of the forward pass.
PARTS = ("0.0", "0.1", "0.2", "0.3", "MLP 0", "1.0", "1.1", "1.2", "1.3", "MLP 1")
ABLATIONS = ("zero", "mean")


class Sentence(NamedTuple):
    """A sentence to continue, and a corrupted one that another token continues."""

    task: str  # such as "pronoun"
    clean: str
    corrupted: str  # with as many tokens as the clean text
    right: str  # the next token of the clean text
    wrong: str  # the next token of the corrupted text


class Truth(Document):
    """The table of all subsets, as `open_truth` returns it.

    Attributes
    ----------
    sentences : the sentences, 6 for each of 8 tasks
    parts : names of the 10 parts, layer.head or MLP
    table : float32 (2, 48, 1024, 2): ablation by zero and by mean, sentence, subset kept (bit n of
        its number is part n), and the measures: the correct token's logit minus the wrong
        one's, and the correct token's log-probability
    scores : float64 (4, 8, 10): patching, attribution patching, and the sum of a part's edges by
        EAP and EAP-IG (5 steps), each in tasks and parts
    """

    table: NDArray[np.float32]  # type: ignore[assignment]  # elsewhere a method

    def __init__(
        self, sentences: Sequence[Sentence], table: NDArray[np.float32], scores: NDArray[np.float64]
    ) -> None:
        self.sentences, self.parts = tuple(sentences), PARTS
        self.table = read_only(table)  # pyright: ignore[reportIncompatibleMethodOverride]
        self.scores = read_only(scores)
        self.tasks = tuple(dict.fromkeys(sentence.task for sentence in self.sentences))

    def values(self, task: str, ablation: str = "mean") -> NDArray[np.float64]:
        """The difference of logits for each sentence of a task and each subset.

        (sentences, 1024); the ablation is by "mean" or "zero". `table` also has log-probabilities.
        """
        check_choice(task, self.tasks, "task")
        check_choice(ablation, ABLATIONS, "ablation")
        rows = [n for n, sentence in enumerate(self.sentences) if sentence.task == task]
        return self.table[ABLATIONS.index(ablation), rows, :, 0].astype(np.float64)

    def shapley(self, ablation: str = "mean") -> Shapley:
        """The Shapley value of each part in each task; see `Shapley`."""
        return Shapley(self, ablation)

    def pieces(self) -> Iterator[str | Table]:
        yield Heading(
            Message(
                "All {subsets} subsets of {parts} parts of the pocket model, in {sentences} "
                "sentences",
                subsets=f"{2 ** len(PARTS):,}",
                parts=len(PARTS),
                sentences=len(self.sentences),
            )
        )
        tasks = [sentence.task for sentence in self.sentences]
        firsts = [tasks.index(task) for task in self.tasks]
        shown = {name: [x[n] for n in firsts] for name, x in self._data().items()}
        yield listed(shown, self._shown)

    _shown: ClassVar[Mapping[str, Format]] = {"difference": ".2f"}

    def _data(self) -> Columns:
        tasks, clean, _, right, wrong = zip(*self.sentences, strict=True)
        differences = self.table[1, :, -1, 0]  # all parts kept
        columns = {"task": tasks, "sentence": clean, "expected": right, "wrong": wrong}
        return {**columns, "difference": differences}


def open_truth() -> Truth:
    """Open the table that comes with attnlab, such as for `open_truth().shapley()`."""
    with np.load(FILE, allow_pickle=False) as file:
        metadata = json.loads(str(file["about"]))
        sentences = [Sentence(*fields) for fields in metadata["sentences"]]
        return Truth(sentences, file["table"], file["scores"])


def shapley_values(v: AnyArray) -> NDArray[np.float64]:
    """Shapley values (..., n), which sum to v(all) - v(none), see `Shapley`.

    v (..., 2ⁿ) is the value of each subset; bit i of its number says whether it contains i.
    """
    n, subsets, values = int(np.log2(v.shape[-1])), np.arange(v.shape[-1]), []
    for i in range(n):
        without = subsets[subsets >> i & 1 == 0]
        values.append((v[..., without | 1 << i] - v[..., without]) @ order_weights(without, n))
    return np.stack(values, axis=-1)


def order_weights(subsets: NDArray[np.int64], n: int) -> NDArray[np.float64]:
    """The fraction of all orders of n parts that begin with each subset and then one other part."""
    sizes = [subset.bit_count() for subset in subsets.tolist()]
    return np.array([factorial(s) * factorial(n - s - 1) / factorial(n) for s in sizes])


class Shapley(Analysis):
    """The Shapley value of each part: its mean effect over all orders in which parts are added.

    φ_i = Σ_S s! (n - s - 1)! / n! · (v(S with i) - v(S)), over all subsets S without i, of s parts
    each, where v(S) is the measure when S is kept and the other parts are ablated

    Attributes
    ----------
    values : (tasks, parts), means over the task's sentences
    standard_errors : (tasks, parts), of the means
    each : (sentences, parts), the values of each sentence
    """

    meaning: ClassVar[str] = (
        "Each number is what a part adds to the difference of logits: the "
        "mean over all orders in which parts are added."
    )
    note: ClassVar[str] = (
        "A part that restores a lot in one subset and nothing in another has one value for both. "
        "Values depend on the ablation and on the sentences."
    )
    source: ClassVar[str] = (
        "Shapley, “A Value for n-Person Games” (1953); from every subset, so without sampling"
    )
    _number: ClassVar[str] = "value"

    def __init__(self, truth: Truth, ablation: str) -> None:
        self._tasks, self._parts = truth.tasks, truth.parts
        by_task = [shapley_values(truth.values(t, ablation)) for t in truth.tasks]
        self.title = Message("Shapley values, ablation by {ablation}", ablation=ablation)
        self.each = read_only(np.concatenate(by_task))
        self.values = read_only(np.stack([values.mean(axis=0) for values in by_task]))
        self.standard_errors = read_only(np.stack([standard_error(values) for values in by_task]))

    def _grid(self) -> tuple[AnyArray, Axis, Axis]:
        return self.values, named_axis("task", self._tasks), named_axis("part", self._parts)

    def _further_numbers(self) -> dict[str, AnyArray]:
        return {"standard_error": self.standard_errors}

    def _tables(self) -> Iterator[str | Table]:
        lines: list[tuple[str, ...]] = [(*header("task"), *self._parts)]
        for task, values, errors in zip(
            self._tasks, self.values, self.standard_errors, strict=True
        ):
            cells = (f"{x:.2f}±{e:.2f}" for x, e in zip(values, errors, strict=True))
            lines.append((task, *cells))
        yield Table(lines)
