"""Autoregressive generation with a key-value cache."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from attnlab import equations
from attnlab.errors import InvalidValueError
from attnlab.forward.edits import Edit
from attnlab.forward.forward_pass import KeyValueCache
from attnlab.forward.parameters import Parameters
from attnlab.model.sampling import Sampling
from attnlab.model.trace import NextToken, Trace
from attnlab.support.checks import as_count, as_texts
from attnlab.support.document import Document
from attnlab.support.messages import Message
from attnlab.support.tables import Columns, Format, Paragraph, Table, listed
from attnlab.text.tokens import Tokens, Vocabulary, text_in_quotes


@dataclass(frozen=True, eq=False)
class GenerationStep:
    """One step of generation.

    Attributes
    ----------
    trace : the Trace of the tokens that the step computed. In `blocks[l].attention`, Q has a row
        for each of these tokens; K and V have a row for each token so far, of which the first
        `cached` are from the cache.
    token : the token sampled at the end of the step; None for the last step, which only computes
        the last token's rows
    """

    trace: Trace
    token: NextToken | None

    def __repr__(self) -> str:
        result = f"chose {self.token.readable}" if self.token else "computed the last token"
        return f"<GenerationStep: {self.computed} computed, {self.cached} cached, {result}>"

    @property
    def cached(self) -> int:
        """The number of tokens whose keys and values came from the cache."""
        return self.trace.cached

    @property
    def computed(self) -> int:
        """The number of tokens that the step computed."""
        return len(self.trace.tokens)


@dataclass(frozen=True, eq=False, repr=False)
class Generation(Document):
    """The result of `GPT2.generate`; `print` shows prompt and continuation as text.

    Attributes
    ----------
    prompt, new, tokens : Tokens of the prompt, of the continuation, and of both
    text : the continuation
    whole_text : prompt and continuation
    chosen : the new tokens, each with its `logit`, the model's `probability`, and `sampled_with`,
        the probability after temperature, top_k and top_p (1 at temperature 0)
    steps : with `trace=True`, one step for each new token and one that computes the last token's
        rows; else empty
    notice : a warning about the prompt, such as a blank at its end, see `Trace.notice`
    """

    _shown: ClassVar[Mapping[str, Format]] = {
        "position": ("", ""),
        **dict.fromkeys(("logit", "probability"), ".4f"),
        "sampled_with": ("sampled with", ".4f"),
    }

    prompt: Tokens
    new: Tokens
    tokens: Tokens
    text: str
    whole_text: str
    chosen: tuple[NextToken, ...]
    steps: tuple[GenerationStep, ...] = ()
    notice: str = ""

    def __str__(self) -> str:
        return self.whole_text

    def pieces(self) -> Iterator[str | Table]:
        template = "New tokens: {new}, after a prompt of {prompt}"
        yield Message(template, new=len(self.new), prompt=len(self.prompt))
        yield listed(self._data(), self._shown)
        if self.notice:
            yield Paragraph(self.notice)

    def _data(self) -> Columns:
        positions = range(len(self.prompt), len(self.tokens))
        return {
            "position": positions,
            "id": self.new.ids,
            "symbol": self.new.symbols,
            "text": [text_in_quotes(self.tokens, i) for i in positions],
            "logit": [token.logit for token in self.chosen],
            "probability": [token.probability for token in self.chosen],
            "sampled_with": [token.sampled_with for token in self.chosen],
        }

    def _repr_html_(self) -> str:
        """The whole text, and each new token with its probability."""
        from attnlab.support import markup  # imported late, so that `import attnlab` is quick

        title, *pieces = self.pieces()
        assert isinstance(title, str)
        return markup.document(title, *map(markup.piece, (self.whole_text, *pieces)))


def generation_steps(
    prompt: Tokens,
    max_new_tokens: int,
    parameters: Parameters,
    vocabulary: Vocabulary,
    sampling: Sampling,
    stops: Sequence[bytes],
    edits: Mapping[str, Edit] | None,
    *,
    run_last_token: bool = False,
) -> Iterator[GenerationStep]:
    """Run the prompt, then sample and run one token at a time, until the new text contains a stop.

    Beyond n_positions, each step runs the last n_positions tokens without the cache: shifted
    positions change all keys and values. Edits are applied to each step's trace. `run_last_token`
    adds a step that computes the rows of the last sampled token.
    """
    # "Autoregressive" means that each token is sampled given all tokens before it.
    positions = parameters.config.n_positions
    cache = KeyValueCache(parameters.config, parameters.dtype)
    rng = np.random.default_rng(sampling.seed)
    candidates = vocabulary.ids  # ids of tokens: some rows of W_E may have no token

    def run(ids: list[int]) -> Trace:
        if len(ids) > positions:  # W_P has no row for a later position
            trace = Trace(vocabulary.tokens(ids[-positions:]), vocabulary, parameters)
        else:
            # The first step runs the whole prompt (prefill), each later step one token (decoding).
            new = vocabulary.tokens(ids[cache.length :])
            trace = Trace(new, vocabulary, parameters, cache)
        if edits is not None:
            trace = trace.edited(edits)
        trace.next_logits  # noqa: B018 (runs every block, which fills the cache)
        cache.length = len(ids)  # set after the pass, so that only the next pass adds rows here
        return trace

    ids = prompt.ids.tolist()
    for _ in range(max_new_tokens):
        trace = run(ids)
        index, sampled_with = sampling.draw(trace.next_logits[candidates], rng)
        id = int(candidates[index])
        probability = float(equations.softmax(trace.next_logits)[id])
        token = trace._candidate(id, probability, sampled_with)
        yield GenerationStep(trace, token)
        ids.append(token.id)
        # These are bytes, since a character may be spread over several tokens.
        generated = vocabulary.decode_bytes(ids[len(prompt) :]) if stops else b""
        if any(stop in generated for stop in stops):
            break
    if run_last_token:
        yield GenerationStep(run(ids), None)


def as_max_new_tokens(
    prompt: Tokens, max_new_tokens: int, positions: int, drop_oldest: bool
) -> int:
    """Return max_new_tokens, checked against the prompt's length and the model's positions."""
    if not prompt:
        raise InvalidValueError("the prompt has no tokens. Give a text or token ids to continue")
    max_new_tokens = as_count(max_new_tokens, "max_new_tokens")
    total = len(prompt) + max_new_tokens
    if total > positions and not drop_oldest:
        raise InvalidValueError(
            f"{total} tokens (prompt {len(prompt)}, new {max_new_tokens}) are more than the "
            f"model's {positions} positions. drop_oldest=True continues without the oldest "
            "tokens"
        )
    return max_new_tokens


def stop_bytes(stop: str | Sequence[str] | None) -> tuple[bytes, ...]:
    """Encode each text that ends generation as UTF-8."""
    stops = () if stop is None else as_texts(stop, "stop")
    if "" in stops:
        raise InvalidValueError("stop must not contain an empty text")
    return tuple(text.encode("utf-8", errors="surrogatepass") for text in stops)
