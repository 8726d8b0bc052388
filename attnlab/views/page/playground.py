"""The page that holds a model and runs it: everything that the explorer does, in one file.

The model's numbers lie in it as float32, its vocabulary as its files have it. A worker of the
page's own scripts runs it by the equations, see `model.js`; `local.js` is what the page asks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from attnlab.errors import InvalidValueError
from attnlab.views.page.page import description_of, local_page, notes_on
from attnlab.views.page.prediction import TOKENS
from attnlab.views.shown import Result

# A page of more bytes of parameters than these is more than browsers open.
MOST_BYTES = 300_000_000


def playground(
    trace: Result, tokenizer: Mapping[str, Any], rules: Mapping[str, Any], language: str
) -> str:
    """The page's HTML.

    Parameters
    ----------
    trace : what it opens with
    tokenizer : the model's, as `Tokenizer.as_data` tells it
    rules : by which the page opens other models, see `opening.js`
    """
    parameters = trace.parameters
    shapes = [(path, parameters[path].shape) for path in parameters]
    size = 4 * sum(math.prod(shape) for _, shape in shapes)
    if size > MOST_BYTES:
        raise InvalidValueError(
            f"the model has {size:,} bytes of parameters, and a page holds at most "
            f"{MOST_BYTES:,}. Use attnlab explore for larger models"
        )
    with np.errstate(over="ignore"):
        numbers = np.concatenate([np.ravel(parameters[path]) for path in parameters], dtype="<f4")
    if not np.isfinite(numbers).all():
        raise InvalidValueError(
            "the parameters hold NaN or numbers too large for float32, which a page uses"
        )
    described = description_of(trace, language)
    names: tuple[str, ...] = ("vocab_size", "n_positions", "n_embd", "n_layer", "n_head")
    model = {
        "config": {name: getattr(trace.config, name) for name in names},
        "graph": described["graph"],
        "given": described["given"],
        "tokenizer": tokenizer,
        "shapes": shapes,
        "rules": rules,
        "most_tokens": TOKENS,
    }
    described["prediction"]["tokens"] = []  # the page has the vocabulary
    text = b"".join(trace.tokens.bytes).decode("utf-8", errors="replace")
    known = {"ids": trace.tokens.ids.tolist(), "text": text, "ablated": []}
    known["notes"] = notes_on(trace.tokens, language)
    return local_page(trace, {**known, **described}, model, numbers.tobytes(), language)
