"""The attention sink, the first token: a head *rests* when it attends to that.

Most heads of a trained model give the first token the attention that they don't need. So the top
texts of an atlas's heads are ranked by the weights on the other tokens, compared with uniform
attention. Heatmaps and tables show all weights unchanged.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

# A query with at least this weight on the first token is said to rest.
RESTING: Final = 0.9

# The smallest excess that is drawn in a top text.
NOTABLE: Final = 0.1


def excess(weights: Any, others: Any) -> Any:
    """How far weights exceed uniform attention: 0 if all are equal, 1 for one that has all weight.

    `others`, bool or 1 and 0 of the weights' shape (..., Tk), are the visible keys except the first
    token; only they are compared, and the excess of all other keys is 0.
    """
    count = np.maximum(others.sum(axis=-1, keepdims=True), 1.0)
    uniform = (weights * others).sum(axis=-1, keepdims=True) / count
    return others * (weights - uniform) * count / np.maximum(count - 1.0, 1.0)
