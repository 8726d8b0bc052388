"""The atlas: means with standard errors, and example passages."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from attnlab.analysis.base import (
    Analysis,
    head_name,
    heads_axis,
    named_axis,
    number_of_texts,
    numbered_axis,
)
from attnlab.analysis.jobs import JOBS
from attnlab.corpus.details import Details, HeadTable
from attnlab.corpus.measures import (
    ALL_TOKENS,
    MEASURES,
    TITLES,
    VARIANT_TITLES,
    is_per_head,
    measure_trace,
    split_name,
)
from attnlab.corpus.tally import MIN_TEXTS, NO_PASSAGE, TOKEN_BITS, Tally, ratio
from attnlab.equations import AnyArray
from attnlab.errors import (
    AtlasError,
    InvalidTypeError,
    InvalidValueError,
    MissingFileError,
    UnknownMeasureError,
    quoted,
)
from attnlab.model.gpt2 import GPT2
from attnlab.steps import Numbered, read_only
from attnlab.steps.labels import Axis, Grid, label, long_columns
from attnlab.support import door
from attnlab.support.checks import check_kind, reraised_as
from attnlab.support.files import FilePath, as_path
from attnlab.support.messages import Message
from attnlab.support.scale import WEIGHTS, Scale
from attnlab.support.sealed import read_sealed, write_sealed
from attnlab.support.tables import (
    PLUS_MINUS,
    SIGNED_PLUS_MINUS,
    Columns,
    Document,
    Format,
    Heading,
    Paragraph,
    Table,
    header,
    listed,
)

if TYPE_CHECKING:
    from numpy.typing import ArrayLike
    from xarray import Dataset

    from attnlab.support.door import Explorer
    from attnlab.text.tokens import Tokens

FORMAT = "2"

# The file that a run writes into its directory.
RESULT = "atlas.safetensors"

# Characters of a passage that are shown.
CHARACTERS_SHOWN = 60

Means = NDArray[np.float64]


@dataclass(frozen=True)
class Passage:
    """A window of a text in which a measure is largest or smallest."""

    text: str  #: the text's name, such as "line 7"
    start: int  #: position of its first token in the text
    ids: tuple[int, ...]  #: for `model.trace(passage.ids)`
    value: float
    content: str  #: the text of the window

    def __str__(self) -> str:
        start = Message("{text}, token {start}: ", text=self.text, start=self.start)
        return f"{self.value:.3f}  {start!s}{label(self.content, CHARACTERS_SHOWN)}"


class Passages(Document, tuple[Passage, ...]):
    """Passages, as `Measured.most` and `Measured.least` return them."""

    _shown: ClassVar[Mapping[str, Format]] = {
        "value": ".3f",
        "text": "",
        "start": ("first token", ""),
        "content": lambda content: label(content, CHARACTERS_SHOWN),
    }


@dataclass(frozen=True)
class Standout:
    """The head with the largest mean of a measure, see `Atlas.standouts`."""

    measure: str
    layer: int
    head: int
    mean: float
    error: float
    median: float  #: of all heads' means
    errors: float  #: (mean - median) / error; NaN if the error is 0 or unknown


class Standouts(Document, tuple[Standout, ...]):
    """The heads that stand out, as `Atlas.standouts` returns them."""

    _shown: ClassVar[Mapping[str, Format]] = {
        **dict.fromkeys(("measure", "layer", "head"), ""),
        "mean": PLUS_MINUS,
        "error": "",
        "median": ("median head", ".3g"),
        "errors": ("errors above the median", ",.0f"),
    }

    def pieces(self) -> Iterator[str | Table]:
        yield from super().pieces()
        yield Paragraph(
            "The largest of many heads is a few standard errors above the median by chance alone."
        )


def title_of_mean(title: str, atlas: Atlas) -> Message:
    """The title of a mean over an atlas's texts."""
    return Message(
        "{title}: mean of {texts}, {tokens} tokens",
        title=title,
        texts=number_of_texts(atlas.texts),
        tokens=f"{atlas.tokens:,}",
    )


class Measured(Analysis):
    """One measure of every head over a corpus, as `atlas["induction"]` returns it.

    mean = Σ sums / Σ divisors, variance = N / (N - 1) Σ (sums - mean divisors)² / (Σ divisors)²,
    over N texts

    Attributes
    ----------
    name : of the measure, such as "induction"
    mean, error : (L, H), or () for loss; the error is one standard error over texts, NaN with fewer
        than two texts
    texts : like `mean`, the number of texts that contributed
    places : like `mean`, Σ divisors: the number of tokens, or their total weight
    says : a description of the measure
    short_title : its title on the page, without the variant
    """

    note: ClassVar[str] = (
        "Errors are one standard error of a mean over texts like these. They don't cover other "
        "kinds of text, and where a head attends doesn't show what it does with that token."
    )
    source: ClassVar[str] = (
        "Cochran, “Sampling Techniques” (1977), section 2.11: the variance of a ratio of two sums"
    )
    decimals: ClassVar[int] = 3

    def __init__(self, atlas: Atlas, name: str, columns: slice) -> None:
        self.name, self._atlas, self._columns = name, atlas, columns
        self.says = MEASURES.get(name, "user-defined measure")
        shape = (atlas.n_layer, atlas.n_head) if is_per_head(name) else ()
        # N texts; s is Σ sums, n is Σ divisors, ss is Σ sums² and so on, see `Tally.moments`.
        N, s, n, ss, sn, nn = (m.reshape(shape) for m in atlas._tally.moments[:, columns])
        mean, error = ratio(N, n, nn, s, ss, sn)
        self.mean, self.error, self.texts, self.places = map(
            read_only, map(np.asarray, (mean, error, N.astype(np.int64), n))
        )
        self.title = title_of_mean(name, atlas)
        kind, _ = split_name(name)
        self.short_title = Message(TITLES.get(kind, "{name}"), name=kind)

    @property
    def scale(self) -> Scale:
        """The colour scale of its means: that of weights, or one shared by all its variants."""
        kind, _ = split_name(self.name)
        if kind in JOBS:
            return WEIGHTS
        variants = [x for x in self._atlas.values() if split_name(x.name)[0] == kind]
        return Scale.of(np.stack([measure.mean for measure in variants]))

    def _grids(self) -> list[Grid]:
        return [replace(grid, fixed_scale=self.scale) for grid in super()._grids()]

    def _batches(self, width: int) -> dict[int, Means]:
        """Sums and divisors, (2, L, H) or (2,), of batches of `width` texts, by number."""
        batches = self._atlas._tally.batches_of(width)
        shape = 2, *self.mean.shape
        return {number: sums[:, self._columns].reshape(shape) for number, sums in batches.items()}

    def most(self, layer: int | None = None, head: int | None = None) -> Passages:
        """Up to three passages with a head's largest values, or the loss's, largest first."""
        return self._extremes(layer, head, smallest=False)

    def least(self, layer: int | None = None, head: int | None = None) -> Passages:
        """Up to three passages with the smallest values, smallest first; see `most`."""
        return self._extremes(layer, head, smallest=True)

    def _extremes(self, layer: int | None, head: int | None, *, smallest: bool) -> Passages:
        tally = self._atlas._tally
        column = self._columns.start
        if is_per_head(self.name):
            if layer is None or head is None:
                raise InvalidTypeError(f"{self.name} is measured by head; give a layer and a head")
            heads = range(self._atlas.n_head)
            layer = Numbered("layer", range(self._atlas.n_layer)).item(layer)
            column += layer * len(heads) + Numbered("head", heads).item(head)
        elif layer is not None or head is not None:
            raise InvalidTypeError(f"{self.name} is of the whole model; leave out layer and head")
        numbers = tally.passages[int(smallest), :, column]
        ranks = tally.ranks[int(smallest), :, column]
        values = ranks if smallest else -ranks
        return Passages(
            self._atlas._passage(int(number), float(value))
            for number, value in zip(numbers, values, strict=True)
            if number != NO_PASSAGE
        )

    def _data(self) -> Columns:
        names = ("mean", "error", "texts", "places")
        L, H = self.mean.shape or (1, 1)
        axes = [heads_axis("head", L, H)] if self.mean.ndim else []  # loss has no head
        return long_columns(axes, {name: getattr(self, name) for name in names})

    def _grid(self) -> tuple[AnyArray, Axis, Axis]:
        L, H = np.atleast_2d(self.mean).shape
        return np.atleast_2d(self.mean), numbered_axis("layer", L), numbered_axis("head", H)

    def _tables(self) -> Iterator[str | Table]:
        yield from super()._tables()
        meaning = Message(self.says)
        if np.isfinite(self.error).any():
            largest = f"{np.nanmax(self.error):.1g}"
            yield Message("{says}; errors up to {largest}", says=meaning, largest=largest)
        elif self.texts.any():
            yield Message("{says}; no error with one text", says=meaning)
        else:
            yield Message("{says}; no text has such tokens", says=meaning)


class HeadProfile(Analysis):
    """All measures of one head, as `Atlas.head` returns it.

    The plot shows its place among all heads, since the measures have different units.

    Attributes
    ----------
    measures : their names; loss is left out
    mean, error : (M,), by measure
    positions, distances, pairs, writes, twins, tops : in an atlas made with `heads=True`, what the
        head's page shows, a `HeadTable` each
    """

    meaning: ClassVar[str] = "Each number is the fraction of all heads whose mean is smaller."
    note: ClassVar[str] = Measured.note
    source: ClassVar[str] = Measured.source

    def __init__(self, atlas: Atlas, layer: int, head: int) -> None:
        self.measures = atlas._per_head()
        self._measured = [atlas[name] for name in self.measures]
        self._index = index = (
            Numbered("layer", range(atlas.n_layer)).item(layer),
            Numbered("head", range(atlas.n_head)).item(head),
        )
        self.mean = read_only(np.array([measure.mean[index] for measure in self._measured]))
        self.error = read_only(np.array([measure.error[index] for measure in self._measured]))
        self.title = title_of_mean(head_name(*index), atlas)
        self._atlas = atlas

    def _table(self, name: str) -> HeadTable:
        layer, head = self._index
        details = self._atlas.details
        if not details:
            raise UnknownMeasureError(
                "this atlas has no details of heads; make it with atlas(..., heads=True)"
            )
        return HeadTable(name, layer, head, details[layer * self._atlas.n_head + head][name])

    @property
    def top_passages(self) -> Passages:
        """The windows of `tops` up to the end of what is shown, with ids to trace."""
        columns = self.tops.columns
        names = ("text", "window", "ids", "strength", "content")
        rows = zip(*(columns.get(name, ()) for name in names), strict=True)
        return Passages(Passage(x[0], x[1], tuple(x[2]), *x[3:]) for x in rows)

    positions = property(lambda self: self._table("positions"), doc="Weight by the key's position.")
    distances = property(lambda self: self._table("distances"), doc="Weight by distance.")
    pairs = property(lambda self: self._table("pairs"), doc="Token pairs with the largest weights.")
    writes = property(lambda self: self._table("writes"), doc="Tokens it promotes and demotes.")
    twins = property(lambda self: self._table("twins"), doc="The heads that attend most like it.")
    tops = property(
        lambda self: self._table("tops"), doc="Texts in which it attends most strongly."
    )

    def _grid(self) -> tuple[AnyArray, Axis, Axis]:
        smaller = [
            np.nan if np.isnan(own) else (measure.mean < own).mean()
            for measure, own in zip(self._measured, self.mean, strict=True)
        ]
        measures = named_axis("measure", self.measures)
        return np.array(smaller)[:, np.newaxis], measures, named_axis("", ("smaller",))

    def _repr_html_(self) -> str:
        return Document._repr_html_(self)  # the table says more than the heatmap

    def _tables(self) -> Iterator[Table]:
        count = self._measured[0].mean.size
        ranks = {"rank": lambda rank: Message("{rank} of {count}", rank=rank, count=count)}
        yield listed(self._data(), {"mean": ".3f", "error": ".3f", "texts": ",", **ranks})

    def _data(self) -> Columns:
        means = [measure.mean for measure in self._measured]
        return {
            "measure": self.measures,
            "mean": self.mean,
            "error": self.error,
            "rank": [
                None if np.isnan(own) else 1 + int((mean > own).sum())
                for mean, own in zip(means, self.mean, strict=True)
            ],
            "texts": [measure.texts[self._index] for measure in self._measured],
        }


class Difference(Analysis):
    """How one atlas differs from another, as `Atlas.compare` returns it.

    If both are over the same texts, variation between texts cancels. The error is then that of a
    difference of two ratios, from sums over G batches of texts:

    d = (s₂ - mean₂ n₂) / Σ n₂ - (s₁ - mean₁ n₁) / Σ n₁ of each batch, variance = G / (G - 1) Σ d²

    With 128 texts or fewer, each text is a batch. Over different texts, the error is
    √(error₁² + error₂²).

    Attributes
    ----------
    measures : those in both atlases
    difference, error : by measure, (L, H) each: the second mean minus the first, and its standard
        error
    batches : number of batches; 0 for different texts
    """

    note: ClassVar[str] = (
        "Errors are one standard error: paired by batch over the same texts, independent over "
        "different texts. Among many differences, some are large by chance."
    )
    source: ClassVar[str] = (
        "Cochran, “Sampling Techniques” (1977), chapter 6: two ratios; Wolter, “Introduction to "
        "Variance Estimation” (2007), chapter 2: batches"
    )
    lines_shown: ClassVar[int] = 20

    def __init__(self, first: Atlas, second: Atlas) -> None:
        is_same = first.corpus == second.corpus
        self.title = Message(
            "The second atlas minus the first, over the same texts, in standard errors"
            if is_same
            else "The second atlas minus the first, over different texts, in standard errors"
        )
        self.measures = tuple(n for n in first.measures if n in second.measures)
        self.difference = {n: read_only(second[n].mean - first[n].mean) for n in self.measures}
        self.batches, width = 0, max(first._tally.width, second._tally.width)
        if is_same:
            numbers = first._tally.batches_of(width).keys() | second._tally.batches_of(width).keys()
            self.batches = len(numbers)
        self.error = {}
        for name in self.measures:
            self.error[name] = read_only(
                paired_error(first[name], second[name], width)
                if self.batches
                else np.hypot(first[name].error, second[name].error)
            )

    def _z_scores(self, name: str) -> AnyArray:
        """The differences divided by their errors."""
        difference, error = self.difference[name], self.error[name]
        with np.errstate(divide="ignore", invalid="ignore"):  # 0 / 0 where nothing varies
            return np.where(difference == 0, 0.0, difference / error)

    def _grid(self) -> tuple[AnyArray, Axis, Axis]:
        # Loss has no heads, so it is shown only if it is the only measure.
        measures = tuple(filter(is_per_head, self.measures)) or self.measures
        names = tuple(map(_name_of, np.ndindex(self.difference[measures[0]].shape)))
        grid = np.stack([self._z_scores(name).ravel() for name in measures], axis=1)
        return grid, named_axis("head", names), named_axis("measure", measures)

    _shown: ClassVar[Mapping[str, Format]] = {
        "difference": SIGNED_PLUS_MINUS,
        "ratio": ("difference / error", "+.1f"),
    }

    def _data(self) -> Columns:
        """Every difference; loss has no layer and no head."""
        numbers = self.difference, self.error, {n: self._z_scores(n) for n in self.measures}
        heads = [(n, index) for n in self.measures for index in np.ndindex(self.error[n].shape)]
        columns: Columns = {
            "measure": [name for name, _ in heads],
            "layer": [index[0] if index else None for _, index in heads],
            "head": [index[1] if index else None for _, index in heads],
        }
        for name, values in zip(("difference", "error", "ratio"), numbers, strict=True):
            columns[name] = np.concatenate([values[n].ravel() for n in self.measures])
        return columns

    def _tables(self) -> Iterator[Table]:
        columns = self._data()
        order = np.argsort(-np.abs(columns["ratio"]), kind="stable")  # NaN last
        shown = [n for n in order[: self.lines_shown] if not np.isnan(columns["ratio"][n])]
        yield listed({name: [x[n] for n in shown] for name, x in columns.items()}, self._shown)


def _name_of(index: tuple[int, ...]) -> str:
    """The name of the head at (layer, head); "" for (), the whole model."""
    return head_name(*index) if index else ""


def paired_error(first: Measured, second: Measured, width: int) -> Means:
    """Standard error of a paired difference, from batches of `width` texts."""
    batches, other_batches = first._batches(width), second._batches(width)
    zeros = np.zeros((2, *first.mean.shape))
    squares, count = np.zeros(first.mean.shape), np.zeros(first.mean.shape)
    with np.errstate(divide="ignore", invalid="ignore"):  # divisors and count - 1 may be 0
        for number in sorted(batches.keys() | other_batches.keys()):
            s1, n1 = batches.get(number, zeros)
            s2, n2 = other_batches.get(number, zeros)
            d = (s2 - second.mean * n2) / second.places - (s1 - first.mean * n1) / first.places
            squares, count = squares + d**2, count + (n1 + n2 > 0)
        error: Means = np.sqrt(count / (count - 1) * squares)
    return error


class Atlas(Document, Mapping[str, Measured]):
    """Statistics of every head over a corpus, as `attnlab.atlas` returns them.

    Attributes
    ----------
    measures : their names; `atlas["induction"]` has its means, errors and example passages
    n_layer, n_head : L and H
    model, window : a description of the model, and the tokens traced at once
    model_given : as passed to `GPT2.from_pretrained`; empty for a model in memory
    texts, tokens : how many were measured
    corpus : sha256 of the texts
    faults : name and reason for each text that could not be measured
    details : for each head, its tables' columns; empty unless measured with `heads=True`
    """

    def __init__(
        self,
        about: Mapping[str, Any],
        tally: Tally,
        contents: Mapping[int, str],
        details: Sequence[Details] = (),
    ) -> None:
        """Make an atlas from the metadata, sums, passages and details of a file."""
        self.measures: tuple[str, ...] = tuple(about["measures"])
        self.n_layer, self.n_head = int(about["n_layer"]), int(about["n_head"])
        self.model, self.window = str(about["model"]), int(about["window"])
        self.model_given, self.corpus = str(about["model_given"]), str(about["corpus"])
        self._about, self._tally, self._contents = dict(about), tally, dict(contents)
        self.texts, self.tokens, self.details = tally.texts, tally.tokens, tuple(details)
        self.faults = tuple(tally.faults)

    @cached_property
    def _measured(self) -> dict[str, Measured]:
        start, measured = 0, {}
        for name in self.measures:
            stop = start + (self.n_layer * self.n_head if is_per_head(name) else 1)
            measured[name] = Measured(self, name, slice(start, stop))
            start = stop
        return measured

    def __getitem__(self, name: str) -> Measured:
        if not isinstance(name, str) or name not in self.measures:
            raise UnknownMeasureError(
                f"this atlas has no measure {quoted(name)}; it has {', '.join(self.measures)}"
            )
        return self._measured[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.measures)

    def __len__(self) -> int:
        return len(self.measures)

    def _per_head(self) -> tuple[str, ...]:
        if not any(map(is_per_head, self.measures)):
            raise InvalidValueError("this atlas has only loss, which isn't measured by head")
        return tuple(filter(is_per_head, self.measures))

    def families(self) -> dict[str, list[Measured]]:
        """The measures of heads by family: raw, without the first token, by value."""
        families: dict[str, list[Measured]] = {}
        for name in filter(is_per_head, self.measures):
            families.setdefault(VARIANT_TITLES[split_name(name)[1]], []).append(self[name])
        return families

    def standouts(self) -> Standouts:
        """The head with the largest mean of each raw measure.

        They are sorted by how many standard errors they are above the median, largest first. Among
        many heads the largest is some errors above the median by chance alone.
        """
        standouts = []
        for name in self.measures:
            mean, error = self[name].mean, self[name].error
            if is_per_head(name) and split_name(name)[1] == ALL_TOKENS and not np.isnan(mean).all():
                layer, head = map(int, np.unravel_index(np.nanargmax(mean), mean.shape))
                largest, largest_error = float(mean[layer, head]), float(error[layer, head])
                median = float(np.nanmedian(mean))
                errors = (largest - median) / largest_error if largest_error > 0 else np.nan
                standouts.append(
                    Standout(name, layer, head, largest, largest_error, median, errors)
                )
        return Standouts(sorted(standouts, key=lambda x: -np.nan_to_num(x.errors, nan=-1.0)))

    def head(self, layer: int, head: int) -> HeadProfile:
        """All measures of one head."""
        return HeadProfile(self, layer, head)

    def compare(self, other: Atlas) -> Difference:
        """Compare with another atlas, such as that of a fine-tuned model.

        Layers, heads and windows must agree. Errors are smaller if both are over the same texts in
        the same order.
        """
        check_kind(other, Atlas, "other")
        if (self.n_layer, self.n_head) != (other.n_layer, other.n_head):
            raise InvalidValueError(
                f"can't compare {self.n_layer} layers of {self.n_head} heads with "
                f"{other.n_layer} layers of {other.n_head} heads"
            )
        if self.window != other.window:
            raise InvalidValueError(
                f"can't compare windows of {self.window:,} and {other.window:,} tokens, as "
                "attention depends on the context length; make both with the same `window=`"
            )
        if not set(self.measures) & set(other.measures):
            raise InvalidValueError("the two atlases have no measure in common")
        return Difference(self, other)

    def lines(self) -> list[list[str]]:
        """The means without variants: a header and a row for each head; [] without heads."""
        heads = [n for n in self.measures if is_per_head(n) and split_name(n)[1] == ALL_TOKENS]
        if not heads:
            return []
        lines = [[*header("layer", "head"), *heads]]
        for index in np.ndindex(self.n_layer, self.n_head):
            means = [self[name].mean[index] for name in heads]
            cells = ["" if np.isnan(mean) else f"{mean:.2f}" for mean in means]
            lines.append([*map(str, index), *cells])
        return lines

    def _data(self) -> Columns:
        """The measures of all heads."""
        heads = {name: self[name]._data() for name in self._per_head()}
        rows = self.n_layer * self.n_head
        return {"measure": np.repeat(np.array([*heads], object), rows)} | {
            column: np.concatenate([columns[column] for columns in heads.values()])
            for column in next(iter(heads.values()))
        }

    def pieces(self) -> Iterator[str | Table]:
        yield Heading(self.title)
        if lines := self.lines():
            yield Table(lines, left=())
        yield from map(Paragraph, filter(None, [self.loss, self.caution]))
        if others := [name for name in self.measures if split_name(name)[1]]:
            yield Paragraph(
                "atlas[name] shows a measure with errors; also: {others}", others=", ".join(others)
            )
        yield Paragraph(Measured.note)

    def _repr_html_(self) -> str:
        axes = numbered_axis("layer", self.n_layer), numbered_axis("head", self.n_head)
        grids = [
            Grid(self[name].short_title, self[name].mean, axes, fixed_scale=self[name].scale)
            for name in self.measures
            if is_per_head(name) and split_name(name)[1] == ALL_TOKENS
        ]
        title, *others = (piece for piece in self.pieces() if isinstance(piece, str))
        return door.document_view(self, [title, *grids, *others])

    @property
    def title(self) -> str:
        """The corpus, in numbers, and the model."""
        template = "Atlas of {texts}, {tokens} tokens in windows of {window}"
        if self.faults:
            template = (
                "Atlas of {texts}, {tokens} tokens in windows of {window}, {faults} could not be "
                "measured"
            )
        counts = {"tokens": self.tokens, "window": self.window, "faults": len(self.faults)}
        texts = Message(
            template,
            texts=number_of_texts(self.texts),
            **{name: f"{count:,}" for name, count in counts.items()},
        )
        model = self.model.partition("\n")[0]
        return Message("{texts}\n{model}", texts=texts, model=model)

    @property
    def loss(self) -> str:
        """The model's loss in words; empty if it wasn't measured."""
        if "loss" not in self.measures:
            return ""
        mean, error = self["loss"].mean, self["loss"].error
        plus_minus = "" if np.isnan(error) else f" ± {error:.3f}"
        return Message("loss {loss} nats per token", loss=f"{mean:.3f}{plus_minus}")

    @property
    def caution(self) -> str:
        """A warning if a few texts have most of the tokens; otherwise empty.

        The effective number of texts is (Σ n)² / Σ n² (Kish, “Survey Sampling”, 1965).
        """
        _, _, n, _, _, nn = self._tally.moments
        effective = float((n**2 / np.maximum(nn, 1.0)).max())
        if not 0 < effective < MIN_TEXTS or self.texts < 2 * effective:
            return ""
        return Message(
            "A few texts have most of the tokens: the effective sample is {count} texts, too few "
            "for reliable errors. Split long texts.",
            count=f"{effective:.1f}",
        )

    @property
    def dataset(self) -> Dataset:
        """All measures as an xarray Dataset; loss is an attribute."""
        heads = self._per_head()
        numbers = {
            kind: np.stack([getattr(self[name], kind) for name in heads])
            for kind in ("mean", "error", "texts", "places")
        }
        about = {"texts": self.texts, "tokens": self.tokens, "model": self.model}
        if "loss" in self.measures:
            about |= {"loss": float(self["loss"].mean), "loss_error": float(self["loss"].error)}
        return door.grid(numbers, heads, about)

    def explore(
        self,
        model: GPT2,
        text_or_ids: str | ArrayLike | Tokens | None = None,
        *,
        port: int = 0,
        language: str | None = None,
    ) -> Explorer:
        """Serve the page of `attnlab.page`, with links to each passage's trace, see `GPT2.explore`.

        `model` is the one that was measured; or one with the same shape and tokenizer, for which
        the page shows a notice.
        """
        self._per_head()
        self._check_model(model)
        return door.Explorer(model, text_or_ids, port=port, language=language, atlas=self)

    def _check_model(self, model: GPT2) -> None:
        """Raise if a model's heads or tokens differ from the atlas's."""
        check_kind(model, GPT2, "model")
        config = model.config
        longest = max(map(len, self._tally.ids.values()), default=0)
        reason = ""
        if (config.n_layer, config.n_head) != (self.n_layer, self.n_head):
            reason = f"it has {config.n_layer} layers of {config.n_head} heads"
        elif longest > config.n_positions:
            reason = f"it has {config.n_positions} positions, and a passage has {longest} tokens"
        else:
            try:
                if contents_of(model, self._tally.ids) != self._contents:
                    reason = "its tokenizer decodes the passages' ids differently"
            except InvalidValueError as error:  # an id outside the vocabulary
                reason = str(error)
        if reason:
            raise InvalidValueError(
                f"model doesn't match the atlas: {reason}. The atlas was made with {self.model}"
            )

    def is_of(self, model: GPT2) -> bool:
        """Whether a model is the one that was measured, judged by the values of one passage.

        The passage that is listed most often is measured again. If there are no passages, or only
        user-defined measures, which can't be computed again, the result is True.
        """
        check_kind(model, GPT2, "model")
        built_in = dict.fromkeys(name for name in self.measures if name in MEASURES)
        listed = [self._tally.passages[:, :, self[name]._columns].ravel() for name in built_in]
        passages = np.concatenate([np.zeros(0, np.int64), *listed])
        numbers, counts = np.unique(passages[passages != NO_PASSAGE], return_counts=True)
        if not numbers.size:
            return True
        number = int(numbers[counts.argmax()])
        results = measure_trace(model.trace(self._tally.ids[number]), built_in)
        agreements = []
        for name, (sums, divisors) in results.items():
            columns = self[name]._columns
            with np.errstate(divide="ignore", invalid="ignore"):  # divisors may be 0
                values = sums.ravel() / divisors.ravel()
            computed = np.stack([-values, values])[:, np.newaxis]  # ranks, see `Tally`
            recorded = self._tally.ranks[:, :, columns]
            is_listed = self._tally.passages[:, :, columns] == number
            agreements.append(np.isclose(recorded, computed, rtol=1e-3, atol=1e-4)[is_listed])
        return bool(np.concatenate(agreements).mean() > 0.5)

    def save(self, path: FilePath) -> None:
        """Write a file that `attnlab.open_atlas` opens."""
        contents = json.dumps({str(n): self._contents[n] for n in sorted(self._contents)})
        metadata = {"about": json.dumps(self._about), "contents": contents}
        if self.details:
            metadata["details"] = json.dumps(self.details)
        write_sealed(path, FORMAT, self._tally.tensors(), metadata | self._tally.metadata())

    def _passage(self, number: int, value: float) -> Passage:
        text, start = number >> TOKEN_BITS, number & ((1 << TOKEN_BITS) - 1)
        ids = tuple(self._tally.ids[number].tolist())
        return Passage(self._tally.names[text], start, ids, value, self._contents[number])


def contents_of(model: GPT2, ids: Mapping[int, AnyArray]) -> dict[int, str]:
    """The text of each passage, by the passage's number."""
    vocabulary = model.tokenizer.vocabulary
    return {n: vocabulary.decode_bytes(x).decode(errors="replace") for n, x in ids.items()}


def open_atlas(path: FilePath) -> Atlas:
    """Open a file that `Atlas.save` wrote, or the directory of a finished run."""
    file = as_path(path)
    if os.path.isdir(file):  # Path.is_dir raises if a name is too long
        file /= RESULT
        if not os.path.exists(file):
            raise MissingFileError(
                f"{file} not found: the run hasn't finished. Start it again to resume it"
            )
    try:
        tensors, metadata = read_sealed(file, FORMAT, AtlasError)
    except AtlasError as error:
        raise AtlasError(
            f"{error}. Expected a file that `Atlas.save` wrote, or a run's {RESULT}"
        ) from None
    with reraised_as(AtlasError, f"{file} isn't a complete atlas"):
        tally = Tally.read(tensors, metadata)
        contents = {int(n): text for n, text in json.loads(metadata["contents"]).items()}
        details = json.loads(metadata.get("details", "[]"))
        return Atlas(json.loads(metadata["about"]), tally, contents, details)
