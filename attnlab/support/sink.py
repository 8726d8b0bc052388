"""Attention rests on the first token, which is then called an attention sink.

Most heads of a trained model give the first token the attention that they don't need. So the top
texts of an atlas's heads are ranked by the weights on the other tokens, compared with uniform
attention. Heatmaps and tables show all weights unchanged.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

# A query is said to rest if its weight on the first token is at least this.
RESTING: Final = 0.9

# The smallest excess that is drawn in a top text.
NOTABLE: Final = 0.1


def excess(weights: Any, others: Any) -> Any:
    """How far weights exceed uniform attention: 0 if all are equal, 1 if one token has all weight.

    others : bool, or 1 and 0, with the weights' shape (..., Tk): the visible keys except the first
        token. On all other keys, the excess is 0.
    """
    count = np.maximum(others.sum(axis=-1, keepdims=True), 1.0)
    uniform = (weights * others).sum(axis=-1, keepdims=True) / count
    return others * (weights - uniform) * count / np.maximum(count - 1.0, 1.0)
