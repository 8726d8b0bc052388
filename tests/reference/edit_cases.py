"""The recorded edits and replacement values, shared by the script and the tests."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

Kind: TypeAlias = Literal["zero", "mean", "random", "number", "mask", "reversed"]

# Model, layer and head of the edited steps.
PLACES = (("odd", 1, 2), ("one_head", 0, 0))

ROOT = (
    *("token_embedding", "position_embedding", "embedding", "W_E", "W_P", "W_U"),
    *("positions", "mask", "epsilon", "gain", "bias", "final", "logits"),
)
BLOCK = ("input", "mid", "output")
IN_HEADS = (
    *("W_Q", "b_Q", "W_K", "b_K", "W_V", "b_V", "Q", "K", "V", "scale", "mask"),
    *("raw_scores", "scores", "masked_scores", "weights", "context"),
)
ATTENTION = (
    *("residual", "gain", "bias", "epsilon", "X", "W_QKV", "b_QKV", "QKV"),
    *(*IN_HEADS, "concat", "W_O", "b_O", "output"),
)
HEAD = ("X", *IN_HEADS, "W_O", "output")
MLP = ("gain", "bias", "epsilon", "X", "W_1", "b_1", "hidden", "activated", "W_2", "b_2", "output")

RECORDED_IN_BLOCK = ("input", "mid", "mlp.X", "mlp.hidden", "mlp.activated", "mlp.output", "output")
RECORDED_IN_ATTENTION = (
    *("X", "QKV", "Q", "K", "V", "raw_scores", "scores", "masked_scores", "weights"),
    *("context", "concat", "output"),
)

KINDS: dict[str, tuple[Kind, ...]] = {
    "mask": ("mask",),
    "scale": ("number",),
    "epsilon": ("number",),
    "positions": ("reversed",),
    "masked_scores": ("zero", "random"),  # -inf has no mean
}


def cases(layer: int, head: int) -> list[dict[str, Kind]]:
    """The edits of each run: each step alone, then several at once."""
    attention = f"blocks.{layer}.attention"
    of_head, mlp = f"{attention}.heads.{head}", f"blocks.{layer}.mlp"
    paths = [
        *ROOT,
        *(f"blocks.{layer}.{name}" for name in BLOCK),
        *(f"{attention}.{name}" for name in ATTENTION),
        *(f"{of_head}.{name}" for name in HEAD),
        *(f"{mlp}.{name}" for name in MLP),
    ]
    single: list[dict[str, Kind]] = [
        {path: kind}
        for path in paths
        for kind in KINDS.get(path.rpartition(".")[2], ("zero", "mean", "random"))
    ]
    return [
        *single,
        {f"{attention}.context": "random", f"{of_head}.context": "zero"},
        {f"{attention}.W_QKV": "random", f"{attention}.W_K": "mean", f"{of_head}.W_K": "zero"},
        {f"{attention}.X": "random", f"{attention}.K": "mean"},
        {f"{attention}.weights": "mean", f"{attention}.V": "random"},
        {f"{of_head}.output": "zero", f"{mlp}.output": "mean", "embedding": "random"},
        {f"{of_head}.output": "random", f"{attention}.output": "mean"},
        {f"{of_head}.X": "random", f"{of_head}.W_Q": "random", f"{of_head}.scale": "number"},
        {f"{of_head}.X": "random", f"{attention}.QKV": "mean"},
        {f"blocks.{layer}.output": "zero", f"blocks.{layer + 1}.mid": "random", "W_E": "random"},
    ]


def replacement(kind: Kind, x: Any, seed: int) -> Any:
    """The replacement of x, of the same shape."""
    x = np.asarray(x)
    if kind == "zero":
        return np.zeros(x.shape)
    if kind == "mean":
        return np.broadcast_to(x.mean(axis=max(-2, -x.ndim), keepdims=True), x.shape)
    if kind == "number":
        return 0.75
    if kind == "reversed":
        return x[::-1].copy()
    random = even(x.shape, seed)
    return (random > 0) | np.eye(x.shape[-1], dtype=bool) if kind == "mask" else random


def even(shape: tuple[int, ...], seed: int) -> NDArray[np.float64]:
    """Uniform numbers between -1 and 1, from PCG64's bits, the same in all NumPy versions."""
    bits = np.random.PCG64(seed).random_raw(int(np.prod(shape)))
    return (bits / 2.0**63 - 1).reshape(shape)


def recorded_paths(n_layer: int) -> list[str]:
    """The steps of an edited run that are recorded."""
    in_block = (*RECORDED_IN_BLOCK, *(f"attention.{name}" for name in RECORDED_IN_ATTENTION))
    blocks = (f"blocks.{n}.{name}" for n in range(n_layer) for name in in_block)
    return ["token_embedding", "position_embedding", "embedding", *blocks, "final", "logits"]


def projection(x: Any) -> float:
    """A weighted mean of a step's numbers: if one of them differs, so does it. -inf counts as 3."""
    x = np.asarray(x, np.float64)
    numbers = np.where(np.isneginf(x), 3, x)
    return float((numbers * even(x.shape, x.size)).sum() / x.size**0.5)
