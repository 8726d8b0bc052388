"""The forward pass of a text, with its tokens."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from attnlab import equations
from attnlab.equations import Array, Ids
from attnlab.errors import AttnlabError, InvalidValueError
from attnlab.forward import fast
from attnlab.forward.edits import Edit, edit_run
from attnlab.forward.forward_pass import ForwardPass, KeyValueCache
from attnlab.forward.parameters import Parameters
from attnlab.model.notice import notice_on
from attnlab.steps import Step, read_only
from attnlab.support.checks import as_count
from attnlab.support.document import Document, frame_of
from attnlab.support.messages import say
from attnlab.support.tables import Columns, Format, Paragraph, listed
from attnlab.text.tokens import Token, Tokens, Vocabulary, text_in_quotes
from attnlab.text.words import LONGEST_CHARACTER

if TYPE_CHECKING:  # at run time, only the methods that need these import them
    from matplotlib.axes import Axes
    from pandas import DataFrame

    from attnlab.views.plot import Picture

# In a notebook, heads are shown only if all of them have at most this many scores.
SCORES_SHOWN = 2**18


class Trace(ForwardPass):
    """Every intermediate of one forward pass of a text, as `GPT2.trace` returns it.

    Reading a step computes only what it needs: layer 0 runs one block, the logits run all of them.

    Attributes
    ----------
    tokens : ids, symbols, texts and bytes, see `Tokens`
    next_logits : (vocab,), the last row of logits, computed without the other rows
    vocabulary : the model's `Vocabulary`
    losses, loss : each next token's cross-entropy, and their mean; exp(loss) is the perplexity
    notice : advice if the model doesn't know words of the text, if names of special tokens were
        split, or if the text ends in a blank; else ""
    and the attributes of `ForwardPass`
    """

    _table_steps: ClassVar[tuple[str, ...]] = (*ForwardPass._table_steps, "next_logits")
    _hint: ClassVar[str] = ".tokens, .blocks[layer] and .head(layer, head) show the rest"

    vocabulary: Vocabulary

    # This is a product with one row, instead of the T rows of `logits`.
    next_logits = Step("vocab", "final W_U, the last row", equations.next_logits, finite=True)

    def __init__(
        self,
        tokens: Tokens | list[Tokens],
        vocabulary: Vocabulary,
        parameters: Parameters,
        cache: KeyValueCache | None = None,
    ) -> None:
        """Trace a text, or several texts of one length; then arrays have one more leading axis."""
        if isinstance(tokens, list):
            super().__init__([text.ids.tolist() for text in tokens], parameters)
        else:
            super().__init__(tokens.ids, parameters, cache, tokens=tokens)
        vars(self).update(vocabulary=vocabulary)  # attributes can't be assigned

    def edited(self, edits: Mapping[str, Edit]) -> Self:
        """The trace of the same text with some steps replaced and everything after them recomputed.

        Steps that don't depend on an edit are shared with this trace; other steps are computed when
        they are read. Titles name the edits. The result can be edited again: earlier edits remain,
        and their functions are called again. Copies and pickles have the values that functions
        returned, not the functions.

        Parameters
        ----------
        edits : new values by path. A path names a step, such as
            `blocks.3.attention.heads.5.weights`, `blocks.0.mlp.hidden`, `embedding` or `mask`, or a
            parameter, such as `blocks.0.attention.heads.2.W_Q`. A value is an array that broadcasts
            to the step's shape, a number, or a function of the step's original value. A `*` stands
            for all blocks, or all heads: `blocks.*.attention.heads.0.context`. An index selects
            part of the step's array: `blocks.1.attention.heads.2.context[-1]` is the last position.
            Edits of a layer are applied before edits of its heads, whatever the order of paths.

        Examples
        --------
        >>> ablated = trace.edited({"blocks.1.attention.heads.2.context": 0})
        """
        return self._with_run(edit_run(self._run, edits))

    def __repr__(self) -> str:
        notice = [str(Paragraph(self.notice))] if self.notice else []
        return "\n".join([super().__repr__(), *notice])

    @property
    def tokens(self) -> Tokens:
        return self._run.tokens  # None only in a trace of several texts side by side

    @property
    def notice(self) -> str:
        """Advice on unknown words, split names of special tokens, or a blank at the end; or ""."""
        return notice_on(self.tokens, self.parameters, self.vocabulary)

    def _repr_html_(self) -> str:
        """The next tokens and all heads, if the text is short."""
        from attnlab.support import markup  # here, so that `import attnlab` is quick
        from attnlab.views.notebook import all_heads, collapsed

        fork = self._fork()  # so that this trace doesn't keep the steps shown
        body: list[str] = []
        layers = [block.attention for block in fork.blocks]
        if len(layers) * math.prod(layers[0].scores_shape) <= SCORES_SHOWN:
            for view in (fork._prediction, partial(all_heads, layers)):
                try:
                    body.append(view())
                except AttnlabError as error:  # an edit may make logits infinite
                    body.append(markup.faint(str(error)))
        else:
            words = (
                "The heads aren't shown for a long text. Use trace.next_tokens(), trace.plot() or "
                "trace.head(layer, head)."
            )
            body.append(markup.faint(say(words)))
        body.append(collapsed(f"<pre>{markup.escape(fork._table())}</pre>"))
        return markup.page(
            say(self.title), *body, *(markup.faint(say(x)) for x in (self._hint, self.notice))
        )

    def _prediction(self) -> str:
        """The next tokens as HTML."""
        from attnlab.support.markup import safe

        last = f"<b>{safe(self.tokens.readable[-1], 24)}</b>"
        return (
            f"<div>{say('Next tokens after {last}', last=last)}</div>{self.next_tokens()._bars()}"
        )

    def plot(
        self,
        step: str = "weights",
        ax: Axes | None = None,
        tokens: slice | None = None,
        *,
        language: str | None = None,
    ) -> Picture:
        """Plot a step of all heads as small heatmaps, one row per layer; see `Attention.plot`."""
        from attnlab.views.plot import drawing_in, plot_heads

        with drawing_in(language):
            layers = [block.attention for block in self.blocks]
            return plot_heads(self.title, layers, step, ax, tokens)

    def to_dataframe(self, step: str | None = None) -> DataFrame:
        """Return a step as a labelled DataFrame, see `Attention.to_dataframe`.

        Without a step, the rows are the text's tokens, each with its loss; see `losses`.
        """
        if step is not None:
            return super().to_dataframe(step)
        return frame_of(columns_of_tokens(self.tokens, self.losses, self.cached), self.title)

    def by_words(self) -> ByWords:
        """The weights and losses of words, each with all its tokens together; see `ByWords`.

        Examples
        --------
        >>> by_words = trace.by_words()
        >>> words, weights = by_words.words, by_words.weights
        >>> print(attnlab.table(weights[1, 2], rows=words, columns=words))
        >>> attnlab.words(weights, words).save("words.html")
        """
        return ByWords(self)

    def next_tokens(self, k: int = 5) -> NextTokens:
        """The k most probable next tokens, most probable first.

        probability = softmax(next_logits); logits of other positions are not computed.
        """
        k = as_count(k, "k", least=1, most=self.config.vocab_size)
        # These sum to 1 over the whole vocabulary, not over the k tokens that are shown.
        probabilities = equations.softmax(self.next_logits)  # (vocab,)
        ids = largest_ids(self.next_logits, k)
        found = NextTokens(self._candidate(int(id), float(probabilities[id])) for id in ids)
        found._before = self.tokens[1 - LONGEST_CHARACTER :]
        return found

    @cached_property
    def losses(self) -> Array:
        """Each token's cross-entropy, -log softmax(logits)[next token], in nats, (T - 1,).

        `losses[t]` is the loss of token t + 1, predicted from the tokens up to t.
        """
        return self._losses_after(0)

    def _losses_after(self, first: int) -> Array:
        """`losses[first:]`, computed without the logits of earlier rows."""
        # Row t predicts token t + 1. The last row is left out: the text has no token after it.
        targets = self.ids[first + 1 :]  # (n,)
        final = self.final[first:-1]  # (n, D)
        has_logits = self._is_stored("logits") or self.is_edited("logits")
        losses = np.empty(len(targets), final.dtype)
        for start in range(0, len(targets), fast.ROWS):  # all logits at once take T · vocab numbers
            rows = slice(start, start + fast.ROWS)
            logits = (
                self.logits[first:-1][rows]
                if has_logits
                else equations.logits(final[rows], self.W_U)
            )
            losses[rows] = equations.cross_entropy(logits, targets[rows])
        return read_only(losses)

    @property
    def loss(self) -> float:
        """The text's mean cross-entropy, in nats per token: the mean of `losses`."""
        if len(self.ids) < 2:
            raise InvalidValueError("the loss needs at least two tokens; got one")
        return float(self.losses.mean(dtype=np.float64))

    def _candidate(
        self, id: int, probability: float, sampled_with: float | None = None
    ) -> NextToken:
        """A possible next token."""
        token = self.vocabulary.token(id)
        return NextToken(
            **vars(token),
            logit=float(self.next_logits[token.id]),
            probability=probability,
            sampled_with=probability if sampled_with is None else sampled_with,
        )


@dataclass(frozen=True)
class NextToken(Token):
    """A possible next token with its logit and probability.

    Attributes
    ----------
    probability : the model's probability, softmax(logits)
    sampled_with : the probability with which the token was sampled, after temperature, top_k and
        top_p; equal to `probability` if it wasn't sampled
    """

    logit: float
    probability: float
    sampled_with: float


class NextTokens(Document, tuple[NextToken, ...]):
    """Possible next tokens; `repr` is a table of them."""

    _before: Sequence[Token] = ()  # the text's last tokens, which may begin a character
    _shown: ClassVar[Mapping[str, Format]] = {"logit": ".4f", "probability": ".4f"}

    def _data(self) -> Columns:
        return {
            "id": [token.id for token in self],
            "symbol": [token.symbol for token in self],
            "text": [text_in_quotes(Tokens([*self._before, token]), -1) for token in self],
            "logit": [token.logit for token in self],
            "probability": [token.probability for token in self],
        }

    def _repr_html_(self) -> str:
        """The candidates, with bars for their probabilities."""
        from attnlab.support import markup  # imported late, so that `import attnlab` is quick

        return markup.page(say("Next tokens"), self._bars())

    def _bars(self) -> str:
        from attnlab.support.markup import table

        return table(listed(self._data(), self._shown), [token.probability for token in self])


class ByWords(Document):
    """The weights and losses of a trace by words, as `Trace.by_words` returns them.

    A sequence of letters is one word, with the space before it, even if it has several tokens. A
    character that is spread over several tokens is also one word. Every other token, such as a
    comma, is a word by itself. Words that share a token are one word.

    Attributes
    ----------
    words : the W words of the text, such as ` Swimming`, with their spaces. Joined, they are the
        text of the tokens. A token without a text is named by its symbol.
    spans : for each word, the slice of the trace's tokens
    weights : (layers, heads, W, W). The weight of a query word on a key word is a sum over the key
        word's tokens, and a mean over the query word's tokens, so each row sums to 1.
    losses : (W - 1,), in nats. `losses[w]` is the sum of the losses of the tokens of word w + 1.

    Source: Clark et al., “What Does BERT Look At?” (2019), section 4.1, for the weights.
    """

    _shown: ClassVar[Mapping[str, Format]] = {"word": repr, "loss": ".4f"}

    def __init__(self, trace: Trace) -> None:
        if trace.tokens_before:  # cached keys have no words
            raise InvalidValueError("by_words needs the trace of one whole text")
        # Tokens that continue a word or a character; each other token begins a word.
        inner = {i for word in trace.tokens.words for i in range(word.start + 1, word.stop)}
        inner |= {i for _, owners in trace.tokens._characters for i in owners[1:]}
        self._trace = trace
        self._starts = [i for i in range(len(trace.tokens)) if i not in inner]
        self.spans = tuple(map(slice, self._starts, [*self._starts[1:], len(trace.tokens)]))
        self.words: tuple[str, ...] = tuple(
            b"".join(tokens.bytes).decode(errors="replace") or tokens.symbols[0]
            for tokens in (trace.tokens[span] for span in self.spans)
        )

    @cached_property
    def weights(self) -> Array:
        weights = self._trace["blocks.*.attention.weights"]  # (layers, heads, T, T)
        # Sum over each word's tokens, as keys and as queries. Sums over queries become means below.
        for axis in (-1, -2):
            weights = np.add.reduceat(weights, self._starts, axis=axis)
        counts = np.array([[span.stop - span.start] for span in self.spans], weights.dtype)
        return read_only(weights / counts)

    @cached_property
    def losses(self) -> Array:
        # losses[t] is the loss of token t + 1, hence - 1. The first word's losses are left out.
        starts = np.array(self._starts[1:], int) - 1
        return read_only(np.add.reduceat(self._trace.losses, starts))

    def _data(self) -> Columns:
        return {
            "word": self.words,
            "position": [span.start for span in self.spans],
            "tokens": [span.stop - span.start for span in self.spans],
            "loss": np.append(self.losses.dtype.type(np.nan), self.losses),
        }


def largest_ids(numbers: Array, n: int) -> Ids:
    """The ids of the n largest logits or probabilities, largest first; equal ones by id."""
    n = min(n, numbers.size)
    candidates = np.flatnonzero(numbers >= np.partition(numbers, -n)[-n])  # sort only candidates
    best: Ids = candidates[np.argsort(-numbers[candidates], kind="stable")][:n]
    return best


def columns_of_tokens(tokens: Tokens, losses: Array, start: int = 0) -> Columns:
    """A text's tokens, from position `start` on, with their losses; the first loss is NaN."""
    return {
        "position": np.arange(start, start + len(tokens)),
        "id": tokens.ids,
        "symbol": np.array(tokens.symbols, object),
        "loss": np.append(losses.dtype.type(np.nan), losses),
    }
