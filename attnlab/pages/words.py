"""A page of any model's attention over words, which needs only the tokens and the weights.

    attnlab.words(weights, tokens).save("page.html")

The weights are arrays, or what transformers returns with `output_attentions=True`.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from attnlab.equations import AnyArray
from attnlab.errors import InvalidTypeError, InvalidValueError, quoted
from attnlab.pages.modules import WORDS
from attnlab.pages.packs import embedded
from attnlab.pages.page import Page
from attnlab.pages.saved import page_with_one_script, style
from attnlab.support.checks import as_count, check_kind
from attnlab.support.language import using_language
from attnlab.support.messages import say
from attnlab.support.tables import printable
from attnlab.text.tokens import BYTES

TOLERANCE = 0.02  # the largest error of a row's sum of 1, also in half precision
MOST_NUMBERS = 20_000_000  # a larger page is slow to open, and too large for most mail

# The marks of tokenizers: a space before a word, and a token that continues a word.
SPACES = ("Ġ", "▁")
CONTINUES = "##"

# Matches characters that are written without spaces: Chinese, Japanese and their punctuation.
UNSPACED = re.compile(
    r"[\u3000-\u30ff\u3400-\u9fff\uf900-\ufaff\uff00-\uff65\U00020000-\U0003ffff]"
)


def words(
    weights: ArrayLike | Sequence[Any],
    tokens: Sequence[str],
    keys: Sequence[str] | None = None,
    *,
    next_words: Mapping[str, float] | None = None,
    effects: Mapping[tuple[int, int], Mapping[str, float]] | None = None,
    title: str = "",
    language: str | None = None,
    height: int = 720,
) -> Page:
    """Draw any model's attention over words: causal, bidirectional or cross-attention.

    Parameters
    ----------
    weights : the softmax weights (layers, heads, Tq, Tk) that each query gives to each key; or a
        sequence with an array for each layer, (heads, Tq, Tk), or (1, heads, Tq, Tk) as
        transformers returns with `output_attentions=True`, if the model was opened with
        `attn_implementation="eager"`
    tokens : the words of the Tq queries. A tokenizer's marks of spaces (Ġ, ▁) become spaces, and
        marks of continuations (##) join words
    keys : the words of the Tk keys, for cross-attention; by default `tokens`
    next_words : the probability of each of the most probable next words
    effects : by (layer, head), the probabilities of next words without this head: the page then
        offers to silence the head. Only words that `next_words` has too are compared
    title : the page's title, such as the model's name
    height : the height of the notebook's frame, in pixels

    Returns
    -------
    Page
        a notebook shows it, `.save("page.html")` writes it

    Raises
    ------
    InvalidValueError
        If a row of weights doesn't sum to 1, or a weight is negative. `attnlab.softmax` makes
        weights of scores.

    Examples
    --------
    >>> output = model(**inputs, output_attentions=True)  # any model of transformers
    >>> tokens = tokenizer.convert_ids_to_tokens(inputs.input_ids[0])
    >>> attnlab.words(output.attentions, tokens).save("page.html")
    >>> by_words = model.trace(text).by_words()  # words instead of their pieces
    >>> attnlab.words(by_words.weights, by_words.words)
    """
    check_kind(title, str, "title")
    array = _weights(weights)
    queries = _texts(tokens, "tokens", array.shape[2])
    others = None if keys is None else _texts(keys, "keys", array.shape[3])
    if others is None and array.shape[2] != array.shape[3]:
        raise InvalidValueError(
            f"the weights are {array.shape[2]} x {array.shape[3]}: give the attended words as "
            "keys=[...]"
        )
    with using_language(language):
        page = _page(array, queries, others, next_words, effects, title)
    return Page(page, "Words and their attention", as_count(height, "height", least=1))


def _weights(given: Any) -> AnyArray:
    """Check weights; return them as one array (layers, heads, Tq, Tk)."""
    is_list = isinstance(given, Sequence)
    if given is None or (is_list and (not given or any(layer is None for layer in given))):
        raise InvalidValueError(
            "the model returned no attention weights. In transformers, open it with "
            'attn_implementation="eager", and call it with output_attentions=True'
        )
    layers = [_as_array(layer) for layer in given] if is_list else []
    if len({layer.shape for layer in layers}) > 1:
        shapes = " ".join(str(layer.shape) for layer in layers[:6])
        raise InvalidValueError(f"the layers' weights differ in shape: {shapes}")
    array = np.stack(layers) if layers else _as_array(given)
    if array.ndim == 5 and array.shape[1] == 1:  # transformers' batch of one text
        array = array[:, 0]
    if array.ndim != 4 or not array.size:
        example = (
            "one head's is weights[None, None]" if array.ndim == 2 else "take one text of a batch"
        )
        raise InvalidValueError(
            f"weights must be (layers, heads, queries, keys); got shape {array.shape}: {example}"
        )
    if array.size > MOST_NUMBERS:
        raise InvalidValueError(
            f"{array.size:,} weights are too many for a page; at most {MOST_NUMBERS:,}. Give some "
            "layers, such as weights[:4], or a shorter text"
        )
    sums = array.sum(axis=-1)
    if not np.isfinite(array).all() or array.min() < 0 or np.abs(sums - 1).max() > TOLERANCE:
        raise InvalidValueError(
            "weights must be at least 0, and each query's must sum to 1. For scores, use "
            "attnlab.softmax(scores)"
        )
    return array


def _as_array(given: Any) -> AnyArray:
    # A PyTorch tensor may need gradients, or be on another device or of a type that NumPy lacks.
    if hasattr(given, "detach"):
        given = given.detach().cpu().float().numpy()
    try:
        with np.errstate(over="ignore"):  # `_weights` refuses the infinite numbers
            return np.asarray(given, dtype=np.float32)
    except (TypeError, ValueError):
        raise InvalidTypeError(f"weights must be numbers; got {quoted(given)}") from None


def _texts(tokens: Sequence[str], name: str, count: int) -> list[str]:
    """Tokens as a sentence shows them, with a space before each word but the first."""
    try:
        listed: list[Any] = [*tokens]
    except TypeError:
        listed = [None]  # refused below
    if isinstance(tokens, str) or not all(isinstance(token, str) for token in listed):
        raise InvalidTypeError(
            f"{name} must be a list of texts, one a token; got {quoted(tokens)}. For ids, use "
            "tokenizer.convert_ids_to_tokens(ids)"
        )
    if len(listed) != count:
        raise InvalidValueError(f"{len(listed)} {name} for {count} rows or columns of weights")
    marked = any(token.startswith(SPACES) for token in listed)
    spaced = marked or any(token.startswith(" ") for token in listed)
    shown = []
    for n, token in enumerate(listed):
        if token.startswith(CONTINUES) and token != CONTINUES:
            text = token.removeprefix(CONTINUES)
        elif token.startswith(SPACES):
            text = f" {_from_bytes(token[1:])}"
        else:
            text = _from_bytes(token) if marked else token
            # Words without marks, such as BERT's words, get a space; Chinese characters don't.
            text = f" {text}" if n and not spaced and not UNSPACED.match(text) else text
        if n == 0:  # the first word has no space before it, unless the token is only a space
            text = text.removeprefix(" ") or text
        shown.append(printable(text))
    return shown


def _from_bytes(symbols: str) -> str:
    """Decode GPT-2's symbols of bytes; return other texts unchanged."""
    try:
        return bytes(BYTES[symbol] for symbol in symbols).decode()
    except (KeyError, UnicodeDecodeError):
        return symbols


def _page(
    weights: AnyArray,
    queries: list[str],
    keys: list[str] | None,
    next_words: Mapping[str, float] | None,
    effects: Mapping[tuple[int, int], Mapping[str, float]] | None,
    title: str,
) -> str:
    layers, heads = weights.shape[:2]
    description = {
        "queries": queries,
        "keys": keys,
        "layers": layers,
        "heads": heads,
        "is_causal": keys is None and not np.triu(weights, 1).any(),
        "next": None if next_words is None else _probabilities(next_words),
        "effects": None if effects is None else _effects(effects, layers, heads),
    }
    body = (
        '<body><header class="masthead"><h1><span class="wordmark">attnlab</span> '
        f"{html.escape(printable(title))}</h1></header><main>"
        '<section id="stage" class="sentence-stage" '
        f'aria-label="{say("The sentence and its attention")}"></section>'
        '<p id="said" role="status"></p><p id="seen"></p><div id="softmax-row"></div>'
        '<section><h2 id="every-head-title"></h2>'
        '<div id="every-head" role="group" aria-labelledby="every-head-title"></div>'
        '</section></main><p id="done" role="status"></p>'
    )
    numbers = embedded(np.ascontiguousarray(weights, "<f4").tobytes())
    pack = f'<script type="text/plain" id="weights">{numbers}</script>'
    name, css = f"attnlab {title}".strip(), style("base.css", "words.css")
    return page_with_one_script(name, css, body, {"description": description}, pack, WORDS)


def _probabilities(given: Mapping[str, float]) -> list[dict[str, Any]]:
    """Next words with their probabilities, the most probable word first."""
    check_kind(given, Mapping, "next words", "a dict of probabilities")
    try:
        found = {str(text): float(share) for text, share in given.items()}
    except (TypeError, ValueError):
        raise InvalidTypeError(f"probabilities must be numbers; got {quoted(given)}") from None
    if not all(0 <= share <= 1 for share in found.values()):
        raise InvalidValueError("the next words' probabilities must be between 0 and 1")
    ranked = sorted(found.items(), key=lambda item: -item[1])
    return [{"text": printable(text), "probability": share} for text, share in ranked]


def _effects(
    given: Mapping[tuple[int, int], Mapping[str, float]], layers: int, heads: int
) -> dict[str, list[dict[str, Any]]]:
    check_kind(given, Mapping, "effects", "a dict")
    known = {(layer, head) for layer in range(layers) for head in range(heads)}
    for head in given:
        if head not in known:
            raise InvalidValueError(
                f"effects has {quoted(head)}; heads are (layer, head), up to "
                f"{(layers - 1, heads - 1)}"
            )
    return {f"{layer}.{head}": _probabilities(after) for (layer, head), after in given.items()}
