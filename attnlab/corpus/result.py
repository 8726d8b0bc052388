"""The atlas: means with standard errors, and example passages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from attnlab.analysis.base import Analysis, heads_axis, number_of_texts, numbered_axis
from attnlab.analysis.jobs import JOBS
from attnlab.corpus.details import Details, checked_details
from attnlab.corpus.measures import MEASURES, TITLES, is_per_head
from attnlab.corpus.tally import Tally, ratio, read_arrays, require, write_arrays
from attnlab.equations import AnyArray
from attnlab.errors import AtlasError, InvalidTypeError, UnknownNameError, quoted
from attnlab.steps import Numbered, read_only
from attnlab.steps.labels import Axis, Grid, long_columns
from attnlab.support.checks import reraised_as
from attnlab.support.document import Document
from attnlab.support.files import FilePath, as_path
from attnlab.support.messages import Message
from attnlab.support.scale import WEIGHTS, Scale
from attnlab.support.tables import Columns, Heading, Paragraph, Table, cell, header, label

RESULT = "atlas.safetensors"  # the file that a run writes into its directory
CHARACTERS_SHOWN = 60  # characters of a passage


@dataclass(frozen=True)
class Passage:
    """A window of a text in which a measure is largest or smallest."""

    text: str  #: the text's name, such as "line 7"
    start: int  #: position of the window's first token in the text
    ids: list[int]  #: the tokens' ids, for `model.trace(passage.ids)`
    content: str  #: the text of the window
    value: float  #: the measure in the window

    def __str__(self) -> str:
        start = Message("{text}, token {start}: ", text=self.text, start=self.start)
        return f"{self.value:.3f}  {start!s}{label(self.content, CHARACTERS_SHOWN)}"


class Measured(Analysis):
    """One measure of every head over a corpus, as `atlas["induction"]` returns it.

    Over N texts, mean = Σ sums / Σ divisors and
    variance = N / (N - 1) Σ (sums - mean divisors)² / (Σ divisors)²

    Attributes
    ----------
    name : the measure's name, such as "induction"
    mean, standard_errors : (L, H), or () for loss; errors are NaN with fewer than two texts
    texts : in the shape of `mean`, the number of texts that contributed
    says : a description of the measure
    short_title : the measure's title on the page
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
        moments = [row.reshape(shape) for row in atlas._tally.sums["moments"][:, columns]]
        N, sum_s, sum_n, sum_ss, sum_sn, sum_nn = moments  # see `Tally.sums`
        ratios = ratio(N, sum_n, sum_nn, sum_s, sum_ss, sum_sn)
        self.mean, self.standard_errors = map(read_only, ratios)
        self.texts = read_only(N.astype(np.int64))
        self.title = Message(
            "{title}: mean of {texts}, {tokens} tokens",
            title=name,
            texts=number_of_texts(atlas.texts),
            tokens=f"{atlas.tokens:,}",
        )
        self.short_title = Message(TITLES.get(name, "{name}"), name=name)

    @property
    def scale(self) -> Scale:
        """The colour scale of the means, which are means of weights if the measure is a job."""
        return WEIGHTS if self.name in JOBS else Scale.of(self.mean)

    def _grids(self) -> list[Grid]:
        return [replace(grid, fixed_scale=self.scale) for grid in super()._grids()]

    def most(self, layer: int | None = None, head: int | None = None) -> tuple[Passage, ...]:
        """Up to three passages with the largest values of a head, or of the loss, largest first."""
        return self._passages(layer, head, smallest=False)

    def least(self, layer: int | None = None, head: int | None = None) -> tuple[Passage, ...]:
        """Up to three passages with the smallest values, smallest first; see `most`."""
        return self._passages(layer, head, smallest=True)

    def _passages(self, layer: Any, head: Any, *, smallest: bool) -> tuple[Passage, ...]:
        tally, column = self._atlas._tally, self._columns.start
        if self.mean.ndim:
            column += self._atlas._index(layer, head)
        elif layer is not None or head is not None:
            raise InvalidTypeError(f"{self.name} is of the whole model; leave out layer and head")
        return tuple(  # the smallest values are stored as strength = -value, see `tally.PASSAGE`
            Passage(*tally.windows[number], value=-strength if smallest else strength)
            for strength, number in tally.best["extremes"][:, int(smallest), column].tolist()
            if number >= 0
        )

    def _data(self) -> Columns:
        axes = [heads_axis("head", *self.mean.shape)] if self.mean.ndim else []  # loss has no head
        numbers = {"mean": self.mean, "standard_error": self.standard_errors, "texts": self.texts}
        return long_columns(axes, numbers)

    def _grid(self) -> tuple[AnyArray, Axis, Axis]:
        L, H = np.atleast_2d(self.mean).shape
        return np.atleast_2d(self.mean), numbered_axis("layer", L), numbered_axis("head", H)

    def _tables(self) -> Iterator[str | Table]:
        yield from super()._tables()
        meaning = Message(self.says)
        if np.isfinite(self.standard_errors).any():
            largest = f"{np.nanmax(self.standard_errors):.1g}"
            yield Message("{says}; errors up to {largest}", says=meaning, largest=largest)
        elif self.texts.any():
            yield Message("{says}; no error with one text", says=meaning)
        else:
            yield Message("{says}; no text has such tokens", says=meaning)


class Atlas(Document, Mapping[str, Measured]):
    """Statistics of every head over a corpus, as `attnlab.atlas` returns them.

    Attributes
    ----------
    measures : names; `atlas["induction"]` has this measure's means, errors and example passages
    n_layer, n_head : L and H
    model : a description of the model
    window : the number of tokens that were traced at once
    texts, tokens : the numbers of measured texts and tokens
    faults : name and reason for each text that could not be measured
    details : for each head, the tables of `head`; empty unless measured with `heads=True`
    """

    def __init__(
        self, about: Mapping[str, Any], tally: Tally, details: Sequence[Details] = ()
    ) -> None:
        """`about` has the fields that `run.atlas` lists, `tally` the sums, `details` the tables."""
        self.measures: tuple[str, ...] = tuple(about["measures"])
        self.n_layer, self.n_head = about["n_layer"], about["n_head"]
        self.model, self.window = about["model"], about["window"]
        self._about, self._tally, self.details = about, tally, tuple(details)
        self.texts, self.tokens, self.faults = tally.texts, tally.tokens, tuple(tally.faults)

        self._measured, start = dict[str, Measured](), 0
        for name in self.measures:
            stop = start + (self.n_layer * self.n_head if is_per_head(name) else 1)
            self._measured[name] = Measured(self, name, slice(start, stop))
            start = stop

    def __getitem__(self, name: str) -> Measured:
        if not isinstance(name, str) or name not in self.measures:
            raise UnknownNameError(
                f"this atlas has no measure {quoted(name)}; it has {', '.join(self.measures)}"
            )
        return self._measured[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.measures)

    def __len__(self) -> int:
        return len(self.measures)

    @property
    def per_head(self) -> list[Measured]:
        """The measures that have a number for each head: all but the loss."""
        return [self[name] for name in filter(is_per_head, self.measures)]

    def head(self, layer: int, head: int) -> Details:
        """What one head attends to and writes, in an atlas made with `heads=True`.

        The tables are positions, distances, pairs, writes and tops, as on the head's page. Each has
        a list for each column: `pandas.DataFrame(atlas.head(1, 2)["pairs"])`.
        """
        index = self._index(layer, head)
        if not self.details:
            raise UnknownNameError(
                "this atlas has no details of heads; make it with atlas(..., heads=True)"
            )
        return self.details[index]

    def _index(self, layer: Any, head: Any) -> int:
        """A head's index among the heads of all layers."""
        # `Numbered` takes negative indices, and its error lists the valid ones.
        layer = Numbered("layer", range(self.n_layer)).item(layer)
        return int(layer * self.n_head + Numbered("head", range(self.n_head)).item(head))

    def lines(self) -> list[list[str]]:
        """The means as rows of text: a header, and a row for each head; [] without such means."""
        if not self.per_head:
            return []
        lines = [[*header("layer", "head"), *(measure.name for measure in self.per_head)]]
        for index in np.ndindex(self.n_layer, self.n_head):
            means = (measure.mean[index] for measure in self.per_head)
            lines.append([*map(str, index), *(cell(mean, ".2f") for mean in means)])
        return lines

    def _data(self) -> Columns:
        """The measures of all heads."""
        if not self.per_head:
            return self["loss"]._data()
        measures = [
            {"measure": [each.name] * each.mean.size} | each._data() for each in self.per_head
        ]
        names = ("measure", "layer", "head", "mean", "standard_error", "texts")
        return {name: np.concatenate([each[name] for each in measures]) for name in names}

    def pieces(self) -> Iterator[str | Table]:
        yield Heading(self.title)
        if lines := self.lines():
            yield Table(lines, left=())
        if self.loss:
            yield Paragraph(self.loss)
        yield Paragraph(Measured.note)

    def _repr_html_(self) -> str:
        grids = [
            replace(grid, heading=measure.short_title)
            for measure in self.per_head
            for grid in measure._grids()
        ]
        title, *others = (piece for piece in self.pieces() if isinstance(piece, str))
        from attnlab.views.notebook import document_view

        return document_view(self, [title, *grids, *others])

    @property
    def title(self) -> str:
        """The title: the size of the corpus, and the model's name."""
        texts = Message(
            "Atlas of {texts}, {tokens} tokens in windows of {window}",
            texts=number_of_texts(self.texts),
            tokens=f"{self.tokens:,}",
            window=f"{self.window:,}",
        )
        if self.faults:
            faults = f"{len(self.faults):,}"
            texts = Message("{texts}, {faults} could not be measured", texts=texts, faults=faults)
        return Message("{texts}\n{model}", texts=texts, model=self.model.partition("\n")[0])

    @property
    def loss(self) -> str:
        """The model's loss in words; empty if the loss wasn't measured."""
        if "loss" not in self.measures:
            return ""
        mean, error = self["loss"].mean, self["loss"].standard_errors
        plus_minus = "" if np.isnan(error) else f" ± {error:.3f}"
        return Message("loss {loss} nats per token", loss=f"{mean:.3f}{plus_minus}")

    def save(self, path: FilePath) -> None:
        """Write a file that `attnlab.open_atlas` opens."""
        arrays, about = self._tally.to_store()
        write_arrays(path, arrays, [self._about, about, self.details])


def open_atlas(path: FilePath) -> Atlas:
    """Open a file that `Atlas.save` wrote, such as the `atlas.safetensors` of a finished run."""
    file = as_path(path)
    if file.is_dir():
        raise AtlasError(f"{file} is a directory. A finished run's atlas is {file / RESULT}")
    expected = f"{file} isn't an atlas, such as a run's {RESULT}"
    arrays, content = read_arrays(file)
    with reraised_as(AtlasError, expected):
        about, sums, details = content
        measures = [*map(str, about["measures"])]
        about = {name: int(about[name]) for name in ("n_layer", "n_head", "window")} | {
            "measures": measures,
            "model": str(about["model"]),
        }
        heads = about["n_layer"] * about["n_head"]
        require(measures and len({*measures}) == len(measures) and heads > 0, "measures")
        columns = sum(heads if is_per_head(name) else 1 for name in measures)
        tally = Tally.from_stored(arrays, sums, columns)
        return Atlas(about, tally, checked_details(details, heads))
