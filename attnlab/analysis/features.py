"""The features that a sparse autoencoder finds in a text, what each writes, and the error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from attnlab import equations
from attnlab.analysis.base import (
    Analysis,
    Trace,
    TraceSequence,
    named_axis,
    number_of_texts,
    positions_of,
)
from attnlab.analysis.circuits import TokensOfHead, centred
from attnlab.analysis.lens import check_next_tokens, losses_of
from attnlab.analysis.many import standard_error
from attnlab.equations import AnyArray, Array
from attnlab.errors import InvalidValueError
from attnlab.steps import at, read_only
from attnlab.support.checks import as_count, as_float
from attnlab.support.messages import Message
from attnlab.support.tables import Table, format_with_error, header
from attnlab.views.positions import as_index, token_index
from attnlab.views.shown import Axis, label

# attnlab.analysis.autoencoder.SparseAutoencoder, whose module imports this one.
Autoencoder: TypeAlias = Any

SOURCE = (
    "Bricken et al., “Towards Monosemanticity” (2023); Cunningham et al., “Sparse Autoencoders "
    "Find Highly Interpretable Features in Language Models” (2023)"
)

# The last name of a path whose step is the residual stream, or is added to it.
IN_STREAM = ("embedding", "token_embedding", "position_embedding", "input", "mid", "output")

# Features in a heatmap, features per token in a table, promoted tokens per feature.
FEATURES_SHOWN, FEATURES_PER_TOKEN, TOKENS_PROMOTED = 12, 3, 3


class Features(Analysis):
    """The features of a text, as `Trace.features` returns them.

    x = reconstruction + error, reconstruction = activations W_dec + b_dec

    The table and the plot show the fraction of x that each part writes, written · x / ‖x‖². The
    fractions of all features, of b_dec and of the error sum to 1.

    Attributes
    ----------
    sae, path : the autoencoder, and the path of x
    x : (T, D)
    activations : (T, n)
    reconstruction, error : (T, D)
    shares : (T, n), the fractions of x that the features write; NaN where x is 0
    bias_share, error_share : (T,), the fractions of b_dec and of the error
    """

    meaning: ClassVar[str] = (
        "Each number is the fraction of a token's vector x that a part writes: written · x / ‖x‖². "
        "The features, b_dec and the error sum to 1."
    )
    note: ClassVar[str] = (
        "The error is what the features don't explain; the model uses it too. A feature is a "
        "direction, trained so that sums of a few approximate many vectors: the model need not use "
        "it, it need not have one meaning, and another training run finds others."
    )
    source: ClassVar[str] = SOURCE

    def __init__(self, trace: Trace, sae: Autoencoder, path: str | None) -> None:
        self.sae, self._trace = sae, trace
        self.path, x = sae.read(trace, path)
        self.title = Message(
            "Features of {path}{note}: fraction of each token's vector",
            path=self.path,
            note=trace._note,
        )
        self.x, self.activations = x, read_only(sae.encode(x))
        self.reconstruction = read_only(sae.decode(self.activations, x))
        self.error = read_only(x - self.reconstruction)
        norms = np.square(x).sum(axis=-1)
        products = self.activations * sae.scale(x) * (x @ sae.W_dec.T.astype(x.dtype))
        bias = sae.decode(np.zeros_like(self.activations), x)  # b_dec
        with np.errstate(invalid="ignore"):  # NaN where x is 0
            self.shares = read_only(products / norms[..., np.newaxis])
            self.bias_share = read_only((bias * x).sum(axis=-1) / norms)
            self.error_share = read_only((self.error * x).sum(axis=-1) / norms)

    def top(self, token: int | str = -1, k: int = 5) -> TopFeatures:
        """The most active features of a token, and the tokens whose logits each raises most.

        Parameters
        ----------
        token : its position, which may be negative, or its text, such as "it"
        k : how many, at most
        """
        return TopFeatures(self, token_index(self._trace, "position", token, len(self.x)), k)

    def writes(self, feature: int, k: int = 5) -> TokensOfFeature:
        """The tokens whose logits a feature raises most; it doesn't depend on the text.

        centred(W_dec[feature]) · gain W_U: the direct effect of an activation of 1 through the last
        LayerNorm, with its standard deviation taken as 1

        Parameters
        ----------
        feature : its index
        k : how many
        """
        index = self._index(feature)
        title = Message("Feature {feature}: tokens it promotes", feature=index)
        return TokensOfFeature(title, self._trace, self._logits([index])[0], k)

    def scaled(self, feature: int, factor: float) -> dict[str, Callable[[Array], Array]]:
        """An edit that scales a feature's contribution to x; the error is unchanged.

        x + (factor - 1) · activation · W_dec[feature]

        To edit several features, chain the calls: `trace.edited(first).edited(second)`.

        Parameters
        ----------
        feature : its index
        factor : 0 switches it off

        Examples
        --------
        >>> without = trace.edited(features.scaled(17, 0))
        """
        index, factor = self._index(feature), as_float(factor, "factor", least=None)
        written = self.activations[..., [index]] * self.sae.W_dec[index] * self.sae.scale(self.x)
        return {self.path: lambda x: x + (factor - 1) * written}

    def _index(self, feature: int) -> int:
        return as_index(feature, "feature", len(self.sae.b_enc))

    def _logits(self, features: Any) -> Array:
        """What features add to the logits, see `writes`, (k, vocab)."""
        if self.path.rpartition(".")[2] not in IN_STREAM:
            raise InvalidValueError(
                "{path} isn't added to the residual stream: its features add nothing to the "
                "logits directly",
                path=self.path,
            )
        return equations.logits(
            centred(self.sae.W_dec[features]) * self._trace.gain, self._trace.W_U
        )

    def _grid(self) -> tuple[AnyArray, Axis, Axis]:
        largest = np.nan_to_num(self.shares).max(axis=0)
        shown = np.sort(np.argsort(-largest, kind="stable")[:FEATURES_SHOWN])
        others = self.shares.sum(axis=-1) - self.shares[:, shown].sum(axis=-1)
        numbers = np.stack([*self.shares.T[shown], others, self.bias_share, self.error_share])
        return numbers, parts_axis(shown), positions_of(self._trace)

    def _tables(self) -> Iterator[str | Table]:
        lines = [header("token", "active", "largest", "b_dec", "error")]
        for row, token in enumerate(positions_of(self._trace).labels):
            active = most_active(self.activations[row])
            largest = (f"#{n} {self.shares[row, n]:z.2f}" for n in active[:FEATURES_PER_TOKEN])
            bias, error = f"{self.bias_share[row]:z.2f}", f"{self.error_share[row]:z.2f}"
            lines.append((token, str(len(active)), "  ".join(largest), bias, error))
        yield Table(lines, left=(0, 2))


def most_active(activations: Array) -> NDArray[np.int64]:
    """The active features of a token, the most active first."""
    return np.argsort(-activations, kind="stable")[: np.count_nonzero(activations)]


def parts_axis(features: NDArray[np.int64]) -> Axis:
    """The axis of some features and of the other parts of x."""
    names = (Message("feature {feature}", feature=feature) for feature in features.tolist())
    others = Message("other features"), "b_dec", Message("error")
    return named_axis("part", (*names, *others))


class TopFeatures(Analysis):
    """The most active features of one token, as `Features.top` returns them.

    Attributes
    ----------
    position : of the token
    features : int64 (k,), indices
    activations : (k,)
    shares : (k + 3,), the fractions of x that these features, all others, b_dec and the error
        write, see `Features`; they sum to 1
    """

    meaning: ClassVar[str] = Features.meaning
    note: ClassVar[str] = Features.note
    source: ClassVar[str] = SOURCE

    def __init__(self, result: Features, position: int, k: int) -> None:
        self.title = Message("{title}, position {position}", title=result.title, position=position)
        self.position, self._result = position, result
        self.features = read_only(most_active(result.activations[position])[: as_count(k, "k", 1)])
        self.activations = read_only(result.activations[position, self.features])
        fractions = result.shares[position, self.features]
        others = result.shares[position].sum() - fractions.sum()
        bias, error = result.bias_share[position], result.error_share[position]
        self.shares = read_only(np.array([*fractions, others, bias, error]))

    def _grid(self) -> tuple[AnyArray, Axis, Axis]:
        return self.shares[:, np.newaxis], parts_axis(self.features), named_axis("", ("fraction",))

    def _tables(self) -> Iterator[str | Table]:
        result, n = self._result, len(self.shares)
        activations, promoted = [""] * n, [""] * n
        activations[: len(self.features)] = (f"{number:.2f}" for number in self.activations)
        if result.path.rpartition(".")[2] in IN_STREAM and len(self.features):
            ids = np.argsort(-result._logits(self.features), axis=-1)[:, :TOKENS_PROMOTED]
            vocabulary = result._trace.vocabulary
            symbols = ([label(vocabulary.token(id).symbol) for id in row] for row in ids)
            promoted[: len(ids)] = map(" ".join, symbols)
        fractions = (f"{fraction:z.2f}" for fraction in self.shares)
        names = parts_axis(self.features).labels
        lines = zip(names, activations, fractions, promoted, strict=True)
        yield Table([header("part", "activation", "fraction", "raises"), *lines], left=(0, 3))


class TokensOfFeature(TokensOfHead):
    """The tokens that a feature promotes, as `Features.writes` returns them."""

    meaning: ClassVar[str] = (
        "Each number is what an activation of 1 adds to a token's logit, times the last "
        "LayerNorm's deviation."
    )
    note: ClassVar[str] = (
        "Only the direct effect is counted: what later heads and MLPs make of the feature may "
        "matter more."
    )
    source: ClassVar[str] = SOURCE


class FeatureEvaluation(Analysis):
    """How much of a model an autoencoder explains, as `SparseAutoencoder.evaluate` measures it.

    explained = 1 - Σ ‖error‖² / Σ ‖x - mean of x‖², over all tokens

    Attributes
    ----------
    explained : the explained variance
    density : (n,), the fraction of tokens on which each feature is active
    active : the mean number of active features of a token, L0
    dead : the number of features that are active on none of these tokens
    losses : (3,), cross-entropy in nats per token, means over texts: the model's own, with x
        replaced by its reconstruction, and with x replaced by b_dec alone
    errors : (3,), their standard errors; NaN for one text
    each : (3, texts), the losses of each text
    """

    meaning: ClassVar[str] = (
        "Each number is a mean cross-entropy in nats per token, with x, with its reconstruction "
        "and with b_dec alone."
    )
    note: ClassVar[str] = (
        "A small loss says that the features keep what the model needs for these texts, not that "
        "they have a meaning: enough features could keep everything."
    )
    source: ClassVar[str] = SOURCE
    decimals: ClassVar[int] = 3

    def __init__(self, sae: Autoencoder, traces: TraceSequence, path: str | None) -> None:
        check_next_tokens(traces)
        n, D = sae.W_dec.shape
        total, counts, each = np.zeros(D), np.zeros(n), np.empty((3, len(traces)))
        tokens, squares, unexplained = 0, 0.0, 0.0
        for indices in traces.groups():
            trace, _ = traces.side_by_side(indices)
            at_path, x = sae.read(trace, path)
            activations = sae.encode(x)
            reconstruction = sae.decode(activations, x)
            rows = x.reshape(-1, D).astype(np.float64)
            tokens, total = tokens + len(rows), total + rows.sum(axis=0)
            squares += float(np.square(rows).sum())
            unexplained += float(np.square(x - reconstruction).sum(dtype=np.float64))
            counts += np.count_nonzero(activations.reshape(-1, n), axis=0)
            bias = sae.decode(np.zeros_like(activations), x)  # b_dec
            runs = trace, *(trace.edited({at_path: value}) for value in (reconstruction, bias))
            ids = at(trace, "ids")[..., 1:, np.newaxis]
            for row, run in enumerate(runs):
                each[row, indices] = losses_of(run.logits[..., :-1, :], ids)
        self.explained = 1 - unexplained / (squares - float(total @ total) / tokens)
        self.density = read_only(counts / tokens)
        self.active, self.dead = float(self.density.sum()), n - np.count_nonzero(counts)
        self.each: NDArray[np.float64] = read_only(each)
        self.losses = read_only(each.mean(axis=-1))
        self.errors = read_only(standard_error(each.T))
        texts = number_of_texts(len(traces))
        self.title = Message("{n} features of {path} in {texts}", n=n, path=at_path, texts=texts)

    def _grid(self) -> tuple[AnyArray, Axis, Axis]:
        names = "x", Message("reconstruction"), "b_dec"
        return self.losses[:, np.newaxis], named_axis("", names), named_axis("", ("loss",))

    def _tables(self) -> Iterator[str | Table]:
        lines = [header("with", "loss", "± standard error")]
        for name, *loss in zip(self._grid()[1].labels, self.losses, self.errors, strict=True):
            lines.append((name, *format_with_error(*map(float, loss))))
        yield Table(lines)
        yield Message(
            "explained variance {explained}; {active} active features a token; {dead} of {n} dead",
            explained=f"{self.explained:.3f}",
            active=f"{self.active:.1f}",
            dead=self.dead,
            n=len(self.density),
        )
