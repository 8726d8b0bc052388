"""Scores as sums over pairs of parts, by automatic differentiation in PyTorch.

    python tests/pytorch_why.py DIRECTORY

needs torch. A GPT-2 in float64 in which LayerNorm's deviations, weights and MLPs' outputs are held
as they are, so that each part can have a factor, and what it adds is a derivative.
"""

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.autograd.functional import jacobian
from torch.nn.functional import gelu, relu, silu

import attnlab

directory = Path(sys.argv[1])
config = json.loads((directory / "config.json").read_text())
P = {
    name.removeprefix("transformer."): tensor.double()
    for name, tensor in load_file(directory / "model.safetensors").items()
}
L, H, D = config["n_layer"], config["n_head"], config["n_embd"]
Dh, epsilon = D // H, config["layer_norm_epsilon"]
activation: Callable[[Tensor], Tensor] = {
    "gelu_new": partial(gelu, approximate="tanh"),
    "gelu_fast": partial(gelu, approximate="tanh"),
    "gelu": gelu,
    "relu": relu,
    "silu": silu,
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
}[config["activation_function"]]

close = partial(np.testing.assert_allclose, rtol=0, atol=1e-10)


class Text:
    """The forward pass of some ids; the head `silent` writes nothing."""

    def __init__(self, ids: list[int], silent: tuple[int, int] | None = None) -> None:
        self.T = T = len(ids)
        self.visible = torch.ones(T, T, dtype=torch.bool).tril()
        self.token, self.position = P["wte.weight"][ids], P["wpe.weight"][:T]
        self.streams, self.deviations = [self.token + self.position], list[Tensor]()
        self.weights, self.heads, self.mlps, self.activated = ([] for _ in range(4))
        for n in range(L):
            stream = self.streams[-1]
            self.deviations.append((stream.var(-1, correction=0, keepdim=True) + epsilon).sqrt())
            outputs, weights = [], []
            for h in range(H):
                q, k, v = (self.project(n, h, i, self.whole(n, stream)) for i in range(3))
                weights.append(
                    self.scores(n, q, k).masked_fill(~self.visible, -torch.inf).softmax(-1)
                )
                written = weights[-1] @ v @ self.W_O(n, h)
                outputs.append(0 * written if (n, h) == silent else written)
            self.weights.append(torch.stack(weights))
            self.heads.append(torch.stack(outputs))
            mid = stream + self.heads[-1].sum(0) + P[f"h.{n}.attn.c_proj.bias"]
            x = torch.nn.functional.layer_norm(
                mid, (D,), P[f"h.{n}.ln_2.weight"], P[f"h.{n}.ln_2.bias"], epsilon
            )
            inner = x @ P[f"h.{n}.mlp.c_fc.weight"] + P[f"h.{n}.mlp.c_fc.bias"]
            self.activated.append(activation(inner))
            self.mlps.append(
                self.activated[-1] @ P[f"h.{n}.mlp.c_proj.weight"] + P[f"h.{n}.mlp.c_proj.bias"]
            )
            self.streams.append(mid + self.mlps[-1])

    @staticmethod
    def W_O(n: int, h: int) -> Tensor:
        return P[f"h.{n}.attn.c_proj.weight"][h * Dh : (h + 1) * Dh]

    @staticmethod
    def scores(n: int, q: Tensor, k: Tensor) -> Tensor:
        scale = Dh**0.5 if config["scale_attn_weights"] else 1
        return (
            q
            @ (k.mT if k.ndim > 1 else k)
            / scale
            / (n + 1 if config["scale_attn_by_inverse_layer_idx"] else 1)
        )

    def normed(self, n: int, part: Tensor) -> Tensor:
        """LayerNorm of a part, without its bias, with the stream's deviation."""
        centred = part - part.mean(-1, keepdim=True)
        return centred / self.deviations[n] * P[f"h.{n}.ln_1.weight"]

    def whole(self, n: int, stream: Tensor) -> Tensor:
        return self.normed(n, stream) + P[f"h.{n}.ln_1.bias"]

    @staticmethod
    def project(n: int, h: int, which: int, x: Tensor, with_bias: float | Tensor = 1) -> Tensor:
        """Q, K or V of a head."""
        columns = slice(which * D + h * Dh, which * D + (h + 1) * Dh)
        bias = P[f"h.{n}.attn.c_attn.bias"][columns]
        return x @ P[f"h.{n}.attn.c_attn.weight"][:, columns] + with_bias * bias

    def parts(self, n: int) -> Tensor:
        """What is in the stream at a block, (parts, T, D), in the library's order."""
        parts = [self.token, self.position]
        for earlier in range(n):
            constant = P[f"h.{earlier}.attn.c_proj.bias"].expand(self.T, D)
            parts += [*self.heads[earlier], constant, self.mlps[earlier]]
        return torch.stack(parts)

    def read(self, n: int, h: int, which: int, factors: Tensor) -> Tensor:
        """Q, K or V if each part is multiplied by its factor; the last two are of biases."""
        stream = (factors[:-2, None, None] * self.parts(n)).sum(0)
        x = self.normed(n, stream) + factors[-2] * P[f"h.{n}.ln_1.bias"]
        return self.project(n, h, which, x, factors[-1])

    def split(self, n: int, h: int, which: int) -> Tensor:
        """What each part adds to Q, K or V, (T, Dh, parts), by derivatives."""
        ones = torch.ones(len(self.parts(n)) + 2, dtype=torch.float64)
        return jacobian(partial(self.read, n, h, which), ones)

    def against(self, query: int, key: int, other: int | None) -> Tensor:
        """The factor of each key's score."""
        factors = torch.zeros(self.T, dtype=torch.float64)
        if other is None:
            factors[: query + 1] -= 1 / (query + 1)
        else:
            factors[other] -= 1
        factors[key] += 1
        return factors

    def key_of_opened(
        self, n: int, h: int, keys: Tensor, source: tuple[int, int], values: Tensor
    ) -> Tensor:
        """Σ keys[t] K[t], of what one earlier head writes if its values are `values`."""
        layer, head = source
        part = self.weights[layer][head] @ values @ self.W_O(layer, head)
        return keys @ self.project(n, h, 1, self.normed(n, part), 0)


def check_pairs(text: Text, trace: attnlab.Trace) -> None:
    """All heads: every pair of parts."""
    for n, h in np.ndindex(L, H):
        Q, K = (text.split(n, h, which) for which in (0, 1))
        expected = text.scores(n, Q.permute(2, 0, 1)[:, None], K.permute(2, 0, 1)[None])
        query = text.T - 1 - h
        for key, other in ((1, 0), (query, None), (0, 2)):
            why = attnlab.why(trace.head(n, h), query, key, against=other)
            close(why.pairs, expected[:, :, query] @ text.against(query, key, other))
            plain = attnlab.why(trace.head(n, h), query, key, plain=True)
            close(plain.pairs, expected[:, :, query, key])


def check_opened(text: Text, trace: attnlab.Trace, other: int | None) -> None:
    """A head opened into tokens, one of these into parts, again a head, and an MLP's neurons."""
    n, h, query, key = L - 1, H - 1, text.T - 1, text.T - 2
    why = attnlab.why(trace.head(n, h), query, key, against=other)
    keys, m = text.against(query, key, other), n - 1
    q = text.project(n, h, 0, text.whole(n, text.streams[n]))[query]

    def added(k: Tensor) -> Tensor:
        """What each of some vectors adds to the score."""
        return text.scores(n, q, k.mT)

    # The tokens that head 0 of the block before attends to.
    values = text.project(m, 0, 2, text.whole(m, text.streams[m]))
    ones = torch.ones(text.T, dtype=torch.float64)

    def by_token(a: Tensor) -> Tensor:
        return text.key_of_opened(n, h, keys, (m, 0), a[:, None] * values)

    opened = why.open(f"blocks.{m}.attention.heads.0.output", "key")
    names = [term.name for term in opened.parts["key"]]
    start = names.index(f"blocks.{m}.attention.heads.0.V[0]")
    sums = opened.pairs.sum(0)
    width = query + 1 if other is None else key + 1
    close(sums[start : start + width], added(jacobian(by_token, ones))[:width])
    close(sums.sum(), why.total)

    # One of these tokens, by the parts of the stream at it.
    def by_part(factors: Tensor) -> Tensor:
        mask = torch.zeros(text.T, 1, dtype=torch.float64)
        mask[1] = 1
        return text.key_of_opened(n, h, keys, (m, 0), mask * text.read(m, 0, 2, factors))

    token = f"blocks.{m}.attention.heads.0.V[1]"
    opened = opened.open(token)
    names = [term.name for term in opened.parts["key"]]
    start = names.index(f"{token} < token_embedding")
    factors = torch.ones(len(text.parts(m)) + 2, dtype=torch.float64)
    expected = added(jacobian(by_part, factors))
    close(opened.pairs.sum(0)[start : start + len(factors)], expected)
    close(opened.pairs.sum(), why.total)

    # Again a head, down to the first layer.
    if m:
        first = text.project(0, 1, 2, text.whole(0, text.streams[0]))

        def by_earlier_token(a: Tensor) -> Tensor:
            part = text.weights[0][1] @ (a[:, None] * first) @ text.W_O(0, 1)
            inner = text.project(m, 0, 2, text.normed(m, part), 0)
            mask = torch.zeros(text.T, 1, dtype=torch.float64)
            mask[1] = 1
            return text.key_of_opened(n, h, keys, (m, 0), mask * inner)

        inner = opened.open(f"{token} < blocks.0.attention.heads.1.output")
        names = [term.name for term in inner.parts["key"]]
        start = names.index(f"{token} < blocks.0.attention.heads.1.V[0]")
        expected = added(jacobian(by_earlier_token, ones))[:2]
        close(inner.pairs.sum(0)[start : start + 2], expected)
        leaf = inner.open(f"{token} < blocks.0.attention.heads.1.V[0]")
        close(leaf.pairs.sum(), why.total)

    # The neurons of the MLP before, on both sides.
    def of_neurons(a: Tensor) -> Tensor:
        part = (a * text.activated[m]) @ P[f"h.{m}.mlp.c_proj.weight"]
        return keys @ text.project(n, h, 1, text.normed(n, part), 0)

    width = text.activated[m].shape[-1]
    neurons = added(jacobian(of_neurons, torch.ones(width, dtype=torch.float64)))
    opened = why.open(f"blocks.{m}.mlp.output", "key")
    sums = dict(zip((term.name for term in opened.parts["key"]), opened.pairs.sum(0), strict=True))
    largest = neurons.abs().argsort(descending=True)[:10].tolist()
    for neuron in largest:
        close(sums.pop(f"blocks.{m}.mlp.W_2[{neuron}]"), neurons[neuron])
    rest = [n for n in range(width) if n not in largest]
    close(sums[f"blocks.{m}.mlp.W_2[others]"], neurons[rest].sum())
    assert not [name for name in sums if "W_2[" in name and "others" not in name]


model = attnlab.GPT2.from_pretrained(directory, dtype="float64")
ids = [5, 7, 100, 3, 41, 8, 2]
text, texts = Text(ids), [ids, [9, 9, 4, 77, 130, 8, 1], [3, 1, 4]]
traces: Any = model.trace(texts)
trace = model.trace(ids)
check_pairs(text, trace)
for other in (1, None):
    check_opened(text, trace, other)

# One of several texts side by side, and an edited text.
check_pairs(text, traces[0])
check_pairs(Text([9, 9, 4, 77, 130, 8, 1]), traces[1])
silent = trace.edited({"blocks.0.attention.heads.1.context": 0})
check_pairs(Text(ids, silent=(0, 1)), silent)

# A step of generation: keys from the cache are one part, the others are as in the whole text.
generation = model.generate(ids, 2, temperature=0, trace=True)
step, text = generation.steps[1].trace, Text(generation.tokens.ids[: len(ids) + 1].tolist())
for n, h in np.ndindex(L, H):
    Q, K = (text.split(n, h, which) for which in (0, 1))
    cached = text.project(n, h, 1, text.whole(n, text.streams[n]))[:-1]
    results: list[tuple[Any, Tensor]] = [
        (attnlab.why(step.head(n, h), 0, 2), text.against(text.T - 1, 2, None)),
        (
            attnlab.why(step.head(n, h), 0, text.T - 1, against=1),
            text.against(text.T - 1, text.T - 1, 1),
        ),
    ]
    for found, keys in results:
        of_keys = torch.cat([keys[-1] * K[-1], (keys[:-1] @ cached)[:, None]], dim=1)
        close(found.pairs, text.scores(n, Q[-1].T, of_keys.T))
        close(found.pairs.sum(), found.total)
