"""A checkpoint of GPT-2 small's shape that yields the figures of the published walkthrough.

This is NOT GPT-2: its weights are random, and its predictions are noise. But layer 0, head 0 is
solved for, so that the walkthrough's prompt gives every published figure (the similarity matrix
apart). A test without the real weights can so run the whole path on it, files to tables.

The figures are rounded, so those that follow from others contradict them by fractions of the last
printed digit. Such figures are fitted together, each to within 0.9 of the half unit that rounding
explains; the last tenth is left to float32. All other numbers are drawn at random, then corrected
where an equation must hold.

    python tests/walkthrough_checkpoint.py DIRECTORY VOCABULARY

VOCABULARY is a directory with GPT-2's vocab.json and merges.txt. Shapes below are in T = 12 tokens,
D = 768 and Dh = 64; a trailing 3 stands for the three columns that are published.
"""

import json
import math
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from attnlab import GPT2Config
from attnlab.checkpoints.checkpoint import tensor_name
from attnlab.equations import layer_norm, softmax
from attnlab.forward.parameters import parameter_count, stored_shapes

Array = NDArray[np.floating[Any]]
Tensors = dict[str, NDArray[np.float32]]

FIGURES = Path(__file__).parent.parent / "attnlab" / "checking" / "figures" / "walkthrough.json"
SEED = 768
MARGIN = 0.9

CONFIG = GPT2Config(vocab_size=50257, n_positions=1024, n_embd=768, n_layer=12, n_head=12)
D, DH, EPSILON = CONFIG.n_embd, CONFIG.d_head, CONFIG.layer_norm_epsilon


class Figures:
    """The published tables, and deviations of arrays from them."""

    def __init__(self, path: Path) -> None:
        raw = json.loads(path.read_text(encoding="utf-8"))
        self.ids: list[int] = raw["token_ids"]
        self.W_rows: list[int] = raw["W_rows_published"]
        self.token_rows: list[int] = raw["QKV_rows_published"]
        self.T = len(self.ids)
        decimals: dict[str, int] = raw["decimals"]
        self.tables = {name: np.array(raw[name], dtype=np.float64) for name in decimals}
        self.half_units = {name: 0.5 * 10.0 ** -decimals[name] for name in decimals}

    def __getitem__(self, name: str) -> Array:
        return self.tables[name]

    def deviations(self, **steps: Array) -> Array:
        """(made - published) / half a unit of the last digit, flat; in [-1, 1] where they agree."""
        each = [(steps[name] - self.tables[name]) / self.half_units[name] for name in steps]
        return np.concatenate([table.ravel() for table in each])

    def rows_of_tokens(self, name: str, other_rows: Array) -> Array:
        """(T, 3): the published rows of Q, K or V, with `other_rows` between them."""
        rows = np.empty((self.T, 3))
        rows[self.token_rows] = self[name]
        rows[np.delete(np.arange(self.T), self.token_rows)] = other_rows
        return rows


# Fitting rounded figures to each other.


def jacobian(function: Callable[[Array], Array], x: Array) -> Array:
    """J[i, j] = d function_i / d x_j, by central differences."""
    h = 1e-6
    steps = h * np.eye(x.size)
    columns = [(function(x + step) - function(x - step)) / (2 * h) for step in steps]
    return np.stack(columns, axis=1)


def fit(deviations: Callable[[Array], Array], start: Array) -> Array:
    """An x near `start` with every |deviations(x)| <= MARGIN.

    Gauss-Newton: the step minimises |w (r + J step)|, r the deviations. The first rounds are least
    squares, w = 1, which tolerates a few large deviations; then w = (1 + |r|)^power, with a power
    that grows, presses on the largest. Directions that change no figure stay where they start.
    """
    x = start
    for power in [0] * 6 + list(range(1, 50)):
        r = deviations(x)
        if np.abs(r).max() <= MARGIN:
            return x
        w = (1 + np.minimum(np.abs(r), 1)) ** power
        step = np.linalg.lstsq(w[:, None] * jacobian(deviations, x), -w * r, rcond=1e-10)[0]
        x = x + step / (1 + power)  # Newton's step length for so steep a penalty
    raise ArithmeticError("the figures cannot be fitted to each other")


class Embedding(NamedTuple):
    """The unknowns of X's published columns: X = gain (wte + wpe - mean) / std + bias."""

    wte: Array  # (T, 3)
    wpe: Array  # (T, 3)
    mean: Array  # (T, 1), over all D columns
    std: Array  # (T, 1), with LayerNorm's epsilon
    gain: Array  # (3,)
    bias: Array  # (3,)

    @property
    def X(self) -> Array:
        X: Array = self.gain * (self.wte + self.wpe - self.mean) / self.std + self.bias
        return X


def fit_embedding(figures: Figures) -> Embedding:
    """Fit wte, wpe, their sum and X, all (T, 3), by the rows' mean and std, the columns' affine."""
    T = figures.T

    def unpack(x: Array) -> Embedding:
        wte, wpe, mean, std, gain, bias = np.split(x, np.cumsum([3 * T, 3 * T, T, T, 3]))
        return Embedding(
            wte.reshape(T, 3), wpe.reshape(T, 3), mean[:, None], std[:, None], gain, bias
        )

    def deviations(x: Array) -> Array:
        e = unpack(x)
        return figures.deviations(wte=e.wte, wpe=e.wpe, embedding=e.wte + e.wpe, X=e.X)

    # X fixes only std / gain and (up to a shift) mean, so the scale stays near this typical std.
    typical = [np.zeros(T), np.full(T, 0.14), np.full(3, 0.14), np.zeros(3)]
    start = [figures["wte"].ravel(), figures["wpe"].ravel(), *typical]
    return unpack(fit(deviations, np.concatenate(start)))


def fit_attention(figures: Figures) -> tuple[Array, Array]:
    """Fit scores (T, T), V (T, 3), weights = softmax(scores) and context = weights V."""
    T = figures.T
    visible = np.tri(T, dtype=bool)

    def unpack(x: Array) -> tuple[Array, Array]:
        scores, V = np.split(x, [T * T])
        return scores.reshape(T, T), V.reshape(T, 3)

    def deviations(x: Array) -> Array:
        scores, V = unpack(x)
        weights = softmax(np.where(visible, scores, -np.inf))
        result = {"V": V[figures.token_rows], "weights": weights, "context": weights @ V}
        # Penalize V itself too, so that it is small where the figures don't determine it.
        return np.concatenate([figures.deviations(scores=scores, **result), V.ravel()])

    V = figures.rows_of_tokens("V", np.zeros(3))
    return unpack(fit(deviations, np.concatenate([figures["scores"].ravel(), V.ravel()])))


# Completing the unpublished numbers.


def complete_rows(left: Array, mean: Array, variance: Array, rng: np.random.Generator) -> Array:
    """The columns after `left` (T, 3) that give rows of D this mean and (biased) variance, (T, 1).

    n m = D mean - sum(left),  n (v + m^2) = D (variance + mean^2) - sum(left^2),  n = D - 3
    for the mean m and variance v of the n columns returned: m + sqrt(v) times a standardised draw.
    """
    n = D - left.shape[1]
    m = (D * mean - left.sum(axis=1, keepdims=True)) / n
    v = (D * (variance + mean**2) - (left**2).sum(axis=1, keepdims=True)) / n - m**2
    z = rng.standard_normal((len(left), n))
    right: Array = m + np.sqrt(v) * (z - z.mean(1, keepdims=True)) / z.std(1, keepdims=True)
    return right


def complete_tokens(figures: Figures, name: str, rng: np.random.Generator) -> Array:
    """(T, 3): Q's or K's published rows, the others drawn with the same mean and spread."""
    published = figures[name]
    drawn = rng.standard_normal((figures.T - len(published), 3))
    return figures.rows_of_tokens(name, published.mean(axis=0) + published.std(axis=0) * drawn)


def complete_product(
    Q_left: Array, K_left: Array, scores: Array, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Q, K (T, Dh) that begin with Q_left, K_left (T, 3) and have Q K^T = sqrt(Dh) scores.

    The other columns make up what is missing: sqrt(Dh) scores - Q_left K_left^T = U S V^T, shared
    out as (U sqrt(S) R) (V sqrt(S) R)^T, where R's T orthonormal rows spread it over all columns.
    """
    T, published = Q_left.shape
    U, S, Vt = np.linalg.svd(np.sqrt(DH) * scores - Q_left @ K_left.T)
    R = np.linalg.qr(rng.standard_normal((DH - published, T)))[0].T  # (T, Dh - 3)
    Q = np.hstack([Q_left, (U * np.sqrt(S)) @ R])
    K = np.hstack([K_left, (Vt.T * np.sqrt(S)) @ R])
    return Q, K


def solve_projection(
    X: Array, Y: Array, published: Array, rows: list[int], rng: np.random.Generator
) -> Array:
    """W (D, Dh) with X W = Y, the published figures in `rows` and the first three columns.

    A random W with the published figures' spread, plus the smallest correction of the other rows:
    X_free dW = Y - X W. With T equations for D - 6 unknowns, it changes each of them but little.
    """
    W: Array = published.std() * rng.standard_normal((D, DH))
    W[rows, : published.shape[1]] = published
    free = np.delete(np.arange(D), rows)
    W[free] += np.linalg.lstsq(X[:, free], Y - X @ W, rcond=None)[0]
    return W


# The checkpoint.


def random_tensors(rng: np.random.Generator) -> Tensors:
    """Every parameter at random: LayerNorm gains near 1, all else near 0.

    Repeats of a prime number of draws: no two rows or matrices are equal, and it takes no time.
    """
    drawn = np.resize(rng.standard_normal(5_000_011, dtype=np.float32), parameter_count(CONFIG))
    tensors: Tensors = {}
    for path, shape in stored_shapes(CONFIG).items():
        name = tensor_name(path)  # as openai-community/gpt2 has it
        tensor, drawn = drawn[: math.prod(shape)].reshape(shape), drawn[math.prod(shape) :]
        # All tokens have GPT-2's deviation; with a smaller one, they would have small logits.
        tensor *= 0.14 if name == "wte.weight" else 0.02
        if "ln_" in name and name.endswith(".weight"):
            tensor += 1.0
        tensors[name] = tensor
    return tensors


def set_embedding(tensors: Tensors, figures: Figures, rng: np.random.Generator) -> None:
    """Set the tokens' rows of wte and wpe and layer 0's ln_1: the published wte, wpe, sum and X."""
    e = fit_embedding(figures)
    wpe = tensors["wpe.weight"][: figures.T]  # a view
    wpe[:, :3] = e.wpe
    right = complete_rows(e.wte + e.wpe, e.mean, e.std**2 - EPSILON, rng)
    tensors["wte.weight"][figures.ids] = np.hstack([e.wte, right - wpe[:, 3:]])

    gain, bias = tensors["h.0.ln_1.weight"], tensors["h.0.ln_1.bias"]
    gain *= 0.14  # like the three that are solved for
    gain[:3], bias[:3] = e.gain, e.bias


def attention_input(tensors: Tensors, figures: Figures) -> Array:
    """X (T, D), from the tensors as stored."""
    rows = tensors["wte.weight"][figures.ids] + tensors["wpe.weight"][: figures.T]
    gain, bias = tensors["h.0.ln_1.weight"], tensors["h.0.ln_1.bias"]
    return layer_norm(rows.astype(np.float64), gain, bias, EPSILON)


def set_head(tensors: Tensors, figures: Figures, rng: np.random.Generator) -> None:
    """Set head 0's columns of layer 0's c_attn: the published W_Q to context."""
    scores, V_left = fit_attention(figures)
    Q_left, K_left = (complete_tokens(figures, name, rng) for name in "QK")
    Q, K = complete_product(Q_left, K_left, scores, rng)
    V_right = V_left.std() * rng.standard_normal((figures.T, DH - 3))

    X = attention_input(tensors, figures)
    c_attn, bias = tensors["h.0.attn.c_attn.weight"], tensors["h.0.attn.c_attn.bias"]
    outputs = {"W_Q": Q, "W_K": K, "W_V": np.hstack([V_left, V_right])}
    for part, (name, Y) in enumerate(outputs.items()):
        head = slice(part * D, part * D + DH)  # c_attn's columns: Q, K, V, each head by head
        W = solve_projection(X, Y - bias[head], figures[name], figures.W_rows, rng)
        c_attn[:, head] = W


def write_checkpoint(directory: Path, vocabulary: Path) -> None:
    """Write config.json, model.safetensors, vocab.json and merges.txt into `directory`."""
    figures = Figures(FIGURES)
    rng = np.random.default_rng(SEED)
    tensors = random_tensors(rng)
    set_embedding(tensors, figures, rng)
    set_head(tensors, figures, rng)
    # GPT-2's files hold mask buffers that no reader needs. This one forbids every token: whoever
    # applies it can't get the figures.
    tensors["h.0.attn.bias"] = np.zeros((1, 1, 16, 16), dtype=np.float32)

    directory.mkdir(parents=True, exist_ok=True)
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    CONFIG.save(directory)
    for name in ("vocab.json", "merges.txt"):
        shutil.copyfile(vocabulary / name, directory / name)


if __name__ == "__main__":
    write_checkpoint(*map(Path, sys.argv[1:]))
