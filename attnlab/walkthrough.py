"""One head of GPT-2 step by step, compared with the figures of a published article.

`attnlab verify` prints the comparison, for GPT-2 or another model.

The order of the steps and the figures are from orczhou.com, "understanding-llm-attention",
2025-12-31. The figures are stored in `attnlab/checking/figures/walkthrough.json`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from attnlab.checking import figures
from attnlab.checking.figures import Comparison, compare
from attnlab.equations import Array
from attnlab.model.gpt2 import GPT2
from attnlab.model.trace import Trace
from attnlab.support.document import Document
from attnlab.support.messages import Message
from attnlab.support.tables import Format, Heading, Paragraph, Table, listed
from attnlab.views.labelled_step import LabelledStep, labelled_step

PROMPT = "It’s very hot in summer. Swimming is"


def walk(
    model: GPT2, prompt: str = PROMPT, *, layer: int = 0, head: int = 0
) -> Iterator[LabelledStep]:
    """Return the steps from tokens to one head's context vectors, with formulas and numbers.

    The steps are the token and position embeddings, their sum, X, W_Q W_K W_V, Q K V, scores,
    masked scores, weights and context. In layer 0, X is LayerNorm of the sum.
    """
    trace = model.trace(prompt)
    head_result = trace.head(layer, head)
    trace_steps = ("token_embedding", "position_embedding", "embedding")
    projections = ("X", "W_Q", "W_K", "W_V", "Q", "K", "V")
    head_steps = (*projections, "scores", "masked_scores", "weights", "context")
    steps = [(trace, name) for name in trace_steps] + [(head_result, name) for name in head_steps]
    return (labelled_step(result, name) for result, name in steps)


@dataclass(frozen=True, repr=False)
class Reproduction(Document):
    """A comparison of a model with the published figures; `print` shows it.

    Attributes
    ----------
    model, prompt : the model's repr, and the text that it read
    tables : a `Comparison` for each published table; empty if there is a `reason`
    reason : why the tables are not compared, or ""
    agrees : whether all tables match
    """

    model: str
    prompt: str
    tables: tuple[Comparison, ...]
    reason: str = ""

    @property
    def agrees(self) -> bool:
        return not self.reason and all(table.agrees for table in self.tables)

    _shown: ClassVar[Mapping[str, Format]] = {
        "name": ("table", ""),
        "figures": "",
        "largest_difference": ("largest difference", ".2g"),
        "tolerance": ("allowed", ".2g"),
        "agrees": ("", lambda agrees: Message("agrees" if agrees else "DOES NOT AGREE")),
    }

    def _records(self) -> tuple[Comparison, ...]:
        return self.tables

    def pieces(self) -> Iterator[str | Table]:
        template = "Published figures, and {model}\nPrompt: {prompt}"
        yield Heading(template, model=self.model, prompt=self.prompt)
        if self.reason:
            yield Paragraph(
                "Not compared with the published tables: {reason}", reason=Message(self.reason)
            )
            return
        yield listed(self._data(), self._shown)
        yield Message(
            "(not compared: the similarity matrix, which doesn't follow from the article's formula)"
        )
        agreeing = sum(table.agrees for table in self.tables)
        verdict = Message("reproduced" if self.agrees else "NOT reproduced")
        template = "{agreeing} of {count} tables agree: {verdict}"
        yield Message(template, agreeing=agreeing, count=len(self.tables), verdict=verdict)


def reproduce(model: GPT2, prompt: str = PROMPT) -> Reproduction:
    """Compare every published figure with the model's number.

    A figure agrees with a number that differs by at most half a unit of the figure's last printed
    decimal, plus 1e-6 for float32 rounding.

    Parameters
    ----------
    model : GPT-2 small; for another model, `reason` says why it is not compared
    prompt : the text; the published prompt has a curly apostrophe, ’
    """
    published = figures.load("walkthrough")
    trace = model.trace(prompt)
    reason = _why_not_compared(published, trace, prompt)
    tables = () if reason else tuple(_comparisons(published, trace))
    return Reproduction(repr(model), prompt, tables, reason)


def _why_not_compared(published: dict[str, Any], trace: Trace, prompt: str) -> str:
    ids = trace.tokens.ids.tolist()
    if ids != published["token_ids"]:
        if prompt == PROMPT:
            return Message("the model's tokenizer splits the prompt into different tokens")
        expected_count = len(published["token_ids"])
        counts = Message(
            "{count} tokens instead of {expected}", count=len(ids), expected=expected_count
        )
        if prompt.replace("'", "’") == PROMPT:
            return Message(
                "the prompt has a straight apostrophe ' (U+0027), the published one a curly one ’ "
                "(U+2019). It has {counts}, so every later token is at a different position",
                counts=counts,
            )
        template = "the figures are for the prompt {published}; this one has {counts}"
        return Message(template, published=repr(PROMPT), counts=counts)
    head = trace.head(0, 0)
    for name in ("X", "W_Q"):
        shape, expected = getattr(head, name).shape, tuple(published["shapes"][name])
        if shape != expected:
            template = "the model's {name} has shape {shape}; the published shape is {expected}"
            return Message(template, name=name, shape=shape, expected=expected)
    return ""


def _comparisons(published: dict[str, Any], trace: Trace) -> Iterator[Comparison]:
    head = trace.head(0, 0)
    columns = slice(published["columns_published"])
    computed: dict[str, Array] = {
        "wte": trace.token_embedding[:, columns],
        "wpe": trace.position_embedding[:, columns],
        "embedding": trace.embedding[:, columns],
        "X": head.X[:, columns],
        "context": head.context[:, columns],
    }
    for name in ("W_Q", "W_K", "W_V"):
        computed[name] = getattr(head, name)[published["W_rows_published"], columns]
    for name in ("Q", "K", "V"):
        computed[name] = getattr(head, name)[published["QKV_rows_published"], columns]
    for name in ("scores", "masked_scores", "weights"):
        computed[name] = getattr(head, name)

    yield compare("token_ids", trace.tokens.ids, published["token_ids"], 0)
    same_symbols = np.array(trace.tokens.symbols) == np.array(published["symbols"])
    yield compare("symbols", same_symbols, np.ones(same_symbols.shape), 0)  # 1 where they agree
    for name, decimals in published["decimals"].items():
        if name != "similarity":
            yield compare(name, computed[name], published[name], decimals)
    shapes = [getattr(head, name).shape for name in published["shapes"]]
    yield compare("shapes", shapes, list(published["shapes"].values()), 0)
    config = trace.config
    W_QKV_count = 3 * config.n_embd * config.d_head * config.n_head * config.n_layer
    yield compare("parameter_count", [W_QKV_count], [published["parameter_count"]["value"]], 0)
