"""A product of two thin matrices, such as W_V W_O, kept in factored form."""

from __future__ import annotations

from typing import Any

import numpy as np

from attnlab.equations import Array, columns_of_head, rows_of_head, transpose
from attnlab.errors import InvalidValueError
from attnlab.forward.parameters import Parameters
from attnlab.support.checks import as_floats, as_index
from attnlab.support.console import StdoutSafe
from attnlab.support.messages import Message, say

# The number of singular values that `repr` shows.
VALUES_SHOWN = 8


class Product(StdoutSafe):
    """left (n, r) @ right (r, m), an (n, m) matrix of rank at most r, kept as two factors.

    `@` returns a product, or a vector if the other factor is a vector. Norms and decompositions are
    computed from r x r matrices. A direction with a large singular value may not occur in any
    token.

    Source: Elhage et al., "A Mathematical Framework for Transformer Circuits" (2021).
    """

    __array_ufunc__ = None  # so that `array @ product` calls __rmatmul__

    def __init__(self, left: Array, right: Array, name: str = "") -> None:
        self.left, self.right, self.name = left, right, name

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.left), self.right.shape[1]

    @property
    def T(self) -> Product:
        # (left right)ᵀ = rightᵀ leftᵀ
        return Product(transpose(self.right), transpose(self.left), f"{say(self.name)}ᵀ")

    def full(self) -> Array:
        """The full matrix, (n, m)."""
        return self.left @ self.right  # for D = 768, 590,000 numbers; the factors have 98,000

    def __matmul__(self, other: Any) -> Any:
        if isinstance(other, Product):
            # (n, r) (r, m) (m, s) (s, k): the middle product has r x s numbers, not n x m.
            middle = multiply(self.right, other.left)
            # Keep the smaller inner dimension.
            if len(self.right) <= len(other.right):
                return Product(self.left, middle @ other.right)
            return Product(self.left @ middle, other.right)
        array = as_floats(other, "the factor")
        right = multiply(self.right, array)  # (r, m) (m, k) -> (r, k), the smaller product first
        # A product with a vector is a vector, for which factors would save nothing.
        return self.left @ right if array.ndim == 1 else Product(self.left, right)  # (n,), (n, k)

    def __rmatmul__(self, other: Any) -> Any:
        array = as_floats(other, "the factor")
        left = multiply(array, self.left)  # (k, n) (n, r) -> (k, r)
        return left @ self.right if array.ndim == 1 else Product(left, self.right)

    def svd(self) -> tuple[Array, Array, Array]:
        """U (n, r), singular values (r,) in descending order, and Vᵀ (r, m).

        With left = Q R and rightᵀ = Q' R', only R R'ᵀ (r, r) is decomposed. Columns of U and rows
        of Vᵀ are unique up to a common sign.
        """
        # n and m are D, some hundreds or thousands; r is a head's width, such as 64.
        Q, R = np.linalg.qr(self.left)
        Q_right, R_right = np.linalg.qr(transpose(self.right))
        U, values, Vt = np.linalg.svd(R @ transpose(R_right), full_matrices=False)
        # Q and Q' have orthonormal columns, so these products are singular vectors of left @ right.
        return Q @ U, values, Vt @ transpose(Q_right)  # (n, r), (r,), (r, m)

    @property
    def singular_values(self) -> Array:
        """The r largest singular values (r,), in descending order; all others are 0."""
        return self.svd()[1]

    @property
    def norm(self) -> float:
        """The Frobenius norm, the root of the sum of the squared singular values."""
        return float(np.linalg.norm(self.singular_values))  # U and Vᵀ don't change norms

    @property
    def title(self) -> str:
        n, m = self.shape
        r = len(self.right)
        return f"{say(self.name) or 'Product'}, {n} x {m} = ({n} x {r}) ({r} x {m})"

    def __repr__(self) -> str:
        values = self.singular_values
        smallest = f", … {values[-1]:.3g}" if len(values) > VALUES_SHOWN else ""
        largest = ", ".join(f"{x:.3g}" for x in values[:VALUES_SHOWN])
        shown = say("singular values {values}", values=f"{largest}{smallest}")
        return f"{self.title}\n{shown}"


class Circuits:
    """A base class for results that have a head's parameters: it adds the products QK and OV."""

    title: str
    W_Q: Array
    W_K: Array
    W_V: Array
    W_O: Array

    @property
    def QK(self) -> Product:
        """W_Q W_Kᵀ, (D, D'): which pairs of directions give a high score.

        Both sides are in the basis of X, LayerNorm's output with gain and bias. b_Q and b_K are
        left out; where they are 0, raw_scores = X QK Xᵀ.
        """
        name = Message("{title}: {name}", title=self.title, name="QK = W_Q W_Kᵀ")
        # Q Kᵀ = (X W_Q) (X W_K)ᵀ = X (W_Q W_Kᵀ) Xᵀ, so scores depend on the product only.
        return Product(self.W_Q, transpose(self.W_K), name)  # (D, Dk), (Dk, D')

    @property
    def OV(self) -> Product:
        """W_V W_O, (D', D): maps the attended token's vector to what the head writes.

        Its input is in the basis of X, LayerNorm's output; its output is added to the residual
        stream. b_V is left out.
        """
        name = Message("{title}: {name}", title=self.title, name="OV = W_V W_O")
        # weights (X W_V) W_O = weights X (W_V W_O), so the head writes what W_V W_O makes of X.
        return Product(self.W_V, self.W_O, name)  # (D', Dv), (Dv, D)


class HeadWeights(Circuits, StdoutSafe):
    """A head's parameters, without a text, as `GPT2.head` returns them.

    Attributes
    ----------
    W_Q, W_K, W_V : (D, Dh), the head's columns of the layer's parameters
    b_Q, b_K, b_V : (Dh,)
    W_O : (Dh, D), the head's rows of the layer's W_O
    QK, OV : the low-rank products W_Q W_Kᵀ and W_V W_O
    """

    W_Q: Array
    W_K: Array
    W_V: Array
    b_Q: Array
    b_K: Array
    b_V: Array
    W_O: Array

    def __init__(self, parameters: Parameters, layer: int, head: int) -> None:
        config = parameters.config
        layer = as_index(layer, "layer", config.n_layer)
        head = as_index(head, "head", config.n_head)
        self.title = Message(
            "{title}, head {head}",
            title=Message("Layer {layer}, attention", layer=layer),
            head=head,
        )
        for name in ("W_Q", "b_Q", "W_K", "b_K", "W_V", "b_V", "W_O"):
            select = rows_of_head if name == "W_O" else columns_of_head
            # W_O maps from heads, so a head has rows of W_O; the other parameters map to heads.
            layer_array = parameters[f"blocks.{layer}.attention.{name}"]
            setattr(self, name, select(layer_array, head, config.n_head))

    def __repr__(self) -> str:
        names = (name for name in vars(self) if name != "title")
        return f"{say(self.title)}: " + ", ".join(f"{x} {getattr(self, x).shape}" for x in names)


def multiply(left: Array, right: Array) -> Array:
    """left @ right; raise if their shapes don't match."""
    # Arrays with more axes would broadcast, but a product has no batch axes.
    if left.ndim not in (1, 2) or right.ndim not in (1, 2) or left.shape[-1] != len(right):
        raise InvalidValueError(f"shapes {left.shape} and {right.shape} can't be multiplied")
    return left @ right
