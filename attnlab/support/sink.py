"""Where attention rests: on the first token, an attention sink.

Most heads of a trained model give the first token the attention that they don't need. So pictures
and sentences state that share, and rank the weights on the other tokens, compared with uniform
attention. Heatmaps and tables show all weights as they are.

`excess` is also translated to JavaScript, by `page.translate`.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from attnlab.equations import AnyArray, Mask

# The weight on the first token from which on a query is said to rest.
RESTING: Final = 0.9

# The smallest excess that is drawn and named, and the smallest resting share that is stated.
NOTABLE: Final = 0.1

# Attention without a larger excess is uniform; rounding of weights causes less.
UNIFORM: Final = 1e-6


def excess(weights: Any, others: Any) -> Any:
    """How far weights exceed uniform attention on the same tokens: 0 if equal, 1 if one has all.

    others : bool, or 1 and 0, of the weights' shape (..., Tk), the visible keys except the first
        token; the excess on other keys is 0
    """
    count = np.maximum(others.sum(axis=-1, keepdims=True), 1.0)
    uniform = (weights * others).sum(axis=-1, keepdims=True) / count
    return others * (weights - uniform) * count / np.maximum(count - 1.0, 1.0)


class Attended:
    """Where one query's attention goes, for sentences and pictures.

    Attributes
    ----------
    on_first : the share on the first token
    excess : (Tk,), see `excess`
    others : (Tk,), the visible keys without the first token, bool
    key : the one of them with the largest weight; None if there are none
    kind : "alone" (the first token, which sees only itself), "rests", "looks" (at `key`), "spreads"
        or "uniform"
    """

    def __init__(self, weights: AnyArray, mask: Mask, is_first: bool = False) -> None:
        self.others = others = mask.copy()
        others[0] = False
        self.on_first = 0.0 if is_first else float(weights[0])
        self.excess: AnyArray = excess(weights, others)
        visible = np.flatnonzero(others)
        self.key: int | None = int(visible[weights[visible].argmax()]) if visible.size else None
        largest = float(self.excess.max())
        if is_first:
            self.kind = "alone"
        elif self.on_first >= RESTING or self.key is None:
            self.kind = "rests"
        elif largest >= NOTABLE or visible.size == 1:
            self.kind = "looks"
        else:
            self.kind = "uniform" if largest < UNIFORM else "spreads"
