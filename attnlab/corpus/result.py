"""The atlas: means with standard errors, and example passages."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from attnlab.analysis.base import (
    Analysis,
    head_name,
    heads_axis,
    number_of_texts,
    numbered_axis,
)
from attnlab.analysis.jobs import JOBS
from attnlab.corpus import stored
from attnlab.corpus.details import Details, HeadTable, check_details
from attnlab.corpus.measures import (
    ALL_TOKENS,
    MEASURES,
    TITLES,
    VARIANT_TITLES,
    is_per_head,
    split_name,
)
from attnlab.corpus.tally import MIN_TEXTS, NO_PASSAGE, Tally, ratio
from attnlab.equations import AnyArray
from attnlab.errors import (
    AtlasError,
    InvalidTypeError,
    InvalidValueError,
    MissingFileError,
    UnknownMeasureError,
    quoted,
)
from attnlab.steps import Numbered, read_only
from attnlab.steps.labels import Axis, Grid, long_columns
from attnlab.support.checks import reraised_as
from attnlab.support.document import Document
from attnlab.support.files import FilePath, as_path
from attnlab.support.messages import Message
from attnlab.support.scale import WEIGHTS, Scale
from attnlab.support.tables import (
    PLUS_MINUS,
    Columns,
    Format,
    Heading,
    Paragraph,
    Table,
    header,
    label,
    listed,
)

# The file that a run writes into its directory.
RESULT = "atlas.safetensors"

# Characters of a passage that are shown.
CHARACTERS_SHOWN = 60


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
        N, s, n, ss, sn, nn = (m.reshape(shape) for m in atlas._tally.sums["moments"][:, columns])
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
            self._atlas._passage(number, value)
            for number, value in zip(numbers.tolist(), values.tolist(), strict=True)
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


class HeadProfile(Document):
    """All measures of one head, as `Atlas.head` returns it.

    Attributes
    ----------
    columns : its mean, error, rank and texts, by measure; loss is left out
    positions, distances, pairs, writes, twins, tops : in an atlas made with `heads=True`, what the
        head's page shows, a `HeadTable` each
    """

    def __init__(self, atlas: Atlas, layer: int, head: int) -> None:
        measured = [atlas[name] for name in atlas._per_head()]
        self._index = index = (
            Numbered("layer", range(atlas.n_layer)).item(layer),
            Numbered("head", range(atlas.n_head)).item(head),
        )
        means = [measure.mean[index] for measure in measured]
        self.columns: Columns = {
            "measure": [measure.name for measure in measured],
            "mean": means,
            "error": [measure.error[index] for measure in measured],
            "rank": [
                None if np.isnan(mean) else 1 + int((measure.mean > mean).sum())
                for measure, mean in zip(measured, means, strict=True)
            ],
            "texts": [measure.texts[index] for measure in measured],
        }
        self.title = title_of_mean(head_name(*index), atlas)
        self._count = atlas.n_layer * atlas.n_head
        self._details = atlas.details[index[0] * atlas.n_head + index[1]] if atlas.details else {}

    def _table(self, name: str) -> HeadTable:
        if not self._details:
            raise UnknownMeasureError(
                "this atlas has no details of heads; make it with atlas(..., heads=True)"
            )
        return HeadTable(name, *self._index, self._details[name])

    positions = property(lambda self: self._table("positions"), doc="Weight by the key's position.")
    distances = property(lambda self: self._table("distances"), doc="Weight by distance.")
    pairs = property(lambda self: self._table("pairs"), doc="Token pairs with the largest weights.")
    writes = property(lambda self: self._table("writes"), doc="Tokens it promotes and demotes.")
    twins = property(lambda self: self._table("twins"), doc="The heads that attend most like it.")
    tops = property(
        lambda self: self._table("tops"), doc="Texts in which it attends most strongly."
    )

    def pieces(self) -> Iterator[str | Table]:
        yield Heading(self.title)
        yield from self._tables()
        yield Paragraph(Measured.note)

    def _tables(self) -> Iterator[Table]:
        ranks = {"rank": lambda rank: Message("{rank} of {count}", rank=rank, count=self._count)}
        yield listed(self.columns, {"mean": ".3f", "error": ".3f", "texts": ",", **ranks})

    def _data(self) -> Columns:
        return self.columns


class Atlas(Document, Mapping[str, Measured]):
    """Statistics of every head over a corpus, as `attnlab.atlas` returns them.

    Attributes
    ----------
    measures : their names; `atlas["induction"]` has its means, errors and example passages
    n_layer, n_head : L and H
    model, window : a description of the model, and the tokens traced at once
    texts, tokens : how many were measured
    faults : name and reason for each text that could not be measured
    details : for each head, its tables' columns; empty unless measured with `heads=True`
    """

    def __init__(
        self, about: Mapping[str, Any], tally: Tally, details: Sequence[Details] = ()
    ) -> None:
        """Make an atlas from what a file has: names and numbers (see `ABOUT`), sums and details."""
        self.measures: tuple[str, ...] = tuple(about["measures"])
        self.n_layer, self.n_head = about["n_layer"], about["n_head"]
        self.model, self.window = about["model"], about["window"]
        self._about, self._tally, self.details = about, tally, tuple(details)
        self.texts, self.tokens, self.faults = tally.texts, tally.tokens, tuple(tally.faults)

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
        from attnlab.views.notebook import document_view

        return document_view(self, [title, *grids, *others])

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
        _, _, n, _, _, nn = self._tally.sums["moments"]
        effective = float((n**2 / np.maximum(nn, 1.0)).max())
        if not 0 < effective < MIN_TEXTS or self.texts < 2 * effective:
            return ""
        return Message(
            "A few texts have most of the tokens: the effective sample is {count} texts, too few "
            "for reliable errors. Split long texts.",
            count=f"{effective:.1f}",
        )

    def save(self, path: FilePath) -> None:
        """Write a file that `attnlab.open_atlas` opens."""
        arrays, about = self._tally.to_store()
        stored.write(path, arrays, [self._about, about, self.details])

    def _passage(self, number: int, value: float) -> Passage:
        window = self._tally.windows[number]
        return Passage(window.text, window.start, tuple(window.ids), value, window.content)


# What JSON has of an atlas.
ABOUT = {"measures": [str], "n_layer": int, "n_head": int, "model": str, "window": int}


def open_atlas(path: FilePath) -> Atlas:
    """Open a file that `Atlas.save` wrote, or the directory of a finished run."""
    file = as_path(path)
    if os.path.isdir(file):  # Path.is_dir raises if a name is too long
        file /= RESULT
        if not os.path.exists(file):
            raise MissingFileError(
                f"{file} not found: the run hasn't finished. Start it again to resume it"
            )
    expected = f"{file} isn't an atlas, such as a run's {RESULT}"
    arrays, content = stored.read(file, AtlasError)
    with reraised_as(AtlasError, expected):
        about, sums, details = content
        stored.require(stored.fits(about, ABOUT), "list of measures")
        measures, heads = about["measures"], about["n_layer"] * about["n_head"]
        stored.require(measures and len({*measures}) == len(measures) and heads, "measures")
        columns = sum(heads if is_per_head(name) else 1 for name in measures)
        tally = Tally.from_stored(arrays, sums, columns)
        check_details(details, heads)
        return Atlas(about, tally, details)
