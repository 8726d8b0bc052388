"""The effect of every subset of the pocket model's parts: ground truth for comparing methods.

    python -m attnlab.pocket.truth

This command computes the table of the sentences in truth.npz again, and writes it and TRUTH_CARD.md
next to this file, in about two minutes. `open_truth` opens the table.

The ten parts are the eight heads and the two MLPs. For each of 48 sentences of the grammar, each of
the 1,024 subsets is kept while the other parts are ablated: their output is replaced by 0, or by
its mean over all positions of other texts.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from math import factorial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnlab.analysis.base import Analysis, named_axis
from attnlab.analysis.gradients import gradients
from attnlab.analysis.lens import log_sum_exp
from attnlab.analysis.many import standard_error
from attnlab.analysis.patching import attribution_patch, patch
from attnlab.equations import AnyArray
from attnlab.errors import AttnlabError, InvalidValueError
from attnlab.model.gpt2 import GPT2
from attnlab.model.trace import Trace
from attnlab.model.traces import Traces
from attnlab.pocket.grammar import HELD_OUT_SEED, corpus
from attnlab.steps import at, read_only
from attnlab.steps.labels import Axis
from attnlab.support.checks import as_float, check_choice, check_kind
from attnlab.support.files import write_atomically
from attnlab.support.messages import Message
from attnlab.support.tables import Columns, Document, Format, Heading, Table, header, listed

DIRECTORY = Path(__file__).parent
FILE, CARD = DIRECTORY / "truth.npz", DIRECTORY / "TRUTH_CARD.md"

# The parts, in the order of the forward pass, and the paths of their outputs.
PARTS = ("0.0", "0.1", "0.2", "0.3", "MLP 0", "1.0", "1.1", "1.2", "1.3", "MLP 1")
OUTPUTS = [
    f"blocks.{layer}.{step}"
    for layer in range(2)
    for step in (*(f"attention.heads.{head}.output" for head in range(4)), "mlp.output")
]
SUBSETS = 2 ** len(PARTS)
ABLATIONS = ("zero", "mean")
MEASURES = ("difference", "log_probability")

TEXTS_FOR_MEANS = 200


class Sentence(NamedTuple):
    """A sentence to continue, and a corrupted one that another token continues."""

    task: str  # such as "pronoun"
    clean: str
    corrupted: str  # with as many tokens as the clean text
    right: str  # the next token of the clean text
    wrong: str  # the next token of the corrupted text


# ---- the table -----------------------------------------------------------------------------------


def kept_parts(subsets: Sequence[int] | NDArray[np.int64]) -> NDArray[np.bool_]:
    """A mask of the parts that each subset keeps, (subsets, 10); bit n of its number is part n."""
    return (np.asarray(subsets)[:, np.newaxis] >> np.arange(len(PARTS)) & 1).astype(bool)


def means(model: GPT2) -> dict[str, AnyArray]:
    """Mean head contexts and MLP outputs over all positions of held-out texts, by path."""
    texts = [sample.text for sample in corpus(HELD_OUT_SEED, TEXTS_FOR_MEANS).samples]
    activations: dict[str, list[AnyArray]] = {}
    for trace in model.trace(texts).in_groups():
        for layer in range(2):
            for name in ("attention.context", "mlp.output"):
                path = f"blocks.{layer}.{name}"
                activations.setdefault(path, []).append(at(trace, path))
    return {
        path: np.concatenate(arrays, axis=-2).mean(axis=-2, keepdims=True)
        for path, arrays in activations.items()
    }


def ablated(
    trace: Trace, kept: NDArray[np.bool_], replacements: dict[str, AnyArray] | None
) -> Trace:
    """A trace in which the outputs of parts that aren't kept, (10,), are 0, or replaced by path.

    The trace may be of n copies of a text with a leading axis; then `kept` is (n, 10).
    """
    edits: dict[str, Any] = {}
    for layer in range(2):
        kept_in_layer = kept[..., 5 * layer : 5 * layer + 5]  # four heads, then the MLP
        for path, mask in (
            (f"blocks.{layer}.attention.context", kept_in_layer[..., :4, np.newaxis, np.newaxis]),
            (f"blocks.{layer}.mlp.output", kept_in_layer[..., 4:, np.newaxis]),
        ):
            value = 0.0 if replacements is None else replacements[path]
            edits[path] = lambda x, mask=mask, value=value: np.where(mask, x, value)
    return trace.edited(edits)


def measures_of(trace: Trace, sentence: Sentence) -> AnyArray:
    """The difference of logits, and the log-probability of the correct token, (..., 2)."""
    words = (sentence.right, sentence.wrong)
    right, wrong = (trace.vocabulary.lookup(word).id for word in words)
    logits = trace.next_logits.astype(np.float64)
    differences = logits[..., right] - logits[..., wrong]
    return np.stack([differences, logits[..., right] - log_sum_exp(logits)], axis=-1)


def compute_table(model: GPT2, sampled: Sequence[Sentence]) -> NDArray[np.float32]:
    """Both measures for every subset, (2 ablations, sentences, 1024, 2 measures)."""
    kept, means_by_path = kept_parts(range(SUBSETS)), means(model)
    results = np.empty((2, len(sampled), SUBSETS, 2), np.float32)
    for number, sentence in enumerate(sampled):
        tokens = model.tokenizer.tokens(sentence.clean)
        batch, _ = model.trace([tokens] * SUBSETS).side_by_side(range(SUBSETS))
        for ablation, replacements in enumerate((None, means_by_path)):  # as in ABLATIONS
            results[ablation, number] = measures_of(ablated(batch, kept, replacements), sentence)
    return results


class Truth(Document):
    """The table of all subsets, as `open_truth` returns it.

    Attributes
    ----------
    sentences : the sentences, 6 for each of 8 tasks
    parts : names of the 10 parts, layer.head or MLP
    table : float32 (2, 48, 1024, 2): ablation by zero and by mean, sentence, subset kept (bit n of
        its number is part n), and the measures: the correct token's logit minus the wrong
        one's, and the correct token's log-probability
    scores : float64 (4, 8, 10): methods except removal, tasks, parts; see `Methods`
    """

    table: NDArray[np.float32]  # type: ignore[assignment]  # elsewhere a method

    def __init__(
        self, sentences: Sequence[Sentence], table: NDArray[np.float32], scores: NDArray[np.float64]
    ) -> None:
        self.sentences, self.parts, self.table = tuple(sentences), PARTS, read_only(table)
        self.scores = read_only(scores)
        self.tasks = tuple(dict.fromkeys(sentence.task for sentence in self.sentences))

    def values(self, task: str | None = None, ablation: str = "mean") -> NDArray[np.float64]:
        """The difference of logits for each sentence of a task, or of all, and each subset.

        (sentences, 1024); the ablation is by "mean" or "zero". `table` also has log-probabilities.
        """
        check_choice(task, (None, *self.tasks), "task")
        check_choice(ablation, ABLATIONS, "ablation")
        rows = [n for n, sentence in enumerate(self.sentences) if task in (None, sentence.task)]
        values = self.table[ABLATIONS.index(ablation), :, :, MEASURES.index("difference")]
        return values[rows].astype(np.float64)

    def shapley(self, ablation: str = "mean") -> Shapley:
        """The Shapley value of each part in each task; see `Shapley`."""
        return Shapley(self, ablation)

    def interactions(self, task: str | None = None, ablation: str = "mean") -> Interactions:
        """The Shapley interaction index of each pair of parts; see `Interactions`."""
        return Interactions(self, task, ablation)

    def circuits(
        self, task: str | None = None, faithfulness: float = 0.9, ablation: str = "mean"
    ) -> Circuits:
        """The smallest subsets with at least this faithfulness, each with its faithfulness.

        faithfulness(S) = (v(S) - v(none)) / (v(all) - v(none)), where v(S) is the mean difference
        of logits of the task's sentences when S is kept. It may exceed 1. All sufficiently faithful
        subsets of the smallest size are listed, the most faithful first.
        """
        faithfulness = as_float(faithfulness, "faithfulness", least=None)
        v = self.values(task, ablation).mean(axis=0)
        faithfulness_of = (v - v[0]) / (v[-1] - v[0])
        kept = kept_parts(range(SUBSETS))
        sizes, is_faithful = kept.sum(axis=1), faithfulness_of >= faithfulness
        if not is_faithful.any():
            raise InvalidValueError(
                f"no subset has faithfulness {faithfulness:g}; the highest is "
                f"{faithfulness_of.max():.3g}"
            )
        smallest = np.flatnonzero(is_faithful & (sizes == sizes[is_faithful].min()))
        return Circuits(
            (tuple(np.array(PARTS)[kept[subset]].tolist()), float(faithfulness_of[subset]))
            for subset in sorted(smallest, key=lambda subset: -faithfulness_of[subset])
        )

    def methods(self, model: GPT2 | None = None, ablation: str = "mean") -> Methods:
        """How well other methods rank the parts; with a model, their scores are computed again."""
        if model is None:
            return Methods(self, self.scores, ablation)
        check_kind(model, GPT2, "model")
        pocket = GPT2.from_pretrained("pocket", dtype=model.parameters.dtype)
        if not model.parameters.equals(pocket.parameters):
            raise InvalidValueError(
                "model must be the pocket model that comes with attnlab, since the table is of "
                f"that model; got a model {model.parameters.origin}"
            )
        return Methods(self, scores_of(model, self.sentences), ablation)

    def pieces(self) -> Iterator[str | Table]:
        yield Heading(
            Message(
                "All {subsets} subsets of {parts} parts of the pocket model, in {sentences} "
                "sentences",
                subsets=f"{SUBSETS:,}",
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


class Circuits(Document, tuple[tuple[tuple[str, ...], float], ...]):
    """The parts of each circuit and its faithfulness, as `Truth.circuits` returns them."""

    _shown: ClassVar[Mapping[str, Format]] = {"faithfulness": ".3f"}

    def _data(self) -> Columns:
        return {
            "circuit": [", ".join(parts) for parts, _ in self],
            "faithfulness": [faithfulness for _, faithfulness in self],
        }


def open_truth() -> Truth:
    """Open the table that comes with attnlab, such as for `open_truth().circuits("pronoun")`."""
    with np.load(FILE, allow_pickle=False) as file:
        metadata = json.loads(str(file["about"]))
        sentences = [Sentence(*fields) for fields in metadata["sentences"]]
        return Truth(sentences, file["table"], file["scores"])


# ---- Shapley values, interactions and methods ----------------------------------------------------


def shapley_values(v: AnyArray) -> NDArray[np.float64]:
    """Shapley values (..., n), which sum to v(all) - v(none), see `Shapley`.

    v (..., 2ⁿ) is the value of each subset; bit i of its number says whether it contains i.
    """
    n, subsets, values = int(np.log2(v.shape[-1])), np.arange(v.shape[-1]), []
    for i in range(n):
        without = subsets[subsets >> i & 1 == 0]
        values.append((v[..., without | 1 << i] - v[..., without]) @ order_weights(without, n))
    return np.stack(values, axis=-1)


def interaction_indices(v: AnyArray) -> NDArray[np.float64]:
    """Shapley interaction indices of all pairs, (..., n, n), of v as for `shapley_values`."""
    n, subsets = int(np.log2(v.shape[-1])), np.arange(v.shape[-1])
    indices = np.full((*v.shape[:-1], n, n), np.nan)
    for i, j in combinations(range(n), 2):
        a, b = 1 << i, 1 << j
        without = subsets[subsets & (a | b) == 0]
        separate = v[..., without | a] + v[..., without | b]
        joint = v[..., without | a | b] + v[..., without] - separate
        indices[..., i, j] = indices[..., j, i] = joint @ order_weights(without, n - 1)
    return indices


def order_weights(subsets: NDArray[np.int64], n: int) -> NDArray[np.float64]:
    """The fraction of all orders of n parts that begin with each subset and then one other part."""
    sizes = [subset.bit_count() for subset in subsets.tolist()]
    return np.array([factorial(s) * factorial(n - s - 1) / factorial(n) for s in sizes])


def spearman(a: AnyArray, b: AnyArray) -> float:
    """Spearman's rank correlation, the Pearson correlation of the ranks."""
    return float(np.corrcoef(ranks_of(a), ranks_of(b))[0, 1])


def ranks_of(x: AnyArray) -> NDArray[np.float64]:
    """The rank of each number, from 1 for the smallest; ties get the mean of their ranks."""
    below = (x[:, np.newaxis] > x).sum(axis=1)
    equal = (x[:, np.newaxis] == x).sum(axis=1)
    return np.asarray(below + (equal + 1) / 2)


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
        "A part that restores a lot in one subset and nothing in another has one value for both: "
        "see the interactions. Values depend on the ablation and on the sentences."
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
        lines = [(*header("task"), *self._parts)]
        for task, values, errors in zip(
            self._tasks, self.values, self.standard_errors, strict=True
        ):
            cells = (f"{x:.2f}±{e:.2f}" for x, e in zip(values, errors, strict=True))
            lines.append((task, *cells))
        yield Table(lines)


class Interactions(Analysis):
    """The Shapley interaction index of each pair of parts.

    I_ij = Σ_S s! (n - s - 2)! / (n - 1)! · (v(S, i, j) - v(S, i) - v(S, j) + v(S)), over all
    subsets S without i and j, of s parts each. It is above 0 if the two do more together than
    apart, and below 0 if one can replace the other.

    Attributes
    ----------
    values : (parts, parts), means over the task's sentences; NaN on the diagonal
    """

    meaning: ClassVar[str] = (
        "Each number is what two parts do together beyond what they do apart; below 0, one can "
        "replace the other."
    )
    note: ClassVar[str] = (
        "Only pairs are measured: if an effect needs three parts together, half of it is counted "
        "for each of their pairs."
    )
    source: ClassVar[str] = (
        "Grabisch and Roubens, “An axiomatic approach to the concept of interaction among players "
        "in cooperative games” (1999)"
    )
    _number: ClassVar[str] = "interaction"

    def __init__(self, truth: Truth, task: str | None, ablation: str) -> None:
        v = truth.values(task, ablation).mean(axis=0)
        self.title = Message(
            "Interactions in {task}, ablation by {ablation}",
            task=Message("all tasks") if task is None else task,
            ablation=ablation,
        )
        self.values = read_only(interaction_indices(v))

    def _grid(self) -> tuple[AnyArray, Axis, Axis]:
        return self.values, named_axis("part", PARTS), named_axis("part", PARTS)


class Methods(Analysis):
    """How well methods rank the parts: Spearman's correlation with the Shapley values.

    Each method gives each part a score in each pair of clean and corrupted sentences; scores and
    Shapley values are averaged over the sentences of a task, and their ranks are correlated.

    Attributes
    ----------
    names : names of the methods: patching; attribution patching; EAP and EAP-IG (5 steps), whose
        score is the sum over a part's outgoing edges; removal, v(all) - v(all but the part)
    scores : (methods, tasks, parts), in units of the metric
    correlations : (methods, tasks)
    """

    meaning: ClassVar[str] = (
        "Each number is a rank correlation: 1 if a method ranks the parts as their Shapley values "
        "do, 0 if it ranks them by chance."
    )
    note: ClassVar[str] = (
        "Methods that patch between two sentences and ablations ask different questions: what "
        "carries the difference between the sentences, and what is needed for the answer. A part "
        "that does the same in both sentences has a Shapley value but no effect when patched. "
        "EAP’s sum over outgoing edges equals attribution patching. "
        "Ten parts in one task: correlations below 0.65 are compatible with chance (5 %)."
    )
    source: ClassVar[str] = (
        "Spearman (1904); Meng et al. (2022); Nanda (2023); Syed et al. (2023); Hanna et al. (2024)"
    )
    _number: ClassVar[str] = "correlation"
    names: ClassVar[tuple[str, ...]] = (
        Message("patching"),
        Message("attribution patching"),
        "EAP",
        "EAP-IG",
        Message("removal"),
    )

    def __init__(self, truth: Truth, other_scores: NDArray[np.float64], ablation: str) -> None:
        self._tasks = truth.tasks
        scores, correlations = [], []
        for number, task in enumerate(truth.tasks):
            v = truth.values(task, ablation).mean(axis=0)
            removal = v[-1] - v[SUBSETS - 1 - (1 << np.arange(len(PARTS)))]
            scores.append([*other_scores[:, number], removal])
            shapley = shapley_values(v)
            correlations.append([spearman(score, shapley) for score in scores[-1]])
        self.title = Message(
            "Spearman’s correlation with Shapley values, ablation by {ablation}", ablation=ablation
        )
        self.scores = read_only(np.array(scores).swapaxes(0, 1))
        self.correlations = read_only(np.array(correlations).T)

    def _grid(self) -> tuple[AnyArray, Axis, Axis]:
        columns = (*self._tasks, Message("mean"))
        correlations = np.column_stack([self.correlations, self.correlations.mean(axis=1)])
        return correlations, named_axis("method", self.names), named_axis("task", columns)


def scores_of(model: GPT2, sampled: Sequence[Sentence]) -> NDArray[np.float64]:
    """Each part's score in each task by each method except removal, (methods, tasks, parts)."""
    by_task = (
        scores_in_task(model, [sentence for sentence in sampled if sentence.task == task])
        for task in dict.fromkeys(sentence.task for sentence in sampled)
    )
    return np.stack([*by_task], axis=1)


def scores_in_task(model: GPT2, sampled: Sequence[Sentence]) -> list[NDArray[np.float64]]:
    """Each part's score by each method except removal, (parts,): means over the sentences."""
    clean: Traces = model.trace([sentence.clean for sentence in sampled])
    corrupted: Traces = model.trace([sentence.corrupted for sentence in sampled])
    metrics: list[Any] = [(sentence.right, sentence.wrong) for sentence in sampled]
    scores = []
    paths = ("blocks.*.attention.heads.*.context", "blocks.*.mlp.output")
    patched: list[Any] = [
        patch(clean, corrupted, path, metric=metrics, progress=False) for path in paths
    ]
    estimated: list[Any] = [
        attribution_patch(clean, corrupted, path, metric=metrics) for path in paths
    ]
    for results in (patched, estimated):
        heads, mlps = (result.effects.mean(axis=0) for result in results)
        scores.append(np.concatenate([heads, mlps[:, np.newaxis]], axis=1).ravel())
    for steps in (1, 5):
        pairs = zip(clean, corrupted, metrics, strict=True)
        scores.append(np.mean([sums_of_edges(*pair, steps) for pair in pairs], axis=0))
    return scores


def sums_of_edges(
    clean: Trace, corrupted: Trace, metric: tuple[str, str], steps: int
) -> NDArray[np.float64]:
    """The sum over each part's outgoing edges, by EAP with one step, EAP-IG with several, (parts,).

    It is the part's change times the mean gradient: the readers' gradients sum to the part's.
    """
    start, change = corrupted.embedding, clean.embedding - corrupted.embedding
    sums = np.zeros(len(PARTS))
    for k in range(steps):
        run = corrupted.edited({"embedding": start + change * (k / steps)})
        d = gradients(run, *metric)
        for n, path in enumerate(OUTPUTS):
            written = at(clean, path) - at(corrupted, path)
            sums[n] += (written * at(d, path)).sum() / steps
    return sums


def make() -> str:
    """Compute the table and write it with its card; return the card."""
    model = GPT2.from_pretrained("pocket", dtype="float64")
    sampled = open_truth().sentences
    metadata = {"sentences": sampled, "parts": PARTS, "ablations": ABLATIONS, "measures": MEASURES}
    buffer = io.BytesIO()
    np.savez_compressed(
        buffer,
        about=np.array(json.dumps(metadata)),
        table=compute_table(model, sampled),
        scores=scores_of(model, sampled),
    )
    write_atomically(FILE, buffer.getvalue())
    truth = open_truth()
    text = (
        (DIRECTORY / "truth.md")
        .read_text(encoding="utf-8")
        .format(
            truth=truth,
            shapley=truth.shapley().table(),
            methods=truth.methods(model).table(),
            circuits="\n".join(circuit_lines(truth)),
            sentences=len(sampled),
            texts=TEXTS_FOR_MEANS,
            held_out_seed=HELD_OUT_SEED,
        )
    )
    write_atomically(CARD, text.encode())
    return text


def circuit_lines(truth: Truth) -> Iterator[str]:
    """A line for each task: the most faithful of its smallest circuits."""
    for task in truth.tasks:
        (parts, faithfulness), *others = truth.circuits(task)
        more = f", and {len(others)} more of this size" if others else ""
        yield f"{task}: {', '.join(parts)} ({faithfulness:.2f}{more})"


if __name__ == "__main__":
    try:
        print(make())
    except AttnlabError as error:
        sys.exit(str(error))
