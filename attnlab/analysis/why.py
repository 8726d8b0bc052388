"""Why a query attends to a key: the score as an exact sum over pairs of parts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from attnlab.analysis.attribution import check_sum
from attnlab.analysis.base import Analysis, named_axis
from attnlab.analysis.parts import Term, block_at, stream_terms, weighted
from attnlab.equations import AnyArray, Array, layer_norm, raw_scores, scores
from attnlab.errors import InvalidValueError, quoted
from attnlab.forward.attention import Head
from attnlab.forward.edits import edit_run
from attnlab.steps import read_only
from attnlab.steps.labels import Axis, long_columns, token_axes, token_index
from attnlab.steps.paths import parse
from attnlab.support.checks import check_choice, check_kind
from attnlab.support.document import Document
from attnlab.support.messages import Message
from attnlab.support.tables import Columns, Format, Table, header, printable

# The number of pairs in a printed table, and of parts along each axis of a heatmap.
PAIRS_SHOWN, PARTS_SHOWN = 8, 12

# The names of a table's rows and columns.
SIDES = "part of the query", "part of the key"

# Matches the paths of the parts that `Why.without` can remove from the stream.
WRITERS = r"\w+_embedding|blocks\.\d+\.(attention\.heads\.\d+\.output|attention\.b_O|mlp\.output)"

SOURCE = (
    "Elhage et al., “A Mathematical Framework for Transformer Circuits” (2021); Kamath et al., "
    "“Tracing Attention Computation Through Feature Interactions” (2025)"
)


class Scores(NamedTuple):
    """The fields of `Without`."""

    score: float
    held: float
    recomputed: float
    ablated: float


class Without(Document, Scores):
    """A score, or difference of scores, without a part of the stream; see `Why.without`.

    Attributes
    ----------
    score : the score with the part
    held : the score without the part's pairs; LayerNorm still uses the whole stream's deviation
    recomputed : the score if LayerNorm's input is the stream without the part
    ablated : the score if the part is set to 0 in the trace and all later parts are recomputed
    """

    _shown: ClassVar[Mapping[str, Format]] = dict.fromkeys(
        ("score", "held", "recomputed", "ablated"), "z.2f"
    )

    def _records(self) -> list[Without]:
        return [self]


def why(
    head: Head,
    query: int | str,
    key: int | str,
    against: int | str | None = None,
) -> Why:
    """Explain why a query attends to a key: by what earlier parts of the model wrote.

    The block's input is a sum of parts: embeddings, earlier heads and MLPs, biases. With
    LayerNorm's deviation held constant, Q and K are linear in these parts, so a score is exactly a
    sum over pairs: a part of the query · a part of the key / scale. The softmax sees only
    differences of scores, so by default the mean score of all keys that the query sees is
    subtracted.

    Parameters
    ----------
    head : a head of a trace
    query, key : positions, or the tokens' texts, as for `explain`
    against : another key, whose score is subtracted instead of the mean

    Returns
    -------
    Why
        `print` shows a sentence and the largest pairs; `.pairs`, `.plot()` and `.to_dataframe()`
        have all pairs; `.open(part)` splits a part. The query and the key have 4 + layer (H + 2)
        parts each, vectors of Dh numbers: two embeddings, two biases, and those of each block.

    Raises
    ------
    InvalidValueError
        If `head` isn't a head of a trace, or if an edit replaced a sum, so that the parts no longer
        add up to the sum.

    Examples
    --------
    >>> attnlab.why(trace.head(1, 2), "it", "dog", against="ball")
    """
    check_kind(head, Head, "head")
    return Why(head, query, key, against)


class Why(Analysis):
    """A score's difference from other scores as a sum over pairs of parts; see `why`.

    Attributes
    ----------
    query, key, against : positions; `against` is None for the mean over visible keys
    parts : `parts["query"]` sum to Q[query], `parts["key"]` to K[key] minus K[against] or minus the
        mean of the visible keys. Each has a `name`, a `label` for tables and a `vector`.
    pairs : (m, n), a part of the query · a part of the key / scale
    total : the difference, which is the sum of all pairs
    sentence : the total in words, with the pair that adds most to it
    """

    meaning: ClassVar[str] = (
        "Each number is a part of the query times a part of the key, divided by the scale. They "
        "sum to the score's difference from others."
    )
    note: ClassVar[str] = (
        "LayerNorm's deviation is held constant, though every part influences it. A part isn't a "
        "cause: without it, later parts would differ too. `.without(part)` shows by how much."
    )
    source: ClassVar[str] = SOURCE

    def __init__(
        self, head: Head, query: int | str, key: int | str, against: int | str | None
    ) -> None:
        layer = check_head(head)
        # The trace keeps the block's input; a fork computes and frees all larger arrays.
        head._run.value(f"blocks.{layer}.input")
        self._head = head._fork()
        self._axes = dict(zip(("query", "key"), token_axes(head), strict=True))
        Tq, Tk = (len(axis.positions) for axis in self._axes.values())
        self.query = token_index(head, "query", query, Tq)
        self.key = token_index(head, "key", key, Tk)
        self.against = None if against is None else token_index(head, "key", against, Tk)
        self._visible = np.flatnonzero(np.broadcast_to(head.mask, (Tq, Tk))[self.query])
        self._check_keys()
        self.title = Message("{head}: {target}", head=head.title, target=self._target)
        # The total is Q[query] · (K[key] - mean of the other rows of K) / scale, a weighted sum of
        # Q's rows times a weighted sum of K's rows. query_rows and key_rows are these weights.
        query_rows, key_rows = (np.zeros((1, T), head.Q.dtype) for T in (Tq, Tk))
        query_rows[0, self.query] = 1
        others = self._visible if self.against is None else [self.against]
        key_rows[0, others] = -1 / len(others)
        key_rows[0, self.key] += 1
        self._rows = {"query": query_rows, "key": key_rows}
        self.parts = terms_of([self._head], self._rows)
        self.total = self._measured(self._head)
        self._multiply()

    def _check_keys(self) -> None:
        if self.against == self.key:
            raise InvalidValueError(f"key and against must differ; both are {self.key}")
        for key in (self.key, self.against):
            if key is not None and key not in self._visible:
                raise InvalidValueError(
                    f"{self._axes['key'].in_words(key)} is masked for "
                    f"{self._axes['query'].in_words(self.query)}: its weight is 0, whatever its "
                    f"score. The query sees keys {', '.join(map(str, self._visible))}"
                )

    def _measured(self, head: Head) -> float:
        """The total from the scores of a head, which may belong to an edited run."""
        return float(head.scores[self.query] @ self._rows["key"][0])

    def _multiply(self) -> None:
        Q, K = (stacked(terms)[:, 0] for terms in self.parts.values())  # (m, Dh) and (n, Dh)
        self.pairs = read_only(scores(raw_scores(Q, K), self._head.scale))
        check_sum(self.pairs.ravel(), np.array(self.total), "the score", self._head)

    def _other_side(self, side: str) -> Array:
        """The vector (Dh,) that multiplies the vectors of a side: the sum of the other side."""
        terms = self.parts["key" if side == "query" else "query"]
        return scores(stacked(terms).sum(axis=(0, 1)), self._head.scale)

    def open(self, part: str, side: str | None = None) -> Why:
        """Replace a part by smaller parts that sum to it.

        A head opens into the tokens that it attends to. Each token opens into the parts of the
        stream at that token, and so on down to embeddings, MLPs and biases. An MLP opens into its
        ten largest neurons, the sum of its other neurons, and b_2.

        Parameters
        ----------
        part : the part's name, such as "blocks.0.mlp.output"
        side : "query" or "key"; None opens the part on each side that has it
        """
        opened = copy(self)
        opened.parts = dict(self.parts)
        for found_side, index in self._find(part, side).items():
            terms = self.parts[found_side]
            term = terms[index]
            if term.parts is None:
                raise InvalidValueError(f"{term.name} is one part: it can't be opened")
            inner = term.parts(term, self._other_side(found_side))
            if not inner:
                raise InvalidValueError(f"{term.name} adds 0 here: there is nothing to open")
            check_sum(stacked(inner), term.vector, term.name, self._head)
            opened.parts[found_side] = (*terms[:index], *inner, *terms[index + 1 :])
        opened._multiply()
        return opened

    def _find(self, part: Any, side: str | None = None) -> dict[str, int]:
        """The index of a part in each side that has it."""
        check_kind(part, str, "part")
        check_choice(side, ("query", "key", None), "side")
        sides = self.parts if side is None else [side]
        names = {each: [term.name for term in self.parts[each]] for each in sides}
        found = {each: known.index(part) for each, known in names.items() if part in known}
        if not found:
            valid = dict.fromkeys(name for known in names.values() for name in known)
            raise InvalidValueError(
                f"there is no part {quoted(part)}; parts are {', '.join(valid)}"
            )
        return found

    def without(self, part: str) -> Without:
        """The total without a part of the stream at all positions, computed in three ways.

        Parameters
        ----------
        part : the name of an unopened embedding, head's or MLP's output, or b_O

        Examples
        --------
        >>> why.without("blocks.0.mlp.output").held
        """
        found = self._find(part)
        if not re.fullmatch(WRITERS, part) or len(found) < 2:
            raise InvalidValueError(
                "part must be an embedding, a head's or an MLP's output, or a b_O, not opened; got "
                f"{quoted(part)}"
            )
        run, attention = self._head._run, block_at(self._head, check_head(self._head)).attention
        stream = attention.residual - run.value(part)
        X = layer_norm(stream, attention.gain, attention.bias, attention.epsilon)
        # A head's output is context W_O, so a context of 0 makes the output 0.
        step = part.replace(".output", ".context") if ".heads." in part else part
        held = np.delete(np.delete(self.pairs, found["query"], 0), found["key"], 1).sum()
        recomputed, ablated = (
            self._measured(self._head._with_run(edit_run(run, edit)))
            for edit in ({f"{self._head.path}.X": X}, {step: 0})
        )
        return Without(self.total, float(held), recomputed, ablated)

    # ---- in words --------------------------------------------------------------------------------

    def _words(self) -> dict[str, Any]:
        """The values of the sentence's fields: quoted tokens, and the number of visible keys."""
        positions = {"query": self.query, "key": self.key, "other": self.against}
        return {"count": len(self._visible)} | {
            name: in_quotes(self._axes["query" if name == "query" else "key"], position)
            for name, position in positions.items()
            if position is not None
        }

    @property
    def _target(self) -> Message:
        words = self._words()
        if self.against is None:
            template = "the score of {query} for {key} minus its mean over {count} visible keys"
            return Message(template, **words)
        return Message("the score of {query} for {key} minus that for {other}", **words)

    @property
    def sentence(self) -> Message:
        words = self._words()
        if len(self._visible) == 1:
            template = "{query} sees only one key, {key}: its weight is 1, whatever the score."
            return Message(template, **words)
        if not self.total:
            return Message("The parts of {target} add up to 0.", target=self._target)
        is_above, total = self.total >= 0, f"{self.total:z.2f}"
        if self.against is not None and is_above:
            lead = Message("{query} looks more at {key} than at {other}", **words)
        elif self.against is not None:
            lead = Message("{query} looks less at {key} than at {other}", **words)
        elif is_above:
            lead = Message("{query} scores {key} above the mean of its {count} keys", **words)
        else:
            lead = Message("{query} scores {key} below the mean of its {count} keys", **words)
        signed = self.pairs if is_above else -self.pairs
        i, j = np.unravel_index(int(signed.argmax()), signed.shape)
        part, first, second = float(self.pairs[i, j]), self.parts["query"][i], self.parts["key"][j]
        names = words | {"first": first.phrase, "second": second.phrase}
        if first.name == second.name:
            pair = Message("{part} at both", part=first.phrase)
        elif first.label == "b_Q":
            pair = Message("{first}, the same for every query, and {second} at {key}", **names)
        else:
            pair = Message("{first} at {query} and {second} at {key}", **names)
        shown = f"{part:z.2f}"
        numbers = {"lead": lead, "pair": pair, "part": shown, "total": total}
        # No single pair is the reason if another pair, or all other pairs together, take away at
        # least half of the largest pair.
        largest = [float(signed[index]) for index in largest_of(self.pairs, PAIRS_SHOWN)]
        is_taken_back = 2 * max(-min(largest), abs(part) - abs(self.total)) >= abs(part)
        if abs(part) > abs(self.total) and is_taken_back:
            sign = 1 if is_above else -1
            most, least = max(largest), min(largest)
            ends = {"most": f"{sign * most:+z.2f}", "least": f"{sign * least:+z.2f}"}
            template = (
                "{lead}: {total}. Many pairs nearly cancel; the largest are {most} and {least}."
            )
            return Message(template, **numbers, **ends)
        if abs(part) > abs(self.total):
            rest = f"{self.total - part:+z.2f}"
            template = "{lead} because of {pair}: {part}, and {rest} from all other pairs."
            return Message(template, **numbers, rest=rest)
        # The rounded numbers are compared too: “0.13 of 0.26” mustn't be called less than half.
        if 2 * abs(part) >= abs(self.total) or 2 * abs(float(shown)) >= abs(float(total)):
            return Message("{lead} because of {pair}: {part} of {total}.", **numbers)
        template = (
            "{lead}. No pair of parts is half of that; the largest is {pair}: {part} of {total}."
        )
        return Message(template, **numbers)

    def _tables(self) -> Iterator[str | Table]:
        yield self.sentence
        lines = [header(*SIDES, "score")]
        shown = largest_of(self.pairs, PAIRS_SHOWN)
        for i, j in shown:
            of_query, of_key = self.parts["query"][i].label, self.parts["key"][j].label
            lines.append((of_query, of_key, f"{self.pairs[i, j]:z.2f}"))
        rest = Message("the other {count} pairs", count=self.pairs.size - len(shown))
        rest_sum = self.total - sum(float(self.pairs[pair]) for pair in shown)
        lines.append((rest, "", f"{rest_sum:z.2f}"))
        yield Table([*lines, (Message("total"), "", f"{self.total:z.2f}")], left=(0, 1))

    def _grid(self) -> tuple[AnyArray, Axis, Axis]:
        return grid_of(self.pairs, *([term.label for term in x] for x in self.parts.values()))

    def _data(self) -> Columns:
        axes = [
            named_axis(f"{side}_part", tuple(term.name for term in terms))
            for side, terms in self.parts.items()
        ]
        return long_columns(axes, {"score": self.pairs})


def check_head(head: Head) -> int:
    """Return a head's layer; raise unless the head belongs to the trace of one text."""
    if not re.fullmatch(r"blocks\.\d+\.attention\.heads\.\d+", head.path):
        raise InvalidValueError(
            "a score is explained by what earlier layers wrote, so this needs a head of a trace, "
            f"such as trace.head(1, 2); got {head.title}"
        )
    if head.derivative_of:
        raise InvalidValueError(f"{head.title} has gradients. Use the head of the trace")
    if len(head.scores_shape) > 2:
        raise InvalidValueError(f"this needs one text; got scores of shape {head.scores_shape}")
    layer = parse(head.path).layer
    assert layer is not None
    return layer


def terms_of(heads: Sequence[Head], rows: dict[str, Array]) -> dict[str, tuple[Term, ...]]:
    """The terms of a layer's heads, side by side in one vector; `rows` has "query" and "key"."""
    layer, cached = check_head(heads[0]), heads[0].tokens_before
    is_sum = rows["key"].shape[0] == 1  # rows (1, Tk) sum over the keys, rows (Tk, 1) don't
    of_text = rows["key"][:, cached:] if is_sum else rows["key"][cached:]

    def joined(name: str) -> Array:
        return np.concatenate([getattr(head, name) for head in heads], axis=-1)

    query = stream_terms(heads[0], layer, rows["query"], joined("W_Q"), ("b_Q", joined("b_Q")))
    key = stream_terms(heads[0], layer, of_text, joined("W_K"), ("b_K", joined("b_K")))
    if cached:  # one term for all cached keys: an earlier pass has the parts of these keys
        K = joined("K")
        K[cached:] = 0
        if not is_sum:  # the other terms have no rows for the cached keys
            zeros = np.zeros_like(K[:cached])
            key = [replace(term, vector=np.concatenate([zeros, term.vector])) for term in key]
        path = f"blocks.{layer}.attention.K_cache"
        key.append(Term(path, Message("cached keys"), weighted(rows["key"], K)))
    return {"query": tuple(query), "key": tuple(key)}


def stacked(terms: Sequence[Term]) -> Array:
    """The terms' vectors, (m, 1, Dh) or (m, T, Dh)."""
    return np.stack([term.vector for term in terms])


def largest_of(pairs: Array, count: int) -> list[tuple[int, int]]:
    """The indices (i, j) of the pairs with the largest absolute values, largest first."""
    order = np.argsort(-np.abs(pairs), axis=None, kind="stable")[:count]
    return [divmod(int(n), pairs.shape[1]) for n in order]


def grid_of(pairs: Array, query: Sequence[str], key: Sequence[str]) -> tuple[AnyArray, Axis, Axis]:
    """Shrink the pairs to a heatmap: the largest parts of each side, and the sum of the others."""
    axes = []
    for axis, (name, labels) in enumerate(zip(SIDES, (query, key), strict=True)):
        order = np.argsort(-np.abs(pairs).max(axis=1 - axis), kind="stable")
        shown, others = np.sort(order[:PARTS_SHOWN]), order[PARTS_SHOWN:]
        names = [*labels]
        if others.size:
            rest = pairs.take(others, axis).sum(axis, keepdims=True)
            pairs = np.concatenate([pairs.take(shown, axis), rest], axis)
            names = [*(labels[i] for i in shown), other_parts(len(others))]
        axes.append(named_axis(name, tuple(names)))
    return pairs, axes[0], axes[1]


def other_parts(count: int) -> Message:
    return Message("the other {count} parts", count=count)


def in_quotes(axis: Axis, index: int) -> str:
    """A token in quotation marks, with its position if the token occurs twice."""
    token = axis.tokens[index]
    if token is None:
        return axis.in_words(index)
    word = f"“{printable(token.text.strip() or token.symbol)}”"
    is_only = sum(other is not None and other.id == token.id for other in axis.tokens) == 1
    return word if is_only else f"{word} ({axis.positions[index]})"
