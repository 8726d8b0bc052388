"""Compare a model with its base: how much swapping each part back restores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from attnlab.analysis.base import Analysis, head_name, named_axis, number_of_texts
from attnlab.analysis.many import TOKENS_IN_GROUP, group_equal, ratio_of_means
from attnlab.equations import AnyArray, Array
from attnlab.errors import InvalidValueError
from attnlab.model.gpt2 import GPT2
from attnlab.model.trace import Trace
from attnlab.steps import at, read_only
from attnlab.steps.labels import Axis
from attnlab.support.checks import check_kind, check_texts
from attnlab.support.console import progress_bar
from attnlab.support.messages import Message
from attnlab.support.tables import Table, format_with_error, header

# Parts that a table shows.
PARTS_SHOWN = 20

# The number of logits computed at once, over all texts of a group.
LOGITS_AT_ONCE = 2**23

HEAD_PARAMETERS = ("W_Q", "b_Q", "W_K", "b_K", "W_V", "b_V", "W_O")
MLP_PARAMETERS = ("gain", "bias", "W_1", "b_1", "W_2", "b_2")


class Changes(Analysis):
    """How much swapping each part back restores, as `attnlab.compare` returns it for two models.

    restored = 1 - Σ D(base ‖ tuned with the part of base) / Σ D(base ‖ tuned), sums over texts

    D is the Kullback-Leibler divergence of the next token's distribution, Σ p log(p / q), in nats,
    the mean over the positions of a text.

    Attributes
    ----------
    parts : their names: the embedding (with W_U if tied), heads, the rest of each attention
        (LayerNorm and b_O), MLPs (with their LayerNorm) and the last LayerNorm
    restored : (parts,), 1 if swapping the part back makes the models equal, 0 if nothing is
        restored, below 0 if the models then differ more
    standard_errors : of `restored`, as those of a ratio of means; NaN for one text
    divergences : (texts, parts), D for each text with the part swapped back
    before : (texts,), D for each text before any swap
    """

    meaning: ClassVar[str] = (
        "Each number is the fraction of the difference between the models that is removed by "
        "swapping one part back: 0 is nothing, 1 is everything."
    )
    note: ClassVar[str] = (
        "A part that restores a lot was changed in a way that matters in these texts. One that "
        "restores nothing may have changed together with another: parts that learned to work "
        "together may each restore nothing, or make things worse, when swapped alone."
    )
    source: ClassVar[str] = (
        "Prakash et al., “Fine-Tuning Enhances Existing Mechanisms” (2024), cross-model patching; "
        "of parameters here, not of activations"
    )

    def __init__(self, parts: Sequence[str], divergences: Any, before: Any) -> None:
        self.title = Message("Which parts changed, in {texts}", texts=number_of_texts(len(before)))
        self.parts = tuple(parts)
        self.divergences, self.before = read_only(divergences), read_only(before)
        effects = before[:, np.newaxis] - divergences
        restored, errors = ratio_of_means(effects, before)
        self.restored: NDArray[np.float64] = read_only(restored)
        self.standard_errors: NDArray[np.float64] = read_only(errors)

    def ranked(self) -> list[tuple[str, float, float]]:
        """Each part with what it restores and the standard error, largest first."""
        order = np.argsort(-self.restored, kind="stable")
        return [
            (self.parts[n], float(self.restored[n]), float(self.standard_errors[n])) for n in order
        ]

    def _grid(self) -> tuple[AnyArray, Axis, Axis]:
        columns = named_axis("", ("restored", "standard error"))
        numbers = np.column_stack([self.restored, self.standard_errors])
        return numbers, named_axis("part", self.parts), columns

    def _tables(self) -> Iterator[str | Table]:
        lines = [header("part", "restored", "± standard error")]
        for part, restored, error in self.ranked()[:PARTS_SHOWN]:
            lines.append((part, *format_with_error(restored, error)))
        yield Table(lines)
        yield Message(
            "{shown} of {count} parts; the models differ by {divergence} nats per token",
            shown=min(PARTS_SHOWN, len(self.parts)),
            count=len(self.parts),
            divergence=f"{self.before.mean():.3g}",
        )


def model_changes(base: GPT2, tuned: GPT2, texts: Any, progress: bool) -> Changes:
    """See `attnlab.compare`."""
    for model in (base, tuned):
        check_kind(model, GPT2, "each of two models")
    if base.config != tuned.config:
        raise InvalidValueError(
            f"the models must have the same config; got {base.config} and {tuned.config}"
        )
    check_texts(texts)
    base_traces, tuned_traces = base.trace(list(texts)), tuned.trace(list(texts))
    for tokens, other_tokens in zip(base_traces.texts, tuned_traces.texts, strict=True):
        if not np.array_equal(tokens.ids, other_tokens.ids):
            raise InvalidValueError(
                "the models' tokenizers give different tokens. Pass Tokens from one of them"
            )
    swaps = swaps_of(base_traces[0], tuned_traces[0])
    divergences = np.empty((len(texts), len(swaps)))
    before = np.empty(len(texts))
    group_size = max(min(TOKENS_IN_GROUP, LOGITS_AT_ONCE // base.config.vocab_size), 1)
    with progress_bar(progress, total=divergences.size, unit="run") as bar:
        for indices in group_equal([len(text) for text in base_traces.texts], group_size):
            reference = log_probabilities(base_traces.side_by_side(indices)[0])
            trace, _ = tuned_traces.side_by_side(indices)
            # A fork, so that `trace` keeps no steps.
            before[indices] = divergence(reference, log_probabilities(trace.fork()))
            for column, edits in enumerate(swaps.values()):
                divergences[indices, column] = before[indices]
                if edits:
                    swapped = log_probabilities(trace.edited(edits))
                    divergences[indices, column] = divergence(reference, swapped)
                bar.update(len(indices))
    if not before.any():
        raise InvalidValueError(
            "the models make the same predictions for these texts: nothing changed"
        )
    return Changes([*swaps], divergences, before)


def swaps_of(base: Trace, tuned: Trace) -> dict[str, dict[str, Array]]:
    """For each part, the base model's values of the parameters that differ, by path."""
    config = base.config
    untied = () if config.tie_word_embeddings else ("W_U",)
    paths = {"embedding": ["W_E", "W_P", *untied]}
    for layer in range(config.n_layer):
        attention = f"blocks.{layer}.attention"
        for head in range(config.n_head):
            paths[head_name(layer, head)] = [
                f"{attention}.heads.{head}.{name}" for name in HEAD_PARAMETERS
            ]
        paths[Message("layer {layer} attention, LayerNorm and b_O", layer=layer)] = [
            f"{attention}.{name}" for name in ("gain", "bias", "b_O")
        ]
        paths[Message("layer {layer} MLP", layer=layer)] = [
            f"blocks.{layer}.mlp.{name}" for name in MLP_PARAMETERS
        ]
    paths["last LayerNorm"] = ["gain", "bias"]
    return {
        part: {
            path: at(base, path)
            for path in part_paths
            if not np.array_equal(at(base, path), at(tuned, path))
        }
        for part, part_paths in paths.items()
    }


def log_probabilities(trace: Trace) -> Array:
    """log softmax of all logits, in float64, (..., T, vocab)."""
    logits = trace.logits.astype(np.float64)
    logits -= logits.max(axis=-1, keepdims=True)
    logits -= np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    return logits


def divergence(reference: Array, other: Array) -> NDArray[np.float64]:
    """Σ p (log p - log q), the mean over positions; (n, T, vocab) -> (n,), or (T, vocab) -> ()."""
    terms = np.exp(reference) * (reference - other)
    return np.asarray(terms.sum(axis=-1).mean(axis=-1))
