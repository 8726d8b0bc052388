"""The page that runs a model: it traces, compares and continues typed texts, and ablates heads.

The page includes the parameters in float32, or `explore.py` serves them. A web worker runs the
model with the page's own scripts, see `model.js`; `tab.js` sends the page's requests to the worker.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike

from attnlab.checkpoints.checkpoint import averages_as_data
from attnlab.equations import AnyArray
from attnlab.errors import InvalidTypeError, InvalidValueError, quoted
from attnlab.forward.parameters import stored_shapes
from attnlab.model.gpt2 import GPT2, is_list_of_texts
from attnlab.pages.modules import PLAYGROUND
from attnlab.pages.packs import embedded
from attnlab.pages.saved import assembled, description_of, examples_of, first_text
from attnlab.text.tokens import Tokens

MOST_BYTES = 300_000_000  # of parameters: browsers can't open larger pages


def playground_page(model: GPT2, text_or_ids: str | ArrayLike | Tokens | None) -> str:
    """The page as HTML, which opens with a text; see `attnlab.playground`."""
    size = size_of(model)
    if size > MOST_BYTES:
        raise InvalidValueError(
            f"the model has {size:,} bytes of parameters, and a page can include at most "
            f"{MOST_BYTES:,}. Use attnlab explore for larger models"
        )
    numbers = np.concatenate([*numbers_of(model)])
    if not np.isfinite(numbers).all():
        raise InvalidValueError(
            "the parameters contain NaN or numbers too large for float32, which the page uses"
        )
    pack = f'<script type="text/plain" id="parameters">{embedded(numbers.tobytes())}</script>'
    return page_with_model(model, text_or_ids, pack)


def numbers_of(model: GPT2) -> Iterator[AnyArray]:
    """A model's parameters in float32, one stored array after another."""
    for path in stored_shapes(model.config):
        with np.errstate(over="ignore"):  # the page reports numbers that float32 can't hold
            yield model.parameters.stored(path).astype("<f4", copy=False).ravel()


def size_of(model: GPT2) -> int:
    """The bytes of a model's parameters in float32."""
    return 4 * sum(map(math.prod, stored_shapes(model.config).values()))


def page_with_model(
    model: GPT2, text_or_ids: str | ArrayLike | Tokens | None, pack: str = ""
) -> str:
    """The page of a model. `pack` is an element with the parameters; "" if they are served."""
    if is_list_of_texts(text_or_ids):
        raise InvalidTypeError(f"the page opens with one text; got {quoted(text_or_ids)}")
    tokenizer = model.tokenizer.as_data()
    trace = model.trace(first_text(model) if text_or_ids is None else text_or_ids)
    description = description_of(trace, has_model=True)
    fields: tuple[str, ...] = ("vocab_size", "n_positions", "n_embd", "n_layer", "n_head")
    model_data = {
        "config": {name: getattr(trace.config, name) for name in fields},
        "graph": description["graph"],
        "hyperparameters": description["hyperparameters"],
        "tokenizer": tokenizer,
        "shapes": [*stored_shapes(model.config).items()],
        "averages": averages_as_data(model.averages),
        "size": size_of(model),
        "isServed": not pack,
    }
    text = model.tokenizer.text_of(trace.tokens)
    first = {"ids": trace.tokens.ids.tolist(), "text": text, "changes": [], **description}
    return assembled(trace, [first], PLAYGROUND, pack, examples_of(model), model_data)
