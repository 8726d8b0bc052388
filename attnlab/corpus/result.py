"""What was found out about every head over a corpus: means with errors, and texts to look at."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from attnlab.analysis.base import Analysis, named, numbered
from attnlab.corpus.measures import AS_THEY_ARE, MEASURES, is_of_heads, measured, split
from attnlab.corpus.tally import NONE, TOKEN_BITS, Tally
from attnlab.equations import AnyArray
from attnlab.errors import (
    InvalidTypeError,
    InvalidValueError,
    MissingFileError,
    RecordingError,
    UnknownMeasureError,
    quoted,
)
from attnlab.model.gpt2 import GPT2
from attnlab.steps import Numbered, read_only
from attnlab.support.checks import as_count, as_texts, check_kind, errors_of
from attnlab.support.files import Given, as_path
from attnlab.support.messages import MODEL, Message, recognised
from attnlab.support.sealed import Shapes, read_sealed, write_sealed
from attnlab.support.tables import Document, Heading, Paragraph, Table, printable, with_error
from attnlab.views.shown import Axis

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import ArrayLike
    from xarray import Dataset

    from attnlab.model.explorer import Explorer
    from attnlab.text.tokens import Tokens
    from attnlab.views.plot import Picture

FORMAT = "2"

# What a run writes into its directory.
RESULT = "atlas.safetensors"

# Of fewer texts errors tell little.
FEW = 10

# How much of a passage is shown.
SHOWN = 60

Means = NDArray[np.float64]


@dataclass(frozen=True)
class Passage:
    """A window of a text in which a head does something most, or least.

    Attributes
    ----------
    text : the text's name, such as "line 7"
    start : its first token's position in the text
    ids : its tokens' ids, to be traced by `model.trace(passage.ids)`
    value : what the measure is in it
    content : what it says
    """

    text: str
    start: int
    ids: tuple[int, ...]
    value: float
    content: str

    def __str__(self) -> str:
        says = printable(self.content)
        cut = says if len(says) <= SHOWN else f"{says[: SHOWN - 1]}…"
        return f"{self.value:.3f}  {self.text}, token {self.start}: {cut}"


SAME_TEXTS = "The second atlas minus the first over the same texts, in standard errors"
OTHER_TEXTS = "The second atlas minus the first over other texts, in standard errors"


def mean_of(what: str, atlas: Atlas) -> Message:
    """What a mean over an atlas's texts is titled with."""
    return Message(
        "{title}: mean of {texts} texts, {tokens} tokens",
        title=what,
        texts=f"{atlas.texts:,}",
        tokens=f"{atlas.tokens:,}",
    )


class Measured(Analysis):
    """One measure of every head over a corpus, as `atlas["induction"]` gives it.

    mean = Σ sums / Σ places, variance = N / (N - 1) Σ (sums - mean places)² / (Σ places)², over N
    texts

    Attributes
    ----------
    name : of the measure
    mean, error : (L, H), of loss (); the error is one standard error, by texts, NaN of fewer than
        two of them
    texts : as `mean`, how many texts had a place for it
    places : as `mean`, how many tokens there were, or which weight, that it is a mean over
    says : what is measured, in words
    """

    note: ClassVar[str] = (
        "Errors are one standard error of a mean over texts like these: they say nothing of other "
        "texts, and that a head looks somewhere does not tell what it does with what is there."
    )
    source: ClassVar[str] = (
        "Cochran, “Sampling Techniques” (1977), section 2.11: the variance of a ratio of two sums"
    )
    decimals: ClassVar[int] = 3

    def __init__(self, atlas: Atlas, name: str, columns: slice) -> None:
        self.name, self._atlas, self._columns = name, atlas, columns
        self.says = MEASURES.get(name, "a measure of your own")
        shape = (atlas.n_layer, atlas.n_head) if is_of_heads(name) else ()
        N, s, n, ss, sn, nn = (m.reshape(shape) for m in atlas._tally.moments[:, columns])
        with np.errstate(divide="ignore", invalid="ignore"):  # without a place there is no mean
            mean = s / n
            squares = np.maximum(ss - 2 * mean * sn + mean**2 * nn, 0.0)
            error = np.where(N > 1, np.sqrt(N / (N - 1) * squares) / n, np.nan)
        self.mean, self.error, self.texts, self.places = map(
            read_only, map(np.asarray, (mean, error, N.astype(np.int64), n))
        )
        self.title = mean_of(name, atlas)

    def _batches(self, width: int) -> dict[int, Means]:
        """Sums and places of batches of so many texts, by number, (2, L, H) or (2,)."""
        batches = self._atlas._tally.batches_of(width)
        shape = 2, *self.mean.shape
        return {number: sums[:, self._columns].reshape(shape) for number, sums in batches.items()}

    def most(self, layer: int | None = None, head: int | None = None) -> tuple[Passage, ...]:
        """The passages in which a head has most of it, the first one above all.

        They are three at most. Windows of one text may be among them more than once, and texts
        that say the same.

        Parameters
        ----------
        layer, head : of which head; left out of loss, which is the model's
        """
        return self._extremes(0, layer, head)

    def least(self, layer: int | None = None, head: int | None = None) -> tuple[Passage, ...]:
        """The passages in which a head has least of it, as `most` has those with most."""
        return self._extremes(1, layer, head)

    def _extremes(self, which: int, layer: int | None, head: int | None) -> tuple[Passage, ...]:
        tally = self._atlas._tally
        column = self._columns.start
        if is_of_heads(self.name):
            if layer is None or head is None:
                raise InvalidTypeError(f"{self.name} is of heads: give a layer and a head")
            heads = range(self._atlas.n_head)
            layer = Numbered("layer", range(self._atlas.n_layer)).one(layer)
            column += layer * len(heads) + Numbered("head", heads).one(head)
        elif layer is not None or head is not None:
            raise InvalidTypeError(f"{self.name} is of the model: leave out layer and head")
        found = zip(tally.passages[which, :, column], tally.ranks[which, :, column], strict=True)
        return tuple(
            self._atlas._passage(int(number), float(rank if which else -rank))
            for number, rank in found
            if number != NONE
        )

    def _grid(self) -> tuple[AnyArray, Axis, Axis]:
        L, H = np.atleast_2d(self.mean).shape
        return np.atleast_2d(self.mean), numbered("layer", L), numbered("head", H)

    def _tables(self) -> Iterator[str | Table]:
        yield from super()._tables()
        largest = np.nanmax(self.error) if np.isfinite(self.error).any() else np.nan
        words = "no error, of one text" if np.isnan(largest) else f"errors up to {largest:.1g}"
        yield f"{self.says}; {words}"


class HeadProfile(Analysis):
    """All measures of one head, as `Atlas.head` returns it.

    Attributes
    ----------
    measures : their names, those of the atlas without loss, which has no heads
    mean, error : (M,), by measure
    """

    note: ClassVar[str] = Measured.note
    source: ClassVar[str] = Measured.source

    def __init__(self, atlas: Atlas, layer: int, head: int) -> None:
        self.measures = atlas._of_heads()
        self._of = [atlas[name] for name in self.measures]
        self._at = at = (
            Numbered("layer", range(atlas.n_layer)).one(layer),
            Numbered("head", range(atlas.n_head)).one(head),
        )
        self.mean = read_only(np.array([one.mean[at] for one in self._of]))
        self.error = read_only(np.array([one.error[at] for one in self._of]))
        place = Message("layer {layer} head {head}", layer=at[0], head=at[1])
        self.title = mean_of(place, atlas)

    def _grid(self) -> tuple[AnyArray, Axis, Axis]:
        return self.mean[:, np.newaxis], named("measure", self.measures), named("", ("mean",))

    def plot(
        self, ax: Axes | None = None, tokens: slice | None = None, *, language: str | None = None
    ) -> Picture:
        from attnlab.views.language import say
        from attnlab.views.plot import drawn_in, plot_profile

        numbers, errors = (
            np.stack([getattr(one, kind).ravel() for one in self._of]) for kind in ("mean", "error")
        )
        one = int(np.ravel_multi_index(self._at, self._of[0].mean.shape))
        with drawn_in(language):
            return plot_profile([*self.measures], numbers, errors, one, say(self.title), ax)

    def _tables(self) -> Iterator[Table]:
        lines = [["measure", "mean", "error", "rank", "texts"]]
        for one in self._of:
            better = int((one.mean > one.mean[self._at]).sum())
            numbers = (one.mean[self._at], one.error[self._at])
            cells = ["" if np.isnan(number) else f"{number:.3f}" for number in numbers]
            rank = f"{better + 1} of {one.mean.size}" if cells[0] else ""
            lines.append([one.name, *cells, rank, f"{one.texts[self._at]:,}"])
        yield Table(lines)


class Difference(Analysis):
    """How one atlas differs from another, as `Atlas.compare` returns it.

    Of the same texts, what is special in a text is so in both, and does not make the difference
    uncertain. Its error is then that of the difference of two ratios, from sums over G batches of
    texts:

    d = (s₂ - mean₂ n₂) / Σ n₂ - (s₁ - mean₁ n₁) / Σ n₁ of each batch, variance = G / (G - 1) Σ d²

    With 128 texts or fewer each is a batch. Of different texts it is the root of the sum of both
    errors' squares.

    Attributes
    ----------
    measures : those that both have
    difference, error : by measure, (L, H) each: the second's mean minus the first's, and its
        standard error
    batches : how many batches of texts the errors are from; 0 of different texts
    """

    note: ClassVar[str] = (
        "Errors are one standard error: over the same texts of the differences in batches of them, "
        "over other texts as of texts that were drawn apart. Of many numbers some are far off by "
        "chance."
    )
    source: ClassVar[str] = (
        "Cochran, “Sampling Techniques” (1977), chapter 6: two ratios; Wolter, “Introduction to "
        "Variance Estimation” (2007), chapter 2: batches"
    )
    lines_shown: ClassVar[int] = 20

    def __init__(self, one: Atlas, other: Atlas) -> None:
        is_same = one.corpus == other.corpus
        self.title = Message(SAME_TEXTS if is_same else OTHER_TEXTS)
        self.measures = tuple(n for n in one.measures if n in other.measures)
        self.difference = {n: read_only(other[n].mean - one[n].mean) for n in self.measures}
        self.batches, width = 0, max(one._tally.width, other._tally.width)
        if one.corpus == other.corpus:
            both = one._tally.batches_of(width).keys() | other._tally.batches_of(width).keys()
            self.batches = len(both)
        self.error = {}
        for name in self.measures:
            first, second = one[name], other[name]
            self.error[name] = read_only(
                paired_error(first, second, width)
                if self.batches
                else np.hypot(first.error, second.error)
            )

    def _times(self, name: str) -> AnyArray:
        """The differences, each over its error."""
        difference, error = self.difference[name], self.error[name]
        with np.errstate(divide="ignore", invalid="ignore"):  # 0 / 0 where nothing varies
            return np.where(difference == 0, 0.0, difference / error)

    def _grid(self) -> tuple[AnyArray, Axis, Axis]:
        # Beside numbers of heads there is no row for the model's loss.
        measures = tuple(filter(is_of_heads, self.measures)) or self.measures
        names = tuple(map(_name_of, np.ndindex(self.difference[measures[0]].shape)))
        grid = np.stack([self._times(name).ravel() for name in measures], axis=1)
        return grid, named("head", names), named("measure", measures)

    def _tables(self) -> Iterator[Table]:
        lines = []
        for name in self.measures:
            times = self._times(name)
            for at in np.ndindex(times.shape):
                difference, error = with_error(
                    float(self.difference[name][at]), float(self.error[name][at])
                )
                sign = "" if difference.startswith("-") else "+"
                cells = [name, _name_of(at), f"{sign}{difference}", error]
                if not np.isnan(times[at]):
                    lines.append((-abs(times[at]), [*cells, f"{times[at]:+.1f}"]))
        lines.sort(key=lambda line: line[0])
        header = ["measure", "head", "difference", "error", "in errors"]
        yield Table([header, *(cells for _, cells in lines[: self.lines_shown])], left=(0, 1))


def _name_of(at: tuple[int, ...]) -> str:
    """What a number is of: a head, or the model."""
    return f"layer {at[0]} head {at[1]}" if at else ""


def paired_error(one: Measured, other: Measured, width: int) -> Means:
    """The error of the difference of two means over the same texts, see `Difference`.

    Parameters
    ----------
    width : how many texts are a batch
    """
    first, second = one._batches(width), other._batches(width)
    nothing = np.zeros((2, *one.mean.shape))
    squares, count = np.zeros(one.mean.shape), np.zeros(one.mean.shape)
    with np.errstate(divide="ignore", invalid="ignore"):  # without a place there is no mean
        for number in sorted(first.keys() | second.keys()):
            (s1, n1), (s2, n2) = first.get(number, nothing), second.get(number, nothing)
            d = (s2 - other.mean * n2) / other.places - (s1 - one.mean * n1) / one.places
            squares, count = squares + d**2, count + (n1 + n2 > 0)
        error: Means = np.sqrt(count / (count - 1) * squares)
    return error


class Atlas(Document, Mapping[str, Measured]):
    """Every head over a corpus, as `attnlab.atlas` returns it.

    Attributes
    ----------
    measures : their names; `atlas["induction"]` has one's means, errors, and texts to look at
    n_layer, n_head : L and H
    model, window : what was measured, in words, and how many tokens were traced at once
    model_given : as `GPT2.from_pretrained` takes it; empty of a model in memory
    texts, tokens : how many were measured
    corpus : the sha256 of what was read, the same of the same texts
    faults : name and reason of each text that was not
    """

    def __init__(self, about: Mapping[str, Any], tally: Tally, contents: Mapping[int, str]) -> None:
        self.measures: tuple[str, ...] = tuple(about["measures"])
        self.n_layer, self.n_head = int(about["n_layer"]), int(about["n_head"])
        self.model, self.window = str(about["model"]), int(about["window"])
        self.model_given, self.corpus = str(about["model_given"]), str(about["corpus"])
        self._about, self._tally, self._contents = dict(about), tally, dict(contents)
        self.texts, self.tokens = tally.texts, tally.tokens
        self.faults = tuple(tally.faults)

    @classmethod
    def of(
        cls,
        model: GPT2,
        given: str,
        measures: Mapping[str, Any],
        window: int,
        tally: Tally,
        corpus: str,
    ) -> Atlas:
        """The atlas that all texts' tally comes to."""
        about = {
            "measures": list(measures),
            "n_layer": model.config.n_layer,
            "n_head": model.config.n_head,
            "model": repr(model),
            "model_given": given,
            "window": window,
            "corpus": corpus,
        }
        return cls(about, tally, contents_of(model, tally.ids))

    @cached_property
    def _measured(self) -> dict[str, Measured]:
        start, found = 0, {}
        for name in self.measures:
            stop = start + (self.n_layer * self.n_head if is_of_heads(name) else 1)
            found[name] = Measured(self, name, slice(start, stop))
            start = stop
        return found

    def __getitem__(self, name: str) -> Measured:
        if not isinstance(name, str) or name not in self.measures:
            raise UnknownMeasureError(
                f"there is no measure {quoted(name)} in it; there are {', '.join(self.measures)}"
            )
        return self._measured[name]

    def __contains__(self, name: object) -> bool:
        return name in self.measures

    def __iter__(self) -> Iterator[str]:
        return iter(self.measures)

    def __len__(self) -> int:
        return len(self.measures)

    def _of_heads(self) -> tuple[str, ...]:
        """The measures of heads."""
        if not any(map(is_of_heads, self.measures)):
            raise InvalidValueError("there is no measure of heads in it: there is loss alone")
        return tuple(filter(is_of_heads, self.measures))

    def head(self, layer: int, head: int) -> HeadProfile:
        """All measures of one head."""
        return HeadProfile(self, layer, head)

    def compare(self, other: Atlas) -> Difference:
        """How another atlas differs from this one, with errors: of a model and its fine-tuned self.

        Over the same texts, in the same order, they are errors of differences, see `Difference`.

        Raises
        ------
        InvalidValueError
            The atlases have other sizes or windows, or no measure in common.
        """
        check_kind(other, Atlas, "other")
        if (self.n_layer, self.n_head) != (other.n_layer, other.n_head):
            raise InvalidValueError(
                f"atlases of {self.n_layer} layers of {self.n_head} heads and of {other.n_layer} "
                f"of {other.n_head} can't be compared"
            )
        if self.window != other.window:  # a longer one has more to look at
            raise InvalidValueError(
                f"atlases of windows of {self.window:,} and of {other.window:,} tokens can't be "
                "compared, as what a head does depends on how much it can look at: make both with "
                "the same `window=`"
            )
        if not set(self.measures) & set(other.measures):
            raise InvalidValueError("the two atlases have no measure in common")
        return Difference(self, other)

    def lines(self) -> list[list[str]]:
        """The means, a header and a row for each head, without those of weights seen otherwise.

        Nothing where there are none.
        """
        heads = [n for n in self.measures if is_of_heads(n) and split(n)[1] == AS_THEY_ARE]
        if not heads:
            return []
        lines = [["layer", "head", *heads]]
        for at in np.ndindex(self.n_layer, self.n_head):
            means = [self[name].mean[at] for name in heads]
            cells = ["" if np.isnan(mean) else f"{mean:.2f}" for mean in means]
            lines.append([*map(str, at), *cells])
        return lines

    def pieces(self) -> Iterator[str | Table]:
        yield Heading(self.title)
        if lines := self.lines():
            yield Table(lines, left=())
        yield from map(Paragraph, filter(None, [self.loss, self.caution]))
        if others := [name for name in self.measures if split(name)[1]]:
            yield Paragraph(f"atlas[name] shows one with its errors, also {', '.join(others)}")
        yield Paragraph(Measured.note)

    @property
    def title(self) -> str:
        """What it is of."""
        template = "Atlas of {texts} texts, {tokens} tokens in windows of {window}"
        if self.faults:
            template = (
                "Atlas of {texts} texts, {tokens} tokens in windows of {window}, {faults} could "
                "not be measured"
            )
        sizes = {"texts": self.texts, "tokens": self.tokens, "window": self.window}
        counts = {**sizes, "faults": len(self.faults)}
        texts = Message(template, **{name: f"{count:,}" for name, count in counts.items()})
        model = recognised(self.model.partition("\n")[0], MODEL)
        return Message("{texts}\n{model}", texts=texts, model=model)

    @property
    def loss(self) -> str:
        """The model's loss in words; nothing where it was not measured."""
        if "loss" not in self.measures:
            return ""
        mean, error = self["loss"].mean, self["loss"].error
        told = "" if np.isnan(error) else f" ± {error:.3f}"
        return Message("loss {loss} nats per token", loss=f"{mean:.3f}{told}")

    @property
    def caution(self) -> str:
        """What is to be known where few texts have most of the tokens; else nothing.

        Texts of n places each are worth (Σ n)² / Σ n² texts of one length (Kish, “Survey Sampling”,
        1965).
        """
        _, _, n, _, _, nn = self._tally.moments
        worth = float((n**2 / np.maximum(nn, 1.0)).max())
        if not 0 < worth < FEW or self.texts < 2 * worth:
            return ""
        return Message(
            "Few texts have most of the tokens: means are as of {count} texts of one length, "
            "and their errors tell little. Give long texts in parts.",
            count=f"{worth:.1f}",
        )

    @property
    def dataset(self) -> Dataset:
        """Means, errors, texts and places of all measures, as xarray has them.

        Dimensions are measure, layer and head; loss, which has no heads, is among the attributes.
        """
        from attnlab.views.frames import grid

        heads = self._of_heads()
        numbers = {
            kind: np.stack([getattr(self[name], kind) for name in heads])
            for kind in ("mean", "error", "texts", "places")
        }
        about = {"texts": self.texts, "tokens": self.tokens, "model": self.model}
        if "loss" in self.measures:
            about |= {"loss": float(self["loss"].mean), "loss_error": float(self["loss"].error)}
        return grid(numbers, {"measure": [*heads], "layer": None, "head": None}, about)

    def to_html(self, *, language: str | None = None) -> str:
        """One page with a map of every measure and, behind each cell, its head and texts.

        It needs no network, no other file, and no script; `explore` shows the same page with links
        to the passages' traces.

        Parameters
        ----------
        language : "en" or "zh", Chinese; None for the reader's, as `Trace.to_html` takes it
        """
        from attnlab.views.page.atlas import page

        self._of_heads()
        return page(self, language)

    def explore(
        self,
        model: GPT2,
        text_or_ids: str | ArrayLike | Tokens | None = None,
        *,
        port: int = 0,
        language: str | None = None,
    ) -> Explorer:
        """The page of `to_html` in the browser, each passage a link to its trace in the explorer.

        A passage is traced from the ids that it had, and opens at the head that it was found for.

        Parameters
        ----------
        model : the one that was measured; one of its shape and tokenizer is taken too, which the
            page tells
        text_or_ids, port, language : as `GPT2.explore` takes them

        Returns
        -------
        Explorer
            as `GPT2.explore` returns it; `.url` opens the atlas
        """
        from attnlab.model.explorer import Explorer

        self._of_heads()
        self._check_model(model)
        return Explorer(model, text_or_ids, port=port, language=language, atlas=self)

    def _check_model(self, model: GPT2) -> None:
        """Refuse a model that has not the atlas's heads, or other tokens."""
        check_kind(model, GPT2, "model")
        config = model.config
        longest = max(map(len, self._tally.ids.values()), default=0)
        why = ""
        if (config.n_layer, config.n_head) != (self.n_layer, self.n_head):
            why = f"it has {config.n_layer} layers of {config.n_head} heads"
        elif longest > config.n_positions:
            why = f"it reads {config.n_positions} tokens at most, and a passage has {longest}"
        else:
            try:
                if contents_of(model, self._tally.ids) != self._contents:
                    why = "its tokenizer has other tokens for the passages' ids"
            except InvalidValueError as error:  # there is no such token
                why = str(error)
        if why:
            raise InvalidValueError(
                f"this is not the model that the atlas is of: {why}. The atlas is of {self.model}"
            )

    def is_of(self, model: GPT2) -> bool:
        """Whether a model has the numbers that are told of a passage, the one told of most often.

        They may differ by rounding, as on another machine. Without passages, or with measures of
        your own alone, nothing speaks against it.
        """
        check_kind(model, GPT2, "model")
        known = dict.fromkeys(name for name in self.measures if name in MEASURES)
        # What is told of a user's own measures alone can't be held against anything.
        told = [self._tally.passages[:, :, self[name]._columns].ravel() for name in known]
        every = np.concatenate([np.zeros(0, np.int64), *told])
        numbers, counts = np.unique(every[every != NONE], return_counts=True)
        if not numbers.size:
            return True
        number = int(numbers[counts.argmax()])
        found = measured(model.trace(self._tally.ids[number]), known)
        agree = []
        for name, (sums, places) in found.items():
            columns = self[name]._columns
            with np.errstate(divide="ignore", invalid="ignore"):  # NaN without a place
                here = np.stack([-sums.ravel(), sums.ravel()])[:, np.newaxis] / places.ravel()
            there = self._tally.ranks[:, :, columns]
            is_told = self._tally.passages[:, :, columns] == number
            agree.append(np.isclose(there, here, rtol=1e-3, atol=1e-4)[is_told])
        return bool(np.concatenate(agree).mean() > 0.5)

    def save(self, path: Given) -> None:
        """Write a file that `attnlab.open_atlas` opens."""
        contents = json.dumps({str(n): self._contents[n] for n in sorted(self._contents)})
        words = {"about": json.dumps(self._about), "contents": contents} | self._tally.words()
        write_sealed(path, FORMAT, self._tally.tensors(), words)

    def _passage(self, number: int, value: float) -> Passage:
        text, start = number >> TOKEN_BITS, number & ((1 << TOKEN_BITS) - 1)
        ids = tuple(self._tally.ids[number].tolist())
        return Passage(self._tally.names[text], start, ids, value, self._contents[number])


def contents_of(model: GPT2, ids: Mapping[int, AnyArray]) -> dict[int, str]:
    """What passages say, by their numbers."""
    vocabulary = model.tokenizer.vocabulary
    return {n: vocabulary.decode_bytes(one).decode(errors="replace") for n, one in ids.items()}


def open_atlas(path: Given) -> Atlas:
    """The atlas in a file that `Atlas.save` wrote, or in the directory of a run that has ended.

    Raises
    ------
    MissingFileError
        There is no such file, or the run has not ended.
    """
    file = as_path(path)
    if os.path.isdir(file):  # False, where Path.is_dir raises, of a name too long for a file
        file /= RESULT
        if not file.exists():
            raise MissingFileError(
                f"there is no {file}: a run writes it in the end, and goes on when it is started "
                "again"
            )
    try:
        tensors, words = read_sealed(file, FORMAT, RecordingError, check_shapes)
    except RecordingError as error:
        raise RecordingError(
            f"{error}. An atlas is a file that `Atlas.save` wrote, or a run, as {RESULT}"
        ) from None
    with errors_of(RecordingError, f"{file} is no whole atlas"):
        tally = Tally.read(tensors, words)
        contents = {int(n): text for n, text in json.loads(words["contents"]).items()}
        if contents.keys() != tally.ids.keys() or not all(map(is_text, contents.values())):
            raise InvalidValueError("its passages have no texts")
        return Atlas(json.loads(words["about"]), tally, contents)


def is_text(value: object) -> bool:
    return isinstance(value, str)


def check_shapes(words: dict[str, str], there: Shapes) -> None:
    """Refuse what no atlas has, before any number is read."""
    about = json.loads(words["about"])
    heads = as_count(about["n_layer"], "n_layer", 1) * as_count(about["n_head"], "n_head", 1)
    as_count(about["window"], "window", 1)
    measures = as_texts(about["measures"], "measures")
    if len(set(measures)) < len(measures) or not measures:
        raise InvalidValueError("a measure stands there twice, or there is none")
    if not all(is_text(about[name]) for name in ("model", "model_given", "corpus")):
        raise InvalidValueError("model and corpus are texts")
    Tally.check_shapes(sum(heads if is_of_heads(name) else 1 for name in measures), there)
