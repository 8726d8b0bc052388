"""Writing on: one token at a time, with the keys and values of all earlier tokens in a cache."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from attnlab.checkpoint import Parameters
from attnlab.errors import InvalidTypeError, InvalidValueError
from attnlab.forward import KeyValueCache
from attnlab.ops import Array, as_floats, generator, is_integer, is_real, softmax
from attnlab.steps import Result
from attnlab.tables import align
from attnlab.tokenizer import Tokenizer, Tokens
from attnlab.trace import NextToken, Trace


def sampling_probabilities(
    logits: ArrayLike,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
) -> Array:
    """With which probability each token is drawn: softmax(logits / temperature), cut and renewed.

    Parameters
    ----------
    logits : (vocab,)
    temperature : below 1 sharpens, above 1 flattens; at 0 the first of the largest logits has all
    top_k : only tokens whose logit is at least the k-th largest remain; None for all
    top_p : of those, taken from the most probable down, the fewest whose probabilities add up to
        top_p at least remain; None for all. Of equal ones the higher ids are taken first.

    Returns
    -------
    float64 (vocab,), sums to 1

    Raises
    ------
    InvalidValueError
        A setting out of its range, or logits that are not one row of finite numbers.

    Notes
    -----
    The order, temperature, top-k, top-p, is that of transformers' `generate`.

    Source: "The Curious Case of Neural Text Degeneration" (2020), sections 3.1 and 5 (top-p), and
    "Hierarchical Neural Story Generation" (2018), section 5.4 (top-k).
    """
    check_sampling(temperature, top_k, top_p)
    scores = as_floats(logits, "logits").astype(np.float64)
    if scores.ndim != 1 or scores.size == 0 or not np.isfinite(scores).all():
        raise InvalidValueError("logits must be one row of finite numbers")
    if temperature == 0:
        only_best: Array = (np.arange(scores.size) == scores.argmax()).astype(np.float64)
        return only_best
    with np.errstate(over="ignore"):  # at a temperature near 0: -inf, probability 0
        scores = (scores - scores.max()) / temperature
    if top_k is not None and top_k < scores.size:
        kth_largest = np.partition(scores, -top_k)[-top_k]
        scores[scores < kth_largest] = -math.inf
    if top_p is not None and top_p < 1:
        ascending = np.argsort(scores, kind="stable")
        cumulative = softmax(scores)[ascending].cumsum()
        removed = ascending[:-1][cumulative[:-1] <= 1 - top_p]
        scores[removed] = -math.inf
    return softmax(scores)


@dataclass(frozen=True)
class GenerationStep:
    """What one step of generation computed, and what it found in the cache.

    Attributes
    ----------
    trace : the Trace of the tokens that the step computed. In `blocks[l].attention`, Q has a row
        for each of them, and K and V one for each token so far: the first `cached` rows were
        found, the others computed from X, which has the new rows only.
    token : the token that was chosen at its end; None where the step only completed the trace
    """

    trace: Trace
    token: NextToken | None

    def __repr__(self) -> str:
        chose = f", chose {self.token.symbol}" if self.token else ", completed the trace"
        return f"<step: computed {self.computed}, found {self.cached} in the cache{chose}>"

    @property
    def cached(self) -> int:
        """How many tokens' keys and values were in the cache already."""
        return self.trace.cached

    @property
    def computed(self) -> int:
        """How many tokens went through the model."""
        return len(self.trace.tokens)


@dataclass(frozen=True)
class Generation:
    """What `GPT2.generate` wrote; `print` shows prompt and continuation as text.

    Attributes
    ----------
    prompt, new, tokens : Tokens, what was given, what was written, and both
    text : what was written
    chosen : the new tokens, each with its logit, and its probability when it was chosen
    trace : with `trace=True` one Trace over prompt and new tokens, else None
    steps : with `trace=True` each step by itself, one for each new token and one that computes the
        last token's own rows; else empty
    """

    prompt: Tokens
    new: Tokens
    tokens: Tokens
    text: str
    chosen: tuple[NextToken, ...]
    trace: Trace | None = None
    steps: tuple[GenerationStep, ...] = ()

    def __str__(self) -> str:
        return b"".join(self.tokens.bytes).decode("utf-8", errors="replace")

    def __repr__(self) -> str:
        lines = [("", "id", "symbol", "text", "logit", "drawn with")]
        for i, token in enumerate(self.chosen, start=len(self.prompt)):
            numbers = (f"{token.logit:.4f}", f"{token.probability:.4f}")
            lines.append((str(i), str(token.id), token.symbol, repr(token.text), *numbers))
        heading = f"{len(self.new)} tokens after a prompt of {len(self.prompt)}"
        return f"{heading}\n{align(lines, left=(2, 3))}"


class Sampler:
    """Draws tokens with the probabilities of `sampling_probabilities`.

    Parameters
    ----------
    temperature, top_k, top_p : as `sampling_probabilities` takes them
    seed : makes the draws repeatable; None for fresh randomness

    Raises
    ------
    InvalidValueError
        A setting out of its range.
    """

    def __init__(
        self, temperature: float, top_k: int | None, top_p: float | None, seed: int | None
    ) -> None:
        check_sampling(temperature, top_k, top_p)
        self.temperature, self.top_k, self.top_p = temperature, top_k, top_p
        self._rng = generator(seed)

    def draw(self, logits: Array) -> tuple[int, float]:
        """An id, and the probability that it had."""
        probabilities = sampling_probabilities(
            logits, temperature=self.temperature, top_k=self.top_k, top_p=self.top_p
        )
        cumulative = probabilities.cumsum()
        id = int(np.searchsorted(cumulative, self._rng.random() * cumulative[-1], side="right"))
        return id, float(probabilities[id])


def generation_steps(
    prompt: Tokens,
    max_new_tokens: int,
    parameters: Parameters,
    tokenizer: Tokenizer,
    sampler: Sampler,
    stops: Sequence[bytes],
    *,
    complete: bool = False,
) -> Iterator[GenerationStep]:
    """Write on, step by step.

    Each step puts through the model the tokens that it has not seen yet, the whole prompt at first
    and then one token at a time, and draws the next token. When there are more than n_positions,
    it goes on with the last n_positions of them; their positions have changed, and with them all
    keys and values, so that each such step computes all of them again.

    Parameters
    ----------
    stops : bytes at which to stop, once they are in what was written
    complete : whether one more step at the end computes the last token's own rows
    """
    positions = parameters.config.n_positions
    cache = KeyValueCache(parameters.config, parameters.dtype)

    def run(ids: list[int]) -> Trace:
        trace = Trace(tokenizer.tokens(ids), tokenizer, parameters, cache)
        trace.next_logits  # noqa: B018 (runs every block, which fills the cache)
        cache.length += len(ids)
        return trace

    ids, seen, written = prompt.ids.tolist(), 0, b""
    for _ in range(max_new_tokens):
        if len(ids) > positions:
            cache.length, seen = 0, len(ids) - positions
        trace = run(ids[seen:])
        token = trace.candidate(*sampler.draw(trace.next_logits))
        yield GenerationStep(trace, token)
        seen = len(ids)
        ids.append(token.id)
        written += token.bytes
        if any(stop in written for stop in stops):
            break
    if complete:
        yield GenerationStep(run(ids[seen:]), None)


def join(steps: Sequence[GenerationStep], parameters: Parameters, tokenizer: Tokenizer) -> Trace:
    """One trace over the tokens of all steps, such as one uncached run leaves behind.

    The rows of queries and of the residual stream are those that each step computed; keys and
    values are the cache's after the last step.
    """
    traces = [step.trace for step in steps]
    whole = Trace(Tokens(t for trace in traces for t in trace.tokens), tokenizer, parameters)

    def rows(parts: Iterable[Result], name: str) -> Array:
        return np.concatenate([getattr(part, name) for part in parts], axis=-2)

    for layer, block in enumerate(whole.blocks):
        blocks = [trace.blocks[layer] for trace in traces]
        attentions = [part.attention for part in blocks]
        last = attentions[-1]
        block.keep(**{name: rows(blocks, name) for name in ("input", "mid", "output")})
        attention = block.bare_attention()
        attention.keep(Q=rows(attentions, "Q"), K=last.K, V=last.V)
        attention.keep(context=rows(attentions, "context"))
        block.keep(attention=attention)
    whole.keep(final=rows(traces, "final"), next_logits=traces[-1].next_logits)
    return whole


def check_length(prompt: Tokens, max_new_tokens: int, positions: int, drop_oldest: bool) -> None:
    """Refuse what would not fit, before any work is done.

    Raises
    ------
    InvalidValueError
        No prompt, a count below 0, or more tokens than positions without `drop_oldest`.
    """
    if not prompt:
        raise InvalidValueError("nothing to continue: the prompt has no tokens")
    if not is_integer(max_new_tokens) or max_new_tokens < 0:
        raise InvalidValueError(
            f"max_new_tokens must be an integer of at least 0; given {max_new_tokens!r}"
        )
    wanted = len(prompt) + max_new_tokens
    if wanted > positions and not drop_oldest:
        raise InvalidValueError(
            f"a prompt of {len(prompt)} tokens and {max_new_tokens} new ones are {wanted}, more "
            f"than the model's {positions} positions; drop_oldest=True goes on without the oldest"
        )


def check_sampling(temperature: float, top_k: int | None, top_p: float | None) -> None:
    """Refuse settings out of their range.

    Raises
    ------
    InvalidValueError
        A temperature below 0 or not finite, a top_k below 1, a top_p outside (0, 1].
    """
    if not is_real(temperature) or not 0 <= temperature < math.inf:
        raise InvalidValueError(
            f"temperature must be a number of at least 0; given {temperature!r}"
        )
    if top_k is not None and (not is_integer(top_k) or top_k < 1):
        raise InvalidValueError(f"top_k must be an integer of at least 1; given {top_k!r}")
    if top_p is not None and (not is_real(top_p) or not 0 < top_p <= 1):
        raise InvalidValueError(f"top_p must be above 0 and at most 1; given {top_p!r}")


def stop_bytes(stop: str | Sequence[str] | None) -> tuple[bytes, ...]:
    """The bytes of each text at which to stop.

    Raises
    ------
    InvalidTypeError
        Not a text or texts.
    InvalidValueError
        An empty text, which would stop at once.
    """
    stops = () if stop is None else (stop,) if isinstance(stop, str) else stop
    if not isinstance(stops, Sequence) or not all(isinstance(text, str) for text in stops):
        raise InvalidTypeError(f"stop must be a text or texts; given {stop!r}")
    if "" in stops:
        raise InvalidValueError("stop must not be an empty text")
    return tuple(text.encode("utf-8", errors="surrogatepass") for text in stops)
