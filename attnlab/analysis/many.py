"""Analyses of many texts: means over the texts, with standard errors.

Texts of one length are computed side by side; see `attnlab.model.traces`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from attnlab.analysis.attribution import Attribution
from attnlab.analysis.base import (
    Analysis,
    TokenLike,
    TraceSequence,
    named_axis,
    number_of_texts,
)
from attnlab.analysis.lens import OneToken, decode_stream, points_of, ranks_and_probabilities
from attnlab.equations import AnyArray
from attnlab.errors import InvalidTypeError, InvalidValueError
from attnlab.steps import at, read_only
from attnlab.steps.labels import Axis
from attnlab.support.checks import as_index
from attnlab.support.messages import Message
from attnlab.support.tables import Table, format_with_error, header

# Tokens that are computed side by side: enough for fast matrix products, with little memory.
TOKENS_IN_GROUP = 512


class MeanAttribution(Attribution):
    """What each component adds to a logit, means over texts; as `Traces.attribution` returns it.

    Attributes
    ----------
    heads, mlps, token_embedding, position_embedding, embedding, bias, total : as in `Attribution`,
        means over texts
    standard_errors : of the means, by attribute name; NaN for one text
    each : the `Attribution` of each text
    """

    names: ClassVar[tuple[str, ...]] = (
        "heads",
        "mlps",
        "token_embedding",
        "position_embedding",
        "embedding",
        "bias",
        "total",
    )

    def __init__(
        self,
        traces: TraceSequence,
        token: TokenLike | list[TokenLike],
        against: TokenLike | list[TokenLike] | None,
        position: int,
    ) -> None:
        tokens = value_for_each(token, len(traces), "token")
        others = value_for_each(against, len(traces), "against")
        attributions: dict[int, Attribution] = {}
        for indices in traces.groups():
            for i, trace in zip(indices, traces.side_by_side(indices)[1], strict=True):
                attributions[i] = Attribution(trace, tokens[i], others[i], position)
        self.each = tuple(attributions[i] for i in range(len(traces)))
        target = self.each[0].target.logit_message
        if isinstance(token, list) or isinstance(against, list):
            target = Message("a target for each text")
        self.title = Message(
            "Direct logit attribution, mean of {texts}: {target}",
            texts=number_of_texts(len(traces)),
            target=target,
        )
        values = {
            name: np.array([getattr(attribution, name) for attribution in self.each], float)
            for name in self.names
        }
        self.standard_errors = set_means(self, values)

    def _tables(self) -> Iterator[str | Table]:
        yield from super()._tables()
        if len(self.each) == 1:
            return
        yield Message(
            "Standard errors are at most {heads} for heads and {mlps} for MLPs.",
            heads=f"{self.standard_errors['heads'].max():.2g}",
            mlps=f"{self.standard_errors['mlps'].max():.2g}",
        )

    def by_token(self) -> Any:
        raise InvalidTypeError(
            "texts have different tokens. Use .by_token() of one text, such as .each[0].by_token()"
        )


class MeanLens(Analysis):
    """The logit lens of several texts, as `Traces.logit_lens` returns it.

    Attributes
    ----------
    stops : S paths, as in `Lens`
    probabilities : (S,), the mean over the texts of a token's probability decoded from each point
    ranks : (S,), the mean of the token's rank
    standard_errors : of the means, by attribute name; NaN for one text
    """

    meaning: ClassVar[str] = OneToken.meaning
    note: ClassVar[str] = OneToken.note
    source: ClassVar[str] = OneToken.source
    names = ("probabilities", "ranks")

    probabilities: NDArray[np.float64]
    ranks: NDArray[np.float64]

    def __init__(
        self, traces: TraceSequence, token: TokenLike | list[TokenLike] | None, position: int
    ) -> None:
        self.stops, vocabulary = points_of(traces[0]), traces[0].vocabulary
        tokens = value_for_each(token, len(traces), "token")
        # -1 if token is None: then each text's most probable token, found below.
        ids = [-1 if token is None else vocabulary.lookup(token).id for token in tokens]
        each = np.empty((2, len(traces), len(self.stops)))  # probabilities and ranks
        for indices in traces.groups():
            trace, _ = traces.side_by_side(indices)
            row = as_index(position, "position", len(traces.texts[indices[0]]))
            group_ids = np.array([ids[i] for i in indices])[:, np.newaxis]
            if token is None:
                last = at(trace, self.stops[-1])[..., row, :]
                group_ids = decode_stream(trace, last).argmax(-1).reshape(-1, 1)
            for s, stop in enumerate(self.stops):
                stream = at(trace, stop)[..., row, :].reshape(len(indices), -1)
                ranks, probabilities = ranks_and_probabilities(
                    group_ids, decode_stream(trace, stream)
                )
                each[0, indices, s], each[1, indices, s] = probabilities, ranks
        if token is None:
            description: str = Message("each text’s most probable token")
        elif isinstance(token, list):
            description = Message("a token for each text")
        else:
            description = vocabulary.lookup(token).symbol
        self.title = Message(
            "Logit lens, mean of {texts}: probability and rank of {token}",
            texts=number_of_texts(len(traces)),
            token=description,
        )
        self.standard_errors = set_means(self, dict(zip(self.names, each, strict=True)))

    def _grid(self) -> tuple[AnyArray, Axis, Axis]:
        columns = named_axis("", ("probability",))
        return self.probabilities[:, np.newaxis], named_axis("stop", self.stops), columns

    def _tables(self) -> Iterator[str | Table]:
        lines = [header("", "probability", "± standard error", "rank", "± standard error")]
        for row, stop in enumerate(self.stops):
            cells = (
                format_with_error(
                    float(getattr(self, name)[row]), float(self.standard_errors[name][row])
                )
                for name in self.names
            )
            lines.append((stop, *chain(*cells)))
        yield Table(lines)


def set_means(result: Analysis, values: Mapping[str, AnyArray]) -> dict[str, Any]:
    """Set the means over the texts, the first axis, by name; return their standard errors."""
    errors: dict[str, Any] = {}
    for name, numbers in values.items():
        mean, error = numbers.mean(axis=0), standard_error(numbers)
        setattr(result, name, read_only(mean) if mean.ndim else float(mean))
        errors[name] = read_only(error) if mean.ndim else float(error)
    return errors


def plus_minus(number: float, error: float) -> str:
    """A number ± its standard error; only the number if the error isn't finite."""
    return " ± ".join(filter(None, format_with_error(number, error)))


def standard_error(numbers: AnyArray) -> NDArray[np.float64]:
    """The standard error of the mean over the first axis; NaN for one number."""
    n = len(numbers)
    if n == 1:
        return np.full(numbers.shape[1:], math.nan)
    return np.asarray(numbers.std(axis=0, ddof=1) / math.sqrt(n))


def ratio_of_means(effects: AnyArray, totals: AnyArray) -> tuple[Any, Any]:
    """Σ effects / Σ totals over n texts, and its standard error.

    √(Σ e² / (n (n - 1))) / |mean of totals|, where e = effect - ratio · total

    Parameters
    ----------
    effects, totals : (n, m) and (n,)

    Returns
    -------
    ratio, error : (m,)

    Notes
    -----
    Source: Cochran, “Sampling Techniques” (1977), chapter 6, by linearisation.
    """
    if not totals.mean():
        raise InvalidValueError(
            "the mean change over these texts is 0, so there is nothing to restore"
        )
    ratio = effects.mean(axis=0) / totals.mean()
    return ratio, standard_error(effects - ratio * totals[:, np.newaxis]) / abs(totals.mean())


def group_equal(keys: Sequence[Any], most: int) -> list[list[int]]:
    """Group the indices of texts with equal keys.

    Parameters
    ----------
    keys : the number of tokens of each text, or tuples that begin with it
    most : the maximum number of tokens in a group; a longer text is a group by itself
    """
    groups: list[list[int]] = []
    by_key: dict[Any, list[int]] = {}
    for i, key in enumerate(keys):
        by_key.setdefault(key, []).append(i)
    for key, indices in by_key.items():
        size = max(most // (key[0] if isinstance(key, tuple) else key), 1)
        groups += [indices[start : start + size] for start in range(0, len(indices), size)]
    return groups


def value_for_each(value: Any, count: int, name: str) -> list[Any]:
    """A list with a value for each text: `value` if it is a list, or else its repetitions."""
    if not isinstance(value, list):
        return [value] * count
    if len(value) != count:
        raise InvalidValueError(
            f"{name} must have a value for each of the {count} texts; got {len(value)}"
        )
    return value
