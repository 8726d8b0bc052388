"""Traces of several texts; texts of equal length are computed side by side."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn, overload

import numpy as np

from attnlab.equations import AnyArray, Array
from attnlab.errors import InvalidTypeError, InvalidValueError
from attnlab.forward.attention import Head
from attnlab.forward.config import GPT2Config
from attnlab.forward.edits import Edit, as_edit
from attnlab.forward.parameters import Parameters
from attnlab.forward.slices import one_of_many
from attnlab.model.trace import NextTokens, Trace, columns_of_tokens
from attnlab.steps import Numbered, ReadOnly, at
from attnlab.steps.result import stack
from attnlab.support.checks import check_kind
from attnlab.support.document import Document
from attnlab.support.messages import counted
from attnlab.support.parts import sliced
from attnlab.support.tables import Columns, Heading, Table
from attnlab.text.tokens import Tokens, Vocabulary

# The number of tokens that are computed side by side. More need more memory, but aren't faster.
TOKENS_IN_GROUP = 512


class Traces(ReadOnly, Sequence[Trace], Document):
    """The traces of several texts, as `GPT2.trace` returns them for a list.

    This is a sequence: `traces[2]` is a `Trace`, `traces[2:5]` are Traces. Reading a step of one
    trace computes it for all texts of the same length, up to 512 tokens at a time; nothing is
    padded. Numbers equal those of `model.trace(text)` up to rounding, since a matrix product may
    round differently with more rows: the relative difference is about 1e-12 in float64 and 1e-5 in
    float32. Edits of one trace are computed only for that trace.

    Computed steps of all texts are kept, as in a list of traces. Analyses keep only the steps of
    the texts that are computed together. A path gives one step of all n texts, stacked:
    `traces["blocks.3.output[-1]"]` is (n, D).
    """

    texts: tuple[Tokens, ...]
    vocabulary: Vocabulary
    parameters: Parameters
    config: GPT2Config
    _edits: tuple[Mapping[str, Edit], ...]

    def __init__(
        self,
        texts: Sequence[Tokens],
        vocabulary: Vocabulary,
        parameters: Parameters,
        edits: tuple[Mapping[str, Edit], ...] = (),
    ) -> None:
        # `vars`, since attributes can't be assigned.
        vars(self).update(texts=tuple(texts), vocabulary=vocabulary, _edits=edits)
        vars(self).update(parameters=parameters.frozen(), config=parameters.config)

    @cached_property
    def _traces(self) -> Numbered[Trace]:
        # Nothing is computed yet: a group computes a step when a step of one trace is read.
        traces: dict[int, Trace] = {}
        for indices in self._groups():
            _, traces_of_group = self._side_by_side(indices)
            traces.update(zip(indices, traces_of_group, strict=True))
        return Numbered("trace", (traces[i] for i in range(len(self))))

    def __getstate__(self) -> dict[str, Any]:
        try:
            pickle.dumps(self._edits)
        except (AttributeError, pickle.PicklingError) as error:
            raise InvalidTypeError(
                f"several texts can't be pickled with these edits: {error}"
            ) from None
        return vars(self)

    def __deepcopy__(self, _: object = None) -> Traces:
        return self  # no copy is needed, since it can't be changed

    __copy__ = __deepcopy__

    def __len__(self) -> int:
        return len(self.texts)

    def __iter__(self) -> Iterator[Trace]:
        return iter(self._traces)

    @overload
    def __getitem__(self, index: int) -> Trace: ...
    @overload
    def __getitem__(self, index: slice) -> Traces: ...
    @overload
    def __getitem__(self, index: str) -> AnyArray: ...
    def __getitem__(self, index: int | slice | str) -> Trace | Traces | AnyArray:
        if isinstance(index, str):
            return stack([at(trace, index) for trace in self], index)
        if isinstance(index, slice):
            texts = sliced(self.texts, index)
            if not texts:
                raise InvalidValueError(f"{index} selects none of the {len(self)} texts")
            return Traces(texts, self.vocabulary, self.parameters, self._edits)
        return self._traces[index]

    def edited(self, edits: Mapping[str, Edit]) -> Traces:
        """The traces of the same texts with steps replaced in each, see `Trace.edited`.

        Edited texts are computed one by one.
        """
        check_kind(edits, Mapping, "edits", "a dict of paths and values")
        copies = {path: as_edit(path, edit) for path, edit in edits.items()}
        new = Traces(self.texts, self.vocabulary, self.parameters, (*self._edits, copies))
        new[0]  # raises if an edit is invalid
        return new

    def head(self, layer: int, head: int) -> tuple[Head, ...]:
        """One head in each text."""
        return tuple(trace.head(layer, head) for trace in self)

    @property
    def logits(self) -> tuple[Array, ...]:
        """Each text's `Trace.logits`, whose lengths differ."""
        return tuple(trace.logits for trace in self)

    def next_tokens(self, k: int = 5) -> tuple[NextTokens, ...]:
        """The k most probable next tokens of each text."""
        return tuple(trace.next_tokens(k) for trace in self)

    @property
    def losses(self) -> tuple[Array, ...]:
        """Each text's `Trace.losses`, whose lengths differ."""
        # The traces are new, not those of `traces[i]`, so that each group's steps can be freed.
        losses: dict[int, Array] = {}
        for indices in self._groups():
            _, traces = self._side_by_side(indices)
            losses |= {i: trace.losses for i, trace in zip(indices, traces, strict=True)}
        return tuple(losses[i] for i in range(len(self)))

    @property
    def loss(self) -> float:
        """The mean cross-entropy of all predicted tokens of all texts, in nats."""
        losses = np.concatenate(self.losses)  # so that the mean is over tokens, not over texts
        if not losses.size:
            raise InvalidValueError("the loss needs a text of at least two tokens")
        return float(losses.mean(dtype=np.float64))

    if not TYPE_CHECKING:  # so that type checkers report misspelt names

        def __getattr__(self, name: str) -> NoReturn:
            is_trace_attribute = hasattr(Trace, name) or name in Trace.__annotations__
            hint = f"; one text's trace has it: traces[0].{name}" if is_trace_attribute else ""
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}{hint}")

    def _groups(self) -> list[list[int]]:
        """Group the indices of texts of equal length, which are computed side by side."""
        if self._edits:  # an edit's function or index expects the arrays of one text
            return [[i] for i in range(len(self))]
        return group_equal([len(text) for text in self.texts])

    def _side_by_side(self, indices: Sequence[int]) -> tuple[Trace, list[Trace]]:
        """One trace of several texts of one length, with a leading axis, and a trace of each text.

        The traces are new, so their steps are freed together with the traces.
        """
        texts = [self.texts[i] for i in indices]
        alone = [Trace(text, self.vocabulary, self.parameters) for text in texts]
        for edits in self._edits:
            alone = [trace.edited(edits) for trace in alone]
        first = alone[0]
        if len(alone) == 1 or self._edits:
            # A fork takes the place of `stacked`, so that its steps are stored separately.
            return first._with_run(first._run.fork()), alone
        # ids are (n, T): every step of `stacked` has a leading axis of n texts, from which each
        # text's trace takes its part.
        stacked = Trace(texts, self.vocabulary, self.parameters)
        traces = [
            trace._with_run(one_of_many(trace._run, stacked._run, number))
            for number, trace in enumerate(alone)
        ]
        return stacked, traces

    def _in_groups(self) -> Iterator[Trace]:
        """New traces of all texts; the memory of each group is freed after its last trace."""
        for indices in self._groups():
            _, traces_of_group = self._side_by_side(indices)
            yield from traces_of_group

    def _data(self) -> Columns:
        """Each token of each text with its loss, see `Trace.to_dataframe`."""
        texts = [np.full(len(text), n) for n, text in enumerate(self.texts)]
        tables = [*map(columns_of_tokens, self.texts, self.losses)]
        return {"text": np.concatenate(texts)} | {
            name: np.concatenate([columns[name] for columns in tables]) for name in tables[0]
        }

    def pieces(self) -> Iterator[str | Table]:
        lengths = sorted({len(text) for text in self.texts})
        yield Heading(
            "{traces} of {lengths} tokens",
            traces=counted(len(self), "trace"),
            lengths=" … ".join(map(str, dict.fromkeys([lengths[0], lengths[-1]]))),
        )


def group_equal(keys: Sequence[Any], most: int = TOKENS_IN_GROUP) -> list[list[int]]:
    """Group the indices of texts with equal keys.

    A key is the text's number of tokens, or a tuple that begins with this number. A group has at
    most `most` tokens; a longer text is a group by itself.
    """
    groups: list[list[int]] = []
    by_key: dict[Any, list[int]] = {}
    for i, key in enumerate(keys):
        by_key.setdefault(key, []).append(i)
    for key, indices in by_key.items():
        tokens_per_text = key[0] if isinstance(key, tuple) else key
        size = max(most // tokens_per_text, 1)  # the number of texts in a group
        groups += [indices[start : start + size] for start in range(0, len(indices), size)]
    return groups


def value_for_each(value: Any, count: int, name: str) -> list[Any]:
    """A list with a value for each text: `value` if it is a list, else `value` repeated."""
    if not isinstance(value, list):
        return [value] * count
    if len(value) != count:
        raise InvalidValueError(
            f"{name} must have a value for each of the {count} texts; got {len(value)}"
        )
    return value
