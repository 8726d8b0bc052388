"""A text's way through GPT-2: the forward pass, with its tokens beside the numbers."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self, overload

import numpy as np

from attnlab import equations
from attnlab.equations import Array
from attnlab.errors import AttnlabError, InvalidTypeError, InvalidValueError, RecordingError, quoted
from attnlab.forward.attention import Head
from attnlab.forward.edits import Edit, edited
from attnlab.forward.forward_pass import ForwardPass, KeyValueCache
from attnlab.forward.parameters import Parameters
from attnlab.steps import Step
from attnlab.support.checks import as_count, as_float, check_kind
from attnlab.support.files import FilePath
from attnlab.support.messages import EDITED, Message, recognised
from attnlab.support.tables import Document, Table
from attnlab.text.tokens import Token, Tokens, Vocabulary

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from xarray import Dataset

    from attnlab.analysis.attribution import Attribution
    from attnlab.analysis.base import Named
    from attnlab.analysis.circuits import Composition, TokensOfHead
    from attnlab.analysis.flow import Rollout, ValueWeighted, ValueWeightedHeads
    from attnlab.analysis.gradients import Gradients
    from attnlab.analysis.jobs import HeadJobs, Job
    from attnlab.analysis.lens import LogitLens
    from attnlab.views.notebook import Frame
    from attnlab.views.plot import Picture


class Trace(ForwardPass):
    """What one forward pass of a text leaves behind, as `GPT2.trace` returns it.

    Looking at a part computes what it needs and no more: layer 0 runs one block, the logits run
    all of them.

    Attributes
    ----------
    tokens : ids, symbols, texts and bytes, see `Tokens`
    token_embedding, position_embedding, embedding : (T, D)
    blocks : one `Block` for each layer
    final : (T, D), the last block's output after the last LayerNorm
    logits : (T, vocab), for each token what may follow it
    next_logits : (vocab,), the last row of logits, made without the others
    mask : bool (T, cached + T), True where a query may attend to a key, the same in all heads
    cached : how many tokens before these were found in a cache; 0 but in steps of generation
    attentions, hidden_states : every layer's weights, and the residual stream, in the shapes of
        transformers
    vocabulary : what each id stands for
    """

    parts: ClassVar[tuple[str, ...]] = (*ForwardPass.parts, "next_logits")
    title_of_all: ClassVar[str] = "Trace of {T} tokens{cached} through {L} blocks of {H} heads"
    hint: ClassVar[str] = ".tokens, .blocks[layer] and .head(layer, head) show the rest"

    tokens: Tokens
    vocabulary: Vocabulary

    next_logits = Step("vocab", "final W_U, the last row", equations.next_logits, finite=True)

    def __init__(
        self,
        tokens: Tokens,
        vocabulary: Vocabulary,
        parameters: Parameters,
        cache: KeyValueCache | None = None,
    ) -> None:
        self._begin_text(tokens, vocabulary, parameters, cache)

    def _begin_text(
        self,
        tokens: Tokens,
        vocabulary: Vocabulary,
        parameters: Parameters,
        cache: KeyValueCache | None = None,
        known: Mapping[str, Array] | None = None,
    ) -> None:
        check_kind(tokens, Tokens, "tokens")
        check_kind(vocabulary, Vocabulary, "vocabulary")
        self._begin(tokens.ids, parameters, cache, {}, tokens, known)
        vars(self).update(vocabulary=vocabulary)

    def edited(self, edits: Mapping[str, Edit]) -> Self:
        """What if: the same text, with some steps other than they would be, and all that follows.

        What does not depend on an edit is shared with this trace, and not computed again; what
        does is computed when it is looked at.

        Parameters
        ----------
        edits : by path, as it is typed to look at a step, such as
            `blocks.3.attention.heads.5.weights`, `blocks.0.mlp.hidden`, `embedding`, `mask`, or a
            parameter, `blocks.0.attention.heads.2.W_Q`: an array that fits the step's shape, a
            number for all of it, or a function of what would have been there. All of them hold, a
            layer's before its heads', in whatever order they are given.

        Returns
        -------
        Trace
            like any other, whose titles say where it was edited. It may be edited again, and then
            earlier edits hold too: an array stays, a function is asked anew. In a copy or a pickle
            functions are what they made.

        Raises
        ------
        InvalidValueError
            A value that the step can't hold, such as NaN; a function that raised.

        Examples
        --------
        >>> ablated = trace.edited({"blocks.1.attention.heads.2.context": 0})
        """
        return self._of_run(edited(self._run, edits))

    def record(self, path: FilePath, parts: Sequence[str] = ()) -> None:
        """Write a file that holds the trace without the model; `open_trace` opens it.

        It holds the embedding, the residual stream's stops, Q, K, V, final and the next token's
        logits, of which all but the steps that need parameters can be computed again, and the
        vocabulary. 12 tokens of GPT-2 take 4 MB at most.

        Parameters
        ----------
        path : such as "summer.trace"
        parts : paths of other steps to put into it, such as "blocks.0.mlp.activated"

        Raises
        ------
        InvalidValueError
            The trace is a step of generation with a cache.
        """
        from attnlab.model.recordings import record

        record(self, path, parts)

    def _repr_html_(self) -> str:
        from attnlab.views.notebook import trace_view

        return trace_view(self)

    @property
    def attentions(self) -> tuple[Array, ...]:
        """The weights of each layer as transformers' `output_attentions` gives them, (1, H, T, T).

        They take L · H · T² numbers. Viewers made for transformers take them: seaborn and
        CircuitsVis as they are, BertViz as `[torch.tensor(x) for x in trace.attentions]`.
        """
        return tuple(block.attention.weights[np.newaxis] for block in self.blocks)

    @property
    def hidden_states(self) -> tuple[Array, ...]:
        """The residual stream as transformers' `output_hidden_states` gives it, L + 1 of (1, T, D).

        They are the embedding, the output of each block but the last, and `final`.
        """
        states = (*(block.input for block in self.blocks), self.final)
        return tuple(state[np.newaxis] for state in states)

    def head(self, layer: int, head: int) -> Head:
        """One head, `blocks[layer].attention.heads[head]`."""
        return self.blocks.one(layer).attention.heads.one(head)

    def plot(
        self,
        step: str = "weights",
        ax: Axes | None = None,
        tokens: slice | None = None,
        *,
        language: str | None = None,
    ) -> Picture:
        """A step of all heads, a row of small heatmaps for each layer.

        Parameters
        ----------
        step : a step that each head has, such as "weights" or "Q"
        ax : matplotlib's Axes to draw into; None for a figure of its own
        tokens : which of them, such as `slice(-40, None)` for the last 40, `slice(None)` for all;
            None for the first and last ones of many
        language : "en" or "zh", Chinese; None for the reader's, as `to_html` takes it

        Returns
        -------
        Picture
            a notebook shows it, `.save("picture.svg")` writes it; `.axes`, `.figure` and `.alt`,
            its words, are there too
        """
        from attnlab.views.plot import drawn_in, plot_heads

        with drawn_in(language):
            return plot_heads(self, step, ax, tokens)

    def plot_tokens(
        self,
        layer: int,
        head: int,
        query: int | str = -1,
        ax: Axes | None = None,
        *,
        language: str | None = None,
    ) -> Picture:
        """Lines from one token to those that it looks at, as strong as the weights.

        Parameters
        ----------
        layer, head : which head
        query : which token asks, by its number, of which negative ones count from the end, or by
            its text, such as "it"
        ax : matplotlib's Axes to draw into; None for a figure of its own
        language : as `plot` takes it

        Returns
        -------
        Picture
            a notebook shows it, `.save("picture.svg")` writes it; `.axes`, `.figure` and `.alt`,
            its words, are there too
        """
        from attnlab.views.plot import drawn_in, plot_tokens

        with drawn_in(language):
            return plot_tokens(self, layer, head, query, ax)

    def to_xarray(
        self, steps: Sequence[str] = ("input", "mid", "output", "Q", "K", "V", "weights", "context")
    ) -> Dataset:
        """Steps of all layers and heads as an xarray Dataset with named axes.

        Parameters
        ----------
        steps : names of parts of the trace, of its blocks, and of its heads; each that is T x T
            takes L · H · T² numbers

        Returns
        -------
        Dataset
            dimensions layer, head, query, key, position, Dk, ...; query, key and position count
            tokens, and query_token, key_token and position_token are their symbols:
            `data.weights.sel(layer=0, head=3, query=11)`
        """
        from attnlab.views.frames import dataset

        return dataset(self, steps)

    def to_xlsx(self, path: FilePath, layer: int | None = None, head: int | None = None) -> None:
        """Write a spreadsheet whose cells are formulas, see `Attention.to_xlsx`.

        Parameters
        ----------
        path : such as "head.xlsx"
        layer, head : which head; without `head` all of a layer, without both the whole model, from
            ids to the next token's probabilities, for at most 12 tokens and a million cells

        Examples
        --------
        >>> trace.to_xlsx("head.xlsx", layer=1, head=2)
        """
        from attnlab.views.sheets import write_model

        if layer is not None:
            attention = self.blocks.one(layer).attention
            (attention if head is None else attention.heads.one(head)).to_xlsx(path)
        elif head is not None:
            raise InvalidValueError(f"head {quoted(head)} of which layer? Give layer= too")
        else:
            write_model(self, path)

    def next_tokens(self, k: int = 5) -> NextTokens:
        """The k tokens that most probably follow the last one, the most probable first.

        probability = softmax(next_logits); the other rows' logits are not made.
        """
        k = as_count(k, "k", least=1, most=self.config.vocab_size)
        logits, probabilities = self.next_logits, equations.softmax(self.next_logits)
        # Only the candidates are sorted, the lowest id first among equals.
        candidates = np.flatnonzero(logits >= np.partition(logits, -k)[-k])
        best = candidates[np.argsort(-logits[candidates], kind="stable")][:k]
        return NextTokens(self.candidate(int(id), float(probabilities[id])) for id in best)

    def logit_lens(self) -> LogitLens:
        """What each stop of the residual stream would predict, at every position.

        probabilities = softmax(LayerNorm(stop) W_U), with the last LayerNorm

        Returns
        -------
        LogitLens
            `print` shows the most probable tokens; `.of(token)` follows one by its rank and
            probability, `.top(k, position)` shows the first k at one position
        """
        from attnlab.analysis.lens import LogitLens

        return LogitLens(self)

    def attribution(
        self, token: Named, against: Named | None = None, position: int | str = -1
    ) -> Attribution:
        """What each head, MLP, embedding and bias adds to a logit, or to a difference of two.

        The last LayerNorm's scale is held, so that all parts add up.

        Parameters
        ----------
        token : its id, its text, such as " dog", its symbol, or a Token
        against : whose logit is taken away, as `token`; None for none
        position : whose logits: its number, negative ones count from the end, or its token's
            text, such as "it"

        Returns
        -------
        Attribution
            `.heads` (L, H), `.mlps` (L,), `.embedding` and `.bias` add up to `.total`;
            `.by_token()` tells the tokens whose values the heads add by

        Raises
        ------
        InvalidValueError
            An edit replaced a sum, so that its parts no longer add up to it.
        """
        from attnlab.analysis.attribution import Attribution

        return Attribution(self, token, against, position)

    def gradients(
        self, of: Named | None = None, against: Named | None = None, position: int | str = -1
    ) -> Gradients:
        """How a logit, a difference of two, or the loss changes with every step.

        Of an edited trace, at the edited numbers; what an edit put in a step's place is held.

        Parameters
        ----------
        of : a token, whose logit it is: its id, its text, such as " dog", its symbol, or a Token;
            None for the loss, the mean of -log p of each token that follows another
        against : whose logit is taken away, as `of`; None for none
        position : whose logits: its number, negative ones count from the end, or its token's
            text, such as "it"

        Returns
        -------
        Gradients
            under the steps' own names: `attnlab.at(gradients, "blocks.0.attention.weights")`;
            computed when they are looked at

        Raises
        ------
        InvalidValueError
            The trace has one token, and so no loss. When a gradient is read: see `Gradients`.
        """
        from attnlab.analysis.base import Target
        from attnlab.analysis.gradients import Gradients

        if of is None and against is not None:
            raise InvalidValueError(f"a difference is of two tokens; got {quoted(against)} alone")
        return Gradients(self, None if of is None else Target.of(self, of, against, position))

    def writes(self, layer: int, head: int, token: Named, k: int = 5) -> TokensOfHead:
        """The tokens that a head makes more probable where it looks at a token, whatever the text.

        LayerNorm(W_E[token]) OV · gain W_U, with the gain of the last LayerNorm

        Parameters
        ----------
        layer, head : which head
        token : its id, its text, such as " dog", its symbol, or a Token
        k : how many
        """
        from attnlab.analysis.circuits import writes

        return writes(self, layer, head, token, k)

    def reads(self, layer: int, head: int, token: Named, k: int = 5) -> TokensOfHead:
        """The tokens that a head looks at most from a token, by their scores, whatever the text.

        LayerNorm(W_E[token]) QK LayerNorm(W_E)ᵀ / scale, b_Q and b_K included

        Parameters, Raises
        ------------------
        as for `writes`
        """
        from attnlab.analysis.circuits import reads

        return reads(self, layer, head, token, k)

    def composition(self, kind: str = "K") -> Composition:
        """How much of what each head writes each head of a later layer reads.

        ‖OV · reads‖ / (‖OV‖ ‖reads‖), where reads = QK by Q, QKᵀ by K, and OV by V

        LayerNorm is folded into the matrices, so that they read and write the stream itself: W_Q,
        W_K and W_V become C gain W and W_O becomes W_O C, where C = I - 1/D takes the mean away.

        Source: "A Mathematical Framework for Transformer Circuits" (2021), "Analyzing the
        composition of attention heads".

        Parameters
        ----------
        kind : "Q", "K" or "V"
        """
        from attnlab.analysis.circuits import Composition

        return Composition(self, kind)

    def jobs(self, jobs: Mapping[str, Job] | None = None) -> HeadJobs:
        """How much each head looks where a job would have it look.

        Parameters
        ----------
        jobs : by name, functions of the trace's Tokens that give bool (T, T), the keys that each
            query should look at; None for previous token, first token, same token, and induction,
            what stands behind the last earlier copy of the token

        Raises
        ------
        InvalidValueError
            The trace is a step of generation.
        """
        from attnlab.analysis.jobs import JOBS, head_jobs

        return head_jobs([self], JOBS if jobs is None else jobs)

    def rollout(self) -> Rollout:
        """How much of each token's stream comes from which token, by weights through all layers.

        rollout = mixed_L ... mixed_0, where mixed = (mean of the heads' weights + I) / 2

        Raises
        ------
        InvalidValueError
            The trace is a step of generation.
        """
        from attnlab.analysis.flow import Rollout

        return Rollout(self)

    @overload
    def value_weighted(self) -> ValueWeightedHeads: ...
    @overload
    def value_weighted(self, layer: int, head: int) -> ValueWeighted: ...
    def value_weighted(
        self, layer: Any = None, head: Any = None
    ) -> ValueWeighted | ValueWeightedHeads:
        """How long the vectors are that a head adds up, ‖weights[q, k] V[k] W_O‖.

        Parameters
        ----------
        layer, head : which head; None for all, which take L · H · T² numbers
        """
        from attnlab.analysis.flow import ValueWeighted, ValueWeightedHeads

        if layer is None and head is None:
            return ValueWeightedHeads(self)
        return ValueWeighted(self, layer, head)

    def candidate(self, id: int, probability: float, share: float | None = None) -> NextToken:
        """A token that may follow the last one, with the probability that it was given.

        Parameters
        ----------
        id, probability : of the token
        share : the model's own probability, where it was drawn with another one
        """
        token = self.vocabulary.token(id)
        return NextToken(
            **vars(token),
            logit=float(self.next_logits[token.id]),
            probability=probability,
            share=probability if share is None else share,
        )

    def to_html(self, other: Trace | None = None, *, language: str | None = None) -> str:
        """One page to look at every head in, which needs no network and no other file.

        Parameters
        ----------
        other : a second trace to compare this one with: side by side and, where the shapes are
            equal, as the difference other - this
        language : "en" or "zh", Chinese; None for the reader's, that of ATTNLAB_LANGUAGE or else of
            the locale

        Raises
        ------
        InvalidValueError
            Q, K, V or logits hold NaN, or numbers too large for the page's float32.
        """
        from attnlab.views.page.page import page  # what computes loads what draws only to draw

        return page(self._with(other), language)

    def show(
        self, other: Trace | None = None, height: int = 720, *, language: str | None = None
    ) -> Frame:
        """`to_html(other, language)` inside a notebook, as the last line of a cell.

        Parameters
        ----------
        other, language : as `to_html` takes them
        height : of the frame, in pixels; in it the page scrolls
        """
        from attnlab.views.notebook import Frame

        height = as_count(height, "height", least=1)
        return Frame(self.to_html(other, language=language), f"The page of {self.title}", height)

    def save(
        self,
        path: str | os.PathLike[str],
        other: Trace | None = None,
        *,
        language: str | None = None,
    ) -> None:
        """Write `to_html(other, language)` to a file, whole or not at all.

        A page of more than 10 MB is announced on stderr before it is made: 12 layers of 12 heads
        take 2.2 MB for 12 tokens, 17 MB for 128.

        Parameters
        ----------
        path : such as "attention.html"; a file that is there is replaced
        other, language : as `to_html` takes them
        """
        from attnlab.views.page.page import save

        save(path, self._with(other), language)

    def _with(self, other: Trace | None) -> list[Trace]:
        """The traces that a page shows."""
        if other is None:
            return [self]
        if not isinstance(other, Trace):
            raise InvalidTypeError(
                f"other must be a Trace, as model.trace returns it; got {type(other).__name__}"
            )
        return [self, other]


def trace_of(
    tokens: Tokens, vocabulary: Vocabulary, parameters: Parameters, known: Mapping[str, Array]
) -> Trace:
    """A trace of which some steps are there already, by path."""
    trace = object.__new__(Trace)
    trace._begin_text(tokens, vocabulary, parameters, known=known)
    return trace


def open_trace(path: FilePath) -> Trace:
    """The trace in a file that `Trace.record` wrote.

    It is a trace like any other, in which what needs the model's parameters says so.
    """
    from attnlab.model.recordings import read

    ids, vocabulary, parameters, values, note = read(path)
    try:
        trace = trace_of(vocabulary.tokens(ids), vocabulary, parameters, values)
    except AttnlabError as error:
        raise RecordingError(f"{path} isn't a complete trace file: {error}") from None
    edits = recognised(note, EDITED)
    trace._run.note = Message("{title}, from a file", title=edits)
    return trace


@dataclass(frozen=True)
class NextToken(Token):
    """A token that may come next, with its logit and its probability.

    Attributes
    ----------
    logit : its logit
    probability : of a token that was drawn, what it was drawn with, which temperature, top_k and
        top_p have made: 1 at temperature 0. Else the model's own.
    share : the model's own, softmax(logits)
    """

    logit: float
    probability: float
    share: float

    def __post_init__(self) -> None:
        super().__post_init__()
        as_float(self.logit, "logit", least=-sys.float_info.max)
        as_float(self.probability, "probability")
        as_float(self.share, "share")


class NextTokens(Document, tuple[NextToken, ...]):
    """Tokens that may come next; `repr` is a table of them."""

    def pieces(self) -> Iterator[Table]:
        lines: list[tuple[str, ...]] = [("id", "symbol", "text", "logit", "probability")]
        for token in self:
            numbers = (f"{token.logit:.4f}", f"{token.probability:.4f}")
            lines.append((str(token.id), token.symbol, repr(token.text), *numbers))
        yield Table(lines, left=(1, 2))

    def _repr_html_(self) -> str:
        from attnlab.views.notebook import candidates_view

        return candidates_view(self)
